"""What a first step does to the stream itself: how far the last hidden state moves, and a block's second order.

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

The product in the second order is a Gaussian number of each network, which is smaller where norms let through less of
z along what the branch adds: its cosine with <phi, g> is known. Behind a norm within the branch, or behind the sum, the
norm's own second order is larger by a power of the width, and is not derived.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from depthlaw.theory.meanfield.recursion import letters_of
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.moments import Kind, evaluator, slope_power
from depthlaw.theory.optimizers import Functional
from depthlaw.theory.stack import NormKind
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
    update; but under LAMB the real step, whose signs are longer where some entries of a gradient are 0. block_first,
    block_second: root mean square over sublayers of what a sublayer's own step adds to the stream, in units of
    d^(p - 1/2) and d^(2p - 3/2); of the second, whose sizes are Gaussian numbers of each network, the mean over
    networks. None where it is not derived.
    """

    representation: float
    logit: float
    block_first: float
    block_second: float | None


def first_step(
    setting: Setting, num_sublayers: int, *, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> FirstStep | None:
    """At infinite width. None where it is not derived: gated FFNs, two streams, functions in the place of norms, above
    ``MOST`` sublayers, and beyond the floats.

    The second order is None, too, where a norm stands behind W1 or behind a sum, and of activations that bend elsewhere
    than at 0.

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
    stream's second moment, before a norm of the sum. stream: that moment behind all. normed: whether a norm stands
    within the branch, or behind the sum.
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
    stream: float
    normed: bool

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
                stream=1.0 if placement.post else behind,
                normed=placement.inner or placement.branch or placement.post,
            )
        )
        stream = sublayers[-1].stream
    return sublayers


class _Own(NamedTuple):
    """What a sublayer's own step does, before branch weight and rate, per entry. towards: along z. square: in all.
    met: along J J^T z, of its Jacobian J. of_w2: what of it W2's step is. second: the standard deviation of the second
    order, in units of sqrt(d) more; share: how much of its square what norms take along the branch can be."""

    towards: float
    square: float
    met: float
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
    owns: list[_Own] = []
    signs: list[tuple[float, float]] = []  # of each sublayer below what is left of its signs, and the cosine of its z
    for at, gradient in zip(sublayers, gradients[-2::-1], strict=True):
        own = (_of_signs if has_signs else _of_gradients)(at, _lengths(functional, at, at.branch * gradient))
        moved, length = at.branch * rate, math.sqrt(at.ratio)
        met = coherent * own.met / length
        if has_signs:
            signs = [(at.past * left, at.past / length * cosine) for left, cosine in signs]
            met += _Z**2 * own.of_w2 * sum(left * (math.asin(min(1.0, cosine)) - cosine) for left, cosine in signs)
            signs.append((moved * own.of_w2, 1.0))
        square = at.ratio * (square - coherent**2) + at.carried * coherent**2 + moved**2 * own.square + 2 * moved * met
        coherent = length * coherent + moved * own.towards
        first_square += moved**2 * own.square
        owns.append(own)
    has_second = not any(at.normed for at in sublayers) and not any(
        side.has(u) for side in setting.activation.sides(is_slope=True)
    )
    return FirstStep(
        representation=math.sqrt(square / sublayers[-1].stream),
        logit=coherent * gradients[0],
        block_first=math.sqrt(first_square / num_sublayers),
        block_second=_second(sublayers, owns, rate, has_final=gradients[0] != 1.0) if has_second else None,
    )


def _second(sublayers: Sequence[_Sublayer], owns: Sequence[_Own], rate: float, *, has_final: bool) -> float:
    """The mean over networks of its root mean square over sublayers."""
    along = 1 / sublayers[-1].stream if has_final else 0.0  # what norms take of z, per unit of it and of what is added
    squares = []
    for at, own in zip(reversed(sublayers), reversed(owns), strict=True):
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
