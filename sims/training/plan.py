"""A training run on paper: its parameters, memory, arithmetic, communication and time, worked out before it runs.

Everything is counted of the networks and the loop that are here (``sims.training.train``), on one device or with its
weights, gradients and optimizer state cut over several (``sims.training.sharded``): each block is gathered twice a
step, and its gradient is added up and cut once. Memory is the least that a step takes: what an allocator rounds up to,
and what the process holds besides, comes on top.

Dimensions in names: B batch, T tokens, D d_model, F ffn width, H heads, K head size. A number is an entry of a tensor.

``memory_of_training`` is what a step holds, ``plan`` all of it. ``Sizes`` stands for data that is not there: a
vocabulary of 128,112 words needs no text.

>>> from depthlaw.sims.model import ModelConfig, alternating
>>> from depthlaw.sims.training.data import DataConfig
>>> from depthlaw.sims.training.plan import NODE, Sizes, plan
>>> from depthlaw.sims.training.train import TrainConfig, losses_of
>>> model = ModelConfig(encoder=alternating(48), placement="pre", d_model=1600, num_heads=25, is_causal=True)
>>> config = TrainConfig(model=model, data=DataConfig(), learning_rate=1e-4, num_steps=1, batch_size=64)
>>> sizes = Sizes(num_positions=1024, vocab_size=50257, num_classes=50257, is_causal=True)
>>> planned = plan(config, sizes, NODE)
>>> planned.num_parameters, round(planned.memory.total / 2**30)
(899740800, 19)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from depthlaw.sims.config import BRANCH_ROLES, MIXED, ModelConfig, SublayerConfig
from depthlaw.sims.ensemble import Member
from depthlaw.sims.model import Weight, weights_of
from depthlaw.sims.training.data import Batch, Sizes
from depthlaw.sims.training.frontend import Network, Shape, tables_of
from depthlaw.sims.training.stepping import BY_ENTRY
from depthlaw.sims.training.train import TrainConfig, losses_of


@dataclass(frozen=True, kw_only=True)
class OneTable(Sizes):
    """Sizes of a task whose decoder looks its tokens up in the encoder's table, which is counted once."""


class Tensor(NamedTuple):
    """A parameter. block: what it is gathered with, the matrices of a sublayer or the head; "" for all else."""

    role: str
    shape: tuple[int, ...]
    block: str

    @property
    def num(self) -> int:
        return math.prod(self.shape)


def parameters_of(model: ModelConfig, shape: Shape) -> list[Tensor]:
    """Every parameter of the network that is trained, in no order."""
    inside = weights_of(replace(model, num_outputs=shape.num_classes))
    tables = tables_of(model, shape)
    if isinstance(shape, OneTable):
        tables = {name: size for name, size in tables.items() if name != "decoder_tokens"}
    return [
        *(Tensor("embedding", size, "") for size, _ in tables.values()),
        *(Tensor(weight.role, weight.shape, _block_of(weight)) for weight in inside),
    ]


def _block_of(weight: Weight) -> str:
    return "_".join(weight.name.split("_")[:2]) if weight.role in (*BRANCH_ROLES, "head") else ""


# ---------------------------------------------------------------- memory


