"""The document of ``depthlaw rule``: a derived rule in numbers, checked by exact moments, with what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sympy import Expr

from paper_checks.lowering import rule_roles
from paper_checks.lowering.advice import known_as
from paper_checks.lowering.networks import NoTheoryError
from paper_checks.lowering.predicted_rows import percent
from paper_checks.lowering.rule_roles import (
    Growth,
    beside,
    named_scheme,
    predict_command,
    role_growth,
    shallower,
    trained_under,
)
from theory.asymptotics.evaluate import evaluate
from theory.asymptotics.expansion import BeyondScaleError
from theory.rules import check
from theory.rules.check import rule_scheme
from theory.rules.magnitude import compact
from theory.rules.solve import Rule, SideRule
from theory.symbols import M, N
from theory.tables import order_cells

NORMS = tuple(rule_roles.BESIDE)
"""Placements of norms that people ask a rule for; theory derives one without norms too."""
CHECKED_ACTIVATIONS = ("relu", "gelu")
"""Exact moments are asked with these, and with the activation of the user's model."""
IDENTITY = 0.1
"""A model whose branches together are less of the stream than this starts as the identity."""
MATTERS = 0.05
"""The least share that matters, as in TRANSFORMERS.md."""
ROLE_ORDER = ("q", "k", "v", "out", "cross_q", "cross_k", "cross_v", "cross_out", "fc1", "fc2")
Found = Mapping[str, Any]


def rule_document(
    rule: Rule,
    counts: Mapping[str, int],
    activation: str,
    norm_kind: str,
    d_model: int | None,
    tuned: Mapping[str, int] | None = None,
    *,
    in_full: bool = True,
) -> dict[str, Any]:
    """Everything that the command says of a rule, by name, without the sides' common head.

    counts: layers, by the letter of each side. d_model: the width at which shares of the update are told, or None.
    tuned: the layers that the depth is compared with; an eighth of it if None. The numbers of a single side stand at
    the top, those of an encoder-decoder by side. in_full: with the exact moments of other activations than the one that
    was asked for, and of other schemes, which take seconds.
    """
    both, is_held = len(rule.sides) > 1, all(side.gain is not None for side in rule.sides)
    sides = {side.name: _side(rule, side, counts) for side in rule.sides}
    others = other_roles(rule, counts, activation, norm_kind, d_model, tuned)
    for side in sides.values():
        side["rate_left"] = rate_left(side, others)
    of_sides = [line for side in sides.values() for line in side["warnings"]]
    warnings, steps = list(of_sides), list(rule.why)
    answer: dict[str, Any] = dict(zip(("layers", "decoder_layers"), counts.values(), strict=False))
    if both:
        steps.append(
            "not held against exact moments: an encoder-decoder is no single stack, and whether its cross-attentions "
            "add coherently is open (`depthlaw explain DN-07`)"
        )
        answer |= {**sides, "why": [*steps, *of_sides]}
    else:
        more = [(one, "layernorm") for one in CHECKED_ACTIVATIONS] if in_full else []
        checked = [mean_field(rule, *network) for network in dict.fromkeys([*more, (activation, norm_kind)])]
        steps += [*(line["says"] for line in checked), *of_sides]
        (side,) = sides.values()
        answer |= {**side, "mean_field": checked, "why": steps}
        (num_layers,) = counts.values()
        if in_full:
            answer["without_the_rule"] = _without(rule, num_layers, activation, norm_kind)
        warnings += [disagreement(checked, activation, norm_kind)] if is_held else []
    warnings += [no_gain(side, others) for side in sides.values()]
    answer["warnings"] = [line for line in dict.fromkeys(warnings) if line] + warnings_of(others, is_held=is_held)
    answer["other_roles"] = others
    answer["start"] = starts(rule, sides, activation, norm_kind)
    return answer


# ---------------------------------------------------------------- the rule in numbers


