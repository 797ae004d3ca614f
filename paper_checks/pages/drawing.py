"""Small logarithmic plots as inline SVG: lines, points with intervals, labels at the curves.

A page has hundreds of panels. Matplotlib takes 0.1 s and 8 kB for one; these take a millisecond and 2 kB, and their
colours are the page's own (CSS variables), so that they follow its light and dark theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

Interval = tuple[float, float, float | None, float | None]
"""x, mean, low and high; neither end where nothing is known of the error."""
DASHES = {"solid": "", "dashed": "6 4", "dotted": "1.5 3"}
MARKS = ("circle", "square", "triangle")
_LEAST_SPAN = 10.0
"""Of a vertical axis, top over bottom: what is flat looks flat."""
_ROOM = 1.3
_MANY = 200.0
"""A span from which on labels at powers of ten are enough."""
_WIDTH, _HEIGHT = 350, 225
_LEFT, _TOP, _BOTTOM = 58.0, 28.0, 38.0
_LINE = 13.0
"""Of text, in pixels."""
_LETTER = 7.2
_MOST_TICKS = 6
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """line: x and y; beyond: where it goes on, dotted. points: with their intervals. label: at its right end.

    colour: a CSS variable. line_style: one of ``DASHES``; mark: one of ``MARKS``: no two curves of a panel differ in
    colour alone.
    """

    label: str
    line: Sequence[tuple[float, float]] = ()
    beyond: Sequence[tuple[float, float]] = ()
    points: Sequence[Interval] = ()
    colour: str = "--c1"
    line_style: str = "solid"
    mark: str = "circle"

    @property
    def xs(self) -> list[float]:
        return [x for x, *_ in (*self.line, *self.beyond, *self.points)]

    @property
    def ys(self) -> list[float]:
        """What an axis has to show: not the foot of an interval far below its mean."""
        ends = [end for _, mean, low, high in self.points for end in (low, high) if end and end > mean / 10]
        return [y for _, y in (*self.line, *self.beyond)] + [mean for _, mean, *_ in self.points] + ends


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a page shows. rows: the same as a table, for who would rather read numbers."""

    svg: Markup
    title: str
    caption: str
    rows: list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """title: above it. about: for who cannot see it. note: in the middle of one without curves."""

    title: str
    about: str
    curves: Sequence[Curve]
    x: str = ""
    y: str = ""
    note: str = ""


def figure(panels: Sequence[Panel], *, has_equal_slopes: bool = True) -> Markup:
    """The panels in a grid, all of one size; where the page puts it they share a row as far as they fit.

    has_equal_slopes: every vertical axis gets as many decades as the panel that needs most.
    """
    spans = [_span(y for curve in panel.curves for y in curve.ys) for panel in panels]
    most = max(high / low for low, high in spans) if has_equal_slopes else 0.0
    longest = max((len(curve.label) for panel in panels for curve in panel.curves), default=0)
    right = _WIDTH - 10 - _LETTER * longest
    drawn = [_panel(one, _widened(span, most), right) for one, span in zip(panels, spans, strict=True)]
    return Markup('<div class="panels">{}</div>').format(Markup("").join(drawn))


def _span(values: Iterable[float]) -> tuple[float, float]:
    found = list(values) or [1.0]
    return min(found) / _ROOM, max(found) * _ROOM


def _widened(span: tuple[float, float], most: float) -> tuple[float, float]:
    factor = max(_LEAST_SPAN, most, span[1] / span[0])
    middle = math.sqrt(span[0]) * math.sqrt(span[1])
    return middle / math.sqrt(factor), middle * math.sqrt(factor)


