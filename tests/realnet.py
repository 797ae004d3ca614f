"""Real finite-width residual stacks, measured: the second opinion on `theory.meanfield.update`.

Nothing here reads `theory`. The network is the design's one form, square, one input, one logit,

    x_l = norm_post(a_l x_{l-1} + b_l norm_branch(W2 norm_inner(phi(W1 c_l norm_pre(x_{l-1}))))),
    f = head . norm_final(x_L),   W1 ~ N(0, w_l^2/d),  W2 ~ N(0, v_l^2/d),  x_0 ~ N(0, 1),  head ~ N(0, 1/d),

computed in float64 (the Gaussian draws have float32's 24 bits: five times faster), with every gradient from autograd
and many networks at once. Shapes: S networks (seeds), D width.

The D x D matrices are not there: with one input each is used once forward (h = W x) and once backward (W^T delta), and
for a Gaussian matrix both can be drawn without it: h ~ N(0, gain^2 |x|^2 / d), and, given h, W^T delta is
x (h . delta)/|x|^2 plus a Gaussian of scale gain |delta| / sqrt(d) orthogonal to x. It costs O(D) instead of O(D^2), so
that widths of thousands and depths of a hundred are in reach. `tests/sims/test_measure.py` checks this against the
matrices of `sims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from tests.scalarnet import moments, net

ROLES = ("fc1", "fc2")
SIGN_TYPE: tuple[str, ...] = ("adam", "adamw", "rmsprop", "signsgd", "lion", "sophia")
# The functional of the gradient that is f's first-order change in each optimizer's first step, per unit learning rate.
FUNCTIONAL: dict[str, str] = {
    "sgd": "square",
    "momentum": "square",
    **dict.fromkeys(SIGN_TYPE, "sign"),
    "lamb": "layerwise_sign",
    "adafactor": "layerwise_sign",
    "lars": "layerwise",
    "muon": "nuclear",
}
FUNCTIONALS = tuple(dict.fromkeys(FUNCTIONAL.values()))

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One network as plain numbers; entry l - 1 of each list belongs to sublayer l."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    w: tuple[float, ...]
    v: tuple[float, ...]
    norms: frozenset[str]  # of "pre", "inner", "branch", "post", "final"
    activation: str = "relu"
    norm_kind: str = "layernorm"
    start: float = 1.0  # the second moment of x_0
    lr_multiplier: dict[str, float] = field(default_factory=dict)  # by optimizer; 1 where absent

    @property
    def num_sublayers(self) -> int:
        return len(self.a)


def scheme_numbers(
    name: str,
    num_sublayers: int,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    *,
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
) -> Stack:
    """A scheme as `tests.scalarnet` has it. Admin's a_l^2 is 1 + sum_{j<l} Var f_j: branches read variance 1."""
    made = net(name, num_sublayers)
    w, v = w or made.w, v or made.v
    if made.a is None:
        added = (v_l**2 * moments(activation, w_l)["second"] for w_l, v_l in zip(w[:-1], v[:-1], strict=True))
        made.a = [math.sqrt(total) for total in accumulate(added, initial=1.0)]
    a, b, c, w, v = (tuple(map(float, numbers)) for numbers in (made.a, made.b, made.c, w, v))
    rates = dict.fromkeys((*SIGN_TYPE, "adafactor", "lamb", "lars", "muon"), made.lr)
    return Stack(
        **{"a": a, "b": b, "c": c, "w": w, "v": v},
        norms=frozenset(made.norms.split()),
        activation=activation,
        norm_kind=norm_kind,
        start=made.start,
        lr_multiplier=rates,
    )


def layernorm(x_SD: Tensor) -> Tensor:
    x_SD = x_SD - x_SD.mean(-1, keepdim=True)
    return x_SD / x_SD.square().mean(-1, keepdim=True).sqrt()


def rmsnorm(x_SD: Tensor) -> Tensor:
    return x_SD / x_SD.square().mean(-1, keepdim=True).sqrt()


NORMS = {"layernorm": layernorm, "rmsnorm": rmsnorm}


def forward(stack: Stack, x_SD: Tensor, linear: Callable[[str, int, Tensor], Tensor]) -> Tensor:
    """final(x_L). `linear(role, index, x)` multiplies by the matrix of that role in sublayer index + 1."""
    phi, kind = ACTIVATIONS[stack.activation], NORMS[stack.norm_kind]

    def norm(place: str, x: Tensor) -> Tensor:
        return kind(x) if place in stack.norms else x

    for index, (a, b, c) in enumerate(zip(stack.a, stack.b, stack.c, strict=True)):
        u_SD = norm("inner", phi(linear("fc1", index, c * norm("pre", x_SD))))
        x_SD = norm("post", a * x_SD + b * norm("branch", linear("fc2", index, u_SD)))
    return norm("final", x_SD)


