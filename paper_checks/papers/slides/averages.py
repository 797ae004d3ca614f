"""The averages that the slides of Magneto print: one claim for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from itertools import chain, combinations

from paper_checks.claims.claim import Check, Claim, Evidence, Kind, Mutant, Route, claim
from paper_checks.papers.magneto.experiments import FOUR_SHOT, GLUE, OPUS, ZERO_SHOT
from paper_checks.routes.checks import outcome
from paper_checks.routes.contests import rounded_from
from paper_checks.routes.result_tables import AVERAGE, Row, Table


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A printed average: of these columns, whose scores are these."""

    scores: tuple[tuple[str, str], ...]
    printed: str

    @property
    def text(self) -> str:
        return f"{self.printed} = mean of {', '.join(f'{column} {score}' for column, score in self.scores)}"


def _rounded(mean: Decimal, printed: str) -> dict[str, str]:
    step = Decimal(1).scaleb(-len(printed.partition(".")[2]))
    return {
        "half up": str(mean.quantize(step, ROUND_HALF_UP)),
        "half even": str(mean.quantize(step, ROUND_HALF_EVEN)),
    }


def _mean_of(scores: Sequence[Decimal]) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return sum(scores, Decimal(0)) / len(scores)


def _exactly(statement: Mean) -> Evidence:
    scores = [Decimal(score) for _, score in statement.scores]
    mean = _mean_of(scores)
    found = _rounded(mean, statement.printed)
    tie = "" if found["half up"] == found["half even"] else f" (half to even would give {found['half even']})"
    sum_ = sum(scores, Decimal(0))
    return Evidence(
        route=Route.ARITHMETIC,
        num_effective=1,
        verdict=outcome(found["half up"] == statement.printed),
        detail=f"the exact mean, rounded half up, is {found['half up']}{tie}",
        numbers={"mean": f"{mean:.6f}".rstrip("0").rstrip("."), **found},
        steps=(
            f"({' + '.join(score for _, score in statement.scores)}) / {len(scores)} = {sum_} / {len(scores)}",
            f"rounded half up: {found['half up']}",
        ),
    )


def _attainable(statement: Mean) -> Evidence:
    """The scores are rounded, too: the mean of what rounds to them has to meet what rounds to the printed average."""
    ends = [rounded_from(score) for _, score in statement.scores]
    low, high = (sum((end[i] for end in ends), Fraction(0)) / len(ends) for i in (0, 1))
    printed_low, printed_high = rounded_from(statement.printed)
    meets = low < printed_high and printed_low < high
    return Evidence(
        route=Route.NUMERIC,
        num_effective=1,
        verdict=outcome(meets),
        detail="the interval of means of scores that round to the printed ones "
        + ("meets" if meets else "does not meet")
        + " the numbers that round to the printed average",
        numbers={"from": f"{float(low):.5f}", "to": f"{float(high):.5f}"},
    )


MEAN_CHECKS = (
    Check(route=Route.ARITHMETIC, run=_exactly, is_direct=True),
    Check(route=Route.NUMERIC, run=_attainable, is_direct=True),
)


def _choices() -> dict[tuple[str, ...], bool]:
    """Every choice of GLUE columns, and whether it gives the printed average of all three rows, half up."""
    rows = GLUE.trained
    names = [score.column for score in rows[0].counted]
    chosen = chain.from_iterable(combinations(names, count) for count in range(1, len(names) + 1))
    return {
        columns: all(
            _rounded(_mean_of([row[name].value for name in columns]), row[AVERAGE].printed)["half up"]
            == row[AVERAGE].printed
            for row in rows
        )
        for columns in chosen
    }


def _only_choice(statement: Mean) -> Evidence:
    found = _choices()
    fitting = [columns for columns, fits in found.items() if fits]
    return Evidence(
        route=Route.PROPERTY,
        num_effective=len(found),
        verdict=outcome(fitting == [tuple(column for column, _ in statement.scores)]),
        detail=f"of the {len(found)} choices of columns, those that give the printed average in all three rows: "
        + "; ".join(", ".join(columns) for columns in fitting),
    )


def _mutants(table: Table, statement: Mean) -> tuple[Mutant, ...]:
    printed = Decimal(statement.printed)
    other = max((row[AVERAGE].printed for row in table.trained), key=lambda text: abs(Decimal(text) - printed))
    (column, score), *rest = statement.scores
    wrong = ((column, str(Decimal(score) + 10)), *rest)
    mutants = [
        Mutant(name="one in the last place", statement=replace(statement, printed=str(printed + Decimal("0.1")))),
        Mutant(name="another row's average", statement=replace(statement, printed=other)),
        Mutant(name=f"{column} misread by 10", statement=replace(statement, scores=wrong)),
    ]
    if table is GLUE:
        seven = tuple(pair for pair in statement.scores if pair[0] != "MNLI-mm")
        mutants.append(Mutant(name="seven scores, MNLI once", statement=replace(statement, scores=seven)))
    return tuple(mutants)


def _claim(id_: str, table: Table, row: Row) -> Claim:
    place = " ".join(word for word in (row.layers, row.model) if word)
    of = f"the {len(row.counted)} scores, MNLI counted twice (matched, mismatched)" if table is GLUE else "the scores"
    statement = Mean(scores=tuple((score.column, score.printed) for score in row.counted), printed=row[AVERAGE].printed)
    extra = (Check(route=Route.PROPERTY, run=_only_choice, is_direct=True),) if table is GLUE else ()
    return claim(
        id_,
        kind=Kind.REMARK,
        source="slides",
        locator=f"{table.locator}, row {place}",
        quote=row.line,
        summary=f"{table.name}, {place}: the printed average {row[AVERAGE].printed} is the mean of {of}",
        statement=statement,
        checks=(*MEAN_CHECKS, *extra),
        mutants=_mutants(table, statement),
    )


_FIRST = ((15, ZERO_SHOT), (24, FOUR_SHOT), (33, GLUE), (36, OPUS))
"""The number of each table's first row."""

CLAIMS: tuple[Claim, ...] = tuple(
    _claim(f"S3-{first + i}", table, row) for first, table in _FIRST for i, row in enumerate(table.trained)
)
