"""Magneto (arXiv 2210.06423v2): the bounds of Section 3.2 as formulas, and the table of gamma.

Their letters: L = 2N sublayers of a single stack, L_d = 3M of a decoder with cross-attention; v_l, w_l the scales of
the second and the first matrix of sublayer l; gamma where both are one. The slides print the same bounds and table.

The file that the quotes come from is an extraction that lost roots, bars and brackets; quotes keep its damage.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
from sympy import Expr, Indexed, Rational, S, Sum, Tuple, harmonic, lambdify, log

from depthlaw.paper_checks.claims.broken import broken, changed
from depthlaw.paper_checks.claims.claim import Cell, Check, Claim, Kind, Mutant, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, order_key, order_of
from depthlaw.paper_checks.routes.signal_propagation.update_bounds import LETTERS, n, v, w
from depthlaw.paper_checks.routes.tables.derived import read
from depthlaw.theory.symbols import L, M, N, k, l, scratch
from depthlaw.theory.symbols import init_gain as gamma

PRE_TERMS: tuple[Expr, Expr] = (v[l] ** 2 + w[l] ** 2, v[l] ** 2 * w[l] ** 2)
SUB_TERMS: tuple[Expr, Expr] = (1 + v[l] ** 2 / w[l] ** 2, v[l] ** 2)
"""Of a sublayer: its weight in (10) or (12), and s_l, what its branch adds to the stream; S_l is the sum of s_1 to s_l.
"""


def total(branch: Expr, last: Expr) -> Expr:
    """S of that sublayer."""
    return Sum(branch.xreplace({l: n}), (n, 1, last))


def _bound(weight: Expr, branch: Expr) -> Expr:
    chain = weight / total(branch, L) * branch.xreplace({l: k}) / total(branch, k - 1)
    return Sum(weight, (l, 1, L)) / total(branch, L) + Sum(chain, (k, 2, L), (l, 1, L))


def _factorised(weight: Expr, branch: Expr) -> Expr:
    """The same as a product of two sums."""
    chain = 1 + Sum(branch.xreplace({l: k}) / total(branch, k - 1), (k, 2, L))
    return Sum(weight, (l, 1, L)) / total(branch, L) * chain


PRE_BOUND, SUB_BOUND = _bound(*PRE_TERMS), _bound(*SUB_TERMS)
"""(10) and (12), without eta d."""
PRE_FACTORISED, SUB_FACTORISED = _factorised(*PRE_TERMS), _factorised(*SUB_TERMS)
_SIDES = {
    "encoder": ("encoder", "encoder", "sqrt(log(2*N))"),
    "decoder": ("decoder", "decoder", "sqrt(log(2*M))"),
    "encoder_of_two": ("encoder-decoder", "encoder", "sqrt(log(3*M)*log(2*N)/3)"),
    "decoder_of_two": ("encoder-decoder", "decoder", "sqrt(log(3*M))"),
}
"""Figure 2's table: architecture, side and gamma."""
GAMMAS = Values.of(**{name: read(text) for name, (*_, text) in _SIDES.items()})

# ---------------------------------------------------------------- gamma


@cache
def _rule(architecture: str) -> Any:
    from depthlaw.theory.rules.solve import solve_rule

    return solve_rule("sub", "sgd", architecture, with_alternatives=False)


@check(Route.PROOF, "the derived rule, from the leading order of the sum over sublayers")
def _gamma_derived(s: Values) -> Answers:
    gains = {name: _rule(architecture).side(side).gain for name, (architecture, side, _) in _SIDES.items()}
    return Answers(
        holds=[algebra.equal(s[name], gain) for name, gain in gains.items()],
        numbers={name: str(gain) for name, gain in gains.items()},
        steps=_rule("encoder-decoder").why,
    )


@check(Route.ARITHMETIC, "the source's growing terms set to 1")
def _gamma_by_hand(s: Values) -> list[bool | None]:
    """The terms that grow, log L / gamma^2, and (log 3M)(log 2N) / (3 gamma_e^2) through the decoder, set to 1."""
    growing = {
        "encoder": log(2 * N),
        "decoder": log(2 * M),
        "encoder_of_two": log(3 * M) * log(2 * N) / 3,
        "decoder_of_two": log(3 * M),
    }
    return [algebra.equal(growing[name] / value**2, S.One) for name, value in s]


# ---------------------------------------------------------------- the bounds as formulas

_MOST = 6
"""Sublayers up to which sums are also added up exactly."""


