"""What the kernel rung is asked about: a Transformer as plain numbers, and what it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from depthlaw.theory.kernel.gram import Array, Gram
from depthlaw.theory.moments import ACTIVATIONS, GATED
from depthlaw.theory.stack import SublayerKind

PLACES: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "post": frozenset({"post"}),
    "pre": frozenset({"pre", "final"}),
    "sub": frozenset({"pre", "inner", "final"}),
    "peri": frozenset({"pre", "branch", "final"}),
    "normformer": frozenset({"pre", "inner", "branch", "final"}),
}
"""Where norms stand, by placement. A cross-attention has no inner norm; in normformer an FFN has no branch norm, and an
attention no inner one.
"""
NORM_PLACES = ("pre", "q", "k", "v", "inner", "branch", "post")
"""Where a sublayer can have a norm: before the branch; of the heads' queries, keys and values; before the branch's last
matrix; behind the branch; behind the sum."""
NORM_KINDS = ("layernorm", "rmsnorm", "dyt", "derf")
"""dyt and derf are no norms, but functions of each entry in their place: tanh(s x) and erf(s x)."""
BEFORE: Mapping[str, tuple[str, ...]] = {
    "q": ("q",),
    "k": ("k",),
    "v": ("v",),
    "inner": ("v", "fc1", "fc3"),
    "branch": ("v", "out", "fc1", "fc3", "fc2"),
}
"""The matrices between a sublayer's input and a norm at this place: where one is 0, the norm has nothing to divide."""

MOST_TOKENS = 512
"""The most tokens in all sequences together: the cost of a sublayer grows as their third power, and with rotary
positions as that times the size of a head."""
MOST_HEAD_SIZE = 4096
"""Each number of a head is a dimension of the quasi-random points."""


