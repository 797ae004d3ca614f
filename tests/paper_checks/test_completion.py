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

from paper_checks import experiments
from paper_checks.claims.sources import sources
from paper_checks.cli import app, options
from paper_checks.experiments.scale import SCALES
from paper_checks.lowering import trials
from paper_checks.papers.registry import claims
from sims import measure as sims_measure
from sims.model import ACTIVATIONS as BUILT
from sims.training import train as sims_train
from tests.command import told
from theory.moments import ACTIVATIONS
from theory.optimizers import MIXED, OPTIMIZERS
from theory.rules.selection import SELECTIONS
from theory.schemes import SCHEMES
from theory.stack import ARCHITECTURES, PLACEMENTS, NormKind
from theory.tables import SMALL_TABLES


def completed(line: str) -> list[str]:
    """What bash is told where TAB is pressed at the end of a line. How bash asks is tested with the README's setup."""
    words = shlex.split(line)
    at = len(words) if line.endswith(" ") else len(words) - 1
    return told(_DEPTHLAW_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(at)).split()


EXPECTED: dict[str, Iterable[str]] = {
    "predict --scheme ": SCHEMES,
    "predict --scheme su-": [name for name in SCHEMES if name.startswith("su-")],
    "schemes su-": [name for name in SCHEMES if name.startswith("su-")],
    "measure --optimizer s": ["sgd", "signsgd", "sophia"],
    "predict --attention --arch e": ["encoder", "encoder-decoder"],
    "predict --norm p": ["post", "pre", "peri"],
    "predict --activation ": options.names(options.ANY_ACTIVATION),
    "measure --activation s": ["silu", "swiglu"],
    "predict --norm-kind ": ["layernorm", "rmsnorm"],
    "predict --readout ": ["last", "sum"],
    "predict --loss ": ["logit", "ce"],
    "measure --device c": ["cpu", "cuda"],
    "measure --dtype ": sims_measure.DTYPES,
    "rule --norm ": ["post", "pre", "sub"],
    "rule --select l": ["lambda-one"],
    "rule --activation g": ["gelu"],
    "rule --norm-kind r": ["rmsnorm"],
    "tables --only ": [*SMALL_TABLES, "cross"],
    "tables --activation g": ["gelu"],
    "verify DN-01 DN-0": [id_ for id_ in claims() if id_.startswith("DN-0")],
    "explain LI-": [id_ for id_ in claims() if id_.startswith("LI-")],
    "verify --source ": sources(),
    "train --scheme post-ln,post": ["post-ln,post-ln-init"],
    "train --optimizer adam,l": ["adam,lion", "adam,lars", "adam,lamb"],
    "train --shape v": ["vit", "vit-masked"],
    "train --schedule c": ["constant", "cosine"],
    "train --precision b": ["bfloat16"],
    "experiment ": experiments.NAMES,
    "experiment warmup --scale ": SCALES,
    "ver": ["verify"],
}


@pytest.mark.parametrize("line", EXPECTED)
def test_tab_completes_values(line: str) -> None:
    assert completed(f"depthlaw {line}") == list(EXPECTED[line])


def test_nothing_is_offered_where_nothing_fits() -> None:
    assert completed("depthlaw predict --scheme nonesuch") == []
    assert completed("depthlaw predict --plot ") == []  # bash then offers files


