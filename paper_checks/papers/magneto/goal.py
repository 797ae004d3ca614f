"""Magneto's goal, an update that does not grow with depth, and what of it is a guarantee."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from sympy import Expr, Poly, Rational, S, cancel, fraction, lambdify, log, pi, sqrt, together

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Kind,
    Mutant,
    Part,
    Route,
    Sentence,
    Verdict,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.magneto.initialization import through_sublayer
from depthlaw.paper_checks.papers.magneto.theorems import bracket_value
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, growth_part, order_key, order_of
from depthlaw.paper_checks.routes.kernel import GROWTH_BY_KERNEL, InTransformer
from depthlaw.paper_checks.routes.signal_propagation.gelu_growth import GAMMA_GELU, KAPPA, gelu_behind_gamma
from depthlaw.paper_checks.routes.training.arms import trained_only
from depthlaw.theory.symbols import L, scratch

# ---------------------------------------------------------------- the goal: S2-20

_GAMMA = Values.of(gamma_squared=log(L))


def bracket_is_bounded(gamma: Expr) -> bool:
    """Whether the derived bound at that gain is of the order of a number."""
    from depthlaw.theory.bounds.update import derive_bound
    from depthlaw.theory.symbols import init_gain

    return order_key(order_of(derive_bound("sub-ln").uniform.subs(init_gain, gamma))) == (0, 0, 0)


@check(Route.PROOF, "the order of (2/gamma^2)(1 + H_{L-1}): a number")
def _theta_one_derived(s: Values) -> list[bool | None]:
    return [bracket_is_bounded(sqrt(s["gamma_squared"]))]


@check(Route.NUMERIC, "its value at 10^2, 10^4, 10^6")
def _theta_one_summed(s: Values) -> list[bool | None]:
    square = lambdify(L, s["gamma_squared"], modules="mpmath")
    return [algebra.settles([math.log(bracket_value(x, square(x))) for x in second_meanfield.LENGTHS])]


def true_update(
    name: str,
    scheme: str,
    order: Expr,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    *,
    instead: tuple[Expr, str | Sentence] | None = None,
    **rest: Any,
) -> Part:
    """The update of a network against a printed order; refuted where the true one stands in ``instead``."""
    statement = Growth(scheme=scheme, activation=activation, norm_kind=norm_kind, order=order)
    expected = Verdict.CONFIRMED if instead is None else Verdict.REFUTED
    return growth_part(f"the true update, {name}", statement, expected=expected, instead=instead, **rest)


_TRUE_ORDER = (L ** (1 / (pi - 1)) / log(L), "Theta(L^(1/(pi - 1)) / log L)")
AT_GAMMA = (
    true_update("relu, LayerNorm (the paper's sublayer)", "sub-ln-gamma", S.One, instead=_TRUE_ORDER, condition=KAPPA),
    true_update("gelu, LayerNorm", "sub-ln-gamma", S.One, "gelu", instead=GAMMA_GELU, condition=KAPPA),
    gelu_behind_gamma(),
    true_update("relu, RMSNorm", "sub-ln-gamma", S.One, "relu", "rmsnorm"),
)
"""The update of real networks at gamma = sqrt(log L), which is to be Theta(1)."""

FLAT_REAL = InTransformer(scheme="sub-ln-gamma", order=S.One, is_upper=True)


def part_of_real(name: str, statement: InTransformer, **rest: Any) -> Part:
    """What the kernel rung decides alone."""
    mutants = (
        Mutant(name="falls as 1/log L", statement=replace(statement, order=1 / log(L))),
        Mutant(name="at gain 1", statement=replace(statement, scheme="sub-ln")),
    )
    return Part(name=name, statement=statement, checks=(GROWTH_BY_KERNEL,), mutants=mutants, **rest)


REAL_MODEL = part_of_real(
    "in a real Transformer, softmax attention over 16 tokens and an FFN in turn: the matrices (relu, LayerNorm)",
    FLAT_REAL,
    expected=Verdict.REFUTED,
    condition=KAPPA,
    instead=Amendment(
        statement=replace(FLAT_REAL, order=L ** Rational(1, 4) / log(L)),
        text=sentence(
            "between log L and L^(1/4), over log L: up to N = 1,000 the update times log L rises with the power "
            "{power:.1f} of L, as the model of one token has it, 1/(2(pi - 1)) = {model:.3f}",
            power=number("in a real Transformer, softmax", "power of L of its rises"),
            model=1 / (2 * (pi - 1)),
        ),
    ),
)
REAL_RMS = part_of_real("in a real Transformer: the matrices (relu, RMSNorm)", replace(FLAT_REAL, norm_kind="rmsnorm"))
S2_20 = Claim(
    id="S2-20",
    kind=Kind.RESULT,
    locator="Section 3.2, Derivation and Implementation, GOAL",
    quote="GOAL: F(x, θ)\nis updated by\nΘ(η)\nper SGD step after initialization as\nη0\n. That is\nFsub = Θ(ηd)where",
    summary="goal: one SGD step changes the function by Theta(eta d), which gamma = sqrt(log L) is to reach",
    uses=("S2-21",),
    parts=(
        Part(
            name="the printed bound at gamma = sqrt(log L)",
            statement=_GAMMA,
            checks=(_theta_one_derived, _theta_one_summed),
            mutants=changed(_GAMMA, gamma_squared=[sqrt(log(L)), log(L) ** 2]),
        ),
        *AT_GAMMA,
    ),
)

# ---------------------------------------------------------------- the model: attention and FFN in turn

_FLAT_MODEL = Values.of(
    "update of sub-ln-gamma, attention over one token and an FFN in turn, relu, layernorm under sgd = {sign}({order})",
    sign="O",
    order=1,
)


def _alternating_update(length: int) -> float:
    """Attention over one token, W_o LN(W_v LN(x)), is an FFN without an activation; the FFN has ReLU."""
    network = second_meanfield.coefficients("sub-ln-gamma", length)
    attention, ffn = (
        second_meanfield.at_gains(network.norms, network.gain_out, network.gain_in, activation, "layernorm")
        for activation in ("identity", "relu")
    )
    of_two = [(sub.branch, sub.through, sub.fc1 + sub.fc2) for sub in (attention, ffn)]
    branch, through, squares = np.tile(np.transpose(of_two), math.ceil(length / 2))[:, :length]
    logs = second_meanfield.log_gradients(network.norms, np.ones(length), branch, through)
    return math.exp(second_meanfield.log_sum(logs, squares))


@check(Route.NUMERIC, "the update summed, over the order")
def _alternating_summed(s: Values) -> Answers:
    updates = {length: _alternating_update(length) for length in second_meanfield.LENGTHS}
    ratios = [math.log(value / float(s["order"].subs(L, length))) for length, value in updates.items()]
    holds = algebra.settles(ratios) or (s["sign"] == "O" and algebra.falls_away(ratios))
    slopes = {}
    for power in (3, 4, 5):
        low, high = (_alternating_update(int(10**power * shift)) * math.log(10**power * shift) for shift in (0.8, 1.25))
        slopes[f"local power of update * log L at 10^{power}"] = float(f"{math.log(high / low) / math.log(1.5625):.3f}")
    counterexample = {
        "printed": f"{s['sign']}({s['order']}), attention and FFN in turn",
        "found": ", ".join(f"{value:.4g} eta d at L = {length}" for length, value in updates.items()),
        "command": "depthlaw predict --attention --tokens 1 --ffn-ratio 1 --optimizer sgd --scheme sub-ln-gamma "
        "--activation relu --norm-kind layernorm --layers 50,500",
    }
    return Answers(
        holds=[holds],
        num_effective=len(ratios),
        detail="update / order at 10^2, 10^4, 10^6, sublayer by sublayer, kappa = 1 and pi/(pi - 1) in turn: "
        + ("settles" if holds else "does not settle"),
        numbers=slopes,
        counterexample=None if holds else counterexample,
    )


@cache
def _alternating_exponent() -> Expr:
    """e of D_1 ~ L^(e - 1): two sublayers multiply the gradient by 1 + e/j + ..., from theory's form of a sublayer."""
    gain, j = scratch("gain", positive=True), scratch("j", positive=True)
    square, zero = gain**2, S.Zero
    of_attention = (square, square, zero, zero, S.One, zero)
    of_ffn = (square / 2, square / 2 * (1 - 1 / pi), zero, zero, S.Half, zero)
    stream, product = 1 + square * (2 * j - 2), S.One
    for moments in (of_attention, of_ffn):
        sublayer = through_sublayer("sub", moments, stream=stream, gain_in=gain, gain_out=gain)
        product, stream = product * sublayer.gradient_ratio, sublayer.stream
    above, below = (Poly(part, j) for part in fraction(cancel(together(product))))
    excess = above - below  # one degree less than either
    assert excess.degree() == below.degree() - 1
    return cancel(excess.LC() / below.LC())


