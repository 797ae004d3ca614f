"""What activations make of a Gram matrix, against quadrature in polar coordinates of the activations themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tests.scalarnet import PHI
from theory.kernel.duals import dual
from theory.kernel.gram import Gram
from theory.moments import ACTIVATIONS, Kind, activation, numeric

Function = Callable[[np.ndarray], np.ndarray]

OWN: dict[str, tuple[Function, Function]] = {
    **PHI,
    "leaky_relu": (lambda u: np.where(u > 0, u, 0.01 * u), lambda u: np.where(u > 0, 1.0, 0.01)),
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
    for one in ends:
        t, of_t = panels(one)
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


def worst(name: str, scales: tuple[float, float], *, of: str, is_slope: bool) -> float:
    """The largest error over the correlations of the dual of ``of``, taken for that of ``name``."""
    found = []
    for correlation in CORRELATIONS:
        at = gram(*scales, 1 - correlation)
        found.append(dual(of).slope_second(at) if is_slope else dual(of).second(at).full)
    sizes = [float(np.sqrt(one[0, 0] * one[1, 1])) for one in found]
    wanted = np.array(exact(name, is_slope, scales))
    return float(abs(np.array([one[0, 1] for one in found]) / sizes - wanted).max())


def scales_of(name: str) -> tuple[tuple[float, float], ...]:
    """What a stack with norms has; tanh bends more, and its series is for less."""
    largest = 1.3 if name == "tanh" else 3.0
    return (1.0, 1.0), (0.05, 0.05), (largest, 0.5), (largest, largest)


CASES = [(name, scales) for name in NAMES for scales in scales_of(name)]
ROUNDING = 1e-8
"""Of the largest gap: 1 - 1e-12 has four digits of its gap, whose root counts; and the last terms of a series."""
OTHER = {
    "relu": "leaky_relu",
    "leaky_relu": "relu",
    "gelu": "silu",
    "silu": "gelu",
    "tanh": "identity",
    "identity": "relu",
}


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        pytest.param(name, scales, marks=[] if i in (0, 2) else [pytest.mark.slow])
        for name in NAMES
        for i, scales in enumerate(scales_of(name))
    ],
)
@pytest.mark.parametrize("is_slope", [False, True])
def test_products_are_the_activations_own(name: str, scales: tuple[float, float], is_slope: bool) -> None:
    assert worst(name, scales, of=name, is_slope=is_slope) < ROUNDING
    if min(scales) > 0.1:  # below, some are nearly the same line
        assert worst(name, scales, of=OTHER[name], is_slope=is_slope) > ROUNDING


@pytest.mark.parametrize(("name", "scales"), CASES)
def test_lengths_are_the_moments_of_the_scalar_rung(name: str, scales: tuple[float, float]) -> None:
    act, at = activation(name), gram(*scales, 0.4)
    found = dual(name)
    for i, scale in enumerate(scales):
        wanted = {kind: numeric(act, kind, scale) for kind in (Kind.SECOND, Kind.VARIANCE, Kind.MEAN)}
        assert found.second(at).diagonal[i] == pytest.approx(wanted[Kind.SECOND], rel=1e-10)
        assert found.second(at, is_centred=True).diagonal[i] == pytest.approx(wanted[Kind.VARIANCE], rel=1e-10)
        assert found.mean(np.sqrt(at.diagonal))[i] == pytest.approx(wanted[Kind.MEAN], rel=1e-10, abs=1e-15)
        slope = numeric(act, Kind.SLOPE_SECOND, scale)
        assert found.slope_second(at)[i, i] == pytest.approx(slope, rel=1e-10)
        assert found.slope_second(at)[i, i] != pytest.approx(1.001 * slope, rel=1e-10)


@pytest.mark.parametrize(("name", "scales"), CASES)
def test_centred_is_less_the_product_of_the_means(name: str, scales: tuple[float, float]) -> None:
    found = dual(name)
    for correlation in CORRELATIONS:
        at = gram(*scales, 1 - correlation)
        means = found.mean(np.sqrt(at.diagonal))
        wanted = found.second(at).full - np.outer(means, means)
        assert np.allclose(found.second(at, is_centred=True).full, wanted, rtol=0, atol=1e-12 * wanted.max())
        if name in ("relu", "leaky_relu", "gelu", "silu"):
            assert not np.allclose(found.second(at).full, wanted, rtol=0, atol=1e-12 * wanted.max())


# ---------------------------------------------------------------- gaps far below rounding


def exact_gaps(name: str, scale: float, gap: float) -> tuple[float, float]:
    """E (phi(s z) - phi(s z'))^2 / 2 and the same of phi' at correlation 1 - gap, to first order in a small gap.

    Of a smooth phi s^2 E phi'(s z)^2 gap. A kink adds nothing to first order; phi' of a kink of height h steps, by
    h^2 / 2 where the signs differ, which they do with probability angle / pi.
    """
    act = activation(name)
    slope = numeric(act, Kind.SLOPE_SECOND, scale)
    return scale**2 * slope * gap, act.is_homogeneous * _height(name) ** 2 / 2 * math.sqrt(2 * gap) / math.pi


def _height(name: str) -> float:
    right, left = OWN[name][1](np.array([1.0, -1.0]))
    return float(right - left)


@pytest.mark.parametrize("num_tokens", [2, 15, 17])
@pytest.mark.parametrize("name", NAMES)
def test_a_gap_keeps_its_own_digits(name: str, num_tokens: int) -> None:
    found, scale = dual(name), 1.2
    others = ~np.eye(num_tokens, dtype=bool)
    for gap in (1e-14, 1e-20, 1e-100):
        at = Gram(scale**2, np.where(others, scale**2 * gap, 0.0))
        after = found.second(at)
        wanted, _ = exact_gaps(name, scale, gap)
        kink = math.sqrt(gap) if activation(name).is_homogeneous else 0.0  # of next order
        assert np.allclose(after.gap[others], wanted, rtol=1e-9 + kink, atol=0)
        assert (after.gap.diagonal() == 0).all()
        centred = found.second(at, is_centred=True).normalised()
        variance = numeric(activation(name), Kind.VARIANCE, scale)
        assert np.allclose(centred.gap[others], wanted / variance, rtol=1e-9 + kink, atol=0)
        assert not np.allclose(after.full.max() - after.full[others], wanted, rtol=1e-3, atol=0), (
            "the whole matrix lost it"
        )


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_the_slopes_of_a_kink_part_by_the_angle(name: str) -> None:
    found = dual(name)
    for gap in (1e-6, 1e-9):
        slopes = found.slope_second(gram(1.0, 1.0, gap))
        _, wanted = exact_gaps(name, 1.0, gap)
        assert slopes[0, 0] - slopes[0, 1] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_equal_tokens_stay_equal(name: str) -> None:
    for num_tokens in range(1, 34):
        for is_centred in (False, True):
            after = dual(name).second(Gram(0.4, np.zeros((num_tokens, num_tokens))), is_centred=is_centred)
            assert (after.gap == after.gap[0, 0]).all()


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="swiglu"):
        dual("swiglu")
