"""``depthlaw report``: the site, from a document that is there or from one that is made now."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import REQUIRED, BadInputError, option
from depthlaw.cli.shared.output import Tell, print_json, progress, say
from depthlaw.system.files import document, read_all
from depthlaw.system.page import Page
from depthlaw.system.stopping import telling

if TYPE_CHECKING:
    from depthlaw.paper_checks.report.model import Document

EXAMPLES = (
    "report --out out/report",
    "report --quick --out out/report",
    "report --from out/verify.json --out out/report",
)


def run(
    out: str = option(
        "The folder to write, which is made if absent. One that is there is replaced only if it holds a report.",
        REQUIRED,
        metavar="DIR",
    ),
    document_file: str | None = option(
        "What `depthlaw verify --out FILE` wrote; if left out, verify first.", called="--from", metavar="FILE"
    ),
    quick: bool = option(
        "Verify with the generated tables; measure nothing and try no mutants. It takes about a minute."
    ),
    as_json: bool = options.JSON,
) -> int:
    """Write a static site of everything that was found. Open its index.html: it needs no server and no network.

    The site has every printed statement typeset, with its verdict, evidence,
    derivation, counterexample and figures; the graph of claims; the tables; and
    predictions beside measurements. The exit code is 1 where a verdict is not as
    expected: the site is written all the same, and says so on its first page.
    """
    from depthlaw.paper_checks.report import folder

    if quick and document_file is not None:
        raise BadInputError("--quick is how to verify, and --from brings what was verified: give one of them")
    if not out.strip():
        raise BadInputError("--out wants a folder, and an empty name is none")
    with _refusing("--out"):
        target = folder.check(Path(out))

    from depthlaw.paper_checks.report import site

    read = None if document_file is None else _read(Path(document_file))
    with telling(f"{target} is as it was" if target.exists() else "nothing was written"), progress() as shown:
        tell = _Stages(shown)
        if read is None:
            from depthlaw.paper_checks.papers.registry import claims
            from depthlaw.paper_checks.report.model import parse
            from depthlaw.paper_checks.verify.document import verify

            ids, is_full = list(claims()), not quick
            tell("checking claims", 0, len(ids))
            read = parse(verify(ids, derive=is_full, with_mutants=is_full, quick=quick, progress=tell))
        tell("writing pages", 0, 1)
        with _refusing("--out"):
            pages = site.write(read, target, tell)
    _tell(read, pages, as_json=as_json)
    return 0 if read.summary.as_expected else 1


class _Stages:
    """Beside the bar, where nobody looks at one: a line on standard error as each stage begins."""

    def __init__(self, shown: Tell) -> None:
        self._shown, self._told = shown, set[str]()

    def __call__(self, what: str, done: float, total: float) -> None:
        self._shown(what, done, total)
        if what not in self._told and not sys.stderr.isatty():
            say(what)
        self._told.add(what)


@contextmanager
def _refusing(option: str) -> Iterator[None]:
    """What cannot be written is a refusal in one line."""
    from depthlaw.paper_checks.report.folder import NotOursError

    try:
        yield
    except NotOursError as error:
        raise BadInputError(f"{option}: {error}") from error
    except OSError as error:
        raise BadInputError(f"{option}: cannot write {error.filename}: {error.strerror or error}") from error


def _read(path: Path) -> Document:
    from depthlaw.paper_checks.report.model import BadDocumentError, parse

    try:
        content = read_all(path)
    except OSError as error:
        raise BadInputError(f"--from: cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputError(f"--from: {error}, and so is no document of `depthlaw verify`") from error
    try:
        return parse(content)
    except BadDocumentError as error:
        raise BadInputError(f"--from: {path}: {error}") from error


def _tell(report: Document, pages: list[Path], *, as_json: bool) -> None:
    summary, index = report.summary, pages[0]
    verdicts = {verdict.value: number for verdict, number in report.counts.items()}
    if as_json:
        about = {"pages": len(pages), "claims": len(report.claims), "verdicts": verdicts}
        print_json(document(out=str(index.parent), **about, as_expected=summary.as_expected))
        return
    page = Page()
    page.say(
        f"{summary.coverage}: {', '.join(f'{number} {verdict}' for verdict, number in verdicts.items() if number)}"
    )
    if not summary.as_expected:
        page.say("Not all as expected; the overview says what.", "red")
    page.say_where(f"{len(pages)} pages; open {index}")
