"""``depthlaw explain``: the answer first and on about a screen, everything with ``--full`` and in the JSON document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from depthlaw.cli.explain import answer, details
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.verify import answers
from depthlaw.paper_checks.verify import document as engine
from depthlaw.paper_checks.verify.findings import findings
from tests.command import depthlaw, told
from tests.once import claim, quick_claim

SCREEN, WIDTH = 50, 100


def text_of(entry: dict[str, Any]) -> str:
    return "\n".join(line for line, _ in answer(entry, next(findings([entry]), None)))


def kept_of(id_: str) -> dict[str, Any]:
    """The entry that is kept of a claim, which other tests hold against what is judged now."""
    found = answers.kept(id_)
    assert found is not None
    return found["claim"]


@cache
def answered(id_: str) -> str:
    return text_of(kept_of(id_))


def height(text: str) -> int:
    return sum(max(1, -(-len(line) // (WIDTH - 5))) for line in text.splitlines())


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked once in this run is not checked again."""

    def check_all(ids: list[str], *, with_mutants: bool, **_: Any) -> list[dict[str, Any]]:
        return [claim(id_) if with_mutants else quick_claim(id_) for id_ in ids]

    monkeypatch.setattr(engine, "check_all", check_all)


SHOWN = (
    "REFUTED: the update of Pre-LN",
    "Magneto's Theorem 3.1 (Pre-LN) fails at uneven gains",
    "Printed, as the PDF's text has it",
    "uneven gains: REFUTED",
    "claimed at most 0.7376 eta d; found 0.908 eta d",
    "--v 1,3,9,27",
    "instead: eta*d",
    "equal gains, relu: CONFIRMED",
)


def test_the_answer_comes_first() -> None:
    """Of two parts as printed, of which the one that does not hold stands last."""
    places = [answered("S2-08").index(words) for words in SHOWN]
    assert places == sorted(places)


@pytest.mark.parametrize("id_", ["S1-18", "S2-08", "S3-10", "DN-11", "S1-47"])
def test_an_answer_is_about_a_screen_and_names_every_part(id_: str) -> None:
    assert height(answered(id_)) <= SCREEN
    assert all(part.name in answered(id_) for part in claims()[id_].parts)
    whole = "\n".join(line for line, _ in details(kept_of(id_), []))
    assert height(whole) > 1.2 * height(answered(id_))


def test_what_is_said_of_other_verdicts() -> None:
    """A claim that holds needs no finding, one that is open says what would decide it, and a quotation that can be read
    is not transcribed."""
    assert answered("LI-05").splitlines()[0].startswith("LI-05  CONFIRMED: ")
    assert next(findings([kept_of("LI-05")]), None) is None
    assert "to decide it: Post-Norm and Pre-Norm trained" in answered("S1-47")
    assert "Transcribed: variance = v[l]**2/d" in answered("S2-06")
    assert "Transcribed" not in answered("S1-34")


def test_a_verdict_that_is_not_the_expected_one_is_said() -> None:
    entry = kept_of("S1-25")
    assert "expected" not in text_of(entry).splitlines()[0]
    entry["expected"] = "CONFIRMED"
    assert text_of(entry).startswith("S1-25  MISPRINT, expected CONFIRMED: ")


@pytest.mark.usefixtures("at_hand")
def test_in_full_and_with_mutants() -> None:
    short, full = (
        told("explain", *line.split(), COLUMNS="400") for line in ("s1-34 --mutants", "S1-34 --full --mutants")
    )
    assert all(words in short for words in ("tried, ", "killed.", "depthlaw explain S1-34 --full"))
    for text in ("Su Jianlin", "sha256", "proof, as printed: REFUTED", ": killed", "table su-optimizers"):
        assert text not in short
        assert text in full
    assert full.startswith(short.partition("In brackets")[0].rstrip())


@pytest.mark.usefixtures("at_hand")
def test_the_document_has_everything() -> None:
    document = json.loads(told("explain", "S1-34", "--json"))
    assert document["finding"]["claims"] == ["S1-34"] and document["finding"]["text"].startswith("Su: LAMB's step has")
    assert document["claim"]["id"] == "S1-34"
    assert {"tables", "summary"} < set(document)
    assert document["claim"]["parts"][0]["evidence"][0]["detail"]
    assert json.loads(told("explain", "LI-05", "--json"))["finding"] is None


def test_a_kept_answer_is_read_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is judged for it, and how to judge now is on the screen and in the document."""
    monkeypatch.setattr(engine, "check_all", None)
    shown = told("explain", "s2-8", COLUMNS="400")
    assert shown.splitlines()[0].startswith("S2-08  REFUTED: ")
    assert "Kept with this version" in shown and shown.splitlines()[-1] == "  depthlaw explain S2-08 --anew"
    assert json.loads(told("explain", "S2-08", "--json"))["kept"] is True
    assert json.loads(told("explain", "DN-03", "--json"))["finding"]["claims"][0] == "DN-02"


@pytest.mark.parametrize("more", [["--anew"], ["--mutants"]])
@pytest.mark.usefixtures("at_hand")
def test_what_is_asked_anew_is_judged(more: list[str]) -> None:
    document = json.loads(told("explain", "LI-05", "--json", *more))
    assert document["kept"] is False
    assert (document["claim"]["mutants"] is None) == (more == ["--anew"])
    assert "Kept" not in told("explain", "LI-05", *more)


@pytest.mark.wide
@pytest.mark.usefixtures("at_hand")
def test_a_claim_that_is_not_kept_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So is every claim where the file is unreadable; a verdict that is kept as unexpected is exit 1."""
    monkeypatch.setattr(answers, "FILE", tmp_path / "claims.json")
    assert json.loads(told("explain", "LI-05", "--json"))["kept"] is False
    answers.FILE.write_text("{", encoding="utf-8")
    assert json.loads(told("explain", "LI-05", "--json"))["kept"] is False
    found = {name: value for name, value in answers.judged("LI-05", with_mutants=False).items() if name != "kept"}
    del found["schema_version"]
    found["summary"] = {**found["summary"], "as_expected": False}
    answers.FILE.write_text(json.dumps({"claims": {"LI-05": found}}), encoding="utf-8")
    assert depthlaw("explain", "LI-05").returncode == 1


def test_a_topic_finds_what_speaks_of_it() -> None:
    found = json.loads(told("explain", "warm-up", "--json"))
    assert found["claims"][0]["id"] == "S1-48"
    assert {"page": "TRAINING.md", "section": "warmup"} in found["pages"]
    assert json.loads(told("explain", "warmup", "--json"))["claims"] == found["claims"]  # one word or two
    asked = json.loads(told("explain", "does Pre-LN's variance explode?", "--json"))
    assert [claim["id"] for claim in asked["claims"]][:2] == ["CD-01", "CD-02"], "those of the question, in its order"
    shown = told("explain", "which residual weight", COLUMNS="100")
    assert "S1-38" in shown and "depthlaw explain S1-" in shown
