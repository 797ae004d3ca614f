"""The wheel: what it has, and that it works beside a user's own packages and without any extra.

``make test-installed`` does the same in environments of their own, with the oldest and the newest torch.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from depthlaw.cli.app import EXTRAS
from depthlaw.system.places import RECORDS
from tests.installed.__main__ import COMMANDS, own_folder
from tests.often import often

ROOT = Path(__file__).resolve().parents[2]
_MAIN = "import sys; from depthlaw.cli.app import main; sys.argv[0] = 'depthlaw'; main()"


def built(root: Path, kind: str, folder: Path) -> Path:
    build = f"from hatchling.build import build_{kind}; print(build_{kind}({str(folder)!r}))"
    result = subprocess.run([sys.executable, "-c", build], cwd=root, check=True, capture_output=True, text=True)
    return folder / result.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout; unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built(ROOT, "wheel", folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """As whoever publishes it builds it."""
    with tarfile.open(built(ROOT, "sdist", tmp_path)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(tmp_path)
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    with zipfile.ZipFile(built(source, "wheel", tmp_path)) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert names == {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}


def test_the_wheel_has_one_name_and_all_that_the_checkout_has(wheel: Path) -> None:
    names = {path.name for path in wheel.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"depthlaw"}
    for room in ("depthlaw", "theory", "sims", "paper_checks"):
        for path in (ROOT / room).rglob("*.py*"):  # which follows no link
            if path.suffix in (".py", ".pyi"):
                place = path.relative_to(ROOT / "depthlaw" if room == "depthlaw" else ROOT)
                assert (wheel / "depthlaw" / place).read_bytes() == path.read_bytes()


def test_no_answer_rests_on_a_record_that_the_wheel_lacks(wheel: Path) -> None:
    """What it lacks is named where generated pages and what measures for them are, and nowhere else."""
    records = {path.relative_to(RECORDS) for path in RECORDS.glob("**/*.jsonl") if path.parts[-2] != "local"}
    there = wheel / "depthlaw" / "sims" / "records"
    lacks = {path for path in records if not (there / path).exists()}
    assert {path.stem for path in lacks} == {
        "4-layers",
        "24-layers",
        "after-start",
        "clients",
        "elsewhere",
        "transfer",
        "transformers",
        "transformer-variants",
    }
    for path in (path for room in ("depthlaw", "paper_checks") for path in (ROOT / room).rglob("*.py")):
        if path.relative_to(ROOT).parts[1] not in ("experiments", "pages"):
            text = path.read_text(encoding="utf-8")
            assert not [name for name in lacks if name.name in text], path


def answer(wheel: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of the wheel, not of the checkout, in a folder of a user's own; without what an extra brings, and what Windows
    lacks."""
    lacking = [name for names in EXTRAS.values() for name in names if name != "markdown_it"]  # rich brings that
    lacking += ["fcntl", "termios", "pwd", "grp"]
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({lacking}))\n"
        f"import depthlaw\nassert depthlaw.__file__.startswith({str(wheel)!r}), depthlaw.__file__\n{_MAIN}"
    )
    settings = {**os.environ, "PYTHONPATH": str(wheel), "COLUMNS": "100"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


OFTEN = often([(command,) for command in reversed(COMMANDS)], 6, wide=3)


@pytest.mark.parametrize("arguments", OFTEN, ids=lambda arguments: arguments[0])
def test_commands_answer_beside_a_user_s_own_packages(arguments: tuple[str, ...], wheel: Path, tmp_path: Path) -> None:
    result = answer(wheel, own_folder(tmp_path), *arguments, "--json")
    assert result.returncode == (1 if arguments[0] == "audit" else 0), result.stderr
    assert json.loads(result.stdout)


def test_a_command_that_lacks_an_extra_says_how_to_get_it(wheel: Path, tmp_path: Path) -> None:
    result = answer(wheel, tmp_path, "verify", "S2-08")
    assert result.returncode == 2 and result.stdout == ""
    assert "which is not installed here (allowed: with the extra, `pip install 'depthlaw[verify]'`)" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2 and "Traceback" not in result.stderr
