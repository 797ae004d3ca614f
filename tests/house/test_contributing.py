"""What CONTRIBUTING.md shows is done: its blocks are applied to a copy of the project, and its commands are run there.

A ``diff`` block: ``@@ FILE @@``, then lines that are there (a space first), lines to remove (-) and lines to add (+).
What is there has to stand in the file, once. A ``python FILE`` block is a new file. A ``console`` block: each command
has to succeed, and to print the lines below it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGES = ("theory", "sims", "paper_checks")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def edits(text: str) -> Iterator[tuple[str, str, str]]:
    """(file, what is there, what comes instead) of each part of the ``diff`` blocks."""
    for block in blocks(text, "diff"):
        for name, lines in re.findall(r"^@@ (\S+) @@\n((?:[ +-].*\n|\n)+)", block, re.MULTILINE):
            marked = [(line[:1] or " ", line[1:]) for line in lines.splitlines(keepends=True)]
            old, new = ("".join(line or "\n" for mark, line in marked if mark in keep) for keep in (" -", " +"))
            yield name, old, new


def commands(text: str) -> list[tuple[str, str]]:
    """(command, what it prints) of the ``console`` blocks."""
    parts = (re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks(text, "console"))
    return [(part.partition("\n")[0], part.partition("\n")[2]) for block in parts for part in block]


def copy(folder: Path) -> Path:
    """What the command line needs of the project, without what it keeps."""
    ignored = shutil.ignore_patterns("*.pyc.*", "records")  # what is compiled goes along, but not while it is written
    shutil.copytree(ROOT / "depthlaw", folder / "depthlaw", ignore=ignored, symlinks=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    (folder / "sims" / "records").symlink_to(ROOT / "sims" / "records")
    return folder


def apply(text: str, folder: Path) -> None:
    """AssertionError where what should be there is not, or is twice."""
    for name, old, new in edits(text):
        content = (folder / name).read_text(encoding="utf-8")
        assert content.count(old) == 1, f"{name} has {content.count(old)} times: {old}"
        (folder / name).write_text(content.replace(old, new), encoding="utf-8")
    for block in re.findall(r"^```python (\S+\n.*?)^```", text, re.MULTILINE | re.DOTALL):
        name, _, content = block.partition("\n")
        assert not (folder / name).exists(), name
        (folder / name).write_text(content, encoding="utf-8")


_ASK = """
import json, os, shlex, sys
os.cpu_count = lambda: 1  # no worker processes
import depthlaw
from depthlaw.paper_checks.verify import document
document.small_tables = list  # the claims that are added print no cell of a table
assert depthlaw.__file__.startswith(os.getcwd()), depthlaw.__file__
from tests.command import depthlaw
results = [depthlaw(*shlex.split(line)[1:]) for line in sys.stdin.read().splitlines()]
print(json.dumps([[result.returncode, result.stdout, result.stderr] for result in results]))
"""


def answers(commands: Sequence[str], folder: Path) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each: of the project in this folder, all in one process."""
    settings = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    asked, command = "\n".join(commands), [sys.executable, "-c", _ASK]
    result = subprocess.run(command, cwd=folder, env=settings, input=asked, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


SHOWN = TEXT[TEXT.index("## How to add something\n") :]


def test_what_contributing_changes_is_there(tmp_path: Path) -> None:
    apply(SHOWN, copy(tmp_path))
    assert len([*edits(SHOWN)]) > 5


@pytest.mark.slow
def test_what_contributing_shows_works(tmp_path: Path) -> None:
    """All changes in one copy; an audit finds a fault, which is exit 1."""
    apply(SHOWN, copy(tmp_path))
    asked = commands(SHOWN)
    assert len(asked) > 10
    for (command, wanted), (code, out, err) in zip(asked, answers([one for one, _ in asked], tmp_path), strict=True):
        assert code == (1 if command.startswith("depthlaw audit ") else 0), (command, err)
        there = [" ".join(line.split()) for line in out.splitlines()]
        assert [line for line in wanted.splitlines() if line.strip() and " ".join(line.split()) not in there] == []
