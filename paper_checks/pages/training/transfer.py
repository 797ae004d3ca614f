"""The section of TRAINING.md on what the remedies of ``advise`` gain, and what transfer costs with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from depthlaw.advice.records import kind_of
from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS
from depthlaw.paper_checks.experiments.transfer import (
    LONG,
    LONGER,
    NONE,
    OF_TEXT,
    RATES,
    SHAPES,
    TUNED,
    arm_name,
    of_depth,
)
from depthlaw.paper_checks.experiments.transfer_laws import laws_of
from depthlaw.paper_checks.pages.markdown import interval, section, span
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import transfer as route
from depthlaw.paper_checks.routes.training.after_start import nearest
from depthlaw.sims.stats import Estimate, estimate

_ADVISED = ("learning-rate", "learning-rates", "depth-mup")
"""The remedies that every model of the README's table has; another is its own."""
_WHERE = ("below", "above")
_WORDS = {ADAMW: "AdamW", MUON: "Muon beside AdamW"}
_LASTS = {True: "lasts", False: "is gone", None: "was not shown"}
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
        least_nats=NONE,
        models=[_model(case, layers) for case in several for layers in case.losses if layers > TUNED],
        layers=[*several[0].losses] if several else [],
        longer=LONGER,
        lasting=[*_lasting(several)],
        which=[_moves(of_one) for of_one in _by_optimizer(several)],
    )


def _lasting(several: Sequence[route.Transfer]) -> Iterator[list[str]]:
    """Of each way that was trained for longer, what it gained in either, and whether that lasts."""
    for short, long in route.longer(several):
        layers = max(long.losses)
        for remedy in of_depth(long.model, layers, LONG)[1:]:
            gains = [case.gain(remedy, layers) for case in (short, long)]
            verdict = _LASTS[route.lasts(*gains)]
            yield [_name(long), remedy, *(interval(gain, 3) for gain in gains), str(len(long.seeds)), verdict]


def _model(case: route.Transfer, num_layers: int) -> dict[str, Any]:
    return {
        "name": _name(case),
        "layers": num_layers,
        "optimizer": case.optimizer,
        "seeds": f"{len(case.seeds)} of {max(LEAST_SEEDS, len(case.seeds))}",
        "rows": [*_rows(case, num_layers)],
        "guess": f"{case.guess:.3f}",
        "verdict": _VERDICTS[route.pays(case, num_layers)],
    }


def _rows(case: route.Transfer, num_layers: int) -> Iterator[list[str]]:
    for remedy in of_depth(case.model, num_layers, case.optimizer):
        costs = case.transfer_cost(remedy, num_layers), case.remedy_cost(remedy, num_layers)
        gains = case.gain(remedy, num_layers), case.gain_over_tuning(remedy, num_layers)
        cells = [interval(gain, 3) for gain in gains] if remedy != route.NOTHING else ["-", "-"]
        cells += [interval(x, 3) for x in (case.gain_over_few_layers(remedy, num_layers), *costs)]
        yield [remedy, f"{fmean(case.at_tuned(remedy, num_layers)):.3f}", *cells]


def _by_optimizer(several: Sequence[route.Transfer]) -> list[list[route.Transfer]]:
    """Those that laws are held against."""
    several = [case for case in several if (case.optimizer, case.model) in OF_TEXT]
    by_optimizer: dict[str, list[route.Transfer]] = {}
    for case in several:
        by_optimizer.setdefault(case.optimizer, []).append(case)
    return [*by_optimizer.values()]


def _moves(several: Sequence[route.Transfer]) -> dict[str, Any]:
    """Of the models of one optimizer, how their best rates move, beside what the laws say."""
    optimizer = several[0].optimizer
    laws, known = laws_of(optimizer), [case for case in several if case.is_known]
    some = [case for case in several if any(slope is not None for slope in case.slopes)]
    looks = [("By the plan, of the models of which every seed has a slope", known)]
    looks += [("A look that was not planned, of each seed in the models in which it has one", some)] * (some != known)
    return {
        "heads": [f"model, {optimizer}", *laws, "found", "beyond the rates tried"],
        "rows": [
            [_name(case), *(f"{fmean(case.predicted(law)):z.2f}" for law in laws), _slope(case), _beyond(case)]
            for case in several
        ],
        "verdicts": [f"{words} ({', '.join(map(_name, those)) or 'none'}){_nearest(those)}." for words, those in looks],
    }


def _slope(case: route.Transfer) -> str:
    slopes = [slope for slope in case.slopes if slope is not None]
    return interval(estimate(slopes), 2) if case.is_known else f"not known ({len(slopes)} of {len(case.seeds)} seeds)"


def _beyond(case: route.Transfer) -> str:
    """Of how many seeds the best rate is beyond the grid, and where."""
    ends = ((n, where, num) for n in case.losses for where, num in zip(_WHERE, case.beyond(n), strict=True))
    return "; ".join(f"{num} of {len(case.seeds)} {where} at {n} layers" for n, where, num in ends if num) or "-"


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
    paragraphs = []
    for several in _by_optimizer(route.transfers(record.book, record.scale)):
        known = [case for case in several if case.is_known]
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
                others=[_name(case) for case in several if not case.is_known],
            )
            paragraphs.append(text.strip())
    return "\n\n".join(paragraphs)


