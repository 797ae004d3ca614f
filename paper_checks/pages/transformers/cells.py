"""Measured Transformers over what the kernel rung predicts of them: ratios with intervals, limits and width terms.

Every interval counts both errors: the scatter over the seeds, and the quasi-random one of the prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from paper_checks.experiments.kernel_kept import Kept, Number
from paper_checks.experiments.sweeps import Sweep
from paper_checks.lowering.networks import Network
from sims import stats
from sims.model import BRANCH_ROLES, OTHER_ROLES
from sims.records import record
from sims.stats import LEVEL, Estimate
from theory.kernel.predict import REPLICATES

ROLES = (*BRANCH_ROLES, *OTHER_ROLES)
Name = tuple[str, str, int, int]
"""Scheme, optimizer, layers, width."""


class Index:
    """Runs by what they are of."""

    def __init__(self, runs: Iterable[record.Run]) -> None:
        self._runs: dict[str, list[record.Run]] = {}
        for run in runs:
            self._runs.setdefault(json.dumps(run.config, sort_keys=True), []).append(run)

    def find(self, network: Network, optimizer: str) -> record.Found:
        """LookupError where there is nothing of it."""
        config = record.plain(network.named(optimizer))
        runs = self._runs.get(json.dumps(config, sort_keys=True))
        if runs is None:
            raise LookupError(f"no run of {network.scheme.name} under {optimizer} at {network.depth} sublayers")
        return record.find(runs, config)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One network under one optimizer.

    predicted: by role, and of "update". ratios: by the same, measured over predicted of each seed; what is predicted to
    be 0 has none. lacking: roles that a seed's divergence or rounding takes away. wrong_zeros: what is predicted to be
    0, and is not.
    """

    network: Network
    optimizer: str
    predicted: Mapping[str, Number]
    ratios: Mapping[str, Mapping[int, float]]
    lacking: tuple[str, ...] = ()
    wrong_zeros: tuple[str, ...] = ()

    @property
    def name(self) -> Name:
        network = self.network
        return network.scheme.name, self.optimizer, network.num_sublayers // 2, network.d_model

    @property
    def num_seeds(self) -> int:
        return max((len(values) for values in self.ratios.values()), default=0)

    @cached_property
    def estimates(self) -> Mapping[str, Estimate]:
        """The mean ratio, by role and of "update"."""
        return {role: self._estimate(role) for role in ("update", *ROLES) if role in self.ratios}

    @property
    def roles(self) -> Mapping[str, Estimate]:
        return {role: found for role, found in self.estimates.items() if role != "update"}

    def _estimate(self, role: str) -> Estimate:
        found = stats.estimate(list(self.ratios[role].values()))
        return combined(found.mean, [part(found), self.error_part(role, found.mean)], found.num)

    def error_part(self, role: str, size: float) -> Part:
        """Of the prediction, where a ratio counts so much."""
        return abs(size) * self.predicted[role].error, REPLICATES - 1


Part = tuple[float | None, float]
"""A standard error and its degrees of freedom; None where nothing is known of it."""


def part(found: Estimate, factor: float = 1.0) -> Part:
    return None if found.standard_error is None else abs(factor) * found.standard_error, found.num - 1


def combined(mean: float, parts: Sequence[Part], num: int) -> Estimate:
    """With Student's interval of independent errors, degrees of freedom by Welch and Satterthwaite."""
    known = [(error, degrees) for error, degrees in parts if error is not None]
    if len(known) < len(parts):
        return Estimate(mean, None, None, None, num)
    total = math.hypot(*(error for error, _ in known))
    if total == 0:
        return Estimate(mean, 0.0, mean, mean, num)
    degrees = 1 / sum((error / total) ** 4 / degrees for error, degrees in known if error)
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * total
    return Estimate(mean, total, mean - half, mean + half, num)


def cells(sweep: Sweep, runs: Iterable[record.Run], kept: Kept) -> list[Cell]:
    """Of its networks, in their order, those that are in the record. LookupError for one that is not predicted."""
    index, found = Index(runs), []
    for network in sweep.networks:
        for optimizer in sweep.optimizers:
            try:
                there = index.find(network, optimizer)
            except LookupError:
                continue
            found.append(cell(network, optimizer, there, kept.find(network, optimizer).by_optimizer[optimizer]))
    return found


