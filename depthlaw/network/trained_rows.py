"""Rows of training runs as data: of each scheme, optimizer, depth and learning rate, what became of its seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from depthlaw.network.trials import Trial, common
from depthlaw.sims.records.record import in_one_line, rounded
from depthlaw.sims.stats import estimate
from depthlaw.sims.training.data import load
from depthlaw.sims.training.outcomes import share
from depthlaw.sims.training.store import Store, key
from depthlaw.sims.training.sweep import Report
from depthlaw.sims.training.train import OUTCOMES, Look, TrainResult
from depthlaw.system.files import document

Runs = Mapping[Trial, TrainResult | None]
"""None: not run, or failed."""


def document_of_runs(
    runs: Runs, configs: Mapping[Trial, Mapping[str, Any]], report: Report, store: Path
) -> dict[str, Any]:
    """A grid of runs. configs: of each trial, what ``Trial.named`` gave. report: what became of them in this call."""
    first = next(iter(runs))
    return document(
        config=common(configs[first]),
        seeds=list(dict.fromkeys(trial.seed for trial in runs)),
        data=about_data(first),
        rows=rows(runs),
        sweep={"done": report.done, "found": report.found, "failed": dict(report.failed), "left": report.left},
        store=str(store),
        runs=[
            {"config": configs[trial], "result": None if result is None else result.plain()}
            for trial, result in runs.items()
        ],
    )


def kept_results(kept: Store, configs: Mapping[Trial, Mapping[str, Any]]) -> dict[Trial, TrainResult | None]:
    """What a store has of these runs. ValueError, in one line with file and key, for a row that does not fit."""
    results: dict[Trial, TrainResult | None] = dict.fromkeys(configs)
    for trial, config in configs.items() if kept.keys() else ():  # names are not cheap where there are thousands
        with _naming(kept, config):
            result = kept.find(config)
            results[trial] = None if result is None else TrainResult.model_validate(result)
    return results


def check_rows(kept: Store) -> None:
    """ValueError, in one line, unless every run there is one of a ``Trial``, whatever wrote it."""
    for row in kept.rows():
        with _naming(kept, row.config):
            TrainResult.model_validate(row.result)
            Trial.of(row.config).named()


@contextmanager
def _naming(kept: Store, config: Mapping[str, Any]) -> Iterator[None]:
    """What does not fit, with its file and key."""
    try:
        yield
    except (TypeError, ValueError) as error:
        reason = in_one_line(error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{kept.path}: run {key(config)[:12]} does not fit: {reason}") from error


def about_data(trial: Trial) -> dict[str, Any]:
    """guess: nats without looking at the input; uniform: by chance alone."""
    data = load(trial.lower().data)
    numbers = {"guess": rounded(data.guess), "uniform": rounded(math.log(data.num_classes))}
    return {"about": data.about, "digest": data.digest, "num_classes": data.num_classes, **numbers}


def place(trial: Trial) -> dict[str, Any]:
    """What the rows of a table differ in."""
    sides = {"num_layers": trial.num_layers}
    if trial.arch == "encoder-decoder":
        sides["num_decoder_layers"] = trial.sides[1]
    return {"scheme": trial.scheme, "optimizer": trial.optimizer, **sides, "learning_rate": trial.learning_rate}


def rows(runs: Runs) -> list[dict[str, Any]]:
    """One for each place, in the order of the runs."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in runs:
        groups.setdefault(tuple(place(trial).values()), []).append(trial)
    return [_row(trials, [runs[trial] for trial in trials]) for trials in groups.values()]


def _row(trials: Sequence[Trial], results: Sequence[TrainResult | None]) -> dict[str, Any]:
    """Trials that differ in their seed alone. Numbers that nobody can have (no runs, one seed's error) are None.

    held_out: of the runs that did not diverge, and so of a choice of them where some did; ``num`` says of how many.
    """
    there = [(trial, result) for trial, result in zip(trials, results, strict=True) if result is not None]
    done = [result for _, result in there]
    num_trained = sum(result.has_trained for result in done)
    return {
        **place(trials[0]),
        "num_sublayers": trials[0].num_sublayers,
        "num_runs": len(done),
        "num_missing": len(trials) - len(done),
        "outcomes": {name: sum(result.outcome == name for result in done) for name in OUTCOMES},
        "trained": asdict(share(num_trained, len(done))) if done else None,
        "held_out": _estimate(result.held_out for result in done if result.outcome != "diverged"),
        "diverged": [
            {"seed": trial.seed, "num_steps": result.num_steps, "reason": result.reason}
            for trial, result in there
            if result.outcome == "diverged"
        ],
        "updates": [_update(step, done) for step in trials[0].measure_at],
    }


def _update(step: int, results: Sequence[TrainResult]) -> dict[str, Any]:
    """After ``step`` steps: of the runs that came so far. ratio: of each run's update to its own at step 0. moves: by
    role, of ``Moves.logits``, and moves_in_full, of ``Moves.in_full``; empty where they were not asked for."""
    pairs = [(looks[step], looks.get(0)) for looks in map(_looks, results) if step in looks]
    updates = [(look.update.get("update"), start and start.update.get("update")) for look, start in pairs]
    moves = [look.moves for look, _ in pairs if look.moves is not None]
    return {
        "step": step,
        "update": _estimate(update for update, _ in updates),
        "ratio": _estimate(update / start for update, start in updates if update is not None and start),
        "from_start": _estimate(look.from_start for look, _ in pairs),
        **{
            name: {role: _estimate(part.get(role) for part in parts) for role in (parts[0] if parts else ())}
            for name, parts in (
                ("moves", [move.logits for move in moves]),
                ("moves_in_full", [move.in_full for move in moves]),
            )
        },
    }


def _looks(result: TrainResult) -> dict[int, Look]:
    return {look.step: look for look in result.looks}


def _estimate(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Of those that are numbers."""
    numbers = [value for value in values if value is not None]
    return asdict(estimate(numbers)) if numbers else None
