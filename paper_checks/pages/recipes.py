"""RECIPES.md and its picture: how the update of published models goes with depth, and other people's code beside it.

    python -m paper_checks.pages.recipes          # rewrites RECIPES.md and figures/recipes.svg, from what is kept

Predictions come from results/kernel-recipes.json (``paper_checks.experiments.kernel_laws``), measurements from
sims/records/clients.jsonl (``paper_checks.experiments.clients``), so this takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import log
from pathlib import Path
from statistics import mean, median
from typing import Any

from paper_checks.experiments import clients, kernel_kept
from paper_checks.experiments.clients import Case
from paper_checks.experiments.kernel_laws import RECIPE_LENGTHS, RECIPE_OPTIMIZERS, Law, recipe_law
from paper_checks.pages.drawing import Curve, Drawing, Panel, raised, save
from paper_checks.pages.markdown import interval, section
from paper_checks.recipes.catalogue import RECIPES
from paper_checks.recipes.recipe import RECIPE_TOKENS, Recipe
from paper_checks.system.files import write_atomically
from paper_checks.system.places import FIGURES, RESULTS
from sims import stats
from sims.records import record
from theory.kernel.predict import unit_power

PAGE, PICTURE = RESULTS / "RECIPES.md", FIGURES / "recipes.svg"
FLAT = 0.1
"""An exponent this near 0 moves the update by less than a factor 1.6 from 12 to 1,000 layers."""
BENT = 0.25
"""What tells a bent curve from a power: the exponent at the end is further than this from that over all depths."""
MATTERS = 0.05
"""The share of the matrices' update from which on a role matters."""
NAMES = {"adamw": "AdamW", "muon+adamw": "Muon beside AdamW"}
ROLES = ("q", "k", "v", "out", "fc1", "fc2", "fc3", "bias", "norm_gain", "layer_scale", "embedding")
FIRST, BEFORE, LAST = RECIPE_LENGTHS[0], RECIPE_LENGTHS[-2], RECIPE_LENGTHS[-1]
SHOWN = {
    "gpt2": "GPT-2",
    "gpt-neox": "GPT-NeoX",
    "llama-3": "Llama 3",
    "torchtitan": "torchtitan",
    "olmo-2": "OLMo 2",
    "gemma-2": "Gemma 2",
    "t5": "T5",
    "bert": "BERT",
    "cait": "CaiT",
    "minicpm": "MiniCPM",
    "completep": "CompleteP",
    "keel": "Keel",
    "mix-ln": "Mix-LN",
}
"""The recipes of the picture, each unlike the others."""


@dataclass(frozen=True)
class Going:
    """How a recipe's update goes with depth under one optimizer.

    exponent: over all depths. end: between the two deepest. factor: from the first depth to the last. worst: the role
    whose update grows most at the end among those that matter there, with its exponent and its share there.
    """

    exponent: float
    end: float
    factor: float
    worst: tuple[str, float, float]

    @property
    def bends(self) -> bool:
        """Whether no one power is near it at all depths."""
        return abs(self.end - self.exponent) > BENT


def going(name: str, optimizer: str) -> Going:
    """LookupError where nothing is kept of it."""
    found = recipe_law(name, optimizer)
    grows = {role: at_the_end(found, role) for role in roles(RECIPES[name], found)}
    shares = {role: share(found, role, optimizer, RECIPES[name].size["d_model"]) for role in grows}
    worst = max((role for role in grows if shares[role] >= MATTERS), key=lambda role: grows[role])
    factor = found.updates[LAST] / found.updates[FIRST]
    ends = exponent(found, "update"), at_the_end(found, "update")
    return Going(*ends, factor, (worst, grows[worst], shares[worst]))


def roles(recipe: Recipe, found: Law) -> list[str]:
    """Those that the recipe trains."""
    return [role for role in ROLES if role in found.roles and (role != "bias" or recipe.has_bias)]


def exponent(found: Law, role: str) -> float:
    slope = found.exponent(role, FIRST, LAST)
    return 0.0 if slope is None else slope


def at_the_end(found: Law, role: str) -> float:
    """The exponent between the two deepest."""
    before, last = found.of(role)[BEFORE], found.of(role)[LAST]
    return log(last / before) / log(LAST / BEFORE) if before and last else 0.0


def share(found: Law, role: str, optimizer: str, d_model: int) -> float:
    """Of a role at the last depth, beside the branch matrices together."""
    return found.roles[role][LAST] * d_model ** -unit_power(optimizer, role) / found.updates[LAST]


# ---------------------------------------------------------------- the page


