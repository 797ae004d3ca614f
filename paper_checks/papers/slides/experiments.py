"""The slides' experiments (averages, what is bold, what ran, who is best by how much, sizes), and their takeaways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, permutations
from statistics import mean
from typing import Any

from sympy import Expr, lambdify, limit, log, oo

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import (
    Amendment,
    Claim,
    Finding,
    Kind,
    Mutant,
    Part,
    Route,
    Verdict,
    claim,
    number,
    sentence,
)
from depthlaw.paper_checks.claims.statements import Statement, Values
from depthlaw.paper_checks.papers.magneto import experiments
from depthlaw.paper_checks.papers.magneto.experiments import FOUR_SHOT, GLUE, OPUS, SPEECH, VISION, VL, ZERO_SHOT
from depthlaw.paper_checks.routes import algebra
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.tables.parameter_counts import Count, counted, to_rounding
from depthlaw.paper_checks.routes.tables.results import (
    AVERAGE,
    DIVERGED,
    OURS,
    TRAINED,
    Bold,
    Column,
    Row,
    Table,
    Wins,
    best,
    bold_is_best,
    gained,
    largest_rates,
    ran,
    rounded_from,
    won,
)
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import BY_TRAINING, Answered, open_in_small
from depthlaw.theory.symbols import N

_GPT = (ZERO_SHOT, FOUR_SHOT)


def trained(name: str, statement: Answered, wrong: Statement, **rest: Any) -> Part:
    """A question that records of training answer, and the statement with the answer turned round."""
    mutants = (Mutant(name="the other way round", statement=wrong),)
    return Part(name=name, statement=statement, checks=(BY_TRAINING,), mutants=mutants, **rest)


def smaller_is_stabler(name: str, look: str) -> Part:
    statement = questions.SMALLER[look]
    return trained(
        name,
        statement,
        statement.with_larger(),
        expected=Verdict.REFUTED,
        condition="beside Post-LN, at 12 layers: DeepNorm's and Su's rule for Adam have smaller updates, and pass at "
        "rates at which it does not",
    )


# ---------------------------------------------------------------- S3-15 to S3-38: the printed averages


def _scores(s: Values) -> list[tuple[str, str]]:
    """The columns that an average is of, each with its score."""
    return [(name, score) for name, score in s if name != "mean"]


@check(Route.ARITHMETIC, "the exact mean, rounded half up")
def _exactly(s: Values) -> Answers:
    scores = [Decimal(score) for _, score in _scores(s)]
    exact = mean(scores)
    rounded = algebra.roundings(exact, len(s["mean"].partition(".")[2]))
    tie = "" if rounded["half up"] == rounded["half even"] else f" (half to even would give {rounded['half even']})"
    return Answers(
        holds=[rounded["half up"] == s["mean"]],
        detail=f"the exact mean, rounded half up, is {rounded['half up']}{tie}",
        numbers={"mean": f"{exact:.6f}".rstrip("0").rstrip("."), **rounded},
        steps=(
            f"({' + '.join(score for _, score in _scores(s))}) / {len(scores)} = {sum(scores)} / {len(scores)}",
            f"rounded half up: {rounded['half up']}",
        ),
    )


@check(Route.NUMERIC, "the means of scores that round to the printed ones")
def _attainable(s: Values) -> Answers:
    """The scores are rounded, too: the mean of what rounds to them has to meet what rounds to the printed average."""
    ends = [rounded_from(score) for _, score in _scores(s)]
    low, high = (sum((end[i] for end in ends), Fraction(0)) / len(ends) for i in (0, 1))
    printed_low, printed_high = rounded_from(s["mean"])
    meets = low < printed_high and printed_low < high
    return Answers(
        holds=[meets],
        detail="the interval of means of scores that round to the printed ones "
        + ("meets" if meets else "does not meet")
        + " the numbers that round to the printed average",
        numbers={"from": f"{float(low):.5f}", "to": f"{float(high):.5f}"},
    )


def _average(id_: str, table: Table, row: Row) -> Claim:
    place = " ".join(word for word in (row.layers, row.model) if word)
    of = f"the {len(row.counted)} scores, MNLI counted twice (matched, mismatched)" if table is GLUE else "the scores"
    statement = Values.of(mean=row[AVERAGE].printed, **{score.column: score.printed for score in row.counted})
    column, score = _scores(statement)[0]
    wrong = {
        "one in the last place": statement.with_(mean=str(Decimal(statement["mean"]) + Decimal("0.1"))),
        f"{column} misread by 10": statement.with_(**{column: str(Decimal(score) + 10)}),
    }
    if table is GLUE:
        wrong["seven scores, MNLI once"] = Values.of(**{name: value for name, value in statement if name != "MNLI-mm"})
    return claim(
        id_,
        kind=Kind.REMARK,
        locator=f"{table.locator}, row {place}",
        quote=row.line,
        summary=f"{table.name}, {place}: the printed average {row[AVERAGE].printed} is the mean of {of}",
        statement=statement,
        checks=(_exactly, _attainable),
        mutants=tuple(Mutant(name=name, statement=mutant) for name, mutant in wrong.items()),
    )


_AVERAGES = tuple(
    _average(f"S3-{first + i}", table, row)
    for first, table in ((15, ZERO_SHOT), (24, FOUR_SHOT), (33, GLUE), (36, OPUS))
    for i, row in enumerate(table.trained)
)

# ---------------------------------------------------------------- S3-39: what is bold

_SCORES = Bold(columns=tuple(column for table in experiments.TABLES for column in table.columns()))
_GLUE_RATES = tuple((row.model, row.rate, row.is_rate_bold) for row in GLUE.trained)
_RATES = Bold(columns=(Column(table=GLUE.name, block="", name="LR", entries=_GLUE_RATES),))


def _flipped(printed: str, is_bold: bool) -> tuple[str, bool]:
    return printed, not is_bold


_S3_39 = Claim(
    id="S3-39",
    kind=Kind.REMARK,
    locator="Experiments, all tables",
    quote="<b>MAGNETO</b>\t<b>3e-3</b>\t<b>86.7/86.7</b>\t<b>92.4</b>\t<b>91.2</b>\t<b>93.9</b>\t<b>62.9</b>\t"
    "<b>87.2</b>\t89.2\t<b>86.3</b>",
    summary="in every column of every block the bold numbers are the best ones, ties included",
    parts=(
        Part(
            name="scores, error rates and averages, all tables",
            statement=_SCORES,
            checks=(bold_is_best,),
            mutants=(
                Mutant(name="half of the tie in MNLI", statement=_SCORES.with_("GLUE MNLI-m", "Post-LN", _flipped)),
                Mutant(
                    name="a worse rate",
                    statement=_SCORES.with_("18L speech Dev-Clean", OURS, lambda _, is_bold: ("3.97", is_bold)),
                ),
            ),
        ),
        Part(
            name="the learning rate that is bold, GLUE (the tables of GPT mark no rate)",
            statement=_RATES,
            checks=(bold_is_best,),
            mutants=(
                Mutant(name="Pre-LN bold, too", statement=_RATES.with_("GLUE LR", "Pre-LN", _flipped)),
                Mutant(
                    name="another rate",
                    statement=_RATES.with_("GLUE LR", OURS, lambda _, is_bold: ("3e-4", is_bold)),
                ),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S3-40 to S3-42: what ran

_RAN = (
    ("Pre-LN", "24L", "1e-3", DIVERGED),
    ("NormFormer", "24L", "1e-3", DIVERGED),
    (OURS, "24L", "1e-3", TRAINED),
    (OURS, "48L", "1.2e-3", TRAINED),
    (OURS, "72L", "1.2e-3", TRAINED),
)

_S3_40 = Claim(
    id="S3-40",
    kind=Kind.REMARK,
    locator=f"{ZERO_SHOT.locator} and the four-shot one",
    quote="Pre-LN\t\t1e-3\t\t\tdiverged\t\t\nNormformer\t\t5e-4\t54.3\t68.1\t72.0\t45.9\t60.1\n"
    "Normformer\t\t1e-3\t\t\tdiverged",
    summary="GPT, 24 layers: Pre-LN and NormFormer diverge at a rate of 1e-3, Magneto trains; at 48 and 72 at 1.2e-3",
    parts=(
        *(ran(f"what the {table.name} table prints", [(table, *run) for run in _RAN]) for table in _GPT),
        open_in_small(
            "training shows it",
            "a decoder of the same depth: the largest stable rate of Magneto is above those of Pre-LN and NormFormer",
            "decoders of 24, 48 and 72 layers at the printed width, 1,024, on text, Pre-LN, NormFormer and Magneto "
            "under Adam, a sweep of the learning rate by half octaves, 5 seeds or more: whether the largest rate at "
            "which every seed trains is larger for Magneto by more than one step. Decoders 32 wide (`depthlaw "
            "experiment stable-rates`) train far above the printed rates; the tables have no diverged row at 48 "
            "and 72 layers",
            *questions.GPT_ORDER.values(),
            *questions.GPT_HALF.values(),
        ),
    ),
)

_S3_41 = Claim(
    id="S3-41",
    kind=Kind.REMARK,
    locator=GLUE.locator,
    quote="Post-LN\t1e-3\t\t\t\tdiverged\t\t\t\t\nPre-LN\t1e-3\t85.6/85.4",
    summary="BERT: largest stable rate Post-LN 5e-4 < Pre-LN 1e-3 < Magneto 3e-3",
    parts=(
        largest_rates("what the table prints", GLUE, "", experiments.BERT_RATES),
        trained(
            "a proxy, encoders of 12 layers, 32 wide, masked bytes: Pre-LN above Post-LN, which gets stuck",
            questions.BERT_PRE_POST,
            questions.BERT_PRE_POST.with_reversed(),
        ),
        open_in_small(
            "training shows it, Magneto above Pre-LN",
            "an encoder: the largest stable rate of Pre-LN is below Magneto's",
            "encoders of 12 layers 768 wide with masked tokens, Pre-LN and Magneto, a sweep of the learning rate by "
            "half octaves, 5 seeds or more, far enough up that each diverges. Of Magneto no diverged run is printed, "
            "and 3e-3 is the end of the paper's grid, so its largest rate is 3e-3 or more",
            questions.BERT_OURS_PRE,
        ),
    ),
)

_S3_42 = Claim(
    id="S3-42",
    kind=Kind.REMARK,
    locator=f"{OPUS.locator}; 18L-18L stands in the body of the paper",
    quote="Post-LN\t\tdiverged",
    summary="translation at 18L-18L: Post-LN diverges, Pre-LN, NormFormer and Magneto train",
    parts=(
        ran(
            "what the table prints",
            [
                (OPUS, "Post-LN", "", "", DIVERGED),
                *((OPUS, model, "", "", TRAINED) for model in ("Pre-LN", "NormFormer", OURS)),
            ],
        ),
        trained(
            "a proxy, source lines to bytecode, 32 wide: Post-LN is stuck (it does not diverge), the others train",
            questions.TRANSLATION,
            questions.TRANSLATION.with_swapped(),
        ),
    ),
)

# ---------------------------------------------------------------- S3-43: better across tasks

_BLOCKS = tuple(column for table in _GPT for column in table.columns())
_AVERAGE_COLUMNS = tuple(column for column in _BLOCKS if column.name == AVERAGE)
_TASK_COLUMNS = tuple(column for column in _BLOCKS if column.name != AVERAGE)


def _means_of_blocks() -> str:
    """The mean of each model's printed averages over the six blocks, to a tenth."""
    means = (
        f"{model} {sum(Decimal(column.of(model)) for column in _AVERAGE_COLUMNS) / 6:.1f}"
        for model in (OURS, "NormFormer", "Pre-LN")
    )
    return ", ".join(means)


