"""What a module is given to look at it: token ids, vectors, images or sound, as its forward pass takes them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

NUM_TOKENS = 8
HALF = (torch.float16, torch.bfloat16)
_SEED = 7_000_003
"""Inputs are drawn from other seeds than weights are."""
_IDS = ("input_ids", "ids", "idx", "tokens", "input_tokens", "token_ids", "src_tokens", "indices", "inputs", "input")
_VECTORS = ("x", "hidden_states", "src", "inputs_embeds", "embeddings", "token_embeddings", "inputs", "input")
_IMAGES = ("pixel_values", "image", "images", "img", "x", "input", "inputs")
_SOUNDS = ("input_features", "input_values", "features", "audio", "wav")
_DECODER = ("decoder_input_ids", "prev_output_tokens", "tgt", "decoder_input", "y", "trg", "target", "context")
_BY_PLACE, _MANY_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL
_MANY_BY_NAME = inspect.Parameter.VAR_KEYWORD
_IMAGE_SIZES = (224, 32, 64, 28, 16, 96)
_SOUND_LENGTHS = (16, 400, 3000)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """One call of a module. kind: what it is given, in words. by_name: by the name of the parameter of ``forward``;
    by_place: what stands before these, where ``forward`` takes something by its place only."""

    kind: str
    by_name: Mapping[str, Any]
    by_place: Sequence[Any] = ()

    @property
    def data(self) -> dict[str, Tensor]:
        """The tensors among what it is called with, and inside of it.

        >>> import torch
        >>> from depthlaw.auditing.inputs import Inputs
        >>> list(Inputs(kind="ids", by_name={"batch": {"ids": torch.ones(2), "pads": [torch.zeros(1)]}}).data)
        ['batch.ids', 'batch.pads.0']
        """
        values = {f"input {place}": value for place, value in enumerate(self.by_place)} | {**self.by_name}
        return dict(tensor for name, value in values.items() for tensor in _tensors(value, name))

    def call(self, module: nn.Module, data: Mapping[str, Tensor] | None = None) -> Any:
        """What the module answers, to other tensors in the place of its own where they are given."""
        inputs = self if data is None else self.of(data)
        with _as_written():
            return module(*inputs.by_place, **inputs.by_name)

    def of(self, data: Mapping[str, Tensor]) -> Inputs:
        """The same call with other tensors."""
        by_place = [_with(data, value, f"input {place}") for place, value in enumerate(self.by_place)]
        by_name = {name: _with(data, value, name) for name, value in self.by_name.items()}
        return dataclasses.replace(self, by_place=by_place, by_name=by_name)

    def in_floats(self) -> Inputs:
        """What is of half precision in single: a module that was made one of float is called with it."""
        return self.of({name: value.float() if value.dtype in HALF else value for name, value in self.data.items()})


class _Run:
    """What ``torch.utils.checkpoint`` calls in the place of the function that hides a part of the graph."""

    @staticmethod
    def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)


def _run_once(*_: Any, **__: Any) -> Iterator[None]:
    yield


@contextmanager
def _as_written() -> Iterator[None]:
    """Run checkpointed and compiled parts as they are written: both hide operations from the graph, and what they
    compute is the same."""
    stance = getattr(torch.compiler, "set_stance", None) if "torch._dynamo" in sys.modules else None
    stand_ins = {"CheckpointFunction": _Run, "_checkpoint_without_reentrant_generator": _run_once}
    before = {name: getattr(checkpoint, name) for name in stand_ins if hasattr(checkpoint, name)}
    try:
        for name in before:
            setattr(checkpoint, name, stand_ins[name])
        with nullcontext() if stance is None else stance("force_eager"):
            yield
    finally:
        for name, value in before.items():
            setattr(checkpoint, name, value)


def _parts(value: Any) -> Mapping[Any, Any]:
    """What a dict, a list, a tuple or a dataclass consists of."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    return vars(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else {}


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    for key, part in _parts(value).items():
        yield from _tensors(part, f"{name}.{key}")


