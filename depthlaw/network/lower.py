"""A scheme of theory, an optimizer and sizes, lowered to the plain numbers that sims build a network from.

Three networks: the FFN-only stack of the theorems, a Transformer whose sublayers alternate attention and FFN, and an
encoder-decoder as its source prints it. In each, a scheme's gain w stands on the first and v on the second matrix of a
branch's value path (``theory.stack.SCALED_ROLES``: v and out, cross_v and cross_out, fc1 and fc2); q and k keep gain 1.

Admin's residual weights a_l^2 = 1 + sum_{j<l} Var f_j are those of the network that is built. An FFN's variance is
exact, at any hidden width. An attention's depends on the tokens, and is taken as of one token, (w v)^2: a softmax over
equal tokens. Of T independent ones evenly weighted it is 1/T of that, so there a profiling pass would find smaller a_l.
Source: the schemes' own (``theory.schemes``); DN-06, DN-07, S2-03, S2-04; T-Fixup's decoder: Huang et al. 2020.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from itertools import cycle, islice
from typing import Any, Final

from depthlaw.sims.config import ModelConfig, SublayerConfig
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.kernel.setting import GATED
from depthlaw.theory.meanfield.recursion import Letters, letters_of
from depthlaw.theory.meanfield.update import check_gains, check_letters, check_num_sublayers
from depthlaw.theory.moments import Kind, activation, numeric
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.rules.types import evaluate as rule_in_numbers
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.schemes import scheme as scheme_named
from depthlaw.theory.stack import ARCHITECTURES, PLACEMENTS, SCALED_ROLES, UNSCALED_ROLES, Placement, SublayerKind
from depthlaw.theory.symbols import L

KINDS: Final = {
    SublayerKind.SELF: "attention",
    SublayerKind.CROSS: "cross",
    SublayerKind.FFN: "ffn",
    SublayerKind.PARALLEL: "parallel",
}
"""What sims call theory's kinds of sublayer."""
COUPLED: Final[dict[str, tuple[str, str | None]]] = {"deepnorm": ("post", "deepnet"), "sub-ln-gamma": ("sub", None)}
"""(norm, selection) of the rule that the source derives for the two sides together."""


