"""CompleteP: what its Table 1 multiplies the learning rate and eps by, m_L the ratio of depths, at initialisation."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sympy import Expr, Rational

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import check
from depthlaw.theory.symbols import L, scratch

if TYPE_CHECKING:
    from depthlaw.theory.schemes import Scheme

_alpha = scratch("alpha", positive=True)
_ALPHAS = (Rational(1, 2), Rational(3, 4), Rational(1))
_TABLE = Values.of(
    "with a branch of m_L^(-alpha), 1/2 <= alpha <= 1: AdamW's rate is times m_L^({rate}), its eps times m_L^({eps})",
    rate=_alpha - 1,
    eps=-_alpha,
)


def _scheme(alpha: Expr, rate: Expr) -> Scheme:
    from depthlaw.theory.schemes import SCHEMES
    from depthlaw.theory.stack import PRE, Stack

    stack = Stack(placement=PRE, branch_weight=L**-alpha)
    return replace(SCHEMES["completep"], name=f"branch L^-{alpha}", stack=stack, lr_multiplier=L**rate)


@check(
    Route.MEANFIELD,
    "leading orders of the update under Adam, and of the mean square of a matrix's gradient, at alpha = 1/2, 3/4 and 1",
)
def _by_order(s: Values) -> list[bool | None]:
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.meanfield.setting import Setting

    answers: list[bool | None] = []
    for alpha in _ALPHAS:
        rate, eps = (s[name].subs(_alpha, alpha) for name in ("rate", "eps"))
        update, square = (update_order(Setting.of(_scheme(alpha, rate), name)).power for name in ("adam", "sgd"))
        assert update is not None and square is not None
        answers += [update == 0, (square - 1) / 2 == eps]  # L matrices of each role share SGD's update
    return answers


@check(Route.NUMERIC, "the same, summed sublayer by sublayer, at 10^2, 10^4 and 10^6")
def _by_sum(s: Values) -> list[bool | None]:
    answers: list[bool | None] = []
    for alpha in _ALPHAS:
        rate, eps = (s[name].subs(_alpha, alpha) for name in ("rate", "eps"))
        of = _scheme(alpha, rate)
        for optimizer, power in (("adam", 0.0), ("sgd", float(1 + 2 * eps))):
            ratios = second_meanfield.log_ratios(of, partial(_log, power), "relu", "layernorm", optimizer)
            answers.append(algebra.settles(ratios))
    return answers


def _log(power: float, length: int) -> float:
    return power * math.log(length)


CLAIMS = (
    claim(
        "CP-01",
        kind=Kind.RESULT,
        name="rate and eps, at initialisation",
        locator="Table 1",
        quote="branch m_L^-alpha, AdamW's rate m_L^(alpha - 1), eps m_N^-1 m_L^-alpha",
        summary="with a branch of m_L^-alpha, a rate of m_L^(alpha - 1) and an eps of m_L^-alpha hold AdamW's step",
        statement=_TABLE,
        checks=(_by_order, _by_sum),
        mutants=changed(_TABLE, rate=[_alpha, _alpha - 2, -_alpha / 2], eps=[0 * _alpha, -2 * _alpha]),
    ),
)
