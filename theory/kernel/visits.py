"""Layers that are visited several times with the same weights: looped, universal, recurrent-depth Transformers.

A layer that is visited R times is to each of its matrices what a layer is that sees R batches: W u_r and W u_s have the
covariance of u_r and u_s, in whatever visits. So a token is here a pair of a visit and a token, attention stays within
a visit, and every sublayer, every role's part included, is that of ``walk`` for R times as many tokens. What differs is
the residual sum: x_r of a later visit holds what the same layer added before, so the two terms of a x + b F have
something in common,

    x_r . F_s = sum over visits q < r of (weight of F_q in x_r) F_q . F_s,    F of other layers adding nothing,

and so have the two that a gradient is a sum of on its way back, by what later visits send. ``Chain`` keeps these sums,
in either direction. A decoder reads the memory again at each visit: as many copies of it are so many equal tokens, and
what a token of it gets is the sum of what its copies get. As everywhere in this rung, weights on the way back are as
good as drawn anew (one new draw for all visits of a layer), which tied weights leave true for a random head (Yang 2020,
arXiv 2006.14548).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from depthlaw.theory.kernel.gram import Array, Gram, diagonal, outer
from depthlaw.theory.kernel.setting import MOST_TOKENS, Inputs, Sublayer, Transformer
from depthlaw.theory.kernel.update import Step
from depthlaw.theory.kernel.walk import Asked, Branch, Gradient, Later, Passage, Sides, Walk, of_matrix
from depthlaw.theory.stack import SublayerKind


def walk_of(network: Transformer, inputs: Inputs, steps: frozenset[Step], sets: Sequence[int], effort: float) -> Walk:
    """Of a network whose layers are visited once, or again. ValueError for too many tokens in all visits together."""
    if network.visits * inputs.num_all > MOST_TOKENS:
        raise ValueError(
            f"a prediction takes at most {MOST_TOKENS} tokens in all, counted at each visit, not {network.visits} x "
            f"{inputs.num_all}"
        )
    return (Walk if network.visits == 1 else VisitedWalk)(network, inputs, steps, sets, effort)


class Chain:
    """n vectors that go through K layers in turn, R times; each layer adds others to them. Additions of one layer at
    two visits have something in common, those of two layers nothing.

    start: the Gram matrix of the vectors where they begin, (sets, n, n).
    """

    def __init__(self, start: Array, num_layers: int, visits: int) -> None:
        sets, n = start.shape[:2]
        self._start, self._visits = start, visits
        self._at = np.zeros((num_layers + 1, sets, visits, n, visits, n))
        """By place before and behind each layer, the products of the vectors of any two visits."""
        self._from_start = np.ones((sets, n))
        self._weights = np.zeros((num_layers, visits, sets, n))
        """What the start, and what was added by each layer at each visit, is now multiplied by in each vector."""
        self._entered: list[list[Array]] = [[] for _ in range(num_layers)]
        """By layer and visit, the weights of the layer's own additions in the vectors that came to it."""

    def enter(self, visit: int) -> None:
        """Come to the first layer at that visit."""
        if visit == 0:
            self._write(0, 0, self._start[:, :, None])
        else:
            before = self._at[-1, :, visit - 1, :, :visit]
            to_start = self._from_start[..., None] * self._start
            self._write(0, visit, np.concatenate([to_start[:, :, None], before], axis=2))

    def seen(self, layer: int, visit: int) -> Array:
        """The Gram matrix of the vectors that came to a layer at its visits so far, visit by visit."""
        at = self._at[layer, :, : visit + 1, :, : visit + 1]
        size = at.shape[1] * at.shape[2]
        return at.reshape(-1, size, size)

    def divide(self, place: int, visit: int, lengths: Array) -> None:
        """Divide the vectors at a place by numbers. lengths: (visits so far, sets, n), those of earlier visits too."""
        every = lengths[: visit + 1].swapaxes(0, 1)[:, None]
        row = self._at[place, :, visit, :, : visit + 1] / lengths[visit][:, :, None, None] / every
        self._write(place, visit, row)
        self._from_start = self._from_start / lengths[visit]
        self._weights = self._weights / lengths[visit]

    def add(self, layer: int, visit: int, added: Array, weight: float) -> tuple[Array, Array]:
        """Behind the layer there are the vectors times the weight, plus what is added. added: the Gram matrix of what
        was and is added at the visits so far. Returns, of each vector, the product with what is added to it, and the
        square of the sum."""
        n = self._start.shape[-1]
        products = added.reshape(-1, visit + 1, n, visit + 1, n)
        now, at_visit = products[:, visit], self._weights[layer, :visit]
        self._entered[layer].append(at_visit)
        with_added = np.einsum("srt,rstqu->rtqu", at_visit, products[:, :visit])
        of_added = np.zeros_like(now)
        for earlier, weights in enumerate(self._entered[layer]):
            of_added[:, :, earlier] = np.einsum("sru,rtsu->rtu", weights, now[:, :, :earlier])
        row = weight**2 * self._at[layer, :, visit, :, : visit + 1] + weight * (with_added + of_added) + now
        self._write(layer + 1, visit, row)
        self._from_start = weight * self._from_start
        self._weights = weight * self._weights
        self._weights[layer, visit] = 1.0
        return diagonal(with_added[:, :, visit]), diagonal(row[:, :, visit])

    def now(self, place: int, visit: int) -> Array:
        """The Gram matrix of the vectors at a place at one visit."""
        return self._at[place, :, visit, :, visit]

    def _write(self, place: int, visit: int, row: Array) -> None:
        """row: (sets, n, visits so far, n)."""
        self._at[place, :, visit, :, : visit + 1] = row
        self._at[place, :, : visit + 1, :, visit] = row.transpose(0, 2, 3, 1)
        block = self._at[place, :, visit, :, visit]
        self._at[place, :, visit, :, visit] = (block + block.mT) / 2


