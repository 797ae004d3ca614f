"""``depthlaw rule``: the derived rule for one norm placement, optimizer, architecture and depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.network_options import MOST_WALKED
from depthlaw.cli.shared.options import REQUIRED, BadInputError, option, refusing
from depthlaw.cli.shared.output import print_json
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from rich.table import Table

    from depthlaw.theory.rules.solve import Rule

EXAMPLES = (
    "rule --norm post --optimizer adam --arch encoder --layers 24",
    "rule --norm post --optimizer sgd --arch encoder --layers 100 --select deepnet",
    "rule --norm pre --optimizer adamw --arch decoder --layers 48 --activation gelu --width 1024 --why",
    "rule --norm pre --optimizer adamw --arch decoder --layers 48 --json",
    "rule --norm pre --optimizer adamw --arch decoder --from-layers 48 --layers 96 --width 1024",
    "rule --norm post --optimizer sgd --arch decoder --layers 6 --visits 8",
    "rule --norm post --optimizer sgd --arch encoder-decoder --layers 18 --decoder-layers 6",
)
Entry = Mapping[str, Any]


def run(
    norm: str = option(
        "Where the norms stand: post (behind the sum), pre (before the branch) or sub (before it and within it).",
        REQUIRED,
        known=options.NORMS,
    ),
    optimizer: str = options.OPTIMIZER,
    arch: str = option("The architecture", REQUIRED, known=options.ARCHITECTURES),
    layers: int = option("The number of layers: N in formulas, or M of a decoder alone.", REQUIRED, most=options.MOST),
    visits: int | None = option(
        "How often the layers are gone through with the same weights (a looped Transformer); --layers counts them "
        "once. 1 if left out.",
        most=options.MOST,
    ),
    decoder_layers: int | None = option(
        "The number of layers of an encoder-decoder's decoder.", metavar="M", most=options.MOST
    ),
    from_layers: int | None = option(
        "The number of layers of the model that you have tuned, to compare with; an eighth of --layers if left out.",
        most=options.MOST,
    ),
    from_decoder_layers: int | None = option(
        "The number of layers of its decoder, for encoder-decoder.", metavar="M", most=options.MOST
    ),
    select: str | None = option("The rule to take where several keep the update the same", known=options.SELECTIONS),
    activation: str = option(
        f"The activation of the FFNs: {options.ACTIVATIONS}; or, of gated FFNs, {options.GATED}.",
        "relu",
        known=options.ANY_ACTIVATION,
    ),
    norm_kind: str = options.NORM_KIND,
    width: int | None = option(
        "The width d_model. Given it, the answer has the share of the update that the other parameters have.",
        most=100_000,
    ),
    embedding_std: float | None = option(
        "The standard deviation of your embedding's entries as they reach the first layer, to say what the update does "
        "beside it; 0.02 if left out.",
        least=1e-9,
        most=1e9,
    ),
    why: bool = option(
        "Also say what each line means, as code for torch, which other ways there are, and each step of why."
    ),
    as_json: bool = options.JSON,
) -> None:
    """Derive the rule: which residual weight, init gain and learning rate to use, and what they leave open.

    A rule keeps the update of the matrices the same at any depth: how far one
    optimizer step moves the output. It says nothing of biases, norms, embedding
    and head; the answer says how their updates grow from --from-layers to
    --layers and which learning rates undo that. --why shows the derivation.
    """
    # Everything that can be checked is, before sympy is imported.
    if (arch == "encoder-decoder") != (decoder_layers is not None):
        if decoder_layers is None:
            raise BadInputError("--arch encoder-decoder needs --decoder-layers M beside --layers N")
        raise BadInputError(f"--decoder-layers belongs to --arch encoder-decoder, not to {arch!r}")
    given = [layers] if decoder_layers is None else [layers, decoder_layers]
    tuned = _tuned(given, from_layers, from_decoder_layers)
    if (visits or 1) > 1 and norm == "sub" and decoder_layers is not None:
        raise BadInputError("--visits: with --norm sub the rule is derived for one stack, not for an encoder-decoder")

    from depthlaw.advice.rule import rule_document, visits_document
    from depthlaw.theory.rules.solve import solve_rule
    from depthlaw.theory.rules.visits import counts_as

    with refusing():
        is_gated = activation in options.names(options.GATED)
        rule = solve_rule(norm, optimizer, arch, select=select, is_gated=is_gated)
        again = visits_document(norm, optimizer, given, visits or 1)
    letters = [str(side.num_layers) for side in rule.sides]
    if again is not None:
        given = [counts_as(norm, optimizer, number, again["visits"]) for number in given]
        tuned = tuned and [counts_as(norm, optimizer, number, again["visits"]) for number in tuned]
        if max(given) > options.MOST:
            raise BadInputError(f"--visits {visits} of {layers} layers count as {max(given)}: at most {options.MOST}")
    counts = dict(zip(letters, given, strict=True))
    head = {"norm": norm, "optimizer": optimizer, "architecture": arch, "select": rule.select}
    head |= {"activation": activation, "norm_kind": norm_kind, "embedding_std": embedding_std, "visits": again}
    before = None if tuned is None else dict(zip(letters, tuned, strict=True))
    in_full = why or as_json
    asked = rule, counts, activation, norm_kind, width, before
    answer = document(**head, **rule_document(*asked, embedding_std=embedding_std, in_full=in_full))
    if as_json:
        print_json(answer)
    else:
        sides = {side.name: answer[side.name] if len(rule.sides) > 1 else answer for side in rule.sides}
        show(answer, sides, rule, counts, has_why=why)


def _tuned(given: Sequence[int], from_layers: int | None, from_decoder_layers: int | None) -> list[int] | None:
    """The layers of the tuned model, by side."""
    if from_decoder_layers is not None and (from_layers is None or len(given) == 1):
        raise BadInputError("--from-decoder-layers belongs to --arch encoder-decoder with --from-layers N")
    if from_layers is None:
        return None
    tuned = [from_layers, from_decoder_layers or from_layers][: len(given)]
    if tuned == list(given):
        raise BadInputError(f"--from-layers {from_layers} is the depth that was asked for: two depths are compared")
    return tuned


# ---------------------------------------------------------------- for people

_WARNING = "bold yellow"
XAVIER = "sqrt(2/(fan_in + fan_out))"
"""Standard deviation of a matrix of init gain 1."""
NOTEBOOK = "notebooks/08_choose_your_rule.ipynb"


def show(
    answer: Entry, sides: Mapping[str, Entry], rule: Rule, counts: Mapping[str, int], *, has_why: bool = False
) -> None:
    """The answer on one screen; with --why everything else below it."""
    from depthlaw.advice.rule import not_asked, not_deepnet_s, warnings_of, what_is_held

    page, others = Page(), answer["other_roles"]
    layers = ", ".join(f"{letter} = {number}" for letter, number in counts.items())
    member = f"the member of its family for {rule.optimizer}; " if not_deepnet_s(rule, counts) else ""
    selection = f"{answer['select']}: {member}{rule.sides[0].member.note}"
    for name, side in sides.items():
        title = f"{answer['norm']}-norm {name}, {answer['optimizer']}, {layers} ({selection})"
        page.show(_rule_table(title, " and ".join(counts), side))
    if any(side["init_gain"] for side in sides.values()):
        page.say(f"An init gain multiplies Xavier's standard deviation {XAVIER}. Biases start at 0, norm gains at 1.")
    if answer["visits"] is not None:
        page.say(answer["visits"]["says"])
    is_warned = others["matrices"] is not None and others["matrices"]["grows"]
    for name, side in sides.items():
        of = "" if len(sides) == 1 else f" of the {name}"
        page.say(_update(side, of, answer), _WARNING if is_warned else None)
    if (text := what_is_held(sides, others)) is not None:
        page.say(f"{text}.")
    page.say(_left_open(others))
    if (text := not_asked(others)) is not None:
        page.say(f"{text}.", _WARNING)
    warnings = warnings_of(others, is_held=True)
    for line in answer["warnings"]:
        if line not in warnings:
            page.say(f"{line[0].upper()}{line[1:]}.", _WARNING)
    if has_why:
        _show_details(page, answer, sides, rule, counts)
        _show_why(page, answer, sides)
    else:
        if len(sides) == 1:
            page.say(_other_ways(*sides.values()))
        command = _advise_command(answer)
        if command is None:
            page.say("--why: each step of the argument.")
        else:
            width = "" if others["d_model"] is not None else " (D: your width)"
            page.say(f"--why: each step of the argument. What each way makes of the update, and its code{width}:")
            page.say_where(f"  {command}")


def _other_ways(side: Entry) -> str:
    """The alternatives that people use."""
    words = {
        "alpha": "residual_weight",
        "lambda": "init_gain",
        "b": "branch_weight",
        "learning rate x": "lr_multiplier",
    }
    ways: dict[str, str] = {}
    for other in side["alternatives"]:
        formula, name = other["formula"], other["known_as"]
        if other["name"] == "learning-rate":
            ways["learning-rate"] = f"a learning rate x {formula['lr_multiplier']}"
        elif name is not None and name != side["known_as"]:
            law = ", ".join(f"{word} {formula[key]}" for word, key in words.items() if formula[key] != "1")
            ways.setdefault(name, f"{name}'s law ({law})")
    return f"Other ways that people use: {', '.join(ways.values())}."


def _advise_command(answer: Entry) -> str | None:
    """The question that ``advise`` answers, of a plain model with these norms, at the depths that were asked for; at
    those that were computed where ``advise`` does not go so deep. None where there are no two depths."""
    others = answer["other_roles"]
    if others["layers"] is None:
        return None
    depths = others["layers"] if others["tuned"] is None else [others["tuned"], others["asked"]]
    before, after = (depth if isinstance(depth, list) else [depth] for depth in depths)
    if max(2 * sum(depth) + sum(depth[1:]) for depth in (before, after)) > MOST_WALKED:
        before, after = (depth if isinstance(depth, list) else [depth] for depth in others["layers"])
    words = ["depthlaw advise --scheme", f"{answer['norm']}-ln", "--optimizer", answer["optimizer"]]
    words += ["--arch", answer["architecture"], "--from-layers", f"{before[0]}", "--layers", f"{after[0]}"]
    if len(after) > 1:
        words += ["--from-decoder-layers", f"{before[-1]}", "--decoder-layers", f"{after[1]}"]
    words += ["--width", str(others["d_model"] or "D")]
    words += ["--activation", answer["activation"]] if answer["activation"] != "relu" else []
    words += ["--norm-kind", answer["norm_kind"]] if answer["norm_kind"] != "layernorm" else []
    return " ".join(words)


def _update(side: Entry, of: str, answer: Entry) -> str:
    """Whether the update of the rule's matrices is flat, by each way that it is derived here."""
    from depthlaw.advice.remedy import no_later

    order, network = side["update_order"], (answer["activation"], answer["norm_kind"])
    goes = "is the same at any depth" if order == "1" else f"grows as {order}"
    what = f"The update{of}, what one step of these matrices changes the output by,"
    parts = [f"{what} {goes} by the magnitude argument"]
    for line in answer.get("mean_field", ()):
        if (line["activation"], line["norm_kind"]) == network and line["approximate"] is not None:
            goes = "it tends to" if line["is_flat"] else "it goes as"
            parts.append(f"by the exact moments of an FFN stack ({', '.join(network)}) {goes} {line['approximate']}")
    if (matrices := answer["other_roles"]["matrices"]) is not None:
        few, many = _span(answer["other_roles"])
        parts.append(f"with softmax attention it goes x {matrices['growth']:.3g} from {few} to {many} layers")
    if (other := answer["other_roles"]["embedding"]) is not None and (other["matters"] or answer["embedding_std"]):
        parts[-1] += f", x {other['other_growth']:.3g} beside an embedding of std {other['other_std']:g}"
    if (later := answer["other_roles"]["later"]) is not None:
        parts.append(f"behind the first few steps, by a law that held of some decoders, x {later['growth']:.3g}")
    why = ""
    if later is None and answer["other_roles"]["not_computed"] is None:
        asked = {"is_post_norm": answer["norm"] == "post", "scheme": answer["other_roles"]["scheme"]}
        why = f" {no_later(answer['optimizer'], **asked)}"
    return f"{'; '.join(parts)}.{why}"


