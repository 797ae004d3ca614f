"""``depthlaw`` as a shell would run it, but in this process: what it prints, and its exit code.

A process of its own costs seconds for its imports. What only a process can show (Ctrl-C, a closed pipe, what is
imported and what is not) is tested with one; everything else asks here.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from subprocess import CompletedProcess

import pytest

from paper_checks import cli


def depthlaw(*arguments: str, **environment: str) -> CompletedProcess[str]:
    """The command with these arguments, through the same ``main`` that the installed command calls.

    environment: variables for this call alone, COLUMNS for instance. Without COLUMNS the output is as wide as in a
    pipe, whatever terminal the tests run in.

    >>> from tests.command import depthlaw
    >>> refused = depthlaw("predict", "--scheme", "nonesuch", "--optimizer", "sgd", "--sublayers", "4")
    >>> refused.returncode, refused.stdout, len(refused.stderr.splitlines())
    (2, '', 1)
    """
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["depthlaw", *arguments])
        if "COLUMNS" in os.environ:
            patch.delenv("COLUMNS")
        for name, value in environment.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main()
                code: object = 0
            except SystemExit as end:
                code = end.code
    return CompletedProcess(
        ["depthlaw", *arguments], code if isinstance(code, int) else 1, out.getvalue(), err.getvalue()
    )
