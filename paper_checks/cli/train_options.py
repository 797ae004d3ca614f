"""``depthlaw train``: its options. Only typer is imported here, as in ``paper_checks.cli.app``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paper_checks.cli.choices import (
    BUILT_ACTIVATIONS,
    DEVICES,
    NORM_KINDS,
    OPTIMIZERS,
    POST_LN_INIT,
    PRECISIONS,
    SCHEDULES,
    SHAPES,
    Completion,
    lowered,
    names,
    one_of,
    schemes,
    some_of,
)

_MODEL, _STEPS, _RUNS = "The model and its data", "How it is trained", "Where it runs, and what is shown"


def _lowered(choices: str | None) -> Any:
    return None if choices is None else lowered


def _of(choices: str | None) -> Completion | None:
    return None if choices is None else one_of(choices)


def _model(text: str, metavar: str, choices: str | None = None) -> Any:
    return typer.Option(
        help=text, metavar=metavar, rich_help_panel=_MODEL, autocompletion=_of(choices), callback=_lowered(choices)
    )


def _steps(text: str, metavar: str, choices: str | None = None) -> Any:
    return typer.Option(help=text, metavar=metavar, rich_help_panel=_STEPS, autocompletion=_of(choices))


def _runs(text: str, metavar: str | None = None, *names: str, choices: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_RUNS, autocompletion=_of(choices))


def train(
    scheme: Annotated[
        str,
        typer.Option(
            help="Named schemes, comma-separated (`depthlaw schemes` lists them), and post-ln-init: DeepNet's "
            "control, Post-LN with the matrices of layer l of N divided by N - l + 1.",
            metavar="LIST",
            autocompletion=some_of(lambda: [*schemes(), POST_LN_INIT]),
            callback=lowered,
        ),
    ],
    layers: Annotated[str, typer.Option(help="Layers N, comma-separated; of either side for nmt.", metavar="LIST")],
    learning_rate: Annotated[str, typer.Option(help="At their peak, comma-separated: 1e-3,2e-3.", metavar="LIST")],
    optimizer: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated: {OPTIMIZERS}.",
            metavar="LIST",
            autocompletion=some_of(lambda: names(OPTIMIZERS)),
            callback=lowered,
        ),
    ] = "adam",
    seeds: Annotated[str, typer.Option(help="Independent runs of each.", metavar="K")] = "1",
    seed: Annotated[str, typer.Option(help="The first one's seed.", metavar="S")] = "0",
    shape: Annotated[
        str,
        _model(
            "gpt, bert, nmt (encoder-decoder), vit, vit-masked (of digits) or speech (synthesised).", "NAME", SHAPES
        ),
    ] = "gpt",
    decoder_layers: Annotated[
        str | None, _model("Layers M of nmt's decoder, one for each of --layers; N if left out.", "LIST")
    ] = None,
    width: Annotated[str, _model("d_model, a multiple of --heads.", "D")] = "32",
    heads: Annotated[str, _model("Attention heads.", "H")] = "2",
    ffn_ratio: Annotated[str, _model("FFN width over d_model.", "R")] = "4",
    activation: Annotated[str, _model(f"{BUILT_ACTIVATIONS}.", "NAME", BUILT_ACTIVATIONS)] = "gelu",
    norm_kind: Annotated[str, _model(f"{NORM_KINDS}.", "NAME", NORM_KINDS)] = "layernorm",
    tokens: Annotated[str, _model("Bytes (or frames) of a sequence, of either side; 4096 at most.", "T")] = "32",
    text: Annotated[
        str | None, _model("Your own text, plain or .gz, for gpt and bert; else Python's own library.", "FILE")
    ] = None,
    parallel: Annotated[
        tuple[str, str] | None, _model("Your own translation pairs, line by line, plain or .gz, for nmt.", "SRC TGT")
    ] = None,
    steps: Annotated[str, _steps("Optimizer steps.", "T")] = "200",
    batch: Annotated[str, _steps("Sequences of a batch.", "B")] = "16",
    warmup: Annotated[str, _steps("Steps in which the learning rate rises.", "W")] = "0",
    warmup_from: Annotated[str, _steps("Where --warmup starts, as a share of the rate.", "C")] = "0",
    schedule: Annotated[str, _steps(f"Then {SCHEDULES}.", "NAME", SCHEDULES)] = "constant",
    weight_decay: Annotated[str, _steps("Of matrices and tables.", "C")] = "0",
    clip: Annotated[str | None, _steps("Clip the norm of the whole gradient to this.", "C")] = None,
    precision: Annotated[str, _steps(f"{PRECISIONS} (mixed).", "NAME", PRECISIONS)] = "float32",
    evaluate_every: Annotated[str, _steps("Steps from one held-out loss to the next.", "E")] = "50",
    measure_at: Annotated[str, _steps("Steps after which the update is measured, beside 0: 50,200.", "LIST")] = "0",
    workers: Annotated[str | None, _runs("Runs at once, each on one core; as many as cores if left out.", "N")] = None,
    scheduler: Annotated[str | None, _runs("Run on a Dask cluster instead: tcp://HOST:PORT.", "ADDRESS")] = None,
    budget: Annotated[
        str | None, _runs("No run begins after so many minutes; the same command goes on later.", "MINUTES")
    ] = None,
    store: Annotated[
        str | None, _runs("Keep runs there; sims/records/local/training.sqlite if left out.", "FILE")
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        _runs(
            "Also keep a run that is under way, beside the store, every so many steps; without it, one that is killed "
            "begins again.",
            "STEPS",
        ),
    ] = None,
    device: Annotated[str, _runs("auto (a GPU where there is one), cpu or cuda.", "NAME", choices=DEVICES)] = "auto",
    plot: Annotated[str | None, _runs("Draw the losses: .png, .svg or .pdf.", "FILE")] = None,
    as_json: Annotated[bool, _runs("One JSON document on standard output, nothing else.", None, "--json")] = False,
) -> None:
    """Train real networks: every scheme with every optimizer, depth, learning rate and seed of the lists.

    What became of each by a stated rule (trained, stuck, diverged), the
    held-out loss beside what can be had without looking at the input, and the
    update at initialisation and later. Runs are kept: the same command again
    repeats none of them, and one that was stopped goes on.
    """
    from paper_checks.cli.train import Asked, run

    asked = Asked(
        grid={"--scheme": scheme, "--optimizer": optimizer, "--layers": layers, "--learning-rate": learning_rate},
        decoder_layers=decoder_layers,
        seeds=(seed, seeds),
        names={
            "shape": shape,
            "activation": activation,
            "norm_kind": norm_kind,
            "schedule": schedule,
            "precision": precision,
        },
        counts={
            "d_model": ("--width", width),
            "num_heads": ("--heads", heads),
            "ffn_ratio": ("--ffn-ratio", ffn_ratio),
            "num_tokens": ("--tokens", tokens),
            "batch_size": ("--batch", batch),
            "num_steps": ("--steps", steps),
            "evaluate_every": ("--evaluate-every", evaluate_every),
        },
        warmup=warmup,
        numbers={
            "warmup_from": ("--warmup-from", warmup_from),
            "weight_decay": ("--weight-decay", weight_decay),
            "clip_norm": ("--clip", clip),
        },
        text=text,
        parallel=parallel,
        measure_at=measure_at,
    )
    code = run(
        asked,
        workers=workers,
        scheduler=scheduler,
        budget=budget,
        store=store,
        checkpoint_every=checkpoint_every,
        device=device,
        plot=plot,
        as_json=as_json,
    )
    raise typer.Exit(code)
