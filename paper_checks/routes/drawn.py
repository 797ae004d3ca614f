"""Drawn stacks, small and plain, for claims about single terms of a step: no scheme's name, and nothing of theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH = 48


@dataclass(frozen=True)
class PreNorm:
    """ReLU FFNs behind RMS norms, x + branch W2 relu(W1 norm(x)), a final norm and one logit; W of variance 1/d."""

    num_sublayers: int
    branch: float
    seed: int = 7

    @property
    def drawn(self) -> tuple[Any, Any, Any]:
        """The matrices, x_0 and the readout."""
        import torch

        draw = torch.Generator().manual_seed(self.seed)
        first, readout = (torch.randn(WIDTH, generator=draw, dtype=torch.float64) for _ in range(2))
        shape = (self.num_sublayers, 2, WIDTH, WIDTH)
        return torch.randn(shape, generator=draw, dtype=torch.float64) / WIDTH**0.5, first, readout

    def streams(self, matrices: Any, first: Any) -> list[Any]:
        """x_0 to x_L."""
        out = [first]
        for w1, w2 in matrices:
            out.append(out[-1] + self.branch * (norm(out[-1]) @ w1).relu() @ w2)
        return out

    def logit(self, matrices: Any, first: Any, readout: Any) -> Any:
        return norm(self.streams(matrices, first)[-1]) @ readout

    @property
    def gradients(self) -> Any:
        """Of the logit, by the matrices."""
        import torch

        matrices, first, readout = self.drawn
        matrices = matrices.requires_grad_()
        return torch.autograd.grad(self.logit(matrices, first, readout), matrices)[0]


def norm(x: Any) -> Any:
    """The RMS norm."""
    return x / x.square().mean(-1, keepdim=True).sqrt()
