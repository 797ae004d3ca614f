"""The command line. Only typer is imported here, so that ``depthlaw --help`` answers at once.

Exit 0: done and as expected. 1: a verdict differs from the expected one. 2: unusable input, said in one line. 130:
interrupted, said in one line too.
"""

from __future__ import annotations

from paper_checks.system import stopping  # first: from here on Ctrl-C leaves no traceback

# isort: split
import os
import sys
from typing import Annotated

import typer

from paper_checks.cli.choices import (
    ACTIVATIONS,
    BUILT_ACTIVATIONS,
    DEVICES,
    DTYPES,
    NORM_KINDS,
    lowered,
    one_claim,
    one_of,
    one_source,
    one_table,
)
from paper_checks.cli.examples import Command, Group
from paper_checks.cli.experiment_options import experiment
from paper_checks.cli.network_options import (
    MORE,
    NETWORK,
    Activation,
    Arch,
    Batch,
    BranchWeight,
    Causal,
    Classes,
    Correlation,
    DecoderLayers,
    FfnRatio,
    Gain,
    GainsIn,
    GainsOut,
    IsAttention,
    Json,
    Layers,
    Loss,
    Norm,
    NormKind,
    Optimizer,
    Plot,
    Readout,
    ResidualWeight,
    Roles,
    Scheme,
    Sublayers,
    Tokens,
    of_attention,
)
from paper_checks.cli.report_options import report
from paper_checks.cli.rule_options import rule
from paper_checks.cli.schemes import run as schemes
from paper_checks.cli.train_options import train

# typer vendors click in newer versions and depends on it in older ones; its own exceptions tell which.
UsageError, ClickError = (
    next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == name and issubclass(kind, Exception))
    for name in ("UsageError", "ClickException")
)

_REFUSED = 2

