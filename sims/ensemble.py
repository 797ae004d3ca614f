"""Many models as one: every weight has a leading dimension E of members, and so has every input.

Members differ in their seeds and in any number of their configs (gains, residual, branch and input weights, learning
rates); what gives a tensor its shape, or the code its path, is the same for all. A member's weights are those of the
plain ``Transformer`` of the same config and seed, bit for bit, so one pass over the ensemble is E passes over these, to
rounding. Deep means need it: log U of one network scatters by about 0.8 sqrt(2N/d) in deep post-LN.

>>> from depthlaw.sims.ensemble import Ensemble, Member
>>> from depthlaw.sims.model import ModelConfig, alternating
>>> config = ModelConfig(encoder=alternating(2), d_model=16)
>>> ensemble = Ensemble([Member(config, seed) for seed in (0, 1, 2)])
>>> tuple(ensemble.tagged()[0][1].shape)[0]
3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor

from depthlaw.sims.model import GATED, MATRICES, ModelConfig, Numbers, SublayerConfig, Transformer, Weight, weights_of


class Member(NamedTuple):
    """One model of an ensemble."""

    config: ModelConfig
    seed: int


class NotEnoughMemoryError(ValueError):
    """One model alone needs more than there is; the message says how much, and what is there."""


class Ensemble(Transformer):
    """Members as one model: parameters (E, ...), inputs (E, B, T, D) or tokens (E, B, T).

    rounding: a relative size; if it is not 0, noise of that size is put on every x_l, as rounding would do.
    held: a dictionary, or None. By side and index it gets each stream as the first pass makes it, from which every pass
    reads on, and as the last pass made it.
    factors: a list, or None. Of each norm it receives the least that the norm multiplied by, (E,), 0 where the squares
    overflowed. Without it nobody would see such an overflow: the norm of such entries is 0.
    ValueError where members differ in more than numbers.
    """

    rounding = 0.0
    held: dict[tuple[str, int], tuple[Tensor, Tensor]] | None = None
    factors: list[Tensor] | None = None

    def __init__(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        if not members:
            raise ValueError("an ensemble has at least one member")
        first, shape = members[0], shape_of(members[0].config)
        for index, member in enumerate(members):
            if member.config is not first.config and shape_of(member.config) != shape:
                raise ValueError(f"member {index} differs from member 0 in more than its numbers and its seed")
        self._members = tuple(members)
        super().__init__(first.config, first.seed, dtype=dtype, device=device)
        self.num_members = len(members)
        each = [dict(member.config.sides) for member in members]
        for side, sublayers in first.config.sides:
            for index in range(len(sublayers)):
                columns = zip(*(Numbers.of(sides[side][index]) for sides in each), strict=True)
                self.numbers[f"{side}_{index}"] = Numbers(*(self._number(column) for column in columns))
        self.lr_multipliers = dict(zip(self.lr_multipliers, self._rates, strict=True))

    def _filled(self, weights: list[Weight]) -> Iterator[Tensor]:
        """Each member's numbers are written where they will stand, so there never is a second copy of them."""
        first, rates = self._members[0].config, []
        rooms = [torch.empty((len(self._members), *weight.shape), **self._kind) for weight in weights]
        for index, (config, seed) in enumerate(self._members):
            generator = torch.Generator(self._kind["device"]).manual_seed(seed) if index else self._generator
            of_config = weights if config is first else weights_of(config)
            rates.append([weight.lr_multiplier for weight in of_config])
            for weight, room in zip(of_config, rooms, strict=True):
                weight.fill(room[index], generator, is_short=config.has_short_draws)
        self._rates = torch.tensor(rates, **self._kind).T
        return iter(rooms)

    def _number(self, of_members: Sequence[Any]) -> float | Tensor:
        """A number that all members have in common is a plain one: 1 costs nothing then."""
        if len(set(of_members)) == 1:
            return of_members[0]
        return torch.tensor(of_members, **self._kind)[:, None, None, None]

    def on_stream(self, side: str, index: int, x_BTD: Tensor) -> Tensor:
        if self.held is not None:
            still_BTD, _ = self.held.get((side, index), (x_BTD.detach(), x_BTD))
            self.held[side, index] = still_BTD, x_BTD
            return still_BTD
        if not self.rounding:
            return x_BTD
        noise = torch.randn(x_BTD.shape, generator=self._generator, **self._kind)
        return x_BTD * (1 + self.rounding * noise)

    def on_norm(self, name: str, factor_BT1: Tensor) -> None:
        if self.factors is not None:
            self.factors.append(factor_BT1.amin(tuple(range(1, factor_BT1.dim()))))

    def keep(self, kept: Sequence[int]) -> None:
        """Drop all members but these from everything but the parameters, whose holder does that."""
        rows = torch.tensor(kept, device=self._kind["device"])
        self.num_members = len(kept)
        self._programs.clear()
        for name, numbers in self.numbers.items():
            several = (
                number[rows].flatten().tolist() if isinstance(number, Tensor) else [number] for number in numbers
            )
            self.numbers[name] = Numbers(*map(self._number, several))
        for name, rates in self.lr_multipliers.items():
            assert isinstance(rates, Tensor)
            self.lr_multipliers[name] = rates[rows]

    def lr_multiplier(self, name: str, num_dims: int) -> Tensor:
        """The multipliers of a parameter, shaped (E, 1, ...) to multiply one that has so many dimensions of its own."""
        multipliers = self.lr_multipliers[name]
        assert isinstance(multipliers, Tensor)
        return multipliers[(..., *(None,) * num_dims)]


