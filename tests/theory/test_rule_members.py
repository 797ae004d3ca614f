"""Members and alternatives of a rule, Sub-LN under any optimizer, the trace, and a rule as text and in numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Integer, Rational, S, log, sqrt, sympify

import theory.rules.magnitude as magnitude
import theory.rules.solve as rules
from tests.printed_rules import (
    CELLS,
    Degrees,
    broken,
    gain_of,
    gains_of,
    half,
    quarter,
    role,
    same,
)
from theory.optimizers import OPTIMIZERS
from theory.rules.growing import GrowingUpdate, power_sum
from theory.rules.magnitude import Branch, NoMemberError, compact, exponents, solve_monomials
from theory.rules.selection import SELECTIONS
from theory.rules.solve import evaluate, solve_rule, update_under
from theory.stack import ARCHITECTURES
from theory.symbols import L, M, N, branch_weight, init_gain, l, residual_weight

# ---------------------------------------------------------------- alternatives, other optimizers, Sub-LN


def test_ways_of_training_at_plain_gains():
    for optimizer, lr, branch, depth_mup in (
        ("sgd", 1 / (2 * N), (2 * N) ** -half, S.One),
        ("adam", 1 / (2 * N), 1 / (2 * N), (2 * N) ** -half),
    ):
        side = solve_rule("post", optimizer).side("encoder")
        assert same(side.alternative("learning-rate").lr_multiplier, lr)
        assert same(side.alternative("branch-weight").branch_weight, branch)
        assert same(side.alternative("depth-mup").branch_weight, (2 * N) ** -half)
        assert same(side.alternative("depth-mup").lr_multiplier, depth_mup)
    vanilla = solve_rule("post", "sgd", "encoder-decoder").side("encoder").alternative("learning-rate")
    assert same(vanilla.lr_multiplier, 1 / (2 * N * M))


@pytest.mark.parametrize(
    ("norm", "optimizer", "architecture"),
    [  # the degrees that the published optimizers have; fast are all pairs of a norm and an optimizer
        pytest.param(norm, optimizer, name, marks=[] if (i + j + k) % 3 == 0 else [pytest.mark.slow])
        for i, norm in enumerate(rules.NORMS)
        for j, optimizer in enumerate(("sgd", "adam", "lamb"))
        for k, name in enumerate(ARCHITECTURES)
    ],
)
def test_every_alternative_is_flat_and_named_once(norm, optimizer, architecture):
    rule = solve_rule(norm, optimizer, architecture)
    for side in rule.sides:
        names = [found.name for found in side.alternatives]
        assert len(set(names)) == len(names)
        assert rule.select not in names
        for found in (side.member, *side.alternatives):
            assert found.update == 1 or found.init_gain is None
            assert found.note
        assert {"q", "k"} <= set(side.lr_multiplier)


def test_the_three_optimizers_stand_for_all():
    degrees = {name: (found.gradient_degree, found.parameter_degree) for name, found in OPTIMIZERS.items()}
    assert set(degrees.values()) == {degrees[name] for name in ("sgd", "adam", "lamb")} == {(1, 0), (0, 0), (0, 1)}


def test_pre_alternatives_come_from_the_growing_stream():
    side = solve_rule("pre", "sgd").side("encoder")
    assert same(side.alternative("growing-gains").init_gain, sqrt(log(2 * N)))
    assert same(side.alternative("learning-rate").lr_multiplier, 1 / log(2 * N))
    assert "growing-gains" not in [found.name for found in solve_rule("pre", "lamb").side("encoder").alternatives]


def test_an_sgd_network_under_other_optimizers():
    rule = solve_rule("post", "sgd")
    assert update_under(rule, "sgd") == {"encoder": 1}
    assert same(update_under(rule, "adam")["encoder"], (2 * N) ** half)
    assert same(update_under(rule, "lamb")["encoder"], (2 * N) ** quarter)
    assert same(update_under(solve_rule("sub", "sgd"), "adam")["encoder"], sqrt(2 * N) / sqrt(log(2 * N)))


@pytest.mark.parametrize(
    ("p", "t", "gain"),
    [
        (1, 0, sqrt(log(2 * N))),
        (0, 0, sqrt(2 * N)),
        (half, 0, (2 * N) ** Rational(1, 6)),
        (0, half, 2 * N),
        (1, 1, log(2 * N)),
        (2, 0, S.One),
        (0, 2, (2 * N) ** -half),
    ],
)
def test_sub_ln_for_any_degrees(p, t, gain):
    side = solve_rule("sub", Degrees(Rational(p), Rational(t))).side("encoder")
    assert same(side.gain, gain)


@settings(max_examples=20)
@given(p=st.fractions(0, 3, max_denominator=4), length=st.integers(2, 400), gain=st.floats(0.1, 10))
def test_sub_ln_sum_by_its_terms(p, length, gain):
    """The exact sum behind the leading order, matrix by matrix from the sublayer's own second moments."""
    side = ARCHITECTURES["encoder"].sides[0]
    degrees = Degrees(Rational(p.numerator, p.denominator), Rational(1, 2))
    update = GrowingUpdate(side=side, branch=Branch(inner_norm=True), optimizer=degrees)
    total = 0.0
    for sublayer in range(1, length + 1):
        arriving = 1 / math.sqrt(sum(gain**2 for _ in range(sublayer)))
        total += 2 * arriving ** (float(p) + 1) * gain**0.5
    first = float(update.term.subs({init_gain: gain, magnitude.lr_multiplier: 1, l: 1}))
    falls = float(update.exponent)
    assert 2 * first * sum(sublayer**-falls for sublayer in range(1, length + 1)) == pytest.approx(total, rel=1e-9)
    assert float(power_sum(update.exponent).subs(L, length)) == pytest.approx(
        sum(sublayer**-falls for sublayer in range(1, length + 1)), rel=1e-9
    )


