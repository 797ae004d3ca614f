"""The tokens' Gram matrix through a Transformer, the gradients' back, and each parameter's part on the way.

The Gram matrix of a gradient is summed over the whole width, G_ij = sum_a dF/dx_ia dF/dx_ja, (n, n); at the output of a
matrix, over its units. The n tokens are those of all sequences of the batch. r = ffn_ratio, hidden width over d_model.

A walk is made once for several sets of quasi-random points: a matrix is (sets, n, n), a number that multiplies it is
(sets, 1, 1), and what is told of each set (sets,). What does not lead on to the next gradient waits, and is computed
for many sublayers at once, which are an axis in front.

It is one module, since what a sublayer does forward, what it sends back and what its parameters get of both read the
same matrices, and a change of one is a change of all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from depthlaw.theory.kernel.duals import Dual, dual
from depthlaw.theory.kernel.factored import factored, factored_of_few
from depthlaw.theory.kernel.gram import MEAN_ABS, Array, Gram, diagonal, entry_sum, factor, mean_root, nuclear, outer
from depthlaw.theory.kernel.points import normals
from depthlaw.theory.kernel.readout import NUM_DRAWS, Reading
from depthlaw.theory.kernel.setting import DRAWN_SIZE, GATED, Inputs, Sublayer, Transformer
from depthlaw.theory.kernel.softmax import Attention, Backward, Gains
from depthlaw.theory.kernel.update import MATRICES, Part, Step
from depthlaw.theory.optimizers import Functional
from depthlaw.theory.stack import SublayerKind


@dataclass(frozen=True)
class Sums:
    """Sums by role, over the network, over each of its sides and, of the last set of points, each sublayer of a side;
    each number is to be multiplied by e^exponent. values, sides, exponent: (sets,)."""

    values: dict[str, Array]
    sides: list[dict[str, Array]]
    layers: list[list[dict[str, float]]]
    exponent: Array


Totals = dict[Step, Sums]
_MOST_KEPT = 2**28
"""Bytes of samples that a walk keeps for its way back."""
_MOST_AT_ONCE = 2**17
"""How many numbers the samples of one average have where several sets of points are walked at once."""
_MOST_WAITING = 2**21
"""About how many numbers parts are made of that are made together."""
_MOST_HELD = 2**27
"""How many numbers a walk holds where it is of several sets of points."""


@dataclass(frozen=True)
class Gradient:
    """e^exponent times ``matrix``: gradients may grow or vanish without end."""

    matrix: Array
    exponent: float | Array = 0.0

    def settled(self) -> Gradient:
        """The same gradient, made symmetric (rounding alone made it otherwise) and scaled to size 1."""
        matrix = (self.matrix + self.matrix.mT) / 2
        size = np.maximum.reduce(np.abs(matrix), (-2, -1), keepdims=True)
        size = np.where(size > 0, size, 1.0)
        return Gradient(matrix / size, self.exponent + np.log(size))

    def plus(self, other: Gradient) -> Gradient:
        top = np.maximum(self.exponent, other.exponent)
        return Gradient(self.at(top) + other.at(top), top)

    def at(self, exponent: float | Array) -> Array:
        """The matrix in units of e^exponent."""
        return self.matrix * np.exp(self.exponent - exponent)


@dataclass(frozen=True)
class Beside:
    """Other vectors y beside the stream, on the way forward: a second stream, or x_0, which is added again.

    gram: their Gram matrix. cross: x_i . y_j / width, (sets, n, n).
    """

    gram: Gram
    cross: Array


@dataclass(frozen=True)
class GradientBeside:
    """On the way back: gram, of the gradient at y; cross, (dF/dx_i) . (dF/dy_j).

    A sublayer's branch is added to both of two streams, so what reaches it is the sum of both gradients, and that at
    the second stream is the same at every sublayer. That at x_0 grows by what each sublayer that adds x_0 sends to it.
    """

    gram: Gradient
    cross: Gradient

    def sum(self, at_x: Array, cross: Array, exponent: float | Array) -> Array:
        """The Gram matrix of the sums of both gradients, in units of e^exponent, as the other two are given."""
        return at_x + cross + cross.mT + self.gram.at(exponent)


Later = partial[Iterator[Part]]
"""Parts that wait for those of other sublayers, to be made in one call: it is given the arguments of several sublayers
as one (see ``joined``), and the keywords that they share."""


def _kind(later: Later) -> tuple[Any, ...]:
    """The same for those that can be made in one call."""
    return later.func, *later.keywords.items(), *(np.shape(getattr(x, "gap", x)) for x in later.args)


def joined(several: Sequence[Any], known: dict[tuple[int, ...], Any]) -> Any:
    """Things of one kind as one: matrices have an axis of sublayers in front, numbers are (sublayers, 1, 1, 1), and
    what is neither they share. known: Gram matrices that were joined before, so that no root is taken twice."""
    first = several[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(several).reshape(len(several), *first.shape)
    if isinstance(first, float):
        return np.reshape(several, (-1, 1, 1, 1))
    if isinstance(first, dict):
        names = [name for name in first if all(name in table for table in several)]
        return {name: joined([table[name] for table in several], known) for name in names}
    if isinstance(first, Gram | FeedForward):
        if (whole := known.get(key := tuple(map(id, several)))) is None:
            whole = known[key] = object.__new__(type(first))
            vars(whole).update(joined([vars(part) for part in several], known))
        return whole
    return first


@dataclass(frozen=True, eq=False)
class Asked:
    """What all sublayers of a walk share. num_points: of the averages of an attention, and of those of an FFN. sets:
    (sets,), which sets of points."""

    network: Transformer
    has_roots: bool
    has_nuclear: bool
    has_factored: bool
    num_points: tuple[int, int]
    sets: Array

    def matrix(
        self,
        gradient: Array,
        inputs: Array,
        gain: float | Array,
        root: Array | None,
        units: Array | None,
        *,
        role: str,
        size: float,
    ) -> Iterator[Part]:
        """The part of a matrix, with ``gradient`` at its output and ``inputs`` as its input. root: see ``_root``. size:
        the root of the number of its entries, over d. units: what is drawn of those inside of the branch, for
        ``factored``."""
        side, other = gradient / size**2, inputs
        if role.endswith(("out", "fc2")):
            side, other = other, side
        yield Part(
            role=role,
            square=_over(gradient, inputs),
            root=_root(root),
            nuclear=nuclear(gradient, inputs) if self.has_nuclear else None,
            factored=size**2 * factored(side, other, units) if self.has_factored else None,
            weight=gain,
            size=size,
        )

    def bias(
        self,
        gradient: Array,
        root: Array | None = None,
        *,
        role: str = "bias",
        width: float = 1.0,
        size: float | None = None,
    ) -> Iterator[Part]:
        """The part of a bias, which starts at 0. gradient: of one of its units, times d. width: its units over d.
        size: the root of their number, where that is another."""
        total = np.maximum(entry_sum(gradient), 0.0)
        of_entries = width * np.sqrt(total) if root is None and self.has_roots else root
        yield Part(role=role, square=width * total, root=of_entries, size=math.sqrt(width) if size is None else size)

    def gain(
        self,
        gradient: Array,
        unit: Gram,
        root: Array | None = None,
        weight: float | Array = 1.0,
        *,
        role: str = "norm_gain",
        width: float = 1.0,
        size: float | None = None,
    ) -> Iterator[Part]:
        """The part of a norm's gain. unit: the norm's output before the gain; gradient: the gradient there."""
        if root is None and self.has_roots:
            root = mean_root(unit.root @ gradient @ unit.root)
        square = width * _over(gradient, unit.full)
        yield Part(
            role=role, square=square, root=_root(root), weight=weight, size=math.sqrt(width) if size is None else size
        )

    def norm(
        self, gradient: Array, unit: Gram, root: Array | None = None, *, width: float = 1.0, share: float | None = None
    ) -> Iterator[Part]:
        """The parts of a norm: its gain and, where there is one, its bias. The scale of dyt and derf is left out: one
        number, whose share falls as 1/width or faster (test_blocks.py: under 5 % at width 256). share: the root of the
        share of d entries that a norm of heads has."""
        parts = [*self.gain(gradient, unit, root, width=width)]
        if self.network.norm_kind != "rmsnorm":
            parts += self.bias(gradient, role="norm_bias", width=width)
        for part in parts:
            root = part.root if share is None or part.root is None else share * part.root
            yield part if share is None else replace(part, root=root, size=share)

    def branch_weight(self, gradient: Array, branch: Gram, weight: float | Array) -> Iterator[Part]:
        """The part of a trained branch weight, given the gradient at the sum."""
        square = _over(gradient, branch.full)
        # One number: its norm is |g|, whose mean is sqrt(2 / pi) of the root mean square.
        yield Part(role="branch_weight", square=square, root=np.sqrt(square), weight=weight, size=MEAN_ABS)

    def embedding(self, gradient: Array, *, multiplier: float, std: float) -> Iterator[Part]:
        """The part of the embedding: each token has a row of its own."""
        gradient = multiplier**2 * gradient
        squares, every = diagonal(gradient).clip(min=0.0), np.eye(gradient.shape[-1])
        yield Part(
            role="embedding",
            square=squares.sum(-1),
            root=np.sqrt(squares).sum(-1),
            nuclear=nuclear(gradient, every) if self.has_nuclear else None,
            factored=factored_of_few(every, gradient) if self.has_factored else None,
            weight=std,
            size=math.sqrt(len(every)),
        )

    # ---------------------------------------------------------------- what stands in a norm's place

    @property
    def _function(self) -> Dual | None:
        """The function dyt or derf in a norm's place; None for a real norm."""
        name = {"dyt": "tanh", "derf": "erf"}.get(self.network.norm_kind)
        return None if name is None else dual(name)

    def normed(self, x: Gram) -> Gram:
        """The Gram matrix behind a norm, or behind the function in its place."""
        function = self._function
        return (
            x.normalised(self.network.norm_eps)
            if function is None
            else function.second(x.times(self.network.norm_scale**2))
        )

    def lengths(self, before: Gram) -> Array:
        """(sets, n), what a norm divides its input by."""
        return before.lengths(self.network.norm_eps)

    def behind(self, gradient: Array, before: Gram) -> Array:
        """The gradient at a norm's input ``before``, given that at its output: over the lengths of the vectors, or by
        the slopes of the function."""
        function = self._function
        if function is None:
            return gradient / outer(self.lengths(before))
        square = self.network.norm_scale**2
        return square * gradient * function.slope_second(before.times(square))


