"""The law of a role's initialisation: how its standard deviation hangs on the number of layers and on the layer.

A standard deviation that is read from n entries has a relative standard error of 1/sqrt(2n), so a few layers of a small
model tell its exponents to a percent. Laws are compared as the logarithm of what is there over what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_high

import numpy as np
from scipy.special import chdtrc

SURE = 6.0
"""Standard errors at which a difference is one: of thousands of comparisons none gets there by chance."""
SMALL = 0.03
"""A constant that is off by less changes the update by less than 6 %: no fault."""
NEAR = 1e-2
"""Relative: weights of the stream and of branches are read to rounding, but papers print constants of two digits."""
UNLIKELY = 1e-9
"""The probability of a misfit that no draw makes."""
CLEAR = 0.2
"""Relative: a layer that differs from all others by more is unlike them."""
_MOST_LAYERS = 1000
"""A weight or scale that is the same at every depth is not said to be that of more."""


@dataclass(frozen=True)
class Point:
    """The standard deviation of one matrix at its start.

    num_layers: N of its side. layer: from 1. std: of its n entries. asked: what is asked for: a standard deviation, or
    a gain where only gains are. name: of the parameter. bases: what the standard deviation would be at gain 1 by usual
    initialisations of a matrix of that shape. rows: how its entries are picked from the parameter, as Python. by_shape:
    of matrices whose shapes differ from layer to layer, what its own makes of the standard deviation, which is told as
    that of the middle shape.
    """

    num_layers: int
    layer: int
    std: float
    entries: int
    asked: float
    name: str
    bases: tuple[float, ...] = ()
    rows: str | None = ""
    by_shape: float = 1.0

    @property
    def error(self) -> float:
        """Relative standard error of the standard deviation."""
        return 1 / math.sqrt(2 * self.entries)


@dataclass(frozen=True)
class Law:
    """std = constant N^power l^layer_power, by weighted least squares of logarithms; layer: index from 1. Powers are 0
    where they are no more than chance, and None where a single N, or a single layer, says nothing of them. errors:
    standard errors of the three logarithms. misfit: the probability of scatter as large as what is left, were the law
    right."""

    constant: float
    power: float | None
    layer_power: float | None
    errors: tuple[float, float, float]
    misfit: float

    def at(self, num_layers: int, layer: int) -> float:
        return self.constant * num_layers ** (self.power or 0.0) * layer ** (self.layer_power or 0.0)

    @property
    def is_flat(self) -> bool:
        """Whether it hangs on neither N nor l."""
        return not (self.has_power or self.has_layer_power)

    @property
    def has_power(self) -> bool:
        return _is_there(self.power, self.errors[1])

    @property
    def has_layer_power(self) -> bool:
        return _is_there(self.layer_power, self.errors[2])

    @property
    def simple_powers(self) -> tuple[float, float]:
        """Its powers of N and l as quarters and thirds, where they are such as nearly as can be read; 0 where there is
        none."""
        return (
            _simple(self.power, self.errors[1]) if self.has_power else 0.0,
            _simple(self.layer_power, self.errors[2]) if self.has_layer_power else 0.0,
        )

    @property
    def text(self) -> str:
        """The law in words."""
        parts = [f"{self.constant:.3g}"]
        parts += [f"N^{self.power:.2f}"] if self.power is not None and self.has_power else []
        parts += [f"l^{self.layer_power:.2f}"] if self.layer_power is not None and self.has_layer_power else []
        return " ".join(parts)


def _is_there(power: float | None, error: float) -> bool:
    return power is not None and abs(power) > max(SURE * error, 0.02)


def _simple(power: float | None, error: float) -> float:
    """
    >>> from depthlaw.auditing.laws import _simple
    >>> _simple(-0.49, 0.01), _simple(-0.42, 0.001)
    (-0.5, -0.42)
    """
    simple = min((round(n * power) / n for n in (3, 4)), key=lambda near: abs(near - power)) if power else 0.0
    return simple if power and simple and abs(simple - power) < SURE * error else power or 0.0


def fit(points: Sequence[Point], value: Callable[[Point], float]) -> Law:
    """The law of a positive value. Points at which it is 0 are left out; ValueError where none is left."""
    points = [point for point in points if value(point) > 0]
    if not points:
        raise ValueError("a law of values that are all 0")
    y = np.array([math.log(value(point)) for point in points])
    weights = np.array([1 / point.error for point in points])
    of_number, of_index = (np.log([getattr(point, name) for point in points]) for name in ("num_layers", "layer"))
    columns, has = [np.ones(len(points))], [True, False, False]
    for place, column in ((1, of_number), (2, of_index)):
        tried = np.column_stack([*columns, column]) * weights[:, None]
        if np.linalg.matrix_rank(tried, tol=1e-8 * np.abs(tried).max()) == len(columns) + 1:
            columns.append(column)
            has[place] = True
    matrix = np.column_stack(columns) * weights[:, None]
    covariance = np.linalg.inv(matrix.T @ matrix)
    solved = covariance @ matrix.T @ (y * weights)
    left = float((((y - np.column_stack(columns) @ solved) * weights) ** 2).sum())
    freedom = len(points) - len(columns)
    numbers, errors = iter(solved.tolist()), iter(np.sqrt(np.diag(covariance)).tolist())
    by_place = [(next(numbers), next(errors)) if there else (None, math.inf) for there in has]
    law = Law(
        constant=math.exp(by_place[0][0] or 0.0),
        power=by_place[1][0],
        layer_power=by_place[2][0],
        errors=(by_place[0][1], by_place[1][1], by_place[2][1]),
        misfit=float(chdtrc(freedom, left)) if freedom > 0 else 1.0,
    )
    kept = [True, *(is_there for is_there, known in ((law.has_power, has[1]), (law.has_layer_power, has[2])) if known)]
    if all(kept):
        return law
    solved = np.zeros(len(kept))
    solved[kept] = np.linalg.lstsq(matrix[:, kept], y * weights, rcond=None)[0]
    powers = iter(solved[1:].tolist())
    power, layer_power = (next(powers) if there else None for there in has[1:])
    return replace(law, constant=math.exp(solved[0]), power=power, layer_power=layer_power)


def shape_of_draws(values: np.ndarray) -> str:
    """normal, uniform or truncated: by the fourth moment, and the largest entry."""
    if not (scale := values.std()):
        return "other"
    values = (values - values.mean()) / scale
    excess = float((values**4).mean()) - 3
    error = math.sqrt(24 / len(values))
    if excess < -1.2 + 5 * error and excess < -0.9:
        return "uniform"
    if excess < -SURE * error and np.abs(values).max() < 2.6:
        return "truncated normal"
    return "normal" if abs(excess) < SURE * error else "other"


# ---------------------------------------------------------------- points of one role


def law_of(points: Sequence[Point]) -> Law:
    """The law of a role's standard deviations; of those that follow one, where a few do not."""
    law = fit(points, lambda point: point.std)
    if law.misfit > UNLIKELY or not all(point.std > 0 and point.asked > 0 for point in points):
        return law
    odd = odd_points(points, is_few=True)
    rest = fit([point for point in points if point not in odd], lambda point: point.std) if odd else law
    return rest if rest.misfit > UNLIKELY else law


