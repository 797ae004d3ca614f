"""A named training run: which scheme, optimizer and shape, lowered to the plain numbers that sims train with.

Shapes, and the data of each (``sims.training.data``):

    gpt          decoder-only, causal               the next byte            (or the user's --text)
    gpt-help     decoder-only, causal               the next byte of the pages that Python's help shows
    bert         encoder                            masked bytes             (or the user's --text)
    nmt          encoder-decoder, N and M layers    translation              (or the user's --parallel)
    vit          encoder of patches                 digits, by class
    vit-masked   encoder of patches                 masked patches
    speech       encoder of frames                  a synthesised task

Networks are as ``depthlaw.network.lower`` builds them, with norm gains and biases, linear biases, and 1e-5 inside
norms, as is usual in training. Beside the schemes of theory there is ``post-ln-init``, which DeepNet trains as a
control: Post-LN with every matrix of layer l, queries and keys too, times 1/(N - l + 1) (DN-13; layers counted on
either side).
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from depthlaw.sims.config import ModelConfig, SublayerConfig
    from depthlaw.sims.training.sharded import Processes
    from depthlaw.sims.training.sweep import Kind
    from depthlaw.sims.training.train import TrainConfig

POST_LN_INIT = "post-ln-init"


class Shape(NamedTuple):
    """arch: as in ``depthlaw.network.network``. data: a name of ``sims.training.data``. own: the field with the
    user's own data."""

    arch: str
    data: str
    own: str | None = None


SHAPES: Mapping[str, Shape] = {
    "gpt": Shape("decoder", "causal", "text"),
    "gpt-help": Shape("decoder", "help"),
    "bert": Shape("encoder", "masked", "text"),
    "nmt": Shape("encoder-decoder", "translation", "parallel"),
    "vit": Shape("encoder", "digits"),
    "vit-masked": Shape("encoder", "masked-patches"),
    "speech": Shape("encoder", "speech"),
}
_COUNTS = (
    "num_layers",
    "d_model",
    "num_heads",
    "ffn_ratio",
    "num_tokens",
    "batch_size",
    "num_steps",
    "evaluate_every",
    "patience",
)

OF_RECIPE = "recipe:"
"""What stands before a recipe's name in the place of a scheme's."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A remedy in plain numbers: what a model has in the place of what its scheme or recipe says at its depth.

    name: the remedy's (``depthlaw.advice``). from_layers: the layers of the model that was tuned. numbers: by
    "kind.field" or "kind.field.role" ("ffn.branch_weight", "attention.lr_multipliers.out"), of every layer alike.

    >>> from depthlaw.network.trials import Change, Trial
    >>> change = Change(name="branch-weight", from_layers=4, numbers=(("ffn.branch_weight", 0.125),))
    >>> model = Trial(scheme="pre-ln", num_layers=32, change=change).lower().model
    >>> [sublayer.branch_weight for sublayer in model.encoder[:2]]
    [1.0, 0.125]
    """

    name: str
    from_layers: int
    numbers: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", tuple(sorted(self.numbers)))  # JSON keeps no order

    @classmethod
    def between(
        cls, name: str, from_layers: int, plain: ModelConfig, wanted: ModelConfig, rates: Mapping[str, float]
    ) -> Change:
        """What makes one network of the other, tables and head left as they are. rates: by role, what learning rates
        are multiplied by beside those of ``wanted``; they are rounded to three digits, as they are printed. ValueError,
        in one line, for two sides, and where layers of a kind differ."""
        if wanted.decoder:
            raise ValueError("a change is of one stack, not of an encoder-decoder")
        numbers: dict[str, float] = {}
        for before, after in zip(plain.encoder, wanted.encoder, strict=True):
            for key, value in _numbers_of(after, wanted, rates).items():
                if value != _numbers_of(before, plain, {})[key] and numbers.setdefault(key, value) != value:
                    raise ValueError(f"{name} changes {key} from layer to layer")
        return cls(name=name, from_layers=from_layers, numbers=tuple(numbers.items()))

    def on(self, config: ModelConfig) -> ModelConfig:
        """The network with these numbers. ValueError, in one line, for one that there is not."""
        by_kind: dict[str, dict[str, Any]] = {}
        for key, value in self.numbers:
            kind, name, *roles = key.split(".")
            fields_ = by_kind.setdefault(kind, {})
            if (name in _BY_ROLE) != bool(roles) or name not in (*_BY_ROLE, "residual_weight", "branch_weight"):
                raise ValueError(f"a change has no {key}")
            fields_[name] = {**fields_.get(name, {}), roles[0]: value} if roles else value
        return replace(config, encoder=tuple(_with(sub, by_kind.get(sub.kind, {})) for sub in config.encoder))


