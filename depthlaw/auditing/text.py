"""What an audit tells, as a page for people: the command prints it, and so does ``print(audit)``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from depthlaw.auditing.answer import Answer
from depthlaw.auditing.beyond import first_of_all, learning_rates
from depthlaw.auditing.by_layer import OF_MATRICES, QUANTITIES, AtSublayer, says
from depthlaw.auditing.compare import NOT_INDEPENDENT
from depthlaw.auditing.faults import Fault, distinct
from depthlaw.auditing.reading.look import pattern_of
from depthlaw.auditing.reading.sublayer import Sublayer
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.sims.model import BRANCH_ROLES
from depthlaw.system.page import Page, amount, columns, grid, times

_MOST_BLOCKS = 12
"""Lines of the table of sublayers: a model whose weights differ from layer to layer has a line for each."""
_GROWS = 0.1
"""Exponent of the update in the number of layers from which on it is told that the update grows."""


def title(audit: Answer, num_counted: int | None = None, num_changes: int = 0) -> str:
    """The audit in one line. num_counted: how many of its faults count, if some are ignored or accepted. num_changes:
    of the start, since it was accepted.

    >>> import torch, depthlaw
    >>> def build(num_layers):
    ...     layer = torch.nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True)
    ...     return torch.nn.TransformerEncoder(layer, num_layers)
    >>> depthlaw.audit(build, (1, 2), scheme="post-ln", measures=False)
    <Audit: TransformerEncoder of 1, 2 layers under adamw, compared with post-ln: 1 fault>
    """
    number = len(audit.faults)
    text = f"{number or 'no'} fault{'' if number == 1 else 's'}"
    if num_counted is not None and num_counted < number:
        text += f", {num_counted or 'none'} of which count{'s' if num_counted < 2 else ''}"
    if num_changes:
        text += f", but {num_changes} change{'' if num_changes == 1 else 's'} since it was accepted"
    built = type(audit.depths[-1].built.module).__name__
    start = f"{built} of {', '.join(map(str, audit.layers))} layers under {audit.optimizer}"
    if audit.claimed is not None:
        if audit.depths[-1].built.joined:
            start += ", not all of which is read"
        explodes = _grows(audit) if audit.exponential is not None or audit.explodes else ""
        return f"{start}, compared with {audit.claimed.name}: {text}{explodes}"
    grows = _grows(audit)
    if audit.depths[-1].built.joined:
        return f"{start}, not all of which is read: {text} in what is"
    if audit.nearest is None:
        return f"{start}, like no scheme or recipe that is known: {text}{grows}"
    name = f"the {_kind(audit)} {audit.nearest.name}"
    if not audit.nearest.fits:
        far = f"{name} is nearest, with {_num_differences(audit)}"
        return f"{start}, like no scheme or recipe that is known ({far}): {text}{grows}"
    beside = " beside its mixtures of experts" if audit.depths[-1].built.has_experts else ""
    return f"{start}: {text} of its own, {_num_differences(audit)} from {name}{beside}{grows}"


def _num_differences(audit: Answer) -> str:
    number = 0 if audit.nearest is None else len(audit.nearest.differences)
    return f"{number or 'no'} difference{'' if number == 1 else 's'}"


def _grows(audit: Answer) -> str:
    """How the update grows with depth, as the end of a sentence; empty where it was not measured."""
    if audit.exponential is not None:
        return "; the update grows exponentially with depth"
    if audit.explodes:
        return "; its numbers explode with depth"
    fitted = audit.exponent("update")
    exponent = fitted.measured.mean if fitted is not None and fitted.measured is not None else None
    if exponent is None:
        return ""
    if abs(exponent) <= _GROWS:
        return "; the update hardly changes with depth"
    return f"; the update {'grows' if exponent > 0 else 'shrinks'} as N^{exponent:.2f}"


def show(page: Page, audit: Answer, model: str = "--model MODULE:FACTORY", *, heading: str | None = None) -> None:
    """The whole audit: what is built, how it moves, the faults, and what to do next. model: the options by which
    ``advise`` is asked about it. heading: in place of ``title``."""
    last = audit.depths[-1].built
    page.say(heading or title(audit), "bold")
    if audit.nearest is not None and audit.nearest.fits and (differences := _differences(audit)):
        page.say(f"Beside {audit.nearest.name}: {' '.join(differences)}")
    of = f"; the table is of {audit.layers[-1]} layers" if len(audit.layers) > 1 else ""
    given = "inputs of your own" if last.inputs.kind == "yours" else last.inputs.kind
    page.say(f"d_model {last.d_model}, called with {given}{of}", "dim")
    page.show(_blocks(audit))
    for side, sublayers in last.sides.items():
        first, behind = sublayers[0].second_moment, sublayers[-1].second_moment
        of = f" of the {side}" if len(last.sides) > 1 else ""
        final = "a final norm" if last.final.get(side) else "no final norm"
        page.say(
            f"Mean square of the stream{of}: {first:.3g} at its start, {behind:.3g} at its last sublayer; {final}.",
            "dim",
        )
    _show_updates(page, audit)
    if audit.by_layer is not None:
        _show_layers(page, audit.by_layer)
    if audit.groups is not None:
        _show_groups(page, audit, audit.groups)
    for number, fault in enumerate(audit.faults, start=1):
        _show_fault(page, number, fault, [before.why for before in audit.faults[: number - 1]], len(last.sides) > 1)
    for remark in _remarks([*audit.findings.remarks, *audit.remarks], has_sides=len(last.sides) > 1):
        page.say(f"Remark: {remark}.", "dim")
    for line, style in _ending(audit):
        page.say(line, style)
    if (command := _advise(audit, model)) is not None:
        page.say_where(f"  {command}")


# ---------------------------------------------------------------- what is built


def _blocks(audit: Answer) -> Table:
    """A line for each stretch of sublayers that are alike."""
    sides = audit.depths[-1].built.sides
    rows: list[list[str]] = []
    for side, sublayers in sides.items():
        groups: dict[tuple[str, str, str], int] = {}
        for sub in sublayers:
            form = _form(sub, ", ".join(audit.depths[-1].built.conditions))
            kind = "cross-attention" if sub.kind == "cross" else sub.kind
            key = kind, form, ", ".join(sorted(sub.norms)) or "none"
            groups[key] = groups.get(key, 0) + 1
        rows += [[side, f"{number} {kind}", form, norms] for (kind, form, norms), number in groups.items()]
    more = len(rows) - _MOST_BLOCKS
    rows = rows[:_MOST_BLOCKS] + ([["", f"and {more} kinds more", "", ""]] if more > 0 else [])
    heads = ["side", "sublayers", "x becomes", "norms"]
    start = 0 if len(sides) > 1 else 1
    return grid(heads[start:], [row[start:] for row in rows], heads)


def _form(sub: Sublayer, conditions: str) -> str:
    """What a sublayer makes of x."""
    trained = {"scalar": " (trained)", "vector": " (a trained vector)"}.get(sub.trained or "", "")
    is_one = abs(sub.branch_weight - 1) < 1e-9 and not trained
    scale = f"gate({conditions}) " if sub.trained == "gate" else "" if is_one else f"{sub.branch_weight:.4g}{trained} "
    stream = "" if abs(sub.residual_weight - 1) < 1e-9 else f"{sub.residual_weight:.4g} "
    words = {"scale": "scaled", "shift": "shifted"}
    does = [words[of] for of in sorted(sub.modulated)]
    given = f"x, {' and '.join(does)} by {conditions}" if does else "x"
    return f"{stream}x + {scale}F({given})"


# ---------------------------------------------------------------- how it moves


def _show_updates(page: Page, audit: Answer) -> None:
    """One table, or two where one is too wide: the initialisation, and the update."""
    rows, draws = _updates(audit)
    heads = ["role", "init std", *(f"N = {layers}" for layers in audit.layers), "exponent", "predicted"]
    whole = grid(heads, rows, ["role", "init std"], unbroken=heads)
    inits = grid(heads[:2], [row[:2] for row in rows if row and row[1]], ["role", "init std"], unbroken=heads)
    updates = grid([heads[0], *heads[2:]], [row and [row[0], *row[2:]] for row in rows], ["role"], unbroken=heads)
    page.show_whole([whole], [inits, updates])
    gate = ", fc3 its up matrix beside the gate" if "fc3" in audit.roles else ""
    layers = "with layers drawn independently" if _has_copies(audit) else "as it is"
    total = "; the line update is of all branch matrices together" if "update" in audit.roles else ""
    both = " A role without a side: of both sides together." if len(audit.depths[-1].built.sides) > 1 else ""
    page.say(
        "init std: standard deviation of the entries at the start, by the number of layers N and the layer l"
        f"{f'; all are {draws} draws' if draws else ''}. N = ...: the update of one step, measured, in units in which "
        f"it does not depend on the width{total}. exponent: of the update in N, measured with its 95 % interval, and "
        f"predicted at infinite width for the block {layers}. v, out: value "
        f"and output matrices of attention; fc1, fc2: those of the FFN{gate}.{both}",
        "dim",
    )


def _updates(audit: Answer) -> tuple[list[list[str] | None], str | None]:
    """Lines of the table, and how all matrices are drawn where that is one and the same. A role that one side alone
    has stands there, and not once more for both sides."""
    sides: dict[str, list[str]] = {}
    for role in audit.roles:
        side, _, name = role.rpartition("/")
        if side:
            sides.setdefault(name, []).append(side)
    lines: list[tuple[str, str]] = []
    for role in audit.roles:
        side, _, name = role.rpartition("/")
        names = sides.get(name, [])
        if not side and len(names) == 1:
            continue
        group = side or ("update" if name == "update" else "matrices" if name in BRANCH_ROLES else "others")
        lines.append((group, name if side and len(names) == 1 else role))
    role_rows = {role: audit.role_row(role) for _, role in lines}
    shapes = {row["draws"] for row in role_rows.values() if row["init_std"]}
    draws = next(iter(shapes)) if len(shapes) == 1 and "other" not in shapes else None
    rows: list[list[str] | None] = []
    before = None
    for group, role in lines:
        row = role_rows[role]
        if before not in (None, group):
            rows.append(None)
        before = group
        init = "; ".join(row["init_std"].values()) if len(row["init_std"]) == 1 else ""
        init += f", {row['draws']}" if init and draws is None else ""
        values = [point["measured"] for point in row["update"]]
        cells = ["-" if value is None else amount(value) for value in values]
        low, high = row["exponent_low"], row["exponent_high"]
        interval = "" if low is None or high is None else f" ± {(high - low) / 2:.2f}"
        exponents = ((row["exponent"], interval), (row["predicted_exponent"], ""))
        ends = ["-" if number is None else f"{number:z.2f}{rest}" for number, rest in exponents]
        label = f"{group} {row['role']}" if group in audit.depths[-1].built.sides else row["role"]
        rows.append([label, init, *cells, *ends])
    return rows, draws


def _show_layers(page: Page, rows: Sequence[AtSublayer]) -> None:
    """A line for each sublayer of as many layers as can be read, evenly, and the last. One table, or one for each two
    quantities where it is too wide."""
    titles = {"second_moment": "E x²", "branch_share": "share", "cosine_with_previous": "cosine"}
    titles |= {"gradient_square": "|grad|²", OF_MATRICES: "|grad W|²"}
    layers = list(dict.fromkeys((row.side, row.layer) for row in rows))
    shown = {*layers[:: -(-len(layers) // _MOST_BLOCKS)], layers[-1]}
    is_predicted = any(row.predicted for row in rows)
    lines: list[list[str] | None] = []
    for before, row in zip([None, *rows], rows, strict=False):
        if (row.side, row.layer) in shown:
            lines += [None] if before is not None and before.side != row.side else []
            lines.append([row.name, *(cell for quantity in QUANTITIES for cell in _cells(row, quantity, is_predicted))])
    each = 2 if is_predicted else 1
    heads = ["sublayer", *(head for title in titles.values() for head in (title, "predicted")[:each])]

    def table(first: int, last: int) -> Table:
        at = slice(1 + first * each, 1 + last * each)
        cut = [line and [line[0], *line[at]] for line in lines]
        return grid(["sublayer", *heads[at]], cut, ["sublayer"], unbroken=heads)

    page.show_whole([table(0, 5)], [table(0, 3), table(3, 5)], [table(0, 2), table(2, 4), table(4, 5)])
    page.say(
        "E x²: mean square of the stream before the sublayer. share: of the sum's square what its branch adds. cosine: "
        "of the streams before and behind it, 1 where it is the identity. |grad|²: of the gradient of one output, with "
        "respect to the stream before it. |grad W|²: with respect to its matrices. Means over the models with 95 % "
        "intervals; predicted at infinite width.",
        "dim",
    )
    for line in says(rows):
        page.say(line, "bold red")
    if not says(rows):
        page.say("Neither stream nor gradient explodes or vanishes over depth, and no sublayer does nothing.")


def _cells(row: AtSublayer, quantity: str, is_predicted: bool) -> Iterator[str]:
    cell, value = row.document()[quantity], row.predicted.get(quantity)
    mean, low = cell["measured"], cell["low"]
    yield "-" if mean is None else f"{mean:.3g}" + ("" if low is None else f" ± {mean - low:.1g}")
    if is_predicted:
        yield "-" if value is None else f"{value:.3g}"


def _show_groups(page: Page, audit: Answer, rows: Sequence[Mapping[str, Any]]) -> None:
    """The parameter groups of the user's optimizer, by role."""
    says = any(row["learning_rate_multiplier"] for row in rows)
    name = audit.claimed.name if audit.claimed is not None and says else ""
    heads = ["role", "tensors", "rate", "eps", "decay", *(["rate x", "eps x"] if name else [])]
    keys = ("learning_rate", "eps", "weight_decay")
    asked = ("learning_rate_multiplier", "eps_multiplier") if name else ()
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells = [_by_depth(row[key]) for key in keys]
        cells += [_by_depth([[value] for value in row[key] or ()]) for key in asked]
        alike.setdefault(tuple(cells), []).append(row)
    lines = [
        [", ".join(row["role"] for row in rows), str(sum(row["num_tensors"] for row in rows)), *cells]
        for cells, rows in alike.items()
    ]
    page.show(grid(heads, lines, ["role"]))
    last = audit.depths[-1].groups
    of = f" of {', '.join(last.optimizers)}" if last is not None and last.optimizers else ""
    at = f"; what differs is at N = {', '.join(map(str, audit.layers))}" if len(audit.layers) > 1 else ""
    does = f"; rate x, eps x: what {name} multiplies both by" if name else ""
    page.say(
        f"The parameter groups{of}: learning rate, Adam's epsilon and weight decay, as they are{at}{does}. "
        "tensors: of the role, in a group or in none; tied parameters are one.",
        "dim",
    )


