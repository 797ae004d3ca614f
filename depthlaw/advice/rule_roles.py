"""What a rule leaves open: how the parameters grow that it says nothing of, and how the update grows without it.

A rule is of the matrices of the branches. A default model trains norm gains and biases, linear biases, an embedding and
a head too. The kernel rung says what these do at the rule's own weights and gains: at the depth that was asked for and
at a shallower one, with few tokens and few quasi-random points, since a rule is to answer at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import Any

from sympy import S

from depthlaw.advice.records import training_runs
from depthlaw.advice.remedy import LATER, LATER_FAILED
from depthlaw.network.embedding import LARGE, PUBLISHED, OtherEmbedding
from depthlaw.network.kernel import later_update_of, update_of
from depthlaw.network.predicted_rows import finite, shares
from depthlaw.system.places import TRAINING_RECORDS
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.asymptotics.expansion import BeyondScaleError
from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, unit_power
from depthlaw.theory.meanfield.growth import update_order
from depthlaw.theory.meanfield.setting import Setting
from depthlaw.theory.meanfield.update import predict_setting
from depthlaw.theory.rules.check import len_of_layer, rule_scheme
from depthlaw.theory.rules.magnitude import exponents
from depthlaw.theory.rules.types import Rule
from depthlaw.theory.rules.types import evaluate as in_numbers
from depthlaw.theory.schemes import SCHEMES, Scheme
from depthlaw.theory.stack import ARCHITECTURES, SCALED_ROLES, Stack, SublayerKind
from depthlaw.theory.symbols import L
from depthlaw.theory.tables import order_cells

TOKENS = 4
"""They cost little. A role grows over 8 times the depth as it does with 16, within 20 %; beside 64 tokens biases and
the embedding are further off, by up to 30 %, since with more tokens these grow more slowly."""
MORE_TOKENS = 16
"""With them a share is that of ``depthlaw predict``, whose default they are; with 4 it is a seventh smaller. And of
Sub-LN, where 4 say too much of biases and the embedding."""
EFFORT = 0.25
"""Of the quasi-random points of a prediction; an update is within 3 %."""
MOST_LAYERS = 256
"""On all sides together: what takes ten seconds. A deeper model is asked about at that many, and that is said."""
SHALLOWER = 8
FLAT = 0.05
"""An exponent in depth below it is flat, as in TRANSFORMERS.md."""
FLAT_AT_FEW_TOKENS = 0.1
"""The same of a parameter outside the rule with ``TOKENS``: 0.08 with 4 can be 0.035 with 64."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "post": ("post-ln", "deepnorm"),
    "pre": ("pre-ln", "gpt2"),
    "sub": ("sub-ln", "sub-ln-gamma"),
}
"""By placement, what people run today."""
_DEPTHS = (12, 96, 10**6)
"""Two schemes whose weights and gains are equal at all of these are one."""

Counts = Mapping[str, int]
"""Layers, by the letter of each side."""


