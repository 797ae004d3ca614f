"""The tests that could depend on the machine, run as other machines: python -m tests.portable [--quick] [MACHINE ...]

A machine here is this one with something changed: environment variables that choose a library's arithmetic, the
locale, the width of the terminal, the seed of hashes, the order of the tests, the user, the programs at hand, the
Python. One that this machine does not have is said to be missing, which is no failure. --quick is for continuous
integration: all changes at once, on the fast and the wide lane. Which of them makes a test fail:
python -m tests.portable --tests TEST. The logs are in out/portable.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.portable.machines import AT_ONCE, Machine, at_once, table
from tests.portable.places import OUT, MissingError, Place, place_of, say

PYTEST = ("-m", "pytest", "-p", "tests.portable.plugin", "-q", "-rfE", "--tb=short", "--timeout", "1800")
IN_CI = "not slow and not gpu"
"""What `make test` and `make test-wide` run."""


@dataclass(frozen=True)
class Result:
    """text: why the machine was not run, if it was not. why: what pytest said of the tests that failed."""

    machine: str
    text: str = ""
    passed: int = 0
    failed: tuple[str, ...] = ()
    seconds: float = 0.0
    why: str = ""


def run_tests(name: str, place: Place, tests: Sequence[str]) -> Result:
    """tests: files, or node ids, below the root."""
    start, said = time.monotonic(), ""
    command = [*PYTEST, "-m", IN_CI, "-n", "auto", "--maxprocesses", "8", "--dist", "worksteal", *tests]
    with (
        (OUT / f"{name}.log").open("w", encoding="utf-8") as log,
        place.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            said += line
            if done := re.search(r"\[ *(\d+%)\]$", line):
                say(f"{name}: {done[1]} done")
    failed = tuple(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE))
    passed = re.search(r"(\d+) passed", said)
    if process.returncode and not failed:
        failed = (f"pytest: exit {process.returncode}",)
    why = re.search(r"^=+ (?:ERRORS|FAILURES) =+$.*?(?=^=+ short test summary|\Z)", said, re.MULTILINE | re.DOTALL)
    last = (why[0] if why else said)[-8000:]
    return Result(name, "", int(passed[1]) if passed else 0, failed, time.monotonic() - start, last)


def try_(machine: Machine, tests: Sequence[str]) -> Result:
    """tests: in place of those of the table, if any."""
    try:
        with place_of(machine) as place:
            return run_tests(machine.name, place, expanded(place.root, tests or machine.tests))
    except MissingError as error:
        return Result(machine.name, f"not here: {error}")


def expanded(root: Path, tests: Sequence[str]) -> list[str]:
    """The files of the patterns, less those after a "!"; a folder or a node id stays what it is."""
    chosen: dict[str, None] = {}
    for test in tests:
        files = [test.removeprefix("!")]
        if "*" in test and "::" not in test:
            files = sorted(str(path.relative_to(root)) for path in root.glob(files[0]))
        if test.startswith("!"):
            chosen = {file: None for file in chosen if file not in files}
        else:
            chosen |= dict.fromkeys(files)
    return list(chosen)


def show(results: Sequence[Result]) -> None:
    width = max(len(result.machine) for result in results)
    print(f"\n{'machine':<{width}}  passed  failed  seconds")
    for result in results:
        numbers = f"{result.passed:6}  {len(result.failed):6}  {result.seconds:7.0f}"
        print(f"{result.machine:<{width}}  {result.text or numbers}")
    for result in results:
        if result.failed:
            print(result.why)
        for test in result.failed:
            print(f"FAILED as {result.machine}: {test}")
    failed, ran = sum(bool(result.failed) for result in results), sum(not result.text for result in results)
    print(f"portable: {failed or 'none'} of {ran} machines failed", flush=True)
    if not ran:
        print("portable: no machine was run, so nothing was tested", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description="The tests, as other machines.")
    parser.add_argument("machines", nargs="*", metavar="MACHINE", help="all if left out")
    parser.add_argument(
        "--quick", action="store_true", help="the fast and the wide lane once, with all changes together"
    )
    parser.add_argument("--tests", nargs="+", default=[], metavar="TEST", help="these instead of those of the table")
    parser.add_argument("--seed", default="", help="of the hash seed and the order of tests; drawn if left out")
    parser.add_argument("--list", action="store_true", help="the machines, and what is different in each")
    asked = parser.parse_args(arguments)
    seed = asked.seed or str(random.SystemRandom().randrange(10**6))
    machines = {machine.name: machine for machine in table(seed)}
    if unknown := set(asked.machines) - set(machines):
        parser.error(f"no machine {', '.join(sorted(unknown))}; --list has them")
    if asked.quick and asked.machines:
        parser.error("--quick is all machines at once; name machines or ask for it, not both")
    if asked.list:
        for machine in machines.values():
            print(machine.name, *machine.differences())
        return 0
    wanted = [machines[name] for name in asked.machines or machines]
    if asked.quick:
        wanted = [at_once([machines[name] for name in AT_ONCE])]
    say(f"--seed {seed}")
    results: list[Result] = []
    for machine in wanted:
        result = try_(machine, asked.tests)
        results.append(result)
        say(f"{result.machine}: {result.text or f'{len(result.failed)} failed, {result.passed} passed'}")
    show(results)
    return 1 if any(result.failed for result in results) or all(result.text for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
