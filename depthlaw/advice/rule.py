"""The document of ``depthlaw rule``: a derived rule in numbers, checked by exact moments, with what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from sympy import Expr

from depthlaw.advice import rule_roles
from depthlaw.advice.laws import known_as
from depthlaw.advice.remedy import IDENTITY, MATTERS
from depthlaw.advice.rule_roles import beside, named_scheme, other_roles, trained_under
from depthlaw.network.predicted_rows import percent
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.system.kept import kept
from depthlaw.theory.asymptotics.evaluate import evaluate
from depthlaw.theory.asymptotics.expansion import BeyondScaleError
from depthlaw.theory.rules import check
from depthlaw.theory.rules.check import rule_scheme
from depthlaw.theory.rules.magnitude import compact
from depthlaw.theory.rules.selection import Member
from depthlaw.theory.rules.solve import Rule, SideRule, solve_rule, update_under
from depthlaw.theory.rules.visits import counts_as
from depthlaw.theory.symbols import M, N
from depthlaw.theory.tables import order_cells

NORMS = tuple(rule_roles.BESIDE)
"""Placements of norms that people ask a rule for; theory derives one without norms too."""
CHECKED_ACTIVATIONS = ("relu", "gelu")
"""Exact moments are asked with these, and with the activation of the user's model."""
Entry = Mapping[str, Any]


def rule_document(
    rule: Rule,
    counts: Mapping[str, int],
    activation: str,
    norm_kind: str,
    d_model: int | None,
    tuned: Mapping[str, int] | None = None,
    *,
    embedding_std: float | None = None,
    in_full: bool = True,
) -> dict[str, Any]:
    """Everything that the command says of a rule, by name, without the sides' common head.

    counts: layers, by the letter of each side. d_model: the width at which shares of the update are told, or None.
    tuned: the layers that the depth is compared with; an eighth of it if None. embedding_std: as ``other_roles`` has
    it. The numbers of a single side stand at the top, those of an encoder-decoder by side. in_full: with the exact
    moments of other activations than the one that was asked for, and of other schemes, which take seconds.
    """
    both, is_held = len(rule.sides) > 1, all(side.gain is not None for side in rule.sides)
    sides = {side.name: _side(rule, side, counts) for side in rule.sides}
    others = other_roles(rule, counts, activation, norm_kind, d_model, tuned, embedding_std)
    for side, solved in zip(sides.values(), rule.sides, strict=True):
        side["rate_left"] = rate_left(side, others)
        side["relative_update_growth"] = _growth(solved.relative_update_order, others["layers"])
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
        more = [(name, "layernorm") for name in CHECKED_ACTIVATIONS] if in_full else []
        checked = [mean_field(rule, *network) for network in dict.fromkeys([*more, (activation, norm_kind)])]
        steps += [*(line["says"] for line in checked), *of_sides]
        (side,) = sides.values()
        answer |= {**side, "mean_field": checked, "why": steps}
        (num_layers,) = counts.values()
        if in_full:
            answer["without_the_rule"] = beside(rule, num_layers, activation, norm_kind)
        warnings += [disagreement(checked, activation, norm_kind)] if is_held else []
    warnings += [no_gain(side, others) for side in sides.values()]
    warnings += [not_deepnet_s(rule, counts)]
    answer["warnings"] = [line for line in dict.fromkeys(warnings) if line] + warnings_of(others, is_held=is_held)
    answer["other_roles"] = others
    answer["deepnet"] = beside_deepnet(rule, sides) if in_full else None
    answer["start"] = starts(rule, sides, activation, norm_kind)
    return answer


def visits_document(norm: str, optimizer: str, layers: Sequence[int], visits: int) -> dict[str, Any] | None:
    """How many layers of their own so many layers, by side, count as that are visited so often; None where that is
    once."""
    if visits == 1:
        return None
    counted = [counts_as(norm, optimizer, number, visits) for number in layers]
    if norm == "sub":
        why = "a stream that visits make grow as their number hears later ones less"
    elif counted[0] > layers[0] * visits:
        why = "the gradients of visits are alike where branches are small, and add up before they are squared"
    else:
        why = "the gradients of visits are alike where branches are small, and a step has a size of its own"
    own, many = ("-".join(map(str, numbers)) for numbers in (layers, counted))
    says = (
        f"{own} layers, visited {visits} times, count as {many} layers of their own under {optimizer}: {why}. What is "
        "said below of other parameters is of so many layers of their own."
    )
    one = len(layers) == 1
    return {
        "visits": visits,
        "own_layers": layers[0] if one else [*layers],
        "count_as": counted[0] if one else counted,
        "says": says,
    }


