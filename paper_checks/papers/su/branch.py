"""Su's article, "Feedforward Gradients" and "Self-Attention": what lambda and alpha do to a sublayer, exactly.

z is what the norm reads: x + lambda_1 lambda_2 phi(x U_1) U_2/alpha, or the same with attention and lambda_v lambda_o.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

from sympy import Expr, Matrix, S, expand, lambdify

from paper_checks.claims.claim import Check, Claim, Evidence, Mutant, Part, Route, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.su import networks
from paper_checks.routes import algebra
from paper_checks.routes.checks import check, outcome
from paper_checks.routes.search import search
from theory.symbols import residual_weight as alpha
from theory.symbols import scratch, scratch_matrix

_FFN, _ATTENTION = "Feedforward Gradients", "Self-Attention"
lam1, lam2, lam_q, lam_k, lam_v, lam_o = (
    scratch(f"lambda_{name}", positive=True) for name in ("1", "2", "q", "k", "v", "o")
)
eps = scratch("eps", positive=True)


# ---------------------------------------------------------------- S1-11: the weight of the skip


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """LN_eps(alpha x + F) = LN_eps'(x + ``branch`` F), eps' = ``eps_factor`` eps."""

    branch: Expr
    eps_factor: Expr
    has_eps: bool

    @property
    def text(self) -> str:
        if not self.has_eps:
            return f"LN(alpha x + F) = LN(x + {self.branch}*F), eps 0, alpha > 0"
        return f"LN_eps(alpha x + F) = LN_({self.eps_factor}*eps)(x + {self.branch}*F), alpha > 0"


def _norm(stream: list[Any], at: Any) -> tuple[list[Any], Any]:
    """Centred entries and the variance with eps: LN is one over the root of the other."""
    mean = sum(stream) / len(stream)
    centred = [x - mean for x in stream]
    return centred, sum(x * x for x in centred) / len(stream) + at


def _rescaled_exactly(s: Rescaled) -> list[bool | None]:
    """Three entries: the centred stream is alpha times the other, and the variance with eps alpha^2 times."""
    x, f = ([scratch(f"{name}_{i}", real=True) for i in range(3)] for name in "xF")
    at = eps if s.has_eps else S.Zero
    left, below = _norm([alpha * a + b for a, b in zip(x, f, strict=True)], at)
    right, under = _norm([a + s.branch * b for a, b in zip(x, f, strict=True)], s.eps_factor * at)
    centred = [bool(expand(a - alpha * b) == 0) for a, b in zip(left, right, strict=True)]
    return [*centred, bool(expand(below - alpha**2 * under) == 0)]


def _rescaled_searched(statement: Rescaled) -> Evidence:
    """In fractions: squares and signs of both sides are the same."""
    from hypothesis import strategies as st

    weight, share = (lambdify(alpha, expr, modules="math") for expr in (statement.branch, statement.eps_factor))
    numbers = st.fractions(min_value=-50, max_value=50, max_denominator=20)
    weights = st.tuples(st.integers(1, 99), st.integers(-6, 6)).map(lambda case: case[0] * Fraction(10) ** case[1])
    pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4)
    cases = st.tuples(pairs, weights, st.integers(1, 100))

    def holds(case: tuple[list[tuple[Fraction, Fraction]], Fraction, int]) -> bool | None:
        entries, a, size = case
        at = Fraction(size, 1000) if statement.has_eps else Fraction(0)
        left, below = _norm([a * x + f for x, f in entries], at)
        right, under = _norm([x + Fraction(weight(a)) * f for x, f in entries], Fraction(share(a)) * at)
        if below == 0 or under == 0:  # without eps a constant stream has no norm
            return None if (below == 0) is (under == 0) else False
        pairs_ = zip(left, right, strict=True)
        return all(p * p * under == q * q * below and (p > 0) is (q > 0) for p, q in pairs_)

    found = search(cases, holds, max_examples=40)
    return Evidence(
        route=Route.PROPERTY,
        num_effective=found.num_effective,
        verdict=outcome(found.found is None),
        detail="in fractions, 1 to 4 entries, alpha from 10^-6 to 10^8: squares and signs of both sides",
    )


def _rescaled_in_torch(s: Rescaled) -> list[bool | None]:
    import torch

    generator = networks.rng(11)
    x, f = networks.normal(generator, 4, 16), networks.normal(generator, 4, 16)
    answers: list[bool | None] = []
    for power in range(-6, 7):
        a, at = 10.0**power, 1e-2 if s.has_eps else 0.0
        branch, share = (float(expr.subs(alpha, a)) for expr in (s.branch, s.eps_factor))
        left, right = networks.layer_norm(a * x + f, at), networks.layer_norm(x + branch * f, share * at)
        answers.append(bool(torch.allclose(left, right, rtol=0.0, atol=networks.ROUNDING)))
    return answers


_LN_CHECKS = (
    check(
        Route.PROOF,
        "three symbolic entries: the centred stream is alpha times the other, and with it its deviation",
        _rescaled_exactly,
        is_direct=True,
    ),
    Check(route=Route.PROPERTY, run=_rescaled_searched, is_direct=True),
    check(
        Route.MEASURED,
        "torch.nn.functional.layer_norm, alpha from 10^-6 to 10^6",
        _rescaled_in_torch,
        is_direct=True,
    ),
)
_NO_EPS = Rescaled(branch=1 / alpha, eps_factor=S.One, has_eps=False)
_WITH_EPS = Rescaled(branch=1 / alpha, eps_factor=alpha**-2, has_eps=True)
_S1_11 = Claim(
    id="S1-11",
    source="su",
    locator=f"{_FFN}, first equation",
    quote=r"\text{LN}(\alpha\boldsymbol{x}_l + F(\boldsymbol{x}_l)) = \text{LN}(\boldsymbol{x}_l + "
    r"F(\boldsymbol{x}_l)/\alpha)",
    summary="a weight alpha on the skip is 1/alpha on the branch, under the norm",
    parts=(
        Part(
            name="as printed, eps 0",
            statement=_NO_EPS,
            checks=_LN_CHECKS,
            mutants=(
                Mutant(name="alpha^-2", statement=replace(_NO_EPS, branch=alpha**-2)),
                Mutant(name="not weighted", statement=replace(_NO_EPS, branch=S.One)),
            ),
        ),
        Part(
            name="with LayerNorm's eps, which becomes eps/alpha^2",
            statement=_WITH_EPS,
            checks=_LN_CHECKS,
            mutants=(
                Mutant(name="the same eps", statement=replace(_WITH_EPS, eps_factor=S.One)),
                Mutant(name="eps/alpha", statement=replace(_WITH_EPS, eps_factor=1 / alpha)),
            ),
        ),
    ),
)


# ---------------------------------------------------------------- S1-13, S1-17: lambdas out of a branch


@dataclass(frozen=True, kw_only=True)
class PulledOut:
    """phi(x W1) W2 = ``factor`` phi(x U1) U2 with W = lambda U."""

    factor: Expr
    activation: str = "relu"

    @property
    def text(self) -> str:
        return f"phi(x W1) W2 = {self.factor} * phi(x U1) U2, phi = {self.activation}"


def _by_signs(s: PulledOut) -> list[bool | None]:
    """Two inputs, two hidden units, one output: for every pattern of signs of the preactivations, as polynomials.

    lambda_1 > 0 leaves the signs as they are, and under a pattern phi is one slope on each unit.
    """
    slopes = {"relu": (S.Zero, S.One), "leaky_relu": (S.One / 100, S.One)}.get(s.activation)
    if slopes is None:
        raise ValueError(f"{s.activation} is not linear on either side of 0")
    x, u1, u2 = scratch_matrix("x", 1, 2), scratch_matrix("U1", 2, 2), scratch_matrix("U2", 2, 1)
    answers: list[bool | None] = []
    for pattern in product(slopes, repeat=2):
        gate = Matrix(2, 2, lambda i, j, p=pattern: p[i] if i == j else 0)
        left, right = x * (lam1 * u1) * gate * (lam2 * u2), s.factor * (x * u1 * gate * u2)
        answers.append(bool((left - right)[0, 0].expand() == 0))
    return answers


_POWERS = (-9, -2, 0, 3, 8)


@cache
def _ffn_pieces() -> tuple[Any, Any, Any]:
    generator = networks.rng(13)
    return networks.normal(generator, 6, 16), networks.normal(generator, 16, 64), networks.normal(generator, 64, 16)


def _by_scaling(s: PulledOut) -> list[bool | None]:
    """Powers of two leave no rounding: the two sides are the same floating-point numbers, or they differ."""
    import torch

    x, u1, u2 = _ffn_pieces()
    answers: list[bool | None] = []
    for first, second in product(_POWERS, repeat=2):
        at = {lam1: S(2) ** first, lam2: S(2) ** second}
        left = networks.ffn(x, 2.0**first * u1, 2.0**second * u2, s.activation)
        answers.append(torch.equal(left, float(s.factor.subs(at)) * networks.ffn(x, u1, u2, s.activation)))
    return answers


_OUT = PulledOut(factor=lam1 * lam2)
_PULLED_CHECKS = (
    check(Route.PROOF, "every pattern of signs of two hidden units, as polynomials", _by_signs, is_direct=True),
    check(
        Route.MEASURED,
        "torch, width 16, 25 pairs of powers of two: the same floating-point numbers (with gelu they are not)",
        _by_scaling,
        is_direct=True,
    ),
)
_S1_13 = Claim(
    id="S1-13",
    source="su",
    locator=f"{_FFN}, third equation",
    quote=r"\text{LN}(\underbrace{\boldsymbol{x}_l + \lambda_1 \lambda_2 \phi(\boldsymbol{x}_l \boldsymbol{U}_1)"
    r"\boldsymbol{U}_2/\alpha}_{\text{denoted as }\boldsymbol{z}_{l+1}})",
    summary="phi(x W1) W2 = lambda_1 lambda_2 phi(x U1) U2 for a homogeneous phi",
    uses=("S1-12",),
    parts=tuple(
        Part(
            name=name,
            statement=replace(_OUT, activation=name),
            checks=_PULLED_CHECKS,
            mutants=(
                Mutant(name="lambda_1^2", statement=PulledOut(factor=lam1**2 * lam2, activation=name)),
                Mutant(name="the sum", statement=PulledOut(factor=lam1 + lam2, activation=name)),
                Mutant(name="gelu", statement=replace(_OUT, activation="gelu")),
            ),
        )
        for name in ("relu", "leaky_relu")
    ),
)

_SOFTMAX = Values.of(inside=lam_q * lam_k, outside=lam_v * lam_o / alpha)


def _attention_symbolic(s: Values) -> list[bool | None]:
    """Two tokens, width two: the softmax's argument, and what any softmax P of it multiplies."""
    x, p = scratch_matrix("x", 2, 2), scratch_matrix("P", 2, 2)
    q, k, v, o = (scratch_matrix(f"U_{name}", 2, 2) for name in "qkvo")
    argument = x * (lam_q * q) * (lam_k * k).T * x.T - s["inside"] * (x * q * k.T * x.T)
    branch = p * x * (lam_v * v) * (lam_o * o) / alpha - s["outside"] * (p * x * v * o)
    return [bool(entry.expand() == 0) for entry in (*argument, *branch)]


