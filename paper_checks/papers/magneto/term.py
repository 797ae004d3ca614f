"""(13) of Magneto: one term of its bound beside the same term of Pre-LN's, where sublayer l explodes, w_l >> w_i."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sympy import Expr, Poly, Sum, cancel, lambdify, together

from paper_checks.claims.claim import Check, Claim, Evidence, Kind, Mutant, Part, Route
from paper_checks.claims.statements import Values
from paper_checks.papers.magneto.parts import n, v, w
from paper_checks.routes import algebra
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.search import prove
from theory.symbols import L, l, scratch

_V = Sum(v[n] ** 2, (n, 1, L))
_S = Sum(v[n] ** 2 * w[n] ** 2, (n, 1, L))
_WEIGHT = v[l] ** 2 + w[l] ** 2
_AT = (v, w, L, l)


_EQUALITY = Values.of(left=(1 + v[l] ** 2 / w[l] ** 2) / _V, right=_WEIGHT / (w[l] ** 2 * _V))


def _same_term(s: Values) -> list[bool | None]:
    """One over the other cancels to 1, each sum over n a letter of its own."""
    ratio = s["left"] / s["right"]
    letters = {total: scratch(f"total_{i}", positive=True) for i, total in enumerate(sorted(ratio.atoms(Sum), key=str))}
    return [bool(cancel(together(ratio.xreplace(letters))) == 1)]


def _same_term_exactly(s: Values) -> list[bool | None]:
    out: list[bool | None] = []
    for length in (1, 2, 4, 6):
        for index in range(1, length + 1):
            values = (*algebra.rational_gains(length, index), length, index)
            out.append(algebra.value_at(s["left"], _AT, values) == algebra.value_at(s["right"], _AT, values))
    return out


@dataclass(frozen=True, kw_only=True)
class TermOrder:
    """smaller <= larger, both a weight over one sum, where ``dominant`` (w or v) of sublayer l is the largest."""

    smaller: Expr
    larger: Expr
    dominant: str

    @property
    def text(self) -> str:
        hypothesis = f"where {self.dominant}_l >= {self.dominant}_i for all i" if self.dominant else "always"
        return f"{self.smaller} <= {self.larger} {hypothesis}"


_INEQUALITY = TermOrder(smaller=_WEIGHT / (w[l] ** 2 * _V), larger=_WEIGHT / _S, dominant="w")


def _in_summands(s: TermOrder) -> list[bool | None]:
    """For every L: denominator less denominator, summand by summand, w_l^2 being w_n^2 and something more."""
    summands = []
    for expr in (s.smaller, s.larger):
        (total,) = expr.atoms(Sum)
        letter = scratch("total", positive=True)
        factor = cancel(_WEIGHT / expr.xreplace({total: letter}) / letter)
        summands.append(factor * total.function)
    x = scratch("x", nonnegative=True)
    letters = {"w": {w[l] ** 2: w[n] ** 2 + x}, "v": {v[l] ** 2: v[n] ** 2 + x}, "": {}}[s.dominant]
    difference = (summands[0] - summands[1]).subs(letters).expand()
    return [True if difference == 0 or all(c > 0 for c in Poly(difference).coeffs()) else None]


class _Square:
    """A letter of z3 that stands for the square of what is written."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __pow__(self, power: int) -> Any:
        return {2: self.value, -2: 1 / self.value}[power]


