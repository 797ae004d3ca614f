"""The generated pages of ``results`` as they are: their Markdown as HTML, and their figures as files of the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from depthlaw.paper_checks.notation.signs import html
from depthlaw.system.places import FIGURES, RESULTS

PAGES = {
    "CLAIMS.md": "summary.html",
    "MEASURED.md": "measured.html",
    "TRANSFORMERS.md": "transformers.html",
    "TRAINING.md": "training.html",
    "RECIPES.md": "recipes.html",
}
"""By file of ``results``, its page of the site."""


@dataclass(frozen=True)
class Page:
    """title: the heading of the page. sections: anchor and heading of each. body: all below the title."""

    title: str
    sections: list[tuple[str, str]]
    body: Markup


@dataclass(frozen=True)
class Picture:
    """A figure that is a file, with the title and the caption that its page gives it."""

    name: str
    title: str
    caption: str


_SUM = re.compile(r"\b(?:Sum|Product)\(")
"""As sympy writes it: the pages are text, and the site typesets what else nobody can read."""


def page(path: Path) -> Page:
    """What is HTML in the file is shown as text, but for the comment that says what generated it."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(re.sub(r"\A<!--.*?-->", "", path.read_text(encoding="utf-8")))
    _, title, _, *below = tokens
    sections = _anchored(below)
    body = parser.renderer.render(_framed(below), parser.options, {})
    return Page(title.content, sections, Markup(body))


def _anchored(tokens: list[Token]) -> list[tuple[str, str]]:
    """Headings get anchors, as GitHub gives them, and links lead to pages of the site."""
    sections = []
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", re.sub(r"[^\w-]", "", inside.content.lower().replace(" ", "-")))
            if token.tag == "h2":
                sections.append((str(token.attrs["id"]), inside.content))
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", PAGES.get(str(child.attrs["href"]), str(child.attrs["href"])))
    return sections


def _framed(tokens: list[Token]) -> list[Token]:
    """Each table scrolls by itself, under the name of its section, and each picture leads to its file."""
    framed, heading, num_tables = list[Token](), "", 0
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[i + 1].content
        elif token.type == "th_open" and not tokens[i + 1].content:  # a head that says nothing is none
            token.tag = tokens[i + 2].tag = "td"
            token.attrs = {}
        if token.type == "table_open":
            num_tables += 1
            label = escape(f"{heading}, table {num_tables}")
            frame = f'<div class="scroll wide" tabindex="0" role="region" aria-label="{label}">\n'
            framed += [_html(frame), token, _html(f'<caption class="sr">{label}</caption>\n')]
        elif token.type == "table_close":
            framed += [token, _html("</div>\n")]
        else:
            framed.append(token)
        children = list[Token]()
        for child in token.children or ():
            link = f'<a href="{escape(str(child.attrs.get("src", "")))}">'
            is_sum = child.type == "text" and _SUM.search(child.content) is not None
            plain = [_html(html(child.content)) if is_sum else child]
            children += [_html(link), child, _html("</a>")] if child.type == "image" else plain
        token.children = children if token.children else token.children
    return framed


def _html(text: str) -> Token:
    return Token("html_inline", "", 0, content=text)


@cache
def pictures() -> dict[str, Picture]:
    """The figures of TRAINING.md, by file name without its ending."""
    text = (RESULTS / "TRAINING.md").read_text(encoding="utf-8")
    matches = re.findall(r"^!\[(.*)\]\(figures/(.+)\.svg\)\n\n\*(.*)\*$", text, re.MULTILINE)
    return {name: Picture(name, title, caption) for title, name, caption in matches}


def files() -> list[Path]:
    """The figures that the pages show."""
    return sorted(FIGURES.glob("*.svg"))
