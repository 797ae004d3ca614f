"""``depthlaw report`` without a browser: what stands on the pages is the document's, and an old report stays whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import pytest
from markupsafe import Markup, escape

from paper_checks.claims.claim import Route, Verdict
from paper_checks.cli import report as command
from paper_checks.cli.options import BadInputError
from paper_checks.experiments.kernel_laws import law
from paper_checks.pages import why_figure
from paper_checks.papers.registry import claims
from paper_checks.report import figures, folder, site, training, typeset, views
from paper_checks.report.graph import NODE, graph, places
from paper_checks.report.model import BadDocumentError, Document, parse
from paper_checks.verify import document as engine
from paper_checks.verify import tables_file
from paper_checks.verify.findings import FIRST, claims_with_findings
from tests import once
from tests.paper_checks.report_pages import SOME, STATIC, document_of, faults, made, read, unchecked

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='a()'> \"&lt; ${x} {{ 7*7 }}"


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, str]:
    return texts(built)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without figures, which take seconds and do not depend on the document."""
    monkeypatch.setattr(figures, "by_scheme", list)
    monkeypatch.setattr(figures, "for_claim", lambda _: [])
    monkeypatch.setattr(figures, "picture", lambda: None)
    monkeypatch.setattr(figures, "training", dict)
    monkeypatch.setattr(training, "page", lambda _: Markup("<h1>Training</h1>"))


def copied(some: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(some))


# ---------------------------------------------------------------- what stands on the pages


def check_pages(found: dict[str, Any], pages: dict[str, str]) -> None:
    """Ids and links are sound, and every claim is listed and has its article."""
    parsed = read(pages)
    assert faults(parsed) == []
    by_page = {entry["id"]: f"source-{entry['source']}.html" for entry in found["claims"]}
    assert sorted(id_ for id_ in parsed["claims.html"].ids if id_ in by_page) == sorted(by_page)
    assert all(id_ in parsed[name].ids for id_, name in by_page.items())
    assert max(len(text.encode()) for text in pages.values()) < 3e6


def test_every_page_is_sound(whole: dict[str, Any], pages: dict[str, str]) -> None:
    check_pages(whole, pages)


@pytest.mark.slow
def test_every_page_of_the_whole_report_is_sound(full: Path) -> None:
    check_pages(once.whole(), texts(full))


def test_the_overview_leads_with_picture_rule_and_results(whole: dict[str, Any], pages: dict[str, str]) -> None:
    text = pages["index.html"]
    at = [text.find(f'id="{id_}"') for id_ in ("picture", "rules", "verdicts", "found", "sources")]
    assert at[0] > -1 and at == sorted(at)
    assert f"Under SGD, DeepNorm {why_figure.goes(law('deepnorm', 'sgd'))}" in text
    for row in engine.small_tables()[0]["rows"]:
        assert str(typeset.cell(row["alpha"])) in text[at[1] : at[2]]
    for kind in ("result", "step"):
        of_kind = [entry["verdict"] for entry in whole["claims"] if entry["kind"] == kind]
        assert f": {len(of_kind)}, of which {of_kind.count('CONFIRMED')} hold as printed" in text
    results = [entry["verdict"] for entry in whole["claims"] if entry["kind"] == "result"]
    for verdict in Verdict:
        link = f'href="claims.html#kind=result&amp;verdict={verdict.value}"'
        assert f'{link}><span class="number">{results.count(verdict.value)}</span>' in text
    seen = text[at[3] : at[4]].partition("<details")[0]
    assert seen.count("<li>") == FIRST
    assert all(f"#{one.id}" in text for one in claims_with_findings())
    assert all(str(escape(one.meaning)) in text for one in (*Verdict, *Route))
    assert "Not as expected" not in text


