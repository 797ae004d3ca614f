"""Searches for counterexamples: hypothesis over cases, z3 over the reals. The same search every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from depthlaw.paper_checks.claims.claim import is_shrunk
from depthlaw.system.places import ROOT

CACHE = ROOT / ".hypothesis"
"""What hypothesis keeps for itself stays in the checkout, wherever the command is called."""


class Searched(NamedTuple):
    """num_effective: cases that met the hypotheses. found: the smallest failing case that was found, or None."""

    num_effective: int
    found: Any


def search(cases: Any, holds: Callable[[Any], bool | None], *, max_examples: int = 200) -> Searched:
    """Try ``holds`` on cases of a hypothesis strategy, and shrink the first failure.

    holds: True, False, or None for a case that the hypotheses of the statement exclude. An exception of ``holds`` goes
    through to the caller (a check that raises is undecided).

    >>> from hypothesis import strategies as st
    >>> from depthlaw.paper_checks.routes.search import search
    >>> search(st.integers(1, 10**6), lambda n: n**2 < 5000).found
    71
    """
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(CACHE)
    effective, failing = 0, []

    class _Fails(Exception):
        pass

    @settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=(Phase.explicit, Phase.generate, Phase.target, *((Phase.shrink,) if is_shrunk() else ())),
    )
    @given(cases)
    def attempt(case: Any) -> None:
        nonlocal effective
        answer = holds(case)
        if answer is None:
            return
        effective += 1
        if not answer:
            failing.append(case)
            raise _Fails

    try:
        attempt()
    except _Fails:
        return Searched(num_effective=effective, found=failing[-1])
    return Searched(num_effective=effective, found=None)


class Solved(NamedTuple):
    """is_valid: True where no values of the letters break the statement, False with such values, None undecided."""

    is_valid: bool | None
    values: Mapping[str, str]


def prove(statement: Any, *, timeout_ms: int = 5000) -> Solved:
    """Whether a z3 formula is true for all values of its letters; values that break it otherwise.

    >>> import z3
    >>> from depthlaw.paper_checks.routes.search import prove
    >>> a, b = z3.Reals("a b")
    >>> prove((a + b) ** 2 <= 2 * a**2 + 2 * b**2).is_valid
    True
    """
    import z3

    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.add(z3.Not(statement))
    answer = solver.check()
    if answer == z3.unsat:
        return Solved(is_valid=True, values={})
    if answer == z3.unknown:
        return Solved(is_valid=None, values={})
    model = solver.model()
    return Solved(is_valid=False, values={str(letter): str(model[letter]) for letter in model.decls()})
