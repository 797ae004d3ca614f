r"""Attention and its averages: exact one-layer formulas, real networks, and the statement about weighted tokens.

One query sees T tokens x_j through weights p_j = softmax(a_j), a_j = lambda_q lambda_k u . x_j, and gives W xbar,
xbar = sum_j p_j x_j. Then, for every loss,

    lambda_v dL/dlambda_v = g . xbar,      lambda_q dL/dlambda_q = g . sum_j p_j (a_j - abar) x_j,

where g is what arrives behind W. Nothing here reads ``theory``. Letters: B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from sympy import Expr, Integer, Rational, S, Symbol, exp, expand, simplify, symbols

from paper_checks.checks import check, outcome
from paper_checks.claim import Check, Evidence, Route
from paper_checks.direct import NETWORKS
from paper_checks.search import search

ERRORS = 4.0
"""Standard errors to either side of a measured mean."""


class Interval(NamedTuple):
    low: float
    high: float

    def within(self, low: float, high: float) -> bool | None:
        """Whether the measured number lies there: None where the interval reaches over an end."""
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or self.low > high else None

    @property
    def text(self) -> str:
        return f"{self.low:.2g} to {self.high:.2g}"


def interval(samples: Sequence[float]) -> Interval:
    """The mean of independent samples, ``ERRORS`` standard errors to either side."""
    mean = math.fsum(samples) / len(samples)
    variance = math.fsum((x - mean) ** 2 for x in samples) / (len(samples) - 1)
    half = ERRORS * math.sqrt(variance / len(samples))
    return Interval(mean - half, mean + half)


def of_logs(samples: Sequence[float]) -> Interval:
    """The geometric mean of positive samples whose logarithms these are."""
    low, high = interval(samples)
    return Interval(math.exp(low), math.exp(high))


# ---------------------------------------------------------------- one layer, exactly

_s, _d = symbols("s d", positive=True)


def _moment(power: int, tilt: Expr) -> Expr:
    """E[x^power e^(tilt x)] of a standard normal x, from its moment generating function e^(t^2/2)."""
    t = Symbol("t", positive=True)
    return exp(t**2 / 2).diff(t, power).subs(t, tilt) if power else exp(tilt**2 / 2)


def tilted_mean() -> Expr:
    """E[x e^(s x)] / E[e^(s x)]: what softmax weights make of very many tokens, along the logit's direction."""
    return simplify(_moment(1, _s) / _moment(0, _s))


def linear_mean() -> Expr:
    """E[x (1 + s x)]: what the row-normalised weights (1 + a - mean a)/T make of them."""
    t = Symbol("t", positive=True)
    first, second = (exp(t**2 / 2).diff(t, power).subs(t, 0) for power in (1, 2))
    return first + _s * second


def long_ratio(mean: Expr, cosine: Expr | int = 0) -> Expr:
    """(lambda_q dL/dlambda_q)^2 over that of lambda_v for T >> d, both averaged over g.

    Tokens share a part of squared length ``cosine`` of the whole; ``mean`` is that of the weights along the logit's
    direction, where alone xbar differs from the common part. xbar' by lambda_q is s d(mean)/ds.
    """
    moved = (1 - cosine) * _s * mean.diff(_s)
    return (moved**2 / (cosine * _d + ((1 - cosine) * mean) ** 2)).simplify()


def independent_ratio() -> Expr:
    """The same ratio for d >> T >> 1, where the noise of T independent tokens is all: s^2 + s^4.

    Sums over tokens of p_j^2 (a_j - abar)^2 and of p_j^2, with logits of variance s^2. In between the two add up: it is
    (n (s^2 + s^4) + s^2)/(n + s^2) with n = d e^(s^2)/T.
    """
    mean = tilted_mean()
    zeroth, first, second = (_moment(power, 2 * _s) for power in range(3))
    return expand(simplify(_s**2 * (second - 2 * mean * first + mean**2 * zeroth) / zeroth))


def two_tokens(scale: float, power: int) -> float:
    """2 E[(p_1 p_2)^2 delta^power] / E[p_1^2 + p_2^2] of two independent tokens; delta, the difference, of N(0, 2 s^2).

    power 2: the ratio of the squared gradients of lambda_q and lambda_v. power 0: half of the matrices' ratio, over
    |k|^2, for |dL/dW_q|^2 has |k_1 - k_2|^2 = 2 |k|^2 in the place of delta^2. By quadrature.
    """
    import numpy as np
    from scipy.integrate import quad

    def mean(f: Callable[[Any], Any]) -> float:
        """Even f of delta/2, against the density; the weights live within some tens of zero."""
        density = lambda u: 2 * math.exp(-(u**2) / scale**2) / (scale * math.sqrt(math.pi))  # noqa: E731
        end = 9 * scale
        cuts = [point for point in (1.0, 4.0, 20.0) if point < end]
        edges = [0.0, *cuts, end]
        return sum(quad(lambda u: f(u) * density(u), a, b)[0] for a, b in pairwise(edges))

    def product(u: float) -> float:
        return float(1 / (4 * np.cosh(min(u, 300.0)) ** 2))

    return 2 * mean(lambda u: product(u) ** 2 * (2 * u) ** power) / mean(lambda u: 1 - 2 * product(u))


