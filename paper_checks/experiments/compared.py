"""Real networks beside their predictions, by role: ratios of each seed, their estimates, and how the width moves them.

Every interval counts both errors: the scatter over the seeds, and the quasi-random one of the prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments.kernel_kept import Kept, Number
from depthlaw.paper_checks.experiments.sweeps import OPTIMIZERS, Sweep
from depthlaw.sims import stats
from depthlaw.sims.model import BRANCH_ROLES, OTHER_ROLES
from depthlaw.sims.records import record
from depthlaw.sims.stats import LEVEL, Estimate
from depthlaw.theory.kernel.predict import REPLICATES
from depthlaw.theory.schemes import SCHEMES

ROLES = (*BRANCH_ROLES, *OTHER_ROLES)
Name = tuple[str, str, int, int]
"""Scheme, optimizer, layers, width."""


class Index:
    """Runs by what they are of."""

    def __init__(self, runs: Iterable[record.Run]) -> None:
        self._runs: dict[str, list[record.Run]] = {}
        for run in runs:
            self._runs.setdefault(json.dumps(run.config, sort_keys=True), []).append(run)

    def find(self, network: Network, optimizer: str) -> record.Measurement:
        """LookupError where there is nothing of it."""
        config = record.plain(network.named(optimizer))
        runs = self._runs.get(json.dumps(config, sort_keys=True))
        if runs is None:
            raise LookupError(f"no run of {network.scheme.name} under {optimizer} at {network.depth} sublayers")
        return record.find(runs, config)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One network under one optimizer.

    predicted: by role, and of "update". ratios: by the same, measured over predicted of each seed; what is predicted to
    be 0 has none. lacking: roles that a seed's divergence or rounding takes away. wrong_zeros: what is predicted to be
    0, and is not.
    """

    network: Network
    optimizer: str
    predicted: Mapping[str, Number]
    ratios: Mapping[str, Mapping[int, float]]
    lacking: Sequence[str] = ()
    wrong_zeros: Sequence[str] = ()

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
        means = {role: self.over_seeds(role) for role in ("update", *ROLES) if role in self.ratios}
        return {
            role: combined([(1, mean)], abs(mean.mean) * self.predicted[role].error) for role, mean in means.items()
        }

    @property
    def roles(self) -> Mapping[str, Estimate]:
        return {role: estimate for role, estimate in self.estimates.items() if role != "update"}

    def over_seeds(self, role: str) -> Estimate:
        """The mean ratio as if the prediction had no error."""
        return stats.estimate(list(self.ratios[role].values()))


def combined(parts: Iterable[tuple[float, Estimate]], prediction_error: float) -> Estimate:
    """sum_i c_i part_i of independent parts, with an error of the prediction beside theirs."""
    prediction = Estimate(0.0, prediction_error, None, None, REPLICATES)
    coefficients, estimates = zip(*parts, (1.0, prediction), strict=True)
    total = stats.combined(coefficients, estimates, LEVEL)
    return replace(total, num=total.num - REPLICATES)


def cells(sweep: Sweep, runs: Iterable[record.Run], kept: Kept) -> list[Compared]:
    """Of its networks, in their order, those that are in the record. LookupError for one that is not predicted."""
    index, there = Index(runs), []
    for network in sweep.networks:
        for optimizer in sweep.optimizers:
            try:
                measurement = index.find(network, optimizer)
            except LookupError:
                continue
            predicted = kept.find(network, optimizer).by_optimizer[optimizer]
            there.append(cell(network, optimizer, measurement, predicted))
    return there


def cell(
    network: Network, optimizer: str, measurement: record.Measurement, predicted: Mapping[str, Number]
) -> Compared:
    ratios: dict[str, dict[int, float]] = {}
    lacking, wrong = [], []
    for role in ("update", *ROLES):
        if role not in predicted:
            continue
        values = [value for value in measurement.values.get(role, ()) if value is not None]
        if not values or len(values) < len(measurement.seeds):
            lacking.append(role)
        elif predicted[role].value == 0:
            wrong += [role] if any(values) else []
        else:
            factor = 1.0 if role == "update" else network.d_model ** network.role_power(optimizer, role)
            unit = factor / predicted[role].value
            ratios[role] = {seed: value * unit for seed, value in zip(measurement.seeds, values, strict=True)}
    return Compared(
        network=network, optimizer=optimizer, predicted=predicted, ratios=ratios, lacking=lacking, wrong_zeros=wrong
    )