def _left_open(others: Entry) -> str:
    """The parameters outside the rule whose update grows."""
    from depthlaw.advice.rule import share_text

    if (reason := others["not_computed"]) is not None:
        return f"{reason[0].upper()}{reason[1:]}."
    growths = {role: growth for role, growth in others["roles"].items() if growth["grows"]}
    if not growths:
        return "Left open: nothing; the update of no other parameter grows with depth."
    few, many = _span(others)
    shown = ", ".join(f"{role} x {growth['growth']:.3g}{share_text(growth)}" for role, growth in growths.items())
    rates = ", ".join(f"{growth['lr_multiplier']:.3g}" for growth in growths.values())
    weight = "" if others["d_model"] is not None else " --width D says how much they matter."
    return (
        f"Left open: the update of {shown} from {few} to {many} layers. Learning rates of their own, x {rates}, undo "
        f"it.{weight}"
    )


def _show_details(page: Page, answer: Entry, sides: Mapping[str, Entry], rule: Rule, counts: Mapping[str, int]) -> None:
    """What the words mean, lines for torch, the other parameters, and other schemes beside the rule."""
    from depthlaw.advice.rule_snippet import snippet

    others = answer["other_roles"]
    network = (answer["activation"], answer["norm_kind"])
    for line in legend(rule, counts):
        page.say(line, "dim")
    for name, side in sides.items():
        page.say(f"In torch, {name}:", "bold")
        last_norm = f"one {'behind the last layer' if (name, len(sides)) == ('encoder', 2) else 'before the head'} too"
        is_causal = name == "decoder"
        for line in snippet(answer["norm"], side, *network, is_causal=is_causal, others=others, last_norm=last_norm):
            page.say_where(f"  {line}")
    if others["not_computed"] is None:
        _show_other_roles(page, others, answer["optimizer"])
    for line in answer["start"]:
        page.say(f"{line}.")
    if rows := answer.get("without_the_rule"):
        page.show(_without_table(rows))
        page.say(f"Exact second moments of an FFN stack ({', '.join(network)}, infinite width).", "dim")
        if answer["init_gain"] is None:
            page.say("This rule is here without its smaller learning rate: all that is left is the placement.", "dim")
    if others["command"] is not None:
        same = f"the scheme {others['scheme']}" if others["scheme"] else "no named scheme, so its power laws are given"
        page.say(f"This rule is {same}. Role by role, at 16 tokens, or with your own sizes:")
        page.say_where(f"  {others['command']}")
    page.say(f"With your own model's sizes, step by step: {NOTEBOOK}")


