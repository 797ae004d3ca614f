"""Worker processes, and how Ctrl-C in a terminal, which goes to all processes of the command, comes to them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing import active_children
from types import TracebackType
from typing import Any

from paper_checks.system.stopping import shielded


class Workers(Executor):
    """Processes of this machine, as ``sims.training.sweep.pool`` has them, started afresh: whatever threads the caller
    has stay
    out of them. An error or a KeyboardInterrupt in the with-block ends them, whatever they are doing.

    is_reached: Ctrl-C ends a worker, without a word, once it has begun with what was submitted; else it comes to none,
    and this process is to end them.

    >>> from paper_checks.system.processes import Workers
    >>> with Workers(1) as workers:
    ...     workers.submit(len, "abc").result()
    3
    """

    def __init__(self, num_workers: int, *, is_reached: bool = False) -> None:
        from sims.training.sweep import pool

        self._executor, self._is_reached = pool(num_workers), is_reached

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with shielded():  # it may start a process, which would leave a traceback of its imports
            if self._is_reached:
                return self._executor.submit(_reached, fn, *args, **kwargs)
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


def _reached(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return fn(*args, **kwargs)
