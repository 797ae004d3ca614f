"""What DeepNet's proofs rest on: Lemma 4.1 on averages of tokens, DN-01; the scalar model with its approximations,
DN-08; the assumptions, DN-11, held against the scheme that they lead to, DeepNorm at the printed alpha and beta; and
the gradient of a LayerNorm, DN-15.

One sublayer of the scalar model is f(x) = (alpha + v w) / sqrt(alpha^2 + v^2 w^2) x with weights v and w, d = 1. The
module is one section of the paper's appendix, read in its order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache
from itertools import product
from operator import gt, lt
from typing import Any

import mpmath
from sympy import Expr, Rational, S, diff, exp, factor, floor, fraction, lambdify, limit, log, oo, sqrt, together

from depthlaw.paper_checks.claims.broken import broken
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
    sentence,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.deepnet import models
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check, derived, python_command
from depthlaw.paper_checks.routes.intervals import interval
from depthlaw.paper_checks.routes.search import prove
from depthlaw.paper_checks.routes.signal_propagation import averages
from depthlaw.paper_checks.routes.signal_propagation.averages import Average
from depthlaw.theory.symbols import M, N, d, scratch
from depthlaw.theory.symbols import gain_in as w
from depthlaw.theory.symbols import gain_out as v
from depthlaw.theory.symbols import residual_weight as alpha

# ---------------------------------------------------------------- DN-01: averages of tokens

_UPPER, _THETA = Average(low=S.Zero), Average()
_BOUNDED = Average(min_cosine=S.Zero, max_tokens=16, low=Rational(1, 16))
_NORM = Values.of(norm=d)


@check(Route.ARITHMETIC, "tokens of entries 1 and -1, widths 2 to 512")
def _norms_at_widths(s: Values) -> list[bool | None]:
    return [
        algebra.equal(s["norm"].subs(d, width), sqrt(sum((-1) ** (2 * place) for place in range(width))))
        for width in (2, 4, 64, 512)
    ]


_DN_01 = Claim(
    id="DN-01",
    kind=Kind.STEP,
    locator="Section 4.1, Lemma 4.1 and its gloss of =Theta=, and Appendix A, whose proof gives the upper bound alone",
    quote="X = (x_1, ..., x_n), var(x_i) = 1, mean(x_i) = 0, q_i real: softmax(q_1, ..., q_n) X =Theta= x_i; =Theta=: "
    "an equal bound of magnitude",
    summary="a softmax average of normalised tokens has the magnitude of one of them",
    parts=(
        Part(
            name="read as an upper bound, which is what the proof gives",
            statement=_UPPER,
            checks=averages.average_checks("DN-01"),
            mutants=(
                Mutant(name="at most a half", statement=_UPPER.with_(high=S.Half)),
                Mutant(name="at least half", statement=_UPPER.with_(low=S.Half)),
            ),
        ),
        Part(
            name="read as Theta, a magnitude from below too: this reading fails",
            statement=_THETA,
            checks=averages.average_checks(
                "DN-01",
                python_command(
                    "import torch; x = torch.tensor([1.0, -1.0]); p = torch.zeros(2).softmax(0);"
                    " print('token', x.norm().item(), 'average', (p @ torch.stack([x, -x])).norm().item())"
                ),
            ),
            mutants=(Mutant(name="a half at most", statement=_BOUNDED.with_(high=S.Half)),),
            expected=Verdict.REFUTED,
            condition="cosines bounded below by a number over 0, or cosines of at least 0 and an effective number of "
            "tokens 1/sum p_j^2 that is bounded: |average|^2/|x_i|^2 = p^T C p >= rho + (1 - rho) sum p_j^2, "
            "which is sum p_j^2 of orthogonal (independent) tokens, 1/n with equal weights",
            instead=Amendment(
                statement=_BOUNDED,
                text="at least 1/n of |x_i|^2 for cosines of at least 0 and 1/sum p_j^2 of at most n (here "
                f"{_BOUNDED.max_tokens}); 0 of two opposite tokens",
            ),
        ),
        Part(
            name="the proof's length of a token",
            statement=_NORM,
            checks=(
                derived(
                    "sum of squares = d (var + mean^2), at variance 1 and mean 0",
                    lambda: {"norm": sqrt(d * (S.One + S.Zero**2))},
                ),
                _norms_at_widths,
            ),
            mutants=broken(_NORM.with_(norm=sqrt(d))),
            misprint=Amendment(
                statement=_NORM.with_(norm=sqrt(d)),
                text="||x_i|| = sqrt(d); it is ||x_i||^2 that is d. Nothing else of the proof changes",
                grounds="the lemma's own var(x_i) = 1 and mean(x_i) = 0; Section 3 has LayerNorm inputs of sqrt(d)",
            ),
            expected=Verdict.MISPRINT,
        ),
    ),
    finding=Finding(
        "DeepNet's Lemma 4.1: a softmax average has at most the magnitude of one token, but not that "
        "magnitude: it is 0 for two opposite tokens. The proof's ||x|| = d is sqrt(d)",
        rank=140,
    ),
)


# ---------------------------------------------------------------- DN-08: the scalar model

_ROOT = sqrt(alpha**2 + v**2 * w**2)
_MODEL = Values.of(
    slope=(alpha + v * w) / _ROOT,
    by_v=alpha * (alpha - v * w) / _ROOT**3 * w,
    by_w=alpha * (alpha - v * w) / _ROOT**3 * v,
    cross_stream=alpha / _ROOT,
    cross_memory=v * w / _ROOT,
)


def _differentiated() -> dict[str, Expr]:
    """Every slope at x = 1."""
    x, y = scratch("x", positive=True), scratch("y", positive=True)
    f, cross = (alpha * x + v * w * x) / _ROOT, (alpha * y + v * w * x) / _ROOT
    slopes = {"slope": diff(f, x), "by_v": diff(f, v), "by_w": diff(f, w)}
    slopes |= {"cross_stream": diff(cross, y), "cross_memory": diff(cross, x)}
    return {name: factor(together(slope.subs(x, 1))) for name, slope in slopes.items()}


@check(Route.PROOF, "the derived scalar model's")
def _model_of_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.scalar_model import cross_slopes, scalar_sensitivity, scalar_slope

    stream, memory = cross_slopes(alpha, v, w)
    return [
        algebra.equal(s["slope"], scalar_slope(alpha, v, w)),
        algebra.equal(factor(s["by_v"] ** 2 + s["by_w"] ** 2), factor(scalar_sensitivity(alpha, v, w) ** 2)),
        algebra.equal(s["cross_stream"], stream),
        algebra.equal(s["cross_memory"], memory),
    ]


# ---------------------------------------------------------------- DN-08: its approximations

_EVERYWHERE = "for 0 < v, w < 1 < alpha"
_NEAR = Values.of(
    "(alpha + vw)/sqrt(alpha^2 + v^2 w^2) ~ {slope}; alpha (alpha - vw)/(alpha^2 + v^2 w^2)^(3/2) ~ {sensitivity}, "
    "{where}",
    slope=1,
    sensitivity=1 / alpha,
    where=_EVERYWHERE,
)
_NEARER = _NEAR.with_(where="as v w / alpha goes to 0")


@check(Route.PROOF, "limits in r = v w / alpha, at 0 and at 1")
def _near_by_limits(s: Values) -> list[bool | None]:
    """Factor over simpler form, functions of r = v w / alpha: 1 as r goes to 0; and, for every r below 1, not to 0."""
    r = scratch("r", positive=True)
    answers: list[bool | None] = []
    for full, printed in ((_MODEL["slope"], s["slope"]), (_MODEL["by_v"] / w, s["sensitivity"])):
        form = (full / printed).subs(v * w, r * alpha).subs(v, r * alpha / w)
        for a in (1, 2):  # a form that is right has no alpha left
            at = factor(form.subs(alpha, a))
            answers.append(limit(at, r, 0) == 1)
            if s["where"] == _EVERYWHERE:
                answers.append(limit(at, r, 1) != 0)
    return answers


@check(Route.NUMERIC, "the derived model's slopes at r = 2^-4 to 2^-12, and 1 less that")
def _near_by_theory(s: Values) -> list[bool | None]:
    """At v = w: off by less than 2r, or by less than a factor 2 up to r = 1."""
    from depthlaw.theory.bounds.scalar_model import scalar_sensitivity, scalar_slope

    small = [Rational(1, 2**k) for k in (4, 8, 12)]
    points = [(a, r) for a in (S.One, S(2)) for r in small]
    if s["where"] == _EVERYWHERE:
        points += [(S.One, 1 - r) for r in small]
    answers: list[bool | None] = []
    for a, r in points:
        at = sqrt(r * a)
        ways = (scalar_slope(a, at, at), scalar_sensitivity(a, at, at) / (sqrt(2) * at))
        for way, printed in zip(ways, (s["slope"], s["sensitivity"]), strict=True):
            off = abs(math.log(float(way / printed.subs(alpha, a))))
            answers.append(off < 2 * min(float(r), math.log(2) / 2))
    return answers


# ---------------------------------------------------------------- DN-08: their product

_PRODUCT = Values.of(product=1)


def _log_product(num_layers: int) -> mpmath.mpf:
    """log of the product of 2N slopes at the printed alpha and beta."""
    a, b = mpmath.mpf(2 * num_layers) ** 0.25, mpmath.mpf(8 * num_layers) ** -0.25
    return 2 * num_layers * mpmath.log(models.sublayer(a, b, b).slope)


@check(Route.NUMERIC, "whether the product over the printed form settles, N = 10^2, 10^4, 10^6")
def _product_settles(s: Values) -> Answers:
    printed = lambdify(N, log(s["product"]), modules="mpmath")
    holds = algebra.settles([_log_product(n) - printed(mpmath.mpf(n)) for n in second_meanfield.LENGTHS])
    beyond = {size: bisect_right(range(10**6), math.log(size), lo=1, key=_log_product) for size in (2, 10)}
    example = {
        "printed": "the slopes of the 2N sublayers multiply to about 1",
        "found": "the product, about exp(2^(-3/4) N^(1/4)), is "
        + ", ".join(f"above {size} from N = {first}" for size, first in beyond.items()),
        "command": python_command(
            "N = 230; a, p = (2 * N) ** 0.25, (8 * N) ** -0.5;"
            " print('product of the slopes', ((a + p) / (a * a + p * p) ** 0.5) ** (2 * N))"
        ),
    }
    numbers = {f"log of the product, N = {n}": mpmath.nstr(_log_product(n), 6) for n in second_meanfield.LENGTHS}
    shown = None if holds else example
    return Answers(holds=[holds], num_effective=len(numbers), numbers=numbers, counterexample=shown)


@check(Route.PROOF, "limit of 2N log(slope) at the derived alpha and beta")
def _product_limit(s: Values) -> list[bool | None]:
    """Less log of the printed form, as N = 1/t^4 grows."""
    from depthlaw.theory.bounds.scalar_model import scalar_slope
    from depthlaw.theory.rules.solve import solve_rule

    side = solve_rule("post", "sgd", "encoder", "deepnet", with_alternatives=False).side("encoder")
    assert side.gain is not None
    t, r = scratch("t", positive=True), scratch("r", positive=True)
    step = log(scalar_slope(S.One, sqrt(r), sqrt(r))).series(r, 0, 3).removeO()
    whole = 2 * N * step.subs(r, side.gain**2 / side.residual_weight) - log(s["product"])
    return [bool(limit(whole.subs(N, t**-4).expand(), t, 0, "+").is_finite)]


_DN_08 = Claim(
    id="DN-08",
    kind=Kind.STEP,
    locator="Appendix A, the proof of Theorem 4.2",
    quote="f(x) = (alpha + vw)/sqrt(alpha^2 + v^2 w^2) x; df/dx ~ 1, df/d(v, w) ~ x (w, v)/alpha",
    summary="the scalar model, its slopes, and that they are about 1 and 1/alpha",
    uses=("DN-04",),
    parts=(
        Part(
            name="the slopes",
            statement=_MODEL,
            checks=(derived("differentiated by sympy", _differentiated), _model_of_theory),
        ),
        Part(
            name="each is about 1 and 1/alpha",
            statement=_NEAR,
            checks=(_near_by_limits, _near_by_theory),
            mutants=broken(_NEARER, "slope", "sensitivity"),
            hedge=Amendment(
                statement=_NEARER,
                text="as v w / alpha goes to 0: they are 1 + r and (1 - r)/alpha to first order in r = v w / alpha. At "
                "v = w = alpha = 1 the second is 0",
            ),
            expected=Verdict.CONDITIONAL,
        ),
        Part(
            name="so the product over the 2N sublayers is about 1, at the printed alpha and beta",
            statement=_PRODUCT,
            checks=(_product_settles, _product_limit),
            mutants=(Mutant(name="exp(N^(1/4))", statement=_PRODUCT.with_(product=exp(N ** Rational(1, 4)))),),
            instead=Amendment(
                statement=_PRODUCT.with_(product=exp(2 ** Rational(-3, 4) * N ** Rational(1, 4))),
                text="exp(2^(-3/4) N^(1/4) (1 + o(1))): v w / alpha = 2^(-7/4) N^(-3/4), 2N times",
            ),
            condition="N v w / alpha bounded, which alpha^2 = 1/(v^2 + w^2) meets only with beta = O(N^(-1/3)). In a "
            "wide network the branch is uncorrelated with the stream, a sublayer multiplies the mean squared gradient "
            "by (alpha^2 + v^2 w^2)/(alpha^2 + v^2 w^2) = 1, and the product is 1 at any alpha and beta",
            expected=Verdict.REFUTED,
        ),
    ),
)


# ---------------------------------------------------------------- DN-11 (3): on either side of 1

_BEYOND = {">": gt, "<": lt}
_LEAST = int(floor(Rational("0.81") ** -16)) + 1
"""The least N^4 M at which the printed alpha, 0.81 (N^4 M)^(1/16), is above 1."""


def _side(letter: str, sign: str, forms: dict[str, Expr], least: int = 1) -> Values:
    """A letter stands on one side of 1 in every architecture, for all N, M >= 1 with N^4 M >= ``least``."""
    words = "{letter} {sign} 1 for all N, M >= 1 with N^4 M >= {least}: "
    shown = "; ".join(f"{name}: {{{name}}}" for name in forms)
    return Values.of(words + shown, letter=letter, sign=sign, least=least, **forms)


@check(Route.ARITHMETIC, "16th powers at all N, M up to 40, exactly")
def _side_by_trial(s: Values) -> Answers:
    fails, count, is_beyond = [], 0, _BEYOND[s["sign"]]
    for name, expr in s.entries[3:]:
        power = lambdify((N, M), expr**16, modules="sympy")
        counts = (range(1, 41 if expr.has(letter) else 2) for letter in (N, M))
        for n, m in product(*counts):
            if n**4 * m >= s["least"]:
                count += 1
                if not is_beyond(power(S(n), S(m)), 1):
                    fails.append((n * m, n, m, name))
    example = None
    if fails:
        _, n, m, name = min(fails)
        example = {
            "printed": f"{s['letter']} is {'greater' if s['sign'] == '>' else 'less'} than 1",
            "found": f"{name}, N = {n}, M = {m}: {s['letter']} = {float(s[name].subs({N: n, M: m})):.4g}",
            "N": n,
            "M": m,
            "command": f"depthlaw rule --norm post --optimizer sgd --arch encoder-decoder --layers {n} "
            f"--decoder-layers {m} --select deepnet",
        }
    return Answers(holds=[not fails], num_effective=count, numbers={"fail": len(fails)}, counterexample=example)


@check(Route.PROOF, "16th powers over all real N, M >= 1, by z3")
def _side_by_solver(s: Values) -> list[bool | None]:
    import z3

    n, m = z3.Real("n"), z3.Real("m")
    answers: list[bool | None] = []
    for _, expr in s.entries[3:]:
        top, bottom = (lambdify((N, M), part, modules="math")(n, m) for part in fraction(together(expr**16)))
        domain = z3.And(n >= 1, m >= 1, n**4 * m >= int(s["least"]))
        answers.append(prove(z3.Implies(domain, _BEYOND[s["sign"]](top, bottom))).is_valid)
    return answers


_SIDE_CHECKS = (_side_by_trial, _side_by_solver)
_NAMES = {"encoder": "encoder-only", "decoder": "decoder-only", "decoder of two": "decoder of two"}
_ALPHAS = {name: models.PRINTED[which][0] for which, name in _NAMES.items()}
_ALPHA_OF_TWO, _BETA_OF_TWO = models.PRINTED["encoder of two"]
_BETAS = {name: models.PRINTED[which][1] for which, name in _NAMES.items()} | {"encoder of two": _BETA_OF_TWO}
_WEIGHTS, _BETA, _ALPHA = _side("v = w = beta", "<", _BETAS), _side("beta", ">", _BETAS), _side("alpha", ">", _ALPHAS)
_ALPHA_E = _side("alpha", ">", {"encoder of two": _ALPHA_OF_TWO})
_SIDE_PARTS = (
    Part(
        name="(3) v and w below 1",
        statement=_WEIGHTS,
        checks=_SIDE_CHECKS,
        mutants=(Mutant(name="the family's 1/alpha", statement=_side("v = w = beta", "<", {"encoder": 1 / N})),),
    ),
    Part(
        name="(3) alpha above 1: encoder-only, decoder-only, the decoder of two",
        statement=_ALPHA,
        checks=_SIDE_CHECKS,
        mutants=(Mutant(name="N for 2N", statement=_side("alpha", ">", {"encoder": N ** Rational(1, 4)})),),
    ),
    Part(
        name="(3) alpha above 1: the encoder of two",
        statement=_ALPHA_E,
        checks=_SIDE_CHECKS,
        mutants=(Mutant(name=f"from N^4 M = {_LEAST - 1}", statement=_ALPHA_E.with_(least=_LEAST - 1)),),
        instead=Amendment(
            statement=_ALPHA_E.with_(least=_LEAST),
            text=f"alpha_e > 1 from N^4 M = {_LEAST} on as printed, above N^4 M = 27 with the exact constant",
        ),
        condition=f"N^4 M >= {_LEAST}: N = 1 with M >= {_LEAST}, N = 2 with M >= {-(-_LEAST // 2**4)}, or N >= 3; with "
        "the exact constant 27^(-1/16) in place of 0.81, N^4 M > 27",
        expected=Verdict.REFUTED,
    ),
    Part(
        name="(3) beta above 1",
        statement=_BETA,
        checks=_SIDE_CHECKS,
        mutants=(Mutant(name="alpha below", statement=_side("beta", "<", _ALPHAS)),),
        misprint=Amendment(
            statement=_BETA.with_(sign="<"),
            text="beta less than 1: it is what v and w are set to",
            grounds="the same sentence has v and w below 1, Section 4 sets v = w = beta, and every beta of its "
            "table is below 1",
        ),
        expected=Verdict.MISPRINT,
    ),
)


# ---------------------------------------------------------------- DN-11 (1): d = 1

_BY_DEVIATION = "division by sqrt(alpha^2 + v^2 w^2)"
_ONE = Values.of("d = 1: {norm}(alpha x + v w x) = (alpha + vw)/sqrt(alpha^2 + v^2 w^2) x", norm="LayerNorm")


@check(Route.PROOF, "the norm of one coordinate, by its definition")
def _one_coordinate(s: Values) -> list[bool | None]:
    """At x = 1. A LayerNorm subtracts the mean of one coordinate, itself; an RMSNorm divides by its size."""
    z = alpha + v * w
    norms = {"LayerNorm": z - z, "RMSNorm": z / sqrt(z**2), _BY_DEVIATION: z / _ROOT}
    return [algebra.equal(norms[s["norm"]], _MODEL["slope"])]


@check(Route.MEASURED, "torch's norm of the one coordinate alpha + v w, at DeepNet's alpha and beta")
def _one_coordinate_of_torch(s: Values) -> Answers:
    import torch
    from torch.nn import functional

    answers, numbers = [], {}
    for num_layers in (1, 18, 1000):
        a, b = (2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25
        z, scale = torch.tensor([a + b * b], dtype=torch.float64), math.sqrt(a**2 + b**4)
        norms = {"LayerNorm": functional.layer_norm(z, (1,)), "RMSNorm": functional.rms_norm(z, (1,))}
        norms[_BY_DEVIATION] = z / scale
        value, printed = norms[s["norm"]].item(), (a + b * b) / scale
        answers.append(abs(value - printed) < 1e-12)
        numbers[f"N = {num_layers}"] = f"{value:.4g}, and f = {printed:.4g}"
    return Answers(holds=answers, numbers=numbers)


_ONE_PART = Part(
    name="(1) d = 1",
    statement=_ONE,
    checks=(_one_coordinate, _one_coordinate_of_torch),
    mutants=(Mutant(name="RMSNorm", statement=_ONE.with_(norm="RMSNorm")),),
    hedge=Amendment(
        statement=_ONE.with_(norm=_BY_DEVIATION),
        text="d = 1 simplifies, and is a choice of model: a real LayerNorm of one coordinate is 0 whatever the "
        "weights. The model has in its place division by sqrt(alpha^2 + v^2 w^2), the standard deviation that a wide "
        "sublayer has, whose branch is uncorrelated with its stream; in one dimension they are proportional",
    ),
    expected=Verdict.CONDITIONAL,
)

# ---------------------------------------------------------------- DN-11 (2): variances add

_VARIANCE = Values.of(variance=alpha**2 + v**2 * w**2)


def _keeps_order(expr: Expr) -> bool:
    """Whether it goes to a number over 0 at DeepNorm's scales, as N = 1/t^4 grows."""
    t, (a, b) = scratch("t", positive=True), models.PRINTED["encoder"]
    end = limit(expr.subs({alpha: a, v: b, w: b}).subs(N, t**-4), t, 0, "+")
    return bool(end.is_finite and end > 0)


