"""What ``depthlaw measure`` prints for people: a table, what its numbers mean, and what is odd about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_SHOWN_LAYERS = 16
_IN_TITLE = ("scheme", "optimizer", "arch", "d_model", "activation", "norm_kind", "w", "v")
_ROLES_OF_KINDS = {
    "attention": ("q", "k", "v", "out"),
    "cross": ("cross_q", "cross_k", "cross_v", "cross_out"),
    "ffn": ("fc1", "fc2"),
}
"""The matrices that an update sums, by kind of sublayer."""


def show(answer: dict[str, Any], *, has_roles: bool, target: Path | None, is_in_layers: bool = False) -> None:
    """answer: the JSON document. has_roles: a line for each role. target: the plot that was written. is_in_layers:
    layers N stand beside sublayers L, since they were given."""
    from rich.console import Console

    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, markup=False, highlight=False, style=style)

    say(title(answer), "bold")
    if line := rest(answer["network"]):
        say(line, "dim")
    console.print(_table(answer, has_roles=has_roles, is_in_layers=is_in_layers))
    for line in _meaning(answer, has_roles=has_roles):
        say(line, "dim")
    for line in _notes(answer):
        say(line)
    for one in answer["rows"]:
        _show_changes(console, one, _unit(answer))
        _show_layers(console, one)
        if "finite" in one:
            say(_finite(one, answer["learning_rate"]))
    if target is not None:
        console.print(f"Wrote {target}.", markup=False, highlight=False, soft_wrap=True)
    if answer["record"] is not None:
        console.print(f"Kept in {answer['record']}.", markup=False, highlight=False, style="dim", soft_wrap=True)


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    network = answer["network"]
    kind = "" if network["arch"] == "ffn" else f", {network['arch']}"
    seeds = "1 seed" if answer["seeds"] == 1 else f"{answer['seeds']} seeds"
    return (
        f"{answer['scheme']} under {answer['optimizer']}, {answer['activation']}, {answer['norm_kind']}{kind}, "
        f"d_model {network['d_model']}, {seeds}"
    )


def exponent_text(found: Mapping[str, Any]) -> str:
    """Empty where there is none."""
    if found["measured"] is None:
        return ""
    text = f"exponent in L: measured {found['measured']:z.3f}"
    if found["low"] is not None:
        text += f" [{found['low']:z.3f}, {found['high']:z.3f}]"
    if found["predicted"] is not None:
        text += f", predicted over the same L {found['predicted']:z.3f}"
    return text if not found["left_out"] else f"{text}, without L = {', '.join(found['left_out'])}"


def rest(network: Mapping[str, Any]) -> str:
    """What the title does not say: a scheme of one's own, heads, tokens, ..."""
    # Of an encoder-decoder one side is causal and the other is not, as always.
    left_out = {*_IN_TITLE, *(["is_causal"] if network["arch"] == "encoder-decoder" else [])}
    named = {name: value for name, value in network.items() if name not in left_out and value is not None}
    words = {name: name.removeprefix("is_").removeprefix("num_").replace("_", " ") for name in named}
    return "; ".join(f"{words[name]} {_plain(value)}" for name, value in named.items())


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- the table


