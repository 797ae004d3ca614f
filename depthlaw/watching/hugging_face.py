"""The watch in the Trainer of Hugging Face's transformers: ``Trainer(..., callbacks=[WatchCallback(probe=batch)])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from depthlaw.watching.settings import check_limit
from depthlaw.watching.watch import Watch, watch


class WatchCallback(TrainerCallback):
    """Watches each training that the Trainer begins. options: those of ``depthlaw.watch``, ``probe`` among them.
    limits: by role, as ``watch.limit`` takes them. watch: what ``depthlaw.watch`` answered, once the training runs."""

    def __init__(self, *, limits: dict[str, float] | None = None, **options: Any) -> None:
        for role, update in (limits or {}).items():
            check_limit(role, update)
        self.watch: Watch | None = None
        self._options, self._limits = options, limits or {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        self.watch = watch(there["model"], there["optimizer"], start=state.global_step, **self._options)
        for role, update in self._limits.items():
            self.watch.limit(role, update)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        if self.watch is not None:
            self.watch.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **there: Any) -> None:
        if self.watch is not None:
            self.watch.close()
