"""Runs that are trained together are what each is alone: to rounding, whatever becomes of the others."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from depthlaw.sims.model import ModelConfig, alternating, decoder_layers
from depthlaw.sims.training.data import DataConfig
from depthlaw.sims.training.train import TrainConfig, TrainResult, train, train_together
from tests.sims.training import BASE, FULL, Killed, killed_at, own_parallel, without_time

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "lamb", "muon", "muon+adamw")
RATES = {"sgd": 0.05, "momentum": 0.02, "lamb": 0.02}
"""Learning rates at which much changes in a few steps; of the others 0.01."""
SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 2, "ffn_ratio": 2, "has_affine": True, "norm_eps": 1e-5}


def model_of(name: str, residual_weight: float, gain: float) -> ModelConfig:
    """Of one shape whatever the numbers are."""
    numbers: dict[str, Any] = {"residual_weight": residual_weight, "gains": {"v": gain, "fc2": gain}}
    if name == "post-LN":
        rates = {"bias": 0.5}
        return ModelConfig(encoder=alternating(2, lr_multipliers=rates, **numbers), has_bias=True, **SIZES)
    if name == "gated":
        gated: dict[str, Any] = {"placement": "pre", "norm_kind": "rmsnorm", "activation": "swiglu", "rotary_base": 1e4}
        return ModelConfig(encoder=alternating(2, **numbers), num_kv_heads=1, has_qk_norm=True, **gated, **SIZES)
    decoder = decoder_layers(1, **numbers)
    return ModelConfig(encoder=alternating(2, **numbers), decoder=decoder, placement="sub", has_bias=True, **SIZES)


def configs_of(name: str, optimizer: str, data: DataConfig) -> list[TrainConfig]:
    """Three that differ in all that may differ."""
    rate = RATES.get(optimizer, 0.01)
    shared: dict[str, Any] = {"data": data, "optimizer": optimizer, "precision": "float64", "num_steps": 8}
    rest: dict[str, Any] = {"batch_size": 64, "evaluate_every": 3, "measure_at": (0, 8)}
    own: Sequence[dict[str, Any]] = (
        {"seed": 3, "learning_rate": rate, "model": model_of(name, 1.0, 1.0)},
        {"seed": 0, "learning_rate": 2 * rate, "model": model_of(name, 1.2, 0.7), "clip_norm": 0.3},
        {"seed": 3, "learning_rate": rate / 2, "model": model_of(name, 1.2, 1.0), "warmup_steps": 4},
    )
    decay: Sequence[float] = (0.1, 0.0, 0.3)
    return [TrainConfig(**shared, **rest, **one, weight_decay=w) for one, w in zip(own, decay, strict=True)]


def difference(one: Any, other: Any) -> float:
    """The largest relative difference of two documents' numbers; infinite where anything else differs."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) / max(abs(one), abs(other), 1e-6)
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        return max((difference(one[name], other[name]) for name in one), default=0.0)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return max((difference(x, y) for x, y in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else float("inf")


def end_of(configs: Sequence[TrainConfig], folder: Path) -> tuple[list[TrainResult], list[dict[str, Any]]]:
    """Results, and what each checkpoint behind the last step has of weights and of the optimizer."""
    folder.mkdir()
    paths = [folder / str(index) for index in range(len(configs))]
    results = train_together(configs, checkpoints=paths, checkpoint_every=configs[0].num_steps)
    return results, [torch.load(path, weights_only=True) for path in paths]


SHAPES = ("post-LN", "gated", "both sides")
FAST = {("sgd", "post-LN"), ("adamw", "gated"), ("muon+adamw", "gated")}
"""A step of rows, one with decay, and the two that run together."""
WIDE = {("lamb", "both sides")}
"""One of each run's own optimizer."""


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        pytest.param(*one, marks=() if one in FAST else pytest.mark.wide if one in WIDE else pytest.mark.slow)
        for one in product(OPTIMIZERS, SHAPES)
    ],
)
def test_together_is_what_each_is_alone(name: str, optimizer: str, tmp_path: Path) -> None:
    data = own_parallel(tmp_path) if name == "both sides" else DataConfig(name="digits")
    configs = configs_of(name, optimizer, data)
    together, states = end_of(configs, tmp_path / "together")
    for index, config in enumerate(configs):
        (alone,), (state,) = end_of([config], tmp_path / f"{index}")
        assert difference(without_time(together[index]), without_time(alone)) < 1e-7  # records keep eight digits
        for part, weights in state["network"].items():
            # atol: softmax is blind to a bias of the keys, whose gradient is rounding, of which adam makes steps
            torch.testing.assert_close(states[index]["network"][part], weights, rtol=1e-9, atol=1e-9)
        assert alone.num_steps == config.num_steps
    losses = [result.losses for result in together]
    assert min(difference(losses[0], losses[1]), difference(losses[0], losses[2])) > 1e-3  # they are three runs


