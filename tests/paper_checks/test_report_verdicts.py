"""The verdicts that a reader of the report sees are those of the document, and templates that show others are seen."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from paper_checks.claims.claim import Verdict
from paper_checks.report import figures, site, views
from paper_checks.report.model import parse
from tests.paper_checks.report_pages import (
    SOME,
    badges,
    document_of,
    made,
    shown_verdicts,
    wanted_verdicts,
)


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, and have tests of their own."""
    monkeypatch.setattr(figures, "for_claim", lambda _: [])
    monkeypatch.setattr(figures, "picture", lambda: None)


def made_articles(document: dict[str, Any]) -> dict[str, Any]:
    names = {f"source-{entry['source']}.html" for entry in document["claims"]}
    return {id_: one for text in made(document, names).values() for id_, one in shown_verdicts(text).items()}


def shown(text: str) -> list[tuple[str, str]]:
    """(id, verdict) of the list of claims."""
    entries = re.findall(r'<li class="entry" id="([^"]+)" data-verdict="(\w+)"(.*?)</li>', text, re.DOTALL)
    return [(id_, verdict) if badges(inside) == [verdict] else (id_, "") for id_, verdict, inside in entries]


def test_verdicts_are_those_of_the_document(whole: dict[str, Any], built: Path) -> None:
    """Of every claim and part, by colour, mark and word; of the evidence; where the claims are listed."""
    wanted = wanted_verdicts(whole["claims"])
    articles = (shown_verdicts(path.read_text(encoding="utf-8")) for path in built.glob("source-*.html"))
    assert {id_: one for found in articles for id_, one in found.items()} == wanted
    evidence = {item[0] for *_, parts in wanted.values() for part in parts for item in part[1]}
    assert evidence > {"REFUTED"}
    assert sum(any(part[0] not in ([], own) for part in parts) for _, own, parts in wanted.values()) > 30
    assert any(is_single for *_, parts in wanted.values() for *_, is_single in parts)
    pages = {name: (built / name).read_text(encoding="utf-8") for name in ("claims.html", "graph.html")}
    verdicts = [(entry["id"], entry["verdict"]) for entry in whole["claims"]]
    assert shown(pages["claims.html"]) == verdicts
    rows = r'<tr><th scope="row"><a href="[^"]*">([\w-]+)</a></th><td>(.*?)</td>'
    beside = re.findall(rows, pages["graph.html"], re.DOTALL)
    assert beside
    assert [(id_, badges(cell)) for id_, cell in beside] == [(i, [v]) for i, v in verdicts if i in dict(beside)]


def test_each_verdict_has_a_colour_of_its_own() -> None:
    """In the light theme and in the dark one."""
    style = (site.STATIC / "style.css").read_text(encoding="utf-8")
    names = [verdict.value.lower() for verdict in Verdict]
    for name in names:
        assert f".{name} {{ --verdict: var(--{name}); }}" in style
    colours = [re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\);", style) for name in names]
    assert all(len(found) == 1 for found in colours)
    for theme in zip(*(found[0] for found in colours), strict=True):
        assert len(set(theme)) == len(names)


TEMPLATE_MUTANTS = {
    "every badge says CONFIRMED": (
        "macros",
        "{{ verdict.value }}</span>\n{%- endmacro",
        "CONFIRMED</span>\n{%- endmacro",
    ),
    "every badge is green": ("macros", "badge {{ verdict.value|lower }}", "badge confirmed"),
    "every badge has one mark": ("macros", "{{ verdict.symbol }}</span> {{ verdict", "✓</span> {{ verdict"),
    "a part has its claim's verdict": ("claim", "m.badge(part.verdict)", "m.badge(claim.verdict)"),
    "a claim has its first part's": ("claim", "m.badge(claim.verdict)", "m.badge(claim.parts[0].verdict)"),
    "a claim shows what is expected": ("claim", "m.badge(claim.verdict)", "m.badge(claim.expected)"),
    "all evidence holds": ("claim", "{{ item.verdict.outcome }}", "holds"),
    "evidence has its part's colour": ("claim", "item.verdict.value|lower", "part.verdict.value|lower"),
    "no part says that it has one route": ("claim", "part.routes|length == 1", "false"),
}


@pytest.mark.parametrize("name", TEMPLATE_MUTANTS)
def test_a_template_that_shows_another_verdict_is_seen(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    template, before, after = TEMPLATE_MUTANTS[name]
    entries = [entry for entry in whole["claims"] if entry["id"] in (*SOME, "S3-10", "S3-41")]
    document = whole | {"claims": [entries[0] | {"expected": "MISPRINT"}, *entries[1:]]}

    assert made_articles(document) == wanted_verdicts(document["claims"])
    templates = tmp_path / "templates"
    shutil.copytree(site.TEMPLATES, templates)
    text = (templates / f"{template}.html.jinja").read_text(encoding="utf-8")
    assert before in text
    (templates / f"{template}.html.jinja").write_text(text.replace(before, after), encoding="utf-8")
    monkeypatch.setattr(site, "TEMPLATES", templates)
    assert made_articles(document) != wanted_verdicts(document["claims"])


def test_overview_says_how_many_parts_have_one_route(whole: dict[str, Any]) -> None:
    numbers = [len({item["route"] for item in part["evidence"]}) for one in whole["claims"] for part in one["parts"]]
    few = sum(number < 2 for number in numbers)
    assert few
    text = made(whole, ["index.html"])["index.html"]
    said = f"Of {len(numbers)} parts, {len(numbers) - few} are checked by two routes or more"
    assert said in text
    assert f"{few} by fewer" in text
    part = whole["claims"][0]["parts"][0]
    twice = [{**part["evidence"][0], "route": route} for route in ("proof", "measured")]
    alone = document_of([whole["claims"][0] | {"parts": [part | {"evidence": twice}]}])
    assert views.routed(parse(alone)).startswith("Each part is checked by two routes or more")
