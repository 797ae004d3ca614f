"""DeepNet's Theorem 4.2 in wide networks: every sublayer's squared gradient against the theorem's factor, squared.

A logit moves by at most ||df/dW||_F ||dW||_F, and the theorem has it move by s ||dtheta||: ||df/dW||^2 <= d s^2 is that
bound with ||dtheta|| = sqrt(d) ||dW||_F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import truediv

from sympy import Expr, lambdify

from paper_checks.claims.claim import Amendment, Check, Evidence, Mutant, Part, Route, Verdict, told
from paper_checks.papers.deepnet.parts import squares
from paper_checks.routes import second_meanfield
from paper_checks.routes.checks import all_of, outcome
from paper_checks.routes.gelu_growth import GELU_SECOND, GELU_SLOPE, KAPPA_POST
from paper_checks.routes.intervals import interval
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

_POST, _SCALED = "post-ln", ("deepnorm", "su-sgd", "su-adam", "su-lamb")


@dataclass(frozen=True)
class RealBound:
    """Of a real network: ||df/dW1||^2 + ||df/dW2||^2 of every sublayer is at most d times ``square``."""

    square: Expr
    activation: str = "relu"
    schemes: tuple[str, ...] = (_POST, *_SCALED)

    @property
    def text(self) -> str:
        which = "alpha = v = w = 1 and others" if _POST in self.schemes else ", ".join(self.schemes)
        return (
            f"||df/dW1||^2 + ||df/dW2||^2 <= d ({self.square}) for every sublayer of a network of one logit, "
            f"{self.activation}, v and w alike or not, {which}, as the width grows (L/d -> 0): the theorem's bound "
            "with ||dtheta|| = sqrt(d) ||dW||_F"
        )


_WIDTH, _SEEDS = 48, 16
_PROFILES: dict[str, Callable[[int, int], tuple[float, float]]] = {
    "uniform": lambda index, length: (1.0, 1.0),
    "growing": lambda index, length: (16 ** (index / length), 16 ** (index / length)),
    "falling": lambda index, length: (16 ** -(index / length), 16 ** -(index / length)),
    "one of 4": lambda index, length: (4.0, 4.0) if index == length // 2 else (1.0, 1.0),
    "two blocks": lambda index, length: (0.25, 0.25) if 2 * index < length else (2.0, 2.0),
    "v over w": lambda index, length: (2.0, 0.25),
    "w over v": lambda index, length: (0.25, 2.0),
}
"""What multiplies the scheme's v and w, by sublayer."""
_CASES = ((100, "uniform"), *product((1, 12), _PROFILES))
Sublayer = Callable[[str, float, float, float], tuple[float, float]]
"""Of an activation, alpha, v and w: (||df/dW1||^2 + ||df/dW2||^2)/d, and what it multiplies the gradient by."""


def _over_bound(s: RealBound, weights: Callable[[str, int], tuple[float, float]], one: Sublayer) -> dict[str, float]:
    """By network: the largest share of its bound that a sublayer has, the gradient carried down from the top."""
    bound = lambdify((alpha, v, w), s.square, modules="math")
    found = {}
    for scheme, (length, profile) in product(s.schemes, _CASES):
        a, gain = weights(scheme, length)
        gradient, most = 1.0, 0.0
        for index in reversed(range(length)):
            by_v, by_w = (gain * factor for factor in _PROFILES[profile](index, length))
            square, ratio = one(s.activation, a, by_v, by_w)
            most = max(most, gradient * square / bound(a, by_v, by_w))
            gradient *= ratio
        found[f"{scheme}, {length} sublayers, {profile}"] = most
    return found


def _evidence(route: Route, s: RealBound, over: dict[str, float], detail: str) -> Evidence:
    worst = max(over, key=lambda name: round(over[name], 6))
    shown = worst.replace(_POST, "alpha = v = w = 1").replace(", uniform", "")
    holds = over[worst] <= 1
    example = {
        "printed": "a sublayer moves F by at most sqrt(v^2 + w^2)/alpha ||dtheta||, at any alpha, v, w",
        "found": f"{shown}, {s.activation}, in a wide network: {math.sqrt(over[worst]):.3g} times that by one sublayer",
        "command": "depthlaw explain DN-02",
    }
    return Evidence(
        route=route,
        num_effective=len(over),
        verdict=outcome(holds),
        detail=detail,
        numbers={"largest square over the bound": f"{over[worst]:.4g}", "of": worst},
        counterexample=None if holds else example,
    )


