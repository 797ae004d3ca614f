"""``depthlaw rule``: its options. Only typer is imported here, as in ``paper_checks.cli.app``."""

from __future__ import annotations

from typing import Annotated

import typer

from paper_checks.cli.choices import ARCHITECTURES, NORMS, SELECTIONS, lowered, one_of
from paper_checks.cli.network_options import Activation, Json, NormKind, Optimizer


def rule(
    norm: Annotated[
        str,
        typer.Option(
            help=f"Where the norms stand: {NORMS}.", metavar="NAME", autocompletion=one_of(NORMS), callback=lowered
        ),
    ],
    optimizer: Optimizer,
    arch: Annotated[
        str,
        typer.Option(help=f"{ARCHITECTURES}.", metavar="NAME", autocompletion=one_of(ARCHITECTURES), callback=lowered),
    ],
    layers: Annotated[
        str,
        typer.Option(help="Layers (blocks) of an encoder, N in formulas; of a decoder alone, M there.", metavar="N"),
    ],
    decoder_layers: Annotated[
        str | None, typer.Option(help="Layers M of the decoder, for encoder-decoder.", metavar="M")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            help=f"Member of the family: {SELECTIONS}.",
            metavar="NAME",
            autocompletion=one_of(SELECTIONS),
            callback=lowered,
        ),
    ] = None,
    activation: Activation = "relu",
    norm_kind: NormKind = "layernorm",
    width: Annotated[
        str | None,
        typer.Option(help="d_model: what share of the update the other parameters have at it.", metavar="D"),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Also other ways to hold the update, and every step of the argument.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Which residual weight, init gain and learning rate to use, what that leaves open, and with --why why."""
    from paper_checks.cli.rule import run

    choice = (norm, optimizer, arch, layers, decoder_layers, select, activation, norm_kind)
    run(*choice, width, has_why=why, as_json=as_json)
