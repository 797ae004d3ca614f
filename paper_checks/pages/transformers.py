"""TRANSFORMERS.md and its figures: real Transformers beside the kernel rung, its laws by role, and what follows.

    python -m depthlaw.paper_checks.pages.transformers  # rewrites TRANSFORMERS.md and figures/, from sims/records

Predictions are kept in paper_checks/results (``paper_checks.experiments.kernel_laws``), so this takes seconds. It is
one module as each section of the page is a function of the same study, with the figures beside them. Every interval
counts both errors: the scatter over the seeds, and the quasi-random one of the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from scipy.special import stdtr

from depthlaw.paper_checks.experiments.compared import ROLES, Compared, Name, WidthFit, cells, limit, width_fit
from depthlaw.paper_checks.experiments.kernel_laws import LENGTHS, Law, law, measured
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
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Point, save
from depthlaw.paper_checks.pages.markdown import interval, section, span
from depthlaw.sims.model import OTHER_ROLES
from depthlaw.sims.records import record
from depthlaw.sims.stats import Estimate, errors_off, holds, is_beyond
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RECORDS, RESULTS
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.schemes import SCHEMES

PAGE = RESULTS / "TRANSFORMERS.md"
LAYERS = (1, 2, 4, 8, 16)
WIDE, NARROW = 512, 256
CLOSE_IN_TOTAL, CLOSE_BY_ROLE = 0.03, 0.1
NUM_NAMED = 10
MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
SHOWN_ROLES = (*MATRICES, *OTHER_ROLES)
VECTORS = ("norm_gain", "norm_bias", "bias")
FIRST, BEFORE, LAST = 4, *LENGTHS[-2:]
"""Of the N that an exponent is over: the least, and the two largest, between which an update is "at the end"."""
FLAT = 0.05
"""An exponent that is smaller, at the end, is flat."""
SMALL = 0.02
"""An error of such an exponent that is no matter."""
START = 8
"""Layers for which a user has tuned a learning rate."""
ASKED = (24, 100, 1000)
MODEL, MATTERS = 1024, 0.05
"""The width at which shares are told, and the least that matters."""
USED = ("post-ln", "pre-ln", "sub-ln", "deepnorm", "sub-ln-gamma", "gpt2")
WIDTHS = (512, 4096)
FARTHEST = 10_000
"""Layers up to which an exponent is trusted beyond those that are kept."""
_CONSTANTS = {
    "head_size": HEAD_SIZE,
    "wide": WIDE,
    "narrow": NARROW,
    "layers": LAYERS,
    "roles": SHOWN_ROLES,
    "other_roles": OTHER_ROLES,
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

ByName = Mapping[Name, Compared]
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
    powers = {0: "1", 0.5: "d^(1/2)", 1: "d", 1.5: "d^(3/2)"}
    return _section(
        "head",
        powers=[[name, *(powers[unit_power(name, role)] for role in OTHER_ROLES)] for name in OPTIMIZERS],
        error=max((cell.predicted["update"].error for cell in by_name.values()), default=0.0),
        role_error=max((one.error for cell in by_name.values() for one in cell.predicted.values()), default=0.0),
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
    limits = [(wide, limit(wide, narrow)) for wide, narrow in _pairs(by_name, "update")]
    zero = (cell.name for cell in by_name.values() if cell.predicted["update"].value == 0)
    wrong_zeros = (" ".join(map(str, cell.name)) for cell in by_name.values() if cell.wrong_zeros)
    return _section(
        "total",
        num=len(ratios),
        close=sum(abs(ratio.mean - 1) <= CLOSE_IN_TOTAL for _, ratio in ratios),
        held=sum(holds(ratio) for _, ratio in ratios),
        num_far=len(far),
        far=_named(far),
        num_limits=len(limits),
        limits_held=sum(holds(at_infinity) for _, at_infinity in limits),
        outside=_named([(cell, one) for cell, one in limits if not holds(one)], has_intervals=False),
        zeros=", ".join(dict.fromkeys(f"{name} {optimizer}" for name, optimizer, *_ in zero)),
        wrong_zeros=", ".join(sorted(wrong_zeros)),
        heads=["scheme", "optimizer", f"U({LAYERS[0]})", f"U({LAYERS[-1]})", *(f"N = {n}" for n in LAYERS)],
        rows=[_total_row(by_name, *line) for line in _lines(by_name)],
    )


def _total_row(by_name: ByName, name: str, optimizer: str) -> list[str]:
    def predicted(layers: int) -> str:
        cell = by_name.get((name, optimizer, layers, WIDE)) or by_name.get((name, optimizer, layers, NARROW))
        return "-" if cell is None else f"{cell.predicted['update'].value:.4g}"

    def ratio(layers: int) -> str:
        cell = by_name.get((name, optimizer, layers, WIDE))
        one = None if cell is None else cell.estimates.get("update")
        is_far = one is not None and abs(one.mean - 1) > CLOSE_IN_TOTAL
        return f"**{interval(one)}**" if is_far else interval(one)

    return [name, optimizer, predicted(LAYERS[0]), predicted(LAYERS[-1]), *map(ratio, LAYERS)]


def _named(several: Sequence[tuple[Compared, Estimate]], *, has_intervals: bool = True) -> str:
    """By scheme and optimizer, each N with its interval."""

    def place(pair: tuple[Compared, Estimate]) -> tuple[int, int, int]:
        name, optimizer, layers, _ = pair[0].name
        return list(SCHEMES).index(name), OPTIMIZERS.index(optimizer), layers

    parts = []
    for (name, optimizer), group in groupby(sorted(several, key=place), key=lambda pair: pair[0].name[:2]):
        numbers = [f"{cell.name[2]}" + f": {interval(one)}" * has_intervals for cell, one in group]
        parts.append(f"{name} {optimizer} N = {', '.join(numbers)}")
    return "; ".join(parts) or "none"


def of_width(by_name: ByName, d_model: int) -> list[Compared]:
    return [cell for (_, _, _, d), cell in by_name.items() if d == d_model]


def _lines(by_name: ByName) -> list[tuple[str, str]]:
    there = {name[:2] for name in by_name}
    return [(name, optimizer) for name in SCHEMES for optimizer in OPTIMIZERS if (name, optimizer) in there]


def _pairs(by_name: ByName, role: str) -> Iterator[tuple[Compared, Compared]]:
    """Wide and narrow, of one network that has this ratio at both widths."""
    for (name, optimizer, layers, d_model), cell in by_name.items():
        other = by_name.get((name, optimizer, layers, NARROW))
        if d_model == WIDE and other is not None and role in cell.ratios and role in other.ratios:
            yield cell, other


# ---------------------------------------------------------------- the width


def width(by_name: ByName) -> str:
    fits = _fits(by_name, "update")
    other = [f"{' '.join(names)} {interval(fit.slope)}" for names, fit in fits.items() if not holds(fit.slope, 0.0)]
    return _section(
        "width",
        num=len(fits),
        without_b=sum(holds(fit.slope, 0.0) for fit in fits.values()),
        without_a=sum(holds(fit.offset, 0.0) for fit in fits.values()),
        other=", ".join(other),
        heads=["scheme", "optimizer", "a", "b", f"b 2N/d at N = {LAYERS[-1]}, d = {WIDE}"],
        rows=[
            [*names, interval(fit.offset), interval(fit.slope), f"{200 * fit.slope.mean * LAYERS[-1] / WIDE:+.1f} %"]
            for names, fit in fits.items()
        ],
        role_heads=["role", *(f"{term}, {one}" for one in OPTIMIZERS for term in ("a", "b"))],
        role_rows=[[role, *_medians(_fits(by_name, role))] for role in SHOWN_ROLES],
    )


def _fits(by_name: ByName, role: str) -> dict[tuple[str, str], WidthFit]:
    """Of each scheme and optimizer that has two depths of this role."""
    fits = {}
    for names in _lines(by_name):
        here = [cell for cell in by_name.values() if cell.name[:2] == names and role in cell.ratios]
        if len({cell.name[2] for cell in here}) > 1:
            fits[names] = width_fit(here, role)
    return fits


def _medians(fits: Mapping[tuple[str, str], WidthFit]) -> Iterator[str]:
    for optimizer in OPTIMIZERS:
        mine = [fit for (_, used), fit in fits.items() if used == optimizer]
        for terms in ([fit.offset for fit in mine], [fit.slope for fit in mine]):
            middle = f"{median(term.mean for term in terms):z.2f}" if terms else "-"
            yield middle + f" ({sum(not holds(term, 0.0) for term in terms)} of {len(terms)})" * bool(terms)


# ---------------------------------------------------------------- by role


def by_role(by_name: ByName) -> str:
    every = [(cell, role, one) for cell in of_width(by_name, WIDE) for role, one in cell.roles.items()]
    pairs = [(pair, role) for role in ROLES for pair in _pairs(by_name, role)]
    most = sorted(every, key=lambda ratio: -abs(errors_off(ratio[2])))[:NUM_NAMED]
    last = abs(errors_off(most[-1][2])) if most else 0.0
    lacking = {f"{' '.join(map(str, cell.name))} {role}" for cell in by_name.values() for role in cell.lacking}
    return _section(
        "by_role",
        num=len(every),
        close=_close(one for _, _, one in every),
        held=sum(holds(one) for _, _, one in every),
        far=[
            f"{role} of {cell.name[0]} {cell.name[1]} N = {cell.name[2]}: {interval(one)}"
            for cell, role, one in every
            if is_beyond(one, CLOSE_BY_ROLE)
        ],
        num_limits=len(pairs),
        limits_held=sum(holds(limit(*pair, role)) for pair, role in pairs),
        lacking=sorted(lacking),
        largest=[
            [*map(str, cell.name[:3]), role, interval(one), f"{errors_off(one):+.1f}"] for cell, role, one in most
        ],
        chance=sum(2 * float(stdtr(one.num - 1, -last)) for _, _, one in every if one.num > 1),
        worst={optimizer: list(_worst_rows(by_name, optimizer)) for optimizer in ("sgd", "adam")},
    )


def _worst_rows(by_name: ByName, optimizer: str) -> Iterator[list[str]]:
    for name in SCHEMES:
        here = [cell for cell in of_width(by_name, WIDE) if cell.name[:2] == (name, optimizer)]
        if here:
            yield [name, *(_worst_cell(here, role) for role in SHOWN_ROLES)]


def _worst_cell(several: Sequence[Compared], role: str) -> str:
    """The ratio that is farthest from 1."""
    ratios = [(cell.estimates[role], cell.name[2]) for cell in several if role in cell.ratios]
    if not ratios:
        return "0" if any(role in cell.predicted and role not in cell.lacking for cell in several) else "-"
    ratio, layers = max(ratios, key=lambda pair: abs(pair[0].mean - 1))
    half = "" if ratio.high is None else f" ± {ratio.high - ratio.mean:.2f}"
    return f"{ratio.mean:z.2f}{half} (N = {layers})"


def _close(ratios: Iterable[Estimate]) -> int:
    return sum(abs(ratio.mean - 1) <= CLOSE_BY_ROLE for ratio in ratios)


# ---------------------------------------------------------------- variants


def variants(several: Sequence[Compared]) -> str:
    """One thing at a time that is not as above."""
    return _section("variants", **_counts(several), rows=list(map(_variant_row, several)))


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


def _variant_row(cell: Compared) -> list[str]:
    role = max(cell.roles, key=lambda role: abs(cell.roles[role].mean - 1), default=None)
    worst = "-" if role is None else f"{role}: {interval(cell.roles[role])}"
    predicted, ratio = cell.predicted["update"].value, cell.estimates.get("update")
    return [what(cell), *cell.name[:2], f"{predicted:.4g}", interval(ratio), worst]


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

    def ratio(name: str, optimizer: str, layers: int) -> str:
        network = block_network(name, layers)
        here = [cell for cell in several if (cell.network, cell.optimizer) == (network, optimizer)]
        return interval(here[0].estimates.get("update")) if here else "-"

    rows = [
        [name, optimizer, *(ratio(name, optimizer, layers) for layers in BLOCK_LAYERS)]
        for name in BLOCKS
        for optimizer in SWEEPS["blocks"].optimizers
    ]
    heads = [f"N = {layers}" for layers in BLOCK_LAYERS]
    return _section("blocks", **_counts(several), depths=BLOCK_LAYERS, heads=heads, rows=rows)


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
        heads=[f"N = {cell.network.num_sublayers // 2}" for cell in several],
        rows=[[role, *(interval(cell.estimates.get(role)) for cell in several)] for role in roles],
    )


# ---------------------------------------------------------------- how each role grows with depth


def laws() -> dict[tuple[str, str], Law]:
    """LookupError where one of them is not kept."""
    return {(name, optimizer): law(name, optimizer) for name in KEPT_SCHEMES for optimizer in OPTIMIZERS}


def last_exponent(law: Law, role: str = "update") -> float | None:
    """Between the two largest N; None where U is 0 there."""
    return law.local_exponents(role).get((BEFORE, LAST))


def growth(laws: Laws) -> str:
    relative = [math.hypot(error[BEFORE], error[LAST]) for law in laws.values() for error in law.errors.values()]
    errors = [error / math.log(LAST / BEFORE) for error in relative]
    return _section(
        "growth",
        num_small=sum(error < SMALL for error in errors),
        errors=errors,
        promises=[_promises(laws, optimizer) for optimizer in OPTIMIZERS],
        tables={
            optimizer: [_growth_row(name, laws[name, optimizer]) for name in KEPT_SCHEMES] for optimizer in OPTIMIZERS
        },
    )


def _growth_row(name: str, law: Law) -> list[str]:
    def exponent(role: str) -> str:
        if role != "update" and role not in law.roles:
            return "-"
        slope, end = law.exponent(role, FIRST), last_exponent(law, role)
        if slope is None or end is None:
            return "0"
        return f"**{_two(slope)}**" if abs(end) < FLAT else _two(slope)

    still = ", ".join(growing(law)) or "none"
    return [name, exponent("update"), _two(last_exponent(law)), *map(exponent, SHOWN_ROLES), still]


def growing(law: Law) -> list[str]:
    """The roles that still grow at the greatest depth."""
    ends = {role: last_exponent(law, role) for role in SHOWN_ROLES if role in law.roles}
    return [role for role, end in ends.items() if end is not None and end >= FLAT]


def _two(value: float | None) -> str:
    return "0" if value is None else f"{value:z.2f}"


def _promises(laws: Laws, optimizer: str) -> dict[str, Any]:
    """Which schemes keep the matrices' update flat, and what breaks the promise all the same."""
    ends = {name: last_exponent(laws[name, optimizer]) for name in KEPT_SCHEMES}
    flat = {name: growing(laws[name, optimizer]) for name, end in ends.items() if end is not None and abs(end) < FLAT}
    return {
        "optimizer": optimizer,
        "num": len(ends),
        "flat": flat,
        "whole": [name for name, roles in flat.items() if not roles],
        "broken": [f"{name} ({', '.join(roles)})" for name, roles in flat.items() if roles],
        "falls": [name for name, end in ends.items() if end is not None and end <= -FLAT],
        "still": [name for name, end in ends.items() if end is None],
    }


