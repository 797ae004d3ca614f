"""Gaussian moments of an activation phi at a preactivation u = s z, z ~ N(0, 1), s > 0 its standard deviation.

``exact``        a closed form in s, or None. Derived, not typed: relu-like activations by integrating over a half-line,
                 gelu by Stein's lemma from its own expression.
``small_scale``  and ``large_scale``: expansions in s, exact coefficients where these have a closed form.
``precise``      a number by mpmath to any count of digits, by two rules at two precisions, which must agree.
``numeric``      the same as a double, in microseconds.

An activation is two smooth branches, phi on u > 0 and on u < 0, continuous at 0; all else is computed from them. The
four ways stand in one module, since each is held against the others.
"""

from __future__ import annotations

import difflib
import enum
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final

import mpmath
import sympy as sp
from mpmath.calculus.quadrature import GaussLegendre

from depthlaw.theory.symbols import scale as S
from depthlaw.theory.symbols import scratch, u

Real = Any  # a float or an mpf: the quadrature is written once for both
Expr = Any  # a sympy expression (sympy's arithmetic is untyped)
Function = Callable[[Real], Real]
Expansion = tuple[tuple[Expr, Expr], ...]  # ((coefficient, rational power of s), ...), leading term first

_NUM_TERMS: Final = 3
_Y: Final = scratch("y")
_Z: Final = scratch("z", real=True)
_DENSITY: Final = sp.exp(-(_Z**2) / 2) / sp.sqrt(2 * sp.pi)


class Kind(enum.Enum):
    """The kinds of moments of phi(u)."""

    MEAN = "mean"  # E phi(u)
    SECOND = "second"  # E phi(u)^2
    VARIANCE = "variance"  # SECOND - MEAN^2
    ABS_MEAN = "abs_mean"  # E |phi(u)|
    ABS_CENTRED = "abs_centred"  # E |phi(u) - E phi(u)|
    SLOPE_SECOND = "slope_second"  # E phi'(u)^2
    SLOPE_ABS = "slope_abs"  # E |phi'(u)|


SQUARES: Final = (Kind.SECOND, Kind.SLOPE_SECOND)
SLOPES: Final = (Kind.SLOPE_SECOND, Kind.SLOPE_ABS)


# ---------------------------------------------------------------------------------------------------- activations
@dataclass(frozen=True, kw_only=True)
class Activation:
    """phi(u) = ``positive`` for u > 0 and ``negative`` for u < 0, each smooth, in the symbol ``theory.symbols.u``.

    One of one's own is these two expressions; moments, expansions and properties are derived from them.

    >>> from depthlaw.theory.moments import Activation, Kind, exact
    >>> from depthlaw.theory.symbols import scale, u
    >>> absolute = Activation(name="abs", positive=u, negative=-u)
    >>> absolute.is_homogeneous, absolute.is_odd
    (True, False)
    >>> exact(absolute, Kind.VARIANCE, scale)
    -2*s**2/pi + s**2
    """

    name: str
    positive: Expr
    negative: Expr

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def expression(self) -> Expr:
        """phi(u)."""
        if self.positive == self.negative:
            return self.positive
        return sp.Piecewise((self.positive, u > 0), (self.negative, True))

    @property
    def derivative(self) -> Expr:
        """phi'(u) for u != 0."""
        return self.expression.diff(u)

    def sides(self, is_slope: bool = False) -> tuple[Expr, Expr]:
        """phi(t) and phi(-t), or phi'(t) and phi'(-t), for t = u > 0."""
        above, below = self.positive, self.negative
        return (above.diff(u), below.diff(u).subs(u, -u)) if is_slope else (above, below.subs(u, -u))

    @cached_property
    def is_homogeneous(self) -> bool:
        """phi(c u) = c phi(u) for every c > 0: proved on both sides, or refuted by a witness at c = 2, u = +-1."""
        c = scratch("c", positive=True)
        if all(sp.expand(side.subs(u, c * u) - c * side) == 0 for side in self.sides()):
            return True
        gaps = [abs((side.subs(u, 2) - 2 * side.subs(u, 1)).evalf(30)) for side in self.sides()]
        if max(gaps) < sp.Rational(1, 10**20):
            raise ArithmeticError(f"{self.name}: homogeneity neither proved nor refuted")
        return False

    @cached_property
    def power(self) -> int | None:
        """p where phi is a multiple of |u|^p on either side, such as 2 of relu(u)^2; else None."""
        above, below = (sp.Poly(side, u).terms() if side.is_polynomial(u) else None for side in self.sides())
        if above is None or below is None:
            return None
        powers = {power for (power,), coefficient in (*above, *below) if coefficient != 0}
        return powers.pop() if len(powers) == 1 else None

    @cached_property
    def is_odd(self) -> bool:
        """phi(-u) = -phi(u), by expansion. Then MEAN = 0, VARIANCE = SECOND and ABS_CENTRED = ABS_MEAN."""
        return sp.expand(sum(self.sides())) == 0

    @cached_property
    def is_gated(self) -> bool:
        """phi(u) = u g(u) with g(u) + g(-u) = 1 and g > 0 (gelu, silu), so that phi has the sign of u.

        The identity is phi(t) - phi(-t) = t; g > 0 by its form in exponentials, or by g(-oo) = 0 and g' > 0.
        """
        above, below = self.sides()
        if self.positive != self.negative or sp.expand(above - below - u) != 0:
            return False
        gate = sp.expand(above / u)
        if sp.together(gate.rewrite(sp.exp)).is_positive:
            return True
        return sp.limit(gate, u, -sp.oo) == 0 and bool(sp.expand(gate.diff(u)).is_positive)


