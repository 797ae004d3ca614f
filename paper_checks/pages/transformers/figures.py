"""What the figures of TRANSFORMERS.md show: the update of each scheme, and that of each role of some."""

from __future__ import annotations

from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.pages.drawing import Curve, Drawing, Interval, Panel
from paper_checks.pages.transformers.cells import Cell
from paper_checks.pages.transformers.text import LAYERS, WIDE, Cells
from sims.model import OTHER_ROLES
from theory.schemes import SCHEMES

ROLE_OPTIMIZERS = ("sgd", "adam")
SCHEMES_BY_ROLE = ("post-ln", "pre-ln", "deepnorm", "sub-ln")
_MATRICES = ("q", "k", "v", "out", "fc1", "fc2")
_COLOURS = ("--c1", "--c6", "--c2", "--c5", "--c3", "--c4")
_WHERE = f"lines predicted, points measured at d = {WIDE} with 95 % intervals"


def drawings(found: Cells) -> dict[str, Drawing]:
    """By file name."""
    schemes = {f"transformers-{one}": of_schemes(found, one) for one in OPTIMIZERS}
    return schemes | {f"transformers-roles-{one}": of_roles(found, one) for one in ROLE_OPTIMIZERS}


def of_schemes(found: Cells, optimizer: str) -> Drawing:
    """The update, each scheme a panel."""
    panels = []
    for name in SCHEMES:
        curve = _curve(found, name, optimizer, "update", "--c1")
        panels.append(Panel(title=name, curves=[curve], note="0", x="layers N", y="update U", x_kind="depths"))
    return Drawing(
        panels=panels, title=f"Update under {optimizer}: {_WHERE}", columns=5, width=190, height=175, scale="slopes"
    )


def of_roles(found: Cells, optimizer: str) -> Drawing:
    """Each scheme two panels: its matrices, and the rest."""
    panels = []
    for what, roles, y in (
        ("matrices", _MATRICES, "U of a role"),
        ("the rest", OTHER_ROLES, "U of a role, times its power of d"),
    ):
        for name in SCHEMES_BY_ROLE:
            curves = [
                _curve(found, name, optimizer, role, colour, role)
                for role, colour in zip(roles, _COLOURS, strict=False)
            ]
            panels.append(
                Panel(
                    title=f"{name}, {what}",
                    curves=curves,
                    note="0",
                    x="layers N",
                    y=y,
                    x_kind="depths",
                )
            )
    return Drawing(
        panels=panels,
        title=f"Update by role under {optimizer}: {_WHERE}",
        columns=4,
        width=250,
        height=240,
        scale="slopes",
    )


def _curve(found: Cells, name: str, optimizer: str, role: str, colour: str, label: str = "") -> Curve:
    here = [(layers, found.get((name, optimizer, layers, WIDE))) for layers in LAYERS]
    there = [(float(layers), cell) for layers, cell in here if cell is not None and role in cell.predicted]
    line = [(x, y) for x, cell in there if (y := cell.predicted[role].value)]
    points = [point for x, cell in there if (point := measured_point(x, cell, role)) is not None and point[1]]
    return Curve(label=label, line=line, points=points, colour=colour)


def measured_point(x: float, cell: Cell, role: str) -> Interval | None:
    """The mean and its 95 % interval; None where a seed's divergence or rounding takes it away."""
    ratio, predicted = cell.estimates.get(role), cell.predicted.get(role)
    if ratio is None or predicted is None:
        return None
    low, high = (None if end is None else end * predicted.value for end in (ratio.low, ratio.high))
    return x, ratio.mean * predicted.value, low, high