def _by_depth(values: Sequence[Sequence[float]]) -> str:
    """
    >>> from depthlaw.auditing.text import _by_depth
    >>> _by_depth([[0.1], [0.1]]), _by_depth([[0.1], [0.05]]), _by_depth([[0.1, 0.2, 0.3]]), _by_depth([[]])
    ('0.1', '0.1, 0.05', '0.1 to 0.3', '-')
    """
    texts = [
        " to ".join(f"{value:.3g}" for value in dict.fromkeys((several[0], several[-1]))) if several else "-"
        for several in values
    ]
    return ", ".join(texts if len(set(texts)) > 1 else texts[:1]) or "-"


# ---------------------------------------------------------------- what is wrong


def _show_fault(page: Page, number: int, fault: Fault, whys: Sequence[str], has_sides: bool) -> None:
    side = f"{fault.side}: " if has_sides and fault.side else ""
    page.say(f"{number}. {side}{fault.what}", "bold red")
    rows = [("where:", ", ".join(_patterns(fault.where)))] if fault.where else []
    rows += [("found:", fault.found), ("expected:", fault.expected), ("kind:", fault.kind)]
    if fault.why:
        rows.append(("why:", f"As in {whys.index(fault.why) + 1}." if fault.why in whys else fault.why))
    page.show(columns(rows, indent=3))
    page.say("   fix:")
    for line in fault.fix.splitlines():
        page.say_where(f"     {line}")


