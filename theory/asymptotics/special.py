"""Functions that closed forms of the mean field need and sympy lacks. Each evaluates; ``orders`` expands them.

GaussianMoment    a moment of an activation at a preactivation scale, kept unevaluated while the scale is symbolic
LongPsi           digamma of a large whole number
RootRatioSum      sum_{l=1}^{L} sqrt( Gamma(l + eps) / Gamma(l + eps + kappa) ), which does not telescope
GrowthSum         the same sum without the roots, which telescopes
"""

from __future__ import annotations

import functools

import mpmath
from sympy import Expr, Float, Function, digamma, sympify
from sympy.core.symbol import Str
from sympy.printing.printer import Printer

from depthlaw.theory.moments import Kind, activation, exact, precise


class GaussianMoment(Function):
    """GaussianMoment(activation, kind, scale) = E g(phi(scale z)), z ~ N(0, 1), for one of ``moments.Kind``.

    It stays symbolic so that one closed form serves every activation; ``with_exact_moments`` replaces it by the
    closed form of the activation where there is one.
    """

    nargs = 3
    is_positive = True
    is_commutative = True

    @classmethod
    def of(cls, name: str, kind: Kind, scale: Expr) -> Expr:
        return cls(Str(name), Str(kind.value), sympify(scale))  # Str: a label, not a free symbol

    @property
    def spec(self) -> tuple[str, Kind, Expr]:
        name, kind, scale = self.args
        return name.name, Kind(kind.name), scale  # pyright: ignore[reportAttributeAccessIssue]

    def exact_form(self) -> Expr | None:
        name, kind, scale = self.spec
        return exact(activation(name), kind, scale)

    def _eval_evalf(self, prec: int) -> Expr:
        name, kind, scale = self.spec
        if scale.free_symbols:
            return self
        digits = int(prec / 3.3219)
        with mpmath.workprec(prec + 20):
            value = moment_value(name, kind, mpmath.mpf(scale.evalf(digits + 5)), digits)
        return Float(value, precision=prec)


@functools.lru_cache(maxsize=50_000)
def _moment_value(name: str, kind: Kind, scale: str, digits: int) -> mpmath.mpf:
    return precise(activation(name), kind, mpmath.mpf(scale), digits)


def moment_value(name: str, kind: Kind, scale: mpmath.mpf, digits: int = 32) -> mpmath.mpf:
    """One moment as a number; remembered, since its quadrature costs more than all else in a closed form."""
    digits = max(32, digits)
    with mpmath.workdps(digits + 10):
        return _moment_value(name, kind, mpmath.nstr(scale, digits + 5), digits)


def with_exact_moments(expr: Expr) -> Expr:
    """Replace each moment at a constant scale by its closed form, where the activation has one."""

    def replace(moment: GaussianMoment) -> Expr:
        form = None if moment.spec[2].free_symbols else moment.exact_form()
        return moment if form is None else form

    return expr.replace(lambda e: isinstance(e, GaussianMoment), replace)


class LongPsi(Function):
    """digamma of a large whole number, kept as it is: sympy would write it as a sum of fractions, 10^4 digits and more.

    That is what a stream has whose branches are small: at gain 1/10, psi(20001).
    """

    nargs = 1
    is_positive = True

    def _eval_evalf(self, prec: int) -> Expr:
        with mpmath.workprec(prec + 20):
            return Float(mpmath.digamma(int(self.args[0])), precision=prec)

    def _sympystr(self, printer: Printer) -> str:
        return f"polygamma(0, {printer.doprint(self.args[0])})"

    def _latex(self, printer: Printer) -> str:
        return rf"\psi\left({printer.doprint(self.args[0])}\right)"


def psi(z: Expr) -> Expr:
    """digamma(z)."""
    return LongPsi(z) if z.is_Integer and z > 100 else digamma(z)


