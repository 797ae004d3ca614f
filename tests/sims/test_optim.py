"""First steps against the real optimizers; the published algorithms against numpy; torch's departures in numbers."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from depthlaw.sims.optim import MIXED, OPTIMIZERS, Sophia, first_step, group_options, make

SHAPES = {"matrix": (6, 4), "vector": (5,), "scalar": ()}
DTYPES = (torch.float64, torch.float32)
CONVERGING = {"ns_coefficients": (15 / 8, -10 / 8, 3 / 8), "ns_steps": 40}
"""Newton-Schulz that ends at the polar factor, which the customary coefficients only come near."""


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def real_step(name: str, grad: Tensor, weight: Tensor, **options: Any) -> Tensor:
    """-(theta_1 - theta_0) / lr of the optimizer itself, at lr 1."""
    theta = nn.Parameter(weight.clone())
    theta.grad = grad.clone()
    make(name, [theta], 1.0, **options).step()
    return weight - theta.detach()


def agree(value: Tensor, expected: Tensor, *others: Tensor) -> bool:
    """Equal to the rounding of numbers of their own size and that of ``others``."""
    size = sum((x.abs().max() for x in others), expected.abs())
    return bool(((value - expected).abs() <= 32 * torch.finfo(value.dtype).eps * size).all())


def gradients(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[Tensor]:
    dense = normal(*shape, seed=1, dtype=dtype)
    sparse = dense * (normal(*shape, seed=2, dtype=dtype) > 0)
    yield from (dense, sparse, torch.zeros(shape, dtype=dtype), 1e-9 * dense)
    if len(shape) == 2:
        without_a_row, one_input = dense.clone(), normal(shape[0], 1, seed=3, dtype=dtype) @ dense[:1].relu()
        without_a_row[1] = 0
        yield from (without_a_row, one_input)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_step_is_the_real_first_step(name: str, kind: str, dtype: torch.dtype) -> None:
    weight = normal(*SHAPES[kind], seed=4, dtype=dtype)
    for grad in gradients(SHAPES[kind], dtype):
        if kind != "matrix" or "muon" not in name:
            step = first_step(name, grad, weight, weight.ndim)
            assert step.dtype == dtype
            assert agree(real_step(name, grad, weight), step, weight)
            assert not step[grad == 0].any()


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (4, 4), (1, 5)])
def test_first_step_of_muon_is_where_its_iteration_leads(shape: tuple[int, int]) -> None:
    """Entries of U V^T are at most 1, and the iteration rounds them to bfloat16."""
    for seed in range(3):
        grad = normal(*shape, seed=seed)
        real = real_step("muon", grad, torch.zeros(shape).double(), **CONVERGING)
        assert (real - first_step("muon", grad, grad, 2)).abs().max() <= 4 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("sgd", "momentum", "muon", MIXED)])
def test_real_first_steps_of_the_smallest_gradients_are_no_longer(name: str, dtype: torch.dtype) -> None:
    """Squares underflow on the way; eps must not be so small that it lets m / (sqrt(0) + eps) explode."""
    weight = normal(6, 4, seed=2, dtype=dtype)
    grad, longest = normal(6, 4, seed=1, dtype=dtype), first_step(name, torch.ones_like(weight), weight, 2).norm()
    lowest = int(math.log10(torch.finfo(dtype).tiny))
    for power in range(-1, lowest, lowest // 30):
        step = real_step(name, grad * 10.0**power, weight).norm()
        assert step <= longest or agree(step, longest, weight)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_step_shows_a_gradient_that_is_not_a_number(name: str) -> None:
    grad, weight = normal(2, 6, 4, seed=1), normal(2, 6, 4, seed=2)
    grad[0, 3, 1] = math.nan
    step = first_step(name, grad, weight, 2)
    assert step[0, 3, 1].isnan()
    assert step[1].isfinite().all()


Array = np.ndarray
LR, DECAY, NUM_STEPS = 0.05, 0.1, 6


def written_signsgd(theta: Array, grads: list[Array], beta: float = 0.9) -> Array:
    m = np.zeros_like(theta)
    for g in grads:
        m = beta * m + (1 - beta) * g
        theta = theta - LR * (np.sign(m) + DECAY * theta)
    return theta


def written_lion(theta: Array, grads: list[Array]) -> Array:
    m = np.zeros_like(theta)
    for g in grads:
        theta = theta - LR * (np.sign(0.8 * m + 0.2 * g) + DECAY * theta)
        m = 0.95 * m + 0.05 * g
    return theta


def written_lars(theta: Array, grads: list[Array]) -> Array:
    m = np.zeros_like(theta)
    for g in grads:
        m = 0.8 * m + 0.2 * (g + DECAY * theta)
        theta = theta - LR * np.sqrt((theta**2).sum() / (m**2).sum()) * m
    return theta


def written_lamb(theta: Array, grads: list[Array]) -> Array:
    m = v = np.zeros_like(theta)
    for t, g in enumerate(grads, start=1):
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
        step = m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3) + DECAY * theta
        theta = theta - LR * np.sqrt((theta**2).sum() / (step**2).sum()) * step
    return theta


def written_sophia(theta: Array, grads: list[Array]) -> Array:
    """As published, in its order: decay first. ``grads`` of steps 2 and 4 serve for the Hessian too, of 50 examples."""
    m = h = np.zeros_like(theta)
    for t, g in enumerate(grads):
        m = 0.8 * m + 0.2 * g
        if t in (2, 4):
            h = 0.95 * h + 0.05 * 50 * g * g
        theta = theta - LR * DECAY * theta
        theta = theta - LR * np.clip(m / np.maximum(0.05 * h, 1e-3), -1, 1)
    return theta


def written_adafactor(theta: Array, grads: list[Array]) -> Array:
    """Algorithms 4 and 5 with sums, not means, and without eps; decay after Loshchilov and Hutter."""
    rows = columns = v = np.zeros(())
    for t, g in enumerate(grads, start=1):
        decay, rho = 1 - t**-0.8, min(LR, t**-0.5)
        if theta.ndim == 2:
            rows = decay * rows + (1 - decay) * (g**2).sum(1, keepdims=True)
            columns = decay * columns + (1 - decay) * (g**2).sum(0, keepdims=True)
            v = rows * columns / rows.sum()
        else:
            v = decay * v + (1 - decay) * g**2
        u = g / np.sqrt(v)
        step = rho * np.sqrt((theta**2).mean()) * u / max(1, np.sqrt((u**2).mean()))
        theta = theta - LR * DECAY * theta - step
    return theta


BETAS = {"betas": (0.8, 0.95)}
WRITTEN: dict[str, tuple[Callable[[Array, list[Array]], Array], dict[str, Any]]] = {
    "signsgd": (written_signsgd, {"momentum": 0.9}),
    "lion": (written_lion, BETAS),
    "lars": (written_lars, {"momentum": 0.8}),
    "lamb": (written_lamb, BETAS | {"eps": 1e-3}),
    "sophia": (written_sophia, BETAS | {"eps": 1e-3}),
    "adafactor": (written_adafactor, {}),
}


def train(name: str, theta: Tensor, grads: list[Tensor], **options: Any) -> Tensor:
    theta = nn.Parameter(theta.clone())
    optimizer = make(name, [theta], LR, **options)
    for index, grad in enumerate(grads):
        theta.grad = grad.clone()
        if index in (2, 4) and isinstance(optimizer, Sophia):
            optimizer.update_hessian(num_examples=50)
        optimizer.step()
    return theta.detach()


def course(kind: str) -> tuple[Tensor, list[Tensor]]:
    """A parameter and its gradients, which shrink: what is clipped first is not in the end."""
    shape = SHAPES[kind]
    return normal(*shape, seed=1), [normal(*shape, seed=10 + t) * 2.0 ** (2 - t) for t in range(NUM_STEPS)]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", WRITTEN)
def test_several_steps_are_those_of_the_published_algorithm(name: str, kind: str) -> None:
    theta, grads = course(kind)
    written, options = WRITTEN[name]
    expected = torch.as_tensor(written(theta.numpy(), [g.numpy() for g in grads]))
    assert agree(train(name, theta, grads, weight_decay=DECAY, **options), expected, theta)


@pytest.mark.parametrize("name", ["adafactor", "lars", "lamb"])
def test_relative_steps_of_small_parameters_are_small(name: str) -> None:
    """With the paper's least RMS, 0.001, adafactor would move them by more than themselves; none of these moves a 0."""
    grad, weight = normal(6, 4, seed=1), 1e-6 * normal(6, 4, seed=2)
    assert agree(real_step(name, grad, weight), first_step(name, grad, weight, 2), weight)
    assert not first_step(name, grad, 0 * weight, 2).any()
    assert real_step(name, grad, 0 * weight).abs().max() < 1e-150


