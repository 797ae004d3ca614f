"""Figures and comparisons that Su's article quotes: sizes of models, and who trains or translates better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from paper_checks.claims.claim import Check, Claim, Evidence, Mutant, Part, Route, Verdict, claim
from paper_checks.claims.statements import Values
from paper_checks.papers.deepnet.arithmetic import (
    DIVERGED,
    LAYER_CHECKS,
    M2M,
    THOUSAND,
    THOUSAND_MUTANTS,
    WMT17,
    WMT17_DEPTHS,
)
from paper_checks.papers.slides.contests import RUN_CHECKS, Run, Runs, Words, interval, swapped, wins, wins_of
from paper_checks.papers.slides.rates import trained_only
from paper_checks.papers.slides.tables import AVERAGE, GLUE, OPUS, Column
from paper_checks.routes import questions
from paper_checks.routes.checks import check, outcome
from paper_checks.routes.parameter_counts import COUNT_CHECKS, Count, to_rounding
from paper_checks.routes.training import BY_TRAINING, at_this_scale
from theory.symbols import N, d, scratch

_INTRODUCTION = "first paragraph"
_END = "Post-hoc Analysis, last paragraph"
_RESULT = (
    "The original paper presents a beautiful experimental result: a 200-layer “deep and narrow” model (3.2 billion "
    "parameters) outperformed a previous 48-layer “shallow and wide” SOTA model (12 billion parameters):"
)
_BILLION = 10**9

# ---------------------------------------------------------------- S1-42: GPT-3

_GPT3 = Count(
    stacks=((96, 1),),
    width=12288,
    rows=50257,
    low=10**11,
    high=10**12,
    words="hundreds of billions, read as an order of magnitude: from 10^11 up to 10^12",
)
_LOW, _HIGH = to_rounding("175", _BILLION)
_GPT3_PUBLISHED = _GPT3.with_(low=_LOW, high=_HIGH, words="the published 175 billion, to rounding")

_S1_42 = Claim(
    id="S1-42",
    source="su",
    locator=_INTRODUCTION,
    quote="although GPT-3 has hundreds of billions of parameters, it’s only a 96-layer Transformer model",
    summary="GPT-3: 96 layers (of width 12,288) are 1.7 hundred billion parameters",
    parts=(
        Part(
            name="hundreds of billions, as an order of magnitude",
            statement=_GPT3,
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="GPT-2's 48 layers of width 1,600", statement=_GPT3.with_(stacks=((48, 1),), width=1600)),
                Mutant(name="a tenth of the layers", statement=_GPT3.with_(stacks=((9, 1),))),
            ),
        ),
        Part(
            name="96 layers give the published 175 billion",
            statement=_GPT3_PUBLISHED,
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="95 layers", statement=_GPT3_PUBLISHED.with_(stacks=((95, 1),))),
                Mutant(name="cross-attention", statement=_GPT3_PUBLISHED.with_(stacks=((96, 2),))),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S1-43: wide and shallow, narrow and deep

_n = scratch("n", positive=True)
"""Tokens of context."""
_COST = Values.of(parameters=12 * N * d**2, operations=24 * N * d**2 + 4 * _n * N * d)
"""Per token, forward: two operations a multiply-add; 4 n d a layer for scores and their weighted sum."""
_PAIRS = (
    ((96, 12288), (384, 6144), 2048),
    ((24, 4096), (96, 2048), 512),
    ((24, 4096), (384, 1024), 512),
)
"""Wide and narrow of equal parameters, (layers, width), and the context: GPT-3's shape, and M2M's width."""
_NOT_MUCH_LESS = Decimal("0.9")


def _per_parameter(s: Values) -> list[bool | None]:
    """Operations over parameters go to a number that knows neither N nor d, the context short against the width."""
    ratio = (s["operations"] / s["parameters"]).expand()
    short = ratio.subs(_n, 0)
    return [bool(short.is_number), ratio.free_symbols <= {_n, d}, (ratio - short).is_nonnegative]


def _counted(layers: int, width: int, tokens: int) -> int:
    """Multiply-adds per token, matrix by matrix, twice."""
    matrices = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    each = sum(rows * columns for rows, columns in matrices) + 2 * tokens * width
    return 2 * layers * each


def _at_shapes(s: Values) -> Evidence:
    holds, numbers = [], {}
    for wide, narrow, tokens in _PAIRS:
        cost = {}
        for layers, width in (wide, narrow):
            at = {N: layers, d: width, _n: tokens}
            cost[layers, width] = int(s["operations"].subs(at))
            holds.append(cost[layers, width] == _counted(layers, width, tokens))
            holds.append(int(s["parameters"].subs(at)) == 12 * layers * width**2)
        ratio = Decimal(cost[wide]) / Decimal(cost[narrow])
        holds += [12 * wide[0] * wide[1] ** 2 == 12 * narrow[0] * narrow[1] ** 2, ratio >= _NOT_MUCH_LESS]
        numbers[f"{wide[0]} x {wide[1]} over {narrow[0]} x {narrow[1]}, {tokens} tokens"] = f"{ratio:.4f}"
    return Evidence(
        route=Route.NUMERIC,
        num_effective=len(holds),
        verdict=outcome(all(holds)),
        detail="wide over narrow at equal parameters, multiply-adds counted matrix by matrix: 0.9 or more. The models "
        "of the article's last paragraph are not of equal size: there the wide one costs 3.8 times as much",
        numbers=numbers,
    )


_S1_43 = claim(
    "S1-43",
    source="su",
    locator=_INTRODUCTION,
    quote="a “wide and shallow” model doesn’t necessarily require much less computational power than a “narrow and "
    "deep” one",
    summary="at equal parameters a wide, shallow model need not take much less compute than a narrow, deep one",
    statement=_COST,
    checks=(
        check(
            Route.PROOF,
            "operations over parameters are 2 + n/(3d): 2 whatever N and d, but for scores of attention (n tokens)",
            _per_parameter,
            is_direct=True,
        ),
        Check(route=Route.NUMERIC, run=_at_shapes, is_direct=True),
    ),
    mutants=(
        Mutant(name="cost with N^2", statement=_COST.with_(operations=24 * N**2 * d**2)),
        Mutant(name="cost with d^3", statement=_COST.with_(operations=24 * N * d**3)),
        Mutant(name="parameters with d", statement=_COST.with_(parameters=12 * N * d)),
    ),
)

# ---------------------------------------------------------------- S1-44, S1-45: 3.2 and 12 billion

_DICTIONARY = 128112
"""Entries of M2M-100's published dictionary; the article and DeepNet's text print none."""
_DEEP_LOW, _DEEP_HIGH = to_rounding("3.2", _BILLION)
_WIDE_LOW, _WIDE_HIGH = to_rounding("12", _BILLION)
_DEEP = Count(
    stacks=((100, 1), (100, 2)),
    width=1024,
    rows=2 * _DICTIONARY,
    low=_DEEP_LOW,
    high=_DEEP_HIGH,
    words="3.2 billion, to rounding",
)
_WIDE = Count(
    stacks=((24, 1), (24, 2)),
    width=4096,
    rows=_DICTIONARY,
    low=_WIDE_LOW,
    high=_WIDE_HIGH,
    words="12 billion, to rounding",
)


def _readings(statement: Count) -> Evidence:
    """How many tables of the dictionary make both printed totals; and how many rows the printed one leaves room for."""
    fits = {}
    for tables in range(5):
        totals = []
        for model in (_DEEP, _WIDE):
            layers = sum(n * (4 * attentions + 8) for n, attentions in model.stacks)
            totals.append(layers * model.width**2 + tables * _DICTIONARY * model.width)
        fits[tables] = [m.low <= total < m.high for m, total in zip((_DEEP, _WIDE), totals, strict=True)]
    both = [tables for tables, found in fits.items() if all(found)]
    matrices = sum(n * (4 * a + 8) for n, a in statement.stacks) * statement.width**2
    room = [-(-(end - matrices) // statement.width) for end in (statement.low, statement.high)]
    return Evidence(
        route=Route.PROPERTY,
        num_effective=len(fits),
        verdict=outcome([statement.rows] == [tables * _DICTIONARY for tables in both]),
        detail=f"of 0 to {len(fits) - 1} tables of {_DICTIONARY} entries, those with which 3.2B and 12B both come out: "
        f"{', '.join(map(str, both))} (input and output embeddings counted apart; one table of the 256,000 pieces of "
        "FLORES-101 gives the same). One table alone makes 3.07B",
        numbers={"rows from": room[0], "rows below": room[1]},
    )


_S1_44 = claim(
    "S1-44",
    source="su",
    locator=_END,
    quote=_RESULT,
    summary="200 layers (100 + 100, width 1,024) are 3.2B parameters: 2.936B in matrices and 256,224 embeddings",
    statement=_DEEP,
    checks=(*COUNT_CHECKS, Check(route=Route.PROPERTY, run=_readings, is_direct=True)),
    mutants=(
        Mutant(name="one table", statement=_DEEP.with_(rows=_DICTIONARY)),
        Mutant(name="no cross-attention", statement=_DEEP.with_(stacks=((200, 1),))),
        Mutant(name="48 layers", statement=_DEEP.with_(stacks=((24, 1), (24, 2)))),
    ),
)

_S1_45 = Claim(
    id="S1-45",
    source="su",
    locator=_END,
    quote=_RESULT,
    summary="48 layers (24 + 24, width 4,096) are 12B parameters, with one table of embeddings or with two",
    parts=tuple(
        Part(
            name=name,
            statement=_WIDE.with_(rows=rows),
            checks=COUNT_CHECKS,
            mutants=(
                Mutant(name="no embeddings", statement=_WIDE.with_(rows=0)),
                Mutant(name="no cross-attention", statement=_WIDE.with_(rows=rows, stacks=((48, 1),))),
                Mutant(name="width 2,048", statement=_WIDE.with_(rows=rows, width=2048)),
            ),
        )
        for name, rows in (
            ("one table of 128,112, shared by input and output", _DICTIONARY),
            ("input and output embeddings counted apart, as S1-44 needs it", 2 * _DICTIONARY),
        )
    ),
)

# ---------------------------------------------------------------- S1-46: 200 layers against 48

_TRANSLATION = wins_of(
    [
        Column(
            table="BLEU", block="", name=name, entries=(("M2M-100, 48 layers", wide, False), ("DeepNet", deep, False))
        )
        for name, (wide, deep) in M2M.items()
    ],
    model="DeepNet",
)


@dataclass(frozen=True)
class Ahead:
    """By how much 200 layers are ahead on a test set, in BLEU."""

    name: str
    printed: str

    @property
    def text(self) -> str:
        return f"{self.printed} BLEU ahead on {self.name}"


_FIVE = Ahead("Flores", "5")


def _ahead_whatever_was_rounded(statement: Ahead) -> list[bool | None]:
    (wide_low, wide_high), (deep_low, deep_high) = map(interval, M2M[statement.name])
    low, high = interval(statement.printed)
    return [low < deep_low - wide_high, deep_high - wide_low < high]


_S1_46 = Claim(
    id="S1-46",
    source="su",
    locator=f"{_END}; scores at second hand from DeepNet's comparison with M2M-100",
    quote=_RESULT,
    summary="DeepNet with 200 layers translates better than M2M-100 with 48 on all four test sets, by 5 BLEU on Flores",
    parts=(
        Part(
            name="all four test sets",
            statement=_TRANSLATION,
            checks=wins("S1-46"),
            mutants=swapped(_TRANSLATION, 0, 2, 3),
        ),
        Part(
            name="by 5 BLEU: on Flores (2.0 on WMT, 4.6 on OPUS, 1.4 on TED)",
            statement=_FIVE,
            checks=(
                check(
                    Route.ARITHMETIC,
                    "18.6 - 13.6, exactly",
                    lambda s: [Decimal(M2M[s.name][1]) - Decimal(M2M[s.name][0]) == Decimal(s.printed)],
                    is_direct=True,
                ),
                check(
                    Route.NUMERIC,
                    "the same, to rounding, for any scores that round to the two: from 4.9 to 5.1",
                    _ahead_whatever_was_rounded,
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="on TED", statement=replace(_FIVE, name="TED")),
                Mutant(name="on OPUS", statement=replace(_FIVE, name="OPUS")),
            ),
        ),
    ),
)

# ---------------------------------------------------------------- S1-47, S1-48: which norm trains, which is better

_EASIER = Runs(
    (
        Run(table=GLUE, model="Post-LN", rate="1e-3", has_trained=False),
        Run(table=GLUE, model="Pre-LN", rate="1e-3", has_trained=True),
        Run(table=OPUS, model="Post-LN", has_trained=False),
        Run(table=OPUS, model="Pre-LN", has_trained=True),
    )
)
_FINAL = wins_of(
    [
        GLUE.column(AVERAGE),
        Column(
            table="WMT-17",
            block="6L-6L",
            name="BLEU",
            entries=tuple((model, WMT17[model][0], False) for model in ("Post-LN", "Pre-LN")),
        ),
    ],
    "Post-LN",
    "Pre-LN",
    model="Post-LN",
)

_S1_47 = Claim(
    id="S1-47",
    source="su",
    locator="Feedforward Gradients, first sentence; results from the slides of Magneto and, at second hand, DeepNet",
    quote="Many experimental results show that although Pre-Norm is easier to train than Post-Norm, Post-Norm often "
    "yields better final results.",
    summary="Pre-Norm is easier to train than Post-Norm; Post-Norm often ends better",
    parts=(
        Part(
            name="printed results: Pre-LN trained where Post-LN diverged (BERT at 1e-3, translation at 18L-18L)",
            statement=_EASIER,
            checks=RUN_CHECKS,
            mutants=_EASIER.mutants(0, 1, 2, 3),
        ),
        Part(
            name="printed results: where both trained, Post-LN ended better (GLUE 85.7 to 84.6, WMT-17 28.1 to 27.0)",
            statement=_FINAL,
            checks=wins("S1-47"),
            mutants=swapped(_FINAL, 0, 1),
        ),
        Part(
            name="training shows it, easier: decoders of 12 layers, 32 wide",
            statement=questions.PRE_EASIER,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.PRE_EASIER.with_reversed()),),
        ),
        trained_only(
            "training shows it, better in the end",
            "where both train, Post-Norm's loss is often lower",
            "training runs of Post-Norm and Pre-Norm over depths, each at its own best rate and to the end",
            "Post-Norm and Pre-Norm trained on language, translation and images over depths from 2 to 32 layers, each "
            "at its own best of a sweep of learning rates with warm-up, until the held-out loss falls no more, 5 seeds "
            "or more: on how many of the tasks Post-Norm's is lower by its interval. The recorded runs end long before",
        ),
    ),
    expected=Verdict.UNDECIDED,
)


@dataclass(frozen=True)
class Depths:
    """What became of one network over depth: layers, and whether it trained."""

    entries: tuple[tuple[int, bool], ...]

    @property
    def text(self) -> str:
        return ", ".join(f"{n}L-{n}L {'trained' if trained else DIVERGED}" for n, trained in self.entries)


def _once_and_for_all(statement: Depths) -> list[bool | None]:
    """It trains up to some depth and no more beyond: both happen."""
    trained = [n for n, has_trained in statement.entries if has_trained]
    failed = [n for n, has_trained in statement.entries if not has_trained]
    return [bool(trained and failed) and max(trained) < min(failed)]


def _as_reported(statement: Depths) -> list[bool | None]:
    """18L-18L by the slides; the other depths by DeepNet's table."""
    reported = dict(zip(WMT17_DEPTHS, (score != DIVERGED for score in WMT17["Post-LN"]), strict=True))
    (post,) = (row for row in OPUS.rows if row.model == "Post-LN")
    reported[18] = not post.has_diverged
    return [reported[n] is trained for n, trained in statement.entries]


