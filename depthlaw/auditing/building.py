"""A builder is called: the module of a number of layers, and what that module is called with.

Modules are built and run, which is code of whoever wrote them; nothing else of theirs is executed.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from depthlaw.auditing.faults import Fault
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.inputs import Inputs, given, line_of
from depthlaw.auditing.models import Depth
from depthlaw.sims.ensemble import available_bytes

Build = Callable[..., nn.Module]
_LARGE = 2**22
"""Entries of a matrix from which on its products gain by threads."""
_INITS = ("init_weights", "reset_parameters", "initialize_weights")


def whole_numbers(layers: Sequence[int] | int) -> list[int]:
    """The numbers of layers, the least first. ValueError, in one line, where they are none."""
    numbers = list(layers) if isinstance(layers, Iterable) else [layers]
    if not numbers:
        raise ValueError("layers is empty: give numbers of layers, such as (4, 8, 16)")
    whole = [n for n in numbers if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0]
    if len(whole) < len(numbers) or len(set(whole)) < len(whole):
        raise ValueError(f"layers are whole numbers above 0, each once, such as (4, 8, 16): {layers!r}")
    return sorted(map(int, whole))


def visits_by_number(layers: Sequence[int] | int, visits: Sequence[int] | int) -> dict[int, int]:
    """By each number of layers, the least first, how often these are visited. ValueError, in one line, where numbers of
    visits are none, or neither one nor one for each."""
    given = list(layers) if isinstance(layers, Iterable) else [layers]
    numbers = whole_numbers(given)
    times = list(visits) if isinstance(visits, Iterable) else [visits]
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in times):
        raise ValueError(f"visits are whole numbers above 0: {visits!r}")
    if len(times) not in (1, len(given)):
        raise ValueError(f"visits are one number, or one for each of the {len(given)} numbers of layers: {visits!r}")
    of_layers = dict(zip(map(int, given), times * len(given) if len(times) == 1 else times, strict=False))
    return {number: int(of_layers[number]) for number in numbers}


def called_with(inputs: Callable[[nn.Module], Any], module: nn.Module) -> Inputs:
    """What a user's own function answers, tried once. ValueError, in one line, where it raises or the module does."""
    try:
        answer = inputs(module)
    except Exception as error:  # whatever a function of somebody else raises
        raise ValueError(f"--input failed: {line_of(error)}") from error
    called = given(answer, module)
    try:
        called.call(module)
    except Exception as error:  # whatever a module raises of an input that it does not take
        raise ValueError(f"called with what --input gives, {type(module).__name__} fails: {line_of(error)}") from error
    return called


