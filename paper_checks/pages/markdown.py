"""Markdown from templates: a page's words stand in ``templates/PAGE.md.jinja``, and Python has its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from depthlaw.sims.stats import Estimate

THE_FORMULA = "the formula"
"""What a cell of a table has in place of one that is too long for it."""
TEMPLATES = Path(__file__).resolve().parent / "templates"


def section(page: str, name: str, **values: Any) -> str:
    """A section of a page: the block of this name in its template, filled with these values."""
    template = _pages().get_template(f"{page}.md.jinja")
    return "".join(template.blocks[name](template.new_context(values)))


def caption(name: str, **values: Any) -> str:
    """Of a figure: a block of captions.md.jinja, in one line."""
    return " ".join(section("captions", name, **values).split())


def environment(templates: Path, *, autoescape: bool) -> Environment:
    """Of the templates in a folder, in which a line of control is no line."""
    return Environment(
        loader=FileSystemLoader(templates),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _pages() -> Environment:
    """Nothing is escaped: the pages are Markdown, and all that stands on them is the project's own."""
    env = environment(TEMPLATES, autoescape=False)
    env.filters.update(to=format, plain=plain, code=code, interval=interval, bracket=bracket, dash=dash)
    env.filters.update(number=number, within=within, mean=fmean)
    env.globals.update(table=table, row=row)
    return env


def plain(text: str) -> str:
    """Text that Markdown leaves as it is, with powers and norms as people write them."""
    text = re.sub(r"(?<=\d)\*(?=[A-Z(])", "", text.replace("**", "^").replace("||", "\u2016"))
    text = re.sub(r"(?<! )\*|\*(?! )", r"\\*", text)
    return re.sub(r"<(?=[A-Za-z/!])", "&lt;", text.replace("|", r"\|"))


def code(cell: str) -> str:
    """A formula in a cell of a table; the words that stand for a long one are words."""
    return cell if cell == THE_FORMULA else f"`{cell}`".replace("|", r"\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> str:
    """A table, or only its head, beneath which a template writes each ``row``."""
    return "".join(map(row, [heads, ["---"] * len(heads), *rows]))


def row(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |\n"


def dash(value: float | None, spec: str = "", nothing: str = "-") -> str:
    """A number in Python's format, or a dash where there is none."""
    return nothing if value is None else format(value, spec)


def interval(estimate: Estimate | None, digits: int = 3) -> str:
    """The mean, and its interval where there is one; a dash where there is nothing."""
    return "-" if estimate is None else bracket(estimate.mean, estimate.low, estimate.high, digits)


def bracket(value: float, low: float | None, high: float | None, digits: int = 2) -> str:
    if low is None or high is None:
        return f"{value:z.{digits}f}"
    return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def number(value: float, digits: int) -> str:
    """So many digits, without an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def within(estimate: Estimate, digits: int) -> str:
    """The mean, and half the length of its interval."""
    half = "" if estimate.high is None else f" ± {estimate.high - estimate.mean:.2g}"
    return f"{estimate.mean:.{digits}g}{half}"


def span(numbers: Sequence[int]) -> str:
    """The least and the largest."""
    few, most = min(numbers, default=0), max(numbers, default=0)
    return str(few) if few == most else f"{few} to {most}"
