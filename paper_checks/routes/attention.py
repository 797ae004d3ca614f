r"""Attention and its averages: exact one-layer formulas, real networks, and the statement about weighted tokens.

One query sees T tokens x_j through weights p_j = softmax(a_j), a_j = lambda_q lambda_k u . x_j, and gives W xbar,
xbar = sum_j p_j x_j. Then, for every loss,

    lambda_v dL/dlambda_v = g . xbar,      lambda_q dL/dlambda_q = g . sum_j p_j (a_j - abar) x_j,

where g is what arrives behind W. Nothing here reads ``theory``. Letters: B batch, T tokens, D width, R runs (seeds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from sympy import Expr, Integer, Rational, Symbol, exp, expand, simplify, symbols

from paper_checks.routes.intervals import Interval, of_logs
from paper_checks.routes.second_meanfield import Coefficients, coefficients

RUNS = 16
"""Independent seeds of a measurement: networks, inputs and readouts."""
DEEPEST = 16
"""Sublayers of the deepest stack that is measured."""


# ---------------------------------------------------------------- one layer, exactly

_s, _d, _T = symbols("s d T", positive=True)


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

    Sums over tokens of p_j^2 (a_j - abar)^2 and of p_j^2, with logits of variance s^2.
    """
    mean = tilted_mean()
    zeroth, first, second = (_moment(power, 2 * _s) for power in range(3))
    return expand(simplify(_s**2 * (second - 2 * mean * first + mean**2 * zeroth) / zeroth))


def noise() -> Expr:
    """n, the squared length of the noise in xbar where a token's mean square is 1: d sum_j p_j^2 = d e^(s^2)/T."""
    return simplify(_d / _T * _moment(0, 2 * _s) / _moment(0, _s) ** 2)


def ratio_law(noise_square: Expr) -> Expr:
    """The ratio for T >> 1 whatever d/T: squared lengths of the tilted mean and of the noise add up, moved and not."""
    mean = tilted_mean()
    moved = noise_square * independent_ratio() + (_s * mean.diff(_s)) ** 2
    return simplify(moved / (noise_square + mean**2))


def at_shape(law: Expr, num_tokens: int, width: int, variance: float) -> float:
    """A number of the letters s, d, T."""
    return float(law.subs({_T: num_tokens, _d: width, _s: math.sqrt(variance)}))


def linear_two_tokens(scale: Expr) -> Expr:
    """``two_tokens`` at power 2 of the linear weights (1 +- delta/2)/2: E delta^2/2 over E(2 + delta^2/2)."""
    return scale**2 / (2 + scale**2)


def two_tokens(scale: float, power: int) -> float:
    """2 E[(p_1 p_2)^2 delta^power] / E[p_1^2 + p_2^2] of two independent tokens; delta, the difference, of N(0, 2 s^2).

    power 2: the ratio of the squared gradients of lambda_q and lambda_v. power 0: half of the matrices' ratio, over
    |k|^2, for |dL/dW_q|^2 has |k_1 - k_2|^2 = 2 |k|^2 in the place of delta^2. By quadrature.
    """
    import numpy as np
    from scipy.integrate import quad

    def mean(f: Callable[[Any], Any]) -> float:
        """Even f of delta/2, against the density; the weights live within some tens of zero."""

        def density(u: float) -> float:
            return 2 * math.exp(-(u**2) / scale**2) / (scale * math.sqrt(math.pi))

        end = 9 * scale
        cuts = [point for point in (1.0, 4.0, 20.0) if point < end]
        edges = [0.0, *cuts, end]
        return sum(quad(lambda u: f(u) * density(u), a, b)[0] for a, b in pairwise(edges))

    def product(u: float) -> float:
        return float(1 / (4 * np.cosh(min(u, 300.0)) ** 2))

    return 2 * mean(lambda u: product(u) ** 2 * (2 * u) ** power) / mean(lambda u: 1 - 2 * product(u))


PARALLEL = Rational(9, 10)
"""The cosine of tokens that are called parallel."""


def effect(factor: str, regime: str, *, is_scaled: bool) -> float:
    """The ratio without that factor over the ratio with it.

    regime: "long", T >> d; "wide", d >> T, of two tokens, where logits that are not scaled are of any size.
    """
    if factor == "many tokens":
        return 1.0
    if regime == "wide":
        if factor != "the softmax":
            raise ValueError(f"no exact effect of {factor} is written here where d >> T")
        scale = 1 if is_scaled else 10**4
        return float(linear_two_tokens(Integer(scale))) / two_tokens(float(scale), 2)
    softmax = long_ratio(tilted_mean())
    other = {
        "the softmax": lambda: long_ratio(linear_mean()) / softmax,
        "parallel tokens": lambda: softmax / long_ratio(tilted_mean(), PARALLEL),
    }[factor]()
    return float(other.subs({_s: 1 if is_scaled else 8, _d: 64}))


# ---------------------------------------------------------------- one layer, measured


class Measured(NamedTuple):
    """Intervals of the ratio of squared gradients, q to v: of the scalars lambda, and of the matrices (Frobenius)."""

    scalars: Interval
    matrices: Interval


def draws(models: Sequence[Any]) -> dict[str, Any]:
    """The parameters of networks of one shape, stacked by run."""
    import torch

    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([each[name].detach() for each in named]).requires_grad_() for name in named[0]}


