"""Small real networks in torch for what the claims of Su's article measure; nothing of theory/.

Random numbers come from numpy, whose generators give the same numbers on every machine. Torch is imported where it is
used: the command line must not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paper_checks.routes.intervals import interval

ROUNDING = 1e-9
"""What float64 may lose along these short computations, with room; every wrong form is off by far more."""


def shown(value: float, digits: int = 3) -> float:
    """A number as it stands in the document."""
    return float(f"{value:.{digits}g}")


def rng(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed)


def normal(generator: Any, *shape: int) -> Any:
    """A tensor of independent N(0, 1), float64."""
    import torch

    return torch.from_numpy(generator.standard_normal(shape))


def orthogonal(generator: Any, count: int, width: int) -> Any:
    """``count`` orthogonal matrices, uniform: the Q of a Gaussian matrix, with the signs of R's diagonal."""
    import torch

    q, r = torch.linalg.qr(normal(generator, count, width, width))
    return q * torch.sign(torch.diagonal(r, dim1=-2, dim2=-1)).unsqueeze(-2)


def phi(name: str) -> Callable[[Any], Any]:
    """An activation of torch.nn.functional."""
    import torch

    return getattr(torch.nn.functional, {"swish": "silu"}.get(name, name))


def layer_norm(x: Any, eps: float = 0.0) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)


def ffn(x: Any, w1: Any, w2: Any, activation: str = "relu") -> Any:
    return phi(activation)(x @ w1) @ w2


def attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    """One head, with the article's softmax of unscaled products."""
    return (x @ q @ (x @ k).transpose(-1, -2)).softmax(-1) @ x @ v @ o


ROLES = ("q", "k", "v", "o", "w1", "w2")


class Transformer:
    """A Post-LN Transformer of a few narrow layers with a cross-entropy loss, for statements about any network."""

    def __init__(self, seed: int, activation: str = "gelu", num_layers: int = 2, width: int = 12) -> None:
        generator = rng(seed)
        self.activation, self.num_layers = activation, num_layers
        self.x = normal(generator, 5, width)
        self.targets = list(generator.integers(0, width, size=5))
        self.matrices = [
            {role: (normal(generator, width, width) / math.sqrt(width)).requires_grad_() for role in ROLES}
            for _ in range(num_layers)
        ]

    @property
    def parameters(self) -> list[Any]:
        return [matrix for layer in self.matrices for matrix in layer.values()]

    def loss(self, matrices: Sequence[dict[str, Any]] | None = None) -> Any:
        """At other matrices in place of its own, where they are given."""
        import torch

        x = self.x
        for layer in matrices or self.matrices:
            x = layer_norm(x + attention(x, *(layer[role] for role in ROLES[:4])), 1e-5)
            x = layer_norm(x + ffn(x, layer["w1"], layer["w2"], self.activation), 1e-5)
        return torch.nn.functional.cross_entropy(x, torch.tensor(self.targets))

    def gradients(self) -> list[Any]:
        import torch

        return list(torch.autograd.grad(self.loss(), self.parameters))


# ---------------------------------------------------------------- intervals


def contains(samples: Sequence[float], value: float) -> bool:
    """Whether the interval contains a value."""
    low, high = interval(samples)
    slack = ROUNDING * max(abs(low), abs(high), abs(value))
    return low - slack <= value <= high + slack
