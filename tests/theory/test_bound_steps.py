"""Each step on the way to a bound: its closed form and its direction against a recursion of its own."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Rational, S, diff, lambdify, limit, oo, sqrt

from tests.printed_bounds import (
    PRINTED,
    chain,
    printed_pre,
    printed_sub,
    stacks,
)
from theory.asymptotics.orders import leading_order
from theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope
from theory.bounds.update import (
    derive_bound,
    evaluate_sums,
)
from theory.rules.growing_bound import growing_profile
from theory.rules.magnitude import Branch, tidy
from theory.schemes import SCHEMES
from theory.stack import PERI, POST, PRE, SUB
from theory.symbols import (
    L,
    M,
    N,
    branch_weight,
    gain_in,
    gain_out,
    gains_in,
    gains_out,
    init_gain,
    l,
    residual_weight,
    side_symbols,
)

# ---------------------------------------------------------------- every step


STAGES = ("telescope", "input", "first order", "range")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", PRINTED)
def test_uniform_after_each_step(name, stage):
    step = derive_bound(name).step(stage)
    assert step.uniform_after is not None
    for length in (1, 2, 3, 5, 9, 20):
        for gain in (Fraction(1), Fraction(2), Fraction(1, 3)):
            direct = chain([gain] * length, [gain] * length, name == "sub-ln", stage)
            at = {init_gain: Rational(gain.numerator, gain.denominator), L: length}
            assert float(step.uniform_after.subs(at).evalf()) == pytest.approx(float(direct), rel=1e-9)


@given(stack=stacks(), name=st.sampled_from(sorted(PRINTED)))
def test_each_step_moves_the_result_as_it_says(stack, name):
    v, w = stack
    found = [chain(v, w, name == "sub-ln", stage) for stage in STAGES]
    slack = 1 + 1e-9
    for before, after, stage in zip(found, found[1:], STAGES[1:], strict=False):
        effect = derive_bound(name).step(stage).effect
        assert effect in ("raises", "lowers")
        assert after * slack >= before if effect == "raises" else after <= before * slack
    assert found[-1] == pytest.approx(PRINTED[name](v, w), rel=1e-9)


@given(stack=stacks(), name=st.sampled_from(sorted(PRINTED)))
def test_exact_is_the_telescoped_chain(stack, name):
    v, w = stack
    exact = derive_bound(name).exact
    assert exact is not None
    values = {side: list(x) for side, x in zip((gains_out, gains_in), (v, w), strict=True)} | {L: len(v)}
    assert evaluate_sums(exact, values) == pytest.approx(chain(v, w, name == "sub-ln", "telescope"), rel=1e-9)


def test_the_first_order_alone_would_be_bounded():
    """The logarithm of the printed bound is put back by widening the range, not by the first-order step."""
    for name in PRINTED:
        bound = derive_bound(name)
        first, wide, full = (bound.step(stage).uniform_after for stage in ("first order", "range", "input"))
        assert first is not None and wide is not None and full is not None
        assert limit(first * init_gain**2, L, oo) == 4
        for grown in (wide, full):
            order = leading_order(grown.subs(init_gain, 1), L)
            assert (order.coefficient, order.power, order.log_power) == (2, 0, 1)


def test_gains_that_grow_escape_the_printed_bound():
    """The range makes the linearised form an upper bound, not the product that it replaces."""
    v = [2.0**i for i in range(12)]
    assert chain(v, v, False, "input") > 10 * printed_pre(v, v)


def test_profile_of_a_sublayer_agrees_with_the_probes():
    """rules counts gradients by probes and degrees, bounds by second moments."""
    for placement, branch in ((PRE, Branch()), (SUB, Branch(inner_norm=True))):
        profile = growing_profile(placement)
        first, last = branch.probes
        at = {residual_weight: S.One, branch_weight: S.One}
        for square, gradient in zip(profile.gradients(last, first), branch.gradients, strict=True):
            assert tidy(square / gradient.subs(at) ** 2) == 1
        assert tidy(profile.increment(last, first) / branch.magnitude.subs(at) ** 2) == 1


def test_profile_of_other_placements():
    with pytest.raises(ValueError, match="not the ratio"):
        growing_profile(POST)
    peri = growing_profile(PERI)  # behind a norm on the branch both gradients fall with their own gain
    assert peri.increment(gain_out, gain_in) == 1
    assert peri.gradients(gain_out, gain_in) == (gain_in**-2, gain_out**-2)


# ---------------------------------------------------------------- the scalar model (post)


SENSITIVITY = lambdify((residual_weight, gain_out, gain_in), scalar_sensitivity(residual_weight, gain_out, gain_in))


@given(alpha=st.floats(1, 20), v=st.floats(0.05, 0.95), w=st.floats(0.05, 0.95))
def test_scalar_sensitivity_by_difference_quotients(alpha, v, w):
    def f(v: float, w: float) -> float:
        return (alpha + v * w) / math.sqrt(alpha**2 + (v * w) ** 2)

    h = 1e-6
    direct = math.hypot((f(v + h, w) - f(v - h, w)) / (2 * h), (f(v, w + h) - f(v, w - h)) / (2 * h))
    found = SENSITIVITY(alpha, v, w)
    assert abs(found) == pytest.approx(direct, rel=1e-4, abs=1e-8)
    assert abs(found) <= math.hypot(v, w) / alpha * (1 + 1e-12)  # "small branch" raises


def test_scalar_model_at_a_small_branch():
    alpha, v, w = residual_weight, gain_out, gain_in
    assert limit(scalar_slope(alpha, v, w), alpha, oo) == 1
    ratio = scalar_sensitivity(alpha, v, w) * alpha / sqrt(v**2 + w**2)
    assert limit(ratio, alpha, oo) == 1
    assert diff(scalar_slope(alpha, v, w), v).subs({v: 1, w: 1, alpha: 1}) == 0  # vanilla: v w = alpha, no slope left


def test_cross_attention_slopes():
    alpha, v, w = residual_weight, gain_out, gain_in
    y, x = cross_slopes(alpha, v, w)
    assert (y**2 + x**2).equals(1)
    assert (x / y).equals(v * w / alpha)


def test_deepnorm_does_not_pass_the_stream_unchanged():
    """DN-08: with the printed alpha and gains, the exponent L v w / alpha that should be small grows as N^(1/4)."""
    step, stack = derive_bound("deepnorm").step("stream passes unchanged"), SCHEMES["deepnorm"].stack
    assert step.small is not None and stack.residual_weight is not None
    small = step.small.subs({gain_in: stack.gain_in, gain_out: stack.gain_out, residual_weight: stack.residual_weight})
    order = leading_order(small.subs(L, 2 * N), N)
    assert (order.power, order.log_power) == (Rational(1, 4), 0)


def test_post_steps_by_the_chain():
    """Chained scalar sensitivities, sublayer by sublayer, against the closed form after the Taylor step."""
    step = derive_bound("deepnorm").step("first order in the weights")
    assert step.uniform_after is not None
    for alpha, gain, length in ((2.0, 0.5, 1), (2.0, 0.5, 9), (1.5, 0.9, 4)):
        slope = (alpha + gain**2) / math.sqrt(alpha**2 + gain**4)
        each = alpha * (alpha - gain**2) * math.sqrt(2) * gain / (alpha**2 + gain**4) ** 1.5
        direct = sum((each * slope ** (length - place)) ** 2 for place in range(1, length + 1))
        at = {residual_weight: alpha, init_gain: gain, L: length}
        assert float(step.uniform_after.subs(at)) == pytest.approx(direct, rel=1e-9)


def test_post_exact_second_moments():
    bound = derive_bound("post-ln")
    assert bound.exact_uniform is not None
    alpha, gain = residual_weight, init_gain
    assert bound.exact_uniform.equals(L * 2 * gain**2 / (alpha**2 + gain**4))
    assert (bound.uniform / bound.exact_uniform).subs({alpha: 1, gain: 1}) == 2


# ---------------------------------------------------------------- a decoder with cross-attention


def decoder_chain(s: list[float]) -> list[float]:
    """D_l of sublayers 1..3M with increments s, where cross-attention (2nd of each 3) passes no gradient downwards."""
    upto = list(accumulate(s))
    arriving = [1 / upto[-1]]
    for sublayer in range(len(s), 1, -1):
        ratio = 1 if sublayer % 3 == 2 else upto[sublayer - 1] / upto[sublayer - 2]
        arriving.append(arriving[-1] * ratio)
    return arriving[::-1]


def test_cross_attention_step_is_that_chain():
    step = derive_bound("encoder-decoder-sub-ln").step("cross-attention as self-attention")
    assert step.effect == "raises"
    letters, v = side_symbols("decoder"), [1, 2, 3, Rational(1, 2), 5, Rational(1, 3)]
    values = {letters.gains_out[i]: gain for i, gain in enumerate(v, start=1)}
    direct = decoder_chain([float(gain) ** 2 for gain in v])
    for sublayer in range(1, 7):
        before, after = (expr.subs({M: 2, l: sublayer}).doit().subs(values) for expr in (step.before, step.after))
        assert float(before) == pytest.approx(direct[sublayer - 1], rel=1e-12)
        assert float(after) == pytest.approx(1 / sum(float(g) ** 2 for g in v[:sublayer]), rel=1e-12)
        assert before <= after


def test_without_that_step_the_decoder_has_no_logarithm():
    """S2-18: at gain 1 the decoder's sum stays below 6, while the printed bracket is 2 (1 + H_{3M-1})."""
    sums = [2 * sum(decoder_chain([1.0] * (3 * layers))) for layers in (10, 100, 1000, 10_000)]
    assert sums == sorted(sums)
    assert 5.8 < sums[-1] < 6
    assert printed_sub([1.0] * 600, [1.0] * 600) > 13