@check(Route.PROOF, "(alpha + vw)^2, of a proportional branch and stream, is of its order")
def _variance_of_model(s: Values) -> list[bool | None]:
    over = (alpha + v * w) ** 2 / s["variance"]
    at_ends = [over.subs(w, r * alpha / v).subs({alpha: 1, v: 1}) for r in (Rational(1, 10**6), S.One)]
    return [_keeps_order(over), all(Rational(1, 4) < value < 4 for value in at_ends)]


@cache
def _squares_of_sum(num_layers: int) -> tuple[float, float, list[float]]:
    """(alpha, beta, the mean square of alpha x + G(x) by seed) of a real FFN sublayer of DeepNorm, ReLU, d = 128."""
    from depthlaw.sims.measure import Question, collect
    from depthlaw.sims.model import ModelConfig, SublayerConfig
    from depthlaw.sims.update import Task

    a, b = (float(expr.subs(N, num_layers)) for expr in models.PRINTED["encoder"])
    ffn = SublayerConfig(kind="ffn", residual_weight=a, gains={"fc1": b, "fc2": b})
    config = ModelConfig(encoder=(ffn,), placement="none", d_model=128, ffn_ratio=1)
    question = Question(config=config, task=Task(num_tokens=16), has_layers=True)
    return a, b, collect(question, range(16))["layer/encoder/1/second_moment"]


