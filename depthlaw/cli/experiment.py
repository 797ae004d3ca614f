"""``depthlaw experiment``: a planned set of training runs, and what they say of claims that only training decides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import REQUIRED, BadInputError, argument, option, refusing
from depthlaw.cli.shared.output import counted, number_of, print_json, say
from depthlaw.cli.shared.place import Place, kept_runs, say_of_others
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid
from depthlaw.system.places import training_record

if TYPE_CHECKING:
    from depthlaw.paper_checks.claims.claim import Evidence
    from depthlaw.paper_checks.experiments.base import Arm, Book, Experiment, Ran

EXAMPLES = (
    "experiment warmup --plan",
    "experiment thousand-layers --budget 40 --workers 2",
    "experiment stable-rates --from-record --budget 1",
)


def run(
    place: Place,
    name: str = argument(
        f"The experiment: {options.EXPERIMENTS}.", "NAME", REQUIRED, complete=options.one_of(options.EXPERIMENTS)
    ),
    plan: bool = option("Only say what would be run, and how many seeds decide."),
    seeds: int | None = option("The number of seeds, instead of what the plan says.", most=1000),  # then the pilot's
    scale: str = option(
        "small is for two cores, wide is twice as wide, large is for a GPU; --plan says how wide and how long each is.",
        "small",
        known=options.SCALES,
    ),
    from_record: bool = option(
        "Begin with the runs that the project has on record, where this Python has the same data."
    ),
    export: Path | None = option("Also write the runs to this file, as JSON Lines, as the project's record is."),
    as_json: bool = options.JSON,
) -> int:
    """Train what decides the claims that only training can decide, and say what it decides.

    stable-rates finds the largest learning rate at which each scheme trains, by
    depth, and asks whether the update at initialisation predicts it. warmup
    asks whether warm-up saves Post-LN in translation, at 18 layers on either
    side. thousand-layers asks which schemes train at 1,000 layers, and how far.
    best-rates finds the learning rate of the least loss by depth, and asks
    whether the update predicts how it moves. after-start measures what the steps
    of training really move, and asks for how long the law of the first step
    holds. transfer tunes a learning rate at 4 layers, goes to 32 with each way of
    advise, and asks what that gains. elsewhere asks which law moves the best
    learning rate, on a width, depths and a text of its own. TRAINING.md has what the project found.
    """
    # 0: finished, or stopped by the budget. 1: a run could not be done.
    from depthlaw.paper_checks import experiments

    with refusing():
        experiment = experiments.experiment(name, scale)
    path = place.store_file(f"{name}-{scale}.sqlite")
    if export is not None and export.resolve() == path.resolve():
        raise BadInputError(f"--export: {export} is the store")

    from depthlaw.paper_checks.experiments import base

    if plan and not path.exists():
        with refusing():
            book = base.Book.read(_record(name, scale)) if from_record else base.Book({})
            _show_plan(experiment, book, seeds, training_record(name, scale), as_json=as_json)
        return 0

    from depthlaw.network.trained_rows import check_rows
    from depthlaw.sims.training.store import export as write_runs
    from depthlaw.sims.training.store import import_

    with refusing(), kept_runs(path) as kept:
        if from_record:
            say(f"{import_(kept, _record(name, scale))} runs of the project's record are new in {path.name}")
        check_rows(kept)
        if plan:
            _show_plan(experiment, base.there(kept), seeds, training_record(name, scale), as_json=as_json)
            return 0
        make_executor, workers = place.workers_of(experiment.missing(base.there(kept), seeds))
        with counted("training", None) as advance:  # how many runs there will be hangs on what they give
            book, ran = base.run(
                experiment,
                kept,
                make_executor,
                workers,
                num_seeds=seeds,
                deadline=place.deadline(),
                say=say,
                advance=advance,
            )
        say_of_others(kept, (trial.named() for trial in book.trials))
        if export is not None:
            say(f"{write_runs(kept, export)} runs written to {export}")
    answer = _answer(experiment, scale, book, ran, path)
    if as_json:
        print_json(answer)
    else:
        _show(answer)
    for line in dict.fromkeys(ran.failed.values()):
        say(f"a run failed: {line}")
    return 1 if ran.failed else 0


def _record(name: str, scale: str) -> Path:
    if not (path := training_record(name, scale)).exists():
        raise BadInputError(f"--from-record: the project has no record of {name} at scale {scale}")
    return path


# ---------------------------------------------------------------- what it came to


def _answer(experiment: Experiment, scale: str, book: Book, ran: Ran, path: Path) -> dict[str, Any]:
    from depthlaw.paper_checks.claims.claim import Check, Route, perform
    from depthlaw.paper_checks.routes.training.arms import ANSWERS
    from depthlaw.paper_checks.routes.training.questions import questions

    def answered(statement: Any) -> dict[str, Any]:
        check = Check(route=Route.MEASURED, run=lambda asked: asked.evidence(book))
        evidence: Evidence = perform(check, statement)
        return {
            "statement": statement.text,
            "answer": ANSWERS[evidence.verdict],
            "numbers": dict(evidence.numbers),
            "how": evidence.detail,
        }

    return document(
        experiment=experiment.name,
        question=experiment.question,
        claims=list(experiment.claims),
        plan=_plan_text(experiment, book),
        arms=[_arm(arm, book) for arm in experiment.arms],
        questions=[answered(statement) for statement in questions(experiment.name, scale)],
        runs={
            "done": ran.done,
            "found": len(book) - ran.done,
            "failed": dict(ran.failed),
            "is_finished": ran.is_finished,
        },
        store=str(path),
    )


def _arm(arm: Arm, book: Book) -> dict[str, Any]:
    """Seeds that are done; of a search the largest rates, of the others how many trained and the held-out losses.

    num_under_way: runs of searches that are not done, which the other numbers leave out.
    """
    from depthlaw.paper_checks.experiments.base import PILOT_SEEDS

    there = sorted({trial.seed for trial in book.trials} - set(PILOT_SEEDS))
    seeds = [seed for seed in there if arm.is_done(book, seed)]
    results = [result for seed in seeds for result in arm.tried(book, seed).values()]
    num_under_way = sum(len(arm.tried(book, seed)) for seed in there if seed not in seeds)
    updates = [result.looks[0].update["update"] for result in results if result.looks]
    about: dict[str, Any] = {
        "arm": arm.name,
        "num_seeds": len(seeds),
        "num_runs": len(results),
        "num_under_way": num_under_way,
        "trained": sum(result.has_trained for result in results),
        "update": updates[0] if updates else None,
    }
    if arm.grid:
        return about | {"largest_rates": [arm.edge(book, seed).rate for seed in seeds]}
    return about | {"held_out": [result.held_out for result in results]}


def _is_pilot_done(experiment: Experiment, book: Book) -> bool:
    from depthlaw.paper_checks.experiments.base import PILOT_SEEDS

    return all(arm.is_done(book, seed) for arm in experiment.pilot for seed in PILOT_SEEDS)


def _plan_text(experiment: Experiment, book: Book) -> str:
    if _is_pilot_done(experiment, book):
        return experiment.plan(book).text
    return "the pilot, which says how many seeds decide, is not done yet"


def _show_plan(experiment: Experiment, book: Book, asked: int | None, record: Path, *, as_json: bool) -> None:
    """asked: --seeds. record: the project's."""
    from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS

    text, arms, groups = _plan_text(experiment, book), experiment.arms, _groups(experiment.arms)
    is_decided = asked is not None or _is_pilot_done(experiment, book)
    num_seeds = asked or (experiment.plan(book).num_seeds if is_decided else LEAST_SEEDS)
    a_seed = list(_num_runs(arms))
    pilot = [len(PILOT_SEEDS) * number for number in _num_runs(experiment.pilot)]
    of_arms = sum(max(0, arm.least_seeds - num_seeds) for arm in arms) if asked is None else 0
    total = [num_seeds * number + more + of_arms for number, more in zip(a_seed, pilot, strict=True)]
    runs = {"num_seeds": num_seeds, "is_decided": is_decided, "a_seed": a_seed, "pilot": pilot, "total": total}
    names = [arm.name for arm in arms]
    if as_json:
        plan = {"plan": text, "arms": names, "groups": groups, "runs": runs}
        print_json(document(experiment=experiment.name, question=experiment.question, **plan))
        return
    print(experiment.question, experiment.rules, text, f"{len(arms)} arms, named by --json:", sep="\n\n")
    for group in groups:
        print(
            f"{number_of(group['num_arms'], 'arm')} of {group['shape']}, {group['d_model']} wide: {group['num_steps']} "
            f"steps of {group['batch_size']} x {group['num_tokens']} tokens"
        )
    print(f"Runs: {_range(*a_seed)} a seed{f', {_range(*pilot)} for the pilot' if experiment.pilot else ''}.")
    more = "" if is_decided else ", or more,"
    print(f"With {number_of(num_seeds, 'seed')}{more} {_range(*total)} in all, with those that are there.")
    if record.is_file():
        print(_took(record))


