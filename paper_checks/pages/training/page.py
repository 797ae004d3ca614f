"""TRAINING.md and its figures: what the experiments with training say, from their records alone.

    python -m depthlaw.paper_checks.pages.training  # rewrites TRAINING.md and figures/training-*.svg, in seconds

A record that is not there, or lacks arms or seeds, makes a page that says so.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from depthlaw.advice.records import GAINS
from depthlaw.network.trials import SHAPES, Trial
from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.experiments import NAMES
from depthlaw.paper_checks.experiments.after_start import MUON
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Book
from depthlaw.paper_checks.experiments.kernel_laws import TRAINING_OPTIMIZER, training_update
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.experiments.stable_rates import AXIS, LAYERS, SCHEMES, gpt, wide
from depthlaw.paper_checks.experiments.thousand_layers import LAYERS as DEEP_LAYERS
from depthlaw.paper_checks.experiments.thousand_layers import SCHEMES as DEEP_SCHEMES
from depthlaw.paper_checks.experiments.thousand_layers import arm_name as deep_name
from depthlaw.paper_checks.experiments.warmup import ALIKE, DEEP, DEPTHS, plain, warmed
from depthlaw.paper_checks.pages.drawing import save
from depthlaw.paper_checks.pages.markdown import section
from depthlaw.paper_checks.pages.training import after_start as after_start_page
from depthlaw.paper_checks.pages.training import transfer as transfer_page
from depthlaw.paper_checks.pages.training.best_rates import best_in_short, best_rates
from depthlaw.paper_checks.pages.training.figures import drawings
from depthlaw.paper_checks.pages.training.large_models import large_models
from depthlaw.paper_checks.pages.training.runs import (
    BEST_WIDE,
    FACTOR,
    WORDS,
    Record,
    Records,
    Runs,
    answer,
    cases_by_depth,
    correlation,
    count,
    held_out,
    judged_pairs,
    leaves,
    log_rate,
    mean_update,
    trial_of,
)
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.training.arms import ANSWERS, half_learnt, in_octaves
from depthlaw.paper_checks.routes.training.questions import SMALLER, questions
from depthlaw.paper_checks.routes.training.stable_rates import LOOKS
from depthlaw.paper_checks.verify.document import say
from depthlaw.sims.stats import LEVEL
from depthlaw.sims.training.outcomes import share
from depthlaw.system.files import write_atomically
from depthlaw.system.places import FIGURES, RESULTS
from depthlaw.theory.schemes import scheme

PAGE = RESULTS / "TRAINING.md"
OPEN_CLAIMS = ("S1-47", "S1-48", "S1-49", "S2-23", "S3-04", "S3-40", "S3-41", "S3-42", "S3-49", "DN-13")
MOST_PAIRS, MOST_NAMED = 8, 6


def page(records: Records) -> str:
    """Markdown."""
    drawn = drawings(records)

    def image(name: str) -> str:
        title, caption = drawn[name].title, drawn[name].caption
        if drawn[name].is_empty:
            return f"(A figure, {title}: nothing of it is in the record yet.)\n\n"
        return f"![{title}](figures/{name}.svg)\n\n*{caption}*\n\n"

    def images(*names: str) -> str:
        return "".join(map(image, names))

    rates, warm, deep, best, later, moved, there = (records[name] for name in NAMES)
    sections = (
        summary(records),
        head(records),
        stable_rates(rates, images("training-rates", "training-curves", "training-predicts")),
        warmup(warm, images("training-warmup")),
        thousand_layers(deep, images("training-thousand", "training-updates")),
        best_rates(best, records[BEST_WIDE], opening(best), images("training-best-losses", "training-best-rates")),
        after_start_page.after_start(later, opening(later), images("training-after-start")),
        transfer_page.transfer(moved, opening(moved), images("training-gains", "training-transfer")),
        transfer_page.elsewhere(there, opening(there), images("training-elsewhere"), moved),
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
        most_named=MOST_NAMED,
        versions=sorted({f"torch {a.versions.torch}, Python {a.versions.python}, {a.device}" for a in abouts}),
        hours=sum(about.seconds for about in abouts) / 3600,
        pilot=PILOT_SEEDS,
        deepest=max(trials, key=lambda trial: trial.num_sublayers),
    )


def _head_row(name: str, record: Record) -> dict[str, Any]:
    arms = record.experiment.arms
    trials = [arm.trial for arm in arms if record.runs[arm.name].seeds] or [arm.trial for arm in arms]
    return {
        "name": name,
        "experiment": record.experiment.name,
        "shapes": {trial.shape: SHAPES[trial.shape].data for trial in trials},
        "widths": sorted({trial.d_model for trial in trials}),
        "layers": sorted({trial.num_layers for trial in trials}),
        "sizes": dict.fromkeys((trial.num_steps, trial.batch_size, trial.num_tokens) for trial in trials),
        "num_seeds": record.experiment.plan(record.book).num_seeds,
        "num_runs": len(record.book),
        "num_pilot": sum(trial.seed in PILOT_SEEDS for trial in record.book.trials),
        "missing": list(record.missing().items()),
    }


# ---------------------------------------------------------------- the answer first


def summary(records: Records) -> str:
    """The results in a few sentences. None, here and below, where the record lacks what it needs."""
    rates, warm, deep, best, later, moved, there = (records[name] for name in NAMES)
    pairs = judged_pairs(rates.book, LOOKS[0])
    verdict = answer(SMALLER[LOOKS[0]], rates)
    counted = {"said": verdict, "num": len(pairs), "agree": count(pairs, True), "against": count(pairs, False)}
    return section(
        "training",
        "summary",
        num_runs=sum(len(record.book) for record in records.values()),
        predicts=counted if verdict and pairs else None,
        saves=_saves(warm),
        deepest=DEEP_LAYERS[-1],
        who=_by_share((scheme, deep.runs[deep_name(scheme, DEEP_LAYERS[-1])]) for scheme in DEEP_SCHEMES),
        best=best_in_short(best, records[BEST_WIDE]),
        which=transfer_page.which_in_short(moved, there),
        elsewhere=transfer_page.elsewhere_in_short(there),
        longer=transfer_page.elsewhere_in_readme(there),
        later=after_start_page.in_short(later),
        moved=transfer_page.in_short(moved),
        beside=transfer_page.in_short(moved, MUON),
    )


def _saves(record: Record) -> dict[str, Any] | None:
    parts = []
    for layers in reversed(DEPTHS):
        without, with_it = (record.runs[name] for name in (plain("post-ln", layers), warmed(layers)))
        if without.seeds and with_it.seeds:
            parts.append([f"{layers}L-{layers}L", _trained(without), _trained(with_it)])
    others = _by_share((scheme, record.runs[plain(scheme)]) for scheme in ALIKE if scheme != "post-ln")
    return {"rows": parts, "others": others, "layers": DEEP} if parts else None


def _by_share(of_schemes: Iterable[tuple[str, Runs]]) -> str:
    """How many seeds trained, and of which schemes."""
    by_share: dict[str, list[str]] = {}
    for name, runs in of_schemes:
        if runs.seeds:
            by_share.setdefault(_trained(runs), []).append(name)
    return "; ".join(f"{trained} of {', '.join(several)}" for trained, several in by_share.items())


def _trained(runs: Runs) -> str:
    return f"{runs.num_trained} of {len(runs.seeds)}"


def opening(record: Record) -> str:
    """Heading, question, claims and plan; what the claims ask of the record, and what it says."""
    rows = []
    for statement in questions(record.experiment.name, record.scale):
        evidence = None
        with suppress(LookupError, ValueError):
            evidence = statement.evidence(record.book)
        rows.append((statement.text, evidence))
    plan = record.experiment.plan(record.book).text
    return section("training", "opening", experiment=record.experiment, plan=plan, rows=rows, answers=ANSWERS)


# ---------------------------------------------------------------- largest rates, and the update as their forecast


def _update(values: Sequence[float]) -> list[float]:
    """Mean, least and largest of U, which is skewed; the first alone of one seed, nothing where one is not known."""
    if not values or not all(map(math.isfinite, values)):
        return []
    return [fmean(values)] + [min(values), max(values)] * (len(values) > 1)


def _forecast(trial: Trial) -> float | None:
    """U at initialisation by the kernel rung, of the networks of which it is kept."""
    if trial.shape == "gpt" and trial.optimizer == TRAINING_OPTIMIZER and trial.d_model == SMALL.d_model:
        with suppress(LookupError):
            return training_update(trial.scheme, trial.num_layers)
    return None


def stable_rates(record: Record, images: str) -> str:
    trials = [record.experiment.arm(name).trial for name in (gpt(AXIS[0], LAYERS[-1]), wide(AXIS[0]))]
    half = None
    with suppress(LookupError, ValueError):
        half = half_learnt(SCHEMES, record.book)[2]
    return section(
        "training",
        "stable_rates",
        opening=opening(record),
        images=images,
        wide=trials,
        weights=dict.fromkeys(12 * trial.num_layers * trial.d_model**2 for trial in trials),
        searched=[_searched(runs) for runs in record.runs.values() if runs.arm.grid],
        half=half,
        correlations={look: _correlations(record.book, look) for look in LOOKS},
        looks=WORDS,
        **_contradictions(record.book),
    )


def _searched(runs: Runs) -> dict[str, Any]:
    """log_rates: log2 of each seed's largest rate, sorted. below, above: seeds whose rate is beyond the grid."""
    return {
        "trial": runs.arm.trial,
        "num_seeds": len(runs.seeds),
        "least": math.log2(runs.arm.grid[0]),
        "log_rates": sorted(log_rate(edge, runs.arm.grid) for edge in runs.edges),
        "below": sum(edge.is_at_bottom for edge in runs.edges),
        "above": sum(edge.is_at_top for edge in runs.edges),
        "trained": runs.num_trained_of_tried,
        "updates": _update(runs.updates),
        "forecast": _forecast(runs.arm.trial),
    }


