"""A sublayer as it was read: its weights, norms, matrices by role, and sizes of what flows in it.

Some of it only a row of sublayers tells: which stand before the layers, the layer of each, and whose a norm or a
constant between two of them is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor

from depthlaw.auditing.reading.weights import Weight

ROUNDED = 1e-5
"""What rounding in single precision may make of a derivative that is 1."""


@dataclass(frozen=True, kw_only=True)
class Sublayer:
    """x' = a x + b F(x), one stretch of a stream.

    kind: attention, cross, ffn, parallel (attention and FFN of one input) or other. index: from 1, on its side. layer:
    the block that it belongs to, from 1. residual_weight: a; branch_weight: b, or the mean of a trained one at its
    start. trained: "scalar" or "vector" where b is a parameter, whose name is branch_parameter, and "gate" where it is
    made of a condition, and b is its root mean square. modulated: which of scale and shift a condition makes of what
    the branch is given. norms: places, of pre, q, k, v, inner, branch and post. head_size: features of one head of
    queries. attention_scale: what multiplies their products with keys. is_causal: whether the first token attends to
    itself alone; None where nothing attends. input_rms: of what its first matrices are given. input_growth: by how many
    percent that grows where the stream grows by one, 0 behind a norm and 1 without any; output_growth: the same of the
    stream behind a post norm and the sum before it. second_moment: E x^2 of the stream before it; that of the sum:
    end_moment. branch_rms: of b F(x). found: of one that is neither attention nor FFN, what it is, in words. start,
    end: the stream before it and the sum behind it. start_scale, end_scale: the constants on the stream that a and b
    have in them beside those of the sum: x is the start over the one, x' the end times the other.
    """

    side: str
    index: int
    kind: str
    residual_weight: float
    branch_weight: float
    trained: str | None
    branch_parameter: str | None
    norms: frozenset[str]
    weights: tuple[Weight, ...]
    activation: str | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_size: int | None = None
    attention_scale: float | None = None
    is_causal: bool | None = None
    input_rms: float = math.nan
    input_growth: float = math.nan
    output_growth: float = math.nan
    second_moment: float = math.nan
    end_moment: float = math.nan
    branch_rms: float = math.nan
    layer: int = 0
    found: str = ""
    modulated: frozenset[str] = frozenset()
    start_scale: float = 1.0
    end_scale: float = 1.0

    @property
    def called(self) -> str:
        """The part of the module that it is, by what its matrices' names have in common beyond the block, such as
        blocks.3.ffn2; its number where that is nothing."""
        parts = [weight.name.split(".")[:-1] for weight in self.weights]
        alike = takewhile(lambda words: len(set(words)) == 1, zip(*parts, strict=False))
        return ".".join(words[0] for words in alike) or f"sublayer {self.index}"

    @property
    def is_unknown(self) -> bool:
        """Whether it is neither attention nor FFN."""
        return self.kind == "other"

    @property
    def summed_weight(self) -> float:
        """Of the stream in the sum itself."""
        scale = self.start_scale * self.end_scale
        return self.residual_weight / scale if scale else self.residual_weight

    @property
    def is_conditioned(self) -> bool:
        """Whether a condition scales, shifts or gates it."""
        return bool(self.modulated) or self.trained == "gate"

    start: Any = field(default=None, repr=False, compare=False)
    end: Any = field(default=None, repr=False, compare=False)

    def epsilon(self, place: str) -> tuple[float, float]:
        """Of its norm at "pre" or "post", as its effect tells it, and the second moment of what the norm is given; NaN
        where that is not known."""
        growth, moment = {
            "pre": (self.input_growth, self.second_moment),
            "post": (self.output_growth, self.end_moment),
        }[place]
        growth = min(growth, 1 - ROUNDED) if growth < 1 + ROUNDED else growth  # an epsilon that is all there is
        is_known = place in self.norms and 0 <= growth < 1
        return (growth / (1 - growth) * moment if is_known else math.nan), moment

    @property
    def roles(self) -> dict[str, list[Weight]]:
        """Its matrices by role."""
        by_role: dict[str, list[Weight]] = {}
        for weight in self.weights:
            by_role.setdefault(weight.role, []).append(weight)
        return by_role


def block_of(name: str) -> tuple[str, str] | None:
    """The stack and the block of a parameter, by the first number in its name.

    >>> from depthlaw.auditing.reading.sublayer import block_of
    >>> block_of("h.3.experts.0.up"), block_of("head.weight")
    (('h.', '3'), None)
    """
    match = re.match(r"(.*?)(?<![^.])(\d+)\.", name)
    return None if match is None else (match[1], match[2])


# ---------------------------------------------------------------- what it does to its stream


@dataclass(frozen=True, kw_only=True)
class Added:
    """What a sublayer makes of its stream; means over tokens. share: of the sum's square what the branch adds. cosine:
    of the streams before and behind it, 1 where it is the identity; of_branch: of its branch and the stream."""

    share: float
    cosine: float
    of_branch: float


def added(start: Tensor, end: Tensor, summed_weight: float) -> Added:
    """By the stream and the sum, of one shape: the branch is what is not the stream in the sum."""
    start, end = start.double(), end.double()
    branch = end - summed_weight * start
    return Added(
        share=(branch.square().mean(-1) / end.square().mean(-1)).mean().item(),
        cosine=torch.cosine_similarity(start, end, dim=-1).mean().item(),
        of_branch=torch.cosine_similarity(branch, start, dim=-1).mean().item(),
    )


# ---------------------------------------------------------------- what a row of them tells


def num_in_front(sublayers: Sequence[Sublayer]) -> int:
    """Sublayers before the layers, such as a convolution of positions: of no kind that comes again, and no part of the
    stack that the others are in."""
    known = [sub for sub in sublayers if sub.kind != "other"]
    stacks = {block[0] for sub in known for w in sub.weights if (block := block_of(w.name))}
    first = list(takewhile(lambda sub: sub.kind == "other", sublayers))
    again = sum(sub.kind == "other" for sub in sublayers) > len(first)
    inside = {block[0] for sub in first for w in sub.weights if (block := block_of(w.name))}
    return 0 if not known or again or inside & stacks else len(first)


def with_factors(sublayers: Sequence[Sublayer], factors: Sequence[float]) -> list[Sublayer]:
    """With the constants that stand on the stream before each sublayer and behind the last.

    A constant multiplies all that the sublayer before it gives; or it is the residual weight of the one behind it,
    which begins with a norm and whose branch does not feel it. The function is the same. The second is meant where the
    first sublayer has such a constant and others of its kind have, too. One before the first sublayer alone is the
    embedding's.
    """
    scaled = list(sublayers)
    alike = [f for f, sub in zip(factors[1:], sublayers[1:], strict=False) if sub.kind == sublayers[0].kind]
    is_of_next = factors[0] != 1 and any(factor != 1 for factor in alike)
    for place, factor in enumerate(factors):
        if factor == 1:
            continue
        if is_of_next and place < len(sublayers) and "pre" in sublayers[place].norms:
            scaled[place] = replace(
                scaled[place], residual_weight=scaled[place].residual_weight * factor, start_scale=factor
            )
        elif place:
            before = scaled[place - 1]
            scaled[place - 1] = replace(
                before,
                residual_weight=before.residual_weight * factor,
                branch_weight=before.branch_weight * factor,
                branch_rms=before.branch_rms * abs(factor),
                end_scale=factor,
            )
    return scaled


def with_layers(sublayers: Sequence[Sublayer]) -> list[Sublayer]:
    """With the number of the block that each belongs to: a block has one self-attention. Where none has, it is what the
    names of matrices number, if each number comes once, and else one sublayer."""
    attentions = [place for place, sub in enumerate(sublayers) if sub.kind in ("attention", "parallel")]
    number = len(attentions)
    if not number:
        blocks = [block_of(sub.weights[0].name) if sub.weights else None for sub in sublayers]
        runs = [len(list(group)) for _, group in groupby(blocks)]
        if None in blocks or len(runs) != len(set(blocks)) or len(set(runs)) > 1:
            return [_in_layer(sub, sub.index) for sub in sublayers]
        return [_in_layer(sub, place // runs[0] + 1) for place, sub in enumerate(sublayers)]
    size, rest = divmod(len(sublayers), number)
    if not rest and all(place // size == block for block, place in enumerate(attentions)):
        return [_in_layer(sub, place // size + 1) for place, sub in enumerate(sublayers)]
    return [
        _in_layer(sub, max(1, sum(attention <= place for attention in attentions)))
        for place, sub in enumerate(sublayers)
    ]


def _in_layer(sublayer: Sublayer, layer: int) -> Sublayer:
    return replace(sublayer, layer=layer, weights=tuple(replace(weight, layer=layer) for weight in sublayer.weights))


def with_post(sublayers: Sequence[Sublayer], num_norms_behind: Sequence[int]) -> tuple[list[Sublayer], bool]:
    """With the norms between sublayers as post norms, and whether the last norm is the side's final one.

    A norm behind the last sublayer is its post norm where most earlier sublayers with its other norms (of its kind and
    last of their layers, if there are such) have post norms, and the final norm otherwise. Of two norms in a row there,
    the second is the final one.
    """
    placed = [
        replace(sub, norms=sub.norms | {"post"}) if has else sub
        for sub, has in zip(sublayers[:-1], num_norms_behind[:-1], strict=True)
    ]
    if not sublayers:
        return [], False
    last = sublayers[-1]
    ends = [sub for sub, following in pairwise([*placed, last]) if sub.layer != following.layer]
    alike = [sub for sub in placed if sub.norms - {"post"} == last.norms]
    alike = [sub for sub in alike if sub.kind == last.kind] or alike
    alike = [sub for sub in alike if any(sub is end for end in ends)] or alike
    others = alike or placed
    num_post = sum("post" in sub.norms for sub in others)
    is_post = 2 * num_post >= len(others) if others else not last.norms & {"pre", "branch"}
    number = num_norms_behind[-1]
    last = replace(last, norms=last.norms | {"post"}) if number and is_post else last
    return [*placed, last], number > is_post
