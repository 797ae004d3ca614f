"""What the records of training say, in numbers: runs by arm and seed, their edges, updates and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book, Experiment
from depthlaw.paper_checks.experiments.best_rates import SCHEMES as BEST_SCHEMES
from depthlaw.paper_checks.experiments.scale import SMALL, WIDE
from depthlaw.paper_checks.experiments.stable_rates import LAYERS
from depthlaw.paper_checks.routes.training.arms import ANSWERS, Answered, arm
from depthlaw.paper_checks.routes.training.best_rates import BestRates
from depthlaw.paper_checks.routes.training.questions import SMALLER
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS, Case, Pair, cases
from depthlaw.sims.stats import Estimate, estimate
from depthlaw.sims.training.outcomes import Correlation, Edge, edge, rank_correlation, rank_correlation_over_seeds
from depthlaw.sims.training.store import About, read
from depthlaw.sims.training.train import Look, TrainResult
from depthlaw.system.places import training_record

FACTOR = 2.0
"""The update is as at the start while it is within this factor of it."""
WORDS: dict[str, str] = dict(zip(LOOKS, ("trains", "learns half"), strict=True))


@dataclass(frozen=True)
class Runs:
    """Of an arm. tried: by seed and learning rate, whatever there is, the pilot's left out. seeds: that are done."""

    arm: Arm
    tried: dict[int, dict[float, TrainResult]]
    seeds: tuple[int, ...]

    @property
    def results(self) -> list[TrainResult]:
        """Of an arm without a grid, a seed each."""
        return [self.tried[seed][self.arm.trial.learning_rate] for seed in self.seeds]

    @property
    def edges(self) -> list[Edge]:
        """The largest rate of each seed at which it trains."""
        by_seed = [{rate: result.has_trained for rate, result in self.tried[seed].items()} for seed in self.seeds]
        return [edge(self.arm.grid, has_trained) for has_trained in by_seed]

    @property
    def num_trained(self) -> int:
        """Seeds that trained, of an arm without a grid."""
        return sum(result.has_trained for result in self.results)

    @property
    def num_trained_of_tried(self) -> tuple[int, int]:
        """Runs of all rates that trained, and how many there are."""
        trained = [result.has_trained for by_rate in self.tried.values() for result in by_rate.values()]
        return sum(trained), len(trained)

    @property
    def updates(self) -> list[float]:
        """Of each seed at initialisation, which no learning rate changes."""
        firsts = [next(iter(self.tried[seed].values())).looks[0].update["update"] for seed in self.seeds]
        return [math.nan if first is None else first for first in firsts]


@dataclass(frozen=True)
class Record:
    """What there is of an experiment at a scale. runs: by arm."""

    experiment: Experiment
    scale: str
    book: Book
    abouts: tuple[About, ...]
    runs: dict[str, Runs]

    @classmethod
    def of(cls, name: str, book: Book, abouts: Sequence[About] = (), scale: str = SMALL.name) -> Record:
        plan = experiment(name, scale)
        seeds = sorted({trial.seed for trial in book.trials} - set(PILOT_SEEDS))
        runs = {}
        for asked in plan.arms:
            tried = {seed: there for seed in seeds if (there := asked.tried(book, seed))}
            runs[asked.name] = Runs(asked, tried, tuple(seed for seed in tried if asked.is_done(book, seed)))
        return cls(plan, scale, book, tuple(abouts), runs)

    @classmethod
    def read(cls, name: str, scale: str = SMALL.name) -> Record:
        """A record that is not there is empty. ValueError, in one line, where it does not fit."""
        path = training_record(name, scale)
        rows = list(read(path)) if path.exists() else []
        return cls.of(name, Book.of(rows), [row.about for row in rows], scale)

    def missing(self) -> dict[str, int]:
        """By arm, how many seeds of the plan it lacks."""
        wanted = self.experiment.num_seeds(self.book)
        seeds = {name: {*self.experiment.seeds_of(wanted[runs.arm])} for name, runs in self.runs.items()}
        lacks = {name: len(seeds[name] - {*runs.seeds}) for name, runs in self.runs.items()}
        return {name: num for name, num in lacks.items() if num}


def log_rate(edge: Edge, grid: Sequence[float]) -> float:
    """log2; one step below the grid for an edge that is below it."""
    return math.log2(grid[0] ** 2 / grid[1] if edge.rate is None else edge.rate)


def end(edges: Sequence[Edge]) -> int:
    """Where edges are known on one side only: -1 some are below the grid, 1 some at its top, else 0."""
    return -1 if any(edge.is_at_bottom for edge in edges) else int(any(edge.is_at_top for edge in edges))


def cases_by_depth(book: Book, look: str) -> dict[int, list[Case]]:
    """Of the depths of which some seed has every scheme."""
    by_depth = {}
    for layers in LAYERS:
        with suppress(LookupError, ValueError):  # not in the record, or no arm learns anything
            by_depth[layers] = cases(layers, look, book)
    return by_depth


def trial_of(case: Case) -> Trial:
    return arm("stable-rates", case.name).trial


def mean_update(case: Case) -> float:
    return fmean(case.updates)


def correlation(several: Sequence[Case]) -> tuple[Correlation, Estimate] | None:
    """Spearman's, of the mean update and the mean largest rate over cases, and over seeds; as ``RanksFall`` has it."""
    x = [mean_update(case) for case in several]
    y = [[-math.inf if edge.rate is None else math.log2(edge.rate) for edge in case.edges] for case in several]
    try:
        return rank_correlation(x, list(map(fmean, y))), rank_correlation_over_seeds(x, y)
    except ValueError:  # fewer than two cases, all alike, or not the same seeds
        return None


def judged_pairs(book: Book, look: str) -> list[Pair]:
    """Of all depths, those whose updates differ by their interval, at the level of the claim (Bonferroni)."""
    with suppress(LookupError, ValueError):  # one seed has no interval
        return [pair for several in SMALLER[look].found(book).values() for pair in several]
    return []


def count(pairs: Sequence[Pair], agrees: bool) -> int:
    return sum(pair.agrees is agrees for pair in pairs)


def ratio(look: Look, result: TrainResult) -> float | None:
    """The update at a look over that at the start; None where there is none."""
    now, start = look.update["update"], result.looks[0].update["update"]
    return now / start if now is not None and start else None


def leaves(result: TrainResult) -> Look | None:
    """The first look at which the update is not within FACTOR of its start; None where it always is."""
    for look in result.looks:
        now = ratio(look, result)
        if now is None or not 1 / FACTOR <= now <= FACTOR:
            return look
    return None


def held_out(results: Sequence[TrainResult]) -> tuple[Estimate | None, int]:
    """At the end, of those that did not diverge; and how many did."""
    values = [result.held_out for result in results if result.outcome != "diverged"]
    return (estimate(values) if values else None), len(results) - len(values)


def answer(statement: Answered, record: Record) -> str | None:
    """Yes, no or open; None where the record lacks what it needs."""
    with suppress(LookupError, ValueError):
        return ANSWERS[statement.evidence(record.book).verdict]
    return None


def founds_of(record: Record) -> list[BestRates]:
    """Of every scheme of which a seed is there."""
    there = (BestRates.of(scheme, record.book, record.scale) for scheme in BEST_SCHEMES)
    return [rates for rates in there if rates.seeds]


Records = Mapping[str, Record]
BEST_WIDE = f"best-rates-{WIDE.name}"


@cache
def records() -> Records:
    """By experiment; best-rates at its second width behind them."""
    return {name: Record.read(name) for name in NAMES} | {BEST_WIDE: Record.read("best-rates", WIDE.name)}
