"""How the figures of TRAINING.md are drawn: panels of curves, each scheme in one colour and mark everywhere.

The same bytes from the same numbers, with the same matplotlib. Each file says in its metadata which numbers it draws (``digest``), so that a test need not draw it again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paper_checks.commands.output import write_atomically
from sims.record import rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

STYLES = {
    "post-ln": ("#D55E00", "o"),
    "pre-ln": ("#0072B2", "s"),
    "sub-ln-gamma": ("#009E73", "^"),
    "deepnorm": ("#000000", "v"),
    "su-adam": ("#CC79A7", "P"),
    "normformer": ("#56B4E9", "D"),
    "admin": ("#E69F00", "X"),
    "post-ln-init": ("#882255", "*"),
    "gpt2": ("#999933", "<"),
    "completep": ("#332288", ">"),
    "rezero": ("#888888", "h"),
    "su-sgd": ("#44AA99", "p"),
    "su-lamb": ("#6E4B1F", "d"),
}
"""Colour and mark. Most colours are Okabe and Ito's or Tol's, which the colour-blind tell apart."""
_WIDTH = 9.0
_DIGITS = 4
_SPREAD = 0.012
"""Between the marks of two schemes at one place, as a part of the axis, so that both are seen."""


@dataclass(frozen=True)
class Curve:
    """ys: at each x, None where there is nothing. seeds: each seed's ys. ends: at each x, 1 or -1 where the true one
    may lie above or below what is shown. notes: words at the points. is_band: seeds as a band, else as faint points."""

    label: str
    scheme: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    seeds: Sequence[Sequence[float | None]] = ()
    ends: Sequence[int] = ()
    notes: Sequence[str] = ()
    line: str = "-"
    is_pale: bool = False
    is_band: bool = False


@dataclass(frozen=True)
class Panel:
    """scale: of x, "linear", "log" (ticks at the xs) or "places" (the xs one after another). top: of the y axis;
    what is above is shown at it, as an arrow. dashed: a line across, by its name. shaded: between two values."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    scale: str = "linear"
    has_log_y: bool = False
    bottom: float | None = None
    top: float | None = None
    dashed: tuple[str, float] | None = None
    shaded: tuple[float, float] | None = None


@dataclass(frozen=True)
class Drawing:
    """legend: "below" for all panels, or "inside" each."""

    caption: str
    panels: Sequence[Panel]
    columns: int
    height: float
    legend: str = "below"
    shares_y: bool = False


def digest(found: Drawing) -> str:
    """Of what is drawn, without the words below it."""
    numbers = {**asdict(found), "caption": ""}
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:16]


def short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else rounded(value, _DIGITS) for value in values]


