"""Intervals by which a measurement decides: those of ``sims.stats`` at two stated levels, and what is asked of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from depthlaw.sims.stats import Estimate, difference, estimate, ratio

LEVEL = 0.9999
"""How often an interval holds the mean, two-sided: a check of many intervals must not fail by chance."""
OF_FEW = 0.9973
"""The level of three standard errors of a normal mean, which claims with few networks were planned for. Student's
interval of few values is wider than three of their standard errors."""


class Interval(NamedTuple):
    """Where a mean of independent numbers lies. Each question has the answer None where the edge lies inside."""

    low: float
    high: float

    def within(self, low: float, high: float) -> bool | None:
        """Whether the mean lies there."""
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or self.low > high else None

    def is_below(self, edge: float) -> bool | None:
        """Whether the mean is at most this."""
        return self.within(-math.inf, edge)

    @property
    def text(self) -> str:
        return f"{self.low:.2g} to {self.high:.2g}"


def ends(mean: Estimate) -> Interval:
    """The interval of an estimate from two values or more."""
    assert mean.low is not None and mean.high is not None
    return Interval(mean.low, mean.high)


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The interval of the mean of these values."""
    return ends(estimate(values, level))


def of_logs(logarithms: Sequence[float]) -> Interval:
    """The interval of the geometric mean of positive values, from their logarithms."""
    return Interval(*map(math.exp, interval(logarithms)))


def exponent(low: Sequence[float], high: Sequence[float], factor: float) -> Interval:
    """The power of a count that takes ``low`` to ``high`` while the count grows by ``factor``, from mean logarithms."""
    second, first = (estimate([math.log(x) for x in values]) for values in (high, low))
    return Interval(*(end / math.log(factor) for end in ends(difference(second, first, LEVEL))))


def exponent_of_means(low: Sequence[float], high: Sequence[float], factor: float) -> Interval:
    """The same from the means themselves, to first order in their errors: for many seeds of a few scattered terms."""
    factors = ends(ratio(estimate(high), estimate(low), LEVEL))
    return Interval(*(math.log(end) / math.log(factor) for end in factors))
