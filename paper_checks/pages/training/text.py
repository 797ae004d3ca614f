"""The words and tables of TRAINING.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paper_checks.claims.claim import Verdict
from paper_checks.experiments.base import PILOT_SEEDS
from paper_checks.experiments.kernel_laws import TRAINING_OPTIMIZER, training_update
from paper_checks.experiments.own_row import GRIDS as OWN_GRIDS
from paper_checks.experiments.own_row import LAYERS as OWN_LAYERS
from paper_checks.experiments.own_row import ROWS
from paper_checks.experiments.scale import SMALL
from paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from paper_checks.experiments.thousand_layers import arm_name as deep_name
from paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, plain, warmed
from paper_checks.lowering.trials import SHAPES, Trial
from paper_checks.pages.markdown import section
from paper_checks.pages.training.numbers import (
    FACTOR,
    Record,
    Runs,
    held_out,
    judged_pairs,
    leaves,
)
from paper_checks.routes.forecast import LOOKS, Pair
from paper_checks.routes.questions import OTHER_ROW, OWN_ROW, QUESTIONS, SMALLER
from paper_checks.routes.training import Answered, FallsWithDepth, in_octaves
from sims.stats import Estimate
from sims.training.outcomes import share

_NAMED = 6
NOTHING = "-"
_ABSENT = "not in the record yet"
_ANSWERS = {Verdict.CONFIRMED: "yes", Verdict.REFUTED: "no", Verdict.UNDECIDED: "open"}
Records = Mapping[str, Record]


def head(records: Records) -> str:
    """What was trained, and by which rules it is told."""
    abouts = [about for record in records.values() for about in record.abouts]
    trials = [arm.trial for record in records.values() for arm in record.experiment.arms]
    return section(
        "training",
        "head",
        rows=[_row(name, record) for name, record in records.items()],
        versions=sorted({f"torch {a.versions.torch}, Python {a.versions.python}, {a.device}" for a in abouts}),
        hours=sum(about.seconds for about in abouts) / 3600,
        pilot=PILOT_SEEDS,
        deepest=max(trials, key=lambda trial: trial.num_sublayers),
    )


def _row(name: str, record: Record) -> list[str]:
    trials = [arm.trial for arm in record.experiment.arms]
    num_pilot = sum(trial.seed in PILOT_SEEDS for trial in record.book.trials)
    shapes = [f"{one} ({SHAPES[one].data})" for one in dict.fromkeys(trial.shape for trial in trials)]
    sizes = dict.fromkeys(f"{trial.num_steps}, {trial.batch_size} x {trial.num_tokens} tokens" for trial in trials)
    return [
        f"[{name}](#{name})",
        ", ".join(shapes),
        _list(trial.d_model for trial in trials),
        _list(trial.num_layers for trial in trials),
        "; ".join(sizes),
        str(record.experiment.plan(record.book).num_seeds),
        f"{len(record.book)} ({num_pilot})",
        _missing(record.missing()),
    ]


def _list(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _missing(found: Mapping[str, int]) -> str:
    if not found:
        return "nothing"
    named = ", ".join(f"{name} ({num})" for name, num in list(found.items())[:_NAMED])
    more = f" and {len(found) - _NAMED} arms more" if len(found) > _NAMED else ""
    return f"seeds of {named}{more}"


# ---------------------------------------------------------------- the answer first


def summary(rates: Record, warm: Record, deep: Record, own: Record) -> str:
    """Its results in a few sentences."""
    return section(
        "training",
        "summary",
        num_runs=sum(len(record.book) for record in (rates, warm, deep, own)),
        predicts=_predicts(rates),
        saves=_saves(warm),
        deepest=DEEP_LAYERS[-1],
        who=_by_share((scheme, deep.runs[deep_name(scheme, DEEP_LAYERS[-1])]) for scheme in DEEP_SCHEMES),
        own_rows={row: _answer(statement, own) for row, statement in OWN_ROW.items()},
        other_rows={" under ".join(names): _answer(statement, own) for names, statement in OTHER_ROW.items()},
    )


def _predicts(record: Record) -> dict[str, Any] | None:
    """None, here and below, where the record lacks what it needs."""
    found = judged_pairs(record.book, LOOKS[0])
    said = _answer(SMALLER[LOOKS[0]], record)
    if said is None or not found:
        return None
    return {"said": said, "num": len(found), "agree": count(found, True), "against": count(found, False)}


def count(found: Sequence[Pair], agrees: bool) -> int:
    return sum(pair.agrees is agrees for pair in found)


def _answer(statement: Answered, record: Record) -> str | None:
    """None where the record lacks what it needs."""
    try:
        return _ANSWERS[statement.evidence(record.book).verdict]
    except (LookupError, ValueError):
        return None


def _saves(record: Record) -> dict[str, Any] | None:
    parts = []
    for layers in reversed(DEPTHS):
        without, with_it = (record.runs[name] for name in (plain("post-ln", layers), warmed(layers)))
        if without.seeds and with_it.seeds:
            parts.append({"layers": layers, "without": _trained(without), "with_it": _trained(with_it)})
    others = _by_share((scheme, record.runs[plain(scheme)]) for scheme in ALIKE if scheme != "post-ln")
    return {"parts": parts, "others": others, "layers": DEEP} if parts else None


def _by_share(found: Iterable[tuple[str, Runs]]) -> str:
    """How many seeds trained, and of which schemes."""
    schemes: dict[str, list[str]] = {}
    for scheme, one in found:
        if one.seeds:
            schemes.setdefault(_trained(one), []).append(scheme)
    return "; ".join(f"{trained} of {', '.join(several)}" for trained, several in schemes.items())


def _trained(one: Runs) -> str:
    return f"{sum(result.has_trained for result in one.results)} of {len(one.seeds)}"


# ---------------------------------------------------------------- shared words


def opening(record: Record) -> str:
    """Heading, question, claims and plan; what the claims ask of the record, and what it says."""
    rows = []
    for statement in QUESTIONS[record.experiment.name]:
        try:
            found = statement.evidence(record.book)
        except (LookupError, ValueError):
            rows.append([statement.text, _ABSENT, NOTHING])
            continue
        shown = "; ".join(f"{name}: {value}" for name, value in found.numbers.items())
        rows.append([statement.text, _ANSWERS[found.verdict], shown])
    plan = record.experiment.plan(record.book).text
    return section("training", "opening", experiment=record.experiment, plan=plan, rows=rows)


def update(values: Sequence[float]) -> str:
    """Mean, least and largest: it is skewed."""
    if not values or not all(map(math.isfinite, values)):
        return NOTHING
    shown = [number(value, 3) for value in (sum(values) / len(values), min(values), max(values))]
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def forecast(trial: Trial) -> str:
    """U at initialisation by the kernel rung, of the networks of which it is kept."""
    if trial.shape != "gpt" or trial.optimizer != TRAINING_OPTIMIZER or trial.d_model != SMALL.d_model:
        return NOTHING
    try:
        return number(training_update(trial.scheme, trial.num_layers), 3)
    except LookupError:
        return NOTHING


def number(value: float, digits: int) -> str:
    """Without an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def within(found: Estimate, digits: int) -> str:
    if found.high is None:
        return f"{found.mean:.{digits}g}"
    return f"{found.mean:.{digits}g} ± {found.high - found.mean:.2g}"


