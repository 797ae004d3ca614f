"""CompleteP: what Table 1 multiplies rate, eps and decay by, m_L the ratio of depths, and a block's second order."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from sympy import Expr, Rational, expand, log, simplify, solve

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Finding, Kind, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra, second_meanfield, second_order
from depthlaw.paper_checks.routes.checks import Answers, check, python_command
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
    return second_meanfield.variant("completep", branch_weight=L**-alpha, lr_multiplier=L**rate)


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


_CP_01 = claim(
    "CP-01",
    kind=Kind.RESULT,
    name="rate and eps, at initialisation",
    locator="Table 1",
    quote="branch m_L^-alpha, AdamW's rate m_L^(alpha - 1), eps m_N^-1 m_L^-alpha",
    summary="with a branch of m_L^-alpha, a rate of m_L^(alpha - 1) and an eps of m_L^-alpha hold AdamW's step",
    statement=_TABLE,
    checks=(_by_order, _by_sum),
    mutants=changed(_TABLE, rate=[_alpha, _alpha - 2, -_alpha / 2], eps=[0 * _alpha, -2 * _alpha]),
)

# ---------------------------------------------------------------- CP-02: a block's change to second order

_ORDERS = Values.of(
    "a block of two matrices, L^(-alpha) W2 phi(W1 x), whose weights move by L^(alpha - 1): its change is L^({first}) "
    "to first order and L^({second}) to second, and the two are of one order at alpha = {equal} alone",
    first=-1,
    second=_alpha - 2,
    equal=1,
)


_TERMS = ("first", "second")


@check(Route.PROOF, "terms of L^(-alpha) (W2 + s D2) (W1 + s D1) in s = L^(alpha - 1)")
def _by_expansion(s: Values) -> list[bool | None]:
    step, w1, w2, d1, d2 = (scratch(name, positive=True) for name in ("s", "w_1", "w_2", "d_1", "d_2"))
    change = expand((w2 + step * d2) * (w1 + step * d1) - w2 * w1)
    orders = [simplify(log(L**-_alpha * L ** (n * (_alpha - 1))) / log(L)) for n in (1, 2)]
    has_both = all(change.coeff(step, n) != 0 for n in (1, 2))
    equal = solve(orders[0] - orders[1], _alpha)
    return [
        has_both and algebra.equal(s["first"], orders[0]) and algebra.equal(s["second"], orders[1]),
        equal == [s["equal"]],
    ]


@check(Route.MEASURED, "drawn Pre-LN networks of 8 and 64 sublayers, one step of Adam, alpha = 1/2 and 1")
def _in_networks(s: Values) -> Answers:
    holds: list[bool | None] = []
    for alpha in (_ALPHAS[0], _ALPHAS[-1]):
        asked = {n: float((s[n] + 0 * _alpha).subs(_alpha, alpha)) for n in _TERMS}
        holds += [second_order.is_near(f"block/{n}", float(alpha), power) for n, power in asked.items()]
    return Answers(holds=holds, numbers=second_order.told(0.5) | second_order.told(1.0))


_CP_02 = claim(
    "CP-02",
    kind=Kind.STEP,
    name="one step of Adam, at initialisation",
    locator="(6)",
    quote="the linear term of a block's change is of order L^-1, the second-order one of L^(alpha - 2): equal order "
    "only at alpha = 1",
    summary="a block's change is of order L^-1 to first order and L^(alpha - 2) to second, equal at alpha = 1 alone",
    statement=_ORDERS,
    checks=(_by_expansion, _in_networks),
    mutants=changed(_ORDERS, first=[-2, -_alpha], second=[-1 + 0 * _alpha, 2 * _alpha - 3], equal=Rational(1, 2)),
)

# ---------------------------------------------------------------- CP-05: weight decay

_DECAY = Values.of(
    "AdamW's weight decay is times m_L^({decay}), 1/2 <= alpha <= 1: what it takes off a weight {measure} does not "
    "depend on the depth (the project's criterion: the source prints none)",
    decay=0,
    measure="in a step",
)
_BESIDE = _DECAY.with_(measure="beside Adam's own step")


@check(Route.PROOF, "the power of m_L in rate times decay, or that over the rate, which is times m_L^(alpha - 1)")
def _taken_off(s: Values) -> Answers:
    own = _alpha - 1 if s["measure"] == _BESIDE["measure"] else 0
    powers = {alpha: (_alpha - 1 + s["decay"] - own).subs(_alpha, alpha) for alpha in _ALPHAS}
    holds = [power == 0 for power in powers.values()]
    example = {
        "printed": s.text,
        "found": "at alpha = 1/2 and four times the depth the rate is half, and so is what decay takes off",
        "command": python_command("print(*[4**(alpha - 1) for alpha in (0.5, 0.75, 1)])"),
    }
    numbers = {f"alpha = {alpha}": str(power) for alpha, power in powers.items()}
    return Answers(holds=holds, numbers=numbers, counterexample=None if all(holds) else example)


@check(
    Route.NUMERIC,
    "torch's AdamW, m_L = 1 and 16: what is left of a weight after 100 steps without a gradient, or what decay takes "
    "off over what a gradient does",
    is_slow=True,
)
def _left(s: Values) -> list[bool | None]:
    import torch

    def after(alpha: Expr, ratio: int, gradient: float, decay: float, num_steps: int) -> float:
        weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        rate, times = (float(ratio ** power.subs(_alpha, alpha)) for power in (_alpha - 1, s["decay"] + 0 * _alpha))
        optimizer = torch.optim.AdamW([weight], lr=0.1 * rate, weight_decay=decay * times)
        for _ in range(num_steps):
            weight.grad = torch.full_like(weight, gradient)
            optimizer.step()
        return weight.item()

    def left(alpha: Expr, ratio: int) -> float:
        if s["measure"] == _DECAY["measure"]:
            return after(alpha, ratio, 0, 0.1, 100)
        both, own = (after(alpha, ratio, 1, decay, 1) for decay in (0.1, 0))
        return (both - own) / (own - 1)

    return [abs(left(alpha, 16) - left(alpha, 1)) < 1e-9 for alpha in _ALPHAS]


_CP_05 = claim(
    "CP-05",
    kind=Kind.REMARK,
    name="a step, at initialisation or later",
    locator="Table 1",
    quote="weight decay has no m_L at any alpha",
    summary="AdamW's weight decay needs no factor of depth, whatever alpha",
    statement=_DECAY,
    checks=(_taken_off, _left),
    mutants=(*changed(_DECAY, decay=[1, Rational(1, 2)]), *changed(_BESIDE, decay=[1, 1 - _alpha])),
    expected=Verdict.CONDITIONAL,
    hedge=Amendment(
        statement=_BESIDE,
        text="beside Adam's own step, which is times the rate as well: what decay takes off in a step, rate times "
        "decay, would need a decay times m_L^(1 - alpha), no factor at alpha = 1 alone",
    ),
    finding=Finding(
        "CompleteP's Table 1 leaves weight decay without a factor of depth at every alpha: right beside Adam's own "
        "step; rate times decay, what a step takes off, is independent of depth at alpha = 1 alone",
        rank=91,
    ),
)

CLAIMS = (_CP_01, _CP_02, _CP_05)
