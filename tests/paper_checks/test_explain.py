"""``depthlaw explain``: the answer first and on about a screen, everything with ``--full`` and in the JSON document."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from paper_checks.cli import explain as command
from paper_checks.cli.explain import TOLD, answer, details
from paper_checks.papers.registry import claims
from paper_checks.verify import document as engine
from paper_checks.verify.findings import Told, findings
from tests.command import told as command_told
from tests.once import claim, quick_claim

SCREEN, WIDTH = 50, 100


def checked(id_: str, with_mutants: bool = False) -> dict[str, Any]:
    return claim(id_) if with_mutants else quick_claim(id_)


def finding_of(entry: dict[str, Any]) -> Told | None:
    return next(findings([entry]), None)


def told(entry: dict[str, Any]) -> str:
    return "\n".join(line for line, _ in answer(entry, finding_of(entry)))


@cache
def answered(id_: str) -> str:
    return told(checked(id_))


def height(text: str) -> int:
    return sum(max(1, -(-len(line) // (WIDTH - 5))) for line in text.splitlines())


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked once in this run is not checked again."""
    monkeypatch.setattr(engine, "check_all", lambda ids, *, with_mutants, **_: [checked(i, with_mutants) for i in ids])


def said(id_: str, *options: str, columns: int = 80) -> str:
    return command_told("explain", id_, *options, COLUMNS=str(columns))


def places(text: str, *wanted: str) -> list[int]:
    """Where each stands: all of them, or a failure."""
    return [text.index(one) for one in wanted]


# Parts as printed, of which the one that does not hold stands last, first, or in between.
SHOWN = {
    "S1-34": ("MISPRINT", "Su: LAMB's step has", "Printed: For LAMB-type", "instead: -eta", "grounds:", "CONFIRMED;"),
    "S2-08": (
        "REFUTED: the update of Pre-LN",
        "Magneto's Theorem 3.1 (Pre-LN) holds at equal gains",
        "Printed, as the PDF's text has it: Under SGD update",
        "Transcribed (equal gains, relu): update of pre-ln, relu, layernorm, over the branch matrices, <= eta*d*(Sum(",
        "uneven gains: REFUTED; fails by property",
        "claimed at most 0.7376 eta d; found 0.908 eta d",
        "--v 1,3,9,27",
        "instead: eta*d",
        "equal gains, relu: CONFIRMED",
    ),
    "DN-07": ("REFUTED", "DeepNet's alpha and beta for the encoder", "Printed:", "claimed", "see it:", "CONFIRMED;"),
}


@pytest.mark.parametrize("id_", SHOWN)
def test_the_answer_comes_first(id_: str) -> None:
    found = places(answered(id_), *SHOWN[id_])
    assert found == sorted(found)


@pytest.mark.parametrize("id_", ["S1-18", "S2-08", "S2-13", "S3-10", "DN-10", "DN-11", "S1-47"])
def test_an_answer_is_about_a_screen_and_names_every_part(id_: str) -> None:
    assert height(answered(id_)) <= SCREEN
    assert all(part.name in answered(id_) for part in claims()[id_].parts)
    whole = "\n".join(line for line, _ in details(checked(id_), []))
    assert height(whole) > 1.2 * height(answered(id_))


def test_more_parts_than_a_few_are_a_list() -> None:
    text = answered("S2-13")
    assert sum(part["verdict"] == "REFUTED" for part in checked("S2-13")["parts"]) > TOLD
    assert text.count("see it:") == TOLD
    assert text.count("claimed") > TOLD


def test_a_claim_that_holds_needs_no_finding() -> None:
    assert finding_of(checked("LI-05")) is None
    lines = answered("LI-05").splitlines()
    assert lines[0].startswith("LI-05  CONFIRMED: ")
    assert lines[1] == ""


def test_an_undecided_one_says_what_would_decide_it() -> None:
    assert "to decide it: Post-Norm and Pre-Norm trained" in answered("S1-47")


def test_a_verdict_that_is_not_the_expected_one_is_said() -> None:
    entry = copy.deepcopy(checked("S1-25"))
    assert "expected" not in told(entry).splitlines()[0]
    entry["expected"] = "CONFIRMED"
    assert told(entry).startswith("S1-25  MISPRINT, expected CONFIRMED: ")


def test_a_quotation_that_can_be_read_is_not_transcribed() -> None:
    assert "Transcribed: variance = v[l]**2/d" in answered("S2-06")
    assert "Transcribed" not in answered("S1-34")


def test_it_is_said_at_once_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    real, verify = command.chosen_ids, engine.verify
    monkeypatch.setattr(engine, "verify", lambda ids, **rest: verify(ids, **{**rest, "quick": True}))

    @contextmanager
    def bar() -> Iterator[Callable[..., None]]:
        yield lambda *progress: told.append(progress)

    def chosen_ids(*asked: Any) -> list[str]:
        assert told == [("checking S2-16 ...", 0, 1)], "before the claims are imported"
        return real(*asked)

    monkeypatch.setattr(command, "progress", bar)
    monkeypatch.setattr(command, "chosen_ids", chosen_ids)
    assert said("s2-16")
    assert told[1:] == [("checking S2-16 ...", 1, 2), ("checking S2-16 ...", 2, 2)]


@pytest.mark.usefixtures("at_hand")
def test_in_full_and_with_mutants() -> None:
    short, full = said("s1-34", "--mutants", columns=400), said("S1-34", "--full", "--mutants", columns=400)
    assert "tried, " in short
    assert "killed." in short
    assert "depthlaw explain S1-34 --full" in short
    for text in ("Su Jianlin", "sha256", "proof, as printed: REFUTED", ": killed", "table su-optimizers"):
        assert text not in short
        assert text in full
    assert full.startswith(short.partition("In brackets")[0].rstrip())


@pytest.mark.usefixtures("at_hand")
def test_commands_are_not_broken() -> None:
    lines, parts = said("S2-08").splitlines(), checked("S2-08")["parts"]
    shown = [part["counterexample"]["command"] for part in parts if part["counterexample"]][:TOLD]
    assert {*shown, "depthlaw explain S2-08 --full"} <= {line.strip() for line in lines}
    assert max(map(len, shown)) > 80
    assert max(len(line) for line in lines if line.strip() not in shown) <= 80


@pytest.mark.usefixtures("at_hand")
def test_the_document_has_everything() -> None:
    found = json.loads(said("S1-34", "--json"))
    assert found["finding"] == {
        "claims": ["S1-34"],
        "text": "Su: LAMB's step has ||theta||/sqrt(n) for a matrix of n entries, not ||theta||",
    }
    assert found["claim"]["id"] == "S1-34"
    assert {"tables", "summary"} < set(found)
    assert found["claim"]["parts"][0]["evidence"][0]["detail"]
    assert json.loads(said("LI-05", "--json"))["finding"] is None