# ---------------------------------------------------------------- arms with one rate


def warmup(record: Record, images: str) -> str:
    rows = [
        [trial.scheme, f"{trial.num_layers}L-{trial.num_layers}L", _power(trial), _warm(trial), *_of_runs(one)]
        for one in record.runs.values()
        for trial in [one.arm.trial]
    ]
    return section("training", "warmup", **_of_experiment(record, images), rows=rows)


def _of_experiment(record: Record, images: str) -> dict[str, Any]:
    """What the sections of arms with one rate share."""
    return {"opening": opening(record), "images": images, "run_heads": _RUN_HEADS, "factor": FACTOR}


_RUN_HEADS = ["trained (exact interval)", "held-out loss", "U at initialisation", f"U leaves a factor of {FACTOR:g}"]


def _power(trial: Trial) -> str:
    power = math.log2(trial.learning_rate)
    return f"2^{power:g}" if power.is_integer() else f"{trial.learning_rate:.2g}"


def _warm(trial: Trial) -> str:
    if not trial.warmup_steps:
        return "none"
    start = f", from {trial.warmup_from:.2g} of the rate" if trial.warmup_from else ""
    return f"{trial.warmup_steps} of {trial.num_steps} steps{start}"


def _of_runs(one: Runs) -> list[str]:
    if not one.seeds:
        return ["not yet", *[NOTHING] * 3]
    loss, num_diverged = held_out(one.results)
    words = [] if loss is None else [within(loss, 4)]
    words += [f"{num_diverged} diverged"] * bool(num_diverged)
    found = share(sum(result.has_trained for result in one.results), len(one.seeds))
    trained = f"{found.successes} of {found.num} ({found.low:.2f} to {found.high:.2f})"
    return [trained, "; ".join(words), update(one.updates(one.seeds)), _first_looks(one)]


