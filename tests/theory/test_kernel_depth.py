"""Deep stacks: tokens that become parallel, and updates beyond the floats."""

import math
from functools import cache

import numpy as np
import pytest

from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
from depthlaw.theory.kernel.update import step_of
from depthlaw.theory.kernel.walk import Walk
from depthlaw.theory.meanfield.update import predict
from depthlaw.theory.stack import SublayerKind

SELF, FFN = SublayerKind.SELF, SublayerKind.FFN
NUM_LAYERS = 300
"""600 sublayers."""


@cache
def deep() -> Walk:
    """One walk through 600 sublayers of Post-LN, which the tests below read and do not change."""
    network = Transformer(encoder=tuple(Sublayer(kind=kind) for kind in (SELF, FFN) * NUM_LAYERS))
    walk = Walk(network, Inputs(num_tokens=8), frozenset({step_of("sgd")}), (0,), 1.0)
    walk.run(lambda _: None)
    return walk


def log_parts(walk: Walk, role: str) -> np.ndarray:
    """log of the squared gradient of each layer, from the last to the first."""
    parts = [(counted.part.square, counted.exponent) for counted in walk.parts if counted.part.role == role]
    squares, exponents = (np.concatenate(numbers)[:, 0] for numbers in zip(*parts, strict=True))
    with np.errstate(divide="ignore"):
        return np.log(squares) + exponents


def is_geometric(logs: np.ndarray) -> bool:
    """Whether each layer from the hundredth, the last fifty apart, has the same fraction of the one before it."""
    if not np.isfinite(logs).all():
        return False
    steps = np.diff(logs[::-1][100:-50])
    return bool(steps.std() < 1e-3 * abs(steps.mean()) and steps.mean() < -0.5)


def test_collapsed_tokens_leave_nothing_for_queries_and_keys() -> None:
    """Tokens come together by the same factor in each layer, and so do the updates of q and k: far below rounding."""
    walk = deep()
    q, k, v = (log_parts(walk, role) for role in ("q", "k", "v"))
    assert len(q) == NUM_LAYERS
    assert q.min() < math.log(1e-100)
    assert is_geometric(q)
    assert np.allclose(q, k, rtol=1e-9), "of infinitely large heads"
    assert np.allclose(np.exp(v[:240]), 0.5, rtol=1e-10), "one token's"
    gaps = np.log([stream.gap.max() for stream in walk.streams[0][1::2]])
    assert np.diff(gaps[100:270]).std() < 1e-3


def test_the_update_of_post_ln_is_linear_in_depth() -> None:
    v, fc2 = (np.exp(log_parts(deep(), role)) for role in ("v", "fc2"))
    for parts in (v, fc2):
        assert parts[:150].sum() == pytest.approx(parts[:75].sum() * 2, rel=1e-10)
        assert parts.sum() == pytest.approx(parts[:150].sum() * 2, rel=0.02)  # the first layers' tokens still differ


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_gradients_that_grow_with_depth_are_the_scalar_rungs(optimizer: str) -> None:
    """tanh behind a norm, with gains in which gradients grow by half in each sublayer."""
    gain, count = 1.5, 60
    sublayers = (Sublayer(kind=FFN, gains={"fc1": gain, "fc2": gain}),) * count
    network = Transformer(encoder=sublayers, ffn_ratio=1.0, activation="tanh")
    kernel_update = predict_kernel(network, Inputs(num_tokens=1), (optimizer,), effort=0.1)[optimizer]
    scalar = predict("post-ln", optimizer, count, activation="tanh", w=[gain] * count, v=[gain] * count)
    assert kernel_update.log10_update == pytest.approx(scalar.log10_update, rel=1e-9)
    assert kernel_update.update == pytest.approx(scalar.update, rel=1e-6)
    assert scalar.log10_update > 2
