"""Two streams side by side: MM-DiT, as Stable Diffusion 3 has it, right and with a mistake in one of its streams.

Text and image have matrices, norms and a modulation of their own, and one attention over the tokens of both. The last
block leaves the text be: of its stream it reads keys and values alone. (Stability-AI/sd3.5 fbf8f48, mmditx.py 379-723.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.depthlaw.auditing.gallery import OUTPUTS, Twin
from tests.depthlaw.auditing.gallery_field import Conditioned, but_layer_2, of_dit, zero_gates
from tests.depthlaw.auditing.transformer import NUM_HEADS, PRE, At, Block, Law, Matrix, Shape, everywhere, xavier


class Joint(Conditioned):
    """A sublayer of one stream, in two parts: what its attention is made of, and what becomes of the answer."""

    def asked(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale, shift, _ = self.modulation(F.silu(condition)).unsqueeze(1).chunk(3, dim=-1)
        u = self.pre(x) * (1 + scale) + shift
        branch: Any = self.branch
        return branch.q_norm(branch.q_proj(u)), branch.k_norm(branch.k_proj(u)), branch.v_proj(u)

    def answered(self, x: Tensor, y: Tensor, condition: Tensor) -> Tensor:
        _, _, gate = self.modulation(F.silu(condition)).unsqueeze(1).chunk(3, dim=-1)
        branch: Any = self.branch
        return x + gate * branch.out_proj(y)


class MMDiT(nn.Module):
    """A stream of image patches and one of a text, and a time and a class that condition the blocks of both."""

    def __init__(self, shape: Shape, num_layers: int) -> None:
        super().__init__()
        width = shape.d_model
        self.x_embedder, self.context_embedder = nn.Linear(8, width), nn.Linear(12, width)
        self.classes = nn.Embedding(10, width)
        self.times = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.image, self.text = (
            nn.ModuleList(Block(shape, side, layer, num_layers) for layer in range(1, num_layers + 1))
            for side in ("image", "text")
        )
        last: Any = self.text[-1]
        last.attention.branch.out_proj = None
        last.ffn = None
        self.final_norm = nn.LayerNorm(width, eps=shape.eps)
        self.lm_head = nn.Linear(width, 8)

    def forward(self, x: Tensor, context: Tensor, t: Tensor, y: Tensor) -> Tensor:
        condition = self.classes(y) + self.times(t[:, None])
        streams = [self.context_embedder(context), self.x_embedder(x)]
        sizes = [stream.shape[1] for stream in streams]
        for blocks in zip(self.text, self.image, strict=True):
            own: Any = blocks
            parts = [block.attention.asked(x, condition) for block, x in zip(own, streams, strict=True)]
            both = (torch.cat(part, 1) for part in zip(*parts, strict=True))
            q, k, v = (part.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2) for part in both)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).split(sizes, 1)
            for place, block in enumerate(own):
                if block.ffn is not None:
                    x = block.attention.answered(streams[place], mixed[place], condition)
                    streams[place] = block.ffn(x, condition)
        return self.lm_head(self.final_norm(streams[1]))


def of_pictures(_: nn.Module) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    x, context = (torch.randn(2, *size, generator=generator) for size in ((16, 8), (6, 12)))
    return x, context, torch.tensor([0.2, 0.7]), torch.tensor([3, 7])


def of(side: str, law: Law, otherwise: Law = xavier) -> Law:
    """The law for the matrices of one stream, another one for the rest."""
    return lambda matrix: (law if matrix.at is not None and matrix.at.side == side else otherwise)(matrix)


def by_depth(matrix: Matrix) -> float:
    return xavier(matrix) * ((2 * matrix.place.num_layers) ** -0.5 if matrix.role in OUTPUTS else 1)


def but_in(side: str, norms: Callable[[At], frozenset[str]]) -> Callable[[At], frozenset[str]]:
    """These norms in one stream, and the usual ones in the other."""
    return lambda at: norms(at) if at.side == side else PRE(at)


class Ungated(Joint):
    """The image's attention is added as it is."""

    def answered(self, x: Tensor, y: Tensor, condition: Tensor) -> Tensor:
        branch: Any = self.branch
        return x + branch.out_proj(y) if self.at.side == "image" else super().answered(x, y, condition)


def only(side: str, edit: Callable[[Any], None]) -> Callable[[Any], None]:
    """An edit of the blocks of one stream."""
    return lambda model: edit(model.get_submodule(side))


SHAPE = Shape(arch="encoder", sublayer=Joint, model=MMDiT)
live = Twin(name="mm-dit", shape=SHAPE, scheme="pre-ln", inputs=of_pictures)
plain = Twin(name="mm-dit, by depth", shape=SHAPE, law=by_depth, scheme="gpt2", inputs=of_pictures)
normed = replace(live, name="mm-dit, norms of queries", shape=replace(SHAPE, norms=everywhere("pre", "q", "k")))
sd3 = replace(live, name="sd3", law=of_dit, edits=(zero_gates,), scheme=None, recipe="sd3")

PLANTED = (
    live.faulty(
        "text-without-a-norm",
        "The second layer's FFN of the text's stream is given the stream itself, scaled and shifted.",
        "norms",
        "pre",
        side="context",
        norms=but_in("text", but_layer_2(PRE, "pre")),
    ),
    live.faulty(
        "text-without-its-last-norm",
        "What the last attention reads of the text's stream is that stream itself, scaled and shifted.",
        "norms",
        "final",
        side="context",
        norms=lambda at: PRE(at) - {"pre"} if (at.side, at.layer) == ("text", at.num_layers) else PRE(at),
    ),
    live.faulty(
        "text-by-depth",
        "Output matrices of the text's stream alone are divided by the number of sublayers.",
        "init-law",
        *OUTPUTS,
        side="context",
        law=of("text", by_depth),
    ),
    plain.faulty(
        "image-without-the-rule",
        "The depth rule is applied to the text's blocks, and forgotten for the image's.",
        "init-law",
        *OUTPUTS,
        side="x",
        law=of("text", by_depth),
    ),
    replace(
        sd3.faulty(
            "text-with-live-gates",
            "The modulation of the image's blocks is set to zero, and that of the text's is not.",
            "branch-weight",
            side="context",
        ),
        build=replace(sd3, edits=(only("image", zero_gates),)).build,
    ),
    sd3.faulty(
        "image-without-a-gate",
        "What the attention gives to the image's stream is added without a gate.",
        "branch-weight",
        side="x",
        sublayer=Ungated,
    ),
    sd3.faulty(
        "text-q-by-itself",
        "Queries, keys and values of the text are initialised each by itself, sqrt(2) times their Xavier's.",
        "init-constant",
        "q",
        "k",
        "v",
        side="context",
        law=of("text", xavier, of_dit),
    ),
    sd3.faulty(
        "text-zero-twice",
        "Both the gates and the output matrices of the text's stream start at zero.",
        "dead-branch",
        law=of("text", lambda matrix: 0.0 if matrix.role in OUTPUTS else of_dit(matrix), of_dit),
    ),
)
TWINS: dict[str, Twin] = {twin.name: twin for twin in (*(planted.twin for planted in PLANTED), normed)}
RENAMED = ("text-without-a-norm", "image-without-the-rule", "text-with-live-gates")
