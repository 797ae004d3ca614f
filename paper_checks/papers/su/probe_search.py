"""Su's article, end of "Magnitude Analysis": whether dL/dlambda is in proportion to dL/dW, searched over networks.

Every matrix is lambda times a Gaussian one; alpha the weight of the skip. The multiple is the square of dL/dlambda over
that of ||dL/dW||, times the width, in the mean over initialisations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sympy import Expr, Rational, S, exp, integrate, lambdify, oo, pi, sqrt

from paper_checks.claims.claim import Amendment, Check, Claim, Evidence, Finding, Mutant, Part, Route, Verdict
from paper_checks.papers.su import networks as su_nets
from paper_checks.routes import algebra, one_liners
from paper_checks.routes.checks import all_of, check, outcome
from paper_checks.routes.intervals import interval
from paper_checks.routes.search import search
from theory.symbols import init_gain as lam
from theory.symbols import residual_weight as alpha
from theory.symbols import scratch

c = scratch("c", positive=True)
"""A number of which the source says no more than that it is one."""
MATRICES = ("post W1", "post W2", "sub W1", "sub W2")
"""Of a Post-LN sublayer LN(alpha x + W2 phi(W1 x)); of a last Sub-LN one, LN(alpha x + W2 LN(phi(W1 LN(x))))."""


@dataclass(frozen=True)
class Probe:
    """d E(dL/dlambda)^2 / E||dL/dW||^2 by matrix, in one relu sublayer; with c in it, c is any positive number."""

    multiples: tuple[Expr, ...]

    @property
    def text(self) -> str:
        shown = ", ".join(f"{name}: {value}" for name, value in zip(MATRICES, self.multiples, strict=True))
        return f"(dL/dlambda)^2 = multiple * ||dL/dW||^2/d in the mean; multiple of {shown}"

    def multiple(self, placement: str, matrix: str) -> Expr:
        return self.multiples[MATRICES.index(f"{placement} {matrix}")]


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network of a search, and the matrix that is probed; ``power``: every gain is 2^power."""

    placement: str
    matrix: str
    num_sublayers: int
    width: int
    power: int
    residual_weight: int


def _forward(x: Any, pairs: list[tuple[Any, Any]], weight: float, placement: str, activation: str = "relu") -> Any:
    """LN of the last stream."""
    for first, second in pairs:
        if placement == "post":
            x = su_nets.layer_norm(weight * x + su_nets.ffn(x, first, second, activation))
        else:
            hidden = su_nets.phi(activation)(su_nets.layer_norm(x) @ first)
            x = weight * x + su_nets.layer_norm(hidden) @ second
    return su_nets.layer_norm(x)


def _sizes(network: Network, num_seeds: int = 6) -> tuple[float, float]:
    """Root mean squares of dL/dlambda and ||dL/dW|| of the first sublayer's matrix, by autograd; L = <head, output>."""
    import torch

    generator, width, gain = su_nets.rng(10), network.width, 2.0**network.power
    x = su_nets.normal(generator, num_seeds, 2, width)
    head = su_nets.normal(generator, num_seeds, 2, width)
    unit = su_nets.normal(generator, network.num_sublayers, 2, num_seeds, width, width) / math.sqrt(width)
    lams = torch.full((num_seeds, 1, 1), gain, dtype=x.dtype, requires_grad=True)
    place = ("W1", "W2").index(network.matrix)
    probed = lams * unit[0, place]
    pairs = [(gain * pair[0], gain * pair[1]) for pair in unit]
    pairs[0] = (probed, pairs[0][1]) if place == 0 else (pairs[0][0], probed)
    loss = (head * _forward(x, pairs, network.residual_weight, network.placement)).sum()
    by_lambda, by_matrix = torch.autograd.grad(loss, (lams, probed))
    return float(by_lambda.square().mean().sqrt()), float(by_matrix.square().sum((1, 2)).mean().sqrt())


