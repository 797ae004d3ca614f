"""RECIPES.md and its picture: how the update of published models goes with depth, and other people's code beside it.

    python -m depthlaw.paper_checks.pages.recipes  # rewrites RECIPES.md and figures/recipes.svg, from what is kept

Predictions come from results/kernel-recipes.json (``paper_checks.experiments.kernel_laws``), measurements from
sims/records/clients.jsonl (``paper_checks.experiments.clients``), so this takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import Any

from depthlaw.paper_checks.experiments import clients, kernel_kept
from depthlaw.paper_checks.experiments.clients import Case
from depthlaw.paper_checks.experiments.kernel_laws import RECIPE_LENGTHS, RECIPE_OPTIMIZERS, Law, recipe_law, share
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, raised, save
from depthlaw.paper_checks.pages.markdown import interval, section
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.recipes.recipe import RECIPE_TOKENS
from depthlaw.sims import stats
from depthlaw.sims.records import record
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RESULTS

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
    law = recipe_law(name, optimizer)
    shares = _shares(name, optimizer, law)
    grows = {role: at_the_end(law, role) for role, part in shares.items() if part >= MATTERS}
    worst = max(grows, key=grows.__getitem__)
    factor = law.updates[LAST] / law.updates[FIRST]
    ends = exponent(law, "update"), at_the_end(law, "update")
    return Going(*ends, factor, (worst, grows[worst], shares[worst]))


def _shares(name: str, optimizer: str, law: Law) -> dict[str, float]:
    """Of each role that the recipe trains: its part beside that of the branch matrices together, at the last depth."""
    recipe = RECIPES[name]
    roles = [role for role in ROLES if role in law.roles and (role != "bias" or recipe.has_bias)]
    return {role: share(law, optimizer, role, recipe.size["d_model"], LAST) for role in roles}


def exponent(law: Law, role: str) -> float:
    return law.exponent(role, FIRST, LAST) or 0.0


def at_the_end(law: Law, role: str) -> float:
    """The exponent between the two deepest."""
    return law.local_exponents(role).get((BEFORE, LAST), 0.0)


# ---------------------------------------------------------------- the page


@dataclass(frozen=True)
class OtherModel:
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
        matrices = {role: ratio for role, ratio in self.roles.items() if role in ROLES[:7]}
        return max(matrices, key=lambda role: abs(matrices[role].mean - 1))


@cache
def beside(path: Path = clients.PATH) -> list[OtherModel]:
    """Everything that the record has, in the order of ``clients.cases``: the cases that have all optimizers."""
    runs: dict[str, list[record.Run]] = {}
    for run in record.read(path) if path.exists() else ():
        runs.setdefault(_key(run.config), []).append(run)
    lines = []
    for case in clients.cases():
        there = {optimizer: runs.get(_key(record.plain(case.sizes(optimizer))), []) for optimizer in clients.OPTIMIZERS}
        if all(there.values()):
            lines += [_beside(case, optimizer, several) for optimizer, several in there.items()]
    return lines


def _key(config: Mapping[str, Any]) -> str:
    """Whatever version of its package a run was made with."""
    return json.dumps({name: value for name, value in config.items() if name != "package"}, sort_keys=True)


def _beside(case: Case, optimizer: str, runs: Sequence[record.Run]) -> OtherModel:
    network, package = case.network, runs[-1].config["package"]
    run = record.find(runs, runs[-1].config)
    predicted = kernel_kept.read(clients.PREDICTED).find(network, optimizer).by_optimizer[optimizer]
    ratios = {}
    for role, exact in predicted.items():
        is_trained = role != "bias" or case.client.recipe.has_bias
        if role in run.values and exact.value and is_trained:
            power = 0.0 if role == "update" else network.role_power(optimizer, role)
            values = [value * case.d_model**power for value in run.values[role] if value is not None]
            ratios[role] = stats.ratio_to_exact(stats.estimate(values), exact.value)
    return OtherModel(case, optimizer, str(package), len(run.seeds), ratios.pop("update"), ratios)


@cache
def moving() -> list[str]:
    """The recipes whose first step moves matrices of branches: not those that start as the identity."""
    return [name for name in RECIPES if recipe_law(name, "adamw").updates[LAST]]


def page() -> str:
    """Markdown. LookupError where predictions are not kept."""
    by_name = {(name, optimizer): going(name, optimizer) for name in moving() for optimizer in RECIPE_OPTIMIZERS}
    lines = beside()
    widths = sorted({line.case.d_model for line in lines})
    laws = {name: recipe_law(name, "adamw") for name in moving()}
    per_width = {name: 2 * LAST / RECIPES[name].size["d_model"] for name in moving()}
    words = ("exponent", "at the end", f"{FIRST} to {LAST:,}", "what grows most")
    return section(
        "recipes",
        "page",
        names=NAMES,
        depths=f"{', '.join(map(str, RECIPE_LENGTHS[:-1]))} and {LAST:,}",
        ends={name: {role: at_the_end(law, role) for role in (*law.roles, "update")} for name, law in laws.items()},
        still=[name for name in RECIPES if name not in moving()],
        left_out={name: recipe.leaves_out for name, recipe in RECIPES.items() if recipe.leaves_out},
        norms_of_minicpm=RECIPES["minicpm"].size["d_model"] / 256,
        positions=_largest_share_of_positions(),
        per_width=[pick(per_width, key=per_width.__getitem__) for pick in (min, max)],
        per_widths=sorted(per_width.values()),
        first=FIRST,
        before=BEFORE,
        last=LAST,
        flat=FLAT,
        matters=MATTERS,
        short={optimizer: [*_short_rows(_lists(optimizer, by_name))] for optimizer in RECIPE_OPTIMIZERS},
        picture=picture().caption,
        heads=["recipe", "layers, width", *(f"{name}: {word}" for name in NAMES.values() for word in words)],
        rows=[_row(name, by_name) for name in moving()],
        role_heads=["recipe", *ROLES],
        role_rows={optimizer: [_role_row(name, optimizer) for name in moving()] for optimizer in RECIPE_OPTIMIZERS},
        num_clients=len({line.case.client.name for line in lines}),
        packages=sorted({line.package for line in lines}),
        recipe_tokens=RECIPE_TOKENS,
        tokens=clients.NUM_TOKENS,
        head_size=clients.HEAD_SIZE,
        head_counts=" and ".join(str(width // clients.HEAD_SIZE) for width in widths),
        error=max(recipe_law(*key).errors["update"][n] for key in by_name for n in RECIPE_LENGTHS),
        summaries=[_summary(optimizer, lines) for optimizer in clients.OPTIMIZERS],
        beside_heads=["model", "weights", "layers, width", "networks", *clients.OPTIMIZERS, "farthest role"],
        beside_rows=[_beside_row(list(of_case)) for _, of_case in groupby(lines, key=lambda line: id(line.case))],
    )


def _largest_share_of_positions(path: Path = clients.PATH) -> float:
    """Of T5's relative positions, beside the matrices' update, over the optimizers and sizes of the record."""
    runs = [run.values for run in record.read(path) if "positions" in run.values and run.config["client"] == "T5"]
    return max(_mean(values["positions"]) / _mean(values["update"]) for values in runs)


def _mean(values: Sequence[float | None]) -> float:
    return mean(value for value in values if value is not None)


def _lists(optimizer: str, by_name: Mapping[tuple[str, str], Going]) -> dict[str, list[str]]:
    """Recipes that are flat at the end, grow, shrink, and those that no power is near, the fastest first."""
    lists: dict[str, list[str]] = {"flat": [], "grow": [], "shrink": [], "bend": []}
    ranked = sorted(((name, by_name[name, optimizer]) for name in moving()), key=lambda pair: -pair[1].end)
    for name, law in ranked:
        role, slope, part = law.worst
        if law.bends:
            lists["bend"].append(f"{name} ({law.exponent:z.2f}, then {law.end:z.2f}; {role})")
        elif abs(law.end) >= FLAT:
            lists["grow" if law.end > 0 else "shrink"].append(f"{name} ({law.end:z.2f}; {role})")
        else:  # with the role that still grows, if there is one
            size = f"{part:.0%} of the matrices" if part < 1 else f"{part:,.2g} times the matrices"
            still = f"; but {role} as N^{slope:.2f}, {size}" if slope >= FLAT else ""
            lists["flat"].append(f"{name} ({law.end:z.2f}{still})")
    return lists


_GOES = {
    "flat": "flat",
    "grow": "grows",
    "shrink": "shrinks",
    "bend": "no one power: e over all depths, then at the end",
}


def _short_rows(lists: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    return ([words, ", ".join(lists[goes])] for goes, words in _GOES.items() if lists[goes])


def _row(name: str, by_name: Mapping[tuple[str, str], Going]) -> list[str]:
    size = RECIPES[name].size
    cells = [name, f"{size['num_layers']}, {size['d_model']:,}"]
    for optimizer in RECIPE_OPTIMIZERS:
        law = by_name[name, optimizer]
        role, slope, part = law.worst
        end = f"**{law.end:z.2f}**" if abs(law.end) < FLAT else f"{law.end:z.2f}"
        size_of = f"{part:.0%}" if part < 1 else f"x {part:,.2g}"
        cells += [f"{law.exponent:z.2f}", end, f"x {_digits(law.factor)}", f"{role} {slope:z.2f} ({size_of})"]
    return cells


def _digits(value: float) -> str:
    """Two digits, 580 for 5.8e+02; 1e14 and other far numbers as powers of ten."""
    return f"{float(f'{value:.2g}'):,g}" if value < 1e5 else f"{value:.0e}".replace("e+", "e")


def _role_row(name: str, optimizer: str) -> list[str]:
    law = recipe_law(name, optimizer)
    shares = _shares(name, optimizer, law)
    texts = {role: f"{exponent(law, role):z.2f}" for role in shares}
    bold = {role: f"**{text}**" for role, text in texts.items() if shares[role] >= MATTERS}
    return [name, *((texts | bold).get(role, "-") for role in ROLES)]


def _summary(optimizer: str, lines: Sequence[OtherModel]) -> dict[str, str | float]:
    """Of all cases under one optimizer."""
    mine = [line for line in lines if line.optimizer == optimizer]
    far = [line for line in mine if stats.is_beyond(line.total, 0.03)]
    roles = [(f"{role} of {_of(line.case)}", ratio) for line in mine for role, ratio in line.roles.items()]
    far_roles = [f"{name} {interval(ratio, 2)}" for name, ratio in roles if stats.is_beyond(ratio, 0.1)]
    return {
        "optimizer": optimizer,
        "num": len(mine),
        "mean": mean(line.total.mean for line in mine),
        "half_width": median((line.total.high or 0.0) - line.total.mean for line in mine),
        "expected": round(0.95 * len(mine)),
        "hold": sum(stats.holds(line.total) for line in mine),
        "near": len(mine) - len(far),
        "roles": len(roles),
        "near_roles": len(roles) - len(far_roles),
        "far_roles": "; ".join(far_roles) or "none",
        "far": ", ".join(f"{_of(line.case)} {interval(line.total, 2)}" for line in far) or "none",
    }


def _of(case: Case) -> str:
    return f"{case.client.name}, {case.init}, {case.num_layers} layers, {case.d_model} wide"


def _beside_row(lines: Sequence[OtherModel]) -> list[str]:
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
    return Drawing(
        panels=[
            Panel(
                title=f"Under {name}",
                curves=[_curve(key, optimizer, *look) for key, look in looks().items()],
                x="layers N",
                x_kind="depths",
                y=f"update of one step, beside that at {FIRST} layers",
                y_range=(0.3, 2e3),
            )
            for optimizer, name in NAMES.items()
        ],
        title="How the update of published models goes with their depth",
        caption=f"The update of one step against the layers, beside that at {FIRST}: {len(SHOWN)} published recipes.",
        columns=2,
        width=400,
        height=420,
        scale="shared",
    )


def looks() -> dict[str, tuple[str, str]]:
    """By recipe, the colour and style of its line, in which it is alone and unlike those that end beside it."""
    ends = {name: recipe_law(name, "adamw").updates for name in SHOWN}
    by_end = sorted(SHOWN, key=lambda name: -ends[name][LAST] / ends[name][FIRST])
    both = [(f"--c{number}", style) for style in ("solid", "dashed") for number in range(1, 8)]
    return dict(zip(by_end, both, strict=False))


def _curve(name: str, optimizer: str, colour: str, style: str) -> Curve:
    updates, goes = recipe_law(name, optimizer).updates, going(name, optimizer)
    power = "no power law" if goes.bends else "flat" if abs(goes.end) < FLAT else f"N^{goes.end:.2f}"
    line = [(float(n), value / updates[FIRST]) for n, value in updates.items()]
    return Curve(label=f"{SHOWN[name]}, {raised(power)}", line=line, colour=colour, line_style=style)


if __name__ == "__main__":
    save(picture(), PICTURE)
    write_atomically(PAGE, page())
