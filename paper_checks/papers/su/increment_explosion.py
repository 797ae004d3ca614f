"""Su's article, "Increment Explosion": by how much one step changes the loss, and what becomes of deep models.

N layers of K matrices each; g the gradient, eta the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from sympy import Expr, S, expand, lambdify, sqrt

from paper_checks.claims.broken import broken
from paper_checks.claims.claim import Check, Claim, Kind, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.letters import l1_g, norm_g, read_update
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.deepnet.abstract import DIVERGED, WMT17, WMT17_DEPTHS
from paper_checks.papers.magneto.experiments import OPUS
from paper_checks.papers.su.sublayers import ROUNDING, shown
from paper_checks.routes import algebra, questions, second_meanfield
from paper_checks.routes.checks import GROWTH, Answers, check, order_key, order_of
from paper_checks.routes.intervals import interval
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.search import search
from paper_checks.routes.training import BY_TRAINING, at_this_scale
from theory.symbols import L, N, eta, scratch

K = scratch("K", integer=True, positive=True)
"""Matrices of one layer."""
_SECTION = "Increment Explosion"
_GRAD = r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})"


# ---------------------------------------------------------------- S1-01, S1-02: one step

_RATES = (1e-3, 1e-4)


@cache
def one_step(optimizer: str, activation: str = "gelu") -> tuple[Mapping[str, Sequence[float]], ...]:
    """One step of the real optimizer on 8 small Post-LN Transformers with a cross-entropy, at each of ``_RATES``.

    By quantity, a number for each network. loss: its change. first_order: <gradient, step>. norm_g, l1_g: of the
    gradient of everything that trains.
    """
    import torch

    from sims.ensemble import Ensemble, Member
    from sims.model import ModelConfig, alternating
    from sims.update import Task, draw_inputs, finite_changes, first_order, real_step

    task, seeds = Task(num_tokens=5, readout="sum", objective="ce", num_classes=12), range(8)
    config = task.on(ModelConfig(encoder=alternating(4), d_model=12, ffn_ratio=1, activation=activation))
    model = Ensemble([Member(config, seed) for seed in seeds])
    inputs = draw_inputs(config, task, seeds, torch.float64, "cpu")
    gradients = first_order(model, inputs, task, ["sgd"], keeps_steps=True).steps["sgd"]

    def summed(by_matrix: Callable[[str], Any]) -> Any:
        return torch.stack([by_matrix(name).flatten(1).sum(1) for name in gradients]).sum(0)

    norm_g, l1_g = summed(lambda name: gradients[name].square()).sqrt(), summed(lambda name: gradients[name].abs())
    rows = []
    for rate in _RATES:
        step = real_step(model, gradients, optimizer, rate)
        loss = finite_changes(model, inputs, task, step, torch.full_like(norm_g, rate))["loss"]
        along = -rate * summed(lambda name, step=step: gradients[name] * step[name])
        numbers = {"loss": loss, "first_order": along, "norm_g": norm_g, "l1_g": l1_g}
        rows.append({name: values.tolist() for name, values in numbers.items()})
    return tuple(rows)


def _powers_of_the_rate(change: Callable[[float, float, float, float], float], *networks: str) -> list[float]:
    """By network, the power of the rate in what of the loss's change is left beside ``change``.

    change: of the rate, ||g||, ||g||_1 and <gradient, step>.
    """
    rest = []
    for rate, row in zip(_RATES, one_step(*networks), strict=True):
        letters = zip(row["norm_g"], row["l1_g"], row["first_order"], strict=True)
        rest.append([abs(moved - change(rate, *at)) for moved, at in zip(row["loss"], letters, strict=True)])
    return [math.log(far / near) / math.log(_RATES[0] / _RATES[1]) for far, near in zip(*rest, strict=True)]


t, slope = scratch("t", positive=True), scratch("<grad L, delta>", real=True)


@check(Route.PROOF, "a loss with free Taylor coefficients: all powers of t below the remainder vanish", is_direct=True)
def _taylor(s: Values) -> list[bool | None]:
    x, y, a, b = (scratch(name, real=True) for name in ("x", "y", "a", "b"))
    powers = [(i, j) for i in range(5) for j in range(5 - i)]
    loss: Expr = sum((scratch(f"c_{i}{j}", real=True) * x**i * y**j for i, j in powers), S.Zero)
    moved = loss.subs({x: x + t * a, y: y + t * b}, simultaneous=True)
    rest = expand(moved - loss - s["change"].subs(slope, loss.diff(x) * a + loss.diff(y) * b))
    return [expand(rest.coeff(t, i)) == 0 for i in range(int(s["remainder"]))]


@check(
    Route.MEASURED,
    "real Transformers with cross-entropy, 8 seeds each: power of the learning rate in the rest",
    is_direct=True,
)
def _remainder_measured(s: Values) -> Answers:
    change = lambdify((t, slope), s["change"], modules="math")
    low, high = float(s["remainder"]) - 0.5, float(s["remainder"]) + 0.5
    holds, numbers = [], {}
    for optimizer, activation in (("sgd", "gelu"), ("sgd", "relu"), ("adam", "gelu")):
        powers = _powers_of_the_rate(lambda _, __, ___, along: change(1.0, along), optimizer, activation)
        holds.append(interval(powers).within(low, high))
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
        from theory.optimizers import optimizer as named

        return [bool((s["change"] / read_update(named(optimizer).loss_change_text)).cancel() == 1)]

    def measured(s: Values) -> Answers:
        change = lambdify((eta, norm_g, l1_g), s["change"], modules="math")
        powers = _powers_of_the_rate(lambda rate, norm, l1, _: change(rate, norm, l1), optimizer)
        (far, *_) = one_step(optimizer)
        rows = zip(far["norm_g"], far["l1_g"], far["first_order"], strict=True)
        holds = [abs(along / change(_RATES[0], norm, l1) - 1) < 1e-6 for norm, l1, along in rows]
        mean = shown(sum(powers) / len(powers))
        return Answers(holds=[*holds, interval(powers).within(1.5, 2.5)], num_effective=8, numbers={"power": mean})

    return (
        check(Route.PROOF, f"<g, step> of {optimizer}'s published update map, reduced symbolically", published),
        check(
            Route.MEASURED,
            f"one step of torch.optim's {optimizer} on real Transformers: <g, step> is the printed change; the loss's "
            "own differs from it by a power of the learning rate, 2",
            measured,
            is_direct=True,
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
    mutants=broken(_SGD),
)


# ---------------------------------------------------------------- S1-03 to S1-05: N layers of K matrices


@check(
    Route.PROOF,
    "N K matrices, each gradient at the bound, the squares summed: the bound is attained, and is the printed order",
    is_direct=True,
)
def _attained(s: Values) -> list[bool | None]:
    c = scratch("c", positive=True)
    return [not algebra.log_form(eta * N * K * (c * s["gradient"]) ** 2 / s["change"]).has(N, K, eta)]


@check(
    Route.PROPERTY,
    "any gradients within the bound: the sum of squares is never above the printed order",
    is_direct=True,
)
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
_POST = Growth(scheme="post-ln", order=L)
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
            mutants=(
                Mutant(name="without K", statement=_CHANGE.with_(change=eta * N)),
                Mutant(name="the root of N", statement=_CHANGE.with_(change=eta * sqrt(N) * K)),
            ),
        ),
        # "We can make" is read as: one network does. With gelu at gain 1 gradients grow exponentially (S3-10); in
        # Pre-LN the sum is of order log N, which is O(N) but not in proportion to N.
        Part(
            name="that one can make them so: vanilla Post-LN, relu, gain 1, in proportion to depth",
            statement=_POST,
            checks=(*GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=(
                *broken(_POST),
                Mutant(name="gelu", statement=_POST.with_(activation="gelu")),
                Mutant(name="pre-ln", statement=_POST.with_(scheme="pre-ln")),
            ),
        ),
    ),
)


@check(
    Route.PROOF,
    "put into eta N K: no N is left. So it is where the sum is in proportion to N (S1-03: Post-LN, relu, gain "
    "1); where gradients grow exponentially with depth it does not, and where the sum is log N it is too small",
    is_direct=True,
)
def _cancels(s: Values) -> list[bool | None]:
    return [not algebra.log_form(_CHANGE["change"].subs(eta, s["rate"])).has(N)]


@check(Route.MEANFIELD, "times the exact update of vanilla Post-LN: of order 1")
def _times_exact_update(s: Values) -> list[bool | None]:
    from theory.meanfield.growth import update_order
    from theory.meanfield.setting import Setting

    order = order_of(1 / s["rate"].subs({eta: 1, N: L / 2}))
    return [order_key(update_order(Setting.of("post-ln", "sgd"))) == order_key(order)]


@check(Route.NUMERIC, "times its update summed at 10^2, 10^4, 10^6 sublayers: settles", is_direct=True)
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
    checks=(_cancels, _times_exact_update, _times_summed_update),
    mutants=(
        Mutant(name="the root of N", statement=_RATE.with_(rate=eta / sqrt(N))),
        Mutant(name="not smaller", statement=_RATE.with_(rate=eta)),
    ),
)


@check(
    Route.NUMERIC,
    "Post-LN with alpha = (2N)^(1/4), lambda = (2N)^(-1/4) at 10^2, 10^4, 10^6 sublayers has both",
    is_direct=True,
)
def _su_network(s: Values) -> list[bool | None]:
    updates = {length: second_meanfield.log_update("su-sgd", length) for length in second_meanfield.LENGTHS}
    size = lambdify(N, s["gradient"], modules="math")
    total = lambdify(N, s["change"].subs({eta: 1, K: 2}), modules="math")
    return [
        algebra.settles([update - math.log(total(n / 2)) for n, update in updates.items()]),
        algebra.settles([update - math.log(n) - 2 * math.log(size(n / 2)) for n, update in updates.items()]),
    ]


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
    checks=(_attained, _never_exceeded, _su_network),
    mutants=(
        Mutant(name="1/N^(1/4)", statement=_SCALED.with_(gradient=N ** (-S.One / 4))),
        Mutant(name="gradients O(1)", statement=_SCALED.with_(gradient=1)),
    ),
)


# ---------------------------------------------------------------- S1-48: what becomes of deep models

_DEPTHS = Values.of(**{f"{n}L-{n}L": "trained" if n == 6 else DIVERGED for n in WMT17_DEPTHS})


@check(Route.ARITHMETIC, "every depth that failed is larger than all that trained", is_direct=True)
def _once_and_for_all(s: Values) -> list[bool | None]:
    outcomes = [outcome for _, outcome in s]
    trained = outcomes.count("trained")
    return [0 < trained < len(outcomes) and set(outcomes[:trained]) == {"trained"}]


@check(
    Route.CITATION,
    "6L-6L, 50L-50L and 100L-100L as reported of DeepNet's WMT-17 baselines, 18L-18L by OPUS-100 on "
    "the slides of Magneto alone: the WMT-17 table is at second hand, several rows of baselines in it "
    "are doubtful, and DeepNet's text calls Post-LN unstable at 50L-50L",
    is_direct=True,
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
            mutants=(
                Mutant(name="50L-50L trained", statement=_DEPTHS.with_(**{"50L-50L": "trained"})),
                Mutant(name="18L-18L trained", statement=_DEPTHS.with_(**{"18L-18L": "trained"})),
                Mutant(name="6L-6L diverged", statement=_DEPTHS.with_(**{"6L-6L": DIVERGED})),
            ),
        ),
        Part(
            name="training shows it: at 18L-18L fewer seeds train than at 2L-2L, source lines to bytecode, 32 wide",
            statement=questions.DEEPER,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.DEEPER.with_swapped()),),
        ),
        Part(
            name="training shows that warm-up helps",
            statement=Values.of("with warm-up more seeds train"),
            checks=(at_this_scale(*questions.WARMED.values(), *questions.WARMED_LOSS.values()),),
            mutants=(),
            open="Post-LN with and without warm-up at the depth and rate at which half of the seeds train, 14 seeds or "
            "more, beside a lower rate of the same sum: whether more train. Of 5 seeds the shares leave it open at "
            "every depth; the loss is lower with warm-up at 6L-6L, and higher at 2L-2L, where nothing is stuck",
            expected=Verdict.UNDECIDED,
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_01, _S1_02, _S1_03, _S1_04, _S1_05, _S1_48)
