"""Figures of measurements, for people who would rather look than read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".png", ".svg", ".pdf")


def update_against_depth(rows: Sequence[Mapping[str, Any]], title: str, note: str, path: Path) -> None:
    """Log-log: predicted line, measured points with their 95 % intervals. rows: as `depthlaw measure` has them.

    A row whose networks diverged, or whose update is 0, has no place on a logarithmic axis: the title counts them.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    predicted = [(row["num_sublayers"], row["update"]) for row in rows if row["update"]]
    if predicted:
        axes.plot(*zip(*sorted(predicted), strict=True), "-", color="C0", label="predicted, infinite width")
    shown = [row for row in rows if row["measured"] and row["measured"] > 0]
    if shown:
        lengths, means = ([row[name] for row in shown] for name in ("num_sublayers", "measured"))
        ends = [_ends(row) for row in shown]
        axes.errorbar(lengths, means, list(zip(*ends, strict=True)), fmt="o", color="C1", capsize=3, label="measured")
    left_out = len(rows) - len(shown)
    axes.set(xscale="log", yscale="log", xlabel="residual sublayers L", ylabel="update U per unit learning rate")
    axes.set_xticks(sorted({row["num_sublayers"] for row in rows}), minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    if _is_narrow(axes.get_ylim()):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    figure.suptitle(title + (f" ({left_out} not shown: zero or diverged)" if left_out else ""), fontsize=10)
    if note:
        axes.set_title(note, fontsize=8)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(loc="best", fontsize=8)
    save(figure, path)


def _is_narrow(limits: tuple[float, float]) -> bool:
    """Whether an axis spans too little for labels at powers of ten alone."""
    return limits[1] < 300 * limits[0]


def _ends(row: Mapping[str, Any]) -> tuple[float, float]:
    """Lengths of the bars; an interval that reaches 0 is drawn to a thousandth of the mean."""
    if row["low"] is None:
        return 0.0, 0.0
    return row["measured"] - max(row["low"], row["measured"] / 1000), row["high"] - row["measured"]


def save(figure: Any, path: Path) -> None:
    """Beside the target, then renamed: a reader sees the whole picture or the old one."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content.getvalue())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