def leaky_relu(slope: Expr) -> Activation:
    """u for u > 0, ``slope`` * u for u < 0; slope rational, of either sign."""
    name = "leaky_relu" if slope == sp.Rational(1, 100) else f"leaky_relu({slope})"
    return Activation(name=name, positive=u, negative=sp.Rational(slope) * u)


_GELU: Final = u * (1 + sp.erf(u / sp.sqrt(2))) / 2  # u Phi(u), not its tanh approximation
_SILU: Final = u * (1 + sp.tanh(u / 2)) / 2  # u sigmoid(u), written so that its even part shows
ACTIVATIONS: Final[dict[str, Activation]] = {
    "identity": Activation(name="identity", positive=u, negative=u),
    "relu": Activation(name="relu", positive=u, negative=sp.S.Zero),
    "leaky_relu": leaky_relu(sp.Rational(1, 100)),
    "gelu": Activation(name="gelu", positive=_GELU, negative=_GELU),
    "silu": Activation(name="silu", positive=_SILU, negative=_SILU),
    "tanh": Activation(name="tanh", positive=sp.tanh(u), negative=sp.tanh(u)),
    "relu2": Activation(name="relu2", positive=u**2, negative=sp.S.Zero),
}


GATED: Final[dict[str, str]] = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
"""An FFN of three matrices, fc2(phi(fc1(u)) * fc3(u)), by the activation phi."""


def activation(name: str) -> Activation:
    """The activation of that name; an unknown name is a ValueError that says which names are near and allowed.

    >>> from depthlaw.theory.moments import ACTIVATIONS, activation
    >>> list(ACTIVATIONS)
    ['identity', 'relu', 'leaky_relu', 'gelu', 'silu', 'tanh', 'relu2']
    >>> activation("leaky_relu").expression
    Piecewise((u, u > 0), (u/100, True))
    """
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    near = difflib.get_close_matches(name, ACTIVATIONS, n=2, cutoff=0.4)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise ValueError(f"unknown activation {name!r}{hint}; allowed: {', '.join(ACTIVATIONS)}")


def canonical(act: Activation, kind: Kind) -> Kind:
    """The kind that gives the same moment: for an odd phi the mean is 0, so the centred moments are the plain ones."""
    plain = {Kind.VARIANCE: Kind.SECOND, Kind.ABS_CENTRED: Kind.ABS_MEAN}
    return plain.get(kind, kind) if act.is_odd else kind


# ---------------------------------------------------------------------------------------------------- closed forms
def exact(act: Activation, kind: Kind, scale: Expr) -> Expr | None:
    """The moment in closed form at a positive ``scale``, or None where none is known.

    act: an ``Activation``. scale: s, the standard deviation of the preactivation, an exact number or a positive symbol.
    Where phi is a multiple of one power on each side: every kind. gelu: all but ABS_CENTRED and SLOPE_ABS. silu:
    ABS_MEAN. tanh: MEAN. ValueError of a scale that is not positive.

    >>> from depthlaw.theory.moments import Kind, activation, exact
    >>> from depthlaw.theory.symbols import scale
    >>> exact(activation("relu"), Kind.VARIANCE, scale)
    -s**2/(2*pi) + s**2/2
    >>> exact(activation("gelu"), Kind.MEAN, scale)
    sqrt(2)*s**2/(2*sqrt(pi)*sqrt(s**2 + 1))
    >>> exact(activation("silu"), Kind.SECOND, scale) is None
    True
    """
    argument = sp.sympify(scale)
    if argument.is_positive is False:
        raise ValueError(f"scale must be positive, got {argument}")
    form = closed_form(act, canonical(act, kind))
    return None if form is None else form.subs(S, argument)


