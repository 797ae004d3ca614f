"""What an audit tells, for programs: rows, exponents and the document of a module at several depths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from depthlaw.auditing.beyond import Exponential
from depthlaw.auditing.by_layer import AtSublayer, says
from depthlaw.auditing.compare import Findings
from depthlaw.auditing.expected import Claimed
from depthlaw.auditing.faults import Fault, together
from depthlaw.auditing.groups import is_of_branch, roles_of
from depthlaw.auditing.laws import shape_of_draws
from depthlaw.auditing.models import Depth
from depthlaw.sims.model import BRANCH_ROLES
from depthlaw.sims.stats import ExponentFit, estimate, fit_exponent

_MOST_DRAWS = 50_000
"""Entries of a role whose distribution is looked at."""


class Nearest(NamedTuple):
    """The scheme or recipe that a module is nearest to. kind: scheme or recipe. distance: what the differences weigh,
    of which more than ``FITS`` is too far to be one."""

    name: str
    differences: Sequence[Fault]
    kind: str
    distance: float

    @property
    def fits(self) -> bool:
        """Whether it is so near that what is known of it is known of the module."""
        return self.distance <= FITS


FITS = 4.0
"""A norm at another place and two matrices at another scale; less than sublayers of other kinds."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer:
    """What an audit tells.

    depths: the module at each number of layers. findings: what was found, with the faults of each role by themselves.
    claimed: the scheme or recipe that it was compared with; nearest: the one that it is nearest to, where none was
    named, and how it differs. predicted: the update by role at each depth, as
    the kernel rung predicts it of the block as it is; far: the same beyond, as it is and as it should be, relative to
    the shallowest depth, and the ratio of what it is to what it should be. exponential: growth that is no power of the
    number of layers; explodes: whether a stream leaves the floats on the way to the depths of ``far``. by_layer: what
    each sublayer of the deepest model does, where that is asked.
    """

    optimizer: str
    depths: Sequence[Depth]
    findings: Findings
    claimed: Claimed | None = None
    nearest: Nearest | None = None
    predicted: Sequence[Mapping[str, float]] = ()
    far: Mapping[int, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    exponential: Exponential | None = None
    explodes: bool = False
    by_layer: Sequence[AtSublayer] | None = None

    @cached_property
    def faults(self) -> list[Fault]:
        """As they are numbered for people: one that is of several roles is one fault."""
        return together(self.findings.faults)

    @property
    def layers(self) -> list[int]:
        return [depth.asked for depth in self.depths]

    @cached_property
    def roles(self) -> list[str]:
        """Of branch matrices by the order of the block, then the others."""
        there = {role for depth in self.depths for update in depth.updates for role in update}
        sides = [f"{side}/{role}" for side in self.depths[-1].built.sides for role in ("update", *BRANCH_ROLES)]
        order = ["update", *sides, *BRANCH_ROLES]
        return [role for role in order if role in there] + sorted(there - set(order))

    def exponent(self, role: str) -> ExponentFit | None:
        """Of the measured update in the number of layers, beside that of the predicted one."""
        samples = [[update.get(role) for update in depth.updates] for depth in self.depths]
        values = [row.get(role, math.nan) for row in self.predicted]
        known = values if len(values) == len(samples) and all(v > 0 for v in values) else None
        if len(self.depths) < 2 or not all(samples):
            return None
        try:
            return fit_exponent(self.layers, samples, known)
        except (ValueError, ArithmeticError):
            return None

    def draws(self, role: str, side: str = "") -> str | None:
        """The distribution that the entries of a role's matrices look drawn from, at the greatest depth."""
        weights = [w for w in self.depths[-1].built.weights if w.role == role and side in ("", w.side) and w.std > 0]
        if not weights:
            return None
        each = max(1, _MOST_DRAWS // len(weights))
        parts = [w.of(w.parameter).flatten()[:each].double() / w.std for w in weights]
        return shape_of_draws(torch.cat(parts).numpy())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The update at each depth, as ``depthlaw measure`` has its rows: what a plot is drawn from."""
        rows = []
        for place, depth in enumerate(self.depths):
            predicted = self.predicted[place] if self.predicted else {}
            by_role = {}
            for role in self.roles:
                values = [update[role] for update in depth.updates if role in update]
                if values:
                    mean = estimate(values)
                    by_role[role] = {"measured": mean.mean, "low": mean.low, "high": mean.high}
            rows.append(
                {"num_sublayers": 2 * depth.asked, "update": predicted.get("update"), **by_role.get("update", {})}
                | {"roles": {role: predicted.get(role) for role in by_role}, "by_role": by_role}
            )
        return rows

    @property
    def groups(self) -> list[dict[str, Any]] | None:
        """The groups of the user's optimizer by role, at each depth the values that there are; None where there is no
        optimizer."""
        if self.depths[-1].groups is None:
            return None
        roles = dict.fromkeys(", ".join(several) for several in roles_of(self.depths[-1].built).values())
        return [self._group_row(role) for role in roles]

    def _group_row(self, role: str) -> dict[str, Any]:
        row: dict[str, Any] = {"role": role, "num_tensors": 0, "learning_rate": [], "eps": [], "weight_decay": []}
        for depth in self.depths:
            groups, built = depth.groups, depth.built
            assert groups is not None
            names = [name for name, several in roles_of(built).items() if ", ".join(several) == role]
            row["num_tensors"] = len(names)
            for key in ("learning_rate", "eps", "weight_decay"):
                values = {getattr(setting, key) for name in names for setting in groups.settings[name]}
                row[key].append(sorted(values - {None}))
        asked = [self.claimed and self.claimed.multipliers(depth.built, depth.counts) for depth in self.depths]
        built = self.depths[-1].built
        kinds = {
            is_of_branch(built, name, several)
            for name, several in roles_of(built).items()
            if ", ".join(several) == role
        }
        for key in ("learning_rate", "eps"):
            multipliers = [
                getattr(multiplier, key) if True in kinds else 1.0 for multiplier in asked if multiplier is not None
            ]
            row[f"{key}_multiplier"] = multipliers if multipliers and kinds != {None} else None
        return row

    def document(self) -> dict[str, Any]:
        """As JSON has it: what is not finite is null."""
        last = self.depths[-1]
        answer = {
            "module": type(last.built.module).__name__,
            "input": last.built.inputs.kind,
            "optimizer": self.optimizer,
            "scheme": None if self.claimed is None or self.claimed.is_absolute else self.claimed.name,
            "recipe": None if self.claimed is None or not self.claimed.is_absolute else self.claimed.name,
            "nearest": None
            if self.nearest is None
            else {
                "name": self.nearest.name,
                "kind": self.nearest.kind,
                "differs": [fault.what for fault in self.nearest.differences],
                "fits": self.nearest.fits,
            },
            "exponential": None if self.exponential is None else self.exponential._asdict(),
            "layers": self.layers,
            "built_layers": [dict(depth.counts) for depth in self.depths],
            "visits": None if all(depth.visits == 1 for depth in self.depths) else [d.visits for d in self.depths],
            "d_model": last.built.d_model,
            "sublayers": [_sublayer_row(sub) for sub in last.built.sublayers],
            "final_norm": dict(last.built.final),
            "roles": [self.role_row(role) for role in self.roles],
            "groups": None if last.groups is None else {"optimizers": [*last.groups.optimizers], "roles": self.groups},
            "by_layer": None
            if self.by_layer is None
            else {"sublayers": [row.document() for row in self.by_layer], "says": says(self.by_layer)},
            "faults": [fault.document() for fault in self.faults],
            "remarks": [*self.findings.remarks, *self.remarks],
        }
        return _finite(answer)

    def role_row(self, role: str) -> dict[str, Any]:
        side, _, name = role.rpartition("/")
        keys = [key for key in self.findings.laws if key[1] == name and side in ("", key[0])]
        fitted = self.exponent(role)
        slope = None if fitted is None else fitted.measured
        means = [[update[role] for update in depth.updates if role in update] for depth in self.depths]
        with_role = [sub for sub in self.depths[-1].built.sublayers if name in sub.roles and side in ("", sub.side)]
        asked = [pair.asked for pair in self.findings.pairs if pair.built in with_role]
        return {
            "role": name,
            "side": side or None,
            "draws": self.draws(name, side),
            "residual_weight": with_role[0].residual_weight if with_role else None,
            "expected_residual_weight": asked[0].residual_weight if asked else None,
            "norms": sorted(with_role[0].norms) if with_role else None,
            "init_std": {key[0]: self.findings.laws[key].text for key in keys},
            "expected_init": {
                key[0]: self.findings.asked_laws[key].text for key in keys if key in self.findings.asked_laws
            },
            "update": [
                {"num_layers": layers, "measured": estimate(values).mean if values else None}
                | {"standard_error": estimate(values).standard_error if values else None}
                | {"predicted": row.get(role) if row else None}
                for layers, values, row in zip(
                    self.layers, means, self.predicted or [{}] * len(self.depths), strict=True
                )
            ],
            "exponent": None if slope is None else slope.mean,
            "exponent_low": None if slope is None else slope.low,
            "exponent_high": None if slope is None else slope.high,
            "predicted_exponent": None if fitted is None else fitted.predicted,
            "far": {
                str(layers): {which: values[role] for which, values in both.items() if role in values}
                for layers, both in self.far.items()
            },
            "faults": [
                fault.document()
                for fault in self.findings.faults
                if fault.role == name and side in ("", fault.side or "")
            ],
        }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sublayer_row(sub: Any) -> dict[str, Any]:
    return {
        "side": sub.side,
        "index": sub.index,
        "kind": sub.kind,
        "residual_weight": sub.residual_weight,
        "branch_weight": sub.branch_weight,
        "trained_branch_weight": sub.trained,
        "modulated": sorted(sub.modulated),
        "norms": sorted(sub.norms),
        "second_moment": sub.second_moment,
        "input_rms": sub.input_rms,
        "weights": [
            {"role": w.role, "name": w.name, "std": w.std, "is_part": w.features is not None} for w in sub.weights
        ],
    }