def equals_derived(name: str) -> Check:
    def decide(s: Values) -> list[bool | None]:
        from depthlaw.theory.bounds.update import derive_bound

        return [same_sums(s["bound"], derive_bound(name).expression)]

    return check(Route.PROOF, f"the bound derived from the {name} stack, both in one normal form of sums", decide)


def same_sums(first: Expr, second: Expr) -> bool | None:
    """True where the normal forms are one, False where values at rationals differ, else None."""
    if algebra.sums_equal(first, second):
        return True
    return False if not all(agreements(first, second)) else None


def agreements(first: Expr, second: Expr) -> list[bool]:
    """Both at rational gains, L from 1 to 6, three cases each, exactly."""
    gains = [(*algebra.rational_gains(length, case), length) for length in range(1, _MOST + 1) for case in range(3)]
    return [algebra.value_at(first, LETTERS, at) == algebra.value_at(second, LETTERS, at) for at in gains]


def same_as(other: Expr, detail: str) -> Check:
    return check(
        Route.PROPERTY, f"{detail}, exactly at rational gains, L from 1 to 6", lambda s: agreements(s["bound"], other)
    )


def _of_form(scheme: str, closed: Expr, *, is_symmetric: bool) -> tuple[Check, ...]:
    """B factorises as ``closed``, B(cv, cw) = c^degree B(v, w), B(v, w) = B(w, v); and it is the stack's own bound."""
    c = scratch("c", positive=True)

    def scaled(bound: Expr, factor: Expr) -> Expr:
        return bound.replace(lambda e: isinstance(e, Indexed), lambda e: factor * e)

    @check(Route.PROOF, "one normal form of sums, for every L: factorised, scaled, swapped")
    def by_sums(s: Values) -> list[bool | None]:
        bound, degree, number = s["bound"], s["degree"], Rational(3, 2)
        shown = [same_sums(bound, closed), algebra.sums_equal(scaled(bound, c), c**degree * bound)]
        if same_sums(scaled(bound, number), number**degree * bound) is False:
            shown.append(False)
        if is_symmetric:
            shown.append(same_sums(bound, bound.xreplace({v: w, w: v})))
        return shown

    return by_sums, equals_derived(scheme)


def from_three(bound: Expr) -> Expr:
    """A mutant: the sum over k begins a term late."""
    return bound.xreplace({Tuple(k, 2, L): Tuple(k, 3, L)})


# ---------------------------------------------------------------- equal gains


def _at_equal_gains(scheme: str, bound: Expr) -> tuple[Check, Check]:
    @check(Route.PROOF, f"the closed form of the {scheme} bound at equal gains, and its leading order")
    def by_theory(s: Values) -> list[bool | None]:
        """The order carries the gain as the bracket does."""
        from depthlaw.theory.bounds.update import derive_bound

        bracket = derive_bound(scheme).uniform
        if not s["bracket"].has(gamma):
            bracket = bracket.subs(gamma, 1)
        derived, printed = (order_key(order_of(expr.subs(gamma, 1))) for expr in (bracket, s["order"]))
        gains = [expr.subs(gamma, 2) / expr.subs(gamma, 1) for expr in (bracket, s["order"])]
        return [
            algebra.equal(s["bracket"], bracket),
            derived == printed,
            algebra.equal(gains[0].cancel(), gains[1].cancel()),
        ]

    @check(Route.PROPERTY, "the printed sums at equal gains, exactly, L from 2 to 10; bracket/order")
    def by_sum(s: Values) -> list[bool | None]:
        out: list[bool | None] = []
        for gain in (S.One,) if not s["bracket"].has(gamma) else (S.Half, S.One, S(3)):
            for length in range(2, 11):
                gains = [Fraction(int(gain.p), int(gain.q))] * length
                added = algebra.value_at(bound, LETTERS, (gains, gains, length))
                out.append(bool(s["bracket"].subs({L: length, gamma: gain}) == Rational(*added.as_integer_ratio())))
        ratio = lambdify((L, gamma), s["bracket"] / s["order"], modules="mpmath")
        out.append(algebra.settles([mpmath.log(ratio(length, 1)) for length in second_meanfield.LENGTHS]))
        return [*out, bool(abs(ratio(100, 1) / ratio(100, 2) - 1) < 1e-9)]

    return by_theory, by_sum


PRE_UNIFORM = Values.of(bracket=2 + 2 * harmonic(L - 1), order=log(L))
SUB_UNIFORM = Values.of(bracket=2 / gamma**2 * (1 + harmonic(L - 1)), order=log(L) / gamma**2)


def bracket_value(length: int, gamma_squared: mpmath.mpf) -> mpmath.mpf:
    """(2/gamma^2)(1 + H_{L-1})."""
    return 2 / gamma_squared * (1 + mpmath.harmonic(length - 1))


