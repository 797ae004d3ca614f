"""Ctrl-C as a terminal has it: a SIGINT to all processes of the command, at several moments, and again."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

LONGEST = 120
"""Seconds, for a machine that is busy."""
LINE = "depthlaw: interrupted, stopping"
VERIFY = ("verify", "--out")
TRAIN = (
    "train",
    "--scheme",
    "post-ln",
    "--layers",
    "1",
    "--learning-rate",
    "0.001",
    "--steps",
    "9999",
    "--workers",
    "1",
    "--store",
)

# The command in a terminal of its own, in which Ctrl-C is not ignored. {patch} is of a mutant, {moment} of a test.
SCRIPT = """
if __name__ == "__main__":
    import fcntl, importlib.abc, os, signal, sys, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    class At(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == {moment!r}:
                sys.meta_path.remove(self)
                for _ in range({times}):
                    os.killpg(0, signal.SIGINT)
    sys.meta_path.insert(0, At())
    {patch}
    from paper_checks.cli.app import main
    main()
elif {moment!r} == "worker":
    import os, signal
    os.killpg(0, signal.SIGINT)
"""
CORES = "os.cpu_count = lambda: 2"
"""On one core ``verify`` has no workers, and on many it has as many."""
BUSY = """
    from paper_checks.system import processes
    from paper_checks.verify import document
    import time
    def busy(ids, *, progress, **_):
        with processes.Workers(1) as workers:
            for _ in range(9):
                workers.submit(time.sleep, 300)
            time.sleep(1)
            progress("checking claims", 1, 9)
            time.sleep(300)
    document.check_all = busy
"""


class Ended:
    def __init__(self, code: int, shown: str, left: list[str]) -> None:
        self.code, self.shown, self.left = code, shown, left


def stopped(
    folder: Path,
    *arguments: str,
    moment: str = "",
    typed: str = "",
    times: int = 1,
    patch: str = "",
    name: str = "depthlaw",
) -> Ended:
    """moment: SIGINT at the import of that module, or where a worker loads its own. typed: Ctrl-C when this is on the
    screen."""
    script = folder / name
    script.write_text(SCRIPT.format(moment=moment, times=times, patch=patch.strip()), encoding="utf-8")
    screen, terminal = pty.openpty()
    command = [sys.executable, str(script), *arguments]
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=settings, start_new_session=True
    )
    os.close(terminal)
    shown, end = b"", time.monotonic() + LONGEST
    try:
        while time.monotonic() < end:
            if select.select([screen], [], [], 1)[0]:
                try:
                    shown += os.read(screen, 65536)
                except OSError:  # nobody has this terminal any more
                    break
            if typed and typed.encode() in shown:
                typed = ""
                for _ in range(times):
                    os.write(screen, b"\x03")
        code = child.wait(LONGEST)
        while (left := processes_of(child.pid)) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        child.kill()
        os.close(screen)
    return Ended(code, shown.decode(errors="replace"), left)


def processes_of(session: int) -> list[str]:
    """Those that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text(encoding="utf-8").rpartition(")")
        except OSError:
            continue
        state, _, _, of, *_ = rest.split()
        if int(of) == session and state != "Z":
            found.append(name)
    return found


def check(ended: Ended, said: str = LINE) -> None:
    assert ended.code == 130, ended.shown
    assert "Traceback" not in ended.shown
    assert ended.shown.count(said) == 1
    assert ended.shown.rfind("\x1b[?25h") >= ended.shown.rfind("\x1b[?25l"), "the cursor is hidden"
    assert not ended.left


@pytest.mark.parametrize(
    ("moment", "command", "times"),
    [("typer", VERIFY, 3), ("sympy", VERIFY, 1), pytest.param("torch", TRAIN, 3, marks=pytest.mark.slow)],
)
def test_at_the_start(moment: str, command: tuple[str, ...], times: int, tmp_path: Path) -> None:
    check(stopped(tmp_path, *command, str(tmp_path / "kept"), moment=moment, times=times))


@pytest.mark.slow
def test_where_workers_start(tmp_path: Path) -> None:
    ended = stopped(tmp_path, *VERIFY, str(tmp_path / "kept"), moment="worker", patch=CORES)
    check(ended, f"{LINE}; nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["depthlaw"]


@pytest.mark.parametrize("command", [VERIFY, pytest.param(("report", "--out"), marks=pytest.mark.slow)])
def test_in_the_middle_with_a_bar(command: tuple[str, ...], tmp_path: Path) -> None:
    ended = stopped(tmp_path, *command, str(tmp_path / "kept"), patch=BUSY, typed="checking claims", times=3)
    check(ended, f"{LINE}; nothing was written")
    assert [path.name for path in tmp_path.iterdir()] == ["depthlaw"]


@pytest.mark.slow
def test_where_the_workers_of_runs_that_are_kept_start(tmp_path: Path) -> None:
    """In one process: test_train.py."""
    ended = stopped(tmp_path, *TRAIN, str(tmp_path / "kept"), moment="worker")
    check(ended, f"{LINE}; what was finished is in")
