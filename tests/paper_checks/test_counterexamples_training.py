"""Counterexamples that have to be trained: small networks, made anew, of seeds that no record has.

The claims find their counterexamples anew in every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.stable_rates import LAYERS, gpt
from depthlaw.sims.training.train import TrainResult, train

pytestmark = pytest.mark.slow

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


def test_S3_49_and_S3_04_the_smaller_update_is_stuck_where_the_larger_one_trains() -> None:
    """At one rate; nor does it come nearer by the held-out loss at the end, whatever bound one draws."""
    small, large = trained(SMALLER, 3000), trained(LARGER, 3000)
    assert 5 * update(small) < update(large)
    assert (small.outcome, large.outcome) == ("stuck", "trained")
    assert small.held_out is not None and large.held_out is not None
    assert large.held_out < small.held_out
