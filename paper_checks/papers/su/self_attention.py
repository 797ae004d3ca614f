"""Su's article, "Self-Attention": lambdas out of it, gradients of q and k beside those of v, averages of tokens.

One query sees T tokens x_j through weights p_j = softmax(a_j), a_j = lambda_q lambda_k u . x_j, and gives W xbar,
xbar = sum_j p_j x_j. Then, for every loss,

    lambda_v dL/dlambda_v = g . xbar,      lambda_q dL/dlambda_q = g . sum_j p_j (a_j - abar) x_j,

where g is what arrives behind W. Letters: T tokens, d width, s^2 the variance of the logits. The module is one section
of the article, read in its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numpy.random import default_rng
from sympy import Expr, Rational, S, exp, expand, oo, simplify, symbols

from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.su.sublayers import (
    alpha,
    attention,
    derivatives_part,
    gaussian,
    lam_k,
    lam_o,
    lam_q,
    lam_v,
    layer_norm,
    normal,
)
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import Interval, interval, of_logs
from depthlaw.paper_checks.routes.second_meanfield import coefficients
from depthlaw.paper_checks.routes.signal_propagation import averages
from depthlaw.paper_checks.routes.signal_propagation.averages import Average
from depthlaw.theory.symbols import scratch_matrix

_SECTION = "Self-Attention"
_EXPLAIN = "depthlaw explain S1-18"


# ---------------------------------------------------------------- S1-17: lambdas out of attention

_SOFTMAX = Values.of(inside=lam_q * lam_k, outside=lam_v * lam_o / alpha)


@check(Route.PROOF, "two tokens of width two, as polynomials, any softmax")
def _attention_symbolic(s: Values) -> list[bool | None]:
    x, p = scratch_matrix("x", 2, 2), scratch_matrix("P", 2, 2)
    q, k, v, o = (scratch_matrix(f"U_{name}", 2, 2) for name in "qkvo")
    argument = x * (lam_q * q) * (lam_k * k).T * x.T - s["inside"] * (x * q * k.T * x.T)
    branch = p * x * (lam_v * v) * (lam_o * o) / alpha - s["outside"] * (p * x * v * o)
    return [bool(entry.expand() == 0) for entry in (*argument, *branch)]


@check(Route.MEASURED, "torch, six tokens, powers of two: the same floating-point numbers")
def _attention_scaled(s: Values) -> list[bool | None]:
    import torch

    generator = default_rng(17)
    x, u = normal(generator, 6, 8), gaussian(generator, 4, 8)
    answers: list[bool | None] = []
    for powers in ((-1, 2, 3, -4, 1), (0, 0, 0, 0, 0), (2, -3, -5, 1, -2), (1, 1, 1, 1, 1), (-4, 1, 2, 2, 3)):
        at = {letter: S(2) ** e for letter, e in zip((lam_q, lam_k, lam_v, lam_o, alpha), powers, strict=True)}
        w = [2.0**e * matrix for e, matrix in zip(powers, u, strict=False)]
        left = attention(x, *w) / 2.0 ** powers[4]
        inside, outside = (float(s[name].subs(at)) for name in ("inside", "outside"))
        logits = inside * (x @ u[0] @ (x @ u[1]).transpose(-1, -2))
        answers.append(torch.equal(left, outside * (logits.softmax(-1) @ x @ u[2] @ u[3])))
    return answers


_S1_17 = claim(
    "S1-17",
    kind=Kind.STEP,
    locator=f"{_SECTION}, second equation",
    quote=r"\lambda_v\lambda_o \sigma (\lambda_q\lambda_k\boldsymbol{x}_l \boldsymbol{U}_q\boldsymbol{U}_k^{\top}"
    r"\boldsymbol{x}_l^{\top})\boldsymbol{x}_l\boldsymbol{U}_v\boldsymbol{U}_o/\alpha",
    summary="attention with W = lambda U: lambda_q lambda_k inside the softmax, lambda_v lambda_o/alpha outside",
    uses=("S1-06",),
    statement=_SOFTMAX,
    checks=(_attention_symbolic, _attention_scaled),
)


# ---------------------------------------------------------------- S1-18: one layer, exactly

_s, _d, _T = symbols("s d T", positive=True)


def _moment(power: int, tilt: Expr) -> Expr:
    """E[x^power e^(tilt x)] of a standard normal x, from its moment generating function e^(t^2/2)."""
    return exp(_s**2 / 2).diff(_s, power).subs(_s, tilt)


_TILTED_MEAN = simplify(_moment(1, _s) / _moment(0, _s))
"""E[x e^(s x)] / E[e^(s x)]: what softmax weights make of very many tokens, along the logit's direction."""
_LINEAR_MEAN = _moment(1, S.Zero) + _s * _moment(2, S.Zero)
"""E[x (1 + s x)]: what the row-normalised weights (1 + a - mean a)/T make of them."""


