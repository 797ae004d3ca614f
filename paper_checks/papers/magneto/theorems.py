"""Wang et al., "Foundation Transformers", arXiv 2210.06423v2: the bounds of Section 3.2 and the table of gamma.

The file that the quotes come from is an extraction that lost roots, bars and brackets; quotes keep its damage.
"""

from __future__ import annotations

from sympy import S

from paper_checks.claims.claim import Cell, Claim, Kind, Mutant, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.magneto.parts import (
    GAMMA_CELLS,
    GAMMA_CHECKS,
    GAMMA_MUTANTS,
    GAMMAS,
    PRE_BOUND,
    PRE_FACTORISED,
    PRE_UNIFORM,
    SUB_BOUND,
    SUB_FACTORISED,
    SUB_UNIFORM,
    equals_derived,
    form_proof,
    from_three,
    homogeneity,
    uniform_by_sum,
    uniform_by_theory,
    uniform_mutants,
    v,
    w,
)
from theory.symbols import k, l

_S2_03 = claim(
    "S2-03",
    kind=Kind.RESULT,
    source="magneto",
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
    source="magneto",
    locator="Section 3.2, Theorem 3.1, (10)",
    quote="Fpre ηd(PL\nl=1 v2\nl+w2\nl\nPL\nn=1 v2\nnw2\nn",
    summary="bound (10) factorises, B(cv, cw) = c^(-2) B(v, w), B(v, w) = B(w, v)",
    statement=_PRE,
    checks=(
        form_proof(PRE_FACTORISED, is_symmetric=True),
        homogeneity(is_symmetric=True),
        equals_derived("pre-ln"),
    ),
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
    source="magneto",
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
    source="magneto",
    locator="Section 3.2, Theorem 3.2, (12)",
    quote="Fsub ηd(PL\nl=1(1 + v2\nl\nw2\nl\n)",
    summary="bound (12) has w_l only in v_l/w_l, as sum(1 + v_l^2/w_l^2) times a function of v; B(cv, cw) = c^(-2) B",
    statement=_SUB,
    checks=(
        form_proof(SUB_FACTORISED, is_symmetric=False),
        homogeneity(is_symmetric=False),
        equals_derived("sub-ln"),
    ),
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


_S2_21 = claim(
    "S2-21",
    kind=Kind.STEP,
    source="magneto",
    locator="Section 3.2, Derivation and Implementation, (17); cut from this copy, printed on the slides (S3-13)",
    quote="We then demonstrate that the expected model update of MAG-\nNETO above can be bounded with proper "
    "initialization.",
    summary="v = w = gamma: the bracket of (12) is (2/gamma^2)(1 + H_{L-1}) = O(log L / gamma^2)",
    uses=("S2-14",),
    statement=SUB_UNIFORM,
    checks=(uniform_by_theory("sub-ln"), uniform_by_sum(SUB_BOUND)),
    mutants=uniform_mutants(SUB_UNIFORM),
)

CLAIMS: tuple[Claim, ...] = (_S2_03, _S2_09, _S2_10, _S2_14, _S2_21)
