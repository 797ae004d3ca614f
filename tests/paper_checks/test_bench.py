"""`depthlaw bench`: every contender takes the same pass, and what is printed is the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from depthlaw.paper_checks.experiments import bench
from depthlaw.paper_checks.experiments.bench import Loop, Ours, Size, contenders
from tests.command import document

RECORD = Path(__file__).parents[2] / "paper_checks/results/bench.json"
TINY = Size(16, 2, num_members=3, num_tokens=4)


def test_operations_are_those_of_the_matrices() -> None:
    """Forward, and twice as many backward, counted by torch; norms and activations are none."""
    from torch.utils.flop_counter import FlopCounterMode

    size = Size(32, 3, num_sequences=2, num_members=1, num_tokens=8)
    ours = Ours(size)
    (model, inputs), *_ = ours.parts
    with FlopCounterMode(display=False) as counter:
        hidden = model(inputs.x.requires_grad_())
        hidden.sum().backward()
    assert counter.get_total_flops() == pytest.approx(size.num_operations, rel=0.01)
    ours.close()


def test_a_loop_takes_every_gradient_and_drops_it() -> None:
    loop = Loop(TINY, bench.torch_encoder)
    seen: list[str] = []
    for model, _ in loop.models:
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    loop()
    assert len(seen) == len(list(loop.models[0][0].parameters())) * TINY.num_members
    assert all(parameter.grad is None for model, _ in loop.models for parameter in model.parameters())


@pytest.mark.parametrize("name", [name for name in contenders() if name not in ("two processes", "3 optimizers")])
def test_contenders_have_networks_of_the_same_size(name: str) -> None:
    """As many numbers in matrices of layers as ours; torch has its own biases and norms."""
    theirs, ours = contenders()[name](TINY), Ours(TINY)
    model = ours.parts[0][0]
    own = sum(p[0].numel() for _, p, role in model.tagged() if p.dim() == 3 and role != "head")
    for other, _ in theirs.models:
        assert sum(p.numel() for p in other.parameters() if p.dim() == 2) == own
    theirs()
    ours.close()


def test_training_together_is_a_row_as_the_others() -> None:
    row = bench.trained(Size(16, 1, num_sequences=2, num_members=2, num_tokens=16), rounds=1)
    assert row["beside"] == "runs one by one" and row["seconds"] > 0 and row["share_of_peak"] > 0
    assert set(row) == set(json.loads(RECORD.read_text(encoding="utf-8"))["rows"][0])


@pytest.mark.slow
def test_quick_says_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", (TINY,))
    record = tmp_path / "mine.json"
    before = torch.get_num_threads()
    answer = document("bench", "--quick", "--record", str(record))
    assert json.loads(record.read_text(encoding="utf-8")) == answer
    assert {row["beside"] for row in answer["rows"]} == set(contenders())
    for row in answer["rows"]:
        assert row["ratio_least"] <= row["ratio"] <= row["ratio_most"]
        assert row["seconds"] > 0 and row["share_of_peak"] > 0  # on a busy machine it may be over 1
        assert (row["with_construction"] is None) == (row["beside"] == "two processes")
    assert {"processor", "num_cores", "device"} <= set(answer["machine"]) and "torch" in answer["versions"]
    assert torch.get_num_threads() == before
