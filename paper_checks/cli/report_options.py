"""``depthlaw report``: its options. Only typer is imported here, as in ``paper_checks.cli.app``."""

from __future__ import annotations

from typing import Annotated

import typer

from paper_checks.cli.network_options import Json


def report(
    out: Annotated[
        str,
        typer.Option(
            help="The folder to write; made if absent, with those above it. Only a report is ever replaced.",
            metavar="DIR",
        ),
    ],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="What `depthlaw verify --out FILE` wrote; without it, verifies first.", metavar="FILE"
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Verify with the generated tables; measure nothing, try no mutants. About a minute."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """A static site of everything that was found: open its index.html, no server and no network needed.

    Every printed statement typeset, with its verdict, evidence, derivation,
    counterexample and figures; the graph of claims; the tables; predicted against
    measured. Exit 1 where a verdict is not as expected: the site is written all
    the same, and says so on its first page.
    """
    from paper_checks.cli.report import run

    raise typer.Exit(run(out, document_file=from_, quick=quick, as_json=as_json))
