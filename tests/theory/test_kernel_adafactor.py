"""The kernel rung under Adafactor, of which the scalar rung knows one token."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax, stdtrit

from depthlaw.theory.kernel import update
from depthlaw.theory.kernel.factored import factored, factored_of_few
from depthlaw.theory.kernel.gram import Gram
from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
from depthlaw.theory.kernel.readout import Reading
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.optimizers import OPTIMIZERS
from depthlaw.theory.stack import SublayerKind

FFN, SELF = SublayerKind.FFN, SublayerKind.SELF
TRAPEZOID = 1e-7
FAMILY_ERROR = 1e-3
Array = np.ndarray


def vectors(*shape: int, seed: int = 20_231) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def published(gradient: Array) -> tuple[float, float]:
    """The mean of g times its step, entry by entry, over the size of g; and that of the direction unclipped."""
    squares = gradient**2
    moments = np.outer(squares.mean(1), squares.mean(0)) / squares.mean()
    direction = np.divide(gradient, np.sqrt(moments), out=np.zeros_like(gradient), where=moments > 0)
    size = math.sqrt((direction**2).mean())
    return float((gradient * direction).mean()) / math.sqrt(squares.mean()) / max(1.0, size), size


SIZE, NUM_TOKENS, NUM_HEADS = 1200, 3, 16
ROOT = vectors(NUM_TOKENS, NUM_TOKENS) + 0.7
OF_HEADS = np.abs(vectors(NUM_HEADS, NUM_TOKENS, NUM_TOKENS, seed=7)) @ ROOT
MANY = (vectors(2**18, NUM_TOKENS, seed=8) @ ROOT.T).clip(min=0)
SIDES = {
    "Gaussian": (lambda z: z @ ROOT.T, ROOT @ ROOT.T, None),
    "drawn": (lambda z: (z @ ROOT.T).clip(min=0), MANY.T @ MANY / len(MANY), MANY),
    "of heads": (
        lambda z: (z.reshape(NUM_HEADS, -1, NUM_TOKENS) @ OF_HEADS.mT).reshape(z.shape),
        (OF_HEADS @ OF_HEADS.mT).mean(0),
        OF_HEADS,
    ),
}
"""A side's vectors, of standard normal ones; their second moments; and what ``factored`` is told is drawn."""


@pytest.mark.parametrize("kind", SIDES)
def test_a_large_matrix_is_as_predicted(kind: str) -> None:
    """Its tokens are alike enough that the step is clipped."""
    make, moments, drawn = SIDES[kind]
    other = vectors(NUM_TOKENS, NUM_TOKENS, seed=9) + 0.7
    values = []
    for seed in range(12):
        rows, columns = (vectors(SIZE, NUM_TOKENS, seed=10 * seed + side) for side in (1, 2))
        value, size = published(make(rows) @ (columns @ other.T).T)
        assert size > 1.05
        values.append(value)
    wanted = factored(moments, other @ other.T, drawn) / math.sqrt((moments * (other @ other.T)).sum())
    reach = -stdtrit(len(values) - 1, FAMILY_ERROR / 6) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - wanted) < reach < 0.06 * wanted


def test_a_gradient_at_one_token_is_of_rank_one() -> None:
    x = vectors(5, 5)
    gradient, inputs = np.diag([0.0, 0, 0, 0, 4]), x @ x.T
    mean_abs = math.sqrt(2 / math.pi)
    wanted = 2 * mean_abs * math.sqrt(inputs[4, 4])
    assert factored(gradient, inputs) == pytest.approx(mean_abs * wanted, rel=TRAPEZOID)
    assert factored(inputs, gradient) == pytest.approx(mean_abs * wanted, rel=TRAPEZOID)
    assert factored_of_few(2 * np.eye(5)[4:], inputs) == pytest.approx(wanted, rel=TRAPEZOID)
    assert factored(0 * gradient, inputs) == 0


@pytest.mark.parametrize("readout", ["last", "sum"])
def test_the_head_of_a_cross_entropy_is_that_of_drawn_logits(readout: str) -> None:
    inputs = Inputs(num_tokens=3, loss="ce", num_classes=5, readout=readout)
    whole = ROOT @ ROOT.T
    last = Gram(float(whole.max()), whole.max() - whole)
    heads = Reading(inputs, last, np.arange(4), has_factored=True).head.factored
    assert heads is not None
    root = ROOT[inputs.read]
    of_draws = []
    for seed in range(256):
        hidden = root @ vectors(3, SIZE, seed=seed)
        errors = softmax(root @ vectors(3, 5, seed=1000 + seed), axis=1)
        errors[np.arange(len(root)), np.random.default_rng(seed).integers(5, size=len(root))] -= 1
        gradient = errors.T @ hidden / len(root)
        of_draws.append(5 * published(gradient)[0] * math.sqrt((gradient**2).mean()))
    reaches = [
        -stdtrit(len(x) - 1, FAMILY_ERROR / 4) * np.std(x, ddof=1) / math.sqrt(len(x)) for x in (heads, of_draws)
    ]
    assert abs(np.mean(of_draws) - np.mean(heads)) < math.hypot(*reaches) < 0.2 * np.mean(heads)


TWO = (Sublayer(kind=SELF), Sublayer(kind=FFN))


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("placement", ["post", "sub"])
def test_one_token_is_as_the_scalar_rung_has_it(placement: str, activation: str) -> None:
    """There it is LAMB in all but the name."""
    network = Transformer(encoder=2 * TWO, placement=placement, activation=activation)
    lamb, adafactor = predict_kernel(network, Inputs(num_tokens=1), ("lamb", "adafactor")).values()
    assert adafactor.roles == pytest.approx(lamb.roles, rel=TRAPEZOID)
    if activation == "relu":
        ffns = replace(network, encoder=2 * TWO[1:], ffn_ratio=1.0)
        wanted = predict(f"{placement}-ln", "adafactor", 2, activation=activation).update
        update_of_ffns = predict_kernel(ffns, Inputs(num_tokens=1), ("adafactor",))["adafactor"].update
        assert update_of_ffns == pytest.approx(wanted, rel=1e-3)  # the quasi-random error


def test_a_gain_multiplies_the_parameter_and_not_its_direction() -> None:
    """A gradient's size is nothing to it: what a norm hides is hidden, and rates multiply."""
    gains, rates = {"v": 3.0, "fc1": 3.0}, {"fc2": 2.0}
    scaled = tuple(replace(sublayer, gains=gains, lr_multipliers=rates) for sublayer in TWO)
    runs = [
        predict_kernel(Transformer(encoder=of, placement="sub"), Inputs(num_tokens=3), ("adafactor",), effort=0.1)
        for of in (scaled, TWO)
    ]
    multiplied, plain = (run["adafactor"].roles for run in runs)
    assert multiplied == pytest.approx({role: rates.get(role, 1.0) * x for role, x in plain.items()}, rel=1e-7)


def test_another_step_of_one_token_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(OPTIMIZERS["adafactor"], name="mine")
    monkeypatch.setattr(update, "optimizer", lambda name: mine)
    with pytest.raises(ValueError, match="mine: its step is derived for a gradient of rank one"):
        update.step_of("mine")
