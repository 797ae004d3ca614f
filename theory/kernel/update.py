"""What one parameter adds to the update, under each kind of optimizer, and in which unit.

Widths are infinite, so each number is in the power of d that makes it O(1); ``unit_power`` says which. All averages are
over the network's random weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depthlaw.theory.kernel.gram import MEAN_ABS, Array
from depthlaw.theory.optimizers import MATCHED, Functional, optimizer

MATRICES = ("q", "k", "v", "out", "fc1", "fc2", "fc3", "cross_q", "cross_k", "cross_v", "cross_out")
"""The roles of a branch's matrices."""
VECTORS = ("bias", "norm_gain", "norm_bias", "layer_scale")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One parameter's gradient g, and the parameter theta itself; what is of g at each set of points, (sets,).

    square: ||g||^2. root: ||g||_1 / sqrt(2/pi). nuclear: the sum of g's singular values, of a matrix. factored: of a
    matrix, <g, Adafactor's step> where theta is 1. weight: root mean square of theta's entries. size: square root of
    their number. root, nuclear and factored are None where nobody asked. length: the mean of ||g||, where that is not
    the root of ``square``.
    """

    role: str
    square: Array
    root: Array | None = None
    nuclear: Array | None = None
    factored: Array | None = None
    weight: float | Array = 0.0
    size: float | Array = 1.0
    lr_multiplier: float | Array = 1.0
    length: Array | None = None

    def value(self, step: Step) -> Array:
        """The update under an optimizer with this step."""
        if step.is_factored and self.factored is not None:
            return self.lr_multiplier * self.weight * self.factored
        if self.role in MATRICES:
            longest = np.maximum(1.0, self.size**2) if step.is_matched else 1.0
            return np.sqrt(longest) * self._value(step.matrices)
        return self._value(step.others) / (float(MATCHED) if step.is_matched else 1.0)

    def noise(self, step: Step) -> Array:
        """E <g, s>^2, s with entries as large as those of this step, and independent of g: the mean square of an entry
        of s, times ||g||^2. In units of the square of ``noise_power``'s power of the matrices' d."""
        return (self.lr_multiplier * self._entry(step)) ** 2 * self.square

    def _entry(self, step: Step) -> float | Array:
        """The root mean square of an entry of the step of a branch's matrix: 1 of signs; that of the weights, where
        their norm stands in front; of a polar factor 1 over the longer side's root; of the gradient itself its own."""
        if step.is_matched:
            return 1.0
        if step.matrices is Functional.FROBENIUS_SQUARED:
            return np.sqrt(self.square) / self.size
        if step.matrices is Functional.NUCLEAR:
            return 1 / np.maximum(1.0, self.size)
        return self.weight if step.matrices in (Functional.RMS_L1, Functional.FROBENIUS_PRODUCT) else 1.0

    def _value(self, functional: Functional) -> Array:
        """The update under an optimizer of this functional. A vector has no singular values: it counts by ||g||_1."""
        if functional is Functional.FROBENIUS_SQUARED:
            return self.lr_multiplier * self.square
        if functional is Functional.FROBENIUS_PRODUCT:
            length = self.square**0.5 if self.length is None else self.length
            return self.lr_multiplier * self.weight * self.size * length
        if functional is Functional.NUCLEAR and self.nuclear is not None:
            return self.lr_multiplier * self.nuclear
        assert self.root is not None, "asked for roots"
        absolute = self.lr_multiplier * MEAN_ABS * self.root
        return absolute * self.weight if functional is Functional.RMS_L1 else absolute


@dataclass(frozen=True)
class Step:
    """An optimizer's step: the functionals of the gradient by which matrices of branches, and all others, count.

    is_matched: two optimizers share the learning rate. A matrix's step is then sqrt(max(rows, columns)) times as long,
    over sqrt(d), and the unit is MATCHED sqrt(d) times the matrices' own. is_factored: a matrix's second moment is one
    of rows times one of columns (``theory.kernel.factored``); the functional is that of one token, and of vectors.
    is_noise: the step's direction is independent of the gradient, so that parts add up in quadrature; known of the
    matrices of branches.
    """

    matrices: Functional
    others: Functional
    is_matched: bool = False
    is_factored: bool = False
    is_noise: bool = False

    @property
    def functionals(self) -> frozenset[Functional]:
        return frozenset({self.matrices, self.others})


def step_of(name: str, *, is_noise: bool = False) -> Step:
    """The step of an optimizer. is_noise: in a direction that is independent of the gradient. ValueError, in one line,
    if it is unknown, or known for a single token only."""
    asked = optimizer(name)
    is_factored = name == "adafactor"
    if asked.functional is None or (asked.assumes_rank_one and not is_factored):
        raise ValueError(f"{name}: its step is derived for a gradient of rank one, and each token adds a rank")
    if asked.others is None:
        return Step(asked.functional, asked.functional, is_factored=is_factored, is_noise=is_noise)
    assert asked.others.functional is not None
    return Step(asked.functional, asked.others.functional, is_matched=True, is_noise=is_noise)


def noise_power(name: str) -> float:
    """k, where <g, s> of a step s that is independent of g is d^-k times that of the optimizer's first step.

    ||g||_1 of a matrix is d ||g||_F, up to a number, and its nuclear norm sqrt(d) ||g||_F; a step s of as large entries
    moves by ||g||_F times the size of one.

    >>> from depthlaw.theory.kernel.update import noise_power
    >>> noise_power("adamw"), noise_power("muon+adamw"), noise_power("sgd")
    (1.0, 0.5, 1.0)
    """
    return 0.5 if step_of(name).matrices is Functional.NUCLEAR else 1.0


def unit_power(name: str, role: str) -> float:
    """k, where a role's part is d^-k times the number of a prediction, in the unit of the branch matrices.

    These are d for ||g||^2, d^(3/2) for ||g||_1, d where theta's norm stands in front, sqrt(d) for singular values, and
    d for those under a Muon whose step is as long as AdamW's. A matrix has d^2 entries, a vector d of as large a
    gradient each, an embedding d for each token, the head d of a gradient sqrt(d) times as large; a branch weight is
    one number.

    >>> from depthlaw.theory.kernel.predict import unit_power
    >>> unit_power("sgd", "fc1"), unit_power("sgd", "norm_gain"), unit_power("adam", "embedding")
    (0.0, 1.0, 1.0)
    """
    step = step_of(name)
    powers = {
        Functional.FROBENIUS_SQUARED: (1.0, 1.0, 0.0, 1.0),
        Functional.L1: (1.0, 1.0, 0.5, 1.5),
        Functional.RMS_L1: (0.5, 0.5, 0.5, 1.0),
        Functional.FROBENIUS_PRODUCT: (0.5, 0.5, 0.5, 1.0),
        Functional.NUCLEAR: (0.0, 0.5, 0.0, 0.5),
    }[step.others]
    if step.is_matched:  # ||g||_1 of the others, in the matrices' d and not in d^(3/2)
        powers = tuple(power - 0.5 for power in powers)
    roles = (*VECTORS, *("embedding", "head", "branch_weight"))
    by_role = dict(zip(roles, (*[powers[0]] * len(VECTORS), *powers[1:]), strict=True))
    return by_role.get(role, 0.0)
