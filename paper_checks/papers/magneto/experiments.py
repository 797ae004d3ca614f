"""What Magneto's experiments say: the tables of results, which model uses which norm, and which is better.

The pinned copy of the paper lacks its tables; they stand here as the slides print them.
"""

from __future__ import annotations

from depthlaw.paper_checks.claims.broken import changed
from depthlaw.paper_checks.claims.claim import Claim, Kind, Route, claim
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import check
from depthlaw.paper_checks.routes.tables.results import (
    AVERAGE,
    DIVERGED,
    OURS,
    TRAINED,
    Table,
    largest_rates,
    ran,
    read_table,
    won,
)
from depthlaw.paper_checks.routes.training import questions
from depthlaw.paper_checks.routes.training.arms import open_in_small

# ---------------------------------------------------------------- the tables

ZERO_SHOT = read_table(
    "zero-shot",
    "Experiments, causal language modeling, zero-shot table",
    """
Models	# Layers	LR	WGe	WG	SC	HS	Avg.
Pre-LN	24L	5e-4	<b>55.2</b>	65.3	70.8	44.8	59.0
Pre-LN		1e-3			diverged
Normformer		5e-4	54.3	68.1	72.0	45.9	60.1
Normformer		1e-3			diverged
<b>MAGNETO</b>		1e-3	54.3	<b>71.9</b>	<b>72.4</b>	<b>46.9</b>	<b>61.4</b>
Pre-LN	48L	5e-4	<b>57.3</b>	67.0	74.0	48.0	61.6
Normformer		5e-4	56.5	70.5	74.0	49.8	62.7
<b>MAGNETO</b>		1.2e-3	57.0	<b>73.3</b>	<b>74.7</b>	<b>51.2</b>	<b>64.1</b>
Pre-LN	72L	5e-4	<b>58.0</b>	70.9	75.7	51.7	64.1
Normformer		5e-4	57.4	<b>75.4</b>	75.2	53.6	65.4
<b>MAGNETO</b>		1.2e-3	57.9	73.7	<b>76.6</b>	<b>55.1</b>	<b>65.8</b>
""",
)

FOUR_SHOT = read_table(
    "four-shot",
    "Experiments, causal language modeling, four-shot table",
    """
Models	# Layers	LR	WGe	WG	SC	HS	Avg.
Pre-LN	24L	5e-4	54.0	67.7	69.8	44.6	59.0
Pre-LN		1e-3			diverged
Normformer		5e-4	54.3	70.2	71.4	45.9	60.5
Normformer		1e-3			diverged
<b>MAGNETO</b>		1e-3	<b>57.6</b>	<b>74.7</b>	<b>72.8</b>	<b>47.5</b>	<b>63.2</b>
Pre-LN	48L	5e-4	57.7	71.2	73.8	48.7	62.9
Normformer		5e-4	56.8	<b>75.4</b>	75.9	50.7	<b>64.7</b>
<b>MAGNETO</b>		1.2e-3	<b>57.9</b>	71.9	<b>76.4</b>	<b>51.9</b>	64.5
Pre-LN	72L	5e-4	57.5	73.3	76.1	52.4	64.8
Normformer		5e-4	57.7	<b>74.0</b>	77.0	54.9	65.9
<b>MAGNETO</b>		1.2e-3	<b>58.3</b>	<b>74.0</b>	<b>79.0</b>	<b>55.7</b>	<b>66.8</b>
""",
)

GLUE = read_table(
    "GLUE",
    "Experiments, masked language modeling, GLUE table",
    """
Models	LR	MNLI	QNLI	QQP	SST	CoLA	MRPC	STS	Avg.
Post-LN	5e-4	<b>86.7/86.7</b>	92.2	91.0	93.4	59.8	86.4	<b>89.4</b>	85.7
Post-LN	1e-3				diverged
Pre-LN	1e-3	85.6/85.4	92.2	91.1	93.4	55.6	85.1	88.4	84.6
Pre-LN	2e-3				diverged
<b>MAGNETO</b>	<b>3e-3</b>	<b>86.7/86.7</b>	<b>92.4</b>	<b>91.2</b>	<b>93.9</b>	\
<b>62.9</b>	<b>87.2</b>	89.2	<b>86.3</b>
""",
)

OPUS = read_table(
    "OPUS-100",
    "Experiments, machine translation, OPUS-100 table",
    r"""
Models	En $\rightarrow$ X	X $\rightarrow$ En	Avg.
Post-LN		diverged
Pre-LN	28.3	32.7	30.5
NormFormer	28.5	32.3	30.4
<b>MAGNETO</b>	<b>28.7</b>	<b>33.2</b>	<b>31.0</b>
""",
)

VISION = read_table(
    "vision",
    "Experiments, vision pre-training table",
    """
Models	# Layers	ImageNet	ImageNet Adversarial	ImageNet Rendition	ImageNet Sketch	ADE20k
Pre-LN <b>MAGNETO</b>	12L	84.5 <b>84.9</b>	45.9 <b>48.9</b>	55.6 <b>57.7</b>	42.2 <b>43.9</b>	\
51.4 <b>52.2</b>
Pre-LN <b>MAGNETO</b>	24L	86.2 <b>86.8</b>	60.1 <b>65.4</b>	63.2 <b>67.5</b>	48.5 <b>52.0</b>	\
54.2 <b>54.6</b>
""",
)

