"""The engine behind ``depthlaw verify``: claims in parallel, tables beside what is printed, one JSON document.

The document says nothing of time or machine, so two runs of one checkout write the same bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from itertools import count
from string import Formatter
from typing import Any

from sympy import Expr

from depthlaw.paper_checks.claims.claim import (
    Claim,
    Fill,
    Kind,
    Number,
    PartResult,
    Sentence,
    Verdict,
    judge,
    try_mutants,
)
from depthlaw.paper_checks.claims.sources import sources
from depthlaw.paper_checks.papers.registry import claims, modules, results_of
from depthlaw.paper_checks.routes.tables.derived import TABLES, side_by_side
from depthlaw.paper_checks.verify import tables_file
from depthlaw.paper_checks.verify.concord import agreements
from depthlaw.system.files import document
from depthlaw.system.processes import Workers, collect_rarely

Progress = Callable[[str, int, int], None]
"""What is being done, how much is done, of how much."""
Entry = dict[str, Any]
FRESH, STORED = "derived now", "stored, of these sources"
SMALL = "derived now, without cross (none stored of these sources)"
_USED = ("torch", "scipy.stats", "hypothesis", "depthlaw.network.kernel")
"""What takes seconds to import, and checks import only as they run."""
IN_STEP, STALE, DIFFERENT = "in step", "stale", "different"


# ---------------------------------------------------------------- one claim


def check_claim(id_: str, with_mutants: bool, quick: bool = False) -> Entry:
    """One claim, judged; addressed by its id, so that another process can do it."""
    return check(claims()[id_], with_mutants, quick)


def check(claim: Claim, with_mutants: bool, quick: bool = False, advance: Callable[[], None] | None = None) -> Entry:
    """The claim's entry in the document; ``mutants`` is null where they were not tried. advance: as in ``judge``.

    >>> from depthlaw.paper_checks.papers.registry import claims
    >>> from depthlaw.paper_checks.verify.document import check
    >>> entry = check(claims()["LI-05"], with_mutants=False)
    >>> entry["verdict"], entry["expected"], entry["evidence"][0]["route"]
    ('CONFIRMED', 'CONFIRMED', 'proof')
    """
    verdict, results = judge(claim, quick=quick, advance=advance)
    parts = [_part(result) for result in results]
    sentences = ("condition", "correction", "open")
    for part in parts:
        part |= {key: say(part[key], parts) for key in sentences}
    mutants = (mutant for part in claim.parts for mutant in try_mutants(part))
    return {
        "id": claim.id,
        "kind": claim.kind.value,
        "source": claim.source,
        "locator": claim.locator,
        "quote": claim.quote,
        "statement": claim.summary,
        "parts": parts,
        "verdict": verdict.value,
        "expected": claim.expected.value,
        **{key: "; ".join(dict.fromkeys(part[key] for part in parts if part[key])) or None for key in sentences},
        "counterexample": next((part["counterexample"] for part in parts if part["counterexample"]), None),
        "uses": list(claim.uses),
        "results": results_of(claim.id),
        "evidence": [{"part": part["name"], **item} for part in parts for item in part["evidence"]],
        "mutants": [
            {
                "part": mutant.part,
                "name": mutant.name,
                "killed": mutant.is_killed,
                "red_checks": [i + 1 for i in mutant.red],
            }
            for mutant in mutants
        ]
        if with_mutants
        else None,
    }


def _part(result: PartResult) -> Entry:
    part, verdict = result.part, result.verdict
    amendment = {Verdict.MISPRINT: part.misprint, Verdict.REFUTED: part.instead}.get(verdict)
    hedge = part.hedge if verdict is Verdict.CONDITIONAL else None
    used = amendment or hedge
    return {
        "name": part.name,
        "statement": part.statement.text,
        "verdict": verdict.value,
        "expected": part.expected.value,
        "condition": hedge.text if hedge else part.condition if verdict is Verdict.REFUTED else None,
        "correction": amendment.text if amendment and result.instead_holds else None,
        "grounds": used.grounds if used else "",
        "open": part.open if verdict is Verdict.UNDECIDED else None,
        "counterexample": result.counterexample,
        "instead_holds": result.instead_holds,
        "evidence": [
            {
                "route": item.route.value,
                "num_effective": item.num_effective,
                "verdict": item.verdict.value,
                "of": of,
                "detail": item.detail,
                "numbers": dict(item.numbers),
                "steps": list(item.steps),
            }
            for of, items in (("printed", result.evidence), ("amended", result.amended))
            for item in items
        ],
    }


# ---------------------------------------------------------------- sentences with numbers of the evidence


def say(sentence: str | Sentence | None, parts: Sequence[Entry]) -> str | None:
    """The sentence as people read it, its numbers looked up in these parts of the claim's entry.

    A number that the evidence lacks, as where a check gave up, is "(not found)". ValueError where a number's part is
    not among them, or is more than one.

    >>> from depthlaw.paper_checks.claims.claim import number, sentence
    >>> from depthlaw.paper_checks.verify.document import say
    >>> part = {"name": "relu", "counterexample": {"update": 0.912}, "evidence": []}
    >>> say(sentence("it is {update:.2f}", update=number("relu", "update")), [part])
    'it is 0.91'
    """
    if not isinstance(sentence, Sentence):
        return sentence
    return _Filled().format(sentence.text, **{name: _value(fill, parts) for name, fill in sentence.numbers.items()})


class _Filled(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return "(not found)" if value is None else format(value, format_spec)
        except (TypeError, ValueError):
            return "(not found)"


def _value(fill: Fill, parts: Sequence[Entry]) -> Any:
    """A number of the evidence; of an interval, "0.2 to 0.3", its middle; of a list its members beside one another."""
    if callable(fill):
        return fill()
    if not isinstance(fill, Number):
        return float(fill) if isinstance(fill, Expr) else fill
    (part,) = (part for part in parts if part["name"].startswith(fill.part))
    evidence = sorted(part["evidence"], key=lambda item: item["of"] != "printed")
    for numbers in (part["counterexample"] or {}, *(item["numbers"] for item in evidence)):
        value: Any = numbers
        for key in fill.keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        if isinstance(value, str):
            try:
                ends = [float(end) for end in value.split(" to ")]
            except ValueError:
                return value
            return sum(ends) / len(ends)
        if value is not None:
            return value
    return None


# ---------------------------------------------------------------- all of them


def check_all(
    ids: Sequence[str], *, with_mutants: bool, quick: bool = False, progress: Progress | None = None
) -> list[Entry]:
    """The claims of those ids, in that order; several at once where there are several processors, else part by part."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("checking claims", done, total)

    # Before its first claim a process imports them all, which costs what a dozen of quick checks do.
    workers = min(os.cpu_count() or 1, len(ids) // (12 if quick else 1))
    if workers <= 1:
        num_parts, done = sum(len(claims()[id_].parts) for id_ in ids), count(1)
        return [check(claims()[id_], with_mutants, quick, lambda: tell(next(done), num_parts)) for id_ in ids]
    entries: dict[str, Entry] = {}
    with Workers(workers, preload=(*_USED, *modules())) as pool:
        pending = [pool.submit(_check_several, several, with_mutants, quick) for several in _shares(ids)]
        for future in as_completed(pending):
            entries |= {entry["id"]: entry for entry in future.result()}
            tell(len(entries), len(ids))
    return [entries[id_] for id_ in ids]


def _check_several(ids: Sequence[str], with_mutants: bool, quick: bool) -> list[Entry]:
    collect_rarely()
    return [check_claim(id_, with_mutants, quick) for id_ in ids]


def _shares(ids: Sequence[str], size: int = 4) -> list[Sequence[str]]:
    """Neighbours together, from either end in turn: claims of one source lean on the same derivations, which a process
    keeps, so two workers that come from two ends do less of them twice."""
    shares = [ids[start : start + size] for start in range(0, len(ids), size)]
    order = sorted(range(len(shares)), key=lambda place: min(place, len(shares) - 1 - place))
    return [shares[place] for place in order]


def small_tables() -> tables_file.Tables:
    """The tables that sources print, derived here and now."""
    from depthlaw.theory.tables import SMALL_TABLES

    return [tables_file.plain(make()) for name, make in SMALL_TABLES.items() if name in TABLES]


def get_tables(*, derive: bool, progress: Progress | None = None) -> tuple[tables_file.Tables, str, str]:
    """(tables, how they were got, how the committed file stands to them)."""
    stored = tables_file.stored()
    if not derive:
        return (small_tables(), SMALL, STALE) if stored is None else (stored, STORED, IN_STEP)
    tables = tables_file.derive(None if progress is None else lambda *done: progress("deriving the tables", *done))
    if stored is None:
        return tables, FRESH, STALE
    is_same = tables_file.FILE.read_text(encoding="utf-8") == tables_file.file_text(tables)
    return tables, FRESH, IN_STEP if is_same else DIFFERENT


def verify(
    ids: Sequence[str], *, derive: bool, with_mutants: bool, quick: bool = False, progress: Progress | None = None
) -> Entry:
    """The whole document for the claims of those ids: what ``depthlaw verify --json`` prints.

    derive: the tables too, a minute or so; else the committed ones. with_mutants: each statement broken on purpose too.
    quick: as in ``claim.judge``. progress: told what is being done, how much, of how much.

    >>> from depthlaw.paper_checks.verify.document import exit_code, verify
    >>> found = verify(["LI-05"], derive=False, with_mutants=True)
    >>> found["summary"]["verdicts"]["CONFIRMED"], found["summary"]["mutants"]["survived"], exit_code(found)
    (1, [], 0)
    """
    entries = check_all(ids, with_mutants=with_mutants, quick=quick, progress=progress)
    tables, got, file = get_tables(derive=derive, progress=progress)
    rows = side_by_side(tables, [claims()[id_] for id_ in ids])
    if len(ids) < len(claims()):
        rows = [row for row in rows if row["claim"] is not None]
    beside = [topic for topic in agreements() if set(topic["claims"]) & set(ids)]
    return assemble(entries, rows, got=got, file=file, beside=beside)


def assemble(
    entries: Sequence[Entry], rows: Sequence[Entry], *, got: str, file: str, beside: Sequence[Entry] = ()
) -> Entry:
    """The document, and in its summary whether everything is as expected."""
    by_id = {entry["id"]: entry for entry in entries}
    unexpected = [entry["id"] for entry in entries if any(why_unexpected(entry))]
    mutants = [(entry["id"], mutant) for entry in entries for mutant in entry["mutants"] or ()]
    survived = [f"{id_}, {mutant['part']}: {mutant['name']}" for id_, mutant in mutants if not mutant["killed"]]
    compared = [row for row in rows if row["claim"] is not None]
    differing = [row for row in compared if row["equal"] is not True]
    # A cell may differ where its claim says so; where its claim is confirmed, one of the two is wrong.
    faults = [cell_name(row) for row in differing if by_id[row["claim"]]["verdict"] == Verdict.CONFIRMED.value]
    strange = [topic["topic"] for topic in beside if topic["agree"] is not topic["expected"]]
    summary = {
        "coverage": "1 claim" if len(entries) == 1 else f"{len(entries)} claims",
        "num_claims": len(entries),
        "num_parts": sum(len(entry["parts"]) for entry in entries),
        "num_evidence": sum(len(entry["evidence"]) for entry in entries),
        "verdicts": _counts(entries),
        "results": _counts(entry for entry in entries if entry["kind"] == Kind.RESULT.value),
        "sources": {key: sources()[key].version for key in dict.fromkeys(entry["source"] for entry in entries)},
        "unexpected": unexpected,
        "mutants": {"tried": len(mutants), "killed": len(mutants) - len(survived), "survived": survived}
        if any(entry["mutants"] is not None for entry in entries)
        else None,
        "cells": {
            "compared": len(compared),
            "equal": len(compared) - len(differing),
            "differing": [cell_name(row) for row in differing],
            "faults": faults,
        },
        "tables": {"source": got, "generated_file": file},
        "sources_beside": {
            "compared": len(beside),
            "differing": [topic["topic"] for topic in beside if not topic["agree"]],
        },
        "as_expected": not (unexpected or survived or faults or strange or (got == FRESH and file != IN_STEP)),
    }
    pinned = {key: sources()[key].model_dump() for key in summary["sources"]}
    parts = {"claims": list(entries), "tables": list(rows), "sources_beside": list(beside), "sources": pinned}
    return document(**parts, summary=summary)


def _counts(entries: Iterable[Entry]) -> dict[str, int]:
    counts = Counter(entry["verdict"] for entry in entries)
    return {verdict.value: counts[verdict.value] for verdict in reversed(Verdict)}


def cell_name(row: Mapping[str, Any]) -> str:
    """table, row, column and claim of a compared cell."""
    return f"{row['table']}/{'/'.join(row['row'].values())}/{row['column']} ({row['claim']})"


# ---------------------------------------------------------------- what it says


def exit_code(verified: Entry) -> int:
    return 0 if verified["summary"]["as_expected"] else 1


def why_unexpected(entry: Mapping[str, Any]) -> Iterator[str]:
    """What of a claim is not as expected, in words: verdicts are pinned in either direction, and by part."""
    for part in entry["parts"]:
        if part["verdict"] != part["expected"]:
            yield f"{part['name']}: {part['verdict']}, expected {part['expected']}"
        if not part["instead_holds"]:
            yield f"{part['name']}: what should hold instead does not"
    if entry["verdict"] != entry["expected"]:
        yield f"the claim: {entry['verdict']}, expected {entry['expected']}"


def reason(entry: Mapping[str, Any]) -> str:
    """One line on a claim that is not CONFIRMED: what fails, and what holds."""
    return "; ".join(reasons(entry))


def reasons(entry: Mapping[str, Any]) -> list[str]:
    """The same by part, of those parts that are as bad as the claim."""
    texts = []
    for part in entry["parts"]:
        if part["verdict"] != entry["verdict"]:
            continue
        example = part["counterexample"]
        if example is not None:
            text = f"found {example['found']}; claimed {example['printed']}"
        else:
            against = (item["detail"] for item in part["evidence"] if item["verdict"] != Verdict.CONFIRMED.value)
            awaited = f"to decide it: {part['open']}" if part["open"] else None
            text = part["correction"] or part["condition"] or awaited or next(against, "")
        texts.append(f"{part['name']}: {text}" if len(entry["parts"]) > 1 else text)
    return texts


def seen_by(command: str) -> str:
    """What a command beside a counterexample does: it shows the example, or it only has the claim judged anew."""
    return "judge it anew" if command.startswith("depthlaw explain ") else "see it"
