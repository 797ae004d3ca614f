"""Equality and order of printed expressions, shown by named rewrites; nothing of theory/ but its symbols.

Three answers: True, False, and None where the rewrites do not decide. False is always backed by a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
from sympy import Add, Expr, Integer, S, Sum, Symbol, expand, expand_log, expand_power_base, lambdify, log

DIGITS = 40


def log_form(expr: Expr) -> Expr:
    """log of a positive expression in logs of primes and symbols, logs of logs included."""
    return expand(expand_log(log(expr), force=True, factor=True))


def equal(first: Expr, second: Expr) -> bool | None:
    """Whether two positive expressions are one: by expanding their difference, or that of their logarithms."""
    if first == second or expand(first - second) == 0:
        return True
    if S.Zero in (first, second):
        return False
    if log_form(first) - log_form(second) == 0:
        return True
    return False if _differ(first, second) else None


def _differ(first: Expr, second: Expr) -> bool:
    """Whether two expressions have different values, to 40 digits, at some small whole numbers."""
    letters = sorted(first.free_symbols | second.free_symbols, key=str)
    points = (2, 3, 7, 19)
    for shift in range(len(points)):
        at = {letter: Integer(points[(shift + i) % len(points)]) for i, letter in enumerate(letters)}
        a, b = (expr.subs(at).evalf(DIGITS) for expr in (first, second))
        if a.is_number and b.is_number and abs(a - b) > abs(a + b) * Integer(10) ** (10 - DIGITS):
            return True
    return False


# ---------------------------------------------------------------- sums


@cache
def normal_form(expr: Expr) -> Expr:
    """Sums split into terms, each free of what its index does not touch, indices renamed from the inside out."""
    if not expr.args or not expr.has(Sum):
        return expr
    if not isinstance(expr, Sum):
        return expand(expr.func(*map(normal_form, expr.args)))
    function, *limits = expr.args
    for limit in limits:
        function = _one_sum(normal_form(function), *limit)
    return function


def _one_sum(function: Expr, index: Symbol, low: Expr, high: Expr) -> Expr:
    total = S.Zero
    for term in Add.make_args(expand(expand_power_base(expand(function), force=True))):
        outside, inside = term.as_independent(index, as_Add=False)
        if inside == 1:
            total += outside * (high - low + 1)
            continue
        name = Symbol(f"i{_height(inside)}", integer=True, positive=True)
        total += outside * Sum(inside.xreplace({index: name}), (name, low, high))
    return total


def _height(expr: Expr) -> int:
    """How deep sums are nested in an expression."""
    below = max((_height(arg) for arg in expr.args), default=0)
    return below + 1 if isinstance(expr, Sum) else below


def sums_equal(first: Expr, second: Expr) -> bool | None:
    """Whether two expressions with sums are one for every length, by ``normal_form``; None where it does not tell."""
    return True if expand(normal_form(first) - normal_form(second)) == 0 else None


@cache
def _compiled(expr: Expr, letters: tuple[Any, ...]) -> Any:
    return lambdify(letters, expr, modules="math")


def value_at(expr: Expr, letters: Sequence[Any], values: Sequence[Any]) -> Fraction:
    """An expression at rationals, exactly; a list is that of an indexed letter, its entry 1 first."""
    given = [[Fraction(0), *map(Fraction, v)] if isinstance(v, list) else v for v in values]
    return Fraction(_compiled(expr, tuple(letters))(*given))


def rational_gains(length: int, case: int) -> tuple[list[Fraction], list[Fraction]]:
    """v and w by sublayer, positive rationals from 1/7 to 7, another pair for every case; no randomness."""
    v = [Fraction(1 + (3 * i + 5 * case) % 7, 1 + (2 * i + case) % 7) for i in range(length)]
    w = [Fraction(1 + (5 * i + 2 * case + 1) % 7, 1 + (3 * i + 4 * case) % 7) for i in range(length)]
    return v, w


# ---------------------------------------------------------------- orders and decimals


def settles(ratios: Sequence[mpmath.mpf | float], *, threshold: float = 0.45) -> bool:
    """Whether log(quantity/order) at L, L^2, L^3 goes to a constant: its second step is clearly shorter than its first.

    A constant plus b/log L makes the second step a third of the first. A wrong power leaves it at least as long, a
    wrong power of log L leaves it log(3/2)/log(2) = 0.585 of the first. Two steps under 0.05 have settled too: at the
    L of ``second_meanfield`` even (log L)^(1/4) moves by 0.17 and 0.10.
    """
    first, second = abs(ratios[1] - ratios[0]), abs(ratios[2] - ratios[1])
    return bool(second < threshold * first or max(first, second) < 0.05)


def falls_away(ratios: Sequence[mpmath.mpf | float]) -> bool:
    """Whether log(quantity/order) keeps falling: the quantity is of smaller order."""
    return bool(ratios[2] < ratios[1] < ratios[0])


def roundings(exact: Decimal, digits: int) -> dict[str, str]:
    """``exact`` to that many decimals, half up and half to even."""
    step = Decimal(1).scaleb(-digits)
    ways = {"half up": ROUND_HALF_UP, "half even": ROUND_HALF_EVEN}
    return {name: str(exact.quantize(step, way)) for name, way in ways.items()}
