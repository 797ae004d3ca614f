"""The section of TRAINING.md on how the best learning rate moves with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from depthlaw.paper_checks.experiments.best_rates import HIGH, LAYERS, MARGIN, SCHEMES
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
    founds, of_wide = (founds_of(book) for book in (record, wide))
    both = ((record, founds), (wide, of_wide))
    return section(
        "training",
        "best_rates",
        opening=opening,
        images=images,
        layers=LAYERS,
        rows=[(rates, _width(book), rates.loss_change) for book, several in both for rates in several],
        predicted=predicted,
        in_words=in_words,
        num_schemes=len(SCHEMES),
        transfers=[(rates, _width(book), *of) for book, several in both for rates, *of in _transfers(book, several)],
        **_excess(founds),
        num_double=sum(rates.num_double for rates in founds),
        num_curves=sum(len(LAYERS) * len(rates.seeds) for rates in founds),
        factor=factor(record.book),
        factor_wide=factor(wide.book, wide.scale) if of_wide else None,
        growing=growing(),
        steps=record.experiment.arms[0].trial.num_steps,
        width=_width(record),
        wide=WIDE.d_model,
        num_wide=min((len(rates.seeds) for rates in of_wide), default=0),
    )


def best_in_short(record: Record, wide: Record) -> str:
    """The result in a table and a few sentences. Empty where the record has no seed of every scheme."""
    founds, of_wide = (founds_of(book) for book in (record, wide))
    if len(founds) < len(SCHEMES):
        return ""
    has_wide = len(of_wide) == len(SCHEMES)
    ordered = sorted(founds, key=lambda rates: is_flat(rates.scheme))
    heads = ["network", "predicted", "found", "as predicted", "loss"]
    wider = [f"found, {WIDE.d_model} wide", f"loss, {WIDE.d_model} wide"] * has_wide
    by_scheme = {rates.scheme: [in_words(rates.measured), in_words(rates.loss_change)] for rates in of_wide if has_wide}
    return section(
        "training",
        "best_in_short",
        in_words=in_words,
        heads=[*heads, *wider],
        rows=[[*_in_short(rates, record), *by_scheme.get(rates.scheme, [])] for rates in ordered],
        num_beyond=sum(rates.measured is None for rates in (*founds, *(of_wide if has_wide else ()))),
        num_seeds=min(len(rates.seeds) for rates in founds),
        layers=LAYERS,
        trial=record.experiment.arms[0].trial,
        factor=factor(record.book),
        nearer=answer(NEARER, record),
        wide=_wide_in_short(wide, of_wide) if has_wide else None,
        planned=record.experiment.plan(record.book).num_seeds,
        margin=MARGIN,
        **_excess(founds),
    ).strip()


def _in_short(rates: BestRates, record: Record) -> list[str]:
    """A row: the slope predicted and found, whether they agree or how many seeds would say so, and the loss."""
    verdict = answer(FOLLOWS[rates.scheme], record) or ""
    more = f" ({rates.seeds_to_decide} seeds would decide)" if verdict == "open" and rates.seeds_to_decide else ""
    slopes = [f"{predicted(rates.scheme):.2f}", in_words(rates.measured)]
    return [rates.name, *slopes, verdict + more, in_words(rates.loss_change)]


def _wide_in_short(wide: Record, founds: Sequence[BestRates]) -> dict[str, Any]:
    """The same of the second width."""
    seeds = min(len(rates.seeds) for rates in founds)
    return {"d_model": WIDE.d_model, "num_seeds": seeds, "factor": factor(wide.book, wide.scale)}


def _width(record: Record) -> int:
    return record.experiment.arms[0].trial.d_model


def _excess(founds: Sequence[BestRates]) -> dict[str, Any]:
    """A small rate that every grid has, and by how much its loss is above the best one's, where that is least."""
    return {"slow": f"2^{math.log2(HIGH[0]):g}", "excess": min((of.excess(HIGH[0]) for of in founds), default=0.0)}


def _transfers(record: Record, founds: Sequence[BestRates]) -> Iterator[tuple[BestRates, int, Transfer]]:
    """Of each scheme and number of layers. Nothing where a scheme has fewer than two seeds."""
    if len(founds) < len(SCHEMES) or min(len(rates.seeds) for rates in founds) < 2:
        return
    by_scheme = {rates.scheme: rates for rates in founds}
    guess = next(iter(record.book.values())).guess
    for rates in founds:
        for layers in LAYERS[2:]:
            yield rates, layers, transfer(rates.scheme, by_scheme, layers, guess)
