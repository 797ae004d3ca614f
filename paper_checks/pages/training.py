"""TRAINING.md and its figures: what the experiments with training say, from their records alone.

    python -m depthlaw.paper_checks.pages.training  # rewrites TRAINING.md and figures/training-*.svg, in seconds

A record that is not there, or lacks arms or seeds, makes a page that says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from statistics import fmean, geometric_mean
from typing import Any

from depthlaw.network.trials import OF_RECIPE, POST_LN_INIT, SHAPES, Trial
from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.experiments import NAMES, experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book, Experiment
from depthlaw.paper_checks.experiments.best_rates import GRIDS as BEST_GRIDS
from depthlaw.paper_checks.experiments.best_rates import HIGH
from depthlaw.paper_checks.experiments.best_rates import LAYERS as BEST_LAYERS
from depthlaw.paper_checks.experiments.best_rates import SCHEMES as BEST_SCHEMES
from depthlaw.paper_checks.experiments.kernel_laws import TRAINING_OPTIMIZER, training_update
from depthlaw.paper_checks.experiments.scale import SMALL, WIDE
from depthlaw.paper_checks.experiments.stable_rates import (
    AXIS,
    CURVE,
    GRID,
    LAYERS,
    MIDDLE,
    MORE_SCHEMES,
    SCHEMES,
    gpt,
    wide,
)
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from depthlaw.paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from depthlaw.paper_checks.experiments.thousand_layers import arm_name as deep_name
from depthlaw.paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, DIVIDED, FROM_FRACTION, RATE, plain, warmed
from depthlaw.paper_checks.pages.drawing import Curve, Drawing, Panel, Place, VerticalScale, save
from depthlaw.paper_checks.pages.large_models import large_models
from depthlaw.paper_checks.pages.markdown import bracket, caption, section, table
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.best_rates import Found, factor, growing, in_words, is_flat, predicted
from depthlaw.paper_checks.routes.forecast import LOOKS, Case, Pair, cases
from depthlaw.paper_checks.routes.questions import FOLLOWS, NEARER, SMALLER, questions
from depthlaw.paper_checks.routes.training import ANSWERS, Answered, arm, half_learnt, in_octaves
from depthlaw.paper_checks.verify.document import say
from depthlaw.sims.stats import LEVEL, Estimate, estimate
from depthlaw.sims.training.outcomes import (
    Correlation,
    Edge,
    edge,
    rank_correlation,
    rank_correlation_over_seeds,
    share,
)
from depthlaw.sims.training.store import About, read
from depthlaw.sims.training.train import Look, TrainResult
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RESULTS, training_record
from depthlaw.theory.schemes import scheme

PAGE = RESULTS / "TRAINING.md"
OPEN_CLAIMS = ("S1-47", "S1-48", "S1-49", "S2-23", "S3-04", "S3-40", "S3-41", "S3-42", "S3-49", "DN-13")
FACTOR = 2.0
"""The update is as at the start while it is within this factor of it."""
MOST_PAIRS, MOST_NAMED = 8, 6
NOTHING, ABSENT = "-", "not in the record yet"
_WORDS: dict[str, str] = dict(zip(LOOKS, ("trains", "learns half"), strict=True))


# ---------------------------------------------------------------- the records as numbers


@dataclass(frozen=True)
class Runs:
    """Of an arm. tried: by seed and learning rate, whatever there is, the pilot's left out. seeds: that are done."""

    arm: Arm
    tried: dict[int, dict[float, TrainResult]]
    seeds: tuple[int, ...]

    @property
    def results(self) -> list[TrainResult]:
        """Of an arm without a grid, a seed each."""
        return [self.tried[seed][self.arm.trial.learning_rate] for seed in self.seeds]

    @property
    def edges(self) -> list[Edge]:
        """The largest rate of each seed at which it trains."""
        by_seed = [{rate: result.has_trained for rate, result in self.tried[seed].items()} for seed in self.seeds]
        return [edge(self.arm.grid, has_trained) for has_trained in by_seed]

    @property
    def updates(self) -> list[float]:
        """Of each seed at initialisation, which no learning rate changes."""
        firsts = [next(iter(self.tried[seed].values())).looks[0].update["update"] for seed in self.seeds]
        return [math.nan if first is None else first for first in firsts]


