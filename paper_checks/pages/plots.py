"""`--plot` of `depthlaw predict` and `depthlaw measure`: the update against depth, or how each role's grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from depthlaw.network.predicted_rows import exponents
from depthlaw.paper_checks.pages.drawing import SUFFIXES, AxisKind, Curve, Drawing, Panel, Place, Point, raised, save

__all__ = ["SUFFIXES", "Shown", "drawing_of", "update_against_depth", "with_layers"]

Rows = Sequence[Mapping[str, Any]]
"""As `depthlaw predict` and `depthlaw measure` have them."""
MATTERS, LARGE = 0.05, 0.2
"""The least share of the matrices' update at which a role is drawn in colour, and that at which it is bold."""
USUAL_WIDTH = 1024
"""At which shares are told where the networks have no width."""
_PAIRS = {
    **dict.fromkeys(("q", "k"), "--c6"),
    **dict.fromkeys(("v", "out"), "--c2"),
    **dict.fromkeys(("fc1", "fc2", "fc3"), "--c1"),
    **dict.fromkeys(("norm_gain", "norm_bias", "bias"), "--c4"),
    **dict.fromkeys(("embedding", "head", "branch_weight"), "--c3"),
}
"""By role, its colour; others, such as those of cross-attention, have that of v and out."""


@dataclass(frozen=True)
class Shown:
    """role_units: the powers of the width that roles are multiplied by; none where the update alone is drawn."""

    rows: Rows
    role_units: Mapping[str, float]
    width: int | None = None


def update_against_depth(shown: Shown, title: str, note: str, path: Path, *, is_in_layers: bool = False) -> None:
    """Draw it and write it; path ends in one of ``SUFFIXES``."""
    save(drawing_of(shown, title, note, 2 if is_in_layers else 1), path)


def drawing_of(shown: Shown, title: str, note: str, num_each: int = 1) -> Drawing:
    """One panel, log-log. num_each: sublayers of a unit of the horizontal axis, 2 where it counts layers."""
    letter = "L" if num_each == 1 else "N"
    rows = sorted(shown.rows, key=lambda row: row["num_sublayers"])
    draw = _of_roles if shown.role_units else _of_update
    curves, y, legend = draw(shown, [(row["num_sublayers"] / num_each, row) for row in rows], letter)
    x = "residual sublayers L" if num_each == 1 else "layers N"
    return Drawing(
        panels=[Panel(curves=curves, x=x, y=y, x_kind="depths", note=legend)],
        heading=title,
        note=" ".join(f"{text[0].upper()}{text[1:]}." for text in (note, legend) if text),
        width=680,
        height=400,
    )


_OF_LAYERS: Mapping[str, tuple[str, str, AxisKind]] = {
    "second_moment": ("the stream before each sublayer", "second moment", "log"),
    "branch_share": ("what its branch adds", "share of the sum's square", "linear"),
    "cosine_with_previous": ("how nearly it is the identity", "cosine of the streams before and behind it", "linear"),
    "gradient_square": ("the gradient before each sublayer", "square of the gradient", "log"),
}
"""By quantity of a sublayer, a panel's title, what its vertical axis shows, and of which kind it is."""


def with_layers(drawing: Drawing, sublayers: Rows, at: str) -> Drawing:
    """And a panel for each quantity that is known of sublayers, as an audit's document has these; a colour for each
    side. at: of which network."""
    sides = list(dict.fromkeys(row["side"] for row in sublayers))
    panels = []
    for quantity, (title, y, kind) in _OF_LAYERS.items():
        curves = []
        for side, colour in zip(sides, ("--c1", "--c2"), strict=False):
            values = [(row["index"], row[quantity]) for row in sublayers if row["side"] == side]
            values = [(x, {key: value for key, value in of.items() if value or kind == "linear"}) for x, of in values]
            line = [(x, of["predicted"]) for x, of in values if of.get("predicted") is not None]
            points = [
                (x, of["measured"], of.get("low"), of.get("high")) for x, of in values if of.get("measured") is not None
            ]
            curves.append(Curve(label=side if len(sides) > 1 else "", line=line, points=points, colour=colour))
        panels.append(Panel(title=f"{title}, {at}", curves=curves, x="sublayer", y=y, x_kind="linear", y_kind=kind))
    first = [replace(panel, title="the update, by role") for panel in drawing.panels]
    return replace(drawing, panels=[*first, *panels], columns=2, height=320, is_aligned=False)


ByDepth = Sequence[tuple[float, Mapping[str, Any]]]
"""Rows by their depth in the unit of the horizontal axis."""


