"""Many runs on any executor, each kept as it ends: a sweep that was killed goes on where it was.

The process that sweeps alone writes to the store, as each run ends. Before it begins one it claims it there, so two
processes may sweep into one file. What another process is at work on is waited for, and run here if that one dies.

Runs of one kind go to a worker together, where that is cheaper: each still has its own claim and is kept by itself.
"""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_all_start_methods, get_context, parent_process
from traceback import extract_tb
from typing import Any, NamedTuple

from depthlaw.sims.cluster import MORE_MEMORY, cancel, is_killed
from depthlaw.sims.training.store import BEAT, Store, key, plain

Config = dict[str, Any]
Execute = Callable[[list[Config]], Sequence[Mapping[str, Any]]]
POLL = 0.5
"""Seconds between two looks at what another process runs."""


class Kind(NamedTuple):
    """Of a run: what the runs have in common that can be made together, and the most that are."""

    name: Hashable
    most: int


def by_itself(config: Config) -> Kind:
    return Kind(None, 1)


class EndsSweepError(ValueError):
    """What ends a whole sweep and not one run, in a line: no other run would fare better."""


def of_the_disk(error: BaseException | None) -> OSError | None:
    """The OSError that an error is, or that it was raised in the handling of."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


@dataclass
class Report:
    """The outcome of a sweep.

    done: runs that this sweep made. found: that were there, or that another process made meanwhile. failed: by key,
    what went wrong, in a line. left: runs that the deadline left out.

    >>> from depthlaw.sims.training.sweep import Report
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
    """A run of a sweep. deaths: how many workers died with it. is_alone: whether no other is under way, so that a death
    is its own.
    """

    key: str
    config: Config
    deaths: int = 0
    is_alone: bool = False


Chunk = list[_Run]
"""Runs that a worker is handed together."""


