"""The section of TRAINING.md on what the remedies of ``advise`` gain, and what transfer costs with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from depthlaw.advice.records import kind_of
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.after_start import ADAMW, MUON
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS
from depthlaw.paper_checks.experiments.elsewhere import CONTROL, LONGEST, PLANS
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.experiments.transfer import DEEPER, LONGER, NONE, TUNED, Case
from depthlaw.paper_checks.experiments.transfer_laws import CORRELATIONS, FIRST, LATER, NO_MOVE, laws_of
from depthlaw.paper_checks.pages.markdown import interval, section, span
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import transfer as route
from depthlaw.paper_checks.routes.training.after_start import nearest
from depthlaw.sims.stats import Estimate, estimate

_ADVISED = ("learning-rate", "learning-rates", "depth-mup")
"""The remedies that every model of the README's table has; another is its own."""
_WHERE = ("below", "above")
_WORDS = {ADAMW: "AdamW", MUON: "Muon beside AdamW"}
_LASTS = {True: "lasts", False: "is not told from none", None: "was not shown before"}
_GROWS = {True: "grows", False: "shrinks", None: "is not told"}
_VERDICTS = {True: "pays", False: "costs", None: "neither pays nor costs, as far as these seeds tell"}


def transfer(record: Record, opening: str, images: str) -> str:
    several, deeper = route.transfers(record.book, record.scale), _at_every_depth(record)
    return section(
        "training",
        "transfer",
        opening=opening,
        images=images,
        tuned=TUNED,
        advised=route.ADVISED,
        least=route.LEAST_SEEDS,
        least_nats=NONE,
        models=[_model(one, layers) for one in several for layers in one.case.layers[1:]],
        layers=several[0].case.layers if several else [],
        longer=LONGER,
        lasting=[*_lasting(several)],
        depths=DEEPER,
        growing=[*_growing(deeper)],
        guess=f"{several[0].guess:.2f}" if several else "",
        which=[_moves(of_one) for of_one in _by_optimizer(several)],
    )


def _lasting(several: Sequence[route.Transfer]) -> Iterator[list[str]]:
    """Of each way that was trained for longer, what it gained in either, and whether that lasts."""
    for short, long in route.longer(several):
        for remedy in long.case.remedies:
            gains = [one.gain(remedy, long.deepest) for one in (short, long)]
            verdict = _LASTS[route.lasts(*gains)]
            yield [long.case.name, remedy, *(interval(gain, 3) for gain in gains), str(len(long.seeds)), verdict]


def _at_every_depth(record: Record) -> list[route.Transfer]:
    return route.at_every_depth(record.book) if record.scale == SMALL.name else []


def _growing(several: Sequence[route.Transfer]) -> Iterator[list[str]]:
    """What each way gains at the larger depths, and whether that grows between them."""
    for one in several:
        for remedy in one.case.remedies:
            growth = one.growth(remedy)
            numbers = [*(one.gain(remedy, n) for n in DEEPER), growth]
            cells = [*(interval(x, 3) for x in numbers), str(len(one.seeds)), _GROWS[route.is_above_0(growth)]]
            yield [one.case.name, one.case.optimizer, remedy, *cells]


def _model(one: route.Transfer, num_layers: int) -> dict[str, Any]:
    return {
        "name": one.case.name,
        "layers": num_layers,
        "optimizer": one.case.optimizer + one.case.longer,
        "seeds": f"{len(one.seeds)} of {max(LEAST_SEEDS, len(one.seeds))}",
        "rows": [*_rows(one, num_layers)],
        "guess": f"{one.guess:.3f}",
        "verdict": _VERDICTS[route.pays(one, num_layers)],
    }


def _rows(one: route.Transfer, num_layers: int) -> Iterator[list[str]]:
    for way in one.case.ways(num_layers):
        costs = one.transfer_cost(way, num_layers), one.remedy_cost(way, num_layers)
        gains = one.gain(way, num_layers), one.gain_over_tuning(way, num_layers)
        cells = [interval(gain, 3) for gain in gains] if way != route.NOTHING else ["-", "-"]
        cells += [interval(x, 3) for x in (one.gain_over_few_layers(way, num_layers), *costs)]
        yield [way, f"{fmean(one.at_tuned(way, num_layers)):.3f}", *cells]


