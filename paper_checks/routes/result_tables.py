"""Printed tables of results, read from their text.

A table is given as its text, tab by tab, bold marks and empty cells included, so that it can be compared with the
source by eye and a claim can quote a row. Numbers stay the strings that were printed: their digits say how they were
rounded. Names are made one (Normformer, NormFormer), a cell for two models is cut in two, and so is ``86.7/86.7`` of
MNLI (matched, mismatched). Empty cells at the end of a line are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest

DIVERGED = "diverged"
AVERAGE = "Avg."
_NAMES = {"Normformer": "NormFormer", "MAGNETO": "Magneto"}
_MNLI = ("MNLI-m", "MNLI-mm")


@dataclass(frozen=True, kw_only=True)
class Score:
    """One printed number. ``printed`` is its text without the bold mark."""

    column: str
    printed: str
    is_bold: bool

    @property
    def value(self) -> Decimal:
        return Decimal(self.printed)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is printed of one run. ``scores`` has the average last, and is empty where the run diverged.

    layers: "24L", that of the block; "" in a table of one depth. rate: the learning rate; "" where none is printed.
    line: the row as it is printed.
    """

    model: str
    layers: str
    rate: str
    is_rate_bold: bool
    scores: tuple[Score, ...]
    line: str

    @property
    def has_diverged(self) -> bool:
        return not self.scores

    def __getitem__(self, column: str) -> Score:
        return next(score for score in self.scores if score.column == column)

    @property
    def counted(self) -> tuple[Score, ...]:
        """The scores that an average can be of."""
        return tuple(score for score in self.scores if score.column != AVERAGE)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of one block: model, printed number, whether it is bold. is_error: the smaller the better."""

    table: str
    block: str
    name: str
    entries: tuple[tuple[str, str, bool], ...]
    is_error: bool = False

    @property
    def place(self) -> str:
        return " ".join(word for word in (self.block, self.table, self.name) if word)

    def only(self, *models: str) -> Column:
        """The same column of these models alone."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry[0] in models))

    def of(self, model: str) -> str:
        return next(printed for name, printed, _ in self.entries if name == model)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A printed table. ``locator``: where it stands in the source."""

    name: str
    locator: str
    text: str
    rows: tuple[Row, ...]
    is_error: bool

    @property
    def blocks(self) -> tuple[str, ...]:
        """Depths in their order; one empty name where the table has none."""
        return tuple(dict.fromkeys(row.layers for row in self.rows))

    @property
    def trained(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.has_diverged)

    def row(self, model: str, layers: str = "") -> Row:
        """The run of that model that did not diverge: there is one."""
        (run,) = (row for row in self.trained if (row.model, row.layers) == (model, layers))
        return run

    def columns(self) -> Iterator[Column]:
        """Every column of every block, the average last."""
        for block in self.blocks:
            rows = [row for row in self.trained if row.layers == block]
            for name in (score.column for score in rows[0].scores):
                entries = tuple((row.model, row[name].printed, row[name].is_bold) for row in rows)
                yield Column(table=self.name, block=block, name=name, entries=entries, is_error=self.is_error)

    def column(self, name: str, block: str = "") -> Column:
        return next(column for column in self.columns() if (column.name, column.block) == (name, block))


# ---------------------------------------------------------------- reading


def _words(cell: str) -> list[tuple[str, bool]]:
    """A cell's words, with whether each is bold."""
    return [(bold or plain, bool(bold)) for bold, plain in re.findall(r"<b>([^<]*)</b>|([^\s<]+)", cell)]


def _header(lines: Sequence[str]) -> tuple[list[str], int]:
    """Names of the columns, and how many lines they take: the second one, where it begins empty, is under the first."""
    top = [cell.replace(r"$\rightarrow$", "->") for cell in lines[0].split("\t")]
    if not lines[1].startswith("\t"):
        return top, 1
    names, group = [], ""
    for over, under in zip_longest(top, lines[1].split("\t"), fillvalue=""):
        group = over or group
        names.append(f"{group} {under}".strip())
    return names, 2


def _scores(column: str, printed: str, is_bold: bool) -> Iterator[Score]:
    names = _MNLI if column == "MNLI" else (column,)
    for name, number in zip(names, printed.split("/"), strict=True):
        yield Score(column=name, printed=str(Decimal(number)), is_bold=is_bold)


def read_table(name: str, locator: str, text: str, *, is_error: bool = False) -> Table:
    """A printed table from its text; ValueError where a row does not fit the header."""
    lines = text.strip("\n").split("\n")
    names, used = _header(lines)
    rows, layers = [], ""
    for line in lines[used:]:
        cells = dict(zip_longest(names, line.split("\t"), fillvalue=""))
        layers = cells.pop("# Layers", "") or layers
        models = [model for model, _ in _words(cells.pop("Models"))]
        rate, is_rate_bold = next(iter(_words(cells.pop("LR", ""))), ("", False))
        has_diverged = DIVERGED in cells.values()
        words = {} if has_diverged else {column: _words(cell) for column, cell in cells.items()}
        if any(len(found) != len(models) for found in words.values()):
            raise ValueError(f"{line!r} has not a number for each model in each column")
        for i, model in enumerate(models):
            scores = tuple(score for column, found in words.items() for score in _scores(column, *found[i]))
            run = {"layers": layers, "rate": rate, "is_rate_bold": is_rate_bold, "scores": scores, "line": line}
            rows.append(Row(model=_NAMES.get(model, model), **run))
    return Table(name=name, locator=locator, text=text, rows=tuple(rows), is_error=is_error)
