"""Intervals hold as often as they say, or as the docstring says where they do not; fits find what was put in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, linregress, t, ttest_ind

from sims import stats
from sims.stats import Estimate, agrees, estimate, fit_exponent, ratio, ratio_to_exact, width_term

FEW, NUM_TRIALS = 300, 1000
LENGTHS = (4, 8, 16, 32, 64)


def lognormal(rng: np.random.Generator, mean: float, scatter: float, num: int) -> list[float]:
    return (mean * np.exp(scatter * rng.standard_normal(num) - scatter**2 / 2)).tolist()


def coverage(
    trial: Callable[[np.random.Generator], tuple[Estimate | None, float]], num_trials: int = NUM_TRIALS
) -> int:
    """In how many of the trials the interval holds the number that it is of."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(num_trials):
        interval, truth = trial(rng)
        assert interval is not None and interval.low is not None and interval.high is not None
        count += interval.low <= truth <= interval.high
    return count


def is_coverage(count: int, probability: float, num_trials: int = NUM_TRIALS) -> bool:
    """Whether so many of the trials can have come of that probability: 0.9999 of all counts that do lie inside."""
    low, high = binom.interval(0.9999, num_trials, probability)
    return bool(low <= count <= high)


# ---------------------------------------------------------------- means


def test_a_mean_and_its_interval_by_the_textbook() -> None:
    mean = estimate([1.0, 2.0, 3.0, 4.0], 0.9)
    error = math.sqrt(5 / 3 / 4)
    assert (mean.mean, mean.num) == (2.5, 4)
    assert mean.standard_error == pytest.approx(error, rel=1e-14)
    assert (mean.low, mean.high) == pytest.approx(t.interval(0.9, 3, 2.5, error), rel=1e-12)


def test_numbers_at_either_end_of_a_float() -> None:
    for size in (1e-300, 1e300):
        mean = estimate([1 * size, 2 * size, 3 * size])
        assert (mean.mean, mean.standard_error) == pytest.approx((2 * size, size / math.sqrt(3)), rel=1e-14)


def test_one_value_has_no_interval_and_equal_ones_have_one_of_length_0() -> None:
    assert estimate([2.0]) == Estimate(2.0, None, None, None, 1)
    assert estimate([0.1] * 7) == Estimate(0.1, 0.0, 0.1, 0.1, 7)
    assert estimate([0.0] * 7) == Estimate(0.0, 0.0, 0.0, 0.0, 7)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "no values"),
        ([1.0, None], "1 of 2 values diverged"),
        ([math.nan, math.inf, 1.0], "2 of 3 values diverged"),
    ],
)
def test_values_that_have_no_mean_are_refused(values: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        estimate(values)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_is_a_probability(level: float) -> None:
    with pytest.raises(ValueError, match="a level is between 0 and 1"):
        estimate([1.0, 2.0], level)


def documented() -> dict[tuple[float, int], float]:
    """By scatter and number of seeds, how often the docstring says that an interval of the mean holds."""
    assert stats.__doc__
    head = re.search(r"^ +s((?: +\d+ seeds)+)$", stats.__doc__, re.MULTILINE)
    assert head
    sizes = [int(size) for size in re.findall(r"\d+", head[1])]
    rows = re.findall(r"^ +(\d\.\d)((?: +0\.\d\d)+)$", stats.__doc__, re.MULTILINE)
    return {(float(s), n): float(p) for s, cells in rows for n, p in zip(sizes, cells.split(), strict=True)}


@pytest.mark.parametrize(("scatter", "num", "probability"), [(s, n, p) for (s, n), p in documented().items()])
def test_log_normal_updates_are_covered_as_often_as_documented(scatter: float, num: int, probability: float) -> None:
    count = coverage(lambda rng: (estimate(lognormal(rng, 1, scatter, num)), 1.0))
    assert is_coverage(count, probability)


# ---------------------------------------------------------------- ratios


def test_a_ratio_to_a_prediction_is_in_its_unit() -> None:
    measured = Estimate(3.0, 0.5, 2.0, 5.0, 9)
    assert ratio_to_exact(measured, 2.0) == Estimate(1.5, 0.25, 1.0, 2.5, 9)
    assert ratio_to_exact(measured, -2.0) == Estimate(-1.5, 0.25, -2.5, -1.0, 9)
    assert ratio_to_exact(estimate([3.0]), 2.0) == Estimate(1.5, None, None, None, 1)
    for nothing in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="no ratio"):
            ratio_to_exact(measured, nothing)


