"""Means, ratios and exponents of measurements on independent seeds, with intervals.

An update is log-normal-ish: log U of one network scatters by about s = 0.8 sqrt(2N/d) around its middle. Three things
follow.

- The mean is exp(s^2/2) times the median, and rare large values carry it. A few seeds mostly miss them, so a Student t
  interval of the mean is too short and lies too low. It contains the mean this often where 0.95 is asked for:

        s      4 seeds   16 seeds   64 seeds
        0.3     0.94       0.94       0.95
        0.8     0.87       0.90       0.93
        2.0     0.53       0.60       0.71

  Means of deep and narrow networks (2N above d) need hundreds of seeds. Width cures it: s falls like 1/sqrt(d).
- The logarithm of a mean lies se^2/(2 mean^2) too low on average, where se is the mean's standard error.
- Errors at different lengths differ, so nothing here pools them: every interval takes its degrees of freedom from
  Welch and Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtr, stdtrit

from depthlaw.sims.records.record import DIGITS

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, from num independent values.

    standard_error, low, high: None where a single value says nothing of its scatter.

    >>> from depthlaw.sims.stats import estimate
    >>> estimate([2.0])
    Estimate(mean=2.0, standard_error=None, low=None, high=None, num=1)
    """

    mean: float
    standard_error: float | None
    low: float | None
    high: float | None
    num: int


def estimate(values: Sequence[float | None], level: float = LEVEL) -> Estimate:
    """The mean of a value for each seed, with its Student t interval.

    level: how often the interval holds the mean of all seeds, where values are normal (the module says how often where
    they are not). ValueError where there is no value, or one that diverged (None, NaN, infinite): the mean of the
    others would be that of the networks that did not.

    >>> from depthlaw.sims.stats import estimate
    >>> found = estimate([2.0, 2.4, 1.9, 2.1])
    >>> round(found.mean, 2), round(found.low, 2), round(found.high, 2), found.num
    (2.1, 1.76, 2.44, 4)
    >>> estimate([2.0]).standard_error is None
    True
    >>> estimate([2.0, None])
    Traceback (most recent call last):
        ...
    ValueError: 1 of 2 values diverged
    """
    if len(values) == 0:
        raise ValueError("no values")
    if bad := num_diverged(values):
        raise ValueError(f"{bad} of {len(values)} values diverged")
    numbers = np.asarray(values, dtype=float)
    size = float(np.abs(numbers).max()) or 1.0  # squares of large or small numbers leave the range of a float
    mean, num = size * float(np.mean(numbers / size)), len(numbers)
    if num == 1:
        return Estimate(mean, None, None, None, 1)
    error = size * float(np.std(numbers / size, ddof=1)) / math.sqrt(num)
    return _with_interval(mean, error, num - 1, num, level)


def num_diverged(values: Sequence[float | None]) -> int:
    return sum(value is None or not math.isfinite(value) for value in values)


def ratio_to_exact(measured: Estimate, exact: float) -> Estimate:
    """measured / exact, the interval divided with it. ValueError where exact is 0 or not finite.

    >>> from depthlaw.sims.stats import estimate, ratio_to_exact
    >>> found = ratio_to_exact(estimate([2.0, 2.4, 1.9, 2.1]), 2.0)
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (1.05, 0.878, 1.222)
    """
    if exact == 0 or not math.isfinite(exact):
        raise ValueError(f"no ratio to {exact}")
    ends = [None if end is None else end / exact for end in (measured.low, measured.high)]
    low, high = ends if exact > 0 else reversed(ends)
    error = None if measured.standard_error is None else measured.standard_error / abs(exact)
    return Estimate(measured.mean / exact, error, low, high, measured.num)


