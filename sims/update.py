"""The model update of real networks, exact to first order: gradients by autograd, and what a real step changes.

The objective is one logit (the update of the theorems), or a cross-entropy. With g its gradient by one matrix and s the
direction of an optimizer's real first step, the objective moves by -lr <g, s>; summed over the matrices and in units of
a power of the width (``config.NORMALISATION``) that is the update U per unit learning rate. What else the step moves
(another logit, the last hidden state, the loss) is the forward-mode derivative along s. No step size is chosen.

Dimensions: E ensemble members, B batch, T tokens, D d_model. All of it is taken from one forward and one
backward pass, and so stands in one module.

``Task`` says what the networks are given and what is read, ``draw_inputs`` draws it, ``first_order`` takes one forward
and one backward pass, ``roles_of`` adds up by role: (E,) each, E members. ``logit_tangents`` is what a step, whoever
took it, changes in all logits. It is one module, since all of these are taken from one forward and one backward pass.

>>> import torch
>>> from depthlaw.sims.ensemble import Ensemble, Member
>>> from depthlaw.sims.model import ModelConfig, alternating
>>> from depthlaw.sims.update import Task, draw_inputs, first_order, roles_of
>>> task = Task(num_tokens=4)
>>> config = task.on(ModelConfig(encoder=alternating(4), d_model=16))
>>> ensemble = Ensemble([Member(config, seed) for seed in (0, 1, 2)])
>>> inputs = draw_inputs(config, task, (0, 1, 2), torch.float64, "cpu")
>>> order = first_order(ensemble, inputs, task, ["sgd"])
>>> roles = roles_of(ensemble, order.functionals["sgd"])
>>> sorted(roles), tuple(roles["update"].shape)
(['fc1', 'fc2', 'head', 'k', 'out', 'q', 'update', 'v'], (3,))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from depthlaw.sims.config import BRANCH_ROLES, ModelConfig, Task
from depthlaw.sims.ensemble import Ensemble
from depthlaw.sims.optim import MIXED, NORMALISATION, first_step, group_options, make, step_length


@dataclass(frozen=True)
class Inputs:
    """x (E, B, T, D) or tokens (E, B, T); y of the decoder, where there is one; labels (E, B, T)."""

    x: Tensor
    y: Tensor | None
    labels: Tensor


_STREAM = 1_000_003
"""Inputs are drawn from other seeds than weights are."""


def draw_inputs(
    config: ModelConfig, task: Task, seeds: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> Inputs:
    """Draw each seed's inputs and labels. They are drawn on the CPU, so they are the same on every device."""
    sides: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    labels = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(_STREAM + seed)
        shape = (task.batch_size, task.num_tokens)
        for side, drawn in sides.items():
            if config.vocab_size:
                drawn.append(torch.randint(config.vocab_size, shape, generator=generator))
                continue
            noise = torch.randn((*shape, config.d_model), generator=generator, dtype=torch.float64)
            common = torch.randn((shape[0], 1, config.d_model), generator=generator, dtype=torch.float64)
            mixed = math.sqrt(task.correlation) * common + math.sqrt(1 - task.correlation) * noise
            drawn.append((config.embedding_std_of(side) * mixed).to(dtype))
        labels.append(torch.randint(task.num_classes, shape, generator=generator))
    x, y = (torch.stack(drawn).to(device) for drawn in sides.values())
    return Inputs(x, y if config.decoder else None, torch.stack(labels).to(device))


def readings(model: Ensemble, hidden: Tensor, inputs: Inputs, task: Task) -> dict[str, Tensor]:
    """What is read of the output, (E,) each, means over the batch: "logit"; for a cross-entropy also "label_logit" and
    "loss".
    """
    read, labels = (hidden, inputs.labels) if task.readout == "sum" else (hidden[..., -1:, :], inputs.labels[..., -1:])
    logits = model.logits(read)
    if task.objective == "logit":
        return {"logit": logits.diagonal(dim1=-2, dim2=-1).sum(-1).mean(-1)}
    of_label = logits.gather(-1, labels[..., None])[..., 0]
    return {
        "logit": logits[..., 0].mean((-2, -1)),
        "label_logit": of_label.mean((-2, -1)),
        "loss": (logits.logsumexp(-1) - of_label).mean((-2, -1)),
    }


def objective(model: Ensemble, hidden: Tensor, inputs: Inputs, task: Task) -> Tensor:
    """The number (E,) that the optimizer makes smaller."""
    return readings(model, hidden, inputs, task)[task.reading]