def _show_why(page: Page, answer: Entry, sides: Mapping[str, Entry]) -> None:
    notes: dict[str, str] = {}
    for name, side in sides.items():
        if side["alternatives"]:
            page.show(_alternatives_table(name, side["alternatives"]))
            page.say("lr: by the magnitude argument, beside the rate that suits a model where its formula is 1.", "dim")
        notes |= {other["name"]: other["note"] for other in side["alternatives"]}
    for name, note in notes.items():
        page.say(f"{name}: {note}", "dim")
    if answer["deepnet"] is not None:
        page.say(f"{answer['deepnet']}.")
    page.say("Why:")
    for step, line in enumerate(answer["why"], start=1):
        page.say(f"{step:3}. {line}")


def _rule_table(title: str, letters: str, side: Entry) -> Table:
    heads, formula = ("what", "value", f"formula, {letters} layers"), side["formula"]
    rows = [
        (f"{name.replace('_', ' ')} {letter}", f"{side[name]:.6g}", formula[name])
        for name, letter in (("residual_weight", "alpha"), ("branch_weight", "b"))
    ]
    gains = side["init_gain"] or {}
    for value in dict.fromkeys(gains.values()):
        roles = ", ".join(role for role, gain in gains.items() if gain == value)
        of_formula = abs(value - 1) > 1e-15 or formula["init_gain"] == "1"
        what = f"init gain {'lambda ' if of_formula else ''}of {roles}"
        rows.append((what, f"{value:.6g}", formula["init_gain"] if of_formula else "1"))
    rows += [] if gains else [("init gain", "none", "none helps; use the rate")]
    if rate := side["rate_left"]:
        multipliers = f"{rate['multiplier']:.3g}"
        of = rate["formula"] if rate["layers"] is None else "{1} layers beside {0}".format(*_span(rate))
    else:
        multipliers = f"{side['lr_multiplier']['fc2']:.6g}"
        of = formula["lr_multiplier"]
    rows.append(("learning-rate multiplier", multipliers, of))
    if (of_third := formula.get("fc3_lr_multiplier", of)) != of:
        rows.append(("learning-rate multiplier of fc3", f"{side['lr_multiplier']['fc3']:.6g}", of_third))
    return grid(heads, rows, heads, title)


