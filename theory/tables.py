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

from depthlaw.theory.asymptotics.evaluate import constant
from depthlaw.theory.asymptotics.expansion import BeyondScaleError
from depthlaw.theory.asymptotics.orders import Order
from depthlaw.theory.asymptotics.special import GaussianMoment
from depthlaw.theory.bounds.update import BOUNDS, derive_bound
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.optimizers import OPTIMIZERS, optimizer
from depthlaw.theory.rules.magnitude import compact
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.schemes import SCHEMES, scheme
from depthlaw.theory.stack import NormKind
from depthlaw.theory.symbols import L, N, scratch

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


_MOST_TIDIED = 100
"""Operations in a constant with a moment that has no closed form: tidying longer ones takes many seconds, for what is
told as a decimal anyway."""


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
    is_long = expr.has(GaussianMoment) and expr.count_ops() > _MOST_TIDIED
    short = expr if is_long else tidied(expr)
    if not short.has(GaussianMoment):
        return str(short)
    return str(Float(constant(short), CELL_DIGITS))


def order_cells(order: Order) -> Row:
    """coefficient, power, log_power, loglog_power, growth, approximate and shown_by of an order, as text.

    The first five are text that ``sympify`` reads, or None; ``approximate`` is for people: four digits, in N.

    >>> from depthlaw.theory.asymptotics.orders import leading_order
    >>> from depthlaw.theory.symbols import N
    >>> from depthlaw.theory.tables import order_cells
    >>> cells = order_cells(leading_order(3 * N + 1, N))
    >>> cells["coefficient"], cells["power"], cells["approximate"]
    ('3', '1', '3 N')
    >>> sorted(cells)
    ['approximate', 'coefficient', 'growth', 'log_power', 'loglog_power', 'power', 'shown_by']
    """
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
    if expr.is_Add and expr.free_symbols:
        return " + ".join(_rounded(term) for term in expr.args)
    number, rest = expr.as_independent(*expr.free_symbols, as_Add=False) if expr.free_symbols else (expr, S.One)
    value = f"{float(constant(number)):.4g}"
    return value if rest == 1 else f"{value} {rest}"


def expression_cell(expr: Expr) -> str:
    """An expression in one variable: its constant factor tidied, moments without a closed form as decimals.

    >>> from sympy import Rational, sqrt
    >>> from depthlaw.theory.symbols import N
    >>> from depthlaw.theory.tables import expression_cell
    >>> expression_cell(sqrt(8) * N ** Rational(1, 2) / 2)
    '(sqrt(2))*sqrt(N)'
    """
    number, rest = expr.as_independent(*expr.free_symbols, as_Add=False) if expr.free_symbols else (expr, S.One)
    moments = {moment: Float(constant(moment), CELL_DIGITS) for moment in sorted(rest.atoms(GaussianMoment), key=str)}
    shown = rest.xreplace(moments)
    front = constant_cell(number)
    return str(shown) if front == "1" else front or "" if rest == 1 else f"({front})*{shown}"


def su_optimizers() -> Table:
    """Each optimizer's first step, its loss change, and the alpha and lambda of post-norm that go with it.

    >>> from depthlaw.theory.tables import su_optimizers
    >>> for row in su_optimizers().rows:
    ...     print(row["optimizer"], row["loss_change"], row["alpha"], row["lambda"], sep="  ")
    sgd  -eta*||g||^2  (2*N)**(1/4)  (2*N)**(-1/4)
    adam  -eta*||g||_1  sqrt(2*N)  1/sqrt(2*N)
    lamb  -eta*||theta||*||g||_1/sqrt(n)  1  1/sqrt(2*N)
    """
    rows = []
    for name in SU_OPTIMIZERS:
        side = solve_rule("post", name, "encoder", with_alternatives=False).sides[0]
        published = optimizer(name)
        rows.append(
            {
                "optimizer": name,
                "update": published.update_text,
                "loss_change": published.loss_change_text,
                "alpha": compact(side.residual_weight),
                "lambda": compact(_gain(side.gain)),
            }
        )
    title = "Post-norm: residual weight alpha and gain lambda that keep the update flat, by optimizer"
    return _table("su-optimizers", title, rows)


