"""What was found against the sources: the findings of the claims, their numbers filled in from the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paper_checks.claims.claim import Claim, Number
from paper_checks.papers.registry import claims
from paper_checks.verify.document import check, say

Found = dict[str, Any]
FIRST = 5
"""How many of them the README, the first page of the site and `depthlaw verify` have."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A finding as people read it, without the last full stop, and the claims that it speaks for."""

    ids: tuple[str, ...]
    text: str


def claims_with_findings() -> list[Claim]:
    """The claims that have a finding, the most consequential first."""
    found = [(claim.finding.rank, claim.id) for claim in claims().values() if claim.finding is not None]
    return [claims()[id_] for _, id_ in sorted(found)]


def findings(entries: Sequence[Found]) -> Iterator[Told]:
    """Those that speak for a claim among the entries of a document, the most consequential first.

    >>> from paper_checks.verify.document import check_claim
    >>> from paper_checks.verify.findings import findings
    >>> [told] = findings([check_claim("S2-08", with_mutants=False, quick=True)])
    >>> told.text.partition(": ")[2][:70]
    'v_l = w_l = 1, 3, 9, 27 gives 0.91 against a bound of 0.74, and faster'
    """
    by_id = {entry["id"]: entry for entry in entries}
    for claim in claims_with_findings():
        assert claim.finding is not None
        ids = (claim.id, *claim.finding.shared_with)
        if not by_id.keys().isdisjoint(ids):
            yield Told(ids=ids, text=_text(claim, by_id))


def finding_of(id_: str) -> Told:
    """The one that speaks for a claim; the parts that its numbers stand in are judged now. ValueError where none does.

    >>> from paper_checks.verify.findings import finding_of
    >>> finding_of("S1-25").text
    'Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)'
    """
    [told] = findings([{"id": id_, "parts": ()}])
    return told


def _text(claim: Claim, by_id: Mapping[str, Found]) -> str:
    assert claim.finding is not None
    there = by_id.get(claim.id, {"parts": ()})["parts"]
    named = {number.part for number in claim.finding.numbers.values() if isinstance(number, Number)}
    parts = [_part(claim, name, there) for name in sorted(named)]
    return say(claim.finding, list({part["name"]: part for part in parts}.values())) or ""


def _part(claim: Claim, name: str, there: Sequence[Found]) -> Found:
    """The part as the document has it, or judged now where the document lacks it. ValueError for no one part."""
    (part,) = (part for part in claim.parts if part.name.startswith(name))
    alone = replace(claim, parts=(part,))
    kept = (entry for entry in there if entry["name"] == part.name)
    return next(kept, None) or check(alone, with_mutants=False, quick=True)["parts"][0]
