"""Su's article, "Preliminary Conclusion": 2N sublayers and their gradients; alpha and lambda of each optimizer.

What all rows of his table share stands here, too: the conditions that they solve. His letters: N layers, 2N residual
branches; lambda the magnitude of a matrix, alpha the weight of the skip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from numpy.random import default_rng
from sympy import Expr, Rational, S, log

from depthlaw.paper_checks.claims.broken import broken
from depthlaw.paper_checks.claims.claim import Amendment, Claim, Finding, Kind, Mutant, Part, Route, Verdict, claim
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.papers.deepnet.models import PRINTED
from depthlaw.paper_checks.papers.su.sublayers import attention, ffn, gaussian, layer_norm, normal
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import check, derived, growth_part
from depthlaw.paper_checks.routes.kernel import kernel_too
from depthlaw.paper_checks.routes.recorded_stacks import recorded_too
from depthlaw.paper_checks.routes.tables.derived import read
from depthlaw.theory.symbols import L, N
from depthlaw.theory.symbols import init_gain as lam
from depthlaw.theory.symbols import residual_weight as alpha

HALF, QUARTER = Rational(1, 2), Rational(1, 4)
TWO_N = 2 * N
OPTIMIZERS = ("sgd", "adam", "lamb")
TARGETS = {"sgd": TWO_N**-HALF, "adam": 1 / TWO_N, "lamb": 1 / TWO_N}
"""What he asks of the gradient's size (of |theta| |g| under LAMB) so that 2N branches sum to O(1)."""
TABLE_TEXTS = {
    "sgd": ("(2*N)**(1/4)", "(2*N)**(-1/4)"),
    "adam": ("(2*N)**(1/2)", "(2*N)**(-1/2)"),
    "lamb": ("1", "(2*N)**(-1/2)"),
}
TABLE = {name: (read(alpha_text), read(lam_text)) for name, (alpha_text, lam_text) in TABLE_TEXTS.items()}
"""(alpha, lambda) of his summary."""


@cache
def _rule(norm: str, optimizer: str, select: str | None) -> Any:
    from depthlaw.theory.rules.solve import solve_rule

    return solve_rule(norm, optimizer, "encoder", select)


def side(norm: str, optimizer: str, select: str | None = None) -> Any:
    """The derived rule of an encoder."""
    return _rule(norm, optimizer, select).sides[0]


def why(norm: str, optimizer: str, select: str | None = None) -> Callable[[], Sequence[str]]:
    """Its derivation, as a check asks for it."""
    return lambda: _rule(norm, optimizer, select).why


def size(optimizer: str, a: Expr, gain: Expr) -> Expr:
    """His magnitudes: the gradient is lambda/alpha; under LAMB the parameter's magnitude lambda comes with it."""
    return gain**2 / a if optimizer == "lamb" else gain / a


# ---------------------------------------------------------------- claims of each optimizer


def constraint(id_: str, optimizer: str, text: str, locator: str, quote: str) -> Claim:
    """The ratio lambda/alpha, ``text`` in words, that keeps the update of SGD or Adam from growing with N."""

    def family(s: Values) -> list[bool | None]:
        return [algebra.equal(side("post", optimizer).family.lhs.xreplace({lam: s["ratio"] * alpha}), S.One)]

    def summed(s: Values) -> list[bool | None]:
        return [algebra.equal(TWO_N * s["ratio"] ** (2 if optimizer == "sgd" else 1), S.One)]

    statement = Values.of(ratio=TARGETS[optimizer])
    return claim(
        id_,
        kind=Kind.STEP,
        locator=locator,
        quote=quote,
        summary=f"under {optimizer} the number of layers cancels where {text}",
        uses=("S1-22", {"sgd": "S1-05", "adam": "S1-31"}[optimizer]),
        statement=statement,
        checks=(
            check(Route.PROOF, f"the derived family under {optimizer}", family, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, "the sum over 2N branches of what each changes is 1", summed),
        ),
    )


def growth_by_four(name: str, statement: Growth, wrong: Expr | None = None) -> Part:
    """The update of a network against a printed order, by networks on record and at infinite width besides."""
    return kernel_too(recorded_too(growth_part(name, statement, wrong=wrong)))


def flat(scheme: str, optimizer: str, activation: str = "relu", name: str = "") -> Part:
    """The true update of a network with these gains does not grow with depth."""
    statement = Growth(scheme=scheme, optimizer=optimizer, activation=activation, order=S.One)
    part = growth_by_four if activation == "relu" else growth_part
    return part(name or f"the true update does not grow, {activation}", statement, wrong=log(L))


def solution(
    id_: str, optimizer: str, locator: str, quote: str, uses: tuple[str, ...], *more: Part, **rest: Any
) -> Claim:
    """alpha and lambda for one optimizer, solved; and the true update of the network that has them."""
    a, gain = TABLE[optimizer]
    statement = Values.of(alpha=a, lam=gain)
    chosen = "the symmetric member" if optimizer != "lamb" else "the member alpha = 1"

    def from_rule() -> dict[str, Expr]:
        derived_side = side("post", optimizer)
        return {"alpha": derived_side.residual_weight, "lam": derived_side.gain}

    def by_hand(s: Values) -> list[bool | None]:
        chosen = s["alpha"] if optimizer == "lamb" else s["alpha"] * s["lam"]
        return [algebra.equal(size(optimizer, s["alpha"], s["lam"]), TARGETS[optimizer]), algebra.equal(chosen, S.One)]

    solved = Part(
        name="alpha and lambda",
        statement=statement,
        checks=(
            derived(f"{chosen} of the derived family", from_rule, steps=why("post", optimizer)),
            check(Route.ARITHMETIC, f"his condition and {chosen}, put in", by_hand),
        ),
    )
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        locator=locator,
        quote=quote,
        summary="under {} alpha = {}, lambda = {}".format(optimizer, *TABLE_TEXTS[optimizer]),
        uses=uses,
        parts=(solved, *more, flat(f"su-{optimizer}", optimizer), flat(f"su-{optimizer}", optimizer, "gelu")),
        **rest,
    )


