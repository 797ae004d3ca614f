"""The letters that papers share, and update maps in them: what one entry of a matrix moves by, and the loss with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sympy import Abs, Expr, Integer, Rational, S, sign, sqrt, sympify

from theory.symbols import eta, scratch

g = scratch("g", real=True)
"""One entry of the gradient."""
sign_g = scratch("sign_g", real=True)
norm_g = scratch("norm_g", positive=True)
"""||g||, of the whole matrix."""
l1_g = scratch("l1_g", positive=True)
"""||g||_1."""
norm_theta = scratch("norm_theta", positive=True)
n = scratch("n", positive=True)
"""Entries of the matrix."""

_WORDS = (
    ("||theta||", "norm_theta"),
    ("||g||_1", "l1_g"),
    ("||g||", "norm_g"),
    ("sign(g)", "sign_g"),
    ("^", "**"),
)
_LETTERS = {str(letter): letter for letter in (g, sign_g, norm_g, l1_g, norm_theta, n, eta)}


def read_update(text: str) -> Expr:
    """A table's text for an update or a loss change (``-eta*||theta||*sign(g)``) as an expression in these letters."""
    for word, letter in _WORDS:
        text = text.replace(word, letter)
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    if not words <= {*_LETTERS, "sqrt"} or not re.fullmatch(r"[\w\s+\-*/().]+", text):
        raise ValueError(f"an update is written in {', '.join(_LETTERS)} and sqrt, not as {text!r}")
    return sympify(text, locals=_LETTERS)


# A gradient and a parameter of six entries each, both signs, no two of a size: enough to tell the maps apart.
GRADIENT = tuple(map(Rational, ("1/3", "-2", "5/7", "-1/11", "3", "-4/5")))
PARAMETER = tuple(map(Rational, ("-1/2", "4/3", "2", "-3/5", "1/7", "-6")))
_BETA1, _BETA2 = Rational(9, 10), Rational(999, 1000)


def norm(entries: Sequence[Expr]) -> Expr:
    """The root of the sum of squares."""
    return sqrt(sum((x**2 for x in entries), S.Zero))


def first_step(optimizer: str, gradient: Sequence[Expr], parameter: Sequence[Expr]) -> list[Expr]:
    """The first step from zero state, eps 0, no weight decay, learning rate 1, as the optimizers' papers print it."""
    if optimizer == "sgd":
        return [-x for x in gradient]
    m_hat = [(1 - _BETA1) * x / (1 - _BETA1) for x in gradient]
    v_hat = [(1 - _BETA2) * x**2 / (1 - _BETA2) for x in gradient]
    direction = [m / sqrt(v) for m, v in zip(m_hat, v_hat, strict=True)]
    if optimizer == "adam":
        return [-r for r in direction]
    if optimizer == "lamb":
        return [-norm(parameter) / norm(direction) * r for r in direction]
    raise ValueError(f"no optimizer {optimizer!r} here")


def entry_values(gradient: Sequence[Expr], parameter: Sequence[Expr], index: int) -> Mapping[Expr, Expr]:
    """The letters at one entry of a gradient and a parameter, learning rate 1."""
    return {
        g: gradient[index],
        sign_g: sign(gradient[index]),
        norm_g: norm(gradient),
        l1_g: sum((Abs(x) for x in gradient), S.Zero),
        norm_theta: norm(parameter),
        n: Integer(len(gradient)),
        eta: S.One,
    }


def step_agrees(optimizer: str, step: Expr, loss: Expr) -> list[bool]:
    """Whether a printed step and loss change are the optimizer's own: entry by entry, then <g, step>; exact."""
    moved = first_step(optimizer, GRADIENT, PARAMETER)
    answers = [
        (step.subs(entry_values(GRADIENT, PARAMETER, i)) - moved[i]).equals(0) is True for i in range(len(moved))
    ]
    change = sum((x * dx for x, dx in zip(GRADIENT, moved, strict=True)), S.Zero)
    return [*answers, (loss.subs(entry_values(GRADIENT, PARAMETER, 0)) - change).equals(0) is True]