def test_results_are_listed_before_steps(whole: dict[str, Any], pages: dict[str, str]) -> None:
    kinds = re.findall(r'<li class="entry" id="([\w-]+)" data-kind="(\w+)"', pages["claims.html"])
    assert kinds == sorted(kinds, key=lambda item: ["result", "step", "remark"].index(item[1]))
    assert dict(kinds) == {entry["id"]: entry["kind"] for entry in whole["claims"]}


def badges(text: str) -> list[tuple[str, str, str]]:
    """Colour, mark and word of each."""
    return re.findall(r'<span class="badge (\w+)"><span aria-hidden="true">([^<]+)</span> (\w+)</span>', text)


def badge(word: str) -> tuple[str, str, str]:
    return word.lower(), Verdict(word).symbol, word


def test_verdicts_are_those_of_the_document(whole: dict[str, Any], pages: dict[str, str]) -> None:
    """Of every claim, part and piece of evidence, by colour, mark and word, on all pages that have them."""
    of_claim = {entry["id"]: badge(entry["verdict"]) for entry in whole["claims"]}
    for entry in whole["claims"]:
        text = pages[f"source-{entry['source']}.html"]
        article = text.partition(f'<article class="claim {entry["verdict"].lower()}" id="{entry["id"]}"')[2]
        article = article.partition("</article>")[0]
        is_alone = len(entry["parts"]) == 1 and entry["parts"][0]["name"] == "as printed"
        wanted = [] if is_alone else [badge(part["verdict"]) for part in entry["parts"]]
        assert badges(article) == [of_claim[entry["id"]], *wanted]
        evidence = [item for part in entry["parts"] for item in sorted(part["evidence"], key=_is_amended)]
        shown = re.findall(r'<li class="(\w+)">\s*<p>(<span class="route".*?)</p>', article, re.DOTALL)
        assert [f"{colour} {' '.join(striptags(said))}" for colour, said in shown] == list(map(_evidence, evidence))
        single = sum(len({item["route"] for item in part["evidence"]}) == 1 for part in entry["parts"])
        assert article.count('class="muted single"') == single
    listed = re.findall(
        r'<li class="entry" id="([\w-]+)".*?data-verdict="(\w+)"(.*?)</li>', pages["claims.html"], re.DOTALL
    )
    assert {id_: badges(inside) for id_, _, inside in listed} == {id_: [one] for id_, one in of_claim.items()}
    rows = re.findall(r'<th scope="row"><a [^>]*>([\w-]+)</a></th><td>(.*?)</td>', pages["graph.html"], re.DOTALL)
    assert rows and all(badges(cell) == [of_claim[id_]] for id_, cell in rows)


def striptags(text: str) -> list[str]:
    return re.sub("<[^>]*>", "", text).split()


def _is_amended(item: dict[str, Any]) -> bool:
    return item["of"] == "amended"


def _evidence(item: dict[str, Any]) -> str:
    verdict, number = Verdict(item["verdict"]), item["num_effective"]
    colour = verdict.value.lower()
    return f"{colour} {item['route']} {verdict.symbol} {verdict.outcome} {number} case{'s' * (number != 1)}"


def test_each_verdict_has_a_colour_of_its_own() -> None:
    style = (site.STATIC / "style.css").read_text(encoding="utf-8")
    names = [verdict.value.lower() for verdict in Verdict]
    assert all(f".{name} {{ --verdict: var(--{name}); }}" in style for name in names)
    colours = [re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\);", style)[0] for name in names]
    assert all(len(set(theme)) == len(names) for theme in zip(*colours, strict=True))


@pytest.mark.usefixtures("light")
def test_a_claim_shows_all_that_is_known_of_it(some: dict[str, Any]) -> None:
    """Numbers, steps, counterexample with its command, mutants; a quotation of no kept copy is said to be restated."""
    shown = made(some)
    for entry in some["claims"]:
        text = shown[f"source-{entry['source']}.html"]
        for part in entry["parts"]:
            for item in part["evidence"]:
                assert all(str(typeset.prose(step)) in text or "S3-" in step for step in item["steps"])
                assert all(str(typeset.label(name)) in text for name in item["numbers"])
            if part["counterexample"]:
                assert str(escape(part["counterexample"]["command"])) in text
        assert f"Broken on purpose: {len(entry['mutants'])} of {len(entry['mutants'])} seen" in text
        assert ("; restated by us</figcaption>" in text) is (some["sources"][entry["source"]]["file"] is None)
    assert faults(read(shown)) == []  # claims that this document lacks are named, not linked
    assert made(some) == shown  # the same document, the same bytes


