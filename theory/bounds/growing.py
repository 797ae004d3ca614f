"""The bound where the stream grows (pre, sub): second moments of ``stack.transfer`` at the identity activation.

With D_l the gradient that reaches sublayer l and q_l the stream's second moment, D_{l-1}/D_l = q_l/q_{l-1}: the chain
telescopes to D_l = 1/q_l. The sources instead drop the input, keep the product's first-order terms and widen their
range; here each of those is a ``Step``, with the closed form that it leaves at equal gains.

v_l, w_l: gains of W2 and W1 of sublayer l = 1..L; s_l: second moment that a branch adds; S_k = s_1 + ... + s_k.
Source: S2-08, S2-13, S2-18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from sympy import (
    Eq,
    Expr,
    IndexedBase,
    Mod,
    Piecewise,
    Product,
    S,
    Sum,
    cancel,
    digamma,
    harmonic,
    sqrt,
    sympify,
)

from depthlaw.theory.bounds.derivation import Bound, Step
from depthlaw.theory.stack import BranchMoments, NormKind, Placement, Side, Stack, SublayerKind, Transfer, transfer
from depthlaw.theory.symbols import L, d, eta, gain_in, gain_out, gains_in, gains_out, init_gain, k, l, scratch

_n: Final = scratch("n", integer=True, positive=True)
_stream: Final = scratch("q", positive=True)


def identity_transfer(placement: Placement, *, stream: Expr, alpha: Expr, v: Expr, w: Expr) -> Transfer:
    """One sublayer at the identity activation and branch weight 1. (On it, RMSNorm and LayerNorm agree.)"""
    preactivation = w**2 * (S.One if placement.pre else stream)
    sublayer = transfer(
        placement,
        NormKind.RMSNORM,
        BranchMoments(
            second=preactivation,
            variance=preactivation,
            abs_mean=sqrt(preactivation),  # times E|z|, which the absolute outputs of transfer leave out
            abs_centred=sqrt(preactivation),
            slope_second=S.One,
            slope_abs=S.One,
        ),
        stream=stream,
        residual_weight=alpha,
        branch_weight=S.One,
        input_scale=S.One,
        gain_in=w,
        gain_out=v,
        sqrt=sqrt,
    )
    return Transfer(*(sympify(value) for value in sublayer))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One sublayer of a growing stream at the identity activation."""

    increment: Callable[[Expr, Expr], Expr]
    """s(v, w), what the branch adds to the stream."""
    gradients: Callable[[Expr, Expr], tuple[Expr, Expr]]
    """||df/dW1||^2 and ||df/dW2||^2, per d and per unit of the gradient D that reaches the sublayer."""

    def weight(self, v: Expr, w: Expr) -> Expr:
        """The sum of both squared gradients."""
        return sum(self.gradients(v, w), S.Zero)


@cache
def growing_profile(placement: Placement) -> Profile:
    """The sublayer of a placement without post-norm; ValueError where its gradient does not telescope."""
    sublayer = identity_transfer(placement, stream=_stream, alpha=S.One, v=gain_out, w=gain_in)
    if placement.post or cancel(sublayer.gradient_ratio * _stream - sublayer.stream) != 0:
        raise ValueError("the gradient through this placement is not the ratio of its second moments")

    def at(expr: Expr, v: Expr, w: Expr) -> Expr:
        return expr.subs({gain_out: v, gain_in: w}, simultaneous=True)

    return Profile(
        increment=lambda v, w: at(sublayer.increment, v, w),
        gradients=lambda v, w: (at(sublayer.fc1_square, v, w), at(sublayer.fc2_square, v, w)),
    )


@dataclass(frozen=True, kw_only=True)
class Sums:
    """The sums of one stack of ``length`` sublayers with gains ``v``, ``w``."""

    profile: Profile
    v: IndexedBase
    w: IndexedBase
    length: Expr

    def s(self, i: Expr) -> Expr:
        return self.profile.increment(self.v[i], self.w[i])

    def total(self, upto: Expr) -> Expr:
        """S_upto."""
        return Sum(self.s(_n), (_n, 1, upto))

    def weight(self, i: Expr) -> Expr:
        return self.profile.weight(self.v[i], self.w[i])

    @property
    def tail(self) -> Expr:
        """1 + sum_{k=2}^L s_k / S_{k-1}."""
        return 1 + Sum(self.s(k) / self.total(k - 1), (k, 2, self.length))

    @property
    def gradient(self) -> Expr:
        """D_l after all steps, the same for every l: tail / S_L."""
        return self.tail / self.total(self.length)

    @property
    def factorised(self) -> Expr:
        return Sum(self.weight(l), (l, 1, self.length)) * self.gradient

    @property
    def printed(self) -> Expr:
        """The sum multiplied out, as the sources write it."""
        head = self.weight(l) / self.total(self.length)
        inner = Sum(head * self.s(k) / self.total(k - 1), (k, 2, self.length))
        return Sum(self.weight(l), (l, 1, self.length)) / self.total(self.length) + Sum(inner, (l, 1, self.length))


