"""The house rules: layers, paths, what make and CI run, and how a run of the tests ends.

``tests/faults/house.toml`` has a fault for each rule, which its test must catch.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.often import often
from tests.portable.__main__ import IN_CI

ROOT = Path(__file__).resolve().parents[2]
MAX_TEXT_COLUMNS = 2000  # longer lines are data, such as the pictures in a notebook
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:tmp|root|home|work|Users|mnt)/[\w.-]+")
TEMPLATE = re.compile(r"\{%|%\}|\{\{ | \}\}")
PACKAGES = ("theory", "sims", "paper_checks")
HEAVY = ("sympy", "torch")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """What it prints is of no terminal: no colours, and lines as long as they are."""
    settings = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PY_COLORS")}
    settings |= {"COLUMNS": "200", "NO_COLOR": "1", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""} | environment
    return subprocess.run([*map(str, command)], cwd=cwd, env=settings, capture_output=True, text=True, check=False)


def project_files(root: Path = ROOT) -> list[Path]:
    """Every file of the project, those that git does not know yet included; without git, what is not hidden away."""
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    if listing.returncode == 0 and listing.stdout:
        files = [root / name for name in listing.stdout.split("\0") if name]
    else:
        kept = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
        ignored = {".git", *(line.strip("/") for line in kept if line.endswith("/"))}
        files = [path for path in root.rglob("*") if not ignored & set(path.relative_to(root).parts)]
    return [path for path in files if path.is_file()]


# --- layers


def broken_contracts(root: Path) -> str:
    """What import-linter finds wrong in the packages under `root`; empty when all contracts are kept."""
    linter = Path(sys.executable).with_name("lint-imports")
    # The tree under `root` comes first, so that a mutant is not mistaken for the installed project.
    result = run(linter, "--no-cache", cwd=root, PYTHONPATH=str(root))
    return "" if result.returncode == 0 else result.stdout + result.stderr


LAYER_MUTANTS = {
    "theory/imports_torch.py": "import torch",
    "theory/imports_random.py": "import random",
    "theory/imports_numpy.py": "import numpy",
    "theory/imports_sims.py": "import depthlaw.sims",
    "sims/imports_sympy.py": "import sympy",
    "sims/imports_theory.py": "def late():\n    import depthlaw.theory",
    "depthlaw/auditing/imports_advice.py": "import depthlaw.advice",
    "depthlaw/auditing/reading/imports_checks.py": "import depthlaw.auditing.checks",
    "depthlaw/cli/shared/imports_app.py": "import depthlaw.cli.app",
    "paper_checks/routes/imports_papers.py": "import depthlaw.paper_checks.papers",
    "paper_checks/claims/imports_routes.py": "def late():\n    import depthlaw.paper_checks.routes",
    "paper_checks/papers/magneto/imports_slides.py": "import depthlaw.paper_checks.papers.slides",
}


def small_project(root: Path, modules: Mapping[str, str]) -> Path:
    shutil.copy(ROOT / "pyproject.toml", root)
    rooms = [
        path.parent.relative_to(ROOT)
        for above in ("depthlaw", "depthlaw/auditing", "depthlaw/cli", "paper_checks", "paper_checks/papers")
        for path in (ROOT / above).glob("*/__init__.py")
        if not path.parent.is_symlink()
    ]
    for package in ("depthlaw", *PACKAGES, *rooms, "theory/kernel"):
        (root / package).mkdir()
        (root / package / "__init__.py").touch()
    for package in PACKAGES:
        (root / "depthlaw" / package).symlink_to(Path("..", package))
    (root / "depthlaw/__main__.py").touch()
    for module in (ROOT / "paper_checks/papers").glob("[a-z]*.py"):
        (root / "paper_checks/papers" / module.name).touch()
    for module, code in modules.items():
        (root / module).write_text(code, encoding="utf-8")
    return root


def test_layers_are_clean() -> None:
    assert not broken_contracts(ROOT)


def test_layers_find_mutants(tmp_path: Path) -> None:
    """Each by its own line, a room that the contract does not list, and nothing in the kernel, which may use numpy."""
    fine = {"theory/kernel/predict.py": "import numpy", "paper_checks/attic.py": ""}
    fine |= {f"depthlaw/{module}.py": "" for module in ("cli/app", "auditing/expected", "auditing/models")}
    said = broken_contracts(small_project(tmp_path, LAYER_MUTANTS | fine))
    assert "0 kept, 7 broken" in said
    assert "attic" in said
    named = set(re.findall(r"^-? *([\w.]+) -> ([\w.]+)", said, flags=re.MULTILINE))
    paths = [path.removesuffix(".py").removeprefix("depthlaw/") for path in LAYER_MUTANTS]
    paths = [f"depthlaw.{path.replace('/', '.')}" for path in paths]
    wanted = [(path, code.split()[-1]) for path, code in zip(paths, LAYER_MUTANTS.values(), strict=True)]
    assert named == set(wanted)


# --- files


def test_no_machine_paths() -> None:
    """No path that means something on one machine only."""
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    wrong = []
    for path in files:
        content = path.read_bytes()
        lines = [] if b"\0" in content else content.decode(errors="replace").splitlines()
        wrong += [f"{path}: {line}" for line in lines if len(line) <= MAX_TEXT_COLUMNS and MACHINE_PATH.search(line)]
    assert not wrong


def test_no_page_shows_the_words_of_its_template() -> None:
    pages = [path for path in project_files() if path.suffix == ".md"]
    assert ROOT / "paper_checks" / "results" / "TRAINING.md" in pages
    lines = ((path, line) for path in pages for line in path.read_text(encoding="utf-8").splitlines())
    assert not [f"{path}: {line[:100]}" for path, line in lines if TEMPLATE.search(line)]
    assert TEMPLATE.search("is nearer.% else %}In short") and not TEMPLATE.search("50 % of {a, b}")


def test_pip_s_pins_are_those_of_the_lock() -> None:
    """constraints.txt is what ``make lock`` writes of uv.lock, and the lock knows what pyproject.toml asks for."""
    shown = run("make", "-n", "lock").stdout
    (command,) = re.findall(r"\.venv/bin/uv (export [^;|>]*?);", shown.replace("\\\n", " "))
    result = run(Path(sys.executable).with_name("uv"), *command.split())
    assert result.returncode == 0, result.stderr
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert pins.partition("\n")[2] == result.stdout
    locked = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {name.split(";")[0] for extra in project["optional-dependencies"].values() for name in extra}
    asked |= {*project["dependencies"]}
    known = {f"{one['name']}{one.get('specifier', '')}" for one in locked["depthlaw"]["metadata"]["requires-dist"]}
    assert {name.replace(" ", "") for name in asked} == known


# --- commands


STYLE = ["ruff", "ruff", "lint-imports"]


@pytest.mark.parametrize(
    ("target", "checks", "failing"),
    [("style", STYLE, None), ("lint", [*STYLE, "pyright"], "lint-imports")],
)
def test_make_runs_every_check_and_fails_where_one_does(
    target: str, checks: list[str], failing: str | None, tmp_path: Path
) -> None:
    """Checks that say their name, in the place of the real ones."""
    for name in ("ruff", "lint-imports", "pyright"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho ran {name}\nexit {int(name == failing)}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    result = run("make", "-o", "testing", target, f"BIN={tmp_path}", cwd=ROOT)
    assert (result.returncode == 0) == (failing not in checks)
    assert re.findall(r"^ran (\S+)", result.stdout, re.MULTILINE) == checks


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_commands_are_in_the_makefile(name: str) -> None:
    """Those in fenced blocks and between backticks."""
    text = (ROOT / name).read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```|`[^`\n]+`", text, flags=re.MULTILINE | re.DOTALL)
    named = {target for block in code for target in re.findall(r"\bmake ([a-z][\w-]*)", block)}
    targets = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"verify", "test"} <= named <= set(targets)


PROMISED = (
    *("make verify", "make lint", "make test"),
    *("make test-portable PORTABLE=--quick", "make test-fresh FRESH=system"),
)


def test_ci_runs_what_it_promises() -> None:
    """A line each, and nothing behind it that would let a failure pass."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert set(PROMISED) <= set(script.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("marks", [(), ("wide",), ("slow",), ("wide", "slow")])