@dataclass(frozen=True)
class Record:
    """What there is of an experiment at a scale. runs: by arm."""

    experiment: Experiment
    scale: str
    book: Book
    abouts: tuple[About, ...]
    runs: dict[str, Runs]

    @classmethod
    def of(cls, name: str, book: Book, abouts: Sequence[About] = (), scale: str = SMALL.name) -> Record:
        plan = experiment(name, scale)
        seeds = sorted({trial.seed for trial in book.trials} - set(PILOT_SEEDS))
        runs = {}
        for asked in plan.arms:
            tried = {seed: there for seed in seeds if (there := asked.tried(book, seed))}
            runs[asked.name] = Runs(asked, tried, tuple(seed for seed in tried if asked.is_done(book, seed)))
        return cls(plan, scale, book, tuple(abouts), runs)

    @classmethod
    def read(cls, name: str, scale: str = SMALL.name) -> Record:
        """A record that is not there is empty. ValueError, in one line, where it does not fit."""
        path = training_record(name, scale)
        rows = list(read(path)) if path.exists() else []
        return cls.of(name, Book.of(rows), [row.about for row in rows], scale)

    def missing(self) -> dict[str, int]:
        """By arm, how many seeds of the plan it lacks."""
        wanted = self.experiment.num_seeds(self.book)
        lacks = {name: len({*range(wanted[runs.arm])} - {*runs.seeds}) for name, runs in self.runs.items()}
        return {name: num for name, num in lacks.items() if num}


def log_rate(edge: Edge, grid: Sequence[float]) -> float:
    """log2; one step below the grid for an edge that is below it."""
    return math.log2(grid[0] ** 2 / grid[1] if edge.rate is None else edge.rate)


def end(edges: Sequence[Edge]) -> int:
    """Where edges are known on one side only: -1 some are below the grid, 1 some at its top, else 0."""
    return -1 if any(one.is_at_bottom for one in edges) else int(any(one.is_at_top for one in edges))


def cases_by_depth(book: Book, look: str) -> dict[int, list[Case]]:
    """Of the depths of which some seed has every scheme."""
    by_depth = {}
    for layers in LAYERS:
        with suppress(LookupError, ValueError):  # not in the record, or no arm learns anything
            by_depth[layers] = cases(layers, look, book)
    return by_depth


def trial_of(case: Case) -> Trial:
    return arm("stable-rates", case.name).trial


def mean_update(case: Case) -> float:
    return sum(case.updates) / len(case.updates)


def correlation(several: Sequence[Case]) -> tuple[Correlation, Estimate] | None:
    """Spearman's, of the mean update and the mean largest rate over cases, and over seeds; as ``RanksFall`` has it."""
    x = [mean_update(case) for case in several]
    y = [[-math.inf if one.rate is None else math.log2(one.rate) for one in case.edges] for case in several]
    try:
        return rank_correlation(x, [sum(row) / len(row) for row in y]), rank_correlation_over_seeds(x, y)
    except ValueError:  # fewer than two cases, all alike, or not the same seeds
        return None


def judged_pairs(book: Book, look: str) -> list[Pair]:
    """Of all depths, those whose updates differ by their interval, at the level of the claim (Bonferroni)."""
    with suppress(LookupError, ValueError):  # one seed has no interval
        return [pair for several in SMALLER[look].found(book).values() for pair in several]
    return []


def count(pairs: Sequence[Pair], agrees: bool) -> int:
    return sum(pair.agrees is agrees for pair in pairs)


def ratio(look: Look, result: TrainResult) -> float | None:
    """The update at a look over that at the start; None where there is none."""
    now, start = look.update["update"], result.looks[0].update["update"]
    return now / start if now is not None and start else None


def leaves(result: TrainResult) -> Look | None:
    """The first look at which the update is not within FACTOR of its start; None where it always is."""
    for look in result.looks:
        now = ratio(look, result)
        if now is None or not 1 / FACTOR <= now <= FACTOR:
            return look
    return None


