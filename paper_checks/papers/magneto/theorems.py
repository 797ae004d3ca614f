"""Magneto (arXiv 2210.06423v2): the bounds of Section 3.2 as formulas, and the table of gamma.

Their letters: L = 2N sublayers of a single stack, L_d = 3M of a decoder with cross-attention; v_l, w_l the scales of
the second and the first matrix of sublayer l; gamma where both are one. The slides print the same bounds and table.

The file that the quotes come from is an extraction that lost roots, bars and brackets; quotes keep its damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
from sympy import Expr, Indexed, Rational, S, Sum, Tuple, harmonic, lambdify, log, sqrt

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Cell, Check, Claim, Kind, Mutant, Route, claim
from paper_checks.claims.statements import Values
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import check, derived, order_key, order_of
from paper_checks.routes.printed_tables import read
from paper_checks.routes.update_bounds import LETTERS, n, v, w
from theory.symbols import L, M, N, k, l, scratch
from theory.symbols import init_gain as gamma

HALF = Rational(1, 2)
MOST = 6
"""Sublayers up to which sums are also added up exactly."""

_VW = v[n] ** 2 * w[n] ** 2
PRE_BOUND: Expr = Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L)) / Sum(_VW, (n, 1, L)) + Sum(
    (v[l] ** 2 + w[l] ** 2) / Sum(_VW, (n, 1, L)) * v[k] ** 2 * w[k] ** 2 / Sum(_VW, (n, 1, k - 1)),
    (k, 2, L),
    (l, 1, L),
)
"""(10), without eta d."""
SUB_BOUND: Expr = Sum(1 + v[l] ** 2 / w[l] ** 2, (l, 1, L)) / Sum(v[n] ** 2, (n, 1, L)) + Sum(
    (1 + v[l] ** 2 / w[l] ** 2) / Sum(v[n] ** 2, (n, 1, L)) * v[k] ** 2 / Sum(v[n] ** 2, (n, 1, k - 1)),
    (k, 2, L),
    (l, 1, L),
)
"""(12), without eta d."""
PRE_FACTORISED: Expr = (
    Sum(v[l] ** 2 + w[l] ** 2, (l, 1, L))
    / Sum(_VW, (n, 1, L))
    * (1 + Sum(v[k] ** 2 * w[k] ** 2 / Sum(_VW, (n, 1, k - 1)), (k, 2, L)))
)
SUB_FACTORISED: Expr = (
    Sum(1 + v[l] ** 2 / w[l] ** 2, (l, 1, L))
    / Sum(v[n] ** 2, (n, 1, L))
    * (1 + Sum(v[k] ** 2 / Sum(v[n] ** 2, (n, 1, k - 1)), (k, 2, L)))
)
GAMMA_TEXTS = {
    "encoder": "sqrt(log(2*N))",
    "decoder": "sqrt(log(2*M))",
    "encoder_of_two": "sqrt(log(3*M)*log(2*N)/3)",
    "decoder_of_two": "sqrt(log(3*M))",
}
GAMMAS = Values.of(**{name: read(text) for name, text in GAMMA_TEXTS.items()})
"""Figure 2's table."""


# ---------------------------------------------------------------- gamma


def _gamma_rules() -> dict[str, Expr]:
    return {
        "encoder": _side("encoder", "encoder").gain,
        "decoder": _side("decoder", "decoder").gain,
        "encoder_of_two": _side("encoder-decoder", "encoder").gain,
        "decoder_of_two": _side("encoder-decoder", "decoder").gain,
    }


@cache
def _side(architecture: str, name: str) -> Any:
    from theory.rules.solve import solve_rule

    return solve_rule("sub", "sgd", architecture, with_alternatives=False).side(name)


def _gamma_why() -> Sequence[str]:
    from theory.rules.solve import solve_rule

    return solve_rule("sub", "sgd", "encoder-decoder", with_alternatives=False).why


@check(Route.ARITHMETIC, "the source's growing terms set to 1", is_direct=True)
def _gamma_by_hand(s: Values) -> list[bool | None]:
    """The terms that grow, log L / gamma^2, and (log 3M)(log 2N) / (3 gamma_e^2) through the decoder, set to 1."""
    growing = {
        "encoder": log(2 * N),
        "decoder": log(2 * M),
        "encoder_of_two": log(3 * M) * log(2 * N) / 3,
        "decoder_of_two": log(3 * M),
    }
    return [algebra.equal(growing[name] / value**2, S.One) for name, value in s]


