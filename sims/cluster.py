"""A Dask cluster as an executor, made here and nowhere else; what its workers are; and tasks that are shared out to it.

Whatever started the workers (``dask worker``, dask-jobqueue, dask-kubernetes, dask-cuda), a scheduler's address is all
that is known of them. Each thread of a worker does one task at a time, with one thread for its arithmetic; on a GPU
there is one task at a time, however many threads and workers share it.

A worker that dies has its tasks given to others by Dask, ``allowed-failures`` times (3, where nobody changed it). Then
the task fails with KilledWorker.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import platform
import re
import socket
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from depthlaw.sims.locks import lock

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
CONNECT = 10.0
"""Seconds in which a scheduler has to answer, and to have a worker."""
MORE_MEMORY = "give workers more memory or fewer threads, such as dask worker --nthreads 1 --memory-limit 16GB"


_LONGEST_GREETING = 2**20
"""Bytes: a scheduler's first message is far shorter."""


def _greets(host: str, port: int) -> bool:
    """Whether what answers there speaks first, as a scheduler does, and says how long its message is. Dask's own client
    takes any bytes for that length, and may wait for the rest for ever."""
    try:
        connection = socket.create_connection((host, port), CONNECT)
    except OSError:  # it may begin in a moment, for which the client waits
        return True
    start = b""
    with connection, suppress(OSError):
        connection.settimeout(CONNECT / 10)
        with suppress(TimeoutError):
            start = connection.recv(8)
        if not start:
            connection.sendall(b"\r\n\r\n")  # a server that waits to be asked answers that
        connection.settimeout(CONNECT)
        while len(start) < 8 and (more := connection.recv(8 - len(start))):
            start += more
    return len(start) == 8 and int.from_bytes(start, "little") < _LONGEST_GREETING


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Of a cluster. num_workers: the number of tasks that are done at a time. device: "cpu" or "cuda". device_name:
    "cpu" or the GPU's name. free: the bytes of memory for each of these tasks, where there are least."""

    num_workers: int
    device: str
    device_name: str
    free: int


def workers_of(scheduler: str | None, device: str) -> Workers:
    """Those of the cluster at this address; without an address, this process. ValueError, in one line, for what is not
    there."""
    from depthlaw.sims.ensemble import available_bytes
    from depthlaw.sims.measure import choose_device, device_name

    if scheduler is not None:
        with Cluster(scheduler) as cluster:
            return cluster.workers(device)
    where = choose_device(device)
    return Workers(num_workers=1, device=where, device_name=device_name(where), free=available_bytes(where))


class LostClusterError(ValueError):
    """In one line: the scheduler ended in the middle."""