def digest_of_numbers(*parts: Any) -> str:
    """16 hex digits that tell the plain numbers of one network from those of another.

    parts: dataclasses of numbers, names, mappings and sequences. A field that has its default value does not count, and
    neither does the name of a class: a field that is added later, with a default, leaves every digest as it is. Numbers
    count to 12 significant digits, so that two processors agree.
    """
    text = json.dumps([_plain(part) for part in parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """What JSON can write of it."""
    match value:
        case Enum():
            return value.value
        case Mapping():
            return {str(name): _plain(part) for name, part in value.items()}
        case frozenset():
            return sorted(value)
        case tuple() | list():
            return [_plain(part) for part in value]
        case bool() | None | str():
            return value
        case int() | float():
            return f"{float(value):.12g}"
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no plain number")
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(value)
    }
    given = {name: getattr(value, name) for name in defaults}
    return {name: _plain(part) for name, part in given.items() if part != defaults[name]}


def lower_ffn(
    scheme: str | Scheme,
    optimizer: str,
    num_sublayers: int,
    d_model: int,
    *,
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
    **shape: Any,
) -> ModelConfig:
    """The network of the theorems: ``num_sublayers`` square FFN sublayers, N(0, gain^2/d) each.

    w, v: gains of fc1 and fc2 by sublayer, in place of the scheme's own. shape: further fields of ``ModelConfig``
    (activation, norm_kind, has_affine ...). ValueError in one line where a name is unknown, a count is out of range, or
    a list does not fit.

    >>> from depthlaw.network.lower import lower_ffn
    >>> config = lower_ffn("deepnorm", "sgd", 16, 64)
    >>> config.placement, config.hidden, config.encoder[0].residual_weight, len(config.encoder)
    ('post', 64, 2.0, 16)
    >>> {role: round(gain, 4) for role, gain in config.encoder[0].gains.items()}
    {'fc1': 0.3536, 'fc2': 0.3536}
    >>> lower_ffn("depth-mup", "adam", 16, 64).encoder[0].lr_multipliers["fc1"]
    0.25
    """
    shape["ffn_ratio"] = 1
    return _single(scheme, optimizer, num_sublayers, (SublayerKind.FFN,), w, v, d_model=d_model, **shape)


def lower_transformer(
    scheme: str | Scheme,
    optimizer: str,
    num_sublayers: int,
    d_model: int,
    *,
    w: Sequence[float] | None = None,
    v: Sequence[float] | None = None,
    **shape: Any,
) -> ModelConfig:
    """attention, FFN, attention, ...: ``num_sublayers`` in all, so that an odd count ends in an attention.

    Arguments and errors as in ``lower_ffn``; each matrix is Xavier normal times its gain. shape also has num_heads,
    ffn_ratio or ffn_width, and is_causal, which makes it decoder-only.

    >>> from depthlaw.network.lower import lower_transformer
    >>> config = lower_transformer("su-adam", "adam", 8, 64, num_heads=4)
    >>> [one.kind for one in config.encoder[:3]], config.hidden
    (['attention', 'ffn', 'attention'], 256)
    >>> {role: round(gain, 4) for role, gain in config.encoder[0].gains.items()}
    {'v': 0.3536, 'out': 0.3536}
    """
    (side,) = ARCHITECTURES["encoder"].sides
    return _single(scheme, optimizer, num_sublayers, side.layer, w, v, d_model=d_model, **shape)


def _single(
    scheme: str | Scheme,
    optimizer: str,
    num_sublayers: int,
    layer: Sequence[SublayerKind],
    w: Sequence[float] | None,
    v: Sequence[float] | None,
    **shape: Any,
) -> ModelConfig:
    chosen, bare = _bare(scheme, **shape)
    sublayers = _sublayers(chosen, optimizer, layer, _letters(chosen, num_sublayers, w, v), bare)
    return replace(bare, encoder=sublayers, embedding_std=_embedding_scale(chosen, num_sublayers))


def _embedding_scale(scheme: Scheme, num_sublayers: int) -> float:
    return float(evaluate(scheme.stack.embedding_scale, {L: num_sublayers}, 17))


def lower_encoder_decoder(
    scheme: str | Scheme, optimizer: str, num_layers: int, num_decoder_layers: int, d_model: int, **shape: Any
) -> ModelConfig:
    """N encoder layers (attention, FFN) and M decoder layers (attention, cross, FFN), as the scheme's source prints it.

    deepnorm and sub-ln-gamma by the rule for both sides together, exact where the source rounds to 0.81 and 0.87;
    t-fixup by its two numbers; admin by its one rule on either side; a scheme whose weights and gains do not depend on
    depth as it is. ValueError, in one line, for the others: they would need a rule that nobody printed.

    >>> from depthlaw.network.lower import lower_encoder_decoder
    >>> config = lower_encoder_decoder("deepnorm", "sgd", 18, 18, 64)
    >>> len(config.encoder), len(config.decoder)
    (36, 54)
    >>> round(config.encoder[0].residual_weight, 4), round(config.decoder[0].residual_weight, 4)
    (2.0082, 2.7108)
    >>> lower_encoder_decoder("su-adam", "adam", 6, 6, 64)
    Traceback (most recent call last):
        ...
    ValueError: su-adam: its source prints no encoder-decoder...
    """
    chosen, bare = _bare(scheme, d_model=d_model, **shape)
    printed = _printed(chosen, num_layers, num_decoder_layers)
    encoder, decoder = (
        _sublayers(chosen, optimizer, side.layer, printed[side.name], bare)
        for side in ARCHITECTURES["encoder-decoder"].sides
    )
    scales = [_embedding_scale(chosen, 2 * count) for count in (num_layers, num_decoder_layers)]
    other = scales[1] if scales[1] != scales[0] else None
    return replace(bare, encoder=encoder, decoder=decoder, embedding_std=scales[0], decoder_embedding_std=other)


def visited(config: ModelConfig, visits: int) -> ModelConfig:
    """The network whose layers of their own are the first of these, gone through so often; the others are those again.

    ValueError, in one line, where they are not: visits of a layer share all its numbers, those that are not trained
    too, so a scheme whose numbers depend on the place of a sublayer has no such network.

    >>> from depthlaw.network.lower import lower_transformer, visited
    >>> config = visited(lower_transformer("deepnorm", "adam", 16, 64), 4)
    >>> len(config.encoder), config.num_sums, round(config.encoder[0].residual_weight, 4)
    (4, {'encoder': 16}, 2.0)
    """
    layers: dict[str, tuple[SublayerConfig, ...]] = {}
    for side, sublayers in config.sides:
        number, rest = divmod(len(sublayers), visits)
        if rest:
            raise ValueError(f"{len(sublayers)} sublayers of the {side} are no whole number of layers, {visits} times")
        layers[side] = sublayers[:number]
        for index, sublayer in enumerate(sublayers):
            if sublayer != layers[side][index % number]:
                raise ValueError(
                    f"visits of a layer share all its numbers, and sublayer {index + 1} of the {side} has others than "
                    f"sublayer {index % number + 1}, which it would be again"
                )
    return replace(config, visits=visits, **layers)


def has_encoder_decoder(scheme: Scheme) -> bool:
    """Whether the scheme's source says what an encoder-decoder's weights and gains are."""
    stack = scheme.stack
    letters = (
        stack.branch_weight,
        stack.input_scale,
        stack.gain_in,
        stack.gain_out,
        stack.embedding_scale,
        scheme.lr_multiplier,
    )
    has_rule = scheme.name in (*COUPLED, "t-fixup")
    return has_rule or not any(letter.free_symbols for letter in (*letters, stack.residual_weight or L**0))


def _letters(
    scheme: Scheme, num_sublayers: int, w: Sequence[float] | None = None, v: Sequence[float] | None = None
) -> list[Letters]:
    """As ``depthlaw predict`` reads them, refusals included."""
    check_num_sublayers(scheme, num_sublayers)
    check_letters(scheme, num_sublayers)
    for name, gains in (("w", w), ("v", v)):
        if gains is not None:
            check_gains(name, gains, num_sublayers)
    at = letters_of(scheme.stack, num_sublayers, w, v)
    return [at(index) for index in range(1, num_sublayers + 1)]


def _printed(scheme: Scheme, num_layers: int, num_decoder_layers: int) -> dict[str, list[Letters]]:
    """By side."""
    if not has_encoder_decoder(scheme):
        allowed = ", ".join(name for name, known in SCHEMES.items() if has_encoder_decoder(known))
        raise ValueError(f"{scheme.name}: its source prints no encoder-decoder (those that have one: {allowed})")
    for side, count in (("encoder", num_layers), ("decoder", num_decoder_layers)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"the {side} has a whole number of layers from 1, not {count!r}")
    counts = {"encoder": 2 * num_layers, "decoder": 3 * num_decoder_layers}
    if scheme.name in COUPLED:
        norm, select = COUPLED[scheme.name]
        rule = solve_rule(norm, "sgd", "encoder-decoder", select, with_alternatives=False)
        by_side = rule_in_numbers(rule, N=num_layers, M=num_decoder_layers)
        letters = {}
        for side in ARCHITECTURES["encoder-decoder"].sides:
            numbers = by_side[side.name]
            assert numbers.init_gain is not None, "under sgd either rule has a gain"
            pairs = [[numbers.init_gain[role] for role in SCALED_ROLES[kind]] for kind in side.layer]
            a, b = numbers.residual_weight, numbers.branch_weight
            letters[side.name] = [(a, b, 1.0, w, v) for w, v in islice(cycle(pairs), counts[side.name])]
        return letters
    letters = {side: _letters(scheme, count) for side, count in counts.items()}
    if scheme.name == "t-fixup":
        gain = (9 * num_decoder_layers) ** -0.25
        letters["decoder"] = [(a, b, c, gain, gain) for a, b, c, _, _ in letters["decoder"]]
    return letters


def _sublayers(
    scheme: Scheme, optimizer: str, layer: Sequence[SublayerKind], letters: Sequence[Letters], shape: ModelConfig
) -> tuple[SublayerConfig, ...]:
    """``layer`` over and over, one sublayer for each entry of ``letters``."""
    rate = float(evaluate(scheme.lr_multiplier_under(optimizer_named(optimizer)), {L: len(letters)}, 17))
    beside = (*(["bias"] if shape.has_bias else []), *(["norm_gain", "norm_bias"] if shape.has_affine else []))
    sublayers, admin = [], 1.0
    for index, (a, b, c, w, v) in enumerate(letters, start=1):
        kind = layer[(index - 1) % len(layer)]
        is_ffn = None if len(layer) == 1 else kind is SublayerKind.FFN
        placement = scheme.stack.placement_at(index, len(letters), is_ffn=is_ffn)
        gate = ["fc3"] if kind in (SublayerKind.FFN, SublayerKind.PARALLEL) and shape.activation in GATED else []
        roles = (*UNSCALED_ROLES[kind], *SCALED_ROLES[kind], *gate, *beside)
        sublayers.append(
            SublayerConfig(
                kind=KINDS[kind],
                norms=_norms(placement, kind) if shape.placement == "none" else None,
                residual_weight=math.sqrt(admin) if a is None else a,
                branch_weight=b,
                input_scale=c,
                gains=dict(zip(SCALED_ROLES[kind], (w, v), strict=True)),
                lr_multipliers={} if rate == 1 else dict.fromkeys(roles, rate),
                trains_branch_weight=scheme.stack.trains_branch_weight,
            )
        )
        if a is None:
            admin += b**2 * branch_second(kind, c * w, v, shape)
    return tuple(sublayers)


def branch_second(kind: SublayerKind, w: float, v: float, shape: ModelConfig) -> float:
    """E f^2 of a branch at an input of second moment 1, its matrices Xavier normal times w and v.

    FFN, hidden width H: fc1 gives w^2 2d/(d + H) before the activation, fc2 multiplies E phi^2 by v^2 2H/(d + H). In a
    gated one fc3, of gain 1, multiplies E phi^2 by 2d/(d + H) besides.
    Attention: both matrices are square, and the softmax is over equal tokens.
    """
    if kind is not SublayerKind.FFN:
        return (w * v) ** 2
    xavier = 2 / (shape.d_model + shape.hidden)
    scale = w * math.sqrt(shape.d_model * xavier)
    second = numeric(activation(GATED.get(shape.activation, shape.activation)), Kind.SECOND, scale)
    return v**2 * shape.hidden * xavier * second * (shape.d_model * xavier if shape.activation in GATED else 1)


def _bare(scheme: str | Scheme, **shape: Any) -> tuple[Scheme, ModelConfig]:
    """The scheme, and everything of the network but its sublayers, checked."""
    chosen = scheme_named(scheme) if isinstance(scheme, str) else scheme
    stack, placement = chosen.stack, "none"
    if chosen.name == "normformer":  # as sub in an FFN; the extra norm of an attention stands on its branch
        placement = chosen.name
    elif stack.even is None and stack.early is None:
        # "none" also where norms stand in no named way: then each sublayer says it itself
        placement = next((name for name, where in PLACEMENTS.items() if where == stack.placement), "none")
    if stack.norm_function:
        shape["norm_kind"] = stack.norm_function
    return chosen, ModelConfig(
        encoder=(SublayerConfig(kind="ffn"),),
        placement=placement,
        has_final=stack.placement.final if placement == "none" and stack.placement.final else None,
        has_second_stream=stack.has_second_stream,
        **shape,
    )


def _norms(placement: Placement, kind: SublayerKind) -> frozenset[str] | None:
    """Of a sublayer, as sims and the kernel rung name them. None where no norm stands."""
    names = frozenset(placement.names) - {"heads", "final"}
    if placement.heads:
        names |= {"pre"} if kind is SublayerKind.FFN else {"q", "k", "v"}
    return names or None
