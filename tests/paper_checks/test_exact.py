"""Named rewrites, exact sums and rounding; and the plain mean field against theory's."""

from __future__ import annotations

import math

import mpmath
import pytest
from sympy import Rational, S, Sum, harmonic, log, sqrt

from paper_checks import direct, exact
from paper_checks.papers.magneto_parts import (
    LETTERS,
    PRE_BOUND,
    PRE_FACTORISED,
    SUB_BOUND,
    SUB_FACTORISED,
    same_sums,
)
from theory.meanfield import predict
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
    assert exact.equal(first, second) is same
    assert exact.equal(second, first) is same


def test_what_the_rewrites_cannot_tell_is_none() -> None:
    assert exact.equal(sqrt(N + 2 * sqrt(N) + 1), sqrt(N) + 1) is None


@pytest.mark.parametrize(("printed", "factorised"), [(PRE_BOUND, PRE_FACTORISED), (SUB_BOUND, SUB_FACTORISED)])
def test_normal_form_of_sums_agrees_with_adding_up(printed: S, factorised: S) -> None:
    assert exact.sums_equal(printed, factorised) is True
    assert same_sums(printed, factorised) is True
    for length in range(1, 5):
        gains = exact.rational_gains(length, length)
        assert exact.value_at(printed, LETTERS, (*gains, length)) == exact.value_at(
            exact.normal_form(printed), LETTERS, (*gains, length)
        )


def test_normal_form_tells_different_sums_apart() -> None:
    other = PRE_BOUND.replace(w[k], S.One)
    assert exact.sums_equal(PRE_BOUND, other) is None
    assert same_sums(PRE_BOUND, other) is False
    assert exact.sums_equal(Sum(v[l] + 1, (l, 1, L)), Sum(v[k], (k, 1, L)) + L) is True


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
    ratios = [math.log(quantity(x) / order(x)) for x in direct.LENGTHS]  # pyright: ignore[reportCallIssue]
    assert exact.settles(ratios) is same


def test_roundings_name_the_tie() -> None:
    assert exact.roundings(mpmath.mpf("0.125"), 2) == {"half up": "0.13", "half even": "0.12"}
    assert set(exact.roundings(mpmath.mpf(27) ** (-mpmath.mpf(1) / 16), 2).values()) == {"0.81"}


@pytest.mark.parametrize("scheme", [name for name in direct.NETWORKS if name != "fixup"])
@pytest.mark.parametrize("activation", ["identity", "relu", "gelu"])
def test_the_plain_sum_is_theorys_update(scheme: str, activation: str) -> None:
    """Two routes to one number that share no code. GELU's absolute moments are slow: with DeepNorm's gains alone."""
    is_slow = activation == "gelu" and scheme != "deepnorm"
    for norm_kind in ("layernorm", "rmsnorm"):
        for optimizer in ("sgd",) if scheme.startswith("sub") or is_slow else ("sgd", "adam", "lamb"):
            found = direct.log_update(scheme, 12, activation, norm_kind, optimizer) / math.log(10)
            theirs = predict(scheme, optimizer, 12, activation=activation, norm_kind=norm_kind).log10_update
            assert found == pytest.approx(theirs, abs=1e-10)


def test_the_plain_sum_refuses_what_it_has_not() -> None:
    with pytest.raises(ValueError, match="not written here"):
        direct.log_update("sub-ln", 4, optimizer="adam")
    with pytest.raises(ValueError, match="no activation"):
        direct.log_update("pre-ln", 4, "swish")
