"""The examples of every ``--help``, quick ones first: tests read each as the command line does, and run the quick."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "rule": (
        "rule --norm post --optimizer adam --arch encoder --layers 24",
        "rule --norm post --optimizer sgd --arch encoder --layers 100 --select deepnet",
        "rule --norm pre --optimizer adamw --arch decoder --layers 48 --activation gelu --width 1024 --why",
        "rule --norm pre --optimizer adamw --arch decoder --layers 48 --json",
        "rule --norm post --optimizer sgd --arch encoder-decoder --layers 18 --decoder-layers 6",
    ),
    "predict": (
        "predict --scheme sub-ln --optimizer sgd --sublayers 8,64,512,1000000000",
        "predict --norm post --residual-weight 1,1/4 --gain 0.7,-1/4 --optimizer adam --sublayers 8,64",
        "predict --scheme deepnorm --optimizer adam --layers 6,12,24,48 --attention --roles --plot deepnorm.svg",
        "predict --scheme pre-ln --optimizer adam --attention --arch decoder --layers 24 --heads 16 --width 1024",
    ),
    "tables": (
        "tables --only cross --activation gelu",
        "tables --only deepnet --markdown",
        "tables --only su-optimizers --latex",
        "tables --derive --json",
    ),
    "schemes": (
        "schemes deepnorm",
        "schemes su-adam",
        "schemes gpt2 --json",
    ),
    "measure": (
        "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16 --width 64 --seeds 8 --no-keep",
        "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16,32,64 --width 512 --seeds 32 --plot post.png",
        "measure --scheme deepnorm --optimizer adam --layers 6,12,24 --attention --width 64 --heads 4 --roles",
        "measure --scheme deepnorm --optimizer adam --attention --arch encoder-decoder --layers 6 --decoder-layers 6",
    ),
    "train": (
        "train --scheme post-ln,deepnorm --layers 6,24 --learning-rate 1e-3,4e-3 --seeds 3 --budget 10",
        "train --scheme post-ln,admin --shape nmt --layers 18 --learning-rate 1e-3 --steps 400 --warmup 100",
        "train --scheme pre-ln --shape gpt --text book.txt.gz --layers 4 --learning-rate 2e-3 --plot book.svg",
    ),
    "experiment": (
        "experiment warmup --plan",
        "experiment thousand-layers --budget 40 --workers 2",
        "experiment stable-rates --from-record --budget 1",
    ),
    "verify": (
        "verify LI-05 S1-34",
        "verify LI-05 --mutants",
        "verify --source deepnet --quick",
        "verify --quick --full",
        "verify --out out/verify.json",
    ),
    "explain": (
        "explain S1-34",
        "explain LI-05 --mutants",
        "explain DN-07 --json",
    ),
    "report": (
        "report --out out/report",
        "report --quick --out out/report",
        "report --from out/verify.json --out out/report",
    ),
}
"""By command, without ``depthlaw`` before each."""


_WIDTH = 80
"""Of a terminal: what is wider it breaks wherever it likes, and what is pasted from there is another command."""


def folded(command: str, indent: str = "  ") -> str:
    r"""Over several lines that each fit a terminal and paste as the one command: broken before options, by backslashes.

    >>> from paper_checks.cli.examples import folded
    >>> print(folded("depthlaw predict --scheme deepnorm --optimizer adam --attention --layers 6,12 --plot it.svg"))
      depthlaw predict --scheme deepnorm --optimizer adam --attention \
          --layers 6,12 --plot it.svg
    """
    lines = [""]
    for part in re.split(r" (?=--)", command):
        joined = f"{lines[-1]} {part}".strip() if len(lines) == 1 else f"{lines[-1]} {part}"
        if lines[-1] and len(f"{indent}{joined} \\") > _WIDTH:
            lines.append(f"    {part}")
        else:
            lines[-1] = joined
    return indent + f" \\\n{indent}".join(lines)


def epilog(command: str) -> str:
    """What stands below the options of a command."""
    return "\n".join(["Examples:", *(folded(f"depthlaw {example}") for example in EXAMPLES[command])])


FIRST = "\n".join(
    [
        "Begin with:",
        *(folded(f"depthlaw {EXAMPLES[command][0]}") for command in ("rule", "predict", "measure")),
        "  depthlaw explain S1-34",
        "So that TAB completes names of schemes, optimizers, claims ... in a new shell:",
        "  depthlaw --install-completion",
    ]
)
"""Below the list of commands."""


def advised(message: str, arguments: Sequence[str]) -> str:
    """What typer refuses a command line with, and what may be meant instead.

    >>> from paper_checks.cli.examples import advised
    >>> advised("Got unexpected extra arguments (8 16)", ["predict", "--sublayers", "4", "8", "16"])
    'Got unexpected extra arguments (8 16); a list is written with commas, such as 4,8,16'
    """
    command, options = arguments[0], [argument.partition("=")[0] for argument in arguments[1:]]
    if command == "rule" and "--scheme" in options:
        return (
            "rule derives a rule and takes no --scheme: DeepNorm is --norm post --select deepnet, and a row of Su's is "
            "--norm post with its --optimizer; how a named scheme grows says `depthlaw predict --scheme NAME`"
        )
    said = message.rstrip(".")
    if "unexpected extra argument" in message and options:
        return f"{said}; a list is written with commas, such as 4,8,16"
    if message.startswith("Missing option") and command in EXAMPLES:
        return f"{said}; for example: depthlaw {EXAMPLES[command][0]}"
    return message


# typer would fill an epilog as it fills prose, so these write it themselves, below all that typer writes.


class Command(TyperCommand):
    """With its examples at the end of its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\n{epilog(str(self.name))}\n")


class Group(TyperGroup):
    """With what to begin with at the end of its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\n{FIRST}\n")
