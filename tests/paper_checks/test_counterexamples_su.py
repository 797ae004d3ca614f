"""What refutes claims of Su's article, and of DeepNet on attention and LayerNorm, again on plain torch with autograd.

The claims find their counterexamples anew in every run; this second look at them uses nothing of their code, and is
slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from depthlaw.paper_checks.routes.intervals import interval

pytestmark = pytest.mark.slow


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], eps=0.0)


# ---------------------------------------------------------------- S1-07, S1-08: Xavier matrices

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


@pytest.mark.parametrize("width", [16, 128])
def test_S1_10_the_probe_sees_nothing_of_sub_ln_s_first_matrix(width: int) -> None:
    """dL/dlambda is 0 and L the same at every lambda, while ||dL/dW|| is of the order of W2's, whose probe sees it."""
    squares = []
    for seed in range(20):
        x, head = normal(2, 3, width, seed=seed)
        w1, w2 = (normal(2, width, width, seed=100 + seed) / math.sqrt(width)).requires_grad_()

        def loss(lambdas: Tensor, x: Tensor = x, head: Tensor = head, w1: Tensor = w1, w2: Tensor = w2) -> Tensor:
            branch = norm((norm(x) @ (lambdas[0] * w1)).relu()) @ (lambdas[1] * w2)
            return (norm(x + branch) * head).sum() / width

        lambdas = torch.ones(2, dtype=torch.float64, requires_grad=True)
        by_lambdas, *by_matrices = torch.autograd.grad(loss(lambdas), (lambdas, w1, w2))
        assert abs(float(by_lambdas[0])) < 1e-12
        for scale in (0.5, 2.0):
            scaled = loss(torch.tensor([scale, 1.0], dtype=torch.float64))
            assert abs(float((scaled - loss(lambdas)).detach())) < 1e-12
        squares.append([float(by_lambdas[1]) ** 2, *(float(by_matrix.square().sum()) for by_matrix in by_matrices)])
    by_lambda, by_first, by_second = map(sum, zip(*squares, strict=True))
    assert by_first > 1e-2 * by_second
    assert by_lambda > 1e-3 * by_second / width


# ---------------------------------------------------------------- S1-18


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


# ---------------------------------------------------------------- DN-15


def spectral(function: nn.Module, x: Tensor) -> float:
    """The spectral norm of its Jacobian."""
    jacobian = torch.autograd.functional.jacobian(function, x)
    assert isinstance(jacobian, Tensor)
    return float(torch.linalg.matrix_norm(jacobian, 2))


@pytest.mark.parametrize("width", [4, 256])
def test_DN_15_a_common_shift_leaves_the_gradient_of_layer_norm(width: int) -> None:
    """torch's own: the spectral norm stays sqrt(d)/|x - mean| while sqrt(d)/|x|, which is RMSNorm's, goes to zero."""
    token, ratios = normal(width, seed=width), []
    of_torch, rms = (kind(width, eps=0.0, dtype=torch.float64) for kind in (nn.LayerNorm, nn.RMSNorm))
    for shift in (0.0, 1e1, 1e2, 1e3, 1e4):
        x = token + shift
        assert spectral(of_torch, x) == pytest.approx(math.sqrt(width) / float((x - x.mean()).norm()), rel=1e-6)
        assert spectral(rms, x) == pytest.approx(math.sqrt(width) / float(x.norm()), rel=1e-6)
        ratios.append(spectral(of_torch, x) * float(x.norm()) / math.sqrt(width))
    assert ratios[0] < 2
    assert all(late / early > 5 for early, late in pairwise(ratios))
