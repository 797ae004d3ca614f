"""Counterexamples to what depth papers since 2019 print, without the routes that found them: networks, and numbers."""

from __future__ import annotations

import math

import pytest
import torch


def stream_of(num_layers: int, branch_std: float, scaled: bool, width: int = 256) -> float:
    """E x^2 behind so many layers of two Pre-LN branches W2 relu(W1 norm(x)), of the same network's tokens; scaled: the
    norm's output is divided by the root of its layer's index."""
    generator = torch.Generator().manual_seed(38)
    x = torch.randn(16, width, generator=generator, dtype=torch.float64)
    for layer in range(1, num_layers + 1):
        for _ in range(2):
            w1, w2 = (
                torch.randn(width, width, generator=generator, dtype=torch.float64) / math.sqrt(width) for _ in "12"
            )
            u = torch.nn.functional.layer_norm(x, (width,)) / (math.sqrt(layer) if scaled else 1.0)
            x = x + branch_std * (u @ w1).relu() @ w2
    return x.square().mean().item()


def test_CD_01_pre_ln_s_variance_grows_linearly() -> None:
    growth = stream_of(64, 1.0, scaled=False) / stream_of(16, 1.0, scaled=False)
    assert 3 < growth < 5, "four times the layers: about four times the variance, exp(L) would be e^96 times"


def test_CD_04_with_layer_norm_scaling_it_grows_as_a_logarithm() -> None:
    small, large = (stream_of(layers, 1.0, scaled=True) for layers in (16, 64))
    assert large / small < 2, "linear growth would be four times"
    assert abs(large - (1 + sum(1 / layer for layer in range(1, 65)))) < 0.25 * large


class _Layer(torch.nn.Module):
    """x + branch W2 relu(W1 norm(x))."""

    def __init__(self, width: int, branch: float) -> None:
        super().__init__()
        self.up, self.down = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        for part in (self.up, self.down):
            torch.nn.init.normal_(part.weight, std=width**-0.5)
        self.branch, self.norm = branch, torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch * self.down(self.up(self.norm(x)).relu())


@pytest.mark.wide
def test_MC_01_adam_s_first_step_grows_as_the_root_of_depth() -> None:
    """What a step of sign(gradient) of the branches' matrices changes the output by, to first order."""

    def moved(num_layers: int) -> float:
        """The sum over 24 networks."""
        torch.manual_seed(num_layers)
        total, width = 0.0, 128
        for _ in range(24):
            layers = [_Layer(width, 1.4 / math.sqrt(num_layers)) for _ in range(num_layers)]
            end = torch.nn.LayerNorm(width), torch.nn.Linear(width, 1, bias=False)
            model = torch.nn.Sequential(*layers, *end)
            matrices = [parameter for parameter in model.parameters() if parameter.shape == (width, width)]
            gradients = torch.autograd.grad(model(torch.randn(1, width)).sum(), matrices)
            total += sum(float(gradient.abs().sum()) for gradient in gradients)
        return total

    growth = moved(64) / moved(8)
    assert 2 < growth < 4, "eight times the layers: the root of eight is 2.8"


@pytest.mark.wide
def test_SN_01_a_large_embedding_alone_bounds_the_gradient() -> None:
    """Of the gradient's square, the bottom over the top: branches of gain 1, and an embedding of std sqrt(L)."""

    def grown(num_layers: int, std: float) -> float:
        torch.manual_seed(num_layers)
        total, width = 0.0, 128
        for _ in range(16):
            bottom = (std * torch.randn(1, width)).requires_grad_()
            top = torch.nn.Sequential(*(_Layer(width, 1.0) for _ in range(num_layers)))(bottom)
            (gradient,) = torch.autograd.grad(top @ torch.randn(width, 1), bottom)
            total += float(gradient.square().mean())
        return total / 16

    few, many = (grown(length, math.sqrt(length)) for length in (8, 64))
    assert few == pytest.approx(1.5, rel=0.2) and many == pytest.approx(1.5, rel=0.2)
    assert grown(64, 1.0) > 10, "at a std of 1 it is 1 + 64/2"
