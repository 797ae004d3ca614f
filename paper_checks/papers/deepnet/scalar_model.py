"""The scalar model of DeepNet's proofs in any kind of numbers, and the bounds of its theorems held against it.

One sublayer is f(x) = (alpha + v w) / sqrt(alpha^2 + v^2 w^2) x, with d = 1, 0 < v, w < 1 < alpha; a cross-attention is
(alpha y + v w x) / sqrt(alpha^2 + v^2 w^2). The printed scales lie inside those hypotheses. With r = v w / alpha =
2t/(1 - t^2) the root is rational, and all else too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import mpmath
from sympy import Expr, Float, S, lambdify, sqrt

from paper_checks.claims.claim import Check, Mutant, Route
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.parts import PRINTED
from paper_checks.routes import algebra, one_liners
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.search import search
from theory.symbols import M, N, scratch
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

EACH: Expr = sqrt(v**2 + w**2) / alpha
"""What the theorems take ||df/d(v, w)|| to be."""
_CHAIN = scratch("C", positive=True)
_LETTERS = (alpha, v, w, _CHAIN)
_WORDS = "||dF|| <= sum_i s_i ||theta_i* - theta_i||, s_i = {each}, for all 0 < v, w < 1 < alpha"
BOUND = Values.of(_WORDS, each=EACH)
CHAINED = Values.of(_WORDS + "; C: the size of what enters sublayer i times the slopes above it", each=_CHAIN * EACH)
MUTANTS = (
    Mutant(name="1/alpha^2", statement=BOUND.with_(each=EACH / alpha)),
    Mutant(name="half", statement=CHAINED.with_(each=_CHAIN * EACH / 2)),
)


class Sublayer(NamedTuple):
    """keeps: 1/sqrt(1 + r^2), what a cross-attention passes on of the stream."""

    alpha: Any
    v: Any
    w: Any
    keeps: Any

    @property
    def ratio(self) -> Any:
        return self.v * self.w / self.alpha

    @property
    def slope(self) -> Any:
        """df/dx."""
        return (1 + self.ratio) * self.keeps

    @property
    def own(self) -> Any:
        """||df/d(v, w)|| at x = 1, over ``EACH``."""
        return (1 - self.ratio) * self.keeps**3


def sublayer(alpha: Any, v: Any, w: Any) -> Sublayer:
    return Sublayer(alpha, v, w, (1 + (v * w / alpha) ** 2) ** -0.5)


def rational(ts: Sequence[Fraction]) -> list[Sublayer]:
    """Sublayers of one alpha > 1 in fractions; every t is below sqrt(2) - 1, so that v and w lie between 0 and 1."""
    ratios = [2 * t / (1 - t**2) for t in ts]
    a = (1 + 1 / max(ratios)) / 2
    gains = [(1 + ratio * a) / 2 for ratio in ratios]
    return [
        Sublayer(a, gain, ratio * a / gain, (1 - t**2) / (1 + t**2))
        for t, ratio, gain in zip(ts, ratios, gains, strict=True)
    ]


def output(encoder: Sequence[Sublayer], decoder: Sequence[Sublayer]) -> Any:
    """F of an input of 1 on either side; the encoder's output where there is no decoder."""
    memory = math.prod(part.slope for part in encoder)
    y: Any = 1
    for index, part in enumerate(decoder):
        y = (y + part.ratio * memory) * part.keeps if index % 3 == 1 else y * part.slope
    return y if decoder else memory


def sensitivities(encoder: Sequence[Sublayer], decoder: Sequence[Sublayer]) -> tuple[list[Any], list[Any]]:
    """By sublayer of an encoder, and of a decoder of (self, cross, ffn), whose inputs are 1: (true, chain).

    true: ||dF/dtheta|| over what is printed; chain: what the amended bound multiplies that by. Where there is a decoder
    the encoder's bound is times the sum of v w / alpha over the cross-attentions, and the amended one has the slopes
    above each of them in it.
    """
    memory = math.prod(part.slope for part in encoder)  # the encoder's output
    size, true, printed, chained = (1, 0, 0, 0) if decoder else (1, 1, 1, 1)
    entering: list[tuple[Any, Any, Any, Any]] = []  # own, its bound, and the two slopes
    for index, part in enumerate(decoder):
        if index % 3 == 1:
            entering.append((abs(memory - part.ratio * size) * part.keeps**3, max(memory, size), part.keeps, 1))
            size = (size + part.ratio * memory) * part.keeps
            true, printed, chained = (true + part.ratio) * part.keeps, printed + part.ratio, chained + part.ratio
        else:
            entering.append((size * part.own, size, part.slope, part.slope))
            size, true, chained = size * part.slope, true * part.slope, chained * part.slope
    above, most = 1, 1
    of_decoder = []
    for own, allowed, slope, bound in reversed(entering):
        of_decoder.append((own * above, allowed * most))
        above, most = above * slope, most * bound
    rest = [memory / part.slope for part in encoder]
    of_encoder = [
        (part.own * other * true / printed, other * chained / printed)
        for part, other in zip(encoder, rest, strict=True)
    ]
    return of_encoder, of_decoder[::-1]