@cache
def closed_form(act: Activation, kind: Kind) -> Expr | None:
    """The moment as an expression in the symbol s, by the first derivation that applies."""
    if kind is Kind.VARIANCE:
        second, mean = closed_form(act, Kind.SECOND), closed_form(act, Kind.MEAN)
        return None if second is None or mean is None else second - mean**2
    if act.power:  # its Taylor series is itself
        return _kinked_deviation(act) if kind is Kind.ABS_CENTRED else _one_sided(act, kind, _taylor)
    if kind is Kind.MEAN and act.is_odd:
        return sp.S.Zero
    if kind is Kind.ABS_MEAN and act.is_gated:  # |phi(u)| = sign(u) phi(u), and phi(t) - phi(-t) = t: E[u; u > 0]
        return S * _half_moment(1)
    if kind in (Kind.MEAN, *SQUARES) and act.positive == act.negative:
        return _by_stein(act.sides(kind in SLOPES)[0], 2 if kind in SQUARES else 1)
    return None


@cache
def _half_moment(n: int) -> Expr:
    """E[z^n; z > 0]: by parts (n-1) E[z^(n-2); z > 0], from P(z > 0) and the density f at 0, as f' = -z f."""
    if n < 2:
        return _DENSITY.subs(_Z, 0) if n else sp.Rational(1, 2)
    return (n - 1) * _half_moment(n - 2)


@cache
def _moment_beyond(n: int, bound: Expr) -> Expr:
    """E[z^n; z > q], q = ``bound`` >= 0, by parts as ``_half_moment``."""
    if n < 2:
        return _DENSITY.subs(_Z, bound) if n else (1 - sp.erf(bound / sp.sqrt(2))) / 2
    return bound ** (n - 1) * _DENSITY.subs(_Z, bound) + (n - 1) * _moment_beyond(n - 2, bound)


@cache
def _excess(bound: Expr, power: int = 1) -> Expr:
    """E[z^p - q^p; z > q], p = ``power``, q = ``bound`` >= 0."""
    return sp.expand(_moment_beyond(power, bound) - bound**power * _moment_beyond(0, bound))


def _kinked_deviation(act: Activation) -> Expr:
    """E|phi - m| = 2 E[phi - m; phi > m] for phi a multiple of |u|^p on each side, after a change of sign if
    m = E phi < 0.

    Then phi > m only on sides where phi(+-t) = a t^p with a > 0, and there for z^p > m/a.
    """
    power = act.power or 1
    slopes = [side.coeff(u, power) for side in act.sides()]
    if sum(slopes) < 0:
        slopes = [-a for a in slopes]
    mean = sum(slopes) * _half_moment(power)
    return sp.expand(
        2 * S**power * sum(a * _excess((mean / a) ** sp.Rational(1, power), power) for a in slopes if a > 0)
    )


def _by_stein(phi: Expr, degree: int) -> Expr | None:
    """E phi(u)^degree for phi polynomial in u, Phi(u) and the normal density f(u); None for any other phi."""
    cdf, density = scratch("Phi"), scratch("f")
    translated = phi.subs({sp.erf(u / sp.sqrt(2)): 2 * cdf - 1, sp.exp(-(u**2) / 2): sp.sqrt(2 * sp.pi) * density})
    if not translated.is_polynomial(u, cdf, density):
        return None
    terms = sp.Poly(translated**degree, u, cdf, density).terms()
    return sum((coefficient * S**n * _stein(n, j, k) for (n, j, k), coefficient in terms), sp.S.Zero)


