r"""One attention at infinite width: what softmax averages over tokens do to a Gram matrix, forward and backward.

A head's logits are S_ts = s q_t . k_s / sqrt(K), q = W_q u and k = W_k u', s = 1 unless a model says otherwise. As the
head size K grows they are Gaussian with covariance Q_tt' C_ss', where Q is q's Gram matrix and C that of the centred
keys: what all keys have in common does not move a softmax. With A = softmax(S), averaged over infinitely many heads,

    mixed     M  = E A V A^T                                V: Gram matrix of the values
    to v      G_v = E A^T G A                               G: of the gradient at the mixed values
    to q      G_q = G_tt' E tr(J_t V J_t' C)                J_t = diag(A_t) - A_t A_t^T, the derivative of softmax
    to k      G_k = E sum_tt' G_tt' Q_tt' J_t V J_t'

since dA = dM V^T is Gaussian given A. J_t 1 = 0, so V is centred too, and no small difference of large numbers is
taken. Forward and backward averages are over the same fixed points.

At a finite head size K, q and k are drawn. So they are with rotary positions, which turn q_t and k_s by angles that
grow with the place of the token: the turned vectors make the logits, and gradients are turned back. A norm of queries
or keys divides by their length: by that of the Gram matrix where heads are infinite, or it runs over all heads at once;
by that of the drawn vector in a finite head. A cap c tanh(S/c) multiplies J by its slope, and then what keys have in
common counts. Heads that share keys and values send these the sum of their gradients: its Gram matrix is the same, for
the gradients of different heads are uncorrelated, but its entries are fewer and larger.

Matrices are (..., n, n), and samples (..., points, n, m): axes in front are sets of points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthlaw.theory.kernel.gram import Array, Gram, entry_sum, factor, outer
from depthlaw.theory.kernel.points import normals
from depthlaw.theory.kernel.setting import DRAWN_SIZE, Heads

_CHUNK = 2**16
"""How many numbers one step of the backward average holds: what a processor has at hand."""
_ALONE = 1e-8
"""The share of all sources but one below which a token sees that one alone: M_t V M_t^T goes as its square, which is
less than rounding."""


@dataclass(frozen=True)
class Gains:
    """The gains of the four matrices: what each multiplies the second moment of a vector by is the gain's square."""

    q: float
    k: float
    v: float
    out: float


@dataclass(frozen=True)
class Roots:
    """E sqrt of the variance of an entry's column (see ``Attention._roots``), by what the entry is of.

    Of matrices, forms C (..., points, r, r): the mean over the points of E sqrt(z^T C z). Of the biases of q, k and v
    and of one head's scale, numbers (...).
    """

    q: Array
    k: Array
    v: Array
    out: Array
    q_bias: Array
    k_bias: Array
    v_bias: Array
    head_scale: Array


@dataclass(frozen=True)
class Backward:
    """The Gram matrices of the gradients at q, k and v, each summed over its units.

    unit_q, unit_k, unit_v: at the output of a norm of theirs, None where there is none. first_v: what goes to the
    values of the side's first attention. units: with roots, by matrix, F (..., points, tokens, .) of each head: at a
    unit of q, k and v the gradient, and before ``out`` the input, is F z.
    """

    q: Array
    k: Array
    v: Array
    roots: Roots | None
    units: dict[str, Array]
    unit_q: Array | None = None
    unit_k: Array | None = None
    unit_v: Array | None = None
    first_v: Array | None = None


