"""DeepNet's bounds on the update: DN-02 (Theorem 4.2, one stack), DN-09 (vanilla Post-LN as a case of it), DN-03
(Theorem 4.3, an encoder-decoder).

All are held against the scalar model that they are proved in and against wide networks. theta_i are the weights v_i and
w_i of sublayer i. N encoder layers have 2 sublayers each, M decoder layers have 3: self-attention, cross-attention,
FFN. In a wide network a logit moves by at most ||df/dW||_F ||dW||_F, and the theorems have it move by s ||dtheta||:
||df/dW||^2 <= d s^2 is that bound with ||dtheta|| = sqrt(d) ||dW||_F. They stand in one module, since the same networks
are held against all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, product
from operator import truediv
from typing import Any

import mpmath
from sympy import Expr, Rational, S, Sum, exp, expand_log, factor, lambdify, limit, log, sqrt, together

from depthlaw.paper_checks.claims.broken import broken
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Cell,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.deepnet import models, runs
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import GROWTH, Answers, check, growth_part, python_command
from depthlaw.paper_checks.routes.intervals import OF_FEW, Interval, interval
from depthlaw.paper_checks.routes.kernel import GROWTH_BY_KERNEL
from depthlaw.paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from depthlaw.paper_checks.routes.search import search
from depthlaw.paper_checks.routes.signal_propagation.gelu_growth import (
    EQUAL_MOMENTS,
    GELU_SECOND,
    GELU_SLOPE,
    KAPPA_POST,
)
from depthlaw.theory.symbols import L, M, N, displacements, l, scratch, side_symbols
from depthlaw.theory.symbols import gain_in as w
from depthlaw.theory.symbols import gain_out as v
from depthlaw.theory.symbols import residual_weight as alpha

# ---------------------------------------------------------------- DN-02, DN-03: in the scalar model

_EACH = sqrt(v**2 + w**2) / alpha
_CHAIN = scratch("C", positive=True)
_LETTERS = (alpha, v, w, _CHAIN)
_WORDS = "||dF|| <= sum_i s_i ||theta_i* - theta_i||, s_i = {each}, for all 0 < v, w < 1 < alpha"
_BOUND = Values.of(_WORDS, each=_EACH)
_CHAINED = Values.of(_WORDS + "; C: the size of what enters sublayer i times the slopes above it", each=_CHAIN * _EACH)


def _rational(ts: Sequence[Fraction]) -> list[models.Sublayer]:
    """Sublayers of one alpha > 1 in fractions: with v w / alpha = 2t/(1 - t^2) the root is rational.

    Every t is below sqrt(2) - 1, so that v and w lie between 0 and 1.
    """
    ratios = [2 * t / (1 - t**2) for t in ts]
    a = (1 + 1 / max(ratios)) / 2
    gains = [(1 + ratio * a) / 2 for ratio in ratios]
    return [
        models.sublayer(a, gain, ratio * a / gain, keeps=(1 - t**2) / (1 + t**2))
        for t, ratio, gain in zip(ts, ratios, gains, strict=True)
    ]


def _over_bound(s: Values, encoder: list[models.Sublayer], decoder: list[models.Sublayer]) -> dict[str, Any]:
    """|F(theta*) - F(theta)| over its bound, one sublayer moved or all of them by the same length."""
    each = lambdify(_LETTERS, s["each"], modules="mpmath")
    both, split = [*encoder, *decoder], len(encoder)
    coupling = sum(part.ratio for part in decoder[1::3]) if decoder else 1
    bounds = [
        each(*part[:3], chained) * (coupling if index < split else 1)
        for index, (part, (_, chained)) in enumerate(zip(both, models.sensitivities(encoder, decoder), strict=True))
    ]
    step = mpmath.mpf(10) ** -20  # its second order is below what is shown
    places: dict[str, Sequence[int]] = {"theta_1 alone": [0], "all alike": range(len(bounds))}
    if decoder:
        places["the first cross-attention alone"] = [split + 1]
    ratios = {}
    for name, moving in places.items():
        after = list(both)
        for i in moving:  # along (1, 1), the gradient's direction at v = w
            after[i] = models.sublayer(
                both[i].alpha, *(gain + step / mpmath.sqrt(2) for gain in (both[i].v, both[i].w))
            )
        moved = abs(models.output(after[:split], after[split:]) - models.output(encoder, decoder))
        ratios[name] = moved / (step * sum(bounds[i] for i in moving))
    return ratios


def _by_theory(num_layers: int, of_two: bool) -> Mapping[str, tuple[tuple[Expr, ...], Expr, Expr]]:
    """Of theta_1 of each side: (alpha, v, w), the size of its derivative, and what the amended bound multiplies by."""
    from depthlaw.theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    def at(which: str) -> tuple[Expr, ...]:
        a, b = (expr.subs({N: num_layers, M: num_layers}).evalf(40) for expr in models.PRINTED[which])
        return a, b, b

    encoder = at("encoder of two" if of_two else "encoder")
    below = scalar_slope(*encoder) ** (2 * num_layers - 1)
    sensitivity = scalar_sensitivity(*encoder) * below
    if not of_two:
        return {"theta_1": (encoder, sensitivity, below)}
    decoder = at("decoder of two")
    stream, memory = cross_slopes(*decoder)
    slope, layers = scalar_slope(*decoder), range(num_layers)
    above = slope ** (2 * num_layers - 1)
    entering = sum((memory * slope * (slope**2 * stream) ** k for k in layers), S.Zero)
    coupling = num_layers * decoder[1] * decoder[2] / decoder[0]
    chained = sum((slope ** (1 + 2 * k) for k in layers), S.Zero) / num_layers
    return {
        "the encoder's theta_1": (encoder, sensitivity * entering / coupling, below * chained),
        "the decoder's theta_1": (decoder, scalar_sensitivity(*decoder) * above * stream**num_layers, above),
    }


def _scalar_part(*, of_two: bool, quote: str, command: str, steps: Sequence[str], instead: str, condition: str) -> Part:
    """A bound in the model of its proof: by a search, a step at the printed scales, and derived slopes there."""
    tried = "1 to 3 layers on either side" if of_two else "2 to 6 sublayers"

    def name(num_layers: int) -> str:
        return f"N = {'M = ' * of_two}{num_layers}"

    @check(Route.PROPERTY, f"rational weights inside the hypotheses, {tried}, exactly")
    def searched(s: Values) -> Answers:
        from hypothesis import strategies as st

        def stack(size: int) -> Any:
            t = st.integers(1, 41).map(lambda n: Fraction(n, 100))
            layers = st.lists(st.tuples(*[t] * size), min_size=1, max_size=3)
            return layers.map(lambda rows: _rational([t for row in rows for t in row]))

        def is_below(part: models.Sublayer, true: Fraction, chained: Fraction) -> bool:
            square = algebra.value_at(s["each"] ** 2, _LETTERS, (part.alpha, part.v, part.w, chained))
            return (part.v**2 + part.w**2) / part.alpha**2 * true**2 <= square

        def holds(sides: tuple[list[models.Sublayer], list[models.Sublayer]]) -> bool:
            pairs = zip(chain(*sides), models.sensitivities(*sides), strict=True)
            return all(is_below(part, *pair) for part, pair in pairs)

        result = search(st.tuples(stack(2), stack(3) if of_two else st.just([])), holds, max_examples=60)
        return Answers(holds=[result.found is None], num_effective=result.num_effective)

    @check(Route.NUMERIC, "a step of 10^-20 at DeepNet's own alpha and beta, over what is printed")
    def stepped(s: Values) -> Answers:
        with mpmath.workdps(50):
            ratios = {name(n): _over_bound(s, *models.scalar_sides(n, of_two=of_two)) for n in (2, 18, 100)}
            holds = [bool(ratio <= 1) for row in ratios.values() for ratio in row.values()]
        shown = {key: {what: f"{float(x):.4g}" for what, x in row.items()} for key, row in ratios.items()}
        by_depth = ", ".join(f"{row['all alike']} at {key}" for key, row in shown.items())
        example = {
            "printed": quote,
            "found": f"at DeepNet's own alpha and beta, all sublayers moved alike, ||dF|| over that is {by_depth}",
            "command": command,
            "over the bound": shown,
        }
        return Answers(holds=holds, numbers=shown, counterexample=None if all(holds) else example)

    @check(Route.PROOF, "||dF/dtheta|| by the derived model's slopes over the bound, at DeepNet's own alpha and beta")
    def derived(s: Values) -> Answers:
        ratios = {}
        for count in (2, 18, 100) if of_two else (2, 18, 100, 500):
            for which, (scale, true, chained) in _by_theory(count, of_two).items():
                bound = s["each"].subs(dict(zip(_LETTERS, (*scale, chained), strict=True)))
                ratios[f"{which}, {name(count)}"] = (true / bound).evalf(30)
        shown = {key: f"{float(ratio):.4g}" for key, ratio in ratios.items()}
        return Answers(holds=[bool(ratio <= 1) for ratio in ratios.values()], numbers=shown, steps=steps)

    return Part(
        name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
        statement=_BOUND,
        checks=(searched, stepped, derived),
        mutants=(Mutant(name="half", statement=_CHAINED.with_(each=_CHAIN * _EACH / 2)),),
        instead=Amendment(statement=_CHAINED, text=instead),
        condition=condition,
        expected=Verdict.REFUTED,
    )


# ---------------------------------------------------------------- DN-02: in wide networks

_POST, _SCALED = "post-ln", ("deepnorm", "su-sgd", "su-adam", "su-lamb")
_SQUARE = (v**2 + w**2) / alpha**2
_RELU = Values.of(
    "||df/dW1||^2 + ||df/dW2||^2 <= d ({square}) for every sublayer of a network of one logit, {activation}, v and w "
    "alike or not, {schemes}, as the width grows (L/d -> 0): the theorem's bound with ||dtheta|| = sqrt(d) ||dW||_F",
    square=_SQUARE,
    activation="relu",
    schemes=", ".join((_POST, *_SCALED)),
)
_GELU = _RELU.with_(activation="gelu")
_GELU_SCALED = _GELU.with_(schemes=", ".join(_SCALED))
_WIDTH, _SEEDS, _LENGTH = 48, range(16), 6
_PROFILES: Mapping[str, Callable[[int, int], tuple[float, float]]] = {
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


def _gains(scheme: str, profile: str, length: int) -> tuple[float, list[tuple[float, float]]]:
    """alpha, and (v, w) by sublayer."""
    network = second_meanfield.coefficients(scheme, length)
    factors = (_PROFILES[profile](index, length) for index in range(length))
    return network.residual_weight, [(network.gain_in * by_v, network.gain_in * by_w) for by_v, by_w in factors]


Passing = Callable[[str, float, float, float], tuple[float, float]]
"""Of an activation, alpha, v and w: a sublayer's (||df/dW1||^2 + ||df/dW2||^2)/d, and D_{l-1}/D_l of its gradients."""