def _long_ratio(mean: Expr, cosine: Expr | int = 0) -> Expr:
    """(lambda_q dL/dlambda_q)^2 over that of lambda_v for T >> d, both averaged over g.

    Tokens share a part of squared length ``cosine`` of the whole; ``mean`` is that of the weights along the logit's
    direction, where alone xbar differs from the common part. xbar' by lambda_q is s d(mean)/ds.
    """
    moved = (1 - cosine) * _s * mean.diff(_s)
    return (moved**2 / (cosine * _d + ((1 - cosine) * mean) ** 2)).simplify()


_zeroth, _first, _second = (_moment(power, 2 * _s) for power in range(3))
_INDEPENDENT = expand(simplify(_s**2 * (_second / _zeroth - 2 * _TILTED_MEAN * _first / _zeroth + _TILTED_MEAN**2)))
"""The same ratio for d >> T >> 1, where the noise of T independent tokens is all: s^2 + s^4.

Sums over tokens of p_j^2 (a_j - abar)^2 and of p_j^2, with logits of variance s^2.
"""
_NOISE = simplify(_d / _T * _moment(0, 2 * _s) / _moment(0, _s) ** 2)
"""n, the squared length of the noise in xbar where a token's mean square is 1: d sum_j p_j^2 = d e^(s^2)/T."""


def _ratio_law(noise_square: Expr) -> Expr:
    """The ratio for T >> 1 whatever d/T: squared lengths of the tilted mean and of the noise add up, moved and not."""
    moved = noise_square * _INDEPENDENT + (_s * _TILTED_MEAN.diff(_s)) ** 2
    return simplify(moved / (noise_square + _TILTED_MEAN**2))


def _two_tokens(scale: float, is_scalar: bool) -> float:
    """The ratio of squared gradients, q to v, of two independent tokens whose logits differ by delta of N(0, 2 s^2).

    Of the scalars it is 2 E[(p_1 p_2)^2 delta^2] / E[p_1^2 + p_2^2]. Of the matrices |k_1 - k_2|^2 = 2 |k|^2 stands in
    the place of delta^2; this is over |k|^2. By quadrature.
    """
    from scipy.integrate import quad

    def mean(f: Callable[[float, float], float]) -> float:
        """Of an even f of delta/2 and p_1 p_2; the weights live within some tens of zero."""

        def weighted(u: float) -> float:
            density = 2 * math.exp(-(u**2) / scale**2) / (scale * math.sqrt(math.pi))
            return f(u, 1 / (4 * math.cosh(min(u, 300.0)) ** 2)) * density

        end = 9 * scale
        return quad(weighted, 0.0, end, points=[point for point in (1.0, 4.0, 20.0) if point < end])[0]

    square = mean(lambda u, product: product**2 * ((2 * u) ** 2 if is_scalar else 2))
    return 2 * square / mean(lambda _, product: 1 - 2 * product)


# ---------------------------------------------------------------- S1-18: one layer, measured

RUNS = 16
"""Independent seeds of a measurement: networks, inputs and readouts."""
_WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda scores: scores.softmax(-1),
    "linear": lambda scores: (1 + scores - scores.mean(-1, keepdim=True)) / scores.shape[-1],
}
"""The softmax, and row-normalised weights without an exponential."""


