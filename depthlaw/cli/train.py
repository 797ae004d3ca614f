"""``depthlaw train``: a grid of training runs, kept as they end, and what became of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.cli import plan
from depthlaw.cli.plan import Machines
from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import MORE, REQUIRED, BadInputError, option, refusing
from depthlaw.cli.shared.output import counted, number_of, print_json, say
from depthlaw.cli.shared.place import Place, kept_runs, say_of_others
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.network.trials import Trial

EXAMPLES = (
    "train --scheme post-ln,deepnorm --layers 6,24 --learning-rate 1e-3,4e-3 --seeds 3 --budget 10",
    "train --scheme post-ln,admin --shape nmt --layers 18 --learning-rate 1e-3 --steps 400 --warmup 100",
    "train --recipe gpt2,llama-3 --layers 2,8 --width 64 --heads 4 --learning-rate 1e-3",
    "train --recipe llama-2 --layers 32 --width 4096 --heads 32 --tokens 4096 --batch 1024 --learning-rate 1e-4 --plan",
    "train --scheme pre-ln --shape gpt --text book.txt.gz --layers 4 --learning-rate 2e-3 --plot book.svg",
)


# ---------------------------------------------------------------- what is asked for


MOST_RUNS = 10_000
"""Of one command: to name, look up and hand out so many takes a few seconds."""
_MODEL, _STEPS = "The model and its data", "How it is trained"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of the runs: every scheme and recipe with every optimizer, depth, learning rate and seed.

    Those of the model and of how it is trained are called as the fields of a ``Trial`` that they become.
    """

    layers: list[int] = option(
        "The number N of layers, or several, with commas; for nmt, of the encoder.", REQUIRED, most=10_000
    )
    learning_rate: list[float] = option(
        "The learning rate at its peak, or several, with commas: 1e-3,2e-3.", REQUIRED, least=1e-300, most=1e9
    )
    scheme: list[str] | None = option(
        "Named schemes, with commas; `depthlaw schemes` lists them. Beside these there is post-ln-init, DeepNet's "
        "control: Post-LN with the matrices of layer l of N divided by N - l + 1.",
        complete=options.some_of(lambda: [*options.schemes(), options.POST_LN_INIT]),
    )
    recipe: list[str] | None = option(
        "Published models, with commas. Each has its own activation, norms and FFN width.",
        complete=options.some_of(options.recipes),
    )
    optimizer: list[str] = option(
        f"The optimizer, or several, with commas: {options.OPTIMIZERS}.",
        "adam",
        complete=options.some_of(lambda: options.names(options.OPTIMIZERS)),
    )
    seeds: int = option("The number of independent runs of each.", 1)
    seed: int = option("The seed of the first of them.", 0, least=0, most=2**31)
    shape: str = option(
        "The task: a language model (gpt, gpt-help, bert), translation by an encoder-decoder (nmt), images of digits "
        "(vit, vit-masked), or synthesised sound (speech).",
        "gpt",
        _MODEL,
        known=options.SHAPES,
    )
    decoder_layers: list[int] | None = option(
        "The layers of nmt's decoder, one for each of --layers; as many if left out.", None, _MODEL, most=10_000
    )
    d_model: int = option("The width d_model, a multiple of --heads.", 32, _MODEL, called="--width")
    num_heads: int = option("The number of attention heads.", 2, _MODEL, called="--heads")
    ffn_ratio: int = option("The FFN's width over d_model.", 4, _MODEL)
    activation: str = option("The activation of the FFNs", "gelu", _MODEL, known=options.ANY_ACTIVATION)
    norm_kind: str = option("The kind of norm", "layernorm", _MODEL, known=options.NORM_KINDS)
    num_tokens: int = option(  # depthlaw.sims.training.data has this limit
        "The number of bytes (or frames) in a sequence; 4096 at most.", 32, _MODEL, called="--tokens", most=4096
    )
    text: str | None = option(
        "A text of your own, plain or .gz, for gpt and bert.", None, _MODEL, metavar="FILE", read=options.file_name
    )
    parallel: tuple[str, str] | None = option(
        "Two texts of your own, line by line, plain or .gz, for nmt.", None, _MODEL, metavar="SRC TGT"
    )
    num_steps: int = option("The number of optimizer steps.", 200, _STEPS, called="--steps")
    batch_size: int = option("The number of sequences in a batch.", 16, _STEPS, called="--batch")
    warmup_steps: int = option(
        "The number of warm-up steps, in which the learning rate rises.",
        0,
        _STEPS,
        called="--warmup",
        least=0,
        most=10**12,
    )
    warmup_from: float = option("The share of the peak that --warmup starts at.", 0, _STEPS)
    schedule: str = option("The learning rate after the warmup", "constant", _STEPS, known=options.SCHEDULES)
    weight_decay: float = option("The weight decay of matrices and tables.", 0, _STEPS)
    clip_norm: float | None = option(
        "Clip the norm of the whole gradient to this number.", None, _STEPS, called="--clip"
    )
    precision: str = option(
        "The precision, where bfloat16 is mixed with float32", "float32", _STEPS, known=options.PRECISIONS
    )
    evaluate_every: int = option("The number of steps between two held-out losses.", 50, _STEPS)
    measure_at: list[int] = option(
        "The steps after which the update is measured, with commas: 50,200. It is always measured before the first.",
        0,
        _STEPS,
        least=0,
    )
    has_moves: bool = option(
        "At the steps of --measure-at, also measure what the next step really moves, by role; how much of that another "
        "batch shares; and the scale of the weights. Each such step takes as long as a dozen others.",
        False,
        _STEPS,
        called="--moves",
    )


