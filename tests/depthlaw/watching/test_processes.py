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
pytestmark = pytest.mark.slow
"""Two processes that train and compile take a while; what each of them does alone is in ``test_watch``."""


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes have left."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "tests.depthlaw.watching.two_processes", folder]
    there = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "2"}
    ranks = [Popen(command, cwd=ROOT, env=there | {"RANK": str(rank)}, stderr=PIPE, text=True) for rank in range(2)]
    try:
        said = [process.communicate(timeout=90)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()  # one that waits for the other for ever
    assert [process.returncode for process in ranks] == [0, 0], said
    return folder


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "compiled", "listed"])
def test_two_processes_end_in_the_same_bits(kind: str, folder: Path) -> None:
    ends = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
    plain = ends[0][f"{kind}, False"]
    for one in (end[name] for end in ends for name in end if name.startswith(f"{kind}, ")):
        assert all(torch.equal(one[name], value) for name, value in plain.items())


def test_the_first_process_watches(folder: Path) -> None:
    """FSDP2 trains the model that DDP trains, and the whole of it is looked at."""
    ddp, fsdp = (Run.read(folder / f"{kind}.jsonl") for kind in ("ddp", "fsdp"))
    assert [look.step for look in ddp.looks] == [look.step for look in fsdp.looks] == [0, 1, 2, 3]
    assert {"q", "k", "v", "out", "fc1", "fc2"} < ddp.looks[-1].roles.keys()
    assert ddp.header.module == fsdp.header.module == "GPT"
    assert ddp.header.roles == fsdp.header.roles
    for one, other in zip(ddp.looks, fsdp.looks, strict=True):
        assert one.whole == pytest.approx(other.whole, rel=1e-3)
        for role, own in one.roles.items():
            assert own.change == pytest.approx(other.roles[role].change, rel=1e-2)
            assert (own.rate, own.weight) == (other.roles[role].rate, pytest.approx(other.roles[role].weight, rel=1e-4))


def test_blocks_that_are_compiled_one_by_one_are_watched_as_they_are_written(folder: Path) -> None:
    one, other = (Run.read(folder / f"{kind}.jsonl").looks for kind in ("compiled", "fsdp"))
    assert [(look.step, look.whole) for look in one] == [(look.step, pytest.approx(look.whole)) for look in other]


def test_a_watch_that_ends_in_the_first_process_ends_in_all(folder: Path) -> None:
    """Whose runs go on: what would wait for the other for ever is said beforehand."""
    lines = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    ended = "depthlaw: the watch has ended, the run goes on: "
    listed = "a Block that FSDP2 has cut is called from elsewhere than its place among the submodules"
    assert lines == [[*2 * [f"{ended}OSError: the log is lost"], f"{ended}{listed}"], []]
