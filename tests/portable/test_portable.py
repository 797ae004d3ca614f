"""The machines of `make test-portable`, without running the tests as any of them."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.portable import __main__ as portable
from tests.portable.machines import AT_ONCE, NUMBERS, SEED, TEXT, Machine, at_once, table
from tests.portable.places import ROOT, Place, programs_without
from tests.portable.plugin import shuffled

Places = Callable[[Machine], AbstractContextManager[Place]]


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


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """The places of a project of one module."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_small.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.setattr(portable, "OUT", tmp_path)

    @contextmanager
    def place_of(machine: Machine) -> Iterator[Place]:
        rest = {name: x for name, x in os.environ.items() if not name.startswith(("PYTEST_", "DEPTHLAW_", "TZ"))}
        variables = rest | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"} | dict(machine.variables)
        yield Place(tmp_path, Path(sys.executable), variables)

    return place_of


@pytest.mark.slow
def test_a_run_counts_and_names_what_failed(small: Places) -> None:
    with small(Machine(name="", tests=(), variables={"COLUMNS": "40", SEED: "1"})) as place:
        result = portable.run_tests("narrow", place, ["tests"])
        assert (result.passed, {*result.failed}) == (2, {f"{SMALL}width", f"{SMALL}wrong"})
        nothing = replace(place, python=Path(shutil.which("false") or ""))
        assert portable.run_tests("none", nothing, ["tests"]).failed == ("pytest: exit 1",)


@pytest.mark.slow
def test_a_change_that_changes_nothing_is_no_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Places
) -> None:
    monkeypatch.setattr(portable, "place_of", small)
    monkeypatch.setattr(portable, "look", lambda place: {"width": place.variables["COLUMNS"]})
    machines = [Machine(name=f"{n}", tests=("tests",), variables={"COLUMNS": f"{n}"}) for n in (80, 40)]
    monkeypatch.setattr(portable, "table", lambda seed: machines)
    assert portable.main(["80"]) == 1
    said = capsys.readouterr().out
    assert "no different from this machine" in said and "nothing was tested" in said
    assert portable.main(["40"]) == 1
    assert f"FAILED as 40: {SMALL}width\n" in capsys.readouterr().out


def test_a_machine_that_this_one_cannot_be_is_no_failure_and_a_broken_one_is() -> None:
    future = portable.try_(Machine(name="future", tests=("tests",), needs="avx9999"), {}, ())
    assert "no avx9999" in future.text and not future.failed
    broken = Machine(name="broken", tests=("tests",), variables={"PYTHONPATH": "", "PYTHONHOME": "/nowhere"})
    failed = portable.try_(broken, {}, ()).failed
    assert failed == ("python -m tests.portable.machines ended with exit code 1",)


def test_a_hidden_program_is_not_found_and_the_others_are(tmp_path: Path) -> None:
    folder = programs_without(("git",), tmp_path / "programs")
    assert shutil.which("git", path=str(folder)) is None
    assert shutil.which("make", path=str(folder))