def _by_optimizer(several: Sequence[route.Transfer]) -> list[list[route.Transfer]]:
    """Those that laws are held against."""
    by_optimizer: dict[str, list[route.Transfer]] = {}
    for one in several:
        if one.case.is_judged:
            by_optimizer.setdefault(one.case.optimizer, []).append(one)
    return [*by_optimizer.values()]


def _moves(several: Sequence[route.Transfer]) -> dict[str, Any]:
    """Of the models of one optimizer, how their best rates move, beside what the laws say."""
    optimizer = several[0].case.optimizer
    laws, known = laws_of(optimizer), [one for one in several if one.is_known]
    some = _with_slopes(several)
    looks = [("By the plan, of the models of which every seed has a slope", known)]
    looks += [("A look that was not planned, of each seed in the models in which it has one", some)] * (some != known)
    learning = [one for one in some if one.learns]
    looks += [("A look that was not planned, without models whose deepest learn nothing", learning)] * (
        learning != some
    )
    depths = several[0].case.layers
    return {
        "heads": [
            f"model, {optimizer}",
            *laws,
            "found",
            "beyond the rates tried",
            *(f"loss of {n} layers" for n in depths),
        ],
        "rows": [
            [
                one.case.name,
                *(f"{fmean(one.predicted(law)):z.2f}" for law in laws),
                _slope(one),
                _beyond(one),
                *_least_losses(one),
            ]
            for one in several
        ],
        "verdicts": [f"{words} ({', '.join(map(_name, those)) or 'none'}){_nearest(those)}." for words, those in looks],
    }


def _with_slopes(several: Sequence[route.Transfer]) -> list[route.Transfer]:
    """Those in which a seed has a slope."""
    return [one for one in several if any(slope is not None for slope in one.slopes)]


def elsewhere(record: Record, opening: str, images: str, beside: Record) -> str:
    """beside: the record of transfer, with whose answer this one is compared."""
    several = route.moved_elsewhere(record.book, record.scale)
    return section(
        "training",
        "elsewhere",
        opening=opening,
        images=images,
        least=route.LEAST_SEEDS,
        guess=f"{several[0].guess:.2f}" if several else "",
        correlation=CORRELATIONS[several[0].case.shape] if several else None,
        parts=[_elsewhere(part, several) for part in _by_plan(several)],
        there=_nearest_there(beside),
    )


def _by_plan(several: Sequence[route.Transfer]) -> list[list[route.Transfer]]:
    """Those that are judged together."""
    parts = ([one for one in several if one.case in plan] for plan in PLANS)
    return [part for part in parts if part]


def _elsewhere(several: Sequence[route.Transfer], every: Sequence[route.Transfer]) -> dict[str, Any]:
    """Of the runs of one plan, of all of ``every``. changes: by model, from its shorter runs. looks: of which models,
    and what is nearest there; the planned one first."""
    moves, some, known = _moves(several), _with_slopes(several), [one for one in several if one.is_known]
    refuted = [", ".join(one.refuted()) or "none" if one.is_known else "not asked" for one in several]
    return {
        "longer": several[0].case.longer,
        "steps": _steps(several[0].case),
        "control": _control(several, every),
        "changes": [*_changes(several, every)],
        "seeds": span([len(one.seeds) for one in several]),
        "heads": [*moves["heads"], "laws refuted"],
        "rows": [[*row, of_model] for row, of_model in zip(moves["rows"], refuted, strict=True)],
        "looks": [([*map(_name, those)], _nearest(those)) for those in ([some] if some == known else [some, known])],
        "nearest": _nearest_law(some),
        "finer": [*_finer(several)],
        "worse": nearest(by_law)[1] if (by_law := _known_distances(some)) else [],
    }


def _changes(several: Sequence[route.Transfer], every: Sequence[route.Transfer]) -> Iterator[dict[str, Any]]:
    """Of models that were trained for longer, what that makes of the slope, of the seeds that have both: beside the
    next shorter runs."""
    for long in several:
        shorter = [one for one in every if one.case.model == long.case.model and one.case.times < long.case.times]
        if shorter:
            short = max(shorter, key=lambda one: one.case.times)
            before, after = (dict(zip(one.seeds, one.slopes, strict=True)) for one in (short, long))
            both = [(a, b) for seed, a in after.items() if a is not None and (b := before.get(seed)) is not None]
            change = estimate([a - b for a, b in both])
            told = {"steps_before": _steps(short.case)}
            told |= {"later": f"{fmean(long.predicted(LATER[long.case.optimizer])):z.2f}"}
            told |= {"is_planned": long.case.times == LONGEST}
            yield {"name": long.case.name, "change": interval(change, 2), **told}