@check(Route.MEASURED, "the square of alpha x + G(x), real FFNs of d = 128, 16 seeds: 1/2 to 2 of it")
def _variance_of_network(s: Values) -> Answers:
    value = lambdify((alpha, v, w), s["variance"], modules="math")
    over = {}
    for num_layers in (1, 100, 10**4):
        a, b, by_seed = _squares_of_sum(num_layers)
        over[f"N = {num_layers}"] = interval([square / value(a, b, b) for square in by_seed])
    return Answers(
        holds=[ratio.within(*ends) for ratio in over.values() for ends in ((-math.inf, 2), (0.5, math.inf))],
        numbers={name: ratio.text for name, ratio in over.items()},
    )


_VARIANCE_PART = Part(
    name="(2) var(x + G(x)) =Theta= var(x) + var(G(x)), at DeepNorm's scales",
    statement=_VARIANCE,
    checks=(_variance_of_model, _variance_of_network),
    mutants=(Mutant(name="the branch alone", statement=_VARIANCE.with_(variance=v**2 * w**2)),),
)

# ---------------------------------------------------------------- DN-11: the top sublayer's gradient is the largest

_TOP = Values.of("||dF/dtheta_dj|| <= {factor} ||dF/dtheta_d,3M|| for every sublayer j of the decoder, relu", factor=1)


