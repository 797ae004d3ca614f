"""DeepNet's theorems 4.2 and 4.3: bounds on the update, in the scalar model they are proved in and in wide networks.

theta_i are the weights v_i and w_i of sublayer i; N encoder layers of 2 sublayers, M decoder layers of 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import truediv

from sympy import Expr, Rational, lambdify

from paper_checks import direct, exact
from paper_checks.checks import all_of, check, outcome
from paper_checks.claim import Amendment, Cell, Check, Claim, Evidence, Mutant, Part, Route, Verdict
from paper_checks.papers.deepnet_parts import (
    VANILLA,
    Interval,
    deepnet_scales,
    interval,
    is_below,
    measured,
    one_token,
    squares,
)
from paper_checks.papers.deepnet_scalar import EACH, ScalarBound, searched
from paper_checks.statements import Values
from theory.symbols import M, N, scratch, side_symbols
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

_EXAMPLE = {
    "alpha": Rational(3, 2),
    "low": (Rational(1, 10), Rational(1, 10)),
    "high": (Rational(5, 6), Rational(3, 4)),
}
"""Inside the hypotheses: a sublayer of r = 1/150, and above it one of r = 5/12, whose slope is 17/13."""

# ---------------------------------------------------------------- DN-02: Theorem 4.2

_PRINTED_BOUND = ScalarBound(EACH)
_DN_02_QUOTE = "||dF|| <= sum_{i=1}^{2N} sqrt(v_i^2 + w_i^2)/alpha ||theta_i^* - theta_i||"
_DN_03_QUOTE = (
    "||dF_ed|| <= sum_{j=1}^{M} v_{d,3j-1} w_{d,3j-1}/alpha_d sum_{i=1}^{2N} sqrt(v_ei^2 + w_ei^2)/alpha_e "
    "||dtheta_ei|| + sum_{j=1}^{3M} sqrt(v_dj^2 + w_dj^2)/alpha_d ||dtheta_dj||"
)


def _pair() -> tuple[Expr, Expr]:
    """theory's ||dF/dtheta_1|| of two sublayers, the example's, and the slope of the upper one."""
    from theory.scalar_model import scalar_sensitivity, scalar_slope

    at = _EXAMPLE["alpha"]
    above = scalar_slope(at, *_EXAMPLE["high"])
    return scalar_sensitivity(at, *_EXAMPLE["low"]) * above, above


def _over(s: ScalarBound, found: Expr, chain: Expr) -> Expr:
    """A sensitivity to the example's lower sublayer, over its bound."""
    low = dict(zip((v, w), _EXAMPLE["low"], strict=True))
    return found / s.each.subs({alpha: _EXAMPLE["alpha"], **low}) / (chain if s.has_chain else 1)


def _scalar_evidence(ratios: Mapping[str, Expr], printed: str, where: str, id_: str) -> Evidence:
    holds = [bool(ratio <= 1) for ratio in ratios.values()]
    shown = {name: f"{float(ratio):.6g}" for name, ratio in ratios.items()}
    worst = max(ratios, key=lambda name: float(ratios[name]))
    example = {
        "printed": printed,
        "found": f"moving {worst} alone, ||dF|| is {float(ratios[worst]):.4g} times that: {where}",
        "command": f"depthlaw explain {id_}",
        "alpha": "3/2",
        "v, w": "1/10, 1/10 but for the top sublayer: 5/6, 3/4",
    }
    return Evidence(
        route=Route.PROOF,
        num_effective=len(holds),
        verdict=outcome(all(holds)),
        detail="the derived model's slopes at rational weights inside the hypotheses, over the bound",
        numbers=shown,
        counterexample=None if all(holds) else example,
    )


def _two_sublayers(s: ScalarBound) -> Evidence:
    found, chain = _pair()
    where = "2 sublayers, alpha = 3/2, (v, w) = (1/10, 1/10) below (5/6, 3/4)"
    return _scalar_evidence({"theta_1": _over(s, found, chain)}, _DN_02_QUOTE, where, "DN-02")


