"""What sims are asked about, as plain numbers: a network, what it is given and read for, and the unit of its update.

``ModelConfig`` is all that a network is made of: its sublayers, which ``alternating`` and ``decoder_layers`` list, its
width, its norms. ``Task`` says what the network is given, and what of it is read. Nothing here imports torch, so that
whoever only predicts need not wait for it.

>>> from depthlaw.sims.config import ModelConfig, SublayerConfig, Task, alternating, decoder_layers
>>> config = ModelConfig(encoder=alternating(4), d_model=16, num_heads=2)
>>> config.size_of_head, Task(num_tokens=4, objective="ce").on(config).num_outputs
(8, 16)
>>> [one.kind for one in alternating(4, residual_weight=2.0)]
['attention', 'ffn', 'attention', 'ffn']
>>> [one.kind for one in decoder_layers(1)]
['attention', 'cross', 'ffn']
>>> SublayerConfig(kind="ffn", gains={"q": 2.0})
Traceback (most recent call last):
    ...
ValueError: no role q in ffn: fc1, fc2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

PLACEMENTS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "post": frozenset({"post"}),
    "pre": frozenset({"pre", "final"}),
    "sub": frozenset({"pre", "inner", "final"}),
    "peri": frozenset({"pre", "branch", "final"}),
    "normformer": frozenset({"pre", "inner", "branch", "final"}),
}
"""Where norms stand. "final" is one norm behind the last sublayer of each side. In a cross-attention of "sub" no norm
stands before ``out``: the paper and its code place one norm there. In "normformer" an FFN has the inner norm, an
attention the branch norm and a trained scale of each head."""
ACTIVATIONS: Mapping[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "tanh": "tanh",
    "identity": "",
    "leaky_relu": "leaky_relu",
    "relu2": "",
    "swiglu": "silu",
    "geglu": "gelu",
    "reglu": "relu",
}
"""The activation phi, by name: a function of torch.nn.functional, "" for phi(u) = u."""
GATED = ("swiglu", "geglu", "reglu")
"""The activations phi of FFNs of three matrices, fc2(phi(fc1(u)) * fc3(u))."""
KINKED = ("relu", "leaky_relu", "reglu")
"""The activations phi whose derivative jumps at 0, where two straight lines meet."""
NORM_PLACES = ("pre", "q", "k", "v", "inner", "branch", "post")
BEFORE_NORM: Mapping[str, tuple[str, ...]] = {
    "q": ("q",),
    "k": ("k",),
    "v": ("v",),
    "inner": ("v", "fc1", "fc3"),
    "branch": ("v", "out", "fc1", "fc3", "fc2"),
}
"""The matrices between a sublayer's input and a norm at this place."""
NORM_KINDS = ("layernorm", "rmsnorm", "dyt", "derf")
"""dyt and derf are functions of each entry in a norm's place: tanh(s x) and erf(s x)."""
MATRICES: Mapping[str, tuple[str, ...]] = {
    "attention": ("q", "k", "v", "out"),
    "cross": ("cross_q", "cross_k", "cross_v", "cross_out"),
    "ffn": ("fc1", "fc2"),
    "parallel": ("q", "k", "v", "out", "fc1", "fc2"),
}
"""Roles of the matrices of each kind of sublayer; a gated FFN has fc3 besides. parallel: attention and FFN of one
input, both added to it."""
BRANCH_ROLES = (*MATRICES["attention"], *MATRICES["cross"], *MATRICES["ffn"], "fc3")
OTHER_ROLES = ("bias", "norm_gain", "norm_bias", "branch_weight", "layer_scale", "embedding", "head")