@check(Route.MEANFIELD, "one token, infinite width: an attention's over the FFN's, in the top layer")
def _top_by_closed_form(s: Values) -> Answers:
    """The largest stands there: self-attention and FFN pass the squared gradient on, and cross-attention lowers it."""
    ratios = {}
    for ffn_ratio, num_layers in product((1, 4), (1, 6, 18, 100, 1000)):
        attention, ffn = models.matrix_shares(*models.deepnet_scales(num_layers, num_layers).decoder, ffn_ratio)
        ratios[f"FFN of {ffn_ratio}d, M = {num_layers}"] = math.sqrt(max(attention, ffn) / ffn)
    answers = [bool(ratio <= s["factor"]) for ratio in ratios.values()]
    example = {
        "printed": "||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||",
        "found": f"at a decoder's first position the top cross-attention, j = 3M - 1, has "
        f"{ratios['FFN of 4d, M = 6']:.3g} times the FFN's above it, {ratios['FFN of 1d, M = 6']:.3g} times with an "
        "FFN as wide as the stream (N = M = 6, relu, wide)",
        "command": "depthlaw explain DN-11",
    }
    numbers = {name: f"{ratio:.4g}" for name, ratio in ratios.items()}
    return Answers(holds=answers, numbers=numbers, counterexample=None if all(answers) else example)