# ---------------------------------------------------------------- the claims


def bound_cell(scheme: str, bound: Expr | str, note: str) -> Cell:
    where = (("scheme", scheme),)
    return Cell(table="bounds", where=where, column="bound", printed=f"d*eta*({bound})", note=note)


def order_cell(scheme: str, order: str, note: str = "") -> Cell:
    return Cell(table="bounds", where=(("scheme", scheme),), column="order", printed=order, note=note)


S2_03 = claim(
    "S2-03",
    kind=Kind.RESULT,
    locator="Section 2, Figure 2, top right",
    quote="Encoder-only log 2N-\n(e.g., BERT, ViT)\nDecoder-only -log 2M\n(e.g., GPT)\nEncoder-decoder q1\n"
    "3log 3Mlog 2Nlog 3M",
    summary="gamma: sqrt(log 2N); sqrt(log 2M); encoder-decoder sqrt((1/3) log 3M log 2N) and sqrt(log 3M)",
    uses=("S2-19", "S2-21"),
    statement=GAMMAS,
    checks=(_gamma_derived, _gamma_by_hand),
    cells=tuple(
        Cell(
            table="magneto-gamma", where=(("architecture", architecture), ("side", side)), column="gamma", printed=text
        )
        for architecture, side, text in _SIDES.values()
    ),
)

_PRE = Values.of(bound=PRE_BOUND, degree=-2)
_S2_09 = claim(
    "S2-09",
    kind=Kind.STEP,
    locator="Section 3.2, Theorem 3.1, (10)",
    quote="Fpre ηd(PL\nl=1 v2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn",
    summary="bound (10) factorises, B(cv, cw) = c^(-2) B(v, w), B(v, w) = B(w, v)",
    statement=_PRE,
    checks=_of_form("pre-ln", PRE_FACTORISED, is_symmetric=True),
    mutants=(
        *changed(_PRE, degree=-1),
        Mutant(name="k from 3", statement=_PRE.with_(bound=from_three(PRE_BOUND))),
        Mutant(name="v_l alone", statement=_PRE.with_(bound=PRE_BOUND.replace(v[l] ** 2 + w[l] ** 2, v[l] ** 2))),
    ),
    cells=(bound_cell("pre-ln", PRE_BOUND, "(10)"),),
)

_S2_10 = claim(
    "S2-10",
    kind=Kind.RESULT,
    locator="Section 3.2, after Theorem 3.1",
    quote="with\nvl=wl= 1\n(i.e., standard initialization) for vanilla Pre-LN, we have\nFpre =O(ηd log L)",
    summary="v = w = 1: the bracket of (10) is 2 + 2 H_{L-1} = O(log L)",
    uses=("S2-09",),
    statement=PRE_UNIFORM,
    checks=_at_equal_gains("pre-ln", PRE_BOUND),
    mutants=(*broken(PRE_UNIFORM, "bracket"), *changed(PRE_UNIFORM, order=log(L) ** 2)),
    cells=(order_cell("pre-ln", "log(N)", "as log L, L = 2N"),),
)

_SUB = Values.of(bound=SUB_BOUND, degree=-2)
_S2_14 = claim(
    "S2-14",
    kind=Kind.STEP,
    locator="Section 3.2, Theorem 3.2, (12)",
    quote="Fsub ηd(PL\nl=1(1 + v2\nl\nw2\nl\n)",
    summary="bound (12) has w_l only in v_l/w_l, as sum(1 + v_l^2/w_l^2) times a function of v; B(cv, cw) = c^(-2) B",
    statement=_SUB,
    checks=_of_form("sub-ln", SUB_FACTORISED, is_symmetric=False),
    mutants=(
        *changed(_SUB, degree=0),
        Mutant(name="w_l in the ratio of k", statement=_SUB.with_(bound=SUB_BOUND.replace(v[k], v[k] * w[k]))),
        Mutant(name="v_l^2 + w_l^2", statement=_SUB.with_(bound=SUB_BOUND.replace(w[l] ** -2, w[l] ** 2))),
    ),
    cells=(bound_cell("sub-ln", SUB_BOUND, "(12)"),),
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
    checks=_at_equal_gains("sub-ln", SUB_BOUND),
    mutants=(*broken(SUB_UNIFORM, "bracket"), *changed(SUB_UNIFORM, order=log(L) ** 2 / gamma**2)),
)

CLAIMS: tuple[Claim, ...] = (S2_03, _S2_09, _S2_10, _S2_14, S2_21)
