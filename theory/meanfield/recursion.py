"""The mean field layer by layer: O(L) and no memory for any gains; by leaps where L is large and nothing telescopes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sympy import Expr, ceiling, lambdify

from depthlaw.theory.meanfield.longsum import START, carry
from depthlaw.theory.meanfield.setting import (
    MOMENT_KINDS,
    NormFunction,
    Prediction,
    Setting,
    degree,
    of_matrices,
    role_values,
)
from depthlaw.theory.moments import Kind, evaluator
from depthlaw.theory.optimizers import Functional
from depthlaw.theory.stack import BranchMoments, NormKind, Placement, Stack, Transfer, real_norm, transfer
from depthlaw.theory.symbols import L, l

LONGEST = 1_000_000
"""Above this many sublayers of a named scheme the rest of the recursion is summed by Euler-Maclaurin."""

Letters = tuple[float | None, float, float, float, float]
"""(a, b, c, w, v) of one sublayer; a is None under Admin's rule."""


def needed_kinds(
    functional: Functional, placement: Placement, norm_kind: NormKind, *, is_gated: bool = False
) -> frozenset[Kind]:
    """The kinds of moments that a prediction reads. The others are not computed."""
    kinds = {Kind.SECOND, Kind.SLOPE_SECOND}
    centred = placement.inner and norm_kind is NormKind.LAYERNORM and not is_gated  # gated ones have mean 0
    if centred:
        kinds.add(Kind.VARIANCE)
    if functional in (Functional.L1, Functional.RMS_L1):
        kinds |= {Kind.SLOPE_ABS, Kind.ABS_CENTRED if centred else Kind.ABS_MEAN}
    return frozenset(kinds)


def _unread(_: float) -> float:
    """The value of a moment that nothing reads."""
    return math.nan


def letters_of(
    stack: Stack,
    num_sublayers: int,
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
    *,
    is_smooth: bool = False,
) -> Callable[[float], Letters]:
    """The coefficients of sublayer l as floats. Lists of gains (index 0 is sublayer 1) replace the stack's own.

    is_smooth: as smooth functions of l that are right at every even l, where ceil(l/2) = l/2.
    """
    total = num_sublayers

    def law(letter: Expr | None) -> Callable[[float], Any]:
        if letter is None:
            return lambda _: None
        fixed = letter.subs(L, total)
        if is_smooth:
            fixed = fixed.replace(ceiling, lambda x: x)
        if not fixed.has(l):
            constant = float(fixed)
            return lambda _: constant
        return lambdify(l, fixed, "math")

    weights = stack.residual_weight, stack.branch_weight, stack.input_scale
    a, b, c, gain_in, gain_out = map(law, (*weights, stack.gain_in, stack.gain_out))

    def at(index: float) -> Letters:
        return (
            a(index),
            b(index),
            c(index),
            gain_in(index) if w is None else w[int(index) - 1],
            gain_out(index) if v is None else v[int(index) - 1],
        )

    return at


