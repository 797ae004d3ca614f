"""``depthlaw audit``: what a model of the user's own really builds, how it moves, and what is wrong with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from paper_checks.cli import options
from paper_checks.cli.options import MORE, BadInputError, argument, option, refusing
from paper_checks.cli.output import Page, grid, print_json, progress
from paper_checks.system.files import document

if TYPE_CHECKING:
    from paper_checks.audit.audit import Audit
    from paper_checks.audit.compare import Fault

EXAMPLES = (
    "audit --hf gpt2 --layers 2,4,8",
    "audit mymodel:build --layers 4,8,16 --recipe gpt2 --optimizer adamw",
    "audit mymodel:build --layers 4,8,16,32 --scheme deepnorm --optimizer adam --plot mine.svg",
)
_LAYERS = "2,4,8,16"


def run(
    factory: str | None = argument(
        "MODULE:FACTORY, a function of your own that is called with a number of layers (or with encoder and decoder "
        "layers) and returns a torch module. MODULE is imported, and FACTORY called: that code of yours is run.",
        "[MODULE:FACTORY]",
        complete=lambda incomplete: [],
    ),
    layers: list[int] = option("The numbers of layers to build.", _LAYERS, most=4096),
    scheme: str | None = options.SCHEME,
    recipe: str | None = option(
        "The published model that it claims to be, such as gpt2; `depthlaw schemes` lists all.",
        metavar="NAME",
        complete=options.recipes,
    ),
    optimizer: str = option("The optimizer", "adamw", known=options.OPTIMIZERS),
    inputs: str | None = option(
        "MODULE:FUNCTION, which is called with the model and returns what it is called with; guessed if left out.",
        None,
        metavar="MODULE:FUNCTION",
        called="--input",
    ),
    hf: str | None = option(
        "A model type of Hugging Face's transformers, such as gpt2, or a config.json, in place of MODULE:FACTORY. "
        "Weights are random; nothing is downloaded.",
        metavar="NAME",
    ),
    width: int | None = option("With --hf: the width to build, 256 or less if left out.", None, MORE, most=16384),
    seeds: int = option("The number of models of each depth.", 4, MORE, most=1000),
    seed: int = option("The seed of the first of them.", 0, MORE, least=0, most=2**31),
    plot: Path | None = option(
        "Draw the update by role against depth to a .png, .svg or .pdf file.", None, MORE, suffixes=options.FIGURES
    ),
    as_json: bool = options.JSON,
) -> None:
    """Audit a model: does it do what it says, and which of its parameters break at depth?

    The model is built at several depths and run once at each. What flows in
    that pass tells its residual streams, norms and the role of each matrix,
    whatever its classes and parameters are called. That is compared with a
    scheme or recipe, and the update of one optimizer step is measured and
    predicted, role by role. Exit 1: there are faults.
    """
    if (factory is None) == (hf is None):
        raise BadInputError("give MODULE:FACTORY, or --hf NAME, and not both")
    if width is not None and hf is None:
        raise BadInputError("--width is of --hf: a factory of your own says how wide it builds")

    from paper_checks.audit.audit import audit
    from paper_checks.audit.builders import hugging_face, named

    with refusing(), redirect_stdout(sys.stderr):  # what the model prints is no part of the answer
        if hf is not None:
            build, own = hugging_face(hf, width)
            recipe = recipe or (own if scheme is None else None)
        else:
            build = named(factory or "", "MODULE:FACTORY")
        give = None if inputs is None else named(inputs, "--input")
        with progress(is_alive=True) as tell:
            answer = audit(
                build,
                layers,
                scheme=scheme,
                recipe=recipe,
                optimizer=optimizer,
                inputs=give,
                num_seeds=seeds,
                seed=seed,
                advance=tell,
            )
    if plot is not None:
        _draw(answer, plot)
    if as_json:
        print_json(document(**answer.document()))
    else:
        _show(Page(), answer)
        Page().wrote(plot)
    if answer.faults:
        raise SystemExit(1)


# ---------------------------------------------------------------- for people


def _show(page: Page, audit: Audit) -> None:
    last = audit.depths[-1].built
    claimed = audit.claimed.name if audit.claimed else None
    title = f"{type(last.module).__name__}, {', '.join(map(str, audit.layers))} layers, {audit.optimizer}"
    page.say(f"{title}: {_beside(claimed, audit)}", "bold")
    page.say(f"d_model {last.d_model}, given {last.inputs.kind}", "dim")
    page.show(grid(["side", "sublayers", "x' =", "norms"], _blocks(audit), ["side", "sublayers", "x' =", "norms"]))
    for side, sublayers in last.sides.items():
        first, behind = sublayers[0].second_moment, sublayers[-1].second_moment
        page.say(
            f"E x^2 of the stream of the {side}: {first:.3g} at its start, {behind:.3g} at its last sublayer", "dim"
        )
    page.show(grid(*_updates(audit)))
    page.say(
        "role: v and out are the value and output matrices of attention, fc1 and fc2 those of the FFN (beside a gate, "
        "fc1, fc3 is its up matrix). init std: of the entries at the start, by the number of layers N and the layer l. "
        "N = ...: the update of one step, measured, in units in which it does not hang on the width. exponent: of the "
        "update in N, measured with its 95 % interval, and predicted at infinite width for the block as it is.",
        "dim",
    )
    for number, faults in enumerate(_alike(audit.faults), start=1):
        fault, others = faults[0], [other for other in faults[1:] if other.role]
        also = f" So do {', '.join(str(other.role) for other in others)}." if others else ""
        of = f" ({fault.side})" if fault.side and len(last.sides) > 1 else ""
        page.say(f"{number}. {fault.what}{also}{of}", "bold red")
        where = [name for one in faults for name in one.where]
        if where:
            page.say(f"   where: {', '.join(_patterns(where))}")
        page.say(f"   found: {'; '.join(dict.fromkeys(one.found for one in faults))}")
        page.say(f"   expected: {'; '.join(dict.fromkeys(one.expected for one in faults))}")
        if fault.why:
            page.say(f"   why: {fault.why}")
        page.say("   fix:")
        lines = dict.fromkeys(line for one in faults for line in one.fix.splitlines())
        for line in sorted(lines, key=lambda line: line.startswith("depthlaw.")):  # what does all at once comes last
            page.say_where(f"     {line}")
    for remark in (*audit.findings.remarks, *audit.remarks):
        page.say(f"Remark: {remark}.", "dim")
    if not audit.faults:
        page.say(
            "No faults." if claimed else "No faults that show without a scheme or recipe to compare with.", "bold green"
        )


def _alike(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Faults of one kind and side that say the same of several roles, together."""
    groups: dict[tuple[str, str | None, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.kind, fault.side, fault.what.replace(f" {fault.role} ", " ")), []).append(fault)
    return list(groups.values())


