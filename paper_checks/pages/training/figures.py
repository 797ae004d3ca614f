"""The figures of TRAINING.md, from the same records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

from depthlaw.network.trials import OF_RECIPE, POST_LN_INIT
from depthlaw.paper_checks.experiments import NAMES
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON, PLANNED
from depthlaw.paper_checks.experiments.after_start import LAYERS as AFTER_LAYERS
from depthlaw.paper_checks.experiments.best_rates import GRIDS as BEST_GRIDS
from depthlaw.paper_checks.experiments.best_rates import LAYERS as BEST_LAYERS
from depthlaw.paper_checks.experiments.stable_rates import CURVE, GRID, LAYERS, MIDDLE, MORE_SCHEMES, SCHEMES, gpt
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from depthlaw.paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from depthlaw.paper_checks.experiments.thousand_layers import arm_name as deep_name
from depthlaw.paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, DIVIDED, FROM_FRACTION, RATE, plain, warmed
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, Point, VerticalScale
from depthlaw.paper_checks.pages.markdown import caption
from depthlaw.paper_checks.pages.training.runs import (
    FACTOR,
    WORDS,
    Record,
    Records,
    Runs,
    cases_by_depth,
    end,
    founds_of,
    log_rate,
    mean_update,
    ratio,
    trial_of,
)
from depthlaw.paper_checks.routes.training import after_start, transfer
from depthlaw.paper_checks.routes.training.best_rates import BestRates, predicted
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS, Case
from depthlaw.sims.stats import estimate
from depthlaw.sims.training.outcomes import Edge
from depthlaw.sims.training.train import Look, TrainResult

_BINS = 25
"""Of a training loss: means over so many parts of a run."""
_JUST_ABOVE, _ABOVE = 1.15, 1.35
"""The top of a panel of losses, over what can be had without the input: what is far above has not trained."""
_RATE = "largest stable learning rate"
_DIVERGED = 1e6
"""A loss that is far above every picture."""
Row = Sequence[float | None]
"""A number for each x, None where there is none."""


_IN_FILE: Mapping[str, Mapping[str, Any]] = {
    "best-losses": {
        "heading": f"Loss after a short training, by learning rate, of {BEST_LAYERS[0]} to {BEST_LAYERS[-1]} layers",
        "note": "Lines: means over seeds. Dots: the best learning rate of each seed, and its loss there.",
    },
    "after-start": {
        "heading": "What a real step moves, over depth and as training goes on",
        "note": "First panel: means over seeds, 95 % intervals. Others: a line for each scheme, depth and rate.",
    },
    "gains": {
        "heading": "Tuned at 4 layers, taken to 32: what each way of advise takes off the held-out loss",
        "note": "Means with 95 % intervals over seeds, at the tuned rate; above 0 the way helps.",
    },
    "transfer": {
        "heading": "Tuned at 4 layers, taken to 32: the loss with each way of advise",
        "note": "Lines: means over seeds. Points: at the rate that was tuned at 4 layers.",
    },
    "best-rates": {
        "heading": "The best learning rate by depth",
        "note": "Points: means over seeds, with 95 % intervals; faint: each seed. Dashed: one over the update.",
    },
}
"""What stands above and below the panels in a figure's file, where the file is shown alone."""


