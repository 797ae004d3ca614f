"""The bounds on the model update: each printed formula retyped as a direct double sum, each step by its own numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Float, Rational, S, Sum, harmonic, sqrt

from tests.printed_bounds import (
    PRINTED,
    Gains,
    printed_coupling_sub,
    printed_post,
    printed_pre,
    printed_sub,
    stacks,
    two_stacks,
    values_of,
)
from theory.asymptotics.orders import leading_order
from theory.bounds import scalar_model
from theory.bounds.update import (
    BOUNDS,
    bound_of_scheme,
    cross_sublayers,
    derive_bound,
    encoder_decoder_growing,
    encoder_decoder_post,
    evaluate,
    evaluate_sums,
)
from theory.rules import growing_bound
from theory.rules.growing_bound import Profile, Sums, growing_profile, uniform_stages
from theory.rules.solve import solve_rule
from theory.stack import ARCHITECTURES, PRE, SUB, Side
from theory.symbols import (
    L,
    M,
    N,
    gains_in,
    gains_out,
    init_gain,
    k,
    residual_weight,
    side_symbols,
)

LENGTHS = (*range(1, 9), 25)
"""A closed form that is right at these is no other one: it has a harmonic number and a few powers of the length."""

# ---------------------------------------------------------------- what the papers print, term by term


@settings(max_examples=12)
@given(stack=stacks(), name=st.sampled_from(sorted(PRINTED)))
def test_growing_bound_is_what_is_printed(stack, name):
    v, w = stack
    bound = derive_bound(name)
    printed = PRINTED[name](v, w)
    assert evaluate(bound, v=v, w=w) == pytest.approx(printed, rel=1e-9)
    values = {side: list(x) for side, x in zip((gains_out, gains_in), (v, w), strict=True)} | {L: len(v)}
    assert evaluate_sums(bound.expression, values) == pytest.approx(printed, rel=1e-9)


@settings(max_examples=12)
@given(stack=stacks(), alpha=st.floats(0.5, 30))
def test_post_bound_is_what_is_printed(stack, alpha):
    v, w = stack
    for name in ("post-ln", "deepnorm"):
        assert evaluate(derive_bound(name), v=v, w=w, alpha=alpha) == pytest.approx(printed_post(v, w, alpha), rel=1e-9)


MUTANTS = {
    "factor 2 dropped": lambda v, w, of: of(v, w) / 2,
    "exponent": lambda v, w, of: of([a**1.5 for a in v], [b**1.5 for b in w]),
    "range from 3": lambda v, w, of: of(v, w) - of(v, w) * _second_share(v, w, of),
    "one more sublayer": lambda v, w, of: of([*v, v[-1]], [*w, w[-1]]),
    "swapped": lambda v, w, of: of(w, v) if of is printed_sub else of(v[::-1], w),
}


def _second_share(v: Gains, w: Gains, of: Callable) -> Any:
    """Share of the term k = 2 in the bound's second factor."""
    s = [a * a * b * b if of is printed_pre else a * a for a, b in zip(v, w, strict=True)]
    return (s[1] / s[0]) / (1 + sum(s[k] / sum(s[:k]) for k in range(1, len(s))))


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("name", PRINTED)
def test_a_mutated_formula_is_found(name, mutant):
    v, w = [1.0, 2.0, 0.5, 3.0], [0.7, 1.1, 2.0, 0.4]
    wrong = MUTANTS[mutant](v, w, PRINTED[name])
    assert evaluate(derive_bound(name), v=v, w=w) == pytest.approx(PRINTED[name](v, w), rel=1e-12)
    assert evaluate(derive_bound(name), v=v, w=w) != pytest.approx(wrong, rel=1e-3)


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "harmonic index": (growing_bound, "ratio_sum", harmonic),
    "tail from 3": (
        Sums,
        "tail",
        property(lambda self: 1 + Sum(self.s(k) / self.total(k - 1), (k, 3, self.length))),
    ),
    "one gradient": (Profile, "weight", lambda self, v, w: self.gradients(v, w)[0]),
    "squares": (Sums, "s", lambda self, i: self.profile.increment(self.v[i], self.w[i]) ** 2),
    "cross-attention first": (
        Side,
        "positions",
        lambda self, kind: tuple(i for i, found in enumerate(self.layer) if found is kind),
    ),
    "slope": (scalar_model, "sensitivity_bound", lambda alpha, v, w: sqrt(v**2 + w**2) / alpha**2),
}


