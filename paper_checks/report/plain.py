"""Formulas where no MathML can stand, as in a tooltip: √(2N) for sqrt(2*N), v²/d for v^2/d."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from xml.etree.ElementTree import Element, ParseError, fromstring

from paper_checks.report import typeset

_ABOVE = dict(zip("0123456789+−()=in", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾⁼ⁱⁿ", strict=True))
_BELOW = dict(zip("0123456789+−()=aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₍₎₌ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_ACCENTS = {"¯": "\u0304", "^": "\u0302", "~": "\u0303", "∼": "\u0303"}
_MARKS = {"*": "*", "∗": "*", "′": "′", "⊤": "ᵀ", "T": "ᵀ"}
_NO_TEXT = {"\u2060": "", "\u200b": ""}
"""Marks of where a line may end."""


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    r"""A sentence or a quotation with its formulas as characters.

    >>> from paper_checks.report.plain import plain
    >>> plain("gain sqrt(2N) and v_l^2/d"), plain("ratio $\\frac{1}{2N}$")
    ('gain √(2N) and vₗ²/d', 'ratio 1/(2N)')
    """
    try:
        found = _text(fromstring(f"<page>{typeset.prose(text)}</page>"))
    except ParseError:  # characters that XML does not have
        return text
    return "".join(_NO_TEXT.get(letter, letter) for letter in found)


def heading(text: str) -> str:
    """The head of a row or a column, which a screen reader names cells by: characters, no MathML.

    >>> from paper_checks.report.plain import heading
    >>> heading("lambda"), heading("power_value"), heading("U(4) predicted")
    ('λ', 'power value', 'U(4) predicted')
    """
    return plain(text) if (shown := typeset.label(text)).startswith("<") else str(shown.unescape())


def _text(element: Element) -> str:
    parts = [_sign(child, is_first=not i) if child.tag == "mo" else _text(child) for i, child in enumerate(element)]
    match element.tag:
        case "mfrac":
            return f"{_whole(parts[0])}/{_whole(parts[1])}"
        case "msqrt":
            return f"√{_whole(''.join(parts))}"
        case "msup" | "mover" if parts[1] in _ACCENTS:
            return parts[0] + _ACCENTS[parts[1]]
        case "msup" | "mover":
            return _based(element, parts) + _raised(parts[1], _ABOVE, "^")
        case "msub" | "munder":
            return parts[0] + _raised(parts[1], _BELOW, "_")
        case "msubsup" | "munderover":
            return parts[0] + _raised(parts[1], _BELOW, "_") + _raised(parts[2], _ABOVE, "^")
        case "mspace":
            return " "
    tails = [child.tail or "" for child in element]
    return (element.text or "") + "".join(part + tail for part, tail in zip(parts, tails, strict=True))


def _based(element: Element, parts: Sequence[str]) -> str:
    return f"({parts[0]})" if element[0].tag in ("mfrac", "msup") else parts[0]


def _sign(element: Element, *, is_first: bool) -> str:
    text = element.text or ""
    if is_first or element.get("form") == "prefix":
        return text
    is_apart = len(text) == 1 and unicodedata.category(text) == "Sm" and text not in "∑∏√|‖/∂∇"
    return f" {text} " if is_apart or text in "≍≪≫" else f"{text} " if text in (",", ";") else text


def _raised(text: str, letters: dict[str, str], mark: str) -> str:
    tight = text.replace(" ", "")
    if tight in _MARKS:
        return _MARKS[tight]
    if tight and all(letter in letters for letter in tight):
        return "".join(letters[letter] for letter in tight)
    return mark + _whole(tight)


def _whole(text: str) -> str:
    """In brackets, where it is more than one thing."""
    is_one = text.isalnum() or not text or _is_bracketed(text)
    return text if is_one and not (text[:1].isdigit() and not text.isdigit()) else f"({text})"


def _is_bracketed(text: str) -> bool:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return letter == ")" and i == len(text) - 1
    return False
