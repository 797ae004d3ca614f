"""The number of seeds that is planned finds the difference as often as it says, and is the least that does."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, chi2

from depthlaw.sims.training.outcomes import compare_means, differs
from depthlaw.sims.training.planning import (
    largest_sd,
    power_of_difference,
    power_of_shares,
    seeds_for_difference,
    seeds_for_shares,
)

NUM_TRIALS = 300


def num_found(trial: Callable[[np.random.Generator], str]) -> int:
    rng = np.random.default_rng(0)
    return sum(trial(rng) == "first larger" for _ in range(NUM_TRIALS))


def is_power(count: int, power: float) -> bool:
    low, high = binom.interval(0.9999, NUM_TRIALS, power)
    return bool(low <= count <= high)


@pytest.mark.parametrize("is_paired", [False, True])
def test_a_planned_difference_is_found_as_often_as_planned(is_paired: bool) -> None:
    num = seeds_for_difference(1, 3, is_paired=is_paired)
    powers = [power_of_difference(n, 1, 3, is_paired=is_paired) for n in (num - 1, num)]

    def trial(rng: np.random.Generator) -> str:
        first, second = rng.normal(3, 1, num), np.zeros(num) if is_paired else rng.normal(0, 1, num)
        return compare_means(first.tolist(), second.tolist(), is_paired=is_paired).verdict

    assert powers[0] < 0.9 <= powers[1]
    assert is_power(num_found(trial), powers[1])


def test_the_planned_number_in_simple_cases() -> None:
    """Cohen (1988): 64 on each side for half a standard deviation at power 0.8, 34 pairs."""
    assert seeds_for_difference(1, 0.5, power=0.8, is_paired=False) == 64
    assert seeds_for_difference(2, -1, power=0.8) == 34
    assert seeds_for_difference(0, 1) == 2
    assert [seeds_for_difference(1, difference) for difference in (1e6, 30)] == [2, 3]


def test_the_power_of_shares_is_that_of_all_outcomes() -> None:
    num, level = 4, 0.8
    first, second = (binom.pmf(range(num + 1), num, p).tolist() for p in (0.7, 0.2))
    outcomes = product(range(num + 1), repeat=2)
    seen = [(i, j) for i, j in outcomes if differs(i, num, j, num, level).verdict != "open"]
    power = sum(first[i] * second[j] for i, j in seen)
    assert power_of_shares(num, 0.7, 0.2, level) == pytest.approx(power, rel=1e-12)


def test_a_pilots_largest_sd_is_exceeded_as_seldom_as_it_says() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 1, (NUM_TRIALS, 3))
    assert is_power(sum(largest_sd(values.tolist()) >= 1 for values in samples), 0.8)
    assert largest_sd([0, 1, 2]) == pytest.approx(math.sqrt(2 / chi2.ppf(0.2, 2)))


def test_plans_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="needs more than 1000 seeds"):
        seeds_for_difference(1, 0.01)
    with pytest.raises(ValueError, match="need more than 60 seeds"):
        seeds_for_shares(0.5, 0.4)
    with pytest.raises(ValueError, match="a difference other than 0"):
        seeds_for_difference(1, 0)
    with pytest.raises(ValueError, match="two different shares from 0 to 1"):
        seeds_for_shares(0.5, 0.5)
    with pytest.raises(ValueError, match="a power is between 0 and 1"):
        seeds_for_difference(1, 1, power=1)
    with pytest.raises(ValueError, match="needs two values"):
        largest_sd([1.0])
