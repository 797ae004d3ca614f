"""TRANSFORMERS.md: real Transformers beside the kernel rung, its laws by role, and what follows.

    python -m depthlaw.paper_checks.pages.transformers  # rewrites TRANSFORMERS.md and figures/, from sims/records

Predictions are kept in paper_checks/results (``paper_checks.experiments.kernel_laws``), so this takes seconds. Each
section is a function from the numbers to its block of ``templates/transformers.md.jinja``, which has words and tables.
Every interval counts both errors: the scatter over the seeds, and the quasi-random one of the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from depthlaw.paper_checks.experiments.compared import (
    LAYERS,
    NARROW,
    ROLES,
    WIDE,
    ByName,
    Compared,
    Name,
    WidthFit,
    cells,
    compared_names,
    limit,
    of_width,
    width_fits,
    width_pairs,
)
from depthlaw.paper_checks.experiments.kernel_laws import (
    BEFORE,
    FARTHEST,
    FIRST,
    FLAT,
    LAST,
    SHOWN_ROLES,
    VECTORS,
    Law,
    growing,
    last_exponent,
    laws,
    measured,
    multiplier,
    overtakes,
    overtakes_together,
    share,
)
from depthlaw.paper_checks.experiments.sweeps import (
    BLOCK_LAYERS,
    BLOCKS,
    DEEP_WIDTH,
    HEAD_SIZE,
    KEPT_SCHEMES,
    OPTIMIZERS,
    SWEEPS,
    block_network,
)
from depthlaw.paper_checks.pages.drawing import save
from depthlaw.paper_checks.pages.markdown import section, span
from depthlaw.paper_checks.pages.transformers_figures import drawings
from depthlaw.sims.model import OTHER_ROLES
from depthlaw.sims.records import record
from depthlaw.sims.stats import Estimate, chance_of, errors_off, holds, is_beyond
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RECORDS, RESULTS
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.schemes import SCHEMES

PAGE = RESULTS / "TRANSFORMERS.md"
CLOSE_IN_TOTAL, CLOSE_BY_ROLE = 0.03, 0.1
NUM_NAMED = 10
SMALL = 0.02
"""An error of an exponent at the end that is no matter."""
START = 8
"""Layers for which a user has tuned a learning rate."""
ASKED = (24, 100, 1000)
MODEL, MATTERS = 1024, 0.05
"""The width at which shares are told, and the least that matters."""
USED = ("post-ln", "pre-ln", "sub-ln", "deepnorm", "sub-ln-gamma", "gpt2")
WIDTHS = (512, 4096)
_CONSTANTS = {
    "head_size": HEAD_SIZE,
    "wide": WIDE,
    "narrow": NARROW,
    "layers": LAYERS,
    "optimizers": OPTIMIZERS,
    "roles": SHOWN_ROLES,
    "other_roles": OTHER_ROLES,
    "vectors": VECTORS,
    "widths": WIDTHS,
    "close_total": CLOSE_IN_TOTAL,
    "first": FIRST,
    "before": BEFORE,
    "last": LAST,
    "flat": FLAT,
    "small": SMALL,
    "start": START,
    "asked": ASKED[1],
    "model": MODEL,
    "matters": 100 * MATTERS,
    "farthest": FARTHEST,
}
"""As the sections of the template call them."""


# ---------------------------------------------------------------- what is on the page

Laws = Mapping[tuple[str, str], Law]


@dataclass(frozen=True)
class Study:
    """cells: of the sweep over schemes. variants, blocks, deep: of the sweeps of these names."""

    cells: dict[Name, Compared]
    variants: list[Compared]
    blocks: list[Compared]
    deep: list[Compared]
    laws: Laws


@cache
def study(folder: Path = RECORDS) -> Study:
    """LookupError, in one line, where predictions are not kept. A record that is not there is empty."""

    def of_sweep(name: str) -> list[Compared]:
        path = folder / f"{name}.jsonl"
        return cells(SWEEPS[name], record.read(path) if path.exists() else [], measured())

    schemes = {cell.name: cell for cell in of_sweep("transformers")}
    return Study(schemes, of_sweep("transformer-variants"), of_sweep("blocks"), of_sweep("deep"), laws())


def page(study: Study) -> str:
    """Markdown."""
    drawn = drawings(study.cells)
    sections = (
        head(study.cells),
        total(study.cells),
        "".join(f"![{drawing.title}](figures/{name}.svg)\n\n" for name, drawing in drawn.items()),
        width(study.cells),
        by_role(study.cells),
        variants(study.variants),
        blocks(study.blocks),
        deep(study.deep),
        growth(study.laws),
        advice(study.laws),
        overtaking(study.laws),
    )
    return "".join(sections).rstrip("\n") + "\n"


def _section(name: str, **values: Any) -> str:
    return section("transformers", name, **(_CONSTANTS | values))


def head(by_name: ByName) -> str:
    return _section(
        "head",
        powers={name: [unit_power(name, role) for role in OTHER_ROLES] for name in OPTIMIZERS},
        error=max((cell.predicted["update"].error for cell in by_name.values()), default=0.0),
        role_error=max((value.error for cell in by_name.values() for value in cell.predicted.values()), default=0.0),
        wide_seeds=_seeds(by_name, WIDE),
        narrow_seeds=_seeds(by_name, NARROW),
    )


def _seeds(by_name: ByName, d_model: int) -> str:
    """At each depth, of the networks that have any."""
    numbers = [
        [cell.num_seeds for (*_, n, d), cell in by_name.items() if (n, d) == (layers, d_model)] for layers in LAYERS
    ]
    return ", ".join(span([number for number in some if number]) for some in numbers)


# ---------------------------------------------------------------- in total


def total(by_name: ByName) -> str:
    ratios = [(cell, cell.estimates["update"]) for cell in of_width(by_name, WIDE) if "update" in cell.ratios]
    far = [(cell, ratio) for cell, ratio in ratios if is_beyond(ratio, CLOSE_IN_TOTAL)]
    limits = [(wide, limit(wide, narrow)) for wide, narrow in width_pairs(by_name, "update")]
    zero = (cell.name for cell in by_name.values() if cell.predicted["update"].value == 0)
    wrong_zeros = (" ".join(map(str, cell.name)) for cell in by_name.values() if cell.wrong_zeros)
    return _section(
        "total",
        num=len(ratios),
        close=sum(abs(ratio.mean - 1) <= CLOSE_IN_TOTAL for _, ratio in ratios),
        held=sum(holds(ratio) for _, ratio in ratios),
        num_far=len(far),
        far=list(_by_line(far)),
        num_limits=len(limits),
        limits_held=sum(holds(at_infinity) for _, at_infinity in limits),
        outside=list(_by_line([(cell, limit) for cell, limit in limits if not holds(limit)])),
        zeros=dict.fromkeys(f"{name} {optimizer}" for name, optimizer, *_ in zero),
        wrong_zeros=sorted(wrong_zeros),
        rows=[_total_row(by_name, *line) for line in compared_names(by_name)],
    )


def _total_row(by_name: ByName, name: str, optimizer: str) -> dict[str, Any]:
    """What is predicted at the ends, and measured over predicted at each depth."""

    def predicted(layers: int) -> float | None:
        cell = by_name.get((name, optimizer, layers, WIDE)) or by_name.get((name, optimizer, layers, NARROW))
        return None if cell is None else cell.predicted["update"].value

    wide = [by_name.get((name, optimizer, layers, WIDE)) for layers in LAYERS]
    return {
        "scheme": name,
        "optimizer": optimizer,
        "ends": [predicted(layers) for layers in (LAYERS[0], LAYERS[-1])],
        "ratios": [None if cell is None else cell.estimates.get("update") for cell in wide],
    }


def _by_line(several: Sequence[tuple[Compared, Estimate]]) -> Iterator[tuple[str, list[tuple[int, Estimate]]]]:
    """By scheme and optimizer, each N with its ratio."""

    def place(pair: tuple[Compared, Estimate]) -> tuple[int, int, int]:
        name, optimizer, layers, _ = pair[0].name
        return list(SCHEMES).index(name), OPTIMIZERS.index(optimizer), layers

    for names, group in groupby(sorted(several, key=place), key=lambda pair: pair[0].name[:2]):
        yield " ".join(names), [(cell.name[2], ratio) for cell, ratio in group]


# ---------------------------------------------------------------- the width


def width(by_name: ByName) -> str:
    fits = width_fits(by_name, "update")
    return _section(
        "width",
        fits=fits,
        other={names: fit.slope for names, fit in fits.items() if not holds(fit.slope, 0.0)},
        without_a=sum(holds(fit.offset, 0.0) for fit in fits.values()),
        by_role={role: list(_medians(width_fits(by_name, role))) for role in SHOWN_ROLES},
    )


def _medians(fits: Mapping[tuple[str, str], WidthFit]) -> Iterator[dict[str, Any]]:
    """Of a and of b under each optimizer: the median over schemes, and how many intervals leave out 0, of how many."""
    for optimizer in OPTIMIZERS:
        here = [fit for (_, used), fit in fits.items() if used == optimizer]
        for terms in ([fit.offset for fit in here], [fit.slope for fit in here]):
            middle = median(term.mean for term in terms) if terms else None
            yield {"middle": middle, "num_off": sum(not holds(term, 0.0) for term in terms), "num": len(terms)}


# ---------------------------------------------------------------- by role


def by_role(by_name: ByName) -> str:
    every = [(cell, role, ratio) for cell in of_width(by_name, WIDE) for role, ratio in cell.roles.items()]
    pairs = [(pair, role) for role in ROLES for pair in width_pairs(by_name, role)]
    most = sorted(every, key=lambda item: -abs(errors_off(item[2])))[:NUM_NAMED]
    last = errors_off(most[-1][2]) if most else 0.0
    lacking = {f"{' '.join(map(str, cell.name))} {role}" for cell in by_name.values() for role in cell.lacking}
    return _section(
        "by_role",
        num=len(every),
        close=_close(ratio for *_, ratio in every),
        held=sum(holds(ratio) for *_, ratio in every),
        far=[item for item in every if is_beyond(item[2], CLOSE_BY_ROLE)],
        num_limits=len(pairs),
        limits_held=sum(holds(limit(*pair, role)) for pair, role in pairs),
        lacking=sorted(lacking),
        largest=[(*item, errors_off(item[2])) for item in most],
        chance=sum(chance_of(ratio, last) for *_, ratio in every),
        worst={optimizer: _worst_rows(by_name, optimizer) for optimizer in ("sgd", "adam")},
    )


def _worst_rows(by_name: ByName, optimizer: str) -> dict[str, list[tuple[Estimate, int] | float | None]]:
    """By scheme, of each role the ratio that is farthest from 1 and its N; 0 where it is predicted and measured to be
    0, None where there is none."""
    wide = of_width(by_name, WIDE)
    of_schemes = {name: [cell for cell in wide if cell.name[:2] == (name, optimizer)] for name in SCHEMES}
    return {name: [_worst(here, role) for role in SHOWN_ROLES] for name, here in of_schemes.items() if here}


def _worst(several: Sequence[Compared], role: str) -> tuple[Estimate, int] | float | None:
    ratios = [(cell.estimates[role], cell.name[2]) for cell in several if role in cell.ratios]
    if ratios:
        return max(ratios, key=lambda pair: abs(pair[0].mean - 1))
    return 0.0 if any(role in cell.predicted and role not in cell.lacking for cell in several) else None


def _close(ratios: Iterable[Estimate]) -> int:
    return sum(abs(ratio.mean - 1) <= CLOSE_BY_ROLE for ratio in ratios)


# ---------------------------------------------------------------- variants


def variants(several: Sequence[Compared]) -> str:
    """One thing at a time that is not as above."""

    def worst(cell: Compared) -> str | None:
        return max(cell.roles, key=lambda role: abs(cell.roles[role].mean - 1), default=None)

    return _section("variants", **_counts(several), rows=[(what(cell), cell, worst(cell)) for cell in several])


def _counts(several: Sequence[Compared]) -> dict[str, Any]:
    """How many ratios are near 1, and how many intervals hold 1, in total and by role."""
    ratios = [cell.estimates["update"] for cell in several if "update" in cell.estimates]
    roles = [ratio for cell in several for ratio in cell.roles.values()]
    return {
        "seeds": span([cell.num_seeds for cell in several]),
        "num": len(ratios),
        "close": _close(ratios),
        "held": sum(map(holds, ratios)),
        "num_roles": len(roles),
        "close_roles": _close(roles),
        "held_roles": sum(map(holds, roles)),
    }


def what(cell: Compared) -> str:
    """How the network differs from those of the other tables."""
    network = cell.network
    named = {
        "encoder-decoder": network.arch == "encoder-decoder",
        "causal": network.is_causal,
        f"batch {network.batch_size}": network.batch_size > 1,
        f"correlation {network.correlation:g}": network.correlation > 0,
        "cross-entropy": network.loss == "ce",
        "all tokens read": network.readout == "sum",
        network.activation: network.activation != "relu",
        network.norm_kind: network.norm_kind != "layernorm",
    }
    return ", ".join(name for name, is_there in named.items() if is_there)


def blocks(several: Sequence[Compared]) -> str:
    """What people train beyond the papers' block, one thing at a time, at three depths."""
    ratios = [((cell.network, cell.optimizer), cell.estimates.get("update")) for cell in several]

    def ratio(name: str, optimizer: str, layers: int) -> Estimate | None:
        wanted = block_network(name, layers), optimizer
        return next((estimate for key, estimate in ratios if key == wanted), None)

    rows = {
        (name, optimizer): [ratio(name, optimizer, layers) for layers in BLOCK_LAYERS]
        for name in BLOCKS
        for optimizer in SWEEPS["blocks"].optimizers
    }
    return _section("blocks", **_counts(several), depths=BLOCK_LAYERS, rows=rows)


