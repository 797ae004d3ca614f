"""The tests that could depend on the machine, run as other machines: python -m tests.portable [--quick] [MACHINE ...]

A machine here is this one with something changed: environment variables that choose a library's arithmetic, the
locale, the width of the terminal, the seed of hashes, the order of the tests, the user, the programs at hand, the
Python. What a change does is probed first: one that changes nothing here is said to be none, and one that this machine
does not have is said to be missing; neither is a failure. --quick is for continuous integration: all changes at once,
on the whole fast lane. Tests that fail are run again on this machine as it is and, where they pass there, as each
machine that was part of the run, so the table at the end says what makes each fail. The logs are in out/portable.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.portable.machines import ALL, AT_ONCE, EXACT, RESULT, Machine, at_once, table
from tests.portable.places import OUT, MissingError, Place, place_of, say

FAST = "not slow and not gpu"
"""What `make test` runs."""
MOST_AGAIN = 40
"""The most failing tests of a machine that are run again, to find out what makes them fail."""
_EVERY = 30.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class Result:
    machine: str
    text: str
    passed: int = 0
    failed: tuple[str, ...] = ()
    seconds: float = 0.0
    cpu: float = 0.0
    is_run: bool = True


class ProbeError(Exception):
    """Nothing of the project works there: not even what tells one machine from another."""


def look(place: Place) -> dict[str, str]:
    with place.start("-m", "tests.portable.machines", stdout=subprocess.PIPE) as process:
        out = process.communicate()[0]
    if process.returncode:
        raise ProbeError(f"python -m tests.portable.machines ended with exit code {process.returncode}")
    return json.loads(out)


def _cpu() -> float:
    """The processors' seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_tests(name: str, place: Place, tests: Sequence[str], options: Sequence[str]) -> Result:
    """tests: files, or node ids, below the root."""
    log, said = OUT / f"{name}.log", place.own / "result.json"
    said.unlink(missing_ok=True)
    asked = replace(place, variables={**place.variables, RESULT: str(said)})
    command = ["-m", "pytest", "-p", "tests.portable.plugin", "-q", "-m", FAST, "--timeout", "1800", *options, *tests]
    start = last = told = time.monotonic()
    used = _cpu()
    with log.open("w", encoding="utf-8") as out, asked.start(*command, stdout=out, stderr=out) as process:
        while process.poll() is None:
            time.sleep(0.2)
            last = time.monotonic()
            if last - told > _EVERY:
                told = last
                done = re.findall(r"\[ *(\d+%)\]", log.read_text(encoding="utf-8", errors="replace"))
                say(f"{name}: {last - start:.0f} s, {done[-1] if done else 'no test'} done")
    seconds, cpu = last - start, _cpu() - used
    if not said.exists():
        return Result(
            name, "", failed=(f"pytest did not come to its end (exit {process.returncode})",), seconds=seconds, cpu=cpu
        )
    found = json.loads(said.read_text(encoding="utf-8"))
    failed = tuple(found["failed"])
    if process.returncode and not failed:
        failed = (f"pytest: exit {process.returncode}",)
    return Result(name, "", found["passed"], failed, seconds, cpu)


def try_(machine: Machine, here: Mapping[str, str], tests: Sequence[str], options: Sequence[str]) -> Result:
    """tests: in place of those of the table, if any. here: what a program sees on this machine as it is."""
    try:
        with place_of(machine) as place:
            seen = look(place)
            differs = [name for name in here if name in seen and seen[name] != here[name]]
            if not differs:
                return Result(machine.name, "no different from this machine", is_run=False)
            say(f"{machine.name}: another {', '.join(differs)}")
            if any(name not in seen for name in here):
                say(f"{machine.name}: not there: {', '.join(name for name in here if name not in seen)}")
            wanted = tests or (machine.tests if seen.keys() >= here.keys() else EXACT)
            result = run_tests(machine.name, place, expanded(place.root, wanted), options)
            return replace(result, text=f"another {', '.join(differs)}")
    except MissingError as error:
        return Result(machine.name, f"not here: {error}", is_run=False)
    except ProbeError as error:
        return Result(machine.name, "not tested", failed=(str(error),))


def expanded(root: Path, tests: Sequence[str]) -> list[str]:
    """The files of the patterns, less those after a "!"; a folder or a node id stays what it is."""
    found: dict[str, None] = {}
    for test in tests:
        files = [test.removeprefix("!")]
        if "*" in test and "::" not in test:
            files = sorted(str(path.relative_to(root)) for path in root.glob(files[0]))
        if test.startswith("!"):
            found = {file: None for file in found if file not in files}
        else:
            found |= dict.fromkeys(files)
    return list(found)


