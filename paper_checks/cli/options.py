"""How an option of the command line is declared: once, beside the name that the code reads it by.

A command is a function whose parameters are its options. Options that several commands share are the fields of a
dataclass, and a parameter of that type stands for all of them. Only typer is imported here and by the modules of the
commands, so that ``depthlaw --help`` answers at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from paper_checks.cli.choices import (
    ACTIVATIONS,
    NORM_KINDS,
    OPTIMIZERS,
    Completion,
    lowered,
    one_of,
    one_scheme,
)

NETWORK, MORE = "The network", "What is shown, and where it goes"
"""Panels of a ``--help``."""


def option(text: str, metavar: str, panel: str | None = None, complete: Completion | None = None) -> Any:
    """An option with a value."""
    return typer.Option(help=text, metavar=metavar, rich_help_panel=panel, autocompletion=complete)


def named(text: str, choices: str, panel: str | None = None) -> Any:
    """An option whose value is one of a constant of ``paper_checks.cli.choices``."""
    return typer.Option(
        help=text, metavar="NAME", rich_help_panel=panel, autocompletion=one_of(choices), callback=lowered
    )


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


Json = Annotated[bool, flag("--json", "One JSON document on standard output, nothing else.")]
Optimizer = Annotated[str, named(f"{OPTIMIZERS}.", OPTIMIZERS)]
Scheme = Annotated[
    str | None,
    typer.Option(
        help="A named scheme; `depthlaw schemes` lists them.",
        metavar="NAME",
        autocompletion=one_scheme,
        callback=lowered,
    ),
]
Activation = Annotated[str, named(f"{ACTIVATIONS}.", ACTIVATIONS)]
NormKind = Annotated[str, named(f"{NORM_KINDS}.", NORM_KINDS)]
Roles = Annotated[bool, flag("--roles", "A line for each role, and a panel of --plot.", MORE)]
Plot = Annotated[str | None, option("Draw it, log-log: .png, .svg or .pdf.", "FILE", MORE)]


def unfolded(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer reads it: an option for each field of a parameter whose type is a dataclass."""
    plain: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(kind := hints[name]):
            plain.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        inner = get_type_hints(kind, include_extras=True)
        groups[name] = (kind, [field.name for field in fields(kind)])
        for field in fields(kind):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            plain.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=inner[field.name]
                )
            )

    @wraps(command)
    def run(**given: Any) -> Any:
        folded = {name: kind(**{one: given.pop(one) for one in names}) for name, (kind, names) in groups.items()}
        return command(**folded, **given)

    run.__signature__ = inspect.Signature(plain)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    return run
