"""MathML from LaTeX, by latex2mathml. Only elements of mathematics come through: what is written into a page is the
parsed and checked tree, so that no LaTeX, whoever wrote it, brings markup of its own."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from xml.etree import ElementTree

_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_ELEMENT = re.compile(
    "m(?:ath|row|i|n|o|text|space|frac|sqrt|root|sub|sup|subsup|under|over|underover|style|table|tr|td|padded|phantom)"
)
_ATTRIBUTE = re.compile(
    "display|mathvariant|stretchy|fence|form|width|[lr]space|scriptlevel|displaystyle|linethickness|accent|columnalign|"
    "minsize|maxsize|separator|movablelimits"
)
_NUM_PARTS = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}
_CAPITALS = frozenset("ΓΔΘΛΞΠΣΦΨΩ")
_BEFORE_SIGN = frozenset("([{|‖,;=<>≤≥≈≠→")
_FORMS = {"⟨": "prefix", "⟩": "postfix"}
_LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


class NoMathError(ValueError):
    """The LaTeX cannot be shown as MathML."""


@lru_cache(maxsize=8192)
def mathml(latex: str, *, is_display: bool = False) -> str:
    """A ``math`` element. NoMathError where the LaTeX is broken, or brings elements that are none of mathematics.

    >>> from depthlaw.paper_checks.notation.mathml import mathml
    >>> mathml("x^2")
    '<math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>'
    """
    from latex2mathml.converter import convert  # of the extra `verify`: what only reads claims does without

    try:
        tree = ElementTree.fromstring(convert(latex, display="block" if is_display else "inline"))
    except Exception as error:  # latex2mathml has no common class of errors, and its output may be no XML
        raise NoMathError(f"{type(error).__name__}: {latex}") from error
    for element in tree.iter():
        element.tag = element.tag.removeprefix(_NAMESPACE)
        if not (_ELEMENT.fullmatch(element.tag) and all(map(_ATTRIBUTE.fullmatch, element.attrib))):
            raise NoMathError(f"<{element.tag}> from {latex}")
        if len(element) != _NUM_PARTS.get(element.tag, len(element)):
            raise NoMathError(f"<{element.tag}> with {len(element)} parts from {latex}")
        if "\\" in "".join((element.text or "", element.tail or "")):
            raise NoMathError(f"a command that is not known: {latex}")
    for element in tree.iter():
        _mend(element)
    _space_functions(tree)
    _mark_signs(tree)
    if any(element.tag == "mfrac" for element in tree.iter()):
        tree.set("displaystyle", "true")  # fractions as large as the letters beside them
    return ElementTree.tostring(tree, encoding="unicode")


def _mend(element: ElementTree.Element) -> None:
    """As TeX has it: no space about slashes and brackets, Greek capitals upright, limits above, names no operators."""
    text = element.text or ""
    if element.tag == "mo" and (text == "/" or element.get("fence")):
        element.attrib |= {"lspace": "0", "rspace": "0"}
    elif element.tag == "mo" and text.isalpha() and len(text) > 1 and text != "mod":
        element.tag = "mi"
    elif text in _FORMS:
        element.tag = "mo"
        element.attrib |= {"form": _FORMS[text], "stretchy": "false"}
    elif text == "∞":
        element.tag = "mi"
    elif text == "~":
        element.tag, element.text = "mo", "∼"
    elif element.tag == "mi" and text in _CAPITALS:
        element.set("mathvariant", "normal")
    elif element.tag in _LIMITS and element[0].tag == "mo" and element[0].text in ("∑", "∏"):
        element.tag = _LIMITS[element.tag]


def _space_functions(tree: ElementTree.Element) -> None:
    """log and its like are identifiers, which no browser sets apart: thin spaces around them, as TeX has them."""
    for row in list(tree.iter()):
        for i in range(len(row) - 1, -1, -1):
            if row.tag not in ("mrow", "math", "msqrt", "mtd") or not _is_function(row[i]):
                continue
            if i + 1 < len(row) and not _is_operator(row[i + 1]):
                row.insert(i + 1, _thin_space())
            if i and not _is_operator(row[i - 1]) and not _is_function(row[i - 1]) and row[i - 1].tag != "mspace":
                row.insert(i, _thin_space())


def _mark_signs(tree: ElementTree.Element) -> None:
    """A minus behind a bracket or a relation belongs to what follows it."""
    for row in tree.iter():
        for before, sign in pairwise(row):
            if sign.tag == "mo" and sign.text in ("−", "+") and before.tag == "mo" and before.text in _BEFORE_SIGN:
                sign.set("form", "prefix")


def _is_function(element: ElementTree.Element) -> bool:
    if element.tag in ("msup", "msub", "munder") and len(element):
        return _is_function(element[0])
    return element.tag == "mi" and len(element.text or "") > 1 and (element.text or "").isascii()


def _is_operator(element: ElementTree.Element) -> bool:
    first = next(element.iter("mo"), None) if element.tag == "mrow" else element
    return first is not None and first.tag == "mo" and first.text != ")"


def _thin_space() -> ElementTree.Element:
    return ElementTree.Element("mspace", {"width": "0.167em"})
