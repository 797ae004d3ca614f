"""``depthlaw predict``: the mean field of a named scheme, or of one's own; with --attention the kernel rung.

Which networks are asked about, and what is said of their numbers, is the same for ``depthlaw measure``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from paper_checks.cli.options import (
    ACTIVATIONS,
    ANY_ACTIVATION,
    ARCHITECTURES,
    GATED,
    LOSSES,
    PLACEMENTS,
    READOUTS,
    BadInputError,
    Json,
    NormKind,
    Optimizer,
    Plot,
    Roles,
    between,
    count,
    counts,
    flag,
    gains,
    named,
    names,
    option,
    power_law,
    recipes,
    refusing,
    scheme_name,
    schemes,
)
from paper_checks.cli.output import Page, counted, grid, print_json
from paper_checks.system.files import document

if TYPE_CHECKING:
    from paper_checks.lowering.networks import Network
    from paper_checks.recipes.recipe import Recipe
    from theory.meanfield.setting import Prediction
    from theory.schemes import Scheme

EXAMPLES = (
    "predict --scheme sub-ln --optimizer sgd --sublayers 8,64,512,1000000000",
    "predict --norm post --residual-weight 1,1/4 --gain 0.7,-1/4 --optimizer adam --sublayers 8,64",
    "predict --scheme deepnorm --optimizer adam --layers 6,12,24,48 --attention --roles --plot deepnorm.svg",
    "predict --recipe llama-3 --optimizer adamw --layers 16,32,64 --width 1024 --roles",
)
MOST_TOKENS = 256
"""As ``theory.kernel.setting`` has it, without its imports."""
_ANY_WIDTH = 64
"""Without --width only ratios to it are read."""
_ORDER = ("coefficient", "power", "log_power", "loglog_power", "growth", "next_term")
NO_ORDER = dict.fromkeys(_ORDER) | {"shown_by": "not derived: the kernel rung is numerical; see exponents"}


# ---------------------------------------------------------------- which networks are asked about


class Limit(NamedTuple):
    """The most sublayers, and of what; the most tokens, all sequences together."""

    most: int
    text: str
    most_tokens: int | None = None


_BUILT = Limit(100_000, "a network that is built (predict without --attention has no such limit)")
_WALKED = Limit(10_000, "--attention, which goes through them one by one (predict without it does not)", MOST_TOKENS)
ATTENTION = "With --attention"
BLOCK = "With --attention: blocks that people train"
_LAWS = ("residual_weight", "branch_weight", "gain")


def _law(letters: str) -> Any:
    return option(f"With --norm: {letters} = C L^P.", "C,P", read=power_law)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Options of an FFN-only stack. A law is (C, P), for C L^P."""

    optimizer: Optimizer
    sublayers: Annotated[
        list[int] | None, option("Residual sublayers L, comma-separated: 4,8,16.", "LIST", read=counts)
    ] = None
    scheme: Annotated[
        str | None,
        option("A named scheme; `depthlaw schemes` lists them.", "NAME", complete=schemes, read=scheme_name),
    ] = None
    activation: Annotated[str, named(f"{ACTIVATIONS}; with --attention {GATED}, too.", ANY_ACTIVATION)] = "relu"
    norm_kind: NormKind = "layernorm"
    w: Annotated[tuple[float, ...] | None, option("Gains of W1 by sublayer: a list, or @FILE.", "LIST", read=gains)] = (
        None
    )
    v: Annotated[tuple[float, ...] | None, option("Gains of W2 by sublayer: a list, or @FILE.", "LIST", read=gains)] = (
        None
    )
    norm: Annotated[str | None, named(f"A scheme of one's own: {PLACEMENTS}.", PLACEMENTS)] = None
    residual_weight: Annotated[tuple[Fraction, Fraction] | None, _law("a")] = None
    branch_weight: Annotated[tuple[Fraction, Fraction] | None, _law("b")] = None
    gain: Annotated[tuple[Fraction, Fraction] | None, _law("the gains w = v")] = None

    @property
    def given_laws(self) -> dict[str, tuple[Fraction, Fraction]]:
        return {name: law for name in _LAWS if (law := getattr(self, name)) is not None}

    def lists(self, lengths: Sequence[int]) -> dict[str, tuple[float, ...]]:
        """--w and --v, where they are given; lengths: L of each network."""
        given = {name: numbers for name, numbers in (("w", self.w), ("v", self.v)) if numbers is not None}
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

        from theory.schemes import custom_scheme, scheme

        with refusing("--norm" if self.scheme is None else "--scheme"):
            if self.scheme is not None:
                chosen = scheme(self.scheme)
                if chosen.stack.norm_function and self.norm_kind != Stack.norm_kind:
                    raise BadInputError(f"--norm-kind does not go with {chosen.name}, which has no norm")
                return chosen
            return custom_scheme(str(self.norm), **self.given_laws)


