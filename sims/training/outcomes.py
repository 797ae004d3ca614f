"""Statistics of training experiments: who trains, and up to which learning rate. ``planning`` counts the seeds.

Plain numbers in, plain records out (``dataclasses.asdict`` of each is JSON). Every interval is two-sided at `level`. An
end that is None is not known: a single value says nothing of its scatter, and a censored one has no end on that side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy  # whose stats take a second, and are imported where they are asked

from depthlaw.sims.stats import LEVEL, Estimate, chance_of, difference, estimate, welch_p_value

MIN_EDGES = 3  # seeds that an interval of edges needs
MAX_EXACT = 8  # points: 8! = 40 320 pairings are all tried
NUM_PAIRINGS = 9999  # drawn where there are more points

FIRST, SECOND, OPEN = "first larger", "second larger", "open"


def verdict(low: float | None, high: float | None) -> str:
    """The sign of first - second, as far as its interval decides it."""
    if low is not None and low > 0:
        return FIRST
    return SECOND if high is not None and high < 0 else OPEN


@dataclass(frozen=True)
class Comparison:
    """first - second, its interval, the p-value of no difference, and "first larger", "second larger" or "open"."""

    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    verdict: str


# ---------------------------------------------------------------- shares of runs that trained


@dataclass(frozen=True)
class Share:
    value: float
    low: float
    high: float
    successes: int
    num: int


def share(successes: int, num: int, level: float = LEVEL) -> Share:
    """successes / num with Clopper and Pearson's exact interval, which holds at least as often as asked.

    ValueError for less than one run, or more successes than runs.

    >>> from depthlaw.sims.training.outcomes import share
    >>> found = share(5, 5)
    >>> found.value, round(found.low, 3), found.high
    (1.0, 0.478, 1.0)
    """
    _check_share(successes, num)
    check_probability("a level", level)
    interval = scipy.stats.binomtest(successes, num).proportion_ci(level, method="exact")
    return Share(successes / num, float(interval.low), float(interval.high), successes, num)


def differs(successes1: int, num1: int, successes2: int, num2: int, level: float = LEVEL) -> Comparison:
    """Whether the shares of two independent sets of runs differ.

    p_value: of Boschloo's exact test, of which Fisher's is the less powerful form: twice the smaller side. It decides
    the verdict. The interval is Newcombe's (1998, method 10), from Wilson's of either share. It is not exact, so it may
    just include 0 where the test decides, or the reverse.

    >>> from depthlaw.sims.training.outcomes import differs
    >>> differs(5, 5, 0, 5).verdict, differs(3, 5, 1, 5).verdict
    ('first larger', 'open')
    >>> round(differs(5, 5, 0, 5).p_value, 4)
    0.002
    """
    for successes, num in ((successes1, num1), (successes2, num2)):
        _check_share(successes, num)
    check_probability("a level", level)
    first, second = successes1 / num1, successes2 / num2
    wilson1 = scipy.stats.binomtest(successes1, num1).proportion_ci(level, method="wilson")
    wilson2 = scipy.stats.binomtest(successes2, num2).proportion_ci(level, method="wilson")
    low = first - second - math.hypot(first - wilson1.low, wilson2.high - second)
    high = first - second + math.hypot(wilson1.high - first, second - wilson2.low)
    table = [[successes1, successes2], [num1 - successes1, num2 - successes2]]
    p_value = float(scipy.stats.boschloo_exact(table, alternative="two-sided").pvalue)
    verdict = OPEN if p_value > 1 - level else FIRST if first > second else SECOND
    return Comparison(first - second, low, high, p_value, verdict)


# ---------------------------------------------------------------- the largest rate at which a seed trains


@dataclass(frozen=True)
class Edge:
    """The largest rate of a grid at which a seed trains: it was seen to train, the next rate was seen to fail.

    is_at_top: it is the grid's largest, so the edge is at least that. is_at_bottom: rate is None, no rate that was
    tried trains, so the edge is below the grid.
    """

    rate: float | None
    is_at_top: bool = False
    is_at_bottom: bool = False


def next_rate(grid: Sequence[float], outcomes: Mapping[float, bool], start: float | None = None) -> float | None:
    """Which rate of the grid to try next, to find the largest at which the seed trains; None where that is known.

    grid: rates, ascending. outcomes: by rate of the grid, whether the seed trained. start: tried first, else the middle
    one. Training is taken to fail above a threshold: bisection, in at most ceil(log2(len(grid))) + 1 runs from any
    start. ValueError for a grid that is not ascending, or a rate that is not in it.

    It may fail below another threshold too, by being too slow. What is searched is the upper edge: failures below a
    rate that trains count for nothing, so a start that trains is all that it needs. Where the start fails, the search
    goes down, by halves; then a window that lies above the start, or between the rates tried, is missed. So start where
    a pilot trained, and before believing an edge below the grid, try the rates between.

    >>> from depthlaw.sims.training.outcomes import edge, next_rate
    >>> grid, outcomes = [2.0**k for k in range(-12, -4)], {}
    >>> while (rate := next_rate(grid, outcomes)) is not None:
    ...     outcomes[rate] = rate <= 0.01  # a run, in earnest
    >>> len(outcomes), edge(grid, outcomes).rate
    (3, 0.0078125)
    """
    _check_grid(grid, outcomes)
    if not outcomes and start is not None:
        if start not in grid:
            raise ValueError(f"the start {start:g} is not in the grid")
        return start
    trains, fails = _bracket(grid, outcomes)
    return None if fails - trains == 1 else grid[(trains + fails) // 2]


def edge(grid: Sequence[float], outcomes: Mapping[float, bool]) -> Edge:
    """The edge that the outcomes show. ValueError where ``next_rate`` still has a rate to try.

    >>> from depthlaw.sims.training.outcomes import edge
    >>> edge([0.1, 0.2, 0.4], {0.2: True, 0.4: True})
    Edge(rate=0.4, is_at_top=True, is_at_bottom=False)
    >>> edge([0.1, 0.2, 0.4], {0.2: True})
    Traceback (most recent call last):
        ...
    ValueError: the edge is not found yet: the next rate to try is 0.4
    """
    if (rate := next_rate(grid, outcomes)) is not None:
        raise ValueError(f"the edge is not found yet: the next rate to try is {rate:g}")
    trains, _ = _bracket(grid, outcomes)
    if trains < 0:
        return Edge(None, is_at_bottom=True)
    return Edge(grid[trains], is_at_top=trains == len(grid) - 1)


def _bracket(grid: Sequence[float], outcomes: Mapping[float, bool]) -> tuple[int, int]:
    """Places in the grid: the largest rate that trains (-1: none yet) and the least one above it that fails."""
    trains = max((i for i, rate in enumerate(grid) if outcomes.get(rate)), default=-1)
    above = range(trains + 1, len(grid))
    return trains, min((i for i in above if not outcomes.get(grid[i], True)), default=len(grid))


@dataclass(frozen=True)
class EdgeComparison:
    """octaves: log2 of the ratio of the largest rates, first over second, its p-value that of the exact sign test.

    num_first, num_second, num_ties: seeds with the larger edge in the first, the second, neither as far as the grid can
    tell. num_censored: seeds of which an edge is at an end of the grid.
    """

    octaves: Comparison
    num_first: int
    num_second: int
    num_ties: int
    num_censored: int


def compare_edges(
    first: Sequence[Edge], second: Sequence[Edge], grid: Sequence[float], level: float = LEVEL
) -> EdgeComparison:
    """The mean difference of log2(largest stable rate), paired by seed, with an interval for the true one.

    A seed's true edge is between a rate of the grid and the next, so its true difference is between two bounds, one
    step below and one above the difference of the grid's rates. The interval goes from the lower Student end of the
    lower bounds to the upper one of the upper bounds: one step wider on either side than Student's. Midpoints of the
    brackets would do without it only where the edges scatter over a step or more. Where they scatter less, the rounding
    is the same at every seed, does not average out, and midpoints' intervals hold almost never.

    An edge at an end of the grid has a bound on one side only. The interval then has no end on the side that this
    leaves open, and the verdict is open where that could change the sign. difference is None then.

    There is no interval below 3 seeds: two differences that are rounded to the same one, though they scatter over a
    step, look like no scatter at all often enough for it to hold only 0.93 of the time.

    The verdict is the interval's. The sign test is a second view with no normal numbers in it. It leaves out the ties,
    and needs 6 seeds of one sign for a p-value below 0.05.

    >>> from depthlaw.sims.training.outcomes import Edge, compare_edges
    >>> grid = [1.0, 2.0, 4.0, 8.0, 16.0]
    >>> found = compare_edges([Edge(8.0), Edge(8.0), Edge(8.0)], [Edge(2.0), Edge(2.0), Edge(2.0)], grid)
    >>> found.octaves.difference, found.octaves.low, found.octaves.high, found.octaves.verdict
    (2.0, 1.0, 3.0, 'first larger')
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"edges are paired by seed: {len(first)} and {len(second)} cannot be")
    _check_grid(grid, {})
    check_probability("a level", level)
    places = [(_place(left, grid), _place(right, grid)) for left, right in zip(first, second, strict=True)]
    logs = [-math.inf, *np.log2(grid).tolist(), math.inf]  # an edge at place i is between logs[i + 1] and logs[i + 2]
    bounds = [(logs[i + 1] - logs[j + 2], logs[i + 2] - logs[j + 1]) for i, j in places]
    below, above = ([pair[side] for pair in bounds] for side in (0, 1))
    is_enough = len(places) >= MIN_EDGES
    low = estimate(below, level).low if is_enough and np.isfinite(below).all() else None
    high = estimate(above, level).high if is_enough and np.isfinite(above).all() else None
    censored = sum(not np.isfinite(pair).all() for pair in bounds)
    more, less = sum(i > j for i, j in places), sum(i < j for i, j in places)
    p_value = float(scipy.stats.binomtest(more, more + less).pvalue) if more + less else 1.0
    mean = None if censored else float(np.mean(bounds))
    octaves = Comparison(mean, low, high, p_value, verdict(low, high))
    return EdgeComparison(octaves, more, less, len(places) - more - less, censored)


