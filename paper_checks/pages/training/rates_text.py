"""The words and tables of TRAINING.md on the largest stable learning rate, and on the update as its forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paper_checks.experiments.base import Book
from paper_checks.experiments.stable_rates import AXIS, LAYERS, SCHEMES, gpt, wide
from paper_checks.pages.markdown import bracket, section
from paper_checks.pages.training.numbers import (
    Record,
    Runs,
    cases_by_depth,
    correlation,
    judged_pairs,
    log_rate,
    mean_update,
    trial_of,
)
from paper_checks.pages.training.text import NOTHING, count, forecast, number, opening, update
from paper_checks.routes.forecast import LOOKS, Case, Pair
from paper_checks.routes.training import half_learnt, in_octaves
from sims.stats import LEVEL
from sims.training.outcomes import Edge
from theory.schemes import scheme

MOST_PAIRS = 8
_FAMILIES = {"norm after the sum": True, "not after it": False}
_WORDS: dict[str, str] = dict(zip(LOOKS, ("trains", "learns half"), strict=True))


def stable_rates(record: Record, images: str) -> str:
    return section(
        "training",
        "stable_rates",
        opening=opening(record),
        images=images,
        axis=_axis(record),
        searched=[_searched(one) for one in record.runs.values() if one.arm.grid],
        half=_half(record.book),
        correlations=[row for look in LOOKS for row in _correlations(record.book, look)],
        **_contradictions(record.book),
    )


def _axis(record: Record) -> str:
    trials = [record.experiment.arm(name).trial for name in (gpt(AXIS[0], LAYERS[-1]), wide(AXIS[0]))]
    sizes = dict.fromkeys(12 * trial.num_layers * trial.d_model**2 for trial in trials)
    names = " and ".join(f"{trial.num_layers} layers of width {trial.d_model}" for trial in trials)
    return f"{names} have {' and '.join(f'{size:,}' for size in sizes)} weights in their matrices."


def _searched(one: Runs) -> list[str]:
    trial, edges = one.arm.trial, one.edges(one.seeds)
    num = sum(map(len, one.tried.values()))
    trained = sum(result.has_trained for found in one.tried.values() for result in found.values())
    return [
        f"{trial.shape} {trial.scheme}",
        str(trial.num_layers),
        str(trial.d_model),
        str(len(one.seeds)),
        _rates(edges, one.arm.grid),
        f"{trained} of {num}",
        update(one.updates(one.seeds)),
        forecast(trial),
    ]


def _rates(edges: Sequence[Edge], grid: Sequence[float]) -> str:
    if not edges:
        return NOTHING
    logs = sorted(log_rate(one, grid) for one in edges)
    below, above = sum(one.is_at_bottom for one in edges), sum(one.is_at_top for one in edges)
    if below == len(edges):
        return f"below 2^{math.log2(grid[0]):g}"
    words = [f"2^{logs[0]:g} to 2^{logs[-1]:g}"] * (logs[0] < logs[-1])
    words += [f"{below} of {len(edges)} below 2^{math.log2(grid[0]):g}"] * bool(below)
    words += [f"{above} of {len(edges)} not below 2^{logs[-1]:g}"] * bool(above)
    return f"2^{sum(logs) / len(logs):.2f}" + f" ({'; '.join(words)})" * bool(words)


def _half(book: Book) -> str:
    try:
        return f"{half_learnt(SCHEMES, book)[2]:.3f} nats"
    except (LookupError, ValueError):
        return "a loss that needs all curves"


def _correlations(book: Book, look: str) -> list[list[str]]:
    found = cases_by_depth(book, look)
    every = [case for several in found.values() for case in several]
    prefix = "all, " if len(found) > 1 else ""
    parts = {str(layers): several for layers, several in found.items()}
    parts |= {"all": every} if len(found) > 1 else {}
    parts |= {f"{prefix}{name}": _family(every, has_it) for name, has_it in _FAMILIES.items()} if found else {}
    rows = [[_WORDS[look], name, str(len(several)), *_ranks(several)] for name, several in parts.items()]
    return rows or [[_WORDS[look], "not in the record yet", *[NOTHING] * 3]]


def _family(found: Sequence[Case], has_norm_after: bool) -> list[Case]:
    return [case for case in found if scheme(trial_of(case).scheme).stack.placement.post == has_norm_after]


def _ranks(found: Sequence[Case]) -> list[str]:
    both = correlation(found)
    if both is None:
        return [NOTHING] * 2
    one, seeds = both
    return [bracket(one.value, one.low, one.high), bracket(seeds.mean, seeds.low, seeds.high)]


def _contradictions(book: Book) -> dict[str, Any]:
    """Of the look that all networks have."""
    found = judged_pairs(book, LOOKS[0])
    against = sorted((pair for pair in found if pair.agrees is False), key=lambda pair: pair.rates.octaves.high or 0.0)
    updates = {case.name: case for several in cases_by_depth(book, LOOKS[0]).values() for case in several}
    return {
        "num_pairs": len(found),
        "num_agree": count(found, True),
        "num_against": len(against),
        "by_chance": 2 / (1 - LEVEL),
        "pairs": [_pair_row(pair, updates[pair.smaller], updates[pair.larger]) for pair in against[:MOST_PAIRS]],
    }


def _pair_row(pair: Pair, *both: Case) -> list[str]:
    names = [f"{trial_of(case).scheme} ({number(mean_update(case), 3)})" for case in both]
    return [str(trial_of(both[0]).num_layers), *names, in_octaves(pair.rates)]
