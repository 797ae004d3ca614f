"""Where a drawing puts what it shows: numbers at their places, names where they can be read, in files and on pages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from depthlaw.paper_checks.pages import training, transformers, why_figure
from depthlaw.paper_checks.pages.drawing import (
    COLOURS,
    SUFFIXES,
    Curve,
    Drawing,
    Marks,
    Panel,
    Shape,
    Strokes,
    Words,
    canvas,
    save,
    shapes,
    svg,
    tick_label,
)

LINE = [(1.0, 2.0), (10.0, 20.0), (100.0, 200.0)]


def panel(*curves: Curve, **options: Any) -> Panel:
    return Panel(title="title", curves=curves, **options)


def shapes_of(*curves: Curve, **options: Any) -> list[Shape]:
    return shapes(Drawing(panels=[panel(*curves, **options)]))[0]


def marks(found: list[Shape], colour: str = "--c1") -> dict[str, list[float]]:
    """By mark, the heights of those of a curve."""
    return {one.mark: [y for _, y in one.places] for one in found if isinstance(one, Marks) and one.colour == colour}


def strokes(found: list[Shape], colour: str = "--c1") -> list[list[tuple[float, float]]]:
    return [list(line) for one in found if isinstance(one, Strokes) and one.colour == colour for line in one.lines]


# ---------------------------------------------------------------- numbers


def test_a_point_lies_where_its_number_is() -> None:
    """On its line, with an interval as long as it is; and ticks where theirs are."""
    drawn = shapes_of(Curve(line=LINE, points=[(x, y, y / 1.5, y * 1.5) for x, y in LINE]))
    line, *bars = strokes(drawn)
    heights = [y for _, y in line]
    assert marks(drawn)["o"] == heights
    decade, other = (one - other for one, other in pairwise(heights))
    assert decade == pytest.approx(other)
    half = decade * math.log10(1.5)
    assert [[y for _, y in bar] for bar in bars] == [pytest.approx([y + half, y - half]) for y in heights]
    same = shapes_of(Curve(line=[(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)]))
    ticks = {(one.text, one.anchor): (one.x, one.y) for one in same if isinstance(one, Words)}
    assert (ticks["10", "middle"][0], ticks["10", "end"][1] - 4) == pytest.approx(strokes(same)[0][1])


def test_what_is_outside_is_cut_off_and_points_there_are_arrows() -> None:
    found = shapes_of(Curve(line=LINE, points=[(x, y, None, None) for x, y in LINE]), y_range=(10, 100))
    bottom, top = 225 - 40, 12 + 18
    heights = [y for _, y in strokes(found)[0]]
    assert [max(heights), min(heights)] == pytest.approx([bottom, top])
    assert {mark: len(ys) for mark, ys in marks(found).items()} == {"o": 1, "v": 1, "^": 1}
    assert all(top <= y <= bottom for ys in marks(found).values() for y in ys)
    known_on_one_side = shapes_of(Curve(points=[(1.0, 2.0, None, None)], ends=[-1]))
    assert set(marks(known_on_one_side)) == {"o", "v"}
    near_0 = strokes(shapes_of(Curve(points=[(1.0, 2.0, -1.0, 5.0)])))
    assert all(top <= y <= bottom for _, y in near_0[0])


def test_panels_are_of_one_size_and_of_equal_slopes() -> None:
    """Whatever their labels and however many decades; what is flat looks flat."""
    lines = [(1.0, 2.0), (100.0, 200.0)], [(1.0, 2e-3), (100.0, 0.2)], [(1.0, 1.0), (100.0, 1e6)]
    panels = [panel(Curve(label=name, line=line)) for name, line in zip(("U", "bias", "q"), lines, strict=True)]
    first, second, third = (strokes(one)[0] for one in shapes(Drawing(panels=panels, scale="slopes")))
    assert first == second
    assert (third[0][1] - third[1][1]) == pytest.approx(3 * (first[0][1] - first[1][1]))
    (start, end), *_ = strokes(shapes_of(Curve(line=[(1.0, 1.0), (100.0, 1.1)])))
    assert start[1] - end[1] == pytest.approx((225 - 40 - 12 - 18) * math.log10(1.1))


def test_ticks_are_short() -> None:
    texts = {0.01: "0.01", 5.0: "5", 1000.0: "1,000", 1e6: "10⁶", 2e-5: "2·10⁻⁵", 1e9: "10⁹"}
    assert {value: tick_label(value) for value in texts} == texts


@pytest.mark.parametrize("num", [1, 13, 300])
def test_labels_of_many_depths_have_room(num: int) -> None:
    found = shapes_of(Curve(line=[(float(n), 1.0) for n in range(1, num + 1)]), x_kind="depths", y_range=(0.5, 2))
    at = sorted(one.x for one in found if isinstance(one, Words) and one.anchor == "middle")
    assert 1 <= len(at) <= 12
    assert all(other - one >= 30 for one, other in pairwise(at))


# ---------------------------------------------------------------- names


def meeting(found: Drawing) -> Iterator[str]:
    """Words that overlap, or that leave their panel."""
    for one, of_panel in zip(found.panels, shapes(found), strict=True):
        words = [shape for shape in of_panel if isinstance(shape, Words)]
        boxes = []
        for word in words:
            size = 6.3 * len(word.text)
            left = word.x - {"start": 0, "middle": size / 2, "end": size}[word.anchor]
            boxes.append((left, word.y - 10, left + size, word.y + 2))
            if left < 0 or left + size > found.width or word.y > found.height or word.y < 9:
                yield f"{one.title}: {word.text} is cut"
        for (a, box), (b, other) in combinations(zip(words, boxes, strict=True), 2):
            if box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]:
                yield f"{one.title}: {a.text} meets {b.text}"


def test_no_words_meet_or_are_cut() -> None:
    """In every figure of a page; in one that is too narrow they do."""
    pages = training.drawings(training.records()) | transformers.drawings(transformers.study().cells)
    pages["why"] = why_figure.picture()
    assert {name: bad for name, one in pages.items() if (bad := list(meeting(one)))} == {}
    near = [Curve(label="one", points=[(x, 1.0, None, None)], is_beside=True) for x in (1.0, 100.0)]
    assert list(meeting(Drawing(panels=[panel(*near)], width=60)))


# ---------------------------------------------------------------- pages and files


def test_a_page_has_its_own_colours_and_words_are_escaped() -> None:
    curves = [Curve(label="<i>", line=LINE), Curve(label="a & b", points=[(3.0, 4.0, None, None)])]
    text = Drawing(panels=[Panel(title="<b>", curves=curves)]).inline
    assert not {"<b>", "<i>"} & set(re.findall("<.*?>", text))
    assert "#" not in text
    assert set(re.findall(r"var\((.*?)\)", text)) <= set(COLOURS)
    assert "<desc>&lt;i&gt;: 2 at 1, 200 at 100. a &amp; b: 4 at 3, 4 at 3.</desc>" in text
    assert "exactly 0" in Drawing(panels=[Panel(title="t", note="exactly 0")]).inline


def test_a_file_shows_what_a_page_shows() -> None:
    """The same elements, in the colours of the light theme, on a ground of its own."""
    one = why_figure.picture()
    text = svg(one)
    light = re.sub(r"var\((--\w+)\)", lambda name: COLOURS[name[1]], one.inline)
    assert set(re.findall("<path.*?>", light)) == set(re.findall("<path.*?>", text))
    assert f"fill:{COLOURS['--paper']}" in text
    assert "var(" not in text


def test_matplotlib_paints_the_same_shapes() -> None:
    one = Drawing(panels=[panel(Curve(label="U", line=LINE, points=[(x, y, None, None) for x, y in LINE]))])
    (axes,) = canvas(one).axes
    painted = [lines for lines in axes.collections if isinstance(lines, LineCollection)]
    [line] = [lines for lines in painted if to_hex(tuple(np.asarray(lines.get_edgecolor())[0])) == COLOURS["--c1"]]
    wanted = np.array(strokes(shapes(one)[0])[0]) + 14
    assert np.asarray(line.get_segments()[0]) == pytest.approx(wanted)
    assert np.asarray(axes.lines[0].get_xydata()) == pytest.approx(wanted)
    assert {"title", "U"} <= {text.get_text() for text in axes.texts}


BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".PNG"])
def test_files_are_of_the_kind_that_their_name_says(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"it{suffix}"
    save(Drawing(panels=[panel(Curve(line=LINE))]), path)
    assert path.read_bytes().startswith(BEGINNINGS[suffix.lower()])
    assert list(tmp_path.iterdir()) == [path]