def _patterns(names: Sequence[str]) -> list[str]:
    """Names of parameters, those that differ in numbers alone as one.

    >>> from paper_checks.cli.audit import _patterns
    >>> _patterns(["h.0.fc.weight", "h.1.fc.weight", "wte.weight"])
    ['h.*.fc.weight (2)', 'wte.weight']
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"(?<![^.])[0-9]+(?![^.])", "*", name), []).append(name)
    return [group[0] if len(group) == 1 else f"{pattern} ({len(group)})" for pattern, group in groups.items()]


def _beside(claimed: str | None, audit: Audit) -> str:
    if claimed is not None:
        number = len(audit.faults)
        return f"beside {claimed}, {number} fault{'' if number == 1 else 's'}"
    if audit.nearest is None:
        return "like no scheme or recipe that is known"
    name, differences = audit.nearest
    return f"nearest to {name}" + (f", and differs in {len(differences)}" if differences else "")


def _blocks(audit: Audit) -> list[Sequence[str]]:
    """A line for each stretch of sublayers that are alike."""
    rows: list[Sequence[str]] = []
    for side, sublayers in audit.depths[-1].built.sides.items():
        groups: dict[tuple[str, str, str], list[int]] = {}
        for sub in sublayers:
            trained = {"scalar": " (trained)", "vector": " (a trained vector)", None: ""}[sub.trained]
            scale = "" if abs(sub.branch_weight - 1) < 1e-9 and not trained else f"{sub.branch_weight:.4g}{trained} "
            stream = "" if abs(sub.residual_weight - 1) < 1e-9 else f"{sub.residual_weight:.4g} "
            key = sub.kind, f"{stream}x + {scale}F(x)", ", ".join(sorted(sub.norms)) or "none"
            groups.setdefault(key, []).append(sub.index)
        for (kind, form, norms), indices in groups.items():
            rows.append([side, f"{len(indices)} {kind}", form, norms])
    return rows[:12]


def _updates(audit: Audit) -> tuple[list[str], list[list[str] | None], list[str]]:
    heads = ["role", "init std", *(f"N = {layers}" for layers in audit.layers), "exponent", "predicted"]
    rows: list[list[str] | None] = []
    for role in audit.roles:
        row = audit.role_row(role)
        init = "; ".join(f"{text}" for text in row["init_std"].values())
        init += f", {row['draws']}" if init else ""
        cells = ["-" if point["measured"] is None else f"{point['measured']:.3g}" for point in row["update"]]
        low, high = row["exponent_low"], row["exponent_high"]
        interval = "" if low is None or high is None else f" ± {(high - low) / 2:.2f}"
        exponents = ((row["exponent"], interval), (row["predicted_exponent"], ""))
        ends = ["-" if number is None else f"{number:z.2f}{rest}" for number, rest in exponents]
        rows.append([f"{row['side']} {row['role']}" if row["side"] else row["role"], init, *cells, *ends])
    return heads, rows, ["role", "init std"]


def _draw(audit: Audit, path: Path) -> None:
    from paper_checks.pages.plots import Shown, update_against_depth
    from theory.kernel.predict import unit_power

    last = audit.depths[-1].built
    units = {role: unit_power(audit.optimizer, role) for role in audit.roles if role != "update" and "/" not in role}
    title = f"{type(last.module).__name__} under {audit.optimizer}: lines predicted, points measured"
    update_against_depth(Shown(audit.rows, units, last.d_model), title, "", path, is_in_layers=True)