def test_the_interval_of_a_ratio_holds() -> None:
    def trial(rng: np.random.Generator) -> tuple[Estimate, float]:
        first, second = lognormal(rng, 6, 0.3, 6), lognormal(rng, 2, 0.1, 30)
        return ratio(estimate(first), estimate(second)), 3.0

    assert is_coverage(coverage(trial), 0.95)


def test_a_ratio_and_its_inverse_say_the_same() -> None:
    first, second = estimate([1.0, 1.5, 2.0]), estimate([5.0, 5.5, 7.0, 6.0])
    there, back = ratio(first, second), ratio(second, first)
    assert there.num == 7
    assert there.low and there.high
    assert (1 / there.mean, 1 / there.high, 1 / there.low) == pytest.approx((back.mean, back.low, back.high), rel=1e-14)
    assert there.standard_error and there.standard_error / there.mean == pytest.approx(
        math.hypot(*((side.standard_error or 0) / side.mean for side in (first, second))), rel=1e-12
    )
    assert ratio(estimate([2.0]), first).low is None
    with pytest.raises(ValueError, match="both have to be positive"):
        ratio(first, estimate([0.0, 0.0]))


# ---------------------------------------------------------------- exponents


def curve(exponent: float, log_power: float = 0, lengths: Sequence[int] = LENGTHS) -> list[float]:
    return [length**exponent * math.log(2 * length) ** log_power for length in lengths]


def test_the_exponent_is_that_of_the_line_of_least_squares() -> None:
    means = [2.0, 3.0, 7.0, 9.0, 30.0]
    fit = fit_exponent(LENGTHS, [[0.5 * mean, 1.5 * mean] for mean in means], curve(0.5))
    assert fit.measured and fit.difference
    assert fit.measured.mean == pytest.approx(linregress(np.log(LENGTHS), np.log(means)).slope, rel=1e-12)
    assert fit.predicted == pytest.approx(0.5, rel=1e-12)
    assert fit.difference.mean == pytest.approx(fit.measured.mean - 0.5, rel=1e-12)
    assert (fit.lengths, fit.left_out, fit.reason) == (LENGTHS, {}, "")


def test_two_lengths_are_met_exactly_with_welch_s_interval() -> None:
    short, long = [1.0, 1.2, 0.9], [4.0, 5.0, 3.0, 4.4]
    fit = fit_exponent([4, 16], [short, long], [1.0, 2.0])
    of_means = ratio(estimate(long), estimate(short))
    assert fit.measured and of_means.low and of_means.high and fit.predicted
    parts = [math.log(x) / math.log(4) for x in (of_means.mean, of_means.low, of_means.high)]
    assert (fit.measured.mean, fit.measured.low, fit.measured.high) == pytest.approx(parts, rel=1e-12)
    assert fit.predicted == pytest.approx(0.5, rel=1e-12)


def test_a_bend_that_is_predicted_is_no_deviation() -> None:
    """And the interval of the difference holds, with the scatter of deep post-LN at width 512."""
    means = curve(1, -1)

    def trial(rng: np.random.Generator, predicted: list[float]) -> tuple[Estimate | None, float]:
        scatters = [0.8 * math.sqrt(length / 512) for length in LENGTHS]
        samples = [lognormal(rng, mean, s, 4) for mean, s in zip(means, scatters, strict=True)]
        return fit_exponent(LENGTHS, samples, predicted).difference, 0.0

    assert is_coverage(coverage(partial(trial, predicted=means), FEW), 0.95, FEW)
    assert not is_coverage(coverage(partial(trial, predicted=curve(1)), FEW), 0.95, FEW)


