"""TRAINING.md and its figures: what the experiments with training say, from their records alone.

    python -m depthlaw.paper_checks.pages.training  # rewrites TRAINING.md and figures/training-*.svg, in seconds

A record that is not there, or lacks arms or seeds, makes a page that says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from depthlaw.network.trials import OF_RECIPE, SHAPES, Trial
from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.experiments import NAMES
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Book
from depthlaw.paper_checks.experiments.best_rates import HIGH
from depthlaw.paper_checks.experiments.best_rates import LAYERS as BEST_LAYERS
from depthlaw.paper_checks.experiments.best_rates import SCHEMES as BEST_SCHEMES
from depthlaw.paper_checks.experiments.kernel_laws import TRAINING_OPTIMIZER, training_update
from depthlaw.paper_checks.experiments.scale import SMALL, WIDE
from depthlaw.paper_checks.experiments.stable_rates import AXIS, LAYERS, SCHEMES, gpt, wide
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from depthlaw.paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from depthlaw.paper_checks.experiments.thousand_layers import arm_name as deep_name
from depthlaw.paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, plain, warmed
from depthlaw.paper_checks.pages import after_start as after_start_page
from depthlaw.paper_checks.pages.drawing import save
from depthlaw.paper_checks.pages.large_models import large_models
from depthlaw.paper_checks.pages.markdown import bracket, interval, section
from depthlaw.paper_checks.pages.training_figures import drawings
from depthlaw.paper_checks.pages.training_runs import (
    BEST_WIDE,
    FACTOR,
    WORDS,
    Record,
    Records,
    Runs,
    cases_by_depth,
    correlation,
    count,
    founds_of,
    held_out,
    judged_pairs,
    leaves,
    log_rate,
    mean_update,
    records,
    trial_of,
)
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.training.arms import ANSWERS, Answered, half_learnt, in_octaves
from depthlaw.paper_checks.routes.training.best_rates import (
    Found,
    factor,
    growing,
    in_words,
    is_flat,
    predicted,
    transfer,
)
from depthlaw.paper_checks.routes.training.questions import FOLLOWS, NEARER, SMALLER, questions
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS, Case, Pair
from depthlaw.paper_checks.verify.document import say
from depthlaw.sims.stats import LEVEL, Estimate
from depthlaw.sims.training.outcomes import Edge, share
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RESULTS
from depthlaw.theory.schemes import scheme

PAGE = RESULTS / "TRAINING.md"
OPEN_CLAIMS = ("S1-47", "S1-48", "S1-49", "S2-23", "S3-04", "S3-40", "S3-41", "S3-42", "S3-49", "DN-13")
MOST_PAIRS, MOST_NAMED = 8, 6
NOTHING, ABSENT = "-", "not in the record yet"


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

    rates, warm, deep, best, later = (records[name] for name in NAMES)
    sections = (
        summary(records),
        head(records),
        stable_rates(rates, images("training-rates", "training-curves", "training-predicts")),
        warmup(warm, images("training-warmup")),
        thousand_layers(deep, images("training-thousand", "training-updates")),
        best_rates(best, records[BEST_WIDE], images("training-best-losses", "training-best-rates")),
        after_start_page.after_start(later, opening(later), images("training-after-start")),
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
    rates, warm, deep, best, later = (records[name] for name in NAMES)
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
        later=after_start_page.in_short(later),
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
        return [[WORDS[look], ABSENT, *[NOTHING] * 3]]
    every = [case for several in by_depth.values() for case in several]
    parts = {str(layers): several for layers, several in by_depth.items()}
    prefix = "all, " if len(parts) > 1 else ""
    parts |= {"all": every} if len(parts) > 1 else {}
    for name, has_norm_after in (("norm after the sum", True), ("not after it", False)):
        family = [c for c in every if scheme(trial_of(c).scheme).stack.placement.post == has_norm_after]
        parts[f"{prefix}{name}"] = family
    return [[WORDS[look], name, str(len(several)), *_ranks(several)] for name, several in parts.items()]


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
    founds, of_wide = (founds_of(one) for one in (record, wide))
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
        num_schemes=len(BEST_SCHEMES),
        transfer_heads=["scheme", "width", "to layers", "as it is", "scaled", "behind"],
        transfers=[row for one, several in ((record, founds), (wide, of_wide)) for row in _transfer_rows(one, several)],
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


def best_in_short(record: Record, wide: Record) -> str:
    """The result in a paragraph, which the README has too. Empty where the record has no seed of every scheme."""
    founds = founds_of(record)
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
    founds = founds_of(wide)
    if len(founds) < len(BEST_SCHEMES):
        return None
    return {
        "d_model": WIDE.d_model,
        "num_seeds": min(len(found.seeds) for found in founds),
        "factor": in_words(factor(wide.book, wide.scale)),
        "slopes": [(found.scheme.removeprefix(OF_RECIPE), in_words(found.measured)) for found in founds],
        "losses": [(found.scheme.removeprefix(OF_RECIPE), in_words(found.loss_change)) for found in founds],
    }


def losses_in_words(record: Record) -> str:
    """The picture of losses for who cannot see it, and for the README."""
    founds = founds_of(record)
    ends = [[fmean(found.losses[layers]) for layers in (BEST_LAYERS[0], BEST_LAYERS[-1])] for found in founds]
    said = [
        f"{found.scheme.removeprefix(OF_RECIPE)} {first:.2f} and {last:.2f}"
        for found, (first, last) in zip(founds, ends, strict=True)
    ]
    return (
        "Held-out loss against the learning rate, a curve for each depth, a panel for each block. At the best rate, in "
        f"nats, at {BEST_LAYERS[0]} and {BEST_LAYERS[-1]} layers: {', '.join(said)}."
    )


def _excess(founds: Sequence[Found]) -> dict[str, Any]:
    """A small rate that every grid has, and by how much its loss is above the best one's, where that is least."""
    return {"slow": f"2^{math.log2(HIGH[0]):g}", "excess": min((one.excess(HIGH[0]) for one in founds), default=0.0)}


def _transfer_rows(record: Record, founds: Sequence[Found]) -> list[list[str]]:
    """Empty where a scheme has fewer than two seeds."""
    if len(founds) < len(BEST_SCHEMES) or min(len(found.seeds) for found in founds) < 2:
        return []
    by_scheme = {found.scheme: found for found in founds}
    guess = next(iter(record.book.values())).guess
    rows = []
    for name in by_scheme:
        for layers in BEST_LAYERS[2:]:
            found = transfer(name, by_scheme, layers, guess)
            diverged = f" ({found.num_diverged} diverged)" * bool(found.num_diverged)
            width = str(record.experiment.arms[0].trial.d_model)
            rows.append(
                [
                    name.removeprefix(OF_RECIPE),
                    width,
                    str(layers),
                    interval(found.as_is) + diverged,
                    "beyond the rates tried" if found.scaled is None else interval(found.scaled),
                    interval(found.behind),
                ]
            )
    return rows


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


def write(records: Records) -> None:
    for name, drawing in drawings(records).items():
        if not drawing.is_empty:
            save(drawing, FIGURES / f"{name}.svg")
    write_atomically(PAGE, page(records))


if __name__ == "__main__":
    write(records())
