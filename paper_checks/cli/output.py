"""Writing answers: JSON, or tables for people; progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from paper_checks.system.files import as_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_ENDLESS = 10_000
"""Columns, more than any table has."""


def print_json(found: dict[str, Any]) -> None:
    sys.stdout.write(as_text(found))


def print_whole(console: Console, *ways: Sequence[Table]) -> None:
    """Tables in the first of these ways that fits, or the last one. No number and no name is cut: where that does not
    fit either, the terminal breaks its lines."""
    endless = console.options.update(max_width=_ENDLESS)
    needed = [max(console.measure(table, options=endless).maximum for table in way) for way in ways]
    chosen = next((i for i, width in enumerate(needed) if width <= console.width), len(ways) - 1)
    console.width = max(width := console.width, needed[chosen])
    for table in ways[chosen]:
        console.print(table)
    console.width = width


@contextmanager
def progress(doing: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar on standard error, where somebody looks at it and there is something to do. Yields what advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    is_hidden = not total or not sys.stderr.isatty()
    bar = Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=is_hidden)
    with bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.advance(task, done)
