"""The mean field again, in a few lines of its own: the second route to a growth law, sharing nothing with theory/.

One input at infinite width, one step per unit learning rate; q_l is the second moment of the stream, D_l the squared
gradient that reaches sublayer l. SGD sums squares; Adam's step is a sign, so it sums absolute values; LAMB's is that
times the root mean square of the matrix, its gain. Moments of the activation by quadrature, the sum over sublayers by
adding them up, so that a mistake in a closed form, in its asymptotics or in a moment's formula shows here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

LENGTHS = (10**2, 10**4, 10**6)


class Network(NamedTuple):
    """Where the norms stand ("post", "pre", "sub"; "fixup": none, the last matrix at 0); residual weight and gain."""

    placement: str
    residual_weight: Callable[[int], float]
    gain: Callable[[int], float]


def _one(_: int) -> float:
    return 1.0


NETWORKS = {
    "post-ln": Network("post", _one, _one),
    "pre-ln": Network("pre", _one, _one),
    "sub-ln": Network("sub", _one, _one),
    "sub-ln-gamma": Network("sub", _one, lambda length: math.sqrt(math.log(length))),
    "deepnorm": Network("post", lambda length: length**0.25, lambda length: (4 * length) ** -0.25),
    "fixup": Network("fixup", _one, lambda length: length**-0.5),
    "su-sgd": Network("post", lambda length: length**0.25, lambda length: length**-0.25),
    "su-adam": Network("post", lambda length: length**0.5, lambda length: length**-0.5),
    "su-lamb": Network("post", _one, lambda length: length**-0.5),
    "su-pre-sgd": Network("pre", _one, lambda length: length**-0.5),
    "su-pre-adam": Network("pre", _one, lambda length: 1 / length),
    "su-pre-lamb": Network("pre", _one, lambda length: length**-0.5),
}


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)
_KINKS = {"identity": (), "relu": (0.0,), "gelu": (-0.7517915246935645,)}
"""Where an activation or its slope changes sign: no interval of the quadrature crosses one."""


def _phi(name: str, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An activation and its slope."""
    if name == "identity":
        return u, np.ones_like(u)
    if name == "relu":
        return np.maximum(u, 0), (u > 0).astype(float)
    bell = np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
    return u * ndtr(u), ndtr(u) + u * bell


@cache
def moments(name: str, scale: float) -> tuple[float, float, float, float, float]:
    """E phi, E phi^2, E phi'^2, E|phi|, E|phi'| at u = scale z, z ~ N(0, 1), by Gauss-Legendre between the kinks."""
    if name not in _KINKS:
        raise ValueError(f"no activation {name!r} here")
    inside = [kink / scale for kink in _KINKS[name] if abs(kink / scale) < 12]
    total = np.zeros(5)
    for low, high in pairwise(sorted({-12.0, 0.0, 12.0, *inside})):
        z = low + (high - low) * (_NODES + 1) / 2
        value, slope = _phi(name, scale * z)
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * _WEIGHTS * (high - low) / 2
        total += [float(density @ f) for f in (value, value**2, slope**2, abs(value), abs(slope))]
    mean, second, slope_second, size, slope_size = (float(x) for x in total)
    return mean, second, slope_second, size, slope_size


def log_update(
    scheme: str, length: int, activation: str = "relu", norm_kind: str = "layernorm", optimizer: str = "sgd"
) -> float:
    """log of the update of ``length`` FFN sublayers; it may be too large for a float itself."""
    network = NETWORKS[scheme]
    a2, gain = network.residual_weight(length) ** 2, network.gain(length)
    mean, second, slope, size, slope_size = moments(activation, gain)
    scale = second - mean**2 if norm_kind == "layernorm" else second
    if network.placement == "fixup" and optimizer == "sgd":  # the stream is the input; only the last matrix moves
        return math.log(length * second)
    below = np.arange(length, dtype=float)  # sublayers under sublayer l, so q_{l-1} = 1 + below * branch
    if network.placement == "post":
        total = a2 + gain**2 * second
        log_step = np.full(length, math.log((a2 + gain**4 * slope) / total))
        arriving, log_top = 1 / total, 0.0
    else:
        hidden, through = (1.0, slope / scale) if network.placement == "sub" else (second, slope)
        branch = gain**2 * hidden
        log_step = np.log1p(gain**4 * through / (1 + below * branch))
        arriving, log_top = 1.0, -math.log(1 + length * branch)
    log_gradient = log_top + np.concatenate([np.cumsum(log_step[::-1])[::-1][1:], [0.0]])  # log D_l
    if optimizer == "sgd":
        squares = (gain**2 * slope + second) if network.placement != "sub" else gain**2 * slope / scale + 1
        return math.log(arriving * squares) + _log_sum(log_gradient)
    if network.placement == "sub" or optimizer not in ("adam", "lamb"):
        raise ValueError(f"{optimizer} under {network.placement} is not written here")
    sizes = 2 / math.pi * gain * slope_size + math.sqrt(2 / math.pi) * size
    if optimizer == "lamb":
        sizes *= gain
    return math.log(math.sqrt(arriving) * sizes) + _log_sum(log_gradient / 2)


def _log_sum(logs: np.ndarray) -> float:
    biggest = float(logs.max())
    return biggest + math.log(float(np.exp(logs - biggest).sum()))


def log_ratios(
    scheme: str, log_order: Callable[[int], float], activation: str, norm_kind: str, optimizer: str
) -> list[float]:
    """log(update / order) at 10^2, 10^4 and 10^6 sublayers."""
    return [log_update(scheme, length, activation, norm_kind, optimizer) - log_order(length) for length in LENGTHS]
