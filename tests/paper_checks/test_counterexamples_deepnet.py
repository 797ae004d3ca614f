"""DeepNet's refuted claims again, by torch's own layers and autograd.

The claims find their counterexamples anew in every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from depthlaw.paper_checks.papers.deepnet.models import deepnet_scales
from depthlaw.paper_checks.routes.intervals import exponent, interval

pytestmark = pytest.mark.slow

Pair = tuple[float, float]
ONE = torch.ones((), dtype=torch.float64)


# ---------------------------------------------------------------- the scalar model: DN-03, DN-07


def leaves(pairs: Sequence[Pair]) -> list[Tensor]:
    """(v, w) of each sublayer, to differentiate by."""
    return [torch.tensor(pair, dtype=torch.float64, requires_grad=True) for pair in pairs]


def sublayer(x: Tensor, theta: Tensor, alpha: float, memory: Tensor | None = None) -> Tensor:
    """f of the paper's appendix, d = 1; a cross-attention reads ``memory``."""
    v, w = theta
    return (alpha * x + v * w * (x if memory is None else memory)) / (alpha**2 + (v * w) ** 2).sqrt()


def stack(thetas: Sequence[Tensor], alpha: float) -> Tensor:
    """F of an input of 1; F is linear, so this is its slope too."""
    x = ONE
    for theta in thetas:
        x = sublayer(x, theta, alpha)
    return x


def squared_gradients(num_layers: int) -> tuple[list[float], list[float]]:
    """||dF/dtheta||^2 of the sublayers of an encoder and of a decoder, of so many layers each, as printed."""
    (alpha_e, beta_e), (alpha_d, beta_d) = deepnet_scales(num_layers, num_layers)
    assert 0 < beta_e < 1 < alpha_e
    assert 0 < beta_d < 1 < alpha_d
    encoder, decoder = leaves([(beta_e, beta_e)] * (2 * num_layers)), leaves([(beta_d, beta_d)] * (3 * num_layers))
    memory, y = stack(encoder, alpha_e), ONE
    for index, theta in enumerate(decoder):
        y = sublayer(y, theta, alpha_d, memory if index % 3 == 1 else None)
    squares = [float(grad.square().sum()) for grad in torch.autograd.grad(y, encoder + decoder)]
    return squares[: 2 * num_layers], squares[2 * num_layers :]


@pytest.mark.parametrize(("num_layers", "of_encoder", "of_cross"), [(2, 1.110, 4.155), (100, 24.57, 46.02)])
def test_DN_03_at_deepnets_own_alpha_and_beta(num_layers: int, of_encoder: float, of_cross: float) -> None:
    """The first sublayer of each side over its bound; that of the encoder is behind the coupling."""
    (alpha_e, beta_e), (alpha_d, beta_d) = deepnet_scales(num_layers, num_layers)
    encoder, decoder = squared_gradients(num_layers)
    coupling = num_layers * beta_d**2 / alpha_d
    assert math.sqrt(encoder[0] / 2) * alpha_e / beta_e / coupling == pytest.approx(of_encoder, rel=1e-3)
    assert math.sqrt(decoder[1] / 2) * alpha_d / beta_d == pytest.approx(of_cross, rel=1e-3)


def test_DN_07_in_the_scalar_model_itself() -> None:
    """N = M, by autograd: the encoder's sum of squared slopes, which should be bounded."""
    for num_layers, printed in ((6, 10.42), (100, 423.7)):
        assert sum(squared_gradients(num_layers)[0]) == pytest.approx(printed, rel=2e-3)


# ---------------------------------------------------------------- a real network: DN-10


class DeepNormLayer(nn.Module):
    """Attention and FFN of torch's own modules, with all that they train by default."""

    def __init__(self, d: int, num_layers: int) -> None:
        super().__init__()
        self.alpha, beta = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
        self.attention = nn.MultiheadAttention(d, 2, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        q, k, v = self.attention.in_proj_weight.chunk(3)
        gains = [(q, 1.0), (k, 1.0), (v, beta), (self.attention.out_proj.weight, beta)]
        for weight, gain in [*gains, (self.fc1.weight, beta), (self.fc2.weight, beta)]:
            nn.init.xavier_normal_(weight, gain=gain)
        for bias in (self.attention.in_proj_bias, self.attention.out_proj.bias, self.fc1.bias, self.fc2.bias):
            nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.alpha * x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm2(self.alpha * x + self.fc2(torch.relu(self.fc1(x))))


def one_step(d: int, num_layers: int, seed: int) -> tuple[float, float]:
    """How far one SGD step moves a logit per learning rate: with all parameters, and with the matrices alone."""
    torch.manual_seed(seed)
    model = nn.Sequential(*[DeepNormLayer(d, num_layers) for _ in range(num_layers)]).double()
    x, head = torch.randn(1, 4, d).double(), torch.randn(d).double()
    head /= head.norm()
    named = dict(model.named_parameters())
    before = model(x)[0, -1] @ head
    grads = torch.autograd.grad(before, list(named.values()))
    with torch.no_grad():
        for parameter, grad in zip(named.values(), grads, strict=True):
            parameter.add_(grad, alpha=1e-7)
        whole = float(model(x)[0, -1] @ head - before) / 1e-7
    matrices = sum(float(g.square().sum()) for p, g in zip(named.values(), grads, strict=True) if p.ndim == 2)
    return whole, matrices


def test_DN_10_norms_and_biases_move_more_with_depth() -> None:
    """From 2 to 24 layers: the matrices' share stays, the step of all parameters grows as c d + 2L."""
    low, high = ([one_step(16, n, seed) for seed in range(24)] for n in (2, 24))
    of_matrices = exponent([pair[1] for pair in low], [pair[1] for pair in high], 12)
    of_all = exponent([pair[0] for pair in low], [pair[0] for pair in high], 12)
    assert of_matrices.is_below(1 / 4)
    assert of_all.low > 1 / 4
    rest = exponent([a - b for a, b in low], [a - b for a, b in high], 12)
    assert rest.low > 3 / 4


# ---------------------------------------------------------------- assumptions: DN-11


def top_layer(width: int, ffn_ratio: int, seed: int) -> float:
    """||dF/dtheta||^2 of the top cross-attention over that of the FFN above it: one token, DeepNet's 6 layers."""
    torch.manual_seed(seed)
    alpha, beta = (3 * 6) ** 0.25, (12 * 6) ** -0.25
    value, out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
    fc1, fc2 = nn.Linear(width, ffn_ratio * width, bias=False), nn.Linear(ffn_ratio * width, width, bias=False)
    for linear in (value, out, fc1, fc2):
        nn.init.xavier_normal_(linear.weight, gain=beta)
    y, memory, head = torch.randn(3, width)
    norm = nn.LayerNorm(width, elementwise_affine=False)
    x = norm(alpha * norm(y) + out(value(norm(memory))))
    x = norm(alpha * x + fc2(torch.relu(fc1(x))))
    grads = torch.autograd.grad(x @ head / head.norm(), [linear.weight for linear in (value, out, fc1, fc2)])
    attention, ffn = (float(sum(grad.square().sum() for grad in pair)) for pair in (grads[:2], grads[2:]))
    return attention / ffn


@pytest.mark.parametrize(("ffn_ratio", "square"), [(1, 2.0), (4, 1.25)])
def test_DN_11_the_top_sublayers_gradient_is_not_the_largest(ffn_ratio: int, square: float) -> None:
    over = interval([top_layer(64, ffn_ratio, seed) for seed in range(100)])
    assert 1 < over.low < over.high < 1.25 * square
