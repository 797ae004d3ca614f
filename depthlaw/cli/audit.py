"""``depthlaw audit``: what a model of the user's own really builds, how it moves, and what is wrong with it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from depthlaw.cli import options
from depthlaw.cli.options import MORE, BadInputError, argument, option, refusing
from depthlaw.cli.output import print_json, progress
from depthlaw.cli.own_model import HF, INPUTS, TRACEBACK, placing, staying, where
from depthlaw.system.files import document
from depthlaw.system.page import Page

if TYPE_CHECKING:
    from depthlaw.auditing.audit import Audit

EXAMPLES = (
    "audit --hf gpt2 --layers 2,4,8",
    "audit mymodel:build --layers 4,8,16 --recipe gpt2 --optimizer adamw",
    "audit mymodel:build --layers 4,8,16,32 --scheme deepnorm --optimizer adam --plot mine.svg",
)
_LAYERS = "2,4,8,16"


def run(
    factory: str | None = argument(
        "MODULE:FACTORY or path/to/file.py:FACTORY, a function of your own that is called with a number of layers (or "
        "with encoder and decoder layers) and returns a torch module. MODULE is imported, and FACTORY called: that "
        "code of yours is run.",
        "[MODULE:FACTORY]",
        complete=lambda incomplete: [],
    ),
    layers: list[int] = option("The numbers of layers to build.", _LAYERS, most=4096),
    scheme: str | None = options.SCHEME,
    recipe: str | None = option(
        "The published model that it claims to be, such as gpt2; `depthlaw schemes` lists all. With --hf, the model's "
        "own if left out.",
        metavar="NAME",
        complete=options.recipes,
    ),
    optimizer: str = option("The optimizer", "adamw", known=options.OPTIMIZERS),
    inputs: str | None = INPUTS,
    hf: str | None = HF,
    width: int | None = option("With --hf: the width to build, 256 or less if left out.", None, MORE, most=16384),
    seeds: int = option("The number of models of each depth.", 4, MORE, most=1000),
    seed: int = option("The seed of the first of them.", 0, MORE, least=0, most=2**31),
    plot: Path | None = option(
        "Draw the update by role against depth to a .png, .svg or .pdf file.", None, MORE, suffixes=options.FIGURES
    ),
    scheduler: str | None = options.SCHEDULER,
    shows_traceback: bool = TRACEBACK,
    as_json: bool = options.JSON,
) -> None:
    """Audit a model: does it do what it says, and which of its parameters break at depth?

    The model is built at several depths and run once at each. What flows in
    that pass tells its residual streams, norms and the role of each matrix,
    whatever its classes and parameters are called. That is compared with a
    scheme or recipe, and the update of one optimizer step is measured and
    predicted, role by role. With --scheduler, depths and seeds are measured
    side by side on the workers of a Dask cluster, which import MODULE from the
    folder that it is in here. Exit 1: there are faults.
    """
    if (factory is None) == (hf is None):
        both = ", not both" if factory else ""
        raise BadInputError(f"give MODULE:FACTORY or --hf NAME{both}; such as: depthlaw audit --hf gpt2")
    if width is not None and hf is None:
        raise BadInputError("--width is of --hf: a factory of your own says how wide it builds")

    factory, folder = where(factory, hf)
    if recipe is not None:  # before what takes seconds to import
        from depthlaw.recipes.catalogue import recipe as recipe_named

        with refusing("--recipe"):
            recipe_named(recipe)

    from depthlaw.auditing.audit import Elsewhere, audit
    from depthlaw.auditing.builders import Sent, hugging_face, load_there, named
    from depthlaw.auditing.text import show

    # What the model prints is no part of the answer.
    with placing(shows_traceback), refusing(), redirect_stdout(sys.stderr), staying():
        if hf is not None:
            build, own = hugging_face(hf, width)
            recipe = recipe or (own if scheme is None else None)
        else:
            build = named(factory or "", "MODULE:FACTORY", folder)
        give = None if inputs is None else named(inputs, "--input")
        with ExitStack() as stack:
            elsewhere = None
            if scheduler is not None:
                from depthlaw.sims.cluster import Cluster

                audit_name = uuid4().hex
                load = partial(
                    load_there,
                    None if factory is None else Sent.of(factory, "MODULE:FACTORY", audit_name),
                    None if hf is None else (str(Path(hf).resolve()) if hf.endswith(".json") else hf, width),
                    None if inputs is None else Sent.of(inputs, "--input", audit_name),
                )
                elsewhere = Elsewhere(stack.enter_context(Cluster(scheduler)), load)
            tell = stack.enter_context(progress(is_alive=True))
            answer = audit(
                build,
                layers,
                scheme=scheme,
                recipe=recipe,
                optimizer=optimizer,
                inputs=give,
                num_seeds=seeds,
                seed=seed,
                elsewhere=elsewhere,
                advance=tell,
            )
    if plot is not None:
        _draw(answer, plot)
    if as_json:
        print_json(document(**answer.document()))
    else:
        show(Page(), answer)
        Page().wrote(plot)
    if answer.faults:
        raise SystemExit(1)


def _draw(audit: Audit, path: Path) -> None:
    from depthlaw.paper_checks.pages.plots import Shown, update_against_depth
    from depthlaw.theory.kernel.predict import unit_power

    last = audit.depths[-1].built
    units = {role: unit_power(audit.optimizer, role) for role in audit.roles if role != "update" and "/" not in role}
    title = f"{type(last.module).__name__} under {audit.optimizer}: lines predicted, points measured"
    update_against_depth(Shown(audit.rows, units, last.d_model), title, "", path, is_in_layers=True)
