"""The cells that the sources print, typed apart from the code that derives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hypothesis import strategies as st
from sympy import Expr, Rational, S, log, sqrt

from theory.rules.magnitude import tidy
from theory.rules.selection import Member
from theory.rules.solve import SideNumbers, SideRule, solve_rule
from theory.symbols import M, N

quarter, half = Rational(1, 4), Rational(1, 2)
NM = N**4 * M


def same(one: Expr | None, other: Expr) -> bool:
    """Whether two positive expressions are equal; nothing equals an absent one."""
    return one is not None and tidy(one / other) == 1


def gain_of(side: SideRule | Member) -> Expr:
    """The gain, where there is one."""
    gain = side.gain if isinstance(side, SideRule) else side.init_gain
    assert gain is not None
    return gain


def gains_of(side: SideRule) -> Mapping[str, Expr]:
    """The gains by role, where there are any."""
    assert side.init_gain is not None
    return side.init_gain


def role(numbers: SideNumbers, name: str) -> float:
    """The gain of one role in numbers."""
    assert numbers.init_gain is not None
    return numbers.init_gain[name]


# (norm, optimizer, architecture, side, select) -> (alpha, gain), as the sources print them
PRINTED = {
    # S1: the table, the Pre-Norm remark, alternatives 1 and 2
    ("post", "sgd", "encoder", "encoder", None): ((2 * N) ** quarter, (2 * N) ** -quarter),
    ("post", "adam", "encoder", "encoder", None): ((2 * N) ** half, (2 * N) ** -half),
    ("post", "lamb", "encoder", "encoder", None): (S.One, (2 * N) ** -half),
    ("pre", "sgd", "encoder", "encoder", None): (S.One, (2 * N) ** -half),
    ("pre", "adam", "encoder", "encoder", None): (S.One, (2 * N) ** -1),
    ("pre", "lamb", "encoder", "encoder", None): (S.One, (2 * N) ** -half),
    ("post", "sgd", "encoder", "encoder", "alpha-one"): (S.One, (2 * N) ** -half),
    ("post", "sgd", "encoder", "encoder", "relative"): (S.One, (2 * N) ** -half),
    ("post", "sgd", "encoder", "encoder", "lambda-one"): ((2 * N) ** half, S.One),
    ("post", "adam", "encoder", "encoder", "relative"): (2 * N, S.One),
    # DN: the four rows, with the exact constants behind 0.81 and 0.87
    ("post", "sgd", "encoder", "encoder", "deepnet"): ((2 * N) ** quarter, (8 * N) ** -quarter),
    ("post", "sgd", "decoder", "decoder", "deepnet"): ((2 * M) ** quarter, (8 * M) ** -quarter),
    ("post", "sgd", "encoder-decoder", "decoder", "deepnet"): ((3 * M) ** quarter, (12 * M) ** -quarter),
    ("post", "sgd", "encoder-decoder", "encoder", "deepnet"): (
        (NM / 27) ** Rational(1, 16),
        (NM / 27) ** Rational(-1, 16) / sqrt(2),
    ),
    # S2-03: gamma
    ("sub", "sgd", "encoder", "encoder", None): (S.One, sqrt(log(2 * N))),
    ("sub", "sgd", "decoder", "decoder", None): (S.One, sqrt(log(2 * M))),
    ("sub", "sgd", "encoder-decoder", "decoder", None): (S.One, sqrt(log(3 * M))),
    ("sub", "sgd", "encoder-decoder", "encoder", None): (S.One, sqrt(Rational(1, 3) * log(3 * M) * log(2 * N))),
}
CELLS = sorted(PRINTED, key=str)


def solved(key: tuple[str, str, str, str, str | None]) -> tuple[Expr, Expr]:
    norm, optimizer, architecture, side, select = key
    found = solve_rule(norm, optimizer, architecture, select, with_alternatives=False).side(side)
    return found.residual_weight, found.gain


def wrong_cells(printed: dict) -> list:
    return [key for key, cell in printed.items() if not all(map(same, solved(key), cell))]


degrees = st.fractions(min_value=0, max_value=3, max_denominator=4)


@dataclasses.dataclass(frozen=True)
class Degrees:
    gradient_degree: Rational
    parameter_degree: Rational
    name: str = "any"