def _correlations(book: Book, look: str) -> list[tuple[str, int, Any]]:
    """Of each depth, of all, and of the schemes that norm the sum of stream and branch, and of those that do not: the
    name, the number of networks, and the correlation over networks and over seeds, None where there is none."""
    by_depth = cases_by_depth(book, look)
    every = [case for several in by_depth.values() for case in several]
    parts = {str(layers): several for layers, several in by_depth.items()}
    prefix = "all, " if len(parts) > 1 else ""
    parts |= {"all": every} if len(parts) > 1 else {}
    for name, has_norm_after in (("norm after the sum", True), ("not after it", False)):
        family = [c for c in every if scheme(trial_of(c).scheme).stack.placement.post == has_norm_after]
        parts[f"{prefix}{name}"] = family
    return [(name, len(several), correlation(several)) for name, several in parts.items() if by_depth]


def _contradictions(book: Book) -> dict[str, Any]:
    """Of the look that all networks have."""
    pairs = judged_pairs(book, LOOKS[0])
    against = sorted((pair for pair in pairs if pair.agrees is False), key=lambda pair: pair.rates.octaves.high or 0.0)
    updates = {case.name: case for several in cases_by_depth(book, LOOKS[0]).values() for case in several}
    both = [([updates[pair.smaller], updates[pair.larger]], pair) for pair in against[:MOST_PAIRS]]
    return {
        "num_pairs": len(pairs),
        "num_agree": count(pairs, True),
        "num_against": len(against),
        "by_chance": 2 / (1 - LEVEL),
        "pairs": [
            ([(trial_of(case), mean_update(case)) for case in cases], in_octaves(pair.rates)) for cases, pair in both
        ],
    }


