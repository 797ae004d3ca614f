"""``depthlaw train``: what it refuses, in one line and before anything is trained."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from paper_checks.cli import running, train
from paper_checks.lowering import trials
from paper_checks.pages import loss_plots
from sims import ensemble
from sims.training import sweep
from sims.training.train import TrainResult
from tests.command import told
from tests.paper_checks.train_command import ONE, Command, Counted, in_this_process


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    monkeypatch.setattr(trials, "execute", found)
    monkeypatch.setattr(sweep, "pool", in_this_process)
    return found


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


_START = "--scheme pre-ln --layers 1 --learning-rate 1e-3"
REFUSED: dict[str, tuple[str, str]] = {
    "scheme": ("--scheme postln --layers 1 --learning-rate 1e-3", "did you mean post-ln"),
    "a comma too many": ("--scheme post-ln, --layers 1 --learning-rate 1e-3", "--scheme wants names"),
    "no layers": ("--scheme pre-ln --layers 0 --learning-rate 1e-3", "--layers must be a whole number from 1 to 10000"),
    "many layers": ("--scheme pre-ln --layers 10001 --learning-rate 1", "--layers must be a whole number from 1"),
    "no rate": ("--scheme pre-ln --layers 1 --learning-rate 0", "--learning-rate is a positive number"),
    "not a rate": ("--scheme pre-ln --layers 1 --learning-rate fast", "--learning-rate must be a number"),
    "optimizer": (f"{_START} --optimizer adm", "did you mean adam"),
    "shape": (f"{_START} --shape bart", "shape is one of gpt"),
    "heads": (f"{_START} --heads 3", "--width 32 is not a multiple of --heads 3"),
    "width": (f"{_START} --width -1", "--width must be a whole number from 1"),
    "warmup": (f"{_START} --warmup 201", "--warmup is from 0 to --steps, 200, not 201"),
    "schedule": (f"{_START} --schedule step", "schedule is one of"),
    "precision": (f"{_START} --precision float16", "precision is one of"),
    "weight decay": (f"{_START} --weight-decay -1", "--weight-decay is at least 0"),
    "clip": (f"{_START} --clip 0", "--clip is positive"),
    "text with vit": (f"{_START} --shape vit --text a.txt", "text belongs to gpt and bert, not to vit"),
    "no text": (f"{_START} --text there-is-none.txt", "there-is-none.txt cannot be read"),
    "pairs with gpt": (f"{_START} --parallel a b", "parallel belongs to nmt, not to gpt"),
    "decoder of gpt": (f"{_START} --decoder-layers 1", "--decoder-layers belongs to the shape nmt"),
    "unpaired": (f"{_START} --shape nmt --decoder-layers 1,2", "--layers has 1 entries and --decoder-layers 2"),
    "no encoder-decoder": ("--scheme gpt2 --shape nmt --layers 1 --learning-rate 1", "prints no encoder-decoder"),
    "measured too late": (f"{_START} --measure-at 201", "--measure-at has steps from 0 to --steps, 200, not 201"),
    "no budget": (f"{_START} --budget 0", "--budget is a positive number"),
    "no workers": (f"{_START} --workers 0", "--workers must be a whole number from 1"),
    "workers and a cluster": (f"{_START} --workers 1 --scheduler tcp://127.0.0.1:1", "one of --workers and"),
    "plot": (f"{_START} --plot a.txt", "--plot wants a file that ends in"),
    "device": (f"{_START} --device tpu", "unknown device 'tpu'"),
    "store": (f"{_START} --store {Path(__file__)}", f"--store: {Path(__file__)}: "),
    "no folder": (f"{_START} --store there-is-none/a.sqlite", "--store: there is no folder there-is-none"),
    "no name of a store": (f"{_START} --store=", "--store wants the name of a file, not ''"),
    "no name of a text": (f"{_START} --text=", "--text wants the name of a file, not ''"),
    "many tokens": (f"{_START} --tokens 4097", "--tokens must be a whole number from 1 to 4096, not 4097"),
    "a start of no warmup": (f"{_START} --warmup-from 0.1", "give --warmup too"),
    "too wide": (f"{_START} --width 1000000", "1 layers of width 1000000 with 16 x 32 tokens take 2"),
    "a large batch": (f"{_START} --batch 1000000 --tokens 4096", "1000000 x 4096 tokens take"),
    "many images": (f"{_START} --shape vit --batch 1000000 --width 100000", "1000000 x 17 tokens take"),
    "checkpoints": (f"{_START} --checkpoint-every 0", "--checkpoint-every must be a whole number from 1"),
    "too many": (f"{_START} --seeds 100001", "the grid has 100001 runs; at most 100000 are allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line(case: str, command: Command, counted: Counted) -> None:
    options, text = REFUSED[case]
    assert text in command.refusal(options)
    assert not counted.named
    assert Path(__file__).read_text(encoding="utf-8").startswith('"""``depthlaw train``'), (
        "what is no store stays as it is"
    )


