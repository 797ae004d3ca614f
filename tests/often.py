"""A long table of cases of one kind: a few in the default lane, all others in the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def often(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases for ``pytest.mark.parametrize``, all but each ``every``-th of them marked slow; the first is not.

    cases: values, tuples of the values of several arguments, or what ``pytest.param`` gives.
    """
    marked = []
    for index, case in enumerate(cases):
        param: Any = case
        if not hasattr(case, "marks"):
            param = pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
        marks = (*param.marks, pytest.mark.slow) if index % every else param.marks
        marked.append(pytest.param(*param.values, marks=marks, id=param.id))
    return marked
