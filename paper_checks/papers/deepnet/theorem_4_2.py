"""DeepNet's Theorem 4.2, a bound on the update of one stack, and its case of vanilla Post-LN: DN-02, DN-09.

Both are held against the scalar model that they are proved in and against wide networks. theta_i are the weights v_i
and w_i of sublayer i, and N layers have 2 sublayers each. In a wide network a logit moves by at most ||df/dW||_F
||dW||_F, and the theorem has it move by s ||dtheta||: ||df/dW||^2 <= d s^2 is that bound with ||dtheta|| = sqrt(d)
||dW||_F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from operator import truediv
from typing import Any

from sympy import Expr, Rational, S, Sum, exp, expand_log, factor, lambdify, limit, log, simplify, sqrt, together

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Amendment, Cell, Claim, Finding, Kind, Mutant, Part, Route, Verdict, told
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.deepnet.parts import PRINTED, squares
from paper_checks.papers.deepnet.runs import GROWTH_ON_RECORD
from paper_checks.papers.deepnet.scalar_model import BOUND, CHAINED, MUTANTS, scalar_checks, sublayer
from paper_checks.routes import algebra, one_liners, second_meanfield
from paper_checks.routes.checks import GROWTH, Answers, check, growth_part
from paper_checks.routes.gelu_growth import EQUAL_MOMENTS, GELU_SECOND, GELU_SLOPE, KAPPA_POST
from paper_checks.routes.intervals import interval
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.search import search
from paper_checks.routes.wide_networks import measured_too
from theory.symbols import L, N, displacements, l, scratch
from theory.symbols import gain_in as w
from theory.symbols import gain_out as v
from theory.symbols import residual_weight as alpha

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
_WIDTH, _SEEDS = 48, 16
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


def _bound(s: Values) -> Callable[[float, float, float], float]:
    return lambdify((alpha, v, w), s["square"], modules="math")


Scale = Callable[[str, int], tuple[float, float]]
"""Of a scheme and a number of sublayers: alpha, and the gain of v and w."""


def _scale(scheme: str, length: int) -> tuple[float, float]:
    network = second_meanfield.coefficients(scheme, length)
    return network.residual_weight, network.gain_in


def _letters(scale: Scale, scheme: str, profile: str, length: int) -> tuple[float, list[tuple[float, float]]]:
    """alpha, and (v, w) by sublayer."""
    a, gain = scale(scheme, length)
    factors = (_PROFILES[profile](index, length) for index in range(length))
    return a, [(gain * by_v, gain * by_w) for by_v, by_w in factors]


def _over_bound(
    scale: Scale,
    sublayer: Callable[[str, float, float, float], tuple[float, float]],
) -> Callable[[Values], Answers]:
    """By network: the largest share of its bound that a sublayer has, the gradient carried down from the top.

    sublayer: of an activation, alpha, v and w, (||df/dW1||^2 + ||df/dW2||^2)/d and what it multiplies the gradient by.
    """

    def decide(s: Values) -> Answers:
        bound, over = _bound(s), {}
        for scheme, (length, profile) in product(s["schemes"].split(", "), _CASES):
            a, gains = _letters(scale, scheme, profile, length)
            gradient, most = 1.0, 0.0
            for pair in reversed(gains):
                square, ratio = sublayer(s["activation"], a, *pair)
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
        return Answers(
            holds=[value <= 1 for value in over.values()],
            numbers={"largest square over the bound": f"{over[worst]:.4g}", "of": worst},
            counterexample=example if over[worst] > 1 else None,
        )

    return decide


def _scale_of_theory(scheme: str, length: int) -> tuple[float, float]:
    from theory.meanfield.setting import Setting

    stack = Setting.of(scheme, "sgd", "relu").scheme.stack
    assert stack.residual_weight is not None
    return float(stack.residual_weight.subs(L, length)), float(stack.gain_in.subs(L, length))


@cache
def _sublayer_of_theory(activation: str, residual_weight: float, by_v: float, by_w: float) -> tuple[float, float]:
    from theory.meanfield.setting import MOMENT_KINDS
    from theory.moments import Kind as Moment
    from theory.moments import activation as named
    from theory.moments import evaluator
    from theory.stack import POST, BranchMoments, NormKind, transfer

    kinds = (Moment.SECOND, Moment.SLOPE_SECOND)  # all that SGD's part of a post-norm sublayer has in it
    known = {kind: evaluator(named(activation), kind)(by_w) for kind in kinds}
    passed = transfer(
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
    return passed.fc1_square + passed.fc2_square, passed.gradient_ratio


def _sublayer_by_quadrature(activation: str, a: float, by_v: float, by_w: float) -> tuple[float, float]:
    _, second, slope, *_ = second_meanfield.moments(activation, by_w)
    total = a**2 + by_v**2 * second
    return (by_v**2 * slope + second) / total, (a**2 + by_v**2 * by_w**2 * slope) / total


@cache
def _measured(scheme: str, profile: str, is_ffn: bool, activation: str) -> tuple[tuple[float, ...], ...]:
    """By seed and sublayer of six: the sublayer's ||df/dW1||^2 + ||df/dW2||^2 over d, one logit at the last token."""
    from sims.model import ModelConfig, SublayerConfig

    a, gains = _letters(_scale, scheme, profile, 6)
    kinds = ["ffn" if is_ffn or index % 2 else "attention" for index in range(len(gains))]
    roles = {"ffn": ("fc2", "fc1"), "attention": ("out", "v")}
    encoder = tuple(
        SublayerConfig(kind=kind, residual_weight=a, gains=dict(zip(roles[kind], pair, strict=True)))
        for kind, pair in zip(kinds, gains, strict=True)
    )
    config = ModelConfig(encoder=encoder, d_model=_WIDTH, ffn_ratio=1, activation=activation)
    by_name = squares(config, _SEEDS, 1 if is_ffn else 4)
    names = [[f"_weights.encoder_{index}_{role}" for role in roles[kind]] for index, kind in enumerate(kinds)]
    return tuple(tuple(sum(by_name[name][seed] for name in both) for both in names) for seed in range(_SEEDS))


