"""The printed tables: against a second transcription, column by column; and that a changed digit is seen."""

from __future__ import annotations

import pytest

from depthlaw.paper_checks.claims.claim import Verdict, examine
from depthlaw.paper_checks.papers.magneto.experiments import (
    FOUR_SHOT,
    GLUE,
    OPUS,
    SPEECH,
    TABLES,
    VISION,
    VL,
    ZERO_SHOT,
)
from depthlaw.paper_checks.routes.tables.parameter_counts import Count, counted
from depthlaw.paper_checks.routes.tables.results import Table, Wins, best, wins

# Down the columns, a star for bold, a bar between blocks: typed from the slides apart from the rows of the claims.
COLUMNS: dict[str, tuple[Table, dict[str, str]]] = {
    "zero-shot": (
        ZERO_SHOT,
        {
            "WGe": "55.2* 54.3 54.3 | 57.3* 56.5 57.0 | 58.0* 57.4 57.9",
            "WG": "65.3 68.1 71.9* | 67.0 70.5 73.3* | 70.9 75.4* 73.7",
            "SC": "70.8 72.0 72.4* | 74.0 74.0 74.7* | 75.7 75.2 76.6*",
            "HS": "44.8 45.9 46.9* | 48.0 49.8 51.2* | 51.7 53.6 55.1*",
            "Avg.": "59.0 60.1 61.4* | 61.6 62.7 64.1* | 64.1 65.4 65.8*",
        },
    ),
    "four-shot": (
        FOUR_SHOT,
        {
            "WGe": "54.0 54.3 57.6* | 57.7 56.8 57.9* | 57.5 57.7 58.3*",
            "WG": "67.7 70.2 74.7* | 71.2 75.4* 71.9 | 73.3 74.0* 74.0*",
            "SC": "69.8 71.4 72.8* | 73.8 75.9 76.4* | 76.1 77.0 79.0*",
            "HS": "44.6 45.9 47.5* | 48.7 50.7 51.9* | 52.4 54.9 55.7*",
            "Avg.": "59.0 60.5 63.2* | 62.9 64.7* 64.5 | 64.8 65.9 66.8*",
        },
    ),
    "GLUE": (
        GLUE,
        {
            "MNLI-m": "86.7* 85.6 86.7*",
            "MNLI-mm": "86.7* 85.4 86.7*",
            "QNLI": "92.2 92.2 92.4*",
            "QQP": "91.0 91.1 91.2*",
            "SST": "93.4 93.4 93.9*",
            "CoLA": "59.8 55.6 62.9*",
            "MRPC": "86.4 85.1 87.2*",
            "STS": "89.4* 88.4 89.2",
            "Avg.": "85.7 84.6 86.3*",
        },
    ),
    "OPUS-100": (OPUS, {"En -> X": "28.3 28.5 28.7*", "X -> En": "32.7 32.3 33.2*", "Avg.": "30.5 30.4 31.0*"}),
    "vision": (
        VISION,
        {
            "ImageNet": "84.5 84.9* | 86.2 86.8*",
            "ImageNet Adversarial": "45.9 48.9* | 60.1 65.4*",
            "ImageNet Rendition": "55.6 57.7* | 63.2 67.5*",
            "ImageNet Sketch": "42.2 43.9* | 48.5 52.0*",
            "ADE20k": "51.4 52.2* | 54.2 54.6*",
        },
    ),
    "speech": (
        SPEECH,
        {
            "Dev-Clean": "2.97 2.68* | 2.59 2.43*",
            "Dev-Other": "6.52 6.04* | 6.10 5.34*",
            "Test-Clean": "3.19 2.99* | 2.89 2.72*",
            "Test-Other": "6.62 6.16* | 6.04 5.56*",
        },
    ),
    "vision-language": (
        VL,
        {
            "VQA test-dev": "78.37 79.00*",
            "VQA test-std": "78.50 79.01*",
            "NLVR2 dev": "82.57 83.35*",
            "NLVR2 test-P": "83.69 84.23*",
        },
    ),
}
RUNS: dict[str, tuple[Table, str]] = {
    "zero-shot": (ZERO_SHOT, "24L 5e-4 1e-3x 5e-4 1e-3x 1e-3 48L 5e-4 5e-4 1.2e-3 72L 5e-4 5e-4 1.2e-3"),
    "four-shot": (FOUR_SHOT, "24L 5e-4 1e-3x 5e-4 1e-3x 1e-3 48L 5e-4 5e-4 1.2e-3 72L 5e-4 5e-4 1.2e-3"),
    "GLUE": (GLUE, "5e-4 1e-3x 1e-3 2e-3x 3e-3*"),
    "OPUS-100": (OPUS, "x"),
}
"""Depths and learning rates down the rows; x where a run diverged, a star for bold."""


