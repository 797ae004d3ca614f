"""Su's article, "Increment Explosion" and "Preliminary Conclusion": by how much one step changes the loss.

N layers of K matrices each; g the gradient, eta the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sympy import Expr, Rational, S, expand, lambdify, log, sqrt, sympify

from paper_checks.claims.claim import Check, Claim, Evidence, Mutant, Part, Route, claim
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.su import networks
from paper_checks.papers.su.measured import MEASURED_GROWTH
from paper_checks.routes import algebra, second_meanfield
from paper_checks.routes.checks import GROWTH, check, derived, order_key, order_of, outcome
from paper_checks.routes.intervals import interval
from paper_checks.routes.kernel import GROWTH_BY_KERNEL
from paper_checks.routes.recorded_stacks import STACKS_ON_RECORD
from paper_checks.routes.search import search
from theory.symbols import L, N, eta, scratch
from theory.symbols import init_gain as lam
from theory.symbols import residual_weight as alpha

K = scratch("K", integer=True, positive=True)
"""Matrices of one layer."""
_SECTION = "Increment Explosion"
_GRAD = r"\nabla_{\boldsymbol{\theta}}\mathcal{L}(\boldsymbol{\theta})"


# ---------------------------------------------------------------- S1-01: the first order


@dataclass(frozen=True, kw_only=True)
class FirstOrder:
    """L(theta + t delta) - L(theta) = ``coefficient`` t <grad L, delta> + O(t^``remainder``)."""

    coefficient: int
    remainder: int

    @property
    def text(self) -> str:
        factor = "" if self.coefficient == 1 else f"{self.coefficient} "
        return f"L(theta + t delta) - L(theta) = {factor}t <grad L, delta> + O(t^{self.remainder})"


def _taylor(s: FirstOrder) -> list[bool | None]:
    """A polynomial loss of two parameters and degree four with free coefficients: every Taylor polynomial of a loss."""
    x, y, a, b, t = (scratch(name, real=True) for name in ("x", "y", "a", "b", "t"))
    powers = [(i, j) for i in range(5) for j in range(5 - i)]
    loss: Expr = sum((scratch(f"c_{i}{j}", real=True) * x**i * y**j for i, j in powers), S.Zero)
    moved = loss.subs({x: x + t * a, y: y + t * b}, simultaneous=True)
    kept = s.coefficient * t * (loss.diff(x) * a + loss.diff(y) * b)
    rest = expand(moved - loss - kept)
    return [expand(rest.coeff(t, i)) == 0 for i in range(s.remainder)]


@cache
def _residuals(activation: str) -> tuple[tuple[tuple[float, float], ...], ...]:
    """By seed, at t = 2^-8 and 2^-14: the loss change along a random direction, and t <grad, delta>."""
    import torch

    found = []
    for seed in range(8):
        network = networks.Transformer(seed, activation)
        generator = networks.rng(100 + seed)
        steps = [
            {role: networks.normal(generator, *matrix.shape) / 10 for role, matrix in layer.items()}
            for layer in network.matrices
        ]
        flat = [step for layer in steps for step in layer.values()]
        slope = sum(float((g * step).sum()) for g, step in zip(network.gradients(), flat, strict=True))
        rows = []
        with torch.no_grad():
            for t in (2.0**-8, 2.0**-14):
                moved = [
                    {role: matrix + t * step[role] for role, matrix in layer.items()}
                    for layer, step in zip(network.matrices, steps, strict=True)
                ]
                rows.append((float(network.loss(moved) - network.loss()), t * slope))
        found.append(tuple(rows))
    return tuple(found)


def _residual_slope(statement: FirstOrder) -> Evidence:
    answers, numbers = [], {}
    for activation in ("gelu", "relu"):
        slopes = [
            math.log2(abs(far[0] - statement.coefficient * far[1]) / abs(near[0] - statement.coefficient * near[1])) / 6
            for far, near in _residuals(activation)
        ]
        answers.append(interval(slopes).within(statement.remainder - 0.5, statement.remainder + 0.5))
        numbers[activation] = networks.shown(sum(slopes) / len(slopes))
    return Evidence(
        route=Route.MEASURED,
        num_effective=16,
        verdict=outcome(None if None in answers else all(answers)),
        detail="a real Transformer with cross-entropy, 8 seeds each with gelu and relu: power of t in the rest",
        numbers=numbers,
    )


_FIRST = FirstOrder(coefficient=1, remainder=2)
_S1_01 = claim(
    "S1-01",
    source="su",
    locator=f"{_SECTION}, first equation",
    quote=r"$$ \Delta\mathcal{L} = \mathcal{L}(\boldsymbol{\theta}+\Delta\boldsymbol{\theta}) - "
    r"\mathcal{L}(\boldsymbol{\theta}) \approx \langle" + _GRAD + r",\Delta\boldsymbol{\theta}\rangle $$",
    summary="to first order the loss changes by <gradient, step>, the rest being of second order",
    statement=_FIRST,
    checks=(
        check(
            Route.PROOF,
            "a loss with free Taylor coefficients: all powers of t below the remainder vanish",
            _taylor,
            is_direct=True,
        ),
        Check(route=Route.MEASURED, run=_residual_slope, is_direct=True),
    ),
    mutants=(
        Mutant(name="a factor 2", statement=replace(_FIRST, coefficient=2)),
        Mutant(name="exact to second order", statement=replace(_FIRST, remainder=3)),
    ),
)


# ---------------------------------------------------------------- S1-03 to S1-05: N layers of K matrices


def _implied(gradient: Expr) -> Check:
    """Every gradient at its bound c times ``gradient``: the change over the printed order is a number."""

    def decide(s: Values) -> list[bool | None]:
        c = scratch("c", positive=True)
        ratio = eta * N * K * (c * gradient) ** 2 / s["change"]
        return [not algebra.log_form(ratio).has(N, K, eta)]

    return check(
        Route.PROOF,
        "N K matrices, each gradient at the bound, the squares summed: the bound is attained, and is the printed order",
        decide,
        is_direct=True,
    )


def _any_gradients(gradient: Expr) -> Check:
    """Any gradients within the bound: eta times the sum of squares stays below c^2 times the printed order."""

    def run(statement: Values) -> Evidence:
        from hypothesis import strategies as st

        sizes = st.tuples(st.integers(1, 5), st.integers(1, 4))
        ninths = st.integers(0, 9)
        cases = sizes.flatmap(
            lambda nk: st.tuples(st.just(nk), st.lists(ninths, min_size=nk[0] * nk[1], max_size=nk[0] * nk[1]))
        )
        bound = lambdify((N, K), gradient**2, modules="math")
        change = lambdify((N, K), statement["change"].subs(eta, 1), modules="math")

        def holds(case: tuple[tuple[int, int], list[int]]) -> bool:
            size, shares = case
            return sum(i**2 for i in shares) / 81 * bound(*size) <= change(*size) * (1 + networks.ROUNDING)

        found = search(cases, holds, max_examples=60)
        return Evidence(
            route=Route.PROPERTY,
            num_effective=found.num_effective,
            verdict=outcome(found.found is None),
            detail="any gradients within the bound: the sum of squares is never above the printed order",
        )

    return Check(route=Route.PROPERTY, run=run, is_direct=True)


_CHANGE = Values.of(change=eta * N * K)
_POST = Growth(scheme="post-ln", order=L)
_S1_03 = Claim(
    id="S1-03",
    source="su",
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
            checks=(_implied(S.One), _any_gradients(S.One)),
            mutants=(
                Mutant(name="without K", statement=Values.of(change=eta * N)),
                Mutant(name="the root of N", statement=Values.of(change=eta * sqrt(N) * K)),
            ),
        ),
        Part(
            name="that one can make them so: vanilla Post-LN, relu, gain 1, in proportion to depth",
            statement=_POST,
            checks=(*GROWTH, MEASURED_GROWTH, STACKS_ON_RECORD, GROWTH_BY_KERNEL),
            mutants=(
                Mutant(name="log L", statement=_POST.with_(order=log(L))),
                Mutant(name="the root of L", statement=_POST.with_(order=sqrt(L))),
                Mutant(name="gelu", statement=_POST.with_(activation="gelu")),
                Mutant(name="pre-ln", statement=_POST.with_(scheme="pre-ln")),
            ),
        ),
    ),
)


def _cancels(s: Values) -> list[bool | None]:
    """The rate put into c eta N K."""
    return [not algebra.log_form(_CHANGE["change"].subs(eta, s["rate"])).has(N)]


def _post_at_rate(by_sum: bool) -> Any:
    """The update of vanilla Post-LN, N = L/2 layers, times the rate."""

    def order(s: Values) -> list[bool | None]:
        from theory.meanfield.growth import update_order
        from theory.meanfield.setting import Setting

        found, rate = update_order(Setting.of("post-ln", "sgd")), s["rate"].subs({eta: 1, N: L / 2})
        return [order_key(found) == order_key(order_of(1 / rate))]

    def settled(s: Values) -> list[bool | None]:
        rate = lambdify(L, s["rate"].subs({eta: 1, N: L / 2}), modules="math")
        found = second_meanfield.log_ratios(
            "post-ln", lambda length: -math.log(rate(length)), "relu", "layernorm", "sgd"
        )
        return [algebra.settles(found)]

    return settled if by_sum else order


_RATE = Values.of(rate=eta / N)
_S1_04 = claim(
    "S1-04",
    source="su",
    locator=f"{_SECTION}, last paragraph",
    quote=r"use a smaller learning rate (not exceeding $\eta/N$ magnitude) for training in the initial stage",
    summary="a learning rate of at most eta/N cancels the number of layers",
    uses=("S1-03",),
    statement=_RATE,
    checks=(
        check(
            Route.PROOF,
            "put into eta N K: no N is left. So it is where the sum is in proportion to N (S1-03: Post-LN, relu, gain "
            "1); where gradients grow exponentially with depth it does not, and where the sum is log N it is too small",
            _cancels,
            is_direct=True,
        ),
        check(Route.MEANFIELD, "times the exact update of vanilla Post-LN: of order 1", _post_at_rate(False)),
        check(
            Route.NUMERIC,
            "times its update summed at 10^2, 10^4, 10^6 sublayers: settles",
            _post_at_rate(True),
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="the root of N", statement=Values.of(rate=eta / sqrt(N))),
        Mutant(name="not smaller", statement=Values.of(rate=eta)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """Gradients of that size make a loss change of that order."""

    gradient: Expr
    change: Expr

    @property
    def text(self) -> str:
        return f"gradients O({self.gradient}) make the loss change by O({self.change})"


_SCALED = Scaled(gradient=N ** -Rational(1, 2), change=eta * K)


def _of_gradient(make: Any) -> Check:
    """A check of S1-03 with the statement's own gradient."""
    route = make(S.One).route
    return Check(route=route, run=lambda s: make(s.gradient).run(Values.of(change=s.change)), is_direct=True)


