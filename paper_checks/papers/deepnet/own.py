"""DeepNet's theorems at DeepNet's own alpha and beta, in the scalar model of their proof: how far off they are.

The printed scales lie inside the hypotheses (0 < v, w < 1 < alpha), so this is the theorem for the scheme it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import mpmath
from sympy import Expr, Float, Rational, S, lambdify

from paper_checks.claims.claim import Check, Evidence, Route
from paper_checks.papers.deepnet.scalar import ScalarBound, sensitivities
from paper_checks.routes import one_liners
from paper_checks.routes.checks import outcome
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

_DIGITS, _STEP = 50, 20
"""Decimal digits, and how small a step is: 10^-20, so that its second order is below what is shown."""
ENCODERS = (2, 18, 100, 500)
BOTH_SIDES = ((2, 2), (18, 18), (100, 100))
"""Layers on either side, alike; from (2, 2) on every printed alpha is above 1."""
QUARTER, SIXTEENTH = Rational(1, 4), Rational(1, 16)


class Scale(NamedTuple):
    """alpha, and v = w = beta."""

    alpha: Expr
    beta: Expr


def encoder_scale(num_layers: int) -> Scale:
    return Scale(S(2 * num_layers) ** QUARTER, S(8 * num_layers) ** -QUARTER)


def scales_of_two(num_encoder: int, num_decoder: int) -> tuple[Scale, Scale]:
    """Of the encoder, with its two printed decimals, and of the decoder."""
    size = S(num_encoder**4 * num_decoder) ** SIXTEENTH
    return (
        Scale(Rational(81, 100) * size, Rational(87, 100) / size),
        Scale(S(3 * num_decoder) ** QUARTER, S(12 * num_decoder) ** -QUARTER),
    )


# ---------------------------------------------------------------- a step, at 50 digits


@dataclass(frozen=True)
class _Weights:
    """One sublayer, in mpmath's numbers."""

    alpha: Any
    v: Any
    w: Any

    @property
    def ratio(self) -> Any:
        return self.v * self.w / self.alpha

    @property
    def keeps(self) -> Any:
        return (1 + self.ratio**2) ** -0.5

    @property
    def slope(self) -> Any:
        return (1 + self.ratio) * self.keeps

    @property
    def own(self) -> Any:
        return (1 - self.ratio) * self.keeps**3

    def apply(self, x: Any, memory: Any) -> Any:
        branch = self.v * self.w
        return (self.alpha * x + branch * memory) / (self.alpha**2 + branch**2) ** 0.5

    def moved(self, step: Any) -> _Weights:
        """By a vector of that length along (1, 1), the gradient's direction at v = w."""
        each = step / mpmath.sqrt(2)
        return replace(self, v=self.v + each, w=self.w + each)


def _output(encoder: Sequence[_Weights], decoder: Sequence[_Weights]) -> Any:
    """F of an input of 1 on either side; the encoder's output where there is no decoder."""
    memory: Any = 1
    for one in encoder:
        memory = one.apply(memory, memory)
    y: Any = 1
    for index, one in enumerate(decoder):
        y = one.apply(y, memory if index % 3 == 1 else y)
    return y if decoder else memory


def _ratios(s: ScalarBound, sides: tuple[list[_Weights], list[_Weights]]) -> dict[str, Any]:
    """|F(theta*) - F(theta)| over its bound, one sublayer moved or all of them by the same length."""
    encoder, decoder = sides
    each = lambdify((alpha, v, w), s.each, modules="mpmath")
    bounds = [each(one.alpha, one.v, one.w) for one in (*encoder, *decoder)]
    if decoder:
        coupling = sum(one.ratio for one in decoder[1::3])
        bounds[: len(encoder)] = [bound * coupling for bound in bounds[: len(encoder)]]
        chains = [chained for side in sensitivities(encoder, decoder) for _, chained in side]
    else:
        whole = mpmath.fprod(one.slope for one in encoder)
        chains = [whole / one.slope for one in encoder]
    if s.has_chain:
        bounds = [bound * chained for bound, chained in zip(bounds, chains, strict=True)]
    step, before = mpmath.mpf(10) ** -_STEP, _output(encoder, decoder)
    places: dict[str, Sequence[int]] = {"theta_1 alone": [0], "all alike": range(len(bounds))}
    if decoder:
        places["the first cross-attention alone"] = [len(encoder) + 1]
    found = {}
    for name, moving in places.items():
        both = [one.moved(step) if i in moving else one for i, one in enumerate((*encoder, *decoder))]
        moved = abs(_output(both[: len(encoder)], both[len(encoder) :]) - before)
        found[name] = moved / (step * sum(bounds[i] for i in moving))
    return found


def _sides(counts: int | tuple[int, int]) -> tuple[list[_Weights], list[_Weights]]:
    def weights(scale: Scale, length: int) -> list[_Weights]:
        a, b = (mpmath.mpf(str(expr.evalf(_DIGITS + 10))) for expr in scale)
        return [_Weights(a, b, b)] * length

    if isinstance(counts, int):
        return weights(encoder_scale(counts), 2 * counts), []
    encoder, decoder = scales_of_two(*counts)
    return weights(encoder, 2 * counts[0]), weights(decoder, 3 * counts[1])


