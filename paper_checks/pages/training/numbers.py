"""The records of the training experiments as numbers: who trained, up to which rate, at what update, for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paper_checks.experiments import experiment
from paper_checks.experiments.base import PILOT_SEEDS, Arm, Book, Experiment
from paper_checks.experiments.stable_rates import LAYERS
from paper_checks.lowering.trials import Trial
from paper_checks.routes.forecast import Case, Pair, cases
from paper_checks.routes.questions import SMALLER
from paper_checks.routes.training import arm
from paper_checks.system.places import TRAINING_RECORDS
from sims.stats import Estimate, estimate
from sims.training.outcomes import Correlation, Edge, edge, rank_correlation, rank_correlation_over_seeds
from sims.training.store import About, read
from sims.training.train import Look, TrainResult

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
        for one in found.arms:
            tried = {seed: there for seed in seeds if (there := one.tried(book, seed))}
            runs[one.name] = Runs(one, tried, tuple(seed for seed in tried if one.is_done(book, seed)))
        return cls(found, book, tuple(abouts), runs)

    @classmethod
    def read(cls, name: str, folder: Path = TRAINING_RECORDS) -> Record:
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


# ---------------------------------------------------------------- update and largest rate


def cases_by_depth(book: Book, look: str) -> dict[int, list[Case]]:
    """Of the depths of which some seed has every scheme."""
    found = {}
    for layers in LAYERS:
        with suppress(LookupError, ValueError):  # not in the record, or no arm learns anything
            found[layers] = cases(layers, look, book)
    return found


def trial_of(case: Case) -> Trial:
    return arm("stable-rates", case.name).trial


def mean_update(case: Case) -> float:
    return sum(case.updates) / len(case.updates)


def correlation(found: Sequence[Case]) -> tuple[Correlation, Estimate] | None:
    """Spearman's, of the mean update and the mean largest rate over cases, and over seeds; as ``RanksFall`` has it."""
    x = [mean_update(case) for case in found]
    y = [[-math.inf if one.rate is None else math.log2(one.rate) for one in case.edges] for case in found]
    try:
        return rank_correlation(x, [sum(row) / len(row) for row in y]), rank_correlation_over_seeds(x, y)
    except ValueError:  # fewer than two cases, all alike, or not the same seeds
        return None


def judged_pairs(book: Book, look: str) -> list[Pair]:
    """Of all depths, those whose updates differ by their interval, at the level of the claim (Bonferroni)."""
    with suppress(LookupError, ValueError):  # one seed has no interval
        return [pair for several in SMALLER[look].found(book).values() for pair in several]
    return []


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
