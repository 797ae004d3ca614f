"""Growth of the update with depth in real networks that are wide enough for it: gradients by autograd, one token.

A share of the order of L/d of a network's update is of its width and not of its depth, so 64 sublayers want a width of
hundreds. A matrix that is Gaussian and meets one vector forward and one backward need not be written down for that:
h = W x is normal with variance gain^2 |x|^2/d, and, given h, W^T delta is x (h . delta)/|x|^2 and a normal vector of
scale gain |delta|/sqrt(d) beside it, orthogonal to x. Their law is that of the matrix, at every width, and |df/dW|_F
is |x| |delta|. (The tests hold the two kinds against each other.)

What is decided: an update that is a sum over sublayers has the form (a order + b), the b of the lowest sublayers; at
three depths that leaves one number free of a and b, (T_3 - T_2)/(T_2 - T_1), which tells log L from a power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from sympy import lambdify

from paper_checks.claims.claim import Mutant, Part, Route
from paper_checks.claims.statements import Growth
from paper_checks.routes import second_meanfield
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.intervals import LEVEL, Interval, ends
from sims.stats import difference, estimate
from theory.symbols import L

DEPTHS = (4, 16, 64)
WIDTH, NUM_NETWORKS = 384, 96
NORMS = {
    "post": frozenset({"post"}),
    "pre": frozenset({"pre", "final"}),
    "sub": frozenset({"pre", "inner", "final"}),
}


@cache
def updates(
    placement: str,
    length: int,
    gain: float,
    activations: tuple[str, ...] = ("relu",),
    norm_kind: str = "layernorm",
    *,
    width: int = WIDTH,
    num_networks: int = NUM_NETWORKS,
) -> tuple[float, ...]:
    """U of independent networks in units of eta d. activations: those of the sublayers, in turn and over again."""
    import torch

    total_S = torch.zeros(num_networks, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1000 * length + len(activations))

    def draw() -> torch.Tensor:
        return torch.randn(num_networks, width, generator=generator, dtype=torch.float32).double()

    class Matrix(torch.autograd.Function):
        """A Gaussian matrix that is never written down."""

        @staticmethod
        def forward(ctx: Any, x_SD: torch.Tensor) -> torch.Tensor:
            h_SD = draw() * x_SD.norm(dim=-1, keepdim=True) * (gain / math.sqrt(width))
            ctx.save_for_backward(x_SD, h_SD)
            return h_SD

        @staticmethod
        def backward(ctx: Any, *deltas: torch.Tensor) -> torch.Tensor:
            (x_SD, h_SD), (delta_SD,) = ctx.saved_tensors, deltas
            x_S1, delta_S1 = (vector.norm(dim=-1, keepdim=True) for vector in (x_SD, delta_SD))
            total_S.add_((x_S1 * delta_S1)[:, 0].square() / width)
            unit_SD, beside_SD = x_SD / x_S1, draw()
            beside_SD -= unit_SD * (unit_SD * beside_SD).sum(-1, keepdim=True)
            along_S1 = (h_SD * delta_SD).sum(-1, keepdim=True) / x_S1
            return gain / math.sqrt(width) * delta_S1 * beside_SD + unit_SD * along_S1

    def norm(place: str, x_SD: torch.Tensor) -> torch.Tensor:
        if place not in NORMS[placement]:
            return x_SD
        if norm_kind == "layernorm":
            x_SD = x_SD - x_SD.mean(-1, keepdim=True)
        return x_SD * x_SD.square().mean(-1, keepdim=True).rsqrt()

    phis: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "identity": lambda x_SD: x_SD,
    }
    x_SD = draw().requires_grad_()
    head_SD = draw() / math.sqrt(width)
    for index in range(length):
        phi = phis[activations[index % len(activations)]]
        inside_SD = norm("inner", phi(Matrix.apply(norm("pre", x_SD))))  # pyright: ignore[reportArgumentType]
        x_SD = norm("post", x_SD + Matrix.apply(inside_SD))  # pyright: ignore[reportOperatorIssue]
    (head_SD * norm("final", x_SD)).sum().backward()
    return tuple(total_S.tolist())


@cache
def second_rise(
    placement: str,
    gains: tuple[float, ...],
    activations: tuple[str, ...] = ("relu",),
    norm_kind: str = "layernorm",
    **sizes: int,
) -> Interval:
    """Where (T_3 - T_2)/(T_2 - T_1) lies, T = gain^2 U at the three depths, by the intervals of both differences."""
    totals = [
        estimate([gain**2 * update for update in updates(placement, length, gain, activations, norm_kind, **sizes)])
        for length, gain in zip(DEPTHS, gains, strict=True)
    ]
    first, second = (ends(difference(late, early, LEVEL)) for early, late in pairwise(totals))
    if first.low <= 0:
        raise ValueError("the first rise is within its error")
    return Interval(second.low / first.high, second.high / first.low)


@check(Route.MEASURED, "")
def _rises_as(statement: Growth) -> Answers:
    networks = [second_meanfield.coefficients(statement.scheme, length) for length in DEPTHS]
    gains = tuple(network.gain_in for network in networks)
    rise = second_rise(networks[0].placement, gains, (statement.activation,), statement.norm_kind)
    order = lambdify(L, statement.order, modules="math")
    printed = [gain**2 * float(order(length)) for length, gain in zip(DEPTHS, gains, strict=True)]
    ratio = (printed[2] - printed[1]) / (printed[1] - printed[0])
    return Answers(
        holds=[rise.low <= ratio <= rise.high],
        detail=f"real networks {WIDTH} wide, {NUM_NETWORKS} a depth: the update times gain^2 from {DEPTHS[1]} to "
        f"{DEPTHS[2]} sublayers rises {rise.text} times as much as from {DEPTHS[0]} to {DEPTHS[1]}; as the order, "
        f"{ratio:.2g} times",
    )


def measured_too(part: Part) -> Part:
    """The part with this third route, for orders that so few sublayers tell apart; and a mutant that it surely sees."""
    statement = part.statement
    assert isinstance(statement, Growth)
    return replace(
        part,
        checks=(*part.checks, _rises_as),
        mutants=(*part.mutants, Mutant(name="L times it", statement=statement.with_(order=L * statement.order))),
    )
