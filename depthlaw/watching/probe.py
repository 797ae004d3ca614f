"""What a step that was really taken changed on a fixed batch, whole and by role.

The whole change is a difference of two passes, behind the step and before it. That by role is the derivative along the
role's part of the step, by forward mode, with all other parameters as they were before it: linear in the step, so free
of rounding, and the roles' changes add up to the whole but for what is of second order. Where a module cannot be
derived so (operations without a forward-mode rule) it is the difference that the role's part makes
by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from depthlaw.auditing.inputs import HALF, Inputs, first_output
from depthlaw.auditing.reading.graph import tensors_in
from depthlaw.auditing.reading.look import mean_square
from depthlaw.auditing.reading.sublayer import added
from depthlaw.watching.roles import Place, Roles, observed, undisturbed

FORWARD, DIFFERENCE = "forward-mode", "difference"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Root mean square of what a step changed. whole: all of it; first_order: the sum of the roles' changes; roles: by
    role; share: by role, the part of that sum that lies along it; they add up to 1."""

    whole: float
    first_order: float
    roles: Mapping[str, float]
    share: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What a look found. changes: by "logits" and, where it is to be seen, "hidden". weights: by role, the root mean
    square of the weights and of their step. stream: a row for each sublayer, as the model is behind the step."""

    method: str
    changes: Mapping[str, Change]
    weights: Mapping[str, tuple[float, float]]
    stream: Sequence[Mapping[str, Any]]
    loss: float | None


@dataclass
class _Answer:
    readings: dict[str, Tensor]
    loss: Tensor | None
    stream: dict[Place, Tensor] = field(default_factory=dict)


class Probe:
    """A fixed batch, and how a module answers to it. method: how changes by role are found, once it is known."""

    def __init__(self, module: nn.Module, inputs: Inputs, roles: Roles) -> None:
        self.module, self.inputs, self.roles = module, inputs, roles
        self.method = FORWARD
        self._places = {place for part in roles.stream for place in (part.start, part.end) if place is not None}

    def look(self, before: Mapping[str, Tensor]) -> Moved:
        """before: the trained parameters as they were before the step. The module is left as it is, to the bit."""
        with undisturbed(self.module):
            if self.method == FORWARD:
                try:
                    return self._by_forward_mode(before)
                except RuntimeError as error:
                    # What torch raises where an operation has no forward derivative, and for much else: memory is
                    # another matter. Which way was taken stands in the record.
                    if isinstance(error, torch.OutOfMemoryError):
                        raise
                    self.method = DIFFERENCE
            return self._by_difference(before)

    # ------------------------------------------------------------ forward mode

    def _by_forward_mode(self, before: Mapping[str, Tensor]) -> Moved:
        now = {name: p.detach() for name, p in self.module.named_parameters()}
        then = {name: _whole(before.get(name, value)) for name, value in now.items()}
        first, last = self._at(then), self._at({name: _whole(value) for name, value in now.items()}, with_stream=True)
        steps = {name: _whole(now[name]) - then[name] for name in before if name in now}
        changes: dict[str, dict[str, Tensor]] = {}
        for role in self.roles_here(before):
            masks = {name: self._mask(name, role, now[name]) for name in steps}
            parts = {name: steps[name] * mask for name, mask in masks.items() if mask is not None}
            with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
                duals = {
                    name: value if name not in parts else forward_ad.make_dual(value, parts[name])
                    for name, value in then.items()
                }
                moved = {name: forward_ad.unpack_dual(value) for name, value in self._at(duals).readings.items()}
                changes[role] = {
                    name: torch.zeros_like(dual.primal) if dual.tangent is None else dual.tangent.clone()
                    for name, dual in moved.items()
                }
        return self._found(FORWARD, first, last, changes, before)

    def _at(self, weights: Mapping[str, Tensor], *, with_stream: bool = False) -> _Answer:
        buffers = {name: _whole(buffer).clone() for name, buffer in self.module.named_buffers()}

        def call(inputs: Inputs) -> Any:
            outer = _Called(self.module, inputs)
            return functional_call(outer, {f"module.{name}": v for name, v in {**buffers, **weights}.items()}, ())

        return self._answer(call, with_stream=with_stream)

    # ------------------------------------------------------------ differences

    def _by_difference(self, before: Mapping[str, Tensor]) -> Moved:
        """In the module itself: parameters change places with what they were before the step, and back again."""
        whole = dict(self.module.named_parameters())
        parameters = {name: p.detach() for name, p in whole.items()}
        kept = {name: parameters[name].clone() for name in before if name in parameters}
        values = {name: before[name] for name in kept}
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        changes: dict[str, dict[str, Tensor]] = {}
        try:
            last = self._as_it_is(with_stream=True)
            for name, value in values.items():
                parameters[name].copy_(value)
            first = self._as_it_is()
            for role in self.roles_here(before):
                for name, value in kept.items():
                    mask = self._mask(name, role, whole[name])
                    if mask is not None:
                        parameters[name].copy_(torch.where(mask, value, values[name]))
                moved = self._as_it_is().readings
                changes[role] = {name: moved[name] - value for name, value in first.readings.items()}
                for name, value in values.items():
                    parameters[name].copy_(value)
        finally:
            for name, value in kept.items():
                parameters[name].copy_(value)
            for buffer, value in buffers:
                buffer.copy_(value)
        return self._found(DIFFERENCE, first, last, changes, before)

    def _as_it_is(self, *, with_stream: bool = False) -> _Answer:
        return self._answer(lambda inputs: inputs.call(self.module), with_stream=with_stream)

    def _mask(self, name: str, role: str, parameter: Any) -> Tensor | None:
        """Which entries of a parameter are of the role: one True for all, None for none."""
        roles_of = self.roles.of.get(name)
        if not isinstance(roles_of, Tensor):
            is_of_role = role in self.roles.roles_of(name)
            return torch.ones((), dtype=torch.bool, device=parameter.device) if is_of_role else None
        return (roles_of == self.roles.names.index(role)).to(parameter.device)

    # ------------------------------------------------------------ what both have

    def roles_here(self, trained: Mapping[str, Tensor]) -> list[str]:
        """Of the parameters that are trained, as the block has them."""
        there = {role for name in trained for role in self.roles.roles_of(name)}
        return [role for role in self.roles.names if role in there] + sorted(there - {*self.roles.names})

    def _answer(self, call: Callable[[Inputs], Any], *, with_stream: bool) -> _Answer:
        hidden, wanted = self.roles.hidden, self._places if with_stream else set()
        seen: dict[Place, Tensor] = {}
        places = {*wanted, *([] if hidden is None else [hidden])}

        def on(place: Place, tensor: Tensor) -> None:
            if place in places:
                seen[place] = tensor if place == hidden else tensor.detach().clone()

        with observed(self.module, on, {place.module for place in places}):
            answer = call(self.inputs)
        logits = first_output(answer)
        readings = {"logits": logits}
        if hidden is not None and hidden in seen:
            readings["hidden"] = seen[hidden]
        elif self.roles.is_hidden:
            readings["hidden"] = logits
        scalars = [tensor for tensor in tensors_in(answer) if tensor.ndim == 0 and tensor.is_floating_point()]
        return _Answer(readings, scalars[0] if scalars else None, seen)

    def _found(
        self,
        method: str,
        first: _Answer,
        last: _Answer,
        changes: Mapping[str, Mapping[str, Tensor]],
        before: Mapping[str, Tensor],
    ) -> Moved:
        by_reading = {
            name: _change(
                last.readings[name].double() - value.double(),
                {role: by_reading[name] for role, by_reading in changes.items()},
            )
            for name, value in first.readings.items()
        }
        return Moved(
            method=method,
            changes=by_reading,
            weights=self._weights(before),
            stream=[*self._stream(last)],
            loss=None if last.loss is None else last.loss.item(),
        )

    def _weights(self, before: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
        names = self.roles_here(before)
        sums = {role: torch.zeros(3, dtype=torch.float64) for role in names}
        parameters = dict(self.module.named_parameters())
        for name, earlier in before.items():
            if name not in parameters:
                continue
            now, then = (value.detach().double() for value in (parameters[name], earlier))
            for role in self.roles.roles_of(name):
                mask = self._mask(name, role, now)
                parts = (now, then) if mask is None or not mask.ndim else (now[mask], then[mask])
                number = torch.tensor(float(parts[0].numel())).to(now)
                sums[role] += torch.stack([parts[0].square().sum(), (parts[0] - parts[1]).square().sum(), number]).cpu()
        rows = {role: row.tolist() for role, row in sums.items()}
        return {role: (math.sqrt(a / n), math.sqrt(b / n)) for role, (a, b, n) in rows.items() if n}

    def _stream(self, answer: _Answer) -> Iterator[dict[str, Any]]:
        for part in self.roles.stream:
            start, end = (
                None if place is None or place not in answer.stream else answer.stream[place].double()
                for place in (part.start, part.end)
            )
            row = {"side": part.side, "layer": part.layer, "kind": part.kind, "second_moment": None}
            row |= {"share": None, "cosine": None}
            if start is not None:
                row["second_moment"] = mean_square(start)
            if start is not None and end is not None and start.shape == end.shape:
                does = added(start, end, part.summed_weight)
                row |= {"share": does.share, "cosine": does.of_branch}
            yield row


class _Called(nn.Module):
    """A call of a module, so that functional_call can give it parameters by name."""

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.module, self._inputs = module, inputs
        self.training = False

    def forward(self) -> Any:
        return self._inputs.call(self.module)


def _change(whole: Tensor, by_role: Mapping[str, Tensor]) -> Change:
    total = torch.zeros_like(whole)
    for change in by_role.values():
        total += change
    square = total.square().sum()
    along = {role: (change.double() * total).sum() / square for role, change in by_role.items()}
    return Change(
        whole=_rms(whole),
        first_order=_rms(total),
        roles={role: _rms(change.double()) for role, change in by_role.items()},
        share={role: part.item() if square else 0.0 for role, part in along.items()},
    )


def _rms(value: Tensor) -> float:
    return value.square().mean().sqrt().item()


def is_sharded(module: nn.Module) -> bool:
    """Whether a process has parts of parameters only: FSDP2 and tensor parallelism, FSDP of the older kind, ZeRO-3."""
    is_old = any(type(part).__name__ == "FullyShardedDataParallel" for part in module.modules())
    return is_old or any(
        hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id") for parameter in module.parameters()
    )


def _whole(value: Tensor) -> Tensor:
    """In single precision where it is half: the change of one step would be lost in rounding."""
    return value.float() if value.dtype in HALF else value