def _finer(several: Sequence[route.Transfer]) -> Iterator[tuple[str, str, list[str]]]:
    """Of longer runs, the slope by the other fit of best rates, and what it refutes."""
    for one in several:
        known = [slope for slope in one.slopes_through_five if slope is not None]
        if one.case.longer and one.is_known:
            yield one.case.name, interval(estimate(known), 2), one.refuted(known)


def _control(several: Sequence[route.Transfer], every: Sequence[route.Transfer]) -> dict[str, Any] | None:
    """What the best rate of the control does over depth, and whether the interval of its slope leaves out the mean of
    the other longer runs; None of other models."""
    one = several[0]
    if one.case.model != CONTROL:
        return None
    does = route.does(one) if one.is_known else "is not known to stay put"
    refuted = one.refuted() if one.is_known else []
    told = {
        "steps": _steps(one.case),
        "name": one.case.name,
        "slope": _slope(one),
        "does": does,
        "refuted": refuted,
        "seeds": len(one.seeds),
    }
    others = [of for of in every if of.case.times == one.case.times and of.is_known and of.case.model != CONTROL]
    known = [slope for slope in one.slopes if slope is not None]
    means = [fmean(slope for slope in of.slopes if slope is not None) for of in others]
    told["leaves_out"] = bool(means) and all(_leaves_out(estimate(known), mean) for mean in means)
    return told


def _steps(case: Case) -> int:
    """Of a run at the small scale."""
    return case.times * experiment(case.experiment).arms[0].trial.num_steps


def _leaves_out(interval: Estimate, value: float) -> bool:
    return interval.low is not None and interval.high is not None and not interval.low <= value <= interval.high


def _least_losses(one: route.Transfer) -> list[str]:
    """By depth, of the model as it is, at the rate that is best there, which the other seeds choose for each seed."""
    return [f"{fmean(one.at_best(route.NOTHING, n)):.2f}" for n in one.case.layers]


def _nearest_law(several: Sequence[route.Transfer]) -> str:
    """Empty where no seed has a slope."""
    by_law = _known_distances(several)
    return nearest(by_law)[0] if by_law else ""


def _nearest_there(record: Record) -> str:
    """What transfer found by its plan under AdamW."""
    several = route.transfers(record.book, record.scale)
    return _nearest_law([one for one in several if one.case.optimizer == ADAMW and one.case.is_judged and one.is_known])


def elsewhere_in_short(record: Record) -> str:
    """How the best rate of each model moves in ``elsewhere``, a row each. Empty where no seed has a slope."""
    there = route.moved_elsewhere(record.book, record.scale)
    if not _with_slopes(there):
        return ""
    layers, rows = there[0].case.layers, []
    for one in there:
        by_plan, losses = one.refuted() if one.is_known else ["not asked"], _least_losses(one)
        says = f"{fmean(one.predicted(FIRST)):z.2f}"
        looks = [("", _slope(one), by_plan)]
        looks += [
            (", by another fit (not planned)", slope, laws) for _, slope, laws in _finer([one]) if laws != by_plan
        ]
        for which, slope, laws in looks:
            steps, seeds = f"{_steps(one.case):,}", str(len(one.seeds))
            rows.append([one.case.name + which, steps, seeds, says, slope, ", ".join(laws) or "none", *losses])
    shared = {"trial": record.experiment.arms[0].trial, "guess": f"{there[0].guess:.2f}", "layers": layers}
    return section("training", "elsewhere_in_short", rows=rows, **shared).strip()


