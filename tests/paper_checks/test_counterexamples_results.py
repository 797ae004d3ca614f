"""A counterexample that a printed table is itself: typed here a second time, from the slides."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

FOUR_SHOT_48 = {
    "Pre-LN": ("57.7", "71.2", "73.8", "48.7"),
    "NormFormer": ("56.8", "75.4", "75.9", "50.7"),
    "Magneto": ("57.9", "71.9", "76.4", "51.9"),
}
"""WGe, WG, SC, HS."""
PRINTED_48 = {"Pre-LN": "62.9", "NormFormer": "64.7", "Magneto": "64.5"}


def test_S3_43_four_shot_at_48_layers_normformer_has_the_better_average() -> None:
    means = {model: sum(map(Decimal, scores), Decimal(0)) / len(scores) for model, scores in FOUR_SHOT_48.items()}
    assert means == {"Pre-LN": Decimal("62.85"), "NormFormer": Decimal("64.7"), "Magneto": Decimal("64.525")}
    rounded = {model: str(mean.quantize(Decimal("0.1"), ROUND_HALF_UP)) for model, mean in means.items()}
    assert rounded == PRINTED_48
    assert max(means, key=lambda model: means[model]) == "NormFormer"
    worst_case = Decimal("0.05")  # every score may have been rounded by that much, so a mean by no more
    assert means["NormFormer"] - worst_case > means["Magneto"] + worst_case