def together(model: Any, ask: Callable[[Any, Any], Any] | None = None) -> Any:
    """A network as a function of parameters stacked by run and of inputs (R, ...); ``ask``: instead of its output."""
    import torch

    class Asked(torch.nn.Module):
        """So that whatever is asked of the model sees the parameters that it is given."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> Any:
            return ask(self.model, x) if ask else self.model(x)

    asked = Asked()

    def one(values: dict[str, Any], x: Any) -> Any:
        return torch.func.functional_call(asked, {f"model.{name}": value for name, value in values.items()}, (x,))

    return torch.vmap(one)


def squares_by_role(model: Any, stacked: dict[str, Any], scalar: Any) -> dict[str, Any]:
    """Squared gradients of a scalar, summed over the matrices of each role: (R,) by role."""
    import torch

    sums: dict[str, Any] = {}
    for name, grad in zip(stacked, torch.autograd.grad(scalar, list(stacked.values())), strict=True):
        role = model.roles[name]
        sums[role] = sums.get(role, 0) + grad.square().flatten(1).sum(1)
    return sums


def inputs(
    batch: int, num_tokens: int, width: int, seed: int, cosine: float = 0.0, runs: int = RUNS
) -> tuple[Any, Any]:
    """Tokens of one mean cosine behind a LayerNorm and a normal readout for each, both (R, B, T, D)."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shape = (runs, batch, num_tokens, width)
    x_RBTD = torch.randn(shape, generator=generator, dtype=torch.float64)
    if cosine:
        common = torch.randn((runs, batch, 1, width), generator=generator, dtype=torch.float64)
        x_RBTD = math.sqrt(cosine) * common + math.sqrt(1 - cosine) * x_RBTD
    x_RBTD = torch.nn.functional.layer_norm(x_RBTD, (width,), eps=0.0)
    return x_RBTD, torch.randn(shape, generator=generator, dtype=torch.float64)


@cache
def one_layer(
    num_tokens: int, width: int, *, is_scaled: bool = True, cosine: float = 0.0, weights: str = "softmax"
) -> Measured:
    """A real attention layer at gain 1, tokens of a LayerNorm; the scalars' squares averaged over all directions of g.

    d out/d lambda comes from differentiating the backward pass by what arrives, so no loss has to be chosen.
    """
    import torch

    from sims.model import ModelConfig, SublayerConfig, Transformer

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
    models = [{"softmax": Transformer, "linear": Linear}[weights](config, seed) for seed in range(RUNS)]
    stacked, run = draws(models), together(models[0])
    x_RBTD, readout_RBTD = inputs(max(1, 128 // num_tokens), num_tokens, width, 1000, cosine)
    ones = {role: torch.ones((RUNS, 1, 1), dtype=torch.float64, requires_grad=True) for role in "qv"}
    scaled = {name: w.detach() * ones.get(models[0].roles[name], 1.0) for name, w in stacked.items()}
    out_RBTD = run(scaled, x_RBTD)
    arriving = torch.zeros_like(out_RBTD, requires_grad=True)
    probes = torch.autograd.grad(out_RBTD, list(ones.values()), arriving, create_graph=True)
    each = [torch.autograd.grad(probe.sum(), arriving, retain_graph=True)[0] for probe in probes]
    moved = dict(zip("qv", (one.square().flatten(1).sum(1) for one in each), strict=True))
    squares = squares_by_role(models[0], stacked, (run(stacked, x_RBTD) * readout_RBTD).sum())
    return Measured(*(of_logs((each["q"] / each["v"]).log().tolist()) for each in (moved, squares)))


@cache
def many_tokens(num_tokens: int, width: int, variance: float) -> Interval:
    """The ratio of the scalars' squares in xbar itself: 32 queries for each set of tokens, logits of that variance."""
    import torch

    logs = []
    for seed in range(RUNS):
        generator = torch.Generator().manual_seed(seed)
        x_TD = torch.randn((num_tokens, width), generator=generator, dtype=torch.float64)
        u_QD = math.sqrt(variance / width) * torch.randn((32, width), generator=generator, dtype=torch.float64)
        a_QT = u_QD @ x_TD.T
        p_QT = a_QT.softmax(-1)
        moved_QT = p_QT * (a_QT - (p_QT * a_QT).sum(-1, keepdim=True))
        logs.append(math.log(float((moved_QT @ x_TD).square().sum() / (p_QT @ x_TD).square().sum())))
    return of_logs(logs)


@cache
def _stack_draws() -> dict[str, Any]:
    """Of ``RUNS`` stacks of gain 1 as deep as any."""
    from sims.model import ModelConfig, Transformer, alternating

    config = ModelConfig(encoder=alternating(DEEPEST), d_model=32)
    return draws([Transformer(config, seed) for seed in range(RUNS)])


def stack(
    network: Coefficients, length: int, kind: Callable[..., Any] | None = None, **rest: Any
) -> tuple[Any, dict[str, Any]]:
    """A real Transformer of ``length`` sublayers, width 32, and its matrices by run: a gain on v, out, fc1 and fc2."""
    from sims.model import ModelConfig, Transformer, alternating

    encoder = alternating(length, residual_weight=network.residual_weight)
    config = ModelConfig(encoder=encoder, placement=network.placement, d_model=32, **rest)
    model = (kind or Transformer)(config, 0)
    gains = {name: 1.0 if role in "qk" else network.gain_in for name, role in model.roles.items()}
    plain = _stack_draws()
    return model, {name: (gain * plain[name].detach()).requires_grad_() for name, gain in gains.items()}


@cache
def query_shares(scheme: str, length: int, *, is_scaled: bool) -> tuple[float, ...]:
    """log of the share of q and k in the squared gradients of all matrices, by run; 2 inputs of 16 tokens."""
    model, stacked = stack(coefficients(scheme, length), length, attention_scale=None if is_scaled else 1.0)
    x_RBTD, readout_RBTD = inputs(2, 16, 32, 100)
    squares = squares_by_role(model, stacked, (together(model)(stacked, x_RBTD) * readout_RBTD).sum())
    return tuple(((squares["q"] + squares["k"]) / sum(squares.values())).log().tolist())
