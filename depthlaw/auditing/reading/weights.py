"""Matrices of a branch: each a parameter, or those rows of a fused one that have one role."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

_OF_ONE = 0.1
"""How near to 1 the power iteration brings the largest singular value of a matrix."""


@dataclass(frozen=True)
class Weight:
    """A matrix of a branch, or those rows of a fused one that have one role.

    name: of the parameter. features: numbers of its output features, None for all; where several dimensions of the
    parameter count outputs (experts, heads), numbers of the flattened ones. output_dim: the dimension of the parameter
    that counts output features, the last of output_dims. layer: the block that it is in, from 1. expert: of those of
    one role in a sublayer, from 0. factor: the scale of the matrix that the data meet over that of the parameter, as
    behind ``weight_norm`` or times a number.
    """

    role: str
    name: str
    side: str
    layer: int
    parameter: nn.Parameter
    features: Tensor | None = None
    output_dim: int = 0
    expert: int = 0
    output_dims: tuple[int, ...] = ()
    factor: float = 1.0

    def of(self, tensor: Tensor) -> Tensor:
        """Its part of the parameter, or of the parameter's gradient: output features x inputs."""
        rows = rows_of(tensor.detach(), self.output_dims or (self.output_dim,))
        return rows if self.features is None else rows.index_select(0, self.features)

    def write(self, rows: Tensor) -> None:
        """Set its part of the parameter: output features x inputs."""
        dims = self.output_dims or (self.output_dim,)
        order = [*dims, *(dim for dim in range(self.parameter.ndim) if dim not in dims)]
        whole = rows_of(self.parameter.detach(), dims).clone()
        whole[slice(None) if self.features is None else self.features] = rows.to(whole)
        turned = whole.reshape([self.parameter.shape[dim] for dim in order])
        with torch.no_grad():
            self.parameter.copy_(turned.permute([order.index(dim) for dim in range(self.parameter.ndim)]))

    @cached_property
    def std(self) -> float:
        """Of the entries of the matrix that the data meet, when it is first asked for."""
        return self.factor * self.of(self.parameter).double().std().item() if self.parameter.numel() > 1 else 0.0

    @cached_property
    def num_draws(self) -> int:
        """How many independent entries tell its standard deviation as well. Of a matrix that is divided by its largest
        singular value that scatters as this does: relative, by a power of 2/3 of the width less than 1."""
        entries = self.of(self.parameter)
        if self.factor == 1 or entries.numel() < 2:
            return entries.numel()
        whole = rows_of(self.parameter.detach(), self.output_dims or (self.output_dim,)).double()
        largest = self.factor * torch.linalg.matrix_norm(whole, 2).item()
        return int(min(entries.shape) ** (4 / 3)) if abs(largest - 1) < _OF_ONE else entries.numel()

    @cached_property
    def entries(self) -> tuple[str, int, bytes | None]:
        """Which entries of which parameter it is: of two weights that are one and the same matrix alike. A parameter
        may hold the matrices of all layers."""
        return self.name, self.expert, None if self.features is None else self.features.cpu().numpy().tobytes()

    @property
    def num_matrices(self) -> int:
        """How many matrices of a stacked parameter it is, as of experts; one of a stack of layers is one."""
        if len(self.output_dims) < 2:
            return 1
        sizes = [self.parameter.shape[dim] for dim in self.output_dims]
        return math.prod(sizes[:-1]) if self.features is None else len((self.features // sizes[-1]).unique())

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(output features, inputs)."""
        return tuple(self.of(self.parameter).shape)


def rows_of(tensor: Tensor, output_dims: Sequence[int]) -> Tensor:
    """Outputs x inputs of a tensor of which these dimensions count outputs."""
    inputs = [dim for dim in range(tensor.ndim) if dim not in output_dims]
    outputs = math.prod(tensor.shape[dim] for dim in output_dims)
    return tensor.permute(*output_dims, *inputs).reshape(outputs, -1)


def gates_completed(weights: Sequence[Weight]) -> list[Weight]:
    """With all features of a fused gate that no other role has: those whose activation is 0 for every token of the pass
    send nothing back."""
    completed = []
    for weight in weights:
        others = [w.features for w in weights if w.name == weight.name and w.role != "fc1" and w.features is not None]
        has_up = any(w.name == weight.name and w.role == "fc3" for w in weights)
        if weight.role == "fc1" and has_up and others and weight.parameter.ndim == 2:
            is_gate = torch.ones(weight.parameter.shape[weight.output_dim], dtype=torch.bool)
            is_gate[torch.cat(others).cpu()] = False
            features = is_gate.nonzero().flatten().to(weight.parameter.device)
            completed.append(replace(weight, features=features))
        else:
            completed.append(weight)
    return completed


def without_role(weights: Sequence[Weight]) -> Iterator[str]:
    """Which matrices of a sublayer have output features without a role, a line each."""
    for name in dict.fromkeys(weight.name for weight in weights):
        named = [weight for weight in weights if weight.name == name]
        if (parts := [weight.features for weight in named if weight.features is not None]) and len(parts) == len(named):
            rows = math.prod(named[0].parameter.shape[dim] for dim in named[0].output_dims)
            rest = rows - len(torch.cat(parts).unique())
            if rest and named[0].parameter.ndim == 2:
                yield f"{rest} of {rows} output features of {name} have no role"


def merged(weights: Sequence[Weight], elsewhere: Collection[str]) -> list[Weight]:
    """With the experts of one parameter as one weight for each role.

    An expert to which no token went has the features of the others, unless the parameter is used elsewhere: then it is
    one of several layers.
    """
    stacks: dict[str, list[Weight]] = {}
    for weight in weights:
        if weight.parameter.ndim > 2 and len(weight.output_dims) == 2:
            stacks.setdefault(weight.name, []).append(weight)
    merged = [weight for weight in weights if weight.name not in stacks]
    for stack in stacks.values():
        outer, inner = (stack[0].parameter.shape[dim] for dim in stack[0].output_dims)
        by_role: dict[str, Tensor] = {}
        for weight in stack:
            mask = by_role.setdefault(weight.role, torch.zeros(outer, inner, dtype=torch.bool))
            mask.view(-1)[slice(None) if weight.features is None else weight.features.cpu()] = True
        is_used = torch.stack([mask.any(1) for mask in by_role.values()]).any(0)
        for role, mask in by_role.items():
            if stack[0].name not in elsewhere:
                mask[~is_used] = mask[is_used].any(0)
            features = None if mask.all() else mask.flatten().nonzero().flatten().to(stack[0].parameter.device)
            merged.append(replace(next(w for w in stack if w.role == role), features=features))
    return merged