def other_roles(
    rule: Rule,
    counts: Counts,
    activation: str = "relu",
    norm_kind: str = "layernorm",
    d_model: int | None = None,
    tuned: Counts | None = None,
    embedding_std: float | None = None,
) -> dict[str, Any]:
    """How the parameters grow that the rule says nothing of, and the matrices beside them, under exactly this rule.

    A real Transformer at infinite width, softmax attention, one logit at the last of ``tokens_of`` tokens. d_model: the
    width at which shares are told. tuned: the layers that the depth is compared with; an eighth of it if left out.
    embedding_std: of the embedding beside which the matrices are told again; that of most published models if left out,
    but of post-norms, which forget it.
    What is deeper than ``MOST_LAYERS`` is asked about at that many; the other depth stays, or keeps its proportion
    where it is not much below that, either.

    ``later``: how the matrices' update grows between these depths by the law that was nearest to training behind its
    first few steps, once the optimizer has made them as large as Xavier's init is; None where that law
    failed in training, and of optimizers that it was not held against. ``unmoved``: what the optimizer's first step
    leaves at zero. ``error``: the largest relative standard error of the quasi-random averages. ``not_computed`` says
    why, where it is one layer and where the kernel rung knows no answer.
    """
    asked = list(counts.values())
    answer: dict[str, Any] = {"asked": asked[0] if len(asked) == 1 else asked, "unmoved": []}
    answer["tuned"] = None if tuned is None else [*tuned.values()] if len(asked) > 1 else next(iter(tuned.values()))
    answer |= dict.fromkeys(
        ("layers", "network", "matrices", "later", "embedding", "error", "scheme", "command", "d_model")
    )
    answer |= {"roles": {}, "not_computed": None, "d_model": d_model}
    lengths = [sum(depth.values()) for depth in (counts, tuned or counts)]
    are_both_deep = 2 * min(lengths) > MOST_LAYERS
    deep, shallow = (
        {name: max(min(2, count), int(count * share)) for name, count in depth.items()}
        for depth, length in zip((counts, tuned or counts), lengths, strict=True)
        for share in [min(Fraction(1), Fraction(MOST_LAYERS, max(lengths) if are_both_deep else length))]
    )
    if tuned is None:
        shallow = {name: shallower(count) for name, count in deep.items()}
    try:
        if shallow == deep:
            raise ValueError("a network of one layer has no shallower one to compare with")
        answer |= _grown(rule, shallow, deep, activation, norm_kind, d_model, embedding_std)
    except (ValueError, ArithmeticError) as error:
        reason = str(error) or type(error).__name__
        return answer | {"not_computed": f"what the other parameters do is not computed: {reason}"}
    depths = [list(shallow.values()), list(deep.values())]
    answer["layers"] = [layers[0] if len(layers) == 1 else layers for layers in depths]
    num_tokens = tokens_of(rule.norm, d_model)
    answer["network"] = f"softmax attention, {num_tokens} tokens, {activation}, {norm_kind}, infinite width"
    if len(rule.sides) == 1:
        options = [f"--activation {activation}"] if activation != "relu" else []
        options += [f"--norm-kind {norm_kind}"] if norm_kind != "layernorm" else []
        options += [f"--width {d_model}"] if d_model is not None else []
        answer["scheme"] = named_scheme(rule_scheme(rule, rule.sides[0]))
        answer["command"] = predict_command(rule, [layers for (layers,) in depths], *options)
    return answer


