"""How the figures of TRAINING.md are drawn: panels of curves, each scheme in one colour and mark everywhere.

The same numbers give the same bytes. Each file says in its metadata which numbers it draws (``digest``), so that a test
need not draw it again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paper_checks.system.files import write_atomically
from sims.records.record import rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
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
Line = Literal["-", "--", "-.", ":"]
_WIDTH = 9.0
DIGITS = 4
_LEGEND_COLUMNS = 6
_MANY = 50.0
"""A span, largest over least, from which on ticks at powers of ten are enough."""
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
    line: Line = "-"
    is_band: bool = False


@dataclass(frozen=True)
class Panel:
    """scale: of x, "linear", "log", "depths" (log, ticks at the xs) or "places" (the xs one after another).
    top: of the y axis; what is above is shown at it, as an arrow. dashed: a line across, by its name. shaded:
    between two values. legend: where in the panel it has one of its own; else it shares one below."""

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
    legend: str = ""

    @property
    def all_ys(self) -> list[float]:
        """That are positive, as a logarithmic axis has them."""
        rows = [row for curve in self.curves for row in (curve.ys, *curve.seeds)]
        return [y for row in rows for y in row if y is not None and y > 0]


@dataclass(frozen=True)
class Drawing:
    """title: for who cannot see it."""

    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int
    height: float
    shares_y: bool = False


def digest(found: Drawing) -> str:
    """Of what is drawn, without the words below it."""
    numbers = {**asdict(found), "title": "", "caption": ""}
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:16]


def is_empty(found: Drawing) -> bool:
    return not any(curve.xs for panel in found.panels for curve in panel.curves)


def short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else rounded(value, DIGITS) for value in values]


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
        if panel.legend and here:
            columns = 1 if len(here) < _LEGEND_COLUMNS else 2
            options = {"fontsize": 8, "framealpha": 0.8, "handlelength": 3.5, "ncols": columns, "loc": panel.legend}
            axes.legend(here.values(), here, **options)
        else:
            handles |= here
    for axes in grid[: len(found.panels)] if found.shares_y else ():
        if not axes.get_subplotspec().is_first_col():
            axes.set_ylabel("")
    if handles:
        columns = min(len(handles), _LEGEND_COLUMNS)
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, fontsize=9)
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Line2D]:
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, alpha=0.25)
    places = sorted({x for curve in panel.curves for x in curve.xs})
    has_notes = any(curve.notes for curve in panel.curves)
    axes.margins(x=0.12 if has_notes else 0.05, y=0.08)
    if has_notes and panel.scale == "linear":
        axes.set_xlim(places[0] - 0.05 * (room := places[-1] - places[0]), places[-1] + 0.22 * room)
    if panel.has_log_y:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis, panel.all_ys)
    if panel.scale in ("log", "depths"):
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, places)
    if panel.shaded is not None:
        axes.axhspan(*panel.shaded, color="#dddddd", alpha=0.5, zorder=0)
    handles = {}
    for index, curve in enumerate(panel.curves):
        off = (index - (len(panel.curves) - 1) / 2) * _SPREAD
        _draw_curve(axes, curve, panel, [_moved(x, panel, places, off) for x in curve.xs])
        _note(axes, curve, list(handles).index(curve.label) if curve.label in handles else len(handles))
        handles[curve.label] = _handle(curve, curve.line if panel.legend else "-")
    if panel.dashed is not None:
        name, value = panel.dashed
        handles[name] = axes.axhline(value, color="#555555", linestyle=(0, (4, 3)), linewidth=1)
    if panel.scale == "places":
        axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    elif panel.scale == "depths":
        axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_ylim(panel.bottom, panel.top)
    return handles


def _plain_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Of a logarithmic axis: 0.1, 1 and 10, and 2 and 5 of each where there are few."""
    from matplotlib.ticker import LogLocator, NullLocator

    is_narrow = bool(values) and max(values) < _MANY * min(values)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_narrow else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def _draw_curve(axes: Axes, curve: Curve, panel: Panel, xs: Sequence[float]) -> None:
    from matplotlib.markers import CARETDOWNBASE, CARETUP, CARETUPBASE

    color, mark = STYLES[curve.scheme]
    if curve.is_band:
        columns = [[y for y in column if y is not None] for column in zip(*curve.seeds, strict=True)]
        there = [(x, min(column), max(column)) for x, column in zip(xs, columns, strict=True) if column]
        if there:
            places, lows, highs = zip(*there, strict=True)
            axes.fill_between(places, lows, highs, color=color, alpha=0.12, linewidth=0)
    else:
        for row in curve.seeds:
            there = [(x, _cut(y, panel)) for x, y in zip(xs, row, strict=True) if y is not None]
            if there:
                axes.plot(*zip(*there, strict=True), mark, color=color, alpha=0.25, markersize=4, markeredgewidth=0)
    shown = [(x, y if curve.is_band else _cut(y, panel)) for x, y in zip(xs, curve.ys, strict=True) if y is not None]
    axes.plot(
        *(zip(*shown, strict=True) if shown else ((), ())),
        color=color,
        marker=mark,
        linestyle=curve.line,
        linewidth=1.4,
        markersize=5.5,
        markevery=max(1, len(shown) // 8),
    )
    for i, (x, y) in enumerate(zip(xs, curve.ys, strict=True)):
        if y is None:
            continue
        is_over = panel.top is not None and y > panel.top and not curve.is_band
        if sign := 1 if is_over else curve.ends[i] if curve.ends else 0:
            caret = (CARETUP if is_over else CARETUPBASE) if sign > 0 else CARETDOWNBASE
            axes.plot([x], [_cut(y, panel)], marker=caret, markersize=11, color=color, clip_on=False)


def _note(axes: Axes, curve: Curve, column: int) -> None:
    """Words at points; at the ends of bands, which may end together, in a column for each kind of curve."""
    off = (5 + 15 * column, -3) if curve.is_band else (5, 3)
    for x, y, note in zip(curve.xs, curve.ys, curve.notes, strict=False):
        if note and y is not None:
            color, _ = STYLES[curve.scheme]
            axes.annotate(note, (x, y), off, textcoords="offset points", fontsize=8, color=color)


def _handle(curve: Curve, line: Line) -> Line2D:
    """Of a legend below all panels, which one curve may have another line in each of, solid."""
    from matplotlib.lines import Line2D

    color, mark = STYLES[curve.scheme]
    return Line2D([], [], color=color, marker=mark, linestyle=line, linewidth=1.4, markersize=5.5)


def _moved(x: float, panel: Panel, places: Sequence[float], off: float) -> float:
    """Where a scheme's point is drawn: where many are at one place, beside it."""
    if panel.scale == "places":
        return places.index(x) + off * max(1, len(places) - 1)
    return x * (places[-1] / places[0]) ** off if panel.scale == "depths" else x


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
