"""What the figures of TRANSFORMERS.md show: the update of each scheme, and that of each role of some."""

from __future__ import annotations

from collections.abc import Mapping

from paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS
from paper_checks.pages.drawing import Curve, Drawing, Interval, Panel
from paper_checks.pages.transformers.cells import Cell
from paper_checks.pages.transformers.text import LAYERS, WIDE, Cells
from sims.model import OTHER_ROLES

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
    for name in KEPT_SCHEMES:
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
    here = {n: cell for n, cell in by_depth(found, name, optimizer).items() if role in cell.predicted}
    line = [(n, y) for n, cell in here.items() if (y := cell.predicted[role].value)]
    return Curve(label=label, line=line, points=points(here, role), colour=colour)


def by_depth(found: Cells, name: str, optimizer: str) -> dict[int, Cell]:
    """The wide networks of a scheme."""
    return {n: cell for n in LAYERS if (cell := found.get((name, optimizer, n, WIDE))) is not None}


def points(found: Mapping[int, Cell], role: str) -> list[Interval]:
    """By depth, the mean and its 95 % interval; none where a seed's divergence or rounding takes it away."""
    shown = []
    for depth, cell in found.items():
        if role in cell.estimates:
            ratio, unit = cell.estimates[role], cell.predicted[role].value
            low, high = (None if end is None else end * unit for end in (ratio.low, ratio.high))
            shown.append((depth, ratio.mean * unit, low, high))
    return shown