def layers_of(row: Mapping[str, Any]) -> str:
    """Of a row of one stack, given as layers of two sublayers each, or of an encoder-decoder."""
    if "num_layers" in row:
        return f"{row['num_layers']}-{row['num_decoder_layers']}"
    return str(row["num_sublayers"] // 2)


def _table(answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> Any:
    from rich.table import Table

    rows = answer["rows"]
    has_layers = is_in_layers or "num_layers" in rows[0]
    has_predictions = any(one["update"] is not None for one in rows)
    table = Table()
    for name in (*(["layers"] if has_layers else []), "L"):
        table.add_column(name, justify="right")
    table.add_column("role")
    for name in (*(["predicted"] if has_predictions else []), "measured", *(["ratio"] if has_predictions else [])):
        table.add_column(name, justify="right")
    for one in rows:
        depth = [layers_of(one)] if has_layers else []
        first = [*depth, str(one["num_sublayers"])]
        lines = [("update", one), *(one["by_role"].items() if has_roles else ())]
        for index, (role, numbers) in enumerate(lines):
            predicted, measured, ratio = _cells(numbers)
            cells = (predicted, measured, ratio) if has_predictions else (measured,)
            table.add_row(
                *(first if index == 0 else [""] * len(first)),
                role,
                *cells,
                end_section=has_roles and index == len(lines) - 1,
            )
    return table


def _cells(one: Mapping[str, Any]) -> tuple[str, str, str]:
    predicted = "-" if one["update"] is None else f"{one['update']:.4g}"
    if one["measured"] is None:
        return predicted, "none", "-"
    if one["ratio"] is None:
        return predicted, _mean(one), "-"
    ends = (one["ratio_low"], one["ratio_high"])
    interval = "" if None in ends else rf" \[{_decimals(ends[0])}, {_decimals(ends[1])}]"
    return predicted, _mean(one), _decimals(one["ratio"]) + interval


def _decimals(number: float) -> str:
    """Three of a number near 1, as ratios mostly are."""
    return f"{number:.3f}" if 0.01 <= abs(number) < 1000 else f"{number:.2g}"


def _mean(one: Mapping[str, Any], digits: int = 4) -> str:
    if one["measured"] is None:
        return "diverged"
    error = one["standard_error"]
    return f"{one['measured']:.{digits}g}" + (f" ± {error:.1g}" if error else "")


# ---------------------------------------------------------------- what the numbers mean


def _meaning(answer: Mapping[str, Any], *, has_roles: bool) -> Iterator[str]:
    rows, network = answer["rows"], answer["network"]
    scatter = " ± standard error of the mean, [ ] 95 % interval." if answer["seeds"] > 1 else ""
    yield f"{update_text(answer)}{scatter}"
    if has_roles and (line := others_text(answer["role_units"])):
        yield line
    if answer["not_predicted"] is not None:
        yield f"Nothing is predicted: {answer['not_predicted']}."
    else:
        error = "" if network["arch"] == "ffn" else f" {error_text(rows)}"
        yield f"predicted: at {answer['holds']}. {finite_width_text(rows, network['d_model'])}{error}"


def finite_width_text(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """How large L/d is, of whose order the error of a prediction at infinite width is."""
    last = max(row["num_sublayers"] for row in rows)
    return f"L/d is {last / width:.2g} for L = {last} at d = {width}."


def update_text(answer: Mapping[str, Any]) -> str:
    """What the numbers are, of a prediction too."""
    return (
        "L: residual sublayers. update: what a first step of the branch matrices changes "
        f"{_objective(answer['network'])} by, to first order, per unit learning rate, divided by {_unit(answer)}."
    )


def others_text(role_units: Mapping[str, float]) -> str:
    """Roles beside the branch matrices, and the power of the width that each is multiplied by; empty without any."""
    branches = {role for kind in _ROLES_OF_KINDS.values() for role in kind}
    others = [role for role in role_units if role not in branches]
    if not others:
        return ""
    text = f"Not in update: {', '.join(others)}."
    for power in sorted({role_units[role] for role in others} - {0}):
        roles = ", ".join(role for role in others if role_units[role] == power)
        text += f" Shown times {_power_of_width(power)}: {roles}."
    return text


def error_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest of the kernel rung's own errors."""
    errors = [value for row in rows for value in row["error"].values() if value is not None]
    return f"Standard error of its quasi-random points: {100 * max(errors, default=0):.2g} % at most."


def _objective(network: Mapping[str, Any]) -> str:
    if network.get("loss") == "ce":
        return "the loss"
    return "the sum of a logit of each token" if network.get("readout") == "sum" else "one logit"


def _unit(answer: Mapping[str, Any]) -> str:
    """A power of the width, which makes it O(1)."""
    power, constant = answer["unit"]["power"], answer["unit"]["constant"]
    return ("" if constant == 1 else f"{constant:g} ") + _power_of_width(power)


def _power_of_width(power: float) -> str:
    return "d_model" + ("" if power == 1 else f"^{power:g}")


_SCATTERED = 0.8
"""Of log U: from here on 95 % intervals of 8 seeds hold the mean less than 90 % of the time (``sims.stats``)."""


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    found, rows = answer["exponent"], answer["rows"]
    if text := exponent_text(found):
        yield f"{text[0].upper()}{text[1:]}."
    elif len(rows) > 1:
        yield f"No exponent: {found['reason']}."
    wide = [str(one["num_sublayers"]) for one in rows if (one["log_scatter"] or 0) >= _SCATTERED]
    if wide:
        yield (
            f"L = {', '.join(wide)}: log U scatters by {_SCATTERED} or more between seeds, so rare large values carry "
            "the mean and its interval is too short: a larger --width narrows the scatter, and more --seeds help."
        )
    if line := admin_text(answer):
        yield line
    for one in rows:
        depth = one["num_sublayers"]
        if one["diverged"]:
            count = f"{len(one['diverged'])} of {one['num_seeds']} seeds diverged"
            yield f"L = {depth}: {count}; {_place(one['diverged'][0])}."
        for role, change in one["unreliable"].items():
            yield (
                f"L = {depth}: {role} is left out. Noise of one unit in the last place changes it by "
                f"{100 * change:.2g} %: rounding decides it in {answer['dtype']}."
            )
    if factors := list(_lengthened(rows)):
        yield (
            f"Real {answer['optimizer']} changes it {_range(factors)} times as much: it divides its step by the root "
            f"of the number of nonzero entries of a gradient, and the definition of update by that of all entries; "
            f"{answer['activation']} leaves zeros."
        )


def admin_text(answer: Mapping[str, Any]) -> str:
    """Empty of other networks."""
    if answer["scheme"] != "admin" or answer["network"]["arch"] == "ffn":
        return ""
    return "admin: its residual weights are those of attention to equal tokens; profiled on these it would be less."


def _place(one: Mapping[str, Any]) -> str:
    """Where a seed stopped being finite."""
    if one["in_pass"] == "step":
        return f"seed {one['seed']} after the real step"
    if one["in_pass"] == "update":
        return f"seed {one['seed']} in the update of {one['side']}, sublayer {one['index']}"
    way = {"forward": "going forward", "backward": "going backward"}[one["in_pass"]]
    return f"seed {one['seed']} first at x_{one['index']} of the {one['side']}, {way}"


def _lengthened(rows: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Real step over update, where they differ."""
    for one in rows:
        step = (one["real_step"] or {}).get("measured")
        if step and one["measured"] and abs(step / one["measured"] - 1) > 1e-3:
            yield step / one["measured"]


def _range(numbers: Sequence[float]) -> str:
    low, high = (f"{end(numbers):z.3f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- what else was asked for


def _finite(one: Mapping[str, Any], rate: float) -> str:
    numbers = {name: _mean(value) for name, value in one["finite"].items()}
    first = numbers.pop("first_order")
    numbers["loss" if "loss" in numbers else "logit"] += f" (to first order {first})"
    moved = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
    return (
        f"L = {one['num_sublayers']}: a real step of learning rate {rate:g}, of all that trains, changes {moved}. "
        f"Linear, to a tenth, up to a learning rate of {_mean(one['linear_up_to'])}."
    )


def _show_changes(console: Any, one: Mapping[str, Any], unit: str) -> None:
    from rich.table import Table

    if "changes" not in one:
        return
    table = Table()
    table.add_column("role")
    for reading in one["changes"]:
        table.add_column(reading.replace("_", " "), justify="right")
    for role in next(iter(one["changes"].values())):
        table.add_row(role, *(_mean(numbers[role], 2) for numbers in one["changes"].values()))
    heading = (
        f"L = {one['num_sublayers']}: what a step of each role alone changes, per unit learning rate, divided by "
        f"{unit}; hidden: root mean square"
    )
    console.print(heading, markup=False, highlight=False)
    console.print(table)


def _show_layers(console: Any, one: Mapping[str, Any]) -> None:
    for side, streams in one.get("streams", {}).items():
        names = list(dict.fromkeys(name for stream in streams.values() for name in stream))
        columns = {name.replace("_", " "): {at: found.get(name) for at, found in streams.items()} for name in names}
        last = f"; x_{len(streams) - 1}: behind the final norm" if len(streams) - 1 > _sublayers(one, side) else ""
        _show_columns(console, f"L = {one['num_sublayers']}: x_l of the {side}{last}", "l", columns)
    if parts := _by_kind(one.get("updates_by_layer", {})):
        order = ", the encoder's first" if "num_layers" in one else ""
        heading = f"L = {one['num_sublayers']}: update of the n-th sublayer of a kind{order}"
        _show_columns(console, heading, "n", parts)


def _sublayers(one: Mapping[str, Any], side: str) -> int:
    """Of one side."""
    if "num_layers" not in one:
        return one["num_sublayers"]
    return 2 * one["num_layers"] if side == "encoder" else 3 * one["num_decoder_layers"]


def _by_kind(by_role: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """The matrices of a sublayer together, by kind and number. None where one of them is missing."""
    found: dict[str, dict[str, float | None]] = {}
    for kind, roles in _ROLES_OF_KINDS.items():
        present = [by_role[role] for role in roles if role in by_role]
        for number in dict.fromkeys(number for values in present for number in values):
            parts = [values.get(number) for values in present]
            known = [part for part in parts if part is not None]
            found.setdefault(kind, {})[number] = sum(known) if len(known) == len(roles) else None
    return found


def _show_columns(console: Any, heading: str, first: str, columns: Mapping[str, Mapping[str, float | None]]) -> None:
    """Few enough lines to read, evenly, and the last."""
    from rich.table import Table

    table = Table()
    for name in (first, *columns):
        table.add_column(name, justify="right")
    lines = list(dict.fromkeys(line for values in columns.values() for line in values))
    step = -(-len(lines) // _SHOWN_LAYERS)
    for line in dict.fromkeys([*lines[::step], lines[-1]]):
        values = (column.get(line) for column in columns.values())
        table.add_row(line, *("-" if value is None else f"{value:.4g}" for value in values))
    console.print(heading, markup=False, highlight=False)
    console.print(table)
