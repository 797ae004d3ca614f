"""DeepNet's refuted claims again, by torch's own layers and autograd, and its open measurements at greater depth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from paper_checks.papers.deepnet_goal import one_token_update
from paper_checks.papers.deepnet_parts import (
    BETWEEN,
    VANILLA,
    Scales,
    deepnet_scales,
    exponent,
    interval,
    is_below,
    measured,
    one_token,
)

Pair = tuple[float, float]


# ---------------------------------------------------------------- the scalar model: DN-02, DN-03, DN-08


def leaves(pairs: Sequence[Pair]) -> list[Tensor]:
    """(v, w) of each sublayer, to differentiate by."""
    return [torch.tensor(pair, dtype=torch.float64, requires_grad=True) for pair in pairs]


def sublayer(x: Tensor, theta: Tensor, alpha: float, memory: Tensor | None = None) -> Tensor:
    """f of the paper's appendix, d = 1; a cross-attention reads ``memory``."""
    v, w = theta
    return (alpha * x + v * w * (x if memory is None else memory)) / (alpha**2 + (v * w) ** 2).sqrt()


def stack(thetas: Sequence[Tensor], alpha: float) -> Tensor:
    x = torch.ones((), dtype=torch.float64)
    for theta in thetas:
        x = sublayer(x, theta, alpha)
    return x


def bound(theta: Tensor, alpha: float) -> float:
    return float(theta.detach().norm()) / alpha


LOW, HIGH, ALPHA = (0.1, 0.1), (5 / 6, 3 / 4), 1.5


def test_DN_02_one_sublayer_moves_more_than_its_bound() -> None:
    """By autograd, and by a step: theta_1 alone, along its gradient."""
    thetas = leaves([LOW, HIGH])
    assert all(0 < letter < 1 < ALPHA for pair in (LOW, HIGH) for letter in pair)
    found = stack(thetas, ALPHA)
    (grad,) = torch.autograd.grad(found, thetas[0])
    assert float(grad.norm()) / bound(thetas[0], ALPHA) == pytest.approx(1.29889, rel=1e-5)
    step = 1e-3 * grad / grad.norm()
    moved = stack([thetas[0] + step, thetas[1]], ALPHA)
    assert (moved - found).item() > 1.29 * bound(thetas[0], ALPHA) * float(step.norm())


@pytest.mark.parametrize(("num_layers", "least"), [(10, 2), (100, 5), (1000, 20)])
def test_DN_02_is_off_by_more_than_a_constant_at_the_printed_scales(num_layers: int, least: float) -> None:
    alpha, beta = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
    thetas = leaves([(beta, beta)] * (2 * num_layers))
    (grad,) = torch.autograd.grad(stack(thetas, alpha), thetas[0])
    assert float(grad.norm()) > least * bound(thetas[0], alpha)


def test_DN_03_one_layer_on_either_side() -> None:
    encoder, decoder = leaves([LOW, LOW]), leaves([LOW, LOW, HIGH])
    memory = stack(encoder, ALPHA)
    y = torch.ones((), dtype=torch.float64)
    for index, theta in enumerate(decoder):
        y = sublayer(y, theta, ALPHA, memory if index == 1 else None)
    of_encoder, of_decoder = torch.autograd.grad(y, [encoder[0], decoder[0]])
    coupling = LOW[0] * LOW[1] / ALPHA
    assert float(of_decoder.norm()) / bound(decoder[0], ALPHA) == pytest.approx(1.29886, rel=1e-5)
    assert float(of_encoder.norm()) / (coupling * bound(encoder[0], ALPHA)) == pytest.approx(1.30749, rel=1e-5)


def slope_of_all(num_layers: int) -> float:
    """dF/dx of 2N sublayers at the printed alpha and beta."""
    alpha, beta = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    y, theta = x, torch.tensor([beta, beta], dtype=torch.float64)
    for _ in range(2 * num_layers):
        y = sublayer(y, theta, alpha)
    return float(torch.autograd.grad(y, x)[0])


@pytest.mark.parametrize(("size", "first"), [(2, 4), (10, 230)])
def test_DN_08_the_slopes_do_not_multiply_to_one(size: float, first: int) -> None:
    assert slope_of_all(first - 1) < size < slope_of_all(first)


