r"""The kernel rung: the update of a real Transformer with softmax attention, by role, at infinite width.

It computes the second moments of ``theory.meanfield.update`` token by token. The Gram matrix of the tokens goes through
the sublayers (``walk``; an activation, ``duals``; a softmax, ``softmax``), that of the gradients comes back, and what
reaches a matrix from both sides is its part of the update (``update``; under Adafactor, ``factored``). Nothing is
fitted.

    x_l = norm_post(a_l x_{l-1} + b_l norm_branch(branch(c_l norm_pre(x_{l-1}))))
    ffn(u) = fc2(norm_inner(phi(fc1(u)))),   attention(u) = out(norm_inner(softmax(q k^T / sqrt(K)) v))

Each matrix is Xavier normal times its gain, Var = gain^2 2 / (fan_in + fan_out). Linear in the number of sublayers.

Exact as d_model and the number of heads go to infinity, but for the softmax averages, which are over fixed quasi-random
points; each answer has their error. With few heads, few of which carry a token's gradient, its size scatters: at one
head the embedding's ||g||_1 is 20 % less in one layer, and everything else within 7 %.

Gradients are taken to be independent of the signal (the weights that the signal passed are as good as drawn anew on the
way back), which holds in this limit for a random head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from depthlaw.theory.kernel.gram import Array, entry_sum, stacked
from depthlaw.theory.kernel.setting import Inputs, Sublayer, Transformer
from depthlaw.theory.kernel.update import MATRICES, Step, step_of, unit_power
from depthlaw.theory.kernel.visits import walk_of
from depthlaw.theory.kernel.walk import Sums, Totals, Walk, sets_at_once

__all__ = ["Inputs", "KernelUpdate", "Stream", "Sublayer", "Transformer", "predict_kernel", "unit_power"]

REPLICATES = 4
"""The number of independent sets of points, whose spread is the stated error."""
_SIDES = ("encoder", "decoder")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What one x_l is.

    second_moment: E x^2, the mean over tokens. token_correlation: the mean cosine of two tokens of a sequence, 1 where
    there is one. cosine_with_previous: of x_l and x_{l-1}, the mean over tokens: how nearly the sublayer is the
    identity; 1 at x_0. branch_share: what the branch adds, E (b F)^2 over that of the sum; 0 at x_0.
    log10_gradient_square: of ||d objective / d x||^2; -inf where no gradient reaches it.
    """

    second_moment: float
    token_correlation: float
    cosine_with_previous: float
    branch_share: float
    log10_gradient_square: float


@dataclass(frozen=True, kw_only=True)
class KernelUpdate:
    """The update by role, with the error of the quasi-random averages in it.

    update: of the branch matrices together. roles: each in the unit that ``unit_power`` names. error: relative standard
    error of the quasi-random averages, by role and of "update", from the spread of 4 sets of points (3 degrees of
    freedom). A bias of order 1/points that the sets share is not in it: in 1,000 sublayers and 16 tokens up to 0.5 % of
    a role, by comparison with eight times the points. An update beyond the floats is infinite; log10_update is not.
    sides, side_errors: "update" and the roles of the encoder alone, and of the decoder where there is one, with their
    errors; the sides add up to the whole. A single stack is called encoder, and the head is on the last side.
    streams: by side, of x_0, x_1, ...; of the last set of points. layers: by side, the roles of its first, second, ...
    sublayer, which add up to those of the side but for what stands outside; of the last set of points. gradients: in
    the same way, ||g|| of each matrix of its branch, over sqrt(d), whatever the optimizer.
    """

    update: float
    log10_update: float
    roles: Mapping[str, float]
    error: Mapping[str, float]
    sides: Mapping[str, Mapping[str, float]]
    side_errors: Mapping[str, Mapping[str, float]]
    streams: Mapping[str, Sequence[Stream]]
    layers: Mapping[str, Sequence[Mapping[str, float]]]
    gradients: Mapping[str, Sequence[Mapping[str, float]]]


def predict_kernel(
    network: Transformer,
    inputs: Inputs,
    optimizers: Sequence[str],
    *,
    advance: Callable[[float], None] = lambda _: None,
    effort: float = 1.0,
    replicates: int = REPLICATES,
    is_noise: bool = False,
) -> dict[str, KernelUpdate]:
    """The update of a real Transformer's first step, by optimizer and role, at infinite width.

    network: a ``Transformer``, plain numbers.
    inputs: what it is given and what of it is read, at most 512 tokens in all, counted at each visit of a layer.
    optimizers: names of ``theory.optimizers.OPTIMIZERS`` or ``MIXED``.
    advance: told, as it goes, how many sublayers were passed, two for each (forward and backward).
    effort: how many quasi-random points, in units of what is usual. replicates: sets of them;
        one alone has no error, which is then NaN.
    is_noise: of a step whose entries are as large as the optimizer's, in a direction that is independent of the
        gradient: the root mean square of what it changes, by role of the branches' matrices, in the unit of
        ``theory.kernel.update.noise_power``; roles add up in quadrature.

    The sublayers' learning-rate multipliers are inside. Assumes infinite width and infinitely many heads; each answer
    has its quasi-random error, but not that of the width, of order L/d. Each role is in a unit of its own,
    d^-``unit_power`` of the matrices'. ValueError, in one line, for unknown optimizers.

    >>> from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
    >>> from depthlaw.theory.stack import SublayerKind
    >>> layer = (Sublayer(kind=SublayerKind.SELF), Sublayer(kind=SublayerKind.FFN))
    >>> network, inputs = Transformer(encoder=2 * layer, placement="post"), Inputs(num_tokens=4)
    >>> found = predict_kernel(network, inputs, ["sgd", "adam"])
    >>> sorted(found["sgd"].roles)
    ['bias', 'embedding', 'fc1', 'fc2', 'head', 'k', 'norm_bias', 'norm_gain', 'out', 'q', 'v']
    >>> round(found["sgd"].update, 2), found["sgd"].error["update"] < 0.02
    (4.36, True)
    >>> [round(x.token_correlation, 2) for x in found["sgd"].streams["encoder"]]
    [0.0, 0.18, 0.24, 0.45, 0.48]
    """
    steps = {name: step_of(name, is_noise=is_noise) for name in optimizers}
    runs: list[Totals] = []
    streams: dict[str, list[Stream]] = {}
    gradients: dict[str, list[dict[str, float]]] = {}
    together = sets_at_once(network, inputs, effort)
    for first in range(0, replicates, together):
        sets = range(first, min(first + together, replicates))
        walk = walk_of(network, inputs, frozenset(steps.values()), sets, effort)
        share = len(sets) / replicates
        walk.run(lambda passed, share=share: advance(passed * share))
        runs.append(walk.totals())
        if sets[-1] == replicates - 1:
            streams, gradients = _streams(walk, inputs), _gradients(walk)
    return {name: _answer(step, [run[step] for run in runs], streams, gradients) for name, step in steps.items()}


