"""Su's article, "Feedforward Gradients": the weight of the skip, how homogeneous phi is, a branch and its gradients.

z is what the norm reads: x + lambda_1 lambda_2 phi(x U_1) U_2/alpha.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product, starmap
from typing import TYPE_CHECKING, Any

from numpy.random import default_rng
from sympy import Expr, Float, LambertW, Max, S, diag, exp, expand, lambdify, sqrt

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
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.papers.deepnet.abstract import WMT17
from depthlaw.paper_checks.papers.magneto.experiments import GLUE, OPUS
from depthlaw.paper_checks.papers.su.sublayers import (
    ROUNDING,
    derivatives,
    derivatives_part,
    ffn,
    gaussian,
    lam1,
    lam2,
    layer_norm,
    normal,
    phi,
    shown,
)
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import interval
from depthlaw.paper_checks.routes.tables.results import AVERAGE, DIVERGED, TRAINED, Column, ran, won
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import BY_TRAINING, trained_only
from depthlaw.theory.symbols import d, scratch, scratch_matrix
from depthlaw.theory.symbols import residual_weight as alpha

if TYPE_CHECKING:
    from depthlaw.theory.moments import Activation

_SECTION = "Feedforward Gradients"
_THEORY_NAMES = {"swish": "silu"}
"""What theory calls an activation, where the article has another name."""


# ---------------------------------------------------------------- S1-11: the weight of the skip

eps = scratch("eps", positive=True)


def _norm(stream: list[Any], at: Any) -> tuple[list[Any], Any]:
    """Centred entries and the variance with eps: LN is one over the root of the other."""
    centred = [x - sum(stream) / len(stream) for x in stream]
    return centred, sum(x * x for x in centred) / len(stream) + at


@check(Route.PROOF, "three entries: the centred stream is alpha times the other, its variance alpha^2")
def _rescaled_exactly(s: Values) -> list[bool | None]:
    x, f = ([scratch(f"{name}_{i}", real=True) for i in range(3)] for name in "xF")
    left, below = _norm([alpha * a + b for a, b in zip(x, f, strict=True)], s["eps"])
    right, under = _norm([a + s["branch"] * b for a, b in zip(x, f, strict=True)], s["other_eps"])
    centred = [bool(expand(a - alpha * b) == 0) for a, b in zip(left, right, strict=True)]
    return [*centred, bool(expand(below - alpha**2 * under) == 0)]


@check(Route.MEASURED, "torch.nn.functional.layer_norm, alpha from 10^-6 to 10^6")
def _rescaled_in_torch(s: Values) -> list[bool | None]:
    import torch

    x, f = normal(default_rng(11), 2, 4, 16)
    answers: list[bool | None] = []
    for power in range(-6, 7):
        at = {alpha: 10.0**power, eps: 1e-2}
        first_eps, branch, other = (float(s[name].subs(at)) for name in ("eps", "branch", "other_eps"))
        left, right = layer_norm(10.0**power * x + f, first_eps), layer_norm(x + branch * f, other)
        answers.append(bool(torch.allclose(left, right, rtol=0.0, atol=ROUNDING)))
    return answers


_LN_CHECKS = (_rescaled_exactly, _rescaled_in_torch)
_WITH_EPS = Values.of(
    "LN_eps(alpha x + F) with eps = {eps} is LN_eps(x + {branch}*F) with eps = {other_eps}, alpha > 0",
    eps=eps,
    branch=1 / alpha,
    other_eps=eps / alpha**2,
)
_NO_EPS = _WITH_EPS.with_(eps=0, other_eps=0)
_S1_11 = Claim(
    id="S1-11",
    kind=Kind.STEP,
    locator=f"{_SECTION}, first equation",
    quote=r"\text{LN}(\alpha\boldsymbol{x}_l + F(\boldsymbol{x}_l)) = \text{LN}(\boldsymbol{x}_l + "
    r"F(\boldsymbol{x}_l)/\alpha)",
    summary="a weight alpha on the skip is 1/alpha on the branch, under the norm",
    parts=(
        Part(name="as printed, eps 0", statement=_NO_EPS, checks=_LN_CHECKS, mutants=broken(_NO_EPS, "branch")),
        Part(
            name="with LayerNorm's eps, which becomes eps/alpha^2",
            statement=_WITH_EPS,
            checks=_LN_CHECKS,
        ),
    ),
)


# ---------------------------------------------------------------- S1-12: homogeneity

_SUP = {"gelu": Float("0.16997120747990366"), "swish": LambertW(exp(-1)).evalf(17)}
"""The largest distance of phi from relu: |u| Phi(-|u|) at 0.7518, and |u|/(1 + e^|u|) at 1.2785."""
_factor = scratch("lambda", positive=True)


def _homogeneous(activation: str, bound: Expr = S.Zero) -> Values:
    return Values.of(
        "|{phi}(lambda x) - lambda {phi}(x)| <= {bound} for every x and every lambda > 0", phi=activation, bound=bound
    )


@check(Route.NUMERIC, "torch's own function on 8,002 points each, lambda from 2^-16 to 2^16")
def _within(s: Values) -> Answers:
    import torch

    bound = lambdify(_factor, s["bound"], modules=["math", {"Max": max}])
    function, grid = phi(s["phi"]), torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64)
    gaps = {}
    for k in (2.0**power for power in (-16, -6, -3, -1, 0, 1, 3, 6, 16)):
        x = torch.cat([grid, grid / k])  # both where phi(x) bends and where phi(lambda x) does
        gaps[k] = float((function(k * x) - k * function(x)).abs().max())
    return Answers(
        holds=[gap <= float(bound(k)) * (1 + ROUNDING) for k, gap in gaps.items()],
        numbers={f"{k:g}": shown(gap) for k, gap in gaps.items()},
        steps=(
            "phi(u) = relu(u) - e(u) with 0 <= e(u) <= c, and relu is homogeneous",
            "phi(lambda x) - lambda phi(x) = lambda e(x) - e(lambda x) lies between -c and lambda c",
            "it comes as near as one likes to -c as lambda -> 0, to lambda c as lambda -> infinity",
        ),
    )


@cache
def _relative_error(function: Activation, k: float) -> float:
    from depthlaw.theory.moments import inhomogeneity

    return float(inhomogeneity(function, k, digits=6))


@check(Route.MEANFIELD, "root mean square of phi(lambda x) - lambda phi(x) over that of lambda phi(x), x ~ N(0, 1)")
def _typically_within(s: Values) -> Answers:
    from depthlaw.theory.moments import Kind, activation, numeric

    name: str = s["phi"]
    function, holds, numbers = activation(_THEORY_NAMES.get(name, name)), [], {}
    for k in (0.5, 2.0):
        relative = _relative_error(function, k)
        gap = relative * k * math.sqrt(numeric(function, Kind.SECOND, 1.0))
        holds.append(gap <= float(s["bound"].subs(_factor, k)) * (1 + ROUNDING))
        numbers[f"relative error at {k:g}"] = shown(relative)
    return Answers(holds=holds, numbers=numbers)


_HOMOGENEITY = (_within, _typically_within)


def _approximate(name: str, word: str) -> Part:
    bound = _SUP[name] * Max(1, _factor)
    return Part(
        name=name,
        statement=_homogeneous(name),
        checks=_HOMOGENEITY,
        mutants=(
            Mutant(name="nine tenths", statement=_homogeneous(name, bound * S(9) / 10)),
            Mutant(name="a twentieth", statement=_homogeneous(name, bound / 20)),
        ),
        hedge=Amendment(
            statement=_homogeneous(name, bound),
            text=sentence(
                f"exact for every lambda only where phi is linear on either side of 0 (relu, leaky relu). For {word} "
                "|phi(lambda x) - lambda phi(x)| <= {sup:.5g} max(1, lambda), {sup:.5g} being sup |phi - relu|, no "
                "smaller constant will do; good where |x| and lambda |x| are large (relu) or both small (phi = x/2); "
                "at x ~ N(0, 1) its relative error is {half:.2f} at lambda = 1/2 and {twice:.2f} at lambda = 2",
                sup=_SUP[name],
                half=number(name, "relative error at 0.5"),
                twice=number(name, "relative error at 2"),
            ),
        ),
        expected=Verdict.CONDITIONAL,
    )


_S1_12 = Claim(
    id="S1-12",
    kind=Kind.STEP,
    locator=f"{_SECTION}, after the second equation",
    quote=r"Here, $\phi$ is an activation function, typically ReLU or its variants (Swish, GeLU, etc.), which "
    r"(approximately) satisfy $\phi(\lambda x) = \lambda \phi(x),\forall \lambda > 0$.",
    summary="phi(lambda x) = lambda phi(x): ReLU, and Swish and GeLU approximately",
    parts=(
        Part(
            name="relu",
            statement=_homogeneous("relu"),
            checks=_HOMOGENEITY,
            mutants=(Mutant(name="tanh", statement=_homogeneous("tanh")),),
        ),
        _approximate("gelu", "GELU"),
        _approximate("swish", "Swish"),
    ),
    finding=Finding(
        "Su: phi(lambda x) = lambda phi(x) is exact for ReLU; for GELU and Swish within {gelu:.2f} and "
        "{swish:.2f} times max(1, lambda)",
        rank=250,
        numbers=_SUP,
    ),
)


# ---------------------------------------------------------------- S1-13: lambdas out of a branch


@check(Route.PROOF, "every pattern of signs of two hidden units, as polynomials")
def _by_signs(s: Values) -> list[bool | None]:
    """lambda_1 > 0 leaves the signs as they are, and under a pattern phi is one slope on each unit."""
    slopes = {"relu": (S.Zero, S.One), "leaky_relu": (S.One / 100, S.One)}[s["phi"]]
    x, u1, u2 = scratch_matrix("x", 1, 2), scratch_matrix("U1", 2, 2), scratch_matrix("U2", 2, 1)
    answers: list[bool | None] = []
    for gate in starmap(diag, product(slopes, repeat=2)):
        left, right = x * (lam1 * u1) * gate * (lam2 * u2), s["factor"] * (x * u1 * gate * u2)
        answers.append(bool((left - right)[0, 0].expand() == 0))
    return answers


@check(Route.MEASURED, "torch, width 16, 25 pairs of powers of two: the same floating-point numbers")
def _by_scaling(s: Values) -> list[bool | None]:
    import torch

    generator = default_rng(13)
    x, u1, u2 = (normal(generator, *shape) for shape in ((6, 16), (16, 64), (64, 16)))
    unit = ffn(x, u1, u2, s["phi"])
    answers: list[bool | None] = []
    for first, second in product((-9, -2, 0, 3, 8), repeat=2):
        scaled = ffn(x, 2.0**first * u1, 2.0**second * u2, s["phi"])
        answers.append(torch.equal(scaled, float(s["factor"].subs({lam1: S(2) ** first, lam2: S(2) ** second})) * unit))
    return answers


def _pulled_out(name: str) -> Part:
    statement = Values.of("phi(x W1) W2 = {factor} * phi(x U1) U2, phi = {phi}", factor=lam1 * lam2, phi=name)
    return Part(
        name=name,
        statement=statement,
        checks=(_by_signs, _by_scaling),
        mutants=(*broken(statement), Mutant(name="gelu", statement=statement.with_(phi="gelu"))),
    )


_S1_13 = Claim(
    id="S1-13",
    kind=Kind.STEP,
    locator=f"{_SECTION}, third equation",
    quote=r"\text{LN}(\underbrace{\boldsymbol{x}_l + \lambda_1 \lambda_2 \phi(\boldsymbol{x}_l \boldsymbol{U}_1)"
    r"\boldsymbol{U}_2/\alpha}_{\text{denoted as }\boldsymbol{z}_{l+1}})",
    summary="phi(x W1) W2 = lambda_1 lambda_2 phi(x U1) U2 for a homogeneous phi",
    uses=("S1-06", "S1-12"),
    parts=(_pulled_out("relu"), _pulled_out("leaky_relu")),
)


# ---------------------------------------------------------------- S1-14: derivatives of z


@check(Route.PROOF, "the chain rule, J from above")
def _ratio_by_product(s: Values) -> list[bool | None]:
    arriving, z = scratch("J", real=True), lam1 * lam2 * scratch("V", real=True) / alpha
    return [algebra.equal((arriving * z.diff(lam1) / (arriving * z.diff(lam2))).cancel(), s["ratio"])]


@check(Route.MEASURED, "autograd through relu and LayerNorm (it takes a homogeneous phi)")
def _ratio_by_autograd(s: Values) -> list[bool | None]:
    answers: list[bool | None] = []
    for (first, second, _), _, (by_first, by_second), _ in derivatives("relu"):
        printed = float(s["ratio"].subs({lam1: first, lam2: second}))
        answers.append(abs(float(by_first / by_second) / printed - 1) < 1e-6)
    return answers


_RATIO = Values.of(ratio=lam2 / lam1)
_S1_14 = Claim(
    id="S1-14",
    kind=Kind.STEP,
    locator=f"{_SECTION}, fourth equation",
    quote=r"\frac{\partial \boldsymbol{z}_{l+1}}{\partial \lambda_1} = \frac{\partial \mathcal{L}}{\partial "
    r"\boldsymbol{x}_{l+1}}\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}\frac{\lambda_2 "
    r"\phi(\boldsymbol{x}_l \boldsymbol{U}_1)\boldsymbol{U}_2}{\alpha}",
    summary="dz/dlambda_1 = lambda_2 phi(x U1) U2/alpha, dz/dlambda_2 = lambda_1 (the same)",
    uses=("S1-11", "S1-13"),
    parts=(
        derivatives_part("the derivatives of z", "relu", (lam1, lam2)),
        Part(
            name="so lambda_1 dL/dlambda_1 = lambda_2 dL/dlambda_2",
            statement=_RATIO,
            checks=(_ratio_by_product, _ratio_by_autograd),
        ),
    ),
)


# ---------------------------------------------------------------- S1-15: orders of the gradients

_LETTERS = (lam1, lam2, alpha)


@check(
    Route.MEASURED,
    "autograd through relu and LayerNorm: the power of a letter in gradient/order at 2^-20 and 2^20 of it, the others "
    "1. It is 0 while lambda_1 lambda_2/alpha is small; beyond that the branch dominates what LayerNorm reads, and the "
    "gradient falls as its inverse square",
)
def _is_bounded(s: Values) -> Answers:
    """gradient/order may fall along a path to the end of any letter, but not rise."""
    import torch

    ((name, order),) = s
    generator = default_rng(150)
    x, head = layer_norm(normal(generator, 12, 4, 24)), normal(generator, 12, 4, 24)
    u1, u2 = gaussian(generator, 12, 24), gaussian(generator, 12, 24)

    def ratio(letter: Expr, value: float) -> float:
        at = dict.fromkeys(_LETTERS, 1.0) | {letter: value}
        first, second = (torch.full((12, 1, 1), at[lam], dtype=x.dtype, requires_grad=True) for lam in (lam1, lam2))
        stream = x + ffn(x, first * u1, second * u2) / at[alpha]
        scale = {"dL/dlambda_1": first, "dL/dlambda_2": second}[name]
        (gradient,) = torch.autograd.grad((head * layer_norm(stream)).sum(), scale)
        return float(gradient.square().mean().sqrt()) / float(order.subs(at))

    holds, numbers = [], {}
    for letter, sense in product(_LETTERS, (-1, 1)):
        near, far = (ratio(letter, 2.0 ** (sense * octaves)) for octaves in (10, 20))
        power = math.log2(far / near) / 10
        holds.append(power < 0.25)
        numbers[f"{letter} {'up' if sense > 0 else 'down'}"] = round(sense * power, 1) + 0.0
    return Answers(holds=holds, numbers=numbers)


@check(Route.PROOF, "the product rule, where dL/dx, dx/dz and phi(x U1) U2 are O(1), as the text says")
def _is_implied(s: Values) -> list[bool | None]:
    """|dL/dx|, |dx/dz| and |V| at bounds of their own: the bound over the order is a number."""
    ((name, order),) = s
    of_loss, of_norm, of_branch = (scratch(name, positive=True) for name in ("c_x", "c_z", "c_V"))
    scale = {"dL/dlambda_1": lam1, "dL/dlambda_2": lam2}[name]
    ratio = of_loss * of_norm * (lam1 * lam2 / alpha * of_branch).diff(scale) / order
    return [not algebra.log_form(ratio).has(*_LETTERS)]


def _order_part(scale: Expr, other: Expr) -> Part:
    name = f"dL/d{scale}"
    statement = Values.of(**{name: other / alpha})
    return Part(
        name=f"{name} = O({other}/alpha)",
        statement=statement,
        checks=(_is_implied, _is_bounded),
        mutants=(
            Mutant(name="the other lambda", statement=statement.with_(**{name: scale / alpha})),
            Mutant(name="alpha^2", statement=statement.with_(**{name: other / alpha**2})),
        ),
    )


_S1_15 = Claim(
    id="S1-15",
    kind=Kind.STEP,
    locator=f"{_SECTION}, last equation",
    quote=r"$$ \frac{\partial \mathcal{L}}{\partial \lambda_1} = \mathcal{O}\left(\frac{\lambda_2}{\alpha}\right),"
    r"\quad \frac{\partial \mathcal{L}}{\partial \lambda_2} = \mathcal{O}\left(\frac{\lambda_1}{\alpha}\right) $$",
    summary="dL/dlambda_1 = O(lambda_2/alpha), dL/dlambda_2 = O(lambda_1/alpha)",
    uses=("S1-10", "S1-14", "S1-16"),
    parts=(_order_part(lam1, lam2), _order_part(lam2, lam1)),
)


# ---------------------------------------------------------------- S1-16: the size of a branch

_ACTIVATIONS = ("relu", "gelu", "swish")


def _orthogonal(generator: Any, count: int, width: int) -> Any:
    """``count`` orthogonal matrices, uniform: the Q of a Gaussian matrix, with the signs of R's diagonal."""
    import torch

    q, r = torch.linalg.qr(normal(generator, count, width, width))
    return q * torch.sign(torch.diagonal(r, dim1=-2, dim2=-1)).unsqueeze(-2)


