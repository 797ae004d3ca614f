"""Stacks whose sublayers have gains of their own: the update at infinite width, sublayer by sublayer, with no theory/.

One input, FFN sublayers, one step of SGD, in units of eta d. Every sum is written out, so gains may be fractions (then
so is the answer), floats, or sympy expressions; only ReLU behind an inner LayerNorm brings in pi, and GELU its
quadrature. Source: DESIGN.md, "Theory: four rungs".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
from sympy import Expr, pi

from paper_checks.routes import second_meanfield

PLACEMENT = {"post-ln": "post", "pre-ln": "pre", "sub-ln": "sub"}
HALF = Fraction(1, 2)
DECODER_LAYER = ("self", "cross", "ffn")
"""A decoder layer, from its input to its output."""


class _Sublayer(NamedTuple):
    """Second moments, per unit of the gradient that reaches it: see ``_sublayer``."""

    branch: Any
    through: Any
    squares: Any


def kappa(activation: str, norm_kind: str) -> Any:
    """E phi'^2 times the input's second moment, over what the inner norm divides by, squared: 1, or pi/(pi - 1)."""
    if activation not in ("relu", "identity"):
        raise ValueError(f"{activation} has no kappa of its own: it depends on the gain")
    return pi / (pi - 1) if (activation, norm_kind) == ("relu", "layernorm") else 1


def _sublayer(placement: str, v: Any, w: Any, activation: str, norm_kind: str) -> _Sublayer:
    """What the branch adds, v^2 E phi^2 or v^2; E of its squared slope; both squared gradients, over d."""
    if activation == "gelu":
        mean, second, slope, _, _ = second_meanfield.moments("gelu", float(w))
        v, w = float(v), float(w)
        if placement == "sub":
            scale = second - mean**2 if norm_kind == "layernorm" else second
            second, slope = 1, slope / scale
    elif placement == "sub":
        second, slope = 1, _like(kappa(activation, norm_kind), v) / w**2
    else:
        half = HALF if activation == "relu" else 1
        second, slope = half * w**2, half
    return _Sublayer(branch=v**2 * second, through=v**2 * w**2 * slope, squares=v**2 * slope + second)


def _like(number: Any, other: Any) -> Any:
    """pi/(pi - 1) to 40 digits beside exact numbers, as itself beside expressions, a float beside floats."""
    if not isinstance(number, Expr) or isinstance(other, Expr):
        return number
    return float(number) if isinstance(other, float) else mpmath.mpf(str(number.evalf(40)))


def _numbers(gains: Sequence[Any], activation: str, norm_kind: str, placement: str) -> list[Any]:
    """Fractions do not mix with mpmath's numbers."""
    if placement == "sub" and (activation, norm_kind) == ("relu", "layernorm"):
        return [mpmath.mpf(g.numerator) / g.denominator if isinstance(g, Fraction) else g for g in gains]
    return list(gains)


def update(
    scheme: str, v: Sequence[Any], w: Sequence[Any], *, activation: str = "relu", norm_kind: str = "layernorm"
) -> Any:
    """The update of post-ln, pre-ln or sub-ln, with gains v_l of the second and w_l of the first matrix."""
    placement = PLACEMENT[scheme]
    with mpmath.workdps(40):
        v, w = (_numbers(gains, activation, norm_kind, placement) for gains in (v, w))
        pairs = zip(v, w, strict=True)
        sublayers = [_sublayer(placement, *pair, activation, norm_kind) for pair in pairs]
        return _added_up(placement, sublayers, [True] * len(sublayers))[0]


def _added_up(placement: str, sublayers: Sequence[_Sublayer], reads_stream: Sequence[bool]) -> tuple[Any, list[Any]]:
    """The sum of squared gradients, and the gradient that reaches each sublayer, from the top down."""
    if placement == "post":
        gradient, total, reaching = 1, 0, []
        for one in reversed(sublayers):
            reaching.append(gradient / (1 + one.branch))
            total += one.squares * reaching[-1]
            gradient = (1 + one.through) * reaching[-1]
        return total, reaching[::-1]
    streams = [1]
    for one in sublayers:
        streams.append(streams[-1] + one.branch)
    gradient, total, reaching = 1 / (streams[-1] + Fraction(0)), 0, []
    for one, stream, reads in zip(sublayers[::-1], streams[-2::-1], list(reads_stream)[::-1], strict=True):
        reaching.append(gradient)
        total += one.squares * gradient
        if reads:
            gradient = gradient * (1 + one.through / stream)
    return total, reaching[::-1]


def streams(scheme: str, v: Sequence[Any], w: Sequence[Any], *, norm_kind: str = "layernorm") -> list[Any]:
    """The second moment of x_0, x_1, ..., x_L, behind a ReLU."""
    placement = PLACEMENT[scheme]
    v, w = (_numbers(gains, "relu", norm_kind, placement) for gains in (v, w))
    out = [Fraction(1)]
    for pair in zip(v, w, strict=True):
        one = _sublayer(placement, pair[0], pair[1], "relu", norm_kind)
        out.append(Fraction(1) if placement == "post" else out[-1] + one.branch)
    return out


class Coupled(NamedTuple):
    """An encoder-decoder's update, its decoder's own part, the encoder's by itself, and what couples them."""

    total: Any
    decoder: Any
    encoder: Any
    coupling: Any


def coupled(
    decoder: tuple[Sequence[Any], Sequence[Any]],
    encoder: tuple[Sequence[Any], Sequence[Any]],
    *,
    activation: str = "relu",
    norm_kind: str = "layernorm",
) -> Coupled:
    """Sub-LN, one token on either side. Decoder sublayers are self, cross, ffn in turn, each written as the theorem's.

    A cross-attention reads the encoder's normalised output, so that its branch sends no gradient down the decoder's
    stream; what it sends to the encoder is the coupling, a sum over cross-attentions.
    """
    with mpmath.workdps(40):
        sides: list[list[_Sublayer]] = []
        for gains in (decoder, encoder):
            v, w = (_numbers(one, activation, norm_kind, "sub") for one in gains)
            sides.append([_sublayer("sub", a, b, activation, norm_kind) for a, b in zip(v, w, strict=True)])
        is_cross = [DECODER_LAYER[i % 3] == "cross" for i in range(len(sides[0]))]
        own, reaching = _added_up("sub", sides[0], [not cross for cross in is_cross])
        below, _ = _added_up("sub", sides[1], [True] * len(sides[1]))
        rows = zip(is_cross, sides[0], reaching, strict=True)
        coupling = sum(one.through * gradient for cross, one, gradient in rows if cross)
        return Coupled(total=own + coupling * below, decoder=own, encoder=below, coupling=coupling)
