r"""Adafactor's first step for the gradient of a matrix that n tokens reach: g_ij = sum_t delta_it x_jt = delta_i . x_j.

Its second moment is factored, into means of squares of rows and of columns. As both grow in number,

    R_i = mean_j g_ij^2 = delta_i^T X delta_i,   C_j = mean_i g_ij^2 = x_j^T D x_j,   mean g^2 = tr(X D) = m

with D = E delta delta^T of the rows and X = E x x^T of the columns, (n, n) each. The direction g_ij sqrt(m / (R_i C_j))
is then a product of a row and a column, and so are its averages, which fall apart into one of either side:

    mean g direction   = sqrt(m) <A, B>,   A  = E delta delta^T / sqrt(delta^T X delta),   B  = E x x^T / sqrt(x^T D x)
    mean direction^2   = m <A', B'>,       A' = E delta delta^T / (delta^T X delta),       B' = E x x^T / (x^T D x)

For one token the two are mean |g| and 1. For two tokens that are nearly parallel, mean direction^2 is larger: the
direction is large where a row and a column are both nearly orthogonal to what the tokens have in common. Such entries
are few. Let s be the second eigenvalue of X^(1/2) D X^(1/2) as a share of the first: it contributes to mean direction^2
from widths of 1/sqrt(s) on (at a third of that width a step is still up to 20 % longer than predicted), and is left out
where no network is as wide.
"""

from __future__ import annotations

import numpy as np

from depthlaw.theory.kernel.gram import Array, entry_sum, factor

_T = np.exp(np.arange(-40.0, 40.25, 0.5))
_WIDEST = 10_000
_NO_SHARE = 1 / _WIDEST**2
_ROUNDING = 64 * float(np.finfo(float).eps)


def factored(side: Array, other: Array, drawn: Array | None = None) -> Array:
    """The mean of g times Adafactor's step, which is the direction over max(1, its root mean square); (...).

    side, other: D and X, or X and D, (..., n, n) each. Both sides are Gaussian, but for what is drawn of the first:
    vectors (..., points, n), or F (..., points, n, r) where it is Gaussian with covariance F F^T once a head is given.
    """
    mean = np.maximum(entry_sum(side * other), 0.0)
    first = _weighted(factor(side)[..., None, :, :] if drawn is None else drawn, other)
    second = _weighted(factor(other)[..., None, :, :], side)
    along, square = (entry_sum(a * b) for a, b in zip(first, second, strict=True))
    return np.where(mean > 0, np.sqrt(mean) * along / np.fmax(1.0, np.sqrt(mean * square)), 0.0)


def factored_of_few(rows: Array, columns: Array) -> Array:
    """The sum of g times Adafactor's step over a few given rows (..., number, n), of which no average is taken."""
    number = rows.shape[-2]
    return number * factored(rows.mT @ rows / number, columns, rows)


def _weighted(drawn: Array, form: Array) -> tuple[Array, Array]:
    """E y y^T / sqrt(Q) and E y y^T / Q of vectors y, Q = y^T form y; y is 0 where Q is."""
    if drawn.ndim > form.ndim:
        return _of_gaussians(drawn, form)
    squares = ((drawn @ form) * drawn).sum(-1)
    is_there = squares > _ROUNDING * np.trace(form, axis1=-2, axis2=-1)[..., None] * (drawn**2).sum(-1)
    squares = np.where(is_there, squares, np.inf)[..., None, :]
    first, second = (drawn.mT / squares**power @ drawn / drawn.shape[-2] for power in (0.5, 1.0))
    return first, second


def _of_gaussians(factors: Array, form: Array) -> tuple[Array, Array]:
    """The averages of ``_weighted`` for y = F z, z ~ N(0, 1). On the axes of F^T form F, with eigenvalues l,

    E z_i^2 / sqrt(Q) = (1 / sqrt(pi)) int_0^oo t^(-1/2) w_i(t) dt,   E z_i^2 / Q = int_0^oo w_i(t) dt,
    w_i = E z_i^2 e^(-Q t) = (1 + 2 l_i t)^(-1) prod_j (1 + 2 l_j t)^(-1/2),

    by the trapezoid rule in log t, as ``gram.mean_root``; at step 1/2 it is right to 1e-7.
    """
    if factors.shape[-1] > factors.shape[-2]:
        factors = np.swapaxes(np.linalg.qr(factors.mT, mode="r"), -1, -2)
    values, vectors = np.linalg.eigh(factors.mT @ form[..., None, :, :] @ factors)
    total = values.clip(min=0.0).sum(-1)[..., None]
    shares = values / np.where(total == 0, 1, total)
    is_there = shares > _NO_SHARE
    grown = 1 + 2 * np.where(is_there, shares, 0.0)[..., None] * _T
    with np.errstate(over="ignore"):  # the weight is 0 there
        decay = 1 / (grown * np.sqrt(np.multiply.reduce(grown, axis=-2, keepdims=True)))
    axes = factors @ vectors
    means = []
    for times, power in ((np.sqrt(_T / np.pi), 0.5), (_T, 1.0)):
        weights = np.where(is_there, decay @ times / 2, 0.0) / np.where(total == 0, 1, total) ** power
        means.append(((axes * weights[..., None, :]) @ axes.mT).mean(-3))
    return means[0], means[1]