def _with(data: Mapping[str, Tensor], value: Any, name: str) -> Any:
    """The value of that name, with these tensors in it."""
    if isinstance(value, Tensor):
        return data[name]
    parts = {key: _with(data, part, f"{name}.{key}") for key, part in _parts(value).items()}
    if isinstance(value, (list, tuple)):
        return type(value)(*parts.values()) if hasattr(value, "_fields") else type(value)(parts.values())
    if not parts:
        return value
    filled = copy.copy(value)
    (filled if isinstance(filled, MutableMapping) else vars(filled)).update(parts)
    return filled


def guess(module: nn.Module, seed: int = 0) -> Inputs:
    """Inputs that the module's forward pass takes, by the names of its parameters, by its config and by trying.

    One sequence of eight tokens, or one image or sound; an encoder-decoder is given one for each side. The module is
    left as it is, and so are the states of the random generators. ValueError, in one line, where none of the usual
    kinds goes through: with what the module raised where it got furthest.
    """
    signature = _signature(module).parameters
    parameters = [p for p in signature.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    of_any_number = (_MANY_BY_PLACE, _MANY_BY_NAME)
    needed = {p.name for p in signature.values() if p.default is p.empty and p.kind not in of_any_number}
    tries: list[tuple[int, str]] = []
    with _in_evaluation(module), torch.random.fork_rng(devices=[]), torch.enable_grad():
        for inputs in _Kinds(module, parameters, seed).all():
            with _parts_run(module) as run:
                try:
                    first_output(inputs.call(module))
                except Exception as error:  # whatever a module raises, of an input that it does not take or by itself
                    if needed <= inputs.by_name.keys():
                        tries.append((len(run), f"called with {inputs.kind} it fails, {line_of(error)}"))
                    continue
            return inputs
    ask = "give --input MODULE:FUNCTION (in Python inputs=FUNCTION), a function of the module that returns what it is "
    forward = f"{type(module).__name__}.forward({', '.join(signature)})"
    if not tries:
        raise ValueError(f"no input could be guessed for {forward}: {ask}called with")
    _, what = max(tries, key=lambda tried: tried[0])
    raise ValueError(f"{forward}: {what}; if it is meant for other inputs, {ask}called with")


def given(answer: Any, module: nn.Module) -> Inputs:
    """What a user's own function answered, as inputs: a tensor, several, or a dict of them by name; or a single dict,
    where that is what the module takes.

    ValueError, in one line, where it has no tensor or does not fit the module.
    """
    signature = _signature(module)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    try:
        is_one = len(kinds) == 1 and _MANY_BY_NAME not in kinds.values()
        if isinstance(answer, Mapping) and (not is_one or answer.keys() == kinds.keys()):
            bound = signature.bind(**answer)
        else:
            bound = signature.bind(*(answer if isinstance(answer, (tuple, list)) else (answer,)))
    except TypeError as error:
        raise ValueError(f"--input does not fit {type(module).__name__}.forward{signature}: {error}") from error
    if any(kinds[name] in (_BY_PLACE, _MANY_BY_PLACE) for name in bound.arguments):
        inputs = Inputs(kind="yours", by_place=bound.args, by_name=bound.kwargs)
    else:
        others = next((bound.arguments.pop(name, {}) for name, kind in kinds.items() if kind is _MANY_BY_NAME), {})
        inputs = Inputs(kind="yours", by_name={**bound.arguments, **others})
    if not inputs.data:
        raise ValueError("--input answered no tensor: return a tensor, a tuple of them, or a dict by parameter name")
    return inputs


def _signature(module: nn.Module) -> inspect.Signature:
    """Of its forward pass; of a module that hands all that it is given on to its one part, as ``torch.compile`` and
    parallel wrappers make them, that of the part."""
    signature, parts = inspect.signature(module.forward), list(module.children())
    hands_on = all(parameter.kind in (_MANY_BY_PLACE, _MANY_BY_NAME) for parameter in signature.parameters.values())
    return _signature(parts[0]) if hands_on and len(parts) == 1 else signature


def first_output(answer: Any) -> Tensor:
    """The tensor of real numbers that a module answers: the first with more than one dimension, if there is any, so no
    loss, and one by itself before those of a list of hidden states, whose last is taken. ValueError where it has none.

    >>> import torch
    >>> from depthlaw.auditing.inputs import first_output
    >>> states = [torch.zeros(2, 3), torch.ones(2, 3)]
    >>> first_output((torch.ones(()), states, torch.ones(2, 5))).shape, first_output({"states": states}).mean().item()
    (torch.Size([2, 5]), 1.0)
    """
    tensors = [tensor for tensor in _by_nesting(answer) if tensor.is_floating_point()]
    if not tensors:
        raise ValueError("the module's output has no tensor of real numbers")
    return next((tensor for tensor in tensors if tensor.ndim > 1), tensors[0])


def _by_nesting(answer: Any) -> Iterator[Tensor]:
    """Tensors of an answer, before those of what lies in it; lists, as of hidden states, from their end."""
    if isinstance(answer, Tensor):
        yield answer
    is_list = isinstance(answer, (list, tuple))
    if is_dataclass(answer) and not isinstance(answer, Mapping):
        answer = {field.name: getattr(answer, field.name, None) for field in fields(answer)}
    values = [*answer.values()] if isinstance(answer, Mapping) else [*answer] if is_list else []
    values = values[::-1] if isinstance(answer, list) else values
    yield from (value for value in values if isinstance(value, Tensor))
    for value in values:
        if not isinstance(value, Tensor):
            yield from _by_nesting(value)


class _Kinds:
    """The inputs that a module may take, the likeliest first."""

    def __init__(self, module: nn.Module, parameters: Sequence[inspect.Parameter], seed: int) -> None:
        self.module = module
        self.names = [parameter.name for parameter in parameters]
        self.required = [p.name for p in parameters if p.default is p.empty]
        self.generator = torch.Generator().manual_seed(_SEED + seed)
        self.is_batch_first = all(getattr(part, "batch_first", True) for part in module.modules())
        self.tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
        parameter = next((p for p in module.parameters() if p.is_floating_point()), None)
        self.dtype = None if parameter is None else parameter.dtype
        self.device = None if parameter is None else parameter.device
        has_cache = "use_cache" in self.names and hasattr(module, "config")
        self.rest = {"use_cache": False} if has_cache else {}

    def all(self) -> Iterator[Inputs]:
        is_of_images = any(name in self.names for name in _IMAGES[:4])
        if (is_of_images or self._convolves(nn.Conv2d)) and (name := self._name(_IMAGES)):
            for size in self._image_sizes():
                yield Inputs(kind="an image", by_name={name: self._image(size), **self.rest})
        if name := next((name for name in _SOUNDS if name in self.names), None):
            for make in self._sounds():
                yield from self._with_second(name, make, self._ids, "sound")
        if self.tables and (name := self._name(_IDS)):
            yield from self._with_second(name, self._ids, self._ids, "token ids")
        for width in self._widths():
            if name := self._name(_VECTORS):
                tokens = (1, NUM_TOKENS) if self.is_batch_first else (NUM_TOKENS, 1)
                make = partial(self._normal, *tokens, width)
                if self.tables and (ids := self._name(_IDS)):
                    yield from self._with_second(ids, self._ids, make, "token ids", "token ids and vectors")
                yield from self._with_second(name, make, make, "vectors")
        if not self.tables and (name := self._name(_IDS)):
            yield from self._with_second(name, self._ids, self._ids, "token ids")

    def _name(self, wanted: Sequence[str]) -> str | None:
        """Of the parameter that takes such a thing: by its name, or the first of all."""
        return next((name for name in wanted if name in self.names), self.names[0] if self.names else None)

    def _with_second(
        self, first: str, make: Callable[[], Tensor], second: Callable[[], Tensor], kind: str, both: str = ""
    ) -> Iterator[Inputs]:
        """With something for a decoder, where the forward pass has a parameter for that, and without."""
        others = [name for name in (*_DECODER, *self.names[1:2]) if name in self.names and name != first]
        kinds = [Inputs(kind=kind, by_name={first: make(), **self.rest})] if not both else []
        if others:
            by_name = {first: make(), others[0]: second(), **self.rest}
            two = Inputs(kind=both or f"{kind} for encoder and decoder", by_name=by_name)
            kinds.insert(0 if others[0] in (*_DECODER, *self.required[1:2]) else len(kinds), two)
        yield from kinds

    def _ids(self) -> Tensor:
        """Eight ids that every table (or matrix) of the module has, but 0 and 1, which often mask or end."""
        sizes = [table.num_embeddings for table in self.tables]
        sizes = sizes or [len(parameter) for parameter in self.module.parameters() if parameter.ndim == 2]
        most = min((size for size in sizes if size > NUM_TOKENS), default=NUM_TOKENS)
        least = 2 if most > 2 * NUM_TOKENS else 0
        return torch.randint(least, most, (1, NUM_TOKENS), generator=self.generator).to(self.device or "cpu")

    def _normal(self, *shape: int) -> Tensor:
        value = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return value.to(self.dtype).to(self.device or "cpu")

    def _convolves(self, kind: type[nn.Module]) -> nn.Module | None:
        return next((part for part in self.module.modules() if isinstance(part, kind)), None)

    def _image_sizes(self) -> Iterator[tuple[int, int]]:
        """Sizes that the module's config or its patch embedding names, then the usual ones."""
        config = getattr(self.module, "config", None)
        named = [getattr(part, "img_size", None) for part in self.module.modules()]
        for size in [getattr(config, "image_size", None), *named, *_IMAGE_SIZES]:
            if isinstance(size, int):
                yield size, size
            elif isinstance(size, (tuple, list)) and len(size) == 2:
                yield int(size[0]), int(size[1])

    def _image(self, size: tuple[int, int]) -> Tensor:
        first = self._convolves(nn.Conv2d)
        return self._normal(1, first.in_channels if isinstance(first, nn.Conv2d) else 3, *size)

    def _sounds(self) -> Iterator[Callable[[], Tensor]]:
        config, first = getattr(self.module, "config", None), self._convolves(nn.Conv1d)
        channels = first.in_channels if isinstance(first, nn.Conv1d) else 1
        longest = getattr(config, "max_source_positions", None)
        lengths = [2 * longest] if isinstance(longest, int) else []
        for length in (*lengths, *_SOUND_LENGTHS):
            yield partial(self._normal, 1, channels, length)
            if channels == 1:
                yield partial(self._normal, 1, length)

    def _widths(self) -> list[int]:
        """Widths that the module's vectors may have, the likeliest first: of its vectors and of its matrices' sides."""
        counts: dict[int, int] = {}
        for parameter in self.module.parameters():
            for size in parameter.shape[-2:]:
                counts[size] = counts.get(size, 0) + 1
        return sorted(counts, key=lambda size: -counts[size])[:6]


@contextmanager
def _parts_run(module: nn.Module) -> Iterator[list[nn.Module]]:
    """The parts of a module that have answered."""
    run: list[nn.Module] = []
    hooks = [part.register_forward_hook(lambda part, *_: run.append(part)) for part in module.modules()]
    try:
        yield run
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _in_evaluation(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def line_of(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {_line(error)}" if str(error) else f"{type(error).__name__}: no message"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 160 else f"{text[:157]}..."
