"""Figures of measurements, for people who would rather look than read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def update_against_depth(rows: Sequence[Mapping[str, Any]], title: str, note: str, path: Path) -> None:
    """Draw it and write it; path ends in one of ``SUFFIXES``."""
    save(figure_of(rows, title, note), path)


def figure_of(rows: Sequence[Mapping[str, Any]], title: str, note: str) -> Figure:
    """Log-log: predicted line, measured points with their 95 % intervals. rows: as `depthlaw measure` has them.

    A row whose networks diverged, or whose update is 0, has no place on a logarithmic axis, and is named below the
    title. An interval that reaches 0 runs off the lower edge.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    predicted = [(row["num_sublayers"], row["update"]) for row in rows if row["update"]]
    if predicted:
        axes.plot(*zip(*sorted(predicted), strict=True), "-", color="C0", label="predicted, infinite width")
    shown = [row for row in rows if row["measured"] and row["measured"] > 0]
    if shown:
        lengths, means = ([row[name] for row in shown] for name in ("num_sublayers", "measured"))
        ends = [_ends(row) for row in shown]
        label = "measured, 95 % interval" if any(end != (0, 0) for end in ends) else "measured"
        axes.errorbar(lengths, means, list(zip(*ends, strict=True)), fmt="o", color="C1", capsize=3, label=label)
    left_out = [str(row["num_sublayers"]) for row in rows if row not in shown]
    axes.set(xscale="log", yscale="log", xlabel="residual sublayers L", ylabel="update U per unit learning rate")
    axes.set_xticks(sorted({row["num_sublayers"] for row in rows}), minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    if positive := [y for row in rows for y in (row["update"], row["measured"], row["low"]) if y and y > 0]:
        axes.set_ylim(bottom=min(positive) / 1.3)
    if _is_narrow(axes.get_ylim()):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    figure.suptitle(title, fontsize=10, wrap=True)
    notes = [note, f"not shown, 0 or diverged: L = {', '.join(left_out)}" if left_out else ""]
    axes.set_title("\n".join(line for line in notes if line), fontsize=8, wrap=True)
    axes.grid(visible=True, which="both", alpha=0.25)
    if predicted or shown:
        axes.legend(loc="best", fontsize=8)
    return figure


def _is_narrow(limits: tuple[float, float]) -> bool:
    """Whether an axis spans too little for labels at powers of ten alone."""
    return limits[1] < 300 * limits[0]


def _ends(row: Mapping[str, Any]) -> tuple[float, float]:
    """Lengths of the bars; one that reaches 0, which a logarithmic axis lacks, goes to a thousandth of the mean."""
    if row["low"] is None:
        return 0.0, 0.0
    return row["measured"] - max(row["low"], row["measured"] / 1000), row["high"] - row["measured"]


def save(figure: Figure, path: Path) -> None:
    """Beside the target, then renamed: a reader sees the whole picture or the old one."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content.getvalue())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
