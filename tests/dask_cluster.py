"""A Dask cluster as its users start one: a scheduler and workers, processes of their own on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client

from depthlaw.system.places import ROOT

PATIENCE = 120.0
"""Seconds for what takes two or three on an idle machine."""


@dataclass
class DaskCluster:
    """folder: of files of its own. environment: variables of the scheduler and all workers."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "scheduler.json"
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        try:
            self.address = self._address()
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        """As soon as all of the scheduler's file is there, which is not written at once."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.processes[0].poll() is None:
            with suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads(self.file.read_text(encoding="utf-8"))["address"]
            time.sleep(0.05)
        raise AssertionError("no scheduler")

    def add_worker(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """One of one thread, without a nanny that would start it again."""
        rest = options or ("--nthreads", "1", "--no-nanny")
        return self._start("dask_worker", *rest, "--local-directory", str(self.folder), **environment)

    def wait_for(self, num_workers: int) -> None:
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(num_workers, timeout=PATIENCE)

    def _start(self, program: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file)]
        path = os.pathsep.join(filter(None, (environment.pop("PYTHONPATH", ""), str(ROOT))))
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--no-dashboard", *options],
                cwd=self.folder,  # not where the tests run
                env=os.environ | {"PYTHONPATH": path} | self.environment | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):  # its session: a nanny has a child
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def dask_cluster(folder: Path, num_workers: int = 2, *options: str, **environment: str) -> Iterator[DaskCluster]:
    """All workers have joined: on a busy machine that takes longer than a test that is impatient would wait."""
    cluster = DaskCluster(folder, environment)
    try:
        for _ in range(num_workers):
            cluster.add_worker(*options)
        if num_workers:
            cluster.wait_for(num_workers)
        yield cluster
    finally:
        cluster.close()