_BY_ROLE = ("gains", "lr_multipliers")


def _with(sublayer: SublayerConfig, numbers: Mapping[str, Any]) -> SublayerConfig:
    by_role = {name: {**getattr(sublayer, name), **numbers[name]} for name in _BY_ROLE if name in numbers}
    return replace(sublayer, **{**numbers, **by_role})


def _numbers_of(sublayer: SublayerConfig, shape: ModelConfig, rates: Mapping[str, float]) -> dict[str, float]:
    """By key. Vectors have rates alone."""
    from depthlaw.sims.records.record import rounded

    kind, roles = sublayer.kind, shape.roles(sublayer.kind)
    numbers = {f"{kind}.{name}": getattr(sublayer, name) for name in ("residual_weight", "branch_weight")}
    numbers |= {f"{kind}.gains.{role}": sublayer.gains.get(role, 1.0) for role in roles}
    scale = ["layer_scale"] if sublayer.has_layer_scale else []
    for role in (*roles, "bias", "norm_gain", "norm_bias", *scale):
        rate, more = sublayer.lr_multipliers.get(role, 1.0), rates.get(role, 1.0)
        numbers[f"{kind}.lr_multipliers.{role}"] = rate if more == 1 else rounded(rate * more, 3)
    return numbers


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Everything that decides a training run.

    scheme: a name of ``theory.schemes``, "post-ln-init", or "recipe:" and a recipe's name; a recipe brings its own
    activation, kind of norm and FFN width. num_decoder_layers: how many layers the decoder of an nmt has, as many as
    the encoder if None. change: a remedy that the model is given. The other fields are as in
    ``sims.training.train.TrainConfig``.

    ValueError, in one line, for what there is not and what does not fit together: here or, where theory or sims have to
    be asked, in ``lower`` and ``named``.

    >>> from depthlaw.network.trials import Trial
    >>> trial = Trial(scheme="deepnorm", shape="vit", num_layers=2, learning_rate=4e-3, num_steps=40)
    >>> trial.num_sublayers, round(trial.lower().model.encoder[0].residual_weight, 4)
    (4, 1.4142)
    >>> Trial(scheme="deepnorm", shape="vit", num_decoder_layers=3)
    Traceback (most recent call last):
        ...
    ValueError: num_decoder_layers belongs to the shape nmt, not to vit
    """

    scheme: str
    optimizer: str = "adam"
    shape: str = "gpt"
    num_layers: int = 4
    num_decoder_layers: int | None = None
    d_model: int = 32
    num_heads: int = 2
    ffn_ratio: int = 4
    activation: str = "gelu"
    norm_kind: str = "layernorm"
    num_tokens: int = 32
    batch_size: int = 16
    learning_rate: float = 1e-3
    num_steps: int = 200
    warmup_steps: int = 0
    warmup_from: float = 0.0
    schedule: str = "constant"
    weight_decay: float = 0.0
    clip_norm: float | None = None
    seed: int = 0
    precision: str = "float32"
    evaluate_every: int = 50
    patience: int = 50
    measure_at: tuple[int, ...] = ()
    has_moves: bool = False
    change: Change | None = None
    text: str | None = None
    parallel: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"shape is one of {', '.join(SHAPES)}, not {self.shape!r}")
        has_decoder = self.num_decoder_layers is not None
        for name in (*_COUNTS, *(["num_decoder_layers"] if has_decoder else [])):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{name} is a whole number from 1, not {number!r}")
        if self.seed < 0:
            raise ValueError(f"seed is at least 0, not {self.seed}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is a positive number, not {self.learning_rate}")
        if has_decoder and self.arch != "encoder-decoder":
            raise ValueError(f"num_decoder_layers belongs to the shape nmt, not to {self.shape}")
        if self.num_decoder_layers == self.num_layers:  # one run, one trial: `of` gives back what was named
            object.__setattr__(self, "num_decoder_layers", None)
        for name, value in (("text", self.text), ("parallel", self.parallel)):
            if value is not None and SHAPES[self.shape].own != name:
                whose = " and ".join(name_ for name_, shape in SHAPES.items() if shape.own == name)
                raise ValueError(f"{name} belongs to {whose}, not to {self.shape}")

    @property
    def arch(self) -> str:
        return SHAPES[self.shape].arch

    @property
    def sides(self) -> tuple[int, int]:
        """(N, M) of an encoder-decoder."""
        return self.num_layers, self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    @property
    def num_sublayers(self) -> int:
        """L, of both sides together."""
        encoder, decoder = self.sides
        return 2 * encoder + 3 * decoder if self.arch == "encoder-decoder" else 2 * encoder

    def named(self) -> dict[str, Any]:
        """JSON: every field (has_moves, change where there are any), the layers of both sides of an nmt, two digests.

        numbers: of the plain numbers that sims are given, so that a run of a scheme is one with these weights and
        gains. data: of the examples. ValueError, in one line, for a run that cannot be.
        """
        numbers, data = _digests(replace(self, seed=0, learning_rate=1.0))
        named = vars(self) | {"measure_at": list(self.measure_at), "parallel": self.parallel and list(self.parallel)}
        if self.arch == "encoder-decoder":
            named["num_decoder_layers"] = self.sides[1]
        if not self.has_moves:  # so that runs from before there were any keep their names
            del named["has_moves"]
        if self.change is None:
            del named["change"]
        else:
            named["change"] = {**vars(self.change), "numbers": dict(self.change.numbers)}
        return named | {"numbers": numbers, "data": data}

    @classmethod
    def of(cls, named: Mapping[str, Any]) -> Trial:
        """From what ``named`` gave."""
        known = {field.name for field in fields(cls)}
        if odd := set(named) - known - {"numbers", "data"}:
            raise ValueError(f"a trial has no {', '.join(sorted(odd))}")
        if missing := known - {"has_moves", "change"} - set(named):
            raise ValueError(f"a trial without {', '.join(sorted(missing))}")
        given: dict[str, Any] = {name: value for name, value in named.items() if name in known}
        pair = given["parallel"]
        given |= {"measure_at": tuple(given["measure_at"]), "parallel": pair and tuple(pair)}
        if (change := given.get("change")) is not None:
            given["change"] = Change(**change | {"numbers": tuple(change["numbers"].items())})
        return cls(**given)

    def in_folder(self, folder: str) -> Trial:
        """It with the user's own files in that folder, unless they say where they are."""
        join = partial(os.path.join, folder)
        return replace(
            self, text=self.text and join(self.text), parallel=self.parallel and tuple(map(join, self.parallel))
        )

    def lower(self) -> TrainConfig:
        """The plain numbers that sims train with. ValueError, in one line, for what there is not."""
        from depthlaw.sims.training.data import DataConfig
        from depthlaw.sims.training.train import TrainConfig

        names = {field.name for field in fields(TrainConfig)} & set(vars(self))
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return TrainConfig(
            model=self._model(),
            data=DataConfig(
                name=SHAPES[self.shape].data, num_tokens=self.num_tokens, text=self.text, parallel=self.parallel
            ),
            **values,
        )

    def _model(self) -> ModelConfig:
        from depthlaw.network.network import Network, sublayers_of
        from depthlaw.theory.schemes import SCHEMES, nearest

        if self.scheme.startswith(OF_RECIPE):
            from depthlaw.recipes.catalogue import recipe

            name = self.scheme.removeprefix(OF_RECIPE)
            if (model := recipe(name)).arch != self.arch:
                fitting = " or ".join(name for name, shape in SHAPES.items() if shape.arch == model.arch)
                raise ValueError(
                    f"recipe {name} is of {model.arch} kind, and shape {self.shape} wants one of {self.arch} kind "
                    f"(allowed: shape {fitting})"
                )
            if self.num_decoder_layers not in (None, self.num_layers):
                raise ValueError(f"recipe {name} has as many layers on either side")
            network = Network.of_recipe(model, self.num_layers, self.d_model, num_heads=self.num_heads)
        else:
            if self.scheme not in (*SCHEMES, POST_LN_INIT):
                raise ValueError(nearest(self.scheme, [*SCHEMES, POST_LN_INIT], "scheme"))
            layers = self.sides if self.arch == "encoder-decoder" else self.num_layers
            names = ("d_model", "num_heads", "ffn_ratio", "activation", "norm_kind")
            shape: dict[str, Any] = {name: getattr(self, name) for name in names}
            scheme = SCHEMES["post-ln" if self.scheme == POST_LN_INIT else self.scheme]
            network = Network(scheme=scheme, arch=self.arch, **sublayers_of(layers), **shape)
        config = replace(network.config(self.optimizer), norm_eps=1e-5)
        config = config if self.change is None else self.change.on(config)
        if self.scheme != POST_LN_INIT:
            return config
        return replace(config, encoder=_by_layer(config.encoder, 2), decoder=_by_layer(config.decoder, 3))