def test_DN_08_grows_as_said() -> None:
    for num_layers in (100, 1600):
        assert math.log(slope_of_all(num_layers)) == pytest.approx((num_layers / 8) ** 0.25, rel=0.02)


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


@pytest.mark.parametrize(("d", "num_seeds"), [(16, 12), (32, 10), (64, 6)])
def test_DN_10_norms_and_biases_move_more_with_depth(d: int, num_seeds: int) -> None:
    """From 2 to 24 layers: the matrices' share stays, the step of all parameters grows as c d + 2L."""
    low, high = ([one_step(d, n, seed) for seed in range(num_seeds)] for n in (2, 24))
    of_matrices = exponent([pair[1] for pair in low], [pair[1] for pair in high], 12)
    of_all = exponent([pair[0] for pair in low], [pair[0] for pair in high], 12)
    assert is_below(of_matrices, 1 / 4)
    assert of_all.low > 1 / 4
    rest = exponent([a - b for a, b in low], [a - b for a, b in high], 12)
    assert rest.low > 3 / 4


# ---------------------------------------------------------------- assumptions: DN-11


def test_DN_11_alpha_below_one_and_beta_always() -> None:
    """In whole numbers: 0.81 (N^4 M)^(1/16) > 1 if and only if 81^16 N^4 M > 100^16."""
    below = [(n, m) for n in range(1, 60) for m in range(1, 60) if 81**16 * n**4 * m <= 100**16]
    assert below == [(1, m) for m in range(1, 30)] + [(2, 1)]
    assert all(8 * n > 1 and 12 * n > 1 and 100**16 * n > 87**16 for n in range(1, 10**4))  # every beta below 1


# ---------------------------------------------------------------- deeper than `verify` measures: DN-07, DN-14


@pytest.mark.parametrize("num_encoder", [1, 4])
@pytest.mark.parametrize("scales", [deepnet_scales, lambda n, m: VANILLA])
def test_one_token_is_what_real_networks_do(num_encoder: int, scales) -> None:
    """At d = 64 to three standard errors; 1/d off, and depth, leave 20%."""
    at: Scales = scales(num_encoder, 4)
    found = measured(at, num_encoder, 4, num_seeds=24, num_tokens=1, d_model=64)
    for side, predicted in enumerate(one_token(at, num_encoder, 4)):
        over = interval([seed[side] / predicted for seed in found])
        assert over.low < 1.2
        assert over.high > 0.8


@pytest.mark.parametrize("num_tokens", [1, 8])
def test_the_encoders_share_falls_with_the_decoders_depth(num_tokens: int) -> None:
    """M from 4 to 64: as M^(-3/4), not as M^0 or M^(1/4)."""
    low, high = (
        [pair[0] for pair in measured(deepnet_scales(2, m), 2, m, num_seeds=12, num_tokens=num_tokens)] for m in (4, 64)
    )
    found = exponent(low, high, 16)
    assert found.low < -3 / 4 < found.high
    assert is_below(found, -1 / 4)


def test_one_token_in_closed_form_is_the_sum_over_layers() -> None:
    for num_layers in (1, 7, 60):
        for scheme, at in (("deepnet", deepnet_scales(num_layers, num_layers)), ("post-ln", VANILLA)):
            found = sum(one_token(at, num_layers, num_layers, ffn_ratio=2))
            assert found == pytest.approx(one_token_update(scheme, num_layers), rel=1e-9)


@pytest.mark.parametrize(("name", "num_layers", "num_seeds"), [("deepnet", 100, 4), ("post-ln", 50, 16)])
def test_figure_5_at_its_deep_end(name: str, num_layers: int, num_seeds: int) -> None:
    """DeepNet at 100L-100L; Post-LN, whose seeds scatter more the deeper it is, at 50L-50L."""
    low, high = (
        [
            sum(pair)
            for pair in measured(
                deepnet_scales(n, n) if name == "deepnet" else VANILLA,
                n,
                n,
                num_seeds=num_seeds,
                d_model=64,
                ffn_ratio=2,
            )
        ]
        for n in (6, num_layers)
    )
    found = exponent(low, high, num_layers / 6)
    assert is_below(found, BETWEEN) is (name == "deepnet")