@check(Route.MEASURED, "U Gaussian and orthogonal: under half a power of the width; mean squares at 96")
def _free_of_width(s: Values) -> Answers:
    order = lambdify(d, s["entry"] ** 2, modules="math")
    holds, numbers = [], {}
    for (kind, draw), name in product((("gaussian", gaussian), ("orthogonal", _orthogonal)), _ACTIVATIONS):
        squares = []
        for width in (24, 96):
            generator = default_rng(width)
            x = layer_norm(normal(generator, 8, 4, width))
            first, second = draw(generator, 8, width), draw(generator, 8, width)
            squares.append(ffn(x, first, second, name).square().mean((1, 2)))
        early, late = squares
        powers = (late / early.mean() * order(24) / order(96)).log() / math.log(4)
        holds.append(interval(powers.tolist()).within(-0.5, 0.5))
        numbers[f"{name}, {kind}"] = shown(float(late.mean()), 2)
    return Answers(holds=holds, num_effective=16 * len(holds), numbers=numbers)


@check(Route.MEANFIELD, "the mean square of an entry is E phi(z)^2, z ~ N(0, 1), whatever the width")
def _by_second_moments(s: Values) -> Answers:
    from depthlaw.theory.moments import Kind, activation, numeric

    squares = {name: numeric(activation(_THEORY_NAMES.get(name, name)), Kind.SECOND, 1.0) for name in _ACTIVATIONS}
    values = ", ".join(f"{name}: {square:.6g}" for name, square in squares.items())
    return Answers(
        holds=[value > 0 and not algebra.log_form(value / s["entry"] ** 2).has(d) for value in squares.values()],
        steps=(f"U_ij of variance 1/d, x of variance 1: E phi(z)^2 = {values}",),
    )


