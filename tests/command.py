"""``depthlaw`` as a shell would run it, but in this process: what it prints, and its exit code.

A process of its own costs seconds for its imports. What only a process can show (Ctrl-C, a closed pipe, what is
imported and what is not) is tested with one; everything else asks here.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NoReturn

import pytest
from typer import main, rich_utils

from depthlaw.cli import app

DEPTHLAW = Path(sys.executable).with_name("depthlaw")
"""The installed command, for what needs a process of its own."""
_OF_THE_TERMINAL = (
    *("COLUMNS", "LINES", "TERMINAL_WIDTH"),
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)
"""What rich and typer ask about the place that they write to."""
_built = cache(main.get_command)
"""The tree of commands, which typer builds anew for each answer."""


def depthlaw(*arguments: str | Path, **environment: str) -> CompletedProcess[str]:
    """The command with these arguments, through the same ``main`` that the installed command calls.

    environment: variables for this call alone, COLUMNS for instance. Without COLUMNS the output is as wide as in a
    pipe, whatever terminal the tests run in, and without colours.

    >>> from tests.command import depthlaw
    >>> refused = depthlaw("predict", "--scheme", "nonesuch", "--optimizer", "sgd", "--sublayers", "4")
    >>> refused.returncode, refused.stdout, len(refused.stderr.splitlines())
    (2, '', 1)
    """
    out, err = _stream("strict"), _stream("backslashreplace")
    command = ["depthlaw", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        patch.setattr(sys.modules["__main__"], "__package__", None)  # else it calls itself `python -m pytest`
        for name in _OF_THE_TERMINAL:
            patch.delenv(name, raising=False)
        patch.setattr(os, "get_terminal_size", _no_terminal)
        patch.setattr(main, "get_command", _built)
        patch.setattr(app, "_PRINTING", ())  # what a test has put in the place of something is to be asked
        patch.setattr(rich_utils, "FORCE_TERMINAL", None, raising=False)  # which typer read at its import
        patch.setattr(rich_utils, "MAX_WIDTH", None, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                app.main()
                code: object = 0
            except SystemExit as end:
                code = end.code
    return CompletedProcess(command, code if isinstance(code, int) else 1, _written(out), _written(err))


def _stream(errors: str) -> TextIOWrapper:
    """As Python opens standard output and standard error: text that is no UTF-8 fails where it would fail there."""
    return TextIOWrapper(BytesIO(), "utf-8", errors, newline="\n", write_through=True)


def _written(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def options(**named: object) -> list[str]:
    """Of a command line.

    >>> options(norm="post", decoder_layers=6)
    ['--norm', 'post', '--decoder-layers', '6']
    """
    return [part for name, value in named.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def _no_terminal(*_: int) -> NoReturn:
    raise OSError("a pipe has no size")


def told(*arguments: str | Path, **environment: str) -> str:
    """What the command answers: exit 0, and nothing on standard error."""
    result = depthlaw(*arguments, **environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def document(*arguments: str | Path) -> dict[str, Any]:
    """The answer as other programs read it."""
    found = json.loads(told(*arguments, "--json"))
    assert found["schema_version"] == 1
    return found


def refusal(*arguments: str | Path, code: int = 2) -> str:
    """The one line in which the command refuses, with nothing on standard output."""
    result = depthlaw(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("depthlaw: ")
    return line
