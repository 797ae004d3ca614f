"""The records of the training experiments as numbers: who trained, up to which rate, at what update, for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from paper_checks.experiments import experiment
from paper_checks.experiments.answers import half_learnt
from paper_checks.experiments.base import PILOT_SEEDS, RECORDS, Arm, Book, Experiment
from paper_checks.experiments.stable_rates import CURVE, GRID, LAYERS, gpt
from sims.outcomes import (
    SECOND,
    Correlation,
    Edge,
    EdgeComparison,
    compare_edges,
    edge,
    rank_correlation,
    rank_correlation_over_seeds,
)
from sims.stats import Estimate, estimate
from sims.store import About, read
from sims.train import Look, TrainResult

FACTOR = 2.0
"""The update is as at the start while it is within this factor of it."""


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

    def edges(self, seeds: Sequence[int]) -> list[Edge]:
        return [
            edge(self.arm.grid, {rate: found.has_trained for rate, found in self.tried[seed].items()}) for seed in seeds
        ]

    def updates(self, seeds: Sequence[int]) -> list[float]:
        """At initialisation, which no learning rate changes."""
        firsts = [next(iter(self.tried[seed].values())).looks[0].update["update"] for seed in seeds]
        return [math.nan if first is None else first for first in firsts]


@dataclass(frozen=True)
class Record:
    """What there is of an experiment."""

    experiment: Experiment
    book: Book
    abouts: tuple[About, ...]
    runs: dict[str, Runs]
    """By arm."""

    @classmethod
    def of(cls, name: str, book: Book, abouts: Sequence[About] = ()) -> Record:
        found = experiment(name)
        seeds = sorted({trial.seed for trial in book.trials} - set(PILOT_SEEDS))
        runs = {}
        for arm in found.arms:
            tried = {seed: there for seed in seeds if (there := arm.tried(book, seed))}
            runs[arm.name] = Runs(arm, tried, tuple(seed for seed in tried if arm.is_done(book, seed)))
        return cls(found, book, tuple(abouts), runs)

    @classmethod
    def read(cls, name: str, folder: Path = RECORDS) -> Record:
        """A record that is not there is empty. ValueError, in one line, where it does not fit."""
        path = folder / f"{name}.jsonl"
        rows = list(read(path)) if path.exists() else []
        return cls.of(name, Book.of(rows), [row.about for row in rows])

    def missing(self) -> dict[str, int]:
        """By arm, how many seeds of the plan it lacks."""
        planned = range(self.experiment.plan(self.book).num_seeds)
        return {name: lacks for name, one in self.runs.items() if (lacks := len(set(planned) - set(one.seeds)))}


# ---------------------------------------------------------------- largest rates


def log_rate(found: Edge, grid: Sequence[float]) -> float:
    """log2; one step below the grid for an edge that is below it."""
    return math.log2(grid[0] ** 2 / grid[1] if found.rate is None else found.rate)


def end(found: Sequence[Edge]) -> int:
    """Where edges are known on one side only: -1 some are below the grid, 1 some at its top, else 0."""
    if any(one.is_at_bottom for one in found):
        return -1
    return int(any(one.is_at_top for one in found))


def shared_seeds(runs: Sequence[Runs]) -> list[int]:
    return sorted(set.intersection(*(set(one.seeds) for one in runs))) if runs else []


def compare(first: Runs, second: Runs) -> EdgeComparison | None:
    """First over second, on the first one's grid; None without a seed that both have."""
    seeds = shared_seeds([first, second])
    return compare_edges(first.edges(seeds), second.edges(seeds), first.arm.grid) if seeds else None


# ---------------------------------------------------------------- update and largest rate


@dataclass(frozen=True)
class Case:
    """A scheme at a depth. updates, edges: of each seed, the same seeds for all cases of a set."""

    scheme: str
    num_layers: int
    updates: list[float]
    edges: list[Edge]

    @property
    def update(self) -> float:
        return sum(self.updates) / len(self.updates)

    def logs(self, grid: Sequence[float]) -> list[float]:
        return [log_rate(one, grid) for one in self.edges]