class _Walk:
    """Carries stream and totals through the sublayers of one setting.

    Horner's rule turns the backward pass around: U_l = U_{l-1} (D_{l-1}/D_l)^p + unit_l, and the update is
    U_L D_L^p, so nothing is stored. ``exponent`` keeps exploding gradients inside the range of floats, ``damping``
    exploding streams: behind a pre-norm only b^2/q counts, so q is held times damping^2 and b times damping.
    """

    def __init__(self, setting: Setting, letters: Callable[[float], Letters], num_sublayers: int) -> None:
        self.setting, self.letters, self.num_sublayers = setting, letters, num_sublayers
        self.stack = setting.scheme.stack
        self.placement = self.stack.placement
        self.functional = setting.functional
        self.p = float(degree(setting.functional))
        self.stream = float(self.stack.embedding_scale.subs(L, num_sublayers)) ** 2
        self.admin, self.exponent, self.damping = 1.0, 0.0, 1.0
        self.totals = {"fc1": 0.0, "fc2": 0.0} | ({"fc3": 0.0} if setting.gated else {}) | {"branch_weight": 0.0}
        needed = needed_kinds(self.functional, self.placement, setting.norm_kind, is_gated=bool(setting.gated))
        self.moments = [evaluator(setting.activation, kind) if kind in needed else _unread for kind in MOMENT_KINDS]
        self._scale, self._moments = math.nan, BranchMoments(*[math.nan] * len(MOMENT_KINDS))
        self.norm = _norm(setting.norm_function)

    def transfer(
        self, letters: Letters, stream: float, placement: Placement | None = None
    ) -> tuple[Transfer, dict[str, float]]:
        """One sublayer at a given second moment of the stream, and its units by role."""
        a, b, c, gain_in, gain_out = letters
        placement = self.placement if placement is None else placement
        before = self.norm(stream)[0] if placement.has_pre else stream
        scale = gain_in * c * math.sqrt(before)
        if scale != self._scale:
            self._moments, self._scale = BranchMoments(*[moment(scale) for moment in self.moments]), scale
        t = transfer(
            placement,
            self.setting.norm_kind,
            self._moments,
            stream=stream,
            residual_weight=math.sqrt(self.admin) if a is None else a,
            branch_weight=b * self.damping,
            input_scale=c,
            gain_in=gain_in,
            gain_out=gain_out,
            sqrt=math.sqrt,
            norm=self.norm,
            two_over_pi=2 / math.pi if self.setting.gated else None,
        )
        return t, role_values(self.functional, t, gain_in, gain_out, math.sqrt, 2 / math.pi)

    def step(self, index: int) -> None:
        placement = self.stack.placement_at(index, self.num_sublayers)
        t, units = self.transfer(self.letters(index), self.stream, placement)
        ratio, shrink = t.gradient_ratio**self.p, math.exp(-self.exponent)
        totals = {role: self.totals[role] * ratio + unit * shrink for role, unit in units.items()}
        if max(totals.values()) > 1e200:  # far from the end of the floats
            self.exponent += 200 * math.log(10)
            totals = {role: value * 1e-200 for role, value in totals.items()}
        self.totals = totals
        self.stream = t.stream
        self.admin += t.increment
        if self.placement.pre and self.stream > 1e200:
            self.stream *= 1e-200
            self.damping *= 1e-100
            self.totals = {role: value * 1e-200**self.p for role, value in self.totals.items()}

    def block(
        self, smooth: Callable[[float], Letters], index: float, stream: float
    ) -> tuple[float, float, dict[str, float]]:
        """Sublayers 2k-1 and 2k, with equal letters, as one smooth function of k, for ``longsum``."""
        first, units1 = self.transfer(smooth(2 * index), stream)
        second, units2 = self.transfer(smooth(2 * index), first.stream)
        ratio = second.gradient_ratio**self.p
        units = {role: units1[role] * ratio + units2[role] for role in units1}
        return second.stream - stream, math.log(first.gradient_ratio * second.gradient_ratio) * self.p, units

    def leap(self, smooth: Callable[[float], Letters], start: int, stop: int) -> None:
        """Go from block ``start`` to block ``stop`` at once, by Euler-Maclaurin summation."""
        block = functools.partial(self.block, smooth)
        self.stream, totals, grown = carry(block, start, stop, self.stream, self.totals)
        self.totals, self.exponent = totals, self.exponent + grown

    def finish(self, num_sublayers: int) -> Prediction:
        top = (self.norm(self.stream)[1] if self.placement.final else 1.0) ** self.p
        top *= float(self.setting.lr_multiplier.subs(L, num_sublayers))
        totals = {role: value * top for role, value in self.totals.items()}
        return prediction(self.setting, num_sublayers, totals, self.exponent)


def prediction(setting: Setting, num_sublayers: int, roles: dict[str, float], exponent: float = 0.0) -> Prediction:
    """Assemble the answer; ``roles`` are still to be multiplied by e^exponent, which may overflow to infinity."""
    update = of_matrices(roles)
    log10 = (math.log10(update) if update > 0 else -math.inf) + exponent / math.log(10)
    grow = math.exp(exponent) if exponent < 700 else math.inf  # exp(709) is the last float
    shown = {role: value * grow if value else 0.0 for role, value in roles.items()}
    if not setting.scheme.stack.trains_branch_weight:
        del shown["branch_weight"]
    return Prediction(num_sublayers=num_sublayers, update=of_matrices(shown), roles=shown, log10_update=log10)


