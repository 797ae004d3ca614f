"""The gallery's models that begin otherwise, or have other parts: tables of values, learned tokens that read, mixers of
tokens without an attention, functions with a scale of their own, matrices that are made of others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.depthlaw.auditing.gallery import (
    OUTPUTS,
    VASWANI,
    Planted,
    Twin,
    flat,
    gpt_2,
    peri_ln,
)
from tests.depthlaw.auditing.gallery_field import (
    FUNCTIONS,
    Conditioned,
    Diffusion,
    _Function,
    dit_by_name,
    of_sums,
)
from tests.depthlaw.auditing.transformer import (
    At,
    Attention,
    Block,
    FeedForward,
    LanguageModel,
    Law,
    Shape,
    Stack,
    Sublayer,
    everywhere,
)

# ---------------------------------------------------------------- values out of a table of their own


class Valued(Attention):
    """Half of its values come from a table in which the tokens are looked up once more, as in modded-nanogpt."""

    values: Tensor

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        parts = self.q_proj(x), self.k_proj(x), 0.5 * self.v_proj(x) + 0.5 * self.values
        y = F.scaled_dot_product_attention(*(part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts))
        return self.out_proj(y.transpose(1, 2).flatten(2))


class OfTables(Sublayer):
    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        if at.kind == "attention":
            self.branch = Valued(shape, at, frozenset())


class Tables(LanguageModel):
    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__(shape, num_layers)
        self.table = nn.Embedding(64, shape.d_model)

    def forward(self, input_ids: Tensor) -> Tensor:
        for part in self.modules():
            if isinstance(part, Valued):
                part.values = self.table(input_ids)
        return super().forward(input_ids)


tables = Twin(name="tables of values", shape=Shape(sublayer=OfTables, model=Tables), law=gpt_2, scheme="gpt2")

# ---------------------------------------------------------------- learned tokens


class Reader(nn.Module):
    """A Perceiver: a few learned tokens read what is given in every layer."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(6, shape.d_model))
        self.given = nn.Linear(12, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape, "encoder", layer, num_layers) for layer in range(1, num_layers + 1))
        self.final_norm = nn.LayerNorm(shape.d_model) if shape.has_final else nn.Identity()
        self.lm_head = nn.Linear(shape.d_model, 10)

    def forward(self, readings: Tensor) -> Tensor:
        memory, x = self.given(readings), self.latents.expand(len(readings), -1, -1)
        for block in self.blocks:
            x = block(x, memory)
        return self.lm_head(self.final_norm(x))


def readings(_: nn.Module) -> tuple[Tensor]:
    return (torch.randn(2, 9, 12, generator=torch.Generator().manual_seed(1)),)


def by_all_sums(number: int) -> Law:
    """GPT-2's rule, of cross-attentions as of the others."""
    outs = (*OUTPUTS, "cross_out")
    return lambda m: 0.02 / (math.sqrt(number * m.place.num_layers) if m.role in outs else 1)


READER = Shape(arch="encoder", kinds=("cross", "attention", "ffn"), model=Reader)
reader = Twin(name="a Perceiver", shape=READER, law=by_all_sums(3), scheme="gpt2", inputs=readings)