def check_fields_are_options(command: Command) -> None:
    """Whole words alone: a file may be called so."""
    assert "--warmup is from 0 to --steps" in command.refusal(f"{_START} --warmup 201")
    assert "there/num_steps.txt cannot be read" in command.refusal(f"{_START} --text there/num_steps.txt")


@pytest.mark.parametrize("fields", [None, "(?!)", "(num_steps|warmup_steps)"])
def test_fields_are_named_by_their_options(
    fields: str | None, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fields is None:
        return check_fields_are_options(command)
    monkeypatch.setattr(train, "_FIELD", re.compile(fields))
    with pytest.raises(AssertionError):
        check_fields_are_options(command)


# ---------------------------------------------------------------- what is there already


def check_a_row_that_does_not_fit(command: Command, counted: Counted) -> None:
    """Before anything is trained."""
    command.answer(ONE)
    with closing(sqlite3.connect(command.store)) as database, database:
        (name,) = database.execute("SELECT key FROM runs").fetchone()
        database.execute("UPDATE runs SET result = '{\"outcome\": 1}'")
    line = command.refusal(f"{ONE} --seeds 2", "--text", command.text)
    text = f"depthlaw: {command.store}: run {name[:12]} does not fit: outcome: Input should be a valid string"
    assert line == text and len(counted.named) == 1
    with closing(sqlite3.connect(command.store)) as database, database:
        database.execute("UPDATE runs SET result = 'garbage'")
    line = command.refusal(f"{ONE} --seeds 2", "--text", command.text)
    assert f"{command.store}: run {name[:12]} does not fit: " in line


def test_a_row_that_does_not_fit_is_said_in_one_line(command: Command, counted: Counted) -> None:
    check_a_row_that_does_not_fit(command, counted)


def test_a_raw_error_is_found(command: Command, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "fitted", lambda kept, name, result: TrainResult.model_validate(result))
    with pytest.raises(AssertionError):
        check_a_row_that_does_not_fit(command, counted)


def check_memory_is_asked_for_what_is_run(command: Command, counted: Counted, patch: pytest.MonkeyPatch) -> None:
    """What was trained elsewhere is shown here too."""
    with patch.context() as little:
        little.setattr(ensemble, "available_bytes", lambda device: 1000)
        command.refusal(ONE, "--text", command.text)
        assert not counted.named
    command.answer(ONE)
    patch.setattr(ensemble, "available_bytes", lambda device: 1000)
    command.answer(ONE)
    assert len(counted.named) == 1


def test_memory_is_asked_for_what_is_run(command: Command, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    check_memory_is_asked_for_what_is_run(command, counted, monkeypatch)


def test_a_command_that_does_not_ask_is_found(
    command: Command, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "check_memory", lambda trials, device: None)
    with pytest.raises(AssertionError):
        check_memory_is_asked_for_what_is_run(command, counted, monkeypatch)


PLACES: dict[str, tuple[bytes, bool]] = {
    "a.png": (b"\x89PNG\r\n", True),
    "a.pdf": (b"%PDF-1.4", True),
    "a.svg": (b"\xef\xbb\xbf\n<svg>", True),
    "b.svg": (b"", True),
    "b.png": (b"dear diary", False),
    "b.pdf": (b"<?xml", False),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_plot_overwrites_plots_alone(name: str, tmp_path: Path) -> None:
    content, is_plot = PLACES[name]
    (tmp_path / name).write_bytes(content)
    loss_plots.check_place(tmp_path / f"none{Path(name).suffix}")
    with nullcontext() if is_plot else pytest.raises(ValueError, match="is there and no p"):
        loss_plots.check_place(tmp_path / name)


def test_the_command_looks_where_the_plot_goes(command: Command, counted: Counted) -> None:
    target = command.folder / "diary.png"
    target.write_text("dear diary", encoding="utf-8")
    line = command.refusal(ONE, "--plot", target, "--text", command.text)
    assert f"--plot: {target} is there and no png" in line
    assert not counted.named and target.read_text(encoding="utf-8") == "dear diary"


def test_help_says_what_sizes_are_of() -> None:
    text = " ".join(told("train", "--help").replace("│", " ").split())
    for part in ("a multiple of --heads", "Bytes (or frames) of a sequence", "one that is killed begins again"):
        assert part in text