def test_one_seed_has_an_exponent_without_an_interval() -> None:
    fit = fit_exponent([4, 16], [[1.0], [2.0]], [1.0, 4.0])
    assert fit.measured and fit.difference
    assert (fit.measured.mean, fit.difference.mean) == pytest.approx((0.5, -0.5), rel=1e-12)
    assert fit.measured.low is fit.difference.high is fit.difference.standard_error is None


def test_lengths_that_cannot_be_fitted_are_listed() -> None:
    samples = [[1.0, 1.1], [2.0, None], [0.0, 0.0], [-2.0, -1.0], [16.0, 17.6]]
    fit = fit_exponent(LENGTHS, samples, curve(1))
    assert fit.lengths == (4, 64)
    assert fit.left_out == {
        8: "1 of 2 seeds diverged",
        16: "the update is 0",
        32: "the mean is -1.5, which has no logarithm",
    }
    assert fit.measured and fit.measured.mean == pytest.approx(1, rel=1e-12)
    assert fit.predicted == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("lengths", "samples", "reason"),
    [
        ([4], [[1.0, 2.0]], "needs two lengths, and 1 can be fitted"),
        ([], [], "needs two lengths, and 0 can be fitted"),
        ([4, 8], [[0.0, 0.0], [0.0, 0.0]], "the update is 0 at every length"),
        ([4, 8], [[0.0, 0.0], [1.0, 2.0]], "needs two lengths, and 1 can be fitted"),
        ([4, 8], [[0.0, 0.0], [0.0, math.nan]], "needs two lengths, and 0 can be fitted"),
    ],
)
def test_where_there_is_no_exponent_the_reason_stands(lengths: list[int], samples: Any, reason: str) -> None:
    fit = fit_exponent(lengths, samples, [0.0] * len(lengths))
    assert fit.measured is fit.predicted is fit.difference is None
    assert reason in fit.reason


@pytest.mark.parametrize(
    ("predicted", "reason"), [(None, "nothing is predicted"), ([1.0, 0.0], "the prediction at 8 is 0, which has no")]
)
def test_a_prediction_without_an_exponent_leaves_the_measured_one(predicted: Any, reason: str) -> None:
    fit = fit_exponent([4, 8], [[1.0, 1.1], [2.0, 2.2]], predicted)
    assert fit.measured and fit.measured.mean == pytest.approx(1, rel=1e-12)
    assert fit.predicted is fit.difference is None
    assert reason in fit.reason


@pytest.mark.parametrize(
    ("lengths", "num_samples", "num_predicted"), [([4, 4], 2, 2), ([0, 4], 2, 2), ([4, 8], 1, 2), ([4, 8], 2, 3)]
)
def test_lengths_and_numbers_that_do_not_fit_are_refused(
    lengths: list[int], num_samples: int, num_predicted: int
) -> None:
    with pytest.raises(ValueError, match=r"each once|one for each length"):
        fit_exponent(lengths, [[1.0]] * num_samples, [1.0] * num_predicted)


# ---------------------------------------------------------------- finite width


def test_two_widths_are_met_exactly() -> None:
    ratios = [Estimate(1.2, 0.01, None, None, 8), Estimate(1.05, 0.02, None, None, 4)]
    line = width_term([128, 512], ratios, 16)
    for width, measured in zip([128, 512], ratios, strict=True):
        assert line.limit.mean + line.slope.mean * 16 / width == pytest.approx(measured.mean, rel=1e-12)
    assert line.slope.standard_error == pytest.approx(math.hypot(0.01, 0.02) / (16 / 128 - 16 / 512), rel=1e-12)


def test_the_limit_and_the_slope_are_found_and_their_intervals_hold() -> None:
    widths = (64, 128, 256, 512)

    def trial(rng: np.random.Generator, of: str) -> tuple[Estimate, float]:
        ratios = []
        for width in widths:
            values = lognormal(rng, 1 + 0.7 * 16 / width, 0.8 * math.sqrt(16 / width), 12)
            ratios.append(ratio_to_exact(estimate(values), 1.0))
        line = width_term(widths, ratios, 16)
        return (line.limit, 1.0) if of == "limit" else (line.slope, 0.7)

    for of in ("limit", "slope"):
        assert is_coverage(coverage(partial(trial, of=of), FEW), 0.95, FEW)


