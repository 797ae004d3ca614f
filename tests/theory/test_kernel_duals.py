"""What activations make of a Gram matrix, against quadrature in polar coordinates of the activations themselves."""

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from depthlaw.theory.kernel.duals import dual
from depthlaw.theory.kernel.gram import Gram
from depthlaw.theory.moments import ACTIVATIONS, Kind, activation, numeric
from tests.scalarnet import PHI

Function = Callable[[np.ndarray], np.ndarray]

OWN: dict[str, tuple[Function, Function]] = {
    **PHI,
    "leaky_relu": (lambda u: np.where(u > 0, u, 0.01 * u), lambda u: np.where(u > 0, 1.0, 0.01)),
    "relu2": (lambda u: np.maximum(u, 0.0) ** 2, lambda u: 2 * np.maximum(u, 0.0)),
}
"""phi and phi', typed again."""
NAMES = tuple(ACTIVATIONS)
CORRELATIONS = (-1 + 1e-9, -0.9, 0.0, 0.2, 0.99, 1 - 1e-6, 1 - 1e-12)

X, WEIGHT = np.polynomial.legendre.leggauss(12)


def panels(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on each interval between ``ends``."""
    middle, reach = (ends[1:] + ends[:-1])[:, None] / 2, (ends[1:] - ends[:-1])[:, None] / 2
    return (middle + reach * X).ravel(), (reach * WEIGHT).ravel()


def quadrature(f: Function, first: float, second: float, gap: float) -> float:
    """E f(first z) f(second z') at correlation 1 - gap: z = r cos t, z' = r cos(t - a), a the angle between them.

    The panels in t end, ever smaller, at the four angles where a kink or a step may be.
    """
    a = 2 * math.asin(math.sqrt(gap / 2))
    kinks = np.sort(np.array([math.pi / 2, 3 * math.pi / 2, math.pi / 2 + a, 3 * math.pi / 2 + a]))
    kinks = np.append(kinks, kinks[0] + 2 * math.pi)
    steps = 0.5 * np.geomspace(1e-5, 1, 14)
    ends = [
        np.concatenate([[x], x + (y - x) * steps, y - (y - x) * steps[::-1][1:], [y]])
        for x, y in itertools.pairwise(kinks)
        if y > x
    ]
    r, of_r = panels(np.concatenate([[0.0], np.geomspace(0.02, 10.0, 12)]))
    total = 0.0
    for side in ends:
        t, of_t = panels(side)
        product = f(first * np.outer(np.cos(t), r)) * f(second * np.outer(np.cos(t - a), r))
        total += float(of_t @ product @ (of_r * r * np.exp(-(r**2) / 2)))
    return total / (2 * math.pi)


def gram(first: float, second: float, gap: float) -> Gram:
    """Of two preactivations with these standard deviations."""
    top = max(first, second) ** 2
    both = top - first * second * (1 - gap)
    return Gram(top, np.array([[top - first**2, both], [both, top - second**2]]))


@cache
def exact(name: str, is_slope: bool, scales: tuple[float, float]) -> tuple[float, ...]:
    """At each correlation, in units of what equal tokens have."""
    f = OWN[name][is_slope]
    size = math.sqrt(quadrature(f, scales[0], scales[0], 0.0) * quadrature(f, scales[1], scales[1], 0.0))
    return tuple(quadrature(f, *scales, 1 - correlation) / size for correlation in CORRELATIONS)


CASES = [
    (name, scales)
    for name in NAMES
    for largest in (1.3 if name == "tanh" else 3.0,)  # tanh bends more, and its series is for less
    for scales in ((0.05, 0.05), (largest, 0.5))
]
"""Scales that a stack with norms has."""
ROUNDING = 1e-8
"""Of the largest gap: 1 - 1e-12 has four digits of its gap, whose root counts; and the last terms of a series."""


@pytest.mark.parametrize(("name", "scales"), CASES)
@pytest.mark.parametrize("is_slope", [False, True])
def test_products_are_the_activations_own(name: str, scales: tuple[float, float], is_slope: bool) -> None:
    equal, kernel = [], []
    for correlation in CORRELATIONS:
        at = gram(*scales, 1 - correlation)
        matrix = dual(name).slope_second(at) if is_slope else dual(name).second(at).full
        equal.append(float(np.sqrt(matrix[0, 0] * matrix[1, 1])))
        kernel.append(matrix[0, 1])
    assert np.abs(np.array(kernel) / equal - exact(name, is_slope, scales)).max() < ROUNDING


@pytest.mark.parametrize(("name", "scales"), CASES)
def test_lengths_are_the_moments_of_the_scalar_rung(name: str, scales: tuple[float, float]) -> None:
    act, at = activation(name), gram(*scales, 0.4)
    kernel = dual(name)
    for i, scale in enumerate(scales):
        wanted = {kind: numeric(act, kind, scale) for kind in (Kind.SECOND, Kind.VARIANCE, Kind.MEAN)}
        assert kernel.second(at).diagonal[i] == pytest.approx(wanted[Kind.SECOND], rel=1e-10)
        assert kernel.second(at, is_centred=True).diagonal[i] == pytest.approx(wanted[Kind.VARIANCE], rel=1e-10)
        assert kernel.mean(np.sqrt(at.diagonal))[i] == pytest.approx(wanted[Kind.MEAN], rel=1e-10, abs=1e-15)
        assert kernel.slope_second(at)[i, i] == pytest.approx(numeric(act, Kind.SLOPE_SECOND, scale), rel=1e-10)


@pytest.mark.parametrize("num_tokens", [2, 15, 17])
@pytest.mark.parametrize("name", NAMES)
def test_a_gap_keeps_its_own_digits(name: str, num_tokens: int) -> None:
    """E (phi(s z) - phi(s z'))^2 / 2 at correlation 1 - gap is s^2 E phi'(s z)^2 gap, to first order in a small gap."""
    kernel, scale = dual(name), 1.2
    others = ~np.eye(num_tokens, dtype=bool)
    for gap in (1e-14, 1e-20, 1e-100):
        at = Gram(scale**2, np.where(others, scale**2 * gap, 0.0))
        after = kernel.second(at)
        wanted = scale**2 * numeric(activation(name), Kind.SLOPE_SECOND, scale) * gap
        kink = math.sqrt(gap) if activation(name).is_homogeneous else 0.0  # of next order
        assert np.allclose(after.gap[others], wanted, rtol=1e-9 + kink, atol=0)
        assert (after.gap.diagonal() == 0).all()
        centred = kernel.second(at, is_centred=True).normalised()
        variance = numeric(activation(name), Kind.VARIANCE, scale)
        assert np.allclose(centred.gap[others], wanted / variance, rtol=1e-9 + kink, atol=0)


@pytest.mark.parametrize("name", ["gelu", "silu"])
@pytest.mark.parametrize("scale", [6.0, 50.0])
@pytest.mark.parametrize("correlation", [0.0, 0.99])
def test_slopes_behind_large_preactivations(name: str, scale: float, correlation: float) -> None:
    """The dual of a slope that is nearly a step agrees with a sum over a grid to a thousandth."""
    z = np.linspace(-9, 9, 2001)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    other = correlation * z[:, None] + math.sqrt(1 - correlation**2) * z
    slope = dual(name).slope
    summed = float(weights @ (slope(scale * z)[:, None] * slope(scale * other)) @ weights)
    at = gram(scale, scale, 1 - correlation)
    assert dual(name).slope_second(at)[0, 1] == pytest.approx(summed, rel=1e-3)
