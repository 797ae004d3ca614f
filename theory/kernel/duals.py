"""What an activation makes of a Gram matrix: E phi(u_i) phi(u_j) and E phi'(u_i) phi'(u_j) of Gaussian u.

relu, leaky_relu and identity are a line in u and one in |u|, whose averages are closed (the arc-cosine kernel), as are
those of relu2, a multiple of u^2 and one of u|u|. The others are expanded in Hermite polynomials: with phi(s z) = sum_k
c_k(s) He_k(z) / sqrt(k!),
E phi(u_i) phi(u_j) = sum_k c_k(s_i) c_k(s_j) rho^k at correlation rho. The mean of phi is c_0. Behind a large s the
slope of gelu and silu is nearly a step, of which a series wants thousands of terms. There it is the step, whose
averages are closed, and a bump around 0, which narrows as s grows:

    E phi' phi' = (closed, of the steps) + sum_k (c_k(s_i) c_k(s_j) - j_k^2) rho^k,   j_k of the steps

Source: Cho and Saul 2009 (arc-cosine); Mehler 1866 (Hermite).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from numpy.polynomial.polynomial import polyval
from scipy.special import erf, gammaln
from sympy import Expr, lambdify

from depthlaw.theory.kernel.gram import MEAN_ABS, Array, Gram, outer, stacked
from depthlaw.theory.moments import activation
from depthlaw.theory.symbols import u

_TERMS = 128
_LARGE, _LARGE_OF_BOUNDED = 5.0, 3.0
"""The standard deviation of a preactivation above which a slope (and a bounded function, which bends sooner) is taken
as a step and a bump."""
_FAR = 60.0
"""The point beyond which a bump around 0 is 0 to rounding."""
_STEP_TERMS = 512
"""The number of Hermite terms of a slope beside a step, whose bump is narrow."""
_MOST_LEFT = 1e-3


@cache
def _normal_rule() -> tuple[Array, Array]:
    """Nodes and weights of an average over a standard normal z."""
    nodes, weights = hermegauss(360)  # numpy's weights are lost in rounding from 380 on
    return nodes, weights / weights.sum()


@cache
def _rule_beside_a_kink() -> tuple[Array, Array]:
    """Nodes and weights of an integral from -``_FAR`` to ``_FAR``, half of them on either side of 0."""
    nodes, weights = leggauss(200)
    return np.concatenate([_FAR / 2 * (nodes - 1), _FAR / 2 * (nodes + 1)]), np.tile(_FAR / 2 * weights, 2)


@dataclass(frozen=True)
class Dual:
    """An activation, as the kernels use it. value, slope: functions that take an array to phi and phi' of it."""

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    sides: tuple[float, float] | None
    """What |u|^power is multiplied by right and left of 0 (times the sign of u, where power is 1); None for others."""
    power: int = 1
    far: tuple[float, float] | None = None
    """The limits of the slope on the right and on the left, if the function comes near the lines with these slopes;
    else None.
    """
    ends: tuple[float, float] | None = None
    """The limits of a bounded function on the right and on the left; None for any other."""

    def second(self, preactivation: Gram, *, is_centred: bool = False) -> Gram:
        """E phi(u_i) phi(u_j); with is_centred, the covariance."""
        scale, unit = np.sqrt(preactivation.diagonal), preactivation.unit
        if self.sides is not None:
            of_power = _of_lines if self.power == 1 else _of_squares
            return of_power(self.sides, scale, unit.gap, is_centred)
        if self.ends is not None and _differ(scale > _LARGE_OF_BOUNDED):
            return stacked([self.second(points, is_centred=is_centred) for points in preactivation.sets])
        if self.ends is not None and scale.max() > _LARGE_OF_BOUNDED:
            return _near_steps(self.value, self.ends, scale, unit.gap, is_centred)
        return _of_series(_coefficients(self.name, self.value, scale), unit.gap, first=int(is_centred))

    def mean(self, scale: Array) -> Array:
        """E phi(s z) at each scale s, (..., n)."""
        if self.sides is not None and self.power == 2:
            return (self.sides[0] + self.sides[1]) / 2 * scale**2
        if self.sides is not None:
            return (self.sides[0] - self.sides[1]) / 2 * MEAN_ABS * scale
        if self.ends is not None and _differ(scale > _LARGE_OF_BOUNDED):
            return np.array([self.mean(value) for value in scale])
        if self.ends is not None and scale.max() > _LARGE_OF_BOUNDED:
            return _beside_steps(self.value, self.ends, scale)[0][..., 0]
        return _coefficients(self.name, self.value, scale)[..., 0]

    def slope_second(self, preactivation: Gram) -> Array:
        """E phi'(u_i) phi'(u_j), (..., n, n)."""
        scale, unit = np.sqrt(preactivation.diagonal), preactivation.unit
        if self.sides is not None and self.power == 2:
            return _of_lines((2 * self.sides[0], 2 * self.sides[1]), scale, unit.gap, is_centred=False).full
        if self.sides is not None:
            return _of_steps(self.sides, unit.gap)
        large = _LARGE if self.ends is None else _LARGE_OF_BOUNDED
        if self.far is not None and _differ(scale > large):
            return np.array([self.slope_second(points) for points in preactivation.sets])
        if self.far is not None and scale.max() > large:
            return _near_steps(self.slope, self.far, scale, unit.gap).full
        return _of_series(_coefficients(f"{self.name}'", self.slope, scale), unit.gap).full


