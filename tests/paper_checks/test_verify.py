"""``depthlaw verify``: its document, its exit code, its refusals, and the files that it writes."""

from __future__ import annotations

import copy
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper_checks.claims.claim import Cell, Verdict
from paper_checks.cli import verify as command
from paper_checks.cli.options import BadInputError
from paper_checks.pages import claims as pages
from paper_checks.papers.registry import claims
from paper_checks.routes.printed_tables import TABLES, compare, side_by_side
from paper_checks.verify import document as engine
from paper_checks.verify import tables_file
from paper_checks.verify.concord import agreements
from paper_checks.verify.findings import FIRST, findings
from tests import once
from tests.command import depthlaw

SOME = ["S1-23", "S1-34", "DN-06"]
KEYS = {"id", "source", "locator", "statement", "parts", "verdict", "expected", "evidence"}
KEYS |= {"condition", "correction", "counterexample"}


@pytest.fixture(scope="module")
def small() -> list[dict[str, Any]]:
    return engine.small_tables()


@pytest.fixture
def whole() -> dict[str, Any]:
    """The document of all claims, mutants tried."""
    return once.whole()


def entry(id_: str) -> dict[str, Any]:
    return once.claim(id_)


def assembled(entries: list[dict[str, Any]], rows: list[dict[str, Any]] | None = None, **rest: Any) -> dict[str, Any]:
    return engine.assemble(entries, rows or [], **{"got": engine.STORED, "file": engine.IN_STEP, **rest})


# ---------------------------------------------------------------- the document


def test_document_keeps_the_contract(whole: dict[str, Any]) -> None:
    assert {"schema_version", "claims", "tables", "summary"} <= set(whole)
    assert [found["id"] for found in whole["claims"]] == list(claims())
    for found in whole["claims"]:
        assert set(found) >= KEYS
        assert found["evidence"]
        for item in found["evidence"]:
            assert {"route", "num_effective", "verdict"} <= set(item)
            assert type(item["num_effective"]) is int
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


def test_summary_counts(whole: dict[str, Any]) -> None:
    summary = whole["summary"]
    assert summary["as_expected"]
    assert summary["coverage"] == f"{len(claims())} claims"
    assert sum(summary["verdicts"].values()) == summary["num_claims"] == len(claims())
    assert summary["cells"]["faults"] == []
    assert engine.exit_code(whole) == 0


@pytest.mark.parametrize("id_", ["S1-23", "S1-34", "S3-06", "DN-07"])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_expected_is_strict_in_both_directions(id_: str, verdict: Verdict) -> None:
    found = entry(id_)
    found["expected"] = verdict.value
    summary = assembled([found])["summary"]
    assert summary["as_expected"] is (verdict is claims()[id_].expected)
    assert summary["unexpected"] == ([] if summary["as_expected"] else [id_])
    assert engine.exit_code(assembled([found])) == (0 if summary["as_expected"] else 1)


def test_a_part_is_pinned_too() -> None:
    one = claims()["S1-34"]
    changed = replace(one, parts=(one.parts[0], replace(one.parts[1], expected=Verdict.CONDITIONAL)))
    found = engine.check(changed, False)
    assert found["verdict"] == found["expected"]
    assert engine.exit_code(assembled([found])) == 1
    assert list(engine.why_unexpected(found)) == ["as magnitudes in N: CONFIRMED, expected CONDITIONAL"]


def test_sources_that_no_longer_agree_are_exit_1() -> None:
    beside = agreements()
    assert beside
    assert engine.exit_code(assembled([entry("S1-23")], beside=beside)) == 0
    beside[0]["agree"] = not beside[0]["agree"]
    assert engine.exit_code(assembled([entry("S1-23")], beside=beside)) == 1


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
    cells = {(table["id"], *row.values(), column) for table in small for row in table["rows"] for column in row}
    assert cells
    open_cells = {(row["table"], row["row"].get("scheme"), row["column"]) for row in rows if row["claim"] is None}
    assert {name for _, name, _ in open_cells} == {"encoder-decoder-pre-ln", "encoder-decoder-sub-ln"}
    assert {column for _, name, column in open_cells if name == "encoder-decoder-sub-ln"} == {"order"}
    differing = [(row["claim"], row["column"]) for row in rows if row["claim"] and row["equal"] is not True]
    expected = [("S1-34", "update"), ("S1-34", "loss_change"), ("S2-18", "bound"), ("S2-18", "bound")]
    assert differing == expected  # LAMB's norm, and the index of the cross-attentions