def ratio(first: Estimate, second: Estimate, level: float = LEVEL) -> Estimate:
    """first / second, of independent seeds. The interval is that of the logarithm, by the delta method.

    ValueError where a mean is not positive. num: the values of both.

    >>> from depthlaw.sims.stats import estimate, ratio
    >>> found = ratio(estimate([2.0, 2.4, 1.9]), estimate([1.0, 1.2, 1.1]))
    >>> round(found.mean, 3), found.low < found.mean < found.high, found.num
    (1.909, True, 6)
    """
    if first.mean <= 0 or second.mean <= 0:
        raise ValueError(f"no ratio of {first.mean} and {second.mean}: both have to be positive")
    logarithm = difference(_logarithm(first), _logarithm(second), level)
    middle = math.exp(logarithm.mean)
    if logarithm.standard_error is None or logarithm.low is None or logarithm.high is None:
        return Estimate(middle, None, None, None, logarithm.num)
    return Estimate(
        middle, middle * logarithm.standard_error, math.exp(logarithm.low), math.exp(logarithm.high), logarithm.num
    )


def difference(first: Estimate, second: Estimate, level: float = LEVEL) -> Estimate:
    """first - second, of independent seeds. num: the values of both.

    >>> from depthlaw.sims.stats import difference, estimate
    >>> found = difference(estimate([2.0, 2.4, 1.9]), estimate([1.0, 1.2, 1.1]))
    >>> round(found.mean, 3), found.low < found.mean < found.high, found.num
    (1.0, True, 6)
    """
    return combined((1.0, -1.0), (first, second), level)


# ---------------------------------------------------------------- exponents


@dataclass(frozen=True)
class ExponentFit:
    """The exponent p of mean update ~ L^p over the lengths that are fitted.

    measured, predicted, difference: of the samples, of the predicted curve over the same lengths, and measured less
    predicted. None where there is none: reason says why. left_out: by length, why it is not fitted.
    """

    lengths: tuple[int, ...]
    measured: Estimate | None = None
    predicted: float | None = None
    difference: Estimate | None = None
    reason: str = ""
    left_out: Mapping[int, str] = field(default_factory=dict)


def fit_exponent(
    lengths: Sequence[int],
    samples: Sequence[Sequence[float | None]],
    predicted: Sequence[float] | None = None,
    level: float = LEVEL,
) -> ExponentFit:
    """The slope of log(mean update) on log(num_sublayers), by least squares.

    samples: for each length, a value for each of its own seeds, None where it diverged. predicted: for each length.

    Every length has the same weight. Weights from the measured errors are the best ones only where these errors are
    known: of few seeds, a mean that is too low has an error that is too low, and such a fit's 0.95 intervals over five
    lengths hold 0.8 to 0.83 of the time with 4 seeds and 0.87 to 0.9 with 8. Equal weights keep close to 0.95, and the
    predicted exponent, which a bent curve (log L) makes a matter of weights, does not hang on the seeds. It has the
    same weights, so that a bend that is predicted is no deviation.

    The errors of the log means are the delta method's, the interval is Welch and Satterthwaite's.

    A length whose mean is not positive, or where a seed diverged, is left out and listed. ValueError where a length
    stands twice, or lists do not fit.

    >>> from depthlaw.sims.stats import fit_exponent
    >>> samples = [[1.9, 2.1], [4.0, 4.2], [8.1, 7.7], [None, 16.0]]
    >>> found = fit_exponent((4, 8, 16, 32), samples, predicted=(2.0, 4.0, 8.0, 16.0))
    >>> round(found.measured.mean, 3), round(found.predicted, 3), found.difference.low < 0 < found.difference.high
    (0.991, 1.0, True)
    >>> found.left_out
    {32: '1 of 2 seeds diverged'}
    """
    if len(set(lengths)) != len(lengths) or any(length < 1 for length in lengths):
        raise ValueError(f"lengths are positive, each once: {', '.join(map(str, lengths))}")
    if len(samples) != len(lengths) or (predicted is not None and len(predicted) != len(lengths)):
        raise ValueError("samples and predictions are one for each length")
    fitted: dict[int, Estimate] = {}
    left_out: dict[int, str] = {}
    for length, values in zip(lengths, samples, strict=True):
        if bad := num_diverged(values):
            left_out[length] = f"{bad} of {len(values)} seeds diverged"
        elif (of_seeds := estimate(values)).mean == 0:
            left_out[length] = "the update is 0"
        elif of_seeds.mean < 0:
            left_out[length] = f"the mean is {of_seeds.mean:.3g}, which has no logarithm"
        else:
            fitted[length] = _logarithm(of_seeds)
    kept = tuple(fitted)
    if len(kept) < 2:
        if left_out and set(left_out.values()) == {"the update is 0"} and not kept:
            reason = "the update is 0 at every length"
        else:
            reason = f"an exponent needs two lengths, and {len(kept)} can be fitted"
        return ExponentFit(kept, reason=reason, left_out=left_out)
    slope = slope_weights(np.log(kept))
    measured = combined(slope.tolist(), tuple(fitted.values()), level)
    if predicted is None:
        return ExponentFit(kept, measured, reason="nothing is predicted", left_out=left_out)
    curve = dict(zip(lengths, predicted, strict=True))
    for length in kept:
        if not (math.isfinite(curve[length]) and curve[length] > 0):
            reason = f"the prediction at {length} is {curve[length]:.3g}, which has no logarithm"
            return ExponentFit(kept, measured, reason=reason, left_out=left_out)
    exponent = float(np.dot(slope, np.log([curve[length] for length in kept])))
    return ExponentFit(kept, measured, exponent, _shifted(measured, -exponent), left_out=left_out)