class VisitedWalk(Walk):
    """As ``Walk``, of layers that are visited again."""

    def __init__(
        self, network: Transformer, inputs: Inputs, steps: frozenset[Step], sets: Sequence[int], effort: float
    ) -> None:
        super().__init__(network, inputs, steps, sets, effort)
        self._steering: list[list[Branch]] = []
        self._whole: list[list[Branch]] = []
        """By side, each sublayer at its last visit, and all of its visits with their parts."""
        self._behind: list[list[Gram]] = []
        self._lengths: list[Array] = []
        """By side, what the norm behind each sublayer divided by at each visit."""

    @np.errstate(over="ignore", invalid="ignore")
    def _forward(
        self, side: int, sublayers: Sequence[Sublayer], memory: Gram | None, advance: Callable[[float], None]
    ) -> list[Passage]:
        visits, n = self.network.visits, self.inputs.num_all
        start = self._start(side)
        chain, stream, added = Chain(start.full, len(sublayers), visits), [start], []
        lengths, steering = np.ones((len(sublayers), visits, len(self.asked.sets), n)), list[Branch]()
        bare = replace(self.asked, has_roots=False, has_nuclear=False, has_factored=False)
        for visit in range(visits):
            chain.enter(visit)
            steering.clear()
            for place, sublayer in enumerate(sublayers):
                branch = self._branch(bare, side, place, chain.seen(place, visit), memory)
                steering.append(branch)
                of_branches = sublayer.branch_weight**2 * branch.branch.full
                before, of_branch = diagonal(chain.now(place, visit)), diagonal(of_branches[:, -n:, -n:])
                along, whole = chain.add(place, visit, of_branches, sublayer.residual_weight)
                cosine = (sublayer.residual_weight * before + along) / np.sqrt(before * whole)
                added.append((float(cosine[-1].mean()), float((of_branch / whole)[-1].mean())))
                if "post" in branch.places:
                    lengths[place, visit] = np.sqrt(whole + self.network.norm_eps)
                    chain.divide(place + 1, visit, lengths[place])
                if not np.isfinite(behind := chain.now(place + 1, visit)).all():
                    raise ArithmeticError(f"x_{len(stream)} has tokens that are 0, or beyond the floats")
                stream.append(of_matrix(behind))
                advance(1.0)
        seen = [chain.seen(place, visits - 1) for place in range(len(sublayers) + 1)]
        self._lengths.append(lengths)
        self._steering.append(steering)
        self._whole.append(
            [self._branch(self.asked, side, place, seen[place], memory) for place in range(len(sublayers))]
        )
        self._behind.append([of_matrix(gram) for gram in seen[1:]])
        self.streams.append(stream)
        self.added.append(added)
        return []

    def _branch(self, asked: Asked, side: int, place: int, x: Array, memory: Gram | None) -> Branch:
        """x: the Gram matrix of the tokens at so many visits."""
        inputs, visits, sublayer = self.inputs, x.shape[-1] // self.inputs.num_all, self.network.sides[side][place]
        is_cross = sublayer.kind is SublayerKind.CROSS
        is_causal = (self.network.is_causal or side == 1) and not is_cross
        allowed = np.kron(np.eye(visits), inputs.allowed(is_causal=is_causal)) > 0
        groups = np.concatenate([inputs.groups + visit * inputs.batch_size for visit in range(visits)])
        sides = Sides(allowed, groups, np.tile(inputs.positions, visits))
        copies = Gram(memory.level, np.tile(memory.gap, (visits, visits))) if memory and is_cross else None
        which = place + side * len(self.network.encoder)
        return Branch(asked, sublayer, of_matrix(x), copies, None, sides, which)

    def _backward(
        self, side: int, passages: Sequence[Passage], gradient: Gradient, advance: Callable[[], None]
    ) -> Gradient | None:
        x, sublayers, visits = self.streams[side][-1], self.network.sides[side], self.network.visits
        n, to_memory = self.inputs.num_all, None
        if self.has_final:
            self._add([partial(self.asked.norm, gradient.matrix, self.asked.normed(x))], gradient.exponent, side)
            gradient = Gradient(self.asked.behind(gradient.matrix, x), gradient.exponent).settled()
        chain, exponent, below = Chain(gradient.matrix, len(sublayers), visits), gradient.exponent, [gradient]
        for back in range(visits):
            chain.enter(back)
            for step, place in enumerate(reversed(range(len(sublayers)))):
                if "post" in self._whole[side][place].places:
                    chain.divide(step, back, self._lengths[side][place, ::-1])
                size = (back + 1) * n  # of the visits so far, which are the last ones; no gradient is at the others yet
                at = np.zeros((len(gradient.matrix), visits * n, visits * n))
                at[:, -size:, -size:] = _turned(chain.seen(step, back), n)
                to_x, _, _ = self._steering[side][place].back(at, [])
                sent = _turned(to_x[:, -size:, -size:], n)
                chain.add(step, back, sent, sublayers[place].residual_weight)
                below.append(Gradient(chain.now(step + 1, back).copy(), exponent))
                if not np.isfinite(below[-1].matrix).all():
                    raise ArithmeticError("the gradient of an early visit is beyond the floats")
                advance()
        for step, place in enumerate(reversed(range(len(sublayers)))):
            branch, lengths = self._whole[side][place], np.concatenate(self._lengths[side][place], axis=-1)
            at, parts = _turned(chain.seen(step, visits - 1), n), list[Later]()
            if "post" in branch.places:
                parts.append(partial(self.asked.norm, at * outer(lengths), self._behind[side][place]))
            _, to_copies, _ = branch.back(at, parts)
            if to_copies is not None:
                more = to_copies.reshape(-1, visits, n, visits, n).sum((1, 3))
                to_memory = more if to_memory is None else to_memory + more
            self._add(parts, exponent, side, place)
        at_input = below[-1].matrix
        self._add([self._embedding(at_input, side)], exponent, side)
        self.gradients.append(below[::-1])
        return None if to_memory is None else Gradient(to_memory, exponent).settled()


def _turned(matrix: Array, n: int) -> Array:
    """The same of tokens whose visits stand in the opposite order, n tokens in each."""
    visits = matrix.shape[-1] // n
    return matrix.reshape(-1, visits, n, visits, n)[:, ::-1, :, ::-1].reshape(matrix.shape)
