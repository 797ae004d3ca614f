"""Which networks a command line asks about: `predict` and `measure` read the same options, which are declared here.

Only typer is imported with this module, as ``paper_checks.cli.options`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from paper_checks.cli.choices import ARCHITECTURES, LOSSES, NORM_KINDS, OPTIMIZERS, PLACEMENTS, READOUTS, schemes
from paper_checks.cli.inputs import BadInputError, count, counts, fraction, gains, one_name, power_law, refusing
from paper_checks.cli.options import Activation, NormKind, Optimizer, Scheme, flag, named, option

if TYPE_CHECKING:
    from paper_checks.lowering.networks import Network
    from theory.schemes import Scheme as TheoryScheme


class Limit(NamedTuple):
    """The most sublayers, and of what; the most tokens, all sequences together."""

    most: int
    text: str
    most_tokens: int | None = None


BUILT = Limit(100_000, "a network that is built (predict without --attention has no such limit)")
ATTENTION = "With --attention"
_OF_ONE_DEPTH = ("num_sublayers", "num_layers", "numbers")
_LAWS = ("residual_weight", "branch_weight", "gain")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Options of an FFN-only stack, as text."""

    optimizer: Optimizer
    sublayers: Annotated[str | None, option("Residual sublayers L, comma-separated: 4,8,16.", "LIST")] = None
    scheme: Scheme = None
    activation: Activation = "relu"
    norm_kind: NormKind = "layernorm"
    w: Annotated[str | None, option("Gains of W1 by sublayer: a list, or @FILE.", "LIST")] = None
    v: Annotated[str | None, option("Gains of W2 by sublayer: a list, or @FILE.", "LIST")] = None
    norm: Annotated[str | None, named(f"A scheme of one's own: {PLACEMENTS}.", PLACEMENTS)] = None
    residual_weight: Annotated[str | None, option("With --norm: a = C L^P.", "C,P")] = None
    branch_weight: Annotated[str | None, option("With --norm: b = C L^P.", "C,P")] = None
    gain: Annotated[str | None, option("With --norm: the gains w = v = C L^P.", "C,P")] = None

    @property
    def given_laws(self) -> dict[str, tuple[Fraction, Fraction]]:
        """(C, P) of each that is given."""
        texts = {name: getattr(self, name) for name in _LAWS}
        return {
            name: power_law(text, f"--{name.replace('_', '-')}") for name, text in texts.items() if text is not None
        }

    def check_names(self, activations: str) -> None:
        """Of the options that are names; activations: those that are known."""
        for text, name in ((self.scheme, "--scheme"), (self.optimizer, "--optimizer")):
            if text is not None and "," in text:
                raise BadInputError(f"{name} takes one name here, and not a list such as {text!r} (train takes lists)")
        self._check_scheme()
        one_name(self.optimizer, "--optimizer", OPTIMIZERS)
        one_name(self.activation, "--activation", activations)
        one_name(self.norm_kind, "--norm-kind", NORM_KINDS)
        if self.norm is not None:
            one_name(self.norm, "--norm", PLACEMENTS)

    def _check_scheme(self) -> None:
        """A name that is generated is known without sympy; of another one theory says what is near it."""
        if self.scheme is None or self.scheme in schemes():
            return

        from theory.schemes import scheme

        with refusing("--scheme"):
            scheme(self.scheme)

    def lists(self, lengths: Sequence[int]) -> dict[str, list[float]]:
        """--w and --v, where they are given; lengths: L of each network."""
        found = {name: gains(text, f"--{name}") for name, text in (("w", self.w), ("v", self.v)) if text is not None}
        if found and len(lengths) != 1:
            raise BadInputError(f"--w and --v need exactly one --sublayers, not {len(lengths)}")
        for name, numbers in found.items():
            if len(numbers) != lengths[0]:
                raise BadInputError(f"--{name} has {len(numbers)} gains for {lengths[0]} sublayers: give one for each")
        return found

    def chosen_scheme(self) -> TheoryScheme:
        """The named one, or one's own. Everything is checked before sympy is imported."""
        given = [name for name in _LAWS if getattr(self, name) is not None]
        if (self.scheme is None) == (self.norm is None):
            raise BadInputError("give one of --scheme NAME and --norm post|pre|sub|peri (a scheme of your own)")
        if given and self.norm is None:
            raise BadInputError(f"--{given[0].replace('_', '-')} belongs to --norm, not to a named --scheme")
        laws = self.given_laws

        from theory.schemes import custom_scheme, scheme

        with refusing("--norm" if self.scheme is None else "--scheme"):
            return scheme(self.scheme) if self.scheme is not None else custom_scheme(str(self.norm), **laws)


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Options of a real Transformer, as text; they need --attention."""

    attention: Annotated[bool, flag("--attention", "A Transformer: attention and FFN in turn.", ATTENTION)] = False
    arch: Annotated[
        str | None,
        named("encoder (if left out), decoder (causal) or encoder-decoder.", ARCHITECTURES, ATTENTION),
    ] = None
    layers: Annotated[
        str | None, option("Layers N of two sublayers each, instead of --sublayers: 6,12.", "LIST", ATTENTION)
    ] = None
    decoder_layers: Annotated[
        str | None,
        option("Layers M of an encoder-decoder's decoder, one for each of --layers.", "LIST", ATTENTION),
    ] = None
    heads: Annotated[
        str | None,
        option("Attention heads; left out, measure has 1 and predict infinitely many large ones.", "H", ATTENTION),
    ] = None
    ffn_ratio: Annotated[str | None, option("FFN width over d_model; 4 if left out.", "R", ATTENTION)] = None
    tokens: Annotated[
        str | None,
        option("Tokens of a sequence; 16 if left out. A prediction changes slowly with them.", "T", ATTENTION),
    ] = None
    batch: Annotated[str | None, option("Sequences of the batch; 1 if left out.", "B", ATTENTION)] = None
    correlation: Annotated[str | None, option("Of any two input tokens; 0 if left out, 1 at most.", "C", ATTENTION)] = (
        None
    )
    causal: Annotated[bool, flag("--causal", "Each token attends to earlier ones only.", ATTENTION)] = False
    readout: Annotated[
        str | None,
        named("last (if left out): a logit of the last token. sum: of each token one, summed.", READOUTS, ATTENTION),
    ] = None
    loss: Annotated[
        str | None,
        named("What the step makes smaller: logit (if left out), or ce, a cross-entropy.", LOSSES, ATTENTION),
    ] = None
    classes: Annotated[str | None, option("Classes of the cross-entropy; 16 if left out.", "C", ATTENTION)] = None

    @property
    def is_in_layers(self) -> bool:
        """Whether the depth of one stack was given as layers N, so that answers count these and not sublayers L."""
        return self.layers is not None and self.arch != "encoder-decoder"


def check_given(transformer: Transformer) -> None:
    """Options of a Transformer without --attention are refused."""
    given = [name for name, value in vars(transformer).items() if name != "attention" and value]
    if given and not transformer.attention:
        raise BadInputError(f"--{given[0].replace('_', '-')} needs --attention: without it the stack has FFNs alone")


def networks(stack: Stack, transformer: Transformer, width: str, limit: Limit = BUILT) -> list[Network]:
    """One for each length, in the order given."""
    d_model = count(width, "--width", most=100_000)
    check_given(transformer)
    depths = _depths(stack, transformer, limit)
    lengths = [depth["num_sublayers"] for depth in depths if "num_sublayers" in depth]
    lists = {name: tuple(numbers) for name, numbers in stack.lists(lengths).items()}
    rest = _shape(transformer, d_model, limit) if transformer.attention else {}
    scheme = stack.chosen_scheme()

    from paper_checks.lowering.networks import Network

    with refusing():
        found = [
            Network(
                scheme=scheme,
                laws={name: f"{constant},{power}" for name, (constant, power) in stack.given_laws.items()},
                d_model=d_model,
                activation=stack.activation,
                norm_kind=stack.norm_kind,
                **depth,
                **lists,
                **rest,
            )
            for depth in depths
        ]
        for network in found:
            network.config(stack.optimizer)
    return found


def in_common(network: Network, optimizer: str) -> dict[str, Any]:
    """What a network has in common with those of other depths, named."""
    return {name: value for name, value in network.named(optimizer).items() if name not in _OF_ONE_DEPTH}


def _depths(stack: Stack, transformer: Transformer, limit: Limit) -> list[dict]:
    arch = transformer.arch or "encoder"
    if arch == "encoder-decoder":
        if stack.sublayers is not None or transformer.layers is None or transformer.decoder_layers is None:
            raise BadInputError("an encoder-decoder wants --layers and --decoder-layers, and no --sublayers")
        sides = [counts(transformer.layers, "--layers"), counts(transformer.decoder_layers, "--decoder-layers")]
        if len(sides[0]) != len(sides[1]):
            raise BadInputError(f"--layers has {len(sides[0])} entries and --decoder-layers {len(sides[1])}: pair them")
        pairs = list(zip(*sides, strict=True))
        if stack.w is not None or stack.v is not None:
            raise BadInputError("--w and --v belong to one stack: an encoder-decoder has two")
        if transformer.causal:
            raise BadInputError("--causal belongs to one stack: of an encoder-decoder, the decoder is causal as it is")
        _check_lengths((2 * n + 3 * m for n, m in pairs), "--layers with --decoder-layers", limit)
        return [{"num_layers": pair} for pair in pairs]
    if transformer.decoder_layers is not None:
        raise BadInputError("--decoder-layers belongs to --arch encoder-decoder")
    if (stack.sublayers is None) == (transformer.layers is None):
        raise BadInputError(
            "give one of --sublayers L and --layers N (blocks of two sublayers each), a list such as 4,8,16"
        )
    if transformer.layers is not None:
        lengths = [2 * n for n in counts(transformer.layers, "--layers")]
    else:
        lengths = counts(str(stack.sublayers), "--sublayers")
    _check_lengths(lengths, "--sublayers" if transformer.layers is None else "--layers", limit)
    return [{"num_sublayers": length} for length in lengths]


def _check_lengths(lengths: Iterable[int], option: str, limit: Limit) -> None:
    for length in lengths:
        if length > limit.most:
            raise BadInputError(f"{option} asks for {length} sublayers: at most {limit.most} has {limit.text}")


def _shape(transformer: Transformer, d_model: int, limit: Limit) -> dict:
    whole = {
        "num_tokens": ("--tokens", transformer.tokens, 16),
        "batch_size": ("--batch", transformer.batch, 1),
        "ffn_ratio": ("--ffn-ratio", transformer.ffn_ratio, 4),
        "num_heads": ("--heads", transformer.heads, 1),
        "num_classes": ("--classes", transformer.classes, 16),
    }
    found: dict = {
        name: default if text is None else count(text, option, 2 if option == "--classes" else 1, most=1_000_000)
        for name, (option, text, default) in whole.items()
    }
    named = {
        "readout": ("--readout", transformer.readout or "last", READOUTS),
        "loss": ("--loss", transformer.loss or "logit", LOSSES),
        "arch": ("--arch", transformer.arch or "encoder", ARCHITECTURES),
    }
    found |= {name: one_name(value, option, known) for name, (option, value, known) in named.items()}
    if d_model % found["num_heads"]:
        raise BadInputError(f"--width {d_model} is not a multiple of --heads {found['num_heads']}")
    num_tokens = found["num_tokens"] * found["batch_size"]
    if limit.most_tokens is not None and num_tokens > limit.most_tokens:
        raise BadInputError(
            f"--tokens {found['num_tokens']} times --batch {found['batch_size']} is {num_tokens}: a prediction takes "
            f"at most {limit.most_tokens} tokens in all; with --readout last it changes slowly with their number: "
            "compare --tokens 4 and --tokens 16"
        )
    if transformer.classes is not None and found["loss"] != "ce":
        raise BadInputError("--classes belongs to --loss ce: a logit has none")
    correlation = fraction(transformer.correlation or "0", "--correlation")
    if not 0 <= correlation <= 1:
        raise BadInputError(f"--correlation lies between 0 and 1, not at {transformer.correlation}")
    return {**found, "correlation": float(correlation), "is_causal": transformer.causal or found["arch"] == "decoder"}
