"""The first steps that sims measures with are the update maps that theory derives from."""

from __future__ import annotations

import random
from functools import cache

import pytest
import sympy as sp
import torch
from sympy import Matrix, Rational, Symbol, sqrt
from torch import Tensor

from depthlaw.sims.optim import MIXED as MIXED_NAME
from depthlaw.sims.optim import NORMALISATION, RMSPROP_SMOOTHING, first_step
from depthlaw.sims.optim import OPTIMIZERS as ALL
from depthlaw.theory.optimizers import MATCHED, MIXED, Functional, beta2
from depthlaw.theory.optimizers import OPTIMIZERS as DERIVED
from depthlaw.theory.symbols import eta

SHAPES = ((2, 2), (1, 3), (3, 1), (3, 2))
OPTIMIZERS = tuple(DERIVED)
ALPHA = Rational(str(RMSPROP_SMOOTHING))


def rational(rows: int, columns: int, seed: int) -> Matrix:
    """No entry is 0: where one is, the maps divide by 0 and the optimizers do not move it."""
    draw = random.Random(seed)
    return Matrix(rows, columns, lambda *_: Rational(draw.choice((-1, 1)) * draw.randint(1, 20), draw.randint(1, 20)))


def tensor(matrix: Matrix) -> Tensor:
    return torch.tensor(matrix.evalf(30).tolist(), dtype=torch.float64)


@cache
def derived(name: str, shape: tuple[int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A gradient, a parameter, and theory's -Delta Theta / eta there. Other decay rates than rmsprop's cancel."""
    grad, theta = rational(*shape, seed), rational(*shape, seed + 1)
    step = -DERIVED[name].update(grad, theta) / eta
    draw = random.Random(seed)
    others = sorted(step.free_symbols - {eta, beta2}, key=str)
    values: dict[Symbol, Rational] = {s: Rational(draw.randint(1, 96), 97) for s in others}
    return tensor(grad), tensor(theta), tensor(step.subs({eta: 1, beta2: ALPHA, **values}))


def is_close(found: Tensor, expected: Tensor) -> bool:
    return bool(((found - expected).abs() <= 32 * torch.finfo(torch.float64).eps * expected.abs().max()).all())


def test_the_same_twelve_in_the_same_order() -> None:
    """And the two that run together, behind them."""
    assert (*DERIVED, *MIXED) == ALL


@pytest.mark.parametrize("is_branch", [True, False])
def test_two_optimizers_step_as_theory_has_each(is_branch: bool) -> None:
    """In the unit that both sides name: MATCHED sqrt(d), of a matrix d wide."""
    mixed = MIXED[MIXED_NAME]
    assert mixed.others is not None
    own = mixed if is_branch else mixed.others
    grad, theta = rational(2, 2, 0), rational(2, 2, 1)
    step = tensor(
        (-own.update(grad, theta) / eta).subs({s: Rational(1, 3) for s in own.update(grad, theta).free_symbols - {eta}})
    )
    length = float(MATCHED) * 2**0.5 if is_branch else 1.0
    assert is_close(first_step(MIXED_NAME, tensor(grad), tensor(theta), 2, is_branch=is_branch), length * step)
    muon, whole = NORMALISATION["muon"], NORMALISATION[MIXED_NAME]
    assert (whole.constant, whole.power) == (float(MATCHED), muon.power + 0.5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_step_is_the_derived_map(name: str, shape: tuple[int, int]) -> None:
    if name == "muon" and shape == (3, 2):
        shape = (2, 1)  # theory has closed forms of a polar factor for 2x2, rows and columns
    for seed in (0, 5) if name == "muon" else (0,):  # determinants of both signs
        grad, theta, step = derived(name, shape, seed)
        assert is_close(first_step(name, grad, theta, 2), step)


def derived_power(functional: Functional) -> sp.Expr:
    """p of d^p, from widths 1 and 2: the parameter's entries and the gradient's are of size d^(-1/2), of one input."""

    def at(width: int) -> sp.Expr:
        size = Matrix.ones(width, width) / sqrt(width)
        return functional.of(size, size)

    return sp.simplify(sp.log(at(2) / at(1)) / sp.log(2))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_normalisation_is_the_derived_one(name: str) -> None:
    functional = DERIVED[name].functional
    assert functional is not None
    assert NORMALISATION[name].constant == pytest.approx(float(DERIVED[name].factor.subs(beta2, ALPHA)), rel=1e-14)
    assert derived_power(functional) == Rational(NORMALISATION[name].power)
