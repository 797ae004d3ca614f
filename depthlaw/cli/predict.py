"""``depthlaw predict``: the mean field of a named scheme, or of one's own; with --attention the kernel rung."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from depthlaw.cli.shared import options, words
from depthlaw.cli.shared.layers import show_layers
from depthlaw.cli.shared.network_options import ATTENTION, MOST_TOKENS, MOST_WALKED, Stack, Transformer, networks
from depthlaw.cli.shared.options import BadInputError, option, refusing
from depthlaw.cli.shared.output import counted, print_json
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.network.embedding import OtherEmbedding
    from depthlaw.network.network import Network
    from depthlaw.theory.meanfield.setting import Prediction

_MOST_READ = 120
"""Characters of an expression that a person reads; --json has any."""
EXAMPLES = (
    "predict --scheme sub-ln --optimizer sgd --sublayers 8,64,512,1000000000",
    "predict --norm post --residual-weight 1,1/4 --gain 0.7,-1/4 --optimizer adam --sublayers 8,64",
    "predict --scheme deepnorm --optimizer adam --layers 6,12,24,48 --attention --roles --plot deepnorm.svg",
    "predict --recipe llama-3 --optimizer adamw --layers 16,32,64 --width 1024 --roles",
    "predict --scheme pre-ln,gpt2,depth-mup --optimizer adamw --layers 12,48 --attention",
)


AFTER = "With --attention: after the first steps"


# ---------------------------------------------------------------- the command


def run(
    stack: Stack,
    transformer: Transformer,
    width: int | None = option(
        "The width d_model, on which the size of a head and each role's share of the update depend; infinite if left "
        "out.",
        None,
        ATTENTION,
        most=100_000,
    ),
    roles: bool = options.ROLES,
    by_layer: bool = options.BY_LAYER,
    after_steps: int | None = option(
        "Also show what the laws for later steps say of the update after so many steps. It needs --learning-rate and "
        "--width.",
        None,
        AFTER,
        most=10**9,
    ),
    learning_rate: float | None = option(
        "The learning rate of those steps, constant or on average.", None, AFTER, least=1e-300, most=1e9
    ),
    weight_decay: float = option("The weight decay of matrices, by which AdamW and Muon shrink them.", 0, AFTER),
    precise: bool = option("Average over more quasi-random points, as the pages do.", None, ATTENTION),
    plot: Path | None = options.PLOT,
    as_json: bool = options.JSON,
) -> None:
    """Predict the update: how far one optimizer step moves a network, at infinite width, without a fitted constant.

    Without --attention the network is that of the papers' theorems: a stack of
    FFNs with one input. The prediction is exact at any depth, and its leading
    order in the number L of sublayers is derived with it.

    With --attention the network is a Transformer. The prediction is by role (q,
    k, v, out, fc1, fc2, biases, norms, embedding, head), and --roles shows how
    each role's update grows with depth and which learning rate undoes that. The
    averages over softmax are quasi-random, and their error is printed: mostly
    under 1 % of the update, and a half to a quarter of that with --precise.

    Several schemes, or several recipes, with commas, stand side by side in one
    table.

    The first step's law does not last. --after-steps shows it beside laws that
    are derived for later steps: init forgotten, steps in directions of their
    own (noise), both, and branches that push the stream in one direction.
    TRAINING.md has which of them hold.
    """
    asked = _each(stack, transformer)
    if len(asked) > 1:
        if plot is not None:
            raise BadInputError("--plot draws one scheme or recipe: give one, or leave it out")
        if by_layer or after_steps is not None:
            raise BadInputError("--by-layer and --after-steps are of one scheme or recipe: give one")
        how = _How(precise, by_layer=False, later=None)
        _run_several(asked, width, how, has_roles=roles, as_json=as_json)
        return
    # Everything that can be checked is checked before sympy is imported.
    transformer, width = transformer.of_recipe(width)
    how = _How(precise, by_layer, _later(transformer, width, after_steps, learning_rate, weight_decay))
    answer = _answer(stack, transformer, width, how)
    if plot is not None:
        from depthlaw.paper_checks.pages.plots import Shown, update_against_depth

        units = answer.get("role_units") or dict.fromkeys(answer["rows"][0]["roles"], 0.0)
        shown = Shown(answer["rows"], units if roles else {}, width)
        update_against_depth(shown, words.title(answer), "", plot, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
        return
    page = Page()
    if transformer.attention or stack.is_walked or by_layer:
        _show_transformers(page, answer, has_roles=roles, is_in_layers=transformer.is_in_layers)
    else:
        _show_stacks(page, answer)
    page.wrote(plot)


class _How(NamedTuple):
    """What a prediction is asked besides. later: what laws behind the first steps are asked with, see ``_later``."""

    is_precise: bool
    by_layer: bool
    later: dict[str, Any] | None


def _answer(stack: Stack, transformer: Transformer, width: int | None, how: _How) -> dict[str, Any]:
    """The document of one scheme or recipe. transformer: with what the recipe says itself."""
    transformer.check_given()
    if width is not None and not transformer.attention:
        raise BadInputError("--width needs --attention: without it the prediction is at infinite width")
    if how.is_precise and not (transformer.attention or stack.is_walked):
        raise BadInputError("--precise needs --attention: without it the prediction is exact as it is")
    if transformer.attention or stack.is_walked or how.by_layer:
        return _of_transformers(stack, transformer, width, how)
    return _of_stacks(stack, transformer)


def _each(stack: Stack, transformer: Transformer) -> list[tuple[Stack, Transformer]]:
    """The options of each of the schemes, or recipes, that were asked for."""
    if isinstance(transformer.recipe, tuple):
        return [(stack, replace(transformer, recipe=recipe)) for recipe in transformer.recipe]
    names = stack.scheme.split(",") if stack.scheme is not None and transformer.recipe is None else [stack.scheme]
    return [(replace(stack, scheme=name), transformer) for name in names]


def _run_several(
    asked: Sequence[tuple[Stack, Transformer]],
    width: int | None,
    how: _How,
    *,
    has_roles: bool,
    as_json: bool,
) -> None:
    from depthlaw.system.files import document

    answers = []
    for stack, given in asked:
        transformer, several = given.of_recipe(width)
        answers.append(_answer(stack, transformer, several, how))
    if as_json:
        print_json(document(predictions=answers))
        return
    _show_several(Page(), answers, has_roles=has_roles, is_in_layers=asked[0][1].is_in_layers)


def _of_stacks(stack: Stack, transformer: Transformer) -> dict[str, Any]:
    if stack.sublayers is None:
        raise BadInputError("--sublayers is wanted: a list of residual sublayers, such as 4,8,16")
    lists = stack.lists(stack.sublayers)
    chosen = stack.chosen_scheme()

    from depthlaw.network.block import Block
    from depthlaw.network.predicted_rows import document_of_stacks
    from depthlaw.theory.meanfield.setting import Setting

    with refusing():
        block = Block(**transformer.of_embedding)
        setting = Setting.of(block.in_scheme(chosen), stack.optimizer, stack.activation, stack.norm_kind)
        return document_of_stacks(setting, stack.sublayers, lists, block.options)


def _later(
    transformer: Transformer, width: int | None, num_steps: int | None, learning_rate: float | None, decay: float
) -> dict[str, Any] | None:
    """What laws behind the first steps are asked with, where they are."""
    if num_steps is None:
        if learning_rate is not None or decay:
            raise BadInputError("--learning-rate and --weight-decay belong to --after-steps: one step needs neither")
        return None
    if not transformer.attention:
        raise BadInputError("--after-steps needs --attention, or a recipe")
    if learning_rate is None or width is None:
        raise BadInputError("--after-steps needs --learning-rate and --width: the two say how large the weights become")
    return {"learning_rate": learning_rate, "num_steps": num_steps, "weight_decay": decay}


def _of_transformers(stack: Stack, transformer: Transformer, width: int | None, how: _How) -> dict[str, Any]:
    """Everything that can be wrong with the input is said before anything is predicted."""
    has_wide_heads = bool(transformer.attention) and transformer.num_heads is None
    if transformer.attention and not has_wide_heads and width is None:
        raise BadInputError("--heads needs --width: their ratio is the size of a head, infinite without the two")

    from depthlaw.network import ANY_WIDTH, EFFORT

    asked = [
        replace(network, has_wide_heads=has_wide_heads)
        for network in networks(stack, transformer, width or ANY_WIDTH, MOST_WALKED, MOST_TOKENS)
    ]
    num_passes = sum(2 * network.depth for network in asked) * (1 if how.later is None else 6)
    num_passes += 2 * (asked[0].depth + asked[-1].depth) if len(asked) > 1 else 0
    with counted("predicting", num_passes) as advance, refusing():
        effort = 1.0 if how.is_precise else EFFORT[transformer.loss or "logit"]
        predictions = [network.walked(stack.optimizer, advance, effort) for network in asked]
        updates: list[dict[str, float]] = []
        if how.later is not None:
            updates = [
                network.after_start(stack.optimizer, **how.later, advance=advance, effort=effort) for network in asked
            ]

        other = _beside_another_embedding(asked, predictions, stack.optimizer, advance)

    from depthlaw.network.predicted_rows import after_start, document_of_transformers

    answer = document_of_transformers(asked, predictions, stack.optimizer, width, by_layer=how.by_layer)
    answer["embedding"] = None if other is None else other.document() | {"says": other.text}
    return answer if how.later is None else answer | {"after_start": after_start(asked, updates, how.later)}


def _beside_another_embedding(
    asked: Sequence[Network], predictions: Sequence[Prediction], optimizer: str, advance: Callable[[float], None]
) -> OtherEmbedding | None:
    """From the first depth to the last; None where there is one depth, or no growth that floats hold."""
    from depthlaw.network import EFFORT
    from depthlaw.network.embedding import beside_another

    first, last = predictions[0].update, predictions[-1].update
    if len(asked) == 1 or not (0 < first < math.inf and 0 < last < math.inf):
        return None
    how = {"growth": last / first, "advance": advance, "effort": EFFORT["logit"], "replicates": 1}
    return beside_another(asked[0], asked[-1], optimizer, **how)


# ---------------------------------------------------------------- stacks, for people

_LONG = 20
"""Characters of a cell that people read as they are."""


def _show_stacks(page: Page, answer: Mapping[str, Any]) -> None:
    roles = list(answer["rows"][0]["roles"])

    def line(row: Mapping[str, Any]) -> list[str]:
        update = f"{row['update']:.6g}" if row["update"] is not None else f"10^{row['log10_update']:.6g}"
        values = ("beyond" if row["roles"][role] is None else f"{row['roles'][role]:.6g}" for role in roles)
        return [words.short(row["num_sublayers"]), update, *values]

    page.show_whole([grid(["sublayers", "update", *roles], map(line, answer["rows"]), title=words.title(answer))])
    if text := words.rest(answer.get("network", {})):
        page.say(text, "dim")
    order = answer["leading_order"]
    if order is None:
        page.say("A list of gains belongs to one L: no order in L.")
    elif order["coefficient"] is None and order["growth"] is None:
        page.say(f"Leading order: {order['shown_by']}")
    else:
        short = rounded(order)
        page.say(f"As L grows: {order_text(short, 'L')}")
        if short != order:
            page.say("Rounded: --json has it in full.", "dim")
        if short["next_term"] is not None and len(short["next_term"]) <= _MOST_READ:
            page.say(f"Next term, {order['next_term_is']}: {short['next_term']}")
        page.say(f"Shown by: {order['shown_by']}", "dim")
    page.say(words.update_text(answer), "dim")
    _show_steps(page, [answer])
    page.say(f"Holds at {answer['holds']}.", "dim")


_BESIDE = {
    "representation": "last state moves",
    "block": "2nd/1st, sublayer",
    "hidden": "2nd/1st, last state",
}
"""What a step does beside the update."""


def _show_steps(page: Page, answers: Sequence[Mapping[str, Any]], *, is_in_layers: bool = False) -> None:
    """Of stacks of FFNs, what a step does to the last hidden state, and its second order there and in a sublayer: a
    table, or of several schemes one for each, with a column for each scheme."""
    rows = [answer["rows"] for answer in answers]
    told = [row for of_answer in rows for row in of_answer if "representation" in row]
    if not told:
        return
    if all(row["representation"] is None for row in told):
        page.say(
            "How a step moves the last hidden state, and its second order, are derived of stacks of FFNs that are not "
            "gated, with one stream and real norms, of at most 2000 sublayers, each visited once. `depthlaw measure "
            "--changes --second-order` measures both.",
            "dim",
        )
        return
    depths = [words.depth_cells(row, is_in_layers=is_in_layers) for row in rows[0]]
    if len(answers) == 1:
        lines = [
            [*at.values(), *(_beside(row, what) for what in _BESIDE)] for at, row in zip(depths, *rows, strict=True)
        ]
        page.show_whole([grid([*depths[0], *_BESIDE.values()], lines)])
    else:
        for what, head in _BESIDE.items():
            lines = [
                [*at.values(), *(_beside(row, what) for row in of_depth)]
                for at, *of_depth in zip(depths, *rows, strict=True)
            ]
            page.say(f"{head[0].upper()}{head[1:]}:")
            page.show_whole([grid([*depths[0], *(answer["scheme"] for answer in answers)], lines)])
    unit = words.unit_text(answers[0], less=0.5)
    page.say(
        "last state moves: the last hidden state, by the branch matrices, relative to itself, per unit learning rate"
        f"{'' if unit == '1' else f', divided by {unit}'}. 2nd/1st: what a step that moves the logit by 1 changes to "
        "second order, over the first; in a sublayer, of its own step, where with 1/d_model it is a number of each "
        "network, and this the mean over networks. In the logit it has either sign, and is 0 on average. -: nothing "
        "moves, or not derived (above 2000 sublayers, of layers that are visited again, and in the last hidden state "
        "where no norm stands and the activation is straight on either side of 0).",
        "dim",
    )


def _beside(row: Mapping[str, Any], what: str) -> str:
    if what == "representation":
        return _number(row.get(what), 4)
    orders = row.get(f"second_order_in_{what}")
    if orders is None or orders["over_first"] is None:
        return "-"
    return f"{orders['over_first']:.4g}/{'sqrt(d_model)' if orders['width_power'] == -0.5 else 'd_model'}"


def rounded(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Cells for people: a number that is long as an exact text, or has many digits, to a few of them.

    >>> from depthlaw.cli.predict import rounded
    >>> exact = {"coefficient": "51.8535939745012338126239575864", "power": "oo", "growth": "exp((log(1 + 1/40)/2)*L)"}
    >>> rounded(exact)
    {'coefficient': '51.8536', 'power': 'oo', 'growth': 'exp(0.0123 L)'}
    >>> rounded({"growth": None, "next_term": "(4.10022548180526)*1/L"})["next_term"]
    '(4.10023)*1/L'
    """
    from sympy import sympify

    from depthlaw.paper_checks.routes.checks import short_growth

    short = dict(cells)
    for name in ("coefficient", "power", "log_power", "loglog_power"):
        if len(cells.get(name) or "") > _LONG:
            short[name] = f"{float(sympify(cells[name]).evalf()):.6g}"
    growth = cells["growth"] or ""
    if len(growth) > _LONG:
        short["growth"] = f"exp({short_growth(growth.removeprefix('exp(').removesuffix(')'))})"
    if cells.get("next_term"):
        short["next_term"] = re.sub(r"\d+\.\d{7,}", lambda number: f"{float(number[0]):.6g}", cells["next_term"])
    return short