def functionals(l1: Tensor, l2: Tensor, nuclear: Tensor, weight_l2: Tensor, width: int) -> dict[str, Tensor]:
    """Per matrix, from the gradient's entry-wise L1, Frobenius and nuclear norm and the matrix's Frobenius norm."""
    return {
        "square": l2**2 / width,
        "sign": l1 / width**1.5,
        "layerwise_sign": weight_l2 * l1 / width**2,
        "layerwise": weight_l2 * l2 / width,
        "nuclear": nuclear / math.sqrt(width),
    }


def draw(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32).double()


class _ImplicitMatrix(torch.autograd.Function):
    """A Gaussian matrix that is multiplied by one vector forward and one backward (see the module's docstring)."""

    @staticmethod
    def forward(ctx, x_SD: Tensor, gain: float, generator: torch.Generator, record: Callable[..., None]) -> Tensor:
        width = x_SD.shape[-1]
        h_SD = draw(x_SD.shape, generator)
        h_SD *= x_SD.norm(dim=-1, keepdim=True) * (gain / math.sqrt(width))
        ctx.save_for_backward(x_SD, h_SD)
        ctx.rest = gain / math.sqrt(width), generator, record
        return h_SD

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        (delta_SD,) = grad_outputs
        (x_SD, h_SD), (sigma, generator, record) = ctx.saved_tensors, ctx.rest
        width, delta_norm = x_SD.shape[-1], delta_SD.norm(dim=-1, keepdim=True)
        x_norm = x_SD.norm(dim=-1, keepdim=True)
        unit_SD = x_SD / x_norm
        z_SD = draw(x_SD.shape, generator)
        z_SD -= unit_SD * (unit_SD * z_SD).sum(-1, keepdim=True)
        back_SD = sigma * delta_norm * z_SD + unit_SD * ((h_SD * delta_SD).sum(-1, keepdim=True) / x_norm)
        # |W|_F^2: the row along x, the column along delta off x, and (D-1)^2 entries that nothing has touched.
        freedom = torch.full(x_norm.shape, (width - 1) ** 2 / 2, dtype=x_SD.dtype)
        rest = 2 * torch._standard_gamma(freedom, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
        square = (h_SD / x_norm).square().sum(-1, keepdim=True) + sigma**2 * (
            z_SD.square().sum(-1, keepdim=True) + rest
        )
        l1 = x_SD.abs().sum(-1) * delta_SD.abs().sum(-1)
        l2 = (x_norm * delta_norm)[:, 0]
        record(functionals(l1, l2, l2, square.sqrt()[:, 0], width))
        return back_SD, None, None, None


Sums = dict[tuple[str, str], Tensor]  # (functional, role) -> one number per seed


def _run(stack: Stack, width: int, num_seeds: int, generator: torch.Generator) -> Sums:
    sums: Sums = {(name, role): torch.zeros(num_seeds, dtype=torch.float64) for name in FUNCTIONALS for role in ROLES}

    def record(role: str, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            sums[name, role] += value

    gains = {"fc1": stack.w, "fc2": stack.v}

    def linear(role: str, index: int, x_SD: Tensor) -> Tensor:
        return _ImplicitMatrix.apply(x_SD, gains[role][index], generator, partial(record, role))

    x_SD = (math.sqrt(stack.start) * draw((num_seeds, width), generator)).requires_grad_()
    head_SD = draw((num_seeds, width), generator) / math.sqrt(width)
    logit_S = (head_SD * forward(stack, x_SD, linear)).sum(-1)
    logit_S.sum().backward()
    return sums


def measure(stack: Stack, width: int, num_seeds: int, seed: int) -> Sums:
    """Every functional by role and in total ("update"), one number per network; no learning-rate multiplier."""
    generator = torch.Generator().manual_seed(seed)
    chunk = max(1, min(num_seeds, 40_000_000 // (12 * stack.num_sublayers * width)))
    sizes = [min(chunk, num_seeds - start) for start in range(0, num_seeds, chunk)]
    parts = [_run(stack, width, size, generator) for size in sizes]
    sums = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return sums | {(name, "update"): sums[name, "fc1"] + sums[name, "fc2"] for name in FUNCTIONALS}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one functional's mean over independent networks at several widths tends to as 1/d -> 0."""

    limit: float
    limit_error: float


def extrapolate(widths: Sequence[int], samples: Sequence[Tensor], degree: int = 2) -> Curve:
    """Weighted least squares of the mean in powers of 1/d; the standard error comes from the seeds alone."""
    means = np.array([float(s.mean()) for s in samples])
    errors = np.array([float(s.std()) / math.sqrt(len(s)) for s in samples])
    if not errors.any():  # not random: the same number in every network
        limit, limit_error = (float(means[-1]), 0.0) if np.ptp(means) == 0 else (math.nan, math.nan)
    else:
        design = np.vander(1 / np.array(widths, dtype=float), degree + 1, increasing=True)
        scale = np.abs(design).max(0)
        scaled = design / scale / errors[:, None]
        covariance = np.linalg.inv(scaled.T @ scaled)
        limit = float((covariance @ scaled.T @ (means / errors))[0] / scale[0])
        limit_error = float(math.sqrt(covariance[0, 0]) / scale[0])
    return Curve(limit=limit, limit_error=limit_error)
