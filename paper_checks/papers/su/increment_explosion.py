"""Su's article, title, introduction and "Increment Explosion": GPT-3's size, one step's effect, deep models.

N layers of K matrices each; g the gradient, eta the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
from sympy import Expr, S, expand, lambdify, sqrt

from depthlaw.paper_checks.claims.broken import broken
from depthlaw.paper_checks.claims.claim import Check, Claim, Kind, Mutant, Part, Route, claim
from depthlaw.paper_checks.claims.statements import Growth, Values
from depthlaw.paper_checks.experiments.warmup import EDGE
from depthlaw.paper_checks.papers.deepnet.abstract import (
    DIVERGED,
    THOUSAND,
    THOUSAND_MUTANTS,
    WMT17,
    WMT17_DEPTHS,
    layers_counted,
)
from depthlaw.paper_checks.papers.magneto.experiments import OPUS
from depthlaw.paper_checks.papers.su.preliminary_conclusion import growth_by_four
from depthlaw.paper_checks.papers.su.sublayers import ROUNDING, shown
from depthlaw.paper_checks.routes import algebra, second_meanfield
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import interval
from depthlaw.paper_checks.routes.search import search
from depthlaw.paper_checks.routes.tables.derived import l1_g, norm_g, read_update
from depthlaw.paper_checks.routes.tables.parameter_counts import Count, counted, to_rounding
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import BY_TRAINING
from depthlaw.theory.symbols import L, N, d, eta, scratch

_FIRST_PARAGRAPH = "first paragraph"

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
    locator=_FIRST_PARAGRAPH,
    quote="although GPT-3 has hundreds of billions of parameters, it’s only a 96-layer Transformer model",
    summary="GPT-3: 96 layers (of width 12,288) are 1.7 hundred billion parameters",
    parts=(
        Part(
            name="hundreds of billions, as an order of magnitude",
            statement=_GPT3,
            checks=(counted,),
            mutants=(
                Mutant(name="GPT-2's 48 layers of width 1,600", statement=_GPT3.with_(stacks=((48, 1),), width=1600)),
            ),
        ),
        Part(
            name="96 layers give the published 175 billion",
            statement=_GPT3_PUBLISHED,
            checks=(counted,),
            mutants=(Mutant(name="95 layers", statement=_GPT3_PUBLISHED.with_(stacks=((95, 1),))),),
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


@check(Route.PROOF, "operations over parameters are 2 + n/(3d), n tokens: 2 but for attention's scores")
def _per_parameter(s: Values) -> list[bool | None]:
    ratio = (s["operations"] / s["parameters"]).expand()
    short = ratio.subs(_n, 0)
    return [bool(short.is_number), ratio.free_symbols <= {_n, d}, (ratio - short).is_nonnegative]


@check(
    Route.NUMERIC,
    "wide over narrow at equal parameters, multiply-adds counted matrix by matrix: 0.9 or more. The models of "
    "the article's last paragraph are not of equal size: there the wide one costs 3.8 times as much",
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
    locator=_FIRST_PARAGRAPH,
    quote="a “wide and shallow” model doesn’t necessarily require much less computational power than a “narrow and "
    "deep” one",
    summary="at equal parameters a wide, shallow model need not take much less compute than a narrow, deep one",
    statement=_COST,
    checks=(_per_parameter, _at_shapes),
)

# ---------------------------------------------------------------- S1-50: 1,000 layers

_S1_50 = claim(
    "S1-50",
    kind=Kind.REMARK,
    locator="title, and second paragraph",
    quote="ultimately succeeding in training a 1000-layer Transformer model",
    summary="DeepNet's 1,000 layers: 500 encoder and 500 decoder layers, 2,500 sublayers",
    statement=THOUSAND,
    checks=(layers_counted,),
    mutants=THOUSAND_MUTANTS,
)


K = scratch("K", integer=True, positive=True)
"""Matrices of one layer."""
_SECTION = "Increment Explosion"
_GRAD = r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})"


# ---------------------------------------------------------------- S1-01, S1-02: one step

_RATES = (1e-3, 1e-4)


@cache
def _one_step(optimizer: str, activation: str = "gelu") -> tuple[Mapping[str, np.ndarray], ...]:
    """One step of the real optimizer on 8 small Post-LN Transformers with a cross-entropy, at each of ``_RATES``.

    By quantity, a number for each network. loss: its change. first_order: <gradient, step>. norm_g, l1_g: of the
    gradient of everything that trains.
    """
    import torch

    from depthlaw.sims.ensemble import Ensemble, Member
    from depthlaw.sims.model import ModelConfig, alternating
    from depthlaw.sims.update import Task, draw_inputs, finite_changes, first_order, real_step

    task, seeds = Task(num_tokens=5, readout="sum", objective="ce", num_classes=12), range(8)
    config = task.on(ModelConfig(encoder=alternating(4), d_model=12, ffn_ratio=1, activation=activation))
    model = Ensemble([Member(config, seed) for seed in seeds])
    inputs = draw_inputs(config, task, seeds, torch.float64, "cpu")
    gradients = first_order(model, inputs, task, ["sgd"], keeps_steps=True).steps["sgd"]

    def summed(entries: Iterable[Any]) -> Any:
        return torch.stack([by_matrix.flatten(1).sum(1) for by_matrix in entries]).sum(0)

    norm_g = summed(grad.square() for grad in gradients.values()).sqrt()
    l1_g = summed(grad.abs() for grad in gradients.values())
    rows = []
    for rate in _RATES:
        step = real_step(model, gradients, optimizer, rate)
        loss = finite_changes(model, inputs, task, step, torch.full_like(norm_g, rate))["loss"]
        along = -rate * summed(gradients[name] * step[name] for name in gradients)
        numbers = {"loss": loss, "first_order": along, "norm_g": norm_g, "l1_g": l1_g}
        rows.append({name: values.numpy() for name, values in numbers.items()})
    return tuple(rows)


def _powers_of_the_rate(rows: Sequence[Mapping[str, np.ndarray]], changes: Iterable[np.ndarray]) -> list[float]:
    """By network, the power of the rate in what is left of the loss's change beside these, at a rate and a tenth."""
    far, near = (np.abs(row["loss"] - change) for row, change in zip(rows, changes, strict=True))
    return np.log10(far / near).tolist()


