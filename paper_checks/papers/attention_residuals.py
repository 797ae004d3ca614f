"""Attention Residuals: what it says of Pre-Norm's stream, and of its own weights at the start."""

from __future__ import annotations

from sympy import Rational, exp

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Route
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import check
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L

_NORM = StreamOrder(scheme="pre-ln", high=L**2)
_WEIGHTS = Values.of("queries of 0 give each of L earlier outputs the weight {weight}", weight=1 / L)


@check(Route.PROOF, "the softmax of L logits q . k = 0")
def _uniform(s: Values) -> list[bool | None]:
    return [algebra.equal(s["weight"], exp(0) / (L * exp(0)))]


CLAIMS = (
    Claim(
        id="AR-01",
        kind=Kind.RESULT,
        locator="abstract and Section 3",
        quote="under PreNorm hidden-state norms grow as O(L); queries of zero give uniform weights at the start",
        summary="Pre-Norm's hidden states grow no faster than L in norm; zero queries start as uniform weights",
        parts=(
            Part(
                name="the norm of Pre-Norm's stream, at initialisation (it is of order sqrt(L))",
                statement=_NORM,
                checks=STREAM,
                mutants=changed(_NORM, high=[L ** Rational(3, 4), L**0]),
            ),
            Part(name="the weights at the start", statement=_WEIGHTS, checks=(_uniform,)),
        ),
    ),
)
