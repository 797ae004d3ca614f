"""A model of the user's own, as the audit reads it at several depths, where advice has a named network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from depthlaw.network.kernel import SHARED
from depthlaw.network.network import Network, NoTheoryError, sublayers_of
from depthlaw.sims.config import MATRICES, ModelConfig, Task
from depthlaw.theory.schemes import Scheme
from depthlaw.theory.stack import NO_NORM, Stack

if TYPE_CHECKING:
    from depthlaw.auditing.audit import Audit
    from depthlaw.auditing.models import Depth
    from depthlaw.theory.kernel.predict import KernelUpdate

_ONE = 1e-4
"""Relative: a weight that is so near to another is it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnNetwork(Network):
    """A module that was built and read, in a named network's place. numbers: what it is, as sims have it. given: the
    tokens that it was given. read: the module at this depth, of the audit."""

    numbers: ModelConfig
    given: Task
    read: Depth
    audit: Audit

    @classmethod
    def of(cls, audit: Audit, depth: Depth) -> OwnNetwork:
        """ValueError, in one line, for a block that is neither attention nor FFN, and for streams side by side."""
        from depthlaw.auditing.updates import as_config, of_few_tokens, task_of

        built = depth.built
        if built.is_side_by_side:
            raise ValueError(f"there is no advice for {type(built.module).__name__}: {SHARED}")
        numbers, given = _smooth(as_config(built), audit, depth), of_few_tokens(task_of(built))
        has_two = built.has_decoder
        return cls(
            scheme=Scheme(name=type(built.module).__name__, source="", stack=Stack(placement=NO_NORM)),
            arch="encoder-decoder" if has_two else "decoder" if numbers.is_causal else "encoder",
            d_model=numbers.d_model,
            activation=numbers.activation,
            norm_kind=numbers.norm_kind,
            num_heads=numbers.num_heads,
            num_tokens=given.num_tokens,
            numbers=numbers,
            given=given,
            read=depth,
            audit=audit,
            **sublayers_of((depth.asked, depth.asked) if has_two else depth.asked),
        )

    def config(self, optimizer: str) -> ModelConfig:
        return self.numbers

    @property
    def task(self) -> Task:
        return self.given

    @property
    def has_experts(self) -> bool:
        return self.read.built.has_experts

    def kernel_update(
        self,
        optimizer: str,
        advance: Callable[[float], None] = lambda _: None,
        config: ModelConfig | None = None,
        **options: Any,
    ) -> KernelUpdate:
        from depthlaw.auditing.updates import answered

        try:
            with np.errstate(over="ignore", invalid="ignore"):
                answer = answered(config or self.numbers, self.given, optimizer, advance)
        except ValueError as error:
            raise NoTheoryError(str(error)) from error
        except ArithmeticError:
            raise self._beyond_floats() from None
        largest = max(max(point.second_moment for point in side) for side in answer.streams.values())
        if not (largest < float(np.finfo(np.float32).max) ** 2 and answer.update < math.inf):
            raise self._beyond_floats()
        there = {*(weight.role for weight in self.read.built.weights), *self.read.built.others.values()}
        return replace(answer, roles={role: value for role, value in answer.roles.items() if role in {*there, "head"}})

    def _beyond_floats(self) -> NoTheoryError:
        from depthlaw.auditing.beyond import first_of_all

        return NoTheoryError(
            f"{self.scheme.name} of {self.read.asked:,} layers has numbers beyond the floats, so there is nothing to "
            f"tune: {first_of_all(self.read.built)}"
        )

    def with_numbers_of(self, shallow: OwnNetwork) -> ModelConfig:
        """This network with what hangs on the number of layers read at the shallower one's; what hangs on a layer's
        index goes on."""
        sides = []
        for (side, mine), (_, theirs) in zip(self.numbers.sides, shallow.numbers.sides, strict=True):
            counts = shallow.read.counts[side], self.read.counts[side]
            factors = {
                role: (counts[0] / counts[1]) ** law.simple_powers[0]
                for (of_side, role), law in self.audit.findings.laws.items()
                if of_side == side and law.has_power
            }
            weights = {
                name: mean_ratio(
                    [getattr(sublayer, name) for sublayer in theirs], [getattr(sublayer, name) for sublayer in mine]
                )
                for name in ("residual_weight", "branch_weight")
            }
            sides.append(
                tuple(
                    replace(
                        sublayer,
                        residual_weight=sublayer.residual_weight * weights["residual_weight"],
                        branch_weight=sublayer.branch_weight * weights["branch_weight"],
                        gains={role: gain * factors.get(role, 1.0) for role, gain in sublayer.gains.items()},
                    )
                    for sublayer in mine
                )
            )
        return replace(self.numbers, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


def _smooth(numbers: ModelConfig, audit: Audit, depth: Depth) -> ModelConfig:
    """With each matrix at the scale of its role's law, where it follows one, in place of what its own draw has."""
    from depthlaw.auditing.laws import UNLIKELY

    laws = {key: law for key, law in audit.findings.laws.items() if law.misfit > UNLIKELY}
    sides = []
    for (side, sublayers), built in zip(numbers.sides, depth.built.sides.values(), strict=True):
        smoothed = [
            {
                role: numbers.gain(role, laws[side, role].at(depth.counts[side], sub.layer))
                if (side, role) in laws and gain
                else gain
                for role, gain in sublayer.gains.items()
            }
            for sublayer, sub in zip(sublayers, built, strict=True)
        ]
        sides.append(tuple(replace(sublayer, gains=gains) for sublayer, gains in zip(sublayers, smoothed, strict=True)))
    return replace(numbers, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


def mean_ratio(first: Sequence[float], last: Sequence[float]) -> float:
    """Of the first over the last, place by place; 1 where it is so to rounding, or where there is a 0."""
    logs = [math.log(a / b) for a, b in zip(first, last, strict=False) if a > 0 and b > 0]
    ratio = math.exp(fmean(logs)) if logs else 1.0
    return ratio if abs(ratio - 1) > _ONE else 1.0


def first_of(audit: Audit) -> str:
    """What is to be done before anything is tuned; empty where there is no such thing."""
    from depthlaw.auditing.beyond import first_of_all

    if audit.exponential is not None or audit.explodes:
        return f"with depth this model explodes: {first_of_all(audit.depths[-1].built)}"
    if not audit.faults:
        return ""
    number = f"{len(audit.faults)} fault{'s' if len(audit.faults) > 1 else ''}"
    return f"mend what the audit finds, {number} in this model; the first: {audit.faults[0].what.rstrip('.')}"


def warnings_of(shallow: OwnNetwork, deep: OwnNetwork, grown: float) -> Iterator[str]:
    """What the audit has to say before anything is changed. grown: the predicted growth of the update."""
    from depthlaw.auditing.beyond import Growth
    from depthlaw.auditing.reading.look import pattern_of

    built = deep.read.built
    unknown = ("other", "router")
    others = [name for name, role in built.others.items() if role in unknown and built.flow.parameters[name].ndim > 1]
    inside = sorted({pattern_of(name) for name in others if pattern_of(name) != name})
    has_experts = any(w.role in MATRICES["ffn"] and (w.expert or w.num_matrices > 1) for w in built.weights)
    growth = Growth.of(shallow.read, deep.read, grown)
    if growth is not None and not growth.is_as_predicted:
        yield f"{growth.text}: trust what is measured; what is said here is of the prediction"
    elif growth is not None and has_experts:
        yield f"{growth.text}: how it grows is as predicted, which is all that is used here, if its size is not"
    if has_experts:
        named = f" ({', '.join(inside)})" if inside else ""
        yield (
            "this is a mixture of experts, which is predicted as if each token ran through all of them: the router"
            f"{named}, which experts it chooses and how it weighs them are not in the prediction, and it keeps its "
            "learning rate"
        )
        inside = []
    if inside or built.unread:
        what = "; ".join([*dict.fromkeys(built.unread), *inside])
        yield f"not in the prediction, and left at the tuned learning rate: {what}"
