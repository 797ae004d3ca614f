"""``depthlaw train``: a grid of training runs, kept as they end, and what became of them."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from paper_checks.cli.inputs import BadInputError, count, fraction, plot_file, refusing
from paper_checks.cli.output import print_json, progress
from paper_checks.cli.running import (
    file_name,
    found,
    num_workers,
    opened,
    positive,
    say_of_others,
    stoppable,
    store_file,
)
from paper_checks.system.files import document

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from paper_checks.lowering.trials import Trial
    from sims.training.store import Store
    from sims.training.sweep import Report
    from sims.training.train import TrainResult

MOST_LAYERS = 10_000
MOST_RUNS = 100_000
_MOST = {"num_tokens": 4096}
"""Of the counts, where it is not a million: sims.training.data has this one."""
_NOT_COMMON = ("scheme", "optimizer", "num_layers", "num_decoder_layers", "learning_rate", "seed", "numbers", "data")
"""Of a trial's names, those that are no part of the document's ``config``: its rows and runs have them."""
_OPTIONS = {
    "num_layers": "--layers",
    "num_decoder_layers": "--decoder-layers",
    "d_model": "--width",
    "num_heads": "--heads",
    "ffn_ratio": "--ffn-ratio",
    "norm_kind": "--norm-kind",
    "num_tokens": "--tokens",
    "batch_size": "--batch",
    "num_steps": "--steps",
    "learning_rate": "--learning-rate",
    "warmup_steps": "--warmup",
    "warmup_from": "--warmup-from",
    "weight_decay": "--weight-decay",
    "clip_norm": "--clip",
    "evaluate_every": "--evaluate-every",
    "measure_at": "--measure-at",
}
"""Of fields that the rooms below name when they refuse one."""
_FIELD = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})(?![\w/-])")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of the runs, as text. grid: comma lists. seeds: the first, and how many. counts, numbers: by field of a
    ``Trial``, (option, text)."""

    grid: Mapping[str, str]
    decoder_layers: str | None
    seeds: tuple[str, str]
    names: Mapping[str, str]
    counts: Mapping[str, tuple[str, str]]
    warmup: str
    numbers: Mapping[str, tuple[str, str | None]]
    text: str | None
    parallel: tuple[str, str] | None
    measure_at: str


def run(
    asked: Asked,
    *,
    workers: str | None,
    scheduler: str | None,
    budget: str | None,
    store: str | None,
    checkpoint_every: str | None,
    device: str,
    plot: str | None,
    as_json: bool,
) -> int:
    """Everything that can be wrong with the input is said before anything is trained. 1 where a run could not be done,
    which is not one that diverged."""
    minutes = None if budget is None else positive(budget, "--budget")
    num_steps = None if checkpoint_every is None else count(checkpoint_every, "--checkpoint-every", most=10**9)
    at_once = num_workers(workers, scheduler)
    target = None if plot is None else plot_file(plot)
    kept_in = store_file(store, "training.sqlite")
    with refusing(), _by_option():
        trials = trials_of(asked)
        named = {trial: trial.named() for trial in trials}
    if target is not None:
        from paper_checks.pages.loss_plots import check_place, check_size

        with refusing():
            check_place(target)
            check_size(trials)

    from paper_checks.lowering.trained_rows import rows
    from paper_checks.lowering.trials import check_memory, execute
    from paper_checks.system.processes import Workers
    from sims.measure import choose_device, device_name
    from sims.training.sweep import cluster, sweep

    with refusing():
        where = choose_device(device)
        make_executor: Callable[[], Executor] = partial(Workers, at_once, is_reached=True)
        if scheduler is not None:
            make_executor = partial(cluster, scheduler)
    checkpoints = None if num_steps is None else kept_in.with_name(f"{kept_in.name}.checkpoints")
    train = partial(execute, device=where, checkpoints=checkpoints, checkpoint_every=num_steps or 1)
    with refusing(), opened(kept_in) as kept, stoppable(kept_in), progress("training", len(trials)) as advance:
        there = _found(kept, named)
        if scheduler is None:  # whose workers have memory of their own
            check_memory((trial for trial, result in there.items() if result is None), where)
        report = sweep(
            list(named.values()),
            train,
            kept,
            make_executor,
            at_once=2 * at_once,
            device=device_name(where),
            advance=advance,
            deadline=None if minutes is None else time.monotonic() + 60 * minutes,
        )
        say_of_others(kept, named.values())
        results = _found(kept, named)
    answer = document(
        config={name: value for name, value in named[trials[0]].items() if name not in _NOT_COMMON},
        seeds=list(dict.fromkeys(trial.seed for trial in trials)),
        data=_data(trials[0]),
        rows=rows(results),
        sweep=_counted(report),
        store=str(kept_in),
        runs=[
            {"config": named[trial], "result": None if result is None else result.plain()}
            for trial, result in results.items()
        ],
    )
    if target is not None:
        from paper_checks.cli.train_text import title
        from paper_checks.pages.loss_plots import draw

        draw(results, title(answer), answer["data"], target)
    if as_json:
        print_json(answer)
    else:
        from paper_checks.cli.train_text import show

        show(answer, target=target)
    for line in dict.fromkeys(report.failed.values()):
        print(f"depthlaw: a run failed: {line}", file=sys.stderr)
    return 1 if report.failed else 0


