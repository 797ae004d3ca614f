"""The README's examples are run: each command succeeds, and where an output is printed there, it is that output."""

import doctest
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def examples(text: str) -> list[tuple[str, str]]:
    """(command, output printed after it) for each ``$ depthlaw`` line of the console blocks."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "output"), examples(README))
def test_readme_command(command: str, output: str) -> None:
    program, *arguments = command.split()
    assert program == "depthlaw"
    settings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    result = subprocess.run(
        [ROOT / ".venv" / "bin" / "depthlaw", *arguments], env=settings, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if output:
        assert plain(result.stdout) == plain(output)


def test_readme_has_examples_with_output() -> None:
    assert len(examples(README)) >= 4
    assert any(output for _, output in examples(README))


def test_examples_find_a_mutant() -> None:
    assert examples("```console\n$ depthlaw x\none\n```\n") == [("depthlaw x", "one\n")]
    assert plain("one  \n") != plain("two")


def failures(text: str) -> int:
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    tests = [doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0) for block in blocks]
    tests = [test for test in tests if test.examples]
    assert tests
    runner = doctest.DocTestRunner(verbose=False)
    return sum(runner.run(test, out=lambda _: None).failed for test in tests)


def test_readme_python() -> None:
    assert failures(README) == 0


def test_readme_python_finds_a_mutant() -> None:
    assert failures("```python\n>>> 1 + 1\n3\n```\n") == 1
