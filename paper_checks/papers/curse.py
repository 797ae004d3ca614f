"""The Curse of Depth (LayerNorm Scaling): how the stream of a Pre-LN network grows, and what its remedy makes of it.

All of it speaks of initialisation, in the model of its lemma: layers independent of one another and of mean 0, norms
before the branches. What the abstract says of trained models takes training.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from sympy import Rational, S, Symbol, exp, expand_log, log, series, simplify, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, awaits, check, python_command
from depthlaw.paper_checks.routes.signal_propagation.streams import STREAM, StreamOrder
from depthlaw.theory.symbols import L, scratch

_TRAINED = "variances of the stream by layer along training, of Pre-LN networks of several depths"

# ---------------------------------------------------------------- CD-01: the variance of Pre-LN

_LEMMA = StreamOrder(scheme="pre-ln", low=L, high=exp(L))
_ABSTRACT = StreamOrder(scheme="pre-ln", low=exp(L), high=exp(L))

_CD_01 = Claim(
    id="CD-01",
    kind=Kind.RESULT,
    locator="(7), and the abstract",
    quote="Theta(L) <= sigma_L^2 <= Theta(exp L); the abstract: the output variance exponentially grows with the depth",
    summary="Pre-LN: the stream's variance lies between Theta(L) and Theta(exp L), and grows exponentially",
    parts=(
        Part(
            name="the lemma, at initialisation",
            statement=_LEMMA,
            checks=STREAM,
            mutants=changed(_LEMMA, low=[L ** Rational(5, 4), L**2], high=[L ** Rational(3, 4), S.One]),
        ),
        Part(
            name="the abstract's word, in the lemma's model",
            statement=_ABSTRACT,
            checks=STREAM,
            mutants=changed(_ABSTRACT, low=L**2, high=log(L)),
            expected=Verdict.REFUTED,
            instead=Amendment(statement=_ABSTRACT.with_(low=L, high=L), text="the variance grows linearly, as L"),
            condition="branches whose covariance with the stream stays positive, as training may make them",
        ),
        Part(
            name="the abstract's word, after training",
            statement=_ABSTRACT,
            checks=(awaits(_TRAINED),),
            expected=Verdict.UNDECIDED,
            open=_TRAINED,
        ),
    ),
    finding=Finding(
        "Pre-LN's variance does not grow exponentially with depth where the lemma of the Curse of Depth holds, at "
        "initialisation: it grows as L",
        rank=60,
    ),
)

# ---------------------------------------------------------------- CD-02: the product

_LOOKED_AT = (10**2, 10**4, 10**6)
_LAYERS = np.arange(1.0, _LOOKED_AT[-1] + 1)

_PRODUCT = Values.of("sigma_l^2 = sigma_1^2 Theta(product over k of (1 + (s/sigma_k)^{power})), s of a branch", power=1)


@check(
    Route.PROOF,
    "sigma_(k+1)^2 = sigma_k^2 + s^2 of independent branches, over sigma_k^2",
    steps=lambda: (
        "independent branches of mean 0: sigma_(k+1)^2 = sigma_k^2 + s^2 = sigma_k^2 (1 + (s/sigma_k)^2)",
        "(s/sigma_k)^1 is a correlation between branch and stream, which independence excludes",
    ),
)
def _ratio(s: Values) -> list[bool | None]:
    stream, branch = Symbol("sigma", positive=True), Symbol("s", positive=True)
    factor = 1 + (branch / stream) ** s["power"]
    return [simplify((stream**2 + branch**2) / stream**2 - factor) == 0]


@check(Route.NUMERIC, "the printed product against 1 + k s^2, to 10^2, 10^4 and 10^6 layers, s^2 = 1 and 1/2")
def _products(s: Values) -> Answers:
    holds: list[bool | None] = []
    numbers, power = {}, float(s["power"])
    for share in (Fraction(1), Fraction(1, 2)):
        variance = 1 + (_LAYERS - 1) * float(share)
        totals = np.log1p((float(share) / variance) ** (power / 2)).cumsum()
        ratios = [float(totals[k - 1]) - math.log(1 + k * float(share)) for k in _LOOKED_AT]
        holds.append(algebra.settles(ratios))
        numbers[f"log(product / variance), s^2 = {share}"] = [round(ratio, 4) for ratio in ratios]
    code = "import math; print(*[math.prod(1 + k**-0.5 for k in range(1, n)) / n for n in (10, 100)])"
    example = {
        "printed": s.text,
        "found": "with sigma_k^2 = k, which independent branches of variance 1 give, the product is exp(2 sqrt(l))",
        "command": python_command(code),
    }
    return Answers(holds=holds, numbers=numbers, counterexample=None if all(holds) else example)


_CD_02 = claim(
    "CD-02",
    kind=Kind.STEP,
    name="at initialisation",
    locator="(6)",
    quote="sigma_l^2 = sigma_1^2 Theta(prod_k (1 + 1/sigma_k)), layers independent, of mean 0",
    summary="the variance of the stream is the product of 1 + 1/sigma_k over the layers",
    statement=_PRODUCT,
    checks=(_ratio, _products),
    mutants=changed(_PRODUCT, power=[3, Rational(1, 2)]),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_PRODUCT.with_(power=2), text="the factors are 1 + (s/sigma_k)^2, s^2 what a branch adds"
    ),
    condition="branches that are correlated with the stream",
    finding=Finding(
        "Of independent layers, which the Curse of Depth assumes, each multiplies the variance by 1 + 1/sigma^2, not "
        "by 1 + 1/sigma: the variance then is of order L, not exp(sqrt L)",
        rank=61,
    ),
)

# ---------------------------------------------------------------- CD-03: the bound of the Jacobian

_A, _B = scratch("A", positive=True), scratch("B", positive=True)
_BOUND = Values.of(
    "with sigma_k^2 = k, the product over k up to L of (1 + A/sigma_k + B/sigma_k^2) is of order {order}", order=L
)


@check(
    Route.PROOF,
    "log of the product: the sums of its series in k^(-1/2), to the term that converges",
    steps=lambda: (
        "log(1 + A k^(-1/2) + B k^(-1)) = A k^(-1/2) + (B - A^2/2) k^(-1) + O(k^(-3/2))",
        "summed to L: 2 A sqrt(L) + (B - A^2/2) log L + O(1)",
    ),
)
def _bound_of_series(s: Values) -> list[bool | None]:
    z = Symbol("z", positive=True)
    terms = series(log(1 + _A * z + _B * z**2), z, 0, 3).removeO()
    exponent = 2 * terms.coeff(z, 1) * sqrt(L) + terms.coeff(z, 2) * log(L)
    return [simplify(expand_log(log(s["order"])) - exponent) == 0]


@check(Route.NUMERIC, "the product over the printed order at 10^2, 10^4 and 10^6, A and B of 1/2, 1 and 2")
def _bound_in_numbers(s: Values) -> Answers:
    holds: list[bool | None] = []
    for a, b in ((1.0, 1.0), (0.5, 2.0), (2.0, 0.5)):
        totals = np.log1p(a * _LAYERS**-0.5 + b / _LAYERS).cumsum()
        printed = [float(log(s["order"]).subs({_A: a, _B: b, L: k}).evalf()) for k in _LOOKED_AT]
        ratios = [float(totals[k - 1]) - order for k, order in zip(_LOOKED_AT, printed, strict=True)]
        holds.append(algebra.settles(ratios))
    code = "import math; print(*[math.prod(1 + k**-0.5 + 1/k for k in range(1, n + 1)) / n for n in (10, 100, 1000)])"
    example = {
        "printed": s.text,
        "found": "A/sigma_k adds up to 2 A sqrt(L) in the exponent, so the bound grows as exp(2 A sqrt(L))",
        "command": python_command(code),
    }
    return Answers(holds=holds, counterexample=None if all(holds) else example)


_CD_03 = claim(
    "CD-03",
    kind=Kind.STEP,
    name="what the bound comes to, at initialisation",
    locator="(9) to (11)",
    quote="the norm of the derivative of y_L by x_1 is at most the product of 1 + A/sigma_k + B/sigma_k^2; with a "
    "variance that grows as l it is at most Theta(L)",
    summary="with a variance of l the product of 1 + A/sigma_k + B/sigma_k^2 is of order L",
    statement=_BOUND,
    checks=(_bound_of_series, _bound_in_numbers),
    mutants=changed(_BOUND, order=[L**2, exp(sqrt(L))]),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_BOUND.with_(order=exp(2 * _A * sqrt(L)) * L ** (_B - _A**2 / 2)),
        text="the product is of order exp(2 A sqrt(L)) L^(B - A^2/2)",
    ),
    condition="A = 0: what is left is L^B",
    finding=Finding(
        "The Curse of Depth's bound of the Jacobian, a product of 1 + A/sigma + B/sigma^2, is of order "
        "exp(2 A sqrt(L)) where the variance grows as l, not L",
        rank=65,
    ),
)

# ---------------------------------------------------------------- CD-04: LayerNorm Scaling

_SCALED = StreamOrder(scheme="ln-scaling", low=L, high=L ** Rational(3, 2))

_CD_04 = claim(
    "CD-04",
    kind=Kind.RESULT,
    name="at initialisation",
    locator="(14)",
    quote="LNS: Theta(L) <= sigma_L^2 <= Theta(L^(2 - eps)), 1/2 <= eps < 1",
    summary="with LayerNorm Scaling the variance of the stream is between Theta(L) and Theta(L^(3/2))",
    statement=_SCALED,
    checks=STREAM,
    mutants=changed(_SCALED, low=[L**2, L ** Rational(3, 4)], high=S.One),
    expected=Verdict.REFUTED,
    instead=Amendment(
        statement=_SCALED.with_(low=log(L), high=log(L)), text="LayerNorm Scaling's variance grows as log L"
    ),
    condition="branches that do not become smaller with the layer's index, as training may make them",
    finding=Finding(
        "With LayerNorm Scaling the variance of the stream grows as log L at initialisation, so it is below the lower "
        "bound that is printed, Theta(L)",
        rank=62,
    ),
)

# ---------------------------------------------------------------- CD-07: with scaled initialisation

_BOTH = StreamOrder(scheme="ln-scaling", gains=(None, 1 / sqrt(L)), low=S.One, high=S.One)
_RUNS = "training runs of LayerNorm Scaling with and without scaled initialisation"

_CD_07 = Claim(
    id="CD-07",
    kind=Kind.RESULT,
    locator="the README of the code",
    quote="LNS together with scaled init is worse than LNS alone",
    summary="scaled initialisation on top of LayerNorm Scaling makes it worse: branches are then scaled down twice",
    parts=(
        Part(
            name="scaled down twice: the stream does not grow at all, at initialisation",
            statement=_BOTH,
            checks=STREAM,
            mutants=changed(_BOTH, low=[log(L)], high=[1 / L]),
        ),
        Part(
            name="worse, in training",
            statement=Values.of("the loss with both is higher"),
            checks=(awaits(_RUNS),),
            expected=Verdict.UNDECIDED,
            open=_RUNS,
        ),
    ),
)

CLAIMS = (_CD_01, _CD_02, _CD_03, _CD_04, _CD_07)