def _wide_over_bound(passing: Passing) -> Callable[[Values], Answers]:
    """By network: the largest share of its bound that a sublayer has, the gradient carried down from the top."""

    def decide(s: Values) -> Answers:
        bound, over = lambdify((alpha, v, w), s["square"], modules="math"), {}
        for scheme, (length, profile) in product(s["schemes"].split(", "), _CASES):
            a, gains = _gains(scheme, profile, length)
            gradient, most = 1.0, 0.0
            for pair in reversed(gains):
                square, ratio = passing(s["activation"], a, *pair)
                most = max(most, gradient * square / bound(a, *pair))
                gradient *= ratio
            over[f"{scheme}, {length} sublayers, {profile}"] = most
        worst = max(over, key=lambda name: round(over[name], 6))
        shown = worst.replace(_POST, "alpha = v = w = 1").replace(", uniform", "")
        example = {
            "printed": "a sublayer moves F by at most sqrt(v^2 + w^2)/alpha ||dtheta||, at any alpha, v, w",
            "found": f"{shown}, {s['activation']}, in a wide network: {math.sqrt(over[worst]):.3g} times that by one "
            "sublayer",
            "command": "depthlaw explain DN-02",
        }
        answers = [value <= 1 for value in over.values()]
        numbers = {"largest square over the bound": f"{over[worst]:.4g}", "of": worst}
        return Answers(holds=answers, numbers=numbers, counterexample=None if all(answers) else example)

    return decide