MUON_SHAPES = {"tall": (16, 4), "as tall": (16, 4), "wide": (4, 16), "table": (9, 4), "bias": (5,), "scalar": ()}


@pytest.mark.parametrize("name", ["muon", MIXED])
def test_muon_is_that_of_torch_beside_adamw(name: str) -> None:
    """Of muon but for the shape, and vectors go by AdamW. Beside AdamW, a table does too, at one learning rate. Where
    two are of one shape, as of each by itself."""
    start = {part: normal(*shape, seed=1) for part, shape in MUON_SHAPES.items()}
    ours, theirs = ({part: nn.Parameter(theta.clone()) for part, theta in start.items()} for _ in range(2))
    rest = ["bias", "scalar"] if name == "muon" else ["table", "bias", "scalar"]
    branch = [part for part in MUON_SHAPES if part not in rest]
    groups: list[dict[str, Any]] = [
        {"params": [ours[part] for part in branch]},
        {"params": [ours[part] for part in rest], **group_options(name, is_branch=False)},
    ]
    adjusted = "match_rms_adamw" if name == MIXED else None
    optimizers = [make(name, groups, LR, weight_decay=DECAY)]
    for part in branch:
        rate = LR if name == MIXED else LR * min(1.0, (MUON_SHAPES[part][1] / MUON_SHAPES[part][0]) ** 0.5)
        optimizers.append(torch.optim.Muon([theirs[part]], rate, DECAY * LR / rate, adjust_lr_fn=adjusted))
    optimizers.append(torch.optim.AdamW([theirs[part] for part in rest], LR, weight_decay=DECAY, eps=1e-150))
    for t in range(NUM_STEPS):
        for part, shape in MUON_SHAPES.items():
            ours[part].grad = theirs[part].grad = normal(*shape, seed=10 + t + 100 * len(part)) / len(part)
        for optimizer in optimizers:
            optimizer.step()
    for part in MUON_SHAPES:
        assert agree(ours[part].detach(), theirs[part].detach(), start[part])
        assert not agree(ours[part].detach(), start[part])


def test_unknown_names_are_refused() -> None:
    parameter = torch.ones(1)
    for call in (lambda: make("adamm", [parameter], 0.1), lambda: first_step("adamm", parameter, parameter, 1)):
        with pytest.raises(ValueError, match=r"did you mean adam or adamw.*sgd, momentum, .*, sophia"):
            call()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": -1.0}, "-1"),
        ({"parameters": []}, "no parameters"),
        ({"warmth": 1}, "warmth"),
        ({"betas": (0.9, 1.0)}, "must lie in"),
        ({"weight_decay": math.nan}, r"not 0\.1 and"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        make(**{"name": "lamb", "parameters": [torch.zeros(2, 2)], "lr": 0.1} | options)
