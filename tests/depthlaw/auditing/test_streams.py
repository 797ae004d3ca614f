"""What a real MM-DiT of two streams does at its start, beside the one stream of recipe sd3."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from depthlaw.advice.own import OwnNetwork
from depthlaw.auditing.audit import audit
from depthlaw.auditing.updates import as_config
from depthlaw.network.network import Network
from depthlaw.recipes.catalogue import recipe
from depthlaw.sims.model import Transformer
from tests.depthlaw.auditing.gallery_field import zero_gates
from tests.depthlaw.auditing.gallery_streams import SHAPE, MMDiT, live, sd3
from tests.depthlaw.auditing.transformer import Matrix, start, xavier

WIDTH, SEEDS, TOKENS = 128, 24, (5, 3)


def of_sd3(matrix: Matrix) -> float:
    return (2 * WIDTH) ** -0.5 if matrix.role in ("q", "k", "v") else xavier(matrix)


def gates_moved(num_layers: int, seed: int) -> dict[str, float]:
    """By stream, the update of the gates' biases under AdamW; and of all else in the blocks but these."""
    torch.manual_seed(seed)
    module = MMDiT(replace(SHAPE, d_model=WIDTH, ffn_width=4 * WIDTH), num_layers)
    start(module, of_sd3)
    zero_gates(module)
    stream = math.sqrt(recipe("sd3").config(num_layers, WIDTH, 2).embedding_std ** 2 / 8)
    nn.init.normal_(module.x_embedder.weight, std=stream)
    x, context = (torch.randn(1, number, size) for number, size in zip(TOKENS, (8, 12), strict=True))
    logit = module(x, context, torch.tensor([0.3]), torch.tensor([3]))[0, -1, 0]
    trained = dict(module.named_parameters())
    gradients = dict(zip(trained, torch.autograd.grad(logit, list(trained.values()), allow_unused=True), strict=True))
    moved = {"image": 0.0, "text": 0.0, "rest": 0.0}
    for name, gradient in gradients.items():
        side, *_, part = name.split(".")
        if gradient is None or side not in moved:
            continue
        if "modulation" in name and part == "bias":
            moved[side] += gradient.chunk(3)[2].abs().sum().item() / math.sqrt(WIDTH)
        elif "modulation" not in name:
            moved["rest"] += gradient.abs().sum().item()
    return moved


@pytest.mark.wide
@pytest.mark.parametrize("num_layers", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_the_first_step_of_two_streams_is_that_of_one_with_the_tokens_of_both(num_layers: int) -> None:
    """Gates of 0 let the text's stream, and its gates, give nothing to the output."""
    every = [gates_moved(num_layers, seed) for seed in range(SEEDS)]
    assert all(moved["text"] == moved["rest"] == 0 for moved in every)
    values = torch.tensor([moved["image"] for moved in every], dtype=torch.float64)
    network = Network.of_recipe(recipe("sd3"), num_layers, WIDTH, num_tokens=sum(TOKENS))
    predicted = network.kernel_update("adamw").roles["layer_scale"]
    assert abs(values.mean().item() - predicted) < 3 * values.std().item() / math.sqrt(SEEDS)
    assert values.std().item() / math.sqrt(SEEDS) < 0.1 * predicted


def test_a_recipe_of_two_streams_is_none_of_a_module_of_one_and_the_other_way_round() -> None:
    with pytest.raises(
        ValueError, match="dit has one stream, and the module has 2 streams that share their attentions"
    ):
        audit(sd3.build, (2,), recipe="dit", inputs=sd3.inputs, measures=False)


def test_there_is_no_advice_for_two_streams() -> None:
    audited = audit(live.build, (2,), inputs=live.inputs, measures=False, has_nearest=False)
    with pytest.raises(ValueError, match="there is no advice for MMDiT: its streams share their attentions"):
        OwnNetwork.of(audited, audited.depths[0])
    with pytest.raises(ValueError, match="streams side by side, which share their attentions, are audited"):
        Transformer(as_config(audited.depths[0].built), 0)


def test_both_streams_are_measured_and_no_prediction_is_made_of_them() -> None:
    answer = audit(live.build, (2, 4), inputs=live.inputs, seeds=1, has_nearest=False)
    (own, *_), sides = answer.depths[0].updates, answer.depths[0].built.sides
    assert own["update"] == pytest.approx(sum(own[f"{side}/update"] for side in sides))
    assert all(own[f"{side}/{role}"] > 0 for side in sides for role in ("k", "v", "out", "fc1", "fc2"))
    assert not answer.predicted and "its streams share their attentions" in " ".join(answer.remarks)
