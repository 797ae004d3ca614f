"""mHC: products of doubly stochastic matrices, which mix n streams between the layers.

Of the trained maps whose composite gains are printed, only numbers are known; what the constraint gives is judged.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations
from typing import Any

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, python_command

_STREAMS, _MAPS = 4, 60


@cache
def _exact_product() -> list[list[Fraction]]:
    """Of 60 doubly stochastic matrices, each a mean of permutations with whole weights: no rounding anywhere."""
    every = list(permutations(range(_STREAMS)))
    product = [[Fraction(i == j) for j in range(_STREAMS)] for i in range(_STREAMS)]
    for index in range(_MAPS):
        weights = [1 + (7 * index + 5 * k) % 11 for k in range(len(every))]
        share = [[Fraction(0)] * _STREAMS for _ in range(_STREAMS)]
        for weight, order in zip(weights, every, strict=True):
            for i, j in enumerate(order):
                share[i][j] += Fraction(weight, sum(weights))
        rows = range(_STREAMS)
        product = [[sum((share[i][k] * product[k][j] for k in rows), Fraction(0)) for j in rows] for i in rows]
    return product


@cache
def _drawn_product() -> Any:
    """Of 60 matrices that 20 rounds of Sinkhorn make of exp of standard normal entries, as mHC projects its maps."""
    import numpy as np

    draw, product = np.random.default_rng(1), np.eye(_STREAMS)
    for _ in range(_MAPS):
        matrix = np.exp(draw.normal(size=(_STREAMS, _STREAMS)))
        for _ in range(20):
            matrix /= matrix.sum(1, keepdims=True)
            matrix /= matrix.sum(0, keepdims=True)
        product = matrix @ product
    return product


def _gain(product: Any) -> float:
    """The largest sum of absolute values in a row or a column: forwards, and of gradients."""
    rows = [[abs(float(entry)) for entry in row] for row in product]
    return max(*map(sum, rows), *map(sum, zip(*rows, strict=True)))


# ---------------------------------------------------------------- HC-01: the composite gain

_GAIN = Values.of("a product of doubly stochastic matrices has a gain of {gain}, however many there are", gain=1)
_TRAINED = "the maps of trained HC and mHC models, layer by layer"


@check(
    Route.PROOF,
    "row and column sums of a product of 60, in fractions",
    steps=lambda: (
        "A 1 = 1 and B 1 = 1 give A B 1 = 1, and 1'A = 1' and 1'B = 1' give 1'A B = 1'; no entry is below 0",
    ),
)
def _sums(s: Values) -> list[bool | None]:
    product = _exact_product()
    return [sum(line) == s["gain"] for line in (*product, *zip(*product, strict=True))]


@check(Route.NUMERIC, "the gain of a product of 60 drawn matrices behind 20 rounds of Sinkhorn")
def _of_sinkhorn(s: Values) -> Answers:
    gain = _gain(_drawn_product())
    return Answers(holds=[abs(gain - float(s["gain"])) < 0.01], numbers={"gain": gain})


_HC_01 = Claim(
    id="HC-01",
    kind=Kind.RESULT,
    locator="the figures on propagation",
    quote="the composite mapping's gain peaks at about 3,000 with HC, and at about 1.6 with mHC",
    summary="mHC's doubly stochastic maps keep the composite gain near 1 (1.6 is printed), where HC's is about 3,000",
    parts=(
        Part(
            name="what the constraint gives",
            statement=_GAIN,
            checks=(_sums, _of_sinkhorn),
            mutants=changed(_GAIN, gain=[0, 2]),
        ),
        Part(
            name="the printed gains, in training",
            statement=Values.of("gains of {hc} and 1.6", hc=3000),
            checks=(awaits(_TRAINED),),
            expected=Verdict.UNDECIDED,
            open=_TRAINED,
        ),
    ),
)

# ---------------------------------------------------------------- HC-02: the identity mapping

_MEAN = Values.of("through doubly stochastic maps the {what} over the streams comes out as it went in", what="mean")


@check(Route.PROOF, "the product of 60 in fractions, on the streams' mean and on their differences")
def _what_stays(s: Values) -> Answers:
    product = _exact_product()
    columns = list(zip(*product, strict=True))
    stays = {
        "mean": all(sum(column) == 1 for column in columns),
        "differences": all(product[i][j] == (i == j) for i in range(_STREAMS) for j in range(_STREAMS)),
        "sum of squares": all(sum(entry**2 for entry in column) == 1 for column in columns),
    }[s["what"]]
    left = max(abs(float(first - second)) for row in product for first, second in pairwise(row))
    code = (
        "import numpy as np; A = np.full((4, 4), 0.1) + 0.6*np.eye(4); "
        "print(*[abs(np.diff(np.linalg.matrix_power(A, n)[0])).max() for n in (1, 10, 60)])"
    )
    example = {
        "printed": s.text,
        "found": f"of a difference between two streams 60 maps leave {left:.1e}; 0.6 of it each, where each map mixes "
        "a tenth of every other stream in",
        "command": python_command(code),
    }
    return Answers(holds=[stays], numbers={"left": left}, counterexample=None if stays else example)


@check(Route.NUMERIC, "the same of 60 drawn matrices behind Sinkhorn")
def _what_stays_drawn(s: Values) -> list[bool | None]:
    product = _drawn_product()
    stays = {
        "mean": abs(product.sum(0) - 1).max() < 1e-6,
        "differences": abs(product - product.round()).max() < 1e-6,
        "sum of squares": abs((product**2).sum(0) - 1).max() < 1e-6,
    }
    return [bool(stays[s["what"]])]


_HC_02 = Claim(
    id="HC-02",
    kind=Kind.RESULT,
    locator="abstract and the section on the manifold",
    quote="doubly stochastic residual maps restore the identity mapping property",
    summary="doubly stochastic mixing restores the identity mapping of the residual streams",
    parts=(
        Part(
            name="of the streams' mean",
            statement=_MEAN,
            checks=(_what_stays, _what_stays_drawn),
            mutants=changed(_MEAN, what="sum of squares"),
        ),
        Part(
            name="of the streams themselves",
            statement=_MEAN.with_(what="differences"),
            checks=(_what_stays, _what_stays_drawn),
            mutants=changed(_MEAN, what="sum of squares"),
            expected=Verdict.REFUTED,
            instead=Amendment(statement=_MEAN, text="the mean over the streams is kept, their differences die out"),
            condition="maps that are permutations; or of the mean alone",
        ),
    ),
    finding=Finding(
        "mHC's doubly stochastic maps keep the mean of the streams alone: what differs between streams dies out "
        "exponentially with depth, unless the maps are permutations",
        rank=68,
    ),
)

CLAIMS = (_HC_01, _HC_02)
