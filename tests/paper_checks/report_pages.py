"""What is on the pages of a site, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urlsplit

from paper_checks.report import site
from paper_checks.report.model import parse

VOID = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle", "line", "use", "stop", "mspace", "wbr"}


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


def faults(pages: Mapping[str, str], files: Iterable[str] = ()) -> list[str]:
    """What is wrong with the pages of a site."""
    parsed = {name: Page(text) for name, text in pages.items()}
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


def unreachable(found: Mapping[str, Any], pages: Mapping[str, str]) -> list[str]:
    """Claims without an article on the page of their source."""
    articles = {name: Page(text).articles for name, text in pages.items()}
    places = ((entry["id"], f"source-{entry['source']}.html") for entry in found["claims"])
    return [id_ for id_, name in places if articles.get(name, []).count(id_) != 1]


STATIC = [f"static/{path.name}" for path in site.STATIC.iterdir()]
