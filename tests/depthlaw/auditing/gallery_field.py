"""The gallery's models of kinds that people build beside the plain block: each a right one, and with mistakes in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.depthlaw.auditing.gallery import (
    GAINED,
    GPT_2,
    LLAMA,
    OUTPUTS,
    VASWANI,
    Planted,
    Twin,
    but_layer_2,
    flat,
    gpt_2,
    reset,
)
from tests.depthlaw.auditing.transformer import (
    PRE,
    At,
    FeedForward,
    LanguageModel,
    Law,
    Matrix,
    Shape,
    Sublayer,
    everywhere,
    one,
    xavier,
)

# ---------------------------------------------------------------- functions that autograd does not name


class _Function(torch.autograd.Function):
    """A function whose backward pass is written by its author: here, of what ``run`` computes."""

    run: Callable[..., Tensor]

    @classmethod
    def of(cls, *given: Any) -> Tensor:
        return cls.apply(cls.run, *given)

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Tensor], *given: Any) -> Tensor:
        with torch.enable_grad():
            ctx.given = [own.detach().requires_grad_() if isinstance(own, Tensor) else own for own in given]
            ctx.answer = run(*ctx.given)
        return ctx.answer.detach()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (vector,) = grad_outputs
        wanted = [own for own in ctx.given if isinstance(own, Tensor)]
        answers = iter(torch.autograd.grad(ctx.answer, wanted, vector, retain_graph=True))
        return None, *(next(answers) if isinstance(own, Tensor) else None for own in ctx.given)


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
    def forward(self, input: Tensor) -> Tensor:
        return NormFunction.of(input, self.weight, self.bias)


class LinearOfFunction(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return LinearFunction.of(input, self.weight, self.bias)


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


functions = Twin(name="gpt2 of functions", shape=FUNCTIONS, law=gpt_2, recipe="gpt2")
recomputed = Twin(name="gpt2, recomputed", shape=replace(GPT_2, sublayer=Recomputed), law=gpt_2, recipe="gpt2")

_FUNCTIONS = (
    functions.faulty(
        "functions-reset",
        "Matrices, norms, activations and attentions are functions of one's own, and the depth rule is erased.",
        "init-law",
        *OUTPUTS,
        edit=reset,
    ),
    functions.faulty(
        "functions-without-a-norm",
        "Norms are functions of one's own, and the FFN of the second layer has none.",
        "norms",
        norms=but_layer_2(PRE, "pre"),
    ),
    recomputed.faulty(
        "recomputed-reset",
        "Sublayers are computed again in the backward pass, and the depth rule is erased.",
        "init-law",
        *OUTPUTS,
        edit=reset,
    ),
)

# ---------------------------------------------------------------- other numbers of sublayers in a layer

THREE = replace(GPT_2, kinds=("attention", "ffn", "ffn"))
MACARON = replace(GPT_2, kinds=("ffn", "attention", "ffn"))
FOUR = replace(GPT_2, kinds=("ffn", "attention", "ffn", "ffn"))
ONE = replace(GPT_2, kinds=("ffn",), has_positions=False)


def of_sums(number: float) -> Law:
    """GPT-2's rule, by the residual sums of a layer."""
    return lambda matrix: 0.02 / math.sqrt(number * matrix.place.num_layers) if matrix.role in OUTPUTS else 0.02


three = Twin(name="three sums a layer", shape=THREE, law=of_sums(3), scheme="gpt2")
macaron = Twin(name="FFNs on both sides", shape=MACARON, law=of_sums(3), scheme="gpt2")
four = Twin(name="four sums a layer", shape=FOUR, law=of_sums(4), scheme="gpt2")
one_sum = Twin(name="one sum a layer", shape=ONE, law=of_sums(1), scheme="gpt2")

_SUMS = (
    three.faulty(
        "two-sums-of-three",
        "Layers of an attention and two FFNs have GPT-2's rule as that of two sums to a layer.",
        "init-constant",
        *OUTPUTS,
        law=of_sums(2),
    ),
    macaron.faulty(
        "macaron-without-the-rule",
        "Layers with an FFN on both sides of the attention are started without the depth rule.",
        "init-law",
        *OUTPUTS,
        law=flat,
    ),
    four.faulty(
        "two-sums-of-four",
        "Layers of an attention and three FFNs have GPT-2's rule as that of two sums to a layer.",
        "init-constant",
        *OUTPUTS,
        law=of_sums(2),
    ),
    one_sum.faulty(
        "two-sums-of-one",
        "Layers of one FFN have the rule of two sums to a layer.",
        "init-constant",
        "fc2",
        law=of_sums(2),
    ),
)