@check(
    Route.MEASURED,
    f"real FFN stacks (even and uneven gains, v and w apart) and Transformers of 4 tokens, by autograd, at "
    f"6 sublayers and d = {_WIDTH} only: the mean over sublayers of its share of the bound, as an interval "
    f"from {_SEEDS} seeds. Where L/d is not small single networks scatter as exp(c L/d), and their mean "
    "may pass the bound",
    is_direct=True,
)
def _by_measuring(s: Values) -> Answers:
    bound = _bound(s)
    cases = [(scheme, "uniform", True) for scheme in s["schemes"].split(", ")]
    for scheme, profiles in ((_POST, tuple(_PROFILES)), ("deepnorm", ("v over w", "w over v"))):
        cases += [(scheme, "uniform", False), *((scheme, profile, True) for profile in profiles)]
    over = []
    for scheme, profile, is_ffn in dict.fromkeys(cases):
        a, gains = _letters(_scale, scheme, profile, 6)
        bounds = [bound(a, *pair) for pair in gains]
        rows = _measured(scheme, profile, is_ffn, s["activation"])
        over.append(interval([sum(map(truediv, row, bounds)) / len(bounds) for row in rows]))
    most = max(found.high for found in over)
    return Answers(holds=[found.is_below(1) for found in over], numbers={"largest upper end": f"{most:.2g}"})


