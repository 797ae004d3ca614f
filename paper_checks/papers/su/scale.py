"""Su's article, "Feedforward Gradients": how homogeneous phi is, and the size of a branch and of its gradients.

z is what the norm reads: x + lambda_1 lambda_2 phi(x U_1) U_2/alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sympy import Expr, Float, Max, S, lambdify, sqrt

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.su import networks
from paper_checks.papers.su.branch import lam1, lam2
from paper_checks.routes import algebra
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import interval
from theory.symbols import d, scratch
from theory.symbols import residual_weight as alpha

_SECTION = "Feedforward Gradients"
factor = scratch("lambda", positive=True)

# ---------------------------------------------------------------- S1-12: homogeneity

_SUP = {"gelu": Float("0.16997120747990366"), "swish": Float("0.27846454276107380")}
"""The largest distance of phi from relu: |u| Phi(-|u|) at 0.7518, and |u|/(1 + e^|u|) at 1.2785, where it is W(1/e)."""


@dataclass(frozen=True, kw_only=True)
class Homogeneous:
    """|phi(lambda x) - lambda phi(x)| <= ``bound`` for every x and every lambda > 0."""

    activation: str
    bound: Expr

    @property
    def text(self) -> str:
        if self.bound == 0:
            return f"{self.activation}(lambda x) = lambda {self.activation}(x) for every lambda > 0"
        bound = f"{float(self.bound.subs(factor, 1)):.5g} max(1, lambda)"
        return f"|{self.activation}(lambda x) - lambda {self.activation}(x)| <= {bound} for every lambda > 0"


@cache
def _gaps(activation: str) -> tuple[tuple[float, float], ...]:
    """(lambda, the largest |phi(lambda x) - lambda phi(x)| over x), lambda from 2^-16 to 2^16, by torch."""
    import torch

    phi, grid = networks.phi(activation), torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64)
    found = []
    for power in (-16, -6, -3, -1, 0, 1, 3, 6, 16):
        k = 2.0**power
        x = torch.cat([grid, grid / k])  # both where phi(x) bends and where phi(lambda x) does
        found.append((k, float((phi(k * x) - k * phi(x)).abs().max())))
    return tuple(found)


def _within(statement: Homogeneous) -> Evidence:
    bound = lambdify(factor, statement.bound, modules=["math", {"Max": max}])
    answers = [gap <= float(bound(k)) * (1 + networks.ROUNDING) for k, gap in _gaps(statement.activation)]
    return Evidence(
        route=Route.NUMERIC,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="torch's own function on 8,002 points each, lambda from 2^-16 to 2^16: the largest distance by lambda",
        numbers={f"{k:g}": networks.shown(gap) for k, gap in _gaps(statement.activation)},
        steps=(
            "phi(u) = relu(u) - e(u) with 0 <= e(u) <= c, and relu is homogeneous",
            "phi(lambda x) - lambda phi(x) = lambda e(x) - e(lambda x) lies between -c and lambda c",
            "it comes as near as one likes to -c as lambda -> 0, to lambda c as lambda -> infinity",
        ),
    )


@cache
def _quadrature(activation: str) -> tuple[tuple[float, float, float], ...]:
    """(lambda, relative error, root mean square of phi(lambda x) - lambda phi(x)) at x ~ N(0, 1)."""
    from theory.moments import Kind, inhomogeneity, numeric
    from theory.moments import activation as known

    act, found = known({"swish": "silu"}.get(activation, activation)), []
    for k in (0.5, 2.0):
        relative = float(inhomogeneity(act, k, digits=6))
        found.append((k, relative, relative * k * math.sqrt(numeric(act, Kind.SECOND, 1.0))))
    return tuple(found)


def _by_quadrature(statement: Homogeneous) -> Evidence:
    """The root mean square over x ~ N(0, 1) is at most the largest; beside it, the relative error."""
    found = _quadrature(statement.activation)
    answers = [gap <= float(statement.bound.subs(factor, k)) * (1 + networks.ROUNDING) for k, _, gap in found]
    return Evidence(
        route=Route.MEANFIELD,
        num_effective=len(answers),
        verdict=outcome(all(answers)),
        detail="x ~ N(0, 1) by quadrature: root mean square of phi(lambda x) - lambda phi(x) by that of lambda phi(x)",
        numbers={f"{k:g}": networks.shown(relative) for k, relative, _ in found},
    )


_HOMOGENEITY = (
    Check(route=Route.NUMERIC, run=_within, is_direct=True),
    Check(route=Route.MEANFIELD, run=_by_quadrature),
)


def _approximate(name: str, text: str) -> Part:
    bound = _SUP[name] * Max(1, factor)
    return Part(
        name=name,
        statement=Homogeneous(activation=name, bound=S.Zero),
        checks=_HOMOGENEITY,
        mutants=(
            Mutant(name="nine tenths", statement=Homogeneous(activation=name, bound=bound * S(9) / 10)),
            Mutant(name="a twentieth", statement=Homogeneous(activation=name, bound=bound / 20)),
        ),
        hedge=Amendment(statement=Homogeneous(activation=name, bound=bound), text=text),
        expected=Verdict.CONDITIONAL,
    )


_RELU = Homogeneous(activation="relu", bound=S.Zero)
_EXACT_IF = (
    "exact for every lambda only where phi is linear on either side of 0 (relu, leaky relu). For {0} "
    "|phi(lambda x) - lambda phi(x)| <= {1} max(1, lambda), {1} being sup |phi - relu|, no smaller constant will do; "
    "good where |x| and lambda |x| are large (relu) or both small (phi = x/2); at x ~ N(0, 1) its relative "
    "error is {2} at lambda = 1/2 and {3} at lambda = 2"
)
_S1_12 = Claim(
    id="S1-12",
    source="su",
    locator=f"{_SECTION}, after the second equation",
    quote=r"Here, $\phi$ is an activation function, typically ReLU or its variants (Swish, GeLU, etc.), which "
    r"(approximately) satisfy $\phi(\lambda x) = \lambda \phi(x),\forall \lambda > 0$.",
    summary="phi(lambda x) = lambda phi(x): ReLU, and Swish and GeLU approximately",
    parts=(
        Part(
            name="relu",
            statement=_RELU,
            checks=_HOMOGENEITY,
            mutants=(
                Mutant(name="tanh", statement=replace(_RELU, activation="tanh")),
                Mutant(name="gelu", statement=replace(_RELU, activation="gelu")),
            ),
        ),
        _approximate("gelu", _EXACT_IF.format("GELU", _SUP["gelu"].evalf(5), "0.21", "0.14")),
        _approximate("swish", _EXACT_IF.format("Swish", _SUP["swish"].evalf(5), "0.22", "0.20")),
    ),
    expected=Verdict.CONDITIONAL,
    finding=Finding(
        "Su: phi(lambda x) = lambda phi(x) is exact for ReLU; for GELU and Swish within {gelu:.2f} and "
        "{swish:.2f} times max(1, lambda)",
        rank=250,
        numbers=_SUP,
    ),
)


# ---------------------------------------------------------------- S1-15: orders of the gradients

_ENDS = (0, 10, 20)
"""Octaves by which one letter is moved."""


@cache
def _gradient_sizes() -> Mapping[tuple[str, int], tuple[tuple[float, ...], tuple[float, ...]]]:
    """RMS of dL/dlambda_1 and of dL/dlambda_2, relu and LayerNorm, by the letter moved, its sense and octaves."""
    import torch

    width, generator = 24, networks.rng(150)
    x = networks.layer_norm(networks.normal(generator, 12, 4, width))
    u1, u2 = (networks.normal(generator, 12, width, width) / math.sqrt(width) for _ in range(2))
    head = networks.normal(generator, 12, 4, width)

    def sizes(at: Mapping[str, float]) -> tuple[float, float]:
        first, second = (torch.full((12, 1, 1), at[name], dtype=x.dtype, requires_grad=True) for name in "12")
        stream = x + networks.ffn(x, first * u1, second * u2) / at["alpha"]
        both = torch.autograd.grad((head * networks.layer_norm(stream)).sum(), (first, second))
        one, two = (float(g.square().mean().sqrt()) for g in both)
        return one, two

    base = {"1": 1.0, "2": 1.0, "alpha": 1.0}
    found = {}
    for letter in base:
        for sense in (-1, 1):
            rows = [sizes(base | {letter: 2.0 ** (sense * octaves)}) for octaves in _ENDS]
            found[letter, sense] = tuple(zip(*rows, strict=True))
    return found


_LETTERS = {"1": lam1, "2": lam2, "alpha": alpha}


def _bounded(which: int) -> Check:
    """gradient/order may fall along a path to the end of any letter, but not rise."""

    def run(statement: Values) -> Evidence:
        (_, order), *_ = statement.entries
        answers, numbers = [], {}
        for (letter, sense), both in _gradient_sizes().items():
            sizes = both[which]
            at = dict.fromkeys(_LETTERS.values(), S.One)
            ratios = [
                math.log2(size / float(order.subs(at | {_LETTERS[letter]: S(2) ** (sense * octaves)})))
                for size, octaves in zip(sizes, _ENDS, strict=True)
            ]
            power = (ratios[2] - ratios[1]) / (_ENDS[2] - _ENDS[1])
            answers.append(power < 0.25)
            numbers[f"{_LETTERS[letter]} {'up' if sense > 0 else 'down'}"] = round(power * sense, 1) + 0.0
        return Evidence(
            route=Route.MEASURED,
            num_effective=len(answers),
            verdict=outcome(all(answers)),
            detail="autograd through relu and LayerNorm: the power of a letter in gradient/order at 2^-20 and 2^20 of "
            "it, the others 1. It is 0 while lambda_1 lambda_2/alpha is small; beyond that the branch dominates what "
            "LayerNorm reads, and the gradient falls as its inverse square",
            numbers=numbers,
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True)


def _asserted(which: int) -> Check:
    """|dL/dx|, |dx/dz| and |V| at bounds of their own: the rest is what the product rule leaves."""

    def decide(s: Values) -> list[bool | None]:
        (_, order), *_ = s.entries
        bounds = [scratch(name, positive=True) for name in ("c_x", "c_z", "c_V")]
        letter = (lam1, lam2)[which]
        z = lam1 * lam2 / alpha * bounds[2]
        ratio = bounds[0] * bounds[1] * z.diff(letter) / order
        return [not algebra.log_form(ratio).has(lam1, lam2, alpha)]

    return check(
        Route.PROOF,
        "given the text's assertion that dL/dx and dx/dz are O(1), and phi(x U1) U2 O(1): the bound over the order is "
        "a number",
        decide,
        is_direct=True,
    )


def _order_part(which: int) -> Part:
    other = (lam2, lam1)[which]
    name = f"dL/dlambda_{which + 1}"
    statement = Values(((name, other / alpha),))
    return Part(
        name=f"{name} = O({other}/alpha)",
        statement=statement,
        checks=(_asserted(which), _bounded(which)),
        mutants=(
            Mutant(name="the other lambda", statement=Values(((name, (lam1, lam2)[which] / alpha),))),
            Mutant(name="alpha^2", statement=Values(((name, other / alpha**2),))),
            Mutant(name="its square", statement=Values(((name, other**2 / alpha),))),
        ),
    )


_S1_15 = Claim(
    id="S1-15",
    source="su",
    locator=f"{_SECTION}, last equation",
    quote=r"$$ \frac{\partial \mathcal{L}}{\partial \lambda_1} = \mathcal{O}\left(\frac{\lambda_2}{\alpha}\right),"
    r"\quad \frac{\partial \mathcal{L}}{\partial \lambda_2} = \mathcal{O}\left(\frac{\lambda_1}{\alpha}\right) $$",
    summary="dL/dlambda_1 = O(lambda_2/alpha), dL/dlambda_2 = O(lambda_1/alpha)",
    uses=("S1-14", "S1-16"),
    parts=(_order_part(0), _order_part(1)),
)


# ---------------------------------------------------------------- S1-16: the size of a branch

_ACTIVATIONS = ("relu", "gelu", "swish")
_WIDTHS = (24, 96)


@cache
def _branch_squares() -> Mapping[str, tuple[tuple[float, ...], ...]]:
    """Mean square of an entry of phi(x U1) U2 by width and seed; x behind a LayerNorm; U Gaussian, or orthogonal."""
    found = {}
    for kind in ("gaussian", "orthogonal"):
        for name in _ACTIVATIONS:
            rows = []
            for width in _WIDTHS:
                generator = networks.rng(width)
                x = networks.layer_norm(networks.normal(generator, 8, 4, width))
                draw = networks.orthogonal if kind == "orthogonal" else _gaussian
                first, second = draw(generator, 8, width), draw(generator, 8, width)
                rows.append(tuple(map(float, networks.ffn(x, first, second, name).square().mean((1, 2)))))
            found[f"{name}, {kind}"] = tuple(rows)
    return found


def _gaussian(generator: Any, count: int, width: int) -> Any:
    return networks.normal(generator, count, width, width) / math.sqrt(width)


def _free_of_width(statement: Values) -> Evidence:
    """log of mean square/order^2 at four times the width, less that at the width, per log 4."""
    order = lambdify(d, statement["entry"] ** 2, modules="math")
    answers: list[bool | None] = []
    numbers = {}
    for name, (early, late) in _branch_squares().items():
        base = sum(early) / len(early) / order(_WIDTHS[0])
        powers = [math.log(x / order(_WIDTHS[1]) / base) / math.log(4) for x in late]
        answers.append(interval(powers).within(-0.5, 0.5))
        numbers[name] = networks.shown(sum(late) / len(late), 2)
    return Evidence(
        route=Route.MEASURED,
        num_effective=16 * len(answers),
        verdict=outcome(all_of(answers)),
        detail="torch, U Gaussian and exactly orthogonal, widths 24 and 96: less than half a power of the width; mean "
        "squares at 96",
        numbers=numbers,
    )


def _second_moments(s: Values) -> list[bool | None]:
    """E of an entry's square is E phi(z)^2, whatever the width."""
    from theory.moments import Kind, numeric
    from theory.moments import activation as known

    constants = [numeric(known({"swish": "silu"}.get(name, name)), Kind.SECOND, 1.0) for name in _ACTIVATIONS]
    return [c > 0 and not algebra.log_form(c / s["entry"] ** 2).has(d) for c in constants]