@dataclass(frozen=True)
class RealBound:
    """Of a real network: ||df/dW1||^2 + ||df/dW2||^2 of every sublayer is at most d times ``square``."""

    square: Expr
    activation: str = "relu"

    @property
    def text(self) -> str:
        return (
            f"||df/dW1||^2 + ||df/dW2||^2 <= d ({self.square}) for every sublayer of a wide network of one logit, "
            f"{self.activation}, any v, w: the theorem's bound with ||theta|| = ||W||_F / sqrt(d)"
        )


_WIDTH, _SEEDS = 48, 16
_SCHEMES = ("post-ln", "deepnorm", "su-sgd", "su-adam", "su-lamb")
_PROFILES: dict[str, Callable[[int, int], float]] = {
    "uniform": lambda index, length: 1.0,
    "growing": lambda index, length: 16 ** (index / length),
    "falling": lambda index, length: 16 ** -(index / length),
    "one of 4": lambda index, length: 4.0 if index == length // 2 else 1.0,
    "two blocks": lambda index, length: 0.25 if 2 * index < length else 2.0,
}
"""What multiplies the scheme's gains, v and w alike, by sublayer."""


def _real_by_mean_field(s: RealBound) -> Evidence:
    """Every sublayer, by theory's transfer: the squared gradient is carried down from the top."""
    from theory.setting import Setting
    from theory.symbols import L

    bound = lambdify((alpha, v, w), s.square, modules="math")
    over: list[float] = []
    for name in _SCHEMES:
        setting = Setting.of(name, "sgd", s.activation)
        weight, gain = setting.scheme.stack.residual_weight, setting.scheme.stack.gain_in
        assert weight is not None
        for length, profile in [(100, "uniform"), *product((1, 12), _PROFILES)]:
            a, g = (float(expr.subs(L, length)) for expr in (weight, gain))
            gradient = 1.0
            for index in reversed(range(length)):
                each = g * _PROFILES[profile](index, length)
                square, ratio = _one_sublayer(s.activation, a, each)
                over.append(gradient * square / bound(a, each, each))
                gradient *= ratio
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(over),
        verdict=outcome(max(over) <= 1),
        detail="FFN stacks at infinite width, sublayer by sublayer: five schemes, up to 100 sublayers, even and "
        "uneven gains; with ReLU a sublayer has (v^2 + w^2)/(2 alpha^2 + v^2 w^2) and keeps the squared gradient",
        numbers={"largest over the bound": f"{max(over):.4g}"},
    )


@cache
def _one_sublayer(activation: str, residual_weight: float, gain: float) -> tuple[float, float]:
    """theory's (||df/dW1||^2 + ||df/dW2||^2)/d of a post-norm sublayer, and what it multiplies the gradient by."""
    from theory.moment_values import evaluator
    from theory.moments import activation as named
    from theory.setting import MOMENT_KINDS
    from theory.stack import POST, BranchMoments, NormKind, transfer

    one = transfer(
        POST,
        NormKind.LAYERNORM,
        BranchMoments(*[evaluator(named(activation), kind)(gain) for kind in MOMENT_KINDS]),
        stream=1.0,
        residual_weight=residual_weight,
        branch_weight=1.0,
        input_scale=1.0,
        gain_in=gain,
        gain_out=gain,
        sqrt=math.sqrt,
    )
    return one.fc1_square + one.fc2_square, one.gradient_ratio


@cache
def _real_squares(scheme: str, profile: str, is_ffn: bool, activation: str) -> tuple[tuple[float, ...], ...]:
    """By seed and sublayer: the sublayer's ||df/dW1||^2 + ||df/dW2||^2 over d, one logit at the last of the tokens."""
    from sims.model import ModelConfig, SublayerConfig

    a, gains = _letters(scheme, profile)
    kinds = ["ffn" if is_ffn or index % 2 else "attention" for index in range(len(gains))]
    roles = {"ffn": ("fc1", "fc2"), "attention": ("v", "out")}
    encoder = tuple(
        SublayerConfig(kind=kind, residual_weight=a, gains=dict.fromkeys(roles[kind], gain))
        for kind, gain in zip(kinds, gains, strict=True)
    )
    config = ModelConfig(encoder=encoder, d_model=_WIDTH, ffn_ratio=1, activation=activation)
    found = squares(config, _SEEDS, 1 if is_ffn else 4)
    names = [[f"_weights.encoder_{index}_{role}" for role in roles[kind]] for index, kind in enumerate(kinds)]
    return tuple(tuple(sum(found[name][seed] for name in both) / _WIDTH for both in names) for seed in range(_SEEDS))