_AT_TOP = float((GELU_SLOPE + GELU_SECOND) / (1 + GELU_SECOND) / 2)
"""The top sublayer's squared gradient over its bound, with GELU at alpha = v = w = 1."""
_FIRST_BEYOND = 1 + math.ceil(-math.log(_AT_TOP) / math.log(float(KAPPA_POST)))
_BY_MEAN_FIELD = check(
    Route.MEANFIELD,
    "FFN stacks at infinite width, sublayer by sublayer, up to 100 of them, even and uneven gains, v and w apart; a "
    "sublayer multiplies the squared gradient by (alpha^2 + v^2 w^2 E phi'^2)/(alpha^2 + v^2 E phi^2): with ReLU by 1, "
    "and its own is (v^2 + w^2)/(2 alpha^2 + v^2 w^2)",
    _over_bound(_scale_of_theory, _sublayer_of_theory),
)
_WIDE_PARTS = (
    Part(
        name="in a wide network (L/d -> 0), relu",
        statement=_RELU,
        checks=(
            _BY_MEAN_FIELD,
            _by_measuring,
        ),
        mutants=tuple(
            Mutant(name=name, statement=_RELU.with_(square=square))
            for name, square in {
                "a quarter": _SQUARE / 4,
                "v^2 w^2": v**2 * w**2 / alpha**2,
                "2 v w": 2 * v * w / alpha**2,
                "2 v^2": 2 * v**2 / alpha**2,
                "2 v^4/w^2": 2 * v**4 / w**2 / alpha**2,
            }.items()
        ),
    ),
    Part(
        name="in a wide network (L/d -> 0), gelu",
        statement=_GELU,
        checks=(
            _BY_MEAN_FIELD,
            check(
                Route.NUMERIC,
                "the same sum with moments by quadrature and the scheme's own scales",
                _over_bound(_scale, _sublayer_by_quadrature),
                is_direct=True,
            ),
        ),
        mutants=(
            Mutant(name="a quarter", statement=_GELU_SCALED.with_(square=_SQUARE / 4)),
            Mutant(name="2 v w", statement=_GELU_SCALED.with_(square=2 * v * w / alpha**2)),
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

_POWER = simplify(2 * N * PRINTED["encoder"][1] ** 2 / PRINTED["encoder"][0] / N ** Rational(1, 4))
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
        Part(
            name="in the model that it is proved in: d = 1, 0 < v, w < 1 < alpha",
            statement=BOUND,
            checks=scalar_checks("DN-02", _QUOTE, of_two=False),
            mutants=MUTANTS,
            instead=Amendment(
                statement=CHAINED,
                text="times the product over the other sublayers of (alpha + vw)/sqrt(alpha^2 + v^2 w^2) > 1, which "
                "the proof takes for 1: exp(2^(-3/4) N^(1/4)) at the printed alpha and beta (DN-08)",
            ),
            condition="for <= itself no more than two equal sublayers (three with r = v w / alpha have 1 + r times it, "
            "to first order in r); as <= (1 + o(1)), that the sum over i of v_i w_i / alpha goes to 0 (at the printed "
            "alpha and beta it grows as N^(1/4)); or a wide network, where the slopes above multiply to 1 in mean "
            "square",
            expected=Verdict.REFUTED,
        ),
        *_WIDE_PARTS,
    ),
    finding=Finding(
        "DeepNet's theorems fail in the scalar model that they are proved in, DeepNet's own alpha and beta "
        "included: factors that are each about 1 multiply to exp({power:.2g} N^(1/4)) over the layers. In "
        "wide random networks with ReLU they hold, since contributions add as squares",
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
    from theory.bounds.update import derive_bound
    from theory.symbols import gains_in, gains_out

    bound = derive_bound("post-ln").displacement
    if bound is None:
        raise ArithmeticError("the post-norm bound has no displacement form")
    plain = bound.replace(lambda e: getattr(e, "base", None) in (gains_in, gains_out), lambda _: S.One)
    return [_ratio(plain.subs(alpha, 1), s["bound"])]


# ---------------------------------------------------------------- DN-09: the scalar model at alpha = v = w = 1

_MOVES = Values.of(
    "d = 1, alpha = v = w = 1, L sublayers, any theta* in (0, 1]: |dF| = O({factor}) sum_i ||dtheta_i||", factor=1
)
_LOWERED = Rational(9, 10)
"""What v_1 and w_1 are lowered to."""


@check(Route.PROOF, "the derived model's slopes above a first sublayer whose v and w are lowered to 0.9")
def _moves_by_theory(s: Values) -> list[bool | None]:
    """log of theory's slope at 1, L - 1 times, and of what the first sublayer moves by; no slope is larger."""
    from theory.bounds.scalar_model import scalar_slope

    whole = scalar_slope(S.One, S.One, S.One)
    moved = (whole - scalar_slope(S.One, _LOWERED, _LOWERED)) / (sqrt(2) * (1 - _LOWERED))
    over = limit(expand_log(log(whole) * (L - 1) + log(moved) - log(s["factor"]), force=True).expand(), L, S.Infinity)
    t = scratch("t", positive=True)
    room = factor(together(whole**2 - scalar_slope(S.One, t, S.One) ** 2))
    return [over is not S.Infinity, algebra.equal(room, (1 - t) ** 2 / (1 + t**2))]


def _output(weights: list[tuple[float, float]], length: int) -> float:
    """F of an input of 1: these (v, w), and 1 in the sublayers after them."""
    return math.prod(sublayer(1.0, *pair).slope for pair in [*weights, *[(1.0, 1.0)] * (length - len(weights))])


def _first_lowered(length: int) -> float:
    """|dF| over sqrt(2) sum ||dtheta||, the first sublayer's two weights lowered from 1 to 0.9."""
    low = float(_LOWERED)
    return (_output([], length) - _output([(low, low)], length)) / (2 * (1 - low))


@check(
    Route.NUMERIC,
    "v_1 and w_1 lowered to 0.9: |dF| over sqrt(2) sum ||dtheta|| times the factor, by multiplying "
    "out, as L grows. To first order dF is exactly 0 there (every df/dv has the factor alpha - vw = "
    "0), but the sentence does not say first order, and each of the L - 1 slopes above is sqrt(2)",
    is_direct=True,
)
def _moves_by_sums(s: Values) -> Answers:
    order = lambdify(L, log(s["factor"]), modules="math")
    ratios = {length: _first_lowered(length) for length in (2, 6, 12, 40, 80, 160)}
    logs = [math.log(ratios[length]) - order(length) for length in (40, 80, 160)]
    holds = algebra.settles(logs) or algebra.falls_away(logs)
    shown = {str(length): float(f"{ratios[length]:.4g}") for length in (2, 6, 12, 40)}
    by_length = ", ".join(f"{x:.3g} at L = {n}" if x < 100 else f"{x:.0f} at L = {n}" for n, x in shown.items())
    example = {
        "printed": "vanilla Post-LN: the update is O(sum_i ||dtheta_i||)",
        "found": f"v_1 and w_1 lowered by 0.1: |dF| over sqrt(2) sum ||dtheta|| is {by_length}: it grows as 2^(L/2)",
        "ratios": shown,
        "command": one_liners.VANILLA_STEP,
    }
    return Answers(
        holds=[holds],
        num_effective=len(ratios),
        numbers={f"L = {length}": ratio for length, ratio in shown.items()},
        counterexample=None if holds else example,
    )


@check(
    Route.PROPERTY,
    "one or two sublayers moved from 1 to anywhere in (0, 1], L from 1 to 60: |dF| at most 100 sqrt(2) "
    "times the factor times sum ||dtheta||",
    is_direct=True,
)
def _moves_by_search(s: Values) -> Answers:
    """The first ones moved; the constant is 100 sqrt(2)."""
    from hypothesis import strategies as st

    times = lambdify(L, s["factor"], modules="math")

    def holds(case: Any) -> bool:
        length, moved = case
        weights = [(a / 16, b / 16) for a, b in moved[:length]]
        change = abs(_output([], length) - _output(weights, length))
        distance = math.fsum(math.hypot(1 - a, 1 - b) for a, b in weights)
        return bool(change <= 100 * math.sqrt(2) * times(length) * distance)

    moved = st.lists(st.tuples(*[st.integers(1, 15)] * 2), min_size=1, max_size=2)
    result = search(st.tuples(st.integers(1, 60), moved), holds, max_examples=60)
    return Answers(holds=[result.found is None], num_effective=result.num_effective)


# ---------------------------------------------------------------- DN-09: a wide network

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
            checks=(
                _theory_bound,
                check(
                    Route.ARITHMETIC,
                    "Theorem 4.2 at alpha = v = w = 1 is sqrt(2) times it",
                    lambda s: [_ratio(_THEOREM.subs({alpha: 1, v: 1, w: 1}), s["bound"])],
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="a square", statement=Values.of(bound=Sum(displacements[l] ** 2, (l, 1, L)))),
                Mutant(name="a weight l", statement=Values.of(bound=Sum(l * displacements[l], (l, 1, L)))),
            ),
        ),
        Part(
            name="in the model that it is derived in: d = 1, alpha = v = w = 1",
            statement=_MOVES,
            checks=(
                _moves_by_theory,
                _moves_by_sums,
                _moves_by_search,
            ),
            mutants=(
                Mutant(name="times L", statement=_MOVES.with_(factor=L)),
                Mutant(name="times 2^(L/4)", statement=_MOVES.with_(factor=2 ** (L / 4))),
            ),
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
            checks=(*GROWTH, GROWTH_ON_RECORD, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=(
                *broken(_TRUE_RELU),
                Mutant(name="O(log L)", statement=_TRUE_RELU.with_(order=log(L))),
                Mutant(name="O(L^(1/2))", statement=_TRUE_RELU.with_(order=sqrt(L))),
            ),
        ),
        measured_too(
            growth_part(
                "in a wide network, gelu: the true update under SGD",
                _TRUE_RELU.with_(activation="gelu"),
                expected=Verdict.REFUTED,
                instead=(
                    exp(L * log(KAPPA_POST)),
                    told(
                        "Theta(kappa^L): at gain 1 E phi'^2 > E phi^2, so each sublayer multiplies the gradient by "
                        "kappa = (1 + E phi'^2)/(1 + E phi^2) = {kappa:.4f}",
                        kappa=KAPPA_POST,
                    ),
                ),
                condition=EQUAL_MOMENTS,
                wrong=log(L),
            )
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

CLAIMS: tuple[Claim, ...] = (_DN_02, _DN_09)
