"""A sublayer as it was read: its weights, norms, matrices by role, and sizes of what flows in it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from depthlaw.auditing.reading.weights import Weight

_ROUNDED = 1e-5
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
    end: the stream before it and the sum behind it.
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
    residual_parameter: str | None = None
    found: str = ""
    modulated: frozenset[str] = frozenset()

    @property
    def called(self) -> str:
        """The part of the module that it is, by what its matrices' names have in common beyond the block, such as
        blocks.3.ffn2; its number where that is nothing."""
        parts = [weight.name.split(".")[:-1] for weight in self.weights]
        alike = takewhile(lambda own: len(set(own)) == 1, zip(*parts, strict=False))
        return ".".join(own[0] for own in alike) or f"sublayer {self.index}"

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
        growth = min(growth, 1 - _ROUNDED) if growth < 1 + _ROUNDED else growth  # an epsilon that is all there is
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
    found = re.match(r"(.*?)(?<![^.])(\d+)\.", name)
    return None if found is None else (found[1], found[2])