class Ratios(NamedTuple):
    """Intervals of the ratio of squared gradients, q to v: of the scalars lambda, and of the matrices (Frobenius)."""

    scalars: Interval
    matrices: Interval


@cache
def one_layer(
    num_tokens: int, width: int, *, is_scaled: bool = True, cosine: float = 0.0, weights: str = "softmax"
) -> Ratios:
    """Of attention at gain 1 over tokens of that mean cosine behind a LayerNorm, one random readout of each.

    The scalars' squares are the mean over all readouts: those of d out/d lambda.
    """
    import torch

    generator, shape = default_rng(1000), (RUNS, max(1, 128 // num_tokens), num_tokens, width)
    noise, common = normal(generator, *shape), normal(generator, *shape[:2], 1, width)
    x, readout = layer_norm(math.sqrt(1 - cosine) * noise + math.sqrt(cosine) * common), normal(generator, *shape)
    q, k, v, o = (gaussian(generator, RUNS, width)[:, None].requires_grad_() for _ in "qkvo")

    def out(gain: Any) -> Any:
        scores = gain * (x @ q) @ (x @ k).mT
        return _WEIGHTS[weights](scores * width**-0.5 if is_scaled else scores) @ x @ v @ o

    unit = torch.ones((), dtype=x.dtype)
    value, moved, *_ = torch.func.jvp(out, (unit,), (unit,))
    scalars = [each.detach().square().flatten(1).sum(1) for each in (moved, value)]
    gradients = torch.autograd.grad((out(unit) * readout).sum(), (q, v))
    matrices = [grad.square().flatten(1).sum(1) for grad in gradients]
    return Ratios(*(of_logs((of_q / of_v).log().tolist()) for of_q, of_v in (scalars, matrices)))


@cache
def _many_tokens(num_tokens: int, width: int, variance: float) -> Interval:
    """The ratio of the scalars' squares in xbar itself: 32 queries for each set of tokens, logits of that variance."""
    import torch

    logs, unit = [], torch.ones((), dtype=torch.float64)
    for seed in range(RUNS):
        generator = default_rng(seed)
        x = normal(generator, num_tokens, width)
        logits = math.sqrt(variance / width) * normal(generator, 32, width) @ x.T
        value, moved, *_ = torch.func.jvp(lambda gain, x=x, a=logits: (gain * a).softmax(-1) @ x, (unit,), (unit,))
        logs.append(math.log(float(moved.square().sum() / value.square().sum())))
    return of_logs(logs)


# ---------------------------------------------------------------- S1-18: how large the gradient of q is

SCALED, UNSCALED = "logits over sqrt(d)", "logits not scaled"
EVERY, LONG, WIDE = "any width and length", "length >> width", "width >> length"
MANY = "T >> 1, logits of variance s^2"
"""Many tokens and any width: the ends of a statement are expressions in T, d and s."""
SCALARS, MATRICES = "dL/dlambda_q : dL/dlambda_v", "dL/dW_q : dL/dW_v"
_LAW = _ratio_law(_NOISE)
_SHAPES = ((512, 128, 0.25), (256, 256, 0.25), (1024, 64, 0.5))
"""(T, d, s^2) where T is already large enough for the law: with s^2 = 1 it takes far more tokens."""


def _covers(s: Values, regime: str) -> bool:
    return s["regime"] in (regime, EVERY)


@check(Route.PROOF, "exact limits: T >> d, where xbar = lambda_q lambda_k u; d >> T, two tokens")
def _ratio_exactly(s: Values) -> Answers:
    limits: dict[str, Expr] = {}
    holds: list[bool | None] = []
    is_scalar = s["measure"] == SCALARS
    if _covers(s, LONG):
        limits["long"] = _long_ratio(_TILTED_MEAN)
    if _covers(s, WIDE) and s["logits"] == SCALED:
        limits["wide"] = S(_two_tokens(1.0, is_scalar))
    elif _covers(s, WIDE):
        # Over s = sqrt(d) it is a density of ties, so that times s it has settled by s = 100; |k|^2 = d comes on top
        # of that for the matrices.
        limits["wide"] = S.Zero if is_scalar else oo
        early, late = (scale * _two_tokens(scale, is_scalar) for scale in (100.0, 10000.0))
        holds.append(abs(late / early - 1) < 1e-2)
    holds += [bool(s["low"] <= ratio) and bool(ratio <= s["high"]) for ratio in limits.values()]
    if s["regime"] == MANY:
        limits["many"] = _LAW
        holds += [simplify(s[end] - _LAW) == 0 for end in ("low", "high")]
    return Answers(
        holds=holds,
        numbers={name: str(ratio.evalf(5) if ratio.is_number else ratio) for name, ratio in limits.items()},
        steps=(
            "lambda_v dL/dlambda_v = g . xbar and lambda_q dL/dlambda_q = g . sum_j p_j (a_j - abar) x_j",
            "T -> oo: E[x e^(s x)]/E[e^(s x)] = s, so xbar = u for logits u . x, and both are g . u: their ratio is 1",
            f"d >> T >> 1: the noise of the tokens is all, and the ratio is {_INDEPENDENT}, s^2 the "
            "variance of the logits; s = 1 where they are over sqrt(d): 2",
            "T >> 1: with n = d e^(s^2)/T, the noise in xbar, it is (n (s^2 + s^4) + s^2)/(n + s^2)",
            "s -> oo at fixed T: ties within O(1) of the largest logit are all, of probability O(1/s) = O(d^(-1/2)); "
            "dL/dW_q has |k|^2 = d beside that",
        ),
    )


@check(Route.MEASURED, "a real layer by autograd; where T >> 1 softmax averages of real tokens")
def _ratio_measured(s: Values) -> Answers:
    """Where the exact limits are far off, as of unscaled logits at T >> e^d, nothing is measured."""
    numbers: dict[str, str] = {}
    holds: list[bool | None] = []
    if s["regime"] == MANY:
        for num_tokens, width, variance in _SHAPES:
            ratio, at = _many_tokens(num_tokens, width, variance), {_T: num_tokens, _d: width, _s: math.sqrt(variance)}
            low, high = (float(s[end].subs(at)) for end in ("low", "high"))
            numbers[f"T = {num_tokens}, d = {width}, s^2 = {variance:g}"] = f"{ratio.text}, stated {low:.3g}"
            holds.append(ratio.low <= high and low <= ratio.high)
        return Answers(holds=holds, numbers=numbers)
    is_scaled, is_scalar = s["logits"] == SCALED, s["measure"] == SCALARS
    if is_scaled:
        shapes = [shape for shape, regime in (((128, 64), LONG), ((4, 64), WIDE)) if _covers(s, regime)]
        shapes += [(64, 64)] if s["regime"] == EVERY else []
    else:
        shapes = [(8, 64), (8, 128)] if _covers(s, WIDE) else []
    for num_tokens, width in shapes:
        ratios = one_layer(num_tokens, width, is_scaled=is_scaled)
        ratio = ratios.scalars if is_scalar else ratios.matrices
        numbers[f"T = {num_tokens}, d = {width}"] = ratio.text
        holds.append(ratio.within(float(s["low"]), float(s["high"])))
    if False not in holds:
        return Answers(holds=holds, numbers=numbers)
    shape, text = list(numbers.items())[0 if is_scaled else -1]
    example = {
        "printed": "very small beside those of v",
        "found": f"{text} times v's, squares of the {'lambdas' if is_scalar else 'matrices'} at {shape}",
        "command": _EXPLAIN,
    }
    if is_scalar and is_scaled:  # the least networks, exact by hand
        example["two_tokens"] = (
            f"x and -x with logits a and -a: lambda_q dL/dlambda_q is 2a/sinh(2a) of v's, {1 / math.sinh(1):.2f} at "
            "a = 1/2"
        )
        example["three_tokens"] = (
            "x, -x, -x with logits a, -a, -a, a = log(2)/2: v's gradient is 0, q's a (x . g), not 0"
        )
    return Answers(holds=holds, numbers=numbers, counterexample=example)


_ONE_LAYER = (_ratio_exactly, _ratio_measured)
_SCALED = Values.of(
    "one layer, gain 1, {logits}, {regime}: squares of {measure} from {low} to {high}",
    logits=SCALED,
    regime=EVERY,
    measure=SCALARS,
    low=0,
    high=Rational(1, 4),
)
_UNSCALED = _SCALED.with_(logits=UNSCALED)
_MATRICES = _UNSCALED.with_(measure=MATRICES, regime=WIDE)
_FLAT_LAW = _ratio_law(_d / _T)
_SMALL_WHERE = sentence(
    "tokens nearly parallel; or gains of v and out that vanish while q and k stay at 1; or logits of small variance "
    "s^2 and T s^2 << d, for the ratio of squares is (n (s^2 + s^4) + s^2)/(n + s^2), n = d e^(s^2)/T, of many tokens: "
    "measured averages agree with it from T = 256 at s^2 = 1/4 and 1/2 (d up to 4T), from T = 1024 at s^2 = 1 (d up to "
    "T); of fewer tokens it says too much ({law:.2f} at T = d = 64 and s = 1, where a layer makes {layer:.2g})",
    law=_LAW.subs({_T: 64, _d: 64, _s: 1}),
    layer=number("one layer at gain 1, logits over sqrt(d)", "T = 64, d = 64"),
)


# ---------------------------------------------------------------- S1-18: the cause

SOFTMAX, PARALLEL, FEW = "the softmax", "parallel tokens", "many tokens"
"""What may make q's gradient small beside v's."""
_TEN = 10
"""Without the cause the ratio of squares is at least so many times as large."""
_COSINE = Rational(9, 10)
"""Of tokens that are called parallel."""


@check(
    Route.PROOF,
    "T >> d: softmax and linear weights give one average, u, and one ratio, 1; a common part of the tokens divides "
    "it. d >> T, two tokens: s^2/(2 + s^2) with linear weights, beside which softmax's ratio goes as 1/s",
)
def _cause_exactly(s: Values) -> list[bool | None]:
    """The ratio without the factor over the ratio with it; where d >> T that of two tokens."""
    is_scaled, softmax = s["logits"] == SCALED, _long_ratio(_TILTED_MEAN)
    scale = 1 if is_scaled else 10**4
    linear = S(scale**2) / (2 + scale**2)  # (1 +- delta/2)/2: E delta^2/2 over E(2 + delta^2/2)
    effects = {
        (SOFTMAX, LONG): _long_ratio(_LINEAR_MEAN) / softmax,
        (SOFTMAX, WIDE): linear / _two_tokens(float(scale), is_scalar=True),
        (PARALLEL, LONG): softmax / _long_ratio(_TILTED_MEAN, _COSINE),
        (FEW, LONG): S.One,
        (FEW, WIDE): S.One,
    }
    at = {_s: 1 if is_scaled else 8, _d: 64}
    return [effects[s["factor"], regime].subs(at) >= _TEN for regime in (LONG, WIDE) if _covers(s, regime)]


@check(Route.MEASURED, "a real layer, d = 64: the ratio of squares without the factor and with it")
def _cause_measured(s: Values) -> Answers:
    """At T = d where logits are over sqrt(d); at T = 8, d = 64 where not, for T >> e^d is out of reach."""
    is_scaled = s["logits"] == SCALED
    length, fewer = (64, 16) if is_scaled else (8, 4)
    others: dict[str, tuple[str, dict[str, Any]]] = {
        SOFTMAX: ("weights (1 + a - mean a)/T in its place", {"weights": "linear"}),
        PARALLEL: (f"cosine {float(_COSINE):g}", {"cosine": float(_COSINE)}),
        FEW: (f"{fewer} tokens", {"num_tokens": fewer}),
    }
    name, options = others[s["factor"]]
    layer = {"num_tokens": length, "width": 64, "is_scaled": is_scaled}
    base, other = one_layer(**layer).scalars, one_layer(**layer | options).scalars
    without, present = (base, other) if s["factor"] == PARALLEL else (other, base)
    holds = True if without.low >= _TEN * present.high else False if without.high < _TEN * present.low else None
    example = {
        "printed": f"small due to {s['factor']}",
        "found": f"without it {without.text} of v's square, with it {present.text}",
        "command": _EXPLAIN,
    }
    numbers = {f"softmax, {length} independent tokens": base.text, name: other.text}
    return Answers(holds=[holds], numbers=numbers, counterexample=example if holds is False else None)


_CAUSE = Values.of(
    "{logits}, {regime}: the gradients of q and k are small due to {factor}",
    logits=SCALED,
    regime=EVERY,
    factor=SOFTMAX,
)
_CAUSE_UNSCALED = _CAUSE.with_(logits=UNSCALED)
_CAUSES = (_cause_exactly, _cause_measured)


# ---------------------------------------------------------------- S1-18: stacks

_DEPTHS = (4, 16)
_SHRINKING = ("deepnorm", "su-sgd", "su-adam", "su-lamb")
_DEEP = Values.of(
    "{logits}: the share of q and k in the squared gradients goes as L^e, {least} <= e <= {greatest}, and is at most "
    f"{{most}} at L = {_DEPTHS[1]}: {{schemes}}",
    schemes=", ".join(("post-ln", *_SHRINKING, "pre-ln", "sub-ln")),
    logits=SCALED,
    least=-oo,
    greatest=0,
    most=Rational(1, 4),
)
_DEEP_UNSCALED = _DEEP.with_(logits=UNSCALED)


@cache
def query_shares(scheme: str, length: int, *, is_scaled: bool) -> tuple[float, ...]:
    """log of the share of q and k in the squared gradients of all matrices of real Transformers, by seed."""
    from depthlaw.sims.measure import Question, collect
    from depthlaw.sims.model import ModelConfig, alternating
    from depthlaw.sims.update import Task

    network = coefficients(scheme, length)
    gains = {role: network.gain_in for role in ("v", "out", "fc1", "fc2")}
    encoder = alternating(length, residual_weight=network.residual_weight, gains=gains)
    scale = None if is_scaled else 1.0
    config = ModelConfig(encoder=encoder, placement=network.placement, d_model=32, attention_scale=scale)
    task = Task(num_tokens=16, batch_size=2, readout="sum")
    values = collect(Question(config=config, task=task), range(RUNS))
    columns = zip(values["sgd/q"], values["sgd/k"], values["sgd/update"], strict=True)
    return tuple(math.log((q + k) / update) for q, k, update in columns)


def _allows(s: Values, power: Interval) -> bool | None:
    """A power that is stated as one number must lie in the interval."""
    if s["least"] == s["greatest"]:
        return power.low <= float(s["least"]) <= power.high
    return power.within(float(s["least"]), float(s["greatest"]))


@check(Route.MEASURED, "real Transformers, width 32, 16 tokens: the share at both depths, its power")
def _shares_measured(s: Values) -> Answers:
    holds: list[bool | None] = []
    numbers, over = {}, {}
    for scheme in s["schemes"].split(", "):
        shares = [query_shares(scheme, length, is_scaled=s["logits"] == SCALED) for length in _DEPTHS]
        power = interval([(b - a) / math.log(_DEPTHS[1] / _DEPTHS[0]) for a, b in zip(*shares, strict=True)])
        deep = of_logs(shares[1])
        numbers[scheme] = {f"L = {n}": of_logs(logs).text for n, logs in zip(_DEPTHS, shares, strict=True)}
        numbers[scheme]["power"] = power.text
        holds += [_allows(s, power), deep.within(0.0, float(s["most"]))]
        over |= {scheme: deep.text} if holds[-1] is False else {}
    example = {
        "printed": "insignificant in the update",
        "found": f"shares of the squared gradients at L = {_DEPTHS[1]}: "
        + ", ".join(f"{share} in {scheme}" for scheme, share in over.items()),
        "command": _EXPLAIN,
    }
    return Answers(holds=holds, numbers=numbers, counterexample=example if over else None)


@check(Route.PROOF, "the share goes as the gain squared where that shrinks; nothing is said of gain 1")
def _shares_by_gains(s: Values) -> list[bool | None]:
    """Where the gains shrink: dL/dW_q has lambda_v lambda_o where dL/dW_v has lambda_o, so it is gain^2 that counts."""
    answers: list[bool | None] = []
    for scheme in s["schemes"].split(", "):
        low, high = (coefficients(scheme, length).gain_in for length in (10**4, 10**6))
        power = 2 * math.log(high / low) / math.log(100)
        if power < 0:
            answers.append(_allows(s, Interval(power - 1e-9, power + 1e-9)))
    return answers


_SHARES = (_shares_by_gains, _shares_measured)
_CONSTANT = {"least": 0, "greatest": 0, "most": 1}

_S1_18 = Claim(
    id="S1-18",
    kind=Kind.STEP,
    locator=_SECTION,
    quote=r"Due to the presence of softmax, the gradients of $\lambda_q, \lambda_k$ themselves will be very small and "
    "will not significantly affect the final update amount.",
    summary="the gradients of lambda_q, lambda_k are very small due to softmax (read: squares at most 1/4 of v's)",
    parts=(
        Part(
            name="one layer at gain 1, logits over sqrt(d): the gradient of lambda_q",
            statement=_SCALED,
            checks=_ONE_LAYER,
            mutants=(
                Mutant(name="a hundredth", statement=_SCALED.with_(high=Rational(1, 100))),
                Mutant(name="n = d/T", statement=_SCALED.with_(regime=MANY, low=_FLAT_LAW, high=_FLAT_LAW)),
            ),
            expected=Verdict.REFUTED,
            condition=_SMALL_WHERE,
            instead=Amendment(
                statement=_SCALED.with_(regime=MANY, low=_LAW, high=_LAW),
                text="of many tokens (n (s^2 + s^4) + s^2)/(n + s^2), n = d e^(s^2)/T: at s = 1 from 1, where T >> d "
                "and lambda_q's gradient is lambda_v's, to 2",
            ),
        ),
        Part(
            name="one layer at gain 1, the text's unscaled softmax: the gradient of lambda_q",
            statement=_UNSCALED,
            checks=_ONE_LAYER,
            mutants=(Mutant(name="as large as v's", statement=_UNSCALED.with_(low=1, high=2)),),
            hedge=Amendment(
                statement=_UNSCALED.with_(regime=WIDE),
                text="the width large beside the length: the softmax picks one token, and the ratio of squares is "
                "O(d^(-1/2)) at fixed length (at fixed width it goes to 1)",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="one layer at gain 1, the text's unscaled softmax: W_q in the update amount",
            statement=_MATRICES,
            checks=_ONE_LAYER,
            mutants=(Mutant(name="at most v's", statement=_MATRICES.with_(high=1)),),
            expected=Verdict.REFUTED,
            condition="logits over sqrt(d), and one of: logits of small variance, nearly parallel tokens, small gains "
            "of v and out",
            instead=Amendment(
                statement=_MATRICES.with_(low=1, high=oo),
                text="|dL/dW_q|^2 / |dL/dW_v|^2 = Theta(d^(1/2)): W_q takes most of the update, though lambda_q's own "
                "gradient is small, for |k|^2 is d times the variance of a coordinate",
            ),
        ),
        Part(
            name="stacks of each scheme, logits over sqrt(d): the share of q and k in the update",
            statement=_DEEP,
            checks=_SHARES,
            mutants=(Mutant(name="a constant share", statement=_DEEP.with_(**_CONSTANT)),),
        ),
        Part(
            name="stacks of each scheme, the text's unscaled softmax: the share of q and k in the update",
            statement=_DEEP_UNSCALED,
            checks=_SHARES,
            mutants=(Mutant(name="a constant share", statement=_DEEP_UNSCALED.with_(**_CONSTANT)),),
            expected=Verdict.REFUTED,
            condition="gains of v and out that vanish with depth while q and k stay at 1: the share goes as the gain "
            "squared; or logits over sqrt(d). At gain 1, in Post-LN, Pre-LN and Sub-LN, q and k have about half of the "
            "squared gradients at every depth measured",
            instead=Amendment(
                statement=_DEEP_UNSCALED.with_(schemes=", ".join(_SHRINKING), most=1),
                text="in DeepNorm and the three rows it falls with depth, as the gain squared in the end",
            ),
        ),
        Part(
            name="that the softmax is the cause, the text's unscaled softmax",
            statement=_CAUSE_UNSCALED,
            checks=_CAUSES,
            mutants=(Mutant(name="length", statement=_CAUSE_UNSCALED.with_(factor=FEW, regime=WIDE)),),
            hedge=Amendment(
                statement=_CAUSE_UNSCALED.with_(regime=WIDE),
                text="the width large beside the length: logits of variance d make the softmax pick one token, and "
                "linear weights (1 + a - mean a)/T in its place leave lambda_q a gradient like lambda_v's (ratio of "
                "squares s^2/(2 + s^2) of two tokens, s^2 = d); at T >> e^d both ratios are 1",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="that the softmax is the cause, logits over sqrt(d)",
            statement=_CAUSE,
            checks=_CAUSES,
            mutants=(Mutant(name="length", statement=_CAUSE.with_(factor=FEW)),),
            expected=Verdict.REFUTED,
            condition="logits not scaled and the width large beside the length, where the softmax picks one token",
            instead=Amendment(
                statement=_CAUSE.with_(factor=PARALLEL, regime=LONG),
                text="where q's gradient is small in deep Post-LN and Pre-LN it is because the tokens have become "
                "parallel; in DeepNorm and the three rows it is because v and out have small gains",
            ),
        ),
    ),
    finding=Finding(
        "Su: the gradients of lambda_q, lambda_k are not small because of softmax: at logits over sqrt(d) "
        "they are as large as v's in one layer. In stacks at that scale their share does fall, since tokens "
        "become parallel or v and out are scaled down; with the unscaled softmax of the text it does not",
        rank=160,
    ),
)


# ---------------------------------------------------------------- S1-19: derivatives of z

_S1_19 = Claim(
    id="S1-19",
    kind=Kind.STEP,
    locator=f"{_SECTION}, third equation",
    quote=r"\frac{\partial \boldsymbol{z}_{l+1}}{\partial \lambda_v} = \frac{\partial \mathcal{L}}{\partial "
    r"\boldsymbol{x}_{l+1}}\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}\frac{\lambda_o \sigma "
    r"(\lambda_q\lambda_k\boldsymbol{x}_l \boldsymbol{U}_q\boldsymbol{U}_k^{\top}\boldsymbol{x}_l^{\top})"
    r"\boldsymbol{x}_l\boldsymbol{U}_v\boldsymbol{U}_o}{\alpha}",
    summary="dz/dlambda_v = lambda_o (the branch)/alpha, dz/dlambda_o = lambda_v (the branch)/alpha",
    uses=("S1-17", "S1-20"),
    parts=(derivatives_part("as printed", "attention", (lam_v, lam_o)),),
)


# ---------------------------------------------------------------- S1-20: the average of tokens

_TENTH = Average(low=Rational(1, 100))
_BOUNDED = _TENTH.with_(min_cosine=S.Zero, max_tokens=100)

_S1_20 = claim(
    "S1-20",
    kind=Kind.STEP,
    locator=_SECTION,
    quote="Generally, the vectors before and after averaging will be of the same order of magnitude",
    summary="a softmax average of tokens has their order of magnitude (read: within a factor of ten)",
    statement=_TENTH,
    checks=averages.average_checks("S1-20"),
    mutants=(Mutant(name="at least half", statement=_TENTH.with_(low=Rational(1, 2))),),
    hedge=Amendment(
        statement=_BOUNDED,
        text="|xbar|^2/|x|^2 = p^T C p, at least rho + (1 - rho)/n for cosines of at least rho and n = 1/sum p_j^2, "
        "with equality at equal cosines: of order 1 where rho > 0, or where rho = 0 and n is bounded (here by 100); 0 "
        "of opposite tokens, 1/T of T orthogonal ones with equal weights",
    ),
    expected=Verdict.CONDITIONAL,
    finding=Finding(
        "Su: averaging tokens keeps their magnitude where they are correlated, or few of them carry the "
        "weight; T independent ones with equal weights lose a factor sqrt(T)",
        rank=260,
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_17, _S1_18, _S1_19, _S1_20)