def _side(rule: Rule, side: SideRule, counts: Mapping[str, int]) -> dict[str, Any]:
    """One side in numbers and formulas; init_gain null where no gain keeps the update flat.

    The argument assumes that the squared branches have a bounded sum, but for Sub-LN; where they do not, it warns.
    """
    (first, *_), (*_, last) = counts.values(), counts.values()

    def number(expr: Expr) -> float:
        return float(evaluate(expr, {N: first, M: last}, 17))

    def by_role(exprs: Mapping[str, Expr]) -> dict[str, float]:
        return {role: number(exprs[role]) for role in BRANCH_ROLES if role in exprs}

    def alternative(member: Member) -> dict[str, Any]:
        names = ("residual_weight", "branch_weight", "init_gain", "lr_multiplier")
        laws = {name: getattr(member, name) for name in names}
        return {
            "name": member.name,
            "known_as": _known_as(rule, member),
            **{name: None if law is None else number(law) for name, law in laws.items()},
            "formula": {name: None if law is None else compact(law) for name, law in laws.items()},
            "update_order": compact(member.update),
            "relative_update_order": compact(member.relative_update),
            "note": member.note,
        }

    accumulated = number(side.member.accumulated_branch)
    warnings = []
    if rule.norm != "sub" and side.gain is not None and accumulated > 1:
        warnings.append(
            f"WARNING, {side.name}: the squared branches sum to {accumulated:.4g} at these layer counts; the argument "
            "assumes a sum below 1, so do not trust this member here. Another --select may keep it small"
        )
    return {
        "residual_weight": number(side.residual_weight),
        "branch_weight": number(side.branch_weight),
        "init_gain": None if side.init_gain is None else by_role(side.init_gain),
        "lr_multiplier": by_role(side.lr_multiplier),
        "formula": side.formula,
        "update_order": side.formula["update_order"],
        "relative_update_order": side.formula["relative_update_order"],
        "branch_at_init": number(side.branch_at_init),
        "branches_at_init": accumulated**0.5,
        "warnings": warnings,
        "known_as": _known_as(rule, side.member),
        "alternatives": [alternative(member) for member in side.alternatives],
    }


def not_deepnet_s(rule: Rule, counts: Mapping[str, int]) -> str:
    """Where DeepNet's selection is asked about an optimizer that its rule was not derived for, its own number. Empty
    where the rule is DeepNet's own."""
    if rule.select != "deepnet":
        return ""
    printed = solve_rule(rule.norm, "sgd", rule.architecture, "deepnet", with_alternatives=False)
    mine, theirs = ([side.residual_weight for side in of.sides] for of in (rule, printed))
    if mine == theirs:
        return ""
    (first, *_), (*_, last) = counts.values(), counts.values()
    numbers = " and ".join(f"{float(evaluate(law, {N: first, M: last}, 17)):.4g}" for law in theirs)
    return (
        f"this is the family's member for {rule.optimizer}, not DeepNet's own rule, which is derived for SGD: its "
        f"residual weight is {numbers} here"
    )


def _growth(order: Expr, depths: Sequence[Any] | None) -> float | None:
    """From the first of two depths to the last."""
    if depths is None:
        return None
    pairs = [depth if isinstance(depth, list) else [depth] for depth in depths]
    before, after = (evaluate(order, {N: pair[0], M: pair[-1]}, 17) for pair in pairs)
    return float(after / before)


def _known_as(rule: Rule, member: Member) -> str | None:
    return known_as(member, rule.norm, rule.optimizer) if len(rule.sides) == 1 else None


def mean_field(rule: Rule, activation: str, norm_kind: str = "layernorm") -> dict[str, Any]:
    """What the exact second moments of an FFN stack say of the rule: the magnitude argument is not taken on faith."""
    where, side = f"{activation}, {norm_kind}", rule.sides[0]
    answer: dict[str, Any] = {"activation": activation, "norm_kind": norm_kind}
    exact = _exact(rule, side, activation, norm_kind)
    if "reason" in exact:
        unknown = dict.fromkeys(("order", "approximate", "is_flat", "flat_gain"))
        return answer | unknown | {"says": f"mean field ({where}): {exact['reason']}"}
    text = str(exact["order"]["approximate"]).replace("N", str(side.num_layers))
    if side.init_gain is None:
        says = f"mean field of an FFN stack at gain 1 ({where}): the update goes as {text}"
    else:
        verdict = (
            "flat, as the argument says"
            if exact["is_flat"]
            else "NOT flat: here the argument and the exact moments disagree"
        )
        says = f"checked by the mean field of an FFN stack ({where}): the update goes as {text}, {verdict}"
        gain = exact["flat_gain"]
        says += "" if gain is None else f"; a gain that grows as {gain} keeps it flat"
    flat = {name: exact[name] for name in ("is_flat", "flat_gain")}
    return answer | {"order": exact["order"], "approximate": text, **flat, "says": says}


