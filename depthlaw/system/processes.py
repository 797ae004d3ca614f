"""Worker processes, which Ctrl-C in a terminal, a signal to all processes of the command, never reaches."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from multiprocessing import active_children
from types import TracebackType
from typing import Any

from depthlaw.system.stopping import shielded


def is_under_torchrun() -> bool:
    """Whether torchrun started this process, beside others that do the same."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def collect_rarely() -> None:
    """Look for garbage rarely in this process: derivations make many objects, hardly any of them garbage in circles."""
    gc.set_threshold(100_000, 20, 100)


class Workers(Executor):
    """Processes of this machine, as ``sims.training.sweep.pool`` has them. An error or a KeyboardInterrupt in the
    with-block ends them, whatever they are doing.

    >>> from depthlaw.system.processes import Workers
    >>> with Workers(1) as workers:
    ...     workers.submit(len, "abc").result()
    3
    """

    def __init__(self, num_workers: int, *, preload: Sequence[str] = ()) -> None:
        from depthlaw.sims.training.sweep import pool

        self._executor = pool(num_workers, preload=preload)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with shielded():  # it may start a process, which would leave a traceback of its imports
            return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for worker in active_children():
                worker.kill()
        # cancel_futures, and no future.cancel(): the executor's own thread fails at a future that another cancelled.
        self.shutdown(cancel_futures=kind is not None)
