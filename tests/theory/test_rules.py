"""The magnitude rung: rules come out of the degrees of an optimizer and the matrices of a branch.

That they are those that the sources print `verify` shows; here they are held against sums, term by term.
"""

import math
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Matrix, Rational, S, log, sqrt, sympify

from depthlaw.theory.optimizers import Optimizer
from depthlaw.theory.rules.magnitude import tidy
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.rules.solve import SideRule, evaluate, solve_rule, update_under
from depthlaw.theory.stack import ARCHITECTURES, Architecture, Side, SublayerKind
from depthlaw.theory.symbols import M, N, eta, init_gain, residual_weight

half = Rational(1, 2)
degrees = st.fractions(min_value=0, max_value=3, max_denominator=4)


@dataclass(frozen=True)
class Degrees:
    gradient_degree: Rational
    parameter_degree: Rational
    name: str = "any"


def same(expr: Expr | None, other: Expr) -> bool:
    """Whether two positive expressions are equal; nothing equals an absent one."""
    return expr is not None and tidy(expr / other) == 1


def gain_of(side: SideRule | Member) -> Expr:
    """The gain, where there is one."""
    gain = side.gain if isinstance(side, SideRule) else side.init_gain
    assert gain is not None
    return gain


def test_an_optimizer_never_seen():
    # Delta theta = -eta |g|^(3/2) sign(g): the loss changes by |g|^(5/2), so 2N (lambda/alpha)^(5/2) = 1
    power = Optimizer(
        name="power", update=lambda g, theta: Matrix(*g.shape, lambda i, j: -eta * abs(g[i, j]) ** half * g[i, j])
    )
    for optimizer in (power, Degrees(Rational(3, 2), S.Zero)):
        side = solve_rule("post", optimizer).side("encoder")
        assert side.family.lhs == 2 * N * (init_gain / residual_weight) ** Rational(5, 2)
        assert same(side.gain, (2 * N) ** Rational(-1, 5))
        assert same(side.residual_weight * side.gain, S.One)


@pytest.mark.parametrize("m", (2, 3, 5))
def test_fixup(m):
    side = solve_rule("none", "sgd", num_matrices=m, zero_last=True).side("encoder")
    assert same(side.gain, side.num_sublayers ** Rational(-1, 2 * m - 2))
    last = "fc2" if m == 2 else f"ffn_{m}"
    assert (side.init_gain or {})[last] == 0
    assert side.branch_at_init == 0


def test_an_architecture_of_ones_own():
    kinds = (SublayerKind.SELF, SublayerKind.FFN, SublayerKind.FFN)
    macaron = Architecture(name="macaron", sides=(Side(name="encoder", layer=kinds, num_layers=N),))
    assert same(solve_rule("pre", "sgd", macaron).side("encoder").gain, (3 * N) ** -half)


def summed(alpha: float, gain: float, layers: int, p: float, t: float, m: int, counts: bool) -> float:
    """The sum over sublayers and matrices, term by term in floats."""
    total = 0.0
    for _ in range(2 * layers):
        for i in range(m):
            others = math.prod(gain for j in range(m) if j != i)
            total += (others / alpha) ** (p + 1) * gain**t / (1 if counts else m)
    return total


@settings(max_examples=8)
@given(
    p=degrees, t=degrees, m=st.integers(2, 5), layers=st.integers(1, 300),
    select=st.sampled_from(["symmetric", "deepnet", "alpha-one", "lambda-one"]),
)  # fmt: skip
def test_the_member_satisfies_the_constraint(p, t, m, layers, select):
    optimizer = Degrees(Rational(p.numerator, p.denominator), Rational(t.numerator, t.denominator))
    rule = solve_rule("post", optimizer, select=select, num_matrices=m, with_alternatives=False)
    side = rule.side("encoder")
    assert side.update_order == 1
    numbers = evaluate(rule, N=layers)["encoder"]
    gain = float(gain_of(side).subs(N, layers))
    alpha = numbers.residual_weight
    assert summed(alpha, gain, layers, float(p), float(t), m, select == "deepnet") == pytest.approx(1, rel=1e-9)
    picked = {"symmetric": alpha * gain, "deepnet": m * gain**2 * alpha**2, "alpha-one": alpha, "lambda-one": gain}
    assert picked[select] == pytest.approx(1, rel=1e-9)


@settings(max_examples=15)
@given(layers=st.integers(1, 200), decoder_layers=st.integers(1, 200), norm=st.sampled_from(["post", "pre"]),
       optimizer=st.sampled_from(["sgd", "adam", "lamb"]), select=st.sampled_from([None, "deepnet", "alpha-one"]),
       coupling=st.sampled_from(["once", "own-gradient", "mean-square"]))  # fmt: skip
def test_encoder_decoder_by_direct_sums(layers, decoder_layers, norm, optimizer, select, coupling):
    if norm == "pre" and select == "deepnet":
        return
    rule = encoder_decoder_rule(norm, optimizer, select, coupling)
    p, t = {"sgd": (1, 0), "adam": (0, 0), "lamb": (0, 1)}[optimizer]
    at = {N: layers, M: decoder_layers}
    (ae, ge), (ad, gd) = (
        [float(x.subs(at)) for x in (s.residual_weight, gain_of(s))]
        for s in (rule.side("encoder"), rule.side("decoder"))
    )
    count = 2 if select == "deepnet" else 1
    passes = [gd**2 / ad for sublayer in range(1, 3 * decoder_layers + 1) if sublayer % 3 == 2]
    coupled = math.sqrt(sum(c**2 for c in passes)) if coupling == "mean-square" else sum(passes)
    decoder = 3 * decoder_layers * count * (gd / ad) ** (p + 1) * gd**t
    encoder = 2 * layers * count * (ge / ae) ** (p + 1) * ge**t * coupled ** (1 if coupling == "once" else p + 1)
    assert decoder == pytest.approx(1, rel=1e-9)
    assert encoder == pytest.approx(1, rel=1e-9)


@cache
def encoder_decoder_rule(norm, optimizer, select, coupling):
    return solve_rule(norm, optimizer, "encoder-decoder", select, coupling=coupling, with_alternatives=False)


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
    gains = rule.side("decoder").init_gain
    assert gains is not None
    assert {gains[role] for role in ("cross_v", "cross_out", "cross_q", "cross_k", "q", "k")} == {1}
    assert same(gains["fc2"], sqrt(log(3 * M)))
    assert any("cross-attention at gain 1" in line for line in rule.why)
    own = rule.side("encoder").alternative("unscaled-cross")
    assert float((gain_of(own) / sqrt(log(2 * N))).subs({N: 100, M: 10**9})) == pytest.approx(
        math.sqrt(1 / 2), rel=0.02
    )


def test_formulas_read_back():
    for norm, optimizer, select in (("post", "sgd", "deepnet"), ("pre", "adam", None), ("sub", "sgd", None)):
        rule = solve_rule(norm, optimizer, "encoder-decoder", select, with_alternatives=False)
        side = rule.side("encoder")
        letters = {"N": N, "M": M}
        assert same(sympify(side.formula["init_gain"], locals=letters), side.gain)
        assert same(sympify(side.formula["residual_weight"], locals=letters), side.residual_weight)
    assert solve_rule("post", "sgd").side("encoder").formula["residual_weight"] == "(2*N)**(1/4)"


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
        ({"norm": "post", "optimizer": "sgd", "select": "symetric"}, "did you mean symmetric"),
        ({"norm": "pre", "optimizer": "sgd", "select": "symmetric"}, "residual weight 1"),
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
