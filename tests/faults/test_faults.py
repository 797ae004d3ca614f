"""Planted faults: the list fits the sources, the script tells a fault from none, and the fast lane sees them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import __main__ as script

AREAS = {"theory": 16, "audit": 8, "sims": 16, "claims": 12, "commands": 10, "report": 8, "house": 2}
AREAS |= {"watch": 8, "testing": 5}
"""At least so many of each."""
FAULTS = script.read()
PLANTED = """
[[fault]]
name = "a comment"
file = "sims/locks.py"
old = "number = file.fileno()"
new = "number = file.fileno()  # of the system"
tests = ["tests/sims/test_locks.py"]

[[fault]]
name = "two bytes are locked"
file = "sims/locks.py"
old = "windows.LK_NBLCK, 1)"
new = "windows.LK_NBLCK, 2)"
tests = ["tests/sims/test_locks.py"]
"""


def test_there_are_enough_of_every_kind() -> None:
    areas = [fault.area for fault in FAULTS]
    assert all(areas.count(area) >= least for area, least in AREAS.items())
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 64


def is_there(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    path = script.ROOT / file
    return path.is_file() and f"def {function}(" in path.read_text(encoding="utf-8") if function else path.is_file()


def test_faults_can_be_put_in_and_their_tests_are_there() -> None:
    assert [fault.name for fault in FAULTS if fault.new == fault.old or not fault.is_in(script.ROOT)] == []
    assert [fault.name for fault in FAULTS if not (fault.tests and all(map(is_there, fault.tests)))] == []


def test_a_fault_is_told_from_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.toml").write_text(PLANTED, encoding="utf-8")
    assert script.main([], tmp_path) == 1
    said = capsys.readouterr().out
    assert "some: a comment: MISSED\n" in said
    assert "some: two bytes are locked: caught by tests/sims/test_locks.py::" in said
    assert said.endswith("1 of 2 planted faults caught\n")


def test_a_folder_without_git_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--at", str(tmp_path)])
    assert f"--at {tmp_path}: needs git" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_fault_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert script.main(["--workers", str(os.cpu_count() or 1)]) == 0