_OF_THE_GRID = ("scheme", "recipe", "optimizer", "layers", "decoder_layers", "learning_rate", "seed", "seeds")
_OPTIONS = {name: text for name, text in options.options_of(Asked).items() if "_" in name}
_OPTIONS |= {"num_layers": "--layers", "num_decoder_layers": "--decoder-layers"}
"""How the user writes a field of a ``Trial``; the rooms below name the field when they refuse one."""
_FIELD = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})(?![\w/-])")


def trials_of(asked: Asked) -> list[Trial]:
    """The grid: the first seed of all, then the next, so that a budget that ends has seen every row as often.

    A repeated entry counts once.
    """
    from depthlaw.network.trials import OF_RECIPE, Trial

    schemes = [*(asked.scheme or ()), *(f"{OF_RECIPE}{name}" for name in asked.recipe or ())]
    if not schemes:
        raise BadInputError("give --scheme or --recipe, comma-separated names (`depthlaw schemes` lists them)")
    usual = options.defaults_of(Asked)
    changed = [name for name in ("activation", "norm_kind", "ffn_ratio") if getattr(asked, name) != usual[name]]
    if asked.recipe and changed:
        raise BadInputError(f"--{changed[0].replace('_', '-')} does not go with --recipe, which says it itself")
    decoders = asked.decoder_layers or [None] * len(asked.layers)
    options.check_pairs(asked.layers, decoders)
    seeds, depths = range(asked.seed, asked.seed + asked.seeds), zip(asked.layers, decoders, strict=True)
    axes: list[list[Any]] = [
        list(dict.fromkeys(axis)) for axis in (seeds, schemes, asked.optimizer, depths, asked.learning_rate)
    ]
    if (num_runs := math.prod(map(len, axes))) > MOST_RUNS:
        raise BadInputError(
            f"the grid has {num_runs} runs; at most {MOST_RUNS} are allowed (several commands may share a --store)"
        )
    for file in asked.parallel or ():
        options.file_name(file, "--parallel")
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
def refusing_fields() -> Iterator[None]:
    """As ``refusing``, where the rooms below name fields: the user knows the options in their place."""
    with refusing():
        try:
            yield
        except ValueError as error:
            raise BadInputError(_FIELD.sub(lambda field: _OPTIONS[field[0]], str(error))) from error


