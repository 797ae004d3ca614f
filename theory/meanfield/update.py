"""The mean field: the update of an FFN-only stack at one input, at any depth, and its leading order.

    >>> from depthlaw.theory.meanfield.update import predict
    >>> round(predict("pre-ln", "sgd", 8).update, 6)
    2.857937

Exact as the width goes to infinity; no constant is fitted. Three ways to the same number: ``recursion`` (layer by
layer, any gains), ``closedform`` (an expression in L), ``longsum`` (Euler-Maclaurin); tests hold them together.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from numbers import Real

import mpmath
from sympy import Expr, lambdify

from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.meanfield.closedform import ClosedForm, closed_form
from depthlaw.theory.meanfield.recursion import LONGEST, by_leap, by_recursion, prediction
from depthlaw.theory.meanfield.setting import Prediction, Setting
from depthlaw.theory.schemes import OWN, Scheme
from depthlaw.theory.symbols import L, l

MOST_SUBLAYERS = 10**12
MOST_DECADES = 15
"""Weights and gains lie between 10^-15 and 10^15."""
_DIGITS = 17


def predict(
    scheme: str | Scheme,
    optimizer: str,
    num_sublayers: int,
    *,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
) -> Prediction:
    """The update of a stack of FFN sublayers in one optimizer step, per unit learning rate, at infinite width.

    scheme: a name of ``theory.schemes.SCHEMES``, or a ``Scheme``.
    optimizer: a name of ``theory.optimizers.OPTIMIZERS``.
    num_sublayers: L, two to a layer, from the scheme's least to 10^12.
    activation: a name of ``theory.moments.ACTIVATIONS``.
    norm_kind: layernorm or rmsnorm.
    w, v: gains of W1 and W2 by sublayer, in place of the scheme's own, each of length L.

    Assumes the network of the theorems: square matrices of independent Gaussians, one Gaussian input, one logit read.
    The unit is the power of the width that makes the update O(1), another for each optimizer: do not compare numbers of
    two. ValueError, in one line, where a name is unknown, a count is out of range, a list does not fit, or the gains
    take the second moments out of the range of floats.

    >>> from depthlaw.theory.meanfield.update import predict
    >>> found = predict("post-ln", "sgd", 64)
    >>> round(found.update, 4), round(found.roles["fc1"], 4)
    (42.6667, 21.3333)
    >>> [round(predict("deepnorm", "sgd", count).update, 4) for count in (8, 64, 10**9)]
    [0.4973, 0.4999, 0.5]
    >>> round(predict("pre-ln", "sgd", 4, w=[1, 3, 9, 27], v=[1, 3, 9, 27]).update, 4)
    0.908
    >>> predict("deepnet", "sgd", 64)
    Traceback (most recent call last):
        ...
    ValueError: unknown scheme 'deepnet'; did you mean deepnorm...
    """
    setting = Setting.of(scheme, optimizer, activation, norm_kind)
    return predict_setting(setting, num_sublayers, w=w, v=v)


def predict_setting(
    setting: Setting, num_sublayers: int, *, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> Prediction:
    """``predict`` for a setting that is already made: the same numbers, arguments and errors.

    >>> from depthlaw.theory.meanfield.update import predict_setting
    >>> from depthlaw.theory.meanfield.setting import Setting
    >>> setting = Setting.of("pre-ln", "adam", "gelu", "rmsnorm")
    >>> [round(predict_setting(setting, count).update, 3) for count in (4, 16, 64)]
    [1.902, 5.524, 13.719]
    """
    check_num_sublayers(setting.scheme, num_sublayers)
    check_letters(setting.scheme, num_sublayers)
    for name, gains in (("w", w), ("v", v)):
        if gains is not None:
            check_gains(name, gains, num_sublayers)
    is_short = num_sublayers <= LONGEST // 50
    # A closed form of numbers of one's own can have thousands of digits, and take minutes to write.
    if w is not None or v is not None or (is_short and setting.scheme.source == OWN):
        return _by_recursion(setting, num_sublayers, w=w, v=v)
    form = cached_closed_form(setting)
    if form is not None:
        return from_closed_form(setting, form, num_sublayers)
    if is_short:
        return _by_recursion(setting, num_sublayers)
    return by_leap(setting, num_sublayers)


def _by_recursion(setting: Setting, num_sublayers: int, **gains: Sequence[float] | None) -> Prediction:
    """``by_recursion``; ValueError where gains are so large or small that the moments themselves are no floats."""
    try:
        walked = by_recursion(setting, num_sublayers, **gains)
        if walked.log10_update < math.inf and not math.isnan(walked.update):
            return walked
    except (OverflowError, ZeroDivisionError):
        pass
    raise ValueError("with these gains the second moments leave the range of floating-point numbers")


def check_letters(scheme: Scheme, num_sublayers: int) -> None:
    """Refuse a scheme whose weights or gains, at this count, lie outside what the moments are computed for."""
    stack = scheme.stack
    letters = {
        "residual weight": stack.residual_weight,
        "branch weight": stack.branch_weight,
        "gain": stack.gain_in,
        "output gain": stack.gain_out,
    }
    for name, letter in letters.items():
        if letter is not None and not letter.is_positive and scheme.source == OWN:
            _check_signs(name, letter, num_sublayers)
        if letter is None or letter.is_zero or letter.has(l) or not letter.has(L):
            continue
        size = float(mpmath.log10(evaluate(letter, {L: num_sublayers}, 6)))
        if abs(size) > MOST_DECADES:
            raise ValueError(
                f"the {name} at {num_sublayers} sublayers is 10^{size:.4g}; allowed are 10^-{MOST_DECADES} to "
                f"10^{MOST_DECADES}"
            )


def _check_signs(name: str, letter: Expr, num_sublayers: int) -> None:
    """Refuse a law of one's own that is not positive at some sublayer; of more than 20,000, at an end."""
    law = lambdify(l, letter.subs(L, num_sublayers), "math")
    ends = (1, num_sublayers)
    for index in range(1, num_sublayers + 1) if letter.has(l) and num_sublayers <= LONGEST // 50 else ends:
        try:
            size = law(index)
        except (ValueError, ArithmeticError):
            size = math.nan
        if isinstance(size, complex) or not 0 < size < math.inf:
            at = f"at sublayer {index} of {num_sublayers}" if letter.has(l) else f"at {num_sublayers} sublayers"
            shown = "no real number" if isinstance(size, complex) or math.isnan(size) else f"{size:.4g}"
            raise ValueError(f"the {name} {at} is {shown}; a weight or gain is a positive number")