def cell(network: Network, optimizer: str, found: record.Found, predicted: Mapping[str, Number]) -> Cell:
    ratios: dict[str, dict[int, float]] = {}
    lacking, wrong = [], []
    for role in ("update", *ROLES):
        if role not in predicted:
            continue
        values = [value for value in found.values.get(role, ()) if value is not None]
        if not values or len(values) < len(found.seeds):
            lacking.append(role)
        elif predicted[role].value == 0:
            wrong += [role] if any(values) else []
        else:
            factor = 1.0 if role == "update" else network.d_model ** network.role_power(optimizer, role)
            unit = factor / predicted[role].value
            ratios[role] = {seed: value * unit for seed, value in zip(found.seeds, values, strict=True)}
    return Cell(
        network=network,
        optimizer=optimizer,
        predicted=predicted,
        ratios=ratios,
        lacking=tuple(lacking),
        wrong_zeros=tuple(wrong),
    )


# ---------------------------------------------------------------- the width


def limit(wide: Cell, narrow: Cell, role: str = "update") -> Estimate:
    """At 1/d = 0, on the line through both widths."""
    first, second = (stats.estimate(list(one.ratios[role].values())) for one in (wide, narrow))
    widths = wide.network.d_model, narrow.network.d_model
    share = widths[0] / (widths[0] - widths[1])
    mean = share * first.mean + (1 - share) * second.mean
    parts = [part(first, share), part(second, 1 - share), wide.error_part(role, mean)]
    return combined(mean, parts, first.num + second.num)


@dataclass(frozen=True)
class WidthFit:
    """ratio = 1 + offset / d + slope 2N / d."""

    offset: Estimate
    slope: Estimate


def width_fit(found: Sequence[Cell], role: str = "update") -> WidthFit:
    """Least squares over all depths and widths, with weights num_seeds d / 2N: as the errors would be if U scattered by
    sqrt(2N/d). Weights from the measured errors of few seeds are worse (``sims.stats``).

    One seed draws the networks of all depths partly alike, so each seed gives one number for a width, and the interval
    is that of these numbers. ValueError of fewer than two depths.
    """
    lengths = np.array([one.network.num_sublayers for one in found], dtype=float)
    widths = np.array([one.network.d_model for one in found], dtype=float)
    if len(set(lengths)) < 2:
        raise ValueError("a term in 2N/d needs two depths")
    design = np.stack([1 / widths, lengths / widths], axis=1)
    weights = np.array([len(one.ratios[role]) for one in found]) * widths / lengths
    solved = np.linalg.solve((design * weights[:, None]).T @ design, (design * weights[:, None]).T)
    offset, slope = (_linear(found, row.tolist(), role) for row in solved)
    return WidthFit(offset, slope)


def _linear(found: Sequence[Cell], coefficients: Sequence[float], role: str) -> Estimate:
    """sum_i c_i (ratio_i - 1)."""
    mean, num, parts = 0.0, 0, []
    terms = list(zip(coefficients, found, strict=True))
    for width in dict.fromkeys(one.network.d_model for one in found):
        here = [(c, one.ratios[role]) for c, one in terms if one.network.d_model == width]
        seeds = sorted(set.intersection(*(set(ratios) for _, ratios in here)))
        sums = stats.estimate([sum(c * (ratios[seed] - 1) for c, ratios in here) for seed in seeds])
        mean, num, parts = mean + sums.mean, num + sums.num, [*parts, part(sums)]
    errors: dict[int, float] = {}  # both widths have one prediction
    for c, one in terms:
        depth = one.network.depth
        errors[depth] = errors.get(depth, 0.0) + c * one.predicted[role].error
    return combined(mean, [*parts, (math.hypot(*errors.values()), REPLICATES - 1)], num)


# ---------------------------------------------------------------- what stands out


def worst(found: Iterable[tuple[Cell, Estimate]]) -> tuple[Cell, Estimate] | None:
    """The ratio that is farthest from 1."""
    return max(found, key=lambda pair: abs(pair[1].mean - 1), default=None)


def errors_off(found: Estimate) -> float:
    """How many standard errors a ratio is from 1; 0 where nobody knows its error."""
    return (found.mean - 1) / found.standard_error if found.standard_error else 0.0


def holds(found: Estimate, value: float = 1.0) -> bool:
    """Whether the interval does; none does where its error is not known."""
    return found.low is not None and found.high is not None and found.low <= value <= found.high
