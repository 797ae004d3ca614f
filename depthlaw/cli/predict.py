"""``depthlaw predict``: the mean field of a named scheme, or of one's own; with --attention the kernel rung.

Which networks are asked about, and what is said of their numbers, is the same for ``depthlaw measure``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.cli import options
from depthlaw.cli.options import BadInputError, option, refusing
from depthlaw.cli.output import counted, print_json
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.network.network import Network
    from depthlaw.recipes.recipe import Recipe
    from depthlaw.theory.schemes import Scheme

EXAMPLES = (
    "predict --scheme sub-ln --optimizer sgd --sublayers 8,64,512,1000000000",
    "predict --norm post --residual-weight 1,1/4 --gain 0.7,-1/4 --optimizer adam --sublayers 8,64",
    "predict --scheme deepnorm --optimizer adam --layers 6,12,24,48 --attention --roles --plot deepnorm.svg",
    "predict --recipe llama-3 --optimizer adamw --layers 16,32,64 --width 1024 --roles",
)
MOST_WALKED, MOST_BUILT = 10_000, 100_000
"""Sublayers that --attention goes through one by one, and that networks which are built may have."""
MOST_TOKENS = 256
"""As ``theory.kernel.setting`` has it, without its imports."""
_EFFORT = {"logit": 1 / 4, "ce": 1 / 16}
"""How many quasi-random points are enough without --precise, in units of what is usual. The error of a cross-entropy is
that of its labels, and more points do not lessen it."""
_ANY_WIDTH = 64
"""Without --width only ratios to it are read."""
NO_ORDER = dict.fromkeys(("coefficient", "power", "log_power", "loglog_power", "growth", "next_term"))
NO_ORDER |= {"shown_by": "not derived: the kernel rung is numerical; see exponents"}


# ---------------------------------------------------------------- which networks are asked about

ATTENTION = "With --attention"
BLOCK = "With --attention: blocks that people train"
Law = tuple[Fraction, Fraction]
_LAWS = ("residual_weight", "branch_weight", "gain")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Options of a stack of FFNs. A law is (C, P), for C L^P."""

    optimizer: str = options.OPTIMIZER
    sublayers: list[int] | None = option("The number L of residual sublayers, or several, with commas: 4,8,16.")
    scheme: str | None = options.SCHEME
    activation: str = option(
        f"The activation: {options.ACTIVATIONS}; with attention {options.GATED}, too.",
        "relu",
        known=options.ANY_ACTIVATION,
    )
    norm_kind: str = options.NORM_KIND
    w: tuple[float, ...] | None = option("The init gain of W1 (fc1, or v) by sublayer: a list, or @FILE with one.")
    v: tuple[float, ...] | None = option("The init gain of W2 (fc2, or out) by sublayer: a list, or @FILE with one.")
    norm: str | None = option(
        "A scheme of your own, instead of --scheme, by where its norms stand", known=options.PLACEMENTS
    )
    residual_weight: Law | None = option("With --norm: the weight a of the stream in a x + b f(x), as C L^P.")
    branch_weight: Law | None = option("With --norm: the weight b of the branch, as C L^P.")
    gain: Law | None = option("With --norm: the init gain of W1 and W2, as C L^P.")

    @property
    def given_laws(self) -> dict[str, Law]:
        return {name: law for name in _LAWS if (law := getattr(self, name)) is not None}

    def lists(self, lengths: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """--w and --v, where they are given; lengths: L of each network."""
        given = {name: numbers for name in ("w", "v") if (numbers := getattr(self, name)) is not None}
        if given and len(lengths) != 1:
            raise BadInputError(f"--w and --v need exactly one --sublayers, not {len(lengths)}")
        for name, numbers in given.items():
            if len(numbers) != lengths[0]:
                raise BadInputError(f"--{name} has {len(numbers)} gains for {lengths[0]} sublayers: give one for each")
        return given

    def chosen_scheme(self) -> Scheme:
        """The named one, or one's own. Everything is checked before sympy is imported."""
        if (self.scheme is None) == (self.norm is None):
            raise BadInputError("give one of --scheme NAME and --norm post|pre|sub|peri (a scheme of your own)")
        if self.norm is None and (given := list(self.given_laws)):
            raise BadInputError(f"--{given[0].replace('_', '-')} belongs to --norm, not to a named --scheme")

        from depthlaw.theory.schemes import custom_scheme, scheme

        with refusing("--norm" if self.scheme is None else "--scheme"):
            if self.scheme is None:
                return custom_scheme(str(self.norm), **self.given_laws)
            chosen = scheme(self.scheme)
        if chosen.stack.norm_function and self.norm_kind != "layernorm":
            raise BadInputError(f"--norm-kind does not go with {chosen.name}, which has no norm")
        return chosen


def recipe_named(text: str, option: str) -> Recipe:
    from depthlaw.recipes.catalogue import recipe

    with refusing(option):
        return recipe(text.lower())


_POSITIVE: dict[str, Any] = {"least": 1e-9, "most": 1e9}


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Options of a real Transformer, which need --attention. Most are called as the fields of a ``Network`` and of its
    ``Block`` that they become."""

    attention: bool = option("Ask about a Transformer: attention and FFN in turn.", None, ATTENTION)
    arch: str | None = option(
        "The kind: encoder, decoder (causal) or encoder-decoder. If left out, a decoder in advise, else an encoder.",
        None,
        ATTENTION,
        known=options.ARCHITECTURES,
    )
    layers: list[int] | None = option(
        "The number N of layers of attention and FFN, or several, instead of --sublayers: 6,12.", None, ATTENTION
    )
    decoder_layers: list[int] | None = option(
        "The number of layers of an encoder-decoder's decoder, one for each of --layers.", None, ATTENTION
    )
    num_heads: int | None = option(
        "The attention heads. If left out, measure has 1, predict infinitely many.", None, ATTENTION, called="--heads"
    )
    ffn_ratio: int | None = option("The FFN's width over d_model; 4 if left out.", None, ATTENTION)
    num_tokens: int | None = option(
        "The tokens of a sequence; 16 if left out, 8 for a recipe.", None, ATTENTION, called="--tokens"
    )
    batch_size: int | None = option("The number of sequences; 1 if left out.", None, ATTENTION, called="--batch")
    correlation: float | None = option(
        "The correlation of any two input tokens, from 0 (if left out) to 1.", None, ATTENTION, least=0, most=1
    )
    is_causal: bool = option(
        "Let each token attend to itself and earlier ones only.", None, ATTENTION, called="--causal"
    )
    readout: str | None = option(
        "What is read: a logit of the last token (if left out), or the sum of one of each",
        None,
        ATTENTION,
        known=options.READOUTS,
    )
    loss: str | None = option(
        "What the step lowers: the logit that is read (if left out), or a cross-entropy",
        None,
        ATTENTION,
        known=options.LOSSES,
    )
    num_classes: int | None = option(
        "The number of classes of the cross-entropy; 16 if left out.", None, ATTENTION, called="--classes", least=2
    )

    recipe: Any = option(
        "A published model, such as gpt2 or llama-3, instead of --scheme; `depthlaw schemes` lists all.",
        None,
        BLOCK,
        metavar="NAME",
        read=recipe_named,
        complete=options.recipes,
    )
    has_qk_norm: bool = option("Normalise queries and keys, head by head.", None, BLOCK, called="--qk-norm")
    num_kv_heads: int | None = option(
        "The number of heads of keys and values; as many as --heads if left out.", None, BLOCK, called="--kv-heads"
    )
    has_rotary: bool = option("Rotate queries and keys by their positions.", None, BLOCK, called="--rotary")
    is_parallel: bool = option("Give attention and FFN the same input.", None, BLOCK, called="--parallel")
    logit_softcap: float | None = option("Cap the attention's logits: X tanh(logit / X).", None, BLOCK, **_POSITIVE)
    layer_scale: float | None = option(
        "Put a trained vector on each branch, of entries X at first, instead of the weight.", None, BLOCK, **_POSITIVE
    )
    init_std: float | None = option(
        "The standard deviation of every matrix, instead of Xavier's; gains multiply it.", None, BLOCK, **_POSITIVE
    )
    embedding_std: float | None = option(
        "The standard deviation of an input vector's entries; 1 if left out.", None, BLOCK, **_POSITIVE
    )
    embedding_multiplier: float | None = option("A number that multiplies the inputs.", None, BLOCK, **_POSITIVE)
    is_head_tied: bool = option("Let the head have the embedding's entries.", None, BLOCK, called="--tied-head")
    norm_eps: float | None = option(
        "The eps of the norms, such as 1e-5; 0 if left out, also for a recipe.", None, BLOCK, least=0, most=1e9
    )

    @property
    def is_in_layers(self) -> bool:
        """Whether the depth of one stack was given as layers N, so that answers count these and not sublayers L."""
        return self.layers is not None and self.arch != "encoder-decoder"

    def of_recipe(self, width: int | None) -> tuple[Transformer, int | None]:
        """With what the published model says itself, if one was asked for: it has attention, heads as wide as its own
        or nearly so, and of two stacks equal numbers of layers. width: d_model; its own if None."""
        if (model := self.recipe) is None:
            return self, width
        from depthlaw.recipes.recipe import RECIPE_TOKENS

        if self.arch not in (None, model.arch):
            raise BadInputError(f"--recipe {model.name} is of {model.arch} kind, not --arch {self.arch}")
        width = width or model.size["d_model"]
        with refusing("--width"):
            num_heads = self.num_heads or model.heads_at(width)
        decoder_layers = self.decoder_layers or (self.layers if model.arch == "encoder-decoder" else None)
        # Rotary positions cost as the fourth power of the tokens, and the update changes slowly with them.
        num_tokens, shape = self.num_tokens or RECIPE_TOKENS, {"arch": model.arch, "num_heads": num_heads}
        return replace(self, attention=True, decoder_layers=decoder_layers, num_tokens=num_tokens, **shape), width

    def check_given(self) -> None:
        """Options of a Transformer without --attention are refused."""
        given = [name for name, value in vars(self).items() if value is not None and value is not False]
        if given and not self.attention:
            raise BadInputError(f"{_CALLED[given[0]]} needs --attention: without it the stack has FFNs alone")


_CALLED = options.options_of(Stack) | options.options_of(Transformer)
_SHAPE = ("arch", "num_heads", "ffn_ratio", "num_tokens", "batch_size", "correlation", "readout", "loss", "num_classes")
"""Fields of a ``Network`` that are options of the same name."""
_SAID_BY_RECIPE = {field.name for field in fields(Transformer)} - {
    "attention",
    "layers",
    "decoder_layers",
    "recipe",
    "norm_eps",
}
_SAID_BY_RECIPE -= {*_SHAPE} - {"ffn_ratio"}


def networks(
    stack: Stack, transformer: Transformer, width: int, most: int = MOST_BUILT, most_tokens: int | None = None
) -> list[Network]:
    """One for each length, in the order given. width: d_model. most: sublayers; most_tokens: of all sequences."""
    transformer.check_given()
    recipe = transformer.recipe
    _check_recipe(stack, transformer)
    depths = _depths(stack, transformer, most)
    lists = stack.lists([depth["num_sublayers"] for depth in depths if "num_sublayers" in depth])
    shape = _shape(transformer, width, most_tokens) if transformer.attention else {}
    scheme = stack.chosen_scheme() if recipe is None else recipe.as_scheme

    from depthlaw.network.block import Block
    from depthlaw.network.network import Network

    with refusing():
        given = {field.name: value for field in fields(Block) if (value := getattr(transformer, field.name))}
        asked = [
            Network(
                block=Block(**given),
                recipe=recipe,
                scheme=scheme,
                laws={name: f"{constant},{power}" for name, (constant, power) in stack.given_laws.items()},
                d_model=width,
                activation=stack.activation if recipe is None else recipe.activation,
                norm_kind=stack.norm_kind if recipe is None else recipe.norm_kind,
                **depth,
                **lists,
                **shape,
            )
            for depth in depths
        ]
        for network in asked:
            network.config(stack.optimizer)
    return asked


def _check_recipe(stack: Stack, transformer: Transformer) -> None:
    """A published model says itself what most options would."""
    usual = options.defaults_of(Stack)
    given = [
        name for name, value in vars(stack).items() if name not in ("optimizer", "sublayers") and value != usual[name]
    ]
    given += [name for name, value in vars(transformer).items() if name in _SAID_BY_RECIPE and value]
    if transformer.recipe is not None and given:
        raise BadInputError(f"{_CALLED[given[0]]} does not go with --recipe, which says it itself")


def head_of(network: Network, optimizer: str) -> dict[str, Any]:
    """The head of a document: what a network has in common with those of other depths."""
    from depthlaw.sims.config import NORMALISATION

    common = network.named(optimizer)
    for of_one_depth in ("num_sublayers", "num_layers", "numbers"):
        common.pop(of_one_depth, None)
    left_out = {} if network.recipe is None else {"left_out": network.recipe.leaves_out}
    return {
        "scheme": network.scheme.name,
        **left_out,
        "optimizer": optimizer,
        "activation": network.activation,
        "norm_kind": network.norm_kind,
        "network": common,
        "unit": NORMALISATION[optimizer]._asdict(),
    }


def _depths(stack: Stack, transformer: Transformer, most: int) -> list[dict[str, Any]]:
    layers, decoder_layers, sublayers = transformer.layers, transformer.decoder_layers, stack.sublayers
    if transformer.arch == "encoder-decoder":
        if sublayers is not None or layers is None or decoder_layers is None:
            missing = "" if decoder_layers is not None or layers is None else ": --decoder-layers is missing"
            raise BadInputError(f"an encoder-decoder wants --layers and --decoder-layers, and no --sublayers{missing}")
        options.check_pairs(layers, decoder_layers)
        if stack.w is not None or stack.v is not None:
            raise BadInputError("--w and --v belong to one stack: an encoder-decoder has two")
        if transformer.is_causal:
            raise BadInputError("--causal belongs to one stack: of an encoder-decoder, the decoder is causal as it is")
        depths: list[dict[str, Any]] = [{"num_layers": pair} for pair in zip(layers, decoder_layers, strict=True)]
        lengths, given = [2 * n + 3 * m for n, m in zip(layers, decoder_layers, strict=True)], "--layers"
    else:
        if decoder_layers is not None:
            raise BadInputError("--decoder-layers belongs to --arch encoder-decoder")
        if layers is not None and sublayers is None:
            lengths, given = [2 * n for n in layers], "--layers"
        elif sublayers is not None and layers is None:
            lengths, given = sublayers, "--sublayers"
        else:
            raise BadInputError(
                "give one of --sublayers L and --layers N (blocks of two sublayers each), a list such as 4,8,16"
            )
        depths = [{"num_sublayers": length} for length in lengths]
    if max(lengths) > most:
        text = f"at most {most} are computed (predict without --attention has no such limit)"
        raise BadInputError(f"{given} asks for {max(lengths)} sublayers: {text}")
    return depths


def _shape(transformer: Transformer, d_model: int, most_tokens: int | None) -> dict[str, Any]:
    """Of a ``Network``, what was given; the rest has its defaults."""
    if d_model % (num_heads := transformer.num_heads or 1):
        raise BadInputError(f"--width {d_model} is not a multiple of --heads {num_heads}")
    num_tokens, batch_size = transformer.num_tokens or 16, transformer.batch_size or 1
    if most_tokens is not None and num_tokens * batch_size > most_tokens:
        raise BadInputError(
            f"--tokens {num_tokens} times --batch {batch_size} is {num_tokens * batch_size}: a prediction takes at "
            f"most {most_tokens} tokens in all; with --readout last it changes slowly with their number: compare "
            "--tokens 4 and --tokens 16"
        )
    if transformer.num_classes is not None and transformer.loss != "ce":
        raise BadInputError("--classes belongs to --loss ce: a logit has none")
    given = {name: value for name in _SHAPE if (value := getattr(transformer, name)) is not None}
    return {"arch": "encoder", **given, "is_causal": transformer.is_causal or transformer.arch == "decoder"}


# ---------------------------------------------------------------- the command


def run(
    stack: Stack,
    transformer: Transformer,
    width: int | None = option(
        "The width d_model, for the size of a head and the shares of the update; else infinite.",
        None,
        ATTENTION,
        most=100_000,
    ),
    roles: bool = options.ROLES,
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
    """
    # Everything that can be checked is checked before sympy is imported.
    transformer, width = transformer.of_recipe(width)
    transformer.check_given()
    if precise and not transformer.attention:
        raise BadInputError("--precise needs --attention: without it the prediction is exact as it is")
    if transformer.attention:
        answer = _of_transformers(stack, transformer, width, is_precise=precise)
    else:
        answer = _of_stacks(stack, width)
    if plot is not None:
        from depthlaw.paper_checks.pages.plots import Shown, update_against_depth

        units = answer.get("role_units") or dict.fromkeys(answer["rows"][0]["roles"], 0.0)
        shown = Shown(answer["rows"], units if roles else {}, width)
        update_against_depth(shown, title(answer), "", plot, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
        return
    page = Page()
    if transformer.attention:
        _show_transformers(page, answer, has_roles=roles, is_in_layers=transformer.is_in_layers)
    else:
        _show_stacks(page, answer)
    page.wrote(plot)


def _of_stacks(stack: Stack, width: int | None) -> dict[str, Any]:
    if width is not None:
        raise BadInputError("--width needs --attention: without it the prediction is at infinite width")
    if stack.sublayers is None:
        raise BadInputError("--sublayers is wanted: a list of residual sublayers, such as 4,8,16")
    lists = stack.lists(stack.sublayers)
    if stack.activation not in options.names(options.ACTIVATIONS):
        raise BadInputError(
            f"--activation {stack.activation}, a gated FFN, needs --attention (allowed: {options.ACTIVATIONS})"
        )
    chosen = stack.chosen_scheme()

    from depthlaw.network.predicted_rows import leading_order, predicted_row
    from depthlaw.theory.meanfield.setting import HOLDS, Setting
    from depthlaw.theory.meanfield.update import predict_setting

    with refusing():
        setting = Setting.of(chosen, stack.optimizer, stack.activation, stack.norm_kind)
        rows = [predict_setting(setting, length, **lists) for length in stack.sublayers]
    return document(
        scheme=chosen.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=chosen.stack.norm_function or stack.norm_kind,
        rows=[{"num_sublayers": row.num_sublayers, **predicted_row(row)} for row in rows],
        leading_order=None if lists else leading_order(setting),
        holds=HOLDS,
    )


def _of_transformers(stack: Stack, transformer: Transformer, width: int | None, *, is_precise: bool) -> dict[str, Any]:
    """Everything that can be wrong with the input is said before anything is predicted."""
    has_wide_heads = transformer.num_heads is None
    if not has_wide_heads and width is None:
        raise BadInputError("--heads needs --width: their ratio is the size of a head, infinite without the two")
    asked = [
        replace(network, has_wide_heads=has_wide_heads)
        for network in networks(stack, transformer, width or _ANY_WIDTH, MOST_WALKED, MOST_TOKENS)
    ]
    with counted("predicting", sum(2 * network.depth for network in asked)) as advance, refusing():
        effort = 1.0 if is_precise else _EFFORT[transformer.loss or "logit"]
        predictions = [network.theory(stack.optimizer, advance, effort=effort) for network in asked]

    from depthlaw.network.predicted_rows import (
        are_power_laws,
        exponents,
        lr_multipliers,
        predicted_row,
        shares,
    )

    first, head = asked[0], head_of(asked[0], stack.optimizer)
    head["network"] |= ({"d_model": None} if width is None else {}) | ({"num_heads": None} if has_wide_heads else {})
    rows = [
        {**network.lengths, **predicted_row(prediction)} for network, prediction in zip(asked, predictions, strict=True)
    ]
    units = {role: first.role_power(stack.optimizer, role) for row in rows for role in row["roles"]}
    return document(
        **head,
        rows=rows,
        leading_order=NO_ORDER,
        exponents=exponents(rows),
        is_power_law=are_power_laws(rows),
        lr_multiplier=lr_multipliers(rows),
        role_units=units,
        shares={} if width is None else shares(rows, units, width),
        holds=predictions[0].holds,
    )


# ---------------------------------------------------------------- words, of what is measured too

_IN_TITLE = ("scheme", "optimizer", "arch", "d_model", "activation", "norm_kind", "w", "v")
ROLES_OF_KINDS = {
    "attention": ("q", "k", "v", "out"),
    "cross": ("cross_q", "cross_k", "cross_v", "cross_out"),
    "ffn": ("fc1", "fc2", "fc3"),
}
"""The matrices that an update sums, by kind of sublayer."""


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    arch = answer.get("network", {}).get("arch", "ffn")
    names = (f"{answer['scheme']} under {answer['optimizer']}", answer["activation"], answer["norm_kind"])
    return ", ".join(names if arch == "ffn" else (*names, arch))


def rest(network: Mapping[str, Any]) -> str:
    """What the title does not say: a scheme of one's own, heads, tokens, ..."""
    texts = []
    for name, value in network.items():
        if name not in _IN_TITLE and value is not None and value is not False:
            word = name.removeprefix("is_").removeprefix("has_").removeprefix("num_").replace("_", " ")
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            texts.append(word if value is True else f"{word} {shown}")
    return "; ".join(texts)


def depth_cells(row: Mapping[str, Any], *, is_in_layers: bool) -> dict[str, str]:
    """The depth by column: layers stand beside sublayers L where they were given."""
    depth = {"L": str(row["num_sublayers"])}
    if "num_layers" in row:
        return {"layers": f"{row['num_layers']}-{row['num_decoder_layers']}"} | depth
    return {"layers": str(row["num_sublayers"] // 2)} | depth if is_in_layers else depth


def update_text(answer: Mapping[str, Any]) -> str:
    """What the numbers are."""
    objective = "one logit"
    if answer["network"].get("loss") == "ce":
        objective = "the loss"
    elif answer["network"].get("readout") == "sum":
        objective = "the sum of a logit of each token"
    return (
        f"L: residual sublayers; N: layers. update: what a first step of the branch matrices changes {objective} "
        f"by, to first order, per unit learning rate, divided by {unit_text(answer)}."
    )


def unit_text(answer: Mapping[str, Any]) -> str:
    """A power of the width, which makes it O(1)."""
    power, constant = answer["unit"]["power"], answer["unit"]["constant"]
    return ("" if constant == 1 else f"{constant:g} ") + _power_of_width(power)


def _power_of_width(power: float) -> str:
    return "d_model" + ("" if power == 1 else f"^{power:g}")


def others_text(role_units: Mapping[str, float]) -> str:
    """Roles beside the branch matrices, and the power of the width that each is multiplied by; empty without any."""
    branches = {role for kind in ROLES_OF_KINDS.values() for role in kind}
    others = [role for role in role_units if role not in branches]
    if not others:
        return ""
    text = f"Not in update: {', '.join(others)}."
    for power in sorted({role_units[role] for role in others} - {0}):
        roles = ", ".join(role for role in others if role_units[role] == power)
        text += f" Shown times {_power_of_width(power)}: {roles}."
    return text


def finite_width_text(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """How large L/d is, of whose order the error of a prediction at infinite width is."""
    last = max(row["num_sublayers"] for row in rows)
    return f"L/d is {last / width:.2g} for L = {last} at d = {width}."


def error_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The largest of the kernel rung's own errors."""
    errors = [value for row in rows for value in row["error"].values() if value is not None]
    return f"Standard error of its quasi-random points: {100 * max(errors, default=0):.2g} % at most."


def left_out_text(answer: Mapping[str, Any]) -> str:
    """Empty where nothing is."""
    return f"Left out of {answer['scheme']}: {answer['left_out']}." if answer.get("left_out") else ""


def admin_text(answer: Mapping[str, Any]) -> str:
    """Empty of other networks."""
    if answer["scheme"] != "admin" or answer["network"]["arch"] == "ffn":
        return ""
    return "admin: its residual weights are those of attention to equal tokens; profiled on these it would be less."


# ---------------------------------------------------------------- stacks, for people

_LONG = 20
"""Characters of a cell that people read as they are."""


def _show_stacks(page: Page, answer: Mapping[str, Any]) -> None:
    roles = list(answer["rows"][0]["roles"])

    def line(row: Mapping[str, Any]) -> list[str]:
        update = f"{row['update']:.6g}" if row["update"] is not None else f"10^{row['log10_update']:.6g}"
        values = ("beyond" if row["roles"][role] is None else f"{row['roles'][role]:.6g}" for role in roles)
        return [str(row["num_sublayers"]), update, *values]

    page.show_whole([grid(["sublayers", "update", *roles], map(line, answer["rows"]), title=title(answer))])
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
        if order["next_term"] is not None:
            page.say(f"Next term, {order['next_term_is']}: {order['next_term']}")
        page.say(f"Shown by: {order['shown_by']}", "dim")
    page.say(f"Holds at {answer['holds']}.", "dim")


def rounded(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Cells for people: a number that is long as an exact text, or has many digits, to a few of them.

    >>> from depthlaw.cli.predict import rounded
    >>> exact = {"coefficient": "51.8535939745012338126239575864", "power": "oo", "growth": "exp((log(1 + 1/40)/2)*L)"}
    >>> rounded(exact)
    {'coefficient': '51.8536', 'power': 'oo', 'growth': 'exp(0.0123 L)'}
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


# ---------------------------------------------------------------- Transformers, for people

_COLUMNS = 4
"""Of a table of roles in a terminal that is too narrow for all of them."""
_BENDS = "bends"


def _show_transformers(page: Page, answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> None:
    """is_in_layers: depths are shown as layers N, as they were given, beside sublayers L."""
    rows = answer["rows"]
    depths = [depth_cells(row, is_in_layers=is_in_layers) for row in rows]
    page.say(title(answer), "bold")
    page.say(rest(answer["network"]), "dim")
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
    for line in filter(None, (admin_text(answer), left_out_text(answer))):
        page.say(line)


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
    yield update_text(answer)
    if has_roles:
        yield from _meaning_of_roles(answer)
    if any(_exponent(answer, role) == _BENDS for role in roles):
        yield f"{_BENDS}: no power law over these depths, which is off by a fifth or more at one of them."
    correction = "" if width is None else f" {finite_width_text(rows, width)}"
    yield f"Holds at {answer['holds']}.{correction} {error_text(rows)}"


def _meaning_of_roles(answer: Mapping[str, Any]) -> Iterator[str]:
    if line := others_text(answer["role_units"]):
        yield line
    if answer["optimizer"] == "muon":
        yield (
            "muon alone moves vectors by the signs of their gradients, at the matrices' learning rate. As people run "
            "it, AdamW moves all but the branch matrices: --optimizer muon+adamw."
        )
    if len(answer["rows"]) > 1:
        yield (
            "exponent: of the role in the depth, by least squares over all depths asked for. lr ×: times this, a "
            "learning rate of the role alone keeps its part at the last depth what it is at the first; above 1, to "
            "leave it is safe. What else does (branch weights, another init), ranked: depthlaw advise."
        )
    if answer["shares"]:
        yield (
            f"share: of the role beside the matrices' update, at d_model {answer['network']['d_model']} and the last "
            "depth, powers of the width undone: where it is small, its learning rate does not matter."
        )
    else:
        yield "Add --width D for each role's share of the update at that width."