def by_recursion(
    setting: Setting, num_sublayers: int, *, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> Prediction:
    """Every sublayer in turn; the only way for gains of one's own, and the reference for the two shorter ways."""
    letters = letters_of(setting.scheme.stack, num_sublayers, w, v)
    walk = _Walk(setting, letters, num_sublayers)
    if setting.scheme.stack.has_second_stream:
        return _two_streams(walk)
    for index in range(1, num_sublayers + 1):
        walk.step(index)
    return walk.finish(num_sublayers)


def _norm(asked: NormFunction | None) -> Callable[[float], tuple[float, float]]:
    """What a norm, or the function in its place, makes of an input; the values are those of ``real_norm``."""
    if asked is None:
        return real_norm
    second, slope = (evaluator(asked.function, kind) for kind in (Kind.SECOND, Kind.SLOPE_SECOND))
    factor = float(asked.scale)

    def norm(stream: float) -> tuple[float, float]:
        scale = factor * math.sqrt(stream)
        return second(scale), factor**2 * slope(scale)

    return norm


def _two_streams(walk: _Walk) -> Prediction:
    """ResiDual, from the end to the start: x_l as in post-norm, y_l = y_{l-1} + b F_l, read as x_L + norm(y_L).

    D is the squared gradient at x_l, G that at y, which no sublayer changes, C the product of the two gradients: at the
    head D = 1, G = 1/q_y and C = sqrt(G). A branch is reached by the sum of both, a norm divides by the length.
    """
    num, letters, p = walk.num_sublayers, walk.letters, walk.p
    steps, stream, beside = [], walk.stream, walk.stream
    for index in range(1, num + 1):
        t, units = walk.transfer(letters(index), stream)
        steps.append((t, units, letters(index)[0]))
        stream, beside = t.stream, beside + t.increment
    here, there = 1.0, 1 / beside
    cross, totals, shift = math.sqrt(there), dict.fromkeys(walk.totals, 0.0), 0.0
    for t, units, a in reversed(steps):
        assert a is not None
        second = t.sum_second  # 1 where no norm stands behind the sum: a ResiDual has one
        cross /= math.sqrt(second)
        at_branch = here / second + 2 * cross + there
        # The units count what reaches a branch through the norm alone.
        totals = {role: totals[role] + unit * (at_branch * second) ** p for role, unit in units.items()}
        through = t.gradient_ratio - a**2 / second
        here = a**2 * here / second + through * second * at_branch
        cross *= a
        if here > 1e200:
            here, there, cross = here * 1e-200, there * 1e-200, cross * 1e-200
            totals = {role: total * 1e-200**p for role, total in totals.items()}
            shift += 200 * math.log(10) * p
    return prediction(walk.setting, num, totals, shift)


def by_leap(setting: Setting, num_sublayers: int) -> Prediction:
    """A named scheme without a closed form, in time independent of L.

    Slowly moving stacks leap by Euler-Maclaurin. A stack whose residual weight is not 1 settles instead: its
    stream, or the share of one layer in the whole, stops changing, and the rest of it is walked by ``_settled``.
    """
    stack = setting.scheme.stack
    moves = stack.residual_weight != 1 and not stack.is_uniform
    if moves or stack.even is not None or stack.early is not None or stack.has_second_stream:
        if num_sublayers <= LONGEST:
            return by_recursion(setting, num_sublayers)
        raise ValueError(f"{setting.scheme.name} has no closed form: at most {LONGEST} sublayers, not {num_sublayers}")
    walk = _Walk(setting, letters_of(stack, num_sublayers), num_sublayers)
    if stack.residual_weight == 1:
        blocks = num_sublayers // 2
        for index in range(1, 2 * START + 1):
            walk.step(index)
        walk.leap(letters_of(stack, num_sublayers, is_smooth=True), START, blocks)
        if num_sublayers % 2:
            walk.step(num_sublayers)
        return walk.finish(num_sublayers)
    for index in _indices(num_sublayers):
        before, totals = walk.stream, walk.totals
        walk.step(index)
        t, units = walk.transfer(walk.letters(index), walk.stream)
        if walk.stream == before:
            return _settled_stream(walk, t, units, num_sublayers, index)
        if walk.damping < 1:  # what comes after adds less than a rounding error to U_l D_l^p
            rest = math.log(t.gradient_ratio) - math.log(t.stream / walk.stream)
            if abs(rest) * num_sublayers < 1e-12 and totals != walk.totals:
                return walk.finish(num_sublayers)
    if num_sublayers <= LONGEST:
        return walk.finish(num_sublayers)
    raise ValueError(
        f"the residual weight is so near 1 that {num_sublayers} sublayers do not settle within {LONGEST}, "
        "and this scheme has no closed form; ask for fewer sublayers"
    )


def _indices(num_sublayers: int) -> Iterator[int]:
    return iter(range(1, min(num_sublayers, LONGEST) + 1))


def _settled_stream(walk: _Walk, t: Transfer, units: dict[str, float], num_sublayers: int, index: int) -> Prediction:
    """Finish a walk whose stream no longer changes: the sublayers that are left form a geometric series."""
    left, log_ratio = num_sublayers - index, math.log(t.gradient_ratio) * walk.p
    shrink = math.exp(-walk.exponent)
    if abs(log_ratio) * left < 1e-9:
        walk.totals = {r: total + units[r] * shrink * left for r, total in walk.totals.items()}
        return walk.finish(num_sublayers)
    # sum_{j<left} r^j = (r^left - 1)/(r - 1), with r^left taken out as e^grown where it is large
    grown = max(0.0, log_ratio * left)
    series = (math.exp(log_ratio * left - grown) - math.exp(-grown)) / math.expm1(log_ratio)
    kept = math.exp(log_ratio * left - grown)
    walk.totals = {r: total * kept + units[r] * shrink * series for r, total in walk.totals.items()}
    walk.exponent += grown
    return walk.finish(num_sublayers)