def _first_looks(one: Runs) -> str:
    found = Counter(None if (look := leaves(result)) is None else look.step for result in one.results)
    words = [f"step {step}: {found[step]}" for step in sorted(step for step in found if step is not None)]
    return ", ".join(words + [f"not within {one.arm.trial.measure_at[-1]}: {found[None]}"] * bool(found[None]))


def thousand_layers(record: Record, images: str) -> str:
    rows = [
        [scheme, f"{layers:,}", *_of_runs(one), *_moved(one), forecast(one.arm.trial)]
        for layers in DEEP_LAYERS
        for scheme in DEEP_SCHEMES
        for one in [record.runs[deep_name(scheme, layers)]]
    ]
    return section("training", "thousand_layers", **_of_experiment(record, images), rows=rows)


def _moved(one: Runs) -> list[str]:
    """How far the function had moved when U left its start, and at the last look."""
    firsts = [look.from_start for result in one.results if (look := leaves(result)) is not None]
    lasts = [result.looks[-1].from_start for result in one.results if result.looks]
    return [_range(firsts), _range(lasts)]


def _range(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    low, high = (f"{end(there, default=math.nan):.2g}" for end in (min, max))
    return NOTHING if not there else low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- the optimizer's own row


def own_row(record: Record, images: str) -> str:
    return section(
        "training",
        "own_row",
        opening=opening(record),
        images=images,
        least=OWN_LAYERS[0],
        most=OWN_LAYERS[-1],
        heads=["row of the table", *(f"trained with {one}" for one in OWN_GRIDS)],
        rows=[[row, *(_own_cell(record, row, optimizer) for optimizer in OWN_GRIDS)] for row in ROWS],
    )


def _own_cell(record: Record, row: str, optimizer: str) -> str:
    statement = FallsWithDepth(row=row, optimizer=optimizer, falls=False)
    try:
        words = in_octaves(statement.comparison(record.book))
    except LookupError:
        words = _ABSENT
    if (other := OTHER_ROW.get((row, optimizer))) is not None:
        words += f"; by theory {math.log2(OWN_LAYERS[-1] / OWN_LAYERS[0]) * other.power:g}"
    return f"**{words}**" if row == f"su-{optimizer}" else words


# ---------------------------------------------------------------- what is open


def open_ends(found: Sequence[tuple[str, str, str]]) -> str:
    return section("training", "open_ends", parts=found)
