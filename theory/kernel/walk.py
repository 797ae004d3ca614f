"""The tokens' Gram matrix through a Transformer, the gradients' back, and each parameter's part on the way.

A gradient's is over the whole width, G_ij = sum_a dF/dx_ia dF/dx_ja, (n, n), and at a matrix's output over its units;
the n tokens are those of all sequences of the batch. r = ffn_ratio, hidden width over d_model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from theory.kernel.duals import dual
from theory.kernel.gram import MEAN_ABS, Array, Gram, factor, mean_root, nuclear
from theory.kernel.points import normals
from theory.kernel.readout import Reading
from theory.kernel.setting import PLACES, Inputs, Sublayer, Transformer
from theory.kernel.softmax import Attention, Gains
from theory.kernel.update import Part
from theory.optimizers import Functional
from theory.stack import SublayerKind


@dataclass(frozen=True)
class Sums:
    """By role, in units of e^exponent."""

    values: dict[str, float]
    exponent: float


Totals = dict[Functional, Sums]


@dataclass(frozen=True)
class Gradient:
    """e^exponent times ``matrix``: gradients may grow or vanish without end."""

    matrix: Array
    exponent: float = 0.0

    def settled(self) -> Gradient:
        """Symmetric, as it is but for rounding, and of size 1."""
        matrix = (self.matrix + self.matrix.T) / 2
        size = float(np.abs(matrix).max())
        return Gradient(matrix / size, self.exponent + math.log(size)) if size > 0 else Gradient(matrix, self.exponent)

    def plus(self, other: Gradient) -> Gradient:
        top = max(self.exponent, other.exponent)
        matrices = [one.matrix * math.exp(one.exponent - top) for one in (self, other)]
        return Gradient(matrices[0] + matrices[1], top)


@dataclass(frozen=True)
class Asked:
    """What all sublayers of a walk share. num_points: of an attention's average, and of an FFN's."""

    network: Transformer
    has_roots: bool
    has_nuclear: bool
    num_points: tuple[int, int]
    replicate: int

    def matrix(self, role: str, gradient: Array, inputs: Array, gain: float, root: float | None) -> Part:
        """A square matrix between ``gradient`` and ``inputs``."""
        found = nuclear(gradient, inputs) if self.has_nuclear else None
        return Part(role=role, square=_over(gradient, inputs), root=root, nuclear=found, weight=gain)

    def bias(self, gradient: Array, root: float | None = None, *, role: str = "bias", width: float = 1.0) -> Part:
        """Of a vector that is 0 at first. gradient: of one unit, times d. width: its units over d."""
        total = max(float(gradient.sum()), 0.0)
        found = width * math.sqrt(total) if root is None and self.has_roots else root
        return Part(role=role, square=width * total, root=found, size=math.sqrt(width))

    def gain(self, gradient: Array, unit: Gram, root: float | None = None, *, width: float = 1.0) -> Part:
        """Of a norm whose output is ``unit``, with ``gradient`` there."""
        if root is None and self.has_roots:
            side = factor(unit.full)
            root = float(mean_root(side.T @ gradient @ side))
        square = width * _over(gradient, unit.full)
        return Part(role="norm_gain", square=square, root=root, weight=1.0, size=math.sqrt(width))

    def norm(self, gradient: Array, unit: Gram, root: float | None = None, *, width: float = 1.0) -> Iterator[Part]:
        """Gain and, of a LayerNorm, bias."""
        yield self.gain(gradient, unit, root, width=width)
        if self.network.norm_kind == "layernorm":
            yield self.bias(gradient, role="norm_bias", width=width)


def _over(gradient: Array, inputs: Array) -> float:
    """||sum_i g_i u_i^T||^2, which rounding may make negative where it is 0."""
    return max(float((gradient * inputs).sum()), 0.0)


def _behind_norm(gradient: Array, before: Gram) -> Array:
    """Back through a norm of vectors with Gram matrix ``before``: divided by their lengths."""
    root = np.sqrt(before.diagonal)
    return gradient / np.outer(root, root)


# ---------------------------------------------------------------- the two branches


class FeedForward:
    """fc2(norm_inner(phi(fc1(u))))."""

    def __init__(self, asked: Asked, sublayer: Sublayer, u: Gram, has_inner: bool, which: int) -> None:
        network = asked.network
        self.asked, self.u, self.has_inner, self.which = asked, u, has_inner, (which, asked.replicate)
        self.ratio = network.ffn_ratio
        self.gains = [sublayer.gains.get(role, 1.0) * math.sqrt(2 / (1 + self.ratio)) for role in ("fc1", "fc2")]
        self.phi = dual(network.activation)
        self.before = u.times(self.gains[0] ** 2)
        self.centres = has_inner and network.norm_kind == "layernorm"
        self.raw = self.phi.second(self.before, is_centred=self.centres)
        self.hidden = self.raw.normalised() if has_inner else self.raw
        self.out = self.hidden.times(self.ratio * self.gains[1] ** 2)

    def backward(self, gradient: Array, parts: list[Part]) -> tuple[Array, None]:
        asked, ratio, (gain_in, gain_out) = self.asked, self.ratio, self.gains
        at_hidden = gain_out**2 * gradient
        at_phi = _behind_norm(at_hidden, self.raw) if self.has_inner else at_hidden
        at_fc1 = ratio * at_phi * self.phi.slope_second(self.before)
        in_root = out_root = bias_root = None
        if asked.has_roots:
            in_root, out_root, bias_root = (ratio * root for root in self._roots(gradient, at_phi))
        fc1 = asked.matrix("fc1", at_fc1, self.u.full, gain_in, in_root)
        fc2 = asked.matrix("fc2", ratio * gradient, self.hidden.full, gain_out, out_root)
        parts += [replace(part, size=math.sqrt(ratio)) for part in (fc1, fc2)]
        parts += [asked.bias(gradient), replace(asked.bias(at_fc1, bias_root), size=math.sqrt(ratio))]
        if self.has_inner:
            root = None if out_root is None else gain_out * out_root
            parts += asked.norm(at_hidden, self.hidden, root, width=ratio)
        return gain_in**2 * at_fc1, None

    def _roots(self, gradient: Array, at_phi: Array) -> tuple[float, float, float]:
        """E sqrt of an entry's variance given the hidden unit, of fc1, fc2 and fc1's bias: see ``Attention._roots``.

        A hidden unit is not Gaussian behind phi, so units are drawn: their inputs h, and what they get from above.
        """
        n = len(gradient)
        points = normals(self.asked.num_points[1], (2, n), self.which)
        h = points[:, 0] @ factor(self.before.full).T
        above = points[:, 1] @ factor(at_phi).T
        hidden, slopes = self.phi.value(h), self.phi.slope(h)
        if self.centres:
            hidden = hidden - self.phi.mean(np.sqrt(self.before.diagonal))
        if self.has_inner:
            hidden = hidden / np.sqrt(self.raw.diagonal)
        return (
            _mean_root_of(above * slopes, self.u.full),
            _mean_root_of(hidden, gradient),
            _mean_root_of(slopes, at_phi),
        )


def _mean_root_of(rows: Array, form: Array) -> float:
    """The mean of sqrt(y^T M y) over rows y."""
    return float(np.sqrt(((rows @ form) * rows).sum(-1).clip(min=0.0)).mean())


class Attending:
    """out(norm_inner(softmax(q k^T) v)), of tokens u over tokens u (or a memory's)."""

    def __init__(
        self, asked: Asked, sublayer: Sublayer, u: Gram, memory: Gram | None, sides: _Sides, has_inner: bool, which: int
    ) -> None:
        self.asked, self.u, self.memory, self.has_inner = asked, u, memory, has_inner
        self.prefix = "" if memory is None else "cross_"
        self.sources = u if memory is None else memory
        self.sides, self.which = sides, (which, asked.replicate)
        self.gains = Gains(*(sublayer.gains.get(self.prefix + role, 1.0) for role in ("q", "k", "v", "out")))
        self.raw = self._attention().mixed
        self.mixed = self.raw.normalised() if has_inner else self.raw
        self.out = self.mixed.times(self.gains.out**2)

    def _attention(self) -> Attention:
        """Drawn anew on the way back, with the same points: samples of every sublayer would fill the memory."""
        return Attention(
            self.u,
            self.sources,
            self.sides.allowed,
            self.sides.groups,
            self.gains,
            head_size=self.asked.network.head_size,
            num_points=self.asked.num_points[0],
            which=self.which,
        )

    def backward(self, gradient: Array, parts: list[Part]) -> tuple[Array, Array | None]:
        asked, gains, prefix = self.asked, self.gains, self.prefix
        scale = np.sqrt(self.raw.diagonal) if self.has_inner else np.ones(len(gradient))
        found = self._attention().backward(gradient, scale, with_roots=asked.has_roots)
        roots = found.roots
        u, sources = self.u.full, self.sources.full
        parts += [
            asked.matrix(f"{prefix}q", found.q, u, gains.q, roots and roots.q),
            # k's gradients sum to 0 over a sequence, so that what its tokens have in common does not count.
            asked.matrix(f"{prefix}k", found.k, self.sources.centred(self.sides.groups), gains.k, roots and roots.k),
            asked.matrix(f"{prefix}v", found.v, sources, gains.v, roots and roots.v),
            asked.matrix(f"{prefix}out", gradient, self.mixed.full, gains.out, roots and roots.out),
            asked.bias(found.q, roots and roots.q_bias),
            asked.bias(found.v, roots and roots.v_bias),
            asked.bias(gradient),
        ]
        at_mixed = gains.out**2 * gradient
        if self.has_inner:
            parts += asked.norm(at_mixed, self.mixed, roots and roots.inner_gain)
        if asked.network.placement == "normformer":
            # One number for each head: H = d / head_size of them, whose 1-norm grows as sqrt(H), not sqrt(d).
            share = 0.0 if asked.network.head_size is None else 1 / math.sqrt(asked.network.head_size)
            part = asked.gain(at_mixed, self.mixed, roots and share * roots.head_scale)
            parts.append(replace(part, size=share))
        to_sources = gains.k**2 * found.k + gains.v**2 * found.v
        to_u = gains.q**2 * found.q
        return (to_u + to_sources, None) if self.memory is None else (to_u, to_sources)


# ---------------------------------------------------------------- one sublayer


@dataclass(frozen=True)
class _Sides:
    """allowed: (n, m), whether a token attends to another. groups: (m,), the sequences of those."""

    allowed: Array
    groups: Array


class Passage:
    """One residual sublayer: ``next`` is the Gram matrix behind it."""

    def __init__(
        self, asked: Asked, sublayer: Sublayer, x: Gram, memory: Gram | None, sides: _Sides, which: int
    ) -> None:
        self.asked, self.sublayer, self.x = asked, sublayer, x
        self.places = _places(asked.network.placement, sublayer.kind)
        self.before = x.normalised() if "pre" in self.places else x
        u = self.before.times(sublayer.input_scale**2)
        has_inner = "inner" in self.places
        if sublayer.kind is SublayerKind.FFN:
            self.inside = FeedForward(asked, sublayer, u, has_inner, which)
        else:
            source = memory if sublayer.kind is SublayerKind.CROSS else None
            self.inside = Attending(asked, sublayer, u, source, sides, has_inner, which)
        raw = self.inside.out
        self.branch = raw.normalised() if "branch" in self.places else raw
        self.sum = x.times(sublayer.residual_weight**2).plus(self.branch.times(sublayer.branch_weight**2))
        self.next = self.sum.normalised() if "post" in self.places else self.sum

    def backward(self, gradient: Gradient) -> tuple[Gradient, Gradient | None, list[Part]]:
        """Of ``next`` to: of x, of the memory, and every parameter's part in units of the exponent that came in."""
        asked, sublayer, parts, at = self.asked, self.sublayer, [], gradient.matrix
        if "post" in self.places:
            parts += asked.norm(at, self.next)
            at = _behind_norm(at, self.sum)
        if sublayer.trains_branch_weight:
            square = _over(at, self.branch.full)
            # One number: its norm is |g|, whose mean is sqrt(2 / pi) of the root mean square.
            weight = abs(sublayer.branch_weight)
            parts.append(
                Part(role="branch_weight", square=square, root=math.sqrt(square), weight=weight, size=MEAN_ABS)
            )
        at_branch = sublayer.branch_weight**2 * at
        if "branch" in self.places:
            parts += asked.norm(at_branch, self.branch)
            at_branch = _behind_norm(at_branch, self.inside.out)
        to_u, to_memory = self.inside.backward(at_branch, parts)
        to_before = sublayer.input_scale**2 * to_u
        if "pre" in self.places:
            parts += asked.norm(to_before, self.before)
            to_before = _behind_norm(to_before, self.x)
        to_x = Gradient(sublayer.residual_weight**2 * at + to_before, gradient.exponent).settled()
        rates = sublayer.lr_multipliers
        parts = [replace(part, lr_multiplier=rates.get(part.role, 1.0)) for part in parts]
        return to_x, None if to_memory is None else Gradient(to_memory, gradient.exponent).settled(), parts


def _places(placement: str, kind: SublayerKind) -> frozenset[str]:
    """Where norms stand in a sublayer; see ``PLACES``."""
    found = PLACES[placement]
    is_normformer = placement == "normformer"
    if kind is SublayerKind.CROSS or (is_normformer and kind is SublayerKind.SELF):
        found = found - {"inner"}
    if is_normformer and kind is SublayerKind.FFN:
        found = found - {"branch"}
    return found


# ---------------------------------------------------------------- the whole network


@dataclass(frozen=True)
class Counted:
    """A part in units of e^exponent, and how often it counts: in what is linear in the gradient's Gram matrix, and in
    what goes as its root."""

    part: Part
    exponent: float
    linear: float = 1.0
    root: float = 1.0


class Walk:
    """Forward and backward once, with one set of quasi-random points.

    parts: every parameter's (see ``Counted``). streams: by side, x_0, x_1, ... gradients: the mean one at these.
    """

    def __init__(
        self, network: Transformer, inputs: Inputs, needs: frozenset[Functional], replicate: int, effort: float
    ) -> None:
        self.network, self.inputs, self.needs = network, inputs, needs
        num_sublayers = sum(len(side) for side in network.sides)
        has_roots = bool(needs - {Functional.FROBENIUS_SQUARED, Functional.FROBENIUS_PRODUCT})
        # Errors of many sublayers, and of many tokens, average out, so each needs fewer points; but what few points do
        # to norms and products is a bias, so few tokens, which cost little, get more.
        crowd = max(1.0, inputs.num_all / 32) ** 2
        least = min(4 * max(1.0, 16 / inputs.num_all) ** 2, 512)
        num_points = (
            _power(effort * min(max(2048 / num_sublayers / crowd, least), 512), 4),
            _power(effort * min(16384 / num_sublayers, 1024), 128),
        )
        self.asked = Asked(network, has_roots, Functional.NUCLEAR in needs, num_points, replicate)
        self.has_final = "final" in PLACES[network.placement]
        self.parts: list[Counted] = []
        self.streams: list[list[Gram]] = []
        self.gradients: list[list[Gradient]] = []

    def run(self, advance: Callable[[float], None]) -> None:
        """advance: told 1 for each sublayer, forward and backward. ArithmeticError where the stream overflows."""
        passages: list[list[Passage]] = []
        last: Gram | None = None
        for side, sublayers in enumerate(self.network.sides):
            passages.append(self._forward(side, sublayers, last, advance))
            x = self.streams[-1][-1]
            last = x.normalised() if self.has_final else x
        assert last is not None
        reading = Reading(self.inputs, last, self.asked.replicate)
        self.parts.append(Counted(reading.head, 0.0))
        is_one = self.inputs.loss == "logit"
        has_others = self.needs != {Functional.FROBENIUS_SQUARED}
        drawn = reading.carried if has_others and not is_one else []
        share = 1 / (1 + len(drawn))
        self._all_back(passages, reading.gradient, lambda: advance(share), linear=1.0, root=float(is_one))
        for one in drawn:
            self._all_back(passages, one, lambda: advance(share), linear=0.0, root=1 / len(drawn))
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
        """Through both sides. linear, root: what its parts count, see ``Counted``."""
        gradient: Gradient | None = Gradient(at_end).settled()
        first = len(self.parts)
        for found, stream in zip(reversed(passages), reversed(self.streams), strict=True):
            assert gradient is not None
            gradient = self._backward(found, stream[-1], gradient, advance)
        self.parts[first:] = [replace(one, linear=linear, root=root) for one in self.parts[first:]]

    def _forward(
        self, side: int, sublayers: Sequence[Sublayer], memory: Gram | None, advance: Callable[[float], None]
    ) -> list[Passage]:
        is_causal = self.network.is_causal or side == 1
        found: list[Passage] = []
        stream = [self.inputs.gram]
        for place, sublayer in enumerate(sublayers):
            allowed = self.inputs.allowed(is_causal=is_causal and sublayer.kind is SublayerKind.SELF)
            sides = _Sides(allowed, self.inputs.groups)
            which = place + side * len(self.network.encoder)
            with np.errstate(over="ignore", invalid="ignore"):
                found.append(Passage(self.asked, sublayer, stream[-1], memory, sides, which))
                stream.append(found[-1].next)
                is_finite = np.isfinite(stream[-1].full).all()
            if not is_finite:
                raise ArithmeticError(f"x_{place + 1} has tokens that are 0, or beyond the floats")
            advance(1.0)
        self.streams.append(stream)
        return found

    def _backward(
        self, passages: Sequence[Passage], x: Gram, gradient: Gradient, advance: Callable[[], None]
    ) -> Gradient | None:
        """From behind the side's final norm to its input; the gradient at the memory, where there is one."""
        if self.has_final:
            self._add(self.asked.norm(gradient.matrix, x.normalised()), gradient.exponent)
            gradient = Gradient(_behind_norm(gradient.matrix, x), gradient.exponent).settled()
        to_memory: Gradient | None = None
        below = [gradient]
        for passage in reversed(passages):
            exponent = gradient.exponent
            gradient, more, parts = passage.backward(gradient)
            below.append(gradient)
            self._add(parts, exponent)
            if more is not None:
                to_memory = more if to_memory is None else to_memory.plus(more)
            advance()
        self._add([_embedding(gradient.matrix, self.asked)], gradient.exponent)
        self.gradients.append(below[::-1])
        return None if to_memory is None else to_memory.settled()

    def _add(self, parts: Iterable[Part], exponent: float) -> None:
        self.parts += [Counted(part, exponent) for part in parts]

    def totals(self) -> Totals:
        """By functional and role."""
        found: Totals = {}
        for functional in self.needs:
            is_linear = functional is Functional.FROBENIUS_SQUARED
            degree = 1.0 if is_linear else 0.5
            counted = [(one, weight) for one in self.parts if (weight := one.linear if is_linear else one.root)]
            top = degree * max(one.exponent for one, _ in counted)
            values: dict[str, float] = {}
            for one, weight in counted:
                value = weight * one.part.value(functional) * math.exp(degree * one.exponent - top)
                values[one.part.role] = values.get(one.part.role, 0.0) + value
            found[functional] = Sums(values, top)
        return found


def _embedding(gradient: Array, asked: Asked) -> Part:
    """Each token's vector is a row of its own, of entries of size 1."""
    own = np.diagonal(gradient).clip(min=0.0)
    found = nuclear(gradient, np.eye(len(gradient))) if asked.has_nuclear else None
    return Part(
        role="embedding",
        square=float(own.sum()),
        root=float(np.sqrt(own).sum()),
        nuclear=found,
        weight=1.0,
        size=math.sqrt(len(own)),
    )


def _power(number: float, least: int) -> int:
    """The power of 2 below ``number``, at least this."""
    return max(2 ** math.floor(math.log2(number)), least)
