"""What the paper of Magneto says in words: which model uses which norm, and that its own is better and more stable."""

from __future__ import annotations

from dataclasses import dataclass

from paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route, Verdict, claim
from paper_checks.papers.slides.contests import OURS, RUN_CHECKS, Run, Runs, swapped, wins, wins_of
from paper_checks.papers.slides.rates import LARGEST_CHECKS, Largest, open_in_small
from paper_checks.papers.slides.tables import AVERAGE, FOUR_SHOT, GLUE, OPUS, SPEECH, VISION, VL, ZERO_SHOT, Table
from paper_checks.routes import questions
from paper_checks.routes.checks import check

# ---------------------------------------------------------------- S2-22: which model uses which norm


@dataclass(frozen=True)
class Norms:
    """The norm of each model."""

    entries: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return ", ".join(f"{model} {norm}" for model, norm in self.entries)

    def with_(self, **norms: str) -> Norms:
        return Norms(tuple((model, norms.get(model, norm)) for model, norm in self.entries))


_ELSEWHERE = {
    "the paper's abstract": {"BERT": "Post-LN", "GPT": "Pre-LN", "ViT": "Pre-LN"},
    "the paper's Section 1": {"GPT": "Pre-LN", "ViT": "Pre-LN", "BERT": "Post-LN", "NMT": "Post-LN"},
    "the slides' Introduction": {"BERT": "Post-LN", "GPT": "Pre-LN", "ViT": "Pre-LN"},
}
"""What other places say in words; 'vision Transformers' is ViT, 'machine translation' NMT."""
_RELEASED = {"BERT": "Post-LN", "BART": "Post-LN", "GPT": "Pre-LN", "ViT": "Pre-LN", "BEiT": "Pre-LN"}
"""How the layers of released checkpoints are built, in the Hugging Face code; GPT from GPT-2 on."""
_BASELINES: dict[str, tuple[Table, ...]] = {
    "GPT": (ZERO_SHOT, FOUR_SHOT),
    "BERT": (GLUE,),
    "NMT": (OPUS,),
    "BEiT": (VISION,),
    "T-T": (SPEECH,),
    "BEiT-3": (VL,),
}


def _said_elsewhere(statement: Norms) -> list[bool | None]:
    said = dict(statement.entries)
    return [said[model] == norm for place in _ELSEWHERE.values() for model, norm in place.items()]


def _as_released(statement: Norms) -> list[bool | None]:
    said = dict(statement.entries)
    return [said[model] == norm for model, norm in _RELEASED.items()]


def _among_baselines(statement: Norms) -> list[bool | None]:
    said = dict(statement.entries)
    return [
        said[model] in {row.model for row in table.rows} for model, tables in _BASELINES.items() for table in tables
    ]


_NORMS = Norms(
    (
        ("ViT", "Pre-LN"),
        ("BEiT", "Pre-LN"),
        ("BERT", "Post-LN"),
        ("GPT", "Pre-LN"),
        ("NMT", "Post-LN"),
        ("BART", "Post-LN"),
        ("T-T", "Pre-LN"),
        ("BEiT-3", "Pre-LN"),
    )
)
_S2_22 = claim(
    "S2-22",
    kind=Kind.REMARK,
    source="magneto",
    locator="Figure 1, top",
    quote="Vision Encoder ViT/BEiT Pre-LN\nSub-LN\nLanguage\nEncoder BERT Post-LN\nDecoder GPT Pre-LN\n"
    "Encoder-Decoder NMT/BART Post-LN\nSpeech Encoder T-T Pre-LN\nMultimodal Encoder BEiT-3 Pre-LN",
    summary="ViT, BEiT, GPT, T-T and BEiT-3 use Pre-LN, BERT, NMT and BART Post-LN",
    statement=_NORMS,
    checks=(
        check(
            Route.CITATION,
            "the abstract, Section 1 and the slides' Introduction say the same of BERT, GPT, ViT and NMT",
            _said_elsewhere,
            is_direct=True,
        ),
        check(
            Route.CITATION,
            "the layers of released checkpoints; GPT from GPT-2 on: the first GPT normalises after the residual sum",
            _as_released,
            is_direct=True,
        ),
        check(
            Route.CITATION,
            "the norm of each is a baseline in the slides' own table of that model",
            _among_baselines,
            is_direct=True,
        ),
    ),
    mutants=(
        Mutant(name="GPT Post-LN", statement=_NORMS.with_(GPT="Post-LN")),
        Mutant(name="NMT Pre-LN", statement=_NORMS.with_(NMT="Pre-LN")),
        Mutant(name="BEiT Post-LN", statement=_NORMS.with_(BEiT="Post-LN")),
        Mutant(name="BART Pre-LN", statement=_NORMS.with_(BART="Pre-LN")),
    ),
)

