"""The command line. Only typer is imported here, so that ``depthlaw --help`` answers at once.

Exit 0: done and as expected. 1: a verdict differs from the expected one. 2: unusable input, said in one line. 130:
interrupted, said in one line too.
"""

from __future__ import annotations

from depthlaw.system import stopping  # first: from here on Ctrl-C leaves no traceback

# isort: split
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from depthlaw.cli import (
    advise,
    audit,
    bench,
    experiment,
    explain,
    measure,
    predict,
    report,
    rule,
    schemes,
    tables,
    train,
    verify,
    watch,
)
from depthlaw.cli.shared.options import BadInputError, unfolded
from depthlaw.cli.shared.output import printed, say
from depthlaw.system.kept import clear, folder, keeping
from depthlaw.system.processes import collect_rarely, is_under_torchrun

# typer vendors click in newer versions and depends on it in older ones; its own exceptions tell which.
ClickError = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException" and issubclass(kind, Exception)
)

_REFUSED = 2
EXTRAS = {
    "verify": ("hypothesis", "z3", "latex2mathml", "markdown_it", "sklearn"),
    "cluster": ("dask", "distributed"),
}
"""What an extra of the wheel brings, by the names that are imported."""
_VERIFYING = ("verify", "report")
_KEEPING = ("advise", "rule", "predict", "audit", "explain", "schemes")
"""Commands that people wait for: what theory answers them is kept, and read when it is asked for again."""
_PRINTING = ("advise", "rule", "predict", "explain", "schemes")
"""Commands of which even what they print is kept, where their answer depends on nothing else than their arguments."""
_ELSEWHERE = ("--model", "--hf", "--input", "--plot", "--anew", "--mutants")
"""How arguments begin that name a file or code of the user's, or want to be answered anew."""
_WIDTH = 80
"""Of a terminal: what is wider it breaks wherever it likes, and what is pasted from there is another command."""
_COMMANDS = {
    "What to use, and how it grows": (advise, rule, predict, tables, schemes),
    "On real networks": (audit, watch, measure, train, experiment, bench),
    "What the papers print": (verify, explain, report),
}
"""The modules of the commands by the panel of ``--help`` that they stand in. A command is called as its module is."""


EXAMPLES = {module.__name__.rpartition(".")[2]: module.EXAMPLES for modules in _COMMANDS.values() for module in modules}
"""By command, without ``depthlaw`` before each, quick ones first: tests read them all and run the quick."""


# ---------------------------------------------------------------- examples, below each --help


def folded(command: str, indent: str = "  ") -> str:
    r"""Over several lines that each fit a terminal and paste as the one command: broken before options, by backslashes.

    >>> from depthlaw.cli.app import folded
    >>> print(folded("depthlaw predict --scheme deepnorm --optimizer adam --attention --layers 6,12 --plot it.svg"))
      depthlaw predict --scheme deepnorm --optimizer adam --attention \
          --layers 6,12 --plot it.svg
    """
    lines: list[str] = []
    for part in re.split(r" (?=--)", command):
        if lines and len(f"{indent}{lines[-1]} {part} \\") <= _WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}" if lines else part)
    return indent + f" \\\n{indent}".join(lines)


def _below(command: str | None) -> str:
    """What stands below the options of a command, or below the list of commands."""
    if command in EXAMPLES:
        return "\n".join(["Examples:", *(folded(f"depthlaw {example}") for example in EXAMPLES[command])])
    first = [*(EXAMPLES[name][0] for name in ("advise", "rule", "predict", "measure")), "explain S1-34"]
    return "\n".join(
        [
            "Begin with:",
            *(folded(f"depthlaw {example}") for example in first),
            "So that TAB completes names of schemes, optimizers, claims ... in a new shell:",
            "  depthlaw --install-completion",
        ]
    )


def advised(message: str, arguments: Sequence[str]) -> str:
    """What typer refuses a command line with, and what may be meant instead.

    >>> from depthlaw.cli.app import advised
    >>> advised("Got unexpected extra arguments (8 16)", ["predict", "--sublayers", "4", "8", "16"])
    'Got unexpected extra arguments (8 16); a list is written with commas, such as 4,8,16'
    """
    command, options = arguments[0], [argument.partition("=")[0] for argument in arguments[1:]]
    if command == "rule" and "--scheme" in options:
        return (
            "rule derives a rule and takes no --scheme: DeepNorm is --norm post --select deepnet, and Su's rules are "
            "--norm post with their --optimizer; how a named scheme grows says `depthlaw predict --scheme NAME`"
        )
    if command == "advise" and {"--lr", "--learning-rate"} & set(options):
        return "advise takes no learning rate: what it prints multiplies the one that you have tuned"
    if "unexpected extra argument" in message and options:
        return f"{message.rstrip('.')}; a list is written with commas, such as 4,8,16"
    if message.startswith("Missing option") and command in EXAMPLES:
        return f"{message.rstrip('.')}; for example: depthlaw {EXAMPLES[command][0]}"
    return message


# typer would fill an epilog as it fills prose, so these write it themselves, below all that typer writes.


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\n{_below(self.name)}\n")


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\n{_below(None)}\n")


