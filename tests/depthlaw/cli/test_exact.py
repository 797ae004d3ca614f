"""Named rewrites, exact sums and rounding; and the plain mean field against theory's."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import product

import pytest
from sympy import Rational, S, Sum, log, sqrt

from depthlaw.paper_checks.papers.magneto.theorems import (
    PRE_BOUND,
    PRE_FACTORISED,
    SUB_BOUND,
    SUB_FACTORISED,
    same_sums,
)
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import LETTERS
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.moments import ACTIVATIONS
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import PERI, Stack
from depthlaw.theory.symbols import L, N, gains_in, gains_out, k, l
from tests.often import often
from tests.scalarnet import ELSEWHERE

v, w = gains_out, gains_in


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((2 * N) ** Rational(1, 4), 2 ** Rational(1, 4) * N ** Rational(1, 4), True),
        (sqrt(log(2 * N)), sqrt(log(2) + log(N)), True),
        ((2 * N) ** Rational(1, 4), (2 * N) ** Rational(1, 5), False),
        (sqrt(log(2 * N)), sqrt(log(N)), False),
        (S.Zero, N, False),
        (sqrt(N + 2 * sqrt(N) + 1), sqrt(N) + 1, None),  # which the rewrites cannot tell
    ],
)
def test_equal(first: S, second: S, same: bool | None) -> None:
    assert algebra.equal(first, second) is algebra.equal(second, first) is same


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
        (lambda x: x**0.07, lambda x: 1.0, False),
        (lambda x: math.log(x) ** 2, math.log, False),
        (math.log, lambda x: math.log(x) ** 1.25, False),
        (lambda x: 5 + x**-0.5, lambda x: 1.0, True),
    ],
)
def test_settles(quantity: object, order: object, same: bool) -> None:
    ratios = [math.log(quantity(x) / order(x)) for x in second_meanfield.LENGTHS]  # pyright: ignore[reportCallIssue]
    assert algebra.settles(ratios) is same


def disagreements(scheme: str | Scheme, *lengths: int, activations: Collection[str] = ACTIVATIONS) -> list[str]:
    """The cases, of norms, optimizers and lengths, in which the second mean field and theory's are not equal."""
    out = []
    for activation, norm_kind in product(activations, ("layernorm", "rmsnorm")):
        for optimizer, length in product(("sgd", "adam", "lamb", "muon"), lengths):
            found = second_meanfield.log_update(scheme, length, activation, norm_kind, optimizer) / math.log(10)
            theirs = predict(scheme, optimizer, length, activation=activation, norm_kind=norm_kind).log10_update
            if found != theirs and not abs(found - theirs) < 1e-11:
                out.append(f"{activation}, {norm_kind}, {optimizer}, {length} sublayers: {found}, {theirs}")
    return out


@pytest.mark.parametrize("scheme", often((name for name in SCHEMES if name not in ELSEWHERE), 36, wide=12))
def test_the_second_mean_field_is_theorys(scheme: str) -> None:
    """Every scheme with every activation. Theory takes the absolute moments of GELU and of its kind slowly."""
    assert disagreements(scheme, 3) == []
    assert disagreements(scheme, 2, 12, 301, activations=("relu",)) == []


@pytest.mark.parametrize("name", often(["ln-scaling", "t-fixup", "admin", "depth-mup"], 4))
def test_the_second_mean_field_is_theorys_at_a_million_sublayers(name: str) -> None:
    log10_update = second_meanfield.log_update(name, 10**6, "relu", "layernorm", "adam") / math.log(10)
    assert log10_update == pytest.approx(predict(name, "adam", 10**6).log10_update, abs=1e-10)


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "identity"])
@pytest.mark.parametrize("scheme", ["post-ln", "pre-ln", "sub-ln"])
def test_exact_updates_at_uneven_gains_are_theorys(scheme: str, activation: str, norm_kind: str) -> None:
    """Fractions that were added up without theory/, against its recursion."""
    for length in (1, 4, 7):
        out, into = algebra.rational_gains(length, length)
        exact = second_meanfield.update(scheme, out, into, activation=activation, norm_kind=norm_kind)
        gains = {"v": [float(gain) for gain in out], "w": [float(gain) for gain in into]}
        expected = predict(scheme, "sgd", length, activation=activation, norm_kind=norm_kind, **gains).update
        assert float(exact) == pytest.approx(expected, rel=1e-10)


MINE = Scheme(
    name="my-norm",
    source="a test",
    stack=Stack(
        placement=PERI, branch_weight=1 / l, input_scale=sqrt(l), gain_in=L ** -Rational(1, 6), gain_out=sqrt(L)
    ),
    lr_multiplier=1 / L,
)


def test_a_scheme_of_every_letter_at_once_is_the_same_by_both_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "my-norm", MINE)
    assert disagreements("my-norm", 2, 13, activations=("relu", "tanh")) == []


def test_the_second_mean_field_refuses_what_it_has_not() -> None:
    with pytest.raises(ValueError, match="not written here"):
        second_meanfield.log_update("sub-ln", 4, optimizer="adafactor")
    with pytest.raises(ValueError, match="no activation"):
        second_meanfield.log_update("pre-ln", 4, "swish")
    with pytest.raises(ArithmeticError, match="vanishes"):
        second_meanfield.log_ratios("rezero", lambda _: 0.0, "relu", "layernorm", "sgd")