# ---------------------------------------------------------------- what to do about it


def advice(laws: Laws) -> str:
    tables = []
    for optimizer in ("adam", "sgd"):
        used = {name: laws[name, optimizer] for name in USED}
        roles = [role for role in SHOWN_ROLES if any(role in law.roles for law in used.values())]
        rows = [row for name, law in used.items() for row in _multipliers(name, optimizer, law, roles)]
        most = [f"{name} {_to_turn_down(law, optimizer)}" for name, law in used.items()]
        tables.append({"optimizer": optimizer, "roles": roles, "rows": rows, "most": most})
    return _section(
        "advice",
        tables=tables,
    )


def at(law: Law, role: str, layers: float) -> float:
    """U at any N, between kept ones along the straight line of the logarithms; 0 where there is no such role."""
    if role != "update" and role not in law.roles:
        return 0.0
    values = law.of(role)
    if layers in values:
        return values[int(layers)]
    low, high = max(n for n in values if n < layers), min(n for n in values if n > layers)
    part = math.log(layers / low) / math.log(high / low)
    return values[low] ** (1 - part) * values[high] ** part


def share(law: Law, optimizer: str, role: str, d_model: int, layers: float) -> float:
    """The role's part over that of the matrices, at this width."""
    return at(law, role, layers) * d_model ** -unit_power(optimizer, role) / at(law, "update", layers)


