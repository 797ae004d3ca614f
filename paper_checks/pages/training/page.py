"""TRAINING.md and its figures: what the experiments with training say, from their records alone.

    python -m paper_checks.pages.training.page          # rewrites TRAINING.md and figures/training-*.svg, in seconds

A record that is not there, or lacks arms or seeds, makes a page that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paper_checks.claims.claim import Verdict
from paper_checks.experiments import NAMES
from paper_checks.pages.drawing import Drawing, save
from paper_checks.pages.training.figures import drawings
from paper_checks.pages.training.numbers import Record
from paper_checks.pages.training.rates_text import stable_rates
from paper_checks.pages.training.text import head, open_ends, own_row, summary, thousand_layers, warmup
from paper_checks.papers.registry import claims
from paper_checks.system.files import write_atomically
from paper_checks.system.places import FIGURES, RESULTS, TRAINING_RECORDS
from paper_checks.verify.document import say

PAGE = RESULTS / "TRAINING.md"
OPEN_CLAIMS = ("S1-47", "S1-48", "S1-49", "S2-23", "S3-04", "S3-40", "S3-41", "S3-42", "S3-49", "DN-13")


@dataclass(frozen=True)
class Study:
    """records: by experiment. open: claim, part and what would decide it."""

    records: Mapping[str, Record]
    open: Sequence[tuple[str, str, str]]


@cache
def study(folder: Path = TRAINING_RECORDS) -> Study:
    return Study({name: Record.read(name, folder) for name in NAMES}, open_questions())


def open_questions() -> list[tuple[str, str, str]]:
    """What these experiments leave open: the parts that are expected to be undecided, which a test holds to be so."""
    parts = ((id_, part) for id_ in OPEN_CLAIMS for part in claims()[id_].parts)
    return [(id_, part.name, say(part.open, []) or "") for id_, part in parts if part.expected is Verdict.UNDECIDED]


def page(found: Study) -> str:
    """Markdown."""
    drawn = drawings(found.records)

    def images(*names: str) -> str:
        return "".join(_image(name, drawn[name]) for name in names)

    rates, warm, deep, own = (found.records[name] for name in NAMES)
    sections = (
        summary(rates, warm, deep, own),
        head(found.records),
        stable_rates(rates, images("training-rates", "training-curves", "training-predicts")),
        warmup(warm, images("training-warmup")),
        thousand_layers(deep, images("training-thousand", "training-updates")),
        own_row(own, images("training-own-row")),
        open_ends(found.open),
    )
    return "".join(sections).rstrip("\n") + "\n"


def _image(name: str, one: Drawing) -> str:
    if one.is_empty:
        return f"(A figure, {one.title}: nothing of it is in the record yet.)\n\n"
    return f"![{one.title}](figures/{name}.svg)\n\n*{one.caption}*\n\n"


def write(found: Study, to: Path = PAGE, folder: Path = FIGURES) -> None:
    for name, one in drawings(found.records).items():
        if not one.is_empty:
            save(one, folder / f"{name}.svg")
    write_atomically(to, page(found))


if __name__ == "__main__":
    write(study())
