"""Several copies of the stream, at their initial values, are Pre-LN on one: what megatron-mhc's recipe says.

Copies of x_0 start equal. What mixes them has rows that sum to 1, and a branch's output is added to each with one
weight, so that they stay equal; a branch reads a multiple of them, which the norm before it takes out.

Hyper-connections (Zhu et al. 2024, arXiv 2409.19606): sublayer l reads copy l mod S, the mixing matrix is the identity,
and each copy gets the output once. mHC (Xie et al. 2025, arXiv 2512.24880; NVIDIA/Megatron-LM d98e8a6,
megatron/core/transformer/hyper_connection.py): weights sigmoid(a z) and 2 sigmoid(a z), and a doubly stochastic matrix
of a z, where z is a projection of the token and a starts at 0.01. Dimensions: S copies, T tokens, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

D, T, S, LAYERS = 64, 8, 4, 6
Mixing = Callable[[int, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Of sublayer l and the copies (T, S, D): what the branch reads of each copy (T, S), what it gives to each (T, S), and
the matrix that mixes the copies (T, S, S)."""


class Branch(nn.Module):
    """norm, then an attention or an FFN."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.norm, self.is_ffn = nn.LayerNorm(D, eps=0.0), index % 2 == 1
        self.attention = None if self.is_ffn else nn.MultiheadAttention(D, 4)
        self.ffn = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)) if self.is_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        u = self.norm(x)
        return self.ffn(u) if self.ffn is not None else self.attention(u, u, u)[0]  # pyright: ignore


class Network(nn.Module):
    """Pre-LN, or the same branches on S copies."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList(Branch(index) for index in range(2 * LAYERS))
        self.final = nn.LayerNorm(D, eps=0.0)
        self.head = torch.randn(D) / D**0.5
        self.double()

    def forward(self, x: Tensor, mixing: Mixing | None) -> Tensor:
        copies = x[:, None].expand(T, S, D)
        for index, branch in enumerate(self.branches):
            if mixing is None:
                x = x + branch(x)
                continue
            reads, gives, mixes = mixing(index, copies)
            out = branch((reads[..., None] * copies).sum(1))
            copies = mixes @ copies + gives[..., None] * out[:, None]
        return self.final(x if mixing is None else copies.sum(1))[-1] @ self.head.double()

    def moved(self, mixing: Mixing | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The logit, and its gradient by each parameter of a branch."""
        torch.manual_seed(1)
        logit = self(torch.randn(T, D, dtype=torch.float64), mixing)
        named = dict(self.branches.named_parameters())
        return logit.detach(), dict(zip(named, torch.autograd.grad(logit, list(named.values())), strict=True))


def hyper_connections(index: int, copies: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    one = torch.eye(S, dtype=torch.float64)
    return one[index % S].expand(T, S), torch.ones(T, S, dtype=torch.float64), one.expand(T, S, S)


def manifold(gate: float) -> Mixing:
    """mHC with this a; the projection is Xavier's, its input the copies over their root mean square."""

    def mixing(index: int, copies: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = copies.flatten(1)
        weight = torch.empty(flat.shape[-1], S * S + 2 * S, dtype=torch.float64)
        nn.init.xavier_uniform_(weight, generator=torch.Generator().manual_seed(index))
        z = gate * (flat / flat.square().mean(-1, keepdim=True).sqrt()) @ weight
        mixes = z[:, 2 * S :].unflatten(-1, (S, S)).softmax(-1)
        for _ in range(20):
            mixes = mixes / mixes.sum(-2, keepdim=True)
            mixes = mixes / mixes.sum(-1, keepdim=True)
        return z[:, :S].sigmoid(), 2 * z[:, S : 2 * S].sigmoid(), mixes

    return mixing


@pytest.mark.parametrize("mixing", [hyper_connections, manifold(0.0)], ids=["hyper-connections", "mHC"])
def test_copies_of_the_stream_are_pre_ln_on_one(mixing: Mixing) -> None:
    network = Network()
    (one, of_one), (several, of_several) = network.moved(None), network.moved(mixing)
    torch.testing.assert_close(several, one)
    torch.testing.assert_close(of_several, of_one)


def test_mhc_s_first_gate_moves_a_gradient_by_a_percent() -> None:
    """a = 0.01: weights differ a little between copies and tokens."""
    network = Network()
    (_, of_one), (_, of_several) = network.moved(None), network.moved(manifold(0.01))
    for name, gradient in of_one.items():
        if name.endswith("weight"):
            assert 0 < (of_several[name] - gradient).norm() / gradient.norm() < 0.02, name
