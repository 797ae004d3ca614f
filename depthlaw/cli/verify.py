"""``depthlaw verify``: for people on the terminal, or as one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, argument, option
from depthlaw.cli.shared.output import print_json, progress, say, wide_console
from depthlaw.system.files import as_text, write_atomically
from depthlaw.system.page import escape, grid
from depthlaw.system.places import RESULTS, ROOT
from depthlaw.system.stopping import telling

EXAMPLES = (
    "verify LI-05 S1-34",
    "verify LI-05 --mutants",
    "verify --source deepnet --quick",
    "verify --quick --full",
    "verify --out out/verify.json",
)
Entry = dict[str, Any]
CLAIMS_FILE, README_FILE = RESULTS / "CLAIMS.md", ROOT / "README.md"
_PLAIN: Entry = {"box": None, "padding": (0, 1)}
_MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[magenta]?[/]"}


def run(
    ids: list[str] | None = argument(
        "The claims to check, such as S1-34 or DN-07; all if left out.", "[ID]...", complete=options.one_claim
    ),
    source: str | None = option("Check the claims of one source only.", metavar="KEY", complete=options.one_source),
    quick: bool = option("Use the generated tables, and measure nothing: of all claims about a minute."),
    mutants: bool = option("Also break each claim on purpose, and see that the check says so."),
    out: Path | None = option("Also write the JSON document to this file."),
    full: bool = option("Also print each reason and each cell of the papers' tables beside the derived one."),
    write_claims: bool = option("Rewrite CLAIMS.md, what `explain` answers, and the list of findings in README.md."),
    as_json: bool = options.JSON,
) -> int:
    """Verify the papers: derive what they print anew, and say of each claim whether it holds.

    A claim is confirmed, refuted, a misprint, true under a condition that the
    paper does not state, or not decided. Each is decided by exact derivation,
    counterexample or measurement, mostly by several. The exit code is 1 where a
    verdict is not the expected one. `depthlaw explain ID` shows the evidence.
    """
    from depthlaw.paper_checks.pages.claims import claims_markdown, with_findings
    from depthlaw.paper_checks.papers.registry import claims
    from depthlaw.paper_checks.verify import answers
    from depthlaw.paper_checks.verify.document import exit_code, verify

    chosen = chosen_ids(ids or [], source)
    is_whole = len(chosen) == len(claims())
    if write_claims and not is_whole:
        raise BadInputError("--write-claims needs all claims: give neither ids nor --source")
    is_full = is_whole and not quick
    if is_full and not sys.stderr.isatty():
        say(f"{len(chosen)} claims, each broken on purpose too, and every table: minutes")
    with telling("nothing was written"), progress() as tell:
        is_short = quick and not write_claims
        document = verify(chosen, derive=is_full, with_mutants=mutants or is_full, quick=is_short, progress=tell)
        text = as_text(document)
    if out is not None:
        write_atomically(out, text)
    if write_claims:
        write_atomically(CLAIMS_FILE, claims_markdown(document))
        write_atomically(answers.FILE, answers.file_text(document))
        write_atomically(README_FILE, with_findings(README_FILE.read_text(encoding="utf-8"), document))
    if as_json:
        print_json(document)
    else:
        show(document, out, is_whole=is_whole, is_full=full or not is_whole)
    if write_claims:
        say(f"wrote {CLAIMS_FILE.name}, {answers.FILE.name} and the findings in {README_FILE.name}")
    return exit_code(document)


def chosen_ids(ids: Sequence[str], source: str | None) -> list[str]:
    """The ids to check, in the order of the claims; a refusal with the nearest names where one is unknown."""
    from depthlaw.paper_checks.claims.sources import sources
    from depthlaw.paper_checks.papers.registry import claims

    known = claims()
    ids = [as_printed(id_) for id_ in ids]
    for id_ in ids:
        if id_ not in known:
            of_source, dash, _ = id_.upper().partition("-")
            meant = [name for name in known if not dash or name.startswith(f"{of_source}-")]
            raise BadInputError(
                f"unknown claim {id_!r}{_near(id_.upper(), meant)} "
                f"(CLAIMS.md lists them; allowed: {ranges(list(known))})"
            )
    if source is not None and source not in sources():
        near = _near(source, list(sources()))
        raise BadInputError(f"unknown source {source!r}{near} (allowed: {', '.join(sources())})")
    chosen = [
        id_ for id_, claim in known.items() if (not ids or id_ in ids) and (source is None or claim.source == source)
    ]
    if not chosen:
        raise BadInputError(f"none of {', '.join(ids) or 'the claims'} is of source {source!r}")
    return chosen


def as_printed(id_: str) -> str:
    """s1-7 is S1-07."""
    source, dash, number = id_.upper().partition("-")
    return f"{source}-{number.zfill(2)}" if dash and number.isdigit() else id_


def ranges(ids: Sequence[str]) -> str:
    """S1-01 to S1-50, S2-01 to S2-24, ...: the ids of each source, without a list of them all."""
    groups = [list(group) for _, group in groupby(ids, lambda id_: id_.partition("-")[0])]
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 1 else group[0] for group in groups)


def _near(name: str, allowed: list[str]) -> str:
    close = get_close_matches(name, allowed, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


# ---------------------------------------------------------------- for people


def show(document: Entry, target: Path | None, *, is_whole: bool, is_full: bool) -> None:
    """A screen: the counts first; of all claims the findings that matter most; last, whether all is as expected.

    is_full: also the claims that are not confirmed, with the reason, and the printed cells beside the derived ones.
    """
    from depthlaw.paper_checks.pages.claims import results_line
    from depthlaw.paper_checks.verify.document import why_unexpected

    console, summary, claims = wide_console(), document["summary"], document["claims"]
    counts = {verdict: number for verdict, number in summary["verdicts"].items() if number}
    console.print(f"{summary['coverage']}: {', '.join(_in_colour(*count) for count in counts.items())}")
    if is_whole:
        console.print(results_line(document))
        console.print(_findings(document))
    if is_full:
        if any(entry["verdict"] != "CONFIRMED" for entry in claims):
            console.print(_others(claims))
        if any(row["claim"] for row in document["tables"]):
            console.print(_cells(document["tables"]))
    for line in _checked(summary, is_whole=is_whole):
        console.print(line)
    first = min(claims, key=lambda entry: entry["verdict"] == "CONFIRMED")
    where = f"`depthlaw explain {first['id']}` shows its evidence."
    if is_whole:
        where = (
            "CLAIMS.md has every claim; `depthlaw explain S2-08` one with its evidence, `make report` all as a site; "
            "`depthlaw verify --full --quick` each reason and each cell."
        )
    console.print(where if target is None else f"{where} The document is in {target}.")
    for entry in claims:
        if entry["id"] in summary["unexpected"]:
            for line in why_unexpected(entry):
                console.print(f"[red]not as expected[/] {entry['id']}, {escape(line)}")
    counted = f"{summary['coverage']}, {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}."
    console.print(
        f"All as expected: {counted}" if summary["as_expected"] else f"[red]Not as expected[/]: see above; {counted}"
    )


def _in_colour(verdict: str, number: int | None = None) -> str:
    from depthlaw.paper_checks.claims.claim import Verdict

    return f"[{Verdict(verdict).colour}]{verdict if number is None else f'{number} {verdict}'}[/]"


def _findings(document: Entry) -> Any:
    """The headlines of the first few, with the verdicts of this run; below them how many more there are."""
    from depthlaw.paper_checks.claims.claim import Verdict
    from depthlaw.paper_checks.pages.claims import finding_rows
    from depthlaw.paper_checks.verify.findings import FIRST

    every = list(finding_rows(document, in_short=True))
    rows = (
        (f"{ids}\n[{Verdict(kinds.partition(',')[0]).colour}]{kinds}[/]", escape(text))
        for ids, kinds, text in every[:FIRST]
    )
    table = grid(
        *(("claims", "finding"), rows, ("claims", "finding")),
        "Found against the papers, the most consequential first",
        caption=f"and {len(every) - FIRST} more in CLAIMS.md",
        caption_justify="left",
        show_header=False,
        **_PLAIN,
    )
    table.columns[0].width = 16
    return table


def _others(entries: Sequence[Entry]) -> Any:
    from depthlaw.paper_checks.verify.document import reason

    heads = ("claim", "verdict", "why")
    rows = (
        (entry["id"], _in_colour(entry["verdict"]), escape(reason(entry)))
        for entry in entries
        if entry["verdict"] != "CONFIRMED"
    )
    return grid(heads, rows, heads, "Not confirmed", **_PLAIN)


def _checked(summary: Entry, *, is_whole: bool) -> Iterator[str]:
    """What stands around the verdicts: mutants, cells, the generated file."""
    mutants, cells, tables = summary["mutants"], summary["cells"], summary["tables"]
    if mutants is not None:
        yield f"Mutants: {mutants['tried']} tried, {mutants['killed']} killed."
        yield from (f"[red]survived[/] {escape(name)}" for name in mutants["survived"])
    if cells["compared"]:
        yield f"Cells: {cells['compared']} printed ones beside derived ones, {cells['equal']} equal."
    yield from (f"[red]differs, though its claim is confirmed[/] {escape(name)}" for name in cells["faults"])
    if is_whole:
        yield f"Tables: {tables['source']}; the generated file is {tables['generated_file']}."
        if tables["generated_file"] != "in step":
            yield "[yellow]`make tables` rewrites it.[/]"


def _cells(rows: Sequence[Entry]) -> Any:
    """Table by table."""
    from depthlaw.paper_checks.pages.claims import merged

    heads = ("table", "row", "column", "printed", "derived", "", "claim")

    def lines() -> Iterator[list[str] | None]:
        last = ""
        for row in merged(rows):
            name = row["table"]
            if name != last:
                yield None
            texts = (escape(row[column]) for column in ("where", "column", "printed", "derived"))
            yield [name if name != last else "", *texts, _MARKS[row["equal"]], row["claim"]]
            last = name

    return grid(heads, lines(), heads, "Printed beside derived")
