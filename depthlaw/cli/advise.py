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
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.advice.advice import Advice, Remedy

EXAMPLES = (
    "advise --recipe gpt2 --optimizer adamw --from-layers 48 --layers 96 --width 1024",
    "advise --recipe llama-3 --optimizer muon+adamw --from-layers 16 --layers 32 --width 1024",
    "advise --scheme deepnorm --optimizer adamw --from-layers 6 --layers 24 --width 512 --arch encoder",
    "advise --recipe gpt2 --optimizer adamw --from-layers 12 --layers 48 --width 768 --code best",
)
_SHOWN = 5
"""Remedies on the screen; --json has all."""


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
    as_json: bool = options.JSON,
) -> None:
    """Say what to change when you make a model deeper: init, branch weight, learning rates; the best first, as code.

    You have tuned a model of --from-layers layers and want one of --layers, more
    or fewer. The answer says first how much further one step moves that model if
    you change nothing, role by role. Then it ranks the remedies, by how much of
    that they leave in the worst role, and by what else they change. A remedy
    leaves the tuned model as it is, unless it says otherwise.
    """
    if code is not None and as_json:
        raise BadInputError("--code and --json do not go together: --json has the code of every remedy")
    shallow, deep = _asked(stack, transformer, width, from_layers, from_decoder_layers)

    from depthlaw.advice.advice import check, compared, num_passes

    with refusing():
        check(shallow, deep, stack.optimizer)
        with counted("predicting", num_passes(shallow, deep, stack.optimizer)) as advance:
            advice = compared(shallow, deep, stack.optimizer, advance)
    if code is not None:
        print("\n".join(advice.code(_named(advice, code))))
    elif as_json:
        print_json(document(**advice.document()))
    else:
        _show(Page(), advice)


def _asked(
    stack: Stack, transformer: Transformer, width: int, from_layers: int, from_decoder_layers: int | None
) -> Sequence[Any]:
    """The network at both depths."""
    if stack.sublayers is not None:
        raise BadInputError("--sublayers is no option of advise: give --from-layers N and --layers N")
    if transformer.layers is None or len(transformer.layers) != 1:
        raise BadInputError("--layers N is wanted: the one number of layers that the model is to have")
    layers = [from_layers, *transformer.layers]
    decoder_layers = None
    if transformer.arch == "encoder-decoder":
        last = transformer.decoder_layers or transformer.layers
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


# ---------------------------------------------------------------- for people

_LEGEND = (
    "leaves: the update over the tuned model's, in the role where it is worst; all: everything that is trained, with "
    "the small roles. relative: how much larger a step is beside the matrix that it changes than in the tuned model, "
    "for the worst matrix. branches: what all of them put into the stream at the start; below 10 % the model starts "
    "nearly as the identity. runs: how many of this project's runs of that scheme trained, all of small networks.\n"
    "Ranked: what is held, within 10 %, stands first, then what leaves less. Of equals, first what does not start as "
    "the identity, keeps the tuned model, keeps the forward pass, moves relative less, changes fewer things."
)


def _show(page: Page, advice: Advice) -> None:
    from depthlaw.advice.remedies import layers_text
    from depthlaw.advice.remedy import MATTERS
    from depthlaw.network.predicted_rows import percent

    few, many = layers_text(advice.shallow), layers_text(advice.deep)
    title = f"{advice.deep.scheme.name} under {advice.optimizer}, d_model {advice.deep.d_model}: {few} to {many} layers"

    def line(role: str) -> list[str]:
        share = "" if role == "update" else percent(advice.shares[role])
        return [role, f"x {advice.factors[role]:.3g}", f"{advice.exponents[role]:z.2f}", share]

    rows = [line("update"), None, *map(line, advice.matters)]
    page.say(title, "bold")
    page.say(", ".join(f"{name} {value}" for name, value in advice.block.items()), "dim")
    page.show(grid(["role", "update", "exponent", "share"], rows, texts=["role"]))
    small = [role for role in advice.factors if role not in ("update", *advice.matters)]
    others = ", ".join(f"{role} x {advice.factors[role]:.3g}" for role in small) or "none"
    page.say(
        f"As it is. share: a role's update beside that of all branch matrices. Roles below {percent(MATTERS)} at "
        f"both depths, which count together, in all: {others}.",
        "dim",
    )
    rest = (remedy for remedy in advice.remedies[_SHOWN:] if remedy.name == "nothing")
    shown = [*advice.remedies[:_SHOWN], *rest]
    heads = ["remedy", "leaves", "in", "relative", "branches", "runs"]
    page.show(grid(heads, map(_cells, shown), texts=["remedy", "in"], title="Remedies, best first"))
    page.say(_LEGEND, "dim")
    for remedy in shown[:3]:
        page.say(f"{remedy.name}: {'; '.join(remedy.changes) or remedy.note}.")
    for remark in advice.remarks:
        page.say(f"{remark[0].upper()}{remark[1:]}.", "dim")
    if advice.remedies[0].changes:
        page.say("As code, with standard deviations and parameter groups: --code best, or --code NAME.", "bold")
    else:
        page.say("Nothing is needed: the update is held as it is.", "bold")


def _cells(remedy: Remedy) -> list[str]:
    role, runs = (
        remedy.worst_role,
        "none" if remedy.record is None else "{num_trained}/{num_runs}".format(**remedy.record),
    )
    growth = f"x {remedy.leaves[role]:.3g}"
    return [remedy.name, growth, role, f"x {remedy.relative:.3g}", f"{100 * remedy.branches:.0f} %", runs]