# ---------------------------------------------------------------- the app

app = typer.Typer(
    name="depthlaw",
    help="Derives, verifies and audits the depth laws of Transformers: how far a model moves in one optimizer step "
    "as it gets deeper, and which residual weight, init gain and learning rate keep that from growing.\n\n"
    "A sublayer f, attention or FFN, turns the stream x into a x + b f(x): a is the residual weight and b the branch "
    "weight. An init gain multiplies Xavier's standard deviation of a matrix. The update is what one optimizer step "
    "changes the output by. A scheme says what these are at each depth; a recipe is a published model as it is built.",
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"depthlaw {version('depthlaw')}")
        raise typer.Exit


def _clear_cache(is_asked: bool) -> None:
    if is_asked:
        number, size = clear()
        print(f"removed {number} kept answers, {size / 1e6:.1f} MB, from {folder() or 'nowhere: none are kept'}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    clear_cache: Annotated[
        bool,
        typer.Option(
            "--clear-cache",
            callback=_clear_cache,
            is_eager=True,
            help="Remove the answers that are kept so that a question asked again is answered at once.",
        ),
    ] = False,
) -> None:
    pass


for _panel, _modules in _COMMANDS.items():
    for _module in _modules:
        _name = _module.__name__.rpartition(".")[2]
        app.command(_name, cls=Command, rich_help_panel=_panel)(unfolded(_module.run))


def main() -> None:
    """Run the command line; whatever is wrong with the input is said in one line, exit 2, as is Ctrl-C, exit 130."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] == "help":
        if len(arguments) > 2:
            sys.exit(_refuse(f"help is of one command (allowed: depthlaw help {arguments[1]})"))
        arguments = [*arguments[1:], "--help"]
    if sys.stdout is None:
        sys.exit(_refuse("standard output is closed; there is nowhere to write the answer"))
    stopping.begin()
    collect_rarely()
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # derivations come back to what they worked out
    try:
        code = _answer(arguments)
    except BaseException:
        if not stopping.is_stopping():
            raise
        code = stopping.STOPPED  # whatever became of the KeyboardInterrupt on its way
    stopping.finish()
    if is_under_torchrun():  # threads of gloo that still want the interpreter abort one that takes its time to end
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _answer(arguments: list[str]) -> int:
    if is_under_torchrun() and arguments[0] not in ("train", "--help", "-h"):
        return _refuse(
            "torchrun cuts the runs of `depthlaw train` over its processes; any other command is given without it"
        )
    if arguments[0] in _VERIFYING and not {"--help", "-h"} & set(arguments):
        # Before anything is checked: a check that raises is one that does not hold.
        for package in EXTRAS["verify"]:
            if find_spec(package) is None:
                return _lacks(arguments, package, "verify")
    try:
        with keeping(arguments[0] in _KEEPING):
            code = _run(arguments)
        if code == stopping.STOPPED:  # newer typers return it without a word, older ones raise Abort
            code = _stopped()
        sys.stdout.flush()
    except ClickError as error:
        code = _refuse(advised(error.format_message(), arguments))  # pyright: ignore[reportAttributeAccessIssue]
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if (extra := next((name for name, packages in EXTRAS.items() if package in packages), None)) is None:
            raise
        _drop_output()
        code = _lacks(arguments, package, extra)
    except (typer.Abort, KeyboardInterrupt):
        code = _stopped()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        code = _refuse(f"cannot write or read {error.filename or 'standard output'}: {error.strerror or error}")
    except BadInputError as error:
        code = _refuse(str(error))
    return code if isinstance(code, int) else 0


def _run(arguments: Sequence[str]) -> Any:
    def run() -> Any:
        return app(arguments, standalone_mode=False)

    if arguments[0] not in _PRINTING or any(
        "@" in argument or argument.startswith(_ELSEWHERE) for argument in arguments
    ):
        return run()
    return printed(arguments, run)


def _lacks(arguments: list[str], package: str, extra: str) -> int:
    return _refuse(
        f"`depthlaw {arguments[0]}` needs {package}, which is not installed here "
        f"(allowed: with the extra, `pip install '{_with_extra(extra)}'`)"
    )


def _with_extra(extra: str) -> str:
    """What pip is told to install: from where this depthlaw was, where that is known."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("depthlaw").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url, kind = origin.get("url"), origin.get("vcs_info", {}).get("vcs")
    return f"depthlaw[{extra}]" + (f" @ {kind + '+' if kind else ''}{url}" if url else "")


def _stopped() -> int:
    return stopping.STOPPED if stopping.is_stopping() else _refuse(stopping.line(), stopping.STOPPED)


def _drop_output() -> None:
    """What is still buffered cannot be written; without this the interpreter would try again on its way out."""
    with suppress(OSError):  # where it is no file, nothing is
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str, code: int = _REFUSED) -> int:
    """What torchrun's processes refuse before they have joined, the first one says for all."""
    if stopping.is_follower() and not _has_joined():
        return code
    say(" ".join(message.split()))
    return code


def _has_joined() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_initialized()
