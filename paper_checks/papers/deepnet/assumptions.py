"""DeepNet's assumptions (DN-11), held against the scheme that they lead to: DeepNorm at the printed alpha and beta."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sympy import Expr, Rational, S, floor, fraction, lambdify, limit, sqrt, together

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Kind, Mutant, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.parts import PRINTED, SCALED, deepnet_scales, matrix_shares, squares
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import Interval, interval
from theory.symbols import M, N, scratch
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

# ---------------------------------------------------------------- (3) on either side of 1

_OF_TWO = N**4 * M
_ALPHA_OF_TWO = Rational(81, 100) * _OF_TWO ** Rational(1, 16)
_BETA_OF_TWO = Rational(87, 100) * _OF_TWO ** Rational(-1, 16)
_NAMES = {"encoder": "encoder-only", "decoder": "decoder-only", "decoder of two": "decoder of two"}
_ALPHAS = tuple((name, PRINTED[which][0]) for which, name in _NAMES.items())
_BETAS = (*((name, PRINTED[which][1]) for which, name in _NAMES.items()), ("encoder of two", _BETA_OF_TWO))
_MOST = 40
"""Layers up to which every pair of counts is tried."""


@dataclass(frozen=True)
class Side:
    """A letter stands on one side of 1 in every architecture, for all N, M >= 1 with N^4 M >= ``least``."""

    letter: str
    entries: tuple[tuple[str, Expr], ...]
    is_above: bool
    least: int = 1

    @property
    def text(self) -> str:
        where = f" where N^4 M >= {self.least}" if self.least > 1 else ""
        forms = "; ".join(f"{name}: {expr}" for name, expr in self.entries)
        return f"{self.letter} {'>' if self.is_above else '<'} 1 for all N, M >= 1{where} ({forms})"


def _example(s: Side, name: str, expr: Expr, at: tuple[int, int]) -> dict[str, object]:
    value = float(expr.subs({N: at[0], M: at[1]}))
    return {
        "printed": f"{s.letter} is {'greater' if s.is_above else 'less'} than 1",
        "found": f"{name}, N = {at[0]}, M = {at[1]}: {s.letter} = {value:.4g}",
        "N": at[0],
        "M": at[1],
        "command": f"depthlaw rule --norm post --optimizer sgd --arch encoder-decoder --layers {at[0]} "
        f"--decoder-layers {at[1]} --select deepnet",
    }


def _side_by_trial(s: Side) -> Evidence:
    """16th powers, exact rationals, at every pair of counts up to ``_MOST``."""
    fails, count = [], 0
    for name, expr in s.entries:
        power = lambdify((N, M), expr**16, modules="sympy")
        for n in range(1, _MOST + 1 if expr.has(N) else 2):
            for m in range(1, _MOST + 1 if expr.has(M) else 2):
                if n**4 * m < s.least:
                    continue
                value = power(S(n), S(m))
                count += 1
                if not (value > 1 if s.is_above else value < 1):
                    fails.append((n * m, n, m, name, expr))
    first = min(fails, key=lambda one: one[:3], default=None)
    return Evidence(
        route=Route.ARITHMETIC,
        num_effective=count,
        verdict=outcome(not fails),
        detail=f"16th powers at all N, M up to {_MOST}, exactly",
        numbers={"fail": len(fails)},
        counterexample=None if first is None else _example(s, first[3], first[4], (first[1], first[2])),
    )


def _side_by_solver(s: Side) -> list[bool | None]:
    """Over all real N, M >= 1: the 16th power, cleared of its denominator, by z3."""
    import z3

    from paper_checks.routes.search import prove

    n, m = z3.Real("n"), z3.Real("m")
    found: list[bool | None] = []
    for _, expr in s.entries:
        top, bottom = (lambdify((N, M), part, modules="math")(n, m) for part in fraction(together(expr**16)))
        holds = top > bottom if s.is_above else top < bottom
        found.append(prove(z3.Implies(z3.And(n >= 1, m >= 1, n**4 * m >= s.least), holds)).is_valid)
    return found


_SIDE_CHECKS = (
    Check(route=Route.ARITHMETIC, run=_side_by_trial, is_direct=True),
    check(Route.PROOF, "16th powers over all real N, M >= 1, by z3", _side_by_solver, is_direct=True),
)
_WEIGHTS = Side("v = w = beta", _BETAS, is_above=False)
_ALPHA = Side("alpha", _ALPHAS, is_above=True)
_ALPHA_E = Side("alpha", (("encoder of two", _ALPHA_OF_TWO),), is_above=True)
_LEAST = int(floor(Rational("0.81") ** -16)) + 1
"""The least N^4 M at which the printed alpha, 0.81 (N^4 M)^(1/16), is above 1."""
_BETA = Side("beta", _BETAS, is_above=True)


# ---------------------------------------------------------------- (1) d = 1


@dataclass(frozen=True)
class OneCoordinate:
    """With d = 1 a sublayer, its norm of that kind, is the model's f."""

    norm: str = "LayerNorm"

    @property
    def text(self) -> str:
        return f"d = 1: {self.norm}(alpha x + v w x) = (alpha + vw)/sqrt(alpha^2 + v^2 w^2) x"