def wrong_bounds() -> set[str]:
    """The bounds that differ from what is printed, at one uneven point and at equal gains."""
    derive_bound.cache_clear()
    v, w = [1.0, 2.0, 0.5, 3.0], [0.7, 1.1, 2.0, 0.4]
    ved, wed = [1.0, 2.0, 3.0, 0.5, 1.5, 0.2], [1.0, 0.3, 2.0, 0.7, 1.2, 0.8]
    sums = {
        name: (evaluate(derive_bound(name), v=v, w=w), evaluate_uniform(name), of(v, w), of([1.0] * 4, [1.0] * 4))
        for name, of in PRINTED.items()
    }
    post = derive_bound("post-ln")
    at = {init_gain: 1, residual_weight: 3, L: 4}
    sums["post-ln"] = (
        evaluate(post, v=v, w=w, alpha=3.0),
        float(post.uniform.subs(at)),
        printed_post(v, w, 3.0),
        printed_post([1.0] * 4, [1.0] * 4, 3.0),
    )
    coupled = evaluate_sums(derive_bound("encoder-decoder-sub-ln").factorised, values_of(2, 2, v, w, ved, wed))
    printed = printed_sub(ved, wed) + printed_coupling_sub(ved) * printed_sub(v, w)
    sums["encoder-decoder-sub-ln"] = (coupled, 0.0, printed, 0.0)
    derive_bound.cache_clear()
    return {
        name
        for name, (found, uniform, right, right_uniform) in sums.items()
        if found != pytest.approx(right, rel=1e-9) or uniform != pytest.approx(right_uniform, rel=1e-9)
    }


def evaluate_uniform(name: str) -> float:
    return float(derive_bound(name).uniform.subs({init_gain: 1, L: 4}))


@pytest.mark.parametrize(
    ("what", "found"),
    [
        (None, set()),
        pytest.param("harmonic index", {"pre-ln", "sub-ln"}, marks=pytest.mark.slow),
        ("tail from 3", {"pre-ln", "sub-ln", "encoder-decoder-sub-ln"}),
        pytest.param("one gradient", {"pre-ln", "sub-ln", "encoder-decoder-sub-ln"}, marks=pytest.mark.slow),
        pytest.param("squares", {"pre-ln", "sub-ln", "encoder-decoder-sub-ln"}, marks=pytest.mark.slow),
        ("cross-attention first", {"encoder-decoder-sub-ln"}),
        ("slope", {"post-ln"}),
    ],
)
def test_a_broken_derivation_is_found(monkeypatch, what, found):
    if what is not None:
        monkeypatch.setattr(*BROKEN[what])
    assert wrong_bounds() == found


# ---------------------------------------------------------------- closed forms, homogeneity, symmetry


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("gain", [Fraction(1), Fraction(3, 7)])
def test_uniform_closed_form_is_the_double_sum(name, gain):
    bound = derive_bound(name)
    for length in LENGTHS:
        direct = PRINTED[name]([gain] * length, [gain] * length)
        closed = bound.uniform.subs({init_gain: Rational(gain.numerator, gain.denominator), L: length})
        assert closed == Rational(direct.numerator, direct.denominator)


@pytest.mark.parametrize("name", PRINTED)
def test_one_sublayer(name):
    """L = 1: the sum over k from 2 is empty."""
    assert derive_bound(name).uniform.subs(L, 1) == 2 / init_gain**2
    assert evaluate(derive_bound(name), v=[2.0], w=[0.5]) == pytest.approx(PRINTED[name]([2.0], [0.5]))


def test_uniform_bracket():
    for name in PRINTED:
        assert derive_bound(name).uniform.equals(2 * (1 + harmonic(L - 1)) / init_gain**2)


@settings(max_examples=12)
@given(stack=stacks(), c=st.floats(0.1, 10), name=st.sampled_from(sorted(PRINTED)))
def test_degree_minus_two(stack, c, name):
    v, w = stack
    bound = derive_bound(name)
    scaled = evaluate(bound, v=[c * a for a in v], w=[c * b for b in w])
    assert scaled == pytest.approx(evaluate(bound, v=v, w=w) / c**2, rel=1e-9)


@settings(max_examples=12)
@given(stack=stacks())
def test_pre_is_symmetric_in_its_two_gains(stack):
    v, w = stack
    bound = derive_bound("pre-ln")
    assert evaluate(bound, v=v, w=w) == pytest.approx(evaluate(bound, v=w, w=v), rel=1e-9)


