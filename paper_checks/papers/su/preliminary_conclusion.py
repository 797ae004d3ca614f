"""Su's article, "Preliminary Conclusion": 2N sublayers, the size of their gradients, alpha and lambda under SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from sympy import Expr, S, log, sympify

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.models import PRINTED
from paper_checks.papers.su.rules import HALF, QUARTER, TABLE, TWO_N, constraint, scaled_gradients, side, solution, why
from paper_checks.papers.su.sublayers import attention, ffn, gaussian, layer_norm, normal, rng
from paper_checks.routes import algebra
from paper_checks.routes.checks import check, derived
from theory.symbols import N
from theory.symbols import init_gain as lam
from theory.symbols import residual_weight as alpha

_SECTION = "Preliminary Conclusion"

# ---------------------------------------------------------------- S1-21, S1-22: the preliminary conclusion


def _sublayers_of_architecture() -> dict[str, Expr]:
    from theory.stack import ARCHITECTURES

    (side,) = ARCHITECTURES["encoder"].sides
    return {"count": side.num_sublayers}


@check(
    Route.ARITHMETIC,
    "self-attentions and FFNs counted in torch.nn.TransformerEncoder of 1, 2 and 3 layers",
    is_direct=True,
)
def _count_modules(s: Values) -> list[bool | None]:
    """torch's own Transformers of 1 to 3 layers: self-attentions and FFNs in them."""
    import torch

    answers: list[bool | None] = []
    for layers in (1, 2, 3):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
        network = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        attentions = sum(isinstance(m, torch.nn.MultiheadAttention) for m in network.modules())
        ffns = sum(name.endswith("linear2") for name, _ in network.named_modules())
        answers.append(algebra.equal(s["count"].subs(N, layers), sympify(attentions + ffns)))
    return answers


_COUNT = Values.of(count=2 * N)
_S1_21 = claim(
    "S1-21",
    kind=Kind.STEP,
    locator=f"{_SECTION}, first paragraph",
    quote=r"a Transformer model with $N$ layers generally means $N$ Self-Attention layers plus $N$ FFN layers, so "
    r"strictly speaking, the number of layers is $2N$.",
    summary="N layers are 2N residual sublayers: one self-attention and one FFN each",
    statement=_COUNT,
    checks=(
        derived("sublayers of an encoder of N layers", _sublayers_of_architecture, route=Route.ARITHMETIC),
        _count_modules,
    ),
    mutants=(*broken(_COUNT), Mutant(name="with cross-attention", statement=_COUNT.with_(count=3 * N))),
)


def _magnitude() -> dict[str, Expr]:
    """Of every matrix on the value path of a branch of two, at one gain."""
    from theory.rules.magnitude import Branch
    from theory.symbols import branch_weight

    branch = Branch()
    first, second = (branch.uniform(g).xreplace({branch_weight: S.One}) for g in branch.gradients)
    if first != second:
        raise ArithmeticError(f"two gradients, {first} and {second}")
    return {"gradient": first}


_EXPONENTS = range(0, 21, 5)


@cache
def _probe_sizes() -> Mapping[str, tuple[float, ...]]:
    """RMS of dL/dlambda over seeds and both matrices of an FFN and of attention's value path, lambda = 2^-e, alpha 2^e.

    By what is varied: the gain at alpha 1, the residual weight at gain 1. Softmax weights are held at their own.
    """
    import torch

    generator = rng(22)
    x, head = layer_norm(normal(generator, 8, 6, 24)), normal(generator, 8, 6, 24)
    u = [gaussian(generator, 8, 24) for _ in range(6)]

    def size(gain: float, weight: float) -> float:
        lams = [torch.full((8, 1, 1), gain, dtype=x.dtype, requires_grad=True) for _ in range(4)]
        w1, w2, v, o = (g * matrix for g, matrix in zip(lams, u[:4], strict=True))
        branches = ffn(x, w1, w2), attention(x, u[4], u[5], v, o)
        loss = torch.stack([(head * layer_norm(x + branch / weight)).sum() for branch in branches]).sum()
        return float(torch.stack(torch.autograd.grad(loss, lams)).square().mean().sqrt())

    return {
        "gain": tuple(size(2.0**-e, 1.0) for e in _EXPONENTS),
        "weight": tuple(size(1.0, 2.0**e) for e in _EXPONENTS),
    }