def order_text(cells: Mapping[str, Any], letter: str) -> str:
    """One line for people: 2 * log(L), 0.74 * L**(1/(-1 + pi)), 0 (the update vanishes at init)."""
    if cells["power"] is None:
        return "0 (vanishes at init)" if cells["coefficient"] == "0" else "not decided"
    front = cells["coefficient"] or "1"
    factors = [f"({front})" if " + " in front or " - " in front else front]
    for name, base in (("power", letter), ("log_power", f"log({letter})"), ("loglog_power", f"log(log({letter}))")):
        exponent = cells[name]
        is_number = exponent.replace(".", "").isdigit()
        if exponent not in ("0", "oo"):
            factors.append(base if exponent == "1" else f"{base}**{exponent if is_number else f'({exponent})'}")
    factors.append(cells["growth"] or "1")
    return " * ".join(factor for factor in factors if factor != "1") or "1"


# ---------------------------------------------------------------- several side by side, for people


def _show_several(page: Page, answers: Sequence[Mapping[str, Any]], *, has_roles: bool, is_in_layers: bool) -> None:
    """A line for each depth, or with roles for each role, and a column for each scheme or recipe."""
    first, names = answers[0], [answer["scheme"] for answer in answers]
    is_stack = "exponents" not in first
    page.say(f"{', '.join(names)} under {first['optimizer']}: the update of all branch matrices", "bold")
    depths = [words.depth_cells(row, is_in_layers=is_in_layers) for row in first["rows"]]
    lines = [[*depth.values(), *(_update(answer["rows"][at]) for answer in answers)] for at, depth in enumerate(depths)]
    page.show_whole([grid([*depths[0], *names], lines)])
    if has_roles and not is_stack:
        by_number = sorted(answers, key=lambda answer: -len(answer["exponents"]))
        roles = dict.fromkeys(role for answer in by_number for role in answer["exponents"])
        cells = ([role, *(_of_role(answer, role) for answer in answers)] for role in roles)
        page.say("Exponents of the depth, by role:")
        page.show_whole([grid(["role", *names], cells, texts=["role"])])
    elif is_stack:
        for name, answer in zip(names, answers, strict=True):
            order = answer["leading_order"] or {"coefficient": None, "growth": None}
            is_known = order["coefficient"] is not None or order["growth"] is not None
            page.say(f"As L grows, {name}: {order_text(rounded(order), 'L') if is_known else 'no order is known'}")
        _show_steps(page, answers, is_in_layers=is_in_layers)
    elif len(depths) > 1:
        exponents = [f"{name} {_exponent(answer, 'update')}" for name, answer in zip(names, answers, strict=True)]
        page.say(f"Exponents of the depth: {', '.join(exponents)}.")
    page.say("One at a time, --scheme NAME says what its numbers are, and what they hold at.", "dim")