def _side(rule: Rule, side: SideRule, counts: Mapping[str, int]) -> dict[str, Any]:
    """One side in numbers and formulas; init_gain null where no gain keeps the update flat.

    The argument assumes that the squared branches have a bounded sum, but for Sub-LN; where they do not, it warns.
    """
    (first, *_), (*_, last) = counts.values(), counts.values()

    def number(expr: Expr) -> float:
        return float(evaluate(expr, {N: first, M: last}, 17))

    accumulated = number(side.member.accumulated_branch)
    warnings = []
    if rule.norm != "sub" and side.gain is not None and accumulated > 1:
        warnings.append(
            f"WARNING, {side.name}: the squared branches sum to {accumulated:.4g} at these layer counts; the argument "
            "assumes a sum below 1, so do not trust this member here. Another --select may keep it small"
        )
    gains = None if side.init_gain is None else {role: number(gain) for role, gain in _sorted(side.init_gain)}
    return {
        "residual_weight": number(side.residual_weight),
        "branch_weight": number(side.branch_weight),
        "init_gain": gains,
        "lr_multiplier": {role: number(value) for role, value in _sorted(side.lr_multiplier)},
        "formula": side.formula,
        "update_order": side.formula["update_order"],
        "relative_update_order": side.formula["relative_update_order"],
        "branch_at_init": number(side.branch_at_init),
        "branches_at_init": accumulated**0.5,
        "warnings": warnings,
        "known_as": _known_as(rule, side.member),
        "alternatives": [_alternative(rule, member, number) for member in side.alternatives],
    }


def _known_as(rule: Rule, member: Any) -> str | None:
    return known_as(member, rule.norm, rule.optimizer) if len(rule.sides) == 1 else None


def _sorted(by_role: Any) -> list[tuple[str, Any]]:
    order = {role: index for index, role in enumerate(ROLE_ORDER)}
    return sorted(by_role.items(), key=lambda item: order.get(item[0], len(order)))


def _alternative(rule: Rule, member: Any, number: Any) -> dict[str, Any]:
    gain = member.init_gain
    return {
        "name": member.name,
        "known_as": _known_as(rule, member),
        "residual_weight": number(member.residual_weight),
        "branch_weight": number(member.branch_weight),
        "init_gain": None if gain is None else number(gain),
        "lr_multiplier": number(member.lr_multiplier),
        "formula": {
            "residual_weight": compact(member.residual_weight),
            "branch_weight": compact(member.branch_weight),
            "init_gain": None if gain is None else compact(gain),
            "lr_multiplier": compact(member.lr_multiplier),
        },
        "update_order": compact(member.update),
        "relative_update_order": compact(member.relative_update),
        "note": member.note,
    }


# ---------------------------------------------------------------- held against exact moments


def mean_field(rule: Rule, activation: str, norm_kind: str = "layernorm") -> dict[str, Any]:
    """What the exact second moments of an FFN stack say of the rule: the magnitude argument is not taken on faith."""
    where = f"{activation}, {norm_kind}"
    try:
        order = check.rule_order(rule, rule.sides[0], activation, norm_kind)
    except BeyondScaleError as reason:
        return {
            "activation": activation,
            "norm_kind": norm_kind,
            "order": None,
            "approximate": None,
            "is_flat": None,
            "flat_gain": None,
            "says": f"mean field ({where}): {reason}",
        }
    cells = order_cells(order)
    letter = rule.sides[0].num_layers
    text = str(cells["approximate"]).replace("N", str(letter))
    flat = check.is_flat(order)
    other = check.flat_gain(rule, rule.sides[0], activation, norm_kind)
    verdict = "flat, as the argument says" if flat else "NOT flat: here the argument and the exact moments disagree"
    says = f"checked by the mean field of an FFN stack ({where}): the update goes as {text}, {verdict}"
    if other is not None:
        says += f"; a gain that grows as {other} keeps it flat"
    if rule.sides[0].init_gain is None:
        says = f"mean field of an FFN stack at gain 1 ({where}): the update goes as {text}"
    return {
        "activation": activation,
        "norm_kind": norm_kind,
        "order": cells,
        "approximate": text,
        "is_flat": flat,
        "flat_gain": None if other is None else str(other),
        "says": says,
    }


def _without(rule: Rule, num_layers: int, activation: str, norm_kind: str) -> list[dict[str, Any]]:
    """The rule first, then what people run with norms in that place."""
    return [
        {
            "scheme": one.scheme,
            "update_order": one.order,
            "layers": [shallower(num_layers), num_layers],
            "growth": None if one.growth is None else one.growth.factor,
            "log10_growth": one.log10_growth,
        }
        for one in beside(rule, num_layers, activation, norm_kind)
    ]


# ---------------------------------------------------------------- what is left open