def stepped(id_: str, printed: str, counts: Sequence[int | tuple[int, int]]) -> Check:
    """A step of the scalar model at DeepNet's own alpha and beta, held against the bound."""

    def run(s: ScalarBound) -> Evidence:
        with mpmath.workdps(_DIGITS):
            found = {_name(count): _ratios(s, _sides(count)) for count in counts}
            holds = [bool(ratio <= 1) for ratios in found.values() for ratio in ratios.values()]
        shown = {name: {what: f"{float(x):.4g}" for what, x in ratios.items()} for name, ratios in found.items()}
        by_depth = ", ".join(f"{ratios['all alike']} at {name}" for name, ratios in shown.items())
        example = {
            "printed": printed,
            "found": f"at DeepNet's own alpha and beta, all sublayers moved alike, ||dF|| over that is {by_depth}",
            "command": one_liners.SCALAR_NETWORK if id_ == "DN-02" else f"depthlaw explain {id_}",
            "over the bound": shown,
        }
        return Evidence(
            route=Route.NUMERIC,
            num_effective=len(holds),
            verdict=outcome(all(holds)),
            detail=f"|F(theta*) - F(theta)| of the scalar model over the bound, at DeepNet's own alpha and beta, by "
            f"steps of 10^-{_STEP} in {_DIGITS} digits",
            numbers=shown,
            counterexample=None if all(holds) else example,
        )

    return Check(route=Route.NUMERIC, run=run, is_direct=True)


def _name(counts: int | tuple[int, int]) -> str:
    return f"N = {counts}" if isinstance(counts, int) else f"N = M = {counts[0]}"


# ---------------------------------------------------------------- the derived slopes


def _over(s: ScalarBound, scale: Scale, found: Expr, chained: Expr) -> Expr:
    at = {alpha: scale.alpha, v: scale.beta, w: scale.beta}
    return found / s.each.subs(at) / (chained if s.has_chain else 1)


def _by_theory(s: ScalarBound) -> Mapping[str, Expr]:
    from theory.bounds.scalar_model import scalar_sensitivity, scalar_slope

    found = {}
    for num_layers in ENCODERS:
        scale = Scale(*[Float(x.evalf(40), 40) for x in encoder_scale(num_layers)])
        above = scalar_slope(*scale, scale.beta) ** (2 * num_layers - 1)
        found[f"theta_1, N = {num_layers}"] = _over(s, scale, scalar_sensitivity(*scale, scale.beta) * above, above)
    return found


def _both_by_theory(s: ScalarBound) -> Mapping[str, Expr]:
    from theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    found = {}
    for n, m in BOTH_SIDES:
        encoder, decoder = (Scale(*[Float(x.evalf(40), 40) for x in scale]) for scale in scales_of_two(n, m))
        at = {alpha: decoder.alpha, v: decoder.beta, w: decoder.beta}
        stream, memory = (slope.subs(at) for slope in cross_slopes(alpha, v, w))
        below = scalar_slope(*encoder, encoder.beta) ** (2 * n - 1)
        slope = scalar_slope(*decoder, decoder.beta)
        coupling = m * decoder.beta**2 / decoder.alpha
        layers = range(m)
        entering = sum((memory * slope * (slope**2 * stream) ** k for k in layers), S.Zero) / coupling
        chained = sum((slope ** (1 + 2 * k) for k in layers), S.Zero) / m
        own = scalar_sensitivity(*encoder, encoder.beta)
        found[f"the encoder's theta_1, N = M = {n}"] = _over(s, encoder, own * below * entering, below * chained)
        above = slope ** (2 * m - 1)
        own = scalar_sensitivity(*decoder, decoder.beta)
        found[f"the decoder's theta_1, N = M = {n}"] = _over(s, decoder, own * above * stream**m, above)
    return found


def _derived(values: Callable[[ScalarBound], Mapping[str, Expr]], steps: tuple[str, ...]) -> Check:
    def run(s: ScalarBound) -> Evidence:
        found = {name: ratio.evalf(30) for name, ratio in values(s).items()}
        return Evidence(
            route=Route.PROOF,
            num_effective=len(found),
            verdict=outcome(all(bool(ratio <= 1) for ratio in found.values())),
            detail="||dF/dtheta|| by the derived model's slopes over the bound, at DeepNet's own alpha and beta",
            numbers={name: f"{float(ratio):.4g}" for name, ratio in found.items()},
            steps=steps,
        )

    return Check(route=Route.PROOF, run=run)


_RATIO = "r = v w / alpha = 2^(-7/4) N^(-3/4): of 2N equal sublayers each ||dF/dtheta_i|| is (1 - r)/(1 + r^2)^(3/2) "
DERIVED = _derived(
    _by_theory,
    (
        _RATIO + "((1 + r)/sqrt(1 + r^2))^(2N - 1) times the printed sqrt(v^2 + w^2)/alpha",
        "N = 2: alpha = sqrt(2), beta = 1/2, r = sqrt(2)/8, and that is 1.223",
    ),
)
DERIVED_OF_TWO = _derived(
    _both_by_theory,
    ("the slopes of self-attentions and FFNs above exceed 1, and those of cross-attentions in the stream fall short",),
)
