"""The optimizer's own row: Su's alpha and lambda for SGD, Adam and LAMB, each trained with each of the three.

S1-32 to S1-49: what is derived for an optimizer keeps its update from growing with depth. If the largest stable rate
follows the update, then with its own row it does not fall with depth, and with another's it does (S1-49).
"""

from __future__ import annotations

from typing import Any

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, Arm, Book, Experiment, Plan
from depthlaw.paper_checks.experiments.scale import Scale

ROWS = ("su-sgd", "su-adam", "su-lamb")
STARTS = {"sgd": 2.0**-1, "adam": 2.0**-8, "lamb": 2.0**-6}
GRIDS = {name: tuple(start * 2.0**k for k in range(-7, 8)) for name, start in STARTS.items()}
"""By octaves, seven on either side of where the search starts."""
LAYERS = (2, 16)
_STEPS = 120


def arm_name(row: str, optimizer: str, num_layers: int) -> str:
    return f"{row} under {optimizer} {num_layers}"


def make(scale: Scale) -> Experiment:
    shared: dict[str, Any] = scale.shared(_STEPS, warmup=0.1) | {"measure_at": (0,)}
    arms = tuple(
        Arm(
            name=arm_name(row, optimizer, layers),
            trial=Trial(scheme=row, optimizer=optimizer, num_layers=layers, learning_rate=start, **shared),
            grid=GRIDS[optimizer],
        )
        for layers in LAYERS
        for optimizer, start in STARTS.items()
        for row in ROWS
    )
    return Experiment(
        name="own-row",
        question="Does each optimizer keep its largest stable rate over depth with its own row of the table, and lose "
        "it with another's?",
        claims=("S1-32", "S1-33", "S1-35", "S1-49"),
        arms=arms,
        pilot=(),
        plan=_plan,
    )


def _plan(book: Book) -> Plan:
    """Grids by octaves: edges scatter by less than a step, so that three seeds already give an interval."""
    text = f"{LEAST_SEEDS} seeds, on a grid of octaves: a change over depth of two octaves or more shows"
    return Plan(LEAST_SEEDS, text)