_POST_DEPTHS = Depths(((6, True), (18, False), (50, False), (100, False)))
_S1_48 = Claim(
    id="S1-48",
    source="su",
    locator="Increment Explosion, third paragraph; results from the slides of Magneto and, at second hand, DeepNet",
    quote="If the model is deeper, the update amount is larger, which implies that the model is more likely to enter a "
    "less optimal local minimum in the initial stage, leading to training stagnation or even collapse.",
    summary="the deeper a vanilla model, the more likely it gets stuck or collapses; warm-up helps",
    parts=(
        Part(
            name="printed results: Post-LN trained at 6L-6L, and diverged from 18L-18L on",
            statement=_POST_DEPTHS,
            checks=(
                check(
                    Route.ARITHMETIC,
                    "every depth that failed is larger than all that trained",
                    _once_and_for_all,
                    is_direct=True,
                ),
                check(
                    Route.CITATION,
                    "6L-6L, 50L-50L and 100L-100L as reported of DeepNet's WMT-17 baselines, 18L-18L by OPUS-100 on "
                    "the slides of Magneto alone: the WMT-17 table is at second hand, several rows of baselines in it "
                    "are doubtful, and DeepNet's text calls Post-LN unstable at 50L-50L",
                    _as_reported,
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="50L-50L trained", statement=Depths(((6, True), (18, False), (50, True), (100, False)))),
                Mutant(name="18L-18L trained", statement=Depths(((6, True), (18, True), (50, False), (100, False)))),
                Mutant(name="6L-6L diverged", statement=Depths(tuple((n, False) for n, _ in _POST_DEPTHS.entries))),
            ),
        ),
        Part(
            name="training shows it: at 18L-18L fewer seeds train than at 2L-2L, source lines to bytecode, 32 wide",
            statement=questions.DEEPER,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.DEEPER.with_swapped()),),
        ),
        Part(
            name="training shows that warm-up helps",
            statement=Words("with warm-up more seeds train"),
            checks=(at_this_scale(*questions.WARMED.values(), *questions.WARMED_LOSS.values()),),
            mutants=(),
            open="Post-LN with and without warm-up at the depth and rate at which half of the seeds train, 14 seeds or "
            "more, beside a lower rate of the same sum: whether more train. Of 5 seeds the shares leave it open at "
            "every depth; the loss is lower with warm-up at 6L-6L, and higher at 2L-2L, where nothing is stuck",
            expected=Verdict.UNDECIDED,
        ),
    ),
    expected=Verdict.UNDECIDED,
)

# ---------------------------------------------------------------- S1-50: 1,000 layers

_S1_50 = claim(
    "S1-50",
    source="su",
    locator="title, and second paragraph",
    quote="ultimately succeeding in training a 1000-layer Transformer model",
    summary="DeepNet's 1,000 layers: 500 encoder and 500 decoder layers, 2,500 sublayers",
    statement=THOUSAND,
    checks=LAYER_CHECKS,
    mutants=THOUSAND_MUTANTS,
)

CLAIMS: tuple[Claim, ...] = (_S1_42, _S1_43, _S1_44, _S1_45, _S1_46, _S1_47, _S1_48, _S1_50)
