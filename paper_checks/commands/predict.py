"""``depthlaw predict``: the mean field of a named scheme, or of one's own."""

from __future__ import annotations

import math
from typing import Any

from paper_checks.commands.asked import Stack
from paper_checks.commands.inputs import counts, refusing
from paper_checks.commands.output import document, print_json


def run(stack: Stack, *, as_json: bool) -> None:
    """Check everything that can be checked before sympy is imported, then predict."""
    lengths = counts(str(stack.sublayers), "--sublayers")
    lists = stack.lists(len(lengths))
    chosen = stack.scheme()

    from theory.meanfield import predict_setting
    from theory.setting import HOLDS, Setting

    with refusing():
        setting = Setting.of(chosen, stack.optimizer, stack.activation, stack.norm_kind)
        rows = [predict_setting(setting, length, w=lists.get("w"), v=lists.get("v")) for length in lengths]
    found = document(
        scheme=chosen.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
        rows=[
            {
                "num_sublayers": row.num_sublayers,
                "update": _finite(row.update),
                "log10_update": _finite(row.log10_update),
                "roles": {role: _finite(value) for role, value in row.roles.items()},
            }
            for row in rows
        ],
        leading_order=None if lists else leading_order(setting),
        holds=HOLDS,
    )
    if as_json:
        print_json(found)
    else:
        show(found)


def _finite(value: float) -> float | None:
    """JSON has no infinity: an update beyond the floats is null there, and its log10 stands beside it."""
    return value if math.isfinite(value) else None


def leading_order(setting: Any) -> dict[str, Any]:
    """The leading order in L as exact text; all null, with the reason in ``shown_by``, where none is decided."""
    from theory.expansion import BeyondScaleError
    from theory.growth import update_order
    from theory.tables import expression_cell, order_cells

    try:
        order = update_order(setting)
    except BeyondScaleError as reason:
        names = ("coefficient", "power", "log_power", "loglog_power", "growth", "next_term")
        return {**dict.fromkeys(names), "shown_by": f"not decided: {reason}"}
    cells: dict[str, Any] = {**order_cells(order)}
    next_term = order.next_term if order.next_term is not None else order.remainder
    del cells["approximate"]
    cells["next_term"] = None if next_term is None else expression_cell(next_term)
    cells["next_term_is"] = "relative correction" if order.next_term is not None else "relative correction, to order"
    return cells


def show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = f"{found['scheme']} under {found['optimizer']}, {found['activation']}, {found['norm_kind']}"
    table = Table(title=title, title_justify="left")
    roles = list(found["rows"][0]["roles"])
    for name in ("sublayers", "update", *roles):
        table.add_column(name, justify="right")
    for row in found["rows"]:
        update = f"{row['update']:.6g}" if row["update"] is not None else f"10^{row['log10_update']:.6g}"
        values = ("beyond" if row["roles"][role] is None else f"{row['roles'][role]:.6g}" for role in roles)
        table.add_row(str(row["num_sublayers"]), update, *values)
    console.print(table)
    order = found["leading_order"]
    if order is None:
        console.print("A list of gains belongs to one L: no order in L.")
    elif order["coefficient"] is None and order["growth"] is None:
        console.print(f"Leading order: {order['shown_by']}", markup=False)
    else:
        console.print(f"As L grows: {order_text(order, 'L')}", markup=False)
        if order["next_term"] is not None:
            console.print(f"Next term, {order['next_term_is']}: {order['next_term']}", markup=False)
        console.print(f"Shown by: {order['shown_by']}", markup=False, style="dim")
    console.print(f"Holds at {found['holds']}.", markup=False, style="dim")


def order_text(cells: dict[str, Any], letter: str) -> str:
    """One line for people: 2 * log(L), 0.74 * L**(1/(-1 + pi)), 0 (the update vanishes at init)."""
    if cells["power"] is None:
        return "0 (vanishes at init)" if cells["coefficient"] == "0" else "not decided"
    front = cells["coefficient"]
    if front is not None and front != "1" and (" + " in front or " - " in front):
        front = f"({front})"
    factors = [] if front in (None, "1") else [front]
    for name, base in (("power", letter), ("log_power", f"log({letter})"), ("loglog_power", f"log(log({letter}))")):
        exponent = cells[name]
        if exponent not in ("0", "oo"):
            factors.append(base if exponent == "1" else f"{base}**({exponent})")
    if cells["growth"] is not None:
        factors.append(cells["growth"])
    return " * ".join(factors) or "1"