# ---------------------------------------------------------------- the command


def planned(asked: Asked, machines: Machines, *, as_json: bool) -> int:
    """Say what each scheme under each optimizer at each depth would take."""
    from depthlaw.network.planned import document_of_plans

    with refusing_fields():
        trials = trials_of(asked)
        hardware = machines.hardware(trials[0].precision)
        answer = document_of_plans(trials, hardware, machines.nodes, vocabulary=machines.vocabulary)
    if as_json:
        print_json(answer)
    else:
        plan.show(answer)
    return 0


def run(
    asked: Asked,
    place: Place,
    machines: Machines,
    checkpoint_every: int | None = option(
        "Also keep a run that is under way, every so many steps, so that a killed one goes on.", None, MORE, most=10**9
    ),
    recompute: bool = option(
        "Compute each sublayer again in the backward pass, which keeps less in memory and changes no number.",
        False,
        MORE,
    ),
    plot: Path | None = option("Draw the losses to a .png, .svg or .pdf file.", None, MORE, suffixes=options.FIGURES),
    as_json: bool = options.JSON,
) -> int:
    """Train real networks: every scheme with every optimizer, depth, learning rate and seed of the lists.

    The answer says what became of each run by a stated rule (trained, stuck or
    diverged), puts the held-out loss beside what can be had without looking at
    the input, and shows the update at initialisation and later. Runs are kept:
    the same command does not repeat them, and one that was stopped goes on.

    A model too large for one device: `torchrun --nproc-per-node 8 --no-python
    depthlaw train ...` cuts each run over 8 processes, a GPU each.
    """
    if machines.plan:
        return planned(asked, machines, as_json=as_json)
    # Everything that can be wrong with the input is said before anything is trained. 1: a run could not be done,
    # which is not one that diverged.
    kept_in = place.store_file("training.sqlite")
    with refusing_fields():
        trials = trials_of(asked)
        configs = {trial: trial.named() for trial in trials}
    if plot is not None:
        from depthlaw.paper_checks.pages.loss_plots import check_place, check_size

        with refusing():
            check_place(plot)
            check_size(trials)

    from depthlaw.network.trained_rows import document_of_runs, kept_results
    from depthlaw.network.trials import execute, kind_of
    from depthlaw.sims.training.sweep import by_itself, sweep

    checkpoints = None if checkpoint_every is None else kept_in.resolve().with_name(f"{kept_in.name}.checkpoints")
    train = partial(
        execute,
        folder=str(Path.cwd()),
        checkpoints=checkpoints,
        checkpoint_every=checkpoint_every or 1,
        recomputes=recompute,
    )
    with refusing():
        processes = place.processes()
    if processes is not None and trials[0].batch_size < processes.num:
        if processes.rank:  # it is said once
            return 2
        raise BadInputError(
            f"--batch {trials[0].batch_size}: each of the {processes.num} processes has a sequence of its own "
            f"(allowed: {processes.num} and up)"
        )
    if processes is not None:
        train = partial(train, processes=processes, device=processes.mesh.device_type)
        if processes.rank:
            with refusing():
                processes.follow(train)
            return 0
    num_processes = 1 if processes is None else processes.num
    others = nullcontext() if processes is None else processes.dismissing()
    with refusing(), kept_runs(kept_in, checkpoints) as kept, counted("training", len(trials)) as advance, others:
        there = kept_results(kept, configs)
        todo = (trial for trial, result in there.items() if result is None)
        make_executor, workers = place.workers_of(todo, num_processes=num_processes, recomputes=recompute)
        report = sweep(
            list(configs.values()),
            partial(train, device=workers.device) if processes is None else processes.leading(train),
            kept,
            make_executor,
            kind_of=by_itself if processes else partial(kind_of, device=workers.device, free=workers.free),
            at_once=2 * workers.num_workers,
            device=workers.device_name,
            advance=advance,
            deadline=place.deadline(),
        )
        say_of_others(kept, configs.values())
        results = kept_results(kept, configs)
    answer = document_of_runs(results, configs, report, kept_in)
    if plot is not None:
        from depthlaw.paper_checks.pages.loss_plots import draw

        draw(results, title(answer), answer["data"], plot)
    if as_json:
        print_json(answer)
    else:
        show(answer, plot)
    for line in dict.fromkeys(report.failed.values()):
        say(f"a run failed: {line}")
    return 1 if report.failed else 0