# ---------------------------------------------------------------- first order

INPUTS = ("encoder_inputs", "decoder_inputs")
"""Names of the input vectors, where they train: tables (E, B T, D)."""


@dataclass(frozen=True)
class Divergence:
    """Where a member stopped being finite. index: of the stream x_index; behind the last sublayer, the final norm's.

    in_pass: forward, backward, update (a sum of squares, say), or step: what a step of finite length came to.
    """

    side: str
    index: int
    in_pass: str

    @property
    def text(self) -> str:
        return f"{self.in_pass} pass, {self.side}, x_{self.index}"


@dataclass
class Stream:
    """One x_index of one side, by member: E x^2 over all entries and ||d objective / d x||^2; where they were asked
    for, the mean cosine of two tokens of a sequence, and that with the same token of x_0 and of the x before it (1 at
    x_0).
    """

    second_moment: Tensor
    token_correlation: Tensor | None
    cosine_with_input: Tensor | None
    cosine_with_previous: Tensor | None
    is_finite: Tensor
    gradient_square: Tensor | None = None


@dataclass
class FirstOrder:
    """What one forward and one backward pass give.

    values: by optimizer and parameter, <g, first step> in the optimizer's unit, with the learning-rate multiplier, (E,)
    each. functionals: the same by the definition of the update, which differs under LAMB. steps: the steps themselves,
    if they were asked for. readings: what is read of the output before the step.
    """

    values: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    functionals: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    steps: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    streams: dict[tuple[str, int], Stream] = field(default_factory=dict)
    readings: dict[str, Tensor] = field(default_factory=dict)


def first_order(
    model: Ensemble,
    inputs: Inputs,
    task: Task,
    optimizers: Iterable[str],
    *,
    keeps_steps: bool = False,
    has_cosines: bool = False,
    on_stream: Callable[[], None] = lambda: None,
) -> FirstOrder:
    """One forward and one backward pass. Each gradient is reduced as it arrives and dropped, so no two are held.

    has_cosines: whether streams have theirs. on_stream: called at every x_l on either way; what it raises ends the
    pass.
    """
    x, y = _leaf(inputs.x), None if inputs.y is None else _leaf(inputs.y)
    ends = {name: leaf for name, leaf in zip(INPUTS, (x, y), strict=True) if leaf is not None and leaf.requires_grad}
    trained: dict[str, Tensor] = {name: parameter for name, parameter, _ in model.tagged()}
    trained |= ends if task.trains_inputs else {}
    reducer = _Reducer(model, trained, tuple(optimizers), keeps_steps=keeps_steps)
    order = reducer.order
    # Those of matrices are received, on the way to the gradients of vectors, tables and inputs.
    leaves = ends | {name: leaf for name, leaf in trained.items() if model.roles.get(name) not in _RECEIVED}
    try:
        watch = _Watch(model, on_stream, has_cosines=has_cosines)
        model.receive, hidden = reducer.receive, x
        for side, index, hidden in model.walk(x, y):
            watch.look(side, index, hidden)
        model.factors = None
        order.readings = readings(model, hidden, inputs, task)
        total = order.readings[task.reading].sum()
        grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    finally:
        model.factors, model.receive = None, None
    order.readings = {name: value.detach() for name, value in order.readings.items()}
    order.streams = watch.streams()
    reducer.take(dict(zip(leaves, grads, strict=True)))
    return order


_RECEIVED = (*BRANCH_ROLES, "head")
"""The roles of what multiplies vectors."""
_NEAR = 2**21
"""The bytes of a gradient that are made at once, of as many members as have so many: norms then find it in the cache.
"""


