"""``depthlaw train``: a grid of training runs, kept as they end, and what became of them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paper_checks.cli.choices import (
    BUILT_ACTIVATIONS,
    NORM_KINDS,
    OPTIMIZERS,
    POST_LN_INIT,
    PRECISIONS,
    SCHEDULES,
    SHAPES,
    lowered,
    names,
    one_of,
    schemes,
    some_of,
)
from paper_checks.cli.inputs import BadInputError, count, counts, entries, fraction, plot_file, refusing
from paper_checks.cli.options import flag, named, option
from paper_checks.cli.output import print_json, progress
from paper_checks.cli.running import (
    PLACE,
    Place,
    deadline,
    file_name,
    found,
    keeping,
    opened,
    positive,
    say_of_others,
)
from paper_checks.system.files import document

if TYPE_CHECKING:
    from paper_checks.lowering.trials import Trial
    from sims.training.store import Store
    from sims.training.sweep import Report
    from sims.training.train import TrainResult

MOST_LAYERS = 10_000
MOST_RUNS = 100_000
_MOST = {"num_tokens": 4096}
"""Of the counts, where it is not a million: sims.training.data has this one."""
_NAMED = ("shape", "activation", "norm_kind", "schedule", "precision")
_COUNTS = ("d_model", "num_heads", "ffn_ratio", "num_tokens", "batch_size", "num_steps", "evaluate_every")
_NUMBERS = ("warmup_from", "weight_decay", "clip_norm")
"""Fields of a ``Trial``, by what they are read as."""
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
"""The option that a field of a ``Trial`` is read from; the rooms below name the field when they refuse one."""
_FIELD = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})(?![\w/-])")


_SOME_SCHEMES = some_of(lambda: [*schemes(), POST_LN_INIT])
_SOME_OPTIMIZERS = some_of(lambda: names(OPTIMIZERS))
_MODEL, _STEPS = "The model and its data", "How it is trained"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of the runs, as text: every scheme with every optimizer, depth, learning rate and seed."""

    scheme: Annotated[
        str,
        typer.Option(
            help="Named schemes, comma-separated (`depthlaw schemes` lists them), and post-ln-init: DeepNet's control, "
            "Post-LN with the matrices of layer l of N divided by N - l + 1.",
            metavar="LIST",
            autocompletion=_SOME_SCHEMES,
            callback=lowered,
        ),
    ]
    layers: Annotated[str, option("Layers N, comma-separated; of either side for nmt.", "LIST")]
    learning_rate: Annotated[str, option("At their peak, comma-separated: 1e-3,2e-3.", "LIST")]
    optimizer: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated: {OPTIMIZERS}.",
            metavar="LIST",
            autocompletion=_SOME_OPTIMIZERS,
            callback=lowered,
        ),
    ] = "adam"
    seeds: Annotated[str, option("Independent runs of each.", "K")] = "1"
    seed: Annotated[str, option("The first one's seed.", "S")] = "0"
    shape: Annotated[
        str,
        named("gpt, bert, nmt (encoder-decoder), vit, vit-masked (of digits) or speech (synthesised).", SHAPES, _MODEL),
    ] = "gpt"
    decoder_layers: Annotated[
        str | None, option("Layers M of nmt's decoder, one for each of --layers; N if left out.", "LIST", _MODEL)
    ] = None
    width: Annotated[str, option("d_model, a multiple of --heads.", "D", _MODEL)] = "32"
    heads: Annotated[str, option("Attention heads.", "H", _MODEL)] = "2"
    ffn_ratio: Annotated[str, option("FFN width over d_model.", "R", _MODEL)] = "4"
    activation: Annotated[str, named(f"{BUILT_ACTIVATIONS}.", BUILT_ACTIVATIONS, _MODEL)] = "gelu"
    norm_kind: Annotated[str, named(f"{NORM_KINDS}.", NORM_KINDS, _MODEL)] = "layernorm"
    tokens: Annotated[str, option("Bytes (or frames) of a sequence, of either side; 4096 at most.", "T", _MODEL)] = "32"
    text: Annotated[
        str | None, option("Your own text, plain or .gz, for gpt and bert; else Python's own library.", "FILE", _MODEL)
    ] = None
    parallel: Annotated[
        tuple[str, str] | None,
        option("Your own translation pairs, line by line, plain or .gz, for nmt.", "SRC TGT", _MODEL),
    ] = None
    steps: Annotated[str, option("Optimizer steps.", "T", _STEPS)] = "200"
    batch: Annotated[str, option("Sequences of a batch.", "B", _STEPS)] = "16"
    warmup: Annotated[str, option("Steps in which the learning rate rises.", "W", _STEPS)] = "0"
    warmup_from: Annotated[str, option("Where --warmup starts, as a share of the rate.", "C", _STEPS)] = "0"
    schedule: Annotated[str, option(f"Then {SCHEDULES}.", "NAME", _STEPS, one_of(SCHEDULES))] = "constant"
    weight_decay: Annotated[str, option("Of matrices and tables.", "C", _STEPS)] = "0"
    clip: Annotated[str | None, option("Clip the norm of the whole gradient to this.", "C", _STEPS)] = None
    precision: Annotated[str, option(f"{PRECISIONS} (mixed).", "NAME", _STEPS, one_of(PRECISIONS))] = "float32"
    evaluate_every: Annotated[str, option("Steps from one held-out loss to the next.", "E", _STEPS)] = "50"
    measure_at: Annotated[
        str, option("Steps after which the update is measured, beside 0: 50,200.", "LIST", _STEPS)
    ] = "0"


