"""What CONTRIBUTING.md shows is done: its blocks are applied to a copy of the project, and its commands are run there.

A ``diff`` block: ``@@ FILE @@``, then lines that are there (a space first), lines to remove (-) and lines to add (+).
What is there has to stand in the file, once. A ``python FILE`` block is a new file. A ``console`` block: each command
has to succeed, and to print the lines below it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMES = ("A claim", "A scheme", "An optimizer", "An activation")
RUN = """
import shlex, sys
from paper_checks.cli import main
for command in sys.stdin:
    print("$", command, end="", flush=True)
    sys.argv = shlex.split(command)
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def section(name: str, text: str = TEXT) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


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


def apply(text: str, folder: Path) -> None:
    """Into a new copy of what the command line needs. AssertionError where what should be there is not, or is twice."""
    ignored = shutil.ignore_patterns("__pycache__", "records")
    for package in ("theory", "sims", "paper_checks"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    (folder / "sims" / "records").symlink_to(ROOT / "sims" / "records")
    for name, old, new in edits(text):
        content = (folder / name).read_text(encoding="utf-8")
        assert content.count(old) == 1, f"{name} has {content.count(old)} times: {old}"
        (folder / name).write_text(content.replace(old, new), encoding="utf-8")
    for block in re.findall(r"^```python (\S+\n.*?)^```", text, re.MULTILINE | re.DOTALL):
        name, _, content = block.partition("\n")
        assert not (folder / name).exists(), name
        (folder / name).write_text(content, encoding="utf-8")


def missing(text: str, folder: Path) -> list[str]:
    """The promised lines that are not printed, command by command; where one fails, the end of what it says."""
    asked = commands(text)
    lines = "".join(f"{command}\n" for command, _ in asked)
    result = subprocess.run(
        [sys.executable, "-c", RUN], input=lines, cwd=folder, capture_output=True, text=True, check=False
    )
    if result.returncode:
        return [result.stderr.strip().splitlines()[-1]]
    printed = re.split(r"^\$ .*$", result.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == len(asked)
    gaps = []
    for (_, wanted), found in zip(asked, printed, strict=True):
        there = [" ".join(line.split()) for line in found.splitlines()]
        gaps += [line for line in map(str.strip, wanted.splitlines()) if " ".join(line.split()) not in there]
    return gaps


@pytest.mark.parametrize("name", NAMES)
def test_what_contributing_shows_works(name: str, tmp_path: Path) -> None:
    text = section(name)
    assert commands(text) and any(output for _, output in commands(text))
    apply(text, tmp_path)
    assert missing(text, tmp_path) == []


def test_every_example_is_tried() -> None:
    assert tuple(re.findall(r"^### (.*)$", TEXT, re.MULTILINE)) == NAMES


def changed(name: str, old: str, new: str) -> str:
    """A section with a mistake in it, and the first of its commands that promises something."""
    text = section(name)
    assert text.count(old) == 1, (name, old)
    first = next(f"```console\n$ {command}\n{output}```\n" for command, output in commands(text) if output)
    return re.sub(r"^```console\n.*?^```\n", "", text.replace(old, new), flags=re.MULTILINE | re.DOTALL) + first


MUTANTS = {
    "another claim": ("A claim", 'optimizer="sgd"', 'optimizer="adam"'),
    "another power": ("A scheme", "residual_weight=L ** Rational(1, 3)", "residual_weight=L ** Rational(1, 4)"),
    "another step": ("An optimizer", "root_mean_square(theta) * g", "g"),
    "another branch": ("An activation", "negative=sp.exp(u) - 1", "negative=u"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_a_block_is_seen(mutant: str, tmp_path: Path) -> None:
    text = changed(*MUTANTS[mutant])
    apply(text, tmp_path)
    assert missing(text, tmp_path)


def test_a_line_that_is_not_there_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="0 times"):
        apply(section("A scheme").replace(" _ALL = (", " _EVERY = ("), tmp_path)
