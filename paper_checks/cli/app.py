"""The command line. Only typer is imported here, so that ``depthlaw --help`` answers at once.

Exit 0: done and as expected. 1: a verdict differs from the expected one. 2: unusable input, said in one line. 130:
interrupted, said in one line too.
"""

from __future__ import annotations

from paper_checks.system import stopping  # first: from here on Ctrl-C leaves no traceback

# isort: split
import os
import sys

import typer

from paper_checks.cli import experiment, explain, measure, predict, report, rule, schemes, tables, train, verify
from paper_checks.cli.examples import Command, Group, advised
from paper_checks.cli.options import unfolded

# typer vendors click in newer versions and depends on it in older ones; its own exceptions tell which.
ClickError = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException" and issubclass(kind, Exception)
)

_REFUSED = 2

app = typer.Typer(
    name="depthlaw",
    help="Derives, verifies and audits the depth laws of Transformers: how far a model moves in one optimizer step "
    "as it gets deeper, and which residual weight, init gain and learning rate keep that from growing.",
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS = {
    "What to use, and how it grows": (rule, predict, tables, schemes),
    "On real networks": (measure, train, experiment),
    "What the papers print": (verify, explain, report),
}
"""The modules of the commands by the panel of ``--help`` that they stand in. A command is called as its module is."""
for _panel, _modules in _COMMANDS.items():
    for _module in _modules:
        _name = _module.__name__.rpartition(".")[2]
        app.command(_name, cls=Command, rich_help_panel=_panel)(unfolded(_module.run))


def main() -> None:
    """Run the command line; whatever is wrong with the input is said in one line, exit 2, as is Ctrl-C, exit 130."""
    arguments = sys.argv[1:] or ["--help"]
    if sys.stdout is None:
        sys.exit(_refuse("standard output is closed; there is nowhere to write the answer"))
    stopping.begin()
    try:
        code = _answer(arguments)
    except BaseException:
        if not stopping.is_stopping():
            raise
        code = stopping.STOPPED  # whatever became of the KeyboardInterrupt on its way
    stopping.finish()
    sys.exit(code)


def _answer(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False)
        if code == stopping.STOPPED:  # newer typers return it without a word, older ones raise Abort
            code = _stopped()
        sys.stdout.flush()
    except ClickError as error:
        code = _refuse(advised(error.format_message(), arguments))  # pyright: ignore[reportAttributeAccessIssue]
    except (typer.Abort, KeyboardInterrupt):
        code = _stopped()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        code = _refuse(f"cannot write or read {error.filename or 'standard output'}: {error.strerror or error}")
    except ValueError as error:
        from paper_checks.cli.inputs import BadInputError

        if not isinstance(error, BadInputError):
            raise
        code = _refuse(str(error))
    return code if isinstance(code, int) else 0


def _stopped() -> int:
    return stopping.STOPPED if stopping.is_stopping() else _refuse(stopping.line(), stopping.STOPPED)


def _drop_output() -> None:
    """What is still buffered cannot be written; without this the interpreter would try again on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str, code: int = _REFUSED) -> int:
    line = " ".join(message.split())
    print(f"depthlaw: {line}", file=sys.stderr)
    return code
