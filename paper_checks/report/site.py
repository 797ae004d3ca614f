"""The site: every page from the document, the registry, the tables and the records. No network, no clock, no chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from paper_checks.claims.claim import Route, Verdict
from paper_checks.notation.signs import signs
from paper_checks.pages.claims import LEGEND, LETTERS
from paper_checks.papers.registry import claims as registered
from paper_checks.report import figures, folder, graph, training, typeset, views
from paper_checks.report.model import Claim, Document, counts
from paper_checks.verify.document import seen_by
from paper_checks.verify.findings import FIRST, findings

HERE = Path(__file__).resolve().parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
Progress = Callable[[str, int, int], None]
"""What is being done, how much is done, of how much."""
NAV = (
    ("claims.html", "Claims"),
    ("index.html#sources", "Sources"),
    ("graph.html", "Graph"),
    ("tables.html", "Tables"),
    ("measured.html", "Measured"),
    ("training.html", "Training"),
    ("schemes.html", "Schemes"),
)


def write(document: Document, out: Path, progress: Progress | None = None) -> list[Path]:
    """Write the site into ``out`` and return its pages, index.html first.

    ``out`` is one that ``folder.check`` let pass; an older site in it stays as it is until this one is whole.
    """
    pages = contents(document)
    tell = progress or (lambda *_: None)

    def fill(to: Path) -> list[str]:
        names = []
        for i, (name, make) in enumerate(pages.items(), start=1):
            (to / name).write_text(make(), encoding="utf-8", newline="\n")
            tell("writing pages", i, len(pages))
            names.append(name)
        (to / STATIC.name).mkdir()
        for path in sorted(STATIC.iterdir()):
            (to / STATIC.name / path.name).write_bytes(path.read_bytes())
            names.append(f"{STATIC.name}/{path.name}")
        return names

    folder.replace(out, fill)
    return [out / name for name in pages]


def contents(document: Document) -> dict[str, Callable[[], str]]:
    """What makes each page, by its name; nothing is made yet."""
    env = environment(document)

    def page(template: str, name: str | None = None, **given: Any) -> Callable[[], str]:
        called = name or f"{template}.html"
        return lambda: _tidy(env.get_template(f"{template}.html.jinja").render(page=called, **_made(given)))

    pages = {
        "index.html": page(
            "index", section="", **_lead(), num_parts=sum(len(claim.parts) for claim in document.claims)
        ),
        "claims.html": page("claims", section="", groups=_groups(document)),
    }
    for key, several in document.by_source.items():
        name = f"source-{key}.html"
        source = document.sources[key]
        drawn = partial(_drawn, several)
        pages[name] = page("source", name, section="index.html#sources", source=source, several=several, drawn=drawn)
    pages |= {
        "graph.html": page("graph", section="", graph=lambda: graph.graph(_graphed(document))),
        "tables.html": page("tables", section="", tables=views.tables, beside=lambda: views.beside_printed(document)),
        "measured.html": page("measured", section="", schemes=_measured),
        "training.html": page("training", section="", training=lambda: _training(env)),
        "schemes.html": page("schemes", section="", tables=views.tables, schemes=views.schemes, form=views.form),
    }
    return pages


def _made(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a page needs, made when it is rendered and not before."""
    return {name: value() if callable(value) else value for name, value in given.items()}


def environment(document: Document) -> Environment:
    """Templates with everything that stands on more than one page. Whatever a document says is escaped."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    claims = {claim.id: claim for claim in document.claims}
    found = list(findings([claim.model_dump(mode="json") for claim in document.claims]))
    told = {id_: one.text for one in found for id_ in one.ids}
    open_ids = [id_ for id_, claim in claims.items() if claim.verdict is Verdict.UNDECIDED]
    env.filters.update(
        prose=typeset.prose,
        cell=typeset.cell,
        label=typeset.label,
        signs=signs,
        quoted=views.quoted,
        linked=partial(views.linked, claims=claims),
    )
    env.globals.update(
        doc=document,
        claims=claims,
        nav=NAV,
        routes=tuple(Route),
        short={key: views.SHORT.get(key, source.title) for key, source in document.sources.items()},
        marks=views.MARKS,
        kinds=views.KINDS,
        counts=counts,
        held=views.held,
        legend=LEGEND,
        letters=LETTERS,
        found=found,
        told=told,
        undecided=open_ids,
        strange=list(views.unexpected(document)),
        routed=views.routed(document),
        scheme_columns=views.SCHEME_COLUMNS,
        neighbours=graph.neighbours(_graphed(document)),
        href=lambda id_: f"{views.page_of(claims[id_])}#{id_}",
        said=views.said,
        seen_by=seen_by,
        scattered=views.is_scattered,
        spaced=views.spaced,
        contents_of=views.contents_of,
        searched=partial(views.searched, told=told),
        statement_of=views.statement_of,
    )
    return env


def _graphed(document: Document) -> list[dict[str, Any]]:
    """The claims as the graph takes them; of a document of some claims, without what they use of the others."""
    ids = {claim.id for claim in document.claims}
    entries = (claim.model_dump(mode="json") for claim in document.claims)
    return [{**entry, "uses": [id_ for id_ in entry["uses"] if id_ in ids]} for entry in entries]


def _lead() -> dict[str, Any]:
    """What the first page begins with, made when it is rendered."""
    return {"picture": figures.picture, "rules": figures.rules, "first": FIRST}


def _groups(document: Document) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The filters of claims.html: name, title, and each option with its words."""
    routes = {route for claim in document.claims for route in claim.routes}
    verdicts = [(one.value, f"{one.symbol} {one.value}") for one, number in document.counts.items() if number]
    keys = [(key, views.SHORT.get(key, document.sources[key].title)) for key in document.by_source]
    names = [(route.value, route.value) for route in Route if route.value in routes]
    kinds = [(kind, views.KINDS[kind]) for kind in document.by_kind]
    groups = [("kind", "Kind", kinds), ("verdict", "Verdict", verdicts), ("source", "Source", keys)]
    return [*groups, ("route", "Route", names)]


def _measured() -> list[figures.SchemeFigures] | str:
    """The figures of each scheme; where its numbers are not kept, why there are none."""
    try:
        return figures.by_scheme()
    except LookupError as reason:
        return str(reason)


def _of_claim(claim: Claim) -> list[figures.Figure]:
    """None of a claim that the registry does not have, nor where its numbers are not kept."""
    try:
        return figures.for_claim(claim.id) if claim.id in registered() else []
    except LookupError:
        return []


def _drawn(several: Sequence[Claim]) -> dict[str, list[tuple[figures.Figure, str]]]:
    """The figures of each claim, and the first claim of the page that has it: a figure stands once on a page."""
    first: dict[str, str] = {}
    return {claim.id: [(one, first.setdefault(one.svg, claim.id)) for one in _of_claim(claim)] for claim in several}


def _training(env: Environment) -> Markup:
    """TRAINING.md, its figures as those of every page are."""
    figure = vars(env.get_template("macros.html.jinja").module)["figure"]
    drawn = figures.training()
    return training.page(lambda name: figure(drawn[name], drawn[name].title))


def _tidy(page: str) -> str:
    """Without the empty lines that templates leave; blanks within a line stay."""
    return "\n".join(line for line in page.splitlines() if line.strip()) + "\n"
