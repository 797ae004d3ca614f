"""The weights of networks that are trained together, a row each, and the real optimizers that step them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from depthlaw.sims.model import BRANCH_ROLES
from depthlaw.sims.optim import MIXED, Cut, group_options, make
from depthlaw.sims.training.frontend import Network

if TYPE_CHECKING:
    from depthlaw.sims.training.sharded import ShardedNetwork
    from depthlaw.sims.training.train import TrainConfig

_EPS: Mapping[str, float] = {"adam": 1e-8, "adamw": 1e-8, "rmsprop": 1e-8, "muon": 1e-8, "lamb": 1e-6, MIXED: 1e-8}
"""The eps that people train with, by optimizer; the eps of ``sims.optim.make`` is too small to matter."""
_FUSED = ("sgd", "momentum", "adam", "adamw")
"""The optimizers of torch that step all parameters in one call."""
BY_ENTRY = (*_FUSED, "rmsprop", "signsgd", "lion", "sophia")
"""The optimizers that move every entry by itself, wherever it stands."""
_DECAYS_GRADIENT = ("sgd", "momentum", "adam", "rmsprop")
"""Those of them that add weight decay to the gradient; the others decay the weights."""
_BY_NORM = ("lars", "lamb")
"""Those that take several tensors in a row, and want to know their sizes."""


@dataclass(frozen=True)
class _Member:
    """A member's optimizer, and its leaves: each with where it begins and ends in the member's row."""

    config: TrainConfig
    leaves: list[tuple[nn.Parameter, int, int]]
    optimizer: Optimizer


class Weights:
    """The weights of a network's members and their gradients, a row each, and each one's own optimizer of its row.

    An optimizer that wants norms alone is given few long pieces of the row, any other the tensors.
    """

    def __init__(self, network: Network, configs: Sequence[TrainConfig]) -> None:
        tagged = network.tagged()
        groups = [
            [_group(config, role, p.dim() - 1, float(rates[member])) for _, p, role, rates in tagged]
            for member, config in enumerate(configs)
        ]
        # Those of one group side by side, so that they are one piece.
        order = sorted(range(len(tagged)), key=lambda index: groups[0].index(groups[0][index]))
        self._named = [tagged[index][:2] for index in order]
        self._ends = [0]
        for _, parameter in self._named:
            self._ends.append(self._ends[-1] + parameter[0].numel())
        rows = torch.cat([parameter.detach().reshape(len(configs), -1) for _, parameter in self._named], dim=1)
        self._make_optimizers(rows, configs, [[of_member[index] for index in order] for of_member in groups])
        self._place(rows)

    def _make_optimizers(
        self, rows: Tensor, configs: Sequence[TrainConfig], groups: Sequence[Sequence[_Group]]
    ) -> None:
        """groups: of each member, that of each parameter in the order of the row."""
        self._members: list[_Member] = []
        for row, config, of_member in zip(rows, configs, groups, strict=True):
            pieces = list(self._cut(row, of_member, config))
            leaves = [(leaf, begin, begin + sum(sizes)) for _, leaf, begin, sizes in pieces]
            self._members.append(_Member(config, leaves, _optimizer(pieces, config)))

    def _cut(self, row: Tensor, groups: Sequence[_Group], config: TrainConfig) -> Iterator[_Piece]:
        """The parts of a row that the optimizer takes for its parameters."""
        sizes = [end - begin for begin, end in pairwise(self._ends)]
        if config.optimizer in _BY_NORM:
            for group, several in groupby(range(len(groups)), key=lambda index: groups[index]):
                indices = list(several)
                begin, end = self._ends[indices[0]], self._ends[indices[-1] + 1]
                yield _Piece(group, nn.Parameter(row[begin:end]), begin, [sizes[index] for index in indices])
            return
        for index, (_, parameter) in enumerate(self._named):
            begin, end = self._ends[index : index + 2]
            yield _Piece(groups[index], nn.Parameter(row[begin:end].view(parameter.shape[1:])), begin, [sizes[index]])

    def _place(self, rows: Tensor) -> None:
        """Have parameters, and the gradients that are to come, be views of these rows and of others like them."""
        self.rows, self.gradients = rows, torch.empty_like(rows)
        for index, (_, parameter) in enumerate(self._named):
            parameter.data = self._part(rows, index)
        self._place_leaves()

    def _place_leaves(self) -> None:
        for row, gradient, member in zip(self.rows, self.gradients, self._members, strict=True):
            for leaf, begin, end in member.leaves:
                shape = leaf.shape
                leaf.data, leaf.grad = row[begin:end].view(shape), gradient[begin:end].view(shape)

    def _part(self, rows: Tensor, index: int) -> Tensor:
        """What a parameter is of such rows."""
        shape, (begin, end) = self._named[index][1].shape[1:], self._ends[index : index + 2]
        return rows[:, begin:end].unflatten(1, shape) if shape else rows[:, begin]

    def named(self, rows: Tensor) -> dict[str, Tensor]:
        """What each parameter is of such rows, (E, ...)."""
        return {name: self._part(rows, index) for index, (name, _) in enumerate(self._named)}

    def take_gradients(self, loss: Tensor) -> None:
        parameters = [parameter for _, parameter in self._named]
        of_tensors = torch.autograd.grad(loss, parameters, materialize_grads=True)
        torch.cat([gradient.reshape(len(gradient), -1) for gradient in of_tensors], dim=1, out=self.gradients)

    def matrix_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """(name, gradient) of every parameter that is a matrix, (E, rows, columns)."""
        for index, (name, parameter) in enumerate(self._named):
            if parameter.dim() == 3:
                yield name, self._part(self.gradients, index)

    def take_step(self, members: Sequence[int], step: int) -> None:
        """members: those whose loss was finite."""
        for state in (self._members[member] for member in members):
            if state.config.clip_norm is not None:
                nn.utils.clip_grad_norm_([leaf for leaf, _, _ in state.leaves], state.config.clip_norm)
            for group in state.optimizer.param_groups:
                group["lr"] = group["peak"] * state.config.rate_at(step)
            state.optimizer.step()

    def step_under(self, gradients: Tensor, members: Sequence[int], step: int) -> Tensor:
        """The rows (E, P) behind the step that would be taken with these gradients (E, P). It is not taken: weights,
        gradients and what the optimizers keep are then as before."""
        rows, own = self.rows.clone(), self.gradients.clone()
        kept = [copy.deepcopy(optimizer.state_dict()) for optimizer in self._optimizers]
        self.gradients.copy_(gradients)
        self.take_step(members, step)
        behind = self.rows.clone()
        self.rows.copy_(rows)
        self.gradients.copy_(own)
        for optimizer, state in zip(self._optimizers, kept, strict=True):
            optimizer.load_state_dict(state)
        return behind

    @property
    def _optimizers(self) -> list[Optimizer]:
        return [member.optimizer for member in self._members]

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all members but these."""
        self._members = [self._members[index] for index in kept]
        self._place(self.rows[list(kept)])

    def state(self, member: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint keeps of a member: its weights by their name, and the state of its optimizer."""
        weights = {name: parameter.detach()[member].clone() for name, parameter in self._named}
        return weights, self._optimizer_of(member)

    def _optimizer_of(self, member: int) -> dict[str, Any]:
        return self._members[member].optimizer.state_dict()

    @torch.no_grad()
    def restore(self, member: int, kept: Mapping[str, Any]) -> None:
        for name, parameter in self._named:
            parameter[member] = kept["network"][name]
        self._restore_optimizer(member, kept["optimizer"])

    def _restore_optimizer(self, member: int, kept: Mapping[str, Any]) -> None:
        self._members[member].optimizer.load_state_dict(dict(kept))


class Rows(Weights):
    """The same under an optimizer that moves every entry by itself: one serves the rows of all members.

    It is given zeros to step from, at rate 1 and without decay, so that what it leaves there is minus the direction of
    its step; each member's rates and decay multiply that. Members so cost no calls of their own, which on a GPU would
    take longer than the networks.
    """

    def _make_optimizers(
        self, rows: Tensor, configs: Sequence[TrainConfig], groups: Sequence[Sequence[_Group]]
    ) -> None:
        config = configs[0]
        self._configs = list(configs)
        self._steps = nn.Parameter(torch.zeros_like(rows))
        whole = _Piece(_Group(1.0, 0.0, is_branch=True), self._steps, 0, [])
        self._optimizer = _optimizer([whole], replace(config, learning_rate=1.0))
        self._parts: list[tuple[slice, list[_Group]]] = []
        """Columns that are of one group in every member, with these groups."""
        alike = groupby(range(len(self._named)), key=lambda index: [of_member[index] for of_member in groups])
        for of_members, several in alike:
            indices = list(several)
            self._parts.append((slice(self._ends[indices[0]], self._ends[indices[-1] + 1]), of_members))

    def _place_leaves(self) -> None:
        self._steps.data, self._steps.grad = torch.zeros_like(self.rows), self.gradients

    @torch.no_grad()
    def take_step(self, members: Sequence[int], step: int) -> None:
        """Of all members: what a run that is over does meanwhile, nobody sees."""
        clips = [math.inf if config.clip_norm is None else config.clip_norm for config in self._configs]
        if min(clips) < math.inf:  # as torch.nn.utils.clip_grad_norm_ has it
            factors = self.rows.new_tensor(clips) / (torch.linalg.vector_norm(self.gradients, dim=1) + 1e-6)
            self.gradients.mul_(factors.clamp(max=1.0)[:, None])
        rates = [config.learning_rate * config.rate_at(step) for config in self._configs]
        adds_decay = self._configs[0].optimizer in _DECAYS_GRADIENT
        for columns, groups in self._parts:
            decays = [group.decay for group in groups]
            if any(decays) and adds_decay:
                self.gradients[:, columns].addcmul_(self.rows[:, columns], self._column(decays))
            elif any(decays):
                factors = [1 - rate * g.multiplier * g.decay for rate, g in zip(rates, groups, strict=True)]
                self.rows[:, columns].mul_(self._column(factors))
        self._optimizer.step()
        for columns, groups in self._parts:
            lengths = [rate * group.multiplier for rate, group in zip(rates, groups, strict=True)]
            self.rows[:, columns].addcmul_(self._steps[:, columns], self._column(lengths))
        self._steps.zero_()

    @property
    def _optimizers(self) -> list[Optimizer]:
        return [self._optimizer]

    def _column(self, numbers: Sequence[float]) -> Tensor:
        return self.rows.new_tensor(numbers)[:, None]

    def keep(self, kept: Sequence[int]) -> None:
        self._configs = [self._configs[index] for index in kept]
        self._parts = [(columns, [groups[index] for index in kept]) for columns, groups in self._parts]
        state = self._optimizer.state[self._steps]
        state |= {name: value[list(kept)] for name, value in state.items() if _is_of_rows(value)}
        self._place(self.rows[list(kept)])

    def _optimizer_of(self, member: int) -> dict[str, Any]:
        state = self._optimizer.state[self._steps]
        return {name: value[member].clone() if _is_of_rows(value) else value for name, value in state.items()}

    def _restore_optimizer(self, member: int, kept: Mapping[str, Any]) -> None:
        """Members of one stack are behind the same step: what is no row is the same of all."""
        state = self._optimizer.state[self._steps]
        for name, value in kept.items():
            if not _is_of_rows(value, 1):
                state[name] = value.to(self.rows.device) if self._configs[0].optimizer in _FUSED else value
                continue
            if name not in state:
                state[name] = torch.zeros_like(self.rows)
            state[name][member] = value.to(self.rows.device)


def _is_of_rows(value: Any, num_dims: int = 2) -> bool:
    """Whether what an optimizer keeps is of each entry; a count of steps is not."""
    return isinstance(value, Tensor) and value.dim() == num_dims


class ShardedWeights(Weights):
    """The same of one network that is cut over processes, whose optimizer has the parameters as they are kept."""

    def __init__(self, network: ShardedNetwork, config: TrainConfig) -> None:
        self._processes = network.processes
        tagged = network.tagged()
        self._named = [(name, parameter) for name, parameter, _, _ in tagged]
        groups = [_group(config, role, parameter.dim(), float(rates[0])) for _, parameter, role, rates in tagged]
        leaves = [parameter for _, parameter in self._named]
        pieces = [_Piece(group, leaf, 0, [leaf.numel()]) for group, leaf in zip(groups, leaves, strict=True)]
        optimizer = _optimizer(pieces, config, self._processes)
        self._members = [_Member(config, [(leaf, 0, leaf.numel()) for leaf in leaves], optimizer)]

    def take_gradients(self, loss: Tensor) -> None:
        for _, parameter in self._named:
            parameter.grad = None
        loss.backward()
        for _, parameter in self._named:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def matrix_gradients(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._named:
            if parameter.dim() == 2:
                assert parameter.grad is not None
                yield name, self._processes.whole(parameter.grad)[None]

    def save(self, folder: Path, step: int, content: Mapping[str, Any]) -> None:
        self._processes.save(folder, step, content, self._tensors())

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the weights and what the optimizer keeps of them, under names of their own."""
        kept = {f"weights.{name}": parameter.detach() for name, parameter in self._named}
        for name, parameter in self._named:
            state = self._members[0].optimizer.state[parameter]
            kept |= {f"optimizer.{name}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        return kept

    def restore(self, member: int, kept: Mapping[str, Any]) -> None:
        # A step of length 0 makes whatever the optimizer keeps, which is then written over.
        optimizer = self._members[member].optimizer
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        for _, parameter in self._named:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        self._processes.read(kept["folder"], self._tensors())
        for state in optimizer.state.values():
            state |= {key: kept["history"]["step"] for key, value in state.items() if isinstance(value, int)}


# ---------------------------------------------------------------- pieces


class _Group(NamedTuple):
    """What parameters of one group of an optimizer have in common. is_branch: under two optimizers, whose they are."""

    multiplier: float
    decay: float
    is_branch: bool


def _group(config: TrainConfig, role: str, num_dims: int, multiplier: float) -> _Group:
    decay = config.weight_decay if num_dims == 2 else 0.0
    return _Group(multiplier, decay, config.optimizer != MIXED or role in BRANCH_ROLES)


class _Piece(NamedTuple):
    """A part of a row: one tensor, or several one behind the other, of these sizes; or a parameter by itself."""

    group: _Group
    leaf: nn.Parameter
    begin: int
    sizes: list[int]


def _optimizer(pieces: Sequence[_Piece], config: TrainConfig, cut: Cut | None = None) -> Optimizer:
    """The optimizer of a run. cut: how its parameters are cut over processes, where they are."""
    parts: list[dict[str, Any]] = []
    by_group: dict[_Group, list[nn.Parameter]] = {}
    for group, leaf, _, sizes in pieces:
        known = by_group.get(group)
        if known is not None and config.optimizer not in _BY_NORM:
            known.append(leaf)
            continue
        by_group[group] = [leaf]
        rate = config.learning_rate * group.multiplier
        part = {"params": by_group[group], "lr": rate, "peak": rate, "weight_decay": group.decay}
        part |= {} if cut is None else {"cut": cut}
        part |= {"sizes": sizes} if config.optimizer in _BY_NORM and len(sizes) > 1 else {}
        parts.append(part | group_options(config.optimizer, is_branch=group.is_branch))
    options: dict[str, Any] = {"eps": _EPS[config.optimizer]} if config.optimizer in _EPS else {}
    options |= {"fused": True} if config.optimizer in _FUSED and cut is None else {}
    try:
        return make(config.optimizer, parts, config.learning_rate, **{**options, **config.optimizer_options})
    except TypeError as error:
        raise ValueError(f"optimizer_options of {config.optimizer}: {error}") from error