@pytest.mark.parametrize(
    ("table", "row", "column", "wrong"),
    [
        ("su-optimizers", 0, "alpha", "(4*N)**(1/4)"),
        ("su-optimizers", 1, "loss_change", "-eta*||g||^2"),
        ("su-prenorm", 1, "lambda", "1/sqrt(2*N)"),
        ("deepnet", 2, "alpha", "(M*N**4/35)**(1/16)"),
        ("deepnet", 2, "beta", "(27/(256*M**4*N))**(1/16)"),
        ("magneto-gamma", 2, "gamma", "sqrt(log(3*M))*sqrt(log(2*N))"),
        ("bounds", 0, "order", "N**2"),
        ("bounds", 2, "bound", "d*eta*Sum(v[l]**2 + w[l]**2, (l, 1, L))"),
    ],
)
def test_a_changed_cell_is_a_fault(small: list[dict[str, Any]], table: str, row: int, column: str, wrong: str) -> None:
    changed = copy.deepcopy(small)
    target = next(found for found in changed if found["id"] == table)["rows"][row]
    assert column in target
    target[column] = wrong
    rows = side_by_side(changed, claims().values())
    owners = {found["claim"] for found in rows if found["claim"] and found["equal"] is not True} - {"S1-34", "S2-18"}
    assert owners
    stub = [
        {"id": id_, "verdict": "CONFIRMED", "expected": "CONFIRMED", "source": "su", "kind": "step", "parts": [],
         "evidence": [], "mutants": None}
        for id_ in claims()
    ]  # fmt: skip
    summary = assembled(stub, rows)["summary"]
    assert any(f"/{column} (" in name for name in summary["cells"]["faults"])
    assert not summary["as_expected"]


def test_a_printed_cell_that_no_table_has(small: list[dict[str, Any]]) -> None:
    cell = Cell(table="deepnet", where=(("architecture", "encoder"), ("side", "north")), column="alpha", printed="1")
    with pytest.raises(ValueError, match="no cell alpha"):
        side_by_side(small, [replace(claims()["DN-05"], cells=(cell,))])


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


