"""Tensor Programs VI: depth-muP, of which the update is judged, at initialisation, in stacks of FFN sublayers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath
from sympy import Expr, Rational, S, expand, limit, oo, sign, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.branch_weights import BRANCH, BranchRule
from depthlaw.paper_checks.routes import second_meanfield, second_order
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, growth_part
from depthlaw.theory.symbols import L, scratch

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme

_TP_01 = Claim(
    id="TP-01",
    kind=Kind.RESULT,
    locator="(1)",
    quote="a branch times a/sqrt(L), and the learning rate eta/sqrt(L) under Adam, eta under SGD",
    summary="depth-muP keeps the first update from growing with depth, under SGD and under Adam",
    parts=tuple(
        growth_part(
            f"the update under {optimizer}, with norms", Growth(scheme="depth-mup", optimizer=optimizer, order=S.One)
        )
        for optimizer in ("sgd", "adam")
    ),
)

# ---------------------------------------------------------------- TP-02: which powers

_POWERS = Values.of(
    "the branch is times L^(-alpha), alpha >= {least}, and the rate times L^(-gamma): the update grows if "
    "alpha + gamma < {total} and vanishes if it is larger",
    least=Rational(1, 2),
    total=1,
)
_STEP = Rational(1, 4)


def _scheme(alpha: Expr, gamma: Expr) -> Scheme:
    """A residual network without norms, as the source has it, under an optimizer whose step forgets the gradient."""
    return second_meanfield.variant("depth-mup", norm="none", branch_weight=L**-alpha, lr_multiplier=L**-gamma)


def _cases(s: Values) -> list[tuple[Expr, Expr, str]]:
    """(alpha, gamma), and what the update is to do."""
    alphas = (s["least"], s["least"] + _STEP, s["least"] + 2 * _STEP)
    what = {S.Zero: "stays", _STEP: "vanishes", -_STEP: "grows"}
    cases = [(alpha, s["total"] - alpha + more, does) for alpha in alphas for more, does in what.items()]
    return [*cases, (s["least"] - _STEP / 2, s["total"], "explodes")]


@check(Route.MEANFIELD, "leading order of the update, at the least alpha, above it, and below it")
def _by_order(s: Values) -> list[bool | None]:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    answers: list[bool | None] = []
    for alpha, gamma, does in _cases(s):
        order = update_order(Setting.of(_scheme(alpha, gamma), "adam"))
        behaviour = (
            {1: "grows", 0: "stays", -1: "vanishes"}[int(sign(order.power))] if order.growth == 0 else "explodes"
        )
        answers.append(behaviour == does)
    return answers


@check(Route.NUMERIC, "L equal sublayers in logarithms, each with the product of all the others, at 10^8, 10^16, 10^24")
def _by_product(s: Values) -> list[bool | None]:
    """A ReLU branch of weight b multiplies the stream's variance by 1 + b^2/2, and its step has b times its root."""
    answers: list[bool | None] = []
    for alpha, gamma, does in _cases(s):
        with mpmath.workdps(60):
            logs = []
            for length in (mpmath.mpf(10) ** 8, mpmath.mpf(10) ** 16, mpmath.mpf(10) ** 24):
                b = length ** -mpmath.mpf(str(alpha.evalf(50)))
                power = 1 - mpmath.mpf(str(gamma.evalf(50)))
                logs.append(float(power * mpmath.log(length) + mpmath.log(b) + length / 2 * mpmath.log1p(b**2 / 2)))
        moved = logs[2] - logs[1]
        is_fast = abs(moved) > 10 * math.log(10**8)
        behaviour = "explodes" if is_fast else "stays" if abs(moved) < 1 else "grows" if moved > 0 else "vanishes"
        answers.append(behaviour == does)
    return answers


_TP_02 = claim(
    "TP-02",
    kind=Kind.STEP,
    name="at initialisation, without norms",
    locator="Section 1.1",
    quote="alpha >= 1/2 is needed; alpha + gamma < 1 is unstable, > 1 trivial",
    summary="a branch of L^-alpha and a rate of L^-gamma: alpha is at least 1/2, and alpha + gamma = 1",
    statement=_POWERS,
    checks=(_by_order, _by_product),
    mutants=changed(_POWERS, least=[Rational(1, 4), Rational(3, 4)], total=[Rational(1, 2), 2]),
)

# ---------------------------------------------------------------- TP-05: which layers are alike

_ALIKE = Values.of(
    "an eighth of the layers apart, the stream of a network of branches times L^(-alpha) is the same in the limit of "
    "many layers for alpha > {least}, and another at alpha = {least}",
    least=Rational(1, 2),
)


@check(Route.PROOF, "E |x_l+L/8 - x_l|^2 / E |x_l|^2 of independent branches, at l = L/2 and L to infinity")
def _apart(s: Values) -> list[bool | None]:
    """Each branch adds a variance of its own, c L^(-2 alpha)."""
    c = scratch("c", positive=True)
    answers: list[bool | None] = []
    for more, is_alike in ((S.Zero, False), (Rational(1, 8), True), (Rational(1, 2), True)):
        added = c * L ** (-2 * (s["least"] + more))
        apart = limit((L / 8 * added) / (1 + L / 2 * added), L, oo)
        answers.append((apart == 0) == is_alike)
    return answers


