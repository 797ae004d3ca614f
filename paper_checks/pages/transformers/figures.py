"""The figures of TRANSFORMERS.md: small, text as text, the same bytes from the same numbers.

Each file says in its metadata which numbers it draws (``digest``), so that a test need not draw it again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paper_checks.pages.transformers.cells import Cell
from paper_checks.pages.transformers.text import LAYERS, WIDE, Cells
from paper_checks.system.files import write_atomically
from sims.model import OTHER_ROLES
from sims.records.record import rounded
from theory.schemes import SCHEMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMES_BY_ROLE = ("post-ln", "pre-ln", "deepnorm", "sub-ln")
_DIGITS = 4
_COLUMNS = 6
_PAIRS = (("q", "k"), ("v", "out"), ("fc1", "fc2"))
_LEAST_SPAN = 10.0
"""Of a vertical axis, top over bottom: what is flat looks flat."""
_MANY = 300.0
"""A span from which on labels at powers of ten are enough."""
Point = tuple[int, float, float | None, float | None, float | None]
"""N, predicted, and measured with its interval, or None."""
Curves = Mapping[str, Mapping[str, Sequence[Point]]]
"""By panel and curve."""


def of_schemes(found: Cells, optimizer: str) -> Curves:
    """The update, each scheme a panel."""
    return {name: {"update": _points(found, name, optimizer, "update")} for name in SCHEMES}


def of_roles(found: Cells, optimizer: str) -> Curves:
    """Each scheme two panels: its matrices, and the rest."""
    parts = {"matrices": [role for pair in _PAIRS for role in pair], "the rest": list(OTHER_ROLES)}
    found_curves = {}
    for part, roles in parts.items():
        for name in SCHEMES_BY_ROLE:
            by_role = {role: _points(found, name, optimizer, role) for role in roles}
            moving = {role: points for role, points in by_role.items() if any(y for _, y, *_ in points)}
            found_curves[f"{name}, {part}"] = moving
    return found_curves


def _points(found: Cells, name: str, optimizer: str, role: str) -> list[Point]:
    points = []
    for layers in LAYERS:
        cell = found.get((name, optimizer, layers, WIDE))
        if cell is not None and role in cell.predicted:
            points.append(_point(layers, cell, role))
    return points


def _point(layers: int, cell: Cell, role: str) -> Point:
    predicted, ratio = cell.predicted[role].value, cell.estimates.get(role)
    if ratio is None:
        return layers, predicted, None, None, None
    low, high = (None if end is None else rounded(end * predicted, _DIGITS) for end in (ratio.low, ratio.high))
    return layers, predicted, rounded(ratio.mean * predicted, _DIGITS), low, high


def digest(curves: Curves) -> str:
    return hashlib.sha256(json.dumps(curves).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- drawing


def draw_schemes(curves: Curves, title: str) -> Figure:
    figure, panels = _grid(len(curves), _COLUMNS, title, (12, 8))
    for axes, (name, by_curve) in zip(panels, curves.items(), strict=False):
        points = by_curve["update"]
        _draw(axes, points, "C0", "-", "C1")
        axes.set_title(name, fontsize=9)
    _scale(panels, [list(by_curve.values()) for by_curve in curves.values()])
    _label(panels, _COLUMNS, "U")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="lower right", fontsize=9)
    return figure


def draw_roles(curves: Curves, title: str) -> Figure:
    columns = len(SCHEMES_BY_ROLE)
    figure, panels = _grid(len(curves), columns, title, (12, 6))
    for axes, (name, by_curve) in zip(panels, curves.items(), strict=True):
        for role, points in by_curve.items():
            color, line = _style(role)
            _draw(axes, points, color, line, color)
        axes.set_title(name, fontsize=9)
    _scale(panels, [list(by_curve.values()) for by_curve in curves.values()])
    _label(panels, columns, "U of a matrix role")
    for axes in panels[columns::columns]:
        axes.set_ylabel("U times its power of d", fontsize=9)
    for first in range(0, len(panels), columns):
        by_role = {}
        for axes, by_curve in zip(panels[first:], list(curves.values())[first : first + columns], strict=False):
            lines = [line for line in axes.get_lines() if line.get_linestyle() != "None"]
            by_role |= dict(zip(by_curve, lines, strict=False))
        panels[first + columns - 1].legend(
            by_role.values(), by_role, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8
        )
    return figure


def _style(role: str) -> tuple[str, str]:
    """Color and line: the two of a pair, which lie near one another, share a color."""
    for i, pair in enumerate(_PAIRS):
        if role in pair:
            return f"C{i}", ("-", "--")[pair.index(role)]
    return f"C{OTHER_ROLES.index(role) + len(_PAIRS)}", "-"


def _grid(number: int, columns: int, title: str, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(-(-number // columns), columns, sharex=True, squeeze=False).flatten()
    for axes in grid[number:]:
        axes.remove()
    figure.suptitle(title, fontsize=10)
    return figure, list(grid[:number])


def _draw(axes: Axes, points: Sequence[Point], color: str, line: str, dots: str) -> None:
    there = [(x, y) for x, y, *_ in points if y]
    if there:
        axes.plot(*zip(*there, strict=True), line, color=color, linewidth=1.2, label="predicted, infinite width")
    measured = [(x, mean, low or mean, high or mean) for x, _, mean, low, high in points if mean]
    if measured:
        xs, means, lows, highs = zip(*measured, strict=True)
        ends = [[y - max(low, y / 1000) for y, low in zip(means, lows, strict=True)]]
        ends.append([high - y for y, high in zip(means, highs, strict=True)])
        label = f"measured at d = {WIDE}, 95 % interval"
        axes.errorbar(xs, means, ends, fmt="o", markersize=3.5, capsize=2, linewidth=0.8, color=dots, label=label)


def _scale(panels: Sequence[Axes], found: Sequence[Sequence[Sequence[Point]]]) -> None:
    """As many decades in each panel, around its own middle, so that equal slopes look equal."""
    from matplotlib.ticker import LogLocator, NullLocator

    spans = []
    for curves in found:
        values = [y for points in curves for _, predicted, mean, _, _ in points for y in (predicted, mean) if y]
        spans.append((min(values) / 1.3, max(values) * 1.3) if values else (1.0, 1.0))
    factor = max(_LEAST_SPAN, *(high / low for low, high in spans))
    for axes, (low, high) in zip(panels, spans, strict=True):
        middle = (low * high) ** 0.5
        axes.set(xscale="log", yscale="log", ylim=(middle / factor**0.5, middle * factor**0.5))
        axes.set_xticks(LAYERS)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if factor < _MANY else (1,)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(visible=True, alpha=0.25)
        axes.tick_params(labelsize=8, left=False, bottom=False)
        if low == high:
            axes.set_yticks([])
            axes.text(0.5, 0.5, "0", transform=axes.transAxes, ha="center", va="center")


def _label(panels: Sequence[Axes], columns: int, vertical: str) -> None:
    for axes in panels[(len(panels) - 1) // columns * columns :]:
        axes.set_xlabel("layers N", fontsize=9)
    for axes in panels[-columns:]:
        axes.tick_params(labelbottom=True)
    for axes in panels[::columns]:
        axes.set_ylabel(vertical, fontsize=9)


def write(figure: Figure, curves: Curves, path: Path) -> None:
    import matplotlib as mpl

    content = io.BytesIO()
    metadata = {"Date": None, "Description": f"numbers {digest(curves)}"}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(content, format="svg", metadata=metadata)
    write_atomically(path, content.getvalue().decode())


def is_current(curves: Curves, path: Path) -> bool:
    """Whether the file draws these numbers."""
    return path.exists() and f"numbers {digest(curves)}" in path.read_text(encoding="utf-8")
