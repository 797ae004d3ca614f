"""``depthlaw verify``: for people on the terminal, or as one JSON document."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from paper_checks.cli.options import BadInputError, Json, flag, one_claim, one_source, option, written_file
from paper_checks.cli.output import print_json, progress, wide_console
from paper_checks.system.files import as_text, write_atomically
from paper_checks.system.places import RESULTS, ROOT
from paper_checks.system.stopping import telling

EXAMPLES = (
    "verify LI-05 S1-34",
    "verify LI-05 --mutants",
    "verify --source deepnet --quick",
    "verify --quick --full",
    "verify --out out/verify.json",
)
Found = dict[str, Any]
CLAIMS_FILE, README_FILE = RESULTS / "CLAIMS.md", ROOT / "README.md"
_MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[magenta]?[/]"}


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Claims to check; all by default.", metavar="[ID]...", autocompletion=one_claim),
    ] = None,
    source: Annotated[str | None, option("The claims of one source only.", "KEY", complete=one_source)] = None,
    quick: Annotated[bool, flag("--quick", "Use the generated tables; measure nothing.")] = False,
    mutants: Annotated[bool, flag("--mutants", "Also break each claim on purpose and see red.")] = False,
    out: Annotated[Path | None, option("Write the JSON document to this file too.", "FILE", read=written_file)] = None,
    full: Annotated[bool, flag("--full", "Also print each reason and each compared cell.")] = False,
    write_claims: Annotated[bool, flag("--write-claims", "Rewrite CLAIMS.md and README's list.")] = False,
    as_json: Json = False,
) -> int:
    """Derive everything anew and hold it against what the sources print."""
    from paper_checks.pages.claims import claims_markdown, with_findings
    from paper_checks.papers.registry import claims
    from paper_checks.verify.document import exit_code, verify

    chosen = chosen_ids(ids or [], source)
    is_whole = len(chosen) == len(claims())
    if write_claims and not is_whole:
        raise BadInputError("--write-claims needs all claims: give neither ids nor --source")
    is_full = is_whole and not quick
    if is_full and not sys.stderr.isatty():
        print(f"depthlaw: {len(chosen)} claims, each broken on purpose too, and every table: minutes", file=sys.stderr)
    with telling("nothing was written"), progress() as tell:
        is_short = quick and not write_claims
        found = verify(chosen, derive=is_full, with_mutants=mutants or is_full, quick=is_short, progress=tell)
        text = as_text(found)
    if out is not None:
        _write(out, text, "--out")
    if write_claims:
        _write(CLAIMS_FILE, claims_markdown(found), "--write-claims")
        _write(README_FILE, with_findings(README_FILE.read_text(encoding="utf-8"), found), "--write-claims")
    if as_json:
        print_json(found)
    else:
        show(found, out, is_whole=is_whole, is_full=full or not is_whole)
    if write_claims:
        print(f"depthlaw: wrote {CLAIMS_FILE.name} and the findings in {README_FILE.name}", file=sys.stderr)
    return exit_code(found)


def chosen_ids(ids: Sequence[str], source: str | None) -> list[str]:
    """The ids to check, in the order of the claims; a refusal with the nearest names where one is unknown."""
    from paper_checks.claims.sources import sources
    from paper_checks.papers.registry import claims

    known = claims()
    ids = [as_printed(id_) for id_ in ids]
    for id_ in ids:
        if id_ not in known:
            near = _near(id_, _of_source(id_, list(known)))
            raise BadInputError(f"unknown claim {id_!r}{near} (CLAIMS.md lists them; allowed: {ranges(list(known))})")
    if source is not None and source not in sources():
        raise BadInputError(
            f"unknown source {source!r}{_near(source, list(sources()))} (allowed: {', '.join(sources())})"
        )
    found = [
        id_ for id_, claim in known.items() if (not ids or id_ in ids) and (source is None or claim.source == source)
    ]
    if not found:
        raise BadInputError(f"none of {', '.join(ids) or 'the claims'} is of source {source!r}")
    return found


def as_printed(id_: str) -> str:
    """s1-7 is S1-07."""
    source, dash, number = id_.upper().partition("-")
    return f"{source}-{number.zfill(2)}" if dash and number.isdigit() else id_


def _of_source(id_: str, known: list[str]) -> list[str]:
    """Those that can be meant: of the source that it names, where it names one as an id does."""
    source, dash, _ = id_.upper().partition("-")
    return [one for one in known if not dash or one.startswith(f"{source}-")]


def ranges(ids: Sequence[str]) -> str:
    """S1-01 to S1-50, S2-01 to S2-24, ...: the ids of each source, without a list of them all."""
    groups: dict[str, list[str]] = {}
    for id_ in ids:
        groups.setdefault(id_.partition("-")[0], []).append(id_)
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 1 else group[0] for group in groups.values())


def _near(name: str, allowed: list[str]) -> str:
    close = get_close_matches(name.upper() if name.upper() != name else name, allowed, n=3, cutoff=0.5)
    close = close or get_close_matches(name, allowed, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BadInputError(f"{option}: cannot write {path}: {error.strerror}") from error


# ---------------------------------------------------------------- for people


def show(found: Found, target: Path | None, *, is_whole: bool, is_full: bool) -> None:
    """A screen: the counts first; of all claims the findings that matter most; last, whether all is as expected.

    is_full: also the claims that are not confirmed, with the reason, and the printed cells beside the derived ones.
    """
    from rich.markup import escape

    from paper_checks.claims.claim import Verdict
    from paper_checks.verify.document import why_unexpected

    console = wide_console()
    summary = found["summary"]
    verdicts = ", ".join(
        f"[{Verdict(verdict).colour}]{number} {verdict}[/]" for verdict, number in summary["verdicts"].items() if number
    )
    console.print(f"{summary['coverage']}: {verdicts}", highlight=False)
    if is_whole:
        from paper_checks.pages.claims import results_line

        console.print(results_line(found), highlight=False)
        console.print(_findings(found))
    if is_full:
        if any(entry["verdict"] != "CONFIRMED" for entry in found["claims"]):
            console.print(_others(found["claims"]))
        if any(row["claim"] for row in found["tables"]):
            console.print(_cells(found["tables"]))
    for line in _checked(summary, is_whole=is_whole):
        console.print(line, highlight=False)
    console.print(_whereabouts(found, target, is_whole=is_whole), highlight=False)
    for entry in found["claims"]:
        if entry["id"] in summary["unexpected"]:
            for line in why_unexpected(entry):
                console.print(f"[red]not as expected[/] {entry['id']}, {escape(line)}")
    console.print(_outcome(summary), highlight=False)


def _findings(found: Found) -> Any:
    """The first few, with the verdicts of this run; below them how many more there are."""
    from rich.markup import escape
    from rich.table import Table

    from paper_checks.claims.claim import Verdict
    from paper_checks.pages.claims import told
    from paper_checks.verify.findings import FIRST

    every = list(told(found))
    table = Table(show_header=False, box=None, padding=(0, 1), title_justify="left", caption_justify="left")
    table.title = "Found against the papers, the most consequential first"
    table.caption = f"and {len(every) - FIRST} more in CLAIMS.md"
    table.add_column(overflow="fold", width=16)
    table.add_column(overflow="fold")
    for ids, kinds, text in every[:FIRST]:
        colour = Verdict(kinds.partition(",")[0]).colour
        table.add_row(f"{ids}\n[{colour}]{kinds}[/]", escape(text))
    return table


def _others(entries: Sequence[Found]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from paper_checks.claims.claim import Verdict
    from paper_checks.verify.document import reason

    table = Table(title="Not confirmed", title_justify="left", show_lines=False, box=None, padding=(0, 1))
    for name in ("claim", "verdict", "why"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        if entry["verdict"] != "CONFIRMED":
            verdict = Verdict(entry["verdict"])
            table.add_row(entry["id"], f"[{verdict.colour}]{verdict.value}[/]", escape(reason(entry)))
    return table


def _whereabouts(found: Found, target: Path | None, *, is_whole: bool) -> str:
    first = min(found["claims"], key=lambda entry: entry["verdict"] == "CONFIRMED")
    rest = f"`depthlaw explain {first['id']}` shows its evidence."
    if is_whole:
        rest = (
            "CLAIMS.md has every claim; `depthlaw explain S2-08` one with its evidence, `make report` all as a site; "
            "`depthlaw verify --full --quick` each reason and each cell."
        )
    return rest if target is None else f"{rest} The document is in {target}."


def _outcome(summary: Found) -> str:
    """The last line: what the exit code says too."""
    counts = ", ".join(f"{number} {verdict}" for verdict, number in summary["verdicts"].items() if number)
    if summary["as_expected"]:
        return f"All as expected: {summary['coverage']}, {counts}."
    return f"[red]Not as expected[/]: see above; {summary['coverage']}, {counts}."


def _checked(summary: Found, *, is_whole: bool) -> Iterator[str]:
    """What stands around the verdicts: mutants, cells, the generated file."""
    from rich.markup import escape

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


def _cells(rows: Sequence[Found]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from paper_checks.pages.claims import merged

    table = Table(title="Printed beside derived", title_justify="left")
    for name in ("table", "row", "column", "printed", "derived", "", "claim"):
        table.add_column(name, overflow="fold")
    last = ""
    for row in merged(rows):
        if row["table"] != last:
            table.add_section()
        texts = (escape(row[name]) for name in ("where", "column", "printed", "derived"))
        table.add_row(row["table"] if row["table"] != last else "", *texts, _MARKS[row["equal"]], row["claim"])
        last = row["table"]
    return table
