r"""A Transformer of residual sublayers, as plain numbers: any depth, norm placement and per-sublayer gain.

    x_l = norm_post(a_l x_{l-1} + b_l norm_branch(branch(c_l norm_pre(x_{l-1}))))
    ffn(u) = fc2(norm_inner(phi(fc1(u)))),   attention(u) = out(norm_inner(softmax(s q k^T) v))

A sublayer may add x_0 again, times a weight of its own, and an attention may mix the values of the first attention of
its side into its own. Where layers are visited several times (``ModelConfig.visits``), each visit is a sum of its own,
of the same weights. A gated FFN is fc2(norm_inner(phi(fc1(u)) * fc3(u))). Queries, keys and values may have norms of
their own, keys and values fewer heads than queries, positions may be rotary, logits capped; attention and FFN may stand
side by side.

Dimensions in names: E ensemble members, B batch, T tokens, S tokens that are attended to, D d_model, F ffn width, H
heads, K head size. Every matrix is Xavier normal times its gain, Var = gain^2 2/(fan_in + fan_out); biases 0, norm
gains 1, embeddings N(0, 1), head N(0, 1/D). Each parameter is tagged with its role when it is made. The FFN-only stack
of the theorems is the same code with ``kind="ffn"`` in every sublayer.

All code below is written for the last dimensions of its tensors, so that it also runs many models at once: weights with
one leading dimension E more (``sims.ensemble``), and inputs with the same. Nothing here knows a paper's scheme; whoever
builds a config does.

Memory of one model of P parameters with its gradients: 16 P bytes in float64. A backward pass keeps B T (D + F) to
B T (5 D + 6 F) numbers of an FFN, by its norms and activation, and B T (5 D + H T) to B T (10 D + H T) of an attention,
more where heads have norms; with ``recomputes`` only B T D of each, and those of one sublayer at a time.
``sims.ensemble.bytes_of_member`` has a bound.

``Transformer`` is the network of a ``ModelConfig`` at one seed, in float64. Inputs are vectors (B, T, D), or tokens
(B, T) where there is a vocabulary. The names of ``sims.config`` can be imported from here, too.

>>> import torch
>>> from depthlaw.sims.model import ModelConfig, Transformer, alternating
>>> config = ModelConfig(encoder=alternating(4), placement="pre", d_model=16, num_heads=2, num_outputs=3)
>>> model = Transformer(config, seed=0)
>>> hidden = model(torch.ones(1, 5, 16, dtype=torch.float64))
>>> tuple(hidden.shape), tuple(model.logits(hidden).shape), len(model.tagged())
((1, 5, 16), (1, 5, 3), 13)
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from depthlaw.sims.config import (
    ACTIVATIONS,
    BRANCH_ROLES,
    GATED,
    KINKED,
    MATRICES,
    NORM_KINDS,
    NORM_PLACES,
    OTHER_ROLES,
    PLACEMENTS,
    ModelConfig,
    SublayerConfig,
    alternating,
    decoder_layers,
    side_by_side,
)
from depthlaw.sims.pieces import Linear, Mix, Norm, Piece, Program, Receive, Sum, Traced, across, alone

__all__ = [
    "ACTIVATIONS",
    "BRANCH_ROLES",
    "GATED",
    "MATRICES",
    "NORM_KINDS",
    "NORM_PLACES",
    "OTHER_ROLES",
    "PLACEMENTS",
    "ModelConfig",
    "Numbers",
    "SublayerConfig",
    "Transformer",
    "alternating",
    "by_role",
    "decoder_layers",
    "gradients",
    "phi",
    "side_by_side",
]


def phi(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of that name, of ``config.ACTIVATIONS``."""
    if name == "relu2":
        return lambda x: nn.functional.relu(x).square()
    return getattr(nn.functional, ACTIVATIONS[name]) if ACTIVATIONS[name] else lambda x: x


class Numbers(NamedTuple):
    """The weights of one sublayer: plain numbers, or tensors with one for each member of an ensemble."""

    residual_weight: float | Tensor
    branch_weight: float | Tensor
    input_scale: float | Tensor
    input_weight: float | Tensor
    value_weight: float | Tensor
    first_value_weight: float | Tensor

    @classmethod
    def of(cls, sublayer: SublayerConfig) -> Numbers:
        return cls(*(getattr(sublayer, field) for field in cls._fields))


