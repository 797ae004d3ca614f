"""The gain that holds the update where the stream grows (Sub-LN, and Pre-LN at unscaled gains).

The stream's second moment at sublayer l is l times a branch's (input dropped), and the gradient that arrives there is
the inverse root of it, as the chain telescopes (``theory.bounds.growing``). A matrix changes the loss by
|g|^(p+1) |theta|^t, so sublayer l changes it by a power of the gain times l^(-(p+1)/2). The sum over l is carried to
leading order, and its constant is dropped, as the source drops the 2 of 2 log L / gamma^2. Source: S2-03, S2-19, S2-21.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

from sympy import Expr, Integer, Rational, S, harmonic, zeta

from depthlaw.theory.asymptotics.orders import leading_order
from depthlaw.theory.bounds.growing import ratio_sum
from depthlaw.theory.rules.magnitude import (
    Branch,
    Degrees,
    NoMemberError,
    exponents,
    lr_multiplier,
    solve_monomials,
    tidy,
)
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.stack import Side, SublayerKind
from depthlaw.theory.symbols import L, branch_weight, init_gain, l, residual_weight

_NOTES = {
    "leading-log": "one gain on every scaled matrix, from the leading order of the sum",
    "growing-gains": "alpha = 1 and gains that grow with depth, so that the stream outgrows the update",
    "learning-rate": "alpha = lambda = 1 and a smaller learning rate",
    "unscaled-cross": "the reader's cross-attention left at gain 1, as the source initialises it",
}


def power_sum(exponent: Expr) -> Expr:
    """The sum of l^-exponent over l = 1..L."""
    return harmonic(L) if exponent == 1 else zeta(exponent) - zeta(exponent, L + 1)


@cache
def _leading(expr: Expr, *, keeps_constant: bool) -> Expr:
    """Leading order of an expression in L."""
    order = leading_order(expr, L)
    return (order if keeps_constant else replace(order, coefficient=S.One)).expression(L)


@dataclass(frozen=True, kw_only=True)
class GrowingUpdate:
    """The loss change of one step, summed over the sublayers of a growing stream, as powers of lambda and rho.

    reader: the side whose cross-attentions this side's gradient passes, if any.
    """

    side: Side
    branch: Branch
    optimizer: Degrees
    reader: Side | None = None
    reader_gain: Expr | None = None
    """The reader's gain where its cross-attention stays at gain 1; none: one gain for all of its sublayers."""

    def under(self, optimizer: Degrees) -> GrowingUpdate:
        """The same stack under another optimizer."""
        return replace(self, optimizer=optimizer)

    def _at_one_gain(self, expr: Expr) -> Expr:
        return self.branch.uniform(expr).xreplace({branch_weight: S.One, residual_weight: S.One})

    @cached_property
    def stream_second(self) -> Expr:
        """Second moment of the stream at sublayer l."""
        return l * self._at_one_gain(self.branch.magnitude) ** 2

    @cached_property
    def gradient(self) -> Expr:
        """Magnitude of the gradient of any matrix of sublayer l."""
        arriving = self.stream_second ** Rational(-1, 2)
        magnitudes = {tidy(self._at_one_gain(g) * arriving) for g in self.branch.gradients}
        if len(magnitudes) != 1:
            raise ArithmeticError("at one gain all matrices of a branch should have gradients of one magnitude")
        return magnitudes.pop()

    @cached_property
    def term(self) -> Expr:
        """Loss change of one matrix of sublayer l."""
        p, t = self.optimizer.gradient_degree, self.optimizer.parameter_degree
        return tidy(lr_multiplier * self.gradient ** (p + 1) * init_gain**t)

    @cached_property
    def exponent(self) -> Expr:
        """The exponent s, where the term falls as l^-s."""
        return -exponents(self.term, (l,))[1][0]

    @cached_property
    def gain_power(self) -> Expr:
        """The term without its dependence on l."""
        return tidy(self.term * l**self.exponent)

    def growth(self, length: Expr) -> Expr:
        """The leading order of the sum of l^-s over l = 1..length, without its constant."""
        return _leading(power_sum(self.exponent), keeps_constant=False).subs(L, length)

    @property
    def _share(self) -> Expr:
        """The cross-attention's share of what a layer of the reader adds to its stream."""
        assert self.reader is not None
        cross = Integer(len(self.reader.positions(SublayerKind.CROSS)))
        others = len(self.reader.layer) - cross
        return cross / (cross + others * (S.One if self.reader_gain is None else self.reader_gain**2))

    @cached_property
    def coupling_exact(self) -> Expr:
        """Mean-square slope of the output in this side's output, as the source chains it (1 if nothing reads it)."""
        if self.reader is None:
            return S.One
        return self._share * (1 + ratio_sum(self.reader.num_sublayers))

    @cached_property
    def coupling(self) -> Expr:
        """The leading order of ``coupling_exact``, with its constant, the cross-attention's share, as in the source."""
        if self.reader is None:
            return S.One
        return self._share * _leading(1 + ratio_sum(L), keeps_constant=True).subs(L, self.reader.num_sublayers)

    @cached_property
    def total(self) -> Expr:
        """The sum to leading order; this side's own gradients pass the coupling."""
        passing = self.coupling ** ((self.optimizer.gradient_degree + 1) / 2)
        return self.gain_power * self.growth(self.side.num_sublayers) * passing

    @cached_property
    def relative(self) -> Expr:
        """|Delta theta| / |theta| over the learning rate, beside what gain 1 gives at the same sublayer."""
        p, t = self.optimizer.gradient_degree, self.optimizer.parameter_degree
        of_gain = tidy(self.gradient * l ** Rational(1, 2))
        return lr_multiplier * of_gain**p * init_gain ** (t - 1)


def cross_at_one(update: GrowingUpdate, reader_gain: Expr) -> GrowingUpdate:
    """The same side where the reader has that gain on every branch but its cross-attentions, which keep gain 1."""
    return replace(update, reader_gain=reader_gain)


def grown_member(name: str, update: GrowingUpdate) -> Member:
    """The gain that holds the sum; for ``learning-rate``, the multiplier that does.

    Where the sum does not depend on the gain, the member has no gain and keeps the update's growth.
    """
    fixed = lr_multiplier if name != "learning-rate" else init_gain
    try:
        values = solve_monomials((update.total, fixed), (init_gain, lr_multiplier))
    except NoMemberError:
        values = {init_gain: S.One, lr_multiplier: S.One}
        is_solved = False
    else:
        is_solved = True

    def at(expr: Expr) -> Expr:
        return tidy(expr.xreplace(values))

    if is_solved and at(update.total) != 1:
        raise ArithmeticError(f"{name} was put back into its own constraint and gave {at(update.total)}, not 1")
    length = update.side.num_sublayers
    return Member(
        name=name,
        residual_weight=S.One,
        branch_weight=S.One,
        init_gain=values[init_gain] if is_solved else None,
        lr_multiplier=values[lr_multiplier],
        update=at(update.total),
        relative_update=at(update.relative),
        branch_at_init=length ** Rational(-1, 2),  # of the last branch: one of L equal ones, in mean square
        accumulated_branch=at(update.stream_second.subs(l, length)),
        note=_NOTES[name],
    )