_OF_ONE_RUN = ("scheme", "optimizer", "num_layers", "num_decoder_layers", "learning_rate", "seed", "numbers", "data")


def common(named: Mapping[str, Any]) -> dict[str, Any]:
    """What all trials of a grid have in common: their entry ``config`` in a document, whose rows have the rest."""
    return {name: value for name, value in named.items() if name not in _OF_ONE_RUN}


@cache
def _digests(trial: Trial) -> tuple[str, str]:
    """Of its numbers and of its examples, which neither the seed nor the learning rate changes: a grid has many."""
    from depthlaw.network.lower import digest_of_numbers
    from depthlaw.sims.training.data import load

    config = trial.lower()
    return digest_of_numbers(config.model), load(config.data).digest


def _by_layer(sublayers: tuple[SublayerConfig, ...], in_layer: int) -> tuple[SublayerConfig, ...]:
    """Every matrix of layer l of N times 1/(N - l + 1)."""
    from depthlaw.sims.config import MATRICES

    num_layers = len(sublayers) // in_layer
    return tuple(
        replace(sublayer, gains=dict.fromkeys(MATRICES[sublayer.kind], 1 / (num_layers - index // in_layer)))
        for index, sublayer in enumerate(sublayers)
    )


def least_bytes(trial: Trial, *, num_devices: int = 1, recomputes: bool = False) -> int:
    """What its training holds at its peak on each of the devices that it is cut over."""
    from depthlaw.sims.training.data import load
    from depthlaw.sims.training.plan import memory_of_training

    config = trial.lower()
    return memory_of_training(config, load(config.data), num_devices=num_devices, recomputes=recomputes or None).total


def check_memory(
    trials: Iterable[Trial], free: int, where: str, *, num_devices: int = 1, recomputes: bool = False
) -> int:
    """How many of the largest are trained at a time in so many free bytes of each device. ValueError, in one line,
    where not even one is. where: in the words of that line, where these bytes are."""
    from depthlaw.sims.training.data import load

    wanted, trial = 1, None
    for candidate in {replace(candidate, seed=0, learning_rate=1.0): candidate for candidate in trials}.values():
        if (least := least_bytes(candidate, num_devices=num_devices, recomputes=recomputes)) > wanted:
            wanted, trial = least, candidate
    if trial is not None and wanted > free:
        positions = load(trial.lower().data).num_positions
        layers = "-".join(map(str, trial.sides if trial.arch == "encoder-decoder" else trial.sides[:1]))
        raise ValueError(
            f"{layers} layers of width {trial.d_model} with {trial.batch_size} x {positions} tokens take "
            f"{wanted / 2**30:,.1f} GiB or more to train by {trial.optimizer}; {free / 2**30:,.1f} GiB are free {where}"
        )
    return free // wanted


TOGETHER = 8
"""The most runs that are trained together on a CPU: measured at widths 32, 64 and 128, a step of a run is then at its
shortest, or within a twentieth of it; of 16 and more the caches hold too little, and of 4 the calls cost more.
"""
TOGETHER_ON_GPU = 256


def kind_of(named: Mapping[str, Any], *, device: str = "cpu", free: int) -> Kind:
    """Which runs can be trained together with it, for ``sims.training.sweep``: at most as many as fit into what is free
    for a worker, in bytes.
    """
    return _kind_of(replace(Trial.of(named), seed=0, learning_rate=1.0), device, free)


@cache
def _kind_of(trial: Trial, device: str, free: int) -> Kind:
    from depthlaw.sims.ensemble import SHARE
    from depthlaw.sims.training.sweep import Kind

    fitting = SHARE * free / least_bytes(trial)
    most = TOGETHER if device == "cpu" else TOGETHER_ON_GPU
    return Kind(trial.lower().kind, max(1, min(most, int(fitting))))


def execute(
    several: Sequence[Mapping[str, Any]],
    *,
    folder: str = "",
    device: str = "cpu",
    checkpoints: Path | None = None,
    checkpoint_every: int = 100,
    recomputes: bool = False,
    processes: Processes | None = None,
) -> list[dict[str, Any]]:
    """Train the runs that ``Trial.named`` describes, together; return a ``TrainResult`` of each, as JSON.

    Several runs have to be of one ``kind_of``. folder: where files of the user's own are looked for, which a worker on
    another machine needs to know. checkpoints: a folder in which each run that is under way keeps a file; none is left
    when it has ended. recomputes: whether the backward pass computes sublayers again, which changes no number.
    processes: the processes that one run is cut over, each of which calls this function; its checkpoint is a folder
    then. ValueError, in one line, where this checkout makes other numbers or other data of these names.

    >>> from depthlaw.network.trials import Trial, execute
    >>> trial = Trial(scheme="pre-ln", shape="vit", num_layers=1, d_model=8, num_steps=2, batch_size=4)
    >>> (result,) = execute([trial.named()])
    >>> result["num_steps"], len(result["losses"])
    (2, 2)
    """
    from depthlaw.sims.training.store import key
    from depthlaw.sims.training.train import is_checkpoint, train_together

    trials = [Trial.of(named).in_folder(folder) for named in several]
    for trial, named in zip(trials, several, strict=True):
        here = trial.named()
        for name, what in (("numbers", "weights and gains"), ("data", "data")):
            if here[name] != named.get(name):
                raise ValueError(f"{trial.scheme}: the {what} of this run are {here[name]} here, not {named.get(name)}")
    paths = None
    if checkpoints is not None:
        both = [(checkpoints / f"{key(named)}.pt", checkpoints / key(named)) for named in several]
        for of_one, of_several in both:
            if processes is None and is_checkpoint(of_several):
                raise ValueError(
                    f"{of_several} is a checkpoint of several processes: go on under torchrun, with any number of them "
                    "(--nproc-per-node 1 too), or remove it"
                )
            if processes is not None and is_checkpoint(of_one):
                raise ValueError(f"{of_one} is a checkpoint of one process: go on without torchrun, or remove it")
        paths = [pair[processes is not None] for pair in both]
    configs = [trial.lower() for trial in trials]
    results = train_together(
        [replace(run, model=replace(run.model, recomputes=True)) for run in configs] if recomputes else configs,
        device=device,
        checkpoints=paths,
        checkpoint_every=checkpoint_every,
        processes=processes,
    )
    for path in paths or ():
        if processes is None:
            path.unlink(missing_ok=True)
        elif processes.rank == 0:
            shutil.rmtree(path, ignore_errors=True)
    return [result.plain() for result in results]