def drawings(records: Records) -> dict[str, Drawing]:
    """By file name. The last three only where their record is given: a notebook shows the others."""
    rates, warm, deep, best = (records[name] for name in NAMES[:4])
    later, moved, there = (records.get(name) for name in NAMES[4:])
    rows: tuple[tuple[str, list[Panel], str, int, int, int, VerticalScale], ...] = (
        ("rates", _rates_panels(rates), "largest stable rate by depth", 2, 430, 330, "shared"),
        ("curves", _curves_panels(rates), "held-out loss by learning rate", 3, 290, 220, "own"),
        ("predicts", _predicts_panels(rates), "update and largest stable rate", 2, 430, 280, "shared"),
        ("warmup", _warmup_panels(warm), "training loss on translation", 2, 440, 290, "own"),
        ("thousand", _thousand_panels(deep), "training loss by depth", 3, 310, 280, "own"),
        ("updates", _updates_panels(deep), "update along training", 3, 310, 280, "shared"),
        ("best-losses", _best_losses(best), "held-out loss by learning rate and depth", 3, 310, 250, "shared"),
        ("best-rates", _best_by_depths(best), "the best learning rate by depth", 3, 310, 250, "shared"),
        *(
            [("after-start", _later_panels(later), "the depth law as training goes on", 2, 400, 280, "own")]
            if later is not None
            else []
        ),
        *(
            [
                ("gains", _gains_panels(moved), "what each way of advise takes off the loss", 1, 880, 270, "own"),
                ("transfer", _moved_panels(moved), "held-out loss with each way of advise", 3, 310, 280, "own"),
            ]
            if moved is not None
            else []
        ),
        *(
            [("elsewhere", _elsewhere_panels(there), "held-out loss elsewhere", 3, 310, 280, "own")]
            if there is not None
            else []
        ),
    )
    made = {}
    for name, panels, title, columns, width, height, scale in rows:
        made[f"training-{name}"] = Drawing(
            panels=panels,
            title=title,
            **_IN_FILE.get(name, {}),
            caption=caption(f"training_{name.replace('-', '_')}", layers=MIDDLE, rate=RATE, factor=FACTOR),
            columns=columns,
            width=width,
            height=height,
            scale=scale,
        )
    return made


def _over_seeds(xs: Sequence[float], rows: Sequence[Row], mean: Callable[[Sequence[float]], float]) -> list[Place]:
    """At each x, the mean of those that have a number there."""
    columns = [[y for y in column if y is not None] for column in zip(*rows, strict=True)]
    return [(x, mean(column)) for x, column in zip(xs, columns, strict=True) if column]


def _mean_rate(edges: Sequence[Edge], grid: Sequence[float]) -> float:
    return 2 ** fmean(log_rate(edge, grid) for edge in edges)


def _edge_curve(scheme: str, by_x: Iterable[tuple[float, Runs]]) -> Curve:
    """The largest rate, by x."""
    there = [(x, runs.edges, runs.arm.grid) for x, runs in by_x if runs.seeds]
    return Curve.of_scheme(
        scheme,
        line=[(x, _mean_rate(edges, grid)) for x, edges, grid in there],
        has_dots=True,
        ends=[end(edges) for _, edges, _ in there],
        faint=[(x, 2 ** log_rate(edge, grid)) for x, edges, grid in there for edge in edges],
    )


def _rate_panel(title: str, curves: Sequence[Curve]) -> Panel:
    return Panel(title=title, x="layers", y=_RATE, curves=curves, x_kind="depths", y_kind="rates")


def _rates_panels(record: Record) -> list[Panel]:
    def curves(schemes: Sequence[str], depths: Sequence[int]) -> list[Curve]:
        at = {s: [(n, runs) for n in depths if (runs := record.runs.get(gpt(s, n))) is not None] for s in schemes}
        return [_edge_curve(scheme, by_depth) for scheme, by_depth in at.items()]

    every = curves((*SCHEMES, *MORE_SCHEMES), [MIDDLE])
    return [_rate_panel("by depth", curves(SCHEMES, LAYERS)), _rate_panel(f"all schemes at {MIDDLE} layers", every)]


def _curves_panels(record: Record) -> list[Panel]:
    by_scheme: dict[str, list[Runs]] = {}
    for runs in record.runs.values():
        if not runs.arm.grid and runs.arm.trial.scheme in SCHEMES and runs.seeds:
            by_scheme.setdefault(runs.arm.trial.scheme, []).append(runs)
    guess = _guess_of(runs for several in by_scheme.values() for runs in several)
    lines = {scheme: _losses(several) for scheme, several in by_scheme.items()}
    losses = [y for line, faint in lines.values() for _, y in (*line, *faint) if math.isfinite(y)]
    return [
        Panel(
            title=scheme,
            x="learning rate",
            y="held-out loss, nats",
            curves=[
                *(Curve(line=other, colour="--line", width=1.2) for s, (other, _) in lines.items() if s != scheme),
                Curve.of_scheme(scheme, "", line=line, has_dots=True, faint=faint),
            ],
            x_kind="rates",
            y_kind="linear",
            y_range=(min(losses) - 0.1, guess * _JUST_ABOVE),
            levels={guess: "dashed"},
        )
        for scheme, (line, faint) in lines.items()
    ]


