"""The answer of ``depthlaw rule`` for people: what to set, how to set it in torch, what it leaves open, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table

from paper_checks.cli.predict_attention import percent
from paper_checks.cli.rule import beside_which, layers_text, share_text, warnings_of
from theory.rules.solve import NORMS
from theory.rules.solve import Rule as Solved

XAVIER = "sqrt(2/(fan_in + fan_out))"
"""Standard deviation of a matrix of init gain 1."""
NOTEBOOK = "notebooks/08_choose_your_rule.ipynb"
_WIDEST = 110


def show(
    found: Mapping[str, Any],
    sides: Mapping[str, Mapping[str, Any]],
    rule: Solved,
    counts: Mapping[str, int],
    *,
    has_why: bool = False,
) -> None:
    """The answer on one screen; with --why everything else below it."""
    console = Console()
    others = found["other_roles"]
    said = warnings_of(others, is_held=True)
    for name, side in sides.items():
        layers = ", ".join(f"{letter} = {number}" for letter, number in counts.items())
        title = f"{found['norm']}-norm {name} under {found['optimizer']}, {layers}"
        console.print(_rule_table(title, found["select"], side))
    _lines(
        console,
        [f"An init gain multiplies Xavier's standard deviation {XAVIER}. Biases start at 0, norm gains at 1."],
    )
    is_warned = others["matrices"] is not None and others["matrices"]["grows"]
    for name, side in sides.items():
        text = _update(side, "" if len(sides) == 1 else f" of the {name}", found)
        _lines(console, [text], style="bold yellow" if is_warned else "none")
    _lines(console, _left_open(others), style="none")
    _lines(console, [line for line in found["warnings"] if line not in said], style="bold yellow")
    if has_why:
        _show_details(console, found, sides, rule, counts)
        _show_why(console, found["why"], sides)
    else:
        text = "--why has lines for torch, other ways to hold the update, and each step of the argument."
        _lines(console, [text], style="none")


def _update(side: Mapping[str, Any], of: str, found: Mapping[str, Any]) -> str:
    """Whether the update of the rule's matrices is flat, by each way that it is derived here."""
    order, network = side["update_order"], (found["activation"], found["norm_kind"])
    goes = "is the same at any depth" if order == "1" else f"grows as {order}"
    what = f"The update{of}, what one step of these matrices changes the output by,"
    parts = [f"{what} {goes} by the magnitude argument"]
    for line in found.get("mean_field", ()):
        if (line["activation"], line["norm_kind"]) == network and line["approximate"] is not None:
            goes = "it tends to" if line["is_flat"] else "it goes as"
            parts.append(f"by the exact moments of an FFN stack ({', '.join(network)}) {goes} {line['approximate']}")
    if (matrices := found["other_roles"]["matrices"]) is not None:
        few, many = (layers_text(layers) for layers in found["other_roles"]["layers"])
        parts.append(f"with softmax attention it goes x {matrices['growth']:.3g} from {few} to {many} layers")
    return f"{'; '.join(parts)}."


def _left_open(others: Mapping[str, Any]) -> list[str]:
    """The parameters outside the rule whose update grows, in a line."""
    if others["not_computed"] is not None:
        return [f"{others['not_computed'][0].upper()}{others['not_computed'][1:]}."]
    growing = {role: one for role, one in others["roles"].items() if one["grows"]}
    no_promise = "A flat first step does not promise better training: `depthlaw explain S3-49`."
    if not growing:
        return ["Left open: nothing; the update of no other parameter grows with depth.", no_promise]
    few, many = (layers_text(layers) for layers in others["layers"])
    shown = ", ".join(f"{role} x {one['growth']:.3g}{share_text(one)}" for role, one in growing.items())
    rates = ", ".join(f"{one['lr_multiplier']:.3g}" for one in growing.values())
    weight = "" if others["d_model"] is not None else " --width D says how much they matter."
    return [
        f"Left open: the update of {shown} from {few} to {many} layers. Learning rates of their own, x {rates}, undo "
        f"it.{weight}",
        no_promise,
    ]


def _show_details(
    console: Console,
    found: Mapping[str, Any],
    sides: Mapping[str, Mapping[str, Any]],
    rule: Solved,
    counts: Mapping[str, int],
) -> None:
    """What the words mean, lines for torch, the other parameters, and other schemes beside the rule."""
    others = found["other_roles"]
    network = (found["activation"], found["norm_kind"])
    for name, side in sides.items():
        _lines(console, legend(rule, name, counts))
        console.print(f"In torch, {name}:", style="bold")
        behind = "behind the last layer" if (name, len(sides)) == ("encoder", 2) else "before the head"
        code = snippet(
            found["norm"], side, *network, is_causal=name == "decoder", others=others, last_norm=f"one {behind} too"
        )
        _code(console, code)
    _other_roles(console, others, found["optimizer"])
    _lines(console, warnings_of(others, is_held=found.get("init_gain") is not None), style="bold yellow")
    _lines(console, [f"{line}." for line in found["start"]], style="none")
    if rows := found.get("without_the_rule"):
        console.print(_without_table(rows))
        text = f"Exact second moments of an FFN stack ({', '.join(network)}, infinite width)."
        if found["init_gain"] is None:
            text += " This rule is here without its smaller learning rate: all that is left of it is the placement."
        _lines(console, [text])
    _pointers(console, others)


