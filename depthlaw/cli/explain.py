"""``depthlaw explain``: the answer first, on about a screen; ``--full`` has each statement, number and derivation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, argument, option
from depthlaw.cli.shared.output import print_json, progress, wide_console
from depthlaw.cli.verify import as_printed, chosen_ids
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.paper_checks.verify.findings import FindingText

EXAMPLES = (
    "explain S1-34",
    "explain warm-up",
    "explain LI-05 --mutants",
    "explain DN-07 --anew",
    "explain DN-07 --json",
)
Entry = dict[str, Any]
Line = tuple[str, str]
"""A text and its style."""

_TITLES = {"correction": "instead", "grounds": "grounds", "condition": "holds where", "open": "to decide it"}
_COMMAND = "bold cyan"
"""The style of what is to be pasted: such a line is never broken."""
TOPICS = ("warm-up", "residual weight", "learning rate", "Sub-LN", "Muon", "encoder-decoder")
"""Some of which there is something."""
_HEADS = {
    "claims": ("claim", "verdict", "what is printed"),
    "pages": ("page of results", "section"),
    "names": ("scheme or recipe", "what it is"),
}
TOLD = 2
"""Parts that do not hold of which the answer says all: more is a list."""


def run(
    claim: str | None = argument(
        "The claim's id, such as DN-07 (CLAIMS.md lists all), or a topic in a few words, such as warm-up.",
        "ID|TOPIC",
        complete=options.one_claim,
    ),
    full: bool = option("Also show each statement, number and step of the derivation."),
    anew: bool = option("Judge the claim now, by every route that there is, instead of reading the kept answer."),
    mutants: bool = option("Judge it now and also break it on purpose, and see that the check says so."),
    as_json: bool = options.JSON,
) -> int:
    """Explain one claim: its verdict, what is printed, what holds instead, and a counterexample to try.

    Of a topic in place of an id it lists the claims, the sections of the pages of
    results, the schemes and the recipes that speak of it.

    The answer is kept with the repository, whose tests judge every claim and
    hold it against what is kept; --anew judges it now, which takes seconds. The
    exit code is 1 where the verdict is not the expected one.
    """
    if claim is None:
        raise BadInputError(
            "explain wants the id of a claim, such as S2-08: CLAIMS.md lists all ids, and `depthlaw "
            "verify --quick --full` those that are not confirmed"
        )
    if not re.search(r"\d", claim):
        return _on_topic(claim, as_json=as_json)
    from depthlaw.paper_checks.verify.answers import kept

    answer = None if anew or mutants else kept(as_printed(claim))
    if answer is None:
        answer = _judged(claim, with_mutants=mutants)
    if as_json:
        print_json(answer)
    else:
        _show(answer, is_full=full)
    return 0 if answer["summary"]["as_expected"] else 1


def _on_topic(asked: str, *, as_json: bool) -> int:
    from depthlaw.paper_checks.verify.topics import topic

    entries = topic(asked)
    if not any(entries.values()):
        raise BadInputError(
            f"nothing here speaks of {asked!r} (allowed: the id of a claim, such as S2-08, or words, such as "
            f"{', '.join(TOPICS)})"
        )
    if as_json:
        print_json(document(topic=asked, **entries))
        return 0
    page = Page()
    for kind, heads in _HEADS.items():
        if entries[kind]:
            page.show(grid(heads, [tuple(entry.values()) for entry in entries[kind]], heads))
    if entries["claims"]:
        page.say("Of one of these claims:")
        page.say_where(f"  depthlaw explain {entries['claims'][0]['id']}")
    return 0


def _judged(claim: str, *, with_mutants: bool) -> Entry:
    doing = f"checking {as_printed(claim)} ..."
    with progress() as tell:
        tell(doing, 0, 1)  # before the claims are imported, which takes seconds

        from depthlaw.paper_checks.verify.answers import judged

        (id_,) = chosen_ids([claim], None)
        return judged(id_, with_mutants=with_mutants, progress=lambda _, done, total: tell(doing, done, total))


def _show(judged: Entry, *, is_full: bool) -> None:
    from depthlaw.paper_checks.verify.findings import FindingText

    entry, finding = judged["claim"], judged["finding"]
    command = f"  depthlaw explain {entry['id']}"
    _print(answer(entry, finding and FindingText(tuple(finding["claims"]), finding["text"])))
    if is_full:
        _print(details(entry, judged["tables"]))
    else:
        _print([("", ""), ("In brackets: cases. Each statement, number and step of the derivation:", "dim")])
        _print([(f"{command} --full", _COMMAND)])
    if judged["kept"]:
        _print([("Kept with this version, whose tests judge every claim again and compare. To judge it now:", "dim")])
        _print([(f"{command} --anew", _COMMAND)])


def _print(lines: Iterable[Line]) -> None:
    page = Page(wide_console())
    for line, style in lines:
        (page.say_where if style == _COMMAND else page.say)(line, style)


# ---------------------------------------------------------------- the answer


def answer(entry: Entry, finding: FindingText | None) -> Iterator[Line]:
    """The verdict, what was found, what is printed, and each part: the worst first, the counterexample first of it."""
    from depthlaw.paper_checks.claims.claim import Verdict
    from depthlaw.paper_checks.claims.sources import sources
    from depthlaw.paper_checks.report.views import is_scattered

    unexpected = f", expected {entry['expected']}" if entry["verdict"] != entry["expected"] else ""
    headline = f"{entry['id']}  {entry['verdict']}{unexpected}: {entry['statement']}"
    yield headline, f"bold {Verdict(entry['verdict']).colour}"
    if finding is not None:
        others = ", ".join(id_ for id_ in finding.ids if id_ != entry["id"])
        yield f"{finding.text}.{others and f' (With {others}.)'}", ""
    yield "", ""
    is_unread = is_scattered(entry["quote"])
    printed = "Printed, as the PDF's text has it" if is_unread else "Printed"
    yield f"{printed}: {' '.join(entry['quote'].split())}", "italic"
    if is_unread:
        first, *more = entry["parts"]  # of several parts the first is transcribed, and it may say less than the whole
        yield f"Transcribed{' (' + first['name'] + ')' if more else ''}: {first['statement']}", ""
    yield f"In: {sources()[entry['source']].title}; {entry['locator']}", "dim"
    yield "", ""
    yield from _parts(entry)
    if entry["mutants"]:
        killed = sum(mutant["killed"] for mutant in entry["mutants"])
        yield f"Mutants: {len(entry['mutants'])} tried, {killed} killed.", ""


def _parts(entry: Entry) -> Iterator[Line]:
    """The worst first. Of the first few of those that do not hold: all that answers; of the others what was found."""
    from depthlaw.paper_checks.claims.claim import SEVERITY, Verdict

    shown: set[str] = set()
    for place, part in enumerate(sorted(entry["parts"], key=lambda part: SEVERITY.index(Verdict(part["verdict"])))):
        name = "" if part["name"] == "as printed" else f"{part['name']}: "
        yield f"{name}{part['verdict']}; {_shown_by(part)}", Verdict(part["verdict"]).colour
        if part["counterexample"]:
            example, command = part["counterexample"], f"depthlaw explain {entry['id']}"
            yield f"  claimed {example['printed']}; found {example['found']}", "red"
            if place < TOLD:
                yield from _seen(f"{command} --full" if example["command"] == command else example["command"])
        # What holds instead, with its grounds; where that is not known, the condition; what would decide it.
        for key in ("correction" if part["correction"] else "condition", "grounds", "open"):
            if place < TOLD and part[key] and part[key] not in shown:
                shown.add(part[key])
                yield f"  {_TITLES[key]}: {part[key]}", ""


def _shown_by(part: Entry) -> str:
    """Routes with their cases: how it fails or holds as printed, and what holds instead."""
    from depthlaw.paper_checks.claims.claim import Verdict

    texts = []
    for (of, verdict), items in groupby(part["evidence"], key=lambda item: (item["of"], item["verdict"])):
        routes: dict[str, int] = {}
        for item in items:
            routes[item["route"]] = routes.get(item["route"], 0) + item["num_effective"]
        by = ", ".join(f"{route} ({number})" for route, number in routes.items())
        texts.append(f"{'' if of == 'printed' else 'instead '}{Verdict(verdict).outcome} by {by}")
    return "; ".join(texts)


def _seen(command: str) -> Iterator[Line]:
    from depthlaw.paper_checks.verify.document import seen_by

    yield f"  {seen_by(command)}:", "bold"
    yield f"    {command}", _COMMAND


# ---------------------------------------------------------------- the details


def details(entry: Entry, rows: Sequence[Entry]) -> Iterator[Line]:
    """The source as it was read, and of every part the statement, all evidence and each step."""
    from depthlaw.paper_checks.claims.claim import Verdict
    from depthlaw.paper_checks.claims.sources import sources

    source = sources()[entry["source"]]
    yield "", ""
    yield "In full", "bold"
    yield f"{source.authors}: {source.title}, {source.version}; {entry['locator']}", ""
    yield source.pin[0].upper() + source.pin[1:], "dim"
    if entry["uses"]:
        yield f"Uses: {', '.join(entry['uses'])}", ""
    for part in entry["parts"]:
        yield "", ""
        yield f"{part['name']}: {part['verdict']}", Verdict(part["verdict"]).colour
        yield f"  {part['statement']}", ""
        for key, title in _TITLES.items():
            if part[key]:
                yield f"  {title}: {part[key]}", ""
        if part["counterexample"]:
            yield from _example(part["counterexample"])
        for item in part["evidence"]:
            of = "as printed" if item["of"] == "printed" else "of what holds instead"
            cases = "1 case" if item["num_effective"] == 1 else f"{item['num_effective']} cases"
            yield f"  {item['route']}, {of}: {item['verdict']} ({cases}). {item['detail']}", ""
            yield from ((f"    {name} = {_said(value)}", "dim") for name, value in item["numbers"].items())
            yield from ((f"    {i}. {step}", "dim") for i, step in enumerate(item["steps"], start=1))
    for mutant in entry["mutants"] or ():
        yield f"mutant {mutant['part']}, {mutant['name']}: {'killed' if mutant['killed'] else 'SURVIVED'}", "dim"
    for row in rows:
        yield f"table {row['table']}, {row['column']}: printed {row['printed']}, derived {row['derived']}", "dim"


def _said(value: Any) -> str:
    """Numbers for people: no braces, brackets or quotes of Python."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_said(item)}" for name, item in value.items())
    return ", ".join(map(_said, value)) if isinstance(value, list | tuple) else "none" if value is None else str(value)


def _example(example: Entry) -> Iterator[Line]:
    yield f"  counterexample: claimed {example['printed']}; found {example['found']}", "red"
    for name, value in example.items():
        if name == "rows":
            yield from ((f"    {', '.join(f'{k} {v}' for k, v in row.items())}", "") for row in value)
        elif name not in ("printed", "found", "command"):
            yield f"    {name} = {_said(value)}", ""
    yield from _seen(example["command"])
