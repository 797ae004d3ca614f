"""Counterexamples to what is said of attention, of averages of tokens and of LayerNorm, again on plain torch.

Every gradient is autograd's, of layers written here or of torch's own; nothing of the claims' code is used.
The claims find their counterexamples anew in
every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from paper_checks.routes.intervals import interval

pytestmark = pytest.mark.slow

NUM_READOUTS = 16
"""Of one network: a quarter as many again tells its own scalars better, and the mean over networks no better."""
Weights = Callable[[Tensor], Tensor]


def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def linear(scores: Tensor) -> Tensor:
    """Row-normalised, without an exponential."""
    return (1 + scores - scores.mean(-1, keepdim=True)) / scores.shape[-1]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@cache
def squared_gradients(
    num_tokens: int, width: int, seed: int, *, scale: float, weights: Weights = softmax
) -> tuple[Tensor, Tensor]:
    """(of lambda_q, lambda_v; of W_q, W_v), squared: sum over tokens of readout . out, one attention at gain 1.

    The squares are the mean over the readouts.
    """
    x = torch.nn.functional.layer_norm(normal(num_tokens, width, seed=seed + 2), (width,), eps=0.0)
    q, k, v, o = (normal(width, width, seed=seed + 3 + i) / math.sqrt(width) for i in range(4))
    scalars = torch.ones(2, dtype=torch.float64, requires_grad=True)
    q.requires_grad_()
    v.requires_grad_()
    scores = scalars[0] * (x @ q) @ (x @ k).T * scale
    out = weights(scores) @ (x @ v * scalars[1]) @ o
    squares, matrices = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for readout in normal(NUM_READOUTS, num_tokens, width, seed=seed + 9):
        found = torch.autograd.grad((out * readout).sum(), (scalars, q, v), retain_graph=True)
        squares += found[0].square() / NUM_READOUTS
        matrices += torch.stack([g.square().sum() for g in found[1:]]) / NUM_READOUTS
    return squares, matrices


def log_ratios(count: int, *args: int, which: int = 0, **rest: Any) -> list[float]:
    found = (squared_gradients(*args, seed=100 * seed, **rest)[which] for seed in range(count))
    return [math.log(float(pair[0] / pair[1])) for pair in found]


# ---------------------------------------------------------------- S1-18


@pytest.mark.parametrize(("num_tokens", "width"), [(256, 32), (128, 64)])
def test_S1_18_the_gradient_of_q_is_as_large_as_that_of_v(num_tokens: int, width: int) -> None:
    """Logits over sqrt(d), independent tokens: nowhere near a quarter of v's square, nor is it beyond twice."""
    low, high = interval(log_ratios(24, num_tokens, width, scale=width**-0.5))
    assert low > math.log(0.7)
    assert high < math.log(2)


def test_S1_18_without_a_scale_the_scalar_is_small_and_the_matrix_is_not() -> None:
    width = 256
    scalars, matrices = (log_ratios(24, 8, width, scale=1.0, which=which) for which in (0, 1))
    assert interval(scalars)[1] < math.log(1 / 2)
    assert interval(matrices)[0] > math.log(width**0.5 / 8)
    low, high = interval([m - s for m, s in zip(matrices, scalars, strict=True)])
    assert low > math.log(width / 8)  # |k|^2 = d beside it
    assert high < math.log(width * 32)


def test_S1_18_the_softmax_is_not_the_cause() -> None:
    """The gradient of lambda_q is no larger without it."""
    with_it, without = (log_ratios(24, 64, 64, scale=64**-0.5, weights=weights) for weights in (softmax, linear))
    assert interval([o - b for o, b in zip(without, with_it, strict=True)])[1] < 0


@pytest.mark.parametrize(("num_tokens", "width", "variance"), [(256, 64, 0.25), (256, 1024, 0.25), (1024, 256, 1.0)])
def test_S1_18_the_law_of_many_tokens(num_tokens: int, width: int, variance: float) -> None:
    """Squares of d xbar/d lambda_q over those of xbar = d xbar/d lambda_v, 64 queries, by central differences."""
    n, h, logs = width * math.exp(variance) / num_tokens, 1e-5, []
    for seed in range(24):
        x = normal(num_tokens, width, seed=7000 + seed)
        logits = math.sqrt(variance / width) * normal(64, width, seed=8000 + seed) @ x.T
        below, out, above = (softmax(scale * logits) @ x for scale in (1 - h, 1.0, 1 + h))
        moved = (above - below) / (2 * h)
        logs.append(math.log(float(moved.square().sum() / out.square().sum())))
    low, high = map(math.exp, interval(logs))
    assert low < (n * (variance + variance**2) + variance) / (n + variance) < high
    assert high / low < 1.25