def _size(text: str, metavar: str, least: int = 1) -> Any:
    return option(text, metavar, ATTENTION, read=count, least=least, most=1_000_000)


def _positive(text: str, metavar: str) -> Any:
    return option(text, metavar, BLOCK, read=between, least=1e-9, most=1e9)


def recipe_name(text: str, option: str) -> str:
    from paper_checks.recipes.catalogue import recipe

    with refusing(option):
        return recipe(text.lower()).name


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Options of a real Transformer; they need --attention."""

    attention: Annotated[bool, flag("--attention", "A Transformer: attention and FFN in turn.", ATTENTION)] = False
    arch: Annotated[
        str | None,
        named("encoder (if left out), decoder (causal) or encoder-decoder.", ARCHITECTURES, ATTENTION),
    ] = None
    layers: Annotated[
        list[int] | None,
        option("Layers N of two sublayers each, instead of --sublayers: 6,12.", "LIST", ATTENTION, read=counts),
    ] = None
    decoder_layers: Annotated[
        list[int] | None,
        option("Layers M of an encoder-decoder's decoder, one for each of --layers.", "LIST", ATTENTION, read=counts),
    ] = None
    heads: Annotated[
        int | None, _size("Attention heads; left out, measure has 1 and predict infinitely many large ones.", "H")
    ] = None
    ffn_ratio: Annotated[int | None, _size("FFN width over d_model; 4 if left out.", "R")] = None
    tokens: Annotated[
        int | None,
        _size("Tokens of a sequence; 16 if left out, 8 of a recipe. A prediction changes slowly with them.", "T"),
    ] = None
    batch: Annotated[int | None, _size("Sequences of the batch; 1 if left out.", "B")] = None
    correlation: Annotated[
        float | None,
        option("Of any two input tokens; 0 if left out, 1 at most.", "C", ATTENTION, read=between, least=0, most=1),
    ] = None
    causal: Annotated[bool, flag("--causal", "Each token attends to earlier ones only.", ATTENTION)] = False
    readout: Annotated[
        str | None,
        named("last (if left out): a logit of the last token. sum: of each token one, summed.", READOUTS, ATTENTION),
    ] = None
    loss: Annotated[
        str | None,
        named("What the step makes smaller: logit (if left out), or ce, a cross-entropy.", LOSSES, ATTENTION),
    ] = None
    classes: Annotated[int | None, _size("Classes of the cross-entropy; 16 if left out.", "C", least=2)] = None

    recipe: Annotated[
        str | None,
        option(
            "A published model instead of --scheme, with attention; see `depthlaw schemes`.",
            "NAME",
            BLOCK,
            recipes,
            recipe_name,
        ),
    ] = None
    qk_norm: Annotated[bool, flag("--qk-norm", "Norms of queries and keys, head by head.", BLOCK)] = False
    kv_heads: Annotated[int | None, _size("Heads of keys and values; as many as --heads if left out.", "K")] = None
    rotary: Annotated[bool, flag("--rotary", "Rotary positions.", BLOCK)] = False
    parallel: Annotated[bool, flag("--parallel", "Attention and FFN side by side, of one input.", BLOCK)] = False
    logit_softcap: Annotated[float | None, _positive("Logits capped: C tanh(logit / C).", "C")] = None
    layer_scale: Annotated[
        float | None, _positive("A trained vector on each branch, S at first, in place of the branch weight.", "S")
    ] = None
    init_std: Annotated[
        float | None, _positive("Standard deviation of every matrix, instead of Xavier's; gains multiply it.", "S")
    ] = None
    embedding_std: Annotated[float | None, _positive("Of an entry of the input vectors; 1 if left out.", "S")] = None
    embedding_multiplier: Annotated[float | None, _positive("What input vectors are multiplied by.", "C")] = None
    tied_head: Annotated[bool, flag("--tied-head", "The head has the embedding's entries.", BLOCK)] = False

    @property
    def is_in_layers(self) -> bool:
        """Whether the depth of one stack was given as layers N, so that answers count these and not sublayers L."""
        return self.layers is not None and self.arch != "encoder-decoder"

    def of_recipe(self, width: int | None) -> tuple[Transformer, int | None]:
        """With what the published model says itself, if one was asked for: it has attention, heads as wide as its own
        or nearly so, and of two stacks equal numbers of layers. width: d_model; its own if None."""
        if self.recipe is None:
            return self, width
        from paper_checks.recipes.catalogue import recipe
        from paper_checks.recipes.recipe import RECIPE_TOKENS

        model = recipe(self.recipe)
        if self.arch not in (None, model.arch):
            raise BadInputError(f"--recipe {model.name} is of {model.arch} kind, not --arch {self.arch}")
        width = model.size["d_model"] if width is None else width
        heads = model.heads_at(width) if self.heads is None else self.heads
        if heads is None:
            raise BadInputError(f"--recipe {model.name} has no number of heads that divides --width {width}")
        has_two = model.arch == "encoder-decoder" and self.decoder_layers is None
        decoder_layers = self.layers if has_two else self.decoder_layers
        # Rotary positions cost as the third power of the tokens, and the update changes slowly with them.
        tokens = RECIPE_TOKENS if self.tokens is None else self.tokens
        own = {
            "arch": model.arch,
            "heads": heads,
            "decoder_layers": decoder_layers,
            "tokens": tokens,
            "attention": True,
        }
        return replace(self, **own), width

    def check_given(self) -> None:
        """Options of a Transformer without --attention are refused."""
        given = [name for name, value in vars(self).items() if value is not None and value is not False]
        if given and not self.attention:
            raise BadInputError(
                f"--{given[0].replace('_', '-')} needs --attention: without it the stack has FFNs alone"
            )


_BLOCK_FIELDS = {
    "qk_norm": "has_qk_norm",
    "kv_heads": "num_kv_heads",
    "rotary": "has_rotary",
    "parallel": "is_parallel",
    "logit_softcap": "logit_softcap",
    "layer_scale": "layer_scale",
    "init_std": "init_std",
    "embedding_std": "embedding_std",
    "embedding_multiplier": "embedding_multiplier",
    "tied_head": "is_head_tied",
}
"""Of a ``Block``, by the option of a Transformer that sets it."""
_FIELDS = {
    "arch": "arch",
    "heads": "num_heads",
    "ffn_ratio": "ffn_ratio",
    "tokens": "num_tokens",
    "batch": "batch_size",
    "correlation": "correlation",
    "readout": "readout",
    "loss": "loss",
    "classes": "num_classes",
}
"""Of a ``Network``, by the option of a Transformer that sets it."""


def networks(stack: Stack, transformer: Transformer, width: int, limit: Limit = _BUILT) -> list[Network]:
    """One for each length, in the order given. width: d_model."""
    transformer.check_given()
    recipe = _recipe(stack, transformer)
    depths = _depths(stack, transformer, limit)
    lists = stack.lists([depth["num_sublayers"] for depth in depths if "num_sublayers" in depth])
    shape = _shape(transformer, width, limit) if transformer.attention else {}
    scheme = stack.chosen_scheme() if recipe is None else recipe.as_scheme

    from paper_checks.lowering.block import Block
    from paper_checks.lowering.networks import Network

    with refusing():
        options = {field: value for name, field in _BLOCK_FIELDS.items() if (value := getattr(transformer, name))}
        asked = [
            Network(
                block=Block(**options),
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


def _recipe(stack: Stack, transformer: Transformer) -> Recipe | None:
    """The published model that was asked for, which says itself what most options would."""
    if transformer.recipe is None:
        return None
    from paper_checks.recipes.catalogue import recipe

    found = recipe(transformer.recipe)
    of_scheme = ("scheme", "norm", "w", "v", *_LAWS)
    given = [name for name in of_scheme if getattr(stack, name) is not None]
    given += [name for name in ("activation", "norm_kind") if getattr(stack, name) != getattr(Stack, name)]
    given += [name for name in ("ffn_ratio", "causal", *_BLOCK_FIELDS) if getattr(transformer, name)]
    if given:
        raise BadInputError(f"--{given[0].replace('_', '-')} does not go with --recipe, which says it itself")
    return found


def in_common(network: Network, optimizer: str) -> dict[str, Any]:
    """What a network has in common with those of other depths, named."""
    of_one_depth = ("num_sublayers", "num_layers", "numbers")
    return {name: value for name, value in network.named(optimizer).items() if name not in of_one_depth}


def _depths(stack: Stack, transformer: Transformer, limit: Limit) -> list[dict[str, Any]]:
    layers, decoder_layers, sublayers = transformer.layers, transformer.decoder_layers, stack.sublayers
    if transformer.arch == "encoder-decoder":
        if sublayers is not None or layers is None or decoder_layers is None:
            raise BadInputError("an encoder-decoder wants --layers and --decoder-layers, and no --sublayers")
        if len(layers) != len(decoder_layers):
            raise BadInputError(
                f"--layers has {len(layers)} entries and --decoder-layers {len(decoder_layers)}: pair them"
            )
        if stack.w is not None or stack.v is not None:
            raise BadInputError("--w and --v belong to one stack: an encoder-decoder has two")
        if transformer.causal:
            raise BadInputError("--causal belongs to one stack: of an encoder-decoder, the decoder is causal as it is")
        pairs = list(zip(layers, decoder_layers, strict=True))
        _check_lengths((2 * n + 3 * m for n, m in pairs), "--layers with --decoder-layers", limit)
        return [{"num_layers": pair} for pair in pairs]
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
    _check_lengths(lengths, given, limit)
    return [{"num_sublayers": length} for length in lengths]


def _check_lengths(lengths: Iterable[int], option: str, limit: Limit) -> None:
    for length in lengths:
        if length > limit.most:
            raise BadInputError(f"{option} asks for {length} sublayers: at most {limit.most} has {limit.text}")


def _shape(transformer: Transformer, d_model: int, limit: Limit) -> dict[str, Any]:
    """Of a ``Network``, what was given; the rest has its defaults."""
    if d_model % (num_heads := transformer.heads or 1):
        raise BadInputError(f"--width {d_model} is not a multiple of --heads {num_heads}")
    num_tokens, batch_size = transformer.tokens or 16, transformer.batch or 1
    if limit.most_tokens is not None and num_tokens * batch_size > limit.most_tokens:
        raise BadInputError(
            f"--tokens {num_tokens} times --batch {batch_size} is {num_tokens * batch_size}: a prediction takes at "
            f"most {limit.most_tokens} tokens in all; with --readout last it changes slowly with their number: compare "
            "--tokens 4 and --tokens 16"
        )
    if transformer.classes is not None and transformer.loss != "ce":
        raise BadInputError("--classes belongs to --loss ce: a logit has none")
    given = {field: value for name, field in _FIELDS.items() if (value := getattr(transformer, name)) is not None}
    return {"arch": "encoder", **given, "is_causal": transformer.causal or transformer.arch == "decoder"}


# ---------------------------------------------------------------- the command


def run(
    stack: Stack,
    transformer: Transformer,
    width: Annotated[
        int | None,
        option(
            "d_model, for the size of a head; the prediction is at infinite width.",
            "D",
            ATTENTION,
            read=count,
            most=100_000,
        ),
    ] = None,
    roles: Roles = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """The update in one optimizer step, at infinite width and with no fitted constant.

    Without --attention the network is that of the theorems, an FFN-only stack
    with one input: exact at any depth, and its leading order in L. With it, a
    real Transformer by role (q, k, v, out, fc1, fc2, biases, norms, embedding,
    head): how each grows with depth, and what learning rate would undo it.
    """
    # Everything that can be checked is checked before sympy is imported.
    transformer, width = transformer.of_recipe(width)
    transformer.check_given()
    answer = _of_transformers(stack, transformer, width) if transformer.attention else _of_stacks(stack, width)
    if plot is not None:
        from paper_checks.pages.plots import Shown, update_against_depth

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
    if stack.activation in names(GATED):
        raise BadInputError(f"--activation {stack.activation}, a gated FFN, needs --attention (allowed: {ACTIVATIONS})")
    chosen = stack.chosen_scheme()

    from paper_checks.lowering.predicted_rows import leading_order, predicted_row
    from theory.meanfield.setting import HOLDS, Setting
    from theory.meanfield.update import predict_setting

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


def _of_transformers(stack: Stack, transformer: Transformer, width: int | None) -> dict[str, Any]:
    """Everything that can be wrong with the input is said before anything is predicted."""
    if transformer.heads is not None and width is None:
        raise BadInputError("--heads needs --width: their ratio is the size of a head, infinite without the two")
    asked = [
        replace(network, has_wide_heads=transformer.heads is None)
        for network in networks(stack, transformer, width or _ANY_WIDTH, _WALKED)
    ]
    with counted("predicting", sum(2 * network.depth for network in asked)) as advance, refusing():
        predictions = [network.theory(stack.optimizer, advance) for network in asked]
    return _document(stack, asked, predictions, has_width=width is not None)


def _document(
    stack: Stack, asked: Sequence[Network], predictions: Sequence[Prediction], *, has_width: bool
) -> dict[str, Any]:
    from paper_checks.lowering.predicted_rows import are_power_laws, exponents, lr_multipliers, predicted_row, shares
    from sims.optim import NORMALISATION

    first = asked[0]
    infinite = ({} if has_width else {"d_model": None}) | ({"num_heads": None} if first.has_wide_heads else {})
    rows = [
        {**network.lengths, **predicted_row(prediction)} for network, prediction in zip(asked, predictions, strict=True)
    ]
    roles = dict.fromkeys(role for row in rows for role in row["roles"])
    units = {role: first.role_power(stack.optimizer, role) for role in roles}
    return document(
        scheme=first.scheme.name,
        optimizer=stack.optimizer,
        activation=first.activation,
        norm_kind=first.norm_kind,
        network=in_common(first, stack.optimizer) | infinite,
        unit=NORMALISATION[stack.optimizer]._asdict(),
        rows=rows,
        leading_order=NO_ORDER,
        exponents=exponents(rows),
        is_power_law=are_power_laws(rows),
        lr_multiplier=lr_multipliers(rows),
        role_units=units,
        shares=shares(rows, units, first.d_model) if has_width else {},
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
    # Of an encoder-decoder one side is causal and the other is not, as always.
    left_out = {*_IN_TITLE, *(["is_causal"] if network["arch"] == "encoder-decoder" else [])}
    said = {name: value for name, value in network.items() if name not in left_out and value is not None}
    words = {name: name.removeprefix("is_").removeprefix("num_").replace("_", " ") for name in said}
    return "; ".join(f"{words[name]} {_plain(value)}" for name, value in said.items())


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def depth_columns(rows: Sequence[Mapping[str, Any]], *, is_in_layers: bool) -> list[str]:
    """Layers stand beside sublayers where they were given."""
    return ["layers", "L"] if is_in_layers or "num_layers" in rows[0] else ["L"]


def depth_cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    return [layers_of(row) if name == "layers" else str(row["num_sublayers"]) for name in columns]


def layers_of(row: Mapping[str, Any]) -> str:
    """Of a row of one stack, given as layers of two sublayers each, or of an encoder-decoder."""
    if "num_layers" in row:
        return f"{row['num_layers']}-{row['num_decoder_layers']}"
    return str(row["num_sublayers"] // 2)


def update_text(answer: Mapping[str, Any]) -> str:
    """What the numbers are."""
    objective = "one logit"
    if answer["network"].get("loss") == "ce":
        objective = "the loss"
    elif answer["network"].get("readout") == "sum":
        objective = "the sum of a logit of each token"
    return (
        f"L: residual sublayers. update: what a first step of the branch matrices changes {objective} by, to first "
        f"order, per unit learning rate, divided by {unit_text(answer)}."
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

    >>> from paper_checks.cli.predict import rounded
    >>> exact = {"coefficient": "51.8535939745012338126239575864", "power": "oo", "growth": "exp((log(1 + 1/40)/2)*L)"}
    >>> rounded(exact)
    {'coefficient': '51.8536', 'power': 'oo', 'growth': 'exp(0.0123 L)'}
    """
    from sympy import sympify

    from paper_checks.routes.checks import short_growth

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
    front = cells["coefficient"]
    if front is not None and front != "1" and (" + " in front or " - " in front):
        front = f"({front})"
    factors = [] if front in (None, "1") else [front]
    for name, base in (("power", letter), ("log_power", f"log({letter})"), ("loglog_power", f"log(log({letter}))")):
        exponent = cells[name]
        if exponent not in ("0", "oo"):
            power = exponent if exponent.replace(".", "").isdigit() else f"({exponent})"
            factors.append(base if exponent == "1" else f"{base}**{power}")
    if cells["growth"] is not None:
        factors.append(cells["growth"])
    return " * ".join(factors) or "1"