_BY_DEVIATION = "division by sqrt(alpha^2 + v^2 w^2)"
_F = (alpha + v * w) / sqrt(alpha**2 + v**2 * w**2)


def _one_coordinate(s: OneCoordinate) -> list[bool | None]:
    """At x = 1. A LayerNorm subtracts the mean of one coordinate, itself; an RMSNorm divides by its size."""
    z = alpha + v * w
    found = {"LayerNorm": z - z, "RMSNorm": z / sqrt(z**2), _BY_DEVIATION: z / sqrt(alpha**2 + (v * w) ** 2)}
    return [algebra.equal(found[s.norm], _F)]


def _one_coordinate_of_torch(s: OneCoordinate) -> Evidence:
    """torch's norms of one number, at alpha and beta of 1, 18 and 1000 layers."""
    import torch

    answers, shown = [], {}
    for num_layers in (1, 18, 1000):
        a, b = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
        z = torch.tensor([a + b * b], dtype=torch.float64)
        scale = math.sqrt(a**2 + b**4)
        found = {
            "LayerNorm": lambda z: torch.nn.functional.layer_norm(z, (1,)),
            "RMSNorm": lambda z: torch.nn.functional.rms_norm(z, (1,)),
            _BY_DEVIATION: lambda z, scale=scale: z / scale,
        }[s.norm](z)
        printed = (a + b * b) / scale
        answers.append(abs(found.item() - printed) < 1e-12)
        shown[f"N = {num_layers}"] = f"{found.item():.4g}, and f = {printed:.4g}"
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="torch's norm of the one coordinate alpha x + v w x, x = 1, at DeepNet's alpha and beta",
        numbers=shown,
    )


_ONE = OneCoordinate()
_ONE_PART = Part(
    name="(1) d = 1",
    statement=_ONE,
    checks=(
        check(Route.PROOF, "the norm of one coordinate, by its definition", _one_coordinate, is_direct=True),
        Check(route=Route.MEASURED, run=_one_coordinate_of_torch, is_direct=True),
    ),
    mutants=(Mutant(name="RMSNorm", statement=OneCoordinate("RMSNorm")),),
    hedge=Amendment(
        statement=OneCoordinate(_BY_DEVIATION),
        text="d = 1 simplifies, and is a choice of model: a real LayerNorm of one coordinate is 0 whatever the "
        "weights. The model has in its place division by sqrt(alpha^2 + v^2 w^2), the standard deviation that a wide "
        "sublayer has, whose branch is uncorrelated with its stream; in one dimension they are proportional",
    ),
    expected=Verdict.CONDITIONAL,
)

# ---------------------------------------------------------------- (2) variances add

_VARIANCE = Values.of(variance=alpha**2 + v**2 * w**2)
_DEPTHS = (1, 100, 10**4)


def _at_scheme(expr: Expr) -> Expr:
    a, b = PRINTED["encoder"]
    return expr.subs({alpha: a, v: b, w: b})


def _keeps_order(expr: Expr) -> bool:
    """Whether it goes to a number over 0 as N = 1/t^4 grows."""
    t = scratch("t", positive=True)
    found = limit(_at_scheme(expr).subs(N, t**-4), t, 0, "+")
    return bool(found.is_finite and found > 0)


def _variance_of_model(s: Values) -> list[bool | None]:
    """In the scalar model branch and stream are proportional: (alpha + v w)^2, over what is printed."""
    over = (alpha + v * w) ** 2 / s["variance"]
    at_ends = [over.subs(w, r * alpha / v).subs({alpha: 1, v: 1}) for r in (Rational(1, 10**6), S.One)]
    return [_keeps_order(over), all(Rational(1, 4) < value < 4 for value in at_ends)]