def _show_why(console: Console, why: Iterable[str], sides: Mapping[str, Mapping[str, Any]]) -> None:
    for name, side in sides.items():
        if side["alternatives"]:
            console.print(_alternatives_table(name, side["alternatives"]))
            _lines(
                console, ["lr: by the magnitude argument, beside the rate that suits a model where its formula is 1."]
            )
    notes = {other["name"]: other["note"] for side in sides.values() for other in side["alternatives"]}
    _lines(console, [f"{name}: {note}" for name, note in notes.items()])
    console.print("Why:")
    for step, line in enumerate(why, start=1):
        _lines(console, [f"{step:3}. {line}"], style="none", indent=5)


def _width(console: Console) -> int:
    return min(console.width, _WIDEST)


def _lines(console: Console, lines: Iterable[str], style: str = "dim", indent: int = 2) -> None:
    """Each within the width, its later lines indented."""
    for line in lines:
        for piece in wrap(line, _width(console), subsequent_indent=" " * indent):
            console.print(piece, markup=False, highlight=False, style=style, soft_wrap=True)


def _code(console: Console, lines: Iterable[str]) -> None:
    """To be copied: never broken."""
    for line in lines:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _rule_table(title: str, select: str, side: Mapping[str, Any]) -> Table:
    table = Table("what", "value", "formula", title=f"{title} (selection {select})", title_justify="left")
    formula = side["formula"]
    table.add_row("residual weight", f"{side['residual_weight']:.6g}", formula["residual_weight"])
    table.add_row("branch weight", f"{side['branch_weight']:.6g}", formula["branch_weight"])
    if side["init_gain"] is None:
        table.add_row("init gain", "none", "none helps; use the rate")
    else:
        for value in dict.fromkeys(side["init_gain"].values()):
            roles = ", ".join(role for role, gain in side["init_gain"].items() if gain == value)
            of_formula = abs(value - 1) > 1e-15 or formula["init_gain"] == "1"
            table.add_row(f"init gain of {roles}", f"{value:.6g}", formula["init_gain"] if of_formula else "1")
    multipliers = set(side["lr_multiplier"].values())
    if rate := side["rate_left"]:
        table.add_row("learning-rate multiplier", f"{rate['multiplier']:.3g}", _of_rate(rate))
    else:
        table.add_row("learning-rate multiplier", ", ".join(f"{m:.6g}" for m in multipliers), formula["lr_multiplier"])
    return table


def _of_rate(rate: Mapping[str, Any]) -> str:
    """Short: what the learning rate that is left belongs to."""
    if rate["layers"] is None:
        return rate["formula"]
    few, many = (layers_text(layers) for layers in rate["layers"])
    return f"{many} layers beside {few}"


def legend(rule: Solved, name: str, counts: Mapping[str, int]) -> list[str]:
    """What the words of the table mean, a line each; once, of the first side."""
    chosen = rule.side(name)
    if chosen is not rule.sides[0]:
        return []
    letters = [f"{one.num_layers}: layers of the {one.name}, here {counts[str(one.num_layers)]}" for one in rule.sides]
    gain = "none: at gain 1" if chosen.gain is None else "lambda"
    return [
        "; ".join(letters) + ".",
        f"residual weight alpha, branch weight b: {NORMS[rule.norm]}.",
        f"init gain ({gain}): times Xavier's standard deviation {XAVIER}, as torch.nn.init.xavier_normal_(W, gain) has "
        "it; q, k and v each by itself. Biases 0, norm gains 1.",
        f"selection {rule.select}: {chosen.member.note}."
        + (" --select takes another member of the family." if rule.norm != "sub" else ""),
        "learning-rate multiplier: of these matrices, beside the rate that suits a shallow model.",
        "update: what a first step of these matrices changes the output by, per unit learning rate, by the "
        "magnitude argument; 1: the same at any depth.",
        "relative update: |Delta theta|/|theta| of a matrix per unit learning rate, over that of a network with "
        f"alpha = lambda = 1; here {chosen.formula['relative_update_order']}.",
        "Weight decay and later steps: nothing is said of them; the rule is of a first step, without decay.",
    ]


