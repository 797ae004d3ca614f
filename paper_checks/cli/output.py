"""Writing answers: JSON, or tables and lines for people; progress on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paper_checks.system.files import as_text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

_ENDLESS = 10_000
"""Columns, more than any table has."""
_PIPED_WIDTH = 120
Tell = Callable[[str, float, float | None], None]
"""Told what is being done, how much of it is done, and of how much."""


def print_json(answer: dict[str, Any]) -> None:
    sys.stdout.write(as_text(answer))


def number_of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def say(text: str) -> None:
    """A line on standard error."""
    print(f"depthlaw: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- for people


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


def wide_console() -> Console:
    """As wide as the terminal; where there is none, wide enough for the tables of claims."""
    from rich.console import Console

    is_fixed = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_fixed else _PIPED_WIDTH, highlight=False)


# ---------------------------------------------------------------- progress


@contextmanager
def progress(*, is_alive: bool = False) -> Iterator[Tell]:
    """A bar for each thing that is done, on standard error where a person looks at it; gone when all is done.

    is_alive: its clock goes on between two reports. That takes a thread, and none may run where ``verify`` starts its
    workers.
    """
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    tasks: dict[str, Any] = {}
    with Progress(
        *Progress.get_default_columns(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=is_alive,
        disable=not sys.stderr.isatty(),
    ) as bars:

        def tell(doing: str, done: float, total: float | None) -> None:
            if doing not in tasks:
                tasks[doing] = bars.add_task(doing, total=total)
            bars.update(tasks[doing], completed=done, total=total, refresh=True)

        yield tell


@contextmanager
def counted(doing: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """One bar, unless there is nothing to do. total: None where it is not known. Yields what advances it."""
    done = 0.0
    with progress(is_alive=True) as tell:

        def advance(more: float) -> None:
            nonlocal done
            done += more
            if total != 0:
                tell(doing, done, total)

        advance(0)
        yield advance
