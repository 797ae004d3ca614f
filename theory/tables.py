"""The tables, every cell an expression that a derivation of this package returned. Nothing in here is typed in.

su-optimizers, su-prenorm, deepnet, magneto-gamma   rules      what keeps the update flat, by the magnitude argument
bounds                                              bounds     the bounds on the update, and their order in N
cross                                               growth     every scheme under every optimizer: the true order
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import mpmath
from sympy import Expr, Float, S, erf, gamma, log, loggamma, nan, oo, simplify

from theory.bounds import BOUNDS, derive_bound
from theory.evaluate import constant
from theory.expansion import BeyondScaleError
from theory.growth import update_order
from theory.magnitude import compact
from theory.optimizers import OPTIMIZERS, optimizer
from theory.orders import Order
from theory.rules import solve_rule
from theory.schemes import SCHEMES, scheme
from theory.setting import Setting
from theory.special import GaussianMoment
from theory.stack import NormKind
from theory.symbols import L, N, scratch

Cell = str | None
Row = dict[str, Cell]

SU_OPTIMIZERS = ("sgd", "adam", "lamb")
"""The optimizers that the printed tables have rows for."""
CROSS_ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "identity")
CELL_DIGITS = 30


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table; every row has the keys ``columns`` in their order."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@functools.lru_cache(maxsize=8192)
def tidied(expr: Expr) -> Expr:
    """The same constant in fewer symbols; checked against the original to 25 digits, which it must equal."""
    atoms = sorted(expr.atoms(GaussianMoment), key=str)  # in one order, so that the text is the same in every run
    moments = {moment: scratch(f"moment_{i}", positive=True) for i, moment in enumerate(atoms)}
    plain = expr.xreplace(moments).replace(loggamma, lambda z: log(gamma(z))).rewrite(erf)
    shorter = simplify(plain).xreplace({dummy: moment for moment, dummy in moments.items()})
    if shorter.free_symbols or abs(constant(shorter) / constant(expr) - 1) > mpmath.mpf(10) ** -25:
        raise ArithmeticError(f"{shorter} is not {expr}")
    return min((expr, shorter), key=lambda e: (len(str(e)), str(e)))


def constant_cell(expr: Expr | None) -> Cell:
    """A constant as text that ``sympify`` reads: exact, or 30 digits where a moment in it has no closed form."""
    if expr is None or expr is nan:
        return None
    if expr in (oo, S.Zero) or expr.is_Rational:
        return str(expr)
    short = tidied(expr)
    if not short.has(GaussianMoment):
        return str(short)
    return str(Float(constant(short), CELL_DIGITS))


def order_cells(order: Order) -> Row:
    """coefficient, power, log_power, loglog_power, growth, next_term and shown_by of an order, as text."""
    growth = None if order.growth == 0 else f"exp({expression_cell(order.growth)})"
    return {
        "coefficient": constant_cell(order.coefficient),
        "power": constant_cell(order.power),
        "log_power": constant_cell(order.log_power),
        "loglog_power": constant_cell(order.loglog_power),
        "growth": growth,
        "approximate": _approximate(order),
        "shown_by": "; ".join(order.shown_by),
    }


def _approximate(order: Order) -> str:
    """The order for people: four digits, in N (or L, whose orders say so)."""
    if order.is_zero:
        return "0"
    if order.power is oo:
        return f"faster than any power, exp({_rounded(order.growth)})"
    front = _rounded(order.coefficient)
    parts = [] if front == "1" else [front]
    for base, exponent in (("N", order.power), ("(log N)", order.log_power), ("(log log N)", order.loglog_power)):
        if exponent == 1:
            parts.append(base.strip("()") if base != "N" else base)
        elif exponent != 0:
            parts.append(f"{base}^{_rounded(exponent)}")
    if order.growth != 0:
        parts.append(f"exp({_rounded(order.growth)})")
    return " ".join(parts) or "1"


def _rounded(expr: Expr) -> str:
    """A number to four digits, or an expression whose constants are."""
    if expr.is_Integer or (expr.is_Rational and expr.q <= 16):
        return str(expr)
    number, rest = expr.as_independent(*expr.free_symbols, as_Add=False) if expr.free_symbols else (expr, S.One)
    value = f"{float(constant(number)):.4g}"
    return value if rest == 1 else f"{value} {rest}"


def expression_cell(expr: Expr) -> str:
    """An expression in one variable: its constant factor tidied, moments without a closed form as decimals."""
    number, rest = expr.as_independent(*expr.free_symbols, as_Add=False) if expr.free_symbols else (expr, S.One)
    moments = {moment: Float(constant(moment), CELL_DIGITS) for moment in sorted(rest.atoms(GaussianMoment), key=str)}
    shown = rest.xreplace(moments)
    front = constant_cell(number)
    return str(shown) if front == "1" else front or "" if rest == 1 else f"({front})*{shown}"


def su_optimizers() -> Table:
    rows = []
    for name in SU_OPTIMIZERS:
        side = solve_rule("post", name, "encoder", with_alternatives=False).sides[0]
        found = optimizer(name)
        rows.append(
            {
                "optimizer": name,
                "update": found.update_text,
                "loss_change": found.loss_change_text,
                "alpha": compact(side.residual_weight),
                "lambda": compact(_gain(side.gain)),
            }
        )
    title = "Post-norm: residual weight alpha and gain lambda that keep the update flat, by optimizer"
    return _table("su-optimizers", title, rows)


def su_prenorm() -> Table:
    rows = []
    for name in SU_OPTIMIZERS:
        side = solve_rule("pre", name, "encoder", with_alternatives=False).sides[0]
        cells = {"alpha": compact(side.residual_weight), "lambda": compact(_gain(side.gain))}
        rows.append({"optimizer": name, **cells})
    return _table("su-prenorm", "Pre-norm: gain lambda that keeps the update flat, by optimizer", rows)


def deepnet() -> Table:
    rows = [
        {
            "architecture": architecture,
            "side": side.name,
            "alpha": compact(side.residual_weight),
            "beta": compact(_gain(side.gain)),
        }
        for architecture in ("encoder", "decoder", "encoder-decoder")
        for side in solve_rule("post", "sgd", architecture, select="deepnet", with_alternatives=False).sides
    ]
    return _table("deepnet", "DeepNorm: residual weight alpha and gain beta by architecture", rows)


def magneto_gamma() -> Table:
    rows = [
        {"architecture": architecture, "side": side.name, "gamma": str(side.gain)}
        for architecture in ("encoder", "decoder", "encoder-decoder")
        for side in solve_rule("sub", "sgd", architecture, with_alternatives=False).sides
    ]
    return _table("magneto-gamma", "Sub-LN: gain gamma by architecture", rows)


def _gain(gain: Expr | None) -> Expr:
    if gain is None:
        raise ArithmeticError("the rule found no gain")
    return gain


def bounds() -> Table:
    rows = []
    for name in BOUNDS:
        bound = derive_bound(name)
        order = bound.order
        plain = Order(coefficient=S.One, power=order.power, log_power=order.log_power, loglog_power=order.loglog_power)
        written = f"{bound.prefactor}*({bound.expression})"
        rows.append({"scheme": name, "bound": written, "order": str(plain.expression(N))})
    title = "Bounds on the model update of one SGD step, and their order in N (encoder-decoder: M = N)"
    return _table("bounds", title, rows)


def cross_settings() -> list[tuple[str, str, str]]:
    """(scheme, activation, norm kind) of every block of the cross table; one block is all optimizers."""
    return [(name, act, kind.value) for name in SCHEMES for act in CROSS_ACTIVATIONS for kind in NormKind]


@functools.lru_cache(maxsize=8192)
def _cross_order(name: str, kind: str, act: str, representative: str, sign: bool) -> Order:
    """Optimizers that share functional and learning-rate multiplier share the order; computed for one of them."""
    return update_order(Setting.of(name, representative, act, kind)).restated(L, 2 * N)


def cross_block(name: str, act: str, kind: str) -> list[Row]:
    """The rows of one scheme, activation and norm kind, one per optimizer."""
    inner = scheme(name).stack.placement.inner
    computed_kind = kind if inner else NormKind.LAYERNORM.value  # elsewhere the two norms see a zero mean
    first: dict[tuple[object, bool], str] = {}
    rows: list[Row] = []
    for opt in OPTIMIZERS:
        found = optimizer(opt)
        key = (found.functional, found.is_sign_type)
        representative = first.setdefault(key, opt)
        try:
            cells = order_cells(_cross_order(name, computed_kind, act, representative, found.is_sign_type))
        except BeyondScaleError as reason:
            cells = {**dict.fromkeys(_ORDER_COLUMNS), "shown_by": f"not decided: {reason}"}
        rows.append(
            {"scheme": name, "optimizer": opt, "activation": act, "norm_kind": kind, "rung": "meanfield", **cells}
        )
    return rows


_ORDER_COLUMNS = ("coefficient", "power", "log_power", "loglog_power", "growth", "approximate")
CROSS_TITLE = (
    "The update at infinite width, one input: coefficient * N^power * (log N)^log_power * (log log N)^loglog_power "
    "* growth, by scheme and optimizer, N layers of two sublayers"
)


def cross(blocks: Iterable[list[Row]] | None = None) -> Table:
    """The cross table; ``blocks`` may bring the rows of ``cross_settings`` computed elsewhere, in that order."""
    if blocks is None:
        blocks = (cross_block(*block) for block in cross_settings())
    return _table("cross", CROSS_TITLE, [row for block in blocks for row in block])


SMALL_TABLES: dict[str, Callable[[], Table]] = {
    "su-optimizers": su_optimizers,
    "su-prenorm": su_prenorm,
    "deepnet": deepnet,
    "magneto-gamma": magneto_gamma,
    "bounds": bounds,
}


def _table(id_: str, title: str, rows: Sequence[Mapping[str, Cell]]) -> Table:
    return Table(id=id_, title=title, columns=tuple(rows[0]), rows=tuple(dict(row) for row in rows))