app = typer.Typer(
    name="depthlaw",
    help="Derives, verifies and audits the depth laws of Transformers: how far a model moves in one optimizer step "
    "as it gets deeper, and which residual weight, init gain and learning rate keep that from growing.",
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ANSWERS, _NETWORKS, _PAPERS = "What to use, and how it grows", "On real networks", "What the papers print"


app.command(cls=Command, rich_help_panel=_ANSWERS)(rule)


@app.command(cls=Command, rich_help_panel=_ANSWERS)
def predict(
    optimizer: Optimizer,
    sublayers: Sublayers = None,
    scheme: Scheme = None,
    activation: Activation = "relu",
    norm_kind: NormKind = "layernorm",
    w: GainsIn = None,
    v: GainsOut = None,
    norm: Norm = None,
    residual_weight: ResidualWeight = None,
    branch_weight: BranchWeight = None,
    gain: Gain = None,
    attention: IsAttention = False,
    arch: Arch = None,
    layers: Layers = None,
    decoder_layers: DecoderLayers = None,
    heads: Annotated[
        str | None, of_attention("Attention heads, with --width; infinitely many and large if left out.", "H")
    ] = None,
    width: Annotated[
        str | None, of_attention("d_model, for the size of a head; the prediction is at infinite width.", "D")
    ] = None,
    ffn_ratio: FfnRatio = None,
    tokens: Tokens = None,
    batch: Batch = None,
    correlation: Correlation = None,
    causal: Causal = False,
    readout: Readout = None,
    loss: Loss = None,
    classes: Classes = None,
    roles: Roles = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """The update in one optimizer step, at infinite width and with no fitted constant.

    Without --attention the network is that of the theorems, an FFN-only stack
    with one input: exact at any depth, and its leading order in L. With it, a
    real Transformer by role (q, k, v, out, fc1, fc2, biases, norms, embedding,
    head): how each grows with depth, and what learning rate would undo it.
    """
    from paper_checks.cli.asked import Attention, Stack
    from paper_checks.cli.predict import run

    stack = Stack(
        optimizer=optimizer,
        sublayers=sublayers,
        scheme_name=scheme,
        activation=activation,
        norm_kind=norm_kind,
        w=w,
        v=v,
        norm=norm,
        laws={"residual_weight": residual_weight, "branch_weight": branch_weight, "gain": gain},
    )
    transformer = Attention(
        is_on=attention,
        tokens=tokens,
        batch=batch,
        causal=causal,
        correlation=correlation,
        ffn_ratio=ffn_ratio,
        heads=heads,
        readout=readout,
        loss=loss,
        classes=classes,
        arch=arch,
        layers=layers,
        decoder_layers=decoder_layers,
    )
    run(stack, transformer, width, has_roles=roles, plot=plot, as_json=as_json)


@app.command(cls=Command, rich_help_panel=_ANSWERS)
def tables(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX tabulars (needs amsmath).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    derive: Annotated[bool, typer.Option("--derive", help="Derive now, whatever was generated before.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Derive, and rewrite the generated file.")] = False,
    only: Annotated[str | None, typer.Option(help="One table, by id.", metavar="ID", autocompletion=one_table)] = None,
    activation: Annotated[
        str, typer.Option(help="What `cross` shows to people.", autocompletion=one_of(ACTIVATIONS), callback=lowered)
    ] = "relu",
    norm_kind: Annotated[
        str,
        typer.Option(
            help=f"What `cross` shows to people: {NORM_KINDS}.", autocompletion=one_of(NORM_KINDS), callback=lowered
        ),
    ] = "layernorm",
) -> None:
    """The theory's tables: rules by optimizer and architecture, bounds, and every scheme under every optimizer."""
    from paper_checks.cli.tables import Format, run

    formats = [
        found
        for asked, found in (
            (as_json, Format.JSON),
            (markdown, Format.MARKDOWN),
            (latex, Format.LATEX),
            (csv, Format.CSV),
        )
        if asked
    ]
    if len(formats) > 1:
        raise UsageError("give one of --json, --markdown, --latex, --csv, not several")
    run(
        formats[0] if formats else Format.PEOPLE,
        derive=derive or write,
        write=write,
        only=only,
        activation=activation,
        norm_kind=norm_kind,
    )


app.command("schemes", cls=Command, rich_help_panel=_ANSWERS)(schemes)


@app.command(cls=Command, rich_help_panel=_NETWORKS)
def measure(
    optimizer: Optimizer,
    sublayers: Sublayers = None,
    scheme: Scheme = None,
    activation: Annotated[
        str,
        typer.Option(
            help=f"{BUILT_ACTIVATIONS}.", metavar="NAME", autocompletion=one_of(BUILT_ACTIVATIONS), callback=lowered
        ),
    ] = "relu",
    norm_kind: NormKind = "layernorm",
    w: GainsIn = None,
    v: GainsOut = None,
    norm: Norm = None,
    residual_weight: ResidualWeight = None,
    branch_weight: BranchWeight = None,
    gain: Gain = None,
    width: Annotated[str, typer.Option(help="d_model.", metavar="D", rich_help_panel=NETWORK)] = "256",
    seeds: Annotated[
        str, typer.Option(help="Independent networks of each depth.", metavar="K", rich_help_panel=NETWORK)
    ] = "8",
    seed: Annotated[str, typer.Option(help="The first one's seed.", metavar="S", rich_help_panel=NETWORK)] = "0",
    attention: IsAttention = False,
    arch: Arch = None,
    layers: Layers = None,
    decoder_layers: DecoderLayers = None,
    heads: Annotated[
        str | None, of_attention("Attention heads; 1 if left out. Predicted with heads of the same size.", "H")
    ] = None,
    ffn_ratio: FfnRatio = None,
    tokens: Tokens = None,
    batch: Batch = None,
    correlation: Correlation = None,
    causal: Causal = False,
    readout: Readout = None,
    loss: Loss = None,
    classes: Classes = None,
    roles: Roles = False,
    by_layer: Annotated[
        bool,
        typer.Option(
            "--by-layer",
            help="The stream and its gradient at each x_l, and each sublayer's part of the update.",
            rich_help_panel=MORE,
        ),
    ] = False,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="What the step of each role does to the logit, the last hidden state and, with --loss ce, the "
            "label's logit and the loss.",
            rich_help_panel=MORE,
        ),
    ] = False,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            help="Also take the optimizer's real step of this size, and find where linearity ends.",
            metavar="RATE",
            rich_help_panel=MORE,
        ),
    ] = None,
    plot: Plot = None,
    record: Annotated[
        str | None,
        typer.Option(
            help="Keep it there, and go on from it; sims/records/local/measure.jsonl if left out.",
            metavar="FILE",
            rich_help_panel=MORE,
        ),
    ] = None,
    keeps: Annotated[
        bool,
        typer.Option("--keep/--no-keep", help="Whether to keep it where --record is left out.", rich_help_panel=MORE),
    ] = True,
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU where there is one), cpu or cuda.",
            metavar="NAME",
            rich_help_panel=MORE,
            autocompletion=one_of(DEVICES),
        ),
    ] = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            help="float64, or float32, which is faster and wrong of q and k in deep post-LN.",
            metavar="NAME",
            rich_help_panel=MORE,
            autocompletion=one_of(DTYPES),
        ),
    ] = "float64",
    as_json: Json = False,
) -> None:
    """Real networks: their update in one optimizer step, exact to first order, beside what `predict` says of it.

    Independent networks of each depth, measured by autograd: the mean, its
    95 % interval, its ratio to the prediction, and the exponent in L of both.
    What was measured before with the same sources is taken from the record, so
    a run that was stopped goes on where it was.
    """
    from paper_checks.cli.asked import Attention, Stack
    from paper_checks.cli.measure import run

    stack = Stack(
        optimizer=optimizer,
        sublayers=sublayers,
        scheme_name=scheme,
        activation=activation,
        norm_kind=norm_kind,
        w=w,
        v=v,
        norm=norm,
        laws={"residual_weight": residual_weight, "branch_weight": branch_weight, "gain": gain},
    )
    transformer = Attention(
        is_on=attention,
        tokens=tokens,
        batch=batch,
        causal=causal,
        correlation=correlation,
        ffn_ratio=ffn_ratio,
        heads=heads,
        readout=readout,
        loss=loss,
        classes=classes,
        arch=arch,
        layers=layers,
        decoder_layers=decoder_layers,
    )
    code = run(
        stack=stack,
        attention=transformer,
        width=width,
        seeds=seeds,
        seed=seed,
        device=device,
        dtype=dtype,
        plot=plot,
        record=record,
        keeps=keeps,
        has_roles=roles,
        has_layers=by_layer,
        has_changes=changes,
        learning_rate=learning_rate,
        as_json=as_json,
    )
    raise typer.Exit(code)


