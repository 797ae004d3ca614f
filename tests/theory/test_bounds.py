"""The bounds on the model update: each printed formula retyped as a direct double sum, each step by its own numbers."""

import math
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Rational, lambdify

from depthlaw.theory.asymptotics.orders import leading_order
from depthlaw.theory.bounds.scalar_model import scalar_sensitivity
from depthlaw.theory.bounds.update import (
    bound_of_scheme,
    cross_sublayers,
    derive_bound,
    evaluate,
    evaluate_sums,
)
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.stack import ARCHITECTURES
from depthlaw.theory.symbols import (
    L,
    M,
    N,
    gain_in,
    gain_out,
    gains_in,
    gains_out,
    init_gain,
    l,
    residual_weight,
    side_symbols,
)
from tests.printed_bounds import PRINTED, chain, printed_coupling_sub, printed_post, stacks, two_stacks, values_of

LENGTHS = (*range(1, 9), 25)
"""A closed form that is right at these is no other one: it has a harmonic number and a few powers of the length."""


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


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("gain", [Fraction(1), Fraction(3, 7)])
def test_uniform_closed_form_is_the_double_sum(name, gain):
    bound = derive_bound(name)
    for length in LENGTHS:
        direct = PRINTED[name]([gain] * length, [gain] * length)
        closed = bound.uniform.subs({init_gain: Rational(gain.numerator, gain.denominator), L: length})
        assert closed == Rational(direct.numerator, direct.denominator)


@settings(max_examples=12)
@given(two=two_stacks(), name=st.sampled_from(sorted(PRINTED)))
def test_growing_encoder_decoder_is_what_is_printed(two, name):
    """Pre-LN's coupling is Sub-LN's with v w for v."""
    *_, ve, we, vd, wd = two
    through = vd if name == "sub-ln" else [a * b for a, b in zip(vd, wd, strict=True)]
    printed = PRINTED[name](vd, wd) + printed_coupling_sub(through) * PRINTED[name](ve, we)
    bound = derive_bound(f"encoder-decoder-{name}")
    assert evaluate_sums(bound.factorised, values_of(*two)) == pytest.approx(printed, rel=1e-9)
    assert evaluate_sums(bound.expression, values_of(*two)) == pytest.approx(printed, rel=1e-9)


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
    displacement = evaluate_sums(bound.displacement, values | {e.displacements: moved[0], d.displacements: moved[1]})
    assert displacement == pytest.approx(printed, rel=1e-9)
    under_sgd = coupling * printed_post(ve, we, ae) + printed_post(vd, wd, ad)
    assert evaluate_sums(bound.factorised, values) == pytest.approx(under_sgd, rel=1e-9)


def test_the_gain_of_a_rule_holds_the_bound():
    """The rule follows from degrees, the bound from second moments."""
    for norm, name in (("post", "post-ln"), ("sub", "sub-ln")):
        side = solve_rule(norm, "sgd").side("encoder")
        at = {init_gain: side.gain, residual_weight: side.residual_weight}
        order = leading_order(derive_bound(name).uniform.subs(L, 2 * N).subs(at, simultaneous=True), N)
        assert (order.coefficient, order.power, order.log_power) == (2, 0, 0)


REFUSED = {
    "an unknown name": (lambda: derive_bound("sub-lm"), "did you mean sub-ln"),
    "a scheme without a bound": (lambda: bound_of_scheme("peri-ln"), "no bound covers"),
    "no gains": (lambda: evaluate(derive_bound("pre-ln"), v=[], w=[]), "one or more"),
    "too few gains": (lambda: evaluate(derive_bound("pre-ln"), v=[1.0], w=[1.0, 1.0]), "one gain per sublayer"),
    "a gain of 0": (lambda: evaluate(derive_bound("pre-ln"), v=[0.0], w=[1.0]), "positive"),
    "a gain that is no number": (lambda: evaluate(derive_bound("pre-ln"), v=[1.0], w=[math.nan]), "positive"),
    "a gain without an end": (lambda: evaluate(derive_bound("pre-ln"), v=[math.inf], w=[1.0]), "positive"),
    "no residual weight": (lambda: evaluate(derive_bound("post-ln"), v=[1.0], w=[1.0]), "alpha"),
    "one of two stacks": (lambda: evaluate(derive_bound("encoder-decoder-sub-ln"), v=[1.0], w=[1.0]), "two stacks"),
    "an encoder's cross-attention": (lambda: cross_sublayers(ARCHITECTURES["encoder"].sides[0]), "not one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_bound_is_refused(case):
    ask, says = REFUSED[case]
    with pytest.raises(ValueError, match=says):
        ask()


STAGES = ("telescope", "input", "first order", "range")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", PRINTED)
def test_uniform_after_each_step(name, stage):
    step = derive_bound(name).step(stage)
    assert step.uniform_after is not None
    for length in (1, 2, 9):
        for gain in (Fraction(1), Fraction(1, 3)):
            direct = chain([gain] * length, [gain] * length, name == "sub-ln", stage)
            at = {init_gain: Rational(gain.numerator, gain.denominator), L: length}
            assert float(step.uniform_after.subs(at).evalf()) == pytest.approx(float(direct), rel=1e-9)


@given(stack=stacks(), name=st.sampled_from(sorted(PRINTED)))
def test_each_step_moves_the_result_as_it_says(stack, name):
    v, w = stack
    bound = derive_bound(name)
    brackets = [chain(v, w, name == "sub-ln", stage) for stage in STAGES]
    values = {side: list(x) for side, x in zip((gains_out, gains_in), (v, w), strict=True)} | {L: len(v)}
    assert bound.exact is not None and evaluate_sums(bound.exact, values) == pytest.approx(brackets[0], rel=1e-9)
    slack = 1 + 1e-9
    for before, after, stage in zip(brackets, brackets[1:], STAGES[1:], strict=False):
        effect = bound.step(stage).effect
        assert effect in ("raises", "lowers")
        assert after * slack >= before if effect == "raises" else after <= before * slack


SENSITIVITY = lambdify((residual_weight, gain_out, gain_in), scalar_sensitivity(residual_weight, gain_out, gain_in))


@given(alpha=st.floats(1, 20), v=st.floats(0.05, 0.95), w=st.floats(0.05, 0.95))
def test_scalar_sensitivity_by_difference_quotients(alpha, v, w):
    def f(v: float, w: float) -> float:
        return (alpha + v * w) / math.sqrt(alpha**2 + (v * w) ** 2)

    h = 1e-6
    direct = math.hypot((f(v + h, w) - f(v - h, w)) / (2 * h), (f(v, w + h) - f(v, w - h)) / (2 * h))
    sensitivity = abs(SENSITIVITY(alpha, v, w))
    assert sensitivity == pytest.approx(direct, rel=1e-4, abs=1e-8)
    assert sensitivity <= math.hypot(v, w) / alpha * (1 + 1e-12)  # "small branch" raises


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