@cache
def _variances() -> tuple[tuple[float, float, tuple[float, ...]], ...]:
    """(alpha, beta, var(alpha x + G(x)) by seed) of a real FFN sublayer of DeepNorm, ReLU, d = 128."""
    import torch

    width, found = 128, []
    for num_layers in _DEPTHS:
        a, b = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
        by_seed = []
        for seed in range(16):
            generator = torch.Generator().manual_seed(seed)
            x_D = torch.randn(width, generator=generator, dtype=torch.float64)
            x_D = (x_D - x_D.mean()) / x_D.std(correction=0)
            w1_DD, w2_DD = (
                torch.randn(width, width, generator=generator, dtype=torch.float64) * b / math.sqrt(width)
                for _ in range(2)
            )
            by_seed.append(float((a * x_D + w2_DD @ (w1_DD @ x_D).relu()).var(correction=0)))
        found.append((a, b, tuple(by_seed)))
    return tuple(found)


def _variance_of_network(s: Values) -> Evidence:
    value = lambdify((alpha, v, w), s["variance"], modules="math")
    found = {
        f"N = {num_layers}": interval([one / value(a, b, b) for one in by_seed])
        for num_layers, (a, b, by_seed) in zip(_DEPTHS, _variances(), strict=True)
    }
    answers: list[bool | None] = []
    for over in found.values():
        answers += [over.is_below(2), Interval(-over.high, -over.low).is_below(-0.5)]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="var(alpha x + G(x)) of a real FFN sublayer of DeepNorm, ReLU, d = 128, over what is printed: between "
        "1/2 and 2 at every depth, interval of the mean of 16 seeds",
        numbers={name: over.text for name, over in found.items()},
    )


_VARIANCE_PART = Part(
    name="(2) var(x + G(x)) =Theta= var(x) + var(G(x)), at DeepNorm's scales",
    statement=_VARIANCE,
    checks=(
        check(
            Route.PROOF,
            "(alpha + vw)^2 over it is between 1 and 2 where branch and stream are proportional, as the "
            "scalar model has them: at DeepNorm's scales as N grows, and at v w / alpha of 0 and 1",
            _variance_of_model,
            is_direct=True,
        ),
        Check(route=Route.MEASURED, run=_variance_of_network, is_direct=True),
    ),
    mutants=(
        Mutant(name="the product", statement=Values.of(variance=alpha**2 * v**2 * w**2)),
        Mutant(name="the branch alone", statement=Values.of(variance=v**2 * w**2)),
    ),
)

# ---------------------------------------------------------------- the last sublayer's gradient

_LAST = Values.of(gradient=sqrt(v**2 + w**2) / alpha)


def _last_of_theory(s: Values) -> list[bool | None]:
    from theory.bounds.scalar_model import scalar_sensitivity

    return [_keeps_order(scalar_sensitivity(alpha, v, w) / s["gradient"])]


def _last_by_quadrature(s: Values) -> list[bool | None]:
    """An FFN at infinite width, one logit: (||df/dW1||^2 + ||df/dW2||^2)/d, its moments by quadrature."""
    printed, answers = lambdify((alpha, v, w), s["gradient"], modules="math"), []
    for activation in ("relu", "gelu"):
        ratios = []
        for length in second_meanfield.LENGTHS:
            network = second_meanfield.coefficients("deepnorm", length)
            a, b = network.residual_weight, network.gain_in
            _, second, slope, *_ = second_meanfield.moments(activation, b)
            found = (b**2 * slope + second) / (a**2 + b**2 * second)
            ratios.append(math.log(found / printed(a, b, b) ** 2))
        answers.append(algebra.settles(ratios))
    return answers


_LAST_PART = Part(
    name="||dF/dtheta_last|| =Theta= ||theta_last||/alpha",
    statement=_LAST,
    checks=(
        check(Route.PROOF, "limit of the derived model's sensitivity over it, at DeepNorm's scales", _last_of_theory),
        check(
            Route.NUMERIC,
            "a wide FFN of DeepNorm, relu and gelu, over it at 10^2, 10^4, 10^6 sublayers: settles (1/2 of the square, "
            "relu; 1/4, gelu)",
            _last_by_quadrature,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="alpha^2", statement=Values.of(gradient=sqrt(v**2 + w**2) / alpha**2)),
        Mutant(name="||theta||^2", statement=Values.of(gradient=(v**2 + w**2) / alpha)),
    ),
)

