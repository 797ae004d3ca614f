"""Dask clusters, real ones on loopback: workers that are killed, of another version, or run out of memory."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from depthlaw.sims import cluster as clusters
from depthlaw.sims.cluster import Cluster, LostClusterError, as_they_end, one_at_a_time
from depthlaw.sims.training.store import key
from depthlaw.sims.training.sweep import EndsSweepError, Report, sweep
from tests.dask_cluster import PATIENCE, DaskCluster, dask_cluster
from tests.sims.sweeping import FILE, Logged, configs, execute, log, right
from tests.sims.test_sweep import lines, wrong

LONG = 0.3
"""Seconds of a run, in the middle of which its worker is killed."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """Two workers of two threads each."""
    options = ("--nthreads", "2", "--no-nanny")
    with dask_cluster(tmp_path_factory.mktemp("dask"), 2, *options) as started:
        yield started


def kill_a_worker_at_work(folder: Path, is_over: threading.Event) -> bool:
    """In the middle of a run, when all runs that have ended are kept: none is repeated then that had ended. False where
    it is all over before."""
    seen: dict[str, float] = {}
    while not is_over.is_set():
        by_event: dict[str, dict[str, int]] = {"start": {}, "end": {}, "kept": {}}
        for words in lines(folder):
            by_event[words[0]][words[1]] = int(words[-1])
        begun, ended, kept = by_event.values()
        now = time.monotonic()
        seen = dict.fromkeys(begun, now) | seen
        young = [n for n in begun.keys() - ended.keys() if now - seen[n] < LONG / 2]
        if ended and ended.keys() == kept.keys() and young:
            os.kill(begun[young[0]], signal.SIGKILL)
            return True
        time.sleep(0.005)
    return False


@pytest.mark.wide
@pytest.mark.parametrize(
    ("num_runs", "num_kills"), [(12, 1), pytest.param(200, 12, marks=pytest.mark.slow)], ids=["one", "twelve"]
)
def test_killed_workers_lose_nothing_and_repeat_nothing(tmp_path: Path, num_runs: int, num_kills: int) -> None:
    given = configs(str(tmp_path), num_runs, LONG)
    with dask_cluster(tmp_path / "dask", 2) as started, Logged(tmp_path / FILE) as store:
        is_over, killed = threading.Event(), 0

        def killing() -> None:
            nonlocal killed
            for _ in range(num_kills):
                killed += kill_a_worker_at_work(tmp_path, is_over)
                if num_kills > 1:
                    started.add_worker()
                    time.sleep(random.uniform(2, 4))

        killer = threading.Thread(target=killing)
        killer.start()
        try:
            report = sweep(given, execute, store, partial(Cluster, started.address), at_once=4)
        finally:
            is_over.set()
            killer.join()
        assert report == Report(done=num_runs)
    assert killed == num_kills
    assert not wrong(tmp_path, num_runs)
    counts = {event: Counter(n for name, n, *_ in lines(tmp_path) if name == event) for event in ("end", "kept")}
    assert set(counts["end"].values()) == set(counts["kept"].values()) == {1}
    begun = Counter(words[1] for words in lines(tmp_path) if words[0] == "start")
    assert num_runs < begun.total() <= num_runs + num_kills


# ---------------------------------------------------------------- what workers are


@pytest.mark.wide
def test_workers_are_told_with_their_memory(two: DaskCluster) -> None:
    with Cluster(two.address) as cluster:
        workers = cluster.workers("auto")
        assert (workers.num_workers, workers.device, workers.device_name) == (4, "cpu", "cpu")
        from depthlaw.sims.ensemble import available_bytes

        assert 2**20 < workers.free < available_bytes("cpu") / 3
        with pytest.raises(ValueError, match=r"^device cuda: a worker of tcp://.* sees no GPU \(allowed: auto, cpu\)$"):
            cluster.workers("cuda")


def tell(job: tuple[str, str]) -> int:
    folder, name = job
    with one_at_a_time(name):
        log(folder, "begin", os.getpid(), threading.get_ident())
        time.sleep(0.05)
        log(folder, "end", os.getpid(), threading.get_ident())
    return os.getpid()


@pytest.mark.wide
def test_one_task_at_a_time_whichever_threads_and_processes_ask(two: DaskCluster, tmp_path: Path) -> None:
    """As on a GPU that several of them share."""
    name = f"test-{os.getpid()}"
    with Cluster(two.address) as cluster:
        pids = [pid for _, pid in as_they_end(cluster, tell, deque([(str(tmp_path), name)] * 16))]
    assert len(set(pids)) == 2
    told = lines(tmp_path)
    assert len({tuple(words[1:]) for words in told}) > 2  # more than a thread of each
    assert [words[0] for words in told] == ["begin", "end"] * 16
    assert all(begin[1:] == end[1:] for begin, end in zip(told[::2], told[1::2], strict=True))


@pytest.mark.slow
def test_a_scheduler_that_ends_in_the_middle_is_told_with_what_is_kept(tmp_path: Path, impatient: None) -> None:
    """And before it has a worker, that it has none."""
    given = configs(str(tmp_path), 12, LONG)
    with dask_cluster(tmp_path / "dask", 0) as started, Logged(tmp_path / FILE) as store, ExitStack() as stack:
        with pytest.raises(ValueError, match=r"has no worker: start one \(dask worker"):
            Cluster(started.address)
        for _ in range(2):
            started.add_worker()
        started.wait_for(2)
        other = stack.enter_context(Cluster(started.address))

        def kill(num_done: int) -> None:
            if num_done:
                started.processes[0].kill()

        jobs = as_they_end(other, time.sleep, deque([0.0, 100.0]))
        assert next(jobs) == (0.0, None)
        says = rf"^the cluster was lost: no cluster at {started.address}: .*; runs that ended and are kept in .*: 1; "
        with pytest.raises(EndsSweepError, match=says):
            sweep(given, execute, store, partial(Cluster, started.address), at_once=2, advance=kill)
        assert len(store.keys()) == 1
        while other._client.status != "closed":  # before that it would come back to a scheduler that is started anew
            time.sleep(0.05)
        with pytest.raises(LostClusterError, match=r"^the cluster was lost: its scheduler is gone$"):
            next(jobs)


def square_or_fail(n: int) -> int:
    if n == 3:
        raise ValueError("three is not to be squared")
    return n * n


def test_jobs_come_as_they_end_and_the_first_error_behind_them(tmp_path: Path) -> None:
    options = ("--nthreads", "2", "--no-nanny")
    with dask_cluster(tmp_path / "dask", 1, *options) as one, Cluster(one.address) as cluster:
        jobs = deque([1, 2])
        ended = {}
        for job, result in as_they_end(cluster, square_or_fail, jobs):
            ended[job] = result
            if job < 10:
                jobs.append(job + 10)
        assert ended == {n: n * n for n in (1, 2, 11, 12)}
        with pytest.raises(ValueError, match=r"^three is not to be squared$"):
            dict(as_they_end(cluster, square_or_fail, deque([3])))


# ---------------------------------------------------------------- what is refused, in a line


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT", 1.0)


def test_a_scheduler_that_is_not_there_is_told(impatient: None) -> None:
    with pytest.raises(ValueError, match=r"^no cluster at tcp://127\.0\.0\.1:1: .* \(allowed: a Dask scheduler's"):
        Cluster("tcp://127.0.0.1:1")
    for address in ("", "nowhere", "tls://127.0.0.1:8786", "http://127.0.0.1:8786", "here:0", "here:65536", "*:8786"):
        with pytest.raises(ValueError, match=r"which is no address \(allowed: tcp://HOST:PORT\)$"):
            Cluster(address)


class Page(BaseRequestHandler):
    """As the page that a scheduler shows answers, on a port beside its own."""

    def handle(self) -> None:
        self.request.recv(1)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class Few(BaseRequestHandler):
    """As a server that says a few bytes and waits."""

    def handle(self) -> None:
        self.request.sendall(b"hello\n")
        while self.request.recv(1):
            pass


class Silent(BaseRequestHandler):
    """As a server that takes what it is told."""

    def handle(self) -> None:
        while self.request.recv(1):
            pass


@pytest.mark.wide
@pytest.mark.parametrize("kind", [Page, Few, Silent])
def test_a_server_that_is_no_scheduler_is_told(kind: type[BaseRequestHandler], impatient: None) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        says = (
            rf"^no cluster at {place}: what answers there is no Dask scheduler \(allowed: a Dask scheduler's address\)$"
        )
        with pytest.raises(ValueError, match=says):
            Cluster(place)
        server.shutdown()


@pytest.mark.slow
def test_a_worker_of_another_version_is_refused_when_it_is_there_and_when_it_joins(tmp_path: Path) -> None:
    other = tmp_path / "other" / "depthlaw-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: depthlaw\nVersion: 0.0.9\n", encoding="utf-8")
    says = r"^the worker .* has depthlaw 0\.0\.9, not \d\S* \(allowed: this very depthlaw, torch, numpy and Python; "
    with dask_cluster(tmp_path / "dask", 1) as started:
        with Cluster(started.address) as cluster:
            started.add_worker(PYTHONPATH=str(other.parent))
            cluster._client.wait_for_workers(2, timeout=PATIENCE)
            (late,) = set(cluster._client.scheduler_info()["workers"]) - set(cluster.addresses)
            with pytest.raises(ValueError, match=says):
                cluster.submit(square_or_fail, 1, workers=[late]).result()
        with pytest.raises(ValueError, match=says):
            Cluster(started.address)


@pytest.mark.slow
def test_a_worker_without_depthlaw_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['depthlaw.sims'] = None\n", encoding="utf-8")
    says = r"^the worker tcp://\S+ cannot load depthlaw: .*No module named 'depthlaw\.sims\.cluster'.* \(allowed: "
    with dask_cluster(tmp_path / "dask", 0) as started:
        started.add_worker(PYTHONPATH=str(tmp_path))
        with pytest.raises(ValueError, match=says):
            Cluster(started.address)


@pytest.mark.slow
def test_other_code_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    own = clusters.versions()
    assert own["depthlaw"] and len(own["code"]) == 12
    assert clusters.difference(own) == ""
    assert clusters.difference({**own, "code": "0"}).startswith("has other code of depthlaw than is here (allowed: ")
    assert clusters.difference({**own, "torch": "1.0"}).startswith(f"has torch 1.0, not {own['torch']} ")
    assert clusters.difference({**own, "torch": "1.0"}, is_here=False).startswith(f"has torch {own['torch']}, not 1.0 ")


def eat(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run 2 takes ever more memory."""
    for config in configs:
        log(config["folder"], "start", config["n"], os.getpid())
        eaten = []
        while config["n"] == 2:
            eaten.append(bytearray(b"x" * 2**24))
            time.sleep(0.005)
        log(config["folder"], "end", config["n"])
    return [right(config) for config in configs]


@pytest.mark.slow
def test_a_run_that_takes_too_much_memory_is_told_and_takes_no_other_with_it(tmp_path: Path) -> None:
    given = configs(str(tmp_path), 8)
    options = ("--nthreads", "1", "--memory-limit", "1GB")
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with dask_cluster(tmp_path / "dask", 1, *options, **once) as started, Logged(tmp_path / FILE) as store:
        report = sweep(given, eat, store, partial(Cluster, started.address), at_once=3)
        assert report == Report(done=7, failed={key(given[2]): report.failed[key(given[2])]})
        assert report.failed[key(given[2])].startswith("its worker died wherever it ran, alone too (killed, or out of ")
        assert "--memory-limit" in report.failed[key(given[2])]
        assert [store.find(config) for config in given] == [right(c) if c["n"] != 2 else None for c in given]
        says = r"^the workers that tried it died \(killed, or out of memory\): give workers more memory "
        with Cluster(started.address) as cluster, pytest.raises(ValueError, match=says):
            list(as_they_end(cluster, eat, deque([[given[2]]])))
