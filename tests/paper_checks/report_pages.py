"""Documents to make a site of, what is on its pages, and what is wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from depthlaw.paper_checks.claims.claim import Evidence, Part, PartResult, Verdict
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.report import figures, rendered, site
from depthlaw.paper_checks.report.model import parse
from depthlaw.paper_checks.routes.tables.derived import side_by_side
from depthlaw.paper_checks.verify import document as engine
from depthlaw.paper_checks.verify.concord import agreements
from depthlaw.system.files import as_text
from tests.once import claim as checked

SOME = ("S3-43", "S3-07", "S1-08", "DN-11", "DN-15", "LI-05")
"""Of every kind: with a counterexample and its table, steps, numbers, a figure, parts, mutants; a second to check."""
FIGURED = (*SOME, "S3-12", "S2-13", "S3-04", "S3-49")
"""With a figure of every kind: orders in stacks and in Transformers, bounds, and one of training that two share."""
ORDERED = ("S1-03", "S1-25", "S1-41", "S1-49", "S2-12", "S3-10", "S3-12", "LI-01")
"""Claims of orders whose figures are tried: every optimizer, activation, kind of norm and role once."""


# ---------------------------------------------------------------- documents


def as_expected(*, and_checked: Iterable[str] = ()) -> dict[str, Any]:
    """All claims, with the verdicts that the registry pins; only some of them are checked in truth."""
    entries = {id_: unchecked(id_) for id_ in claims()} | {id_: checked(id_) for id_ in and_checked}
    rows = side_by_side(engine.small_tables(), claims().values())
    return document_of(list(entries.values()), rows, agreements())


def write_site(document: Mapping[str, Any], out: Path, *, has_all_figures: bool) -> str:
    """The site of a document; all its figures take half a minute, and those of FIGURED are of every kind."""
    real = figures.for_claim
    with pytest.MonkeyPatch.context() as patch:
        if not has_all_figures:
            patch.setattr(figures, "for_claim", lambda id_: real(id_) if id_ in FIGURED else [])
        site.write(parse(document), out)
    return str(out)


def document_of(entries: list[Any], rows: Any = (), beside: Any = ()) -> dict[str, Any]:
    """As it is read from a file."""
    found = engine.assemble(entries, rows, got=engine.STORED, file=engine.IN_STEP, beside=beside)
    return json.loads(as_text(found))


def unchecked(id_: str) -> dict[str, Any]:
    """As it is expected, with evidence of no content."""
    claim = claims()[id_]

    def result(part: Part) -> PartResult:
        seen = (Evidence(route=one.route, num_effective=1, verdict=Verdict.CONFIRMED, detail="") for one in part.checks)
        return PartResult(part=part, verdict=part.expected, evidence=tuple(seen))

    results = [*map(result, claim.parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "judge", lambda *_, **how: (claim.expected, results))
        return engine.check(claim, with_mutants=False)


# ---------------------------------------------------------------- pages


class Page(HTMLParser):
    """What a page has: ids, links, what it loads and which scripts it runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.handlers: list[str] = []
        self.tags: Counter[str] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href", "xlink:href", "data"):
                self.loaded.append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)


def made(found: Mapping[str, Any], only: Iterable[str] | None = None) -> dict[str, str]:
    """The pages of a document, or some of them, by name."""
    pages = site.contents(parse(found))
    return {name: make() for name, make in pages.items() if only is None or name in only}


def read(pages: Mapping[str, str]) -> dict[str, Page]:
    return {name: Page(text) for name, text in pages.items()}


def faults(parsed: Mapping[str, Page]) -> list[str]:
    """Ids that stand twice, links that lead nowhere, and what is loaded from elsewhere or is not there."""
    found = []
    for name, page in parsed.items():
        found += [f"{name}: id {id_} stands twice" for id_, number in Counter(page.ids).items() if number > 1]
        found += [f"{name}: {link} leads nowhere" for link in page.links if not _resolves(name, link, parsed)]
        found += [f"{name}: loads {one}" for one in page.loaded if not (one in STATIC or one.startswith("#"))]
        found += [f"{name}: has {handler}" for handler in page.handlers]
    return found


def _resolves(name: str, link: str, parsed: Mapping[str, Page]) -> bool:
    to = urlsplit(link)
    if to.scheme or to.netloc:
        return to.scheme == "https"
    target = unquote(to.path) or name
    is_state = "=" in to.fragment  # of the filter
    if target in STATIC:
        return True
    return target in parsed and (not to.fragment or is_state or unquote(to.fragment) in parsed[target].ids)


STATIC = [f"{path.parent.name}/{path.name}" for path in (*site.STATIC.iterdir(), *rendered.files())]
