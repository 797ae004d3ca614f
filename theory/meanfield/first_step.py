"""What a first step does to the stream itself: how far the last hidden state moves, to first order and to second.

Of stacks of FFNs at one input. With z the gradient that reaches a sublayer, over its length per entry, and g = W2^T z,
a step moves what W1 and W2 make of an input u of the branch by ::

    of signs:         sign(z) A + W2 (|phi'| sign g) B        to second order  sign(z) <sign(phi), |phi'| sign g> B
    of gradients:     z A + W2 (phi'^2 g) B                   to second order  z <phi, phi'^2 g> B, over phi's length

times the branch weight and the learning rate; A and B are how long the steps of W2 and W1 are along phi and u. At one
input a gradient has rank one, so Muon's step of a matrix is its gradient over its length. Given g, W2 is z g^T / |z|^2
beside what is independent of z; W1 is so given phi' g. What the layers below have moved arrives along the gradient, as
``coherent``, and in all other directions. On the path past the branches the signs of z stay signs, of which two whose z
have a cosine of c agree as asin(c), not as c. A norm takes from what moves only what lies along its input, which
nothing does at infinite width, and divides by that input's length.

The second order is larger by sqrt(d) where a norm divides what moves, or an activation bends. A norm turns: of what
moves square to its input x, it takes x |x'|^2 / |x|^2 away. An activation adds phi'' T^2, T being what W1 makes of all
that moves. Both are made of what the forward pass is made of, which the gradient knows nothing of, so that they pass
through further sublayers as any vector does of which its length and its product with x are known.

Elsewhere the product in the second order is a Gaussian number of each network, which is smaller where norms let through
less of z along what the branch adds: its cosine with <phi, g> is known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from depthlaw.theory.meanfield.recursion import letters_of
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.moments import Activation, Kind, evaluator, points, slope_power
from depthlaw.theory.optimizers import Functional
from depthlaw.theory.stack import NormKind, Placement
from depthlaw.theory.symbols import L, u

MOST = 2000
"""Sublayers: each meets the steps of all below it."""
_Z = math.sqrt(2 / math.pi)
"""E|z|."""
_POWERS = (1, 2, 3, 4, 6)


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """Per unit learning rate (its square, where it is second), in units of a power of the width.

    d^p is the unit of the update, such as p = 3/2 of signs. representation: of the last hidden state, the root mean
    square of its change over its own, in units of d^(p - 1/2). logit: how far one logit moves, in units of d^p: the
    update; but under LAMB the real step, whose signs are longer where some entries of a gradient are 0. hidden: how
    the last hidden state changes, and block: what a sublayer's own step adds to the stream, as a root mean square over
    sublayers.
    """

    representation: float
    logit: float
    hidden: Orders
    block: Orders


class Orders(NamedTuple):
    """Root mean squares: first in units of d^(p - 1/2); second in units of d^(2p - 1) where norms or an activation bend
    what moves (is_bent), else of d^(2p - 3/2), and there it is a Gaussian number of each network, of which this is the
    mean over networks. None where it is not derived."""

    first: float
    second: float | None
    is_bent: bool

    def over_first(self, logit: float) -> float | None:
        """Of a step whose first order moves the logit by 1, in units of ``power`` of d. None, too, where nothing
        moves."""
        return self.second / self.first / abs(logit) if self.second is not None and self.first and logit else None

    @property
    def power(self) -> float:
        return -0.5 if self.is_bent else -1.0


def first_step(
    setting: Setting, num_sublayers: int, *, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> FirstStep | None:
    """At infinite width. None where it is not derived: gated FFNs, two streams, functions in the place of norms, above
    ``MOST`` sublayers, and beyond the floats.

    The second order of the last hidden state is None where there is no norm at all and the activation is piecewise
    linear.

    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> from depthlaw.theory.meanfield.first_step import first_step
    >>> [round(first_step(Setting.of("depth-mup", "adam"), number).representation, 3) for number in (8, 800)]
    [0.675, 0.66]
    """
    stack = setting.scheme.stack
    if num_sublayers > MOST or setting.gated or stack.has_second_stream or stack.norm_function:
        return None
    try:
        step = _walk(setting, num_sublayers, w, v)
    except (OverflowError, ZeroDivisionError):
        return None
    return step if math.isfinite(step.representation) else None


class _Sublayer(NamedTuple):
    """Of one sublayer, between the stream before it and behind its norms.

    past, branch: the weights of the stream and of what W2 makes, over what norms behind them divide by. input_rms: of
    u. second, absolute: E phi^2 and E|phi| behind the inner norm. slopes: E|phi'|^k there, k of ``_POWERS``. live: the
    shares of the entries of W1's and of W2's gradients that are not 0. through: the squared gain of the branch.
    projected: what of it a norm before the branch takes away along the stream. added: what the branch adds to the
    stream's second moment, before a norm of the sum. before, stream: that moment before and behind all.
    """

    past: float
    branch: float
    gain_in: float
    gain_out: float
    input_rms: float
    second: float
    absolute: float
    slopes: tuple[float, ...]
    live: tuple[float, float]
    through: float
    projected: float
    added: float
    before: float
    stream: float
    placement: Placement
    bends: _Bends

    @property
    def is_normed(self) -> bool:
        """Within the branch, or behind the sum."""
        return self.placement.inner or self.placement.branch or self.placement.post

    @property
    def ratio(self) -> float:
        """|J^T z|^2 / |z|^2 of its Jacobian J."""
        return self.past**2 + self.through

    @property
    def carried(self) -> float:
        """|J J^T z|^2 / |J^T z|^2: J carries J^T z further than it does other directions."""
        past, through, two, four = self.past**2, self.through, self.slopes[1], self.slopes[3]
        return (past**2 + 4 * past * through + (2 + four / two**2) * through**2) / self.ratio


def _sublayers(
    setting: Setting, num_sublayers: int, w: Sequence[float] | None, v: Sequence[float] | None
) -> list[_Sublayer]:
    stack, is_layernorm = setting.scheme.stack, setting.norm_kind is NormKind.LAYERNORM
    letters = letters_of(stack, num_sublayers, w, v)
    stream, admin = float(stack.embedding_scale.subs(L, num_sublayers)) ** 2, 1.0
    share = sum(side != 0 for side in setting.activation.sides(is_slope=True)) / 2
    sublayers = []
    for index in range(1, num_sublayers + 1):
        a, b, c, gain_in, gain_out = letters(index)
        a = math.sqrt(admin) if a is None else a
        placement = stack.placement_at(index, num_sublayers)
        before, slope_before = (1.0, 1 / stream) if placement.has_pre else (stream, 1.0)
        input_rms = c * math.sqrt(before)
        size = gain_in * input_rms
        kinds = Kind.SECOND, Kind.VARIANCE, Kind.ABS_MEAN, Kind.ABS_CENTRED
        second, variance, absolute, centred = (evaluator(setting.activation, kind)(size) for kind in kinds)
        length = 1.0
        if placement.inner:
            length = math.sqrt(variance if is_layernorm else second)
            second, absolute = 1.0, (centred if is_layernorm else absolute) / length
        slopes = tuple(slope_power(setting.activation, power, size) / length**power for power in _POWERS)
        branch = b / (gain_out * math.sqrt(second)) if placement.branch else b
        added = (branch * gain_out) ** 2 * second
        admin += added
        behind = a**2 * stream + added
        divisor = math.sqrt(behind) if placement.post else 1.0
        through = (branch * gain_out * gain_in * c / divisor) ** 2 * slopes[1] * slope_before
        sublayers.append(
            _Sublayer(
                past=a / divisor,
                branch=branch / divisor,
                gain_in=gain_in,
                gain_out=gain_out,
                input_rms=input_rms,
                second=second,
                absolute=absolute,
                slopes=slopes,
                live=(share, 1.0 if placement.inner and is_layernorm else share),
                through=through,
                projected=through / stream if placement.has_pre else 0.0,
                added=added,
                before=stream,
                stream=1.0 if placement.post else behind,
                placement=placement,
                bends=_bends(setting.activation, size, length, is_centred=placement.inner and is_layernorm),
            )
        )
        stream = sublayers[-1].stream
    return sublayers


class _Bends(NamedTuple):
    """Means of products with |phi'|^k, k from 0; of phi, phi' and phi'' over the length of the inner norm, phi centred
    where it centres, and h, the argument. by_h: of phi' h, phi phi' h and (phi' h)^2."""

    one: Sequence[float]
    bend: Sequence[float]
    phi_bend: Sequence[float]
    bend_square: Sequence[float]
    bend_slope_h: Sequence[float]
    by_h: Sequence[float]
    is_centred: bool


@lru_cache(maxsize=64)
def _bends(activation: Activation, size: float, length: float, *, is_centred: bool) -> _Bends:
    mean = evaluator(activation, Kind.MEAN)(size) if is_centred else 0.0
    rows = [
        (weight, h, (phi - mean) / length, slope / length, bend / length)
        for weight, h, phi, slope, bend in points(activation, size)
    ]

    def means(count: int, factor: Callable[[float, float, float, float], float]) -> list[float]:
        return [math.fsum(weight * factor(*at) * abs(at[2]) ** k for weight, *at in rows) for k in range(count)]

    return _Bends(
        one=means(5, lambda h, phi, slope, bend: 1),
        bend=means(3, lambda h, phi, slope, bend: bend),
        phi_bend=means(3, lambda h, phi, slope, bend: phi * bend),
        bend_square=means(5, lambda h, phi, slope, bend: bend**2),
        bend_slope_h=means(3, lambda h, phi, slope, bend: bend * slope * h),
        by_h=(
            *means(1, lambda h, phi, slope, bend: slope * h),
            *means(1, lambda h, phi, slope, bend: phi * slope * h),
            *means(1, lambda h, phi, slope, bend: (slope * h) ** 2),
        ),
        is_centred=is_centred,
    )


class _Own(NamedTuple):
    """What a sublayer's own step does, before branch weight and rate, per entry. towards: along z. square: in all.
    met: along J J^T z, of its Jacobian J. of_w1, of_w2: what of it is the step of W1, before phi' and W2, and of W2.
    second: the standard deviation of the second order, in units of sqrt(d) more; share: how much of its square what
    norms take along the branch can be."""

    towards: float
    square: float
    met: float
    of_w1: float
    of_w2: float
    second: float
    share: float


def _of_signs(at: _Sublayer, lengths: tuple[float, float]) -> _Own:
    """lengths: by which W1's and W2's signs are multiplied."""
    one, two, three, *_ = at.slopes
    a, b = lengths[1] * at.absolute, lengths[0] * _Z * at.input_rms * at.gain_out
    return _Own(
        towards=_Z * (a + b * one),
        square=a**2 + b**2 * (two + (_Z * one) ** 2) + 2 * _Z**2 * a * b * one,
        met=_Z * (a * at.ratio + b * (one * at.ratio + three / two * at.through)),
        of_w1=lengths[0] * _Z * at.input_rms,
        of_w2=a,
        second=lengths[0] * lengths[1] * _Z * at.input_rms * math.sqrt(two) * (at.gain_out != 0),  # no sign of 0
        share=_Z**4,
    )


def _of_gradients(at: _Sublayer, lengths: tuple[float, float]) -> _Own:
    """lengths: of W1's step along u, beside phi' g, and of W2's along phi, beside z."""
    _, two, _, four, six = at.slopes
    a, b = lengths[1] * at.second, lengths[0] * at.input_rms**2 * at.gain_out**2
    return _Own(
        towards=a + b * two,
        square=a**2 + 2 * a * b * two + b**2 * (two**2 + four),
        met=a * at.ratio + b * (two * at.ratio + four / two * at.through),
        of_w1=lengths[0] * at.input_rms**2 * at.gain_out,
        of_w2=a,
        second=lengths[0] * lengths[1] * at.input_rms**3 * at.gain_in * at.gain_out * math.sqrt(six),
        share=four**2 / (two * six),
    )


def _lengths(functional: Functional, at: _Sublayer, gradient: float) -> tuple[float, float]:
    """Of W1's step and of W2's, as ``_Own`` is made of them. gradient: |z| at what W2 makes."""
    match functional:
        case Functional.L1:
            return 1.0, 1.0
        case Functional.RMS_L1:
            return at.gain_in / math.sqrt(at.live[0]), at.gain_out / math.sqrt(at.live[1])
        case Functional.FROBENIUS_SQUARED:
            return gradient, gradient
    of_one = 1 / (at.gain_out * math.sqrt(at.slopes[1]) * at.input_rms), 1 / math.sqrt(at.second)
    return of_one if functional is Functional.NUCLEAR else (of_one[0] * at.gain_in, of_one[1] * at.gain_out)


def _walk(setting: Setting, num_sublayers: int, w: Sequence[float] | None, v: Sequence[float] | None) -> FirstStep:
    sublayers, functional = _sublayers(setting, num_sublayers, w, v), setting.functional
    rate = float(setting.lr_multiplier.subs(L, num_sublayers))
    has_signs = functional in (Functional.L1, Functional.RMS_L1)
    gradients = [1 / math.sqrt(sublayers[-1].stream) if setting.scheme.stack.placement.final else 1.0]
    for at in reversed(sublayers):
        gradients.append(gradients[-1] * math.sqrt(at.ratio))
    square = coherent = first_square = 0.0
    owns, arrived, squares = [], [], []
    signs: list[tuple[float, float]] = []  # of each sublayer below what is left of its signs, and the cosine of its z
    for at, gradient in zip(sublayers, gradients[-2::-1], strict=True):
        own = (_of_signs if has_signs else _of_gradients)(at, _lengths(functional, at, at.branch * gradient))
        moved, length = at.branch * rate, math.sqrt(at.ratio)
        arrived.append((square, coherent))
        met = coherent * own.met / length
        if has_signs:
            signs = [(at.past * left, at.past / length * cosine) for left, cosine in signs]
            met += _Z**2 * own.of_w2 * sum(left * (math.asin(min(1.0, cosine)) - cosine) for left, cosine in signs)
            signs.append((moved * own.of_w2, 1.0))
        square = at.ratio * (square - coherent**2) + at.carried * coherent**2 + moved**2 * own.square + 2 * moved * met
        squares.append(square)
        coherent = length * coherent + moved * own.towards
        first_square += moved**2 * own.square
        owns.append(own)
    has_final, last = setting.scheme.stack.placement.final, sublayers[-1].stream
    has_bend = any(side.has(u) for side in setting.activation.sides(is_slope=True))
    is_bent = has_bend or any(at.is_normed for at in sublayers)
    steps = [_Step(*step, rate, _Z if has_signs else 1.0) for step in zip(sublayers, owns, arrived, strict=True)]
    return FirstStep(
        representation=math.sqrt(square / last),
        logit=coherent * gradients[0],
        hidden=Orders(
            math.sqrt(square / last if has_final else square),
            _half(lambda: _hidden(steps, squares, has_final=has_final))
            if is_bent or sublayers[0].placement.names
            else None,
            is_bent=True,
        ),
        block=Orders(
            math.sqrt(first_square / num_sublayers),
            _half(lambda: _bent_blocks(steps)) if is_bent else _blocks(steps, has_final=has_final),
            is_bent,
        ),
    )


class _Step(NamedTuple):
    """Of one sublayer. arrived: of what the lower sublayers have moved, its square and what of it is along the
    gradient, per entry. cosine: of W2's step with its gradient."""

    at: _Sublayer
    own: _Own
    arrived: tuple[float, float]
    rate: float
    cosine: float

    def bent(self, second: tuple[float, float], *, is_alone: bool = False) -> tuple[float, float]:
        """What moves behind the sublayer to second order, as its product with the stream and its square: twice that,
        which is a second derivative. second: the same before it. is_alone: where the sublayer's own step moves, and
        nothing before it."""
        at, own, rate, bends = self.at, self.own, self.rate, self.at.bends
        square, coherent = (0.0, 0.0) if is_alone else self.arrived
        into = _normed(*second, square, at.before) if at.placement.has_pre else second
        toward, whole = into[0] / at.before, into[1] / at.before  # of u, over the square of u
        read = at.input_rms**2 / at.before
        # T = signs sign(phi' g) + along phi' g + what is independent of both, and its mean square and fourth power
        along = read * coherent * at.branch * at.gain_in**2 * at.gain_out / math.sqrt(at.ratio)
        signs, along = (rate * own.of_w1, along) if self.cosine < 1 else (0.0, along + rate * own.of_w1)
        rest = at.gain_in**2 * read * square
        two = signs**2 + rest, 2 * _Z * signs * along, along**2
        four = (
            signs**4 + 6 * signs**2 * rest + 3 * rest**2,
            4 * _Z * signs * along * (signs**2 + 3 * rest),
            6 * along**2 * (signs**2 + rest),
            8 * _Z * signs * along**3,
            3 * along**4,
        )
        centre = _dot(bends.bend, two) + toward * bends.by_h[0] if bends.is_centred else 0.0
        others = (whole - toward**2) * (at.gain_in * at.input_rms) ** 2 * bends.one[2]
        whole = _dot(bends.bend_square, four) + 2 * toward * _dot(bends.bend_slope_h, two)
        whole += toward**2 * bends.by_h[2] + others - centre**2
        toward = _dot(bends.phi_bend, two) + toward * bends.by_h[1]
        moved = _dot(bends.one[2:], two)
        if at.placement.inner:
            toward, whole = _normed(toward, whole, moved)
        reached, of_w2 = at.gain_out * (signs * _Z * bends.one[1] + along * bends.one[2]), rate * own.of_w2
        moved = of_w2**2 + 2 * self.cosine * of_w2 * reached + reached**2 + at.gain_out**2 * moved
        toward, whole = at.gain_out**2 * toward, at.gain_out**2 * whole
        if at.placement.branch:
            toward, whole = _normed(toward, whole, moved, at.gain_out**2 * at.second)
        toward, whole = (
            at.past**2 * old + at.branch**2 * new for old, new in zip(second, (toward, whole), strict=True)
        )
        return toward, whole


def _dot(means: Sequence[float], weights: Sequence[float]) -> float:
    return sum(mean * weight for mean, weight in zip(means, weights, strict=True))


def _normed(toward: float, whole: float, moved: float, square: float = 1.0) -> tuple[float, float]:
    """Behind a norm, before its division, of what moves to second order: its product with the norm's input, and its
    square. moved: the square of what moves to first order; square: of the input."""
    return -moved, whole + (moved**2 - toward**2) / square


def _half(square: Callable[[], float]) -> float | None:
    """The second order, of the square of a second derivative; None beyond the floats."""
    try:
        whole = square()
    except OverflowError:
        return None
    return math.sqrt(max(whole, 0.0)) / 2 if math.isfinite(whole) else None


def _hidden(steps: Sequence[_Step], squares: Sequence[float], *, has_final: bool) -> float:
    """squares: of what moves behind each sublayer."""
    second = 0.0, 0.0
    for step, square in zip(steps, squares, strict=True):
        second = step.bent(second)
        if step.at.placement.post:
            second = _normed(*second, square)
    last = steps[-1].at.stream
    return _normed(*second, squares[-1], last)[1] / last if has_final else second[1]


def _bent_blocks(steps: Sequence[_Step]) -> float:
    """The mean over sublayers."""
    total = 0.0
    for step in steps:
        second = step.bent((0.0, 0.0), is_alone=True)
        if step.at.placement.post:
            second = _normed(*second, (step.at.branch * step.rate) ** 2 * step.own.square)
        total += second[1]
    return total / len(steps)


def _blocks(steps: Sequence[_Step], *, has_final: bool) -> float:
    """The mean over networks of its root mean square over sublayers."""
    along = 1 / steps[-1].at.stream if has_final else 0.0  # what norms take of z, per unit of it and of what is added
    squares = []
    for at, own, _, rate, _ in reversed(steps):
        squares.append((at.branch * rate**2 * own.second) ** 2 * (1 - own.share * at.added * along))
        along = (at.past**2 * along + at.projected) / at.ratio
    return _mean_length(squares) / math.sqrt(len(squares))


def _mean_length(variances: Sequence[float]) -> float:
    """Of a vector of independent Gaussians: E sqrt(S) is the integral of (1 - E e^(-t S)) t^(-3/2) over t > 0 over
    2 sqrt(pi), by the trapezoidal rule in log t, whose error at this step is below rounding.

    >>> import math
    >>> from depthlaw.theory.meanfield.first_step import _mean_length
    >>> round(_mean_length([4.0]) ** 2, 9), round(8 / math.pi, 9), round(_mean_length([1.0, 1.0]) ** 2, 9)
    (2.546479089, 2.546479089, 1.570796327)
    """
    if not (whole := sum(variances)):
        return 0.0
    shares = Counter(variance / whole for variance in variances)
    step, total = 0.5, 0.0
    for index in range(-150, 151):
        t = math.exp(step * index)
        missing = -math.expm1(-sum(count * math.log1p(2 * t * share) for share, count in shares.items()) / 2)
        total += missing / math.sqrt(t)
    return math.sqrt(whole) * total * step / (2 * math.sqrt(math.pi))