def _by_z3(s: TermOrder) -> Evidence:
    """L = 2 and 3, l = 1 and L, over all positive reals; and that the hypothesis is needed."""
    import z3

    sides = [lambdify(_AT, expr, modules="math") for expr in (s.smaller, s.larger)]
    answers: list[bool | None] = []
    values: dict[str, str] = {}
    for length in (2, 3):
        squares = {name: [z3.Real(f"{name}{i}_squared") for i in range(1, length + 1)] for name in "vw"}
        lists = [[None, *map(_Square, squares[name])] for name in "vw"]
        positive = [x > 0 for of_one in squares.values() for x in of_one]
        for index in (1, length):
            order = sides[0](*lists, length, index) <= sides[1](*lists, length, index)
            of_one = squares.get(s.dominant, [])
            hypothesis = [of_one[index - 1] >= x for x in of_one]
            found = prove(z3.Implies(z3.And(*positive, *hypothesis), order))
            answers.append(found.is_valid)
            values = values or dict(found.values)
    return Evidence(
        route=Route.PROOF,
        num_effective=sum(answer is not None for answer in answers),
        verdict=outcome(all_of(answers)),
        detail="z3, L = 2 and 3, l = 1 and L, over all positive reals",
        steps=("exactly where sum_n v_n^2 (w_n^2 - w_l^2) <= 0", "so w_l >= w_i for all i is enough, >> is not needed"),
        counterexample=None
        if False not in answers
        else {"printed": "<=", "found": "a larger left side", "command": "depthlaw explain S2-16", **values},
    )


def term_step(id_: str, source: str, locator: str, quote: str) -> Claim:
    return Claim(
        id=id_,
        kind=Kind.STEP,
        source=source,
        locator=locator,
        quote=quote,
        summary="(13): (1 + v_l^2/w_l^2)/V_L = (v_l^2 + w_l^2)/(w_l^2 V_L) <= (v_l^2 + w_l^2)/S_L, w_l >> w_i",
        parts=(
            Part(
                name="the equality",
                statement=_EQUALITY,
                checks=(
                    check(Route.PROOF, "the ratio cancels to 1", _same_term, is_direct=True),
                    check(Route.PROPERTY, "exactly at rational gains, L to 6", _same_term_exactly, is_direct=True),
                ),
                mutants=(
                    Mutant(name="w_l for w_l^2", statement=_EQUALITY.with_(right=_WEIGHT / (w[l] * _V))),
                    Mutant(name="v_l^2 below", statement=_EQUALITY.with_(right=_WEIGHT / (v[l] ** 2 * _V))),
                ),
            ),
            Part(
                name="the inequality",
                statement=_INEQUALITY,
                checks=(
                    Check(route=Route.PROOF, run=_by_z3, is_direct=True),
                    check(
                        Route.PROPERTY,
                        "for every L, summand by summand; then at rational gains",
                        lambda s: [*_in_summands(s), *_order_exactly(s)],
                        is_direct=True,
                    ),
                ),
                mutants=(
                    Mutant(name="no hypothesis", statement=replace(_INEQUALITY, dominant="")),
                    Mutant(name="v_l the largest", statement=replace(_INEQUALITY, dominant="v")),
                    Mutant(
                        name="the sides swapped",
                        statement=replace(_INEQUALITY, smaller=_INEQUALITY.larger, larger=_INEQUALITY.smaller),
                    ),
                ),
            ),
        ),
    )


def _order_exactly(s: TermOrder) -> Iterator[bool | None]:
    """At rational gains that meet the hypothesis."""
    for length in (2, 4, 6):
        for case in range(6):
            gains = dict(zip("vw", algebra.rational_gains(length, case), strict=True))
            for index in range(1, length + 1):
                of_one = gains.get(s.dominant, [])
                if of_one and of_one[index - 1] < max(of_one):
                    continue
                values = (gains["v"], gains["w"], length, index)
                yield algebra.value_at(s.smaller, _AT, values) <= algebra.value_at(s.larger, _AT, values)


_S2_16 = term_step(
    "S2-16",
    "magneto",
    "Section 3.2, (13)",
    "1 + v2\nl\nw2\nl\nPL\nn=1 v2\nn\n=v2\nl+w2\nl\nw2\nlPL\nn=1 v2\nnv2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn\n, "
    "wlwi, i 6=l(13)",
)

CLAIMS: tuple[Claim, ...] = (_S2_16,)
