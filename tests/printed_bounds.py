"""The bounds as the papers print them, summed term by term, and random gains to try them on: no derivation here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from depthlaw.theory.symbols import M, N, side_symbols

Gains = Sequence[float] | Sequence[Fraction]


def printed_pre(v: Gains, w: Gains) -> Any:
    """(10) without eta d."""
    upto = list(accumulate(a * a * b * b for a, b in zip(v, w, strict=True)))  # upto[i - 1] is S_i
    total = 0
    for a, b in zip(v, w, strict=True):
        total += (a * a + b * b) / upto[-1]
        for i in range(2, len(v) + 1):
            total += (a * a + b * b) / upto[-1] * v[i - 1] ** 2 * w[i - 1] ** 2 / upto[i - 2]
    return total


def printed_sub(v: Gains, w: Gains) -> Any:
    """(12) without eta d."""
    upto = list(accumulate(a * a for a in v))
    total = 0
    for a, b in zip(v, w, strict=True):
        total += (1 + a * a / (b * b)) / upto[-1]
        for i in range(2, len(v) + 1):
            total += (1 + a * a / (b * b)) / upto[-1] * v[i - 1] ** 2 / upto[i - 2]
    return total


def printed_post(v: Gains, w: Gains, alpha: float) -> Any:
    """DeepNet's sum under SGD."""
    return sum(a * a + b * b for a, b in zip(v, w, strict=True)) / alpha**2


def printed_coupling_sub(v: Gains, residue: int = 2) -> Any:
    """The factor of (14), with the cross-attention at l mod 3 == residue."""
    top = sum(a * a for a in v)
    tail = 1 + sum(v[i - 1] ** 2 / sum(v[n] ** 2 for n in range(i - 1)) for i in range(2, len(v) + 1))
    return sum(a * a for i, a in enumerate(v, start=1) if i % 3 == residue) / top * tail


PRINTED: dict[str, Callable] = {"pre-ln": printed_pre, "sub-ln": printed_sub}
gains = st.floats(0.05, 20)


@st.composite
def stacks(draw, max_size: int = 12):
    size = draw(st.integers(1, max_size))
    v, w = (draw(st.lists(gains, min_size=size, max_size=size)) for _ in range(2))
    return v, w


def chain(v: Gains, w: Gains, is_sub: bool, stage: str):
    """The bracket after a step, by recursion: independent of the derivation."""
    s = [a * a if is_sub else a * a * b * b for a, b in zip(v, w, strict=True)]
    weight = [1 + a * a / (b * b) if is_sub else a * a + b * b for a, b in zip(v, w, strict=True)]
    size, total = len(s), 0
    for place in range(1, size + 1):
        base = 1 if stage == "telescope" else 0
        ratios = [s[k - 1] / (base + sum(s[: k - 1])) for k in range(place + 1, size + 1)]
        if stage in ("telescope", "input"):
            arriving = math.prod(1 + r for r in ratios)
        elif stage == "first order":
            arriving = 1 + sum(ratios)
        else:
            arriving = 1 + sum(s[k - 1] / sum(s[: k - 1]) for k in range(2, size + 1))
        total += weight[place - 1] * arriving / (base + sum(s))
    return total


@st.composite
def two_stacks(draw):
    layers, decoder_layers = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = (2 * layers, 2 * layers, 3 * decoder_layers, 3 * decoder_layers)
    return layers, decoder_layers, *(draw(st.lists(gains, min_size=n, max_size=n)) for n in sizes)


def values_of(layers, decoder_layers, ve, we, vd, wd):
    e, d = side_symbols("encoder"), side_symbols("decoder")
    return {e.gains_out: ve, e.gains_in: we, d.gains_out: vd, d.gains_in: wd, N: layers, M: decoder_layers}