@dataclass(frozen=True)
class _Axis:
    """From values, by their logarithms, to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if self.high < _MANY * self.low else (1,)
        found = [step * 10.0**k for k in decades for step in steps if self.low <= step * 10.0**k <= self.high]
        return found[:: -(-len(found) // _MOST_TICKS)] if len(steps) == 1 else found


def _panel(panel: Panel, span: tuple[float, float], right: float) -> Markup:
    """right: where its horizontal axis ends; labels stand beyond."""
    places = [x for curve in panel.curves for x in curve.xs] or [1.0]
    xs = _Axis(min(places) / 1.15, max(places) * 1.15, _LEFT, right)
    ys = _Axis(*span, _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(4, _TOP - 12, panel.title, "start", "fill:var(--ink);font-weight:600")]
    if panel.curves:
        parts += [_grid(xs, ys), *_axis_titles(panel, xs), *(_curve(curve, xs, ys) for curve in panel.curves)]
        parts.append(_labels(panel.curves, xs, ys))
    else:
        parts.append(_text(_WIDTH / 2, _HEIGHT / 2, panel.note, "middle"))
    return Markup('<svg class="plot" role="img" viewBox="0 0 {} {}"><title>{}</title>{}{}</svg>').format(
        _WIDTH,
        _HEIGHT,
        panel.title,
        Markup("<desc>{}</desc>").format(panel.about) if panel.about else "",
        Markup("").join(parts),
    )


def _text(x: float, y: float, text: str, anchor: str, style: str = "fill:var(--muted)") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}" style="{}">{}</text>').format(
        _short(x), _short(y), anchor, style, text
    )


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(xs: _Axis, ys: _Axis) -> Markup:
    lines = [f"M{_short(xs(x))} {_short(ys.start)}V{_short(ys.end)}" for x in xs.ticks]
    lines += [f"M{_short(xs.start)} {_short(ys(y))}H{_short(xs.end)}" for y in ys.ticks]
    texts = [_text(xs(x), ys.start + 14, tick_label(x), "middle") for x in xs.ticks]
    texts += [_text(xs.start - 4, ys(y) + 4, tick_label(y), "end") for y in ys.ticks]
    grid = Markup('<path d="{}" style="stroke:var(--line);fill:none"/>').format("".join(lines))
    return grid + Markup("").join(texts)


def tick_label(value: float) -> str:
    """0.01, 5, 1,000; 10⁶ and other far powers of ten."""
    power = math.log10(value)
    if -3 <= power < 4:
        return f"{value:,g}" if value >= 1 else f"{value:.3g}"
    digits = round(value / 10 ** math.floor(power + 1e-9))
    return (f"{digits}·" if digits > 1 else "") + f"10{str(math.floor(power + 1e-9)).translate(_RAISED)}"


def _axis_titles(panel: Panel, xs: _Axis) -> list[Markup]:
    middle = (xs.start + xs.end) / 2
    titles = [_text(middle, _HEIGHT - 6, panel.x, "middle")] if panel.x else []
    if panel.y:
        height = (_HEIGHT - _BOTTOM + _TOP) / 2
        turned = Markup('<text transform="translate(10 {}) rotate(-90)" text-anchor="middle" style="{}">{}</text>')
        titles.append(turned.format(_short(height), "fill:var(--muted)", panel.y))
    return titles


def _curve(curve: Curve, xs: _Axis, ys: _Axis) -> Markup:
    parts = []
    for line, line_style in ((curve.beyond, "dotted"), (curve.line, curve.line_style)):
        path = "L".join(f"{_short(xs(x))} {_short(_kept(ys, y))}" for x, y in line)
        dashes = f";stroke-dasharray:{DASHES[line_style]}" if DASHES[line_style] else ""
        parts.append(
            _path(f"M{path}" if path else "", f"stroke:var({curve.colour});fill:none;stroke-width:1.6{dashes}")
        )
    if curve.points:
        bars = "".join(
            f"M{_short(xs(x))} {_short(_kept(ys, max(low, mean / 1000)))}V{_short(_kept(ys, high))}"
            for x, mean, low, high in curve.points
            if low is not None and high is not None
        )
        parts.append(_path(bars, f"stroke:var({curve.colour});stroke-width:1.2"))
        parts.append(_marks(curve, [(xs(x), ys(mean)) for x, mean, *_ in curve.points]))
    return Markup("").join(parts)


def _kept(axis: _Axis, value: float) -> float:
    """Within the panel: an interval that comes near 0 runs off its lower edge."""
    return axis(min(max(value, axis.low), axis.high))


def _path(path: str, style: str) -> Markup:
    return Markup('<path d="{}" style="{}"/>').format(path, style) if path else Markup("")


def _marks(curve: Curve, places: Sequence[tuple[float, float]]) -> Markup:
    """A line of no length with a cap is a dot: all points of a curve are one element."""
    if curve.mark == "triangle":
        path = "".join(f"M{_short(x)} {_short(y - 4)}l4 7h-8z" for x, y in places)
        return _path(path, f"fill:var({curve.colour})")
    path = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in places)
    cap, size = ("round", 6.5) if curve.mark == "circle" else ("square", 5)
    return _path(path, f"stroke:var({curve.colour});stroke-width:{size};stroke-linecap:{cap}")


def _labels(curves: Sequence[Curve], xs: _Axis, ys: _Axis) -> Markup:
    """Each at the right end of its curve, those that would meet moved apart."""
    named = [curve for curve in curves if curve.label]
    last = {id(curve): _kept(ys, max((*curve.line, *curve.beyond) or curve.points)[1]) for curve in named}
    named.sort(key=lambda curve: last[id(curve)])
    heights = spread([last[id(curve)] for curve in named], _LINE, ys.start)
    return Markup("").join(
        _text(xs.end + 4, height + 4, curve.label, "start", f"fill:var({curve.colour})")
        for curve, height in zip(named, heights, strict=True)
    )


def spread(places: Sequence[float], least: float, last: float) -> list[float]:
    """Rising places at least so far apart, none beyond the last that is allowed."""
    found = list(accumulate(places, lambda before, place: max(place, before + least)))
    if found:
        found[-1] = min(found[-1], last)
    backwards = accumulate(reversed(found), lambda after, place: min(place, after - least))
    return list(reversed(list(backwards)))