# ---------------------------------------------------------------- the top sublayer's gradient is the largest


@dataclass(frozen=True)
class TopIsLargest:
    """Of a decoder at DeepNet's scales: no sublayer's gradient is more than ``factor`` times the last one's."""

    factor: Expr = S.One

    @property
    def text(self) -> str:
        return f"||dF/dtheta_dj|| <= {self.factor} ||dF/dtheta_d,3M|| for every sublayer j of the decoder, relu"


def _top_by_closed_form(s: TopIsLargest) -> Evidence:
    found = {}
    for ffn_ratio in (1, 4):
        for num_layers in (1, 6, 18, 100, 1000):
            a, b = deepnet_scales(num_layers, num_layers).decoder
            attention, ffn = matrix_shares(a, b, ffn_ratio)
            found[f"FFN of {ffn_ratio}d, M = {num_layers}"] = math.sqrt(max(attention, ffn) / ffn)
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(found),
        verdict=outcome(max(found.values()) <= s.factor),
        detail="one token, infinite width: self-attention and FFN pass the squared gradient on unchanged and "
        "cross-attention lowers it, so the largest stands in the top layer, an attention's over the FFN's",
        numbers={name: f"{ratio:.4g}" for name, ratio in found.items()},
        counterexample=None if max(found.values()) <= s.factor else _top_example(found),
    )


def _top_example(found: dict[str, float]) -> dict[str, Any]:
    return {
        "printed": "||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||",
        "found": f"at a decoder's first position the top cross-attention, j = 3M - 1, has "
        f"{found['FFN of 4d, M = 6']:.3g} times the FFN's above it, {found['FFN of 1d, M = 6']:.3g} times with an FFN "
        "as wide as the stream (N = M = 6, relu, wide)",
        "command": "depthlaw explain DN-11",
    }


@cache
def _gradients(num_layers: int, num_seeds: int = 24) -> tuple[tuple[float, ...], ...]:
    """By sublayer of the decoder, ||df/dtheta||^2/d of each seed: one token on either side, square FFN, d = 32."""
    from sims.model import ModelConfig, alternating, decoder_layers

    (alpha_e, beta_e), (alpha_d, beta_d) = deepnet_scales(num_layers, num_layers)
    config = ModelConfig(
        encoder=alternating(2 * num_layers, residual_weight=alpha_e, gains=dict.fromkeys(SCALED, beta_e)),
        decoder=decoder_layers(num_layers, residual_weight=alpha_d, gains=dict.fromkeys(SCALED, beta_d)),
        d_model=32,
        ffn_ratio=1,
    )
    found = squares(config, num_seeds, 1)
    out = []
    for index in range(3 * num_layers):
        own = [seeds for name, seeds in found.items() if f"decoder_{index}_" in name]
        out.append(tuple(sum(seeds) for seeds in zip(*own, strict=True)))
    return tuple(out)


def _top_by_measuring(s: TopIsLargest) -> Evidence:
    answers, numbers = [], {}
    for num_layers in (1, 3):
        *below, top = _gradients(num_layers)
        mean = sum(top) / len(top)
        found = [
            interval([one - float(s.factor) ** 2 * other for one, other in zip(each, top, strict=True)])
            for each in below
        ]
        answers += [over.is_below(0) for over in found]
        numbers[f"M = {num_layers}"] = [f"{math.sqrt(sum(each) / len(each) / mean):.2g}" for each in below]
    return Evidence(
        route=Route.MEASURED,
        num_effective=sum(answer is not None for answer in answers),
        verdict=outcome(all_of(answers)),
        detail="real encoder-decoders of N = M, one token on either side, square FFN, d = 32, by autograd: whether the "
        "mean square of a sublayer, less that of the last times the factor squared, is below 0; 24 seeds, 3 standard "
        "errors. Shown: root mean squares over the last one's",
        numbers=numbers,
    )


