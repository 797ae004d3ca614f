"""What a first step does to the stream: against the update, and against matrices that are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sympy import Integer, Rational, lambdify

from depthlaw.theory.meanfield.first_step import _lengths, _of_gradients, _of_signs, _sublayers, first_step
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.meanfield.update import predict_setting
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import NO_NORM, Stack
from depthlaw.theory.symbols import u
from tests.often import often

WALKED = [name for name in SCHEMES if name not in ("residual", "dyt", "derf")]


@pytest.mark.parametrize("name", often(WALKED, 6, wide=1))
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lars", "muon"])
def test_a_first_step_moves_the_logit_by_the_update(name: str, optimizer: str) -> None:
    """Walked from the other end."""
    for activation, length in (("relu", 7), ("leaky_relu", 64), ("gelu", 4)):
        setting = Setting.of(name, optimizer, activation)
        step, update = first_step(setting, length), predict_setting(setting, length).update
        if step is None:  # a branch that starts at 0 has no length to divide by
            assert name in ("fixup", "rezero", "skipinit") and optimizer in ("lars", "muon")
        else:
            assert step.logit == pytest.approx(update, rel=1e-9)


def test_what_is_not_derived_is_none() -> None:
    for setting in (Setting.of("residual", "adam"), Setting.of("dyt", "adam"), Setting.of("pre-ln", "adam", "swiglu")):
        assert first_step(setting, 2) is None
    assert first_step(Setting.of("pre-ln", "sgd"), 2001) is None
    for name, activation, is_bent in (("pre-ln", "relu", False), ("sub-ln", "relu", True), ("pre-ln", "gelu", True)):
        step = first_step(Setting.of(name, "sgd", activation), 2)
        assert step is not None and step.block.second and step.block.is_bent is is_bent
    silent = first_step(Setting.of("fixup", "adam"), 2)
    assert silent is not None and silent.block.second == 0, "W1's gradient is 0, and so is its sign"
    assert silent.hidden.second is None


D, DRAWS = 400, 60


@pytest.mark.parametrize("optimizer", often(["adam", "sgd", "muon"], 3, wide=1))
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_step_is_what_drawn_matrices_make_of_it(activation: str, optimizer: str) -> None:
    """Of one sublayer a x + b W2 phi(W1 x), what its own step has along the gradient, in all, and along what arrives
    from below, and how far that is carried: within 5 standard errors and 2 % for the width."""
    a, b, w, v = Rational(3, 2), Rational(1, 2), Rational(3, 2), Integer(2)
    stack = Stack(placement=NO_NORM, residual_weight=a, branch_weight=b, gain_in=w, gain_out=v)
    setting = Setting.of(Scheme(name="own", source="test", stack=stack), optimizer, activation)
    (at,) = _sublayers(setting, 1, None, None)
    own = (_of_signs if optimizer == "adam" else _of_gradients)(at, _lengths(setting.functional, at, GRADIENT))
    phi, slope = (lambdify(u, expr, "numpy") for expr in (setting.activation.expression, setting.activation.derivative))
    generator = np.random.default_rng(0)

    def drawn() -> tuple[float, ...]:
        return _drawn(generator, (float(a), float(b), float(w), float(v)), optimizer, phi, slope)

    told = np.array([drawn() for _ in range(DRAWS)])
    error = told.std(0, ddof=1) / math.sqrt(DRAWS)
    wanted = np.array([own.towards, own.square, own.met, at.carried * at.ratio])
    assert (np.abs(told.mean(0) - wanted) < 5 * error + 0.02 * wanted).all(), (told.mean(0), wanted, error)
    assert (error < 0.03 * wanted).all()


GRADIENT = 0.7


def _drawn(
    generator: np.random.Generator,
    letters: tuple[float, float, float, float],
    optimizer: str,
    phi: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray], np.ndarray],
) -> tuple[float, ...]:
    """In the units of ``FirstStep``, before branch weight and rate."""
    a, b, w, v = letters
    w1, w2 = (gain * generator.normal(size=(D, D)) / math.sqrt(D) for gain in (w, v))
    x, z = generator.normal(size=(2, D))
    z /= math.sqrt(np.mean(z**2))
    slopes, hidden = slope(w1 @ x) * np.ones(D), phi(w1 @ x)
    gradients = np.outer(slopes * (w2.T @ z), x), np.outer(z, hidden)
    if optimizer == "adam":
        steps = [np.sign(gradient) / D for gradient in gradients]
    elif optimizer == "sgd":
        steps = [GRADIENT * gradient / D for gradient in gradients]
    else:
        steps = [gradient / np.linalg.norm(gradient) for gradient in gradients]
    own = steps[1] @ hidden + w2 @ (slopes * (steps[0] @ x))
    back = a * z + b * w1.T @ (slopes * (w2.T @ z))
    arrived = a * back + b * w2 @ (slopes * (w1 @ back))
    return own @ z / D, float(np.mean(own**2)), own @ arrived / D, float(np.mean(arrived**2))
