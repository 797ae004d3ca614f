"""Intervals hold as often as they say, or as the docstring says where they do not; fits find what was put in."""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, linregress, t, ttest_ind

from depthlaw.sims import stats
from depthlaw.sims.stats import Estimate, agrees, estimate, fit_exponent, ratio_to_exact, width_term

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


def test_a_mean_and_its_interval_by_the_textbook() -> None:
    mean = estimate([1.0, 2.0, 3.0, 4.0], 0.9)
    error = math.sqrt(5 / 3 / 4)
    assert (mean.mean, mean.num) == (2.5, 4)
    assert mean.standard_error == pytest.approx(error, rel=1e-14)
    assert (mean.low, mean.high) == pytest.approx(t.interval(0.9, 3, 2.5, error), rel=1e-12)


def test_one_value_has_no_interval_and_equal_ones_have_one_of_length_0() -> None:
    assert estimate([2.0]) == Estimate(2.0, None, None, None, 1)
    assert estimate([0.1] * 7) == Estimate(0.1, 0.0, 0.1, 0.1, 7)
    assert estimate([0.0] * 7) == Estimate(0.0, 0.0, 0.0, 0.0, 7)


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


def test_a_ratio_to_a_prediction_is_in_its_unit() -> None:
    measured = Estimate(3.0, 0.5, 2.0, 5.0, 9)
    assert ratio_to_exact(measured, 2.0) == Estimate(1.5, 0.25, 1.0, 2.5, 9)
    assert ratio_to_exact(measured, -2.0) == Estimate(-1.5, 0.25, -2.5, -1.0, 9)
    assert ratio_to_exact(estimate([3.0]), 2.0) == Estimate(1.5, None, None, None, 1)


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


def test_a_bend_that_is_predicted_is_no_deviation() -> None:
    """And the interval of the difference holds, with the scatter of deep post-LN at width 512."""
    means = curve(1, -1)

    def trial(rng: np.random.Generator, predicted: list[float]) -> tuple[Estimate | None, float]:
        scatters = [0.8 * math.sqrt(length / 512) for length in LENGTHS]
        samples = [lognormal(rng, mean, s, 4) for mean, s in zip(means, scatters, strict=True)]
        return fit_exponent(LENGTHS, samples, predicted).difference, 0.0

    assert is_coverage(coverage(partial(trial, predicted=means), FEW), 0.95, FEW)
    assert not is_coverage(coverage(partial(trial, predicted=curve(1)), FEW), 0.95, FEW)


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
        ([], [], "needs two lengths, and 0 can be fitted"),
        ([4, 8], [[0.0, 0.0], [0.0, 0.0]], "the update is 0 at every length"),
        ([4, 8], [[0.0, 0.0], [0.0, math.nan]], "needs two lengths, and 0 can be fitted"),
    ],
)
def test_where_there_is_no_exponent_the_reason_stands(lengths: list[int], samples: Any, reason: str) -> None:
    fit = fit_exponent(lengths, samples, [0.0] * len(lengths))
    assert fit.measured is fit.predicted is fit.difference is None
    assert reason in fit.reason


def test_a_width_s_weight_is_its_seeds_times_itself() -> None:
    widths, nums, means = [64, 128, 512], [4, 32, 8], [1.3, 1.2, 1.0]
    ratios = [Estimate(mean, 0.1 / num, None, None, num) for mean, num in zip(means, nums, strict=True)]
    term = width_term(widths, ratios, 16)
    line = np.polyfit(16 / np.array(widths), means, 1, w=np.sqrt(np.multiply(widths, nums)))
    assert [term.slope.mean, term.limit.mean] == pytest.approx(line.tolist(), rel=1e-10)


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


@pytest.mark.parametrize(
    ("first", "second", "is_agreed"),
    [
        ([0.0, 0.0], [0.0, 0.0, 0.0], True),
        ([1 / 3, 1 / 3], [0.33333333, 0.33333333], True),
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


SOME = estimate([1.0, 2.0])
REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str]] = [
    (estimate, ([],), "no values"),
    (estimate, ([1.0, None],), "1 of 2 values diverged"),
    (estimate, ([math.nan, math.inf, 1.0],), "2 of 3 values diverged"),
    *((ratio_to_exact, (SOME, nothing), "no ratio") for nothing in (0.0, math.nan, math.inf)),
    *((fit_exponent, (lengths, [[1.0]] * 2, [1.0] * 2), "each once") for lengths in ([4, 4], [0, 4])),
    *((fit_exponent, ([4, 8], [[1.0]] * n, [1.0] * m), "one for each length") for n, m in ((1, 2), (2, 3))),
    *((width_term, (w, [SOME] * len(w), 4), "two or more different widths") for w in ((64,), (64, 64), (0, 64))),
    (agrees, ([1.0], [1.0, 2.0]), "two values on either side"),
    (agrees, ([1.0, 2.0], [1.0, math.inf]), "1 of 2 values diverged"),
]


@pytest.mark.parametrize(("ask", "arguments", "says"), REFUSED)
def test_what_cannot_be_is_refused(ask: Callable[..., object], arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ask(*arguments)