class Cluster(Executor):
    """Workers of the Dask scheduler at an address (tcp://host:8786). They need this very depthlaw, with the same torch,
    numpy and Python: what is kept names one version of each. Those that join later are asked too, at their first task.

    device: where tasks run; on "cuda" a GPU has one at a time. ValueError, in one line, where distributed is not
    installed, nothing answers in ``CONNECT`` seconds, no worker is there, or one is of another version.
    """

    def __init__(self, address: str, device: str = "cpu") -> None:
        place = re.fullmatch(r"inproc://\S+|(?:tcp://)?(\[[0-9a-fA-F:.]+\]|[\w.-]+):([0-9]{1,5})", address)
        if place is None or (place[2] is not None and not 0 < int(place[2]) < 2**16):
            raise ValueError(f"no cluster at {address!r}, which is no address (allowed: tcp://HOST:PORT)")
        try:
            from distributed import Client
        except ImportError:
            raise ValueError(
                "a cluster needs distributed, which is not there (allowed: pip install distributed)"
            ) from None
        for name in ("distributed", "distributed.client"):  # what went wrong is said once, in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._address, self._device = address, device
        try:
            if place[1] is not None and not _greets(place[1].strip("[]"), int(place[2])):
                raise ValueError("what answers there is no Dask scheduler")
            self._client = Client(address, timeout=CONNECT, set_as_default=False)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"no cluster at {address}: {reason} (allowed: a Dask scheduler's address)") from None
        try:
            self._facts = self._ask()
        except BaseException:
            self._client.close()
            raise
        # pure=False: Dask would take a run that is tried again for one that it has the outcome of.
        self._executor = self._client.get_executor(pure=False)

    def _ask(self) -> list[dict[str, Any]]:
        from distributed import TimeoutError as TooLateError

        try:
            self._client.wait_for_workers(1, timeout=CONNECT)
        except TooLateError:
            raise ValueError(f"the cluster at {self._address} has no worker: start one (dask worker ADDRESS)") from None
        facts = []
        answers: Any = self._client.run(_about, on_error="return")
        for worker, answer in answers.items():
            if isinstance(answer, OSError):  # it has just gone
                continue
            if isinstance(answer, Exception):
                reason = " ".join(str(answer).split())
                raise ValueError(
                    f"the worker {worker} cannot load depthlaw: {reason} (allowed: this checkout, installed there)"
                )
            if odd := difference(answer["versions"]):
                raise ValueError(f"the worker {worker} {odd}")
            facts.append(answer | {"address": worker})
        if not facts:
            raise ValueError(f"the cluster at {self._address} has no worker: start one (dask worker ADDRESS)")
        return facts

    @property
    def addresses(self) -> list[str]:
        """Of the workers that were there when it was made."""
        return [facts["address"] for facts in self._facts]

    def workers(self, device: str) -> Workers:
        """device: "auto" is a GPU where every worker has one. ValueError, in one line, for cuda where one has none."""
        gpus = [facts["gpu"] for facts in self._facts]
        if device == "cuda" and not all(gpus):
            raise ValueError(f"device cuda: a worker of {self._address} sees no GPU (allowed: auto, cpu)")
        if device != "cpu" and all(gpus):
            free = min(gpu["free"] for gpu in gpus)
            names = " and ".join(sorted({gpu["name"] for gpu in gpus}))
            return Workers(num_workers=len({gpu["id"] for gpu in gpus}), device="cuda", device_name=names, free=free)
        threads = Counter[str]()
        for facts in self._facts:
            threads[facts["host"]] += facts["threads"]
        free = min(min(of["free"] / threads[of["host"]], of["left"] / of["threads"]) for of in self._facts)
        return Workers(num_workers=threads.total(), device="cpu", device_name="cpu", free=max(0, int(free)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.submit(_work, versions(), self._device, fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """cancel_futures: Dask forgets them, those that have begun too, whose threads go on until they end."""
        with suppress(Exception):  # a scheduler that was lost has nothing to forget
            self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=kind is not None)


def is_killed(error: BaseException | None) -> bool:
    """Whether Dask gave a task up, with which several workers have died."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(error, distributed.KilledWorker)


def as_they_end(
    executor: Executor, function: Callable[[_Job], _Result], jobs: deque[_Job]
) -> Iterator[tuple[_Job, _Result]]:
    """Each job with what a function of it gives, as it ends. They begin at once; the caller may add further ones.

    What the function raises goes on to the caller, behind the jobs that have ended well, and what has not begun is
    cancelled; so too where the caller leaves early. ValueError, in one line, where workers died of a job, and
    LostClusterError where the scheduler did.
    """
    under_way: dict[Future[_Result], _Job] = {}

    def begin() -> None:
        while jobs:
            job = jobs.popleft()
            under_way[executor.submit(function, job)] = job

    def through() -> Iterator[tuple[_Job, _Result]]:
        try:
            while under_way:
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda future: future.cancelled() or future.exception() is not None):
                    job = under_way.pop(future)
                    yield job, _outcome(future)
                    begin()
        finally:
            cancel(under_way)

    begin()
    return through()


def cancel(futures: Iterable[Future[Any]]) -> None:
    """Those that have not begun. Of a cluster that was lost, none is there that could."""
    for future in futures:
        with suppress(Exception):
            future.cancel()


def _outcome(future: Future[_Result]) -> _Result:
    try:
        return future.result()
    except CancelledError:
        raise LostClusterError("the cluster was lost: its scheduler is gone") from None
    except Exception as error:
        if not is_killed(error):
            raise
        raise ValueError(f"the workers that tried it died (killed, or out of memory): {MORE_MEMORY}") from None


# ---------------------------------------------------------------- in a worker


def _work(made_with: Mapping[str, str], device: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a worker does of a task."""
    if odd := difference(made_with, is_here=False):
        raise ValueError(f"the worker on {socket.gethostname()} {odd}")
    import torch

    torch.set_num_threads(1)  # a nanny sees to it, and not every worker has one
    if device != "cuda":
        return function(*args, **kwargs)
    with one_at_a_time(str(torch.cuda.get_device_properties(0).uuid)):
        return function(*args, **kwargs)


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Wait for the threads and processes of this user and machine that are in a block of this name, and keep them out.

    The lock is the kernel's: that of a process that was killed is gone.
    """
    path = Path(tempfile.gettempdir(), f"depthlaw-{os.getuid()}-{name}.lock")
    with path.open("a", encoding="utf-8") as file:
        lock(file)
        yield


def _about(dask_worker: Any) -> dict[str, Any]:
    """A worker's answer. free: of its machine's memory; left: of what its nanny lets it take."""
    import psutil
    import torch
    from dask import config

    from depthlaw.sims.ensemble import available_bytes

    limit, left = dask_worker.memory_manager.memory_limit, math.inf
    if limit:
        most = config.get("distributed.worker.memory.terminate", None) or 1.0
        left = most * limit - psutil.Process().memory_info().rss
    gpu = None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        gpu = {"id": str(properties.uuid), "name": properties.name, "free": available_bytes("cuda")}
    return {
        "versions": versions(),
        "host": socket.gethostname(),
        "threads": dask_worker.state.nthreads,
        "free": available_bytes("cpu"),
        "left": left,
        "gpu": gpu,
    }


@cache
def versions() -> dict[str, str]:
    """What a run is kept with, and a digest of this checkout's code as it was when this process first asked."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    rooms = [room for room in root.iterdir() if room.is_dir()]  # links, in a checkout, which rglob would not follow
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    packages = {name: version(name).partition("+")[0] for name in ("depthlaw", "torch", "numpy")}
    return {**packages, "python": platform.python_version(), "code": digest.hexdigest()[:12]}


def difference(theirs: Mapping[str, str], *, is_here: bool = True) -> str:
    """In words, the first version that differs from this process's; empty where none does. is_here: this process is
    the one that keeps what workers do, and not the worker."""
    for name, here in versions().items():
        worker, keeper = (theirs[name], here) if is_here else (here, theirs[name])
        if worker != keeper:
            what = f"{name} {worker}, not {keeper}" if name != "code" else "other code of depthlaw than is here"
            return f"has {what} (allowed: this very depthlaw, torch, numpy and Python; then start the worker again)"
    return ""
