"""A network that is cut over processes is the network of one process: its loss, its update, its weights."""

import io
import json
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from depthlaw.sims.model import alternating, decoder_layers
from depthlaw.sims.optim import OPTIMIZERS
from depthlaw.sims.training import sharded
from depthlaw.sims.training.data import DataConfig
from depthlaw.sims.training.sharded import Processes, start
from depthlaw.sims.training.sweep import EndsSweepError
from depthlaw.sims.training.train import TrainConfig, train
from tests.sims.sharded_runs import CONFIGS
from tests.sims.training import FULL, MODEL, Killed, end_of, files_of_at_most, killed_at, own_parallel

ROOT = Path(__file__).resolve().parents[2]
SHORT = replace(
    FULL, precision="float64", batch_size=64, num_steps=3, warmup_steps=2, evaluate_every=3, measure_at=(0, 3)
)
ROUNDING = 1e-9, 1e-8 * SHORT.learning_rate
OF_BFLOAT16 = 0.0, 2**-7 * SHORT.learning_rate
"""Muon multiplies in bfloat16, where a last bit of a product may fall either way."""


@contextmanager
def alone() -> Iterator[Processes]:
    """This process as the only one."""
    processes = start("cpu")
    try:
        yield processes
    finally:
        dist.destroy_process_group()


@pytest.fixture(name="alone")
def _alone() -> Iterator[Processes]:
    with alone() as processes:
        yield processes


def by_torchrun(num: int, folder: Path, configs: Mapping[str, TrainConfig]) -> dict[str, dict[str, Any]]:
    """What became of each run over so many processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num)]
    return ended([begun([*torchrun, "-m"], folder, configs)], folder)


def begun(python: list[str], folder: Path, configs: Mapping[str, TrainConfig], **variables: str) -> Popen[str]:
    """``sharded_runs``, run so. variables: of its environment."""
    (folder / CONFIGS).write_bytes(pickle.dumps(dict(configs)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return Popen([*python, "tests.sims.sharded_runs", folder], cwd=ROOT, env=environment, stderr=PIPE, text=True)


def ended(processes: list[Popen[str]], folder: Path) -> dict[str, dict[str, Any]]:
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def check_result(result: Mapping[str, Any], expected: Mapping[str, Any], *, rel: float = 1e-5) -> None:
    """Results are rounded to six digits."""
    for name in ("losses", "held_out", "best", "looks", "num_parameters", "outcome", "num_steps"):
        values, known = flat(result[name]), flat(expected[name])
        numbers = {place: value for place, value in known.items() if isinstance(value, float)}
        assert {place: values[place] for place in numbers} == pytest.approx(numbers, rel=rel), name
        assert values | numbers == known, name


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """Numbers and words by where they stand."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        return {place: value}
    return {at: one for key, part in parts for at, one in flat(part, f"{place}/{key}").items()}


def check_weights(folder: Path, config: TrainConfig, processes: Processes, tmp_path: Path) -> None:
    """Those behind the last step, which a checkpoint of any number of processes has."""
    expected = end_of(config, tmp_path)["network"]
    kept: dict[str, Tensor] = {
        f"weights.{name}": torch.zeros_like(weight.reshape(weight.shape or (1,))) for name, weight in expected.items()
    }
    processes.read(processes.found(folder)["folder"], kept)
    rtol, atol = OF_BFLOAT16 if "muon" in config.optimizer else ROUNDING
    for name, weight in expected.items():
        if name.endswith("_k_bias"):  # nothing depends on it: its gradient is rounding, and its step the sign of that
            continue
        torch.testing.assert_close(kept[f"weights.{name}"].view_as(weight), weight, rtol=rtol, atol=atol)


