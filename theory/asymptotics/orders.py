"""Orders  c * N^a * (log N)^b * (log log N)^e, and how the leading order of a closed form is shown.

``leading_order(expr, N)`` walks the expression and expands every node with a named asymptotic: digamma and harmonic
numbers (DLMF 5.11.2), gamma ratios (DLMF 5.11.12-13), the Hurwitz zeta function (Euler-Maclaurin, DLMF 25.11.43),
Gaussian moments at small and large scale (``moments``), and power series. Nothing is fitted. ``cross_check`` then
evaluates the expression itself at 10^3, 10^6 and 10^9 and compares.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sympy import (
    Add,
    EulerGamma,
    Expr,
    Integer,
    Mul,
    Pow,
    Rational,
    RisingFactorial,
    S,
    Symbol,
    bernoulli,
    cancel,
    exp,
    gamma,
    harmonic,
    log,
    loggamma,
    oo,
    polygamma,
    zeta,
)

from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.asymptotics.expansion import (
    CONSTANT,
    NUM_TERMS,
    BeyondScaleError,
    CancelledError,
    Expansion,
    Key,
    Terms,
    add_keys,
    compare,
    compose,
    sign_of,
    times_key,
    written,
)
from depthlaw.theory.asymptotics.special import GaussianMoment, GrowthSum, RootRatioSum, with_exact_moments
from depthlaw.theory.moments import activation, exact, large_scale, small_scale

CHECK_POINTS = (10**3, 10**6, 10**9)
FAR_POINTS = (10**100, 10**1000, 10**4000)
"""Points for orders whose next term vanishes slowly, so that 10^9 is not yet far out. A closed form costs no more here.
"""
SLOW = Rational(1, 4)
"""A next term that dies like N^-SLOW or slower may still be a fiftieth of the whole at 10^9."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """coefficient * N^power * (log N)^log_power * (log log N)^loglog_power * exp(growth), as N goes to infinity.

    coefficient 0 with powers None: the quantity vanishes identically. power oo: it grows faster than any power, as
    exp(growth) says, which then holds what power there is too. ``next_term`` is the first correction relative to the
    leading one, in N; where its constant is not known, ``remainder`` is its order. ``shadow`` is a relative correction
    e^{-...} beyond all of these that may still be large at any depth one meets. is_slow: one of them falls slower than
    N^-SLOW.

    >>> from sympy import Rational, log
    >>> from depthlaw.theory.asymptotics.orders import Order, leading_order
    >>> from depthlaw.theory.symbols import N
    >>> Order(coefficient=Rational(2, 3), power=Rational(1, 2), log_power=Rational(1)).expression(N)
    2*sqrt(N)*log(N)/3
    >>> found = leading_order(N + log(N), N)
    >>> found.power, found.next_term
    (1, log(N)/N)
    """

    coefficient: Expr
    power: Expr | None = S.Zero
    log_power: Expr | None = S.Zero
    loglog_power: Expr | None = S.Zero
    growth: Expr = S.Zero
    next_term: Expr | None = None
    remainder: Expr | None = None
    shadow: Expr | None = None
    is_slow: bool = False
    shown_by: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_zero(self) -> bool:
        return self.power is None

    @property
    def powers(self) -> Key:
        """(power, log_power, loglog_power) of an order that does not vanish."""
        if self.power is None or self.log_power is None or self.loglog_power is None:
            raise BeyondScaleError("a quantity that vanishes has no order")
        return self.power, self.log_power, self.loglog_power

    def expression(self, n: Expr) -> Expr:
        """The order written out in the variable n (in which ``growth`` must already stand)."""
        if self.is_zero:
            return S.Zero
        a, b, e = self.powers
        return self.coefficient * exp(self.growth) * n ** (S.Zero if a is oo else a) * log(n) ** b * log(log(n)) ** e

    def __str__(self) -> str:
        return str(self.expression(Symbol("N")))

    def raised(self, exponent: Expr) -> Order:
        power, log_power, loglog_power = times_key(self.powers, exponent)
        return Order(
            coefficient=self.coefficient**exponent,
            power=power,
            log_power=log_power,
            loglog_power=loglog_power,
            growth=self.growth * exponent,
            shown_by=self.shown_by,
        )

    def times(self, other: Order) -> Order:
        if self.is_zero or other.is_zero:
            return ZERO
        power, log_power, loglog_power = add_keys(self.powers, other.powers)
        return Order(
            coefficient=self.coefficient * other.coefficient,
            power=power,
            log_power=log_power,
            loglog_power=loglog_power,
            growth=self.growth + other.growth,
            shown_by=(*self.shown_by, *(why for why in other.shown_by if why not in self.shown_by)),
        )

    def restated(self, old: Symbol, new: Expr) -> Order:
        """The same quantity in another count, old = factor * n: L = 2 N, say; a log power keeps its leading term."""
        (n,) = new.free_symbols
        factor = new / n
        if self.is_zero:
            return self
        power, log_power, loglog_power = self.powers
        moved = sign_of(log_power) or sign_of(loglog_power)
        why = (f"log({new}) = log {n} + log {factor}: leading term kept",) if moved else ()
        return replace(
            self,
            coefficient=self.coefficient if power is oo else self.coefficient * factor**power,
            growth=self.growth.subs(old, new),
            next_term=self.next_term and self.next_term.subs(old, new),
            remainder=self.remainder and self.remainder.subs(old, new),
            shadow=self.shadow and self.shadow.subs(old, new),
            shown_by=(*self.shown_by, *why),
        )


ZERO = Order(coefficient=S.Zero, power=None, log_power=None, loglog_power=None, shown_by=("vanishes identically",))


def sum_order(term: Order, why: str) -> Order:
    """Leading order of sum_{j<=n} f(j), given f's: integral comparison (Euler-Maclaurin), divergent sums only.

    A factor exp(growth) or a convergent sum needs its own argument; both are refused here.
    """
    a, b, e = term.powers
    if term.growth != 0:
        raise BeyondScaleError("integral comparison needs a power law")
    rule = (*term.shown_by, why)
    if sign_of(a + 1) > 0:
        return Order(coefficient=term.coefficient / (a + 1), power=a + 1, log_power=b, loglog_power=e, shown_by=rule)
    if sign_of(a + 1) < 0:
        raise BeyondScaleError("the sum converges")
    if sign_of(b + 1) > 0:
        return Order(coefficient=term.coefficient / (b + 1), log_power=b + 1, loglog_power=e, shown_by=rule)
    if sign_of(b + 1) < 0:
        raise BeyondScaleError("the sum converges")
    if sign_of(e + 1) <= 0:
        raise BeyondScaleError("log log log is outside the scale")
    return Order(coefficient=term.coefficient / (e + 1), loglog_power=e + 1, shown_by=rule)


class _Walker:
    """Expands an expression node by node and writes down which asymptotic each node took.

    Schemes, optimizers and roles share most of their nodes, so a walker is kept for each variable and precision.
    """

    def __init__(self, n: Symbol) -> None:
        self.n = n
        self.used: dict[str, None] = {}
        self.cache: dict[Expr, tuple[Expansion, tuple[str, ...]]] = {}

    def expand(self, expr: Expr) -> Expansion:
        kept = self.cache.get(expr)
        if kept is None:
            outer, self.used = self.used, {}
            try:
                expansion = self._expand(expr)
                kept = self.cache[expr] = (expansion, tuple(self.used))
            finally:
                self.used = outer
        self.used.update(dict.fromkeys(kept[1]))
        return kept[0]

    def _expand(self, expr: Expr) -> Expansion:
        n = self.n
        if not expr.has(n):
            return Expansion(()) if expr.is_zero else Expansion.constant(with_exact_moments(expr))
        if expr == n:
            return Expansion.monomial(S.One, S.One)
        if isinstance(expr, Add):
            total = Expansion(())
            for term in expr.args:
                total = total + self.expand(term)
            return total
        if isinstance(expr, Mul):
            product = Expansion.constant(S.One)
            for factor in expr.args:
                product = product * self.expand(factor)
            return product
        if isinstance(expr, exp):
            return self.expand(expr.args[0]).exponential()
        if isinstance(expr, Pow):
            base, exponent = expr.as_base_exp()
            if not exponent.has(n):
                return self.expand(base).power(exponent)
            self.note("x^y = exp(y log x), expanded inside")
            return (self.expand(exponent) * self.expand(base).logarithm()).exponential()
        rule = _RULES.get(expr.func)
        if rule is None:
            raise BeyondScaleError(f"no asymptotic is known here for {expr.func.__name__}")
        return rule(self, expr)

    def note(self, why: str) -> None:
        self.used[why] = None

    # --- one method per function, each a named asymptotic -------------------------------------------------------
    def log(self, expr: Expr) -> Expansion:
        return self.expand(expr.args[0]).logarithm()

    def harmonic(self, expr: Expr) -> Expansion:
        if len(expr.args) != 1:
            raise BeyondScaleError("generalised harmonic numbers")
        return self.expand(polygamma(0, expr.args[0] + 1)) + Expansion.constant(EulerGamma)

    def polygamma(self, expr: Expr) -> Expansion:
        order, argument = expr.args
        z = self.expand(argument)
        if z.limit_sign() == 0:
            return self._taylor(z, lambda c, j: polygamma(order + j, c))
        if order != 0 or z.limit_sign() < 0:
            raise BeyondScaleError("polygamma off digamma's large argument")
        self.note("digamma: psi(z) = log z - 1/(2z) - sum B_2k/(2k z^2k) (DLMF 5.11.2)")
        out = z.logarithm() + z.power(S.NegativeOne).scaled(Rational(-1, 2))
        for j in range(1, NUM_TERMS.get()):
            out = out + z.power(Integer(-2 * j)).scaled(-bernoulli(2 * j) / (2 * j))
        return out + Expansion((), times_key(z.lead[1], Integer(-2 * NUM_TERMS.get())))

    def rising_factorial(self, expr: Expr) -> Expansion:
        """Gamma(z + kappa) / Gamma(z)."""
        z, kappa = (self.expand(arg) for arg in expr.args)
        if kappa.limit_sign() > 0:
            raise BeyondScaleError("a gamma ratio whose step grows")
        if z.limit_sign() > 0:
            self.note("gamma ratio: Gamma(z+k)/Gamma(z) = z^k (1 + k(k-1)/(2z) + ...) (DLMF 5.11.12-13)")
            front = (kappa * z.logarithm()).exponential()
            less = kappa + Expansion.constant(S.NegativeOne)
            inverse = z.power(S.NegativeOne)
            first = (kappa * less * inverse).scaled(Rational(1, 2))
            last = Expansion((), times_key(z.lead[1], Integer(-2)))
            return front * (Expansion.constant(S.One) + first + last)
        return self._gamma(z + kappa) * self._gamma(z).power(S.NegativeOne)

    def growth_sum(self, expr: Expr) -> Expansion:
        """(R - 1)/s for a ratio R of two gamma ratios with the same step s; its limit is psi(z1) - psi(z2) at s = 0."""
        z1, z2, step = expr.args
        s = self.expand(step)
        if s.limit_sign() > 0:
            raise BeyondScaleError("a gamma ratio whose step grows")
        logs = self.expand(polygamma(0, z1)) - self.expand(polygamma(0, z2))
        if s.limit_sign() == 0 or (s * logs).limit_sign() >= 0:
            ratio = self.expand(RisingFactorial(z1, step)) * self.expand(RisingFactorial(z2, step)).power(S.NegativeOne)
            return (ratio + Expansion.constant(S.NegativeOne)) * s.power(S.NegativeOne)
        self.note("(x^s - 1)/s -> log x as s -> 0: a difference of digammas, and s times its square left out")
        square = times_key(logs.lead[1], Integer(2))
        curvature = times_key(self.expand(z2).lead[1], S.NegativeOne)
        worst = square if compare(square, curvature) >= 0 else curvature
        return logs + Expansion((), add_keys(s.lead[1], worst))

    def gamma(self, expr: Expr) -> Expansion:
        return self._gamma(self.expand(expr.args[0]))

    def _gamma(self, z: Expansion) -> Expansion:
        if z.limit_sign() > 0:
            raise BeyondScaleError("a gamma function alone grows beyond every power")
        if z.limit_sign() < 0:  # Gamma(z) = Gamma(1 + z) / z
            return self._gamma(z + Expansion.constant(S.One)) * z.power(S.NegativeOne)
        self.note("Taylor series of log gamma about the limit of its argument")
        return self._taylor(z, lambda c, j: loggamma(c) if j == 0 else polygamma(j - 1, c)).exponential()

    def zeta(self, expr: Expr) -> Expansion:
        s, argument = expr.args if len(expr.args) == 2 else (expr.args[0], S.One)
        if s.has(self.n):
            raise BeyondScaleError("a Hurwitz zeta whose exponent moves")
        z = self.expand(argument)
        if z.limit_sign() == 0:
            return self._taylor(z, lambda c, j: (-1) ** j * RisingFactorial(s, j) * zeta(s + j, c))
        self.note("Hurwitz zeta at large z by Euler-Maclaurin: z^(1-s)/(s-1) + z^-s/2 + s z^(-s-1)/12 (DLMF 25.11.43)")
        return (
            z.power(1 - s).scaled(1 / (s - 1))
            + z.power(-s).scaled(Rational(1, 2))
            + z.power(-s - 1).scaled(s / 12)
            + Expansion((), times_key(z.lead[1], -s - 3))
        )

    def root_ratio_sum(self, expr: Expr) -> Expansion:
        """sum_l sqrt(Gamma(l + eps)/Gamma(l + eps + kappa)): the integral of (x + eps + (kappa-1)/2)^(-kappa/2).

        The terms are monotone, so sum and integral differ by at most the first term: a constant, and relative to
        the sum negligible wherever kappa <= 2 or eps grows. Above 2 the sum over all l is a number, which is left as
        it is, and the integral is of what is beyond L.
        """
        length, eps, kappa = (self.expand(arg) for arg in expr.args)
        if kappa.limit_sign() > 0:
            raise BeyondScaleError("a gamma ratio whose step grows")
        half = kappa.scaled(Rational(1, 2))
        rest = Expansion.constant(S.One) - half  # 1 - kappa/2
        if rest.limit_sign() != 0 and not rest.is_zero:
            raise BeyondScaleError("sum of roots with a kappa that tends to 2")
        grows = eps.limit_sign() > 0
        if not (grows or rest.is_zero) and sign_of(rest.lead[0]) < 0:
            if any(arg.has(self.n) for arg in expr.args[1:]):
                raise BeyondScaleError("sum of roots with a kappa above 2 that moves")
            self.note("sum of roots of gamma ratios, kappa > 2: it converges, and what is beyond L is an integral")
            beyond = (rest * (length + eps + half).logarithm()).exponential()
            return Expansion.constant(RootRatioSum(oo, *expr.args[1:])) + Expansion((), beyond.lead[1])
        self.note("sum of roots of gamma ratios: monotone terms against their integral (Euler-Maclaurin)")

        def antiderivative(shifted: Expansion) -> Expansion:
            if rest.is_zero:
                return shifted.logarithm()
            return (rest * shifted.logarithm()).exponential() * rest.power(S.NegativeOne)

        high = antiderivative(length + eps + half)
        if grows:
            low = antiderivative(eps + half)
            return high - low + Expansion((), add_keys(low.lead[1], times_key(eps.lead[1], Integer(-2))))
        return high + Expansion((), CONSTANT)

    def moment(self, expr: GaussianMoment) -> Expansion:
        name, kind, scale = expr.spec
        act, s = activation(name), self.expand(scale)
        if act.is_homogeneous:
            form = exact(act, kind, scale)
            assert form is not None
            return self.expand(form)
        if s.limit_sign() == 0:
            raise BeyondScaleError("a moment at a scale that moves towards a constant")
        small = s.limit_sign() < 0
        self.note(f"Gaussian moments of {name} at {'small' if small else 'large'} scale")
        series = (small_scale if small else large_scale)(act, kind)
        total = Expansion(())
        for coefficient, power in series:
            total = total + s.power(power).scaled(coefficient)
        last = series[-1][1] + (1 if small else -1)
        return total + Expansion((), times_key(s.lead[1], Integer(last) if last == int(last) else last))

    def _taylor(self, z: Expansion, derivative: Callable[[Expr, int], Expr]) -> Expansion:
        from sympy import factorial

        centre = z.lead[0]
        delta = z - Expansion.constant(centre)
        return compose([derivative(centre, j) / factorial(j) for j in range(NUM_TERMS.get() + 1)], delta)


_RULES: dict[type, Callable[[_Walker, Expr], Expansion]] = {
    log: _Walker.log,
    harmonic: _Walker.harmonic,
    polygamma: _Walker.polygamma,
    RisingFactorial: _Walker.rising_factorial,
    gamma: _Walker.gamma,
    zeta: _Walker.zeta,
    GrowthSum: _Walker.growth_sum,
    RootRatioSum: _Walker.root_ratio_sum,
    GaussianMoment: _Walker.moment,
}


@functools.lru_cache(maxsize=32)
def _walker(n: Symbol, num_terms: int) -> _Walker:
    """One walker for each variable and number of terms; the number is what ``NUM_TERMS`` holds while it walks."""
    return _Walker(n)


@functools.lru_cache(maxsize=8192)
def leading_order(expr: Expr, n: Symbol) -> Order:
    """The leading order of ``expr`` as n goes to infinity, exact, with the next term and the asymptotics used.

    Assumes a positive quantity built from sums, products, powers, log, exp, harmonic, digamma, gamma ratios, Hurwitz
    zeta, ``RootRatioSum`` and ``GaussianMoment``. BeyondScaleError where none of these decides.

    >>> from sympy import harmonic, sqrt
    >>> from depthlaw.theory.asymptotics.orders import leading_order
    >>> from depthlaw.theory.symbols import N
    >>> order = leading_order(sqrt(3 * N) * harmonic(2 * N), N)
    >>> str(order), order.powers
    ('sqrt(3)*sqrt(N)*log(N)', (1/2, 1, 0))
    >>> order.next_term
    (EulerGamma + log(2))/log(N)
    >>> order.shown_by
    ('digamma: psi(z) = log z - 1/(2z) - sum B_2k/(2k z^2k) (DLMF 5.11.2)',)
    """
    if expr.is_zero:
        return ZERO
    for num_terms in (4, 8, 16):
        token = NUM_TERMS.set(num_terms)
        try:
            walker = _walker(n, num_terms)
            walker.used = {}
            expansion = walker.expand(expr)
            coefficient, (power, log_power, loglog_power) = expansion.lead
        except CancelledError:
            continue
        finally:
            NUM_TERMS.reset(token)
        lead_key = expansion.lead[1]
        slow = [key[0] - power for _, key in expansion.terms[1:2]] or [
            key[0] - power for key in (expansion.remainder,) if key is not None
        ]
        slow += [expansion.shadow.growth[0][1][0]] if expansion.shadow is not None else []
        follower = expansion.terms[1] if len(expansion.terms) > 1 else None
        next_term = None if follower is None else follower[0] / coefficient * _relative(follower[1], lead_key, n)
        remainder = None if expansion.remainder is None else _relative(expansion.remainder, lead_key, n)
        growth, is_super = written(expansion.growth, n), _is_superpolynomial(expansion.growth)
        return Order(
            coefficient=coefficient,
            power=oo if is_super else power,
            log_power=log_power,
            loglog_power=loglog_power,
            growth=growth + power * log(n) if is_super else growth,  # N^power has no other place beside oo
            next_term=next_term,
            remainder=remainder if next_term is None else None,
            shadow=expansion.shadow and expansion.shadow.written(n),
            is_slow=any(sign_of(gap) <= 0 < sign_of(gap + SLOW) for gap in slow),
            shown_by=tuple(walker.used),
        )
    raise BeyondScaleError("the leading term cancels beyond 16 terms")


def _relative(key: Key, lead: Key, n: Symbol) -> Expr:
    """N^a (log N)^b (log log N)^e of one key over another."""
    a, b, e = (cancel(mine - theirs) for mine, theirs in zip(key, lead, strict=True))
    return n**a * log(n) ** b * log(log(n)) ** e


def _is_superpolynomial(growth: Terms) -> bool:
    if not growth:
        return False
    coefficient, key = growth[0]
    return compare(key, (S.Zero, S.One, S.Zero)) > 0 and sign_of(coefficient) > 0


def cross_check(expr: Expr, n: Symbol, order: Order) -> list[tuple[int, float, float]]:
    """(N, expression / leading order, stated correction) at 10^3, 10^6 and 10^9 layers and beyond, by mpmath.

    ArithmeticError where the ratio does not approach 1 as stated: at the last point it may miss 1 by four times the
    next term; where only the order of the next term is known, by four times what that order makes of the miss at the
    point before (far out, where the miss itself shrinks by less than four, by 5/4 of that); where nothing was left out,
    by rounding.

    >>> from depthlaw.theory.asymptotics.orders import cross_check, leading_order
    >>> from depthlaw.theory.symbols import N
    >>> expr = 3 * N + 12
    >>> [(f"{count:.0e}", round(ratio, 4)) for count, ratio, _ in cross_check(expr, N, leading_order(expr, N))]
    [('1e+03', 1.004), ('1e+06', 1.0), ('1e+09', 1.0)]
    >>> cross_check(expr, N, leading_order(4 * N, N))
    Traceback (most recent call last):
        ...
    ArithmeticError: 4*N is not the leading order...
    """
    if order.is_zero:
        return []
    lead, stated = order.expression(n), order.next_term if order.next_term is not None else order.remainder
    rows = []
    points = [*CHECK_POINTS, *(FAR_POINTS if order.is_slow else ())]
    for count in points:
        ratio = evaluate(expr, {n: count}) / evaluate(lead, {n: count})
        correction = S.Zero if stated is None else evaluate(stated, {n: count})
        rows.append((count, float(ratio), abs(float(correction))))
    misses = [abs(ratio - 1) for _, ratio, _ in rows]
    allowed = 4 * rows[-1][2]
    if order.next_term is None and order.remainder is not None:
        allowed *= misses[-2] / rows[-2][2] * (5 / 16 if order.is_slow else 1)
    if order.shadow is not None:
        allowed += 1.1 * abs(float(evaluate(order.shadow, {n: points[-1]})))
    if misses[-1] > max(allowed, 1e-14) or misses[-1] > max(misses[0], 1e-14):
        raise ArithmeticError(f"{order} is not the leading order: expression / order is {rows}")
    return rows