# ---------------------------------------------------------------- the bounds, in fractions


def _searched(detail: str, of_two: bool) -> Check:
    """A search for weights inside the hypotheses that break a bound."""

    def decide(s: Values) -> Answers:
        from hypothesis import strategies as st

        def stack(size: int) -> Any:
            t = st.integers(1, 41).map(lambda n: Fraction(n, 100))
            layers = st.lists(st.tuples(*[t] * size), min_size=1, max_size=3)
            return layers.map(lambda rows: rational([t for row in rows for t in row]))

        def is_below(part: Sublayer, true: Fraction, chained: Fraction) -> bool:
            square = algebra.value_at(s["each"] ** 2, _LETTERS, (part.alpha, part.v, part.w, chained))
            return (part.v**2 + part.w**2) / part.alpha**2 * true**2 <= square

        def holds(sides: tuple[list[Sublayer], list[Sublayer]]) -> bool:
            pairs = zip(chain(*sides), chain(*sensitivities(*sides)), strict=True)
            return all(is_below(part, *pair) for part, pair in pairs)

        result = search(st.tuples(stack(2), stack(3) if of_two else st.just([])), holds, max_examples=60)
        return Answers(holds=[result.found is None], num_effective=result.num_effective)

    return check(Route.PROPERTY, detail, decide, is_direct=True)


# ---------------------------------------------------------------- a step at DeepNet's own alpha and beta

_DIGITS, _STEP = 50, 20
"""Decimal digits, and how small a step is: 10^-20, so that its second order is below what is shown."""


def _name(num_layers: int, of_two: bool) -> str:
    return f"N = {'M = ' * of_two}{num_layers}"


def _sides(num_layers: int, of_two: bool) -> Iterator[list[Sublayer]]:
    for name, per_layer in {"encoder of two": 2, "decoder of two": 3}.items() if of_two else [("encoder", 2)]:
        at = {N: num_layers, M: num_layers}
        a, b = (mpmath.mpf(str(expr.subs(at).evalf(_DIGITS + 10))) for expr in PRINTED[name])
        yield [sublayer(a, b, b)] * (per_layer * num_layers)
    if not of_two:
        yield []


def _over_bound(s: Values, encoder: list[Sublayer], decoder: list[Sublayer]) -> dict[str, Any]:
    """|F(theta*) - F(theta)| over its bound, one sublayer moved or all of them by the same length."""
    each = lambdify(_LETTERS, s["each"], modules="mpmath")
    both, split = [*encoder, *decoder], len(encoder)
    chains = [chained for side in sensitivities(encoder, decoder) for _, chained in side]
    coupling = sum(part.ratio for part in decoder[1::3]) if decoder else 1
    bounds = [
        each(part.alpha, part.v, part.w, chained) * (coupling if index < split else 1)
        for index, (part, chained) in enumerate(zip(both, chains, strict=True))
    ]
    step = mpmath.mpf(10) ** -_STEP
    places: dict[str, Sequence[int]] = {"theta_1 alone": [0], "all alike": range(len(bounds))}
    if decoder:
        places["the first cross-attention alone"] = [split + 1]
    ratios = {}
    for name, moving in places.items():
        after = list(both)
        for i in moving:  # along (1, 1), the gradient's direction at v = w
            after[i] = sublayer(both[i].alpha, *(gain + step / mpmath.sqrt(2) for gain in (both[i].v, both[i].w)))
        moved = abs(output(after[:split], after[split:]) - output(encoder, decoder))
        ratios[name] = moved / (step * sum(bounds[i] for i in moving))
    return ratios


