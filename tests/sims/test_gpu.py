"""The GPU lane (``make gpu``): the same numbers on a GPU as on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sims import stats
from sims.ensemble import Ensemble, Member
from sims.measure import Question, choose_device, device_name, run
from sims.model import ModelConfig, SublayerConfig, alternating
from sims.update import Inputs, Task, draw_inputs, first_order, roles_of

pytestmark = pytest.mark.gpu
OPTIMIZERS = ("sgd", "adam", "lamb", "muon")


@pytest.mark.parametrize("placement", ["post", "pre", "sub"])
def test_the_same_weights_give_the_same_update(placement: str) -> None:
    task = Task(num_tokens=8)
    config = task.on(ModelConfig(encoder=alternating(6), placement=placement, d_model=64, num_heads=2, has_affine=True))
    members = [Member(config, seed) for seed in range(3)]
    on_cpu, on_gpu = Ensemble(members), Ensemble(members, device="cuda")
    on_gpu.load_state_dict(on_cpu.state_dict())  # drawn by each device's own generator
    given = draw_inputs(config, task, range(3), torch.float64, "cpu")
    moved = Inputs(given.x.cuda(), None, given.labels.cuda())
    found, same = (first_order(model, inputs, task, OPTIMIZERS) for model, inputs in ((on_cpu, given), (on_gpu, moved)))
    for optimizer in OPTIMIZERS:
        theirs = roles_of(on_gpu, same.functionals[optimizer])
        for role, value in roles_of(on_cpu, found.functionals[optimizer]).items():
            torch.testing.assert_close(theirs[role].cpu(), value, rtol=1e-9, atol=1e-12)


def test_what_is_drawn_there_is_of_the_same_distribution() -> None:
    config = ModelConfig(encoder=tuple(SublayerConfig(kind="ffn") for _ in range(16)), d_model=256, ffn_ratio=1)
    question = Question(config=config, optimizers=("sgd",))
    here, there = (
        [u for result in run(replace(question, device=device), range(64)) for u in result.values["sgd/update"]]
        for device in ("cpu", "cuda")
    )
    assert stats.agrees(here, there).is_agreed
    assert not stats.agrees(here, [1.5 * u for u in there]).is_agreed


def test_auto_takes_it_and_names_it() -> None:
    assert choose_device("auto") == "cuda"
    assert device_name("cuda") == torch.cuda.get_device_name()
