"""DeepNet's alpha and beta, and its networks: the scalar model of its proofs, one token at infinite width, real ones.

Nothing here is of theory/. Elsewhere than in the scalar model an update is that of one logit under SGD per unit
learning rate, over d: the sum over the branch matrices of ||df/dW||^2 / d.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import mpmath
from sympy import Expr, nsimplify

from depthlaw.paper_checks.routes.tables.derived import read
from depthlaw.theory.symbols import M, N

TEXTS = {
    "encoder": ("(2*N)**(1/4)", "(8*N)**(-1/4)"),
    "decoder": ("(2*M)**(1/4)", "(8*M)**(-1/4)"),
    "encoder of two": ("0.81*(N**4*M)**(1/16)", "0.87*(N**4*M)**(-1/16)"),
    "decoder of two": ("(3*M)**(1/4)", "(12*M)**(-1/4)"),
}
"""alpha and beta as printed; "of two" stands for the sides of an encoder-decoder."""
PRINTED: dict[str, tuple[Expr, ...]] = {
    name: tuple(nsimplify(read(text), rational=True) for text in pair) for name, pair in TEXTS.items()
}


class Scales(NamedTuple):
    """(alpha, beta) of either side."""

    encoder: tuple[float, float]
    decoder: tuple[float, float]


VANILLA = Scales((1.0, 1.0), (1.0, 1.0))


@cache
def deepnet_scales(num_encoder: int, num_decoder: int) -> Scales:
    """As printed, decimals included."""
    return scales_at(PRINTED["encoder of two"], PRINTED["decoder of two"], num_encoder, num_decoder)


def scales_at(encoder: Sequence[Expr], decoder: Sequence[Expr], num_encoder: int, num_decoder: int) -> Scales:
    """(alpha, beta) of either side as numbers."""
    at = {N: num_encoder, M: num_decoder}
    return Scales(*[(float(a.subs(at)), float(b.subs(at))) for a, b in (encoder, decoder)])


# ---------------------------------------------------------------- the scalar model, in any kind of numbers


class Sublayer(NamedTuple):
    """f(x) = (alpha + v w) / sqrt(alpha^2 + v^2 w^2) x, d = 1; a cross-attention is (alpha y + v w x) over that root.

    ratio: r = v w / alpha. keeps: 1/sqrt(1 + r^2), what a cross-attention passes on of the stream. slope: df/dx.
    own: ||df/d(v, w)|| at x = 1, over what is printed, sqrt(v^2 + w^2)/alpha.
    """

    alpha: Any
    v: Any
    w: Any
    ratio: Any
    keeps: Any
    slope: Any
    own: Any


def sublayer(alpha: Any, v: Any, w: Any, keeps: Any = None) -> Sublayer:
    """keeps: where all is rational, for its root is then given."""
    ratio = v * w / alpha
    keeps = (1 + ratio**2) ** -0.5 if keeps is None else keeps
    return Sublayer(alpha, v, w, ratio, keeps, (1 + ratio) * keeps, (1 - ratio) * keeps**3)


def output(encoder: Sequence[Sublayer], decoder: Sequence[Sublayer]) -> Any:
    """F of an input of 1 on either side; the encoder's output where there is no decoder."""
    memory = math.prod(part.slope for part in encoder)
    y: Any = 1
    for index, part in enumerate(decoder):
        y = (y + part.ratio * memory) * part.keeps if index % 3 == 1 else y * part.slope
    return y if decoder else memory


def sensitivities(encoder: Sequence[Sublayer], decoder: Sequence[Sublayer]) -> list[tuple[Any, Any]]:
    """By sublayer of an encoder, and of a decoder of (self, cross, ffn), whose inputs are 1: (true, chain).

    true: ||dF/dtheta|| over what is printed; chain: what the amended bound multiplies that by. Where there is a decoder
    the encoder's bound is times the sum of v w / alpha over the cross-attentions, and the amended one has the slopes
    above each of them in it.
    """
    memory = math.prod(part.slope for part in encoder)  # the encoder's output
    size, true, printed, chained = (1, 0, 0, 0) if decoder else (1, 1, 1, 1)
    entering: list[tuple[Any, Any, Any, Any]] = []  # own, its bound, and the two slopes
    for index, part in enumerate(decoder):
        if index % 3 == 1:
            entering.append((abs(memory - part.ratio * size) * part.keeps**3, max(memory, size), part.keeps, 1))
            size = (size + part.ratio * memory) * part.keeps
            true, printed, chained = (true + part.ratio) * part.keeps, printed + part.ratio, chained + part.ratio
        else:
            entering.append((size * part.own, size, part.slope, part.slope))
            size, true, chained = size * part.slope, true * part.slope, chained * part.slope
    above, most = 1, 1
    of_decoder = []
    for sensitivity, allowed, slope, bound in reversed(entering):
        of_decoder.append((sensitivity * above, allowed * most))
        above, most = above * slope, most * bound
    of_encoder = [
        (part.own * memory / part.slope * true / printed, memory / part.slope * chained / printed) for part in encoder
    ]
    return of_encoder + of_decoder[::-1]


