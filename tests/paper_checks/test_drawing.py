"""Where a drawing puts what it shows: numbers at their places, names where they can be read, in files and on pages."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

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
    save,
    shapes,
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


def test_names_stand_in_place_of_numbers_and_a_linear_interval_goes_below_0() -> None:
    points = [(0.0, 0.5, -0.5, 1.5), (1.0, 1.0, 0.5, 1.5)]
    kinds: dict[str, Any] = {"x_kind": "linear", "y_kind": "linear", "y_range": (-1.0, 2.0)}
    drawn = shapes_of(Curve(points=points), x_names={0.0: "here", 1.0: "there"}, **kinds)
    names = {one.text: one.x for one in drawn if isinstance(one, Words) and one.anchor == "middle"}
    across = [x for one in drawn if isinstance(one, Marks) for x, _ in one.places]
    assert names == {"here": pytest.approx(across[0]), "there": pytest.approx(across[1])}
    first, second = ([y for _, y in bar] for bar in strokes(drawn))
    assert max(first) - min(first) == pytest.approx(2 * (max(second) - min(second)))


# ---------------------------------------------------------------- pages and files


def test_a_page_has_its_own_colours_and_words_are_escaped() -> None:
    curves = [Curve(label="<i>", line=LINE), Curve(label="a & b", points=[(3.0, 4.0, None, None)])]
    text = Drawing(panels=[Panel(title="<b>", curves=curves)]).inline
    assert not {"<b>", "<i>"} & set(re.findall("<.*?>", text))
    assert "#" not in text
    assert set(re.findall(r"var\((.*?)\)", text)) <= set(COLOURS)
    assert "<desc>&lt;i&gt;: 2 at 1, 200 at 100. a &amp; b: 4 at 3, 4 at 3.</desc>" in text
    assert "exactly 0" in Drawing(panels=[Panel(title="t", note="exactly 0")]).inline


BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".PNG"])
def test_files_are_of_the_kind_that_their_name_says(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"it{suffix}"
    save(Drawing(panels=[panel(Curve(line=LINE))]), path)
    assert path.read_bytes().startswith(BEGINNINGS[suffix.lower()])
    assert list(tmp_path.iterdir()) == [path]
