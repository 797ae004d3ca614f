"""The house rules, each as a function that lists what breaks it. Each is shown a mutant that it must find."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 500
MAX_TEXT_COLUMNS = 2000  # longer lines are data, such as the pictures in a notebook
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:tmp|root|home|work|Users|mnt)/[\w.-]+")
PACKAGES = ("theory", "sims", "paper_checks")
HEAVY = ("sympy", "torch")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, **environment}
    return subprocess.run([*map(str, command)], cwd=cwd, env=settings, capture_output=True, text=True, check=False)


def project_files(root: Path = ROOT) -> list[Path]:
    """Every file of the project, those that git does not know yet included; without git, what is not hidden away."""
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    if listing.returncode == 0 and listing.stdout:
        files = [root / name for name in listing.stdout.split("\0") if name]
    else:
        ignored = {".git", ".venv", ".lock", "out", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache"}
        files = [path for path in root.rglob("*") if not ignored & set(path.relative_to(root).parts)]
    return [path for path in files if path.is_file()]


# --- layers


def broken_contracts(root: Path) -> str:
    """What import-linter finds wrong in the packages under `root`; empty when all contracts are kept."""
    linter = Path(sys.executable).with_name("lint-imports")
    # The tree under `root` comes first, so that a mutant is not mistaken for the installed project.
    result = run(linter, "--no-cache", cwd=root, PYTHONPATH=str(root))
    return "" if result.returncode == 0 else result.stdout + result.stderr


def small_project(root: Path, module: str, code: str) -> Path:
    shutil.copy(ROOT / "pyproject.toml", root)
    for package in PACKAGES:
        (root / package).mkdir()
        (root / package / "__init__.py").touch()
    (root / module).write_text(code)
    return root


def test_layers_are_clean() -> None:
    assert not broken_contracts(ROOT)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("theory/mutant.py", "import torch"),
        ("theory/mutant.py", "import random"),
        ("theory/mutant.py", "import numpy"),
        ("theory/mutant.py", "from scipy import special"),
        ("theory/mutant.py", "import sims"),
        ("theory/mutant.py", "import paper_checks"),
        ("sims/mutant.py", "import sympy"),
        ("sims/mutant.py", "def late():\n    import theory"),
        ("sims/mutant.py", "import paper_checks"),
    ],
)
def test_layers_find_a_mutant(tmp_path: Path, module: str, code: str) -> None:
    found = broken_contracts(small_project(tmp_path, module, code))
    assert "BROKEN" in found
    assert "mutant" in found


def test_layers_let_the_kernel_use_numpy(tmp_path: Path) -> None:
    assert not broken_contracts(small_project(tmp_path, "theory/kernel.py", "import numpy"))


# --- files


def machine_paths(files: list[Path]) -> list[str]:
    """Paths that mean something on one machine only."""
    found = []
    for path in files:
        content = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
            if len(line) <= MAX_TEXT_COLUMNS and MACHINE_PATH.search(line):
                found.append(f"{path}:{number}: {line.strip()}")
    return found


def test_no_machine_paths() -> None:
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    assert not machine_paths(files)


def test_machine_paths_find_a_mutant(tmp_path: Path) -> None:
    mutant = tmp_path / "mutant.py"
    folder = "home/someone"
    mutant.write_text(f'relative = "data/{folder}"\nabsolute = "/{folder}"\n')
    assert [line.split(":")[1] for line in machine_paths([mutant])] == ["2"]


def long_files(files: list[Path]) -> list[str]:
    sources = [path for path in files if path.suffix == ".py"]
    return [str(path) for path in sources if len(path.read_text().splitlines()) > MAX_LINES]


def test_no_long_files() -> None:
    assert not long_files(project_files())


def test_long_files_find_a_mutant(tmp_path: Path) -> None:
    fits, mutant = tmp_path / "fits.py", tmp_path / "mutant.py"
    fits.write_text("pass\n" * MAX_LINES)
    mutant.write_text("pass\n" * (MAX_LINES + 1))
    assert long_files([fits, mutant]) == [str(mutant)]


# --- commands


def make_commands(text: str) -> list[str]:
    """The `make` commands in the code of a Markdown text: in its fenced blocks and between its backticks."""
    blocks = re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`[^`\n]+`", text)
    return sorted({name for code in blocks + spans for name in re.findall(r"\bmake ([a-z][\w-]*)", code)})


def unknown_commands(readme: str, makefile: str) -> list[str]:
    targets = re.findall(r"^([\w-]+):(?!=)", makefile, flags=re.MULTILINE)
    return sorted(set(make_commands(readme)) - set(targets))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_commands_are_in_the_makefile(name: str) -> None:
    text = (ROOT / name).read_text()
    assert {"verify", "test"} <= set(make_commands(text))
    assert not unknown_commands(text, (ROOT / "Makefile").read_text())


def test_documented_commands_find_a_mutant() -> None:
    makefile = "verify: runtime\n\ttrue\n"
    readme = "Now make yourself at home.\n```\nmake verify\nmake mutant\n```\nor `make other`"
    assert unknown_commands(readme, makefile) == ["mutant", "other"]


def runs_make_test(script: str) -> bool:
    return re.search(r"^make test$", script, flags=re.MULTILINE) is not None


def test_ci_runs_the_readme_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert runs_make_test(script.read_text())


@pytest.mark.parametrize("mutant", ["echo make test", "make test || true", "# make test", "make tests", ""])
def test_ci_check_finds_a_mutant(mutant: str) -> None:
    assert not runs_make_test(f"set -e\n{mutant}\n")


def heavy_imports(entry_point: str, root: Path = ROOT) -> list[str]:
    """Which of the slow libraries `--help` imports, in a fresh interpreter."""
    module, function = entry_point.split(":")
    code = f"""
