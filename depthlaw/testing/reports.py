"""An outcome for a pull request: a page in Markdown, and SARIF 2.1.0, which GitHub shows beside the code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from depthlaw.testing.outcome import Outcome

if TYPE_CHECKING:
    from depthlaw.auditing.faults import Fault

CHANGED = "changed"
"""What a change since the baseline is called where a fault has its kind."""


@dataclass(frozen=True)
class Place:
    """Of a builder: a path as it is from here, and a line."""

    path: str
    line: int

    @classmethod
    def of(cls, build: Callable[..., Any]) -> Place | None:
        try:
            path = inspect.getsourcefile(inspect.unwrap(build))
            line = inspect.getsourcelines(inspect.unwrap(build))[1]
        except (OSError, TypeError):
            return None
        return None if path is None else cls(Path(os.path.relpath(path)).as_posix(), line)


def lines(outcome: Outcome) -> Iterator[str]:
    """The audit's own words: its title, and each fault that counts."""
    yield outcome.title
    for number, fault in enumerate(outcome.faults, start=1):
        yield f"{number}. {_side(outcome, fault)}{fault.what}"
        yield from (f"   {label}: {text}" for label, text in _rows(fault))
        yield "   fix:"
        yield from (f"     {line}" for line in fault.fix.splitlines())
    yield from outcome.remarks


def _side(outcome: Outcome, fault: Fault) -> str:
    return f"{fault.side}: " if fault.side and len(outcome.audit.depths[-1].built.sides) > 1 else ""


def _rows(fault: Fault) -> list[tuple[str, str]]:
    rows = [("where", ", ".join(fault.where)), ("found", fault.found), ("expected", fault.expected), ("why", fault.why)]
    rows.append(("kind", fault.kind))  # by which it may be ignored
    return [(label, text) for label, text in rows if text]


def markdown_of(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for outcome in outcomes:
        parts.append(f"### depthlaw: {_escaped(outcome.title)}")
        for number, fault in enumerate(outcome.faults, start=1):
            parts.append(f"{number}. **{_escaped(_side(outcome, fault) + fault.what)}**")
            parts += [f"   - {label}: {_escaped(text)}" for label, text in _rows(fault)]
            code = "\n".join(f"   {line}" for line in fault.fix.splitlines())
            parts.append(f"\n   ```python\n{code}\n   ```\n")
        parts += [f"- {_escaped(line)}" for line in outcome.remarks]
        if outcome.is_fine:
            parts.append("Nothing is wrong with the initialisation that the audit knows of.")
        parts.append("")
    return "\n".join(parts)


def _escaped(text: str) -> str:
    """As Markdown shows it: names have asterisks and underscores."""
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in text)


def sarif_of(outcomes: Sequence[tuple[Outcome, Place | None]]) -> dict[str, Any]:
    results = [result for outcome, place in outcomes for result in _results(outcome, place)]
    kinds = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "depthlaw",
        "version": version("depthlaw"),
        "rules": [{"id": kind, "shortDescription": {"text": kind.replace("-", " ")}} for kind in kinds],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _results(outcome: Outcome, place: Place | None) -> Iterator[dict[str, Any]]:
    for fault in outcome.faults:
        yield _result(fault.kind, _text(fault), place)
    for fault, reason in outcome.ignored:
        yield _result(fault.kind, _text(fault), place) | {
            "suppressions": [{"kind": "external", "justification": reason}]
        }
    for fault in outcome.accepted:
        yield _result(fault.kind, _text(fault), place) | {"baselineState": "unchanged", "level": "note"}
    for change in outcome.changes:
        yield _result(CHANGED, f"Changed since it was accepted: {change}", place)


def _text(fault: Fault) -> str:
    return f"{fault.what} Found: {fault.found}. Expected: {fault.expected}."


def _result(kind: str, text: str, place: Place | None) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": kind, "level": "error", "message": {"text": text}}
    if place is not None:
        where = {"artifactLocation": {"uri": quote(place.path)}, "region": {"startLine": place.line}}
        result["locations"] = [{"physicalLocation": where}]
    return result
