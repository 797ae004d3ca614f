"""Where people log: what takes a look's numbers, by the client that it is of. Nothing of a client is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from depthlaw.watching.settings import refused

Numbers = Mapping[str, float]
Log = Callable[[Numbers, int], Any]
_KNOWN = (
    "a function of (numbers, step), TensorBoard's SummaryWriter, wandb or a run of it, the module mlflow, an "
    "Accelerator, a logger of Lightning, several of these in a list, or None"
)
STEP = "depthlaw/step"


def as_log(client: Any) -> Log:
    """ValueError for what is none of ``_KNOWN``."""
    if hasattr(client, "add_scalar"):
        return lambda numbers, step: [client.add_scalar(_tag(name), value, step) for name, value in numbers.items()]
    if hasattr(client, "define_metric"):
        run = client.run if isinstance(client, ModuleType) else client
        if run is None:
            raise ValueError("log is wandb, which has no run yet: call wandb.init() first")
        return _wandb(run)
    if hasattr(client, "log_metrics"):
        return lambda numbers, step: client.log_metrics(dict(numbers), step=step)
    if hasattr(client, "trackers") and hasattr(client, "log"):
        return lambda numbers, step: client.log(dict(numbers), step=step)
    if callable(client):
        return client
    raise refused("log", _KNOWN, client)


def _tag(name: str) -> str:
    """TensorBoard makes a group of what stands before the first stroke: each kind of numbers is one, with a card for
    each role.

    >>> from depthlaw.watching.clients import _tag
    >>> _tag("depthlaw/change/fc2"), _tag("depthlaw/whole")
    ('depthlaw_change/fc2', 'depthlaw/whole')
    """
    return name.replace("/", "_", 1) if name.count("/") > 1 else name


def _wandb(run: Any) -> Log:
    """Over a number of steps of its own, and in the line that the run is at: wandb leaves out what comes with a step
    behind that of the run's last line. A line that has a look already is closed, as the next one would replace it. That
    never takes the run ahead of its training steps; who counts its lines otherwise, by epochs for instance, gives a
    function."""
    run.define_metric(STEP)
    run.define_metric("depthlaw/*", step_metric=STEP)
    last: list[int] = []

    def log(numbers: Numbers, step: int) -> None:
        has_look = last == [run.step] and run.step < step
        run.log({**numbers, STEP: step}, step=run.step + 1 if has_look else None, commit=False)
        last[:] = [run.step]

    return log
