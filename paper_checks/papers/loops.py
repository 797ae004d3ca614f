"""Looped Transformers: the branch weight that R visits of the same layers want, in models of their first pass and step.

Visits share their weights, so what they add to the stream, and to a gradient, adds up as numbers of one sign do:
R visits count R^2 times, where R layers of their own count R times.
"""

from __future__ import annotations

import math
from functools import cache

import mpmath
from sympy import Expr, Rational, S, simplify, sqrt

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.drawn import norm
from depthlaw.theory.symbols import scratch

_R, _K = scratch("R", positive=True), scratch("K", positive=True)
"""Visits of each layer, and layers of their own."""

# ---------------------------------------------------------------- LT-01: 1/N for N visits


def _at(expr: Expr, visits: int, layers: int = 1) -> float:
    return float(expr.subs({_R: visits, _K: layers}).evalf())


def _stays(values: list[float]) -> bool:
    return abs(math.log(values[-1] / values[0])) < math.log(1.5)


_SCALE = Values.of(
    "with h <- h + {weight} f(h), the same K layers of f visited R times, the stream neither grows with R nor with K",
    weight=1 / (_R * sqrt(_K)),
)


@check(
    Route.PROOF,
    "E |(1 + eps W)^R h|^2 / |h|^2 of a Gaussian W, from 4 visits to 4^8, as a sum of powers of W",
    steps=lambda: (
        "powers of one Gaussian matrix: E |W^k h|^2 = |h|^2, and different powers are at right angles, at large width",
        "so the sum over k of binom(R, k)^2 eps^(2k): at eps = c/R it goes to the Bessel function I_0(2c), at eps = "
        "1/sqrt(R) it grows as exp(2 sqrt(R)); K layers sum to one Gaussian of K times the variance",
    ),
)
def _by_powers(s: Values) -> Answers:
    values = []
    for visits in (4, 4**4, 4**8):
        size = s["weight"].subs(_R, visits) * sqrt(_K)  # of K independent layers together
        if size.has(_K):
            return Answers(holds=[False])
        total = term = mpmath.mpf(1)
        for k in range(1, min(visits, 2000) + 1):
            term *= (mpmath.mpf(visits - k + 1) / k * float(size)) ** 2
            total += term
        values.append(float(mpmath.log(total)) + 1)
    return Answers(holds=[_stays(values)], numbers={"log E |h|^2, and 1": [round(value, 3) for value in values]})


@cache
def _stream(visits: int, layers: int, weight: float) -> float:
    """E x^2 behind drawn ReLU FFNs of RMS norms, 64 wide, visited again and again; mean of 8 draws."""
    import numpy as np

    total = 0.0
    for seed in range(8):
        draw = np.random.default_rng(seed)
        x, pairs = draw.normal(size=64), draw.normal(size=(layers, 2, 64, 64)) / 8
        for _ in range(visits):
            for w1, w2 in pairs:
                x = x + weight * math.sqrt(2) * np.maximum(x / np.sqrt((x**2).mean()) @ w1, 0) @ w2
        total += float((x**2).mean()) / 8
    return total


@check(Route.NUMERIC, "E x^2 of drawn Pre-LN FFNs, 1 and 4 layers, visited 4 and 64 times")
def _in_drawn(s: Values) -> Answers:
    sizes = {k: [_stream(r, k, _at(s["weight"], r, k)) for r in (4, 64)] for k in (1, 4)}
    holds = [_stays(values) for values in (*sizes.values(), [sizes[1][1], sizes[4][1]])]
    numbers = {f"{k} layers, 4 and 64 visits": [round(value, 3) for value in values] for k, values in sizes.items()}
    return Answers(holds=holds, numbers=numbers)


_LT_01 = claim(
    "LT-01",
    kind=Kind.RESULT,
    name="the stream, at initialisation",
    locator="abstract",
    quote="1/sqrt(L) is insufficient for looped Transformers: weight sharing requires 1/N for N visits, and "
    "lambda/(N sqrt(L)) for L unique layers",
    summary="the same K layers visited R times want a branch weight of 1/(R sqrt(K)), not 1/sqrt(R K)",
    statement=_SCALE,
    checks=(_by_powers, _in_drawn),
    mutants=changed(_SCALE, weight=[1 / sqrt(_R * _K), 1 / _R, 1 / sqrt(_R)]),
)

# ---------------------------------------------------------------- LO-02: DeepNorm by visits

_VISITS = Values.of(
    "post-norms with alpha = L^{power} and beta = (4L)^(-{power}), L = R K sublayers of which K are their own: SGD's "
    "first update neither grows nor vanishes with the number R of visits",
    power=S.Half,
)


@cache
def _update(visits: int, layers: int, power: float) -> float:
    """The sum of squared gradients over the width, of drawn ReLU FFNs with post-norms, 64 wide; mean of 3 draws."""
    import torch

    total, count = 0.0, visits * layers
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        shape = (layers, 2, 64, 64)
        matrices = torch.randn(shape, generator=draw, dtype=torch.float64) / 8 * (4 * count) ** -power
        matrices.requires_grad_()
        x, readout = (torch.randn(64, generator=draw, dtype=torch.float64) for _ in range(2))
        for _ in range(visits):
            for w1, w2 in matrices:
                x = norm(count**power * x + (x @ w1).relu() @ w2)
        (gradient,) = torch.autograd.grad(x @ readout, matrices)
        total += float(gradient.square().sum()) / 64 / 3
    return total


@check(
    Route.ARITHMETIC,
    "the power of R in K R^2 beta^2 / alpha^2: gradients of R visits are alike, and add up before they are squared",
)
def _by_alike(s: Values) -> Answers:
    length, power = _R * _K, s["power"]
    ratio = simplify(_K * _R**2 * (4 * length) ** (-2 * power) / length ** (2 * power))
    return Answers(holds=[not ratio.has(_R)], numbers={"update": str(ratio)})


@check(Route.MEASURED, "drawn stacks of 1 and 4 sublayers, visited 4 and 32 times")
def _by_gradients(s: Values) -> Answers:
    updates = {k: [_update(r, k, float(s["power"])) for r in (4, 32)] for k in (1, 4)}
    numbers = {
        f"{k} sublayers, 4 and 32 visits": [round(value, 3) for value in values] for k, values in updates.items()
    }
    return Answers(holds=[_stays(values) for values in updates.values()], numbers=numbers)


_LO_02 = claim(
    "LO-02",
    kind=Kind.RESULT,
    name="SGD's first update, at initialisation, at fixed K; with K it vanishes as 1/K",
    locator="abstract",
    quote="in the conservative aligned regime the exponent has to increase from 1/4 to 1/2 as the loop count grows at "
    "fixed physical depth: alpha = (2N)^(1/2) and beta = (8N)^(-1/2) for unrolled depth N",
    summary="DeepNorm's exponent has to be 1/2 instead of 1/4 where layers are looped: visits of one layer are alike",
    statement=_VISITS,
    checks=(_by_alike, _by_gradients),
    mutants=changed(_VISITS, power=[Rational(1, 4), Rational(3, 4)]),
)

CLAIMS = (_LT_01, _LO_02)