def test_sub_ln_under_lamb_has_no_gain():
    for architecture in ARCHITECTURES:
        rule = solve_rule("sub", "lamb", architecture)
        assert all(side.init_gain is None and side.gain is None for side in rule.sides)
        assert any("invariant to the gains" in line for line in rule.why)
    side = solve_rule("sub", "lamb").side("encoder")
    assert same(side.update_order, sqrt(2 * N))
    assert same(side.alternative("learning-rate").lr_multiplier, (2 * N) ** -half)
    assert evaluate(solve_rule("sub", "lamb"), N=8)["encoder"].init_gain is None
    with pytest.raises(ValueError, match="sets no gain"):
        update_under(solve_rule("sub", "lamb"), "sgd")


def test_sub_ln_leaves_the_cross_attention_unscaled_and_says_so():
    rule = solve_rule("sub", "sgd", "encoder-decoder")
    gains = gains_of(rule.side("decoder"))
    assert {gains[role] for role in ("cross_v", "cross_out", "cross_q", "cross_k", "q", "k")} == {1}
    assert same(gains["fc2"], sqrt(log(3 * M)))
    assert any("cross-attention at gain 1" in line for line in rule.why)
    own = rule.side("encoder").alternative("unscaled-cross")
    assert float((gain_of(own) / sqrt(log(2 * N))).subs({N: 100, M: 10**9})) == pytest.approx(
        math.sqrt(1 / 2), rel=0.02
    )


# ---------------------------------------------------------------- the trace, text and numbers


@pytest.mark.parametrize("key", list(CELLS)[::3], ids=lambda key: "-".join(map(str, key)))
def test_why_ends_in_the_formulas_that_it_derives(key):
    norm, optimizer, architecture, name, select = key
    rule = solve_rule(norm, optimizer, architecture, select)
    side = rule.side(name)
    text = "\n".join(rule.why)
    assert str(side.family.lhs) in text
    assert side.formula["init_gain"] in text
    assert side.formula["residual_weight"] in text or norm == "sub"
    assert all("\n" not in line for line in rule.why)


def test_why_follows_the_code(monkeypatch):
    before = solve_rule("post", "sgd").why
    broken(monkeypatch, "sublayers")
    assert solve_rule("post", "sgd").why != before