@pytest.mark.wide
def test_two_processes_are_one(tmp_path: Path) -> None:
    """Losses, updates and weights of three optimizers; under LAMB two processes begin, and one ends."""
    configs = {name: replace(SHORT, optimizer=name) for name in ("sgd", "muon")}
    begun_by_two = replace(SHORT, optimizer="lamb")
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # As torchrun does it, without the seconds of its own.
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    runs = {**configs, "killed": begun_by_two}
    two = [begun([sys.executable, "-m"], tmp_path, runs, **there, **rank) for rank in ranks]
    expected = {name: train(config).plain() for name, config in configs.items()}
    results = ended(two, tmp_path)
    with alone() as processes:
        for name, config in configs.items():
            check_result(results[name], expected[name], rel=0.01 if name == "muon" else 1e-5)
            check_weights(tmp_path / name, config, processes, tmp_path)
        told: list[int] = []
        place = tmp_path / "killed"
        resumed = train(begun_by_two, processes=processes, checkpoint=place, checkpoint_every=3, advance=told.append)
        assert told == [2, 1]
        check_result(resumed.plain(), train(begun_by_two).plain())
        check_weights(place, begun_by_two, processes, tmp_path)


def test_a_checkpoint_for_which_there_is_no_room_is_told_and_leaves_the_one_before(
    tmp_path: Path, alone: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, place = replace(SHORT, optimizer="sgd"), tmp_path / "run"
    says = rf"^cannot write the checkpoint {place}: File too large; make room, and the same command goes on "
    with files_of_at_most(1000), pytest.raises(EndsSweepError, match=f"{says}with the runs that are not kept$"):
        train(config, processes=alone, checkpoint=place, checkpoint_every=1)
    assert not place.exists()
    with pytest.raises(Killed):
        train(config, processes=alone, checkpoint=place, checkpoint_every=1, advance=killed_at(2))
    with files_of_at_most(1000), pytest.raises(EndsSweepError, match=f"{says}from the one before it, which is kept$"):
        train(config, processes=alone, checkpoint=place, checkpoint_every=1)
    assert [path.name for path in place.iterdir()] == ["000000000001"]

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # in the middle of a checkpoint
        patch.setattr(sharded, "save_checkpoint", killed)
        train(config, processes=alone, checkpoint=place, checkpoint_every=1)
    result = train(config, processes=alone, checkpoint=place, checkpoint_every=1)
    check_result(result.plain(), train(config).plain())
    assert [path.name for path in place.iterdir()] == [f"{config.num_steps:012d}"]


def test_half_of_a_first_checkpoint_is_none(tmp_path: Path, alone: Processes) -> None:
    (tmp_path / "run" / ".000000000001").mkdir(parents=True)
    told: list[int] = []
    train(SHORT, processes=alone, checkpoint=tmp_path / "run", advance=told.append)
    assert told == [1] * SHORT.num_steps


def test_of_a_process_that_ended_one_line_is_said_and_of_a_mistake_its_traceback(
    alone: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    def run(error: Exception) -> None:
        raise error

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(alone, "_next", lambda: gone)
    gone = RuntimeError(
        "[gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer. This"
    )
    for do in (alone.leading(run), alone.leading(run), lambda _: alone.follow(run)):
        with pytest.raises(
            EndsSweepError, match=r"^another of torchrun's processes has ended, .* from the run's last "
        ):
            do(gone)
    alone.rank = 1
    for do in (alone.leading(run), lambda _: alone.follow(run)):
        with pytest.raises(SystemExit):  # another one has said it
            do(gone)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        alone.leading(run)(RuntimeError("shapes do not fit"))
    assert capsys.readouterr().err.endswith("RuntimeError: shapes do not fit\n")
    monkeypatch.setattr(alone, "_next", lambda: RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match=r"^shapes do not fit$"):
        alone.follow(run)


def test_what_does_not_fit_is_refused(tmp_path: Path, alone: Processes) -> None:
    alone.num = 65
    with pytest.raises(ValueError, match="65 processes train one network, each on a sequence of its batch at least"):
        train(SHORT, processes=alone)
    alone.num = 1
    (tmp_path / "run" / "1").mkdir(parents=True)
    with pytest.raises(ValueError, match="no checkpoint, or damaged"):
        train(SHORT, processes=alone, checkpoint=tmp_path / "run")
    train(SHORT, processes=alone, checkpoint=tmp_path / "other", checkpoint_every=3)
    with pytest.raises(ValueError, match="a checkpoint of another run"):
        train(replace(SHORT, seed=1), processes=alone, checkpoint=tmp_path / "other")


@pytest.mark.parametrize(("module", "name"), [("os", "system"), ("torch.distributed.checkpoint.metadata", "os.system")])
def test_an_index_that_runs_code_is_not_read(module: str, name: str, tmp_path: Path, alone: Processes) -> None:
    """Neither what stands elsewhere, nor what a module of checkpoints has imported."""
    train(SHORT, processes=alone, checkpoint=tmp_path / "run", checkpoint_every=3)
    said = [text.encode() for text in (module, name, f"touch {tmp_path}/ran")]
    module_, name_, command = (b"\x8c" + bytes([len(text)]) + text for text in said)
    called = b"\x80\x04" + module_ + name_ + b"\x93" + command + b"\x85R."
    (next((tmp_path / "run").iterdir()) / ".metadata").write_bytes(called)
    with pytest.raises(ValueError, match="no checkpoint, or damaged"):
        train(SHORT, processes=alone, checkpoint=tmp_path / "run")
    assert not (tmp_path / "ran").exists()


def test_the_index_of_a_checkpoint_may_name_members_of_enumerations_and_nothing_else_of_a_class() -> None:
    """As Python 3.11.2 writes them: the members by ``getattr``."""

    def index(of: bytes, name: bytes) -> io.BytesIO:
        return io.BytesIO(b"cbuiltins\ngetattr\n(ctorch.distributed.checkpoint.metadata\n%b\nV%b\ntR." % (of, name))

    read = sharded._OfCheckpoints(index(b"_MEM_FORMAT_ENCODING", b"TORCH_PRESERVE_FORMAT")).load()
    assert read is _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT
    for of, name in ((b"_MEM_FORMAT_ENCODING", b"__class__"), (b"Metadata", b"__init__")):
        with pytest.raises(pickle.UnpicklingError, match="no part of a checkpoint's index"):
            sharded._OfCheckpoints(index(of, name)).load()


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 3])
def test_every_optimizer_and_block_over_processes(num: int, tmp_path: Path, alone: Processes) -> None:
    """Three processes have rows of uneven number, and none of what is a single number. One run was begun by one."""
    encoder = alternating(2, trains_branch_weight=True, branch_weight=0.1)
    causal = replace(MODEL, is_causal=True, recomputes=True, placement="post", has_second_stream=True)
    mixing = tuple(replace(one, value_weight=0.5, first_value_weight=0.5) for one in alternating(4)[::2])
    configs = {name: replace(SHORT, optimizer=name) for name in OPTIMIZERS} | {
        "translation": replace(
            SHORT, optimizer="lamb", model=replace(MODEL, decoder=decoder_layers(2)), data=own_parallel(tmp_path)
        ),
        "causal": replace(SHORT, model=causal, data=DataConfig(num_tokens=8)),
        "masked": replace(SHORT, data=DataConfig(name="masked", num_tokens=8), batch_size=5),
        "branch weights": replace(SHORT, optimizer="lars", model=replace(MODEL, encoder=encoder)),
        "values": replace(SHORT, model=replace(MODEL, encoder=mixing, rotary_base=1e4, norm_kind="rmsnorm")),
        "float32": replace(SHORT, precision="float32"),
    }
    handed_on = replace(SHORT, optimizer="lion")
    with pytest.raises(Killed):
        train(handed_on, processes=alone, checkpoint=tmp_path / "lion", checkpoint_every=2, advance=killed_at(3))
    results = by_torchrun(num, tmp_path, configs)
    for name, config in configs.items():
        is_rounded = "muon" in name or config.precision == "float32"
        check_result(results[name], train(config).plain(), rel=0.01 if is_rounded else 1e-5)
        if config.precision == "float64":
            check_weights(tmp_path / name, config, alone, tmp_path)