def multiplier(law: Law, role: str, layers: int) -> float | None:
    """None where there is no such role, or where it does not move."""
    now = at(law, role, layers)
    return at(law, role, START) / now if now else None


def _to_turn_down(law: Law, optimizer: str) -> str:
    large = [role for role in SHOWN_ROLES if share(law, optimizer, role, MODEL, ASKED[1]) >= MATTERS]
    factors = {role: factor for role in large if (factor := multiplier(law, role, ASKED[1])) is not None}
    role = min(factors, key=factors.__getitem__)
    return f"{role} ({factors[role]:.2g})"


def _multipliers(name: str, optimizer: str, law: Law, roles: Sequence[str]) -> Iterator[list[str]]:
    slopes = [law.exponent(role, FIRST) if role in law.roles else None for role in roles]
    yield [name, "(N/N0)^", *("-" if slope is None else _two(-slope) for slope in slopes)]
    for layers in ASKED:
        factors = [multiplier(law, role, layers) for role in roles]
        yield ["", f"{layers:,}", *("-" if factor is None else f"{factor:.2g}" for factor in factors)]
    shares = [100 * share(law, optimizer, role, MODEL, ASKED[1]) if role in law.roles else None for role in roles]
    yield ["", "share", *("-" if percent is None else f"{percent:.2g} %" for percent in shares)]


