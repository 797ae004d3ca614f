"""``depthlaw train``: a grid of training runs, kept as they end, and what became of them."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paper_checks.cli.options import (
    ANY_ACTIVATION,
    DEVICES,
    NORM_KINDS,
    OPTIMIZERS,
    POST_LN_INIT,
    PRECISIONS,
    SCHEDULES,
    SHAPES,
    BadInputError,
    count,
    counts,
    file_name,
    flag,
    local_file,
    named,
    names,
    number,
    option,
    options_of,
    plot_file,
    positive,
    recipes,
    refusing,
    schemes,
    some_names,
    some_of,
    some_positive,
    written_file,
)
from paper_checks.cli.output import Page, counted, print_json
from paper_checks.system.files import document
from paper_checks.system.stopping import telling

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from paper_checks.lowering.trials import Trial
    from sims.training.store import Store
    from sims.training.sweep import Report

EXAMPLES = (
    "train --scheme post-ln,deepnorm --layers 6,24 --learning-rate 1e-3,4e-3 --seeds 3 --budget 10",
    "train --scheme post-ln,admin --shape nmt --layers 18 --learning-rate 1e-3 --steps 400 --warmup 100",
    "train --recipe gpt2,llama-3 --layers 2,8 --width 64 --heads 4 --learning-rate 1e-3",
    "train --scheme pre-ln --shape gpt --text book.txt.gz --layers 4 --learning-rate 2e-3 --plot book.svg",
)


# ---------------------------------------------------------------- where runs are made and kept


PLACE = "Where it runs, and what is shown"
"""A panel of ``--help``."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of where runs are made and kept, of `experiment` too."""

    workers: Annotated[
        int | None,
        option("Runs at once, each on one core; as many as cores if left out.", "N", PLACE, read=count, most=4096),
    ] = None
    scheduler: Annotated[str | None, option("Run on a Dask cluster instead: tcp://HOST:PORT.", "ADDRESS", PLACE)] = None
    budget: Annotated[
        float | None,
        option("No run begins after so many minutes; the same command goes on later.", "MINUTES", PLACE, read=positive),
    ] = None
    store: Annotated[
        Path | None, option("Keep runs there; in sims/records/local if left out.", "FILE", PLACE, read=written_file)
    ] = None
    device: Annotated[str, named("auto (a GPU where there is one), cpu or cuda.", DEVICES, PLACE)] = "auto"

    def check(self) -> None:
        if self.workers is not None and self.scheduler is not None:
            raise BadInputError("give one of --workers and --scheduler: a cluster has workers of its own")

    @property
    def num_workers(self) -> int:
        return self.workers or os.cpu_count() or 1

    def store_file(self, name: str) -> Path:
        """--store, or a file of that name in the folder that git ignores."""
        from paper_checks.system.places import RECORDS

        return self.store or local_file(RECORDS / "local" / name, "--store FILE", "the store")

    def executors(self) -> Callable[[], Executor]:
        """What makes the executor that the runs go to."""
        from paper_checks.system.processes import Workers
        from sims.training.sweep import cluster

        return partial(Workers, self.num_workers) if self.scheduler is None else partial(cluster, self.scheduler)

    def deadline(self) -> float | None:
        """On the clock of time.monotonic, from now on."""
        return None if self.budget is None else time.monotonic() + 60 * self.budget


@contextmanager
def kept_runs(path: Path) -> Iterator[Store]:
    """The store. What is finished in this block is kept in it: an interrupt and a full disk are said in a line."""
    from sims.training.store import Store

    with refusing("--store"):
        kept = Store(path)
    with kept, telling(f"what was finished is in {path}, and the same command goes on from there"):
        try:
            yield kept
        except sqlite3.Error as error:
            raise BadInputError(f"{path}: {error}") from error


def say_of_others(kept: Store, configs: Iterable[Mapping[str, Any]]) -> None:
    """On standard error, how many of these runs were made by another version of depthlaw or of torch: a run is not made
    again for that."""
    from importlib.metadata import version

    from sims.training.store import key

    now = tuple(version(name).partition("+")[0] for name in ("depthlaw", "torch"))
    made = [kept.row(name).about.versions for name in kept.keys() & {key(config) for config in configs}]
    if others := sum((one.depthlaw, one.torch) != now for one in made):
        print(
            f"depthlaw: {others} of {len(made)} runs were made by another version of depthlaw or of torch; "
            "a new --store makes them again",
            file=sys.stderr,
        )


