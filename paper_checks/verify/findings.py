"""What was found against the sources: the findings of the claims, their numbers filled in from the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from depthlaw.paper_checks.claims.claim import Claim, Number
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.verify.document import check, say

Entry = dict[str, Any]
FIRST = 5
"""How many of them the README, the first page of the site and `depthlaw verify` have."""


class FindingText(NamedTuple):
    """A finding as people read it, without the last full stop, and the claims that it speaks for."""

    ids: tuple[str, ...]
    text: str

    @property
    def headline(self) -> str:
        """Its first sentence, which says enough by itself."""
        return self.text.partition(". ")[0]


def claims_with_findings() -> list[Claim]:
    """The claims that have a finding, the most consequential first."""
    ranked = [(claim.finding.rank, claim.id) for claim in claims().values() if claim.finding is not None]
    return [claims()[id_] for _, id_ in sorted(ranked)]


def findings(entries: Sequence[Entry]) -> Iterator[FindingText]:
    """Those that speak for a claim among the entries of a document, the most consequential first.

    >>> from depthlaw.paper_checks.verify.document import check_claim
    >>> from depthlaw.paper_checks.verify.findings import findings
    >>> [told] = findings([check_claim("S2-08", with_mutants=False, quick=True)])
    >>> told.text.partition(": ")[2][:70]
    'v_l = w_l = 1, 3, 9, 27 gives 0.91 against a bound of 0.74. Gains that'
    """
    by_id = {entry["id"]: entry for entry in entries}
    for claim in claims_with_findings():
        assert claim.finding is not None
        ids = (claim.id, *claim.finding.shared_with)
        if not by_id.keys().isdisjoint(ids):
            judged = by_id[claim.id]["parts"] if claim.id in by_id else ()
            names = dict.fromkeys(fill.part for fill in claim.finding.numbers.values() if isinstance(fill, Number))
            parts = {part["name"]: part for part in (_part(claim, name, judged) for name in names)}
            yield FindingText(ids, say(claim.finding, list(parts.values())) or "")


def finding_of(id_: str) -> FindingText:
    """The one that speaks for a claim; the parts that its numbers stand in are judged now. ValueError where none does.

    >>> from depthlaw.paper_checks.verify.findings import finding_of
    >>> finding_of("S1-25").text
    'Su: lambda = 1/alpha is his own choice; DeepNet has beta = 1/(sqrt(2) alpha)'
    """
    [finding] = findings([{"id": id_, "parts": ()}])
    return finding


def _part(claim: Claim, name: str, judged: Sequence[Entry]) -> Entry:
    """The part whose name begins so, as the document has it, or judged now where the document lacks it."""
    (part,) = (part for part in claim.parts if part.name.startswith(name))
    entry = next((entry for entry in judged if entry["name"] == part.name), None)
    return entry or check(replace(claim, parts=(part,)), with_mutants=False, quick=True)["parts"][0]