def check_num_sublayers(scheme: Scheme, num_sublayers: int) -> None:
    """Refuse counts that are not whole numbers from the scheme's least to MOST_SUBLAYERS."""
    if not isinstance(num_sublayers, int) or isinstance(num_sublayers, bool):
        raise ValueError(f"num_sublayers must be a whole number, not {num_sublayers!r}")
    least = scheme.min_sublayers
    if not least <= num_sublayers <= MOST_SUBLAYERS:
        why = f" ({scheme.name} is not defined below)" if least > 1 and num_sublayers >= 1 else ""
        raise ValueError(f"num_sublayers {num_sublayers} is out of range: {least} to {MOST_SUBLAYERS}{why}")


def check_gains(name: str, gains: Sequence[float], num_sublayers: int) -> None:
    """Refuse lists of the wrong length, and gains that are not positive finite numbers."""
    if len(gains) != num_sublayers:
        raise ValueError(f"{name} has {len(gains)} gains for {num_sublayers} sublayers; one per sublayer is wanted")
    for index, gain in enumerate(gains, start=1):
        is_number = isinstance(gain, Real) and not isinstance(gain, bool)
        if not (is_number and 0 < gain <= sys.float_info.max):
            raise ValueError(f"{name} of sublayer {index} is {gain}; gains are positive finite numbers")


def cached_closed_form(setting: Setting) -> ClosedForm | None:
    """``closed_form``, remembered: sympy takes tens of milliseconds to make one."""
    return _closed_form(setting)


@functools.lru_cache(maxsize=8192)
def _closed_form(setting: Setting) -> ClosedForm | None:
    return closed_form(setting)


def from_closed_form(setting: Setting, form: ClosedForm, num_sublayers: int) -> Prediction:
    """Evaluate the expressions at one L to double precision, whatever cancels on the way."""
    values = {role: evaluate(expr, {L: num_sublayers}, _DIGITS) for role, expr in form.roles.items()}
    biggest = max((abs(value) for value in values.values()), default=mpmath.mpf(0))
    exponent = float(mpmath.log(biggest)) if biggest > mpmath.mpf(10) ** 300 else 0.0
    scaled = {role: float(value / mpmath.exp(exponent)) for role, value in values.items()}
    return prediction(setting, num_sublayers, scaled, exponent)