def test_completion_imports_nothing_heavy_and_is_quick() -> None:
    """Quick: in processor time, beside the import of typer alone, whatever the machine is and else does."""
    code = """
import os, sys, time
start = time.process_time()
import typer
typer_alone = time.process_time() - start
os.environ.update(_DEPTHLAW_COMPLETE="complete_bash", COMP_WORDS="depthlaw explain ", COMP_CWORD="2")
sys.argv = ["depthlaw"]
from paper_checks.cli.app import main
try:
    main()
except SystemExit:
    pass
heavy = [name for name in ("sympy", "torch", "numpy", "matplotlib") if name in sys.modules]
assert not heavy, heavy
assert time.process_time() < 10 * typer_alone, (time.process_time(), typer_alone)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == list(claims())


def test_zsh_is_told_what_a_claim_says() -> None:
    printed = told(_DEPTHLAW_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="depthlaw explain S")
    lines = [line for line in printed.splitlines() if line.strip() != "))'"]
    wanted = [(id_, one.expected.value) for id_, one in claims().items() if id_.startswith("S")]
    assert len(lines) == len(wanted), "a line each: a text that is too long would be broken"
    assert all(f'"{id_}":"{verdict}\\\\: ' in line for line, (id_, verdict) in zip(lines, wanted, strict=True))


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
        options.POST_LN_INIT: [trials.POST_LN_INIT],
    }
    for text, names in known.items():
        assert sorted(options.names(text)) == sorted(names), text
    assert set(options.names(options.SELECTIONS)) < set(SELECTIONS)  # the others are alternatives, not selections
    assert options.schemes() == list(SCHEMES)
    assert [id_ for id_, _ in options.one_claim("")] == list(claims())
    assert options.one_source("") == list(sources())


def test_what_cannot_be_read_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TABLES", "_CLAIMS", "_SOURCES"):
        monkeypatch.setattr(options, name, tmp_path / "absent")
    assert options.schemes() == options.one_table("") == options.one_source("") == options.one_claim("") == []
    (tmp_path / "broken").write_text("{", encoding="utf-8")
    monkeypatch.setattr(options, "_TABLES", tmp_path / "broken")
    assert options.schemes() == []


# ---------------------------------------------------------------- examples

GROUP = get_command(app.app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands
ALL = [(name, example) for name, listed in app.EXAMPLES.items() for example in listed]
SLOW = ("tables", "train", "report", "verify", "measure", "rule")
"""Tables are derived anew while theory is being changed; what the others do has tests of its own, and the README runs
``verify`` of the same claims."""
QUICK = [listed[0] for name, listed in app.EXAMPLES.items() if name not in SLOW]


def reads(example: str) -> bool:
    """Whether the command line takes it: its command, options and their values."""
    name, *arguments = shlex.split(example)
    try:
        COMMANDS[name].make_context(name, arguments)
    except (app.ClickError, options.BadInputError):
        return False
    return True


def test_every_command_has_examples_in_its_help() -> None:
    assert set(COMMANDS) == set(app.EXAMPLES)
    for name, command in COMMANDS.items():
        assert isinstance(command, app.Command), "which shows them"
        assert len(app.EXAMPLES[name]) >= 3


def pasted(shown: str) -> list[str]:
    """The depthlaw commands that bash runs where the lines below the last panel of a help are pasted into it, one in a
    line, their words as bash understands them."""
    _, _, below = shown.rpartition("\u256f\n")
    commands = re.sub(r"^\S.*:$", "", below, flags=re.MULTILINE)
    function = r"""depthlaw() { printf '%s\0' depthlaw "$@"; printf '\n'; }"""
    bash = ["bash", "--norc", "-c", f"{function}\n{commands}"]
    result = subprocess.run(bash, capture_output=True, text=True, check=True)
    assert not result.stderr, result.stderr
    return [shlex.join(line.split("\0")[:-1]) for line in result.stdout.splitlines()]


def rendered(*name: str) -> str:
    shown = told(*name, "--help", COLUMNS="80")
    assert max(map(len, shown.splitlines())) <= 80
    return shown


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_pasted_from_a_help_in_80_columns_is_its_examples(name: str) -> None:
    assert pasted(rendered(name)) == [f"depthlaw {example}" for example in app.EXAMPLES[name]]


def test_what_is_pasted_from_the_first_help_is_what_to_begin_with() -> None:
    first = [app.EXAMPLES[name][0] for name in ("rule", "predict", "measure")]
    wanted = [*first, "explain S1-34", "--install-completion"]
    assert pasted(rendered()) == [f"depthlaw {one}" for one in wanted]


@pytest.mark.parametrize(("name", "example"), ALL)
def test_an_example_is_of_its_command_and_can_be_read(
    name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert example.startswith(f"{name} ")
    assert reads(example)
    assert set(re.findall(r"\b[A-Z]\w-\d+", example)) <= set(claims())


@pytest.mark.parametrize("example", QUICK)
def test_the_first_example_runs(example: str) -> None:
    assert told(*shlex.split(example)).strip()


def test_help_begins_with_what_a_user_does_first() -> None:
    shown = told("--help")
    places = [shown.index(f"│ {name} ") for name in ("rule", "predict", "tables", "measure", "train", "verify")]
    assert places == sorted(places)
    assert f"depthlaw {app.EXAMPLES['rule'][0]}" in shown
