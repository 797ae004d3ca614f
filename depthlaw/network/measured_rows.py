"""Rows of measurements as data: what is measured beside what is predicted, with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.network.network import Network
from depthlaw.network.predicted_rows import predicted_row, steps_in_a_row, with_jacobians
from depthlaw.sims import stats
from depthlaw.sims.config import BRANCH_ROLES, OTHER_ROLES, ModelConfig
from depthlaw.sims.records.record import Measurement
from depthlaw.system.files import document

if TYPE_CHECKING:
    from depthlaw.theory.meanfield.first_step import FirstStep
    from depthlaw.theory.meanfield.setting import Prediction


def document_of_measurements(
    networks: Sequence[Network],
    predictions: Sequence[Prediction | None],
    measured: Sequence[Measurement],
    optimizer: str,
    *,
    learning_rate: float | None,
    seeds: range,
    device: str,
    not_predicted: str | None,
    record: Path | None,
) -> dict[str, Any]:
    """Networks that differ in depth alone. device: its name. not_predicted: why there is no theory of one of them."""
    rows = [
        row(network, optimizer, prediction, measurement)
        for network, prediction, measurement in zip(networks, predictions, measured, strict=True)
    ]
    roles = dict.fromkeys(role for row in rows for role in (*row["roles"], *row["by_role"]))
    return document(
        **networks[0].about(optimizer),
        learning_rate=learning_rate,
        seeds=len(seeds),
        seed=seeds.start,
        device=device,
        dtype=" and ".join(sorted({name for measurement in measured for name in measurement.dtypes})),
        rows=rows,
        role_units={role: networks[0].role_power(optimizer, role) for role in roles},
        not_predicted=not_predicted,
        holds=next((prediction.holds for prediction in predictions if prediction is not None), None),
        exponent=exponent(rows, [measurement.values.get("update", ()) for measurement in measured]),
        record=None if record is None else str(record),
        **_exponents_of_second_order(rows, measured),
    )


def _exponents_of_second_order(rows: Sequence[Mapping[str, Any]], measured: Sequence[Measurement]) -> dict[str, Any]:
    """By reading, of what the second order is over the first, in L; nothing where it was not asked for."""
    exponents: dict[str, Any] = {}
    for reading in rows[0].get("second_order", {}):
        samples = [measurement.values[f"second/{reading}/over_first"] for measurement in measured]
        found = [row["second_order"][reading]["over_first"]["predicted"] for row in rows]
        exponents[reading] = exponent(
            [{**row, "update": value, "unreliable": {}} for row, value in zip(rows, found, strict=True)], samples
        )
    return {"second_order_exponents": exponents} if exponents else {}


def row(network: Network, optimizer: str, prediction: Prediction | None, measured: Measurement) -> dict[str, Any]:
    """One depth. Numbers that nobody can have (diverged, not predicted, one seed's error) are None."""
    nothing = {"update": None, "log10_update": None, "roles": {}}
    predicted = nothing if prediction is None else predicted_row(prediction)
    roles = [role for role in (*BRANCH_ROLES, *OTHER_ROLES) if role in measured.values]
    step = network.first_step(optimizer)
    moved = {} if network.is_walked or prediction is None else steps_in_a_row(step)
    return {
        **network.lengths,
        **predicted,
        **moved,
        **_beside(measured.values.get("update"), predicted["update"]),
        "by_role": {
            role: _beside(_of_role(role, measured, network, optimizer), predicted["roles"].get(role)) for role in roles
        },
        "num_seeds": len(measured.seeds),
        "log_scatter": _log_scatter(measured.values.get("update", ())),
        "diverged": [{"seed": seed, **place.model_dump()} for seed, place in measured.diverged.items()],
        "unreliable": dict(measured.unreliable),
        "real_step": _estimate(measured.values["real_step"]) if "real_step" in measured.values else None,
        **_with_jacobians(_with_steps(_extras(measured), step, network.d_model), network.config(optimizer)),
    }


def _of_role(role: str, measured: Measurement, network: Network, optimizer: str) -> Sequence[float | None]:
    """In the units of ``predict``: times the power of the width that makes it O(1)."""
    factor = network.d_model ** network.role_power(optimizer, role)
    return [None if value is None else value * factor for value in measured.values[role]]


def _beside(values: Sequence[float | None] | None, predicted: float | None) -> dict[str, float | None]:
    measured = _estimate(values)
    names = ("ratio", "ratio_low", "ratio_high")
    ends = (measured["measured"], measured["low"], measured["high"])
    ratios = {
        name: end / predicted if predicted and end is not None else None for name, end in zip(names, ends, strict=True)
    }
    return {"update": predicted, **measured, **ratios}


def _log_scatter(values: Sequence[float | None]) -> float | None:
    """Standard deviation of log U over the seeds: of 0.8 and more, a t interval of the mean is too short."""
    numbers = [x for x in values if x is not None and x > 0]
    return statistics.stdev(map(math.log, numbers)) if len(numbers) > 1 and len(numbers) == len(values) else None


def _estimate(values: Sequence[float | None] | None) -> dict[str, float | None]:
    return _interval(None if not values or stats.num_diverged(values) else stats.estimate(values))


def _interval(of: stats.Estimate | None) -> dict[str, float | None]:
    """None throughout where there is none."""
    names = {"measured": "mean", "standard_error": "standard_error", "low": "low", "high": "high"}
    return {name: None if of is None else getattr(of, field) for name, field in names.items()}


def _extras(measured: Measurement) -> dict[str, Any]:
    """changes: by reading and role. second_order: by reading. finite: at the learning rate that was asked for.
    streams: by side and l, of x_l. updates_by_layer: by role, of the first, second, ... sublayer that has it, the
    encoder's first. gradients_by_layer: in the same way, of a matrix."""
    extras: dict[str, Any] = {}
    for name, values in measured.values.items():
        match name.split("/"):
            case ["change", reading, role]:
                extras.setdefault("changes", {}).setdefault(reading, {})[role] = _estimate(values)
            case ["second", reading, number]:
                extras.setdefault("second_order", {}).setdefault(reading, {})[number] = _estimate(values)
            case ["finite", reading]:
                extras.setdefault("finite", {})[reading] = _estimate(values)
            case ["linear_up_to"]:
                extras["linear_up_to"] = _estimate(values)
            case ["layer", role, number]:
                extras.setdefault("updates_by_layer", {}).setdefault(role, {})[number] = _estimate(values)["measured"]
            case ["layer", "gradient", role, number]:
                extras.setdefault("gradients_by_layer", {}).setdefault(role, {})[number] = _estimate(values)["measured"]
            case ["layer", side, index, quantity]:
                stream = extras.setdefault("streams", {}).setdefault(side, {}).setdefault(index, {})
                stream[quantity] = _estimate(values)["measured"]
    return extras


def _with_steps(extras: dict[str, Any], step: FirstStep | None, d: int) -> dict[str, Any]:
    """With what is predicted of the changes of a step beside the update, None where it is not derived."""
    derived = steps_in_a_row(step)
    for reading, numbers in extras.get("second_order", {}).items():
        orders = derived.get(f"second_order_in_{reading}") or {}
        powers = {
            "first": -0.5,
            "second": orders.get("width_power", 0) - 0.5,
            "over_first": orders.get("width_power", 0),
        }
        for name, number in numbers.items():
            value = orders.get(name)
            number["predicted"] = None if value is None else value * d ** powers[name]
    moved = None if step is None else step.representation / d**0.5
    for reading, roles in extras.get("changes", {}).items():
        for role, number in roles.items():
            number["predicted"] = moved if (reading, role) == ("representation", "update") else None
    return extras


def _with_jacobians(extras: dict[str, Any], config: ModelConfig) -> dict[str, Any]:
    for side, streams in extras.get("streams", {}).items():
        with_jacobians(streams, config.num_sums[side])
    return extras


def exponent(rows: Sequence[Mapping[str, Any]], samples: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Of the mean update in L, beside that of the predicted curve over the same L.

    A seed draws partly the same numbers at every depth; the interval takes them for independent, so it is wider than it
    need be.
    """
    decided = [int(row["num_sublayers"]) for row in rows if "update" in row["unreliable"]]
    samples = [values for row, values in zip(rows, samples, strict=True) if "update" not in row["unreliable"]]
    rows = [row for row in rows if "update" not in row["unreliable"]]
    lengths = [int(row["num_sublayers"]) for row in rows]
    predictions = [row["update"] for row in rows]
    known = None if None in predictions else [float(value) for value in predictions]
    if len(set(lengths)) < len(lengths):  # encoder-decoders can have as many sublayers in more than one way
        fit = stats.ExponentFit((), reason="two of the networks have as many sublayers")
    else:
        fit = stats.fit_exponent(lengths, samples, known)
    difference = _interval(fit.difference)
    left_out = {**fit.left_out, **dict.fromkeys(decided, "rounding decides")}
    return {
        **_interval(fit.measured),
        "predicted": fit.predicted,
        "difference": difference["measured"],
        "difference_low": difference["low"],
        "difference_high": difference["high"],
        "lengths": list(fit.lengths),
        "left_out": {str(length): why for length, why in left_out.items()},
        "reason": fit.reason or None,
    }
