"""``depthlaw report``: what stands on the pages, what is refused, and that an old report stays whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup, escape

from paper_checks.claims.claim import Route, Verdict
from paper_checks.cli import report as command
from paper_checks.cli.inputs import BadInputError
from paper_checks.experiments.kernel_laws import law
from paper_checks.pages import why_figure
from paper_checks.papers.registry import claims
from paper_checks.report import figures, folder, site, training, typeset, views
from paper_checks.report.model import BadDocumentError, Document, parse
from paper_checks.verify import document as engine
from paper_checks.verify import tables_file
from paper_checks.verify.findings import FIRST, claims_with_findings
from tests import once
from tests.paper_checks.report_pages import (
    SOME,
    STATIC,
    Page,
    document_of,
    faults,
    made,
    read,
    unchecked,
    unreachable,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='a()'> \"&lt; ${x} {{ 7*7 }}"


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in built.glob("*.html")}


@pytest.fixture(scope="module")
def parsed(pages: dict[str, str]) -> dict[str, Page]:
    return read(pages)


def without_figures(patch: pytest.MonkeyPatch) -> None:
    """They take seconds and do not depend on the document."""
    patch.setattr(figures, "by_scheme", list)
    patch.setattr(figures, "for_claim", lambda _: [])
    patch.setattr(figures, "training", dict)
    patch.setattr(training, "page", lambda _: Markup("<h1>Training</h1>"))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    without_figures(monkeypatch)


@pytest.fixture(scope="module")
def few(some: dict[str, Any]) -> dict[str, str]:
    """The pages of a few claims, without figures."""
    with pytest.MonkeyPatch.context() as patch:
        without_figures(patch)
        return made(some)


# ---------------------------------------------------------------- what stands on the pages


def check_pages(found: Mapping[str, Any], parsed: Mapping[str, Page]) -> None:
    """Each is sound, and leads to every claim."""
    assert faults(parsed, STATIC) == []
    assert unreachable(found, parsed) == []
    listed = parsed["claims.html"]
    assert [id_ for id_ in listed.ids if id_ in claims()] == list(claims())
    assert {f"source-{entry['source']}.html#{entry['id']}" for entry in found["claims"]} <= set(listed.links)


def test_every_page_is_sound(whole: dict[str, Any], pages: dict[str, str], parsed: dict[str, Page]) -> None:
    check_pages(whole, parsed)
    assert max(len(text.encode()) for text in pages.values()) < 3e6


@pytest.mark.slow
def test_every_page_of_the_whole_report_is_sound(full: Path) -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in full.glob("*.html")}
    check_pages(once.whole(), read(pages))
    assert max(len(text.encode()) for text in pages.values()) < 3e6


def test_a_quotation_of_which_no_copy_is_kept_is_said_to_be_restated(
    whole: dict[str, Any], pages: dict[str, str]
) -> None:
    for key, source in whole["sources"].items():
        num_claims = sum(entry["source"] == key for entry in whole["claims"])
        found = pages.get(f"source-{key}.html", "").count("; restated by us</figcaption>")
        assert found == (0 if source["file"] else num_claims)


MUTANTS = {
    "a link into the void": lambda text: text.replace('href="graph.html"', 'href="graphs.html"', 1),
    "a fragment that no page has": lambda text: text.replace("#S3-10", "#S3-99"),
    "an image from elsewhere": lambda text: text.replace("<main", '<img src="https://a.example/b.png"><main', 1),
    "a script from elsewhere": lambda text: text.replace("static/site.js", "//a.example/site.js"),
    "a style that is not there": lambda text: text.replace("static/style.css", "static/styles.css"),
    "an inline handler": lambda text: text.replace("<main", '<main onclick="a()"', 1),
    "a tag left open": lambda text: text.replace("</h1>", "", 1),
    "a heading skipped": lambda text: text.replace("<h2", "<h4", 1).replace("</h2>", "</h4>", 1),
    "an id twice": lambda text: text.replace("<footer", '<footer id="content"', 1),
    "no main": lambda text: text.replace("<main", "<div").replace("</main>", "</div>"),
    "a drawing without a name": lambda text: text.replace("<main", '<svg role="img"><g></g></svg><main', 1),
    "a region without a name": lambda text: text.replace('role="region" aria-label="The', 'role="region" title="The'),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_page_that_is_not_sound_is_seen(pages: dict[str, str], parsed: dict[str, Page], name: str) -> None:
    broken = MUTANTS[name](pages["index.html"])
    assert broken != pages["index.html"]
    assert faults({**parsed, "index.html": Page(broken)}, STATIC)


def test_a_claim_that_is_lost_is_seen(whole: dict[str, Any], pages: dict[str, str], parsed: dict[str, Page]) -> None:
    lost = pages["source-su.html"].replace('<article class="claim confirmed" id="S1-24"', "<article", 1)
    assert unreachable(whole, {**parsed, "source-su.html": Page(lost)}) == ["S1-24"]


def test_overview_counts_and_finds(whole: dict[str, Any], pages: dict[str, str]) -> None:
    text = pages["index.html"]
    for verdict, number in whole["summary"]["verdicts"].items():
        assert f'href="claims.html#verdict={verdict}"><span class="number">{number}</span>' in text
    for one in claims_with_findings():
        assert f"#{one.id}" in text
    assert "Not as expected" not in text


def leads(text: str) -> bool:
    """The picture and the rule by optimizer before counts and findings, of which the first are seen."""
    places = [text.find(f'id="{id_}"') for id_ in ("picture", "rules", "verdicts", "found")]
    seen = text.partition('id="found"')[2].partition("</section>")[0].partition("<details")[0]
    rows = {name: row for table in engine.small_tables()[:2] for name, row in _by_optimizer(table).items()}
    cells = [str(typeset.cell(row[key])) for row in rows.values() for key in ("alpha", "lambda")]
    said = [f"Under SGD, DeepNorm {why_figure.goes(law('deepnorm', 'sgd'))}", "under Adam it grows as"]
    return (
        places[0] > -1
        and places == sorted(places)
        and all(words in text for words in said)
        and all(cell in text[places[1] : places[2]] for cell in cells)
        and seen.count("<li>") == FIRST
    )


def _by_optimizer(table: Any) -> dict[str, Any]:
    return {f"{table['id']} {row['optimizer']}": row for row in table["rows"]}


def test_overview_leads_with_the_picture_and_the_rule(pages: dict[str, str]) -> None:
    text = pages["index.html"]
    assert leads(text)
    for old, new in (
        ('id="picture"', 'id="pictures"'),
        ("DeepNorm is flat", "DeepNorm falls"),
        (str(typeset.cell("sqrt(2*N)")), str(typeset.cell("2*N"))),
        ("<details", "<div"),
    ):
        assert old in text
        assert not leads(text.replace(old, new)), old


def test_a_command_that_shows_no_more_than_the_page_is_called_so(few: dict[str, str]) -> None:
    text = "".join(text for name, text in few.items() if name.startswith("source-"))
    labels = re.findall(r'<p class="label">([^<]*)</p>\s*<div class="command"><code>(.*?)</code>', text)
    assert len(labels) > 3
    assert all((label == "See it") is not command.startswith("depthlaw explain ") for label, command in labels)
    assert {"depthlaw explain", "python -c"} <= {" ".join(one.split()[:2]) for _, one in labels}


def test_a_cell_of_the_cross_table_is_of_its_scheme_and_optimizer() -> None:
    cells = [{"scheme": s, "optimizer": o, "approximate": f"{s} {o}"} for s in ("a", "b") for o in ("x", "y", "z")]
    assert views.matrix(cells) == [{"scheme": s, **{o: f"{s} {o}" for o in ("x", "y", "z")}} for s in ("a", "b")]


def test_overview_says_what_is_not_as_expected(some: dict[str, Any]) -> None:
    found = json.loads(json.dumps(some))
    found["summary"]["mutants"]["survived"] = ["a factor of seven"]
    entry = found["claims"][0]
    entry["verdict"] = entry["parts"][0]["verdict"] = "UNDECIDED"
    found["summary"] |= {"as_expected": False, "unexpected": [entry["id"]]}
    text = made(found, ["index.html"])["index.html"]
    assert "Not as expected" in text
    assert "broken on purpose, and not seen: a factor of seven" in text
    assert f"UNDECIDED, expected {entry['expected']}" in text


def test_a_claim_shows_all_that_is_known_of_it(some: dict[str, Any], few: dict[str, str]) -> None:
    """Evidence, steps, numbers, counterexample with its command, mutants, and both directions of uses."""
    for entry in some["claims"]:
        text = few[f"source-{entry['source']}.html"]
        for part in entry["parts"]:
            assert text.count('<span class="route"') >= len(part["evidence"])
            if part["counterexample"]:
                assert str(Markup.escape(part["counterexample"]["command"])) in text
        assert f"Broken on purpose: {len(entry['mutants'])} of {len(entry['mutants'])} seen" in text
    assert "Derivation, " in "".join(few.values())
    assert faults(read(few), STATIC) == []  # claims that this document lacks are named, not linked


@pytest.mark.usefixtures("light")
def test_hostile_text_is_text(some: dict[str, Any], few: dict[str, str]) -> None:
    """Every string of a document, replaced where its form allows it: nothing of it becomes a tag or a template."""
    shown = made(_poisoned(some))
    parsed = read(shown)
    for name, page in parsed.items():
        assert page.tags["script"] == few[name].count("<script") == 2
        assert not page.tags["img"] and not page.handlers
        assert "49" not in shown[name].partition("<main")[2] or "{{ 7*7 }}" in shown[name]
    assert "&lt;script&gt;" in shown["source-su.html"]
    assert faults(parsed, STATIC) == []


def _poisoned(value: Any, key: str = "") -> Any:
    fixed = {
        "id",
        "source",
        "verdict",
        "expected",
        "route",
        "of",
        "uses",
        "claims",
        "key",
        "url",
        "unexpected",
        "claim",
    }
    if key in fixed and not (key == "claims" and isinstance(value, list) and value and isinstance(value[0], dict)):
        return value
    if isinstance(value, dict):
        return {name: _poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_poisoned(one, key) for one in value]
    return HOSTILE if isinstance(value, str) else value


def test_ids_in_text_become_links() -> None:
    found = {"S3-10": parse_claim("S3-10")}
    linked = views.linked(Markup('S3-10, S3-99, <a title="S3-10">S3-10</a> &lt;S3-10'), found)
    there = '<a href="source-slides.html#S3-10">S3-10</a>'
    assert linked == f'{there}, S3-99, <a title="S3-10">S3-10</a> &lt;{there}'
    assert views.linked("<S3-10>", {}) == "&lt;S3-10&gt;"


def test_quotes_read_as_lines_rows_or_what_a_pdf_left() -> None:
    """A line that only a layout ended goes on; those of code and tables do not; scattered letters are no formula."""
    assert views.quoted("one\nline") == "one line"
    assert views.quoted("def f(x):\nreturn x + 1\ndef g(x):") == "def f(x):\nreturn x + 1\ndef g(x):"
    scattered = "is O(\nl=1 v2\nl\n), i 6=l"
    assert views.is_scattered(scattered) and not views.is_scattered("printed\nlines of a text")
    assert views.quoted(scattered) == "is O( l=1 v2 l ), i 6=l"
    found = views.quoted("<b>a</b>\t\t1e-3\n<em>\t$x$")
    assert found.startswith("<table><tbody><tr><td><b>a</b></td><td></td><td>")
    assert found.count("<tr>") == 2 and "&lt;em&gt;" in found and "<math" in found


def parse_claim(id_: str) -> Any:
    return parse(document_of([unchecked(id_)])).claims[0]


@pytest.mark.usefixtures("light")
def test_same_document_same_bytes(some: dict[str, Any], few: dict[str, str]) -> None:
    assert made(some) == few
    other = json.loads(json.dumps(some))
    other["claims"][0]["quote"] += "."
    name = f"source-{other['claims'][0]['source']}.html"
    assert made(other, [name])[name] != few[name]


def test_statement_of_another_registry_is_shown_as_its_text(some: dict[str, Any]) -> None:
    claim = parse(some).claims[0]
    part = claim.parts[0].model_copy(update={"statement": "quite another thing"})
    assert "quite another thing" in views.statement_of(claim, part)


def test_training_page_keeps_words_and_turns_links(tmp_path: Path) -> None:
    file = tmp_path / "PAGE.md"
    file.write_text(
        "<!-- generated -->\n\n# Title\n\n[here](#a), [there](TRANSFORMERS.md), [no](sims/x.py) <bold>, at 2^-6.5\n\n"
        "| name |\n| - |\n| 1 |\n\n![alt](figures/training-a.svg)\n\n*its caption*\n\nend\n",
        encoding="utf-8",
    )
    found = training.page(lambda name: Markup("<figure>{}</figure>").format(name), file)
    assert '<a href="#a">here</a>, <a href="measured.html">there</a>, no &lt;bold&gt;' in found
    assert f"at {typeset.prose('2^-6.5')}</p>" in found and "<msup>" in found
    assert "<figure>training-a</figure><p>end</p>" in found.replace("\n", "")
    assert 'role="region" aria-label="Title, table 1"' in found and '<th scope="col">name</th>' in found
    assert "generated" not in found


def test_the_overview_says_what_each_verdict_and_route_means(pages: dict[str, str]) -> None:
    for one in (*Verdict, *Route):
        assert str(escape(one.meaning)) in pages["index.html"]


@pytest.mark.usefixtures("light")
def test_without_kept_numbers_the_site_says_so(some: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: Any) -> Any:
        raise LookupError("nothing is kept of it")

    monkeypatch.setattr(figures, "by_scheme", stale)
    monkeypatch.setattr(figures, "for_claim", stale)
    monkeypatch.setattr(tables_file, "stored", lambda: None)
    shown = made(some)
    assert "nothing is kept of it" in shown["measured.html"]
    assert "make tables" in shown["tables.html"]
    assert faults(read(shown), STATIC) == []


# ---------------------------------------------------------------- the document that comes from outside


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found | {"schema_version": 2}, "its schema_version is 2, and this version reads 1"),
        (lambda found: {"schema_version": 1}, "it is no document of `depthlaw verify`: claims: Field required"),
        (lambda found: found | {"claims": []}, "claims: "),
        (lambda found: found | {"claims": found["claims"] * 2}, "stands twice"),
        (lambda found: found | {"sources": {}}, "is of a source that the document does not describe"),
        (lambda found: _with_claim(found, id="../../S1-01"), "claims.0.id"),
        (lambda found: _with_claim(found, source="../su"), "claims.0.source"),
        (lambda found: _with_claim(found, verdict="TRUE"), "claims.0.verdict"),
        (lambda found: _with_claim(found, parts=[]), "claims.0.parts"),
        (lambda found: _with_url(found, "javascript:alert(1)"), "url"),
    ],
)
def test_what_is_no_document_is_refused(some: dict[str, Any], tmp_path: Path, change: Any, said: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(change(json.loads(json.dumps(some)))), encoding="utf-8")
    with pytest.raises(BadInputError) as refused:
        command.run(str(tmp_path / "site"), document_file=str(file), quick=False, as_json=False)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def _with_claim(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return found | {"claims": [found["claims"][0] | changes, *found["claims"][1:]]}


def _with_url(found: dict[str, Any], url: str) -> dict[str, Any]:
    return found | {"sources": {key: one | {"url": url} for key, one in found["sources"].items()}}


@pytest.mark.parametrize("content", [b"{", b"\xff", b"", b"[" * 10_000])
def test_what_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(BadDocumentError, match="it is not JSON"):
        parse(content)


def test_refusals_before_anything_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_verified", lambda *_: pytest.fail("verified before looking"))
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    monkeypatch.chdir(tmp_path / "full")
    for out, said in (
        ("", "empty name"),
        (str(tmp_path / "file"), "is not a folder"),
        (str(tmp_path / "file" / "below"), "cannot be written to"),
        (str(tmp_path / "full"), "the folder that you are in"),
        ("..", "the folder that you are in"),
    ):
        with pytest.raises(BadInputError, match=said):
            command.run(out, document_file=None, quick=True, as_json=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"is not empty and holds no report \(thesis.tex"):
        command.run("full", document_file=None, quick=True, as_json=False)
    with pytest.raises(BadInputError, match=r"cannot read nothing\.json: No such file"):
        command.run("site", document_file="nothing.json", quick=False, as_json=False)
    with pytest.raises(BadInputError, match="give one of them"):
        command.run("site", document_file="file", quick=True, as_json=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


# ---------------------------------------------------------------- writing


def snapshot(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def document(some: dict[str, Any]) -> Document:
    return parse(some)


@pytest.fixture
def two_pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Where it is the writing that is looked at, and not what is written."""
    pages = {"index.html": lambda: "one", "claims.html": lambda: "two"}
    monkeypatch.setattr(site, "contents", lambda _: pages)
    return pages


