"""``depthlaw experiment --plan``: how much there is to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper_checks.experiments import base
from tests.command import told


def check_plan(store: Path) -> None:
    """Sizes, and how many runs: where an arm searches, from one to as many as bisection takes."""

    def plan(options: str) -> str:
        return told("experiment", *options.split(), "--plan", "--store", store, COLUMNS="80")

    text = plan("thousand-layers")
    assert "15 arms of speech, 32 wide: 40 steps of 8 x 16 tokens\nRuns: 15 a seed.\nWith 3 seeds 45 in all" in text
    text = plan("own-row --seeds 2")
    assert "Runs: 18 to 90 a seed.\nWith 2 seeds 36 to 180 in all" in text, "15 rates: 5 runs at most"
    text = plan("stable-rates")
    assert "3 arms of bert, 32 wide: 300 steps of 16 x 32 tokens" in text
    # 27 searches of 21 rates, 6 of which may find their run among the other 48 arms'; a pilot of two, with three seeds.
    assert "Runs: 69 to 210 a seed, 6 to 36 for the pilot.\nWith 5 seeds, or more, 351 to 1,086 in all" in text


def test_a_plan_says_how_much_there_is_to_do(tmp_path: Path) -> None:
    check_plan(tmp_path / "runs.sqlite")


def test_a_plan_without_the_pilot_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PILOT_SEEDS", ())
    with pytest.raises(AssertionError):
        check_plan(tmp_path / "runs.sqlite")