def test_sub_is_not_symmetric():
    bound = derive_bound("sub-ln")
    assert evaluate(bound, v=[1.0, 2.0], w=[3.0, 1.0]) != pytest.approx(evaluate(bound, v=[3.0, 1.0], w=[1.0, 2.0]))


# ---------------------------------------------------------------- encoder-decoder


@settings(max_examples=12)
@given(two=two_stacks())
def test_sub_encoder_decoder_is_what_is_printed(two):
    *_, ve, we, vd, wd = two
    bound = derive_bound("encoder-decoder-sub-ln")
    printed = printed_sub(vd, wd) + printed_coupling_sub(vd) * printed_sub(ve, we)
    assert evaluate_sums(bound.factorised, values_of(*two)) == pytest.approx(printed, rel=1e-9)
    assert evaluate_sums(bound.expression, values_of(*two)) == pytest.approx(printed, rel=1e-9)


@settings(max_examples=12)
@given(two=two_stacks())
def test_pre_encoder_decoder_replaces_v_by_v_w(two):
    *_, ve, we, vd, wd = two
    coupling = printed_coupling_sub([a * b for a, b in zip(vd, wd, strict=True)])
    printed = printed_pre(vd, wd) + coupling * printed_pre(ve, we)
    found = evaluate_sums(derive_bound("encoder-decoder-pre-ln").factorised, values_of(*two))
    assert found == pytest.approx(printed, rel=1e-9)


@settings(max_examples=12)
@given(two=two_stacks(), ae=st.floats(1, 5), ad=st.floats(1, 5))
def test_deepnet_encoder_decoder_is_what_is_printed(two, ae, ad):
    layers, decoder_layers, ve, we, vd, wd = two
    e, d = side_symbols("encoder"), side_symbols("decoder")
    coupling = sum(vd[3 * j - 2] * wd[3 * j - 2] / ad for j in range(1, decoder_layers + 1))  # 3j - 1, counted from 0
    moved = [0.1 * (i + 1) for i in range(2 * layers)], [0.3 / (i + 1) for i in range(3 * decoder_layers)]
    printed = coupling * sum(math.hypot(a, b) / ae * m for a, b, m in zip(ve, we, moved[0], strict=True))
    printed += sum(math.hypot(a, b) / ad * m for a, b, m in zip(vd, wd, moved[1], strict=True))
    bound = derive_bound("encoder-decoder-deepnorm")
    values = values_of(*two) | {e.residual_weight: ae, d.residual_weight: ad}
    assert bound.displacement is not None
    found = evaluate_sums(bound.displacement, values | {e.displacements: moved[0], d.displacements: moved[1]})
    assert found == pytest.approx(printed, rel=1e-9)
    under_sgd = coupling * printed_post(ve, we, ae) + printed_post(vd, wd, ad)
    assert evaluate_sums(bound.factorised, values) == pytest.approx(under_sgd, rel=1e-9)


def test_cross_attention_positions():
    decoder = ARCHITECTURES["encoder-decoder"].sides[1]
    assert [cross_sublayers(decoder, S(j)) for j in (1, 2, 3)] == [2, 5, 8]
    assert [cross_sublayers(decoder, S(j), position=1) for j in (1, 2, 3)] == [1, 4, 7]
    for position in (0, 4):
        with pytest.raises(ValueError, match="no position"):
            cross_sublayers(decoder, S(1), position=position)
    with pytest.raises(ValueError, match="not one"):
        cross_sublayers(ARCHITECTURES["encoder-decoder"].sides[0])


def test_a_wrong_cross_position_is_found():
    two = (1, 2, [1.0, 2.0], [1.0, 0.5], [1.0, 2.0, 3.0, 0.5, 1.5, 0.2], [1.0] * 6)
    plain = {"encoder": S.One, "decoder": S.One}
    shifted = encoder_decoder_growing("as printed", SUB, plain, cross_position=1)
    printed = printed_sub(two[4], two[5]) + printed_coupling_sub(two[4], 1) * printed_sub(two[2], two[3])
    assert evaluate_sums(shifted.factorised, values_of(*two)) == pytest.approx(printed, rel=1e-12)
    right = evaluate_sums(derive_bound("encoder-decoder-sub-ln").factorised, values_of(*two))
    assert right != pytest.approx(printed, rel=1e-3)


