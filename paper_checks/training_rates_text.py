"""The words and tables of TRAINING.md on the largest stable learning rate, and on the update as its forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from paper_checks.experiments.answers import in_octaves
from paper_checks.experiments.stable_rates import AXIS, BERT_SCHEMES, LAYERS, bert, gpt, wide
from paper_checks.training_numbers import (
    HALF,
    TRAINS,
    Case,
    RateLook,
    Record,
    Runs,
    compare,
    correlations,
    log_rate,
    looks,
    pairs,
)
from paper_checks.training_text import NOTHING, along, bracket, forecast, opening, update
from paper_checks.transformers_text import table
from paper_checks.trials import Trial
from sims.outcomes import Edge
from sims.stats import LEVEL

MOST_PAIRS = 8


def stable_rates(record: Record, images: str) -> str:
    experiment, found = record.experiment, looks(record)
    return f"""{opening(record)}{images}### Largest rates

The largest rate of the grid at which a seed trains, as a power of 2: the mean over seeds, and the least and the
largest seed. The true one is between it and the next of the grid. Tried: all runs of the searches. U: mean, and least
to largest seed; beside it what the kernel rung predicts at infinite width, where it does.

{
        table(
            [
                "network",
                "layers",
                "width",
                "seeds",
                "largest rate",
                "trained of tried",
                "U at initialisation",
                "predicted",
            ],
            [_searched(one) for one in record.runs.values() if one.arm.grid],
        )
    }
### Does the update predict it?

Spearman's correlation of U at initialisation and the largest rate, both means over seeds. "Smaller update, larger rate"
would be -1. The first interval asks whether other networks would show it, the second whether other seeds would at the
same networks. Over all depths the points of one scheme are kin, so that row's first interval is too short. "{TRAINS}":
a run ends below what can be had without its input. "{HALF}": it ends below {_half(found)}, half of the way from there
to the best arm of the curves; where an arm never comes so far, its rate counts as below all that were tried.

{table(["largest rate at which it", "layers", "networks", "over networks", "p", "over seeds"], _correlations(found))}
{_pairs(found[0])}
### BERT-like networks

Octaves between the largest rates, first over second, paired by seed. S3-41 has Post-LN below Pre-LN below Magneto.

{table(["first over second", "octaves"], _between(record, [bert(scheme) for scheme in reversed(BERT_SCHEMES)]))}
### Deep and narrow against shallow and wide

{_axis_words(experiment.arm(gpt(AXIS[0], LAYERS[-1])).trial, experiment.arm(wide(AXIS[0])).trial)}

{table(["scheme", "octaves, deep and narrow over shallow and wide"], _axis(record))}
"""


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
    if (num := sum(one.is_at_bottom for one in edges)) == len(edges):
        return f"below 2^{math.log2(grid[0]):g}"
    words = [f"{num} of {len(edges)} below 2^{math.log2(grid[0]):g}"] * bool(num)
    words += [f"{top} of {len(edges)} not below 2^{logs[-1]:g}" for top in [sum(one.is_at_top for one in edges)] if top]
    shown = [f"2^{logs[0]:g} to 2^{logs[-1]:g}"] * (logs[0] < logs[-1])
    rest = f" ({'; '.join(shown + words)})" if shown or words else ""
    return f"2^{sum(logs) / len(logs):.2f}{rest}"


def _correlations(found: Sequence[RateLook]) -> list[list[str]]:
    rows = []
    for look in found:
        depths = sorted({case.num_layers for case in look.cases})
        for name, part in [(str(n), look.at(n)) for n in depths] + [("all", look)] * (len(depths) > 1):
            both = correlations(part)
            cells = [NOTHING] * 3
            if both is not None:
                one, seeds = both
                p = f"{one.p_value:.2g}"
                cells = [bracket(one.value, one.low, one.high), p, bracket(seeds.mean, seeds.low, seeds.high)]
            rows.append([look.name, name, str(len(part.cases)), *cells])
        if not look.cases:
            rows.append([look.name, "not in the record yet", *[NOTHING] * 4])
    return rows


def _half(found: Sequence[RateLook]) -> str:
    bounds = [look.bound for look in found if look.bound is not None]
    return f"{bounds[0]:.3f} nats" if bounds else "a bound that needs all curves"


def _pairs(look: RateLook) -> str:
    judged = pairs(look)
    against = sorted((pair for pair in judged if pair.contradicts), key=lambda pair: -pair.size)
    if not judged:
        return "No two networks of one depth in the record have updates that differ by their interval.\n"
    said = (
        f"Of {len(judged)} pairs of one depth whose updates differ by their interval over seeds, {along(judged)} have "
        f"the larger rate with the smaller update and {len(against)} contradict it; the rest are open. "
        f"Of pairs without a difference, one in {2 / (1 - LEVEL):.0f} or fewer would contradict it by chance."
    )
    if not against:
        return f"{said}\n"
    rows = [
        [str(pair.first.num_layers), _of(pair.first), _of(pair.second), in_octaves(pair.rates)]
        for pair in against[:MOST_PAIRS]
    ]
    which = "Those" if len(against) <= MOST_PAIRS else f"The {MOST_PAIRS} clearest of those"
    heads = ["layers", "smaller update (U)", "larger update (U)", "octaves of rate, first over second"]
    return f"{said} {which} that contradict:\n\n{table(heads, rows)}"


def _of(case: Case) -> str:
    return f"{case.scheme} ({case.update:.3g})"


def _between(record: Record, names: Sequence[str]) -> list[list[str]]:
    rows = []
    for one, other in combinations(names, 2):
        found = compare(record.runs[one], record.runs[other])
        rows.append([f"{one} over {other}", NOTHING if found is None else in_octaves(found)])
    return rows


def _axis_words(deep: Trial, shallow: Trial) -> str:
    sizes = [12 * trial.num_layers * trial.d_model**2 for trial in (deep, shallow)]
    return (
        f"{deep.num_layers} layers of width {deep.d_model} against {shallow.num_layers} of width {shallow.d_model}: "
        f"{' and '.join(f'{size:,}' for size in dict.fromkeys(sizes))} weights in the matrices of either."
    )


def _axis(record: Record) -> list[list[str]]:
    rows = []
    for scheme in AXIS:
        found = compare(record.runs[gpt(scheme, LAYERS[-1])], record.runs[wide(scheme)])
        rows.append([scheme, NOTHING if found is None else in_octaves(found)])
    return rows