def elsewhere_in_readme(record: Record) -> str:
    """How the best rate moves in the longer runs, in a sentence. Empty where no model has a slope of every seed."""
    there = route.moved_elsewhere(record.book, record.scale)
    several = [one for one in there if one.case.times > 1 and one.is_known and one.case.model != CONTROL]
    controls = [control for one in there if one.is_known and (control := _control([one], there))]
    return section(
        "training",
        "elsewhere_in_readme",
        controls=controls,
        trial=record.experiment.arms[0].trial,
        models=[
            {
                "name": one.case.name,
                "steps": _steps(one.case),
                "layers": one.case.layers,
                "seeds": len(one.seeds),
                "slope": _slope(one),
                "first": f"{fmean(one.predicted(FIRST)):z.2f}",
                "falls_by_less": FIRST in one.refuted() and route.is_between(one, FIRST, NO_MOVE),
                "is_by_every_look": FIRST in one.refuted(one.slopes_through_five),
                "finer": interval(estimate([slope for slope in one.slopes_through_five if slope is not None]), 2),
                "is_first_refuted": FIRST in one.refuted(),
                "is_no_move_refuted": NO_MOVE in one.refuted(),
                "are_all_refuted": len(one.refuted()) == len(laws_of(one.case.optimizer)),
            }
            for one in several
        ],
    ).strip()


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
    lead = f"better than {' and '.join(worse)}" if worse else "not told from the others"
    lead += f" by intervals paired by seed, {len(by_law[best])} seeds"
    return f": root mean square distances of the slopes are {away}. The nearest is {best}, {lead}"


def _known_distances(several: Sequence[route.Transfer]) -> dict[str, list[float]]:
    """Empty where no seed has a slope."""
    return {law: values for law, values in route.distances(several).items() if values}


def which_in_short(record: Record, there: Record) -> str:
    """Which law moves the best rate, a row for each plan of ``transfer`` and of ``elsewhere``, and for looks beside it.
    Empty where no model has a slope of every seed."""
    rows: list[list[str]] = []
    for several in _by_optimizer(route.transfers(record.book, record.scale)):
        known = [one for one in several if one.is_known]
        num = min((len(values) for values in _known_distances(known).values()), default=0)
        more = [one for one in known if len(one.seeds) > num]
        learning = [one for one in known if one.learns]
        rows += _nearest_row(known)
        rows += _nearest_row(more, " alone, of more seeds") if more != known else []
        rows += _nearest_row(learning, " (not planned: without what learns nothing)") if learning != known else []
    elsewhere = route.moved_elsewhere(there.book, there.scale)
    for several in _by_plan(elsewhere):
        rows += _nearest_row(_with_slopes(several)) if several[0].case.model != CONTROL else []
    return section("training", "which_in_short", rows=rows).strip() if rows else ""


def _nearest_row(several: Sequence[route.Transfer], which: str = "") -> Iterator[list[str]]:
    """Of which runs, which law is nearest and which it is better than. None where no seed has a slope."""
    if not several or not (by_law := _known_distances(several)):
        return
    case, (best, worse) = several[0].case, nearest(by_law)
    width = experiment(case.experiment).arms[0].trial.d_model
    layers = f"{' and '.join(map(str, case.layers))} layers, {width} wide"
    counts = {one.case.name: sum(slope is not None for slope in one.slopes) for one in several}
    names = [
        one.case.name + f" ({counts[one.case.name]} of {len(one.seeds)} seeds)" * (not one.is_known) for one in several
    ]
    found = [best, ", ".join(worse) or "none"]
    yield [", ".join(names) + which, case.optimizer, layers, f"{_steps(case):,}", str(len(by_law[best])), *found]


def gains(record: Record) -> list[dict[str, Any]]:
    """What each remedy gained at the largest depth, in nats to four digits, as ``advise`` reads it: a row for each
    model, optimizer and remedy. transfer, as_it_is: what the tuned rate costs there beside the best, with the remedy
    and without. learns: whether it is better than guessing there, with the remedy or without. longer, halfway: the gain
    in longer runs, and at the depth before, where it has them."""
    rows, several = [], route.transfers(record.book, record.scale)
    longer = {short.case: long for short, long in route.longer(several)}
    halves = {(half.case.model, half.case.optimizer): half for half in several if half.case.is_halfway}
    for one in several:
        case, layers = one.case, one.deepest
        if not case.is_main:
            continue
        names = (case.arm_name(n, route.NOTHING, case.rates[0]) for n in (TUNED, layers))
        tuned, trial = (record.experiment.arm(name).trial for name in names)
        kind = kind_of(tuned.lower().model, trial.lower().model)
        shape = {"from_layers": TUNED, "layers": layers, "d_model": trial.d_model, "num_steps": trial.num_steps}
        for remedy in case.remedies:
            gain = one.gain(remedy, layers)
            numbers = _numbers(gain)
            if (long := longer.get(case)) and remedy in long.case.remedies:
                numbers["longer"] = {"times": LONGER, **_numbers(long.gain(remedy, layers))}
            if half := halves.get((case.model, case.optimizer)):
                numbers["halfway"] = {"layers": half.deepest, **_numbers(half.gain(remedy, half.deepest))}
            numbers["transfer"] = _numbers(one.transfer_cost(remedy, layers))
            numbers["as_it_is"] = _numbers(one.transfer_cost(route.NOTHING, layers))
            numbers["is_none"] = gain.low is not None and gain.high is not None and -NONE < gain.low < gain.high < NONE
            least = min(fmean(one.at_tuned(way, layers)) for way in (remedy, route.NOTHING))
            numbers["learns"] = least < one.guess
            numbers |= {"verdict": one.verdict(remedy, layers), "beaten_by": one.beaten_by(remedy, layers)}
            whose = {"model": case.name, "optimizer": case.optimizer, "remedy": remedy}
            rows.append(whose | shape | kind | numbers)
    return rows


