"""The statement about weighted tokens: how long an average of tokens is, exactly and by real attention.

Nothing here reads ``theory``. Letters: T and S tokens, D width, R runs (seeds).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from sympy import Expr, Integer, Rational, S, Symbol, expand, symbols

from depthlaw.paper_checks.claims.claim import Check, Route
from depthlaw.paper_checks.claims.statements import Changeable
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.search import search


@dataclass(frozen=True, kw_only=True)
class Average(Changeable):
    """low <= |sum_j p_j x_j|^2 / |x|^2 <= high for tokens of one length and weights p.

    Among all sets of tokens whose cosines are at least ``min_cosine`` and whose effective number 1 / sum_j p_j^2 is at
    most ``max_tokens`` (None: any). low None: some number over 0, the same for all.
    """

    min_cosine: Expr = S.NegativeOne
    max_tokens: int | None = None
    low: Expr | None = None
    high: Expr = S.One

    def meets(self, min_cosine: float, num_effective: float) -> bool:
        return min_cosine >= self.min_cosine and (self.max_tokens is None or num_effective <= self.max_tokens)

    def allows(self, square: Any) -> bool:
        return (square > 0 if self.low is None else square >= self.low) and square <= self.high

    @property
    def text(self) -> str:
        low = "c" if self.low is None else str(self.low)
        where = [] if self.min_cosine == -1 else [f"cosines of at least {self.min_cosine}"]
        where += [] if self.max_tokens is None else [f"1/sum p_j^2 of at most {self.max_tokens}"]
        some = " with some c > 0" if self.low is None else ""
        of = " and ".join(where) or "any tokens, any p"
        return f"{low} <= |sum p_j x_j|^2 / |x|^2 <= {self.high}{some} for {of}"


def least_average(statement: Average) -> Expr:
    """The least of p^T C p: rho + (1 - rho)/n, or 0; n = 1 / sum p_j^2 at most, cosines rho at least.

    p^T C p - rho - (1 - rho) sum p_j^2 = sum over i != j of p_i p_j (C_ij - rho) >= 0, and equal cosines rho attain it
    as long as there are such tokens; beyond that (rho < 0) tokens that add up to 0 do.
    """
    share = Integer(0) if statement.max_tokens is None else Rational(1, statement.max_tokens)
    least = statement.min_cosine + (1 - statement.min_cosine) * share
    return least if least > 0 else Integer(0)


@cache
def _identity() -> bool:
    """The identity of ``least_average`` for four tokens of any cosines and weights that sum to one."""
    rho = Symbol("rho", real=True)
    p = list(symbols("p1:4", positive=True))
    p.append(1 - sum(p))
    cosines = {(i, j): Symbol(f"c{i}{j}", real=True) for i in range(4) for j in range(i)}
    pairs = [(p[i] * p[j], c) for (i, j), c in cosines.items()]
    squares = sum(x**2 for x in p)
    whole = squares + 2 * sum(pp * c for pp, c in pairs)
    rest = 2 * sum(pp * (c - rho) for pp, c in pairs)
    return expand(whole - rho - (1 - rho) * squares - rest) == 0


class Case(NamedTuple):
    """Tokens of zero mean and unit variance with entries +-1: rows of a Hadamard matrix, with a part in common.

    rows, signs: by token. common: whether one half of each is the same for all (cosines 1/2 for 0, 0 for -1).
    """

    size: int
    rows: tuple[int, ...]
    signs: tuple[int, ...]
    weights: tuple[int, ...]
    common: bool

    def tokens(self) -> list[list[int]]:
        shared = [1, -1] * (self.size // 2) if self.common else []
        return [
            [*(sign * (-1) ** (row & column).bit_count() for column in range(self.size)), *shared]
            for row, sign in zip(self.rows, self.signs, strict=True)
        ]


def _cases() -> Any:
    """Two opposite tokens, small sets at random, and large ones of different rows and equal weights."""
    from hypothesis import strategies as st

    @st.composite
    def small(draw: Any) -> Case:
        size = 2 ** draw(st.integers(1, 4))
        token = st.tuples(st.integers(1, size - 1), st.sampled_from((1, -1)), st.integers(1, 9))
        rows, signs, weights = zip(*draw(st.lists(token, min_size=1, max_size=6)), strict=True)
        return Case(size, rows, signs, weights, draw(st.booleans()))

    @st.composite
    def large(draw: Any) -> Case:
        size = 2 ** draw(st.integers(2, 6))
        count = draw(st.integers(1, size - 1))
        return Case(size, tuple(range(1, count + 1)), (1,) * count, (1,) * count, draw(st.booleans()))

    opposite = Case(size=2, rows=(1, 1), signs=(1, -1), weights=(1, 1), common=False)
    return st.one_of(st.just(opposite), small(), large())


@cache
def _facts(case: Case) -> tuple[Fraction, float, float]:
    """|average|^2/|x|^2, the least cosine, and the effective number of tokens."""
    import numpy as np

    x_TD = np.array(case.tokens(), dtype=float)  # whole numbers, far under 2^53
    p_T, length = np.array(case.weights, dtype=float), x_TD.shape[1]
    average = p_T @ x_TD
    square = Fraction(int(average @ average), int(p_T.sum()) ** 2 * length)
    return square, float((x_TD @ x_TD.T).min()) / length, int(p_T.sum()) ** 2 / int(p_T @ p_T)


@check(
    Route.PROOF,
    "p^T C p >= rho + (1 - rho) sum p_j^2, attained at equal cosines rho, or by tokens that add up to 0",
    steps=lambda: ("p^T C p - rho - (1 - rho) sum_j p_j^2 = sum_{i != j} p_i p_j (C_ij - rho)",),
)
def _by_identity(s: Average) -> list[bool | None]:
    """One token alone attains 1, the most (the triangle inequality)."""
    return [_identity(), s.allows(least_average(s)) and s.allows(Integer(1))]


def average_checks(id_: str, command: str = "") -> tuple[Check, ...]:
    """By an identity in the cosines; by a search over exact tokens, whose counterexample ``explain ID`` shows.

    command: what shows two opposite tokens, where it was these.
    """

    def searched(s: Average) -> Answers:
        def holds(case: Case) -> bool | None:
            square, cosine, num_effective = _facts(case)
            return s.allows(square) if s.meets(cosine, num_effective) else None

        result = search(_cases(), holds, max_examples=50)
        case: Case | None = result.found
        example: dict[str, Any] | None = None
        if case is not None:
            square, num_tokens = _facts(case)[0], len(case.rows)
            example = {
                "printed": s.text,
                "found": f"|sum p_j x_j|^2 / |x|^2 = {square} of {num_tokens} tokens of mean 0 and variance 1",
                "tokens": case.tokens()[:4],
                "weights": [str(Fraction(weight, sum(case.weights))) for weight in case.weights][:4],
                "command": command if command and square == 0 else f"depthlaw explain {id_}",
            }
        return Answers(holds=[case is None], num_effective=result.num_effective, counterexample=example)

    detail = "tokens with entries +-1 of mean 0 and variance 1, up to 63 of them, and weights, exactly"
    return _by_identity, check(Route.PROPERTY, detail, searched)
