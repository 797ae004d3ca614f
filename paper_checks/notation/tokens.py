"""The tokens of formulas as our texts have them: what stands before a bracket, between two sides, and as one piece."""

from __future__ import annotations

import re
from dataclasses import dataclass

FUNCTIONS = frozenset(
    [
        "log",
        "ln",
        "exp",
        "cos",
        "sin",
        "sinh",
        "tanh",
        "tr",
        "sign",
        "var",
        "Var",
        "E",
        "mean",
        "sqrt",
        "LN",
        "relu",
        "gelu",
        "harmonic",
        "Abs",
        "digamma",
        "Sum",
        "erf",
    ]
)
"""What may stand before a bracket in a formula from end to end; in a sentence any word may."""
RELATIONS = {
    "=": "=",
    "<=": r"\leq",
    ">=": r"\geq",
    "<": "<",
    ">": ">",
    "!=": r"\neq",
    "->": r"\to",
    "~": r"\sim",
    "=Theta=": r"\asymp",
    "<<": r"\ll",
    ">>": r"\gg",
}
PLACE = "\ue000"
"""Stands on both sides of the number of a formula that has been read already."""
_TOKEN = re.compile(
    rf"{PLACE}\d+{PLACE}"
    r"|(?:\d\d+L(?:-\d+L)?|\d+L-\d+L|\d{3}M|[\d.]+B)(?![A-Za-z])"  # 24L, 6L-6L, 350M, 3.2B: sizes of models
    r"|\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    r"|(?<=[a-z]{2})\(s\)"  # layer(s)
    r"|(?:[A-Za-z]\.){2,}|T-T|[A-Za-z]+-[A-Za-z][\w-]+|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+(?:,\d[A-Z])?)*_?"
    r"|=Theta=|\*\*|<=|>=|!=|->|<<|>>|\|\||_|\S"
)


@dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int
    is_spaced: bool

    @property
    def is_name(self) -> bool:
        return self.text[0].isascii() and self.text[0].isalpha()


def tokens(text: str) -> list[Token]:
    """A text in tokens, each with its place.

    >>> from paper_checks.notation.tokens import tokens
    >>> [token.text for token in tokens("v_l**2 <= 2N")]
    ['v_l', '**', '2', '<=', '2', 'N']
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        is_spaced = not found or found[-1].end != match.start()
        found.append(Token(match.group(), match.start(), match.end(), is_spaced))
    return found
