"""Documents to make a site of, what is on its pages, and what is wrong with them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from paper_checks.claims.claim import Verdict
from paper_checks.pages import scheme_figures
from paper_checks.papers.registry import claims
from paper_checks.report import figures, site
from paper_checks.report.model import parse
from paper_checks.routes.printed_tables import side_by_side
from paper_checks.system.files import as_text
from paper_checks.verify import document as engine
from paper_checks.verify.concord import agreements
from tests.once import claim as checked

SOME = ("S3-43", "S3-07", "S1-08", "DN-11", "DN-15", "LI-05")
"""Of every kind: with a counterexample and its table, steps, numbers, a figure, parts, mutants; a second to check."""
FIGURED = (*SOME, "S3-12", "S2-13", "S3-04", "S3-49")
"""With a figure of every kind: orders in stacks and in Transformers, bounds, and one of training that two share."""
DRAWN = ("post-ln", "pre-ln", "deepnorm", "rezero")
"""Schemes whose figures stand on the site that is made for tests: with an update of 0, and without."""
ORDERED = ("S1-03", "S1-25", "S1-41", "S1-49", "S2-12", "S3-10", "S3-12", "LI-01")
"""Claims of orders whose figures fast tests try: every optimizer, activation, kind of norm and role once."""
VOID = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle", "line", "use", "stop", "mspace", "wbr"}


# ---------------------------------------------------------------- documents


def as_expected(*, and_checked: Iterable[str] = ()) -> dict[str, Any]:
    """All claims, with the verdicts that the registry pins; only some of them are checked in truth."""
    entries = {id_: unchecked(id_) for id_ in claims()} | {id_: checked(id_) for id_ in and_checked}
    rows = side_by_side(engine.small_tables(), claims().values())
    return document_of(list(entries.values()), rows, agreements())


def figures_of(*names: str) -> list[scheme_figures.SchemeFigures]:
    """Of these schemes alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheme_figures, "SCHEMES", names)
        return scheme_figures.by_scheme()


def fast(every: Iterable[str], some: Iterable[str]) -> list[Any]:
    """To parametrize with: some of them for every run of the tests, and the others for the slow one."""
    return [one if one in some else pytest.param(one, marks=pytest.mark.slow) for one in every]


def write_site(document: Mapping[str, Any], out: Path, *, has_all_figures: bool) -> str:
    """The site of a document; all its figures take half a minute, and those of FIGURED and DRAWN are of every kind."""
    real = figures.for_claim
    with pytest.MonkeyPatch.context() as patch:
        if not has_all_figures:
            patch.setattr(figures, "for_claim", lambda id_: real(id_) if id_ in FIGURED else [])
            patch.setattr(scheme_figures, "SCHEMES", DRAWN)
        site.write(parse(document), out)
    return str(out)


def document_of(entries: list[Any], rows: Any = (), beside: Any = ()) -> dict[str, Any]:
    """As it is read from a file."""
    found = engine.assemble(entries, rows, got=engine.STORED, file=engine.IN_STEP, beside=beside)
    return json.loads(as_text(found))


def unchecked(id_: str) -> dict[str, Any]:
    """As it is expected, with evidence of no content."""
    claim = claims()[id_]
    parts = [
        {
            "name": part.name,
            "statement": part.statement.text,
            "verdict": part.expected.value,
            "expected": part.expected.value,
            "condition": part.condition,
            "correction": None,
            "grounds": "",
            "open": part.open,
            "counterexample": None,
            "instead_holds": True,
            "evidence": [
                {
                    "route": check.route.value,
                    "num_effective": 1,
                    "verdict": "CONFIRMED",
                    "of": "printed",
                    "detail": "",
                    "numbers": {},
                    "steps": [],
                }
                for check in part.checks
            ],
        }
        for part in claim.parts
    ]
    return {
        "id": id_,
        "source": claim.source,
        "locator": claim.locator,
        "quote": claim.quote,
        "statement": claim.summary,
        "parts": parts,
        "verdict": claim.expected.value,
        "expected": claim.expected.value,
        "counterexample": None,
        "uses": list(claim.uses),
        "evidence": [item for part in parts for item in part["evidence"]],
        "mutants": None,
    }


# ---------------------------------------------------------------- pages