def build_at(build: Build, num_layers: int, seed: int) -> nn.Module:
    """ValueError, in one line, where the builder raises or returns something else."""
    with _seeded(seed):
        try:
            module = _call(build, num_layers)
        except Exception as error:  # whatever a builder of somebody else raises
            depth = f"{num_layers} layer{'s' * (num_layers != 1)}"
            raise ValueError(f"the builder failed at {depth}: {line_of(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"the builder returned something of type {type(module).__name__}, no torch.nn.Module")
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError(
            f"the parameters of {type(module).__name__} are on the meta device: it must be built with values"
        )
    if not callable(module.forward):
        raise ValueError(f"{type(module).__name__}.forward is of type {type(module.forward).__name__}, no function")
    return module


def prepare(build: Build, num_layers: int, num_depths: int) -> None:
    """Refuse what would not fit: a model at every depth, and gradients of one; and run small models in one thread, as
    several would wait for one another at each small product. A builder that cannot build on the meta device is let
    pass."""
    try:
        with _seeded(0), torch.device("meta"):
            module = _call(build, num_layers)
        sizes = [tensor.numel() for tensor in module.parameters()]
        needed = (num_depths + 2) * sum(tensor.nbytes for tensor in module.parameters())
    except Exception:
        return
    if max(sizes, default=0) < _LARGE:
        torch.set_num_threads(1)
    if needed > (free := available_bytes("cpu")):
        raise ValueError(
            f"{num_layers} layers need about {needed / 2**30:.0f} GiB of memory, and {free / 2**30:.0f} are free: "
            "audit fewer layers or a narrower model; laws of depth do not depend on the width"
        )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The random generators of torch, numpy and Python from a seed, and afterwards as they were."""
    of_numpy = np.random.get_state()  # noqa: NPY002 - the one that a builder of somebody else may draw from
    of_python = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - as above
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 - as above


_COUNTS = ("layer", "depth", "block")
"""In the name of a parameter by keyword that is a number of layers."""


def check_builder(build: Build) -> None:
    """Refuse what is no function, takes no number of layers, or answers only when it is awaited."""
    if isinstance(build, nn.Module) or not callable(build):
        kind = type(build).__name__
        raise ValueError(f"a builder is wanted, a function of a number of layers that returns the module, not a {kind}")
    if inspect.iscoroutinefunction(build):
        raise ValueError(f"the builder {build.__name__} is an async function: it must return the module at once")
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return
    if not any(p.kind is not p.KEYWORD_ONLY or any(word in p.name for word in _COUNTS) for p in parameters):
        names = ", ".join(p.name for p in parameters) or "nothing"
        raise ValueError(
            f"the builder {getattr(build, '__name__', 'given')} takes {names}: it must take the number of layers to "
            "build, as build(num_layers), and return the module"
        )


def _call(build: Build, num_layers: int) -> nn.Module:
    """Call a builder with a number of layers, twice where it must be told the encoder's and the decoder's."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return build(num_layers)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if not positional:
        by_keyword = [p for p in parameters if any(word in p.name for word in _COUNTS)]
        needed = [p for p in by_keyword if p.default is p.empty] or by_keyword[:1]
        return build(**{p.name: num_layers for p in needed})
    return build(*[num_layers] * (2 if sum(p.default is p.empty for p in positional) == 2 else 1))


# ---------------------------------------------------------------- built without memory first


def lost_on_meta(build: Build, num_layers: int, depth: Depth, seed: int) -> Iterator[Fault]:
    """What the module's own initialisation leaves out after construction on the meta device, as large models are built.

    Tried where the module has such an initialisation, a method of its own that takes nothing. It is called behind
    every part's ``reset_parameters``, so that only what neither of them sets is told.
    """
    name = next((name for name in _INITS if callable(getattr(type(depth.built.module), name, None))), None)
    if name is None or hasattr(depth.built.module, "config"):
        return  # Hugging Face's models materialise by a way of their own
    try:
        with _seeded(seed), torch.device("meta"):
            module = _call(build, num_layers)
        module.to_empty(device="cpu")
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                torch.nn.init.constant_(tensor, math.nan)
        with _seeded(seed):
            for part in module.modules():
                reset = getattr(part, "reset_parameters", None)
                if part is not module and callable(reset):
                    reset()
            getattr(module, name)()
    except Exception:  # the module does not support it
        return
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    missing = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]
    before = dict([*depth.built.module.named_parameters(), *depth.built.module.named_buffers()])
    changed = [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and name in before and _differs(tensor, before[name])
    ]
    if missing or changed:
        yield Fault(
            kind="lost-on-meta",
            says=f"Built on the meta device, {name}() and reset_parameters() of its parts leave tensors without values."
            if missing
            else f"Built on the meta device, the module starts otherwise: {name}() does not do what __init__ does.",
            where=tuple(missing or changed),
            amount="memory as it was" if missing else "another scale",
            asked="values" if missing else "that of the module as it is built",
            program=(Edit(f"# set them in {name}(), too, not in __init__ alone"),),
        )


def _differs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two draws are of another scale."""
    sizes = [tensor.detach().double().square().mean().sqrt().item() for tensor in (first, second)]
    error = 6 / math.sqrt(first.numel())
    return abs(sizes[0] - sizes[1]) > max(error, 0.02) * max(*sizes, 1e-12)
