"""The options that several commands share, most of them of a network. Only typer is imported here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paper_checks.cli.choices import (
    ACTIVATIONS,
    ARCHITECTURES,
    LOSSES,
    NORM_KINDS,
    OPTIMIZERS,
    PLACEMENTS,
    READOUTS,
    lowered,
    one_of,
    one_scheme,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]


def _named(text: str, choices: str) -> Any:
    return typer.Option(help=text, metavar="NAME", autocompletion=one_of(choices), callback=lowered)


Optimizer = Annotated[str, _named(f"{OPTIMIZERS}.", OPTIMIZERS)]
Scheme = Annotated[
    str | None,
    typer.Option(
        help="A named scheme; `depthlaw schemes` lists them.",
        metavar="NAME",
        autocompletion=one_scheme,
        callback=lowered,
    ),
]
Sublayers = Annotated[str | None, typer.Option(help="Residual sublayers L, comma-separated: 4,8,16.", metavar="LIST")]
Activation = Annotated[str, _named(f"{ACTIVATIONS}.", ACTIVATIONS)]
NormKind = Annotated[str, _named(f"{NORM_KINDS}.", NORM_KINDS)]
GainsIn = Annotated[str | None, typer.Option("--w", help="Gains of W1 by sublayer: a list, or @FILE.", metavar="LIST")]
GainsOut = Annotated[str | None, typer.Option("--v", help="Gains of W2 by sublayer: a list, or @FILE.", metavar="LIST")]
Norm = Annotated[
    str | None,
    _named(f"A scheme of one's own: {PLACEMENTS}.", PLACEMENTS),
]
ResidualWeight = Annotated[str | None, typer.Option(help="With --norm: a = C L^P.", metavar="C,P")]
BranchWeight = Annotated[str | None, typer.Option(help="With --norm: b = C L^P.", metavar="C,P")]
Gain = Annotated[str | None, typer.Option(help="With --norm: the gains w = v = C L^P.", metavar="C,P")]


NETWORK, ATTENTION, MORE = "The network", "With --attention", "What is shown, and where it goes"


def of_attention(text: str, metavar: str, choices: str | None = None) -> Any:
    """An option of that panel; choices: names that TAB completes."""
    completion = None if choices is None else one_of(choices)
    return typer.Option(help=text, metavar=metavar, rich_help_panel=ATTENTION, autocompletion=completion)


IsAttention = Annotated[
    bool, typer.Option("--attention", help="A Transformer: attention and FFN in turn.", rich_help_panel=ATTENTION)
]
Arch = Annotated[
    str | None, of_attention("encoder (if left out), decoder (causal) or encoder-decoder.", "NAME", ARCHITECTURES)
]
Layers = Annotated[str | None, of_attention("Layers N of two sublayers each, instead of --sublayers: 6,12.", "LIST")]
DecoderLayers = Annotated[
    str | None, of_attention("Layers M of an encoder-decoder's decoder, one for each of --layers.", "LIST")
]
FfnRatio = Annotated[str | None, of_attention("FFN width over d_model; 4 if left out.", "R")]
Tokens = Annotated[
    str | None, of_attention("Tokens of a sequence; 16 if left out. A prediction changes slowly with them.", "T")
]
Batch = Annotated[str | None, of_attention("Sequences of the batch; 1 if left out.", "B")]
Correlation = Annotated[str | None, of_attention("Of any two input tokens; 0 if left out, 1 at most.", "C")]
Causal = Annotated[
    bool, typer.Option("--causal", help="Each token attends to earlier ones only.", rich_help_panel=ATTENTION)
]
Readout = Annotated[
    str | None,
    of_attention("last (if left out): a logit of the last token. sum: of each token one, summed.", "NAME", READOUTS),
]
Loss = Annotated[
    str | None,
    of_attention("What the step makes smaller: logit (if left out), or ce, a cross-entropy.", "NAME", LOSSES),
]
Classes = Annotated[str | None, of_attention("Classes of the cross-entropy; 16 if left out.", "C")]
Roles = Annotated[
    bool, typer.Option("--roles", help="A line for each role, and a panel of --plot.", rich_help_panel=MORE)
]
Plot = Annotated[
    str | None, typer.Option(help="Draw it, log-log: .png, .svg or .pdf.", metavar="FILE", rich_help_panel=MORE)
]
