"""Counterexamples that have to be trained: small networks, made anew, of seeds that no record has."""

from __future__ import annotations

import pytest

from paper_checks.experiments import experiment
from paper_checks.experiments.stable_rates import LAYERS, gpt
from paper_checks.trials import Trial
from sims.train import TrainResult, train

SMALLER, LARGER = "su-adam", "normformer"
BETWEEN = 2.0**-4
"""A rate between the largest ones at which the two were found to train."""


def trained(scheme: str, seed: int) -> TrainResult:
    trial: Trial = experiment("stable-rates").arm(gpt(scheme, LAYERS[0])).at(seed, BETWEEN)
    return train(trial.lower())


def update(result: TrainResult) -> float:
    found = result.looks[0].update["update"]
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [3000, pytest.param(3001, marks=pytest.mark.slow)])
def test_S3_49_and_S3_04_the_smaller_update_is_stuck_at_a_rate_at_which_the_larger_one_trains(seed: int) -> None:
    """Nor does it come nearer by the held-out loss at the end, whatever bound one draws."""
    small, large = trained(SMALLER, seed), trained(LARGER, seed)
    assert 5 * update(small) < update(large)
    assert (small.outcome, large.outcome) == ("stuck", "trained")
    assert small.held_out is not None and large.held_out is not None
    assert large.held_out < small.held_out
