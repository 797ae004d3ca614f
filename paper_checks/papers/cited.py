"""What the sources cite, and each source's own model of it.

LI-01, LI-02, LI-06: Liu et al., "Understanding the Difficulty of Training Transformers" (Admin), arXiv 2004.08249.

LI-03, LI-04: Xiong et al., "On Layer Normalization in the Transformer Architecture", arXiv 2002.04745. Its network:
blocks of attention and a ReLU FFN of hidden width d, every matrix N(0, 1/d), W^Q = W^K = 0, so attention is the mean of
the tokens times one value matrix; l counts blocks. It has no output matrix; one more N(0, 1/d) matrix leaves every
second moment here as it is.

LI-05: Zhang et al., "Fixup Initialization", arXiv 1901.09321: the gain of the layers inside a branch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sympy import (
    Expr,
    Rational,
    S,
    Symbol,
    exp,
    expand,
    harmonic,
    integrate,
    lambdify,
    limit,
    log,
    oo,
    pi,
    sqrt,
    sympify,
)

from depthlaw.paper_checks.claims.claim import Check, Claim, Evidence, Kind, Mutant, Part, Route, claim
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import GROWTH, Answers, check, derived, order_key, order_of
from depthlaw.paper_checks.routes.intervals import Interval, exponent, interval
from depthlaw.paper_checks.routes.kernel import GROWTH_BY_KERNEL, GROWTH_BY_KERNEL_ANEW
from depthlaw.paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from depthlaw.theory.symbols import L, N, d, l

# ---------------------------------------------------------------- LI-01, LI-02: Admin


def _with_relu(s: Growth) -> Evidence:
    evidence = GROWTH[0].run(s)
    return replace(evidence, detail=f"{evidence.detail}; with gelu it outgrows the order, see S3-10")


def _admin(id_: str, locator: str, scheme: str, order: Expr, share: Expr, each: Expr, *more: Check) -> Claim:
    """A corollary: the update is the sum of beta_ll^2, the share of branch l in its own sublayer's variance.

    share: that sum. each: beta_ll^2, with equal branches. more: routes besides to the true update.
    """

    def closed(s: Values) -> list[bool | None]:
        return [order_key(order_of(share)) == order_key(order_of(s["order"]))]

    def summed(s: Values) -> list[bool | None]:
        term, ratios = lambdify(l, each, modules="math"), []
        for length in second_meanfield.LENGTHS:
            total = math.fsum(term(index) for index in range(1, length + 1))
            ratios.append(math.log(total / float(s["order"].subs(L, length).evalf())))
        return [algebra.settles(ratios)]

    growth = Growth(scheme=scheme, order=order, is_upper=True)
    wrong = {"too small": order / log(L), "another power": order * sqrt(L)}
    return Claim(
        id=id_,
        kind=Kind.RESULT,
        source="admin",
        locator=locator,
        quote=f"Var[F(x_0, W) - F(x_0, W*)] = O({'log N' if order.has(log) else 'N'})",
        summary=f"{scheme}: the update is O({order}) in L sublayers",
        parts=(
            Part(
                name="in its own model",
                statement=Values.of(order=order),
                checks=(
                    check(Route.PROOF, f"sum of beta_ll^2 = {share}, its leading order", closed),
                    check(Route.NUMERIC, f"equal branches: beta_ll^2 = {each}, summed", summed),
                ),
                mutants=tuple(Mutant(name=name, statement=Values.of(order=expr)) for name, expr in wrong.items()),
            ),
            Part(
                name="the true update under SGD with relu, which Admin's networks have",
                statement=growth,
                checks=(Check(route=GROWTH[0].route, run=_with_relu), GROWTH[1], *more),
            ),
        ),
    )


_LI_01 = _admin("LI-01", "Corollary 1", "pre-ln", log(L), harmonic(L + 1) - 1, 1 / (l + 1), GROWTH_BY_KERNEL_ANEW)
_LI_02 = _admin("LI-02", "Corollary 2", "post-ln", L, L / 2, S.Half, STACKS_ON_RECORD, GROWTH_BY_KERNEL_ANEW)
_LI_06 = _admin("LI-06", "Section 4.3", "admin", log(L), harmonic(L + 1) - 1, 1 / (l + 1))
"""Its profile omega_l^2 = 1 + the variances below makes a branch's share 1/(l + 1), as Pre-LN's is."""


# ---------------------------------------------------------------- LI-03: Xiong et al.


@cache
def _relu_share() -> Expr:
    """E relu(z)^2, z standard normal."""
    z = Symbol("z", real=True)
    return integrate(z**2 * exp(-(z**2) / 2), (z, 0, oo)) / sqrt(2 * pi)


def _config(placement: str, num_blocks: int, width: int) -> Any:
    from depthlaw.sims.model import ModelConfig, alternating

    encoder = alternating(2 * num_blocks, gains={"q": 0.0, "k": 0.0})
    return ModelConfig(encoder=encoder, placement=placement, d_model=width, ffn_ratio=1)


_BOUNDS = Values.of(low=(1 + l / 2) * d, high=(1 + 3 * l / 2) * d)


def _is_at_most(first: Expr, second: Expr) -> bool:
    """For all l, d > 0: every coefficient of the difference is at least 0."""
    return all(coefficient >= 0 for coefficient in expand(second - first).as_coefficients_dict().values())


@check(
    Route.PROOF,
    "what a block adds on average, at every width; equal tokens attain the upper bound, and opposite ones the "
    "lower at l = 1",
    steps=lambda: (
        "the branch has mean 0 given what came before, so squares add",
        "FFN: E|relu(u W1) W2|^2 = d/2 for |u|^2 = d; E relu(z)^2 = 1/2",
        "attention: E|ubar W|^2 = |ubar|^2, ubar the mean of n vectors of length sqrt(d): from 0 to d; an "
        "output matrix N(0, 1/d) does not change that",
    ),
)
def _summed(s: Values) -> list[bool | None]:
    low = d + l * _relu_share() * d
    high = low + l * d
    return [_is_at_most(s["low"], low), _is_at_most(high, s["high"])]


@cache
def _squares(kind: str, num_blocks: int) -> list[float]:
    """|x_l|^2/d of real networks after so many blocks, the mean over tokens, by run; four tokens, width 32."""
    import torch

    from depthlaw.sims.ensemble import Ensemble, Member

    runs, width = 24, 32
    model = Ensemble([Member(_config("pre", num_blocks, width), seed) for seed in range(runs)])
    generator = torch.Generator().manual_seed(900)
    x_RBTD = torch.randn((runs, 2, 4, width), generator=generator, dtype=torch.float64)
    if kind == "equal":
        x_RBTD = x_RBTD[:, :, :1].expand(-1, -1, 4, -1)
    if kind == "opposite":
        x_RBTD = torch.cat([x_RBTD[:, :, :2], -x_RBTD[:, :, :2]], dim=2)
    with torch.no_grad():
        stream_RBTD = model.streams(x_RBTD)[2 * num_blocks]
    return stream_RBTD.square().mean((1, 2, 3)).tolist()


@check(Route.MEASURED, "E|x_l|^2/d of real Pre-LN networks with uniform attention")
def _within_bounds(s: Values) -> Answers:
    answers: list[bool | None] = []
    numbers: dict[str, Any] = {}
    for num_blocks in (1, 6):
        low, high = (float(s[name].subs({l: num_blocks, d: 1})) for name in ("low", "high"))
        for kind in ("equal", "independent", "opposite"):
            square = interval(_squares(kind, num_blocks))
            numbers[f"{kind} tokens, l = {num_blocks}"] = f"{square.text} in {low:g} to {high:g}"
            answers.append(square.high >= low and square.low <= high)
    return Answers(holds=answers, numbers=numbers)


_LI_03 = claim(
    "LI-03",
    kind=Kind.STEP,
    source="xiong",
    locator="Lemma 2",
    quote="(1 + l/2) d <= E||x_l||^2 <= (1 + 3l/2) d, Pre-LN, W^Q = W^K = 0",
    summary="Pre-LN with uniform attention: E|x_l|^2 lies between (1 + l/2) d and (1 + 3l/2) d after l blocks",
    statement=_BOUNDS,
    checks=(_summed, _within_bounds),
    mutants=(
        Mutant(name="1 + l", statement=_BOUNDS.with_(high=(1 + l) * d)),
        Mutant(name="1 + l from below", statement=_BOUNDS.with_(low=(1 + l) * d)),
    ),
)


# ---------------------------------------------------------------- LI-04

_ROOT = sqrt(log(d))
_POST = Values.of(
    "{placement}-LN: |dL/dW^(2,L)|_F = O({order}), d the width, L the number of blocks, every entry of dL/dx_L of "
    "order 1",
    placement="post",
    order=d * _ROOT,
)
_PRE = _POST.with_(placement="pre", order=d * _ROOT / sqrt(L))


def _by_moments(s: Values) -> list[bool | None]:
    """|h|^2 |J dL/dx|^2 with |h|^2 = d/2, |dL/dx|^2 = d and J's norm sqrt(d)/|z|, over the printed order squared.

    z is the sum under the last norm: |z|^2 = 3d/2 in Post-LN; between (1 + L/2) d and (1 + 3L/2) d in Pre-LN.
    """
    share = _relu_share()
    squares = {"post": (1 + share,), "pre": (1 + L * share, 1 + L * (1 + share))}[s["placement"]]
    answers: list[bool | None] = []
    for square in squares:
        ratio = share * d**2 / square / s["order"] ** 2
        answers += [limit(ratio.subs(d, 64), L, oo).is_finite, limit(ratio.subs(L, 4), d, oo).is_finite]
    return answers


_BLOCKS = (2, 12)
_WIDTHS = (16, 64)


@cache
def _gradients(placement: str, num_blocks: int, width: int) -> list[float]:
    """|dL/dW^{2,L}|_F by run: 4 independent tokens, dL/dx of the last of them standard normal."""
    from depthlaw.sims.measure import Question, collect
    from depthlaw.sims.update import Task

    question = Question(config=_config(placement, num_blocks, width), task=Task(num_tokens=4), has_layers=True)
    squares = collect(question, range(16))[f"sgd/layer/fc2/{num_blocks}"]  # over d, of a head of length 1
    return [width * math.sqrt(square) for square in squares]


@check(Route.MEASURED, f"real networks of {_BLOCKS} blocks, and of widths {_WIDTHS}")
def _scaling(s: Values) -> Answers:
    """The measured power is not over the printed one, in L at one width and in d at one depth."""

    def is_at_most(power: Interval, order: Expr, letter: Expr, sizes: Sequence[int]) -> bool:
        first, second = (math.log(float(order.subs(letter, size).evalf())) for size in sizes)
        return power.low <= (second - first) / math.log(sizes[1] / sizes[0])

    placement, order = s["placement"], s["order"]
    depth = exponent(*(_gradients(placement, n, 32) for n in _BLOCKS), factor=_BLOCKS[1] / _BLOCKS[0])
    width = exponent(*(_gradients(placement, 4, n) for n in _WIDTHS), factor=_WIDTHS[1] / _WIDTHS[0])
    answers = [is_at_most(depth, order.subs(d, 32), L, _BLOCKS), is_at_most(width, order.subs(L, 4), d, _WIDTHS)]
    return Answers(holds=answers, numbers={"power of L": depth.text, "power of d": width.text})


_LI_04 = Claim(
    id="LI-04",
    kind=Kind.RESULT,
    source="xiong",
    locator="Theorem 1",
    quote="||dL/dW^{2,L}||_F: O(d sqrt(ln d)) for Post-LN, O(d sqrt(ln d / L)) for Pre-LN",
    summary="gradient of the last FFN matrix: O(d sqrt(ln d)) in Post-LN, smaller by sqrt(L) in Pre-LN",
    uses=("LI-03",),
    parts=tuple(
        Part(
            name=f"{statement['placement']}-LN, at initialisation",
            statement=statement,
            checks=(
                check(Route.PROOF, f"second moments at infinite width: {exact}", _by_moments),
                _scaling,
            ),
            mutants=tuple(
                Mutant(name=f"over sqrt({letter})", statement=statement.with_(order=statement["order"] / sqrt(letter)))
                for letter in (L, d)
            ),
        )
        for statement, exact in (
            (_POST, "d/sqrt(3) whatever L, where every entry of dL/dx is of order 1"),
            (_PRE, "between d/sqrt(2 + 3L) and d/sqrt(2 + L)"),
        )
    ),
)


# ---------------------------------------------------------------- LI-05: Fixup

_MATRICES = range(2, 7)
_GAINS = Values.of(**{f"m{m}": L ** Rational(-1, 2 * m - 2) for m in _MATRICES})
_FLAT = Growth(scheme="fixup", order=S.One)


def _rules() -> dict[str, Expr]:
    from depthlaw.theory.rules.solve import solve_rule

    gains = {}
    for m in _MATRICES:
        rule = solve_rule("none", "sgd", "encoder", num_matrices=m, zero_last=True, with_alternatives=False)
        gains[f"m{m}"] = sympify(rule.sides[0].gain).subs(N, L / 2)
    return gains


_LI_05 = Claim(
    id="LI-05",
    kind=Kind.RESULT,
    source="fixup",
    locator="Section 3, rule 2",
    quote="scale the weight layers inside residual branches by L^(-1/(2m-2)), the last layer of a branch at 0",
    summary="branches of m layers, the last at zero: gain L^(-1/(2m-2)) makes one SGD step Theta(eta)",
    parts=(
        Part(
            name="the exponent, m = 2 to 6",
            statement=_GAINS,
            checks=(
                derived("the derived rule for a branch of m matrices, the last at 0", _rules),
                check(
                    Route.ARITHMETIC,
                    "only the last layer has a gradient, the product of the m - 1 others: L times its square is 1",
                    lambda s: [algebra.equal(L * s[f"m{m}"] ** (2 * (m - 1)), S.One) for m in _MATRICES],
                ),
            ),
        ),
        Part(
            name="the true update under SGD, m = 2, relu, does not grow",
            statement=_FLAT,
            checks=(*GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_LI_01, _LI_02, _LI_03, _LI_04, _LI_05, _LI_06)
