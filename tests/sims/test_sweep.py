"""Sweeps: nothing that was kept is run again or lost, whatever is killed, and whoever else sweeps into the file."""

import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import psutil
import pytest
import torch

from depthlaw.sims.training.store import Store, key
from depthlaw.sims.training.sweep import EndsSweepError, Kind, Report, by_itself, pool, sweep
from tests.sims import sweeping
from tests.sims.sweeping import FILE, LOG, configs, execute, right

ENOUGH = 40
"""More runs than a sweep ends before it is killed, mostly."""
PATIENCE = 200.0
"""Seconds for what takes one or two on an idle machine."""


def start(folder: Path, num: int, *options: str, stdin: int = DEVNULL) -> Popen[str]:
    """In a session of its own, to be killed with its workers."""
    command = [sys.executable, sweeping.__file__, str(folder), str(num), *options]
    return Popen(command, stdin=stdin, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True)


def kill(child: Popen[str]) -> bool:
    """Whether there was something to kill."""
    is_alive = child.poll() is None
    if is_alive:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=PATIENCE)
    return is_alive


def lines(folder: Path) -> list[list[str]]:
    path = folder / LOG
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def logged(folder: Path) -> list[tuple[str, int]]:
    return [(words[0], int(words[1])) for words in lines(folder)]


def worker_pids(folder: Path) -> set[int]:
    return {int(words[2]) for words in lines(folder) if words[0] == "start"}


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def wrong(folder: Path, num: int) -> list[str]:
    """What is not as it has to be after a kill, or at the end; num: how many runs have to be there."""
    faults, kept = [], set()
    for event, n in logged(folder):
        if event == "start" and n in kept:
            faults.append(f"{n} is run again after it was kept")
        if event == "kept":
            kept.add(n)
    with Store(folder / FILE) as store:
        rows = {row.config["n"]: row for row in store.rows()}
    faults += [f"{n} was kept and is lost" for n in sorted(kept - set(rows))]
    faults += [f"{n} has another result" for n, row in rows.items() if row.result != right(row.config)]
    faults += [f"{n} is not there" for n in range(num) if n not in rows]
    with closing(sqlite3.connect(folder / FILE)) as database:
        (state,) = database.execute("PRAGMA integrity_check").fetchone()
    return faults if state == "ok" else [*faults, state]


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    folder, kills, grid = tmp_path, 0, 0
    while kills < 100:
        grid = len({n for event, n in logged(folder) if event == "kept"}) + ENOUGH
        before = len(lines(folder))
        child = start(folder, grid)
        if random.random() < 0.8:  # mostly while it runs and keeps, now and then while it starts
            wait_for(lambda before=before: len(lines(folder)) > before)
        time.sleep(random.uniform(0.0, 0.3))
        kills += kill(child)
        assert not wrong(folder, 0)
    child = start(folder, grid)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    assert not wrong(folder, grid)
    assert max(Counter(n for event, n in logged(folder) if event == "kept").values()) == 1


def times_begun(folder: Path) -> list[int]:
    return sorted(Counter(n for event, n in logged(folder) if event == "start").values())


def test_what_a_killed_process_was_at_work_on_the_other_one_runs(tmp_path: Path) -> None:
    children = [start(tmp_path, ENOUGH, stdin=PIPE) for _ in range(2)]
    assert [child.stdout and child.stdout.readline() for child in children] == ["ready\n"] * len(children)
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    wait_for(lambda: sum(event == "kept" for event, _ in logged(tmp_path)) >= 10)
    assert max(times_begun(tmp_path)) == 1
    assert kill(children[0])
    assert count_claims(tmp_path / FILE) > 0
    out, err = children[1].communicate(timeout=PATIENCE)
    done, there, failed, left = map(int, out.split())
    assert (done + there, failed, left, err) == (ENOUGH, 0, 0, "")
    assert not wrong(tmp_path, ENOUGH)
    assert count_claims(tmp_path / FILE) == 0