def scalar_sides(num_layers: int, *, of_two: bool = True) -> list[list[Sublayer]]:
    """Encoder and decoder of so many layers each at the printed scales, in mpmath's numbers; or an encoder alone."""
    counts = {"encoder of two": 2, "decoder of two": 3} if of_two else {"encoder": 2, "decoder": 0}
    at, sides = {N: num_layers, M: num_layers}, []
    for which, per_layer in counts.items():
        a, b = (mpmath.mpf(str(expr.subs(at).evalf(mpmath.mp.dps + 10))) for expr in PRINTED[which])
        sides.append([sublayer(a, b, b)] * (per_layer * num_layers))
    return sides


# ---------------------------------------------------------------- one token, infinite width


def one_token(scales: Scales, num_encoder: int, num_decoder: int) -> tuple[float, float]:
    """(the encoder's, the decoder's) part of the update at infinite width: ReLU, square FFN, one token on either side.

    Self-attention and FFN pass the squared gradient on unchanged. A cross-attention splits it: alpha^2 to alpha^2 + s
    stays in the stream, s to alpha^2 + s goes to the encoder's output, s = v^2 w^2; matrices of different layers are
    independent, so those parts add as squares.
    """
    (alpha_e, beta_e), (alpha_d, beta_d) = scales
    ratio = (beta_d**2 / alpha_d) ** 2
    kept = -num_decoder * math.log1p(ratio)  # log of what reaches the decoder's input
    entering = -math.expm1(kept)  # what reaches the encoder's output, in all
    layers = entering * (1 + ratio) / ratio  # sum over layers of the gradient at the top
    attention, ffn = matrix_shares(alpha_d, beta_d, 1)
    decoder = layers * (ffn + attention + attention / (1 + ratio))
    return entering * num_encoder * sum(matrix_shares(alpha_e, beta_e, 1)), decoder


def matrix_shares(alpha: float, beta: float, ffn_ratio: int) -> tuple[float, float]:
    """||df/dW||^2 / d of both matrices of an attention and of an FFN, per unit of the squared gradient above."""
    attention = 2 * beta**2 / (alpha**2 + beta**4)
    share = 2 * ffn_ratio / (1 + ffn_ratio)
    return attention, share * beta**2 / (alpha**2 + share * beta**4 / (1 + ffn_ratio))


# ---------------------------------------------------------------- real networks

SCALED = ("v", "out", "fc1", "fc2", "cross_v", "cross_out")
"""Roles that DeepNorm's beta multiplies."""


def squares(config: Any, seeds: Sequence[int], num_tokens: int) -> dict[str, list[float]]:
    """By parameter, ||df/dtheta||^2/d of each seed: f a logit at the last of independent tokens, its head of length 1.

    Weights and gradients are those of ``sims``; tokens and heads are drawn as the records' were, so that their seeds
    give the same numbers again.
    """
    import torch

    from depthlaw.sims.ensemble import Ensemble, Member
    from depthlaw.sims.update import Inputs, Task, first_order

    d, task = config.d_model, Task(num_tokens=num_tokens)
    model = Ensemble([Member(task.on(config), seed) for seed in seeds])
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1000 + seed)  # another stream than the model's
        shapes = ((1, num_tokens, d), (1, num_tokens, d), (1, d))
        rows.append([torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes])
    x_EBTD, y_EBTD, head_E1D = map(torch.stack, zip(*rows, strict=True))
    model.get_parameter("_weights.head").data = head_E1D / head_E1D.norm(dim=-1, keepdim=True)
    inputs = Inputs(x_EBTD, y_EBTD if config.decoder else None, torch.zeros(len(seeds), 1, num_tokens))
    order = first_order(model, inputs, task, ["sgd"])
    return {name: square.tolist() for name, square in order.functionals["sgd"].items() if name != "_weights.head"}


Layers = tuple[tuple[float, float], ...]
"""By layer, alpha and the gain of what is scaled."""


@cache
def by_sublayer(
    encoder: Layers,
    decoder: Layers,
    seeds: Sequence[int],
    num_tokens: int,
    *,
    d_model: int = 32,
    ffn_ratio: int = 1,
    scaled: Sequence[str] = SCALED,
) -> list[list[list[float]]]:
    """By side, sublayer and seed: the sublayer's part of the update of a real encoder-decoder with two heads."""
    from depthlaw.sims.model import ModelConfig, alternating, decoder_layers

    first = (alternating(2, residual_weight=weight, gains=dict.fromkeys(scaled, gain)) for weight, gain in encoder)
    second = (decoder_layers(1, residual_weight=weight, gains=dict.fromkeys(scaled, gain)) for weight, gain in decoder)
    sides: dict[str, Any] = {"encoder": tuple(chain(*first)), "decoder": tuple(chain(*second))}
    config = ModelConfig(**sides, d_model=d_model, num_heads=2, ffn_ratio=ffn_ratio)
    by_name = squares(config, seeds, num_tokens)
    return [
        [
            added(row for name, row in by_name.items() if name.startswith(f"_weights.{side}_{index}_"))
            for index in range(len(sublayers))
        ]
        for side, sublayers in sides.items()
    ]


def added(rows: Iterable[Sequence[float]]) -> list[float]:
    """By seed, the sum."""
    return [sum(values) for values in zip(*rows, strict=True)]