def _update(row: Mapping[str, Any]) -> str:
    """To four digits; of one that floats do not hold its power of ten."""
    is_beyond = row["update"] is None and row["log10_update"] is not None
    return f"10^{row['log10_update']:.4g}" if is_beyond else _number(row["update"], 4)


def _of_role(answer: Mapping[str, Any], role: str) -> str:
    return _exponent(answer, role) if role in answer["exponents"] else "-"


# ---------------------------------------------------------------- Transformers, for people

_COLUMNS = 4
"""Of a table of roles in a terminal that is too narrow for all of them."""
_BENDS = "bends"


def _show_transformers(page: Page, answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> None:
    """is_in_layers: depths are shown as layers N, as they were given, beside sublayers L."""
    rows = answer["rows"]
    depths = [words.depth_cells(row, is_in_layers=is_in_layers) for row in rows]
    page.say(words.title(answer), "bold")
    page.say(words.rest(answer["network"]), "dim")
    if has_roles:
        heads = [f"N = {depth['layers']}" if "layers" in depth else f"L = {depth['L']}" for depth in depths]
        _show_roles(page, answer, heads)
    else:
        lines = ([*depth.values(), _number(row["update"], 6)] for depth, row in zip(depths, rows, strict=True))
        page.show_whole([grid([*depths[0], "update"], lines)])
    for line in _meaning(answer, has_roles=has_roles):
        page.say(line, "dim")
    if not has_roles and answer["exponents"]["update"] is not None:
        page.say(f"Exponent of the depth: {_exponent(answer, 'update')}.")
    _show_steps(page, [answer])
    for row in rows:
        show_layers(page, row)
    for line in filter(
        None,
        (words.visits_text(answer), words.identity_text(answer), words.admin_text(answer), words.left_out_text(answer)),
    ):
        page.say(line)
    if (other := answer["embedding"]) is not None and other["says"]:
        first, last = (next(iter(depth.items())) for depth in (depths[0], depths[-1]))
        page.say(f"From {first[0]} {first[1]} to {last[1]}, {other['says']}.")
    if "after_start" in answer:
        _show_later(page, answer["after_start"], depths)


def _show_later(page: Page, later: Mapping[str, Any], depths: Sequence[Mapping[str, str]]) -> None:
    """A line for each law: the update at each depth, and its exponent."""
    heads = [f"N = {depth['layers']}" if "layers" in depth else f"L = {depth['L']}" for depth in depths]
    decay = f", weight decay {later['weight_decay']:g}" if later["weight_decay"] else ""
    page.say(f"Behind {later['num_steps']:,} steps at a rate of {later['learning_rate']:g}{decay}", "bold")
    lines = [
        [
            law,
            *(_number(value, 4) for value in law_row["updates"]),
            _BENDS
            if law_row["is_power_law"] is False
            else "-"
            if law_row["exponent"] is None
            else f"{law_row['exponent']:z.3f}",
        ]
        for law, law_row in later["laws"].items()
    ]
    page.show_whole([grid(["law", *heads, "exponent"], lines, texts=["law"])])
    page.say(
        "The update by laws that are derived without a fitted constant. first: the first step's. forgotten: the branch "
        "matrices are as large as the optimizer made them, whatever their init. noise: steps have directions of their "
        "own. both: of these. aligned: forgotten, and all branches push the stream in one direction. Which of them "
        "hold in training: TRAINING.md, after-start.",
        "dim",
    )


def _show_roles(page: Page, answer: Mapping[str, Any], depths: Sequence[str]) -> None:
    """A line for each role and a column for each depth, then what all depths say of it. In a terminal that is too
    narrow for one table: several of a few columns each."""
    from depthlaw.network.predicted_rows import by_role, percent

    values = by_role(answer["rows"])
    columns: dict[str, Callable[[str], str]] = {
        depth: lambda role, at=at: _number(values[role][at], 4) for at, depth in enumerate(depths)
    }
    if len(depths) > 1:
        columns["exponent"] = lambda role: _exponent(answer, role)
        columns["lr ×"] = lambda role: _number(answer["lr_multiplier"].get(role, [None])[-1], 3)
    if answer["shares"]:
        columns["share"] = lambda role: "" if role == "update" else percent(answer["shares"][role][-1])

    def table(heads: Sequence[str]) -> Any:
        lines: list[list[str] | None] = []
        for role in values:
            lines += [None] if role.endswith("/update") or len(lines) == 1 else []
            lines.append([role.replace("/", " "), *(columns[head](role) for head in heads)])
        return grid(["role", *heads], lines, texts=["role"])

    heads = list(columns)
    page.show_whole([table(heads)], [table(heads[at : at + _COLUMNS]) for at in range(0, len(heads), _COLUMNS)])


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _exponent(answer: Mapping[str, Any], role: str) -> str:
    if answer["is_power_law"][role] is False:
        return _BENDS
    value = answer["exponents"][role]
    return "-" if value is None else f"{value:z.3f}"  # rounding leaves -1e-17 of what is flat


def _meaning(answer: Mapping[str, Any], *, has_roles: bool) -> Iterator[str]:
    rows, width = answer["rows"], answer["network"]["d_model"]
    roles = list(answer["is_power_law"]) if has_roles else ["update"]
    yield words.update_text(answer)
    if has_roles:
        yield from _meaning_of_roles(answer)
    if any(_exponent(answer, role) == _BENDS for role in roles):
        yield f"{_BENDS}: no power law over these depths, which is off by a fifth or more at one of them."
    correction = "" if width is None else f" {words.finite_width_text(rows, width)}"
    yield f"Holds at {answer['holds']}.{correction} {words.error_text(rows)}"


def _meaning_of_roles(answer: Mapping[str, Any]) -> Iterator[str]:
    if line := words.others_text(answer["role_units"]):
        yield line
    if answer["optimizer"] == "muon":
        yield (
            "muon alone moves vectors by the signs of their gradients, at the matrices' learning rate. As people run "
            "it, AdamW moves all but the branch matrices: --optimizer muon+adamw."
        )
    if len(answer["rows"]) > 1:
        yield (
            "exponent: the power of the depth with which the role's update grows, by least squares over all depths "
            "asked for. lr ×: what to multiply the role's learning rate by, for its update at the last depth to be as "
            "at the first; a factor above 1 may be left out. `depthlaw advise` ranks other ways: branch weights, "
            "another init."
        )
    if answer["shares"]:
        yield (
            "share: of the role's update beside that of the matrices, at the last depth and d_model "
            f"{answer['network']['d_model']}, where the powers of the width above are undone. A role with a small "
            "share hardly needs another learning rate."
        )
        if (carried := answer["shares"].get("layer_scale", [0.0])[-1] or 0.0) > 1:
            yield (
                f"LayerScale carries the update itself, {carried:.3g} times what the matrices move: a step changes the "
                "vectors behind the branches more than what stands in these."
            )
    else:
        yield "Add --width D for each role's share of the update at that width."