def test_one_that_diverges_changes_nothing_for_the_others() -> None:
    """Whichever it is, and whether its loss is not finite or too large for too long."""
    base = replace(BASE, precision="float64", num_steps=9, patience=3, measure_at=(0, 1, 5))
    lost = replace(base, optimizer="sgd", learning_rate=1e30, seed=1)
    above = replace(base, optimizer="sgd", learning_rate=30.0, seed=2)
    fine = [replace(base, optimizer="sgd", learning_rate=0.05, seed=seed) for seed in (3, 4)]
    fine[1] = replace(fine[1], model=replace(BASE.model, encoder=alternating(2, residual_weight=1.5)))
    alone = {id(config): train(config) for config in (lost, above, *fine)}
    assert [alone[id(config)].num_steps < 9 for config in (lost, above, *fine)] == [True, True, False, False]
    for configs in ([fine[0], lost, above, fine[1]], [lost, above]):
        told: list[int] = []
        together = train_together(configs, advance=told.append)
        for config, result in zip(configs, together, strict=True):
            assert difference(without_time(result), without_time(alone[id(config)])) < 1e-7
        assert sum(told) == sum(result.num_steps for result in together)
        assert told[0] == len(configs) and told[-1] == max(1, len(set(map(id, configs)) & set(map(id, fine))))


def test_those_that_were_stopped_go_on_bit_for_bit(tmp_path: Path) -> None:
    """One of them diverges before the kill; of another a kill came between its checkpoint and those of the rest."""
    diverging = replace(FULL, optimizer="adam", learning_rate=1e30, num_steps=8)
    configs = [replace(FULL, num_steps=8, seed=seed) for seed in (0, 1)]
    configs.insert(1, diverging)
    whole = train_together(configs)
    assert [result.num_steps for result in whole] == [8, 2, 8]
    paths = [tmp_path / str(index) for index in range(3)]
    with pytest.raises(Killed):
        train_together(configs, checkpoints=paths, checkpoint_every=2, advance=killed_at(3 + 3 + 2 + 2 + 2))
    early = train_together(configs[:1], checkpoints=[tmp_path / "early"], checkpoint_every=2)
    assert [torch.load(path, weights_only=True)["history"]["step"] for path in paths] == [4, 2, 4]
    told: list[int] = []
    resumed = train_together(configs, checkpoints=paths, checkpoint_every=2, advance=told.append)
    assert list(map(without_time, resumed)) == list(map(without_time, whole))
    assert sum(told) == 8 + 2 + 8
    paths[0].unlink()
    mixed = train_together(configs, checkpoints=paths, checkpoint_every=2)
    assert difference(list(map(without_time, mixed)), list(map(without_time, whole))) < 1e-4  # one of them alone
    assert difference(without_time(early[0]), without_time(whole[0])) < 1e-4


def test_runs_of_several_kinds_are_refused() -> None:
    for other in (
        replace(BASE, num_steps=7),
        replace(BASE, optimizer="lion"),
        replace(BASE, batch_size=5),
        replace(BASE, model=replace(BASE.model, placement="post")),
    ):
        assert other.kind != BASE.kind
        with pytest.raises(ValueError, match="differ in their seeds and numbers alone"):
            train_together([BASE, other])
    numbers = replace(BASE.model, encoder=alternating(2, residual_weight=1.5, lr_multipliers={"bias": 2.0}))
    assert replace(BASE, seed=1, learning_rate=1.0, clip_norm=1.0, schedule="cosine", model=numbers).kind == BASE.kind