def _patterns(names: Sequence[str]) -> list[str]:
    """Names of parameters, those that differ in numbers alone as one.

    >>> from depthlaw.auditing.text import _patterns
    >>> _patterns(["h.0.fc.weight", "h.1.fc.weight", "wte.weight"])
    ['h.*.fc.weight (2)', 'wte.weight']
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(pattern_of(name), []).append(name)
    return [group[0] if len(group) == 1 else f"{pattern} ({len(group)})" for pattern, group in groups.items()]


def _remarks(remarks: Sequence[str], *, has_sides: bool) -> list[str]:
    """Those that say the same of several sublayers, together. has_sides: whether it is said of which side.

    >>> from depthlaw.auditing.text import _remarks
    >>> odd = [f"encoder, h.{number}.mlp: h.{number}.mlp.fc is odd" for number in (1, 3)]
    >>> _remarks([*odd, "even"], has_sides=True)
    ['encoder, h.*.mlp (2): h.*.mlp.fc is odd', 'even']
    """
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for remark in remarks:
        match = re.fullmatch(r"(\w+), (sublayer \d+|\S+): (.*)", remark, flags=re.DOTALL)
        side, name, text = match.groups() if match else ("", "", remark)
        if not has_sides:
            text = text.removeprefix("encoder: ")
        words = (pattern_of(word) if any(map(str.isalpha, word)) else word for word in text.split(" "))
        key = (side, pattern_of(name), " ".join(words)) if side else ("", "", text)
        groups.setdefault(key, []).append((name, text))
    lines = []
    for (side, name, pattern), alike in groups.items():
        where = "" if not side else f"{alike[0][0]}: " if len(alike) == 1 else f"{name} ({len(alike)}): "
        where = f"{side}, {where}" if side and has_sides else where
        lines.append(where + (alike[0][1] if len(alike) == 1 else pattern))
    return lines


# ---------------------------------------------------------------- what to do next


def _kind(audit: Answer) -> str:
    if audit.claimed is not None:
        return "recipe" if audit.claimed.is_absolute else "scheme"
    return "scheme" if audit.nearest is None else audit.nearest.kind


def _differences(audit: Answer) -> list[str]:
    """What differs from the nearest, beside the faults that are told by themselves."""
    if audit.nearest is None:
        return []
    as_faults = {(fault.kind, fault.roles) for fault in audit.faults}
    return [*distinct(of.what for of in audit.nearest.differences if (of.kind, of.roles) not in as_faults)]


def _ending(audit: Answer) -> Iterator[tuple[str, str | None]]:
    fits = audit.nearest is not None and audit.nearest.fits
    differs = bool(_differences(audit))
    if audit.claimed is not None:
        if not audit.faults:
            yield f"No faults: the model is built as {audit.claimed.name} says.", "bold green"
    else:
        if not audit.faults and fits and not differs and audit.nearest is not None:
            yield f"No faults of its own, and no differences from {audit.nearest.name}.", "bold green"
        elif not audit.faults:
            yield "No faults that show without a scheme or recipe to compare with.", None if differs else "bold green"
        if audit.nearest is not None:
            kind, name = _kind(audit), audit.nearest.name
            such = f', such as --{kind} {name} (in Python {kind}="{name}")' if fits else ""
            yield (
                f"To have each norm, weight and scale compared, name what the model is to be{such}; `depthlaw schemes` "
                "lists the names."
            ), None  # fmt: skip
    fitted = audit.exponent("update")
    exponent = fitted.measured.mean if fitted is not None and fitted.measured is not None else None
    number = max(audit.far, default=0)
    if audit.claimed is not None and number:
        is_, mended = (audit.far[number][way].get("update", math.nan) for way in ("as_it_is", "as_it_should_be"))
        beside = "" if _has_copies(audit) else f"; that of the model as it is, {times(is_)}"
        if 1 + _GROWS < mended <= is_:  # where it grows faster, a remark says so
            yield (
                f"Even with every fault mended, the update of all branch matrices grows under {audit.optimizer}, as "
                f"{audit.claimed.name}'s does: {times(mended)} from {audit.layers[0]} to {number:,} layers{beside}."
            ), None  # fmt: skip
    if audit.exponential is not None:
        yield (
            f"The update under {audit.optimizer} grows exponentially, as no power of the number of layers, which has "
            f"one factor for each doubling. Predicted: {audit.exponential.text}."
        ), "bold red"  # fmt: skip
    elif exponent is not None and exponent > _GROWS and not audit.faults:
        grows = f"The update under {audit.optimizer} grows as N^{exponent:.2f}"
        if audit.claimed is not None and learning_rates(audit.claimed, audit.depths):
            yield (
                f"{grows} at one learning rate for all parameters, as it is measured here: {audit.claimed.name} has "
                "learning rates of its own beside the model, which --groups compares."
            ), None  # fmt: skip
        else:
            yield (
                f"{grows}: a model that is built as it is meant to be may still need another learning rate at another "
                "depth."
            ), None  # fmt: skip
    if (audit.exponential is not None or audit.explodes) and not audit.faults:
        text = first_of_all(audit.depths[-1].built)
        yield f"{text[0].upper()}{text[1:]}.", "bold red"
    if _advise(audit, "") is not None:
        mended = "Once the faults are mended, what" if audit.faults else "What"
        yield f"{mended} to change when the model gets deeper:", None


def _has_copies(audit: Answer) -> bool:
    """Whether layers share what the prediction takes to be drawn for each."""
    last = audit.depths[-1].built
    return any(fault.kind in NOT_INDEPENDENT for fault in audit.faults) or (bool(last.shared) and last.visits == 1)


def _advise(audit: Answer, model: str) -> str | None:
    """The command that says what to change between the depths of the audit; None where it would have no answer. It is
    about this model, but about what it is meant to be where nothing is predicted of this one."""
    meant = audit.claimed or audit.nearest
    if (
        meant is None
        or len(audit.layers) < 2
        or any(update.get("update") == 0 for d in audit.depths for update in d.updates)
    ):
        return None
    depths = f"--optimizer {audit.optimizer} --from-layers {audit.layers[0]} --layers {audit.layers[-1]}"
    last = audit.depths[-1].built
    is_looped = last.visits > 1
    if is_looped:  # of a model of one's own each visit would be a layer
        first, deepest = (f"{max(of.own_counts.values())}" for of in (audit.depths[0], audit.depths[-1]))
        before = audit.depths[0].built.visits
        depths = f"--optimizer {audit.optimizer} --from-layers {first} --layers {deepest} --visits {last.visits}"
        depths += f" --from-visits {before}" if before != last.visits else ""
    if audit.predicted and not is_looped:
        return f"depthlaw advise {model} {depths}"
    if audit.nearest is not None and audit.nearest.differences:
        return None
    kind, arch = _kind(audit), ""
    if kind == "recipe":
        if not RECIPES[meant.name].is_made_for(audit.optimizer):
            return None
    else:
        is_causal = last.sublayers[0].is_causal
        arch = f" --arch {'encoder-decoder' if last.has_decoder else 'decoder' if is_causal else 'encoder'}"
    return f"depthlaw advise --{kind} {meant.name} {depths} --width {last.d_model}{arch}"