def _last_power(sizes: tuple[float, ...]) -> float:
    """Of the smallest gains, or of the largest weights."""
    return math.log2(sizes[-1] / sizes[-2]) / (_EXPONENTS[-1] - _EXPONENTS[-2])


@check(
    Route.MEASURED,
    "dL/dlambda by autograd through an FFN and an attention sublayer with LayerNorm: the powers of lambda "
    "and alpha at lambda = 2^-20, at alpha = 2^20",
    is_direct=True,
)
def _probe_slopes(s: Values) -> list[bool | None]:
    """By degrees of the printed order in lambda and in alpha, and of the measured derivative."""
    two = S(2)
    by_gain, by_weight = (
        float(algebra.log_form(s["gradient"].subs(letter, two * letter) / s["gradient"]) / log(2))
        for letter in (lam, alpha)
    )
    sizes = _probe_sizes()
    return [abs(_last_power(sizes["gain"]) + by_gain) < 0.25, abs(_last_power(sizes["weight"]) - by_weight) < 0.25]


_PROBE = Values.of(gradient=lam / alpha)
_S1_22 = claim(
    "S1-22",
    kind=Kind.STEP,
    locator=f"{_SECTION}, first equation",
    quote=r"$$ \frac{\partial \mathcal{L}}{\partial \lambda} = \mathcal{O}\left(\frac{\lambda}{\alpha}\right) $$",
    summary="one lambda for all matrices: every dL/dlambda is O(lambda/alpha)",
    uses=("S1-15", "S1-18", "S1-19"),
    statement=_PROBE,
    checks=(
        derived("the gradient of either matrix of a branch lambda^2/alpha", _magnitude),
        _probe_slopes,
    ),
    mutants=(
        Mutant(name="lambda^2", statement=_PROBE.with_(gradient=lam**2 / alpha)),
        Mutant(name="no alpha", statement=_PROBE.with_(gradient=lam)),
    ),
)


# ---------------------------------------------------------------- S1-23, S1-24: the ratio

_S1_23 = constraint(
    "S1-23",
    "sgd",
    "lambda/alpha = (2N)^(-1/2)",
    TWO_N**-HALF,
    f"{_SECTION}, first paragraph",
    r"we need to adjust the gradient to $\mathcal{O}(1/\sqrt{2N})$. The above equation tells us that this can be "
    r"achieved by setting $\lambda/\alpha=1/\sqrt{2N}$.",
    TWO_N**-QUARTER,
)

_RATIOS = Values.of(ratio=(4 * N) ** -HALF, other=TWO_N**-HALF)
_S1_24 = claim(
    "S1-24",
    kind=Kind.REMARK,
    locator=f"{_SECTION}, first paragraph",
    quote=r"The scaling in the original paper is looser, yielding $\lambda/\alpha = 1/\sqrt{4N}$, which is equivalent "
    "in terms of magnitude.",
    summary="DeepNet's ratio is 1/sqrt(4N), of the order of 1/sqrt(2N)",
    uses=("S1-23", "DN-04"),
    statement=_RATIOS,
    checks=(
        derived(
            "gain over residual weight of the derived DeepNet rule",
            lambda: {"ratio": side("post", "sgd", "deepnet").gain / side("post", "sgd", "deepnet").residual_weight},
        ),
        check(
            Route.ARITHMETIC,
            "beta/alpha as DeepNet prints them; the two ratios differ by a number",
            lambda s: [
                algebra.equal(s["ratio"], PRINTED["encoder"][1] / PRINTED["encoder"][0]),
                not algebra.log_form(s["ratio"] / s["other"]).has(N),
            ],
            is_direct=True,
        ),
    ),
    mutants=(
        *broken(_RATIOS, "ratio"),
        Mutant(name="another order", statement=_RATIOS.with_(ratio=(4 * N) ** -QUARTER)),
    ),
)


# ---------------------------------------------------------------- S1-25 to S1-29: the solutions under SGD