def _numbers(gain: Estimate) -> dict[str, Any]:
    ends = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    return {name: None if end is None else round(end, 4) for name, end in ends.items()} | {"num_seeds": gain.num}


def in_short(record: Record, optimizer: str = ADAMW) -> str:
    """The result as a table, and what it is of, for the README too. Empty where no model has enough seeds."""
    every = route.transfers(record.book, record.scale)
    several = [one for one in every if one.case.optimizer == optimizer and one.case.is_main]
    if not several:
        return ""
    trial = record.experiment.arms[0].trial
    deeper = [one for one in _at_every_depth(record) if one.case.optimizer == optimizer]
    of_text = [one for one in several if one.case.is_judged]
    rows = [*map(_readme_row, several)]
    more = ["another way"] * any(row[-1] for row in rows)
    return section(
        "training",
        "transfer_in_short",
        tuned=TUNED,
        layers=several[0].deepest,
        trial=trial,
        optimizer=_WORDS[optimizer],
        num_seeds=span([len(one.seeds) for one in several]),
        others=[one.case.name for one in several if not one.case.is_judged],
        ways=[*_ADVISED, *more],
        rows=rows if more else [row[:-1] for row in rows],
        least=NONE,
        costing=_shown_to_cost(several),
        costly=_costly(several),
        below_tuning=_shown(several, route.Transfer.gain_over_tuning, -1),
        better=_shown(several, route.Transfer.gain_over_few_layers, 1),
        num_gaining=sum(row[1] != "none" for row in rows),
        not_learning=_not_learning(several),
        beyond=[one.case.name for one in several if any(one.beyond(one.deepest))],
        has_more=optimizer == ADAMW,
        has_su_adam=any("su-adam" in one.case.remedies for one in several),
        longer=LONGER,
        lasting=[*_lasting(every)] if optimizer == ADAMW else [],
        depths=DEEPER,
        growing=[*_growing(deeper)],
        growing_seeds=span([len(one.seeds) for one in deeper]),
        growing_in=[one.case.name for one in deeper] if len(deeper) < len(of_text) else [],
        better_then=_shown([long for _, long in route.longer(every)], route.Transfer.gain_over_few_layers, 1),
    ).strip()


def in_readme(record: Record) -> str:
    """What one gains, in a few lines: of each model and optimizer the most that is shown. Empty where nothing is."""
    every = route.transfers(record.book, record.scale)
    main = [one for one in every if one.case.is_main]
    if not main:
        return ""
    parts, anew = [], list[float]()
    for optimizer, words in _WORDS.items():
        several = [one for one in main if one.case.optimizer == optimizer]
        shown = [(one, way) for one in several if (way := _most(one)) is not None]
        shown.sort(key=lambda pair: pair[0].gain(pair[1], pair[0].deepest).mean)
        anew += [one.gain_over_tuning(way, one.deepest).mean for one, way in shown]
        names = {one.case.name for one, _ in shown}
        if several:
            part = {"optimizer": words, "num": len(several), "shown": names}
            paying = [one.case.name for one in several if route.pays(one, one.deepest)]
            ends = [_gained(*pair) for pair in (*shown[:1], *shown[1:][-1:])]
            parts.append(part | {"num_paying": len(paying), "ends": ends})
    return section(
        "training",
        "gain_in_readme",
        tuned=TUNED,
        layers=main[0].deepest,
        trial=record.experiment.arms[0].trial,
        seeds=span([len(one.seeds) for one in main]),
        parts=parts,
        advised=route.ADVISED,
        anew=[*dict.fromkeys(f"{end:z.2f}" for end in (min(anew), max(anew)))] if anew else [],
        least=NONE,
        costing=_shown_to_cost(main),
        better=_shown(main, route.Transfer.gain_over_few_layers, 1),
        longer=LONGER,
        lasting=[row[:2] for row in _lasting(every) if row[-1] == _LASTS[True]],
        gone=[row[:2] for row in _lasting(every) if row[-1] == _LASTS[False]],
    ).strip()


