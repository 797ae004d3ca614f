"""Printed tables of results: read from their text, and what is said of them: who is best, what is bold, what ran.

A table is given as its text, tab by tab, bold marks and empty cells included, so that it can be compared with the
source by eye and a claim can quote a row. Numbers stay the strings that were printed: their digits say how they were
rounded. Names are made one (Normformer, NormFormer), a cell for two models is cut in two, and so is ``86.7/86.7`` of
MNLI (matched, mismatched). Empty cells at the end of a line are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import Any

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Check, Mutant, Part, Route
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import Answers, check

OURS = "Magneto"
TRAINED, DIVERGED = "trained", "diverged"
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
        if any(len(cells) != len(models) for cells in words.values()):
            raise ValueError(f"{line!r} has not a number for each model in each column")
        for i, model in enumerate(models):
            scores = tuple(score for column, cells in words.items() for score in _scores(column, *cells[i]))
            run = {"layers": layers, "rate": rate, "is_rate_bold": is_rate_bold, "scores": scores, "line": line}
            rows.append(Row(model=_NAMES.get(model, model), **run))
    return Table(name=name, locator=locator, text=text, rows=tuple(rows), is_error=is_error)


def rounded_from(printed: str) -> tuple[Fraction, Fraction]:
    """All that rounds to a printed number: half a unit in its last place each way."""
    half = Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))
    return Fraction(printed) - half, Fraction(printed) + half


def place_of(*words: str) -> str:
    """Where a number stands: the depth of its block, its table, its column or model, as far as there are any."""
    return " ".join(filter(None, words))


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

    def with_swapped(self, place: int) -> Mutant:
        """A mutant: in one column the model and its first rival have changed places."""
        column = self.columns[place]
        rival = next(name for name, *_ in column.entries if name != self.model)
        names = {self.model: rival, rival: self.model}
        entries = tuple((names.get(name, name), *rest) for name, *rest in column.entries)
        columns = (*self.columns[:place], replace(column, entries=entries), *self.columns[place + 1 :])
        return Mutant(name=f"{column.place}: two models swapped", statement=replace(self, columns=columns))


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


def wins(id_: str) -> Check:
    """Whether the printed numbers, as they stand, make the model the best; ``explain ID`` shows where they do not."""

    def decide(statement: Wins) -> Answers:
        margins = {column: _margin(column, statement.model) for column in statement.columns}
        lost = sorted((column for column in margins if margins[column] <= 0), key=lambda column: margins[column])
        return Answers(
            holds=[margin > 0 for margin in margins.values()],
            detail=f"printed numbers compared: better in {len(margins) - len(lost)} of {len(margins)} columns",
            numbers={"best": {c.place: _best(c) for c in margins}, "least margin": str(min(margins.values()))},
            steps=tuple(f"{column.place}: {_line(column)}" for column in margins),
            counterexample=_loss(id_, statement, lost) if lost else None,
        )

    return check(Route.ARITHMETIC, "", decide)


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


def won(id_: str, name: str, columns: Iterable[Column], model: str = OURS, **rest: Any) -> Part:
    """That a model is the best of these columns; mutants swap it with another in the first and the last."""
    statement = Wins(columns=tuple(columns), model=model)
    mutants = tuple(statement.with_swapped(place) for place in sorted({0, len(statement.columns) - 1}))
    return Part(name=name, statement=statement, checks=(wins(id_),), mutants=mutants, **rest)


# ---------------------------------------------------------------- by how much


def gained(name: str, table: Table, *gains: tuple[str, str, str]) -> Part:
    """By how much Magneto is above Pre-LN: block, column, and the difference. A mutant has another first difference."""
    columns = {place_of(block, column): table.column(column, block) for block, column, _ in gains}
    entries = dict(zip(columns, (gain for *_, gain in gains), strict=True))
    statement = Values.of("; ".join(f"{place}: {{{place}}}" for place in columns), **entries)

    def decide(s: Values) -> list[bool | None]:
        differences = {
            place: Decimal(column.of(OURS)) - Decimal(column.of("Pre-LN")) for place, column in columns.items()
        }
        return [differences[place] == Decimal(gain) for place, gain in s]

    place, gain = next(iter(entries.items()))
    step = Decimal(1).scaleb(-len(gain.partition(".")[2]))
    checks = (check(Route.ARITHMETIC, "Magneto minus Pre-LN, in exact decimals", decide),)
    mutants = changed(statement, **{place: str(Decimal(gain) + step)})
    return Part(name=name, statement=statement, checks=checks, mutants=mutants)


# ---------------------------------------------------------------- what is bold


@dataclass(frozen=True, kw_only=True)
class Bold:
    """In every column given, what is bold is what is best, ties included, and nothing else."""

    columns: tuple[Column, ...]

    @property
    def text(self) -> str:
        count = sum(is_bold for column in self.columns for *_, is_bold in column.entries)
        return f"{count} bold numbers in {len(self.columns)} columns: in each column the best, and no other"

    def with_(self, place: str, model: str, change: Callable[[str, bool], tuple[str, bool]]) -> Bold:
        """A mutant: another number, or another mark, of one model in one column."""
        columns = {column.place: column for column in self.columns}
        entries = columns[place].entries
        changed = tuple((e[0], *change(*e[1:])) if e[0] == model else e for e in entries)
        return Bold(columns=tuple((columns | {place: replace(columns[place], entries=changed)}).values()))


@check(Route.ARITHMETIC, "the bold entries of a column are those with its largest number, or smallest error rate")
def bold_is_best(statement: Bold) -> Answers:
    is_best = {c.place: tuple(name for name, _, is_bold in c.entries if is_bold) == best(c) for c in statement.columns}
    ties = {c.place: " = ".join(best(c)) for c in statement.columns if len(best(c)) > 1}
    wrong = [place for place, right in is_best.items() if not right]
    return Answers(holds=list(is_best.values()), numbers={"columns": len(is_best), "ties": ties, "wrong": wrong})


# ---------------------------------------------------------------- what ran, and at which rate


def ran(name: str, runs: Iterable[tuple[Table, str, str, str, str]]) -> Part:
    """Table, model, layers, rate, and whether it trained or diverged; each mutant says the opposite of one run."""
    rows, outcomes = {}, {}
    for table, model, layers, rate, outcome in runs:
        place = place_of(layers, table.name, model, f"at {rate}" if rate else "")
        rows[place] = [row for row in table.rows if (row.model, row.layers, row.rate) == (model, layers, rate)]
        outcomes[place] = outcome
    statement = Values.of(**outcomes)

    def decide(s: Values) -> list[bool | None]:
        return [[DIVERGED if row.has_diverged else TRAINED for row in rows[place]] == [outcome] for place, outcome in s]

    opposite = {TRAINED: DIVERGED, DIVERGED: TRAINED}
    return Part(
        name=name,
        statement=statement,
        checks=(check(Route.ARITHMETIC, "the rows of the tables that are named", decide),),
        mutants=changed(statement, **{place: opposite[outcome] for place, outcome in outcomes.items()}),
    )


def largest_rates(name: str, table: Table, layers: str, rates: dict[str, str]) -> Part:
    """The largest printed rate at which each model trained, each larger than the one before."""

    def stated(rates: dict[str, str]) -> Values:
        order = " < ".join(f"{model} {{{model}}}" for model in rates)
        return Values.of(f"{place_of(layers, table.name)}: {order}", **rates)

    def decide(s: Values) -> list[bool | None]:
        largest = {
            model: max(Decimal(row.rate) for row in table.trained if (row.model, row.layers) == (model, layers))
            for model in rates
        }
        printed = [Decimal(rate) for _, rate in s]
        return [*(largest[model] == Decimal(rate) for model, rate in s), *(a < b for a, b in pairwise(printed))]

    statement, detail = stated(rates), "the rows of the table: largest rate that trained, in order"
    return Part(
        name=name,
        statement=statement,
        checks=(check(Route.ARITHMETIC, detail, decide),),
        mutants=(
            *changed(statement, **{OURS: min(rates.values(), key=float)}),
            Mutant(name="the order turned round", statement=stated({model: rates[model] for model in reversed(rates)})),
        ),
    )