# ---------------------------------------------------------------- what is asked for


def trials_of(asked: Asked) -> list[Trial]:
    """The grid: the first seed of all, then the next, so that a budget that ends has seen every row as often.

    A repeated entry counts once.
    """
    from paper_checks.lowering.trials import Trial

    schemes, optimizers = (_names(asked.grid[option], option) for option in ("--scheme", "--optimizer"))
    rates = [positive(part, "--learning-rate") for part in asked.grid["--learning-rate"].split(",")]
    first, num_seeds = (
        count(asked.seeds[0], "--seed", least=0, most=2**31),
        count(asked.seeds[1], "--seeds", most=10**6),
    )
    depths = _depths(asked)
    seeds = range(first, first + num_seeds)
    axes: list[list[Any]] = [list(dict.fromkeys(axis)) for axis in (seeds, schemes, optimizers, depths, rates)]
    num_runs = math.prod(map(len, axes))
    if num_runs > MOST_RUNS:
        raise BadInputError(f"the grid has {num_runs} runs; at most {MOST_RUNS} are allowed")
    for option, file in (("--text", asked.text), *(("--parallel", file) for file in asked.parallel or ())):
        if file is not None:
            file_name(file, option)
    rest: dict[str, Any] = {
        **asked.names,
        **{name: count(text, option, most=_MOST.get(name, 10**6)) for name, (option, text) in asked.counts.items()},
        **{
            name: None if text is None else float(fraction(text, option))
            for name, (option, text) in asked.numbers.items()
        },
        "warmup_steps": count(asked.warmup, "--warmup", least=0),
        "measure_at": _steps(asked.measure_at),
        "text": asked.text,
        "parallel": asked.parallel,
    }
    if rest["warmup_from"] and not rest["warmup_steps"]:
        raise BadInputError("--warmup-from says where --warmup starts: give --warmup too")
    return [
        Trial(
            scheme=scheme,
            optimizer=optimizer,
            num_layers=depth[0],
            num_decoder_layers=depth[1],
            learning_rate=rate,
            seed=seed,
            **rest,
        )
        for seed, scheme, optimizer, depth, rate in product(*axes)
    ]


@contextmanager
def _by_option() -> Iterator[None]:
    """A refusal that names fields, with the options in their place."""
    try:
        yield
    except ValueError as error:
        raise BadInputError(_FIELD.sub(lambda found: _OPTIONS[found[0]], str(error))) from error


def _depths(asked: Asked) -> list[tuple[int, int | None]]:
    """(N, M) of each; M is None where it was left out."""
    layers = _layers(asked.grid["--layers"], "--layers")
    others: list[int] | list[None] = [None] * len(layers)
    if asked.decoder_layers is not None:
        others = _layers(asked.decoder_layers, "--decoder-layers")
    if len(others) != len(layers):
        raise BadInputError(f"--layers has {len(layers)} entries and --decoder-layers {len(others)}: pair them")
    return list(zip(layers, others, strict=True))


def _layers(text: str, option: str) -> list[int]:
    return [count(part, option, most=MOST_LAYERS) for part in text.split(",")]


def _steps(text: str) -> tuple[int, ...]:
    """Ascending, with 0, where the update is as theory predicts it."""
    return tuple(sorted({0, *(count(part, "--measure-at", least=0) for part in text.split(","))}))


def _names(text: str, option: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise BadInputError(f"{option} wants names with a comma between them, not {text!r}")
    return names


# ---------------------------------------------------------------- what is found


def _found(kept: Store, named: Mapping[Trial, Mapping[str, Any]]) -> dict[Trial, TrainResult | None]:
    return {trial: found(kept, name) for trial, name in named.items()}


def _data(trial: Trial) -> dict[str, Any]:
    """guess: nats without looking at the input; uniform: by chance alone."""
    from sims.records.record import rounded
    from sims.training.data import load

    data = load(trial.lower().data)
    numbers = {"guess": rounded(data.guess), "uniform": rounded(math.log(data.num_classes))}
    return {"about": data.about, "digest": data.digest, "num_classes": data.num_classes, **numbers}


def _counted(report: Report) -> dict[str, Any]:
    return {"done": report.done, "found": report.found, "failed": dict(report.failed), "left": report.left}
