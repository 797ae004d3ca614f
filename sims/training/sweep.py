"""Many runs on any executor, each kept as it ends: a sweep that was killed goes on where it was.

The process that sweeps alone writes to the store, as each run ends. Before it begins one it claims it there, so two
processes may sweep into one file. What another process is at work on is waited for, and run here if that one dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from traceback import extract_tb
from typing import Any

from sims.training.store import BEAT, Store, key, plain

Config = dict[str, Any]
Execute = Callable[[Config], dict[str, Any]]
POLL = 0.5
"""Seconds between two looks at what another process runs."""


@dataclass
class Report:
    """The outcome of a sweep.

    done: runs that this sweep made. found: that were there, or that another process made meanwhile. failed: by key,
    what went wrong, in a line. left: runs that the deadline left out.

    >>> from sims.training.sweep import Report
    >>> Report(done=2, failed={"3f": "ValueError: no such scheme"})
    Report(done=2, found=0, failed={'3f': 'ValueError: no such scheme'}, left=0)
    """

    done: int = 0
    found: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0


@dataclass(frozen=True)
class _Ended:
    """What comes back from a worker: a result, or an error in one line, or neither if it was too late to begin."""

    result: dict[str, Any] | None = None
    error: str | None = None
    seconds: float = 0.0


@dataclass
class _Run:
    """A run of a sweep. deaths: how many workers died with it. is_alone: whether it runs alone, so that a death is its
    own.
    """

    key: str
    config: Config
    deaths: int = 0
    is_alone: bool = False


def sweep(
    configs: Iterable[Mapping[str, Any]],
    execute: Execute,
    store: Store,
    make_executor: Callable[[], Executor],
    *,
    at_once: int = 2 * (os.cpu_count() or 1),
    device: str = "cpu",
    advance: Callable[[int], None] = lambda _: None,
    deadline: float | None = None,
    attempts: int = 2,
) -> Report:
    """Run what the store lacks, and keep each result as it ends. A configuration that stands twice is run once.

    execute: from a plain configuration to a plain result; the executor has to be able to send it (a top-level
    function). An exception of it, or a result that JSON cannot carry, is reported and not kept: the next sweep tries
    again. at_once: runs handed to the executor at a time; twice its workers keep them busy. device: kept with each
    result. advance: told how many more runs were done, were found or have failed. deadline: on the clock of
    time.monotonic; no run begins after it, those that have begun end.

    A worker that dies is replaced with its executor. Nobody knows which run it died of, so each that was under way is
    tried again alone, and has failed when it was there at `attempts` deaths, the last of them alone.

    Ctrl-C cancels what has not begun, waits for what has (a worker of `pool` gets the Ctrl-C too, and stops at once),
    keeps what ended well, drops the claims, and goes on as KeyboardInterrupt. ValueError, in one line, of a
    configuration that JSON cannot carry; what the store and make_executor raise goes on to the caller.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sims.training.store import Store
    >>> from sims.training.sweep import sweep
    >>> def execute(config):  # in earnest paper_checks.lowering.trials.execute, in the processes of pool
    ...     return {"square": config["x"] ** 2}
    >>> with TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
    ...     first = sweep([{"x": 1}, {"x": 2}, {"y": 3}], execute, store, ThreadPoolExecutor)
    ...     again = sweep([{"x": 1}, {"x": 2}], execute, store, ThreadPoolExecutor)
    >>> first.done, len(first.failed), again.done, again.found
    (2, 1, 0, 2)
    """
    if at_once < 1 or attempts < 1:
        raise ValueError(f"at_once={at_once}, attempts={attempts}: not a number of runs (allowed: 1 and up)")
    runs = {run.key: run for run in (_Run(key(config), plain(config, "config")) for config in configs)}
    sweeping = _Sweep(execute, store, make_executor, at_once, device, advance, deadline, attempts)
    return sweeping.through(runs)


@dataclass
class _Sweep:
    """The state of a sweep.

    fresh: runs that have not begun. busy: runs that another process has claimed. suspects:
    runs that were under way when a worker died, which died of one of them.
    """

    execute: Execute
    store: Store
    make_executor: Callable[[], Executor]
    at_once: int
    device: str
    advance: Callable[[int], None]
    deadline: float | None
    attempts: int
    report: Report = field(default_factory=Report)
    fresh: deque[_Run] = field(default_factory=deque)
    busy: list[_Run] = field(default_factory=list)
    suspects: deque[_Run] = field(default_factory=deque)
    under_way: dict[Future[_Ended], _Run] = field(default_factory=dict)
    executor: Executor | None = None
    last_beat: float = field(default_factory=time.monotonic)

    def through(self, runs: dict[str, _Run]) -> Report:
        there = self.store.keys()
        self.fresh.extend(run for run in runs.values() if run.key not in there)
        self._find(len(runs) - len(self.fresh))
        try:
            while self.fresh or self.busy or self.suspects or self.under_way:
                self._begin_what_may_begin()
                self._take_what_ended()
        except BaseException:
            self._stop()
            raise
        finally:
            self._end_executor()
            self.store.release()
        return self.report

    def _seconds_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def _begin_what_may_begin(self) -> None:
        if self._seconds_left() <= 0:
            self.report.left += len(self.fresh) + len(self.busy) + len(self.suspects)
            self.fresh.clear()
            self.busy.clear()
            self.suspects.clear()
        elif self.suspects:
            if not self.under_way:
                run = self.suspects.popleft()
                run.is_alone = True
                self._submit(run)
        elif not any(run.is_alone for run in self.under_way.values()):
            if not self.fresh and not self.under_way:
                time.sleep(min(POLL, max(0.0, self._seconds_left())))
                self.fresh.extend(self.busy)
                self.busy.clear()
            while self.fresh and len(self.under_way) < self.at_once:
                run = self.fresh.popleft()
                if self.store.claim(run.config):
                    if not self._submit(run):
                        break
                elif self.store.find(run.config) is not None:
                    self._find(1)
                else:
                    self.busy.append(run)

    def _submit(self, run: _Run) -> bool:
        """Hand a run to the executor. False if a worker has died meanwhile: the executor is then replaced the next
        time.
        """
        if self.executor is None:
            self.executor = self.make_executor()
        begin_before = time.time() + self._seconds_left()  # a clock that workers elsewhere have too
        try:
            future = self.executor.submit(_execute, self.execute, run.config, begin_before)
        except BrokenExecutor:
            run.is_alone = False
            self.fresh.appendleft(run)
            self._end_executor()
            return False
        self.under_way[future] = run
        return True

    def _take_what_ended(self) -> None:
        if not self.under_way:
            return
        ended, _ = wait(self.under_way, timeout=BEAT, return_when=FIRST_COMPLETED)
        for future in ended:
            self._take(future, self.under_way[future])
            del self.under_way[future]  # not before: an interruption may come between
        if time.monotonic() - self.last_beat >= BEAT:
            self.store.beat()
            self.last_beat = time.monotonic()

    def _take(self, future: Future[_Ended], run: _Run) -> None:
        try:
            error = future.exception()
        except CancelledError as cancelled:  # not by us: the executor has lost it
            error = cancelled
        if isinstance(error, BrokenExecutor | CancelledError):
            self._end_executor()
            run.deaths += 1
            if run.is_alone and run.deaths >= self.attempts:
                self._fail(run, f"its worker died, {run.deaths} times (killed, or out of memory)")
            else:
                self.suspects.append(run)
        elif error is not None:
            self._fail(run, _in_one_line(error))
        else:
            self._keep(future.result(), run)

    def _keep(self, ended: _Ended, run: _Run) -> None:
        if ended.result is not None:
            self._add(ended, run)
            self.report.done += 1
            self.advance(1)
        elif ended.error is not None:
            self._fail(run, ended.error)
        else:
            self.report.left += 1
            self.store.release(run.config)

    def _add(self, ended: _Ended, run: _Run) -> None:
        if ended.result is not None:
            self.store.add(run.config, ended.result, device=self.device, seconds=ended.seconds)

    def _fail(self, run: _Run, error: str) -> None:
        self.store.release(run.config)
        self.report.failed[run.key] = error
        self.advance(1)

    def _find(self, number: int) -> None:
        self.report.found += number
        self.advance(number)

    def _stop(self) -> None:
        """Cancel what has not begun, and keep what ends well meanwhile."""
        for future in self.under_way:
            future.cancel()
        self._end_executor()
        for future, run in self.under_way.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self._add(future.result(), run)

    def _end_executor(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
            self.executor = None


def _execute(execute: Execute, config: Config, begin_before: float) -> _Ended:
    """Run a configuration in a worker. Errors go back as text: an exception that cannot be sent breaks the pool."""
    if time.time() >= begin_before:
        return _Ended()
    start = time.perf_counter()
    try:
        result = plain(execute(config), "result")
    except (Exception, SystemExit) as error:  # a SystemExit would end a worker of Dask
        return _Ended(error=_in_one_line(error))
    if not isinstance(result, dict):
        return _Ended(error=f"result: a {type(result).__name__} (allowed: a mapping)")
    return _Ended(result=result, seconds=time.perf_counter() - start)


def _in_one_line(error: BaseException) -> str:
    """An error in one line: its kind, its message, and the line of code that raised it."""
    said, trace = " ".join(str(error).split()), extract_tb(error.__traceback__)
    place = f" ({os.path.basename(trace[-1].filename)}, line {trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}{': ' if said else ''}{said}{place}"


# ---------------------------------------------------------------- executors


def pool(num_workers: int) -> ProcessPoolExecutor:
    """Processes of this machine, each with one thread for its arithmetic, started as they are needed.

    Started afresh, not forked: a fork of a process with threads, as torch has, may hang.

    >>> from sims.training.sweep import pool
    >>> with pool(2) as executor:  # no process yet
    ...     print(type(executor).__name__)
    ProcessPoolExecutor
    """
    return ProcessPoolExecutor(num_workers, mp_context=get_context("spawn"), initializer=_begin_worker)


def _begin_worker() -> None:
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # read when the libraries are loaded
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    # Ctrl-C goes to the workers too: they end without a word, and the process that sweeps tells.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End a worker with its parent. Otherwise it would finish a run that nobody takes, and then wait for ever."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


class _Cluster(Executor):
    """A Dask client's executor, which ends the client too."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # pure=False: Dask would take a run that is tried again for one that it has the outcome of.
        self._executor = client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait)
        self._client.close()


def cluster(address: str) -> Executor:
    """Workers of the Dask scheduler at an address (tcp://host:8786), which need this package too.

    ValueError, in one line, where distributed is not installed, or nothing answers in ten seconds.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("a cluster needs distributed, which is not there (allowed: pip install distributed)") from None
    try:
        return _Cluster(Client(address, timeout=10.0))
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"no cluster at {address}: {said} (allowed: a Dask scheduler's address)") from None