def _exact(rule: Rule, side: SideRule, activation: str, norm_kind: str) -> dict[str, Any]:
    """The cells of the update's order, whether it is flat, and the gain that keeps it flat; or why there is no order.
    Kept where answers are, of the optimizers that have a name."""

    def derive() -> dict[str, Any]:
        try:
            order = check.rule_order(rule, side, activation, norm_kind)
        except BeyondScaleError as reason:
            return {"reason": str(reason)}
        gain = check.flat_gain(rule, side, activation, norm_kind)
        flat = {"is_flat": check.is_flat(order), "flat_gain": None if gain is None else str(gain)}
        return {"order": order_cells(order), **flat}

    if not isinstance(rule.optimizer, str):
        return derive()
    scheme, counts = rule_scheme(rule, side), (side.num_sublayers, side.num_layers, side.gain)
    asked = [repr(scheme), rule.optimizer, *map(str, counts), activation, norm_kind]
    return kept({"orders": asked, "sympy": version("sympy")}, derive)


def not_asked(others: Entry) -> str | None:
    """That a depth was too deep to be computed, and what to do; None where it was computed."""
    if others["layers"] is None:
        return None
    (few, many), asked = span(others), layers_text(others["asked"])
    tuned = few if others["tuned"] is None else layers_text(others["tuned"])
    if (tuned, asked) == (few, many):
        return None
    left = " and ".join(wanted for wanted, computed in ((tuned, few), (asked, many)) if wanted != computed)
    return (
        f"{left} layers were not computed, but {few} to {many}. Beyond them extrapolate by the exponent: growth times "
        f"(layers/{many})^exponent, and lr x over it"
    )


def what_is_held(sides: Mapping[str, Entry], others: Entry) -> str | None:
    """Between which models the matrices' update is held, and what is not; None where it is not computed or not held.

    ``advise`` compares others: a tuned model that need not have the rule's numbers, and the same one with a law on top.
    """
    growths = {name: side["relative_update_growth"] for name, side in sides.items()}
    if None in growths.values() or any(side["init_gain"] is None for side in sides.values()):
        return None
    of = {name: "" if len(sides) == 1 else f" in the {name}" for name in sides}
    goes = ", ".join(f"x {growth:.3g}{of[name]}" for name, growth in growths.items())
    return (
        f"The rule holds the update, between two models of its own; relative to its matrix a step goes {goes}. "
        "`advise` keeps a tuned model and ranks what comes on top"
    )


def beside_deepnet(rule: Rule, sides: Mapping[str, Entry]) -> str | None:
    """DeepNet's own member beside the rule's: which of the two, and why. None where norms are not behind the sum."""
    if rule.norm != "post":
        return None
    printed, optimizer = (
        solve_rule("post", "sgd", rule.architecture, "deepnet", with_alternatives=False),
        rule.optimizer,
    )
    orders = [compact(order) for order in update_under(printed, optimizer).values()]
    laws = [f"alpha {side.formula['residual_weight']}, lambda {side.formula['init_gain']}" for side in printed.sides]
    named = next((f" ({side['known_as']})" for side in sides.values() if side["known_as"]), "")
    what = (
        f"DeepNet's member as published ({' in the encoder; '.join(laws)}{' in the decoder' if len(laws) > 1 else ''})"
    )
    if set(orders) == {"1"}:
        return f"{what} holds the update under {optimizer}, too: it and the rule above{named} are alike"
    return (
        f"{what} is derived for SGD: under {optimizer} its update grows as {' and '.join(orders)}. Of the two take the "
        f"rule above{named}, which is derived for {optimizer}; deepnet in the table is DeepNet's condition, solved for "
        f"{optimizer}"
    )


def growing_roles(others: Entry) -> dict[str, Entry]:
    """The parameters outside the rule whose update grows."""
    return {role: row for role, row in others["roles"].items() if row["grows"]}