def shape_of(config: ModelConfig) -> tuple[object, ...]:
    """The part of a config that all members must have in common."""

    def kinds(sublayers: tuple[SublayerConfig, ...]) -> tuple[object, ...]:
        fields = ("kind", "trains_branch_weight", "has_layer_scale", "norms", "mixes_values")
        return tuple(
            (*(getattr(sublayer, field) for field in fields), bool(sublayer.input_weight)) for sublayer in sublayers
        )

    bare = replace(config, encoder=(SublayerConfig(kind="ffn"),), decoder=())
    return kinds(config.encoder), kinds(config.decoder), bare


# ---------------------------------------------------------------- memory


def num_parameters(config: ModelConfig) -> int:
    """An upper bound on the number of parameters of one model."""
    d, hidden = config.d_model, config.hidden
    matrices = {kind: sum(math.prod(config.shape(role)) for role in config.roles(kind)) for kind in MATRICES}
    vectors = {kind: len(MATRICES[kind]) * (2 * d + hidden) for kind in MATRICES}  # no more than these
    has_vectors = config.has_affine or config.has_bias
    sublayers = [sublayer.kind for _, side in config.sides for sublayer in side]
    branches = sum(matrices[kind] + has_vectors * vectors[kind] for kind in sublayers)
    return branches + config.num_outputs * d + len(config.sides) * config.vocab_size * d


def bytes_of_member(config: ModelConfig, num_vectors: int, num_tokens: int, itemsize: int, num_copies: int = 1) -> int:
    """The bytes that measuring one member takes at its peak.

    num_vectors: the number of tokens in its whole batch, whose sequences have num_tokens each. num_copies: how many
    copies of all weights are held; a step that is kept is one more. Gradients are reduced and dropped as they come, so
    only that of one matrix counts, with what is computed from it.
    """
    d, hidden, scores = config.d_model, config.hidden, config.num_heads * num_tokens
    of_norm = 3 if config.has_affine else 2  # times its width: centred, scaled and shifted

    def kept(sublayer: SublayerConfig) -> int:
        """Numbers that a sublayer keeps of a token."""
        places, kind = config.places(sublayer), sublayer.kind
        inner = of_norm * ("inner" in places)
        number = (3 + config.has_second_stream + of_norm * len(places & {"pre", "branch", "post"})) * d
        if kind in ("ffn", "parallel"):
            number += ((4 if config.activation in GATED else 2) + inner) * hidden
        if kind != "ffn":
            number += (6 + inner + of_norm * len(places & {"q", "k", "v"})) * d + scores
        return number

    inside = [kept(sublayer) * num_vectors for _, side in config.sides for sublayer in side * config.visits]
    running = max(inside) + 2 * scores * num_vectors  # of the sublayer that is computed just then
    graph = running + (d * num_vectors * len(inside) if config.recomputes else sum(inside))
    passing = 5 * max(d * hidden, d * d, config.vocab_size * d)
    return itemsize * (num_copies * num_parameters(config) + graph + passing)


def available_bytes(device: torch.device | str) -> int:
    """The bytes that are free on a device; on the CPU, no more than the process's control group allows."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    limit, used = (_control_group(name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, limit - used)


def _control_group(name: str) -> int | None:
    try:
        text = Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


SHARE, MOST = 0.5, 0.7
"""The shares of the free memory that several members together, and one member alone, may take. Allocators keep more
than they are asked for: 1,000 layers of width 256 took 1.1 times the counted bytes with recomputation, and 1.4 times
without it.
"""


def members_at_once(bytes_each: int, device: torch.device | str, what: str, free: int | None = None) -> int:
    """The number of members that fit into memory: of this machine or, in so many free bytes, of another one.
    NotEnoughMemoryError if not even one does; it says what was asked for and what is there.
    """
    free = available_bytes(device) if free is None else free
    if bytes_each > MOST * free:
        raise NotEnoughMemoryError(
            f"one network of {what} needs {_gibibytes(bytes_each)}; {_gibibytes(free)} are free on {device}, of which "
            f"{_gibibytes(MOST * free)} can be used"
        )
    return max(1, math.floor(SHARE * free / bytes_each))


def _gibibytes(number: float) -> str:
    return f"{number / 2**30:.3g} GiB"
