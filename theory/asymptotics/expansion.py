"""Asymptotic expansions in the scale  e^{g(N)} * N^a * (log N)^b * (log log N)^e,  with their remainders.

Ordinary arithmetic on truncated series, except that exponents may be any exact constants (1/(pi - 1), say). Each
operation keeps track of the order of what it leaves out, so a leading term is never read off a cancelled sum.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace

import mpmath
from sympy import Expr, Integer, Rational, S, binomial, exp, expand_log, factorial, log

from depthlaw.theory.asymptotics.evaluate import constant

NUM_TERMS: ContextVar[int] = ContextVar("NUM_TERMS", default=4)
"""The number of terms that are kept; ``orders`` asks for more when all of them cancel."""

Key = tuple[Expr, Expr, Expr]
"""(power of N, power of log N, power of log log N)."""

Terms = tuple[tuple[Expr, Key], ...]
"""(coefficient, key), fastest first."""

CONSTANT: Key = (S.Zero, S.Zero, S.Zero)
_ZERO = mpmath.mpf(10) ** -25


class CancelledError(ArithmeticError):
    """Every kept term cancelled: the leading term lies in what was left out. Try again with more terms."""


class BeyondScaleError(ArithmeticError):
    """The expression leaves the scale in which orders are stated (a log log log N, or an essential singularity)."""


@functools.lru_cache(maxsize=100_000)
def sign_of(expr: Expr) -> int:
    """Sign of an exact real constant; 0 if it vanishes to 25 digits."""
    if expr.is_Rational:
        return int(bool(expr > 0)) - int(bool(expr < 0))
    value = constant(expr)
    return 0 if abs(value) < _ZERO else 1 if value > 0 else -1


def compare(first: Key, second: Key) -> int:
    """1 if ``first`` grows faster, -1 if it grows slower, 0 if they are the same."""
    for left, right in zip(first, second, strict=True):
        if left != right and (sign := sign_of(left - right)):
            return sign
    return 0


def add_keys(first: Key, second: Key) -> Key:
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def times_key(key: Key, factor: Expr) -> Key:
    return (key[0] * factor, key[1] * factor, key[2] * factor)


def _faster(first: Key | None, second: Key | None) -> Key | None:
    if first is None or second is None:
        return first or second
    return first if compare(first, second) >= 0 else second


def collect(pairs: Iterable[tuple[Expr, Key]]) -> Terms:
    """Add the coefficients of equal keys, drop those that vanish, sort by growth."""
    merged: list[tuple[Expr, Key]] = []
    for coefficient, key in pairs:
        for place, (total, other) in enumerate(merged):
            if compare(other, key) == 0:
                merged[place] = (total + coefficient, other)
                break
        else:
            merged.append((coefficient, key))
    kept = [(c, key) for c, key in merged if sign_of(c)]
    return tuple(sorted(kept, key=functools.cmp_to_key(lambda x, y: compare(y[1], x[1]))))


def times(terms: Terms, factor: Expr) -> Terms:
    """Every coefficient times a constant."""
    return tuple((coefficient * factor, key) for coefficient, key in terms)


def written(terms: Terms, n: Expr) -> Expr:
    """The terms as an expression in n."""
    total: Expr = S.Zero
    for coefficient, (a, b, e) in terms:
        total += coefficient * n**a * log(n) ** b * log(log(n)) ** e
    return total


@dataclass(frozen=True)
class Shadow:
    """A term coefficient * N^.. * e^{growth} with growth -> -oo. It is smaller than every power, and may still vanish
    slowly.
    """

    coefficient: Expr
    key: Key
    growth: Terms

    def written(self, n: Expr) -> Expr:
        return written(((self.coefficient, self.key),), n) * exp(written(self.growth, n))


@dataclass(frozen=True)
class Expansion:
    """terms (coefficient, key), fastest first; ``remainder`` bounds what is left out (None: nothing is).

    ``growth`` are the terms of the exponent g of a factor e^{g(N)} outside the power scale, common to all terms.
    """

    terms: Terms
    remainder: Key | None = None
    growth: Terms = ()
    shadow: Shadow | None = None
    """The largest term that was dropped for an exponential factor, relative to the leading one."""

    @staticmethod
    def of(pairs: Iterable[tuple[Expr, Key]], remainder: Key | None = None, growth: Terms = ()) -> Expansion:
        """Collect equal keys, drop what vanished and what the remainder hides, sort, cut to NUM_TERMS."""
        kept = [(c, key) for c, key in collect(pairs) if remainder is None or compare(key, remainder) > 0]
        most = NUM_TERMS.get()
        if len(kept) > most:
            remainder = _faster(remainder, kept[most][1])
            kept = kept[:most]
        return Expansion(tuple(kept), remainder, growth if kept else ())

    @staticmethod
    def constant(value: Expr) -> Expansion:
        return Expansion.of([(value, CONSTANT)])

    @staticmethod
    def monomial(coefficient: Expr, power: Expr, log_power: Expr = S.Zero) -> Expansion:
        return Expansion.of([(coefficient, (power, log_power, S.Zero))])

    @property
    def is_zero(self) -> bool:
        return not self.terms and self.remainder is None

    @property
    def lead(self) -> tuple[Expr, Key]:
        if not self.terms:
            raise CancelledError("no term survived the cancellation")
        return self.terms[0]

    def limit_sign(self) -> int:
        """1: grows without bound (in absolute value); 0: tends to a constant other than 0; -1: tends to 0."""
        if self.is_zero:
            return -1
        if self.growth:
            return sign_of(self.growth[0][0])
        return compare(self.lead[1], CONSTANT)

    def __add__(self, other: Expansion) -> Expansion:
        if self.terms and other.terms and (faster := collect((*self.growth, *times(other.growth, S.NegativeOne)))):
            return self._over(other, faster) if sign_of(faster[0][0]) > 0 else other._over(self, times(faster, -S.One))
        growth = self.growth if self.terms else other.growth
        total = Expansion.of([*self.terms, *other.terms], _faster(self.remainder, other.remainder), growth)
        return replace(total, shadow=self.shadow or other.shadow)

    def _over(self, other: Expansion, faster: Terms) -> Expansion:
        """self + other where self is larger by a factor e^{faster}: to all orders self, with other as its shadow."""
        (c1, k1), (c2, k2) = self.lead, other.lead
        shadow = Shadow(c2 / c1, add_keys(k2, times_key(k1, S.NegativeOne)), times(faster, S.NegativeOne))
        return replace(self, shadow=self.shadow or shadow)

    def __neg__(self) -> Expansion:
        return replace(self, terms=times(self.terms, S.NegativeOne))

    def __sub__(self, other: Expansion) -> Expansion:
        return self + (-other)

    def __mul__(self, other: Expansion) -> Expansion:
        if self.is_zero or other.is_zero:
            return Expansion(())
        pairs = [(c1 * c2, add_keys(k1, k2)) for c1, k1 in self.terms for c2, k2 in other.terms]
        remainder = None
        for left, right in ((self, other), (other, self)):
            if left.remainder is not None:
                top = right.terms[0][1] if right.terms else right.remainder
                remainder = _faster(remainder, add_keys(left.remainder, top or CONSTANT))
        product = Expansion.of(pairs, remainder, collect((*self.growth, *other.growth)))
        return replace(product, shadow=self.shadow or other.shadow)

    def scaled(self, factor: Expr) -> Expansion:
        return self * Expansion.constant(factor)

    def _split(self) -> tuple[Expr, Key, Expansion]:
        """lead coefficient, lead key, and delta with  self = lead * (1 + delta),  delta -> 0."""
        coefficient, key = self.lead
        inverse = times_key(key, S.NegativeOne)
        rest = [(c / coefficient, add_keys(k, inverse)) for c, k in self.terms[1:]]
        remainder = add_keys(self.remainder, inverse) if self.remainder is not None else None
        return coefficient, key, Expansion.of(rest, remainder)

    def power(self, exponent: Expr) -> Expansion:
        """self^exponent for a constant exponent, by the binomial series about the leading term."""
        if self.is_zero and sign_of(exponent) > 0:
            return self
        coefficient, key, delta = self._split()
        series = compose([binomial(exponent, j) for j in range(_length(exponent))], delta)
        front = Expansion.of([(coefficient**exponent, times_key(key, exponent))], None, times(self.growth, exponent))
        shadow = self.shadow and replace(self.shadow, coefficient=self.shadow.coefficient * exponent)
        return replace(front * series, shadow=shadow)

    def logarithm(self) -> Expansion:
        """log(self)."""
        coefficient, key, delta = self._split()
        if sign_of(key[2]):
            raise BeyondScaleError("log log log is outside the scale")
        series = compose([S.Zero] + [Rational((-1) ** (j + 1), j) for j in range(1, NUM_TERMS.get() + 1)], delta)
        front = [(log(coefficient), CONSTANT), (key[0], (S.Zero, S.One, S.Zero)), (key[1], (S.Zero, S.Zero, S.One))]
        out = Expansion.of(front) + series
        return out + Expansion.of(self.growth)

    def exponential(self) -> Expansion:
        """exp(self): log N goes to a power of N, log log N to one of log N, what else grows to ``growth``."""
        if self.is_zero:
            return Expansion.constant(S.One)
        power = log_power = S.Zero
        growth: list[tuple[Expr, Key]] = []
        front, small = S.One, []
        if self.remainder is not None and compare(self.remainder, CONSTANT) >= 0:
            raise CancelledError("the exponent is known only up to a term that does not vanish")
        for coefficient, key in self.terms:
            order = compare(key, CONSTANT)
            if order < 0:
                small.append((coefficient, key))
            elif order == 0:
                front = front * _exp(coefficient)
            elif compare(key, (S.Zero, S.One, S.Zero)) == 0:
                power = coefficient
            elif compare(key, (S.Zero, S.Zero, S.One)) == 0:
                log_power = coefficient
            else:
                growth.append((coefficient, key))
        delta = Expansion.of(small, self.remainder)
        series = compose([1 / factorial(j) for j in range(NUM_TERMS.get() + 1)], delta)
        return Expansion.of([(front, (power, log_power, S.Zero))], None, tuple(growth)) * series


def _exp(value: Expr) -> Expr:
    return exp(expand_log(value, force=True)) if value.has(log) else exp(value)


def _length(exponent: Expr) -> int:
    most = NUM_TERMS.get()
    return min(int(exponent), most) + 1 if exponent.is_Integer and exponent >= 0 else most + 1


def compose(coefficients: list[Expr], delta: Expansion) -> Expansion:
    """sum_j c_j delta^j for delta -> 0, with the remainder of the first power left out."""
    if delta.is_zero:
        return Expansion.constant(coefficients[0])
    top = delta.terms[0][1] if delta.terms else delta.remainder
    assert top is not None
    if delta.growth or compare(top, CONSTANT) >= 0:
        raise BeyondScaleError("a power series in something that does not vanish")
    total, power = Expansion.constant(coefficients[0]), Expansion.constant(S.One)
    for coefficient in coefficients[1:]:
        power = power * delta
        total = total + power.scaled(coefficient)
    if len(coefficients) <= NUM_TERMS.get():  # a polynomial: nothing is left out
        return total
    return total + Expansion((), times_key(top, Integer(len(coefficients))))