def _su_network(s: Scaled) -> list[bool | None]:
    """Post-LN with the article's alpha and lambda: update/order, and update per sublayer/gradient^2, both settle."""
    found = {length: second_meanfield.log_update("su-sgd", length) for length in second_meanfield.LENGTHS}
    size = lambdify(N, s.gradient, modules="math")
    total = lambdify(N, s.change.subs({eta: 1, K: 2}), modules="math")
    return [
        algebra.settles([found[n] - math.log(total(n / 2)) for n in second_meanfield.LENGTHS]),
        algebra.settles([found[n] - math.log(n) - 2 * math.log(size(n / 2)) for n in second_meanfield.LENGTHS]),
    ]


_S1_05 = claim(
    "S1-05",
    source="su",
    locator=f"{_SECTION}, last paragraph",
    quote=r"adjust the initialization scheme so that the gradients of the parameters are of "
    r"$\mathcal{O}(1/\sqrt{N})$ magnitude, which automatically offsets the effect of model depth.",
    summary="gradients O(1/sqrt N) make the loss change by O(eta K), whatever the depth",
    uses=("S1-02",),
    statement=_SCALED,
    checks=(
        _of_gradient(_implied),
        _of_gradient(_any_gradients),
        check(
            Route.NUMERIC,
            "Post-LN with alpha = (2N)^(1/4), lambda = (2N)^(-1/4) at 10^2, 10^4, 10^6 sublayers has both",
            _su_network,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="1/N^(1/4)", statement=replace(_SCALED, gradient=N ** -Rational(1, 4))),
        Mutant(name="gradients O(1)", statement=replace(_SCALED, gradient=S.One)),
    ),
)