_ENTRY = Values.of(entry=1)
_S1_16 = claim(
    "S1-16",
    kind=Kind.STEP,
    locator=f"{_SECTION}, before the last equation",
    quote=r"since $\boldsymbol{U}_1$ and $\boldsymbol{U}_2$ are both close to orthogonal matrices, "
    r"$\phi(\boldsymbol{x}_l \boldsymbol{U}_1)\boldsymbol{U}_2$ is also $\mathcal{O}(1)$.",
    summary="an entry of phi(x U1) U2 is O(1)",
    statement=_ENTRY,
    checks=(_by_second_moments, _free_of_width),
    mutants=(
        Mutant(name="the root of d", statement=_ENTRY.with_(entry=sqrt(d))),
        Mutant(name="over the root of d", statement=_ENTRY.with_(entry=1 / sqrt(d))),
    ),
)

# ---------------------------------------------------------------- S1-47: which norm trains, which is better

_S1_47 = Claim(
    id="S1-47",
    kind=Kind.REMARK,
    locator="Feedforward Gradients, first sentence; results from the slides of Magneto and, at second hand, DeepNet",
    quote="Many experimental results show that although Pre-Norm is easier to train than Post-Norm, Post-Norm often "
    "yields better final results.",
    summary="Pre-Norm is easier to train than Post-Norm; Post-Norm often ends better",
    parts=(
        ran(
            "printed results: Pre-LN trained where Post-LN diverged (BERT at 1e-3, translation at 18L-18L)",
            (
                (GLUE, "Post-LN", "", "1e-3", DIVERGED),
                (GLUE, "Pre-LN", "", "1e-3", TRAINED),
                (OPUS, "Post-LN", "", "", DIVERGED),
                (OPUS, "Pre-LN", "", "", TRAINED),
            ),
        ),
        won(
            "S1-47",
            "printed results: where both trained, Post-LN ended better (GLUE 85.7 to 84.6, WMT-17 28.1 to 27.0)",
            (
                GLUE.column(AVERAGE).only("Post-LN", "Pre-LN"),
                Column(
                    table="WMT-17",
                    block="6L-6L",
                    name="BLEU",
                    entries=tuple((model, WMT17[model][0], False) for model in ("Post-LN", "Pre-LN")),
                ),
            ),
            model="Post-LN",
        ),
        Part(
            name="training shows it, easier: decoders of 12 layers, 32 wide",
            statement=questions.PRE_EASIER,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.PRE_EASIER.with_reversed()),),
        ),
        trained_only(
            "training shows it, better in the end",
            "where both train, Post-Norm's loss is often lower",
            "training runs of Post-Norm and Pre-Norm over depths, each at its own best rate and to the end",
            "Post-Norm and Pre-Norm trained on language, translation and images over depths from 2 to 32 layers, each "
            "at its own best of a sweep of learning rates with warm-up, until the held-out loss falls no more, 5 seeds "
            "or more: on how many of the tasks Post-Norm's is lower by its interval. The recorded runs end long "
            "before: those of transfer, too, which tunes either at 4 layers",
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_11, _S1_12, _S1_13, _S1_14, _S1_15, _S1_16, _S1_47)
