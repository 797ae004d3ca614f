"""The figure of ``depthlaw bench``: how much faster the ensemble is than each way of looping over models, by depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel

_COLOURS = {"torchscale": "--c1", "torch": "--c2", "vmap": "--c3", "two processes": "--c6"}


def drawing(answer: Mapping[str, Any]) -> Drawing:
    """Of the narrowest networks with one sequence, which are measured at the most depths."""
    width = min(row["d_model"] for row in answer["rows"])
    rows = [row for row in answer["rows"] if row["d_model"] == width and row["num_sequences"] == 1]
    curves = [
        Curve(
            label=name,
            points=[
                (row["num_layers"], row["ratio"], row["ratio_least"], row["ratio_most"])
                for row in rows
                if row["beside"] == name
            ],
            colour=colour,
        )
        for name, colour in _COLOURS.items()
    ]
    return Drawing(
        panels=[
            Panel(curves=curves, x="layers N", y="their time over depthlaw's", x_kind="depths", levels={1.0: "solid"})
        ],
        title="How much faster than a loop over models",
        heading=f"16 networks, {width} wide: forward, backward and norms",
        width=560,
        height=320,
    )