def _searched(statement: Probe) -> Evidence:
    """A probe that sees nothing of a gradient that is there, or sees something where the multiple is 0."""
    from hypothesis import strategies as st

    cases = st.builds(
        Network,
        placement=st.sampled_from(("post", "sub")),
        matrix=st.sampled_from(("W1", "W2")),
        num_sublayers=st.integers(1, 4),
        width=st.integers(4, 12),
        power=st.integers(-2, 2),
        residual_weight=st.integers(1, 3),
    )

    def holds(case: Network) -> bool | None:
        by_lambda, by_matrix = _sizes(case)
        if not by_matrix > 0 or not math.isfinite(by_lambda):
            return None
        is_blind = by_lambda < su_nets.ROUNDING * by_matrix
        return is_blind is (statement.multiple(case.placement, case.matrix) == 0)

    found = search(cases, holds, max_examples=60)
    example = None
    if found.found is not None:
        _, by_matrix = _sizes(found.found)
        case = found.found
        example = {
            "printed": "dL/dlambda is in proportion to dL/dW",
            "found": f"dL/dlambda = 0 where ||dL/dW|| = {su_nets.shown(by_matrix, 2)}: {case.matrix} of "
            f"{'Sub-LN' if case.placement == 'sub' else 'Post-LN'}, relu, {case.num_sublayers} sublayer of width "
            f"{case.width}",
            "command": one_liners.HIDDEN_PROBE,
        }
    return Evidence(
        route=Route.PROPERTY,
        num_effective=found.num_effective,
        verdict=outcome(found.found is None),
        detail="relu stacks of 1 to 4 sublayers, two tokens, norm placements, matrices, gains 1/4 to 4, skips 1 to 3: "
        "is dL/dlambda 0 where dL/dW is not",
        steps=(
            "L(lambda U) with a norm straight behind lambda U, or behind a homogeneous phi of it, is the same for "
            "every lambda > 0",
            "so dL/dlambda = <dL/dW, U> = 0 (Euler, degree 0), while dL/dW need only be orthogonal to U",
        ),
        counterexample=example,
    )


