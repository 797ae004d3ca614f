"""What the record of best-rates says: how far the best rate moves over depth, and whether the update predicted it.

Slopes are of log2(best rate) on log2(N), as ``paper_checks.experiments.best_rates`` plans them; that module says how
each number is found and when a statement holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import numpy as np

from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book
from depthlaw.paper_checks.experiments.best_rates import (
    GRIDS,
    LAYERS,
    MARGIN,
    OPTIMIZER,
    SCHEMES,
    arm_name,
    best_rate,
    slope,
)
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.routes.checks import Answers
from depthlaw.paper_checks.routes.training.arms import Answered
from depthlaw.sims.stats import LEVEL, Estimate, estimate
from depthlaw.sims.training.planning import seeds_for_difference

if TYPE_CHECKING:
    from depthlaw.sims.training.train import TrainResult

NAME = "best-rates"
LEAST_SLOPES = 3
"""Seeds that an interval of slopes needs: two say next to nothing of their scatter."""


def seeds_of(scheme: str, book: Book, scale: str = SMALL.name) -> tuple[int, ...]:
    """Seeds of which every depth and rate of a scheme is there at a scale, the pilot's not counted."""
    there = sorted({trial.seed for trial in book.trials} - set(PILOT_SEEDS))
    arms = [arm for layers in LAYERS for arm in _arms(scheme, layers, scale).values()]
    return tuple(seed for seed in there if all(arm.at(seed) in book for arm in arms))


@cache
def _arms(scheme: str, num_layers: int, scale: str) -> dict[float, Arm]:
    """By learning rate."""
    plan = experiment(NAME, scale)
    return {rate: plan.arm(arm_name(scheme, num_layers, rate)) for rate in GRIDS[scheme]}


@dataclass(frozen=True)
class BestRates:
    """Of a scheme, by depth a number of each seed. bests: log2 of the best rate, None beyond the grid. losses: the
    least held-out loss. updates: at initialisation. curves: held-out losses by rate, None of a run that diverged.
    """

    scheme: str
    seeds: tuple[int, ...]
    bests: dict[int, list[float | None]]
    losses: dict[int, list[float]]
    updates: dict[int, list[float]]
    curves: dict[int, dict[float, list[float | None]]]

    @classmethod
    def of(cls, scheme: str, book: Book, scale: str = SMALL.name) -> BestRates:
        seeds, arms = seeds_of(scheme, book, scale), {n: _arms(scheme, n, scale) for n in LAYERS}
        runs = {n: [{rate: book[arm.at(seed)] for rate, arm in arms[n].items()} for seed in seeds] for n in LAYERS}
        held_out = {n: [{rate: r.held_out for rate, r in of_seed.items()} for of_seed in runs[n]] for n in LAYERS}
        return cls(
            scheme,
            seeds,
            {n: [best_rate(losses) for losses in held_out[n]] for n in LAYERS},
            {n: [min(loss for loss in losses.values() if loss is not None) for losses in held_out[n]] for n in LAYERS},
            {n: [_update(of_seed) for of_seed in runs[n]] for n in LAYERS},
            {n: {rate: [losses[rate] for losses in held_out[n]] for rate in GRIDS[scheme]} for n in LAYERS},
        )

    @property
    def name(self) -> str:
        """The scheme or recipe."""
        return self.scheme.removeprefix(OF_RECIPE)

    @property
    def slopes(self) -> list[float | None]:
        """Of each seed; None where a best rate is beyond the grid."""
        return [slope({n: self.bests[n][index] for n in LAYERS}) for index in range(len(self.seeds))]

    @property
    def measured(self) -> Estimate | None:
        """The slope, over seeds. None where a seed has none, or there are fewer than LEAST_SLOPES."""
        known = [value for value in self.slopes if value is not None]
        return estimate(known) if len(known) == len(self.seeds) >= LEAST_SLOPES else None

    def slope_of_mean(self, left_out: int | None = None) -> float | None:
        """Of the curves of mean losses over the seeds, all or all but one."""
        if len(self.seeds) == (left_out is not None):
            return None
        return slope({n: best_rate(self.mean_curve(n, left_out)) for n in LAYERS})

    def mean_curve(self, num_layers: int, left_out: int | None = None) -> dict[float, float | None]:
        """By rate, the geometric mean of the losses over the seeds, all or all but one; None where one diverged."""
        means: dict[float, float | None] = {}
        for rate, losses in self.curves[num_layers].items():
            logs = [None if loss is None else math.log(loss) for i, loss in enumerate(losses) if i != left_out]
            means[rate] = None if None in logs else math.exp(fmean(log for log in logs if log is not None))
        return means

    @property
    def of_mean(self) -> Estimate | None:
        """The slope of the curves of mean losses; Student's over the jackknife's values. None as above."""
        num, whole = len(self.seeds), self.slope_of_mean()
        parts = [self.slope_of_mean(index) for index in range(num)]
        if num < LEAST_SLOPES or whole is None or None in parts:
            return None
        return estimate([num * whole - (num - 1) * part for part in parts if part is not None])

    def ends(self, num_layers: int) -> list[int]:
        """Of each seed, on which side of the grid its best rate is: -1 below, 1 above, else 0."""
        curve = self.curves[num_layers]
        lowest = [losses[0] for losses in zip(*(curve[rate] for rate in sorted(curve)), strict=True)]
        pairs = zip(self.bests[num_layers], lowest, self.losses[num_layers], strict=True)
        return [0 if best is not None else -1 if first == least else 1 for best, first, least in pairs]

    @property
    def num_double(self) -> int:
        """Curves of a seed and a depth that have more than one least place among their neighbours."""
        num = 0
        for by_rate in self.curves.values():
            for losses in zip(*by_rate.values(), strict=True):
                known = [math.inf, *(math.inf if loss is None else loss for loss in losses), math.inf]
                dips = (b for a, b, c in zip(known, known[1:], known[2:], strict=False) if a > b < c)
                num += len(list(dips)) > 1
        return num

    def excess(self, rate: float) -> float:
        """By how much the mean loss at a rate is above the mean curve's least, at the depth where that is least."""
        curves = [self.mean_curve(n) for n in LAYERS]
        ends = [(math.inf if (loss := curve[rate]) is None else loss) for curve in curves]
        leasts = [min(loss for loss in curve.values() if loss is not None) for curve in curves]
        return min(end - least for end, least in zip(ends, leasts, strict=True))

    @property
    def loss_change(self) -> Estimate | None:
        """The least loss at the largest depth less that at the smallest, paired by seed; None as above."""
        shallow, deep = (self.losses[n] for n in (LAYERS[0], LAYERS[-1]))
        pairs = zip(shallow, deep, strict=True)
        return estimate([b - a for a, b in pairs]) if len(self.seeds) >= LEAST_SLOPES else None

    @property
    def seeds_to_decide(self) -> int | None:
        """How many seeds would decide what is open, were the slope and its scatter what they were here. None where it
        is decided, or not known, or that takes more than 1,000."""
        if (slope := self.measured) is None or judged(self.scheme, slope) is not None:
            return None
        wanted = predicted(self.scheme)
        away = abs(MARGIN - abs(slope.mean)) if is_flat(self.scheme) else max(abs(slope.mean - wanted), abs(slope.mean))
        with suppress(ValueError):
            return seeds_for_difference(stdev(value for value in self.slopes if value is not None), away)
        return None

    @property
    def of_update(self) -> Estimate | None:
        """Minus the slope of log2 U on log2 N, U as it was measured before the first step."""
        logs = [{n: -math.log2(self.updates[n][index]) for n in LAYERS} for index in range(len(self.seeds))]
        return estimate([value for by_depth in logs if (value := slope(by_depth)) is not None]) if logs else None


