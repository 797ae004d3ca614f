"""Planted faults: the list fits the sources, the script tells a fault from none, and the tests see them all."""

from __future__ import annotations

import os
import subprocess
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
file = "half.py"
old = "x / 2"
new = "x / 2  # of it"
tests = ["test_half.py"]

[[fault]]
name = "a third"
file = "half.py"
old = "x / 2"
new = "x / 3"
tests = ["test_half.py"]

[[fault]]
name = "three times"
file = "half.py"
old = "x * 2"
new = "x * 3"
tests = ["test_half.py"]
"""
PROJECT = {
    "half.py": "def half(x):\n    return x / 2\n\n\ndef double(x):\n    return x * 2\n",
    "test_half.py": "import pytest\nfrom half import double, half\n\n\ndef test_half():\n    assert half(4) == 2\n\n\n"
    "@pytest.mark.slow\ndef test_double():\n    assert double(4) == 8\n",
    **{f"depthlaw/{package}__init__.py": "" for package in ("", *(f"{name}/" for name in script.PACKAGES))},
}


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


@pytest.mark.wide
def test_a_fault_is_told_from_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a project of two functions and their tests, one of which is slow."""
    root = tmp_path / "project"
    for name, text in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for command in ("init", "add ."):
        subprocess.run(["git", "-C", root, "-c", "init.defaultBranch=main", *command.split()], check=True)
    (tmp_path / "some.toml").write_text(PLANTED, encoding="utf-8")
    assert script.main(["--at", str(root)], tmp_path) == 1
    said = capsys.readouterr().out
    assert "some: a comment: MISSED\n" in said
    assert "some: a third: caught by test_half.py::test_half\n" in said
    assert "some: three times: caught by test_half.py::test_double\n" in said
    assert said.endswith("2 of 3 planted faults caught\n")


def test_a_folder_without_git_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--at", str(tmp_path)])
    assert f"--at {tmp_path}: needs git" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_fault_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert script.main(["--workers", str(os.cpu_count() or 1)]) == 0