def _where_best(columns: Iterable[Column]) -> Wins:
    """The columns in which Magneto is best, alone."""
    return Wins(columns=tuple(column for column in columns if best(column) == (OURS,)))


_LOST = "48L four-shot Avg."
_S3_43 = Claim(
    id="S3-43",
    kind=Kind.REMARK,
    locator="Experiments, language modeling and machine translation",
    quote="Magneto is more stable and has better performance for language modeling (i.e., BERT, and GPT) and machine "
    "translation.",
    summary="Magneto performs better than the baselines of its tables in language modeling (BERT, GPT) and translation",
    uses=("S3-28", "S3-29"),
    parts=(
        won(
            "S3-43",
            "GPT, every block's average, against all baselines",
            _AVERAGE_COLUMNS,
            condition=sentence(
                "four-shot at 48 layers left out; or Pre-LN as the only baseline; or the mean over the six blocks "
                "({means})",
                means=_means_of_blocks,
            ),
            instead=Amendment(
                statement=_where_best(_AVERAGE_COLUMNS),
                text="best average in five of the six blocks; four-shot at 48 layers NormFormer has 64.7, Magneto 64.5",
            ),
            expected=Verdict.REFUTED,
        ),
        won(
            "S3-43",
            "GPT, every task of every block, against all baselines",
            _TASK_COLUMNS,
            condition="SC and HS, in all six blocks; WGe four-shot, in all three",
            instead=Amendment(
                statement=_where_best(_TASK_COLUMNS),
                text="best alone in 18 of the 24 columns; Pre-LN has the best zero-shot WGe at every depth, NormFormer "
                "the best WG zero-shot at 72 layers and four-shot at 48, and four-shot WG at 72 layers is a tie",
            ),
            expected=Verdict.REFUTED,
        ),
        won(
            "S3-43",
            "GPT, every block's average, against Pre-LN",
            [column.only(OURS, "Pre-LN") for column in _AVERAGE_COLUMNS],
        ),
        won(
            "S3-43",
            "BERT, the average over GLUE (of its eight scores, STS is Post-LN's and MNLI a tie)",
            [GLUE.column(AVERAGE)],
        ),
        won("S3-43", "machine translation, both directions and the average", OPUS.columns()),
    ),
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


_S3_44 = Claim(
    id="S3-44",
    kind=Kind.REMARK,
    locator=VISION.locator,
    quote=VISION.rows[0].line + "\n" + VISION.rows[2].line,
    summary="vision: better than Pre-LN in all ten cells; +0.4 and +0.6 on ImageNet, +0.8 on ADE20k at 12 layers",
    parts=(
        won("S3-44", "all ten cells", VISION.columns()),
        gained(
            "the differences", VISION, ("12L", "ImageNet", "0.4"), ("24L", "ImageNet", "0.6"), ("12L", "ADE20k", "0.8")
        ),
    ),
)


def _reductions(layers: str) -> dict[str, str]:
    """By column, the error rate before and after."""
    columns = [column for column in SPEECH.columns() if column.block == layers]
    return {column.name: f"{column.of('Pre-LN')} to {column.of(OURS)}" for column in columns}


_OVER_SIX = Values.of(percent="6", **_reductions("18L"))
"""Error rates fall by more than so many per cent."""


def _rates(s: Values) -> dict[str, list[str]]:
    return {name: text.split(" to ") for name, text in s if name != "percent"}


@check(
    Route.ARITHMETIC, "100 (before - after) / before, of the printed rates; with rounding: of all that rounds to them"
)
def _by_quotient(s: Values) -> Answers:
    def reduction(before: str, after: str) -> Decimal:
        return 100 * (Decimal(before) - Decimal(after)) / Decimal(before)

    rates = {column: reduction(*pair) for column, pair in _rates(s).items()}
    ends = {}
    for column, pair in _rates(s).items():
        (low, high), (our_low, our_high) = map(rounded_from, pair)
        ends[column] = f"{float(100 * (1 - our_high / low)):.2f} to {float(100 * (1 - our_low / high)):.2f}"
    return Answers(
        holds=[rate > Decimal(s["percent"]) for rate in rates.values()],
        numbers={
            "reduction": {column: f"{rate:.2f}" for column, rate in rates.items()},
            "with_rounding": ends,
            "36 layers": {c: f"{reduction(*text.split(' to ')):.2f}" for c, text in _reductions("36L").items()},
        },
    )


_S3_45 = Claim(
    id="S3-45",
    kind=Kind.REMARK,
    locator=f"{SPEECH.locator}; 'over 6%' stands in the body of the paper",
    quote=SPEECH.rows[0].line + "\n" + SPEECH.rows[2].line,
    summary="speech: a lower word error rate in all eight cells, over 6% lower at 18 layers",
    parts=(
        won("S3-45", "all eight cells", SPEECH.columns()),
        Part(
            name="over 6% in each of the four cells at 18 layers",
            statement=_OVER_SIX,
            checks=(_by_quotient,),
            mutants=(
                *changed(_OVER_SIX, percent="6.5"),
                Mutant(name="36 layers", statement=_OVER_SIX.with_(**_reductions("36L"))),
            ),
        ),
    ),
)

_S3_46 = Claim(
    id="S3-46",
    kind=Kind.REMARK,
    locator=VL.locator,
    quote=VL.rows[0].line,
    summary="vision-language: +0.63, +0.51, +0.78, +0.54 over Pre-LN",
    parts=(
        won("S3-46", "all four cells", VL.columns()),
        gained(
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


def _over_depth(name: str) -> dict[str, str]:
    """A column of both tables of GPT from 24 to 72 layers, by model."""
    return {
        f"{table.name} {model}": " < ".join(table.row(model, layers)[name].printed for layers in table.blocks)
        for table in _GPT
        for model in dict.fromkeys(row.model for row in table.rows)
    }


_DEPTHS = Values.of(**_over_depth(AVERAGE))


def _rises(values: str) -> bool:
    return all(Decimal(a) < Decimal(b) for a, b in pairwise(values.split(" < ")))


@check(Route.ARITHMETIC, "averages by depth; not rising: single tasks that do not rise all the way")
def _rising(s: Values) -> Answers:
    tasks = [score.column for score in ZERO_SHOT.row(OURS, "24L").counted]
    falls = {f"{who} {task}": text for task in tasks for who, text in _over_depth(task).items() if not _rises(text)}
    numbers = {"averages": dict(s), "not_rising": falls}
    shown = {name: {who: text.replace(" <", ",") for who, text in column.items()} for name, column in numbers.items()}
    return Answers(holds=[_rises(values) for _, values in s], numbers=shown)


_S3_47 = claim(
    "S3-47",
    kind=Kind.REMARK,
    locator="Experiments, causal language modeling, both tables",
    quote="- **Stable scaling up**",
    summary="zero-shot and four-shot averages rise from 24 to 48 to 72 layers for each model",
    uses=tuple(f"S3-{number}" for number in range(15, 33)),
    statement=_DEPTHS,
    checks=(_rising,),
    mutants=(
        Mutant(name="48 and 72 layers swapped", statement=_DEPTHS.with_(**{"four-shot Magneto": "63.2 < 66.8 < 64.5"})),
        Mutant(name="a single task: WG", statement=Values.of(**_over_depth("WG"))),
    ),
)

# ---------------------------------------------------------------- S3-48: sizes

_VOCABULARY = 50257


def _size(name: str, layers: int, words: str, rounded: tuple[int, int]) -> Part:
    """A decoder of width 1024. rounded: the numbers that round to the printed one."""
    low, high = rounded
    statement = Count(stacks=((layers, 1),), width=1024, rows=_VOCABULARY, low=low, high=high, words=words)
    mutants = changed(statement, rows=2 * _VOCABULARY, width=768)
    return Part(name=name, statement=statement, checks=(counted,), mutants=mutants)


_S3_48 = Claim(
    id="S3-48",
    kind=Kind.REMARK,
    locator=f"{ZERO_SHOT.locator}: layers alone are printed there; width 1024 and 350M at 24 layers are GPT-3 "
    "Medium's, in the body of the paper",
    quote=ZERO_SHOT.row("Pre-LN", "24L").line,
    summary="24, 48, 72 layers of width 1024 and one table of 50,257 embeddings: 353M, 655M, 957M",
    parts=(
        *(
            _size(f"{layers} layers: {printed}M", layers, f"{printed} million parameters", to_rounding(printed, 10**6))
            for layers, printed in ((24, "353"), (48, "655"), (72, "957"))
        ),
        _size(
            "24 layers are the 350M of the paper's body, to two digits",
            24,
            "350 million, to two digits",
            to_rounding("35", 10**7),
        ),
    ),
)

# ---------------------------------------------------------------- S3-49: the takeaways

_BOUNDS = Values.of(
    "of two bounds of different order the smaller has the larger rate: Post-LN Theta({post}), {post_rate}; Pre-LN "
    "Theta({pre}), {pre_rate}; Sub-LN Theta({sub}), {sub_rate}",
    **{"post": N, "post_rate": "5e-4", "pre": log(N), "pre_rate": "1e-3", "sub": log(N), "sub_rate": "3e-3"},
)


def _pairs(s: Values) -> Iterator[tuple[Expr, float, Expr, float]]:
    """(bound, rate, another's bound, its rate)."""
    entries = [(s[norm], float(s[f"{norm}_rate"])) for norm in ("post", "pre", "sub")]
    yield from ((*first, *second) for first, second in permutations(entries, 2))


@check(Route.PROOF, "pairs of different order, by limits of the ratio")
def _rates_by_limits(s: Values) -> list[bool | None]:
    return [rate > other for small, rate, big, other in _pairs(s) if limit(small / big, N, oo) == 0]


@check(Route.NUMERIC, "the same pairs by N = 10^3 and 10^9")
def _rates_by_numbers(s: Values) -> list[bool | None]:
    """A bound is of larger order where its ratio to the other doubles, or more, from N = 10^3 to 10^9."""
    out: list[bool | None] = []
    for small, rate, big, other in _pairs(s):
        ratio = lambdify(N, big / small, modules="math")
        if ratio(10**9) > 2 * ratio(10**3):
            out.append(math.log10(rate) > math.log10(other))
    return out


_S3_49 = Claim(
    id="S3-49",
    kind=Kind.RESULT,
    locator="Takeaways; bounds in the table of normalizations, rates in the GLUE table",
    quote="Smaller model update leads to more stable optimization.",
    summary="a smaller model update makes optimization more stable",
    parts=(
        Part(
            name="the slides' own numbers: printed bounds against printed rates (Pre and Sub have one order: no test)",
            statement=_BOUNDS,
            checks=(_rates_by_limits, _rates_by_numbers),
            mutants=changed(_BOUNDS, post_rate="2e-3", sub=N**2, post=1),
        ),
        smaller_is_stabler("a smaller update at initialisation, a larger stable rate: where it trains", "trains"),
        smaller_is_stabler("a smaller update at initialisation, a larger stable rate: where it learns half", "half"),
        *(
            trained(
                f"within Post-LN: {scheme}, whose update is smaller, trains at a larger rate",
                statement,
                statement.with_reversed(),
            )
            for scheme, statement in questions.WITHIN_POST.items()
        ),
    ),
    finding=Finding(
        "A smaller update at initialisation does not mean more stable training, as the slides of Magneto "
        "conclude, between networks whose norms stand in different places: small Pre-LN and NormFormer "
        "models, whose updates are several times DeepNorm's, still end below the entropy of the labels at "
        "far larger rates. Beside Post-LN it is so: DeepNorm and Su's rule for Adam pass where it is stuck",
        rank=70,
        shared_with=("S3-04",),
    ),
)

CLAIMS = (*_AVERAGES, _S3_39, _S3_40, _S3_41, _S3_42, _S3_43, _S3_44, _S3_45, _S3_46, _S3_47, _S3_48, _S3_49)
