"""What a step of signs does to the stream itself: how far the last hidden state moves, and a block's second order.

Of pre-norm and norm-free stacks of FFNs, phi of slopes p and n. With z the gradient that reaches a sublayer, over its
length per entry, and g = W2^T z, a step moves what W1 and W2 make of an input of scale c by ::

    first:  sign(z) E|phi| d  +  W2 (|phi'| sign g) E|c u| d        second:  sign(z) <sign(phi), |phi'| sign g> E|c u| d

times the branch weight and the learning rate. Given g, W2 is z g^T / |z|^2 beside what is independent of z; W1 is so
given phi' g. What the layers below have moved arrives along the gradient, as ``coherent``, and in all other directions.
On the path past the branches the signs of z stay signs, of which two whose z have a cosine of c agree as asin(c), not
as c. The product of signs in the second order is a Gaussian number of each network, which is smaller where norms let
through less of z along what the branch adds: its cosine with <phi, g> is E|z|^2 = 2/pi.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from depthlaw.theory.meanfield.recursion import letters_of
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.optimizers import Functional
from depthlaw.theory.symbols import L, u

MOST = 2000
"""Sublayers: each meets the steps of all below it."""
_Z = math.sqrt(2 / math.pi)
"""E|z|."""


@dataclass(frozen=True, kw_only=True)
class StepOfSigns:
    """Per unit learning rate (its square, where it is second), in units of a power of the width.

    representation: of the last hidden state, the root mean square of its change over its own, in units of d.
    logit: how far one logit moves, in units of d^(3/2): the update. block_first, block_second: root mean square over
    sublayers of what a sublayer's own step adds to the stream, in units of d and d^(3/2); of the second, whose sizes
    are Gaussian numbers of each network, the mean over networks.
    """

    representation: float
    logit: float
    block_first: float
    block_second: float


def step_of_signs(
    setting: Setting, num_sublayers: int, *, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> StepOfSigns | None:
    """At infinite width. None where it is not derived: other optimizers, gated FFNs, norms behind or within a branch,
    weights that depend on the stream, activations that bend elsewhere than at 0, above ``MOST`` sublayers, and beyond
    the floats.

    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> from depthlaw.theory.meanfield.step_of_signs import step_of_signs
    >>> [round(step_of_signs(Setting.of("depth-mup", "adam"), number).representation, 3) for number in (8, 800)]
    [0.67, 0.66]
    """
    stack, sides = setting.scheme.stack, setting.activation.sides(is_slope=True)
    placement = stack.placement
    is_plain = stack.even is stack.early is None and not (stack.has_second_stream or stack.norm_function)
    has_more = placement.inner or placement.branch or placement.post or stack.residual_weight is None
    is_known = setting.functional is Functional.L1 and is_plain and not (has_more or setting.gated)
    if not is_known or num_sublayers > MOST or any(side.has(u) for side in sides):
        return None
    try:
        return _walk(setting, num_sublayers, [abs(float(side)) for side in sides], w, v)
    except (OverflowError, ZeroDivisionError):
        return None


def _walk(
    setting: Setting,
    num_sublayers: int,
    slopes: Sequence[float],
    w: Sequence[float] | None,
    v: Sequence[float] | None,
) -> StepOfSigns:
    stack, placement = setting.scheme.stack, setting.scheme.stack.placement
    one, two, three, four = (sum(slope**power for slope in slopes) / 2 for power in (1, 2, 3, 4))
    letters, rate = letters_of(stack, num_sublayers, w, v), float(setting.lr_multiplier.subs(L, num_sublayers))
    stream = float(stack.embedding_scale.subs(L, num_sublayers)) ** 2
    square = coherent = first_square = 0.0
    second_squares: list[float] = []
    passed: list[tuple[float, float, float, float]] = []  # of each sublayer: see the way back
    signs: list[tuple[float, float]] = []  # of each sublayer below what is left of its signs, and the cosine of its z
    for index in range(1, num_sublayers + 1):
        a, b, c, gain_in, gain_out = letters(index)
        assert a is not None
        before, slope_before = (1.0, 1 / stream) if placement.has_pre else (stream, 1.0)
        size = _Z * c * math.sqrt(before)  # E|c u|
        phi = gain_in * size * one  # E|phi|
        through_branch = (b * gain_out * gain_in * c) ** 2 * two * slope_before
        ratio = a**2 + through_branch
        length = math.sqrt(ratio)
        towards = _Z * (phi + size * gain_out * one)
        crossed = _Z * size * gain_out * (one * a**2 + three / two * through_branch) / length
        signs = [(a * left, a / length * cosine) for left, cosine in signs]
        agreed = sum(left * (math.asin(min(1.0, cosine)) - cosine) for left, cosine in signs)
        met = coherent * (_Z * phi * length + crossed) + _Z**2 * phi * agreed
        first = phi**2 + (size * gain_out) ** 2 * (two + (_Z * one) ** 2) + 2 * _Z**2 * phi * size * gain_out * one
        moved = b * rate
        # The stream's own Jacobian J carries J^T z further than it does other directions.
        carried = (a**4 + 4 * a**2 * through_branch + (2 + four / two**2) * through_branch**2) / ratio
        square = ratio * (square - coherent**2) + carried * coherent**2 + moved**2 * first + 2 * moved * met
        coherent = length * coherent + moved * towards
        signs.append((moved * phi, 1.0))
        added = b**2 * gain_out**2 * (gain_in * c) ** 2 * before * two
        projected = through_branch / stream if placement.has_pre else 0.0
        stream = a**2 * stream + added
        passed.append((a**2, through_branch, projected, added))
        first_square += moved**2 * first
        second_squares.append((moved * rate * size) ** 2 * two)
    along = 1 / stream if placement.final else 0.0  # what norms take of z, per unit of it and of what is added
    for index in reversed(range(num_sublayers)):
        past, through_branch, projected, added = passed[index]
        second_squares[index] *= 1 - _Z**4 * added * along
        along = (past**2 * along + projected) / (past + through_branch)
    logit = coherent / math.sqrt(stream) if placement.final else coherent
    return StepOfSigns(
        representation=math.sqrt(square / stream),
        logit=logit,
        block_first=math.sqrt(first_square / num_sublayers),
        block_second=_mean_length(second_squares) / math.sqrt(num_sublayers),
    )


def _mean_length(variances: Sequence[float]) -> float:
    """Of a vector of independent Gaussians: E sqrt(S) is the integral of (1 - E e^(-t S)) t^(-3/2) over t > 0 over
    2 sqrt(pi), by the trapezoidal rule in log t, whose error at this step is below rounding.

    >>> import math
    >>> from depthlaw.theory.meanfield.step_of_signs import _mean_length
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