t, slope = scratch("t", positive=True), scratch("<grad L, delta>", real=True)


@check(Route.PROOF, "a loss with free Taylor coefficients: all powers of t below the remainder vanish")
def _taylor(s: Values) -> list[bool | None]:
    x, y, a, b = (scratch(name, real=True) for name in "xyab")
    powers = [(i, j) for i in range(5) for j in range(5 - i)]
    loss: Expr = sum((scratch(f"c_{i}{j}", real=True) * x**i * y**j for i, j in powers), S.Zero)
    moved = loss.subs({x: x + t * a, y: y + t * b}, simultaneous=True)
    rest = expand(moved - loss - s["change"].subs(slope, loss.diff(x) * a + loss.diff(y) * b))
    return [expand(rest.coeff(t, i)) == 0 for i in range(int(s["remainder"]))]


@check(Route.MEASURED, "real Transformers, 8 seeds each: power of the learning rate in the rest")
def _remainder_measured(s: Values) -> Answers:
    change, power = lambdify((t, slope), s["change"], modules="numpy"), float(s["remainder"])
    holds, numbers = [], {}
    for optimizer, activation in (("sgd", "gelu"), ("sgd", "relu"), ("adam", "gelu")):
        rows = _one_step(optimizer, activation)
        powers = _powers_of_the_rate(rows, (change(1.0, row["first_order"]) for row in rows))
        holds.append(interval(powers).within(power - 0.5, power + 0.5))
        numbers[f"{activation}, the step of {optimizer}"] = shown(sum(powers) / len(powers))
    return Answers(holds=holds, num_effective=8 * len(holds), numbers=numbers)


_FIRST = Values.of("L(theta + t delta) - L(theta) = {change} + O(t^{remainder})", change=t * slope, remainder=2)
_S1_01 = claim(
    "S1-01",
    kind=Kind.STEP,
    locator=f"{_SECTION}, first equation",
    quote=r"$$ \Delta\mathcal{L} = \mathcal{L}(\boldsymbol{\theta}+\Delta\boldsymbol{\theta}) - "
    r"\mathcal{L}(\boldsymbol{\theta}) \approx \langle" + _GRAD + r",\Delta\boldsymbol{\theta}\rangle $$",
    summary="to first order the loss changes by <gradient, step>, the rest being of second order",
    statement=_FIRST,
    checks=(_taylor, _remainder_measured),
    mutants=(*broken(_FIRST, "change"), Mutant(name="exact to second order", statement=_FIRST.with_(remainder=3))),
)