@dataclass(frozen=True, kw_only=True)
class SublayerConfig:
    """One residual sublayer. gains, lr_multipliers: by role, 1 where absent.

    trains_branch_weight: whether b is itself a parameter, as in ReZero. has_layer_scale: whether it is a trained vector
    of D entries, each b at first. input_weight: s of a x_{l-1} + s x_0 + b F, the weight of the stream's beginning.
    value_weight, first_value_weight: an attention's values are the first times W_v u, plus the second times the values
    of the first attention of its side (whose own values are W_v u). norms: of ``NORM_PLACES``, in place of those that
    the model's placement gives.
    """

    kind: str
    residual_weight: float = 1.0
    branch_weight: float = 1.0
    input_scale: float = 1.0
    input_weight: float = 0.0
    value_weight: float = 1.0
    first_value_weight: float = 0.0
    gains: Mapping[str, float] = field(default_factory=dict)
    lr_multipliers: Mapping[str, float] = field(default_factory=dict)
    trains_branch_weight: bool = False
    has_layer_scale: bool = False
    norms: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.norms is not None and (unknown := self.norms - set(NORM_PLACES)):
            raise ValueError(f"norms stand at {', '.join(NORM_PLACES)}, not at {', '.join(sorted(unknown))}")
        if self.kind not in MATRICES:
            raise ValueError(f"a sublayer is one of {', '.join(MATRICES)}, not {self.kind!r}")
        gate = {"fc3"} if "fc1" in MATRICES[self.kind] else set()
        if unknown := set(self.gains) - {*MATRICES[self.kind], *gate}:
            raise ValueError(f"no role {', '.join(sorted(unknown))} in {self.kind}: {', '.join(MATRICES[self.kind])}")
        if unknown := set(self.lr_multipliers) - {*MATRICES[self.kind], *gate, *OTHER_ROLES}:
            raise ValueError(f"no role {', '.join(sorted(unknown))} in {self.kind} for a learning rate")
        if self.mixes_values and self.kind not in ("attention", "parallel"):
            raise ValueError(f"values are mixed in self-attentions, not in {self.kind}")

    @property
    def mixes_values(self) -> bool:
        """Whether an attention's values are anything but W_v u."""
        return (self.value_weight, self.first_value_weight) != (1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A network as plain numbers.

    encoder: the sublayers of the encoder or, with is_causal, of a decoder-only model. ffn_width: the width of an FFN;
    left out, it is ffn_ratio times d_model. has_qk_norm: whether every attention has norms of queries and keys.
    has_wide_norms: whether norms of queries, keys and values run over all heads at once. num_kv_heads: the number of
    heads of keys and values; left out, it is that of queries. head_size: K; left out, it is d_model / num_heads.
    rotary_base: the base of rotary positions, 0 for none. rotary_share: the share of a head that they turn.
    attention_scale: the factor of q k^T; left out, it is 1/sqrt(K). logit_softcap: c of c tanh(logit / c), 0 for none.
    norm_scale: s of dyt and derf, which is not trained. has_final: whether a norm stands behind the last sublayer of
    each side; None leaves that to the placement. has_second_stream: whether ResiDual's y = x_0 + the sum of all
    branches runs beside the stream x that they read; a side then ends in x + norm(y). embedding_std: the standard
    deviation of an input's entries before they are multiplied by embedding_multiplier. decoder_embedding_std: of the
    decoder's, where it is another. head_gain: the standard deviation of the head's entries in units of sqrt(1/D).
    num_outputs: the number of rows of the head, 0 for a model without one. vocab_size: 0 for a model that is given
    vectors, not tokens. has_short_draws: whether normals have 24 bits, which are drawn four times as fast. visits: how
    often a side's sublayers are gone through, with the same weights each time. is_side_by_side: whether encoder and
    decoder are two streams that share their attentions: the queries, keys and values of both, each by matrices of its
    own, are those of one sequence. recomputes: whether the backward pass keeps only what runs between sublayers, and
    computes the rest again.
    """

    encoder: tuple[SublayerConfig, ...]
    decoder: tuple[SublayerConfig, ...] = ()
    placement: str = "post"
    d_model: int = 64
    num_heads: int = 1
    ffn_ratio: int = 4
    ffn_width: int | None = None
    activation: str = "relu"
    norm_kind: str = "layernorm"
    has_affine: bool = False
    has_bias: bool = False
    has_qk_norm: bool = False
    has_wide_norms: bool = False
    num_kv_heads: int | None = None
    head_size: int | None = None
    rotary_base: float = 0.0
    rotary_share: float = 1.0
    is_causal: bool = False
    attention_scale: float | None = None
    logit_softcap: float = 0.0
    norm_scale: float = 0.5
    has_final: bool | None = None
    has_second_stream: bool = False
    embedding_std: float = 1.0
    embedding_multiplier: float = 1.0
    decoder_embedding_std: float | None = None
    head_gain: float = 1.0
    norm_eps: float = 0.0
    num_outputs: int = 0
    vocab_size: int = 0
    has_short_draws: bool = False
    recomputes: bool = False
    visits: int = 1
    is_side_by_side: bool = False

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is one of {', '.join(PLACEMENTS)}, not {self.placement!r}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if self.norm_kind not in NORM_KINDS:
            raise ValueError(f"norm_kind is one of {', '.join(NORM_KINDS)}, not {self.norm_kind!r}")
        for name, number in (
            ("d_model", self.d_model),
            ("num_heads", self.num_heads),
            ("ffn width", self.hidden),
            ("visits", self.visits),
        ):
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if self.head_size is None and self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if self.num_kv_heads is not None and (self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads):
            raise ValueError(
                f"{self.num_heads} heads of queries cannot share {self.num_kv_heads} heads of keys evenly: the second "
                "number has to divide the first"
            )
        if self.rotary_base and self.size_of_head % 2:
            raise ValueError(f"rotary positions turn pairs of numbers: a head of {self.size_of_head} cannot be halved")
        if not self.encoder:
            raise ValueError("a model has at least one sublayer")
        if any(sublayer.kind == "cross" for sublayer in self.encoder):
            raise ValueError("an encoder has nothing to cross-attend to: cross stands in the decoder")
        if any(sublayer.kind == "parallel" and "inner" in self.places(sublayer) for sublayer in self.encoder):
            raise ValueError("attention and FFN side by side have no norm within the branch: each would want its own")
        is_divided = self.norm_kind not in ("dyt", "derf") and not self.norm_eps
        for sublayer in (*self.encoder, *self.decoder) if is_divided else ():
            zeros = {role.removeprefix("cross_") for role, gain in sublayer.gains.items() if gain == 0}
            for place in sorted(self.places(sublayer) & set(BEFORE_NORM)) if zeros else ():
                if nothing := zeros & set(BEFORE_NORM[place]):
                    raise ValueError(f"a norm ({place}) behind {', '.join(sorted(nothing))}, which starts at 0: 0/0")

    @property
    def hidden(self) -> int:
        """The width F of the FFN."""
        return self.d_model * self.ffn_ratio if self.ffn_width is None else self.ffn_width

    @property
    def size_of_head(self) -> int:
        """The head size K."""
        return self.d_model // self.num_heads if self.head_size is None else self.head_size

    @property
    def key_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def ends_in_norm(self) -> bool:
        return "final" in PLACEMENTS[self.placement] if self.has_final is None else self.has_final

    def shape(self, role: str) -> tuple[int, int]:
        """(rows, columns) of a matrix of that role."""
        d, queries, keys = self.d_model, self.num_heads * self.size_of_head, self.key_heads * self.size_of_head
        by_role = {"q": (queries, d), "k": (keys, d), "v": (keys, d), "out": (d, queries)}
        by_role |= {"fc1": (self.hidden, d), "fc3": (self.hidden, d), "fc2": (d, self.hidden)}
        return by_role[role.removeprefix("cross_")]

    def std(self, sublayer: SublayerConfig, role: str) -> float:
        """The standard deviation of the entries of a matrix of that role in that sublayer."""
        return sublayer.gains.get(role, 1.0) * math.sqrt(2 / sum(self.shape(role)))

    def gain(self, role: str, std: float) -> float:
        """The gain, in units of Xavier's standard deviation, of a matrix of that role whose entries have this one."""
        return std / math.sqrt(2 / sum(self.shape(role)))

    def roles(self, kind: str) -> tuple[str, ...]:
        """The roles of the matrices of a sublayer of that kind."""
        is_gated = self.activation in GATED and "fc1" in MATRICES[kind]
        return (*MATRICES[kind], "fc3") if is_gated else MATRICES[kind]

    def places(self, sublayer: SublayerConfig) -> frozenset[str]:
        """The places of ``NORM_PLACES`` at which a sublayer has a norm."""
        places, kind = PLACEMENTS[self.placement] - {"final"}, sublayer.kind
        if sublayer.norms is not None:
            places = sublayer.norms
        elif kind == "cross" or (self.placement == "normformer" and kind == "attention"):
            places -= {"inner"}
        elif self.placement == "normformer" and kind == "ffn":
            places -= {"branch"}
        return places | {"q", "k"} if self.has_qk_norm and kind != "ffn" else places

    def embedding_std_of(self, side: str) -> float:
        return self.decoder_embedding_std if side == "decoder" and self.decoder_embedding_std else self.embedding_std

    @property
    def sides(self) -> tuple[tuple[str, tuple[SublayerConfig, ...]], ...]:
        """(name, sublayers) of the encoder and, where there is one, of the decoder."""
        decoder = (("decoder", self.decoder),) if self.decoder else ()
        return (("encoder", self.encoder), *decoder)

    @property
    def num_sums(self) -> dict[str, int]:
        """By side, how many sums its stream passes: one in each sublayer, at each of its visits."""
        return {side: self.visits * len(sublayers) for side, sublayers in self.sides}


def alternating(
    num_sublayers: int, **numbers: float | Mapping[str, float] | frozenset[str]
) -> tuple[SublayerConfig, ...]:
    """Attention and FFN sublayers in turn.

    numbers: fields of each sublayer. Of ``gains`` it takes those of its own roles.
    """
    return _cycle(("attention", "ffn"), num_sublayers, numbers)


def side_by_side(sublayers: tuple[SublayerConfig, ...]) -> tuple[SublayerConfig, ...]:
    """Each attention and the FFN behind it as one sublayer of one input, both added to it.

    ValueError where they do not come in pairs, or differ in the weights that they would share.
    """
    pairs = list(zip(sublayers[::2], sublayers[1::2], strict=False))
    if len(sublayers) % 2 or any((first.kind, second.kind) != ("attention", "ffn") for first, second in pairs):
        raise ValueError("side by side stand an attention and an FFN: layers of these two, a whole number of them")
    parallel = []
    for first, second in pairs:
        shared = replace(second, kind="attention", gains=first.gains, lr_multipliers=first.lr_multipliers)
        if shared != first:
            raise ValueError("attention and FFN side by side have one residual weight, branch weight and input scale")
        rates = {**first.lr_multipliers, **second.lr_multipliers}
        parallel.append(replace(first, kind="parallel", gains={**first.gains, **second.gains}, lr_multipliers=rates))
    return tuple(parallel)


def decoder_layers(num_layers: int, **numbers: float | Mapping[str, float]) -> tuple[SublayerConfig, ...]:
    """The sublayers of ``num_layers`` decoder layers: attention, cross and ffn in each."""
    return _cycle(("attention", "cross", "ffn"), 3 * num_layers, numbers)


def _cycle(kinds: tuple[str, ...], count: int, numbers: Mapping) -> tuple[SublayerConfig, ...]:
    gains = numbers.get("gains", {})
    rest = {name: value for name, value in numbers.items() if name != "gains"}
    chosen = (kinds[index % len(kinds)] for index in range(count))
    return tuple(
        SublayerConfig(kind=kind, gains={r: g for r, g in gains.items() if r in MATRICES[kind]}, **rest)
        for kind in chosen
    )


# --- what is asked of a network

READOUTS = ("last", "sum")
OBJECTIVES = ("logit", "ce")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the networks are given, and what of them is asked.

    num_tokens: T, the tokens of a sequence on either side. batch_size: B; the objective is the mean over the batch.
    correlation: that of any two input tokens of a sequence, whose entries are standard normal. readout: which tokens
    are read, the last or all ("sum"). Of a logit all means the sum over tokens, each with a head of its own; of a
    cross-entropy it means their mean. num_classes: the number of classes of a cross-entropy. trains_inputs: whether
    each input vector is the row of an embedding, a table of its own on either side, whose update has the role
    "embedding". What a step moves is measured with the inputs where they were.
    """

    num_tokens: int = 1
    batch_size: int = 1
    correlation: float = 0.0
    readout: str = "last"
    objective: str = "logit"
    num_classes: int = 16
    trains_inputs: bool = False

    def __post_init__(self) -> None:
        if self.readout not in READOUTS:
            raise ValueError(f"readout is one of {', '.join(READOUTS)}, not {self.readout!r}")
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective is one of {', '.join(OBJECTIVES)}, not {self.objective!r}")
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"correlation lies between 0 and 1, not at {self.correlation:g}")
        for name, number in (("num_tokens", self.num_tokens), ("batch_size", self.batch_size)):
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if self.objective == "ce" and self.num_classes < 2:
            raise ValueError(f"a cross-entropy has at least 2 classes, not {self.num_classes}")

    @property
    def reading(self) -> str:
        """Which of the readings the objective is."""
        return "loss" if self.objective == "ce" else "logit"

    def on(self, config: ModelConfig) -> ModelConfig:
        """The config with the head that the task reads."""
        if self.trains_inputs and config.vocab_size:
            raise ValueError("trains_inputs is of input vectors: a vocabulary has a table that trains already")
        each = self.num_tokens if self.readout == "sum" else 1
        return replace(config, num_outputs=self.num_classes if self.objective == "ce" else each)


# --- the unit of an update, by optimizer

RMSPROP_SMOOTHING = 0.99
"""torch's own alpha. RMSprop corrects no bias, so its first step is sign(g) / sqrt(1 - alpha)."""


class Normalisation(NamedTuple):
    """<grad, first_step> / (constant * d_model**power) is the update per unit learning rate, O(1) in the width."""

    power: float
    constant: float = 1.0


NORMALISATION: Mapping[str, Normalisation] = {
    "sgd": Normalisation(1.0),
    "momentum": Normalisation(1.0),
    "adam": Normalisation(1.5),
    "adamw": Normalisation(1.5),
    "rmsprop": Normalisation(1.5, (1 - RMSPROP_SMOOTHING) ** -0.5),
    "signsgd": Normalisation(1.5),
    "lion": Normalisation(1.5),
    "adafactor": Normalisation(1.0),
    "lars": Normalisation(1.0),
    "lamb": Normalisation(1.0),
    "muon": Normalisation(0.5),
    "sophia": Normalisation(1.5),
    "muon+adamw": Normalisation(1.0, 0.2),
}
MIXED = "muon+adamw"
"""Muon for the matrices of branches, AdamW for all else."""
MATCHED = NORMALISATION[MIXED].constant
"""arXiv:2502.16982, section 2.2: over sqrt(max(m, n)), what makes Muon's step about as large as AdamW's."""
OPTIMIZERS: tuple[str, ...] = tuple(NORMALISATION)
