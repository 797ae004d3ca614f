"""The places where the tests of tests/portable run: a checkout, who runs its tests, and with which Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.portable.machines import SEED, THREADS, Machine

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "portable"
USER = 65534
"""Who is not root: nobody, on every Linux."""


def say(text: str) -> None:
    print(f"portable: {text}", flush=True)


class MissingError(Exception):
    """This machine cannot be that one; the text says what is missing."""


@dataclass(frozen=True)
class Place:
    """A checkout, and who runs its tests with what."""

    root: Path
    python: Path
    variables: Mapping[str, str]
    user: int | None = None

    def start(self, *arguments: str, **how: Any) -> subprocess.Popen[str]:
        command = [str(self.python), *arguments]
        who: dict[str, Any] = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        return subprocess.Popen(command, cwd=self.root, env=dict(self.variables), text=True, **who, **how)


def is_open(path: Path) -> bool:
    """Whether any user may pass through the folders above."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


@contextmanager
def place_of(machine: Machine) -> Iterator[Place]:
    rest = {name: x for name, x in os.environ.items() if name not in ("DEPTHLAW_TEST_RUN", SEED)}
    variables = dict.fromkeys(THREADS, "1") | rest | dict(machine.variables)
    python, root, user = Path(sys.executable), ROOT, None
    if machine.python:
        python = another_python(machine.python)
        variables["PYTHONPATH"] = str(ROOT)
    # The copy stands beside the packages that it links. A user's own folder does not: a test's folder in a checkout
    # would be taken for a part of it.
    OUT.mkdir(parents=True, exist_ok=True)
    beside = TemporaryDirectory(prefix="user-", dir=OUT if is_open(ROOT / "out") else None)
    with beside as folder, TemporaryDirectory(prefix="depthlaw-") as home:
        if machine.as_user and os.geteuid() == 0:
            Path(folder).chmod(0o755)
            root, python = a_checkout_of_its_own(Path(folder))
            user = USER
            os.chown(home, USER, USER)
            variables |= {"HOME": home, "TMPDIR": home, "USER": "nobody", "LOGNAME": "nobody"}
        if machine.hides:
            variables["PATH"] = str(programs_without(machine.hides, Path(folder) / "programs"))
        yield Place(root, python, variables, user)


def programs_without(hidden: Sequence[str], folder: Path) -> Path:
    """A folder with a link to every program on the PATH but these."""
    folder.mkdir()
    for path in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(path).glob("*")):
            if program.name not in hidden and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


def a_checkout_of_its_own(folder: Path) -> tuple[Path, Path]:
    """A copy of the project that belongs to USER, in a folder of root's, with an environment; its root, its Python."""
    version = f"python3.{sys.version_info.minor}"
    pythons = [Path(sys.executable).resolve(), *(Path(path) / version for path in os.defpath.split(os.pathsep) if path)]
    base = next((path for path in pythons if path.exists() and is_open(path.resolve())), None)
    if base is None:
        raise MissingError(f"no {version} that another user may run")
    root = folder / "checkout"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
    if (ROOT / ".git").is_dir():
        shutil.copytree(ROOT / ".git", root / ".git")
    for path in (root, *root.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    return root, _linked_environment(base, root)


def _linked_environment(base: Path, root: Path) -> Path:
    """The packages of this environment, linked, so that a second costs no space; they stay root's."""
    new, old = root / ".venv", Path(sys.prefix)
    subprocess.run([base, "-m", "venv", "--without-pip", new], check=True)
    packages = Path(sysconfig.get_path("purelib"))
    to = new / packages.relative_to(old)
    shutil.copytree(packages, to, copy_function=_link, dirs_exist_ok=True)
    for path in to.glob("*.pth"):
        if str(ROOT) in (text := path.read_text(encoding="utf-8")):  # the project itself
            path.unlink()
            path.write_text(text.replace(str(ROOT), str(root)), encoding="utf-8")
    for script in (old / "bin").iterdir():
        if not (new / "bin" / script.name).exists() and script.is_file():
            content = script.read_bytes()
            (new / "bin" / script.name).write_bytes(content.replace(bytes(old), bytes(new), 1))
            shutil.copymode(script, new / "bin" / script.name)
    return new / "bin" / "python"


def _link(old: str, new: str) -> None:
    try:
        os.link(old, new)
    except OSError:  # another file system
        shutil.copy2(old, new)


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def interpreter(version: str) -> str:
    """A Python of this version on this machine, such as 3.12."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    pythons = [str(path) for path in kept] + ([path] if (path := shutil.which(f"python{version}")) else [])
    base = next((path for path in pythons if _runs([path, "-c", ""])), None)
    if base is None:
        raise MissingError(f"no Python {version} on this machine")
    return base


def another_python(version: str) -> Path:
    """That of a clone in out/portable, which ``make testing`` has made; it tests the files that are here."""
    if version == f"3.{sys.version_info.minor}":
        raise MissingError("that is the Python of this environment")
    base, clone = interpreter(version), OUT / f"python{version}"
    begin = ["-C", clone, "pull", "-q"] if clone.exists() else ["clone", "-q", ROOT, clone]
    subprocess.run(["git", *begin], check=True)
    subprocess.run(["make", "-C", clone, "testing", f"PYTHON={base}"], check=True)
    return clone / ".venv" / "bin" / "python"
