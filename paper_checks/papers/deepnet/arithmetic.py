"""Whole numbers that DeepNet's abstract prints, and results of it that Su's article and others lean on.

The results stand here at second hand: they were not read off the paper's own tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

from paper_checks.claims.claim import Claim, Kind, Mutant, Part, Route
from paper_checks.routes.checks import check

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


@dataclass(frozen=True, kw_only=True)
class Layers:
    """A model of so many layers has so many attention and FFN sublayers."""

    encoder: int
    decoder: int
    layers: int
    sublayers: int

    @property
    def text(self) -> str:
        parts = f"{self.encoder} encoder and {self.decoder} decoder layers"
        return f"{parts}: {self.layers} layers, {self.sublayers} sublayers"


def _listed(statement: Layers) -> list[bool | None]:
    """Every sublayer by its name."""
    names = [(side, i, kind) for side, i, kind in _sublayers(statement)]
    return [len({(side, i) for side, i, _ in names}) == statement.layers, len(set(names)) == statement.sublayers]


def _sublayers(statement: Layers) -> list[tuple[str, int, str]]:
    encoder = [("encoder", i, kind) for i in range(statement.encoder) for kind in ("self", "ffn")]
    return encoder + [("decoder", i, kind) for i in range(statement.decoder) for kind in ("self", "cross", "ffn")]


LAYER_CHECKS = (
    check(
        Route.ARITHMETIC,
        "2N + 3M sublayers, N + M layers",
        lambda s: [s.encoder + s.decoder == s.layers, 2 * s.encoder + 3 * s.decoder == s.sublayers],
        is_direct=True,
    ),
    check(Route.NUMERIC, "every sublayer listed by name, and counted", _listed, is_direct=True),
)
THOUSAND = Layers(encoder=500, decoder=500, layers=1000, sublayers=2500)
THOUSAND_MUTANTS = (
    Mutant(name="no cross-attention", statement=replace(THOUSAND, sublayers=2000)),
    Mutant(name="1,000 layers each", statement=replace(THOUSAND, encoder=1000, decoder=1000)),
)


@dataclass(frozen=True)
class Directions:
    """So many languages have so many translation directions."""

    languages: int
    directions: int

    @property
    def text(self) -> str:
        return f"{self.languages} languages, {self.directions} directions"


_PAIRS = Directions(87, 7482)

_DN_12 = Claim(
    id="DN-12",
    kind=Kind.REMARK,
    source="deepnet",
    locator="abstract; 500 + 500 layers and 87 languages stand in Section 6",
    quote="1,000 layers = 2,500 attention and FFN sublayers; 7,482 directions on Flores-101",
    summary="1,000 layers are 2,500 sublayers; 87 languages have 7,482 directions",
    parts=(
        Part(name="2,500 sublayers", statement=THOUSAND, checks=LAYER_CHECKS, mutants=THOUSAND_MUTANTS),
        Part(
            name="7,482 directions",
            statement=_PAIRS,
            checks=(
                check(
                    Route.ARITHMETIC,
                    "n (n - 1): 87 * 86",
                    lambda s: [s.languages * (s.languages - 1) == s.directions],
                    is_direct=True,
                ),
                check(
                    Route.NUMERIC,
                    "ordered pairs of two languages, listed",
                    lambda s: [sum(1 for _ in permutations(range(s.languages), 2)) == s.directions],
                    is_direct=True,
                ),
            ),
            mutants=(
                Mutant(name="pairs without an order", statement=Directions(87, 3741)),
                Mutant(name="a language with itself, too", statement=Directions(87, 7569)),
                Mutant(name="the 102 languages of the data", statement=Directions(102, 7482)),
            ),
        ),
    ),
)

CLAIMS: tuple[Claim, ...] = (_DN_12,)
