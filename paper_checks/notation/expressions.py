"""LaTeX of the expressions in printed statements, in the letters of the papers."""

from __future__ import annotations

import re
from functools import lru_cache

from sympy import Basic, Expr, Pow, Rational, Sum, Symbol, harmonic
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from depthlaw.theory.rules.magnitude import gathered

_LETTERS = {
    "norm_g": r"\left\|g\right\|",
    "norm_theta": r"\left\|\theta\right\|",
    "l1_g": r"\left\|g\right\|_{1}",
    "sign_g": r"\operatorname{sign}(g)",
    "inner_G_U": r"\langle G, U\rangle",
    "tr_A": r"\operatorname{tr}(A)",
    "tr_A2": r"\operatorname{tr}(A^{2})",
    "G_x": "G(x)",
    "x_before": "x",
    **{f"f{i}_new": f"f_{{{i}}}^{{*}}" for i in range(4)},
}
"""Symbols that stand for more than a letter."""

_LOW = re.compile(r"\\left\(((?:(?!\\left|\\frac|\\sum).)*?)\\right\)")
"""Brackets that need not grow."""


class _Printer(LatexPrinter):
    """A broken power on one line, each sum with a sign of its own, H for harmonic numbers."""

    def _print_Symbol(self, expr: Symbol, style: str = "plain") -> str:
        return _LETTERS.get(expr.name) or super()._print_Symbol(expr, style)

    def _print_Pow(self, expr: Pow) -> str:
        power = expr.exp
        if not isinstance(power, Rational) or power.q == 1 or abs(power) == Rational(1, 2):
            return super()._print_Pow(expr)
        return f"{{{self.parenthesize(expr.base, PRECEDENCE['Pow'])}}}^{{{power}}}"

    def _print_Sum(self, expr: Sum) -> str:
        signs = [rf"\sum_{{{index}={self._print(low)}}}^{{{self._print(high)}}} " for index, low, high in expr.limits]
        body = self._print(expr.function)
        return "".join(reversed(signs)) + (rf"\left({body}\right)" if expr.function.is_Add else body)

    def _print_harmonic(self, expr: harmonic) -> str:
        return f"H_{{{self._print(expr.args[0])}}}"


@lru_cache(maxsize=1024)
def latex(expr: Basic) -> str:
    r"""LaTeX of an expression of sympy, a monomial as one power.

    >>> from sympy import Rational
    >>> from depthlaw.paper_checks.notation.expressions import latex
    >>> from depthlaw.theory.symbols import N
    >>> print(latex((8 * N) ** Rational(-1, 4)))
    {(8 N)}^{-1/4}
    """
    forms = (expr, gathered(expr)) if isinstance(expr, Expr) else (expr,)
    text = _Printer().doprint(min(forms, key=lambda form: len(str(form))))
    while (less := _LOW.sub(r"(\1)", text)) != text:
        text = less
    return text