_SETTINGS = ((0.5, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
"""(gain, residual weight); the second is the reference where the printed multiple is any number."""


_WIDTHS, _NUM_SEEDS = (16, 32), 3000


@cache
def _multiples() -> Mapping[str, tuple[tuple[float, ...], ...]]:
    """By matrix and setting: the multiple of each seed, one relu sublayer, one token, free of 1/d (two widths)."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in MATRICES}
    for placement in ("post", "sub"):
        for gain, weight in _SETTINGS:
            early, late = (_at_width(placement, gain, weight, width) for width in _WIDTHS)
            for matrix, few, many in zip(("W1", "W2"), early, late, strict=True):
                found[f"{placement} {matrix}"].append(tuple((2 * many - few).tolist()))
    return {name: tuple(samples) for name, samples in found.items()}


@cache
def _draws(width: int) -> tuple[Any, Any, Any]:
    """A token, a head of length 1 and two matrices for every seed."""
    generator = su_nets.rng(width)
    x, head = (su_nets.normal(generator, _NUM_SEEDS, 1, width) for _ in "xh")
    unit = su_nets.normal(generator, 2, _NUM_SEEDS, width, width) / math.sqrt(width)
    return su_nets.layer_norm(x), head / head.norm(dim=-1, keepdim=True), unit


def _at_width(placement: str, gain: float, weight: float, width: int) -> tuple[Any, Any]:
    """Of W1 and W2, the ratio of two means, as linear in each seed's share.

    Over heads of length 1, d E(dL/dlambda)^2 is |d output/d lambda|^2, taken by a double backward; the gradient of a
    matrix at one token is what enters it times the gradient of what leaves it.
    """
    import torch

    x, head, unit = _draws(width)
    head = head.clone().requires_grad_()
    first, second = (torch.full((_NUM_SEEDS, 1, 1), gain, dtype=x.dtype, requires_grad=True) for _ in range(2))
    hidden = first * (x @ unit[0])
    entering = torch.relu(hidden) if placement == "post" else su_nets.layer_norm(torch.relu(hidden))
    branch = second * (entering @ unit[1])
    loss = (head * su_nets.layer_norm(weight * x + branch)).sum()
    grads = torch.autograd.grad(loss, (first, second, hidden, branch), create_graph=True)

    def ratio(by_lambda: Any, u: Any, by_output: Any) -> Any:
        (tangent,) = torch.autograd.grad(by_lambda.sum(), head, retain_graph=True)
        above, below = tangent.square().sum((1, 2)), (u.square().sum((1, 2)) * by_output.square().sum((1, 2))).detach()
        mean = above.mean() / below.mean()
        return mean + (above - mean * below) / below.mean()

    return ratio(grads[0], x, grads[2]), ratio(grads[1], entering, grads[3])


def _measured(statement: Probe) -> Evidence:
    answers: list[bool | None] = []
    numbers: dict[str, Any] = {}
    for name, samples in _multiples().items():
        printed = lambdify((lam, alpha, c), statement.multiple(*name.split()), modules="math")
        means = [sum(values) / len(values) for values in samples]
        numbers[name] = {
            f"lambda {gain:g}, alpha {weight:g}": [
                su_nets.shown(end, 2) if mean > su_nets.ROUNDING else 0.0 for end in interval(values)
            ]
            for (gain, weight), values, mean in zip(_SETTINGS, samples, means, strict=True)
        }
        expected = [float(printed(*at, 1.0)) for at in _SETTINGS]
        if statement.multiple(*name.split()).has(c):  # any number, but one number, and not 0
            expected = [means[1] * value / expected[1] for value in expected]
            answers.append(means[1] > su_nets.ROUNDING)
        answers += [
            su_nets.contains(values, value) if value > 0 else max(values) < su_nets.ROUNDING
            for values, value in zip(samples, expected, strict=True)
        ]
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(answers),
        verdict=outcome(all_of(answers)),
        detail=f"one relu FFN sublayer by autograd, {_NUM_SEEDS} seeds, widths {_WIDTHS[0]} and {_WIDTHS[1]} taken to "
        "the limit, as intervals",
        numbers=numbers,
    )


def _what_the_norm_leaves(s: Probe) -> list[bool | None]:
    """The multiple of one relu sublayer at infinite width, by second moments of the branch; see ``_LEFT``."""
    x = scratch("x", real=True)
    second = integrate(x**2 * exp(-(x**2) / 2), (x, 0, oo)) / sqrt(2 * pi)  # E relu^2 of a unit Gaussian
    branch = {"post": lam**2 * lam**2 * second, "sub": lam**2}  # behind an inner norm W2 reads a unit second moment
    answers: list[bool | None] = []
    for name in MATRICES:
        placement, matrix = name.split()
        is_invariant = placement == "sub" and matrix == "W1"
        found = S.Zero if is_invariant else alpha**2 / (alpha**2 + branch[placement])
        printed = s.multiple(placement, matrix)
        answers.append(algebra.equal(printed, found) if not printed.has(c) else found != 0 and _is_number(found))
    return answers


def _is_number(found: Expr) -> bool:
    """Whether it is one number for every lambda and alpha."""
    return not found.has(lam, alpha)


_LEFT = (
    "with relu the branch b is of degree 1 in lambda_1 and in lambda_2 (of degree 0 in lambda_1 behind an inner norm), "
    "so lambda dz/dlambda = b (or 0), z = alpha x + b",
    "the norm takes out of b what lies along z: of |b|^2 the share <b, z>^2/(|b|^2 |z|^2) = V/(alpha^2 + V), for W2 is "
    "drawn apart from x; V = E b^2, lambda^4 E relu^2 in Post-LN, lambda^2 in Sub-LN",
    "||dL/dW||^2/d has the same factors without that: the multiple is 1 - V/(alpha^2 + V)",
)


def _by_degree(s: Probe) -> list[bool | None]:
    """Where the derived branch has no derivative in a matrix's magnitude, the multiple must be 0; else not."""
    from theory.rules.magnitude import Branch

    answers: list[bool | None] = []
    for placement in ("post", "sub"):
        branch = Branch(inner_norm=placement == "sub")
        for matrix, probe, gradient in zip(("W1", "W2"), branch.probes, branch.gradients, strict=True):
            if gradient == 0:
                raise ArithmeticError(f"no gradient of {matrix}")
            answers.append((branch.magnitude.diff(probe) == 0) is (s.multiple(placement, matrix) == 0))
    return answers


_POST = alpha**2 / (alpha**2 + lam**4 / 2)
_SUB = alpha**2 / (alpha**2 + lam**2)
_OFF = alpha**2 / (alpha**2 + 2 * lam**4 / 3)
_PRINTED = Probe((c, c, c, c))
_FOUND = Probe((_POST, _POST, S.Zero, _SUB))
_S1_10 = Claim(
    id="S1-10",
    source="su",
    locator="Magnitude Analysis, last paragraph",
    quote=r"This means that $\frac{\partial \mathcal{L}}{\partial \lambda}$ is proportionally related in magnitude to "
    r"$\frac{\partial \mathcal{L}}{\partial \boldsymbol{W}}$. Therefore, performing a magnitude analysis on "
    r"$\frac{\partial \mathcal{L}}{\partial \lambda}$ is equivalent to performing a magnitude analysis on "
    r"$\frac{\partial \mathcal{L}}{\partial \boldsymbol{W}}$.",
    summary="dL/dlambda is in proportion to dL/dW in magnitude, and so a probe of it",
    uses=("S1-09",),
    parts=(
        Part(
            name="of any matrix",
            statement=_PRINTED,
            checks=(
                Check(route=Route.PROPERTY, run=_searched, is_direct=True),
                Check(route=Route.MEASURED, run=_measured, is_direct=True),
                check(
                    Route.PROOF,
                    "one relu sublayer at infinite width: what the norm leaves of the branch",
                    _what_the_norm_leaves,
                    is_direct=True,
                    steps=lambda: _LEFT,
                ),
                check(Route.PROOF, "degree of the derived branch in each matrix", _by_degree),
            ),
            mutants=(
                Mutant(name="W2 for W1", statement=Probe((_POST, _POST, _SUB, S.Zero))),
                Mutant(
                    name="a square root", statement=Probe((_POST, _POST, S.Zero, alpha / (alpha**2 + lam**2) ** 0.5))
                ),
                Mutant(name="another moment", statement=Probe((_OFF, _OFF, S.Zero, _SUB))),
                Mutant(
                    name="nine tenths of the branch",
                    statement=Probe((_POST, _POST, S.Zero, alpha**2 / (alpha**2 + Rational(9, 10) * lam**2))),
                ),
            ),
            instead=Amendment(
                statement=_FOUND,
                text="the multiple in one relu FFN sublayer is 1 less the branch's share of the variance that the next "
                "norm divides: alpha^2/(alpha^2 + lambda^4/2) for W1 and W2 of Post-LN, alpha^2/(alpha^2 + lambda^2) "
                "for W2 of Sub-LN, and 0 for W1 of Sub-LN",
            ),
            condition="no norm makes the loss invariant to the scale of the matrix (behind it, or behind a homogeneous "
            "phi of it, before the skip is added), and the branch's share of the variance under the next norm stays "
            "away from 1. Of W1 and W2 in one relu FFN sublayer of the article's own kind, Post-LN with lambda^2/alpha "
            "<= 1, both hold: the multiple lies between 2/3 and 1. In deeper stacks, with attention, "
            "notebooks/02_magnitude_and_probe.ipynb measures it; no formula is given there",
            expected=Verdict.REFUTED,
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "Su: dL/dlambda is no probe of dL/dW where a norm makes the loss invariant to the scale of W, as "
        "Sub-LN's W1: it is 0 there",
        rank=170,
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_10,)
