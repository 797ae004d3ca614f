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
        found, truth = trial(rng)
        assert found is not None and found.low is not None and found.high is not None
        count += found.low <= truth <= found.high
    return count


def is_coverage(count: int, probability: float, num_trials: int = NUM_TRIALS) -> bool:
    """Whether so many of the trials can have come of that probability: 0.9999 of all counts that do lie inside."""
    low, high = binom.interval(0.9999, num_trials, probability)
    return bool(low <= count <= high)


# ---------------------------------------------------------------- means


def test_a_mean_and_its_interval_by_the_textbook() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0], 0.9)
    error = math.sqrt(5 / 3 / 4)
    assert (found.mean, found.num) == (2.5, 4)
    assert found.standard_error == pytest.approx(error, rel=1e-14)
    assert (found.low, found.high) == pytest.approx(t.interval(0.9, 3, 2.5, error), rel=1e-12)


def test_numbers_at_either_end_of_a_float() -> None:
    for size in (1e-300, 1e300):
        found = estimate([1 * size, 2 * size, 3 * size])
        assert (found.mean, found.standard_error) == pytest.approx((2 * size, size / math.sqrt(3)), rel=1e-14)


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


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_a_mean_of_normal_numbers_holds(level: float) -> None:
    count = coverage(lambda rng: (estimate(rng.normal(3, 2, 5).tolist(), level), 3.0))
    assert is_coverage(count, level)
    assert not is_coverage(count, level - 0.1)


def documented() -> dict[tuple[float, int], float]:
    """By scatter and number of seeds, how often the docstring says that an interval of the mean holds."""
    assert stats.__doc__
    head = re.search(r"^ +s((?: +\d+ seeds)+)$", stats.__doc__, re.MULTILINE)
    assert head
    sizes = [int(size) for size in re.findall(r"\d+", head[1])]
    rows = re.findall(r"^ +(\d\.\d)((?: +0\.\d\d)+)$", stats.__doc__, re.MULTILINE)
    return {(float(s), n): float(p) for s, cells in rows for n, p in zip(sizes, cells.split(), strict=True)}


def test_the_docstring_has_its_table() -> None:
    assert len(documented()) == 9


@pytest.mark.parametrize(("scatter", "num", "probability"), [(s, n, p) for (s, n), p in documented().items()])
def test_log_normal_updates_are_covered_as_often_as_documented(scatter: float, num: int, probability: float) -> None:
    count = coverage(lambda rng: (estimate(lognormal(rng, 1, scatter, num)), 1.0))
    assert is_coverage(count, probability)


def test_few_seeds_of_a_deep_narrow_network_miss_their_mean() -> None:
    assert not is_coverage(coverage(lambda rng: (estimate(lognormal(rng, 1, 0.8, 4)), 1.0)), 0.95)


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

    count = coverage(trial)
    assert is_coverage(count, 0.95)
    assert not is_coverage(count, 0.85)


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


@pytest.mark.parametrize(
    ("num", "width", "num_trials"),
    [
        (4, 512, FEW),
        *(pytest.param(*case, NUM_TRIALS, marks=pytest.mark.slow) for case in ((4, 512), (16, 512), (64, 128))),
    ],
)
def test_a_bend_that_is_predicted_is_no_deviation(num: int, width: int, num_trials: int) -> None:
    """And the interval of the difference holds, with the scatter of deep post-LN."""
    means = curve(1, -1)

    def trial(rng: np.random.Generator, predicted: list[float]) -> tuple[Estimate | None, float]:
        scatters = [0.8 * math.sqrt(length / width) for length in LENGTHS]
        samples = [lognormal(rng, mean, s, num) for mean, s in zip(means, scatters, strict=True)]
        return fit_exponent(LENGTHS, samples, predicted).difference, 0.0

    assert is_coverage(coverage(partial(trial, predicted=means), num_trials), 0.95, num_trials)
    assert not is_coverage(coverage(partial(trial, predicted=curve(1)), num_trials), 0.95, num_trials)


def test_weights_from_few_seeds_would_miss_as_often_as_documented() -> None:
    """The reason for equal weights: those of the measured errors, and their interval, by the same formulas."""

    def trial(rng: np.random.Generator) -> tuple[Estimate, float]:
        samples = [lognormal(rng, 1, 0.8 * math.sqrt(length / 512), 4) for length in LENGTHS]
        logs = [stats._logarithm(estimate(values)) for values in samples]
        weights = np.array([part.standard_error or 0 for part in logs]) ** -2.0
        _, slope = stats._line_coefficients(np.log(LENGTHS), weights)
        return stats.combined(slope, logs, 0.95), 0.0

    count = coverage(trial)
    assert is_coverage(count, 0.83)
    assert not is_coverage(count, 0.95)