def other_roles(
    rule: Rule,
    counts: Mapping[str, int],
    activation: str = "relu",
    norm_kind: str = "layernorm",
    d_model: int | None = None,
    tuned: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """How the parameters grow that the rule says nothing of, and the matrices beside them; ``not_computed`` says why,
    where that cannot be said."""
    asked = list(counts.values())
    found: dict[str, Any] = {"asked": asked[0] if len(asked) == 1 else asked, "unmoved": []}
    found |= dict.fromkeys(("layers", "network", "matrices", "error", "scheme", "command", "d_model"))
    found |= {"roles": {}, "not_computed": None, "d_model": d_model}
    try:
        grown = role_growth(rule, counts, activation, norm_kind, d_model, tuned)
    except NoTheoryError as reason:
        return found | {"not_computed": f"what the other parameters do is not computed: {reason}"}
    depths = [list(grown.shallow.values()), list(grown.deep.values())]
    found["layers"] = [depth[0] if len(depth) == 1 else depth for depth in depths]
    found["unmoved"] = list(grown.unmoved)
    num_tokens = rule_roles.tokens_of(rule.norm, d_model)
    found["network"] = f"softmax attention, {num_tokens} tokens, {activation}, {norm_kind}, infinite width"
    found["matrices"] = None if grown.matrices is None else _growth(grown.matrices)
    found["roles"] = {role: _growth(one) | {"share": grown.shares.get(role)} for role, one in grown.others.items()}
    found["error"] = grown.error
    if len(rule.sides) == 1:
        found["scheme"] = named_scheme(rule_scheme(rule, rule.sides[0]))
        found["command"] = predict_command(
            rule, (depths[0][0], depths[1][0]), *_options(activation, norm_kind, d_model)
        )
    return found


def not_asked(others: Found) -> str | None:
    """That a depth was too deep to be computed, and what to do; None where it was computed."""
    if others["layers"] is None:
        return None
    few, many = map(layers_text, others["layers"])
    asked = layers_text(others["asked"])
    if asked == many:
        return None
    return (
        f"{asked} layers were not computed, but {few} to {many}. Beyond them extrapolate by the exponent: growth times "
        f"(layers/{many})^exponent, and lr x over it"
    )


def _options(activation: str, norm_kind: str, d_model: int | None) -> list[str]:
    """Of ``predict``, those that differ from its defaults."""
    found = [f"--activation {activation}"] if activation != "relu" else []
    found += [f"--norm-kind {norm_kind}"] if norm_kind != "layernorm" else []
    return found + ([f"--width {d_model}"] if d_model is not None else [])


def _growth(one: Growth) -> dict[str, Any]:
    return {"growth": one.factor, "exponent": one.exponent, "lr_multiplier": 1 / one.factor, "grows": one.grows}


def warnings_of(others: Found, *, is_held: bool) -> list[str]:
    """What grows all the same, a line for the parameters outside the rule and one for the matrices in it.

    is_held: whether the rule claims to hold the matrices' update.
    """
    if others["not_computed"] is not None:
        return []
    few, many = (layers_text(layers) for layers in others["layers"])
    span = f"from {few} to {many} layers"
    growing = {role: one for role, one in others["roles"].items() if one["grows"]}
    found = []
    if growing:
        shown = ", ".join(f"{role} x {one['growth']:.3g}{share_text(one)}" for role, one in growing.items())
        rates = ", ".join(f"{one['lr_multiplier']:.3g}" for one in growing.values())
        found.append(
            "WARNING: this rule is of the matrices alone. Under it the update of other parameters, which a default "
            f"model trains too, grows {span}: {shown}. A learning rate of their own, {rates} times the rate that suits "
            f"{few} layers, undoes it. " + _weight(growing, others["d_model"])
        )
    matrices = others["matrices"]
    if is_held and matrices is not None and matrices["grows"]:
        found.append(
            f"WARNING: the matrices' own update goes x {matrices['growth']:.3g} {span} in a Transformer with softmax "
            f"attention, as L^{matrices['exponent']:z.2f} between these"
        )
    return found


def rate_left(side: Found, others: Found) -> dict[str, Any] | None:
    """Where no gain can hold the update: the learning rate that does, and beside which it is.

    layers: from the first of these to the last, as the other parameters' are; None where that is not computed, and
    ``formula`` of the magnitude argument stands in. None where the init gain holds the update.
    """
    if side["init_gain"] is not None:
        return None
    if others["matrices"] is not None:
        return {"multiplier": others["matrices"]["lr_multiplier"], "layers": others["layers"], "formula": None}
    rate = next((other for other in side["alternatives"] if other["name"] == "learning-rate"), None)
    if rate is None:
        return None
    return {"multiplier": rate["lr_multiplier"], "layers": None, "formula": rate["formula"]["lr_multiplier"]}


def beside_which(rate: Found) -> str:
    """What a ``rate_left`` is relative to."""
    if rate["layers"] is None:
        return f"the rate where {rate['formula']} is 1"
    return f"the rate that suits {layers_text(rate['layers'][0])} layers"


def no_gain(side: Found, others: Found) -> str | None:
    """The warning that the answer alone holds nothing."""
    rate, matrices = side["rate_left"], others["matrices"]
    if rate is None:
        return None
    grows = f"it grows as {side['update_order']}"
    if matrices is not None:
        few, many = (layers_text(layers) for layers in others["layers"])
        grows = f"it goes x {matrices['growth']:.3g} from {few} to {many} layers, as L^{matrices['exponent']:z.2f}"
    return (
        f"WARNING: no init gain holds the matrices' update. With one learning rate for all depths {grows}; "
        f"{rate['multiplier']:.3g} times {beside_which(rate)} undoes it"
    )


def disagreement(checked: Sequence[Found], activation: str, norm_kind: str) -> str | None:
    """The warning that the headline's order is not that of the exact moments, for the network that was asked about."""
    (one,) = (line for line in checked if (line["activation"], line["norm_kind"]) == (activation, norm_kind))
    if one["is_flat"] is not False:
        return None
    return (
        f"WARNING: the magnitude argument says that the update is the same at any depth; the exact second moments of "
        f"an FFN stack ({activation}, {norm_kind}) disagree: it goes as {one['approximate']}"
    )


def share_text(one: Found) -> str:
    return "" if one.get("share") is None else f" (share {percent(one['share'])})"


def _weight(growing: Found, d_model: int | None) -> str:
    """How much it matters that these grow."""
    if d_model is None:
        return "How much they matter depends on the width: add --width D"
    shares = [one["share"] for one in growing.values()]
    text = f"Share: beside the matrices' update, at d_model {d_model} and the deep end"
    if None in shares:
        return text
    if max(shares) < MATTERS:
        return f"{text}; all below {percent(MATTERS)}, where a learning rate of their own hardly matters"
    return f"{text}; where it is small, its learning rate does not matter"


def starts(rule: Rule, sides: Mapping[str, Found], activation: str, norm_kind: str) -> list[str]:
    """What the model is before the first step, where that is worth a line; and what a flat first step says of training,
    a line of its own."""
    found = []
    for name, side in sides.items():
        together = side["branches_at_init"]
        if together < IDENTITY:
            found.append(
                f"The {name} starts nearly as the identity: by the rule's argument each branch is about "
                f"{side['formula']['branch_at_init']} = {side['branch_at_init']:.3g} of the stream, and all of them "
                f"together {together:.3g}. The alternatives (a smaller learning rate, a branch weight; --why has "
                "them all) hold the same sum and start elsewhere"
            )
    return [
        *found,
        "A flat first step does not promise better training: `depthlaw explain S3-49`"
        + _trained(rule, activation, norm_kind),
    ]


def _trained(rule: Rule, activation: str, norm_kind: str) -> str:
    """Whether anyone looked, here."""
    if len(rule.sides) != 1:
        return ""
    scheme = rule_scheme(rule, rule.sides[0])
    optimizers = trained_under(scheme, activation, norm_kind)
    if optimizers is None:
        return ""
    name = named_scheme(scheme)
    called = f" ({name})" if name else ""
    with_ = f" with {activation} and {norm_kind}"
    if not optimizers:
        return f". No run in TRAINING.md has these weights and gains{called}{with_}"
    return f". TRAINING.md has runs of these weights and gains{called}{with_}, under {', '.join(optimizers)}"


def layers_text(layers: Any) -> str:
    """6, or of an encoder-decoder 18-6."""
    return "-".join(map(str, layers)) if isinstance(layers, list) else str(layers)