def test_a_width_s_weight_is_its_seeds_times_itself() -> None:
    widths, nums, means = [64, 128, 512], [4, 32, 8], [1.3, 1.2, 1.0]
    ratios = [Estimate(mean, 0.1 / num, None, None, num) for mean, num in zip(means, nums, strict=True)]
    term = width_term(widths, ratios, 16)
    line = np.polyfit(16 / np.array(widths), means, 1, w=np.sqrt(np.multiply(widths, nums)))
    assert [term.slope.mean, term.limit.mean] == pytest.approx(line.tolist(), rel=1e-10)


def test_each_width_has_one_ratio() -> None:
    with pytest.raises(ValueError, match="each with its ratio"):
        width_term([64, 128], [estimate([1.0, 2.0])] * 3, 4)


@pytest.mark.parametrize("widths", [(), (64,), (64, 64), (0, 64)])
def test_widths_that_make_no_line_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two or more different widths"):
        width_term(widths, [estimate([1.0, 2.0])] * len(widths), 4)


# ---------------------------------------------------------------- agreement


def test_agreement_is_welch_s_test() -> None:
    rng = np.random.default_rng(0)
    first, second = lognormal(rng, 1, 0.8, 12), lognormal(rng, 2, 0.4, 30)
    agreement = agrees(first, second)
    assert agreement.has_logs
    assert agreement.p_value == pytest.approx(
        ttest_ind(np.log(first), np.log(second), equal_var=False).pvalue, rel=1e-10
    )
    first[0] = -first[0]
    for pair in ((first, second), (second, first)):
        agreement = agrees(*pair)
        assert not agreement.has_logs
        assert agreement.p_value == pytest.approx(ttest_ind(*pair, equal_var=False).pvalue, rel=1e-10)


def test_samples_of_one_distribution_agree_as_often_as_stated() -> None:
    rng = np.random.default_rng(0)
    pairs = [(lognormal(rng, 1, 0.3, 64), lognormal(rng, 1, 0.3, 512)) for _ in range(FEW)]
    assert is_coverage(sum(agrees(first, second, 0.95).is_agreed for first, second in pairs), 0.95, FEW)


def test_what_is_agreed_is_what_the_interval_holds() -> None:
    first, second = [1.0, 1.1, 1.2, 0.9], [1.0, 1.3, 1.4, 1.7]
    for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.9999):
        agreement = agrees(first, second, level)
        assert agreement.difference.low is not None and agreement.difference.high is not None
        assert agreement.is_agreed is (agreement.difference.low <= 0 <= agreement.difference.high)
        assert agreement.is_agreed is (agreement.p_value > 1 - level)
    assert {agrees(first, second, level).is_agreed for level in (0.5, 0.9999)} == {True, False}


@pytest.mark.parametrize(
    ("first", "second", "is_agreed"),
    [
        ([0.0, 0.0], [0.0, 0.0, 0.0], True),
        ([0.0, 0.0], [1e-9, 1e-9], False),
        ([1 / 3, 1 / 3], [0.33333333, 0.33333333], True),
        ([-1 / 3, -1 / 3], [-0.33333333, -0.33333333], True),
        ([1 / 3, 1 / 3], [0.333333, 0.333333], False),
        ([-1 / 3, -1 / 3], [-0.333333, -0.333333], False),
        ([1.0, 1.0 + 1e-13], [0.99999999, 1.0], True),
    ],
)
def test_numbers_without_scatter_agree_to_the_digits_of_a_record(
    first: list[float], second: list[float], is_agreed: bool
) -> None:
    agreement = agrees(first, second)
    assert agreement.is_agreed is is_agreed
    assert agreement.p_value == float(is_agreed)


@pytest.mark.parametrize("values", [[1.0], [1.0, None], [1.0, math.inf]])
def test_agreement_needs_values_that_did_not_diverge(values: list[Any]) -> None:
    for pair in ((values, [1.0, 2.0]), ([1.0, 2.0], values)):
        with pytest.raises(ValueError, match=r"two values on either side|1 of 2 values diverged"):
            agrees(*pair)