GAMMA_CHECKS = (
    derived("the derived rule, from the leading order of the sum over sublayers", _gamma_rules, steps=_gamma_why),
    _gamma_by_hand,
)
GAMMA_MUTANTS = (
    Mutant(name="no third", statement=GAMMAS.with_(encoder_of_two=sqrt(log(3 * M) * log(2 * N)))),
    *broken(GAMMAS),
)
GAMMA_CELLS = tuple(
    Cell(
        table="magneto-gamma",
        where=(("architecture", architecture), ("side", side)),
        column="gamma",
        printed=GAMMA_TEXTS[name],
    )
    for name, architecture, side in (
        ("encoder", "encoder", "encoder"),
        ("decoder", "decoder", "decoder"),
        ("encoder_of_two", "encoder-decoder", "encoder"),
        ("decoder_of_two", "encoder-decoder", "decoder"),
    )
)


# ---------------------------------------------------------------- the bounds as formulas


def equals_derived(name: str) -> Check:
    """The printed bound is the one that the stack gives, for every L."""

    def decide(s: Values) -> list[bool | None]:
        from theory.bounds.update import derive_bound

        return [same_sums(s["bound"], derive_bound(name).expression)]

    return check(Route.PROOF, f"the bound derived from the {name} stack, both in one normal form of sums", decide)


def same_sums(first: Expr, second: Expr) -> bool | None:
    """True where the normal forms are one, False where values at rationals differ, else None."""
    if algebra.sums_equal(first, second):
        return True
    return False if not all(agreements(first, second)) else None


def agreements(first: Expr, second: Expr) -> list[bool]:
    """Both at rational gains, L from 1 to 6, three cases each, exactly."""
    out = []
    for length in range(1, MOST + 1):
        for case in range(3):
            gains_v, gains_w = algebra.rational_gains(length, case)
            values = (gains_v, gains_w, length)
            out.append(algebra.value_at(first, LETTERS, values) == algebra.value_at(second, LETTERS, values))
    return out


def same_as(other: Expr, detail: str) -> Check:
    return check(
        Route.PROPERTY,
        f"{detail}, exactly at rational gains, L from 1 to {MOST}",
        lambda s: agreements(s["bound"], other),
        is_direct=True,
    )


def homogeneity(*, is_symmetric: bool) -> Check:
    """B(c v, c w) = c^degree B(v, w), and B(v, w) = B(w, v), exactly at rationals."""

    def decide(s: Values) -> list[bool | None]:
        out: list[bool | None] = []
        degree, c = int(s["degree"]), Fraction(3, 2)
        for length in range(1, MOST + 1):
            gains_v, gains_w = algebra.rational_gains(length, length)
            at = algebra.value_at(s["bound"], LETTERS, (gains_v, gains_w, length))
            scaled = ([c * x for x in gains_v], [c * x for x in gains_w], length)
            out.append(algebra.value_at(s["bound"], LETTERS, scaled) == c**degree * at)
            if is_symmetric:
                out.append(algebra.value_at(s["bound"], LETTERS, (gains_w, gains_v, length)) == at)
        return out

    swap = ", B(v, w) = B(w, v)" if is_symmetric else ""
    return check(
        Route.PROPERTY, f"B(cv, cw) = c^degree B(v, w){swap}, exactly at rational gains", decide, is_direct=True
    )


def form_proof(factorised: Expr, *, is_symmetric: bool) -> Check:
    """The same for every L, by pulling c and what an index does not touch out of the sums."""
    c = scratch("c", positive=True)

    def decide(s: Values) -> list[bool | None]:
        bound, degree, number = s["bound"], s["degree"], Rational(3, 2)
        shown = [same_sums(bound, factorised), algebra.sums_equal(_scaled(bound, c), c**degree * bound)]
        if same_sums(_scaled(bound, number), number**degree * bound) is False:
            shown.append(False)
        if is_symmetric:
            shown.append(same_sums(bound, _swapped(bound)))
        return shown

    return check(
        Route.PROOF, "one normal form of sums, for every L: factorised, scaled, swapped", decide, is_direct=True
    )