def _span(compared: Entry) -> tuple[str, str]:
    """The layers of the shallow model and of the deep one that are compared."""
    from depthlaw.advice.rule import layers_text

    few, many = map(layers_text, compared["layers"])
    return few, many


def legend(rule: Rule, counts: Mapping[str, int]) -> list[str]:
    """What the words of the table mean, a line each, of the first side."""
    from depthlaw.theory.rules.solve import NORMS as WHERE

    chosen, *_ = rule.sides
    letters = [
        f"{side.num_layers}: layers of the {side.name}, here {counts[str(side.num_layers)]}" for side in rule.sides
    ]
    gain = "none: at gain 1" if chosen.gain is None else "lambda"
    others = " --select takes another member of the family." if rule.norm != "sub" else ""
    return [
        "; ".join(letters) + ".",
        f"residual weight alpha, branch weight b: {WHERE[rule.norm]}.",
        f"init gain ({gain}): as torch.nn.init.xavier_normal_(W, gain) has it; q, k and v each by itself.",
        f"selection {rule.select}: {chosen.member.note}.{others}",
        "learning-rate multiplier: of these matrices, beside the rate that suits a shallow model.",
        "relative update: |Delta theta|/|theta| of a matrix per unit learning rate, over that of a network with "
        f"alpha = lambda = 1; here {chosen.formula['relative_update_order']}.",
        "Weight decay and later steps: nothing is said of them; the rule is of a first step, without decay.",
    ]


