"""A long table of cases of one kind: a few in the default lane, all others in the wide and the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def often(cases: Iterable[Any], every: int, wide: int = 0) -> list[Any]:
    """Cases for ``pytest.mark.parametrize``: each ``every``-th is not marked, the first among them; of the others each
    ``wide``-th is marked wide, and the rest slow.

    cases: values, tuples of the values of several arguments, or what ``pytest.param`` gives. wide: 0 for none.
    """
    marked = []
    for index, case in enumerate(cases):
        param: Any = case
        if not hasattr(case, "marks"):
            param = pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
        lane = pytest.mark.slow if not wide or index % wide else pytest.mark.wide
        marks = (*param.marks, lane) if index % every else param.marks
        marked.append(pytest.param(*param.values, marks=marks, id=param.id))
    return marked