def _took(record: Path) -> str:
    from depthlaw.sims.training.store import read

    rows = read(record)
    devices, hours = sorted({row.about.device for row in rows}), sum(row.about.seconds for row in rows) / 3600
    return (
        f"The {len(rows):,} runs of the project's record took {hours:.1f} hours of one worker ({', '.join(devices)})."
    )


def _groups(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Arms that are alike but for scheme, optimizer, depth and learning rate."""
    names = ("shape", "d_model", "num_steps", "batch_size", "num_tokens")
    alike = Counter(tuple(vars(arm.trial)[name] for name in names) for arm in arms)
    return [{"num_arms": number, **dict(zip(names, group, strict=True))} for group, number in alike.items()]


def _num_runs(arms: Sequence[Arm]) -> tuple[int, int]:
    """Of a seed, at least and at most. A search is one run to ceil(log2(its rates)) + 1 of them
    (``sims.training.outcomes``),
    and may find that one among the others."""
    fixed = {arm.trial for arm in arms if not arm.grid}
    searches = {(arm.trial, arm.grid) for arm in arms if arm.grid}
    alike = {replace(trial, learning_rate=1.0) for trial in fixed}
    least = sum(replace(trial, learning_rate=1.0) not in alike for trial, _ in searches)
    most = sum((len(grid) - 1).bit_length() + 1 for _, grid in searches)
    return len(fixed) + least, len(fixed) + most


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _show(answer: Mapping[str, Any]) -> None:
    page = Page()
    page.say(answer["question"])
    page.say(answer["plan"])
    heads = ("arm", "seeds", "trained", "what came of it")
    page.show(grid(heads, map(_cells, answer["arms"]), heads))
    for question in answer["questions"]:
        page.say(f"{question['answer']:>4}  {question['statement']}")
        for name, value in question["numbers"].items():
            page.say(f"        {name}: {value}")
    runs = answer["runs"]
    rest = "finished" if runs["is_finished"] else "not finished: the same command goes on"
    page.say_where(f"{number_of(runs['done'], 'run')} made, {runs['found']} found in {answer['store']}; {rest}.")


def _cells(arm: Mapping[str, Any]) -> list[str]:
    came_of = []
    if rates := [rate for rate in arm.get("largest_rates", ()) if rate is not None]:
        came_of.append(f"largest rates 2^{math.log2(min(rates)):g} to 2^{math.log2(max(rates)):g}")
    if num_none := arm.get("largest_rates", []).count(None):
        came_of.append(f"none at {num_none} seeds")
    if losses := [loss for loss in arm.get("held_out", ()) if loss is not None]:
        came_of.append(f"held-out loss {fmean(losses):.3f}")
    if arm["num_under_way"]:
        came_of.append(f"{number_of(arm['num_under_way'], 'run')}, not finished")
    trained = f"{arm['trained']} of {arm['num_runs']}" if arm["num_runs"] else "-"
    return [arm["arm"], str(arm["num_seeds"]), trained, "; ".join(came_of)]