# ---------------------------------------------------------------- in torch


def snippet(
    norm: str,
    side: Mapping[str, Any],
    activation: str = "relu",
    norm_kind: str = "layernorm",
    *,
    is_causal: bool = False,
    others: Mapping[str, Any] | None = None,
    last_norm: str = "one before the head too",
) -> list[str]:
    """Lines for a block of nn.MultiheadAttention and nn.Linear, which a test runs.

    The biases of nn.Linear begin at random, and would be most of a branch whose gain is small. is_causal: of a decoder.
    others: ``other_roles``, for the learning rates that hold them. last_norm: where it stands, unless norms are behind.
    """
    gains = side["init_gain"] or dict.fromkeys(side["lr_multiplier"], 1.0)
    blocks = ["attn", *(["cross"] if "cross_out" in gains else [])]
    lines = [*(["import torch"] if is_causal else []), "from torch.nn.init import xavier_normal_, zeros_"]
    if activation != "identity":
        lines.append(f"from torch.nn.functional import {activation}")
    lines += [f"{', '.join(_qkv(block))} = {block}.in_proj_weight.detach().chunk(3)" for block in blocks]
    for gain in dict.fromkeys(gains.values()):
        matrices = ", ".join(_matrix(role) for role, value in gains.items() if value == gain)
        lines += wrap(f"for W in ({matrices}):", 74, subsequent_indent=" " * 10)
        lines.append(f"    xavier_normal_(W, gain={gain:.6g})")
    biases = [f"{block}.{name}" for block in blocks for name in ("in_proj_bias", "out_proj.bias")]
    lines += wrap(f"for b in ({', '.join([*biases, 'fc1.bias', 'fc2.bias'])}):", 74, subsequent_indent=" " * 10)
    lines.append("    zeros_(b)")
    last = "" if norm == "post" else f", {last_norm}"
    lines.append(f"# in forward; norms: {_NORM_CLASSES[norm_kind]}, gains 1 as they are made{last}")
    if is_causal:
        lines.append("# T tokens, of which none sees a later one: what is True is hidden")
        lines.append("mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)")
    if norm == "sub":
        lines.append(
            f"# {_heads('x', is_causal=is_causal)}: yours to write, what attn has before its out_proj: of each"
        )
        lines.append("# head softmax(q k^T / sqrt(head size)) v, all of them side by side")
    lines += list(_forward(norm, side, blocks, activation, is_causal=is_causal))
    if rate := side.get("rate_left"):
        text = (
            f"# the learning rate of these matrices: {rate['multiplier']:.3g} times {beside_which(rate)}, as no gain "
        )
        lines += wrap(f"{text}holds the update", 78, subsequent_indent="#   ")
    return [*lines, *_groups(others)]


_NORM_CLASSES = {"layernorm": "nn.LayerNorm", "rmsnorm": "nn.RMSNorm"}


def _groups(others: Mapping[str, Any] | None) -> list[str]:
    """Learning rates of their own for what grows: a comment, since which parameters these are, the model knows."""
    if others is None or others["not_computed"] is not None:
        return []
    rates = {role: one["lr_multiplier"] for role, one in others["roles"].items() if one["grows"]}
    if not rates:
        return []
    shown = ", ".join(f"{role} {rate:.3g}" for role, rate in rates.items())
    few, many = (layers_text(layers) for layers in others["layers"])
    at = f" at {many} layers" if others["asked"] != others["layers"][1] else ""
    return wrap(
        f"# parameter groups{at}: times the learning rate that suits {few} layers, {shown}, others 1",
        78,
        subsequent_indent="#   ",
    )


def _qkv(block: str) -> list[str]:
    return ["q", "k", "v"] if block == "attn" else [f"{block}_{letter}" for letter in "qkv"]


def _matrix(role: str) -> str:
    """How the snippet calls it."""
    modules = {"out": "attn.out_proj.weight", "cross_out": "cross.out_proj.weight"}
    return modules.get(role, f"{role}.weight" if role.startswith("fc") else role)


def _heads(value: str, *, is_causal: bool) -> str:
    return f"heads({value}{', mask' if is_causal else ''})"


