"""Predicted against measured, by scheme and optimizer: the update, and each role's part of it.

Transformers as TRANSFORMERS.md has them, FFN-only stacks as MEASURED.md has them, from the same records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments.kernel_kept import Number
from depthlaw.paper_checks.experiments.kernel_laws import Law
from depthlaw.paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS
from depthlaw.paper_checks.experiments.sweeps import LENGTHS as STACK_LENGTHS
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, Point
from depthlaw.paper_checks.pages.markdown import caption, interval, span
from depthlaw.paper_checks.pages.transformers import (
    ROLES,
    WIDE,
    Compared,
    Index,
    by_depth,
    cell,
    last_exponent,
    points,
    study,
)
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS
from depthlaw.theory.kernel.predict import unit_power
from depthlaw.theory.schemes import scheme

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


@dataclass(frozen=True, kw_only=True)
class SchemeFigures:
    """Of one scheme, by optimizer."""

    scheme: str
    source: str
    transformers: Mapping[str, Drawing]
    stacks: Mapping[str, Drawing]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One scheme under one optimizer. cells: measured, by depth. lines: predicted at those depths and, of stacks,
    deeper; law: at infinitely large heads, where it is kept; both by role and of "update"."""

    cells: Mapping[int, Compared]
    lines: Mapping[str, Sequence[Place]]
    law: Law | None = None

    def points(self, role: str) -> list[Point]:
        """At these depths, the mean and its 95 % interval."""
        return points(self.cells, role)

    def is_zero(self, role: str) -> bool:
        """Predicted to be 0 at every depth, and measured to be."""
        is_wrong = any(role in cell.wrong_zeros for cell in self.cells.values())
        return not is_wrong and not any(y for _, y in self.lines[role])


def by_scheme() -> list[SchemeFigures]:
    """Of every scheme that is measured, in theory's order. LookupError, in one line, where something is not kept."""
    return [
        SchemeFigures(
            scheme=name,
            source=scheme(name).source,
            transformers={optimizer: _of_transformers(name, optimizer) for optimizer in OPTIMIZERS},
            stacks={optimizer: _of_stacks(name, optimizer) for optimizer in OPTIMIZERS},
        )
        for name in KEPT_SCHEMES
    ]


# ---------------------------------------------------------------- the numbers


def transformers(name: str, optimizer: str) -> Comparison:
    """By layers N."""
    cells = by_depth(study().cells, name, optimizer)
    roles = next(iter(cells.values())).predicted
    lines = {role: [(float(n), cell.predicted[role].value) for n, cell in cells.items()] for role in roles}
    return Comparison(cells=cells, lines=lines, law=study().laws[name, optimizer])


@cache
def _index() -> Index:
    return Index(record.read(RECORDS / "ffn-stacks.jsonl"))


@cache
def stacks(name: str, optimizer: str) -> Comparison:
    """By sublayers L."""
    cells: dict[int, Compared] = {}
    lines: dict[str, list[Place]] = {}
    for length in (*STACK_LENGTHS, *DEEPER):
        network = Network(scheme=scheme(name), num_sublayers=length, d_model=WIDE)
        exact = network.theory(optimizer)
        values = {UPDATE: exact.update, **exact.roles}
        for role, value in values.items():
            lines.setdefault(role, []).append((float(length), value))
        if length in STACK_LENGTHS:
            predicted = {role: Number(value, 0.0) for role, value in values.items()}
            cells[length] = cell(network, optimizer, _index().find(network, optimizer), predicted)
    return Comparison(cells=cells, lines=lines)


# ---------------------------------------------------------------- the figures


def _of_transformers(name: str, optimizer: str) -> Drawing:
    beside = transformers(name, optimizer)
    assert beside.law is not None
    return Drawing(
        panels=list(_panels(beside, "layers N", lambda role: unit_power(optimizer, role))),
        title=f"{name} under {optimizer}: a Transformer encoder",
        caption=caption("transformers", slope=last_exponent(beside.law), **_said(beside, "N")),
        rows=_rows(beside, "N"),
        scale="slopes",
    )