def _by_mean_field(s: RealBound) -> Evidence:
    return _evidence(
        Route.MEANFIELD,
        s,
        _over_bound(s, _weights_of_theory, _sublayer_of_theory),
        "FFN stacks at infinite width, sublayer by sublayer, up to 100 of them, even and uneven gains, v and w apart; "
        "a sublayer multiplies the squared gradient by (alpha^2 + v^2 w^2 E phi'^2)/(alpha^2 + v^2 E phi^2): with ReLU "
        "by 1, and its own is (v^2 + w^2)/(2 alpha^2 + v^2 w^2)",
    )


def _weights_of_theory(scheme: str, length: int) -> tuple[float, float]:
    from theory.meanfield.setting import Setting
    from theory.symbols import L

    stack = Setting.of(scheme, "sgd", "relu").scheme.stack
    assert stack.residual_weight is not None
    a, gain = (float(expr.subs(L, length)) for expr in (stack.residual_weight, stack.gain_in))
    return a, gain


@cache
def _sublayer_of_theory(activation: str, residual_weight: float, by_v: float, by_w: float) -> tuple[float, float]:
    from theory.meanfield.setting import MOMENT_KINDS
    from theory.moments import Kind, evaluator
    from theory.moments import activation as named
    from theory.stack import POST, BranchMoments, NormKind, transfer

    kinds = (Kind.SECOND, Kind.SLOPE_SECOND)  # all that SGD's part of a post-norm sublayer has in it
    known = {kind: evaluator(named(activation), kind)(by_w) for kind in kinds}
    one = transfer(
        POST,
        NormKind.LAYERNORM,
        BranchMoments(*[known.get(kind, math.nan) for kind in MOMENT_KINDS]),
        stream=1.0,
        residual_weight=residual_weight,
        branch_weight=1.0,
        input_scale=1.0,
        gain_in=by_w,
        gain_out=by_v,
        sqrt=math.sqrt,
    )
    return one.fc1_square + one.fc2_square, one.gradient_ratio


def _by_quadrature(s: RealBound) -> Evidence:
    def weights(scheme: str, length: int) -> tuple[float, float]:
        network = second_meanfield.coefficients(scheme, length)
        return network.residual_weight, network.gain_in

    def one(activation: str, a: float, by_v: float, by_w: float) -> tuple[float, float]:
        _, second, slope, *_ = second_meanfield.moments(activation, by_w)
        total = a**2 + by_v**2 * second
        return (by_v**2 * slope + second) / total, (a**2 + by_v**2 * by_w**2 * slope) / total

    detail = "the same sum with moments by quadrature and the scheme's own scales"
    return _evidence(Route.NUMERIC, s, _over_bound(s, weights, one), detail)


@cache
def _measured(scheme: str, profile: str, is_ffn: bool, activation: str) -> tuple[tuple[float, ...], ...]:
    """By seed and sublayer: the sublayer's ||df/dW1||^2 + ||df/dW2||^2 over d, one logit at the last of the tokens."""
    from sims.model import ModelConfig, SublayerConfig

    a, gains = _letters(scheme, profile)
    kinds = ["ffn" if is_ffn or index % 2 else "attention" for index in range(len(gains))]
    roles = {"ffn": ("fc2", "fc1"), "attention": ("out", "v")}
    encoder = tuple(
        SublayerConfig(kind=kind, residual_weight=a, gains=dict(zip(roles[kind], pair, strict=True)))
        for kind, pair in zip(kinds, gains, strict=True)
    )
    config = ModelConfig(encoder=encoder, d_model=_WIDTH, ffn_ratio=1, activation=activation)
    found = squares(config, _SEEDS, 1 if is_ffn else 4)
    names = [[f"_weights.encoder_{index}_{role}" for role in roles[kind]] for index, kind in enumerate(kinds)]
    return tuple(tuple(sum(found[name][seed] for name in both) for both in names) for seed in range(_SEEDS))


