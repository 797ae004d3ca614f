"""What a scheme or a recipe asks for, as plain numbers for the block that was found."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sympy import Expr, Rational, S, Symbol, ceiling, pycode, sympify

from depthlaw.auditing.reading.look import Built, Sublayer
from depthlaw.auditing.updates import as_config
from depthlaw.network.lower import COUPLED, has_encoder_decoder
from depthlaw.network.network import Network, sublayers_of
from depthlaw.recipes.catalogue import recipe, scheme
from depthlaw.recipes.recipe import LETTERS, F, H, K, Recipe, evaluate
from depthlaw.sims.model import ModelConfig, SublayerConfig, side_by_side
from depthlaw.theory.asymptotics.evaluate import evaluate as evaluate_exactly
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.magnitude import gathered
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.schemes import Scheme
from depthlaw.theory.stack import SCALED_ROLES
from depthlaw.theory.symbols import L, M, N, d, l


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

    @property
    def has_base(self) -> bool:
        """Whether weights are relative to those of a base model of any depth."""
        return isinstance(self.of, Scheme) and self.of.has_base

    @property
    def has_gates(self) -> bool:
        """Whether what multiplies its branches is made of a condition: a recipe's that starts at 0 for all of them."""
        return isinstance(self.of, Recipe) and self.of.layer_scale == 0

    def sides(self, num_layers: int | tuple[int, int]) -> tuple[tuple[SublayerConfig, ...], ...]:
        """What a scheme asks of a stack of so many layers, or of an encoder and a decoder of so many each. Empty where
        its source has no such network, and of a recipe."""
        return () if isinstance(self.of, Recipe) else _sides(self.of, self.optimizer, num_layers)

    def is_of_as_many_sums(self, built: Built) -> bool:
        """Whether the module has the two residual sums a layer, three in a decoder beside an encoder, of a recipe."""
        return built.has_decoder or _sums_of_layer(built, next(iter(built.sides))) == 2

    def start_stds(self, asked: ModelConfig, *, has_positions: bool) -> dict[str, float]:
        """Standard deviations of the embedding and of learned positions, of whose sum a recipe, or a scheme that scales
        its embedding, says the scale."""
        if not has_positions:
            return {"embedding": asked.embedding_std}
        if isinstance(self.of, Scheme):
            return dict.fromkeys(("embedding", "positions"), asked.embedding_std / math.sqrt(2))
        positions = evaluate(
            self.of.position_std, {**dict.fromkeys(LETTERS, 1), N: len(asked.encoder) // 2, d: asked.d_model}
        )
        return {"embedding": math.sqrt(max(asked.embedding_std**2 - positions**2, 0.0)), "positions": positions}

    def config(self, built: Built, counts: Mapping[str, int]) -> ModelConfig:
        """The claimed network of so many layers on each side, with the found block's sizes. ValueError where it has
        none of that kind."""
        built = _with_mixers(built)
        shape = as_config(built)
        first, *others = counts.values()
        others = others if built.has_decoder else []
        two = others or (self.of.arch == "encoder-decoder" if isinstance(self.of, Recipe) else False)
        layers: int | tuple[int, int] = (first, others[0]) if others else first
        if isinstance(self.of, Recipe):
            sums = _sums_of_layer(built, next(iter(counts)))
            recipe = replace(
                self.of if sums == 2 else self.of.with_layers(sums * first / 2),
                hidden=shape.hidden,
                head_size=shape.size_of_head,
                queries_per_key=shape.num_heads // shape.key_heads,
            )
            if two and not others:
                raise ValueError(f"{self.name} is an encoder-decoder, and the module has one stream")
            there, wanted = len(built.sides) if built.is_side_by_side else 1, self.of.num_streams
            if there != wanted:
                raise ValueError(f"{self.name} has {_streams(wanted)}, and the module has {_streams(there)}")
            asked = recipe.config(first, shape.d_model, shape.num_heads, optimizer=self.optimizer)
            asked = replace(asked, encoder=_as_built(asked.encoder, built, first)) if sums != 2 else asked
        else:
            arch = "encoder-decoder" if others else "decoder" if shape.is_causal else "encoder"
            of_ffns = all(sub.kind == "ffn" for sub in built.sublayers)
            sums = _sums_of_layer(built, next(iter(counts)))
            counts_of: dict[str, Any] = {"arch": arch, **sublayers_of(layers)}
            if of_ffns:
                counts_of = {"num_sublayers": int(sums * first)}
            elif sums != 2:
                counts_of["num_sublayers"] = int(sums * first)
            network = Network(
                scheme=self.of,
                d_model=shape.d_model,
                activation=shape.activation,
                norm_kind=shape.norm_kind if shape.norm_kind in ("layernorm", "rmsnorm") else "layernorm",
                **counts_of,
                num_heads=1 if of_ffns or shape.d_model % shape.num_heads else shape.num_heads,
            )
            asked = network.config(self.optimizer)
            if sums != 2 and not of_ffns:
                asked = replace(asked, encoder=_as_built(asked.encoder, built, first))
        if not isinstance(self.of, Recipe):
            sizes = ("num_heads", "num_kv_heads", "head_size", "ffn_width")
            asked = replace(asked, **{name: getattr(shape, name) for name in sizes})
        if any(sub.kind == "parallel" for sub in built.sublayers) and not any(
            sub.kind == "parallel" for sub in asked.encoder
        ):
            asked = replace(asked, encoder=side_by_side(asked.encoder))
        return replace(asked, decoder=asked.encoder, is_side_by_side=True) if built.is_side_by_side else asked

    def multipliers(self, built: Built, counts: Mapping[str, int]) -> Multipliers | None:
        """What the scheme multiplies the learning rate and Adam's epsilon of all that is trained in the branches by;
        None where it says nothing of either."""
        if (laws := self._groups) is None:
            return None
        sides = counts if built.has_decoder else [*counts][:1]
        number = {L: sum(counts[side] * _sums_of_layer(built, side) for side in sides)}
        return Multipliers(*(float(evaluate_exactly(law, number, 17)) for law in laws))

    def law_of_groups(self, key: str, built: Built) -> str | None:
        """Python of what multiplies ``lr`` or ``eps`` of a group, in ``num_layers``."""
        if (laws := self._groups) is None:
            return None
        law = laws[key == "eps"].subs(L, _sums_of_layer(built, next(iter(built.sides))) * N)
        return _python(law, {N: "num_layers"})

    @property
    def _groups(self) -> tuple[Expr, Expr] | None:
        if isinstance(self.of, Recipe) or self.of.lr_multiplier == self.of.eps_multiplier == 1:
            return None
        return self.of.lr_multiplier_under(optimizer_named(self.optimizer)), self.of.eps_multiplier

    def law(self, weight: str, built: Built, side: str, role: str = "") -> str | None:
        """Python of how something depends on ``num_layers`` and on ``layer``, counted from 1; None where its source has
        no formula, or one in another index.

        weight: residual_weight, branch_weight, or std of a role, which beside a scheme is in units of the standard
        deviation that the initialisation gives. Of two sides, the layers are ``num_encoder_layers`` and
        ``num_decoder_layers``.
        """
        names = {N: "num_layers", M: "num_layers"}
        if built.has_decoder:
            names = {N: "num_encoder_layers", M: "num_decoder_layers"}
        if isinstance(self.of, Recipe):
            shape = as_config(_with_mixers(built))
            sizes = {d: shape.d_model, F: shape.hidden, K: shape.size_of_head, H: shape.num_heads}
            number = names[M if side == "decoder" else N]
            sums = _sums_of_layer(built, side)
            law = self._of_recipe(weight, role).subs(N, sums * N / 2)
            plain = self._of_recipe(weight, "q") if weight == "std" else S.One
            ratio = law / plain
            if ratio.free_symbols - {N, l}:
                law = law.subs(sizes)
                plain = law.subs({N: 1, l: 1})
                ratio = law / plain
            factor = float(plain.subs(sizes))
            text = _python(ratio, {N: number, l: "layer"})
            return times(factor, text)
        law = self._of_scheme(weight, built, side, role)
        return None if law is None else _python(law, names)

    def _of_recipe(self, weight: str, role: str) -> Expr:
        """In N, l and the letters of sizes. A branch weight that is a trained vector is what that starts as; a
        cross-attention's matrices are those of an attention, where nothing else is said."""
        assert isinstance(self.of, Recipe)
        if weight == "std":
            return sympify(self.of.std[role if role in self.of.std else role.removeprefix("cross_")])
        is_vector = weight == "branch_weight" and self.of.layer_scale is not None
        return sympify(self.of.layer_scale if is_vector else getattr(self.of, weight))

    def _of_scheme(self, weight: str, built: Built, side: str, role: str) -> Expr | None:
        """In N and, of a decoder beside an encoder, in M."""
        assert isinstance(self.of, Scheme)
        is_of_two = built.has_decoder
        which = [place for roles in SCALED_ROLES.values() for place, of in enumerate(roles) if of == role]
        if is_of_two and self.name in COUPLED:
            norm, select = COUPLED[self.name]
            rule = solve_rule(norm, "sgd", "encoder-decoder", select, with_alternatives=False).side(side)
            assert rule.init_gain is not None, "under sgd either rule has a gain"
            return rule.init_gain.get(role, S.One) if role else getattr(rule.member, weight)
        if is_of_two and self.name == "t-fixup" and side == "decoder" and which:
            return (9 * M) ** -Rational(1, 4)
        stack = self.of.stack
        law = getattr(stack, weight) if not role else (stack.gain_in, stack.gain_out)[which[0]] if which else S.One
        if law is None:
            return None
        each = 3 if is_of_two and side == "decoder" else _sums_of_layer(built, side)
        law = law.subs(L, each * (M if is_of_two and side == "decoder" else N))
        return law if l not in law.free_symbols else law.subs(ceiling(l / 2), _layer) if each == 2 else None


def _with_mixers(built: Built) -> Built:
    """With each sublayer that is neither attention nor FFN, such as Mamba's, and each cross-attention of a single
    stream, such as a Perceiver's, as an attention of unknown matrices; as it is where no matrix was read at all."""
    if not built.weights:
        return built
    known = {"cross"} if built.has_decoder else set[str]()
    sides = {
        side: [replace(s, kind=kind, weights=()) if (kind := _kind_asked(s, known)) != s.kind else s for s in sublayers]
        for side, sublayers in built.sides.items()
    }
    return replace(built, sides=sides)


def _streams(number: int) -> str:
    return "one stream" if number == 1 else f"{number} streams that share their attentions"


class Multipliers(NamedTuple):
    learning_rate: float
    eps: float


def _sums_of_layer(built: Built, side: str) -> Rational:
    """Residual sums of a layer, which laws of depth count: of a single stack as many as it has. An attention and an FFN
    side by side, which add up, are two. Where a residual connection is forgotten, they are those of the usual layer."""
    sublayers = built.sides[side] if built.has_decoder else max(built.sides.values(), key=len)
    number = sum(1 + (sub.kind == "parallel") for sub in sublayers)
    return S(2) if built.has_decoder or built.serial else Rational(number, built.num_layers(side))


def _as_built(wanted: tuple[SublayerConfig, ...], built: Built, num_layers: int) -> tuple[SublayerConfig, ...]:
    """What is asked of sublayers in another order than attention and FFN in turn: what is asked of the one of its kind
    that is nearest to as large a share of the depth."""
    sublayers = max(built.sides.values(), key=len)
    each = len(sublayers) // built.num_layers(sublayers[0].side)
    kinds = [_kind_asked(sub, {config.kind for config in wanted}) for sub in sublayers[:each]] * num_layers
    places = {kind: [at for at, config in enumerate(wanted) if config.kind == kind] for kind in set(kinds)}
    asked = []
    for at, kind in enumerate(kinds):
        share = at * len(wanted) / len(kinds)
        places_of_kind = places[kind] or range(len(wanted))
        asked.append(wanted[min(places_of_kind, key=lambda place: abs(place - share))])
    return tuple(asked)


@lru_cache(maxsize=1024)
def _sides(of: Scheme, optimizer: str, num_layers: int | tuple[int, int]) -> tuple[tuple[SublayerConfig, ...], ...]:
    arch = "encoder" if isinstance(num_layers, int) else "encoder-decoder"
    if arch == "encoder-decoder" and not has_encoder_decoder(of):
        return ()
    network = Network(scheme=of, arch=arch, d_model=64, num_heads=1, **sublayers_of(num_layers))
    config = network.config(optimizer)
    return tuple(filter(None, (config.encoder, config.decoder)))


_layer = Symbol("layer", integer=True, positive=True)


def times(number: float, law: str | None) -> str | None:
    """Python of a number times a law.

    >>> from depthlaw.auditing.expected import times
    >>> times(0.02, "1/math.sqrt(2*num_layers)"), times(2.0, "1"), times(1.0, "num_layers**(1/4)")
    ('0.02/math.sqrt(2*num_layers)', '2', 'num_layers**(1/4)')
    """
    if law is None or number == 1:
        return law
    return f"{number:.6g}" + ("" if law == "1" else law[1:] if law.startswith("1/") else f" * {law}")


def _python(law: Expr, names: Mapping[Expr, str]) -> str | None:
    if law.free_symbols - {*names, _layer}:
        return None
    text = min(pycode(gathered(law)), pycode(law), key=len)
    for letter, name in names.items():
        text = re.sub(rf"\b{letter}\b", name, text)
    return text


@dataclass(frozen=True)
class Pair:
    """A sublayer and what is asked of it. layer: the block's index on its side, from 1.

    Of one that is neither attention nor FFN something is asked of its sum, the norms around it, and the one matrix that
    writes to the stream.
    """

    built: Sublayer
    asked: SublayerConfig
    places: frozenset[str]
    layer: int


def pairs(built: Built, asked: ModelConfig) -> Iterator[Pair]:
    """Each sublayer beside the one of its kind and place that is asked for, where there is one. An attention and an FFN
    in turn have the numbers of those that are side by side, and the other way round."""
    for side, sublayers in zip(built.sides.values(), (asked.encoder, asked.decoder), strict=False):
        by_kind: dict[str, list[SublayerConfig]] = {}
        for sublayer in sublayers:
            by_kind.setdefault(sublayer.kind, []).append(sublayer)
        seen: dict[str, int] = {}
        for sub in side:
            kind = _kind_asked(sub, by_kind)
            seen[kind] = number = seen.get(kind, 0) + 1
            wanted = by_kind.get(kind) or _of_other_kinds(kind, by_kind)
            if wanted:
                config = wanted[min(number, len(wanted)) - 1]
                if sub.kind == "cross" and config.kind == "attention":
                    config = replace(
                        config, kind="cross", gains={f"cross_{role}": gain for role, gain in config.gains.items()}
                    )
                places = asked.places(config)
                if sub.is_unknown:
                    places = frozenset(places & _AROUND | sub.norms - _AROUND)
                yield Pair(sub, config, places, sub.layer)


_AROUND = {"pre", "branch", "post"}
"""Places of norms around a branch, whatever it is made of."""


def _kind_asked(sub: Sublayer, known: Collection[str]) -> str:
    """The kind of sublayer that something is asked of, of those that are known."""
    is_like = sub.is_unknown or (sub.kind == "cross" and "cross" not in known)
    return "attention" if is_like else sub.kind


def _of_other_kinds(kind: str, by_kind: Mapping[str, Sequence[SublayerConfig]]) -> Sequence[SublayerConfig]:
    if kind in ("attention", "ffn"):
        return by_kind.get("parallel", ())
    both = zip(by_kind.get("attention", ()), by_kind.get("ffn", ()), strict=False)
    return [
        replace(first, kind=kind, gains={**first.gains, **second.gains}) for first, second in both if kind == "parallel"
    ]
