"""The machines of `make test-portable`, without running the tests as any of them."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.portable import __main__ as portable
from tests.portable.machines import AT_ONCE, NUMBERS, SEED, TEXT, Machine, at_once, table
from tests.portable.places import ROOT, Place, programs_without
from tests.portable.plugin import shuffled


def test_every_pattern_chooses_files() -> None:
    """But for what is left out."""
    for pattern in (*NUMBERS, *TEXT):
        (first, *_) = portable.expanded(ROOT, [pattern.removeprefix("!")])
        assert (ROOT / first).exists(), pattern
    asked = ["tests/theory/test_*.py", "!tests/theory/test_kernel_*.py", "tests/sims/a.py::b[*]"]
    chosen = portable.expanded(ROOT, asked)
    assert {"tests/theory/test_growth.py", "tests/sims/a.py::b[*]"} <= {*chosen}
    assert "tests/theory/test_kernel_gram.py" not in chosen


def test_all_at_once_has_the_variables_of_each() -> None:
    machines = {machine.name: machine for machine in table("1")}
    quick = at_once([machines[name] for name in AT_ONCE])
    assert quick.as_user and quick.hides
    for name in AT_ONCE:
        assert machines[name].variables.items() <= quick.variables.items()


def test_the_order_is_drawn_by_module_and_again_by_its_seed() -> None:
    ids = [f"test_{module}.py::test_{n}" for module in "abcd" for n in range(9)]
    drawn = shuffled(ids, "1")
    modules = [id_.split("::")[0] for id_ in drawn]
    assert sorted(drawn) == ids != drawn
    assert len([name for name, before in zip(modules, ["", *modules], strict=False) if name != before]) == 4
    assert shuffled(ids, "1") == drawn != shuffled(ids, "2")


TESTS = """
import os
def test_width(): assert os.environ["COLUMNS"] == "80"
def test_zone(): assert "TZ" not in os.environ
def test_right(): pass
def test_wrong(): assert False
"""
SMALL = "tests/test_small.py::test_"


@pytest.mark.slow
def test_a_run_counts_and_names_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_small.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.setattr(portable, "OUT", tmp_path)
    rest = {name: x for name, x in os.environ.items() if not name.startswith(("PYTEST_", "DEPTHLAW_", "TZ"))}
    place = Place(tmp_path, Path(sys.executable), rest | {"PYTHONPATH": str(ROOT), "COLUMNS": "40", SEED: "1"})
    result = portable.run_tests("narrow", place, ["tests"])
    assert (result.passed, {*result.failed}) == (2, {f"{SMALL}width", f"{SMALL}wrong"})
    assert "assert False" in result.why
    nothing = replace(place, python=Path(shutil.which("false") or ""))
    assert portable.run_tests("none", nothing, ["tests"]).failed == ("pytest: exit 1",)


def test_a_machine_that_this_one_cannot_be_is_no_failure() -> None:
    future = portable.try_(Machine(name="future", tests=("tests",), python="9.9"), ())
    assert "no Python 9.9" in future.text and not future.failed


def test_a_hidden_program_is_not_found_and_the_others_are(tmp_path: Path) -> None:
    folder = programs_without(("git",), tmp_path / "programs")
    assert shutil.which("git", path=str(folder)) is None
    assert shutil.which("make", path=str(folder))