@cache
def _stein(n: int, j: int, k: int) -> Expr:
    """E[z^n Phi(s z)^j f(s z)^k], j <= 2, by E[z g(z)] = E[g'(z)] (Stein).

    With g = z^(n-1) Phi^j f^k and f'(t) = -t f(t):  (1 + k s^2) E_njk = (n-1) E_(n-2)jk + j s E_(n-1)(j-1)(k+1).
    At n = 0, f(s z)^k only narrows the Gaussian: s becomes s/sqrt(1 + k s^2).
    """
    narrowing = 1 + k * S**2
    if n > 0:
        lower = (n - 1) * _stein(n - 2, j, k) if n > 1 else sp.S.Zero
        return (lower + (j * S * _stein(n - 1, j - 1, k + 1) if j > 0 else 0)) / narrowing
    mass = (2 * sp.pi) ** sp.Rational(-k, 2) / sp.sqrt(narrowing)
    return mass * _cdf_moment(j).subs(S, S / sp.sqrt(narrowing))


def _cdf_moment(j: int) -> Expr:
    """E Phi(s z)^j: 1; 1/2 by symmetry; and for j = 2 by d/ds E Phi^2 = 2 E[z Phi f] = 2 _stein(1, 1, 1).

    The last is s/(pi (1 + s^2) sqrt(1 + 2 s^2)) ds, and w = sqrt(1 + 2 s^2) turns it into dw/(pi (1 + w^2)). It is
    integrated down from E Phi^2 = 1/2 at s = oo, where Phi is a step.
    """
    if j < 2:
        return sp.Rational(1, 2**j)
    if j > 2:
        raise ValueError(f"E Phi^j is derived for j up to 2, and no moment of ours needs j = {j}")
    w = scratch("w", positive=True)
    s_of_w = sp.sqrt((w**2 - 1) / 2)
    rate = sp.cancel((2 * _stein(1, 1, 1)).subs(S, s_of_w) * s_of_w.diff(w))
    # pi/2 - atan(w) = atan(1/w) for w > 0: no cancellation, and a form whose series at s = oo sympy takes.
    antiderivative = sp.integrate(rate, w).subs(sp.atan(w), -sp.atan(1 / w))
    return sp.Rational(1, 2) + antiderivative.subs(w, sp.sqrt(1 + 2 * S**2))


# ---------------------------------------------------------------------------------------------------- expansions
@cache
def small_scale(act: Activation, kind: Kind) -> Expansion:
    """The first three terms as s -> 0, (coefficient, power of s) each, coefficients exact.

    Fewer where the series ends (then it is exact up to exp(-const/s^2), or altogether for a homogeneous phi), none for
    a moment that is 0.

    >>> from depthlaw.theory.moments import Kind, activation, small_scale
    >>> small_scale(activation("tanh"), Kind.SECOND)
    ((1, 2), (-2, 4), (17/3, 6))
    """
    kind = canonical(act, kind)
    if act.power:
        return _first(closed_form(act, kind), sign=1)
    if kind is Kind.VARIANCE:
        return _first(_one_sided(act, Kind.SECOND, _taylor) - _one_sided(act, Kind.MEAN, _taylor) ** 2, sign=1)
    return _first(_taylor_deviation(act) if kind is Kind.ABS_CENTRED else _one_sided(act, kind, _taylor), sign=1)


@cache
def large_scale(act: Activation, kind: Kind) -> Expansion:
    """The first three terms as s -> oo, (coefficient, power of s) each.

    Coefficients are exact, except SLOPE_ABS of gelu and silu (30-digit Floats, by quadrature).

    >>> from depthlaw.theory.moments import Kind, activation, large_scale
    >>> large_scale(activation("tanh"), Kind.SECOND)
    ((1, 0), (-sqrt(2)/sqrt(pi), -1), (sqrt(2)*pi**(3/2)/24, -3))
    """
    kind = canonical(act, kind)
    if act.power:
        return small_scale(act, kind)
    if kind is Kind.VARIANCE:
        second, mean = (sum(c * S**p for c, p in large_scale(act, k)) for k in (Kind.SECOND, Kind.MEAN))
        return _first(second - mean**2, sign=-1)
    closed = closed_form(act, kind)
    if closed is not None:
        x = scratch("x", positive=True)
        return _first(sp.series(closed.subs(S, 1 / x), x, 0, 7).removeO().subs(x, 1 / S), sign=-1)
    if act.is_gated and kind in (Kind.ABS_CENTRED, Kind.SLOPE_ABS):
        return _first(_outer_deviation(act) if kind is Kind.ABS_CENTRED else _slope_abs_tail(act), sign=-1)
    (tanh,) = act.positive.atoms(sp.tanh)
    return _first(_one_sided(act, kind, lambda side: side.subs(tanh, 1 - 2 * _Y), tanh.args[0].coeff(u)), sign=-1)


