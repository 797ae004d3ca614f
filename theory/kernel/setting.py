"""What the kernel rung is asked about: a Transformer as plain numbers, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from theory.kernel.gram import Array, Gram
from theory.stack import NormKind, SublayerKind

PLACES: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "post": frozenset({"post"}),
    "pre": frozenset({"pre", "final"}),
    "sub": frozenset({"pre", "inner", "final"}),
    "peri": frozenset({"pre", "branch", "final"}),
    "normformer": frozenset({"pre", "inner", "branch", "final"}),
}
"""A cross-attention has no inner norm; in normformer an FFN has no branch norm, and an attention no inner one."""


MOST_TOKENS = 256
"""Of all sequences together: the cost of a sublayer grows as the fourth power."""


@dataclass(frozen=True, kw_only=True)
class Sublayer:
    """One residual sublayer. gains, lr_multipliers: by role, 1 where absent.

    kind: of ``theory.stack.SublayerKind``. residual_weight, branch_weight, input_scale: a, b, c of the one form.

    >>> from theory.kernel.predict import Sublayer
    >>> from theory.stack import SublayerKind
    >>> Sublayer(kind=SublayerKind.FFN, residual_weight=2.0, gains={"fc1": 0.5, "fc2": 0.5}).branch_weight
    1.0
    """

    kind: SublayerKind
    residual_weight: float = 1.0
    branch_weight: float = 1.0
    input_scale: float = 1.0
    gains: Mapping[str, float] = field(default_factory=dict)
    lr_multipliers: Mapping[str, float] = field(default_factory=dict)
    trains_branch_weight: bool = False


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A Transformer as plain numbers, of infinite width.

    encoder: of a decoder-only model too, with is_causal. ffn_ratio: hidden width over d_model. head_size: None for
    infinite, where logits are Gaussian. ValueError for an unknown placement or norm.

    >>> from theory.kernel.predict import Sublayer, Transformer
    >>> from theory.stack import SublayerKind
    >>> Transformer(encoder=(Sublayer(kind=SublayerKind.CROSS),))
    Traceback (most recent call last):
        ...
    ValueError: an encoder has nothing to cross-attend to: cross stands in the decoder
    """

    encoder: tuple[Sublayer, ...]
    decoder: tuple[Sublayer, ...] = ()
    placement: str = "post"
    norm_kind: str = "layernorm"
    activation: str = "relu"
    ffn_ratio: float = 4.0
    is_causal: bool = False
    head_size: int | None = None

    def __post_init__(self) -> None:
        if self.placement not in PLACES:
            raise ValueError(f"placement is one of {', '.join(PLACES)}, not {self.placement!r}")
        if self.norm_kind not in [kind.value for kind in NormKind]:
            raise ValueError(f"norm_kind is layernorm or rmsnorm, not {self.norm_kind!r}")
        if not self.encoder:
            raise ValueError("a network has at least one sublayer")
        if any(one.kind is SublayerKind.CROSS for one in self.encoder):
            raise ValueError("an encoder has nothing to cross-attend to: cross stands in the decoder")

    @property
    def sides(self) -> tuple[tuple[Sublayer, ...], ...]:
        return (self.encoder, self.decoder) if self.decoder else (self.encoder,)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the network is given, and what of it is read.

    num_tokens: of a sequence, on either side. batch_size: sequences; the objective is their mean. correlation: of two
    input tokens of a sequence. readout: the last token, or all ("sum"), each with a head of its own. loss: one logit or
    a cross-entropy ("ce") over num_classes with random labels. ValueError, in one line, for what does not fit.

    >>> from theory.kernel.predict import Inputs
    >>> Inputs(num_tokens=3, batch_size=2, readout="last").read.tolist()
    [2, 5]
    >>> Inputs(num_tokens=512)
    Traceback (most recent call last):
        ...
    ValueError: the kernel rung takes at most 256 tokens in all, not 1 x 512
    """

    num_tokens: int = 16
    batch_size: int = 1
    correlation: float = 0.0
    readout: str = "last"
    loss: str = "logit"
    num_classes: int = 16

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
        """Places of the tokens that are read."""
        every = np.arange(self.num_all)
        return every if self.readout == "sum" else every[self.num_tokens - 1 :: self.num_tokens]

    def allowed(self, *, is_causal: bool) -> Array:
        """(n, n), whether token i attends to token j: of its own sequence and, if causal, not behind it."""
        groups = self.groups
        same = groups[:, None] == groups
        return np.tril(same) if is_causal else same

    @property
    def gram(self) -> Gram:
        """Of the input vectors, of unit second moment."""
        same = self.groups[:, None] == self.groups
        return Gram(1.0, np.where(np.eye(len(same)) == 1, 0.0, np.where(same, 1 - self.correlation, 1.0)))

    def __post_init__(self) -> None:
        for name, number in (("num_tokens", self.num_tokens), ("batch_size", self.batch_size)):
            if number < 1:
                raise ValueError(f"{name} is at least 1, not {number}")
        if self.num_all > MOST_TOKENS:
            raise ValueError(
                f"the kernel rung takes at most {MOST_TOKENS} tokens in all, not {self.batch_size} x {self.num_tokens}"
            )
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"correlation lies between 0 and 1, not at {self.correlation:g}")
        if self.readout not in ("last", "sum"):
            raise ValueError(f"readout is last or sum, not {self.readout!r}")
        if self.loss not in ("logit", "ce"):
            raise ValueError(f"loss is logit or ce, not {self.loss!r}")
        if self.loss == "ce" and self.num_classes < 2:
            raise ValueError(f"a cross-entropy has at least 2 classes, not {self.num_classes}")
