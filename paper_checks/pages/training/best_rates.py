"""The section of TRAINING.md on how the best learning rate moves with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from depthlaw.paper_checks.experiments.best_rates import HIGH, LAYERS, SCHEMES
from depthlaw.paper_checks.experiments.scale import WIDE
from depthlaw.paper_checks.pages.markdown import section
from depthlaw.paper_checks.pages.training.runs import Record, answer, founds_of
from depthlaw.paper_checks.routes.training.best_rates import (
    BestRates,
    Transfer,
    factor,
    growing,
    in_words,
    is_flat,
    predicted,
    transfer,
)
from depthlaw.paper_checks.routes.training.questions import FOLLOWS, NEARER


def best_rates(record: Record, wide: Record, opening: str, images: str) -> str:
    """The section. opening: its heading, question and answers."""
    founds, of_wide = (founds_of(one) for one in (record, wide))
    both = ((record, founds), (wide, of_wide))
    return section(
        "training",
        "best_rates",
        opening=opening,
        images=images,
        layers=LAYERS,
        rows=[(found, _width(one), found.loss_change) for one, several in both for found in several],
        predicted=predicted,
        in_words=in_words,
        num_schemes=len(SCHEMES),
        transfers=[(found, _width(one), *rest) for one, several in both for found, *rest in _transfers(one, several)],
        **_excess(founds),
        num_double=sum(found.num_double for found in founds),
        num_curves=sum(len(LAYERS) * len(found.seeds) for found in founds),
        factor=factor(record.book),
        factor_wide=factor(wide.book, wide.scale) if of_wide else None,
        growing=growing(),
        steps=record.experiment.arms[0].trial.num_steps,
        width=_width(record),
        wide=WIDE.d_model,
        num_wide=min((len(found.seeds) for found in of_wide), default=0),
    )


def best_in_short(record: Record, wide: Record) -> str:
    """The result in a table and a few sentences. Empty where the record has no seed of every scheme."""
    founds, of_wide = (founds_of(one) for one in (record, wide))
    if len(founds) < len(SCHEMES):
        return ""
    has_wide = len(of_wide) == len(SCHEMES)
    ordered = sorted(founds, key=lambda found: is_flat(found.scheme))
    heads = ["network", "predicted", "found", "as predicted", "loss"]
    wider = [f"found, {WIDE.d_model} wide", f"loss, {WIDE.d_model} wide"] * has_wide
    by_scheme = {one.scheme: [in_words(one.measured), in_words(one.loss_change)] for one in of_wide if has_wide}
    return section(
        "training",
        "best_in_short",
        in_words=in_words,
        heads=[*heads, *wider],
        rows=[[*_in_short(found, record), *by_scheme.get(found.scheme, [])] for found in ordered],
        num_beyond=sum(found.measured is None for found in (*founds, *(of_wide if has_wide else ()))),
        num_seeds=min(len(found.seeds) for found in founds),
        layers=LAYERS,
        trial=record.experiment.arms[0].trial,
        factor=factor(record.book),
        nearer=answer(NEARER, record),
        wide=_wide_in_short(wide, of_wide) if has_wide else None,
        planned=record.experiment.plan(record.book).num_seeds,
        **_excess(founds),
    ).strip()


def _in_short(found: BestRates, record: Record) -> list[str]:
    """A row: the slope predicted and found, whether they agree or how many seeds would say so, and the loss."""
    said = answer(FOLLOWS[found.scheme], record) or ""
    more = f" ({found.seeds_to_decide} seeds would decide)" if said == "open" and found.seeds_to_decide else ""
    slopes = [f"{predicted(found.scheme):.2f}", in_words(found.measured)]
    return [found.name, *slopes, said + more, in_words(found.loss_change)]


def _wide_in_short(wide: Record, founds: Sequence[BestRates]) -> dict[str, Any]:
    """The same of the second width."""
    seeds = min(len(found.seeds) for found in founds)
    return {"d_model": WIDE.d_model, "num_seeds": seeds, "factor": factor(wide.book, wide.scale)}


def _width(record: Record) -> int:
    return record.experiment.arms[0].trial.d_model


def _excess(founds: Sequence[BestRates]) -> dict[str, Any]:
    """A small rate that every grid has, and by how much its loss is above the best one's, where that is least."""
    return {"slow": f"2^{math.log2(HIGH[0]):g}", "excess": min((one.excess(HIGH[0]) for one in founds), default=0.0)}


def _transfers(record: Record, founds: Sequence[BestRates]) -> Iterator[tuple[BestRates, int, Transfer]]:
    """Of each scheme and number of layers. Nothing where a scheme has fewer than two seeds."""
    if len(founds) < len(SCHEMES) or min(len(found.seeds) for found in founds) < 2:
        return
    by_scheme = {found.scheme: found for found in founds}
    guess = next(iter(record.book.values())).guess
    for found in founds:
        for layers in LAYERS[2:]:
            yield found, layers, transfer(found.scheme, by_scheme, layers, guess)
