"""What an experiment is: arms, each trained with every seed; what so many seeds tell, said beforehand from a pilot.

An arm is one trial; or, with a grid, a search for the largest learning rate of the grid at which a seed trains, by
bisection (``sims.training.outcomes.next_rate``): each run depends on what the ones before it gave, so an experiment
goes round by round, and a round is a sweep. What was run before is never run again, so that one that is stopped goes
on.

The pilot has seeds of its own, which no answer counts: a number of seeds that hangs on the very runs that are judged
would make their intervals too short.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.network.trials import Trial, execute, kind_of

if TYPE_CHECKING:
    from depthlaw.sims.cluster import Workers
    from depthlaw.sims.training.outcomes import Edge
    from depthlaw.sims.training.store import Row, Store
    from depthlaw.sims.training.train import TrainResult

PILOT_SEEDS = (1000, 1001, 1002)
LEAST_SEEDS = 5
"""Which the claims' open parts asked for, however few the pilot would do with."""

SEEDS_AT_ONCE = 8
"""As many as a worker trains together on a CPU (``depthlaw.network.trials``): fewer would leave arms that have no
other of their shape alone, and more would leave a budget that ends with more seeds that are not done.
"""


class Book(dict[Trial, "TrainResult"]):
    """Finished runs, by their trial."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Book:
        return cls({Trial.of(row.config): _result(row.result) for row in rows})

    @classmethod
    def read(cls, path: Path) -> Book:
        """A record of the project. OSError without the file; ValueError, in one line, where it does not fit."""
        from depthlaw.sims.training.store import read

        return cls.of(read(path))

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(self)


def _result(plain: Mapping[str, Any]) -> TrainResult:
    from pydantic import ValidationError

    from depthlaw.sims.records.record import in_one_line
    from depthlaw.sims.training.train import TrainResult

    try:
        return TrainResult.model_validate(plain)
    except ValidationError as error:
        raise ValueError(f"a result does not fit: {in_one_line(error)}") from None


@cache
def _at(trial: Trial, seed: int, rate: float | None) -> Trial:
    """Every look at a search goes through its trials again."""
    rates = {} if rate is None else {"learning_rate": rate}
    return replace(trial, seed=seed, **rates)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """trial: its seed and, with a grid, its learning rate (where the search starts) are replaced. least_seeds: how many
    the arm has where the plan of the experiment says fewer."""

    name: str
    trial: Trial
    grid: tuple[float, ...] = ()
    least_seeds: int = 0

    def at(self, seed: int, rate: float | None = None) -> Trial:
        return _at(self.trial, seed, rate)

    def tried(self, book: Book, seed: int) -> dict[float, TrainResult]:
        """By learning rate, what there is of a seed; of a search only what it asks for, in that order, so that runs
        which other arms share do not look like luck."""
        return self._replay(book, seed)[0]

    def next(self, book: Book, seed: int) -> Trial | None:
        """What to run next of a seed; None where there is nothing more to run."""
        return self._replay(book, seed)[1]

    def _replay(self, book: Book, seed: int) -> tuple[dict[float, TrainResult], Trial | None]:
        if not self.grid:
            trial = self.at(seed)
            return ({trial.learning_rate: book[trial]}, None) if trial in book else ({}, trial)
        results: dict[float, TrainResult] = {}
        while (rate := self._next_rate(results)) is not None:
            if (trial := self.at(seed, rate)) not in book:
                return results, trial
            results[rate] = book[trial]
        return results, None

    def _next_rate(self, results: Mapping[float, TrainResult]) -> float | None:
        """By bisection; and where nothing trained, whatever is left below the start, from above: the lowest rates fail
        too, by being too slow, so that a window between those that were tried may have been missed."""
        from depthlaw.sims.training.outcomes import next_rate

        outcomes, start = _outcomes(results), self.trial.learning_rate
        rate = next_rate(self.grid, outcomes, start)
        if rate is not None or any(outcomes.values()):
            return rate
        return next((rate for rate in reversed(self.grid) if rate < start and rate not in results), None)

    def is_done(self, book: Book, seed: int) -> bool:
        return self.next(book, seed) is None

    def edge(self, book: Book, seed: int) -> Edge:
        """ValueError where the search is not done."""
        from depthlaw.sims.training.outcomes import edge

        return edge(self.grid, _outcomes(self.tried(book, seed)))


def _outcomes(results: Mapping[float, TrainResult]) -> dict[float, bool]:
    return {rate: result.has_trained for rate, result in results.items()}


@dataclass(frozen=True)
class Plan:
    """num_seeds: that decide, worked out from the pilot; text: how, for people."""

    num_seeds: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """name: of its command and record. question: what it is for. claims: that it is to decide. pilot: the arms that
    are run with PILOT_SEEDS. plan: how many seeds these say are enough. first_seed: those that answer are counted from
    it on."""

    name: str
    question: str
    claims: tuple[str, ...]
    arms: tuple[Arm, ...]
    pilot: tuple[Arm, ...]
    plan: Callable[[Book], Plan]
    first_seed: int = 0

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name}: two arms have one name")

    @property
    def rules(self) -> str:
        """What was planned before the first run, and how each number is found: the docstring of the plan's module."""
        return inspect.getdoc(inspect.getmodule(self.plan)) or ""

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def seeds(self, book: Book) -> tuple[int, ...]:
        """Those from the first on with which every arm is done: what an answer counts."""
        seed = self.first_seed
        while all(arm.is_done(book, seed) for arm in self.arms):
            seed += 1
        return tuple(range(self.first_seed, seed))

    def missing(self, book: Book, num_seeds: int | None = None) -> list[Trial]:
        """Of each arm that is not done what it runs first: what the memory has to be enough for."""
        seeds = self.seeds_of(LEAST_SEEDS if num_seeds is None else num_seeds)
        both = [
            (arm, seed)
            for arms, those in ((self.pilot, PILOT_SEEDS), (self.arms, seeds))
            for arm in arms
            for seed in those
        ]
        return [trial for arm, seed in both if (trial := arm.next(book, seed)) is not None]

    def rounds(self, book: Book, num_seeds: int | None = None) -> Iterator[list[Trial]]:
        """What to run next, again and again until there is nothing: the pilot, then some seeds after the other, since
        runs of one shape are trained together.

        Whoever runs them puts the results into the book before asking for more; a trial that failed must not come back.
        """
        yield from _until_done({arm: PILOT_SEEDS for arm in self.pilot}, book)
        wanted = self.num_seeds(book) if num_seeds is None else dict.fromkeys(self.arms, num_seeds)
        for first in range(0, max(wanted.values()), SEEDS_AT_ONCE):
            yield from _until_done(
                {arm: self.seeds_of(num)[first : first + SEEDS_AT_ONCE] for arm, num in wanted.items()}, book
            )

    def seeds_of(self, num_seeds: int) -> range:
        """So many, from the first on."""
        return range(self.first_seed, self.first_seed + num_seeds)

    def num_seeds(self, book: Book) -> dict[Arm, int]:
        """How many seeds each arm is to have, once the pilot is done."""
        planned = self.plan(book).num_seeds
        return {arm: max(planned, arm.least_seeds) for arm in self.arms}