def post_norm(moments: Any, residual_weight: Any, by_v: Any, by_w: Any, root: Callable[[Any], Any]) -> Any:
    """theory's post-norm sublayer on a normalised stream. root: that of the numbers, sympy's or math's."""
    from depthlaw.theory.stack import POST, NormKind, transfer

    return transfer(
        POST,
        NormKind.LAYERNORM,
        moments,
        stream=1,
        residual_weight=residual_weight,
        branch_weight=1,
        input_scale=1,
        gain_in=by_w,
        gain_out=by_v,
        sqrt=root,
    )


@cache
def _passed_by_theory(activation: str, a: float, by_v: float, by_w: float) -> tuple[float, float]:
    from depthlaw.theory import moments
    from depthlaw.theory.stack import BranchMoments

    kinds = {"second": moments.Kind.SECOND, "slope_second": moments.Kind.SLOPE_SECOND}  # all that SGD's part has in it
    known = {name: moments.evaluator(moments.activation(activation), kind)(by_w) for name, kind in kinds.items()}
    passed = post_norm(BranchMoments(*[math.nan] * 6)._replace(**known), a, by_v, by_w, math.sqrt)
    return passed.fc1_square + passed.fc2_square, passed.gradient_ratio


def _passed_by_quadrature(activation: str, a: float, by_v: float, by_w: float) -> tuple[float, float]:
    _, second, slope, *_ = second_meanfield.moments(activation, by_w)
    total = a**2 + by_v**2 * second
    return (by_v**2 * slope + second) / total, (a**2 + by_v**2 * by_w**2 * slope) / total