def loss_change_checks(optimizer: str) -> tuple[Check, ...]:
    """The statement's ``change`` is that of the loss by one step of the optimizer, to first order."""

    def published(s: Values) -> list[bool | None]:
        from depthlaw.theory.optimizers import optimizer as named

        return [bool((s["change"] / read_update(named(optimizer).loss_change_text)).cancel() == 1)]

    def measured(s: Values) -> Answers:
        change, rows = lambdify((eta, norm_g, l1_g), s["change"], modules="numpy"), _one_step(optimizer)
        printed = [change(rate, row["norm_g"], row["l1_g"]) for rate, row in zip(_RATES, rows, strict=True)]
        powers = _powers_of_the_rate(rows, printed)
        holds = [bool(np.allclose(rows[0]["first_order"], printed[0], rtol=1e-6, atol=0.0))]
        mean = shown(sum(powers) / len(powers))
        return Answers(holds=[*holds, interval(powers).within(1.5, 2.5)], num_effective=8, numbers={"power": mean})

    return (
        check(Route.PROOF, f"<g, step> of {optimizer}'s published update map, reduced symbolically", published),
        check(
            Route.MEASURED,
            f"one step of torch.optim's {optimizer} on real Transformers: <g, step> is the printed change; the loss's "
            "own differs from it by a power of the learning rate, 2",
            measured,
        ),
    )


_SGD = Values.of(change=-eta * norm_g**2)
_S1_02 = claim(
    "S1-02",
    kind=Kind.STEP,
    locator="Increment Explosion, after the first equation",
    quote=r"For SGD, we have $\Delta\boldsymbol{\theta}=-\eta " + _GRAD + r"$, so $\Delta\mathcal{L} \approx "
    r"-\eta\Vert" + _GRAD + r"\Vert^2$.",
    summary="one step of SGD changes the loss by -eta ||g||^2 to first order",
    uses=("S1-01",),
    statement=_SGD,
    checks=loss_change_checks("sgd"),
)


# ---------------------------------------------------------------- S1-03 to S1-05: N layers of K matrices


@check(Route.PROOF, "N K gradients at the bound: their sum of squares is of the printed order")
def _attained(s: Values) -> list[bool | None]:
    c = scratch("c", positive=True)
    return [not algebra.log_form(eta * N * K * (c * s["gradient"]) ** 2 / s["change"]).has(N, K, eta)]


@check(Route.PROPERTY, "any gradients within the bound: the sum of squares is within the order")
def _never_exceeded(s: Values) -> Answers:
    from hypothesis import strategies as st

    sizes = st.tuples(st.integers(1, 5), st.integers(1, 4))
    ninths = st.integers(0, 9)
    cases = sizes.flatmap(lambda nk: st.tuples(st.just(nk), st.tuples(*[ninths] * (nk[0] * nk[1]))))
    bound = lambdify((N, K), s["gradient"] ** 2, modules="math")
    most = lambdify((N, K), s["change"].subs(eta, 1), modules="math")

    def holds(case: tuple[tuple[int, int], tuple[int, ...]]) -> bool:
        size, shares = case
        return sum(i**2 for i in shares) / 81 * bound(*size) <= most(*size) * (1 + ROUNDING)

    searched = search(cases, holds, max_examples=60)
    return Answers(holds=[searched.found is None], num_effective=searched.num_effective)


_SUM = "gradients O({gradient}) make the loss change by O({change})"
_CHANGE = Values.of(_SUM, gradient=1, change=eta * N * K)
_S1_03 = Claim(
    id="S1-03",
    kind=Kind.STEP,
    locator=f"{_SECTION}, second paragraph",
    quote=r"With Xavier initialization and various Normalization methods, we can make the gradient magnitude of each "
    r"parameter matrix $\mathcal{O}(1)$. Therefore, $\Delta\mathcal{L}=\mathcal{O}(\eta NK)$. This means that the "
    r"update amount at each step of the model is proportional to the model depth $N$.",
    summary="N layers of K matrices whose gradients are O(1), as one can make them: the loss changes by O(eta N K); in "
    "one such network, vanilla Post-LN with relu at gain 1, in proportion to depth",
    uses=("S1-02",),
    parts=(
        Part(
            name="gradients O(1) imply O(eta N K)",
            statement=_CHANGE,
            checks=(_attained, _never_exceeded),
            mutants=(Mutant(name="without K", statement=_CHANGE.with_(change=eta * N)),),
        ),
        # "We can make" is read as: one network does. With gelu at gain 1 gradients grow exponentially (S3-10); in
        # Pre-LN the sum is of order log N, which is O(N) but not in proportion to N.
        growth_by_four(
            "that one can make them so: vanilla Post-LN, relu, gain 1, in proportion to depth",
            Growth(scheme="post-ln", order=L),
        ),
    ),
)


@check(
    Route.PROOF,
    "put into eta N K: no N is left. So it is where the sum is in proportion to N (S1-03: Post-LN, relu, gain "
    "1); where gradients grow exponentially with depth it does not, and where the sum is log N it is too small",
)
def _cancels(s: Values) -> list[bool | None]:
    return [not algebra.log_form(_CHANGE["change"].subs(eta, s["rate"])).has(N)]


