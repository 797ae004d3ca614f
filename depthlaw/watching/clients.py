"""Where people log: what takes a look's numbers, by the client that it is of. Nothing of a client is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Numbers = Mapping[str, float]
Log = Callable[[Numbers, int], Any]
KNOWN = (
    "a function of (numbers, step), TensorBoard's SummaryWriter, a run of wandb, the module mlflow, an Accelerator, a "
    "logger of Lightning, or several of these"
)
STEP = "depthlaw/step"


def as_log(one: Any) -> Log:
    """ValueError for what is none of ``KNOWN``."""
    if hasattr(one, "add_scalar"):
        return lambda numbers, step: [one.add_scalar(name, value, step) for name, value in numbers.items()]
    if hasattr(one, "define_metric"):
        return _wandb(one)
    if hasattr(one, "log_metrics"):
        return lambda numbers, step: one.log_metrics(dict(numbers), step=step)
    if hasattr(one, "trackers") and hasattr(one, "log"):
        return lambda numbers, step: one.log(dict(numbers), step=step)
    if callable(one):
        return one
    raise ValueError(f"log is {KNOWN}; here {type(one).__name__}")


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
