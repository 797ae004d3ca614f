"""`--plot` of `depthlaw predict` and `depthlaw measure`: what is drawn is what the rows say."""

from __future__ import annotations

from typing import Any

import pytest

from depthlaw.paper_checks.pages import plots
from depthlaw.paper_checks.pages.plots import Shown


def row(length: int, predicted: float | None, measured: float | None, half: float | None = None) -> dict[str, Any]:
    low, high = (None, None) if measured is None or half is None else (measured - half, measured + half)
    return {"num_sublayers": length, "update": predicted, "measured": measured, "low": low, "high": high, "roles": {}}


ROWS = [row(16, 4.0, 4.2, 0.5), row(4, 1.0, 1.1, 0.2), row(8, 2.0, 2.2, 5.0), row(64, 16.0, None), row(32, 8.0, 0.0, 0)]


@pytest.mark.parametrize(("num_each", "letter", "x"), [(1, "L", "residual sublayers L"), (2, "N", "layers N")])
def test_the_update_is_of_its_rows(num_each: int, letter: str, x: str) -> None:
    """The line, the points that there are with their intervals, guides through the first point; others are named. N
    layers are half as many as L sublayers: of points, guides, powers and what is missing."""
    drawing = plots.drawing_of(Shown(ROWS, {}), "title", "note", num_each)
    curves = {curve.label.split("\n")[0]: curve for curve in drawing.panels[0].curves}
    assert list(curves) == ["flat", f"as {letter}", "predicted", ""]
    assert curves["predicted"].label == f"predicted\n{letter}^1.00"
    depths = [n / num_each for n in (4, 8, 16, 32, 64)]
    assert curves["predicted"].line == list(zip(depths, (1, 2, 4, 8, 16), strict=True))
    assert [place[:2] for place in curves[""].points] == list(zip(depths, (1.1, 2.2, 4.2), strict=False))
    assert [end for *_, low, high in curves[""].points for end in (low, high)] == pytest.approx(
        [0.9, 1.3, -2.8, 7.2, 3.7, 4.7]
    )
    ends = depths[0], depths[-1]
    assert [curves[name].line for name in ("flat", f"as {letter}")] == [
        list(zip(ends, (1, 1), strict=True)),
        list(zip(ends, (1, 16), strict=True)),
    ]
    assert drawing.panels[0].x == x
    assert drawing.note == (
        "Note. Line: predicted, infinite width; points: measured, 95 % intervals; "
        f"no point, 0 or diverged, at {letter} = {32 // num_each}, {64 // num_each}."
    )


UNITS = {"q": 0.0, "bias": 1.0, "head": 0.5, "embedding": 1.0}
BY_ROLE = [
    {
        **row(length, 2.0 * length, 2.1 * length, 0.1),
        "roles": {"q": 0.01, "bias": 1.0 * length**2, "embedding": 0.0},
        "by_role": {"bias": row(length, None, 2.0 * length**2, 0.01), "head": row(length, None, 300.0)},
    }
    for length in (4, 8, 16)
]


def test_roles_are_of_their_rows() -> None:
    """One panel: each over its own first, with its powers, measured and predicted; bold what counts most."""
    found = plots.drawing_of(Shown(BY_ROLE, UNITS, 64), "title", "note")
    curves = {curve.label.split(" ")[0]: curve for curve in found.panels[0].curves}
    assert [curve.label for curve in curves.values()] == [
        "all matrices measured L^1.00, predicted L^1.00",
        "bias measured L^2.00, predicted L^2.00",
        "head L^0.00",
    ]
    lines = {name: [y for _, y in curve.line] for name, curve in curves.items()}
    assert lines == {"all": [1, 2, 4], "bias": [1, 4, 16], "head": []}
    assert [place[1] for place in curves["bias"].points] == pytest.approx([2, 8, 32]), "over what is predicted first"
    assert [place[1] for place in curves["head"].points] == [1, 1, 1]
    low, high = curves["all"].points[0][2:]
    assert (low, high) == pytest.approx((8.3 / 8, 8.5 / 8))
    widths = {name: curve.width for name, curve in curves.items()}
    assert widths == {"all": 2.6, "bias": 1.6, "head": 2.6}, "bias: 256 / 64 of 32; head: 300 / 8 of 32"
    assert "less than 5 % of it: q;" in found.note, "0.01 of 32"
    assert "0 at every depth: embedding" in found.note
    assert "d = 64" in found.note