@dataclass(frozen=True)
class RateLook:
    """A way to see the largest stable rate. bound: nats below which a run has to end, where that is not its own."""

    name: str
    grid: tuple[float, ...]
    cases: list[Case]
    bound: float | None = None

    def at(self, num_layers: int) -> RateLook:
        return replace(self, cases=[case for case in self.cases if case.num_layers == num_layers])


TRAINS, HALF = "trains", "learns half"


def looks(record: Record) -> list[RateLook]:
    """Both, of the arms and the curves that have a seed in common; empty where none has."""
    arms = [one for one in record.runs.values() if _is_case(one.arm) and one.seeds]
    seeds = shared_seeds(arms)
    cases = [_case(one, seeds) for one in arms] if seeds else []
    return [RateLook(TRAINS, GRID, cases), _half(record)]


def _is_case(arm: Arm) -> bool:
    return bool(arm.grid) and arm.name in {gpt(arm.trial.scheme, layers) for layers in LAYERS}


def _case(one: Runs, seeds: Sequence[int]) -> Case:
    return Case(one.arm.trial.scheme, one.arm.trial.num_layers, one.updates(seeds), one.edges(seeds))


def _half(record: Record) -> RateLook:
    curves = {one.arm.trial.scheme: one for one in record.runs.values() if _is_curve(one.arm)}
    try:
        found, seeds, bound = half_learnt(tuple(curves), record.book)
    except LookupError:
        return RateLook(HALF, CURVE, [])
    cases = [
        Case(one.arm.trial.scheme, one.arm.trial.num_layers, one.updates(seeds), edges)
        for one, edges in zip(curves.values(), found, strict=True)
    ]
    return RateLook(HALF, CURVE, cases, bound)


def _is_curve(arm: Arm) -> bool:
    return not arm.grid


def correlations(look: RateLook) -> tuple[Correlation, Estimate] | None:
    """Spearman's, of the mean update and the mean largest rate over cases; and over seeds. None where there is none."""
    x, y = [case.update for case in look.cases], [case.logs(look.grid) for case in look.cases]
    try:
        return rank_correlation(x, [sum(row) / len(row) for row in y]), rank_correlation_over_seeds(x, y)
    except ValueError:  # fewer than two cases, or all alike
        return None


@dataclass(frozen=True)
class Pair:
    """Of one depth: the first's update is the smaller, by the interval over seeds. octaves: of its rate over second."""

    first: Case
    second: Case
    rates: EdgeComparison

    @property
    def contradicts(self) -> bool:
        return self.rates.octaves.verdict == SECOND

    @property
    def size(self) -> float:
        """Octaves that the interval is sure of."""
        return -(self.rates.octaves.high or 0.0)


def pairs(look: RateLook) -> list[Pair]:
    found = []
    for one, other in combinations(look.cases, 2):
        if one.num_layers != other.num_layers or len(one.updates) < 2:
            continue
        first, second = sorted((one, other), key=lambda case: case.update)
        less = estimate([a - b for a, b in zip(first.updates, second.updates, strict=True)])
        if less.high is not None and less.high < 0:
            found.append(Pair(first, second, compare_edges(first.edges, second.edges, look.grid)))
    return found


# ---------------------------------------------------------------- along training


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
    values = [one.held_out for one in results if one.outcome != "diverged"]
    return (estimate(values) if values else None), len(results) - len(values)


def top_gradient(look: Look) -> float | None:
    """Norm by the matrices of the decoder's top layer: its three sublayers."""
    parts = look.gradient_norms.get("decoder", [])[-3:]
    known = [part for part in parts if part is not None]
    return math.hypot(*known) if known and len(known) == len(parts) else None
