"""Rows of predictions as data, and what several of them say together: by role, how it grows with the depth."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import linear_regression
from typing import TYPE_CHECKING, Any

from depthlaw.system.files import document
from depthlaw.theory.meanfield.setting import HOLDS, Prediction, Setting

if TYPE_CHECKING:
    from depthlaw.network.network import Network
    from depthlaw.theory.kernel.predict import Stream
    from depthlaw.theory.meanfield.first_step import FirstStep

NO_ORDER = dict.fromkeys(("coefficient", "power", "log_power", "loglog_power", "growth", "next_term"))
NO_ORDER |= {"shown_by": "not derived: the recursion over the layers is numerical; see exponents"}
BENT = 1.2
"""What is off a power law by this factor is none: an exponent over the same depths would be read as one."""


@dataclass(frozen=True, kw_only=True, repr=False)
class KernelPrediction(Prediction):
    """Of the kernel rung.

    roles: each in the unit in which it is O(1) in the width, ``theory.kernel.predict.unit_power``. error: relative
    standard error of the quasi-random softmax averages, by role and of "update". sides: of an encoder-decoder, "update"
    and the roles of each side; of other networks empty. streams, layers: by side, of each x_l and of each sublayer, see
    ``theory.kernel.predict.KernelUpdate``.
    """

    error: Mapping[str, float]
    sides: Mapping[str, Mapping[str, float]]
    streams: Mapping[str, Sequence[Stream]]
    layers: Mapping[str, Sequence[Mapping[str, float]]]
    gradients: Mapping[str, Sequence[Mapping[str, float]]]


def document_of_stacks(
    setting: Setting, lengths: Sequence[int], gains: Mapping[str, tuple[float, ...]], block: Mapping[str, float]
) -> dict[str, Any]:
    """Stacks of FFNs with these numbers of sublayers. gains: w and v by sublayer, in place of the
    scheme's; there is no leading order of them. block: options that the setting has already. ValueError, in one
    line, for a depth that the scheme does not have."""
    from depthlaw.sims.config import NORMALISATION
    from depthlaw.theory.meanfield.first_step import first_step
    from depthlaw.theory.meanfield.update import predict_setting

    predictions = [predict_setting(setting, length, **gains) for length in lengths]
    return document(
        scheme=setting.scheme.name,
        optimizer=setting.optimizer.name,
        activation=setting.gated or setting.activation.name,
        norm_kind=setting.scheme.stack.norm_function or setting.norm_kind.value,
        unit=NORMALISATION[setting.optimizer.name]._asdict(),
        **({"network": {"arch": "ffn", **block}} if block else {}),
        rows=[
            {"num_sublayers": length, **predicted_row(prediction)}
            | steps_in_a_row(first_step(setting, length, **gains))
            for length, prediction in zip(lengths, predictions, strict=True)
        ],
        leading_order=None if gains else leading_order(setting),
        holds=HOLDS,
    )


def document_of_transformers(
    networks: Sequence[Network],
    predictions: Sequence[Prediction],
    optimizer: str,
    width: int | None,
    *,
    by_layer: bool = False,
) -> dict[str, Any]:
    """Transformers that differ in depth alone. width: d_model, None for infinite. by_layer: rows have each x_l and each
    sublayer's part of the update, too."""
    first, head = networks[0], networks[0].about(optimizer)
    head["network"] |= {"d_model": None} if width is None else {}
    head["network"] |= {"num_heads": None} if first.has_wide_heads else {}
    rows = [
        {**network.lengths, **predicted_row(prediction)}
        | ({} if network.is_walked else steps_in_a_row(network.first_step(optimizer)))
        | (layers_of(prediction) if by_layer else {})
        for network, prediction in zip(networks, predictions, strict=True)
    ]
    units = {role: first.role_power(optimizer, role) for row in rows for role in row["roles"]}
    return document(
        **head,
        rows=rows,
        leading_order=NO_ORDER,
        exponents=exponents(rows),
        is_power_law=are_power_laws(rows),
        lr_multiplier=lr_multipliers(rows),
        role_units=units,
        shares={} if width is None else shares(rows, units, width),
        holds=predictions[0].holds,
    )


