"""``depthlaw report`` without a browser: what stands on the pages is the document's, and an old report stays whole."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup, escape

from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.pages import why_figure
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.report import figures, folder, rendered, site, typeset, views
from depthlaw.paper_checks.report.graph import NODE
from depthlaw.paper_checks.report.model import parse
from depthlaw.paper_checks.verify import document as engine
from tests.command import depthlaw, refusal
from tests.paper_checks.report_pages import SOME, STATIC, document_of, faults, made, read, unchecked

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='a()'> \"&lt; ${x} {{ 7*7 }}"


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, str]:
    return texts(built)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


SECTIONS = [(id_, id_) for id_ in ("findings", "printed-beside-derived", "the-sources-beside-one-another")]
"""Of a kept page, those that other pages lead to."""
BODY = "".join(f'<h2 id="{id_}">{id_}</h2>' for id_, _ in SECTIONS)


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without figures, which take seconds and do not depend on the document."""
    monkeypatch.setattr(figures, "for_claim", lambda _: [])
    monkeypatch.setattr(why_figure, "words", lambda: None)
    monkeypatch.setattr(rendered, "page", lambda _: rendered.Page("Kept", SECTIONS, Markup(BODY)))


# ---------------------------------------------------------------- what stands on the pages


def check_pages(found: dict[str, Any], pages: dict[str, str]) -> None:
    """Ids and links are sound, and every claim is listed and has its article."""
    parsed = read(pages)
    assert faults(parsed) == []
    by_page = {entry["id"]: f"source-{entry['source']}.html" for entry in found["claims"]}
    assert sorted(id_ for id_ in parsed["claims.html"].ids if id_ in by_page) == sorted(by_page)
    assert all(id_ in parsed[name].ids for id_, name in by_page.items())
    assert max(len(text.encode()) for text in pages.values()) < 3e6


@pytest.mark.wide
def test_every_page_is_sound(whole: dict[str, Any], pages: dict[str, str]) -> None:
    check_pages(whole, pages)


@pytest.mark.wide
def test_results_are_listed_before_steps(whole: dict[str, Any], pages: dict[str, str]) -> None:
    kinds = re.findall(r'<li class="entry" id="([\w-]+)" data-kind="(\w+)"', pages["claims.html"])
    assert kinds == sorted(kinds, key=lambda item: ["result", "step", "remark"].index(item[1]))
    assert dict(kinds) == {entry["id"]: entry["kind"] for entry in whole["claims"]}


def badges(text: str) -> list[tuple[str, str, str]]:
    """Colour, mark and word of each."""
    return re.findall(r'<span class="badge (\w+)"><span aria-hidden="true">([^<]+)</span> (\w+)</span>', text)


def badge(word: str) -> tuple[str, str, str]:
    return word.lower(), Verdict(word).symbol, word


@pytest.mark.wide
def test_verdicts_are_those_of_the_document(whole: dict[str, Any], pages: dict[str, str]) -> None:
    """Of every claim and part, by colour, mark and word, on all pages that have them."""
    of_claim = {entry["id"]: badge(entry["verdict"]) for entry in whole["claims"]}
    for entry in whole["claims"]:
        text = pages[f"source-{entry['source']}.html"]
        article = text.partition(f'<article class="claim {entry["verdict"].lower()}" id="{entry["id"]}"')[2]
        article = article.partition("</article>")[0]
        is_alone = len(entry["parts"]) == 1 and entry["parts"][0]["name"] == "as printed"
        wanted = [] if is_alone else [badge(part["verdict"]) for part in entry["parts"]]
        assert badges(article) == [of_claim[entry["id"]], *wanted]
    listed = re.findall(
        r'<li class="entry" id="([\w-]+)".*?data-verdict="(\w+)"(.*?)</li>', pages["claims.html"], re.DOTALL
    )
    assert {id_: badges(inside) for id_, _, inside in listed} == {id_: [one] for id_, one in of_claim.items()}
    rows = re.findall(r'<th scope="row"><a [^>]*>([\w-]+)</a></th><td>(.*?)</td>', pages["graph.html"], re.DOTALL)
    assert rows and all(badges(cell) == [of_claim[id_]] for id_, cell in rows)


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
    found = deepcopy(some)
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


def test_a_cell_of_the_cross_table_is_of_its_scheme_and_optimizer() -> None:
    cells = [{"scheme": s, "optimizer": o, "approximate": f"{s} {o}"} for s in ("a", "b") for o in ("x", "y", "z")]
    assert views.matrix(cells) == [{"scheme": s, **{o: f"{s} {o}" for o in ("x", "y", "z")}} for s in ("a", "b")]