def _letters(scheme: str, profile: str, length: int = 6) -> tuple[float, list[float]]:
    network = direct.NETWORKS[scheme]
    gains = [network.gain(length) * _PROFILES[profile](index, length) for index in range(length)]
    return network.residual_weight(length), gains


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _real_by_measuring(s: RealBound) -> Evidence:
    bound = lambdify((alpha, v, w), s.square, modules="math")
    cases = [(scheme, "uniform", True) for scheme in _SCHEMES]
    for scheme in ("post-ln", "deepnorm"):
        cases += [(scheme, "uniform", False), *((scheme, profile, True) for profile in _PROFILES)]
    answers: list[bool | None] = []
    most = 0.0
    for scheme, profile, is_ffn in dict.fromkeys(cases):
        found = _real_squares(scheme, profile, is_ffn, s.activation)
        a, gains = _letters(scheme, profile)
        bounds = [bound(a, gain, gain) for gain in gains]
        over = interval([_mean(list(map(truediv, squares, bounds))) for squares in found])
        answers.append(is_below(over, 1))
        most = max(most, over.high)
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail=f"real FFN stacks (even and uneven gains) and Transformers of 4 tokens, 6 sublayers, d = {_WIDTH}, by "
        f"autograd: the mean over sublayers of its share of the bound, mean of {_SEEDS} seeds and 3 standard errors",
        numbers={"largest upper end": f"{most:.2g}"},
    )


_REAL = RealBound((v**2 + w**2) / alpha**2)
_DN_02 = Claim(
    id="DN-02",
    source="deepnet",
    locator="Section 4, Theorem 4.2",
    quote=_DN_02_QUOTE,
    summary="the update of an N-layer DeepNet is at most sum_i sqrt(v_i^2 + w_i^2)/alpha ||dtheta_i||",
    uses=("DN-08",),
    parts=(
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=_PRINTED_BOUND,
            checks=(
                searched("rational weights inside the hypotheses, 2 to 6 sublayers, exactly", is_decoder=False),
                Check(route=Route.PROOF, run=_two_sublayers),
            ),
            mutants=(
                Mutant(name="1/alpha^2", statement=ScalarBound(EACH / alpha)),
                Mutant(name="half", statement=ScalarBound(EACH / 2, has_chain=True)),
            ),
            instead=Amendment(
                statement=ScalarBound(EACH, has_chain=True),
                text="times the product over the other sublayers of (alpha + vw)/sqrt(alpha^2 + v^2 w^2) > 1, which "
                "the proof takes for 1: exp(2^(-3/4) N^(1/4)) at the printed alpha and beta (DN-08)",
            ),
            condition="sum over i of v_i w_i / alpha goes to 0; or a wide network, where the slopes above multiply to "
            "1 in mean square",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="in a wide network, relu",
            statement=_REAL,
            checks=(
                Check(route=Route.MEANFIELD, run=_real_by_mean_field),
                Check(route=Route.MEASURED, run=_real_by_measuring, is_direct=True),
            ),
            mutants=(
                Mutant(name="a quarter", statement=RealBound((v**2 + w**2) / (4 * alpha**2))),
                Mutant(name="v^2 w^2", statement=RealBound(v**2 * w**2 / alpha**2)),
                Mutant(name="gelu, which explodes at alpha = 1", statement=RealBound(_REAL.square, "gelu")),
            ),
        ),
    ),
    expected=Verdict.REFUTED,
)


# ---------------------------------------------------------------- DN-03: Theorem 4.3