def after_start(
    networks: Sequence[Network], updates: Sequence[Mapping[str, float]], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The update of networks that differ in depth by the laws of ``theory.kernel.after_start``. updates: of each
    network, by law. asked: learning_rate, num_steps, weight_decay. An exponent is that of ``exponents``."""
    laws: dict[str, Any] = {}
    for law in updates[0]:
        rows = [
            {**network.lengths, "update": finite(of_laws[law]), "roles": {}}
            for network, of_laws in zip(networks, updates, strict=True)
        ]
        growth = {"exponent": exponents(rows)["update"], "is_power_law": are_power_laws(rows)["update"]}
        laws[law] = {"updates": [row["update"] for row in rows], **growth}
    return {**asked, "laws": laws}


WHERE_SECOND = "block", "hidden"
"""Where a second order is derived."""


def steps_in_a_row(step: FirstStep | None) -> dict[str, Any]:
    """representation: how far the last hidden state moves, over its own size, in the unit of ``FirstStep``.
    second_order_in_block, of what a sublayer's own step does behind it, and second_order_in_hidden, of the last hidden
    state: in the units of ``Orders``, per unit learning rate and its square, and the second over the first, in units of
    d_model to width_power, of a step whose first order moves the logit by 1. None where they are not derived."""
    if step is None:
        return dict.fromkeys(("representation", *(f"second_order_in_{where}" for where in WHERE_SECOND)))
    orders = {where: getattr(step, where) for where in WHERE_SECOND}
    return {
        "representation": finite(step.representation),
        **{
            f"second_order_in_{where}": {
                "first": finite(of.first),
                "second": of.second,
                "over_first": of.over_first(step.logit),
                "width_power": of.power,
            }
            for where, of in orders.items()
        },
    }


def predicted_row(prediction: Prediction) -> dict[str, Any]:
    """JSON has no infinity: an update beyond the floats is null there, and its log10 stands beside it."""
    row: dict[str, Any] = {
        "update": finite(prediction.update),
        "log10_update": finite(prediction.log10_update),
        "roles": {role: finite(value) for role, value in prediction.roles.items()},
    }
    if isinstance(prediction, KernelPrediction):
        row["error"] = {role: finite(value) for role, value in prediction.error.items()}
        if prediction.sides:
            row["sides"] = {
                side: {role: finite(value) for role, value in roles.items()} for side, roles in prediction.sides.items()
            }
    return row


def layers_of(prediction: Prediction) -> dict[str, Any]:
    """By layer, as a measured row has it. streams: by side and l, of x_l. updates_by_layer: by role, of the first,
    second, ... sublayer that has it, the encoder's first. gradients_by_layer: in the same way, ||g|| / sqrt(d) of a
    matrix. Nothing of a prediction by second moments, which has no layers."""
    if not isinstance(prediction, KernelPrediction):
        return {}
    streams = {
        side: with_jacobians({str(index): of_stream(stream) for index, stream in enumerate(of_side)}, len(of_side) - 1)
        for side, of_side in prediction.streams.items()
    }
    updates, gradients = (_numbered(sides, prediction.roles) for sides in (prediction.layers, prediction.gradients))
    return {"streams": streams, "updates_by_layer": updates, "gradients_by_layer": gradients}


def _numbered(
    sides: Mapping[str, Sequence[Mapping[str, float]]], roles: Iterable[str]
) -> dict[str, dict[str, float | None]]:
    numbers: dict[str, dict[str, float | None]] = {}
    for layer in (layer for of_side in sides.values() for layer in of_side):
        for role in roles:
            if role in layer:
                numbered = numbers.setdefault(role, {})
                numbered[str(len(numbered) + 1)] = finite(layer[role])
    return numbers


def of_stream(stream: Stream) -> dict[str, float | None]:
    """A gradient beyond the floats is null, as an update is, and its log10 stands beside it."""
    log10 = stream.log10_gradient_square
    square = 10**log10 if log10 < sys.float_info.max_10_exp else math.inf
    return {name: finite(value) for name, value in {**asdict(stream), "gradient_square": square}.items()}


def with_jacobians(streams: dict[str, dict[str, float | None]], last: int) -> dict[str, dict[str, float | None]]:
    """Of one side, beside each x_l: the norm of the Jacobian d x_last / d x_l, 1 at the last. It is the root mean
    square of its singular values, of those outputs that are read: the gradient of what is read, along a random
    direction of x_last, is that much longer at x_l.

    streams: by l, with "gradient_square", and its log10 where it may be beyond the floats. last: the sublayers of the
    side. None behind that, where a gradient is not known or 0 at the end, and beyond the floats.
    """
    for index, stream in streams.items():
        stream["jacobian"] = _ratio(stream, streams[str(last)]) if int(index) <= last else None
    return streams


def _ratio(stream: Mapping[str, float | None], last: Mapping[str, float | None]) -> float | None:
    logs = [place.get("log10_gradient_square") for place in (stream, last)]
    if logs[0] is not None and logs[1] is not None:
        power = (logs[0] - logs[1]) / 2
        return 10**power if power < sys.float_info.max_10_exp else None
    square, end = stream.get("gradient_square"), last.get("gradient_square")
    return math.sqrt(square / end) if square is not None and end else None


def leading_order(setting: Setting) -> dict[str, Any]:
    """The leading order in L as exact text; all None, with the reason in ``shown_by``, where none is decided."""
    from depthlaw.theory.asymptotics.expansion import BeyondScaleError
    from depthlaw.theory.meanfield.growth import update_order
    from depthlaw.theory.tables import expression_cell, order_cells

    try:
        order = update_order(setting)
    except BeyondScaleError as reason:
        names = ("coefficient", "power", "log_power", "loglog_power", "growth", "next_term")
        return {**dict.fromkeys(names), "shown_by": f"not decided: {reason}"}
    cells: dict[str, Any] = {name: cell for name, cell in order_cells(order).items() if name != "approximate"}
    is_term = order.next_term is not None
    next_term = order.next_term if is_term else order.remainder
    cells["next_term"] = None if next_term is None else expression_cell(next_term)
    cells["next_term_is"] = "relative correction" if is_term else "relative correction, to order"
    return cells


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def by_role(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Of the rows of one document: "update" and each role, a value for each row; "encoder/q" if both sides have q."""
    roles = dict.fromkeys(role for row in rows for role in row["roles"])
    sides = dict.fromkeys(
        (side, role)
        for by_side in (row.get("sides", {}) for row in rows)
        for side in by_side
        for role in by_side[side]
        if all(role in roles for roles in by_side.values())
    )
    return (
        {"update": [row["update"] for row in rows]}
        | {role: [row["roles"].get(role) for row in rows] for role in roles}
        | {f"{side}/{role}": [row["sides"][side].get(role) for row in rows] for side, role in sides}
    )


def exponents(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """d log U / d log L by least squares over the rows, L counting sublayers, of "update" and of each role.

    None where the rows have fewer than two different L, or a U is 0 or beyond the floats.
    """
    return {role: None if line is None else line[0] for role, line in _lines(rows, 2).items()}


def are_power_laws(rows: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Whether the line that ``exponents`` fits passes every row of "update" and of each role by less than ``BENT``.

    None where it has no exponent, and of two different L, through which there is always a line.
    """
    return {role: None if line is None else line[1] < math.log(BENT) for role, line in _lines(rows, 3).items()}


def _lines(rows: Sequence[Mapping[str, Any]], least: int) -> dict[str, tuple[float, float] | None]:
    """By role, of the line of log U in log L: its slope, and how far it passes the row that is farthest from it. None
    where there are fewer than the least number of different L, and where a U has no logarithm."""
    lengths = [math.log(row["num_sublayers"]) for row in rows]
    lines: dict[str, tuple[float, float] | None] = {}
    for role, values in by_role(rows).items():
        logs = [math.log(value) for value in values if value]
        lines[role] = None
        if len(set(lengths)) >= least and len(logs) == len(values):
            slope, intercept = linear_regression(lengths, logs)
            lines[role] = slope, max(abs(y - intercept - slope * x) for x, y in zip(lengths, logs, strict=True))
    return lines


def shares(
    rows: Sequence[Mapping[str, Any]], units: Mapping[str, float], d_model: int
) -> dict[str, list[float | None]]:
    """Row by row, a role's part over that of all branch matrices at this width: the power of it that ``units`` has is
    undone. None where either is beyond the floats, or the matrices' is 0."""
    return {
        role: [
            None if value is None or not row["update"] else value * d_model ** -_unit(role, units) / row["update"]
            for row, value in zip(rows, values, strict=True)
        ]
        for role, values in by_role(rows).items()
        if role != "update"
    }


def _unit(role: str, units: Mapping[str, float]) -> float:
    name = role.rpartition("/")[2]
    return 0.0 if name == "update" else units[name]


def percent(value: float | None) -> str:
    """A share, in two digits where it is small; as a factor where it is more than all that it is a share of.

    >>> from depthlaw.network.predicted_rows import percent
    >>> percent(0.0123), percent(0.62), percent(31.06)
    ('1.2 %', '62 %', 'x 31.1')
    """
    if value is None:
        return "-"
    if value > 1:
        return f"x {value:.3g}"
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def lr_multipliers(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """What a learning rate of that role alone is multiplied by, row by row, to keep its part of the update what it is
    in the first row: U is per unit learning rate, so it is the first row's U over this one's.

    None where either is 0 or beyond the floats; empty of one row.
    """
    if len(rows) < 2:
        return {}
    growth = by_role(rows)
    del growth["update"]
    return {
        role: [values[0] / value if values[0] and value else None for value in values]
        for role, values in growth.items()
    }
