"""``depthlaw advise``: a model is tuned at one depth and wanted at another; what to change, best first, as code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from depthlaw.cli import options
from depthlaw.cli.network_options import MOST_TOKENS, MOST_WALKED, Stack, Transformer, networks
from depthlaw.cli.options import REQUIRED, BadInputError, option, refusing
from depthlaw.cli.output import counted, print_json
from depthlaw.system.files import document
from depthlaw.system.page import Page

if TYPE_CHECKING:
    from depthlaw.advice.advice import Advice, Remedy

EXAMPLES = (
    "advise --recipe gpt2 --optimizer adamw --from-layers 48 --layers 96 --width 1024",
    "advise --recipe llama-3 --optimizer muon+adamw --from-layers 16 --layers 32 --width 1024",
    "advise --scheme deepnorm --optimizer adamw --from-layers 6 --layers 24 --width 512 --arch encoder",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 24,48 --width 768 --why",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 48 --width 768 --code best",
)


def run(
    stack: Stack,
    transformer: Transformer,
    width: int = option("The width d_model of the model.", REQUIRED, most=100_000),
    from_layers: int = option("The number of layers of the model that you have tuned.", REQUIRED, most=5000),
    from_decoder_layers: int | None = option(
        "The number of layers of its decoder, for --arch encoder-decoder; as many as --from-layers if left out.",
        most=options.MOST,
    ),
    code: str | None = option(
        "Print only Python code to paste, of the remedy with this name, or of the best one: --code best.",
        metavar="NAME",
    ),
    why: bool = option(
        "Also say how each kind of parameter grows, every way with all it changes, and how it is ranked."
    ),
    as_json: bool = options.JSON,
) -> None:
    """Say what to change when you make a model deeper: init, branch weight, learning rates; the best first, as code.

    You have tuned a model of --from-layers layers and want one of --layers, more
    or fewer, or several such: 24,48. The first lines say how much further one
    step moves that model if you change nothing, what to do, and another way to do
    it; the table has further ones, and how much of the growth each leaves. A way
    leaves the tuned model as it is, unless it says otherwise. --why has the rest.
    """
    if code is not None and as_json:
        raise BadInputError("--code and --json do not go together: --json has the code of every remedy")
    shallow, *deeper = _asked(stack, transformer, width, from_layers, from_decoder_layers)
    if code is not None and len(deeper) > 1:
        raise BadInputError(f"--code is of one depth, and --layers has {len(deeper)}: give one")

    from depthlaw.advice.advice import check, compared, num_passes
    from depthlaw.advice.text import show

    with refusing():
        for deep in deeper:
            check(shallow, deep, stack.optimizer)
        passes = sum(num_passes(shallow, deep, stack.optimizer) for deep in deeper)
        with counted("predicting", passes) as advance:
            advices = [compared(shallow, deep, stack.optimizer, advance) for deep in deeper]
    advices = sorted(advices, key=lambda advice: advice.deep.depth)
    if code is not None:
        print("\n".join(advices[0].code(_named(advices[0], code))))
    elif as_json:
        of_each = [advice.document() for advice in advices]
        print_json(document(**of_each[-1], **({"depths": of_each} if len(of_each) > 1 else {})))
    else:
        show(Page(), advices, has_why=why)


def _asked(
    stack: Stack, transformer: Transformer, width: int, from_layers: int, from_decoder_layers: int | None
) -> Sequence[Any]:
    """The tuned network and those of other depths."""
    if stack.sublayers is not None:
        raise BadInputError("--sublayers is no option of advise: give --from-layers N and --layers N")
    if transformer.layers is None:
        raise BadInputError("--layers N is wanted: the number of layers that the model is to have, or several: 24,48")
    layers = [from_layers, *transformer.layers]
    decoder_layers = None
    if transformer.arch == "encoder-decoder":
        last = transformer.decoder_layers or transformer.layers
        options.check_pairs(transformer.layers, last)
        decoder_layers = [from_decoder_layers or from_layers, *last]
    elif from_decoder_layers is not None or transformer.decoder_layers is not None:
        raise BadInputError("--decoder-layers and --from-decoder-layers belong to --arch encoder-decoder")
    asked = replace(transformer, attention=True, layers=layers, decoder_layers=decoder_layers)
    if transformer.recipe is None and transformer.arch is None:
        asked = replace(asked, arch="decoder")
    asked, chosen = asked.of_recipe(width)
    both = networks(stack, asked, chosen or width, MOST_WALKED, MOST_TOKENS)
    return [replace(network, has_wide_heads=asked.num_heads is None) for network in both]


def _named(advice: Advice, name: str) -> Remedy:
    if name == "best":
        return advice.remedies[0]
    names = {remedy.name: remedy for remedy in advice.remedies}
    if name not in names:
        raise BadInputError(f"--code {name!r} is no remedy here (allowed: best, {', '.join(names)})")
    return names[name]