def _attention_scaled(s: Values) -> list[bool | None]:
    """Powers of two, as for the FFN: attention with W against attention with U."""
    import torch

    generator = networks.rng(17)
    x = networks.normal(generator, 6, 8)
    u = [networks.normal(generator, 8, 8) / 3 for _ in range(4)]
    answers: list[bool | None] = []
    for powers in ((-1, 2, 3, -4, 1), (0, 0, 0, 0, 0), (2, -3, -5, 1, -2), (1, 1, 1, 1, 1), (-4, 1, 2, 2, 3)):
        at = {letter: S(2) ** e for letter, e in zip((lam_q, lam_k, lam_v, lam_o, alpha), powers, strict=True)}
        w = [2.0**e * matrix for e, matrix in zip(powers, u, strict=False)]
        left = networks.attention(x, *w) / 2.0 ** powers[4]
        inside, outside = (float(s[name].subs(at)) for name in ("inside", "outside"))
        logits = inside * (x @ u[0] @ (x @ u[1]).transpose(-1, -2))
        answers.append(torch.equal(left, outside * (logits.softmax(-1) @ x @ u[2] @ u[3])))
    return answers


_S1_17 = claim(
    "S1-17",
    source="su",
    locator=f"{_ATTENTION}, second equation",
    quote=r"\lambda_v\lambda_o \sigma (\lambda_q\lambda_k\boldsymbol{x}_l \boldsymbol{U}_q\boldsymbol{U}_k^{\top}"
    r"\boldsymbol{x}_l^{\top})\boldsymbol{x}_l\boldsymbol{U}_v\boldsymbol{U}_o/\alpha",
    summary="attention with W = lambda U: lambda_q lambda_k inside the softmax, lambda_v lambda_o/alpha outside",
    statement=_SOFTMAX,
    checks=(
        check(Route.PROOF, "two tokens of width two, as polynomials, any softmax", _attention_symbolic, is_direct=True),
        check(
            Route.MEASURED,
            "torch, six tokens, powers of two: the same floating-point numbers",
            _attention_scaled,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="all outside", statement=Values.of(inside=1, outside=lam_q * lam_k * lam_v * lam_o / alpha)),
        Mutant(name="no alpha", statement=_SOFTMAX.with_(outside=lam_v * lam_o)),
        Mutant(name="q alone", statement=_SOFTMAX.with_(inside=lam_q)),
    ),
)