# ---------------------------------------------------------------- finite width


@dataclass(frozen=True)
class WidthTerm:
    """ratio(d) = limit + slope L/d."""

    limit: Estimate
    slope: Estimate


def width_term(
    widths: Sequence[int], ratios: Sequence[Estimate], num_sublayers: int, level: float = LEVEL
) -> WidthTerm:
    """measured / predicted at widths d, extrapolated to infinite width; both numbers with their intervals.

    Least squares with weights num d: what the errors of num seeds would give if the scatter fell like sqrt(L/d), as it
    does. The measured errors make the intervals, but not the weights, for the reason that ``fit_exponent`` states. Two
    widths are met exactly. Terms in (L/d)^2 are neglected: widths should be well above L. ValueError for fewer than two
    different widths, or a list that does not fit.

    >>> from depthlaw.sims.stats import estimate, width_term
    >>> ratios = [estimate([1.18, 1.22]), estimate([1.09, 1.11])]
    >>> found = width_term((64, 128), ratios, num_sublayers=16)
    >>> round(found.limit.mean, 3), round(found.slope.mean, 3)
    (1.0, 0.8)
    """
    if len(set(widths)) < 2 or len(set(widths)) != len(widths) or len(widths) != len(ratios) or min(widths) < 1:
        raise ValueError("a width term needs two or more different widths, each with its ratio")
    weights = np.array([measured.num * width for measured, width in zip(ratios, widths, strict=True)], dtype=float)
    limit, slope = _line_coefficients(num_sublayers / np.array(widths, dtype=float), weights)
    return WidthTerm(combined(limit, ratios, level), combined(slope, ratios, level))


# ---------------------------------------------------------------- agreement


@dataclass(frozen=True)
class Agreement:
    """is_agreed: the p-value is above 1 - level. difference: of means (of logarithms where has_logs), with its interval
    at that level: half its length is what would have been seen."""

    is_agreed: bool
    p_value: float
    difference: Estimate
    has_logs: bool


def agrees(first: Sequence[float | None], second: Sequence[float | None], level: float = 0.9999) -> Agreement:
    """Whether two sets of seeds can be of one distribution: Welch's t test of the means.

    Of logarithms where all values are positive: those of updates are near to normal, the values are not. Of n such
    comparisons, n (1 - level) fail by chance. Means that differ by what a record's digits round off agree.

    ValueError: fewer than two values on a side, or one that diverged.

    >>> from depthlaw.sims.stats import agrees
    >>> agrees([1.0, 1.2, 0.9], [1.1, 1.0, 1.3]).is_agreed
    True
    >>> found = agrees([1.0, 1.01, 0.99, 1.0], [2.0, 2.01, 1.99, 2.0])
    >>> found.is_agreed, found.has_logs, found.p_value < 1e-4
    (False, True, True)
    """
    has_logs = all(x is not None and x > 0 for x in (*first, *second))
    sides = []
    for values in (first, second):
        sample = estimate(values)  # of the values themselves: it refuses those that diverged
        if sample.num < 2:
            raise ValueError("agreement needs two values on either side")
        sides.append(estimate([math.log(x) for x in values if x is not None]) if has_logs else sample)
    between = difference(sides[0], sides[1], level)
    error, rounding = between.standard_error or 0.0, 10.0 ** (1 - DIGITS)
    size = 1.0 if has_logs else max(abs(side.mean) for side in sides)
    if abs(between.mean) <= rounding * size:
        p_value = 1.0
    elif error == 0:
        p_value = 0.0
    else:
        p_value = welch_p_value(*sides)
    return Agreement(p_value > 1 - level, p_value, between, has_logs)


