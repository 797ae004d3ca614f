"""What several claims of DeepNet share: real encoder-decoders, and the same at one token and infinite width.

Nothing here is of theory/. The update is that of one logit under SGD per unit learning rate, over d: the sum over the
branch matrices of ||df/dW||^2 / d.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from sympy import Expr, nsimplify

from paper_checks.routes.intervals import Interval
from paper_checks.routes.printed_tables import read
from theory.symbols import M, N

SCALED = ("v", "out", "fc1", "fc2", "cross_v", "cross_out")
"""Roles that DeepNorm's beta multiplies."""
BETWEEN = 1 / 8
"""Exponents of depth are multiples of 1/4 here: an interval below this shows no growth, one above it growth."""


def _exact(text: str) -> Expr:
    return nsimplify(read(text), rational=True)


TEXTS = {
    "encoder": ("(2*N)**(1/4)", "(8*N)**(-1/4)"),
    "decoder": ("(2*M)**(1/4)", "(8*M)**(-1/4)"),
    "encoder of two": ("0.81*(N**4*M)**(1/16)", "0.87*(N**4*M)**(-1/16)"),
    "decoder of two": ("(3*M)**(1/4)", "(12*M)**(-1/4)"),
}
"""alpha and beta as printed; "of two" stands for the sides of an encoder-decoder."""
PRINTED = {name: (_exact(a), _exact(b)) for name, (a, b) in TEXTS.items()}


class Scales(NamedTuple):
    """(alpha, beta) of either side."""

    encoder: tuple[float, float]
    decoder: tuple[float, float]


VANILLA = Scales((1.0, 1.0), (1.0, 1.0))


@cache
def deepnet_scales(num_encoder: int, num_decoder: int) -> Scales:
    """As printed, decimals included."""
    return scales_at(PRINTED["encoder of two"], PRINTED["decoder of two"], num_encoder, num_decoder)


def scales_at(encoder: tuple[Expr, Expr], decoder: tuple[Expr, Expr], num_encoder: int, num_decoder: int) -> Scales:
    """(alpha, beta) of either side as numbers."""
    at = {N: num_encoder, M: num_decoder}
    return Scales(*[(float(a.subs(at)), float(b.subs(at))) for a, b in (encoder, decoder)])


# ---------------------------------------------------------------- one token, infinite width


def one_token(scales: Scales, num_encoder: int, num_decoder: int, ffn_ratio: int = 1) -> tuple[float, float]:
    """(the encoder's, the decoder's) part of the update at infinite width: ReLU, one token on either side, closed form.

    Self-attention and FFN pass the squared gradient on unchanged. A cross-attention splits it: alpha^2 to alpha^2 + s
    stays in the stream, s to alpha^2 + s goes to the encoder's output, s = v^2 w^2; matrices of different layers are
    independent, so those parts add as squares.
    """
    (alpha_e, beta_e), (alpha_d, beta_d) = scales
    ratio = (beta_d**2 / alpha_d) ** 2
    kept = -num_decoder * math.log1p(ratio)  # log of what reaches the decoder's input
    entering = -math.expm1(kept)  # what reaches the encoder's output, in all
    layers = num_decoder if ratio == 0 else entering * (1 + ratio) / ratio  # sum over layers of the gradient at the top
    attention, ffn = matrix_shares(alpha_d, beta_d, ffn_ratio)
    decoder = layers * (ffn + attention + attention / (1 + ratio))
    return entering * num_encoder * sum(matrix_shares(alpha_e, beta_e, ffn_ratio)), decoder


def matrix_shares(alpha: float, beta: float, ffn_ratio: int) -> tuple[float, float]:
    """||df/dW||^2 / d of both matrices of an attention and of an FFN, per unit of the squared gradient above."""
    attention = 2 * beta**2 / (alpha**2 + beta**4)
    share = 2 * ffn_ratio / (1 + ffn_ratio)
    return attention, share * beta**2 / (alpha**2 + share * beta**4 / (1 + ffn_ratio))


# ---------------------------------------------------------------- real networks


def squares(config: Any, seeds: int | Sequence[int], num_tokens: int) -> dict[str, list[float]]:
    """By parameter, ||df/dtheta||^2/d of each seed: f a logit at the last of independent tokens, its head of length 1.

    seeds: which, or how many from 0 on. Weights and gradients are those of ``sims``; tokens and heads are drawn as the
    records' were, so that their seeds give the same numbers again.
    """
    import torch

    from sims.ensemble import Ensemble, Member
    from sims.update import Inputs, Task, first_order

    seeds, d, task = range(seeds) if isinstance(seeds, int) else seeds, config.d_model, Task(num_tokens=num_tokens)
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


Layers = Sequence[tuple[float, float]]
"""By layer, alpha and the gain of what is scaled."""


def by_sublayer(
    encoder: Layers,
    decoder: Layers,
    seeds: int | Sequence[int],
    num_tokens: int,
    *,
    d_model: int = 32,
    ffn_ratio: int = 1,
    scaled: Sequence[str] = SCALED,
) -> tuple[list[list[float]], list[list[float]]]:
    """By side, sublayer and seed: the sublayer's part of the update of a real encoder-decoder with two heads."""
    from sims.model import ModelConfig, alternating, decoder_layers

    first = (alternating(2, residual_weight=weight, gains=dict.fromkeys(scaled, gain)) for weight, gain in encoder)
    second = (decoder_layers(1, residual_weight=weight, gains=dict.fromkeys(scaled, gain)) for weight, gain in decoder)
    sides = {"encoder": tuple(chain.from_iterable(first)), "decoder": tuple(chain.from_iterable(second))}
    config = ModelConfig(
        encoder=sides["encoder"], decoder=sides["decoder"], d_model=d_model, num_heads=2, ffn_ratio=ffn_ratio
    )
    by_name = squares(config, seeds, num_tokens)
    of_encoder, of_decoder = (
        [
            added(row for name, row in by_name.items() if name.startswith(f"_weights.{side}_{index}_"))
            for index in range(len(sublayers))
        ]
        for side, sublayers in sides.items()
    )
    return of_encoder, of_decoder


def added(rows: Iterable[Sequence[float]]) -> list[float]:
    """By seed, the sum."""
    return [sum(values) for values in zip(*rows, strict=True)]


@cache
def measured(
    scales: Scales, num_encoder: int, num_decoder: int, *, num_seeds: int, num_tokens: int = 4, d_model: int = 32
) -> tuple[tuple[float, float], ...]:
    """By seed: (the encoder's, the decoder's) part of the update of a real encoder-decoder."""
    encoder, decoder = [scales.encoder] * num_encoder, [scales.decoder] * num_decoder
    sides = by_sublayer(encoder, decoder, num_seeds, num_tokens, d_model=d_model)
    return tuple(zip(*map(added, sides), strict=True))


# ---------------------------------------------------------------- intervals


def is_near(found: Interval, power: float) -> bool | None:
    """Whether a power is the stated one, to less than 1/8."""
    inside = found.is_below(power + BETWEEN), found.is_below(power - BETWEEN)
    return False if inside[0] is False or inside[1] is True else None if None in inside else True
