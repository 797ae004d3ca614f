"""Statements on printed tables of results, and the checks on them: who is best, what is bold, by how much, what ran.

Two routes each. One takes the printed numbers as they stand, in exact decimals. The other takes each as the interval
that rounds to it, in fractions, or reads the printed line again without the reader of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from paper_checks.claims.claim import Check, Mutant, Route
from paper_checks.routes.checks import Answers, check
from paper_checks.routes.result_tables import DIVERGED, Column, Table

OURS = "Magneto"


def _printed_lines(table: Table) -> Iterator[tuple[list[str], str]]:
    """The printed lines read again: the cells of each, and the depth of its block."""
    layers = ""
    for line in table.text.splitlines():
        cells = re.sub(r"</?b>", "", line).split("\t")
        layers = next((cell for cell in cells if re.fullmatch(r"\d+L", cell)), layers)
        yield cells, layers


# ---------------------------------------------------------------- who is best


@dataclass(frozen=True, kw_only=True)
class Wins:
    """One model is better than each other one in every column given: strictly."""

    columns: tuple[Column, ...]
    model: str = OURS

    @property
    def text(self) -> str:
        rivals = dict.fromkeys(name for column in self.columns for name, *_ in column.entries if name != self.model)
        places = ", ".join(column.place for column in self.columns)
        return f"{self.model} is better than {', '.join(rivals)} in each of {len(self.columns)} columns: {places}"


def wins_of(columns: Sequence[Column], *models: str, model: str = OURS) -> Wins:
    """The statement on these columns; of the models named alone, where any are."""
    return Wins(columns=tuple(column.only(*models) if models else column for column in columns), model=model)


def swapped(statement: Wins, *numbers: int) -> tuple[Mutant, ...]:
    """Mutants, one for each column given: in it the model and its first rival have changed places."""
    out = []
    for i in numbers:
        columns = list(statement.columns)
        rival = next(name for name, *_ in columns[i].entries if name != statement.model)
        names = {statement.model: rival, rival: statement.model}
        columns[i] = replace(columns[i], entries=tuple((names.get(e[0], e[0]), *e[1:]) for e in columns[i].entries))
        name = f"{columns[i].place}: two models swapped"
        out.append(Mutant(name=name, statement=replace(statement, columns=tuple(columns))))
    return tuple(out)


def best(column: Column) -> tuple[str, ...]:
    """Who has the best printed number of a column; several where they tie."""
    values = {name: Decimal(printed) for name, printed, _ in column.entries}
    top = min(values.values()) if column.is_error else max(values.values())
    return tuple(name for name, value in values.items() if value == top)


def _best(column: Column) -> str:
    """The best printed number of a column, and whose it is."""
    return f"{' = '.join(best(column))} {column.of(best(column)[0])}"


def _margin(column: Column, model: str) -> Decimal:
    """By how much the model is better than the best of the others; negative where it is worse."""
    sign = -1 if column.is_error else 1
    others = (Decimal(printed) for name, printed, _ in column.entries if name != model)
    return min(sign * (Decimal(column.of(model)) - other) for other in others)


def _line(column: Column) -> str:
    return ", ".join(f"{name} {printed}" for name, printed, _ in column.entries)


def wins(id_: str) -> tuple[Check, ...]:
    """Printed numbers as they stand, and the intervals that round to them."""

    def as_printed(statement: Wins) -> Answers:
        margins = {column: _margin(column, statement.model) for column in statement.columns}
        lost = sorted((column for column in margins if margins[column] <= 0), key=lambda column: margins[column])
        return Answers(
            holds=[margin > 0 for margin in margins.values()],
            detail=f"printed numbers compared: better in {len(margins) - len(lost)} of {len(margins)} columns",
            numbers={"best": {c.place: _best(c) for c in margins}, "least margin": str(min(margins.values()))},
            steps=tuple(f"{column.place}: {_line(column)}" for column in margins),
            counterexample=_loss(id_, statement, lost) if lost else None,
        )

    return check(Route.ARITHMETIC, "", as_printed, is_direct=True), _wins_whatever_was_rounded


def _loss(id_: str, statement: Wins, lost: Sequence[Column]) -> Mapping[str, Any]:
    """What is printed where the model is not the best. lost: the widest loss first."""
    worst = lost[0]
    more = f"; and {len(lost) - 1} more columns" if len(lost) > 1 else ""
    return {
        "printed": f"{statement.model} better in each of {len(statement.columns)} columns",
        "found": f"{worst.place}: {_best(worst)}, {statement.model} {worst.of(statement.model)}{more}",
        "columns": {column.place: _line(column) for column in statement.columns if column in lost},
        "command": f"depthlaw explain {id_}",
    }


def rounded_from(printed: str) -> tuple[Fraction, Fraction]:
    """All that rounds to a printed number: half a unit in its last place each way."""
    half = Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))
    return Fraction(printed) - half, Fraction(printed) + half


@check(
    Route.NUMERIC,
    "the same for any scores that round to the printed ones: their intervals do not meet",
    is_direct=True,
)
def _wins_whatever_was_rounded(statement: Wins) -> list[bool | None]:
    """True where the intervals lie apart the right way, False where the wrong way, None where they touch."""
    out: list[bool | None] = []
    for column in statement.columns:
        low, high = rounded_from(column.of(statement.model))
        for name, printed, _ in column.entries:
            if name == statement.model:
                continue
            their_low, their_high = rounded_from(printed)
            better, worse = low > their_high, high < their_low
            if column.is_error:
                better, worse = worse, better
            out.append(True if better else False if worse else None)
    return out


# ---------------------------------------------------------------- by how much


@dataclass(frozen=True, kw_only=True)
class Gains:
    """By how much Magneto is above Pre-LN: block, column and the difference as a string."""

    table: Table
    entries: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"{block} {column}: {gain}" for block, column, gain in self.entries)

    def with_(self, block: str, column: str, gain: str) -> Gains:
        """A mutant: another difference in one column."""
        new = tuple((b, c, gain if (b, c) == (block, column) else g) for b, c, g in self.entries)
        return replace(self, entries=new)


@check(Route.ARITHMETIC, "Magneto minus Pre-LN, in exact decimals", is_direct=True)
def _gains_of_table(statement: Gains) -> list[bool | None]:
    columns = [(statement.table.column(name, block), gain) for block, name, gain in statement.entries]
    return [Decimal(column.of(OURS)) - Decimal(column.of("Pre-LN")) == Decimal(gain) for column, gain in columns]


@check(Route.CITATION, "the printed lines read again, in units of the last place", is_direct=True)
def _gains_of_lines(statement: Gains) -> list[bool | None]:
    """From the printed line of each block: its numbers two by two, in units of the last place."""
    gains: dict[str, list[int]] = {}
    for cells, layers in _printed_lines(statement.table):
        digits = [int(word.replace(".", "")) for word in re.findall(r"\d+\.\d+", " ".join(cells))]
        gains[layers] = [ours - theirs for theirs, ours in zip(digits[::2], digits[1::2], strict=True)]
    names = [score.column for score in statement.table.rows[0].scores]
    return [gains[block][names.index(name)] == int(gain.replace(".", "")) for block, name, gain in statement.entries]


GAIN_CHECKS = (_gains_of_table, _gains_of_lines)


# ---------------------------------------------------------------- what is bold


@dataclass(frozen=True, kw_only=True)
class Bold:
    """In every column given, what is bold is what is best, ties included, and nothing else."""

    columns: tuple[Column, ...]

    @property
    def text(self) -> str:
        count = sum(is_bold for column in self.columns for *_, is_bold in column.entries)
        return f"{count} bold numbers in {len(self.columns)} columns: in each column the best, and no other"

    def with_flipped(self, place: str, model: str) -> Bold:
        """A mutant: one mark set or taken away."""
        return self._with(place, lambda e: (e[0], e[1], not e[2]) if e[0] == model else e)

    def with_printed(self, place: str, model: str, printed: str) -> Bold:
        """A mutant: another number under the same marks."""
        return self._with(place, lambda e: (e[0], printed, e[2]) if e[0] == model else e)

    def _with(self, place: str, change: Any) -> Bold:
        columns = {column.place: column for column in self.columns}
        columns[place] = replace(columns[place], entries=tuple(map(change, columns[place].entries)))
        return Bold(columns=tuple(columns.values()))


@check(
    Route.ARITHMETIC,
    "the bold entries of a column are those with its largest number, or smallest error rate",
    is_direct=True,
)
def _bold_is_best(statement: Bold) -> Answers:
    is_best = {c.place: tuple(name for name, _, is_bold in c.entries if is_bold) == best(c) for c in statement.columns}
    ties = {c.place: " = ".join(best(c)) for c in statement.columns if len(best(c)) > 1}
    wrong = [place for place, right in is_best.items() if not right]
    return Answers(holds=list(is_best.values()), numbers={"columns": len(is_best), "ties": ties, "wrong": wrong})


@check(Route.NUMERIC, "every bold entry against every other of its column", is_direct=True)
def _bold_by_pairs(statement: Bold) -> list[bool | None]:
    """Pair by pair: the bold one better than the plain one, two bold ones equal; and a bold one in every column."""
    out: list[bool | None] = []
    for column in statement.columns:
        sign = -1 if column.is_error else 1
        entries = [(sign * Fraction(printed), is_bold) for _, printed, is_bold in column.entries]
        out.append(any(is_bold for _, is_bold in entries))
        for value, is_bold in entries:
            if is_bold:
                out += [value == other if also_bold else value > other for other, also_bold in entries]
    return out


BOLD_CHECKS = (_bold_is_best, _bold_by_pairs)


# ---------------------------------------------------------------- what ran, and at which rate


@dataclass(frozen=True, kw_only=True)
class Run:
    """What became of a run. layers: "" in a table of one depth; rate: "" where none is printed."""

    table: Table
    model: str
    layers: str = ""
    rate: str = ""
    has_trained: bool

    @property
    def text(self) -> str:
        place = " ".join(word for word in (self.layers, self.table.name, self.model) if word)
        return f"{place}{f' at {self.rate}' if self.rate else ''}: {'trained' if self.has_trained else DIVERGED}"


@dataclass(frozen=True)
class Runs:
    """What became of several runs."""

    runs: tuple[Run, ...]

    @property
    def text(self) -> str:
        return "; ".join(run.text for run in self.runs)

    def mutants(self, *numbers: int) -> tuple[Mutant, ...]:
        """The opposite said of one run."""
        out = []
        for i in numbers:
            turned = replace(self.runs[i], has_trained=not self.runs[i].has_trained)
            out.append(Mutant(name=turned.text, statement=Runs((*self.runs[:i], turned, *self.runs[i + 1 :]))))
        return tuple(out)


@check(Route.ARITHMETIC, "the rows of the tables that are named", is_direct=True)
def _runs_of_rows(statement: Runs) -> list[bool | None]:
    out: list[bool | None] = []
    for run in statement.runs:
        rows = [r for r in run.table.rows if (r.model, r.layers, r.rate) == (run.model, run.layers, run.rate)]
        out.append([row.has_diverged for row in rows] == [not run.has_trained])
    return out


@check(Route.CITATION, "the printed lines read again: scores, or none", is_direct=True)
def _runs_of_lines(statement: Runs) -> list[bool | None]:
    """The one line with that model, depth and rate; it has scores, or it has none."""
    out: list[bool | None] = []
    for run in statement.runs:
        has_scores = [
            bool(re.search(r"\b\d\d\.\d\b", " ".join(cells)))
            for cells, layers in _printed_lines(run.table)
            if (cells[0].lower(), layers) == (run.model.lower(), run.layers) and (run.rate in cells or not run.rate)
        ]
        out.append(has_scores == [run.has_trained])
    return out


RUN_CHECKS = (_runs_of_rows, _runs_of_lines)


# ---------------------------------------------------------------- the largest rate that trained


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The largest printed rate at which each model trained; each strictly larger than the one before."""

    table: Table
    rates: tuple[tuple[str, str], ...]
    layers: str = ""

    @property
    def text(self) -> str:
        place = " ".join(word for word in (self.layers, self.table.name) if word)
        return f"{place}: {' < '.join(f'{model} {rate}' for model, rate in self.rates)}"

    def with_(self, model: str, rate: str) -> Largest:
        return replace(self, rates=tuple((name, rate if name == model else r) for name, r in self.rates))

    def with_reversed(self) -> Largest:
        """A mutant: the order turned round."""
        return replace(self, rates=self.rates[::-1])


