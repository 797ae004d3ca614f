"""The GPU lane (``make gpu``): the same numbers on a GPU as on the CPU. DEPTHLAW_TEST_DEVICE=cpu rehearses it."""

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from depthlaw.sims import stats
from depthlaw.sims.ensemble import Ensemble, Member
from depthlaw.sims.model import ModelConfig, alternating
from depthlaw.sims.training import train as training
from depthlaw.sims.training.data import DataConfig
from depthlaw.sims.training.train import TrainConfig, train, train_together
from depthlaw.sims.update import Inputs, Task, draw_inputs, first_order, roles_of
from tests.sims.training import Killed, killed_at

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("DEPTHLAW_TEST_DEVICE", "cuda")
OPTIMIZERS = ("sgd", "adam", "lamb", "muon")


@pytest.mark.parametrize("placement", ["post", "pre", "sub"])
def test_the_same_weights_give_the_same_update(placement: str) -> None:
    task = Task(num_tokens=8)
    config = task.on(ModelConfig(encoder=alternating(6), placement=placement, d_model=64, num_heads=2, has_affine=True))
    members = [Member(config, seed) for seed in range(3)]
    on_cpu, on_gpu = Ensemble(members), Ensemble(members, device=DEVICE)
    on_gpu.load_state_dict(on_cpu.state_dict())  # drawn by each device's own generator
    given = draw_inputs(config, task, range(3), torch.float64, "cpu")
    moved = Inputs(given.x.to(DEVICE), None, given.labels.to(DEVICE))
    here, there = (first_order(model, inputs, task, OPTIMIZERS) for model, inputs in ((on_cpu, given), (on_gpu, moved)))
    for optimizer in OPTIMIZERS:
        theirs = roles_of(on_gpu, there.functionals[optimizer])
        for role, value in roles_of(on_cpu, here.functionals[optimizer]).items():
            torch.testing.assert_close(theirs[role].cpu(), value, rtol=1e-9, atol=1e-12)


SETTINGS: dict[str, Any] = {
    "model": ModelConfig(encoder=alternating(2), d_model=32, num_heads=2, is_causal=True, norm_eps=1e-5),
    "data": DataConfig(),
    "learning_rate": 3e-3,
    "num_steps": 40,
}


def trained(device: str, seed: int, precision: str = "float32") -> float | None:
    return train(TrainConfig(**SETTINGS, seed=seed, precision=precision), device=device).held_out


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_there_ends_where_training_here_does(precision: str) -> None:
    """Weights are drawn by each device's own generator, so seeds differ."""
    here = [trained("cpu", seed) for seed in range(4)]
    there = [trained(DEVICE, seed, precision) for seed in range(4)]
    assert stats.agrees(here, there).is_agreed
    assert not stats.agrees(here, [loss + 1.0 for loss in there if loss is not None]).is_agreed


def test_a_replayed_step_is_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a CUDA graph, and where runs that diverged are taken out of it."""
    rates = [1e-3, 1e30, 3e-3, 1e30, 1e-2]
    base = TrainConfig(**SETTINGS, patience=2)
    configs = [replace(base, learning_rate=rate, seed=seed) for seed, rate in enumerate(rates)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where torch could not record it
        replayed = train_together(configs, device=DEVICE)
    monkeypatch.setattr(training, "_replay", lambda function, batch, expected: function)
    for one, other in zip(replayed, train_together(configs, device=DEVICE), strict=True):
        assert one.num_steps == other.num_steps
        if other.outcome != "diverged":
            torch.testing.assert_close(one.losses, other.losses, rtol=1e-3, atol=1e-3)


def test_a_checkpoint_goes_on_there(tmp_path: Path) -> None:
    path, config = tmp_path / "run.pt", TrainConfig(**SETTINGS)
    with pytest.raises(Killed):
        train(config, device=DEVICE, checkpoint=path, checkpoint_every=20, advance=killed_at(30))
    on, whole = train(config, device=DEVICE, checkpoint=path), train(config, device=DEVICE)
    torch.testing.assert_close(on.losses, whole.losses, rtol=1e-4, atol=1e-4)  # a GPU may add in any order
