"""What refutes a claim of Su's article again, on plain torch with autograd: slow, and with no code of the claim."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from depthlaw.paper_checks.routes.intervals import interval

pytestmark = pytest.mark.slow


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], eps=0.0)


def log_ratio(num_tokens: int, width: int, seed: int) -> float:
    """log of the squared gradient of lambda_q over that of lambda_v, over 16 readouts of one attention at gain 1."""
    x = norm(normal(num_tokens, width, seed=seed + 2))
    q, k, v, o = (normal(width, width, seed=seed + 3 + i) / math.sqrt(width) for i in range(4))
    scalars = torch.ones(2, dtype=torch.float64, requires_grad=True)
    scores = scalars[0] * (x @ q) @ (x @ k).T / math.sqrt(width)
    out = scores.softmax(-1) @ (x @ v * scalars[1]) @ o
    readouts = normal(16, num_tokens, width, seed=seed + 9)
    grads = [torch.autograd.grad((out * readout).sum(), scalars, retain_graph=True)[0] for readout in readouts]
    of_q, of_v = torch.stack(grads).square().sum(0)
    return math.log(float(of_q / of_v))


@pytest.mark.parametrize(("num_tokens", "width"), [(256, 32), (128, 64)])
def test_S1_18_the_gradient_of_q_is_as_large_as_that_of_v(num_tokens: int, width: int) -> None:
    """Logits over sqrt(d), independent tokens: nowhere near a quarter of v's square, nor is it beyond twice."""
    low, high = interval([log_ratio(num_tokens, width, 100 * seed) for seed in range(24)])
    assert low > math.log(0.7)
    assert high < math.log(2)
