"""Gram matrices by their gaps, against mpmath; roots of Gaussian forms, against elliptic integrals and exponentials."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import elliprg, gammaln

from depthlaw.theory.kernel.gram import Gram, centred, mean_root, nuclear

EPS = float(np.finfo(float).eps)
GAPS = (1e-1, 1e-5, 1e-12, 1e-16, 1e-20, 1e-100, 1e-300)


def vectors(*shape: int) -> np.ndarray:
    return np.random.default_rng(20_231).normal(size=shape)


def exact_gap(gram: Gram, i: int, j: int) -> mpmath.mpf:
    """1 - K_ij / sqrt(K_ii K_jj), in so many digits that the difference is exact to double precision."""
    with mpmath.workdps(700):
        own, other, both = (mpmath.mpf(gram.level) - mpmath.mpf(gram.gap[at]) for at in ((i, i), (j, j), (i, j)))
        return 1 - both / mpmath.sqrt(own * other)


def worst_error(gram: Gram) -> float:
    """The largest error of a gap of the normalised matrix, in units of the rounding of the gaps it is made from."""
    normalised, worst = gram.normalised(), 0.0
    assert normalised.level == 1
    for i, j in np.ndindex(gram.gap.shape):
        own, other, both = gram.gap[i, i], gram.gap[j, j], abs(gram.gap[i, j])
        longest = max(gram.diagonal[i], gram.diagonal[j])
        rounding = EPS * (both + own + other) / math.sqrt(gram.diagonal[i] * gram.diagonal[j])
        rounding *= max(1.0, gram.level / longest)  # the lengths themselves are a difference
        error = float(abs(mpmath.mpf(normalised.gap[i, j]) - exact_gap(gram, i, j)))
        worst = max(worst, error / rounding if rounding else error)
    return float(worst)


def parallel(gap: float, level: float) -> Gram:
    """Four vectors at angles^2 of about ``gap``, of lengths that differ as much."""
    x = vectors(4, 4)
    shape = (x[:, None] - x) ** 2
    return Gram(level, level * gap / 20 * (shape.sum(-1) + np.add.outer(x[:, 0] ** 2, x[:, 0] ** 2)))


@pytest.mark.parametrize("level", [1.0, 3e-3, 5e4])
@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_keeps_its_own_digits_however_small(gap: float, level: float) -> None:
    gram = parallel(gap, level)
    assert 0.01 * gap < gram.normalised().gap.max() < 10 * gap
    assert worst_error(gram) < 8


@pytest.mark.parametrize("eps", [1e-6, 0.5, 1e3])
def test_a_norm_with_eps_divides_by_more_than_the_length(eps: float) -> None:
    x, gram = vectors(4, 6) / math.sqrt(6), parallel(1e-12, 3e-3)
    unit = x / np.sqrt((x**2).sum(-1, keepdims=True) + eps)
    assert np.allclose(Gram(2.0, 2.0 - x @ x.T).normalised(eps).full, unit @ unit.T, rtol=1e-13, atol=1e-15)
    squares = gram.diagonal + eps  # and small gaps keep their digits: K_ij / r, of which the level is subtracted
    with mpmath.workdps(60):
        own, other, both = (mpmath.mpf(gram.level) - mpmath.mpf(gram.gap[at]) for at in ((0, 0), (1, 1), (0, 1)))
        near = both / mpmath.sqrt((own + eps) * (other + eps))
        level = mpmath.mpf(gram.level) / (mpmath.mpf(gram.level) + eps)
        assert gram.normalised(eps).gap[0, 1] == pytest.approx(float(level - near), rel=1e-9)
    assert np.allclose(gram.lengths(eps) ** 2, squares, rtol=1e-14)


def test_sums_and_multiples_are_of_the_whole_matrix() -> None:
    x, y = vectors(2, 5, 5)
    of_x, of_y = (Gram(2.0, 2.0 - z @ z.T) for z in (x, y))
    assert np.allclose(of_x.plus(of_y.times(3.0)).full, x @ x.T + 3 * y @ y.T, rtol=1e-14, atol=1e-14)
    tiny = Gram(1.0, np.array([[0.0, 1e-40], [1e-40, 0.0]]))
    assert tiny.plus(tiny.times(2.0)).gap[0, 1] == pytest.approx(3e-40, rel=4 * EPS)


def test_centred_subtracts_each_groups_mean() -> None:
    x, groups = vectors(7, 9), np.array([0, 0, 0, 1, 1, 2, 0])
    without = x.copy()
    for group in range(3):
        without[groups == group] -= x[groups == group].mean(0)
    wanted = without @ without.T
    assert np.allclose(Gram(5.0, 5.0 - x @ x.T).centred(groups), wanted, rtol=1e-13, atol=1e-13)
    assert np.allclose(centred(groups, x @ x.T), wanted, rtol=1e-13, atol=1e-13)


TRAPEZOID = 1e-5
"""The error of ``mean_root``'s rule, which grows with the number of like eigenvalues to this."""


