"""The mean field a second time, in plain numbers: the second route to an update and to how it grows.

One input at infinite width, FFN sublayers, one optimizer step per unit learning rate. SGD adds up squared gradients;
Adam's step is a sign, so it adds up absolute values; LAMB's is that times the root mean square of the matrix, its gain.
Muon's is a polar factor, so it adds up singular values: of one input a gradient has one, its norm.

What it shares with ``theory`` is a scheme's data in ``theory.schemes``: where its norms stand, and its weights and
gains as expressions in L and l. So a new scheme is known here, too. What it does not share is the recursion, the sums
over sublayers and the moments of the activation, which are taken by quadrature of the function that the networks of
``sims`` apply. So a mistake in a closed form, in its asymptotics, in a sublayer or in a moment shows here. A mistake in
a scheme's data does not show here; the tests transcribe each scheme by hand for that.

``log_update`` takes a scheme at any number of sublayers, in floats. ``update`` takes gains that differ from one
sublayer to the next: these may be fractions (then so is the answer), floats or sympy expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.polynomial import chebyshev
from sympy import Expr, lambdify, pi

from depthlaw.theory.schemes import Scheme, scheme
from depthlaw.theory.stack import PLACEMENTS, Placement
from depthlaw.theory.symbols import L, l

LENGTHS = (10**2, 10**4, 10**6)


# ---------------------------------------------------------------- a scheme's numbers


class Coefficients(NamedTuple):
    """A scheme at one number of sublayers; what differs by sublayer is an array. residual_weight None: Admin's rule."""

    norms: Placement
    residual_weight: Any
    branch_weight: Any
    input_scale: Any
    gain_in: Any
    gain_out: Any
    embedding_scale: Any
    lr_multiplier: Any

    @property
    def placement(self) -> str:
        """post, pre, sub or peri, or none."""
        return next((name for name, norms in PLACEMENTS.items() if norms == self.norms), "none")


def coefficients(of: str | Scheme, length: int) -> Coefficients:
    """The numbers of a scheme, given by its name or itself, at ``length`` sublayers. LookupError for norms that differ
    by sublayer, for functions in their place and for two streams, which stand in ``theory`` alone."""
    of = scheme(of) if isinstance(of, str) else of
    stack = of.stack
    if stack.even is not None or stack.early is not None or stack.norm_function or stack.has_second_stream:
        raise LookupError(f"{of.name}: the second mean field has one kind of real norm, and one stream")
    letters = (
        stack.residual_weight,
        stack.branch_weight,
        stack.input_scale,
        stack.gain_in,
        stack.gain_out,
        stack.embedding_scale,
    )
    numbers = [None if letter is None else _law(letter)(length) for letter in (*letters, of.lr_multiplier)]
    return Coefficients(stack.placement, *numbers)


@cache
def _law(letter: Expr) -> Callable[[int], Any]:
    """A letter as a function of the number of sublayers: a float, or an array where it depends on the sublayer."""
    function = lambdify((L, l), letter, modules="numpy")
    if letter.has(l):
        return lambda length: function(float(length), np.arange(1.0, length + 1))
    return lambda length: float(function(float(length), 1.0))


def variant(of: str, *, norm: str = "", lr_multiplier: Any = None, **letters: Any) -> Scheme:
    """A scheme with other data. norm: where its norms stand, a name of ``PLACEMENTS``, or none. letters: of its stack.

    It is made here, where schemes are data, so that a claim's second route asks nothing else of ``theory``.

    >>> from depthlaw.paper_checks.routes.second_meanfield import variant
    >>> from depthlaw.theory.symbols import L
    >>> found = variant("completep", branch_weight=1 / L, norm="post")
    >>> found.name, found.stack.branch_weight, found.stack.placement.names
    ('completep, norm post, branch_weight 1/L', 1/L, ('post',))
    """
    base = scheme(of)
    changes = {"norm": norm, **letters, "lr_multiplier": lr_multiplier}
    name = ", ".join([of, *(f"{key} {value}" for key, value in changes.items() if value not in ("", None))])
    if norm:
        letters["placement"] = PLACEMENTS.get(norm, Placement())
    rate = base.lr_multiplier if lr_multiplier is None else lr_multiplier
    return replace(base, name=name, stack=replace(base.stack, **letters), lr_multiplier=rate)


