"""Reads MathML anew and works out its value, to hold what a page shows against the expression that it was made from.

Written from what the elements mean on a page, not from how they are made: no code of ``formulas`` is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element
from zlib import crc32

from sympy import Expr, Indexed, Integer

LETTERS = {"alpha": "α", "beta": "β", "gamma": "γ", "lambda": "λ", "eta": "η", "theta": "θ", "delta": "δ"}
COUNTS = {"L": 6, "N": 3, "M": 2}
"""Ends of sums: whole numbers. Every other letter has a value between 1 and 2."""


def value_of_letter(name: str) -> float:
    return float(COUNTS[name]) if name in COUNTS else 1 + crc32(name.encode()) % 1000 / 1000


def at_letters(expr: Expr) -> float:
    """sympy's value at the same letters: v[3] is the letter v_3."""
    counts = {s: Integer(COUNTS[str(s)]) for s in expr.free_symbols if str(s) in COUNTS}
    whole = expr.xreplace(counts).doit()
    free = sorted(whole.atoms(Indexed), key=str)
    whole = whole.xreplace({one: value_of_letter(_shown(f"{one.base}_{one.indices[0]}")) for one in free})
    return float(whole.xreplace({s: value_of_letter(_shown(str(s))) for s in whole.free_symbols}))


def _shown(name: str) -> str:
    head, _, rest = name.partition("_")
    return LETTERS.get(head, head) + (f"_{rest}" if rest else "")


def value_of(math_: Element) -> float:
    return _Row(list(math_), {}).whole()


class _Row:
    """A row of elements: sums of products of factors, with brackets."""

    def __init__(self, row: Sequence[Element], bound: dict[str, int]) -> None:
        self.row = [element for element in row if element.tag != "mspace"]
        self.bound = bound
        self.at = 0

    def sees(self, *signs: str) -> bool:
        return self.at < len(self.row) and self.row[self.at].tag == "mo" and self.row[self.at].text in signs

    def whole(self) -> float:
        found = self.sum_()
        assert self.at == len(self.row), "something is left over"
        return found

    def sum_(self) -> float:
        sign = -1 if self.sees("−") else 1
        self.at += self.sees("−", "+")
        found = sign * self.product()
        while self.sees("+", "−"):
            sign = -1 if self.sees("−") else 1
            self.at += 1
            found += sign * self.product()
        return found

    def product(self) -> float:
        found = 1.0
        while self.at < len(self.row) and not self.sees("+", "−", ")", ","):
            if self.sees("⋅"):
                self.at += 1
            elif self.sees("/"):
                self.at += 1
                found /= self.factor()
            else:
                found *= self.factor()
        return found

    def factor(self) -> float:
        element = self.row[self.at]
        self.at += 1
        if element.tag == "mo" and element.text == "(":
            found = self.sum_()
            assert self.sees(")"), "a bracket stays open"
            self.at += 1
            return found
        if element.tag == "munderover" and element[0].text == "∑":
            return self.big(element)
        if element.tag == "mi" and element.text == "log":
            return math.log(self.factor())
        if element.tag == "msup" and element[0].text == "log":
            return math.log(self.factor()) ** self.inside(element[1])
        return self.inside(element)

    def big(self, element: Element) -> float:
        """The body of a sum is the rest of the product that it begins."""
        index, low = (element[1][0].text or ""), self.inner(list(element[1])[2:])
        start, total = self.at, 0.0
        for place in range(round(low), round(self.inside(element[2])) + 1):
            rest = _Row(self.row[start:], self.bound | {index: place})
            total += rest.product()
            self.at = start + rest.at
        if low > self.inside(element[2]):
            rest = _Row(self.row[start:], self.bound | {index: round(low)})
            rest.product()
            self.at = start + rest.at
        return total

    def inner(self, row: Sequence[Element]) -> float:
        return _Row(row, self.bound).whole()

    def inside(self, element: Element) -> float:
        match element.tag:
            case "mn":
                return float(element.text or "")
            case "mi":
                name = element.text or ""
                return self.bound[name] if name in self.bound else value_of_letter(name)
            case "mrow":
                return self.inner(list(element))
            case "mfrac":
                return self.inside(element[0]) / self.inside(element[1])
            case "msqrt":
                return math.sqrt(self.inner(list(element)))
            case "msup":
                return self.inside(element[0]) ** self.inside(element[1])
            case "msubsup":
                return self.letter(element) ** self.inside(element[2])
            case "msub" if element[0].text == "H":
                return sum(1 / i for i in range(1, round(self.inside(element[1])) + 1))
            case "msub":
                return self.letter(element)
        raise AssertionError(f"<{element.tag}> is not read")

    def letter(self, element: Element) -> float:
        """v_l with l the index of a sum, or lambda_q, which is a letter of its own."""
        below = "".join(element[1].itertext())
        name = f"{element[0].text}_{self.bound.get(below, below)}"
        return value_of_letter(name)