def _constants() -> tuple[str, ...]:
    from theory.moments import Kind, numeric
    from theory.moments import activation as known

    names = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
    values = (f"{name}: {numeric(known(act), Kind.SECOND, 1.0):.6g}" for name, act in names.items())
    return (f"U_ij of variance 1/d, x of variance 1: E phi(z)^2 = {', '.join(values)}",)


_S1_16 = claim(
    "S1-16",
    source="su",
    locator=f"{_SECTION}, before the last equation",
    quote=r"since $\boldsymbol{U}_1$ and $\boldsymbol{U}_2$ are both close to orthogonal matrices, "
    r"$\phi(\boldsymbol{x}_l \boldsymbol{U}_1)\boldsymbol{U}_2$ is also $\mathcal{O}(1)$.",
    summary="an entry of phi(x U1) U2 is O(1)",
    statement=Values.of(entry=1),
    checks=(
        check(
            Route.MEANFIELD,
            "the mean square of an entry is E phi(z)^2, z ~ N(0, 1): 1/2 for relu, and a number for gelu and swish",
            _second_moments,
            steps=_constants,
        ),
        Check(route=Route.MEASURED, run=_free_of_width, is_direct=True),
    ),
    mutants=(
        Mutant(name="the root of d", statement=Values.of(entry=sqrt(d))),
        Mutant(name="over the root of d", statement=Values.of(entry=1 / sqrt(d))),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_12, _S1_15, _S1_16)