# ---------------------------------------------------------------- one layer, measured


class Measured(NamedTuple):
    """Intervals of the ratio of squared gradients, q to v: of the scalars lambda, and of the matrices (Frobenius)."""

    scalars: Interval
    matrices: Interval


@cache
def one_layer(
    num_tokens: int, width: int, *, is_scaled: bool = True, cosine: float = 0.0, weights: str = "softmax"
) -> Measured:
    """A real attention layer at gain 1 by autograd, tokens of a LayerNorm; averaged over all directions of g.

    d out/d lambda comes from differentiating the backward pass by what arrives, so no loss has to be chosen.
    """
    import torch

    from sims.model import ModelConfig, SublayerConfig, Transformer, by_role, gradients

    class Linear(Transformer):
        """Row-normalised weights without an exponential."""

        def attend(self, scores_BHTS: torch.Tensor) -> torch.Tensor:
            return (1 + scores_BHTS - scores_BHTS.mean(-1, keepdim=True)) / scores_BHTS.shape[-1]

    config = ModelConfig(
        encoder=(SublayerConfig(kind="attention"),),
        placement="none",
        d_model=width,
        attention_scale=None if is_scaled else 1.0,
    )
    scalars, matrices = [], []
    for seed in range(10):
        model = {"softmax": Transformer, "linear": Linear}[weights](config, seed)
        x_BTD, generator = tokens(max(2, 256 // num_tokens), num_tokens, width, 1000 + seed, cosine)
        ones = {role: torch.ones((), dtype=torch.float64, requires_grad=True) for role in "qv"}
        scaled = {name: w.detach() * ones.get(model.roles[name], 1.0) for name, w in model.named_parameters()}
        out_BTD = torch.func.functional_call(model, scaled, (x_BTD,))
        arriving = torch.zeros_like(out_BTD, requires_grad=True)
        probes = torch.autograd.grad(out_BTD, list(ones.values()), arriving, create_graph=True)
        moved = [torch.autograd.grad(probe, arriving, retain_graph=True)[0].square().mean() for probe in probes]
        scalars.append(math.log(float(moved[0] / moved[1])))
        readout_BTD = torch.randn(out_BTD.shape, generator=generator, dtype=torch.float64)
        squares = by_role(model, gradients(model, (model(x_BTD) * readout_BTD).sum()), lambda g: g.square().sum())
        matrices.append(math.log(squares["q"] / squares["v"]))
    return Measured(of_logs(scalars), of_logs(matrices))


def tokens(batch: int, num_tokens: int, width: int, seed: int, cosine: float = 0.0) -> tuple[Any, Any]:
    """Normal tokens of one mean cosine behind a LayerNorm, (B, T, D), and the generator that drew them."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    own_BTD = torch.randn((batch, num_tokens, width), generator=generator, dtype=torch.float64)
    common_B1D = torch.randn((batch, 1, width), generator=generator, dtype=torch.float64)
    x_BTD = math.sqrt(cosine) * common_B1D + math.sqrt(1 - cosine) * own_BTD
    x_BTD = x_BTD - x_BTD.mean(-1, keepdim=True)
    return x_BTD * x_BTD.square().mean(-1, keepdim=True).rsqrt(), generator


def stack(placement: str, length: int, alpha: float, gain: float, seed: int, **rest: Any) -> Any:
    """A real Transformer of ``length`` sublayers, ``gain`` on v, out, fc1 and fc2, q and k at 1."""
    from sims.model import ModelConfig, Transformer, alternating

    gains: dict[str, float] = dict.fromkeys(("v", "out", "fc1", "fc2"), gain)
    encoder = alternating(length, residual_weight=alpha, gains=gains)
    return Transformer(ModelConfig(**{"encoder": encoder, "placement": placement, "d_model": 32, **rest}), seed)


@cache
def query_shares(scheme: str, length: int) -> tuple[float, ...]:
    """log of the share of q and k in the squared gradients of all matrices, by seed; 4 inputs of 32 tokens."""
    import torch

    from sims.model import by_role, gradients

    network = NETWORKS[scheme]
    found = []
    for seed in range(4):
        model = stack(network.placement, length, network.residual_weight(length), network.gain(length), seed)
        x_BTD, generator = tokens(4, 32, 32, 100 + seed)
        out_BTD = model(x_BTD)
        readout_BTD = torch.randn(out_BTD.shape, generator=generator, dtype=torch.float64)
        squares = by_role(model, gradients(model, (out_BTD * readout_BTD).sum()), lambda g: g.square().sum())
        found.append(math.log((squares["q"] + squares["k"]) / sum(squares.values())))
    return tuple(found)


# ---------------------------------------------------------------- averages of tokens


@dataclass(frozen=True, kw_only=True)
class Average:
    """low <= |sum_j p_j x_j|^2 / |x|^2 <= high for tokens of one length and weights p.

    Among all sets of tokens whose cosines are at least ``min_cosine`` and whose effective number 1 / sum_j p_j^2 is at
    most ``max_tokens`` (None: any). low None: some number over 0, the same for all.
    """

    min_cosine: Expr = S.NegativeOne
    max_tokens: int | None = None
    low: Expr | None = None
    high: Expr = S.One

    def with_(self, **changes: Any) -> Average:
        return replace(self, **changes)

    def meets(self, min_cosine: float, num_effective: float) -> bool:
        return min_cosine >= self.min_cosine and (self.max_tokens is None or num_effective <= self.max_tokens)

    def allows(self, square: Any) -> bool:
        return (square > 0 if self.low is None else square >= self.low) and square <= self.high

    @property
    def text(self) -> str:
        low = "some c > 0" if self.low is None else str(self.low)
        where = [] if self.min_cosine == -1 else [f"cosines of at least {self.min_cosine}"]
        where += [] if self.max_tokens is None else [f"1/sum p_j^2 of at most {self.max_tokens}"]
        return f"{low} <= |sum p_j x_j|^2 / |x|^2 <= {self.high} for " + (" and ".join(where) or "any tokens, any p")


def least_average(statement: Average) -> Expr:
    """The least of p^T C p: rho + (1 - rho)/n, or 0; n = 1 / sum p_j^2 at most, cosines rho at least.

    p^T C p - rho - (1 - rho) sum p_j^2 = sum over i != j of p_i p_j (C_ij - rho) >= 0, and equal cosines rho attain it
    as long as there are such tokens; beyond that (rho < 0) tokens that add up to 0 do.
    """
    share = Integer(0) if statement.max_tokens is None else Rational(1, statement.max_tokens)
    least = statement.min_cosine + (1 - statement.min_cosine) * share
    return least if least > 0 else Integer(0)


@cache
def _identity() -> bool:
    """The identity of ``least_average`` for four tokens of any cosines and weights that sum to one."""
    rho = Symbol("rho", real=True)
    p = list(symbols("p1:4", positive=True))
    p.append(1 - sum(p))
    cosines = {(i, j): Symbol(f"c{i}{j}", real=True) for i in range(4) for j in range(i)}
    pairs = [(p[i] * p[j], c) for (i, j), c in cosines.items()]
    squares = sum(x**2 for x in p)
    whole = squares + 2 * sum(pp * c for pp, c in pairs)
    rest = 2 * sum(pp * (c - rho) for pp, c in pairs)
    return expand(whole - rho - (1 - rho) * squares - rest) == 0


def _by_identity(s: Average) -> list[bool | None]:
    """One token alone attains 1, the most (the triangle inequality)."""
    return [_identity(), s.allows(least_average(s)) and s.allows(Integer(1))]


class Case(NamedTuple):
    """Tokens of zero mean and unit variance with entries +-1: rows of a Hadamard matrix, with a part in common.

    rows, signs: by token. common: whether one half of each is the same for all (cosines 1/2 for 0, 0 for -1).
    """

    size: int
    rows: tuple[int, ...]
    signs: tuple[int, ...]
    weights: tuple[int, ...]
    common: bool

    def tokens(self) -> list[list[int]]:
        shared = [1, -1] * (self.size // 2) if self.common else []
        out = []
        for row, sign in zip(self.rows, self.signs, strict=True):
            own = [sign * (-1) ** (row & column).bit_count() for column in range(self.size)]
            out.append([*own, *shared])
        return out


def _cases() -> Any:
    """Two opposite tokens, small sets at random, and large ones of different rows and equal weights."""
    from hypothesis import strategies as st

    @st.composite
    def small(draw: Any) -> Case:
        size = 2 ** draw(st.integers(1, 4))
        one = st.tuples(st.integers(1, size - 1), st.sampled_from((1, -1)), st.integers(1, 9))
        rows, signs, weights = zip(*draw(st.lists(one, min_size=1, max_size=6)), strict=True)
        return Case(size, rows, signs, weights, draw(st.booleans()))

    @st.composite
    def large(draw: Any) -> Case:
        size = 2 ** draw(st.integers(2, 6))
        count = draw(st.integers(1, size - 1))
        return Case(size, tuple(range(1, count + 1)), (1,) * count, (1,) * count, draw(st.booleans()))

    opposite = Case(size=2, rows=(1, 1), signs=(1, -1), weights=(1, 1), common=False)
    return st.one_of(st.just(opposite), small(), large())


@cache
def _facts(case: Case) -> tuple[Fraction, float, float]:
    """|average|^2/|x|^2, the least cosine, and the effective number of tokens."""
    import numpy as np

    x_TD = np.array(case.tokens(), dtype=np.int64)
    p_T, length = np.array(case.weights), x_TD.shape[1]
    average = p_T @ x_TD
    square = Fraction(int(average @ average), int(p_T.sum()) ** 2 * length)
    return square, float((x_TD @ x_TD.T).min()) / length, int(p_T.sum()) ** 2 / int(p_T @ p_T)


def _search(case_command: str) -> Callable[[Any], Evidence]:
    def run(statement: Average) -> Evidence:
        def holds(case: Case) -> bool | None:
            square, cosine, num_effective = _facts(case)
            return statement.allows(square) if statement.meets(cosine, num_effective) else None

        found = search(_cases(), holds, max_examples=70)
        shown: dict[str, Any] | None = None
        if found.found is not None:
            case: Case = found.found
            square = _facts(case)[0]
            shown = {
                "printed": statement.text,
                "found": f"|sum p_j x_j|^2 / |x|^2 = {square} of {len(case.rows)} tokens of mean 0 and variance 1",
                "tokens": case.tokens()[:4],
                "weights": [str(Fraction(weight, sum(case.weights))) for weight in case.weights][:4],
                "command": case_command,
            }
        return Evidence(
            route=Route.PROPERTY,
            num_effective=found.num_effective,
            verdict=outcome(found.found is None),
            detail="tokens with entries +-1 of mean 0 and variance 1, up to 63 of them, and weights, exactly",
            counterexample=shown,
        )

    return run


def average_checks(id_: str) -> tuple[Check, ...]:
    """By an identity in the cosines; by a search over exact tokens; and by real attention over orthogonal tokens."""
    return (
        check(
            Route.PROOF,
            "p^T C p >= rho + (1 - rho) sum p_j^2, attained at equal cosines rho, or by tokens that add up to 0",
            _by_identity,
            is_direct=True,
            steps=lambda: ("p^T C p - rho - (1 - rho) sum_j p_j^2 = sum_{i != j} p_i p_j (C_ij - rho)",),
        ),
        Check(route=Route.PROPERTY, run=_search(f"depthlaw explain {id_}"), is_direct=True),
    )


@cache
def softmax_average(num_tokens: int, width: int = 384) -> tuple[Interval, float]:
    """|sum p_j x_j|^2/|x|^2 of real attention over orthogonal tokens of mean 0; the largest 1/sum p_j^2 of a query."""
    import torch

    from sims.model import ModelConfig, SublayerConfig, Transformer

    seen: list[torch.Tensor] = []

    class Watched(Transformer):
        def attend(self, scores_BHTS: torch.Tensor) -> torch.Tensor:
            seen.append(super().attend(scores_BHTS))
            return seen[-1]

    config = ModelConfig(encoder=(SublayerConfig(kind="attention"),), placement="none", d_model=width)
    frequency_T1 = torch.arange(1, num_tokens + 1, dtype=torch.float64)[:, None]
    place_D = torch.arange(width, dtype=torch.float64) + 0.5
    x_TD = math.sqrt(2) * torch.cos(math.pi / width * frequency_T1 * place_D)
    squares, effective = [], 0.0
    for seed in range(4):
        with torch.no_grad():
            Watched(config, seed)(x_TD[None])
        p_TS = seen.pop()[0, 0]
        squares.append(float((p_TS @ x_TD).square().sum(-1).mean()) / width)
        effective = max(effective, float((1 / p_TS.square().sum(-1)).max()))
    return interval(squares), effective


def by_softmax(s: Average) -> list[bool | None]:
    """Orthogonal tokens: cosine 0; None where the statement excludes them."""
    answers: list[bool | None] = []
    for num_tokens in (8, 48, 352):
        found, effective = softmax_average(num_tokens)
        if not s.meets(0.0, effective):
            continue
        low = 0.0 if s.low is None else float(s.low)
        answers.append(found.within(low, float(s.high)))
    return answers
