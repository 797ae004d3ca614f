"""Which networks a command line asks about: `predict` and `measure` read the same options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from paper_checks.cli.choices import ARCHITECTURES, LOSSES, NORM_KINDS, OPTIMIZERS, PLACEMENTS, READOUTS, schemes
from paper_checks.cli.inputs import BadInputError, count, counts, fraction, gains, one_name, power_law, refusing

if TYPE_CHECKING:
    from paper_checks.lowering.networks import Network
    from theory.schemes import Scheme


class Limit(NamedTuple):
    """The most sublayers, and of what; the most tokens, all sequences together."""

    most: int
    text: str
    most_tokens: int | None = None


BUILT = Limit(100_000, "a network that is built (predict without --attention has no such limit)")
_OF_ONE_DEPTH = ("num_sublayers", "num_layers", "numbers")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Options of an FFN-only stack, as text."""

    optimizer: str
    sublayers: str | None
    scheme_name: str | None
    activation: str
    norm_kind: str
    w: str | None
    v: str | None
    norm: str | None
    laws: Mapping[str, str | None]

    @property
    def given_laws(self) -> dict[str, tuple[Fraction, Fraction]]:
        """(C, P) of each that is given."""
        return {
            name: power_law(text, f"--{name.replace('_', '-')}") for name, text in self.laws.items() if text is not None
        }

    def check_names(self, activations: str) -> None:
        """Of the options that are names; activations: those that are known."""
        for text, option in ((self.scheme_name, "--scheme"), (self.optimizer, "--optimizer")):
            if text is not None and "," in text:
                raise BadInputError(
                    f"{option} takes one name here, and not a list such as {text!r} (train takes lists)"
                )
        self._check_scheme()
        one_name(self.optimizer, "--optimizer", OPTIMIZERS)
        one_name(self.activation, "--activation", activations)
        one_name(self.norm_kind, "--norm-kind", NORM_KINDS)
        if self.norm is not None:
            one_name(self.norm, "--norm", PLACEMENTS)

    def _check_scheme(self) -> None:
        """A name that is generated is known without sympy; of another one theory says what is near it."""
        if self.scheme_name is None or self.scheme_name in schemes():
            return

        from theory.schemes import scheme

        with refusing("--scheme"):
            scheme(self.scheme_name)

    def lists(self, lengths: Sequence[int]) -> dict[str, list[float]]:
        """--w and --v, where they are given; lengths: L of each network."""
        found = {name: gains(text, f"--{name}") for name, text in (("w", self.w), ("v", self.v)) if text is not None}
        if found and len(lengths) != 1:
            raise BadInputError(f"--w and --v need exactly one --sublayers, not {len(lengths)}")
        for name, numbers in found.items():
            if len(numbers) != lengths[0]:
                raise BadInputError(f"--{name} has {len(numbers)} gains for {lengths[0]} sublayers: give one for each")
        return found

    def scheme(self) -> Scheme:
        """The named one, or one's own. Everything is checked before sympy is imported."""
        given = [name for name, text in self.laws.items() if text is not None]
        if (self.scheme_name is None) == (self.norm is None):
            raise BadInputError("give one of --scheme NAME and --norm post|pre|sub|peri (a scheme of your own)")
        if given and self.norm is None:
            raise BadInputError(f"--{given[0].replace('_', '-')} belongs to --norm, not to a named --scheme")
        laws = self.given_laws

        from theory.schemes import custom_scheme, scheme

        with refusing("--norm" if self.scheme_name is None else "--scheme"):
            return scheme(self.scheme_name) if self.scheme_name is not None else custom_scheme(str(self.norm), **laws)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Options of a real Transformer, as text; they need --attention."""

    is_on: bool = False
    tokens: str | None = None
    batch: str | None = None
    causal: bool = False
    correlation: str | None = None
    ffn_ratio: str | None = None
    heads: str | None = None
    readout: str | None = None
    loss: str | None = None
    classes: str | None = None
    arch: str | None = None
    layers: str | None = None
    decoder_layers: str | None = None

    @property
    def is_in_layers(self) -> bool:
        """Whether the depth of one stack was given as layers N, so that answers count these and not sublayers L."""
        return self.layers is not None and self.arch != "encoder-decoder"


def check_given(attention: Attention) -> None:
    """Options of a Transformer without --attention are refused."""
    given = [name for name, value in vars(attention).items() if name != "is_on" and value]
    if given and not attention.is_on:
        raise BadInputError(f"--{given[0].replace('_', '-')} needs --attention: without it the stack has FFNs alone")


def networks(stack: Stack, attention: Attention, width: str, limit: Limit = BUILT) -> list[Network]:
    """One for each length, in the order given."""
    d_model = count(width, "--width", most=100_000)
    check_given(attention)
    depths = _depths(stack, attention, limit)
    lengths = [depth["num_sublayers"] for depth in depths if "num_sublayers" in depth]
    lists = {name: tuple(numbers) for name, numbers in stack.lists(lengths).items()}
    rest = _shape(attention, d_model, limit) if attention.is_on else {}
    scheme = stack.scheme()

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


def _depths(stack: Stack, attention: Attention, limit: Limit) -> list[dict]:
    arch = attention.arch or "encoder"
    if arch == "encoder-decoder":
        if stack.sublayers is not None or attention.layers is None or attention.decoder_layers is None:
            raise BadInputError("an encoder-decoder wants --layers and --decoder-layers, and no --sublayers")
        sides = [counts(attention.layers, "--layers"), counts(attention.decoder_layers, "--decoder-layers")]
        if len(sides[0]) != len(sides[1]):
            raise BadInputError(f"--layers has {len(sides[0])} entries and --decoder-layers {len(sides[1])}: pair them")
        pairs = list(zip(*sides, strict=True))
        if stack.w is not None or stack.v is not None:
            raise BadInputError("--w and --v belong to one stack: an encoder-decoder has two")
        if attention.causal:
            raise BadInputError("--causal belongs to one stack: of an encoder-decoder, the decoder is causal as it is")
        _check_lengths((2 * n + 3 * m for n, m in pairs), "--layers with --decoder-layers", limit)
        return [{"num_layers": pair} for pair in pairs]
    if attention.decoder_layers is not None:
        raise BadInputError("--decoder-layers belongs to --arch encoder-decoder")
    if (stack.sublayers is None) == (attention.layers is None):
        raise BadInputError("give one of --sublayers L and --layers N (blocks of two sublayers each)")
    if attention.layers is not None:
        lengths = [2 * n for n in counts(attention.layers, "--layers")]
    else:
        lengths = counts(str(stack.sublayers), "--sublayers")
    _check_lengths(lengths, "--sublayers" if attention.layers is None else "--layers", limit)
    return [{"num_sublayers": length} for length in lengths]


def _check_lengths(lengths: Iterable[int], option: str, limit: Limit) -> None:
    for length in lengths:
        if length > limit.most:
            raise BadInputError(f"{option} asks for {length} sublayers: at most {limit.most} has {limit.text}")


def _shape(attention: Attention, d_model: int, limit: Limit) -> dict:
    whole = {
        "num_tokens": ("--tokens", attention.tokens, 16),
        "batch_size": ("--batch", attention.batch, 1),
        "ffn_ratio": ("--ffn-ratio", attention.ffn_ratio, 4),
        "num_heads": ("--heads", attention.heads, 1),
        "num_classes": ("--classes", attention.classes, 16),
    }
    found: dict = {
        name: default if text is None else count(text, option, 2 if option == "--classes" else 1, most=1_000_000)
        for name, (option, text, default) in whole.items()
    }
    named = {
        "readout": ("--readout", attention.readout or "last", READOUTS),
        "loss": ("--loss", attention.loss or "logit", LOSSES),
        "arch": ("--arch", attention.arch or "encoder", ARCHITECTURES),
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
    if attention.classes is not None and found["loss"] != "ce":
        raise BadInputError("--classes belongs to --loss ce: a logit has none")
    correlation = fraction(attention.correlation or "0", "--correlation")
    if not 0 <= correlation <= 1:
        raise BadInputError(f"--correlation lies between 0 and 1, not at {attention.correlation}")
    return {**found, "correlation": float(correlation), "is_causal": attention.causal or found["arch"] == "decoder"}