def test_formulas_read_back():
    for key in CELLS:
        norm, optimizer, architecture, name, select = key
        side = solve_rule(norm, optimizer, architecture, select, with_alternatives=False).side(name)
        letters = {"N": N, "M": M}
        assert same(sympify(side.formula["init_gain"], locals=letters), side.gain)
        assert same(sympify(side.formula["residual_weight"], locals=letters), side.residual_weight)
    assert solve_rule("post", "sgd").side("encoder").formula["residual_weight"] == "(2*N)**(1/4)"


exact = st.fractions(min_value=-2, max_value=2, max_denominator=16)


@settings(max_examples=8)
@given(n=exact, m=exact, c=st.fractions(min_value=Fraction(1, 50), max_value=50, max_denominator=50), r=exact)
def test_compact_is_the_same_expression(n, m, c, r):
    n, m, c, r = (Rational(x.numerator, x.denominator) for x in (n, m, c, r))
    expr = N**n * M**m * c**r
    assert same(sympify(compact(expr), locals={"N": N, "M": M}), expr)


def test_evaluate():
    numbers = evaluate(solve_rule("post", "sgd", "encoder-decoder", "deepnet"), N=18, M=18)
    assert numbers["encoder"].residual_weight == pytest.approx((18**5 / 27) ** (1 / 16))
    assert role(numbers["decoder"], "cross_out") == pytest.approx(216**-0.25)
    assert role(numbers["decoder"], "q") == 1
    assert numbers["encoder"].update_order == 1
    assert evaluate(solve_rule("post", "sgd"), N=10**9)["encoder"].residual_weight == pytest.approx(2e9**0.25)


@pytest.mark.parametrize("counts", [{}, {"N": 4}, {"N": 4, "M": 0}, {"N": 4, "M": 2.5}, {"N": 1, "M": True},
                                    {"N": 4, "M": 4, "L": 8}])  # fmt: skip
def test_evaluate_refuses(counts):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        evaluate(solve_rule("post", "sgd", "encoder-decoder"), **counts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"norm": "peri", "optimizer": "sgd"}, "unknown norm placement"),
        ({"norm": "post", "optimizer": "sdg"}, "did you mean sgd"),
        ({"norm": "post", "optimizer": "sgd", "architecture": "encoders"}, "did you mean encoder"),
        ({"norm": "post", "optimizer": "sgd", "select": "symetric"}, "did you mean symmetric"),
        ({"norm": "post", "optimizer": "sgd", "select": "depth-mup"}, "unknown selection"),
        ({"norm": "pre", "optimizer": "sgd", "select": "symmetric"}, "residual weight 1"),
        ({"norm": "pre", "optimizer": "adam", "select": "relative"}, "residual weight 1"),
        ({"norm": "sub", "optimizer": "sgd", "select": "deepnet"}, "no selection"),
        ({"norm": "sub", "optimizer": "sgd", "zero_last": True}, "not derived"),
        ({"norm": "sub", "optimizer": "sgd", "coupling": "once"}, "mean square"),
        ({"norm": "post", "optimizer": "sgd", "coupling": "twice"}, "allowed: once"),
        ({"norm": "none", "optimizer": "lamb", "zero_last": True}, "in proportion"),
        ({"norm": "none", "optimizer": "sgd", "architecture": "encoder-decoder", "zero_last": True}, "no gradient"),
        ({"norm": "post", "optimizer": "sgd", "num_matrices": 0}, "one or more"),
        ({"norm": "post", "optimizer": "sgd", "num_matrices": 1, "select": "alpha-one"}, "no single member"),
    ],
)
def test_refuses_in_one_line(arguments, says):
    with pytest.raises(ValueError, match=says) as caught:
        solve_rule(**arguments)
    assert "\n" not in str(caught.value)


def test_solving_monomials():
    values = solve_monomials(
        (4 * residual_weight**2 / init_gain, residual_weight * init_gain), (residual_weight, init_gain)
    )
    assert same(values[residual_weight] ** 3, quarter)
    with pytest.raises(NoMemberError):
        solve_monomials((residual_weight, residual_weight**2), (residual_weight, init_gain))
    with pytest.raises(ArithmeticError, match="not a monomial"):
        exponents(residual_weight + init_gain)
    assert exponents(Integer(3) * branch_weight) == (3, (0, 0, 1, 0))


def test_selections_are_described():
    assert all(found.says and found.name == name for name, found in SELECTIONS.items())
