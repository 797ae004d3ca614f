"""Which networks ``predict``, ``measure`` and ``advise`` are asked about: their options, and what goes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, option, refusing

if TYPE_CHECKING:
    from depthlaw.network.network import Network
    from depthlaw.recipes.recipe import Recipe
    from depthlaw.theory.schemes import Scheme

MOST_WALKED, MOST_BUILT = 10_000, 100_000
"""Sublayers that --attention goes through one by one, and that networks which are built may have."""
MOST_TOKENS = 512
"""As ``theory.kernel.setting`` has it, without its imports."""
ATTENTION = "With --attention"
BLOCK = "With --attention: blocks that people train"
Law = tuple[Fraction, Fraction] | str
_LAWS = ("residual_weight", "branch_weight", "gain")
_LAW: dict[str, Any] = {"read": options.law, "metavar": "C,P"}


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Options of a stack of FFNs. A law is (C, P), for C L^P, or the text of a formula."""

    optimizer: str = options.OPTIMIZER
    sublayers: list[int] | None = option("The number L of residual sublayers, or several, with commas: 4,8,16.")
    visits: list[int] | None = option(
        "How often the layers are gone through with the same weights (a looped Transformer), or several such numbers; "
        "--sublayers and --layers count the layers once. 1 if left out."
    )
    scheme: str | None = option(
        "A named scheme, such as post-ln or deepnorm; `depthlaw schemes` lists all. `predict` takes several, with "
        "commas.",
        metavar="NAME",
        read=options.scheme_names,
        complete=options.schemes,
    )
    activation: str = option(
        f"The activation: {options.ACTIVATIONS}; or, of gated FFNs, {options.GATED}.",
        "relu",
        known=options.ANY_ACTIVATION,
    )
    norm_kind: str = options.NORM_KIND
    w: tuple[float, ...] | None = option("The init gain of W1 (fc1, or v) by sublayer: a list, or @FILE with one.")
    v: tuple[float, ...] | None = option("The init gain of W2 (fc2, or out) by sublayer: a list, or @FILE with one.")
    norm: str | None = option(
        "A scheme of your own, instead of --scheme, by where its norms stand", known=options.PLACEMENTS
    )
    residual_weight: Law | None = option(
        "With --norm: the weight a of the stream in a x + b f(x), as C L^P; or a formula in the number L of sublayers "
        'and N = L/2 of layers, and in l and n, which count them from 1: "sqrt(1 - 2/N)", "1.15 - 0.1*n/N".',
        **_LAW,
    )
    branch_weight: Law | None = option("With --norm: the weight b of the branch, in the same way.", **_LAW)
    gain: Law | None = option("With --norm: the init gain of W1 and W2, in the same way.", **_LAW)

    @property
    def is_walked(self) -> bool:
        """Whether FFNs alone are summed sublayer by sublayer, without a leading order: where layers are visited more
        often than once."""
        return max(self.visits or [1]) > 1

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
        if self.scheme is not None and "," in self.scheme:
            raise BadInputError(f"--scheme {self.scheme}: give one; several side by side are for depthlaw predict")

        from depthlaw.theory.schemes import custom_scheme, formula, scheme

        laws: dict[str, Any] = dict(self.given_laws)
        for name, law in laws.items():
            if isinstance(law, str):
                with refusing(f"--{name.replace('_', '-')}"):
                    laws[name] = formula(law)
        with refusing("--norm" if self.scheme is None else "--scheme"):
            if self.scheme is None:
                return custom_scheme(str(self.norm), **laws)
            chosen = scheme(self.scheme)
        if chosen.stack.norm_function and self.norm_kind != "layernorm":
            raise BadInputError(f"--norm-kind does not go with {chosen.name}, which has no norm")
        return chosen


def recipes_named(text: str, option: str) -> Recipe | tuple[Recipe, ...]:
    """One, or several with commas between them."""
    from depthlaw.recipes.catalogue import recipe

    with refusing(option):
        first, *others = map(recipe, options.some_names(text, option))
    if len({recipe.name for recipe in (first, *others)}) <= len(others):
        raise BadInputError(f"{option} {text}: a recipe is named twice")
    return (first, *others) if others else first