def run(
    asked: Asked,
    place: Place,
    checkpoint_every: Annotated[
        str | None,
        option(
            "Also keep a run that is under way, beside the store, every so many steps; without it, one that is killed "
            "begins again.",
            "STEPS",
            PLACE,
        ),
    ] = None,
    plot: Annotated[str | None, option("Draw the losses: .png, .svg or .pdf.", "FILE", PLACE)] = None,
    as_json: Annotated[bool, flag("--json", "One JSON document on standard output, nothing else.", PLACE)] = False,
) -> int:
    """Train real networks: every scheme with every optimizer, depth, learning rate and seed of the lists.

    What became of each by a stated rule (trained, stuck, diverged), the
    held-out loss beside what can be had without looking at the input, and the
    update at initialisation and later. Runs are kept: the same command again
    repeats none of them, and one that was stopped goes on.
    """
    # Everything that can be wrong with the input is said before anything is trained. 1: a run could not be done,
    # which is not one that diverged.
    minutes = place.minutes()
    num_steps = None if checkpoint_every is None else count(checkpoint_every, "--checkpoint-every", most=10**9)
    at_once = place.num_workers()
    target = None if plot is None else plot_file(plot)
    kept_in = place.store_file("training.sqlite")
    with refusing(), _by_option():
        trials = trials_of(asked)
        configs = {trial: trial.named() for trial in trials}
    if target is not None:
        from paper_checks.pages.loss_plots import check_place, check_size

        with refusing():
            check_place(target)
            check_size(trials)

    from paper_checks.lowering.trained_rows import rows
    from paper_checks.lowering.trials import check_memory, execute
    from sims.measure import choose_device, device_name
    from sims.training.sweep import sweep

    with refusing():
        where = choose_device(place.device)
    checkpoints = None if num_steps is None else kept_in.with_name(f"{kept_in.name}.checkpoints")
    train = partial(execute, device=where, checkpoints=checkpoints, checkpoint_every=num_steps or 1)
    with refusing(), opened(kept_in) as kept, keeping(kept_in), progress("training", len(trials)) as advance:
        there = _found(kept, configs)
        if place.scheduler is None:  # whose workers have memory of their own
            check_memory((trial for trial, result in there.items() if result is None), where)
        report = sweep(
            list(configs.values()),
            train,
            kept,
            place.executors(),
            at_once=2 * at_once,
            device=device_name(where),
            advance=advance,
            deadline=deadline(minutes),
        )
        say_of_others(kept, configs.values())
        results = _found(kept, configs)
    answer = document(
        config={name: value for name, value in configs[trials[0]].items() if name not in _NOT_COMMON},
        seeds=list(dict.fromkeys(trial.seed for trial in trials)),
        data=_data(trials[0]),
        rows=rows(results),
        sweep=_counted(report),
        store=str(kept_in),
        runs=[
            {"config": configs[trial], "result": None if result is None else result.plain()}
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

    chosen, optimizers = _names(asked.scheme, "--scheme"), _names(asked.optimizer, "--optimizer")
    rates = [positive(part, "--learning-rate") for part in entries(asked.learning_rate)]
    first = count(asked.seed, "--seed", least=0, most=2**31)
    num_seeds = count(asked.seeds, "--seeds", most=10**6)
    depths = _depths(asked)
    seeds = range(first, first + num_seeds)
    axes: list[list[Any]] = [list(dict.fromkeys(axis)) for axis in (seeds, chosen, optimizers, depths, rates)]
    num_runs = math.prod(map(len, axes))
    if num_runs > MOST_RUNS:
        raise BadInputError(f"the grid has {num_runs} runs; at most {MOST_RUNS} are allowed")
    for where, file in (("--text", asked.text), *(("--parallel", file) for file in asked.parallel or ())):
        if file is not None:
            file_name(file, where)
    rest: dict[str, Any] = {
        **{name: getattr(asked, name) for name in _NAMED},
        **{name: count(_given(asked, name), _OPTIONS[name], most=_MOST.get(name, 10**6)) for name in _COUNTS},
        **{name: _number(asked, name) for name in _NUMBERS},
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


def _given(asked: Asked, name: str) -> Any:
    """The text of the option that this field of a ``Trial`` is read from."""
    return getattr(asked, _OPTIONS[name].removeprefix("--").replace("-", "_"))


def _number(asked: Asked, name: str) -> float | None:
    text = _given(asked, name)
    return None if text is None else float(fraction(text, _OPTIONS[name]))


def _depths(asked: Asked) -> list[tuple[int, int | None]]:
    """(N, M) of each; M is None where it was left out."""
    layers = counts(asked.layers, "--layers", MOST_LAYERS)
    others: list[int] | list[None] = [None] * len(layers)
    if asked.decoder_layers is not None:
        others = counts(asked.decoder_layers, "--decoder-layers", MOST_LAYERS)
    if len(others) != len(layers):
        raise BadInputError(f"--layers has {len(layers)} entries and --decoder-layers {len(others)}: pair them")
    return list(zip(layers, others, strict=True))


def _steps(text: str) -> tuple[int, ...]:
    """Ascending, with 0, where the update is as theory predicts it."""
    return tuple(sorted({0, *(count(part, "--measure-at", least=0) for part in entries(text))}))


def _names(text: str, option: str) -> list[str]:
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise BadInputError(f"{option} wants names with a comma between them, not {text!r}")
    return found


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
