"""The quasi-random points: fixed, antithetic, of the moments of a normal, and others for each average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import theory.kernel.points as kernel_points
from theory.kernel.points import normals

WHICH = ((0, 0), (3, 1), (999, 3), (5, 2, 1))


def test_the_same_on_every_call() -> None:
    first = normals(64, (3, 4), (7, 1)).copy()
    normals(64, (3, 4), (8, 1))
    kernel_points._base.cache_clear()
    assert (normals(64, (3, 4), (7, 1)) == first).all()


@pytest.mark.parametrize("which", WHICH)
def test_each_point_comes_with_its_opposite(which: tuple[int, ...]) -> None:
    points = normals(128, (2, 5), which)
    assert points.shape == (128, 2, 5)
    assert (points[:64] == -points[64:]).all()


def test_other_averages_have_other_points() -> None:
    found = [normals(64, (6,), which) for which in (*WHICH, (0, 1), (1, 0), (0, 0, 1))]
    for i, one in enumerate(found):
        for other in found[:i]:
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.5


def errors(points: np.ndarray) -> list[float]:
    """Root mean square over the coordinates of what is wrong with their second, fourth and mixed moments."""
    number, dimensions = points.shape
    wrong = ((points**2).mean(0) - 1, (points**4).mean(0) - 3, points.T @ points / number - np.eye(dimensions))
    return [float(np.sqrt((one**2).mean())) for one in wrong]


@pytest.mark.parametrize("which", WHICH)
def test_moments_are_nearer_to_a_normals_than_random_ones_are(which: tuple[int, ...]) -> None:
    quasi = errors(normals(2048, (16,), which))
    random = [errors(np.random.default_rng(seed).normal(size=(2048, 16))) for seed in range(8)]
    assert (np.array(quasi) < np.min(random, axis=0)).all()


def test_averages_of_all_shifts_are_unbiased() -> None:
    """The mean over many averages has a smaller error than one: shifts do not repeat an error."""
    errors = np.array([np.exp(normals(16, (4,), (i, 0)) @ np.full(4, 0.5)).mean() - np.exp(0.5) for i in range(256)])
    assert abs(errors.mean()) < 3 * errors.std(ddof=1) / 16
    assert errors.std() > 0


def num_different(number: int, dimensions: int) -> int:
    """Coordinates that no other one repeats."""
    return np.unique(kernel_points._base(number, dimensions)[0], axis=1).shape[1]


class Same(int):
    """A seed that is the same however much is added."""

    def __add__(self, _: int) -> Same:
        return self


def test_more_dimensions_than_one_sequence_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_points, "_MOST_DIMENSIONS", 8)
    kernel_points._base.cache_clear()
    assert num_different(256, 24) == 24
    assert errors(normals(2048, (21,), (2, 0)))[0] < 0.01
    monkeypatch.setattr(kernel_points, "_SCRAMBLE", Same(20221122))
    kernel_points._base.cache_clear()
    assert num_different(256, 24) == 8, "a sequence that is repeated is seen"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Points of other constants are not kept for other tests."""
    yield
    kernel_points._base.cache_clear()


def test_a_sequence_is_not_asked_for_more_than_it_has() -> None:
    points = normals(4, (2, 8200), (0, 0))
    assert points.shape == (4, 2, 8200)
    assert np.isfinite(points).all()


def coordinates_that_stand_still() -> int:
    """Of 300, those that are the same points in the averages of neighbouring sublayers."""
    here, there = normals(4, (300,), (0, 0)), normals(4, (300,), (1, 0))
    return int(np.isclose(here, there, atol=1e-9).all(0).sum())


def test_no_coordinate_stands_still() -> None:
    """One that does has the same error in every sublayer, which the replicates do not see."""
    assert coordinates_that_stand_still() == 0


def test_standing_coordinates_find_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots of all whole numbers: those of squares are whole."""
    kernel_points._base.cache_clear()
    monkeypatch.setattr(kernel_points, "_primes", lambda number: np.arange(2, number + 2))
    assert coordinates_that_stand_still() == 16
    kernel_points._base.cache_clear()


@pytest.mark.parametrize("number", [1, 2, 6, 1000])
def test_primes_are_prime(number: int) -> None:
    found = kernel_points._primes(number)
    assert len(found) == number
    assert [n for n in range(2, int(found[-1]) + 1) if all(n % k for k in range(2, n))] == found.tolist()
