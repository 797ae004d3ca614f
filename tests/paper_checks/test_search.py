"""Searches for counterexamples: what they count, that they shrink, and that they find what is there."""

from __future__ import annotations

import pytest
import z3
from hypothesis import strategies as st

from depthlaw.paper_checks.claims.claim import any_counterexample
from depthlaw.paper_checks.routes.search import prove, search

WHOLE = st.integers(min_value=0, max_value=1000)


def test_a_search_counts_what_met_the_hypotheses() -> None:
    seen = []

    def holds(case: int) -> bool | None:
        seen.append(case)
        return None if case % 2 else True

    found = search(WHOLE, holds, max_examples=50)
    assert found.found is None
    assert found.num_effective == sum(case % 2 == 0 for case in seen) > 0


def test_a_search_shrinks_and_does_the_same_again() -> None:
    first, again = (search(WHOLE, lambda case: case < 17) for _ in range(2))
    assert first == again
    assert first.found == 17


def test_any_counterexample_is_the_first_that_is_met() -> None:
    with any_counterexample():
        first = search(WHOLE, lambda case: case < 17)
    assert first.found > 17 and first.num_effective < search(WHOLE, lambda case: case < 17).num_effective


def test_what_a_search_raises_is_not_a_counterexample() -> None:
    with pytest.raises(ZeroDivisionError):
        search(WHOLE, lambda case: 1 / (case - case) > 0)


def test_proofs_over_the_reals() -> None:
    x, y = z3.Reals("x y")
    assert prove(x * x + y * y >= 2 * x * y).is_valid is True
    broken = prove(x + y >= x)
    assert broken.is_valid is False
    assert set(broken.values) <= {"x", "y"}


def test_what_is_not_decided_is_not_proved() -> None:
    x, y = z3.Reals("x y")
    powers = z3.Implies(z3.And(x > 1, y > 0), x**y > 1)
    assert prove(powers, timeout_ms=200).is_valid is None