# ---------------------------------------------------------------- vectors against matrices


def overtaking(laws: Laws) -> str:
    rows, first = [], []
    for (name, optimizer), kept in laws.items():
        depths = [overtakes(kept, optimizer, role, d_model) for d_model in WIDTHS for role in VECTORS]
        if any(depths):
            together = [overtakes_together(kept, optimizer, d_model) for d_model in WIDTHS]
            rows.append([name, optimizer, *map(_depth, [*depths, *together])])
            first.append(min(depth for depth in depths if depth is not None))
    heads = ["scheme", "optimizer", *(f"{role}, d = {d_model:,}" for d_model in WIDTHS for role in VECTORS)]
    return _section(
        "overtaking",
        num=len(laws),
        num_soon=sum(depth <= LAST for depth in first),
        heads=heads + [f"together, d = {d_model:,}" for d_model in WIDTHS],
        rows=rows,
    )


def _depth(depth: float | None) -> str:
    if depth is None:
        return "-"
    return f"{math.ceil(depth):,}" if depth <= LAST else f"~ {float(f'{depth:.2g}'):,.0f}"


def overtakes(law: Law, optimizer: str, role: str, d_model: int) -> float | None:
    """The N from which the role's part is larger than that of the matrices; beyond what is kept, by the last exponents.

    None where it is not up to ``FARTHEST``, or where one of the two is 0.
    """
    if not law.updates[LAST] or not at(law, role, LAST):
        return None
    depth = crossing(lambda layers: share(law, optimizer, role, d_model, layers))
    if depth is not None:
        return depth
    ends = last_exponent(law, role), last_exponent(law)
    assert ends[0] is not None and ends[1] is not None
    farther = (FARTHEST / LAST) ** (ends[0] - ends[1])
    missing = 1 / share(law, optimizer, role, d_model, LAST)
    return LAST * missing ** (1 / (ends[0] - ends[1])) if missing <= farther else None