@dataclass(frozen=True)
class Transfer:
    """A network that is tuned at the least depth of the plan, each seed for itself, and taken deeper, in nats: what is
    lost beside the best rate at the new depth.

    as_is: at the same rate. scaled: at that rate times what undoes the growth of the update; None where it lies beyond
    the rates that were tried. behind: the loss at the best rate, less that of the best of several schemes.
    num_diverged: runs at the same rate, which count with the loss that is had without the input.
    """

    as_is: Estimate
    scaled: Estimate | None
    behind: Estimate
    num_diverged: int


def transfer(scheme: str, founds: Mapping[str, BestRates], num_layers: int, guess: float) -> Transfer:
    """founds: those that are compared, by scheme. guess: the loss that is had without the input."""
    rates, num = founds[scheme], min(len(other.seeds) for other in founds.values())
    as_is, scaled, num_diverged = [], list[float | None](), 0
    for index in range(len(rates.seeds)):
        shallow, deep = (
            {rate: guess if (loss := losses[index]) is None else loss for rate, losses in rates.curves[n].items()}
            for n in (LAYERS[0], num_layers)
        )
        rate, least = min(shallow, key=shallow.__getitem__), min(deep.values())
        as_is.append(deep[rate] - least)
        num_diverged += rates.curves[num_layers][rate][index] is None
        there = loss_at(deep, rate * (num_layers / LAYERS[0]) ** predicted(scheme))
        scaled.append(None if there is None else there - least)
    of_best = [min(other.losses[num_layers][index] for other in founds.values()) for index in range(num)]
    behind = [loss - best for loss, best in zip(rates.losses[num_layers], of_best, strict=False)]
    known = [value for value in scaled if value is not None]
    is_known = len(known) == len(scaled)
    return Transfer(estimate(as_is), estimate(known) if is_known else None, estimate(behind), num_diverged)


def loss_at(curve: Mapping[float, float], rate: float) -> float | None:
    """The loss at a rate between those of a curve, in a straight line over log2(rate); None beyond them.

    >>> from depthlaw.paper_checks.routes.training.best_rates import loss_at
    >>> loss_at({1.0: 3.0, 4.0: 1.0}, 2.0), loss_at({1.0: 3.0, 4.0: 1.0}, 5.0)
    (2.0, None)
    """
    rates = sorted(curve)
    if not rates[0] <= rate <= rates[-1]:
        return None
    return float(np.interp(math.log2(rate), np.log2(rates), [curve[known] for known in rates]))


