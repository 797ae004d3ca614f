"""The figures of TRANSFORMERS.md: predicted updates as lines, those of real networks as points with intervals."""

from __future__ import annotations

from collections.abc import Mapping

from depthlaw.paper_checks.experiments.compared import WIDE, ByName, Compared, by_depth
from depthlaw.paper_checks.experiments.kernel_laws import MATRICES
from depthlaw.paper_checks.experiments.sweeps import KEPT_SCHEMES, OPTIMIZERS
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Point
from depthlaw.sims.model import OTHER_ROLES

ROLE_OPTIMIZERS = ("sgd", "adam")
SCHEMES_BY_ROLE = ("post-ln", "pre-ln", "deepnorm", "sub-ln")
_COLOURS = ("--c1", "--c6", "--c2", "--c5", "--c3", "--c4")
_WHERE = f"lines predicted, points measured at d = {WIDE} with 95 % intervals"


def drawings(by_name: ByName) -> dict[str, Drawing]:
    """By file name."""
    schemes = {f"transformers-{optimizer}": of_schemes(by_name, optimizer) for optimizer in OPTIMIZERS}
    return schemes | {f"transformers-roles-{optimizer}": of_roles(by_name, optimizer) for optimizer in ROLE_OPTIMIZERS}


def of_schemes(by_name: ByName, optimizer: str) -> Drawing:
    """The update, each scheme a panel."""
    panels = []
    for name in KEPT_SCHEMES:
        curve = _curve(by_name, name, optimizer, "update", "--c1")
        panels.append(Panel(title=name, curves=[curve], note="0", x="layers N", y="update U", x_kind="depths"))
    return Drawing(
        panels=panels, title=f"Update under {optimizer}: {_WHERE}", columns=5, width=190, height=175, scale="slopes"
    )


def of_roles(by_name: ByName, optimizer: str) -> Drawing:
    """Each scheme two panels: its matrices, and the rest."""
    panels = []
    for what, roles, y in (
        ("matrices", MATRICES, "U of a role"),
        ("the rest", OTHER_ROLES, "U of a role, times its power of d"),
    ):
        for name in SCHEMES_BY_ROLE:
            coloured = zip(roles, _COLOURS, strict=False)
            curves = [_curve(by_name, name, optimizer, role, colour, role) for role, colour in coloured]
            title = f"{name}, {what}"
            panels.append(Panel(title=title, curves=curves, note="0", x="layers N", y=y, x_kind="depths"))
    title = f"Update by role under {optimizer}: {_WHERE}"
    return Drawing(panels=panels, title=title, columns=4, width=250, height=240, scale="slopes")


def _curve(by_name: ByName, name: str, optimizer: str, role: str, colour: str, label: str = "") -> Curve:
    here = {n: cell for n, cell in by_depth(by_name, name, optimizer).items() if role in cell.predicted}
    line = [(n, y) for n, cell in here.items() if (y := cell.predicted[role].value)]
    return Curve(label=label, line=line, points=points(here, role), colour=colour)


def points(several: Mapping[int, Compared], role: str) -> list[Point]:
    """By depth, the mean and its 95 % interval; none where a seed's divergence or rounding takes it away."""
    shown = []
    for depth, cell in several.items():
        if role in cell.estimates:
            ratio, unit = cell.estimates[role], cell.predicted[role].value
            low, high = (None if end is None else end * unit for end in (ratio.low, ratio.high))
            shown.append((depth, ratio.mean * unit, low, high))
    return shown