def warnings_of(others: Entry, *, is_held: bool) -> list[str]:
    """What grows all the same, a line for the parameters outside the rule and one for the matrices in it.

    is_held: whether the rule claims to hold the matrices' update.
    """
    if others["not_computed"] is not None:
        return []
    few, many = span(others)
    warnings = []
    if growing := growing_roles(others):
        shown = ", ".join(f"{role} x {row['growth']:.3g}{share_text(row)}" for role, row in growing.items())
        rates = ", ".join(f"{row['lr_multiplier']:.3g}" for row in growing.values())
        warnings.append(
            "WARNING: this rule is of the matrices alone. Under it the update of other parameters, which a default "
            f"model trains too, grows from {few} to {many} layers: {shown}. A learning rate of their own, {rates} "
            f"times the rate that suits {few} layers, undoes it. " + _weight(growing, others["d_model"])
        )
    matrices = others["matrices"]
    if is_held and matrices is not None and matrices["grows"]:
        warnings.append(
            f"WARNING: the matrices' own update goes x {matrices['growth']:.3g} from {few} to {many} layers in a "
            f"Transformer with softmax attention, as L^{matrices['exponent']:z.2f} between these"
        )
    return warnings


def rate_left(side: Entry, others: Entry) -> dict[str, Any] | None:
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


def beside_which(rate: Entry) -> str:
    """What a ``rate_left`` is relative to."""
    if rate["layers"] is None:
        return f"the rate where {rate['formula']} is 1"
    return f"the rate that suits {layers_text(rate['layers'][0])} layers"


def no_gain(side: Entry, others: Entry) -> str | None:
    """The warning that the answer alone holds nothing."""
    rate, matrices = side["rate_left"], others["matrices"]
    if rate is None:
        return None
    grows = f"it grows as {side['update_order']}"
    if matrices is not None:
        few, many = span(others)
        grows = f"it goes x {matrices['growth']:.3g} from {few} to {many} layers, as L^{matrices['exponent']:z.2f}"
    return (
        f"WARNING: no init gain holds the matrices' update. With one learning rate for all depths {grows}; "
        f"{rate['multiplier']:.3g} times {beside_which(rate)} undoes it"
    )


def disagreement(checked: Sequence[Entry], activation: str, norm_kind: str) -> str | None:
    """The warning that the headline's order is not that of the exact moments, for the network that was asked about."""
    (row,) = (line for line in checked if (line["activation"], line["norm_kind"]) == (activation, norm_kind))
    if row["is_flat"] is not False:
        return None
    return (
        f"WARNING: the magnitude argument says that the update is the same at any depth; the exact second moments of "
        f"an FFN stack ({activation}, {norm_kind}) disagree: it goes as {row['approximate']}"
    )


def share_text(row: Entry) -> str:
    return "" if row.get("share") is None else f" (share {percent(row['share'])})"


def _weight(growing: Entry, d_model: int | None) -> str:
    """How much it matters that these grow."""
    if d_model is None:
        return "How much they matter depends on the width: add --width D"
    shares = [row["share"] for row in growing.values()]
    text = f"Share: beside the matrices' update, at d_model {d_model} and the deep end"
    if None in shares:
        return text
    if max(shares) < MATTERS:
        return f"{text}; all below {percent(MATTERS)}, where a learning rate of their own hardly matters"
    return f"{text}; where it is small, its learning rate does not matter"


def starts(rule: Rule, sides: Mapping[str, Entry], activation: str, norm_kind: str) -> list[str]:
    """What the model is before the first step, where that is worth a line; and what a flat first step says of training,
    a line of its own."""
    lines = []
    for name, side in sides.items():
        together = side["branches_at_init"]
        if together < IDENTITY:
            lines.append(
                f"The {name} starts nearly as the identity: by the rule's argument each branch is about "
                f"{side['formula']['branch_at_init']} = {side['branch_at_init']:.3g} of the stream, and all of them "
                f"together {together:.3g}. The alternatives (a smaller learning rate, a branch weight; --why has "
                "them all) hold the same sum and start elsewhere"
            )
    training = "A flat first step does not promise better training: `depthlaw explain S3-49`"
    if len(rule.sides) == 1:
        scheme = rule_scheme(rule, rule.sides[0])
        name = named_scheme(scheme)
        which = f"these weights and gains{f' ({name})' if name else ''} with {activation} and {norm_kind}"
        optimizers = trained_under(scheme, activation, norm_kind)
        if optimizers:
            training += f". TRAINING.md has runs of {which}, under {', '.join(optimizers)}"
        elif optimizers is not None:
            training += f". No run in TRAINING.md has {which}"
    return [*lines, training]


def layers_text(layers: Any) -> str:
    """6, or of an encoder-decoder 18-6."""
    return "-".join(map(str, layers)) if isinstance(layers, list) else str(layers)


def span(others: Entry) -> list[str]:
    """The layers of the shallow model and of the deep one that are compared."""
    return [layers_text(layers) for layers in others["layers"]]
