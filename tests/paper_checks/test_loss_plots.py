"""Figures of training: curves are the runs, a run that diverged ends in an arrow, and colours are of schemes."""

from __future__ import annotations

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.pages import loss_plots
from depthlaw.sims.training.train import TrainResult
from tests import made_runs


def result(outcome: str, held_out: list[float], losses: list[float | None]) -> TrainResult:
    trial = Trial(scheme="post-ln", num_steps=len(losses))
    measured = {
        "held_out": held_out[-1],
        "best": min(held_out),
        "held_out_at": list(enumerate(held_out)),
        "losses": losses,
    }
    return made_runs.result(trial, 1.0).model_copy(update={"outcome": outcome, **measured})


DATA = {"guess": 3.0, "uniform": 5.0}
RUNS: dict[Trial, TrainResult | None] = {
    Trial(scheme="post-ln"): result("stuck", [6.0, 4.0], [5.5]),
    Trial(scheme="post-ln", seed=1): result("trained", [6.0, 2.0], [5.0]),
    Trial(scheme="post-ln", seed=2): result("diverged", [3.0], [7.0, 1e9, None]),
    Trial(scheme="post-ln", seed=3): None,
    Trial(scheme="deepnorm", num_layers=8): result("trained", [6.0, 2.5], [4.5]),
}


def test_curves_are_the_runs() -> None:
    drawing = loss_plots.drawing_of(RUNS, "title", DATA)
    first, second = drawing.panels
    assert (drawing.columns, first.title, second.title) == (2, "4 layers, adam at 0.001", "8 layers, adam at 0.001")
    *thin, mean, diverged = first.curves
    assert first.levels == {3.0: "dashed", 5.0: "dotted"}
    assert "without the input, 3; dotted: a uniform guess, 5." in drawing.note
    assert [list(one.line) for one in thin] == [[(1, 5.5)], [(1, 5)], [(1, 7), (2, 1e9)]]
    assert (mean.label, list(mean.line)) == ("post-ln", [(0, 6), (1, 3)]), "of the seeds that did not diverge"
    assert [place[:2] for place in diverged.points] == [(3, pytest.approx(6.9))]
    assert diverged.ends == [1]
    assert first.y_range == pytest.approx((1.8, 6.9))
    assert {one.colour for one in (*thin, mean, diverged)} == {mean.colour} != {second.curves[-1].colour}