_SECTION = "Preliminary Conclusion"

# ---------------------------------------------------------------- S1-21, S1-22: the preliminary conclusion


@check(Route.ARITHMETIC, "attentions and FFNs of torch.nn.TransformerEncoder, 1, 2 and 3 layers")
def _count_modules(s: Values) -> list[bool | None]:
    import torch

    answers: list[bool | None] = []
    for layers in (1, 2, 3):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
        network = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        attentions = sum(isinstance(module, torch.nn.MultiheadAttention) for module in network.modules())
        ffns = sum(name.endswith("linear2") for name, _ in network.named_modules())
        answers.append(bool(s["count"].subs(N, layers) == attentions + ffns))
    return answers


def _sublayers() -> dict[str, Expr]:
    from depthlaw.theory.stack import ARCHITECTURES

    return {"count": ARCHITECTURES["encoder"].sides[0].num_sublayers}


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
        derived("sublayers of an encoder of N layers", _sublayers, route=Route.ARITHMETIC),
        _count_modules,
    ),
)


def _magnitude() -> dict[str, Expr]:
    """Of every matrix on the value path of a branch of two, at one gain."""
    from depthlaw.theory.rules.magnitude import Branch
    from depthlaw.theory.symbols import branch_weight

    branch = Branch()
    first, second = (branch.uniform(g).xreplace({branch_weight: S.One}) for g in branch.gradients)
    if first != second:
        raise ArithmeticError(f"two gradients, {first} and {second}")
    return {"gradient": first}


@check(Route.MEASURED, "autograd through an FFN and attention: powers at lambda 2^-20 and alpha 2^20")
def _probe_slopes(s: Values) -> list[bool | None]:
    import torch

    generator = default_rng(22)
    x, head = layer_norm(normal(generator, 8, 6, 24)), normal(generator, 8, 6, 24)
    u = [gaussian(generator, 8, 24) for _ in range(6)]

    def ratio(gain: float, weight: float) -> float:
        """RMS of dL/dlambda, both matrices of an FFN and of attention's value path, over the printed order."""
        lams = [torch.full((8, 1, 1), gain, dtype=x.dtype, requires_grad=True) for _ in range(4)]
        w1, w2, v, o = (g * matrix for g, matrix in zip(lams, u[:4], strict=True))
        branches = ffn(x, w1, w2), attention(x, u[4], u[5], v, o)
        loss = torch.stack([(head * layer_norm(x + branch / weight)).sum() for branch in branches]).sum()
        size = float(torch.stack(torch.autograd.grad(loss, lams)).square().mean().sqrt())
        return size / float(s["gradient"].subs({lam: gain, alpha: weight}))

    ends = (ratio(2.0**-15, 1.0), ratio(2.0**-20, 1.0)), (ratio(1.0, 2.0**15), ratio(1.0, 2.0**20))
    return [abs(math.log2(far / near)) / 5 < 0.25 for near, far in ends]


_PROBE = Values.of(gradient=lam / alpha)
_S1_22 = claim(
    "S1-22",
    kind=Kind.STEP,
    locator=f"{_SECTION}, first equation",
    quote=r"$$ \frac{\partial \mathcal{L}}{\partial \lambda} = \mathcal{O}\left(\frac{\lambda}{\alpha}\right) $$",
    summary="one lambda for all matrices: every dL/dlambda is O(lambda/alpha)",
    uses=("S1-15", "S1-18", "S1-19"),
    statement=_PROBE,
    checks=(derived("the gradient of either matrix of a branch lambda^2/alpha", _magnitude), _probe_slopes),
)


# ---------------------------------------------------------------- S1-23, S1-24: the ratio

_S1_23 = constraint(
    "S1-23",
    "sgd",
    "lambda/alpha = (2N)^(-1/2)",
    f"{_SECTION}, first paragraph",
    r"we need to adjust the gradient to $\mathcal{O}(1/\sqrt{2N})$. The above equation tells us that this can be "
    r"achieved by setting $\lambda/\alpha=1/\sqrt{2N}$.",
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
        ),
    ),
    mutants=broken(_RATIOS, "ratio"),
)


# ---------------------------------------------------------------- S1-25 to S1-29: the solutions under SGD


def _member(select: str) -> dict[str, Expr]:
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
            check(Route.ARITHMETIC, "gradient and relative step by hand", _by_hand),
        ),
    )


_OWN = {"symmetric": TABLE["sgd"], "alpha_one": (S.One, TWO_N**-HALF), "lambda_one": (TWO_N**HALF, S.One)}
"""(alpha, lambda) of his three solutions."""
_CHOSEN = {"low": "lambda_one", "middle": "symmetric", "high": "alpha_one"}
"""The three by their relative update."""


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


@check(Route.ARITHMETIC, "exponents of 2N in order, 2N > 1; each is (lambda/alpha)/lambda")
def _between(s: Values) -> list[bool | None]:
    powers = [algebra.log_form(value).coeff(log(N)) for _, value in s]
    pure = [algebra.equal(value, TWO_N**power) for (_, value), power in zip(s, powers, strict=True)]
    as_chosen = [algebra.equal(s[name], 1 / _OWN[solution][0]) for name, solution in _CHOSEN.items()]
    return [*pure, bool(powers[0] < powers[1] < powers[2]), *as_chosen]


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
        _between,
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
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_21, _S1_22, _S1_23, _S1_24, _S1_25, _S1_26, _S1_27, _S1_28, _S1_29)