class Attention:
    """``queries`` (n tokens) attend to ``sources`` (m tokens) where ``allowed`` (n, m) says so.

    groups: (m,), the sequence of each source; no token sees two. first_values: the Gram matrix of the values of the
    side's first attention, where they are mixed into these; value_weights: of own values and of those. head_size: None
    for infinite. norms: which of q, k and v have a norm. positions: (n,) and (m,), the places of the tokens, of which
    rotary positions need to know. norm_eps: of the norms. which: the quasi-random points, of several sets where
    it has arrays. It is one class, since its averages over the points are made once, and the way back asks
    for them all.
    """

    def __init__(
        self,
        queries: Gram,
        sources: Gram,
        allowed: Array,
        groups: Array,
        gains: Gains,
        *,
        first_values: Gram | None = None,
        value_weights: tuple[float, float] = (1.0, 0.0),
        head_size: int | None,
        heads: Heads | None = None,
        norms: frozenset[str] = frozenset(),
        positions: tuple[Array, Array] | None = None,
        norm_eps: float = 0.0,
        num_points: int,
        which: tuple[int | Array, ...],
    ) -> None:
        self.gains, self.queries, self.sources, self.which, self.norms = gains, queries, sources, which, norms
        self.norm_eps = norm_eps
        self.heads = Heads() if heads is None else heads
        self.groups = groups
        self.positions = positions or (None, None)
        self.has_rotary = bool(self.heads.rotary_base) and positions is not None
        self.size = head_size or (DRAWN_SIZE if self.has_rotary else 0)
        self.normed_first = {role for role in norms if not self.size or self.heads.has_wide_norm or role == "v"}
        """Norms that divide by the length of the Gram matrix; the others by that of a drawn vector."""
        q_gram, k_gram = queries.times(gains.q**2), sources.times(gains.k**2)
        weight, first = value_weights if first_values is not None else (1.0, 0.0)
        self.value_weights = weight, first
        v_gram = sources.times((weight * gains.v) ** 2)
        if first_values is not None:
            v_gram = v_gram.plus(first_values.times(first**2))
        self.q_gram, self.k_gram, self.v_gram = (
            gram.normalised(norm_eps) if role in self.normed_first else gram
            for role, gram in (("q", q_gram), ("k", k_gram), ("v", v_gram))
        )
        grams = {"q": q_gram, "k": k_gram, "v": v_gram}
        self.lengths = {role: gram.lengths(norm_eps) for role, gram in grams.items() if role in self.normed_first}
        self.query_factor = self.q_gram.root if "q" in self.normed_first else abs(gains.q) * queries.root
        self.values = self.v_gram.centred(groups)
        has_common = bool(self.heads.logit_softcap) or self.has_rotary or "k" in norms - self.normed_first
        if "k" in self.normed_first:
            self.key_factor = self.k_gram.root if has_common else factor(self.k_gram.centred(groups))
        else:
            self.key_factor = abs(gains.k) * (sources.root if has_common else self._centred_root)
        self.is_shift_invariant = not (has_common or "k" in norms)
        """Whether what the tokens of a sequence have in common gives k no gradient."""
        n, m = allowed.shape
        # Logits and the gradient's own noise come from one set of points: from two they would not be independent.
        num_drawn = (n + m) * self.size if self.size else n * m
        every = normals(num_points, (num_drawn + n * m,), which)
        drawn, noise = every[..., :num_drawn], every[..., num_drawn:]
        self.noise = noise.reshape(*noise.shape[:-1], n, m)
        if self.size:
            points = drawn.reshape(*drawn.shape[:-1], n + m, self.size)
            self.query, self.query_norm = self._drawn(points[..., :n, :], "q", self.query_factor, self.positions[0])
            self.keys, self.key_norm = self._drawn(points[..., n:, :], "k", self.key_factor, self.positions[1])
            if self.has_rotary or "k" in norms - self.normed_first:
                self.keys = self.keys if self.heads.logit_softcap else _less_mean(self.keys, groups)
            scores = np.sqrt(self.size) * (self.query @ self.keys.mT)
        else:
            scores = _times(_each(self.query_factor) @ drawn.reshape(self.noise.shape), self.key_factor.mT)
            self.keys = self.query = self.query_norm = self.key_norm = None
        self.slopes: Array | float = self.heads.logit_scale
        scores = self.heads.logit_scale * scores
        if cap := self.heads.logit_softcap:
            scores = cap * np.tanh(scores / cap)
            self.slopes = self.heads.logit_scale * (1 - (scores / cap) ** 2)
        scores = np.where(allowed, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = weights / weights.sum(-1, keepdims=True)
        self.mixed = Gram(self.v_gram.level, self._mixed(self.v_gram.gap).sum(-3) / num_points)

    @cached_property
    def _centred_root(self) -> Array:
        return factor(self.sources.centred(self.groups))

    @cached_property
    def value_factor(self) -> Array:
        if "v" in self.normed_first or self.value_weights[1]:
            return factor(self.values)
        return abs(self.value_weights[0] * self.gains.v) * self._centred_root

    def _mixed(self, matrix: Array) -> Array:
        """A V A^T of each head, (..., points, n, n)."""
        return _times(self.weights, matrix) @ self.weights.mT

    @property
    def num_bytes(self) -> int:
        """The memory that its samples take."""
        samples = (self.noise, self.weights, self.slopes, self.query, self.keys)
        return sum(sample.nbytes for sample in samples if isinstance(sample, np.ndarray))

    def _drawn(self, points: Array, role: str, side: Array, positions: Array | None) -> tuple[Array, DrawnNorm | None]:
        """Queries or keys of drawn heads over sqrt(K), (..., points, tokens, K), as they meet, and their norm."""
        vectors, norm = _each(side) @ points / np.sqrt(self.size), None
        if self.has_rotary:  # x_i beside x_(i + K/2), which turn together
            vectors = vectors.reshape(*vectors.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(vectors.shape)
        if role in self.norms - self.normed_first:
            norm = DrawnNorm(vectors, self.norm_eps)
            vectors = norm.unit
        return self._turned(vectors, positions, 1), norm

    def _turned(self, vectors: Array, positions: Array | None, sign: int) -> Array:
        """Vectors (..., points, tokens, K), or (..., points, tokens, r, K), turned by the angle of their token, or back
        by it (sign -1)."""
        if not self.has_rotary or positions is None:
            return vectors
        cos, sin = self.heads.rotations(positions, self.size)
        phases = (cos + sign * 1j * sin).reshape(len(cos), *(1,) * (vectors.ndim - self.noise.ndim), -1)
        return (vectors.view(complex) * phases).view(float)

    # ---------------------------------------------------------------- backward

    def backward(
        self,
        at_out: Array,
        mixed_scale: Array,
        *,
        with_roots: bool,
        with_units: bool = False,
        at_values_too: Array | None = None,
    ) -> Backward:
        """at_out: (..., n, n), of the gradient at the output of ``out``. mixed_scale: (..., n), what a norm divides the
        mixed values by, or 1s. at_values_too: (..., m, m), of what later attentions send to these values."""
        gradient = self.gains.out**2 * at_out
        at_mixed = gradient / outer(mixed_scale)
        q, k, unit_q, unit_k = self._steering(at_mixed)
        number = self.weights.shape[-3] / self.heads.width_ratio
        mixed_v = _summed(self.weights, _each(at_mixed) @ self.weights) / number
        weight, first = self.value_weights
        v = weight**2 * mixed_v + (0.0 if at_values_too is None else at_values_too)
        roots, units = self._roots(at_out, at_mixed, mixed_scale, at_values_too) if with_roots else (None, {})
        if with_units:
            units["out"] = _times(self.weights, self.v_gram.root) / mixed_scale[..., None, :, None]
        lengths = {role: outer(length) for role, length in self.lengths.items()}
        return Backward(
            q / number / lengths.get("q", 1.0),
            k / number / lengths.get("k", 1.0),
            v / lengths.get("v", 1.0),
            roots,
            units,
            unit_q / number if "q" in self.norms else None,
            unit_k / number if "k" in self.norms else None,
            v if "v" in self.norms else None,
            first**2 * mixed_v,
        )

    def _steering(self, gradient: Array) -> tuple[Array, Array, Array, Array]:
        """The gradients that reach q and k, and the outputs of their norms, summed over the points.

        Of M_t = diag(b_t) - b_t a_t^T, where a_t are the weights and b_t these times the slopes of the logits,

            M_t V M_t'^T = (V - (V a_t) 1^T - 1 (V a_t')^T + a_t^T V a_t') entrywise times b_t b_t'^T

        with V a_t along s' and V a_t' along s, so sums over s, s' or t, t' are products of matrices.
        """
        if self.has_rotary or self.query_norm is not None or self.key_norm is not None:
            parts = [self._steering_of_drawn(chunk, gradient) for chunk in self._chunks()]
            to_q, to_k, unit_q, unit_k = (np.add.reduce(part) for part in zip(*parts, strict=True))
            return to_q, to_k, unit_q, unit_k
        to_q = gradient * self._reach_of_q
        bent, along, means = self.bent, self._along, self._means
        query = _each(self.query_factor) if self.query is None else self.query
        pairs = _each(gradient) * (query @ query.mT)
        seen = pairs @ bent
        cross = _summed(bent, (pairs * means / 2) @ bent - along * seen)
        to_k = self.values * _summed(bent, seen) + cross + cross.mT
        return to_q, to_k, to_q, to_k

    @cached_property
    def bent(self) -> Array:
        """b_t: the weights times the slopes of the logits, (..., points, n, m); 0 of a token that sees one source
        alone, of which rounding would be left."""
        return self.slopes * self.weights * (1 - self.weights.max(-1, keepdims=True) > _ALONE)

    @cached_property
    def _along(self) -> Array:
        """V a_t, (..., points, n, m)."""
        return _times(self.weights, self.values)

    @cached_property
    def _means(self) -> Array:
        """a_t^T V a_t', (..., points, n, n)."""
        return self._along @ self.weights.mT

    @cached_property
    def _reach_of_q(self) -> Array:
        """tr(M_t V M_t'^T C) of keys with Gram matrix C, summed over the points."""
        bent, keys = self.bent, _each(self.key_factor) if self.keys is None else self.keys
        gram = keys @ keys.mT
        seen = bent @ gram
        cross = (bent @ (_each(self.values) * gram) / 2 - self._along * seen) @ bent.mT
        return (cross + cross.mT + self._means * (seen @ bent.mT)).sum(-3)

    def _chunks(self) -> Iterator[slice]:
        *sets, number, n, m = self.weights.shape
        size = max(1, _CHUNK // (math.prod(sets) * n * m * max(n, m, self.size)))
        for first in range(0, number, size):
            yield slice(first, first + size)

    def _steering_of_drawn(self, chunk: slice, gradient: Array) -> tuple[Array, Array, Array, Array]:
        """``_steering``, unit by unit, where each vector is turned or is divided by a length of its own."""
        assert self.query is not None and self.keys is not None
        query, keys, bent, weights = (x[..., chunk, :, :] for x in (self.query, self.keys, self.bent, self.weights))
        # (..., points, n, m of the noise, K): what reaches q_t by each direction of the noise, turned back
        at_q = _each(_each(self.value_factor.mT)) @ (bent[..., None] * keys[..., None, :, :])
        at_q -= _times(weights, self.value_factor)[..., None] * (bent @ keys)[..., None, :]
        at_q = self._turned(at_q, self.positions[0], -1)
        unit_q = gradient * _gram_of(at_q)
        to_q = unit_q if self.query_norm is None else gradient * _gram_of(self.query_norm.back(at_q, chunk))
        # (..., points, m, n, K): each q_t as k_s meets it, turned back by the angle of s
        met = np.broadcast_to(query[..., None, :, :], (*keys.shape[:-1], *query.shape[-2:]))
        met = self._turned(met, self.positions[1], -1)
        unit_k = self._met(met, chunk, gradient)
        to_k = unit_k if self.key_norm is None else self._met(self.key_norm.back(met, chunk), chunk, gradient)
        return to_q, to_k, unit_q, unit_k

    def _met(self, met: Array, chunk: slice, gradient: Array) -> Array:
        """The Gram matrix at k of sum_t (M_t^T noise_t)_s times ``met`` (..., points, m, n, K), by the four terms of
        ``_steering``."""
        bent, along, means = (x[..., chunk, :, :] for x in (self.bent, self._along, self._means))
        met = bent.mT[..., None] * met
        gradient = _each(_each(gradient))
        seen = gradient @ met
        rest = (means[..., None, :, :] * gradient / 2) @ met
        rest -= along.mT[..., None] * seen
        rows, seen, rest = (x.reshape(*x.shape[:-2], -1) for x in (met, seen, rest))
        cross = (rows @ rest.mT).sum(-3)
        return self.values * (rows @ seen.mT).sum(-3) + cross + cross.mT

    def _roots(
        self, at_out: Array, at_mixed: Array, mixed_scale: Array, at_values_too: Array | None
    ) -> tuple[Roots, dict[str, Array]]:
        """An entry of a gradient is sum_t g_t u_t over tokens, u Gaussian over the inputs: its mean size over these is
        sqrt(2 / pi) sqrt(g^T U g), and given A the g_t of a unit are taken as Gaussian, as they are in infinite heads
        (of q and k they come out 4 to 5 % low at head size 2, and 1 % at 8)."""
        weights, out, ratio = self.weights, self.gains.out, self.heads.width_ratio
        root_out = factor(at_out)
        root_mixed = _each(abs(out) * root_out if (mixed_scale == 1).all() else factor(at_mixed))
        mixed = (np.asarray(self.v_gram.level)[..., None] - self._mixed(self.v_gram.gap)) / _each(outer(mixed_scale))
        steps = _times(root_mixed @ self.noise, self.value_factor.mT)
        steps = self.slopes * weights * (steps - (weights * steps).sum(-1, keepdims=True))
        over = {role: 1 / length[..., None, :, None] for role, length in self.lengths.items()}
        at_q, at_k = self._at_units(steps)
        at_q, at_k = at_q * over.get("q", 1.0), at_k * over.get("k", 1.0)
        at_values = (weights.mT @ root_mixed) * over.get("v", 1.0) * self.value_weights[0]  # (..., points, m, n)
        keys = self.sources.centred(self.groups) if self.is_shift_invariant else self.sources.full
        at_k, at_values = self._shared(at_k), self._shared(at_values)
        share = ratio / self.heads.queries_per_key
        if at_values_too is not None:  # of many attentions, whose weights average out
            more = _each(factor(at_values_too / share))
            shape = (*at_values.shape[:-1], more.shape[-1])
            at_values = np.concatenate([at_values, np.broadcast_to(more, shape)], axis=-1)
        units = {"q": at_q, "k": at_k, "v": at_values}
        roots = Roots(
            q=_form(at_q, ratio**2 * self.queries.full),
            k=_form(at_k, share**2 * keys),
            v=_form(at_values, share**2 * self.sources.full),
            out=_times(_each(ratio**2 * root_out) @ mixed, root_out),
            q_bias=ratio * np.sqrt((at_q.sum(-2) ** 2).sum(-1)).mean(-1),
            k_bias=share * np.sqrt((at_k.sum(-2) ** 2).sum(-1)).mean(-1),
            v_bias=share * np.sqrt((at_values.sum(-2) ** 2).sum(-1)).mean(-1),
            head_scale=ratio * out * np.sqrt(np.maximum(entry_sum(_each(at_out) * mixed), 0.0)).mean(-1),
        )
        return roots, units

    def _at_units(self, steps: Array) -> tuple[Array, Array]:
        """What a step of the logits, (..., points, n, m), is at q, (..., points, n, .), and k, (..., points, m, .)."""
        if self.query is None or self.keys is None:
            return _times(steps, self.key_factor), steps.mT @ _each(self.query_factor)
        if not (self.has_rotary or self.query_norm or self.key_norm):
            m, size = self.keys.shape[-2:]
            keys = self.keys if size <= m else np.swapaxes(np.linalg.qr(self.keys.mT, mode="r"), -1, -2)
            return steps @ keys, steps.mT @ self.query
        at_q = self._turned(steps @ self.keys, self.positions[0], -1)
        # The vectors that meet k_s are turned back by its own angle.
        at_k = self._turned(steps.mT @ self.query, self.positions[1], -1)
        every = slice(None)
        if self.query_norm is not None:
            at_q = self.query_norm.back(at_q[..., None, :], every)[..., 0, :]
        if self.key_norm is not None:
            at_k = self.key_norm.back(at_k[..., None, :], every)[..., 0, :]
        return at_q, at_k

    def _shared(self, rows: Array) -> Array:
        """Join (..., points, m, r) of single heads to (..., groups of points, m, g r) of the heads that share keys and
        values."""
        if self.heads.queries_per_key == 1:
            return rows
        *sets, points, m, r = rows.shape
        together = min(self.heads.queries_per_key, points)
        number = points // together
        several = rows[..., : number * together, :, :].reshape(*sets, number, together, m, r)
        scale = np.sqrt(self.heads.queries_per_key / together)
        return scale * several.swapaxes(-3, -2).reshape(*sets, number, m, together * r)


class DrawnNorm:
    """The norm of drawn vectors over sqrt(K), (..., points, tokens, K): each over its own length, with eps in it."""

    def __init__(self, vectors: Array, eps: float = 0.0) -> None:
        self.length = np.sqrt((vectors**2).sum(-1, keepdims=True) + eps)
        self.unit = vectors / self.length

    def back(self, gradients: Array, chunk: slice) -> Array:
        """Carry gradients (..., points, tokens, r, K) back: the part along the vector goes, the rest is divided by its
        length.
        """
        unit, length = (x[..., chunk, :, :][..., None, :] for x in (self.unit, self.length))
        return (gradients - (gradients * unit).sum(-1, keepdims=True) * unit) / length


def _each(matrix: Array) -> Array:
    """A matrix (..., n, m) as what multiplies each of the samples (..., points, n, m)."""
    return matrix[..., None, :, :]


def _rows(samples: Array) -> Array:
    """The rows of all samples (..., points, n, m) of a set, (..., points n, m)."""
    *sets, points, n, m = samples.shape
    return samples.reshape(*sets, points * n, m)


def _times(samples: Array, matrix: Array) -> Array:
    """Samples (..., points, n, m) times the matrix (..., m, r) of their set."""
    return (_rows(samples) @ matrix).reshape(*samples.shape[:-1], -1)


def _summed(left: Array, right: Array) -> Array:
    """sum_p L_p^T R_p of (..., points, n, m) each."""
    return _rows(left).mT @ _rows(right)


def _gram_of(vectors: Array) -> Array:
    """The Gram matrix (..., n, n) of vectors (..., points, n, r, K), summed over all other dimensions of a set."""
    several = vectors.swapaxes(-4, -3)
    rows = several.reshape(*several.shape[:-3], -1)
    return rows @ rows.mT


def _less_mean(vectors: Array, groups: Array) -> Array:
    """Vectors (..., points, m, K) less the mean of each group of tokens."""
    same = (groups[:, None] == groups).astype(float)
    return vectors - (same / same.sum(1)) @ vectors


def _form(rows: Array, form: Array) -> Array:
    """X^T U X of each X of ``rows`` (..., points, n, r) and the form U, or what has its eigenvalues on the other side,
    where that is shorter."""
    n, r = rows.shape[-2:]
    if r > n:
        form = _each(factor(form))
        return form @ rows @ rows.mT @ form
    return rows.mT @ _each(form) @ rows