@cache
def _measured(scheme: str, profile: str, is_ffn: bool, activation: str) -> list[list[float]]:
    """By sublayer and seed, ||df/dW1||^2 + ||df/dW2||^2 over d of one logit at the last token."""
    from depthlaw.sims.model import ModelConfig, SublayerConfig

    a, gains = _gains(scheme, profile, _LENGTH)
    kinds = ["ffn" if is_ffn or index % 2 else "attention" for index in range(_LENGTH)]
    roles = {"ffn": ("fc2", "fc1"), "attention": ("out", "v")}
    encoder = tuple(
        SublayerConfig(kind=kind, residual_weight=a, gains=dict(zip(roles[kind], pair, strict=True)))
        for kind, pair in zip(kinds, gains, strict=True)
    )
    config = ModelConfig(encoder=encoder, d_model=_WIDTH, ffn_ratio=1, activation=activation)
    by_name = models.squares(config, _SEEDS, 1 if is_ffn else 4)
    return [
        models.added(by_name[f"_weights.encoder_{i}_{role}"] for role in roles[kind]) for i, kind in enumerate(kinds)
    ]


@check(
    Route.MEASURED,
    f"real FFN stacks (even and uneven gains, v and w apart) and Transformers of 4 tokens, by autograd, at "
    f"{_LENGTH} sublayers and d = {_WIDTH} only: the mean over sublayers of its share of the bound, as an interval "
    f"from {len(_SEEDS)} seeds. Where L/d is not small single networks scatter as exp(c L/d), and their mean "
    "may pass the bound",
)
def _wide_by_measuring(s: Values) -> Answers:
    bound = lambdify((alpha, v, w), s["square"], modules="math")
    cases = [(scheme, "uniform", True) for scheme in s["schemes"].split(", ")]
    for scheme, profiles in ((_POST, tuple(_PROFILES)), ("deepnorm", ("v over w", "w over v"))):
        cases += [(scheme, "uniform", False), *((scheme, profile, True) for profile in profiles)]
    over = []
    for scheme, profile, is_ffn in dict.fromkeys(cases):
        a, gains = _gains(scheme, profile, _LENGTH)
        bounds = [bound(a, *pair) for pair in gains]
        by_seed = zip(*_measured(scheme, profile, is_ffn, s["activation"]), strict=True)
        over.append(interval([sum(map(truediv, row, bounds)) / _LENGTH for row in by_seed]))
    most = max(mean.high for mean in over)
    return Answers(holds=[mean.is_below(1) for mean in over], numbers={"largest upper end": f"{most:.2g}"})


_AT_TOP = float((GELU_SLOPE + GELU_SECOND) / (1 + GELU_SECOND) / 2)
"""The top sublayer's squared gradient over its bound, with GELU at alpha = v = w = 1."""
_BY_MEAN_FIELD = check(
    Route.MEANFIELD,
    "FFN stacks at infinite width, sublayer by sublayer, up to 100 of them, even and uneven gains, v and w apart; a "
    "sublayer multiplies the squared gradient by (alpha^2 + v^2 w^2 E phi'^2)/(alpha^2 + v^2 E phi^2): with ReLU by 1, "
    "and its own is (v^2 + w^2)/(2 alpha^2 + v^2 w^2)",
    _wide_over_bound(_passed_by_theory),
)
_WIDE_PARTS = (
    Part(
        name="in a wide network (L/d -> 0), relu",
        statement=_RELU,
        checks=(_BY_MEAN_FIELD, _wide_by_measuring),
        mutants=tuple(
            Mutant(name=name, statement=_RELU.with_(square=square))
            for name, square in {
                "a quarter": _SQUARE / 4,
                "2 v w": 2 * v * w / alpha**2,
                "2 v^4/w^2": 2 * v**4 / w**2 / alpha**2,
            }.items()
        ),
    ),
    Part(
        name="in a wide network (L/d -> 0), gelu",
        statement=_GELU,
        checks=(
            _BY_MEAN_FIELD,
            check(Route.NUMERIC, "the same by quadrature", _wide_over_bound(_passed_by_quadrature)),
        ),
        mutants=(
            Mutant(name="a quarter", statement=_GELU_SCALED.with_(square=_SQUARE / 4)),
            Mutant(name="2 v w", statement=_GELU_SCALED.with_(square=2 * v * w / alpha**2)),
        ),
        instead=Amendment(
            statement=_GELU_SCALED,
            text="the bound holds with DeepNorm's alpha and beta, and with those of the other scaled schemes",
        ),
        condition=sentence(
            "w^2 E phi'^2 <= E phi^2 at the preactivation's scale w, as ReLU has with equality (gelu at w = 1: "
            "{slope:.3f} and {second:.3f}, so the squared gradient grows by {kappa:.4f} a sublayer, and passes the "
            "bound at sublayer {first} from the top); or L v^2 (w^2 E phi'^2 - E phi^2)/alpha^2 bounded and small, as "
            "under DeepNorm's alpha and beta",
            slope=GELU_SLOPE,
            second=GELU_SECOND,
            kappa=KAPPA_POST,
            first=1 + math.ceil(-math.log(_AT_TOP) / math.log(float(KAPPA_POST))),
        ),
        expected=Verdict.REFUTED,
    ),
)

