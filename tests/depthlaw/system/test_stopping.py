"""Ctrl-C as a terminal has it: a SIGINT to all processes of the command, at several moments, and again."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

LONGEST = 120
"""Seconds, for a machine that is busy."""
LINE = "depthlaw: interrupted, stopping"
VERIFY, REPORT = ("verify", "--out"), ("report", "--out")
TRAIN = (
    *("train", "--scheme", "post-ln", "--layers", "1", "--learning-rate", "0.001"),
    *("--steps", "9999", "--workers", "1", "--store"),
)

# The terminal is this shell's: where its own process ends, a system drops what nobody has read from it yet.
SHELL = ("sh", "-c", 'exec <"$0"; trap : INT; "$@"; code=$?; sleep 0.3; exit $code')
# The command in a terminal of its own, in which Ctrl-C is not ignored. {patch} is of a mutant, {moment} of a test.
SCRIPT = """
if __name__ == "__main__":
    import importlib.abc, os, signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)

    class At(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == {moment!r}:
                sys.meta_path.remove(self)
                for _ in range({times}):
                    os.killpg(0, signal.SIGINT)
    sys.meta_path.insert(0, At())
    {patch}
    from depthlaw.cli.app import main
    main()
elif {moment!r} == "worker":
    import os, signal
    os.killpg(0, signal.SIGINT)
"""
CORES = "os.cpu_count = lambda: 4"
"""With one core ``verify`` has no workers."""
BUSY = """
    from depthlaw.system import stopping  # first, as in the command
    from depthlaw.system import processes
    from depthlaw.paper_checks.verify import document
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


class Ended(NamedTuple):
    code: int
    shown: str
    left: list[str]


def stopped(folder: Path, *arguments: str, moment: str = "", typed: str = "", times: int = 1, patch: str = "") -> Ended:
    """moment: SIGINT at the import of that module, or where a worker loads its own. typed: Ctrl-C when this is on the
    screen."""
    script = folder / "depthlaw"
    script.write_text(SCRIPT.format(moment=moment, times=times, patch=patch.strip()), encoding="utf-8")
    screen, terminal = pty.openpty()
    command = [*SHELL, os.ttyname(terminal), sys.executable, str(script), *arguments]
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
                    time.sleep(0.003)  # so that they do not count as one
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


NOTHING = f"{LINE}; nothing was written"
WORKERS = {"moment": "worker", "patch": CORES}
MIDDLE = {"patch": BUSY, "typed": "checking claims", "times": 3}
CASES = {
    "at the first import": (VERIFY, {"moment": "typer", "times": 3}, LINE),
    "while theory is imported": (VERIFY, {"moment": "sympy"}, LINE),
    "with a bar on the screen": (VERIFY, MIDDLE, NOTHING),
    "a report, with a bar": (REPORT, MIDDLE, NOTHING),
    "where workers start": (VERIFY, WORKERS, NOTHING),
    "while torch is imported": (TRAIN, {"moment": "torch", "times": 3}, LINE),
    "where workers of runs that are kept start": (TRAIN, {"moment": "worker"}, f"{LINE}; nothing was kept"),
}
QUICK, BAR = list(CASES)[:2], "with a bar on the screen"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=[] if one in QUICK else pytest.mark.wide if one == BAR else pytest.mark.slow)
        for one in CASES
    ],
)
def test_stopped_in_one_line(case: str, tmp_path: Path) -> None:
    """Of train in one process: test_train.py."""
    command, how, said = CASES[case]
    ended = stopped(tmp_path, *command, str(tmp_path / "kept"), **how)
    assert ended.code == 130, ended.shown
    assert "Traceback" not in ended.shown
    assert ended.shown.count(said) == 1
    assert ended.shown.rfind("\x1b[?25h") >= ended.shown.rfind("\x1b[?25l"), "the cursor is hidden"
    assert not ended.left
    assert command is TRAIN or [path.name for path in tmp_path.iterdir()] == ["depthlaw"], "something was written"
