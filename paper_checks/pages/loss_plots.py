"""Figures of training: losses by step; a column of panels for each depth, a row for each optimizer and rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.pages.plots import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from paper_checks.lowering.trials import Trial
    from sims.training.train import TrainResult

MOST_PANELS = 48
_BEGINNINGS = {".png": (b"\x89PNG",), ".pdf": (b"%PDF",), ".svg": (b"<?xml", b"<svg")}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's, which the colour-blind tell apart. Lines differ in their marks too, after seven in their style."""
_MARKS = "os^Dv<>P"
_STYLES = ("-", "--", ":", "-.")
_SMOOTHED = 50
"""A training loss is shown as means over this part of a run."""


def panels(trials: Iterable[Trial]) -> dict[tuple[Any, ...], dict[tuple[Any, ...], list[Trial]]]:
    """By row (optimizer, learning rate) and column (N, M), the trials of that panel."""
    found: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Trial]]] = {}
    for trial in trials:
        columns = found.setdefault((trial.optimizer, trial.learning_rate), {})
        columns.setdefault(trial.sides if trial.arch == "encoder-decoder" else trial.sides[:1], []).append(trial)
    return found


def check_size(trials: Sequence[Trial]) -> None:
    """ValueError, in one line, where a figure would have more panels than can be looked at."""
    num_panels = sum(len(columns) for columns in panels(trials).values())
    if num_panels > MOST_PANELS:
        raise ValueError(f"--plot would have {num_panels} panels (a depth and learning rate each), above {MOST_PANELS}")


def check_place(path: Path) -> None:
    """ValueError, in one line, where a file of another kind stands, which a figure would overwrite."""
    if path.exists():
        with path.open("rb") as file:
            start = file.read(64)
        if start and not start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGINNINGS[path.suffix.lower()]):
            raise ValueError(f"--plot: {path} is there and no {path.suffix[1:]}: give another name, or remove it")


def draw(results: Mapping[Trial, TrainResult | None], title: str, data: Mapping[str, float], path: Path) -> None:
    """data: ``guess`` and ``uniform``, nats."""
    save(figure_of(results, title, data), path)


def figure_of(results: Mapping[Trial, TrainResult | None], title: str, data: Mapping[str, float]) -> Figure:
    """Thick, with marks: the mean held-out loss of the seeds that did not diverge. Thin: each seed's training loss.

    A run that diverged ends in a cross, at the upper edge where its loss is above it.
    """
    from matplotlib.figure import Figure

    found = panels(results)
    num_columns = max(map(len, found.values()))
    single = len(found) == num_columns == 1
    size = (6.4, 4.4) if single else (1 + 2.9 * num_columns, 1.2 + 2.4 * len(found))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(found), num_columns, squeeze=False, sharex=True, sharey=True)
    schemes = list(dict.fromkeys(trial.scheme for trial in results))
    bottom, top = _limits(results.values(), data)
    for row, ((optimizer, rate), columns) in zip(grid, found.items(), strict=True):
        for axes, (sides, trials) in zip(row, columns.items(), strict=True):
            _draw(axes, {trial: results[trial] for trial in trials}, schemes, data, top)
            layers = f"{'-'.join(map(str, sides))} layer{'' if sides == (1,) else 's'}"
            axes.set_title(f"{layers}, {optimizer} at {rate:g}", fontsize=8)
    grid[0, 0].set_ylim(bottom, top)
    for axes in grid[-1]:
        axes.set_xlabel("step")
    for axes in grid[:, 0]:
        axes.set_ylabel("loss, nats", fontsize=None if single else 8)
    figure.suptitle(title, fontsize=10, wrap=True)
    # One legend for all, outside: a panel may lack a scheme, and small ones have no room.
    shown = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _limits(results: Iterable[TrainResult | None], data: Mapping[str, float]) -> tuple[float, float]:
    """Of the losses: from a little below the lowest to a little above where the runs start, or a uniform guess."""
    done = [result for result in results if result is not None]
    starts = [result.held_out_at[0][1] for result in done]
    losses = [loss for result in done for loss in (result.best, *_smoothed(result.losses)[1]) if loss is not None]
    return 0.9 * min([data["guess"], *losses]), 1.15 * max([data["uniform"], *filter(None, starts)])


def _draw(
    axes: Axes,
    results: Mapping[Trial, TrainResult | None],
    schemes: Sequence[str],
    data: Mapping[str, float],
    top: float,
) -> None:
    for index, scheme in enumerate(schemes):
        done = [result for trial, result in results.items() if trial.scheme == scheme and result is not None]
        if not done:
            continue
        colour, style = COLOURS[index % len(COLOURS)], _STYLES[index // len(COLOURS) % len(_STYLES)]
        for result in done:
            axes.plot(*_smoothed(result.losses), color=colour, linewidth=0.6, alpha=0.5)
        mark = _MARKS[index % len(_MARKS)]
        look = {"color": colour, "linestyle": style, "marker": mark, "markersize": 4, "linewidth": 1.6}
        axes.plot(*_mean([result for result in done if result.outcome != "diverged"]), **look, label=scheme)
        ends = [_end(result, top) for result in done if result.outcome == "diverged"]
        if ends:
            axes.plot(*zip(*ends, strict=True), "x", color=colour, markersize=8, markeredgewidth=2, clip_on=False)
    lines = (("guess", "--", "without the input"), ("uniform", ":", "uniform guess"))
    for name, style, label in lines:
        axes.axhline(data[name], color="0.4", linestyle=style, linewidth=1, label=f"{label}, {data[name]:.3g}")
    axes.grid(visible=True, alpha=0.25)


def _mean(results: Sequence[TrainResult]) -> tuple[list[int], list[float]]:
    """(steps, held-out loss); both empty without a run."""
    by_step: dict[int, list[float]] = {}
    for result in results:
        for step, loss in result.held_out_at:
            if loss is not None:
                by_step.setdefault(step, []).append(loss)
    return list(by_step), [sum(losses) / len(losses) for losses in by_step.values()]


def _smoothed(losses: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Means over neighbouring steps, each at the middle of its own."""
    finite = [loss for loss in losses if loss is not None]
    width = max(1, len(finite) // _SMOOTHED)
    starts = range(0, len(finite) - width + 1, width)
    return [start + (width + 1) / 2 for start in starts], [
        sum(finite[start : start + width]) / width for start in starts
    ]


def _end(result: TrainResult, top: float) -> tuple[int, float]:
    """Where the cross of a run stands."""
    last = result.losses[-1] if result.losses else None
    return result.num_steps, top if last is None else min(last, top)