# ---------------------------------------------------------------- blocks that something else scales, shifts and gates


class Conditioned(Sublayer):
    """As in a DiT: what the branch is given is scaled and shifted by a condition, what it gives is gated by it."""

    parts: frozenset[str] = frozenset({"scale", "shift", "gate"})

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        self.modulation = nn.Linear(shape.d_model, 3 * shape.d_model)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        assert memory is not None
        scale, shift, gate = self.modulation(F.silu(memory)).unsqueeze(1).chunk(3, dim=-1)
        u = self.pre(x)
        u = u * (1 + scale) if "scale" in self.parts else u
        u = u + shift if "shift" in self.parts else u
        y = self.branch(u)
        return x + (gate * y if "gate" in self.parts else y)


class Shifted(Conditioned):
    parts = frozenset({"shift"})


class Gated(Conditioned):
    parts = frozenset({"gate"})


class Films(Conditioned):
    parts = frozenset({"scale", "shift"})


class Diffusion(LanguageModel):
    """A stream of vectors, and a time and a class that condition its blocks."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__(shape, num_layers)
        self.patches = nn.Linear(8, shape.d_model)
        self.classes = nn.Embedding(10, shape.d_model)
        self.times = nn.Sequential(nn.Linear(1, shape.d_model), nn.SiLU(), nn.Linear(shape.d_model, shape.d_model))

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, condition = self.patches(x), self.classes(y) + self.times(t[:, None])
        for block in self.stack.blocks:
            for sublayer in block.children():
                x = sublayer(x, condition)
        return self.lm_head(self.stack.final_norm(x))


def zero_gates(model: nn.Module) -> None:
    """adaLN-Zero: scales, shifts and gates start at zero."""
    for part in model.modules():
        if isinstance(part, Conditioned):
            nn.init.zeros_(part.modulation.weight)
            nn.init.zeros_(part.modulation.bias)


def of_diffusion(_: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 16, 8, generator=generator), torch.tensor([0.2, 0.7]), torch.tensor([3, 7])


def _conditioned(name: str, sublayer: type[Conditioned], *edits: Callable[[nn.Module], Any]) -> Twin:
    shape = Shape(arch="encoder", sublayer=sublayer, model=Diffusion)
    return Twin(name=name, shape=shape, edits=edits, scheme="pre-ln", inputs=of_diffusion)


def of_dit(matrix: Matrix) -> float:
    """Queries, keys and values are one matrix there, and Xavier's of it."""
    return (2 * 32) ** -0.5 if matrix.role in ("q", "k", "v") else xavier(matrix)


dit = _conditioned("dit", Conditioned)
dit_by_name = replace(_conditioned("dit, by its name", Conditioned, zero_gates), scheme=None, recipe="dit", law=of_dit)
dit_zero = _conditioned("dit, zero gates", Conditioned, zero_gates)
_MODULATED = (
    _conditioned("shifted", Shifted),
    _conditioned("gated", Gated),
    _conditioned("scaled and shifted", Films),
)

_CONDITIONS = (
    dit.faulty(
        "dit-without-a-norm",
        "The second layer's FFN is given the stream itself, scaled and shifted.",
        "norms",
        "pre",
        norms=but_layer_2(PRE, "pre"),
    ),
    dit.faulty(
        "dit-by-depth",
        "Output matrices of a DiT that claims to be plain pre-LN are divided by the number of sublayers.",
        "init-law",
        *OUTPUTS,
        law=lambda m: xavier(m) * ((2 * m.place.num_layers) ** -0.5 if m.role in OUTPUTS else 1),
    ),
    replace(
        dit_by_name.faulty(
            "dit-with-live-gates",
            "The modulation of a DiT is not set to zero behind the initialisation of all linear layers.",
            "branch-weight",
        ),
        build=replace(dit_by_name, edits=()).build,
    ),
    dit_by_name.faulty(
        "dit-q-by-itself",
        "Queries, keys and values of a DiT are initialised each by itself, sqrt(2) times its Xavier's.",
        "init-constant",
        "q",
        "k",
        "v",
        law=xavier,
    ),
    dit_zero.faulty(
        "dit-zero-twice",
        "Both the gates and the output matrices of a DiT start at zero.",
        "dead-branch",
        law=lambda m: 0.0 if m.role in OUTPUTS else xavier(m),
    ),
)