@cache
def dual(name: str) -> Dual:
    """The kernels of an activation of ``theory.moments``, or of erf. ValueError for any other name."""
    if name == "erf":
        return Dual(name, erf, lambda at: 2 / np.sqrt(np.pi) * np.exp(-(at**2)), None, far=(0.0, 0.0), ends=(1.0, -1.0))
    phi = activation(name)
    if phi.is_homogeneous:
        sides = float(phi.positive.diff(u)), float(phi.negative.diff(u))
        return Dual(name, _lines(*sides), _steps(*sides), sides)
    value, slope = _numeric(phi.expression), _numeric(phi.derivative)
    if phi.power == 2:
        above, below = (float(side.coeff(u, 2)) for side in phi.sides())
        return Dual(name, value, slope, (above, below), 2)
    far, ends = _far(value, slope)
    return Dual(name, value, slope, None, far=far, ends=ends)


def _far(
    value: Callable[[Array], Array], slope: Callable[[Array], Array]
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """``far`` and ``ends`` of a ``Dual``."""
    ends = np.array([_FAR, -_FAR])
    (right, left), at_ends = np.round(slope(ends), 12).tolist(), value(ends)
    if right == left == 0:
        return (0.0, 0.0), (float(at_ends[0]), float(at_ends[1]))
    is_near = np.abs(at_ends - np.array([right, left]) * ends).max() < 1e-12
    return ((right, left) if is_near else None), None


def _differ(is_large: Array) -> bool:
    """Whether some sets of points have a token of which this holds, and others have none. is_large: (..., n)."""
    some = is_large.any(-1)
    return bool(some.any() and not some.all())


def _lines(right: float, left: float) -> Callable[[Array], Array]:
    return lambda at: np.where(at > 0, right * at, left * at)


def _steps(right: float, left: float) -> Callable[[Array], Array]:
    return lambda at: np.where(at > 0, right, left)


def _numeric(expression: Expr) -> Callable[[Array], Array]:
    return lambdify(u, expression, modules=["scipy", "numpy"])


def _angle(gap: Array) -> Array:
    """arccos(1 - gap), exact for small gaps."""
    return 2 * np.arcsin(np.sqrt(np.minimum(np.maximum(gap, 0.0), 2.0) / 2))


def _of_lines(sides: tuple[float, float], scale: Array, gap: Array, is_centred: bool) -> Gram:
    """phi(u) = e u + o |u|: E phi phi = s_i s_j (e^2 rho + o^2 E|z_i z_j|), E|z_i z_j| by the arc-cosine kernel."""
    even, odd = (sides[0] + sides[1]) / 2, (sides[0] - sides[1]) / 2
    angle = _angle(gap)
    # sin t - t cos t, where both are near t
    lost = np.where(angle < 1e-2, angle**3 / 3 * (1 - angle**2 / 10), np.sin(angle) - angle * np.cos(angle))
    abs_gap = gap - 2 / np.pi * lost  # 1 - E|z_i z_j|
    mean = 2 / np.pi * odd**2 if is_centred else 0.0
    level = even**2 + odd**2 - mean
    products, top = _products(scale)
    return Gram(top * level, (top - products) * level + products * (even**2 * gap + odd**2 * abs_gap))


def _of_squares(sides: tuple[float, float], scale: Array, gap: Array, is_centred: bool) -> Gram:
    """phi(u) = e u|u| + o u^2: E phi phi = (s_i s_j)^2 (e^2 E z_i|z_i| z_j|z_j| + o^2 (1 + 2 rho^2)), the first by the
    arc-cosine kernel of degree 2."""
    even, odd = (sides[0] + sides[1]) / 2, (sides[0] - sides[1]) / 2
    twice = 2 * _angle(gap)
    # 2 t (1 + 2 cos^2 t) - 6 sin t cos t, where both are near 6 t
    lost = np.where(twice < 2e-2, twice**5 / 60 * (1 - twice**2 / 21), twice * (2 + np.cos(twice)) - 3 * np.sin(twice))
    square_gap = 2 * gap * (2 - gap)  # 3 - E z_i^2 z_j^2
    mean = even**2 if is_centred else 0.0
    level = 3 * (even**2 + odd**2) - mean
    products, top = _products(scale**2)
    return Gram(
        top * level, (top - products) * level + products * ((even**2 + odd**2) * square_gap + odd**2 / np.pi * lost)
    )


def _products(scale: Array) -> tuple[Array, Array]:
    """s_i s_j, (..., n, n), and the largest, (..., 1, 1)."""
    products = outer(scale)
    return products, products.max((-2, -1), keepdims=True)


def _of_steps(sides: tuple[float, float], gap: Array) -> Array:
    """E phi'(u_i) phi'(u_j) of lines."""
    even, odd = (sides[0] + sides[1]) / 2, (sides[0] - sides[1]) / 2
    return even**2 + odd**2 * (1 - 2 / np.pi * _angle(gap))


def _jumps(sides: tuple[float, float]) -> Array:
    """Hermite coefficients of a step: those of sign(z) are sqrt(2/pi) (-1)^m (2m)! / (2^m m! sqrt((2m+1)!)) at
    k = 2m + 1, and 0 elsewhere."""
    half = np.arange(_STEP_TERMS // 2)
    logs = gammaln(2 * half + 1) - half * np.log(2) - gammaln(half + 1) - gammaln(2 * half + 2) / 2
    steps = np.zeros(_STEP_TERMS)
    steps[1::2] = (sides[0] - sides[1]) / 2 * MEAN_ABS * (-1.0) ** half * np.exp(logs)
    steps[0] = (sides[0] + sides[1]) / 2
    return steps


def _near_steps(
    function: Callable[[Array], Array], sides: tuple[float, float], scale: Array, gap: Array, is_centred: bool = False
) -> Gram:
    """E f(u_i) f(u_j), or the covariance, of a function that comes near a step: the exact value of the step, plus the
    difference between the series of the two.
    """
    even, odd = (sides[0] + sides[1]) / 2, (sides[0] - sides[1]) / 2
    step = Gram((0.0 if is_centred else even**2) + odd**2, odd**2 * 2 / np.pi * _angle(gap))
    whole, steps = (_of_series(part, gap, int(is_centred)) for part in _beside_steps(function, sides, scale))
    return step.plus(whole).plus(steps.times(-1))


def _beside_steps(slope: Callable[[Array], Array], sides: tuple[float, float], scale: Array) -> tuple[Array, Array]:
    """Coefficients (..., n, terms + 1) of a slope at each scale, and of the step that it comes near. The last ones, for
    the terms beyond, make E phi'^2 what it is."""
    places, lengths = _rule_beside_a_kink()
    values, near = slope(places), _steps(*sides)(places)
    z = places / scale[..., None]
    weights = lengths * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / scale[..., None]
    steps = np.broadcast_to(_jumps(sides), (*scale.shape, _STEP_TERMS))
    whole, before, now = steps.copy(), np.zeros_like(z), np.ones_like(z)
    for k in range(_STEP_TERMS):
        whole[..., k] += (weights * (values - near) * now).sum(-1)
        before, now = now, (z * now - np.sqrt(k) * before) / np.sqrt(k + 1)
    rest = (weights * (values**2 - near**2)).sum(-1, keepdims=True) - (whole**2 - steps**2).sum(-1, keepdims=True)
    more, less = (np.sqrt(left.clip(min=0.0)) for left in (rest, -rest))
    return np.concatenate([whole, more], -1), np.concatenate([steps, less], -1)


def _of_series(coefficients: Array, gap: Array, first: int = 0) -> Gram:
    """sum_k c_ik c_jk rho_ij^k over k >= first. coefficients: (..., n, terms)."""
    chosen = coefficients * (np.arange(coefficients.shape[-1]) >= first)
    squares = (chosen**2).sum(-1, keepdims=True)
    level = squares.max(-2, keepdims=True)
    # level - c_i . c_j, exactly 0 for equal rows of the largest: a product of matrices rounds equal entries differently
    is_one_row = (chosen == chosen[..., :1, :]).all()
    apart = 0.0 if is_one_row else ((chosen[..., None, :] - chosen[..., None, :, :]) ** 2).sum(-1)
    short = (level - (squares + squares.mT) / 2) + apart / 2
    # sum_k p_k (1 - rho^k) is the gap times sum_j rho^j (p_(j+1) + p_(j+2) + ...), which keeps the digits of small gaps
    some = chosen[..., :1, :] if is_one_row else chosen
    products = np.moveaxis(some[..., None, :] * some[..., None, :, :], -1, 0)
    tails = products[:0:-1].cumsum(0)[::-1]
    return Gram(level, short + gap * polyval(1 - gap, tails, tensor=False))


_kept: dict[tuple[str, float], Array] = {}
"""Coefficients by activation and scale. Behind a norm all tokens of all sublayers have the same scale."""


def _coefficients(name: str, function: Callable[[Array], Array], scale: Array) -> Array:
    """c_k(s) of each token, (..., n, terms). The last takes what is left of E phi^2.

    ArithmeticError where that is more than a thousandth: phi(s z) of a large s has a kink.
    """
    rows = []
    for s in scale.ravel().tolist():
        key = (name, s)
        if key not in _kept:
            if len(_kept) > 4096:
                _kept.clear()
            _kept[key] = _expand(name, function, s)
        rows.append(_kept[key])
    return np.array(rows).reshape(*scale.shape, -1)


@cache
def _weighted_polynomials() -> Array:
    """The Hermite polynomials at the nodes of the rule, times its weights; (terms, nodes)."""
    nodes, weights = _normal_rule()
    rows, before, now = [], np.zeros_like(nodes), np.ones_like(nodes)
    for k in range(_TERMS):
        rows.append(weights * now)
        before, now = now, (nodes * now - np.sqrt(k) * before) / np.sqrt(k + 1)
    return np.array(rows)


def _expand(name: str, function: Callable[[Array], Array], scale: float) -> Array:
    nodes, weights = _normal_rule()
    values = function(scale * nodes) * np.ones_like(nodes)
    coefficients = _weighted_polynomials() @ values
    second = float((weights * values**2).sum())
    rest = second - float((coefficients**2).sum())
    if rest > _MOST_LEFT * second:
        raise ArithmeticError(
            f"{name} of preactivations of standard deviation {scale:.3g}: {_TERMS} Hermite terms leave out "
            f"{rest / second:.2g} of its square, and at most {_MOST_LEFT:g} may be"
        )
    coefficients[-1] = np.copysign(np.sqrt(max(coefficients[-1] ** 2 + rest, 0.0)), coefficients[-1])
    return coefficients