def sweep(
    configs: Iterable[Mapping[str, Any]],
    execute: Execute,
    store: Store,
    make_executor: Callable[[], Executor],
    *,
    kind_of: Callable[[Config], Kind] = by_itself,
    at_once: int = 2 * (os.cpu_count() or 1),
    device: str = "cpu",
    advance: Callable[[int], None] = lambda _: None,
    deadline: float | None = None,
    attempts: int = 2,
) -> Report:
    """Run what the store lacks, and keep each result as it ends. A configuration that stands twice is run once.

    execute: from plain configurations to as many plain results; the executor has to be able to send it (a top-level
    function). It is given one, or several of one kind: no more than the kind's most, and no more than give each of
    `at_once` a share. An exception of it, or a result that JSON cannot carry, is reported and not kept: the next sweep
    tries again; where there were several, each is tried by itself first. An EndsSweepError goes on to the caller.
    at_once: what is handed to the executor at a time; twice its workers keep them busy. device: kept with each result.
    advance: told how many more runs were done, were found or have failed. deadline: on the clock of time.monotonic; no
    run begins after it, those that have begun end.

    A worker that dies is replaced with its executor; Dask replaces it and tries its runs again by itself, until it
    gives them up. Nobody knows which run a worker died of, so each that was under way is tried again alone, and has
    failed when it was there at `attempts` deaths, the last of them alone.

    Ctrl-C cancels what has not begun, waits for what has (a worker of `pool` gets the Ctrl-C too, and stops at once; a
    cluster's are not waited for), keeps what ended well, drops the claims, and goes on as KeyboardInterrupt.
    ValueError, in one line, of a configuration that JSON cannot carry; what the store and make_executor raise goes on
    to the caller.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.training.store import Store
    >>> from depthlaw.sims.training.sweep import sweep
    >>> def execute(configs):  # in earnest depthlaw.network.trials.execute, in the processes of pool
    ...     return [{"square": config["x"] ** 2} for config in configs]
    >>> with TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
    ...     first = sweep([{"x": 1}, {"x": 2}, {"y": 3}], execute, store, ThreadPoolExecutor)
    ...     again = sweep([{"x": 1}, {"x": 2}], execute, store, ThreadPoolExecutor)
    >>> first.done, len(first.failed), again.done, again.found
    (2, 1, 0, 2)
    """
    if at_once < 1 or attempts < 1:
        raise ValueError(f"at_once={at_once}, attempts={attempts}: not a number of runs (allowed: 1 and up)")
    runs = {run.key: run for run in (_Run(key(config), plain(config, "config")) for config in configs)}
    sweeping = _Sweep(execute, store, make_executor, kind_of, at_once, device, advance, deadline, attempts)
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
    kind_of: Callable[[Config], Kind]
    at_once: int
    device: str
    advance: Callable[[int], None]
    deadline: float | None
    attempts: int
    report: Report = field(default_factory=Report)
    fresh: deque[Chunk] = field(default_factory=deque)
    busy: list[_Run] = field(default_factory=list)
    suspects: deque[_Run] = field(default_factory=deque)
    under_way: dict[Future[list[_Ended]], Chunk] = field(default_factory=dict)
    executor: Executor | None = None
    has_had_one: bool = False
    last_beat: float = field(default_factory=time.monotonic)

    def through(self, runs: dict[str, _Run]) -> Report:
        there = self.store.keys()
        lacking = [run for run in runs.values() if run.key not in there]
        self._find(len(runs) - len(lacking))
        self.fresh.extend(self._chunks(lacking))
        try:
            while self.fresh or self.busy or self.suspects or self.under_way:
                self._begin_what_may_begin()
                self._take_what_ended()
        except BaseException:
            self._stop()
            raise
        finally:
            self._end_executor()
            with suppress(sqlite3.OperationalError):  # a full disk; the claims of a process that has ended are nobody's
                self.store.release()
        return self.report

    def _chunks(self, runs: Sequence[_Run]) -> list[Chunk]:
        """Runs of one kind together, as many in each chunk; those first whose first run is first."""
        share = math.ceil(len(runs) / self.at_once)
        by_kind: dict[Kind, list[int]] = {}
        for index, run in enumerate(runs):
            by_kind.setdefault(self.kind_of(run.config), []).append(index)
        chunks: list[list[int]] = []
        for kind, indices in by_kind.items():
            num_chunks = math.ceil(len(indices) / max(1, min(kind.most, share)))
            ends = [len(indices) * chunk // num_chunks for chunk in range(num_chunks + 1)]
            chunks += [indices[begin:end] for begin, end in pairwise(ends)]
        return [[runs[index] for index in chunk] for chunk in sorted(chunks)]

    def _seconds_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def _begin_what_may_begin(self) -> None:
        if self._seconds_left() <= 0:
            self.report.left += sum(map(len, self.fresh)) + len(self.busy) + len(self.suspects)
            self.fresh.clear()
            self.busy.clear()
            self.suspects.clear()
        elif self.suspects:
            if not self.under_way:
                run = self.suspects.popleft()
                run.is_alone = True
                self._submit([run])
        elif not any(run.is_alone for chunk in self.under_way.values() for run in chunk):
            if not self.fresh and not self.under_way:
                time.sleep(min(POLL, max(0.0, self._seconds_left())))
                self.fresh.extend(self._chunks(self.busy))
                self.busy.clear()
            while self.fresh and len(self.under_way) < self.at_once:
                chunk = [run for run in self.fresh.popleft() if self._claim(run)]
                if chunk and not self._submit(chunk):
                    break

    def _claim(self, run: _Run) -> bool:
        """Whether it is to be run here; another process may have it, or have had it."""
        if self.store.claim(run.config):
            return True
        if self.store.find(run.config) is not None:
            self._find(1)
        else:
            self.busy.append(run)
        return False

    def _submit(self, chunk: Chunk) -> bool:
        """Hand runs to the executor. False if a worker has died meanwhile: the executor is then replaced the next
        time.
        """
        if self.executor is None:
            self.executor = self._made()
            self.has_had_one = True
        begin_before = time.time() + self._seconds_left()  # a clock that workers elsewhere have too
        try:
            future = self.executor.submit(_execute, self.execute, [run.config for run in chunk], begin_before)
        except BrokenExecutor:
            for run in chunk:
                run.is_alone = False
            self.fresh.appendleft(chunk)
            self._end_executor()
            return False
        self.under_way[future] = chunk
        return True

    def _made(self) -> Executor:
        try:
            return self.make_executor()
        except ValueError as error:
            if not self.has_had_one:
                raise
            raise EndsSweepError(
                f"the cluster was lost: {error}; runs that ended and are kept in {self.store.path}: "
                f"{self.report.done}; the same command goes on from there"
            ) from None

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

    def _take(self, future: Future[list[_Ended]], chunk: Chunk) -> None:
        try:
            error = future.exception()
        except CancelledError as cancelled:  # not by us: the executor has lost it
            error = cancelled
        if isinstance(error, EndsSweepError):
            raise error
        if isinstance(error, BrokenExecutor | CancelledError) or is_killed(error):
            if not is_killed(error):  # Dask replaces workers by itself
                self._end_executor()
            for run in chunk:
                run.deaths += 1
                if run.is_alone and run.deaths >= self.attempts:
                    often = f", {run.deaths} times" if not is_killed(error) else " wherever it ran, alone too"
                    hint = f": {MORE_MEMORY}" if is_killed(error) else ""
                    self._fail(run, f"its worker died{often} (killed, or out of memory){hint}")
                else:
                    self.suspects.append(run)
            return
        ended = future.result() if error is None else [_Ended(error=_in_one_line(error))] * len(chunk)
        for run, outcome in zip(chunk, ended, strict=True):
            if outcome.error is not None and len(chunk) > 1:
                self.fresh.append([run])  # which of them it was, shows by itself
            else:
                self._keep(outcome, run)

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
        cancel(self.under_way)
        self._end_executor()
        for future, chunk in self.under_way.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                for run, ended in zip(chunk, future.result(), strict=True):
                    self._add(ended, run)

    def _end_executor(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
            self.executor = None


def _execute(execute: Execute, configs: list[Config], begin_before: float) -> list[_Ended]:
    """Run configurations in a worker. Errors go back as text: an exception that cannot be sent breaks the pool."""
    if time.time() >= begin_before:
        return [_Ended()] * len(configs)
    start = time.perf_counter()
    try:
        results = execute(configs)
        if len(results) != len(configs):
            raise ValueError(f"{len(results)} results of {len(configs)} runs")
    except EndsSweepError:
        raise
    except (Exception, SystemExit) as error:  # a SystemExit would end a worker of Dask
        return [_Ended(error=_in_one_line(error))] * len(configs)
    return [_ended(result, (time.perf_counter() - start) / len(configs)) for result in results]


def _ended(result: Any, seconds: float) -> _Ended:
    try:
        result = plain(result, "result")
    except ValueError as error:
        return _Ended(error=_in_one_line(error))
    if not isinstance(result, dict):
        return _Ended(error=f"result: a {type(result).__name__} (allowed: a mapping)")
    return _Ended(result=result, seconds=seconds)


def _in_one_line(error: BaseException) -> str:
    """An error in one line: its kind, its message, and the line of code that raised it."""
    reason, trace = " ".join(str(error).split()), extract_tb(error.__traceback__)
    place = f" ({os.path.basename(trace[-1].filename)}, line {trace[-1].lineno})" if trace else ""
    return f"{type(error).__name__}{': ' if reason else ''}{reason}{place}"


# ---------------------------------------------------------------- executors


def pool(num_workers: int, *, preload: Sequence[str] = ()) -> ProcessPoolExecutor:
    """Processes of this machine, each with one thread for its arithmetic, started as they are needed.

    Started afresh, not forked: a fork of a process with threads, as torch has, may hang. preload: modules that all of
    them use, where importing those is much of the work: a process that does nothing else imports them, and the others
    are forks of that one, where the system has forks.

    >>> from depthlaw.sims.training.sweep import pool
    >>> with pool(2) as executor:  # no process yet
    ...     print(type(executor).__name__)
    ProcessPoolExecutor
    """
    if preload and "forkserver" in get_all_start_methods():
        context = get_context("forkserver")
        context.set_forkserver_preload(list(preload))
    else:
        context = get_context("spawn")
    return ProcessPoolExecutor(num_workers, mp_context=context, initializer=_begin_worker)


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