# ---------------------------------------------------------------- arms with one rate


def warmup(record: Record, images: str) -> str:
    return section("training", "warmup", **_shared(record, images), rows=list(map(_of_runs, record.runs.values())))


def thousand_layers(record: Record, images: str) -> str:
    def row(scheme: str, layers: int) -> dict[str, Any]:
        runs = record.runs[deep_name(scheme, layers)]
        firsts = [look.from_start for result in runs.results if (look := leaves(result)) is not None]
        lasts = [result.looks[-1].from_start for result in runs.results if result.looks]
        moved = [[value for value in values if value is not None] for values in (firsts, lasts)]
        return _of_runs(runs) | {"moved": moved, "forecast": _forecast(runs.arm.trial)}

    rows = [row(scheme, layers) for layers in DEEP_LAYERS for scheme in DEEP_SCHEMES]
    return section("training", "thousand_layers", **_shared(record, images), rows=rows)


def _shared(record: Record, images: str) -> dict[str, Any]:
    """What the sections of arms with one rate share."""
    return {"opening": opening(record), "images": images, "factor": FACTOR}


def _of_runs(runs: Runs) -> dict[str, Any]:
    """share: of seeds that trained, with its interval, None where there is none. leaves: how many seeds by the step at
    which U leaves; unmoved: seeds in which it does not."""
    trial = runs.arm.trial
    row: dict[str, Any] = {"trial": trial, "power": math.log2(trial.learning_rate), "share": None}
    if not runs.seeds:
        return row
    loss, num_diverged = held_out(runs.results)
    looks = [leaves(result) for result in runs.results]
    return row | {
        "share": share(runs.num_trained, len(runs.seeds)),
        "loss": loss,
        "num_diverged": num_diverged,
        "updates": _update(runs.updates),
        "leaves": sorted(Counter(look.step for look in looks if look is not None).items()),
        "unmoved": looks.count(None),
    }


def gains_text(records: Records) -> str:
    """What ``advice.records.GAINS`` holds, a row in a line."""
    return "[\n" + ",\n".join(map(json.dumps, transfer_page.gains(records["transfer"]))) + "\n]\n"


def write(records: Records) -> None:
    for name, drawing in drawings(records).items():
        if not drawing.is_empty:
            save(drawing, FIGURES / f"{name}.svg")
    write_atomically(PAGE, page(records))
    write_atomically(GAINS, gains_text(records))