@check(Route.MEASURED, "real encoder-decoders, one token, 24 seeds: root mean squares over the last")
def _top_by_measuring(s: Values) -> Answers:
    answers, numbers = [], {}
    square = float(s["factor"]) ** 2
    for num_layers in (1, 3):
        sides = ((scale,) * num_layers for scale in models.deepnet_scales(num_layers, num_layers))
        *below, top = models.by_sublayer(*sides, range(24), 1)[1]
        for row in below:
            excess = interval([other - square * last for other, last in zip(row, top, strict=True)])
            answers.append(excess.is_below(0))
        numbers[f"M = {num_layers}"] = [f"{math.sqrt(sum(row) / sum(top)):.2g}" for row in below]
    return Answers(holds=answers, numbers=numbers)


_SCALAR_LAYERS = 18


def _most_of_scalars() -> float:
    """The largest derivative of a decoder's sublayers over the last one's, in the scalar model, N = M."""
    of_decoder = [true for true, _ in models.sensitivities(*models.scalar_sides(_SCALAR_LAYERS))][2 * _SCALAR_LAYERS :]
    return float(max(of_decoder) / of_decoder[-1])


_TOP_PART = Part(
    name="||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||",
    statement=_TOP,
    checks=(_top_by_closed_form, _top_by_measuring),
    mutants=tuple(Mutant(name=f"{x}", statement=_TOP.with_(factor=x)) for x in (S.Half, Rational(5, 4))),
    instead=Amendment(
        statement=_TOP.with_(factor=2),
        text="at most twice it (sqrt(2) at infinite width): of the order of the top one's, as the sum over sublayers "
        "needs; the gradient that arrives does not grow downwards with ReLU",
    ),
    condition=sentence(
        "sublayers of one kind (FFN with FFN) in a wide network of ReLU; or O() for <=. In the scalar model it fails, "
        "too: a cross-attention's, whose memory has grown to ((1 + r)/sqrt(1 + r^2))^(2N), is {ratio:.1f} times the "
        "last one's at N = M = {num_layers}",
        ratio=_most_of_scalars,
        num_layers=_SCALAR_LAYERS,
    ),
    expected=Verdict.REFUTED,
)

