"""What a recipe is: a published model's block and initialisation as data, and the plain numbers of it at any size.

Every law is an expression in these letters, so that it can be read, printed and evaluated at any size:

    N   layers          l   index of a layer, from 1        d   d_model
    F   hidden width of the FFN      K   head size          H   heads of queries
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sympy import Expr, Rational, lambdify, sympify

from depthlaw.sims.config import GATED, MATRICES, ModelConfig, SublayerConfig, side_by_side
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.schemes import Scheme
from depthlaw.theory.stack import NO_NORM, Stack
from depthlaw.theory.symbols import N, d, l, scratch

F = scratch("F", positive=True)
K = scratch("K", positive=True)
H = scratch("H", positive=True)
LETTERS = (N, l, d, F, K, H)
Law = Expr | int | float
RECIPE_TOKENS = 8
"""Tokens of a sequence, where nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class Norms:
    """Where norms stand in the layers up to a share of the depth: of an attention, of a cross-attention, of an FFN."""

    attention: frozenset[str]
    ffn: frozenset[str]
    cross: frozenset[str] = frozenset()
    up_to: Law = 1


PRE, POST = (Norms(attention=place, ffn=place, cross=place) for place in (frozenset({"pre"}), frozenset({"post"})))
SMALL = Rational(2, 100)
"""The standard deviation that most published code starts with."""


