"""The section of TRAINING.md on what the remedies of ``advise`` gain, and what transfer costs with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from depthlaw.advice.records import kind_of
from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS
from depthlaw.paper_checks.experiments.transfer import NONE, RATES, TUNED, arm_name, of_depth
from depthlaw.paper_checks.experiments.transfer_laws import laws_of
from depthlaw.paper_checks.pages.markdown import interval, section, span
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import transfer as route
from depthlaw.paper_checks.routes.training.after_start import nearest
from depthlaw.sims.stats import estimate

_ADVISED = ("learning-rate", "learning-rates", "depth-mup")
"""The remedies that every model of the README's table has; another is its own."""
_WHERE = ("below", "above")
_WORDS = {ADAMW: "AdamW", MUON: "Muon beside AdamW"}
_VERDICTS = {True: "pays", False: "costs", None: "neither pays nor costs, as far as these seeds tell"}


def transfer(record: Record, opening: str, images: str) -> str:
    several = route.transfers(record.book, record.scale)
    return section(
        "training",
        "transfer",
        opening=opening,
        images=images,
        tuned=TUNED,
        advised=route.ADVISED,
        least=route.LEAST_SEEDS,
        models=[_model(one, layers) for one in several for layers in one.losses if layers > TUNED],
        layers=[*several[0].losses] if several else [],
        which=[_moves(of_one) for of_one in _by_optimizer(several)],
    )


def _model(one: route.Transfer, num_layers: int) -> dict[str, Any]:
    return {
        "name": _name(one),
        "layers": num_layers,
        "optimizer": one.optimizer,
        "seeds": f"{len(one.seeds)} of {max(LEAST_SEEDS, len(one.seeds))}",
        "rows": [*_rows(one, num_layers)],
        "verdict": _VERDICTS[route.pays(one, num_layers)],
    }


def _rows(one: route.Transfer, num_layers: int) -> Iterator[list[str]]:
    for remedy in of_depth(one.model, num_layers, one.optimizer):
        costs = one.transfer_cost(remedy, num_layers), one.remedy_cost(remedy, num_layers)
        gain = interval(one.gain(remedy, num_layers), 3) if remedy != route.NOTHING else "-"
        yield [remedy, f"{fmean(one.at_tuned(remedy, num_layers)):.3f}", gain, *(interval(cost, 3) for cost in costs)]


def _by_optimizer(several: Sequence[route.Transfer]) -> list[list[route.Transfer]]:
    by_optimizer: dict[str, list[route.Transfer]] = {}
    for one in several:
        by_optimizer.setdefault(one.optimizer, []).append(one)
    return [*by_optimizer.values()]


def _moves(several: Sequence[route.Transfer]) -> dict[str, Any]:
    """Of the models of one optimizer, how their best rates move, beside what the laws say."""
    optimizer = several[0].optimizer
    laws, known = laws_of(optimizer), [one for one in several if one.is_known]
    some = [one for one in several if any(slope is not None for slope in one.slopes)]
    looks = [("By the plan, of the models of which every seed has a slope", known)]
    looks += [("A look that was not planned, of each seed in the models in which it has one", some)] * (some != known)
    return {
        "heads": [f"model, {optimizer}", *laws, "found", "beyond the rates tried"],
        "rows": [
            [_name(one), *(f"{fmean(one.predicted(law)):z.2f}" for law in laws), _slope(one), _beyond(one)]
            for one in several
        ],
        "verdicts": [f"{words} ({', '.join(map(_name, those)) or 'none'}){_nearest(those)}." for words, those in looks],
    }


def _slope(one: route.Transfer) -> str:
    slopes = [slope for slope in one.slopes if slope is not None]
    return interval(estimate(slopes), 2) if one.is_known else f"not known ({len(slopes)} of {len(one.seeds)} seeds)"


def _beyond(one: route.Transfer) -> str:
    """Of how many seeds the best rate is beyond the grid, and where."""
    ends = ((n, where, num) for n in one.losses for where, num in zip(_WHERE, one.beyond(n), strict=True))
    return "; ".join(f"{num} of {len(one.seeds)} {where} at {n} layers" for n, where, num in ends if num) or "-"


