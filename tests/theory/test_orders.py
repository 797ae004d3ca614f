"""Orders: the arithmetic of truncated expansions against mpmath, each asymptotic by itself, what `cross_check` sees.

A truncated expansion claims two things, its terms and how large what it left out may be. Both are checked far out,
where an order that is wrong by any power of the variable is wrong by more than every constant.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import (
    Expr,
    Integer,
    Rational,
    RisingFactorial,
    S,
    Symbol,
    cos,
    exp,
    gamma,
    harmonic,
    log,
    oo,
    pi,
    polygamma,
    sqrt,
    zeta,
)

from depthlaw.theory.asymptotics.evaluate import constant, evaluate
from depthlaw.theory.asymptotics.expansion import BeyondScaleError, Expansion, Key
from depthlaw.theory.asymptotics.orders import ZERO, Order, _Walker, cross_check, leading_order, sum_order
from depthlaw.theory.asymptotics.special import GaussianMoment, GrowthSum, RootRatioSum, root_ratio_sum
from depthlaw.theory.moments import Kind
from depthlaw.theory.symbols import L, N

half, third = S.Half, Rational(1, 3)


def at(key: Key | None, n: mpmath.mpf) -> mpmath.mpf:
    assert key is not None
    bases = (n, mpmath.log(n), mpmath.log(mpmath.log(n)))
    return mpmath.fprod(base ** mpmath.mpf(sympy_number(p)) for base, p in zip(bases, key, strict=True))


def sympy_number(x: Expr) -> mpmath.mpf:
    return mpmath.mpf(str(x.evalf(mpmath.mp.dps)))


def honours(expansion: Expansion, exact: mpmath.mpf, n: mpmath.mpf, allowed: float) -> bool:
    """Whether the terms miss the exact value by no more than the stated remainder, times a constant."""
    terms = mpmath.fsum(sympy_number(c) * at(key, n) for c, key in expansion.terms)
    room = abs(exact) * mpmath.mpf(10) ** (20 - mpmath.mp.dps)
    room += 0 if expansion.remainder is None else allowed * at(expansion.remainder, n)
    return abs(terms - exact) <= room


Tree = tuple  # ("leaf", coefficient, power) or (operation, trees)
leaves = st.tuples(
    st.just("leaf"), st.fractions(Rational(1, 2), 2, max_denominator=4), st.sampled_from(range(-4, 5))
)  # powers are quarters
EXPONENTS = {"inverse": S.NegativeOne, "root": half, "square": Integer(2), "-3/2": Rational(-3, 2)}


def _grow(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.tuples(st.sampled_from(["add", "multiply"]), inner, inner),
        st.tuples(st.sampled_from(list(EXPONENTS)), inner),
    )


trees = st.recursive(leaves, _grow, max_leaves=6)


def computed(tree: Tree, leaf: Callable[[Any, Any], Any], power: Callable[[Any, Any], Any]) -> Any:
    """What a tree comes to. leaf: of a coefficient and a power of the variable."""
    if tree[0] == "leaf":
        return leaf(Rational(tree[1]), Rational(tree[2], 4))
    parts = [computed(part, leaf, power) for part in tree[1:]]
    if tree[0] in EXPONENTS:
        return power(parts[0], EXPONENTS[tree[0]])
    return parts[0] + parts[1] if tree[0] == "add" else parts[0] * parts[1]


def expanded(tree: Tree, monomial: Callable[[Expr, Expr], Expansion]) -> Expansion:
    return computed(tree, monomial, Expansion.power)


def exactly(tree: Tree, x: mpmath.mpf) -> mpmath.mpf:
    return computed(
        tree, lambda c, p: sympy_number(c) * x ** sympy_number(p), lambda value, p: value ** sympy_number(p)
    )


SCALES = {
    "powers of N": (Expansion.monomial, lambda x: x),
    "powers of log N": (lambda c, p: Expansion.monomial(c, S.Zero, p), mpmath.exp),
}


FAR = (mpmath.mpf(10) ** 40, mpmath.mpf(10) ** 80)  # powers are quarters: a wrong one is wrong by more than x^(1/5)


@pytest.mark.parametrize("scale", SCALES)
@settings(max_examples=20)
@given(tree=trees)
def test_sums_products_and_powers_honour_their_remainder(scale, tree):
    monomial, to_n = SCALES[scale]
    expansion = expanded(tree, monomial)
    with mpmath.workdps(250):
        for x in FAR:
            assert honours(expansion, exactly(tree, x), to_n(x), x**0.2)


@settings(max_examples=20)
@given(tree=trees)
def test_logarithms_and_exponentials_honour_their_remainder(tree):
    expansion = expanded(tree, SCALES["powers of N"][0])
    logarithm = expansion.logarithm()
    with mpmath.workdps(250):
        for x in FAR:
            value = exactly(tree, x)
            assert honours(logarithm, mpmath.log(value), x, x**0.2)
            inverse = expansion.power(S.NegativeOne if expansion.limit_sign() > 0 else S.One)
            if inverse.limit_sign() < 0:
                small = 1 / value if expansion.limit_sign() > 0 else value
                assert honours(inverse.exponential(), mpmath.exp(small), x, x**0.2)


def test_more_terms_uncover_what_cancelled():
    n = Symbol("n", positive=True)
    series = sum(((-1) ** j * n ** (-j) for j in range(7)), S.Zero)
    assert leading_order(series - n / (1 + n), n).expression(n) == 1 / n**7
    assert leading_order(sqrt(n**2 + 1) - n, n).expression(n) == 1 / (2 * n)


RULES: dict[str, tuple[Expr, Callable[[mpmath.mpf], mpmath.mpf]]] = {
    "log": (log(3 * N + 1), lambda n: mpmath.log(3 * n + 1)),
    "log log": (log(log(N) + 2), lambda n: mpmath.log(mpmath.log(n) + 2)),
    "exp of logs": (exp(3 * log(N) / 2 + 1 / N), lambda n: n**1.5 * mpmath.exp(1 / n)),
    "a power that moves": (N ** (1 + 1 / log(N)), lambda n: n * mpmath.e),
    "digamma": (polygamma(0, N + half), lambda n: mpmath.digamma(n + 0.5)),
    "trigamma of a moving argument": (polygamma(1, 2 + 1 / N), lambda n: mpmath.psi(1, 2 + 1 / n)),
    "harmonic": (harmonic(2 * N), lambda n: mpmath.harmonic(2 * n)),
    "gamma ratio, shifted": (
        RisingFactorial(N + half, pi),
        lambda n: mpmath.gammaprod([n + 0.5 + mpmath.pi], [n + 0.5]),
    ),
    "gamma ratio, vanishing step": (RisingFactorial(N, 1 / N), lambda n: mpmath.gammaprod([n + 1 / n], [n])),
    "gamma ratio, fixed base": (
        RisingFactorial(2 + 1 / N, third),
        lambda n: mpmath.gammaprod([2 + 1 / n + mpmath.mpf(1) / 3], [2 + 1 / n]),
    ),
    "gamma of a moving argument": (gamma(half + 1 / N), lambda n: mpmath.gamma(0.5 + 1 / n)),
    "gamma at its pole": (gamma(1 / N), lambda n: mpmath.gamma(1 / n)),
    "Hurwitz zeta": (zeta(half, 3 * N + 2), lambda n: mpmath.zeta(0.5, 3 * n + 2)),
    "Hurwitz zeta, s = 3": (zeta(3, N), lambda n: mpmath.zeta(3, n)),
    "Hurwitz zeta of a moving argument": (zeta(half, 2 + 1 / N), lambda n: mpmath.zeta(0.5, 2 + 1 / n)),
    "growth sum": (GrowthSum(N + 2, S(2), third), lambda n: growth_sum(n + 2, 2, mpmath.mpf(1) / 3)),
    "growth sum, negative step": (GrowthSum(N + 2, S(2), -third), lambda n: growth_sum(n + 2, 2, -mpmath.mpf(1) / 3)),
    "growth sum, vanishing step": (GrowthSum(N + 2, S(2), 1 / N), lambda n: growth_sum(n + 2, 2, 1 / n)),
    "growth sum, step as slow as the log": (
        GrowthSum(N + 2, S(2), 1 / log(N)),
        lambda n: growth_sum(n + 2, 2, 1 / mpmath.log(n)),
    ),
    "growth sum, both ends move": (GrowthSum(3 * N, N, third), lambda n: growth_sum(3 * n, n, mpmath.mpf(1) / 3)),
}


def growth_sum(z1, z2, s) -> mpmath.mpf:
    with mpmath.extradps(40):
        return (mpmath.gammaprod([z1 + s, z2], [z1, z2 + s]) - 1) / s


@pytest.mark.parametrize("name", RULES)
def test_each_asymptotic_honours_its_remainder(name):
    """And attains it: said to be smaller by a power of n, the remainder would be broken."""
    expr, value = RULES[name]
    expansion = _Walker(N).expand(expr)
    with mpmath.workdps(120):
        for n in (mpmath.mpf(10) ** 6, mpmath.mpf(10) ** 9):
            assert honours(expansion, value(n), n, allowed=100), n
            if expansion.remainder is not None and name != "harmonic":  # whose next term vanishes
                power, *logs = expansion.remainder
                assert not honours(replace(expansion, remainder=(power - 1, *logs)), value(n), n, allowed=100)


@pytest.mark.parametrize("eps", [S.One, S(4), sqrt(N), N], ids=str)
@pytest.mark.parametrize("kappa", [half, S.One, Rational(4, 3), S(2), S(3), pi / (pi - 1), 1 + 1 / sqrt(N)], ids=str)
def test_sums_of_roots_honour_their_remainder(eps, kappa):
    expansion = _Walker(N).expand(RootRatioSum(N, eps, kappa))
    for n in (10**4, 10**5):
        e, k = (float(x.subs(N, n)) for x in (eps, kappa))
        index = np.arange(1, n + 1)
        total = math.fsum(np.exp((scipy.special.gammaln(index + e) - scipy.special.gammaln(index + e + k)) / 2))
        terms = float(mpmath.fsum(constant(c) * at(key, mpmath.mpf(n)) for c, key in expansion.terms))
        assert abs(terms - total) <= 10 * float(at(expansion.remainder, mpmath.mpf(n))) + 1e-9 * total


positive = st.floats(0.01, 50)


@settings(max_examples=8)
@given(length=st.integers(1, 3000), eps=positive, kappa=st.one_of(st.floats(0, 5), st.sampled_from([0.0, 1.0, 2.0])))
def test_a_sum_of_roots_is_the_sum(length, eps, kappa):
    with mpmath.workdps(30):
        term, total = mpmath.sqrt(mpmath.gammaprod([1 + mpmath.mpf(eps)], [1 + mpmath.mpf(eps) + kappa])), mpmath.mpf(0)
        for i in range(1, length + 1):
            total += term
            term *= mpmath.sqrt((i + mpmath.mpf(eps)) / (i + mpmath.mpf(eps) + kappa))
        assert abs(root_ratio_sum(length, mpmath.mpf(eps), mpmath.mpf(kappa)) / total - 1) < 1e-20


@settings(max_examples=25)
@given(length=st.integers(1, 300), eps=positive, kappa=st.fractions(0, 5, max_denominator=8))
def test_a_growth_sum_is_the_sum(length, eps, kappa):
    """sum_l D_l / eps for D_L = 1/q_L, D_{l-1} = D_l (1 + kappa/(eps q_{l-1})), q_l = 1 + l/eps."""
    total, gradient = 0.0, 1 / (1 + length / eps)
    for i in range(length, 0, -1):
        total += gradient / eps
        gradient *= 1 + float(kappa) / eps / (1 + (i - 1) / eps)
    e = Rational(eps)
    expr = GrowthSum(L + 1 + e, 1 + e, Rational(kappa.numerator, kappa.denominator) - 1)
    assert math.isclose(evaluate(expr, {L: length}), total, rel_tol=1e-11)


GROWING = {
    "2^N": (2**N, N * log(2)),
    "(3/2)^(N/2) N": (N * Rational(3, 2) ** (N / 2), N * log(Rational(3, 2)) / 2 + log(N)),
    "log N ^ log N": (log(N) ** log(N), log(N) * log(log(N))),
    "e^(log^2)": (exp(log(N) ** 2), log(N) ** 2),
}


@pytest.mark.parametrize("name", GROWING)
def test_faster_than_any_power(name):
    expr, growth = GROWING[name]
    order = leading_order(expr, N)
    assert order.power is oo and (order.growth - growth).simplify() == 0
    assert cross_check(expr, N, order)


BEYOND = {
    "log log log N": log(log(log(N))),
    "gamma alone": gamma(N),
    "trigamma at large argument": polygamma(1, N),
    "zeta whose exponent moves": zeta(N, S(2)),
    "generalised harmonic numbers": harmonic(N, 2),
    "sum of roots, kappa that tends to 2": RootRatioSum(N, S.One, 2 + 1 / N),
    "sum of roots, growing kappa": RootRatioSum(N, S.One, log(N)),
    "gamma ratio whose step grows": RisingFactorial(N, N),
    "a moment at a moving scale": GaussianMoment.of("gelu", Kind.SECOND, 1 + 1 / N),
    "no asymptotic": cos(N),
    "0 in disguise": sqrt(N**2 + 2 * N + 1) - N - 1,
}


@pytest.mark.parametrize("name", BEYOND)
def test_beyond_the_scale_is_said(name):
    with pytest.raises(BeyondScaleError):
        leading_order(BEYOND[name], N)


TERMS = [
    (Order(coefficient=S(3), power=half), Order(coefficient=S(2), power=Rational(3, 2))),
    (Order(coefficient=S(3), power=S.NegativeOne), Order(coefficient=S(3), log_power=S.One)),
    (Order(coefficient=S(3), power=-S.One, log_power=half), Order(coefficient=S(2), log_power=Rational(3, 2))),
    (Order(coefficient=S(3), power=-S.One, log_power=-S.One), Order(coefficient=S(3), loglog_power=S.One)),
    (Order(coefficient=S.One, power=S.One, log_power=-S.One), Order(coefficient=half, power=S(2), log_power=-S.One)),
]


@pytest.mark.parametrize("term, total", TERMS, ids=str)
def test_orders_of_sums(term, total):
    assert sum_order(term, "") == total
    with pytest.raises(BeyondScaleError):  # it converges
        sum_order(replace(term, power=term.power - 3), "")


def test_orders_multiply_and_restate():
    order = leading_order(3 * L**2 * log(L) + L, L)
    assert order.times(order).expression(L) == 9 * L**4 * log(L) ** 2
    assert order.raised(half).expression(L) == sqrt(3) * L * sqrt(log(L))
    assert order.restated(L, 2 * N).expression(N) == 12 * N**2 * log(N)
    assert order.times(ZERO) is ZERO and ZERO.restated(L, 2 * N) is ZERO
    fast = leading_order(L * 2**L, L).restated(L, 2 * N)
    assert fast.power is oo and (fast.growth - 2 * N * log(2) - log(2 * N)).expand(force=True) == 0
