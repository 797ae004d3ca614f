"""What `train` and `experiment` share: how many workers, where runs are kept, and being stopped."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.commands.inputs import BadInputError, count, fraction, writable

if TYPE_CHECKING:
    from sims.store import Store


def positive(text: str, option: str) -> float:
    number = fraction(text, option)
    if not 0 < number < 10**9:
        raise BadInputError(f"{option} is a positive number below 1e9, not {text.strip()}")
    return float(number)


def num_workers(workers: str | None, scheduler: str | None) -> int:
    if workers is not None and scheduler is not None:
        raise BadInputError("give one of --workers and --scheduler: a cluster has workers of its own")
    return os.cpu_count() or 1 if workers is None else count(workers, "--workers", most=4096)


def store_file(text: str | None, name: str) -> Path:
    """--store, or a file of that name in the folder that git ignores."""
    from paper_checks.measuring import RECORDS

    if text is not None:
        return writable(Path(text), "--store")
    path = RECORDS / "local" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return writable(path, "the store")
    except (OSError, BadInputError) as error:
        raise BadInputError(f"{path.parent} cannot be written: give --store FILE") from error


def say_of_others(kept: Store, configs: Iterable[Mapping[str, Any]]) -> None:
    """On standard error, how many of these runs were made by other sources than these, or another torch: a run is not
    made again for that."""
    from importlib.metadata import version

    from sims.record import sources_hash
    from sims.store import key

    now, torch = sources_hash(has_training=True), version("torch").partition("+")[0]
    abouts = [kept.row(name).about for name in kept.keys() & {key(config) for config in configs}]
    if others := sum(about.sources != now or about.versions.torch != torch for about in abouts):
        print(
            f"depthlaw: {others} of {len(abouts)} runs were made by another version of sims or of torch; "
            "a new --store makes them again",
            file=sys.stderr,
        )


@contextmanager
def stoppable(path: Path) -> Iterator[None]:
    """Ctrl-C and a disk that is full are said in a line."""
    try:
        yield
    except sqlite3.Error as error:
        raise BadInputError(f"{path}: {error}") from error
    except KeyboardInterrupt:
        text = f"interrupted; what was finished is in {path}, and the same command goes on from there"
        raise BadInputError(text) from None