@check(Route.ARITHMETIC, "the rows of the table: largest rate that trained, in order", is_direct=True)
def _largest_of_rows(statement: Largest) -> list[bool | None]:
    out: list[bool | None] = []
    for model, rate in statement.rates:
        rows = [row for row in statement.table.trained if (row.model, row.layers) == (model, statement.layers)]
        out.append(max(Decimal(row.rate) for row in rows) == Decimal(rate))
    return [*out, *(Decimal(a) < Decimal(b) for (_, a), (_, b) in pairwise(statement.rates))]


@check(
    Route.CITATION,
    "the printed lines read again; every rate that diverged is larger than those that trained",
    is_direct=True,
)
def _largest_of_lines(statement: Largest) -> list[bool | None]:
    """Where a model diverged, it did at a larger rate than where it trained."""
    out: list[bool | None] = []
    for model, rate in statement.rates:
        trained, diverged = set[float](), set[float]()
        for cells, layers in _printed_lines(statement.table):
            if (cells[0].lower(), layers) == (model.lower(), statement.layers):
                rates = (float(cell) for cell in cells if re.fullmatch(r"[\d.]+e-\d", cell))
                (diverged if DIVERGED in cells else trained).update(rates)
        out += [float(rate) in trained, all(other <= float(rate) for other in trained)]
        out += [other > float(rate) for other in diverged]
    return [*out, *(float(a) < float(b) for (_, a), (_, b) in pairwise(statement.rates))]


LARGEST_CHECKS = (_largest_of_rows, _largest_of_lines)
