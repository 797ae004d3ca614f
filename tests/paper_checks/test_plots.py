"""Figures of measurements: what is drawn is what the rows say, and a file is whole or as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from paper_checks.pages import plots


def row(length: int, predicted: float | None, measured: float | None, half: float | None = None) -> dict[str, Any]:
    low, high = (None, None) if measured is None or half is None else (measured - half, measured + half)
    return {"num_sublayers": length, "update": predicted, "measured": measured, "low": low, "high": high}


GUIDES = ("flat", "grows as L", "grows as N")
ROWS = [row(16, 4.0, 4.2, 0.5), row(4, 1.0, 1.1, 0.2), row(8, 2.0, 2.2, 5.0), row(64, 16.0, None), row(32, 8.0, 0.0, 0)]


def drawn(rows: Sequence[Mapping[str, Any]]) -> tuple[Any, list[Any], list[ErrorbarContainer]]:
    """(axes, lines that are no part of an errorbar and no guides, errorbars)."""
    (axes,) = plots.figure_of({"update": rows}, "title", "note").axes
    bars = [found for found in axes.containers if isinstance(found, ErrorbarContainer)]
    parts = [part for bar in bars for part in (bar.lines[0], *bar.lines[1])]
    return axes, [line for line in axes.lines if line not in parts and line.get_label() not in GUIDES], bars


def test_predicted_line_measured_points_and_intervals_are_the_rows() -> None:
    axes, (line,), (bar,) = drawn(ROWS)
    assert np.asarray(line.get_xydata()).tolist() == [[4, 1], [8, 2], [16, 4], [32, 8], [64, 16]]
    assert np.asarray(bar.lines[0].get_xydata()).tolist() == [[16, 4.2], [4, 1.1], [8, 2.2]]
    (stems,) = bar.lines[2]
    assert isinstance(stems, LineCollection)
    (low, high), (first_low, first_high), (zero, top) = [[y for _, y in ends] for ends in stems.get_segments()]
    assert [low, high, first_low, first_high, top] == pytest.approx([3.7, 4.7, 0.9, 1.3, 7.2])
    assert 0 < zero < axes.get_ylim()[0], "an interval that reaches 0 runs off the lower edge"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "L = 64, 32" in axes.get_title(), "what is not shown is named"


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "intervals as long as the numbers": ("paper_checks.pages.plots._ends", lambda row: (row["low"], row["high"])),
    "no intervals": ("paper_checks.pages.plots._ends", lambda row: (0.0, 0.0)),
    "a zero on the axis": ("paper_checks.pages.plots._ends", lambda row: (row["measured"] / 2, 0.5)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, ValueError)):
        test_predicted_line_measured_points_and_intervals_are_the_rows()


def test_one_seed_has_points_and_no_intervals() -> None:
    axes, lines, (bar,) = drawn([row(4, None, 1.1), row(8, None, 2.2)])
    assert not lines, "nothing is predicted"
    assert all(low[1] == high[1] for low, high in bar.lines[2][0].get_segments())
    assert axes.get_legend_handles_labels()[1] == ["flat", "grows as L", "measured"]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    axes, lines, bars = drawn([row(4, 0.0, 0.0, 0), row(8, 0.0, None)])
    assert not lines
    assert not bars
    assert "L = 4, 8" in axes.get_title()
    plots.update_against_depth({"update": [row(4, 0.0, 0.0, 0)]}, "title", "", tmp_path / "empty.png")


# ---------------------------------------------------------------- what is flat, and what counts layers


def guides(rows: Sequence[Mapping[str, Any]], *num_each: int) -> dict[str, list[list[float]]]:
    """By label."""
    (axes,) = plots.figure_of({"update": rows}, "title", "note", *num_each).axes
    assert [label for label in axes.get_legend_handles_labels()[1] if label in GUIDES] == [
        line.get_label() for line in axes.lines if line.get_label() in GUIDES
    ]
    return {
        str(line.get_label()): np.asarray(line.get_xydata()).tolist()
        for line in axes.lines
        if line.get_label() in GUIDES
    }


def check_guides() -> None:
    """Through the first point of what is predicted, and of what is measured where nothing is."""
    assert guides(ROWS) == {"flat": [[4, 1], [64, 1]], "grows as L": [[4, 1], [64, 16]]}
    assert guides([row(4, None, 1.1), row(8, None, 0.0), row(16, None, 9.0)]) == {
        "flat": [[4, 1.1], [16, 1.1]],
        "grows as L": [[4, 1.1], [16, 4.4]],
    }
    assert guides([row(4, 1.0, 1.1)]) == guides([row(4, 0.0, None), row(8, 0.0, None)]) == {}


def check_layers() -> None:
    """N layers are half as many as L sublayers: of points, guides, ticks and what is missing."""
    assert guides(ROWS, 2) == {"flat": [[2, 1], [32, 1]], "grows as N": [[2, 1], [32, 16]]}
    (axes,) = plots.figure_of({"update": ROWS}, "title", "note", 2).axes
    assert axes.get_xlabel() == "layers N"
    assert "N = 32, 16" in axes.get_title()
    assert axes.get_xticks().tolist() == [2, 4, 8, 16, 32]
    (line,) = [line for line in axes.lines if line.get_label() == "predicted, infinite width"]
    assert np.asarray(line.get_xydata()).tolist() == [[2, 1], [4, 2], [8, 4], [16, 8], [32, 16]]


GUIDE_CHECKS: dict[str, Callable[[], None]] = {check.__name__: check for check in (check_guides, check_layers)}


@pytest.mark.parametrize("check", GUIDE_CHECKS)
def test_guides(check: str) -> None:
    GUIDE_CHECKS[check]()


_figure_of, _guide = plots.figure_of, plots._guide
GUIDE_MUTANTS: list[tuple[str, str, Any]] = [
    ("check_guides", "_guide", lambda *_: None),
    ("check_guides", "_guide", lambda axes, drawn, letter: _guide(axes, [(x, 2 * y) for x, y in drawn], letter)),
    ("check_layers", "figure_of", lambda found, title, note, num_each=1: _figure_of(found, title, note)),
]


@pytest.mark.parametrize(("check", "name", "mutant"), GUIDE_MUTANTS)
def test_a_mutant_of_the_guides_is_found(check: str, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, name, mutant)
    with pytest.raises(AssertionError):
        GUIDE_CHECKS[check]()


# ---------------------------------------------------------------- by role

BY_ROLE = [
    {
        **row(length, 2.0 * length, 2.1 * length, 0.1),
        "roles": {"q": 0.01, "bias": 0.1 * length**2},
        "by_role": {"bias": row(length, None, 0.2 * length**2, 0.01), "head": row(length, None, 3.0)},
    }
    for length in (4, 8, 16)
]


def check_panels() -> None:
    """One for each role, in its unit: what is predicted, what is measured, both or neither."""
    found = plots.panels(BY_ROLE, {"q": 0.0, "bias": 1.0, "head": 0.5})
    assert list(found) == ["update", "q", "bias, times d_model", "head, times d_model^0.5"]
    figure = plots.figure_of(found, "title", "note")
    titles = [axes.get_title().partition("\n") for axes in figure.axes]
    assert [title for title, _, _ in titles] == list(found)
    assert [bool(missing) for _, _, missing in titles] == [False, True, False, False]
    lines = [[line for line in axes.lines if line.get_label() == "predicted, infinite width"] for axes in figure.axes]
    drawn = [np.asarray(line.get_xydata()).tolist() for found in lines for line in found]
    assert drawn == [[[n, f(n)] for n in (4, 8, 16)] for f in (lambda n: 2.0 * n, lambda n: 0.01, lambda n: 0.1 * n**2)]
    bars = [bar for axes in figure.axes for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    functions = (lambda n: 2.1 * n, lambda n: 0.2 * n**2, lambda n: 3.0)
    measured = [np.asarray(bar.lines[0].get_xydata()).tolist() for bar in bars]
    assert measured == [[[n, f(n)] for n in (4, 8, 16)] for f in functions]
    assert sum(axes.get_legend() is not None for axes in figure.axes) == 1


def check_slopes() -> None:
    """Equal slopes look equal: all panels span as many decades, what is flat looks flat, and nothing is cut off."""
    found = plots.panels(BY_ROLE, {"q": 0.0, "bias": 1.0, "head": 0.5})
    limits = [axes.get_ylim() for axes in plots.figure_of(found, "title", "note").axes]
    assert [high / low for low, high in limits] == pytest.approx([limits[0][1] / limits[0][0]] * len(limits))
    for (low, high), points in zip(limits, found.values(), strict=True):
        drawn = [y for point in points for y in (point["update"], point["measured"], point["high"]) if y]
        assert low < min(drawn)
        assert max(drawn) < high
    (flat,) = plots.figure_of({"update": [row(4, 1.0, None), row(8, 1.0, None)]}, "title", "").axes
    assert flat.get_ylim() == pytest.approx((10**-0.5, 10**0.5))


PANEL_CHECKS: dict[str, Callable[[], None]] = {check.__name__: check for check in (check_panels, check_slopes)}


@pytest.mark.parametrize("check", PANEL_CHECKS)
def test_by_role(check: str) -> None:
    PANEL_CHECKS[check]()


PANEL_MUTANTS: list[tuple[str, str, Any]] = [
    ("check_panels", "_of_role", lambda row, role: row),
    ("check_panels", "_draw", lambda *_, **__: ""),
    ("check_slopes", "_limit", lambda *_: None),
    ("check_slopes", "_span", lambda points: (1.0, 2.0)),
    ("check_slopes", "_LEAST_SPAN", 1.0),
]


@pytest.mark.parametrize(("check", "name", "mutant"), PANEL_MUTANTS)
def test_a_mutant_of_the_panels_is_found(check: str, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, name, mutant)
    with pytest.raises(AssertionError):
        PANEL_CHECKS[check]()


def test_what_is_predicted_alone_has_no_points() -> None:
    rows = [{"num_sublayers": n, "update": y, "roles": {"q": 1.0}} for n, y in ((2, 1.0), (4, 0.0), (8, None))]
    (axes,) = plots.figure_of(plots.panels(rows, {}), "title", "").axes
    assert [np.asarray(line.get_xydata()).tolist() for line in axes.lines] == [[[2, 1]]]
    assert "at L = 4, 8" in axes.get_title()
    assert axes.get_legend_handles_labels()[1] == ["predicted, infinite width"]


@pytest.mark.parametrize("num", [1, 5, 12, 13, 300])
def test_labels_of_many_depths_have_room(num: int) -> None:
    points = [row(n, 1.0, None) for n in range(1, num + 1)]
    (axes,) = plots.figure_of({"update": points}, "title", "").axes
    assert 1 <= len(axes.get_xticks()) <= 12


# ---------------------------------------------------------------- files

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", plots.SUFFIXES)
def test_files_are_of_the_kind_that_their_name_says(suffix: str, tmp_path: Path) -> None:
    """In capitals too, of which one kind is enough."""
    path = tmp_path / f"it{suffix.upper() if suffix == '.svg' else suffix}"
    plots.update_against_depth({"update": ROWS}, "title", "note", path)
    assert path.read_bytes().startswith(BEGINNINGS[suffix])
    assert list(tmp_path.iterdir()) == [path]


def _cut_off(figure: Figure, file: Any, **_: object) -> None:
    file.write(b"half")
    raise OSError("no room")


def _no_room(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content[:4])
    raise OSError("no room")


@pytest.mark.parametrize(
    ("target", "broken"), [("matplotlib.figure.Figure.savefig", _cut_off), ("pathlib.Path.write_bytes", _no_room)]
)
def test_a_figure_that_fails_leaves_the_old_one(
    target: str, broken: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.png"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(target, broken)
    with pytest.raises(OSError, match="no room"):
        plots.update_against_depth({"update": ROWS}, "title", "note", path)
    assert path.read_text(encoding="utf-8") == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["it.png"]