app.command(cls=Command, rich_help_panel=_NETWORKS)(train)
app.command(cls=Command, rich_help_panel=_NETWORKS)(experiment)


@app.command(cls=Command, rich_help_panel=_PAPERS)
def verify(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Claims to check; all by default.", metavar="[ID]...", autocompletion=one_claim),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="The claims of one source only.", metavar="KEY", autocompletion=one_source),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use the generated tables; measure nothing.")] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="Also break each claim on purpose and see red.")] = False,
    out: Annotated[str | None, typer.Option(help="Write the JSON document to this file too.", metavar="FILE")] = None,
    full: Annotated[bool, typer.Option("--full", help="Also print each reason and each compared cell.")] = False,
    write_claims: Annotated[bool, typer.Option("--write-claims", help="Rewrite CLAIMS.md and README's list.")] = False,
    as_json: Json = False,
) -> None:
    """Derive everything anew and hold it against what the sources print."""
    from paper_checks.cli.verify import run

    code = run(
        ids or [],
        source=source,
        quick=quick,
        mutants=mutants,
        out=out,
        as_json=as_json,
        write_claims=write_claims,
        full=full,
    )
    raise typer.Exit(code)


@app.command(cls=Command, rich_help_panel=_PAPERS)
def explain(
    claim: Annotated[
        str,
        typer.Argument(help="Its id, such as DN-07; CLAIMS.md lists them all.", metavar="ID", autocompletion=one_claim),
    ],
    full: Annotated[bool, typer.Option("--full", help="Also each statement, number and derivation.")] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="Also break it on purpose and see red.")] = False,
    as_json: Json = False,
) -> None:
    """One claim: the verdict, what was found, what is printed, what holds instead, the counterexample."""
    from paper_checks.cli.explain import explain as run

    raise typer.Exit(run(claim, full=full, mutants=mutants, as_json=as_json))


app.command(cls=Command, rich_help_panel=_PAPERS)(report)


def main() -> None:
    """Run the command line; whatever is wrong with the input is said in one line, exit 2, as is Ctrl-C, exit 130."""
    arguments = sys.argv[1:] or ["--help"]
    if sys.stdout is None:
        sys.exit(_refuse("standard output is closed; there is nowhere to write the answer"))
    stopping.begin()
    try:
        code = _answer(arguments)
    except BaseException:
        if not stopping.is_stopping():
            raise
        code = stopping.STOPPED  # whatever became of the KeyboardInterrupt on its way: the line is said
    stopping.finish(code)
    sys.exit(code)


def _answer(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False)
        if code == stopping.STOPPED:  # newer typers return it without a word, older ones raise Abort
            code = _stopped()
        sys.stdout.flush()
    except ClickError as error:
        code = _refuse(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
    except (typer.Abort, KeyboardInterrupt):
        code = _stopped()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _drop_output()
        code = 0
    except OSError as error:
        _drop_output()
        code = _refuse(f"cannot write or read {error.filename or 'standard output'}: {error.strerror or error}")
    except ValueError as error:
        from paper_checks.cli.inputs import BadInputError, StoppedError

        if not isinstance(error, BadInputError):
            raise
        code = _refuse(str(error), stopping.STOPPED if isinstance(error, StoppedError) else _REFUSED)
    return code if isinstance(code, int) else 0


def _stopped() -> int:
    return stopping.STOPPED if stopping.is_stopping() else _refuse("interrupted", stopping.STOPPED)


def _drop_output() -> None:
    """What is still buffered cannot be written; without this the interpreter would try again on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str, code: int = _REFUSED) -> int:
    line = " ".join(message.split())
    print(f"depthlaw: {line}", file=sys.stderr)
    return code
