"""A network that is asked about by name: what theory predicts of it, what sims build of it, how a record names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from depthlaw.network.block import Block
from depthlaw.theory.schemes import Scheme

if TYPE_CHECKING:
    from depthlaw.recipes.recipe import Recipe
    from depthlaw.sims.config import ModelConfig, Task
    from depthlaw.theory.kernel.predict import KernelUpdate
    from depthlaw.theory.meanfield.first_step import FirstStep
    from depthlaw.theory.meanfield.setting import Prediction

FFN = "ffn"
"""The FFN-only stack of the theorems; the other architectures alternate attention and FFN."""
ARCHITECTURES = ("encoder", "decoder", "encoder-decoder")


class NoTheoryError(ValueError):
    """No theory of this network is there; the text says of what, in one line."""


_SAID = {"num_layers": "layers", "d_model": "width"}
"""Fields of a ``Network`` by which functions of Python have the words of the command line."""
_CALLED = {
    "heads": "num_heads",
    "tokens": "num_tokens",
    "batch": "batch_size",
    "classes": "num_classes",
}
"""Words of the command line by which Python has other names."""


def check_words(function: str, given: Mapping[str, Any]) -> None:
    """TypeError, in one line, for a keyword of a function of Python that is no field of ``Network`` which it takes."""
    for name in given:
        if name in _SAID:
            raise TypeError(f"{function} takes no {name}: as on the command line, it is {_SAID[name]} here")
        if name not in Network.__dataclass_fields__:
            hint = f": here it is {_CALLED[name]}" if name in _CALLED else ""
            raise TypeError(f"{function} takes no {name}{hint}")


def sublayers_of(num_layers: int | tuple[int, int]) -> dict[str, Any]:
    """The fields of a ``Network`` with so many layers, of a single stack or of both sides. TypeError, in one line, for
    a list."""
    if isinstance(num_layers, list):
        raise TypeError(f"layers is one depth, not {num_layers}: ask about each by itself")
    return {"num_layers": num_layers} if isinstance(num_layers, tuple) else {"num_sublayers": 2 * num_layers}


@dataclass(frozen=True, kw_only=True)
class Network:
    """One depth of one scheme: what theory predicts of it, and the plain numbers that sims build it from.

    laws: the text of each C,P of a custom scheme. num_sublayers: how many sublayers a network of one stack has;
    num_layers: in its place, how many layers the encoder and the decoder of an encoder-decoder have. w, v: the gains of
    each sublayer, in place of the scheme's. visits: how often the layers are gone through with the same weights; both
    counts, and the L of a scheme's formulas, count a sublayer at each visit. arch: ``FFN`` or one of ``ARCHITECTURES``;
    only these have the fields below it. block: what the block has beyond that of the papers. recipe: a published model,
    which then decides what scheme, activation and norms would. has_wide_heads: whether theory takes heads to be
    infinitely large, instead of as large as they are built. ValueError for an unknown arch, and for counts that do not
    go with it. It is one class, since theory's network and the sims' have to be of the same numbers.

    >>> from depthlaw.network.network import Network
    >>> from depthlaw.theory.schemes import scheme
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
    visits: int = 1
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

    def __repr__(self) -> str:
        """What it is called, and what of it is not as by default."""
        words = [self.scheme.name if self.recipe is None else self.recipe.name]
        for part in fields(Network):
            default = part.default if part.default_factory is MISSING else part.default_factory()
            if part.name not in ("scheme", "recipe") and (value := getattr(self, part.name)) != default:
                words.append(f"{part.name}={value!r}")
        return f"<{type(self).__name__} {' '.join(words)}>"

    def __post_init__(self) -> None:
        if self.arch not in (FFN, *ARCHITECTURES):
            raise ValueError(f"unknown architecture {self.arch!r} (allowed: {', '.join(ARCHITECTURES)})")
        if (self.arch == "encoder-decoder") != (self.num_layers is not None):
            raise ValueError("an encoder-decoder, and nothing else, has layers on either side")
        if function := self.scheme.stack.norm_function:
            object.__setattr__(self, "norm_kind", function)

    @classmethod
    def of_recipe(cls, recipe: Recipe, num_layers: int | tuple[int, int], d_model: int, **rest: Any) -> Network:
        """A published model with so many layers, on either side of an encoder-decoder; with as many heads as go with
        the width where nothing is said. ValueError, in one line, where none do."""
        from depthlaw.recipes.recipe import RECIPE_TOKENS

        heads = rest.get("num_heads") or recipe.heads_at(d_model)
        if recipe.arch == "encoder-decoder" and isinstance(num_layers, int):
            num_layers = (num_layers, num_layers)
        printed = {"scheme": recipe.as_scheme, "arch": recipe.arch, "d_model": d_model, "num_heads": heads}
        printed |= {"recipe": recipe, "activation": recipe.activation, "norm_kind": recipe.norm_kind}
        return cls(**{"num_tokens": RECIPE_TOKENS, **rest, **sublayers_of(num_layers), **printed})

    @property
    def depth(self) -> int:
        """L, all sublayers, each as often as it is visited."""
        return self.num_sublayers if self.num_layers is None else 2 * self.num_layers[0] + 3 * self.num_layers[1]

    @property
    def is_walked(self) -> bool:
        """Whether theory of it is the kernel rung's, which goes through it sublayer by sublayer."""
        return self.arch != FFN or self.visits > 1

    @property
    def lengths(self) -> dict[str, int]:
        """The depth as rows of a document have it: both sides of an encoder-decoder beside L."""
        sides = zip(("num_layers", "num_decoder_layers"), self.num_layers or (), strict=False)
        visits = {"visits": self.visits} if self.visits > 1 else {}
        return {"num_sublayers": self.depth, **dict(sides), **visits}

    @property
    def predicted_head_size(self) -> int | None:
        """None for infinite."""
        of_recipe = None if self.recipe is None else self.recipe.head_size
        return None if self.has_wide_heads else of_recipe or self.d_model // self.num_heads

    def config(self, optimizer: str) -> ModelConfig:
        """Plain numbers. The optimizer matters where the scheme has learning rates of its own for it."""
        from depthlaw.network.lower import visited

        return visited(self._unrolled(optimizer), self.visits)

    def _unrolled(self, optimizer: str) -> ModelConfig:
        """Of as many sublayers as there are visits."""
        from depthlaw.network.lower import lower_encoder_decoder, lower_ffn, lower_transformer

        # 24 bits are far more than what one network's scatter shows, and drawing takes most of the time
        rest: dict[str, Any] = {"activation": self.activation, "norm_kind": self.norm_kind, "has_short_draws": True}
        if self.recipe is not None:
            return self.block.on(self._published(self.recipe, optimizer))
        if self.arch != FFN:
            # What a default model trains: norm gains and biases and linear biases are roles of their own.
            rest |= {"num_heads": self.num_heads, "ffn_ratio": self.ffn_ratio, "has_affine": True, "has_bias": True}
        if self.num_layers is not None:
            sides = lower_encoder_decoder(self.scheme, optimizer, *self.num_layers, self.d_model, **rest)
            return self.block.on(sides)
        stack = (self.scheme, optimizer, self.num_sublayers, self.d_model)
        rest |= {"w": self.w, "v": self.v}
        if self.arch == FFN:
            return self.block.on(lower_ffn(*stack, **rest))
        is_causal = self.is_causal or self.arch == "decoder"
        return self.block.on(lower_transformer(*stack, is_causal=is_causal, **rest))

    def _published(self, recipe: Recipe, optimizer: str) -> ModelConfig:
        """The recipe at this size. ValueError, in one line, for a depth that it has not."""
        first, *others = self.num_layers or (self.num_sublayers / 2,)
        if first != round(first) or any(other != first for other in others):
            raise ValueError(f"{recipe.name} has whole layers, of attention and FFN, and as many on either side")
        return recipe.config(round(first), self.d_model, self.num_heads, optimizer=optimizer)

    @property
    def has_experts(self) -> bool:
        """Whether each token meets a few experts of many, which no named network has."""
        return False

    @property
    def task(self) -> Task:
        """One input of the theorems, or tokens."""
        from depthlaw.sims.config import Task

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

    def theory(
        self, optimizer: str, advance: Callable[[float], None] = lambda _: None, *, effort: float = 1.0
    ) -> Prediction:
        """At infinite width: of the FFN-only stack its second moments, of the others the kernel rung.

        advance: of the kernel rung, told how many passes over a sublayer were done, two of each. effort: of the kernel
        rung, its quasi-random points in units of what is usual. NoTheoryError, in one line, where there is none, or
        for what the kernel rung does not know. Layers that are visited again are for the kernel rung, FFNs alone too.
        """
        if self.is_walked:
            return self.walked(optimizer, advance, effort)
        from depthlaw.theory.meanfield.setting import Setting
        from depthlaw.theory.meanfield.update import predict_setting

        setting = Setting.of(self.block.in_scheme(self.scheme), optimizer, self.activation, self.norm_kind)
        return predict_setting(setting, self.num_sublayers, w=self.w, v=self.v)

    def first_step(self, optimizer: str) -> FirstStep | None:
        """What a step does to the stream itself, of a stack of FFNs; None where it is not derived."""
        from depthlaw.theory.meanfield.first_step import first_step
        from depthlaw.theory.meanfield.setting import Setting

        if self.is_walked:
            return None
        setting = Setting.of(self.block.in_scheme(self.scheme), optimizer, self.activation, self.norm_kind)
        return first_step(setting, self.num_sublayers, w=self.w, v=self.v)

    def walked(self, optimizer: str, advance: Callable[[float], None], effort: float) -> Prediction:
        """By the kernel rung, which knows FFNs alone as well, layer by layer."""
        from depthlaw.network.predicted_rows import KernelPrediction
        from depthlaw.theory.kernel.setting import MOST_TOKENS

        if (num_tokens := self.batch_size * self.num_tokens) > MOST_TOKENS:
            text = f"a prediction takes at most {MOST_TOKENS} tokens in all, --tokens times --batch, not {num_tokens}"
            raise NoTheoryError(text)
        config = self.config(optimizer)
        answer = self.kernel_update(optimizer, advance, config, effort=effort)
        size = self.predicted_head_size
        heads = "large heads" if size is None else f"heads of size {size}"
        return KernelPrediction(
            num_sublayers=self.depth,
            update=answer.update,
            roles=dict(answer.roles),
            log10_update=answer.log10_update,
            holds="infinite width; the relative correction is of order L/d at width d"
            if self.arch == FFN
            else f"infinite width, infinitely many {heads}; the relative correction is of order L/d at width d, and "
            "of order 1/heads where few heads carry a role's gradient: with one head the embedding moves 20 % less "
            "under sign-type optimizers, and with few heads v and k move less under muon (their gradients have few "
            "large singular values)",
            error=dict(answer.error),
            sides={
                side: {role: of_side[role] for role in ("update", *answer.roles) if role in of_side}
                for side, of_side in answer.sides.items()
                if config.decoder
            },
            streams=answer.streams,
            layers=answer.layers,
            gradients=answer.gradients,
        )

    def kernel_update(
        self,
        optimizer: str,
        advance: Callable[[float], None] = lambda _: None,
        config: ModelConfig | None = None,
        **options: Any,
    ) -> KernelUpdate:
        """What the kernel rung answers, of the roles that are there. config: plain numbers in place of this network's.
        options: of ``update_of``. NoTheoryError, in one line, for what the kernel rung does not know."""
        from depthlaw.network.kernel import as_inputs, as_transformer, update_of
        from depthlaw.sims.config import BRANCH_ROLES, OTHER_ROLES

        config = config or self.config(optimizer)
        try:
            transformer = as_transformer(config, head_size=self.predicted_head_size)
            inputs = as_inputs(self.task, config)
            answer = update_of(transformer, inputs, optimizer, advance=advance, **options)
        except (ValueError, ArithmeticError) as error:
            raise NoTheoryError(str(error) or type(error).__name__) from error
        others = OTHER_ROLES if self.arch != FFN else ("branch_weight",)
        there = [role for role in (*BRANCH_ROLES, *others) if role != "bias" or config.has_bias]
        return replace(answer, roles={role: answer.roles[role] for role in there if role in answer.roles})

    def after_start(
        self,
        optimizer: str,
        learning_rate: float,
        num_steps: int,
        *,
        weight_decay: float = 0.0,
        laws: Sequence[str] = (),
        advance: Callable[[float], None] = lambda _: None,
        config: ModelConfig | None = None,
        **options: Any,
    ) -> dict[str, float]:
        """The update of the branches' matrices by each of some laws of ``theory.kernel.after_start``, by all where none
        is named, so many steps behind the start, in the unit of the first step's. advance: as of ``theory``, once for
        each law. config: plain numbers in place of this network's. options: of ``predict_kernel``. NoTheoryError, in
        one line, where there is none."""
        from depthlaw.network.kernel import as_inputs, as_transformer, later_update_of
        from depthlaw.theory.kernel.after_start import LAWS, made

        config = config or self.config(optimizer)
        try:
            size = made(optimizer, learning_rate, num_steps, self.d_model, weight_decay)
            asked = as_transformer(config, head_size=self.predicted_head_size), as_inputs(self.task, config), optimizer
            return {
                law: later_update_of(law, *asked, size, self.d_model, advance=advance, **options)
                for law in laws or LAWS
            }
        except (ValueError, ArithmeticError) as error:
            raise NoTheoryError(str(error) or type(error).__name__) from error

    def role_power(self, optimizer: str, role: str) -> float:
        """The power of d_model that a measured role is multiplied by, to be O(1) in the width and as it is predicted:
        it is divided by that of the whole update already. A matrix has 0. A branch weight of the FFN-only stack is O(1)
        by itself, so the division is undone."""
        from depthlaw.sims.config import NORMALISATION

        if self.arch != FFN:
            from depthlaw.theory.kernel.predict import unit_power

            return unit_power(optimizer, role)
        return NORMALISATION[optimizer].power if role == "branch_weight" else 0.0

    def about(self, optimizer: str) -> dict[str, Any]:
        """The first entries of a document: what this network has in common with those of other depths."""
        from depthlaw.sims.config import NORMALISATION

        common = self.named(optimizer)
        for of_one_depth in ("num_sublayers", "num_layers", "visits", "numbers"):
            common.pop(of_one_depth, None)
        left_out = {} if self.recipe is None else {"left_out": self.recipe.leaves_out}
        return {
            "scheme": self.scheme.name,
            **left_out,
            "optimizer": optimizer,
            "activation": self.activation,
            "norm_kind": self.norm_kind,
            "network": common,
            "unit": NORMALISATION[optimizer]._asdict(),
        }

    def named(self, optimizer: str) -> dict[str, Any]:
        """Everything that the measurement is of, for a record. numbers: a digest of the plain numbers that sims are
        given, so that a record of a scheme is one with these weights and gains, and of no earlier reading of it."""
        from depthlaw.network.lower import digest_of_numbers

        named: dict[str, Any] = {"scheme": self.scheme.name, **self.laws, "optimizer": optimizer}
        named["numbers"] = digest_of_numbers(self.config(optimizer))
        names = ["arch", "num_sublayers" if self.num_layers is None else "num_layers", "d_model", "activation"]
        names += ["norm_kind", *(name for name in ("w", "v") if getattr(self, name) is not None)]
        names += ["visits"] if self.visits > 1 else []
        if self.arch != FFN:
            of_scheme = ("is_causal", "num_heads", "ffn_ratio")
            names += of_scheme if self.recipe is None else ["num_heads"]  # a recipe says the other two itself
            names += ["num_tokens", "batch_size", "correlation", "readout", "loss"]
            names += ["num_classes"] if self.loss == "ce" else []
        return named | {name: getattr(self, name) for name in names} | self.block.options