def _scaled(expr: Expr, c: Expr) -> Expr:
    return expr.replace(lambda e: isinstance(e, Indexed), lambda e: c * e)


def _swapped(expr: Expr) -> Expr:
    return expr.xreplace({v: w, w: v})


def from_three(bound: Expr) -> Expr:
    """A mutant: the sum over k begins a term late."""
    return bound.xreplace({Tuple(k, 2, L): Tuple(k, 3, L)})


# ---------------------------------------------------------------- equal gains


def uniform_by_theory(name: str) -> Check:
    """Closed form and leading order; the order carries the gain as the bracket does."""

    def decide(s: Values) -> list[bool | None]:
        from theory.bounds.update import derive_bound

        bracket = derive_bound(name).uniform
        if not s["bracket"].has(gamma):
            bracket = bracket.subs(gamma, 1)
        found, printed = (order_key(order_of(expr.subs(gamma, 1))) for expr in (bracket, s["order"]))
        gains = [expr.subs(gamma, 2) / expr.subs(gamma, 1) for expr in (bracket, s["order"])]
        return [
            algebra.equal(s["bracket"], bracket),
            found == printed,
            algebra.equal(gains[0].cancel(), gains[1].cancel()),
        ]

    return check(Route.PROOF, f"the closed form of the {name} bound at equal gains, and its leading order", decide)


def uniform_by_sum(bound: Expr) -> Check:
    """The printed sums added up at equal gains; then bracket/order at 10^2, 10^4, 10^6."""

    def decide(s: Values) -> list[bool | None]:
        out: list[bool | None] = []
        gains = (Fraction(1),) if not s["bracket"].has(gamma) else (Fraction(1, 2), Fraction(1), Fraction(3))
        for gain in gains:
            for length in range(2, 11):
                total = algebra.value_at(bound, LETTERS, ([gain] * length, [gain] * length, length))
                bracket = s["bracket"].subs({L: length, gamma: Rational(gain.numerator, gain.denominator)})
                out.append(bool(bracket == Rational(total.numerator, total.denominator)))
        ratio = lambdify((L, gamma), s["bracket"] / s["order"], modules="mpmath")
        out.append(algebra.settles([mpmath.log(ratio(length, 1)) for length in second_meanfield.LENGTHS]))
        return [*out, bool(abs(ratio(100, 1) / ratio(100, 2) - 1) < 1e-9)]

    return check(
        Route.PROPERTY,
        "the printed sums at equal gains, exactly, L from 2 to 10; then bracket/order",
        decide,
        is_direct=True,
    )


PRE_UNIFORM = Values.of(bracket=2 + 2 * harmonic(L - 1), order=log(L))
SUB_UNIFORM = Values.of(bracket=2 / gamma**2 * (1 + harmonic(L - 1)), order=log(L) / gamma**2)


def uniform_mutants(statement: Values) -> tuple[Mutant, ...]:
    return (
        Mutant(name="a factor 2 dropped", statement=statement.with_(bracket=statement["bracket"] / 2)),
        Mutant(name="H_L", statement=statement.with_(bracket=statement["bracket"].subs(L, L + 1))),
        Mutant(name="the square of the log", statement=statement.with_(order=statement["order"] * log(L))),
        Mutant(name="a power", statement=statement.with_(order=L**HALF)),
    )


def bracket_value(length: int, gamma_squared: mpmath.mpf) -> mpmath.mpf:
    """(2/gamma^2)(1 + H_{L-1})."""
    return 2 / gamma_squared * (1 + mpmath.harmonic(length - 1))


# ---------------------------------------------------------------- the claims

S2_03 = claim(
    "S2-03",
    kind=Kind.RESULT,
    locator="Section 2, Figure 2, top right",
    quote="Encoder-only log 2N-\n(e.g., BERT, ViT)\nDecoder-only -log 2M\n(e.g., GPT)\nEncoder-decoder q1\n"
    "3log 3Mlog 2Nlog 3M",
    summary="gamma: sqrt(log 2N); sqrt(log 2M); encoder-decoder sqrt((1/3) log 3M log 2N) and sqrt(log 3M)",
    uses=("S2-19", "S2-21"),
    statement=GAMMAS,
    checks=GAMMA_CHECKS,
    mutants=GAMMA_MUTANTS,
    cells=GAMMA_CELLS,
)

