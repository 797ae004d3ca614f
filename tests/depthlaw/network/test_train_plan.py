"""``depthlaw train --plan``, the page of large models, and ``depthlaw train`` under torchrun."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest
from psutil import Process

from depthlaw.cli import app
from depthlaw.cli.plan import Machines
from depthlaw.network.trials import Trial
from depthlaw.paper_checks.pages.training.large_models import NODES, Model, largest_batch, models
from depthlaw.sims.training.data import load
from depthlaw.sims.training.plan import NODE, memory_of_training
from depthlaw.sims.training.sharded import LOST
from tests.command import DEPTHLAW, document, refusal, told
from tests.often import often

ROOT = Path(__file__).resolve().parents[2]
LLAMA = (
    *("train", "--recipe", "llama-2", "--layers", "32", "--width", "4096", "--heads", "32", "--tokens", "4096"),
    *("--batch", "64", "--learning-rate", "1e-4", "--optimizer", "adamw", "--vocabulary", "32000", "--plan"),
    *("--precision", "bfloat16"),
)
SMALL = ("train", "--scheme", "deepnorm", "--layers", "2,3", "--learning-rate", "1e-3", "--width", "16")


def test_the_defaults_are_the_node_of_sims() -> None:
    usual: dict[str, Any] = {
        name: getattr(Machines, name).default for name in ("devices", "device_memory", "tflops", "bandwidth", "network")
    }
    machines = Machines(nodes=[1, 4, 16], vocabulary=None, plan=True, **usual)
    assert machines.hardware("bfloat16") == NODE
    assert machines.hardware("float32").flops < NODE.flops / 10  # without tensor cores
    assert replace(machines, tflops=1.0).hardware("float32").flops == 1e12


def test_a_batch_without_a_sequence_for_each_device_does_not_fit() -> None:
    (row,) = document(*SMALL[:4], "2", *SMALL[5:], "--batch", "16", "--plan", "--nodes", "1,2,4", "--json")["rows"]
    ways = [place["recomputing"] for place in row["nodes"]]
    assert [(way["feeds_all"], way["fits"]) for way in ways] == [(True, True), (True, True), (False, False)]
    assert "small batch" in told(*SMALL, "--batch", "16", "--plan", "--nodes", "4")


@pytest.mark.wide
def test_llama_2_7b_has_the_parameters_that_it_has() -> None:
    """6,738,415,616, as its published checkpoint."""
    answer = document(*LLAMA, "--json")
    (row,) = answer["rows"]
    assert row["num_parameters"] == sum(row["parameters"].values()) == 6_738_415_616
    assert [place["num_devices"] for place in row["nodes"]] == [8, 32, 128]
    one, four, _ = row["nodes"]
    # All weights but a device's own, in float32: twice to multiply with, and once their gradients.
    assert one["received"] == {"weights": 7 * row["num_parameters"], "gradients": 7 * row["num_parameters"] // 2}
    for place in (one, four):
        for way in ("as_it_is", "recomputing"):
            memory = place[way]["memory"]
            assert memory["weights"] * place["num_devices"] == 4 * row["num_parameters"]
            low, high = place[way]["seconds"].values()
            assert 0 < low < high < 2 * low + 1e-9
    assert one["recomputing"]["memory"]["activations"] < one["as_it_is"]["memory"]["activations"] / 4
    arithmetic = (row["flops"]["forward"] + row["flops"]["backward"]) / 8 / 989e12
    sent = sum(one["received"].values()) / 450e9
    assert one["as_it_is"]["seconds"] == pytest.approx({"low": max(arithmetic, sent), "high": arithmetic + sent})
    page = " ".join(told(*LLAMA).split())
    assert "6,738,415,616 parameters" in page and "8 devices of 80 GB and 989 teraflops" in page


def test_between_nodes_the_network_is_what_takes_time() -> None:
    slow = document(*SMALL, "--plan", "--network", "0.001", "--devices", "2", "--nodes", "3", "--json")["rows"][0]
    (place,) = slow["nodes"]
    whole = sum(place["received"].values()) / (1 - 1 / 6)
    assert place["as_it_is"]["seconds"]["low"] == pytest.approx(2 / 3 * whole / (2 * 0.001e9), rel=1e-3)


def test_one_device_is_planned_as_it_runs_here() -> None:
    answer = document(*SMALL, "--plan", "--devices", "1", "--nodes", "1", "--json")
    rows = {row["num_layers"]: row for row in answer["rows"]}
    trial = Trial(scheme="deepnorm", num_layers=3, d_model=16, measure_at=(0,))
    config = trial.lower()
    expected = memory_of_training(config, load(config.data))
    assert list(rows) == [2, 3]
    memory = rows[3]["nodes"][0]["as_it_is"]["memory"]
    assert memory == expected._asdict() | {"total": expected.total}
    assert rows[3]["nodes"][0]["received"] == {"weights": 0, "gradients": 0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "2"), "--nodes belongs to --plan"),
        (("--plan", "--shape", "vit", "--vocabulary", "9"), "a vocabulary is of tokens, and the shape vit has none"),
        (("--plan", "--tflops", "0"), "--tflops"),
        (("--plan", "--heads", "3"), "--heads"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(*SMALL, *arguments)


# ---------------------------------------------------------------- the large models


def test_the_printed_counts_come_out() -> None:
    deep, thousand, beside = models()
    assert (deep.num_parameters, thousand.num_parameters) == (3_202_187_264, 3_755_653_120)
    assert deep.is_as_printed("3.2") and thousand.is_as_printed("3.8")
    # By hand: 4 d^2 an attention, 8 d^2 an FFN, their biases, a norm a sublayer, positions of both sides, two tables.
    for model in (deep, thousand, beside):
        num, d = model.num_layers, model.d_model
        layers = num * ((4 + 8) * d**2 + 13 * d) + num * ((8 + 8) * d**2 + 19 * d)
        assert model.num_parameters == layers + 2 * 256 * d + 2 * model.rows * d
    assert not beside.is_as_printed("863", 10**6)


@pytest.mark.wide
@pytest.mark.parametrize("recomputes", often([False, True], 2))
def test_the_largest_batch_is_the_largest_that_fits(recomputes: bool) -> None:
    model = Model("", 1, 512, 8, "", 1000)
    devices = NODES[1] * NODE.devices
    tokens = largest_batch(model, NODES[1], recomputes=recomputes)

    def total(num: int) -> int:
        config = replace(model.config, batch_size=num)
        return memory_of_training(config, model.sizes, num_devices=devices, recomputes=recomputes).total

    assert total(tokens // 256) <= NODE.memory < total(tokens // 256 + devices)


# ---------------------------------------------------------------- torchrun


@pytest.mark.slow
def test_torchrun_cuts_each_run_and_answers_once(tmp_path: Path) -> None:
    """What a user types, with a device each: the answer is that of one process, and the store is too."""
    asked = (*SMALL, "--steps", "4", "--optimizer", "lamb", "--precision", "float64", "--json")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    cut = run(
        [*torchrun, DEPTHLAW, *asked, "--store", tmp_path / "two", "--checkpoint-every", "1", "--recompute"],
        check=True,
        stdout=PIPE,
        env=environment,
        cwd=ROOT,
    )
    two, one = json.loads(cut.stdout), document(*asked, "--store", tmp_path / "one")
    assert two["sweep"] == one["sweep"] | {"done": 2}
    for ours, theirs in zip(two["runs"], one["runs"], strict=True):
        assert ours["config"] == theirs["config"]
        assert ours["result"]["losses"] == pytest.approx(theirs["result"]["losses"], rel=1e-5)
        assert ours["result"]["looks"][0]["update"] == pytest.approx(theirs["result"]["looks"][0]["update"], rel=1e-5)
    assert not list((tmp_path / "two.checkpoints").iterdir())
    again = document(*asked, "--store", tmp_path / "two")
    assert again["sweep"]["found"] == 2


def test_under_torchrun_there_are_no_other_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from depthlaw.cli.shared.place import Place

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with pytest.raises(ValueError, match="under torchrun --workers and --scheduler have no place"):
        Place(workers=2, scheduler=None, budget=None, store=None, device="cpu")
    _, workers = Place(workers=None, scheduler=None, budget=None, store=None, device="cpu").workers_of([])
    assert workers.num_workers == 1


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["tables"], "torchrun cuts the runs of `depthlaw train`"),
        (["train", "--no-such"], "No such option"),
        ([*map(str, SMALL), "--optimizer", "none"], "none"),
    ],
)
def test_torchrun_is_for_training_and_what_it_refuses_is_said_once(
    asked: list[str],
    says: str,
    rank: str,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", rank)
    assert app._answer(asked) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), says in said.err) == ("", lines, lines == 1)


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_is_killed_is_told_in_a_line_and_one_process_goes_on(rank: str, tmp_path: Path) -> None:
    """Whichever it is, the survivor says it; the run goes on from its checkpoint over fewer processes."""
    asked = (*SMALL, "--steps", 200, "--store", tmp_path / "kept", "--checkpoint-every", 10)
    python = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*map(str, (*python, 2, DEPTHLAW, *asked))]
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment, cwd=ROOT) as torchrun:
        while not list(tmp_path.glob("kept.checkpoints/*/[0-9]*/run.json")):
            assert torchrun.poll() is None
            time.sleep(0.01)
        (killed,) = [one for one in Process(torchrun.pid).children() if one.environ()["RANK"] == rank]
        killed.kill()
        out, err = torchrun.communicate(timeout=60)
    said = [line for line in err.splitlines() if line.startswith("depthlaw: ") and "interrupted, stopping" not in line]
    is_early = not said  # on a busy machine torchrun ends the survivor before it has noticed
    assert (out, is_early or said == [f"depthlaw: {LOST}"], "paper_checks" in err) == ("", True, False), err
    (last,) = tmp_path.glob("kept.checkpoints/*/[0-9]*")
    assert int(last.name) >= 10
    command = [*map(str, (*python, 1, DEPTHLAW, *asked, "--json"))]
    found = json.loads(run(command, check=True, stdout=PIPE, env=environment, cwd=ROOT).stdout)
    assert found["sweep"] == {"done": 2, "found": 0, "failed": {}, "left": 0}
    assert not list((tmp_path / "kept.checkpoints").iterdir())


@pytest.mark.slow
def test_under_torchrun_what_cannot_be_is_said_once(tmp_path: Path) -> None:
    """In a line, without a traceback of depthlaw's in another process."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
    for given, told_once in ((("--batch", "1"), "--batch 1: each of the 2"), (("--width", "1000000"), "GiB are free")):
        asked = (*torchrun, DEPTHLAW, *SMALL, *given, "--store", tmp_path / "store")
        refused = run([*map(str, asked)], text=True, check=False, capture_output=True, cwd=ROOT)
        assert refused.returncode and refused.stderr.count(told_once) == 1
        assert "[rank1]" not in refused.stderr and "paper_checks" not in refused.stderr
