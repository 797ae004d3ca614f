"""DeepScaleLM: residual and branch weights that keep the moments of signal and gradient, at initialisation."""

from __future__ import annotations

import math

from sympy import S, simplify, sqrt

from depthlaw.paper_checks.claims.claim import Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import check
from depthlaw.theory.symbols import N

_WEIGHTS = Values.of(residual_weight=sqrt(1 - 2 / N), branch_weight=sqrt(2 / N))


@check(
    Route.PROOF,
    "second moments of signal and gradient behind one sublayer whose branch keeps them",
    steps=lambda: ("signal: lambda^2 + beta^2", "gradient: lambda^2 + beta^2, of a branch that is linear in scale"),
)
def _by_sublayer(s: Values) -> list[bool | None]:
    from depthlaw.theory.meanfield.closedform import symbolic_moments
    from depthlaw.theory.moments import activation
    from depthlaw.theory.stack import NO_NORM, NormKind, transfer

    t = transfer(
        NO_NORM,
        NormKind.LAYERNORM,
        symbolic_moments(activation("identity"), S.One),
        stream=S.One,
        input_scale=S.One,
        gain_in=S.One,
        gain_out=S.One,
        sqrt=sqrt,
        residual_weight=s["residual_weight"],
        branch_weight=s["branch_weight"],
    )
    return [simplify(t.stream - 1) == 0, simplify(t.gradient_ratio - 1) == 0]


@check(Route.NUMERIC, "the product over 2N sublayers, in floats, at N = 12, 200 and 1,000")
def _by_product(s: Values) -> list[bool | None]:
    answers: list[bool | None] = []
    for layers in (12, 200, 1000):
        a, b = (float(s[name].subs(N, layers).evalf()) for name in ("residual_weight", "branch_weight"))
        answers.append(math.isclose((a**2 + b**2) ** (2 * layers), 1, rel_tol=1e-9))
    return answers


CLAIMS = (
    claim(
        "DS-01",
        kind=Kind.RESULT,
        name="moments, at initialisation",
        locator="Section 4",
        quote="lambda^2 + beta^2 = 1, with lambda^2 = 1 - 2/N and beta^2 = 2/N, conserves unit moments",
        summary="lambda = sqrt(1 - 2/N) and beta = sqrt(2/N) conserve the moments of signal and gradient at any depth",
        statement=_WEIGHTS,
        checks=(_by_sublayer, _by_product),
    ),
)
