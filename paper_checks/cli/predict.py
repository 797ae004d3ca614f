"""``depthlaw predict``: the mean field of a named scheme, or of one's own; with --attention the kernel rung."""

from __future__ import annotations

from typing import Annotated, Any

from paper_checks.cli.asked import ATTENTION, Stack, Transformer, check_given
from paper_checks.cli.choices import ACTIVATIONS, BUILT_ACTIVATIONS, names
from paper_checks.cli.inputs import BadInputError, counts, plot_file, refusing
from paper_checks.cli.options import Json, Plot, Roles, option
from paper_checks.cli.output import print_json, print_whole
from paper_checks.system.files import document

_LONG = 20
"""Characters of a cell that people read as they are."""
_NUMBERS = ("coefficient", "power", "log_power", "loglog_power")


def run(
    stack: Stack,
    transformer: Transformer,
    width: Annotated[
        str | None, option("d_model, for the size of a head; the prediction is at infinite width.", "D", ATTENTION)
    ] = None,
    roles: Roles = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """The update in one optimizer step, at infinite width and with no fitted constant.

    Without --attention the network is that of the theorems, an FFN-only stack
    with one input: exact at any depth, and its leading order in L. With it, a
    real Transformer by role (q, k, v, out, fc1, fc2, biases, norms, embedding,
    head): how each grows with depth, and what learning rate would undo it.
    """
    # Everything that can be checked is checked before sympy is imported.
    target = None if plot is None else plot_file(plot)
    if stack.activation in names(BUILT_ACTIVATIONS) and stack.activation not in names(ACTIVATIONS):
        raise BadInputError(
            f"--activation {stack.activation} has two inputs, and there is no theory of it (measure builds it): "
            f"predict takes {ACTIVATIONS}"
        )
    stack.check_names(ACTIVATIONS)
    if transformer.attention:
        from paper_checks.cli.predict_attention import run as run_attention

        run_attention(stack, transformer, width, has_roles=roles, target=target, as_json=as_json)
        return
    check_given(transformer)
    if width is not None:
        raise BadInputError("--width needs --attention: without it the prediction is at infinite width")
    if stack.sublayers is None:
        raise BadInputError("--sublayers is wanted: a list of residual sublayers, such as 4,8,16")
    lengths = counts(stack.sublayers, "--sublayers")
    lists = stack.lists(lengths)
    chosen = stack.chosen_scheme()

    from paper_checks.lowering.predicted_rows import predicted_row
    from theory.meanfield.setting import HOLDS, Setting
    from theory.meanfield.update import predict_setting

    with refusing():
        setting = Setting.of(chosen, stack.optimizer, stack.activation, stack.norm_kind)
        rows = [predict_setting(setting, length, w=lists.get("w"), v=lists.get("v")) for length in lengths]
    found = document(
        scheme=chosen.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
        rows=[{"num_sublayers": row.num_sublayers, **predicted_row(row)} for row in rows],
        leading_order=None if lists else leading_order(setting),
        holds=HOLDS,
    )
    if target is not None:
        from paper_checks.pages.plots import panels, update_against_depth

        shown = panels(found["rows"], dict.fromkeys(found["rows"][0]["roles"], 0.0) if roles else {})
        update_against_depth(shown, title(found), "", target)
    if as_json:
        print_json(found)
    else:
        show(found)
        if target is not None:
            print(f"Wrote {target}.")


def leading_order(setting: Any) -> dict[str, Any]:
    """The leading order in L as exact text; all null, with the reason in ``shown_by``, where none is decided."""
    from theory.asymptotics.expansion import BeyondScaleError
    from theory.meanfield.growth import update_order
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


def title(found: dict[str, Any]) -> str:
    return f"{found['scheme']} under {found['optimizer']}, {found['activation']}, {found['norm_kind']}"


def show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=title(found), title_justify="left")
    roles = list(found["rows"][0]["roles"])
    for name in ("sublayers", "update", *roles):
        table.add_column(name, justify="right")
    for row in found["rows"]:
        update = f"{row['update']:.6g}" if row["update"] is not None else f"10^{row['log10_update']:.6g}"
        values = ("beyond" if row["roles"][role] is None else f"{row['roles'][role]:.6g}" for role in roles)
        table.add_row(str(row["num_sublayers"]), update, *values)
    print_whole(console, [table])
    order = found["leading_order"]
    if order is None:
        console.print("A list of gains belongs to one L: no order in L.")
    elif order["coefficient"] is None and order["growth"] is None:
        console.print(f"Leading order: {order['shown_by']}", markup=False)
    else:
        short = rounded(order)
        console.print(f"As L grows: {order_text(short, 'L')}", markup=False)
        if short != order:
            console.print("Rounded: --json has it in full.", markup=False, style="dim")
        if order["next_term"] is not None:
            console.print(f"Next term, {order['next_term_is']}: {order['next_term']}", markup=False)
        console.print(f"Shown by: {order['shown_by']}", markup=False, style="dim")
    console.print(f"Holds at {found['holds']}.", markup=False, style="dim")


def rounded(cells: dict[str, Any]) -> dict[str, Any]:
    """Cells for people: a number that is long as an exact text, or has many digits, to a few of them.

    >>> from paper_checks.cli.predict import rounded
    >>> exact = {"coefficient": "51.8535939745012338126239575864", "power": "oo", "growth": "exp((log(1 + 1/40)/2)*L)"}
    >>> rounded(exact)
    {'coefficient': '51.8536', 'power': 'oo', 'growth': 'exp(0.0123 L)'}
    """
    from sympy import sympify

    from paper_checks.routes.checks import short_growth

    found = dict(cells)
    for name in _NUMBERS:
        if len(cells.get(name) or "") > _LONG:
            found[name] = f"{float(sympify(cells[name]).evalf()):.6g}"
    growth = cells["growth"] or ""
    if len(growth) > _LONG:
        found["growth"] = f"exp({short_growth(growth.removeprefix('exp(').removesuffix(')'))})"
    return found


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
            power = exponent if exponent.replace(".", "").isdigit() else f"({exponent})"
            factors.append(base if exponent == "1" else f"{base}**{power}")
    if cells["growth"] is not None:
        factors.append(cells["growth"])
    return " * ".join(factors) or "1"