def _grown(
    rule: Rule,
    shallow: Counts,
    deep: Counts,
    activation: str,
    norm_kind: str,
    d_model: int | None,
    embedding_std: float | None,
) -> dict[str, Any]:
    """From one depth to the other. ValueError and ArithmeticError for what the kernel rung does not know."""
    num_tokens = tokens_of(rule.norm, d_model)
    networks = [_transformer(rule, depth, activation, norm_kind) for depth in (shallow, deep)]
    other_std = embedding_std or (None if rule.norm == "post" else PUBLISHED)  # a post-norm forgets the scale
    (first, last), *beside = (
        [
            update_of(network, Inputs(num_tokens=num_tokens, embedding_std=std), rule.optimizer, effort=EFFORT)
            for network in networks
        ]
        for std in (LARGE, other_std)
        if std is not None
    )
    few, many = (sum(map(len, network.sides)) for network in networks)
    # one layer is no power law's beginning: small exponents from there say nothing
    is_one = max(shallow.values()) == 1

    def growth(before: float, after: float, flat: float) -> dict[str, Any] | None:
        """None where an update is 0 or beyond the floats. flat: up to which exponent nothing is said of it."""
        if not (0 < before < math.inf and 0 < after < math.inf):
            return None
        factor = after / before
        exponent = math.log(factor) / math.log(many / few)
        grows = not is_one and exponent > flat
        return {"growth": factor, "exponent": exponent, "lr_multiplier": 1 / factor, "grows": grows}

    ruled = {role for side in rule.sides for role in side.lr_multiplier}
    outside = {role: value for role, value in last.roles.items() if role not in ruled}
    flat = FLAT_AT_FEW_TOKENS if num_tokens == TOKENS else FLAT
    grown = {role: growth(first.roles[role], value, flat) for role, value in outside.items()}
    others = {role: row for role, row in grown.items() if row is not None}
    units = {role: unit_power(rule.optimizer, role) for role in others}
    row = {"update": last.update, "roles": {role: last.roles[role] for role in others}}
    of_matrices = {role: [None] for role in others} if d_model is None else shares([row], units, d_model)
    roles = sorted(others, key=lambda role: -others[role]["exponent"])
    growths = [after.update / before.update for before, after in ((first, last), *beside) if before.update]
    other = None
    if other_std is not None and len(growths) == 2 and all(map(math.isfinite, growths)):
        other = OtherEmbedding(std=LARGE, growth=growths[0], other_std=other_std, other_growth=growths[1])
    later, law = None, LATER.get(rule.optimizer)
    has_failed = rule.norm == "post" or (
        len(rule.sides) == 1 and named_scheme(rule_scheme(rule, rule.sides[0])) in LATER_FAILED
    )
    if law is not None and not has_failed:
        asked = Inputs(num_tokens=num_tokens), rule.optimizer, 1.0, 1
        before, after = (later_update_of(law, network, *asked, effort=EFFORT) for network in networks)
        grown_later = growth(before, after, FLAT)
        later = None if grown_later is None else {"law": law, "growth": grown_later["growth"]}
    return {
        "later": later,
        "embedding": None if other is None else other.document() | {"says": other.text},
        "unmoved": sorted(role for role, value in outside.items() if value == 0),
        "matrices": growth(first.update, last.update, FLAT),
        "roles": {role: others[role] | {"share": of_matrices[role][0]} for role in roles},
        "error": max(answer.error[role] for answer in (first, last) for role in (*others, "update")),
    }


def tokens_of(norm: str, d_model: int | None) -> int:
    """Of the sequence that is asked about, with and without a width."""
    return TOKENS if d_model is None and norm != "sub" else MORE_TOKENS


