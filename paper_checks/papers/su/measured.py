"""What Su's article says of sums over matrices as depth grows, measured in real networks; nothing of theory/ is called.

What one step changes, per unit learning rate, is a sum over the branch matrices W of n entries with gradient g:
||g||_F^2 under SGD, ||g||_1 under Adam, ||W||_F ||g||_1/sqrt(n) under LAMB. Its power of depth is the slope of a line
through its logarithms, one slope per network, and the interval of their mean decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sympy import Expr, lambdify

from paper_checks.claims.claim import Check, Evidence, Route
from paper_checks.claims.statements import Growth, Values
from paper_checks.papers.su import networks as su_nets
from paper_checks.routes.checks import all_of, outcome
from paper_checks.routes.intervals import OF_FEW, interval
from sims.stats import slope_weights
from theory.symbols import L, N

HALFWAY = 1 / 8
"""The powers of depth of gains and gradients are multiples of 1/4: this is halfway from none to the nearest other."""
DEPTHS = (2, 5, 12)
"""Layers, of an attention and an FFN each."""
_WIDTH, _SEQUENCES, _TOKENS, _NUM_SEEDS = 32, 4, 4, 64

Member = tuple[Expr, Expr]
"""Residual weight and gain, in N."""


# ---------------------------------------------------------------- Transformers


class Sums(NamedTuple):
    """By network, over all branch matrices."""

    sgd: tuple[float, ...]
    adam: tuple[float, ...]
    lamb: tuple[float, ...]


def _config(placement: str, weight: float, num_layers: int) -> Any:
    from sims.model import ModelConfig, alternating

    sublayers = alternating(2 * num_layers, residual_weight=weight)
    return ModelConfig(encoder=sublayers, placement=placement, d_model=_WIDTH, ffn_ratio=1)


@cache
def _unit_matrices(num_layers: int) -> Mapping[str, Any]:
    """By name, the matrices of all networks at gain 1; every one is square."""
    from sims.model import Transformer

    names = [name for name, _ in Transformer(_config("post", 1.0, num_layers), 0).named_parameters()]
    generator = su_nets.rng(num_layers)
    return {name: su_nets.normal(generator, _NUM_SEEDS, _WIDTH, _WIDTH) / math.sqrt(_WIDTH) for name in names}


@cache
def _sums(placement: str, weight: float, gain: float, num_layers: int) -> Sums:
    """Of Transformers with one residual weight and every matrix at one gain, relu, all networks at once.

    L = <head, output> over all tokens of a few sequences. Tokens and heads have a stream of random numbers of their
    own, the same at every depth.
    """
    import torch
    from torch.func import functional_call, vmap

    from sims.model import Transformer

    model = Transformer(_config(placement, weight, num_layers), 0)
    matrices = {name: (gain * matrix).requires_grad_() for name, matrix in _unit_matrices(num_layers).items()}
    generator = su_nets.rng(1000)
    shape = (_NUM_SEEDS, _SEQUENCES, _TOKENS, _WIDTH)
    x_SBTD, head_SBTD = su_nets.normal(generator, *shape), su_nets.normal(generator, *shape)

    def loss(parameters: Any, x_BTD: Any, head_BTD: Any) -> Any:
        return (functional_call(model, parameters, (x_BTD,)) * head_BTD).sum() / head_BTD.norm()

    grads = torch.autograd.grad(vmap(loss)(matrices, x_SBTD, head_SBTD).sum(), list(matrices.values()))
    found: list[list[Any]] = [[], [], []]
    for matrix, grad in zip(matrices.values(), grads, strict=True):
        size = grad.abs().sum((1, 2))
        rms = matrix.detach().square().mean((1, 2)).sqrt()
        for kept, values in zip(found, (grad.square().sum((1, 2)), size, rms * size), strict=True):
            kept.append(values)
    return Sums(*(tuple(torch.stack(kept).sum(0).tolist()) for kept in found))


def _slopes(by_depth: Sequence[Sequence[float]]) -> list[float]:
    """By network, the power of depth: the slope of the least-squares line through the logarithms."""
    weights = slope_weights(np.log(DEPTHS))
    return (np.log(by_depth).T @ weights).tolist()


def _at_depths(optimizer: str, placement: str, member: Member) -> list[tuple[float, ...]]:
    found = []
    for num_layers in DEPTHS:
        weight, gain = (float(expr.subs(N, num_layers)) for expr in member)
        found.append(getattr(_sums(placement, weight, gain, num_layers), optimizer))
    return found


def _evidence(found: Mapping[str, tuple[str, list[float]]], detail: str) -> Evidence:
    """By name: the optimizer, and the slopes that are 0 if the statement holds. SGD's sum squares the gradient."""
    answers = []
    for optimizer, slopes in found.values():
        edge = 2 * HALFWAY if optimizer == "sgd" else HALFWAY
        answers.append(interval(slopes, OF_FEW).within(-edge, edge))
    return Evidence(
        route=Route.MEASURED,
        num_effective=len(found) * len(DEPTHS) * _NUM_SEEDS,
        verdict=outcome(all_of(answers)),
        detail=detail,
        numbers={
            name: [su_nets.shown(end, 2) for end in interval(slopes, OF_FEW)] for name, (_, slopes) in found.items()
        },
    )