class Queried(Stack):
    """A decoder that begins with learned tokens, as DETR's."""

    def __init__(self, shape: Shape, side: str, num_layers: int) -> None:
        super().__init__(shape, side, num_layers)
        self.queries = nn.Parameter(torch.randn(5, shape.d_model))

    def forward(self, inputs: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.queries.expand(len(inputs), -1, -1)
        for block in self.blocks:
            x = block(x, memory)
        return x


class Detector(nn.Module):
    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        self.encoder = Stack(shape, "encoder", num_layers)
        self.decoder = Queried(shape, "decoder", num_layers)
        self.lm_head = nn.Linear(shape.d_model, 7)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.lm_head(self.decoder(pixel_values, self.encoder(pixel_values)))


DETECTOR = replace(VASWANI, arch="encoder-decoder", inputs="images", model=Detector)
detector = Twin(name="a detector", shape=DETECTOR, scheme="post-ln")


def unnormed_once(at: At) -> frozenset[str]:
    return frozenset() if (at.side, at.kind, at.layer) == ("decoder", "cross", 2) else frozenset({"post"})


# ---------------------------------------------------------------- tokens mixed without an attention


class Mixer(FeedForward):
    """A running mean of gated inputs, each token mixed with the one before, as in linear recurrent models."""

    def __init__(self, shape: Shape, at: At, norms: frozenset[str]) -> None:
        super().__init__(shape, at, norms)
        self.decay = nn.Parameter(torch.full((shape.ffn_width,), 0.5))
        self.mix = nn.Parameter(torch.full((1, 1, shape.d_model), 0.6))
        self.skip_proj = nn.Linear(shape.d_model, shape.ffn_width)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = x * self.mix + F.pad(x, (0, 0, 1, -1)) * (1 - self.mix)
        inputs, state, states = self.up_proj(x), torch.zeros_like(self.up_proj(x)[:, 0]), []
        for place in range(x.shape[1]):
            state = torch.sigmoid(self.decay) * state + inputs[:, place]
            states.append(state)
        return self.down_proj(torch.stack(states, 1) * F.silu(self.skip_proj(x)))


class OfMixers(Sublayer):
    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        if at.kind == "mixer":
            self.branch = Mixer(shape, at, frozenset())


def of_skips(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, Mixer):
            nn.init.normal_(part.skip_proj.weight, std=0.02)


def one_skip(model: nn.Module) -> None:
    """The third layer's."""
    if len(own := [part for part in model.modules() if isinstance(part, Mixer)]) > 2:
        nn.init.normal_(own[2].skip_proj.weight, std=0.3)


MIXERS = Shape(kinds=("mixer",), sublayer=OfMixers)
mixers = Twin(name="mixers", shape=MIXERS, law=of_sums(1), edits=(of_skips,), scheme="gpt2")
mixed = Twin(
    name="mixers and FFNs",
    shape=replace(MIXERS, kinds=("mixer", "ffn")),
    law=of_sums(2),
    edits=(of_skips,),
    scheme="gpt2",
)

# ---------------------------------------------------------------- other parts


class ScaledFunction(_Function):
    @staticmethod
    def run(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float | None) -> Tensor:
    assert is_causal
    return ScaledFunction.of(q, k, v, scale)


kernels = Twin(name="gpt2 of kernels", shape=replace(FUNCTIONS, attend=attend), law=gpt_2, recipe="gpt2")


def spectral(*size: Any) -> nn.Module:
    return parametrizations.spectral_norm(nn.Linear(*size))


def zero_head(model: Any) -> None:
    nn.init.zeros_(model.lm_head.weight)


class ByTable(Conditioned):
    """As PixArt: one modulation for all layers, and a table for each; a text is read by cross-attentions."""

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        self.table = nn.Parameter(torch.randn(3, shape.d_model) / 8)
        del self.modulation

    def shifted(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift, gate = (self.table[None] + condition).chunk(3, dim=1)
        return x + gate * self.branch(self.pre(x) * (1 + scale) + shift)


class Pictures(Diffusion):
    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__(shape, num_layers)
        self.modulation, self.words = nn.Linear(8, 3 * shape.d_model), nn.Linear(12, shape.d_model)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        x, words = self.patches(x), self.words(y)
        condition = self.modulation(t).unflatten(-1, (3, -1))
        for block in self.stack.blocks:
            for sublayer in block.children():
                assert isinstance(sublayer, ByTable)
                is_cross = sublayer.at.kind == "cross"
                x = Sublayer.forward(sublayer, x, words) if is_cross else sublayer.shifted(x, condition)
        return self.lm_head(self.stack.final_norm(x))


def of_pictures(_: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(*size, generator=generator) for size in ((2, 9, 8), (2, 8), (2, 5, 12)))  # pyright: ignore


PICTURES = Shape(arch="encoder", kinds=("attention", "cross", "ffn"), sublayer=ByTable, model=Pictures)
pictures = Twin(name="pictures by a table", shape=PICTURES, scheme="pre-ln", inputs=of_pictures)
wider = Twin(
    name="wider by layer",
    shape=Shape(ffn_widths=lambda at: 32 * (1 + at.layer)),
    law=lambda m: m.weight.shape[-1] ** -0.5,
    scheme="pre-ln",
)


def last_down(model: Any) -> None:
    nn.init.normal_(model.stack.blocks[-1].ffn.branch.down_proj.weight, std=0.02)


# ---------------------------------------------------------------- all of it

PLANTED: tuple[Planted, ...] = (
    tables.faulty(
        "tables-without-the-rule",
        "Attentions are given values out of a table, too, and nothing goes by the number of layers.",
        "init-law",
        *OUTPUTS,
        law=flat,
    ),
    reader.faulty(
        "two-sums-of-three-of-a-reader",
        "Layers in which learned tokens read, attend and are fed have the rule of two sums to a layer.",
        "init-constant",
        *(*OUTPUTS, "cross_out"),
        law=by_all_sums(2),
    ),
    reader.faulty(
        "reader-without-a-final-norm",
        "Learned tokens go to the head without a norm.",
        "norms",
        "final",
        has_final=False,
    ),
    detector.faulty(
        "learned-tokens-without-a-norm",
        "The sum behind one cross-attention of learned tokens has no norm.",
        "norms",
        "post",
        side="decoder",
        norms=unnormed_once,
    ),
    mixers.faulty(
        "two-sums-of-a-mixer",
        "Layers of one mixer have the rule of two sums to a layer.",
        "init-constant",
        "out",
        law=of_sums(2),
    ),
    mixers.faulty(
        "mixers-without-a-final-norm", "Mixers have no norm before the head.", "norms", "final", has_final=False
    ),
    mixers.faulty("one-mixer-s-skip", "One layer's gate of a mixer is drawn larger.", "init-law", edit=one_skip),
    mixed.faulty(
        "mixers-without-the-rule",
        "Mixers and the FFNs behind them have no rule.",
        "init-law",
        *("out", "fc2"),
        law=flat,
    ),
    kernels.faulty(
        "kernel-not-divided",
        "A kernel of one's own is told to leave the products of queries and keys as they are.",
        "attention-scale",
        "q",
        attention_scale=1.0,
    ),
    peri_ln.faulty(
        "norm-behind-one-sum",
        "A norm stands on the stream behind the second layer.",
        "norms",
        "post",
        norms=lambda at: everywhere("pre", "branch")(at) | ({"post"} if (at.layer, at.kind) == (2, "ffn") else set()),
    ),
    pictures.faulty(
        "pictures-without-a-final-norm",
        "A model of pictures by a table has no final norm.",
        "norms",
        "final",
        has_final=False,
    ),
    wider.faulty(
        "last-of-wider", "The last and widest FFN's output matrix starts smaller.", "init-law", "fc2", edit=last_down
    ),
)
TWINS: dict[str, Twin] = {
    twin.name: twin
    for twin in (
        *(planted.twin for planted in PLANTED if planted.twin is not peri_ln),
        replace(dit_by_name, name="dit, head at zero", edits=(*dit_by_name.edits, zero_head)),
        Twin(
            name="pre-ln, largest singular values of 1",
            shape=Shape(d_model=64, ffn_width=256, linear=spectral),
            scheme="pre-ln",
        ),
    )
}
RENAMED = ("tables-without-the-rule", "reader-without-a-final-norm", "kernel-not-divided")
"""Those that are looked for under other names besides."""