def _first(expression: Expr, sign: int) -> Expansion:
    """The leading terms of a sum of powers of s, ascending (sign 1) or descending (-1)."""
    terms = sp.collect(sp.expand(expression), S, evaluate=False)
    powers = ((c, p.as_base_exp()[1] if p != 1 else sp.S.Zero) for p, c in terms.items() if c != 0)
    return tuple(sorted(powers, key=lambda term: sign * term[1])[:_NUM_TERMS])


def _one_sided(act: Activation, kind: Kind, rewrite: Callable[[Expr], Expr], rate: Expr = 1) -> Expr:
    """E g(u), g = phi, phi^2, |phi|, phi'^2 or |phi'|, from g on each side as a polynomial in t and y.

    y = 1/(1 + exp(2 c t)), c = ``rate``, so that tanh(c t) = 1 - 2y. Terms t^n give s^n E[z^n; z > 0]; t^n y^p decays
    and meets the Taylor series of the density (s -> oo). |phi| takes the sign that phi has near 0: exact up to
    exp(-const/s^2) as s -> 0, and for any s where phi (phi') changes sign at 0 only.
    """
    total = sp.S.Zero
    for side in act.sides(kind in SLOPES):
        g = rewrite(side)
        if kind is not Kind.MEAN:
            g *= g if kind in SQUARES else sp.sign(side.as_leading_term(u).subs(u, 1))
        for (n, p), coefficient in sp.Poly(sp.expand(g), u, _Y).terms():
            orders = range(n, n + 2 * _NUM_TERMS, 2) if p else ()
            tail = _tail(_sigmoid_integral(m, p) / (2 * rate) ** (m + 1) for m in orders)
            total += coefficient * (tail if p else S**n * _half_moment(n))
    return sp.expand(total)


def _taylor(side: Expr) -> Expr:
    """The one-sided Taylor series of phi or phi' below u^9: enough for the moments below s^9."""
    return sp.series(side, u, 0, 9).removeO()


def _taylor_deviation(act: Activation) -> Expr:
    """E|phi - m| as s -> 0, below s^6, for phi of the sign of u: E|phi| + 2 E[m - phi; 0 < phi < m].

    By parts the last is the integral of P(0 < z < x) s phi'(s x) over 0 < x < r, phi(s r) = m. All are series in s; the
    root r = O(s) is solved order by order.
    """

    def truncated(expression: Expr) -> Expr:
        return (sp.expand(expression) + sp.O(S**5)).removeO()

    phi = truncated(_taylor(act.positive).subs(u, S * _Z) / S)
    root, mean = sp.S.Zero, truncated(_one_sided(act, Kind.MEAN, _taylor) / S)
    for _ in range(4):
        root = truncated((_Z - (phi - mean) / phi.coeff(S, 0).coeff(_Z)).subs(_Z, root))
    mass = sp.integrate(sp.series(_DENSITY, _Z, 0, 5).removeO(), _Z)
    return S * (_half_moment(1) + 2 * truncated(sp.integrate(sp.expand(mass * phi.diff(_Z)), _Z).subs(_Z, root)))


def _outer_deviation(act: Activation) -> Expr:
    """E|phi - m| = 2 E[phi - m; u > r] as s -> oo for gelu and silu: beyond the root r, phi(t) = t up to exponentially
    small terms, so it is s K(m/s), K(q) = 2 E[z - q; z > q], expanded about the limit of m/s (that of relu)."""
    (limit, _), *rest = large_scale(act, Kind.MEAN)
    q, shift = scratch("q", positive=True), sum(c * S ** (p - 1) for c, p in rest)
    deviation = 2 * _excess(q)
    return S * sum(deviation.diff(q, i).subs(q, limit) * shift**i / sp.factorial(i) for i in range(_NUM_TERMS))


def _tail(integrals: Iterable[Expr]) -> Expr:
    """E g(u) as s -> oo for a decaying g with integrals of g, t^2 g, t^4 g ...: the Taylor series of u's density."""
    terms = (sp.Rational(-1, 2) ** i / sp.factorial(i) * g / S ** (2 * i + 1) for i, g in enumerate(integrals))
    return sp.expand(sum(terms, sp.S.Zero) / sp.sqrt(2 * sp.pi))


