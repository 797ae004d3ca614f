"""Functions that autograd does not name are read by what they do, and where they have no derivative that is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from depthlaw.auditing.inputs import guess
from depthlaw.auditing.reading.look import Built, look
from tests.depthlaw.auditing.gallery import GPT_2, gpt_2
from tests.depthlaw.auditing.gallery_field import (
    FUNCTIONS,
    GeluFunction,
    LinearOfFunction,
    NormOfFunction,
    Recomputed,
    attend,
)
from tests.depthlaw.auditing.transformer import Shape, transformer

APART = replace(GPT_2, is_fused=False)


def read(shape: Shape) -> Built:
    torch.manual_seed(0)
    module = transformer(shape, gpt_2)(2)
    return look(module, guess(module))


def told(built: Built) -> list[Any]:
    return [
        (sub.kind, sub.norms, sub.activation, sub.num_heads, sub.is_causal, [(w.role, w.name) for w in sub.weights])
        for sub in built.sublayers
    ]


@pytest.mark.parametrize(
    "shape",
    [
        replace(APART, norm=NormOfFunction),
        replace(APART, activation=GeluFunction.of),
        replace(APART, linear=LinearOfFunction),
        replace(APART, attend=attend),
        replace(APART, sublayer=Recomputed),
        FUNCTIONS,
    ],
    ids=["norm", "activation", "linear", "attention", "recomputed", "all"],
)
def test_functions_are_read_as_what_they_compute(shape: Shape) -> None:
    built, plain = read(shape), read(APART)
    assert told(built) == told(plain) and built.others == plain.others
    assert built.norm_kind == plain.norm_kind == "layernorm" and not built.unread


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (vector,) = grad_outputs
        gate, up = ctx.saved_tensors
        share = torch.sigmoid(gate)
        return vector * up * (share + gate * share * (1 - share)), vector * F.silu(gate)


class _Slowed(torch.autograd.Function):
    """The identity, with a tenth of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (vector,) = grad_outputs
        return vector / 10


class _Rounded(torch.autograd.Function):
    """Without a backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()


class _Net(nn.Module):
    """Two blocks of a gated FFN, or of a recurrence, and what is done to the stream before them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(_Block(kind) for _ in range(2))
        self.head = nn.Linear(8, 16)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        x = _Slowed.apply(x) if self.kind == "slowed" else x
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class _Block(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.norm = kind, nn.RMSNorm(8)
        self.gate, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        gate, up = self.gate(x), self.up(x)
        if self.kind == "rounded":
            return self.down(_Rounded.apply(up))
        if self.kind == "recurrence":
            states = [torch.zeros_like(up[:, 0])]
            for at in range(x.shape[1]):
                states.append(torch.sigmoid(gate[:, at]) * states[-1] + up[:, at])
            return self.down(torch.stack(states[1:], 1))
        return self.down(_Gated.apply(gate, up))


@pytest.mark.parametrize("kind", ["gated", "slowed"])
def test_a_gate_that_is_one_function_has_its_activation(kind: str) -> None:
    module = _Net(kind)
    built = look(module, guess(module))
    assert [sub.kind for sub in built.sublayers] == ["ffn", "ffn"]
    assert {sub.activation for sub in built.sublayers} == {"swiglu"}
    assert [w.role for w in built.sublayers[0].weights] == ["fc1", "fc3", "fc2"]
    assert [w.name for w in built.sublayers[0].weights] == [f"blocks.0.{of}.weight" for of in ("gate", "up", "down")]


def test_what_has_no_derivative_is_refused_by_the_name_of_its_part() -> None:
    module = _Net("rounded")
    with pytest.raises(ValueError, match=r"blocks\.0 \(_Block\).*derivative.*_Rounded fails, NotImplementedError"):
        look(module, guess(module))


def test_a_recurrence_is_no_ffn_and_said_to_mix_tokens() -> None:
    from depthlaw.auditing.updates import as_config

    module = _Net("recurrence")
    built = look(module, guess(module))
    assert [sub.kind for sub in built.sublayers] == ["other", "other"]
    with pytest.raises(ValueError, match=r"^blocks\.0\.down is .* tokens are mixed, and by no attention"):
        as_config(built)


def test_an_operation_of_ones_own_is_read() -> None:
    @torch.library.custom_op("depthlaw_tests::gelu", mutates_args=())
    def gelu(x: Tensor) -> Tensor:
        return F.gelu(x)

    gelu.register_autograd(
        lambda ctx, vector: torch.ops.aten.gelu_backward(vector, ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    assert told(read(replace(APART, activation=gelu))) == told(read(APART))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_part_is_read_as_it_is_written() -> None:
    torch.manual_seed(0)
    module: Any = transformer(APART, gpt_2)(2)
    plain = told(look(module, guess(module)))
    for block in module.stack.blocks:
        block.ffn.branch = torch.compile(block.ffn.branch)
    built = look(module, guess(module))
    names = [(role, name.replace("_orig_mod.", "")) for *_, weights in told(built) for role, name in weights]
    assert names == [pair for *_, weights in plain for pair in weights]
