"""Who trains and up to which rate: the edge is found, and intervals hold as often as they say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from itertools import product, starmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm, spearmanr, ttest_ind, ttest_rel

from sims.stats import Estimate, estimate
from sims.training import outcomes
from sims.training.outcomes import (
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
    verdict,
)

Ends = tuple[float | None, float | None]
FEW, MANY = 300, 1000  # trials: in `make test`, and in `make test-long`


def often(*case: float) -> Any:
    return pytest.param(*case, MANY, marks=pytest.mark.slow)


def is_count(count: int, num_trials: int, probability: float) -> bool:
    """Whether so many of the trials can have come of that probability: 0.9999 of all counts that do lie inside."""
    low, high = binom.interval(0.9999, num_trials, probability)
    return bool(low <= count <= high)


def is_enough(count: int, num_trials: int, probability: float) -> bool:
    return bool(count >= binom.ppf(0.0001, num_trials, probability))


def holds(low: float | None, truth: float, high: float | None) -> bool:
    return (low is None or low <= truth) and (high is None or truth <= high)


# ---------------------------------------------------------------- shares


def least_coverage(interval: Callable[[int, int], tuple[float, float]], num: int) -> float:
    """How often the interval of a share holds the true one, at the worst true one; all outcomes are added up."""
    ends = [interval(count, num) for count in range(num + 1)]
    return min(
        sum(chance for chance, (low, high) in zip(chances(num, p), ends, strict=True) if low <= p <= high)
        for p in np.linspace(0.005, 0.995, 199).tolist()
    )


def chances(num: int, p: float) -> list[float]:
    """Of 0, 1, ... num successes."""
    return binom.pmf(range(num + 1), num, p).tolist()


@pytest.mark.parametrize("num", [1, 3, 10])
def test_the_interval_of_a_share_always_holds(num: int) -> None:
    def walds(count: int, num: int) -> tuple[float, float]:
        half = norm.ppf(0.975) * math.sqrt(count / num * (1 - count / num) / num)
        return count / num - half, count / num + half

    assert least_coverage(lambda count, num: (share(count, num).low, share(count, num).high), num) >= 0.95
    assert least_coverage(walds, num) < 0.95


def test_shares_of_none_and_of_all_have_intervals() -> None:
    none, every = share(0, 5), share(5, 5)
    assert (none.value, none.low, every.value, every.high) == (0, 0, 1, 1)
    assert none.high == pytest.approx(1 - 0.025**0.2, rel=1e-9)
    assert every.low == pytest.approx(0.025**0.2, rel=1e-9)


@pytest.mark.parametrize(
    ("successes", "num", "level", "says"),
    [(*counts, 0.95, "a share is of one run or more") for counts in ((-1, 5), (6, 5), (0, 0))]
    + [(1, 2, level, "a level is between 0 and 1") for level in (0, 1, 95)],
)
def test_a_share_that_is_none_is_refused(successes: int, num: int, level: float, says: str) -> None:
    for ask in (lambda: share(successes, num, level), lambda: differs(successes, num, 1, 2, level)):
        with pytest.raises(ValueError, match=says):
            ask()


def test_all_against_none_differ_and_equal_shares_do_not() -> None:
    found = differs(0, 5, 5, 5)
    # 0 of 5 and 5 of 5 have the highest probability, twice 2^-10, where each run trains half the time.
    assert found.p_value == pytest.approx(2 / 2**10, rel=1e-9)
    assert (found.difference, found.low, found.verdict) == (-1, -1, "second larger")
    assert differs(5, 5, 0, 5).verdict == "first larger"
    for count in (0, 3, 5):
        equal = differs(count, 5, count, 5)
        assert (equal.difference, equal.p_value, equal.verdict) == (0, pytest.approx(1), "open")


def test_one_side_has_half_the_p_value() -> None:
    one = differs(5, 5, 0, 5, is_one_sided=True)
    assert differs(5, 5, 0, 5).p_value == pytest.approx(2 * (one.p_value or 0), rel=1e-9)
    assert differs(0, 5, 5, 5, is_one_sided=True).verdict == "open"


def test_newcombes_printed_intervals() -> None:
    """Newcombe (1998), Statistics in Medicine 17, 873: table II, contrasts (a) and (h), method 10."""
    found, ends = differs(56, 70, 48, 80), differs(10, 10, 0, 10)
    assert [round(end or 0, 4) for end in (found.low, found.high)] == [0.0524, 0.3339]
    assert [round(end or 0, 4) for end in (ends.low, ends.high)] == [0.6075, 1.0]


def errors_of_the_first_kind(is_found: Callable[[int, int], bool], num: int) -> float:
    """How often equal shares are said to differ, at the worst share; all outcomes are added up."""
    region = [pair for pair in product(range(num + 1), repeat=2) if is_found(*pair)]
    of_shares = (chances(num, p) for p in np.linspace(0.01, 0.99, 50).tolist())
    return max(sum(of[i] * of[j] for i, j in region) for of in of_shares)


def test_the_test_of_shares_errs_no_more_than_it_says() -> None:
    num = 4

    def is_z_large(first: int, second: int) -> bool:
        mean = (first + second) / (2 * num)
        return abs(first - second) / num > norm.ppf(0.975) * math.sqrt(max(2 * mean * (1 - mean) / num, 1e-9))

    assert errors_of_the_first_kind(lambda i, j: differs(i, num, j, num).verdict != "open", num) <= 0.05
    assert errors_of_the_first_kind(is_z_large, num) > 0.05


# ---------------------------------------------------------------- the edge

sizes = st.integers(1, 40)


def searched(grid: Sequence[float], trains: Callable[[int], bool], start: float | None = None) -> dict[float, bool]:
    tried: dict[float, bool] = {}
    while (rate := next_rate(grid, tried, start)) is not None:
        assert rate not in tried
        tried[rate] = trains(grid.index(rate))
    return tried


def is_shown(grid: Sequence[float], found: Edge, tried: dict[float, bool]) -> bool:
    """The rate was seen to train, and its upper neighbour to fail; or it is the top; or nothing tried trained."""
    if found.rate is None:
        return found.is_at_bottom and not found.is_at_top and tried[grid[0]] is False and not any(tried.values())
    place = grid.index(found.rate)
    is_top = place == len(grid) - 1
    is_bracketed = is_top or tried.get(grid[place + 1]) is False
    return tried[found.rate] and is_bracketed and found.is_at_top == is_top and not found.is_at_bottom


def a_grid(num: int) -> list[float]:
    return np.geomspace(1e-4, 1e-4 * 2 ** (num / 2), num).tolist()


@given(sizes, st.data())
def test_the_edge_is_found_exactly_and_in_few_runs(num: int, data: st.DataObject) -> None:
    grid, place = a_grid(num), data.draw(st.integers(-1, num - 1))
    tried = searched(grid, lambda i: i <= place, data.draw(st.none() | st.sampled_from(grid)))
    found = edge(grid, tried)
    assert found.rate == (grid[place] if place >= 0 else None)
    assert is_shown(grid, found, tried)
    assert len(tried) <= math.ceil(math.log2(num)) + 1


@given(sizes, st.data())
def test_rates_that_are_too_slow_do_not_hide_the_upper_edge(num: int, data: st.DataObject) -> None:
    grid, place = a_grid(num), data.draw(st.integers(0, num - 1))
    slow = data.draw(st.integers(0, place))
    start = grid[data.draw(st.integers(slow, place))]
    tried = searched(grid, lambda i: slow <= i <= place, start)
    assert edge(grid, tried).rate == grid[place]
    assert len(tried) <= math.ceil(math.log2(num)) + 1


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.data())
def test_whatever_the_outcomes_an_edge_is_one_that_was_seen(trains: list[bool], data: st.DataObject) -> None:
    grid = a_grid(len(trains))
    tried = searched(grid, lambda i: trains[i], data.draw(st.none() | st.sampled_from(grid)))
    assert is_shown(grid, edge(grid, tried), tried)


def test_a_bisection_that_is_off_by_one_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = outcomes._bracket

    def off_by_one(grid: Sequence[float], tried: dict[float, bool]) -> tuple[int, int]:
        trains, fails = right(grid, tried)
        return trains, max(fails - 1, trains + 1)

    monkeypatch.setattr(outcomes, "_bracket", off_by_one)
    grid = a_grid(8)
    found = [edge(grid, searched(grid, lambda i, place=place: i <= place)).rate for place in range(-1, 8)]
    assert found != [None, *grid]


def test_a_missed_window_is_found_by_trying_the_rates_between() -> None:
    grid = a_grid(8)
    tried = searched(grid, lambda i: i == 2)
    assert edge(grid, tried) == Edge(None, is_at_bottom=True)
    assert edge(grid, {**tried, grid[2]: True}) == Edge(grid[2])


def test_searches_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the next rate to try is 0\.1$"):
        edge([0.1, 0.2, 0.4], {0.2: False})
    with pytest.raises(ValueError, match=r"outcomes at 0\.3, which is not in the grid"):
        next_rate([0.1, 0.2], {0.3: True})
    with pytest.raises(ValueError, match=r"the start 0\.3 is not in the grid"):
        next_rate([0.1, 0.2], {}, 0.3)
    for grid in ([], [0.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, math.nan], [1.0, math.inf]):
        with pytest.raises(ValueError, match="positive and ascending"):
            next_rate(grid, {})


# ---------------------------------------------------------------- two sets of edges

OCTAVES = [2.0**k for k in range(-12, 1)]


def rounded(logarithm: float, grid: Sequence[float] = OCTAVES) -> Edge:
    """The edge that a search finds where the true one is 2**logarithm."""
    return edge(grid, searched(grid, lambda i: math.log2(grid[i]) <= logarithm))


def coverage(compare: Callable[..., Ends], num: int, scatter: float, num_trials: int) -> int:
    """In how many trials an interval holds the difference of 2 octaves - 0.02 of edges that scatter that far."""
    rng, count = np.random.default_rng(num), 0
    for _ in range(num_trials):
        of_seed = rng.normal(-6.01, scatter, num)
        first = of_seed + 1.98 + scatter * rng.standard_normal(num)
        second = of_seed + scatter * rng.standard_normal(num)
        low, high = compare(first.tolist(), second.tolist())
        count += holds(low, 1.98, high)
    return count


def by_brackets(first: list[float], second: list[float]) -> Ends:
    found = compare_edges([rounded(x) for x in first], [rounded(x) for x in second], OCTAVES).octaves
    return found.low, found.high


def by_midpoints(first: list[float], second: list[float]) -> Ends:
    found = estimate([math.floor(a) - math.floor(b) for a, b in zip(first, second, strict=True)])
    return found.low, found.high


@pytest.mark.parametrize(
    ("num", "scatter", "num_trials"),
    [
        *((5, 0.001, FEW), (3, 0.5, FEW)),
        *starmap(often, product([3, 5], [0.001, 0.1, 0.5, 1.0, 3.0])),
    ],
)
def test_the_interval_of_edges_holds_whatever_their_scatter_to_the_grid(
    num: int, scatter: float, num_trials: int
) -> None:
    assert is_enough(coverage(by_brackets, num, scatter, num_trials), num_trials, 0.95)


def test_midpoints_do_not_hold_where_the_grid_is_coarse() -> None:
    assert not is_enough(coverage(by_midpoints, 5, 0.001, FEW), FEW, 0.95)


@pytest.mark.parametrize("is_red", [False, True])
def test_normal_quantiles_do_not_hold_with_few_seeds(is_red: bool) -> None:
    """On a grid that is fine to the scatter only the quantile decides."""
    grid = np.geomspace(2.0**-13, 1, 500).tolist()
    logs = np.log2(grid)

    def compare(first: list[float], second: list[float]) -> Ends:
        if is_red:
            found = estimate([a - b for a, b in zip(first, second, strict=True)])
            half = norm.ppf(0.975) * (found.standard_error or 0)
            return found.mean - half, found.mean + half
        one, other = ([Edge(grid[int(np.searchsorted(logs, x)) - 1]) for x in side] for side in (first, second))
        octaves = compare_edges(one, other, grid).octaves
        return octaves.low, octaves.high

    count = coverage(compare, 3, 0.5, FEW)
    assert is_count(count, FEW, 0.95) is not is_red
    assert is_enough(count, FEW, 0.95) is not is_red


def test_a_difference_of_edges_is_one_step_wider_than_students() -> None:
    first, second = [OCTAVES[i] for i in (7, 8, 8, 9)], [OCTAVES[i] for i in (4, 4, 5, 3)]
    found = compare_edges([Edge(x) for x in first], [Edge(x) for x in second], OCTAVES)
    plain = estimate([math.log2(a / b) for a, b in zip(first, second, strict=True)])
    assert plain.low is not None and plain.high is not None
    assert (found.octaves.difference, found.octaves.low, found.octaves.high) == pytest.approx(
        (plain.mean, plain.low - 1, plain.high + 1), rel=1e-12
    )
    assert (found.num_first, found.num_second, found.num_ties, found.num_censored) == (4, 0, 0, 0)
    assert found.octaves.p_value == pytest.approx(2 / 2**4)


def test_one_step_at_every_seed_is_open_and_two_are_not() -> None:
    here = [Edge(OCTAVES[6])] * 4
    assert compare_edges([Edge(OCTAVES[7])] * 4, here, OCTAVES).octaves.verdict == "open"
    assert compare_edges([Edge(OCTAVES[8])] * 4, here, OCTAVES).octaves.verdict == "first larger"
    assert compare_edges(here, [Edge(OCTAVES[8])] * 4, OCTAVES).octaves.verdict == "second larger"
    assert compare_edges([Edge(OCTAVES[8])] * 2, here[:2], OCTAVES).octaves.low is None


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


def test_edges_of_unequal_numbers_or_other_grids_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2 cannot be"):
        compare_edges([Edge(1.0)], [Edge(1.0)] * 2, OCTAVES)
    with pytest.raises(ValueError, match=r"0\.3, which is not in the grid"):
        compare_edges([Edge(0.3)], [Edge(1.0)], OCTAVES)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.1, 2, "first larger"), (-2, -0.1, "second larger"), (-1, 1, "open"), (0, 1, "open"), (None, None, "open")],
)
def test_a_verdict_is_the_sign_that_the_interval_leaves(low: float | None, high: float | None, says: str) -> None:
    assert verdict(low, high) == says


# ---------------------------------------------------------------- rank correlation


@cache
def correlations(normal: float, num: int, num_trials: int) -> list[float]:
    rng, found = np.random.default_rng(num), []
    for _ in range(num_trials):
        x = rng.standard_normal(num)
        y = normal * x + math.sqrt(1 - normal**2) * rng.standard_normal(num)
        found.append(outcomes._correlation(outcomes._ranks("x", x), outcomes._ranks("y", y)))
    return found


def correlation_coverage(interval: Callable[..., Ends], normal: float, num: int, num_trials: int) -> int:
    truth, ends = 6 / math.pi * math.asin(normal / 2), (interval(x, num) for x in correlations(normal, num, num_trials))
    return sum(holds(low, truth, high) for low, high in ends)


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
    ("normal", "num", "num_trials"),
    [(0.9, 6, FEW), *starmap(often, documented())],
)
def test_intervals_of_rank_correlations_hold_as_often_as_documented(normal: float, num: int, num_trials: int) -> None:
    count = correlation_coverage(correlation_interval, normal, num, num_trials)
    assert len(documented()) == 12
    assert is_count(count, num_trials, documented()[normal, num])


def test_the_interval_of_a_rank_correlation_is_fishers_with_bonett_and_wrights_variance() -> None:
    centre, half = math.atanh(0.6), norm.ppf(0.95) * math.sqrt((1 + 0.6**2 / 2) / 7)
    expected = math.tanh(centre - half), math.tanh(centre + half)
    assert correlation_interval(0.6, 10, 0.9) == pytest.approx(expected, rel=1e-12)


def test_without_an_inner_end_at_1_they_do_not() -> None:
    def without(value: float, num: int) -> Ends:
        return (value, value) if abs(value) == 1 else correlation_interval(value, num)

    assert not is_enough(correlation_coverage(without, 0.9, 6, FEW), FEW, 0.95)


def test_rank_correlation_is_scipys_with_ties_and_ends_of_a_grid() -> None:
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0, 7.0, 6.0], [-math.inf, 0.1, 0.4, 0.2, math.inf, math.inf, 0.4]
    found = rank_correlation(x, y)
    assert found.value == pytest.approx(spearmanr(x, y).statistic, rel=1e-12)
    assert found.low is not None and found.high is not None and found.low < found.value < found.high
    assert rank_correlation(x, y) == found


def test_a_perfect_order_has_the_p_value_of_two_pairings() -> None:
    for y, value in ((range(6), 1), (range(6, 0, -1), -1)):
        found = rank_correlation(range(6), list(y))
        assert (found.value, found.p_value) == (value, pytest.approx(2 / math.factorial(6)))
    assert found.low == -1 and found.high is not None and found.high < 0
    assert rank_correlation([1, 2, 3], [1, 2, 3]).low is None


@pytest.mark.parametrize(("num", "num_trials"), [(5, 100), pytest.param(12, 40, marks=pytest.mark.slow)])
def test_p_values_of_no_relation_are_uniform_or_larger(num: int, num_trials: int) -> None:
    rng = np.random.default_rng(0)

    def num_small(slope: float) -> int:
        samples = (slope * np.arange(num) + 2 * rng.standard_normal(num) for _ in range(num_trials))
        return sum(rank_correlation(range(num), values.tolist()).p_value <= 0.1 for values in samples)

    assert num_small(0) <= binom.ppf(0.9999, num_trials, 0.1) < num_small(1)


def test_over_seeds_the_cases_are_fixed() -> None:
    """Four cases in the same order at every seed: other seeds would show it, other cases need not."""
    y = [[case + 0.1 * seed for seed in range(5)] for case in range(4)]
    assert rank_correlation_over_seeds(range(4), y) == Estimate(1.0, 0.0, 1.0, 1.0, 5)
    of_one = rank_correlation(range(4), [row[0] for row in y])
    assert of_one.low is not None and of_one.low < 0.5
    mixed = rank_correlation_over_seeds([1, 2, 3], [[1, 3, 2], [2, 2, 1], [3, 1, 3]])
    assert mixed.mean == pytest.approx((1 - 1 + 0.5) / 3)
    assert (mixed.low, mixed.high) == (-1, 1)


def test_what_has_no_rank_correlation_is_refused() -> None:
    for x, y, says in (
        ([1, 1, 1], [1, 2, 3], "x: a rank correlation"),
        ([1, 2, 3], [1, math.nan, 3], "y: a rank correlation"),
        ([1, 2, 3], [1, 2], "3 and 2 cannot be"),
    ):
        with pytest.raises(ValueError, match=says):
            rank_correlation(x, y)
    with pytest.raises(ValueError, match="y of seed 1: a rank correlation"):
        rank_correlation_over_seeds([1, 2], [[1, 5], [2, 5]])
    with pytest.raises(ValueError, match="a row for each case"):
        rank_correlation_over_seeds([1, 2], [[1, 5]])


# ---------------------------------------------------------------- means


@pytest.mark.parametrize("is_paired", [False, True])
def test_means_are_compared_as_by_scipy(is_paired: bool) -> None:
    first, second = [2.0, 2.5, 2.1, 2.4], [2.6, 2.7, 2.5, 3.2]
    found = compare_means(first, second, 0.9, is_paired=is_paired)
    other = ttest_rel(first, second) if is_paired else ttest_ind(first, second, equal_var=False)
    interval = other.confidence_interval(0.9)
    assert (found.low, found.high, found.p_value) == pytest.approx(
        (interval.low, interval.high, other.pvalue), rel=1e-9
    )
    assert found.verdict == "second larger"


@pytest.mark.parametrize("is_paired", [False, True])
def test_intervals_of_means_hold_with_three_seeds(is_paired: bool) -> None:
    rng, counts = np.random.default_rng(3), [0, 0]
    for _ in range(FEW):
        of_seed = 5 * is_paired * rng.standard_normal(3)
        first, second = (of_seed + rng.standard_normal(3) for _ in range(2))
        found = compare_means(first.tolist(), second.tolist(), is_paired=is_paired)
        assert found.difference is not None
        counts[0] += holds(found.low, 0, found.high)
        error = (
            np.std(first - second, ddof=1) / math.sqrt(3)
            if is_paired
            else math.hypot(np.std(first, ddof=1), np.std(second, ddof=1)) / math.sqrt(3)
        )
        counts[1] += abs(found.difference) <= norm.ppf(0.975) * error
    assert is_enough(counts[0], FEW, 0.95)
    assert not is_enough(counts[1], FEW, 0.95)


def test_means_without_scatter_or_without_seeds() -> None:
    assert compare_means([1.0, 1.0], [1.0, 1.0]).verdict == "open"
    assert compare_means([2.0, 2.0], [1.0, 1.0]).verdict == "first larger"
    assert compare_means([1.0, 2.0], [1.0, 1.0]).low is not None
    for first, second, is_paired, says in (
        ([1.0, None], [1.0, 2.0], False, "1 of 2 values diverged"),
        ([1.0], [1.0, 2.0], False, "two values on either side"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], True, "3 and 2 cannot be"),
    ):
        with pytest.raises(ValueError, match=says):
            compare_means(first, second, is_paired=is_paired)
