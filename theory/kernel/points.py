"""Fixed quasi-random points: the same on every machine and every day.

One scrambled Sobol sequence, moved by another amount (modulo 1) for each average that is taken, so that the errors of
the sublayers of a stack do not add up. Each point comes with its opposite, which makes odd moments exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from depthlaw.theory.kernel.gram import Array

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol

_MOST_DIMENSIONS = 16_384
"""The most dimensions of one Sobol sequence; further dimensions are the same points in another order."""
_SCRAMBLE = 20221122
_UNIT = 2.0**-30
"""The points of the sequence are whole multiples of it."""
_MOST_KEPT = 200_000
"""The most numbers that are kept: more take longer to read than the library to load."""

keeper: ContextVar[Callable[[Mapping[str, Any], Callable[[], Any]], Any] | None] = ContextVar("keeper", default=None)
"""What keeps few points where somebody set it, by what they are asked by and how they are made: the library that draws
them takes longer to load than all else."""


def normals(number: int, shape: tuple[int, ...], which: tuple[int | Array, ...]) -> Array:
    """Standard normal points, (..., number, *shape), number even. which: whole numbers that name the average, or arrays
    (...) of these, which name several."""
    base, shifts = _base(number // 2, math.prod(shape))
    name = np.asarray(1 + sum(w * step for w, step in zip(which, (1, 65_537, 1_299_709), strict=False)))
    moved = base + shifts * name[..., None, None]
    moved -= np.floor(moved)
    points = ndtri(np.minimum(np.maximum(moved, 1e-12), 1 - 1e-12))
    return np.concatenate([points, -points], axis=-2).reshape(*name.shape, number, *shape)


@cache
def _base(number: int, dimensions: int) -> tuple[Array, Array]:
    """The points of [0, 1)^dimensions, and how far each coordinate moves from one average to the next."""
    columns, left = [], dimensions
    while left > 0:
        size = min(left, _MOST_DIMENSIONS)
        exponent = int(np.ceil(np.log2(number)))
        columns.append(_points(size, exponent, _SCRAMBLE + len(columns))[:number])
        left -= size
    return np.concatenate(columns, axis=1), np.sqrt(_primes(dimensions)) % 1.0


def _points(dimensions: int, exponent: int, seed: int) -> Array:
    """The first 2^exponent points of a sequence, drawn or as they were kept."""

    def draw() -> Array:
        return _sequence(dimensions, seed).reset().random_base2(exponent)

    keep = keeper.get()
    if keep is None or dimensions << exponent > _MOST_KEPT:
        return draw()
    asked = {"points": [dimensions, exponent, seed]}
    return np.array(keep(asked, lambda: (draw() / _UNIT).astype(int).tolist())) * _UNIT


@cache
def _sequence(dimensions: int, seed: int) -> Sobol:
    """One scrambled sequence, of which fewer points are the first of more."""
    from scipy.stats.qmc import Sobol  # a second, which only averages over points should cost

    return Sobol(dimensions, scramble=True, rng=seed)


@cache
def _primes(number: int) -> Array:
    """The first ``number`` primes. Their square roots are independent over the rationals, so no coordinate stays where
    it was and no two move together, as those of 4, or of 2 and 8, would.
    """
    least = max(number, 6)
    end = int(least * (np.log(least) + np.log(np.log(least)))) + 1  # Rosser's bound on the n-th prime
    is_prime = np.ones(end + 1, dtype=bool)
    is_prime[:2] = False
    for n in range(2, int(np.sqrt(end)) + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = False
    return np.flatnonzero(is_prime)[:number]