# ---------------------------------------------------------------- DN-11: the last sublayer's gradient

_LAST = Values.of(gradient=sqrt(v**2 + w**2) / alpha)


@check(Route.PROOF, "limit of the derived model's sensitivity over it, at DeepNorm's scales")
def _last_of_theory(s: Values) -> list[bool | None]:
    from depthlaw.theory.bounds.scalar_model import scalar_sensitivity

    return [_keeps_order(scalar_sensitivity(alpha, v, w) / s["gradient"])]


@check(Route.NUMERIC, "a wide FFN of DeepNorm, relu and gelu, over it: whether it settles, L to 10^6")
def _last_by_quadrature(s: Values) -> Answers:
    printed = lambdify((alpha, v, w), s["gradient"], modules="math")
    answers, numbers = [], {}
    for activation in ("relu", "gelu"):
        ratios = []
        for length in second_meanfield.LENGTHS:
            network = second_meanfield.coefficients("deepnorm", length)
            a, b = network.residual_weight, network.gain_in
            _, second, slope, *_ = second_meanfield.moments(activation, b)
            square = (b**2 * slope + second) / (a**2 + b**2 * second)
            ratios.append(math.log(square / printed(a, b, b) ** 2))
        answers.append(algebra.settles(ratios))
        numbers[f"of the square, {activation}"] = f"{math.exp(ratios[-1]):.3g}"
    return Answers(holds=answers, numbers=numbers)


