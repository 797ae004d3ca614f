"""A training run that is stopped and goes on is the run that was not stopped, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from sims.model import decoder_layers
from sims.optim import OPTIMIZERS
from sims.training.data import DataConfig, load
from sims.training.train import TrainConfig, TrainResult, train
from tests.sims.training import BASE, FULL, MODEL, Killed, killed_at, own_parallel, without_time


def is_same(found: Any, other: Any) -> bool:
    """To the last bit, in all that it holds."""
    if isinstance(found, Tensor):
        return torch.equal(found, other) and found.dtype == other.dtype
    if isinstance(found, dict):
        return found.keys() == other.keys() and all(is_same(value, other[key]) for key, value in found.items())
    if isinstance(found, list | tuple):
        return len(found) == len(other) and all(map(is_same, found, other))
    return found == other


def whole_and_resumed(config: TrainConfig, folder: Path, killed: int = 4) -> tuple[bool, bool]:
    """Whether a run that was killed behind that step, with a checkpoint at every third, has the same result in the end,
    and the same weights and state of its optimizer."""
    ends: list[dict[str, Any]] = []
    results: list[TrainResult] = []
    for name, kill in (("whole.pt", None), ("stopped.pt", killed)):
        path = folder / name
        path.unlink(missing_ok=True)
        if kill is not None:
            with pytest.raises(Killed):
                train(config, checkpoint=path, checkpoint_every=3, advance=killed_at(kill))
            assert torch.load(path, weights_only=True)["history"]["step"] == 3
        told: list[int] = []
        results.append(train(config, checkpoint=path, checkpoint_every=3, advance=told.append))
        assert told == ([1] * 6 if kill is None else [3, 1, 1, 1])
        ends.append(torch.load(path, weights_only=True))
        ends[-1]["history"].pop("seconds")
    assert ends[0]["history"]["step"] == 6
    return without_time(results[0]) == without_time(results[1]), is_same(*ends)


OWN_STATE = ("momentum", "lion", "lamb")  # muon and adafactor are below


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(name, marks=[] if name in OWN_STATE else [pytest.mark.slow]) for name in OPTIMIZERS],
)
def test_going_on_is_as_if_it_had_not_stopped(optimizer: str, tmp_path: Path) -> None:
    assert whole_and_resumed(replace(FULL, optimizer=optimizer), tmp_path) == (True, True)


@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [("float64", "muon"), pytest.param("bfloat16", "adam", marks=pytest.mark.slow), ("bfloat16", "adafactor")],
)
def test_so_it_is_in_every_precision(precision: str, optimizer: str, tmp_path: Path) -> None:
    config = replace(FULL, optimizer=optimizer, precision=precision)
    assert whole_and_resumed(config, tmp_path) == (True, True)


def test_so_it_is_of_an_encoder_decoder_on_tokens(tmp_path: Path) -> None:
    config = replace(FULL, model=replace(MODEL, decoder=decoder_layers(1)), data=own_parallel(tmp_path))
    assert whole_and_resumed(config, tmp_path) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [nn.Module, Optimizer, LambdaLR])
def test_what_a_checkpoint_lacks_would_be_seen(lost: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that does not load the weights, the optimizer's state or the schedule's."""
    monkeypatch.setattr(lost, "load_state_dict", lambda *_: None)
    assert whole_and_resumed(FULL, tmp_path) == (False, False)


def test_what_has_ended_is_not_run_again(tmp_path: Path) -> None:
    diverging = replace(BASE, optimizer="signsgd", learning_rate=1.0, patience=2, num_steps=20)
    for config, num_steps in ((BASE, 6), (diverging, 4)):
        path = tmp_path / f"{num_steps}.pt"
        result = train(config, checkpoint=path, checkpoint_every=2)
        before = path.read_bytes()
        told: list[int] = []
        assert train(config, checkpoint=path, checkpoint_every=2, advance=told.append) == result
        assert (told, result.num_steps) == ([num_steps], num_steps)
        assert path.read_bytes() == before


