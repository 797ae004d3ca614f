"""``--scheduler``: the commands on a real Dask cluster give what they give here, and go on from what was begun here."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from depthlaw.auditing.builders import Sent, load_there, named
from depthlaw.sims.cluster import Cluster
from depthlaw.sims.records import record
from depthlaw.sims.training import sweep
from depthlaw.system.places import ROOT
from tests.command import DEPTHLAW, depthlaw, document, refusal
from tests.dask_cluster import PATIENCE, DaskCluster, dask_cluster

pytestmark = pytest.mark.wide

_STACK = ("--scheme", "pre-ln", "--optimizer", "adam", "--sublayers", "2,4", "--width", "32")
MEASURE = ["measure", *_STACK, "--dtype", "float64"]
TRAIN = [
    *("train", "--scheme", "pre-ln,post-ln", "--layers", "1", "--width", "8", "--steps", "3"),
    *("--learning-rate", "1e-2"),
]
MODEL = """
import torch
from torch import nn


def build(num_layers):
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, norm_first=True, batch_first=True)
    return Own(layer, num_layers, enable_nested_tensor=False)


class Own(nn.TransformerEncoder):
    pass


def give(model):
    assert isinstance(model, Own), "the module was imported twice"
    return torch.randn(1, 5, WIDTH, generator=torch.Generator().manual_seed(0))
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("dask"), 1) as started:
        yield started


def equal(one: Any, other: Any, tolerance: float) -> None:
    """To rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            equal(one[name], other[name], tolerance)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            equal(a, b, tolerance)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=tolerance, abs=1e-12)
    else:
        assert one == other


def test_measuring_goes_on_from_here_to_there_and_back_and_gives_the_same_numbers(
    two: DaskCluster, tmp_path: Path
) -> None:
    """To the 8 digits that a record has."""
    mine, theirs = (["--record", str(tmp_path / name)] for name in ("mine.jsonl", "theirs.jsonl"))
    there = ["--scheduler", two.address]
    document(*MEASURE, "--seeds", "3", *mine)
    on_cluster = document(*MEASURE, "--seeds", "14", *mine, *there)
    further = document(*MEASURE, "--seeds", "16", *mine)
    serial = document(*MEASURE, "--seeds", "16", *theirs)
    assert len(record.read(tmp_path / "mine.jsonl")) > len(record.read(tmp_path / "theirs.jsonl"))
    for runs in (record.read(tmp_path / name) for name in ("mine.jsonl", "theirs.jsonl")):
        for length in (2, 4):
            of_one = [run for run in runs if run.config["num_sublayers"] == length]
            assert sorted(seed for run in of_one for seed in run.seeds) == list(range(16)), "each seed once"
    assert (on_cluster["seeds"], on_cluster["device"]) == (14, "cpu")
    equal({**further, "record": None}, {**serial, "record": None}, 1e-6)


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_come_from_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    asked = [*MEASURE, "--sublayers", "16,32,200", "--width", "128", "--seeds", "64", "--record", str(path)]
    with dask_cluster(tmp_path / "dask", 2) as started:
        command = [str(DEPTHLAW), *asked, "--scheduler", started.address]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment) as child:
            while not path.exists() or not path.read_bytes():
                assert child.poll() is None
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out) == (130, "")
    says = f"depthlaw: interrupted, stopping; what was finished is in {path}, and the same command goes on from there\n"
    assert err == says
    assert sum(len(run.seeds) for run in record.read(path)) < 3 * 64


def test_training_on_a_cluster_is_training_here(
    two: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of one's own is looked for where the command stands, and not where a worker does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "pool", lambda num_workers, **_: ThreadPoolExecutor(1))
    Path("own.txt").write_text(" ".join(str(number * number) for number in range(10_000)), encoding="utf-8")
    asked = [*TRAIN, "--text", "own.txt"]
    document(*asked, "--store", "mine.sqlite", "--seeds", "1", "--workers", "1")
    found = document(*asked, "--store", "mine.sqlite", "--seeds", "2", "--scheduler", two.address)
    assert found["sweep"] == {"done": 2, "found": 2, "failed": {}, "left": 0}
    serial = document(*asked, "--store", "theirs.sqlite", "--seeds", "2", "--workers", "1")
    for one, other in zip(found["runs"], serial["runs"], strict=True):
        assert one["config"] == other["config"]
        equal({**one["result"], "seconds": 0}, {**other["result"], "seconds": 0}, 1e-4)  # of float32
    refused = refusal(*asked, "--store", "mine.sqlite", "--batch", "1000000", "--scheduler", two.address)
    assert "GiB are free for a worker of tcp://" in refused


def in_folder(folder: Path, width: int) -> None:
    (folder / "own_model.py").write_text(MODEL.replace("WIDTH", str(width)), encoding="utf-8")


_ASKED = ("--layers", "1,2", "--seeds", "3", "--input", "own_model:give", "--by-layer")


def audited(*arguments: str) -> dict[str, Any]:
    """In this process the module is imported anew, as in a shell."""
    sys.modules.pop("own_model", None)
    importlib.invalidate_caches()
    result = depthlaw("audit", "own_model:build", *_ASKED, "--json", *arguments)
    assert (result.returncode, result.stderr) == (1, "")
    return json.loads(result.stdout)


@pytest.mark.slow
def test_an_audit_on_a_cluster_says_what_it_says_here_of_the_file_as_it_is_now(
    two: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers stand elsewhere, and have imported the file as it was before, and one of that name in another folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, width in (("one", 16), ("one", 24), ("other", 32)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(str(tmp_path))])
        in_folder(folder, width)
        found = audited("--scheduler", two.address)
        assert found["d_model"] == width and len(found["roles"]) > 5
    equal(found, audited(), 1e-6)


@pytest.mark.slow
def test_what_a_worker_cannot_import_is_told(two: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("own_model", None)
    in_folder(tmp_path, 16)
    named("own_model:build", "MODULE:FACTORY")
    sent = Sent.of("own_model:build", "MODULE:FACTORY", "an audit")
    assert sent.folder == str(tmp_path) and [name for name, _ in sent.digests] == ["own_model"]
    on_a_worker = r"^on the worker \S+, MODULE:FACTORY: "
    with Cluster(two.address) as cluster:
        in_folder(tmp_path, 24)
        with pytest.raises(ValueError, match=rf"{on_a_worker}the file of own_model is another one "):
            cluster.submit(load_there, sent, None, None).result()
        elsewhere = replace(sent, audit="another", folder=str(tmp_path / "nowhere"), text="not_there:build")
        says = rf"{on_a_worker}there is no module not_there \(in {tmp_path}/nowhere or installed\)$"
        with pytest.raises(ValueError, match=says):
            cluster.submit(load_there, elsewhere, None, None).result()
