"""The README's two commands on machines that are new to depthlaw: python -m tests.fresh [--list] [NAME ...]

A machine here is this one with another Python for make, a HOME that is empty, and none of this shell's variables but
those that say how the network is reached; so pip and uv know no settings of the person, and torch comes from the
package index: with CUDA on Linux, gigabytes. Each machine gets a clone of what is committed. A machine that cannot be
made here, as its Python or uv is missing, is said to be missing; that is a failure where it was asked for by name. The
logs are in out/fresh.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.portable.places import MissingError, interpreter

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "fresh"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
KEPT = re.compile(r"SSL_CERT_(FILE|DIR)|(HTTPS?|ALL|NO)_PROXY", re.IGNORECASE)
"""The variables that say how the network is reached."""
NEWEST_FIRST = ("3.14", "3.13", "3.12", "3.11")
TARGETS = ("runtime", "verify", "test")
"""The README's two commands, and before them, for its wall time, the installation that either begins with."""
SEEN = (
    "import json, sys; from importlib.metadata import version;"
    "print(json.dumps([sys.version.split()[0], version('pip'), version('torch')]))"
)


@dataclass(frozen=True)
class Machine:
    """python: what make takes for Python. path: where programs are looked for."""

    python: str
    path: str = SYSTEM_PATH


def system(folder: Path) -> Machine:
    """The system's own Python with the pip that it brings; on Debian 12 those are 3.11.2 and 23.0.1."""
    python = Path("/usr/bin/python3")
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    if not python.exists() or subprocess.run([python, "-c", check], capture_output=True, check=False).returncode:
        raise MissingError("no /usr/bin/python3 from 3.11 on with venv")
    return Machine(str(python))


def newest(folder: Path) -> Machine:
    """The newest CPython that this machine has."""
    for version in NEWEST_FIRST:
        with contextlib.suppress(MissingError):
            return Machine(interpreter(version))
    raise MissingError(f"no Python of {', '.join(NEWEST_FIRST)}")


def uv(folder: Path) -> Machine:
    """uv and no Python of the person's: uv finds one, or brings it."""
    there = shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv")
    if there is None:
        raise MissingError("no uv")
    (folder / "bin").mkdir()
    (folder / "bin" / "uv").symlink_to(there)
    return Machine("uv run --no-project python", f"{folder / 'bin'}:{SYSTEM_PATH}")


MACHINES = {"system": system, "newest": newest, "uv": uv}


def cloned(to: Path) -> bool:
    """Whether git could clone this checkout; an archive of the project is copied, without what was made in it."""
    if subprocess.run(["git", "clone", "-q", ROOT, to], capture_output=True, check=False).returncode == 0:
        return True
    made = shutil.ignore_patterns(".git", ".venv", "out", "local", "__pycache__", ".*_cache", ".hypothesis")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(ROOT, to, symlinks=True, ignore=made)
    return False


def try_(name: str, *, may_be_missing: bool = False) -> bool:
    """Whether every command has ended well; prints each with its wall time."""
    with TemporaryDirectory(prefix="depthlaw-") as temporary:
        folder = Path(temporary)
        try:
            machine = MACHINES[name](folder)
        except MissingError as error:
            print(f"{name}: missing here: {error}", flush=True)
            return may_be_missing
        clone, home = folder / "clone", folder / "home"
        home.mkdir()
        is_clone = cloned(clone)
        network = {key: value for key, value in os.environ.items() if KEPT.fullmatch(key)}
        variables = {"PATH": machine.path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **network}
        print(f"{name}: make PYTHON='{machine.python}'", flush=True)
        for target in TARGETS:
            log, start = OUT / f"{name}-{target}.log", time.monotonic()
            with log.open("w", encoding="utf-8") as file:
                command = ["make", "-C", clone, target, f"PYTHON={machine.python}"]
                code = subprocess.run(command, env=variables, stdout=file, stderr=subprocess.STDOUT, check=False)
            print(f"  make {target}: exit {code.returncode}, {time.monotonic() - start:.0f} s", flush=True)
            if code.returncode:
                print("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[-40:]), flush=True)
                return False
            if target == "runtime":
                seen = subprocess.run([clone / ".venv/bin/python", "-c", SEEN], capture_output=True, check=True)
                print("  Python {}, pip {}, torch {}".format(*json.loads(seen.stdout)), flush=True)
        status = ["git", "-C", clone, "status", "--porcelain"]
        left = subprocess.run(status, capture_output=True, text=True, check=True).stdout if is_clone else ""
        if left:
            print(f"  left behind, and not ignored by git:\n{left}", flush=True)
        return not left


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fresh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="machines; all of them, if left out")
    parser.add_argument("--list", action="store_true", help="only say which machines there are")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in MACHINES]:
        parser.error(f"unknown: {', '.join(unknown)} (allowed: {', '.join(MACHINES)})")
    if options.list:
        for name, make in MACHINES.items():
            print(f"{name:8} {make.__doc__}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.names or MACHINES if not try_(name, may_be_missing=not options.names)]
    print(f"failed: {', '.join(failed)}" if failed else "none failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
