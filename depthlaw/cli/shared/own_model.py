"""A model of the user's own, of which ``audit`` and ``advise`` are asked: its options, and what its code may do."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from depthlaw.cli.shared.options import MORE, BadInputError, option
from depthlaw.system.places import ROOT

HF = option(
    "A model type of Hugging Face's transformers, such as gpt2, or a config.json, in place of MODULE:FACTORY. Weights "
    "are random; nothing is downloaded.",
    metavar="NAME",
)
INPUTS = option(
    "MODULE:FUNCTION or path/to/file.py:FUNCTION, which is called with the model and returns what it is called with; "
    "guessed if left out.",
    None,
    metavar="MODULE:FUNCTION",
    called="--input",
)
GROUPS = option(
    "MODULE:FUNCTION or path/to/file.py:FUNCTION, which is called with the model and returns its torch optimizer, a "
    "list of them, or parameter groups: these are compared with the scheme's, tensor by tensor.",
    None,
    metavar="MODULE:FUNCTION",
)
TRACEBACK = option("Where your own code raises an error, print all of its traceback.", None, MORE, called="--traceback")


def where(factory: str | None, hf: str | None) -> tuple[str | None, str | None]:
    """MODULE:FACTORY, and the folder that it is imported from where a path was given. Refuses a path that is not there
    and the name of a repository."""
    if hf is not None and "/" in hf and not hf.endswith(".json"):
        raise BadInputError(
            f"--hf takes a model type, such as llama or gpt2, or the path of a config.json, not {hf}: nothing is "
            "downloaded, and the name of a repository says neither"
        )
    if hf is not None and find_spec("transformers") is None:  # before torch is imported
        raise BadInputError("--hf wants Hugging Face's transformers: pip install transformers")
    if factory is not None and factory.rpartition(":")[0].endswith(".py"):
        path = Path(factory.rpartition(":")[0])
        if not path.is_file():
            raise BadInputError(f"there is no file {path}")
        return f"{path.stem}:{factory.rpartition(':')[2]}", str(path.resolve().parent)
    return factory, None


@contextmanager
def placing(shows_traceback: bool) -> Iterator[None]:
    """To the refusal of an error that the user's own code raised, add where it was raised."""
    try:
        yield
    except BadInputError as error:
        cause = error.__cause__ and error.__cause__.__cause__
        if cause is None:
            raise
        if shows_traceback:
            traceback.print_exception(cause)
        installed = {*sysconfig.get_paths().values(), str(ROOT / "depthlaw")}
        frames = traceback.extract_tb(cause.__traceback__)
        of_user = [frame for frame in frames if not frame.filename.startswith((*installed, "<"))]
        where = f" ({of_user[-1].filename}, line {of_user[-1].lineno})" if of_user else ""
        more = "" if shows_traceback else "; --traceback shows all of it"
        raise BadInputError(f"{error}{where}{more}") from error


@contextmanager
def staying() -> Iterator[None]:
    """A refusal where the user's own code ends the program that runs it."""
    try:
        yield
    except SystemExit as error:
        raise BadInputError(f"your own code ended the program: SystemExit: {error.code}") from error
