"""Gaussian moments as numbers.

``precise`` by mpmath to any number of digits, by two rules at two precisions, which must agree; ``numeric`` as doubles
in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

import mpmath
import sympy as sp
from mpmath.calculus.quadrature import GaussLegendre

from theory.moments import SLOPES, SQUARES, Activation, Kind, canonical, closed_form
from theory.symbols import scale as S
from theory.symbols import u

Real = Any  # a float or an mpf: the quadrature is written once for both
Expr = Any  # a sympy expression (sympy's arithmetic is untyped)
Function = Callable[[Real], Real]


@dataclass(frozen=True, eq=False)
class _Rule:
    """Gauss-Legendre on panels in x, t = min(1, s) sinh(x): even steps near 0, logarithmic ones beyond.

    One code for doubles (``lib`` = math) and mpmath; ``reach`` is the largest |z|, ``panel`` the length of a panel.
    """

    lib: Any
    nodes: tuple[tuple[Real, Real], ...]
    reach: Real
    panel: Real

    def edges(self, scale: Real) -> list[Real]:
        """Panel ends in x, symmetric about 0."""
        last = math.ceil(self.lib.asinh(self.reach * max(scale, 1)) / self.panel)
        return [self.panel * i for i in range(-last, last + 1)]

    def expect(self, g: Function, scale: Real, cuts: tuple[Real, ...] = ()) -> Real:
        """E g(s z); g is smooth but at 0 and at the cuts (in x)."""
        lib, width, terms = self.lib, min(scale, 1), []
        for a, b in pairwise(sorted([*self.edges(scale), *cuts])):
            for sinh, weight in _abscissas(self, a, b):
                t = width * sinh
                terms.append(weight * lib.exp(-((t / scale) ** 2) / 2) * g(t))
        return lib.fsum(terms) * width / (scale * lib.sqrt(2 * lib.pi))

    def expect_abs(self, g: Function, scale: Real) -> Real:
        """E|g(s z)|, cut where g changes sign. Two roots in one panel are missed; ``precise`` then fails to agree."""

        def in_x(x: Real) -> Real:
            return g(min(scale, 1) * self.lib.sinh(x))

        panels = ((a, b, (b - a) / 10**60) for a, b in pairwise(self.edges(scale)))
        inside = ((a + step, b - step) for a, b, step in panels)  # a jump at 0 is no root
        brackets = [(a, b) for a, b in inside if in_x(a) * in_x(b) < 0]
        cuts = tuple(bisect(in_x, a, b) for a, b in brackets)
        return self.expect(lambda t: abs(g(t)), scale, cuts)

    def moment(self, act: Activation, kind: Kind, scale: Real) -> Real:
        """The moment, from phi and phi' alone."""
        if kind is Kind.VARIANCE:
            return self.moment(act, Kind.SECOND, scale) - self.moment(act, Kind.MEAN, scale) ** 2
        g = function(act, kind, self.lib.__name__)
        if kind is Kind.MEAN:
            return self.expect(g, scale)
        if kind in SQUARES:
            return self.expect(lambda t: g(t) ** 2, scale)
        mean = self.moment(act, Kind.MEAN, scale) if kind is Kind.ABS_CENTRED else 0
        return self.expect_abs(lambda t: g(t) - mean, scale)


@lru_cache(maxsize=512)
def _abscissas(rule: _Rule, a: Real, b: Real) -> list[tuple[Real, Real]]:
    """sinh(x) and the weight of dsinh(x) at the abscissas of a panel: the same for every scale and moment."""
    nodes = ((a + (b - a) * (1 + node) / 2, (b - a) / 2 * weight) for node, weight in rule.nodes)
    return [(rule.lib.sinh(x), weight * rule.lib.cosh(x)) for x, weight in nodes]


def bisect(g: Function, a: Real, b: Real) -> Real:
    """The root of g in (a, b), where g changes sign, to the last bit."""
    is_rising, middle = g(a) < 0, (a + b) / 2
    while a < middle < b:
        a, b = (middle, b) if (g(middle) < 0) == is_rising else (a, middle)
        middle = (a + b) / 2
    return b


@cache
def function(act: Activation, kind: Kind, lib: str) -> Function:
    """phi'(t) for the slopes; for MEAN the even part of phi(t), since the odd one would only cancel; else phi(t)."""
    sides = act.sides(kind in SLOPES)
    if kind is Kind.MEAN:
        sides = (sp.expand(sum(sides) / 2),) * 2
    above, below = (sp.lambdify(u, side, modules=lib) for side in sides)
    return lambda t: above(t) if t > 0 else below(-t)


@lru_cache(maxsize=32)
def _rules(dps: int) -> tuple[_Rule, _Rule]:
    """Two quadratures for ``dps`` digits that share no panel end but 0."""
    with mpmath.workdps(dps + 15):
        degree = math.ceil(math.log2(dps / 3)) + 1  # 3 * 2^(degree-1) >= dps abscissas on a panel
        nodes = tuple(GaussLegendre(mpmath.mp).calc_nodes(degree, mpmath.mp.prec))
        reach = mpmath.sqrt(2 * mpmath.log(10) * (dps + 5))
        panels = (mpmath.mpf(1), mpmath.sqrt(mpmath.mpf(1) / 2))
        first, second = (_Rule(mpmath, nodes, reach, panel) for panel in panels)
    return first, second