def test_the_prediction_s_exponent_does_not_hang_on_the_seeds() -> None:
    rng, predicted = np.random.default_rng(0), curve(1, -1)
    found = {fit_exponent(LENGTHS, [lognormal(rng, 1, 0.5, 5) for _ in LENGTHS], predicted).predicted for _ in range(9)}
    assert len(found) == 1


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
    found = width_term([128, 512], ratios, 16)
    for width, one in zip([128, 512], ratios, strict=True):
        assert found.limit.mean + found.slope.mean * 16 / width == pytest.approx(one.mean, rel=1e-12)
    assert found.slope.standard_error == pytest.approx(math.hypot(0.01, 0.02) / (16 / 128 - 16 / 512), rel=1e-12)


@pytest.mark.parametrize(
    ("widths", "num_trials"),
    [
        ((64, 128, 256, 512), FEW),
        *(pytest.param(widths, NUM_TRIALS, marks=pytest.mark.slow) for widths in ((128, 512), (64, 128, 256, 512))),
    ],
)
def test_the_limit_and_the_slope_are_found_and_their_intervals_hold(widths: tuple[int, ...], num_trials: int) -> None:
    def trial(rng: np.random.Generator, of: str, limit: float) -> tuple[Estimate, float]:
        ratios = []
        for width in widths:
            values = lognormal(rng, 1 + 0.7 * 16 / width, 0.8 * math.sqrt(16 / width), 12)
            ratios.append(ratio_to_exact(estimate(values), 1.0))
        found = width_term(widths, ratios, 16)
        return (found.limit, limit) if of == "limit" else (found.slope, 0.7)

    assert is_coverage(coverage(partial(trial, of="limit", limit=1), num_trials), 0.95, num_trials)
    assert is_coverage(coverage(partial(trial, of="slope", limit=1), num_trials), 0.95, num_trials)
    assert not is_coverage(coverage(partial(trial, of="limit", limit=1.2), num_trials), 0.95, num_trials)


def test_a_width_s_weight_is_its_seeds_times_itself() -> None:
    widths, nums, means = [64, 128, 512], [4, 32, 8], [1.3, 1.2, 1.0]
    ratios = [Estimate(mean, 0.1 / num, None, None, num) for mean, num in zip(means, nums, strict=True)]
    found = width_term(widths, ratios, 16)
    line = np.polyfit(16 / np.array(widths), means, 1, w=np.sqrt(np.multiply(widths, nums)))
    assert [found.slope.mean, found.limit.mean] == pytest.approx(line.tolist(), rel=1e-10)


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
    found = agrees(first, second)
    assert found.has_logs
    assert found.p_value == pytest.approx(ttest_ind(np.log(first), np.log(second), equal_var=False).pvalue, rel=1e-10)
    first[0] = -first[0]
    for pair in ((first, second), (second, first)):
        found = agrees(*pair)
        assert not found.has_logs
        assert found.p_value == pytest.approx(ttest_ind(*pair, equal_var=False).pvalue, rel=1e-10)


def test_samples_of_one_distribution_agree_as_often_as_stated_and_a_tenth_more_is_seen() -> None:
    rng = np.random.default_rng(0)

    def num_agreed(factor: float) -> int:
        pairs = [(lognormal(rng, 1, 0.3, 64), lognormal(rng, factor, 0.3, 512)) for _ in range(FEW)]
        return sum(agrees(first, second, 0.95).is_agreed for first, second in pairs)

    assert is_coverage(num_agreed(1), 0.95, FEW)
    assert not is_coverage(num_agreed(1.1), 0.95, FEW)


def test_what_is_agreed_is_what_the_interval_holds() -> None:
    first, second = [1.0, 1.1, 1.2, 0.9], [1.0, 1.3, 1.4, 1.7]
    for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.9999):
        found = agrees(first, second, level)
        assert found.difference.low is not None and found.difference.high is not None
        assert found.is_agreed is (found.difference.low <= 0 <= found.difference.high)
        assert found.is_agreed is (found.p_value > 1 - level)
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
    found = agrees(first, second)
    assert found.is_agreed is is_agreed
    assert found.p_value == float(is_agreed)


@pytest.mark.parametrize("values", [[1.0], [1.0, None], [1.0, math.inf]])
def test_agreement_needs_values_that_did_not_diverge(values: list[Any]) -> None:
    for pair in ((values, [1.0, 2.0]), ([1.0, 2.0], values)):
        with pytest.raises(ValueError, match=r"two values on either side|1 of 2 values diverged"):
            agrees(*pair)
