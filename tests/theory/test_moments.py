"""depthlaw.theory.moments against quadrature written here from the textbook formulas of the activations."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath as mp
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from depthlaw.theory.moments import (
    ACTIVATIONS,
    Activation,
    Expansion,
    Kind,
    exact,
    inhomogeneity,
    large_scale,
    leaky_relu,
    numeric,
    precise,
    small_scale,
)
from depthlaw.theory.symbols import scale as s
from depthlaw.theory.symbols import u
from tests.often import often

IDENTITY, RELU, LEAKY, GELU, SILU, TANH, RELU2 = (
    ACTIVATIONS[name] for name in ("identity", "relu", "leaky_relu", "gelu", "silu", "tanh", "relu2")
)
CUBES = Activation(name="cubes", positive=u**3, negative=-3 * u**3)  # of a negative mean after a change of sign
SMOOTH = (GELU, SILU, TANH)
BOTH_UP, STEEP = leaky_relu(sp.Integer(-2)), leaky_relu(sp.S(3))  # positive on both sides; of a negative mean
HOMOGENEOUS = (IDENTITY, RELU, LEAKY, leaky_relu(sp.Rational(-1, 3)), BOTH_UP, STEEP)
GELU_CLOSED = (Kind.MEAN, Kind.SECOND, Kind.VARIANCE, Kind.ABS_MEAN, Kind.SLOPE_SECOND)
SCALES = st.floats(-6, 6).map(lambda power: 10.0**power)
PROPERTY = settings(derandomize=True, deadline=None, max_examples=30)


def _sigmoid(t: mp.mpf) -> mp.mpf:
    return 1 / (1 + mp.exp(-t))


PHI: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "gelu": lambda t: t * mp.ncdf(t),
    "silu": lambda t: t * _sigmoid(t),
    "tanh": mp.tanh,
}
SLOPE: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "gelu": lambda t: mp.ncdf(t) + t * mp.npdf(t),
    "silu": lambda t: _sigmoid(t) * (1 + t * _sigmoid(-t)),
    "tanh": lambda t: mp.sech(t) ** 2,
}


def _trapezoid(g: Callable[[mp.mpf], mp.mpf], scale: mp.mpf) -> mp.mpf:
    """E g(s z) for g analytic near the real line: the trapezoid rule after t = min(1, s) sinh(x) converges like
    exp(-pi^2/(2 h)), 1e-60 at h = 1/28."""
    width, step = min(scale, mp.mpf(1)), mp.mpf(1) / 28
    last = int(mp.asinh(16 * scale / width) / step) + 1
    points = [step * i for i in range(-last, last + 1)]
    return (
        step
        * mp.fsum(g(width * mp.sinh(x)) * mp.npdf(width * mp.sinh(x) / scale) * mp.cosh(x) for x in points)
        * (width / scale)
    )


def _upper(g: Callable[[mp.mpf], mp.mpf], start: mp.mpf, scale: mp.mpf) -> mp.mpf:
    """E[g(s z); s z > start] by tanh-sinh on pieces that double."""
    width = min(scale, mp.mpf(1))
    pieces = [start, *(start + width * 2**i for i in range(int(mp.log(16 * scale / width, 2)) + 2))]
    return mp.quad(lambda t: g(t) * mp.npdf(t / scale) / scale, pieces)


@cache
def reference(name: str, kind: Kind, scale: float) -> mp.mpf:
    """50 digits, for gelu, silu, tanh. E|X| is written as E X - 2 E[X; X < 0], E|X - m| as 2 E[X - m; X > m]."""
    phi, slope, x = PHI[name], SLOPE[name], mp.mpf(scale)
    with mp.workdps(60):
        mean = mp.mpf(0) if name == "tanh" else _trapezoid(lambda t: (phi(t) + phi(-t)) / 2, x)
        match kind:
            case Kind.MEAN:
                return mean
            case Kind.SECOND:
                return _trapezoid(lambda t: phi(t) ** 2, x)
            case Kind.VARIANCE:
                return _trapezoid(lambda t: (phi(t) - mean) ** 2, x)
            case Kind.ABS_MEAN:
                return mean + 2 * _upper(lambda t: -phi(-t), mp.mpf(0), x)
            case Kind.ABS_CENTRED:
                root = mp.mpf(0) if name == "tanh" else mp.findroot(lambda t: phi(t) / mean - 1, (mean, 2 * mean + 1))
                return 2 * _upper(lambda t: phi(t) - mean, root, x)
            case Kind.SLOPE_SECOND:
                return _trapezoid(lambda t: slope(t) ** 2, x)
            case Kind.SLOPE_ABS:
                total = _trapezoid(slope, x)
                if name == "tanh":
                    return total
                root = mp.findroot(slope, (-2, -mp.mpf(1) / 2), solver="anderson")
                return total + 2 * _upper(lambda t: -slope(-t), -root, x)


@cache
def _true(act: Activation, kind: Kind, scale: sp.Rational, digits: int = 30) -> mp.mpf:
    """The closed form, where there is one: it costs less than the quadrature, and is tested against it."""
    closed = exact(act, kind, scale)
    with mp.workdps(60):
        return precise(act, kind, scale, digits) if closed is None else mp.mpf(closed.evalf(60))


def _relative(value: Any, expected: Any) -> mp.mpf:
    with mp.workdps(60):
        number = value.evalf(60) if isinstance(value, sp.Basic) else value
        gap = abs(mp.mpf(number) - expected)
        return gap / abs(expected) if expected else gap


def _value(expansion: Expansion, num_terms: int, scale: mp.mpf) -> mp.mpf:
    with mp.workdps(60):
        return mp.fsum(mp.mpf(c.evalf(60)) * scale ** int(p) for c, p in expansion[:num_terms])


@pytest.mark.parametrize("kind", GELU_CLOSED)
def test_gelu_closed_forms_to_49_digits(kind: Kind) -> None:
    assert _relative(exact(GELU, kind, sp.S(3)), reference("gelu", kind, 3.0)) < mp.mpf(10) ** -49


@pytest.mark.parametrize(("act", "power"), often([(BOTH_UP, 1), (STEEP, 1), (CUBES, 3), (RELU2, 2)], 2))
def test_kinked_closed_forms_to_49_digits(act: Activation, power: int) -> None:
    """phi(t) = a t^p, phi(-t) = b t^p: every moment at s = 1 from two half-line quadratures, the kinks cut out."""
    with mp.workdps(60):
        of_sides = (act.positive.coeff(u, power), act.negative.coeff(u, power) * (-1) ** power)
        a, b = (mp.mpf(int(c.p)) / int(c.q) for c in of_sides)

        def both(g: Callable[[mp.mpf], mp.mpf], *kinks: mp.mpf) -> mp.mpf:
            pieces = [0, *sorted(k for k in kinks if 0 < k < 16), 16]
            of_a, of_b = (mp.quad(lambda z, c=c: g(c * z**power) * mp.npdf(z), pieces) for c in (a, b))
            return of_a + of_b

        mean, second = both(lambda x: x), both(lambda x: x**2)
        roots = [(mean / c) ** (mp.mpf(1) / power) for c in (a, b) if mean * c > 0]
        moments_at_1 = {
            Kind.MEAN: mean,
            Kind.SECOND: second,
            Kind.VARIANCE: second - mean**2,
            Kind.ABS_MEAN: both(abs),
            Kind.ABS_CENTRED: both(lambda x: abs(x - mean), *roots),
            Kind.SLOPE_SECOND: (a**2 + b**2) * power**2 * mp.quad(lambda z: z ** (2 * power - 2) * mp.npdf(z), [0, 16]),
            Kind.SLOPE_ABS: (abs(a) + abs(b)) * power * mp.quad(lambda z: z ** (power - 1) * mp.npdf(z), [0, 16]),
        }
    for kind, value in moments_at_1.items():
        assert _relative(exact(act, kind, sp.S.One), value) < mp.mpf(10) ** -49, kind
    for kind in (Kind.ABS_MEAN, Kind.ABS_CENTRED):  # whose integrands bend
        assert _relative(precise(act, kind, 1, digits=25), moments_at_1[kind]) < mp.mpf(10) ** -25, kind


@pytest.mark.parametrize(
    ("act", "kind", "scale"),
    [
        *((SILU, kind, 0.55) for kind in Kind),
        *((TANH, kind, 1e-3) for kind in (Kind.SECOND, Kind.ABS_CENTRED, Kind.SLOPE_ABS)),  # what an odd one differs in
    ],
)
def test_precise_and_numeric_against_reference(act: Activation, kind: Kind, scale: float) -> None:
    expected = reference(act.name, kind, scale)
    assert _relative(precise(act, kind, scale), expected) < mp.mpf(10) ** -30
    assert _relative(numeric(act, kind, scale), expected) < 1e-13


@pytest.mark.parametrize("kind", Kind)
def test_ends_of_the_range(kind: Kind) -> None:
    for act, scale in ((SILU, 1e-9), (TANH, 1e9)):
        assert _relative(numeric(act, kind, scale), _true(act, kind, sp.Rational(scale), digits=14)) < 1e-13


@settings(PROPERTY, max_examples=6)
@given(act=st.sampled_from(SMOOTH), kind=st.sampled_from(list(Kind)), scale=SCALES)
def test_numeric_agrees_with_quadrature(act: Activation, kind: Kind, scale: float) -> None:
    assert _relative(numeric(act, kind, scale), precise(act, kind, scale, digits=13)) < 1e-12


def remainder_shrinks(expansion: Expansion, act: Activation, kind: Kind, scale: int | sp.Rational) -> bool:
    """After k terms the remainder is the next term, to relative O(s^+-1); after all, it falls faster than the last.

    Judged at ``scale`` and twice as far out. ``scale`` < 1: an expansion for s -> 0; > 1: for s -> oo.
    """
    is_small = scale < 1
    near, far = sp.Rational(scale), sp.Rational(scale) * (sp.Rational(1, 2) if is_small else 2)
    order = sorted((power for _, power in expansion), reverse=not is_small)
    if not expansion or order != [power for _, power in expansion]:
        return False
    values = [(mp.mpf(x.p) / x.q, _true(act, kind, x)) for x in (near, far)]
    with mp.workdps(60):
        for k in range(1, len(expansion)):
            for x, value in values:
                next_term = _value(expansion[k:], 1, x)
                slack = 40 * (x if is_small else 1 / x)
                if abs((value - _value(expansion, k, x)) / next_term - 1) > slack:
                    return False
        rest = [abs(value / _value(expansion, len(expansion), x) - 1) for x, value in values]
        if max(rest) < mp.mpf(10) ** -28:
            return True  # a series that ends
        last = abs(expansion[-1][1] - expansion[0][1])
        return rest[1] < rest[0] * mp.mpf(2) ** (-int(last) - mp.mpf(1) / 2)


WITH_TERMS = [
    *((GELU, kind) for kind in (Kind.VARIANCE, Kind.ABS_MEAN, Kind.SLOPE_SECOND)),
    *((SILU, kind) for kind in (Kind.SLOPE_ABS, Kind.ABS_CENTRED)),
    *((TANH, kind) for kind in (Kind.SECOND, Kind.SLOPE_SECOND)),
]
"""Each kind behind a gate, but those that the variance is made of; and both of an odd activation."""


@pytest.mark.parametrize(("act", "kind"), often(WITH_TERMS, 7, wide=2))
def test_expansions(act: Activation, kind: Kind) -> None:
    """They approach the moment, and have as many terms as there are."""
    small, large = small_scale(act, kind), large_scale(act, kind)
    assert remainder_shrinks(small, act, kind, sp.Rational(1, 64))
    assert remainder_shrinks(large, act, kind, 512)
    is_float = kind is Kind.SLOPE_ABS and act is not TANH  # the one documented exception to exactness
    assert len(small) == (1 if is_float or (kind is Kind.ABS_MEAN and act is not TANH) else 3)
    assert len(large) == (1 if kind is Kind.ABS_MEAN and act is not TANH else 3)
    assert any(c.has(sp.Float) for c, _ in large) == is_float and not any(c.has(sp.Float) for c, _ in small)


@pytest.mark.parametrize("act", HOMOGENEOUS, ids=lambda act: act.name)
def test_homogeneous_expansions_are_the_closed_form(act: Activation) -> None:
    for kind in Kind:
        closed: Any = exact(act, kind, s)
        for expansion in (small_scale(act, kind), large_scale(act, kind)):
            assert sp.expand(sum((c * s**p for c, p in expansion), sp.S.Zero) - closed) == 0


def test_inhomogeneity() -> None:
    for act in HOMOGENEOUS:
        assert inhomogeneity(act, 3) == 0
    phi, c, x = PHI["tanh"], mp.mpf(2), mp.mpf(3) / 2
    with mp.workdps(40):
        gap = _trapezoid(lambda t: (phi(c * t) - c * phi(t)) ** 2, x)
        expected = mp.sqrt(gap / _trapezoid(lambda t: (c * phi(t)) ** 2, x))
    assert _relative(inhomogeneity(TANH, 2, sp.Rational(3, 2)), expected) < mp.mpf(10) ** -20
    assert inhomogeneity(GELU, 1) == inhomogeneity(TANH, 1) == 0
    assert inhomogeneity(SILU, 2, 1e-2, digits=8) < 2e-2 < inhomogeneity(SILU, 2, 1, digits=8)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_scales_out_of_range_are_refused(scale: float) -> None:
    for call in (numeric, precise):
        with pytest.raises(ValueError, match="scale must be positive and finite"):
            call(GELU, Kind.MEAN, scale)
    with pytest.raises(ValueError, match="scale must be positive"):
        exact(GELU, Kind.MEAN, sp.S(-1))
    with pytest.raises(ValueError, match="factor must be positive"):
        inhomogeneity(GELU, -2)