def _update(runs: dict[float, TrainResult]) -> float:
    """Which no learning rate changes."""
    first = next(iter(runs.values())).looks[0].update["update"]
    return math.nan if first is None else first


@cache
def predicted(scheme: str) -> float:
    """Minus the slope of log2 U on log2 N by the kernel rung. LookupError where it is not kept."""
    from depthlaw.paper_checks.experiments.kernel_laws import training_update

    exponent = slope({layers: -math.log2(training_update(scheme, layers, OPTIMIZER)) for layers in LAYERS})
    assert exponent is not None
    return exponent


def is_flat(scheme: str) -> bool:
    return abs(predicted(scheme)) < MARGIN


def growing() -> tuple[str, ...]:
    """Schemes whose update is not flat."""
    return tuple(scheme for scheme in SCHEMES if not is_flat(scheme))


def judged(scheme: str, slope: Estimate | None) -> bool | None:
    """Whether an interval of slopes says that the best rate does as the update does; None where it leaves it open."""
    if slope is None or slope.low is None or slope.high is None:
        return None
    wanted = predicted(scheme)
    if abs(wanted) < MARGIN:
        if slope.low > -MARGIN and slope.high < MARGIN:
            return True
        return False if slope.low > MARGIN or slope.high < -MARGIN else None
    if not slope.low <= wanted <= slope.high:
        return False
    return None if slope.low <= 0 <= slope.high else True


def factors(book: Book, scale: str = SMALL.name) -> list[float | None]:
    """b of each seed that every scheme with a growing update has; None where a best rate is beyond the grid."""
    founds = [BestRates.of(scheme, book, scale) for scheme in growing()]
    common = sorted(set.intersection(*(set(rates.seeds) for rates in founds)))
    values: list[float | None] = []
    for seed in common:
        slopes = [rates.slopes[rates.seeds.index(seed)] for rates in founds]
        wanted = [predicted(rates.scheme) for rates in founds]
        products = [s * q for s, q in zip(slopes, wanted, strict=True) if s is not None]
        values.append(sum(products) / sum(q * q for q in wanted) if len(products) == len(slopes) else None)
    return values


def factor(book: Book, scale: str = SMALL.name) -> Estimate | None:
    values = factors(book, scale)
    known = [value for value in values if value is not None]
    return estimate(known) if len(known) == len(values) >= LEAST_SLOPES else None


def in_words(values: Estimate | None) -> str:
    if values is None:
        return "not known"
    return f"{values.mean:.2f}" + (f" ({values.low:.2f} to {values.high:.2f})" if values.low is not None else "")


@dataclass(frozen=True, kw_only=True)
class FollowsUpdate(Answered):
    """The best rate of a scheme does over depth as its update does: it stays, or moves by as much."""

    scheme: str
    scale: str = SMALL.name
    of: str = NAME

    @property
    def text(self) -> str:
        if is_flat(self.scheme):
            return f"the update of {self.scheme} is flat, and its best rate stays put (slope within {MARGIN:g} of 0)"
        wanted = f"{predicted(self.scheme):.2f}"
        return f"the update of {self.scheme} grows, and its best rate falls by as much (slope {wanted})"

    def answers(self, book: Book) -> Answers:
        rates = BestRates.of(self.scheme, book, self.scale)
        if not rates.seeds:
            raise LookupError(f"the record has no seed of {self.scheme}")
        return Answers(
            holds=[judged(self.scheme, rates.measured)],
            num_effective=len(rates.seeds),
            detail="of each seed the slope of log2(best rate) on log2(layers), Student's interval over the seeds",
            numbers={
                "slope": in_words(rates.measured),
                "of the mean curves": in_words(rates.of_mean),
                "predicted": f"{predicted(self.scheme):.2f}",
                "seeds with a best rate beyond the grid": str(rates.slopes.count(None)),
            },
        )


@dataclass(frozen=True, kw_only=True)
class NearerThanNoMove(Answered):
    """Of how far the best rate moves, the update is a better predictor than that it does not move."""

    scale: str = SMALL.name
    of: str = NAME

    @property
    def text(self) -> str:
        return "where the update grows, it predicts the move of the best rate better than no move at all does"

    def answers(self, book: Book) -> Answers:
        part, values = factor(book, self.scale), factors(book, self.scale)
        if not values:
            raise LookupError("the record has no seed of every scheme whose update grows")
        low, high = (None, None) if part is None else (part.low, part.high)
        return Answers(
            holds=[True if low is not None and low > 0.5 else False if high is not None and high < 0.5 else None],
            num_effective=len(values),
            detail="the factor of the measured slopes over the predicted ones, Student's interval over the seeds",
            numbers={"of the predicted move the best rate made": in_words(part), "level": f"{LEVEL:g}"},
        )