# ---------------------------------------------------------------- S1-21, S1-22: the preliminary conclusion


def _sublayers_of_architecture() -> dict[str, Expr]:
    from theory.stack import ARCHITECTURES

    (side,) = ARCHITECTURES["encoder"].sides
    return {"count": side.num_sublayers}


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
    source="su",
    locator="Preliminary Conclusion, first paragraph",
    quote=r"a Transformer model with $N$ layers generally means $N$ Self-Attention layers plus $N$ FFN layers, so "
    r"strictly speaking, the number of layers is $2N$.",
    summary="N layers are 2N residual sublayers: one self-attention and one FFN each",
    statement=_COUNT,
    checks=(
        derived("sublayers of an encoder of N layers", _sublayers_of_architecture, route=Route.ARITHMETIC),
        check(
            Route.ARITHMETIC,
            "self-attentions and FFNs counted in torch.nn.TransformerEncoder of 1, 2 and 3 layers",
            _count_modules,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="one each", statement=Values.of(count=N)),
        Mutant(name="with cross-attention", statement=Values.of(count=3 * N)),
    ),
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

    width, tokens, generator = 24, 6, networks.rng(22)
    x = networks.layer_norm(networks.normal(generator, 8, tokens, width))
    u = networks.normal(generator, 6, 8, width, width) / math.sqrt(width)
    head = networks.normal(generator, 8, tokens, width)

    def size(gain: float, weight: float) -> float:
        lams = [torch.full((8, 1, 1), gain, dtype=x.dtype, requires_grad=True) for _ in range(4)]
        w1, w2, v, o = (g * matrix for g, matrix in zip(lams, u[:4], strict=True))
        branches = networks.ffn(x, w1, w2), networks.attention(x, u[4], u[5], v, o)
        loss = torch.stack([(head * networks.layer_norm(x + branch / weight)).sum() for branch in branches]).sum()
        found = torch.autograd.grad(loss, lams)
        return float(torch.stack(found).square().mean().sqrt())

    return {
        "gain": tuple(size(2.0**-e, 1.0) for e in _EXPONENTS),
        "weight": tuple(size(1.0, 2.0**e) for e in _EXPONENTS),
    }