@check(Route.NUMERIC, "drawn Pre-LN ReLU networks of 64 and 1,024 layers, 64 wide")
def _drawn_apart(s: Values) -> list[bool | None]:
    import numpy as np

    def apart(length: int, alpha: float) -> float:
        generator = np.random.default_rng(5)
        x = generator.normal(size=(32, 64))
        middle = x
        for layer in range(1, 5 * length // 8 + 1):
            middle = x if layer == length // 2 + 1 else middle
            u = x / np.sqrt((x**2).mean(-1, keepdims=True))
            w1, w2 = (generator.normal(size=(64, 64)) / 8 for _ in range(2))
            x = x + length**-alpha * np.maximum(u @ w1, 0) @ w2
        return float(((x - middle) ** 2).sum() / (middle**2).sum())

    answers: list[bool | None] = []
    for more, is_alike in ((0.0, False), (0.25, True)):
        ratio = apart(1024, float(s["least"]) + more) / apart(64, float(s["least"]) + more)
        answers.append(ratio < 0.5 if is_alike else ratio > 0.5)
    return answers


_TP_05 = claim(
    "TP-05",
    kind=Kind.RESULT,
    name="at initialisation",
    locator="Section 1.1",
    quote="with alpha in (1/2, 1] neighbouring layers become alike",
    summary="with a branch of L^(-alpha), alpha above 1/2, layers near one another have the same stream, at 1/2 not",
    statement=_ALIKE,
    checks=(_apart, _drawn_apart),
    mutants=changed(_ALIKE, least=[Rational(1, 4), Rational(3, 4)]),
)

# ---------------------------------------------------------------- TP-03: blocks of two matrices

_ADDITIVE = Values.of(
    "under depth-muP what the two matrices of a block do together in a step, beyond the sum of what each does, is of "
    "order L^({power}) of that sum",
    power=-Rational(1, 2),
)


@check(Route.PROOF, "terms of L^(-1/2) (W2 + s D2) (W1 + s D1), s = L^(-1/2), by their order in s, over all L blocks")
def _by_terms(s: Values) -> list[bool | None]:
    step, w1, w2, d1, d2 = (scratch(name, positive=True) for name in ("s", "w_1", "w_2", "d_1", "d_2"))
    change = expand((w2 + step * d2) * (w1 + step * d1))
    first, second = ((L * L ** -Rational(1, 2) * change.coeff(step, n) * step**n) for n in (1, 2))
    return [((second / first / L ** s["power"]).subs(step, L ** -Rational(1, 2)).simplify()).is_constant(L)]


@check(Route.MEASURED, "drawn Pre-LN networks of 8 and 64 sublayers, after one step of Adam")
def _in_networks(s: Values) -> Answers:
    is_near = second_order.is_near("block/second over block/first", 0.5, float(s["power"]))
    return Answers(holds=[is_near], numbers=second_order.told(0.5))


_OPTIMA = "best learning rates at several depths under depth-muP, of blocks with one matrix and with two"

_TP_03 = Claim(
    id="TP-03",
    kind=Kind.RESULT,
    locator="Section 1.3",
    quote="in blocks of depth 2 and more the weights of a block interact additively, and optima shift with depth",
    summary="under depth-muP the steps of a block's matrices only add up, and optima shift with depth",
    parts=(
        Part(
            name="that they only add up, in a step, at initialisation",
            statement=_ADDITIVE,
            checks=(_by_terms, _in_networks),
            mutants=changed(_ADDITIVE, power=[0, -1]),
        ),
        Part(
            name="that optima shift",
            statement=Values.of("the best rate of blocks of two matrices shifts with depth under depth-muP"),
            checks=(awaits(_OPTIMA),),
            expected=Verdict.UNDECIDED,
            open=_OPTIMA,
        ),
    ),
)

# ---------------------------------------------------------------- TP-04: the rate of networks without a skip

_JELASSI = BranchRule(branch=1 / sqrt(L), rate=L ** -Rational(3, 2), optimizer="sgd", order=L ** -Rational(3, 2))

_TP_04 = claim(
    "TP-04",
    kind=Kind.REMARK,
    name="the first update, at initialisation",
    locator="Section 2.2",
    quote="the learning rate depth^(-3/2), of networks without a skip, is not suitable with residual connections",
    summary="with residual branches of 1/sqrt(L) a rate of depth^(-3/2) makes SGD's first update vanish",
    statement=_JELASSI,
    checks=BRANCH,
    mutants=changed(_JELASSI, order=[S.One, 1 / L], rate=S.One),
)

CLAIMS = (_TP_01, _TP_02, _TP_03, _TP_04, _TP_05)
