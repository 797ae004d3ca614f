"""The section of TRAINING.md on what the remedies of ``advise`` gain, and what transfer costs with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from depthlaw.advice.records import kind_of
from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments.transfer import NONE, RATES, TUNED, arm_name, of_depth
from depthlaw.paper_checks.pages.markdown import interval, section
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import transfer as route
from depthlaw.sims.stats import estimate

_ADVISED = ("learning-rates", "depth-mup")
"""The remedies that every model of the README's table has; the third is its own."""
_VERDICTS = {True: "pays", False: "costs", None: "neither pays nor costs, as far as these seeds tell"}


def transfer(record: Record, opening: str, images: str) -> str:
    several = route.transfers(record.book, record.scale)
    return section(
        "training",
        "transfer",
        opening=opening,
        images=images,
        num_seeds=min((len(one.seeds) for one in several), default=0),
        tuned=TUNED,
        advised=route.ADVISED,
        least=route.LEAST_SEEDS,
        models=[_model(one, layers) for one in several for layers in one.losses if layers > TUNED],
    )


def _model(one: route.Transfer, num_layers: int) -> dict[str, Any]:
    slopes = [slope for slope in one.slopes if slope is not None]
    is_known = len(slopes) == len(one.seeds)
    return {
        "name": _name(one),
        "layers": num_layers,
        "rows": [*_rows(one, num_layers)],
        "verdict": _VERDICTS[route.pays(one, num_layers)],
        "slope": interval(estimate(slopes), 2) if is_known else "(not known: a best rate lies beyond those tried)",
    }


def _rows(one: route.Transfer, num_layers: int) -> Iterator[list[str]]:
    for remedy in of_depth(one.model, num_layers, one.optimizer):
        costs = one.transfer_cost(remedy, num_layers), one.remedy_cost(remedy, num_layers)
        gain = interval(one.gain(remedy, num_layers), 3) if remedy != route.NOTHING else "-"
        yield [remedy, f"{fmean(one.at_tuned(remedy, num_layers)):.3f}", gain, *(interval(cost, 3) for cost in costs)]


def gains(record: Record) -> list[dict[str, Any]]:
    """What each remedy gained at the largest depth, in nats to four digits, as ``advise`` reads it: a row for each
    model and remedy."""
    rows = []
    for one in route.transfers(record.book, record.scale):
        layers = max(one.losses)
        tuned, trial = (
            record.experiment.arm(
                arm_name(one.model, depth, route.NOTHING, RATES[one.optimizer][one.model][0], one.optimizer)
            ).trial
            for depth in (TUNED, layers)
        )
        kind = kind_of(tuned.lower().model, trial.lower().model)
        shape = {"from_layers": TUNED, "layers": layers, "d_model": trial.d_model, "num_steps": trial.num_steps}
        for remedy in of_depth(one.model, layers, one.optimizer)[1:]:
            gain = one.gain(remedy, layers)
            ends = {"mean": gain.mean, "low": gain.low, "high": gain.high}
            found: dict[str, Any] = {name: None if end is None else round(end, 4) for name, end in ends.items()}
            found["num_seeds"] = gain.num
            found |= {"verdict": one.verdict(remedy, layers), "beaten_by": one.beaten_by(remedy, layers)}
            rows.append({"model": _name(one), "remedy": remedy, **shape, **kind, **found})
    return rows


def in_short(record: Record) -> str:
    """The result as a table, and what it is of, for the README too. Empty where no model has enough seeds."""
    several = route.transfers(record.book, record.scale)
    if not several:
        return ""
    trial = record.experiment.arms[0].trial
    return section(
        "training",
        "transfer_in_short",
        tuned=TUNED,
        layers=max(several[0].losses),
        trial=trial,
        num_seeds=min(len(one.seeds) for one in several),
        rows=[_readme_row(one, max(one.losses)) for one in several],
        least=NONE,
        gaining=_models_by_remedy(several, 1),
        costing=_models_by_remedy(several, -1),
    ).strip()


def _models_by_remedy(several: Sequence[route.Transfer], verdict: int) -> list[tuple[str, list[str]]]:
    """Of each remedy that has some, the models in which it was shown to gain, or to cost."""
    by_remedy: dict[str, list[str]] = {}
    for one in several:
        for remedy in of_depth(one.model, max(one.losses), one.optimizer)[1:]:
            if one.verdict(remedy, max(one.losses)) == verdict:
                by_remedy.setdefault(remedy, []).append(_name(one))
    return [*by_remedy.items()]


def _readme_row(one: route.Transfer, layers: int) -> list[str]:
    few, many = (f"{fmean(one.at_tuned(route.NOTHING, n)):.2f}" for n in (TUNED, layers))
    own = of_depth(one.model, layers, one.optimizer)[-1]
    cells = [interval(one.gain(remedy, layers), 2) for remedy in (*_ADVISED, own)]
    return [_name(one), few, many, *cells[:-1], f"{own}: {cells[-1]}"]


def _name(one: route.Transfer) -> str:
    return one.model.removeprefix(OF_RECIPE)