def everywhere(std: Law, **others: Law) -> Mapping[str, Law]:
    """Standard deviations by role: ``others``, and the first for those that they leave out."""
    return {**dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2", "fc3"), std), **others}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published model.

    says: one sentence for who does not know it. source: repository, version, file and lines. arch: encoder, decoder or
    encoder-decoder. norms: by share of the depth, the last one up to 1. std: standard deviation by role of a branch
    matrix; head: that of the head, None where it is tied to the embedding. embedding_std, position_std: of the vectors
    of tokens and, where they are learned and added, of positions. hidden: F. head_size: K where it does not follow from
    the number of heads. leaves_out: what of the published model is not here. size: an example, as it was published.
    lr_multipliers: of the learning rate by role, under the recipe's optimizers. num_streams: streams side by side that
    share their attentions; the network is of one of them.
    """

    name: str
    says: str
    source: str
    leaves_out: str = ""
    arch: str = "decoder"
    norms: tuple[Norms, ...] = (PRE,)
    has_final: bool = True
    norm_kind: str = "layernorm"
    has_wide_norms: bool = False
    activation: str = "gelu"
    hidden: Law = 4 * d
    has_bias: bool = True
    head_size: int | None = None
    queries_per_key: int = 1
    rotary_base: float = 0.0
    rotary_share: float = 1.0
    attention_scale: Law | None = None
    logit_softcap: float = 0.0
    is_parallel: bool = False
    residual_weight: Law = 1
    branch_weight: Law = 1
    input_scale: Law = 1
    layer_scale: Law | None = None
    std: Mapping[str, Law] = field(default_factory=lambda: everywhere(SMALL))
    embedding_std: Law = SMALL
    position_std: Law = 0
    embedding_multiplier: Law = 1
    head: Law | None = None
    lr_multipliers: Mapping[str, Law] = field(default_factory=dict)
    optimizers: tuple[str, ...] = ("adamw",)
    size: Mapping[str, int] = field(default_factory=dict)
    num_streams: int = 1

    def is_made_for(self, optimizer: str) -> bool:
        """Whether the steps of this optimizer scale as those of one that the recipe was made for."""
        asked, known = optimizer_named(optimizer), [optimizer_named(name) for name in self.optimizers]
        degrees = ["parameter_degree", *(["gradient_degree"] if self.lr_multipliers else [])]
        return all(any(getattr(asked, name) == getattr(other, name) for other in known) for name in degrees)

    def config(self, num_layers: int, d_model: int, num_heads: int, *, optimizer: str = "adamw") -> ModelConfig:
        """The network of that many layers (of either side of an encoder-decoder), that width and so many heads.

        ValueError, in one line, where the heads do not divide the width, or the keys' heads the queries'.
        """
        sizes: dict[str, Any] = {"d_model": d_model, "num_heads": num_heads, "head_size": self.head_size}
        if num_heads % self.queries_per_key:
            raise ValueError(
                f"{self.name}: {num_heads} heads are no multiple of the {self.queries_per_key} that share keys: "
                f"{self.queries_per_key} or a multiple of it would do"
            )
        bare = ModelConfig(encoder=(SublayerConfig(kind="ffn"),), **sizes)
        at = {N: num_layers, l: 1, d: d_model, K: bare.size_of_head, H: num_heads, F: 0}
        at[F] = round(evaluate(self.hidden, at))
        names = ("has_final", "activation", "norm_kind", "has_wide_norms", "has_bias", "rotary_base", "rotary_share")
        shape = replace(
            bare,
            **{name: getattr(self, name) for name in (*names, "logit_softcap")},
            placement="none",
            ffn_width=at[F],
            has_affine=True,
            is_causal=self.arch == "decoder",
            num_kv_heads=num_heads // self.queries_per_key,
            attention_scale=None if self.attention_scale is None else evaluate(self.attention_scale, at),
            embedding_std=math.hypot(evaluate(self.embedding_std, at), evaluate(self.position_std, at)),
            embedding_multiplier=evaluate(self.embedding_multiplier, at),
            head_gain=math.sqrt(d_model) * evaluate(self.embedding_std if self.head is None else self.head, at),
            has_short_draws=True,
        )
        rates = self.lr_multipliers if optimizer in self.optimizers else {}
        kinds: dict[str, tuple[str, ...]] = {"encoder": ("attention", "ffn")}
        if self.arch == "encoder-decoder":
            kinds["decoder"] = ("attention", "cross", "ffn")
        sides = {
            side: tuple(
                self._sublayer(kind, shape, {**at, l: layer}, rates)
                for layer in range(1, num_layers + 1)
                for kind in of_layer
            )
            for side, of_layer in kinds.items()
        }
        if self.is_parallel:
            sides = {side: side_by_side(sublayers) for side, sublayers in sides.items()}
        return replace(shape, **sides)

    def with_layers(self, num_layers: int) -> Recipe:
        """The recipe whose laws of N are read at that many layers, whatever the depth that is built; laws of l stay."""

        def read(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {role: read(law) for role, law in value.items()}
            return value.subs(N, num_layers) if isinstance(value, Expr) else value

        names = ("residual_weight", "branch_weight", "input_scale", "embedding_std", "position_std", "layer_scale")
        return replace(self, **{name: read(getattr(self, name)) for name in (*names, "head", "std", "lr_multipliers")})

    def heads_at(self, d_model: int) -> int:
        """A number of heads that divides this width, of the published size or the next smaller one that fits.

        ValueError, in one line, where none does. Rotary positions want heads of an even size.
        """
        head_size = self.size["d_model"] // self.size["num_heads"]
        for heads in range(max(1, d_model // head_size), d_model + 1):
            fits = d_model % heads == 0 and heads % self.queries_per_key == 0
            if fits and not (self.rotary_base and d_model // heads % 2):
                return heads
        raise ValueError(f"{self.name} has no number of heads that divides d_model {d_model}")

    @property
    def as_scheme(self) -> Scheme:
        """What stands where a scheme's name does: its laws are read by none."""
        return Scheme(name=self.name, source=self.source, stack=Stack(placement=NO_NORM))

    def _sublayer(
        self, kind: str, shape: ModelConfig, at: Mapping[Expr, float], rates: Mapping[str, Law]
    ) -> SublayerConfig:
        share = at[l] / at[N]
        norms = next(norms for norms in self.norms if share <= evaluate(norms.up_to, at) + 1e-9)
        roles = (*MATRICES[kind], "fc3") if kind == "ffn" and self.activation in GATED else MATRICES[kind]
        gains = {role: shape.gain(role, evaluate(self._std(role), at)) for role in roles}
        others = ("bias", "norm_gain", "norm_bias", "layer_scale")
        scale = self.layer_scale
        return SublayerConfig(
            kind=kind,
            norms=getattr(norms, kind),
            residual_weight=evaluate(self.residual_weight, at),
            branch_weight=evaluate(self.branch_weight if scale is None else scale, at),
            input_scale=evaluate(self.input_scale, at),
            has_layer_scale=scale is not None,
            gains=gains,
            lr_multipliers={role: evaluate(rate, at) for role, rate in rates.items() if role in (*roles, *others)},
        )

    def _std(self, role: str) -> Law:
        """A cross-attention's is that of an attention, where the recipe does not say otherwise."""
        return self.std[role] if role in self.std else self.std[role.removeprefix("cross_")]


def evaluate(law: Law, at: Mapping[Expr, float]) -> float:
    """A law's number where the letters have these values."""
    return float(_function(sympify(law))(*(at[letter] for letter in LETTERS)))


@cache
def _function(law: Expr) -> Any:
    if unknown := law.free_symbols - set(LETTERS):
        raise ValueError(f"a recipe's laws are in {', '.join(map(str, LETTERS))}, not in {unknown}")
    return lambdify(LETTERS, law, modules="math")
