"""What `train` and `experiment` share: how many workers, where runs are kept, and what an interrupt leaves."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paper_checks.cli.choices import DEVICES, one_of
from paper_checks.cli.inputs import BadInputError, count, fraction, refusing, writable
from paper_checks.cli.options import option
from paper_checks.system.stopping import telling

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from sims.training.store import Store
    from sims.training.train import TrainResult

PLACE = "Where it runs, and what is shown"
"""A panel of ``--help``."""


def positive(text: str, option: str) -> float:
    number = fraction(text, option)
    if not 0 < number < 10**9:
        raise BadInputError(f"{option} is a positive number below 1e9, not {text.strip()}")
    return float(number)


def file_name(text: str, option: str) -> None:
    if not text.strip():
        raise BadInputError(f"{option} wants the name of a file, not {text!r}")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of where runs are made and kept, as text. Each is read, and may be refused, where it is asked for."""

    workers: Annotated[
        str | None, option("Runs at once, each on one core; as many as cores if left out.", "N", PLACE)
    ] = None
    scheduler: Annotated[str | None, option("Run on a Dask cluster instead: tcp://HOST:PORT.", "ADDRESS", PLACE)] = None
    budget: Annotated[
        str | None, option("No run begins after so many minutes; the same command goes on later.", "MINUTES", PLACE)
    ] = None
    store: Annotated[str | None, option("Keep runs there; in sims/records/local if left out.", "FILE", PLACE)] = None
    device: Annotated[str, option("auto (a GPU where there is one), cpu or cuda.", "NAME", PLACE, one_of(DEVICES))] = (
        "auto"
    )

    def minutes(self) -> float | None:
        return None if self.budget is None else positive(self.budget, "--budget")

    def num_workers(self) -> int:
        if self.workers is not None and self.scheduler is not None:
            raise BadInputError("give one of --workers and --scheduler: a cluster has workers of its own")
        return os.cpu_count() or 1 if self.workers is None else count(self.workers, "--workers", most=4096)

    def store_file(self, name: str) -> Path:
        """--store, or a file of that name in the folder that git ignores."""
        from paper_checks.system.places import RECORDS

        if self.store is not None:
            file_name(self.store, "--store")
            return writable(Path(self.store), "--store")
        path = RECORDS / "local" / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return writable(path, "the store")
        except (OSError, BadInputError) as error:
            raise BadInputError(f"{path.parent} cannot be written: give --store FILE") from error

    def executors(self) -> Callable[[], Executor]:
        """What makes the executor that the runs go to."""
        from paper_checks.system.processes import Workers
        from sims.training.sweep import cluster

        return partial(Workers, self.num_workers()) if self.scheduler is None else partial(cluster, self.scheduler)


def deadline(minutes: float | None) -> float | None:
    """On the clock of time.monotonic, from now on."""
    return None if minutes is None else time.monotonic() + 60 * minutes


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
def keeping(path: Path) -> Iterator[None]:
    """What is finished in this block is kept in that store: an interrupt and a full disk are said in a line."""
    with telling(f"what was finished is in {path}, and the same command goes on from there"):
        try:
            yield
        except sqlite3.Error as error:
            raise BadInputError(f"{path}: {error}") from error