def of_one_shape(points: Sequence[Point]) -> list[Point]:
    """Standard deviations of matrices of different shapes as those of the middle shape, where each has that of its own
    by one of the usual initialisations, times what is asked for or else a law of depth; else as they are."""
    bases = sorted({point.bases for point in points})
    if len(bases) < 2 or not all(point.std > 0 and point.asked > 0 for point in points):
        return list(points)
    middle = median_high(bases)
    tried = [list(points)]
    for number in range(len(middle)):
        ratios = [point.bases[number] / middle[number] for point in points]
        if max(ratios) > (1 + SMALL) * min(ratios):
            tried.append(
                [
                    replace(point, std=point.std / ratio, bases=middle, by_shape=ratio)
                    for point, ratio in zip(points, ratios, strict=True)
                ]
            )
    ratios = [fit(points, lambda p: p.std / p.asked) for points in tried]
    likely = [(points, ratio) for points, ratio in zip(tried, ratios, strict=True) if ratio.misfit > UNLIKELY]
    flat = [points for points, ratio in likely if ratio.is_flat]
    but_few = [points for points in tried if _is_flat_but_for_few(points)] if not flat else []
    return [*flat, *but_few, *(points for points, _ in likely), tried[0]][0]


def _is_flat_but_for_few(points: Sequence[Point]) -> bool:
    """Whether the rest is as is asked for, where a few matrices are at another scale."""
    odd = odd_points(points, is_few=True)
    ratio = fit([point for point in points if point not in odd], lambda point: point.std / point.asked)
    return bool(odd) and ratio.is_flat and ratio.misfit > UNLIKELY


