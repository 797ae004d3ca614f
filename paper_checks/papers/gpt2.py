"""GPT-2: its scaled initialisation, of which it says what it does to the forward pass.

What it does not say: a step's update still grows with depth (``depthlaw predict --scheme gpt2``).
"""

from __future__ import annotations

from sympy import S, log

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Kind, claim
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L

_STREAM = StreamOrder(scheme="gpt2", low=S.One, high=S.One)

CLAIMS = (
    claim(
        "GP-01",
        kind=Kind.RESULT,
        name="the stream, at initialisation",
        locator="Section 2.3",
        quote="1/sqrt(N) at initialisation, N residual layers, accounts for the accumulation on the residual path with "
        "model depth",
        summary="with output matrices times 1/sqrt(L) the stream's variance does not grow with L sublayers",
        statement=_STREAM,
        checks=STREAM,
        mutants=changed(_STREAM, low=[log(L), L], high=1 / L),
    ),
)