# ---------------------------------------------------------------- S1-14, S1-19: derivatives of z

_SETTINGS = ((1.0, 1.0, 1.0), (0.3, 2.0, 1.0), (1.7, 0.2, 0.5), (0.01, 30.0, 4.0))
"""(first lambda, second lambda, alpha)."""


def _branch_by(kind: str) -> Callable[..., Any]:
    """The branch as a function of its two scaled matrices: an FFN, or attention with its own q and k."""
    generator = networks.rng(14)
    x = networks.layer_norm(networks.normal(generator, 5, 12))
    q, k = (networks.normal(generator, 12, 12) / 4 for _ in range(2))
    if kind == "attention":
        return lambda v, o: networks.attention(x, q, k, v, o)
    return lambda first, second: networks.ffn(x, first, second, kind)


@cache
def _z_derivatives(kind: str) -> tuple[tuple[tuple[float, float, float], Any, Any, Any, float, float], ...]:
    """By setting: it, dz/dlambda of both matrices, the branch at gains 1, and dL/dlambda of both behind a LayerNorm."""
    import torch

    generator = networks.rng(15)
    branch, head = _branch_by(kind), networks.normal(generator, 5, 12)
    units = [networks.normal(generator, 12, 12) / math.sqrt(12) for _ in range(2)]
    found = []
    for setting in _SETTINGS:
        lams = torch.tensor(setting[:2], dtype=head.dtype)

        def stream(gains: Any, weight: float = setting[2]) -> Any:
            return head.flip(0) + branch(gains[0] * units[0], gains[1] * units[1]) / weight

        jacobian: Any = torch.autograd.functional.jacobian(stream, lams)
        leaf = lams.clone().requires_grad_()
        loss = (head * networks.layer_norm(stream(leaf), 1e-5)).sum()
        (both,) = torch.autograd.grad(loss, leaf)
        unit = branch(*units)
        found.append((setting, jacobian[..., 0], jacobian[..., 1], unit, float(both[0]), float(both[1])))
    return tuple(found)