def _last_power(sizes: tuple[float, ...]) -> float:
    """Of the smallest gains, or of the largest weights."""
    return math.log2(sizes[-1] / sizes[-2]) / (_EXPONENTS[-1] - _EXPONENTS[-2])


def _probe_slopes(s: Values) -> list[bool | None]:
    """By degrees of the printed order in lambda and in alpha, and of the measured derivative."""
    two = S(2)
    by_gain, by_weight = (
        float(algebra.log_form(s["gradient"].subs(letter, two * letter) / s["gradient"]) / log(2))
        for letter in (lam, alpha)
    )
    found = _probe_sizes()
    return [
        abs(_last_power(found["gain"]) + by_gain) < 0.25,
        abs(_last_power(found["weight"]) - by_weight) < 0.25,
    ]


_PROBE = Values.of(gradient=lam / alpha)
_S1_22 = claim(
    "S1-22",
    source="su",
    locator="Preliminary Conclusion, first equation",
    quote=r"$$ \frac{\partial \mathcal{L}}{\partial \lambda} = \mathcal{O}\left(\frac{\lambda}{\alpha}\right) $$",
    summary="one lambda for all matrices: every dL/dlambda is O(lambda/alpha)",
    uses=("S1-15", "S1-19"),
    statement=_PROBE,
    checks=(
        derived("the gradient of either matrix of a branch lambda^2/alpha", _magnitude),
        check(
            Route.MEASURED,
            "dL/dlambda by autograd through an FFN and an attention sublayer with LayerNorm: the powers of lambda "
            "and alpha at lambda = 2^-20, at alpha = 2^20",
            _probe_slopes,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="lambda^2", statement=Values.of(gradient=lam**2 / alpha)),
        Mutant(name="no alpha", statement=Values.of(gradient=lam)),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_01, _S1_03, _S1_04, _S1_05, _S1_21, _S1_22)
