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
Tell = Callable[[str, float, float], None]
"""Told what is being done, how much of it is done, and of how much."""


def print_json(found: dict[str, Any]) -> None:
    sys.stdout.write(as_text(found))


# ---------------------------------------------------------------- for people


class Page:
    """Standard output for people: lines and tables, as wide as the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = Console() if console is None else console

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

    def fits(self, *ways: Sequence[Table]) -> bool:
        """Whether one of these ways fits."""
        return min(map(self._width, ways)) <= self.console.width

    def show_whole(self, *ways: Sequence[Table]) -> None:
        """Tables in the first of these ways that fits, or the last one. No number and no name is cut: where that does
        not fit either, the terminal breaks its lines."""
        width = self.console.width
        chosen = next((way for way in ways if self._width(way) <= width), ways[-1])
        self.console.width = max(width, self._width(chosen))
        for table in chosen:
            self.show(table)
        self.console.width = width

    def _width(self, tables: Sequence[Table]) -> int:
        endless = self.console.options.update(max_width=_ENDLESS)
        return max(self.console.measure(table, options=endless).maximum for table in tables)


def grid(
    heads: Sequence[str], rows: Iterable[Sequence[str] | None], texts: Collection[str] = (), title: str | None = None
) -> Table:
    """A table. Where a row is None stands a line; numbers, which every column has that is not of ``texts``, stand to
    the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in texts else "right")
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
    return Console(width=None if is_fixed else _PIPED_WIDTH)


# ---------------------------------------------------------------- progress


@contextmanager
def progress(*, is_alive: bool = False) -> Iterator[Tell]:
    """A bar for each thing that is done, on standard error where a person looks at it; gone when all is done.

    is_alive: its clock goes on between two reports. That takes a thread, and none may run where ``verify`` starts its
    workers.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn("{task.percentage:>3.0f} %"))
    console, is_hidden = Console(stderr=True), not sys.stderr.isatty()
    tasks: dict[str, Any] = {}
    with Progress(
        *(*columns, TimeElapsedColumn(), TimeRemainingColumn()),
        console=console,
        transient=True,
        auto_refresh=is_alive,
        disable=is_hidden,
    ) as shown:

        def tell(doing: str, done: float, total: float) -> None:
            if doing not in tasks:
                tasks[doing] = shown.add_task(doing, total=total)
            shown.update(tasks[doing], completed=done, total=total, refresh=True)

        yield tell


@contextmanager
def counted(doing: str, total: float) -> Iterator[Callable[[float], None]]:
    """One bar, unless there is nothing to do. Yields what advances it."""
    done = 0.0
    with progress(is_alive=True) as tell:
        if total:
            tell(doing, 0, total)

        def advance(more: float) -> None:
            nonlocal done
            done += more
            if total:
                tell(doing, done, total)

        yield advance
