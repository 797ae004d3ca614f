"""``depthlaw rule``: the derived rule for one norm placement, optimizer, architecture and depth."""

from __future__ import annotations

from typing import Any

from paper_checks.commands.inputs import BadInputError, count, refusing
from paper_checks.commands.output import document, print_json

NORMS = ("post", "pre", "sub")
CHECKED_ACTIVATIONS = ("relu", "gelu")
ROLE_ORDER = ("q", "k", "v", "out", "cross_q", "cross_k", "cross_v", "cross_out", "fc1", "fc2")


def run(
    norm: str,
    optimizer: str,
    arch: str,
    layers: str,
    decoder_layers: str | None,
    select: str | None,
    as_json: bool,
) -> None:
    if norm not in NORMS:
        raise BadInputError(f"--norm must be one of {', '.join(NORMS)}, not {norm!r}")
    num_layers = count(layers, "--layers")
    both = arch == "encoder-decoder"
    if both and decoder_layers is None:
        raise BadInputError("--arch encoder-decoder needs --decoder-layers M beside --layers N")
    if not both and decoder_layers is not None:
        raise BadInputError(f"--decoder-layers belongs to --arch encoder-decoder, not to {arch!r}")
    num_decoder_layers = count(decoder_layers, "--decoder-layers") if decoder_layers is not None else num_layers

    from theory.rules import solve_rule

    with refusing():
        rule = solve_rule(norm, optimizer, arch, select=select)
    sides = {
        side.name: _side(side, num_layers, num_decoder_layers, small_branches=norm != "sub") for side in rule.sides
    }
    warnings = [line for side in sides.values() for line in side["warnings"]]
    head = {"norm": norm, "optimizer": optimizer, "architecture": arch, "select": rule.select}
    why = list(rule.why)
    if both:
        why.append(
            "not held against exact moments: an encoder-decoder is no single stack, and whether its cross-attentions "
            "add coherently is open (`depthlaw explain DN-07`)"
        )
        why += warnings
        found = document(**head, layers=num_layers, decoder_layers=num_decoder_layers, **sides, why=why)
    else:
        (only,) = sides.values()
        checked = [mean_field(rule, activation) for activation in CHECKED_ACTIVATIONS]
        why += [*(line["says"] for line in checked), *warnings]
        found = document(**head, layers=num_layers, **only, mean_field=checked, why=why)
    if as_json:
        print_json(found)
    else:
        show(found, sides)


def mean_field(rule: Any, activation: str) -> dict[str, Any]:
    """What the exact second moments of an FFN stack say of the rule: the magnitude argument is not taken on faith."""
    from theory.expansion import BeyondScaleError
    from theory.rule_order import flat_gain, is_flat, rule_order
    from theory.tables import order_cells

    where = f"{activation}, layernorm"
    try:
        order = rule_order(rule, rule.sides[0], activation)
    except BeyondScaleError as reason:
        return {
            "activation": activation,
            "order": None,
            "is_flat": None,
            "flat_gain": None,
            "says": f"mean field ({where}): {reason}",
        }
    cells = order_cells(order)
    letter = rule.sides[0].num_layers
    text = str(cells["approximate"]).replace("N", str(letter))
    flat = is_flat(order)
    other = flat_gain(rule, rule.sides[0], activation)
    verdict = "flat, as the argument says" if flat else "NOT flat: here the argument and the exact moments disagree"
    says = f"checked by the mean field of an FFN stack ({where}): the update goes as {text}, {verdict}"
    if other is not None:
        says += f"; a gain that grows as {other} keeps it flat"
    if rule.sides[0].init_gain is None:
        says = f"mean field of an FFN stack at gain 1 ({where}): the update goes as {text}"
    return {
        "activation": activation,
        "norm_kind": "layernorm",
        "order": cells,
        "is_flat": flat,
        "flat_gain": None if other is None else str(other),
        "says": says,
    }


def _side(side: Any, num_layers: int, num_decoder_layers: int, *, small_branches: bool) -> dict[str, Any]:
    """One side in numbers and formulas; init_gain null where no gain keeps the update flat.

    small_branches: the argument assumes that the squared branches have a bounded sum; where they do not, it warns.
    """
    from theory.evaluate import evaluate
    from theory.symbols import M, N

    def number(expr: Any) -> float:
        return float(evaluate(expr, {N: num_layers, M: num_decoder_layers}, 17))

    accumulated = number(side.member.accumulated_branch)
    warnings = []
    if small_branches and side.gain is not None and accumulated > 1:
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
        "warnings": warnings,
        "alternatives": [_alternative(member, number) for member in side.alternatives],
    }


def _sorted(by_role: Any) -> list[tuple[str, Any]]:
    order = {role: index for index, role in enumerate(ROLE_ORDER)}
    return sorted(by_role.items(), key=lambda item: order.get(item[0], len(order)))


def _alternative(member: Any, number: Any) -> dict[str, Any]:
    from theory.magnitude import compact

    gain = member.init_gain
    return {
        "name": member.name,
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


def show(found: dict[str, Any], sides: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, side in sides.items():
        title = f"{found['norm']}-norm {name} under {found['optimizer']} (selection {found['select']})"
        table = Table("what", "value", "formula", title=title, title_justify="left")
        formula = side["formula"]
        table.add_row("residual weight", f"{side['residual_weight']:.6g}", formula["residual_weight"])
        table.add_row("branch weight", f"{side['branch_weight']:.6g}", formula["branch_weight"])
        if side["init_gain"] is None:
            table.add_row("init gain", "none", "no gain keeps this update flat; see below")
        else:
            for value in dict.fromkeys(side["init_gain"].values()):
                roles = ", ".join(role for role, gain in side["init_gain"].items() if gain == value)
                of_formula = abs(value - 1) > 1e-15 or formula["init_gain"] == "1"
                table.add_row(f"init gain of {roles}", f"{value:.6g}", formula["init_gain"] if of_formula else "1")
        multipliers = set(side["lr_multiplier"].values())
        table.add_row("learning-rate multiplier", ", ".join(f"{m:.6g}" for m in multipliers), formula["lr_multiplier"])
        table.add_row("update grows as", "", formula["update_order"])
        table.add_row("relative update, to alpha = lambda = 1", "", formula["relative_update_order"])
        console.print(table)
        others = Table("alternative", "residual", "branch", "gain", "lr", "note", title_justify="left")
        for other in side["alternatives"]:
            gain = "none" if other["init_gain"] is None else f"{other['init_gain']:.4g}"
            others.add_row(
                other["name"],
                f"{other['residual_weight']:.4g}",
                f"{other['branch_weight']:.4g}",
                gain,
                f"{other['lr_multiplier']:.4g}",
                other["note"],
            )
        if side["alternatives"]:
            console.print(others)
    for side in sides.values():
        for line in side["warnings"]:
            console.print(line, style="bold yellow", markup=False)
    console.print("Why:")
    for step, line in enumerate(found["why"], start=1):
        console.print(f"{step:3}. {line}", markup=False, highlight=False)
