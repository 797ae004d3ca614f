"""The section of TRAINING.md on what the remedies of ``advise`` gain, and what transfer costs with them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments.transfer import TUNED, of_depth
from depthlaw.paper_checks.pages.markdown import interval, section
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import transfer as route
from depthlaw.sims.stats import estimate

_VERDICTS = {True: "pays", False: "costs", None: "neither pays nor costs, as far as these seeds tell"}


def transfer(record: Record, opening: str) -> str:
    several = route.transfers(record.book, record.scale)
    return section(
        "training",
        "transfer",
        opening=opening,
        num_seeds=min((len(one.seeds) for one in several.values()), default=0),
        tuned=TUNED,
        advised=route.ADVISED,
        least=route.LEAST_SEEDS,
        models=[_model(one, layers) for one in several.values() for layers in one.losses if layers > TUNED],
    )


def _model(one: route.Transfer, num_layers: int) -> dict[str, Any]:
    slopes = [slope for slope in one.slopes if slope is not None]
    is_known = len(slopes) == len(one.seeds)
    return {
        "name": one.model.removeprefix(OF_RECIPE),
        "layers": num_layers,
        "rows": [*_rows(one, num_layers)],
        "verdict": _VERDICTS[route.pays(one, num_layers)],
        "slope": interval(estimate(slopes), 2) if is_known else "(not known: a best rate lies beyond those tried)",
    }


def _rows(one: route.Transfer, num_layers: int) -> Iterator[list[str]]:
    for remedy in of_depth(one.model, num_layers):
        costs = one.transfer_cost(remedy, num_layers), one.remedy_cost(remedy, num_layers)
        gain = interval(one.gain(remedy, num_layers), 3) if remedy != route.NOTHING else "-"
        yield [remedy, f"{fmean(one.at_tuned(remedy, num_layers)):.3f}", gain, *(interval(cost, 3) for cost in costs)]
