"""The order of the update against the update itself, far out: the ratio tends to 1 as the stated correction says."""

import math
from fractions import Fraction
from functools import cache

import mpmath
import pytest
from sympy import Expr, Rational, S, log, nan, oo, pi, sqrt, sympify

from depthlaw.theory import tables
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.asymptotics.expansion import BeyondScaleError, sign_of
from depthlaw.theory.asymptotics.orders import ZERO, Order, cross_check
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.meanfield.update import cached_closed_form, predict_setting
from depthlaw.theory.schemes import custom_scheme
from depthlaw.theory.symbols import L
from tests.often import often

OPTIMIZERS = ("sgd", "adam", "lamb", "lars", "muon")
half = S.Half


@cache
def log10_update(setting: Setting, num: int) -> float:
    return predict_setting(setting, num).log10_update


def miss(setting: Setting, order: Order, num: int) -> float:
    """log(update / order) at ``num`` sublayers."""
    far = mpmath.log(evaluate(order.expression(L), {L: num}))
    return float(log10_update(setting, num) * mpmath.log(10) - far)


def at(expr: Expr, num: int) -> float:
    return abs(float(evaluate(expr, {L: num})))


def is_right(setting: Setting, order: Order) -> bool:
    """At 10^6 and 10^9 the miss is the stated next term, or shrinks as the stated remainder does."""
    if order.is_slow and (form := cached_closed_form(setting)) is not None:
        return len(cross_check(form.update, L, order)) > 3  # 10^9 is not far; it goes out to 10^4000
    near, far = (abs(miss(setting, order, num)) for num in (10**6, 10**9))
    rounding = 1e-12 + 4e-16 * abs(log10_update(setting, 10**9)) * math.log(10)
    if order.next_term is not None:
        return far <= 2 * at(order.next_term, 10**9) + rounding and near <= 4 * at(order.next_term, 10**6) + rounding
    if order.remainder is not None:
        return far <= 4 * near * at(order.remainder, 10**9) / at(order.remainder, 10**6) + rounding
    shadow = at(order.shadow, 10**6) if order.shadow is not None else 0
    return max(near, far) <= rounding + 2 * shadow


FLAT, LOG, ROOT, LINEAR = (0, 0, 0), (0, 1, 0), (half, 0, 0), (1, 0, 0)
# relu, layernorm: powers of (L, log L, log log L) under sgd, adam and lamb, by hand
POWERS = {
    "post-ln": (LINEAR, LINEAR, LINEAR),
    "pre-ln": (LOG, ROOT, ROOT),
    "sub-ln": ((1 / (pi - 1), 0, 0), ROOT, ROOT),
    "normformer": ((1 / (pi - 1), 0, 0), ROOT, ROOT),
    "sub-ln-gamma": ((1 / (pi - 1), -1, 0), (half, -half, 0), ROOT),
    "peri-ln": (LOG, ROOT, ROOT),
    "admin": (LOG, ROOT, ROOT),
    "deepnorm": (FLAT, ROOT, (Rational(1, 4), 0, 0)),
    "su-sgd": (FLAT, ROOT, (Rational(1, 4), 0, 0)),
    "su-adam": ((-1, 0, 0), FLAT, (-half, 0, 0)),
    "su-lamb": (FLAT, ROOT, FLAT),  # alpha = 1 is Su's alternative 1 for SGD, too
    "su-pre-sgd": (FLAT, ROOT, FLAT),
    "su-pre-adam": ((-1, 0, 0), FLAT, (-1, 0, 0)),
    "su-pre-lamb": (FLAT, ROOT, FLAT),
    "gpt2": ((1, 0, 0), (1, 0, 0), ROOT),
    "fixup": (FLAT, ROOT, None),
    "t-fixup": (FLAT, ROOT, (Rational(1, 4), 0, 0)),
    "rezero": (None, None, None),
    "skipinit": (None, None, None),
    "depth-mup": (FLAT, FLAT, FLAT),
    "completep": ((-1, 0, 0), FLAT, FLAT),
    "ln-scaling": ((0, 0, 1), (half, -half, 0), (half, -half, 0)),
    "branch-ln": (LOG, ROOT, ROOT),
    "keel": ((-1, 0, 0), FLAT, FLAT),
    "mix-ln": (LINEAR, LINEAR, LINEAR),
    "hybrid-norm": (LINEAR, LINEAR, LINEAR),
    "mitchell": ((1, -1, 0), (1, -half, 0), (half, -half, 0)),
    "residual": (LINEAR, LINEAR, LINEAR),
}

APPROACHED = ("branch-ln", "keel", "mix-ln", "hybrid-norm", "mitchell", "residual")
"""Schemes that ``test_block_schemes.py`` approaches."""
OPEN = ("ln-scaling", "fixup", "rezero", "skipinit", *APPROACHED)
"""Schemes without a closed form, or without an update."""
CLOSED = [name for name in POWERS if name not in OPEN]
IN_TURN = [(name, OPTIMIZERS[i % len(OPTIMIZERS)], "relu") for i, name in enumerate(CLOSED)]
BENT = [("fixup", "sgd", "relu"), ("post-ln", "sgd", "gelu"), ("sub-ln", "adam", "gelu"), ("gpt2", "lamb", "tanh")]
"""fixup, whose update is 0 under most; and each way in which an activation that is not homogeneous enters an order."""


