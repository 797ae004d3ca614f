"""One attention, forward and backward, against heads that are drawn: queries, keys, values, gradients as numbers.

The derivative of a softmax is taken by a complex step, keys and values are not centred, and what the theory has in
closed form (products of gradients, values, keys) is drawn. Nothing of ``theory`` is used but what is tested.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy.special import stdtrit

from depthlaw.theory.kernel.gram import Gram, mean_root
from depthlaw.theory.kernel.setting import Heads
from depthlaw.theory.kernel.softmax import Attention, Gains

FAMILY_ERROR = 1e-3
"""The chance that a right theory is rejected anywhere in this file, had the seeds not been fixed."""
NUM_COMPARISONS = 1_000
REPLICATES = 20
NUM_POINTS = 512
"""Many small sets of points tell their error better than few large ones, and cost less."""
Numbers = dict[str, np.ndarray]


GAINS = Gains(1.3, 1.6, 0.9, 1.2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """n queries of ``queries`` over m sources."""

    name: str
    batch: int = 1
    num_queries: int = 3
    num_sources: int = 3
    is_causal: bool = False
    is_cross: bool = False
    head_size: int | None = None
    has_scale: bool = False

    @property
    def groups(self) -> np.ndarray:
        return np.repeat(np.arange(self.batch), self.num_sources)

    @property
    def allowed(self) -> np.ndarray:
        rows = np.repeat(np.arange(self.batch), self.num_queries)
        same = rows[:, None] == self.groups
        return np.tril(same) if self.is_causal else same

    def gram(self, num: int, seed: int) -> np.ndarray:
        """Of tokens of unequal lengths that have something in common, those of other sequences too."""
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(num * self.batch, 5)) + math.sqrt(0.3) * generator.normal(size=5) * 1.5
        return x @ x.T / 5

    @property
    def queries(self) -> np.ndarray:
        return self.gram(self.num_queries, 1)

    @property
    def sources(self) -> np.ndarray:
        return self.gram(self.num_sources, 2) if self.is_cross else self.queries

    @property
    def at_out(self) -> np.ndarray:
        return self.gram(self.num_queries, 3)

    @property
    def scale(self) -> np.ndarray:
        num = self.num_queries * self.batch
        return np.linspace(0.7, 1.5, num) if self.has_scale else np.ones(num)


CASES = [
    Case(name="causal", is_causal=True, num_queries=4, num_sources=4),
    Case(name="cross", is_cross=True, num_queries=2, num_sources=4),
    Case(name="two sequences", batch=2, num_queries=2, num_sources=2, has_scale=True),
    Case(name="small heads, causal", head_size=8, num_queries=4, num_sources=4, is_causal=True),
    Case(name="small heads, cross", head_size=8, is_cross=True, num_queries=3, num_sources=2, has_scale=True),
]


@cache
def predicted(case: Case) -> tuple[Numbers, Numbers]:
    """Means and squares of standard errors over sets of points."""
    runs: list[Numbers] = []
    for replicate in range(REPLICATES):
        u, sources = (Gram(float(x.max()), x.max() - x) for x in (case.queries, case.sources))
        attention = Attention(
            u,
            sources,
            case.allowed,
            case.groups,
            GAINS,
            head_size=case.head_size,
            num_points=NUM_POINTS,
            which=(0, replicate),
        )
        backward = attention.backward(case.at_out, case.scale, with_roots=True)
        assert backward.roots is not None
        roots = {name: np.array(root) for name, root in vars(backward.roots).items() if name != "k_bias"}  # that is 0
        roots |= {name: mean_root(roots[name]).mean() for name in ("q", "k", "v", "out")}
        roots["inner_gain"] = GAINS.out * roots["out"]
        gradients = {"at q": backward.q, "at k": backward.k, "at v": backward.v}
        runs.append({"mixed": attention.mixed.full, **gradients, **{f"root of {name}": x for name, x in roots.items()}})
    stacked = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    return (
        {name: x.mean(0) for name, x in stacked.items()},
        {name: x.var(0, ddof=1) / REPLICATES for name, x in stacked.items()},
    )


def normal(generator: np.random.Generator, number: int, covariance: np.ndarray, units: int) -> np.ndarray:
    """(number, tokens, units), independent over units."""
    root = np.linalg.cholesky(covariance + 1e-13 * np.eye(len(covariance)))
    return root @ generator.normal(size=(number, len(covariance), units))


def softmax(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    powers = np.where(allowed, np.exp(scores), 0)
    return powers / powers.sum(-1, keepdims=True)


def slopes(scores: np.ndarray, allowed: np.ndarray, at_weights: np.ndarray) -> np.ndarray:
    """d (sum of at_weights * softmax) / d scores, one score at a time by a complex step."""
    at_scores = np.zeros_like(scores)
    for t, s in np.argwhere(allowed):
        moved = scores[:, t].astype(complex)
        moved[:, s] += 1e-30j
        at_scores[:, t, s] = (at_weights[:, t] * softmax(moved, allowed[t])).sum(-1).imag / 1e-30
    return at_scores


NUM_DRAWS = 10_000


def drawn(case: Case) -> dict[str, np.ndarray]:
    """Of each head what the theory has the mean of; a root as a gradient's entry over sqrt(2 / pi)."""
    generator, number = np.random.default_rng(sum(map(ord, case.name))), NUM_DRAWS
    gains, allowed, scale = GAINS, case.allowed, case.scale[:, None]
    units = 1 if case.head_size is None else case.head_size
    n, m = allowed.shape
    inputs, sources = case.queries, case.sources
    if case.head_size is None:
        roots = [np.linalg.cholesky(x + 1e-13 * np.eye(len(x))) for x in (inputs, sources)]
        scores = gains.q * gains.k * (roots[0] @ generator.normal(size=(number, n, m)) @ roots[1].T)
        # of units beside the many that made the scores
        query, key = (normal(generator, number, g**2 * x, 1) for g, x in ((gains.q, inputs), (gains.k, sources)))
    else:
        query, key = (normal(generator, number, g**2 * x, units) for g, x in ((gains.q, inputs), (gains.k, sources)))
        scores = query @ key.mT / math.sqrt(units)
    weights = softmax(scores, allowed)
    value = normal(generator, number, gains.v**2 * sources, units)
    at_out = normal(generator, number, case.at_out, units)
    at_mixed = gains.out * at_out / scale  # as many units as the value has
    mixed = weights @ value
    if case.head_size is None:
        # The sum over many units of at_mixed value^T is Gaussian, and independent of any one.
        roots = [np.linalg.cholesky(x + 1e-13 * np.eye(len(x))) for x in (case.at_out, sources)]
        at_weights = gains.out * gains.v / scale * (roots[0] @ generator.normal(size=(number, n, m)) @ roots[1].T)
    else:
        at_weights = at_mixed @ value.mT / math.sqrt(units)
    at_scores = slopes(scores, allowed, at_weights)
    at_q, at_k, at_v = at_scores @ key, at_scores.mT @ query, weights.mT @ at_mixed
    # one unit's gradient against one coordinate of the inputs
    u, source = normal(generator, number, inputs, 1), normal(generator, number, sources, 1)
    variance = weights @ (gains.v**2 * sources) @ weights.mT / (scale * scale.T)
    entries = {
        "q": (at_q * u).sum(1),
        "k": (at_k * source).sum(1),
        "v": (at_v * source).sum(1),
        "out": (at_out * mixed / scale).sum(1),
        "q_bias": at_q.sum(1),
        "v_bias": at_v.sum(1),
        "inner_gain": (gains.out * at_out * mixed / scale).sum(1),
    }
    of_head = {f"root of {name}": abs(x).mean(-1) / math.sqrt(2 / math.pi) for name, x in entries.items()}
    of_head["root of head_scale"] = gains.out * np.sqrt((case.at_out * variance).sum((1, 2)))
    grams = {"mixed": mixed, "at q": at_q, "at k": at_k, "at v": at_v}
    return of_head | {name: x @ x.mT / x.shape[-1] for name, x in grams.items()}


