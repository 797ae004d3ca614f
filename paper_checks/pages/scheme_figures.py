"""Predicted against measured, by scheme and optimizer: the update, and each role's part of it.

Transformers as TRANSFORMERS.md has them, FFN-only stacks as MEASURED.md has them, from the same records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paper_checks.experiments.kernel_kept import Number
from paper_checks.experiments.kernel_laws import Law
from paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS
from paper_checks.experiments.sweeps import LENGTHS as STACK_LENGTHS
from paper_checks.lowering.networks import Network
from paper_checks.pages.drawing import Curve, Drawing, Figure, Interval, Panel
from paper_checks.pages.markdown import caption, interval, span
from paper_checks.pages.transformers import (
    ROLES,
    WIDE,
    Cell,
    Index,
    Laws,
    Name,
    by_depth,
    cell,
    last_exponent,
    points,
    study,
)
from paper_checks.system.places import RECORDS
from sims.records import record
from sims.stats import Estimate
from theory.kernel.predict import unit_power
from theory.schemes import scheme

DEEPER = (128, 512, 2048)
"""Sublayers of a stack that are predicted and not measured."""
GROUPS = (
    ("q", "k"),
    ("v", "out"),
    ("fc1", "fc2"),
    ("norm_gain", "norm_bias", "bias"),
    ("branch_weight", "embedding", "head"),
)
"""Roles that share a panel."""
UPDATE = "update"
_COLOURS, _MARKS = ("--c1", "--c2", "--c3"), "os^"
_EXACTLY_0 = "U is exactly 0"


@dataclass(frozen=True, kw_only=True)
class SchemeFigures:
    """Of one scheme, by optimizer."""

    scheme: str
    source: str
    transformers: Mapping[str, Figure]
    stacks: Mapping[str, Figure]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One scheme under one optimizer. cells: measured, by depth. lines: predicted at those depths and, of stacks,
    deeper; law: at infinitely large heads, where it is kept; both by role and of "update"."""

    cells: Mapping[int, Cell]
    lines: Mapping[str, Sequence[tuple[float, float]]]
    law: Law | None = None

    def points(self, role: str) -> list[Interval]:
        """At these depths, the mean and its 95 % interval."""
        return points(self.cells, role)

    @property
    def roles(self) -> list[str]:
        return [role for role in ROLES if role in self.lines]

    def is_zero(self, role: str) -> bool:
        """Predicted to be 0 at every depth, and measured to be."""
        is_wrong = any(role in one.wrong_zeros for one in self.cells.values())
        return not is_wrong and not any(y for _, y in self.lines[role])


def by_scheme() -> list[SchemeFigures]:
    """Of every scheme that is measured, in theory's order. LookupError, in one line, where something is not kept."""
    return [
        SchemeFigures(
            scheme=name,
            source=scheme(name).source,
            transformers={one: _of_transformers(name, one) for one in OPTIMIZERS},
            stacks={one: _of_stacks(name, one) for one in OPTIMIZERS},
        )
        for name in KEPT_SCHEMES
    ]


# ---------------------------------------------------------------- the numbers


@cache
def _study() -> tuple[Mapping[Name, Cell], Laws]:
    found = study()
    return found.cells, found.laws


def transformers(name: str, optimizer: str) -> Beside:
    """By layers N."""
    cells, laws = _study()
    here = by_depth(cells, name, optimizer)
    roles = next(iter(here.values())).predicted
    lines = {role: [(float(n), one.predicted[role].value) for n, one in here.items()] for role in roles}
    return Beside(cells=here, lines=lines, law=laws[name, optimizer])


@cache
def _index() -> Index:
    return Index(record.read(RECORDS / "ffn-stacks.jsonl"))


@cache
def stacks(name: str, optimizer: str) -> Beside:
    """By sublayers L."""
    cells: dict[int, Cell] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for length in (*STACK_LENGTHS, *DEEPER):
        network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE)
        exact = network.theory(optimizer)
        values = {UPDATE: exact.update, **exact.roles}
        for role, value in values.items():
            lines.setdefault(role, []).append((float(length), value))
        if length in STACK_LENGTHS:
            predicted = {role: Number(value, 0.0) for role, value in values.items()}
            cells[length] = cell(network, optimizer, _index().find(network, optimizer), predicted)
    return Beside(cells=cells, lines=lines)


# ---------------------------------------------------------------- the figures


def _of_transformers(name: str, optimizer: str) -> Figure:
    found = transformers(name, optimizer)
    assert found.law is not None
    drawing = Drawing(
        panels=list(_panels(found, "layers N", lambda role: unit_power(optimizer, role))),
        title=f"{name} under {optimizer}: a Transformer encoder",
        caption=caption("transformers", slope=last_exponent(found.law), **_said(found, "N")),
        scale="slopes",
    )
    return Figure.of(drawing, _rows(found, "N"))


