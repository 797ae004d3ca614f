"""Experiments: what is asked for round by round, what a deadline and a failure leave, and what their plans say."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, base, experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book, Experiment, Plan, run
from depthlaw.paper_checks.experiments.scale import LARGE, SMALL
from depthlaw.paper_checks.experiments.warmup import EDGE, EDGE_SEEDS, SAME_SUM, warmed
from depthlaw.sims.cluster import Workers
from depthlaw.sims.training import store, sweep
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


def check_rounds(trains: Trains, *, is_monotone: bool) -> None:
    book = Book({})
    trials = asked(tiny(), trains, book)
    assert len(set(trials)) == len(trials), "asked twice"
    first = next((i for i, trial in enumerate(trials) if trial.seed not in PILOT_SEEDS), len(trials))
    assert {trial.seed for trial in trials[:first]} == set(PILOT_SEEDS), "the pilot comes first"
    assert {trial.seed for trial in trials[first:]} == set(range(SEEDS))
    assert {trial.scheme for trial in trials[:first]} == {TRIAL.scheme}, "and has arms of its own"
    assert tiny().seeds(book) == tuple(range(SEEDS))
    assert list(tiny().rounds(book)) == []
    for arm, seed in itertools.product(ARMS[:2], range(SEEDS) if is_monotone else ()):
        right = max((rate for rate in GRID if trains(arm.at(seed, rate))), default=None)
        assert arm.edge(book, seed).rate == right
        num_runs = sum(arm.at(seed, rate) in book for rate in GRID)
        assert num_runs == len(arm.tried(book, seed))
        assert right is None or num_runs <= math.ceil(math.log2(len(GRID))) + 1


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


@settings(max_examples=settings().max_examples // 3)  # an example is many searches
@given(st.lists(st.integers(0, len(GRID)), min_size=2 * 5, max_size=2 * 5))
def test_searches_end_at_the_edge_and_ask_nothing_twice(places: list[int]) -> None:
    searched: list[tuple[str, int]] = [(s, n) for s in ("pre-ln", "deepnorm") for n in (*PILOT_SEEDS, *range(SEEDS))]
    edges = dict(zip(searched, places, strict=True))

    def trains(trial: Trial) -> bool:
        place = edges.get((trial.scheme, trial.seed), 0)
        return trial.learning_rate in GRID[:place]

    check_rounds(trains, is_monotone=True)


@settings(max_examples=settings().max_examples // 3)
@given(st.sets(st.tuples(st.integers(0, 1), st.sampled_from(GRID))))
def test_searches_end_whatever_trains(fails: set[tuple[int, float]]) -> None:
    check_rounds(lambda trial: (trial.seed % 2, trial.learning_rate) not in fails, is_monotone=False)


def test_some_seeds_come_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a deadline leaves is of few seeds, and those before are done."""
    monkeypatch.setattr(base, "SEEDS_AT_ONCE", 2)
    trials = asked(tiny(plan=lambda _: Plan(5, "5 seeds")), trains_below_an_eighth, Book({}))
    blocks = [trial.seed // 2 for trial in trials if trial.seed not in PILOT_SEEDS]
    assert blocks == sorted(blocks) and set(blocks) == {0, 1, 2}
    assert [trial.seed for trial in trials if trial.seed not in PILOT_SEEDS][:6] == [0, 0, 0, 1, 1, 1]


def trains_below_an_eighth(trial: Trial) -> bool:
    return trial.learning_rate < 1 / 8


def test_only_complete_seeds_count() -> None:
    """Those in a row from 0 with which every arm is done; the pilot's are none of them."""
    book = Book({})
    asked(tiny(plan=lambda _: Plan(3, "3 seeds")), trains_below_an_eighth, book)
    unfinished = max((t for t in book.trials if (t.scheme, t.seed) == (TRIAL.scheme, 2)), key=lambda t: t.learning_rate)
    for left_out, seeds in ((None, (0, 1, 2)), (ARMS[2].at(1), (0,)), (ARMS[2].at(0), ()), (unfinished, (0, 1))):
        assert tiny().seeds(Book({t: book[t] for t in book.trials if t != left_out})) == seeds


class Clock:
    """In place of the module ``time``: a run takes a second, and nothing else takes any."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Bench:
    """``run`` on a store of its own and a text that is read at once, with a result at hand in place of training."""

    def __init__(self, path: Path, clock: Clock, text: str) -> None:
        self.path, self.clock = path, clock
        arms = tuple(replace(arm, trial=replace(arm.trial, text=text)) for arm in ARMS)
        self.tiny = tiny(arms=arms, pilot=arms[:1])
        self.named: list[str] = []
        self.said: list[str] = []

    def execute(self, several: Sequence[Mapping[str, Any]], **_: Any) -> list[dict[str, Any]]:
        return list(map(self.one, several))

    def one(self, named: Mapping[str, Any]) -> dict[str, Any]:
        trial = Trial.of(named)
        self.clock.now += 1
        self.named.append(store.key(named))
        return result(trial, trains_below_an_eighth(trial)).plain()

    def __call__(self, found: Experiment, **rest: Any) -> tuple[Book, base.Ran]:
        with Store(self.path) as kept:
            return run(found, kept, one_thread, ONE_WORKER, say=self.said.append, advance=self._limit, **rest)

    def _limit(self, _: int) -> None:
        """Told where no exception is caught."""
        assert len(self.named) < 80, "it does not end"


ONE_WORKER = Workers(num_workers=1, device="cpu", device_name="cpu", free=2**33)


def one_thread() -> Executor:
    return ThreadPoolExecutor(1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    clock = Clock()
    text = tmp_path / "own.txt"
    text.write_text(" ".join(str(number * number) for number in range(10_000)), encoding="utf-8")
    found = Bench(tmp_path / "runs.sqlite", clock, str(text))
    monkeypatch.setattr(base, "execute", found.execute)
    monkeypatch.setattr(base, "time", clock)
    monkeypatch.setattr(sweep, "time", clock)
    return found


def test_a_deadline_stops_and_the_same_call_goes_on(bench: Bench) -> None:
    """And nothing is run twice."""
    found = bench.tiny
    book, ran = bench(found, deadline=bench.clock.now)
    assert (ran.done, len(bench.named), len(book), ran.is_finished) == (0, 0, 0, False)
    book, ran = bench(found, deadline=bench.clock.now + 4.5)
    assert (ran.done, len(bench.named), len(book)) == (6, 6, 6)  # the pilot's three seeds are trained together, twice
    assert not ran.is_finished and not bench.said, "the pilot is not done, and nobody knows how many seeds"
    book, ran = bench(found)
    assert ran.is_finished and not ran.failed and len(book) == len(bench.named) == 6 + ran.done
    assert found.seeds(book) == (0, 1) and bench.said == ["2 seeds"]
    assert len(set(bench.named)) == len(bench.named), "run twice"
    again, ran = bench(found)
    assert (ran.done, ran.is_finished) == (0, True) and len(bench.named) == len(book)
    assert {t: again[t] for t in again.trials} == {t: book[t] for t in book.trials}


def test_a_store_gives_what_would_be_run_again(bench: Bench) -> None:
    """Runs with other weights or other data stay in the store, and are no part of the book."""
    trial = bench.tiny.arms[0].trial
    named = trial.named()
    with Store(bench.path) as kept:
        for config in (named, named | {"numbers": "0" * 16}, named | {"data": "0" * 64, "seed": 1}):
            kept.add(config, result(trial, True).plain())
        book = base.there(kept)
    assert book.trials == (trial,)


def test_an_arm_may_ask_for_more_seeds_than_the_plan() -> None:
    """It alone has them, and a number of seeds that a person asks for is that of every arm."""
    found = tiny(arms=(*ARMS[:2], replace(ARMS[2], least_seeds=11)))
    for num_seeds, wanted in ((None, (SEEDS, SEEDS, 11)), (1, (1, 1, 1))):
        book = Book({})
        while todo := next(found.rounds(book, num_seeds), None):
            book.update({trial: result(trial, trains_below_an_eighth(trial)) for trial in todo})
        there = {(trial.scheme, trial.seed) for trial in book.trials if trial.seed not in PILOT_SEEDS}
        by_scheme = Counter(scheme for scheme, _ in there)
        assert tuple(by_scheme[arm.trial.scheme] for arm in found.arms) == wanted


def test_warm_up_and_the_lower_rate_sum_up_alike() -> None:
    found = experiment("warmup")
    sums = []
    for name in (warmed(EDGE), SAME_SUM):
        config = found.arm(name).trial.lower()
        sums.append(sum(config.learning_rate * config.rate_at(step) for step in range(config.num_steps)))
    assert sums[0] == pytest.approx(sums[1], rel=1e-12)
    assert seeds_for_shares(0.8, 0.2) <= EDGE_SEEDS


@pytest.mark.parametrize("scale", (SMALL.name, LARGE.name))
@pytest.mark.parametrize("name", NAMES)
def test_arms_are_different_runs_with_names_of_their_own(name: str, scale: str) -> None:
    found = experiment(name, scale)
    assert len({arm.name for arm in found.arms}) == len(found.arms)
    assert len({(arm.trial, arm.grid) for arm in found.arms}) == len(found.arms)
    assert set(found.pilot) <= set(found.arms)
    assert all(arm.trial.learning_rate in arm.grid for arm in found.arms if arm.grid)
    assert not set(PILOT_SEEDS) & set(range(1000)), "as many seeds as the command allows"


def test_what_is_no_experiment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^tiny: two arms have one name$"):
        tiny(arms=(ARMS[0], replace(ARMS[1], name=ARMS[0].name)))
    for name, scale in (("nonesuch", "small"), ("warmup", "huge")):
        with pytest.raises(ValueError, match=r"^unknown \w+ '\w+' \(allowed: [\w, -]+\)$"):
            experiment(name, scale)


@pytest.mark.parametrize("name", NAMES)
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
        assert max(other.trial.measure_at) <= other.trial.num_steps