_POWER = 2 * N * models.PRINTED["encoder"][1] ** 2 / models.PRINTED["encoder"][0] / N ** Rational(1, 4)
"""What the slopes v w / alpha of the 2N sublayers add up to at DeepNet's alpha and beta, over N^(1/4)."""
_QUOTE = "||dF|| <= sum_{i=1}^{2N} sqrt(v_i^2 + w_i^2)/alpha ||theta_i^* - theta_i||"
_DN_02 = Claim(
    id="DN-02",
    kind=Kind.RESULT,
    locator="Section 4, Theorem 4.2",
    quote=_QUOTE,
    summary="the update of an N-layer DeepNet is at most sum_i sqrt(v_i^2 + w_i^2)/alpha ||dtheta_i||",
    uses=("DN-01", "DN-08", "DN-11"),
    parts=(
        _scalar_part(
            of_two=False,
            quote=_QUOTE,
            command=python_command(
                "import torch; N = 18; a, b = (2 * N) ** 0.25, (8 * N) ** -0.25; "
                "t = torch.full((2 * N, 2), b, requires_grad=True);"
                " p = t.prod(1); F = ((a + p) / (a * a + p * p).sqrt()).prod(); g = torch.autograd.grad(F, t)[0];"
                " print('over the bound', g[0].norm().item() / (2**0.5 * b / a))"
            ),
            steps=(
                "r = v w / alpha = 2^(-7/4) N^(-3/4): of 2N equal sublayers each ||dF/dtheta_i|| is (1 - r)/(1 + "
                "r^2)^(3/2) ((1 + r)/sqrt(1 + r^2))^(2N - 1) times the printed sqrt(v^2 + w^2)/alpha",
                "N = 2, the first: alpha = sqrt(2), beta = 1/2, r = sqrt(2)/8",
            ),
            instead="times the product over the other sublayers of (alpha + vw)/sqrt(alpha^2 + v^2 w^2) > 1, which the "
            "proof takes for 1: exp(2^(-3/4) N^(1/4)) at the printed alpha and beta (DN-08)",
            condition="for <= itself no more than two equal sublayers (three with r = v w / alpha have 1 + r times it, "
            "to first order in r); as <= (1 + o(1)), that the sum over i of v_i w_i / alpha goes to 0 (at the printed "
            "alpha and beta it grows as N^(1/4)); or a wide network, where the slopes above multiply to 1 in mean "
            "square",
        ),
        *_WIDE_PARTS,
    ),
    finding=Finding(
        "DeepNet's theorems fail in the scalar model that they are proved in, and hold in wide random networks with "
        "ReLU. In the scalar model, at DeepNet's own alpha and beta, factors that are each about 1 multiply to "
        "exp({power:.2g} N^(1/4)) over the layers; in wide networks contributions add as squares",
        rank=40,
        shared_with=("DN-03", "DN-08", "DN-09"),
        numbers={"power": _POWER},
    ),
)


# ---------------------------------------------------------------- DN-09: vanilla Post-LN, as a case of the theorem

_THEOREM = Sum(sqrt(v**2 + w**2) / alpha * displacements[l], (l, 1, L))
"""Theorem 4.2 at one gain for every sublayer."""
_VANILLA = Values.of(bound=Sum(displacements[l], (l, 1, L)))


