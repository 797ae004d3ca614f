"""`--plot` of `depthlaw train`: losses by step, a panel for each depth and each optimizer and rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, save

if TYPE_CHECKING:
    from depthlaw.network.trials import Trial
    from depthlaw.sims.training.train import TrainResult

MOST_PANELS = 48
_BEGINNINGS = {".png": (b"\x89PNG",), ".pdf": (b"%PDF",), ".svg": (b"<?xml", b"<svg")}
_COLOURS = ("--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--ink")
_SMOOTHED = 50
"""A training loss is shown as means over this part of a run."""


def panels(trials: Iterable[Trial]) -> dict[tuple[Any, ...], dict[tuple[Any, ...], list[Trial]]]:
    """By row (optimizer, learning rate) and column (N, M), the trials of that panel."""
    by_row: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Trial]]] = {}
    for trial in trials:
        columns = by_row.setdefault((trial.optimizer, trial.learning_rate), {})
        columns.setdefault(trial.sides if trial.arch == "encoder-decoder" else trial.sides[:1], []).append(trial)
    return by_row


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
    save(drawing_of(results, title, data), path)


def drawing_of(results: Mapping[Trial, TrainResult | None], title: str, data: Mapping[str, float]) -> Drawing:
    """Thick: the mean held-out loss of the seeds that did not diverge. Thin: each seed's training loss."""
    by_row = panels(results)
    columns = max(map(len, by_row.values()))
    colours = {scheme: _COLOURS[i % len(_COLOURS)] for i, scheme in enumerate(dict.fromkeys(t.scheme for t in results))}
    bounds = _limits([result for result in results.values() if result is not None], data)
    shown = []
    for (optimizer, rate), by_depth in by_row.items():
        for sides, trials in by_depth.items():
            layers = f"{'-'.join(map(str, sides))} layer{'' if sides == (1,) else 's'}"
            there = {trial: result for trial in trials if (result := results[trial]) is not None}
            shown.append(
                Panel(
                    title=f"{layers}, {optimizer} at {rate:g}",
                    curves=list(_curves(there, colours, bounds[1])),
                    note="not trained",
                    x="step",
                    y="loss, nats",
                    x_kind="linear",
                    y_kind="linear",
                    y_range=bounds,
                    levels={data["guess"]: "dashed", data["uniform"]: "dotted"},
                )
            )
        shown += [Panel()] * (columns - len(by_depth))
    note = (
        "Thick: mean held-out loss of the seeds that did not diverge; thin: training loss of each seed; arrow: where a "
        f"run diverged. Dashed: without the input, {data['guess']:.3g}; dotted: a uniform guess, {data['uniform']:.3g}."
    )
    width, height = (680, 400) if len(shown) == 1 else (330, 250)
    return Drawing(panels=shown, heading=title, note=note, columns=columns, width=width, height=height)


def _limits(results: Sequence[TrainResult], data: Mapping[str, float]) -> Place:
    """Of the losses: from a little below the lowest to a little above where the runs start, or a uniform guess."""
    starts = [result.held_out_at[0][1] for result in results]
    best = [result.best for result in results if result.best is not None]
    losses = best + [loss for result in results for _, loss in _smoothed(result)]
    return 0.9 * min([data["guess"], *losses]), 1.15 * max([data["uniform"], *filter(None, starts)])


def _curves(results: Mapping[Trial, TrainResult], colours: Mapping[str, str], top: float) -> Iterator[Curve]:
    for scheme, colour in colours.items():
        done = [result for trial, result in results.items() if trial.scheme == scheme]
        diverged = [result for result in done if result.outcome == "diverged"]
        yield from (Curve(line=_smoothed(result), colour=colour, width=0.6) for result in done)
        means = _mean([result for result in done if result.outcome != "diverged"])
        if means:
            yield Curve(label=scheme, line=means, has_dots=True, colour=colour, width=2)
        if diverged:
            label = "" if means else f"{scheme}, diverged"
            losses = [result.losses[-1] if result.losses else None for result in diverged]
            ends = [top if loss is None else min(loss, top) for loss in losses]
            points = [(result.num_steps, end, None, None) for result, end in zip(diverged, ends, strict=True)]
            yield Curve(label=label, points=points, ends=[1] * len(points), colour=colour)


def _mean(results: Sequence[TrainResult]) -> list[Place]:
    """Held-out loss by step; empty without a run."""
    by_step: dict[int, list[float]] = {}
    for step, loss in (look for result in results for look in result.held_out_at):
        if loss is not None:
            by_step.setdefault(step, []).append(loss)
    return [(step, fmean(losses)) for step, losses in by_step.items()]


def _smoothed(result: TrainResult) -> list[Place]:
    """Training losses as means over neighbouring steps, each at the middle of its own."""
    finite = [loss for loss in result.losses if loss is not None]
    width = max(1, len(finite) // _SMOOTHED)
    starts = range(0, len(finite) - width + 1, width)
    return [(start + (width + 1) / 2, fmean(finite[start : start + width])) for start in starts]