@check(Route.NUMERIC, "times its update summed at 10^2, 10^4, 10^6 sublayers: settles")
def _times_summed_update(s: Values) -> list[bool | None]:
    rate = lambdify(L, s["rate"].subs({eta: 1, N: L / 2}), modules="math")
    ratios = second_meanfield.log_ratios("post-ln", lambda length: -math.log(rate(length)), "relu", "layernorm", "sgd")
    return [algebra.settles(ratios)]


_RATE = Values.of(rate=eta / N)
_S1_04 = claim(
    "S1-04",
    kind=Kind.RESULT,
    locator=f"{_SECTION}, last paragraph",
    quote=r"use a smaller learning rate (not exceeding $\eta/N$ magnitude) for training in the initial stage",
    summary="a learning rate of at most eta/N cancels the number of layers",
    uses=("S1-03",),
    statement=_RATE,
    checks=(_cancels, _times_summed_update),
    mutants=(Mutant(name="the root of N", statement=_RATE.with_(rate=eta / sqrt(N))),),
)


_SCALED = Values.of(_SUM, gradient=1 / sqrt(N), change=eta * K)
_S1_05 = claim(
    "S1-05",
    kind=Kind.STEP,
    locator=f"{_SECTION}, last paragraph",
    quote=r"adjust the initialization scheme so that the gradients of the parameters are of "
    r"$\mathcal{O}(1/\sqrt{N})$ magnitude, which automatically offsets the effect of model depth.",
    summary="gradients O(1/sqrt N) make the loss change by O(eta K), whatever the depth",
    uses=("S1-02",),
    statement=_SCALED,
    checks=(_attained, _never_exceeded),
    mutants=(Mutant(name="1/N^(1/4)", statement=_SCALED.with_(gradient=N ** (-S.One / 4))),),
)


# ---------------------------------------------------------------- S1-48: what becomes of deep models

_DEPTHS = Values.of(**{f"{n}L-{n}L": "trained" if n == 6 else DIVERGED for n in WMT17_DEPTHS})


@check(Route.ARITHMETIC, "every depth that failed is larger than all that trained")
def _once_and_for_all(s: Values) -> list[bool | None]:
    outcomes = [outcome for _, outcome in s]
    trained = outcomes.count("trained")
    return [0 < trained < len(outcomes) and set(outcomes[:trained]) == {"trained"}]


@check(
    Route.CITATION,
    "6L-6L, 50L-50L and 100L-100L as reported of DeepNet's WMT-17 baselines, 18L-18L by OPUS-100 on "
    "the slides of Magneto alone: the WMT-17 table is at second hand, several rows of baselines in it "
    "are doubtful, and DeepNet's text calls Post-LN unstable at 50L-50L",
)
def _as_reported(s: Values) -> list[bool | None]:
    reported = dict(zip(WMT17_DEPTHS, (score == DIVERGED for score in WMT17["Post-LN"]), strict=True))
    (post,) = (row for row in OPUS.rows if row.model == "Post-LN")
    reported[18] = post.has_diverged
    return [(s[f"{n}L-{n}L"] == DIVERGED) is has_diverged for n, has_diverged in reported.items()]


_S1_48 = Claim(
    id="S1-48",
    kind=Kind.REMARK,
    locator="Increment Explosion, third paragraph; results from the slides of Magneto and, at second hand, DeepNet",
    quote="If the model is deeper, the update amount is larger, which implies that the model is more likely to enter a "
    "less optimal local minimum in the initial stage, leading to training stagnation or even collapse.",
    summary="the deeper a vanilla model, the more likely it gets stuck or collapses; warm-up helps",
    parts=(
        Part(
            name="printed results: Post-LN trained at 6L-6L, and diverged from 18L-18L on",
            statement=_DEPTHS,
            checks=(_once_and_for_all, _as_reported),
            mutants=(Mutant(name="50L-50L trained", statement=_DEPTHS.with_(**{"50L-50L": "trained"})),),
        ),
        Part(
            name="training shows it: at 18L-18L fewer seeds train than at 2L-2L, source lines to bytecode, 32 wide",
            statement=questions.DEEPER,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.DEEPER.with_swapped()),),
        ),
        Part(
            name="training shows that warm-up helps: at 9L-9L more seeds of Post-LN train with it than without",
            statement=questions.WARMED[EDGE],
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.WARMED[EDGE].with_swapped()),),
        ),
        Part(
            name="it is not the smaller sum of the rates: more train with it than at a lower rate of the same sum",
            statement=questions.WARMED_NOT_SLOWED,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.WARMED_NOT_SLOWED.with_swapped()),),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_42, _S1_43, _S1_50, _S1_01, _S1_02, _S1_03, _S1_04, _S1_05, _S1_48)