def _root(root: Array | None) -> Array | None:
    """(sublayers, sets), given that, or forms (sublayers, sets, points, r, r): see ``softmax.Roots``."""
    return root if root is None or root.ndim == 2 else mean_root(root).mean(-1)


def _over(gradient: Array, inputs: Array) -> Array:
    """||sum_i g_i u_i^T||^2, which rounding may make negative where it is 0."""
    return np.maximum(entry_sum(gradient * inputs), 0.0)


# ---------------------------------------------------------------- the two branches


class FeedForward:
    """fc2(norm_inner(phi(fc1(u)))), or fc2(norm_inner(phi(fc1(u)) * fc3(u))) where it is gated.

    A hidden unit of the gated one is a product of two independent units, so its second moments are products, too.
    """

    def __init__(self, asked: Asked, sublayer: Sublayer, u: Gram, has_inner: bool, which: int) -> None:
        network = asked.network
        self.asked, self.u, self.has_inner = asked, u, has_inner
        self.which: Any = float(which)
        self.is_gated = network.activation in GATED
        roles = ("fc1", "fc2", "fc3") if self.is_gated else ("fc1", "fc2")
        xavier = math.sqrt(2 / (1 + network.ffn_ratio))
        self.gains: dict[str, Any] = {role: sublayer.gains.get(role, 1.0) * xavier for role in roles}
        self.phi = dual(GATED.get(network.activation, network.activation))
        self.before = u.times(self.gains["fc1"] ** 2)
        self.centres = has_inner and network.norm_kind == "layernorm" and not self.is_gated  # else its mean is 0
        self.raw = self.phi.second(self.before, is_centred=self.centres)
        if self.is_gated:
            self.activated, self.beside = self.raw, u.times(self.gains["fc3"] ** 2)
            self.raw = self.activated.entrywise(self.beside)
        self.hidden = asked.normed(self.raw) if has_inner else self.raw
        self.out = self.hidden.times(self.ratio * self.gains["fc2"] ** 2)

    @property
    def ratio(self) -> float:
        return self.asked.network.ffn_ratio

    def backward(self, gradient: Array, parts: list[Later]) -> Array:
        asked, ratio, gains = self.asked, self.ratio, self.gains
        at_hidden = gains["fc2"] ** 2 * gradient
        at_phi = asked.behind(at_hidden, self.raw) if self.has_inner else at_hidden
        at = {"fc1": ratio * at_phi * self.phi.slope_second(self.before)}
        if self.is_gated:
            at = {"fc1": at["fc1"] * self.beside.full, "fc3": ratio * at_phi * self.activated.full}
        parts.append(partial(FeedForward.parts, self, gradient, at_phi, *at.values(), has_inner=self.has_inner))
        return np.add.reduce([gains[role] ** 2 * at[role] for role in at])

    def parts(self, gradient: Array, at_phi: Array, *at_inner: Array, has_inner: bool) -> Iterator[Part]:
        """Of several FFNs, joined."""
        asked, ratio, gains = self.asked, self.ratio, self.gains
        at = dict(zip(("fc1", "fc3"), at_inner, strict=False))
        roots, units = self._roots(gradient, at_phi) if asked.has_roots else ({}, {})
        size = math.sqrt(ratio)
        several = [(role, at[role], self.u.full) for role in at] + [("fc2", ratio * gradient, self.hidden.full)]
        for role, at_role, inputs in several:
            drawn = roots.get(role), units.get(role)
            yield from asked.matrix(at_role, inputs, gains[role], *drawn, role=role, size=size)
        for role, at_role in at.items():
            yield from asked.bias(at_role, roots.get(f"{role} bias"), size=size)
        yield from asked.bias(gradient)
        if has_inner:
            root = gains["fc2"][..., 0, 0] * roots["fc2"] if roots else None
            yield from asked.norm(gains["fc2"] ** 2 * gradient, self.hidden, root, width=ratio)

    def _roots(self, gradient: Array, at_phi: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """E sqrt of an entry's variance given the hidden unit, by matrix and bias: see ``Attention._roots``. And, by
        matrix, what the units have: of fc1 and fc3 the gradient, and before fc2 the input.

        A hidden unit is not Gaussian behind phi, so units are drawn: their inputs h, and what they get from above.
        """
        n = gradient.shape[-1]
        which = self.which[..., 0, 0], self.asked.sets
        points = normals(self.asked.num_points[1], (3 if self.is_gated else 2, n), which)
        h = points[..., 0, :] @ (abs(self.gains["fc1"]) * self.u.root)
        above = points[..., 1, :] @ factor(at_phi)
        hidden, slopes, activated = self.phi.value(h), self.phi.slope(h), None
        if self.is_gated:
            beside = points[..., 2, :] @ (abs(self.gains["fc3"]) * self.u.root)
            activated, hidden, slopes = hidden, hidden * beside, slopes * beside
        if self.centres:
            hidden = hidden - self.phi.mean(np.sqrt(self.before.diagonal))[..., None, :]
        if self.has_inner:
            hidden = hidden / self.asked.lengths(self.raw)[..., None, :]
        units = {"fc1": above * slopes, "fc2": hidden}
        biases = {"fc1": slopes}
        if activated is not None:
            units["fc3"], biases["fc3"] = above * activated, activated
        roots = {role: _mean_root_of(unit, gradient if role == "fc2" else self.u.full) for role, unit in units.items()}
        roots |= {f"{role} bias": _mean_root_of(unit, at_phi) for role, unit in biases.items()}
        return {name: self.ratio * root for name, root in roots.items()}, units


def _mean_root_of(rows: Array, form: Array) -> Array:
    """The mean of sqrt(y^T M y) over rows y."""
    return np.sqrt(np.maximum(((rows @ form) * rows).sum(-1), 0.0)).mean(-1)


class Attending:
    """out(norm_inner(softmax(q k^T) v)), of tokens u over tokens u (or a memory's)."""

    def __init__(
        self,
        asked: Asked,
        sublayer: Sublayer,
        u: Gram,
        memory: Gram | None,
        first_values: Gram | None,
        sides: Sides,
        which: int,
    ) -> None:
        self.asked, self.u, self.memory, self.first_values = asked, u, memory, first_values
        self.value_weights = sublayer.value_weight, sublayer.first_value_weight
        places = asked.network.places(sublayer)
        self.has_inner = "inner" in places
        self.norms = places & {"q", "k", "v"}
        self.prefix = "" if memory is None else "cross_"
        self.sources = u if memory is None else memory
        self.sides, self.which = sides, (which, asked.sets)
        heads = asked.network.heads
        # Xavier's variances of matrices that are not square: H K units of queries, H K / g of keys and values.
        narrow = heads.width_ratio / heads.queries_per_key
        xavier = {"q": heads.width_ratio, "k": narrow, "v": narrow, "out": heads.width_ratio}
        self.gains = Gains(
            *(sublayer.gains.get(self.prefix + role, 1.0) * math.sqrt(2 / (1 + xavier[role])) for role in xavier)
        )
        self.sizes = {role: math.sqrt(xavier[role]) for role in xavier}
        attention = self._attention()
        self.kept = attention if attention.num_bytes * asked.network.num_sublayers <= _MOST_KEPT else None
        self.raw = attention.mixed
        self.mixed = asked.normed(self.raw) if self.has_inner else self.raw
        self.out = self.mixed.times(heads.width_ratio * self.gains.out**2)

    @property
    def _positions(self) -> tuple[Array, Array] | None:
        """The places of tokens that attend to their own sequence; None where they attend to a memory."""
        return (self.sides.positions, self.sides.positions) if self.memory is None else None

    def _attention(self) -> Attention:
        """The attention at its points. On the way back it is drawn anew where the samples of all sublayers would fill
        the memory, and is the same."""
        return Attention(
            self.u,
            self.sources,
            self.sides.allowed,
            self.sides.groups,
            self.gains,
            first_values=self.first_values,
            value_weights=self.value_weights,
            head_size=self.asked.network.head_size,
            heads=self.asked.network.heads,
            norms=self.norms,
            positions=self._positions,
            norm_eps=self.asked.network.norm_eps,
            num_points=self.asked.num_points[0],
            which=self.which,
        )

    def backward(
        self, gradient: Array, parts: list[Later], at_values: Array | None
    ) -> tuple[Array, Array | None, Array | None]:
        """The gradients at the input, at the memory and at the values of the side's first attention. at_values: what
        later attentions send to these values, where this is the first."""
        asked, gains, heads = self.asked, self.gains, self.asked.network.heads
        scale = np.ones(gradient.shape[-1])
        if self.has_inner:  # real norms only: see ``Passage``
            scale = asked.lengths(self.raw)
        attention = self.kept or self._attention()
        wants = {"with_roots": asked.has_roots, "with_units": asked.has_factored}
        at = attention.backward(gradient, scale, **wants, at_values_too=at_values)
        roots = at.roots
        # k's gradients sum to 0 over a sequence, so that what its tokens have in common does not count.
        is_centred = attention.is_shift_invariant
        keys = self.sources.centred(self.sides.groups) if is_centred else self.sources.full
        u, sources = self.u.full, self.sources.full
        several = [
            ("q", at.q, u, gains.q, roots and roots.q),
            ("k", at.k, keys, gains.k, roots and roots.k),
            ("v", at.v, sources, gains.v, roots and roots.v),
            ("out", heads.width_ratio * gradient, self.mixed.full, gains.out, roots and roots.out),
        ]
        parts += [
            partial(asked.matrix, *rest, at.units.get(role), role=self.prefix + role, size=self.sizes[role])
            for role, *rest in several
        ]
        biases = [("q", at.q, roots and roots.q_bias), ("v", at.v, roots and roots.v_bias)]
        if not is_centred:
            biases.append(("k", at.k, roots and roots.k_bias))
        parts += [partial(asked.bias, at_bias, root, size=self.sizes[role]) for role, at_bias, root in biases]
        parts.append(partial(asked.bias, gradient))
        at_mixed = gains.out**2 * gradient
        if self.has_inner:
            root = roots and gains.out**2 * roots.out
            parts.append(partial(asked.norm, at_mixed, self.mixed, root, width=heads.width_ratio))
        if asked.network.placement == "normformer":
            # One number for each head: H = d / head_size of them, whose 1-norm grows as sqrt(H), not sqrt(d).
            size = asked.network.head_size
            share = 0.0 if size is None else 1 / math.sqrt(size)
            parts.append(partial(asked.gain, at_mixed, self.mixed, roots and share * roots.head_scale, size=share))
        parts += self._norms_of_heads(at, attention)
        to_sources = gains.k**2 * at.k + gains.v**2 * at.v
        to_u = gains.q**2 * at.q
        to_values = None if self.first_values is None else at.first_v
        return (to_u + to_sources, None, to_values) if self.memory is None else (to_u, to_sources, None)

    def _norms_of_heads(self, at: Backward, attention: Attention) -> Iterator[Later]:
        """The parts of the gains and biases of the norms of q, k and v.

        A head's are as long as the head, K, and all heads share them: their 1-norm goes as sqrt(K d), not as d.
        """
        heads = self.asked.network.heads
        share = 1.0 if heads.has_wide_norm else math.sqrt(heads.width_ratio / heads.number) if heads.number else 0.0
        grams = {"q": attention.q_gram, "k": attention.k_gram, "v": attention.v_gram}
        for role, gradient in (("q", at.unit_q), ("k", at.unit_k), ("v", at.unit_v)):
            if gradient is None:
                continue
            is_normed = role in attention.normed_first
            unit = grams[role] if is_normed else self.asked.normed(grams[role])
            yield partial(self.asked.norm, gradient, unit, share=share)


# ---------------------------------------------------------------- one sublayer


@dataclass(frozen=True)
class Sides:
    """Which tokens attend to which.

    allowed: (n, m), whether a token attends to another. groups: (m,), the sequences of the
    others. positions: (n,), the place of each token in its sequence.
    """

    allowed: Array
    groups: Array
    positions: Array


class Branch:
    """The branch of a residual sublayer, given x: ``branch`` is the Gram matrix of what it adds, before its weight."""

    def __init__(
        self,
        asked: Asked,
        sublayer: Sublayer,
        x: Gram,
        memory: Gram | None,
        first_values: Gram | None,
        sides: Sides,
        which: int,
    ) -> None:
        self.asked, self.sublayer, self.x, self.first_values = asked, sublayer, x, first_values
        self.places = asked.network.places(sublayer)
        if asked.network.norm_kind in ("dyt", "derf") and (inside := self.places & {"q", "k", "v", "inner"}):
            raise ValueError(f"{asked.network.norm_kind} stands on the stream, not at {', '.join(sorted(inside))}")
        self.before = asked.normed(x) if "pre" in self.places else x
        u = self.before.times(sublayer.input_scale**2)
        kind = sublayer.kind
        self.attention: Attending | None = None
        self.ffn: FeedForward | None = None
        if kind is not SublayerKind.FFN:
            source = memory if kind is SublayerKind.CROSS else None
            self.attention = Attending(asked, sublayer, u, source, first_values, sides, which)
        if kind in (SublayerKind.FFN, SublayerKind.PARALLEL):
            self.ffn = FeedForward(asked, sublayer, u, "inner" in self.places, which)
        outs = [branch.out for branch in (self.attention, self.ffn) if branch is not None]
        self.raw = outs[0] if len(outs) == 1 else outs[0].plus(outs[1])
        self.branch = asked.normed(self.raw) if "branch" in self.places else self.raw

    def back(
        self, at_sum: Array, parts: list[Later], at_values: Array | None = None
    ) -> tuple[Array, Array | None, Array | None]:
        """Carry the gradient at the sum back through the branch: to x, to the memory and to the values of the side's
        first attention."""
        asked, sublayer = self.asked, self.sublayer
        weight = float(abs(sublayer.branch_weight))
        if sublayer.has_layer_scale:
            parts.append(partial(asked.gain, at_sum, self.branch, None, weight, role="layer_scale"))
        elif sublayer.trains_branch_weight:
            parts.append(partial(asked.branch_weight, at_sum, self.branch, weight))
        at_branch = sublayer.branch_weight**2 * at_sum
        if "branch" in self.places:
            parts.append(partial(asked.norm, at_branch, self.branch))
            at_branch = asked.behind(at_branch, self.raw)
        to_u, to_memory, to_values = np.zeros_like(at_branch), None, None
        if self.attention is not None:
            is_first = self.first_values is None and sublayer.kind is not SublayerKind.CROSS
            here = at_values if is_first else None
            to_u, to_memory, to_values = self.attention.backward(at_branch, parts, here)
        if self.ffn is not None:
            to_u = to_u + self.ffn.backward(at_branch, parts)
        to_x = sublayer.input_scale**2 * to_u
        if "pre" in self.places:
            parts.append(partial(asked.norm, to_x, self.before))
            to_x = asked.behind(to_x, self.x)
        return to_x, to_memory, to_values


class Passage(Branch):
    """One residual sublayer: ``next`` is the Gram matrix behind it.

    pushed: (sets, n), where branches push in one direction, how far they have pushed each token of x along it, and
    behind the sublayer; None where each branch has a direction of its own.
    """

    def __init__(
        self,
        asked: Asked,
        sublayer: Sublayer,
        x: Gram,
        memory: Gram | None,
        beside: Beside | None,
        first_values: Gram | None,
        sides: Sides,
        which: int,
        pushed: Array | None = None,
    ) -> None:
        super().__init__(asked, sublayer, x, memory, first_values, sides, which)
        self.beside = beside
        self.sum = x.times(sublayer.residual_weight**2).plus(self.branch.times(sublayer.branch_weight**2))
        if beside is not None and sublayer.input_weight:
            cross = sublayer.residual_weight * sublayer.input_weight * beside.cross
            self.sum = of_matrix(self.sum.plus(beside.gram.times(sublayer.input_weight**2)).full + cross + cross.mT)
        self.pushed = pushed
        if pushed is not None:
            self.sum = self._pushed_on(pushed)
        self.next = asked.normed(self.sum) if "post" in self.places else self.sum

    def _pushed_on(self, pushed: Array) -> Gram:
        """The sum, where the branch pushes along what was pushed before: what x and the branch have in common is the
        product of both pushes, and of the cosines of two tokens' branches."""
        a, b = self.sublayer.residual_weight, abs(self.sublayer.branch_weight)
        push = np.sqrt(self.branch.diagonal.clip(min=0.0))
        cosines = self.branch.full / outer(np.where(push == 0, 1.0, push))
        cross = pushed[..., None] * push[..., None, :]
        cross = a * b * (cross + cross.mT) * cosines
        whole = of_matrix(self.sum.full + cross)
        behind = self.asked.lengths(whole) if "post" in self.places else 1.0
        self.pushed = (a * pushed + b * push) / behind
        return whole

    @property
    def added(self) -> tuple[float, float]:
        """Of the last set of points, the cosine of the streams before and behind this sublayer, and the branch's share
        of the sum; means over tokens. A norm behind the sum keeps its direction, and dyt does of a small input."""
        x, total, branch = (gram.diagonal[-1] for gram in (self.x, self.sum, self.branch))
        along = self.sublayer.residual_weight * x
        if self.beside is not None and self.sublayer.input_weight:
            along = along + self.sublayer.input_weight * diagonal(self.beside.cross)[-1]
        share = self.sublayer.branch_weight**2 * branch / total
        return float((along / np.sqrt(x * total)).sum() / len(x)), float(share.sum() / len(x))

    @property
    def _lengths(self) -> Array | float:
        """(sets, n, 1), what a norm behind the sum divides each token by."""
        return self.asked.lengths(self.sum)[..., None] if "post" in self.places else 1.0

    def carry(self, beside: Beside) -> Beside:
        """The second stream, or x_0, behind this sublayer."""
        sublayer, gram, added = self.sublayer, beside.gram, self.branch.times(self.sublayer.branch_weight**2)
        if not self.asked.network.has_second_stream:
            return replace(
                beside,
                cross=(sublayer.residual_weight * beside.cross + sublayer.input_weight * gram.full) / self._lengths,
            )
        cross = (sublayer.residual_weight * beside.cross + added.full) / self._lengths
        return Beside(gram.plus(added), cross)

    def backward(
        self, gradient: Gradient, beside: GradientBeside | None, at_values: Gradient | None
    ) -> tuple[Gradient, Gradient | None, Gradient | None, list[Later], GradientBeside | None]:
        """Carry the gradient at ``next`` back to x, to the memory, to the values of the side's first attention and to
        each parameter's part, and that beside it. Parts are in units of the exponent that came in."""
        asked, sublayer, at = self.asked, self.sublayer, gradient.matrix
        parts: list[Later] = []
        if "post" in self.places:
            parts.append(partial(asked.norm, at, self.next))
            at = asked.behind(at, self.sum)
        at_both = at
        if beside is not None:
            cross = beside.cross.at(gradient.exponent) / self._lengths
            if asked.network.has_second_stream:
                at_both = beside.sum(at, cross, gradient.exponent)
            elif weight := sublayer.input_weight:
                more = Gradient(weight * (cross + cross.mT) + weight**2 * at, gradient.exponent)
                beside, cross = replace(beside, gram=beside.gram.plus(more)), cross + weight * at
            beside = replace(beside, cross=Gradient(sublayer.residual_weight * cross, gradient.exponent))
        here = None if at_values is None else at_values.at(gradient.exponent)
        by_branch, to_memory, to_values = self.back(at_both, parts, here)
        to_x = Gradient(sublayer.residual_weight**2 * at + by_branch, gradient.exponent).settled()
        to_source, to_first = (
            None if to is None else Gradient(to, gradient.exponent).settled() for to in (to_memory, to_values)
        )
        return to_x, to_source, to_first, parts, beside


# ---------------------------------------------------------------- the whole network


@dataclass(frozen=True)
class Counted:
    """Parts of one role in units of e^exponent, and how often they count.

    part: each number is (parts, sets), or less where they share it. exponent: (parts, sets). side: the index
    of the side that the parameters are on; the head is on the last. places: the indices of the sublayers that they are
    in; None outside of them. linear: in what is linear in the gradient's Gram matrix. root: in what goes as the root of
    that matrix.
    """

    part: Part
    exponent: Array
    side: int
    places: Sequence[int | None]
    linear: float = 1.0
    root: float = 1.0


class Walk:
    """Forward and backward once, for several sets of quasi-random points.

    parts: every parameter's (see ``Counted``). streams: by side, x_0, x_1, ... besides: by side, the second stream at
    its end, where there is one. gradients: by side, the mean one at each of the streams. added: by side, of each
    sublayer the cosine of the streams before and behind it and the branch's share of the sum, of the last set.
    """

    def __init__(
        self, network: Transformer, inputs: Inputs, steps: frozenset[Step], sets: Sequence[int], effort: float
    ) -> None:
        self.network, self.inputs, self.steps = network, inputs, steps
        self.needs = frozenset[Functional]().union(*(step.functionals for step in steps))
        has_roots = bool(self.needs - {Functional.FROBENIUS_SQUARED, Functional.FROBENIUS_PRODUCT})
        num_points = _num_points(network, inputs, effort)
        has_factored = any(step.is_factored for step in steps)
        has_nuclear = Functional.NUCLEAR in self.needs
        self.asked = Asked(network, has_roots, has_nuclear, has_factored, num_points, np.array(sets))
        self.has_final = network.ends_in_norm
        self.parts: list[Counted] = []
        self._counts = 1.0, 1.0
        self._waiting: dict[tuple[Any, ...], list[tuple[Later, float | Array, int | None]]] = {}
        n = network.visits * inputs.num_all
        of_one = (
            len(sets) * n * max((20 + 4 * num_points[0]) * n, 20 * n + 3 * num_points[1])
        )  # of its matrices and samples
        self._most_waiting = max(1, _MOST_WAITING // of_one)
        self.streams: list[list[Gram]] = []
        self.besides: list[Beside] = []
        self.gradients: list[list[Gradient]] = []
        self.added: list[list[tuple[float, float]]] = []

    def run(self, advance: Callable[[float], None]) -> None:
        """Go forward and back once. advance: told 1 for each sublayer on either way. ArithmeticError where the stream
        overflows.
        """
        passages: list[list[Passage]] = []
        last: Gram | None = None
        for side, sublayers in enumerate(self.network.sides):
            passages.append(self._forward(side, sublayers, last, advance))
            x = self.streams[-1][-1]
            last = self.asked.normed(x) if self.has_final else x
            if self.besides:
                last = _sum_of_streams(self.asked, x, self.besides[-1])
        assert last is not None
        reading = Reading(self.inputs, last, self.asked.sets, has_factored=self.asked.has_factored)
        self.parts.append(Counted(reading.head, np.zeros((1, len(self.asked.sets))), len(passages) - 1, [None]))
        is_one = self.inputs.loss == "logit"
        has_others = self.needs != {Functional.FROBENIUS_SQUARED}
        drawn = reading.carried if has_others and not is_one else []
        share = 1 / (1 + len(drawn))
        self._all_back(passages, reading.gradient, lambda: advance(share), linear=1.0, root=float(is_one))
        for gradient in drawn:
            self._all_back(passages, gradient, lambda: advance(share), linear=0.0, root=1 / len(drawn))
        self.gradients = self.gradients[: len(passages)][::-1]

    def _all_back(
        self,
        passages: Sequence[Sequence[Passage]],
        at_end: Array,
        advance: Callable[[], None],
        *,
        linear: float,
        root: float,
    ) -> None:
        """Carry a gradient back through both sides. linear, root: how often its parts count, see ``Counted``."""
        gradient: Gradient | None = Gradient(at_end).settled()
        self._counts = linear, root
        for side in reversed(range(len(passages))):
            if gradient is None:
                raise ValueError("the decoder reads nothing of the encoder, which has no gradient")
            gradient = self._backward(side, passages[side], gradient, advance)
        self._make()

    @np.errstate(over="ignore", invalid="ignore")
    def _forward(
        self, side: int, sublayers: Sequence[Sublayer], memory: Gram | None, advance: Callable[[float], None]
    ) -> list[Passage]:
        is_causal = self.network.is_causal or side == 1
        passages: list[Passage] = []
        stream, first_values = [self._start(side)], None
        has_others = self.network.has_second_stream or any(sublayer.input_weight for sublayer in sublayers)
        beside = Beside(stream[0], stream[0].full) if has_others else None
        mixes_values = any(sublayer.mixes_values for sublayer in sublayers)
        pushed = np.zeros((len(self.asked.sets), self.inputs.num_all)) if self.network.is_aligned else None
        groups, positions = self.inputs.groups, self.inputs.positions
        by_mask = {is_masked: self.inputs.allowed(is_causal=is_masked) for is_masked in (False, is_causal)}
        for place, sublayer in enumerate(sublayers):
            allowed = by_mask[is_causal and sublayer.kind is not SublayerKind.CROSS]
            sides = Sides(allowed, groups, positions)
            which = place + side * len(self.network.encoder)
            arguments = (self.asked, sublayer, stream[-1], memory, beside, first_values, sides, which)
            passages.append(Passage(*arguments, pushed))
            stream.append(passages[-1].next)
            pushed = passages[-1].pushed
            attention = passages[-1].attention
            if mixes_values and first_values is None and attention is not None and attention.memory is None:
                first_values = attention.u.times(attention.gains.v**2)
            beside = None if beside is None else passages[-1].carry(beside)
            if not np.isfinite(stream[-1].full).all():
                raise ArithmeticError(
                    f"the stream behind sublayer {place + 1} of {len(sublayers)} is 0 or beyond floats, so nothing "
                    "can be predicted of it"
                )
            advance(1.0)
        self.streams.append(stream)
        self.added.append([passage.added for passage in passages])
        self.besides += [beside] if beside is not None and self.network.has_second_stream else []
        return passages

    def _start(self, side: int) -> Gram:
        """The Gram matrix of x_0."""
        start, sets = self.inputs.gram_of(side), (len(self.asked.sets), 1, 1)
        return Gram(np.full(sets, start.level), np.tile(start.gap, sets))

    def _embedding(self, gradient: Array, side: int) -> Later:
        std = self.inputs.embedding_std_of(side)
        return partial(self.asked.embedding, gradient, multiplier=self.inputs.embedding_multiplier, std=std)

    def _backward(
        self, side: int, passages: Sequence[Passage], gradient: Gradient, advance: Callable[[], None]
    ) -> Gradient | None:
        """Carry the gradient from behind the side's final norm to its input. Returns that at the memory, if any."""
        x, beside = self.streams[side][-1], None
        if self.besides:
            y = self.besides[side].gram
            self._add([partial(self.asked.norm, gradient.matrix, self.asked.normed(y))], gradient.exponent, side)
            at_y = Gradient(self.asked.behind(gradient.matrix, y), gradient.exponent)
            beside = GradientBeside(
                at_y, replace(gradient, matrix=gradient.matrix / self.asked.lengths(y)[..., None, :])
            )
        if self.has_final:
            self._add([partial(self.asked.norm, gradient.matrix, self.asked.normed(x))], gradient.exponent, side)
            gradient = Gradient(self.asked.behind(gradient.matrix, x), gradient.exponent).settled()
        if any(passage.sublayer.input_weight for passage in passages):
            nothing = Gradient(np.zeros_like(gradient.matrix), gradient.exponent)
            beside = GradientBeside(nothing, nothing)
        to_memory: Gradient | None = None
        to_values: Gradient | None = None
        below = [gradient]
        for place, passage in reversed(list(enumerate(passages))):
            exponent = gradient.exponent
            gradient, more, values, parts, beside = passage.backward(gradient, beside, to_values)
            below.append(gradient)
            self._add(parts, exponent, side, place)
            if more is not None:
                to_memory = more if to_memory is None else to_memory.plus(more)
            if values is not None:
                to_values = values if to_values is None else to_values.plus(values)
            advance()
        at_input = gradient.matrix
        if beside is not None:
            at_input = beside.sum(at_input, beside.cross.at(gradient.exponent), gradient.exponent)
            below[-1] = replace(gradient, matrix=at_input)  # x_0 is read again later on, or begins both streams
        self._add([self._embedding(at_input, side)], gradient.exponent, side)
        self.gradients.append(below[::-1])
        return None if to_memory is None else to_memory.settled()

    def _add(self, parts: Iterable[Later], exponent: float | Array, side: int, place: int | None = None) -> None:
        """parts: of a sublayer, in units of e^exponent. They wait until as many are there as have room."""
        for part in parts:
            self._waiting.setdefault((side, *_kind(part)), []).append((part, exponent, place))
        if max(map(len, self._waiting.values())) >= self._most_waiting:
            self._make()

    def _make(self) -> None:
        """Make the parts that wait, those of a kind in one call."""
        known: dict[tuple[int, ...], Any] = {}
        for (side, *_), several in self._waiting.items():
            waiting, exponents, places = zip(*several, strict=True)
            arguments = [joined(column, known) for column in zip(*(later.args for later in waiting), strict=True)]
            exponent = np.reshape(exponents, (len(several), -1))
            sublayers = [None if place is None else self.network.sides[side][place] for place in places]
            for part in waiting[0].func(*arguments, **waiting[0].keywords):
                rates = [1.0 if each is None else each.lr_multipliers.get(part.role, 1.0) for each in sublayers]
                numbers = {"weight": np.reshape(part.weight, (-1, 1)), "lr_multiplier": np.reshape(rates, (-1, 1))}
                self.parts.append(Counted(replace(part, **numbers), exponent, side, places, *self._counts))
        self._waiting.clear()

    def totals(self) -> Totals:
        """The update by step and role, by side and by sublayer."""
        return {step: self._sums(step) for step in self.steps}

    def _sums(self, step: Step) -> Sums:
        # As of all else: no mixed step has it. What is noise adds up in squares, which are linear.
        is_linear = step.is_noise or step.matrices is Functional.FROBENIUS_SQUARED
        degree = 1.0 if is_linear else 0.5
        degree *= 2.0 if step.is_noise and step.matrices is Functional.FROBENIUS_SQUARED else 1.0
        entries = [entry for entry in self.parts if not step.is_noise or entry.part.role in MATRICES]
        counted = [(entry, weight) for entry in entries if (weight := entry.linear if is_linear else entry.root)]
        top = degree * np.max([entry.exponent.max(0) for entry, _ in counted], 0)
        values: dict[str, Array] = {}
        sides: list[dict[str, Array]] = [{} for _ in self.network.sides]
        layers: list[list[dict[str, float]]] = [[{} for _ in side] for side in self.network.sides]
        for entry, weight in counted:
            role, value = entry.part.role, entry.part.noise(step) if step.is_noise else entry.part.value(step)
            value = value * (weight * np.exp(degree * entry.exponent - top))
            for sums in (values, sides[entry.side]):
                sums[role] = sums.get(role, 0.0) + value.sum(0)
            for place, of_last in zip(entry.places, value[:, -1].tolist(), strict=True):
                if place is not None:
                    of_layer = layers[entry.side][place]
                    of_layer[role] = of_layer.get(role, 0.0) + of_last
        if step.is_noise:
            for sums in (values, *sides):
                sums.update({role: np.sqrt(value) for role, value in sums.items()})
            for of_layer in (layer for side in layers for layer in side):
                of_layer.update({role: math.sqrt(value) for role, value in of_layer.items()})
            top = top / 2
        return Sums(values, sides, layers, top)


def _sum_of_streams(asked: Asked, x: Gram, beside: Beside) -> Gram:
    """The Gram matrix of x + norm(y)."""
    cross = beside.cross / asked.lengths(beside.gram)[..., None, :]
    return of_matrix(x.plus(asked.normed(beside.gram)).full + cross + cross.mT)


def of_matrix(whole: Array) -> Gram:
    """Small differences between tokens are lost where they are beyond rounding."""
    level = diagonal(whole).max(-1)[..., None, None]
    return Gram(level, level - whole)


def _num_points(network: Transformer, inputs: Inputs, effort: float) -> tuple[int, int]:
    """Of the averages of an attention, and of those of an FFN.

    Errors of many sublayers, and of many tokens, average out, so each needs fewer points; but what few points do to
    norms and products is a bias, so few tokens, which cost little, get more.
    """
    num_all = network.visits * inputs.num_all  # of one layer
    crowd = max(1.0, num_all / 32) ** 2
    least = min(4 * max(1.0, 16 / num_all) ** 2, 512)
    return (
        _power(effort * min(max(2048 / network.num_sublayers / crowd, least), 512), 4),
        _power(effort * min(16384 / network.num_sublayers, 1024), 128),
    )


def sets_at_once(network: Transformer, inputs: Inputs, effort: float) -> int:
    """How many sets of points one walk takes: several where their arrays are small, which spares calls; one where they
    are large, which spares memory."""
    n = network.visits * inputs.num_all
    of_heads = 2 * n * (network.head_size or DRAWN_SIZE) if network.head_size or network.heads.rotary_base else 0
    of_average = _num_points(network, inputs, effort)[0] * max(n * n, of_heads)
    held = 20 * n * n * network.num_sublayers  # about as many matrices as a passage has
    if inputs.loss == "ce":
        held += 8 * NUM_DRAWS * inputs.num_all * max(inputs.num_all, inputs.num_classes)
    return max(1, min(_MOST_AT_ONCE // of_average, _MOST_HELD // held))


def _power(number: float, least: int) -> int:
    """The largest power of 2 that is not above ``number``, but at least ``least``."""
    return max(2 ** math.floor(math.log2(number)), least)