def _most(one: route.Transfer) -> str | None:
    """The way that is shown to gain the most; None where none is shown to gain."""
    gaining = [remedy for remedy in one.case.remedies if one.verdict(remedy, one.deepest) == 1]
    return max(gaining, key=lambda remedy: one.gain(remedy, one.deepest).mean, default=None)


def _gained(one: route.Transfer, way: str) -> tuple[str, str, bool]:
    """The model, what the way gains, and whether the model is no better than guessing as it is, in the mean."""
    is_from_nothing = fmean(one.at_tuned(route.NOTHING, one.deepest)) >= one.guess
    return one.case.name, interval(one.gain(way, one.deepest), 2), is_from_nothing


def _not_learning(several: Sequence[route.Transfer]) -> list[tuple[str, str]]:
    """The models that, as they are at the largest depth, are no better than guessing, in some seeds at least, and the
    loss of that."""
    guesses = []
    for one in several:
        losses = one.at_tuned(route.NOTHING, one.deepest)
        num = sum(loss >= one.guess for loss in losses)
        in_some = "" if num == len(losses) else f" (in {num} of {len(losses)} seeds)"
        guesses += [(f"{one.case.name}{in_some}", f"{one.guess:.2f}")] if num else []
    return guesses


def _shown(
    several: Sequence[route.Transfer], gain: Callable[[route.Transfer, str, int], Estimate], sign: int
) -> list[tuple[str, list[str]]]:
    """By model, the ways of which such a gain was shown."""
    by_model = {
        one.case.name: [remedy for remedy in one.case.remedies if route.shown(gain(one, remedy, one.deepest)) == sign]
        for one in several
    }
    return [(name, ways) for name, ways in by_model.items() if ways]


def _shown_to_cost(several: Sequence[route.Transfer]) -> list[tuple[str, list[str]]]:
    """Of each remedy that has some, the models in which it was shown to cost."""
    by_remedy: dict[str, list[str]] = {}
    for one in several:
        for remedy in one.case.remedies:
            if one.verdict(remedy, one.deepest) == -1:
                by_remedy.setdefault(remedy, []).append(one.case.name)
    return [*by_remedy.items()]


def _costly(several: Sequence[route.Transfer]) -> list[tuple[str, list[str]]]:
    """By model, what the remedies cost by the plan at their own best rates: those of which it is shown."""
    by_model = {
        one.case.name: [
            f"{remedy} {interval(cost, 2)}"
            for remedy in one.case.remedies
            if route.is_cost(cost := one.remedy_cost(remedy, one.deepest))
        ]
        for one in several
    }
    return [(name, ways) for name, ways in by_model.items() if ways]


def _readme_row(one: route.Transfer) -> list[str]:
    layers = one.deepest
    few, many = (f"{fmean(one.at_tuned(route.NOTHING, n)):.2f}" for n in (TUNED, layers))
    further = [remedy for remedy in one.case.remedies if remedy not in _ADVISED]
    cells = [interval(one.gain(remedy, layers), 2) for remedy in _ADVISED]
    fewer = f" ({len(one.seeds)} of {LEAST_SEEDS} seeds)" if len(one.seeds) < LEAST_SEEDS else ""
    others = [f"{remedy}: {interval(one.gain(remedy, layers), 2)}" for remedy in further]
    ways = (*_ADVISED, *further)
    gained = [way for way in ways if one.verdict(way, layers) == 1]
    beside = [way for way in ways if route.shown(one.gain_over_tuning(way, layers)) == 1]
    shown = [", ".join(several) or "none" for several in (gained, beside)]
    return [one.case.name + fewer, *shown, few, many, *cells, "; ".join(others)]


def _name(one: route.Transfer) -> str:
    return one.case.name
