"""The site: every page from the document, the registry, the tables and the records. No network, no clock, no chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment

from depthlaw.paper_checks.claims.claim import Route, Verdict
from depthlaw.paper_checks.notation.signs import signs
from depthlaw.paper_checks.pages import markdown, why_figure
from depthlaw.paper_checks.pages.claims import LEGEND, LETTERS
from depthlaw.paper_checks.pages.drawing import Drawing
from depthlaw.paper_checks.papers.registry import claims as registered
from depthlaw.paper_checks.report import figures, folder, graph, rendered, typeset, views
from depthlaw.paper_checks.report.model import Claim, Document, counts
from depthlaw.paper_checks.verify.document import seen_by
from depthlaw.paper_checks.verify.findings import FIRST, findings
from depthlaw.system.places import RESULTS

HERE = Path(__file__).resolve().parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
Progress = Callable[[str, int, int], None]
"""What is being done, how much is done, of how much."""
NAV = (
    ("claims.html", "Claims"),
    ("index.html#sources", "Sources"),
    ("graph.html", "Graph"),
    ("tables.html", "Tables"),
    ("schemes.html", "Schemes"),
    ("summary.html", "Summary"),
    ("transformers.html", "Transformers"),
    ("measured.html", "Stacks"),
    ("training.html", "Training"),
    ("recipes.html", "Recipes"),
)


def write(document: Document, out: Path, progress: Progress | None = None) -> list[Path]:
    """Write the site into ``out`` and return its pages, index.html first.

    ``out`` is one that ``folder.check`` let pass; an older site in it stays as it is until this one is whole.
    """
    pages = contents(document)

    def fill(to: Path) -> list[str]:
        for i, (name, make) in enumerate(pages.items(), start=1):
            (to / name).write_text(make(), encoding="utf-8", newline="\n")
            if progress is not None:
                progress("writing pages", i, len(pages))
        files = [*sorted(STATIC.iterdir()), *rendered.files()]
        for path in files:
            (to / path.parent.name).mkdir(exist_ok=True)
            (to / path.parent.name / path.name).write_bytes(path.read_bytes())
        return [*pages, *(f"{path.parent.name}/{path.name}" for path in files)]

    folder.replace(out, fill)
    return [out / name for name in pages]


def contents(document: Document) -> dict[str, Callable[[], str]]:
    """What makes each page, by its name; nothing is made yet."""
    env = environment(document)

    def render(template: str, name: str = "", section: str = "", **given: Any) -> str:
        """Without the empty lines that templates leave; blanks within a line stay."""
        called = name or f"{template}.html"
        text = env.get_template(f"{template}.html.jinja").render(page=called, section=section, **given)
        return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"

    def of_source(name: str, key: str) -> str:
        several = document.by_source[key]
        source, drawn = document.sources[key], _drawn(several)
        return render("source", name, "index.html#sources", source=source, several=several, drawn=drawn)

    def of_results(name: str, path: Path) -> str:
        return render("rendered", name, shown=rendered.page(path))

    return {
        "index.html": lambda: render(
            "index", picture=_kept(why_figure.words, lambda _: None), rules=views.rules(), first=FIRST
        ),
        "claims.html": lambda: render("claims", groups=_groups(document)),
        **{name: partial(of_source, name, key) for key in document.by_source for name in [f"source-{key}.html"]},
        "graph.html": lambda: render("graph", graphs=graph.graphs(document.claims)),
        "tables.html": lambda: render("tables", tables=views.tables()),
        **{
            name: partial(of_results, name, RESULTS / file)
            for file, name in rendered.PAGES.items()
            if (RESULTS / file).exists()
        },
        "schemes.html": lambda: render("schemes", tables=views.tables(), schemes=views.schemes(), form=views.form()),
    }


def environment(document: Document) -> Environment:
    """Templates with everything that stands on more than one page. Whatever a document says is escaped."""
    env = markdown.environment(TEMPLATES, autoescape=True)
    claims = {claim.id: claim for claim in document.claims}
    texts = list(findings([claim.model_dump(mode="json") for claim in document.claims]))
    told_of = {id_: finding.text for finding in texts for id_ in finding.ids}
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
        counts=counts,
        held=views.held,
        legend=LEGEND,
        letters=LETTERS,
        found=texts,
        told=told_of,
        undecided=[id_ for id_, claim in claims.items() if claim.verdict is Verdict.UNDECIDED],
        strange=list(views.unexpected(document)),
        routed=views.routed(document),
        neighbours=graph.neighbours(document.claims),
        href=lambda id_: f"{views.page_of(claims[id_])}#{id_}",
        said=views.said,
        seen_by=seen_by,
        scattered=views.is_scattered,
        spaced=views.spaced,
        searched=partial(views.searched, texts=told_of),
        statement_of=views.statement_of,
    )
    return env


def _groups(document: Document) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The filters of claims.html: name, title, and each option with its words."""
    routes = {route for claim in document.claims for route in claim.routes}
    return [
        ("kind", "Kind", [(kind.value, kind.title) for kind in document.by_kind]),
        (
            "verdict",
            "Verdict",
            [(verdict.value, f"{verdict.symbol} {verdict.value}") for verdict, num in document.counts.items() if num],
        ),
        ("source", "Source", [(key, views.SHORT.get(key, document.sources[key].title)) for key in document.by_source]),
        ("route", "Route", [(route.value, route.value) for route in Route if route.value in routes]),
    ]


def _kept(make: Callable[[], Any], or_else: Callable[[Exception], Any]) -> Any:
    """What is made of kept numbers; where some are not kept, something else, of the reason."""
    try:
        return make()
    except LookupError as reason:
        return or_else(reason)


def _drawn(several: Sequence[Claim]) -> dict[str, list[Drawing | rendered.Picture]]:
    """The figures of each claim of a page: none of a claim that the registry does not have, nor where its numbers are
    not kept."""
    known = registered()
    return {
        claim.id: _kept(partial(figures.for_claim, claim.id), lambda _: []) if claim.id in known else []
        for claim in several
    }
