"""The README's examples are run: each command succeeds, and where an output is printed there, it is that output; a line
of three dots stands for lines that are left out. What it names is there."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from depthlaw.paper_checks.claims.claim import Claim, Verdict
from depthlaw.paper_checks.experiments.best_rates import SCHEMES as BEST_SCHEMES
from depthlaw.paper_checks.pages import speed
from depthlaw.paper_checks.pages.training import after_start, runs, transfer
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.paper_checks.routes.training.best_rates import BestRates, is_flat, judged
from depthlaw.theory.optimizers import OPTIMIZERS
from depthlaw.theory.schemes import SCHEMES
from tests import once
from tests.command import depthlaw, document, told

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PEERS, AT_SCALE = ((ROOT / path).read_text(encoding="utf-8") for path in ("paper_checks/PEERS.md", "sims/README.md"))


def examples(text: str) -> list[tuple[str, str]]:
    """(command, output printed after it) for each line of the console blocks that begins with $."""
    commands = []
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            commands.append((command, output))
    return commands


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def is_shown(wanted: list[str], printed: list[str]) -> bool:
    """Whether these lines are those that were printed, but for runs of lines that ``...`` stands for."""
    if not wanted:
        return not printed
    if wanted[0] == "...":
        return any(is_shown(wanted[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and wanted[0] == printed[0] and is_shown(wanted[1:], printed[1:])


def smaller(command: str) -> str:
    """The same asked about less, where it would take seconds; what is printed below it is not of this one."""
    return re.sub(r"--steps \d+ --seeds \d+", "--steps 2 --seeds 1", command)


MEASURE = next(command for command, _ in examples(README) if "measure " in command)
SLOW = [command for command, _ in examples(README) if command == MEASURE or command != smaller(command)]
"""Of which the fast lane runs small ones."""
LONG = ("depthlaw explain", "depthlaw audit", "depthlaw advise")
"""Which take seconds: in the wide lane."""
CASES = [
    pytest.param(
        *example,
        marks=[pytest.mark.slow] * (example[0] in SLOW) + [pytest.mark.wide] * example[0].startswith(LONG),
        id=example[0],
    )
    for example in examples(README)
]
CASES += [pytest.param(small, "", id=small) for command in SLOW if (small := smaller(command)) != command]


@pytest.mark.parametrize(("command", "output"), CASES)
def test_readme_command(command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process. What claims are found to be is asked once in a run of the tests."""

    program, *arguments = shlex.split(command)
    entries = {argument: once.claim(argument) for argument in arguments if argument in claims()}

    def checked(claim: Claim, with_mutants: bool, *_: object) -> dict[str, Any]:
        return entries[claim.id] | ({} if with_mutants else {"mutants": None})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no worker processes, which others test
    monkeypatch.setattr("depthlaw.sims.training.sweep.pool", lambda num_workers, **_: ThreadPoolExecutor(1))
    monkeypatch.setattr("depthlaw.paper_checks.verify.document.check", checked)
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", (40,))  # what is predicted far off is not among the lines shown
    assert program in ("depthlaw", ".venv/bin/depthlaw")
    (tmp_path / "mymodel.py").write_text(MODEL, encoding="utf-8")
    result = depthlaw(*arguments, COLUMNS="100")
    assert result.returncode == (1 if arguments[0] == "audit" else 0), result.stderr  # it finds faults
    assert result.stdout.strip()
    if output:
        assert is_shown(plain(output), plain(result.stdout)), result.stdout
    if "--plot" in arguments:
        assert (tmp_path / arguments[arguments.index("--plot") + 1]).stat().st_size > 0