# ---------------------------------------------------------------- for people

_SHOWN_DIVERGED = 8


def show(answer: Mapping[str, Any], plot: Path | None) -> None:
    """plot: the figure that was written."""
    page, rows = Page(), answer["rows"]
    page.say(title(answer), "bold")
    page.say(rest(answer["config"], [row["scheme"] for row in rows]), "dim")
    page.say(f"Data: {answer['data']['about']}.", "dim")
    page.show(_outcomes(answer))
    page.say(_meaning(answer), "dim")
    diverged = [
        f"{row['scheme']} under {row['optimizer']} at {row['learning_rate']:g}, {_layers(row)} layers, seed "
        f"{run['seed']}, diverged after {run['num_steps']} steps: {run['reason']}."
        for row in rows
        for run in row["diverged"]
    ]
    for line in diverged[:_SHOWN_DIVERGED]:
        page.say(line)
    if len(diverged) > _SHOWN_DIVERGED:
        page.say(f"{len(diverged) - _SHOWN_DIVERGED} more diverged: --json has them.")
    if any(step["update"] for row in rows for step in row["updates"]):
        page.show(_updates(answer))
        page.say(_UPDATES, "dim")
    if any(step["moves"] for row in rows for step in row["updates"]):
        page.say(_MOVES, "dim")
    sweep = answer["sweep"]
    page.say(f"Runs: {sweep['done']} done now, {sweep['found']} found.")
    if sweep["failed"]:
        page.say(f"Failed: {len(sweep['failed'])}, which the same command tries again.")
    if sweep["left"]:
        page.say(f"Left when the budget was spent: {sweep['left']}; the same command goes on with them.")
    page.wrote(plot)
    page.say_where(f"Kept in {answer['store']}.", "dim")


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    config, rows = answer["config"], answer["rows"]
    schemes, optimizers = (", ".join(dict.fromkeys(row[name] for row in rows)) for name in ("scheme", "optimizer"))
    return (
        f"{schemes} under {optimizers}: {config['shape']}, d_model {config['d_model']}, {config['num_steps']} steps of "
        f"{config['batch_size']} x {config['num_tokens']} tokens, {number_of(len(answer['seeds']), 'seed')}"
    )


def rest(config: Mapping[str, Any], schemes: Iterable[str]) -> str:
    """What the title does not say. A recipe has an FFN width, an activation and norms of its own."""
    from depthlaw.network.trials import OF_RECIPE

    parts = [f"{config['num_heads']} heads"]
    if not all(name.startswith(OF_RECIPE) for name in schemes):
        parts += [f"FFN {config['ffn_ratio']} d_model", config["activation"], config["norm_kind"]]
    warmup = f"warmup of {config['warmup_steps']} steps from {config['warmup_from']:g}, then "
    parts += [config["precision"], f"learning rate: {warmup if config['warmup_steps'] else ''}{config['schedule']}"]
    parts += [f"weight decay {config['weight_decay']:g}"] if config["weight_decay"] else []
    parts += [] if config["clip_norm"] is None else [f"gradient clipped at {config['clip_norm']:g}"]
    return "; ".join(parts)


# ---------------------------------------------------------------- tables