_POSITIVE: dict[str, Any] = {"least": 1e-9, "most": 1e9}


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Options of a real Transformer, which need --attention. Most are called as the fields of a ``Network`` and of its
    ``Block`` that they become."""

    attention: bool = option("Ask about a Transformer: attention and FFN in turn.", None, ATTENTION)
    arch: str | None = option(
        "The architecture: encoder, decoder (causal) or encoder-decoder. If left out, `advise` takes a decoder, and "
        "the other commands an encoder.",
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
        "The number of attention heads. If left out, `measure` takes 1, and `predict` infinitely many.",
        None,
        ATTENTION,
        called="--heads",
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
        "Which output is read: a logit of the last token (if left out), or the sum of a logit of each token",
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
        "A published model, such as gpt2 or llama-3, instead of --scheme; `depthlaw schemes` lists all. In predict "
        "several, with commas.",
        None,
        BLOCK,
        metavar="NAME",
        read=recipes_named,
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
        "Multiply each branch by a trained vector whose entries begin at X, instead of by a weight.",
        None,
        BLOCK,
        **_POSITIVE,
    )
    init_std: float | None = option(
        "The standard deviation of every matrix, instead of Xavier's; gains multiply it.", None, BLOCK, **_POSITIVE
    )
    embedding_std: float | None = option(
        "The standard deviation of an input vector's entries, of stacks of FFNs too; 1 if left out.",
        None,
        BLOCK,
        **_POSITIVE,
    )
    embedding_multiplier: float | None = option(
        "A number that multiplies the inputs, of stacks of FFNs too.", None, BLOCK, **_POSITIVE
    )
    is_head_tied: bool = option(
        "Tie the head to the embedding: both have the same entries.", None, BLOCK, called="--tied-head"
    )
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
        if isinstance(model, tuple):
            names = ",".join(recipe.name for recipe in model)
            raise BadInputError(f"--recipe {names}: give one; several side by side are for depthlaw predict")
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

    @property
    def of_embedding(self) -> dict[str, Any]:
        """Options that stacks of FFNs have, too."""
        return {name: value for name in _OF_EMBEDDING if (value := getattr(self, name)) is not None}

    def check_given(self) -> None:
        """Other options of a Transformer without --attention are refused."""
        given = [name for name, value in vars(self).items() if value is not None and value is not False]
        given = [name for name in given if name not in _OF_EMBEDDING]
        if given and not self.attention:
            raise BadInputError(f"{_CALLED[given[0]]} needs --attention: without it the stack has FFNs alone")


_OF_EMBEDDING = ("embedding_std", "embedding_multiplier")
_CALLED = options.options_of(Stack) | options.options_of(Transformer)
_SHAPE = ("arch", "num_heads", "ffn_ratio", "num_tokens", "batch_size", "correlation", "readout", "loss", "num_classes")
"""Fields of a ``Network`` that are options of the same name."""
_SAID_BY_RECIPE = {field.name for field in fields(Transformer)} - {
    "attention",
    "layers",
    "decoder_layers",
    "recipe",
    "layer_scale",
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
    lists = stack.lists([depth["num_sublayers"] // depth["visits"] for depth in depths if "num_sublayers" in depth])
    lists = {name: gains * depths[0]["visits"] for name, gains in lists.items()}
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
                laws={
                    name: law if isinstance(law, str) else ",".join(map(str, law))
                    for name, law in stack.given_laws.items()
                },
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
        name
        for name, value in vars(stack).items()
        if name not in ("optimizer", "sublayers", "visits") and value != usual[name]
    ]
    given += [name for name, value in vars(transformer).items() if name in _SAID_BY_RECIPE and value]
    if transformer.recipe is not None and given:
        raise BadInputError(f"{_CALLED[given[0]]} does not go with --recipe, which says it itself")


def said_by_model(stack: Stack, transformer: Transformer) -> str | None:
    """The first option that was given and that a model of one's own says itself, as the user writes it."""
    usual = options.defaults_of(Stack)
    given = [name for name, value in vars(stack).items() if name != "optimizer" and value != usual[name]]
    given += [name for name, value in vars(transformer).items() if name != "layers" and value]
    return _CALLED[given[0]] if given else None


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
    visits = stack.visits or [1]
    if len(visits) > 1 and len(depths) > 1:
        counts, times = (",".join(map(str, numbers)) for numbers in (layers or sublayers or (), visits))
        raise BadInputError(
            f"give several numbers of --visits or of {given}, as an exponent is of one of the two: {given} {counts} "
            f"--visits {visits[0]}, or {given} {counts.partition(',')[0]} --visits {times}"
        )
    if (deepest := max(lengths) * max(visits)) > most:
        text = f"at most {most} are computed"
        text += "" if max(visits) > 1 else " (predict without --attention and --by-layer has no such limit)"
        raise BadInputError(f"{given} asks for {deepest} sublayers: {text}")

    def through(count: Any, times: int) -> Any:
        """Of one stack, or of both sides."""
        return tuple(times * number for number in count) if isinstance(count, tuple) else times * count

    return [
        {"visits": times, **{name: through(count, times) for name, count in depth.items()}}
        for times in visits
        for depth in depths
    ]


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
