"""The slides' takeaways: a smaller model update, a more stable optimisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

from sympy import Expr, lambdify, limit, log, oo

from paper_checks.claims.claim import Claim, Finding, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Statement, Values
from paper_checks.routes import questions
from paper_checks.routes.checks import check
from paper_checks.routes.training import BY_TRAINING, Answered
from theory.symbols import N

_BOUNDS = Values.of(
    "of two bounds of different order the smaller has the larger rate: Post-LN Theta({post}), {post_rate}; Pre-LN "
    "Theta({pre}), {pre_rate}; Sub-LN Theta({sub}), {sub_rate}",
    **{"post": N, "post_rate": "5e-4", "pre": log(N), "pre_rate": "1e-3", "sub": log(N), "sub_rate": "3e-3"},
)


def _pairs(s: Values) -> Iterator[tuple[Expr, float, Expr, float]]:
    """(bound, rate, another's bound, its rate)."""
    entries = [(s[norm], float(s[f"{norm}_rate"])) for norm in ("post", "pre", "sub")]
    yield from ((*one, *other) for one, other in permutations(entries, 2))


@check(Route.PROOF, "pairs of different order, by limits of the ratio", is_direct=True)
def _rates_by_limits(s: Values) -> list[bool | None]:
    return [rate > other for small, rate, big, other in _pairs(s) if limit(small / big, N, oo) == 0]


@check(Route.NUMERIC, "the same pairs by N = 10^3 and 10^9", is_direct=True)
def _rates_by_numbers(s: Values) -> list[bool | None]:
    """A bound is of larger order where its ratio to the other doubles, or more, from N = 10^3 to 10^9."""
    out: list[bool | None] = []
    for small, rate, big, other in _pairs(s):
        ratio = lambdify(N, big / small, modules="math")
        if ratio(10**9) > 2 * ratio(10**3):
            out.append(math.log10(rate) > math.log10(other))
    return out


def trained(name: str, statement: Answered, wrong: Statement, **rest: Any) -> Part:
    """A question that records of training answer, and the statement with the answer turned round."""
    mutants = (Mutant(name="the other way round", statement=wrong),)
    return Part(name=name, statement=statement, checks=(BY_TRAINING,), mutants=mutants, **rest)


def smaller_is_stabler(name: str, look: str) -> Part:
    statement = questions.SMALLER[look]
    return trained(
        name,
        statement,
        statement.with_larger(),
        expected=Verdict.REFUTED,
        condition="beside Post-LN, at 12 layers: DeepNorm's and Su's row for Adam have smaller updates, and pass at "
        "rates at which it does not",
    )


_S3_49 = Claim(
    id="S3-49",
    kind=Kind.RESULT,
    locator="Takeaways; bounds in the table of normalizations, rates in the GLUE table",
    quote="Smaller model update leads to more stable optimization.",
    summary="a smaller model update makes optimization more stable",
    parts=(
        Part(
            name="the slides' own numbers: printed bounds against printed rates (Pre and Sub have one order: no test)",
            statement=_BOUNDS,
            checks=(_rates_by_limits, _rates_by_numbers),
            mutants=(
                Mutant(name="Post-LN at 2e-3", statement=_BOUNDS.with_(post_rate="2e-3")),
                Mutant(name="Sub-LN of order N^2", statement=_BOUNDS.with_(sub=N**2)),
                Mutant(name="Post-LN Theta(1)", statement=_BOUNDS.with_(post=1)),
            ),
        ),
        smaller_is_stabler("a smaller update at initialisation, a larger stable rate: where it trains", "trains"),
        smaller_is_stabler("a smaller update at initialisation, a larger stable rate: where it learns half", "half"),
        *(
            trained(
                f"within Post-LN: {scheme}, whose update is smaller, trains at a larger rate",
                statement,
                statement.with_reversed(),
            )
            for scheme, statement in questions.WITHIN_POST.items()
        ),
    ),
    finding=Finding(
        "A smaller update at initialisation does not mean more stable training, as the slides of Magneto "
        "conclude, between networks whose norms stand in different places: small Pre-LN and NormFormer "
        "models, whose updates are several times DeepNorm's, still end below the entropy of the labels at "
        "far larger rates. Beside Post-LN it is so: DeepNorm and Su's row for Adam pass where it is stuck",
        rank=70,
        shared_with=("S3-04",),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_49,)
