"""The magnitude rung: what the sources print comes out of the degrees of an optimizer and the matrices of a branch.

Every printed cell is retyped here, apart from the code, and compared exactly; the comparison is shown mutants, both of
the cells and of the argument itself.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Matrix, Rational, S, log, sqrt

import theory.rules.solve as rules
from tests.printed_rules import (
    CELLS,
    NM,
    PRINTED,
    Degrees,
    broken,
    degrees,
    gain_of,
    gains_of,
    half,
    quarter,
    same,
    wrong_cells,
)
from theory.optimizers import Optimizer
from theory.rules.magnitude import Branch, NoMemberError, exponents, tidy
from theory.rules.solve import evaluate, solve_rule
from theory.stack import Architecture, Side, SublayerKind
from theory.symbols import M, N, eta, init_gain, residual_weight

# ---------------------------------------------------------------- the printed cells


@pytest.mark.parametrize("key", CELLS, ids=lambda key: "-".join(map(str, key)))
def test_printed_cell(key):
    assert not wrong_cells({key: PRINTED[key]})


MUTANTS = {
    "exponent": lambda cell: cell * N ** Rational(1, 16) * M ** Rational(1, 16),
    "factor 2": lambda cell: cell * sqrt(2),
    "N for 2N": lambda cell: cell.subs({N: N / 2, M: M / 2}, simultaneous=True),
    "M for N": lambda cell: cell.subs({N: M, M: N}, simultaneous=True),
    "log base": lambda cell: cell.replace(log, lambda x: log(x) / log(2)),
}


@pytest.mark.parametrize(
    ("key", "mutant"),
    [  # every third cell, mutants in turn
        pytest.param(key, mutant, marks=[] if place % 3 == 0 and (place // 3 + turn) % 2 == 0 else [pytest.mark.slow])
        for place, key in enumerate(CELLS)
        for turn, mutant in enumerate(MUTANTS)
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_a_mutated_cell_is_found(key, mutant):
    alpha, gain = PRINTED[key]
    mutated = MUTANTS[mutant](gain if gain != 1 else alpha)
    if mutated in (alpha, gain):
        assert mutant in ("log base",), "only a cell without a logarithm may be blind to its base"
        return
    assert wrong_cells({key: (alpha, mutated) if gain != 1 else (mutated, gain)}) == [key]


@pytest.mark.parametrize(
    ("what", "side"),
    [
        ("sublayers", "encoder"),
        ("degree", "encoder"),
        ("probe", "encoder"),
        ("coupling", "encoder"),
        ("cross share", "encoder"),
        ("matrices", "decoder"),
    ],
)
def test_a_broken_argument_is_found(monkeypatch, what, side):
    broken(monkeypatch, what)
    wrong = wrong_cells(PRINTED)
    assert any(key[3] == side for key in wrong)
    if what == "matrices":
        assert {key[4] for key in wrong} == {"deepnet"}
    if what == "cross share":
        assert [key[:4] for key in wrong] == [("sub", "sgd", "encoder-decoder", "encoder")]


# ---------------------------------------------------------------- families, relative updates, branches (S1)


def test_families_of_su():
    lam, alpha = init_gain, residual_weight
    for name, family in (("sgd", 2 * N * (lam / alpha) ** 2), ("adam", 2 * N * lam / alpha)):
        assert solve_rule("post", name).side("encoder").family.lhs == family
    assert solve_rule("post", "lamb").side("encoder").family.lhs == 2 * N * lam**2 / alpha


def test_family_by_matrix_is_deepnets():
    one, two = Branch().probes
    found = solve_rule("post", "sgd", select="deepnet").side("encoder").family_by_matrix
    assert found.lhs.equals(2 * N * (one**2 + two**2) / residual_weight**2)


def test_deepnet_ratio_is_what_su_quotes():
    deepnet = solve_rule("post", "sgd", select="deepnet").side("encoder")
    assert same(gain_of(deepnet) / deepnet.residual_weight, (4 * N) ** -half)


def test_deepnet_constants():
    found = solve_rule("post", "sgd", "encoder-decoder", "deepnet").side("encoder")
    assert f"{float(found.residual_weight / NM ** Rational(1, 16)):.2f}" == "0.81"
    assert f"{float(tidy(gain_of(found) * NM ** Rational(1, 16))):.2f}" == "0.87"


@pytest.mark.parametrize(
    ("optimizer", "select", "relative"),
    [
        ("sgd", None, (2 * N) ** -quarter),
        ("sgd", "alpha-one", S.One),
        ("sgd", "relative", S.One),
        ("sgd", "lambda-one", (2 * N) ** -half),
        ("adam", None, (2 * N) ** half),
        ("adam", "relative", S.One),
        ("lamb", None, S.One),
        ("lamb", "symmetric", S.One),
    ],
)
def test_relative_update(optimizer, select, relative):
    assert same(solve_rule("post", optimizer, select=select).side("encoder").relative_update_order, relative)


@pytest.mark.parametrize(
    ("optimizer", "branch"),
    [("sgd", (2 * N) ** Rational(-3, 4)), ("adam", (2 * N) ** Rational(-3, 2)), ("lamb", (2 * N) ** -1)],
)
def test_branch_at_init(optimizer, branch):
    found = solve_rule("post", optimizer).side("encoder")
    assert same(found.branch_at_init, branch)
    assert same(found.member.accumulated_branch, 2 * N * branch**2)


def test_the_gradient_is_the_same_for_all_three_solutions_of_su():
    for select in (None, "alpha-one", "lambda-one"):
        side = solve_rule("post", "sgd", select=select).side("encoder")
        assert same(side.member.put_into(side.update_sum.gradient), (2 * N) ** -half)


def test_any_member_serves_lamb_so_relative_means_alpha_one():
    for select in (None, "relative"):
        found = solve_rule("post", "lamb", select=select)
        assert found.select == "alpha-one"
        assert any("every member" in line for line in found.why)


# ---------------------------------------------------------------- optimizers and branches never seen


class ThreeHalves:
    name = "three-halves"
    gradient_degree, parameter_degree = Rational(3, 2), S.Zero


def test_an_optimizer_never_seen():
    # Delta theta = -eta |g|^(3/2) sign(g): the loss changes by |g|^(5/2), so 2N (lambda/alpha)^(5/2) = 1
    power = Optimizer(
        name="power",
        update=lambda g, theta: Matrix(*g.shape, lambda i, j: -eta * abs(g[i, j]) ** half * g[i, j]),
    )
    for optimizer in (power, ThreeHalves()):
        side = solve_rule("post", optimizer).side("encoder")
        assert side.family.lhs == 2 * N * (init_gain / residual_weight) ** Rational(5, 2)
        assert same(side.gain, (2 * N) ** Rational(-1, 5))
        assert same(side.residual_weight * side.gain, S.One)


def test_a_branch_of_three_matrices():
    side = solve_rule("post", "sgd", num_matrices=3).side("encoder")
    assert side.family.lhs == 2 * N * init_gain**4 / residual_weight**2
    assert same(side.gain, (2 * N) ** Rational(-1, 6))
    assert set(gains_of(side)) >= {"self_1", "self_2", "self_3", "ffn_1", "ffn_2", "ffn_3", "q", "k"}


def test_the_gain_of_sub_ln_leaves_queries_keys_and_the_cross_attention_as_the_source_does():
    side = solve_rule("sub", "adam", "encoder-decoder").side("decoder")
    scaled = {"v", "out", "fc1", "fc2"}
    assert {role for role, gain in gains_of(side).items() if gain != 1} == scaled
    assert gains_of(side).keys() == scaled | {"q", "k", "cross_q", "cross_k", "cross_v", "cross_out"}


@pytest.mark.parametrize("m", (2, 3, 5))
def test_fixup(m):
    side = solve_rule("none", "sgd", num_matrices=m, zero_last=True).side("encoder")
    assert same(side.gain, side.num_sublayers ** Rational(-1, 2 * m - 2))
    last = "fc2" if m == 2 else f"ffn_{m}"
    assert gains_of(side)[last] == 0
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
    picked = {
        "symmetric": alpha * gain,
        "deepnet": m * gain**2 * alpha**2,
        "alpha-one": alpha,
        "lambda-one": gain,
    }
    assert picked[select] == pytest.approx(1, rel=1e-9)


@settings(max_examples=8)
@given(p=degrees, t=degrees, m=st.integers(2, 5), layers=st.integers(1, 300))
def test_relative_member_keeps_the_relative_update(p, t, m, layers):
    optimizer = Degrees(Rational(p.numerator, p.denominator), Rational(t.numerator, t.denominator))
    try:
        rule = solve_rule("post", optimizer, select="relative", num_matrices=m, with_alternatives=False)
    except NoMemberError:
        assert p + 1 == t  # then the two conditions are one and the same up to the count
        return
    side = rule.side("encoder")
    assert side.relative_update_order == 1
    gain, alpha = (float(x.subs(N, layers)) for x in (gain_of(side), side.residual_weight))
    gradient = gain ** (m - 1) / alpha
    assert gradient ** float(p) * gain ** (float(t) - 1) == pytest.approx(1, rel=1e-9)


@cache
def _relative_orders() -> list[Expr]:
    return [
        solve_rule("post", "sgd", select=name, with_alternatives=False).side("encoder").relative_update_order
        for name in ("lambda-one", None, "alpha-one")
    ]


@settings(max_examples=20)
@given(layers=st.integers(1, 10**6))
def test_su_s_choice_lies_between_the_others(layers):
    relative = [float(order.subs(N, layers)) for order in _relative_orders()]
    assert relative[0] < relative[1] < relative[2] == 1


# ---------------------------------------------------------------- encoder-decoder


@settings(max_examples=15)
@given(layers=st.integers(1, 200), decoder_layers=st.integers(1, 200), norm=st.sampled_from(["post", "pre"]),
       optimizer=st.sampled_from(["sgd", "adam", "lamb"]), select=st.sampled_from([None, "deepnet", "alpha-one"]),
       coupling=st.sampled_from(["once", "own-gradient", "mean-square"]))  # fmt: skip
def test_encoder_decoder_by_direct_sums(layers, decoder_layers, norm, optimizer, select, coupling):
    if norm == "pre" and select == "deepnet":
        return
    rule = _cached(norm, optimizer, select, coupling)
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
def _cached(norm, optimizer, select, coupling):
    return solve_rule(norm, optimizer, "encoder-decoder", select, coupling=coupling, with_alternatives=False)


def test_what_the_encoder_s_own_gradient_would_ask_for():
    """DN-07: with its own gradient passing the cross-attention, DeepNet's encoder would scale otherwise."""
    powers = {}
    for coupling in rules.COUPLINGS:
        side = solve_rule("post", "sgd", "encoder-decoder", "deepnet", coupling=coupling).side("encoder")
        powers[coupling] = exponents(side.residual_weight, (N, M))[1]
    assert powers == {
        "once": (quarter, Rational(1, 16)),
        "own-gradient": (quarter, Rational(1, 8)),
        "mean-square": (quarter, Rational(-1, 8)),
    }


def test_under_sign_updates_the_two_couplings_are_one():
    once, own = (
        solve_rule("post", "adam", "encoder-decoder", coupling=c).side("encoder").gain for c in ("once", "own-gradient")
    )
    assert same(once, own)