def limit(wide: Compared, narrow: Compared, role: str = "update") -> Estimate:
    """At 1/d = 0, on the line through both widths."""
    first, second = wide.over_seeds(role), narrow.over_seeds(role)
    share_of_wide = wide.network.d_model / (wide.network.d_model - narrow.network.d_model)
    mean = share_of_wide * first.mean + (1 - share_of_wide) * second.mean
    return combined([(share_of_wide, first), (1 - share_of_wide, second)], abs(mean) * wide.predicted[role].error)


@dataclass(frozen=True)
class WidthFit:
    """ratio = 1 + offset / d + slope 2N / d."""

    offset: Estimate
    slope: Estimate


def width_fit(several: Sequence[Compared], role: str = "update") -> WidthFit:
    """Least squares over all depths and widths, with weights num_seeds d / 2N: as the errors would be if U scattered by
    sqrt(2N/d). Weights from the measured errors of few seeds are worse (``sims.stats``).

    One seed draws the networks of all depths partly alike, so each seed gives one number for a width, and the interval
    is that of these numbers. ValueError of fewer than two depths.
    """
    lengths = np.array([cell.network.num_sublayers for cell in several], dtype=float)
    widths = np.array([cell.network.d_model for cell in several], dtype=float)
    if len(set(lengths)) < 2:
        raise ValueError("a term in 2N/d needs two depths")
    design = np.stack([1 / widths, lengths / widths], axis=1)
    weighted = (design * (np.array([len(cell.ratios[role]) for cell in several]) * widths / lengths)[:, None]).T
    offset, slope = (_linear(several, row.tolist(), role) for row in np.linalg.solve(weighted @ design, weighted))
    return WidthFit(offset, slope)


def _linear(several: Sequence[Compared], coefficients: Sequence[float], role: str) -> Estimate:
    """sum_i c_i (ratio_i - 1)."""
    terms = list(zip(coefficients, several, strict=True))
    sums = []
    for d_model in dict.fromkeys(cell.network.d_model for cell in several):
        here = [(c, cell.ratios[role]) for c, cell in terms if cell.network.d_model == d_model]
        seeds = sorted(set.intersection(*(set(ratios) for _, ratios in here)))
        sums.append((1.0, stats.estimate([sum(c * (ratios[seed] - 1) for c, ratios in here) for seed in seeds])))
    errors: dict[int, float] = {}  # both widths have one prediction
    for c, cell in terms:
        errors[cell.network.depth] = errors.get(cell.network.depth, 0.0) + c * cell.predicted[role].error
    return combined(sums, math.hypot(*errors.values()))


# ---------------------------------------------------------------- the sweep over schemes

ByName = Mapping[Name, Compared]
LAYERS = (1, 2, 4, 8, 16)
WIDE, NARROW = 512, 256


def of_width(by_name: ByName, d_model: int) -> list[Compared]:
    """The networks that are so wide."""
    return [cell for (_, _, _, d), cell in by_name.items() if d == d_model]


def by_depth(by_name: ByName, name: str, optimizer: str) -> dict[int, Compared]:
    """The wide networks of a scheme."""
    return {n: cell for n in LAYERS if (cell := by_name.get((name, optimizer, n, WIDE))) is not None}


def compared_names(by_name: ByName) -> list[tuple[str, str]]:
    """Schemes and optimizers of which there is a network, in theory's order."""
    there = {name[:2] for name in by_name}
    return [(name, optimizer) for name in SCHEMES for optimizer in OPTIMIZERS if (name, optimizer) in there]


def width_pairs(by_name: ByName, role: str) -> Iterator[tuple[Compared, Compared]]:
    """Wide and narrow, of one network that has this ratio at both widths."""
    for (name, optimizer, layers, d_model), cell in by_name.items():
        other = by_name.get((name, optimizer, layers, NARROW))
        if d_model == WIDE and other is not None and role in cell.ratios and role in other.ratios:
            yield cell, other


def width_fits(by_name: ByName, role: str) -> dict[tuple[str, str], WidthFit]:
    """Of each scheme and optimizer that has two depths of this role."""
    fits = {}
    for names in compared_names(by_name):
        here = [cell for cell in by_name.values() if cell.name[:2] == names and role in cell.ratios]
        if len({cell.name[2] for cell in here}) > 1:
            fits[names] = width_fit(here, role)
    return fits
