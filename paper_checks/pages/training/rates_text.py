"""The words and tables of TRAINING.md on the largest stable learning rate, and on the update as its forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paper_checks.experiments.base import Book
from paper_checks.experiments.stable_rates import AXIS, LAYERS, SCHEMES, gpt, wide
from paper_checks.pages.markdown import table
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
from paper_checks.pages.training.text import NOTHING, bracket, count, forecast, number, opening, update
from paper_checks.routes.forecast import LOOKS, Case, Pair
from paper_checks.routes.training import half_learnt, in_octaves
from sims.stats import LEVEL
from sims.training.outcomes import Edge
from theory.schemes import scheme

MOST_PAIRS = 8
_RATE_HEADS = ("network", "layers", "width", "seeds", "largest rate", "trained of tried", "U at start", "predicted")
_RANK_HEADS = ("largest rate at which it", "layers", "networks", "over networks", "over seeds")
_PAIR_HEADS = ("layers", "smaller update (U)", "larger update (U)", "octaves of rate, first over second")
_FAMILIES = {"norm after the sum": True, "not after it": False}
_WORDS: dict[str, str] = dict(zip(LOOKS, ("trains", "learns half"), strict=True))


def stable_rates(record: Record, images: str) -> str:
    return f"""{opening(record)}{images}### Largest rates

The largest rate of the grid at which a seed trains, as a power of 2: the mean over seeds, and the least and the
largest seed. The true one is between it and the next of the grid. Tried: all runs of the searches. U: mean, and least
to largest seed; beside it what the kernel rung predicts at infinite width, where it does. {_axis(record)}

{table(_RATE_HEADS, [_searched(one) for one in record.runs.values() if one.arm.grid])}
### Does the update predict it?

Spearman's correlation of U at initialisation and the largest rate, both means over seeds. "Smaller update, larger rate"
would be -1. The first interval asks whether other networks would show it, the second whether other seeds would at the
same networks. Over all depths the points of one scheme are kin, so that row's first interval is too short. "Trains":
a run ends below what can be had without its input. "Learns half": it ends below {_half(record.book)}, half of the way
from there to the best arm of the curves; where an arm never comes so far, its rate counts as below all that were tried.
Last rows of each: the schemes that norm the sum of stream and branch, as Post-LN does, and the others; this split was
thought of when the figure was seen.

{table(_RANK_HEADS, [row for look in LOOKS for row in _correlations(record.book, look)])}
{_contradictions(record.book)}
"""


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


def _contradictions(book: Book) -> str:
    """Of the look that all networks have."""
    found = judged_pairs(book, LOOKS[0])
    against = sorted((pair for pair in found if pair.agrees is False), key=lambda pair: pair.rates.octaves.high or 0.0)
    if not found:
        return "No two networks of one depth in the record have updates that differ by their interval.\n"
    said = (
        f"Of {len(found)} pairs of one depth whose updates differ by their interval over seeds, {count(found, True)} "
        f"have the larger rate with the smaller update and {len(against)} contradict it; the rest are open. Of pairs "
        f"without a difference, one in {2 / (1 - LEVEL):.0f} or fewer would contradict it by chance."
    )
    if not against:
        return f"{said}\n"
    updates = {case.name: case for several in cases_by_depth(book, LOOKS[0]).values() for case in several}
    rows = [_pair_row(pair, updates[pair.smaller], updates[pair.larger]) for pair in against[:MOST_PAIRS]]
    which = "Those" if len(against) <= MOST_PAIRS else f"The {MOST_PAIRS} clearest of those"
    return f"{said} {which} that contradict:\n\n{table(_PAIR_HEADS, rows)}"


def _pair_row(pair: Pair, *both: Case) -> list[str]:
    names = [f"{trial_of(case).scheme} ({number(mean_update(case), 3)})" for case in both]
    return [str(trial_of(both[0]).num_layers), *names, in_octaves(pair.rates)]
