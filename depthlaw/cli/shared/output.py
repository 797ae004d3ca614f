"""Writing answers: JSON, or tables and lines for people; progress on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from depthlaw.system.files import as_text
from depthlaw.system.kept import kept, stamps

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 120
Tell = Callable[[str, float, float | None], None]
"""Told what is being done, how much of it is done, and of how much."""


_OF_TERMINAL = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS")
"""What decides, beside the place that is written to, in which colours and how wide an answer is printed."""


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


# ---------------------------------------------------------------- what was printed before


class _Heard:
    """A stream that is written to, and keeps what is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.text = stream, ""

    def write(self, text: str) -> int:
        self.text += text
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _NotForKeepingError(Exception):
    pass


def printed(arguments: Sequence[str], run: Callable[[], int]) -> int:
    """The exit code of a command, whose answer is its arguments' and this code's alone; what it prints is kept, and
    printed again where the same is asked. What ends otherwise than with 0 is not kept."""
    code: int | None = None

    def make() -> str:
        nonlocal code
        heard = _Heard(sys.stdout)
        with redirect_stdout(heard):  # pyright: ignore[reportArgumentType]
            code = run() or 0
        if code:
            raise _NotForKeepingError
        return heard.text

    terminal = [os.environ.get(name) for name in _OF_TERMINAL] + [sys.stdout.isatty(), sys.stdout.encoding]
    asked = {"printed": [*arguments], "terminal": [*terminal, *get_terminal_size()], "code": stamps()}
    try:
        text = kept(asked, make)
    except _NotForKeepingError:
        return code or 0
    if code is None and not isinstance(text, str):  # a file that somebody has changed
        return run()
    if code is None:
        sys.stdout.write(text)
    return 0