# ---------------------------------------------------------------- S2-23: better and more stable

_USUAL = ("Post-LN", "Pre-LN")
"""The de facto variants of Figure 1; NormFormer is none of them (S3-43)."""
_BETTER = wins_of(
    [
        *(column for table in (ZERO_SHOT, FOUR_SHOT) for column in table.columns() if column.name == AVERAGE),
        GLUE.column(AVERAGE),
        OPUS.column(AVERAGE),
        *(column for table in (VISION, SPEECH, VL) for column in table.columns()),
    ],
    OURS,
    *_USUAL,
)
_STABLE = Runs(
    (
        Run(table=ZERO_SHOT, model="Pre-LN", layers="24L", rate="1e-3", has_trained=False),
        Run(table=ZERO_SHOT, model=OURS, layers="24L", rate="1e-3", has_trained=True),
        Run(table=GLUE, model="Post-LN", rate="1e-3", has_trained=False),
        Run(table=GLUE, model="Pre-LN", rate="2e-3", has_trained=False),
        Run(table=GLUE, model=OURS, rate="3e-3", has_trained=True),
        Run(table=OPUS, model="Post-LN", has_trained=False),
        Run(table=OPUS, model=OURS, has_trained=True),
    )
)


def _larger(name: str, statement: Largest, rate: str) -> Part:
    return Part(
        name=f"a larger rate without divergence: {name}",
        statement=statement,
        checks=LARGEST_CHECKS,
        mutants=(
            Mutant(name=f"{OURS} at {rate}", statement=statement.with_(OURS, rate)),
            Mutant(name="the order turned round", statement=statement.with_reversed()),
        ),
    )


_S2_23 = Claim(
    id="S2-23",
    kind=Kind.REMARK,
    source="magneto",
    locator="Abstract; Section 1, last paragraph, has the learning rates. Tables from the slides",
    quote="Extensive experiments demonstrate\nits superior performance and better stability than the de facto "
    "Transformer variants\ndesigned for various applications",
    summary="Magneto performs better than Post-LN and Pre-LN, and trains at larger learning rates without divergence",
    parts=(
        Part(
            name="the tables, by application: every average, and every column of those without one, against Post-LN "
            "and Pre-LN (four single tasks go the other way: WGe at 24, 48 and 72 layers, zero-shot, and STS; S3-43)",
            statement=_BETTER,
            checks=wins("S2-23"),
            mutants=swapped(_BETTER, 0, 6, 7, 8, 20, 29),
        ),
        Part(
            name="the tables: it trained where Post-LN or Pre-LN diverged",
            statement=_STABLE,
            checks=RUN_CHECKS,
            mutants=_STABLE.mutants(0, 2, 4, 5),
        ),
        *(
            _larger(
                f"GPT, {layers}",
                Largest(table=ZERO_SHOT, layers=layers, rates=(("Pre-LN", "5e-4"), (OURS, rate))),
                "5e-4",
            )
            for layers, rate in (("24L", "1e-3"), ("48L", "1.2e-3"), ("72L", "1.2e-3"))
        ),
        _larger("BERT", Largest(table=GLUE, rates=(("Post-LN", "5e-4"), ("Pre-LN", "1e-3"), (OURS, "3e-3"))), "1e-3"),
        open_in_small(
            "training shows it",
            "over tasks and depths Magneto's loss is below Post-LN's and Pre-LN's, its largest stable rate above",
            "Magneto, Post-LN and Pre-LN trained on language, translation and images at the widths of the tables and "
            "two depths or more, each at its own best of a sweep of learning rates, 5 seeds or more: whether "
            "Magneto's loss is lower, and its largest rate at which every seed trains larger, by their intervals. "
            "The tables print one number a cell, no spread, and at 48 and 72 layers no larger rate for Pre-LN",
            *questions.GPT_ORDER.values(),
            questions.BERT_OURS_PRE,
            *questions.LOWER_LOSS.values(),
        ),
    ),
    expected=Verdict.UNDECIDED,
)

CLAIMS: tuple[Claim, ...] = (_S2_22, _S2_23)