@cache
def sampled(case: Case) -> tuple[Numbers, Numbers]:
    """Means and squares of standard errors."""
    heads = drawn(case)
    return {name: x.mean(0) for name, x in heads.items()}, {name: x.var(0) / len(x) for name, x in heads.items()}


def outside(case: Case, theory: Numbers) -> set[str]:
    """The numbers that the heads of a case reject, at an error of FAMILY_ERROR over all comparisons together."""
    tail = FAMILY_ERROR / NUM_COMPARISONS / 2
    few, many = -float(stdtrit(REPLICATES - 1, tail)), -float(stdtrit(NUM_DRAWS - 1, tail))
    means, squares = sampled(case)
    _, own = predicted(case)
    missed = set()
    for name, value in theory.items():
        rounding = 1e-12 * abs(means[name]).max()
        allowance = np.sqrt(many**2 * squares[name] + few**2 * own[name]) + rounding
        if (abs(value - means[name]) > allowance).any():
            missed.add(name)
    return missed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_and_backward_are_those_of_drawn_heads(case: Case) -> None:
    """With an error below a fifth of each number."""
    means, _ = predicted(case)
    assert outside(case, means) == set()
    assert len(means) == 12
    assert outside(case, {name: 1.25 * value for name, value in means.items()}) == set(means)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_heads_that_are_turned_by_nothing_are_heads_that_are_not_turned(case: Case) -> None:
    """What reaches them is made vector by vector, and as products of matrices where nothing turns."""
    queries, sources = (Gram(0.0, -gram) for gram in (case.queries, case.sources))
    heads, places = Heads(rotary_base=10.0), tuple(np.zeros(size) for size in case.allowed.shape)
    how = {"head_size": 6, "heads": heads, "positions": places, "num_points": 64, "which": (1,)}
    attention = Attention(queries, sources, case.allowed, case.groups, GAINS, **how)
    turned = attention.backward(case.at_out, case.scale, with_roots=False)
    attention.has_rotary = False
    plain = attention.backward(case.at_out, case.scale, with_roots=False)
    for name in ("q", "k", "v"):
        expected = getattr(plain, name)
        np.testing.assert_allclose(getattr(turned, name), expected, rtol=0, atol=1e-12 * abs(expected).max())
        assert abs(expected).max() > 1e-3