class GrowthSum(Function):
    """GrowthSum(z1, z2, s) = ( Gamma(z1+s) Gamma(z2) / (Gamma(z1) Gamma(z2+s)) - 1 ) / s,  psi(z1) - psi(z2) at s = 0.

    With z1 = L + 1 + eps, z2 = 1 + eps and s = kappa - 1 this is sum_{l=1}^{L} D_l / eps for a stream that grows by
    1/eps a sublayer under a gradient that grows kappa times as fast.
    """

    nargs = 3
    is_positive = True

    @classmethod
    def eval(cls, z1: Expr, z2: Expr, s: Expr) -> Expr | None:
        return psi(z1) - psi(z2) if s.is_zero else None


class RootRatioSum(Function):
    """RootRatioSum(L, eps, kappa) = sum_{l=1}^{L} sqrt( Gamma(l + eps) / Gamma(l + eps + kappa) ).

    A stream that grows by one unit of 1/eps a sublayer, whose gradient grows kappa times as fast, has gradients
    whose roots (what sign-type optimizers see) add up to this. kappa = 1 gives a Hurwitz zeta, kappa = 0 gives L.
    """

    nargs = 3
    is_positive = True


HEAD_TERMS = 400
SERIES_TERMS = 5


def root_ratio_sum(length: float | mpmath.mpf, eps: mpmath.mpf, kappa: mpmath.mpf) -> mpmath.mpf:
    """The sum in time independent of its length: its head term by term, its tail by Hurwitz zeta functions.

    With y = l + eps + (kappa - 1)/2 the term is y^{-kappa/2} (1 + c_1 y^{-2} + c_2 y^{-4} + ...) (DLMF 5.11.13,
    Tricomi and Erdelyi 1951; odd powers vanish about this centre). The tail starts where y exceeds HEAD_TERMS, so
    what is left out is below HEAD_TERMS^{-2 SERIES_TERMS} of the sum. length: a whole number; where kappa > 2, or
    infinity.
    """
    shift = eps + (kappa - 1) / 2
    start = int(max(0, min(length, int(HEAD_TERMS + 4 * abs(kappa) - shift))))
    total = mpmath.mpf(0)
    term = mpmath.sqrt(mpmath.gammaprod([1 + eps], [1 + eps + kappa])) if start else mpmath.mpf(0)
    for index in range(1, start + 1):
        total += term
        term *= mpmath.sqrt((index + eps) / (index + eps + kappa))
    if start == length:
        return total
    low, high = start + 1 + shift, length + 1 + shift
    for power, coefficient in enumerate(_root_series(kappa)):
        exponent = kappa / 2 + 2 * power
        if abs(exponent - 1) < mpmath.mpf(10) ** (-mpmath.mp.dps // 2):
            part = mpmath.digamma(high) - mpmath.digamma(low)
        else:
            part = mpmath.zeta(exponent, low) - (0 if mpmath.isinf(high) else mpmath.zeta(exponent, high))
        total += coefficient * part
    return total


def _root_series(kappa: mpmath.mpf) -> list[mpmath.mpf]:
    """Coefficients c_j of y^{-2j} in y^{kappa/2} sqrt(Gamma(y + (1-kappa)/2) / Gamma(y + (1+kappa)/2)).

    log of the ratio from log Gamma(y + a) = (y + a - 1/2) log y - y + log(2 pi)/2
    + sum_{n>=1} (-1)^{n+1} B_{n+1}(a) / (n (n+1) y^n); then halved and exponentiated as a power series.
    """
    logs = [mpmath.mpf(0)] * SERIES_TERMS
    for j in range(1, SERIES_TERMS):
        n = 2 * j
        below, above = mpmath.bernpoly(n + 1, (1 - kappa) / 2), mpmath.bernpoly(n + 1, (1 + kappa) / 2)
        logs[j] = -(below - above) / (2 * n * (n + 1))
    series = [mpmath.mpf(1)] + [mpmath.mpf(0)] * (SERIES_TERMS - 1)
    for j in range(1, SERIES_TERMS):  # p' = (log p)' p, coefficient by coefficient
        series[j] = mpmath.fsum(i * logs[i] * series[j - i] for i in range(1, j + 1)) / j
    return series