class Memory(NamedTuple):
    """Bytes on each device.

    weights, gradients, optimizer: what the device keeps of them. activations: what the backward pass of a batch needs
    from the forward pass, at its most. working: what is there for a moment: of one device, the gradients before they
    stand in their place; of several, blocks that are gathered, with their gradients. stepping: what the optimizer of
    one device makes on its way, when activations are gone. measuring: the copy of the weights in float64 in which the
    update is measured, between steps; where moves are measured, the weights before the step and at the start too.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    stepping: int
    measuring: int

    @property
    def total(self) -> int:
        """At the peak."""
        moment = max(self.activations + self.working, self.stepping, self.measuring)
        return self.weights + self.gradients + self.optimizer + moment


class Width(NamedTuple):
    """Bytes of a number: of weights and of what adds up, and of what is multiplied."""

    wide: int
    narrow: int

    @classmethod
    def of(cls, precision: str) -> Width:
        return {"float64": cls(8, 8), "float32": cls(4, 4), "bfloat16": cls(4, 2)}[precision]


_STATES: Mapping[str, int] = {"sgd": 0, "adam": 2, "adamw": 2, "lamb": 2}
"""The numbers that an optimizer keeps of a number of the weights, where that is not 1."""


_COPIES: Mapping[str, int] = {"signsgd": 3, "lion": 4, "lars": 5, "lamb": 8, "sophia": 4}
"""The copies of the weights that a step makes on its way; of the other optimizers it makes fewer than two."""


def states_of(optimizer: str, tensor: Tensor) -> int:
    """The numbers that an optimizer keeps of a parameter, its count of steps left out."""
    if optimizer in ("muon", MIXED):
        return tensor.num if _goes_by_muon(optimizer, tensor) else 2 * tensor.num
    if optimizer == "adafactor":
        return sum(tensor.shape) if len(tensor.shape) == 2 else tensor.num
    return _STATES.get(optimizer, 1) * tensor.num


def _goes_by_muon(optimizer: str, tensor: Tensor) -> bool:
    return len(tensor.shape) == 2 and (optimizer == "muon" or (optimizer == MIXED and tensor.role in BRANCH_ROLES))


def memory_of_training(
    config: TrainConfig,
    shape: Shape,
    *,
    num_devices: int = 1,
    recomputes: bool | None = None,
    tensors: list[Tensor] | None = None,
) -> Memory:
    """The bytes that a run holds on each device, and not less than that.

    shape: the data, or ``Sizes``. num_devices: over how many the run is cut, its batch too. recomputes: whether the
    backward pass computes each sublayer again; None for what the config says. tensors: those of ``parameters_of``,
    where they are at hand.
    """
    return _memory(config, shape, tensors or parameters_of(config.model, shape), num_devices, recomputes)


def _memory(
    config: TrainConfig, shape: Shape, tensors: list[Tensor], num_devices: int, recomputes: bool | None
) -> Memory:
    width, model = Width.of(config.precision), config.model
    recomputes = model.recomputes if recomputes is None else recomputes
    num = sum(tensor.num for tensor in tensors)
    states = sum(states_of(config.optimizer, tensor) for tensor in tensors)
    if num_devices == 1 and config.optimizer in BY_ENTRY:
        states += num  # the zeros that it steps from
    batch_size, precision = math.ceil(config.batch_size / num_devices), config.precision
    activations = activations_of(model, shape, batch_size, precision, recomputes=recomputes)
    blocks = _blocks(tensors)
    largest, outside = max(blocks.values()), num - sum(blocks.values())
    # Of blocks two are whole, as the next is gathered meanwhile, and what stands outside; then their gradients, and a
    # sum of one.
    working = num if num_devices == 1 else 3 * largest + 2 * outside + max(largest, outside)
    return Memory(
        weights=_share(width.wide * num, num_devices),
        gradients=_share(width.wide * num, num_devices),
        optimizer=_share(width.wide * states, num_devices),
        activations=activations,
        working=width.wide * working,
        stepping=width.wide * num * _COPIES.get(config.optimizer, 0) if num_devices == 1 else 0,
        measuring=_share((8 + 2 * width.wide * config.has_moves) * num, num_devices) if config.measure_at else 0,
    )


def _share(number: int, num_devices: int) -> int:
    return math.ceil(number / num_devices)


def _blocks(tensors: list[Tensor]) -> dict[str, int]:
    """The number of numbers of each block."""
    blocks: dict[str, int] = {}
    for tensor in tensors:
        if tensor.block:
            blocks[tensor.block] = blocks.get(tensor.block, 0) + tensor.num
    return blocks


# ---------------------------------------------------------------- activations

_known: dict[str, int] = {}
"""What networks keep that were asked for before, of a sweep those of all seeds and depths."""


def activations_of(model: ModelConfig, shape: Shape, batch_size: int, precision: str, *, recomputes: bool) -> int:
    """The bytes that are kept of a batch from the forward to the backward pass, at their most, without the parameters.

    A network that has each of the sublayers that differ once, and one with one of them more, say what it keeps.
    """
    different: dict[str, list[SublayerConfig]] = {}
    numbers: dict[str, list[int]] = {}
    for side, sublayers in model.sides:
        bare = [_without_numbers(sublayer) for sublayer in sublayers]
        different[side] = [sublayer for index, sublayer in enumerate(bare) if sublayer not in bare[:index]]
        numbers[side] = [bare.count(sublayer) for sublayer in different[side]]

    def kept(sides: Mapping[str, list[SublayerConfig]]) -> int:
        encoder, decoder = (tuple(sides.get(side, ())) for side in ("encoder", "decoder"))
        small = replace(model, encoder=encoder, decoder=decoder, recomputes=False)
        asked = repr((small, shape, batch_size, precision))
        if asked not in _known:
            _known[asked] = _kept(small, shape, batch_size, precision)
        return _known[asked]

    once = kept(different)
    more = {
        side: [kept(different | {side: [*ones, sublayer]}) - once for sublayer in ones]
        for side, ones in different.items()
    }
    if not recomputes:
        return once + sum(
            (num - 1) * size for side in more for num, size in zip(numbers[side], more[side], strict=True)
        )
    width, positions = Width.of(precision), {"encoder": shape.num_positions, "decoder": shape.num_decoder_positions}
    # Under autocast a projection of features is narrow, and the stream with it unless positions are added.
    stream = width.narrow if shape.num_features and model.rotary_base else width.wide
    tokens = batch_size * sum(positions[side] * number for side, number in model.num_sums.items())
    return once - sum(map(sum, more.values())) + stream * model.d_model * tokens + max(map(max, more.values()))


def _without_numbers(sublayer: SublayerConfig) -> SublayerConfig:
    """What decides which tensors a sublayer keeps."""
    return SublayerConfig(
        kind=sublayer.kind,
        input_scale=1.0 if sublayer.input_scale == 1 else 0.5,
        input_weight=float(bool(sublayer.input_weight)),
        value_weight=0.5 if sublayer.mixes_values else 1.0,
        trains_branch_weight=sublayer.trains_branch_weight,
        has_layer_scale=sublayer.has_layer_scale,
        norms=sublayer.norms,
    )


def _kept(model: ModelConfig, shape: Shape, batch_size: int, precision: str) -> int:
    """The same of a small network, which runs on tensors that have a size and no numbers."""
    kept: dict[int, torch.Tensor] = {}
    with FakeTensorMode():
        network = Network([Member(model, 0)], shape, dtype=torch.float64 if precision == "float64" else torch.float32)
        storages = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
        tokens = torch.zeros((1, batch_size, shape.num_positions), dtype=torch.int64)
        inputs = torch.zeros(*tokens.shape, shape.num_features) if shape.num_features else tokens
        targets = torch.zeros((1, batch_size, shape.num_decoder_positions), dtype=torch.int64)
        batch = Batch(inputs, targets, targets.clone()) if shape.has_decoder else Batch(inputs, None, tokens.clone())

        def keep(x: torch.Tensor) -> torch.Tensor:
            if (place := x.untyped_storage()._cdata) not in storages:
                kept[place] = x
            return x

        with saved_tensors_hooks(keep, lambda x: x):
            losses_of(network, batch, precision)
        return sum(x.untyped_storage().nbytes() for x in kept.values())


# ---------------------------------------------------------------- arithmetic


class Flops(NamedTuple):
    """Operations of one step of the whole batch, a multiplication and an addition apiece (2 for each pair), of matrices
    alone.

    backward: without what is recomputed. again: of a forward pass that is computed again, at its most. optimizer:
    Muon's orthogonalisation, which each device does of all matrices.
    """

    forward: int
    backward: int
    again: int
    optimizer: int


def flops_of_step(config: TrainConfig, shape: Shape) -> Flops:
    """As ``torch.utils.flop_counter`` counts them with torch's attention written out: scores and means of all pairs of
    positions, those that a causal mask hides too, and twice that backward. Fused kernels compute scores again besides.
    """
    return _flops(config, shape, parameters_of(config.model, shape))


def _flops(config: TrainConfig, shape: Shape, tensors: list[Tensor]) -> Flops:
    model, batch = config.model, config.batch_size
    positions = {"encoder": shape.num_positions, "decoder": shape.num_decoder_positions}
    by_role: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        if len(tensor.shape) == 2:
            place = tensor.role, tensor.block.partition("_")[0]
            by_role[place] = by_role.get(place, 0) + tensor.num
    inside = 0
    for (role, side), num in by_role.items():
        if role in BRANCH_ROLES:
            of_memory = role in ("cross_k", "cross_v")
            inside += 2 * num * batch * positions["encoder" if of_memory else side]
    for side, sublayers in model.sides:
        for sublayer in sublayers:
            if sublayer.kind != "ffn":
                attended = positions["encoder" if sublayer.kind == "cross" else side]
                inside += 4 * batch * positions[side] * attended * model.num_heads * model.size_of_head
    head = 2 * shape.num_classes * model.d_model * batch * positions[model.sides[-1][0]]
    projection = 2 * shape.num_features * model.d_model * batch * shape.num_positions
    return Flops(
        forward=inside + head + projection,
        backward=2 * (inside + head) + projection,  # nothing is asked about features
        again=inside,
        optimizer=sum(_orthogonalising(tensor.shape) for tensor in tensors if _goes_by_muon(config.optimizer, tensor)),
    )


_NEWTON_SCHULZ = 5
"""The steps of Muon, each of which multiplies x x^T, its square, and the sum of both with x."""


def _orthogonalising(shape: tuple[int, ...]) -> int:
    short, long = sorted(shape)
    return _NEWTON_SCHULZ * (4 * short**2 * long + 2 * short**3)


# ---------------------------------------------------------------- time


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Machines as plain numbers.

    devices: of a node. memory: bytes of a device. flops: operations a second of a device. bandwidth: bytes a second
    that a device sends to others of its node. network: bytes a second that a device sends to other nodes.
    """

    devices: int
    memory: float
    flops: float
    bandwidth: float
    network: float
    num_nodes: int = 1

    @property
    def num_devices(self) -> int:
        return self.devices * self.num_nodes


