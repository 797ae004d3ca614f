"""TRAINING.md as a page of the site: the same words and tables, with its figures inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from depthlaw.paper_checks.notation.signs import signs
from depthlaw.paper_checks.pages.training import PAGE
from depthlaw.paper_checks.report import typeset

ELSEWHERE = {"TRANSFORMERS.md": "measured.html", "MEASURED.md": "measured.html", "CLAIMS.md": "claims.html"}
"""Pages of the repository that the site has too."""
_IMAGE = re.compile(r"^!\[.*\]\(figures/(.+)\.svg\)\n(?:\n\*.*\*\n)?", re.MULTILINE)
"""With the caption below it."""
_FIGURE = re.compile(r'<pre><code class="language-figure">(.+)\n</code></pre>\n')
_PIECE = re.compile(r"(<th .*?</th>|<code.*?</code>|<[^>]*>)|([^<]+)", re.DOTALL)
"""What stays as it is, and what is typeset."""


def page(draw: Callable[[str], Markup], path: Path = PAGE) -> Markup:
    """Its HTML, with the figure of each name and its caption as they are drawn. What is HTML in it is shown as text."""
    text = re.sub(r"\A<!--.*?-->", "", path.read_text(encoding="utf-8"))  # what generated it
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    html = parser.render(_IMAGE.sub(r"```figure\n\1\n```\n", text))
    html = re.sub(r'<a href="([^"]*)">(.*?)</a>', _link, html)
    html = _PIECE.sub(lambda piece: piece[1] or str(typeset.prose(unescape(piece[2]))), _marked(html))
    return Markup(_FIGURE.sub(lambda figure: str(draw(figure[1])), html))


def _link(link: re.Match[str]) -> str:
    """To anchors of the page, and to pages that the site has; others become text."""
    target = ELSEWHERE.get(link[1], link[1])
    return f'<a href="{target}">{link[2]}</a>' if target.startswith("#") or link[1] in ELSEWHERE else link[2]


def _marked(html: str) -> str:
    """Headings with ids and links to the sections, tables that scroll by themselves, heads of columns with signs."""
    heading, num_tables = "", 0

    def marked(tag: re.Match[str]) -> str:
        nonlocal heading, num_tables
        if tag["level"]:
            heading = tag["heading"]
            is_first = tag["level"] == "1"
            return f"{tag[0]}\n{_contents(html)}" if is_first else tag[0].replace(">", f' id="{_id(heading)}">', 1)
        if tag[0] == "</table>":
            return f"{tag[0]}\n</div>"
        if tag[0] != "<table>":
            return f'<th scope="col">{signs(tag["column"])}</th>'
        num_tables += 1
        label = f"{heading}, table {num_tables}"
        region = f'<div class="scroll wide" tabindex="0" role="region" aria-label="{label}">'
        return f'{region}<table>\n<caption class="sr">{label}</caption>'

    tags = r"<h(?P<level>[1-6])>(?P<heading>.*?)</h\d>|</?table>|<th>(?P<column>.*?)</th>"
    return re.sub(tags, marked, html)


def _contents(html: str) -> str:
    """Links to the sections."""
    links = "".join(f'<a class="ref" href="#{_id(name)}">{name}</a>\n' for name in re.findall("<h2>(.*?)</h2>", html))
    return f'<nav class="chips" aria-label="Sections of this page">\n{links}</nav>'


def _id(heading: str) -> str:
    return heading.lower().replace(" ", "-").replace(",", "")
