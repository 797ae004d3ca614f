"""TRANSFORMERS.md's first half: Transformers as they are measured, beside what is predicted of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median

from scipy.special import stdtr

from paper_checks.experiments.sweeps import HEAD_SIZE, OPTIMIZERS
from paper_checks.pages.markdown import interval, section, span
from paper_checks.pages.transformers.cells import (
    ROLES,
    Cell,
    Name,
    WidthFit,
    errors_off,
    holds,
    limit,
    width_fit,
    worst,
)
from sims.model import OTHER_ROLES
from sims.stats import Estimate
from theory.kernel.predict import unit_power
from theory.schemes import SCHEMES

LAYERS = (1, 2, 4, 8, 16)
WIDE, NARROW = 512, 256
CLOSE_IN_TOTAL, CLOSE_BY_ROLE = 0.03, 0.1
NUM_NAMED = 10
SHOWN_ROLES = ("q", "k", "v", "out", "fc1", "fc2", *OTHER_ROLES)
Cells = Mapping[Name, Cell]


def half(found: Estimate) -> str:
    """Mean and half of the interval."""
    return f"{found.mean:z.2f}" if found.high is None else f"{found.mean:z.2f} ± {found.high - found.mean:.2f}"


# ---------------------------------------------------------------- what this is


def head(found: Cells) -> str:
    return section(
        "transformers",
        "head",
        head_size=HEAD_SIZE,
        roles=list(OTHER_ROLES),
        powers=[[name, *(_power(unit_power(name, role)) for role in OTHER_ROLES)] for name in OPTIMIZERS],
        error=max((cell.predicted["update"].error for cell in found.values()), default=0.0),
        role_error=max((one.error for cell in found.values() for one in cell.predicted.values()), default=0.0),
        depths=", ".join(map(str, LAYERS)),
        wide=WIDE,
        wide_seeds=_seeds(found, WIDE),
        narrow=NARROW,
        narrow_seeds=_seeds(found, NARROW),
    )


def _power(power: float) -> str:
    return {0: "1", 0.5: "d^(1/2)", 1: "d", 1.5: "d^(3/2)"}[power]


def _seeds(found: Cells, width: int) -> str:
    """At each depth, of the networks that have any."""
    numbers = [[one.num_seeds for (*_, n, d), one in found.items() if (n, d) == (layers, width)] for layers in LAYERS]
    return ", ".join(span([number for number in some if number]) for some in numbers)


# ---------------------------------------------------------------- in total


def total(found: Cells) -> str:
    ratios = [(cell, cell.estimates["update"]) for cell in of_width(found, WIDE) if "update" in cell.ratios]
    far = [(cell, one) for cell, one in ratios if _is_beyond(one, CLOSE_IN_TOTAL)]
    limits = [(wide, limit(wide, narrow)) for wide, narrow in _pairs(found, "update")]
    rows = []
    for name, optimizer in _lines(found):
        ends = [_predicted(found, name, optimizer, layers) for layers in (LAYERS[0], LAYERS[-1])]
        here = [_ratio(found.get((name, optimizer, layers, WIDE))) for layers in LAYERS]
        rows.append([name, optimizer, *ends, *here])
    zero = (cell.name for cell in found.values() if cell.predicted["update"].value == 0)
    wrong_zeros = (" ".join(map(str, cell.name)) for cell in found.values() if cell.wrong_zeros)
    return section(
        "transformers",
        "total",
        wide=WIDE,
        narrow=NARROW,
        num=len(ratios),
        close=sum(abs(one.mean - 1) <= CLOSE_IN_TOTAL for _, one in ratios),
        held=sum(holds(one) for _, one in ratios),
        num_far=len(far),
        far=_named(far),
        num_limits=len(limits),
        limits_held=sum(holds(one) for _, one in limits),
        outside=_named([(cell, one) for cell, one in limits if not holds(one)], has_intervals=False),
        zeros=", ".join(dict.fromkeys(f"{name} {optimizer}" for name, optimizer, *_ in zero)),
        wrong_zeros=", ".join(sorted(wrong_zeros)),
        heads=["scheme", "optimizer", f"U({LAYERS[0]})", f"U({LAYERS[-1]})", *(f"N = {n}" for n in LAYERS)],
        rows=rows,
    )


def _predicted(found: Cells, name: str, optimizer: str, layers: int) -> str:
    cell = found.get((name, optimizer, layers, WIDE)) or found.get((name, optimizer, layers, NARROW))
    return "-" if cell is None else f"{cell.predicted['update'].value:.4g}"


def _ratio(cell: Cell | None) -> str:
    one = None if cell is None else cell.estimates.get("update")
    if one is None:
        return "-"
    return f"**{interval(one)}**" if abs(one.mean - 1) > CLOSE_IN_TOTAL else interval(one)


def _is_beyond(found: Estimate, by: float) -> bool:
    return found.low is not None and found.high is not None and (found.low > 1 + by or found.high < 1 - by)


def _named(found: Sequence[tuple[Cell, Estimate]], *, has_intervals: bool = True) -> str:
    """By scheme and optimizer, each N with its interval."""
    parts = []
    for (name, optimizer), group in groupby(sorted(found, key=_place), key=lambda pair: pair[0].name[:2]):
        numbers = [f"{cell.name[2]}" + f": {interval(one)}" * has_intervals for cell, one in group]
        parts.append(f"{name} {optimizer} N = {', '.join(numbers)}")
    return "; ".join(parts) or "none"


def _place(pair: tuple[Cell, Estimate]) -> tuple[int, int, int]:
    name, optimizer, layers, _ = pair[0].name
    return list(SCHEMES).index(name), OPTIMIZERS.index(optimizer), layers


def of_width(found: Cells, width: int) -> list[Cell]:
    return [cell for (_, _, _, d), cell in found.items() if d == width]


def _lines(found: Cells) -> list[tuple[str, str]]:
    there = {name[:2] for name in found}
    return [(name, optimizer) for name in SCHEMES for optimizer in OPTIMIZERS if (name, optimizer) in there]


def _pairs(found: Cells, role: str) -> Iterator[tuple[Cell, Cell]]:
    """Wide and narrow, of one network that has this ratio at both widths."""
    for (name, optimizer, layers, width), cell in found.items():
        other = found.get((name, optimizer, layers, NARROW))
        if width == WIDE and other is not None and role in cell.ratios and role in other.ratios:
            yield cell, other


# ---------------------------------------------------------------- the width


def width(found: Cells) -> str:
    fits = _fits(found, "update")
    rows = []
    for (name, optimizer), fit in fits.items():
        deepest = f"{100 * fit.slope.mean * 2 * LAYERS[-1] / WIDE:+.1f} %"
        rows.append([name, optimizer, interval(fit.offset), interval(fit.slope), deepest])
    other = [f"{' '.join(names)} {interval(fit.slope)}" for names, fit in fits.items() if not holds(fit.slope, 0.0)]
    return section(
        "transformers",
        "width",
        head_size=HEAD_SIZE,
        num=len(fits),
        without_b=sum(holds(fit.slope, 0.0) for fit in fits.values()),
        without_a=sum(holds(fit.offset, 0.0) for fit in fits.values()),
        other=", ".join(other),
        heads=["scheme", "optimizer", "a", "b", f"b 2N/d at N = {LAYERS[-1]}, d = {WIDE}"],
        rows=rows,
        role_heads=["role", *(f"{term}, {one}" for one in OPTIMIZERS for term in ("a", "b"))],
        role_rows=list(_role_rows(found)),
    )


def _fits(found: Cells, role: str) -> dict[tuple[str, str], WidthFit]:
    """Of each scheme and optimizer that has two depths of this role."""
    fits = {}
    for names in _lines(found):
        here = [cell for cell in found.values() if cell.name[:2] == names and role in cell.ratios]
        if len({cell.name[2] for cell in here}) > 1:
            fits[names] = width_fit(here, role)
    return fits


def _role_rows(found: Cells) -> Iterator[list[str]]:
    for role in SHOWN_ROLES:
        fits, row = _fits(found, role), [role]
        for optimizer in OPTIMIZERS:
            mine = [fit for (_, used), fit in fits.items() if used == optimizer]
            row += [_median([fit.offset for fit in mine]), _median([fit.slope for fit in mine])]
        yield row


def _median(found: Sequence[Estimate]) -> str:
    if not found:
        return "-"
    middle = median(one.mean for one in found)
    return f"{middle:z.2f} ({sum(not holds(one, 0.0) for one in found)} of {len(found)})"


# ---------------------------------------------------------------- by role


def by_role(found: Cells) -> str:
    every = [(cell, role, one) for cell in of_width(found, WIDE) for role, one in cell.roles.items()]
    pairs = [(pair, role) for role in ROLES for pair in _pairs(found, role)]
    most = sorted(every, key=lambda one: -abs(errors_off(one[2])))[:NUM_NAMED]
    last = abs(errors_off(most[-1][2])) if most else 0.0
    return section(
        "transformers",
        "by_role",
        wide=WIDE,
        layers=LAYERS,
        roles=list(SHOWN_ROLES),
        num=len(every),
        close=_close(one for _, _, one in every),
        held=sum(holds(one) for _, _, one in every),
        far=[_of_role(*one) for one in every if _is_beyond(one[2], CLOSE_BY_ROLE)],
        num_limits=len(pairs),
        limits_held=sum(holds(limit(*pair, role)) for pair, role in pairs),
        lacking=sorted({f"{' '.join(map(str, cell.name))} {role}" for cell in found.values() for role in cell.lacking}),
        largest=[
            [*map(str, cell.name[:3]), role, interval(one), f"{errors_off(one):+.1f}"] for cell, role, one in most
        ],
        chance=sum(2 * float(stdtr(one.num - 1, -last)) for _, _, one in every if one.num > 1),
        worst={optimizer: list(_worst_rows(found, optimizer)) for optimizer in ("sgd", "adam")},
    )


def _worst_rows(found: Cells, optimizer: str) -> Iterator[list[str]]:
    for name in SCHEMES:
        here = [cell for cell in of_width(found, WIDE) if cell.name[:2] == (name, optimizer)]
        if here:
            yield [name, *(_worst_cell(here, role) for role in SHOWN_ROLES)]


def _close(found: Iterable[Estimate]) -> int:
    return sum(abs(one.mean - 1) <= CLOSE_BY_ROLE for one in found)


def _of_role(cell: Cell, role: str, found: Estimate) -> str:
    name, optimizer, layers, _ = cell.name
    return f"{role} of {name} {optimizer} N = {layers}: {interval(found)}"


def _worst_cell(found: Sequence[Cell], role: str) -> str:
    chosen = worst((cell, cell.estimates[role]) for cell in found if role in cell.ratios)
    if chosen is not None:
        return f"{half(chosen[1])} (N = {chosen[0].name[2]})"
    return "0" if any(role in cell.predicted and role not in cell.lacking for cell in found) else "-"


# ---------------------------------------------------------------- variants


def variants(found: Sequence[Cell]) -> str:
    """One thing at a time that is not as above."""
    ratios = [one for cell in found if (one := cell.estimates.get("update"))]
    roles = [one for cell in found for one in cell.roles.values()]
    rows = []
    for cell in found:
        of_roles = cell.roles
        name = max(of_roles, key=lambda role: abs(of_roles[role].mean - 1), default=None)
        last = "-" if name is None else f"{name}: {interval(of_roles[name])}"
        measured, predicted = cell.estimates.get("update"), cell.predicted["update"].value
        rows.append([what(cell), *cell.name[:2], f"{predicted:.4g}", interval(measured), last])
    return section(
        "transformers",
        "variants",
        wide=WIDE,
        seeds=span([cell.num_seeds for cell in found]),
        num=len(ratios),
        close=_close(ratios),
        held=sum(map(holds, ratios)),
        num_roles=len(roles),
        close_roles=_close(roles),
        held_roles=sum(map(holds, roles)),
        rows=rows,
    )


def what(cell: Cell) -> str:
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