def overtakes_together(law: Law, optimizer: str, d_model: int) -> float | None:
    """The same of all vectors together; None beyond what is kept."""
    return crossing(lambda layers: sum(share(law, optimizer, role, d_model, layers) for role in VECTORS))


def crossing(value: Callable[[float], float]) -> float | None:
    """The N at which a value that is a power between kept N first reaches 1; None where it does not."""
    if value(LENGTHS[0]) >= 1:
        return LENGTHS[0]
    for low, high in pairwise(LENGTHS):
        before, after = value(low), value(high)
        if before < 1 <= after:
            return low * (high / low) ** (math.log(1 / before) / math.log(after / before))
    return None


# ---------------------------------------------------------------- figures

ROLE_OPTIMIZERS = ("sgd", "adam")
SCHEMES_BY_ROLE = ("post-ln", "pre-ln", "deepnorm", "sub-ln")
_COLOURS = ("--c1", "--c6", "--c2", "--c5", "--c3", "--c4")
_WHERE = f"lines predicted, points measured at d = {WIDE} with 95 % intervals"


def drawings(by_name: ByName) -> dict[str, Drawing]:
    """By file name."""
    schemes = {f"transformers-{one}": of_schemes(by_name, one) for one in OPTIMIZERS}
    return schemes | {f"transformers-roles-{one}": of_roles(by_name, one) for one in ROLE_OPTIMIZERS}