(MODEL,) = re.findall(r"^```python\n(# mymodel.py\n.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
"""What the audit is shown on."""


def without_measured(line: str) -> str:
    """A line of ``measure`` but for its measured numbers; blanks and the lines of a table aside."""
    line = re.sub(r"measured \S+ \[.*?\]", "measured", line)
    cells = [" ".join(cell.split()) for cell in line.split("│")]
    return " ".join(re.sub(r"-?[\d.]+(e[+-]\d+)?", "#", cell) if re.search(r"[±\[]", cell) else cell for cell in cells)


def test_readme_measures_so() -> None:
    """``MEASURE`` with small and few networks: its lines, and what they say is predicted."""
    command, count = re.subn(r"--width \d+ --seeds \d+", "--width 16 --seeds 2", MEASURE)
    assert count == 1
    printed = [without_measured(line) for line in told(*shlex.split(command)[1:], COLUMNS="100").splitlines()]
    wanted = [without_measured(line) for line in plain(dict(examples(README))[MEASURE]) if line != "..."]
    assert wanted and all(line in printed for line in wanted), printed


def test_readme_python() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    tests = [doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0) for block in blocks]
    runner = doctest.DocTestRunner(verbose=False)
    wrong: list[str] = []
    for test in tests:
        runner.run(test, out=wrong.append)
    assert runner.tries > 0 and not wrong, "".join(wrong)


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


def test_readme_s_tokens_change_little() -> None:
    question = "predict --scheme pre-ln --optimizer adam --attention --layers 8 --tokens"
    said = re.search(
        r"Pre-LN of 8 layers under Adam has ([\d.]+) with `--tokens 4` and ([\d.]+) with 16", " ".join(README.split())
    )
    assert said is not None
    for tokens, printed in zip(("4", "16"), said.groups(), strict=True):
        assert f"{document(*question.split(), tokens)['rows'][0]['update']:.1f}" == printed


# --- what it names: files, numbers


def test_what_readme_names_is_there() -> None:
    """Its pictures and the files in backticks; what commands write is none of them."""
    pictures = re.findall(r"\]\(([\w./-]+)\)", README)
    files = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:ipynb|md|py|cff|toml|svg))`", README)
    assert [name for name in (*pictures, *files) if name != "mine.svg" and not (ROOT / name).is_file()] == []


WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def test_readme_says_how_many_there_are() -> None:
    """Of claims, verdicts, schemes and optimizers."""
    every = claims().values()
    expected = [claim.expected for claim in every]
    verdicts = ", ".join(f"{expected.count(verdict)} {verdict.value}" for verdict in reversed(Verdict))
    optimizers = WORDS[len(OPTIMIZERS)]
    wanted = [
        f"each of {len(expected)} claims",
        f"--> {len(expected)} claims: {verdicts}. ",
        f"{optimizers.capitalize()} optimizers, ",
        f"all {len(SCHEMES)} schemes under all {optimizers} optimizers",
        f"| rules by optimizer | {optimizers} |",
        f"| claims of papers, one by one | {len(expected)} |",
    ]
    said = " ".join((README + PEERS).split())
    assert [sentence for sentence in wanted if sentence not in said] == []


@pytest.mark.wide
def test_readme_says_what_one_gains() -> None:
    said = " ".join(transfer.in_readme(runs.records()["transfer"]).split())
    assert said and said in " ".join(README.split())


def test_readme_says_of_which_blocks_depth_cost_loss() -> None:
    """At both widths, and how the best rate went."""
    records = runs.records()
    for one, scale in ((records["best-rates"].book, "small"), (records[runs.BEST_WIDE].book, "wide")):
        founds = {scheme: BestRates.of(scheme, one, scale) for scheme in BEST_SCHEMES}
        rose = {name for name, found in founds.items() if (change := found.loss_change) and (change.low or 0) > 0}
        assert rose == {name for name in BEST_SCHEMES if not is_flat(name)} | {"su-pre-adam"}
        answers = {name: judged(name, found.measured) for name, found in founds.items()}
        known = [name for name, found in founds.items() if found.measured is not None]
        assert all(answers[name] is False for name in known if not is_flat(name))
        stays = [name for name in known if is_flat(name) and answers[name]]
        assert stays == (["depth-mup"] if scale == "wide" else ["depth-mup", "completep"])


def test_readme_says_how_the_best_rate_moves_in_longer_runs() -> None:
    said = transfer.elsewhere_in_readme(runs.records()["elsewhere"])
    assert said and said in " ".join(README.split())


def test_readme_says_for_how_long_the_first_step_is_like_the_later_ones() -> None:
    said = after_start.in_readme(runs.records()["after-start"])
    assert said and f"**How long it holds.** {said}" in " ".join(README.split())


def test_the_page_on_scale_says_how_fast_it_is() -> None:
    assert speed.in_readme(speed.kept()) in " ".join(AT_SCALE.split())
