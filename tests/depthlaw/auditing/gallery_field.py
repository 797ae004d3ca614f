"""The gallery's models of kinds that people build beside the plain block: each a right one, and with mistakes in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.depthlaw.auditing.gallery import GPT_2, OUTPUTS, Planted, Twin, but_layer_2, gpt_2, reset
from tests.depthlaw.auditing.transformer import PRE, Sublayer, transformer

# ---------------------------------------------------------------- functions that autograd does not name


class _Function(torch.autograd.Function):
    """A function whose backward pass is written by its author: here, of what ``run`` computes."""

    run: Callable[..., Tensor]

    @classmethod
    def of(cls, *given: Any) -> Tensor:
        return cls.apply(*given)

    @classmethod
    def forward(cls, ctx: Any, *given: Any) -> Tensor:  # type: ignore[override]
        with torch.enable_grad():
            ctx.given = [own.detach().requires_grad_() if isinstance(own, Tensor) else own for own in given]
            ctx.answer = cls.run(*ctx.given)
        return ctx.answer.detach()

    @staticmethod
    def backward(ctx: Any, vector: Tensor) -> Any:  # type: ignore[override]
        wanted = [own for own in ctx.given if isinstance(own, Tensor)]
        answers = iter(torch.autograd.grad(ctx.answer, wanted, vector, retain_graph=True))
        return tuple(next(answers) if isinstance(own, Tensor) else None for own in ctx.given)


class NormFunction(_Function):
    run = staticmethod(lambda x, gain, bias: F.layer_norm(x, gain.shape, gain, bias))


class GeluFunction(_Function):
    run = staticmethod(F.gelu)


class LinearFunction(_Function):
    run = staticmethod(lambda x, weight, bias: x @ weight.T + bias)


class AttentionFunction(_Function):
    """With tokens before heads, as fused kernels have them."""

    @staticmethod
    def run(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2)


class NormOfFunction(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return NormFunction.of(x, self.weight, self.bias)


class LinearOfFunction(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return LinearFunction.of(x, self.weight, self.bias)


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None) -> Tensor:
    return AttentionFunction.of(*(part.transpose(1, 2) for part in (q, k, v)), is_causal).transpose(1, 2)


FUNCTIONS = replace(
    GPT_2,
    is_fused=False,
    norm=NormOfFunction,
    activation=GeluFunction.of,
    linear=LinearOfFunction,
    attend=attend,
)


class Recomputed(Sublayer):
    """Its activations are computed again in the backward pass, by the older way, of which the graph shows nothing."""

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        return checkpoint(super().forward, x, memory, use_reentrant=True)


functions = Twin(name="gpt2 of functions", build=transformer(FUNCTIONS, gpt_2), recipe="gpt2")
recomputed = Twin(name="gpt2, recomputed", build=transformer(replace(GPT_2, sublayer=Recomputed), gpt_2), recipe="gpt2")

_FUNCTIONS = (
    Planted(
        name="functions-reset",
        says="Matrices, norms, activations and attentions are functions of one's own, and the depth rule is erased.",
        twin=functions,
        build=transformer(FUNCTIONS, gpt_2, reset),
        kind="init-law",
        roles=OUTPUTS,
    ),
    Planted(
        name="functions-without-a-norm",
        says="Norms are functions of one's own, and the FFN of the second layer has none.",
        twin=functions,
        build=transformer(replace(FUNCTIONS, norms=but_layer_2(PRE, "pre")), gpt_2),
        kind="norms",
    ),
    Planted(
        name="recomputed-reset",
        says="Sublayers are computed again in the backward pass, and the depth rule is erased.",
        twin=recomputed,
        build=transformer(replace(GPT_2, sublayer=Recomputed), gpt_2, reset),
        kind="init-law",
        roles=OUTPUTS,
    ),
)


# ---------------------------------------------------------------- all of it

PLANTED: tuple[Planted, ...] = _FUNCTIONS
TWINS: dict[str, Twin] = {twin.name: twin for twin in (planted.twin for planted in PLANTED)}
RENAMED = ("functions-reset",)
"""Those that are looked for under other names besides."""
