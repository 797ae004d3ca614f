"""Numbers out of closed forms, by mpmath node by node.

sympy's ``subs`` would rewrite digamma(10^9) as a sum of 10^9 fractions; here every function is evaluated as itself,
in microseconds at any number of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import mpmath
from sympy import (
    Add,
    Expr,
    Mul,
    Pow,
    RisingFactorial,
    Symbol,
    asin,
    atan,
    ceiling,
    erf,
    erfc,
    exp,
    gamma,
    harmonic,
    log,
    loggamma,
    oo,
    polygamma,
    zeta,
)

from depthlaw.theory.asymptotics.special import (
    GaussianMoment,
    GrowthSum,
    LongPsi,
    RootRatioSum,
    moment_value,
    root_ratio_sum,
)
from depthlaw.theory.moments import activation, exact


def _rising(z: mpmath.mpf, k: mpmath.mpf) -> mpmath.mpf:
    """Gamma(z + k)/Gamma(z); at large z, where two log gammas would cancel, z^k times a fast series in 1/z.

    With y = z + (k - 1)/2 and log Gamma(y + a) expanded by Bernoulli polynomials, as in ``special``.
    """
    if abs(z) < 1e4:
        return mpmath.gammaprod([z + k], [z])
    if abs(k) > abs(z) / 1000:
        extra = 10 + int(mpmath.log10(abs(z)))
        with mpmath.extradps(extra):
            return mpmath.exp(mpmath.loggamma(z + k) - mpmath.loggamma(z))
    y = z + (k - 1) / 2
    total = k * mpmath.log(y)
    for n in range(2, 40, 2):
        term = (mpmath.bernpoly(n + 1, (1 + k) / 2) - mpmath.bernpoly(n + 1, (1 - k) / 2)) / (n * (n + 1) * y**n)
        total -= term
        if abs(term) < mpmath.eps * abs(total):
            break
    return mpmath.exp(total)


_FUNCTIONS: dict[type, Callable[..., mpmath.mpf]] = {
    log: mpmath.log,
    exp: mpmath.exp,
    gamma: mpmath.gamma,
    loggamma: mpmath.loggamma,
    polygamma: lambda order, z: mpmath.psi(int(order), z),
    harmonic: mpmath.harmonic,
    zeta: mpmath.zeta,
    erf: mpmath.erf,
    erfc: mpmath.erfc,
    asin: mpmath.asin,
    atan: mpmath.atan,
    ceiling: mpmath.ceil,
    RisingFactorial: _rising,
    LongPsi: mpmath.digamma,
    GrowthSum: lambda z1, z2, s: (_rising(z1, s) / _rising(z2, s) - 1) / s,
    RootRatioSum: root_ratio_sum,
}


def evaluate(expr: Expr, values: Mapping[Symbol, int], digits: int = 30) -> mpmath.mpf:
    """The real number that ``expr`` is at these values of its symbols, to ``digits`` digits.

    Computed at rising precision until two agree, since closed forms near kappa = 1 cancel: (x^e - 1)/e with e of order
    1/L^2. Where all digits cancel that is 0/e or 0/0, at any two precisions below that of e: neither counts.
    ArithmeticError if 400 digits do not settle it; TypeError for a function that no rule gives a number.

    >>> import mpmath
    >>> from sympy import harmonic
    >>> from depthlaw.theory.asymptotics.evaluate import evaluate
    >>> from depthlaw.theory.symbols import N
    >>> mpmath.nstr(evaluate(harmonic(N), {N: 10**9}), 20)
    '21.300481502347944017'
    """
    if expr.is_zero:
        return mpmath.mpf(0)
    before: mpmath.mpf | None = None
    precision = digits + 10
    while precision <= 400:
        with mpmath.workdps(precision):
            try:
                value = _Evaluator({symbol: mpmath.mpf(number) for symbol, number in values.items()})(expr)
            except ZeroDivisionError:
                value = mpmath.mpf(0)
            if before is not None and value and abs(value - before) <= abs(value) * mpmath.mpf(10) ** -digits:
                return value
        before, precision = value, precision + max(digits, precision // 2)
    raise ArithmeticError("a closed form does not settle at 400 digits; its gains are too small or too large")


CONSTANT_DIGITS = 50


def constant(expr: Expr) -> mpmath.mpf:
    """An exact constant to CONSTANT_DIGITS digits, less what cancels; where all of a denominator's digits do, as
    ``evaluate`` has it. Every sub-expression is remembered.

    >>> import mpmath
    >>> from sympy import pi, sqrt
    >>> from depthlaw.theory.asymptotics.evaluate import constant
    >>> mpmath.nstr(constant(sqrt(2 / pi)), 20)
    '0.79788456080286535588'
    """
    with mpmath.workdps(CONSTANT_DIGITS):
        try:
            return _constants()(expr)
        except ZeroDivisionError:
            return evaluate(expr, {})


@cache
def _constants() -> _Evaluator:
    """One memory of constants for the whole process."""
    return _Evaluator({})


class _Evaluator:
    def __init__(self, values: Mapping[Symbol, mpmath.mpf]) -> None:
        self.values, self.cache = values, {}

    def __call__(self, expr: Expr) -> mpmath.mpf:
        value = self.cache.get(expr)
        if value is None:
            value = self.cache[expr] = self._compute(expr)
        return value

    def _compute(self, expr: Expr) -> mpmath.mpf:
        if isinstance(expr, Symbol):
            return self.values[expr]
        if isinstance(expr, Add):
            return mpmath.fsum(self(arg) for arg in expr.args)
        if isinstance(expr, Mul):
            return mpmath.fprod(self(arg) for arg in expr.args)
        if isinstance(expr, Pow):
            return mpmath.power(self(expr.base), self(expr.exp))
        if isinstance(expr, GaussianMoment):
            return self._moment(expr)
        if expr.is_Rational:
            return mpmath.mpf(int(expr.p)) / int(expr.q)
        if expr is oo:  # of a sum without end
            return mpmath.inf
        if not expr.args:  # pi, E, EulerGamma, floats
            return mpmath.mpf(expr.evalf(mpmath.mp.dps)._mpf_)
        function = _FUNCTIONS.get(expr.func)
        if function is None:
            raise TypeError(f"a closed form has no {expr.func.__name__}: no rule gives it a number")
        return function(*(self(arg) for arg in expr.args))

    def _moment(self, expr: GaussianMoment) -> mpmath.mpf:
        name, kind, scale = expr.spec
        form = exact(activation(name), kind, scale)
        if form is not None:
            return self(form)
        return moment_value(name, kind, self(scale))