@pytest.mark.wide
def test_every_arrow_goes_from_a_claim_to_one_on_its_right_that_leans_on_it(pages: dict[str, str]) -> None:
    text = pages["graph.html"]
    boxes = re.findall(r'class="node \w+" data-id="([\w-]+)".*?<rect x="([\d.]+)" y="([\d.]+)"', text)
    corner = {id_: (float(x), float(y)) for id_, x, y in boxes}
    arrows = re.findall(r'data-from="([\w-]+)" data-to="([\w-]+)"', text)
    assert sorted(arrows) == sorted((used, one.id) for one in claims().values() for used in one.uses)
    assert set(corner) == {id_ for arrow in arrows for id_ in arrow} and len(boxes) == len(corner)
    assert all(corner[used][0] + NODE[0] < corner[user][0] for used, user in arrows)


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
        (lambda found: found | {"sources": {"su": found["sources"]["su"] | {"url": "javascript:alert(1)"}}}, "url"),
        (lambda found: "{", "it is not JSON"),
        (lambda found: "[" * 10_000, "it is not JSON"),
    ],
)
def test_what_is_no_document_is_refused(some: dict[str, Any], tmp_path: Path, change: Any, said: str) -> None:
    file, changed = tmp_path / "bad.json", change(deepcopy(some))
    file.write_text(changed if isinstance(changed, str) else json.dumps(changed), encoding="utf-8")
    assert said in refusal("report", "--from", file, "--out", tmp_path / "site")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def _with_claim(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return found | {"claims": [found["claims"][0] | changes, *found["claims"][1:]]}


def test_refusals_before_anything_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "verify", lambda *_, **__: pytest.fail("verified before looking"))
    (tmp_path / "file").touch()
    for name in ("full", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    monkeypatch.chdir(tmp_path / "here")
    for line, said in {
        "report --out=": "empty name",
        "report --out ../file": "is not a folder",
        "report --out ../file/below": "cannot be written to",
        "report --out ..": "the folder that you are in",
        "report --out ../full --quick": "is not empty and holds no report (thesis.tex",
        "report --out site --from nothing.json": "cannot read nothing.json: No such file",
        "report --out site --from ../file --quick": "give one of them",
    }.items():
        assert said in refusal(*line.split()), line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "here", "thesis.tex"]


# ---------------------------------------------------------------- writing


def snapshot(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def two_pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Where it is the writing that is looked at, and not what is written."""
    pages = {"index.html": lambda: "one", "claims.html": lambda: "two"}
    monkeypatch.setattr(site, "contents", lambda _: pages)
    return pages


@pytest.mark.usefixtures("two_pages")
def test_written_and_replaced_and_never_over_other_files(some: dict[str, Any], tmp_path: Path) -> None:
    out, document = tmp_path / "deep" / "site", parse(some)
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
    some: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_pages: dict[str, Any], failing: str
) -> None:
    out, document = tmp_path / "site", parse(some)
    site.write(document, folder.check(out))
    before = snapshot(out)
    rename, failed = Path.rename, list[Path]()

    def full(self: Path, target: Path) -> Path:
        """Fails once, where the new site is to take the old one's place."""
        if Path(target) == out and not failed:
            failed.append(target)
            raise OSError(28, "No space left on device", str(target))
        return rename(self, target)

    if failing == "render":
        two_pages["claims.html"] = lambda: str(1 // 0)
    else:
        monkeypatch.setattr(Path, "rename", full)
    with pytest.raises((ZeroDivisionError, OSError)):
        site.write(document, folder.check(out))
    assert snapshot(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


# ---------------------------------------------------------------- the command


@pytest.mark.usefixtures("two_pages")
@pytest.mark.parametrize("as_expected", [True, False])
def test_command_says_where_and_exits_by_the_verdicts(some: dict[str, Any], tmp_path: Path, as_expected: bool) -> None:
    file, out = tmp_path / "verify.json", tmp_path / "site"
    file.write_text(json.dumps(some | {"summary": some["summary"] | {"as_expected": as_expected}}), encoding="utf-8")
    asked = ["report", "--from", file, "--out", out]
    shown, document = depthlaw(*asked), depthlaw(*asked, "--json")
    assert shown.returncode == document.returncode == (0 if as_expected else 1)
    assert f"{len(SOME)} claims" in shown.stdout and str(out / "index.html") in shown.stdout.replace("\n", "")
    answer = {"schema_version": 1, "out": str(out), "pages": 2, "claims": len(SOME), "as_expected": as_expected}
    assert json.loads(document.stdout) == answer | {"verdicts": some["summary"]["verdicts"]}


@pytest.mark.usefixtures("two_pages")
@pytest.mark.parametrize("quick", [True, False])
def test_without_a_document_it_verifies(
    some: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    asked = []
    monkeypatch.setattr(engine, "verify", lambda ids, progress, **how: asked.append((ids, how)) or some)
    said = depthlaw("report", "--out", tmp_path / "site", *(["--quick"] if quick else []))
    assert asked == [(list(claims()), {"derive": not quick, "with_mutants": not quick, "quick": quick})]
    assert said.stderr == "depthlaw: checking claims\ndepthlaw: writing pages\n", "no bar, a line each"
