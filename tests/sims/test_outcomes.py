"""Who trains and up to which rate: the edge is found, and intervals hold as often as they say."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, spearmanr, ttest_ind, ttest_rel

from depthlaw.sims.stats import Estimate, estimate
from depthlaw.sims.training.outcomes import (
    Edge,
    compare_edges,
    compare_means,
    correlation_interval,
    differs,
    edge,
    next_rate,
    rank_correlation,
    rank_correlation_over_seeds,
    share,
)


def holds(low: float | None, truth: float, high: float | None) -> bool:
    return (low is None or low <= truth) and (high is None or truth <= high)


NUM_TRIALS = 300


def chances(num: int, p: float) -> list[float]:
    """Of 0, 1, ... num successes."""
    return binom.pmf(range(num + 1), num, p).tolist()


@pytest.mark.parametrize("num", [1, 3, 10])
def test_the_interval_of_a_share_always_holds(num: int) -> None:
    ends = [(share(count, num).low, share(count, num).high) for count in range(num + 1)]
    for p in np.linspace(0.005, 0.995, 199).tolist():
        assert (
            sum(chance for chance, (low, high) in zip(chances(num, p), ends, strict=True) if low <= p <= high) >= 0.95
        )


def test_all_against_none_differ_and_equal_shares_do_not() -> None:
    comparison = differs(0, 5, 5, 5)
    # 0 of 5 and 5 of 5 have the highest probability, twice 2^-10, where each run trains half the time.
    assert comparison.p_value == pytest.approx(2 / 2**10, rel=1e-9)
    assert (comparison.difference, comparison.low, comparison.verdict) == (-1, -1, "second larger")
    assert differs(5, 5, 0, 5).verdict == "first larger"
    for count in (0, 3, 5):
        equal = differs(count, 5, count, 5)
        assert (equal.difference, equal.p_value, equal.verdict) == (0, pytest.approx(1), "open")


def test_newcombes_printed_intervals() -> None:
    """Newcombe (1998), Statistics in Medicine 17, 873: table II, contrasts (a) and (h), method 10."""
    contrast, ends = differs(56, 70, 48, 80), differs(10, 10, 0, 10)
    assert [round(end or 0, 4) for end in (contrast.low, contrast.high)] == [0.0524, 0.3339]
    assert [round(end or 0, 4) for end in (ends.low, ends.high)] == [0.6075, 1.0]


def test_the_test_of_shares_errs_no_more_than_it_says() -> None:
    """How often equal shares are said to differ; all outcomes are added up."""
    num = 4
    region = [(i, j) for i, j in product(range(num + 1), repeat=2) if differs(i, num, j, num).verdict != "open"]
    for p in np.linspace(0.01, 0.99, 50).tolist():
        assert sum(chances(num, p)[i] * chances(num, p)[j] for i, j in region) <= 0.05


sizes = st.integers(1, 40)


def searched(grid: Sequence[float], trains: Callable[[int], bool], start: float | None = None) -> dict[float, bool]:
    tried: dict[float, bool] = {}
    while (rate := next_rate(grid, tried, start)) is not None:
        assert rate not in tried
        tried[rate] = trains(grid.index(rate))
    return tried


def is_shown(grid: Sequence[float], claimed: Edge, tried: dict[float, bool]) -> bool:
    """The rate was seen to train, and its upper neighbour to fail; or it is the top; or nothing tried trained."""
    if claimed.rate is None:
        return claimed.is_at_bottom and not claimed.is_at_top and tried[grid[0]] is False and not any(tried.values())
    place = grid.index(claimed.rate)
    is_top = place == len(grid) - 1
    is_bracketed = is_top or tried.get(grid[place + 1]) is False
    return tried[claimed.rate] and is_bracketed and claimed.is_at_top == is_top and not claimed.is_at_bottom


def a_grid(num: int) -> list[float]:
    return np.geomspace(1e-4, 1e-4 * 2 ** (num / 2), num).tolist()


@given(sizes, st.data())
def test_the_edge_is_found_exactly_and_in_few_runs(num: int, data: st.DataObject) -> None:
    grid, place = a_grid(num), data.draw(st.integers(-1, num - 1))
    tried = searched(grid, lambda i: i <= place, data.draw(st.none() | st.sampled_from(grid)))
    largest = edge(grid, tried)
    assert largest.rate == (grid[place] if place >= 0 else None)
    assert is_shown(grid, largest, tried)
    assert len(tried) <= math.ceil(math.log2(num)) + 1


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.data())
def test_whatever_the_outcomes_an_edge_is_one_that_was_seen(trains: list[bool], data: st.DataObject) -> None:
    grid = a_grid(len(trains))
    tried = searched(grid, lambda i: trains[i], data.draw(st.none() | st.sampled_from(grid)))
    assert is_shown(grid, edge(grid, tried), tried)


OCTAVES = [2.0**k for k in range(-12, 1)]


def rounded(logarithm: float, grid: Sequence[float] = OCTAVES) -> Edge:
    """The edge that a search finds where the true one is 2**logarithm."""
    return edge(grid, searched(grid, lambda i: math.log2(grid[i]) <= logarithm))


@pytest.mark.parametrize(("num", "scatter"), [(5, 0.001), (3, 0.5)])
def test_the_interval_of_edges_holds_whatever_their_scatter_to_the_grid(num: int, scatter: float) -> None:
    """Of edges that scatter so far, at a true difference of 2 octaves - 0.02."""
    rng, count = np.random.default_rng(num), 0
    for _ in range(NUM_TRIALS):
        of_seed = rng.normal(-6.01, scatter, num)
        first = of_seed + 1.98 + scatter * rng.standard_normal(num)
        second = of_seed + scatter * rng.standard_normal(num)
        octaves = compare_edges([rounded(x) for x in first], [rounded(x) for x in second], OCTAVES).octaves
        count += holds(octaves.low, 1.98, octaves.high)
    assert count >= binom.ppf(0.0001, NUM_TRIALS, 0.95)


def test_a_difference_of_edges_is_one_step_wider_than_students() -> None:
    first, second = [OCTAVES[i] for i in (7, 8, 8, 9)], [OCTAVES[i] for i in (4, 4, 5, 3)]
    comparison = compare_edges([Edge(x) for x in first], [Edge(x) for x in second], OCTAVES)
    plain = estimate([math.log2(a / b) for a, b in zip(first, second, strict=True)])
    assert plain.low is not None and plain.high is not None
    assert (comparison.octaves.difference, comparison.octaves.low, comparison.octaves.high) == pytest.approx(
        (plain.mean, plain.low - 1, plain.high + 1), rel=1e-12
    )
    assert (comparison.num_first, comparison.num_second, comparison.num_ties, comparison.num_censored) == (4, 0, 0, 0)
    assert comparison.octaves.p_value == pytest.approx(2 / 2**4)


def test_an_end_of_the_grid_leaves_open_what_it_hides() -> None:
    top, bottom, middle = Edge(1.0, is_at_top=True), Edge(None, is_at_bottom=True), Edge(OCTAVES[6])
    above = compare_edges([top] * 4, [middle] * 4, OCTAVES)
    assert (above.octaves.difference, above.octaves.low, above.octaves.high) == (None, 5, None)
    assert (above.octaves.verdict, above.num_censored) == ("first larger", 4)
    assert json.loads(json.dumps(asdict(above), allow_nan=False))["octaves"]["high"] is None
    below = compare_edges([bottom] * 4, [middle] * 4, OCTAVES)
    assert (below.octaves.low, below.octaves.high, below.octaves.verdict) == (None, -6, "second larger")
    for end in (top, bottom):
        both = compare_edges([end] * 4, [end] * 4, OCTAVES)
        assert (both.octaves.verdict, both.num_ties, both.octaves.p_value) == ("open", 4, 1)
    # One seed of the lower side at the top: nothing is known of how far its edge is above the other's.
    mixed = compare_edges([top] * 4, [middle] * 3 + [top], OCTAVES)
    assert (mixed.octaves.verdict, mixed.num_first, mixed.num_ties) == ("open", 3, 1)
    assert mixed.octaves.p_value == pytest.approx(2 / 2**3)


def documented() -> dict[tuple[float, int], float]:
    """By normal correlation and number of cases, how often the docstring says that the interval holds."""
    assert correlation_interval.__doc__
    rows = re.findall(r"^ +(0\.\d+)((?: +0\.\d+){3})$", correlation_interval.__doc__, re.MULTILINE)
    return {
        (float(normal), num): float(p)
        for normal, cells in rows
        for num, p in zip((6, 10, 20), cells.split(), strict=True)
    }


@pytest.mark.parametrize(
    ("normal", "num"),
    [pytest.param(*case, marks=[] if case == (0.9, 6) else [pytest.mark.slow]) for case in documented()],
)
def test_intervals_of_rank_correlations_hold_as_often_as_documented(normal: float, num: int) -> None:
    rng, truth, count, num_trials = np.random.default_rng(num), 6 / math.pi * math.asin(normal / 2), 0, 1000
    for _ in range(num_trials):
        x = rng.standard_normal(num)
        y = normal * x + math.sqrt(1 - normal**2) * rng.standard_normal(num)
        low, high = correlation_interval(float(spearmanr(x, y).statistic), num)
        count += holds(low, truth, high)
    assert len(documented()) == 12
    low, high = binom.interval(0.9999, num_trials, documented()[normal, num])
    assert low <= count <= high


def test_rank_correlation_is_scipys_with_ties_and_ends_of_a_grid() -> None:
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0, 7.0, 6.0], [-math.inf, 0.1, 0.4, 0.2, math.inf, math.inf, 0.4]
    correlation = rank_correlation(x, y)
    assert correlation.value == pytest.approx(spearmanr(x, y).statistic, rel=1e-12)
    assert correlation.low is not None and correlation.high is not None
    assert correlation.low < correlation.value < correlation.high


def test_over_seeds_the_cases_are_fixed() -> None:
    """Four cases in the same order at every seed: other seeds would show it, other cases need not."""
    y = [[case + 0.1 * seed for seed in range(5)] for case in range(4)]
    assert rank_correlation_over_seeds(range(4), y) == Estimate(1.0, 0.0, 1.0, 1.0, 5)
    of_one = rank_correlation(range(4), [row[0] for row in y])
    assert of_one.low is not None and of_one.low < 0.5
    mixed = rank_correlation_over_seeds([1, 2, 3], [[1, 3, 2], [2, 2, 1], [3, 1, 3]])
    assert mixed.mean == pytest.approx((1 - 1 + 0.5) / 3)
    assert (mixed.low, mixed.high) == (-1, 1)


@pytest.mark.parametrize("is_paired", [False, True])
def test_means_are_compared_as_by_scipy(is_paired: bool) -> None:
    first, second = [2.0, 2.5, 2.1, 2.4], [2.6, 2.7, 2.5, 3.2]
    comparison = compare_means(first, second, 0.9, is_paired=is_paired)
    other = ttest_rel(first, second) if is_paired else ttest_ind(first, second, equal_var=False)
    interval = other.confidence_interval(0.9)
    assert (comparison.low, comparison.high, comparison.p_value) == pytest.approx(
        (interval.low, interval.high, other.pvalue), rel=1e-9
    )
    assert comparison.verdict == "second larger"


def test_means_without_scatter() -> None:
    assert compare_means([1.0, 1.0], [1.0, 1.0]).verdict == "open"
    assert compare_means([2.0, 2.0], [1.0, 1.0]).verdict == "first larger"
    assert compare_means([1.0, 2.0], [1.0, 1.0]).low is not None


REFUSED: list[tuple[Callable[..., object], tuple[Any, ...], str]] = [
    *((share, counts, "a share is of one run or more") for counts in ((-1, 5), (6, 5), (0, 0))),
    *((share, (1, 2, level), "a level is between 0 and 1") for level in (0, 1, 95)),
    (differs, (6, 5, 1, 2), "a share is of one run or more"),
    (differs, (1, 2, 1, 2, 95), "a level is between 0 and 1"),
    (edge, ([0.1, 0.2, 0.4], {0.2: False}), r"the next rate to try is 0\.1$"),
    (next_rate, ([0.1, 0.2], {0.3: True}), r"outcomes at 0\.3, which is not in the grid"),
    (next_rate, ([0.1, 0.2], {}, 0.3), r"the start 0\.3 is not in the grid"),
    *((next_rate, (grid, {}), "positive and ascending") for grid in ([], [0.0, 1.0], [2.0, 1.0], [1.0, 1.0])),
    *((next_rate, ([1.0, end], {}), "positive and ascending") for end in (math.nan, math.inf)),
    (compare_edges, ([Edge(1.0)], [Edge(1.0)] * 2, OCTAVES), "1 and 2 cannot be"),
    (compare_edges, ([Edge(0.3)], [Edge(1.0)], OCTAVES), r"0\.3, which is not in the grid"),
    (rank_correlation, ([1, 1, 1], [1, 2, 3]), "x: a rank correlation"),
    (rank_correlation, ([1, 2, 3], [1, math.nan, 3]), "y: a rank correlation"),
    (rank_correlation, ([1, 2, 3], [1, 2]), "3 and 2 cannot be"),
    (rank_correlation_over_seeds, ([1, 2], [[1, 5], [2, 5]]), "y of seed 1: a rank correlation"),
    (rank_correlation_over_seeds, ([1, 2], [[1, 5]]), "a row for each case"),
    (compare_means, ([1.0, None], [1.0, 2.0]), "1 of 2 values diverged"),
    (compare_means, ([1.0], [1.0, 2.0]), "two values on either side"),
    (partial(compare_means, is_paired=True), ([1.0, 2.0, 3.0], [1.0, 2.0]), "3 and 2 cannot be"),
]


@pytest.mark.parametrize(("ask", "arguments", "says"), REFUSED)
def test_what_cannot_be_is_refused(ask: Callable[..., object], arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ask(*arguments)
