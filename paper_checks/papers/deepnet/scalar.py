"""The scalar model of DeepNet's theorems in rational numbers: where a bound on its slopes fails, exactly.

One sublayer is f(x) = (alpha + v w) / sqrt(alpha^2 + v^2 w^2) x, with d = 1, 0 < v, w < 1 < alpha; a cross-attention is
(alpha y + v w x) / sqrt(alpha^2 + v^2 w^2). With r = v w / alpha = 2t/(1 - t^2) the root is rational, and all else too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

from sympy import Expr, sqrt

from paper_checks.claims.claim import Check, Evidence, Route
from paper_checks.routes import algebra
from paper_checks.routes.checks import outcome
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

EACH: Expr = sqrt(v**2 + w**2) / alpha
"""What the theorems take ||df/d(v, w)|| to be."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One sublayer: t gives r = v w / alpha, and alpha with it a v and a w."""

    t: Fraction
    alpha: Fraction

    @property
    def ratio(self) -> Fraction:
        return 2 * self.t / (1 - self.t**2)

    @property
    def v(self) -> Fraction:
        return (1 + self.ratio * self.alpha) / 2

    @property
    def w(self) -> Fraction:
        return self.ratio * self.alpha / self.v

    @property
    def keeps(self) -> Fraction:
        """1/sqrt(1 + r^2): what a cross-attention passes on of the stream."""
        return (1 - self.t**2) / (1 + self.t**2)

    @property
    def slope(self) -> Fraction:
        """df/dx."""
        return (1 + self.ratio) * self.keeps

    @property
    def own(self) -> Fraction:
        """||df/d(v, w)|| at x = 1, over ``EACH``."""
        return (1 - self.ratio) * self.keeps**3


def sublayers(ts: Sequence[Fraction]) -> list[Weights]:
    """Sublayers of one alpha > 1, every t below sqrt(2) - 1: then every v and w lies between 0 and 1."""
    largest = max(Weights(t=t, alpha=Fraction(1)).ratio for t in ts)
    return [Weights(t=t, alpha=(1 + 1 / largest) / 2) for t in ts]


@dataclass(frozen=True)
class ScalarBound:
    """||dF/dtheta_i|| is at most ``each``; has_chain: times the size of what enters sublayer i and the slopes above."""

    each: Expr
    has_chain: bool = False

    @property
    def text(self) -> str:
        rest = ", times the size of what enters sublayer i and the slopes above it" if self.has_chain else ""
        return f"||dF|| <= sum_i s_i ||theta_i* - theta_i||, s_i = {self.each}{rest}, for all 0 < v, w < 1 < alpha"

    def holds_of(self, one: Weights, true: Fraction, chained: Fraction) -> bool:
        """true: ||dF/dtheta_i|| over ``EACH``; chained: what the amended bound multiplies by."""
        square = algebra.value_at(self.each**2, (alpha, v, w), (one.alpha, one.v, one.w))
        found = (one.v**2 + one.w**2) / one.alpha**2 * true**2
        return found <= square * (chained if self.has_chain else 1) ** 2


def _product(factors: Sequence[Any]) -> Any:
    return math.prod(factors)


def stack_holds(s: ScalarBound, stack: Sequence[Weights]) -> bool:
    """Whether the bound holds for every sublayer of a stack whose input is 1."""
    whole = _product([one.slope for one in stack])
    return all(s.holds_of(one, one.own * whole / one.slope, whole / one.slope) for one in stack)


def sensitivities(encoder: Sequence[Any], decoder: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """By sublayer of an encoder, and of a decoder of (self, cross, ffn), whose inputs are 1: (true, chain).

    true: ||dF/dtheta|| over what is printed; chain: what the bound of ``has_chain`` multiplies that by. For the encoder
    the bound is times the sum of v w / alpha over the cross-attentions, and ``has_chain`` has the slopes above each of
    them in it.
    """
    memory = _product([one.slope for one in encoder])  # the encoder's output
    size, true, printed, chained = 1, 0, 0, 0
    entering: list[tuple[Any, Any, Any, Any]] = []  # own, its bound, and the two slopes
    for index, one in enumerate(decoder):
        if index % 3 == 1:
            entering.append((abs(memory - one.ratio * size) * one.keeps**3, max(memory, size), one.keeps, 1))
            size = (size + one.ratio * memory) * one.keeps
            true, printed, chained = (true + one.ratio) * one.keeps, printed + one.ratio, chained + one.ratio
        else:
            entering.append((size * one.own, size, one.slope, one.slope))
            size, true, chained = size * one.slope, true * one.slope, chained * one.slope
    above, most = 1, 1
    of_decoder = []
    for found, allowed, slope, bound in reversed(entering):
        of_decoder.append((found * above, allowed * most))
        above, most = above * slope, most * bound
    rest = [memory / one.slope for one in encoder]
    of_encoder = [
        (one.own * other * true / printed, other * chained / printed) for one, other in zip(encoder, rest, strict=True)
    ]
    return of_encoder, of_decoder[::-1]


def both_hold(s: ScalarBound, encoder: Sequence[Weights], decoder: Sequence[Weights]) -> bool:
    """Whether the bound holds for every sublayer of both sides."""
    found = chain(*sensitivities(encoder, decoder))
    return all(s.holds_of(one, *pair) for one, pair in zip((*encoder, *decoder), found, strict=True))


def searched(detail: str, *, is_decoder: bool) -> Check:
    """A search for weights inside the hypotheses that break a ``ScalarBound``, in rational numbers."""

    def run(s: ScalarBound) -> Evidence:
        from hypothesis import strategies as st

        from paper_checks.routes.search import search

        def stack(size: int) -> Any:
            t = st.integers(1, 41).map(lambda n: Fraction(n, 100))
            layers = st.lists(st.tuples(*[t] * size), min_size=1, max_size=3)
            return layers.map(lambda found: sublayers([t for layer in found for t in layer]))

        def holds(case: Any) -> bool:
            return both_hold(s, *case) if is_decoder else stack_holds(s, case[0])

        cases = st.tuples(stack(2), stack(3)) if is_decoder else st.tuples(stack(2))
        found = search(cases, holds, max_examples=60)
        return Evidence(
            route=Route.PROPERTY,
            num_effective=found.num_effective,
            verdict=outcome(found.found is None),
            detail=detail,
        )

    return Check(route=Route.PROPERTY, run=run, is_direct=True)