def shallower(num_layers: int) -> int:
    """What a depth is compared with: two layers at least, where it has more."""
    return max(min(2, num_layers - 1), num_layers // SHALLOWER, 1)


def _transformer(rule: Rule, counts: Counts, activation: str, norm_kind: str) -> Transformer:
    """The network that the rule builds."""
    numbers, sides = in_numbers(rule, **counts), []
    for side in ARCHITECTURES[rule.architecture].sides:
        mine = numbers[side.name]
        weights: dict[str, Any] = {"residual_weight": mine.residual_weight, "branch_weight": mine.branch_weight}
        gains, rates = mine.init_gain or {}, mine.lr_multiplier
        of_third = {"fc3": rates["fc3"] / rates["fc2"]} if "fc3" in rates else {}
        layer = tuple(
            Sublayer(
                kind=kind,
                gains={role: gains.get(role, 1.0) for role in SCALED_ROLES[kind]},
                lr_multipliers=of_third if kind is SublayerKind.FFN else {},
                **weights,
            )
            for kind in side.layer
        )
        sides.append(layer * counts[str(side.num_layers)])
    encoder, *decoder = sides
    return Transformer(
        encoder=encoder,
        decoder=decoder[0] if decoder else (),
        placement=rule.norm,
        norm_kind=norm_kind,
        activation=activation,
        is_causal=rule.architecture == "decoder",
    )


def named_scheme(scheme: Scheme) -> str | None:
    """The first named scheme with these norms, weights and gains at every depth; None where none has them."""
    return next((name for name, known in SCHEMES.items() if _values(known) == _values(scheme)), None)


@cache
def _values(scheme: Scheme) -> tuple[object, ...]:
    stack = scheme.stack
    is_special = (
        stack.trains_branch_weight or stack.input_scale != 1 or scheme.lr_multiplier != 1 or stack.embedding_scale != 1
    )
    is_special |= not stack.is_uniform or bool(stack.norm_function) or stack.has_second_stream
    if stack.residual_weight is None or is_special:
        return (scheme.name,)  # like no other
    letters = (stack.residual_weight, stack.branch_weight, stack.gain_in, stack.gain_out)
    return stack.placement, *(
        tuple(f"{float(evaluate(letter, {L: depth}, 20)):.12g}" for letter in letters) for depth in _DEPTHS
    )


def predict_command(rule: Rule, depths: Sequence[int], *more: str) -> str | None:
    """The ``depthlaw predict`` that asks about this very rule at those layers, by role. more: further options.

    By a named scheme that has it, else as power laws. None of an encoder-decoder, and of a gain that is neither.
    """
    if len(rule.sides) != 1:
        return None
    scheme = rule_scheme(rule, rule.sides[0])
    name = named_scheme(scheme)
    try:
        which = f"--norm {rule.norm}{_laws(scheme.stack)}" if name is None else f"--scheme {name}"
    except ArithmeticError:
        return None
    arch = "" if rule.architecture == "encoder" else f" --arch {rule.architecture}"
    layers = ",".join(map(str, depths))
    asked = f"depthlaw predict {which} --optimizer {rule.optimizer} --attention{arch} --layers {layers}"
    return " ".join([asked, *more, "--roles"])


def _laws(stack: Stack) -> str:
    """As options. ArithmeticError for what is no power law."""
    options = {"residual-weight": stack.residual_weight, "branch-weight": stack.branch_weight, "gain": stack.gain_in}
    text = ""
    for name, expr in options.items():
        if expr is not None and expr != S.One:
            coefficient, (power,) = exponents(expr, (L,))
            text += f" --{name} {coefficient if coefficient.is_Rational else f'{float(coefficient):.10g}'},{power}"
    return text


def beside(rule: Rule, num_layers: int, activation: str = "relu", norm_kind: str = "layernorm") -> list[dict[str, Any]]:
    """The rule itself, and what people run with norms in that place: how the update of an FFN stack grows, by exact
    second moments at any depth, to leading order and from a shallower depth to that of the rule."""
    (side,) = rule.sides
    sublayers = len_of_layer(side)
    layers = [shallower(num_layers), num_layers]
    rows = []
    for scheme in (rule_scheme(rule, side), *(SCHEMES[name] for name in BESIDE[rule.norm])):
        setting = Setting.of(scheme, rule.optimizer, activation, norm_kind)
        text = log10_growth = growth = None
        with suppress(BeyondScaleError):
            order = update_order(setting).restated(L, sublayers * side.num_layers)
            text = str(order_cells(order)["approximate"]).replace("N", str(side.num_layers))
        # gelu explodes beyond the floats, where only logarithms are left
        with suppress(ValueError, ArithmeticError):
            first, last = (predict_setting(setting, sublayers * count).log10_update for count in layers)
            log10_growth = finite(last - first) if num_layers > 1 else None
            growth = None if log10_growth is None else finite(10**log10_growth) or None
        rows.append(
            {
                "scheme": scheme.name,
                "update_order": text,
                "layers": layers,
                "growth": growth,
                "log10_growth": log10_growth,
            }
        )
    return rows


def trained_under(scheme: Scheme, activation: str, norm_kind: str) -> list[str] | None:
    """The optimizers under which the runs of TRAINING.md trained a scheme with these norms, weights and gains. None
    where there are no records to ask."""
    runs = training_runs(TRAINING_RECORDS)
    wanted = {name for name, known in SCHEMES.items() if _values(known) == _values(scheme)}
    asked = activation, norm_kind
    trained = {
        run["optimizer"] for run in runs if run["scheme"] in wanted and (run["activation"], run["norm_kind"]) == asked
    }
    return sorted(trained) if runs else None