def _gradients(walk: Walk) -> dict[str, list[dict[str, float]]]:
    """See ``KernelUpdate``. A norm beyond the floats is infinite."""
    sides = [[dict[str, float]() for _ in side] for side in walk.network.sides]
    for entry in walk.parts:
        if entry.part.role in MATRICES:
            with np.errstate(over="ignore"):
                squares = entry.linear * np.exp(entry.exponent) * entry.part.square
            for place, square in zip(entry.places, squares[:, -1].tolist(), strict=True):
                if place is not None:
                    of_layer = sides[entry.side][place]
                    of_layer[entry.part.role] = of_layer.get(entry.part.role, 0.0) + square
    return {
        name: [{role: math.sqrt(max(square, 0.0)) for role, square in of_layer.items()} for of_layer in side]
        for name, side in zip(_SIDES, sides, strict=False)
    }


def _streams(walk: Walk, inputs: Inputs) -> dict[str, list[Stream]]:
    pairs = (inputs.groups[:, None] == inputs.groups) & ~np.eye(inputs.num_all, dtype=bool)
    streams: dict[str, list[Stream]] = {}
    for side, grams, gradients, added in zip(_SIDES, walk.streams, walk.gradients, walk.added, strict=False):
        last = stacked([gram.sets[-1] for gram in grams])
        alike = entry_sum(last.unit.full * pairs) / pairs.sum() if pairs.any() else np.ones(len(grams))
        squares = np.trace([gradient.matrix[-1] for gradient in gradients], axis1=1, axis2=2)
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(squares, 0.0)) + [np.ravel(gradient.exponent)[-1] for gradient in gradients]
        columns = (
            last.diagonal.mean(-1).tolist(),
            alike.tolist(),
            [(1.0, 0.0), *added],
            (logs / math.log(10)).tolist(),
        )
        streams[side] = [
            Stream(
                second_moment=second_moment,
                token_correlation=token_correlation,
                cosine_with_previous=cosine,
                branch_share=share,
                log10_gradient_square=log10,
            )
            for second_moment, token_correlation, (cosine, share), log10 in zip(*columns, strict=True)
        ]
    return streams


def _answer(
    step: Step,
    runs: Sequence[Sums],
    streams: Mapping[str, Sequence[Stream]],
    gradients: Mapping[str, Sequence[Mapping[str, float]]],
) -> KernelUpdate:
    """The mean over the replicates, in units of the largest exponent of any."""
    exponents = np.concatenate([run.exponent for run in runs])
    exponent = float(exponents.max())
    scales = np.exp(exponents - exponent)
    with np.errstate(over="ignore"):
        size, size_of_last = np.exp([exponent, exponents[-1]]).tolist()
    means, error = _means([run.values for run in runs], scales, is_noise=step.is_noise)
    values = _times(means, size)
    log10 = math.log10(means["update"]) + exponent / math.log(10) if means["update"] > 0 else -math.inf
    sides, side_errors = {}, {}
    for place, side in enumerate(_SIDES[: len(runs[0].sides)]):
        of_side, side_errors[side] = _means([run.sides[place] for run in runs], scales, is_noise=step.is_noise)
        sides[side] = _times(of_side, size)
    return KernelUpdate(
        update=values.pop("update"),
        log10_update=log10,
        roles=values,
        error=error,
        sides=sides,
        side_errors=side_errors,
        streams=streams,
        layers={
            side: [_times(layer, size_of_last) for layer in of_side]
            for side, of_side in zip(_SIDES, runs[-1].layers, strict=False)
        },
        gradients=gradients,
    )


def _means(
    runs: Sequence[Mapping[str, Array]], scales: Array, *, is_noise: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Over the replicates, of "update" and of each role: the mean, and its relative standard error."""
    power = 2 if is_noise else 1
    by_role = {role: np.concatenate([run[role] for run in runs]) * scales for role in runs[0]}
    whole = sum(x**power for role, x in by_role.items() if role in MATRICES) + np.zeros(len(scales))
    samples = {"update": whole ** (1 / power), **by_role}
    means = {role: float(x.mean()) for role, x in samples.items()}
    errors = {
        role: math.nan
        if len(x) == 1
        else float(x.std(ddof=1)) / math.sqrt(len(x)) / means[role]
        if means[role]
        else 0.0
        for role, x in samples.items()
    }
    return means, errors


def _times(values: Mapping[str, float], size: float) -> dict[str, float]:
    """A 0 stays 0 at a size beyond the floats."""
    return {role: value * size if value else 0.0 for role, value in values.items()}
