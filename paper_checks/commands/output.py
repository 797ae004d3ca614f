"""Writing answers: one JSON document, or tables for people; files atomically; progress on standard error."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.stopping import clearing, shielded

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA_VERSION = 1
_ENDLESS = 10_000
"""Columns, more than any table has."""


def document(**content: Any) -> dict[str, Any]:
    """A JSON document with the version of its schema first."""
    return {"schema_version": SCHEMA_VERSION, **content}


def as_text(found: dict[str, Any]) -> str:
    """Strict JSON: NaN and infinities, which it cannot hold, are an error here and not at the reader's."""
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


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


def write_atomically(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with shielded():
        _write_beside(path, text)


def _write_beside(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
    with bar, clearing(bar.stop):
        task = bar.add_task("", total=total)
        yield lambda done: bar.advance(task, done)
