"""Pages of text and tables for people, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

_ENDLESS = 10_000
"""Columns, more than any table has."""
LARGE = 1e6
"""From here on a number is told by its power of ten."""


def amount(number: float) -> str:
    """A number above 0, to be read.

    >>> from depthlaw.system.page import amount
    >>> amount(3.872), amount(1234.5), amount(5.67e124)
    ('3.87', '1,234', '5.7e124')
    """
    if number >= LARGE:
        return f"{number:.1e}".replace("e+0", "e").replace("e+", "e")
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def times(factor: float) -> str:
    """A factor, to be read: "x 1,234"."""
    return f"x {amount(factor)}"


def escape(text: str) -> str:
    """Text whose brackets are no markup of rich."""
    from rich.markup import escape

    return escape(text)


class Page:
    """Standard output for people: lines and tables, as wide as the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = console or Console()

    def say(self, text: str, style: str | None = None) -> None:
        """A line of text, broken at the width between words."""
        self.console.print(text, markup=False, highlight=False, style=style)

    def say_where(self, text: str, style: str | None = None) -> None:
        """A line with a path or a command, which is to be copied: never broken."""
        self.console.print(text, markup=False, highlight=False, style=style, soft_wrap=True)

    def wrote(self, target: Path | None) -> None:
        if target is not None:
            self.say_where(f"Wrote {target}.")

    def show(self, table: Any) -> None:
        self.console.print(table)

    def show_whole(self, *ways: Sequence[Table]) -> None:
        """Tables in the first of these ways that fits, or the last one. No number and no name is cut: where that does
        not fit either, the terminal breaks its lines."""
        endless, width = self.console.options.update(max_width=_ENDLESS), self.console.width
        widths = [max(self.console.measure(table, options=endless).maximum for table in way) for way in ways]
        chosen = next((index for index, needed in enumerate(widths) if needed <= width), len(ways) - 1)
        self.console.width = max(width, widths[chosen])
        for table in ways[chosen]:
            self.show(table)
        self.console.width = width


def grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[str] | None],
    texts: Collection[str] = (),
    title: str | None = None,
    unbroken: Collection[str] = (),
    **style: Any,
) -> Table:
    """A table. Where a row is None stands a line; numbers, which every column has that is not of ``texts``, stand to
    the right; cells of ``unbroken`` columns are never broken. style: what else rich knows of a table."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", **style)
    for head in heads:
        table.add_column(head, justify="left" if head in texts else "right", overflow="fold", no_wrap=head in unbroken)
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*row)
    return table


def columns(rows: Iterable[tuple[str, str]], indent: int = 0) -> Any:
    """Texts beside their labels, broken at the width of their own column."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for label, text in rows:
        table.add_row(Text(label), Text(text, overflow="fold"))
    return Padding(table, (0, 0, 0, indent))