# ---------------------------------------------------------------- values of the first half beside those of the second


class UNet(LanguageModel):
    """Each layer of the second half is given what its counterpart in the first half answered, beside the stream."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__(shape, num_layers)
        self.joins = nn.ModuleList(nn.Linear(2 * shape.d_model, shape.d_model) for _ in range(num_layers // 2))

    def forward(self, input_ids: Tensor) -> Tensor:
        stack, kept = self.stack, []
        x = stack.embedding(input_ids)
        half = len(stack.blocks) - len(self.joins)
        for block in stack.blocks[:half]:
            x = block(x)
            kept.append(x)
        for block, join in zip(stack.blocks[half:], self.joins, strict=True):
            x = block(join(torch.cat([x, kept.pop()], -1)))
        return self.lm_head(stack.final_norm(x))


def as_torch_starts_them(model: Any) -> None:
    for join in model.joins:
        join.reset_parameters()


u_net = Twin(
    name="u-net",
    shape=replace(GPT_2, model=UNet, has_positions=False),
    law=gpt_2,
    edits=(as_torch_starts_them,),
    scheme="gpt2",
)
_JOINED = (
    u_net.faulty(
        "u-net-without-a-norm",
        "The FFNs of the second half of a U-Net have no norm.",
        "norms",
        "pre",
        norms=lambda at: PRE(at) if at.kind != "ffn" or at.layer <= at.num_layers / 2 else set(),
    ),
)

# ---------------------------------------------------------------- widths that differ from layer to layer


def growing(at: At) -> int:
    """From a layer of half the stream's width to one of four times that, as OpenELM has its FFNs."""
    return 8 * round(2 + 14 * (at.layer - 1) / max(at.num_layers - 1, 1))


PYRAMID = replace(GPT_2, ffn_widths=growing, is_fused=False, has_bias=False)


def by_fan_in(matrix: Matrix) -> float:
    return 1.0 if matrix.role == "embedding" else matrix.weight.shape[-1] ** -0.5


def by_fan_in_and_depth(matrix: Matrix) -> float:
    return by_fan_in(matrix) * ((2 * matrix.place.num_layers) ** -0.5 if matrix.role in OUTPUTS else 1)


pyramid = Twin(name="a pyramid", shape=PYRAMID, law=by_fan_in, scheme="pre-ln")
pyramid_by_depth = Twin(name="a pyramid by depth", shape=PYRAMID, law=by_fan_in_and_depth, scheme="gpt2")

_WIDTHS = (
    pyramid_by_depth.faulty(
        "pyramid-without-the-rule",
        "FFNs are wider from layer to layer, each matrix at its own fan-in, and the depth rule is forgotten.",
        "init-law",
        *OUTPUTS,
        law=by_fan_in,
    ),
    pyramid.faulty(
        "pyramid-by-depth",
        "FFNs are wider from layer to layer, and outputs have a depth rule that plain pre-LN has not.",
        "init-law",
        *OUTPUTS,
        law=by_fan_in_and_depth,
    ),
)


# ---------------------------------------------------------------- what stands in front of the layers