_LAST_PART = Part(
    name="||dF/dtheta_last|| =Theta= ||theta_last||/alpha",
    statement=_LAST,
    checks=(_last_of_theory, _last_by_quadrature),
    mutants=(Mutant(name="||theta||^2", statement=_LAST.with_(gradient=(v**2 + w**2) / alpha)),),
)

_DN_11 = Claim(
    id="DN-11",
    kind=Kind.STEP,
    locator="Appendix A, the assumptions of the proofs of Theorems 4.2 and 4.3, and those of one SGD step",
    quote="(1) d = 1; (2) var(x + G(x)) =Theta= var(x) + var(G(x)); (3) v and w positive, of magnitude less than 1; "
    "alpha and beta positive, of magnitude greater than 1; ||dF/dtheta_dj|| <= ||dF/dtheta_d,3M||; "
    "||dF/dtheta_last|| =Theta= ||theta_last||/alpha",
    summary="what is assumed, of the scheme that follows: d = 1, variances add, 0 < v, w < 1, alpha, beta > 1, the "
    "last sublayer's gradient of order ||theta||/alpha and the largest",
    uses=("DN-04", "DN-05", "DN-06", "DN-07"),
    parts=(_ONE_PART, _VARIANCE_PART, *_SIDE_PARTS, _TOP_PART, _LAST_PART),
    finding=Finding(
        "DeepNet assumes alpha > 1 and beta > 1: beta is below 1 for every N, alpha of the encoder where "
        "N^4 M < {least}",
        rank=130,
        numbers={"least": _LEAST},
    ),
)


# ---------------------------------------------------------------- DN-15: the gradient of a LayerNorm

_LENGTH, _CENTRED = scratch("||x||", positive=True), scratch("||x - mean(x)||", positive=True)
_GRADIENT = Values.of("||dLN(x)/dx|| = O({bound}) for every x", bound=sqrt(d) / _LENGTH)


def _gradient_bound(s: Values) -> Any:
    """The printed bound as a function of ||x||, ||x - mean(x)|| and d."""
    return lambdify((_LENGTH, _CENTRED, d), s["bound"], modules="math")


@cache
def _is_projector(size: int) -> bool:
    """J = (sqrt(d)/|y|) P, y = x - mean(x), P = I - 11^T/d - y y^T/|y|^2, P^2 = P of rank d - 2, as polynomials of x.

    With s = |y|^2 the Jacobian of y s^(-1/2) is s^(-3/2) (s dy/dx - y (ds/dx)/2).
    """
    import numpy as np
    from sympy import QQ
    from sympy.polys.rings import ring

    _, *letters = ring([f"x{i}" for i in range(size)], QQ)
    x = np.array(letters, dtype=object)
    y = x - x.sum() * QQ(1, size)
    square = y @ y
    jacobian = np.array([[square * a.diff(b) - a * square.diff(b) * QQ(1, 2) for b in letters] for a in y])
    projector = (np.eye(size, dtype=int) - np.full((size, size), QQ(1, size))) * square - np.outer(y, y)  # times |y|^2
    is_idempotent = (projector @ projector == projector * square).all()
    return bool((jacobian == projector).all() and is_idempotent and projector.trace() == (size - 2) * square)


