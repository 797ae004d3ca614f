"""Findings: each speaks for claims that do not hold as printed, and its numbers are those of the evidence."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sympy import Rational

from depthlaw.paper_checks.claims.claim import Finding, Number, Verdict, number
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.verify.findings import claims_with_findings, finding_of, findings
from tests.often import often
from tests.once import judged_claim as claim

_NAMES = re.compile(r"\b(?:Theorem|Lemma) \d+\.\d+")
LOOKED_UP = {
    (one.id, name): found
    for one in claims_with_findings()
    for name, found in (one.finding.numbers.items() if one.finding else ())
    if isinstance(found, Number)
}
"""The numbers of the findings that stand in evidence, by claim and field."""


def text_of(*entries: dict[str, Any]) -> str:
    [told] = findings(entries)
    return told.text


def changed(found: Any, keys: tuple[str, ...]) -> None:
    """Another value under these keys, wherever they lead to one."""
    for key in keys[:-1]:
        found = found.get(key, {})
    if keys[-1] in found:
        found[keys[-1]] = 12.75


def test_findings_are_of_the_claims_that_do_not_hold_as_printed() -> None:
    """And no decimal is typed into one."""
    all_findings = [(one.id, one.finding) for one in claims_with_findings() if one.finding]
    ids = [id_ for own, finding in all_findings for id_ in (own, *finding.shared_with)]
    assert len(ids) == len(set(ids))
    kinds = {Verdict.REFUTED, Verdict.MISPRINT, Verdict.CONDITIONAL}
    assert set(ids) == {id_ for id_, one in claims().items() if one.expected in kinds}
    for own, finding in all_findings:
        assert not re.search(r"\d\.\d", _NAMES.sub("", re.sub(r"\{[^}]*\}", "", finding.text))), own


@pytest.mark.parametrize(("id_", "name"), often(LOOKED_UP, 6, wide=1))
def test_a_finding_has_the_number_of_its_evidence(id_: str, name: str) -> None:
    """It is found; and where the evidence has another number, so has the finding."""
    entry, where = claim(id_), LOOKED_UP[id_, name]
    text = text_of(entry)
    assert "(not found)" not in text
    [part] = (part for part in entry["parts"] if part["name"].startswith(where.part))
    for numbers in (part["counterexample"] or {}, *(item["numbers"] for item in part["evidence"])):
        changed(numbers, where.keys)
    assert "12.75" not in text
    assert re.search(r"\b1[23]\b|\b1e\+01\b", text_of(entry)) and text_of(entry) != text


@pytest.mark.wide
def test_the_numbers_that_are_derived() -> None:
    """Pre-LN's exact update and its bound at four sublayers whose gains triple are 0.908041 and 0.737618."""
    assert "v_l = w_l = 1, 3, 9, 27 gives 0.91 against a bound of 0.74" in text_of(claim("S2-08"))
    assert f"exp({2**-0.75:.2g} N^(1/4))" in text_of(claim("DN-02"))
    least = next(m for m in range(1, 1000) if (3 * m) ** 0.25 / 6 > 1)
    assert f"M^(1/4)/{6 / 3**0.25:.3g}, past 1 at M = {least}" in text_of(claim("DN-07"))
    least = next(n for n in range(1, 100) if Rational(81, 100) ** 16 * n > 1)
    assert f"where N^4 M < {least}" in text_of(claim("DN-11"))


def test_a_claim_that_the_document_lacks_is_judged_for_its_number() -> None:
    """S2-20 shares the finding of S3-12, whose evidence has the numbers."""
    told = finding_of("S2-20")
    assert set(told.ids) >= {"S2-20", "S3-12"}
    assert told.text == text_of(claim("S3-12"))


def test_a_number_that_no_evidence_has_is_said_to_be_missing() -> None:
    entry = claim("S1-08")
    for part in entry["parts"]:
        part["counterexample"], part["evidence"] = None, []
    assert "at relative distance (not found) at every width" in text_of(entry)
    entry["parts"][0]["counterexample"] = {"distances": {"d x d": "no number"}}
    assert "at relative distance (not found) at every width" in text_of(entry)


def test_a_finding_has_a_number_for_each_field() -> None:
    with pytest.raises(ValueError, match="the fields"):
        Finding("the update is {update}", rank=10)
    with pytest.raises(ValueError, match="the numbers"):
        Finding("the update is large", rank=10, numbers={"update": number("as printed", "update")})
