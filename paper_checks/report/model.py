"""What the templates see: the document of ``depthlaw verify``, which may come from outside and is read with care.

Ids and keys of sources become names of files and anchors, so they are letters and digits here, whatever a file says.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from depthlaw.paper_checks.claims.claim import Kind, Route, Verdict
from depthlaw.system.files import SCHEMA_VERSION

ClaimId = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]{0,7}-[0-9]{1,4}$")]
SourceKey = Annotated[str, Field(pattern=r"^[a-z]{1,40}$")]
Count = Annotated[int, Field(ge=0, strict=True)]
_SHOWN = 120


class BadDocumentError(ValueError):
    """What was read is no document of ``depthlaw verify``; its text says why, in one line."""


class _Read(BaseModel):
    """More keys than are known are let pass: a document may say more than the site shows."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Evidence(_Read):
    route: Route
    num_effective: Count
    verdict: Verdict
    of: Literal["printed", "amended"]
    detail: str
    numbers: dict[str, JsonValue]
    steps: tuple[str, ...]


class Counterexample(_Read):
    """printed, found and command; whatever else it holds is data to see the failure by."""

    model_config = ConfigDict(extra="allow")

    printed: str
    found: str
    command: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its table, where it has one: rows with the same keys."""
        rows = (self.model_extra or {}).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return []
        return rows if len(set(map(tuple, rows))) == 1 else []

    @property
    def data(self) -> dict[str, Any]:
        return {name: value for name, value in (self.model_extra or {}).items() if name != "rows" or not self.rows}


class Part(_Read):
    name: str
    statement: str
    verdict: Verdict
    expected: Verdict
    condition: str | None
    correction: str | None
    grounds: str
    open: str | None
    counterexample: Counterexample | None
    instead_holds: bool
    evidence: tuple[Evidence, ...]

    @property
    def routes(self) -> list[str]:
        return list(dict.fromkeys(item.route.value for item in self.evidence))


class Mutant(_Read):
    part: str
    name: str
    killed: bool
    red_checks: tuple[Count, ...]


class Claim(_Read):
    id: ClaimId
    source: SourceKey
    locator: str
    quote: str
    statement: str
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    verdict: Verdict
    expected: Verdict
    kind: Kind = Kind.RESULT
    uses: tuple[ClaimId, ...]
    mutants: tuple[Mutant, ...] | None

    @property
    def routes(self) -> list[str]:
        """By which its parts were checked, in the order of ``Route``."""
        routes = {item.route for part in self.parts for item in part.evidence}
        return [route.value for route in Route if route in routes]

    @property
    def num_evidence(self) -> int:
        return sum(len(part.evidence) for part in self.parts)


def counts(claims: Iterable[Claim]) -> dict[Verdict, int]:
    """How many of them have each verdict, the best first."""
    verdicts = [claim.verdict for claim in claims]
    return {verdict: verdicts.count(verdict) for verdict in reversed(Verdict)}


class TableRow(_Read):
    """A derived cell, and what is printed where a claim prints it."""

    table: str
    row: dict[str, str]
    column: str
    derived: str | None
    claim: ClaimId | None
    printed: str | None
    equal: bool | None


class TwoSources(_Read):
    """One thing that two sources print."""

    topic: str
    claims: tuple[ClaimId, ...]
    beside: str
    agree: bool
    expected: bool
    text: str


class Source(_Read):
    key: SourceKey
    title: str
    authors: str
    url: Annotated[str, Field(pattern=r"^https://[^\s\"'<>]+$")]
    version: str
    file: str | None
    sha256: str | None


class Tried(_Read):
    tried: Count
    killed: Count
    survived: tuple[str, ...]


class Cells(_Read):
    compared: Count
    equal: Count
    faults: tuple[str, ...]


class Tables(_Read):
    generated_file: str


class Summary(_Read):
    coverage: str
    unexpected: tuple[ClaimId, ...]
    mutants: Tried | None
    cells: Cells
    tables: Tables
    as_expected: bool


class Document(_Read):
    """The whole of it. Every claim has a source that is there too, and every id stands once."""

    schema_version: Literal[1]
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]
    tables: tuple[TableRow, ...]
    sources_beside: tuple[TwoSources, ...]
    sources: dict[SourceKey, Source]
    summary: Summary

    @model_validator(mode="after")
    def _is_whole(self) -> Document:
        (id_, number), *_ = Counter(claim.id for claim in self.claims).most_common(1)
        if number > 1:
            raise ValueError(f"{id_} stands twice")
        for claim in self.claims:
            if claim.source not in self.sources:
                raise ValueError(f"{claim.id} is of a source that the document does not describe: {claim.source}")
        return self

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many claims have each verdict, the best first."""
        return counts(self.claims)

    @property
    def by_kind(self) -> dict[Kind, list[Claim]]:
        """The claims of each kind that has any: results, which people use, then steps to them, then remarks."""
        return {kind: several for kind in Kind if (several := [claim for claim in self.claims if claim.kind is kind])}

    @property
    def by_source(self) -> dict[str, list[Claim]]:
        """The claims of each source that has any, in the order of the claims."""
        keys = dict.fromkeys(claim.source for claim in self.claims)
        return {key: [claim for claim in self.claims if claim.source == key] for key in keys}


def parse(content: bytes | Mapping[str, Any]) -> Document:
    """The document in a file's bytes, or in what ``verify`` returned. BadDocumentError where it is none."""
    try:
        if isinstance(content, bytes):
            return Document.model_validate_json(content)
        return Document.model_validate(content)
    except ValidationError as error:
        raise BadDocumentError(_why(error)) from error


def _why(error: ValidationError) -> str:
    """One line: the most telling of what pydantic found."""
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["type"] == "json_invalid":
            return "it is not JSON"
        if fault["loc"] == ("schema_version",) and fault["type"] != "missing":
            version = textwrap.shorten(repr(fault["input"]), _SHOWN)
            return f"its schema_version is {version}, and this version reads {SCHEMA_VERSION}"
    place, reason = ".".join(map(str, faults[0]["loc"])), faults[0]["msg"]
    return f"it is no document of `depthlaw verify`: {f'{place}: ' if place else ''}{reason}"
