"""Writing answers: JSON, or tables and lines for people; progress on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from depthlaw.system.files import as_text

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 120
Tell = Callable[[str, float, float | None], None]
"""Told what is being done, how much of it is done, and of how much."""


def print_json(answer: dict[str, Any]) -> None:
    sys.stdout.write(as_text(answer))


def number_of(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def say(text: str) -> None:
    """A line on standard error. Characters that a terminal would obey, of a file's name for instance, are escaped."""
    line = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    print(f"depthlaw: {line}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- for people


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