def held_out(results: Sequence[TrainResult]) -> tuple[Estimate | None, int]:
    """At the end, of those that did not diverge; and how many did."""
    values = [result.held_out for result in results if result.outcome != "diverged"]
    return (estimate(values) if values else None), len(results) - len(values)


# ---------------------------------------------------------------- the page

Records = Mapping[str, Record]
BEST_WIDE = f"best-rates-{WIDE.name}"


@cache
def records() -> Records:
    """By experiment; best-rates at its second width behind them."""
    return {name: Record.read(name) for name in NAMES} | {BEST_WIDE: Record.read("best-rates", WIDE.name)}


def page(records: Records) -> str:
    """Markdown."""
    drawn = drawings(records)

    def image(name: str) -> str:
        title, said = drawn[name].title, drawn[name].caption
        if drawn[name].is_empty:
            return f"(A figure, {title}: nothing of it is in the record yet.)\n\n"
        return f"![{title}](figures/{name}.svg)\n\n*{said}*\n\n"

    def images(*names: str) -> str:
        return "".join(map(image, names))

    rates, warm, deep, best = (records[name] for name in NAMES)
    sections = (
        summary(records),
        head(records),
        stable_rates(rates, images("training-rates", "training-curves", "training-predicts")),
        warmup(warm, images("training-warmup")),
        thousand_layers(deep, images("training-thousand", "training-updates")),
        best_rates(best, records[BEST_WIDE], images("training-best-rates")),
        large_models(),
        section("training", "open_ends", parts=_left_open()),
    )
    return "".join(sections).rstrip("\n") + "\n"


def _left_open() -> list[tuple[str, str, str]]:
    """Claim, part and what would decide it, of the parts that are expected to be undecided."""
    parts = ((id_, part) for id_ in OPEN_CLAIMS for part in claims()[id_].parts)
    return [(id_, part.name, say(part.open, []) or "") for id_, part in parts if part.expected is Verdict.UNDECIDED]


def head(records: Records) -> str:
    """What was trained, and by which rules it is told."""
    abouts = [about for record in records.values() for about in record.abouts]
    trials = [arm.trial for record in records.values() for arm in record.experiment.arms]
    return section(
        "training",
        "head",
        rows=[_head_row(name, record) for name, record in records.items()],
        versions=sorted({f"torch {a.versions.torch}, Python {a.versions.python}, {a.device}" for a in abouts}),
        hours=sum(about.seconds for about in abouts) / 3600,
        pilot=PILOT_SEEDS,
        deepest=max(trials, key=lambda trial: trial.num_sublayers),
    )