class Clock:
    """For ``sims.training.sweep.time``: it goes on while somebody sleeps, and where a test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    time = perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    by_hand = Clock()
    monkeypatch.setattr("depthlaw.sims.training.sweep.time", by_hand)
    return by_hand


def test_what_another_runs_is_waited_for_until_the_deadline(tmp_path: Path, clock: Clock) -> None:
    given = configs(str(tmp_path), 3)
    with Store(tmp_path / FILE) as other, Store(tmp_path / FILE) as store:
        assert other.claim(given[0])

        def end_the_other_s(_: int) -> None:
            if not other.find(given[0]) and len(store.keys()) == 2:
                other.add(given[0], right(given[0]))

        assert sweep(given, execute, store, threads, deadline=clock.now + 1) == Report(done=2, left=1)
        assert clock.now >= 101
        assert other.claim(given[0])
        assert sweep(given, execute, store, threads, advance=end_the_other_s) == Report(found=3)


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def count_claims(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM claims").fetchone()[0]


class OneDies(Executor):
    """A pool in whose first incarnation run 2 is at work when run 3 kills the workers; alone, run 3 kills its own."""

    incarnations = 0

    def __init__(self) -> None:
        self.at_work: list[Future[Any]] = []
        self.is_broken = False
        self.is_first = not OneDies.incarnations
        OneDies.incarnations += 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.is_broken:
            raise BrokenExecutor
        future: Future[Any] = Future()
        numbers = {config["n"] for config in args[1]}
        if 3 in numbers:
            sweeping.log(args[1][0]["folder"], "start", 3)
            self.is_broken = True
        if 3 in numbers or (2 in numbers and self.is_first):
            self.at_work.append(future)
        else:
            future.set_result(fn(*args, **kwargs))
        for lost in self.at_work if self.is_broken else ():
            lost.set_exception(BrokenExecutor())
        return future


@pytest.mark.parametrize("kind_of", [by_itself, sweeping.kind_of], ids=["by themselves", "together"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_worker_that_dies_takes_no_other_run_with_it(
    tmp_path: Path, attempts: int, kind_of: Callable[[Any], Kind], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneDies, "incarnations", 0)
    given = configs(str(tmp_path), 8)
    told: list[int] = []
    with Store(tmp_path / FILE) as store:
        report = sweep(
            given, execute, store, OneDies, kind_of=kind_of, at_once=4, attempts=attempts, advance=told.append
        )
        assert report == Report(done=7, failed={key(given[3]): report.failed[key(given[3])]})
        deaths = Counter(n for event, n in logged(tmp_path) if event == "start")[3]
        assert deaths == max(2, attempts)  # once among others, which does not tell of which run it died
        assert report.failed[key(given[3])] == f"its worker died, {deaths} times (killed, or out of memory)"
        assert sum(told) == 8
        assert [store.find(config) for config in given] == [right(c) if c["n"] != 3 else None for c in given]
    assert count_claims(tmp_path / FILE) == 0


FAILURES = [
    r"KeyError: 'no such\nscheme' (test_sweep.py, line ",
    "ValueError: result.loss[1]: nan is not JSON (allowed: finite numbers, and null for none)",
    "result: a NoneType (allowed: a mapping)",
    "SystemExit: 1 (test_sweep.py, line ",
]


def fail(configs: list[dict[str, Any]]) -> list[Any]:
    return list(map(fail_one, configs))


def fail_one(config: dict[str, Any]) -> Any:
    match config["n"]:
        case 0:
            raise KeyError("no such\nscheme")
        case 1:
            return {"loss": [1.0, float("nan")]}
        case 2:
            return None
        case 3:
            raise SystemExit(1)
    return right(config)


@pytest.mark.parametrize("kind_of", [by_itself, sweeping.kind_of], ids=["by themselves", "together"])
def test_a_run_that_fails_is_told_in_one_line_and_tried_again_by_the_next_sweep(
    kind_of: Callable[[Any], Kind], tmp_path: Path
) -> None:
    given = configs(str(tmp_path), 5)
    claimed: list[int] = []
    with Store(tmp_path / FILE) as store:
        report = sweep(
            given,
            fail,
            store,
            threads,
            kind_of=kind_of,
            at_once=1,
            advance=lambda _: claimed.append(count_claims(tmp_path / FILE)),
        )
        assert (report.done, report.found, report.left, len(store.keys())) == (1, 0, 0, 1)
        assert kind_of is not by_itself or not any(claimed)  # another sweep may try at once what failed in this one
        for config, says in zip(given, FAILURES, strict=False):
            assert report.failed[key(config)].startswith(says)
            assert "\n" not in report.failed[key(config)]
        assert sweep(given, execute, store, threads) == Report(done=4, found=1)
    assert not wrong(tmp_path, 5)


def full_disk(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if configs[0]["n"] == 2:
        raise EndsSweepError("no room")
    return execute(configs)


def test_what_ends_a_sweep_ends_it_and_keeps_what_was_done(tmp_path: Path) -> None:
    with Store(tmp_path / FILE) as store:
        with pytest.raises(EndsSweepError, match=r"^no room$"):
            sweep(configs(str(tmp_path), 9), full_disk, store, threads, at_once=1)
        assert len(store.keys()) == 2 and count_claims(tmp_path / FILE) == 0


def test_runs_of_a_kind_are_made_together(tmp_path: Path) -> None:
    """As many in each chunk as the kind allows, and no more than leave a share for every worker."""
    given, several = configs(str(tmp_path), 20, seconds=0.0), []

    def watch(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        several.append([config["n"] for config in configs])
        return execute(configs)

    def chunks(num: int, at_once: int) -> list[list[int]]:
        several.clear()
        with Store(tmp_path / f"{num} {at_once}") as store:
            done = sweep(
                given[:num], watch, store, lambda: ThreadPoolExecutor(1), kind_of=sweeping.kind_of, at_once=at_once
            )
            assert done == Report(done=num)
            assert [store.find(config) for config in given[:num]] == list(map(right, given[:num]))
        return several

    assert chunks(8, 1) == [[0, 2], [1, 3], [4, 6], [5, 7]]  # two and two, not three and one
    assert chunks(6, 1) == [[0, 2, 4], [1, 3, 5]]
    assert chunks(6, 6) == [[n] for n in range(6)]
    even = [[0, 2], [4, 6, 8], [10, 12], [14, 16, 18]]
    assert chunks(20, 2) == sorted([*even, *([n + 1 for n in chunk] for chunk in even)])


def test_workers_have_one_thread_and_load_torch_only_where_a_run_does(tmp_path: Path) -> None:
    with Store(tmp_path / FILE) as store:
        sweep([{}], sweeping.tell_threads, store, lambda: pool(1))
        assert store.find({}) == {"omp": "1", "has_torch": False}
    with pool(1, preload=["torch"]) as executor:
        (told,) = executor.submit(sweeping.tell_threads, [{}]).result()
        assert told == {"omp": "1", "has_torch": True}
        assert executor.submit(torch.get_num_threads).result() == 1


def test_no_run_begins_after_the_deadline_and_those_that_have_begun_end(tmp_path: Path, clock: Clock) -> None:
    def outlast(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        clock.now += 2
        return execute(configs)

    given, until = configs(str(tmp_path), 20), clock.now + 1
    with Store(tmp_path / FILE) as store:
        # One worker, and more in its queue than it can begin.
        report = sweep(given, outlast, store, lambda: ThreadPoolExecutor(1), at_once=8, deadline=until)
        assert report == Report(done=1, left=19)
        assert sweep(given, outlast, store, threads, deadline=until) == Report(found=1, left=19)
        assert count_claims(tmp_path / FILE) == 0
        assert sweep(given, outlast, store, threads) == Report(done=19, found=1)
    assert times_begun(tmp_path) == [1] * 20


def test_ctrl_c_keeps_what_ended_and_drops_the_claims(tmp_path: Path) -> None:
    child = start(tmp_path, 1000)
    wait_for(lambda: len(worker_pids(tmp_path)) == 2 and any(event == "kept" for event, _ in logged(tmp_path)))
    os.killpg(child.pid, signal.SIGINT)
    assert child.communicate(timeout=PATIENCE) == ("ready\nstopped\n", "")  # and no worker tells how it ended
    assert len({n for event, n in logged(tmp_path) if event == "kept"}) < 1000
    assert not wrong(tmp_path, 0)
    assert count_claims(tmp_path / FILE) == 0


def test_workers_end_with_the_process_that_sweeps(tmp_path: Path) -> None:
    """Killed alone: nobody is left who would tell them."""
    child = start(tmp_path, 2, "3600")
    wait_for(lambda: len(logged(tmp_path)) == 2)
    workers = [psutil.Process(pid) for pid in worker_pids(tmp_path)]
    assert all(worker.is_running() for worker in workers)
    child.kill()
    child.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(is_at_work(worker) for worker in workers))


def is_at_work(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
