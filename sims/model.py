r"""A Transformer of residual sublayers, as plain numbers: any depth, norm placement and per-sublayer gain.

    x_l = norm_post(a_l x_{l-1} + b_l norm_branch(branch(c_l norm_pre(x_{l-1}))))
    ffn(u) = fc2(norm_inner(phi(fc1(u)))),   attention(u) = out(norm_inner(softmax(s q k^T) v))

A sublayer may add x_0 again, times a weight of its own, and an attention may mix the values of the first attention of
its side into its own. A gated FFN is fc2(norm_inner(phi(fc1(u)) * fc3(u))). Queries, keys and values may have norms of
their own, keys and values fewer heads than queries, positions may be rotary, logits capped; attention and FFN may stand
side by side.

Dimensions in names: E ensemble members, B batch, T tokens, S tokens that are attended to, D d_model, F ffn width, H
heads, K head size. Every matrix is Xavier normal times its gain, Var = gain^2 2/(fan_in + fan_out); biases 0, norm
gains 1, embeddings N(0, 1), head N(0, 1/D). Each parameter is tagged with its role when it is made. The FFN-only stack
of the theorems is the same code with ``kind="ffn"`` in every sublayer.

All code below is written for the last dimensions of its tensors, so that it also runs many models at once: weights with
one leading dimension E more (``sims.ensemble``), and inputs with the same. Nothing here knows a paper's scheme; whoever
builds a config does.

Memory of one model of P parameters with its gradients: 16 P bytes in float64. A backward pass keeps B T (5 D + 2 F) to
B T (15 D + 5 F) numbers of an FFN, by its norms, and B T (10 D + H T) to B T (25 D + H T) of an attention; with
``recomputes`` only B T D of each, and those of one sublayer at a time. ``sims.ensemble.bytes_of_member`` counts them.

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
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from depthlaw.sims.config import (
    ACTIVATIONS,
    BRANCH_ROLES,
    GATED,
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
    """

    def __init__(
        self,
        config: ModelConfig,
        seed: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
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
        return _apply(self._weights["head"], h_BTD)

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
        for index, sublayer in enumerate(sublayers):
            arguments = (side, index, sublayer.kind, x_BTD, memory_BSD, first_BTD, values_BTD)
            x_BTD, added_BTD, values_BTD = self._through(*arguments)
            if self.config.has_second_stream:
                second_BTD = second_BTD + added_BTD
            x_BTD = self.on_stream(side, index + 1, x_BTD)
            yield index + 1, x_BTD
        if ends := self._places[side]:
            is_sum = "second" in ends
            x_BTD = x_BTD + self._norm("second", side, second_BTD) if is_sum else self._norm("final", side, x_BTD)
            yield len(sublayers) + 1, self.on_stream(side, len(sublayers) + 1, x_BTD)

    def _through(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor | None]:
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
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The stream behind the sublayer, what its branch adds to the stream, and the side's first values so far.

        first_BTD: x_0. values_BTD: the values of the first attention, None before it.
        """
        name = f"{side}_{index}"
        numbers = self.numbers[name]
        branch_weight = numbers.branch_weight
        if f"{name}_layer_scale" in self._weights:
            branch_weight = self._across(f"{name}_layer_scale", x_BTD)
        elif f"{name}_branch_weight" in self._weights:
            branch_weight = self._weights[f"{name}_branch_weight"][..., None, None, None]
        is_causal = self.config.is_causal or side == "decoder"
        u_BTD = _times(numbers.input_scale, self._norm("pre", name, x_BTD))
        branch_BTD, values_BTD = self._branch(name, kind, u_BTD, memory_BSD, is_causal, values_BTD)
        added_BTD = _times(branch_weight, self._norm("branch", name, branch_BTD))
        sum_BTD = _times(numbers.residual_weight, x_BTD) + added_BTD
        if self._adds_input:
            sum_BTD = sum_BTD + numbers.input_weight * first_BTD
        return self._norm("post", name, sum_BTD), added_BTD, values_BTD

    def _activated(self, name: str, u_BTF: Tensor) -> Tensor:
        """phi(u) in the sublayer of that name."""
        return phi(self.config.activation)(u_BTF)

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
            return attended_BTD + self._branch(name, "ffn", u_BTD, None, False, None)[0], values_BTD
        if kind == "ffn":
            hidden_BTF = self._activated(name, self._linear(f"{name}_fc1", u_BTD))
            if self.config.activation in GATED:
                hidden_BTF = hidden_BTF * self._linear(f"{name}_fc3", u_BTD)
            return self._linear(f"{name}_fc2", self._norm("inner", name, hidden_BTF)), values_BTD
        prefix, source_BSD = (f"{name}_cross_", memory_BSD) if kind == "cross" else (f"{name}_", u_BTD)
        assert source_BSD is not None
        v_BSD = self._linear(f"{prefix}v", source_BSD)
        if self._mixes_values and kind == "attention":
            if values_BTD is None:
                values_BTD = v_BSD
            else:
                v_BSD = self.numbers[name].value_weight * v_BSD + self.numbers[name].first_value_weight * values_BTD
        q_BHTK = self._heads(name, "q", self._linear(f"{prefix}q", u_BTD))
        k_BHSK = self._heads(name, "k", self._linear(f"{prefix}k", source_BSD))
        v_BHSK = self._heads(name, "v", v_BSD)
        if self.config.rotary_base and kind != "cross":
            q_BHTK, k_BHSK = self._turned(q_BHTK), self._turned(k_BHSK)
        mixed_BHTK = self._mixed(q_BHTK, k_BHSK, v_BHSK, is_causal and kind == "attention")
        if f"{name}_head_scale" in self._weights:
            mixed_BHTK = mixed_BHTK * self._weights[f"{name}_head_scale"][..., None, :, None, None]
        mixed_BTD = self._norm("inner", name, mixed_BHTK.transpose(-3, -2).flatten(-2))
        return self._linear(f"{prefix}out", mixed_BTD), values_BTD

    def _mixed(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, is_causal: bool) -> Tensor:
        """The mean of the values, weighted as queries and keys say."""
        scale = self.config.attention_scale
        scores_BHTS = q_BHTK @ k_BHSK.mT * (q_BHTK.shape[-1] ** -0.5 if scale is None else scale)
        if cap := self.config.logit_softcap:
            scores_BHTS = cap * torch.tanh(scores_BHTS / cap)
        if is_causal:
            future_TS = torch.ones(scores_BHTS.shape[-2:], dtype=torch.bool, device=scores_BHTS.device).triu(1)
            scores_BHTS = scores_BHTS.masked_fill(future_TS, -math.inf)
        return self.attend(scores_BHTS) @ v_BHSK

    def attend(self, scores_BHTS: Tensor) -> Tensor:
        """The attention weights of these scores. A subclass can put something else in the place of softmax."""
        return scores_BHTS.softmax(-1)

    def _heads(self, name: str, role: str, y_BTD: Tensor) -> Tensor:
        """Queries, keys or values (B, H, T, K), behind their norm; a head of keys once for each head of its queries."""
        config, place = self.config, f"{role}_norm"
        y_BTD = self._norm(place, name, y_BTD) if config.has_wide_norms else y_BTD
        y_BHTK = y_BTD.unflatten(-1, (-1, config.size_of_head)).transpose(-3, -2)
        y_BHTK = y_BHTK if config.has_wide_norms else self._norm(place, name, y_BHTK)
        return y_BHTK if role == "q" else y_BHTK.repeat_interleave(config.num_heads // config.key_heads, dim=-3)

    def _turned(self, x_BHTK: Tensor) -> Tensor:
        """Rotary positions: the pairs (i, i + K/2) turned by the token's place times base^(-i / pairs that turn)."""
        config, half = self.config, self.config.size_of_head // 2
        num_turned = max(1, round(half * config.rotary_share))
        turns = torch.arange(num_turned, device=x_BHTK.device, dtype=torch.float64) / num_turned
        frequencies = nn.functional.pad(config.rotary_base**-turns, (0, half - num_turned))
        places = torch.arange(x_BHTK.shape[-2], device=x_BHTK.device, dtype=torch.float64)
        angles = places[:, None] * frequencies
        cos, sin = angles.cos().to(x_BHTK.dtype), angles.sin().to(x_BHTK.dtype)
        left, right = x_BHTK.split(half, dim=-1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)

    def _linear(self, name: str, x_BTD: Tensor) -> Tensor:
        y_BTD = _apply(self._weights[name], x_BTD)
        return y_BTD + self._weights[f"{name}_bias"][..., None, None, :] if self.config.has_bias else y_BTD

    def _norm(self, place: str, name: str, x_BTD: Tensor) -> Tensor:
        if place not in self._places[name]:
            return x_BTD
        kind = self.config.norm_kind
        if kind in ("dyt", "derf"):
            x_BTD = (torch.tanh if kind == "dyt" else torch.erf)(self.config.norm_scale * x_BTD)
        else:
            if kind == "layernorm":
                x_BTD, _, factor_BT1 = torch.native_layer_norm(
                    x_BTD, x_BTD.shape[-1:], None, None, self.config.norm_eps
                )
            else:
                factor_BT1 = (x_BTD.square().mean(-1, keepdim=True) + self.config.norm_eps).rsqrt()
                x_BTD = x_BTD * factor_BT1
            self.on_norm(name, factor_BT1)
        if not self.config.has_affine:
            return x_BTD
        gain = self._across(f"{name}_{place}_gain", x_BTD)
        return (
            x_BTD * gain
            if kind == "rmsnorm"
            else torch.addcmul(self._across(f"{name}_{place}_bias", x_BTD), x_BTD, gain)
        )

    def _across(self, name: str, x_BTD: Tensor) -> Tensor:
        """A vector parameter, broadcast over all dimensions of x but its members' and the last."""
        value = self._weights[name]
        return value.reshape(*value.shape[:-1], *(1,) * (x_BTD.dim() - value.dim()), value.shape[-1])


def _times(number: float | Tensor, x_BTD: Tensor) -> Tensor:
    """number x, without a pass over x where that is x."""
    return x_BTD if not isinstance(number, Tensor) and number == 1 else number * x_BTD


def _apply(weight_FD: Tensor, x_BTD: Tensor) -> Tensor:
    """x W^T, with batch and tokens as one dimension, since each member of an ensemble has a matrix of its own."""
    return (x_BTD.flatten(-3, -2) @ weight_FD.mT).unflatten(-2, x_BTD.shape[-3:-1])


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