@pytest.mark.parametrize("name", ["encoder-decoder-sub-ln", "encoder-decoder-pre-ln"])
def test_uniform_coupling_is_a_third(name):
    found = derive_bound(name).coupling_uniform
    assert found is not None
    assert found.equals((1 + harmonic(3 * M - 1)) / 3)
    for layers in range(1, 20):
        direct = printed_coupling_sub([Fraction(5, 3)] * (3 * layers))
        assert found.subs(M, layers) == Rational(direct.numerator, direct.denominator)


def test_coupling_squared_is_another_bound():
    plain = {"encoder": (S.One, S.One), "decoder": (S.One, S.One)}
    once, squared = (encoder_decoder_post("x", plain, coupling_power=power).coupling_uniform for power in (1, 2))
    assert once is not None and squared == once**2


# ---------------------------------------------------------------- orders, names, refusals


ORDERS = {
    "post-ln": (4, 1, 0),
    "deepnorm": (1, 0, 0),
    "pre-ln": (2, 0, 1),
    "sub-ln": (2, 0, 1),
    "sub-ln-gamma": (2, 0, 0),
    "encoder-decoder-post-ln": (4, 2, 0),
    "encoder-decoder-deepnorm": (2, 0, 0),
    "encoder-decoder-pre-ln": (Rational(2, 3), 0, 2),
    "encoder-decoder-sub-ln": (Rational(2, 3), 0, 2),
    "encoder-decoder-sub-ln-gamma": (4, 0, 0),
}
"""(coefficient, power, power of the logarithm) in N; encoder-decoders at M = N."""


@pytest.mark.parametrize("name", BOUNDS)
def test_order(name):
    found = derive_bound(name).order
    assert (found.coefficient, found.power, found.log_power) == ORDERS[name]
    assert found.loglog_power == 0


def test_rules_and_bounds_agree():
    """The gain that rules finds from the degrees holds the bound that comes from second moments."""
    for norm, name in (("post", "post-ln"), ("sub", "sub-ln")):
        side = solve_rule(norm, "sgd").side("encoder")
        at = {init_gain: side.gain, residual_weight: side.residual_weight}
        order = leading_order(derive_bound(name).uniform.subs(L, 2 * N).subs(at, simultaneous=True), N)
        assert (order.coefficient, order.power, order.log_power) == (2, 0, 0)


def test_no_floats_in_symbolic_results():
    for name in BOUNDS:
        bound = derive_bound(name)
        parts = [bound.expression, bound.factorised, bound.uniform, bound.at_scheme]
        parts += [part for step in bound.steps for part in (step.before, step.after, step.small, step.uniform_after)]
        assert not any(part.has(Float) for part in parts if part is not None)
        assert all(step.condition and step.effect in ("equal", "raises", "lowers", "near") for step in bound.steps)


def test_stages_of_any_length_and_gain():
    stages = uniform_stages(growing_profile(PRE), 2 * N, S(2))
    assert stages["range"] == (1 + harmonic(2 * N - 1)) / 2


def test_unknown_names():
    with pytest.raises(ValueError, match="did you mean sub-ln"):
        derive_bound("sub-lm")
    for name in ("admin", "depth-mup", "ln-scaling", "gpt2", "peri-ln", "rezero"):
        with pytest.raises(ValueError, match="no bound covers"):
            bound_of_scheme(name)
    with pytest.raises(KeyError, match="no step"):
        derive_bound("pre-ln").step("nothing")


@pytest.mark.parametrize(
    ("v", "w", "says"),
    [
        ([], [], "one or more"),
        ([1.0], [1.0, 1.0], "one gain per sublayer"),
        ([0.0], [1.0], "positive"),
        ([1.0], [math.nan], "positive"),
        ([math.inf], [1.0], "positive"),
        ([-1.0], [1.0], "positive"),
    ],
)
def test_evaluate_refuses(v, w, says):
    with pytest.raises(ValueError, match=says):
        evaluate(derive_bound("pre-ln"), v=v, w=w)


def test_evaluate_needs_alpha_and_one_stack():
    with pytest.raises(ValueError, match="alpha"):
        evaluate(derive_bound("post-ln"), v=[1.0], w=[1.0])
    with pytest.raises(ValueError, match="two stacks"):
        evaluate(derive_bound("encoder-decoder-sub-ln"), v=[1.0], w=[1.0])