@dataclass(frozen=True, kw_only=True)
class Sublayer:
    """One residual sublayer. gains, lr_multipliers: by role, 1 where absent.

    kind: of ``theory.stack.SublayerKind``. residual_weight, branch_weight, input_scale: a, b, c of the one form.
    trains_branch_weight: whether b is itself a parameter. has_layer_scale: whether it is a trained vector of d entries,
    each b at first. input_weight: s of a x_{l-1} + s x_0 + b F, the weight of the stream's beginning. value_weight,
    first_value_weight: an attention's values are the first times W_v u, plus the second times the values of the first
    attention of its side (whose own values are W_v u). norms: of ``NORM_PLACES``, in place of those that the network's
    placement gives.

    >>> from depthlaw.theory.kernel.predict import Sublayer
    >>> from depthlaw.theory.stack import SublayerKind
    >>> Sublayer(kind=SublayerKind.FFN, residual_weight=2.0, gains={"fc1": 0.5, "fc2": 0.5}).branch_weight
    1.0
    """

    kind: SublayerKind
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
        if self.mixes_values and self.kind not in (SublayerKind.SELF, SublayerKind.PARALLEL):
            raise ValueError(f"values are mixed in self-attentions, not in {self.kind.value}")

    @property
    def mixes_values(self) -> bool:
        """Whether an attention's values are anything but W_v u."""
        return (self.value_weight, self.first_value_weight) != (1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """How the heads of an attention look at tokens. H heads of size K.

    number: H, 0 for infinitely many; it matters only for norms of single heads. queries_per_key: how many heads of
    queries share one head of keys and values (grouped heads). width_ratio: H K over d_model. rotary_base: the base of
    rotary positions, 0 for none. rotary_share: the share of a head that they turn. logit_scale: a factor of the logits
    q k^T / sqrt(K). logit_softcap: c of c tanh(logit / c), 0 for none. has_wide_norm: whether a norm of queries, keys
    or values is over all heads at once. ValueError for what cannot be.

    >>> from depthlaw.theory.kernel.setting import Heads
    >>> Heads(queries_per_key=4, rotary_base=10_000.0).logit_softcap
    0.0
    >>> Heads(rotary_share=2.0)
    Traceback (most recent call last):
        ...
    ValueError: the share of a head that is rotated lies between 0 and 1, not at 2
    """

    number: int = 0
    queries_per_key: int = 1
    width_ratio: float = 1.0
    rotary_base: float = 0.0
    rotary_share: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    has_wide_norm: bool = False

    def __post_init__(self) -> None:
        if self.queries_per_key < 1:
            raise ValueError(f"a head of keys serves at least one head of queries, not {self.queries_per_key}")
        if not 0 < self.rotary_share <= 1:
            raise ValueError(f"the share of a head that is rotated lies between 0 and 1, not at {self.rotary_share:g}")
        if self.logit_softcap < 0:
            raise ValueError(f"a cap of the logits is above 0, not {self.logit_softcap:g}")

    def rotations(self, positions: Array, size: int) -> tuple[Array, Array]:
        """cos and sin of each token's angles in a head of that size K, (n, K/2); pairs that are not rotated have angle
        0."""
        half = size // 2
        turned = max(1, round(half * self.rotary_share))
        frequencies = np.zeros(half)
        frequencies[:turned] = self.rotary_base ** -(np.arange(turned) / turned)
        angles = positions[:, None] * frequencies
        return np.cos(angles), np.sin(angles)


DRAWN_SIZE = 64
"""K that stands for infinite heads where heads have to be drawn, as for rotary positions."""


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A Transformer as plain numbers, of infinite width.

    encoder: the sublayers of the encoder or, with is_causal, of a decoder-only model. ffn_ratio: hidden width over
    d_model. activation: a name of ``theory.moments.ACTIVATIONS`` or ``GATED``. head_size: K; None is infinite, where
    logits are Gaussian. norm_scale: s of dyt and derf. norm_eps: what a norm adds to the mean square whose root it
    divides by. has_final: whether a norm stands behind the last sublayer of
    each side; None: as the placement says. has_second_stream: ResiDual's y_l = y_{l-1} + b_l F_l, y_0 = x_0, beside the
    stream x that branches F read; a side then ends in x + norm(y). is_aligned: whether all branches of a side push each
    token in one direction, so that what they add to the stream adds up in amplitude, and not in quadrature as at
    initialisation. visits: how often the sublayers are gone through, with the same weights each time (``visits.py``).
    ValueError, in one line, for what cannot be.

    >>> from depthlaw.theory.kernel.predict import Sublayer, Transformer
    >>> from depthlaw.theory.stack import SublayerKind
    >>> Transformer(encoder=(Sublayer(kind=SublayerKind.CROSS),))
    Traceback (most recent call last):
        ...
    ValueError: an encoder has nothing to cross-attend to: cross stands in the decoder
    """

    encoder: tuple[Sublayer, ...]
    decoder: tuple[Sublayer, ...] = ()
    placement: str = "post"
    norm_kind: str = "layernorm"
    norm_scale: float = 0.5
    norm_eps: float = 0.0
    has_final: bool | None = None
    has_second_stream: bool = False
    activation: str = "relu"
    ffn_ratio: float = 4.0
    is_causal: bool = False
    head_size: int | None = None
    heads: Heads = field(default_factory=Heads)
    is_aligned: bool = False
    visits: int = 1

    def __post_init__(self) -> None:
        if self.placement not in PLACES:
            raise ValueError(f"placement is one of {', '.join(PLACES)}, not {self.placement!r}")
        if self.norm_kind not in NORM_KINDS:
            raise ValueError(f"norm_kind is one of {', '.join(NORM_KINDS)}, not {self.norm_kind!r}")
        if self.activation not in (*ACTIVATIONS, *GATED):
            raise ValueError(f"activation is one of {', '.join((*ACTIVATIONS, *GATED))}, not {self.activation!r}")
        if (self.head_size or 1) > MOST_HEAD_SIZE:
            raise ValueError(
                f"a head of size {self.head_size}: at most {MOST_HEAD_SIZE} are computed, and infinite heads, which so "
                "large ones are close to"
            )
        if self.heads.rotary_base and (self.head_size or DRAWN_SIZE) % 2:
            raise ValueError(f"rotary positions turn pairs of numbers: a head of size {self.head_size} has no halves")
        if self.has_second_stream and (self.ends_in_norm or self.norm_kind in ("dyt", "derf")):
            raise ValueError("two streams end in the norm of the second, a real one, and in no other")
        every = (*self.encoder, *self.decoder)
        adds_input = any(sublayer.input_weight for sublayer in every)
        if self.is_aligned and (adds_input or self.has_second_stream):
            raise ValueError(
                "branches that push in one direction are derived for one stream, to which x_0 is not added"
            )
        if adds_input and (self.has_second_stream or self.norm_kind in ("dyt", "derf")):
            raise ValueError("x_0 is added to one stream alone, whose norms are real ones")
        if any(sublayer.mixes_values and "v" in self.places(sublayer) for sublayer in every):
            raise ValueError("values that are mixed with those of the first attention have no norm of their own")
        if self.visits < 1:
            raise ValueError(f"visits is at least 1, not {self.visits}")
        if self.visits > 1:
            self._check_visits()
        if not self.encoder:
            raise ValueError("a network has at least one sublayer")
        if any(sublayer.kind is SublayerKind.CROSS for sublayer in self.encoder):
            raise ValueError("an encoder has nothing to cross-attend to: cross stands in the decoder")
        for sublayer in every:
            zeros = {role.removeprefix("cross_") for role, gain in sublayer.gains.items() if gain == 0}
            is_divided = self.norm_kind not in ("dyt", "derf") and not self.norm_eps
            for place in sorted(self.places(sublayer) & set(BEFORE)) if is_divided else ():
                if nothing := zeros & set(BEFORE[place]):
                    raise ValueError(f"a norm ({place}) behind {', '.join(sorted(nothing))}, which starts at 0: 0/0")
            if sublayer.kind is SublayerKind.PARALLEL and "inner" in self.places(sublayer):
                raise ValueError(
                    "attention and FFN side by side have no norm within the branch: each would want its own"
                )

    def _check_visits(self) -> None:
        every = (*self.encoder, *self.decoder)
        others = {
            "a second stream": self.has_second_stream,
            "x_0 added again": any(sublayer.input_weight for sublayer in every),
            "values of the first attention mixed in": any(sublayer.mixes_values for sublayer in every),
            "branches that push in one direction": self.is_aligned,
            f"{self.norm_kind} behind the sum": self.norm_kind in ("dyt", "derf")
            and any("post" in self.places(sublayer) for sublayer in every),
        }
        if underived := [what for what, is_there in others.items() if is_there]:
            raise ValueError(f"layers that are visited again are derived without {underived[0]}")

    def forgotten(self, made: float) -> Transformer:
        """The same network with every matrix of a branch as large as an optimizer made it, whatever its gain was: the
        root mean square of an entry is made / sqrt(d_model), times the learning-rate multiplier of its role.

        >>> from depthlaw.theory.kernel.predict import Sublayer, Transformer
        >>> from depthlaw.theory.stack import SublayerKind
        >>> network = Transformer(encoder=(Sublayer(kind=SublayerKind.SELF, gains={"v": 0.1, "out": 0.1}),))
        >>> network.forgotten(2.0).encoder[0].gains["v"]
        2.0
        """
        heads = self.heads
        narrow = heads.width_ratio / heads.queries_per_key
        ratios = dict.fromkeys(("fc1", "fc2", "fc3"), self.ffn_ratio)
        ratios |= {"q": heads.width_ratio, "k": narrow, "v": narrow, "out": heads.width_ratio}
        ratios |= {f"cross_{role}": ratios[role] for role in ("q", "k", "v", "out")}

        def made_of(sublayer: Sublayer) -> Sublayer:
            rates = sublayer.lr_multipliers
            gains = {role: made * rates.get(role, 1.0) * math.sqrt((1 + ratio) / 2) for role, ratio in ratios.items()}
            return replace(sublayer, gains=gains)

        encoder, decoder = (tuple(map(made_of, side)) for side in (self.encoder, self.decoder))
        return replace(self, encoder=encoder, decoder=decoder)

    @property
    def sides(self) -> tuple[tuple[Sublayer, ...], ...]:
        return (self.encoder, self.decoder) if self.decoder else (self.encoder,)

    @property
    def num_sublayers(self) -> int:
        """L, of both sides, each as often as it is visited."""
        return self.visits * (len(self.encoder) + len(self.decoder))

    @property
    def ends_in_norm(self) -> bool:
        return "final" in PLACES[self.placement] if self.has_final is None else self.has_final

    def places(self, sublayer: Sublayer) -> frozenset[str]:
        """The places of ``NORM_PLACES`` at which a sublayer has a norm."""
        if sublayer.norms is not None:
            return sublayer.norms
        places = PLACES[self.placement] - {"final"}
        is_normformer = self.placement == "normformer"
        if sublayer.kind is SublayerKind.CROSS or (is_normformer and sublayer.kind is SublayerKind.SELF):
            places = places - {"inner"}
        if is_normformer and sublayer.kind is SublayerKind.FFN:
            places = places - {"branch"}
        return places


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the network is given, and what of it is read.

    num_tokens: the tokens of a sequence, on either side. batch_size: the number of sequences; the objective is the mean
    over them. correlation: that of two input tokens of a sequence. readout: which tokens are read, the last or all
    ("sum"), each with a head of its own. loss: one logit or a cross-entropy ("ce") over num_classes with random labels.
    embedding_std, embedding_multiplier: an entry of x_0 is N(0, std^2) times the multiplier. decoder_embedding_std: of
    a decoder beside an encoder, where it is another. head_gain: an entry of the
    head is N(0, gain^2/d). ValueError, in one line, for what does not fit.

    >>> from depthlaw.theory.kernel.predict import Inputs
    >>> Inputs(num_tokens=3, batch_size=2, readout="last").read.tolist()
    [2, 5]
    >>> Inputs(num_tokens=1024)
    Traceback (most recent call last):
        ...
    ValueError: a prediction takes at most 512 tokens in all, not 1 x 1024
    """

    num_tokens: int = 16
    batch_size: int = 1
    correlation: float = 0.0
    readout: str = "last"
    loss: str = "logit"
    num_classes: int = 16
    embedding_std: float = 1.0
    embedding_multiplier: float = 1.0
    decoder_embedding_std: float | None = None
    head_gain: float = 1.0

    @property
    def num_all(self) -> int:
        """n, tokens of all sequences."""
        return self.batch_size * self.num_tokens

    @property
    def groups(self) -> Array:
        """(n,), the sequence of each token."""
        return np.repeat(np.arange(self.batch_size), self.num_tokens)

    @property
    def read(self) -> Array:
        """The places, among all tokens, of those that the objective reads."""
        every = np.arange(self.num_all)
        return every if self.readout == "sum" else every[self.num_tokens - 1 :: self.num_tokens]

    def allowed(self, *, is_causal: bool) -> Array:
        """(n, n), whether token i attends to token j: of its own sequence and, if causal, not behind it."""
        groups = self.groups
        same = groups[:, None] == groups
        return np.tril(same) if is_causal else same

    @property
    def positions(self) -> Array:
        """(n,), the place of each token in its sequence."""
        return np.tile(np.arange(self.num_tokens), self.batch_size)

    def embedding_std_of(self, side: int) -> float:
        """side: 0 of the encoder, 1 of the decoder."""
        return self.decoder_embedding_std if side and self.decoder_embedding_std else self.embedding_std

    def gram_of(self, side: int) -> Gram:
        """The Gram matrix of the side's input vectors x_0."""
        same = self.groups[:, None] == self.groups
        unit = Gram(1.0, np.where(np.eye(len(same)) == 1, 0.0, np.where(same, 1 - self.correlation, 1.0)))
        return unit.times((self.embedding_std_of(side) * self.embedding_multiplier) ** 2)

    def __post_init__(self) -> None:
        for name, number in (("num_tokens", self.num_tokens), ("batch_size", self.batch_size)):
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if self.num_all > MOST_TOKENS:
            raise ValueError(
                f"a prediction takes at most {MOST_TOKENS} tokens in all, not {self.batch_size} x {self.num_tokens}"
            )
        for name in ("embedding_std", "embedding_multiplier", "head_gain"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name} is a number above 0, not {number:g}")
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"correlation lies between 0 and 1, not at {self.correlation:g}")
        if self.readout not in ("last", "sum"):
            raise ValueError(f"readout is last or sum, not {self.readout!r}")
        if self.loss not in ("logit", "ce"):
            raise ValueError(f"loss is logit or ce, not {self.loss!r}")
        if self.loss == "ce" and self.num_classes < 2:
            raise ValueError(f"a cross-entropy has at least 2 classes, not {self.num_classes}")