def _layers(row: Mapping[str, Any]) -> str:
    return "-".join(str(row[name]) for name in ("num_layers", "num_decoder_layers") if name in row)


def _place(answer: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    """The first cells of a line; the optimizer where there are several."""
    cells = {"scheme": row["scheme"], "optimizer": row["optimizer"], "layers": _layers(row)}
    if len({other["optimizer"] for other in answer["rows"]}) == 1:
        del cells["optimizer"]
    return cells | {"rate": f"{row['learning_rate']:g}"}


def _table(answer: Mapping[str, Any], columns: Iterable[str], lines: Iterable[list[str] | None]) -> Any:
    names = ("scheme", "optimizer")
    heads = [*_place(answer, answer["rows"][0]), *columns]
    return grid(heads, lines, names, unbroken=names, padding=0)  # 80 columns are few for so many numbers


def _outcomes(answer: Mapping[str, Any]) -> Any:
    def line(row: Mapping[str, Any]) -> list[str]:
        share, trained = row["trained"], "-"
        if share is not None:
            trained = rf"{share['successes']} of {share['num']} \[{share['low']:.2g}, {share['high']:.2g}]"
        others = [str(row["outcomes"][name]) if row["num_runs"] else "-" for name in ("stuck", "diverged")]
        return [*_place(answer, row).values(), trained, *others, _mean(row["held_out"])]

    return _table(answer, ("trained", "stuck", "diverged", "held-out"), map(line, answer["rows"]))


def _updates(answer: Mapping[str, Any]) -> Any:
    has_moves = any(step["moves"] for row in answer["rows"] for step in row["updates"])

    def lines() -> Iterator[list[str] | None]:
        for row in answer["rows"]:
            first = list(_place(answer, row).values())
            for step in row["updates"]:
                means = [_mean(step["update"], ends=False), _mean(step["ratio"]), _mean(step["from_start"], ends=False)]
                both = (step["moves"], step["moves_in_full"]) if has_moves else ()
                means += [_mean(moves.get("update"), ends=False) for moves in both]
                yield [*first, str(step["step"]), *means]
                first = [""] * len(first)
            if len(row["updates"]) > 1:
                yield None

    heads = ("step", "update", "of its start", "logits moved", *(["step moves", "in full"] if has_moves else []))
    return _table(answer, heads, lines())


def _mean(estimate: Mapping[str, Any] | None, *, ends: bool = True) -> str:
    if estimate is None:
        return "-"
    has_ends = ends and estimate["low"] is not None and estimate["low"] < estimate["high"]
    return f"{estimate['mean']:.3g}" + (rf" \[{estimate['low']:.2g}, {estimate['high']:.2g}]" if has_ends else "")


# ---------------------------------------------------------------- words

_UPDATES = (
    "update: what a step of the branch matrices changes a logit of held-out data by, to first order, per unit "
    "learning rate, in the unit of `depthlaw measure`; then its ratio to that at step 0, and how far (rms) the logits "
    "have moved. Means over seeds."
)
_MOVES = (
    "step moves: what the optimizer's next step really changes held-out logits by (rms) through the branch matrices, "
    "to first order, per unit learning rate; in full: not to first order alone. --json has both by role."
)


def _meaning(answer: Mapping[str, Any]) -> str:
    data, patience = answer["data"], answer["config"]["patience"]
    return (
        f"Losses in nats a label: {data['guess']:.4g} without looking at the input, {data['uniform']:.4g} by a uniform "
        f"guess of {data['num_classes']}. Held-out: means of the runs that did not diverge. [ ]: 95 % intervals, of "
        f"shares the exact one.\ntrained: the held-out loss ends below {data['guess']:.4g}. diverged: the training "
        f"loss is not finite, or stands above the held-out loss at the start for {patience} steps running (the first "
        f"{patience} not counted), or the held-out loss ends above it. stuck: neither."
    )