def _losses(several: Sequence[Runs]) -> tuple[list[Place], list[Place]]:
    """Mean and seeds by learning rate; far above everything where a run diverged."""
    by_rate = sorted(
        (runs.arm.trial.learning_rate, [_DIVERGED if r.held_out is None else r.held_out for r in runs.results])
        for runs in several
    )
    return [(x, fmean(ys)) for x, ys in by_rate], [(x, y) for x, ys in by_rate for y in ys if y < _DIVERGED]


def _guess_of(several: Iterable[Runs]) -> float:
    """The loss that can be had without the input."""
    return max((result.guess for runs in several for result in runs.results), default=0.0)


def _predicts_panels(record: Record) -> list[Panel]:
    return [
        Panel(
            title=f"{layers} layers: {WORDS[look]}",
            x="update U at initialisation",
            y=_RATE,
            curves=[_case(case, grid) for case in several if mean_update(case) > 0],
            y_kind="rates",
        )
        for look, grid in zip(LOOKS, (GRID, CURVE), strict=True)
        for layers, several in cases_by_depth(record.book, look).items()
    ]


def _case(case: Case, grid: Sequence[float]) -> Curve:
    point = (mean_update(case), _mean_rate(case.edges, grid), None, None)
    return Curve.of_scheme(trial_of(case).scheme, points=[point], ends=[end(case.edges)], is_beside=True)