def _by_autograd(kind: str, names: tuple[str, str], letters: tuple[Expr, Expr]) -> Check:
    def decide(s: Values) -> list[bool | None]:
        import torch

        answers: list[bool | None] = []
        for setting, *jacobians, unit, _, _ in _z_derivatives(kind):
            at = dict(zip((*letters, alpha), setting, strict=True))
            for name, jacobian in zip(names, jacobians, strict=True):
                answers.append(torch.allclose(jacobian, float(s[name].subs(at)) * unit, rtol=networks.ROUNDING))
        return answers

    return check(Route.MEASURED, f"autograd through {kind} with W = lambda U, four settings", decide, is_direct=True)


def _by_product(names: tuple[str, str], letters: tuple[Expr, Expr]) -> Check:
    """z = x + lambda lambda' V/alpha for the unit branch V, differentiated."""

    def decide(s: Values) -> list[bool | None]:
        x, unit = scratch("x", real=True), scratch("V", real=True)
        z = x + letters[0] * letters[1] * unit / alpha
        return [
            bool((z.diff(letter) - s[name] * unit).expand() == 0) for name, letter in zip(names, letters, strict=True)
        ]

    return check(Route.PROOF, "the product rule on z", decide, is_direct=True)


def _derivatives_part(
    name: str, kind: str, names: tuple[str, str], letters: tuple[Expr, Expr], statement: Values
) -> Part:
    first, second = names
    return Part(
        name=name,
        statement=statement,
        checks=(_by_product(names, letters), _by_autograd(kind, names, letters)),
        mutants=(
            Mutant(
                name="swapped",
                statement=statement.with_(**{first: statement[second], second: statement[first]}),
            ),
            Mutant(name="no alpha", statement=statement.with_(**{first: letters[1]})),
            Mutant(name="both", statement=statement.with_(**{second: letters[0] * letters[1] / alpha})),
        ),
    )


