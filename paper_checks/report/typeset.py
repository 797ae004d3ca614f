"""Formulas for the pages of the report: what papers print, what our texts say and what tables hold, as MathML.

Text is escaped, whatever it is. A formula that cannot be read stays the text that it was.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from paper_checks.claims.statements import Statement, Values
from paper_checks.notation.formulas import PLACE, Node, NotAFormulaError, formula, pieces, with_whole_powers
from paper_checks.notation.latex import latex, sign_latex
from paper_checks.notation.mathml import NoMathError, mathml
from paper_checks.notation.names import name
from paper_checks.papers.magneto.inequality import Inequality
from paper_checks.papers.slides.more import Code

if TYPE_CHECKING:
    from sympy import Basic

_LATEX = re.compile(r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$(?!\d)", re.DOTALL)
_COMMAND = re.compile(r"\\(?:frac|text|boldsymbol|lambda|alpha|mathcal)(?![a-z])")
_LONG = 60
"""Characters of LaTeX beyond which a formula in a sentence may break at its relations, sums and commas."""
_SIGNS = {"->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "*": "·", "=Theta=": "≍"}
_SIGN = re.compile(r"(?<=\s)(?:->|<=|>=|!=|=Theta=|\*(?=\s))(?=[\s.,;:)]|$)|=Theta=(?=[\s.,;:]|$)")
_UNBROKEN = re.compile(r"\b\d[\d.]*e-\d+\b|(?<!\S)--[a-z][a-z-]*")
_BREAK = "\u200b"
"""A line may end here; what stands on both sides has its own room."""
_JOINER = "\u2060"
"""No line ends between a formula and the comma behind it."""
BEGIN, END = '<span class="formula" role="group" aria-label="formula" tabindex="0">', "</span>"
_LETTERS = {"gamma_squared": r"\gamma^{2}"}


def expression(expr: Basic, *, is_display: bool = False) -> Markup:
    """An expression of sympy as MathML, in the letters of the papers."""
    return _math(_expression_latex(expr), str(expr), is_display=is_display)


def prose(text: str) -> Markup:
    """A sentence of ours, or a quotation: LaTeX between dollars and formulas such as L^0.47 or sqrt(log 2N) typeset.

    A text of several lines is what a PDF or a table held; of it only LaTeX is typeset.
    """
    if "$" in text or "\n" in text or _COMMAND.search(text):
        return quote(text)
    code = Markup("<code>{}</code>")
    pieces = re.split(r"`+([^`]+)`+", text.replace(PLACE, ""))
    return Markup().join(code.format(one) if i % 2 else _sentence(one) for i, one in enumerate(pieces))


def quote(text: str) -> Markup:
    """Words of a source: LaTeX is typeset, all else left as it stands."""
    if "$" not in text and _COMMAND.search(text):
        return _math(text, text, is_display=True)
    found, done = Markup(), 0
    for match in _LATEX.finditer(text):
        is_block = match["block"] is not None
        written = (match["block"] if is_block else match["inline"]).strip()
        found += escape(text[done : match.start()]) + _math(written, match.group(), is_display=is_block)
        done = match.end()
    return found + escape(text[done:])


def cell(text: str) -> Markup:
    """A cell of a table: a formula, a number, or words."""
    if re.fullmatch(r"-?\d{0,12}(?:\.\d{1,10})?|[a-z][\w-]+", text):
        return escape(text)
    whole = with_whole_powers(text.replace(PLACE, ""))
    try:
        return _math(latex(formula(whole)), text)
    except NotAFormulaError:
        return _sentence(whole)


def label(text: str) -> Markup:
    """The name of a number or a column: a letter as one, power_value as words."""
    if (letter := name(text)) is not None and len(text) > 1:
        return _math(letter, text)
    is_code = re.fullmatch(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", text)
    return escape(text.replace("_", " ")) if is_code else prose(text)


@singledispatch
def statement(found: Statement) -> Markup:
    """A printed statement: its words, and its expressions as formulas."""
    places: list[str] = []
    text = found.text.replace(PLACE, "")
    for written, read in sorted(_formulas(found).items(), key=lambda item: -len(item[0])):
        pattern = rf"(?<![\w.]){re.escape(written)}(?!\w|\*\*|\^|\.\d)"
        text, count = re.subn(pattern, f"{PLACE}{len(places)}{PLACE}", text)
        if count:
            places.append(read)
    return _sentence(text, tuple(places))


@statement.register
def _(found: Values) -> Markup:
    whole = Markup()
    for value in (_value(*entry) for entry in found):
        whole += Markup(f"{_JOINER}; ") + value if whole and not whole.endswith(END) else value
    return whole


@statement.register
def _(found: Inequality) -> Markup:
    before, _, after = found.text.partition(f"<= eta*d*({found.bound})")
    bound = _math(rf"{{}} \leq \eta d \left({_expression_latex(found.bound)}\right)", str(found.bound), is_display=True)
    return _sentence(before) + bound + _sentence(after)


@statement.register
def _(found: Code) -> Markup:
    return Markup("<pre><code>{}</code></pre>").format(found.source.rstrip())


# ---------------------------------------------------------------- pieces of these


def _value(key: str, value: Basic) -> Markup:
    written = _expression_latex(value)
    letter = _LETTERS.get(key) or _slope(key) or name(key)
    if letter is not None:
        return _math(f"{letter} = {written}", f"{key} = {value}")
    words = key.replace("_", " ")
    if _is_tall(written):
        return _math(rf"\text{{{words}}} = {written}", f"{key} = {value}")
    return escape(words) + " = " + _math(written, str(value))


def _slope(key: str) -> str | None:
    """dz_dlambda_1 and dL/dlambda_1 as quotients of differentials."""
    match = re.fullmatch(r"d([zL])[_/]d(\w+)", key)
    below = match and name(match[2])
    return rf"\partial {match[1]}/\partial {below}" if match and below else None


@lru_cache(maxsize=1024)
def _expression_latex(expr: Basic) -> str:
    from sympy import latex as by_sympy

    from theory.rules.magnitude import compact

    short = min(str(expr), compact(expr), key=len)  # (2*N)**(1/4), not 2**(1/4)*N**(1/4)
    try:
        return latex(formula(short))
    except NotAFormulaError:
        return by_sympy(expr)


def _formulas(found: Any) -> dict[str, str]:
    """LaTeX of the expressions in the fields of a statement, by what str makes of them; no letters or numbers."""
    from sympy import Basic

    def walk(value: Any) -> Iterator[Basic]:
        if isinstance(value, Basic):
            if not (value.is_Atom or value.is_number):
                yield value
        elif isinstance(value, Mapping):
            yield from walk(tuple(value.values()))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for one in value:
                yield from walk(one)
        elif dataclasses.is_dataclass(value):
            yield from walk([getattr(value, field.name) for field in dataclasses.fields(value)])

    return {str(expr): _expression_latex(expr) for expr in walk(found)}


@lru_cache(maxsize=8192)
def _sentence(text: str, places: tuple[str, ...] = ()) -> Markup:
    """Text with the formulas in it typeset; places: LaTeX of those which were read before."""
    found = Markup()
    for piece in pieces(text):
        if isinstance(piece, str):
            joined = _JOINER + piece if found and piece[0] in ",.;:)" else piece
            found += _words(_SIGN.sub(lambda match: _SIGNS[match.group()], joined))
        else:
            found += Markup(_BREAK).join(_math(part, part) for part in _breakable(piece, places))
    return found


def _words(text: str) -> Markup:
    """Escaped; no line ends behind the hyphen of 1e-3 or of an option."""
    return Markup(_UNBROKEN.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def _breakable(node: Node, places: tuple[str, ...]) -> list[str]:
    """A formula in pieces between which a line may end; a sign begins the piece behind it."""
    if _has_sum(node):
        return [latex(node, places)]
    whole = latex(node, places, is_stacked=False)
    if len(whole) <= _LONG or _is_tall(whole) or node.kind not in ("relation", "sum", "list"):
        return [whole]
    found = _breakable(node.parts[0], places)
    for sign, part in zip(node.signs, node.parts[1:], strict=True):
        first, *rest = _breakable(part, places)
        found += [f"{{}} {sign_latex(sign)} {first}", *rest]
    return found


def _has_sum(node: Node) -> bool:
    return (node.kind == "call" and node.text == "Sum") or any(map(_has_sum, node.parts))


def _math(written: str, otherwise: str, *, is_display: bool = False) -> Markup:
    """MathML; a sum stands by itself. Where LaTeX cannot be read, what it was made from."""
    is_block = is_display or _is_tall(written)
    try:
        found = Markup(mathml(written, is_display=is_block))
    except NoMathError:
        return Markup("<code>{}</code>").format(otherwise)
    if not is_block:
        return found
    return Markup(BEGIN) + found + Markup(END)


def _is_tall(written: str) -> bool:
    """Fractions of sums stand by themselves."""
    return r"\sum_{" in written and r"\frac" in written