# --- what is not a checkpoint of this run


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda _: b"abc" * 50,
        lambda _: bytes(range(256)) * 4,
        lambda content: content[:10],
        cut,
        lambda content: content[:-3],
    ],
    ids=["empty", "letters", "bytes", "ten bytes", "half", "all but three"],
)
def test_a_spoilt_checkpoint_is_refused_and_kept(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(BASE, checkpoint=path, checkpoint_every=3)
    path.write_bytes(spoil(path.read_bytes()))
    refused(BASE, path, "run.pt is no checkpoint, or damaged: remove it")


@pytest.mark.parametrize("content", [[1, 2], {"digest": "0"}, torch.zeros(3)], ids=lambda one: type(one).__name__)
def test_what_torch_saved_of_something_else_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    torch.save(content, path)
    refused(BASE, path, "run.pt is no checkpoint, or damaged: remove it")


def test_nothing_is_unpickled_that_is_not_data(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    torch.save({"digest": Killed()}, path)
    refused(BASE, path, "run.pt is no checkpoint, or damaged: remove it")


def refused(config: TrainConfig, path: Path, words: str) -> None:
    """In one line, with the file as it was and no step taken."""
    before, told = path.read_bytes(), []
    with pytest.raises(ValueError, match=words) as found:
        train(config, checkpoint=path, checkpoint_every=1, advance=told.append)
    assert "\n" not in str(found.value)
    assert (path.read_bytes(), told) == (before, [])
    assert [one.name for one in path.parent.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"learning_rate": 0.011},
        {"num_steps": 7},
        {"measure_at": (3,)},
        {"optimizer": "adamw"},
        {"model": replace(MODEL, norm_eps=1e-6)},
        {"optimizer_options": {"betas": (0.9, 0.99)}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_checkpoint_of_another_run_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(BASE, checkpoint=path, checkpoint_every=3)
    refused(replace(BASE, **other), path, "run.pt is a checkpoint of another run")


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    text, path = tmp_path / "a.txt", tmp_path / "run.pt"
    content = b" ".join(b"%d" % (7919 * i) for i in range(3000))
    data = DataConfig(text=str(text), num_tokens=4)
    config = replace(BASE, data=data, model=replace(MODEL, is_causal=True))
    for changed in (content, content[:-1] + b"x"):
        text.write_bytes(changed)
        load.cache_clear()  # as in another process
        if changed == content:
            result = train(config, checkpoint=path, checkpoint_every=3)
            assert train(config, checkpoint=path) == result
        else:
            refused(config, path, "run.pt is a checkpoint of another run: its settings or its data differ")


# --- killed while it saves


@pytest.mark.parametrize("cleans_up", [True, False])
def test_a_checkpoint_that_could_not_be_written_leaves_the_old_one(
    cleans_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one that was killed while it wrote, and cleaned nothing up."""
    path = tmp_path / "run.pt"
    with pytest.raises(Killed):
        train(FULL, checkpoint=path, checkpoint_every=3, advance=killed_at(4))
    before = path.read_bytes()

    def break_off(_: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", break_off)
        if not cleans_up:
            patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(OSError, match="no space left"):
            train(FULL, checkpoint=path, checkpoint_every=3)
    assert path.read_bytes() == before
    assert [one.read_bytes() for one in tmp_path.iterdir() if one != path] == [b"half"] * (not cleans_up)
    assert without_time(train(FULL, checkpoint=path)) == without_time(train(FULL))


CHILD = """
import os, signal, sys, torch
from pathlib import Path
from sims.training.train import train
from tests.sims.training import FULL

def killed_half_way(content, target):
    target.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

torch.save = killed_half_way
train(FULL, checkpoint=Path(sys.argv[1]), checkpoint_every=3)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_saves_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(Killed):
        train(FULL, checkpoint=path, checkpoint_every=3, advance=killed_at(4))
    before = path.read_bytes()
    child = subprocess.run(
        [sys.executable, "-B", "-c", CHILD, str(path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (-9, b"")
    assert path.read_bytes() == before
    assert [one.read_bytes() for one in tmp_path.iterdir() if one != path] == [b"half"]  # it was in the middle
    assert without_time(train(FULL, checkpoint=path)) == without_time(train(FULL))