_TOP = TopIsLargest()
_TOP_PART = Part(
    name="||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||",
    statement=_TOP,
    checks=(
        Check(route=Route.MEANFIELD, run=_top_by_closed_form, is_direct=True),
        Check(route=Route.MEASURED, run=_top_by_measuring, is_direct=True),
    ),
    mutants=(
        Mutant(name="half", statement=TopIsLargest(S.Half)),
        Mutant(name="5/4", statement=TopIsLargest(Rational(5, 4))),
    ),
    instead=Amendment(
        statement=TopIsLargest(S(2)),
        text="at most twice it (sqrt(2) at infinite width): of the order of the top one's, as the sum over sublayers "
        "needs; the gradient that arrives does not grow downwards with ReLU",
    ),
    condition="sublayers of one kind (FFN with FFN) in a wide network of ReLU; or O() for <=. In the scalar model it "
    "fails, too: a cross-attention's, whose memory has grown to ((1 + r)/sqrt(1 + r^2))^(2N), is 2.4 times the last "
    "one's at N = M = 18",
    expected=Verdict.REFUTED,
)

_DN_11 = Claim(
    id="DN-11",
    kind=Kind.STEP,
    source="deepnet",
    locator="Appendix A, the assumptions of the proofs of Theorems 4.2 and 4.3, and those of one SGD step",
    quote="(1) d = 1; (2) var(x + G(x)) =Theta= var(x) + var(G(x)); (3) v and w positive, of magnitude less than 1; "
    "alpha and beta positive, of magnitude greater than 1; ||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||; "
    "||dF/dtheta_last|| =Theta= ||theta_last||/alpha",
    summary="what is assumed, of the scheme that follows: d = 1, variances add, 0 < v, w < 1, alpha, beta > 1, the "
    "last sublayer's gradient of order ||theta||/alpha and the largest",
    uses=("DN-04", "DN-05", "DN-06", "DN-07"),
    parts=(
        _ONE_PART,
        _VARIANCE_PART,
        Part(
            name="(3) v and w below 1",
            statement=_WEIGHTS,
            checks=_SIDE_CHECKS,
            mutants=(
                Mutant(name="above", statement=replace(_WEIGHTS, is_above=True)),
                Mutant(name="the family's 1/alpha", statement=replace(_WEIGHTS, entries=(("encoder", 1 / N),))),
            ),
        ),
        Part(
            name="(3) alpha above 1: encoder-only, decoder-only, the decoder of two",
            statement=_ALPHA,
            checks=_SIDE_CHECKS,
            mutants=(
                Mutant(name="below", statement=replace(_ALPHA, is_above=False)),
                Mutant(name="N for 2N", statement=replace(_ALPHA, entries=(("encoder", N ** Rational(1, 4)),))),
            ),
        ),
        Part(
            name="(3) alpha above 1: the encoder of two",
            statement=_ALPHA_E,
            checks=_SIDE_CHECKS,
            mutants=(
                Mutant(name=f"from N^4 M = {_LEAST - 1}", statement=replace(_ALPHA_E, least=_LEAST - 1)),
                Mutant(name="below", statement=replace(_ALPHA_E, is_above=False, least=_LEAST)),
            ),
            instead=Amendment(
                statement=replace(_ALPHA_E, least=_LEAST),
                text=f"alpha_e > 1 from N^4 M = {_LEAST} on as printed, above N^4 M = 27 with the exact constant",
            ),
            condition=f"N^4 M >= {_LEAST}: N = 1 with M >= {_LEAST}, N = 2 with M >= 2, or N >= 3; with the exact "
            "constant 27^(-1/16) in place of 0.81, N^4 M > 27",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="(3) beta above 1",
            statement=_BETA,
            checks=_SIDE_CHECKS,
            mutants=(Mutant(name="alpha below", statement=replace(_ALPHA, letter="beta", is_above=False)),),
            misprint=Amendment(
                statement=replace(_BETA, is_above=False),
                text="beta less than 1: it is what v and w are set to",
                grounds="the same sentence has v and w below 1, Section 4 sets v = w = beta, and every beta of its "
                "table is below 1",
            ),
            expected=Verdict.MISPRINT,
        ),
        _TOP_PART,
        _LAST_PART,
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "DeepNet assumes alpha > 1 and beta > 1: beta is below 1 for every N, alpha of the encoder where "
        "N^4 M < {least}",
        rank=130,
        numbers={"least": _LEAST},
    ),
)


CLAIMS: tuple[Claim, ...] = (_DN_11,)