_j = scratch("j", integer=True, positive=True)
_INDEX = Values.of(cross=3 * _j - 1)
_E, _D = side_symbols("encoder"), side_symbols("decoder")
_COUPLING = M * _D.init_gain**2 / _D.residual_weight
_SIDES = Values.of(
    encoder=_COUPLING**2 * 2 * N * 2 * _E.init_gain**2 / _E.residual_weight**2,
    decoder=3 * M * 2 * _D.init_gain**2 / _D.residual_weight**2,
)
"""Squares of the theorem's factors, summed over the sublayers of a side, at one gain: the most of ||df/dW||^2 / d."""


def _index_of_theory(s: Values) -> list[bool | None]:
    from theory.bounds import cross_sublayers, reading_sides
    from theory.stack import ARCHITECTURES

    _, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    return [exact.equal(s["cross"], cross_sublayers(reader, _j))]


def _index_of_network(s: Values) -> list[bool | None]:
    from sims.model import decoder_layers

    kinds = [sublayer.kind for sublayer in decoder_layers(8)]
    places = [index for index, kind in enumerate(kinds, start=1) if kind == "cross"]
    return [places == [int(s["cross"].subs(_j, layer)) for layer in range(1, 9)]]


def _one_layer_each(s: ScalarBound) -> Evidence:
    """One encoder and one decoder layer, weights 1/10 but for the decoder's FFN, by theory's slopes."""
    from theory.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    at, low = _EXAMPLE["alpha"], _EXAMPLE["low"]
    stream, memory = (slope.subs({alpha: at, v: low[0], w: low[1]}) for slope in cross_slopes(alpha, v, w))
    own, slope, above = scalar_sensitivity(at, *low), scalar_slope(at, *low), scalar_slope(at, *_EXAMPLE["high"])
    coupling = low[0] * low[1] / at
    ratios = {
        "the decoder's self-attention": _over(s, own * stream * above, above),
        "the encoder's self-attention": _over(s, own * slope * memory * above / coupling, slope * above),
    }
    where = "N = M = 1, alpha = 3/2, v = w = 1/10 but the decoder's FFN (5/6, 3/4)"
    return _scalar_evidence(ratios, _DN_03_QUOTE, where, "DN-03")


def _bounds_at(s: Values, num_encoder: int, num_decoder: int, is_printed: bool) -> tuple[float, float]:
    scales = deepnet_scales(num_encoder, num_decoder) if is_printed else VANILLA
    letters = {N: num_encoder, M: num_decoder}
    for side, (a, b) in zip((_E, _D), scales, strict=True):
        letters |= {side.residual_weight: a, side.init_gain: b}
    return float(s["encoder"].subs(letters)), float(s["decoder"].subs(letters))


def _sides_by_closed_form(s: Values) -> Evidence:
    found = {}
    for is_printed in (True, False):
        for counts in ((1, 1), (1, 100), (100, 1), (100, 100)):
            scales = deepnet_scales(*counts) if is_printed else VANILLA
            pairs = zip(one_token(scales, *counts), _bounds_at(s, *counts, is_printed), strict=True)
            name = f"{'DeepNet' if is_printed else 'vanilla'}, N, M = {counts[0]}, {counts[1]}"
            found[name] = [share / bound for share, bound in pairs]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=2 * len(found),
        verdict=outcome(all(ratio <= 1 for ratios in found.values() for ratio in ratios)),
        detail="one token on either side, infinite width, relu: either side's sum of ||df/dW||^2 / d over the bound's",
        numbers={name: [float(f"{ratio:.3g}") for ratio in ratios] for name, ratios in found.items()},
    )


