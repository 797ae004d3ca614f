"""Our texts with the signs of mathematics: λ for lambda, √ for sqrt, raised powers, lowered indices.

Nothing is parsed. One pass over the characters replaces what stands for a sign, and raises or lowers what stands in
brackets; what it does not know stays as it was typed. ``html`` is for pages, ``signs`` where no markup can stand, and
``latex`` for the cells of the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from markupsafe import Markup, escape

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ"}
GREEK |= {"pi": "π", "rho": "ρ", "sigma": "σ", "phi": "φ", "psi": "ψ", "Delta": "Δ", "Theta": "Θ", "Gamma": "Γ"}
_SIGNS = {"sqrt": "√", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "=Theta=": "≍", "||": "‖"}
_LETTER = rf"(?:{'|'.join(GREEK)})(?![A-Za-z0-9]|-[A-Za-z])"  # no part of a word: neither alphabet nor alpha-one
_GROUP = r"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\{[^{}]*\})"
# An index belongs to a letter (x, dx), to a sum, or to what ends in a bracket or a bar: norm_gain is a name.
_WORDS = "|".join(f"(?<={word})" for word in (*GREEK, "sum", "prod"))
_BEFORE_INDEX = rf"(?<=[)}}|])|(?<![\w-][A-Za-z])(?<=[A-Za-z])|(?<=\bd[A-Za-z])|{_WORDS}"
_PIECE = re.compile(
    rf"(?P<up>(?:\^|\*\*)(?:{_GROUP}|-?\d+(?:\.\d+)?|\*|[A-Za-z](?![A-Za-z0-9])|{_LETTER}))"
    rf"|(?P<down>(?:{_BEFORE_INDEX})_(?:{_GROUP}|(?:[A-Za-z0-9]{{1,2}}|{_LETTER})(?![A-Za-z0-9_])))"
    rf"|(?P<greek>(?<!\w)(?<![A-Za-z]-)d?{_LETTER})"
    rf"|(?P<root>(?<!\w)sqrt{_GROUP})"
    r"|(?P<sign>(?<!\w)sqrt(?!\w)|->|<=|>=|!=|=Theta=|\|\|)"
    r"|(?P<silent>(?<=\d)\*(?=[A-Z(]))|(?P<times>(?<=[\w)\]|])\*(?=[\w(|])|(?<= )\*(?= ))"
    r"|(?P<whole>(?<![\w.])\d[\d.]*e-\d+\b|(?<!\S)--[a-z][a-z-]*)"
)
Writer = Callable[[str], str]


def _written(text: str, writers: Mapping[str, Writer], rest: Writer) -> str:
    """writers: by the name of a group of _PIECE, what to write for it; rest: for what lies between."""
    pieces, done = list[str](), 0
    for match in _PIECE.finditer(text):
        pieces += [rest(text[done : match.start()]), writers[match.lastgroup or ""](match.group())]
        done = match.end()
    return "".join([*pieces, rest(text[done:])])


def _group(typed: str) -> tuple[str, str, str]:
    """The mark and the bracket before it, what is raised or lowered, and the bracket behind: ``^(``, ``1/2``, ``)``."""
    mark, inside = re.fullmatch(r"(\^|\*\*|_|sqrt)(.*)", typed, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return (mark + inside[0], inside[1:-1], inside[-1]) if inside[0] in "({" else (mark, inside, "")


def _greek(typed: str) -> str:
    return GREEK.get(typed) or f"d{GREEK[typed[1:]]}"


# ---------------------------------------------------------------- plain text


def signs(text: str) -> str:
    """For tooltips, names and plain text: powers and indices keep their marks.

    >>> from depthlaw.paper_checks.notation.signs import signs
    >>> signs("lambda = sqrt(2*N), v_l**2 <= (8*N)**(-1/4) of norm_gain")
    'λ = √(2N), v_l^2 ≤ (8N)^(-1/4) of norm_gain'
    """
    return _written(text, _PLAIN, str)


_PLAIN: dict[str, Writer] = {
    "up": lambda typed: "^" + signs(typed.lstrip("^*") or "*"),
    "down": lambda typed: "_" + signs(typed[1:]),
    "greek": _greek,
    "root": lambda typed: "√" + signs(typed.removeprefix("sqrt")),
    "sign": _SIGNS.__getitem__,
    "silent": lambda _: "",
    "times": lambda _: "·",
    "whole": str,
}

# ---------------------------------------------------------------- pages


def html(text: str) -> Markup:
    """For a page, escaped. What is copied from it, searched in it and read aloud is the text as it was typed.

    >>> from depthlaw.paper_checks.notation.signs import html
    >>> html("x^2 < 1")
    Markup('x<span class="typed">^</span><sup>2</sup> &lt; 1')
    """
    if (parts := _sum_in(text)) is None:
        return Markup(_written(text, _PAGE, escape))
    before, name, body, ranges, behind = parts
    sign = Markup().join(
        Markup("{}<sub>{}={}</sub><sup>{}</sup>").format(_LARGE_SIGNS[name], *map(signs, limits)) for limits in ranges
    )
    opened = _shown(sign, "") + _typed(name) + "("
    tail = "".join(f", ({', '.join(limits)})" for limits in ranges)
    front = Markup(html(before + name).removesuffix(name))  # what stands before a name decides what a star is
    return front + Markup(opened) + html(body) + _typed(tail) + ")" + html(behind)


def _sum_in(text: str) -> tuple[str, str, str, list[list[str]], str] | None:
    """The first sum or product as sympy writes it, ``Sum(v[l]**2, (l, 1, L))``: what stands before it, its name, what
    is added, each letter with where it begins and ends, and what stands behind. None where there is none."""
    for match in _SUM.finditer(text):
        parts, depth, start, place = list[str](), 0, match.end(), match.end()
        for place in range(match.end(), len(text)):
            depth += (text[place] in "([") - (text[place] in ")]")
            if depth < 0 or (depth == 0 and text[place] == ","):
                parts.append(text[start:place].strip())
                start = place + 1
            if depth < 0:
                break
        ranges = [[word.strip() for word in part[1:-1].split(",")] for part in parts[1:]]
        tail = "".join(f", ({', '.join(limits)})" for limits in ranges)
        if (
            depth < 0
            and ranges
            and all(len(limits) == 3 for limits in ranges)
            and text[match.end() : place] == parts[0] + tail
        ):
            return text[: match.start()], match[1], parts[0], ranges, text[place + 1 :]
    return None


_LARGE_SIGNS = {"Sum": "Σ", "Product": "Π"}
_SUM = re.compile(rf"(?<!\w)({'|'.join(_LARGE_SIGNS)})\(")


def _typed(text: str) -> Markup:
    return Markup('<span class="typed">{}</span>').format(text) if text else Markup()


def _shown(sign: str, typed: str) -> str:
    return Markup('<span class="shown" aria-hidden="true">{}</span>').format(sign) + _typed(typed)


def _placed(tag: str, typed: str) -> str:
    before, inside, behind = _group(typed)
    return f"{_typed(before)}<{tag}>{html(inside)}</{tag}>{_typed(behind)}"


_PAGE: dict[str, Writer] = {
    "up": lambda typed: _placed("sup", typed),
    "down": lambda typed: _placed("sub", typed),
    "greek": lambda typed: _shown(_greek(typed), typed),
    "root": lambda typed: _shown("√", "sqrt") + html(typed.removeprefix("sqrt")),
    "sign": lambda typed: _shown(_SIGNS[typed], typed),
    "silent": _typed,
    "times": lambda typed: _shown("·", typed),
    "whole": lambda typed: Markup('<span class="whole">{}</span>').format(typed),
}

# ---------------------------------------------------------------- LaTeX of the tables' cells

_COMMANDS = {"≤": r"\leq", "≥": r"\geq", "→": r"\to", "≠": r"\neq", "≍": r"\asymp", "√": r"\surd ", "‖": r"\|"}


def latex(text: str) -> str:
    r"""For a cell that is a formula from end to end, as sympy writes it: ``(2*N)**(1/4)``, or ``2 N^1/2 (log N)^-1/2``.

    >>> from depthlaw.paper_checks.notation.signs import latex
    >>> print(latex("-eta*||theta||/sqrt(n)"), latex("(2*N)**(1/4)"))
    -\eta \left\|\theta\right\|/\sqrt{n} {(2 N)}^{1/4}
    """
    text = re.sub(r"\blog(\([^()]*\))\*\*(\d+|\([\d/]+\))", r"log^\2\1", whole_powers(text))
    text = re.sub(rf"(?<!\w)({_GROUP})(?=\^|\*\*)", r"{\1}", text)
    typeset = re.sub(r"\\\|(.*?)\\\|", r"\\left\\|\1\\right\\|", _written(text, _CELL, str))
    return re.sub(r"\b(?<!\\)(log|exp)\b", r"\\\1", typeset).replace("sign(", r"\operatorname{sign}(")


def is_formula(text: str) -> bool:
    """Whether a cell is of numbers, letters and signs alone: no name, no words."""
    return _FORMULA.fullmatch(text) is not None


def whole_powers(text: str) -> str:
    """The tables' N^1/2 (log N)^-1/2, where the whole fraction is the power, as N^(1/2) (log N)^(-1/2)."""
    return re.sub(r"\^(-?\d+/\d+)(?=\s|$)", r"^(\1)", text)


_FORMULA = re.compile(
    rf"(?:[\d\s.,*/^()|_+-]|(?<![A-Za-z])(?:log|exp|sqrt|sign|[A-Za-z]|{'|'.join(GREEK)})(?![A-Za-z]))+"
)
_CELL: dict[str, Writer] = {
    "up": lambda typed: f"^{{{latex(_group(typed)[1])}}}",
    "down": lambda typed: f"_{{{latex(_group(typed)[1])}}}",
    "greek": lambda typed: f"\\{typed}",
    "root": lambda typed: rf"\sqrt{{{latex(_group(typed)[1])}}}",
    "sign": lambda typed: _COMMANDS[_SIGNS[typed]],
    "silent": lambda _: " ",
    "times": lambda _: " ",
    "whole": str,
}
