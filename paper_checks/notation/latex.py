"""LaTeX of the formulas that ``formulas`` reads: fractions stacked where the reading is exact, else as they stand."""

from __future__ import annotations

from collections.abc import Sequence

from paper_checks.notation.formulas import Node
from paper_checks.notation.names import name
from paper_checks.notation.tokens import FUNCTIONS, RELATIONS

_OWN_COMMAND = frozenset(["log", "ln", "exp", "cos", "sin", "sinh", "tanh", "sum"])
_DECIMALS = 10
_ATOMS = frozenset(("number", "name", "index", "place"))


def latex(found: Node, places: Sequence[str] = (), *, is_stacked: bool = True) -> str:
    """LaTeX. places: that of the formulas which were read before. is_stacked: fractions, else a slash stays a slash.

    >>> from paper_checks.notation.formulas import formula
    >>> from paper_checks.notation.latex import latex
    >>> latex(formula("sqrt(2)/(2*sqrt(N))"))
    '\\\\frac{\\\\sqrt{2}}{2 \\\\sqrt{N}}'
    """
    return _Writer(places, is_stacked).write(found)


class _Writer:
    def __init__(self, places: Sequence[str], is_stacked: bool) -> None:
        self.places, self.is_stacked = places, is_stacked

    def write(self, node: Node) -> str:
        match node.kind:
            case "number":
                return _number(node.text)
            case "name":
                return name(node.text) or node.text
            case "words":
                return rf"\text{{{node.text}}}"
            case "word":
                return rf"\operatorname{{{node.text}}}"
            case "inner":
                return rf"\langle {self.write(node.parts[0])}\rangle"
            case "place":
                return self.places[int(node.text)]
            case "star":
                return r"\ast"
            case "minus":
                return f"-{self.write(node.parts[0])}"
            case "prime":
                return f"{self.write(node.parts[0])}'"
            case "group":
                return _bracketed(self.write(node.parts[0]))
            case "bars":
                bar = r"\|" if node.text == "||" else "|"
                return rf"\left{bar}{self.write(node.parts[0])}\right{bar}"
            case "index":
                return self.index(node)
            case "power":
                return self.power(node)
            case "below":
                return f"{self.write(node.parts[0])}_{{{self.flat(node.parts[1])}}}"
            case "call" | "bare":
                return self.call(node)
            case "big":
                return self.big(node)
            case "product":
                return self.stacked(node) if self.is_stacked else self.in_line(node)
            case "sum":
                return self.joined(node, {"+": " + ", "-": " - "})
            case "relation":
                return self.joined(node, {sign: f" {written} " for sign, written in RELATIONS.items()})
            case _:
                return self.joined(node, {",": ", ", ";": "; "})

    def joined(self, node: Node, signs: dict[str, str]) -> str:
        written = self.write(node.parts[0])
        for sign, part in zip(node.signs, node.parts[1:], strict=True):
            written += signs[sign] + self.write(part)
        return written

    def flat(self, node: Node) -> str:
        """For an exponent or an index: on one line."""
        return _Writer(self.places, is_stacked=False).write(node)

    def index(self, node: Node) -> str:
        base = name(node.text) or node.text
        below = self.flat(node.parts[0])
        return f"{base[:-1]},{below}}}" if base.endswith("}") and "_{" in base else f"{base}_{{{below}}}"

    def power(self, node: Node) -> str:
        base, exponent = node.parts
        above = self.flat(exponent)
        if base.kind in ("call", "bare") and base.text in _OWN_COMMAND - {"exp"}:
            return self.call(base, f"^{{{above}}}")
        written = self.write(base)
        if base.kind == "power":
            written = _bracketed(written)
        is_whole = base.kind not in ("call", "bare", "group", "power") or base.text == "sqrt"
        return f"{written}^{{{above}}}" if is_whole else f"{{{written}}}^{{{above}}}"

    def call(self, node: Node, power: str = "") -> str:
        args = node.parts
        inside = ", ".join(self.write(arg) for arg in args)
        match node.text:
            case "sqrt":
                return rf"\sqrt{{{self.write(_open(args[0])) if node.kind == 'bare' else inside}}}"
            case "Abs":
                return rf"\left|{inside}\right|"
            case "harmonic":
                return f"H_{{{self.flat(args[0])}}}"
            case "Sum":
                return self.sum_of(args)
        own = name(node.text) if node.text not in FUNCTIONS else None
        head = own or (f"\\{node.text}" if node.text in _OWN_COMMAND else rf"\operatorname{{{node.text}}}")
        if node.kind == "bare" or (node.text == "log" and self.is_stacked and args[0].kind in _ATOMS):
            return f"{head}{power} {inside}"
        return f"{head}{power}{_bracketed(inside)}"

    def sum_of(self, args: tuple[Node, ...]) -> str:
        """sympy's Sum, whose innermost index stands first."""
        body, *limits = args
        written = ""
        for limit in reversed(limits):
            index, low, high = (self.flat(part) for part in limit.parts[0].parts)
            written += rf"\sum_{{{index}={low}}}^{{{high}}} "
        inside = self.write(body)
        return written + (_bracketed(inside) if body.kind in ("sum", "minus") else inside)

    def big(self, node: Node) -> str:
        limits = f"_{{{self.flat(node.parts[0])}}}" if node.parts else ""
        if len(node.parts) > 1:
            limits += f"^{{{self.flat(node.parts[1])}}}"
        return f"\\{node.text}{limits} "

    def in_line(self, node: Node) -> str:
        written = ""
        signs = ("", *node.signs)
        for i, (sign, part) in enumerate(zip(signs, node.parts, strict=True)):
            is_open_end = _is_sum(part) and (sign == "/" or i < len(node.signs))
            inner = _bracketed(self.write(part)) if is_open_end else self.write(part)
            written += self.between(sign, part) + inner if i else inner
        return written

    def between(self, sign: str, part: Node) -> str:
        if sign == "*":
            return r" \cdot " if _begins_with_number(part) else " "
        return {"/": "/", "%": r" \bmod ", "x": r" \times ", "": " "}[sign]

    def stacked(self, node: Node) -> str:
        """Fractions from left to right; what follows one without a sign stands beside it: 4/3 N."""
        done: list[str] = []
        above, below = [node.parts[0]], []
        for sign, part in zip(node.signs, node.parts[1:], strict=True):
            if sign == "/":
                below.append(part)
            elif sign in ("%", "x") or (sign == "" and below):
                done.append(self.fraction(above, below) + self.between(sign, part))
                above, below = [part], []
            else:
                above.append(part)
        return "".join([*done, self.fraction(above, below)])

    def fraction(self, above: list[Node], below: list[Node]) -> str:
        if not below:
            return self.times(above)
        return rf"\frac{{{self.times(above)}}}{{{self.times(below)}}}"

    def times(self, parts: list[Node]) -> str:
        if len(parts) == 1:
            return self.write(_open(parts[0]))
        written = ""
        for i, part in enumerate(parts):
            if written and _begins_with_number(part):
                written += r" \cdot "
            inner = _open(part) if _open(part).kind in ("number", "product", "name", "call") else part
            is_open_end = i < len(parts) - 1 and _is_sum(inner)
            written += (_bracketed(self.write(inner)) if is_open_end else self.write(inner)) + " "
        return written.strip()


def sign_latex(sign: str) -> str:
    """LaTeX of what stands between two sides or two terms."""
    return RELATIONS.get(sign, sign)


def _number(text: str) -> str:
    """Thousands with their comma; of thirty decimals the first ten, and dots."""
    before, _, after = text.partition(".")
    return f"{before}.{after[:_DECIMALS]}\\ldots" if len(after) > _DECIMALS + 2 else text.replace(",", "{,}")


def _open(node: Node) -> Node:
    """Without the brackets around it."""
    return node.parts[0] if node.kind == "group" else node


def _begins_with_number(node: Node) -> bool:
    while node.kind in ("product", "power", "group") and not (node.kind == "group" and _open(node).kind == "sum"):
        node = node.parts[0]
    return node.kind == "number"


def _is_sum(node: Node) -> bool:
    return node.kind == "call" and node.text == "Sum"


def _bracketed(inside: str) -> str:
    is_tall = "\\frac" in inside or "\\sum" in inside
    return rf"\left({inside}\right)" if is_tall else f"({inside})"
