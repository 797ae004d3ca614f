"""Every checkable statement of the sources is a claim: the ids, and what each of them must have."""

from __future__ import annotations

from collections import Counter

import pytest

from paper_checks.claims.claim import Claim, Verdict
from paper_checks.papers.registry import claims

COUNTS = {"S1": 50, "S2": 24, "S3": 49, "DN": 15, "LI": 5}
"""How many statements of each source are checkable: su, magneto, slides, deepnet, and what they cite."""
EVERY = [f"{prefix}-{number:02d}" for prefix, count in COUNTS.items() for number in range(1, count + 1)]


def test_every_statement_is_a_claim() -> None:
    assert list(claims()) == EVERY


@pytest.mark.parametrize("found", claims().values(), ids=list(claims()))
def test_a_claim_is_of_the_source_of_its_id(found: Claim) -> None:
    allowed = {"S1": {"su"}, "S2": {"magneto"}, "S3": {"slides"}, "DN": {"deepnet"}, "LI": {"admin", "xiong", "fixup"}}
    assert found.source in allowed[found.id.partition("-")[0]]


def test_expected_verdicts_are_spread() -> None:
    """A project that confirmed everything would have looked nowhere."""
    counts = Counter(found.expected for found in claims().values())
    assert set(counts) == set(Verdict)