@dataclass(frozen=True)
class Beside:
    """Other people's model beside its prediction, under one optimizer. total: measured over predicted of the branch
    matrices together. roles: of each role that has a prediction."""

    case: Case
    optimizer: str
    package: str
    seeds: int
    total: stats.Estimate
    roles: Mapping[str, stats.Estimate]

    @property
    def farthest(self) -> str:
        """The role of the branch matrices that is farthest from its prediction."""
        matrices = {role: one for role, one in self.roles.items() if role in ROLES[:7]}
        return max(matrices, key=lambda role: abs(matrices[role].mean - 1))


@cache
def beside(path: Path = clients.PATH) -> list[Beside]:
    """Everything that the record has, in the order of ``clients.cases``."""
    runs = {_key(run.config): run for run in record.read(path)} if path.exists() else {}
    lines = []
    for case in clients.cases():
        found = [(optimizer, runs.get(_key(record.plain(case.sizes(optimizer))))) for optimizer in clients.OPTIMIZERS]
        lines += [
            _beside(case, optimizer, run) for optimizer, run in found if run is not None and all(x for _, x in found)
        ]
    return lines


def _key(config: Mapping[str, Any]) -> str:
    """Whatever version of its package a run was made with."""
    return json.dumps({name: value for name, value in config.items() if name != "package"}, sort_keys=True)


def _beside(case: Case, optimizer: str, run: record.Run) -> Beside:
    network = case.network
    predicted = kernel_kept.read(clients.PREDICTED).find(network, optimizer).by_optimizer[optimizer]
    ratios = {}
    for role, exact in predicted.items():
        if role in run.values and exact.value:
            power = 0.0 if role == "update" else network.role_power(optimizer, role)
            values = [value * case.d_model**power for value in run.values[role] if value is not None]
            ratios[role] = stats.ratio_to_exact(stats.estimate(values), exact.value)
    return Beside(case, optimizer, str(run.config["package"]), len(run.seeds), ratios.pop("update"), ratios)


