"""Figures of predictions and measurements, for people who would rather look than read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


Point = Mapping[str, Any]
"""num_sublayers, update (predicted) and, where there are measurements, measured, low and high; each may be None."""
_COLUMNS = 4
_FIRST = "update"
_LEAST_SPAN = 10.0
"""Of a vertical axis, top over bottom: what is flat looks flat."""


def panels(rows: Sequence[Mapping[str, Any]], role_units: Mapping[str, float]) -> dict[str, list[Point]]:
    """By what is drawn, its points: the update, and each role of ``role_units``, the powers of d_model that theirs are
    multiplied by. rows: as `depthlaw predict` and `depthlaw measure` have them."""
    found: dict[str, list[Point]] = {_FIRST: list(rows)}
    for role, power in role_units.items():
        unit = "" if not power else ", times d_model" + ("" if power == 1 else f"^{power:g}")
        found[role + unit] = [_of_role(row, role) for row in rows]
    return found


def _of_role(row: Mapping[str, Any], role: str) -> Point:
    point = {"num_sublayers": row["num_sublayers"], "update": row["roles"].get(role)}
    if "by_role" not in row:
        return point
    nothing = dict.fromkeys(("measured", "low", "high"))
    return {**nothing, **row["by_role"].get(role, {}), **point}


def update_against_depth(
    found: Mapping[str, Sequence[Point]], title: str, note: str, path: Path, *, is_in_layers: bool = False
) -> None:
    """Draw it and write it; path ends in one of ``SUFFIXES``."""
    save(figure_of(found, title, note, 2 if is_in_layers else 1), path)


def figure_of(found: Mapping[str, Sequence[Point]], title: str, note: str, num_each: int = 1) -> Figure:
    """Log-log: predicted line, measured points with their 95 % intervals, and thin lines that are flat and that grow
    with the depth, through the first of them. found: as ``panels`` has it, one panel each. num_each: sublayers of a
    unit of the horizontal axis, 2 where it counts layers.

    All panels span as many decades, so that equal slopes look equal. A point whose networks diverged, or that is 0, has
    no place on a logarithmic axis, and is named above its panel. An interval that comes near 0 runs off the lower edge.
    """
    from matplotlib.figure import Figure

    is_single = len(found) == 1
    columns = 1 if is_single else min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    size = (6.4, 4.4) if is_single else (1 + 2.5 * columns, 1 + 2.1 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, points) in zip(grid, found.items(), strict=False):
        missing = _draw(axes, points, num_each, most_ticks=12 if is_single else 4)
        lines = [note, missing] if is_single else [name, missing]
        axes.set_title("\n".join(line for line in lines if line), fontsize=8, wrap=True)
    for axes in grid[len(found) :]:
        axes.remove()
    shown = list(grid[: len(found)])
    _limit(shown, list(found.values()))
    for axes in shown[-columns:]:
        axes.set_xlabel("residual sublayers L" if num_each == 1 else "layers N")
    for axes in shown[::columns]:
        axes.set_ylabel("update U per unit learning rate", fontsize=None if is_single else 8)
    figure.suptitle(title if is_single else "\n".join(line for line in (title, note) if line), fontsize=10, wrap=True)
    labelled = [axes for axes in shown if axes.get_legend_handles_labels()[1]]
    if labelled:
        labelled[0].legend(loc="best", fontsize=8 if is_single else 6)
    return figure


def _draw(axes: Axes, points: Sequence[Point], num_each: int, most_ticks: int) -> str:
    """One panel. Returns what it lacks, as a line; empty where it has everything."""
    from matplotlib.ticker import NullLocator

    points = [{**point, "depth": point["num_sublayers"] // num_each} for point in points]
    letter = "L" if num_each == 1 else "N"
    predicted = [(point["depth"], point["update"]) for point in points if point["update"]]
    if predicted:
        axes.plot(*zip(*sorted(predicted), strict=True), ".-", color="C0", label="predicted, infinite width")
    is_measured = any("measured" in point for point in points)
    shown = [point for point in points if point["measured"] and point["measured"] > 0] if is_measured else []
    if shown:
        lengths, means = ([point[name] for point in shown] for name in ("depth", "measured"))
        ends = [_ends(point) for point in shown]
        label = "measured, 95 % interval" if any(end != (0, 0) for end in ends) else "measured"
        axes.errorbar(lengths, means, list(zip(*ends, strict=True)), fmt="o", color="C1", capsize=3, label=label)
    _guide(axes, predicted or [(point["depth"], point["measured"]) for point in shown], letter)
    there = shown if is_measured else [point for point in points if point["update"]]
    missing = [str(point["depth"]) for point in points if point not in there]
    axes.set(xscale="log", yscale="log")
    lengths = sorted({point["depth"] for point in points})
    axes.set_xticks(lengths[:: -(-len(lengths) // most_ticks)], minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, which="both", alpha=0.25)
    return f"no point, 0 or diverged, at {letter} = {', '.join(missing)}" if missing else ""


def _guide(axes: Axes, drawn: Sequence[tuple[int, float]], letter: str) -> None:
    """What flat looks like, and what grows as the depth does: through the first point, thin and behind all else."""
    if len({depth for depth, _ in drawn}) < 2:
        return
    first, start = min(drawn)
    last = max(depth for depth, _ in drawn)
    for label, end, style in (("flat", start, "--"), (f"grows as {letter}", start * last / first, ":")):
        axes.plot([first, last], [start, end], style, color="0.55", linewidth=0.9, zorder=1, label=label)


def _limit(shown: Sequence[Axes], found: Sequence[Sequence[Point]]) -> None:
    """The range of each vertical axis: its own middle, and as many decades as the panel that needs most."""
    from matplotlib.ticker import LogLocator

    spans = [_span(points) for points in found]
    factor = max(_LEAST_SPAN, *(high / low for low, high in spans))
    for axes, (low, high) in zip(shown, spans, strict=True):
        middle = low**0.5 * high**0.5
        axes.set_ylim(middle / factor**0.5, middle * factor**0.5)
        if _is_narrow(axes.get_ylim()):
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")


def _span(points: Sequence[Point]) -> tuple[float, float]:
    """Lowest and highest of what is drawn, with some room; not the foot of an interval far below its mean."""
    drawn = [y for point in points for y in map(point.get, ("update", "measured", "high"))]
    drawn += [point["low"] for point in points if point.get("low") and point["low"] > point["measured"] / 10]
    positive = [y for y in drawn if y and y > 0] or [1.0]
    return min(positive) / 1.3, max(positive) * 1.3


def _is_narrow(limits: tuple[float, float]) -> bool:
    """Whether an axis spans too little for labels at powers of ten alone."""
    return limits[1] < 300 * limits[0]


def _ends(row: Mapping[str, Any]) -> tuple[float, float]:
    """Lengths of the bars; one that reaches 0, which a logarithmic axis lacks, goes to a thousandth of the mean."""
    if row["low"] is None:
        return 0.0, 0.0
    return row["measured"] - max(row["low"], row["measured"] / 1000), row["high"] - row["measured"]


def save(figure: Figure, path: Path) -> None:
    """Beside the target, then renamed: a reader sees the whole picture or the old one."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content.getvalue())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
