"""``depthlaw verify``: its document, its exit code, its refusals, and the files that it writes."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depthlaw.cli import verify as command
from depthlaw.paper_checks.claims.claim import Cell, Verdict
from depthlaw.paper_checks.pages import claims as pages
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.tables.derived import TABLES, compare, side_by_side
from depthlaw.paper_checks.verify import answers, tables_file
from depthlaw.paper_checks.verify import document as engine
from tests import once
from tests.command import depthlaw, told

SOME = ["S1-23", "S1-34", "DN-06"]
KEYS = {"id", "source", "locator", "statement", "parts", "verdict", "expected", "evidence"}
KEYS |= {"condition", "correction", "counterexample"}


@pytest.fixture(scope="module")
def small() -> list[dict[str, Any]]:
    return engine.small_tables()


@pytest.fixture
def whole() -> dict[str, Any]:
    """The document of all claims."""
    return once.whole()


def entry(id_: str) -> dict[str, Any]:
    return once.claim(id_)


def assembled(entries: list[dict[str, Any]], rows: list[dict[str, Any]] | None = None, **rest: Any) -> dict[str, Any]:
    return engine.assemble(entries, rows or [], **{"got": engine.STORED, "file": engine.IN_STEP, **rest})


# ---------------------------------------------------------------- the document


@pytest.mark.wide
def test_document_keeps_the_contract(whole: dict[str, Any]) -> None:
    assert {"schema_version", "claims", "tables", "summary"} <= set(whole)
    assert [found["id"] for found in whole["claims"]] == list(claims())
    assert {"as_expected", "verdicts", "num_claims", "mutants", "cells", "unexpected"} <= set(whole["summary"])
    for found in whole["claims"]:
        assert set(found) >= KEYS
        assert found["evidence"]
        for item in found["evidence"]:
            assert {"route", "num_effective", "verdict"} <= set(item)
            assert type(item["num_effective"]) is int
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


@pytest.mark.wide
def test_all_claims_are_as_expected(whole: dict[str, Any]) -> None:
    summary = whole["summary"]
    assert summary["as_expected"] and engine.exit_code(whole) == 0
    assert sum(summary["verdicts"].values()) == summary["num_claims"] == len(claims())
    assert summary["cells"]["faults"] == []


@pytest.mark.parametrize("id_", ["S1-23", "S1-34"])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_expected_is_strict_in_both_directions(id_: str, verdict: Verdict) -> None:
    found = entry(id_)
    found["expected"] = verdict.value
    document = assembled([found])
    is_expected = verdict is claims()[id_].expected
    assert document["summary"]["unexpected"] == ([] if is_expected else [id_])
    assert engine.exit_code(document) == (0 if is_expected else 1)


def test_a_part_is_pinned_too() -> None:
    one = claims()["S1-34"]
    changed = replace(one, parts=(one.parts[0], replace(one.parts[1], expected=Verdict.CONDITIONAL)))
    found = engine.check(changed, False)
    assert found["verdict"] == found["expected"]
    assert engine.exit_code(assembled([found])) == 1
    assert list(engine.why_unexpected(found)) == ["as magnitudes in N: CONFIRMED, expected CONDITIONAL"]


def test_a_surviving_mutant_is_exit_1() -> None:
    one = claims()["S1-23"]
    same = replace(one.parts[0], mutants=(replace(one.parts[0].mutants[0], statement=one.parts[0].statement),))
    found = engine.check(replace(one, parts=(same,)), True)
    summary = assembled([found])["summary"]
    assert summary["mutants"]["survived"][0] == f"S1-23, as printed: {same.mutants[0].name}"
    assert not summary["as_expected"]


# ---------------------------------------------------------------- cells


def test_every_printed_table_is_compared_cell_by_cell(small: list[dict[str, Any]]) -> None:
    rows = side_by_side(small, claims().values())
    assert {row["table"] for row in rows} == set(TABLES)
    open_cells = {row["row"].get("scheme") for row in rows if row["claim"] is None}
    assert open_cells == {"encoder-decoder-pre-ln", "encoder-decoder-sub-ln"}
    differing = [(row["claim"], row["column"]) for row in rows if row["claim"] and row["equal"] is not True]
    expected = [("S1-34", "update"), ("S1-34", "loss_change"), ("S2-18", "bound"), ("S2-18", "bound")]
    assert differing == expected  # LAMB's norm, and the index of the cross-attentions


@pytest.mark.parametrize(
    ("table", "row", "column", "wrong"),
    [
        ("su-optimizers", 0, "alpha", "(4*N)**(1/4)"),
        ("su-prenorm", 1, "lambda", "1/sqrt(2*N)"),
        ("deepnet", 2, "alpha", "(M*N**4/35)**(1/16)"),
        ("magneto-gamma", 2, "gamma", "sqrt(log(3*M))*sqrt(log(2*N))"),
        ("bounds", 2, "bound", "d*eta*Sum(v[l]**2 + w[l]**2, (l, 1, L))"),
    ],
)
def test_a_changed_cell_is_a_fault(small: list[dict[str, Any]], table: str, row: int, column: str, wrong: str) -> None:
    changed = copy.deepcopy(small)
    next(found for found in changed if found["id"] == table)["rows"][row][column] = wrong
    stub = {"verdict": "CONFIRMED", "expected": "CONFIRMED", "source": "su", "kind": "step", "mutants": None}
    entries = [{"id": id_, "parts": [], "evidence": [], **stub} for id_ in claims()]
    before, after = (
        set(assembled(entries, side_by_side(tables, claims().values()))["summary"]["cells"]["faults"])
        for tables in (small, changed)
    )
    assert any(f"/{column} (" in name for name in after - before)


@pytest.mark.parametrize(("printed", "equal"), [("0.81", True), ("0.82", False), ("0.80", False)])
def test_decimals_are_held_against_the_exact_constant(printed: str, equal: bool) -> None:
    cell = Cell(table="deepnet", where=(), column="alpha", printed=f"{printed}*(N**4*M)**(1/16)", decimals=2)
    found, shown = compare(cell, "(M*N**4/27)**(1/16)")
    assert found is equal
    assert "half even 0.81" in shown


@pytest.mark.parametrize("text", ["__import__('os')", "g.__class__", "-eta*h", "lambda: g", "g; g"])
def test_updates_are_read_as_formulas_only(text: str) -> None:
    with pytest.raises(ValueError, match="an update is written in"):
        compare(Cell(table="su-optimizers", where=(), column="update", printed="-eta*g"), text)


# ---------------------------------------------------------------- the generated file


@pytest.mark.wide
def test_a_full_run_tells_how_the_committed_file_stands(
    small: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables_file, "FILE", tmp_path / "tables.json")
    monkeypatch.setattr(tables_file, "derive", lambda progress=None: small)
    assert engine.get_tables(derive=True)[1:] == (engine.FRESH, engine.STALE)
    assert engine.get_tables(derive=False)[1:] == (engine.SMALL, engine.STALE)
    tables_file.write(small)
    assert engine.get_tables(derive=True) == (small, engine.FRESH, engine.IN_STEP)
    assert engine.get_tables(derive=False) == (small, engine.STORED, engine.IN_STEP)
    of_others = tables_file.FILE.read_text(encoding="utf-8").replace(tables_file.theory_hash(), "0" * 64)
    tables_file.FILE.write_text(of_others, encoding="utf-8")
    assert engine.get_tables(derive=False)[1:] == (engine.SMALL, engine.STALE)
    changed = copy.deepcopy(small)
    changed[0]["rows"][0]["alpha"] = "1"
    tables_file.write(changed)
    assert engine.get_tables(derive=True)[1:] == (engine.FRESH, engine.DIFFERENT)


# ---------------------------------------------------------------- the command


def test_some_claims_as_json(tmp_path: Path) -> None:
    """The command's own worker processes say what this one says."""
    out = tmp_path / "verify.json"
    result = depthlaw("verify", *SOME, "--quick", "--json", "--out", str(out))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert json.loads(out.read_text(encoding="utf-8")) == found
    assert found["claims"] == [once.quick_claim(id_) for id_ in SOME]
    assert {row["claim"] for row in found["tables"]} == {"S1-34", "DN-06"}
    assert [path.name for path in out.parent.iterdir()] == ["verify.json"]