def _place(largest: Edge, grid: Sequence[float]) -> int:
    if largest.rate is None:
        return -1
    if largest.rate not in grid:
        raise ValueError(f"an edge at {largest.rate:g}, which is not in the grid")
    return list(grid).index(largest.rate)


# ---------------------------------------------------------------- rank correlation


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation. low, high: None below four points."""

    value: float
    low: float | None
    high: float | None
    p_value: float
    num: int


def rank_correlation(x: Sequence[float], y: Sequence[float], level: float = LEVEL) -> Correlation:
    """Spearman's rank correlation of x and y over cases that are drawn from many: would other cases show it?

    x, y: a number for each case; -inf and inf have a rank (an edge beyond the grid), equal ones share theirs. The
    interval is ``correlation_interval``'s. p_value: of no relation, by all pairings of up to 8 cases, else by 9999 that
    are drawn from a fixed seed. ValueError for fewer than two cases, NaN, or numbers that are all equal.

    >>> from depthlaw.sims.training.outcomes import rank_correlation
    >>> found = rank_correlation([1, 2, 3, 4, 5, 6], [10, 30, 20, 40, 50, 60])
    >>> round(found.value, 3), round(found.low, 2), round(found.p_value, 4)
    (0.943, 0.38, 0.0167)
    """
    check_probability("a level", level)
    ranks_x, ranks_y = _ranks("x", x), _ranks("y", y)
    if len(x) != len(y):
        raise ValueError(f"x and y are paired by case: {len(x)} and {len(y)} cannot be")

    def statistic(permuted: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.tensordot(permuted, ranks_y, (axis, 0))

    num, value = len(x), _correlation(ranks_x, ranks_y)
    num_pairings = math.factorial(num) if num <= MAX_EXACT else NUM_PAIRINGS
    tried = scipy.stats.permutation_test(
        (ranks_x,), statistic, permutation_type="pairings", n_resamples=num_pairings, vectorized=True, rng=0
    )
    low, high = correlation_interval(value, num, level)
    return Correlation(value, low, high, float(tried.pvalue), num)


def correlation_interval(value: float, num: int, level: float = LEVEL) -> tuple[float | None, float | None]:
    """The interval of a rank correlation: Fisher's z, with Bonett and Wright's (2000) variance (1 + r^2/2)/(n - 3).

    At r = 1 or -1, where z is infinite, the inner end is that of an r half a swap of neighbours away, and the outer one
    is r. None below 4 cases. For normal pairs it contains the correlation of ranks this often where 0.95 is asked for:

        normal correlation   6 cases   10 cases   20 cases
        0.0                   0.97       0.965      0.96
        0.6                   0.97       0.96       0.955
        0.9                   0.975      0.945      0.955
        0.99                  0.91       0.89       0.825

    Without that inner end it is 0.86 at 0.9 and 6 cases. Student's quantile gives 0.96 to 1 in the first three rows, at
    the price of an interval of a perfect r of 6 cases that holds 0. A bootstrap of so few cases draws mostly ties.
    """
    if num < 4:
        return None, None
    nearest = 1 - 6 / (num * (num**2 - 1))
    inner = min(max(value, -nearest), nearest)
    half = float(scipy.stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + inner**2 / 2) / (num - 3))
    low, high = (math.tanh(math.atanh(inner) + side) for side in (-half, half))
    return (-1.0 if value < -nearest else low), (1.0 if value > nearest else high)


def rank_correlation_over_seeds(
    x_by_case: Sequence[float], y_by_case_and_seed: Sequence[Sequence[float]], level: float = LEVEL
) -> Estimate:
    """The mean over seeds of the rank correlation over cases: would other seeds show it, at the same cases?

    y_by_case_and_seed[case][seed]. The cases are fixed, one correlation is taken for each seed, and the interval is
    Student's over the seeds, cut at -1 and 1. It says nothing of other cases: that is ``rank_correlation``.

    >>> from depthlaw.sims.training.outcomes import rank_correlation_over_seeds
    >>> found = rank_correlation_over_seeds([1, 2, 3], [[1, 2], [3, 1], [5, 4]])
    >>> found.mean, found.num
    (0.75, 2)
    """
    y = np.asarray(y_by_case_and_seed, dtype=float)
    if y.ndim != 2 or len(y) != len(x_by_case) or not y.size:
        raise ValueError("y has a row for each case, of one number for each seed")
    ranks = _ranks("x", x_by_case)
    values = [_correlation(ranks, _ranks(f"y of seed {seed}", column)) for seed, column in enumerate(y.T)]
    over_seeds = estimate(values, level)
    low, high = (None if end is None else min(max(end, -1.0), 1.0) for end in (over_seeds.low, over_seeds.high))
    return Estimate(over_seeds.mean, over_seeds.standard_error, low, high, over_seeds.num)


def _ranks(name: str, values: Any) -> np.ndarray:
    """Ranks around their mean. ValueError for NaN, and where all are equal: they have no correlation."""
    numbers = np.asarray(values, dtype=float)
    if len(numbers) < 2 or np.isnan(numbers).any() or (numbers == numbers[0]).all():
        raise ValueError(f"{name}: a rank correlation needs two or more numbers, not NaN, not all equal")
    ranks = scipy.stats.rankdata(numbers)
    return ranks - ranks.mean()


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    size = math.sqrt(np.dot(first, first) * np.dot(second, second))  # of sums of squares of halves: exact
    return min(max(float(np.dot(first, second)) / size, -1.0), 1.0)


# ---------------------------------------------------------------- means


def compare_means(
    first: Sequence[float | None], second: Sequence[float | None], level: float = LEVEL, *, is_paired: bool = False
) -> Comparison:
    """The difference of mean held-out losses, with Welch's interval, or Student's of the differences where is_paired.

    is_paired: the i-th values of both are of one seed. The p-value is of the same t. Two values or more on a side;
    ValueError for fewer, or one that diverged: the mean of the others is of the networks that did not.

    >>> from depthlaw.sims.training.outcomes import compare_means
    >>> first, second = [2.31, 2.28, 2.35], [2.11, 2.07, 2.16]
    >>> found = compare_means(first, second, is_paired=True)
    >>> round(found.difference, 3), found.verdict
    (0.2, 'first larger')
    """
    sides = [estimate(first, level), estimate(second, level)]
    if is_paired and len(first) != len(second):
        raise ValueError(f"values are paired by seed: {len(first)} and {len(second)} cannot be")
    if is_paired:
        pairs = zip(first, second, strict=True)
        sides = [estimate([a - b for a, b in pairs if a is not None and b is not None], level)]
    between = sides[0] if is_paired else difference(sides[0], sides[1], level)
    if between.standard_error is None or between.low is None or between.high is None:
        raise ValueError("a comparison of means needs two values on either side")
    if not between.standard_error:
        p_value = 0.0 if between.mean else 1.0
    elif is_paired:
        p_value = chance_of(between, between.mean / between.standard_error)
    else:
        p_value = welch_p_value(sides[0], sides[1])
    return Comparison(between.mean, between.low, between.high, p_value, verdict(between.low, between.high))


# ---------------------------------------------------------------- what is allowed


def _check_share(successes: int, num: int) -> None:
    if not 0 <= successes <= num or num < 1:
        raise ValueError(f"{successes} of {num} runs: a share is of one run or more, and from none to all of them")


def check_probability(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} is between 0 and 1, not {value}")


def _check_grid(grid: Sequence[float], outcomes: Mapping[float, bool]) -> None:
    if len(grid) == 0 or not 0 < grid[0] <= grid[-1] < math.inf or not all(a < b for a, b in pairwise(grid)):
        raise ValueError("a grid of learning rates is positive and ascending")
    if strange := [rate for rate in outcomes if rate not in grid]:
        raise ValueError(f"outcomes at {strange[0]:g}, which is not in the grid")
