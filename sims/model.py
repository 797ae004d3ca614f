r"""A Transformer of residual sublayers, as plain numbers: any depth, norm placement and per-sublayer gain.

    x_l = norm_post(a_l x_{l-1} + b_l norm_branch(branch(c_l norm_pre(x_{l-1}))))
    ffn(u) = fc2(norm_inner(phi(fc1(u)))),   attention(u) = out(norm_inner(softmax(s q k^T) v))

Dimensions in names: B batch, T tokens, S tokens that are attended to, D d_model, H heads, K head size. Every matrix is
Xavier normal times its gain, Var = gain^2 2/(fan_in + fan_out); biases 0. Each parameter is tagged with its role when
it is made. In a cross-attention of placement "sub" no norm stands before ``out``: the paper and its code place one norm
there. Nothing here knows a paper's scheme; whoever builds a config does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

PLACEMENTS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "post": frozenset({"post"}),
    "pre": frozenset({"pre", "final"}),
    "sub": frozenset({"pre", "inner", "final"}),
    "peri": frozenset({"pre", "branch", "final"}),
}
"""Where norms stand. "final" is one norm behind the last sublayer of each side."""
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}
MATRICES: Mapping[str, tuple[str, ...]] = {
    "attention": ("q", "k", "v", "out"),
    "cross": ("cross_q", "cross_k", "cross_v", "cross_out"),
    "ffn": ("fc1", "fc2"),
}
"""Roles of the matrices of each kind of sublayer."""


@dataclass(frozen=True, kw_only=True)
class SublayerConfig:
    """One residual sublayer. gains: by role, 1 where absent."""

    kind: str
    residual_weight: float = 1.0
    branch_weight: float = 1.0
    input_scale: float = 1.0
    gains: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in MATRICES:
            raise ValueError(f"a sublayer is one of {', '.join(MATRICES)}, not {self.kind!r}")
        if unknown := set(self.gains) - set(MATRICES[self.kind]):
            raise ValueError(f"no role {', '.join(sorted(unknown))} in {self.kind}: {', '.join(MATRICES[self.kind])}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Plain numbers. attention_scale: what q k^T is multiplied by; left out, 1/sqrt(head size)."""

    encoder: tuple[SublayerConfig, ...]
    decoder: tuple[SublayerConfig, ...] = ()
    placement: str = "post"
    d_model: int = 64
    num_heads: int = 1
    ffn_ratio: int = 4
    activation: str = "relu"
    norm_kind: str = "layernorm"
    has_affine: bool = False
    has_bias: bool = False
    is_causal: bool = False
    attention_scale: float | None = None
    norm_eps: float = 0.0

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is one of {', '.join(PLACEMENTS)}, not {self.placement!r}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if self.norm_kind not in ("layernorm", "rmsnorm"):
            raise ValueError(f"norm_kind is layernorm or rmsnorm, not {self.norm_kind!r}")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if not self.encoder:
            raise ValueError("a model has at least one sublayer")
        if any(sublayer.kind == "cross" for sublayer in self.encoder):
            raise ValueError("an encoder has nothing to cross-attend to: cross stands in the decoder")


def alternating(num_sublayers: int, **numbers: float | Mapping[str, float]) -> tuple[SublayerConfig, ...]:
    """attention, ffn, attention, ...; numbers: fields of each, ``gains`` for those roles that a sublayer has."""
    return _cycle(("attention", "ffn"), num_sublayers, numbers)


def decoder_layers(num_layers: int, **numbers: float | Mapping[str, float]) -> tuple[SublayerConfig, ...]:
    """num_layers times attention, cross, ffn."""
    return _cycle(("attention", "cross", "ffn"), 3 * num_layers, numbers)


def _cycle(kinds: tuple[str, ...], count: int, numbers: Mapping) -> tuple[SublayerConfig, ...]:
    gains = numbers.get("gains", {})
    rest = {name: value for name, value in numbers.items() if name != "gains"}
    chosen = (kinds[index % len(kinds)] for index in range(count))
    return tuple(
        SublayerConfig(kind=kind, gains={r: g for r, g in gains.items() if r in MATRICES[kind]}, **rest)
        for kind in chosen
    )