@check(
    Route.MEANFIELD,
    "two sublayers multiply the gradient by 1 + e/j, e = (1 + pi/(pi - 1))/2: attention, without phi, adds no "
    "more than telescopes",
)
def _alternating_by_theory(s: Values) -> list[bool | None]:
    exponent = _alternating_exponent()
    derived = order_key(order_of(L ** (exponent - 1) / log(L)))
    printed = order_key(order_of(s["order"]))
    values = [[float(part.evalf(20)) for part in key] for key in (derived, printed)]
    if all(abs(a - b) < 1e-15 for a, b in zip(*values, strict=True)):
        return [True]
    return [s["sign"] == "O" and values[0] < values[1]]


_MODEL = Part(
    name="what is derived, the model: attention over one token and an FFN in turn (relu, LayerNorm)",
    statement=_FLAT_MODEL,
    checks=(_alternating_by_theory, _alternating_summed),
    mutants=(
        Mutant(name="1/log L", statement=_FLAT_MODEL.with_(order=1 / log(L))),
        Mutant(name="that of FFNs", statement=_FLAT_MODEL.with_(sign="Theta", order=_TRUE_ORDER[0])),
    ),
    expected=Verdict.REFUTED,
    condition=KAPPA,
    instead=Amendment(
        statement=_FLAT_MODEL.with_(sign="Theta", order=L ** (1 / (2 * (pi - 1))) / log(L)),
        text=f"Theta(L^(1/(2(pi - 1))) / log L), the power {1 / (2 * (math.pi - 1)):.3f}, half of that of a stack of "
        "FFNs: the derived guarantee does not hold, the update of the first step still grows with depth",
    ),
)

