"""TAB completes values, by the protocol that shells speak; names are those of the project; every --help has examples
that can be run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from depthlaw.cli import app
from depthlaw.cli.shared import options
from depthlaw.network import trials
from depthlaw.paper_checks import experiments
from depthlaw.paper_checks.claims.sources import sources
from depthlaw.paper_checks.experiments.scale import SCALES
from depthlaw.paper_checks.pages.drawing import SUFFIXES
from depthlaw.paper_checks.papers.registry import claims
from depthlaw.sims import measure as sims_measure
from depthlaw.sims.model import ACTIVATIONS as BUILT
from depthlaw.sims.training import train as sims_train
from depthlaw.theory.moments import ACTIVATIONS
from depthlaw.theory.optimizers import MIXED, OPTIMIZERS
from depthlaw.theory.rules.selection import SELECTIONS
from depthlaw.theory.schemes import SCHEMES
from depthlaw.theory.stack import ARCHITECTURES, PLACEMENTS, NormKind
from depthlaw.watching.compare import BY
from tests.command import told


def completed(line: str) -> list[str]:
    """What bash is told where TAB is pressed at the end of a line. How bash asks is tested with the README's setup."""
    words = shlex.split(line)
    at = len(words) if line.endswith(" ") else len(words) - 1
    return told(_DEPTHLAW_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(at)).split()


EXPECTED: dict[str, Iterable[str]] = {
    "predict --scheme ": SCHEMES,
    "predict --activation ": options.names(options.ANY_ACTIVATION),
    "predict --plot ": [],  # bash then offers files
    "rule --select l": ["lambda-one"],
    "verify DN-01 DN-0": [id_ for id_ in claims() if id_.startswith("DN-0")],
    "verify --source ": sources(),
    "train --scheme post-ln,post": ["post-ln,post-ln-init"],
    "train --optimizer adam,l": ["adam,lion", "adam,lars", "adam,lamb"],
}


@pytest.mark.parametrize("line", EXPECTED)
def test_tab_completes_values(line: str) -> None:
    assert completed(f"depthlaw {line}") == list(EXPECTED[line])


def test_completion_imports_nothing_heavy() -> None:
    code = """
import os, sys
os.environ.update(_DEPTHLAW_COMPLETE="complete_bash", COMP_WORDS="depthlaw explain ", COMP_CWORD="2")
sys.argv = ["depthlaw"]
from depthlaw.cli.app import main
try:
    main()
except SystemExit:
    pass
heavy = [name for name in ("sympy", "torch", "numpy", "matplotlib") if name in sys.modules]
assert not heavy, heavy
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == sorted(claims())


# ---------------------------------------------------------------- names, in step with what knows them


def test_names_are_those_of_theory_and_sims() -> None:
    known: dict[str, Iterable[str]] = {
        options.OPTIMIZERS: [*OPTIMIZERS, *MIXED],
        options.ARCHITECTURES: ARCHITECTURES,
        options.PLACEMENTS: PLACEMENTS,
        options.NORM_KINDS: (kind.value for kind in NormKind),
        options.ACTIVATIONS: ACTIVATIONS,
        options.ANY_ACTIVATION: BUILT,
        options.DEVICES: sims_measure.DEVICES,
        options.DTYPES: sims_measure.DTYPES,
        options.PRECISIONS: sims_train.PRECISIONS,
        options.SCHEDULES: sims_train.SCHEDULES,
        options.SHAPES: trials.SHAPES,
        options.EXPERIMENTS: experiments.NAMES,
        options.SCALES: SCALES,
        options.WATCHED_BY: BY,
        options.POST_LN_INIT: [trials.POST_LN_INIT],
    }
    for text, names in known.items():
        assert sorted(options.names(text)) == sorted(names), text
    assert set(options.names(options.SELECTIONS)) < set(SELECTIONS)  # the others are alternatives, not selections
    assert options.schemes() == list(SCHEMES) and options.FIGURES == SUFFIXES
    assert sorted(id_ for id_, _ in options.one_claim("")) == sorted(claims())
    assert options.one_source("") == list(sources())


# ---------------------------------------------------------------- examples

GROUP = get_command(app.app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


def pasted(*name: str) -> list[str]:
    """The depthlaw commands that bash runs where the lines below the last panel of a help, in 80 columns, are pasted
    into it, one in a line, their words as bash understands them."""
    shown = told(*name, "--help", COLUMNS="80")
    assert max(map(len, shown.splitlines())) <= 80
    commands = re.sub(r"^\S.*:$", "", shown.rpartition("\u256f\n")[2], flags=re.MULTILINE)
    function = r"""depthlaw() { printf '%s\0' depthlaw "$@"; printf '\n'; }"""
    bash = ["bash", "--norc", "-c", f"{function}\n{commands}"]
    result = subprocess.run(bash, capture_output=True, text=True, check=True)
    assert not result.stderr
    return [shlex.join(line.split("\0")[:-1]) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_pasted_from_a_help_is_its_examples_which_can_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their commands, options and values; and the claims that they name there are."""
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert len(app.EXAMPLES[name]) >= 3
    assert pasted(name) == [f"depthlaw {example}" for example in app.EXAMPLES[name]]
    for example in app.EXAMPLES[name]:
        command, *arguments = shlex.split(example)
        COMMANDS[command].make_context(command, arguments)
        assert command == name and set(re.findall(r"\b[A-Z]\w-\d+", example)) <= set(claims())
