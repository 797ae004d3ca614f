"""Bounds on the model update of one SGD step, derived from the stack: single stacks and encoder-decoders.

``derive_bound(name)`` derives the bound of a name in ``BOUNDS``. The derivations of one stack are in ``growing`` (pre,
sub) and ``scalar_model`` (post). Here they are put together, and encoder and decoder are coupled through the
cross-attentions, whose places follow from the decoder's layer. Source: DN-02, DN-03, S2-08, S2-13, S2-18.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from sympy import Expr, S, Sum

from depthlaw.theory.bounds.derivation import Bound, Step, evaluate, evaluate_sums
from depthlaw.theory.bounds.growing import (
    Sums,
    cross_gradient_step,
    growing_bound,
    growing_profile,
    growing_steps,
    ratio_sum,
    uniform_stages,
)
from depthlaw.theory.bounds.scalar_model import cross_slopes, post_bound, scalar_steps, sensitivity_bound
from depthlaw.theory.schemes import nearest, scheme
from depthlaw.theory.stack import ARCHITECTURES, POST, PRE, SUB, Architecture, Placement, Side, SublayerKind
from depthlaw.theory.symbols import d, eta, gain_in, gain_out, residual_weight, scratch, side_symbols

__all__ = [
    "BOUNDS",
    "Bound",
    "Step",
    "bound_of_scheme",
    "cross_sublayers",
    "derive_bound",
    "evaluate",
    "evaluate_sums",
]

_j: Final = scratch("j", integer=True, positive=True)


def bound_of_scheme(name: str) -> Bound:
    """The bound of a scheme's single stack; ValueError where no bound of the sources covers its form."""
    stack = scheme(name).stack
    plain = stack.branch_weight == 1 and stack.input_scale == 1 and stack.gain_in == stack.gain_out
    if plain and stack.placement == POST and stack.residual_weight is not None:
        return post_bound(name, stack)
    if plain and stack.placement in (PRE, SUB) and stack.residual_weight == 1:
        return growing_bound(name, stack)
    raise ValueError(f"no bound covers {name!r}: it takes norms post, pre or sub, equal gains, b = c = 1")


# ---------------------------------------------------------------- encoder-decoder


def reading_sides(architecture: Architecture) -> tuple[Side, Side]:
    """The side that is read, and the side that reads it by cross-attention."""
    readers = [side for side in architecture.sides if side.positions(SublayerKind.CROSS)]
    if len(architecture.sides) != 2 or len(readers) != 1:
        raise ValueError(f"{architecture.name} is not an encoder-decoder")
    return next(side for side in architecture.sides if side is not readers[0]), readers[0]


def cross_sublayers(side: Side, index: Expr = _j) -> Expr:
    """The number of the sublayer that is the cross-attention of layer ``index``.

    For layers of (self, cross, ffn) it is 3 (index - 1) + 2. ValueError where a layer has not one cross-attention.
    """
    positions = side.positions(SublayerKind.CROSS)
    if len(positions) != 1:
        raise ValueError(f"{side.name} has {len(positions)} cross-attentions in a layer, not one")
    return len(side.layer) * (index - 1) + positions[0]


def _encoder_decoder_growing(name: str, placement: Placement, gains: Mapping[str, Expr]) -> Bound:
    """The bound of an encoder-decoder with pre or sub norms: the decoder's bound + coupling * the encoder's.

    The coupling is the sum of s_l D_l over the cross-attentions, whose gradients reach the encoder's normalised output.
    As the theorem writes it, Sub-LN has an inner norm in the cross-attention too. gains: the scheme's gain by side.
    """
    read, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    profile = growing_profile(placement)
    sums = {
        side.name: Sums(
            profile=profile,
            v=side_symbols(side.name).gains_out,
            w=side_symbols(side.name).gains_in,
            length=side.num_sublayers,
        )
        for side in (read, reader)
    }
    gain_of = {side.name: side_symbols(side.name).init_gain for side in (read, reader)}
    uniform = {
        side.name: uniform_stages(profile, side.num_sublayers, gain_of[side.name])["range"] for side in (read, reader)
    }
    of_reader, of_read = sums[reader.name], sums[read.name]
    cross = cross_sublayers(reader)
    coupling = Sum(of_reader.s(cross), (_j, 1, reader.num_layers)) * of_reader.gradient
    increment = profile.increment(gain_of[reader.name], gain_of[reader.name])
    share = reader.num_layers * increment / (reader.num_sublayers * increment)
    coupling_uniform = share * (1 + ratio_sum(reader.num_sublayers))
    total = uniform[reader.name] + coupling_uniform * uniform[read.name]
    return Bound(
        scheme=name,
        prefactor=eta * d,
        expression=of_reader.printed + coupling * of_read.printed,
        factorised=of_reader.factorised + coupling * of_read.factorised,
        uniform=total,
        at_scheme=total.subs({gain_of[side]: gain for side, gain in gains.items()}, simultaneous=True),
        steps=(cross_gradient_step(of_reader, reader), *growing_steps(of_reader)),
        coupling=coupling,
        coupling_uniform=coupling_uniform,
    )


