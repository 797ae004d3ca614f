"""TRAINING.md as a page of the site: the same words and tables, with its figures inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from paper_checks.notation.signs import signs
from paper_checks.pages.training import PAGE
from paper_checks.report import typeset

Draw = Callable[[str], Markup]
"""The figure of that name, with its caption."""
ELSEWHERE = {"TRANSFORMERS.md": "measured.html", "MEASURED.md": "measured.html", "CLAIMS.md": "claims.html"}
"""Pages of the repository that the site has too."""
_FIGURE = re.compile(r"^!\[.*\]\(figures/(.+)\.svg\)\n(?:\n\*.*\*\n)?", re.MULTILINE)
"""An image, with the caption below it."""


def page(draw: Draw, path: Path = PAGE) -> Markup:
    """Its HTML. What is HTML in it is shown as text; a link to what the site does not have becomes text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = re.sub(r"\A<!--.*?-->", "", path.read_text(encoding="utf-8"))  # what generated it
    tokens = parser.parse(_FIGURE.sub(r"```figure\n\1\n```\n", text))
    return Markup(parser.renderer.render(list(_turned(tokens, draw)), parser.options, {}))


def _turned(tokens: Sequence[Token], draw: Draw) -> Iterator[Token]:
    """Figures drawn, headings with ids, tables that scroll by themselves, links within the site."""
    heading, num_tables = "", 0
    for i, token in enumerate(tokens):
        before, after = Markup(), Markup()
        if token.type == "fence" and token.info == "figure":
            yield _html(draw(token.content.strip()))
            continue
        if token.type == "heading_open":
            heading = tokens[i + 1].content
            if token.tag != "h1":
                token.attrSet("id", _id(heading))
        elif token.type == "heading_close" and token.tag == "h1":
            after = _contents(tokens)
        elif token.type == "table_open":
            num_tables += 1
            label = f"{heading}, table {num_tables}"
            before = Markup('<div class="scroll wide" tabindex="0" role="region" aria-label="{}">').format(label)
            after = Markup('<caption class="sr">{}</caption>').format(label)
        elif token.type == "table_close":
            after = Markup("</div>\n")
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "inline":
            _keep_links(token)
            _typeset(token, is_heading=tokens[i - 1].type == "th_open")
        yield from [_html(before)] * bool(before) + [token] + [_html(after)] * bool(after)


def _id(heading: str) -> str:
    return heading.lower().replace(" ", "-").replace(",", "")


def _contents(tokens: Sequence[Token]) -> Markup:
    """Links to the sections."""
    names = [text.content for before, text in pairwise(tokens) if (before.type, before.tag) == ("heading_open", "h2")]
    links = Markup().join(Markup('<a class="ref" href="#{}">{}</a>\n').format(_id(name), name) for name in names)
    return Markup('<nav class="chips" aria-label="Sections of this page">\n{}</nav>\n').format(links)


def _keep_links(inline: Token) -> None:
    """Links to anchors of the page stay, those to pages that the site has are turned, the others become text."""
    kept: list[Token] = []
    is_dropped = False
    for child in inline.children or []:
        if child.type == "link_open":
            target = str(child.attrGet("href"))
            is_dropped = not target.startswith("#") and target not in ELSEWHERE
            child.attrSet("href", ELSEWHERE.get(target, target))
        if not (is_dropped and child.type in ("link_open", "link_close")):
            kept.append(child)
    inline.children = kept


def _typeset(inline: Token, *, is_heading: bool) -> None:
    """2^-6.5 and its like as formulas, in the heads of columns as characters; code stays code."""
    for child in inline.children or []:
        if child.type == "text" and is_heading:
            child.content = signs(child.content)
        elif child.type == "text":
            child.type, child.content = "html_inline", str(typeset.prose(child.content))


def _html(text: str) -> Token:
    return Token("html_block", "", 0, content=text)
