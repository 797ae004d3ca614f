"""All that is drawn, but the graph of claims: a page says which curves, points and words, this module where.

A ``Drawing`` is panels of curves. It becomes shapes at places in pixels, and these become

- SVG inside a page (``Drawing.inline``), in the page's own colours, so that it follows the light and the dark theme;
- an SVG file (``svg``), in the light colours;
- a figure of matplotlib (``canvas``), which writes PNG and PDF and is shown by notebooks.

SVG is written here, as a site has hundreds of panels: they take half a millisecond each, and 0.1 s by matplotlib. There
is no second layout: matplotlib paints the shapes where they stand, which is why all of it is one module. One style:
each curve is named at its end, ticks are few, no boxes, no legends.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from depthlaw.system.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]
Point = tuple[float, float, float | None, float | None]
"""x, mean, low and high; neither end where nothing is known of the error."""
AxisKind = Literal["log", "rates", "depths", "linear", "places"]
"""Of an axis: logarithmic, with ticks as numbers, as learning rates (1e-3, 3e-3) or at the values themselves; linear;
or the values one after another."""
VerticalScale = Literal["own", "slopes", "shared"]
SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = {
    "--ink": "#1d2327",
    "--muted": "#586069",
    "--line": "#d9dde1",
    "--paper": "#ffffff",
    "--c1": "#1f5fa8",
    "--c2": "#c2410c",
    "--c3": "#15803d",
    "--c4": "#a21caf",
    "--c5": "#a16207",
    "--c6": "#0e7490",
    "--c7": "#be123c",
    "--c8": "#57534e",
}
"""The light theme of the site's style sheet: words in these colours can be read on white."""
LOOKS = {
    "post-ln": ("--c2", "o"),
    "pre-ln": ("--c1", "s"),
    "sub-ln-gamma": ("--c3", "^"),
    "deepnorm": ("--ink", "v"),
    "su-adam": ("--c4", "P"),
    "normformer": ("--c6", "D"),
    "admin": ("--c5", "s"),
    "post-ln-init": ("--c7", "^"),
    "gpt2": ("--c8", "v"),
    "completep": ("--c7", "D"),
    "depth-mup": ("--c3", "P"),
    "rezero": ("--muted", "o"),
    "su-sgd": ("--c1", "P"),
    "su-lamb": ("--c5", "P"),
}
"""By scheme, its colour and mark wherever several schemes are drawn."""
STYLES = {scheme: (COLOURS[colour], mark) for scheme, (colour, mark) in LOOKS.items()}
"""The same for who draws with matplotlib alone, as notebooks do."""
MARKS: dict[str, Sequence[Place]] = {
    "o": (),
    "s": ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "^": ((0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    "v": ((0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
    "D": ((0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)),
    "P": tuple(
        (x * s, y * s)
        for s in (1, -1)
        for x, y in ((-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4))
    ),
}
"""By matplotlib's letter, the corners of a mark; a circle has none."""
DASHES = {"solid": (), "dashed": (6, 4), "dotted": (1.5, 3)}
_LEAST_SPAN = 10.0
"""Of a logarithmic vertical axis, top over bottom: what is flat looks flat."""
_ROOM = 1.3
_MOST_TICKS = 6
_LINE, _LETTER = 13.0, 7.2
"""Height and width of a letter, in pixels."""
_APART = 34.0
"""Pixels between the ticks of a horizontal axis."""
_GUTTER = 8.0
"""Between a panel and the names at its right."""
_ARROW = 11
_LEAST_COLUMN = 328
"""Of a page, in pixels: wider panels shrink to it before they go one below the other."""
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# ---------------------------------------------------------------- what is drawn


@dataclass(frozen=True, kw_only=True)
class Curve:
    """label: at its right end, in lines; with is_beside, at its last point, where there is room.

    line: x and y. points: with their intervals; has_dots: one at each place of the
    line. ends: of each point, 1 or -1 where the true one may lie above or below. faint: single seeds; band: x, lowest
    and highest. What lies outside the panel is cut off, and a point there is an arrow at its edge.
    """

    label: str = ""
    line: Sequence[Place] = ()
    points: Sequence[Point] = ()
    ends: Sequence[int] = ()
    faint: Sequence[Place] = ()
    band: Sequence[tuple[float, float, float]] = ()
    colour: str = "--c1"
    line_style: str = "solid"
    mark: str = "o"
    width: float = 1.6
    is_beside: bool = False
    has_dots: bool = False

    @classmethod
    def of_scheme(cls, scheme: str, label: str | None = None, **options: Any) -> Curve:
        """In the colour and with the mark of a scheme; named by it where nothing else is said."""
        colour, mark = LOOKS[scheme]
        return cls(label=scheme if label is None else label, colour=colour, mark=mark, **options)

    @property
    def marked(self) -> Sequence[Point]:
        """The points that have a mark."""
        return [(x, y, None, None) for x, y in self.line] if self.has_dots else self.points

    @property
    def xs(self) -> list[float]:
        return [x for x, *_ in (*self.line, *self.points, *self.faint, *self.band)]

    @property
    def ys(self) -> list[float]:
        """What an axis has to show: not the foot of an interval far below its mean."""
        ends = [end for _, mean, low, high in self.points for end in (low, high) if end and end > mean / 10]
        seeds = [y for _, *ys in (*self.faint, *self.band) for y in ys]
        return [y for _, y in self.line] + [mean for _, mean, *_ in self.points] + ends + seeds

    @property
    def ends_at(self) -> tuple[Place, Place]:
        """Its first place and its last one."""
        places = sorted((x, y) for x, y, *_ in self.line or self.points)
        return places[0], places[-1]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """title: above it, and below that what its vertical axis shows (y). curves: those that have nothing are left out;
    note: in the middle where none is left. x_names: what is written below the horizontal axis in place of numbers, and
    where. y_range: where it is not that of the curves. levels: thin lines across it, by height, and how each is drawn.
    shaded: between two heights."""

    title: str = ""
    curves: Sequence[Curve] = ()
    x: str = ""
    y: str = ""
    note: str = ""
    x_kind: AxisKind = "log"
    y_kind: AxisKind = "log"
    x_names: Mapping[float, str] = field(default_factory=dict)
    y_range: Place | None = None
    levels: Mapping[float, str] = field(default_factory=dict)
    shaded: Place | None = None

    @property
    def shown(self) -> list[Curve]:
        return [curve for curve in self.curves if curve.xs]

    @property
    def in_words(self) -> list[tuple[str, str, str]]:
        """Of each curve that has a name or points: the name, and both ends."""
        named = [curve for curve in self.shown if curve.label or curve.marked]
        ends = [[f"{y:.4g} at {f'{x:,g}' if x < 1e6 else tick_label(x)}" for x, y in curve.ends_at] for curve in named]
        return [
            (curve.label.replace("\n", " ") or self.title, first, last)
            for curve, (first, last) in zip(named, ends, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Panels of one size. columns: of a file; a page has as many as fit. width, height: of a panel, in pixels.
    is_aligned: whether panels whose curves have no names end where those end that have some.

    scale: of the vertical axes; each its own, "slopes" (each its own middle and as many decades, so that equal slopes
    look equal) or "shared". title: for who cannot see it. caption: what a page has below it. heading, note: above and
    below the panels of a file.
    """

    panels: Sequence[Panel]
    title: str = ""
    caption: str = ""
    heading: str = ""
    note: str = ""
    columns: int = 1
    is_aligned: bool = True
    width: float = 350
    height: float = 225
    scale: VerticalScale = "own"

    @property
    def is_empty(self) -> bool:
        return not any(panel.shown for panel in self.panels)

    @property
    def table(self) -> Sequence[Mapping[str, str]]:
        """Both ends of each curve, for who would rather read numbers."""
        heads = ("panel", "curve", "x", "y", "first", "last")
        ends = [(p.title, name, p.x, p.y, *both) for p in self.panels for name, *both in p.in_words]
        return [dict(zip(heads, row, strict=True)) for row in ends]

    @cached_property
    def inline(self) -> Markup:
        """The panels for a page, each an SVG; they share a row as far as they fit."""
        svg = Markup(
            '<svg class="plot" role="img" viewBox="0 0 {0:g} {1:g}" style="max-width:{0:g}px"><title>{2}</title>{3}{4}'
            "</svg>"
        )
        parts = []
        for panel, of_panel in zip(self.panels, shapes(self), strict=True):
            words = " ".join(f"{name}: {first}, {last}." for name, first, last in panel.in_words)
            about = Markup("<desc>{}</desc>").format(words) if words else ""
            parts.append(svg.format(self.width, self.height, panel.title or self.title, about, _elements(of_panel)))
        columns = f"repeat(auto-fill,minmax(min(100%,{min(self.width, _LEAST_COLUMN):g}px),1fr))"
        whole = Markup('<div class="panels" style="grid-template-columns:{}">{}</div>')
        return whole.format(columns, Markup().join(parts))


# ---------------------------------------------------------------- scales


@dataclass(frozen=True)
class _Scale:
    """values: all that it has to show, rising. names: in place of numbers, where it has some."""

    kind: AxisKind
    low: float
    high: float
    values: Sequence[float]
    names: Mapping[float, str] = field(default_factory=dict)

    @classmethod
    def across(cls, kind: AxisKind, values: Iterable[float], names: Mapping[float, str]) -> _Scale:
        """Of a horizontal axis."""
        rising = sorted(set(values)) or [1.0]
        first, last = rising[0], rising[-1]
        if names:  # half a step beside the first and the last
            return cls(kind, min(names) - 0.5, max(names) + 0.5, rising, names)
        if kind in ("linear", "places"):
            return cls(kind, first, last if last > first else first + 1, rising)
        room = 1.05 * (last / first) ** 0.02
        return cls(kind, first / room, last * room, rising)

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.kind == "places":
            return (self.values.index(value) + 0.5) / len(self.values)
        if self.kind == "linear":
            return (value - self.low) / (self.high - self.low)
        return math.log(max(value, self.low / 1e9) / self.low) / math.log(self.high / self.low)

    @cached_property
    def ticks(self) -> Sequence[float]:
        """A few; of depths and places all, of which there may be no room for some."""
        if self.names:
            return [*self.names]
        if self.kind in ("places", "depths"):
            return self.values
        if self.kind == "linear":
            step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            most = (self.high - self.low) / (_MOST_TICKS - 1)
            step *= next(factor for factor in (0.5, 1, 2, 5) if step * factor >= most)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [round(k * step, 12) for k in range(first, last + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = [(step, step * 10.0**k) for k in decades for step in ((1, 3) if self.kind == "rates" else (1, 2, 5))]
        inside = [(step, value) for step, value in every if self.low <= value <= self.high]
        if len(inside) > _MOST_TICKS:
            inside = [(step, value) for step, value in inside if step == 1]
        return [value for _, value in inside[:: -(-len(inside) // _MOST_TICKS) or 1]]

    def label(self, value: float) -> str:
        if value in self.names:
            return self.names[value]
        if self.kind == "rates" and value < 0.1:
            return f"{value:.0e}".replace("e-0", "e-")
        return f"{value:,.10g}" if self.kind in ("linear", "places", "depths") else tick_label(value)


def tick_label(value: float) -> str:
    """0.01, 5, 1,000; 10⁶ and other far powers of ten."""
    power = math.log10(value)
    if -3 <= power < 4:
        return f"{value:,g}" if value >= 1 else f"{value:.3g}"
    digits = round(value / 10 ** math.floor(power + 1e-9))
    return (f"{digits}·" if digits > 1 else "") + f"10{str(math.floor(power + 1e-9)).translate(_RAISED)}"


def raised(text: str) -> str:
    """N^2 with its exponent above the line, as no picture has MathML. N^0.49 stays: a raised point is not seen."""
    return re.sub(r"\^(-?\d+)(?![\d.])", lambda match: match[1].translate(_RAISED), text)


def _upright(drawing: Drawing) -> list[_Scale]:
    """The vertical scale of each panel."""
    spans = [_span(panel) for panel in drawing.panels]
    if drawing.scale == "shared":
        spans = [(min(low for low, _ in spans), max(high for _, high in spans))] * len(spans)
    most = max((high / low for low, high in spans if low > 0), default=1.0) if drawing.scale == "slopes" else 1.0
    scales = []
    for panel, (low, high) in zip(drawing.panels, spans, strict=True):
        room = 1.0
        if panel.y_range is None and panel.y_kind != "linear":
            room = math.sqrt(max(_LEAST_SPAN, most, high / low) / (high / low))
        scales.append(_Scale(panel.y_kind, low / room, high * room, ()))
    return scales


def _span(panel: Panel) -> Place:
    if panel.y_range is not None:
        return panel.y_range
    values = [y for curve in panel.curves for y in curve.ys]
    if panel.y_kind == "linear":
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.05 * (high - low) or 0.5
        return low - room, high + room
    known = [y for y in values if y > 0] or [1.0]
    return min(known) / _ROOM, max(known) * _ROOM


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True)
class Strokes:
    lines: Sequence[Sequence[Place]]
    colour: str
    width: float = 1.0
    dashes: Sequence[float] = ()
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    corners: Sequence[Place]
    colour: str
    opacity: float


@dataclass(frozen=True)
class Marks:
    """size: half of a mark's width."""

    places: Sequence[Place]
    mark: str
    colour: str
    size: float = 3.3
    opacity: float = 1.0


@dataclass(frozen=True)
class Words:
    """x, y: of the base line. anchor: start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = "--muted"
    is_bold: bool = False


Shape = Strokes | Area | Marks | Words


@dataclass(frozen=True)
class _Frame:
    """Where a panel's axes are, and what is where on them."""

    left: float
    top: float
    right: float
    bottom: float
    xs: _Scale
    ys: _Scale

    def at(self, x: float, y: float) -> Place:
        return self.x(x), self.y(y)

    def x(self, x: float) -> float:
        return self.left + self.xs.share(x) * (self.right - self.left)

    def y(self, y: float) -> float:
        return self.bottom - self.ys.share(y) * (self.bottom - self.top)

    def kept(self, x: float, y: float) -> Place:
        """At the edge where it lies outside."""
        return self.x(x), min(max(self.y(y), self.top), self.bottom)

    def outside(self, y: float) -> int:
        """1 above, -1 below, 0 within."""
        share = self.ys.share(y)
        return (share > 1 + 1e-9) - (share < -1e-9)


def shapes(drawing: Drawing) -> list[list[Shape]]:
    """Of each panel, from its upper left corner."""
    panels, upright = drawing.panels, _upright(drawing)
    ends = [[curve.label for curve in panel.shown if curve.label and not curve.is_beside] for panel in panels]
    longest = max((len(line) for labels in ends for label in labels for line in label.split("\n")), default=0)
    beside = drawing.width - 10 - _LETTER * longest - _GUTTER * bool(longest)
    left = 10 + _LETTER * max((len(scale.label(tick)) for scale in upright for tick in scale.ticks), default=0)
    top = 12 + 18 * any(panel.title for panel in panels) + 15 * any(panel.y for panel in panels)
    every = []
    for panel, ys, labels in zip(panels, upright, ends, strict=True):
        right = beside if labels or drawing.is_aligned else drawing.width - 10
        xs = _Scale.across(panel.x_kind, (x for curve in panel.curves for x in curve.xs), panel.x_names)
        every.append([*_panel(panel, _Frame(left, top, right, drawing.height - 40, xs, ys), drawing)])
    return every


def _panel(panel: Panel, frame: _Frame, drawing: Drawing) -> Iterator[Shape]:
    if panel.title:
        yield Words(4, 14, panel.title, colour="--ink", is_bold=True)
    if not panel.shown:
        yield Words(drawing.width / 2, drawing.height / 2, panel.note, "middle")
        return
    if panel.y:
        yield Words(4, frame.top - 11, panel.y)
    if panel.x:
        yield Words((frame.left + frame.right) / 2, drawing.height - 6, panel.x, "middle")
    left, right = frame.left, frame.right
    if panel.shaded is not None:
        low, high = (min(max(frame.y(y), frame.top), frame.bottom) for y in panel.shaded)
        yield Area(((left, low), (right, low), (right, high), (left, high)), "--line", 0.5)
    yield from _grid(frame)
    for level, style in panel.levels.items():
        yield Strokes([((left, frame.y(level)), (right, frame.y(level)))], "--muted", 1, DASHES[style])
    for curve in panel.shown:
        yield from _curve(curve, frame)
    yield from _labels([curve for curve in panel.shown if curve.label and not curve.is_beside], frame)
    yield from _beside([curve for curve in panel.shown if curve.label and curve.is_beside], panel, frame)


def _grid(frame: _Frame) -> Iterator[Shape]:
    across: list[float] = []
    for tick in reversed(frame.xs.ticks):  # the deepest is always named
        if not across or frame.x(across[-1]) - frame.x(tick) >= _APART:
            across.append(tick)
    lines = [((frame.x(tick), frame.bottom), (frame.x(tick), frame.top)) for tick in across]
    lines += [((frame.left, frame.y(tick)), (frame.right, frame.y(tick))) for tick in frame.ys.ticks]
    yield Strokes(lines, "--line")
    yield from (Words(frame.x(tick), frame.bottom + 15, frame.xs.label(tick), "middle") for tick in across)
    yield from (Words(frame.left - 5, frame.y(tick) + 4, frame.ys.label(tick), "end") for tick in frame.ys.ticks)


def _curve(curve: Curve, frame: _Frame) -> Iterator[Shape]:
    if curve.band:
        edge = [frame.kept(x, high) for x, _, high in curve.band]
        edge += [frame.kept(x, low) for x, low, _ in reversed(curve.band)]
        yield Area(edge, curve.colour, 0.13)
    if inside := _inside([frame.at(*place) for place in curve.line], frame):
        yield Strokes(inside, curve.colour, curve.width, DASHES[curve.line_style])
    if curve.faint:
        yield Marks([frame.kept(*place) for place in curve.faint], curve.mark, curve.colour, 2.2, 0.35)
    bars = [
        (frame.kept(x, low if frame.ys.kind == "linear" else max(low, mean / 1000)), frame.kept(x, high))
        for x, mean, low, high in curve.points
        if low is not None and high is not None and low < high
    ]
    if bars:
        yield Strokes(bars, curve.colour, 1.2)
    within = [(x, y) for x, y, *_ in curve.marked if not frame.outside(y)]
    if within:
        yield Marks([frame.at(*place) for place in within], curve.mark, curve.colour)
    for (x, y, *_), end in zip(curve.marked, curve.ends or [0] * len(curve.marked), strict=True):
        across, down = frame.kept(x, y)
        is_out, way = frame.outside(y) != 0, frame.outside(y) or end
        start, tip = (down + _ARROW * way, down) if is_out else (down, down - _ARROW * way)
        if way:
            yield Strokes([((across, start), (across, tip))], curve.colour, 1.2)
            yield Marks([(across, tip)], "^" if way > 0 else "v", curve.colour)


def _inside(line: Sequence[Place], frame: _Frame) -> list[list[Place]]:
    """What of it is between the upper and the lower edge."""
    parts: list[list[Place]] = []
    is_whole = False
    for (ax, ay), (bx, by) in pairwise(line):
        if ay == by:
            first, last = (0.0, 1.0) if frame.top <= ay <= frame.bottom else (1.0, 0.0)
        else:
            enters, other = sorted(((frame.top - ay) / (by - ay), (frame.bottom - ay) / (by - ay)))
            first, last = max(0.0, enters), min(1.0, other)
        if first <= last:
            start, end = ((ax + t * (bx - ax), ay + t * (by - ay)) for t in (first, last))
            parts = parts if is_whole and first == 0 else [*parts, [start]]
            parts[-1].append(end)
        is_whole = first <= last == 1
    return parts


# ---------------------------------------------------------------- names of curves


def _labels(curves: Sequence[Curve], frame: _Frame) -> Iterator[Shape]:
    """Each at the right end of its curve; those that would meet are moved apart, and a thin line leads to them."""
    named = sorted(((frame.kept(*curve.ends_at[1]), curve) for curve in curves), key=lambda pair: pair[0][1])
    sizes = [_LINE * len(curve.label.split("\n")) for _, curve in named]
    heights = spread([y for (_, y), _ in named], sizes, frame.top, frame.bottom)
    for ((x, y), curve), size, height in zip(named, sizes, heights, strict=True):
        if abs(height - y) > _LINE / 2 or frame.right - x > 3 * _LINE:
            yield Strokes([((x + 4, y), (frame.right + _GUTTER + 2, height))], curve.colour, 0.7, opacity=0.6)
        for i, line in enumerate(curve.label.split("\n")):
            yield Words(frame.right + _GUTTER + 4, height - size / 2 + _LINE * i + 10.5, line, colour=curve.colour)


def spread(places: Sequence[float], sizes: Sequence[float], first: float, last: float) -> list[float]:
    """Rising middles of things of these sizes, moved as little as keeps them apart and, where there is room, within."""
    from scipy.optimize import isotonic_regression

    if not places:
        return []
    offsets = [0.0]
    for size, other in pairwise(sizes):
        offsets.append(offsets[-1] + (size + other) / 2)
    free = isotonic_regression([place - off for place, off in zip(places, offsets, strict=True)]).x
    low, high = first + sizes[0] / 2, last - sizes[-1] / 2 - offsets[-1]
    return [max(min(float(x), high), low) + off for x, off in zip(free, offsets, strict=True)]


_AROUND = (
    (8, 4, "start"),
    (-8, 4, "end"),
    (0, -8, "middle"),
    (0, 17, "middle"),
    (7, -7, "start"),
    (7, 15, "start"),
    (-7, -7, "end"),
    (-7, 15, "end"),
)
"""Where a name may stand beside its point, the best place first."""


def _beside(named: Sequence[Curve], panel: Panel, frame: _Frame) -> Iterator[Shape]:
    """Each where it meets the fewest marks and names."""
    marks = [frame.kept(x, y) for curve in panel.shown for x, y, *_ in curve.points]
    taken = [(x - 11, y - 6, x + 11, y + 6) for x, y in marks]
    for curve in named:
        x, y = frame.kept(*curve.ends_at[1])
        taken.remove((x - 11, y - 6, x + 11, y + 6))
        boxes = []
        for dx, dy, anchor in _AROUND:
            size = _LETTER * len(curve.label)
            left = x + dx - {"start": 0, "middle": size / 2, "end": size}[anchor]
            box = (left, y + dy - 10, left + size, y + dy + 2)
            cost = sum(box[0] < r and left_ < box[2] and box[1] < b and t < box[3] for left_, t, r, b in taken)
            cost += 3 * (
                box[0] < frame.left or box[2] > frame.right + 8 or box[1] < frame.top - 12 or box[3] > frame.bottom + 2
            )
            boxes.append((cost, len(boxes), box, Words(x + dx, y + dy, curve.label, anchor, curve.colour)))
        *_, box, words = min(boxes, key=lambda place: place[:2])
        taken += [box, (x - 5, y - 6, x + 5, y + 6)]
        yield words


# ---------------------------------------------------------------- SVG


def svg(drawing: Drawing) -> str:
    """A file: the same bytes from the same numbers, on a white ground."""
    width, height, placed = _sheet(drawing)
    group = Markup('<g transform="translate({} {})">{}</g>\n')
    groups = [group.format(_short(x), _short(y), _elements(of_panel)) for x, y, of_panel in placed]
    text = Markup(
        '<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" '
        'viewBox="0 0 {0} {1}" font-family="{2}" font-size="12" role="img">\n<title>{3}</title>\n'
        '<rect width="{0}" height="{1}" style="fill:var(--paper)"/>\n{4}</svg>\n'
    ).format(_short(width), _short(height), _FONT, drawing.title or drawing.heading, Markup().join(groups))
    return re.sub(r"var\((--\w+)\)", lambda match: COLOURS[match[1]], text)


def _sheet(drawing: Drawing) -> tuple[float, float, list[tuple[float, float, list[Shape]]]]:
    """Its size, and what is where: the heading, the panels row by row, the note."""
    columns, margin = min(drawing.columns, len(drawing.panels)), 14
    width = columns * drawing.width + (columns + 1) * margin
    above, below = (wrap(text, int((width - 2 * margin) / _LETTER)) for text in (drawing.heading, drawing.note))
    start = margin + 18 * len(above)
    placed: list[tuple[float, float, list[Shape]]] = []
    for i, of_panel in enumerate(shapes(drawing)):
        row, column = divmod(i, columns)
        x, y = margin + column * (drawing.width + margin), start + row * (drawing.height + margin)
        placed.append((x, y, of_panel))
    end = start + -(-len(drawing.panels) // columns) * (drawing.height + margin)
    lines: list[Shape] = [Words(margin, 8 + 18 * (i + 1), line, colour="--ink") for i, line in enumerate(above)]
    lines += [Words(margin, end + 16 * (i + 1) - 4, line) for i, line in enumerate(below)]
    return width, end + 16 * len(below) + 6 * bool(below), [*placed, (0, 0, lines)]


def _elements(several: Iterable[Shape]) -> Markup:
    return Markup().join(map(_element, several))


def _element(shape: Shape) -> Markup:
    if isinstance(shape, Words):
        bold = ";font-weight:600" if shape.is_bold else ""
        return Markup('<text x="{}" y="{}" text-anchor="{}" style="fill:var({}){}">{}</text>').format(
            _short(shape.x), _short(shape.y), shape.anchor, shape.colour, bold, shape.text
        )
    if isinstance(shape, Area):
        path, style = f"M{_corners(shape.corners)}z", f"fill:var({shape.colour})"
    elif isinstance(shape, Strokes):
        dashes = f";stroke-dasharray:{' '.join(map(_short, shape.dashes))}" if shape.dashes else ""
        path = "".join(f"M{_corners(line)}" for line in shape.lines)
        style = f"stroke:var({shape.colour});fill:none;stroke-width:{shape.width:g}{dashes}"
    elif shape.mark == "o":  # a line of no length with a round cap is a dot: all points of a curve are one element
        path = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in shape.places)
        style = f"stroke:var({shape.colour});stroke-width:{2 * shape.size:g};stroke-linecap:round"
    else:
        marks = ([(x + shape.size * a, y + shape.size * b) for a, b in MARKS[shape.mark]] for x, y in shape.places)
        path, style = "".join(f"M{_corners(mark)}z" for mark in marks), f"fill:var({shape.colour})"
    opacity = f";opacity:{shape.opacity:g}" if shape.opacity < 1 else ""
    return Markup('<path d="{}" style="{}"/>').format(path, style + opacity)


def _corners(line: Sequence[Place]) -> str:
    return "L".join(f"{_short(x)} {_short(y)}" for x, y in line)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# ---------------------------------------------------------------- files, and matplotlib's canvas


def save(drawing: Drawing, path: Path) -> None:
    """Of the kind that the suffix says; a reader sees the whole picture or the old one."""
    if path.suffix.lower() == ".svg":
        write_atomically(path, svg(drawing))
    else:
        file = io.BytesIO()
        canvas(drawing).savefig(file, format=path.suffix[1:].lower(), dpi=192)
        write_atomically(path, file.getvalue())


def canvas(drawing: Drawing) -> Figure:
    """A figure of matplotlib that shows the same."""
    from matplotlib.figure import Figure

    width, height, placed = _sheet(drawing)
    figure = Figure(figsize=(width / 96, height / 96), facecolor=COLOURS["--paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for x, y, of_panel in placed:
        for shape in of_panel:
            _paint(axes, shape, x, y)
    return figure


def _paint(axes: Axes, shape: Shape, x: float, y: float) -> None:
    """At this place. A pixel is three quarters of matplotlib's point."""
    from matplotlib.collections import LineCollection

    def moved(places: Sequence[Place]) -> list[Place]:
        return [(x + a, y + b) for a, b in places]

    colour = COLOURS[shape.colour]
    if isinstance(shape, Words):
        weight, place = "bold" if shape.is_bold else "normal", {"start": "left", "middle": "center", "end": "right"}
        options = {"fontsize": 9, "color": colour, "weight": weight, "ha": place[shape.anchor], "parse_math": False}
        axes.text(x + shape.x, y + shape.y, shape.text, va="baseline", **options)
    elif isinstance(shape, Area):
        axes.fill(*zip(*moved(shape.corners), strict=True), color=colour, alpha=shape.opacity, linewidth=0)
    elif isinstance(shape, Strokes):
        dashes = (0, tuple(dash / shape.width for dash in shape.dashes)) if shape.dashes else "solid"
        look = {"colors": colour, "linewidths": 0.75 * shape.width, "linestyles": [dashes], "alpha": shape.opacity}
        axes.add_collection(LineCollection([moved(line) for line in shape.lines], **look), autolim=False)
    else:
        look = {"marker": shape.mark, "markersize": 1.5 * shape.size, "markeredgewidth": 0, "linestyle": "none"}
        axes.plot(*zip(*moved(shape.places), strict=True), color=colour, alpha=shape.opacity, clip_on=False, **look)
