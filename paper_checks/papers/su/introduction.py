"""Su's article, title and introduction: the size of GPT-3, wide and narrow models, 1,000 layers."""

from __future__ import annotations

from decimal import Decimal

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.abstract import LAYER_CHECKS, THOUSAND, THOUSAND_MUTANTS
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.parameter_counts import COUNT_CHECKS, Count, to_rounding
from theory.symbols import N, d, scratch

_LOCATOR = "first paragraph"

# ---------------------------------------------------------------- S1-42: GPT-3

_GPT3 = Count(
    stacks=((96, 1),),
    width=12288,
    rows=50257,
    low=10**11,
    high=10**12,
    words="hundreds of billions, read as an order of magnitude: from 10^11 up to 10^12",
)
_LOW, _HIGH = to_rounding("175", 10**9)
_GPT3_PUBLISHED = _GPT3.with_(low=_LOW, high=_HIGH, words="the published 175 billion, to rounding")

_S1_42 = Claim(
    id="S1-42",
    kind=Kind.REMARK,
    locator=_LOCATOR,
    quote="although GPT-3 has hundreds of billions of parameters, it’s only a 96-layer Transformer model",
    summary="GPT-3: 96 layers (of width 12,288) are 1.7 hundred billion parameters",
    parts=(
        Part(
            name="hundreds of billions, as an order of magnitude",
            statement=_GPT3,
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="GPT-2's 48 layers of width 1,600", statement=_GPT3.with_(stacks=((48, 1),), width=1600)),
                Mutant(name="a tenth of the layers", statement=_GPT3.with_(stacks=((9, 1),))),
            ),
        ),
        Part(
            name="96 layers give the published 175 billion",
            statement=_GPT3_PUBLISHED,
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="95 layers", statement=_GPT3_PUBLISHED.with_(stacks=((95, 1),))),
                Mutant(name="cross-attention", statement=_GPT3_PUBLISHED.with_(stacks=((96, 2),))),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S1-43: wide and shallow, narrow and deep

_n = scratch("n", positive=True)
"""Tokens of context."""
_COST = Values.of(parameters=12 * N * d**2, operations=24 * N * d**2 + 4 * _n * N * d)
"""Per token, forward: two operations a multiply-add; 4 n d a layer for scores and their weighted sum."""
_PAIRS = (((96, 12288), (384, 6144), 2048), ((24, 4096), (96, 2048), 512), ((24, 4096), (384, 1024), 512))
"""Wide and narrow of equal parameters, (layers, width), and the context: GPT-3's shape, and M2M's width."""


@check(
    Route.PROOF,
    "operations over parameters are 2 + n/(3d): 2 whatever N and d, but for scores of attention (n tokens)",
    is_direct=True,
)
def _per_parameter(s: Values) -> list[bool | None]:
    ratio = (s["operations"] / s["parameters"]).expand()
    short = ratio.subs(_n, 0)
    return [bool(short.is_number), ratio.free_symbols <= {_n, d}, (ratio - short).is_nonnegative]


@check(
    Route.NUMERIC,
    "wide over narrow at equal parameters, multiply-adds counted matrix by matrix: 0.9 or more. The models of "
    "the article's last paragraph are not of equal size: there the wide one costs 3.8 times as much",
    is_direct=True,
)
def _at_shapes(s: Values) -> Answers:
    holds: list[bool | None] = []
    numbers = {}
    for wide, narrow, tokens in _PAIRS:
        costs = []
        for layers, width in (wide, narrow):
            matrices = 4 * [width * width] + 2 * [4 * width * width]
            multiply_adds = layers * (sum(matrices) + 2 * tokens * width)
            at = {N: layers, d: width, _n: tokens}
            costs.append(int(s["operations"].subs(at)))
            holds += [costs[-1] == 2 * multiply_adds, int(s["parameters"].subs(at)) == layers * sum(matrices)]
        ratio = Decimal(costs[0]) / Decimal(costs[1])
        holds += [wide[0] * wide[1] ** 2 == narrow[0] * narrow[1] ** 2, ratio >= Decimal("0.9")]
        numbers[f"{wide[0]} x {wide[1]} over {narrow[0]} x {narrow[1]}, {tokens} tokens"] = f"{ratio:.4f}"
    return Answers(holds=holds, numbers=numbers)


_S1_43 = claim(
    "S1-43",
    kind=Kind.REMARK,
    locator=_LOCATOR,
    quote="a “wide and shallow” model doesn’t necessarily require much less computational power than a “narrow and "
    "deep” one",
    summary="at equal parameters a wide, shallow model need not take much less compute than a narrow, deep one",
    statement=_COST,
    checks=(_per_parameter, _at_shapes),
    mutants=broken(_COST),
)

# ---------------------------------------------------------------- S1-50: 1,000 layers

_S1_50 = claim(
    "S1-50",
    kind=Kind.REMARK,
    locator="title, and second paragraph",
    quote="ultimately succeeding in training a 1000-layer Transformer model",
    summary="DeepNet's 1,000 layers: 500 encoder and 500 decoder layers, 2,500 sublayers",
    statement=THOUSAND,
    checks=LAYER_CHECKS,
    mutants=THOUSAND_MUTANTS,
)

CLAIMS: tuple[Claim, ...] = (_S1_42, _S1_43, _S1_50)
