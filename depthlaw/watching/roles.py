"""Which entries of which parameter have which role, and where in the modules the residual stream is to be seen.

Both are read once, as the audit reads a module; a training step changes neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from depthlaw.auditing.inputs import Inputs
from depthlaw.auditing.reading.graph import Edge, Flow, Node, passes_on, tensors_in
from depthlaw.auditing.reading.look import Built, look
from depthlaw.watching.shards import apart

OTHER = "other"


class Place(NamedTuple):
    """A tensor that a module is given or answers. which: "in" or "out"; call: of the module, from 0."""

    module: str
    which: str
    call: int
    number: int


@dataclass(frozen=True, kw_only=True)
class StreamPart:
    """A sublayer, and where the stream before it and the sum behind it are to be seen; None where they are not.
    summed_weight: of the stream in that sum."""

    side: str
    layer: int
    kind: str
    summed_weight: float
    start: Place | None
    end: Place | None


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What a module's parameters are for. of: the role of each parameter by name, or where one has several (a fused
    matrix), the number of the role of each entry. names: roles, in the order of those numbers; of two sides, those of
    branch matrices begin with the side, as in "decoder/fc2". hidden: where the last hidden state is to be seen, with
    ``is_hidden`` where it is the output itself."""

    names: Sequence[str]
    of: Mapping[str, str | Tensor]
    num_layers: Mapping[str, int]
    d_model: int
    stream: Sequence[StreamPart]
    hidden: Place | None
    is_hidden: bool

    def roles_of(self, name: str) -> list[str]:
        role = self.of.get(name, OTHER)
        return [role] if not isinstance(role, Tensor) else self._of_several[name]

    @cached_property
    def _of_several(self) -> dict[str, list[str]]:
        """The roles of each parameter that has several. Entries are many, and a look asks often."""
        fused = {name: role for name, role in self.of.items() if isinstance(role, Tensor)}
        return {name: [self.names[int(number)] for number in numbers.unique()] for name, numbers in fused.items()}


def read(module: nn.Module, inputs: Inputs) -> tuple[Roles, Built]:
    """Run the module once and read it: what its parameters are for, and all that is read. ValueError, in one line,
    where it has no residual stream that can be read."""
    seen: dict[Edge, Place] = {}

    def on(place: Place, tensor: Tensor) -> None:
        if tensor.grad_fn is not None:
            seen.setdefault((tensor.grad_fn, tensor.output_nr), place)

    with undisturbed(module), observed(module, on):
        built = look(module, inputs)
    of = _by_name(built)
    names = list(dict.fromkeys(name for several in of.values() for name in several))
    hidden, is_hidden = _hidden(built, seen)
    roles = Roles(
        names=names,
        of={
            name: several[0] if len(several) == 1 else _numbers(built, name, several, names)
            for name, several in of.items()
        },
        num_layers={side: built.num_layers(side) for side in built.sides},
        d_model=built.d_model,
        stream=[
            StreamPart(
                side=sub.side,
                layer=sub.layer,
                kind=sub.kind,
                summed_weight=sub.summed_weight,
                start=_place(built.flow, sub.start, seen),
                end=_place(built.flow, sub.end, seen),
            )
            for sub in built.sublayers
        ],
        hidden=hidden,
        is_hidden=is_hidden,
    )
    return roles, built


def _role(built: Built, role: str, side: str) -> str:
    return f"{side}/{role}" if len(built.sides) > 1 else role


def _by_name(built: Built) -> dict[str, list[str]]:
    """Roles of each parameter. What a matrix is used for first counts where sublayers share it."""
    roles: dict[str, list[str]] = {}
    for weight in built.weights:
        of_parameter = roles.setdefault(weight.name, [])
        role = _role(built, weight.role, weight.side)
        if role not in of_parameter and (weight.features is not None or not of_parameter):
            of_parameter.append(role)
    for name, _ in built.module.named_parameters():
        of_parameter = roles.setdefault(name, [built.others.get(name, OTHER)])
        parts = [weight for weight in built.weights if weight.name == name]
        if parts and all(weight.features is not None for weight in parts):
            covered = _drawn(parts[0], parts)
            if not bool(covered.all()):
                of_parameter.append(OTHER)
    return roles


