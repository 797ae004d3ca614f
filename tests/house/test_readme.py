"""The README's examples are run: each command succeeds, and where an output is printed there, it is that output; a line
of three dots stands for lines that are left out. What it names is there."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paper_checks.claims.claim import Claim, Kind, Verdict
from paper_checks.pages.why_figure import alt_text
from paper_checks.papers.registry import claims
from paper_checks.routes.printed_tables import side_by_side
from paper_checks.verify.document import small_tables
from tests import once
from tests.command import DEPTHLAW, depthlaw, document, told
from tests.paper_checks.train_command import in_this_process
from theory.optimizers import OPTIMIZERS
from theory.schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PEERS = (ROOT / "paper_checks" / "PEERS.md").read_text(encoding="utf-8")


def examples(text: str) -> list[tuple[str, str]]:
    """(command, output printed after it) for each line of the console blocks that begins with $."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def is_shown(wanted: list[str], found: list[str]) -> bool:
    """Whether these lines are those that were printed, but for runs of lines that ``...`` stands for."""
    if not wanted:
        return not found
    if wanted[0] == "...":
        return any(is_shown(wanted[1:], found[start:]) for start in range(len(found) + 1))
    return bool(found) and wanted[0] == found[0] and is_shown(wanted[1:], found[1:])


def smaller(command: str) -> str:
    """The same asked about less, where it would take seconds; what is printed below it is not of this one."""
    if command == examples(README)[0][0]:
        return re.sub(r"(--layers \d+),\S+", r"\1", command)
    return re.sub(r"--steps \d+ --seeds \d+", "--steps 2 --seeds 1", command)


MEASURE = next(command for command, _ in examples(README) if "measure " in command)
SLOW = [command for command, _ in examples(README) if command == MEASURE or command != smaller(command)]
"""Of which the fast lane runs small ones."""
CASES = [pytest.param(*one, marks=[pytest.mark.slow] * (one[0] in SLOW), id=one[0]) for one in examples(README)]
CASES += [pytest.param(small, "", id=small) for one in SLOW if (small := smaller(one)) != one]