@pytest.mark.parametrize("file", [engine.STALE, engine.DIFFERENT])
def test_a_stale_file_is_exit_1_where_the_tables_were_derived(file: str) -> None:
    found = entry("S1-23")
    assert engine.exit_code(assembled([found], got=engine.FRESH, file=file)) == 1
    assert engine.exit_code(assembled([found], got=engine.SMALL, file=file)) == 0
    assert engine.exit_code(assembled([found], got=engine.FRESH, file=engine.IN_STEP)) == 0


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "S1-99"), "unknown claim 'S1-99'; did you mean S1-"),
        (("verify", "DN7"), "did you mean DN-07"),
        (("explain", "S9-99"), "unknown claim 'S9-99' (CLAIMS.md lists them; allowed: "),
        (("verify", "s1_23"), "did you mean S1-23"),
        (("verify", "--source", "magnetto"), "did you mean magneto"),
        (("verify", "S1-23", "--source", "deepnet"), "none of S1-23 is of source 'deepnet'"),
        (("verify", "S1-23", "--write-claims"), "--write-claims needs all claims"),
        (("verify", "S1-23", "--out", "."), "--out: . is not a file"),
        (("explain", "nonesuch"), "unknown claim 'nonesuch'"),
    ],
)
def test_refusals_are_one_line(arguments: tuple[str, ...], said: str) -> None:
    result = depthlaw(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert said in line


def test_only_ids_of_the_same_source_are_near() -> None:
    near = depthlaw("verify", "S1-99").stderr.partition("did you mean ")[2].partition("?")[0].split(" or ")
    assert near
    assert all(id_.startswith("S1-") for id_ in near)


def test_allowed_ids_are_said_in_ranges() -> None:
    (line,) = depthlaw("verify", "S1-99").stderr.splitlines()
    assert "allowed: S1-01 to S1-50, S2-01 to S2-24, S3-01 to S3-49, DN-01 to DN-15, LI-01 to LI-05)" in line


def test_a_quick_look_has_less_evidence(whole: dict[str, Any]) -> None:
    quick = [once.quick_claim(id_) for id_ in claims()]
    assert engine.exit_code(assembled(quick)) == 0
    assert sum(len(found["evidence"]) for found in quick) < sum(len(found["evidence"]) for found in whole["claims"])


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
    result = depthlaw("verify", "--source", "fixup", "--mutants", COLUMNS="100")
    assert result.returncode == 0
    assert "1 claim: 1 CONFIRMED" in result.stdout
    assert "Mutants:" in result.stdout
    *_, where, outcome = result.stdout.splitlines()
    assert (where, outcome) == (
        "`depthlaw explain LI-05` shows its evidence.",
        "All as expected: 1 claim, 1 CONFIRMED.",
    )
    assert result.stderr == ""


def shown(found: dict[str, Any], capsys: pytest.CaptureFixture[str], *, is_full: bool = False) -> list[str]:
    """The lines that `depthlaw verify` of all claims prints for people."""
    command.show(found, None, is_whole=True, is_full=is_full)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_all_claims_are_a_screen_as_the_readme_shows_it(
    whole: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = shown(whole, capsys)
    counts = ", ".join(f"{number} {name}" for name, number in whole["summary"]["verdicts"].items() if number)
    assert lines[0] == f"{len(claims())} claims: {counts}"
    assert lines[-1] == f"All as expected: {len(claims())} claims, {counts}."
    assert len(lines) < 60
    (block,) = re.findall(r"^```\n(\d+ claims: .*?)^```", command.README_FILE.read_text(encoding="utf-8"), re.M | re.S)
    wanted = [line for line in block.splitlines() if line != "..."]
    assert [line for line in lines if line in wanted] == wanted
    assert len(shown(whole, capsys, is_full=True)) > len(lines) + 100


def test_the_last_line_says_that_something_is_not_as_expected(
    whole: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    entries = whole["claims"]
    entries[0]["expected"] = entries[0]["parts"][0]["expected"] = "CONDITIONAL"
    *_, why, last = shown(assembled(entries, whole["tables"]), capsys)
    assert why.startswith(f"not as expected {entries[0]['id']}, ")
    assert last.startswith("Not as expected: see above; ")


def test_the_old_document_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "verify.json"
    out.write_text("old", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BadInputError, match=r"--out: cannot write .*No space left"):
        command.run(["S1-24"], source=None, quick=True, mutants=False, out=out, as_json=False)
    assert out.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["verify.json"]


def test_an_unexpected_verdict_is_shown_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = entry("S1-23")
    found["expected"] = found["parts"][0]["expected"] = "CONDITIONAL"
    monkeypatch.setattr(engine, "verify", lambda *_, **__: assembled([found]))
    code = command.run(["S1-23"], source=None, quick=True, mutants=False, out=None, as_json=False)
    assert code == 1
    assert "as printed: CONFIRMED, expected CONDITIONAL" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------- CLAIMS.md


def test_claims_file_is_in_step(whole: dict[str, Any]) -> None:
    written = command.CLAIMS_FILE.read_text(encoding="utf-8")
    assert written == pages.claims_markdown(whole), "run `depthlaw verify --quick --write-claims`"


def test_claims_file_follows_the_verdicts(whole: dict[str, Any]) -> None:
    changed = copy.deepcopy(whole)
    changed["claims"][0]["verdict"] = "REFUTED"
    changed["claims"][0]["parts"][0]["verdict"] = "REFUTED"
    assert "**S1-01** REFUTED" in pages.claims_markdown(changed)


def test_findings_of_the_readme_are_in_step(whole: dict[str, Any]) -> None:
    readme = command.README_FILE.read_text(encoding="utf-8")
    assert pages.with_findings(readme, whole) == readme, "run `depthlaw verify --quick --write-claims`"
    changed = copy.deepcopy(whole)
    next(found for found in changed["claims"] if found["id"] == "S2-08")["verdict"] = "CONFIRMED"
    assert "**S2-08** REFUTED" in readme
    assert "**S2-08** CONFIRMED" in pages.with_findings(readme, changed)


def test_readme_has_the_first_findings_and_the_claims_file_all(whole: dict[str, Any]) -> None:
    short, every = pages.findings(whole), pages.claims_markdown(whole)
    heads = [f"- **{', '.join(one.ids)}** " for one in findings(whole["claims"])]
    assert [head in short for head in heads] == [True] * FIRST + [False] * (len(heads) - FIRST)
    assert all(head in every for head in heads)


def test_findings_need_their_place() -> None:
    with pytest.raises(ValueError, match="the README has no"):
        pages.with_findings("# a readme without markers", {"claims": [], "summary": {}})
