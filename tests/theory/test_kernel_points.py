"""The quasi-random points: fixed, antithetic, of the moments of a normal, and others for each average."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from depthlaw.theory.kernel import points
from depthlaw.theory.kernel.points import normals

WHICH = ((0, 0), (3, 1), (999, 3), (5, 2, 1))


@pytest.mark.parametrize("which", WHICH)
def test_each_point_comes_with_its_opposite(which: tuple[int, ...]) -> None:
    points = normals(128, (2, 5), which)
    assert points.shape == (128, 2, 5)
    assert (points[:64] == -points[64:]).all()


def test_several_averages_have_the_points_of_each() -> None:
    several = normals(64, (2, 3), (np.array([[5], [7]]), np.array([0, 1, 3])))
    assert several.shape == (2, 3, 64, 2, 3)
    for (i, place), (j, replicate) in itertools.product(enumerate((5, 7)), enumerate((0, 1, 3))):
        assert (several[i, j] == normals(64, (2, 3), (place, replicate))).all()


def test_other_averages_have_other_points() -> None:
    averages = [normals(64, (6,), which).ravel() for which in (*WHICH, (0, 1), (1, 0), (0, 0, 1))]
    assert abs(np.corrcoef(averages) - np.eye(len(averages))).max() < 0.5


def errors(points: np.ndarray) -> list[float]:
    """Root mean square over the coordinates of what is wrong with their second, fourth and mixed moments."""
    number, dimensions = points.shape
    wrong = ((points**2).mean(0) - 1, (points**4).mean(0) - 3, points.T @ points / number - np.eye(dimensions))
    return [float(np.sqrt((moment**2).mean())) for moment in wrong]


@pytest.mark.parametrize("which", WHICH)
def test_moments_are_nearer_to_a_normals_than_random_ones_are(which: tuple[int, ...]) -> None:
    quasi = errors(normals(2048, (16,), which))
    random = [errors(np.random.default_rng(seed).normal(size=(2048, 16))) for seed in range(8)]
    assert (np.array(quasi) < np.min(random, axis=0)).all()


def test_points_that_are_kept_are_those_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, as JSON has them; and they are not drawn again. Many are not kept."""
    there: dict[str, str] = {}

    def keep(asked: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        name = json.dumps(asked)
        there[name] = there.get(name) or json.dumps(make())
        return json.loads(there[name])

    drawn = points._points(48, 5, 7)
    token = points.keeper.set(keep)
    try:
        assert (points._points(48, 5, 7) == drawn).all() and len(there) == 1
        points._points(points._MOST_KEPT // 16, 5, 7)
        assert len(there) == 1
        monkeypatch.setattr(points, "_sequence", None)
        assert (points._points(48, 5, 7) == drawn).all()
    finally:
        points.keeper.reset(token)


@pytest.mark.slow
def test_a_sequence_is_not_asked_for_more_than_it_has() -> None:
    points = normals(4, (2, 8200), (0, 0))
    assert points.shape == (4, 2, 8200)
    assert np.isfinite(points).all()
