"""Learning rates and divergence on the slides of Magneto, and what the slides conclude from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations

from sympy import Expr, Integer, lambdify, limit, log, oo

from paper_checks.claims.claim import Claim, Finding, Kind, Mutant, Part, Route, Verdict
from paper_checks.papers.magneto.experiments import FOUR_SHOT, GLUE, OPUS, ZERO_SHOT
from paper_checks.routes import questions
from paper_checks.routes.checks import check
from paper_checks.routes.contests import LARGEST_CHECKS, RUN_CHECKS, Largest, Run, Runs
from paper_checks.routes.result_tables import Table
from paper_checks.routes.training import BY_TRAINING, open_in_small
from theory.symbols import N

# ---------------------------------------------------------------- S3-40 to S3-42


def _gpt_runs(table: Table) -> Runs:
    rates = (("Pre-LN", "24L", "1e-3", False), ("NormFormer", "24L", "1e-3", False), ("Magneto", "24L", "1e-3", True))
    deeper = (("Magneto", "48L", "1.2e-3", True), ("Magneto", "72L", "1.2e-3", True))
    return Runs(
        tuple(
            Run(table=table, model=model, layers=layers, rate=rate, has_trained=trained)
            for model, layers, rate, trained in (*rates, *deeper)
        )
    )


_ZERO, _FOUR = _gpt_runs(ZERO_SHOT), _gpt_runs(FOUR_SHOT)

_S3_40 = Claim(
    id="S3-40",
    kind=Kind.REMARK,
    source="slides",
    locator=f"{ZERO_SHOT.locator} and the four-shot one",
    quote="Pre-LN\t\t1e-3\t\t\tdiverged\t\t\nNormformer\t\t5e-4\t54.3\t68.1\t72.0\t45.9\t60.1\n"
    "Normformer\t\t1e-3\t\t\tdiverged",
    summary="GPT, 24 layers: Pre-LN and NormFormer diverge at a rate of 1e-3, Magneto trains; at 48 and 72 at 1.2e-3",
    parts=(
        Part(
            name="what the zero-shot table prints",
            statement=_ZERO,
            checks=RUN_CHECKS,
            mutants=_ZERO.mutants(0, 1, 2, 3),
        ),
        Part(
            name="what the four-shot table prints",
            statement=_FOUR,
            checks=RUN_CHECKS,
            mutants=_FOUR.mutants(0, 1, 2, 4),
        ),
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
    expected=Verdict.UNDECIDED,
)

_GLUE_RATES = Largest(table=GLUE, rates=(("Post-LN", "5e-4"), ("Pre-LN", "1e-3"), ("Magneto", "3e-3")))
_S3_41 = Claim(
    id="S3-41",
    kind=Kind.REMARK,
    source="slides",
    locator=GLUE.locator,
    quote="Post-LN\t1e-3\t\t\t\tdiverged\t\t\t\t\nPre-LN\t1e-3\t85.6/85.4",
    summary="BERT: largest stable rate Post-LN 5e-4 < Pre-LN 1e-3 < Magneto 3e-3",
    parts=(
        Part(
            name="what the table prints",
            statement=_GLUE_RATES,
            checks=LARGEST_CHECKS,
            mutants=(
                Mutant(name="Post-LN at 1e-3", statement=_GLUE_RATES.with_("Post-LN", "1e-3")),
                Mutant(name="Pre-LN at 2e-3", statement=_GLUE_RATES.with_("Pre-LN", "2e-3")),
                Mutant(name="the order turned round", statement=_GLUE_RATES.with_reversed()),
            ),
        ),
        Part(
            name="a proxy, encoders of 12 layers, 32 wide, masked bytes: Pre-LN above Post-LN, which gets stuck",
            statement=questions.BERT_PRE_POST,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.BERT_PRE_POST.with_reversed()),),
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
    expected=Verdict.UNDECIDED,
)

_OPUS_RUNS = Runs(
    tuple(
        Run(table=OPUS, model=model, has_trained=trained)
        for model, trained in (("Post-LN", False), ("Pre-LN", True), ("NormFormer", True), ("Magneto", True))
    )
)
_S3_42 = Claim(
    id="S3-42",
    kind=Kind.REMARK,
    source="slides",
    locator=f"{OPUS.locator}; 18L-18L stands in the body of the paper",
    quote="Post-LN\t\tdiverged",
    summary="translation at 18L-18L: Post-LN diverges, Pre-LN, NormFormer and Magneto train",
    parts=(
        Part(
            name="what the table prints", statement=_OPUS_RUNS, checks=RUN_CHECKS, mutants=_OPUS_RUNS.mutants(0, 1, 3)
        ),
        Part(
            name="a proxy, source lines to bytecode, 32 wide: Post-LN is stuck (it does not diverge), the others train",
            statement=questions.TRANSLATION,
            checks=(BY_TRAINING,),
            mutants=(Mutant(name="the other way round", statement=questions.TRANSLATION.with_swapped()),),
        ),
    ),
)


# ---------------------------------------------------------------- S3-49: a smaller update, a more stable optimisation


@dataclass(frozen=True)
class StableRates:
    """Norm, printed bound of its update, largest printed rate: of two orders the smaller has the larger rate."""

    entries: tuple[tuple[str, Expr, str], ...]

    @property
    def text(self) -> str:
        said = ", ".join(f"{norm}: Theta({bound}), {rate}" for norm, bound, rate in self.entries)
        return f"of two bounds of different order the smaller has the larger rate: {said}"

    def with_(self, norm: str, *, bound: Expr | None = None, rate: str | None = None) -> StableRates:
        return StableRates(
            tuple(
                (name, bound if bound is not None else b, rate or r) if name == norm else (name, b, r)
                for name, b, r in self.entries
            )
        )


def _rates_by_limits(statement: StableRates) -> list[bool | None]:
    return [
        Decimal(small_rate) > Decimal(big_rate)
        for (_, small, small_rate), (_, big, big_rate) in permutations(statement.entries, 2)
        if limit(small / big, N, oo) == 0
    ]


def _rates_by_numbers(statement: StableRates) -> list[bool | None]:
    """A bound is of larger order where its ratio to the other doubles, or more, from N = 10^3 to 10^9."""
    out: list[bool | None] = []
    for (_, small, small_rate), (_, big, big_rate) in permutations(statement.entries, 2):
        ratio = lambdify(N, big / small, modules="math")
        if ratio(10**9) > 2 * ratio(10**3):
            out.append(math.log10(float(small_rate)) > math.log10(float(big_rate)))
    return out


STABLER_WHERE = (
    "beside Post-LN, at 12 layers: DeepNorm's and Su's row for Adam have smaller updates, and pass at rates at which "
    "it does not"
)
_BOUNDS = StableRates((("Post-LN", N, "5e-4"), ("Pre-LN", log(N), "1e-3"), ("Sub-LN", log(N), "3e-3")))
_S3_49 = Claim(
    id="S3-49",
    kind=Kind.RESULT,
    source="slides",
    locator="Takeaways; bounds in the table of normalizations, rates in the GLUE table",
    quote="Smaller model update leads to more stable optimization.",
    summary="a smaller model update makes optimization more stable",
    parts=(
        Part(
            name="the slides' own numbers: printed bounds against printed rates (Pre and Sub have one order: no test)",
            statement=_BOUNDS,
            checks=(
                check(
                    Route.PROOF, "pairs of different order, by limits of the ratio", _rates_by_limits, is_direct=True
                ),
                check(Route.NUMERIC, "the same pairs by N = 10^3 and 10^9", _rates_by_numbers, is_direct=True),
            ),
            mutants=(
                Mutant(name="Post-LN at 2e-3", statement=_BOUNDS.with_("Post-LN", rate="2e-3")),
                Mutant(name="Sub-LN of order N^2", statement=_BOUNDS.with_("Sub-LN", bound=N**2)),
                Mutant(name="Post-LN Theta(1)", statement=_BOUNDS.with_("Post-LN", bound=Integer(1))),
            ),
        ),
        *(
            Part(
                name=f"a smaller update at initialisation, a larger stable rate: {words}",
                statement=questions.SMALLER[look],
                checks=(BY_TRAINING,),
                mutants=(Mutant(name="a larger update, more stable", statement=questions.SMALLER[look].with_larger()),),
                expected=Verdict.REFUTED,
                condition=STABLER_WHERE,
            )
            for look, words in (("trains", "where it trains"), ("half", "where it learns half"))
        ),
        *(
            Part(
                name=f"within Post-LN: {scheme}, whose update is smaller, trains at a larger rate",
                statement=statement,
                checks=(BY_TRAINING,),
                mutants=(Mutant(name="the other way round", statement=statement.with_reversed()),),
            )
            for scheme, statement in questions.WITHIN_POST.items()
        ),
    ),
    expected=Verdict.REFUTED,
    finding=Finding(
        "A smaller update at initialisation does not mean more stable training, as the slides of Magneto "
        "conclude, between networks whose norms stand in different places: small Pre-LN and NormFormer "
        "models, whose updates are several times DeepNorm's, still end below the entropy of the labels at "
        "far larger rates. Beside Post-LN it is so: DeepNorm and Su's row for Adam pass where it is stuck",
        rank=70,
        shared_with=("S3-04",),
    ),
)

CLAIMS: tuple[Claim, ...] = (_S3_40, _S3_41, _S3_42, _S3_49)
