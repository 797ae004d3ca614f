"""Formulas on the pages of the report. Printed expressions and LaTeX in quotations are MathML; our own words are text,
with the signs of ``notation.signs``. Text is escaped, whatever it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import unescape
from itertools import chain
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup, escape
from sympy import Basic

from depthlaw.paper_checks.claims.statements import Statement, Values
from depthlaw.paper_checks.notation.expressions import latex
from depthlaw.paper_checks.notation.signs import GREEK, html, whole_powers

_LATEX = re.compile(r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$(?!\d)", re.DOTALL)
_MATH = re.compile(r"m[a-z]+")
_COMMAND = re.compile(r"\\(?:frac|text|boldsymbol|lambda|alpha|mathcal)(?![a-z])")
_LETTER = re.compile(rf"(?:d[A-Za-z]/d)?(?:[A-Za-z]|{'|'.join(GREEK)})(?:_[A-Za-z0-9]{{1,2}})?")


def expression(expr: Basic) -> Markup:
    """An expression of sympy as MathML, in the letters of the papers."""
    return _math(latex(expr), str(expr))


def prose(text: str) -> Markup:
    """A sentence of ours: what stands between backticks is code. A text with LaTeX in it, or of several lines, is a
    quotation.
    """
    if "$" in text or "\n" in text or _COMMAND.search(text):
        return quote(text)
    pieces = re.split(r"`+([^`]+)`+", text)
    return Markup().join(_code(piece) if i % 2 else html(piece) for i, piece in enumerate(pieces))


def quote(text: str) -> Markup:
    """Words of a source: LaTeX between dollars is typeset, all else left as it stands."""
    if "$" not in text and _COMMAND.search(text):
        return _math(text, text, is_block=True)
    typeset, done = Markup(), 0
    for match in _LATEX.finditer(text):
        written = (match["block"] or match["inline"]).strip()
        typeset += escape(text[done : match.start()]) + _math(written, written, is_block=match["block"] is not None)
        done = match.end()
    return typeset + escape(text[done:])


def cell(text: str) -> Markup:
    """A cell of a table: a formula as sympy writes it, a number, or words."""
    return html(whole_powers(text))


def label(text: str) -> Markup:
    """The name of a number or a column: a letter, with its index, as one; dz_dw as a quotient; power_value as words."""
    text = re.sub(r"^(d[A-Za-z])_(?=d)", r"\1/", {"lam": "lambda"}.get(text, text))
    return html(text if _LETTER.fullmatch(text) else text.replace("_", " "))


def statement(printed: Statement) -> Markup:
    """A printed statement: its words, and the expressions that it holds as formulas. Code stays code."""
    if isinstance(printed, Values) and not printed.words:
        return Markup("; ").join(label(name) + " = " + _value(value) for name, value in printed)
    if isinstance(code := getattr(printed, "source", None), str):
        return Markup("<pre>{}</pre>").format(_code(code.rstrip()))
    expressions = {str(expr): expr for expr in _expressions(printed) if not (expr.is_Atom or expr.is_number)}
    if not expressions:
        return html(printed.text)
    formula = "|".join(re.escape(text) for text in sorted(expressions, key=len, reverse=True))
    # With the brackets around it: a tall formula stands by itself.
    pattern = rf"(\*?\((?:{formula})\)|(?<![\w.])(?:{formula}))(?!\w|\*\*|\^|\.\d)"
    pieces = re.split(pattern, printed.text)
    return Markup().join(_printed(piece, expressions) if i % 2 else html(piece) for i, piece in enumerate(pieces))


def _value(value: Any) -> Markup:
    """A named value: an expression, or a word."""
    return expression(value) if isinstance(value, Basic) else html(str(value))


def _printed(piece: str, expressions: Mapping[str, Basic]) -> Markup:
    if piece in expressions:
        return expression(expressions[piece])
    return _math(rf"\left({latex(expressions[piece.lstrip('*')[1:-1]])}\right)", piece)


def _expressions(value: Any) -> Iterator[Basic]:
    """Those in the fields of a statement."""
    if isinstance(value, Basic):
        yield value
    elif isinstance(value, Mapping):
        yield from _expressions(tuple(value.values()))
    elif isinstance(value, tuple | list):
        yield from chain.from_iterable(map(_expressions, value))
    elif dataclasses.is_dataclass(value):
        yield from _expressions([getattr(value, field.name) for field in dataclasses.fields(value)])


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def _math(written: str, typed: str, *, is_block: bool = False) -> Markup:
    """MathML, and what it was made from, which is what is copied and searched; only that where it cannot be read.

    Fractions of sums stand by themselves.
    """
    is_block = is_block or (r"\sum_{" in written and r"\frac" in written)
    try:
        formula = mathml(written, is_display=is_block)
    except ValueError:
        return _code(typed)
    formula += Markup('<span class="typed" aria-hidden="true">{}</span>').format(typed)
    if not is_block:
        return formula
    return Markup('<span class="formula" role="group" aria-label="formula" tabindex="0">{}</span>').format(formula)


@lru_cache(maxsize=8192)
def mathml(written: str, *, is_display: bool = False) -> Markup:
    """LaTeX by latex2mathml. ValueError where it is broken, or brings more than mathematics: links, styles, scripts.

    >>> from depthlaw.paper_checks.report.typeset import mathml
    >>> "<mi>N</mi><mo>&lt;</mo><mn>1</mn>" in mathml("N<1")
    True
    """
    from latex2mathml.converter import convert_to_element  # of the extra `verify`

    try:
        tree = convert_to_element(written, display="block" if is_display else "inline")
    except Exception as error:  # latex2mathml has no common class of errors
        raise ValueError(f"{type(error).__name__}: {written}") from error
    for element in tree.iter():
        element.text = unescape(element.text or "")
        if not _MATH.fullmatch(element.tag) or {"href", "style", "class", "id"} & set(element.attrib):
            raise ValueError(f"<{element.tag}> from {written}")
        if "\\" in element.text:
            raise ValueError(f"a command that is not known: {written}")
    return Markup(ElementTree.tostring(tree, encoding="unicode"))
