"""TRANSFORMERS.md and its figures: real Transformers beside the kernel rung, its laws by role, and what follows.

    python -m paper_checks.pages.transformers.page          # rewrites TRANSFORMERS.md and figures/, from sims/records

Predictions come from paper_checks/generated (``paper_checks.experiments.kernel_laws``), so this takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paper_checks.experiments.kernel_laws import measured
from paper_checks.experiments.sweeps import SWEEPS
from paper_checks.pages.drawing import save
from paper_checks.pages.transformers.cells import Cell, Name, cells
from paper_checks.pages.transformers.figures import drawings
from paper_checks.pages.transformers.growth import Laws, advice, growth, laws, overtaking
from paper_checks.pages.transformers.text import by_role, head, total, variants, width
from paper_checks.system.files import write_atomically
from paper_checks.system.places import FIGURES, RECORDS, RESULTS
from sims.records import record

PAGE = RESULTS / "TRANSFORMERS.md"


@dataclass(frozen=True)
class Study:
    """cells: of the sweep over schemes. variants: of the other."""

    cells: dict[Name, Cell]
    variants: list[Cell]
    laws: Laws


@cache
def study(folder: Path = RECORDS) -> Study:
    """LookupError, in one line, where predictions are not kept. A record that is not there is empty."""
    found = {name: _cells(name, folder / f"{name}.jsonl") for name in ("transformers", "transformer-variants")}
    return Study({cell.name: cell for cell in found["transformers"]}, found["transformer-variants"], laws())


def _cells(sweep: str, path: Path) -> list[Cell]:
    runs = record.read(path) if path.exists() else []
    return cells(SWEEPS[sweep], runs, measured())


def page(found: Study) -> str:
    """Markdown."""
    sections = (
        head(found.cells),
        total(found.cells),
        "".join(_image(name, one.title) for name, one in drawings(found.cells).items()),
        width(found.cells),
        by_role(found.cells),
        variants(found.variants),
        growth(found.laws),
        advice(found.laws),
        overtaking(found.laws),
    )
    return "".join(sections).rstrip("\n") + "\n"


def _image(name: str, text: str) -> str:
    return f"![{text}](figures/{name}.svg)\n\n"


def write(found: Study, to: Path = PAGE, folder: Path = FIGURES) -> None:
    for name, one in drawings(found.cells).items():
        save(one, folder / f"{name}.svg")
    write_atomically(to, page(found))


if __name__ == "__main__":
    write(study())