def ratio_sum(length: Expr) -> Expr:
    """sum_{k=2}^L s_k / S_{k-1} at equal gains: the ratios are 1/(k-1), whatever the gain."""
    return harmonic(length - 1)


def uniform_stages(profile: Profile, length: Expr, gain: Expr = init_gain) -> dict[str, Expr]:
    """The bracket at equal gains after each step, keyed by the step's name."""
    s = profile.increment(gain, gain)
    per = cancel(profile.weight(gain, gain) / s)
    return {
        "telescope": per * (digamma(length + 1 + 1 / s) - digamma(1 + 1 / s)),  # sum_l weight / (1 + s l)
        "input": per * harmonic(length),  # sum_l weight / (s l)
        # sum_l (1 + sum_{k>l} 1/(k-1)) / L: each k >= 2 is met by the k-1 sublayers below it
        "first order": per * (length + (length - 1)) / length,
        "range": per * (1 + ratio_sum(length)),  # ... and now by all L of them
    }


def growing_steps(sums: Sums) -> tuple[Step, ...]:
    """The steps from the exact second moments to the printed bound."""
    stages = uniform_stages(sums.profile, sums.length)
    top, whole = sums.length, sums.total(sums.length)
    ratio = sums.s(k) / sums.total(k - 1)
    ratios = Sum(ratio, (k, l + 1, top))
    counted = Product(1 + sums.s(k) / (1 + sums.total(k - 1)), (k, l + 1, top)) / (1 + whole)
    dropped = Product(1 + ratio, (k, l + 1, top)) / whole
    return (
        Step(
            name="activation",
            before=scratch("E_phi2", positive=True),
            after=S.One,
            effect="near",
            condition="E phi(u)^2 and E phi'(u)^2 count as 1, and no norm removes a mean: true of the identity",
        ),
        Step(
            name="telescope",
            before=counted,
            after=1 / (1 + sums.total(l)),
            effect="equal",
            condition="each factor is a ratio of successive second moments of the stream",
            uniform_after=stages["telescope"],
        ),
        Step(
            name="input",
            before=counted,
            after=dropped,
            effect="raises",
            condition="the input's own second moment, 1, is much less than what the first branch adds",
            small=1 / sums.s(S.One),
            uniform_after=stages["input"],
        ),
        Step(
            name="first order",
            before=dropped,
            after=(1 + ratios) / whole,
            effect="lowers",
            condition="gradients through more than two norms are left out: the ratios above l sum to much less than 1",
            small=ratios,
            uniform_after=stages["first order"],
        ),
        Step(
            name="range",
            before=(1 + ratios) / whole,
            after=sums.gradient,
            effect="raises",
            condition="the sum over k > l is extended to all k >= 2",
            uniform_after=stages["range"],
        ),
    )


def growing_bound(name: str, stack: Stack) -> Bound:
    """The bound of one stack, pre or sub."""
    profile = growing_profile(stack.placement)
    sums = Sums(profile=profile, v=gains_out, w=gains_in, length=L)
    uniform = uniform_stages(profile, L)["range"]
    return Bound(
        scheme=name,
        prefactor=eta * d,
        expression=sums.printed,
        factorised=sums.factorised,
        exact=Sum(sums.weight(l) / (1 + sums.total(l)), (l, 1, L)),
        uniform=uniform,
        at_scheme=uniform.subs(init_gain, stack.gain_in),
        steps=growing_steps(sums),
    )


def cross_gradient_step(sums: Sums, side: Side) -> Step:
    """The step of a decoder in which the sources chain cross-attention like self-attention.

    The branch of a cross-attention reads the encoder's output, not the decoder's stream. side: whose ``sums`` they are.
    """
    ratio, size = sums.s(k) / sums.total(k - 1), len(side.layer)
    is_cross = [Eq(Mod(k, size), position % size) for position in side.positions(SublayerKind.CROSS)]
    share = Piecewise(*((S.Zero, condition) for condition in is_cross), (ratio, True))
    whole = sums.total(sums.length)
    return Step(
        name="cross-attention as self-attention",
        before=Product(1 + share, (k, l + 1, sums.length)) / whole,
        after=Product(1 + ratio, (k, l + 1, sums.length)) / whole,
        effect="raises",
        condition="the branch of a cross-attention carries no gradient to the decoder's stream (its queries apart), "
        "yet its ratio is counted",
    )
