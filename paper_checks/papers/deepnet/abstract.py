"""Whole numbers that DeepNet's abstract prints, and results of it that Su's article and others lean on.

The results stand here at second hand: they were not read off the paper's own tables.
"""

from __future__ import annotations

from depthlaw.paper_checks.claims.broken import broken
from depthlaw.paper_checks.claims.claim import Claim, Kind, Part, Route
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.routes.checks import check

DIVERGED = "diverged"
WMT17_DEPTHS: tuple[int, ...] = (6, 18, 50, 100)
"""Layers of the encoder, and of the decoder."""
WMT17 = {
    "Post-LN": ("28.1", DIVERGED, DIVERGED, DIVERGED),
    "Pre-LN": ("27.0", "", "", "27.4"),
    "DeepNet": ("27.8", "28.8", "29.0", "28.9"),
}
"""BLEU on WMT-17 En-De; "" where no figure is known here."""
M2M = {
    "WMT": ("31.9", "33.9"),
    "OPUS": ("18.4", "23.0"),
    "TED": ("18.7", "20.1"),
    "Flores": ("13.6", "18.6"),
}
"""BLEU of M2M-100 (48 layers, 12B) and of DeepNet (200 layers, 3.2B)."""


@check(Route.ARITHMETIC, "2N + 3M sublayers, N + M layers")
def layers_counted(s: Values) -> list[bool | None]:
    return [s["encoder"] + s["decoder"] == s["layers"], 2 * s["encoder"] + 3 * s["decoder"] == s["sublayers"]]


THOUSAND = Values.of(
    "{encoder} encoder and {decoder} decoder layers: {layers} layers, {sublayers} sublayers",
    encoder=500,
    decoder=500,
    layers=1000,
    sublayers=2500,
)
THOUSAND_MUTANTS = broken(THOUSAND)


@check(Route.ARITHMETIC, "n (n - 1): 87 * 86")
def _multiplied(s: Values) -> list[bool | None]:
    return [s["languages"] * (s["languages"] - 1) == s["directions"]]


_PAIRS = Values.of("{languages} languages, {directions} directions", languages=87, directions=7482)
_DN_12 = Claim(
    id="DN-12",
    kind=Kind.REMARK,
    locator="abstract; 500 + 500 layers and 87 languages stand in Section 6",
    quote="1,000 layers = 2,500 attention and FFN sublayers; 7,482 directions on Flores-101",
    summary="1,000 layers are 2,500 sublayers; 87 languages have 7,482 directions",
    parts=(
        Part(name="2,500 sublayers", statement=THOUSAND, checks=(layers_counted,), mutants=THOUSAND_MUTANTS),
        Part(name="7,482 directions", statement=_PAIRS, checks=(_multiplied,)),
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_12,)