def _letters(scheme: str, profile: str, length: int = 6) -> tuple[float, list[tuple[float, float]]]:
    """alpha, and (v, w) by sublayer."""
    network = second_meanfield.coefficients(scheme, length)
    gain, factors = network.gain_in, [_PROFILES[profile](index, length) for index in range(length)]
    return network.residual_weight, [(gain * by_v, gain * by_w) for by_v, by_w in factors]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _by_measuring(s: RealBound) -> Evidence:
    bound = lambdify((alpha, v, w), s.square, modules="math")
    cases = [(scheme, "uniform", True) for scheme in s.schemes]
    for scheme, profiles in ((_POST, tuple(_PROFILES)), ("deepnorm", ("v over w", "w over v"))):
        cases += [(scheme, "uniform", False), *((scheme, profile, True) for profile in profiles)]
    answers: list[bool | None] = []
    most = 0.0
    for scheme, profile, is_ffn in dict.fromkeys(cases):
        found = _measured(scheme, profile, is_ffn, s.activation)
        a, gains = _letters(scheme, profile)
        bounds = [bound(a, *pair) for pair in gains]
        over = interval([_mean(list(map(truediv, squares, bounds))) for squares in found])
        answers.append(over.is_below(1))
        most = max(most, over.high)
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail=f"real FFN stacks (even and uneven gains, v and w apart) and Transformers of 4 tokens, by autograd, at "
        f"6 sublayers and d = {_WIDTH} only: the mean over sublayers of its share of the bound, as an interval from "
        f"{_SEEDS} seeds. Where L/d is not small single networks scatter as exp(c L/d), and their mean may pass "
        "the bound",
        numbers={"largest upper end": f"{most:.2g}"},
    )


_SQUARE = (v**2 + w**2) / alpha**2
_AT_TOP = float((GELU_SLOPE + GELU_SECOND) / (1 + GELU_SECOND) / 2)
"""The top sublayer's squared gradient over its bound, with GELU at alpha = v = w = 1."""
_FIRST_BEYOND = 1 + math.ceil(-math.log(_AT_TOP) / math.log(float(KAPPA_POST)))
_RELU, _GELU, _GELU_SCALED = RealBound(_SQUARE), RealBound(_SQUARE, "gelu"), RealBound(_SQUARE, "gelu", _SCALED)
WIDE_PARTS = (
    Part(
        name="in a wide network (L/d -> 0), relu",
        statement=_RELU,
        checks=(
            Check(route=Route.MEANFIELD, run=_by_mean_field),
            Check(route=Route.MEASURED, run=_by_measuring, is_direct=True),
        ),
        mutants=(
            Mutant(name="a quarter", statement=RealBound(_SQUARE / 4)),
            Mutant(name="v^2 w^2", statement=RealBound(v**2 * w**2 / alpha**2)),
            Mutant(name="2 v w", statement=RealBound(2 * v * w / alpha**2)),
            Mutant(name="2 v^2", statement=RealBound(2 * v**2 / alpha**2)),
            Mutant(name="2 v^4/w^2", statement=RealBound(2 * v**4 / w**2 / alpha**2)),
        ),
    ),
    Part(
        name="in a wide network (L/d -> 0), gelu",
        statement=_GELU,
        checks=(
            Check(route=Route.MEANFIELD, run=_by_mean_field),
            Check(route=Route.NUMERIC, run=_by_quadrature, is_direct=True),
        ),
        mutants=(
            Mutant(name="a quarter", statement=RealBound(_SQUARE / 4, "gelu", _SCALED)),
            Mutant(name="2 v w", statement=RealBound(2 * v * w / alpha**2, "gelu", _SCALED)),
        ),
        instead=Amendment(
            statement=_GELU_SCALED,
            text="the bound holds with DeepNorm's alpha and beta, and with those of the other scaled schemes",
        ),
        condition=told(
            "w^2 E phi'^2 <= E phi^2 at the preactivation's scale w, as ReLU has with equality (gelu at w = 1: "
            "{slope:.3f} and {second:.3f}, so the squared gradient grows by {kappa:.4f} a sublayer, and passes the "
            "bound at sublayer {first} from the top); or L v^2 (w^2 E phi'^2 - E phi^2)/alpha^2 bounded and small, as "
            "under DeepNorm's alpha and beta",
            slope=GELU_SLOPE,
            second=GELU_SECOND,
            kappa=KAPPA_POST,
            first=_FIRST_BEYOND,
        ),
        expected=Verdict.REFUTED,
    ),
)
