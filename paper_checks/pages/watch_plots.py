"""`--plot` of `depthlaw watch`: what each step moved, a panel for each role that matters, a curve for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, save
from depthlaw.watching.compare import MATTERS, WHOLE, By, change_of, place_of, predicted_of, roles_of, share_of
from depthlaw.watching.record import Run

_MOST_PANELS = 9
_COLOURS = ("--c1", "--c2")


def draw(runs: Sequence[Run], names: Sequence[str], path: Path, by: By = "steps") -> None:
    """One or two runs and what they are called."""
    save(drawing_of(runs, names, by), path)


def drawing_of(runs: Sequence[Run], names: Sequence[str], by: By = "steps") -> Drawing:
    """The whole first, then roles, the largest share of the last run's change first."""
    share = {role: max(share_of(run, role) for run in runs) for role in roles_of(*reversed(runs))}
    roles = sorted((role for role in share if share[role] >= MATTERS), key=lambda role: -share[role])
    shown = [WHOLE, *roles][:_MOST_PANELS]
    left_out = [role for role in share if role not in shown]
    return Drawing(
        panels=[
            Panel(
                title="all of the step" if role == WHOLE else role,
                curves=[
                    curve
                    for run, name, colour in zip(runs, names, _COLOURS[2 - len(runs) :], strict=True)
                    for curve in _curves(run, name, role, by, colour)
                ],
                x=by[:-1] if by == "steps" else by,
                y="change of the logits (root mean square)",
                x_kind="linear",
                note="no step was seen",
            )
            for role in shown
        ],
        heading=f"What one step moves: {' and '.join(names)}",
        note=" ".join(
            [
                *["Bars: what the first step was predicted to move."] * any(predicted_of(run, WHOLE) for run in runs),
                *[f"Not drawn, below {100 * MATTERS:.0f} % of the change: {', '.join(left_out)}."] * bool(left_out),
            ]
        ),
        columns=3,
        scale="shared",
    )


def _curves(run: Run, name: str, role: str, by: By, colour: str) -> Iterator[Curve]:
    """What the steps moved, and a bar for what was predicted of the first."""
    if line := _line(run, role, by):
        yield Curve(label=name, line=line, has_dots=len(line) == 1, colour=colour)
    if ends := predicted_of(run, role):
        aside = 0.0 if colour == _COLOURS[1] else 0.015 * place_of(run.looks[-1], by)  # of two runs both are seen
        at = place_of(run.taken[0], by) - aside
        yield Curve(points=[(at, math.sqrt(ends[0] * ends[1]), *ends)], colour=colour)


def _line(run: Run, role: str, by: By) -> list[Place]:
    return [(place_of(look, by), change) for look in run.looks if (change := change_of(look, role)) is not None]
