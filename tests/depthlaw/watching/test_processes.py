"""A run over two processes ends in the same bits with a watch and without; what a watch cannot read it says once."""

import json
import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import torch

from depthlaw.watching.record import Run

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes have left."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "tests.depthlaw.watching.two_processes", folder]
    there = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "2"}
    ranks = [Popen(command, cwd=ROOT, env=there | {"RANK": str(rank)}, stderr=PIPE, text=True) for rank in range(2)]
    said = [process.communicate()[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    return folder


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_end_in_the_same_bits(kind: str, folder: Path) -> None:
    ends = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
    watched, plain = ([end[f"{kind}, {is_watched}"] for end in ends] for is_watched in (True, False))
    for one in (*watched, plain[1]):
        assert all(torch.equal(one[name], value) for name, value in plain[0].items())


def test_the_first_process_of_ddp_watches(folder: Path) -> None:
    run = Run.read(folder / "ddp.jsonl")
    assert [look.step for look in run.looks] == [0, 1, 2]
    assert {"q", "k", "v", "out", "fc1", "fc2"} < run.looks[-1].roles.keys()
    assert run.header.module == "GPT"


def test_of_fsdp_one_line_says_that_it_cannot_be_read(folder: Path) -> None:
    assert not (folder / "fsdp.jsonl").exists()
    lines = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert lines == [
        [
            "depthlaw: the watch has ended, the run goes on: its parameters are sharded (FSDP, tensor parallel, "
            "ZeRO-3), which a watch cannot read"
        ],
        [],
    ]
