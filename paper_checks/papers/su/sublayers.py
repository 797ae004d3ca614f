"""The article's two sublayers with every matrix W = lambda U: their letters, plain torch, and the derivatives of z.

z is what the norm reads: x + lambda_1 lambda_2 phi(x U_1) U_2/alpha, or the same with attention and lambda_v lambda_o.
Random numbers come from numpy's ``default_rng``, which gives the same ones on every machine. Torch is imported where it
is used: the command line must not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from numpy.random import default_rng
from sympy import Expr

from depthlaw.paper_checks.claims.claim import Part, Route
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import check
from depthlaw.paper_checks.routes.intervals import interval
from depthlaw.theory.symbols import residual_weight as alpha
from depthlaw.theory.symbols import scratch

lam1, lam2, lam_q, lam_k, lam_v, lam_o = (
    scratch(f"lambda_{name}", positive=True) for name in ("1", "2", "q", "k", "v", "o")
)
ROUNDING = 1e-9
"""What float64 may lose along these short computations, with room; every wrong form is off by far more."""


def shown(value: float, digits: int = 3) -> float:
    """A number as it stands in the document."""
    return float(f"{value:.{digits}g}")


def contains(samples: Sequence[float], value: float) -> bool:
    """Whether the interval of the samples' mean contains a value, to rounding."""
    low, high = interval(samples)
    slack = ROUNDING * max(abs(low), abs(high), abs(value))
    return low - slack <= value <= high + slack


# ---------------------------------------------------------------- plain torch


def normal(generator: Any, *shape: int) -> Any:
    """A tensor of independent N(0, 1), float64."""
    import torch

    return torch.from_numpy(generator.standard_normal(shape))


def gaussian(generator: Any, count: int, width: int) -> Any:
    """``count`` square matrices of variance 1/width."""
    return normal(generator, count, width, width) / math.sqrt(width)


def phi(name: str) -> Callable[[Any], Any]:
    """An activation of torch.nn.functional."""
    import torch

    return getattr(torch.nn.functional, {"swish": "silu"}.get(name, name))


def layer_norm(x: Any, eps: float = 0.0) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)


def ffn(x: Any, w1: Any, w2: Any, activation: str = "relu") -> Any:
    return phi(activation)(x @ w1) @ w2


def attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    """One head, with the article's softmax of unscaled products."""
    return (x @ q @ (x @ k).transpose(-1, -2)).softmax(-1) @ x @ v @ o


# ---------------------------------------------------------------- derivatives of z

_SETTINGS = ((1.0, 1.0, 1.0), (0.3, 2.0, 1.0), (1.7, 0.2, 0.5), (0.01, 30.0, 4.0))
"""(first lambda, second lambda, alpha)."""


@cache
def derivatives(kind: str) -> tuple[tuple[tuple[float, ...], Any, Any, Any], ...]:
    """(setting, dz/dlambda, dL/dlambda behind a LayerNorm, the branch at gains 1), both lambdas last, by autograd.

    kind: attention's value path, or an FFN with that activation.
    """
    import torch

    generator = default_rng(14)
    x, head, skip = (normal(generator, 5, 12) for _ in range(3))
    q, k, first, second = gaussian(generator, 4, 12)
    x = layer_norm(x)

    def branch(gains: Any) -> Any:
        matrices = gains[0] * first, gains[1] * second
        return attention(x, q, k, *matrices) if kind == "attention" else ffn(x, *matrices, kind)

    rows = []
    for setting in _SETTINGS:
        lams = torch.tensor(setting[:2], dtype=x.dtype, requires_grad=True)

        def z(gains: Any, weight: float = setting[2]) -> Any:
            return skip + branch(gains) / weight

        jacobian = torch.autograd.functional.jacobian(z, lams)
        (by_lambda,) = torch.autograd.grad((head * layer_norm(z(lams))).sum(), lams)
        rows.append((setting, jacobian, by_lambda, branch(torch.ones(2, dtype=x.dtype))))
    return tuple(rows)


def derivatives_part(name: str, kind: str, letters: tuple[Expr, Expr]) -> Part:
    """dz/dlambda of either matrix is the other lambda over alpha, times the branch at gains 1."""
    statement = Values.of(
        **{f"dz_d{letter}": other / alpha for letter, other in zip(letters, reversed(letters), strict=True)}
    )

    def by_product(s: Values) -> list[bool | None]:
        branch = scratch("V", real=True)
        z = letters[0] * letters[1] * branch / alpha
        pairs = zip(letters, s, strict=True)
        return [bool((z.diff(letter) - printed * branch).expand() == 0) for letter, (_, printed) in pairs]

    def by_autograd(s: Values) -> list[bool | None]:
        import torch

        answers: list[bool | None] = []
        for setting, of_z, _, branch in derivatives(kind):
            at = dict(zip((*letters, alpha), setting, strict=True))
            for (_, printed), jacobian in zip(s, of_z.unbind(-1), strict=True):
                answers.append(torch.allclose(jacobian, float(printed.subs(at)) * branch, rtol=ROUNDING))
        return answers

    return Part(
        name=name,
        statement=statement,
        checks=(
            check(Route.PROOF, "the product rule on z", by_product),
            check(Route.MEASURED, f"autograd through {kind} with W = lambda U, four settings", by_autograd),
        ),
    )