def test_a_sign_is_found_by_its_name_and_by_itself() -> None:
    claim = parse(document_of([unchecked("S1-37")])).claims[0]
    assert {"lambda/alpha", "λ/α", "(2n)^(-1/2)"} <= set(re.split(r"[ ,]+| = ", views.searched(claim, {})))


@pytest.mark.usefixtures("light")
def test_the_overview_says_what_is_not_as_expected(some: dict[str, Any]) -> None:
    found = copied(some)
    found["summary"]["mutants"]["survived"] = ["a factor of seven"]
    entry = found["claims"][0]
    entry["verdict"] = entry["parts"][0]["verdict"] = "UNDECIDED"
    found["summary"] |= {"as_expected": False, "unexpected": [entry["id"]]}
    text = made(found, ["index.html"])["index.html"]
    assert "broken on purpose, and not seen: a factor of seven" in text
    assert f"UNDECIDED, expected {entry['expected']}" in text


@pytest.mark.usefixtures("light")
def test_hostile_text_is_text(some: dict[str, Any]) -> None:
    """Every string of a document, replaced where its form allows it: nothing of it becomes a tag or a template."""
    shown = made(_poisoned(some))
    for name, page in read(shown).items():
        assert page.tags["script"] == 2
        assert not page.tags["img"] and not page.handlers
        assert "${x} 49" not in shown[name]
    assert "&lt;script&gt;" in shown["source-su.html"]
    assert faults(read(shown)) == []


FIXED = {"id", "source", "verdict", "expected", "kind", "route", "of", "uses", "key", "url", "unexpected", "claim"}