# ---------------------------------------------------------------- beside the rule


def _alternatives_table(name: str, alternatives: list[dict[str, Any]]) -> Table:
    heads = ("alternative", "residual", "branch", "gain", "lr")
    columns = ("residual_weight", "branch_weight", "init_gain", "lr_multiplier")
    rows = (
        [other["name"], *("none" if other[column] is None else f"{other[column]:.4g}" for column in columns)]
        for other in alternatives
    )
    return grid(heads, rows, heads, f"Other ways to hold it, {name}")


def _show_other_roles(page: Page, others: Entry, optimizer: str) -> None:
    from depthlaw.network.predicted_rows import percent

    few, many = _span(others)
    has_width = others["d_model"] is not None
    heads = ["role", "update", "exponent", "lr x", *(["share"] if has_width else [])]
    rows = [
        [
            *(role, f"x {growth['growth']:.3g}", f"{growth['exponent']:z.2f}", f"{growth['lr_multiplier']:.3g}"),
            *(["" if growth.get("share") is None else percent(growth["share"])] if has_width else []),
        ]
        for role, growth in {"the rule's matrices": others["matrices"], **others["roles"]}.items()
        if growth is not None
    ]
    page.show(grid(heads, rows, heads, f"What the rule leaves open, from {few} to {many} layers"))
    text = (
        f"lr x: what undoes it, beside the rate that suits {few} layers. Predicted for this rule: {others['network']}; "
        f"quasi-random error {others['error']:.1%} at most. With more tokens biases and the embedding can grow more "
        "slowly, by more than that error."
    )
    if has_width:
        text += f" share: beside the matrices' update at d_model {others['d_model']}, {many} layers."
    page.say(text, "dim")
    if others["unmoved"]:
        like = "SGD" if optimizer == "lars" else "Adam"
        page.say(
            f"{', '.join(others['unmoved'])}: left out. As published {optimizer.upper()} moves no parameter that is "
            f"zero, so biases at 0 stay there; implementations whose trust ratio is 1 there move them as {like} does.",
            "dim",
        )


def _without_table(rows: list[dict[str, Any]]) -> Table:
    few, many = rows[0]["layers"]
    heads = ["scheme", "update grows as", *([f"{few} to {many} layers"] if few != many else [])]
    names = ["this rule", *(row["scheme"] for row in rows[1:])]
    lines = ([name, row["update_order"] or "not decided", _factor(row)] for name, row in zip(names, rows, strict=True))
    return grid(heads, (line[: len(heads)] for line in lines), heads, "With the rule, and without")


def _factor(row: Entry) -> str:
    """Beyond the floats as a power of ten."""
    if row["growth"] is not None and row["growth"] < 1e6:
        return f"x {row['growth']:.3g}"
    return "-" if row["log10_growth"] is None else f"x 10^{row['log10_growth']:.3g}"