class Transformer(nn.Module):
    """The model, in float64. ``roles`` has each parameter's role by its name."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.config = config
        self.roles: dict[str, str] = {}
        self._weights = nn.ParameterDict()
        self._generator = torch.Generator().manual_seed(seed)
        self._norms = PLACEMENTS[config.placement]
        for side, sublayers in (("encoder", config.encoder), ("decoder", config.decoder)):
            for index, sublayer in enumerate(sublayers):
                self._make_sublayer(f"{side}_{index}", sublayer)
            if sublayers and "final" in self._norms:
                self._make_norm(f"{side}_final", config.d_model)

    # ---------------------------------------------------------------- making

    def _add(self, name: str, role: str, value: Tensor) -> None:
        self._weights[name] = nn.Parameter(value)
        self.roles[f"_weights.{name}"] = role

    def _make_sublayer(self, name: str, sublayer: SublayerConfig) -> None:
        config, d = self.config, self.config.d_model
        hidden = d * config.ffn_ratio if sublayer.kind == "ffn" else d
        shapes = {"fc1": (hidden, d), "fc2": (d, hidden)}
        for role in MATRICES[sublayer.kind]:
            rows, columns = shapes.get(role, (d, d))
            std = sublayer.gains.get(role, 1.0) * math.sqrt(2 / (rows + columns))
            draw = torch.randn((rows, columns), generator=self._generator, dtype=torch.float64)
            self._add(f"{name}_{role}", role, std * draw)
            if config.has_bias:
                self._add(f"{name}_{role}_bias", f"{role}_bias", torch.zeros(rows, dtype=torch.float64))
        for place in sorted(self._norms - {"final"}):
            if place != "inner" or sublayer.kind != "cross":
                self._make_norm(f"{name}_{place}", hidden if place == "inner" else d)

    def _make_norm(self, name: str, width: int) -> None:
        if not self.config.has_affine:
            return
        self._add(f"{name}_gain", "norm_gain", torch.ones(width, dtype=torch.float64))
        if self.config.norm_kind == "layernorm":
            self._add(f"{name}_bias", "norm_bias", torch.zeros(width, dtype=torch.float64))

    # ---------------------------------------------------------------- running

    def forward(self, x_BTD: Tensor, y_BTD: Tensor | None = None) -> Tensor:
        """The last hidden state, (B, T, D); of the decoder on ``y_BTD`` where there is one."""
        return self.streams(x_BTD, y_BTD)[-1]

    def streams(self, x_BTD: Tensor, y_BTD: Tensor | None = None) -> list[Tensor]:
        """x_0, x_1, ... of the last side, and behind them the final norm's output where there is one."""
        encoded = self.encode(x_BTD)
        if not self.config.decoder:
            return encoded
        if y_BTD is None:
            raise ValueError("an encoder-decoder needs the decoder's input as well")
        return self._side("decoder", self.config.decoder, y_BTD, encoded[-1])

    def encode(self, x_BTD: Tensor) -> list[Tensor]:
        """The same of the encoder alone."""
        return self._side("encoder", self.config.encoder, x_BTD, None)

    def _side(
        self, side: str, sublayers: tuple[SublayerConfig, ...], x_BTD: Tensor, memory_BSD: Tensor | None
    ) -> list[Tensor]:
        streams = [x_BTD]
        is_causal = self.config.is_causal or side == "decoder"
        for index, sublayer in enumerate(sublayers):
            name = f"{side}_{index}"
            u_BTD = sublayer.input_scale * self._norm("pre", name, x_BTD)
            branch_BTD = self._norm("branch", name, self._branch(name, sublayer.kind, u_BTD, memory_BSD, is_causal))
            total_BTD = sublayer.residual_weight * x_BTD + sublayer.branch_weight * branch_BTD
            x_BTD = self._norm("post", name, total_BTD)
            streams.append(x_BTD)
        if "final" in self._norms:
            streams.append(self._norm("final", side, x_BTD))
        return streams

    def _branch(self, name: str, kind: str, u_BTD: Tensor, memory_BSD: Tensor | None, is_causal: bool) -> Tensor:
        if kind == "ffn":
            phi = ACTIVATIONS[self.config.activation]
            return self._linear(f"{name}_fc2", self._norm("inner", name, phi(self._linear(f"{name}_fc1", u_BTD))))
        prefix, source_BSD = (f"{name}_cross_", memory_BSD) if kind == "cross" else (f"{name}_", u_BTD)
        assert source_BSD is not None
        q_BHTK = self._heads(self._linear(f"{prefix}q", u_BTD))
        k_BHSK = self._heads(self._linear(f"{prefix}k", source_BSD))
        v_BHSK = self._heads(self._linear(f"{prefix}v", source_BSD))
        scale = self.config.attention_scale
        scores_BHTS = q_BHTK @ k_BHSK.mT * (q_BHTK.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal and kind == "attention":
            future_TS = torch.ones(scores_BHTS.shape[-2:], dtype=torch.bool).triu(1)
            scores_BHTS = scores_BHTS.masked_fill(future_TS, -math.inf)
        mixed_BHTK = self.attend(scores_BHTS) @ v_BHSK
        mixed_BTD = mixed_BHTK.transpose(1, 2).flatten(2)
        if kind != "cross":
            mixed_BTD = self._norm("inner", name, mixed_BTD)
        return self._linear(f"{prefix}out", mixed_BTD)

    def attend(self, scores_BHTS: Tensor) -> Tensor:
        """Weights of the tokens; a subclass can put something else in softmax's place."""
        return scores_BHTS.softmax(-1)

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2)

    def _linear(self, name: str, x_BTD: Tensor) -> Tensor:
        bias = self._weights[f"{name}_bias"] if self.config.has_bias else None
        return nn.functional.linear(x_BTD, self._weights[name], bias)

    def _norm(self, place: str, name: str, x_BTD: Tensor) -> Tensor:
        if place not in self._norms:
            return x_BTD
        if self.config.norm_kind == "layernorm":
            x_BTD = x_BTD - x_BTD.mean(-1, keepdim=True)
        x_BTD = x_BTD * (x_BTD.square().mean(-1, keepdim=True) + self.config.norm_eps).rsqrt()
        if self.config.has_affine:
            x_BTD = x_BTD * self._weights[f"{name}_{place}_gain"]
            if self.config.norm_kind == "layernorm":
                x_BTD = x_BTD + self._weights[f"{name}_{place}_bias"]
        return x_BTD


def gradients(model: Transformer, scalar: Tensor) -> dict[str, Tensor]:
    """d scalar / d parameter, by the parameter's name; zero where the scalar does not depend on it."""
    named = dict(model.named_parameters())
    found = torch.autograd.grad(scalar, list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def by_role(model: Transformer, grads: Mapping[str, Tensor], measure: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """The sum over the parameters of each role of ``measure`` of their gradient."""
    sums: dict[str, float] = {}
    for name, grad in grads.items():
        role = model.roles[name]
        sums[role] = sums.get(role, 0.0) + float(measure(grad))
    return sums