def _ratio(first: Expr, second: Expr) -> bool | None:
    """Whether two sums differ by a number."""
    ratio = (algebra.normal_form(first) / algebra.normal_form(second)).cancel()
    return ratio.is_number and bool(ratio.is_finite) and ratio != 0


@check(Route.PROOF, "the derived post-norm bound, over the printed one, is a number")
def _theory_bound(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.update import derive_bound
    from depthlaw.theory.symbols import gains_in, gains_out

    bound = derive_bound("post-ln").displacement
    assert bound is not None
    plain = bound.replace(lambda e: getattr(e, "base", None) in (gains_in, gains_out), lambda _: S.One)
    return [_ratio(plain.subs(alpha, 1), s["bound"])]


@check(Route.ARITHMETIC, "Theorem 4.2 at alpha = v = w = 1 is sqrt(2) times it")
def _case_of_theorem(s: Values) -> list[bool | None]:
    return [_ratio(_THEOREM.subs({alpha: 1, v: 1, w: 1}), s["bound"])]


# ---------------------------------------------------------------- DN-09: the scalar model at alpha = v = w = 1

_MOVES = Values.of(
    "d = 1, alpha = v = w = 1, L sublayers, any theta* in (0, 1]: |dF| = O({factor}) sum_i ||dtheta_i||", factor=1
)
_LOWERED = Rational(9, 10)
"""What v_1 and w_1 are lowered to."""


@check(Route.PROOF, "the derived model's slopes above a first sublayer whose v and w are lowered to 0.9")
def _moves_by_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.scalar_model import scalar_slope

    whole = scalar_slope(S.One, S.One, S.One)
    moved = (whole - scalar_slope(S.One, _LOWERED, _LOWERED)) / (sqrt(2) * (1 - _LOWERED))
    over = limit(expand_log(log(whole) * (L - 1) + log(moved) - log(s["factor"]), force=True).expand(), L, S.Infinity)
    t = scratch("t", positive=True)
    room = factor(together(whole**2 - scalar_slope(S.One, t, S.One) ** 2))
    return [over is not S.Infinity, algebra.equal(room, (1 - t) ** 2 / (1 + t**2))]


def _change(weights: list[tuple[float, float]], length: int) -> float:
    """By how much F of an input of 1 falls where the first sublayers get these (v, w) in place of 1."""
    first = math.prod(models.sublayer(1.0, *pair).slope for pair in weights)
    slope = models.sublayer(1.0, 1.0, 1.0).slope
    return slope**length - first * slope ** (length - len(weights))


@check(Route.NUMERIC, "v_1 and w_1 lowered to 0.9: |dF| over sqrt(2) sum ||dtheta|| times the factor")
def _moves_by_sums(s: Values) -> Answers:
    order, low = lambdify(L, log(s["factor"]), modules="math"), float(_LOWERED)
    ratios = {length: _change([(low, low)], length) / (2 * (1 - low)) for length in (2, 6, 12, 40, 80, 160)}
    logs = [math.log(ratios[length]) - order(length) for length in (40, 80, 160)]
    holds = algebra.settles(logs) or algebra.falls_away(logs)
    shown = {str(length): float(f"{ratios[length]:.4g}") for length in (2, 6, 12, 40)}
    by_length = ", ".join(f"{x:.3g} at L = {n}" if x < 100 else f"{x:.0f} at L = {n}" for n, x in shown.items())
    example = {
        "printed": "vanilla Post-LN: the update is O(sum_i ||dtheta_i||)",
        "found": f"v_1 and w_1 lowered by 0.1: |dF| over sqrt(2) sum ||dtheta|| is {by_length}: it grows as 2^(L/2)",
        "ratios": shown,
        "command": python_command(
            "s = lambda p: (1 + p) / (1 + p * p) ** 0.5;"
            " print('over the bound', *(abs(s(0.81) - s(1)) * s(1) ** (L - 1) / 0.2 for L in (2, 6, 12, 40)))"
        ),
    }
    numbers = {f"L = {length}": ratio for length, ratio in shown.items()}
    return Answers(holds=[holds], num_effective=len(ratios), numbers=numbers, counterexample=None if holds else example)


_TRUE_RELU = Growth(scheme="post-ln", order=L, is_upper=True)
_DN_09 = Claim(
    id="DN-09",
    kind=Kind.STEP,
    locator="Section 4, after Theorem 4.2",
    quote="vanilla Post-LN: alpha = v = w = 1, so O(sum_i ||theta_i^* - theta_i||)",
    summary="vanilla Post-LN is alpha = v = w = 1, its update O(sum of the displacements)",
    parts=(
        Part(
            name="the bound at alpha = v = w = 1, as a case of Theorem 4.2",
            statement=_VANILLA,
            checks=(_theory_bound, _case_of_theorem),
            mutants=(Mutant(name="a weight l", statement=Values.of(bound=Sum(l * displacements[l], (l, 1, L)))),),
        ),
        Part(
            name="in the model that it is derived in: d = 1, alpha = v = w = 1",
            statement=_MOVES,
            checks=(_moves_by_theory, _moves_by_sums),
            mutants=(Mutant(name="times 2^(L/4)", statement=_MOVES.with_(factor=2 ** (L / 4))),),
            instead=Amendment(
                statement=_MOVES.with_(factor=2 ** (L / 2)),
                text="O(2^(L/2) sum ||dtheta_i||): at alpha = v = w = 1 each slope is (1 + 1)/sqrt(2) = sqrt(2). To "
                "first order alone dF = 0",
            ),
            condition="first order in dtheta, where the left side is 0; or a wide network, relu, where the slopes "
            "multiply to 1 in mean square",
            expected=Verdict.REFUTED,
        ),
        Part(
            name="in a wide network, relu: the true update under SGD",
            statement=_TRUE_RELU,
            checks=(*GROWTH, runs.growth_on_record, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=(*broken(_TRUE_RELU), Mutant(name="O(L^(1/2))", statement=_TRUE_RELU.with_(order=sqrt(L)))),
        ),
        growth_part(
            "in a wide network, gelu: the true update under SGD",
            _TRUE_RELU.with_(activation="gelu"),
            expected=Verdict.REFUTED,
            instead=(
                exp(L * log(KAPPA_POST)),
                sentence(
                    "Theta(kappa^L): at gain 1 E phi'^2 > E phi^2, so each sublayer multiplies the gradient by "
                    "kappa = (1 + E phi'^2)/(1 + E phi^2) = {kappa:.4f}",
                    kappa=KAPPA_POST,
                ),
            ),
            condition=EQUAL_MOMENTS,
            wrong=log(L),
        ),
    ),
    cells=(
        Cell(
            table="bounds",
            where=(("scheme", "post-ln"),),
            column="bound",
            printed="eta*Sum((v[l]**2 + w[l]**2)/alpha**2, (l, 1, L))",
            note="Theorem 4.2 after one SGD step, before alpha = v = w = 1",
        ),
    ),
)


# ---------------------------------------------------------------- DN-03: an encoder-decoder

_j = scratch("j", integer=True, positive=True)
_INDEX = Values.of(cross=3 * _j - 1)
_E, _D = side_symbols("encoder"), side_symbols("decoder")
_COUPLING = M * _D.init_gain**2 / _D.residual_weight
_SIDES = Values.of(
    encoder=_COUPLING**2 * 2 * N * 2 * _E.init_gain**2 / _E.residual_weight**2,
    decoder=3 * M * 2 * _D.init_gain**2 / _D.residual_weight**2,
)
"""Squares of the theorem's factors, summed over the sublayers of a side, at one gain: the most of ||df/dW||^2 / d."""


@check(Route.PROOF, "its place in a layer of (self, cross, ffn)")
def _index_of_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.update import cross_sublayers, reading_sides
    from depthlaw.theory.stack import ARCHITECTURES

    _, reader = reading_sides(ARCHITECTURES["encoder-decoder"])
    return [algebra.equal(s["cross"], cross_sublayers(reader, _j))]


@check(Route.PROPERTY, "the sublayers of a real decoder of 8 layers")
def _index_of_network(s: Values) -> list[bool | None]:
    from depthlaw.sims.model import decoder_layers

    places = [index for index, part in enumerate(decoder_layers(8), start=1) if part.kind == "cross"]
    return [places == [int(s["cross"].subs(_j, layer)) for layer in range(1, 9)]]


_SMALL = models.Scales((4.0, 0.25), (4.0, 0.25))
"""Small branches: with M = 1 the true share comes to three quarters of the encoder's bound, and scatters little."""


def _families(counts: tuple[int, int]) -> dict[str, models.Scales]:
    return {"DeepNet": models.deepnet_scales(*counts), "vanilla": models.VANILLA}


def _bounds_at(s: Values, scales: models.Scales, num_encoder: int, num_decoder: int) -> list[float]:
    letters = {N: num_encoder, M: num_decoder}
    for side, (a, b) in zip((_E, _D), scales, strict=True):
        letters |= {side.residual_weight: a, side.init_gain: b}
    return [float(s[side].subs(letters)) for side in ("encoder", "decoder")]


@check(
    Route.MEANFIELD,
    "one token on either side, infinite width, relu: either side's sum of ||df/dW||^2 / d over the "
    "bound's. The encoder's falls as 1/M below it: M independent cross-attentions add as squares, so "
    "that encoder/M is the true bound, and the stronger one",
)
def _sides_by_closed_form(s: Values) -> Answers:
    over = {}
    for counts in ((1, 1), (1, 100), (100, 1), (100, 100)):
        for family, scales in _families(counts).items():
            pairs = zip(models.one_token(scales, *counts), _bounds_at(s, scales, *counts), strict=True)
            over["{}, N, M = {}, {}".format(family, *counts)] = [share / bound for share, bound in pairs]
    return Answers(
        holds=[ratio <= 1 for ratios in over.values() for ratio in ratios],
        numbers={name: [float(f"{ratio:.3g}") for ratio in ratios] for name, ratios in over.items()},
    )


@check(Route.MEASURED, "the same of real encoder-decoders, d = 32, intervals of 5 or 40 seeds")
def _sides_by_measuring(s: Values) -> Answers:
    cases = [("small branches", _SMALL, (12, 1), 40, 1)]
    for counts in ((1, 2), (2, 8), (4, 2)):
        cases += [(family, scales, counts, 5, 2) for family, scales in _families(counts).items()]
    over: dict[str, list[Interval]] = {}
    for family, scales, (n, m), num_seeds, num_tokens in cases:
        sides = models.by_sublayer((scales.encoder,) * n, (scales.decoder,) * m, range(num_seeds), num_tokens)
        over[f"{family}, N, M = {n}, {m}"] = [
            interval([square / bound for square in models.added(side)], OF_FEW)
            for side, bound in zip(sides, _bounds_at(s, scales, n, m), strict=True)
        ]
    return Answers(
        holds=[side.is_below(1) for pair in over.values() for side in pair],
        numbers={name: [side.text for side in pair] for name, pair in over.items()},
    )


_QUOTE_OF_TWO = (
    "||dF_ed|| <= sum_{j=1}^{M} v_{d,3j-1} w_{d,3j-1}/alpha_d sum_{i=1}^{2N} sqrt(v_ei^2 + w_ei^2)/alpha_e "
    "||dtheta_ei|| + sum_{j=1}^{3M} sqrt(v_dj^2 + w_dj^2)/alpha_d ||dtheta_dj||"
)
_AFTER_A_STEP = (
    "eta*(Sum(v_d[3*j - 1]*w_d[3*j - 1]/alpha_d, (j, 1, M))*Sum((v_e[l]**2 + w_e[l]**2)/alpha_e**2, (l, 1, 2*N)) + "
    "Sum((v_d[l]**2 + w_d[l]**2)/alpha_d**2, (l, 1, 3*M)))"
)
"""The theorem with each displacement eta times its gradient, as its section's goal counts it."""
_DN_03 = Claim(
    id="DN-03",
    kind=Kind.RESULT,
    locator="Section 4, Theorem 4.3",
    quote=_QUOTE_OF_TWO,
    summary="the update of an encoder-decoder: the encoder's bound times sum_j v w / alpha_d of the cross-attentions, "
    "3j - 1, and the decoder's",
    uses=("DN-02", "DN-08"),
    parts=(
        Part(
            name="the cross-attention of layer j is sublayer 3j - 1",
            statement=_INDEX,
            checks=(_index_of_theory, _index_of_network),
        ),
        _scalar_part(
            of_two=True,
            quote=_QUOTE_OF_TWO,
            command="depthlaw explain DN-03",
            steps=(
                "slopes of self-attentions and FFNs above exceed 1, those of cross-attentions in the stream fall short",
            ),
            instead="times the slopes above (those of the decoder's self-attentions and FFNs above each "
            "cross-attention, for the encoder) and the size of what enters; the proof takes both for 1",
            condition="as <= (1 + o(1)), that the sum of v w / alpha over the sublayers of either side goes to 0 (no "
            "such condition saves <= itself, as DN-02); or a wide network",
        ),
        Part(
            name="in a wide network (L/d -> 0), relu: the encoder's and the decoder's share",
            statement=_SIDES,
            checks=(_sides_by_closed_form, _sides_by_measuring),
            mutants=(
                Mutant(name="N for 2N", statement=_SIDES.with_(encoder=_SIDES["encoder"] / 2)),
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
)

CLAIMS: tuple[Claim, ...] = (_DN_02, _DN_09, _DN_03)
