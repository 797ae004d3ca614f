"""The watch in Lightning's Trainer: ``Trainer(..., callbacks=[WatchCallback(probe=batch)])``."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer  # pyright: ignore[reportMissingImports]

from depthlaw.watching.settings import check_limit
from depthlaw.watching.watch import Watch, watch


class WatchCallback(Callback):
    """Watches each fit of a module, which is called with the probe as ``module(probe)``. options: those of
    ``depthlaw.watch``, ``probe`` among them. limits: by role, as ``watch.limit`` takes them. watch: what
    ``depthlaw.watch`` answered, once the training runs."""

    def __init__(self, *, limits: dict[str, float] | None = None, **options: Any) -> None:
        for role, update in (limits or {}).items():
            check_limit(role, update)
        self.watch: Watch | None = None
        self._options, self._limits, self._seen = options, limits or {}, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._seen = trainer.global_step
        self.watch = watch(pl_module, trainer.optimizers, start=self._seen, **self._options)
        for role, update in self._limits.items():
            self.watch.limit(role, update)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """A batch whose gradients are only added up is no step."""
        if self.watch is not None and trainer.global_step != self._seen:
            self._seen = trainer.global_step
            self.watch.step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.watch is not None:
            self.watch.close()