@pytest.mark.parametrize(("command", "output"), CASES)
def test_readme_command(command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process. What claims are found to be is asked once in a run of the tests."""

    program, *arguments = shlex.split(command)
    entries = {one: once.claim(one) for one in arguments if one in claims()}

    def checked(claim: Claim, with_mutants: bool, *_: object) -> dict[str, Any]:
        return entries[claim.id] | ({} if with_mutants else {"mutants": None})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no worker processes, which others test
    monkeypatch.setattr("sims.training.sweep.pool", in_this_process)
    monkeypatch.setattr("paper_checks.verify.document.check", checked)
    assert program in ("depthlaw", ".venv/bin/depthlaw")
    result = depthlaw(*arguments, COLUMNS="100")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if output:
        assert is_shown(plain(output), plain(result.stdout)), result.stdout
    if "--plot" in arguments:
        assert (tmp_path / arguments[arguments.index("--plot") + 1]).stat().st_size > 0


@pytest.mark.slow
def test_readme_s_first_command_in_a_process(tmp_path: Path) -> None:
    program, *arguments = shlex.split(examples(README)[0][0])
    assert program == ".venv/bin/depthlaw"
    result = subprocess.run([DEPTHLAW, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert (tmp_path / arguments[arguments.index("--plot") + 1]).stat().st_size > 0


def without_measured(line: str) -> str:
    """A line of ``measure`` but for its measured numbers; blanks and the lines of a table aside."""
    line = re.sub(r"measured \S+ \[.*?\]", "measured", line)
    cells = [" ".join(cell.split()) for cell in line.split("│")]
    return " ".join(re.sub(r"-?[\d.]+(e[+-]\d+)?", "#", cell) if re.search(r"[±\[]", cell) else cell for cell in cells)


def test_readme_measures_so() -> None:
    """``MEASURE`` with small and few networks: its lines, and what they say is predicted."""
    command, count = re.subn(r"--width \d+ --seeds \d+", "--width 16 --seeds 2", MEASURE)
    assert count == 1
    found = [without_measured(line) for line in told(*shlex.split(command)[1:], COLUMNS="100").splitlines()]
    wanted = [without_measured(line) for line in plain(dict(examples(README))[MEASURE]) if line != "..."]
    assert wanted and all(line in found for line in wanted), found


def test_what_is_predicted_is_compared() -> None:
    line = "│ 32 │ update │     21.33 │    22.55 ± 1 │ 1.057 [0.924, 1.190] │"
    assert without_measured(line) == without_measured("│ 32 │ update │ 21.33 │ 9e-10 ± 2e+01 │ -3 [-4.5, 1] │")
    for mutant in (line.replace("21.33", "21.34"), line.replace("update", "fc1"), line.replace(" ±", "")):
        assert without_measured(mutant) != without_measured(line)


def test_readme_has_examples_with_output() -> None:
    assert len(examples(README)) >= 4
    assert any(output for _, output in examples(README))


def test_examples_find_a_mutant() -> None:
    assert examples("```console\n$ depthlaw x\none\n```\n") == [("depthlaw x", "one\n")]
    assert plain("one  \n") != plain("two")
    lines = ["one", "two", "three", "four"]
    for shown in (
        lines,
        ["...", "four"],
        ["one", "..."],
        ["one", "...", "four"],
        ["...", "two", "...", "four"],
        ["..."],
    ):
        assert is_shown(shown, lines), shown
    for mutant in ([], ["one"], ["four"], ["...", "three"], ["two", "..."], ["...", "three", "...", "two", "..."]):
        assert not is_shown(mutant, lines), mutant


def failures(text: str) -> int:
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    tests = [doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0) for block in blocks]
    tests = [test for test in tests if test.examples]
    assert tests
    runner = doctest.DocTestRunner(verbose=False)
    return sum(runner.run(test, out=lambda _: None).failed for test in tests)


def test_readme_python() -> None:
    assert failures(README) == 0


def test_readme_python_finds_a_mutant() -> None:
    assert failures("```python\n>>> 1 + 1\n3\n```\n") == 1


def test_readme_s_setup_of_a_shell_works(tmp_path: Path) -> None:
    """The two lines as they stand, in a home of their own; then what TAB after them is answered."""
    (lines,) = re.findall(r"^```\n(source .*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    first, second = (line.partition("#")[0].strip() for line in lines.strip().splitlines())
    first = first.replace(".venv", shlex.quote(sys.prefix))
    tab = 'COMP_WORDS=(depthlaw explain S1-3); COMP_CWORD=2; _depthlaw_completion depthlaw; echo "${COMPREPLY[*]}"'
    script = f"{first} && {second} bash >&2 && . {tmp_path}/.bash_completions/depthlaw.sh && {{ {tab}; }}"
    settings = {"HOME": str(tmp_path), "PATH": os.defpath}
    result = subprocess.run(["bash", "-c", script], env=settings, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [f"S1-3{i}" for i in range(10)]
    bare = script.removeprefix(f"{first} && ")
    refused = subprocess.run(["bash", "-c", bare], env=settings, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode != 0


def test_readme_s_tokens_change_little() -> None:
    question = "predict --scheme pre-ln --optimizer adam --attention --layers 8 --tokens"
    said = re.search(
        r"Pre-LN of 8 layers under Adam has ([\d.]+) with `--tokens 4` and ([\d.]+) with 16", " ".join(README.split())
    )
    assert said is not None
    for tokens, printed in zip(("4", "16"), said.groups(), strict=True):
        assert f"{document(*question.split(), tokens)['rows'][0]['update']:.1f}" == printed


# --- what it names: files, numbers


def absent(text: str, root: Path = ROOT) -> list[str]:
    """Pictures and files in backticks that are not there; what commands write (``out/``) is none of them."""
    pictures = re.findall(r"\]\(([\w./-]+)\)", text)
    files = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:ipynb|md|py|cff|toml|svg))`", text)
    named = [name for name in (*pictures, *files) if name != "mine.svg"]
    return [name for name in named if not (root / name).is_file()]


def test_what_readme_names_is_there() -> None:
    assert absent(README) == []
    assert README.count(".ipynb`") == 9


def test_absent_finds_a_mutant(tmp_path: Path) -> None:
    (tmp_path / "there.md").touch()
    text = "![a\nb](figures/not.svg) `there.md` `notebooks/10_not.ipynb` `out/x.json`"
    assert absent(text, tmp_path) == ["figures/not.svg", "notebooks/10_not.ipynb"]


def counts(text: str) -> list[str]:
    """Every sentence that counts the verdicts: what `make verify` prints, and the generated list."""
    return re.findall(r"claims: (\d+ [A-Z]+(?:, \d+ [A-Z]+){2,})", text)


def test_readme_counts_verdicts_once() -> None:
    assert len(counts(README)) == 2
    assert len(set(counts(README))) == 1
    total = sum(int(number) for number in re.findall(r"\d+", counts(README)[0]))
    assert f"each of {total} claims" in README
    assert f"| {total} | - |" in PEERS


def test_counts_find_a_mutant() -> None:
    assert len(set(counts(README.replace("claims: 99", "claims: 98", 1)))) == 2


WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@cache
def wanted() -> list[str]:
    """What the README has to say, where it says how many there are of something, or what its picture shows."""
    every = claims().values()
    found = [one.expected for one in every]
    verdicts = ", ".join(f"{found.count(one)} {one.value}" for one in reversed(Verdict))
    used = [one.expected for one in every if one.kind is Kind.RESULT]
    results = ", ".join(f"{used.count(one)} {one.value}" for one in reversed(Verdict) if one in used)
    mutants = sum(len(part.mutants) for claim in every for part in claim.parts)
    compared = [row for row in side_by_side(small_tables(), every) if row["equal"] is not None]
    equal = sum(row["equal"] for row in compared)
    optimizers = WORDS[len(OPTIMIZERS)]
    return [
        f"![{alt_text()}](paper_checks/results/figures/why.svg)",
        f"each of {len(found)} claims",
        f"``` {len(found)} claims: {verdicts} {len(used)} results that people use: {results}. Found",
        f"All as expected: {len(found)} claims, {verdicts}. ",
        f"--> {len(found)} claims: {verdicts}. ",
        f"Mutants: {mutants} tried, {mutants} killed. ",
        f"Cells: {len(compared)} printed ones beside derived ones, {equal} equal.",
        f"{optimizers.capitalize()} optimizers; ",
        f"all {len(SCHEMES)} schemes under all {optimizers} optimizers",
        f"| rules by optimizer | {optimizers} |",
        f"| claims of papers, one by one | {len(found)} |",
    ]


def unsaid(text: str) -> list[str]:
    said = " ".join(text.split())
    return [one for one in wanted() if one not in said]


def test_readme_says_how_many_there_are() -> None:
    assert unsaid(README + PEERS) == []


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ("Mutants: 825 tried, 825", "Mutants: 999 tried, 999"),
        ("50 equal", "40 equal"),
        ("all 22 schemes", "all 31 schemes"),
        ("Twelve optimizers", "Twenty optimizers"),
        ("| twelve |", "| eleven |"),
        ("``\n143 claims: 99 CONFIRMED", "``\n143 claims: 98 CONFIRMED"),
        ("-->\n\n143 claims", "-->\n\n144 claims"),
        ("DeepNorm is flat", "DeepNorm grows"),
    ],
)
def test_unsaid_finds_a_mutant(right: str, other: str) -> None:
    assert right in README + PEERS
    assert unsaid((README + PEERS).replace(right, other, 1))
