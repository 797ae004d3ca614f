"""What the figures of TRAINING.md show, from the records: largest rates, losses, updates along training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from paper_checks.pages.drawing import Curve, Drawing, Panel, Place
from paper_checks.pages.markdown import caption
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
from paper_checks.routes.forecast import LOOKS as CRITERIA
from paper_checks.routes.forecast import Case
from sims.training.outcomes import Edge
from sims.training.train import Look, TrainResult

_BINS = 25
"""Of a training loss: means over so many parts of a run."""
_JUST_ABOVE, _ABOVE = 1.15, 1.35
"""The top of a panel of losses, over what can be had without the input: what is far above has not trained."""
_RATE = "largest stable learning rate"
Row = Sequence[float | None]
"""A number for each x, None where there is none."""


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


def _over_seeds(xs: Sequence[float], rows: Sequence[Row], mean: Callable[[Sequence[float]], float]) -> list[Place]:
    """At each x, the mean of those that have a number there."""
    columns = [[y for y in column if y is not None] for column in zip(*rows, strict=True)]
    return [(x, mean(column)) for x, column in zip(xs, columns, strict=True) if column]


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(_average([math.log(value) for value in values])) if all(values) else 0.0


# ---------------------------------------------------------------- largest rates


def _mean_rate(edges: Sequence[Edge], grid: Sequence[float]) -> float:
    return 2 ** _average([log_rate(one, grid) for one in edges])


def _edge_curve(scheme: str, found: Iterable[tuple[float, Runs]], label: str = "", width: float = 1.6) -> Curve:
    """The largest rate, by x."""
    there = [(x, one.edges(one.seeds), one.arm.grid) for x, one in found if one.seeds]
    return Curve.of_scheme(
        scheme,
        label or scheme,
        line=[(x, _mean_rate(edges, grid)) for x, edges, grid in there],
        has_dots=True,
        ends=[end(edges) for _, edges, _ in there],
        faint=[(x, 2 ** log_rate(one, grid)) for x, edges, grid in there for one in edges],
        width=width,
    )


def _rates(record: Record) -> Drawing:
    def panel(title: str, schemes: Sequence[str], depths: Sequence[int]) -> Panel:
        at = {s: [(n, one) for n in depths if (one := record.runs.get(gpt(s, n))) is not None] for s in schemes}
        curves = [_edge_curve(scheme, found) for scheme, found in at.items()]
        return Panel(title=title, x="layers", y=_RATE, curves=curves, x_kind="depths", y_kind="rates")

    every = (*SCHEMES, *MORE_SCHEMES)
    return Drawing(
        panels=[panel("by depth", SCHEMES, LAYERS), panel(f"all schemes at {MIDDLE} layers", every, [MIDDLE])],
        title="largest stable rate by depth",
        caption=caption("training_rates"),
        columns=2,
        width=430,
        height=330,
        scale="shared",
    )


def _curves(record: Record) -> Drawing:
    found: dict[str, list[Runs]] = {}
    for one in record.runs.values():
        if not one.arm.grid and one.arm.trial.scheme in SCHEMES and one.seeds:
            found.setdefault(one.arm.trial.scheme, []).append(one)
    guess = _guess_of(one for several in found.values() for one in several)
    lines = {scheme: _losses(several) for scheme, several in found.items()}
    losses = [y for line, faint in lines.values() for _, y in (*line, *faint) if math.isfinite(y)]
    panels = [
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
    return Drawing(
        panels=panels,
        title="held-out loss by learning rate",
        caption=caption("training_curves", layers=MIDDLE),
        columns=3,
        width=290,
        height=220,
    )


def _losses(found: Sequence[Runs]) -> tuple[list[Place], list[Place]]:
    """Mean and seeds by learning rate; far above everything where a run diverged."""
    by_rate = {
        one.arm.trial.learning_rate: [1e6 if r.held_out is None else r.held_out for r in one.results] for one in found
    }
    ordered = sorted(by_rate.items())
    return [(x, _average(ys)) for x, ys in ordered], [(x, y) for x, ys in ordered for y in ys if y < 1e6]


def _guess_of(found: Iterable[Runs]) -> float:
    """The loss that can be had without the input."""
    return max((result.guess for one in found for result in one.results), default=0.0)


def _predicts(record: Record) -> Drawing:
    words = dict(zip(CRITERIA, ("trains", "learns half"), strict=True))
    panels = [
        Panel(
            title=f"{layers} layers: {words[criterion]}",
            x="update U at initialisation",
            y=_RATE,
            curves=[_case(case, grid) for case in several if mean_update(case) > 0],
            y_kind="rates",
        )
        for criterion, grid in zip(CRITERIA, (GRID, CURVE), strict=True)
        for layers, several in cases_by_depth(record.book, criterion).items()
    ]
    return Drawing(
        panels=panels,
        title="update and largest stable rate",
        caption=caption("training_predicts"),
        columns=2,
        width=430,
        height=280,
        scale="shared",
    )


def _case(case: Case, grid: Sequence[float]) -> Curve:
    scheme = trial_of(case).scheme
    point = (mean_update(case), _mean_rate(case.edges, grid), None, None)
    return Curve.of_scheme(scheme, points=[point], ends=[end(case.edges)], is_beside=True)


# ---------------------------------------------------------------- losses by step


def _loss_curve(scheme: str, one: Runs, label: str = "", line_style: str = "solid") -> Curve:
    """Means over parts of a run, of the seeds that have come so far, and a band of all seeds."""
    size = max(1, one.arm.trial.num_steps // _BINS)
    starts = range(0, one.arm.trial.num_steps - size + 1, size)
    xs = [start + (size + 1) / 2 for start in starts]
    rows = [[_part(result, start, size) for start in starts] for result in one.results]
    low, high = (dict(_over_seeds(xs, rows, end)) for end in (min, max))
    return Curve.of_scheme(
        scheme,
        label or scheme,
        line=_over_seeds(xs, rows, _average),
        band=[(x, low[x], high[x]) for x in low],
        line_style=line_style,
    )


def _part(result: TrainResult, start: int, size: int) -> float | None:
    losses = [loss for loss in result.losses[start : start + size] if loss is not None]
    return sum(losses) / size if len(losses) == size else None


def _loss_panel(title: str, curves: Sequence[Curve], found: Iterable[Runs], bottom: float) -> Panel:
    guess = _guess_of(found)
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


def _warmup(record: Record) -> Drawing:
    there = {name: one for name, one in record.runs.items() if one.seeds}
    ways = {
        plain("post-ln"): ("no warm-up", "solid"),
        warmed(): ("warm-up", "dashed"),
        FROM_FRACTION: ("warm-up from 1/N", "dashed"),
        DIVIDED: ("rate over N", "dotted"),
    }
    alike = [_loss_curve(s, there[plain(s)]) for s in ALIKE if plain(s) in there]
    deep = [_loss_curve("post-ln", there[name], *look) for name, look in ways.items() if name in there]
    few = []
    for n in DEPTHS[:-1]:
        named = {plain("post-ln", n): (f"{n}L", "solid"), warmed(n): (f"{n}L, warm-up", "dashed")}
        few += [_loss_curve("post-ln", there[name], *look) for name, look in named.items() if name in there]
        beside = there.get(plain("deepnorm", n))
        few += [_loss_curve("deepnorm", beside, f"{n}L, deepnorm")] if beside is not None else []
    tops = [
        _along(s, there[plain(s)], lambda look, _: top_gradient(look))
        for s in ("post-ln", POST_LN_INIT)
        if plain(s) in there
    ]
    low = _lowest([*alike, *deep, *few])
    pair = f"{DEEP}L-{DEEP}L"
    return Drawing(
        panels=[
            _loss_panel(f"{pair}, no warm-up", alike, there.values(), low),
            _loss_panel(f"Post-LN {pair}, with and without warm-up", deep, there.values(), low),
            _loss_panel("Post-LN, shallower", few, there.values(), low),
            Panel(title="gradient of the decoder's top layer", x="step", y="norm", curves=tops, x_kind="places"),
        ],
        title="training loss on translation",
        caption=caption("training_warmup", rate=RATE),
        columns=2,
        width=440,
        height=290,
    )


def _along(scheme: str, one: Runs, value: Callable[[Look, TrainResult], float | None]) -> Curve:
    """By step: the geometric mean over seeds, and each seed."""
    seeds = [{look.step: seen for look in r.looks if (seen := value(look, r)) is not None} for r in one.results]
    steps = sorted(set().union(*seeds))
    rows = [[seed.get(step) for step in steps] for seed in seeds]
    return Curve.of_scheme(
        scheme,
        line=[(x, y) for x, y in _over_seeds(steps, rows, _geometric) if y > 0],
        has_dots=True,
        faint=[(x, y) for row in rows for x, y in zip(steps, row, strict=True) if y],
    )


# ---------------------------------------------------------------- 1,000 layers


def _deep(record: Record) -> dict[int, dict[str, Runs]]:
    """By depth and scheme, what there is."""
    return {n: {s: one for s in DEEP_SCHEMES if (one := record.runs[deep_name(s, n)]).seeds} for n in DEEP_LAYERS}


def _thousand(record: Record) -> Drawing:
    found = {n: ([_loss_curve(*pair) for pair in there.items()], there.values()) for n, there in _deep(record).items()}
    low = _lowest(curve for curves, _ in found.values() for curve in curves)
    return Drawing(
        panels=[_loss_panel(f"{n:,} layers", *pair, low) for n, pair in found.items()],
        title="training loss by depth",
        caption=caption("training_thousand"),
        columns=3,
        width=310,
        height=280,
    )


def _updates(record: Record) -> Drawing:
    panels = [
        Panel(
            title=f"{n:,} layers",
            x="step",
            y="update over that at initialisation",
            curves=[_along(scheme, one, ratio) for scheme, one in there.items()],
            x_kind="places",
            shaded=(1 / FACTOR, FACTOR),
        )
        for n, there in _deep(record).items()
    ]
    return Drawing(
        panels=panels,
        title="update along training",
        caption=caption("training_updates", factor=FACTOR),
        columns=3,
        width=310,
        height=280,
        scale="shared",
    )


# ---------------------------------------------------------------- the optimizer's own row


def _own_row(record: Record) -> Drawing:
    def curve(row: str, optimizer: str) -> Curve:
        at = [(n, record.runs[own_name(row, optimizer, n)]) for n in OWN_LAYERS]
        is_own = row == f"su-{optimizer}"
        return _edge_curve(row, at, f"{row}, its own" if is_own else row, 2.8 if is_own else 1.2)

    return Drawing(
        panels=[
            Panel(
                title=f"trained with {optimizer}",
                x="layers",
                y=_RATE,
                curves=[curve(row, optimizer) for row in ROWS],
                x_kind="depths",
                y_kind="rates",
            )
            for optimizer in OWN_GRIDS
        ],
        title="largest stable rate by optimizer and row",
        caption=caption("training_own_row"),
        columns=3,
        width=310,
        height=280,
        scale="slopes",
    )