SPEECH = read_table(
    "speech",
    "Experiments, speech recognition table, LibriSpeech 960h",
    """
Models	# Layers	Dev-Clean	Dev-Other	Test-Clean	Test-Other
Pre-LN <b>MAGNETO</b>	18L	2.97 <b>2.68</b>	6.52 <b>6.04</b>	3.19 <b>2.99</b>	6.62 <b>6.16</b>
Pre-LN <b>MAGNETO</b>	36L	2.59 <b>2.43</b>	6.10 <b>5.34</b>	2.89 <b>2.72</b>	6.04 <b>5.56</b>
""",
    is_error=True,
)

VL = read_table(
    "vision-language",
    "Experiments, multi-modal pre-training table",
    """
Models	# Layers	VQA		NLVR2
		test-dev	test-std	dev	test-P
Pre-LN <b>MAGNETO</b>	24L	78.37 <b>79.00</b>	78.50 <b>79.01</b>	82.57 <b>83.35</b>	83.69 <b>84.23</b>
""",
)

TABLES = (ZERO_SHOT, FOUR_SHOT, GLUE, OPUS, VISION, SPEECH, VL)

# ---------------------------------------------------------------- S2-22: which model uses which norm

_NORMS = Values.of(
    **dict.fromkeys(("ViT", "BEiT", "GPT", "T-T", "BEiT-3"), "Pre-LN"),
    **dict.fromkeys(("BERT", "NMT", "BART"), "Post-LN"),
)
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


@check(Route.CITATION, "the abstract, Section 1 and the slides' Introduction say the same")
def _said_elsewhere(s: Values) -> list[bool | None]:
    return [s[model] == norm for place in _ELSEWHERE.values() for model, norm in place.items()]


@check(
    Route.CITATION,
    "the layers of released checkpoints; GPT from GPT-2 on: the first GPT normalises after the residual sum",
)
def _as_released(s: Values) -> list[bool | None]:
    return [s[model] == norm for model, norm in _RELEASED.items()]


@check(Route.CITATION, "the norm of each is a baseline in the slides' own table of that model")
def _among_baselines(s: Values) -> list[bool | None]:
    return [s[model] in {row.model for row in table.rows} for model, tables in _BASELINES.items() for table in tables]


_S2_22 = claim(
    "S2-22",
    kind=Kind.REMARK,
    locator="Figure 1, top",
    quote="Vision Encoder ViT/BEiT Pre-LN\nSub-LN\nLanguage\nEncoder BERT Post-LN\nDecoder GPT Pre-LN\n"
    "Encoder-Decoder NMT/BART Post-LN\nSpeech Encoder T-T Pre-LN\nMultimodal Encoder BEiT-3 Pre-LN",
    summary="ViT, BEiT, GPT, T-T and BEiT-3 use Pre-LN, BERT, NMT and BART Post-LN",
    statement=_NORMS,
    checks=(_said_elsewhere, _as_released, _among_baselines),
    mutants=changed(_NORMS, GPT="Post-LN", BART="Pre-LN"),
)

# ---------------------------------------------------------------- S2-23: better and more stable

_BETTER = [
    column.only(OURS, "Post-LN", "Pre-LN")
    for column in (
        *(column for table in (ZERO_SHOT, FOUR_SHOT) for column in table.columns() if column.name == AVERAGE),
        GLUE.column(AVERAGE),
        OPUS.column(AVERAGE),
        *(column for table in (VISION, SPEECH, VL) for column in table.columns()),
    )
]
"""Against the de facto variants of Figure 1; NormFormer is none of them (S3-43)."""


BERT_RATES = {"Post-LN": "5e-4", "Pre-LN": "1e-3", OURS: "3e-3"}
_S2_23 = Claim(
    id="S2-23",
    kind=Kind.REMARK,
    locator="Abstract; Section 1, last paragraph, has the learning rates. Tables from the slides",
    quote="Extensive experiments demonstrate\nits superior performance and better stability than the de facto "
    "Transformer variants\ndesigned for various applications",
    summary="Magneto performs better than Post-LN and Pre-LN, and trains at larger learning rates without divergence",
    parts=(
        won(
            "S2-23",
            "the tables, by application: every average, and every column of those without one, against Post-LN "
            "and Pre-LN (four single tasks go the other way: WGe at 24, 48 and 72 layers, zero-shot, and STS; S3-43)",
            _BETTER,
        ),
        ran(
            "the tables: it trained where Post-LN or Pre-LN diverged",
            (
                (ZERO_SHOT, "Pre-LN", "24L", "1e-3", DIVERGED),
                (ZERO_SHOT, OURS, "24L", "1e-3", TRAINED),
                (GLUE, "Post-LN", "", "1e-3", DIVERGED),
                (GLUE, "Pre-LN", "", "2e-3", DIVERGED),
                (GLUE, OURS, "", "3e-3", TRAINED),
                (OPUS, "Post-LN", "", "", DIVERGED),
                (OPUS, OURS, "", "", TRAINED),
            ),
        ),
        *(
            largest_rates(
                f"a larger rate without divergence: GPT, {layers}", ZERO_SHOT, layers, {"Pre-LN": "5e-4", OURS: rate}
            )
            for layers, rate in (("24L", "1e-3"), ("48L", "1.2e-3"), ("72L", "1.2e-3"))
        ),
        largest_rates("a larger rate without divergence: BERT", GLUE, "", BERT_RATES),
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
)

CLAIMS: tuple[Claim, ...] = (_S2_22, _S2_23)
