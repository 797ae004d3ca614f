"""Inner products of token vectors, with the differences between tokens kept exact; and roots of Gaussian forms.

In deep stacks the tokens of a sequence become parallel: after 100 layers of Post-LN they differ by less than rounding
does. Query and key gradients live on these differences. So a Gram matrix is kept as one common level less a gap, and
each rule below computes the gap from gaps alone.

Matrices are (..., n, n): axes in front are sets of quasi-random points, which each have their own. A number of each set
is (..., 1, 1) where it multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Gram:
    """x_i . x_j / width of n token vectors: ``level - gap[..., i, j]``; gap is (..., n, n), symmetric, and level a
    number or (..., 1, 1)."""

    level: float | Array
    gap: Array

    @property
    def full(self) -> Array:
        return self.level - self.gap

    @property
    def diagonal(self) -> Array:
        """(..., n)."""
        return diagonal(self.full)

    @cached_property
    def root(self) -> Array:
        """The symmetric root of ``full``, see ``factor``."""
        return factor(self.full)

    @cached_property
    def unit(self) -> Gram:
        """The Gram matrix of the same vectors, each over its length."""
        return self.normalised()

    @property
    def sets(self) -> list[Gram]:
        """Of each set of points its own."""
        return list(map(Gram, np.broadcast_to(self.level, (*self.gap.shape[:-2], 1, 1)), self.gap))

    def times(self, square: float) -> Gram:
        """The Gram matrix of the vectors times a number with this square, or times a random matrix of this variance."""
        return self if square == 1 else Gram(square * self.level, square * self.gap)

    def plus(self, other: Gram) -> Gram:
        """The Gram matrix of the sums of these vectors and independent ones."""
        return Gram(self.level + other.level, self.gap + other.gap)

    def entrywise(self, other: Gram) -> Gram:
        """The Gram matrix of vectors whose entries are products of the entries of two independent vectors."""
        gap = self.level * other.gap + other.level * self.gap - self.gap * other.gap
        return Gram(self.level * other.level, gap)

    def lengths(self, eps: float = 0.0) -> Array:
        """(..., n), what a norm with this eps divides each vector by."""
        return np.sqrt(self.diagonal + eps)

    def normalised(self, eps: float = 0.0) -> Gram:
        """The Gram matrix of the same vectors, each over its length; a norm's eps is added to the square of that.

        With K_ij = c - g_ij, e = c + eps and r = sqrt((K_ii + eps) (K_jj + eps)), the new level is c / e and the new
        gap (g_ij - c (e - r) / e) / r, where e - r = (e^2 - r^2) / (e + r) has no difference of near numbers in it.
        0/0 for a vector of length 0 without eps.
        """
        gaps, top, lengths = diagonal(self.gap), self.level + eps, self.lengths(eps)
        root, share = outer(lengths), self.level / top
        short = share * (top * (gaps[..., None] + gaps[..., None, :]) - outer(gaps)) / (top + root)
        gap = (self.gap - short) / root
        if not eps:
            each = np.arange(gap.shape[-1])
            gap[..., each, each] = 0.0
        return Gram(share, (gap + gap.mT) / 2)

    def centred(self, groups: Array) -> Array:
        """The Gram matrix of the vectors less the mean of their group. groups: (n,), the group of each vector."""
        return -centred(groups, self.gap)


def stacked(grams: Sequence[Gram]) -> Gram:
    """Gram matrices as one, with an axis in front."""
    return Gram(np.array([gram.level for gram in grams]), np.array([gram.gap for gram in grams]))


def diagonal(matrix: Array) -> Array:
    """(..., n) of (..., n, n)."""
    return matrix.diagonal(0, -2, -1)


def outer(numbers: Array) -> Array:
    """The products (..., n, n) of any two of (..., n)."""
    return numbers[..., None] * numbers[..., None, :]


def entry_sum(matrix: Array) -> Array:
    """The sum of all entries: (...) of (..., n, n)."""
    return np.add.reduce(matrix, (-2, -1))


def centred(groups: Array, matrix: Array) -> Array:
    """P M P, where P subtracts the mean of each group."""
    project = _projection(tuple(groups.tolist()))
    return project @ matrix @ project


@lru_cache(maxsize=16)
def _projection(groups: tuple[int, ...]) -> Array:
    every = np.array(groups)
    same = (every[:, None] == every).astype(float)
    return np.eye(len(every)) - same / same.sum(1)


def factor(matrix: Array) -> Array:
    """The symmetric root R, with R R = matrix, of a matrix that is symmetric and positive semidefinite up to rounding.

    Other roots depend on the axes that are chosen for equal eigenvalues, so rounding would turn the points that they
    are applied to.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.mT) / 2)
    return (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ vectors.mT


# ---------------------------------------------------------------- E sqrt(z^T C z) for z ~ N(0, 1)

_SMALL_T, _T, _LARGE_T = (np.exp(np.arange(*ends)) for ends in ((-40.0, -10.0), (-10.0, 17.0), (17.0, 40.5)))
_ENDS = np.sqrt(_SMALL_T).sum() + (1 / np.sqrt(_LARGE_T)).sum()
_SMALL, _MANY = 16, 128
"""The size up to which, and the number from which on, forms are made tridiagonal all at once."""
MEAN_ABS = np.sqrt(2 / np.pi)
"""E |z|."""


def mean_root(forms: Array) -> Array:
    """E sqrt(z^T C z), z ~ N(0, 1), of each C of ``forms`` (..., n, n), symmetric and positive semidefinite.

    sqrt(Q) = (1 / 2 sqrt(pi)) int_0^oo t^(-3/2) (1 - e^(-Q t)) dt, and E e^(-Q t) = det(1 + 2 C t)^(-1/2). With t = e^x
    the trapezoid rule at step 1 is right to 1e-5 (of up to 1,000 equal eigenvalues; of one, to 1e-7). At the smallest
    t, 1 - E e^(-Q t) is E Q t, and at the largest 1, which changes the sum by 1e-7 of it at most.
    """
    size = np.maximum(np.trace(forms, axis1=-2, axis2=-1), 0.0)
    shares = (forms / np.where(size == 0, 1, size)[..., None, None]).reshape(-1, *forms.shape[-2:])
    is_small = forms.shape[-1] <= _SMALL and len(shares) >= _MANY
    decay = 1 - 1 / np.sqrt(_determinants(shares) if is_small else _determinants_of_few(shares))
    means = np.sqrt(size) * ((1 / np.sqrt(_T)) @ decay + _ENDS).reshape(size.shape)
    return means / (2 * np.sqrt(np.pi))


@np.errstate(over="ignore")
def _determinants_of_few(forms: Array) -> Array:
    """det(1 + 2 C t) at each t of ``_T``, (t, forms), of forms (forms, n, n) of trace 1."""
    values = np.maximum(np.linalg.eigvalsh(forms), 0.0)
    return np.multiply.reduce(1 + values[..., None] * (2 * _T), axis=-2).T


def _determinants(forms: Array) -> Array:
    """As ``_determinants_of_few``: a library makes each form tridiagonal by itself, and here all are by the same steps.

    Householder's mirrors turn the first column, below the diagonal, onto its first entry. The pivots of a tridiagonal
    1 + 2 C t are at least 1, as C has no negative eigenvalue.
    """
    left, unit = np.moveaxis(forms, 0, -1).copy(), 1 / (2 * _T[:, None])
    above, pivots = 0.0, np.ones((len(_T), len(forms)))
    determinants = unit ** -forms.shape[-1] * pivots
    while len(left):
        np.subtract(left[0, 0], above / pivots, out=pivots)
        np.maximum(pivots, 0.0, out=pivots)
        pivots += unit
        determinants *= pivots
        v, left = left[1:, 0].copy(), left[1:, 1:]
        above = (v * v).sum(0)
        if len(v) > 1:
            length = np.sqrt(above)
            half = above + np.abs(v[0]) * length  # of |v|^2, as it is now made
            v[0] += np.copysign(length, v[0])
            over = v / np.where(half > 0, half, 1.0)
            moved = np.einsum("ijk,jk->ik", left, over)
            moved -= (moved * v).sum(0) / 2 * over
            both = v[:, None] * moved
            left -= both
            left -= both.swapaxes(0, 1)
    return determinants


def nuclear(left: Array, right: Array) -> Array:
    """The sum of singular values of Y X^T, Y^T Y = left and X^T X = right, (..., n, n) each."""
    root = factor(right)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(root @ left @ root), 0.0)).sum(-1)
