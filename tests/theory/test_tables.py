"""The tables: every cell reads back as an expression, says what the sources print, and follows from its derivation.

The printed cells are typed from the sources themselves: Su's table and his Pre-Norm remark, DeepNet's Figure 2 as the
equations of its Section 4 give it, Magneto's Figure 2, and the orders that the texts state for their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from sympy import Expr, Float, Integer, Rational, Symbol, oo, pi, sqrt, sympify

import theory.tables as tables
from tests.printed_rules import broken
from theory.asymptotics.evaluate import evaluate
from theory.asymptotics.expansion import sign_of
from theory.asymptotics.orders import Order
from theory.meanfield.update import predict
from theory.optimizers import OPTIMIZERS
from theory.schemes import SCHEMES
from theory.symbols import M, N
from theory.tables import CROSS_ACTIVATIONS, SMALL_TABLES, Row, cross, cross_block, cross_settings

LOCALS = {"N": Symbol("N"), "M": Symbol("M")}
KEYS = {
    "su-optimizers": ("optimizer", "update", "loss_change", "alpha", "lambda"),
    "su-prenorm": ("optimizer", "alpha", "lambda"),
    "deepnet": ("architecture", "side", "alpha", "beta"),
    "magneto-gamma": ("architecture", "side", "gamma"),
    "bounds": ("scheme", "bound", "order"),
}
CROSS_KEYS = (
    *("scheme", "optimizer", "activation", "norm_kind", "rung"),
    *("coefficient", "power", "log_power", "loglog_power"),
)
CELLS = {"alpha", "beta", "gamma", "lambda", "coefficient", "power", "log_power", "loglog_power"}


def read(cell: str | None) -> Expr:
    """A cell as DESIGN says that it is read."""
    assert isinstance(cell, str)
    return sympify(cell, locals=LOCALS)


def at(expr: Expr, num: float = 7, other: float = 11) -> float:
    numbers = {"N": num, "M": other}
    return float(expr.subs({symbol: numbers[str(symbol)] for symbol in expr.free_symbols}))


# ---------------------------------------------------------------------------------------------- the printed cells

quarter = Rational(1, 4)
LEADING = (N**4 * M) ** Rational(1, 16)
# (table, row by its first columns) -> {column: printed}
PRINTED: dict[tuple[str, ...], dict[str, Expr | float]] = {
    ("su-optimizers", "sgd"): {"alpha": (2 * N) ** quarter, "lambda": (2 * N) ** -quarter},
    ("su-optimizers", "adam"): {"alpha": sqrt(2 * N), "lambda": 1 / sqrt(2 * N)},
    ("su-optimizers", "lamb"): {"alpha": Integer(1), "lambda": 1 / sqrt(2 * N)},
    ("su-prenorm", "sgd"): {"alpha": Integer(1), "lambda": 1 / sqrt(2 * N)},
    ("su-prenorm", "adam"): {"alpha": Integer(1), "lambda": 1 / (2 * N)},
    ("su-prenorm", "lamb"): {"alpha": Integer(1), "lambda": 1 / sqrt(2 * N)},
    ("deepnet", "encoder", "encoder"): {"alpha": (2 * N) ** quarter, "beta": (8 * N) ** -quarter},
    ("deepnet", "decoder", "decoder"): {"alpha": (2 * M) ** quarter, "beta": (8 * M) ** -quarter},
    ("deepnet", "encoder-decoder", "encoder"): {"alpha": 0.81 * LEADING, "beta": 0.87 / LEADING},
    ("deepnet", "encoder-decoder", "decoder"): {"alpha": (3 * M) ** quarter, "beta": (12 * M) ** -quarter},
    ("magneto-gamma", "encoder", "encoder"): {"gamma": read("sqrt(log(2*N))")},
    ("magneto-gamma", "decoder", "decoder"): {"gamma": read("sqrt(log(2*M))")},
    ("magneto-gamma", "encoder-decoder", "encoder"): {"gamma": read("sqrt(log(3*M)*log(2*N)/3)")},
    ("magneto-gamma", "encoder-decoder", "decoder"): {"gamma": read("sqrt(log(3*M))")},
}
PRINTED_ORDERS = {
    "post-ln": "N",
    "deepnorm": "1",
    "pre-ln": "log(N)",
    "sub-ln": "log(N)",
    "sub-ln-gamma": "1",
    "encoder-decoder-post-ln": "N**2",  # O(M sum over 2N + sum over 3M), M = N
    "encoder-decoder-deepnorm": "1",
    "encoder-decoder-pre-ln": "log(N)**2",
    "encoder-decoder-sub-ln": "log(N)**2",
    "encoder-decoder-sub-ln-gamma": "1",
}
PRINTED_WORDS = {
    "sgd": ("-eta*g", "-eta*||g||^2"),
    "adam": ("-eta*sign(g)", "-eta*||g||_1"),
    "lamb": ("-eta*||theta||*sign(g)", "-eta*||theta||*||g||_1"),
}


def rows_of(name: str, columns: int) -> dict[tuple[str | None, ...], Row]:
    return {tuple(list(row.values())[:columns]): row for row in SMALL_TABLES[name]().rows}


def agrees(cell: str | None, printed: Expr | float) -> bool:
    """Equal; where the source rounds, to its two decimals."""
    found, wanted = read(cell), sympify(printed)
    if found is None:  # no gain was found
        return False
    pairs = [(at(found, *place), at(wanted, *place)) for place in ((7, 11), (100, 6))]
    rounded = wanted.atoms(Float)
    return all(math.isclose(one, two, rel_tol=0.005 / 0.81 if rounded else 1e-14) for one, two in pairs)


def wrong_cells(printed: dict[tuple[str, ...], dict[str, Any]] = PRINTED) -> list[tuple[str, ...]]:
    wrong, derived = [], {(name, len(row)): rows_of(name, len(row)) for name, *row in printed}
    for (name, *row), cells in printed.items():
        found = derived[name, len(row)][tuple(row)]
        wrong += [(name, *row, column) for column, cell in cells.items() if not agrees(found[column], cell)]
    return wrong


def test_the_tables_say_what_the_sources_print():
    assert wrong_cells() == []
    named = {key[0] for key in PRINTED}
    assert {name: len(SMALL_TABLES[name]().rows) for name in named} == {
        name: sum(key[0] == name for key in PRINTED) for name in named
    }


def test_the_rounded_constants_of_deepnet_are_exact_ones():
    row = rows_of("deepnet", 2)["encoder-decoder", "encoder"]
    assert sign_of((read(row["alpha"]) / LEADING.subs({N: LOCALS["N"], M: LOCALS["M"]})).subs(
        {LOCALS["N"]: 1, LOCALS["M"]: 1}) - Rational(1, 27) ** Rational(1, 16)) == 0  # fmt: skip
    assert round(27 ** (-1 / 16), 2) == 0.81 and round(27 ** (1 / 16) / math.sqrt(2), 2) == 0.87


def test_the_words_of_the_su_table_are_his():
    """His LAMB writes ||theta||; as published it is the norm per root of the number of entries."""
    for name, row in rows_of("su-optimizers", 1).items():
        assert (
            tuple(str(row[key]).replace("/sqrt(n)", "") for key in ("update", "loss_change"))
            == PRINTED_WORDS[str(name[0])]
        )


def test_the_orders_of_the_bounds_are_as_stated():
    found = {row["scheme"]: row["order"] for row in tables.bounds().rows}
    assert found.keys() == PRINTED_ORDERS.keys()
    assert all(sign_of(read(found[name]).subs(LOCALS["N"], 7) - read(order).subs(LOCALS["N"], 7)) == 0
               for name, order in PRINTED_ORDERS.items())  # fmt: skip


# ---------------------------------------------------------------------------------------------- every cell reads


@pytest.mark.parametrize("name", SMALL_TABLES)
def test_small_tables_have_their_keys_and_readable_cells(name):
    table = SMALL_TABLES[name]()
    assert table.id == name and table.title and table.columns == KEYS[name]
    for row in table.rows:
        assert tuple(row) == KEYS[name]
        for column in CELLS & row.keys():
            assert at(read(row[column])) > 0 and read(row[column]).free_symbols <= set(LOCALS.values())


@cache
def block(name: str, act: str = "relu", kind: str = "layernorm") -> list[Row]:
    return cross_block(name, act, kind)


def test_cross_has_every_scheme_under_every_optimizer():
    """Structure only; the blocks here are stand-ins, since all of them take a minute."""
    settings = cross_settings()
    assert settings == [(s, a, k) for s in SCHEMES for a in CROSS_ACTIVATIONS for k in ("layernorm", "rmsnorm")]
    rows = block("fixup")
    table = cross([{**row, "scheme": s, "activation": a, "norm_kind": k} for row in rows] for s, a, k in settings)
    assert table.id == "cross" and table.columns[: len(CROSS_KEYS)] == CROSS_KEYS
    assert len(table.rows) == len(SCHEMES) * len(OPTIMIZERS) * 5 * 2
    assert {(row["scheme"], row["optimizer"]) for row in table.rows} == {(s, o) for s in SCHEMES for o in OPTIMIZERS}


def check(rows: Iterable[Row]) -> None:
    """Cells read, and the order that they state is within a factor 1.5 of the update at 10^9 layers and nearing it."""
    for row in rows:
        assert tuple(row)[: len(CROSS_KEYS)] == CROSS_KEYS and row["rung"] == "meanfield" and row["shown_by"]
        if row["coefficient"] == "0":
            assert [row[key] for key in ("power", "log_power", "loglog_power")] == [None] * 3
            continue
        c, a, b, e = (read(row[key]) for key in ("coefficient", "power", "log_power", "loglog_power"))
        assert not (c.free_symbols | a.free_symbols | b.free_symbols | e.free_symbols) and c.evalf() > 0
        asked = (str(row["scheme"]), str(row["optimizer"]))
        kwargs: dict[str, Any] = {"activation": row["activation"], "norm_kind": row["norm_kind"]}
        misses = []
        for num in (10**5, 10**9):
            log = math.log(num)
            stated = float(c) * num ** float(a) * log ** float(b) * math.log(log) ** float(e)
            misses.append(abs(predict(*asked, 2 * num, **kwargs).update / stated - 1))
        assert misses[1] < 0.5 and (misses[1] < misses[0] or misses[1] < 0.05 or asked[0] == "ln-scaling"), row


SAME = (
    ("sgd", "momentum"),
    ("adam", "adamw", "rmsprop", "signsgd", "lion", "sophia"),
    ("lamb", "adafactor"),
    ("lars",),
    ("muon",),
)
FEW = ("pre-ln", "fixup", "ln-scaling")  # a sum in closed form, no update, and no closed form


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW else [pytest.mark.slow]) for name in SCHEMES]
)
def test_a_block_of_cross_is_near_the_update(name):
    """One optimizer of each kind; the others of a kind have its order."""
    rows = {str(row["optimizer"]): row for row in block(name)}
    assert list(rows) == list(OPTIMIZERS)
    for one, *others in SAME:
        assert all({**rows[other], "optimizer": one} == rows[one] for other in others)
    check(rows[one] for one, *_ in SAME)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(("pre-ln", "gelu", "layernorm"), marks=pytest.mark.slow),
        pytest.param(("sub-ln", "tanh", "rmsnorm"), marks=pytest.mark.slow),
        pytest.param(("deepnorm", "silu", "layernorm"), marks=pytest.mark.slow),
        pytest.param(("t-fixup", "gelu", "layernorm"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_a_block_behind_another_activation_is_near_the_update(setting):
    check(row for row in block(*setting) if row["optimizer"] in ("sgd", "lars"))


def test_cells_without_a_coefficient_say_how_they_grow():
    for row in block("post-ln", "gelu"):
        assert read(row["power"]) == oo and str(row["growth"]).startswith("exp(") and "N" in str(row["growth"])
    for row in block("sub-ln-gamma", "tanh"):
        assert (row["coefficient"], row["power"]) == (None, "oo") and row["growth"]


def test_norm_kinds_differ_only_behind_an_inner_norm():
    def cells(name: str, kind: str) -> list:
        return [{**row, "norm_kind": ""} for row in block(name, "relu", kind)]

    assert cells("pre-ln", "layernorm") == cells("pre-ln", "rmsnorm")
    assert cells("sub-ln", "layernorm") != cells("sub-ln", "rmsnorm")


# (scheme, optimizer) -> (coefficient, power, log power, log log power) in N layers, by hand; relu, layernorm
KNOWN = {
    ("post-ln", "sgd"): (Rational(4, 3), 1, 0, 0),
    ("pre-ln", "sgd"): (2, 0, 1, 0),
    ("deepnorm", "sgd"): (Rational(1, 2), 0, 0, 0),
    ("su-adam", "adam"): (2 / pi, 0, 0, 0),
    ("su-lamb", "lamb"): (2 / pi, 0, 0, 0),
    ("su-pre-adam", "lion"): (2 / pi, 0, 0, 0),
    ("completep", "sgd"): (2, -1, 0, 0),
    ("completep", "adam"): (4 / pi, 0, 0, 0),
    ("ln-scaling", "momentum"): (2, 0, 0, 1),
    ("t-fixup", "adam"): (None, Rational(3, 4), 0, 0),
    ("sub-ln", "sgd"): (None, 1 / (pi - 1), 0, 0),
    ("sub-ln-gamma", "sgd"): (None, 1 / (pi - 1), -1, 0),
}


def wrong_known() -> Iterator[tuple[str, str]]:
    for (name, opt), wanted in KNOWN.items():
        (row,) = (row for row in cross_block(name, "relu", "layernorm") if row["optimizer"] == opt)
        found = [read(row[key]) for key in ("coefficient", "power", "log_power", "loglog_power")]
        if any(known is not None and sign_of(cell - known) for cell, known in zip(found, wanted, strict=True)):
            yield name, opt


def test_cells_known_by_hand():
    assert list(wrong_known()) == []


# ---------------------------------------------------------------------------------------------- mutants

MUTANTS = {
    "power + 1/4": lambda cell: cell * (N * M) ** quarter,
    "2 dropped": lambda cell: cell.subs({N: N / 2, M: M / 2, **{s: s / 2 for s in LOCALS.values()}}, simultaneous=True),
    "M for N": lambda cell: cell.subs(
        {N: M, M: N, **dict(zip(LOCALS.values(), (M, N), strict=True))}, simultaneous=True
    ),
    "x 1.05": lambda cell: cell * Rational(105, 100),
}


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=[] if one in ("M for N", "x 1.05") else [pytest.mark.slow]) for one in MUTANTS],
)
def test_a_mutated_claim_is_seen_in_every_cell(mutant):
    change = MUTANTS[mutant]
    claims = {key: {column: change(sympify(cell)) for column, cell in cells.items()} for key, cells in PRINTED.items()}
    changed = {
        (*key, column)
        for key, cells in claims.items()
        for column, cell in cells.items()
        if not math.isclose(at(cell), at(sympify(PRINTED[key][column])), rel_tol=1e-9)
    }
    assert len(changed) >= 18 and set(wrong_cells(claims)) == changed


BROKEN = {  # what is broken in the argument -> tables that must turn red
    "sublayers": {"su-optimizers", "su-prenorm", "deepnet", "magneto-gamma"},
    "degree": {"su-optimizers", "su-prenorm", "deepnet"},
    "probe": {"su-optimizers", "su-prenorm", "deepnet", "magneto-gamma"},
    "coupling": {"deepnet"},
    "cross share": {"magneto-gamma"},
    "matrices": {"deepnet"},
}


FEW_BROKEN = ("probe", "coupling", "cross share")  # between them every table; the rules see the others


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in FEW_BROKEN else [pytest.mark.slow]) for what in BROKEN]
)
def test_a_broken_derivation_changes_its_cells(what, monkeypatch):
    broken(monkeypatch, what)
    assert {cell[0] for cell in wrong_cells()} == BROKEN[what]


BROKEN_ORDERS = {
    "N for 2N": lambda o: o if o.is_zero or o.power is oo else replace(o, coefficient=o.coefficient * 2**o.power),
    "coefficient": lambda o: replace(o, coefficient=o.coefficient * Rational(105, 100)),
    "power": lambda o: o if o.is_zero else replace(o, power=o.power + quarter),
    "log": lambda o: o if o.is_zero else replace(o, log_power=o.log_power * 0, loglog_power=o.loglog_power * 0),
}


@pytest.fixture
def forgotten():
    """No order of an unbroken derivation is remembered, nor one of a broken."""
    tables._cross_order.cache_clear()
    yield
    tables._cross_order.cache_clear()


@pytest.mark.parametrize("what", BROKEN_ORDERS)
def test_a_broken_order_changes_its_cells(what, monkeypatch, forgotten):
    right = tables.update_order
    monkeypatch.setattr(tables, "update_order", lambda setting: BROKEN_ORDERS[what](right(setting)))
    assert next(wrong_known(), None) is not None


def test_sublayers_for_layers_are_seen(monkeypatch, forgotten):
    monkeypatch.setattr(Order, "restated", lambda self, old, new: self)
    assert next(wrong_known()) == ("post-ln", "sgd")


def test_a_cell_is_the_constant_that_it_stands_for():
    """tidied may shorten an expression, and must not change it."""
    for kind, act in (("layernorm", "gelu"), ("rmsnorm", "tanh")):  # exact, and in decimals
        order = tables._cross_order("sub-ln", kind, act, "sgd", False)
        cell, exact = read(tables.constant_cell(order.coefficient)), evaluate(order.coefficient, {})
        assert float(cell) == pytest.approx(float(exact), rel=1e-14, abs=0)
