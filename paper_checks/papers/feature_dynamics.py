"""Neural Feature Dynamics: what depth-muP leaves the first of a block's two matrices, in the first step."""

from __future__ import annotations

import math
from functools import cache

from sympy import Rational

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.drawn import PreNorm, norm

_INNER = Values.of(
    "under depth-muP, SGD's step of a block's first matrix changes what that matrix makes by L^({power}), and a rate "
    "times L^({mends}) makes it independent of depth",
    power=-Rational(1, 2),
    mends=Rational(1, 2),
)


def _answers(power: float, s: Values, **numbers: float) -> Answers:
    holds = [abs(power - float(s["power"])) < 0.1, abs(power + float(s["mends"])) < 0.1]
    return Answers(holds=holds, numbers={"power": round(power, 3)} | {k: round(v, 4) for k, v in numbers.items()})


@check(Route.MEANFIELD, "the root of what a first matrix adds to SGD's update, at 10^2 and 10^6 sublayers")
def _by_theory(s: Values) -> Answers:
    """One input of unit entries: a first matrix's step moves what it makes by its gradient's norm."""
    from depthlaw.theory.meanfield.update import predict

    few, many = (predict("depth-mup", "sgd", length) for length in (10**2, 10**6))
    power = math.log((many.roles["fc1"] / 1e6) / (few.roles["fc1"] / 1e2), 1e4) / 2
    return _answers(power, s, first_matrices_share_of_the_update=many.roles["fc1"] / many.update)


@cache
def _change(num_sublayers: int) -> float:
    """Root mean square over sublayers of how far SGD's step moves what the first matrix makes, input held."""
    stack = PreNorm(num_sublayers, num_sublayers**-0.5)
    matrices, first, _ = stack.drawn
    pairs = zip(stack.streams(matrices, first), stack.gradients, strict=False)
    moved = [float((norm(x) @ gradient[0]).square().mean()) for x, gradient in pairs]
    return math.sqrt(sum(moved) / num_sublayers)


@check(Route.MEASURED, "the same in drawn stacks of 16 and 256 sublayers")
def _in_drawn(s: Values) -> Answers:
    return _answers(math.log(_change(256) / _change(16), 16), s)


CLAIMS = (
    claim(
        "NF-01",
        kind=Kind.RESULT,
        name="what the first matrix makes, in the first step, at initialisation",
        locator="abstract of the first version",
        quote="the vanishing mechanism leads to feature-learning collapse in the first internal layer of two-layer "
        "blocks at large depth; a depth-aware learning-rate correction counteracts this collapse",
        summary="under depth-muP a block's first matrix changes what it makes by 1/sqrt(L); a rate of sqrt(L) mends it",
        statement=_INNER,
        checks=(_by_theory, _in_drawn),
        mutants=changed(_INNER, power=[0, -1], mends=[0, 1]),
    ),
)