def mean(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Over seeds, at each x, of those that have a number there."""
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return [sum(column) / len(column) if column else None for column in columns]


# ---------------------------------------------------------------- drawing


def draw(found: Drawing) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, found.height), layout="constrained")
    rows = -(-len(found.panels) // found.columns)
    grid = figure.subplots(rows, found.columns, squeeze=False, sharey=found.shares_y).flatten()
    for axes in grid[len(found.panels) :]:
        axes.remove()
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid, found.panels, strict=False):
        here = _draw_panel(axes, panel)
        if found.legend == "inside" and here:
            axes.legend(here.values(), here, fontsize=8, framealpha=0.8, loc="best")
        handles |= here
    for axes in grid[: len(found.panels)] if found.shares_y else ():
        if not axes.get_subplotspec().is_first_col():
            axes.set_ylabel("")
    if found.legend == "below" and handles:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=min(len(handles), 6), fontsize=9)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Line2D]:
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, alpha=0.25)
    places = sorted({x for curve in panel.curves for x in curve.xs})
    if panel.has_log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    if panel.scale == "log":
        axes.set_xscale("log")
    if panel.shaded is not None:
        axes.axhspan(*panel.shaded, color="#dddddd", alpha=0.5, zorder=0)
    handles = {}
    for index, curve in enumerate(panel.curves):
        off = index - (len(panel.curves) - 1) / 2
        handles[curve.label] = _draw_curve(axes, curve, panel, places, off * _SPREAD * bool(curve.ends or curve.seeds))
    if panel.dashed is not None:
        name, value = panel.dashed
        handles[name] = axes.axhline(value, color="#555555", linestyle=(0, (4, 3)), linewidth=1)
    if panel.scale == "places":
        axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    elif panel.scale == "log" and not any(curve.notes for curve in panel.curves):
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
    axes.set_ylim(panel.bottom, panel.top)
    return handles


def _draw_curve(axes: Axes, curve: Curve, panel: Panel, places: Sequence[float], off: float) -> Line2D:
    from matplotlib.markers import CARETDOWNBASE, CARETUP, CARETUPBASE

    color, mark = STYLES[curve.scheme]
    alpha = 0.45 if curve.is_pale else 1.0
    xs = [_moved(x, panel, places, off) for x in curve.xs]
    if curve.is_band:
        columns = [[y for y in column if y is not None] for column in zip(*curve.seeds, strict=True)]
        there = [(x, min(column), max(column)) for x, column in zip(xs, columns, strict=True) if column]
        if there:
            axes.fill_between(*zip(*there, strict=True), color=color, alpha=0.12, linewidth=0)
    else:
        for row in curve.seeds:
            there = [(x, _cut(y, panel)) for x, y in zip(xs, row, strict=True) if y is not None]
            if there:
                axes.plot(*zip(*there, strict=True), mark, color=color, alpha=0.25, markersize=4, markeredgewidth=0)
    shown = [(x, _cut(y, panel)) for x, y in zip(xs, curve.ys, strict=True) if y is not None]
    [line] = axes.plot(
        *(zip(*shown, strict=True) if shown else ((), ())),
        color=color,
        marker=mark,
        linestyle=curve.line,
        alpha=alpha,
        linewidth=1.4,
        markersize=5.5,
        markevery=max(1, len(shown) // 8),
        label=curve.label,
    )
    for i, (x, y) in enumerate(zip(xs, curve.ys, strict=True)):
        if y is None:
            continue
        is_over = panel.top is not None and y > panel.top
        if sign := 1 if is_over else curve.ends[i] if curve.ends else 0:
            caret = (CARETUP if is_over else CARETUPBASE) if sign > 0 else CARETDOWNBASE
            axes.plot([x], [_cut(y, panel)], marker=caret, markersize=11, color=color, clip_on=False)
        if curve.notes:
            axes.annotate(curve.notes[i], (x, y), (5, 3), textcoords="offset points", fontsize=8, color=color)
    return line


def _moved(x: float, panel: Panel, places: Sequence[float], off: float) -> float:
    """Where a scheme's point is drawn."""
    if panel.scale == "places":
        return places.index(x) + off * max(1, len(places) - 1)
    if panel.scale == "log":
        return x * (places[-1] / places[0]) ** off
    return x + off * (places[-1] - places[0])


def _cut(y: float, panel: Panel) -> float:
    return y if panel.top is None else min(y, panel.top)


# ---------------------------------------------------------------- files


def write(found: Drawing, path: Path) -> None:
    write_atomically(path, svg(found, path.stem))


def svg(found: Drawing, name: str) -> str:
    import matplotlib as mpl

    content = io.BytesIO()
    metadata = {"Date": None, "Description": f"numbers {digest(found)}"}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.sans-serif": ["DejaVu Sans"]}):
        draw(found).savefig(content, format="svg", metadata=metadata)
    return content.getvalue().decode()


def is_current(found: Drawing, path: Path) -> bool:
    """Whether the file draws these numbers."""
    return path.exists() and f"numbers {digest(found)}" in path.read_text(encoding="utf-8")
