"""What refutes claims of Su's article, again on torch's own modules with autograd.

The claims find their counterexamples anew in every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from paper_checks.routes.intervals import interval

pytestmark = pytest.mark.slow

SHAPES = ((1, 1), (1, 4), (4, 1))
XAVIER = (nn.init.xavier_normal_, nn.init.xavier_uniform_)
WIDTHS = (32, 64)


def distance(matrix: Tensor, kappa: float) -> float:
    """||W W^T/kappa^2 - I||_F by ||I||_F, from the matrix itself."""
    rows = len(matrix)
    off = matrix @ matrix.T / kappa**2 - torch.eye(rows, dtype=matrix.dtype)
    return float(off.norm()) / math.sqrt(rows)


def best_kappa(matrix: Tensor) -> float:
    """The least of that distance, searched on log kappa (it has one minimum)."""
    eigenvalues = torch.linalg.eigvalsh(matrix @ matrix.T)
    return math.exp(minimize_scalar(lambda x: float((eigenvalues * math.exp(-2 * x) - 1).square().sum())).x)


def xavier(init: Callable[..., Any], rows: int, columns: int, gain: float, seed: int) -> Tensor:
    matrix = torch.empty(rows, columns, dtype=torch.float64)
    init(matrix, gain=gain, generator=torch.Generator().manual_seed(seed))
    return matrix


@pytest.mark.parametrize("init", XAVIER)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_S1_07_lambda_of_a_xavier_matrix_is_not_its_gain(init: Callable[..., Any], rows: int, columns: int) -> None:
    """It is sqrt(2) times the gain, at every shape and gain, the nearer the wider."""
    for gain in (0.5, 3.0):
        for width in WIDTHS:
            samples = [best_kappa(xavier(init, rows * width, columns * width, gain, seed)) / gain for seed in range(8)]
            low, high = interval(samples)
            assert low > 1.3
            # At width d lambda^2 is 2 (1 + b/d), b from -1 to 1.
            assert low < math.sqrt(2 * (1 + 1 / width))
            assert high > math.sqrt(2 * (1 - 1 / width))


@pytest.mark.parametrize("init", XAVIER)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_S1_08_a_xavier_matrix_stays_away_from_orthogonal(init: Callable[..., Any], rows: int, columns: int) -> None:
    """At its best kappa it is at sqrt(n/(n + m)) at every width; at kappa = 1 a square one is as far as zero is."""
    limit = math.sqrt(rows / (rows + columns))
    for width in WIDTHS:
        matrices = [xavier(init, rows * width, columns * width, 1.0, seed) for seed in range(16)]
        low, high = interval([distance(matrix, best_kappa(matrix)) for matrix in matrices])
        assert low > 0.9 * limit
        assert low < limit * (1 + 1 / width)
        assert high > limit * (1 - 2 / width)
        if rows == columns:
            assert interval([distance(matrix, 1.0) for matrix in matrices])[0] > 0.9
    orthogonal = nn.init.orthogonal_(torch.empty(32, 32 * columns, dtype=torch.float64))
    assert distance(orthogonal, best_kappa(orthogonal)) < 1e-6


# ---------------------------------------------------------------- S1-10


class Sublayer(nn.Module):
    """Sub-LN with a last norm, of torch's own layers; eps 0, no biases."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = (nn.Linear(width, width, bias=False, dtype=torch.float64) for _ in range(2))
        for linear in (self.fc1, self.fc2):
            nn.init.xavier_normal_(linear.weight)
        before, inner, self.norm = (
            nn.LayerNorm(width, eps=0.0, elementwise_affine=False, dtype=torch.float64) for _ in range(3)
        )
        self.branch = nn.Sequential(before, self.fc1, nn.ReLU(), inner, self.fc2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.branch(x))


def probe(module: Sublayer, name: str, width: int) -> tuple[float, float, float]:
    """dL/dlambda at lambda 1, ||dL/dW||, and how L differs at lambda 1/2 and 2, for W = lambda U in place of U."""
    x, head = torch.randn(2, 3, width, dtype=torch.float64)
    weight = getattr(module, name).weight

    def loss(scale: Tensor | float) -> Tensor:
        key = f"{name}.weight"
        return (torch.func.functional_call(module, {key: scale * weight}, (x,)) * head).sum() / width

    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    (by_lambda,) = torch.autograd.grad(loss(one), one)
    (by_matrix,) = torch.autograd.grad(loss(1.0), weight)
    moved = max(abs((loss(scale) - loss(1.0)).item()) for scale in (0.5, 2.0))
    return by_lambda.item(), by_matrix.norm().item(), moved


@pytest.mark.parametrize("width", [16, 128])
def test_S1_10_the_probe_sees_nothing_of_sub_ln_s_first_matrix(width: int) -> None:
    """dL/dlambda is 0 and L the same at every lambda, while ||dL/dW|| is of the order of W2's, whose probe sees it."""
    first, second, gradients = [], [], []
    for seed in range(20):
        torch.manual_seed(seed)
        module = Sublayer(width)
        by_lambda, by_matrix, moved = probe(module, "fc1", width)
        assert abs(by_lambda) < 1e-12
        assert moved < 1e-12
        gradients.append(by_matrix)
        by_lambda, by_matrix, _ = probe(module, "fc2", width)
        first.append(by_lambda**2)
        second.append(by_matrix**2)
    assert interval(gradients)[0] > 0
    assert sum(gradients) > 0.1 * sum(x**0.5 for x in second)
    assert sum(first) > 1e-3 * sum(second) / width