def _nearest(several: Sequence[route.Transfer]) -> str:
    """Which law is nearest, in words. Nothing where no seed has a slope."""
    if not (by_law := _known_distances(several)):
        return ""
    best, worse = nearest(by_law)
    away = ", ".join(f"{law} {interval(estimate(values), 2)}" for law, values in by_law.items())
    lead = f"better than {' and '.join(worse) or 'none'} by intervals paired by seed, {len(by_law[best])} seeds"
    return f": root mean square distances of the slopes are {away}. The nearest is {best}, {lead}"


def _known_distances(several: Sequence[route.Transfer]) -> dict[str, list[float]]:
    """Empty where no seed has a slope."""
    return {law: values for law, values in route.distances(several).items() if values}


def which_in_short(record: Record) -> str:
    """Which law moves the best rate, a sentence for each optimizer. Empty where no model has a slope of every seed."""
    said = []
    for several in _by_optimizer(route.transfers(record.book, record.scale)):
        known = [one for one in several if one.is_known]
        if by_law := _known_distances(known):
            best, worse = nearest(by_law)
            text = section(
                "training",
                "which_in_short",
                optimizer=several[0].optimizer,
                layers=[*known[0].losses],
                nearest=best,
                worse=worse,
                open=[law for law in by_law if law not in (best, *worse)],
                models=[*map(_name, known)],
                others=[_name(one) for one in several if not one.is_known],
            )
            said.append(text.strip())
    return "\n\n".join(said)


def gains(record: Record) -> list[dict[str, Any]]:
    """What each remedy gained at the largest depth, in nats to four digits, as ``advise`` reads it: a row for each
    model, optimizer and remedy."""
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
            rows.append({"model": _name(one), "optimizer": one.optimizer, "remedy": remedy, **shape, **kind, **found})
    return rows


def in_short(record: Record, optimizer: str = ADAMW) -> str:
    """The result as a table, and what it is of, for the README too. Empty where no model has enough seeds."""
    several = [one for one in route.transfers(record.book, record.scale) if one.optimizer == optimizer]
    if not several:
        return ""
    trial = record.experiment.arms[0].trial
    rows = [_readme_row(one, max(one.losses)) for one in several]
    more = ["another way"] * any(row[-1] for row in rows)
    return section(
        "training",
        "transfer_in_short",
        tuned=TUNED,
        layers=max(several[0].losses),
        trial=trial,
        optimizer=_WORDS[optimizer],
        num_seeds=span([len(one.seeds) for one in several]),
        ways=[*_ADVISED, *more],
        rows=rows if more else [row[:-1] for row in rows],
        least=NONE,
        costing=_shown_to_cost(several),
        has_more=optimizer == ADAMW,
    ).strip()


def _shown_to_cost(several: Sequence[route.Transfer]) -> list[tuple[str, list[str]]]:
    """Of each remedy that has some, the models in which it was shown to cost."""
    by_remedy: dict[str, list[str]] = {}
    for one in several:
        for remedy in of_depth(one.model, max(one.losses), one.optimizer)[1:]:
            if one.verdict(remedy, max(one.losses)) == -1:
                by_remedy.setdefault(remedy, []).append(_name(one))
    return [*by_remedy.items()]


def _readme_row(one: route.Transfer, layers: int) -> list[str]:
    few, many = (f"{fmean(one.at_tuned(route.NOTHING, n)):.2f}" for n in (TUNED, layers))
    own = [remedy for remedy in of_depth(one.model, layers, one.optimizer)[1:] if remedy not in _ADVISED]
    cells = [interval(one.gain(remedy, layers), 2) for remedy in _ADVISED]
    fewer = f" ({len(one.seeds)} of {LEAST_SEEDS} seeds)" if len(one.seeds) < LEAST_SEEDS else ""
    others = [f"{remedy}: {interval(one.gain(remedy, layers), 2)}" for remedy in own]
    gained = [remedy for remedy in (*_ADVISED, *own) if one.verdict(remedy, layers) == 1]
    return [_name(one) + fewer, ", ".join(gained) or "none", few, many, *cells, "; ".join(others)]


def _name(one: route.Transfer) -> str:
    return one.model.removeprefix(OF_RECIPE)
