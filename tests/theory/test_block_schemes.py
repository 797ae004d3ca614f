"""Schemes of the blocks that people train, whose norms differ by sublayer, are functions, or stand on two streams.

Their updates against the recursion written out again in numpy, and their orders against their updates.
"""

import math

import numpy as np
import pytest
from sympy import log, nan, oo

from depthlaw.theory.asymptotics.expansion import sign_of
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.schemes import scheme
from depthlaw.theory.stack import Stack
from depthlaw.theory.symbols import L
from tests.often import often

NONE, POST, PRE = (), ("post",), ("pre",)
PLACES = {
    "mix-ln": lambda index, num: POST if math.ceil(index / 2) <= num / 8 else PRE,
    "hybrid-norm": lambda index, num: ("pre", "post") if index % 2 else NONE,
    "dyt": lambda index, num: PRE,
    "derf": lambda index, num: PRE,
    "residual": lambda index, num: POST,
}
"""Where norms stand in sublayer ``index`` of ``num``, as the sources say it."""
OTHERS = ("branch-ln", "keel", "mitchell")
"""Their updates are held against ``tests.scalarnet``."""
SECOND_OF = {"dyt": np.tanh, "derf": np.vectorize(math.erf)}
SLOPE_OF = {"dyt": lambda u: 1 / np.cosh(u) ** 2, "derf": lambda u: 2 / math.sqrt(math.pi) * np.exp(-(u**2))}
_Z = np.linspace(-8, 8, 4001)
_WEIGHTS = np.exp(-(_Z**2) / 2) / np.exp(-(_Z**2) / 2).sum()


def normed(name: str, stream: float) -> tuple[float, float]:
    """The second moment behind what stands in a norm's place, and the factor of the squared gradient."""
    if name not in SECOND_OF:
        return 1.0, 1 / stream
    u = 0.5 * math.sqrt(stream) * _Z
    return float(_WEIGHTS @ SECOND_OF[name](u) ** 2), float(_WEIGHTS @ SLOPE_OF[name](u) ** 2) / 4


def by_hand(name: str, num: int) -> float:
    """The update of a relu stack under sgd: E relu^2 = s^2/2 and E relu'^2 = 1/2 at a preactivation of variance s^2.

    Forward, the second moment of the stream; backward, that of the gradients at x and, for ResiDual, at y.
    """
    stream, second, walked = 1.0, 1.0, []
    for index in range(1, num + 1):
        places = PLACES[name](index, num)
        into, slope = normed(name, stream) if "pre" in places else (stream, 1.0)
        total = stream + into / 2
        after = total if "post" in places else 1.0
        walked.append((into, slope, after))
        second += into / 2
        stream = total / after
    at_y = 1 / second if name == "residual" else 0.0
    at_x = 1.0 if name == "residual" else normed(name, stream)[1]
    both, update = math.sqrt(at_y), 0.0
    for into, slope, after in reversed(walked):
        at_x, both = at_x / after, both / math.sqrt(after)
        at_branch = at_x + 2 * both + at_y
        update += at_branch * into
        at_x += at_branch / 2 * slope
    return update


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("num", [1, 8, 40])
def test_updates_are_those_of_the_recursion_by_hand(name: str, num: int) -> None:
    assert predict(name, "sgd", num).update == pytest.approx(by_hand(name, num), rel=1e-9)


@pytest.mark.parametrize("name", ["mitchell", "dyt"])
def test_a_leap_goes_on_from_the_recursion(name: str) -> None:
    """20,000 sublayers are walked, more are summed by Euler-Maclaurin: the slope of the logarithm does not jump."""
    logs = [predict(name, "adam", num).log10_update for num in (19_900, 20_000, 20_100)]
    assert logs[2] - logs[1] == pytest.approx(logs[1] - logs[0], rel=0.01)


def test_a_kappa_beside_one_cancels_from_the_order() -> None:
    """Behind a gelu kappa is 1.07, and D_l = q_L^(kappa - 1) / q_l^kappa: near the head, where most of the sum is, both
    powers of log L make 1 / log L."""
    order = update_order(Setting.of("mitchell", "sgd", "gelu"))
    assert order.power == 1 and order.log_power is not None and sign_of(order.log_power + 1) == 0


@pytest.mark.parametrize(
    "activation", ["relu", pytest.param("gelu", marks=pytest.mark.slow), pytest.param("tanh", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", often([*PLACES, *OTHERS], 4, wide=2))
def test_the_update_approaches_its_order(name: str, activation: str) -> None:
    """At 2^8, 2^12 and 2^16 sublayers ever nearer: the ratio where there is a coefficient, else that of logarithms."""
    setting, misses = Setting.of(name, "sgd", activation), []
    order = update_order(setting)
    for exponent in (8, 12, 16):
        size = predict(name, "sgd", 2**exponent, activation=activation).log10_update * math.log(10)
        if order.coefficient is nan:
            assert order.power is oo
            misses.append(abs(size / float(order.growth.subs(L, 2**exponent)) - 1))
        else:
            misses.append(abs(size - float(log(order.expression(L).subs(L, 2**exponent)).evalf())))
    assert misses[2] <= misses[1] + 1e-9 and misses[1] <= misses[0] + 1e-9
    assert misses[2] < 2 / math.log(2**16)  # the slowest correction of any is of order 1 / log L


@pytest.mark.parametrize("name", ["mix-ln", "hybrid-norm", "residual"])
def test_what_has_no_closed_form_is_refused_beyond_a_million(name: str) -> None:
    with pytest.raises(ValueError, match="no closed form: at most 1000000 sublayers"):
        predict(name, "sgd", 10**6 + 1)


def test_an_unknown_function_in_a_norms_place_is_refused() -> None:
    with pytest.raises(ValueError, match="norm_function is one of dyt, derf"):
        Stack(placement=scheme("pre-ln").stack.placement, norm_function="dynamic")
