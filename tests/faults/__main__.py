"""Planted faults: python -m tests.faults [--at FOLDER] [--workers K] [NAME ...]

Each fault in the .toml files here is a mistake that a person could make. One at a time they are put into a copy of the
project, and the tests named beside it are run there, as `make test` would run them, and where all those pass the slow
ones: one of them must fail. Says of each what caught it, at the end how many were caught; exit 1 unless all were.
NAME: a fault's name, or how it begins. --at: another checkout to try them in, such as an older commit.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
IN_CI, SLOW = "not slow and not gpu", "slow and not gpu"
"""What `make test` and `make test-wide` run, and what `make test-long` does."""
PACKAGES = ("theory", "sims", "paper_checks")
_WHERE = f"from depthlaw import {', '.join(PACKAGES)}; print(*({', '.join(PACKAGES)}), sep='\\n')"
_RED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_NONE = 5
"""pytest's exit code where it ran no test."""
_LONGEST = 1200.0
"""Seconds for the tests of one fault."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """old, which stands once in ``file``, becomes ``new``; one of ``tests`` must see it. area: the file that has it."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def is_in(self, root: Path) -> bool:
        """Whether it can be put there."""
        path = root / self.file
        return path.is_file() and path.read_text(encoding="utf-8").count(self.old) == 1


def read(folder: Path = HERE) -> list[Fault]:
    """Those of every area, in the order of the files."""
    areas = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}
    return [
        Fault(area=area, **fields | {"tests": tuple(fields["tests"])})
        for area, content in areas.items()
        for fields in content["fault"]
    ]


def copy(root: Path, to: Path) -> Path:
    """The files that git knows, as they are in the working tree. RuntimeError where the copy would not be imported."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and ((root / name).is_file() or (root / name).is_symlink()):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name, follow_symlinks=False)
    (to / ".venv").symlink_to(sys.prefix)  # the README's commands are looked for there
    places = subprocess.run(
        [sys.executable, "-c", _WHERE], cwd=to, env=_environment(to), capture_output=True, text=True, check=True
    ).stdout
    if places.count(f"{to}{os.sep}") != len(PACKAGES):
        raise RuntimeError(f"the installed project hides the copy: {places}")
    return to


def _environment(folder: Path) -> dict[str, str]:
    """Of the tests of a copy: nothing of a run of tests that this one is part of; a missing program is red."""
    rest = {name: x for name, x in os.environ.items() if not name.startswith(("PYTEST_", "DEPTHLAW_", "HYPOTHESIS_"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return rest | threads | {"PYTHONPATH": str(folder), "DEPTHLAW_PROGRAMS": "all"}


def run_tests(folder: Path, tests: Iterable[str], lane: str, *options: str) -> tuple[int, str]:
    """pytest's exit code, and what it said."""
    options = ("-q", "-n", "0", "-m", lane, "-p", "no:cacheprovider", "--tb=short", "--color=no", *options)
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    return asked.returncode, asked.stdout + asked.stderr


def lanes_of(fault: Fault) -> tuple[str, ...]:
    """Cases that a fault names are run whatever lane they stand in; of a whole table, those of the default lane, and
    the slow ones where these miss it."""
    return ("not gpu",) if all("[" in test for test in fault.tests) else (IN_CI, SLOW)


def try_(fault: Fault, root: Path) -> tuple[bool, str]:
    """Whether it was caught in a copy of its own, and by which test, or what came instead."""
    if not fault.is_in(root):
        return False, "does not apply"
    with tempfile.TemporaryDirectory() as folder:
        own = shutil.copytree(root, Path(folder).resolve() / "copy", symlinks=True)
        path = own / fault.file
        path.write_text(path.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
        codes, lane, said = [], "", ""
        try:
            for lane in lanes_of(fault):
                code, said = run_tests(own, fault.tests, lane, "-x")
                codes.append(code)
                if code not in (0, _NONE):
                    break
            red = _RED.search(said.rpartition("short test summary info")[2])  # before that may be whatever was logged
            if lane == SLOW and red and run_tests(root, [red[1].partition("[")[0]], lane)[0] != 0:
                return False, f"red without the fault, too: {red[1]}"
        except subprocess.TimeoutExpired:
            return False, f"MISSED: its tests do not end within {_LONGEST:.0f} s"
    if 0 in codes and {*codes} <= {0, _NONE}:
        return False, "MISSED"
    if red is None:
        return False, f"MISSED: no test was run (pytest: exit {codes[-1]})\n{said[-2000:]}"
    if "::" not in red[1]:  # a module that cannot be imported is no test that fails
        return False, f"no fault but an error: {red[0]}\n{said[-2000:]}"
    return True, f"caught by {red[1]}"


def main(arguments: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """folder: where the lists of faults are."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Try planted faults.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if left out")
    parser.add_argument("--at", type=Path, default=ROOT, metavar="FOLDER", help="the checkout to try them in")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="faults at a time")
    asked = parser.parse_args(arguments)
    faults = [fault for fault in read(folder) if not asked.names or fault.name.startswith(tuple(asked.names))]
    if not faults:
        parser.error("no fault has such a name")
    root = asked.at.resolve()
    if shutil.which("git") is None or not (root / ".git").exists():
        parser.error(f"--at {asked.at}: needs git, and a checkout of it, to know which files to copy")
    caught: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as beside:
        whole = copy(root, Path(beside).resolve())
        print("faults: the tests without a fault", file=sys.stderr, flush=True)
        by_lane: dict[str, set[str]] = {}
        for fault in faults:
            by_lane.setdefault(lanes_of(fault)[0], set()).update(fault.tests)
        for lane, tests in by_lane.items():
            code, said = run_tests(whole, sorted(tests), lane)
            if code not in (0, _NONE):
                print(f"{said[-8000:]}\nfaults: red without a fault, so they would catch nothing", file=sys.stderr)
                return 1
        with ThreadPoolExecutor(max(asked.workers, 1)) as pool:
            pending = {pool.submit(try_, fault, whole): fault for fault in faults}
            for done, future in enumerate(as_completed(pending), start=1):
                fault, (is_caught, text) = pending[future], future.result()
                caught[fault.area] += is_caught
                print(f"{fault.area}: {fault.name}: {text}", flush=True)
                print(f"faults: {done} of {len(faults)}", file=sys.stderr, flush=True)
    of_area = Counter(fault.area for fault in faults)
    print(", ".join(f"{area} {caught[area]} of {number}" for area, number in of_area.items()))
    print(f"{caught.total()} of {len(faults)} planted faults caught")
    return 0 if caught.total() == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
