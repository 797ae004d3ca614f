"""Where training runs are made and kept, of ``train`` and ``experiment``: their options, workers and store."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import MORE, BadInputError, option, refusing
from depthlaw.cli.shared.output import say
from depthlaw.system.processes import is_under_torchrun
from depthlaw.system.stopping import telling

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from depthlaw.network.trials import Trial
    from depthlaw.sims.cluster import Workers
    from depthlaw.sims.training.sharded import Processes
    from depthlaw.sims.training.store import Store


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of where runs are made and kept, of `experiment` too."""

    workers: int | None = option(
        "The number of workers, each on one core, which trains several runs together; if left out, as many as cores "
        "and memory allow.",
        None,
        MORE,
        most=4096,
    )
    scheduler: str | None = options.SCHEDULER
    budget: float | None = option(
        "The minutes after which no run begins. The same command goes on later.", None, MORE, least=1e-12, most=1e9
    )
    store: Path | None = option("The file that runs are kept in; one in sims/records/local if left out.", None, MORE)
    device: str = options.DEVICE

    def __post_init__(self) -> None:
        if self.workers is not None and self.scheduler is not None:
            raise BadInputError("give one of --workers and --scheduler: a cluster has workers of its own")
        if is_under_torchrun() and (self.workers or self.scheduler):
            raise BadInputError("under torchrun --workers and --scheduler have no place: its processes share each run")

    def processes(self) -> Processes | None:
        """Those that torchrun started, over which each run is cut; None without torchrun."""
        if not is_under_torchrun():
            return None
        from depthlaw.sims.measure import choose_device
        from depthlaw.sims.training.sharded import start

        return start(choose_device(self.device))

    def store_file(self, name: str) -> Path:
        """--store, or a file of that name in the folder that git ignores."""
        from depthlaw.system.places import RECORDS

        return self.store or options.local_file(RECORDS / "local" / name, "--store FILE", "the store")

    def workers_of(
        self, trials: Iterable[Trial], *, num_processes: int = 1, recomputes: bool = False
    ) -> tuple[Callable[[], Executor], Workers]:
        """What makes the executor that these go to, and its workers. ValueError, in one line, where one of them does
        not fit into memory, or not as often as there are --workers. num_processes: over which each run is cut.
        recomputes: whether its backward pass computes sublayers again."""
        from depthlaw.network.trials import check_memory
        from depthlaw.sims.cluster import Cluster, workers_of
        from depthlaw.system import processes

        there = workers_of(self.scheduler, self.device)
        if self.scheduler is not None:
            check_memory(trials, there.free, f"for a worker of {self.scheduler}", recomputes=recomputes)
            return partial(Cluster, self.scheduler, there.device), there
        if is_under_torchrun():  # one run at a time, in a thread, so that its claim is kept up meanwhile
            free, where = there.free if there.device == "cuda" else there.free // num_processes, "for each process on"
            check_memory(trials, free, f"{where} {there.device}", num_devices=num_processes, recomputes=recomputes)
            return partial(ThreadPoolExecutor, 1), replace(there, free=free)
        fitting = check_memory(trials, there.free, f"on {there.device}", recomputes=recomputes)
        if self.workers is not None and self.workers > fitting:
            raise BadInputError(
                f"--workers {self.workers}: the free memory is enough for {fitting} of such runs at a time"
            )
        num = self.workers or min(os.cpu_count() or 1, fitting)
        return partial(processes.Workers, num), replace(there, num_workers=num, free=there.free // num)

    def deadline(self) -> float | None:
        """On the clock of time.monotonic, from now on."""
        return None if self.budget is None else time.monotonic() + 60 * self.budget


@contextmanager
def kept_runs(path: Path, checkpoints: Path | None = None) -> Iterator[Store]:
    """The store. What is finished in this block is kept in it: an interrupt and a full disk are said in a line.

    checkpoints: the folder of what is under way.
    """
    from depthlaw.sims.training.store import Store

    with refusing("--store"):
        kept = Store(path)

    def what_is_kept() -> str:
        if kept.num_added:
            return f"what was finished is in {path}, and the same command goes on from there"
        if checkpoints is not None and checkpoints.is_dir() and any(checkpoints.iterdir()):
            return f"no run was finished, and the same command goes on from {checkpoints}"
        return "nothing was kept"

    with kept, telling(what_is_kept):
        try:
            yield kept
        except sqlite3.Error as error:
            raise BadInputError(f"{path}: {error}; {what_is_kept()}") from error


def say_of_others(kept: Store, configs: Iterable[Mapping[str, Any]]) -> None:
    """On standard error, how many of these runs were made by another version of depthlaw or of torch: a run is not made
    again for that."""
    from importlib.metadata import version

    from depthlaw.sims.training.store import key

    now = tuple(version(name).partition("+")[0] for name in ("depthlaw", "torch"))
    made = [kept.row(name).about.versions for name in kept.keys() & {key(config) for config in configs}]
    if others := sum((versions.depthlaw, versions.torch) != now for versions in made):
        say(
            f"{others} of {len(made)} runs were made by another version of depthlaw or of torch; a new --store makes "
            "them again"
        )
