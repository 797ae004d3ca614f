"""What stands by layer, at initialisation: each layer's gradient and the stream's Jacobian, by the kernel rung, in
networks, and added up by a recursion of its own."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from depthlaw.network.network import Network

NUM_LAYERS = 8


def _network(scheme: str, num_layers: int) -> Network:
    from depthlaw.network.network import Network
    from depthlaw.theory.schemes import scheme as named

    return Network(
        scheme=named(scheme), arch="encoder", num_sublayers=2 * num_layers, d_model=128, num_heads=4, num_tokens=4
    )


@cache
def kernel_profile(scheme: str, num_layers: int = NUM_LAYERS) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By layer, the norm of the gradient of its matrices; and by l, the log of ||dF/dx_l||^2. Infinite width."""
    answer = _network(scheme, num_layers).kernel_update("sgd", replicates=1)
    layers = [
        sum(value for role, value in sublayer.items() if role in ("q", "k", "v", "out", "fc1", "fc2"))
        for sublayer in answer.layers["encoder"]
    ]
    norms = [math.sqrt(a + b) for a, b in zip(layers[::2], layers[1::2], strict=True)]
    logs = [stream.log10_gradient_square * math.log(10) for stream in answer.streams["encoder"]]
    return tuple(norms), tuple(logs)


@cache
def measured_norms(scheme: str, num_layers: int = NUM_LAYERS, num_seeds: int = 16) -> tuple[float, ...]:
    """By layer, the norm of the gradient of its matrices: the root of the mean square of real networks 128 wide."""
    from depthlaw.sims.measure import Question, collect

    network = _network(scheme, num_layers)
    question = Question(config=network.config("sgd"), task=network.task, has_layers=True, dtype="float32")
    values = collect(question, range(num_seeds))
    norms = []
    for layer in range(1, num_layers + 1):
        parts = (values[f"sgd/layer/{role}/{layer}"] for role in ("q", "k", "v", "out", "fc1", "fc2"))
        norms.append(math.sqrt(sum(map(np.mean, parts))))
    return tuple(norms)


# ---------------------------------------------------------------- the Jacobian, added up

_GRID = np.arange(-2, 15, 0.05)
"""Of log q, q the second moment of the stream."""


@cache
def _of_tanh(scale: float) -> tuple[list[float], list[float]]:
    """At each log q of the grid: E u^2 and E u'^2 of u = tanh(scale x)."""
    x = np.linspace(-40, 40, 4001)
    seconds, slopes = [], []
    for q in np.exp(_GRID):
        size = scale * math.sqrt(q)
        z = x / 4 if size < 1 else x / size  # in units of the Gaussian, or of where tanh bends, if that is narrower
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
        bent = 1 - np.tanh(z * size) ** 2
        seconds.append(1 - float(density @ bent))
        slopes.append(scale**2 * float(density @ bent**2))
    return seconds, slopes


def log_jacobians(lengths: tuple[int, ...], *, is_normed: bool, scale: float = 0.5) -> list[float]:
    """log of ||dx_L/dx_0||^2 / d of ReLU FFN branches W2 relu(W1 u), E x_0^2 = 1; u is norm(x), or tanh(scale x)."""
    q, total, found = 1.0, 0.0, []
    seconds, slopes = _of_tanh(scale)
    first, step = float(_GRID[0]), float(_GRID[1] - _GRID[0])
    for length in range(1, max(lengths) + 1):
        if is_normed:
            second, slope = 1.0, 1 / q
        else:
            place, part = divmod((math.log(q) - first) / step, 1)
            at = int(place)
            second, slope = ((1 - part) * of[at] + part * of[at + 1] for of in (seconds, slopes))
        total += math.log1p(slope / 2)
        q += second / 2
        if length in lengths:
            found.append(total)
    return found