def _head_row(name: str, record: Record) -> list[str]:
    trials = [arm.trial for arm in record.experiment.arms]
    num_pilot = sum(trial.seed in PILOT_SEEDS for trial in record.book.trials)
    shapes = [f"{one} ({SHAPES[one].data})" for one in dict.fromkeys(trial.shape for trial in trials)]
    sizes = dict.fromkeys(f"{trial.num_steps}, {trial.batch_size} x {trial.num_tokens} tokens" for trial in trials)
    missing = record.missing()
    named = ", ".join(f"{name} ({num})" for name, num in list(missing.items())[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED} arms more" * (len(missing) > MOST_NAMED)
    return [
        f"[{name}](#{record.experiment.name})",
        ", ".join(shapes),
        ", ".join(map(str, sorted({trial.d_model for trial in trials}))),
        ", ".join(map(str, sorted({trial.num_layers for trial in trials}))),
        "; ".join(sizes),
        str(record.experiment.plan(record.book).num_seeds),
        f"{len(record.book)} ({num_pilot})",
        f"seeds of {named}{more}" if missing else "nothing",
    ]


# ---------------------------------------------------------------- the answer first


def summary(records: Records) -> str:
    """The results in a few sentences. None, here and below, where the record lacks what it needs."""
    rates, warm, deep, best = (records[name] for name in NAMES)
    pairs = judged_pairs(rates.book, LOOKS[0])
    said = _answer(SMALLER[LOOKS[0]], rates)
    counted = {"said": said, "num": len(pairs), "agree": count(pairs, True), "against": count(pairs, False)}
    return section(
        "training",
        "summary",
        num_runs=sum(len(record.book) for record in records.values()),
        predicts=counted if said and pairs else None,
        saves=_saves(warm),
        deepest=DEEP_LAYERS[-1],
        who=_by_share((scheme, deep.runs[deep_name(scheme, DEEP_LAYERS[-1])]) for scheme in DEEP_SCHEMES),
        best=best_in_short(best, records[BEST_WIDE]),
    )


def _answer(statement: Answered, record: Record) -> str | None:
    try:
        return ANSWERS[statement.evidence(record.book).verdict]
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


def _by_share(of_schemes: Iterable[tuple[str, Runs]]) -> str:
    """How many seeds trained, and of which schemes."""
    by_share: dict[str, list[str]] = {}
    for name, runs in of_schemes:
        if runs.seeds:
            by_share.setdefault(_trained(runs), []).append(name)
    return "; ".join(f"{trained} of {', '.join(several)}" for trained, several in by_share.items())


def _trained(runs: Runs) -> str:
    return f"{sum(result.has_trained for result in runs.results)} of {len(runs.seeds)}"


def opening(record: Record) -> str:
    """Heading, question, claims and plan; what the claims ask of the record, and what it says."""
    rows = []
    for statement in questions(record.experiment.name, record.scale):
        try:
            evidence = statement.evidence(record.book)
        except (LookupError, ValueError):
            rows.append([statement.text, ABSENT, NOTHING])
            continue
        shown = "; ".join(f"{name}: {value}" for name, value in evidence.numbers.items())
        rows.append([statement.text, ANSWERS[evidence.verdict], shown])
    plan = record.experiment.plan(record.book).text
    return section("training", "opening", experiment=record.experiment, plan=plan, rows=rows)


# ---------------------------------------------------------------- numbers as words


def number(value: float, digits: int) -> str:
    """Without an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def within(estimate: Estimate, digits: int) -> str:
    half = "" if estimate.high is None else f" ± {estimate.high - estimate.mean:.2g}"
    return f"{estimate.mean:.{digits}g}{half}"


def _update(values: Sequence[float]) -> str:
    """Mean, least and largest: it is skewed."""
    if not values or not all(map(math.isfinite, values)):
        return NOTHING
    shown = [number(value, 3) for value in (sum(values) / len(values), min(values), max(values))]
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def _forecast(trial: Trial) -> str:
    """U at initialisation by the kernel rung, of the networks of which it is kept."""
    if trial.shape == "gpt" and trial.optimizer == TRAINING_OPTIMIZER and trial.d_model == SMALL.d_model:
        with suppress(LookupError):
            return number(training_update(trial.scheme, trial.num_layers), 3)
    return NOTHING


def _range(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    low, high = (f"{end(there, default=math.nan):.2g}" for end in (min, max))
    return NOTHING if not there else low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- largest rates, and the update as their forecast


def stable_rates(record: Record, images: str) -> str:
    trials = [record.experiment.arm(name).trial for name in (gpt(AXIS[0], LAYERS[-1]), wide(AXIS[0]))]
    half = "a loss that needs all curves"
    with suppress(LookupError, ValueError):
        half = f"{half_learnt(SCHEMES, record.book)[2]:.3f} nats"
    return section(
        "training",
        "stable_rates",
        opening=opening(record),
        images=images,
        wide=" and ".join(f"{trial.num_layers} layers of width {trial.d_model}" for trial in trials),
        weights=" and ".join(dict.fromkeys(f"{12 * trial.num_layers * trial.d_model**2:,}" for trial in trials)),
        searched=[_searched(runs) for runs in record.runs.values() if runs.arm.grid],
        half=half,
        correlations=[row for look in LOOKS for row in _correlations(record.book, look)],
        **_contradictions(record.book),
    )


def _searched(runs: Runs) -> list[str]:
    trial = runs.arm.trial
    trained = [result.has_trained for by_rate in runs.tried.values() for result in by_rate.values()]
    return [
        f"{trial.shape} {trial.scheme}",
        str(trial.num_layers),
        str(trial.d_model),
        str(len(runs.seeds)),
        _rates(runs.edges, runs.arm.grid),
        f"{sum(trained)} of {len(trained)}",
        _update(runs.updates),
        _forecast(trial),
    ]


def _rates(edges: Sequence[Edge], grid: Sequence[float]) -> str:
    if not edges:
        return NOTHING
    logs = sorted(log_rate(one, grid) for one in edges)
    below, above = sum(one.is_at_bottom for one in edges), sum(one.is_at_top for one in edges)
    if below == len(edges):
        return f"below 2^{math.log2(grid[0]):g}"
    words = [f"2^{logs[0]:g} to 2^{logs[-1]:g}"] * (logs[0] < logs[-1])
    words += [f"{below} of {len(edges)} below 2^{math.log2(grid[0]):g}"] * bool(below)
    words += [f"{above} of {len(edges)} not below 2^{logs[-1]:g}"] * bool(above)
    return f"2^{sum(logs) / len(logs):.2f}" + f" ({'; '.join(words)})" * bool(words)


def _correlations(book: Book, look: str) -> list[list[str]]:
    """Of each depth, of all, and of the schemes that norm the sum of stream and branch, and of those that do not."""
    by_depth = cases_by_depth(book, look)
    if not by_depth:
        return [[_WORDS[look], ABSENT, *[NOTHING] * 3]]
    every = [case for several in by_depth.values() for case in several]
    parts = {str(layers): several for layers, several in by_depth.items()}
    prefix = "all, " if len(parts) > 1 else ""
    parts |= {"all": every} if len(parts) > 1 else {}
    for name, has_norm_after in (("norm after the sum", True), ("not after it", False)):
        family = [c for c in every if scheme(trial_of(c).scheme).stack.placement.post == has_norm_after]
        parts[f"{prefix}{name}"] = family
    return [[_WORDS[look], name, str(len(several)), *_ranks(several)] for name, several in parts.items()]


def _ranks(several: Sequence[Case]) -> list[str]:
    both = correlation(several)
    if both is None:
        return [NOTHING] * 2
    over_cases, over_seeds = both
    return [
        bracket(over_cases.value, over_cases.low, over_cases.high),
        bracket(over_seeds.mean, over_seeds.low, over_seeds.high),
    ]


def _contradictions(book: Book) -> dict[str, Any]:
    """Of the look that all networks have."""
    pairs = judged_pairs(book, LOOKS[0])
    against = sorted((pair for pair in pairs if pair.agrees is False), key=lambda pair: pair.rates.octaves.high or 0.0)
    updates = {case.name: case for several in cases_by_depth(book, LOOKS[0]).values() for case in several}
    return {
        "num_pairs": len(pairs),
        "num_agree": count(pairs, True),
        "num_against": len(against),
        "by_chance": 2 / (1 - LEVEL),
        "pairs": [_pair_row(pair, updates[pair.smaller], updates[pair.larger]) for pair in against[:MOST_PAIRS]],
    }


def _pair_row(pair: Pair, *both: Case) -> list[str]:
    names = [f"{trial_of(case).scheme} ({number(mean_update(case), 3)})" for case in both]
    return [str(trial_of(both[0]).num_layers), *names, in_octaves(pair.rates)]


# ---------------------------------------------------------------- arms with one rate


def warmup(record: Record, images: str) -> str:
    def row(runs: Runs) -> list[str]:
        trial, power = runs.arm.trial, math.log2(runs.arm.trial.learning_rate)
        rate = f"2^{power:g}" if power.is_integer() else f"{trial.learning_rate:.2g}"
        start = f", from {trial.warmup_from:.2g} of the rate" if trial.warmup_from else ""
        warm = f"{trial.warmup_steps} of {trial.num_steps} steps{start}" if trial.warmup_steps else "none"
        return [trial.scheme, f"{trial.num_layers}L-{trial.num_layers}L", rate, warm, *_of_runs(runs)]

    return section("training", "warmup", **_shared(record, images), rows=list(map(row, record.runs.values())))


def thousand_layers(record: Record, images: str) -> str:
    def row(scheme: str, layers: int) -> list[str]:
        runs = record.runs[deep_name(scheme, layers)]
        firsts = [look.from_start for result in runs.results if (look := leaves(result)) is not None]
        lasts = [result.looks[-1].from_start for result in runs.results if result.looks]
        moved = [_range(firsts), _range(lasts)]
        return [scheme, f"{layers:,}", *_of_runs(runs), *moved, _forecast(runs.arm.trial)]

    rows = [row(scheme, layers) for layers in DEEP_LAYERS for scheme in DEEP_SCHEMES]
    return section("training", "thousand_layers", **_shared(record, images), rows=rows)


def _shared(record: Record, images: str) -> dict[str, Any]:
    """What the sections of arms with one rate share."""
    heads = ["trained (exact interval)", "held-out loss", "U at initialisation", f"U leaves a factor of {FACTOR:g}"]
    return {"opening": opening(record), "images": images, "run_heads": heads, "factor": FACTOR}


def _of_runs(runs: Runs) -> list[str]:
    if not runs.seeds:
        return ["not yet", *[NOTHING] * 3]
    loss, num_diverged = held_out(runs.results)
    words = [] if loss is None else [within(loss, 4)]
    words += [f"{num_diverged} diverged"] * bool(num_diverged)
    part = share(sum(result.has_trained for result in runs.results), len(runs.seeds))
    trained = f"{part.successes} of {part.num} ({part.low:.2f} to {part.high:.2f})"
    return [trained, "; ".join(words), _update(runs.updates), _first_looks(runs)]


def _first_looks(runs: Runs) -> str:
    steps = Counter(None if (look := leaves(result)) is None else look.step for result in runs.results)
    words = [f"step {step}: {steps[step]}" for step in sorted(step for step in steps if step is not None)]
    return ", ".join(words + [f"not within {runs.arm.trial.measure_at[-1]}: {steps[None]}"] * bool(steps[None]))


# ---------------------------------------------------------------- the best rate by depth


def best_rates(record: Record, wide: Record, images: str) -> str:
    founds, of_wide = (_founds(one) for one in (record, wide))
    return section(
        "training",
        "best_rates",
        opening=opening(record),
        images=images,
        layers=BEST_LAYERS,
        heads=[
            *("scheme", "width", "seeds", "slope predicted", "by U as measured", "slope measured", "of mean curves"),
            *(f"best at {layers}" for layers in BEST_LAYERS),
            *("least loss, shallow to deep", "its change", "seeds that decide"),
        ],
        rows=[
            _best_row(found, one.experiment.arms[0].trial.d_model)
            for one, several in ((record, founds), (wide, of_wide))
            for found in several
        ],
        **_excess(founds),
        num_double=sum(found.num_double for found in founds),
        num_curves=sum(len(BEST_LAYERS) * len(found.seeds) for found in founds),
        factor=in_words(factor(record.book)),
        factor_wide=in_words(factor(wide.book, wide.scale)) if of_wide else None,
        growing=growing(),
        steps=record.experiment.arms[0].trial.num_steps,
        width=record.experiment.arms[0].trial.d_model,
        wide=WIDE.d_model,
        num_wide=min((len(found.seeds) for found in of_wide), default=0),
    )


def _founds(record: Record) -> list[Found]:
    """Of every scheme of which a seed is there."""
    there = (Found.of(scheme, record.book, record.scale) for scheme in BEST_SCHEMES)
    return [found for found in there if found.seeds]


def best_in_short(record: Record, wide: Record) -> str:
    """The result in a paragraph, which the README has too. Empty where the record has no seed of every scheme."""
    founds = _founds(record)
    if len(founds) < len(BEST_SCHEMES):
        return ""

    def of(found: Found) -> dict[str, Any]:
        name, wanted = found.scheme.removeprefix(OF_RECIPE), predicted(found.scheme)
        answer, change = _answer(FOLLOWS[found.scheme], record), in_words(found.loss_change)
        said = {"said": answer, "needed": found.seeds_to_decide, "loss": change}
        return {"name": name, "slope": in_words(found.measured), "predicted": wanted} | said

    trial = record.experiment.arms[0].trial
    return section(
        "training",
        "best_in_short",
        flat=[of(found) for found in founds if is_flat(found.scheme)],
        growing=[of(found) for found in founds if not is_flat(found.scheme)],
        num_seeds=min(len(found.seeds) for found in founds),
        layers=BEST_LAYERS,
        trial=trial,
        factor=in_words(factor(record.book)),
        nearer=_answer(NEARER, record),
        wide=_wide_in_short(wide),
        planned=record.experiment.plan(record.book).num_seeds,
        unknown=in_words(None),
        **_excess(founds),
    ).strip()


def _wide_in_short(wide: Record) -> dict[str, Any] | None:
    """The same of the second width, where it has every scheme."""
    founds = _founds(wide)
    if len(founds) < len(BEST_SCHEMES):
        return None
    return {
        "d_model": WIDE.d_model,
        "num_seeds": min(len(found.seeds) for found in founds),
        "factor": in_words(factor(wide.book, wide.scale)),
        "slopes": [(found.scheme.removeprefix(OF_RECIPE), in_words(found.measured)) for found in founds],
        "losses": [(found.scheme.removeprefix(OF_RECIPE), in_words(found.loss_change)) for found in founds],
    }


def best_table(record: Record, wide: Record) -> str:
    """The result as the README has it: Markdown, a row for each scheme."""
    records = (record, wide) if _founds(wide) else (record,)
    rows, widths = [], [f"{one.experiment.arms[0].trial.d_model} wide" for one in records]
    for several in zip(*map(_founds, records), strict=True):
        scheme = several[0].scheme
        cells = [found.measured for found in several] + [found.loss_change for found in several]
        rows.append([f"`{scheme.removeprefix(OF_RECIPE)}`", f"{predicted(scheme):.2f}", *map(in_words, cells)])
    heads = ["block", "slope predicted", *(f"measured, {width}" for width in widths)]
    return table([*heads, *(f"loss, {width}" for width in widths)], rows)


def _excess(founds: Sequence[Found]) -> dict[str, Any]:
    """A small rate that every grid has, and by how much its loss is above the best one's, where that is least."""
    return {"slow": f"2^{math.log2(HIGH[0]):g}", "excess": min((one.excess(HIGH[0]) for one in founds), default=0.0)}


def _best_row(found: Found, d_model: int) -> list[str]:
    """Best rates and least losses as means over the seeds."""
    rates = []
    for bests in found.bests.values():
        known = [value for value in bests if value is not None]
        beyond = f" ({bests.count(None)} beyond)" * (None in bests)
        rates.append(f"2^{fmean(known):.1f}{beyond}" if known else "beyond")
    losses = [fmean(losses) for losses in found.losses.values()]
    return [
        found.scheme.removeprefix(OF_RECIPE),
        str(d_model),
        str(len(found.seeds)),
        f"{predicted(found.scheme):.2f}",
        in_words(found.of_update),
        in_words(found.measured),
        in_words(found.of_mean),
        *rates,
        f"{losses[0]:.3f} to {losses[-1]:.3f}",
        in_words(found.loss_change),
        NOTHING if (needed := found.seeds_to_decide) is None else str(needed),
    ]


# ---------------------------------------------------------------- figures

_BINS = 25
"""Of a training loss: means over so many parts of a run."""
_JUST_ABOVE, _ABOVE = 1.15, 1.35
"""The top of a panel of losses, over what can be had without the input: what is far above has not trained."""
_RATE = "largest stable learning rate"
_DIVERGED = 1e6
"""A loss that is far above every picture."""
Row = Sequence[float | None]
"""A number for each x, None where there is none."""


def drawings(records: Records) -> dict[str, Drawing]:
    """By file name."""
    rates, warm, deep, best = (records[name] for name in NAMES)
    rows: tuple[tuple[str, list[Panel], str, int, int, int, VerticalScale], ...] = (
        ("rates", _rates_panels(rates), "largest stable rate by depth", 2, 430, 330, "shared"),
        ("curves", _curves_panels(rates), "held-out loss by learning rate", 3, 290, 220, "own"),
        ("predicts", _predicts_panels(rates), "update and largest stable rate", 2, 430, 280, "shared"),
        ("warmup", _warmup_panels(warm), "training loss on translation", 2, 440, 290, "own"),
        ("thousand", _thousand_panels(deep), "training loss by depth", 3, 310, 280, "own"),
        ("updates", _updates_panels(deep), "update along training", 3, 310, 280, "shared"),
        ("best-rates", _best_panels(best), "loss by learning rate and depth, and the best rate", 3, 310, 250, "own"),
    )
    made = {}
    for name, panels, title, columns, width, height, scale in rows:
        made[f"training-{name}"] = Drawing(
            panels=panels,
            title=title,
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
    return 2 ** fmean(log_rate(one, grid) for one in edges)


def _edge_curve(scheme: str, by_x: Iterable[tuple[float, Runs]]) -> Curve:
    """The largest rate, by x."""
    there = [(x, runs.edges, runs.arm.grid) for x, runs in by_x if runs.seeds]
    return Curve.of_scheme(
        scheme,
        line=[(x, _mean_rate(edges, grid)) for x, edges, grid in there],
        has_dots=True,
        ends=[end(edges) for _, edges, _ in there],
        faint=[(x, 2 ** log_rate(one, grid)) for x, edges, grid in there for one in edges],
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
            title=f"{layers} layers: {_WORDS[look]}",
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


_BY_DEPTH: dict[int, str] = dict(zip(BEST_LAYERS, ("--c6", "--c1", "--c4", "--c2"), strict=True))
_BEST_RANGE = (2.0**-10.5, 2.0**-1.5)


def _best_panels(record: Record) -> list[Panel]:
    """A panel for each scheme with its curves, then one for each with its best rate by depth."""
    founds = _founds(record)
    guess = max((result.guess for result in record.book.values()), default=0.0)
    least = min((loss for found in founds for losses in found.losses.values() for loss in losses), default=0.0)
    curves = [
        Panel(
            title=found.scheme.removeprefix(OF_RECIPE),
            x="learning rate",
            y="held-out loss, nats",
            curves=[curve for layers in BEST_LAYERS for curve in _best_curves(found, layers)],
            x_kind="rates",
            y_kind="linear",
            y_range=(least - 0.05, guess),
        )
        for found in founds
    ]
    return curves + [_best_by_depth(found) for found in founds]


def _best_curves(found: Found, num_layers: int) -> list[Curve]:
    """Mean over the seeds by rate, and the best rates of the seeds."""
    colour = _BY_DEPTH[num_layers]
    means = [(rate, loss) for rate, loss in found.mean_curve(num_layers).items() if loss is not None]
    bests = zip(found.bests[num_layers], found.losses[num_layers], strict=True)
    return [
        Curve(label=f"{num_layers} layers", line=means, colour=colour),
        Curve(points=[(2**best, loss, None, None) for best, loss in bests if best is not None], colour=colour),
    ]


def _best_by_depth(found: Found) -> Panel:
    """Dashed: what the update predicts, through the mean of the best rates. A seed whose best rate is beyond the grid
    counts with the grid's end, and has no interval."""
    logs = [math.log2(rate) for rate in BEST_GRIDS[found.scheme]]
    ends = {n: found.ends(n) for n in BEST_LAYERS}
    bests = {
        n: [(logs[0], best, logs[-1])[end + 1] for best, end in zip(found.bests[n], ends[n], strict=True)]
        for n in BEST_LAYERS
    }
    points = []
    for n, at in bests.items():
        mean = estimate([best for best in at if best is not None])
        low, high = (None, None) if any(ends[n]) else (mean.low, mean.high)
        points.append((n, 2**mean.mean, *(None if end is None else 2**end for end in (low, high))))
    middle = fmean(math.log2(y) for _, y, *_ in points)
    centre = fmean(math.log2(n) for n in BEST_LAYERS)
    line = [(n, 2 ** (middle + predicted(found.scheme) * (math.log2(n) - centre))) for n in BEST_LAYERS]
    return Panel(
        title=found.scheme.removeprefix(OF_RECIPE),
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


def write(records: Records) -> None:
    for name, drawing in drawings(records).items():
        if not drawing.is_empty:
            save(drawing, FIGURES / f"{name}.svg")
    write_atomically(PAGE, page(records))


if __name__ == "__main__":
    write(records())