def _sides_by_measuring(s: Values) -> Evidence:
    found: dict[str, list[Interval]] = {}
    for is_printed in (True, False):
        for counts in ((1, 2), (2, 8), (4, 2)):
            scales = deepnet_scales(*counts) if is_printed else VANILLA
            by_seed = measured(scales, *counts, num_seeds=5, num_tokens=2)
            bounds = _bounds_at(s, *counts, is_printed)
            name = f"{'DeepNet' if is_printed else 'vanilla'}, N, M = {counts[0]}, {counts[1]}"
            found[name] = [interval([one[k] / bounds[k] for one in by_seed]) for k in (0, 1)]
    answers = [is_below(over, 1) for pair in found.values() for over in pair]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail="real encoder-decoders, 2 tokens, d = 32, by autograd: the same, mean of 5 seeds and 3 standard errors",
        numbers={name: [over.text for over in pair] for name, pair in found.items()},
    )


_AFTER_A_STEP = (
    "eta*(Sum(v_d[3*j - 1]*w_d[3*j - 1]/alpha_d, (j, 1, M))*Sum((v_e[l]**2 + w_e[l]**2)/alpha_e**2, (l, 1, 2*N)) + "
    "Sum((v_d[l]**2 + w_d[l]**2)/alpha_d**2, (l, 1, 3*M)))"
)
"""Theorem 4.3 with each displacement eta times its gradient, as its section's goal counts it."""
_DN_03 = Claim(
    id="DN-03",
    source="deepnet",
    locator="Section 4, Theorem 4.3",
    quote=_DN_03_QUOTE,
    summary="the update of an encoder-decoder: the encoder's bound times sum_j v w / alpha_d of the cross-attentions, "
    "3j - 1, and the decoder's",
    uses=("DN-02", "DN-08"),
    parts=(
        Part(
            name="the cross-attention of layer j is sublayer 3j - 1",
            statement=_INDEX,
            checks=(
                check(Route.PROOF, "its place in a layer of (self, cross, ffn)", _index_of_theory),
                check(Route.PROPERTY, "the sublayers of a real decoder of 8 layers", _index_of_network, is_direct=True),
            ),
            mutants=(
                Mutant(name="l % 3 = 1, as Magneto has it", statement=Values.of(cross=3 * _j - 2)),
                Mutant(name="3j", statement=Values.of(cross=3 * _j)),
            ),
        ),
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=_PRINTED_BOUND,
            checks=(
                searched(
                    "rational weights inside the hypotheses, 1 to 3 layers on either side, exactly", is_decoder=True
                ),
                Check(route=Route.PROOF, run=_one_layer_each),
            ),
            mutants=(
                Mutant(name="1/alpha^2", statement=ScalarBound(EACH / alpha)),
                Mutant(name="half", statement=ScalarBound(EACH / 2, has_chain=True)),
            ),
            instead=Amendment(
                statement=ScalarBound(EACH, has_chain=True),
                text="times the slopes above (those of the decoder's self-attentions and FFNs above each "
                "cross-attention, for the encoder) and the size of what enters; the proof takes both for 1",
            ),
            condition="sum over the sublayers of v w / alpha goes to 0; or a wide network, as DN-02",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="in a wide network, relu: the encoder's and the decoder's share",
            statement=_SIDES,
            checks=(
                Check(route=Route.MEANFIELD, run=_sides_by_closed_form, is_direct=True),
                Check(route=Route.MEASURED, run=_sides_by_measuring, is_direct=True),
            ),
            mutants=(
                Mutant(name="coupling without M", statement=_SIDES.with_(encoder=_SIDES["encoder"] / M**2)),
                Mutant(name="a sublayer a layer", statement=_SIDES.with_(decoder=_SIDES["decoder"] / 3)),
            ),
        ),
    ),
    cells=tuple(
        Cell(table="bounds", where=(("scheme", f"encoder-decoder-{name}"),), column=column, printed=text, note=note)
        for name, column, text, note in (
            ("post-ln", "order", "N**2", "O(M sum_{2N} + sum_{3M}) after one SGD step, M = N"),
            ("deepnorm", "order", "1", "what its alpha and beta are chosen for"),
            ("post-ln", "bound", _AFTER_A_STEP, "after one SGD step"),
            ("deepnorm", "bound", _AFTER_A_STEP, "after one SGD step"),
        )
    ),
    expected=Verdict.REFUTED,
)

CLAIMS: tuple[Claim, ...] = (_DN_02, _DN_03)