def _until_done(seeds_of: Mapping[Arm, Sequence[int]], book: Book) -> Iterator[list[Trial]]:
    several = sorted((seed, place, arm) for place, (arm, seeds) in enumerate(seeds_of.items()) for seed in seeds)
    while todo := [trial for seed, _, arm in several if (trial := arm.next(book, seed)) is not None]:
        yield todo


@dataclass
class Ran:
    """What a call of ``run`` came to. done: runs made now. failed: a line each, by key. is_finished: every arm has
    its seeds; where not, the deadline came first, or runs failed."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    is_finished: bool = False


def there(store: Store) -> Book:
    """The runs of a store that this checkout would make again: with its numbers, and this machine's data."""
    return Book.of(row for row in store.rows() if Trial.of(row.config).named() == row.config)


def run(
    experiment: Experiment,
    store: Store,
    make_executor: Callable[[], Executor],
    workers: Workers,
    *,
    num_seeds: int | None = None,
    deadline: float | None = None,
    say: Callable[[str], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Book, Ran]:
    """Run what the store lacks, until the deadline (of time.monotonic). The book has what was there before, too.

    ValueError, in one line, for data that cannot be read.
    """
    from depthlaw.sims.training.sweep import sweep

    book, ran = there(store), Ran()
    work = partial(execute, device=workers.device)
    kind = partial(kind_of, device=workers.device, free=workers.free)
    has_plan = False
    for todo in experiment.rounds(book, num_seeds):
        if not has_plan and all(arm.is_done(book, seed) for arm in experiment.pilot for seed in PILOT_SEEDS):
            say(experiment.plan(book).text)
            has_plan = True
        named = {trial: trial.named() for trial in todo}
        report = sweep(
            named.values(),
            work,
            store,
            make_executor,
            kind_of=kind,
            at_once=2 * workers.num_workers,
            device=workers.device_name,
            deadline=deadline,
            advance=advance,
        )
        ran.done += report.done
        ran.failed |= report.failed
        for trial, config in named.items():
            if (result := store.find(config)) is not None:
                book[trial] = _result(result)
        if report.failed or report.left or (deadline is not None and time.monotonic() > deadline):
            break
    ran.is_finished = next(experiment.rounds(book, num_seeds), None) is None
    return book, ran
