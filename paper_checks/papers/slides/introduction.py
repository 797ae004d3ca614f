"""The slides' TL;DR, its code and its table of gamma; and what they say of Sub-LN at once."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from sympy import S, log, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.magneto.explosion import LATER, NONE, NOT_FIRST, compared, comparison
from depthlaw.paper_checks.papers.magneto.sublayers import PSEUDO_CODE
from depthlaw.paper_checks.papers.magneto.theorems import GAMMAS, S2_03, bracket_value
from depthlaw.paper_checks.papers.slides.initialization import signal
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import check, order_key, order_of
from depthlaw.theory.symbols import L, M, N, l

# ---------------------------------------------------------------- S3-01: the code

_SLIDE_CODE = """\
def subln(x):
    return x + fout(LN(fin(LN(x))))

def subln_init(w):
    if w is ['ffn', 'v_proj', 'out_proj']:
        nn.init.xavier_normal_(w, gain=γ)
    elif w is ['q_proj', 'k_proj']:
        nn.init.xavier_normal_(w, gain=1)
"""
"""The slides' code; its gamma is typeset there."""
_CODE = Values.of("; ".join(line.strip() for line in _SLIDE_CODE.splitlines() if line), code=_SLIDE_CODE)


def _edited(old: str, new: str) -> Values:
    return _CODE.with_(code=_SLIDE_CODE.replace(old, new))


@check(Route.CITATION, "character by character, blanks aside")
def _same_characters(s: Values) -> list[bool | None]:
    return [re.sub(r"\s+", "", s["code"]) == re.sub(r"\s+", "", PSEUDO_CODE)]


@check(Route.PROOF, "the table's gammas have no letter but N and M, and are positive numbers at each")
def _is_number_of_layers(s: Values) -> list[bool | None]:
    return [
        gamma.free_symbols <= {N, M} and all(gamma.subs({N: layers, M: layers}) > 0 for layers in (1, 2, 6, 100))
        for _, gamma in s
    ]


_S3_01 = Claim(
    id="S3-01",
    kind=Kind.REMARK,
    locator="TL;DR, left",
    quote="Notice that  $\\gamma$  is a constant.",
    summary="the pseudo-code is the paper's; gamma in it is a constant",
    parts=(
        Part(
            name="the same code as in the paper's Figure 2",
            statement=_CODE,
            checks=(_same_characters,),
            mutants=(
                Mutant(name="no inner norm", statement=_edited("fout(LN(fin(LN(x))))", "fout(fin(LN(x)))")),
                Mutant(name="queries and keys scaled", statement=_edited("gain=1", "gain=γ")),
                Mutant(name="values not scaled", statement=_edited("'ffn', 'v_proj',", "'ffn',")),
            ),
        ),
        Part(
            name="gamma is a constant: one number for a model, the same in every sublayer",
            statement=GAMMAS,
            checks=(_is_number_of_layers,),
            mutants=changed(GAMMAS, encoder=sqrt(1 + l), decoder=M - 1),
        ),
    ),
)

# ---------------------------------------------------------------- S3-02: the table of gamma

_S3_02 = replace(
    S2_03,
    id="S3-02",
    source="",
    locator="TL;DR, right",
    quote=r"Encoder-decoder (e.g., NMT, BART)	$\sqrt{\frac{1}{3} \log 3M \log 2N}$	$\sqrt{\log 3M}$",
    uses=("S2-19", "S3-13"),
)

# ---------------------------------------------------------------- S3-03: the bound is lower, no explosion

_LOWER = Values.of(ratio=log(L) / L)


@check(Route.PROOF, "orders of the derived bounds")
def _lower_by_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.update import derive_bound

    of_sub, of_post = (order_key(derive_bound(name).order) for name in ("sub-ln", "post-ln"))
    printed = order_key(order_of(s["ratio"]))
    return [all(a - b == c for a, b, c in zip(of_sub, of_post, printed, strict=True))]


@check(Route.NUMERIC, "2 + 2 H_{L-1} over 2L, at 10^2, 10^4, 10^6")
def _lower_summed(s: Values) -> list[bool | None]:
    ratios = []
    for length in second_meanfield.LENGTHS:
        ratio = float(bracket_value(length, S.One)) / (2 * length)
        ratios.append(math.log(ratio / float(s["ratio"].subs(L, length))))
    return [algebra.settles(ratios)]


_S3_03 = Claim(
    id="S3-03",
    kind=Kind.RESULT,
    locator="Magneto: Sub-LayerNorm",
    quote="Sub-LN has a lower bound of model update and does not suffer from activation explosion.",
    summary="Sub-LN's (upper) bound of model update is lower than that of the others; no activation explosion",
    uses=("S3-06", "S3-09", "S3-11"),
    parts=(
        Part(
            name="the bound is lower than Post-LN's, gains 1",
            statement=_LOWER,
            checks=(_lower_by_theory, _lower_summed),
            mutants=changed(_LOWER, ratio=[1, 1 / L]),
        ),
        comparison(
            "the bound is lower than Pre-LN's, equal gains",
            compared("bound", NONE),
            "never at equal gains, where the two are one and the same, (1/v^2 + 1/w^2)(1 + H_(L-1)), whatever v and w; "
            f"lower where w_l >> w_i and {NOT_FIRST}, and log L times as low at Magneto's own gain sqrt(log L), L > 2, "
            "beside Pre-LN at gain 1",
            compared("bound", LATER),
            "lower where any sublayer but the first explodes",
        ),
        signal("no activation explosion where w_l grows (the slide's own case, w_l >> w_i)", Values.of(sub=0)),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_01, _S3_02, _S3_03)