def of_schemes(by_name: ByName, optimizer: str) -> Drawing:
    """The update, each scheme a panel."""
    panels = []
    for name in KEPT_SCHEMES:
        curve = _curve(by_name, name, optimizer, "update", "--c1")
        panels.append(Panel(title=name, curves=[curve], note="0", x="layers N", y="update U", x_kind="depths"))
    return Drawing(
        panels=panels, title=f"Update under {optimizer}: {_WHERE}", columns=5, width=190, height=175, scale="slopes"
    )


def of_roles(by_name: ByName, optimizer: str) -> Drawing:
    """Each scheme two panels: its matrices, and the rest."""
    panels = []
    for what, roles, y in (
        ("matrices", MATRICES, "U of a role"),
        ("the rest", OTHER_ROLES, "U of a role, times its power of d"),
    ):
        for name in SCHEMES_BY_ROLE:
            coloured = zip(roles, _COLOURS, strict=False)
            curves = [_curve(by_name, name, optimizer, role, colour, role) for role, colour in coloured]
            title = f"{name}, {what}"
            panels.append(Panel(title=title, curves=curves, note="0", x="layers N", y=y, x_kind="depths"))
    title = f"Update by role under {optimizer}: {_WHERE}"
    return Drawing(panels=panels, title=title, columns=4, width=250, height=240, scale="slopes")


def _curve(by_name: ByName, name: str, optimizer: str, role: str, colour: str, label: str = "") -> Curve:
    here = {n: cell for n, cell in by_depth(by_name, name, optimizer).items() if role in cell.predicted}
    line = [(n, y) for n, cell in here.items() if (y := cell.predicted[role].value)]
    return Curve(label=label, line=line, points=points(here, role), colour=colour)


def by_depth(by_name: ByName, name: str, optimizer: str) -> dict[int, Compared]:
    """The wide networks of a scheme."""
    return {n: cell for n in LAYERS if (cell := by_name.get((name, optimizer, n, WIDE))) is not None}


def points(several: Mapping[int, Compared], role: str) -> list[Point]:
    """By depth, the mean and its 95 % interval; none where a seed's divergence or rounding takes it away."""
    shown = []
    for depth, cell in several.items():
        if role in cell.estimates:
            ratio, unit = cell.estimates[role], cell.predicted[role].value
            low, high = (None if end is None else end * unit for end in (ratio.low, ratio.high))
            shown.append((depth, ratio.mean * unit, low, high))
    return shown


def write(study: Study) -> None:
    for name, drawing in drawings(study.cells).items():
        save(drawing, FIGURES / f"{name}.svg")
    write_atomically(PAGE, page(study))


if __name__ == "__main__":
    write(study())
