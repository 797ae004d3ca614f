"""What the figures of TRAINING.md show, from the records: largest rates, losses, updates along training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from paper_checks.experiments import NAMES
from paper_checks.experiments.own_row import GRIDS as OWN_GRIDS
from paper_checks.experiments.own_row import LAYERS as OWN_LAYERS
from paper_checks.experiments.own_row import ROWS
from paper_checks.experiments.own_row import arm_name as own_name
from paper_checks.experiments.stable_rates import CURVE, GRID, LAYERS, MIDDLE, MORE_SCHEMES, SCHEMES, gpt
from paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from paper_checks.experiments.thousand_layers import arm_name as deep_name
from paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, DIVIDED, FROM_FRACTION, RATE, plain, warmed
from paper_checks.lowering.trials import POST_LN_INIT
from paper_checks.pages.training.drawing import DIGITS, Curve, Drawing, Line, Panel, mean, short
from paper_checks.pages.training.numbers import (
    FACTOR,
    Record,
    Runs,
    cases_by_depth,
    end,
    log_rate,
    mean_update,
    ratio,
    top_gradient,
    trial_of,
)
from paper_checks.routes.forecast import LOOKS, Case
from sims.records.record import rounded
from sims.training.train import TrainResult

_BINS = 25
"""Of a training loss: means over so many parts of a run."""
_BELOW = 0.1
"""Nats of room below the lowest loss."""
_JUST_ABOVE, _ABOVE, _FAR_ABOVE = 1.15, 1.35, 2.0
"""The top of a panel of losses, over what can be had without the input: what is far above has not trained."""


def drawings(records: Mapping[str, Record]) -> dict[str, Drawing]:
    """By file name."""
    rates, warm, deep, own = (records[name] for name in NAMES)
    return {
        "training-rates": _rates(rates),
        "training-curves": _curves(rates),
        "training-predicts": _predicts(rates),
        "training-warmup": _warmup(warm),
        "training-thousand": _thousand(deep),
        "training-updates": _updates(deep),
        "training-own-row": _own_row(own),
    }


# ---------------------------------------------------------------- largest rates

_RATE = "log2 of the largest stable learning rate"
_ENDS = "an arrow: a seed's is at the end of what was tried, and the mean may lie farther out"


def _edge_curve(label: str, scheme: str, found: Sequence[tuple[float, Runs]], line: Line = "-") -> Curve:
    """found: by x. Seeds are those of each arm."""
    there = [(x, one.edges(one.seeds), one.arm.grid) for x, one in found if one.seeds]
    rows = [[log_rate(one, grid) for one in edges] for _, edges, grid in there]
    most = max(map(len, rows), default=0)
    return Curve(
        label=label,
        scheme=scheme,
        xs=[x for x, *_ in there],
        ys=short([sum(row) / len(row) for row in rows]),
        seeds=[[row[i] if i < len(row) else None for row in rows] for i in range(most)],
        ends=[end(edges) for _, edges, _ in there],
        line=line,
    )


def _rates(record: Record) -> Drawing:
    curves = []
    for scheme in (*SCHEMES, *MORE_SCHEMES):
        at = [(layers, one) for layers in LAYERS if (one := record.runs.get(gpt(scheme, layers))) is not None]
        curves.append(_edge_curve(scheme, scheme, at))
    panel = Panel("", "layers", _RATE, [curve for curve in curves if curve.xs], scale="depths")
    caption = (
        "Largest rate at which a run ends below what can be had without its input, against depth. Large: mean over "
        f"seeds, faint: each seed; {_ENDS}."
    )
    return Drawing("largest stable rate by depth", caption, [panel], 1, 4.6)


def _curves(record: Record) -> Drawing:
    guess, curves = 0.0, []
    for scheme in SCHEMES:
        arms = [one for one in record.runs.values() if not one.arm.grid and one.arm.trial.scheme == scheme]
        there = [(math.log2(one.arm.trial.learning_rate), one.results) for one in arms if one.seeds]
        guess = max([guess, *(result.guess for _, results in there for result in results)])
        rows = [[math.inf if one.held_out is None else one.held_out for one in results] for _, results in there]
        most = max(map(len, rows), default=0)
        seeds = [short([row[i] if i < len(row) else None for row in rows]) for i in range(most)]
        curves.append(Curve(scheme, scheme, [x for x, _ in there], short([sum(row) / len(row) for row in rows]), seeds))
    panel = Panel(
        "",
        "log2 of the learning rate",
        "held-out loss at the end, nats",
        [curve for curve in curves if curve.xs],
        top=_top(guess, _JUST_ABOVE),
        dashed=_guess(guess),
    )
    caption = (
        f"Held-out loss after training at {MIDDLE} layers, against the learning rate. Large: mean over seeds, faint: "
        "each seed; dashed: the entropy of the labels, which takes no network; an arrow: above the picture."
    )
    return Drawing("held-out loss by learning rate", caption, [panel], 1, 4.4)


def _top(guess: float, above: float) -> float | None:
    return guess * above or None


def _guess(guess: float) -> tuple[str, float] | None:
    return ("without its input", short([guess])[0] or 0.0) if guess else None


def _predicts(record: Record) -> Drawing:
    trains, half = (cases_by_depth(record.book, look) for look in LOOKS)
    panels = [
        Panel("largest rate at which it trains", "update U at initialisation", _RATE, _cases(trains, GRID), "log"),
        Panel(
            f"largest rate at which it learns half, {MIDDLE} layers",
            "update U at initialisation",
            _RATE,
            _cases(half, CURVE),
            "log",
        ),
    ]
    caption = (
        "Update at initialisation against the largest stable rate, a point for each scheme and depth (the number at it "
        "is its layers), means over seeds. Were the update all that decides, points would fall from left to right. "
        f"A scheme whose update is 0 has no place here; {_ENDS}. Spearman's correlations are in the table."
    )
    return Drawing("update and largest stable rate", caption, panels, 2, 4.6, shares_y=True)


def _cases(found: Mapping[int, Sequence[Case]], grid: Sequence[float]) -> list[Curve]:
    by_scheme: dict[str, list[tuple[int, Case]]] = {}
    for layers, several in found.items():
        for case in several:
            if mean_update(case) > 0:
                by_scheme.setdefault(trial_of(case).scheme, []).append((layers, case))
    return [
        Curve(
            label=scheme,
            scheme=scheme,
            xs=[rounded(mean_update(case), DIGITS) for _, case in of_scheme],
            ys=short([sum(log_rate(one, grid) for one in case.edges) / len(case.edges) for _, case in of_scheme]),
            ends=[end(case.edges) for _, case in of_scheme],
            notes=[str(layers) for layers, _ in of_scheme] if len(found) > 1 else (),
            line=":",
        )
        for scheme, of_scheme in by_scheme.items()
    ]


# ---------------------------------------------------------------- losses by step


def _loss_curve(label: str, scheme: str, one: Runs, line: Line = "-", tail: str = "") -> Curve:
    """Means over parts of a run, of the seeds that have come so far. tail: a word at the end."""
    size = max(1, one.arm.trial.num_steps // _BINS)
    starts = range(0, one.arm.trial.num_steps - size + 1, size)
    rows = [[_part(result, start, size) for start in starts] for result in one.results]
    xs = [start + (size + 1) / 2 for start in starts]
    notes = ["" for _ in xs[1:]] + [tail] if tail else []
    return Curve(
        label, scheme, xs, short(mean(rows)), [short(row) for row in rows], notes=notes, line=line, is_band=True
    )


def _part(result: TrainResult, start: int, size: int) -> float | None:
    losses = [loss for loss in result.losses[start : start + size] if loss is not None]
    return sum(losses) / size if len(losses) == size else None


def _loss_panel(title: str, curves: Sequence[Curve], found: Iterable[Runs], above: float = _ABOVE) -> Panel:
    guess = max([one.guess for runs in found for one in runs.results], default=0.0)
    label = "training loss, nats"
    return Panel(title, "step", label, curves, top=_top(guess, above), dashed=_guess(guess))


def _warmup(record: Record) -> Drawing:
    there = {name: one for name, one in record.runs.items() if one.seeds}
    alike = [_loss_curve(s, s, there[plain(s)]) for s in ALIKE if plain(s) in there]
    ways: dict[str, tuple[str, Line]] = {
        plain("post-ln"): ("none", "-"),
        warmed(): ("warm-up", "--"),
        FROM_FRACTION: ("warm-up from 1/N", "-."),
        DIVIDED: ("none, rate over N", ":"),
    }
    deep = [_loss_curve(label, "post-ln", there[name], line) for name, (label, line) in ways.items() if name in there]
    few = []
    for layers in DEPTHS[:-1]:
        kinds: dict[str, tuple[str, Line]] = {
            plain("post-ln", layers): ("post-ln", "-"),
            warmed(layers): ("post-ln, warm-up", "--"),
        }
        for name, (label, line) in kinds.items():
            if name in there:
                few.append(_loss_curve(label, "post-ln", there[name], line, f"{layers}L"))
    beside = {layers: there[plain("deepnorm", layers)] for layers in DEPTHS[:-1] if plain("deepnorm", layers) in there}
    label = f"deepnorm {', '.join(f'{layers}L' for layers in beside)}"
    few += [_loss_curve(label, "deepnorm", one) for one in beside.values()]
    tops = [_top_curve(s, there[plain(s)]) for s in ("post-ln", POST_LN_INIT) if plain(s) in there]
    losses = [y for curve in (*alike, *deep, *few) for y in curve.ys if y is not None]
    panels = [
        _loss_panel(f"{DEEP}L-{DEEP}L, no warm-up", alike, there.values()),
        _loss_panel(f"Post-LN {DEEP}L-{DEEP}L, with and without warm-up", deep, there.values()),
        _loss_panel("shallower", few, there.values()),
        Panel("gradient of the decoder's top layer", "step", "norm", tops, scale="places", has_log_y=True),
    ]
    panels = [replace(panel, legend="lower left" if i else "upper right") for i, panel in enumerate(panels)]
    panels[:-1] = [replace(panel, bottom=min(losses, default=0.0) - _BELOW) for panel in panels[:-1]]
    caption = (
        f"Training loss on translation, the rate 2^{math.log2(RATE):g} but where it says otherwise: means over parts "
        "of a run and over seeds, bands from the lowest seed to the highest. Dashed grey: what can be had without the "
        "input. Last: norm of the gradient of the loss by the matrices of the decoder's top layer; mean (geometric) "
        "over seeds, and each seed."
    )
    return Drawing("training loss on translation", caption, panels, 2, 7.4)


def _top_curve(scheme: str, one: Runs) -> Curve:
    looks = [look.step for look in one.results[0].looks if look.gradient_norms]
    rows = [[{look.step: top_gradient(look) for look in r.looks}.get(step) for step in looks] for r in one.results]
    return Curve(scheme, scheme, looks, short(_geometric(rows)), [short(row) for row in rows])


def _geometric(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    logs = [[math.log(value) if value else None for value in row] for row in rows]
    return [None if value is None else math.exp(value) for value in mean(logs)]


# ---------------------------------------------------------------- 1,000 layers


def _thousand(record: Record) -> Drawing:
    panels = []
    for layers in DEEP_LAYERS:
        there = {s: one for s in DEEP_SCHEMES if (one := record.runs[deep_name(s, layers)]).seeds}
        curves = [_loss_curve(s, s, one) for s, one in there.items()]
        panels.append(_loss_panel(f"{layers:,} layers", curves, there.values(), _FAR_ABOVE))
    caption = (
        "Training loss by depth at one learning rate: mean over seeds, bands from the lowest seed to the highest. "
        "Dashed grey: what can be had without the input."
    )
    return Drawing("training loss by depth", caption, panels, 3, 3.8, shares_y=True)


def _updates(record: Record) -> Drawing:
    panels = []
    for layers in DEEP_LAYERS:
        there = {s: one for s in DEEP_SCHEMES if (one := record.runs[deep_name(s, layers)]).seeds}
        curves = [_ratio_curve(s, one) for s, one in there.items()]
        title, y = f"{layers:,} layers", "update over that at initialisation"
        panels.append(Panel(title, "step", y, curves, "places", has_log_y=True, shaded=(1 / FACTOR, FACTOR)))
    caption = (
        "The update along training, over its own value at initialisation: mean (geometric) over seeds and each seed. "
        f"Grey: within a factor of {FACTOR:g}, where what theory says at initialisation still holds."
    )
    return Drawing("update along training", caption, panels, 3, 3.8, shares_y=True)


def _ratio_curve(scheme: str, one: Runs) -> Curve:
    steps = one.arm.trial.measure_at
    rows = [[{look.step: ratio(look, r) for look in r.looks}.get(step) for step in steps] for r in one.results]
    return Curve(scheme, scheme, list(steps), short(_geometric(rows)), [short(row) for row in rows])


# ---------------------------------------------------------------- the optimizer's own row


def _own_row(record: Record) -> Drawing:
    panels = []
    for optimizer in OWN_GRIDS:
        curves = []
        for row in ROWS:
            at = [(layers, record.runs[own_name(row, optimizer, layers)]) for layers in OWN_LAYERS]
            own = row == f"su-{optimizer}"
            curves.append(_edge_curve(f"row {row}", row, at, "-" if own else ":"))
        panels.append(Panel(f"trained with {optimizer}", "layers", _RATE, curves, scale="depths"))
    caption = (
        "Largest stable rate against depth, by optimizer; solid: its own row of the table, dotted: another's. "
        f"Large: mean over seeds, faint: each seed; {_ENDS}."
    )
    return Drawing("largest stable rate by optimizer and row", caption, panels, 3, 3.8)