def gains(record: Record) -> list[dict[str, Any]]:
    """What each remedy gained at the largest depth, in nats to four digits, as ``advise`` reads it: a row for each
    model, optimizer and remedy."""
    rows, several = [], route.transfers(record.book, record.scale)
    longer = {(short.optimizer, short.model): long for short, long in route.longer(several)}
    for case in several:
        if case.optimizer == LONG:
            continue
        layers = max(case.losses)
        tuned, trial = (
            record.experiment.arm(
                arm_name(case.model, depth, route.NOTHING, RATES[case.optimizer][case.model][0], case.optimizer)
            ).trial
            for depth in (TUNED, layers)
        )
        kind = kind_of(tuned.lower().model, trial.lower().model)
        shape = {"from_layers": TUNED, "layers": layers, "d_model": trial.d_model, "num_steps": trial.num_steps}
        for remedy in of_depth(case.model, layers, case.optimizer)[1:]:
            gain = case.gain(remedy, layers)
            numbers = _numbers(gain)
            if (long := longer.get((case.optimizer, case.model))) and remedy in of_depth(long.model, layers, LONG):
                numbers["longer"] = {"times": LONGER, **_numbers(long.gain(remedy, layers))}
            numbers["is_none"] = gain.low is not None and gain.high is not None and -NONE < gain.low < gain.high < NONE
            numbers |= {"verdict": case.verdict(remedy, layers), "beaten_by": case.beaten_by(remedy, layers)}
            rows.append(
                {"model": _name(case), "optimizer": case.optimizer, "remedy": remedy, **shape, **kind, **numbers}
            )
    return rows


def _numbers(gain: Estimate) -> dict[str, Any]:
    ends = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    return {name: None if end is None else round(end, 4) for name, end in ends.items()} | {"num_seeds": gain.num}


def in_short(record: Record, optimizer: str = ADAMW) -> str:
    """The result as a table, and what it is of, for the README too. Empty where no model has enough seeds."""
    every = route.transfers(record.book, record.scale)
    several = [case for case in every if case.optimizer == optimizer]
    if not several:
        return ""
    trial = record.experiment.arms[0].trial
    rows = [_readme_row(case, max(case.losses)) for case in several]
    more = ["another way"] * any(row[-1] for row in rows)
    return section(
        "training",
        "transfer_in_short",
        tuned=TUNED,
        layers=max(several[0].losses),
        trial=trial,
        optimizer=_WORDS[optimizer],
        num_seeds=span([len(case.seeds) for case in several]),
        others=[_name(case) for case in several if case.model in SHAPES],
        ways=[*_ADVISED, *more],
        rows=rows if more else [row[:-1] for row in rows],
        least=NONE,
        costing=_shown_to_cost(several),
        over_tuning=_shown(several, route.Transfer.gain_over_tuning, 1),
        better=_shown(several, route.Transfer.gain_over_few_layers, 1),
        not_learning=_not_learning(several),
        has_more=optimizer == ADAMW,
        longer=LONGER,
        lasting=[*_lasting(every)] if optimizer == ADAMW else [],
        better_then=_shown([long for _, long in route.longer(every)], route.Transfer.gain_over_few_layers, 1),
    ).strip()


def _not_learning(several: Sequence[route.Transfer]) -> list[tuple[str, str]]:
    """The models that, as they are at the largest depth, are no better than guessing, and the loss of that."""
    return [
        (_name(case), f"{case.guess:.2f}")
        for case in several
        if fmean(case.at_tuned(route.NOTHING, max(case.losses))) >= case.guess
    ]


def _shown(
    several: Sequence[route.Transfer], gain: Callable[[route.Transfer, str, int], Estimate], sign: int
) -> list[tuple[str, list[str]]]:
    """By model, the ways of which such a gain was shown."""
    by_model = {
        _name(case): [
            remedy
            for remedy in of_depth(case.model, max(case.losses), case.optimizer)[1:]
            if route.shown(gain(case, remedy, max(case.losses))) == sign
        ]
        for case in several
    }
    return [(name, ways) for name, ways in by_model.items() if ways]


def _shown_to_cost(several: Sequence[route.Transfer]) -> list[tuple[str, list[str]]]:
    """Of each remedy that has some, the models in which it was shown to cost."""
    by_remedy: dict[str, list[str]] = {}
    for case in several:
        for remedy in of_depth(case.model, max(case.losses), case.optimizer)[1:]:
            if case.verdict(remedy, max(case.losses)) == -1:
                by_remedy.setdefault(remedy, []).append(_name(case))
    return [*by_remedy.items()]


def _readme_row(case: route.Transfer, layers: int) -> list[str]:
    few, many = (f"{fmean(case.at_tuned(route.NOTHING, n)):.2f}" for n in (TUNED, layers))
    further = [remedy for remedy in of_depth(case.model, layers, case.optimizer)[1:] if remedy not in _ADVISED]
    cells = [interval(case.gain(remedy, layers), 2) for remedy in _ADVISED]
    fewer = f" ({len(case.seeds)} of {LEAST_SEEDS} seeds)" if len(case.seeds) < LEAST_SEEDS else ""
    others = [f"{remedy}: {interval(case.gain(remedy, layers), 2)}" for remedy in further]
    gained = [remedy for remedy in (*_ADVISED, *further) if case.verdict(remedy, layers) == 1]
    return [_name(case) + fewer, ", ".join(gained) or "none", few, many, *cells, "; ".join(others)]


def _name(case: route.Transfer) -> str:
    return case.model.removeprefix(OF_RECIPE)