def _of_stacks(name: str, optimizer: str) -> Drawing:
    beside = stacks(name, optimizer)
    return Drawing(
        panels=list(_panels(beside, "sublayers L", lambda _: 0.0)),
        title=f"{name} under {optimizer}: an FFN-only stack",
        caption=caption("stacks", **_said(beside, "L")),
        rows=_rows(beside, "L"),
        scale="slopes",
    )


def _said(beside: Comparison, letter: str) -> dict[str, Any]:
    """Of the update, for the caption: whether it is 0, else the ratio that is farthest from 1."""
    ratios = [(depth, cell.estimates[UPDATE]) for depth, cell in beside.cells.items() if UPDATE in cell.estimates]
    depth, worst = max(ratios, key=lambda pair: abs(pair[1].mean - 1), default=(None, None))
    return {
        "wide": WIDE,
        "seeds": span([cell.num_seeds for cell in beside.cells.values() if cell.num_seeds]),
        "is_zero": beside.is_zero(UPDATE),
        "worst": None if worst is None else interval(worst),
        "depth": depth,
        "letter": letter,
    }


def _panels(beside: Comparison, x: str, unit: Callable[[str], float]) -> Iterator[Panel]:
    """The update, and each group of roles that the networks have."""
    yield Panel(
        title="update of the branch matrices",
        curves=[] if beside.is_zero(UPDATE) else [_curve(beside, UPDATE, 0)],
        note="U is exactly 0: predicted and measured",
        x=x,
        y="U per unit learning rate",
    )
    for group in GROUPS:
        there = [role for role in group if role in beside.lines]
        moving = [role for role in there if not beside.is_zero(role)]
        if there:
            curves = [_curve(beside, role, place) for place, role in enumerate(moving)]
            yield Panel(title=_title(moving or there, unit), curves=curves, note="exactly 0", x=x)


def _title(roles: Sequence[str], unit: Callable[[str], float]) -> str:
    """Roles, and the power of the width that they are shown times."""
    names = {0.0: "", 0.5: "d^½", 1.0: "d", 1.5: "d^(3/2)"}
    powers = {role: names[unit(role)] for role in roles}
    if len(roles) > 2 and len(set(powers.values())) == 1:
        return f"norms and biases, times {powers[roles[0]]}"
    return ", ".join(f"{role}·{power}" if power else role for role, power in powers.items())


def _curve(beside: Comparison, role: str, place: int) -> Curve:
    """The measured points on the line that is predicted of them, and the law of deeper ones."""
    deeper = {} if beside.law is None else beside.law.of(role)
    return Curve(
        label=role if role != UPDATE else "U",
        line=_positive(beside.lines[role]),
        beyond=_positive([(float(n), y) for n, y in deeper.items()]),
        points=beside.points(role),
        colour=_COLOURS[place],
        line_style="dashed" if place else "solid",
        mark=_MARKS[place],
    )


def _positive(line: Sequence[Place]) -> list[Place]:
    return [(x, y) for x, y in line if y > 0 and math.isfinite(y)]


def _rows(beside: Comparison, letter: str) -> list[dict[str, str]]:
    """By role: predicted at both ends of what is measured, and the ratios."""
    rows = []
    for role in (UPDATE, *(role for role in ROLES if role in beside.lines)):
        line = dict(beside.lines[role])
        row = {f"U({n}) predicted": f"{line[n]:.4g}" for n in (min(beside.cells), max(beside.cells))}
        row |= {f"ratio, {letter} = {n}": _ratio(cell, role) for n, cell in beside.cells.items()}
        rows.append({"role": role, **row})
    return rows


def _ratio(cell: Compared, role: str) -> str:
    """A dash where a seed's divergence or rounding takes it away."""
    if role in cell.predicted and cell.predicted[role].value == 0:
        return "not 0" if role in cell.wrong_zeros else "0, as predicted"
    return interval(cell.estimates.get(role))
