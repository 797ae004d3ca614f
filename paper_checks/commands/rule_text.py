"""The answer of ``depthlaw rule`` for people: what to set, how to set it in torch, what it leaves open, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table

from paper_checks.commands.rule import layers_text
from theory.rules import NORMS
from theory.rules import Rule as Solved

XAVIER = "sqrt(2/(fan_in + fan_out))"
"""Standard deviation of a matrix of init gain 1."""
NOTEBOOK = "notebooks/08_choose_your_rule.ipynb"
_WIDEST = 110


def show(
    found: Mapping[str, Any], sides: Mapping[str, Mapping[str, Any]], rule: Solved, counts: Mapping[str, int]
) -> None:
    console = Console()
    for name, side in sides.items():
        console.print(_rule_table(f"{found['norm']}-norm {name} under {found['optimizer']}", found["select"], side))
        _lines(console, legend(rule, name, counts))
        console.print(f"In torch, {name}:", style="bold")
        _code(console, snippet(found["norm"], side))
    _other_roles(console, found["other_roles"])
    _lines(console, found["warnings"], style="bold yellow")
    _pointers(console, found["other_roles"])
    if rows := found.get("without_the_rule"):
        console.print(_without_table(rows))
        _lines(console, ["Exact second moments of an FFN stack (relu, layernorm, infinite width)."])
    for name, side in sides.items():
        if side["alternatives"]:
            console.print(_alternatives_table(name, side["alternatives"]))
    notes = {other["name"]: other["note"] for side in sides.values() for other in side["alternatives"]}
    _lines(console, [f"{name}: {note}" for name, note in notes.items()])
    console.print("Why:")
    for step, line in enumerate(found["why"], start=1):
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
        table.add_row("init gain", "none", "no gain helps; see Why")
    else:
        for value in dict.fromkeys(side["init_gain"].values()):
            roles = ", ".join(role for role, gain in side["init_gain"].items() if gain == value)
            of_formula = abs(value - 1) > 1e-15 or formula["init_gain"] == "1"
            table.add_row(f"init gain of {roles}", f"{value:.6g}", formula["init_gain"] if of_formula else "1")
    multipliers = set(side["lr_multiplier"].values())
    table.add_row("learning-rate multiplier", ", ".join(f"{m:.6g}" for m in multipliers), formula["lr_multiplier"])
    table.add_row("update grows as", "", formula["update_order"])
    table.add_row("relative update, to alpha = lambda = 1", "", formula["relative_update_order"])
    return table


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
        "update grows as: what a first step of these matrices changes the output by, per unit learning rate; 1: the "
        "same at any depth.",
        "relative update: |Delta theta|/|theta| of a matrix per unit learning rate, over that of a network with "
        "alpha = lambda = 1.",
        "Weight decay and later steps: nothing is said of them; the rule is of a first step, without decay.",
    ]


# ---------------------------------------------------------------- in torch


def snippet(norm: str, side: Mapping[str, Any]) -> list[str]:
    """Lines for a block of nn.MultiheadAttention and nn.Linear; a test runs them."""
    gains = side["init_gain"] or dict.fromkeys(side["lr_multiplier"], 1.0)
    blocks = ["attn", *(["cross"] if "cross_out" in gains else [])]
    lines = ["from torch.nn.init import xavier_normal_"]
    lines += [f"{', '.join(_qkv(block))} = {block}.in_proj_weight.detach().chunk(3)" for block in blocks]
    for gain in dict.fromkeys(gains.values()):
        matrices = ", ".join(_matrix(role) for role, value in gains.items() if value == gain)
        lines += wrap(f"for W in ({matrices}):", 74, subsequent_indent=" " * 10)
        lines.append(f"    xavier_normal_(W, gain={gain:.6g})")
    lines.append("# in forward:" + ("" if norm == "post" else " (and a norm before the head)"))
    lines += list(_forward(norm, side, blocks))
    rate = next((other["lr_multiplier"] for other in side["alternatives"] if other["name"] == "learning-rate"), None)
    if side["init_gain"] is None and rate is not None:
        lines.append(f"# and the learning rate of these matrices times {rate:.4g}, as no gain holds the update")
    return lines


def _qkv(block: str) -> list[str]:
    return ["q", "k", "v"] if block == "attn" else [f"{block}_{letter}" for letter in "qkv"]


def _matrix(role: str) -> str:
    """How the snippet calls it."""
    modules = {"out": "attn.out_proj.weight", "cross_out": "cross.out_proj.weight"}
    return modules.get(role, f"{role}.weight" if role.startswith("fc") else role)


def _forward(norm: str, side: Mapping[str, Any], blocks: list[str]) -> Iterator[str]:
    """nn.MultiheadAttention has no place for Sub-LN's norm before ``out``: there ``heads`` is what comes before it."""
    stream = _times(side["residual_weight"])
    branch = _times(side["branch_weight"])
    for place, block in enumerate((*blocks, "ffn"), start=1):
        given = f"norm{place}(x)" if norm != "post" else "x"
        if block == "ffn":
            inner = f"relu(fc1({given}))"
            value = f"fc2({f'norm{place}b({inner})' if norm == 'sub' else inner})"
        elif block == "attn" and norm == "sub":
            value = f"attn.out_proj(norm{place}b(heads({given})))"
        else:
            if norm != "post":
                yield f"h = {given}"
            read = "h" if norm != "post" else "x"
            value = f"{block}({read}, {read}, {read})[0]" if block == "attn" else f"{block}({read}, memory, memory)[0]"
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


def _other_roles(console: Console, others: Mapping[str, Any]) -> None:
    if others["not_computed"] is not None:
        _lines(console, [f"{others['not_computed'][0].upper()}{others['not_computed'][1:]}."])
        return
    few, many = (layers_text(layers) for layers in others["layers"])
    title = f"What the rule leaves open, from {few} to {many} layers"
    table = Table("role", "update", "exponent", "lr x", title=title, title_justify="left")
    rows = {"the rule's matrices": others["matrices"], **others["roles"]}
    for role, one in rows.items():
        if one is not None:
            table.add_row(
                role, f"x {one['growth']:.3g}", f"{round(one['exponent'], 2) + 0.0:.2f}", f"{one['lr_multiplier']:.3g}"
            )
    console.print(table)
    _lines(
        console,
        [
            f"lr x: what undoes it. Predicted for this rule: {others['network']}; quasi-random error "
            f"{others['error']:.1%} at most."
        ],
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
        growth = "-" if row["growth"] is None else f"x {row['growth']:.3g}"
        name = "this rule" if place == 0 else row["scheme"]
        table.add_row(name, row["update_order"] or "not decided", *([growth] if span else []))
    return table