# ---------------------------------------------------------------- moments of an activation


class Moments(NamedTuple):
    """Over u = scale z, z ~ N(0, 1): E phi, E phi^2, E phi'^2, E|phi|, E|phi'|."""

    mean: Any
    second: Any
    slope: Any
    size: Any
    slope_size: Any

    def divisor(self, norm_kind: str) -> Any:
        """The square of what a norm behind the activation divides by."""
        return self.second - self.mean**2 if norm_kind == "layernorm" else self.second


_EDGE = 12.0
"""Beyond, the density of z is under 10^-31."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(60)
_CUTS = np.array([1.0, 4.0, 10.0, 20.0, 40.0])
"""The quadrature is cut at these u, on either side of 0, where an activation bends, and at these z."""
_AT_HAND = 4096
"""How many sums of a series are made at once: as many as a processor's cache holds."""


def _phi(name: str, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An activation and its slope, from the function that the networks of ``sims`` apply."""
    import torch

    from depthlaw.sims.model import ACTIVATIONS, phi

    if name not in ACTIVATIONS or name == "swiglu":  # which multiplies by a second matrix
        raise ValueError(f"no activation {name!r} here")
    at = torch.from_numpy(np.ascontiguousarray(u)).requires_grad_()
    value = phi(name)(at)
    (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach().numpy(), slope.numpy()


def _roots(function: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> list[float]:
    """Where the function changes its sign; the grid has at most one change in each step."""
    from scipy.optimize import brentq  # half a second, which a check that has no such root need not wait

    values = function(grid)
    changes = np.flatnonzero(values[:-1] * values[1:] < 0)
    return [brentq(lambda u: function(np.array([u])).item(), grid[i], grid[i + 1]) for i in changes]


@cache
def _sign_changes(name: str) -> list[float]:
    """The u at which phi or its slope changes its sign, so that no interval of the quadrature crosses one."""
    grid = np.linspace(-_CUTS[-1], _CUTS[-1], 800)  # 0, where branches meet, is a cut and no point of it
    return _roots(lambda u: _phi(name, u)[0], grid) + _roots(lambda u: _phi(name, u)[1], grid)


def _points(name: str, scale: float, *more: float) -> tuple[np.ndarray, np.ndarray]:
    """Points u and weights for a mean over u = scale z, by Gauss-Legendre between the cuts."""
    cuts = np.concatenate(
        [-_CUTS / scale, _CUTS / scale, np.array([*_sign_changes(name), *more]) / scale, _CUTS, -_CUTS]
    )
    edges = sorted({-_EDGE, 0.0, _EDGE, *cuts[abs(cuts) < _EDGE].tolist()})
    pieces = [(low + (high - low) * (_NODES + 1) / 2, (high - low) / 2 * _WEIGHTS) for low, high in pairwise(edges)]
    z, weights = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return scale * z, weights * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


@cache
def moments(name: str, scale: float) -> Moments:
    """The moments of an activation at preactivations of standard deviation ``scale``, by quadrature."""
    u, weights = _points(name, scale)
    value, slope = _phi(name, u)
    return Moments(*(float(weights @ f) for f in (value, value**2, slope**2, abs(value), abs(slope))))


@cache
def _centred_size(name: str, scale: float) -> float:
    """E|phi - E phi|."""
    mean = moments(name, scale).mean
    grid = np.concatenate([np.linspace(-_EDGE, _EDGE, 400) * scale, np.linspace(-_CUTS[-1], _CUTS[-1], 800)])
    u, weights = _points(name, scale, *_roots(lambda u: _phi(name, u)[0] - mean, np.sort(grid)))
    return float(weights @ abs(_phi(name, u)[0] - mean))


def _by_scale(function: Callable[[str, float], Any], name: str, scales: Any) -> Any:
    """A moment, or moments, at one scale or an array of them; of many different ones it is interpolated by octaves."""
    if np.ndim(scales) == 0:
        return function(name, float(scales))
    different, index = np.unique(scales, return_inverse=True)
    if len(different) <= 64:
        values = np.array([function(name, float(scale)) for scale in different]).T
    else:
        octaves = np.floor(np.log2(different))
        values = np.concatenate(
            [
                chebyshev.chebval(some, _octave(function, name, int(k)))
                for k in np.unique(octaves)
                for at in [2 * (np.log2(different[octaves == k]) - k) - 1]
                for some in np.array_split(at, len(at) // _AT_HAND + 1)
            ],
            axis=-1,
        )
    values = values[..., index]
    return Moments(*values) if values.ndim > 1 else values


@cache
def _octave(function: Callable[[str, float], Any], name: str, k: int) -> np.ndarray:
    """Between 2^k and 2^(k+1), as a Chebyshev series in the logarithm of the scale."""
    nodes = chebyshev.chebpts1(25)
    values = np.array([function(name, 2 ** (k + (x + 1) / 2)) for x in nodes])
    return np.linalg.solve(chebyshev.chebvander(nodes, 24), values)


# ---------------------------------------------------------------- one sublayer


class Sublayer(NamedTuple):
    """What a sublayer does to second moments, and to the squared gradient that arrives behind its sum, per unit of it.

    branch: what the branch adds to the stream. through: its squared slope in what it reads; a norm before the branch
    divides it by the stream besides. inner: the squared gradient at what comes out of the activation. output: that at
    the output of the second matrix. fc1, fc2: the squared gradients of the matrices, over d.
    """

    branch: Any
    through: Any
    inner: Any
    output: Any
    fc1: Any
    fc2: Any


def sublayer(
    norms: Placement, v: Any, w: Any, moment: Moments, divisor: Any, *, b2: Any = 1, c2: Any = 1, read: Any = 1
) -> Sublayer:
    """b2, c2: squares of branch weight and input scale. read: second moment of what the first matrix reads."""
    hidden = 1 if norms.inner else moment.second
    output = b2 / (v**2 * hidden) if norms.branch else b2
    inner = v**2 * output / divisor if norms.inner else v**2 * output
    return Sublayer(
        branch=v**2 * hidden * output,
        through=w**2 * c2 * inner * moment.slope,
        inner=inner,
        output=output,
        fc1=inner * moment.slope * read,
        fc2=output * hidden,
    )


# ---------------------------------------------------------------- a scheme, in floats


@cache
def log_update(
    of: str | Scheme, length: int, activation: str = "relu", norm_kind: str = "layernorm", optimizer: str = "sgd"
) -> float:
    """log of the update of ``length`` FFN sublayers, which may be too large for a float itself; -inf of an update 0."""
    if optimizer not in ("sgd", "adam", "lamb", "muon"):
        raise ValueError(f"{optimizer} is not written here")
    norms, a, b, c, w, v, start, multiplier = coefficients(of, length)
    if start != 1 and (norms.pre or norms.post or norms.branch):
        raise LookupError("the second mean field has a scaled embedding in stacks without norms alone")
    below = _streams(norms, a, b, np.broadcast_to(b * v, length), c * w, activation, length, start**2)
    read = c**2 if below is None else c**2 * below
    scale = w * np.sqrt(read)
    moment = _by_scale(moments, activation, scale)
    divisor = moment.divisor(norm_kind)
    per_sublayer = sublayer(norms, v, w, moment, divisor, b2=b**2, c2=c**2, read=read)
    branch = np.broadcast_to(per_sublayer.branch, length)
    a2 = 1 + np.concatenate([[0.0], np.cumsum(branch)[:-1]]) if a is None else np.full(length, a**2)
    logs = log_gradients(norms, a2, branch, per_sublayer.through, below)
    if optimizer == "sgd":
        return log_sum(logs, per_sublayer.fc1 + per_sublayer.fc2)
    if optimizer == "muon":
        return log_sum(logs / 2, multiplier * (np.sqrt(per_sublayer.fc1) + np.sqrt(per_sublayer.fc2)))
    if not norms.inner:
        size = moment.size
    elif norm_kind == "layernorm":
        size = _by_scale(_centred_size, activation, scale) / np.sqrt(divisor)
    else:
        size = moment.size / np.sqrt(divisor)
    fc1 = 2 / math.pi * np.sqrt(per_sublayer.inner * read) * moment.slope_size
    fc2 = math.sqrt(2 / math.pi) * np.sqrt(per_sublayer.output) * size
    if optimizer == "lamb":
        return log_sum(logs / 2, multiplier * (w * fc1 + v * fc2))
    return log_sum(logs / 2, multiplier * (fc1 + fc2))


def stream(of: str | Scheme, length: int, activation: str = "relu") -> float:
    """The second moment of x_L of a scheme that has its numbers."""
    norms, a, b, c, w, v, start, _ = coefficients(of, length)
    if a is None or start != 1:
        raise LookupError("the stream's second moment is of schemes with a residual weight and a plain embedding")
    if norms.post:
        return 1.0
    below = _streams(norms, a, b, np.broadcast_to(b * v, length), c * w, activation, length, 1.0)
    moment = _by_scale(moments, activation, c * w if below is None else c * w * np.sqrt(below))
    branch = np.broadcast_to(sublayer(norms, v, w, moment, moment.second, b2=b**2, c2=c**2).branch, length)
    last = _sums(branch, np.full(length, a**2))[-1] if below is None else below[-1]
    return float(a**2 * last + branch[-1])


def log_gradients(
    norms: Placement, a2: np.ndarray, branch: np.ndarray, through: Any, below: np.ndarray | None = None
) -> np.ndarray:
    """log of the squared gradient that arrives behind the sum of each sublayer, of one logit.

    a2: squares of the residual weights. branch, through: see ``Sublayer``. below: the second moment of what each
    sublayer reads, where it has no norm before its branch; elsewhere it follows from the branches.
    """
    if norms.post:
        log_step = np.log1p((through - branch) / (a2 + branch))
        return _from_above(log_step) - np.log(a2 + branch)
    if norms.pre:
        below = _sums(branch, a2)
        through = through / below
    assert below is not None
    top = math.log(a2[-1] * below[-1] + branch[-1]) if norms.final else 0.0
    return _from_above(np.log1p(a2 - 1 + through)) - top


def _from_above(log_step: np.ndarray) -> np.ndarray:
    """For each sublayer the sum of the steps of those above it."""
    return np.concatenate([np.cumsum(log_step[::-1])[::-1][1:], [0.0]])


def _sums(branch: np.ndarray, a2: np.ndarray) -> np.ndarray:
    """The second moment of x_0, ..., x_(L-1), where a norm before each branch makes what it adds independent of it."""
    if (a2 == 1).all():
        return 1 + np.concatenate([[0.0], np.cumsum(branch)[:-1]])
    streams = [1.0]
    for square, added in zip(a2[:-1].tolist(), branch[:-1].tolist(), strict=True):
        streams.append(square * streams[-1] + added)
    return np.array(streams)


def _streams(
    norms: Placement, a: Any, b: Any, out: np.ndarray, into: Any, activation: str, length: int, start: float
) -> np.ndarray | None:
    """The second moment of x_0, ..., x_(L-1) where branches read it as it is; None where a norm makes that 1. start:
    that of x_0."""
    if norms.pre or norms.post:
        return None
    if norms.branch:  # as long as b, whatever it reads
        return _sums(np.broadcast_to(b**2, length), np.full(length, a**2))
    if a == 1 and not out.any():
        return np.full(length, start)
    squares, scales = (out**2).tolist(), np.broadcast_to(into, length).tolist()
    streams = [start]
    for square, scale in zip(squares[:-1], scales[:-1], strict=True):
        second = _second_moment(activation, scale * math.sqrt(streams[-1]))
        streams.append(a**2 * streams[-1] + square * second)
    return np.array(streams)


def _second_moment(name: str, scale: float) -> float:
    """E phi^2 by ``_octave``, its series summed in Python's own floats: a million times, one after the other."""
    octave = math.floor(math.log2(scale))
    x, last, before = 2 * (math.log2(scale) - octave) - 1, 0.0, 0.0
    series = _series_of_second(name, octave)
    for coefficient in series[:0:-1]:
        last, before = coefficient + 2 * x * last - before, last
    return series[0] + x * last - before


@cache
def _series_of_second(name: str, octave: int) -> list[float]:
    return _octave(moments, name, octave)[:, 1].tolist()


def log_sum(logs: np.ndarray, factors: np.ndarray) -> float:
    """log of the sum of factors e^logs."""
    biggest = float(logs.max())
    total = float((np.exp(logs - biggest) * factors).sum())
    return biggest + math.log(total) if total else -math.inf


def log_ratios(
    of: str | Scheme, log_order: Callable[[int], float], activation: str, norm_kind: str, optimizer: str
) -> list[float]:
    """log(update / order) at 10^2, 10^4 and 10^6 sublayers; ArithmeticError of an update 0, which has no order."""
    logs = [log_update(of, length, activation, norm_kind, optimizer) for length in LENGTHS]
    if -math.inf in logs:
        raise ArithmeticError("it vanishes identically, and has no order")
    return [log_value - log_order(length) for log_value, length in zip(logs, LENGTHS, strict=True)]


# ---------------------------------------------------------------- gains of each sublayer's own, exact


def kappa(activation: str, norm_kind: str) -> Any:
    """E phi'^2 times the input's second moment, over what the inner norm divides by, squared: 1, or pi/(pi - 1)."""
    if activation not in ("relu", "identity"):
        raise ValueError(f"{activation} has no kappa of its own: it depends on the gain")
    return pi / (pi - 1) if (activation, norm_kind) == ("relu", "layernorm") else 1


def at_gains(norms: Placement, v: Any, w: Any, activation: str, norm_kind: str) -> Sublayer:
    """A sublayer whose gains are numbers of any kind: exact behind ReLU or no activation, by quadrature behind others.

    Fractions do not mix with mpmath's numbers, which pi/(pi - 1) has beside them: there they become such numbers.
    """
    if activation not in ("relu", "identity"):
        moment = moments(activation, float(w))
        return sublayer(norms, float(v), float(w), moment, moment.divisor(norm_kind))
    factor = kappa(activation, norm_kind) if norms.inner else 1
    if factor != 1 and not isinstance(v, Expr):
        if isinstance(v, float):
            factor = float(factor)
        else:
            factor = mpmath.mpf(str(factor.evalf(40)))
            v, w = (mpmath.mpf(g.numerator) / g.denominator if isinstance(g, Fraction) else g for g in (v, w))
    slope = Fraction(1, 2) if activation == "relu" else 1
    moment = Moments(mean=None, second=w**2 * slope, slope=slope, size=None, slope_size=None)
    return sublayer(norms, v, w, moment, moment.second / factor)


def update(
    of: str, v: Sequence[Any], w: Sequence[Any], *, activation: str = "relu", norm_kind: str = "layernorm"
) -> Any:
    """The update under SGD with gains v_l of the second and w_l of the first matrix, where a scheme's weights are 1."""
    norms = scheme(of).stack.placement
    with mpmath.workdps(40):
        pairs = list(zip(v, w, strict=True))
        of_pair = {pair: at_gains(norms, *pair, activation, norm_kind) for pair in dict.fromkeys(pairs)}
        return added_up(norms, [of_pair[pair] for pair in pairs], [True] * len(pairs))[0]


def streams(of: str, v: Sequence[Any], w: Sequence[Any], *, norm_kind: str = "layernorm") -> list[Any]:
    """The second moment of x_0, x_1, ..., x_L, behind a ReLU."""
    norms = scheme(of).stack.placement
    return _exact_streams(norms, [at_gains(norms, *pair, "relu", norm_kind) for pair in zip(v, w, strict=True)])


def _exact_streams(norms: Placement, sublayers: Sequence[Sublayer]) -> list[Any]:
    out: list[Any] = [Fraction(1)]
    for sub in sublayers:
        out.append(Fraction(1) if norms.post else out[-1] + sub.branch)
    return out


def added_up(norms: Placement, sublayers: Sequence[Sublayer], reads_stream: Sequence[bool]) -> tuple[Any, list[Any]]:
    """The sum of squared gradients, and the gradient that reaches each sublayer, from the top down."""
    stream = _exact_streams(norms, sublayers)
    gradient, total, reaching = 1 / stream[-1], 0, []
    for sub, below, reads in zip(sublayers[::-1], stream[-2::-1], list(reads_stream)[::-1], strict=True):
        if norms.post:
            gradient = gradient / (1 + sub.branch)
        reaching.append(gradient)
        total += (sub.fc1 + sub.fc2) * gradient
        if reads:
            gradient = gradient * (1 + sub.through / below)
    return total, reaching[::-1]
