"""Optimizers: what is computed from an update map, against norms that torch computes, and against mutated maps."""

from functools import cache

import pytest
import sympy as sp
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from sympy import Abs, Rational, sign, sqrt

from depthlaw.theory.optimizers import (
    Functional,
    NotHomogeneousError,
    Optimizer,
    UndecidedError,
    beta2,
    entrywise,
    optimizer,
)
from depthlaw.theory.symbols import eta, scratch, scratch_matrix

# name: gradient degree, parameter degree, functional, factor, whether that takes a rank-one gradient, and the texts
FEW = settings(max_examples=settings().max_examples // 25)
SQUARED, ONE_NORM, RELATIVE = Functional.FROBENIUS_SQUARED, Functional.L1, Functional.RMS_L1
LAMB_TEXTS = ("-eta*||theta||/sqrt(n)*sign(g)", "-eta*||theta||*||g||_1/sqrt(n)")
SIGN = (0, 0, ONE_NORM, 1, False, "-eta*sign(g)", "-eta*||g||_1")
EXPECTED = {
    "sgd": (1, 0, SQUARED, 1, False, "-eta*g", "-eta*||g||^2"),
    "momentum": (1, 0, SQUARED, 1, False, "-eta*g", "-eta*||g||^2"),
    "adam": SIGN,
    "adamw": SIGN,
    "rmsprop": (
        *(0, 0, ONE_NORM, 1 / sqrt(1 - beta2), False),
        *("-eta/sqrt(1 - beta2)*sign(g)", "-eta/sqrt(1 - beta2)*||g||_1"),
    ),
    "signsgd": SIGN,
    "lion": SIGN,
    "adafactor": (0, 1, RELATIVE, 1, True, *LAMB_TEXTS),
    "lars": (0, 1, Functional.FROBENIUS_PRODUCT, 1, False, "-eta*||theta||*g/||g||", "-eta*||theta||*||g||"),
    "lamb": (0, 1, RELATIVE, 1, False, *LAMB_TEXTS),
    "muon": (0, 0, Functional.NUCLEAR, 1, False, "-eta*polar(g)", "-eta*||g||_*"),
    "sophia": SIGN,
}


def custom(update):
    return Optimizer(name="custom", update=update)


@pytest.mark.parametrize("name", EXPECTED)
def test_computed_from_the_map(name):
    o = optimizer(name)
    degrees, texts = (o.gradient_degree, o.parameter_degree), (o.update_text, o.loss_change_text)
    assert (*degrees, o.functional, o.factor, o.assumes_rank_one, *texts) == EXPECTED[name]


@given(*[st.fractions(min_value=-3, max_value=3, max_denominator=6)] * 2)
@FEW
def test_any_degrees_are_found(p, t):
    p, t = Rational(p), Rational(t)
    o = custom(lambda g, theta: -eta * entrywise(lambda x, y: Abs(y) ** t * Abs(x) ** p * sign(x), g, theta))
    assert (o.gradient_degree, o.parameter_degree) == (p, t)


@pytest.mark.parametrize(
    "update, message",
    [
        (lambda g, theta: g.applyfunc(lambda x: x / (Abs(x) + scratch("eps", positive=True))), "not homogeneous"),
        (lambda g, theta: 0 * g, "0 degrees"),
        (lambda g, theta: sp.Matrix(*g.shape, lambda i, j: g[i, j] ** (1 + i)), "2 degrees"),
        (lambda g, theta: g.applyfunc(lambda x: Abs(x) ** sp.Float(1.5)), "exact"),
        (lambda g, theta: g.applyfunc(lambda x: Abs(x) ** scratch("q", positive=True)), "exact"),
        (lambda g, theta: g.applyfunc(sp.tanh), "not homogeneous"),
        (lambda g, theta: g.applyfunc(lambda x: (x + 1) ** 2 - x**2 - 1), "not shown"),
    ],
)
def test_maps_without_a_degree(update, message):
    with pytest.raises(NotHomogeneousError, match=message):
        _ = custom(update).gradient_degree


def test_an_identity_beyond_the_rewrites_is_undecided():
    """It is sgd, but nothing here knows sin^2 + cos^2 = 1: neither a functional nor none."""
    with pytest.raises(UndecidedError, match="agree with FROBENIUS_SQUARED"):
        _ = custom(lambda g, theta: -eta * g * (sp.sin(g[0]) ** 2 + sp.cos(g[0]) ** 2)).functional


@cache
def numeric(name):
    g, theta = (scratch_matrix(x, 2, 2, real=True) for x in ("G", "T"))
    step = optimizer(name).update(g, theta)
    rest = sorted(step.free_symbols - g.free_symbols - theta.free_symbols, key=str)
    at = {s: Rational(i + 1, len(rest) + 2) for i, s in enumerate(rest)}
    return sp.lambdify([*g, *theta], list(step.subs(at)), "mpmath"), at


entry = st.integers(-50, 50).filter(bool)
matrices = st.lists(entry, min_size=8, max_size=8)


@pytest.mark.parametrize("name", EXPECTED)
@given(matrices)
@FEW
def test_functional_at_random_matrices(name, entries):
    """<G, Delta Theta> against norms that torch computes; the nuclear norm by an SVD."""
    o, (function, at) = optimizer(name), numeric(name)
    if o.assumes_rank_one:
        a, b, c, d, *rest = entries
        entries = [a * c, a * d, b * c, b * d, *rest]
    else:
        assume(entries[0] * entries[3] != entries[1] * entries[2])
    g, theta = torch.tensor(entries, dtype=torch.float64).reshape(2, 2, 2)
    norm, rms = torch.linalg.matrix_norm, torch.linalg.matrix_norm(theta) / 2
    expected = {
        Functional.FROBENIUS_SQUARED: (g * g).sum(),
        Functional.L1: g.abs().sum(),
        Functional.RMS_L1: rms * g.abs().sum(),
        Functional.FROBENIUS_PRODUCT: norm(theta) * norm(g),
        Functional.NUCLEAR: norm(g, "nuc"),
    }
    change = sum(x * y for x, y in zip(entries[:4], map(float, function(*map(mpf, entries))), strict=True))
    assert change == pytest.approx(float(-at[eta] * o.factor.subs(at) * float(expected[EXPECTED[name][2]])), rel=1e-9)
