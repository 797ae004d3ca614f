"""``depthlaw advise``: a model is tuned at one depth and wanted at another; what to change, best first, as code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.network_options import MOST_TOKENS, MOST_WALKED, Stack, Transformer, networks, said_by_model
from depthlaw.cli.shared.options import REQUIRED, BadInputError, option, refusing
from depthlaw.cli.shared.output import counted, print_json, progress
from depthlaw.cli.shared.own_model import HF, INPUTS, TRACEBACK, placing, staying, where
from depthlaw.system.files import document
from depthlaw.system.page import Page

if TYPE_CHECKING:
    from depthlaw.advice.advice import Advice

OWN = "A model of your own"
"""A panel of the ``--help``."""
EXAMPLES = (
    "advise --recipe gpt2 --optimizer adamw --from-layers 48 --layers 96 --width 1024",
    "advise --model mymodel:build --optimizer adamw --from-layers 8 --layers 32",
    "advise --recipe llama-3 --optimizer muon+adamw --from-layers 16 --layers 32 --width 1024",
    "advise --scheme deepnorm --optimizer adamw --from-layers 6 --layers 24 --width 512 --arch encoder",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 24,48 --width 768 --why",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 48 --width 768 --code best",
    "advise --scheme pre-ln --optimizer adamw --from-layers 4 --from-visits 1 --layers 4 --visits 8 --width 512",
)


@dataclass(frozen=True, kw_only=True)
class Asked(Stack):
    optimizer: str = options.OPTIMIZER._replace(default="adamw")


def run(
    stack: Asked,
    transformer: Transformer,
    width: int | None = option(
        "The width d_model of the model; if left out, of --recipe the published one, and of --hf 256 or less.",
        most=100_000,
    ),
    from_layers: int = option("The number of layers of the model that you have tuned.", REQUIRED, most=5000),
    from_decoder_layers: int | None = option(
        "The number of layers of its decoder, for --arch encoder-decoder; as many as --from-layers if left out.",
        most=options.MOST,
    ),
    from_visits: int | None = option(
        "How often the layers of the tuned model are gone through, where --visits says it of the one that you want; as "
        "often if left out.",
        most=options.MOST,
    ),
    code: str | None = option(
        "Print only Python code to paste, of the way with this name, or of the best one: --code best.",
        metavar="NAME",
    ),
    model: str | None = option(
        "MODULE:FACTORY or path/to/file.py:FACTORY, a function of your own that is called with a number of layers and "
        "returns a torch module. That code of yours is run.",
        None,
        OWN,
        metavar="MODULE:FACTORY",
    ),
    hf: str | None = HF._replace(panel=OWN),
    inputs: str | None = INPUTS._replace(panel=OWN),
    shows_traceback: bool = TRACEBACK._replace(panel=OWN),
    why: bool = option(
        "Also say how each kind of parameter grows, every way with all it changes, and how it is ranked."
    ),
    as_json: bool = options.JSON,
) -> None:
    """Say what to change when you make a model deeper: init, branch weight, learning rates; the best first, as code.

    You have tuned a model of --from-layers layers and want one of --layers, more
    or fewer, or several such: 24,48. The first lines say how much further one
    step moves that model if you change nothing, what to do, and another way to do
    it; the table has further ways, and how far a step moves the model with each. Each
    way keeps the tuned model as it is, unless it says otherwise. --why shows how each
    kind of parameter grows, and how the ways are ranked.

    With --model or --hf the model is your own: it is built at each depth and read
    as `depthlaw audit` reads it, and the code has its own parameters' names.
    """
    if code is not None and as_json:
        raise BadInputError("--code and --json do not go together: --json has the code of every way")
    if stack.sublayers is not None:
        raise BadInputError("--sublayers is no option of advise: give --from-layers N and --layers N")
    if transformer.layers is None:
        raise BadInputError("--layers N is wanted: the number of layers that the model is to have, or several: 24,48")
    if code is not None and len(transformer.layers) * len(stack.visits or [1]) > 1:
        raise BadInputError("--code is of one depth: give one number of --layers and of --visits")
    if model is not None or hf is not None:
        if stack.visits or from_visits:
            raise BadInputError("--visits does not go with a model of your own, which is built as often as it visits")
        advices = _of_own(stack, transformer, width, from_layers, (model, hf, inputs), shows_traceback)
    else:
        if (stack.scheme or stack.norm or transformer.recipe) is None:
            raise BadInputError(
                "name a model: your own, --model MODULE:FACTORY or --hf NAME, a published one, --recipe NAME, or "
                "--scheme NAME"
            )
        if width is None and transformer.recipe is None:
            raise BadInputError("--width D is wanted of a --scheme; a --recipe has the width that was published")
        tuned = (from_layers, from_decoder_layers, from_visits)
        advices = _of_named(_asked(stack, transformer, width, tuned), stack.optimizer)

    from depthlaw.advice.text import show

    advices = sorted(advices, key=lambda advice: advice.deep.depth)
    if code is not None:
        with refusing("--code"):
            lines = advices[0].code(advices[0].named(code))
        print("\n".join(lines))
    elif as_json:
        of_each = [advice.document() for advice in advices]
        print_json(document(**of_each[-1], **({"depths": of_each} if len(of_each) > 1 else {})))
    else:
        show(Page(), advices, has_why=why)


def _of_named(networks: Sequence[Any], optimizer: str) -> list[Advice]:
    """networks: the tuned one, and those of other depths."""
    from depthlaw.advice.advice import check, compared, num_passes

    shallow, *deeper = networks
    with refusing():
        for deep in deeper:
            check(shallow, deep, optimizer)
        with counted("predicting", sum(num_passes(shallow, deep, optimizer) for deep in deeper)) as advance:
            return [compared(shallow, deep, optimizer, advance) for deep in deeper]


def _of_own(
    stack: Stack,
    transformer: Transformer,
    width: int | None,
    from_layers: int,
    model: tuple[str | None, str | None, str | None],
    shows_traceback: bool,
) -> list[Advice]:
    """own: MODULE:FACTORY or the name of a Hugging Face model, and MODULE:FUNCTION of its input."""
    factory, hf, inputs = model
    if factory is not None and hf is not None:
        raise BadInputError("give --model MODULE:FACTORY or --hf NAME, not both")
    if width is not None and hf is None:
        raise BadInputError("--width is of --hf: a factory of your own says how wide it builds")
    if (name := said_by_model(stack, transformer)) is not None:
        raise BadInputError(f"{name} does not go with a model of your own, which says it itself")
    factory, folder = where(factory, hf)
    inputs, aside = where(inputs, None)

    from depthlaw.advice.advice import of_model
    from depthlaw.auditing.builders import hugging_face, named

    # What the model prints is no part of the answer.
    with placing(shows_traceback), refusing(), redirect_stdout(sys.stderr), staying():
        build = hugging_face(hf, width)[0] if hf is not None else named(factory or "", "--model", folder)
        give = None if inputs is None else named(inputs, "--input", aside)
        with progress(is_alive=True) as tell:
            return of_model(build, from_layers, transformer.layers or [], stack.optimizer, give, tell)


def _asked(
    stack: Stack, transformer: Transformer, width: int | None, tuned: tuple[int, int | None, int | None]
) -> Sequence[Any]:
    """The tuned network and those of other depths. tuned: its layers, those of its decoder, and its visits."""
    assert transformer.layers is not None
    from_layers, from_decoder_layers, from_visits = tuned
    last, first = transformer.decoder_layers, None
    if transformer.arch == "encoder-decoder":
        last = last or transformer.layers
        options.check_pairs(transformer.layers, last)
        first = [from_decoder_layers or from_layers]
    elif from_decoder_layers is not None or last is not None:
        raise BadInputError("--decoder-layers and --from-decoder-layers belong to --arch encoder-decoder")
    visits = stack.visits or [1]
    if from_visits is None and len(visits) > 1:
        raise BadInputError("--from-visits R is wanted, of the tuned model, where --visits has several numbers")
    asked_networks = []
    for times, layers, decoder_layers in (
        ([from_visits or visits[0]], [from_layers], first),
        (visits, transformer.layers, last),
    ):
        asked = replace(transformer, attention=True, layers=layers, decoder_layers=decoder_layers)
        if transformer.recipe is None and transformer.arch is None:
            asked = replace(asked, arch="decoder")
        asked, chosen = asked.of_recipe(width)
        assert chosen is not None  # a scheme's is asked for above, a recipe's is the published one
        several = networks(replace(stack, visits=times), asked, chosen, MOST_WALKED, MOST_TOKENS)
        asked_networks += [replace(network, has_wide_heads=asked.num_heads is None) for network in several]
    return asked_networks
