"""What the slides of Magneto say of their tables: who is best where, by how much, and that depth helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

from paper_checks.claims.claim import (
    Amendment,
    Check,
    Claim,
    Evidence,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    number,
    told,
)
from paper_checks.papers.magneto.experiments import FOUR_SHOT, GLUE, OPUS, SPEECH, TABLES, VISION, VL, ZERO_SHOT
from paper_checks.routes.checks import check, outcome
from paper_checks.routes.contests import (
    BOLD_CHECKS,
    GAIN_CHECKS,
    OURS,
    Bold,
    Gains,
    Wins,
    best,
    rounded_from,
    swapped,
    wins,
    wins_of,
)
from paper_checks.routes.result_tables import AVERAGE, Column, Table

_GPT = (ZERO_SHOT, FOUR_SHOT)

# ---------------------------------------------------------------- S3-39: what is bold

_SCORES = Bold(columns=tuple(column for table in TABLES for column in table.columns()))
_RATES = Bold(
    columns=(
        Column(
            table=GLUE.name,
            block="",
            name="LR",
            entries=tuple((row.model, row.rate, row.is_rate_bold) for row in GLUE.trained),
        ),
    )
)

_S3_39 = Claim(
    id="S3-39",
    kind=Kind.REMARK,
    source="slides",
    locator="Experiments, all tables",
    quote="<b>MAGNETO</b>\t<b>3e-3</b>\t<b>86.7/86.7</b>\t<b>92.4</b>\t<b>91.2</b>\t<b>93.9</b>\t<b>62.9</b>\t"
    "<b>87.2</b>\t89.2\t<b>86.3</b>",
    summary="in every column of every block the bold numbers are the best ones, ties included",
    parts=(
        Part(
            name="scores, error rates and averages, all tables",
            statement=_SCORES,
            checks=BOLD_CHECKS,
            mutants=(
                Mutant(
                    name="half of the tie in WG, four-shot at 72 layers",
                    statement=_SCORES.with_flipped("72L four-shot WG", "NormFormer"),
                ),
                Mutant(name="half of the tie in MNLI", statement=_SCORES.with_flipped("GLUE MNLI-m", "Post-LN")),
                Mutant(
                    name="an error rate as if it were a score",
                    statement=_SCORES.with_printed("18L speech Dev-Clean", OURS, "3.97"),
                ),
                Mutant(
                    name="the second best average bold, too",
                    statement=_SCORES.with_flipped("48L four-shot Avg.", OURS),
                ),
            ),
        ),
        Part(
            name="the learning rate that is bold, GLUE (the tables of GPT mark no rate)",
            statement=_RATES,
            checks=BOLD_CHECKS,
            mutants=(
                Mutant(name="Pre-LN bold, too", statement=_RATES.with_flipped("GLUE LR", "Pre-LN")),
                Mutant(name="another rate", statement=_RATES.with_printed("GLUE LR", OURS, "3e-4")),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S3-43: better across tasks

_BLOCKS = tuple(column for table in _GPT for column in table.columns())
_GPT_AVERAGES = wins_of([column for column in _BLOCKS if column.name == AVERAGE])
_GPT_TASKS = wins_of([column for column in _BLOCKS if column.name != AVERAGE])
_GPT_PRE = wins_of(_GPT_AVERAGES.columns, OURS, "Pre-LN")
_BERT = wins_of([GLUE.column(AVERAGE)])
_MT = wins_of(tuple(OPUS.columns()))


_MODELS = (OURS, "NormFormer", "Pre-LN")


def _mean_of_blocks(model: str) -> Decimal:
    """The mean of a model's printed averages over the six blocks, to a tenth."""
    scores = [Decimal(score) for column in _GPT_AVERAGES.columns for name, score, _ in column.entries if name == model]
    return (sum(scores, Decimal(0)) / len(scores)).quantize(Decimal("0.1"))


