"""Named rewrites, exact sums and rounding; and the plain mean field against theory's."""

from __future__ import annotations

import math

import mpmath
import pytest
from sympy import Rational, S, Sum, harmonic, log, sqrt

from paper_checks.papers.magneto.parts import (
    LETTERS,
    PRE_BOUND,
    PRE_FACTORISED,
    SUB_BOUND,
    SUB_FACTORISED,
    same_sums,
)
from paper_checks.routes import algebra, second_meanfield
from theory.meanfield.update import predict
from theory.symbols import L, M, N, gains_in, gains_out, k, l

v, w = gains_out, gains_in


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((2 * N) ** Rational(1, 4), 2 ** Rational(1, 4) * N ** Rational(1, 4), True),
        (27 ** Rational(-1, 16) * N, (N**16 / 27) ** Rational(1, 16), True),
        (sqrt(log(2 * N)), sqrt(log(2) + log(N)), True),
        (2 + 2 * harmonic(L - 1), 2 * (1 + harmonic(L - 1)), True),
        ((2 * N) ** Rational(1, 4), (2 * N) ** Rational(1, 5), False),
        (sqrt(log(2 * N)), sqrt(log(N)), False),
        (N**2 * M, N * M**2, False),
        (S.Zero, N, False),
        ((N + 1) ** 2 / (N + 1), N + 1 + 0 * N, True),
    ],
)
def test_equal(first: S, second: S, same: bool) -> None:
    assert algebra.equal(first, second) is same
    assert algebra.equal(second, first) is same


def test_what_the_rewrites_cannot_tell_is_none() -> None:
    assert algebra.equal(sqrt(N + 2 * sqrt(N) + 1), sqrt(N) + 1) is None


@pytest.mark.parametrize(("printed", "factorised"), [(PRE_BOUND, PRE_FACTORISED), (SUB_BOUND, SUB_FACTORISED)])
def test_normal_form_of_sums_agrees_with_adding_up(printed: S, factorised: S) -> None:
    assert algebra.sums_equal(printed, factorised) is True
    assert same_sums(printed, factorised) is True
    for length in range(1, 5):
        gains = algebra.rational_gains(length, length)
        assert algebra.value_at(printed, LETTERS, (*gains, length)) == algebra.value_at(
            algebra.normal_form(printed), LETTERS, (*gains, length)
        )


def test_normal_form_tells_different_sums_apart() -> None:
    other = PRE_BOUND.replace(w[k], S.One)
    assert algebra.sums_equal(PRE_BOUND, other) is None
    assert same_sums(PRE_BOUND, other) is False
    assert algebra.sums_equal(Sum(v[l] + 1, (l, 1, L)), Sum(v[k], (k, 1, L)) + L) is True


@pytest.mark.parametrize(
    ("quantity", "order", "same"),
    [
        (lambda x: 2 * math.log(x) + 3, math.log, True),
        (lambda x: 2 * math.log(x) - 1, math.log, True),
        (lambda x: x**0.07, lambda x: 1.0, False),
        (lambda x: math.log(x) ** 2, math.log, False),
        (math.log, lambda x: math.log(x) ** 1.25, False),
        (lambda x: x, lambda x: x * math.log(x), False),
        (lambda x: 5 + x**-0.5, lambda x: 1.0, True),
    ],
)
def test_settles(quantity: object, order: object, same: bool) -> None:
    ratios = [math.log(quantity(x) / order(x)) for x in second_meanfield.LENGTHS]  # pyright: ignore[reportCallIssue]
    assert algebra.settles(ratios) is same


def test_roundings_name_the_tie() -> None:
    assert algebra.roundings(mpmath.mpf("0.125"), 2) == {"half up": "0.13", "half even": "0.12"}
    assert set(algebra.roundings(mpmath.mpf(27) ** (-mpmath.mpf(1) / 16), 2).values()) == {"0.81"}


@pytest.mark.parametrize("scheme", [name for name in second_meanfield.NETWORKS if name != "fixup"])
@pytest.mark.parametrize("activation", ["identity", "relu", "gelu"])
def test_the_plain_sum_is_theorys_update(scheme: str, activation: str) -> None:
    """Two routes to one number that share no code. GELU's absolute moments are slow: with DeepNorm's gains alone."""
    is_slow = activation == "gelu" and scheme != "deepnorm"
    for norm_kind in ("layernorm", "rmsnorm"):
        for optimizer in ("sgd",) if scheme.startswith("sub") or is_slow else ("sgd", "adam", "lamb"):
            found = second_meanfield.log_update(scheme, 12, activation, norm_kind, optimizer) / math.log(10)
            theirs = predict(scheme, optimizer, 12, activation=activation, norm_kind=norm_kind).log10_update
            assert found == pytest.approx(theirs, abs=1e-10)


def test_the_plain_sum_refuses_what_it_has_not() -> None:
    with pytest.raises(ValueError, match="not written here"):
        second_meanfield.log_update("sub-ln", 4, optimizer="adam")
    with pytest.raises(ValueError, match="no activation"):
        second_meanfield.log_update("pre-ln", 4, "swish")
