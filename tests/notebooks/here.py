"""Notebooks in this process and in fast mode, which is how `make test` runs them: everything is imported already.

`make notebooks`, and the slow tests, give each a kernel of its own.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from depthlaw.paper_checks.pages.notebooks import NOTEBOOKS, source
from depthlaw.paper_checks.pages.prose import FAST

Shown = dict[str, Any]
"""By format (text/markdown, image/png ...), what a cell shows."""


def code(name: str) -> list[str]:
    """The cells of a notebook that are run."""
    return [cell.source for cell in source(name).cells if cell.cell_type == "code"]


def shown(cells: Sequence[str], name: str = "notebook", look: Callable[[Figure], object] | None = None) -> list[Shown]:
    """What these cells show, in order, run one after another in a new namespace: pictures are drawn, and everything is
    set in each format that a notebook asks for, but a picture has no bytes. look: is given each picture once it is
    drawn. Where nobody looks at a picture its parts are not laid out, which is most of the work.

    An error is the cell's own, and its traceback has the cell's number and its line.
    """
    found: list[Shown] = []
    formatter = DisplayFormatter()

    def png(figure: Figure) -> bytes:
        if look is None:
            figure.set_layout_engine("none")
        figure.draw_without_rendering()
        if look is not None:
            look(figure)
        return b""

    def display(*objects: Any) -> None:
        found.extend(formatter.format(one)[0] for one in objects)

    def draw() -> None:
        for number in plt.get_fignums():
            found.append({"image/png": png(plt.figure(number))})
        plt.close("all")

    backend, threads, namespace = matplotlib.get_backend(), torch.get_num_threads(), {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), plt.rc_context():
        formatter.formatters["image/png"].for_type(Figure, png)
        patch.setenv(FAST, "fast")
        patch.setattr("IPython.display.display", display)
        patch.setattr("matplotlib.pyplot.show", draw)
        patch.chdir(NOTEBOOKS)
        plt.close("all")
        plt.switch_backend("agg")
        try:
            for number, cell in enumerate(cells, start=1):
                value = _run(cell, f"{name}.py, cell {number}", namespace)
                if value is not None:
                    display(value)
                draw()
        finally:
            plt.close("all")
            plt.switch_backend(backend)
            torch.set_num_threads(threads)
    return found


def _run(cell: str, at: str, namespace: dict[str, Any]) -> Any:
    """The value of its last line, where that is an expression."""
    linecache.cache[at] = (len(cell), None, cell.splitlines(keepends=True), at)  # where a traceback reads it
    tree = ast.parse(cell, at)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, at, "exec"), namespace)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), at, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), at, "eval"), namespace)
