"""The best learning rate by depth: does it stay where the update is flat, and move by as much as the update elsewhere?

One network learns best at some rate. If its first update, U per unit rate, decided which, the best rate would go over
depth as 1/U: where U grows as N^p, best rates at 4 to 32 layers would fall on a line of slope -p in logarithms, and
where U is flat, of slope 0. Six ways to build a decoder, each trained at every depth with the same rates, batches and
number of tokens under AdamW; nothing else is tuned by depth.

The plan, written before the first run that is counted:

- Rates: six, 1.5 octaves apart, the same at every depth of a scheme. A first look (seed 1000, rates by factors of 4, 4
  and 16 layers) had the least loss at 4 layers near 2^-7 for su-pre-adam and llama-2, near 2^-5 for the others: the
  grid of the first two is half a step of that look lower. No grid moves afterwards.
- The best rate of a seed at a depth: the vertex of the parabola through the logarithm of the held-out loss at the
  least and its two neighbours, over log2 of the rate. A least loss at an end of the grid is no optimum: the seed's best
  rate is beyond the grid, and its slope is not known.
- The slope of a seed: of log2(best rate) on log2(N) over 4, 8, 16 and 32 layers, by least squares. The interval is
  Student's over the seeds, so that a seed counts once, however its depths hang together.
- Predicted: minus the slope of log2 U on log2 N over the same depths, at infinite width without a fitted constant, and
  measured before the first step on the very networks.
- A scheme is flat where the predicted slope is within MARGIN of 0. Its best rate stays put if the interval lies within
  MARGIN of 0, and does not if it lies outside. Of another scheme the best rate moves as the update does if the interval
  leaves out 0 and holds the predicted slope, and does not if it leaves out the predicted slope.
- Which predictor is better, the update or "no move at all": the factor b of measured = b x predicted slope over the
  schemes whose update grows (flat ones weigh nothing), by least squares through 0 for each seed, Student's over the
  seeds. b = 1: as much as the update; b = 0: not at all; above 1/2 the update is nearer in mean square. (The update
  relative to the stream is no third predictor: all six norm the stream before the head, so that U is relative to it.)
- The second width, 64, is --scale wide, the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any

from depthlaw.network.trials import OF_RECIPE, Trial
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale

if TYPE_CHECKING:
    from depthlaw.sims.training.train import TrainResult

LAYERS = (4, 8, 16, 32)
LLAMA = f"{OF_RECIPE}llama-2"
SCHEMES = ("pre-ln", "gpt2", "depth-mup", "completep", "su-pre-adam", LLAMA)
OPTIMIZER = "adamw"
STEP = 1.5
"""Octaves between rates."""
HIGH = tuple(2.0 ** (k * STEP) for k in range(-6, 0))
LOW = tuple(rate / 2**STEP for rate in HIGH)
GRIDS = {scheme: LOW if scheme in ("su-pre-adam", LLAMA) else HIGH for scheme in SCHEMES}
MARGIN = 0.25
"""Of a slope: three quarters of an octave from 4 to 32 layers."""
WEIGHT_DECAY = 0.01
"""That of torch's AdamW."""
TOLD = 0.5
"""A slope that the seeds are to tell from none."""
_STEPS = 120
_PILOT = ("pre-ln", (4, 16))


def arm_name(scheme: str, num_layers: int, rate: float) -> str:
    return f"{scheme} {num_layers} at 2^{math.log2(rate):g}"


def make(scale: Scale) -> Experiment:
    shared: dict[str, Any] = scale.shared(_STEPS, warmup=0.1) | {"measure_at": (0,), "optimizer": OPTIMIZER}
    shared |= {"weight_decay": WEIGHT_DECAY, "schedule": "cosine", "evaluate_every": shared["num_steps"]}
    arms = tuple(
        Arm(
            name=arm_name(scheme, layers, rate),
            trial=Trial(scheme=scheme, num_layers=layers, learning_rate=rate, **shared),
        )
        for layers in LAYERS
        for scheme in SCHEMES
        for rate in GRIDS[scheme]
    )
    scheme, depths = _PILOT
    names = {arm_name(scheme, layers, rate) for layers in depths for rate in GRIDS[scheme]}
    return Experiment(
        name="best-rates",
        question="Does the best learning rate by loss stay put over depth where the update is flat, and move by as "
        "much as the update does where it is not?",
        claims=(),
        arms=arms,
        pilot=tuple(arm for arm in arms if arm.name in names),
        plan=_plan,
    )


