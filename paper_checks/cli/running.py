"""What `train` and `experiment` share: how many workers, where runs are kept, and being stopped."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.cli.inputs import BadInputError, StoppedError, count, fraction, refusing, writable

if TYPE_CHECKING:
    from sims.training.store import Store
    from sims.training.train import TrainResult

_MOMENT = 0.5
"""Seconds in which workers have ended where Ctrl-C came to them too, as in a terminal."""


def positive(text: str, option: str) -> float:
    number = fraction(text, option)
    if not 0 < number < 10**9:
        raise BadInputError(f"{option} is a positive number below 1e9, not {text.strip()}")
    return float(number)


def num_workers(workers: str | None, scheduler: str | None) -> int:
    if workers is not None and scheduler is not None:
        raise BadInputError("give one of --workers and --scheduler: a cluster has workers of its own")
    return os.cpu_count() or 1 if workers is None else count(workers, "--workers", most=4096)


def file_name(text: str, option: str) -> None:
    if not text.strip():
        raise BadInputError(f"{option} wants the name of a file, not {text!r}")


def store_file(text: str | None, name: str) -> Path:
    """--store, or a file of that name in the folder that git ignores."""
    from paper_checks.system.places import RECORDS

    if text is not None:
        file_name(text, "--store")
        return writable(Path(text), "--store")
    path = RECORDS / "local" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return writable(path, "the store")
    except (OSError, BadInputError) as error:
        raise BadInputError(f"{path.parent} cannot be written: give --store FILE") from error


def opened(path: Path) -> Store:
    from sims.training.store import Store

    try:
        return Store(path)
    except ValueError as error:
        raise BadInputError(f"--store: {error}") from error


def fitted(kept: Store, name: str, result: Mapping[str, Any]) -> TrainResult:
    """name: the key of the run."""
    from pydantic import ValidationError

    from sims.records.record import in_one_line
    from sims.training.train import TrainResult

    try:
        return TrainResult.model_validate(result)
    except ValidationError as error:
        raise BadInputError(f"{kept.path}: run {name[:12]} does not fit: {in_one_line(error)}") from error


def found(kept: Store, config: Mapping[str, Any]) -> TrainResult | None:
    """What the store has of a run."""
    from sims.training.store import key

    with refusing(f"{kept.path}: run {key(config)[:12]} does not fit"):
        result = kept.find(config)
    return None if result is None else fitted(kept, key(config), result)


def check_rows(kept: Store) -> None:
    """That every run there is one of a ``Trial``, whatever wrote it."""
    from paper_checks.lowering.trials import Trial
    from sims.training.store import key

    for row in kept.rows():
        name = key(row.config)
        fitted(kept, name, row.result)
        try:
            Trial.of(row.config).named()
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{kept.path}: run {name[:12]} does not fit: {error}") from error


def say_of_others(kept: Store, configs: Iterable[Mapping[str, Any]]) -> None:
    """On standard error, how many of these runs were made by another version of depthlaw or of torch: a run is not made
    again for that."""
    from importlib.metadata import version

    from sims.training.store import key

    now = tuple(version(name).partition("+")[0] for name in ("depthlaw", "torch"))
    made = [kept.row(name).about.versions for name in kept.keys() & {key(config) for config in configs}]
    if others := sum((one.depthlaw, one.torch) != now for one in made):
        print(
            f"depthlaw: {others} of {len(made)} runs were made by another version of depthlaw or of torch; "
            "a new --store makes them again",
            file=sys.stderr,
        )


@contextmanager
def stoppable(path: Path) -> Iterator[None]:
    """Ctrl-C and a disk that is full are said in a line. SIGTERM, which batch systems send, and a second Ctrl-C end
    the workers too, and then go on as Ctrl-C does."""
    # A pool waits for the runs under way, and only those in a terminal had the Ctrl-C themselves.
    word = threading.Timer(_MOMENT, _say_that_runs_end_first)
    word.daemon = True
    is_stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopping
        if number == signal.SIGTERM or is_stopping:
            word.cancel()
            for worker in active_children():
                worker.terminate()
        else:
            word.start()
        if not is_stopping:
            is_stopping = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except sqlite3.Error as error:
        raise BadInputError(f"{path}: {error}") from error
    except KeyboardInterrupt:
        text = f"interrupted; what was finished is in {path}, and the same command goes on from there"
        raise StoppedError(text) from None
    finally:
        word.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_that_runs_end_first() -> None:
    print("depthlaw: interrupted: the runs under way end first; again to stop now", file=sys.stderr, flush=True)