def _drawn(weight: Any, parts: Sequence[Any]) -> Tensor:
    """Which entries of a parameter belong to any of these parts of it."""
    canvas = nn.Parameter(torch.zeros(weight.parameter.shape))
    for part in parts:
        replace(part, parameter=canvas).write(torch.ones(part.shape))
    return canvas.detach().bool()


def _numbers(built: Built, name: str, of_parameter: Sequence[str], names: Sequence[str]) -> Tensor:
    """The number of each entry's role."""
    parts = [weight for weight in built.weights if weight.name == name]
    by_role = {role: [p for p in parts if _role(built, p.role, p.side) == role] for role in of_parameter}
    numbers = torch.full(
        parts[0].parameter.shape, names.index(OTHER) if OTHER in of_parameter else -1, dtype=torch.int16
    )
    for role, of_role in reversed(by_role.items()):
        if of_role:
            numbers[_drawn(of_role[0], of_role)] = names.index(role)
    return numbers


# ---------------------------------------------------------------- where the stream is to be seen


def _place(flow: Flow, node: Node, seen: Mapping[Edge, Place]) -> Place | None:
    """Of a value, or of the same in another shape behind it."""
    while (node, 0) not in seen:
        after = [user for user in flow.users(node) if passes_on(user)]
        if len(after) != 1:
            return None
        node = after[0]
    return seen[node, 0]


def _hidden(built: Built, seen: Mapping[Edge, Place]) -> tuple[Place | None, bool]:
    flow = built.flow
    heads = {name for name, role in built.others.items() if role == "head"} | {*built.tied}
    products = [node for node, name in flow.matrices.items() if name in heads]
    if not products:
        return None, flow.output.shape[-1] == built.d_model
    node = products[-1]
    while True:
        active = flow.active_edges(node)
        if not active:
            return None, False
        edge = active[0]
        if edge in seen:
            return seen[edge], False
        if not passes_on(edge[0]):
            return None, False
        node = edge[0]


@contextmanager
def observed(module: nn.Module, on: Any, paths: set[str] | None = None) -> Iterator[None]:
    """Tells each tensor that modules are given and answer, while the block runs. paths: those modules alone."""
    calls: Counter[str] = Counter()
    with ExitStack() as hooks:
        for path, part in module.named_modules():
            if paths is not None and path not in paths:
                continue

            def before(_: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
                for number, tensor in enumerate(tensors_in((args, kwargs))):
                    on(Place(path, "in", calls[path], number), tensor)

            def behind(_: nn.Module, args: Any, answer: Any, path: str = path) -> None:
                for number, tensor in enumerate(tensors_in(answer)):
                    on(Place(path, "out", calls[path], number), tensor)
                calls[path] += 1

            hooks.callback(part.register_forward_pre_hook(before, with_kwargs=True).remove)
            hooks.callback(part.register_forward_hook(behind).remove)
        yield


# ---------------------------------------------------------------- a pass as it is, whatever wraps it


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """A pass that the training run does not feel: no gradient, no dropout, no autocast, nothing compiled, and the
    random generators, modes and what modules note in attributes (a number of calls, a loss) as they were."""
    modes = [(part, part.training, dict(vars(part))) for part in module.modules()]
    kind = next((parameter.device.type for parameter in module.parameters()), "cpu")
    devices = sorted({p.device.index for p in module.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(_eagerly())
        stack.enter_context(_without_checkpoints())
        stack.enter_context(apart())
        try:
            module.eval()
            yield
        finally:
            for part, mode, noted in modes:
                part.training = mode
                values = vars(part)
                for name in [name for name in values if name not in noted]:
                    del values[name]
                values.update({name: value for name, value in noted.items() if values.get(name) is not value})


def _eagerly() -> Any:
    """Compiled modules run as they are written; nothing is compiled anew for a probe."""
    stance = getattr(torch.compiler, "set_stance", None)
    return nullcontext() if stance is None else stance("force_eager")


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """Activation checkpoints of the older kind hide what is in them from autograd: in this block they are plain
    calls."""
    from torch.utils import checkpoint

    class Plain:
        @staticmethod
        def apply(function: Any, _: Any, *args: Any) -> Any:
            return function(*args)

    kept = checkpoint.CheckpointFunction
    checkpoint.CheckpointFunction = Plain  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        checkpoint.CheckpointFunction = kept


def unwrapped(module: nn.Module) -> nn.Module:
    """The module that torch.compile, DistributedDataParallel or Accelerate wrap."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner
