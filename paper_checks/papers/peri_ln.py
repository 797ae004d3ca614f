"""Peri-LN: how the variance of its stream grows, beside Pre-LN's."""

from __future__ import annotations

from sympy import Rational, exp, log

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Verdict
from depthlaw.paper_checks.routes.checks import awaits
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L

_PERI = StreamOrder(scheme="peri-ln", low=L, high=L)
_RUNS = "variances of the stream by layer along training, of Pre-LN and Peri-LN networks of several depths"

CLAIMS = (
    Claim(
        id="PL-01",
        kind=Kind.RESULT,
        locator="Section 3",
        quote="the variance of the hidden state grows linearly with Peri-LN, exponentially with Pre-LN (in training)",
        summary="the variance of the stream grows linearly with Peri-LN, and exponentially with Pre-LN in training",
        parts=(
            Part(
                name="Peri-LN, at initialisation",
                statement=_PERI,
                checks=STREAM,
                mutants=changed(_PERI, low=L ** Rational(5, 4), high=[log(L), L ** Rational(3, 4)]),
            ),
            Part(
                name="Pre-LN, after training",
                statement=StreamOrder(scheme="pre-ln", low=exp(L), high=exp(L)),
                checks=(awaits(_RUNS),),
                expected=Verdict.UNDECIDED,
                open=_RUNS,
            ),
        ),
    ),
)
