"""The records of training are of the networks that this checkout makes, and say what a run made now would say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import version

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS
from depthlaw.paper_checks.experiments.stable_rates import START, gpt
from depthlaw.paper_checks.experiments.transfer import DEEPER
from depthlaw.paper_checks.routes.training.arms import recorded
from depthlaw.sims import stats
from depthlaw.sims.training.store import Row, read
from depthlaw.sims.training.train import TrainResult, train
from depthlaw.system.places import training_record

ARM = experiment("stable-rates").arm(gpt("deepnorm", 4))
FRESH = (2000, 2001, 2002)


@cache
def numbers(trial: Trial) -> str:
    return str(trial.named()["numbers"])


@cache
def rows_of(name: str) -> tuple[Row, ...]:
    return tuple(read(training_record(name)))


RUN = NAMES
"""The experiments that have a record."""
MANY = ("transfer", "after-start")
"""Those with hundreds of networks."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "warmup") + [pytest.mark.wide] * (name in MANY))
        for name in RUN
    ],
)
def test_the_runs_are_of_these_networks(name: str) -> None:
    """Their weights and gains are those that this checkout makes, whatever the seed and the learning rate are."""
    assert rows_of(name)
    for row in rows_of(name):
        assert numbers(replace(Trial.of(row.config), seed=0, learning_rate=1.0)) == row.config["numbers"], row.config


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.wide] * (name in MANY)) for name in RUN])
def test_every_arm_has_its_seeds(name: str) -> None:
    """Of a scheme under an optimizer, every arm that is as long has the same, from 0 on: another may have more. What
    transfer has halfway was planned later, and has its own."""

    def case_of(trial: Trial) -> tuple[str, str, int, bool]:
        is_halfway = (name, trial.num_layers) == ("transfer", DEEPER[0])
        return trial.scheme, trial.optimizer, trial.num_steps, is_halfway

    found, book = experiment(name), recorded(name)
    there = set(map(case_of, book.trials))
    assert there == {case_of(arm.trial) for arm in found.arms}
    for case in there:
        own = replace(found, arms=tuple(a for a in found.arms if case_of(a.trial) == case))
        seeds = own.seeds(book)
        assert len(seeds) >= 3
        more = {seed for arm in own.arms for seed in range(arm.least_seeds) if arm.is_done(book, seed)}
        run = {trial.seed for trial in book.trials if case_of(trial) == case}
        assert run <= {*seeds, *PILOT_SEEDS, *more}, case


def losses(trial: Trial) -> list[float | None]:
    return [train(replace(trial, seed=seed).lower()).held_out for seed in FRESH]


@pytest.mark.slow
def test_runs_made_now_agree() -> None:
    """With other seeds; on another Python its library is other text, which 3 nats a byte hardly show."""
    trial = ARM.at(0, START)
    there = [recorded("stable-rates")[replace(trial, seed=seed)].held_out for seed in range(5)]
    assert stats.agrees(losses(trial), there).is_agreed
    assert not stats.agrees(losses(replace(trial, num_steps=12, warmup_steps=1)), there).is_agreed


@pytest.mark.wide
def test_a_run_begins_as_its_record_does() -> None:
    """With its own seed, to rounding; on another Python its text is another, and so it is with another torch."""
    trial = replace(ARM.at(0, START), measure_at=())
    row = next(row for row in rows_of("stable-rates") if Trial.of(row.config) == ARM.at(0, START))
    wanted = TrainResult.model_validate(row.result).losses[: trial.warmup_steps]
    begun = replace(trial, num_steps=trial.warmup_steps)
    is_same = (
        begun.named()["data"] == row.config["data"] and row.about.versions.torch == version("torch").partition("+")[0]
    )
    near = 1e-3 if is_same else 0.1
    assert train(begun.lower()).losses == pytest.approx(wanted, rel=near)
    assert train(replace(begun, learning_rate=8 * START).lower()).losses != pytest.approx(wanted, rel=near)
