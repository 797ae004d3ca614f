"""Growth of the update at depths that no sum reaches: log L = 10^2, 10^4, 10^6, sums over sublayers in closed form.

GELU is nearly homogeneous: behind RMSNorm its kappa is 1.07 at gain 1, and 1 + 0.11/gamma at a large gain gamma. What
grows as L^(kappa - 1) then hides behind log L at every L that can be added up. With the same gain in every sublayer

    D_l = prod_{j > l} (j - 1 + c + kappa)/(j - 1 + c) / q_L,   q_l = (l + c)/c,   c = 1/(what a branch adds),

and the sum of D_l is a ratio of Gamma functions, which at L = e^100 and beyond is exact to all digits that are kept.
"""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
from sympy import Expr, Rational, S, exp, lambdify, log, pi, sqrt

from depthlaw.paper_checks.claims.claim import Part, Route, Sentence, Verdict, sentence
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import GROWTH, Answers, check, growth_part
from depthlaw.theory.symbols import L

KAPPA = (
    "kappa = w^2 E phi'(w z)^2/s^2 = 1, s what the inner norm divides by, z ~ N(0, 1): ReLU behind RMSNorm, which "
    "subtracts no mean, or no activation; behind LayerNorm kappa > 1 for every phi that is not affine, by the Gaussian "
    "Poincare inequality w^2 E phi'(w z)^2 >= Var phi(w z)"
)
"""What makes Sub-LN's gradients telescope."""
EQUAL_MOMENTS = (
    "w^2 E phi'(w z)^2 = E phi(w z)^2, z ~ N(0, 1), as ReLU has it at every w; where it is less, the update is of "
    "smaller order, so that O() stands"
)
"""The same of Post-LN and Pre-LN, which have no inner norm."""

_LOGS = (10**2, 10**4, 10**6)


def _log_update(statement: Growth, log_length: float) -> mpmath.mpf:
    """log of the update of a stack of Pre-LN or Sub-LN at L = e^log_length."""
    stack = second_meanfield.scheme(statement.scheme).stack
    if not stack.placement.pre or statement.optimizer != "sgd":
        raise ValueError(f"no sum of {statement.scheme} under {statement.optimizer} here")
    gain = float(lambdify(L, stack.gain_in, modules="mpmath")(mpmath.exp(log_length)))
    sublayer = second_meanfield.at_gains(stack.placement, gain, gain, statement.activation, statement.norm_kind)
    kappa, c = sublayer.through / sublayer.branch, mpmath.mpf(1) / sublayer.branch
    first = mpmath.gamma(1 + c) / mpmath.gamma(c + kappa)
    reaching = c * (first * mpmath.exp((kappa - 1) * log_length) - 1) / (kappa - 1)
    return mpmath.log((sublayer.fc1 + sublayer.fc2) * reaching)


@check(Route.NUMERIC, "")
def _by_gamma_functions(statement: Growth) -> Answers:
    order = lambdify(L, log(statement.order), modules="mpmath")
    with mpmath.workdps(30):
        ratios = [_log_update(statement, x) - order(mpmath.exp(x)) for x in _LOGS]
        holds = algebra.settles(ratios)
        numbers = {f"log L = {x}": f"exp({mpmath.nstr(r, 4)})" for x, r in zip(_LOGS, ratios, strict=True)}
    detail = "update / order at log L = 10^2, 10^4, 10^6, sums in Gamma functions, moments by quadrature: "
    outcome = "settles" if holds else "does not settle"
    return Answers(holds=[holds], num_effective=len(ratios), detail=detail + outcome, numbers=numbers)


def gelu_part(name: str, statement: Growth, *, instead: tuple[Expr, str | Sentence], condition: str | Sentence) -> Part:
    """A printed order that GELU breaks so slowly that sums up to 10^6 sublayers do not tell."""
    part = growth_part(name, statement, expected=Verdict.REFUTED, instead=instead, condition=condition)
    return replace(part, checks=(GROWTH[0], _by_gamma_functions))


GELU_SECOND, GELU_SLOPE = sqrt(3) / (6 * pi) + Rational(1, 3), 2 * sqrt(3) / (9 * pi) + Rational(1, 3)
"""E phi^2 and E phi'^2 of GELU at gain 1."""
_RMS_KAPPA = GELU_SLOPE / GELU_SECOND
KAPPA_POST = (1 + GELU_SLOPE) / (1 + GELU_SECOND)
"""What one sublayer of Post-LN with GELU at gain 1 multiplies the gradient's square by."""
GELU_RMS = (
    L ** (_RMS_KAPPA - 1),
    f"Theta(L^(kappa - 1)) = Theta(L^{float(_RMS_KAPPA - 1):.3f}), "
    f"kappa = E phi'^2 / E phi^2 = {float(_RMS_KAPPA):.3f} of GELU at w = 1",
)
"""Sub-LN behind RMSNorm, and Pre-LN, at gains 1."""
GAMMA_GELU = (
    L ** (1 / (pi - 1)) * exp(sqrt(2) * sqrt(log(L)) / (4 * (pi - 1))) / log(L),
    "Theta(L^(1/(pi - 1)) exp(sqrt(2 log L)/(4(pi - 1))) / log L): at w = sqrt(log L) GELU is nearly ReLU",
)
GAMMA_GELU_RMS = (
    exp(sqrt(2) * sqrt(log(L)) / (4 * pi)) / sqrt(log(L)),
    sentence(
        "Theta(exp(sqrt(2 log L)/(4 pi)) / sqrt(log L)), slower than any power: {updates} at L = 10^2, 10^4, 10^6",
        updates=lambda: ", ".join(
            f"{math.exp(second_meanfield.log_update('sub-ln-gamma', length, 'gelu', 'rmsnorm')):.2f}"
            for length in second_meanfield.LENGTHS
        ),
    ),
)


def gelu_behind_gamma() -> Part:
    """Sub-LN at gamma = sqrt(log L) behind RMSNorm: bounded for ReLU, and just not for GELU."""
    return gelu_part(
        "the true update, gelu, RMSNorm",
        Growth(scheme="sub-ln-gamma", activation="gelu", norm_kind="rmsnorm", order=S.One),
        instead=GAMMA_GELU_RMS,
        condition=KAPPA,
    )
