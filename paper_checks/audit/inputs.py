"""What a module is given to look at it: token ids, vectors or images, as its forward pass takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

NUM_TOKENS = 8
_SEED = 7_000_003
"""Inputs are drawn from other seeds than weights are."""
_IDS = ("input_ids", "ids", "idx", "tokens", "input_tokens", "token_ids", "src_tokens", "indices", "inputs", "input")
_VECTORS = ("x", "hidden_states", "src", "inputs_embeds", "embeddings", "token_embeddings", "inputs", "input")
_IMAGES = ("pixel_values", "image", "images", "img", "x", "input", "inputs")
_DECODER = ("decoder_input_ids", "prev_output_tokens", "tgt", "decoder_input", "y", "trg", "target")
_IMAGE_SIZES = (224, 32, 64, 28)
Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """One call of a module. kind: what it is given, in words. data: the tensors that differ from call to call, by the
    name of the parameter of ``forward``; rest: what else it is called with."""

    kind: str
    data: Mapping[str, Tensor]
    rest: Mapping[str, Any] = field(default_factory=dict)

    def call(self, module: nn.Module) -> Any:
        return module(**self.data, **self.rest)


def guess(module: nn.Module, seed: int = 0) -> Inputs:
    """Inputs that the module's forward pass takes, by the names of its parameters and by trying.

    ValueError, in one line, where none of the usual kinds goes through.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    first_error = None
    for inputs in _kinds(module, [parameter.name for parameter in parameters], seed):
        try:
            with torch.no_grad():
                first_output(inputs.call(module))
        except Exception as error:  # whatever a module raises of an input that it does not take
            first_error = first_error or error
            continue
        return inputs
    names = ", ".join(parameter.name for parameter in parameters)
    reason = f"; the first try ended in: {str(first_error).splitlines()[0]}" if str(first_error or "") else ""
    raise ValueError(
        f"no input could be guessed for {type(module).__name__}.forward({names}): give --input MODULE:FUNCTION, a "
        f"function of the module that returns what it is called with{reason}"
    )


def given(answer: Any, module: nn.Module) -> Inputs:
    """What a user's own function answered, as inputs: a tensor, several, or a dict of them by name."""
    names = list(inspect.signature(module.forward).parameters)
    if isinstance(answer, Mapping):
        by_name = dict(answer)
    else:
        by_name = dict(zip(names, answer if isinstance(answer, (tuple, list)) else (answer,), strict=False))
    data = {name: value for name, value in by_name.items() if isinstance(value, Tensor)}
    if not data:
        raise ValueError("--input answered no tensor: return a tensor, a tuple of them, or a dict by parameter name")
    return Inputs(kind="yours", data=data, rest={name: by_name[name] for name in by_name if name not in data})


def first_output(answer: Any) -> Tensor:
    """The tensor of real numbers that a module's answer begins with."""
    if isinstance(answer, Tensor):
        if not answer.is_floating_point():
            raise ValueError("the module's output is no tensor of real numbers")
        return answer
    values = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, (tuple, list)) else ()
    for value in values:
        if isinstance(value, (Tensor, tuple, list, Mapping)):
            try:
                return first_output(value)
            except ValueError:
                continue
    raise ValueError("the module's output has no tensor of real numbers")


def _kinds(module: nn.Module, names: list[str], seed: int) -> Iterator[Inputs]:
    generator = torch.Generator().manual_seed(_SEED + seed)
    tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    images = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    rest = {"use_cache": False} if "use_cache" in names and hasattr(module, "config") else {}
    second = next((name for name in _DECODER if name in names), None)

    def with_second(make: Callable[[], Tensor], first: str, kind: str) -> Iterator[Inputs]:
        if second is not None and second != first:
            data = {first: make(), second: make()}
            yield Inputs(kind=f"{kind} for encoder and decoder", data=data, rest=rest)
        yield Inputs(kind=kind, data={first: make()}, rest=rest)

    dtype = next((parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()), None)
    widths = _widths(module)

    def ids() -> Tensor:
        most = min((table.num_embeddings for table in tables if table.num_embeddings > NUM_TOKENS), default=64)
        return torch.randint(2 if most > 2 * NUM_TOKENS else 0, most, (1, NUM_TOKENS), generator=generator)

    def vectors(width: int) -> Tensor:
        return torch.randn((1, NUM_TOKENS, width), generator=generator, dtype=torch.float64).to(dtype)

    def first_of(wanted: tuple[str, ...]) -> str | None:
        return next((name for name in wanted if name in names), names[0] if names else None)

    if images and (name := first_of(_IMAGES)):
        channels = images[0].in_channels
        for size in _IMAGE_SIZES:
            image = torch.randn((1, channels, size, size), generator=generator, dtype=torch.float64)
            yield Inputs(kind="an image", data={name: image.to(dtype)}, rest=rest)
    if tables and (name := first_of(_IDS)):
        yield from with_second(ids, name, "token ids")
    for width in widths:
        if name := first_of(_VECTORS):
            yield from with_second(lambda width=width: vectors(width), name, "vectors")
    if not tables and (name := first_of(_IDS)):
        yield from with_second(ids, name, "token ids")


def _widths(module: nn.Module) -> list[int]:
    """Widths that the module's vectors may have, the likeliest first: sizes of its vectors and of its matrices' sides."""
    counts: dict[int, int] = {}
    for parameter in module.parameters():
        for size in parameter.shape[-1:] if parameter.ndim in (1, 2) else ():
            counts[size] = counts.get(size, 0) + 1
    return sorted(counts, key=lambda size: -counts[size])[:4]
