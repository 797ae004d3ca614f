"""``depthlaw train``: what it refuses, in one line and before anything is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from paper_checks import cli, trials
from sims import sweep
from tests.paper_checks.train_command import ONE, Command, Counted, in_this_process, ran, refuse


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
    "heads": (f"{_START} --heads 3", "d_model 32 is not a multiple of num_heads 3"),
    "width": (f"{_START} --width -1", "--width must be a whole number from 1"),
    "warmup": (f"{_START} --warmup 201", "warmup_steps is from 0 to num_steps, 200, not 201"),
    "schedule": (f"{_START} --schedule step", "schedule is one of"),
    "precision": (f"{_START} --precision float16", "precision is one of"),
    "weight decay": (f"{_START} --weight-decay -1", "weight_decay is at least 0"),
    "clip": (f"{_START} --clip 0", "clip_norm is positive"),
    "text with vit": (f"{_START} --shape vit --text a.txt", "text belongs to gpt and bert, not to vit"),
    "no text": (f"{_START} --text there-is-none.txt", "there-is-none.txt cannot be read"),
    "pairs with gpt": (f"{_START} --parallel a b", "parallel belongs to nmt, not to gpt"),
    "decoder of gpt": (f"{_START} --decoder-layers 1", "num_decoder_layers belongs to the shape nmt"),
    "unpaired": (f"{_START} --shape nmt --decoder-layers 1,2", "--layers has 1 entries and --decoder-layers 2"),
    "no encoder-decoder": ("--scheme gpt2 --shape nmt --layers 1 --learning-rate 1", "prints no encoder-decoder"),
    "measured too late": (f"{_START} --measure-at 201", "measure_at has steps from 0 to num_steps, 200, not 201"),
    "no budget": (f"{_START} --budget 0", "--budget is a positive number"),
    "no workers": (f"{_START} --workers 0", "--workers must be a whole number from 1"),
    "workers and a cluster": (f"{_START} --workers 1 --scheduler tcp://127.0.0.1:1", "one of --workers and"),
    "plot": (f"{_START} --plot a.txt", "--plot wants a file that ends in"),
    "device": (f"{_START} --device tpu", "unknown device 'tpu'"),
    "store": (f"{_START} --store {Path(__file__)}", "test_train.py"),
    "no folder": (f"{_START} --store there-is-none/a.sqlite", "--store: there is no folder there-is-none"),
    "checkpoints": (f"{_START} --checkpoint-every 0", "--checkpoint-every must be a whole number from 1"),
    "too many": (f"{_START} --seeds 100001", "the grid has 100001 runs; at most 100000 are allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line(
    case: str, command: Command, counted: Counted, capsys: pytest.CaptureFixture[str]
) -> None:
    options, text = REFUSED[case]
    refuse(command, options)
    said = capsys.readouterr()
    assert not said.out and not counted.named
    (line,) = said.err.splitlines()
    assert line.startswith("depthlaw: ") and text in line
    assert Path(__file__).read_text().startswith('"""``depthlaw train``'), "what is no store stays as it is"