_PRE = Values.of(bound=PRE_BOUND, degree=-2)
_S2_09 = claim(
    "S2-09",
    kind=Kind.STEP,
    locator="Section 3.2, Theorem 3.1, (10)",
    quote="Fpre ηd(PL\nl=1 v2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn",
    summary="bound (10) factorises, B(cv, cw) = c^(-2) B(v, w), B(v, w) = B(w, v)",
    statement=_PRE,
    checks=(form_proof(PRE_FACTORISED, is_symmetric=True), homogeneity(is_symmetric=True), equals_derived("pre-ln")),
    mutants=(
        Mutant(name="degree -1", statement=_PRE.with_(degree=-1)),
        Mutant(name="v_k in place of v_k w_k", statement=_PRE.with_(bound=PRE_BOUND.replace(w[k], S.One))),
        Mutant(name="k from 3", statement=_PRE.with_(bound=from_three(PRE_BOUND))),
        Mutant(name="v_l alone", statement=_PRE.with_(bound=PRE_BOUND.replace(v[l] ** 2 + w[l] ** 2, v[l] ** 2))),
    ),
    cells=(
        Cell(
            table="bounds", where=(("scheme", "pre-ln"),), column="bound", printed=f"d*eta*({PRE_BOUND})", note="(10)"
        ),
    ),
)

_S2_10 = claim(
    "S2-10",
    kind=Kind.RESULT,
    locator="Section 3.2, after Theorem 3.1",
    quote="with\nvl=wl= 1\n(i.e., standard initialization) for vanilla Pre-LN, we have\nFpre =O(ηd log L)",
    summary="v = w = 1: the bracket of (10) is 2 + 2 H_{L-1} = O(log L)",
    uses=("S2-09",),
    statement=PRE_UNIFORM,
    checks=(uniform_by_theory("pre-ln"), uniform_by_sum(PRE_BOUND)),
    mutants=uniform_mutants(PRE_UNIFORM),
    cells=(
        Cell(table="bounds", where=(("scheme", "pre-ln"),), column="order", printed="log(N)", note="as log L, L = 2N"),
    ),
)

_SUB = Values.of(bound=SUB_BOUND, degree=-2)
_S2_14 = claim(
    "S2-14",
    kind=Kind.STEP,
    locator="Section 3.2, Theorem 3.2, (12)",
    quote="Fsub ηd(PL\nl=1(1 + v2\nl\nw2\nl\n)",
    summary="bound (12) has w_l only in v_l/w_l, as sum(1 + v_l^2/w_l^2) times a function of v; B(cv, cw) = c^(-2) B",
    statement=_SUB,
    checks=(form_proof(SUB_FACTORISED, is_symmetric=False), homogeneity(is_symmetric=False), equals_derived("sub-ln")),
    mutants=(
        Mutant(name="degree 0", statement=_SUB.with_(degree=0)),
        Mutant(name="w_l in the ratio of k", statement=_SUB.with_(bound=SUB_BOUND.replace(v[k], v[k] * w[k]))),
        Mutant(name="v_l^2 + w_l^2", statement=_SUB.with_(bound=SUB_BOUND.replace(w[l] ** -2, w[l] ** 2))),
    ),
    cells=(
        Cell(
            table="bounds", where=(("scheme", "sub-ln"),), column="bound", printed=f"d*eta*({SUB_BOUND})", note="(12)"
        ),
    ),
)


S2_21 = claim(
    "S2-21",
    kind=Kind.STEP,
    locator="Section 3.2, Derivation and Implementation, (17); cut from this copy, printed on the slides (S3-13)",
    quote="We then demonstrate that the expected model update of MAG-\nNETO above can be bounded with proper "
    "initialization.",
    summary="v = w = gamma: the bracket of (12) is (2/gamma^2)(1 + H_{L-1}) = O(log L / gamma^2)",
    uses=("S2-14",),
    statement=SUB_UNIFORM,
    checks=(uniform_by_theory("sub-ln"), uniform_by_sum(SUB_BOUND)),
    mutants=uniform_mutants(SUB_UNIFORM),
)

CLAIMS: tuple[Claim, ...] = (S2_03, _S2_09, _S2_10, _S2_14, S2_21)
