"""A module that FSDP2 has cut over processes, as a watch sees it: whole, on the first of them.

Parameters are gathered before and behind a step that is looked at, on all processes at once. So all have to agree on
which steps these are: the first process decides, and takes part when its own watch has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook


class Shards:
    """The module, and a plain copy of it on the first process, which holds the whole model; None on the others.

    All methods are called on all processes, at the same place of the run.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parameters: dict[str, Any] = dict(module.named_parameters())
        self._device = next(iter(self._parameters.values())).device
        whole = self.gathered(with_frozen=True)
        by_parameter = {id(p): nn.Parameter(whole[n], p.requires_grad) for n, p in self._parameters.items() if whole}
        self.copy = _plain(module, by_parameter, {}) if whole else None

    @property
    def parameters(self) -> dict[str, Any]:
        """By name, as the optimizer has them."""
        return self._parameters

    def agree(self, answer: bool) -> bool:
        """What the first process answers."""
        answer_of_first = torch.tensor([answer], dtype=torch.uint8, device=self._device)
        dist.broadcast(answer_of_first, 0)
        return bool(answer_of_first.item())

    def gathered(self, *, with_frozen: bool = False) -> dict[str, Tensor]:
        """The whole parameters that are trained, by name; nothing on a process that is not the first."""
        is_first, whole = dist.get_rank() == 0, {}
        for name, parameter in self._parameters.items():
            if not (parameter.requires_grad or with_frozen):
                continue
            value = parameter.detach()
            value = value.full_tensor() if hasattr(value, "full_tensor") else value
            if is_first:
                whole[name] = value.clone()
        return whole

    def refresh(self) -> None:
        """Give the copy the parameters as they are now."""
        whole = self.gathered()
        if self.copy is not None:
            with torch.no_grad():
                for name, parameter in self.copy.named_parameters():
                    if name in whole:
                        parameter.copy_(whole[name])


def is_cut(module: nn.Module) -> bool:
    """Whether FSDP2 has cut it, and nothing else has."""
    return any(_is_fsdp(part) for part in module.modules())


def _is_fsdp(module: nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__bases__)


@contextmanager
def apart() -> Iterator[None]:
    """In this block no module is called that FSDP2 has cut, since that would wait for processes that know nothing of
    it, and the run with it: ValueError instead."""

    def refuse(module: nn.Module, _: Any) -> None:
        if _is_fsdp(module):
            name = type(module).__name__.removeprefix("FSDP")
            raise ValueError(
                f"a {name} that FSDP2 has cut is called from elsewhere than its place among the submodules"
            )

    hook = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


def _plain(module: nn.Module, parameters: dict[int, nn.Parameter], known: dict[int, nn.Module]) -> nn.Module:
    """A copy of the class that fully_shard has put its own before, with these parameters and without its hooks."""
    if id(module) in known:
        return known[id(module)]
    kind: Any = type(module).__bases__[1] if _is_fsdp(module) else type(module)
    copy: nn.Module = kind.__new__(kind)
    known[id(module)] = copy
    values = dict(vars(module))
    values |= {name: _without(values[name]) for name in values if name.endswith("_hooks")}
    values["_parameters"] = {name: p if p is None else parameters[id(p)] for name, p in module._parameters.items()}
    values["_buffers"] = {
        name: buffer if buffer is None else buffer.clone() for name, buffer in module._buffers.items()
    }
    values["_modules"] = {}
    values.pop("_compiled_call_impl", None)  # which would call the module that is cut
    vars(copy).update(values)
    for name, child in module._modules.items():
        copy._modules[name] = None if child is None else _plain(child, parameters, known)
    if kind.__name__ == "OptimizedModule":  # of torch.compile, whose own forward calls the module that is cut
        vars(copy)["forward"] = copy._modules["_orig_mod"]
    return copy


def _without(hooks: Any) -> Any:
    """Hooks that torch.distributed did not put there."""
    if not hasattr(hooks, "items"):
        return hooks
    kept = {n: hook for n, hook in hooks.items() if not str(getattr(hook, "__module__", "")).startswith("torch.dist")}
    return type(hooks)(kept)