def page() -> str:
    """Markdown. LookupError where predictions are not kept."""
    found = {(name, optimizer): going(name, optimizer) for name in RECIPES for optimizer in RECIPE_OPTIMIZERS}
    lines = beside()
    return section(
        "recipes",
        "page",
        names=NAMES,
        first=FIRST,
        before=BEFORE,
        last=LAST,
        flat=FLAT,
        matters=MATTERS,
        lists={optimizer: _lists(optimizer, found) for optimizer in RECIPE_OPTIMIZERS},
        picture=picture().caption,
        heads=["recipe", "layers, width", *(f"{name}: {word}" for name in NAMES.values() for word in _WORDS)],
        rows=[_row(name, found) for name in RECIPES],
        role_heads=["recipe", *ROLES],
        role_rows={optimizer: [_role_row(name, optimizer) for name in RECIPES] for optimizer in RECIPE_OPTIMIZERS},
        num_clients=len({line.case.client.name for line in lines}),
        packages=sorted({line.package for line in lines}),
        recipe_tokens=RECIPE_TOKENS,
        tokens=clients.NUM_TOKENS,
        head_size=clients.HEAD_SIZE,
        head_counts=" and ".join(
            str(width // clients.HEAD_SIZE) for width in sorted({line.case.d_model for line in lines})
        ),
        error=max(recipe_law(*one).errors["update"][n] for one in found for n in RECIPE_LENGTHS),
        summaries=[_summary(optimizer, lines) for optimizer in clients.OPTIMIZERS],
        beside_heads=["model", "weights", "layers, width", "networks", *clients.OPTIMIZERS, "farthest role"],
        beside_rows=[_beside_row(list(of_case)) for _, of_case in groupby(lines, key=lambda line: id(line.case))],
    )


_WORDS = ("exponent", "at the end", f"{FIRST} to {LAST:,}", "what grows most")


def _lists(optimizer: str, found: Mapping[tuple[str, str], Going]) -> dict[str, list[str]]:
    """Recipes that are flat at the end, grow, shrink, and those that no power is near, the fastest first."""
    all_of = {name: found[name, optimizer] for name in RECIPES}
    ranked = sorted(all_of, key=lambda name: -all_of[name].end)
    straight = [name for name in ranked if not all_of[name].bends]
    return {
        "flat": [_flat(name, all_of[name]) for name in straight if abs(all_of[name].end) < FLAT],
        "grow": [f"{name} ({all_of[name].end:z.2f})" for name in straight if all_of[name].end >= FLAT],
        "shrink": [f"{name} ({all_of[name].end:z.2f})" for name in straight if all_of[name].end <= -FLAT],
        "bend": [
            f"{name} ({all_of[name].exponent:z.2f}, then {all_of[name].end:z.2f})"
            for name in ranked
            if all_of[name].bends
        ],
    }


def _flat(name: str, one: Going) -> str:
    """With the role that still grows, if there is one."""
    role, slope, part = one.worst
    return f"{name} ({one.end:z.2f}" + (f"; but {role} as N^{slope:.2f}, {_part(part)})" if slope >= FLAT else ")")


def _part(part: float) -> str:
    """A share of the matrices' update."""
    return f"{part:.0%} of the matrices" if part < 1 else f"{part:,.2g} times the matrices"


def _row(name: str, found: Mapping[tuple[str, str], Going]) -> list[str]:
    size = RECIPES[name].size
    cells = [name, f"{size['num_layers']}, {size['d_model']:,}"]
    for optimizer in RECIPE_OPTIMIZERS:
        one = found[name, optimizer]
        role, slope, part = one.worst
        end = f"**{one.end:z.2f}**" if abs(one.end) < FLAT else f"{one.end:z.2f}"
        size_of = f"{part:.0%}" if part < 1 else f"x {part:,.2g}"
        cells += [f"{one.exponent:z.2f}", end, f"x {_digits(one.factor)}", f"{role} {slope:z.2f} ({size_of})"]
    return cells


def _digits(value: float) -> str:
    """Two digits, 580 for 5.8e+02; 1e14 and other far numbers as powers of ten."""
    return f"{float(f'{value:.2g}'):,g}" if value < 1e5 else f"{value:.0e}".replace("e+", "e")


def _role_row(name: str, optimizer: str) -> list[str]:
    found, d_model = recipe_law(name, optimizer), RECIPES[name].size["d_model"]
    there = roles(RECIPES[name], found)
    cells = [name]
    for role in ROLES:
        text = f"{exponent(found, role):z.2f}" if role in there else "-"
        is_large = role in there and share(found, role, optimizer, d_model) >= MATTERS
        cells.append(f"**{text}**" if is_large else text)
    return cells


def _summary(optimizer: str, lines: Sequence[Beside]) -> dict[str, str | float]:
    """Of all cases under one optimizer."""
    mine = [line for line in lines if line.optimizer == optimizer]
    far = [line for line in mine if not holds(line.total, 0.03)]
    return {
        "optimizer": optimizer,
        "num": len(mine),
        "mean": mean(line.total.mean for line in mine),
        "half_width": median((line.total.high or 0.0) - line.total.mean for line in mine),
        "hold": sum(holds(line.total) for line in mine),
        "near": len(mine) - len(far),
        "far": ", ".join(f"{_of(line.case)} {interval(line.total, 2)}" for line in far) or "none",
    }


def holds(ratio: stats.Estimate, deviation: float = 0.0) -> bool:
    """Whether the interval has something in it that deviates from 1 by so much at most."""
    assert ratio.low is not None and ratio.high is not None
    return ratio.low <= 1 + deviation and ratio.high >= 1 - deviation


def _of(case: Case) -> str:
    return f"{case.client.name}, {case.init}, {case.num_layers} layers, {case.d_model} wide"


def _beside_row(lines: Sequence[Beside]) -> list[str]:
    """Of one case, under all optimizers."""
    case = lines[0].case
    last = lines[-1]
    worst = max(lines, key=lambda line: abs(line.roles[line.farthest].mean - 1))
    text = f"{worst.farthest}, {worst.optimizer}: {interval(worst.roles[worst.farthest], 2)}"
    sizes = f"{case.num_layers}, {case.d_model}"
    return [case.client.name, case.init, sizes, str(last.seeds), *(interval(line.total, 2) for line in lines), text]


# ---------------------------------------------------------------- the picture


@cache
def picture() -> Drawing:
    """A panel for each optimizer: the update beside that at the first depth, on one vertical axis."""
    colours = ("--c1", "--c2", "--c3", "--c4", "--c5", "--c6")
    panels = [
        Panel(
            title=f"Under {name}",
            curves=[
                Curve(
                    label=f"{SHOWN[one]}, {raised(_goes(one, optimizer))}",
                    line=[
                        (float(n), value / _first(one, optimizer))
                        for n, value in recipe_law(one, optimizer).updates.items()
                    ],
                    colour=colours[index % len(colours)],
                    has_dots=True,
                )
                for index, one in enumerate(SHOWN)
            ],
            x="layers N",
            y=f"update of one step, beside that at {FIRST} layers",
            y_range=(0.3, 2e3),
        )
        for optimizer, name in NAMES.items()
    ]
    title = "How the update of published models goes with their depth"
    caption = f"The update of one step against the layers, beside that at {FIRST}: {len(SHOWN)} published recipes."
    return Drawing(panels=panels, title=title, caption=caption, columns=2, width=400, height=420, scale="shared")


def _first(name: str, optimizer: str) -> float:
    return recipe_law(name, optimizer).updates[FIRST]


def _goes(name: str, optimizer: str) -> str:
    one = going(name, optimizer)
    return "no power" if one.bends else "flat" if abs(one.end) < FLAT else f"N^{one.end:.2f}"


def write(to: Path = PAGE, drawn: Path = PICTURE) -> None:
    save(picture(), drawn)
    write_atomically(to, page())


if __name__ == "__main__":
    write()