@check(
    Route.PROOF,
    "the Jacobian is sqrt(d)/||y|| times a projector, y = x - mean(x); then along x = c 1 + t e",
    steps=lambda: (
        "J = (sqrt(d)/||y||)(I - 11^T/d - y y^T/||y||^2), y = x - mean(x): a projector of rank d - 2",
        "so ||J|| = sqrt(d)/||y|| exactly for d >= 3, and 0 for d = 2",
        "over sqrt(d)/||x|| it is ||x||/||y|| = sqrt(1 + d mean(x)^2/||y||^2), without bound",
    ),
)
def _gradient_exactly(s: Values) -> list[bool | None]:
    c, t = scratch("c", positive=True), scratch("t", positive=True)
    width = 4
    centred, length = t * sqrt(width), sqrt(width * (t**2 + c**2))
    ratio = sqrt(width) / centred / s["bound"].subs({_LENGTH: length, _CENTRED: centred, d: width})
    ends = (limit(ratio, c, oo), limit(ratio, t, oo), limit(ratio, t, 0))
    return [_is_projector(3), _is_projector(4), *(end.is_finite is True for end in ends)]


_SHAPES = ((0.0, 1.0), (1.0, 1.0), (10.0, 1.0), (100.0, 1.0), (1000.0, 1.0), (0.0, 1e-3), (0.0, 1e3))


@cache
def _measured_gradients() -> list[list[tuple[float, float, float, int]]]:
    """By width and shape: (spectral norm, |x|, |x - mean|, d) at x = c + t times a normal vector."""
    import torch
    from torch.nn.functional import layer_norm

    def row(x: torch.Tensor) -> tuple[float, float, float, int]:
        jacobian: Any = torch.autograd.functional.jacobian(lambda z: layer_norm(z, z.shape, eps=0.0), x)
        return float(torch.linalg.matrix_norm(jacobian, 2)), float(x.norm()), float((x - x.mean()).norm()), len(x)

    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(width, generator=generator, dtype=torch.float64) for width in (8, 32, 128)]
    return [[row(shift + scale * draw) for shift, scale in _SHAPES] for draw in draws]


@check(Route.MEASURED, "torch's layer_norm by autograd, its norm over what is printed; d = 8 shown")
def _gradient_by_autograd(s: Values) -> Answers:
    bound = _gradient_bound(s)
    ratios = [[norm / bound(*at) for norm, *at in row] for row in _measured_gradients()]
    answers = [max(row) < 10 * row[0] for row in ratios]
    rows = {f"x = {c:g} + {t:g} z": f"{ratio:.4g}" for (c, t), ratio in zip(_SHAPES, ratios[0], strict=True)}
    example = {
        "printed": "O(sqrt(d)/||x||)",
        "found": f"{rows['x = 1000 + 1 z']} sqrt(d)/||x|| at x = 1000 + z, z normal, d = 8",
        "command": python_command(
            "import torch; x = torch.randn(8); f = lambda x: torch.layer_norm(x, (8,), eps=0);"
            " J = torch.autograd.functional.jacobian;"
            " print('over the bound', *(torch.linalg.matrix_norm(J(f, x + m), 2).item() * (x + m).norm().item()"
            " / 8**0.5 for m in (0, 10, 1000)))"
        ),
        "ratios": rows,
    }
    shown = None if all(answers) else example
    return Answers(holds=answers, num_effective=sum(map(len, ratios)), numbers=rows, counterexample=shown)


_DN_15 = claim(
    "DN-15",
    kind=Kind.STEP,
    locator="Section 3, after Lemma 3 of Xiong et al.",
    quote="||dLN(x)/dx|| = O(sqrt(d)/||x||)",
    summary="the gradient of a LayerNorm is O(sqrt(d)/||x||)",
    statement=_GRADIENT,
    checks=(_gradient_exactly, _gradient_by_autograd),
    mutants=(Mutant(name="sqrt(d)/||x - mean||^2", statement=_GRADIENT.with_(bound=sqrt(d) / _CENTRED**2)),),
    expected=Verdict.REFUTED,
    condition="a mean of the entries that is at most of the order of their standard deviation, as at "
    "initialisation; or RMSNorm, which subtracts no mean and has norm sqrt(d)/||x|| exactly",
    instead=Amendment(
        statement=_GRADIENT.with_(bound=sqrt(d) / _CENTRED),
        text="sqrt(d)/||x - mean(x)||, with equality for d >= 3",
    ),
    finding=Finding(
        "The gradient of a LayerNorm is of order sqrt(d) over the length of the centred x: printed with "
        "||x||, it fails at a large mean, and holds for RMSNorm",
        rank=150,
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_01, _DN_08, _DN_11, _DN_15)