def _stepped(printed: str, command: str, of_two: bool) -> Check:
    """A step of the scalar model at DeepNet's own alpha and beta, held against the bound."""

    def decide(s: Values) -> Answers:
        with mpmath.workdps(_DIGITS):
            ratios = {_name(n, of_two): _over_bound(s, *_sides(n, of_two)) for n in (2, 18, 100)}
            holds = [bool(ratio <= 1) for row in ratios.values() for ratio in row.values()]
        shown = {name: {what: f"{float(x):.4g}" for what, x in row.items()} for name, row in ratios.items()}
        by_depth = ", ".join(f"{row['all alike']} at {name}" for name, row in shown.items())
        example = {
            "printed": printed,
            "found": f"at DeepNet's own alpha and beta, all sublayers moved alike, ||dF|| over that is {by_depth}",
            "command": command,
            "over the bound": shown,
        }
        return Answers(holds=holds, numbers=shown, counterexample=None if all(holds) else example)

    detail = (
        "|F(theta*) - F(theta)| of the scalar model over the bound, at DeepNet's own alpha and beta, by "
        f"steps of 10^-{_STEP} in {_DIGITS} digits"
    )
    return check(Route.NUMERIC, detail, decide, is_direct=True)


# ---------------------------------------------------------------- the derived slopes there


def _scale(name: str, num_layers: int) -> tuple[Expr, Expr, Expr]:
    """alpha, v and w to 40 digits."""
    a, b = (Float(expr.subs({N: num_layers, M: num_layers}).evalf(40), 40) for expr in PRINTED[name])
    return a, b, b


def _by_theory(num_layers: int, of_two: bool) -> Mapping[str, tuple[tuple[Expr, Expr, Expr], Expr, Expr]]:
    """Of theta_1 of each side: (alpha, v, w), the size of its derivative, and what the amended bound multiplies by."""
    from theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    name, encoder = _name(num_layers, of_two), _scale("encoder of two" if of_two else "encoder", num_layers)
    below = scalar_slope(*encoder) ** (2 * num_layers - 1)
    own = scalar_sensitivity(*encoder) * below
    if not of_two:
        return {f"theta_1, {name}": (encoder, own, below)}
    decoder = _scale("decoder of two", num_layers)
    stream, memory = (slope.subs(dict(zip((alpha, v, w), decoder, strict=True))) for slope in cross_slopes(alpha, v, w))
    slope, layers = scalar_slope(*decoder), range(num_layers)
    above = slope ** (2 * num_layers - 1)
    coupling = num_layers * decoder[1] * decoder[2] / decoder[0]
    entering = sum((memory * slope * (slope**2 * stream) ** k for k in layers), S.Zero) / coupling
    chained = sum((slope ** (1 + 2 * k) for k in layers), S.Zero) / num_layers
    return {
        f"the encoder's theta_1, {name}": (encoder, own * entering, below * chained),
        f"the decoder's theta_1, {name}": (decoder, scalar_sensitivity(*decoder) * above * stream**num_layers, above),
    }


def _derived(counts: Sequence[int], of_two: bool, *steps: str) -> Check:
    def decide(s: Values) -> Answers:
        ratios = {
            name: (true / s["each"].subs(dict(zip(_LETTERS, (*scale, chained), strict=True)))).evalf(30)
            for count in counts
            for name, (scale, true, chained) in _by_theory(count, of_two).items()
        }
        shown = {name: f"{float(ratio):.4g}" for name, ratio in ratios.items()}
        return Answers(holds=[bool(ratio <= 1) for ratio in ratios.values()], numbers=shown, steps=steps)

    detail = "||dF/dtheta|| by the derived model's slopes over the bound, at DeepNet's own alpha and beta"
    return check(Route.PROOF, detail, decide)


def scalar_checks(id_: str, quote: str, *, of_two: bool) -> tuple[Check, ...]:
    """A theorem's bound in the model of its proof: by a search, a step at the printed scales, and derived slopes."""
    tried = "1 to 3 layers on either side" if of_two else "2 to 6 sublayers"
    steps = (
        "the slopes of self-attentions and FFNs above exceed 1, and those of cross-attentions in the stream fall short",
    )
    if not of_two:
        steps = (
            "r = v w / alpha = 2^(-7/4) N^(-3/4): of 2N equal sublayers each ||dF/dtheta_i|| is (1 - r)/(1 + "
            "r^2)^(3/2) ((1 + r)/sqrt(1 + r^2))^(2N - 1) times the printed sqrt(v^2 + w^2)/alpha",
            "N = 2, the first: alpha = sqrt(2), beta = 1/2, r = sqrt(2)/8",
        )
    return (
        _searched(f"rational weights inside the hypotheses, {tried}, exactly", of_two),
        _stepped(quote, f"depthlaw explain {id_}" if of_two else one_liners.SCALAR_NETWORK, of_two),
        _derived((2, 18, 100) if of_two else (2, 18, 100, 500), of_two, *steps),
    )