# ---------------------------------------------------------------- what is asked for


MOST_LAYERS = 10_000
MOST_RUNS = 100_000
_SOME_RECIPES = some_of(recipes)
_SOME_SCHEMES = some_of(lambda: [*schemes(), POST_LN_INIT])
_SOME_OPTIMIZERS = some_of(lambda: names(OPTIMIZERS))
_MODEL, _STEPS = "The model and its data", "How it is trained"


def _size(text: str, metavar: str, panel: str, called: str | None = None, least: int = 1, most: int = 10**6) -> Any:
    return option(text, metavar, panel, called=called, read=count, least=least, most=most)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of the runs: every scheme and recipe with every optimizer, depth, learning rate and seed.

    Those of the model and of how it is trained are called as the fields of a ``Trial`` that they become.
    """

    layers: Annotated[
        list[int],
        option("Layers N, comma-separated; of either side for nmt.", "LIST", read=counts, most=MOST_LAYERS),
    ]
    learning_rate: Annotated[
        list[float], option("At their peak, comma-separated: 1e-3,2e-3.", "LIST", read=some_positive)
    ]
    scheme: Annotated[
        list[str] | None,
        option(
            "Named schemes, comma-separated (`depthlaw schemes` lists them), and post-ln-init: DeepNet's control, "
            "Post-LN with the matrices of layer l of N divided by N - l + 1.",
            "LIST",
            complete=_SOME_SCHEMES,
            read=some_names,
        ),
    ] = None
    recipe: Annotated[
        list[str] | None,
        option(
            "Published models instead or beside, comma-separated; each has its own activation, norms and FFN width.",
            "LIST",
            complete=_SOME_RECIPES,
            read=some_names,
        ),
    ] = None
    optimizer: Annotated[
        list[str],
        option(f"Comma-separated: {OPTIMIZERS}.", "LIST", complete=_SOME_OPTIMIZERS, read=some_names),
    ] = ("adam",)  # pyright: ignore[reportAssignmentType]
    seeds: Annotated[int, option("Independent runs of each.", "K", read=count, most=10**6)] = 1
    seed: Annotated[int, option("The first one's seed.", "S", read=count, least=0, most=2**31)] = 0
    shape: Annotated[
        str,
        named("gpt, bert, nmt (encoder-decoder), vit, vit-masked (of digits) or speech (synthesised).", SHAPES, _MODEL),
    ] = "gpt"
    decoder_layers: Annotated[
        list[int] | None,
        option(
            "Layers M of nmt's decoder, one for each of --layers; N if left out.",
            "LIST",
            _MODEL,
            read=counts,
            most=MOST_LAYERS,
        ),
    ] = None
    d_model: Annotated[int, _size("d_model, a multiple of --heads.", "D", _MODEL, "--width")] = 32
    num_heads: Annotated[int, _size("Attention heads.", "H", _MODEL, "--heads")] = 2
    ffn_ratio: Annotated[int, _size("FFN width over d_model.", "R", _MODEL)] = 4
    activation: Annotated[str, named(f"{ANY_ACTIVATION}.", ANY_ACTIVATION, _MODEL)] = "gelu"
    norm_kind: Annotated[str, named(f"{NORM_KINDS}.", NORM_KINDS, _MODEL)] = "layernorm"
    num_tokens: Annotated[  # sims.training.data has this limit
        int,
        _size("Bytes (or frames) of a sequence, of either side; 4096 at most.", "T", _MODEL, "--tokens", most=4096),
    ] = 32
    text: Annotated[
        str | None,
        option(
            "Your own text, plain or .gz, for gpt and bert; else Python's own library.", "FILE", _MODEL, read=file_name
        ),
    ] = None
    parallel: Annotated[
        tuple[str, str] | None,
        option("Your own translation pairs, line by line, plain or .gz, for nmt.", "SRC TGT", _MODEL),
    ] = None
    num_steps: Annotated[int, _size("Optimizer steps.", "T", _STEPS, "--steps")] = 200
    batch_size: Annotated[int, _size("Sequences of a batch.", "B", _STEPS, "--batch")] = 16
    warmup_steps: Annotated[
        int, _size("Steps in which the learning rate rises.", "W", _STEPS, "--warmup", least=0, most=10**12)
    ] = 0
    warmup_from: Annotated[
        float, option("Where --warmup starts, as a share of the rate.", "C", _STEPS, read=number)
    ] = 0
    schedule: Annotated[str, named(f"Then {SCHEDULES}.", SCHEDULES, _STEPS)] = "constant"
    weight_decay: Annotated[float, option("Of matrices and tables.", "C", _STEPS, read=number)] = 0
    clip_norm: Annotated[
        float | None,
        option("Clip the norm of the whole gradient to this.", "C", _STEPS, called="--clip", read=number),
    ] = None
    precision: Annotated[str, named(f"{PRECISIONS} (mixed).", PRECISIONS, _STEPS)] = "float32"
    evaluate_every: Annotated[int, _size("Steps from one held-out loss to the next.", "E", _STEPS)] = 50
    measure_at: Annotated[
        list[int],
        option("Steps after which the update is measured, beside 0: 50,200.", "LIST", _STEPS, read=counts, least=0),
    ] = (0,)  # pyright: ignore[reportAssignmentType]


_OF_THE_GRID = ("scheme", "recipe", "optimizer", "layers", "decoder_layers", "learning_rate", "seed", "seeds")
_OPTIONS = {name: text for name, text in options_of(Asked).items() if "_" in name}
_OPTIONS |= {"num_layers": "--layers", "num_decoder_layers": "--decoder-layers"}
"""How the user writes a field of a ``Trial``; the rooms below name the field when they refuse one."""
_FIELD = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})(?![\w/-])")


def trials_of(asked: Asked) -> list[Trial]:
    """The grid: the first seed of all, then the next, so that a budget that ends has seen every row as often.

    A repeated entry counts once.
    """
    from paper_checks.lowering.trials import OF_RECIPE, Trial

    schemes = [*(asked.scheme or ()), *(f"{OF_RECIPE}{name}" for name in asked.recipe or ())]
    if not schemes:
        raise BadInputError("give --scheme or --recipe, comma-separated names (`depthlaw schemes` lists them)")
    own = [name for name in ("activation", "norm_kind", "ffn_ratio") if getattr(asked, name) != getattr(Asked, name)]
    if asked.recipe and own:
        raise BadInputError(f"--{own[0].replace('_', '-')} does not go with --recipe, which says it itself")
    decoders = asked.decoder_layers or [None] * len(asked.layers)
    if len(decoders) != len(asked.layers):
        raise BadInputError(f"--layers has {len(asked.layers)} entries and --decoder-layers {len(decoders)}: pair them")
    seeds, depths = range(asked.seed, asked.seed + asked.seeds), zip(asked.layers, decoders, strict=True)
    axes: list[list[Any]] = [
        list(dict.fromkeys(axis)) for axis in (seeds, schemes, asked.optimizer, depths, asked.learning_rate)
    ]
    if (num_runs := math.prod(map(len, axes))) > MOST_RUNS:
        raise BadInputError(f"the grid has {num_runs} runs; at most {MOST_RUNS} are allowed")
    for file in asked.parallel or ():
        file_name(file, "--parallel")
    if asked.warmup_from and not asked.warmup_steps:
        raise BadInputError("--warmup-from says where --warmup starts: give --warmup too")
    rest = {name: value for name, value in vars(asked).items() if name not in _OF_THE_GRID}
    rest["measure_at"] = tuple(sorted({0, *asked.measure_at}))  # 0: where the update is as theory predicts it
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
        raise BadInputError(_FIELD.sub(lambda field: _OPTIONS[field[0]], str(error))) from error


# ---------------------------------------------------------------- the command

_NOT_COMMON = ("scheme", "optimizer", "num_layers", "num_decoder_layers", "learning_rate", "seed", "numbers", "data")
"""Of a trial's names, those that are no part of the document's ``config``: its rows and runs have them."""


def run(
    asked: Asked,
    place: Place,
    checkpoint_every: Annotated[
        int | None,
        option(
            "Also keep a run that is under way, beside the store, every so many steps; without it, one that is killed "
            "begins again.",
            "STEPS",
            PLACE,
            read=count,
            most=10**9,
        ),
    ] = None,
    plot: Annotated[Path | None, option("Draw the losses: .png, .svg or .pdf.", "FILE", PLACE, read=plot_file)] = None,
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
    place.check()
    kept_in = place.store_file("training.sqlite")
    with refusing(), _by_option():
        trials = trials_of(asked)
        configs = {trial: trial.named() for trial in trials}
    if plot is not None:
        from paper_checks.pages.loss_plots import check_place, check_size

        with refusing():
            check_place(plot)
            check_size(trials)

    from paper_checks.lowering.trained_rows import about_data, kept_results, rows
    from paper_checks.lowering.trials import check_memory, execute
    from sims.measure import choose_device, device_name
    from sims.training.sweep import sweep

    with refusing():
        where = choose_device(place.device)
    checkpoints = None if checkpoint_every is None else kept_in.with_name(f"{kept_in.name}.checkpoints")
    train = partial(execute, device=where, checkpoints=checkpoints, checkpoint_every=checkpoint_every or 1)
    with refusing(), kept_runs(kept_in) as kept, counted("training", len(trials)) as advance:
        there = kept_results(kept, configs)
        if place.scheduler is None:  # whose workers have memory of their own
            check_memory((trial for trial, result in there.items() if result is None), where)
        report = sweep(
            list(configs.values()),
            train,
            kept,
            place.executors(),
            at_once=2 * place.num_workers,
            device=device_name(where),
            advance=advance,
            deadline=place.deadline(),
        )
        say_of_others(kept, configs.values())
        results = kept_results(kept, configs)
    answer = document(
        config={name: value for name, value in configs[trials[0]].items() if name not in _NOT_COMMON},
        seeds=list(dict.fromkeys(trial.seed for trial in trials)),
        data=about_data(trials[0]),
        rows=rows(results),
        sweep=_counted(report),
        store=str(kept_in),
        runs=[
            {"config": configs[trial], "result": None if result is None else result.plain()}
            for trial, result in results.items()
        ],
    )
    if plot is not None:
        from paper_checks.pages.loss_plots import draw

        draw(results, title(answer), answer["data"], plot)
    if as_json:
        print_json(answer)
    else:
        show(answer, plot)
    for line in dict.fromkeys(report.failed.values()):
        print(f"depthlaw: a run failed: {line}", file=sys.stderr)
    return 1 if report.failed else 0


def _counted(report: Report) -> dict[str, Any]:
    return {"done": report.done, "found": report.found, "failed": dict(report.failed), "left": report.left}


# ---------------------------------------------------------------- for people

_SHOWN_DIVERGED = 8


def show(answer: Mapping[str, Any], plot: Path | None) -> None:
    """plot: the figure that was written."""
    page = Page()
    page.say(title(answer), "bold")
    page.say(rest(answer["config"], [row["scheme"] for row in answer["rows"]]), "dim")
    page.say(f"Data: {answer['data']['about']}.", "dim")
    page.show(_outcomes(answer))
    for line in _meaning(answer):
        page.say(line, "dim")
    for line in _diverged(answer):
        page.say(line)
    if any(one["update"] for row in answer["rows"] for one in row["updates"]):
        page.show(_updates(answer))
        page.say(_UPDATES, "dim")
    for line in _notes(answer):
        page.say(line)
    page.wrote(plot)
    page.say_where(f"Kept in {answer['store']}.", "dim")


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    config, rows = answer["config"], answer["rows"]
    names = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ("scheme", "optimizer")}
    seeds = "1 seed" if len(answer["seeds"]) == 1 else f"{len(answer['seeds'])} seeds"
    return (
        f"{', '.join(names['scheme'])} under {', '.join(names['optimizer'])}: {config['shape']}, d_model "
        f"{config['d_model']}, {config['num_steps']} steps of {config['batch_size']} x {config['num_tokens']} tokens, "
        f"{seeds}"
    )


def rest(config: Mapping[str, Any], schemes: Iterable[str]) -> str:
    """What the title does not say. A recipe has an FFN width, an activation and norms of its own."""
    from paper_checks.lowering.trials import OF_RECIPE

    parts = [f"{config['num_heads']} heads", config["precision"]]
    if not all(name.startswith(OF_RECIPE) for name in schemes):
        parts[1:1] = [f"FFN {config['ffn_ratio']} d_model", config["activation"], config["norm_kind"]]
    schedule = config["schedule"]
    if config["warmup_steps"]:
        start = f" from {config['warmup_from']:g}" if config["warmup_from"] else ""
        schedule = f"warmup of {config['warmup_steps']} steps{start}, then {schedule}"
    parts.append(f"learning rate: {schedule}")
    parts += [f"weight decay {config['weight_decay']:g}"] if config["weight_decay"] else []
    parts += [] if config["clip_norm"] is None else [f"gradient clipped at {config['clip_norm']:g}"]
    return "; ".join(parts)


# ---------------------------------------------------------------- tables


def _place(answer: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, ...]:
    """The first cells of a line; the optimizer where there are several."""
    optimizer = [row["optimizer"]] if _has_optimizers(answer) else []
    return (row["scheme"], *optimizer, _layers(row), f"{row['learning_rate']:g}")


def _layers(row: Mapping[str, Any]) -> str:
    return "-".join(str(row[name]) for name in ("num_layers", "num_decoder_layers") if name in row)


def _has_optimizers(answer: Mapping[str, Any]) -> bool:
    return len({row["optimizer"] for row in answer["rows"]}) > 1


def _table(answer: Mapping[str, Any], *columns: str) -> Any:
    from rich.table import Table

    table = Table(padding=0)  # 80 columns are few for so many numbers
    names = ["scheme", "optimizer"] if _has_optimizers(answer) else ["scheme"]
    for name in names:
        # Of a fixed width: where a line is too long, numbers are wrapped before names.
        longest = max(len(text) for text in (name, *(row[name] for row in answer["rows"])))
        table.add_column(name, width=longest, overflow="fold")
    for name in ("layers", "rate", *columns):
        table.add_column(name, justify="right", overflow="fold")
    return table


def _outcomes(answer: Mapping[str, Any]) -> Any:
    table = _table(answer, "trained", "stuck", "diverged", "held-out")
    for row in answer["rows"]:
        share = row["trained"]
        trained = "-"
        if share is not None:
            trained = rf"{share['successes']} of {share['num']} \[{share['low']:.2g}, {share['high']:.2g}]"
        others = [str(row["outcomes"][name]) if row["num_runs"] else "-" for name in ("stuck", "diverged")]
        table.add_row(*_place(answer, row), trained, *others, _mean(row["held_out"]))
    return table


def _updates(answer: Mapping[str, Any]) -> Any:
    table = _table(answer, "step", "update", "of its start", "logits moved")
    for row in answer["rows"]:
        for index, one in enumerate(row["updates"]):
            place = _place(answer, row)
            cells = (_mean(one["update"], ends=False), _mean(one["ratio"]), _mean(one["from_start"], ends=False))
            table.add_row(
                *(place if index == 0 else [""] * len(place)),
                str(one["step"]),
                *cells,
                end_section=len(row["updates"]) > 1 and index == len(row["updates"]) - 1,
            )
    return table


def _mean(found: Mapping[str, Any] | None, *, ends: bool = True) -> str:
    if found is None:
        return "-"
    has_ends = ends and found["low"] is not None and found["low"] < found["high"]
    return f"{found['mean']:.3g}" + (rf" \[{found['low']:.2g}, {found['high']:.2g}]" if has_ends else "")


# ---------------------------------------------------------------- words

_UPDATES = (
    "update: what a step of the branch matrices changes a logit of held-out data by, to first order, per unit "
    "learning rate, in the unit of `depthlaw measure`; then its ratio to that at step 0, and how far (rms) the logits "
    "have moved. Means over seeds."
)


def _meaning(answer: Mapping[str, Any]) -> Iterator[str]:
    data, patience = answer["data"], answer["config"]["patience"]
    yield (
        f"Losses in nats a label: {data['guess']:.4g} without looking at the input, {data['uniform']:.4g} by a uniform "
        f"guess of {data['num_classes']}. Held-out: means of the runs that did not diverge. [ ]: 95 % intervals, of "
        "shares the exact one."
    )
    yield (
        f"trained: the held-out loss ends below {data['guess']:.4g}. diverged: the training loss is not finite, or "
        f"stands above the held-out loss at the start for {patience} steps running (the first {patience} not counted), "
        "or the held-out loss ends above it. stuck: neither."
    )


def _diverged(answer: Mapping[str, Any]) -> Iterator[str]:
    lines = [
        f"{row['scheme']} under {row['optimizer']} at {row['learning_rate']:g}, {_layers(row)} layers, seed "
        f"{one['seed']}, diverged after {one['num_steps']} steps: {one['reason']}."
        for row in answer["rows"]
        for one in row["diverged"]
    ]
    yield from lines[:_SHOWN_DIVERGED]
    if len(lines) > _SHOWN_DIVERGED:
        yield f"{len(lines) - _SHOWN_DIVERGED} more diverged: --json has them."


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    found = answer["sweep"]
    text = f"Runs: {found['done']} done now, {found['found']} found."
    if found["failed"]:
        text += f" Failed: {len(found['failed'])}, which the same command tries again."
    if found["left"]:
        text += f" Left when the budget was spent: {found['left']}; the same command goes on with them."
    yield text