class Front(nn.Module):
    """Positions by a convolution over the stream, added to it and normalised, as in wav2vec 2.0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.positions = nn.Conv1d(width, width, 5, padding=2, groups=2)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + F.gelu(self.positions(x.transpose(1, 2)).transpose(1, 2)))


def with_front(model: Any) -> None:
    model.stack.embedding_norm = Front(32)


def with_normed_front(model: Any) -> None:
    """Its weights a direction and a size."""
    with_front(model)
    nn.utils.parametrizations.weight_norm(model.stack.embedding_norm.positions, dim=2)


front = Twin(name="post-ln behind positions", shape=VASWANI, edits=(with_front,), scheme="post-ln")
_FRONTS = (
    Twin(name="post-ln behind normed", shape=VASWANI, edits=(with_normed_front,), scheme="post-ln"),
    Twin(name="pre-ln behind positions", edits=(with_front,), scheme="pre-ln"),
)

_FRONT = (
    front.faulty(
        "front-without-a-norm",
        "Positions are a convolution in front of the layers, and the second layer's FFN has no norm.",
        "norms",
        "post",
        norms=but_layer_2(everywhere("post"), "post"),
    ),
)


# ---------------------------------------------------------------- what no model means to have, whatever its name


def alpha(at: At) -> float:
    """DeepNorm's."""
    return (2 * at.num_layers) ** 0.25


def by_deepnorm(matrix: Matrix) -> float:
    return xavier(matrix) * ((8 * matrix.place.num_layers) ** -0.25 if matrix.role in GAINED else 1)


class Convolved(FeedForward):
    """A conformer's convolution: tokens are mixed by a convolution of each feature by itself."""

    def __init__(self, shape: Shape, at: At, norms: frozenset[str]) -> None:
        super().__init__(replace(shape, ffn_width=shape.d_model, is_gated=True), at, norms)
        self.mixing = nn.Conv1d(shape.d_model, shape.d_model, 3, padding=1, groups=shape.d_model)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        assert self.gate_proj is not None
        hidden = torch.sigmoid(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.activation(self.mixing(hidden.transpose(1, 2)).transpose(1, 2)))


class OfConformer(Sublayer):
    """The third of a layer is the convolution, and the last is normalised behind its sum."""

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        if at.kind == "conv":
            self.branch = Convolved(shape, at, frozenset())


def half(at: At) -> float:
    return 0.5 if at.kind == "ffn" else 1.0


def normed_blocks(model: Any) -> None:
    for block in model.stack.blocks:
        block.ffn_3.post_norm = nn.LayerNorm(32)


MACARONS = Shape(arch="encoder", branch_weight=half, activation=F.silu)
CONFORMER = replace(MACARONS, kinds=("ffn", "attention", "conv", "ffn"), sublayer=OfConformer, has_final=False)

llama = Twin(name="Llama, by no name", shape=LLAMA, law=flat)
alphas = Twin(name="DeepNorm, by no name", shape=replace(VASWANI, residual_weight=alpha), law=by_deepnorm)
_UNNAMED = (
    Twin(name="a conformer, by no name", shape=CONFORMER, edits=(normed_blocks,)),
    Twin(name="three halves", shape=replace(MACARONS, kinds=("ffn", "attention", "ffn"))),
)

_WITHOUT_A_NAME = (
    llama.faulty(
        "llama-without-a-final-norm",
        "A Llama of which it is not said that it is one has no norm before the head.",
        "norms",
        "final",
        has_final=False,
    ),
    alphas.faulty(
        "growing-branches",
        "DeepNorm's alpha stands on the branches of a post-norm model that claims nothing.",
        "residual-weight",
        residual_weight=one,
        branch_weight=alpha,
    ),
    llama.faulty(
        "growing-branches-pre-norm",
        "DeepNorm's alpha stands on the branches of a Llama, whose stream has no norm: on that it would explode.",
        "residual-weight",
        branch_weight=alpha,
    ),
    llama.faulty(
        "growing-stream-pre-norm",
        "DeepNorm's alpha stands on the stream of a Llama, which no norm divides again.",
        "residual-weight",
        residual_weight=alpha,
    ),
)

# ---------------------------------------------------------------- all of it

PLANTED: tuple[Planted, ...] = (*_FUNCTIONS, *_SUMS, *_CONDITIONS, *_JOINED, *_WIDTHS, *_FRONT, *_WITHOUT_A_NAME)
TWINS: dict[str, Twin] = {
    twin.name: twin for twin in (*(planted.twin for planted in PLANTED), *_MODULATED, *_FRONTS, *_UNNAMED)
}
RENAMED = ("functions-reset", "two-sums-of-three", "dit-without-a-norm", "pyramid-without-the-rule", "growing-branches")
"""Those that are looked for under other names besides."""