@cache
def _sigmoid_integral(n: int, p: int) -> Expr:
    """Integral over t > 0 of t^n y^p, y = 1/(1 + e^t): n! eta(n+1) for p = 1, then by parts from y' = -y (1 - y)."""
    if p == 1:
        return sp.factorial(n) * sp.dirichlet_eta(n + 1).rewrite(sp.zeta) if n else sp.log(2)
    boundary = -n * _sigmoid_integral(n - 1, p - 1) if n else -(sp.Rational(1, 2) ** (p - 1))
    return _sigmoid_integral(n, p - 1) + boundary / (p - 1)


def _slope_abs_tail(act: Activation) -> Expr:
    """E|phi'| = E phi' + 2 E[-phi'; u < t0] for gelu and silu, phi' < 0 below its one root t0; E phi' = 1/2.

    The integrals of -phi' t^(2i) up to t0 have no closed form: Floats of 30 digits (the exception in this module).
    """
    with mpmath.workdps(45):
        slope = function(act, Kind.SLOPE_ABS, "mpmath")
        ends = [-400, -20, -4, bisect(slope, mpmath.mpf(-3), mpmath.mpf(0))]
        integrals = [mpmath.quad(lambda t, i=i: -slope(t) * t ** (2 * i), ends, error=True) for i in range(_NUM_TERMS)]
        if max(error for _, error in integrals) > mpmath.mpf(10) ** -32:
            raise ArithmeticError(f"{act.name}: the tail of |phi'| did not converge")
        return sp.Rational(1, 2) + _tail(sp.Float(2 * integral, 40) for integral, _ in integrals).evalf(30)


# ---------------------------------------------------------------------------------------------------- numbers
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
        """The moment by quadrature, from phi and phi' alone."""
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
    >>> from depthlaw.theory.moments import precise
    >>> from depthlaw.theory.moments import Kind, activation
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

    >>> from depthlaw.theory.moments import numeric
    >>> from depthlaw.theory.moments import Kind, activation
    >>> numeric(activation("relu"), Kind.SECOND, 2.0)
    2.0
    >>> round(numeric(activation("tanh"), Kind.SECOND, 1.0), 10)
    0.3942944904
    """
    _check_positive("scale", scale)
    return evaluator(act, kind)(float(scale))


@lru_cache(maxsize=1 << 14)
def slope_power(act: Activation, power: int, scale: float) -> float:
    """E |phi'(s z)|^power as a double, by quadrature; of power 1 as ``evaluator`` has it.

    >>> from depthlaw.theory.moments import activation, slope_power
    >>> [round(slope_power(activation(name), 4, 2.0), 6) for name in ("relu", "tanh")]
    [0.5, 0.179229]
    """
    if power == 1:
        return evaluator(act, Kind.SLOPE_ABS)(scale)
    return math.fsum(weight * abs(slope) ** power for weight, _, _, slope, _ in points(act, scale))


@lru_cache(maxsize=64)
def points(act: Activation, scale: float) -> list[tuple[float, ...]]:
    """Weight, u, phi(u), phi'(u) and phi''(u) at each abscissa of ``slope_power``: a weighted sum is a mean. What phi''
    has at 0, where phi' jumps, is left out.

    >>> from depthlaw.theory.moments import activation, points
    >>> at = points(activation("relu2"), 2.0)
    >>> [round(sum(weight * of[n] ** 2 for weight, *of in at), 9) for n in range(4)]
    [4.0, 24.0, 8.0, 2.0]
    """
    rule, width, derivatives = _double_rule(), min(scale, 1), _derivatives(act)
    rows = []
    for a, b in pairwise(rule.edges(scale)):
        for sinh, weight in _abscissas(rule, a, b):
            t = width * sinh
            density = math.exp(-((t / scale) ** 2) / 2) * width / (scale * math.sqrt(2 * math.pi))
            rows.append((weight * density, t, *(side[t < 0](t) for side in derivatives)))
    return rows


@cache
def _derivatives(act: Activation) -> list[tuple[Callable[[float], float], ...]]:
    """phi, phi' and phi'' above 0 and below it."""
    sides = act.positive, act.negative
    return [tuple(sp.lambdify(u, side.diff(u, n), modules="math") for side in sides) for n in range(3)]


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