NODE = Hardware(devices=8, memory=80e9, flops=989e12, bandwidth=450e9, network=50e9)
"""Eight H100 SXM: 80 GB, 989 dense teraflops in bfloat16 and 900 GB/s of NVLink, half of it each way, by NVIDIA's data
sheet; and a network of 400 Gb/s for each, as in a DGX H100."""
FLOPS: Mapping[str, float] = {"bfloat16": NODE.flops, "float32": 67e12, "float64": 67e12}
"""Of such a device by precision, by the same sheet: torch multiplies float32 without tensor cores."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run takes on some hardware.

    by_role: parameters. memory, recomputing: of each device, without and with recomputation. sent: bytes of a step that
    each device receives: weights gathered for the forward and for the backward pass, and gradients added up.
    """

    config: TrainConfig
    hardware: Hardware
    by_role: Mapping[str, int]
    memory: Memory
    recomputing: Memory
    flops: Flops
    tokens: int
    gathered: int
    reduced: int

    @property
    def num_parameters(self) -> int:
        return sum(self.by_role.values())

    @property
    def sent(self) -> int:
        return 2 * self.gathered + self.reduced

    @property
    def feeds_all(self) -> bool:
        """Whether the batch has a sequence for each device, without which the run is refused."""
        return self.config.batch_size >= self.hardware.num_devices

    def fits(self, memory: Memory) -> bool:
        return self.feeds_all and memory.total <= self.hardware.memory

    def computing(self, *, recomputes: bool) -> float:
        """Seconds of a step's arithmetic at the devices' full speed, evenly divided."""
        flops = self.flops.forward + self.flops.backward + (self.flops.again if recomputes else 0)
        return (flops / self.hardware.num_devices + self.flops.optimizer) / self.hardware.flops

    @property
    def sending(self) -> float:
        """Seconds of a step's communication at full bandwidth: within the nodes and between them at the same time."""
        hardware, share = self.hardware, 1 - 1 / self.hardware.num_nodes
        whole = self.sent / (1 - 1 / hardware.num_devices) if hardware.num_devices > 1 else 0.0
        return max(self.sent / hardware.bandwidth, share * whole / (hardware.devices * hardware.network))

    def seconds(self, *, recomputes: bool) -> tuple[float, float]:
        """Of a step: where all communication hides behind arithmetic, and where none does."""
        computing = self.computing(recomputes=recomputes)
        return max(computing, self.sending), computing + self.sending


def plan(config: TrainConfig, shape: Shape, hardware: Hardware, tensors: list[Tensor] | None = None) -> Plan:
    """A run on paper. shape: the data, or ``Sizes``. tensors: as in ``memory_of_training``."""
    tensors, num = tensors or parameters_of(config.model, shape), hardware.num_devices
    by_role: dict[str, int] = {}
    for tensor in tensors:
        by_role[tensor.role] = by_role.get(tensor.role, 0) + tensor.num
    received = Width.of(config.precision).wide * _others(sum(by_role.values()), num)
    positions = shape.num_decoder_positions if shape.has_decoder else shape.num_positions
    return Plan(
        config=config,
        hardware=hardware,
        by_role=by_role,
        memory=_memory(config, shape, tensors, num, recomputes=False),
        recomputing=_memory(config, shape, tensors, num, recomputes=True),
        flops=_flops(config, shape, tensors),
        tokens=config.batch_size * positions,
        gathered=received,
        reduced=received,
    )


def _others(number: int, num_devices: int) -> int:
    """What a device receives of so many numbers, of which each device has its share."""
    return number - _share(number, num_devices)
