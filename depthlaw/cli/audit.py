"""``depthlaw audit``: what a model of the user's own really builds, how it moves, and what is wrong with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import MORE, BadInputError, argument, option, refusing
from depthlaw.cli.shared.output import print_json, progress
from depthlaw.cli.shared.own_model import GROUPS, HF, INPUTS, TRACEBACK, placing, staying, where
from depthlaw.system.files import as_text, document, write_atomically
from depthlaw.system.page import Page

if TYPE_CHECKING:
    from depthlaw.auditing.audit import Audit

EXAMPLES = (
    "audit --hf gpt2 --layers 2,4,8",
    "audit mymodel:build --layers 4,8,16 --recipe gpt2 --optimizer adamw",
    "audit mymodel:build --layers 4,8,16,32 --scheme deepnorm --optimizer adam --plot mine.svg",
    "audit mymodel:build --layers 4,8,16 --by-layer --plot mine.svg",
    "audit mymodel:build --layers 4,8,16 --scheme depth-mup --groups mymodel:make_optimizer",
    "audit mymodel:build --layers 2,4 --recipe gpt2 --baseline accepted.json --markdown out/audit.md",
)
_LAYERS = "2,4,8,16"
IN_CI = "In continuous integration"
"""A panel of ``--help``."""


def run(
    factory: str | None = argument(
        "MODULE:FACTORY or path/to/file.py:FACTORY, a function of your own that is called with a number of layers (or "
        "with encoder and decoder layers) and returns a torch module. MODULE is imported, and FACTORY called: that "
        "code of yours is run.",
        "[MODULE:FACTORY]",
        complete=lambda incomplete: [],
    ),
    layers: list[int] = option("The numbers of layers to build.", _LAYERS, most=4096),
    visits: list[int] | None = option(
        "How often the model's layers are gone through with the same weights (a looped Transformer): one number, or "
        "one for each of --layers, as of a FACTORY that is called with the number of visits. 1 if left out.",
        most=4096,
    ),
    scheme: str | None = options.SCHEME,
    recipe: str | None = option(
        "The published model that it claims to be, such as gpt2; `depthlaw schemes` lists all. With --hf, the model's "
        "own if left out.",
        metavar="NAME",
        complete=options.recipes,
    ),
    optimizer: str = option("The optimizer", "adamw", known=options.OPTIMIZERS),
    inputs: str | None = INPUTS,
    groups: str | None = GROUPS,
    hf: str | None = HF,
    width: int | None = option("With --hf: the width to build, 256 or less if left out.", None, MORE, most=16384),
    by_layer: bool = option(
        "Also show what each sublayer of the deepest model does to its stream, and what gradient reaches it. --plot "
        "draws it, too.",
        None,
        MORE,
        called="--by-layer --profile",
    ),
    seeds: int = option("The number of models of each depth.", 4, MORE, most=1000),
    seed: int = option("The seed of the first of them.", 0, MORE, least=0, most=2**31),
    plot: Path | None = option(
        "Draw the update by role against depth to a .png, .svg or .pdf file.", None, MORE, suffixes=options.FIGURES
    ),
    scheduler: str | None = options.SCHEDULER,
    ignore: list[str] | None = option(
        "Leave faults of this kind out of the count; the reason is printed with them. It may be repeated.",
        None,
        IN_CI,
        metavar="KIND=REASON",
        read=None,
    ),
    baseline: Path | None = option(
        "Fail where the initialisation has changed since this file was written; what is in it is accepted, its faults "
        "too.",
        None,
        IN_CI,
    ),
    accept: bool = option("Write --baseline anew: what is built now is accepted.", None, IN_CI),
    markdown: Path | None = option("Also write the faults as a page in Markdown.", None, IN_CI),
    sarif: Path | None = option("Also write them as SARIF, which GitHub shows beside the code.", None, IN_CI),
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
    folder that it is in here. The exit code is 1 where there are faults.

    Without MODULE:FACTORY and --hf the audits are those that your pyproject.toml
    has under tool.depthlaw.audit, in the words of these options.
    """
    if accept and baseline is None and (factory or hf):
        raise BadInputError("--accept needs --baseline FILE, which it writes")
    folder, asked = _asked(
        Asked(
            factory=factory,
            layers=layers,
            visits=visits,
            scheme=scheme,
            recipe=recipe,
            optimizer=optimizer,
            inputs=inputs,
            groups=groups,
            hf=hf,
            width=width,
            seeds=seeds,
            seed=seed,
            by_layer=by_layer,
            ignore=ignore,
            baseline=baseline,
        )
    )
    if plot is not None and len(asked) > 1:
        raise BadInputError(f"--plot draws one audit, and {folder / 'pyproject.toml'} has {len(asked)}")
    for audit_asked in asked:
        with audit_asked.telling():
            audit_asked.check()
            with refusing("--baseline"):
                audit_asked.accepted(accept)

    from depthlaw.auditing.text import show
    from depthlaw.testing.outcome import Outcome
    from depthlaw.testing.reports import Place, markdown_of, sarif_of

    outcomes: list[tuple[Outcome, Place | None]] = []
    for audit_asked in asked:
        with audit_asked.telling(), placing(shows_traceback), refusing(), redirect_stdout(sys.stderr), staying():
            answer, build = _audited(audit_asked, folder, scheduler)
        with audit_asked.telling(), refusing("--baseline"):
            outcome = Outcome.of(answer, ignore=audit_asked.reasons(), baseline=audit_asked.accepted(accept))
            if accept and audit_asked.baseline is not None:
                outcome.baseline.write(audit_asked.baseline)
                outcome = Outcome.of(answer, ignore=audit_asked.reasons(), baseline=outcome.baseline)
        outcomes.append((outcome, None if build is None else Place.of(build)))
    if plot is not None:
        _draw(outcomes[0][0].audit, plot)
    if markdown is not None:
        write_atomically(markdown, markdown_of([outcome for outcome, _ in outcomes]))
    if sarif is not None:
        write_atomically(sarif, as_text(sarif_of(outcomes)))
    if as_json:
        documents = [outcome.document() for outcome, _ in outcomes]
        print_json(document(**documents[0]) if len(documents) == 1 else document(audits=documents))
    else:
        page = Page()
        for audit_asked, (outcome, _) in zip(asked, outcomes, strict=True):
            show(page, outcome.audit, audit_asked.own, heading=outcome.title)
            for line in outcome.remarks:
                page.say(line)
            if outcome.audit.faults and outcome.is_fine:
                page.say("No fault counts.", "bold green")
        for path in (plot, markdown, sarif, *(entry.baseline for entry in asked if accept)):
            page.wrote(path)
    if not all(outcome.is_fine for outcome, _ in outcomes):
        raise SystemExit(1)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One audit, as its options say it. place: of pyproject.toml, where it stands there; keys: by option, the key that
    the option is of."""

    factory: str | None
    layers: list[int]
    visits: list[int] | None
    scheme: str | None
    recipe: str | None
    optimizer: str
    inputs: str | None
    groups: str | None
    hf: str | None
    width: int | None
    seeds: int
    seed: int
    by_layer: bool
    ignore: list[str] | None
    baseline: Path | None
    place: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is refused of a key of pyproject.toml is told of that key."""
        try:
            yield
        except BadInputError as error:
            named = next((option for option in self.keys if str(error).startswith(option)), None)
            if named is None:
                raise
            text = f"{self.place}: {self.keys[named]}{str(error).removeprefix(named)}"
            raise BadInputError(text) from error

    @property
    def own(self) -> str:
        """The options by which ``advise`` is asked about the same model."""
        given = {"--model": self.factory, "--hf": self.hf, "--width": self.width, "--input": self.inputs}
        return " ".join(f"{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None)

    def reasons(self) -> dict[str, str]:
        """By kind of fault, why it does not count. ValueError, in one line, for what is no KIND=reason."""
        if not self.ignore:
            return {}
        from depthlaw.testing.outcome import reasons

        return reasons(self.ignore)

    def accepted(self, is_accepting: bool) -> Any:
        """What the baseline has; None without one, or where it is written now."""
        from depthlaw.testing.baseline import Baseline

        if self.baseline is None or is_accepting:
            return None
        if not self.baseline.exists():
            raise BadInputError(f"--baseline: there is no {self.baseline}; --accept writes it, of what is built now")
        return Baseline.read(self.baseline)

    def check(self) -> None:
        """What can be refused before what takes seconds to import."""
        if (self.factory is None) == (self.hf is None):
            if self.place:
                number = "both" if self.hf else "neither"
                raise BadInputError(f"{self.place}: it names {number}, a factory and hf: name one")
            both = ", not both" if self.factory else ""
            raise BadInputError(f"give MODULE:FACTORY or --hf NAME{both}; such as: depthlaw audit --hf gpt2")
        if self.visits is not None and len(self.visits) not in (1, len(self.layers)):
            raise BadInputError(
                f"--visits has {len(self.visits)} entries and --layers {len(self.layers)}: one number, or one for each"
            )
        if self.width is not None and self.hf is None:
            raise BadInputError("--width is of --hf: a factory of your own says how wide it builds")
        where(self.factory, self.hf)
        where(self.groups, None)
        where(self.inputs, None)
        if self.recipe is not None:
            from depthlaw.recipes.catalogue import recipe as recipe_named

            with refusing("--recipe"):
                recipe_named(self.recipe)
        with refusing():
            self.reasons()


_OPTIONS = {"factory": "MODULE:FACTORY", "inputs": "--input"}
_KEYS = {"inputs": "input"}
"""Of the fields of ``Asked`` that an option, and a key of pyproject.toml, has another name for."""


def _asked(given: Asked) -> tuple[Path, list[Asked]]:
    """The folder that modules are imported from, and the audits: the one that was given, or those of the user's
    pyproject.toml, in which what was given counts first."""
    here = Path.cwd()
    if given.factory is not None or given.hf is not None:
        return here, [given]

    from depthlaw.testing.configured import read, table

    with refusing():
        configured = read(here)
    if configured is None:
        return here, [given]
    folder, audits = configured
    usual = {"layers": options.counts(_LAYERS, "--layers"), "optimizer": "adamw", "seeds": 4, "seed": 0}
    asked = []
    for number, entry in enumerate(audits, 1):
        place = f"{folder / 'pyproject.toml'}, {table(number, len(audits))}"
        known = options.OPTIMIZERS
        values = {
            "factory": entry.factory,
            "layers": entry.layers,
            "visits": entry.visits,
            "scheme": entry.scheme and options.scheme_name(entry.scheme, f"{place}: scheme"),
            "recipe": entry.recipe,
            "optimizer": entry.optimizer and options.one_name(entry.optimizer, f"{place}: optimizer", known),
            "inputs": entry.input,
            "groups": entry.groups,
            "hf": entry.hf,
            "width": entry.width,
            "seeds": entry.seeds,
            "seed": entry.seed,
            "ignore": [f"{kind}={reason}" for kind, reason in entry.ignore.items()] or None,
            "baseline": None if entry.baseline is None else folder / entry.baseline,
        }
        changes = {
            name: value
            for name, value in values.items()
            if value is not None and getattr(given, name) == usual.get(name)
        }
        for name in ("factory", "groups"):
            if (text := values[name]) is not None and text.rpartition(":")[0].endswith(".py"):
                changes[name] = str(folder / text)
        keys = {_OPTIONS.get(name, f"--{name}"): _KEYS.get(name, name) for name in changes}
        asked.append(replace(given, **changes, place=place, keys=keys))
    return folder, asked


def _audited(asked: Asked, folder: Path, scheduler: str | None) -> tuple[Audit, Callable[..., Any] | None]:
    """The audit, and the builder of the user's own. What the model prints is no part of the answer."""
    from depthlaw.auditing.audit import Elsewhere, audit
    from depthlaw.auditing.builders import Sent, hugging_face, load_there, named

    factory, place = where(asked.factory, asked.hf)
    recipe = asked.recipe
    if asked.hf is not None:
        build, recipe_of_type = hugging_face(asked.hf, asked.width)
        recipe = recipe or (recipe_of_type if asked.scheme is None else None)
    else:
        build = named(factory or "", "MODULE:FACTORY", place or str(folder))
    given, aside = where(asked.inputs, None)
    give = None if given is None else named(given, "--input", aside or str(folder))
    make, beside = where(asked.groups, None)
    groups = None if make is None else named(make, "--groups", beside or str(folder))
    with ExitStack() as stack:
        elsewhere = None
        if scheduler is not None:
            from depthlaw.sims.cluster import Cluster

            audit_name = uuid4().hex
            load = partial(
                load_there,
                None if factory is None else Sent.of(factory, "MODULE:FACTORY", audit_name),
                None
                if asked.hf is None
                else (str(Path(asked.hf).resolve()) if asked.hf.endswith(".json") else asked.hf, asked.width),
                None if given is None else Sent.of(given, "--input", audit_name),
            )
            elsewhere = Elsewhere(stack.enter_context(Cluster(scheduler)), load)
        tell = stack.enter_context(progress(is_alive=True))
        answer = audit(
            build,
            asked.layers,
            scheme=asked.scheme,
            recipe=recipe,
            optimizer=asked.optimizer,
            inputs=give,
            groups=groups,
            visits=asked.visits or 1,
            seeds=asked.seeds,
            seed=asked.seed,
            by_layer=asked.by_layer,
            elsewhere=elsewhere,
            advance=tell,
        )
    return answer, None if asked.hf is not None else build


def _draw(audit: Audit, path: Path) -> None:
    from depthlaw.paper_checks.pages.drawing import save
    from depthlaw.paper_checks.pages.plots import Shown, drawing_of, with_layers
    from depthlaw.theory.kernel.predict import unit_power

    last = audit.depths[-1].built
    units = {role: unit_power(audit.optimizer, role) for role in audit.roles if role != "update" and "/" not in role}
    title = f"{type(last.module).__name__} under {audit.optimizer}: lines predicted, points measured"
    drawing = drawing_of(Shown(audit.rows, units, last.d_model), title, "", num_each=2)
    if audit.by_layer is not None:
        rows = [row.document() for row in audit.by_layer]
        drawing = with_layers(drawing, rows, f"at {audit.layers[-1]} layers")
    save(drawing, path)
