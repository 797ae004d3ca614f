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


def test_CP_05_a_rate_that_falls_takes_decay_along() -> None:
    """torch's AdamW on a weight without a gradient: at alpha = 1/2, four times as deep, half as much is taken off."""

    def taken_off(ratio: int, alpha: float) -> float:
        weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = torch.optim.AdamW([weight], lr=0.01 * ratio ** (alpha - 1), weight_decay=0.1)
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
        return 1 - weight.item()

    assert math.isclose(taken_off(4, 0.5), taken_off(1, 0.5) / 2, rel_tol=1e-9)
    assert math.isclose(taken_off(4, 1.0), taken_off(1, 1.0), rel_tol=1e-9)


class _Layer(torch.nn.Module):
    """x + branch W2 relu(W1 norm(x)), or norm(x + branch W2 relu(W1 x))."""

    def __init__(self, width: int, branch: float, *, is_post: bool) -> None:
        super().__init__()
        self.up, self.down = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        for part in (self.up, self.down):
            torch.nn.init.normal_(part.weight, std=width**-0.5)
        self.branch, self.is_post, self.norm = branch, is_post, torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_post:
            return self.norm(x + self.branch * self.down(self.up(x).relu()))
        return x + self.branch * self.down(self.up(self.norm(x)).relu())


def built(num_layers: int, branch: float = 1.0, num_post: int = 0, width: int = 128) -> torch.nn.Sequential:
    """The first num_post layers are post-norm, and a stack of them alone has no norm behind it."""
    layers = [_Layer(width, branch, is_post=layer < num_post) for layer in range(num_layers)]
    last = torch.nn.Identity() if num_post == num_layers else torch.nn.LayerNorm(width)
    return torch.nn.Sequential(*layers, last, torch.nn.Linear(width, 1, bias=False))


def test_MC_01_adam_s_first_step_grows_as_the_root_of_depth() -> None:
    """What a step of sign(gradient) of the branches' matrices changes the output by, to first order."""

    def moved(num_layers: int) -> float:
        """The sum over 24 networks."""
        torch.manual_seed(num_layers)
        total = 0.0
        for _ in range(24):
            model = built(num_layers, branch=1.4 / math.sqrt(num_layers))
            matrices = [parameter for parameter in model.parameters() if parameter.shape == (128, 128)]
            gradients = torch.autograd.grad(model(torch.randn(1, 128)).sum(), matrices)
            total += sum(float(gradient.abs().sum()) for gradient in gradients)
        return total

    growth = moved(64) / moved(8)
    assert 2 < growth < 4, "eight times the layers: the root of eight is 2.8"


def test_MX_01_post_ln_s_early_layers_have_as_much_gradient_as_its_late_ones() -> None:
    """Root mean square over 32 inputs, of 16 layers; Mix-LN's first quarter is post-norm."""

    def norms(num_post: int) -> list[float]:
        torch.manual_seed(1)
        model = built(16, num_post=num_post)
        squares = torch.zeros(16)
        for _ in range(32):
            model.zero_grad()
            model(torch.randn(1, 128)).sum().backward()
            for place, layer in enumerate(list(model)[:16]):
                grads = [parameter.grad for parameter in layer.parameters() if parameter.ndim == 2]
                squares[place] += sum(float(grad.square().sum()) for grad in grads if grad is not None)
        return squares.sqrt().tolist()

    pre, post, mix = (norms(num_post) for num_post in (0, 16, 4))
    assert 0.5 < post[0] / post[-1] < 2 < pre[0] / pre[-1]
    assert max(post) / min(post) < max(mix) / min(mix)