def _of_update(shown: Shown, by_depth: ByDepth, letter: str) -> tuple[list[Curve], str, str]:
    """The predicted line, the measured points, and thin lines that are flat and that grow with the depth, through the
    first of them. A point whose networks diverged, or that is 0, has no place on a logarithmic axis, and is named."""
    line, points = _line(by_depth), _points(by_depth)
    curves = _guides(line or [(x, y) for x, y, *_ in points], letter)
    slope = exponents(shown.rows)["update"] if line else None
    power = "" if slope is None or len(line) < 2 else f"\n{letter}^{slope:z.2f}"
    if line:
        label = raised(f"predicted{power}")
        curves.append(Curve(label=label, line=line, has_dots=not points, colour="--c1", width=2.2))
    if points:
        curves.append(Curve(label="" if line else "measured", points=points, colour="--c2"))
    there = {x for x, *_ in (points if any("measured" in row for _, row in by_depth) else line)}
    missing = [f"{int(x)}" for x, _ in by_depth if x not in there]
    notes = ["line: predicted, infinite width"] * bool(line)
    how = "points: measured, 95 % intervals" if any(low for *_, low, _ in points) else "points: measured"
    notes += [how] * bool(points)
    notes += [f"no point, 0 or diverged, at {letter} = {', '.join(missing)}"] * bool(missing)
    return curves, "update U per unit learning rate", "; ".join(notes)


def _line(by_depth: ByDepth) -> list[Place]:
    return [(x, row["update"]) for x, row in by_depth if row["update"]]


def _points(by_depth: ByDepth) -> list[Point]:
    return [
        (x, row["measured"], row.get("low"), row.get("high")) for x, row in by_depth if (row.get("measured") or 0) > 0
    ]


def _guides(drawn: Sequence[Place], letter: str) -> list[Curve]:
    """What flat looks like, and what grows as the depth does: through the first point."""
    if len({x for x, _ in drawn}) < 2:
        return []
    (first, start), (last, _) = min(drawn), max(drawn)
    ends = {"flat": start, f"as {letter}": start * last / first}
    return [
        Curve(label=label, line=[(first, start), (last, end)], colour="--muted", line_style="dotted", width=1)
        for label, end in ends.items()
    ]


def _of_roles(shown: Shown, by_depth: ByDepth, letter: str) -> tuple[list[Curve], str, str]:
    """Each role's update over that at its first depth that is not 0, of roles that have a share of the matrices' update
    that matters at the deepest; bold where it is large. Both exponents, where it is predicted and measured."""
    width = shown.width or USUAL_WIDTH
    powers = exponents(shown.rows)
    still, small, curves = [], [], []
    for role in ("update", *shown.role_units):
        line, points = _growth(by_depth, role)
        share = 1.0 if role == "update" else _share(shown, by_depth[-1][1], role, width)
        if not line and not points:
            still.append(role)
            continue
        if share < MATTERS:
            small.append(role)
            continue
        slopes = {"measured": _slope(points) if points else None, "predicted": powers.get(role) if line else None}
        known = {how: slope for how, slope in slopes.items() if slope is not None and len({*line, *points}) > 1}
        notes = [
            f"{how} {letter}^{slope:z.2f}" if len(known) > 1 else f"{letter}^{slope:z.2f}"
            for how, slope in known.items()
        ]
        curves.append(
            Curve(
                label=raised(f"{'all matrices' if role == 'update' else role} {', '.join(notes)}".strip()),
                line=line,
                points=points,
                colour="--ink" if role == "update" else _PAIRS.get(role, "--c2"),
                line_style="dashed" if role in ("k", "out", "fc2", "norm_bias") else "solid",
                width=2.6 if share >= LARGE else 1.6,
            )
        )
    notes = [f"bold: at least {LARGE:.0%} of the matrices' update at d = {width:,}".replace("%", " %")]
    notes += [f"not drawn, less than {100 * MATTERS:.0f} % of it: {', '.join(small)}"] * bool(small)
    notes += [f"0 at every depth: {', '.join(still)}"] * bool(still)
    return curves, "update over its own at the first depth", "; ".join(notes)


def _growth(by_depth: ByDepth, role: str) -> tuple[list[Place], list[Point]]:
    """Predicted and measured, over what is predicted (else measured) first."""
    if role != "update":
        by_depth = [
            (x, {**row.get("by_role", {}).get(role, {}), "update": row["roles"].get(role)}) for x, row in by_depth
        ]
    line, points = _line(by_depth), _points(by_depth)
    unit = line[0][1] if line else points[0][1] if points else 1.0
    low_and_high = [tuple(None if end is None else end / unit for end in ends) for _, _, *ends in points]
    relative = [(x, mean / unit, low, high) for (x, mean, *_), (low, high) in zip(points, low_and_high, strict=True)]
    return [(x, y / unit) for x, y in line], relative


def _share(shown: Shown, deepest: Mapping[str, Any], role: str, width: int) -> float:
    """Of the matrices' update; 1 where that is 0."""
    mine = deepest["roles"].get(role) or deepest.get("by_role", {}).get(role, {}).get("measured") or 0.0
    every = deepest["update"] or deepest.get("measured")
    return mine * width ** -shown.role_units[role] / every if every else 1.0


def _slope(points: Sequence[Point]) -> float | None:
    """Between the ends."""
    (x, y, *_), (last, end, *_) = points[0], points[-1]
    return math.log(end / y) / math.log(last / x) if last > x else None