def _where_best(statement: Wins) -> Wins:
    """The columns of a statement in which the model is best, alone."""
    kept = tuple(column for column in statement.columns if best(column) == (statement.model,))
    return replace(statement, columns=kept)


_S3_43_CHECKS = wins("S3-43")
_LOST = "48L four-shot Avg."
_S3_43 = Claim(
    id="S3-43",
    kind=Kind.REMARK,
    source="slides",
    locator="Experiments, language modeling and machine translation",
    quote="Magneto is more stable and has better performance for language modeling (i.e., BERT, and GPT) and machine "
    "translation.",
    summary="Magneto performs better than the baselines of its tables in language modeling (BERT, GPT) and translation",
    uses=("S3-28", "S3-29"),
    parts=(
        Part(
            name="GPT, every block's average, against all baselines",
            statement=_GPT_AVERAGES,
            checks=_S3_43_CHECKS,
            mutants=swapped(_GPT_AVERAGES, 0, 5),
            condition=told(
                "four-shot at 48 layers left out; or Pre-LN as the only baseline; or the mean over the six blocks "
                "({means})",
                means=lambda: ", ".join(f"{model} {_mean_of_blocks(model)}" for model in _MODELS),
            ),
            instead=Amendment(
                statement=_where_best(_GPT_AVERAGES),
                text="best average in five of the six blocks; four-shot at 48 layers NormFormer has 64.7, Magneto 64.5",
            ),
            expected=Verdict.REFUTED,
        ),
        Part(
            name="GPT, every task of every block, against all baselines",
            statement=_GPT_TASKS,
            checks=_S3_43_CHECKS,
            mutants=swapped(_GPT_TASKS, 1, 23),
            condition="SC and HS, in all six blocks; WGe four-shot, in all three",
            instead=Amendment(
                statement=_where_best(_GPT_TASKS),
                text="best alone in 18 of the 24 columns; Pre-LN has the best zero-shot WGe at every depth, NormFormer "
                "the best WG zero-shot at 72 layers and four-shot at 48, and four-shot WG at 72 layers is a tie",
            ),
            expected=Verdict.REFUTED,
        ),
        Part(
            name="GPT, every block's average, against Pre-LN",
            statement=_GPT_PRE,
            checks=_S3_43_CHECKS,
            mutants=swapped(_GPT_PRE, 0, 4),
        ),
        Part(
            name="BERT, the average over GLUE (of its eight scores, STS is Post-LN's and MNLI a tie)",
            statement=_BERT,
            checks=_S3_43_CHECKS,
            mutants=swapped(_BERT, 0),
        ),
        Part(
            name="machine translation, both directions and the average",
            statement=_MT,
            checks=_S3_43_CHECKS,
            mutants=swapped(_MT, 0, 1, 2),
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "Magneto's slides: 'better performance' on GPT does not hold of every average that they print: "
        "four-shot at 48 layers the best is {best}, ahead of {own} (no spread is printed). It does of the other five "
        "of the six, and of their mean",
        rank=200,
        numbers={
            "best": number("GPT, every block's average, against all", "best", _LOST),
            "own": number("GPT, every block's average, against Pre-LN", "best", _LOST),
        },
    ),
)

# ---------------------------------------------------------------- S3-44 to S3-46: vision, speech, vision-language


def _all_columns(id_: str, name: str, table: Table, *mutants: int) -> Part:
    statement = wins_of(tuple(table.columns()))
    return Part(name=name, statement=statement, checks=wins(id_), mutants=swapped(statement, *mutants))


def _gains(name: str, table: Table, *entries: tuple[str, str, str]) -> Part:
    statement = Gains(table=table, entries=entries)
    block, column, gain = entries[0]
    step = Decimal(1).scaleb(-len(gain.partition(".")[2]))
    other = next((g for *_, g in entries if g != gain), str(-Decimal(gain)))
    return Part(
        name=name,
        statement=statement,
        checks=GAIN_CHECKS,
        mutants=(
            Mutant(name="one in the last place", statement=statement.with_(block, column, str(Decimal(gain) + step))),
            Mutant(name="another column's", statement=statement.with_(block, column, other)),
        ),
    )


_S3_44 = Claim(
    id="S3-44",
    kind=Kind.REMARK,
    source="slides",
    locator=VISION.locator,
    quote=VISION.rows[0].line + "\n" + VISION.rows[2].line,
    summary="vision: better than Pre-LN in all ten cells; +0.4 and +0.6 on ImageNet, +0.8 on ADE20k at 12 layers",
    parts=(
        _all_columns("S3-44", "all ten cells", VISION, 0, 4, 9),
        _gains(
            "the differences",
            VISION,
            ("12L", "ImageNet", "0.4"),
            ("24L", "ImageNet", "0.6"),
            ("12L", "ADE20k", "0.8"),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Relative:
    """Error rates fall by more than ``percent``: column, before, after."""

    percent: str
    entries: tuple[tuple[str, str, str], ...]

    @property
    def text(self) -> str:
        said = ", ".join(f"{column} {before} to {after}" for column, before, after in self.entries)
        return f"relative reduction over {self.percent}%: {said}"


def _reductions(layers: str) -> tuple[tuple[str, str, str], ...]:
    columns = [column for column in SPEECH.columns() if column.block == layers]
    return tuple((column.name, column.of("Pre-LN"), column.of(OURS)) for column in columns)


def _by_quotient(statement: Relative) -> Evidence:
    rates = {c: 100 * (Decimal(before) - Decimal(after)) / Decimal(before) for c, before, after in statement.entries}
    ends = {}
    for column, before, after in statement.entries:
        (low, high), (our_low, our_high) = rounded_from(before), rounded_from(after)
        ends[column] = f"{float(100 * (1 - our_high / low)):.2f} to {float(100 * (1 - our_low / high)):.2f}"
    return Evidence(
        route=Route.ARITHMETIC,
        num_effective=len(rates),
        verdict=outcome(all(rate > Decimal(statement.percent) for rate in rates.values())),
        detail="100 (before - after) / before, of the printed rates; with rounding: of all that rounds to them",
        numbers={
            "reduction": {column: f"{rate:.2f}" for column, rate in rates.items()},
            "with_rounding": ends,
            "36 layers": {c: f"{100 * (1 - Decimal(after) / Decimal(b)):.2f}" for c, b, after in _reductions("36L")},
        },
    )


def _by_product(statement: Relative) -> list[bool | None]:
    """In hundredths, without a division: 100 (before - after) > percent * before."""
    whole = [tuple(int(rate.replace(".", "")) for rate in rates) for _, *rates in statement.entries]
    tenths = int(Decimal(statement.percent) * 10)
    return [1000 * (before - after) > tenths * before for before, after in whole]


_OVER_SIX = Relative(percent="6", entries=_reductions("18L"))
_S3_45 = Claim(
    id="S3-45",
    kind=Kind.REMARK,
    source="slides",
    locator=f"{SPEECH.locator}; 'over 6%' stands in the body of the paper",
    quote=SPEECH.rows[0].line + "\n" + SPEECH.rows[2].line,
    summary="speech: a lower word error rate in all eight cells, over 6% lower at 18 layers",
    parts=(
        _all_columns("S3-45", "all eight cells", SPEECH, 0, 7),
        Part(
            name="over 6% in each of the four cells at 18 layers",
            statement=_OVER_SIX,
            checks=(
                Check(route=Route.ARITHMETIC, run=_by_quotient, is_direct=True),
                check(Route.NUMERIC, "whole numbers, without a division", _by_product, is_direct=True),
            ),
            mutants=(
                Mutant(name="over 6.5%", statement=replace(_OVER_SIX, percent="6.5")),
                Mutant(name="36 layers", statement=replace(_OVER_SIX, entries=_reductions("36L"))),
                Mutant(
                    name="the lower rate first",
                    statement=replace(_OVER_SIX, entries=tuple((c, a, b) for c, b, a in _OVER_SIX.entries)),
                ),
            ),
        ),
    ),
)

_S3_46 = Claim(
    id="S3-46",
    kind=Kind.REMARK,
    source="slides",
    locator=VL.locator,
    quote=VL.rows[0].line,
    summary="vision-language: +0.63, +0.51, +0.78, +0.54 over Pre-LN",
    parts=(
        _all_columns("S3-46", "all four cells", VL, 0, 3),
        _gains(
            "the differences",
            VL,
            ("24L", "VQA test-dev", "0.63"),
            ("24L", "VQA test-std", "0.51"),
            ("24L", "NLVR2 dev", "0.78"),
            ("24L", "NLVR2 test-P", "0.54"),
        ),
    ),
)

# ---------------------------------------------------------------- S3-47: averages rise with depth


@dataclass(frozen=True)
class Rising:
    """Numbers that rise from depth to depth: whose, and the numbers."""

    entries: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def text(self) -> str:
        return "; ".join(f"{name} {' < '.join(values)}" for name, values in self.entries)

    def with_swapped(self, number: int, first: int, second: int) -> Rising:
        """A mutant: two depths of one model have changed places."""
        name, values = self.entries[number]
        changed = list(values)
        changed[first], changed[second] = changed[second], changed[first]
        return Rising((*self.entries[:number], (name, tuple(changed)), *self.entries[number + 1 :]))


def _over_depth(name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A column of both tables of GPT from 24 to 72 layers, by model."""
    return tuple(
        (f"{table.name} {model}", tuple(table.row(model, layers)[name].printed for layers in table.blocks))
        for table in _GPT
        for model in dict.fromkeys(row.model for row in table.rows)
    )


def _rises(values: tuple[str, ...]) -> bool:
    return all(Decimal(a) < Decimal(b) for a, b in pairwise(values))


def _rising(statement: Rising) -> Evidence:
    tasks = [score.column for score in ZERO_SHOT.row(OURS, "24L").counted]
    falls = {f"{who} {task}": ", ".join(v) for task in tasks for who, v in _over_depth(task) if not _rises(v)}
    return Evidence(
        route=Route.ARITHMETIC,
        num_effective=len(statement.entries),
        verdict=outcome(all(_rises(values) for _, values in statement.entries)),
        detail="averages from depth to depth; not rising: columns of single tasks that do not rise all the way",
        numbers={"averages": {who: ", ".join(values) for who, values in statement.entries}, "not_rising": falls},
    )


def _rising_whatever_was_rounded(statement: Rising) -> list[bool | None]:
    return [rounded_from(a)[1] < rounded_from(b)[0] for _, values in statement.entries for a, b in pairwise(values)]


_DEPTHS = Rising(_over_depth(AVERAGE))
_S3_47 = claim(
    "S3-47",
    kind=Kind.REMARK,
    source="slides",
    locator="Experiments, causal language modeling, both tables",
    quote="- **Stable scaling up**",
    summary="zero-shot and four-shot averages rise from 24 to 48 to 72 layers for each model",
    uses=tuple(f"S3-{number}" for number in range(15, 33)),
    statement=_DEPTHS,
    checks=(
        Check(route=Route.ARITHMETIC, run=_rising, is_direct=True),
        check(
            Route.NUMERIC,
            "the same for all that rounds to the printed averages",
            _rising_whatever_was_rounded,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="Magneto, 48 and 72 layers swapped", statement=_DEPTHS.with_swapped(5, 1, 2)),
        Mutant(name="Pre-LN, 24 and 48 layers swapped", statement=_DEPTHS.with_swapped(0, 0, 1)),
        Mutant(name="a single task: WG", statement=Rising(_over_depth("WG"))),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_39, _S3_43, _S3_44, _S3_45, _S3_46, _S3_47)
