"""Experiments: what is asked for round by round, what a deadline and a failure leave, and what their plans say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, base, experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import LARGE
from depthlaw.paper_checks.experiments.warmup import EDGE, EDGE_SEEDS, SAME_SUM, warmed
from depthlaw.sims.training.planning import seeds_for_shares
from depthlaw.sims.training.store import Store
from tests import made_runs

GRID = tuple(2.0**-k for k in range(6, -1, -1))
TRIAL = Trial(scheme="pre-ln", num_layers=1, d_model=8, num_tokens=8, batch_size=2, num_steps=1, learning_rate=GRID[3])
ARMS = (
    Arm(name="searched", trial=TRIAL, grid=GRID),
    Arm(name="also searched", trial=replace(TRIAL, scheme="deepnorm", learning_rate=GRID[0]), grid=GRID),
    Arm(name="one rate", trial=replace(TRIAL, scheme="post-ln")),
)
SEEDS = 2
TINY: dict[str, Any] = {
    "name": "tiny",
    "question": "?",
    "claims": (),
    "arms": ARMS,
    "pilot": ARMS[:1],
    "plan": lambda book: Plan(SEEDS, f"{SEEDS} seeds"),
}


def tiny(**other: Any) -> Experiment:
    return Experiment(**TINY | other)


Trains = Callable[[Trial], bool]


def result(trial: Trial, trains: bool) -> Any:
    return made_runs.result(trial, 2.0 * trial.learning_rate if trains else trial.learning_rate / 2)


def asked(experiment: Experiment, trains: Trains, book: Book) -> list[Trial]:
    """Everything in turn, run as it is asked for. More of it than there is to ask is an endless search."""
    trials: list[Trial] = []
    for todo in experiment.rounds(book):
        assert todo
        trials += todo
        assert len(trials) <= len(experiment.arms) * len(GRID) * (SEEDS + len(PILOT_SEEDS)), "it does not end"
        for trial in todo:
            book[trial] = result(trial, trains(trial))
    return trials


@pytest.mark.parametrize("place", range(GRID.index(TRIAL.learning_rate)))
def test_a_window_below_the_start_is_found_wherever_it_is(place: int) -> None:
    """The lowest rates fail too, by being too slow: bisection alone would jump over it."""
    book = Book({})
    asked(tiny(), lambda trial: trial.learning_rate == GRID[place], book)
    assert ARMS[0].edge(book, 0).rate == GRID[place]


def test_a_search_counts_only_what_it_asked_for() -> None:
    """A run that another arm shares, and that trains by luck above the edge, does not move it."""
    arm, book = ARMS[0], Book({})
    asked(tiny(), trains_below_an_eighth, book)
    edge, lucky = arm.edge(book, 0).rate, arm.at(0, GRID[-2])
    assert lucky not in book and edge is not None and edge < GRID[-2]
    book[lucky] = result(lucky, True)
    assert arm.edge(book, 0).rate == edge


@pytest.mark.parametrize("edge", [-1, 3, len(GRID)])
def test_the_pilot_comes_first_and_nothing_is_asked_twice(edge: int) -> None:
    """Each search ends at its edge, in as few runs as bisection takes; ``test_outcomes`` tries every outcome."""
    book = Book({})
    trials = asked(tiny(), lambda trial: trial.learning_rate in GRID[: max(edge, 0)], book)
    assert len(set(trials)) == len(trials) and list(tiny().rounds(book)) == []
    first = next(i for i, trial in enumerate(trials) if trial.seed not in PILOT_SEEDS)
    assert {(trial.seed, trial.scheme) for trial in trials[:first]} == {(seed, TRIAL.scheme) for seed in PILOT_SEEDS}
    assert {trial.seed for trial in trials[first:]} == set(range(SEEDS)) == set(tiny().seeds(book))
    assert ARMS[0].edge(book, 0).rate == (GRID[edge - 1] if edge > 0 else None)


def trains_below_an_eighth(trial: Trial) -> bool:
    return trial.learning_rate < 1 / 8


def test_only_complete_seeds_count() -> None:
    """Those in a row from 0 with which every arm is done; the pilot's are none of them."""
    book = Book({})
    asked(tiny(plan=lambda _: Plan(3, "3 seeds")), trains_below_an_eighth, book)
    unfinished = max((t for t in book.trials if (t.scheme, t.seed) == (TRIAL.scheme, 2)), key=lambda t: t.learning_rate)
    for left_out, seeds in ((None, (0, 1, 2)), (ARMS[2].at(1), (0,)), (ARMS[2].at(0), ()), (unfinished, (0, 1))):
        assert tiny().seeds(Book({t: book[t] for t in book.trials if t != left_out})) == seeds


def test_an_experiment_may_begin_at_a_seed_of_its_own() -> None:
    book = Book({})
    later = replace(tiny(), first_seed=100)
    trials = asked(later, trains_below_an_eighth, book)
    assert {trial.seed for trial in trials} - {*PILOT_SEEDS} == {*later.seeds(book)} == {*range(100, 100 + SEEDS)}
    assert later.missing(book, SEEDS) == [] and tiny().seeds(book) == ()


def test_a_store_gives_what_would_be_run_again(tmp_path: Path) -> None:
    """Runs with other weights or other data stay in the store, and are no part of the book."""
    text = tmp_path / "own.txt"
    text.write_text(" ".join(str(number * number) for number in range(10_000)), encoding="utf-8")
    trial = replace(TRIAL, text=str(text))
    named = trial.named()
    with Store(tmp_path / "runs.sqlite") as kept:
        for config in (named, named | {"numbers": "0" * 16}, named | {"data": "0" * 64, "seed": 1}):
            kept.add(config, result(trial, True).plain())
        assert base.there(kept).trials == (trial,)


@pytest.mark.wide
def test_warm_up_and_the_lower_rate_sum_up_alike() -> None:
    found = experiment("warmup")
    sums = []
    for name in (warmed(EDGE), SAME_SUM):
        config = found.arm(name).trial.lower()
        sums.append(sum(config.learning_rate * config.rate_at(step) for step in range(config.num_steps)))
    assert sums[0] == pytest.approx(sums[1], rel=1e-12)
    assert seeds_for_shares(0.8, 0.2) <= EDGE_SEEDS


def test_what_is_no_experiment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^tiny: two arms have one name$"):
        tiny(arms=(ARMS[0], replace(ARMS[1], name=ARMS[0].name)))
    for name, scale in (("nonesuch", "small"), ("warmup", "huge")):
        with pytest.raises(ValueError, match=r"^unknown \w+ '\w+' \(allowed: [\w, -]+\)$"):
            experiment(name, scale)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "transfer"])  # which has a size of its own
def test_large_is_a_run_that_can_be(name: str) -> None:
    """Of the same arms, wider, longer and in bfloat16. The first and the last arm, at 100 layers at most."""
    small, large = experiment(name), experiment(name, "large")
    assert [arm.name for arm in small.arms] == [arm.name for arm in large.arms]
    few = [arm for arm in large.arms if arm.trial.num_layers <= 24]
    for trial in (few[0].trial, few[-1].trial):
        config = trial.lower()
        assert (config.precision, config.batch_size % 32) == ("bfloat16", 0)
        assert config.model.d_model >= LARGE.d_model and trial.d_model % trial.num_heads == 0
    for one, other in zip(small.arms, large.arms, strict=True):
        assert other.trial.num_steps == LARGE.more * one.trial.num_steps
        assert other.trial.warmup_steps == LARGE.more * one.trial.warmup_steps
        assert max(other.trial.measure_at, default=0) <= other.trial.num_steps
