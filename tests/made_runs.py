"""Runs that nobody trained, for tests of what is made of runs: of every arm of every experiment, by a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, experiment
from depthlaw.paper_checks.experiments.base import Arm, Book
from depthlaw.paper_checks.experiments.scale import SMALL, WIDE
from depthlaw.paper_checks.pages.training.runs import BEST_WIDE, Record
from depthlaw.sims.training.train import Look, Moves, TrainResult

GUESS = 3.0
UPDATES = {"post-ln": 30.0, "pre-ln": 20.0, "normformer": 40.0, "sub-ln-gamma": 22.0, "deepnorm": 5.0, "su-adam": 1.0}
"""At initialisation; of other schemes 10."""
Edges = Callable[[Trial], float]
"""The learning rate of a trial from which on it fails."""


def update(trial: Trial) -> float:
    return UPDATES.get(trial.scheme, 10.0) * (1 + trial.seed / 100)


def as_claimed(trial: Trial) -> float:
    """The smaller the update, the larger the rate."""
    return 2.0 ** (-2.2 - math.log2(UPDATES.get(trial.scheme, 10.0)))


def moves(moved: float, step: int) -> Moves:
    return Moves(
        logits={"update": moved, "whole": moved, "along": moved / 4, "unshared": moved / 2},
        loss={"own": 8.0, "other": 2.0, "independent": 0.5, "most": 10.0},
        weights={"fc2": 0.1},
        made={"fc2": step / 1000},
        steps={"fc2": 1.0},
        stream={"encoder": [1.0, 2.0 + step]},
    )


def result(trial: Trial, edge: float) -> TrainResult:
    """Below its edge a run learns, the faster the larger the rate; above it is stuck."""
    learns = trial.learning_rate < edge
    end = GUESS - 1 / (1 + math.log2(edge / trial.learning_rate)) if learns else GUESS + 0.1
    steps = trial.num_steps
    norms: dict[str, list[float | None]] = {"decoder": [1.0, 2.0, 2.0]}
    looks = [
        Look(
            step=step,
            update={"update": update(trial) * 0.9**step},
            from_start=step / 10,
            gradient_norms=norms,
            moves=moves(update(trial) * 0.9**step, step) if trial.has_moves else None,
        )
        for step in trial.measure_at
    ]
    return TrainResult(
        outcome="trained" if learns else "stuck",
        reason="made",
        num_steps=steps,
        held_out=end,
        best=end,
        guess=GUESS,
        losses=[5 + (end - 5) * (step + 1) / steps for step in range(steps)],
        held_out_at=[(0, 5.0), (steps, end)],
        looks=looks,
        num_parameters=1,
        seconds=1.0,
    )


def fill(arms: Iterable[Arm], seeds: Iterable[int], edge: Edges = as_claimed) -> Book:
    """What an experiment would have run of these arms."""
    book, seeds = Book({}), tuple(seeds)
    for arm in arms:
        for seed in seeds:
            own = Book({})
            while (trial := arm.next(own, seed)) is not None:
                own[trial] = result(trial, edge(trial))
            for trial in own.trials:
                book[trial] = own[trial]
    return book


def record(name: str, num_seeds: int = 3, edge: Edges = as_claimed) -> Record:
    return Record.of(name, fill(experiment(name).arms, range(num_seeds), edge))


def records() -> Mapping[str, Record]:
    """Of every experiment; nothing is there of the second width of best-rates."""
    return {name: record(name) for name in NAMES} | {BEST_WIDE: nothing_of("best-rates", WIDE.name)}


def nothing_of(name: str, scale: str = SMALL.name) -> Record:
    return Record.of(name, Book({}), scale=scale)


def changed(record: Record, pick: Callable[[Trial], bool], **to: object) -> Record:
    """With other numbers in the runs that are picked."""
    results = {trial: record.book[trial] for trial in record.book.trials}
    moved = {t: r.model_copy(update=to) if pick(t) else r for t, r in results.items()}
    return Record.of(record.experiment.name, Book(moved), record.abouts)