def two_dimensional(signs: list[float], logit: float, lambdas: Tensor) -> Tensor:
    """Tokens +-x with x = (1, -1), one query whose logits are lambda_q times +-logit; lambda_v times their average."""
    tokens = torch.tensor(signs, dtype=torch.float64)[:, None] * torch.tensor([1.0, -1.0], dtype=torch.float64)
    logits = lambdas[0] * logit * torch.tensor(signs, dtype=torch.float64)
    return lambdas[1] * logits.softmax(0) @ tokens


@pytest.mark.parametrize("logit", [0.01, 1.0])
def test_S1_18_two_opposite_tokens_exactly(logit: float) -> None:
    """The gradient of lambda_q is 2a/sinh(2a) of lambda_v's, whatever the readout: it goes to all of it."""
    lambdas = torch.ones(2, dtype=torch.float64, requires_grad=True)
    for seed in range(5):
        out = two_dimensional([1.0, -1.0], logit, lambdas)
        (found,) = torch.autograd.grad(out @ normal(2, seed=seed), lambdas)
        assert float(found[0] / found[1]) == pytest.approx(2 * logit / math.sinh(2 * logit), rel=1e-12)


def test_S1_18_three_tokens_where_only_q_has_a_gradient() -> None:
    lambdas = torch.ones(2, dtype=torch.float64, requires_grad=True)
    logit, readout = math.log(2) / 2, torch.tensor([1.0, 0.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(two_dimensional([1.0, -1.0, -1.0], logit, lambdas) @ readout, lambdas)
    assert abs(float(found[1])) < 1e-15
    assert float(found[0]) == pytest.approx(logit, rel=1e-12)


# ---------------------------------------------------------------- DN-01


@pytest.mark.parametrize("width", [2, 512])
def test_DN_01_opposite_tokens_average_to_zero(width: int) -> None:
    """Tokens of mean 0 and variance 1, equal logits."""
    token = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(width // 2)
    tokens = torch.stack([token, -token])
    assert [float(t.mean()) for t in tokens] == [0.0, 0.0]
    assert [float(t.var(correction=0)) for t in tokens] == [1.0, 1.0]
    average = torch.zeros(2, dtype=torch.float64).softmax(0) @ tokens
    assert float(average.norm()) == 0.0
    assert float(token.norm()) == pytest.approx(math.sqrt(width), rel=1e-14)  # and not d, as the proof has it


@pytest.mark.parametrize("num_tokens", [16, 1024])
def test_DN_01_independent_tokens_lose_the_square_root_of_their_number(num_tokens: int) -> None:
    """A real attention layer: |average|^2/|x|^2 is sum p_j^2, of which logits of variance 1 make e/n."""
    width, squares = 256, []
    for seed in range(8):
        x = torch.nn.functional.layer_norm(normal(num_tokens, width, seed=seed), (width,), eps=0.0)
        q, k = (normal(width, width, seed=20 + 2 * seed + i) / math.sqrt(width) for i in range(2))
        p = ((x[:8] @ q) @ (x @ k).T / math.sqrt(width)).softmax(-1)
        spread = float(p.square().sum(-1).mean())
        squares.append(math.log(float((p @ x).square().mean()) / (spread + 1 / width)))
    low, high = interval(squares)
    assert high < math.log(1.6)
    assert low > math.log(0.6)


# ---------------------------------------------------------------- DN-15


def spectral(norm: torch.nn.Module, x: Tensor) -> float:
    """The spectral norm of its Jacobian."""
    jacobian = torch.autograd.functional.jacobian(norm, x)
    assert isinstance(jacobian, Tensor)
    return float(torch.linalg.matrix_norm(jacobian, 2))


@pytest.mark.parametrize("width", [4, 256])
def test_DN_15_a_common_shift_leaves_the_gradient_of_layer_norm(width: int) -> None:
    """torch's own: the spectral norm stays sqrt(d)/|x - mean| while sqrt(d)/|x|, which is RMSNorm's, goes to zero."""
    token, ratios = normal(width, seed=width), []
    norm, rms = (kind(width, eps=0.0, dtype=torch.float64) for kind in (torch.nn.LayerNorm, torch.nn.RMSNorm))
    for shift in (0.0, 1e1, 1e2, 1e3, 1e4):
        x = token + shift
        assert spectral(norm, x) == pytest.approx(math.sqrt(width) / float((x - x.mean()).norm()), rel=1e-6)
        assert spectral(rms, x) == pytest.approx(math.sqrt(width) / float(x.norm()), rel=1e-6)
        ratios.append(spectral(norm, x) * float(x.norm()) / math.sqrt(width))
    assert ratios[0] < 2
    assert all(late / early > 5 for early, late in pairwise(ratios))