def welch_p_value(first: Estimate, second: Estimate) -> float:
    """Of no difference between the means of independent seeds, by Welch's t test. Both have a standard error."""
    from scipy import stats as tests  # a third of a second, which most of those who import this need not wait

    sides = [(side.mean, (side.standard_error or 0.0) * math.sqrt(side.num), side.num) for side in (first, second)]
    return float(tests.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)


# ---------------------------------------------------------------- sums of estimates


def _logarithm(part: Estimate) -> Estimate:
    """log(mean) and its standard error by the delta method; no interval."""
    error = None if part.standard_error is None else part.standard_error / part.mean
    return Estimate(math.log(part.mean), error, None, None, part.num)


def slope_weights(x: np.ndarray) -> np.ndarray:
    """The weight of the y at each x in the slope of the least-squares line."""
    return np.array(_line_coefficients(x, np.ones(len(x)))[1])


def _line_coefficients(x: np.ndarray, weights: np.ndarray) -> tuple[list[float], list[float]]:
    """The weights of the y at each x in the least-squares line: in its value at x = 0, and in its slope."""
    shares = weights / weights.sum()
    middle = float(np.dot(shares, x))
    slope = shares * (x - middle) / np.dot(shares, (x - middle) ** 2)
    return (shares - middle * slope).tolist(), slope.tolist()


def combined(coefficients: Sequence[float], parts: Sequence[Estimate], level: float) -> Estimate:
    """sum_i c_i part_i of independent parts."""
    mean = sum(c * part.mean for c, part in zip(coefficients, parts, strict=True))
    num = sum(part.num for part in parts)
    errors = [
        abs(c) * p.standard_error for c, p in zip(coefficients, parts, strict=True) if p.standard_error is not None
    ]
    if len(errors) < len(parts):
        return Estimate(mean, None, None, None, num)
    return _with_interval(mean, math.hypot(*errors), _degrees(errors, parts), num, level)


def _degrees(errors: Sequence[float], parts: Sequence[Estimate]) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum whose parts have these standard errors."""
    if not (total := math.hypot(*errors)):
        return math.inf
    return 1 / sum((error / total) ** 4 / (part.num - 1) for error, part in zip(errors, parts, strict=True))


def _with_interval(mean: float, error: float, degrees: float, num: int, level: float) -> Estimate:
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, not {level}")
    half = float(stdtrit(degrees, (1 + level) / 2)) * error if error else 0.0
    return Estimate(mean, error, mean - half, mean + half, num)


def _shifted(part: Estimate, by: float) -> Estimate:
    low, high = (None if end is None else end + by for end in (part.low, part.high))
    return Estimate(part.mean + by, part.standard_error, low, high, part.num)


def errors_off(ratio: Estimate) -> float:
    """How many standard errors a ratio is from 1; 0 where nobody knows its error."""
    return (ratio.mean - 1) / ratio.standard_error if ratio.standard_error else 0.0


def chance_of(mean: Estimate, errors: float) -> float:
    """How often chance alone puts a mean over seeds so many standard errors from its true value, on either side.

    0 where nobody knows its error.
    """
    return 2 * float(stdtr(mean.num - 1, -abs(errors))) if mean.num > 1 else 0.0


def holds(estimate: Estimate, value: float = 1.0) -> bool:
    """Whether the interval does; none does where its error is not known."""
    return estimate.low is not None and estimate.high is not None and estimate.low <= value <= estimate.high


def is_beyond(ratio: Estimate, by: float) -> bool:
    """Whether the whole interval is further than this from 1."""
    return ratio.low is not None and ratio.high is not None and (ratio.low > 1 + by or ratio.high < 1 - by)