import json, sys
sys.argv = ["depthlaw", "--help"]
from {module} import {function}
try:
    {function}()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)
"""
    result = run(sys.executable, "-c", code, cwd=root)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stderr.splitlines()[-1])


def test_help_is_light() -> None:
    assert heavy_imports("paper_checks.cli:main") == []


def test_help_check_finds_a_mutant(tmp_path: Path) -> None:
    (tmp_path / "mutant.py").write_text("import sympy\ndef main(): raise SystemExit(0)")
    assert heavy_imports("mutant:main", tmp_path) == ["sympy"]


# --- the state and the skips of a test run, as tests/conftest.py keeps them


def run_pytest(
    folder: Path, workers: int, environment: dict[str, str] | None = None, **tests: str
) -> subprocess.CompletedProcess[str]:
    """Runs test modules of their own under our conftest."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    for name, code in tests.items():
        (folder / f"test_{name}.py").write_text(code)
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers))
    return run(*command, cwd=folder, **environment or {})


LEAK = """
import random
import mpmath, numpy, pytest
drawn = []
@pytest.mark.parametrize("turn", [1, 2])
def test_leak(turn):
    assert mpmath.mp.dps == 15
    mpmath.mp.dps = 50
@pytest.mark.parametrize("turn", [1, 2])
def test_draw(turn):
    drawn.append((random.random(), numpy.random.random()))
def test_seeds_differ():
    assert len(set(drawn)) == 2
    print("drawn", drawn)
    assert False, "shows what was drawn"
"""


def test_state_does_not_leak(tmp_path: Path) -> None:
    outputs = [run_pytest(tmp_path, 0, leak=LEAK).stdout for _ in range(2)]
    drawn = [[line for line in output.splitlines() if line.startswith("drawn")] for output in outputs]
    assert all("1 failed, 4 passed" in output for output in outputs), outputs[0]
    assert drawn[0] == drawn[1] != []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("def test_one(): pass", pytest.ExitCode.OK),
        ("import pytest\ndef test_one(): pytest.skip('mutant')", pytest.ExitCode.TESTS_FAILED),
        ("import pytest\npytest.skip('mutant', allow_module_level=True)", pytest.ExitCode.TESTS_FAILED),
        ("import pytest\n@pytest.mark.xfail(strict=True)\ndef test_one(): assert False", pytest.ExitCode.OK),
    ],
    ids=["pass", "skip", "skip-module", "xfail"],
)
def test_a_skip_that_is_not_listed_fails(tmp_path: Path, workers: int, code: str, exit_code: int) -> None:
    result = run_pytest(tmp_path, workers, mutant=code, other="def test_other(): pass")
    assert result.returncode == exit_code, result.stdout
    assert ("not in the list of allowed skips" in result.stdout) == (exit_code != pytest.ExitCode.OK)


BROWSER = """
import pytest
@pytest.mark.browser
def test_page(chromium): pass
def test_other(): pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_tests_without_their_program_are_left_out_and_that_is_said(tmp_path: Path, workers: int) -> None:
    empty = {"PATH": str(tmp_path), "DEPTHLAW_PROGRAMS": ""}
    result = run_pytest(tmp_path, workers, empty, browser=BROWSER)
    assert result.returncode == pytest.ExitCode.OK, result.stdout
    assert "1 passed" in result.stdout
    assert "left out: tests marked browser" in result.stdout


def test_where_all_programs_are_wanted_a_missing_one_is_red(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, 0, {"PATH": str(tmp_path), "DEPTHLAW_PROGRAMS": "all"}, browser=BROWSER)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "no Chromium" in result.stdout
    assert "left out" not in result.stdout