@pytest.mark.parametrize("name", COLUMNS)
def test_a_second_transcription_agrees(name: str) -> None:
    table, columns = COLUMNS[name]
    for column, text in columns.items():
        columns_of_blocks = [table.column(column, block).entries for block in table.blocks]
        said = [" ".join(f"{number}{'*' * is_bold}" for _, number, is_bold in entries) for entries in columns_of_blocks]
        assert " | ".join(said) == text
    assert [score.column for score in table.trained[0].scores] == list(columns)


@pytest.mark.parametrize("name", RUNS)
def test_learning_rates_and_divergence(name: str) -> None:
    table, text = RUNS[name]
    said, layers = [], ""
    for row in table.rows:
        said += [row.layers] if row.layers != layers else []
        layers = row.layers
        said.append(f"{row.rate}{'x' * row.has_diverged}{'*' * row.is_rate_bold}")
    assert " ".join(filter(None, said)) == text


def test_who_stands_in_which_row() -> None:
    models = {table.name: [row.model for row in table.trained] for table in TABLES}
    three, two = ["Pre-LN", "NormFormer", "Magneto"], ["Pre-LN", "Magneto"]
    assert models["zero-shot"] == models["four-shot"] == three * 3
    assert models["GLUE"] == ["Post-LN", "Pre-LN", "Magneto"] and models["OPUS-100"] == three
    assert models["vision"] == models["speech"] == two * 2 and models["vision-language"] == two
    diverged = {table.name: [row.model for row in table.rows if row.has_diverged] for table in TABLES}
    assert diverged["zero-shot"] == diverged["four-shot"] == ["Pre-LN", "NormFormer"]
    assert (diverged["GLUE"], diverged["OPUS-100"]) == (["Post-LN", "Pre-LN"], ["Post-LN"])


# ---------------------------------------------------------------- ties and sizes


def test_a_tie_is_no_win() -> None:
    tie = FOUR_SHOT.column("WG", "72L").only("NormFormer", "Magneto")
    assert best(tie) == ("NormFormer", "Magneto")
    assert examine([wins("S3-43")], Wins(columns=(tie,)))[0] is Verdict.REFUTED


@pytest.mark.parametrize("stacks", [((3, 1),), ((2, 2),), ((2, 1), (2, 2))])
def test_parameters_are_those_of_a_real_transformer(stacks: tuple[tuple[int, int], ...]) -> None:
    """Torch's own layers, weights of two dimensions alone."""
    from torch import nn

    width, rows, total = 12, 7, 7 * 12
    for layers, attentions in stacks:
        layer = nn.TransformerDecoderLayer if attentions == 2 else nn.TransformerEncoderLayer
        module = layer(width, 2, dim_feedforward=4 * width)
        total += layers * sum(weight.numel() for weight in module.parameters() if weight.dim() == 2)
    for count, verdict in ((total, Verdict.CONFIRMED), (total + 1, Verdict.REFUTED)):
        statement = Count(stacks=stacks, width=width, rows=rows, low=count, high=count + 1, words="so many")
        assert examine([counted], statement)[0] is verdict