def _agreed(compute: Callable[..., Real], numbers: dict[str, Any], digits: int, guard: int, what: str) -> mpmath.mpf:
    """compute(rule, *numbers) by two rules at two precisions; ArithmeticError unless they agree to ``digits``."""
    results = []
    for rule, dps in zip(_rules(digits + guard), (digits + guard, digits + guard + 10), strict=True):
        with mpmath.workdps(dps):
            exact_numbers = (x.evalf(dps + 5) if isinstance(x, sp.Basic) else x for x in numbers.values())
            results.append(compute(rule, *map(mpmath.mpf, exact_numbers)))
    low, high = results
    with mpmath.workdps(digits + 5):
        if abs(high - low) > mpmath.mpf(10) ** -digits * abs(high):
            raise ArithmeticError(f"{what} at {numbers}: two precisions disagree, {low} and {high}")
        return +high


def _check_positive(name: str, number: Any) -> None:
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {number}")


def precise(act: Activation, kind: Kind, scale: Any, digits: int = 30) -> mpmath.mpf:
    """The moment by quadrature to ``digits`` digits, for 1e-9 <= scale <= 1e9 (float, mpf or exact sympy number).

    Independent of ``theory.moments.exact``. Two rules at two precisions must agree to ``digits``: ArithmeticError where
    they do not, ValueError for a scale that is not positive and finite.

    >>> import mpmath
    >>> from theory.moment_values import precise
    >>> from theory.moments import Kind, activation
    >>> mpmath.nstr(precise(activation("gelu"), Kind.SECOND, 1), 20)
    '0.42522148257029867492'
    """
    _check_positive("scale", scale)
    what = f"{kind.value} of {act.name}"
    return _agreed(lambda rule, s: rule.moment(act, kind, s), {"scale": scale}, digits, 10, what)


def inhomogeneity(act: Activation, factor: Any, scale: Any = 1, digits: int = 20) -> mpmath.mpf:
    """Relative distance of phi(c u) from c phi(u), c = ``factor`` > 0: sqrt(E(phi(cu) - c phi(u))^2 / E(c phi(u))^2).

    0 for a homogeneous phi (proved, see :attr:`Activation.is_homogeneous`) and for c = 1; positive otherwise.
    """
    _check_positive("factor", factor)
    _check_positive("scale", scale)
    if act.is_homogeneous or factor == 1:
        return mpmath.mpf(0)
    phi = function(act, Kind.SECOND, "mpmath")

    def distance(rule: _Rule, c: Real, s: Real) -> Real:
        gap = rule.expect(lambda t: (phi(c * t) - c * phi(t)) ** 2, s)
        return mpmath.sqrt(gap / rule.expect(lambda t: (c * phi(t)) ** 2, s))

    guard = 30 + 4 * max(0, -math.floor(math.log10(scale)))  # at small scales every phi is nearly linear
    return _agreed(distance, {"factor": factor, "scale": scale}, digits, guard, f"inhomogeneity of {act.name}")


_NUM_CHEBYSHEV: Final = 24  # E g(s z) is analytic for |arg s| < pi/4, so on an octave the error is about 4.75^-24


@lru_cache(maxsize=1 << 14)
def numeric(act: Activation, kind: Kind, scale: float) -> float:
    """The moment as a double with at least 12 correct digits, 1e-70 <= scale <= 1e70; microseconds per new scale.

    Closed form where there is one, else a Chebyshev interpolant in log2(scale) on its octave, built on first use.

    >>> from theory.moment_values import numeric
    >>> from theory.moments import Kind, activation
    >>> numeric(activation("relu"), Kind.SECOND, 2.0)
    2.0
    >>> round(numeric(activation("tanh"), Kind.SECOND, 1.0), 10)
    0.3942944904
    """
    _check_positive("scale", scale)
    return evaluator(act, kind)(float(scale))


@cache
def evaluator(act: Activation, kind: Kind) -> Callable[[float], float]:
    """The function of the scale behind ``numeric``, for loops that ask for millions of values."""
    kind = canonical(act, kind)
    closed = closed_form(act, kind)
    if closed is not None:
        return sp.lambdify(S, closed, modules="math", cse=True)
    if kind is Kind.VARIANCE:
        second, mean = evaluator(act, Kind.SECOND), evaluator(act, Kind.MEAN)
        return lambda s: second(s) - mean(s) ** 2
    octaves: dict[int, list[float]] = {}

    def interpolate(scale: float) -> float:
        mantissa, octave = math.frexp(scale)  # scale = mantissa * 2^octave, mantissa in [1/2, 1)
        if octave not in octaves:
            octaves[octave] = _chebyshev(act, kind, octave)
        x = 4 * math.log2(mantissa) + 2
        b1 = b2 = 0.0
        for coefficient in octaves[octave]:
            b1, b2 = x * b1 - b2 + coefficient, b1
        return b1 - x * b2 / 2

    return interpolate


def _chebyshev(act: Activation, kind: Kind, octave: int) -> list[float]:
    """Coefficients of the moment at s = 2^(octave - 1/2 + x/2), -1 <= x <= 1, the highest first."""
    n, rule = _NUM_CHEBYSHEV, _double_rule()
    angles = [math.pi * (j + 0.5) / n for j in range(n)]
    values = [rule.moment(act, kind, 2 ** (octave - 0.5 + math.cos(angle) / 2)) for angle in angles]
    sums = [math.fsum(v * math.cos(k * angle) for v, angle in zip(values, angles, strict=True)) for k in range(n)]
    return [2 * total / n for total in reversed(sums[1:])] + [sums[0] / n]


@cache
def _double_rule() -> _Rule:
    nodes = GaussLegendre(mpmath.mp).calc_nodes(4, 100)
    return _Rule(math, tuple((float(x), float(w)) for x, w in nodes), 9.5, 1.0)