@pytest.mark.wide
def test_of_all_claims_every_mutant_is_tried_and_every_table_derived(
    whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(engine, "verify", lambda _, **rest: asked.append(rest) or whole)
    for options in ((), ("--quick",), SOME):
        depthlaw("verify", *options)
    assert [(one["with_mutants"], one["derive"], one["quick"]) for one in asked] == [
        (True, True, False),
        (False, False, True),
        (False, False, False),
    ]


def test_each_verdict_is_printed_in_a_colour_of_its_own() -> None:
    assert len({verdict.colour for verdict in Verdict}) == len(Verdict)


def test_a_source_for_people() -> None:
    text = told("verify", "--source", "fixup", "--mutants", COLUMNS="100")
    assert "Mutants:" in text
    assert text.splitlines()[-1] == "All as expected: 1 claim, 1 CONFIRMED."


def _words(found: Any, *, has_numbers: bool = True) -> Any:
    """What every machine finds: without floats, and without the numbers in texts of what was measured or searched."""
    if isinstance(found, dict):
        inside = ("evidence", "counterexample", "numbers", "steps", "detail")
        return {name: _words(value, has_numbers=has_numbers and name not in inside) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [_words(value, has_numbers=has_numbers) for value in found]
    if isinstance(found, str) and not has_numbers:
        return re.sub(r"[-+\d.,e]+", "#", found)
    return "#" if isinstance(found, float) else found


@pytest.mark.wide
def test_what_explain_answers_is_in_step(whole: dict[str, Any]) -> None:
    """Every claim judged now beside the answer that is kept of it."""
    written = json.loads(answers.FILE.read_text(encoding="utf-8"))["claims"]
    judged = json.loads(answers.file_text(whole))["claims"]
    assert list(written) == list(judged) == list(claims())
    stale = [id_ for id_ in judged if _words(written[id_]) != _words(judged[id_])]
    assert not stale, f"run `{answers.WRITTEN_BY}`"


@pytest.mark.wide
def test_claims_file_and_readme_are_in_step(whole: dict[str, Any]) -> None:
    written, readme = (file.read_text(encoding="utf-8") for file in (command.CLAIMS_FILE, command.README_FILE))
    assert written == pages.claims_markdown(whole), "run `depthlaw verify --quick --write-claims`"
    assert readme == pages.with_findings(readme, whole), "run `depthlaw verify --quick --write-claims`"
