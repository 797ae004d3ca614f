"""What the blocks that people train have beyond the papers' block, as options that a scheme's network is given.

A scheme says where norms stand and what residual weight, branch weight and gains are. ``Block`` has the rest: a gated
FFN is an activation's name; here are norms of queries and keys, grouped heads, rotary positions, attention and FFN side
by side, capped logits, a trained vector on each branch, the eps of norms, and standard deviations of the initialisation
as people write them, 0.02 for instance, where a scheme has gains of the Xavier scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from sympy import Rational

from depthlaw.sims.config import ModelConfig, SublayerConfig, side_by_side
from depthlaw.theory.schemes import Scheme

ROTARY_BASE = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """Options of a block; each left out leaves the papers' block as it is.

    num_kv_heads: heads of keys and values, None for as many as of queries. logit_softcap: c of c tanh(logit / c), 0 for
    none. layer_scale: the trained vector's entries at first, in place of the scheme's branch weight. init_std: of every
    matrix, in place of Xavier's; a scheme's gain multiplies it. embedding_std: of the embedding's entries, which a
    scheme's own scale multiplies;
    embedding_multiplier: what the embedding is multiplied by. is_head_tied: the head has the embedding's entries.
    norm_eps: what a norm adds to the mean square whose root it divides by; a recipe takes this option, too. ValueError,
    in one line, for a number that cannot be.
    """

    has_qk_norm: bool = False
    num_kv_heads: int | None = None
    has_rotary: bool = False
    is_parallel: bool = False
    logit_softcap: float = 0.0
    layer_scale: float | None = None
    init_std: float | None = None
    embedding_std: float = 1.0
    embedding_multiplier: float = 1.0
    is_head_tied: bool = False
    norm_eps: float = 0.0

    def __post_init__(self) -> None:
        for name in ("layer_scale", "init_std", "embedding_std", "embedding_multiplier"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name} is a number above 0, not {number:g}")
        if not 0 <= self.norm_eps < math.inf:
            raise ValueError(f"norm_eps is 0 or a number above it, not {self.norm_eps:g}")

    @property
    def options(self) -> dict[str, Any]:
        """Those that differ from the papers' block, by name."""
        return {part.name: value for part in fields(self) if (value := getattr(self, part.name)) != part.default}

    def in_scheme(self, scheme: Scheme) -> Scheme:
        """A scheme of FFNs alone that starts with what these options make of the embedding."""
        times = Rational(repr(self.embedding_std)) * Rational(repr(self.embedding_multiplier))
        if times == 1:
            return scheme
        return replace(scheme, stack=replace(scheme.stack, embedding_scale=times * scheme.stack.embedding_scale))

    def on(self, config: ModelConfig) -> ModelConfig:
        """The network with these options; ValueError, in one line, where they do not go together with it."""
        config = replace(config, norm_eps=self.norm_eps) if self.norm_eps else config
        if not self.options.keys() - {"norm_eps"}:
            return config
        std, decoder_std = self.embedding_std * config.embedding_std, config.decoder_embedding_std
        head_gain = std * math.sqrt(config.d_model) if self.is_head_tied else config.head_gain
        shape = replace(
            config,
            has_qk_norm=config.has_qk_norm or self.has_qk_norm,
            num_kv_heads=self.num_kv_heads or config.num_kv_heads,
            rotary_base=ROTARY_BASE if self.has_rotary else config.rotary_base,
            logit_softcap=self.logit_softcap or config.logit_softcap,
            embedding_std=std,
            decoder_embedding_std=None if decoder_std is None else decoder_std * self.embedding_std,
            embedding_multiplier=self.embedding_multiplier,
            head_gain=head_gain,
        )
        encoder, decoder = (
            tuple(self._sublayer(shape, sublayer) for sublayer in side) for side in (config.encoder, config.decoder)
        )
        if self.is_parallel:
            encoder, decoder = side_by_side(encoder), side_by_side(decoder)
        return replace(shape, encoder=encoder, decoder=decoder)

    def _sublayer(self, shape: ModelConfig, sublayer: SublayerConfig) -> SublayerConfig:
        changes: dict[str, Any] = {}
        if self.init_std is not None:
            roles = shape.roles(sublayer.kind)
            changes["gains"] = {role: sublayer.gains.get(role, 1.0) * shape.gain(role, self.init_std) for role in roles}
        if self.layer_scale is not None:
            changes |= {"has_layer_scale": True, "trains_branch_weight": False, "branch_weight": self.layer_scale}
        return replace(sublayer, **changes)
