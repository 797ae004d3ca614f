"""``depthlaw predict --attention``: real Transformers at infinite width, by role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.cli.asked import Limit, Stack, Transformer, in_common, networks
from paper_checks.cli.inputs import BadInputError, refusing
from paper_checks.cli.measure_text import (
    admin_text,
    error_text,
    finite_width_text,
    layers_of,
    others_text,
    rest,
    update_text,
)
from paper_checks.cli.output import print_json, print_whole, progress
from paper_checks.system.files import document

if TYPE_CHECKING:
    from paper_checks.lowering.networks import Network
    from theory.meanfield.setting import Prediction

MOST_TOKENS = 256
"""As ``theory.kernel.setting`` has it, without its imports; so too:"""
RANK_ONE = ("adafactor",)
"""Optimizers whose step is derived for a gradient of rank one, and each token adds a rank."""
_WALKED = Limit(10_000, "--attention, which goes through them one by one (predict without it does not)", MOST_TOKENS)
_ANY_WIDTH = "64"
"""Without --width only ratios to it are read."""
_SHOWN_DEPTHS = 4
_BENDS = "bends"
Column = tuple[str, Callable[[str], str]]
"""Its head, and the cell of a role."""
_ORDER = ("coefficient", "power", "log_power", "loglog_power", "growth", "next_term")
NO_ORDER = dict.fromkeys(_ORDER) | {"shown_by": "not derived: the kernel rung is numerical; see exponents"}


def run(
    stack: Stack, transformer: Transformer, width: str | None, *, has_roles: bool, target: Path | None, as_json: bool
) -> None:
    """Everything that can be wrong with the input is said before anything is predicted."""
    if transformer.heads is not None and width is None:
        raise BadInputError("--heads needs --width: their ratio is the size of a head, infinite without the two")
    if stack.optimizer in RANK_ONE:
        raise BadInputError(
            f"--attention has no prediction for --optimizer {stack.optimizer}: its step is known for a single token "
            "(predict without --attention), and measured for several (measure --attention)"
        )
    asked = [
        replace(network, has_wide_heads=transformer.heads is None)
        for network in networks(stack, transformer, width or _ANY_WIDTH, _WALKED)
    ]
    predictions = _predicted(asked, stack.optimizer)
    answer = _document(stack, asked, predictions, has_width=width is not None)
    if target is not None:
        from paper_checks.pages.plots import panels, update_against_depth

        shown = panels(answer["rows"], answer["role_units"] if has_roles else {})
        update_against_depth(shown, title(answer), "", target, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
    else:
        show(answer, has_roles=has_roles, target=target, is_in_layers=transformer.is_in_layers)


def _predicted(asked: Sequence[Network], optimizer: str) -> list[Prediction]:
    with progress("predicting", sum(2 * network.depth for network in asked)) as advance, refusing():
        return [network.theory(optimizer, advance) for network in asked]


def _document(
    stack: Stack, asked: Sequence[Network], predictions: Sequence[Prediction], *, has_width: bool
) -> dict[str, Any]:
    from paper_checks.lowering.predicted_rows import are_power_laws, exponents, lr_multipliers, predicted_row, shares
    from sims.optim import NORMALISATION

    first = asked[0]
    infinite = ({} if has_width else {"d_model": None}) | ({"num_heads": None} if first.has_wide_heads else {})
    rows = [
        {**network.lengths, **predicted_row(prediction)} for network, prediction in zip(asked, predictions, strict=True)
    ]
    roles = dict.fromkeys(role for row in rows for role in row["roles"])
    units = {role: first.role_power(stack.optimizer, role) for role in roles}
    return document(
        scheme=first.scheme.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
        network=in_common(first, stack.optimizer) | infinite,
        unit=NORMALISATION[stack.optimizer]._asdict(),
        rows=rows,
        leading_order=NO_ORDER,
        exponents=exponents(rows),
        is_power_law=are_power_laws(rows),
        lr_multiplier=lr_multipliers(rows),
        role_units=units,
        shares=shares(rows, units, first.d_model) if has_width else {},
        holds=predictions[0].holds,
    )


# ---------------------------------------------------------------- for people


def title(answer: Mapping[str, Any]) -> str:
    names = (f"{answer['scheme']} under {answer['optimizer']}", answer["activation"], answer["norm_kind"])
    return ", ".join((*names, answer["network"]["arch"]))


def show(answer: Mapping[str, Any], *, has_roles: bool, target: Path | None, is_in_layers: bool) -> None:
    """is_in_layers: depths are shown as layers N, as they were given, and not as sublayers L."""
    from rich.console import Console

    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, markup=False, highlight=False, style=style)

    letter = "N" if is_in_layers else "L"

    say(title(answer), "bold")
    say(rest(answer["network"]), "dim")
    print_whole(console, *(_roles_tables if has_roles else _updates_tables)(answer, is_in_layers=is_in_layers))
    if is_in_layers:
        say("N: layers of two sublayers each, L = 2 N.", "dim")
    for line in _meaning(answer, has_roles=has_roles):
        say(line, "dim")
    if not has_roles and (exponent := answer["exponents"]["update"]) is not None:
        bends = answer["is_power_law"]["update"] is False
        ending = ", but no power law: it bends, and the exponent with it." if bends else "."
        say(f"Exponent in {letter}, over these: {_exponent(exponent)}{ending}")
    if line := admin_text(answer):
        say(line)
    if target is not None:
        console.print(f"Wrote {target}.", markup=False, highlight=False, soft_wrap=True)


def _updates_tables(answer: Mapping[str, Any], *, is_in_layers: bool) -> list[list[Any]]:
    from rich.table import Table

    table, rows = Table(), answer["rows"]
    has_layers = is_in_layers or "num_layers" in rows[0]
    for name in (*(["layers"] if has_layers else []), "sublayers", "update"):
        table.add_column(name, justify="right")
    for row in rows:
        layers = [layers_of(row)] if has_layers else []
        table.add_row(*layers, str(row["num_sublayers"]), _number(row["update"], 6))
    return [[table]]


def _roles_tables(answer: Mapping[str, Any], *, is_in_layers: bool) -> list[list[Any]]:
    """A line for each role, in one table; and in two, the updates at each depth and what they say together."""
    by_depth, together = _by_depth(answer, is_in_layers=is_in_layers), _together(answer)
    whole = _table(answer, [*by_depth, *together])
    return [[whole], [_table(answer, by_depth), _table(answer, together)]] if together else [[whole]]


def _table(answer: Mapping[str, Any], columns: Sequence[Column]) -> Any:
    from rich.table import Table

    from paper_checks.lowering.predicted_rows import by_role

    table = Table()
    table.add_column("role")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for role in by_role(answer["rows"]):
        table.add_row(role, *(cell(role) for _, cell in columns), end_section=role == "update")
    return table


def _by_depth(answer: Mapping[str, Any], *, is_in_layers: bool) -> list[Column]:
    """The update of each role; of many depths at a few, the first and last of them."""
    from paper_checks.lowering.predicted_rows import by_role

    rows = answer["rows"]
    values = by_role(rows)

    def column(index: int) -> Column:
        row = rows[index]
        depth = f"N = {layers_of(row)}" if is_in_layers else f"L = {row['num_sublayers']}"
        return layers_of(row) if "num_layers" in row else depth, lambda role: _number(values[role][index], 4)

    return [column(index) for index in _evenly(len(rows), _SHOWN_DEPTHS)]


def _together(answer: Mapping[str, Any]) -> list[Column]:
    """What all depths say of a role."""
    found: list[Column] = []
    if len(answer["rows"]) > 1:
        found += [
            ("exponent", lambda role: _fitted(answer, role)),
            ("lr ×", lambda role: _number(answer["lr_multiplier"].get(role, [None])[-1], 3)),
        ]
    if answer["shares"]:
        found.append(("share", lambda role: "" if role == "update" else percent(answer["shares"][role][-1])))
    return found


def _fitted(answer: Mapping[str, Any], role: str) -> str:
    return _BENDS if answer["is_power_law"][role] is False else _exponent(answer["exponents"][role])


def _evenly(num: int, most: int) -> list[int]:
    """Indices below ``num``, the first and the last among them."""
    if num <= most:
        return list(range(num))
    return [round(index * (num - 1) / (most - 1)) for index in range(most)]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """A share, in two digits where it is small."""
    if value is None:
        return "-"
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def _exponent(value: float | None) -> str:
    """Rounding leaves -1e-17 of what is flat."""
    return "-" if value is None else f"{value:z.3f}"


def _meaning(answer: Mapping[str, Any], *, has_roles: bool) -> Iterator[str]:
    rows = answer["rows"]
    yield update_text(answer)
    if has_roles and (line := others_text(answer["role_units"])):
        yield line
    if has_roles and len(rows) > 1:
        yield (
            "exponent: of the role in the depth, by least squares over all depths asked for. lr ×: times this, a "
            "learning rate of the role alone keeps its part at the last depth what it is at the first; above 1, to "
            "leave it is safe."
        )
    if has_roles and any(_fitted(answer, role) == _BENDS for role in answer["is_power_law"]):
        yield f"{_BENDS}: no power law over these depths, which is off by a fifth or more at one of them."
    if has_roles and len(rows) == 1:
        yield "Of two depths and more, how each role grows and what learning rate would undo it: --layers 8,24."
    if has_roles and answer["shares"]:
        yield (
            f"share: of the role beside the matrices' update, at d_model {answer['network']['d_model']} and the last "
            "depth, powers of the width undone: where it is small, its learning rate does not matter."
        )
    if has_roles and (hidden := len(rows) - len(_evenly(len(rows), _SHOWN_DEPTHS))):
        yield f"{hidden} more depths are in --json and --plot."
    if has_roles and not answer["shares"]:
        yield "Add --width D for each role's share of the update at that width."
    width = answer["network"]["d_model"]
    correction = "" if width is None else f" {finite_width_text(rows, width)}"
    yield f"Holds at {answer['holds']}.{correction} {error_text(rows)}"