def _plan(book: Book) -> Plan:
    """Seeds that tell a slope of TOLD from none, by the scatter of the pilot's slopes over two depths."""
    from depthlaw.sims.training.planning import largest_sd, seeds_for_difference

    scheme, (shallow, deep) = _PILOT
    slopes = []
    for seed in PILOT_SEEDS:
        # The pilot's runs are found by their seeds: whatever scale it ran at.
        of_seed = {t: book[t] for t in book.trials if (t.seed, t.scheme) == (seed, scheme)}
        if {trial.num_layers for trial in of_seed} >= {shallow, deep}:
            of_best = slope({layers: best_rate(losses_of(of_seed, layers)) for layers in (shallow, deep)})
            slopes += [] if of_best is None else [of_best]
    if len(slopes) < 2:
        return Plan(LEAST_SEEDS, f"{LEAST_SEEDS} seeds: the pilot has no scatter to go by")
    fewer, all_ = (_spread(depths) for depths in ((shallow, deep), LAYERS))
    sd = largest_sd(slopes) * fewer / all_
    try:
        needed = str(max(3, seeds_for_difference(sd, TOLD)))
    except ValueError:
        needed = "more than 1,000"
    text = (
        f"pilot: {len(slopes)} seeds of {scheme} at {shallow} and {deep} layers; the slope over all depths scatters by "
        f"at most {sd:.2g} (one-sided 0.8). At power 0.9 and level 0.95 a slope of {TOLD:g}, less than what is "
        f"predicted where the update grows, takes {needed} seeds to tell from none. {LEAST_SEEDS} are run; --seeds for "
        "more."
    )
    return Plan(LEAST_SEEDS, text)


# ---------------------------------------------------------------- from losses to slopes


def losses_of(runs: Mapping[Trial, TrainResult], num_layers: int) -> dict[float, float | None]:
    """The held-out loss at the end by learning rate, of the runs of that depth; None of one that diverged."""
    return {t.learning_rate: result.held_out for t, result in runs.items() if t.num_layers == num_layers}


def best_rate(losses: Mapping[float, float | None]) -> float | None:
    """log2 of the best rate, from the held-out loss by rate, None where a run diverged; None beyond the grid.

    The vertex of the parabola through the logarithms of the least loss and of its two neighbours; where a neighbour
    diverged, the rate of the least loss itself. ValueError for fewer than three rates, or where all diverged.

    >>> from depthlaw.paper_checks.experiments.best_rates import best_rate
    >>> round(best_rate({0.25: 2.0, 0.5: 1.0, 1.0: 2.0}), 6)
    -1.0
    >>> best_rate({0.25: 1.0, 0.5: 2.0, 1.0: 3.0}) is None
    True
    """
    rates = sorted(losses)
    logs = [math.inf if (loss := losses[rate]) is None else math.log(loss) for rate in rates]
    if len(rates) < 3 or not math.isfinite(min(logs)):
        raise ValueError("a best rate needs three rates, and one at which training does not diverge")
    place = min(range(len(rates)), key=logs.__getitem__)
    if place in (0, len(rates) - 1):
        return None
    x, y = [math.log2(rate) for rate in rates[place - 1 : place + 2]], logs[place - 1 : place + 2]
    if not all(map(math.isfinite, y)) or y[0] == y[1] == y[2]:
        return x[1]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    curvature = (right - left) / (x[2] - x[0])
    return (x[0] + x[1]) / 2 - left / (2 * curvature)


def slope(log_rates: Mapping[int, float | None]) -> float | None:
    """Of log2(best rate) on log2(N), by least squares; None where a best rate is beyond the grid."""
    known = {layers: value for layers, value in log_rates.items() if value is not None}
    if len(known) < len(log_rates) or len(known) < 2:
        return None
    return linear_regression([math.log2(layers) for layers in known], list(known.values())).slope


def _spread(depths: Sequence[int]) -> float:
    """The root of the sum of squares of log2 N around its mean: what the scatter of a slope is divided by."""
    logs = [math.log2(layers) for layers in depths]
    middle = fmean(logs)
    return math.sqrt(sum((x - middle) ** 2 for x in logs))