def deep(several: Sequence[Compared], folder: Path = RECORDS) -> str:
    """Far wider and deeper than a CPU can reach, by role."""
    path = folder / "deep.jsonl"
    runs = record.read(path) if path.exists() else []
    roles = [role for role in ("update", *ROLES) if any(role in cell.ratios for cell in several)]
    return _section(
        "deep",
        **_counts(several),
        width=DEEP_WIDTH,
        machines=sorted({f"{run.device}, {run.dtype}, torch {run.versions.torch}" for run in runs}),
        depths=[cell.network.num_sublayers // 2 for cell in several],
        rows={role: [cell.estimates.get(role) for cell in several] for role in roles},
    )


# ---------------------------------------------------------------- how each role grows with depth


def growth(laws: Laws) -> str:
    relative = [math.hypot(error[BEFORE], error[LAST]) for law in laws.values() for error in law.errors.values()]
    errors = [error / math.log(LAST / BEFORE) for error in relative]
    return _section(
        "growth",
        num_small=sum(error < SMALL for error in errors),
        errors=errors,
        promises=[_promises(laws, optimizer) for optimizer in OPTIMIZERS],
        tables={
            optimizer: {name: _growth_row(laws[name, optimizer]) for name in KEPT_SCHEMES} for optimizer in OPTIMIZERS
        },
    )


def _growth_row(law: Law) -> dict[str, Any]:
    """Of the update and of each role the exponent and that at the end, None where U is 0; nothing of a role that is
    not there."""
    there = [role for role in ("update", *SHOWN_ROLES) if role == "update" or role in law.roles]
    exponents = {role: (law.exponent(role, FIRST), last_exponent(law, role)) for role in there}
    return {"exponents": exponents, "growing": growing(law)}


def _promises(laws: Laws, optimizer: str) -> dict[str, Any]:
    """Which schemes keep the matrices' update flat, and what breaks the promise all the same."""
    ends = {name: last_exponent(laws[name, optimizer]) for name in KEPT_SCHEMES}
    flat = {name: growing(laws[name, optimizer]) for name, end in ends.items() if end is not None and abs(end) < FLAT}
    return {
        "optimizer": optimizer,
        "num": len(ends),
        "flat": flat,
        "falls": [name for name, end in ends.items() if end is not None and end <= -FLAT],
        "still": [name for name, end in ends.items() if end is None],
    }


# ---------------------------------------------------------------- what to do about it


def advice(laws: Laws) -> str:
    tables = []
    for optimizer in ("adam", "sgd"):
        used = {name: laws[name, optimizer] for name in USED}
        roles = [role for role in SHOWN_ROLES if any(role in law.roles for law in used.values())]
        rows = {name: _advice_row(law, optimizer, roles) for name, law in used.items()}
        tables.append({"optimizer": optimizer, "roles": roles, "rows": rows})
    return _section("advice", tables=tables)


def _advice_row(law: Law, optimizer: str, roles: Sequence[str]) -> dict[str, Any]:
    """Of each role the power in N, the multipliers by N, and the share in percent; and the one to turn down most."""
    shares = {role: share(law, optimizer, role, MODEL, ASKED[1]) for role in SHOWN_ROLES}
    factors = {role: multiplier(law, role, START, ASKED[1]) for role in shares if shares[role] >= MATTERS}
    down = {role: factor for role, factor in factors.items() if factor is not None}
    slopes = [law.exponent(role, FIRST) if role in law.roles else None for role in roles]
    return {
        "powers": [None if slope is None else -slope for slope in slopes],
        "multipliers": {layers: [multiplier(law, role, START, layers) for role in roles] for layers in ASKED},
        "shares": [100 * shares[role] if role in law.roles else None for role in roles],
        "most": min(down.items(), key=lambda item: item[1]),
    }


# ---------------------------------------------------------------- vectors against matrices


def overtaking(laws: Laws) -> str:
    rows, first = {}, []
    for (name, optimizer), law in laws.items():
        depths = [overtakes(law, optimizer, role, d_model) for d_model in WIDTHS for role in VECTORS]
        if any(depths):
            rows[name, optimizer] = depths + [overtakes_together(law, optimizer, d_model) for d_model in WIDTHS]
            first.append(min(depth for depth in depths if depth is not None))
    return _section("overtaking", num=len(laws), num_soon=sum(depth <= LAST for depth in first), rows=rows)


def write(study: Study) -> None:
    for name, drawing in drawings(study.cells).items():
        save(drawing, FIGURES / f"{name}.svg")
    write_atomically(PAGE, page(study))


if __name__ == "__main__":
    write(study())