# ---------------------------------------------------------------- Transformers, for people

_SHOWN_DEPTHS = 4
"""In a terminal that is too narrow for all."""
_BENDS = "bends"
Column = tuple[str, Callable[[str], str]]
"""Its head, and the cell of a role."""


def _show_transformers(page: Page, answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> None:
    """is_in_layers: depths are shown as layers N, as they were given, and not as sublayers L."""
    page.say(title(answer), "bold")
    page.say(rest(answer["network"]), "dim")
    hidden = 0
    if has_roles:
        hidden = _show_roles(page, answer, is_in_layers=is_in_layers)
    else:
        page.show_whole([_updates(answer["rows"], is_in_layers=is_in_layers)])
    if is_in_layers:
        page.say("N: layers of two sublayers each, L = 2 N.", "dim")
    for line in _meaning(answer, hidden, has_roles=has_roles):
        page.say(line, "dim")
    if not has_roles and (exponent := answer["exponents"]["update"]) is not None:
        bends = answer["is_power_law"]["update"] is False
        ending = ", but no power law: it bends, and the exponent with it." if bends else "."
        page.say(f"Exponent in {'N' if is_in_layers else 'L'}, over these: {_exponent(exponent)}{ending}")
    if line := admin_text(answer):
        page.say(line)


def _updates(rows: Sequence[Mapping[str, Any]], *, is_in_layers: bool) -> Any:
    depth = depth_columns(rows, is_in_layers=is_in_layers)
    return grid([*depth[:-1], "sublayers", "update"], ([*depth_cells(r, depth), _number(r["update"], 6)] for r in rows))


def _show_roles(page: Page, answer: Mapping[str, Any], *, is_in_layers: bool) -> int:
    """A line for each role, in one table; or in two, the updates at each depth and what they say together.

    Every depth, where the terminal is wide enough or nobody looks at one; else a few of them. Returns how many are not
    shown.
    """
    together = _together(answer)

    def ways(shown: Sequence[int]) -> list[list[Any]]:
        by_depth = _by_depth(answer, shown, is_in_layers=is_in_layers)
        whole = [_roles_table(answer, [*by_depth, *together])]
        return [whole, [_roles_table(answer, by_depth), _roles_table(answer, together)]] if together else [whole]

    every = range(len(answer["rows"]))
    few = _evenly(len(every), _SHOWN_DEPTHS)
    if sys.stdout.isatty() and not page.fits(*ways(every)):
        page.show_whole(*ways(few))
        return len(every) - len(few)
    page.show_whole(*ways(every))
    return 0


def _roles_table(answer: Mapping[str, Any], columns: Sequence[Column]) -> Any:
    from paper_checks.lowering.predicted_rows import by_role

    update, *roles = ([role, *(cell(role) for _, cell in columns)] for role in by_role(answer["rows"]))
    return grid(["role", *(name for name, _ in columns)], [update, None, *roles], texts=["role"])


def _by_depth(answer: Mapping[str, Any], shown: Iterable[int], *, is_in_layers: bool) -> list[Column]:
    """The update of each role in the rows that are shown."""
    from paper_checks.lowering.predicted_rows import by_role

    rows = answer["rows"]
    values = by_role(rows)

    def column(index: int) -> Column:
        row = rows[index]
        depth = f"N = {layers_of(row)}" if is_in_layers else f"L = {row['num_sublayers']}"
        return layers_of(row) if "num_layers" in row else depth, lambda role: _number(values[role][index], 4)

    return [column(index) for index in shown]


def _together(answer: Mapping[str, Any]) -> list[Column]:
    """What all depths say of a role."""
    from paper_checks.lowering.predicted_rows import percent

    columns: list[Column] = []
    if len(answer["rows"]) > 1:
        columns += [
            ("exponent", lambda role: _fitted(answer, role)),
            ("lr ×", lambda role: _number(answer["lr_multiplier"].get(role, [None])[-1], 3)),
        ]
    if answer["shares"]:
        columns.append(("share", lambda role: "" if role == "update" else percent(answer["shares"][role][-1])))
    return columns


def _fitted(answer: Mapping[str, Any], role: str) -> str:
    return _BENDS if answer["is_power_law"][role] is False else _exponent(answer["exponents"][role])


def _evenly(num: int, most: int) -> list[int]:
    """Indices below ``num``, the first and the last among them."""
    if num <= most:
        return list(range(num))
    return [round(index * (num - 1) / (most - 1)) for index in range(most)]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _exponent(value: float | None) -> str:
    """Rounding leaves -1e-17 of what is flat."""
    return "-" if value is None else f"{value:z.3f}"


def _meaning(answer: Mapping[str, Any], hidden: int, *, has_roles: bool) -> Iterator[str]:
    """hidden: how many depths are not shown."""
    rows, width = answer["rows"], answer["network"]["d_model"]
    yield update_text(answer)
    if has_roles:
        yield from _meaning_of_roles(answer, hidden)
    correction = "" if width is None else f" {finite_width_text(rows, width)}"
    yield f"Holds at {answer['holds']}.{correction} {error_text(rows)}"


def _meaning_of_roles(answer: Mapping[str, Any], hidden: int) -> Iterator[str]:
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
    if any(_fitted(answer, role) == _BENDS for role in answer["is_power_law"]):
        yield f"{_BENDS}: no power law over these depths, which is off by a fifth or more at one of them."
    if len(answer["rows"]) == 1:
        yield "Of two depths and more, how each role grows and what learning rate would undo it: --layers 8,24."
    if answer["shares"]:
        yield (
            f"share: of the role beside the matrices' update, at d_model {answer['network']['d_model']} and the last "
            "depth, powers of the width undone: where it is small, its learning rate does not matter."
        )
    if hidden:
        yield f"{hidden} more depths are in a wider terminal, in --json and --plot."
    if not answer["shares"]:
        yield "Add --width D for each role's share of the update at that width."