def _poisoned(value: Any, key: str = "") -> Any:
    if key in FIXED or (key == "claims" and isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    if isinstance(value, dict):
        return {name: _poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_poisoned(one, key) for one in value]
    return HOSTILE if isinstance(value, str) else value


def test_ids_in_text_become_links() -> None:
    found = {"S3-10": parse(document_of([unchecked("S3-10")])).claims[0]}
    linked = views.linked(Markup('S3-10, S3-99, <a title="S3-10">S3-10</a> &lt;S3-10'), found)
    there = '<a href="source-slides.html#S3-10">S3-10</a>'
    assert linked == f'{there}, S3-99, <a title="S3-10">S3-10</a> &lt;{there}'


def test_quotes_read_as_lines_rows_or_what_a_pdf_left() -> None:
    """A line that only a layout ended goes on; those of code and tables do not; scattered letters are no formula."""
    assert views.quoted("one\nline") == "one line"
    assert views.quoted("def f(x):\nreturn x + 1\ndef g(x):") == "def f(x):\nreturn x + 1\ndef g(x):"
    assert views.quoted("is O(\nl=1 v2\nl\n), i 6=l") == "is O( l=1 v2 l ), i 6=l"
    found = views.quoted("<b>a</b>\t\t1e-3\n<em>\t$x$")
    assert found.startswith("<table><tbody><tr><td><b>a</b></td><td></td><td>")
    assert found.count("<tr>") == 2 and "&lt;em&gt;" in found and "<math" in found


def test_a_cell_of_the_cross_table_is_of_its_scheme_and_optimizer() -> None:
    cells = [{"scheme": s, "optimizer": o, "approximate": f"{s} {o}"} for s in ("a", "b") for o in ("x", "y", "z")]
    assert views.matrix(cells) == [{"scheme": s, **{o: f"{s} {o}" for o in ("x", "y", "z")}} for s in ("a", "b")]


def test_training_page_keeps_words_and_turns_links(tmp_path: Path) -> None:
    file = tmp_path / "PAGE.md"
    file.write_text(
        "<!-- generated -->\n\n# Title\n\n[here](#a), [there](TRANSFORMERS.md), [no](sims/x.py) <bold>, at 2^-6.5\n\n"
        "| name |\n| - |\n| 1 |\n\n![alt](figures/training-a.svg)\n\n*its caption*\n\nend\n",
        encoding="utf-8",
    )
    found = training.page(lambda name: Markup("<figure>{}</figure>").format(name), file)
    assert '<a href="#a">here</a>, <a href="measured.html">there</a>, no &lt;bold&gt;' in found
    assert f"at {typeset.prose('2^-6.5')}</p>" in found and "<sup>" in found
    assert "<figure>training-a</figure><p>end</p>" in found.replace("\n", "")
    assert 'role="region" aria-label="Title, table 1"' in found and '<th scope="col">name</th>' in found


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


# ---------------------------------------------------------------- the graph


def drawn(*uses: tuple[str, ...]) -> ElementTree.Element:
    """Of claims that are made up: an id, and the ids that it leans on."""
    made_up = [
        {"id": id_, "source": "su", "verdict": "REFUTED", "statement": "x < alpha & more", "uses": used}
        for id_, *used in uses
    ]
    return ElementTree.fromstring(f"<div>{graph(made_up)}</div>")


def test_every_arrow_goes_from_a_claim_to_one_on_its_right_that_leans_on_it(pages: dict[str, str]) -> None:
    text = pages["graph.html"]
    boxes = re.findall(r'class="node \w+" data-id="([\w-]+)".*?<rect x="([\d.]+)" y="([\d.]+)"', text)
    corner = {id_: (float(x), float(y)) for id_, x, y in boxes}
    arrows = re.findall(r'data-from="([\w-]+)" data-to="([\w-]+)"', text)
    assert sorted(arrows) == sorted((used, one.id) for one in claims().values() for used in one.uses)
    assert set(corner) == {id_ for arrow in arrows for id_ in arrow} and len(boxes) == len(corner)
    assert all(corner[used][0] + NODE[0] < corner[user][0] for used, user in arrows)


def test_nothing_lies_on_anything() -> None:
    chain = places(nx.DiGraph([("a", "b"), ("b", "c"), ("a", "c"), ("late", "c")]))
    assert chain["late"][0] == chain["b"][0]  # next to what leans on it
    corners = list(chain.values())  # with the place where the arrow from a to c passes by b
    for i, (x, y) in enumerate(corners):
        assert not [1 for u, v in corners[:i] if abs(x - u) < NODE[0] and abs(y - v) < NODE[1]]
    assert len(corners) == 5


def test_a_node_says_its_claim_in_words_and_without_colour() -> None:
    node, _ = drawn(("S1-01",), ("S1-02", "S1-01"), ("S1-03",)).iter("a")
    assert "".join(node.itertext()).endswith("✗S1-01 x < α & more")
    assert node.attrib["aria-label"] == "S1-01, REFUTED: x < α & more"
    assert node.attrib["class"] == "node refuted"
    with pytest.raises(KeyError):
        drawn(("S1-02", "S1-01"))


# ---------------------------------------------------------------- the document that comes from outside


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found | {"schema_version": 2}, "its schema_version is 2, and this version reads 1"),
        (lambda found: {"schema_version": 1}, "it is no document of `depthlaw verify`: claims: Field required"),
        (lambda found: found | {"claims": found["claims"] * 2}, "stands twice"),
        (lambda found: found | {"sources": {}}, "is of a source that the document does not describe"),
        (lambda found: _with_claim(found, id="../../S1-01"), "claims.0.id"),
        (lambda found: _with_claim(found, source="../su"), "claims.0.source"),
        (lambda found: _with_claim(found, verdict="TRUE"), "claims.0.verdict"),
        (lambda found: _with_claim(found, kind="guess"), "claims.0.kind"),
        (lambda found: _with_url(found, "javascript:alert(1)"), "url"),
    ],
)
def test_what_is_no_document_is_refused(some: dict[str, Any], tmp_path: Path, change: Any, said: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(change(copied(some))), encoding="utf-8")
    with pytest.raises(BadInputError) as refused:
        command.run(str(tmp_path / "site"), document_file=str(file), quick=False, as_json=False)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_what_is_not_json_is_refused() -> None:
    for content in (b"{", b"\xff", b"", b"[" * 10_000):
        with pytest.raises(BadDocumentError, match="it is not JSON"):
            parse(content)