def _forward(
    norm: str, side: Mapping[str, Any], blocks: list[str], activation: str, *, is_causal: bool
) -> Iterator[str]:
    """nn.MultiheadAttention has no place for Sub-LN's norm before ``out``: there ``heads`` is what comes before it."""
    stream = _times(side["residual_weight"])
    branch = _times(side["branch_weight"])
    for place, block in enumerate((*blocks, "ffn"), start=1):
        given = f"norm{place}(x)" if norm != "post" else "x"
        if block == "ffn":
            inner = f"fc1({given})" if activation == "identity" else f"{activation}(fc1({given}))"
            value = f"fc2({f'norm{place}b({inner})' if norm == 'sub' else inner})"
        elif block == "attn" and norm == "sub":
            value = f"attn.out_proj(norm{place}b({_heads(given, is_causal=is_causal)}))"
        else:
            if norm != "post":
                yield f"h = {given}"
            read = "h" if norm != "post" else "x"
            masked = ", attn_mask=mask, is_causal=True" if is_causal else ""
            own = f"attn({read}, {read}, {read}{masked})[0]"
            value = own if block == "attn" else f"cross({read}, memory, memory)[0]"
        total = f"{stream}x + {branch}{value}"
        yield f"x = norm{place}({total})" if norm == "post" else f"x = {total}"


def _times(weight: float) -> str:
    return "" if weight == 1 else f"{weight:.6g} * "


# ---------------------------------------------------------------- beside the rule


def _alternatives_table(name: str, alternatives: list[dict[str, Any]]) -> Table:
    columns = ("alternative", "residual", "branch", "gain", "lr")
    table = Table(*columns, title=f"Other ways to hold it, {name}", title_justify="left")
    for other in alternatives:
        gain = "none" if other["init_gain"] is None else f"{other['init_gain']:.4g}"
        numbers = (f"{other[name]:.4g}" for name in ("residual_weight", "branch_weight"))
        table.add_row(other["name"], *numbers, gain, f"{other['lr_multiplier']:.4g}")
    return table


def _other_roles(console: Console, others: Mapping[str, Any], optimizer: str) -> None:
    if others["not_computed"] is not None:
        return
    few, many = (layers_text(layers) for layers in others["layers"])
    title = f"What the rule leaves open, from {few} to {many} layers"
    has_shares = others["d_model"] is not None
    heads = ("role", "update", "exponent", "lr x", *(["share"] if has_shares else []))
    table = Table(*heads, title=title, title_justify="left")
    rows = {"the rule's matrices": others["matrices"], **others["roles"]}
    for role, one in rows.items():
        if one is not None:
            exponent = f"{one['exponent']:z.2f}"
            cells = (role, f"x {one['growth']:.3g}", exponent, f"{one['lr_multiplier']:.3g}")
            share = "" if one.get("share") is None else percent(one["share"])
            table.add_row(*cells, *([share] if has_shares else []))
    console.print(table)
    _lines(console, _notes(others, optimizer))


def _notes(others: Mapping[str, Any], optimizer: str) -> Iterator[str]:
    """What the table of the other roles does not say itself."""
    few, many = (layers_text(layers) for layers in others["layers"])
    asked = layers_text(others["asked"])
    if asked != many:
        yield (
            f"{asked} layers were not computed, but {few} to {many}. Beyond them extrapolate by the exponent: "
            f"growth times (layers/{many})^exponent, and lr x over it."
        )
    share = f" share: beside the matrices' update at d_model {others['d_model']}, {many} layers."
    yield (
        f"lr x: what undoes it, beside the rate that suits {few} layers. Predicted for this rule: {others['network']}; "
        f"quasi-random error {others['error']:.1%} at most. With more tokens biases and the embedding can grow more "
        "slowly, by more than that error." + ("" if others["d_model"] is None else share)
    )
    if others["unmoved"]:
        like = "SGD" if optimizer == "lars" else "Adam"
        yield (
            f"{', '.join(others['unmoved'])}: left out. As published {optimizer.upper()} moves no parameter that is "
            f"zero, so biases at 0 stay there; implementations whose trust ratio is 1 there move them as {like} does."
        )


def _pointers(console: Console, others: Mapping[str, Any]) -> None:
    """Where to go on."""
    if others["command"] is not None:
        same = f"the scheme {others['scheme']}" if others["scheme"] else "no named scheme, so its power laws are given"
        _lines(console, [f"This rule is {same}. Role by role, at 16 tokens, or with your own sizes:"], style="none")
        _code(console, [others["command"]])
    _lines(console, [f"With your own model's sizes, step by step: {NOTEBOOK}"], style="none")


def _without_table(rows: list[dict[str, Any]]) -> Table:
    few, many = rows[0]["layers"]
    span = [f"{few} to {many} layers"] if few != many else []
    table = Table("scheme", "update grows as", *span, title="With the rule, and without", title_justify="left")
    for place, row in enumerate(rows):
        name = "this rule" if place == 0 else row["scheme"]
        table.add_row(name, row["update_order"] or "not decided", *([_factor(row)] if span else []))
    return table


def _factor(row: Mapping[str, Any]) -> str:
    """Beyond the floats as a power of ten."""
    if row["growth"] is not None and row["growth"] < 1e6:
        return f"x {row['growth']:.3g}"
    return "-" if row["log10_growth"] is None else f"x 10^{row['log10_growth']:.3g}"
