"""How many seeds decide a training experiment, worked out beforehand from a pilot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import scipy  # whose stats take a second, and are imported where they are asked

from depthlaw.sims.stats import LEVEL, estimate
from depthlaw.sims.training.outcomes import check_probability

POWER = 0.9
MAX_SEEDS = 1000
MAX_SEEDS_OF_SHARES = 60  # the exact test's power costs its rejection region at each number of seeds


def largest_sd(values: Sequence[float | None], level: float = 0.8) -> float:
    """An upper bound on the standard deviation, at one-sided `level`: a pilot's own is too low as often as not.

    Normal values. With 3 seeds and 0.8 it is 2.1 times the pilot's, with 10 seeds 1.3 times. ValueError for one value.

    >>> from depthlaw.sims.training.planning import largest_sd
    >>> round(largest_sd([1.0, 2.0, 3.0]), 2)
    2.12
    """
    pilot = estimate(values, level)
    if pilot.standard_error is None:
        raise ValueError("a standard deviation needs two values")
    sd = pilot.standard_error * math.sqrt(pilot.num)
    return sd * math.sqrt((pilot.num - 1) / float(scipy.stats.chi2.ppf(1 - level, pilot.num - 1)))


def seeds_for_difference(
    sd: float, difference: float, level: float = LEVEL, power: float = POWER, *, is_paired: bool = True
) -> int:
    """The least number of seeds (2 or more) at which a difference of means is found with probability `power`.

    sd: of the differences where is_paired, else of either side, and the answer is for each side. Found: the Student
    interval leaves out 0; Welch's, of equal scatter, does so almost as often. ``compare_edges`` needs 3 seeds, and one
    step of the grid (in octaves) taken off the difference first. ValueError above MAX_SEEDS.

    >>> from depthlaw.sims.training.planning import seeds_for_difference
    >>> seeds_for_difference(sd=0.1, difference=0.1), seeds_for_difference(sd=0.1, difference=0.1, is_paired=False)
    (13, 23)
    """
    check_probability("a level", level)
    check_probability("a power", power)
    if not (sd >= 0 and difference and math.isfinite(sd) and math.isfinite(difference)):
        raise ValueError(f"an sd of 0 or more and a difference other than 0, not {sd:g} and {difference:g}")
    if sd == 0:
        return 2
    for num in range(2, MAX_SEEDS + 1):
        if power_of_difference(num, sd, difference, level, is_paired=is_paired) >= power:
            return num
    raise ValueError(f"a difference of {difference:g} at an sd of {sd:g} needs more than {MAX_SEEDS} seeds")


def power_of_difference(
    num: int, sd: float, difference: float, level: float = LEVEL, *, is_paired: bool = True
) -> float:
    """How often num seeds (on each side) find the difference: that a noncentral t lies outside Student's limits."""
    degrees, pairs = (num - 1, num) if is_paired else (2 * num - 2, num / 2)
    shift, limit = abs(difference) / sd * math.sqrt(pairs), float(scipy.stats.t.ppf((1 + level) / 2, degrees))
    return float(scipy.stats.nct.sf(limit, degrees, shift) + scipy.stats.nct.cdf(-limit, degrees, shift))


def seeds_for_shares(p1: float, p2: float, level: float = LEVEL, power: float = POWER) -> int:
    """The least number of seeds on each side (2 or more) at which ``differs`` finds it with that power.

    By adding up all outcomes, from half the number that normal shares would need. The power of an exact test is a saw:
    a few more seeds can have a little less of it. ValueError above MAX_SEEDS_OF_SHARES.

    >>> from depthlaw.sims.training.planning import power_of_shares, seeds_for_shares
    >>> seeds_for_shares(1.0, 0.0)
    3
    >>> round(power_of_shares(5, 1.0, 0.2), 2)
    0.74
    """
    check_probability("a level", level)
    check_probability("a power", power)
    if not (0 <= p1 <= 1 and 0 <= p2 <= 1 and p1 != p2):
        raise ValueError(f"two different shares from 0 to 1, not {p1:g} and {p2:g}")
    null, other = (p1 + p2) * (2 - p1 - p2) / 2, p1 * (1 - p1) + p2 * (1 - p2)
    ends = [float(scipy.stats.norm.ppf(end)) for end in ((1 + level) / 2, power)]
    normal = ((ends[0] * math.sqrt(null) + ends[1] * math.sqrt(other)) / (p1 - p2)) ** 2
    for num in range(max(2, int(min(normal / 2, MAX_SEEDS))), MAX_SEEDS_OF_SHARES + 1):
        if power_of_shares(num, p1, p2, level) >= power:
            return num
    raise ValueError(f"shares of {p1:g} and {p2:g} need more than {MAX_SEEDS_OF_SHARES} seeds on each side")


def power_of_shares(num: int, p1: float, p2: float, level: float = LEVEL) -> float:
    """How often ``differs`` finds a difference of shares p1 and p2 with num seeds on each side."""
    counts, least = np.arange(num + 1), np.array(_least_larger(num, level))
    return sum(
        float(np.dot(scipy.stats.binom.pmf(counts, num, low), scipy.stats.binom.sf(least - 1, num, high)))
        for low, high in ((p1, p2), (p2, p1))
    )


@cache
def _least_larger(num: int, level: float) -> tuple[int, ...]:
    """For each count on one side, the least count on the other that ``differs`` calls larger; num + 1 if there is none.

    The p-value falls with the larger count and grows with the smaller one, so one walk along the border finds them.
    The p-value is twice the smaller side's.
    """
    least, least_of = 0, []
    for count in range(num + 1):
        while least <= num:
            table = [[least, count], [num - least, num - count]]
            if 2 * float(scipy.stats.boschloo_exact(table, alternative="greater").pvalue) <= 1 - level:
                break
            least += 1
        least_of.append(least)
    return tuple(least_of)