class Weight(NamedTuple):
    """A parameter before it is made.

    start: the number that fills it or, where it is drawn, the factors of its standard deviation.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    start: tuple[float, ...]
    is_drawn: bool = False
    lr_multiplier: float = 1.0

    def fill(self, room: Tensor, generator: torch.Generator, *, is_short: bool) -> None:
        """Write its numbers at the start of training. is_short: whether normals are drawn in float32."""
        if not self.is_drawn:
            room.fill_(self.start[0])
            return
        if is_short and room.dtype != torch.float32:
            room.copy_(torch.randn(room.shape, generator=generator, dtype=torch.float32, device=room.device))
        else:
            room.normal_(generator=generator)
        for factor in self.start:
            room.mul_(factor)


def weights_of(config: ModelConfig) -> list[Weight]:
    """Every parameter of a network, in the order in which they are drawn."""
    weights: list[Weight] = []
    for side, sublayers in config.sides:
        for index, sublayer in enumerate(sublayers):
            weights += _weights_of_sublayer(config, f"{side}_{index}", sublayer)
        weights += _weights_of_norms(config, side, _ends(config), {}, {})
    d = config.d_model
    for side, _ in config.sides if config.vocab_size else ():
        shape = (config.vocab_size, d)
        weights.append(Weight(f"{side}_embedding", "embedding", shape, (config.embedding_std_of(side),), is_drawn=True))
    if config.num_outputs:
        factors = (config.head_gain, 1 / math.sqrt(d))
        weights.append(Weight("head", "head", (config.num_outputs, d), factors, is_drawn=True))
    return weights


def _weights_of_sublayer(config: ModelConfig, name: str, sublayer: SublayerConfig) -> Iterator[Weight]:
    kind, rates = sublayer.kind, sublayer.lr_multipliers

    def filled(ending: str, role: str, shape: tuple[int, ...], number: float) -> Weight:
        return Weight(f"{name}_{ending}", role, shape, (float(number),), lr_multiplier=rates.get(role, 1.0))

    for role in config.roles(kind):
        shape, std = config.shape(role), config.std(sublayer, role)
        yield Weight(f"{name}_{role}", role, shape, (std,), is_drawn=True, lr_multiplier=rates.get(role, 1.0))
        if config.has_bias:
            yield filled(f"{role}_bias", "bias", shape[:1], 0.0)
    heads = {"q_norm": config.num_heads, "k_norm": config.key_heads, "v_norm": config.key_heads}
    widths = {place: config.size_of_head * (num if config.has_wide_norms else 1) for place, num in heads.items()}
    widths["inner"] = config.hidden if kind == "ffn" else config.num_heads * config.size_of_head
    yield from _weights_of_norms(config, name, _places(config, sublayer), widths, rates)
    if config.placement == "normformer" and kind != "ffn" and config.has_affine:
        yield filled("head_scale", "norm_gain", (config.num_heads,), 1.0)
    if sublayer.has_layer_scale:
        yield filled("layer_scale", "layer_scale", (config.d_model,), sublayer.branch_weight)
    elif sublayer.trains_branch_weight:
        yield filled("branch_weight", "branch_weight", (), sublayer.branch_weight)


def _weights_of_norms(
    config: ModelConfig, name: str, places: frozenset[str], widths: Mapping[str, int], rates: Mapping[str, float]
) -> Iterator[Weight]:
    """Of the norms at these places. Each is d_model wide unless ``widths`` says otherwise."""
    for place in sorted(places) if config.has_affine else ():
        shape = (widths.get(place, config.d_model),)
        for ending, number in (("gain", 1.0), ("bias", 0.0)) if config.norm_kind != "rmsnorm" else (("gain", 1.0),):
            role = f"norm_{ending}"
            rate = rates.get(role, 1.0)
            yield Weight(f"{name}_{place}_{ending}", role, shape, (number,), lr_multiplier=rate)


def _places(config: ModelConfig, sublayer: SublayerConfig) -> frozenset[str]:
    """Where a sublayer has norms, as parameters name them: those of queries, keys and values apart from q, k and v."""
    return frozenset(f"{place}_norm" if place in ("q", "k", "v") else place for place in config.places(sublayer))


def _ends(config: ModelConfig) -> frozenset[str]:
    """The norms behind the last sublayer of a side."""
    return frozenset({"final"} if config.ends_in_norm else {"second"} if config.has_second_stream else ())


class Transformer(nn.Module):
    """The model, in float64 on the CPU unless told otherwise.

    roles: each parameter's role by its name. num_dims: how many dimensions of it are its own. lr_multipliers: what its
    learning rate is multiplied by. numbers: the weights of each sublayer, by its name.
    kinks: a dictionary, or None. By a sublayer's name and its visit it has on which side of an activation's kink each
    unit is, (B, T, F): a forward pass writes what is missing, and keeps to what it finds.
    receive: a function, or None. In a backward pass it gets the two factors of each matrix's gradient, once for each
    visit, and the matrix has no gradient: a norm of it can be taken while it is small and near, and no two are held.
    is_traced: whether a sublayer of pieces alone is one node of torch's graph. A subclass that puts something else in
    the place of a piece says no. It is one class, since it is one torch module: what it builds, it runs.
    """

    is_traced = True
    kinks: dict[tuple[str, int], Tensor] | None = None
    receive: Receive | None = None
    _recording: Program | None = None
    _visit = 0

    def __init__(
        self,
        config: ModelConfig,
        seed: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if config.is_side_by_side:
            raise ValueError("streams side by side, which share their attentions, are audited and not built here")
        self.config = config
        self.roles: dict[str, str] = {}
        self.num_dims: dict[str, int] = {}
        self.lr_multipliers: dict[str, float | Tensor] = {}
        self.numbers: dict[str, Numbers] = {}
        self._kind = {"dtype": dtype, "device": torch.device(device)}
        self._generator = torch.Generator(device).manual_seed(seed)
        self._places: dict[str, frozenset[str]] = {}
        every = [sublayer for _, sublayers in config.sides for sublayer in sublayers]
        self._adds_input = any(sublayer.input_weight for sublayer in every)
        self._mixes_values = any(sublayer.mixes_values for sublayer in every)
        for side, sublayers in config.sides:
            self._places[side] = _ends(config)
            for index, sublayer in enumerate(sublayers):
                self._places[f"{side}_{index}"] = _places(config, sublayer)
                self.numbers[f"{side}_{index}"] = Numbers.of(sublayer)
        self._weights = nn.ParameterDict()
        for weight, value in zip(weights := weights_of(config), self._filled(weights), strict=True):
            name = f"_weights.{weight.name}"
            self._weights[weight.name] = nn.Parameter(value)
            self.roles[name], self.num_dims[name] = weight.role, len(weight.shape)
            self.lr_multipliers[name] = weight.lr_multiplier
        self._names: dict[str, list[str]] = {}
        self._programs: dict[str, Program | None] = {}
        for weight in weights:
            self._names.setdefault("_".join(weight.name.split("_")[:2]), []).append(weight.name)

    def __getstate__(self) -> dict[str, Any]:
        """A copy records programs of its own."""
        return {**self.__dict__, "_programs": {}}

    def _filled(self, weights: list[Weight]) -> Iterator[Tensor]:
        """The numbers of each parameter at the start of training."""
        for weight in weights:
            room = torch.empty(weight.shape, **self._kind)
            weight.fill(room, self._generator, is_short=self.config.has_short_draws)
            yield room

    def tagged(self) -> list[tuple[str, nn.Parameter, str]]:
        """(name, parameter, role) of every parameter; ValueError where one has no role."""
        named = list(self.named_parameters())
        if untagged := [name for name, _ in named if name not in self.roles]:
            raise ValueError(f"parameters without a role: {', '.join(untagged)}; weights_of has the role of each")
        return [(name, parameter, self.roles[name]) for name, parameter in named]

    # ---------------------------------------------------------------- running

    def forward(self, x_BTD: Tensor, y_BTD: Tensor | None = None) -> Tensor:
        """The last hidden state, (B, T, D): the decoder's, on ``y_BTD``, where there is a decoder.

        Inputs are vectors (B, T, D), or tokens (B, T) where there is a vocabulary.
        """
        ((_, _, h_BTD),) = deque(self.walk(x_BTD, y_BTD), maxlen=1)
        return h_BTD

    def logits(self, h_BTD: Tensor) -> Tensor:
        """The logits (B, T, outputs) of a last hidden state."""
        return self._linear("head", h_BTD)

    def streams(self, x_BTD: Tensor, y_BTD: Tensor | None = None) -> list[Tensor]:
        """x_0, x_1, ... of the last side, and behind them the final norm's output where there is one."""
        last = self.config.sides[-1][0]
        return [h_BTD for side, _, h_BTD in self.walk(x_BTD, y_BTD) if side == last]

    def encode(self, x_BTD: Tensor) -> list[Tensor]:
        """The streams of the encoder alone."""
        return [h_BTD for _, h_BTD in self._side("encoder", x_BTD, None)]

    def walk(self, x_BTD: Tensor, y_BTD: Tensor | None = None) -> Iterator[tuple[str, int, Tensor]]:
        """Yield (side, index, x_index) as each is computed, keeping none; behind the last sublayer, the output of a
        final norm.
        """
        memory_BSD = x_BTD
        for index, memory_BSD in self._side("encoder", x_BTD, None):
            yield "encoder", index, memory_BSD
        if self.config.decoder:
            if y_BTD is None:
                raise ValueError("an encoder-decoder needs the decoder's input as well")
            for index, h_BTD in self._side("decoder", y_BTD, memory_BSD):
                yield "decoder", index, h_BTD

    def on_stream(self, side: str, index: int, x_BTD: Tensor) -> Tensor:
        """The stream x_index as the next sublayer reads it. A subclass can look at it here, or disturb it."""
        return x_BTD

    def on_norm(self, name: str, factor_BT1: Tensor) -> None:
        """Called with what a norm of that sublayer (or a side's final norm) multiplies its input by: 1 over the root of
        a mean square, 0 where that overflowed."""

    def _side(self, side: str, x_BTD: Tensor, memory_BSD: Tensor | None) -> Iterator[tuple[int, Tensor]]:
        sublayers = dict(self.config.sides)[side]
        if self.config.vocab_size:
            x_BTD = _look_up(self._weights[f"{side}_embedding"], x_BTD)
        x_BTD = self.on_stream(side, 0, self.config.embedding_multiplier * x_BTD)
        yield 0, x_BTD
        first_BTD, second_BTD, values_BTD = x_BTD, x_BTD, None
        num_sums = self.config.num_sums[side]
        for place in range(num_sums):
            visit, index = divmod(place, len(sublayers))
            arguments = (side, index, sublayers[index].kind, x_BTD, memory_BSD, first_BTD, values_BTD, visit)
            x_BTD, added_BTD, values_BTD = self._through(*arguments)
            if added_BTD is not None:
                second_BTD = second_BTD + added_BTD
            x_BTD = self.on_stream(side, place + 1, x_BTD)
            yield place + 1, x_BTD
        if ends := self._places[side]:
            is_sum = "second" in ends
            x_BTD = x_BTD + self._norm("second", side, second_BTD) if is_sum else self._norm("final", side, x_BTD)
            yield num_sums + 1, self.on_stream(side, num_sums + 1, x_BTD)

    def _through(self, *arguments: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Through a sublayer, which the backward pass computes again where the config says so."""
        if self.config.recomputes and torch.is_grad_enabled():
            return checkpoint(self._sublayer, *arguments, use_reentrant=False, preserve_rng_state=False)
        return self._sublayer(*arguments)

    def _sublayer(
        self,
        side: str,
        index: int,
        kind: str,
        x_BTD: Tensor,
        memory_BSD: Tensor | None,
        first_BTD: Tensor,
        values_BTD: Tensor | None,
        visit: int = 0,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The stream behind the sublayer, what its branch adds to a second stream, and the side's first values so far.

        first_BTD: x_0. values_BTD: the values of the first attention, None before it.
        """
        self._visit = visit
        name, is_causal = f"{side}_{index}", self.config.is_causal or side == "decoder"
        if self.kinks is None and name not in self._programs:
            self._programs[name] = self._program(name, kind, is_causal) if self._is_of_pieces(name, kind) else None
        program = self._programs[name] if self.kinks is None else None
        if program is None:
            return self._around(name, kind, is_causal, x_BTD, memory_BSD, first_BTD, values_BTD)
        given = map(self._weights._parameters.__getitem__, program.names)
        (x_BTD,) = Traced.apply(program, x_BTD, memory_BSD if kind == "cross" else None, first_BTD, *given)
        return x_BTD, None, values_BTD

    def _program(self, name: str, kind: str, is_causal: bool) -> Program:
        """What ``_around`` does, written down: its tensors are places."""
        program = self._recording = Program(3, self._names[name])
        x: Any = 1
        memory: Any = 2
        first: Any = 3
        self._around(name, kind, is_causal, x, memory, first, None)
        self._recording = None
        return program

    def _is_of_pieces(self, name: str, kind: str) -> bool:
        """Whether a sublayer consists of pieces alone, and is one node of the graph."""
        config, given = self.config, self._names[name]
        has_more = config.has_second_stream or config.norm_kind in ("dyt", "derf") or self._places[name] & _OF_HEADS
        is_ffn_of_pieces = config.activation == "relu"
        is_attention_of_pieces = not (self._mixes_values or config.rotary_base or config.key_heads < config.num_heads)
        return (
            self.is_traced
            and not has_more
            and given[-1].removeprefix(f"{name}_") not in ("head_scale", "layer_scale", "branch_weight")
            and (is_ffn_of_pieces or kind not in ("ffn", "parallel"))
            and (is_attention_of_pieces or kind == "ffn")
        )

    def _around(
        self,
        name: str,
        kind: str,
        is_causal: bool,
        x_BTD: Tensor,
        memory_BSD: Tensor | None,
        first_BTD: Tensor,
        values_BTD: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What ``_sublayer`` gives: the branch, and what stands around it."""
        numbers, branch_weight = self.numbers[name], 1.0
        u_BTD = self._sum((numbers.input_scale, self._norm("pre", name, x_BTD)))
        branch_BTD, values_BTD = self._branch(name, kind, u_BTD, memory_BSD, is_causal, values_BTD)
        branch_BTD = self._norm("branch", name, branch_BTD)
        if (scale := self._weight(f"{name}_layer_scale")) is not None:
            branch_BTD = across(scale, x_BTD) * branch_BTD
        elif (weight := self._weight(f"{name}_branch_weight")) is not None:
            branch_BTD = weight[..., None, None, None] * branch_BTD
        else:
            branch_weight = numbers.branch_weight
        if self.config.has_second_stream:
            branch_BTD, branch_weight = self._sum((branch_weight, branch_BTD)), 1.0
        terms = [(branch_weight, branch_BTD), (numbers.residual_weight, x_BTD)]
        terms += [(numbers.input_weight, first_BTD)] if self._adds_input else []
        added_BTD = branch_BTD if self.config.has_second_stream else None
        return self._norm("post", name, self._sum(*terms)), added_BTD, values_BTD

    def _do(self, piece: Piece, *inputs: Tensor | None) -> Any:
        """The piece's outputs or, of a program that is written, their places."""
        if self._recording is None:
            return alone(piece, *inputs)
        places: Any = inputs
        return self._recording.add(piece, *places)

    def _weight(self, name: str) -> Any:
        """A parameter, None where there is none, or its place in a program that is written."""
        return (self._weights if self._recording is None else self._recording.parameters).get(name)

    def _activated(self, name: str, u_BTF: Tensor) -> Tensor:
        """phi(u) in the sublayer of that name."""
        activated = phi(self.config.activation)
        if self.kinks is None or self.config.activation not in KINKED:
            return activated(u_BTF)
        if (place := (name, self._visit)) not in self.kinks:
            self.kinks[place] = u_BTF.detach() > 0
        return torch.where(self.kinks[place], u_BTF, -activated(u_BTF.new_tensor(-1.0)) * u_BTF)

    def _branch(
        self,
        name: str,
        kind: str,
        u_BTD: Tensor,
        memory_BSD: Tensor | None,
        is_causal: bool,
        values_BTD: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The branch's output, and the side's first values so far."""
        if kind == "parallel":
            attended_BTD, values_BTD = self._branch(name, "attention", u_BTD, None, is_causal, values_BTD)
            fed_BTD, _ = self._branch(name, "ffn", u_BTD, None, False, None)
            return self._sum((1.0, attended_BTD), (1.0, fed_BTD)), values_BTD
        if kind == "ffn":
            if self.config.activation == "relu" and self.kinks is None:
                hidden_BTF = self._linear(f"{name}_fc1", u_BTD, is_relu=True)
            else:
                asked = [f"{name}_fc1", *([f"{name}_fc3"] if self.config.activation in GATED else [])]
                hidden_BTF, *gates = self._linears(asked, u_BTD)
                hidden_BTF = self._activated(name, hidden_BTF)
                hidden_BTF = hidden_BTF * gates[0] if gates else hidden_BTF
            return self._linear(f"{name}_fc2", self._norm("inner", name, hidden_BTF)), values_BTD
        prefix, source_BSD = (f"{name}_cross_", memory_BSD) if kind == "cross" else (f"{name}_", u_BTD)
        assert source_BSD is not None
        asked = [f"{prefix}{role}" for role in "qkv"]
        if kind == "cross":
            q_BTD, (k_BSD, v_BSD) = self._linear(asked[0], u_BTD), self._linears(asked[1:], source_BSD)
        else:
            q_BTD, k_BSD, v_BSD = self._linears(asked, u_BTD)
        if self._mixes_values and kind == "attention":
            if values_BTD is None:
                values_BTD = v_BSD
            else:
                numbers = self.numbers[name]
                v_BSD = self._sum((numbers.value_weight, v_BSD), (numbers.first_value_weight, values_BTD))
        config, is_turned = self.config, bool(self.config.rotary_base) and kind != "cross"
        if self._places[name] & _OF_HEADS or is_turned or config.key_heads < config.num_heads:
            parts = (("q", q_BTD, is_turned), ("k", k_BSD, is_turned), ("v", v_BSD, False))
            q_BTD, k_BSD, v_BSD = (self._heads(name, *part) for part in parts)
        mixed_BTD = self._mixed(q_BTD, k_BSD, v_BSD, is_causal and kind == "attention")
        if (scale := self._weight(f"{name}_head_scale")) is not None:
            mixed_BTD = (mixed_BTD.unflatten(-1, (config.num_heads, -1)) * scale[..., None, None, :, None]).flatten(-2)
        return self._linear(f"{prefix}out", self._norm("inner", name, mixed_BTD)), values_BTD

    def _mixed(self, q_BTD: Tensor, k_BSD: Tensor, v_BSD: Tensor, is_causal: bool) -> Tensor:
        """The mean of the values of each head, weighted as queries and keys say."""
        config = self.config
        return self._do(Mix(config.size_of_head, self._scale, config.logit_softcap, is_causal), q_BTD, k_BSD, v_BSD)[0]

    @property
    def _scale(self) -> float:
        """What the product of queries and keys is multiplied by."""
        scale = self.config.attention_scale
        return self.config.size_of_head**-0.5 if scale is None else scale

    def _heads(self, name: str, role: str, y_BTD: Tensor, is_turned: bool) -> Tensor:
        """Queries, keys or values behind their norm, turned; a head of keys once for each head of its queries."""
        config, place = self.config, f"{role}_norm"
        y_BTD = self._norm(place, name, y_BTD) if config.has_wide_norms else y_BTD
        y_BTHK = y_BTD.unflatten(-1, (-1, config.size_of_head))
        y_BTHK = y_BTHK if config.has_wide_norms else self._norm(place, name, y_BTHK)
        y_BTHK = self._turned(y_BTHK) if is_turned else y_BTHK
        num = config.num_heads // config.key_heads
        return (y_BTHK if role == "q" or num == 1 else y_BTHK.repeat_interleave(num, dim=-2)).flatten(-2)

    def _turned(self, x_BTHK: Tensor) -> Tensor:
        """Rotary positions: the pairs (i, i + K/2) turned by the token's place times base^(-i / pairs that turn)."""
        config, half = self.config, self.config.size_of_head // 2
        num_turned = max(1, round(half * config.rotary_share))
        turns = torch.arange(num_turned, device=x_BTHK.device, dtype=torch.float64) / num_turned
        frequencies = nn.functional.pad(config.rotary_base**-turns, (0, half - num_turned))
        places = torch.arange(x_BTHK.shape[-3], device=x_BTHK.device, dtype=torch.float64)
        angles = places[:, None, None] * frequencies
        cos, sin = angles.cos().to(x_BTHK.dtype), angles.sin().to(x_BTHK.dtype)
        left, right = x_BTHK.split(half, dim=-1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)

    def _linear(self, name: str, x_BTD: Tensor, *, is_relu: bool = False) -> Tensor:
        return self._linears([name], x_BTD, is_relu=is_relu)[0]

    def _linears(self, names: Sequence[str], x_BTD: Tensor, *, is_relu: bool = False) -> tuple[Tensor, ...]:
        """x W^T and its bias, of several matrices of one input. is_relu: with a ReLU behind."""
        given = [self._weight(f"{name}{ending}") for name in names for ending in ("", "_bias")]
        return self._do(Linear([f"_weights.{name}" for name in names], weakref.ref(self), is_relu), x_BTD, *given)

    def _sum(self, *terms: tuple[float | Tensor, Tensor]) -> Tensor:
        """Of each (number, x), number x."""
        numbers, tensors = zip(*terms, strict=True)
        is_one = len(terms) == 1 and not isinstance(numbers[0], Tensor) and numbers[0] == 1
        return tensors[0] if is_one else self._do(Sum(numbers), *tensors)[0]

    def _norm(self, place: str, name: str, x_BTD: Tensor) -> Tensor:
        if place not in self._places[name]:
            return x_BTD
        config, kind = self.config, self.config.norm_kind
        gain_D, bias_D = (self._weight(f"{name}_{place}_{ending}") for ending in ("gain", "bias"))
        if kind not in ("dyt", "derf"):
            norm = Norm(kind == "layernorm", config.norm_eps, partial(_tell, weakref.ref(self), name))
            return self._do(norm, x_BTD, gain_D, bias_D)[0]
        x_BTD = (torch.tanh if kind == "dyt" else torch.erf)(config.norm_scale * x_BTD)
        if gain_D is None or bias_D is None:
            return x_BTD
        return torch.addcmul(across(bias_D, x_BTD), x_BTD, across(gain_D, x_BTD))


def _tell(model: weakref.ref[Transformer], name: str, factor_BT1: Tensor) -> None:
    """While a pass goes forward the model is there."""
    if (there := model()) is not None:
        there.on_norm(name, factor_BT1)


_OF_HEADS = frozenset({"q_norm", "k_norm", "v_norm"})


def _look_up(table_VD: Tensor, tokens_BT: Tensor) -> Tensor:
    """The rows of each member's own table."""
    if table_VD.dim() == 2:
        return table_VD[tokens_BT]
    members_E = torch.arange(len(table_VD), device=table_VD.device)
    return table_VD[members_E[:, None, None], tokens_BT]


def gradients(model: Transformer, scalar: Tensor) -> dict[str, Tensor]:
    """d scalar / d parameter, by the parameter's name; zero where the scalar does not depend on it."""
    named = {name: parameter for name, parameter, _ in model.tagged()}
    grads = torch.autograd.grad(scalar, list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, grads, strict=True))


def by_role(model: Transformer, grads: Mapping[str, Tensor], measure: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """The sum over the parameters of each role of ``measure`` of their gradient."""
    sums: dict[str, float] = {}
    for name, _, role in model.tagged():
        sums[role] = sums.get(role, 0.0) + float(measure(grads[name]))
    return sums
