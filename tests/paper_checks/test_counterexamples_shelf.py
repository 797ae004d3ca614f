"""Counterexamples to what depth papers since 2019 print, without the routes that found them: networks, and numbers."""

from __future__ import annotations

import math

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


def test_CD_02_the_printed_product_outgrows_the_variance() -> None:
    """Independent branches of variance 1: sigma_k^2 = k."""
    printed = [math.prod(1 + k**-0.5 for k in range(1, length)) / length for length in (10, 100, 1000)]
    exact = [math.prod(1 + 1 / k for k in range(1, length)) / length for length in (10, 100, 1000)]
    assert all(abs(ratio - 1) < 1e-9 for ratio in exact)
    assert printed[1] > 100 * printed[0]
    assert printed[2] > 1e10 * printed[1]


def test_KE_02_the_square_root_is_the_critical_scale() -> None:
    """The gradient of the residual path, by autograd, through 1,600 norms of width 512."""

    def passed(alpha: float, length: int = 1600) -> float:
        generator = torch.Generator().manual_seed(2)
        x0 = torch.randn(512, generator=generator, dtype=torch.float64, requires_grad=True)
        x = x0
        for _ in range(length):
            branch = torch.randn(512, generator=generator, dtype=torch.float64)
            x = torch.nn.functional.layer_norm(alpha * x + branch, (512,))
        (gradient,) = torch.autograd.grad(x @ torch.randn(512, generator=generator, dtype=torch.float64), x0)
        return gradient.norm().item() / math.sqrt(512)

    assert abs(passed(1600.0) - 1) < 0.1
    assert abs(passed(1600**0.75) - 1) < 0.1, "far below alpha = L, and all of it comes through"
    assert abs(passed(1600**0.5) - math.exp(-0.5)) < 0.1
    assert passed(1600**0.25) < 1e-3


def test_KE_04_deepnet_s_alpha_beta_is_not_one() -> None:
    for num_layers in (12, 100):
        alpha, beta = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
        assert math.isclose(alpha * beta, 0.5**0.5)
        for length in (num_layers, 2 * num_layers):
            assert not math.isclose(length**0.25 * length**-0.25, alpha * beta, rel_tol=0.1)
