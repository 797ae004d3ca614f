"""Every cell of a derived table beside what the sources print in its place, and the letters that cells have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import Expr, Indexed, exp, sympify

from depthlaw.paper_checks.claims.claim import Cell, Claim
from depthlaw.paper_checks.routes import algebra
from depthlaw.theory import symbols

TABLES = {
    "su-optimizers": ("optimizer",),
    "su-prenorm": ("optimizer",),
    "deepnet": ("architecture", "side"),
    "magneto-gamma": ("architecture", "side"),
    "bounds": ("scheme",),
}
"""The tables that sources print, and the columns that name a row. `cross` is printed nowhere."""
_UPDATES = ("update", "loss_change")
_SIDES = tuple(symbols.side_symbols(side) for side in ("encoder", "decoder"))
_GAINS = tuple(gains for side in _SIDES for gains in (side.gains_in, side.gains_out))
_INDEXED = (symbols.gains_in, symbols.gains_out, symbols.displacements, *_GAINS)
_PLAIN = (symbols.N, symbols.M, symbols.L, symbols.l, symbols.k, symbols.d, symbols.eta, symbols.residual_weight)
_LETTERS = {
    **{str(letter): letter for letter in (*_PLAIN, *(side.residual_weight for side in _SIDES))},
    **{letter: symbols.scratch(letter, integer=True, positive=True) for letter in "nj"},
    **{str(letter.label): letter for letter in _INDEXED},
}

Row = dict[str, Any]

g = symbols.scratch("g", real=True)
"""One entry of the gradient."""
sign_g = symbols.scratch("sign_g", real=True)
norm_g = symbols.scratch("norm_g", positive=True)
"""||g||, of the whole matrix."""
l1_g = symbols.scratch("l1_g", positive=True)
"""||g||_1."""
norm_theta = symbols.scratch("norm_theta", positive=True)
n = symbols.scratch("n", positive=True)
"""Entries of the matrix."""

_UPDATE_WORDS = (
    ("||theta||", "norm_theta"),
    ("||g||_1", "l1_g"),
    ("||g||", "norm_g"),
    ("sign(g)", "sign_g"),
    ("^", "**"),
)
_UPDATE_LETTERS = {str(letter): letter for letter in (g, sign_g, norm_g, l1_g, norm_theta, n, symbols.eta)}


def read_update(text: str) -> Expr:
    """A table's text for an update or a loss change (``-eta*||theta||*sign(g)``) as an expression in these letters."""
    for word, letter in _UPDATE_WORDS:
        text = text.replace(word, letter)
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    if not words <= {*_UPDATE_LETTERS, "sqrt"} or not re.fullmatch(r"[\w\s+\-*/().]+", text):
        raise ValueError(f"an update is written in {', '.join(_UPDATE_LETTERS)} and sqrt, not as {text!r}")
    return sympify(text, locals=_UPDATE_LETTERS)


@cache
def read(text: str) -> Expr:
    """A cell of our own tables, or a printed cell typed in a paper's module, as an expression."""
    return sympify(text, locals=_LETTERS)


def compare(cell: Cell, derived: str) -> tuple[bool | None, str]:
    """Whether a printed cell and the derived one are the same, and how that was shown."""
    if cell.column in _UPDATES:
        same = (read_update(cell.printed) / read_update(derived)).cancel() == 1
        return bool(same), "their ratio reduces to 1" if same else "their ratio does not reduce to 1"
    if cell.column == "bound":
        return _same_sums(read(cell.printed), read(derived))
    if cell.decimals is not None:
        return _rounded(cell, read(derived))
    return algebra.equal(read(cell.printed), read(derived)), "logarithms expanded into those of primes and counts"


def _same_sums(printed: Expr, derived: Expr) -> tuple[bool | None, str]:
    """One normal form; else two values that differ, at rational gains of every letter and N = M = L = 2."""
    if algebra.sums_equal(printed, derived):
        return True, "one normal form of sums, for every L"
    plain = sorted((x for x in printed.free_symbols | derived.free_symbols if not isinstance(x, Indexed)), key=str)
    letters = [x for x in plain if x not in {base.label for base in _INDEXED}]
    gains = [algebra.rational_gains(6, case)[0] for case in range(len(_INDEXED))]
    values = [*gains, *(2 if letter.is_integer else Fraction(2) for letter in letters)]
    a, b = (algebra.value_at(expr, (*_INDEXED, *letters), values) for expr in (printed, derived))
    return (False, f"at rational gains, counts 2, they are {a} and {b}") if a != b else (None, "not decided")


def _rounded(cell: Cell, derived: Expr) -> tuple[bool | None, str]:
    """The same law, and the derived constant rounds to the printed one."""
    assert cell.decimals is not None
    printed, law = read(cell.printed).as_coeff_Mul()
    constant = exp(algebra.log_form(derived) - algebra.log_form(law))
    if constant.free_symbols:
        return False, "another law"
    value = Decimal(str(constant.evalf(30)))
    by_way = algebra.roundings(value, cell.decimals)
    shown = ", ".join(f"{way} {text}" for way, text in by_way.items())
    same = all(abs(float(text) - float(printed)) < 1e-12 for text in by_way.values())
    return same, f"the same law; the exact constant {float(value):.6g} rounds to: {shown}"


def side_by_side(tables: Iterable[Mapping[str, Any]], claims: Iterable[Claim]) -> list[Row]:
    """One row for each derived cell and each claim that prints it; claim null where no claim prints it yet.

    ValueError where a claim prints a cell that no table has.
    """
    printed: dict[tuple[str, tuple[tuple[str, str], ...], str], list[tuple[Claim, Cell]]] = {}
    for claim in claims:
        for cell in claim.cells:
            printed.setdefault((cell.table, cell.where, cell.column), []).append((claim, cell))
    out: list[Row] = []
    for table in tables:
        names = TABLES.get(table["id"], ())
        for row in table["rows"] if names else ():
            where = tuple((name, row[name]) for name in names)
            for column in (column for column in row if column not in names):
                place: Row = {"table": table["id"], "row": dict(where), "column": column, "derived": row[column]}
                owners = printed.pop((table["id"], where, column), [])
                if not owners:
                    out.append({**place, "claim": None, "printed": None, "equal": None, "shown_by": None, "note": ""})
                for claim, cell in owners:
                    equal, shown = compare(cell, row[column])
                    place |= {"claim": claim.id, "printed": cell.printed, "equal": equal, "shown_by": shown}
                    out.append({**place, "note": cell.note})
    if printed:
        table, where, column = next(iter(printed))
        raise ValueError(f"table {table} has no cell {column} of {dict(where)}")
    return out
