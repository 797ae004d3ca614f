"""Runs the notebooks: python -m depthlaw.paper_checks.pages.notebooks [--fast] [--discard-edits] [NAME ...]

The source of a notebook is notebooks/NAME.py, in jupytext's percent format. It is run from top to bottom in a fresh
kernel and written to notebooks/NAME.ipynb with its pictures, for people who look before they run. --fast runs it with
few seeds and depths, and writes nothing: what the tests do. A digest of the source is kept in the notebook, so that one
that was not run again after a change is found out; and those of its cells, so that one that somebody edited in Jupyter
is not overwritten.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from depthlaw.paper_checks.pages.prose import FAST
from depthlaw.system.files import write_atomically
from depthlaw.system.places import NOTEBOOKS

_KEPT = ("jupytext", "kernelspec")
_TIMEOUT = 1800


class EditedError(Exception):
    """A notebook has something that its source has not, and would lose it."""


def names() -> list[str]:
    """Of all notebooks, in their order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.py"))


def source(name: str) -> Any:
    """The notebook without outputs, from its .py."""
    import jupytext

    notebook = jupytext.read(NOTEBOOKS / f"{name}.py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # else a new name at every run
    return notebook


def digest(name: str) -> str:
    return hashlib.sha256((NOTEBOOKS / f"{name}.py").read_bytes()).hexdigest()


def cells_digests(cells: Iterable[Any]) -> list[str]:
    """sha256 of what stands in each cell, outputs aside. Jupyter adds empty cells and keeps text by lines."""
    written = ([cell["cell_type"], "".join(cell["source"])] for cell in cells)
    return [hashlib.sha256(json.dumps(cell).encode()).hexdigest() for cell in written if cell[1].strip()]


def refuse_edited(name: str) -> None:
    """EditedError, in one line, where NAME.ipynb has an edit that overwriting it would lose.

    An edit is a cell that is not as it was written, by the digests that the notebook keeps, and that the .py does not
    have; or one that was taken out, and that the .py still has. Without the digests, any cell may have been edited.
    """
    path, at = NOTEBOOKS / f"{name}.ipynb", f"{NOTEBOOKS.name}/{name}"
    if not path.exists():
        return
    thrown = f'or throw it away: make notebooks NAME="{name} --discard-edits"'
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        digests = cells_digests(kept["cells"])
        recorded = kept["metadata"].get("depthlaw", {}).get("cells_sha256", [])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EditedError(f"{at}.ipynb is no notebook that can be read, and was kept: mend it, {thrown}") from error
    cells = source(name).cells
    of_source = cells_digests(cells)
    is_taken_out = any(digest in of_source and digest not in digests for digest in recorded)
    edited = [cell for cell in kept["cells"] if not {*cells_digests([cell])} <= {*recorded, *of_source}]
    if not edited and not is_taken_out:
        return
    old = {line for cell in cells for line in cell["source"].splitlines()}
    new = [line.strip() for cell in edited for line in "".join(cell["source"]).splitlines() if line not in old]
    what = f" (`{new[0]}`)" if new else ""
    raise EditedError(f"{at}.ipynb has an edit{what} that {at}.py has not, and was kept: copy it there, {thrown}")


def run(name: str, *, is_fast: bool = False) -> Any:
    """Execute it in a fresh kernel. nbclient's CellExecutionError, with the traceback, where a cell fails."""
    from nbclient import NotebookClient

    os.environ[FAST] = "fast" if is_fast else "full"
    notebook = source(name)
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    # What a cell writes on standard error is kept in the notebook; this is the kernel's own, about its sockets.
    client = NotebookClient(notebook, timeout=_TIMEOUT, kernel_name="python3", resources=where)
    client.execute(stderr=subprocess.DEVNULL)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    notebook.metadata = {key: notebook.metadata[key] for key in _KEPT if key in notebook.metadata}
    notebook.metadata["depthlaw"] = {"source_sha256": digest(name), "cells_sha256": cells_digests(notebook.cells)}
    return notebook


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m depthlaw.paper_checks.pages.notebooks", description="Run the notebooks."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if left out: {', '.join(names())}")
    parser.add_argument("--fast", action="store_true", help="few seeds and depths; write nothing")
    parser.add_argument("--discard-edits", action="store_true", help="overwrite a .ipynb that was edited in Jupyter")
    asked = parser.parse_args(arguments)
    chosen = [Path(name).stem for name in asked.names] or names()
    if unknown := sorted(set(chosen) - set(names())):
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(names())}")
    must_keep = not (asked.fast or asked.discard_edits)
    failed = []
    for name in chosen:
        start = time.monotonic()
        try:
            if must_keep:  # before minutes of work
                refuse_edited(name)
            notebook = run(name, is_fast=asked.fast)
            if must_keep:  # and once more, as somebody may edit it meanwhile
                refuse_edited(name)
            if not asked.fast:
                text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
                write_atomically(NOTEBOOKS / f"{name}.ipynb", text)
        except Exception as error:  # the others are run all the same
            failed.append(name)
            words = f"{error}" if isinstance(error, EditedError) else f"{name} failed\n{error}"
            print(f"depthlaw: {words}", file=sys.stderr)
            continue
        print(f"depthlaw: {name}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