def _loss_curve(scheme: str, runs: Runs, label: str = "", line_style: str = "solid") -> Curve:
    """Means over parts of a run, of the seeds that have come so far, and a band of all seeds."""
    size = max(1, runs.arm.trial.num_steps // _BINS)
    starts = range(0, runs.arm.trial.num_steps - size + 1, size)
    xs = [start + (size + 1) / 2 for start in starts]
    rows = [[_part(result, start, size) for start in starts] for result in runs.results]
    low, high = (dict(_over_seeds(xs, rows, end)) for end in (min, max))
    return Curve.of_scheme(
        scheme,
        label or scheme,
        line=_over_seeds(xs, rows, fmean),
        band=[(x, low[x], high[x]) for x in low],
        line_style=line_style,
    )


def _part(result: TrainResult, start: int, size: int) -> float | None:
    losses = [loss for loss in result.losses[start : start + size] if loss is not None]
    return sum(losses) / size if len(losses) == size else None


def _loss_panel(title: str, curves: Sequence[Curve], several: Iterable[Runs], bottom: float) -> Panel:
    guess = _guess_of(several)
    return Panel(
        title=title,
        x="step",
        y="training loss, nats",
        curves=curves,
        x_kind="linear",
        y_kind="linear",
        y_range=(bottom, guess * _ABOVE) if guess else None,
        levels={guess: "dashed"} if guess else {},
    )


def _lowest(curves: Iterable[Curve]) -> float:
    return min((y for curve in curves for _, y in curve.line), default=0.0) - 0.1


def _warmup_panels(record: Record) -> list[Panel]:
    there = {name: runs for name, runs in record.runs.items() if runs.seeds}

    def losses(scheme: str, named: Mapping[str, tuple[str, str]]) -> list[Curve]:
        return [_loss_curve(scheme, there[name], *look) for name, look in named.items() if name in there]

    alike = [curve for scheme in ALIKE for curve in losses(scheme, {plain(scheme): (scheme, "solid")})]
    ways = {
        plain("post-ln"): ("no warm-up", "solid"),
        warmed(): ("warm-up", "dashed"),
        FROM_FRACTION: ("warm-up from 1/N", "dashed"),
        DIVIDED: ("rate over N", "dotted"),
    }
    deep, few = losses("post-ln", ways), list[Curve]()
    for n in DEPTHS[:-1]:
        few += losses("post-ln", {plain("post-ln", n): (f"{n}L", "solid"), warmed(n): (f"{n}L, warm-up", "dashed")})
        few += losses("deepnorm", {plain("deepnorm", n): (f"{n}L, deepnorm", "solid")})
    tops = [_along(s, there[plain(s)], _top_gradient) for s in ("post-ln", POST_LN_INIT) if plain(s) in there]
    low = _lowest([*alike, *deep, *few])
    pair = f"{DEEP}L-{DEEP}L"
    return [
        _loss_panel(f"{pair}, no warm-up", alike, there.values(), low),
        _loss_panel(f"Post-LN {pair}, with and without warm-up", deep, there.values(), low),
        _loss_panel("Post-LN, shallower", few, there.values(), low),
        Panel(title="gradient of the decoder's top layer", x="step", y="norm", curves=tops, x_kind="places"),
    ]


def _top_gradient(look: Look, _: TrainResult) -> float | None:
    """Norm by the matrices of the decoder's top layer: its three sublayers."""
    parts = look.gradient_norms.get("decoder", [])[-3:]
    known = [part for part in parts if part is not None]
    return math.hypot(*known) if known and len(known) == len(parts) else None


def _along(scheme: str, runs: Runs, value: Callable[[Look, TrainResult], float | None]) -> Curve:
    """By step: the geometric mean over seeds, and each seed."""
    seeds = [{look.step: seen for look in r.looks if (seen := value(look, r)) is not None} for r in runs.results]
    steps = sorted(set().union(*seeds))
    rows = [[seed.get(step) for step in steps] for seed in seeds]
    means = _over_seeds(steps, rows, lambda column: geometric_mean(column) if all(column) else 0.0)
    return Curve.of_scheme(
        scheme,
        line=[(x, y) for x, y in means if y > 0],
        has_dots=True,
        faint=[(x, y) for row in rows for x, y in zip(steps, row, strict=True) if y],
    )


def _deep(record: Record) -> dict[int, dict[str, Runs]]:
    """By depth and scheme, what there is."""
    return {n: {s: runs for s in DEEP_SCHEMES if (runs := record.runs[deep_name(s, n)]).seeds} for n in DEEP_LAYERS}


def _thousand_panels(record: Record) -> list[Panel]:
    by_depth = _deep(record)
    curves = {n: [_loss_curve(*pair) for pair in there.items()] for n, there in by_depth.items()}
    low = _lowest(curve for several in curves.values() for curve in several)
    return [_loss_panel(f"{n:,} layers", curves[n], there.values(), low) for n, there in by_depth.items()]


def _updates_panels(record: Record) -> list[Panel]:
    return [
        Panel(
            title=f"{n:,} layers",
            x="step",
            y="update over that at initialisation",
            curves=[_along(scheme, runs, ratio) for scheme, runs in there.items()],
            x_kind="places",
            shaded=(1 / FACTOR, FACTOR),
        )
        for n, there in _deep(record).items()
    ]


def _later_panels(record: Record) -> list[Panel]:
    """The slope by step; then, in each unit of time, what is left of the move at step 0."""
    found_on = [case for case in PLANNED if case.optimizer == ADAMW]
    of_adamw = after_start.courses(record.book, found_on)
    names = {after_start.UNITS[0]: "step", after_start.UNITS[1]: "rate x steps / init std of fc2"}
    slopes = [_slope_curve(course) for course in of_adamw if not course.case.way]
    return [
        Panel(
            title="how the move grows with depth",
            x="step",
            y="exponent of the move in layers",
            curves=slopes,
            x_kind="places",
            y_kind="linear",
            levels={0.0: "dashed"},
        ),
        *(
            Panel(
                title="what is left of the move",
                x=names.get(unit, unit),
                y="move over that at step 0",
                curves=[_left_curve(course, num_layers, at) for course in of_adamw for num_layers in AFTER_LAYERS],
                levels={0.5: "dashed"},
            )
            for at, unit in enumerate(after_start.UNITS)
        ),
    ]


def _slope_curve(course: after_start.Course) -> Curve:
    points = []
    for step in course.steps:
        of_seeds = estimate(course.slopes(step))
        points.append((step, of_seeds.mean, of_seeds.low, of_seeds.high))
    return Curve.of_scheme(course.case.scheme, points=points, line=[(x, y) for x, y, *_ in points])


def _left_curve(course: after_start.Course, num_layers: int, at: int) -> Curve:
    """The geometric mean over the seeds; at: the unit of time."""
    firsts = course.updates(num_layers, 0)
    line = [
        (
            fmean(course.in_units(step, num_layers, seed)[at] for seed in range(len(course.seeds))),
            geometric_mean(u / first for u, first in zip(course.updates(num_layers, step), firsts, strict=True)),
        )
        for step in course.steps
        if step
    ]
    return Curve.of_scheme(course.case.scheme, "", line=line, width=2.0 if course.case.way else 1.0)


_BY_REMEDY = {
    transfer.NOTHING: "--c2",
    "learning-rate": "--muted",
    transfer.ADVISED: "--c1",
    "depth-mup": "--c3",
    "completep": "--c7",
    "su-adam": "--c4",
}


def _gains_panels(record: Record) -> list[Panel]:
    """A panel for each optimizer: of each model, the gain of every way."""
    main = [one for one in transfer.transfers(record.book, record.scale) if one.case.is_main]
    by_optimizer = {optimizer: [one for one in main if one.case.optimizer == optimizer] for optimizer in (ADAMW, MUON)}
    panels = []
    for optimizer, several in by_optimizer.items():
        ways = [way for way in _BY_REMEDY if any(way in one.case.remedies for one in several)]
        curves = [
            Curve(label=way, points=[*_gain_points(several, way, step)], colour=_BY_REMEDY[way])
            for way, step in zip(ways, _beside(len(ways)), strict=True)
        ]
        ends = [end for curve in curves for _, *interval in curve.points for end in interval if end is not None]
        panels.append(
            Panel(
                title=f"under {optimizer}",
                y="nats off the loss",
                curves=curves,
                x_kind="linear",
                y_kind="linear",
                x_names={float(at): one.case.name for at, one in enumerate(several)},
                y_range=(min(ends, default=0.0) - 0.02, max(ends, default=1.0) + 0.02),
                levels={0.0: "dashed"},
            )
        )
    return panels


def _beside(number: int) -> list[float]:
    """Where so many things stand that share one place of a horizontal axis."""
    return [0.15 * (at - (number - 1) / 2) for at in range(number)]


def _gain_points(several: Sequence[transfer.Transfer], way: str, step: float) -> Iterator[Point]:
    for at, one in enumerate(several):
        if way in one.case.remedies:
            gain = one.gain(way, one.deepest)
            yield at + step, gain.mean, gain.low, gain.high


def _moved_panels(record: Record) -> list[Panel]:
    """A panel for each model of enough seeds."""
    return _panels_of([one for one in transfer.transfers(record.book, record.scale) if one.case.is_main], record)


def _elsewhere_panels(record: Record) -> list[Panel]:
    return _panels_of(transfer.moved_elsewhere(record.book, record.scale), record)


def _panels_of(several: Sequence[transfer.Transfer], record: Record) -> list[Panel]:
    guess = max((result.guess for result in record.book.values()), default=0.0)
    panels = []
    for one in several:
        curves = [*_moved_curves(one)]
        panels.append(
            Panel(
                title=one.case.name + f", {one.case.optimizer}" * (one.case.optimizer != ADAMW) + one.case.longer,
                x="learning rate",
                y="held-out loss, nats",
                curves=curves,
                x_kind="rates",
                y_kind="linear",
                y_range=(min(y for curve in curves for y in curve.ys) - 0.05, guess + 0.1),
            )
        )
    return panels


def _moved_curves(one: transfer.Transfer) -> Iterator[Curve]:
    tuned, deepest = one.case.layers[0], one.deepest
    few = one.losses[tuned][transfer.NOTHING]
    line = [(rate, fmean(losses)) for rate, losses in few.items()]
    yield Curve(label=f"{tuned} layers", line=line, colour="--ink", line_style="dashed")
    rate = geometric_mean(one.tuned)
    for remedy, by_rate in one.losses[deepest].items():
        yield Curve(
            label=f"{deepest}, {remedy}",
            line=[(rate, fmean(losses)) for rate, losses in by_rate.items()],
            points=[(rate, fmean(one.at_tuned(remedy, deepest)), None, None)],
            colour=_BY_REMEDY[remedy],
        )


_BY_DEPTH: dict[int, str] = dict(zip(BEST_LAYERS, ("--c6", "--c1", "--c4", "--c2"), strict=True))
_BEST_RANGE = (2.0**-10.5, 2.0**-1.5)


def _best_losses(record: Record) -> list[Panel]:
    """A panel for each scheme with its curves."""
    founds = founds_of(record)
    guess = max((result.guess for result in record.book.values()), default=0.0)
    least = min((loss for rates in founds for losses in rates.losses.values() for loss in losses), default=0.0)
    return [
        Panel(
            title=rates.scheme.removeprefix(OF_RECIPE),
            x="learning rate",
            y="held-out loss, nats",
            curves=[curve for layers in BEST_LAYERS for curve in _best_curves(rates, layers)],
            x_kind="rates",
            y_kind="linear",
            y_range=(least - 0.05, guess),
        )
        for rates in founds
    ]


def _best_by_depths(record: Record) -> list[Panel]:
    return [_best_by_depth(rates) for rates in founds_of(record)]


def _best_curves(rates: BestRates, num_layers: int) -> list[Curve]:
    """Mean over the seeds by rate, and the best rates of the seeds."""
    colour = _BY_DEPTH[num_layers]
    means = [(rate, loss) for rate, loss in rates.mean_curve(num_layers).items() if loss is not None]
    bests = zip(rates.bests[num_layers], rates.losses[num_layers], strict=True)
    return [
        Curve(label=f"{num_layers} layers", line=means, colour=colour),
        Curve(points=[(2**best, loss, None, None) for best, loss in bests if best is not None], colour=colour),
    ]


def _best_by_depth(rates: BestRates) -> Panel:
    """Dashed: what the update predicts, through the mean of the best rates. A seed whose best rate is beyond the grid
    counts with the grid's end, and has no interval."""
    logs = [math.log2(rate) for rate in BEST_GRIDS[rates.scheme]]
    ends = {n: rates.ends(n) for n in BEST_LAYERS}
    bests = {
        n: [(logs[0], best, logs[-1])[end + 1] for best, end in zip(rates.bests[n], ends[n], strict=True)]
        for n in BEST_LAYERS
    }
    points = []
    for n, at in bests.items():
        mean = estimate([best for best in at if best is not None])
        low, high = (None, None) if any(ends[n]) else (mean.low, mean.high)
        points.append((n, 2**mean.mean, *(None if end is None else 2**end for end in (low, high))))
    middle = fmean(math.log2(y) for _, y, *_ in points)
    centre = fmean(math.log2(n) for n in BEST_LAYERS)
    line = [(n, 2 ** (middle + predicted(rates.scheme) * (math.log2(n) - centre))) for n in BEST_LAYERS]
    return Panel(
        title=rates.scheme.removeprefix(OF_RECIPE),
        x="layers",
        y="best learning rate",
        curves=[
            Curve(label="by the update", line=line, colour="--muted", line_style="dashed"),
            Curve(
                points=points,
                ends=[sum(several) and round(math.copysign(1, sum(several))) for several in ends.values()],
                faint=[(n, 2**best) for n, at in bests.items() for best in at if best is not None],
            ),
        ],
        x_kind="depths",
        y_kind="rates",
        y_range=_BEST_RANGE,
    )