def su_prenorm() -> Table:
    """The gain lambda that keeps a pre-norm's update flat, by optimizer.

    >>> from depthlaw.theory.tables import su_prenorm
    >>> [(row["optimizer"], row["lambda"]) for row in su_prenorm().rows]
    [('sgd', '1/sqrt(2*N)'), ('adam', '1/(2*N)'), ('lamb', '1/sqrt(2*N)')]
    """
    rows = []
    for name in SU_OPTIMIZERS:
        side = solve_rule("pre", name, "encoder", with_alternatives=False).sides[0]
        cells = {"alpha": compact(side.residual_weight), "lambda": compact(_gain(side.gain))}
        rows.append({"optimizer": name, **cells})
    return _table("su-prenorm", "Pre-norm: gain lambda that keeps the update flat, by optimizer", rows)


def deepnet() -> Table:
    """DeepNorm's alpha and beta by architecture, as ``solve_rule`` derives them.

    >>> from depthlaw.theory.tables import deepnet
    >>> for row in deepnet().rows:
    ...     print(row["architecture"], row["side"], row["alpha"], row["beta"])
    encoder encoder (2*N)**(1/4) (8*N)**(-1/4)
    decoder decoder (2*M)**(1/4) (8*M)**(-1/4)
    encoder-decoder encoder (M*N**4/27)**(1/16) (27/(256*M*N**4))**(1/16)
    encoder-decoder decoder (3*M)**(1/4) (12*M)**(-1/4)
    """
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
    """Sub-LN's gain gamma by architecture, as ``solve_rule`` derives it.

    >>> from depthlaw.theory.tables import magneto_gamma
    >>> for row in magneto_gamma().rows:
    ...     print(row["architecture"], row["side"], row["gamma"])
    encoder encoder sqrt(log(2*N))
    decoder decoder sqrt(log(2*M))
    encoder-decoder encoder sqrt(3)*sqrt(log(3*M))*sqrt(log(2*N))/3
    encoder-decoder decoder sqrt(log(3*M))
    """
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
    """The bounds of ``theory.bounds.update.BOUNDS`` on one SGD step, and their order in N.

    >>> from depthlaw.theory.tables import bounds
    >>> for row in bounds().rows[:5]:
    ...     print(row["scheme"], row["order"])
    post-ln N
    deepnorm 1
    pre-ln log(N)
    sub-ln log(N)
    sub-ln-gamma 1
    """
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
    """The rows of one scheme, activation and norm kind, one per optimizer.

    >>> from depthlaw.theory.tables import cross_block
    >>> for row in cross_block("deepnorm", "relu", "layernorm")[:4]:
    ...     print(row["optimizer"], row["power"], row["approximate"])
    sgd 0 1/2
    momentum 0 1/2
    adam 1/2 0.6366 N^1/2
    adamw 1/2 0.6366 N^1/2
    """
    inner = scheme(name).stack.placement.inner
    computed_kind = kind if inner else NormKind.LAYERNORM.value  # elsewhere the two norms see a zero mean
    first: dict[tuple[object, bool], str] = {}
    rows: list[Row] = []
    for opt in OPTIMIZERS:
        published = optimizer(opt)
        key = (published.functional, published.is_sign_type)
        representative = first.setdefault(key, opt)
        try:
            cells = order_cells(_cross_order(name, computed_kind, act, representative, published.is_sign_type))
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
    """The cross table; ``blocks`` may bring the rows of ``cross_settings`` computed elsewhere, in that order.

    All blocks take minutes: ``paper_checks.verify.tables_file`` derives them in parallel and keeps them.

    >>> from depthlaw.theory.tables import cross, cross_block
    >>> table = cross([cross_block("post-ln", "relu", "layernorm")])
    >>> len(table.rows), table.rows[0]["approximate"]
    (12, '4/3 N')
    """
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