class Page(HTMLParser):
    """What a page has: ids, links, what it loads, its headings, and whether its tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[int] = []
        self.articles: list[str] = []
        self.handlers: list[str] = []
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.unnamed: list[str] = []
        self.is_image = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags[tag] += 1
        if "id" in found:
            self.ids.append(found["id"] or "")
        if tag == "a" and "href" in found:
            self.links.append(found["href"] or "")
        if tag != "a":
            self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append(int(tag[1]))
        if tag == "article":
            self.articles.append(found.get("id") or "")
        if found.get("role") == "region" and not found.get("aria-label"):
            self.unnamed.append(tag)
        if self.open[-1:] == ["svg"] and self.is_image and tag != "title":
            self.unnamed.append("svg")
        self.is_image = tag == "svg" and found.get("role") == "img" and not found.get("aria-label")
        self.handlers += [name for name in found if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)


def made(found: Mapping[str, Any], only: Iterable[str] | None = None) -> dict[str, str]:
    """The pages of a document, or some of them, by name."""
    pages = site.contents(parse(found))
    return {name: make() for name, make in pages.items() if only is None or name in only}


def read(pages: Mapping[str, str]) -> dict[str, Page]:
    return {name: Page(text) for name, text in pages.items()}


def faults(parsed: Mapping[str, Page], files: Iterable[str] = ()) -> list[str]:
    """What is wrong with the pages of a site."""
    known = {*parsed, *files}
    found = []
    for name, page in parsed.items():
        found += [f"{name}: id {id_} stands twice" for id_, number in Counter(page.ids).items() if number > 1]
        found += [f"{name}: {link} leads nowhere" for link in page.links if not _resolves(name, link, parsed, known)]
        found += [f"{name}: loads {one}" for one in page.loaded if urlsplit(one).scheme or one.startswith("//")]
        found += [f"{name}: loads {one}, which is not there" for one in page.loaded if not _is_there(one, known)]
        found += [f"{name}: has {handler}" for handler in page.handlers]
        found += [f"{name}: <{tag}> is not balanced" for tag in page.unbalanced + page.open]
        found += [f"{name}: a <{tag}> without a name" for tag in page.unnamed]
        if page.headings[:1] != [1] or page.headings.count(1) != 1:
            found.append(f"{name}: headings begin with {page.headings[:1]}, {page.headings.count(1)} are h1")
        if any(after > before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False)):
            found.append(f"{name}: a heading is skipped")
        if page.tags["main"] != 1 or page.tags["header"] < 1 or page.tags["nav"] < 1:
            found.append(f"{name}: a landmark is missing")
    return found


def _resolves(name: str, link: str, parsed: Mapping[str, Page], known: set[str]) -> bool:
    to = urlsplit(link)
    if to.scheme or to.netloc:
        return to.scheme == "https"
    target = unquote(to.path) or name
    if target not in known:
        return False
    is_state = "=" in to.fragment  # of the filter
    return not to.fragment or is_state or target not in parsed or unquote(to.fragment) in parsed[target].ids


def _is_there(link: str, known: set[str]) -> bool:
    to = urlsplit(link)
    return bool(to.scheme) or not to.path or to.path in known


def unreachable(found: Mapping[str, Any], parsed: Mapping[str, Page]) -> list[str]:
    """Claims without an article on the page of their source."""
    articles = {name: Counter(page.articles) for name, page in parsed.items()}
    places = ((entry["id"], f"source-{entry['source']}.html") for entry in found["claims"])
    return [id_ for id_, name in places if articles[name][id_] != 1]


STATIC = [f"static/{path.name}" for path in site.STATIC.iterdir()]


# ---------------------------------------------------------------- verdicts, as a reader sees them

_WORDS = {(verdict.symbol, verdict.value) for verdict in Verdict}
_BADGE = re.compile(r'<span class="badge (\w+)"><span aria-hidden="true">([^<]+)</span> (\w+)</span>')
_EVIDENCE = re.compile(
    r'<li class="(\w+)">\s*<p><span class="route"[^>]*>(\w+)</span>\s*<span class="mark">(.*?)</p>', re.S
)


def badges(text: str) -> list[str]:
    """The verdicts that a piece of a page shows; where its colour, mark and word differ, all three."""
    found = []
    for colour, mark, word in _BADGE.findall(text):
        is_one = colour == word.lower() and (mark, word) in _WORDS
        found.append(word if is_one else f"{colour} {mark} {word}")
    return found


def shown_verdicts(text: str) -> dict[str, Any]:
    """By article of a page: its colour and badges, and of each part its badges, evidence and mark of a single route."""
    found = {}
    for colour, id_, inside in re.findall(r'<article class="claim (\w+)" id="([^"]+)"(.*?)</article>', text, re.S):
        head, *sections = re.split(r'<section class="part"', inside)
        parts = [section.partition("</section>")[0] for section in sections]
        found[id_] = (colour.upper(), badges(head), [_shown_part(part) for part in parts])
    return found


def _shown_part(text: str) -> tuple[list[str], list[tuple[str, str, str]], bool]:
    evidence = [
        (colour.upper(), route, " ".join(re.sub("<[^>]*>", "", mark).split()))
        for colour, route, mark in _EVIDENCE.findall(text)
    ]
    return badges(text), evidence, 'class="muted single"' in text


def wanted_verdicts(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What ``shown_verdicts`` is to find of these entries of a document."""
    found = {}
    for entry in entries:
        is_alone = len(entry["parts"]) == 1 and entry["parts"][0]["name"] == "as printed"
        parts = []
        for part in entry["parts"]:
            ordered = sorted(part["evidence"], key=lambda item: item["of"] == "amended")
            evidence = [(item["verdict"], item["route"], _mark(item)) for item in ordered]
            is_single = len({item["route"] for item in ordered}) == 1
            parts.append(([] if is_alone else [part["verdict"]], evidence, is_single))
        found[entry["id"]] = (entry["verdict"], [entry["verdict"]], parts)
    return found


def _mark(item: Mapping[str, Any]) -> str:
    cases = "1 case" if item["num_effective"] == 1 else f"{item['num_effective']} cases"
    verdict = Verdict(item["verdict"])
    return f"{verdict.symbol} {verdict.outcome} {cases}"