def _member(select: str | None) -> dict[str, Expr]:
    """Of one member of the derived family: alpha, lambda, its gradient and its relative update."""
    rule = side("post", "sgd", select)
    return {
        "alpha": rule.residual_weight,
        "lam": rule.gain,
        "gradient": rule.member.put_into(rule.update_sum.gradient),
        "relative": rule.relative_update_order,
    }


def _by_hand(s: Values) -> list[bool | None]:
    """Gradient lambda/alpha beside the 1 of alpha = lambda = 1, the SGD step in proportion, relative to lambda."""
    gradient = s["lam"] / s["alpha"]
    return [
        algebra.equal(gradient, s["gradient"]),
        algebra.equal(TWO_N * gradient**2, S.One),
        algebra.equal(gradient / s["lam"], s["relative"]),
    ]


def _alternative(id_: str, select: str, statement: Values, locator: str, quote: str, summary: str) -> Claim:
    return claim(
        id_,
        kind=Kind.RESULT,
        locator=f"{_SECTION}, {locator}",
        quote=quote,
        summary=summary,
        uses=("S1-23",),
        statement=statement,
        checks=(
            derived(f"the member {select!r} of the family", lambda: _member(select), steps=why("post", "sgd", select)),
            check(Route.ARITHMETIC, "gradient and relative step by hand", _by_hand, is_direct=True),
        ),
        mutants=(
            Mutant(name="the relative update of the other one", statement=statement.with_(relative=TWO_N**-QUARTER)),
            Mutant(name="the gradient not scaled", statement=statement.with_(gradient=1)),
            Mutant(name="another gain", statement=statement.with_(lam=statement["lam"] * TWO_N**-QUARTER)),
            *broken(statement),
        ),
    )


def _between(s: Values) -> list[bool | None]:
    """low < middle < high as powers of 2N >= 2: the exponents are in that order."""
    names = ("low", "middle", "high")
    powers = [algebra.log_form(s[name]).coeff(log(N)) for name in names]
    pure = [algebra.equal(s[name], TWO_N**power) for name, power in zip(names, powers, strict=True)]
    return [*pure, bool(powers[0] < powers[1] < powers[2])]


_OWN = {"symmetric": TABLE["sgd"], "alpha_one": (S.One, TWO_N**-HALF), "lambda_one": (TWO_N**HALF, S.One)}
"""(alpha, lambda) of his three solutions."""
_CHOSEN = {"low": "lambda_one", "middle": "symmetric", "high": "alpha_one"}


def _of_members(what: str, members: Mapping[str, str]) -> dict[str, Expr]:
    return {name: _member(member.replace("_", "-"))[what] for name, member in members.items()}


# "According to the paper ... lambda = 1/alpha": what DeepNet sets is v^2 + w^2 = 1/alpha^2.
_PRODUCT = Values.of(product=1)
_ATTRIBUTED = Part(
    name="that the original paper sets lambda = 1/alpha",
    statement=_PRODUCT,
    checks=(
        check(
            Route.CITATION,
            "alpha times beta as DeepNet prints them, (2N)^(1/4) and (8N)^(-1/4)",
            lambda s: [algebra.equal(s["product"], PRINTED["encoder"][0] * PRINTED["encoder"][1])],
            is_direct=True,
        ),
        derived(
            "DeepNet's own condition v^2 + w^2 = 1/alpha^2, v = w, in the derived rule",
            lambda: {"product": side("post", "sgd", "deepnet").residual_weight * side("post", "sgd", "deepnet").gain},
        ),
    ),
    mutants=(Mutant(name="half of it", statement=_PRODUCT.with_(product=HALF)),),
    misprint=Amendment(
        statement=_PRODUCT.with_(product=2**-HALF),
        text="DeepNet sets v^2 + w^2 = 1/alpha^2 with v = w = beta, so beta = 1/(sqrt(2) alpha); lambda = 1/alpha is "
        "this article's own choice, the same up to a constant",
        grounds="DeepNet, Section 4 (DN-04)",
    ),
    expected=Verdict.MISPRINT,
)

