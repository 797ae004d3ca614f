"""A training run that is stopped and goes on is the run that was not stopped, to the last bit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from depthlaw.sims.model import decoder_layers
from depthlaw.sims.training.data import DataConfig, load
from depthlaw.sims.training.sweep import EndsSweepError
from depthlaw.sims.training.train import TrainConfig, train
from tests.sims.training import BASE, FULL, MODEL, Killed, files_of_at_most, killed_at, own_parallel, without_time


@pytest.mark.parametrize(
    ("optimizer", "precision", "has_decoder"),
    [
        ("adam", "float32", True),
        pytest.param("adafactor", "bfloat16", False, marks=pytest.mark.wide),
        pytest.param("lion", "float32", False, marks=pytest.mark.slow),
        pytest.param("lamb", "float32", False, marks=pytest.mark.slow),
        pytest.param("muon", "float64", False, marks=pytest.mark.slow),
    ],
)
def test_going_on_is_as_if_it_had_not_stopped(
    optimizer: str, precision: str, has_decoder: bool, tmp_path: Path
) -> None:
    """A run that is killed behind step 4, with a checkpoint at every third step, ends with the result, the weights and
    the state of the optimizer of a run that was not stopped."""
    config = replace(FULL, optimizer=optimizer, precision=precision, has_moves=True)
    if has_decoder:
        config = replace(config, model=replace(MODEL, decoder=decoder_layers(1)), data=own_parallel(tmp_path))
    whole_path, stopped_path = tmp_path / "whole.pt", tmp_path / "stopped.pt"
    told: list[int] = []
    whole = train(config, checkpoint=whole_path, checkpoint_every=3, advance=told.append)
    with pytest.raises(Killed):
        train(config, checkpoint=stopped_path, checkpoint_every=3, advance=killed_at(4))
    assert torch.load(stopped_path, weights_only=True)["history"]["step"] == 3
    resumed = train(config, checkpoint=stopped_path, checkpoint_every=3, advance=told.append)
    assert told == [*[1] * 6, 3, 1, 1, 1]
    assert without_time(resumed) == without_time(whole)
    ends = [torch.load(path, weights_only=True) for path in (whole_path, stopped_path)]
    assert [end["history"].pop("seconds") > 0 for end in ends] == [True, True]
    (kept, form), (again, form_again) = map(tree_flatten, ends)
    assert form == form_again
    assert all(torch.equal(x, y) if isinstance(x, Tensor) else x == y for x, y in zip(kept, again, strict=True))


def test_a_loss_that_stands_above_its_start_is_counted_on(tmp_path: Path) -> None:
    path, config = tmp_path / "run.pt", replace(BASE, optimizer="signsgd", learning_rate=1.0, patience=2, num_steps=20)
    whole = train(config)
    assert whole.num_steps == 4  # two of them above the start, of which the checkpoint knows the first
    with pytest.raises(Killed):
        train(config, checkpoint=path, checkpoint_every=3, advance=killed_at(4))
    assert without_time(train(config, checkpoint=path)) == without_time(whole)


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: torch.save({"digest": "0"}, path),
    ],
    ids=["empty", "half", "of something else"],
)
def test_a_spoilt_checkpoint_is_refused_and_kept(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(BASE, checkpoint=path, checkpoint_every=3)
    spoil(path)
    refused(BASE, path, "run.pt is no checkpoint, or damaged: remove it")


class Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled_that_is_not_data(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    torch.save({"digest": Runs(tmp_path / "made")}, path)
    refused(BASE, path, "run.pt is no checkpoint, or damaged: remove it")
    assert not (tmp_path / "made").exists()


def refused(config: TrainConfig, path: Path, words: str) -> None:
    """In one line, with the file as it was and no step taken."""
    before, told = path.read_bytes(), []
    with pytest.raises(ValueError, match=words) as refusal:
        train(config, checkpoint=path, checkpoint_every=1, advance=told.append)
    assert "\n" not in str(refusal.value)
    assert (path.read_bytes(), told) == (before, [])
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []


def test_a_checkpoint_of_another_run_or_other_data_is_refused(tmp_path: Path) -> None:
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
            refused(replace(config, seed=1), path, "run.pt is a checkpoint of another run")
        else:
            refused(config, path, "run.pt is a checkpoint of another run: its settings or its data differ")


def test_a_checkpoint_for_which_there_is_no_room_is_told_and_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.pt"
    says = rf"^cannot write the checkpoint {path}: File too large; make room, and the same command goes on "
    with files_of_at_most(10_000), pytest.raises(EndsSweepError, match=f"{says}with the runs that are not kept$"):
        train(FULL, checkpoint=path, checkpoint_every=3)
    assert not list(path.parent.iterdir())
    with pytest.raises(Killed):
        train(FULL, checkpoint=path, checkpoint_every=3, advance=killed_at(4))
    before = path.read_bytes()
    with files_of_at_most(10_000), pytest.raises(EndsSweepError, match=f"{says}from the one before it, which is kept$"):
        train(FULL, checkpoint=path, checkpoint_every=3)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert without_time(train(FULL, checkpoint=path)) == without_time(train(FULL))