def test_a_test_is_of_one_lane_and_in_ci_unless_it_is_slow(marks: tuple[str, ...]) -> None:
    """Whatever its marks, where ``gpu`` is none of them."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (fast,) = re.findall(r"^FAST := (.*)$", text, flags=re.MULTILINE)
    lanes = [fast, *re.findall(r'pytest .*-m "([^"$]+)"', text)]

    def runs(lane: str) -> bool:
        return Expression.compile(lane).evaluate(lambda name, **_: name in marks)

    assert len(lanes) == 3 and sum(map(runs, lanes)) == 1
    assert runs(IN_CI) == ("slow" not in marks)


IMPORTED = """
import json, sys
from depthlaw.cli.app import main
arguments, names = json.loads(sys.argv[1])
sys.argv = ["depthlaw", *arguments]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in names if name in sys.modules]), file=sys.stderr)
"""
LIGHT = {
    "--help": HEAVY,
    "tables --only bounds": HEAVY,
    "explain S2-08": ("torch", "scipy", "depthlaw.paper_checks.papers.magneto"),
    "predict --scheme admin --optimizer sgd --sublayers 2 --tokens 2 --attention": ("torch",),
}
"""What a command that people wait for does not import: it is what took most of their time."""


@pytest.mark.parametrize("command", often(LIGHT, 3, wide=1))
def test_quick_commands_are_light(command: str) -> None:
    """In a fresh interpreter."""
    result = run(sys.executable, "-c", IMPORTED, json.dumps([command.split(), LIGHT[command]]))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stderr.splitlines()[-1]) == []


# --- the state and the skips of a test run, as tests/conftest.py keeps them


def run_pytest(
    folder: Path, workers: int, environment: dict[str, str] | None = None, **tests: str
) -> subprocess.CompletedProcess[str]:
    """Runs test modules of their own under our conftest, with no plugin but the one for several processes."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # and not one that lies above
    for name, code in tests.items():
        (folder / f"test_{name}.py").write_text(code, encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", "-n", str(workers))
    return run(*command, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **environment or {})


STATE = """
import json, pathlib, random
import mpmath, numpy, pytest
drawn = []
@pytest.mark.parametrize("turn", [1, 2])
def test_leak(turn):
    assert mpmath.mp.dps == 15
    mpmath.mp.dps = 50
@pytest.mark.parametrize("turn", [1, 2])
def test_draw(turn):
    drawn.append((random.random(), numpy.random.random()))
    pathlib.Path(f"drawn-{turn}.json").write_text(json.dumps(drawn[-1]), encoding="utf-8")
"""
EXPECTED_TO_FAIL = "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_one(): assert False"
BROWSER = """
import pytest
@pytest.mark.browser
def test_page(chromium): pass
def test_other(): pass
"""
SKIPPED = {
    "skips": "import pytest\ndef test_one(): pytest.skip('mutant')",
    "skips_all": "import pytest\npytest.skip('mutant', allow_module_level=True)",
    "other": "def test_other(): pass",
}


@pytest.mark.wide
def test_a_run_is_green_and_leaks_nothing_and_says_what_it_left_out(tmp_path: Path) -> None:
    """In one process and in a worker: each test draws the same, and two tests different numbers; a test marked browser
    is left out where there is none, and an expected failure is no skip."""
    drawn = []
    for workers in (0, 1):
        folder = tmp_path / str(workers)
        empty = {"PATH": str(tmp_path), "DEPTHLAW_PROGRAMS": ""}
        result = run_pytest(folder, workers, empty, state=STATE, xfail=EXPECTED_TO_FAIL, browser=BROWSER)
        assert result.returncode == pytest.ExitCode.OK, result.stdout
        assert "5 passed" in result.stdout and "1 xfailed" in result.stdout
        assert "left out: tests marked browser" in result.stdout
        drawn.append([json.loads((folder / f"drawn-{turn}.json").read_text(encoding="utf-8")) for turn in (1, 2)])
    assert drawn[0] == drawn[1]
    assert not set(drawn[0][0]) & set(drawn[0][1])


def test_skips_that_are_not_listed_fail(tmp_path: Path) -> None:
    """In a worker, as ``make test`` has them."""
    result = run_pytest(tmp_path, 1, None, **SKIPPED)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    told = re.findall(r"not in the list of allowed skips: (\S+)", result.stdout)
    assert told == ["test_skips.py::test_one", "test_skips_all.py"]


OPEN = """
def test_one(tmp_path):
    circle = [open(tmp_path / "file", "w")]
    circle.append(circle)
def test_other(): pass
"""


def test_a_file_that_is_left_open_in_a_circle_is_red(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, 1, {"PYTHONWARNINGS": "error"}, left=OPEN)
    assert "FAILED: left open at the end: unclosed file" in result.stdout
    assert result.returncode == pytest.ExitCode.TESTS_FAILED


def test_where_all_programs_are_wanted_a_missing_one_is_red(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, 0, {"PATH": str(tmp_path), "DEPTHLAW_PROGRAMS": "all"}, browser=BROWSER)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "no Chromium" in result.stdout
    assert "left out" not in result.stdout
