"""``depthlaw experiment``: its options. Only typer is imported here, as in ``paper_checks.cli.app``."""

from __future__ import annotations

from typing import Annotated

import typer

from paper_checks.cli.choices import DEVICES, EXPERIMENTS, SCALES, one_of


def experiment(
    name: Annotated[str, typer.Argument(help=f"{EXPERIMENTS}.", metavar="NAME", autocompletion=one_of(EXPERIMENTS))],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be run, and how many seeds decide.")] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="No run begins after so many minutes; the same command goes on.", metavar="MINUTES"),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Instead of what the plan says.", metavar="K")] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="small: two cores. large: 512 wide, 20 times as long, bfloat16, a GPU.",
            metavar="NAME",
            autocompletion=one_of(SCALES),
        ),
    ] = "small",
    workers: Annotated[
        str | None, typer.Option(help="Runs at once, each on one core; as many as cores if left out.", metavar="N")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on a Dask cluster instead: tcp://HOST:PORT.", metavar="ADDRESS")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Keep runs there; in sims/records/local if left out.", metavar="FILE"),
    ] = None,
    from_record: Annotated[
        bool, typer.Option("--from-record", help="Begin with the project's own runs, which this Python's data fit.")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(help="Also write the runs as JSON Lines, as the project's record is.", metavar="FILE"),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU where there is one), cpu or cuda.", metavar="NAME", autocompletion=one_of(DEVICES)
        ),
    ] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")
    ] = False,
) -> None:
    """Train what decides the claims that only training can decide, and say what it decides.

    stable-rates: the largest learning rate at which each scheme trains, by
    depth, and whether the update at initialisation predicts it. warmup:
    translation at 18 layers on either side. thousand-layers: who trains there,
    and how far. own-row: each optimizer with its own row of the table and with
    the others'. TRAINING.md has what the project found.
    """
    from paper_checks.cli.experiment import run

    code = run(
        name,
        scale=scale,
        seeds=seeds,
        budget=budget,
        workers=workers,
        scheduler=scheduler,
        store=store,
        has_record=from_record,
        export_to=export,
        device=device,
        is_plan=plan,
        as_json=as_json,
    )
    raise typer.Exit(code)