def by_number(points: Iterable[Point]) -> dict[int, list[Point]]:
    """By the number of layers."""
    groups: dict[int, list[Point]] = {}
    for point in points:
        groups.setdefault(point.num_layers, []).append(point)
    return groups


def middle_ratio(points: Sequence[Point]) -> float:
    """The median of what is there over what is asked for."""
    return median_high(point.std / point.asked for point in points)


def odd_points(points: Sequence[Point], *, is_few: bool) -> list[Point]:
    """Those at another scale than the rest. is_few: only where the rest is at least half of every depth and all as is
    asked for, as where the last layer is left out."""
    centre = middle_ratio(points)
    odd = [p for p in points if abs(math.log(p.std / p.asked / centre)) > max(SURE * p.error, SMALL)]
    if is_few and any(
        2 * sum(p.num_layers == number for p in odd) > sum(p.num_layers == number for p in points)
        for number in {p.num_layers for p in points}
    ):
        return []
    return odd


def counted_otherwise(points: Sequence[Point]) -> str | None:
    """How the layer's index is counted, where that alone differs from what is asked for."""
    asked = {(p.num_layers, p.layer): p.asked for p in points}
    for text, index in (
        ("from 0", lambda p: max(p.layer - 1, 1)),
        ("from 2", lambda p: p.layer + 1),
        ("from the last layer", lambda p: p.num_layers + 1 - p.layer),
    ):
        moved = [replace(p, asked=wanted) for p in points if (wanted := asked.get((p.num_layers, index(p))))]
        if len({p.layer for p in moved}) > 1:
            ratio = fit(moved, lambda point: point.std / point.asked)
            if ratio.is_flat and ratio.misfit > UNLIKELY:
                return text
    return None


def mean_ratio(points: Sequence[Point]) -> float:
    return math.exp(mean([(math.log(point.std / point.asked), point) for point in points]))


def mean(values: Sequence[tuple[float, Point]]) -> float:
    """Of numbers that were read from matrices of other sizes."""
    return sum(value * point.entries for value, point in values) / sum(point.entries for _, point in values)


def scatter(entries: int) -> float:
    """The relative difference of a standard deviation of so many entries that no draw makes."""
    return SURE / math.sqrt(2 * entries)


def is_near(value: float, wanted: float, share: float) -> bool:
    return abs(value - wanted) <= share * max(abs(wanted), 1e-12)


# ---------------------------------------------------------------- weights by the number of layers


def by_num_layers(values: Mapping[tuple[int, int, str], float]) -> dict[int, float]:
    """By the number of layers, what all sublayers have; empty where they differ."""
    by_number: dict[int, set[float]] = {}
    for (number, *_), value in values.items():
        by_number.setdefault(number, set()).add(round(value, 6))
    is_one = all(len(values) == 1 for values in by_number.values())
    return {number: min(values) for number, values in by_number.items()} if is_one else {}


def power_of(values: Mapping[int, float]) -> float | None:
    """Of the number of layers, where values are a constant times a power of it; else None."""
    if len(values) < 2 or min(values.values()) <= 0:
        return None
    first, last = min(values), max(values)
    power = math.log(values[last] / values[first]) / math.log(last / first)
    is_one = all(is_near(value, values[last] * (at / last) ** power, NEAR) for at, value in values.items())
    return power if is_one else None


def share_of_layers(ratio: float, power: float | None) -> str | None:
    """How many of the layers a power of their number would have to count to be off by a ratio: half or twice as many.

    >>> from depthlaw.auditing.laws import share_of_layers
    >>> share_of_layers(2**0.5, -0.5), share_of_layers(1.2, -0.5)
    ('half', None)
    """
    layers = ratio ** (1 / power) if power is not None and abs(power) > NEAR else 1.0
    return next((text for text, by in (("half", 0.5), ("twice", 2.0)) if is_near(layers, by, 5 * NEAR)), None)


def layers_of(value: float, asked: Mapping[int, float], share: float) -> int | None:
    """The number of layers at which a law has a value: one of those at which it is given, or where it is a power."""
    known = next((number for number, wanted in asked.items() if is_near(value, wanted, share)), None)
    power, last = power_of(asked), max(asked)
    if known is not None or value <= 0 or not power:
        return known
    number = round(last * math.exp(min(math.log(value / asked[last]) / power, math.log(_MOST_LAYERS))))
    is_it = 0 < number < _MOST_LAYERS and is_near(value, asked[last] * (number / last) ** power, share)
    return number if is_it else None