@pytest.mark.parametrize("name, opt, act", often([*IN_TURN, *BENT], 3, wide=1))
def test_the_update_approaches_its_order(name, opt, act):
    setting = Setting.of(name, opt, act)
    order = update_order(setting)
    assert is_right(setting, order)


def test_a_saturating_activation_under_growing_gains_outgrows_every_power():
    """sub-ln-gamma with tanh: kappa grows like sqrt(log L), so the exponent does like its 3/2."""
    setting = Setting.of("sub-ln-gamma", "sgd", "tanh", "layernorm")
    order = update_order(setting)
    assert (order.coefficient, order.power) == (nan, oo)
    slope = sqrt(2 / pi) * 2 / 3  # kappa / s of tanh, s -> oo: E phi'^2 s^2 / E phi^2 -> s (2/3) sqrt(2/pi)
    assert sign_of(order.growth / log(L) ** Rational(3, 2) - slope) == 0
    ratios = [predict_setting(setting, 10**e).log10_update * math.log(10) / at(order.growth, 10**e) for e in (4, 8, 12)]
    assert ratios[0] > ratios[1] > ratios[2] > 1 or ratios[0] < ratios[1] < ratios[2] < 1


def test_ln_scaling_grows_like_log_log():
    """update - 2 log log L tends to a constant, slowly: between L and L^2 the update grows by 2 log 2."""
    setting = Setting.of("ln-scaling", "sgd")
    order = update_order(setting)
    assert (order.coefficient, order.power, order.log_power, order.loglog_power) == (2, 0, 0, 1)
    values = {e: predict_setting(setting, 10**e).update for e in (3, 4, 5, 6, 8, 10, 12)}
    misses = [abs(values[2 * e] - values[e] - 2 * math.log(2)) for e in (3, 4, 5, 6)]
    assert misses == sorted(misses, reverse=True) and misses[-1] < 0.25


def test_a_cell_of_a_table_is_the_constant_that_it_stands_for():
    """Its text may be shorter than the expression, and must not change it."""
    for kind, act in (("layernorm", "gelu"), ("rmsnorm", "tanh")):  # exact, and in decimals
        constant = tables._cross_order("sub-ln", kind, act, "sgd", False).coefficient
        assert float(sympify(tables.constant_cell(constant))) == pytest.approx(float(evaluate(constant, {})), rel=1e-14)


def custom(norm: str, weight: tuple[str, str], opt: str, act: str, branch: tuple[str, str] = ("1", "0")) -> Setting:
    residual, b = ((Fraction(c), Fraction(p)) for c, p in (weight, branch))
    return Setting.of(custom_scheme(norm, residual_weight=residual, branch_weight=b), opt, act)


WEIGHTS = [("9/10", "0"), ("11/10", "0"), ("1", "1/4"), ("1", "-1/10"), ("1/2", "1/10"), ("2", "-1/10")]
CUSTOM = [
    *(("pre", weight, "adam", "relu", ("1", "-1/2")) for weight in WEIGHTS),
    *(("sub", weight, "adam", "relu", ("1", "-1/2")) for weight in WEIGHTS[3:]),
    *(("pre", weight, "sgd", "gelu", ("1", "0")) for weight in WEIGHTS),
    *((norm, WEIGHTS[0], "sgd", "gelu", ("1", "0")) for norm in ("sub", "peri")),
]
"""Every place of the norms, and each kind of residual weight: below 1, above 1, growing and shrinking with L."""


@pytest.mark.parametrize("norm, weight, opt, act, branch", CUSTOM, ids=str)
def test_residual_weights_other_than_one(norm, weight, opt, act, branch):
    setting = custom(norm, weight, opt, act, branch)
    if weight == ("11/10", "0") and branch == ("1", "0"):
        with pytest.raises(BeyondScaleError, match="infinite product"):
            update_order(setting)
        return
    order = update_order(setting)
    if order.coefficient is nan:  # rho > 1 before the stream has settled: only the exponent is known
        assert order.power is oo and (norm, act) not in (("pre", "relu"), ("peri", "relu"))
        ratio = log10_update(setting, 10**9) * math.log(10) / at(order.growth, 10**9)
        assert abs(ratio - 1) < 1e-6
    else:
        assert is_right(setting, order)


@pytest.mark.parametrize("name", POWERS)
def test_powers_under_sgd_adam_and_lamb(name):
    for opt, wanted in zip(("sgd", "adam", "lamb"), POWERS[name], strict=True):
        order = update_order(Setting.of(name, opt))
        if wanted is None:
            assert order == ZERO
        else:
            powers = (order.power, order.log_power, order.loglog_power)
            assert not any(sign_of(power - known) for power, known in zip(powers, wanted, strict=True)), opt