def explain(
    result: Result, parts: Sequence[Machine], here: Mapping[str, str], options: Sequence[str]
) -> dict[str, str]:
    """What is known of each test that failed: it is run again on this machine as it is, then as each of the parts."""
    tests = [test for test in result.failed if test.startswith("tests")][:MOST_AGAIN]
    if not tests:
        return {}
    say(f"{result.machine}: {len(tests)} failing, run again on this machine as it is")
    with place_of(Machine(name="", tests=ALL)) as place:
        plain = run_tests(f"{result.machine}-again", place, tests, options)
    known = {test: "fails on this machine as it is, too" for test in plain.failed}
    rest = [test for test in tests if test not in known]
    fells: dict[str, list[str]] = {test: [] for test in rest}
    for part in parts if rest else ():
        say(f"{result.machine}: run again as {part.name}")
        for test in try_(replace(part, name=f"{result.machine}-{part.name}"), here, rest, options).failed:
            fells.setdefault(test, []).append(part.name)
    why = "passes on this machine as it is" + (", and under each change alone" if parts else "")
    return known | {test: f"fails as {', '.join(names)}" if names else why for test, names in fells.items()}


# ---------------------------------------------------------------- the command


def show(results: Sequence[Result], known: Mapping[str, Mapping[str, str]]) -> None:
    width = max(len(result.machine) for result in results)
    print(f"\n{'machine':<{width}}  passed  failed  seconds  CPU s")
    for result in results:
        numbers = (
            f"{result.passed:6}  {len(result.failed):6}  {result.seconds:7.0f}  {result.cpu:5.0f}"
            if result.is_run
            else " " * 30
        )
        print(f"{result.machine:<{width}}  {numbers}  {result.text}")
    for result in results:
        for test in result.failed:
            print(
                f"FAILED as {result.machine}: {test}: {known[result.machine].get(test, 'see its log in out/portable')}"
            )
    failed, ran = sum(bool(result.failed) for result in results), sum(result.is_run for result in results)
    print(
        f"portable: {failed} of {ran} machines failed" if failed else f"portable: none of {ran} machines failed",
        flush=True,
    )


def differences(machine: Machine) -> Iterator[str]:
    """What --list says of a machine."""
    yield from (f"{variable}={value!r}" for variable, value in machine.variables.items())
    if machine.hides:
        yield f"without {', '.join(machine.hides)}"
    if machine.as_user:
        yield "a user who is not root"
    if machine.python:
        yield f"Python {machine.python}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.portable", description="The tests, as other machines.")
    parser.add_argument("machines", nargs="*", metavar="MACHINE", help="all if left out")
    parser.add_argument("--quick", action="store_true", help="the whole fast lane once, with all changes together")
    parser.add_argument("--tests", nargs="+", default=[], metavar="TEST", help="these instead of those of the table")
    parser.add_argument("--seed", default="", help="of the hash seed and the order of tests; drawn if left out")
    parser.add_argument("--workers", default="auto", metavar="K", help="processes at a time; 0: in one")
    parser.add_argument("--list", action="store_true", help="the machines, and what is different in each")
    asked = parser.parse_args(arguments)
    seed = asked.seed or str(random.SystemRandom().randrange(10**6))
    machines = {machine.name: machine for machine in table(seed)}
    if unknown := set(asked.machines) - set(machines):
        parser.error(f"no machine {', '.join(sorted(unknown))}; --list has them")
    if asked.quick and asked.machines:
        parser.error("--quick is all machines at once; name machines or ask for it, not both")
    if asked.list:
        for name, machine in machines.items():
            print(name, *differences(machine))
        return 0
    parts = [machines[name] for name in AT_ONCE] if asked.quick else []
    wanted = [at_once(parts)] if parts else [machines[name] for name in asked.machines or machines]
    options = ["-n", asked.workers, *(() if asked.workers == "0" else ("--maxprocesses", "8", "--dist", "worksteal"))]
    say(f"--seed {seed}")
    with place_of(Machine(name="", tests=ALL)) as place:
        here = look(place)
    results: list[Result] = []
    known: dict[str, dict[str, str]] = {}
    for machine in wanted:
        result = try_(machine, here, asked.tests, options)
        results.append(result)
        say(f"{result.machine}: {len(result.failed)} failed, {result.passed} passed" if result.is_run else
            f"{result.machine}: {result.text}")  # fmt: skip
        known[machine.name] = explain(result, parts, here, options) if result.failed else {}
    show(results, known)
    if not any(result.is_run for result in results):
        print("portable: no machine was run, so nothing was tested", flush=True)
        return 1
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