_Z_FFN = Values.of(dz_dlambda_1=lam2 / alpha, dz_dlambda_2=lam1 / alpha)
_RATIO = Values.of(ratio=lam2 / lam1)


def _ratio_by_product(s: Values) -> list[bool | None]:
    """dL/dlambda_1 over dL/dlambda_2, whatever arrives from above."""
    arriving, unit = scratch("J", real=True), scratch("V", real=True)
    z = lam1 * lam2 * unit / alpha
    return [algebra.equal((arriving * z.diff(lam1) / (arriving * z.diff(lam2))).cancel(), s["ratio"])]


def _ratio_by_autograd(s: Values) -> list[bool | None]:
    answers: list[bool | None] = []
    for setting, *_, first, second in _z_derivatives("relu"):
        printed = float(s["ratio"].subs(dict(zip((lam1, lam2), setting, strict=False))))
        answers.append(abs(first / second / printed - 1) < 1e-6)
    return answers


_S1_14 = Claim(
    id="S1-14",
    source="su",
    locator=f"{_FFN}, fourth equation",
    quote=r"\frac{\partial \boldsymbol{z}_{l+1}}{\partial \lambda_1} = \frac{\partial \mathcal{L}}{\partial "
    r"\boldsymbol{x}_{l+1}}\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}\frac{\lambda_2 "
    r"\phi(\boldsymbol{x}_l \boldsymbol{U}_1)\boldsymbol{U}_2}{\alpha}",
    summary="dz/dlambda_1 = lambda_2 phi(x U1) U2/alpha, dz/dlambda_2 = lambda_1 (the same)",
    uses=("S1-13",),
    parts=(
        _derivatives_part("the derivatives of z", "relu", ("dz_dlambda_1", "dz_dlambda_2"), (lam1, lam2), _Z_FFN),
        Part(
            name="so lambda_1 dL/dlambda_1 = lambda_2 dL/dlambda_2",
            statement=_RATIO,
            checks=(
                check(Route.PROOF, "the chain rule, J from above", _ratio_by_product, is_direct=True),
                check(
                    Route.MEASURED,
                    "autograd through relu and LayerNorm (for every W2 it asks u phi'(u) = phi(u): a homogeneous phi)",
                    _ratio_by_autograd,
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="upside down", statement=Values.of(ratio=lam1 / lam2)),
                Mutant(name="equal", statement=Values.of(ratio=1)),
            ),
        ),
    ),
)
_S1_19 = Claim(
    id="S1-19",
    source="su",
    locator=f"{_ATTENTION}, third equation",
    quote=r"\frac{\partial \boldsymbol{z}_{l+1}}{\partial \lambda_v} = \frac{\partial \mathcal{L}}{\partial "
    r"\boldsymbol{x}_{l+1}}\frac{\partial \boldsymbol{x}_{l+1}}{\partial \boldsymbol{z}_{l+1}}\frac{\lambda_o \sigma "
    r"(\lambda_q\lambda_k\boldsymbol{x}_l \boldsymbol{U}_q\boldsymbol{U}_k^{\top}\boldsymbol{x}_l^{\top})"
    r"\boldsymbol{x}_l\boldsymbol{U}_v\boldsymbol{U}_o}{\alpha}",
    summary="dz/dlambda_v = lambda_o (the branch)/alpha, dz/dlambda_o = lambda_v (the branch)/alpha",
    uses=("S1-17",),
    parts=(
        _derivatives_part(
            "as printed",
            "attention",
            ("dz_dlambda_v", "dz_dlambda_o"),
            (lam_v, lam_o),
            Values.of(dz_dlambda_v=lam_o / alpha, dz_dlambda_o=lam_v / alpha),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S1_11, _S1_13, _S1_14, _S1_17, _S1_19)