_NETWORKS = f"real Transformers of {', '.join(map(str, DEPTHS))} layers, relu, {_NUM_SEEDS} each, every matrix counted"
_NEARER = "as an interval nearer to 0 than to the next other, 1/4 for gains and gradients and 1/2 for their squares"


def flat_sums(placement: str, members: Callable[[Values], Mapping[str, tuple[str, Member]]]) -> Check:
    """members: what the statement sets, by name: the optimizer, and (alpha, lambda). Its sum must not grow or fall."""

    def run(statement: Values) -> Evidence:
        found = {
            name: (optimizer, _slopes(_at_depths(optimizer, placement, member)))
            for name, (optimizer, member) in members(statement).items()
        }
        return _evidence(found, f"{_NETWORKS}: the power of depth of what one step changes, {_NEARER}")

    return Check(route=Route.MEASURED, run=run, is_direct=True)


def scaled_gradients(members: Mapping[str, Member]) -> Check:
    """The statement says of each member by what its gradients are those of alpha = lambda = 1 at the same depth."""

    def run(statement: Values) -> Evidence:
        from sympy import S

        original = _at_depths("sgd", "post", (S.One, S.One))
        found = {}
        for name, printed in statement:
            ratios = []
            for num_layers, own, first in zip(DEPTHS, _at_depths("sgd", "post", members[name]), original, strict=True):
                scale = float(printed.subs(N, num_layers))
                ratios.append([a / b / scale**2 for a, b in zip(own, first, strict=True)])
            found[name] = ("sgd", _slopes(ratios))
        return _evidence(
            found,
            f"{_NETWORKS}: squared gradients over those of alpha = lambda = 1 at the same depth and over the printed "
            f"square, the power of depth that is left, {_NEARER}",
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True)


# ---------------------------------------------------------------- vanilla stacks

_SHORT, _LONG = 4, 128
_STACK_WIDTH, _NUM_STACKS, _NUM_INPUTS = 48, 96, 8
_PRE = {"post-ln": False, "pre-ln": True}


@cache
def _stack_update(scheme: str, activation: str, length: int) -> tuple[float, ...]:
    """By network: the sum of ||dL/dW||^2/d of a stack of FFN sublayers, one input and one logit, mean over inputs.

    The gradient of a matrix at one input is what enters it times the gradient of what leaves it. Xavier uniform.
    """
    import torch

    if scheme not in _PRE or activation not in ("relu", "gelu"):
        raise ValueError(f"{scheme} with {activation} is not measured here")
    width, generator, is_pre = _STACK_WIDTH, su_nets.rng(length), _PRE[scheme]
    x, head = (su_nets.normal(generator, _NUM_STACKS, _NUM_INPUTS, width) for _ in "xh")
    x = su_nets.layer_norm(x).requires_grad_()
    entering, leaving = [], []
    for _ in range(length):
        u = su_nets.layer_norm(x) if is_pre else x
        for place in range(2):
            matrix = torch.from_numpy(generator.random((_NUM_STACKS, width, width)))
            entering.append(u)
            u = u @ matrix.sub_(0.5).mul_(math.sqrt(12 / width))
            leaving.append(u)
            u = su_nets.phi(activation)(u) if place == 0 else u
        x = x + u if is_pre else su_nets.layer_norm(x + u)
    logits = (su_nets.layer_norm(x) * head).sum() / math.sqrt(width)
    total = torch.zeros(_NUM_STACKS, _NUM_INPUTS, dtype=x.dtype)
    for u, grad in zip(entering, torch.autograd.grad(logits, leaving), strict=True):
        total += u.detach().square().sum(2) * grad.square().sum(2) / width
    return tuple(total.mean(1).tolist())


def _measured_growth(statement: Growth) -> Evidence:
    """The power of L by which the networks of the statement differ from the printed order."""
    if (statement.optimizer, statement.norm_kind, statement.is_upper) != ("sgd", "layernorm", False):
        raise ValueError(f"not measured here: {statement.text}")
    order = lambdify(L, statement.order, modules="math")
    short, long = (_stack_update(statement.scheme, statement.activation, length) for length in (_SHORT, _LONG))
    ratios = zip(short, long, strict=True)
    scale = math.log(order(_LONG) / order(_SHORT))
    powers = [(math.log(b / a) - scale) / math.log(_LONG / _SHORT) for a, b in ratios]
    return Evidence(
        route=Route.MEASURED,
        num_effective=2 * _NUM_STACKS,
        verdict=outcome(interval(powers, OF_FEW).within(-2 * HALFWAY, 2 * HALFWAY)),
        detail=f"real stacks of {_SHORT} and {_LONG} FFN sublayers as stated, {_NUM_STACKS} each: the power of L by "
        "which the sum of squared gradient norms differs from the printed order, as an interval. 'We can "
        "make' is read as: one network does, relu in Post-LN at gain 1. With gelu at gain 1 gradients grow "
        "exponentially (S3-10); in Pre-LN the sum is of order log N, which is O(N) but not in proportion to N",
        numbers={"power": [su_nets.shown(end, 2) for end in interval(powers, OF_FEW)]},
    )


MEASURED_GROWTH = Check(route=Route.MEASURED, run=_measured_growth, is_direct=True)