def of_three(values: tuple[float, ...]) -> float:
    """E sqrt(sum_i a_i z_i^2) of three: the mean of |z|, sqrt(8 / pi), times Carlson's R_G, a mean over the sphere."""
    return math.sqrt(8 / math.pi) * float(elliprg(*values))


def turned(values: list[float]) -> np.ndarray:
    """A form with these eigenvalues, and axes that are not the coordinates'."""
    axes = np.linalg.qr(vectors(len(values), len(values)))[0]
    return axes @ np.diag(values) @ axes.T


@pytest.mark.parametrize("n", [1, 2, 10, 256])
def test_equal_eigenvalues_are_the_mean_of_a_chi(n: int) -> None:
    chi = math.sqrt(2) * math.exp(gammaln((n + 1) / 2) - gammaln(n / 2))
    assert float(mean_root(4.0 * np.eye(n))) == pytest.approx(2 * chi, rel=TRAPEZOID)


def test_of_one_eigenvalue_it_is_right_to_1e_7() -> None:
    """The mean of |z|, times the root of that eigenvalue, by both ways of taking determinants."""
    of_few, of_many = mean_root(np.ones((1, 5, 5))), mean_root(np.ones((200, 5, 5)))
    assert of_few == pytest.approx(math.sqrt(5 * 2 / math.pi), rel=1e-7)
    assert of_many == pytest.approx(math.sqrt(5 * 2 / math.pi), rel=1e-7)


@given(st.tuples(*[st.floats(-12, 12)] * 3))
def test_any_three_eigenvalues(logs: tuple[float, float, float]) -> None:
    values = [10**x for x in logs]
    assert float(mean_root(np.diag(values))) == pytest.approx(of_three(tuple(values)), rel=TRAPEZOID)


def test_forms_that_are_turned_and_stacked() -> None:
    roots = mean_root(np.array([turned([1.0, 2.0, 5.0]), turned([0.0, 0.0, 3.0])]))
    assert roots == pytest.approx([of_three((1.0, 2.0, 5.0)), of_three((0.0, 0.0, 3.0))], rel=TRAPEZOID)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_many_small_forms_are_what_each_is_alone(n: int) -> None:
    """Of eigenvalues far apart, of rank one, and 0."""
    x = vectors(200, n, n) * np.exp(4 * vectors(200, 1, n))
    x[:20, 1:] = 0
    forms = x @ x.mT
    forms[20] = 0
    together = mean_root(forms)
    assert together == pytest.approx(np.array([mean_root(form) for form in forms]), rel=1e-9)
    if n == 3:
        wanted = [of_three(tuple(np.linalg.eigvalsh(form).clip(min=0))) for form in forms]
        assert together == pytest.approx(wanted, rel=TRAPEZOID)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_nuclear_is_the_sum_of_singular_values(rank: int) -> None:
    y, x = vectors(40, rank) @ vectors(rank, 5), vectors(30, 5)
    wanted = np.linalg.svd(y @ x.T, compute_uv=False).sum()
    assert nuclear(y.T @ y, x.T @ x) == pytest.approx(wanted, rel=1e-6)