def _with_claim(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return found | {"claims": [found["claims"][0] | changes, *found["claims"][1:]]}


def _with_url(found: dict[str, Any], url: str) -> dict[str, Any]:
    return found | {"sources": {key: one | {"url": url} for key, one in found["sources"].items()}}


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
        ("..", "the folder that you are in"),
    ):
        with pytest.raises(BadInputError, match=said):
            command.run(out, document_file=None, quick=True, as_json=False)
    monkeypatch.chdir(tmp_path)
    for file, quick, said in (
        (None, True, r"is not empty and holds no report \(thesis.tex"),
        ("nothing.json", False, r"cannot read nothing\.json: No such file"),
        ("file", True, "give one of them"),
    ):
        with pytest.raises(BadInputError, match=said):
            command.run("site" if file else "full", document_file=file, quick=quick, as_json=False)
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
def test_written_and_replaced_and_never_over_other_files(document: Document, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    found = site.write(document, folder.check(out))
    first = snapshot(out)
    assert set(first) == {"index.html", "claims.html", *STATIC, folder.MARKER}
    assert found == [out / "index.html", out / "claims.html"]
    (out / "index.html").write_text("old", encoding="utf-8")
    site.write(document, folder.check(out))
    assert snapshot(out) == first
    assert [path.name for path in out.parent.iterdir()] == ["site"]
    (out / "notes.txt").touch()
    with pytest.raises(folder.NotOursError, match=r"notes\.txt besides"):
        folder.check(out)


@pytest.mark.parametrize("failing", ["render", "rename"])
def test_old_report_stays_where_the_new_one_fails(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_pages: dict[str, Any], failing: str
) -> None:
    out = tmp_path / "site"
    site.write(document, folder.check(out))
    before = snapshot(out)
    real, failed = Path.rename, []

    def rename(self: Path, target: Path) -> Path:
        """Fails once, where the new site is to take the old one's place."""
        if Path(target) == out and not failed:
            failed.append(target)
            raise OSError(28, "No space left on device", str(target))
        return real(self, target)

    if failing == "render":
        two_pages["claims.html"] = lambda: str(1 // 0)
    else:
        monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((ZeroDivisionError, OSError)):
        site.write(document, folder.check(out))
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


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

    file.write_text(json.dumps(some | {"summary": some["summary"] | {"as_expected": False}}), encoding="utf-8")
    assert command.run(str(out), document_file=str(file), quick=False, as_json=True) == 1
    answer = {"schema_version": 1, "out": str(out), "pages": 2, "claims": len(SOME), "as_expected": False}
    assert json.loads(capsys.readouterr().out) == answer | {"verdicts": some["summary"]["verdicts"]}


@pytest.mark.usefixtures("two_pages")
def test_without_a_document_it_verifies(
    some: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    monkeypatch.setattr(engine, "verify", lambda ids, progress, **how: asked.append((ids, how)) or some)
    for quick in (False, True):
        command.run(str(tmp_path / "site"), document_file=None, quick=quick, as_json=False)
        assert asked[-1] == (list(claims()), {"derive": not quick, "with_mutants": not quick, "quick": quick})
    assert capsys.readouterr().err == "depthlaw: checking claims\ndepthlaw: writing pages\n" * 2, "no bar, a line each"