@pytest.mark.usefixtures("two_pages")
def test_written_and_replaced(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    seen = []
    found = site.write(document, folder.check(out), lambda *step: seen.append(step))
    assert found[0] == out / "index.html"
    assert seen[-1] == ("writing pages", len(found), len(found))
    first = snapshot(out)
    assert set(first) == {"index.html", "claims.html", *STATIC, folder.MARKER}
    assert [path.name for path in found] == ["index.html", "claims.html"]
    assert (first["index.html"], first["claims.html"]) == (b"one", b"two")
    (out / "index.html").write_text("old", encoding="utf-8")
    site.write(document, folder.check(out), None)
    assert snapshot(out) == first
    assert [path.name for path in out.parent.iterdir()] == ["site"]


@pytest.mark.parametrize("failing", ["render", "rename"])
def test_old_report_stays_where_the_new_one_fails(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_pages: dict[str, Any], failing: str
) -> None:
    out = tmp_path / "site"
    out.mkdir()
    (out / "index.html").write_text("old", encoding="utf-8")
    (out / folder.MARKER).write_text("index.html\n", encoding="utf-8")
    before = snapshot(out)
    if failing == "render":
        two_pages["claims.html"] = lambda: str(1 // 0)
    else:
        monkeypatch.setattr(Path, "rename", _failing_onto(out))
    with pytest.raises((ZeroDivisionError, OSError)):
        site.write(document, folder.check(out), None)
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def _failing_onto(out: Path) -> Any:
    """A rename that fails once where the new site is to take the old one's place."""
    real = Path.rename
    failed = []

    def rename(self: Path, target: Path) -> Path:
        if Path(target) == out and not failed:
            failed.append(target)
            raise OSError(28, "No space left on device", str(target))
        return real(self, target)

    return rename


@pytest.mark.usefixtures("two_pages")
def test_what_somebody_put_into_a_report_is_not_lost(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "site"
    site.write(document, folder.check(out), None)
    (out / "notes.txt").touch()
    with pytest.raises(folder.NotOursError, match=r"notes\.txt besides"):
        folder.check(out)


# ---------------------------------------------------------------- the command


@pytest.mark.usefixtures("two_pages")
def test_command_says_where_and_exits_by_the_verdicts(
    some: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "verify.json", tmp_path / "site"
    file.write_text(json.dumps(some), encoding="utf-8")
    assert command.run(str(out), document_file=str(file), quick=False, as_json=False) == 0
    said = capsys.readouterr().out
    assert f"{len(SOME)} claims" in said
    assert f"pages; open {out / 'index.html'}" in said

    some = some | {"summary": some["summary"] | {"as_expected": False}}
    file.write_text(json.dumps(some), encoding="utf-8")
    assert command.run(str(out), document_file=str(file), quick=False, as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer == {
        "schema_version": 1,
        "out": str(out),
        "pages": 2,
        "claims": len(SOME),
        "verdicts": some["summary"]["verdicts"],
        "as_expected": False,
    }


@pytest.mark.usefixtures("two_pages")
def test_without_a_document_it_verifies(
    some: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def verify(ids: list[str], **how: Any) -> dict[str, Any]:
        how.pop("progress")
        asked.append((ids, how))
        return some

    monkeypatch.setattr(engine, "verify", verify)
    command.run(str(tmp_path / "site"), document_file=None, quick=False, as_json=False)
    command.run(str(tmp_path / "site"), document_file=None, quick=True, as_json=False)
    full = {"derive": True, "with_mutants": True, "quick": False}
    assert asked == [(list(claims()), full), (list(claims()), dict.fromkeys(full, False) | {"quick": True})]
    assert capsys.readouterr().err == "depthlaw: checking claims\ndepthlaw: writing pages\n" * 2, "no bar, a line each"
