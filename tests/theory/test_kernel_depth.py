"""Deep stacks: tokens that become parallel, updates beyond the floats, and a cost that is linear in depth."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
from theory.kernel.update import step_of
from theory.kernel.walk import Counted, Walk
from theory.meanfield.update import predict
from theory.stack import SublayerKind

SELF, FFN = SublayerKind.SELF, SublayerKind.FFN
NUM_LAYERS = 300
"""600 sublayers."""


def post_ln(num_layers: int, activation: str = "relu") -> Transformer:
    return Transformer(encoder=tuple(Sublayer(kind=k) for k in (SELF, FFN) * num_layers), activation=activation)


def walked(network: Transformer, num_tokens: int = 8) -> Walk:
    walk = Walk(network, Inputs(num_tokens=num_tokens), frozenset({step_of("sgd")}), 0, 1.0)
    walk.run(lambda _: None)
    return walk


@cache
def deep() -> Walk:
    """One walk through 600 sublayers, which the tests below read and do not change."""
    return walked(post_ln(NUM_LAYERS))


def log_parts(walk: Walk, role: str) -> np.ndarray:
    """log of the squared gradient of each layer, from the last to the first."""
    return np.array([_log_square(counted) for counted in walk.parts if counted.part.role == role])


def _log_square(counted: Counted) -> float:
    return math.log(counted.part.square) + counted.exponent if counted.part.square else -math.inf


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
        assert parts.sum() == pytest.approx(parts[:150].sum() * 2, rel=0.02), (
            "the first layers have tokens of their own"
        )


# ---------------------------------------------------------------- beyond the floats


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


# ---------------------------------------------------------------- cost


# ---------------------------------------------------------------- errors of many sublayers


def out_of_one_layer(num_layers: int) -> tuple[float, float]:
    """U_out over N, and its standard error, of branches that start at 0: every layer sees the same tokens."""
    gains = {"out": 0.0, "fc2": 0.0}
    kinds = (SublayerKind.SELF, SublayerKind.FFN)
    stack = tuple(Sublayer(kind=kind, gains=gains) for _ in range(num_layers) for kind in kinds)
    sgd = predict_kernel(Transformer(encoder=stack, placement="none"), Inputs(num_tokens=8), ("sgd",))["sgd"]
    return sgd.roles["out"] / num_layers, sgd.error["out"] * sgd.roles["out"] / num_layers


def test_errors_of_sublayers_do_not_add_up() -> None:
    """At 80 layers each attention has few points; that many of them average out."""
    many, error_many = out_of_one_layer(80)
    few, error_few = out_of_one_layer(4)
    assert abs(many - few) < 5.84 * math.hypot(error_many, error_few), "t of 3 degrees of freedom at 99 %"
    assert error_many < 0.01 * many