# ---------------------------------------------------------------- S2-24

_FLAT = Growth(scheme="sub-ln-gamma", order=S.One, is_upper=True)
_TRAINING = "training runs of Magneto and Pre-LN by depth and learning rate"

_S2_24 = Claim(
    id="S2-24",
    kind=Kind.RESULT,
    locator="Abstract, and Section 1",
    quote="tecture for various tasks and modalities with\nguaranteed training stability.",
    summary="Magneto has guaranteed training stability",
    uses=("S2-17", "S2-20"),
    parts=(
        growth_part(
            "what is derived, FFN sublayers alone: the first step's update does not grow with depth (relu, LayerNorm)",
            _FLAT,
            expected=Verdict.REFUTED,
            instead=(_TRUE_ORDER[0], f"{_TRUE_ORDER[1]}: of FFN sublayers alone the derived guarantee does not hold"),
            condition=KAPPA,
            wrong=1 / log(L),
        ),
        _MODEL,
        growth_part(
            "the same, FFN sublayers alone, RMSNorm, relu", replace(_FLAT, norm_kind="rmsnorm"), wrong=1 / log(L)
        ),
        REAL_MODEL,
        REAL_RMS,
        trained_only(
            "from the first step to training",
            "a first step whose first-order change of the function does not grow with depth, at one input and at "
            "initialisation, guarantees that training is stable",
            _TRAINING,
            f"{_TRAINING}: no bound of the paper says anything of a second step",
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (S2_20, _S2_24)
