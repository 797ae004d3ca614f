"""A network that is asked about by name: what theory predicts of it, what sims build of it, how a record names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paper_checks.lowering.block import Block
from theory.moments import ACTIVATIONS
from theory.schemes import Scheme

if TYPE_CHECKING:
    from paper_checks.recipes.recipe import Recipe
    from sims.model import ModelConfig
    from sims.update import Task
    from theory.meanfield.setting import Prediction

FFN = "ffn"
"""The FFN-only stack of the theorems; the other architectures alternate attention and FFN."""
ARCHITECTURES = ("encoder", "decoder", "encoder-decoder")


class NoTheoryError(ValueError):
    """No theory of this network is there; the text says of what, in one line."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """One depth of one scheme: what theory predicts of it, and the plain numbers that sims build it from.

    laws: of a scheme of one's own, the text of each C,P. num_sublayers: of the single stack. num_layers: (encoder,
    decoder) of an encoder-decoder. w, v: gains by sublayer in place of the scheme's. arch: ``FFN`` or one of
    ``ARCHITECTURES``; all fields below it are of these alone. block: what the block has beyond the papers'. recipe: a
    published model, whose laws stand in place of the scheme's, activation's and norms'. has_wide_heads: predicted with
    infinitely large heads, and not with those that are built. ValueError for an unknown arch, and for counts that do
    not go with it.

    >>> from paper_checks.lowering.networks import Network
    >>> from theory.schemes import scheme
    >>> network = Network(scheme=scheme("post-ln"), num_sublayers=8, d_model=64)
    >>> round(network.theory("sgd").update, 4), len(network.config("sgd").encoder), network.task.num_tokens
    (5.3333, 8, 1)
    """

    scheme: Scheme
    laws: Mapping[str, str] = field(default_factory=dict)
    num_sublayers: int = 0
    num_layers: tuple[int, int] | None = None
    d_model: int = 256
    activation: str = "relu"
    norm_kind: str = "layernorm"
    w: tuple[float, ...] | None = None
    v: tuple[float, ...] | None = None
    arch: str = FFN
    is_causal: bool = False
    num_heads: int = 1
    has_wide_heads: bool = False
    ffn_ratio: int = 4
    num_tokens: int = 16
    batch_size: int = 1
    correlation: float = 0.0
    readout: str = "last"
    loss: str = "logit"
    num_classes: int = 16
    block: Block = field(default_factory=Block)
    recipe: Recipe | None = None

    def __post_init__(self) -> None:
        if self.arch not in (FFN, *ARCHITECTURES):
            raise ValueError(f"unknown architecture {self.arch!r} (allowed: {', '.join(ARCHITECTURES)})")
        if (self.arch == "encoder-decoder") != (self.num_layers is not None):
            raise ValueError("an encoder-decoder, and nothing else, has layers on either side")
        if function := self.scheme.stack.norm_function:
            object.__setattr__(self, "norm_kind", function)

    @property
    def depth(self) -> int:
        """L, all sublayers."""
        return self.num_sublayers if self.num_layers is None else 2 * self.num_layers[0] + 3 * self.num_layers[1]

    @property
    def lengths(self) -> dict[str, int]:
        """The depth as rows of a document have it: both sides of an encoder-decoder beside L."""
        sides = zip(("num_layers", "num_decoder_layers"), self.num_layers or (), strict=False)
        return {"num_sublayers": self.depth, **dict(sides)}

    @property
    def predicted_head_size(self) -> int | None:
        """None for infinite."""
        of_recipe = None if self.recipe is None else self.recipe.head_size
        return None if self.has_wide_heads else of_recipe or self.d_model // self.num_heads

    def config(self, optimizer: str) -> ModelConfig:
        """Plain numbers. The optimizer matters where the scheme has learning rates of its own for it."""
        from paper_checks.lowering.lower import lower_encoder_decoder, lower_ffn, lower_transformer

        # 24 bits are far more than what one network's scatter shows, and drawing takes most of the time
        norms: dict[str, Any] = {"activation": self.activation, "norm_kind": self.norm_kind, "has_short_draws": True}
        if self.recipe is not None:
            return self.block.on(self._published(self.recipe, optimizer))
        stack = (self.scheme, optimizer, self.num_sublayers, self.d_model)
        if self.arch == FFN:
            return lower_ffn(*stack, w=self.w, v=self.v, **norms)
        # What a default model trains: norm gains and biases and linear biases are roles of their own.
        rest = {**norms, "num_heads": self.num_heads, "ffn_ratio": self.ffn_ratio}
        rest |= {"has_affine": True, "has_bias": True}
        if self.num_layers is not None:
            sides = lower_encoder_decoder(self.scheme, optimizer, *self.num_layers, self.d_model, **rest)
            return self.block.on(sides)
        rest["is_causal"] = self.is_causal or self.arch == "decoder"
        return self.block.on(lower_transformer(*stack, w=self.w, v=self.v, **rest))

    def _published(self, recipe: Recipe, optimizer: str) -> ModelConfig:
        """The recipe at this size. ValueError, in one line, for a depth that it has not."""
        first, *others = self.num_layers or (self.num_sublayers / 2,)
        if first != round(first) or any(other != first for other in others):
            raise ValueError(f"{recipe.name} has whole layers, of attention and FFN, and as many on either side")
        return recipe.config(round(first), self.d_model, self.num_heads, optimizer=optimizer)

    @property
    def task(self) -> Task:
        """One input of the theorems, or tokens."""
        from sims.update import Task

        if self.arch == FFN:
            return Task()
        return Task(
            num_tokens=self.num_tokens,
            batch_size=self.batch_size,
            correlation=self.correlation,
            readout=self.readout,
            objective=self.loss,
            num_classes=self.num_classes,
            trains_inputs=True,
        )

    def prediction(self, optimizer: str) -> Prediction | None:
        """At infinite width. None where no theory of it is there (``theory`` says why)."""
        try:
            return self.theory(optimizer)
        except NoTheoryError:
            return None

    def theory(self, optimizer: str, advance: Callable[[float], None] = lambda _: None) -> Prediction:
        """At infinite width: of the FFN-only stack its second moments, of the others the kernel rung.

        advance: of the kernel rung, told how many passes over a sublayer were done, two of each. NoTheoryError, in one
        line, where there is none: an activation of two inputs, or what the kernel rung does not know.
        """
        if self.arch != FFN:
            return self._kernel_prediction(optimizer, advance)
        from theory.meanfield.setting import Setting
        from theory.meanfield.update import predict_setting

        if self.activation not in ACTIVATIONS:
            raise NoTheoryError(f"there is no theory of a stack of gated FFNs ({self.activation}); --attention has it")
        setting = Setting.of(self.scheme, optimizer, self.activation, self.norm_kind)
        return predict_setting(setting, self.num_sublayers, w=self.w, v=self.v)

    def _kernel_prediction(self, optimizer: str, advance: Callable[[float], None]) -> Prediction:
        from paper_checks.lowering.kernel_network import as_inputs, as_transformer, predict
        from theory.kernel.setting import MOST_TOKENS

        config = self.config(optimizer)
        if (num_tokens := self.batch_size * self.num_tokens) > MOST_TOKENS:
            text = f"a prediction takes at most {MOST_TOKENS} tokens in all, --tokens times --batch, not {num_tokens}"
            raise NoTheoryError(text)
        try:
            network = as_transformer(config, head_size=self.predicted_head_size)
            prediction = predict(network, as_inputs(self.task, config), optimizer, advance)
        except (ValueError, ArithmeticError) as error:
            raise NoTheoryError(str(error) or type(error).__name__) from error
        there = {role: value for role, value in prediction.roles.items() if role != "bias" or config.has_bias}
        return replace(prediction, roles=there)

    def role_power(self, optimizer: str, role: str) -> float:
        """The power of d_model that a measured role is multiplied by, to be O(1) in the width and as it is predicted.

        It is divided by that of the whole update (``sims.optim.NORMALISATION``) already. A matrix has 0. A branch
        weight of the FFN-only stack is O(1) by itself, so the division is undone.
        """
        from sims.optim import NORMALISATION

        if self.arch != FFN:
            from theory.kernel.predict import unit_power

            return unit_power(optimizer, role)
        return NORMALISATION[optimizer].power if role == "branch_weight" else 0.0

    def named(self, optimizer: str) -> dict[str, Any]:
        """Everything that the measurement is of, for a record: defaults of other architectures left out.

        numbers: a digest of the plain numbers that sims are given, so that a record of a scheme is one of that name
        with these weights and gains, and of no earlier reading of it.
        """
        from paper_checks.lowering.lower import digest_of_numbers

        found: dict[str, Any] = {"scheme": self.scheme.name, **self.laws, "optimizer": optimizer}
        found["numbers"] = digest_of_numbers(self.config(optimizer))
        sizes = {"num_sublayers": self.num_sublayers} if self.num_layers is None else {"num_layers": self.num_layers}
        found |= {"arch": self.arch, **sizes, "d_model": self.d_model}
        found |= {"activation": self.activation, "norm_kind": self.norm_kind}
        found |= {name: gains for name, gains in (("w", self.w), ("v", self.v)) if gains is not None}
        if self.arch == FFN:
            return found
        names = ("is_causal", "num_heads", "ffn_ratio", "num_tokens", "batch_size", "correlation", "readout", "loss")
        values = (self.is_causal, self.num_heads, self.ffn_ratio, self.num_tokens, self.batch_size, self.correlation)
        found |= dict(zip(names, (*values, self.readout, self.loss), strict=True))
        found |= {"num_classes": self.num_classes} if self.loss == "ce" else {}
        if self.recipe is not None:  # which says these itself
            found = {name: value for name, value in found.items() if name not in ("is_causal", "ffn_ratio")}
        return found | self.block.options
