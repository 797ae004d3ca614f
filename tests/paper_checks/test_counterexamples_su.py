"""What refutes claims of Su's article, and of DeepNet on attention and LayerNorm, again on plain torch with autograd.

The claims find their counterexamples anew in every run; this second look at them uses nothing of their code, and is
slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
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

NUM_READOUTS = 16
"""Of one network: a quarter as many again tells its own scalars better, and the mean over networks no better."""
Weights = Callable[[Tensor], Tensor]


def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def linear(scores: Tensor) -> Tensor:
    """Row-normalised, without an exponential."""
    return (1 + scores - scores.mean(-1, keepdim=True)) / scores.shape[-1]


@cache
def squared_gradients(
    num_tokens: int, width: int, seed: int, *, scale: float, weights: Weights = softmax
) -> tuple[Tensor, Tensor]:
    """(of lambda_q, lambda_v; of W_q, W_v), squared: sum over tokens of readout . out, one attention at gain 1.

    The squares are the mean over the readouts.
    """
    x = norm(normal(num_tokens, width, seed=seed + 2))
    q, k, v, o = (normal(width, width, seed=seed + 3 + i) / math.sqrt(width) for i in range(4))
    scalars = torch.ones(2, dtype=torch.float64, requires_grad=True)
    q.requires_grad_()
    v.requires_grad_()
    scores = scalars[0] * (x @ q) @ (x @ k).T * scale
    out = weights(scores) @ (x @ v * scalars[1]) @ o
    squares, matrices = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for readout in normal(NUM_READOUTS, num_tokens, width, seed=seed + 9):
        by_scalars, *by_matrices = torch.autograd.grad((out * readout).sum(), (scalars, q, v), retain_graph=True)
        squares += by_scalars.square() / NUM_READOUTS
        matrices += torch.stack([grad.square().sum() for grad in by_matrices]) / NUM_READOUTS
    return squares, matrices


def log_ratios(*shape: int, which: int = 0, **rest: Any) -> list[float]:
    """Of 24 networks, q over v: of the scalars (0) or of the matrices (1)."""
    pairs = (squared_gradients(*shape, seed=100 * seed, **rest)[which] for seed in range(24))
    return [math.log(float(of_q / of_v)) for of_q, of_v in pairs]


@pytest.mark.parametrize(("num_tokens", "width"), [(256, 32), (128, 64)])
def test_S1_18_the_gradient_of_q_is_as_large_as_that_of_v(num_tokens: int, width: int) -> None:
    """Logits over sqrt(d), independent tokens: nowhere near a quarter of v's square, nor is it beyond twice."""
    low, high = interval(log_ratios(num_tokens, width, scale=width**-0.5))
    assert low > math.log(0.7)
    assert high < math.log(2)


def test_S1_18_without_a_scale_the_scalar_is_small_and_the_matrix_is_not() -> None:
    width = 256
    scalars, matrices = (log_ratios(8, width, scale=1.0, which=which) for which in (0, 1))
    assert interval(scalars)[1] < math.log(1 / 2)
    assert interval(matrices)[0] > math.log(width**0.5 / 8)
    low, high = interval([m - s for m, s in zip(matrices, scalars, strict=True)])
    assert low > math.log(width / 8)  # |k|^2 = d beside it
    assert high < math.log(width * 32)


def test_S1_18_the_softmax_is_not_the_cause() -> None:
    """The gradient of lambda_q is no larger without it."""
    with_it, without = (log_ratios(64, 64, scale=64**-0.5, weights=weights) for weights in (softmax, linear))
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


@pytest.mark.parametrize(("signs", "logit"), [((1, -1), 0.01), ((1, -1), 1.0), ((1, -1, -1), math.log(2) / 2)])
def test_S1_18_opposite_tokens_exactly(signs: tuple[int, ...], logit: float) -> None:
    """x and -x with logits +-a: q's gradient is 2a/sinh(2a) of v's; of x, -x, -x at a = log(2)/2 q alone has one."""
    lambdas, of_logits = (
        torch.ones(2, dtype=torch.float64, requires_grad=True),
        torch.tensor(signs, dtype=torch.float64),
    )
    tokens = of_logits[:, None] * torch.tensor([1.0, -1.0], dtype=torch.float64)
    out = lambdas[1] * (lambdas[0] * logit * of_logits).softmax(0) @ tokens
    of_q, of_v = torch.autograd.grad(out[0], lambdas)[0].tolist()
    if len(signs) == 2:
        assert of_q / of_v == pytest.approx(2 * logit / math.sinh(2 * logit), rel=1e-12)
    else:
        assert abs(of_v) < 1e-15
        assert of_q == pytest.approx(logit, rel=1e-12)


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
        x = norm(normal(num_tokens, width, seed=seed))
        q, k = (normal(width, width, seed=20 + 2 * seed + i) / math.sqrt(width) for i in range(2))
        p = ((x[:8] @ q) @ (x @ k).T / math.sqrt(width)).softmax(-1)
        spread = float(p.square().sum(-1).mean())
        squares.append(math.log(float((p @ x).square().mean()) / (spread + 1 / width)))
    low, high = interval(squares)
    assert high < math.log(1.6)
    assert low > math.log(0.6)


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
