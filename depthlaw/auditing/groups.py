"""The groups of the user's optimizer, by the parameters of the module that it is made for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from depthlaw.auditing.inputs import line_of
from depthlaw.auditing.reading.look import Built
from depthlaw.sims.config import BRANCH_ROLES

FINAL = "final_norm"
"""Of a norm behind the last sublayer, beside those of the branches."""
VECTORS = ("norm_gain", "norm_bias", "layer_scale", "branch_weight")
"""Roles of what is trained in the branches beside matrices and their biases."""
ENDS = ("embedding", "positions", "head", FINAL)
"""Roles outside of the branches that a law of depth leaves alone."""


class Setting(NamedTuple):
    """What a group gives its parameters. optimizer: the name of its class, None of a group alone. What the group does
    not say is None."""

    optimizer: str | None
    learning_rate: float | None
    eps: float | None
    weight_decay: float | None


@dataclass(frozen=True)
class Groups:
    """settings: of each trained parameter by name, one for each time that it is in a group; tied parameters are one.
    strangers: the shapes of what groups have and the module has not. optimizers: names of their classes."""

    settings: Mapping[str, Sequence[Setting]]
    strangers: Sequence[tuple[int, ...]]
    optimizers: Sequence[str]


Given = Callable[[nn.Module], Any]
"""The user's own function: of a module to an optimizer, to several, or to parameter groups."""


def read(function: Given, module: nn.Module) -> Groups:
    """ValueError, in one line, where the function raises, answers something else, or means another module."""
    try:
        answer = function(module)
    except Exception as error:  # whatever a function of somebody else raises
        raise ValueError(f"--groups failed: {line_of(error)}") from error
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    settings: dict[str, list[Setting]] = {name: [] for name in names.values() if name in trained}
    strangers: list[tuple[int, ...]] = []
    optimizers: dict[str, None] = {}
    num_found = 0
    for optimizer, group in _groups(answer, None):
        setting = Setting(
            optimizer,
            _number(group.get("initial_lr", group.get("lr"))),  # the one that a schedule begins with counts
            _number(group.get("eps")),
            _number(group.get("weight_decay")),
        )
        optimizers |= {} if optimizer is None else {optimizer: None}
        for parameter in _parameters(group["params"]):
            name = names.get(id(parameter))
            num_found += name is not None
            if name is None:
                strangers.append(tuple(parameter.shape))
            elif name in trained:
                settings[name].append(setting)
    if not num_found:
        has = "parameters of another model" if strangers else "no parameter at all"
        raise ValueError(f"--groups: what it answers has {has}: it must be made of the model that it is called with")
    return Groups(settings, strangers, tuple(optimizers))


def _groups(answer: Any, optimizer: str | None) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    if isinstance(groups := getattr(answer, "param_groups", None), list):
        yield from _groups(groups, type(answer).__name__)
    elif isinstance(answer, Mapping) and "params" in answer:
        yield optimizer, answer
    elif isinstance(answer, (list, tuple)):
        for part in answer:
            yield from _groups(part, optimizer)
    else:
        raise ValueError(
            f"--groups answered something of type {type(answer).__name__}: it must be a torch optimizer, a list of "
            "them, or a list of parameter groups, each a dict with params"
        )


def _parameters(given: Any) -> Iterator[Tensor]:
    for entry in [given] if isinstance(given, Tensor) or not isinstance(given, Iterable) else given:
        parameter = (
            entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
        )  # with its name, as torch takes it
        if not isinstance(parameter, Tensor):
            raise ValueError(
                f"--groups: the params of a group have something of type {type(entry).__name__}, no tensor"
            )
        yield parameter


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


# ---------------------------------------------------------------- by role


def roles_of(built: Built) -> dict[str, tuple[str, ...]]:
    """The roles of every trained parameter by name, several of a fused matrix; matrices of branches come first, by the
    order of the block."""
    by_name: dict[str, dict[str, None]] = {}
    for weight in built.weights:
        by_name.setdefault(weight.name, {})[weight.role] = None
    roles = {name: tuple(several) for name, several in by_name.items()}
    for name, parameter in built.module.named_parameters():
        if parameter.requires_grad and name not in roles:
            role = built.others.get(name, "other")
            roles[name] = (FINAL if name in built.final_norms else role,)
    order = (*BRANCH_ROLES, "bias", *VECTORS)
    names = [name for name, parameter in built.module.named_parameters() if parameter.requires_grad]
    place = {name: order.index(roles[name][0]) if roles[name][0] in order else len(order) for name in names}
    return {name: roles[name] for name in sorted(names, key=place.__getitem__)}


def is_of_branch(built: Built, name: str, roles: Sequence[str]) -> bool | None:
    """Whether a parameter is trained in the branches, for which a scheme's law of depth is, or at an end of the stream,
    which it leaves alone; None of what it says nothing of."""
    with_biases = {*roles, *built.biases.get(name, ())}
    if with_biases & {*BRANCH_ROLES, *VECTORS}:
        return True
    return False if with_biases & {*ENDS} else None
