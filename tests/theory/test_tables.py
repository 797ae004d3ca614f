"""The tables: every cell reads back as an expression, and follows from its derivation.

What the sources print in its place `verify` compares.
"""

from __future__ import annotations

import pytest
from sympy import Expr, Symbol, sympify

import theory.tables as tables
from theory.asymptotics.evaluate import evaluate
from theory.optimizers import OPTIMIZERS
from theory.tables import SMALL_TABLES, cross_block

LOCALS = {"N": Symbol("N"), "M": Symbol("M")}
CELLS = {"alpha", "beta", "gamma", "lambda", "coefficient", "power", "log_power", "loglog_power"}


def read(cell: str | None) -> Expr:
    """A cell, as a program would read it."""
    assert isinstance(cell, str)
    return sympify(cell, locals=LOCALS)


def at(expr: Expr, num: float = 7, other: float = 11) -> float:
    numbers = {"N": num, "M": other}
    return float(expr.subs({symbol: numbers[str(symbol)] for symbol in expr.free_symbols}))


@pytest.mark.parametrize("name", SMALL_TABLES)
def test_small_tables_have_readable_cells(name):
    table = SMALL_TABLES[name]()
    assert table.id == name and table.title
    for row in table.rows:
        assert tuple(row) == table.columns
        for column in CELLS & row.keys():
            assert at(read(row[column])) > 0 and read(row[column]).free_symbols <= set(LOCALS.values())


SAME = (
    ("sgd", "momentum"),
    ("adam", "adamw", "rmsprop", "signsgd", "lion", "sophia"),
    ("lamb", "adafactor"),
    ("lars",),
    ("muon",),
)


@pytest.mark.parametrize("name", ["fixup", "depth-mup"])  # no update under adam; learning rates of its own
def test_optimizers_of_a_kind_share_their_rows(name):
    rows = {str(row["optimizer"]): row for row in cross_block(name, "relu", "layernorm")}
    assert list(rows) == list(OPTIMIZERS)
    for optimizer, *others in SAME:
        assert all({**rows[other], "optimizer": optimizer} == rows[optimizer] for other in others)
    for row in rows.values():
        assert row["rung"] == "meanfield" and row["shown_by"]
        is_zero = row["coefficient"] == "0"
        assert is_zero == (row["power"] is row["log_power"] is row["loglog_power"] is None)


def test_a_cell_is_the_constant_that_it_stands_for():
    """tidied may shorten an expression, and must not change it."""
    for kind, act in (("layernorm", "gelu"), ("rmsnorm", "tanh")):  # exact, and in decimals
        order = tables._cross_order("sub-ln", kind, act, "sgd", False)
        cell, exact = read(tables.constant_cell(order.coefficient)), evaluate(order.coefficient, {})
        assert float(cell) == pytest.approx(float(exact), rel=1e-14, abs=0)