def _of_stacks(name: str, optimizer: str) -> Figure:
    found = stacks(name, optimizer)
    drawing = Drawing(
        panels=list(_panels(found, "sublayers L", lambda _: 0.0)),
        title=f"{name} under {optimizer}: an FFN-only stack",
        caption=caption("stacks", **_said(found, "L")),
        scale="slopes",
    )
    return Figure.of(drawing, _rows(found, "L"))


def _said(found: Beside, letter: str) -> dict[str, Any]:
    """Of the update, for the caption: whether it is 0, else the ratio that is farthest from 1."""
    ratios = [(depth, one.estimates[UPDATE]) for depth, one in found.cells.items() if UPDATE in one.estimates]
    depth, worst = max(ratios, key=lambda pair: abs(pair[1].mean - 1), default=(None, None))
    return {
        "wide": WIDE,
        "seeds": span([one.num_seeds for one in found.cells.values() if one.num_seeds]),
        "is_zero": found.is_zero(UPDATE),
        "worst": None if worst is None else interval(worst),
        "depth": depth,
        "letter": letter,
    }


def _panels(found: Beside, x: str, unit: Callable[[str], float]) -> Iterator[Panel]:
    yield _update(found, x)
    for group in GROUPS:
        there = [role for role in group if role in found.lines]
        moving = [role for role in there if not found.is_zero(role)]
        if not there:
            continue
        still = [role for role in there if role not in moving]
        yield Panel(
            title=_title(moving or there, unit),
            about=" ".join([*(_about(found, role) for role in moving), *(f"{role}: 0." for role in still)]),
            curves=[_of_role(found, role, place) for place, role in enumerate(moving)],
            note="exactly 0",
            x=x,
        )


def _title(roles: Sequence[str], unit: Callable[[str], float]) -> str:
    """Roles, and the power of the width that they are shown times."""
    names = {0.0: "", 0.5: "d^½", 1.0: "d", 1.5: "d^(3/2)"}
    powers = {role: names[unit(role)] for role in roles}
    if len(roles) > 2 and len(set(powers.values())) == 1:
        return f"norms and biases, times {powers[roles[0]]}"
    return ", ".join(f"{role}·{power}" if power else role for role, power in powers.items())


def _update(found: Beside, x: str) -> Panel:
    is_zero = found.is_zero(UPDATE)
    return Panel(
        title="update of the branch matrices",
        about="0 at every depth." if is_zero else _about(found, UPDATE),
        curves=[] if is_zero else [_of_role(found, UPDATE, 0)],
        note=f"{_EXACTLY_0}: predicted and measured",
        x=x,
        y="U per unit learning rate",
    )


def _of_role(found: Beside, role: str, place: int) -> Curve:
    """The measured points on the line that is predicted of them, and the law of deeper ones."""
    beyond = () if found.law is None else _positive([(float(n), y) for n, y in found.law.of(role).items()])
    return Curve(
        label=role if role != UPDATE else "U",
        line=_positive(found.lines[role]),
        beyond=beyond,
        points=found.points(role),
        colour=_COLOURS[place],
        line_style="dashed" if place else "solid",
        mark=_MARKS[place],
    )


def _positive(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in line if y > 0 and math.isfinite(y)]


def _about(found: Beside, role: str) -> str:
    """For who cannot see the panel: the ends of the line, and what is measured of them."""
    line = [*found.lines[role], *((float(n), y) for n, y in (found.law.of(role).items() if found.law else ()))]
    (x, low), (deep, high) = min(line), max(line)
    ratios = [one.estimates[role].mean for one in found.cells.values() if role in one.estimates]
    beside = f"; measured over predicted {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
    return f"{role}: predicted {low:.3g} at {x:g}, {high:.3g} at {deep:,g}{beside}."


def _rows(found: Beside, letter: str) -> list[dict[str, str]]:
    """By role: predicted at both ends of what is measured, and the ratios."""
    rows = []
    for role in (UPDATE, *found.roles):
        first, last = min(found.cells), max(found.cells)
        line = dict(found.lines[role])
        row = {"role": role} | {f"U({depth}) predicted": f"{line[depth]:.4g}" for depth in (first, last)}
        row |= {f"ratio, {letter} = {n}": _ratio(one, role) for n, one in found.cells.items()}
        rows.append(row)
    return rows


def _ratio(found: Cell, role: str) -> str:
    """A dash where a seed's divergence or rounding takes it away."""
    predicted = found.predicted.get(role)
    if predicted is not None and predicted.value == 0:
        return "not 0" if role in found.wrong_zeros else "0, as predicted"
    estimate: Estimate | None = found.estimates.get(role)
    return interval(estimate)