def _encoder_decoder_post(name: str, scales: Mapping[str, tuple[Expr, Expr]]) -> Bound:
    """The bound of a post-norm encoder-decoder: the decoder's bound + coupling * the encoder's.

    The coupling is the sum of v w / alpha_d over the cross-attentions. It multiplies the encoder's update once, as in
    DeepNet: that the gradient passes the cross-attentions too is left out. scales: (alpha, gain) by side.
    """
    read, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    e, r = side_symbols(read.name), side_symbols(reader.name)
    steps = {
        s.name: scalar_steps(t.residual_weight, t.gains_out, t.gains_in, t.displacements, s.num_sublayers)
        for s, t in ((read, e), (reader, r))
    }
    c = cross_sublayers(reader)
    small = gain_out * gain_in / residual_weight
    slope = cross_slopes(residual_weight, gain_out, gain_in)
    each = small.subs({gain_out: r.gains_out[c], gain_in: r.gains_in[c], residual_weight: r.residual_weight})
    coupling = Sum(each, (_j, 1, reader.num_layers))
    coupling_uniform = reader.num_layers * r.init_gain**2 / r.residual_weight
    of_read, of_reader = (
        side.num_sublayers * sensitivity_bound(t.residual_weight, t.init_gain, t.init_gain) ** 2
        for side, t in ((read, e), (reader, r))
    )
    total = of_reader + coupling_uniform * of_read
    values = {}
    for side, letters in ((read, e), (reader, r)):
        values[letters.residual_weight], values[letters.init_gain] = scales[side.name]
    expression = steps[reader.name][-1].after / eta + coupling * steps[read.name][-1].after / eta
    return Bound(
        scheme=name,
        prefactor=eta,
        expression=expression,
        factorised=expression,
        uniform=total,
        at_scheme=total.subs(values, simultaneous=True),
        steps=(
            Step(
                name="cross-attention slope in the stream",
                before=slope[0],
                after=S.One,
                effect="raises",
                condition="v w / alpha is small",
                small=small,
            ),
            Step(
                name="cross-attention slope in the encoder's output",
                before=slope[1],
                after=small,
                effect="raises",
                condition="v w / alpha is small",
                small=small,
            ),
            Step(
                name="cross-attentions add coherently",
                before=Sum(each**2, (_j, 1, reader.num_layers)) ** (S.One / 2),
                after=Sum(each, (_j, 1, reader.num_layers)),
                effect="raises",
                condition="the cross-attentions' contributions all point one way; independent ones add in square",
            ),
            *steps[reader.name],
        ),
        displacement=steps[reader.name][-1].before + coupling * steps[read.name][-1].before,
        coupling=coupling,
        coupling_uniform=coupling_uniform,
    )


def _solved(norm: str, select: str | None) -> dict[str, tuple[Expr, Expr]]:
    """(residual weight, gain) by side, as ``rules`` derives them for SGD."""
    from depthlaw.theory.rules.solve import solve_rule

    rule = solve_rule(norm, "sgd", "encoder-decoder", select=select)
    return {side.name: (side.residual_weight, side.gain) for side in rule.sides}


def _encoder_decoder(placement: Placement, norm: str, is_solved: bool, name: str) -> Bound:
    names = [side.name for side in ARCHITECTURES["encoder-decoder"].sides]
    plain = dict.fromkeys(names, (S.One, S.One))
    if placement.post:
        return _encoder_decoder_post(name, _solved(norm, "deepnet") if is_solved else plain)
    scales = _solved(norm, None) if is_solved else plain
    return _encoder_decoder_growing(name, placement, {side: gain for side, (_, gain) in scales.items()})


BOUNDS: Final[Mapping[str, Callable[[], Bound]]] = MappingProxyType(
    {
        **{
            name: partial(bound_of_scheme, name) for name in ("post-ln", "deepnorm", "pre-ln", "sub-ln", "sub-ln-gamma")
        },
        "encoder-decoder-post-ln": partial(_encoder_decoder, POST, "post", False, "encoder-decoder-post-ln"),
        "encoder-decoder-deepnorm": partial(_encoder_decoder, POST, "post", True, "encoder-decoder-deepnorm"),
        "encoder-decoder-pre-ln": partial(_encoder_decoder, PRE, "pre", False, "encoder-decoder-pre-ln"),
        "encoder-decoder-sub-ln": partial(_encoder_decoder, SUB, "sub", False, "encoder-decoder-sub-ln"),
        "encoder-decoder-sub-ln-gamma": partial(_encoder_decoder, SUB, "sub", True, "encoder-decoder-sub-ln-gamma"),
    }
)


@cache
def derive_bound(name: str) -> Bound:
    """The bound of that name on the model update of one SGD step.

    name: one of ``BOUNDS``; ValueError with the nearest names and the allowed ones for another. The answer has the
    bound at any gains, at equal gains in closed form (in L), at the scheme's own, and each approximation on the way as
    a step that says which way it errs and on what condition. Source: DN-02, DN-03, S2-08, S2-13, S2-18.

    >>> from depthlaw.theory.bounds.update import derive_bound
    >>> bound = derive_bound("pre-ln")
    >>> bound.uniform
    2*(harmonic(L - 1) + 1)/lambda**2
    >>> str(bound.order)
    '2*log(N)'
    >>> for step in bound.steps[2:]:
    ...     print(step.name, step.effect)
    input raises
    first order lowers
    range raises
    >>> str(derive_bound("deepnorm").order)
    '1'
    """
    if name not in BOUNDS:
        raise ValueError(nearest(name, list(BOUNDS), "bound"))
    return BOUNDS[name]()
