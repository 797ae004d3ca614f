"""What a watch may be asked, and how it is told otherwise: ValueError, in one line, before the run begins."""

from __future__ import annotations

import math
import operator
import os
import reprlib
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from torch import Tensor, nn


def refused(name: str, allowed: str, value: Any) -> ValueError:
    """The error of a setting that cannot be."""
    shown = reprlib.repr(value) if isinstance(value, (str, bytes, int, float)) else f"of type {type(value).__name__}"
    return ValueError(f"depthlaw.watch: {name} is {allowed}; here it is {shown}")


def module(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise refused("model", "a torch.nn.Module, compiled or wrapped or not", model)
    return model


def optimizers(given: Any) -> Sequence[Any]:
    several = given if isinstance(given, (list, tuple)) else [given]
    for optimizer in several:
        if not callable(getattr(optimizer, "step", None)):
            raise refused("optimizer", "one of torch's optimizers, or several in a list", optimizer)
    return several


def probe(given: Any) -> Any:
    if not (callable(given) or isinstance(given, (Tensor, Mapping, list, tuple))):
        batch = "a batch as the model is called with it (a tensor, a tuple or a dict by name)"
        raise refused("probe", f"{batch}, or a function of the model that returns one", given)
    return given


def count(name: str, given: Any, least: int) -> int:
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None or number < least:
        raise refused(name, f"a whole number of steps from {least} on, such as 100", given)
    return number


def file(name: str, given: Any) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)) or not str(given):
        raise refused(name, 'the name of a file, such as "run.jsonl", or None', given)
    return Path(given)


def share(budget: Any) -> float | None:
    """Of the wall time; None for no bound."""
    if budget is None:
        return None
    text = "" if isinstance(budget, bool) else str(budget).strip()
    try:
        part = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        part = math.nan
    if not 0 < part <= 1:
        raise refused("budget", 'the part of the wall time that looks may take, such as "1%" or 0.01, or None', budget)
    return part


def check_limit(role: Any, update: Any, then: Any = None) -> None:
    if not isinstance(role, str):
        raise refused("a limit's role", 'the name of a role, such as "fc2"', role)
    if isinstance(update, bool) or not isinstance(update, Real) or not float(update) > 0:
        raise refused("a limit's update", "how many times as far, a number above 0 such as 2.0", update)
    if then is not None and not callable(then):
        raise refused("a limit's then", "a function of the role, the step and how many times as far, or None", then)
