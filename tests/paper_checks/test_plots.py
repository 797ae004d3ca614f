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

from paper_checks import plots


def row(length: int, predicted: float | None, measured: float | None, half: float | None = None) -> dict[str, Any]:
    low, high = (None, None) if measured is None or half is None else (measured - half, measured + half)
    return {"num_sublayers": length, "update": predicted, "measured": measured, "low": low, "high": high}


ROWS = [row(16, 4.0, 4.2, 0.5), row(4, 1.0, 1.1, 0.2), row(8, 2.0, 2.2, 5.0), row(64, 16.0, None), row(32, 8.0, 0.0, 0)]


def drawn(rows: Sequence[Mapping[str, Any]]) -> tuple[Any, list[Any], list[ErrorbarContainer]]:
    """(axes, lines that are no part of an errorbar, errorbars)."""
    (axes,) = plots.figure_of(rows, "title", "note").axes
    bars = [found for found in axes.containers if isinstance(found, ErrorbarContainer)]
    parts = [part for bar in bars for part in (bar.lines[0], *bar.lines[1])]
    return axes, [line for line in axes.lines if line not in parts], bars


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
    "intervals as long as the numbers": ("paper_checks.plots._ends", lambda row: (row["low"], row["high"])),
    "no intervals": ("paper_checks.plots._ends", lambda row: (0.0, 0.0)),
    "a zero on the axis": ("paper_checks.plots._ends", lambda row: (row["measured"] / 2, 0.5)),
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
    assert axes.get_legend_handles_labels()[1] == ["measured"]


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    axes, lines, bars = drawn([row(4, 0.0, 0.0, 0), row(8, 0.0, None)])
    assert not lines
    assert not bars
    assert "L = 4, 8" in axes.get_title()
    plots.update_against_depth([row(4, 0.0, 0.0, 0)], "title", "", tmp_path / "empty.png")


BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", plots.SUFFIXES)
def test_files_are_of_the_kind_that_their_name_says(suffix: str, tmp_path: Path) -> None:
    for name in (f"it{suffix}", f"it{suffix.upper()}"):
        plots.update_against_depth(ROWS, "title", "note", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(BEGINNINGS[suffix])
    assert len(list(tmp_path.iterdir())) == 2


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
    path.write_text("old")
    monkeypatch.setattr(target, broken)
    with pytest.raises(OSError, match="no room"):
        plots.update_against_depth(ROWS, "title", "note", path)
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["it.png"]
