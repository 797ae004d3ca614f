"""What a scheme or a recipe asks for, as plain numbers for the block that was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sympy import Expr, sympify

from paper_checks.audit.look import Built, Sublayer
from paper_checks.audit.updates import as_config
from paper_checks.lowering.lower import has_encoder_decoder
from paper_checks.lowering.networks import Network, sublayers_of
from paper_checks.recipes.catalogue import recipe
from paper_checks.recipes.recipe import LETTERS, Recipe, evaluate
from sims.model import ModelConfig, SublayerConfig, side_by_side
from theory.schemes import Scheme, scheme
from theory.symbols import L, N, d


@dataclass(frozen=True)
class Claimed:
    """A scheme or a recipe that a module claims to be.

    A recipe says standard deviations as they are. A scheme says gains: what multiplies an initialisation that depends
    on no depth, whichever that is.
    """

    of: Scheme | Recipe
    optimizer: str

    @classmethod
    def named(cls, name: str, optimizer: str, *, is_recipe: bool) -> Claimed:
        """ValueError, in one line with near names, for a name that is not there."""
        return cls(recipe(name) if is_recipe else scheme(name), optimizer)

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def is_absolute(self) -> bool:
        return isinstance(self.of, Recipe)

    def sides(self, num_layers: int | tuple[int, int]) -> tuple[tuple[SublayerConfig, ...], ...]:
        """What a scheme asks of a stack of so many layers, or of an encoder and a decoder of so many each. Empty where
        its source has no such network, and of a recipe."""
        arch = "encoder" if isinstance(num_layers, int) else "encoder-decoder"
        if isinstance(self.of, Recipe) or (arch == "encoder-decoder" and not has_encoder_decoder(self.of)):
            return ()
        network = Network(scheme=self.of, arch=arch, d_model=64, num_heads=1, **sublayers_of(num_layers))
        config = network.config(self.optimizer)
        return tuple(filter(None, (config.encoder, config.decoder)))

    def start_stds(self, asked: ModelConfig, *, has_positions: bool) -> dict[str, float]:
        """A recipe's standard deviations of the embedding and of learned positions, of whose sum it says the scale."""
        assert isinstance(self.of, Recipe)
        if not has_positions:
            return {"embedding": asked.embedding_std}
        positions = evaluate(
            self.of.position_std, {**dict.fromkeys(LETTERS, 1), N: len(asked.encoder) // 2, d: asked.d_model}
        )
        return {"embedding": math.sqrt(max(asked.embedding_std**2 - positions**2, 0.0)), "positions": positions}

    def config(self, built: Built, counts: Mapping[str, int]) -> ModelConfig:
        """The claimed network of so many layers on each side, with the found block's sizes. ValueError where it has
        none of that kind."""
        shape = as_config(built)
        first, *others = counts.values()
        two = others or (self.of.arch == "encoder-decoder" if isinstance(self.of, Recipe) else False)
        layers: int | tuple[int, int] = (first, others[0]) if others else first
        if isinstance(self.of, Recipe):
            own = replace(
                self.of,
                hidden=shape.hidden,
                head_size=shape.size_of_head,
                queries_per_key=shape.num_heads // shape.key_heads,
            )
            if two and not others:
                raise ValueError(f"{self.name} is an encoder-decoder, and the module has one stream")
            asked = own.config(first, shape.d_model, shape.num_heads, optimizer=self.optimizer)
        elif any(sub.kind != "ffn" for sub in built.sublayers):
            arch = "encoder-decoder" if others else "decoder" if shape.is_causal else "encoder"
            network = Network(
                scheme=self.of,
                arch=arch,
                d_model=shape.d_model,
                num_heads=shape.num_heads if shape.d_model % shape.num_heads == 0 else 1,
                activation=shape.activation,
                norm_kind=shape.norm_kind if shape.norm_kind in ("layernorm", "rmsnorm") else "layernorm",
                **sublayers_of(layers),
            )
            asked = network.config(self.optimizer)
        else:
            asked = Network(scheme=self.of, num_sublayers=first, d_model=shape.d_model).config(self.optimizer)
        if not isinstance(self.of, Recipe):
            sizes = ("num_heads", "num_kv_heads", "head_size", "ffn_width")
            asked = replace(asked, **{name: getattr(shape, name) for name in sizes})
        if any(sub.kind == "parallel" for sub in built.sublayers) and not any(
            sub.kind == "parallel" for sub in asked.encoder
        ):
            asked = replace(asked, encoder=side_by_side(asked.encoder))
        return asked

    def formula(self, weight: str, built: Built) -> str:
        """How a weight of the stream or the branch depends on the N layers, as text; empty where it does not, and for
        two sides, whose sources have a law for each."""
        law = sympify(getattr(self.of if isinstance(self.of, Recipe) else self.of.stack, weight))
        law = law.subs(L, 2 * N) if isinstance(law, Expr) else None
        return str(law) if len(built.sides) == 1 and law is not None and law.free_symbols == {N} else ""


@dataclass(frozen=True)
class Pair:
    """A sublayer and what is asked of it. layer: the block's index on its side, from 1."""

    built: Sublayer
    asked: SublayerConfig
    places: frozenset[str]
    layer: int


def pairs(built: Built, asked: ModelConfig) -> Iterator[Pair]:
    """Each sublayer beside the one of its kind and place that is asked for, where there is one."""
    for side, sublayers in zip(built.sides.values(), (asked.encoder, asked.decoder), strict=False):
        by_kind: dict[str, list[SublayerConfig]] = {}
        for sublayer in sublayers:
            by_kind.setdefault(sublayer.kind, []).append(sublayer)
        seen: dict[str, int] = {}
        for sub in side:
            seen[sub.kind] = layer = seen.get(sub.kind, 0) + 1
            wanted = by_kind.get(sub.kind, [])
            if wanted:
                own = wanted[min(layer, len(wanted)) - 1]
                yield Pair(sub, own, asked.places(own), layer)
