"""What a piece of torch code takes at its peak, counted tensor by tensor."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Peak(TorchDispatchMode):
    """Bytes of all tensors that are alive at once, at most, of those made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def _free(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage not in self._seen:
                    self._seen.add(storage)
                    weakref.finalize(storage, self._free, storage.nbytes())
                    self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        return out