class _Reducer:
    """Makes numbers of gradients: (P, E) of P parameters and E members, by optimizer.

    Where a step stays, results are allocated beforehand. One that is allocated between two gradients would take the
    place of the first, where the next gradient, of the same size, would no longer fit: the process grew by a copy of
    all weights.
    """

    def __init__(
        self, model: Ensemble, trained: Mapping[str, Tensor], optimizers: Sequence[str], *, keeps_steps: bool
    ) -> None:
        self.model, self.trained, self.keeps_steps = model, trained, keeps_steps
        self.order = FirstOrder(steps={optimizer: {} for optimizer in optimizers})
        self.rows, first = {name: row for row, name in enumerate(trained)}, next(iter(trained.values()))
        self._room = partial(torch.empty, (len(trained), model.num_members), dtype=first.dtype, device=first.device)
        self._rooms: dict[str, list[Tensor]] = {}
        for optimizer in optimizers:
            is_one = optimizer != "lamb" and not keeps_steps  # the definition's update is that of the real step
            self._rooms[optimizer] = [self._room() for _ in range(2 - is_one)]
            tables = [dict(zip(trained, room, strict=True)) for room in self._rooms[optimizer]]
            self.order.functionals[optimizer], self.order.values[optimizer] = tables[0], tables[-1]
        sums = None if keeps_steps else [SUMS.get(optimizer) for optimizer in optimizers]
        has_all = sums is not None and None not in sums
        self._sums = tuple({norm: None for several in sums or () for norm in several or ()}) if has_all else None
        self._matrices: dict[tuple[torch.Size, bool], tuple[list[str], list[list[Tensor]]]] = {}
        self._reduced: set[str] = set()
        self._visits: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self._near: Tensor | None = None
        self._near_of: dict[torch.Size, list[Sequence[Tensor]]] = {}

    def receive(self, name: str, weight_EFD: Tensor, x_END: Tensor, grad_ENF: Tensor) -> None:
        """Of a matrix that multiplies at several visits the gradient is made at the last one that is received: norms of
        its parts do not add up."""
        visits = self._visits.setdefault(name, [])
        visits.append((x_END, grad_ENF))
        if len(visits) == self.model.config.visits or self.model.roles[name] not in BRANCH_ROLES:
            self._reduce(name, weight_EFD)

    def _reduce(self, name: str, weight_EFD: Tensor) -> None:
        assert name not in self._reduced, f"{name} multiplies more often than its layer is visited"
        self._reduced.add(name)
        is_branch, visits = self.model.roles[name] in BRANCH_ROLES, self._visits.pop(name)
        x_END, grad_ENF = visits[0]
        if len(visits) > 1:
            x_END, grad_ENF = (torch.cat(several, 1) for several in zip(*visits, strict=True))
        if self._sums is None:
            grad_EFD = torch.bmm(grad_ENF.mT, x_END)
            self._write([name], Norms(grad_EFD, weight_EFD, 2, is_branch, rank=x_END.shape[1]))
            return
        names, numbers = self._matrices.setdefault((weight_EFD.shape, is_branch), ([], []))
        names.append(name)
        rooms, parts = self._rooms_of(weight_EFD), [(weight_EFD, x_END, grad_ENF)]
        if len(rooms) > 1:
            parts = zip(*(of_all.split(len(rooms[0][0])) for of_all in parts[0]), strict=True)
        for (room, scratch), (weight, x, grad) in zip(rooms, parts, strict=True):
            gradient = torch.bmm(grad.mT, x, out=room)
            norms = Norms(gradient, weight, 2, is_branch, rank=x.shape[1], scratch=scratch)
            numbers.append([getattr(norms, norm) for norm in self._sums])

    def _rooms_of(self, weight_EFD: Tensor) -> list[Sequence[Tensor]]:
        """Rooms for the gradients of a matrix and for what is made of them, for as many members at once as stay in the
        cache. The next matrix has them too: what is given back at each is taken from the system anew."""
        shape = weight_EFD.shape
        if self._near is None:
            largest = max(p.numel() for name, p in self.trained.items() if self.model.roles.get(name) in _RECEIVED)
            self._near = weight_EFD.new_empty(2, min(largest, max(largest // shape[0], _NEAR // weight_EFD.itemsize)))
        if shape not in self._near_of:
            size, (room, scratch) = shape[1:].numel(), self._near
            at_once = min(shape[0], max(1, _NEAR // (size * room.itemsize)))
            sizes = [min(at_once, shape[0] - start) for start in range(0, shape[0], at_once)]
            views = ((room[: n * size].view(n, *shape[1:]), scratch[: n * size].view(n, size)) for n in sizes)
            self._near_of[shape] = list(views)
        return self._near_of[shape]

    @torch.no_grad()
    def take(self, grads: Mapping[str, Tensor | None]) -> None:
        """What was not received, and what is left to do: learning-rate multipliers, and powers of the width."""
        for name in list(self._visits):  # no gradient came from some of its visits
            self._reduce(name, self.trained[name])
        for (shape, is_branch), (names, numbers) in self._matrices.items():
            assert self._sums is not None
            bare = torch.empty((len(names) * shape[0], *shape[1:]), device="meta")
            norms = Norms(bare, bare, 2, is_branch)
            vars(norms).update(zip(self._sums, map(torch.cat, zip(*numbers, strict=True)), strict=True))
            self._write(names, norms)
        rest: dict[tuple[torch.Size, bool], list[str]] = {}
        for name, leaf in self.trained.items():
            if name not in self._reduced:
                rest.setdefault((leaf.shape, name in INPUTS), []).append(name)
        for (_, is_input), names in rest.items():  # parameters of one shape at once, one behind the other
            weights = [self.trained[name] for name in names]
            given = [(grads.get(name), weight) for name, weight in zip(names, weights, strict=True)]
            of_all = [torch.zeros_like(weight) if grad is None else grad for grad, weight in given]  # None: no part
            grad, weight = (torch.cat(several) for several in (of_all, weights))
            if is_input:  # a table of vectors (E, B T, D)
                grad, weight = grad.flatten(1, 2), weight.flatten(1, 2)
            self._write(names, Norms(grad, weight, 2 if is_input else self.model.num_dims[names[0]], is_branch=False))
        for steps in self.order.steps.values():
            for name, step in steps.items():
                step.mul_(self.model.lr_multiplier(name, self.model.num_dims[name]))
        ones, rates = self._room()[0].fill_(1.0), self.model.lr_multipliers
        rates_PE = torch.stack([ones if name in INPUTS else torch.as_tensor(rates[name]) for name in self.trained])
        for optimizer, rooms in self._rooms.items():
            for room_PE in rooms:
                room_PE.mul_(rates_PE / self.model.config.d_model ** NORMALISATION[optimizer].power)

    def _write(self, names: Sequence[str], norms: Norms) -> None:
        """Of parameters whose norms are one behind the other, without learning-rate multiplier and power of width."""
        rows = [self.rows[name] for name in names]
        for optimizer, rooms in self._rooms.items():
            numbers = [norms.functional(optimizer)]
            if self.keeps_steps:
                step = norms.first_step(optimizer)
                along = (norms.grad * step).reshape(len(step), -1).sum(1)
                numbers.append(along / NORMALISATION[optimizer].constant)
                parts = [] if names[0] in INPUTS else step.chunk(len(names))
                self.order.steps[optimizer] |= dict(zip(names, parts, strict=False))
            elif len(rooms) > 1:
                numbers.append(norms.alignment(optimizer))
            for room_PE, of_names in zip(rooms, numbers, strict=True):
                room_PE[rows] = of_names.view(len(rows), -1)


_OWN = (1, 2, 3)
"""The dimensions of a stream (E, B, T, D) that are a member's own."""


class _Watch:
    """Looks at the streams of one pass, whose numbers are made when all of them are there."""

    def __init__(self, model: Ensemble, on_stream: Callable[[], None], *, has_cosines: bool) -> None:
        self._on_stream, self._has_cosines = on_stream, has_cosines
        self._model, self._factors, model.factors = model, [], []
        self._lengths: dict[tuple[str, int], tuple[Tensor, int]] = {}
        self._units: dict[str, list[Tensor]] = {}
        self._cosines: dict[tuple[str, int], list[Tensor]] = {}
        num = sum(number + 2 for number in model.config.num_sums.values())
        self._gradients = torch.zeros((num, model.num_members), **model._kind)
        self._has_gradients = False

    def look(self, side: str, index: int, x: Tensor) -> None:
        value, row = x.detach(), len(self._lengths)
        self._lengths[side, index] = torch.linalg.vector_norm(value, dim=_OWN), x.numel() // len(x)
        if self._has_cosines:
            self._look_along(side, index, value)
        assert self._model.factors is not None
        self._factors += [(row, factor) for factor in self._model.factors]
        self._model.factors.clear()
        if x.requires_grad:
            self._has_gradients = True

            def on_gradient(grad: Tensor) -> None:
                torch.linalg.vector_norm(grad, dim=_OWN, out=self._gradients[row])
                self._on_stream()

            x.register_hook(on_gradient)
        self._on_stream()

    def _look_along(self, side: str, index: int, value: Tensor) -> None:
        unit, t = value / torch.linalg.vector_norm(value, dim=-1, keepdim=True), value.shape[-2]
        first, previous = self._units.get(side, [unit, unit])
        self._units[side] = [first, unit]
        num_vectors = unit[0, ..., 0].numel()
        square = unit.sum(-2).square().flatten(1).sum(1)  # over all pairs of a sequence, a token with itself included
        pairs = (square / num_vectors - 1) / (t - 1) if t > 1 else torch.ones_like(square)
        along = [(unit * other).flatten(1).sum(1) / num_vectors for other in (first, previous)]
        self._cosines[side, index] = [pairs, *along]

    def streams(self) -> dict[tuple[str, int], Stream]:
        """A stream is finite only where every norm on the way to it was: of entries whose squares overflow it would be
        0."""
        lengths, sizes = zip(*self._lengths.values(), strict=True)
        moments = (torch.stack(lengths) / lengths[0].new_tensor(sizes).sqrt()[:, None]).square()
        finite = moments.isfinite()
        if self._factors:
            rows, factors = zip(*self._factors, strict=True)
            odd, members = (~(torch.stack(factors) > 0)).nonzero(as_tuple=True)
            finite[torch.tensor(rows, device=odd.device)[odd], members] = False
        squares = self._gradients.square() if self._has_gradients else [None] * len(moments)
        streams = {}
        for row, place in enumerate(self._lengths):
            pairs, along, behind = self._cosines.get(place, [None] * 3)
            streams[place] = Stream(moments[row], pairs, along, behind, finite[row], squares[row])
        return streams


def _leaf(x: Tensor) -> Tensor:
    """A leaf with the same values whose gradient is asked for. Tokens have no gradient and stay as they are."""
    return x.detach().requires_grad_() if x.is_floating_point() else x


SIGN_TYPE = ("adam", "adamw", "rmsprop", "signsgd", "lion", "sophia")
"""Optimizers whose first step is the sign of the gradient, times a constant."""
SUMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("sgd", "momentum"), ("length",)),
    **dict.fromkeys(SIGN_TYPE, ("sum_abs",)),
    "lars": ("weight_length", "length"),
    "lamb": ("weight_length", "sum_abs", "num_signs"),
    "muon": ("nuclear",),
}
"""What the update of a matrix under an optimizer is made of, where it is made of attributes of ``Norms`` alone."""


class Norms:
    """Norms of one parameter and its gradient, (E,) each, computed once. <g, first step> is made of these, so that the
    step itself need not be.

    grad, weight: of E models, (E, ...). num_dims: of the parameter itself. is_branch: whether it is a branch's matrix.
    rank: the largest that the gradient of a matrix can have, which is the number of tokens that pass it. scratch: as
    large as grad, (E, numbers), to write into.
    """

    def __init__(
        self,
        grad: Tensor,
        weight: Tensor,
        num_dims: int,
        is_branch: bool,
        *,
        rank: int | None = None,
        scratch: Tensor | None = None,
    ) -> None:
        self.grad, self.num_dims = grad, num_dims
        self._weight, self._is_branch, self._rank = weight, is_branch, rank
        self._grad_EN = grad.flatten(1) if num_dims else grad[:, None]
        self._scratch = scratch

    @cached_property
    def sum_abs(self) -> Tensor:
        return torch.abs(self._grad_EN, out=self._scratch).sum(1)  # a norm of order 1 takes three times as long

    @cached_property
    def num_signs(self) -> Tensor:
        """The number of entries that are not 0."""
        return torch.ne(self._grad_EN, 0, out=self._scratch).sum(1, dtype=self._grad_EN.dtype)

    @cached_property
    def length(self) -> Tensor:
        return torch.linalg.vector_norm(self._grad_EN, dim=1)

    @cached_property
    def weight_length(self) -> Tensor:
        weight_EN = self._weight.flatten(1) if self.num_dims else self._weight[:, None]
        return torch.linalg.vector_norm(weight_EN, dim=1, dtype=self.grad.dtype)

    @cached_property
    def nuclear(self) -> Tensor:
        finite = self.grad.isfinite().all(-1).all(-1)  # the SVD refuses all for one member that is not
        grad = torch.where(finite[:, None, None], self.grad, 0)
        if self._rank is not None and 3 * self._rank < min(grad.shape[-2:]):
            # As many random vectors as the rank span all that the gradient reaches, and a small SVD is left.
            generator = torch.Generator(grad.device).manual_seed(0)
            shape = (grad.shape[-1], self._rank)
            drawn = torch.randn(shape, generator=generator, dtype=grad.dtype, device=grad.device)
            grad = torch.linalg.qr(grad @ drawn).Q.mT @ grad
        return torch.where(finite, torch.linalg.svdvals(grad).sum(-1), math.nan)

    def first_step(self, optimizer: str) -> Tensor:
        """The optimizer's real first step, (E, ...)."""
        weight = self._weight.to(self.grad.dtype)
        return first_step(optimizer, self.grad, weight, self.num_dims, is_branch=self._is_branch)

    def functional(self, optimizer: str) -> Tensor:
        """The update by its definition: LAMB's ||W|| ||g||_1 / sqrt(n) counts all n entries."""
        if optimizer in ("sgd", "momentum"):
            return self.length.square()
        if optimizer == "lamb":
            return self.weight_length * self.sum_abs / math.sqrt(self._grad_EN.shape[1])
        if optimizer == "lars":
            return self.weight_length * self.length
        if optimizer == "muon" and self.num_dims == 2:
            return self.nuclear
        if optimizer == MIXED:
            length = step_length(self.grad, self.num_dims, is_branch=self._is_branch)
            return (self.sum_abs if length is None else length * self.nuclear) / NORMALISATION[MIXED].constant
        if optimizer in SIGN_TYPE or optimizer == "muon":
            return self.sum_abs
        step = self.first_step(optimizer)
        return (self.grad * step).reshape(len(step), -1).sum(1) / NORMALISATION[optimizer].constant

    def alignment(self, optimizer: str) -> Tensor:
        """<g, first step> over the optimizer's constant.

        LAMB divides its step by the norm of the signs, sqrt(n) where no entry of the gradient is exactly 0. One relu
        input leaves half of them 0: the real step is sqrt(2) longer.
        """
        if optimizer != "lamb":
            return self.functional(optimizer)
        return self.functional(optimizer) * (self._grad_EN.shape[1] / self.num_signs.clamp(min=1)).sqrt()


# ---------------------------------------------------------------- what came of it


def roles_of(model: Ensemble, by_name: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The update by role, (E,) each, and of the branch matrices together ("update")."""
    sums: dict[str, Tensor] = {}
    for name, value in by_name.items():
        role = "embedding" if name in INPUTS else model.roles[name]
        sums[role] = sums[role] + value if role in sums else value
    of_branches = [value for role, value in sums.items() if role in BRANCH_ROLES]
    return {"update": torch.stack(of_branches).sum(0), **sums}


def layers_of(model: Ensemble, by_name: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """By role, the update of each sublayer that has it, (E,) each, the encoder's first. Parameters outside of sublayers
    are left out.
    """
    by_role: dict[str, dict[str, Tensor]] = {}
    for name, _, role in model.tagged():
        parts = name.removeprefix("_weights.").split("_")
        if len(parts) > 1 and parts[1].isdigit():
            place = "_".join(parts[:2])
            sums = by_role.setdefault(role, {})
            sums[place] = sums[place] + by_name[name] if place in sums else by_name[name]
    return {role: list(places.values()) for role, places in by_role.items()}


def divergences(order: FirstOrder) -> dict[int, Divergence]:
    """By member, the first place that was not finite: going forward, then going backward, then in the update itself."""
    at: dict[int, Divergence] = {}
    places = list(order.streams.items())
    for (side, index), stream in places:
        for member in (~stream.is_finite).nonzero().flatten().tolist():
            at.setdefault(member, Divergence(side, index, "forward"))
    for (side, index), stream in reversed(places):
        if stream.gradient_square is not None:
            for member in (~stream.gradient_square.isfinite()).nonzero().flatten().tolist():
                at.setdefault(member, Divergence(side, index, "backward"))
    for by_name in order.values.values():
        for name, value in by_name.items():
            side, _, rest = name.removeprefix("_weights.").partition("_")
            index = rest.partition("_")[0]
            for member in (~value.isfinite()).nonzero().flatten().tolist():
                at.setdefault(member, Divergence(side, int(index) + 1 if index.isdigit() else 0, "update"))
    return dict(sorted(at.items()))


# ---------------------------------------------------------------- along a step


Held = dict[tuple[str, int], tuple[Tensor, Tensor]]


class _Reader(nn.Module):
    """Every reading, and "hidden", the last hidden state of the tokens that are read: (E, B, T, D); or, with
    has_all_logits, the logits alone, (E, B, T, C)."""

    def __init__(self, model: Ensemble, inputs: Inputs, task: Task) -> None:
        super().__init__()
        self.model, self.inputs, self.task = model, inputs, task

    def forward(self, *, has_all_logits: bool = False, held: Held | None = None) -> dict[str, Tensor]:
        if held is not None:
            self.model.held, last = held, self.model.config.num_sums
            try:
                self.model(self.inputs.x, self.inputs.y)
            finally:
                self.model.held = None
            return {f"{side}/{at}": moved for (side, at), (_, moved) in held.items() if 0 < at <= last[side]}
        hidden = self.model(self.inputs.x, self.inputs.y)
        if has_all_logits:
            return {"logits": self.model.logits(hidden)}
        read = hidden if self.task.readout == "sum" else hidden[..., -1:, :]
        return {**readings(self.model, hidden, self.inputs, self.task), "hidden": read}

    def at(self, weights: Mapping[str, Tensor], **asked: Any) -> dict[str, Tensor]:
        given = {f"model.{name}": value for name, value in weights.items()}
        return functional_call(self, given, (), asked)


def tangents(
    model: Ensemble, inputs: Inputs, task: Task, step: Mapping[str, Tensor], roles: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """The derivative of every reading along -step, by forward mode: per unit learning rate, linear in the step.

    roles: only the parameters of these move.
    """
    with torch.no_grad(), forward_ad.dual_level():
        return _unpacked(_Reader(model, inputs, task).at(_moving(model, step, roles)))


@torch.no_grad()
def on_spheres(model: Ensemble, step: Mapping[str, Tensor], *, of_vectors: bool) -> dict[str, Tensor]:
    """The step of each branch matrix without the part that changes a norm, to first order: that of the whole matrix, as
    of Muon on spheres; of_vectors: of each vector of it along the stream's dimension (rows of what reads the stream,
    columns of what writes to it), as of nGPT."""
    kept = {}
    for name, weight, role in model.tagged():
        if role in BRANCH_ROLES:
            vector = (-2,) if role in ("out", "cross_out", "fc2") else (-1,)
            dims = vector if of_vectors else (-2, -1)
            radial = (weight * step[name]).sum(dims, keepdim=True) / weight.square().sum(dims, keepdim=True)
            kept[name] = step[name] - torch.nan_to_num(radial) * weight
    return kept


@torch.no_grad()
def hidden_size(model: Ensemble, inputs: Inputs, task: Task) -> Tensor:
    """The root mean square of the last hidden state of the tokens that are read, (E,)."""
    return size_of(_Reader(model, inputs, task)()["hidden"])


def logit_tangents(
    model: Ensemble,
    inputs: Inputs,
    step: Mapping[str, Tensor],
    input_steps: tuple[Tensor | None, Tensor | None],
    roles: Sequence[str],
) -> Tensor:
    """The derivative of every logit (E, B, T, C) along -step, by forward mode: per unit learning rate.

    roles: only the parameters of these move; with "embedding" among them the inputs x and y move too, by input_steps.
    """
    sides = zip((inputs.x, inputs.y), input_steps, strict=True)
    with torch.no_grad(), forward_ad.dual_level():
        x, y = (
            x if x is None or tangent is None or "embedding" not in roles else forward_ad.make_dual(x, -tangent)
            for x, tangent in sides
        )
        assert x is not None
        reader = _Reader(model, Inputs(x, y, inputs.labels), Task())
        return _unpacked(reader.at(_moving(model, step, roles), has_all_logits=True))["logits"]


def _moving(model: Ensemble, step: Mapping[str, Tensor], roles: Sequence[str] | None) -> dict[str, Tensor]:
    """Every parameter; those of the roles with -step as their tangent. Within a dual level."""
    return {
        name: forward_ad.make_dual(p.detach(), -step[name]) if roles is None or role in roles else p.detach()
        for name, p, role in model.tagged()
    }


def _unpacked(moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tangents, 0 where there is none."""
    duals = {name: forward_ad.unpack_dual(value) for name, value in moved.items()}
    return {
        name: torch.zeros_like(dual.primal) if dual.tangent is None else dual.tangent.clone()
        for name, dual in duals.items()
    }


@torch.no_grad()
def second_order(
    model: Ensemble, inputs: Inputs, task: Task, step: Mapping[str, Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """What a step of the branch matrices changes every reading by to first order and to second, (E,) each: per unit
    learning rate, and per its square. Of "hidden" it is the root mean square, as of "block": what a sublayer's own step
    changes behind it, given the stream before it as it is without a step, over all sublayers.

    The second order is a difference of exact derivatives. A ReLU's units stay on their side of the kink; what those add
    that cross it goes as the power 3/2 of the learning rate, and has no second derivative.
    """
    reader, held = _Reader(model, inputs, task), Held()
    model.kinks = {}
    try:
        of_network = _orders(model, step, reader.at)
        of_blocks = _orders(model, step, partial(reader.at, held=held))
    finally:
        model.kinks = None
    sizes = [[size_of(order) for order in orders] for orders in of_blocks.values()]
    first, second = (torch.stack(several).square().mean(0).sqrt() for several in zip(*sizes, strict=True))
    hidden = of_network.pop("hidden")
    return {**of_network, "hidden": (size_of(hidden[0]), size_of(hidden[1])), "block": (first, second)}


_SHORT = 1e-6
"""How far a step goes whose derivatives are compared, as a root mean square."""


def _orders(
    model: Ensemble, step: Mapping[str, Tensor], read: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
) -> dict[str, tuple[Tensor, Tensor]]:
    def slopes(rates: Tensor) -> dict[str, Tensor]:
        with forward_ad.dual_level():
            weights = _moving(model, step, BRANCH_ROLES)
            return _unpacked(read({name: _ahead(model, name, weights[name], step, rates) for name in weights}))

    first = slopes(torch.zeros(model.num_members).to(next(iter(step.values()))))
    largest = torch.stack([size_of(value) for value in first.values()]).amax(0)
    rates = torch.where(largest > 0, _SHORT / largest, _SHORT)
    ahead, behind = slopes(rates), slopes(-rates)
    return {
        name: (value, (ahead[name] - behind[name]) / (4 * rates[(..., *(None,) * (value.dim() - 1))]))
        for name, value in first.items()
    }


def _ahead(model: Ensemble, name: str, weight: Tensor, step: Mapping[str, Tensor], rates: Tensor) -> Tensor:
    """The parameter, with its tangent, so far along -step."""
    if model.roles[name] not in BRANCH_ROLES:
        return weight
    return weight - rates[(..., *(None,) * model.num_dims[name])] * step[name]


def size_of(change: Tensor) -> Tensor:
    """The root mean square of a member's entries, (E,)."""
    return change.reshape(len(change), -1).square().mean(1).sqrt()


@torch.no_grad()
def finite_changes(
    model: Ensemble, inputs: Inputs, task: Task, step: Mapping[str, Tensor], learning_rates: Tensor
) -> dict[str, Tensor]:
    """What every reading is at theta - learning_rate * step, less what it is at theta. learning_rates: (E,)."""
    reader = _Reader(model, inputs, task)
    parameters = {name: p.detach() for name, p, _ in model.tagged()}
    moved = {
        name: p - learning_rates[(..., *(None,) * model.num_dims[name])] * step[name] for name, p in parameters.items()
    }
    before, after = reader.at(parameters), reader.at(moved)
    return {name: after[name] - before[name] for name in before}


def real_step(
    model: Ensemble, gradients: Mapping[str, Tensor], optimizer: str, learning_rate: float
) -> dict[str, Tensor]:
    """theta_0 - theta_1 over the learning rate, of the real optimizer, each member by itself: its norms are per tensor.

    gradients: of the whole ensemble, by parameter.
    """
    moved: dict[str, Tensor] = {}
    for member in range(model.num_members):
        leaves = {name: nn.Parameter(p.detach()[member].clone()) for name, p, _ in model.tagged()}
        rates = {name: float(model.lr_multiplier(name, 0)[member]) for name in leaves}
        for name, leaf in leaves.items():
            leaf.grad = gradients[name][member].clone()
        groups = [
            {"params": [leaf], "lr": learning_rate * rates[name]}
            | group_options(optimizer, is_branch=model.roles[name] in BRANCH_ROLES)
            for name, leaf in leaves.items()
        ]
        make(optimizer, groups, learning_rate).step()
        for name, p, _ in model.tagged():
            into = moved.setdefault(name, torch.empty_like(p))
            into[member] = (p.detach()[member] - leaves[name].detach()) / learning_rate
    return moved


LINEAR_TO = 0.1
"""A step is called linear while the objective moves by its first order, to a tenth of it."""


def linear_up_to(model: Ensemble, inputs: Inputs, task: Task, step: Mapping[str, Tensor], slope: Tensor) -> Tensor:
    """The largest learning rate of a geometric grid up to which every step is linear, (E,).

    slope: <g, step>, (E,). The grid is of the first-order change lr * slope, from 10^-4 to 10^2, so it fits every
    optimizer and depth; a member that is not linear at its lower end has 0, one that is at its upper end has that end,
    one that does not move at all infinity.
    """
    reached = torch.where(slope == 0, math.inf, 0.0).to(slope)
    is_linear = slope != 0
    for eighths in range(-4 * 8, 2 * 8 + 1):
        rates = torch.where(slope == 0, 0.0, 10 ** (eighths / 8) / slope)
        moved = -finite_changes(model, inputs, task, step, rates)[task.reading]
        is_linear = is_linear & ((moved / (rates * slope) - 1).abs() <= LINEAR_TO)
        reached = torch.where(is_linear, rates, reached)
        if not is_linear.any():
            break
    return reached