_S1_25 = solution(
    "S1-25",
    "sgd",
    f"{_SECTION}, second paragraph",
    r"According to the paper, starting from a symmetry perspective, setting $\lambda=1/\alpha$, we can solve for"
    "\n"
    r"$$ \alpha = (2N)^{1/4},\quad \lambda = (2N)^{-1/4} $$",
    ("S1-23", "DN-04"),
    _ATTRIBUTED,
    finding=Finding("Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)", rank=210),
)

_S1_26 = _alternative(
    "S1-26",
    "alpha-one",
    Values.of(alpha=1, lam=TWO_N**-HALF, gradient=TWO_N**-HALF, relative=1),
    "Alternative Solution 1",
    r"$\alpha=1,\lambda=(2N)^{-1/2}$. In this case, the parameter initialization is scaled down to $(2N)^{-1/2}$ "
    r"of its original value, and the gradient is also scaled down to $(2N)^{-1/2}$ of its original value.",
    "alpha = 1: initialisation, gradient and step all times (2N)^(-1/2), the relative update unchanged",
)

_S1_27 = _alternative(
    "S1-27",
    "lambda-one",
    Values.of(alpha=TWO_N**HALF, lam=1, gradient=TWO_N**-HALF, relative=TWO_N**-HALF),
    "Alternative Solution 2",
    r"$\alpha=(2N)^{1/2},\lambda=1$. In this case, the parameter initialization is not scaled down, but the "
    r"gradient is scaled down to $(2N)^{-1/2}$ of its original value.",
    "lambda = 1: gradient and relative update times (2N)^(-1/2)",
)

_RELATIVE = Values.of(low=TWO_N**-HALF, middle=TWO_N**-QUARTER, high=1)
_S1_28 = claim(
    "S1-28",
    kind=Kind.STEP,
    locator=f"{_SECTION}, last paragraph",
    quote=r"It maintains the gradient scaled to $(2N)^{-1/2}$ of its original value while making the initial learning "
    "pace slightly slower, but not too slow, implicitly acting as a Warmup.",
    summary="relative update of the chosen solution (2N)^(-1/4), strictly between those of the alternatives",
    uses=("S1-25", "S1-26", "S1-27"),
    statement=_RELATIVE,
    checks=(
        derived("relative updates of three members of the derived family", lambda: _of_members("relative", _CHOSEN)),
        check(
            Route.ARITHMETIC,
            "exponents of 2N in order, 2N > 1; each is (lambda/alpha)/lambda",
            lambda s: [*_between(s), *(algebra.equal(s[name], 1 / _OWN[kind][0]) for name, kind in _CHOSEN.items())],
            is_direct=True,
        ),
    ),
    mutants=(
        *broken(_RELATIVE),
        Mutant(name="not strictly", statement=_RELATIVE.with_(middle=1)),
        Mutant(name="outside", statement=_RELATIVE.with_(middle=TWO_N ** -(HALF + QUARTER))),
    ),
)

_GRADIENTS = Values.of(symmetric=TWO_N**-HALF, alpha_one=TWO_N**-HALF, lambda_one=TWO_N**-HALF)
_S1_29 = claim(
    "S1-29",
    kind=Kind.STEP,
    locator=f"{_SECTION}, last paragraph",
    quote=r"It maintains the gradient scaled to $(2N)^{-1/2}$ of its original value",
    summary="all three solutions scale the gradient to (2N)^(-1/2)",
    uses=("S1-25", "S1-26", "S1-27"),
    statement=_GRADIENTS,
    checks=(
        derived(
            "gradients of three members of the derived family",
            lambda: _of_members("gradient", {name: name for name in _OWN}),
        ),
        check(
            Route.ARITHMETIC,
            "lambda/alpha of each",
            lambda s: [algebra.equal(value, _OWN[name][1] / _OWN[name][0]) for name, value in s],
            is_direct=True,
        ),
        scaled_gradients(_OWN),
    ),
    mutants=(Mutant(name="one differs", statement=_GRADIENTS.with_(alpha_one=TWO_N**-QUARTER)), *broken(_GRADIENTS)),
)

CLAIMS: tuple[Claim, ...] = (_S1_21, _S1_22, _S1_23, _S1_24, _S1_25, _S1_26, _S1_27, _S1_28, _S1_29)
