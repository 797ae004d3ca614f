"""The gallery's models in which one part is unlike what belongs to it: one of two FFNs of a layer, one of the matrices
that write to the stream, one layer that is live where all others start at zero."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.depthlaw.auditing.gallery import LLAMA, PRE, VASWANI, Planted, Twin, but_layer_2, flat, gpt_2
from tests.depthlaw.auditing.gallery_field import (
    CONFORMER,
    FUNCTIONS,
    dit_zero,
    normed_blocks,
)
from tests.depthlaw.auditing.gallery_kinds import PICTURES, of_pictures
from tests.depthlaw.auditing.transformer import At, FeedForward, Law, Matrix, Shape, Sublayer, transformer, xavier


def but(*roles: str, rule: Law = gpt_2) -> Law:
    """A rule that is forgotten for these roles."""
    return lambda matrix: flat(matrix) if matrix.role in roles else rule(matrix)


# ---------------------------------------------------------------- a cross-attention whose output starts at zero


def all_but_cross(at: At) -> frozenset[str]:
    """As PixArt has them: what a cross-attention adds is made of the text, however large the stream."""
    return frozenset() if at.kind == "cross" else PRE(at)


def zero_cross(matrix: Matrix) -> float:
    return 0.0 if matrix.role == "cross_out" else xavier(matrix)


def live_cross(matrix: Matrix) -> float:
    return xavier(matrix) if matrix.at is not None and matrix.at.layer == 2 else zero_cross(matrix)


unnormed = Twin(
    name="pictures, unnormed cross-attentions",
    shape=replace(PICTURES, norms=all_but_cross),
    law=zero_cross,
    inputs=of_pictures,
)


def live_modulation(model: Any) -> None:
    torch.nn.init.normal_(model.stack.blocks[1].ffn.modulation.weight, std=0.3)


# ---------------------------------------------------------------- a shared expert beside others


class Shared(FeedForward):
    """An expert for all tokens, and two of which each token is given a share."""

    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at, frozenset())
        self.experts = nn.ModuleList(FeedForward(shape, at, frozenset()) for _ in range(2))
        self.router = nn.Linear(shape.d_model, 2, bias=False)
        for name, matrix in self.named_parameters():
            nn.init.normal_(matrix, std=0.02 / math.sqrt(2 * at.num_layers if "down" in name else 1))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        shares = torch.softmax(self.router(x), -1)
        return super().forward(x) + sum(shares[..., [at]] * expert(x) for at, expert in enumerate(self.experts))


class OfExperts(Sublayer):
    def __init__(self, shape: Shape, at: At) -> None:
        super().__init__(shape, at)
        if at.kind == "ffn":
            self.branch = Shared(shape, at)


shared = Twin(name="shared experts, by no name", shape=replace(LLAMA, sublayer=OfExperts), law=gpt_2)

# ---------------------------------------------------------------- what stands where, and is given what

ruled = Twin(name="Llama with GPT-2's rule, by no name", shape=LLAMA, law=gpt_2)
conformer = Twin(name="a conformer, of layers", shape=CONFORMER, edits=(normed_blocks,))
normed = Twin(
    name="functions behind a normed embedding",
    shape=replace(FUNCTIONS, has_embedding_norm=True, embedding_multiplier=50.0),
    law=gpt_2,
    scheme="gpt2",
)
rounds = Twin(
    name="three layers for each that is asked for, and two",
    builder=lambda number: transformer(LLAMA, flat)(3 * number + 2),
)


post = Twin(name="post-LN, by no name", shape=VASWANI)


def small_gain(model: Any) -> None:
    """Of a norm in the second layer."""
    sublayer = model.stack.blocks[1].ffn
    nn.init.constant_((sublayer.pre_norm or sublayer.post_norm).weight, 0.1)


def unnormed_block(model: Any) -> None:
    model.stack.blocks[1].ffn_3.post_norm = None


# ---------------------------------------------------------------- all of it

PLANTED: tuple[Planted, ...] = (
    unnormed.faulty(
        "one-live-cross-attention",
        "Output matrices of cross-attentions start at zero, but not that of the second layer.",
        "init-law",
        "cross_out",
        law=live_cross,
    ),
    dit_zero.faulty(
        "one-live-modulation",
        "The modulations of a DiT start at zero, but not that of the second layer's FFN.",
        "init-law",
        edit=live_modulation,
    ),
    ruled.faulty(
        "rule-of-attentions-alone",
        "GPT-2's rule is forgotten for FFNs, in a model of which nothing is said.",
        "init-law",
        "fc2",
        law=but("fc2"),
    ),
    shared.faulty(
        "shared-expert-without-the-rule",
        "GPT-2's rule is forgotten for shared experts.",
        "init-law",
        "fc2",
        law=but("fc2"),
    ),
    conformer.faulty(
        "conformer-without-a-norm",
        "The second layer of a conformer has no norm behind its last FFN.",
        "norms",
        "post",
        edit=unnormed_block,
    ),
    ruled.faulty("one-small-gain", "A norm of the second layer begins at 0.1.", "norm-gain", "pre", edit=small_gain),
    post.faulty(
        "one-small-gain-behind-a-sum",
        "A norm behind a sum of the second layer begins at 0.1.",
        "norm-gain",
        "post",
        edit=small_gain,
    ),
    normed.faulty(
        "normed-functions-without-a-norm",
        "Norms are functions of one's own that are given a normed stream, and the second layer's FFN has none.",
        "norms",
        "pre",
        norms=but_layer_2(PRE, "pre"),
    ),
)
TWINS: dict[str, Twin] = {twin.name: twin for twin in (*(planted.twin for planted in PLANTED), rounds)}
RENAMED = ("one-live-cross-attention", "rule-of-attentions-alone", "one-small-gain", "conformer-without-a-norm")
"""Those that are looked for under other names besides."""
