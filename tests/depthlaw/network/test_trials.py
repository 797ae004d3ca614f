"""Named training runs: what decides one, what it is lowered to, and that it is the same run wherever it is executed."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from depthlaw.network import trials
from depthlaw.network.trials import SHAPES, Change, Trial, execute, kind_of
from depthlaw.paper_checks.papers.deepnet.runs import layers
from depthlaw.recipes.catalogue import recipe
from depthlaw.sims.ensemble import SHARE, Member
from depthlaw.sims.model import MATRICES
from depthlaw.sims.training.data import load
from depthlaw.sims.training.frontend import Network
from depthlaw.sims.training.store import key
from depthlaw.sims.training.train import TrainConfig, train

TINY: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_tokens": 8, "batch_size": 64, "num_steps": 3}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """On a text of its own, which is read at once."""
    return Trial(scheme="deepnorm", text=own_text(tmp_path), measure_at=(0, 2), **TINY)


def own_text(folder: Path, last: int = 9_999) -> str:
    path = folder / "own.txt"
    path.write_text(" ".join(str(number * number) for number in range(last + 1)), encoding="utf-8")
    return str(path)


def own_pairs(folder: Path) -> tuple[str, str]:
    for name, power in (("source", 2), ("target", 3)):
        (folder / name).write_text("\n".join(str(number**power) for number in range(100)), encoding="utf-8")
    return str(folder / "source"), str(folder / "target")


OTHER: dict[str, Any] = {
    "scheme": "post-ln",
    "d_model": 16,
    "optimizer": "sgd",
    "shape": "bert",
    "activation": "relu",
    "norm_kind": "rmsnorm",
    "learning_rate": 2e-3,
    "warmup_from": 0.5,
    "schedule": "linear",
    "weight_decay": 0.1,
    "clip_norm": 1.0,
    "precision": "float64",
    "measure_at": (0,),
    "warmup_steps": 2,
    "seed": 1,
    "num_heads": 4,
    "num_tokens": 7,
    "change": Change(name="mine", from_layers=1, numbers=(("ffn.lr_multipliers.fc2", 0.5), ("ffn.branch_weight", 0.5))),
}
"""Of each field another value; of those left out, one more."""


def test_every_field_decides(trial: Trial) -> None:
    base = key(trial.named())
    for one in fields(Trial):
        if one.name not in ("num_decoder_layers", "text", "parallel"):
            value = OTHER[one.name] if one.name in OTHER else vars(trial)[one.name] + 1
            assert key(replace(trial, **{one.name: value}).named()) != base, one.name


def test_a_trial_has_a_name_and_a_name_its_trial(trial: Trial) -> None:
    named = trial.named()
    assert json.loads(json.dumps(named)) == named
    assert set(named) == {one.name for one in fields(Trial)} - {"has_moves", "change"} | {"numbers", "data"}
    assert named["data"] == load(trial.lower().data).digest
    assert Trial.of(named) == trial
    with_moves = replace(trial, has_moves=True)
    assert with_moves.named() == named | {"has_moves": True}  # a run from before there were any keeps its name
    assert Trial.of(with_moves.named()) == with_moves
    changed = replace(trial, change=OTHER["change"])
    assert Trial.of(json.loads(json.dumps(changed.named(), sort_keys=True))) == changed
    for wrong in ({**named, "width": 8}, {name: value for name, value in named.items() if name != "seed"}):
        with pytest.raises(ValueError, match=r"^a trial has no width$|^a trial without seed$"):
            Trial.of(wrong)


def test_the_decoder_has_as_many_layers_as_the_encoder_where_nothing_is_said(tmp_path: Path) -> None:
    left_out = Trial(scheme="pre-ln", shape="nmt", parallel=own_pairs(tmp_path), **TINY)
    said, others = replace(left_out, num_decoder_layers=2), replace(left_out, num_decoder_layers=3)
    assert key(left_out.named()) == key(said.named()) != key(others.named())
    assert Trial.of(left_out.named()) == left_out == said
    assert hash(left_out) == hash(Trial.of(said.named()))
    assert (left_out.num_sublayers, others.num_sublayers) == (10, 13)


def test_a_change_is_what_stands_between_two_networks() -> None:
    plain = Trial(scheme="gpt2", num_layers=6, d_model=8)
    before, wanted = plain.lower().model, replace(plain, scheme="depth-mup").lower().model
    change = Change.between("mine", 2, before, wanted, {"out": 0.123456, "norm_gain": 3.0})
    by_key = dict(change.numbers)
    rate = wanted.encoder[0].lr_multipliers["out"]
    assert by_key["attention.lr_multipliers.out"] == float(f"{0.123456 * rate:.3g}")
    changed = replace(plain, change=change).lower().model
    for one, other in zip(changed.encoder, wanted.encoder, strict=True):
        assert (one.branch_weight, one.residual_weight) == (other.branch_weight, other.residual_weight)
        assert all(one.gains.get(role, 1.0) == other.gains.get(role, 1.0) for role in MATRICES[one.kind])
    assert Change.between("none", 2, before, before, {}).numbers == ()


@pytest.mark.parametrize("key_", ["ffn.branch_weight.fc2", "ffn.gains", "ffn.kind"])
def test_a_change_of_what_there_is_not(key_: str) -> None:
    with pytest.raises(ValueError, match=f"^a change has no {key_}$"):
        Trial(scheme="pre-ln", change=Change(name="mine", from_layers=1, numbers=((key_, 1.0),))).lower()


def network_of(config: TrainConfig, num_members: int = 1) -> Network:
    return Network([Member(config.model, seed) for seed in range(num_members)], load(config.data))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_a_network_for_its_data(shape: str, tmp_path: Path) -> None:
    text = {"text": own_text(tmp_path)}
    own: dict[str, dict[str, Any]] = {"gpt": text, "bert": text, "nmt": {"parallel": own_pairs(tmp_path)}}
    config = Trial(scheme="deepnorm", shape=shape, **TINY, **own.get(shape, {})).lower()
    batch = load(config.data).batch(2, 0, 0)
    decoder_inputs = None if batch.decoder_inputs is None else batch.decoder_inputs[None]
    assert network_of(config)(batch.inputs[None], decoder_inputs).shape[1:3] == batch.labels.shape
    assert config.model.is_causal == shape.startswith("gpt")
    assert (len(config.model.encoder), len(config.model.decoder)) == (4, 6 if shape == "nmt" else 0)
    assert config.model.has_affine and config.model.has_bias and config.model.norm_eps == 1e-5


@pytest.mark.parametrize(("shape", "in_layer"), [("nmt", (2, 3)), ("gpt", (2, 0))])
def test_post_ln_init_is_the_one_of_the_record(shape: str, in_layer: tuple[int, int]) -> None:
    """As the recorded networks of DN-13 have it, which are written elsewhere."""
    config = Trial(scheme="post-ln-init", shape=shape, num_layers=3).lower().model
    assert config.placement == "post"
    sides = zip((config.encoder, config.decoder), in_layer, layers("post-ln-init", 3), strict=True)
    for sublayers, size, side in sides:
        for index, sublayer in enumerate(sublayers):
            weight, gain = side[index // size]
            assert sublayer.residual_weight == weight
            assert sublayer.gains == dict.fromkeys(MATRICES[sublayer.kind], gain)


@pytest.mark.parametrize(("name", "has_table"), [("llama-3", False), ("gpt2", True)])
def test_a_recipe_trains_from_its_own_start(name: str, has_table: bool, trial: Trial) -> None:
    """Its weights and its input's standard deviation; one with rotary positions has no table of them."""
    chosen = replace(trial, scheme=f"recipe:{name}", num_heads=4, d_model=32, norm_kind="layernorm")
    config = recipe(name).config(chosen.num_layers, 32, 4, optimizer=chosen.optimizer)
    model = chosen.lower().model
    assert model == replace(config, norm_eps=1e-5)
    network = network_of(chosen.lower(), 40)
    assert ("positions" in network.tables) is has_table
    several, _ = network.vectors(torch.zeros(40, 1, 1).long())
    assert several.std().item() == pytest.approx(model.embedding_std, rel=0.1)
    assert execute([replace(chosen, num_steps=2).named()])[0]["num_steps"] == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scheme": ({"scheme": "postln"}, "did you mean post-ln or post-ln-init"),
    "recipe": ({"scheme": "recipe:llama"}, "did you mean llama-3 or llama-2"),
    "recipe of another kind": ({"scheme": "recipe:bert"}, "recipe bert is of encoder kind, and shape gpt wants"),
    "optimizer": ({"optimizer": "adm"}, "did you mean adam"),
    "no layers": ({"num_layers": 0}, "num_layers is a whole number from 1, not 0"),
    "true layers": ({"num_layers": True}, "num_layers is a whole number from 1, not True"),
    "warmup": ({"warmup_steps": 4}, "warmup_steps is from 0 to num_steps, 3, not 4"),
    "seed": ({"seed": -1}, "seed is at least 0"),
    "no such file": ({"text": "there-is-none.txt"}, "there-is-none.txt"),
    "no encoder-decoder": ({"scheme": "su-adam", "shape": "nmt"}, "its source prints no encoder-decoder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(case: str) -> None:
    change, text = REFUSED[case]
    with pytest.raises(ValueError, match=r"\S") as caught:
        Trial(**{"scheme": "deepnorm", **TINY, **change}).named()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def test_a_run_is_the_same_each_time_and_goes_on_from_its_checkpoint(trial: Trial, tmp_path: Path) -> None:
    """The same numbers each time, and from a checkpoint; the checkpoint goes with the run."""
    named = trial.named()
    (first,) = execute([named])
    assert first["num_steps"] == 3 and [look["step"] for look in first["looks"]] == [0, 2]
    assert without_time(execute([named])[0]) == without_time(first)
    checkpoint = tmp_path / f"{key(named)}.pt"

    seen: list[int] = []

    def stop(num_steps: int) -> None:
        seen.append(num_steps)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trial.lower(), checkpoint=checkpoint, checkpoint_every=1, advance=stop)
    assert checkpoint.exists()
    assert without_time(execute([named], checkpoints=tmp_path, checkpoint_every=1)[0]) == without_time(first)
    assert not checkpoint.exists()


@pytest.mark.wide
def test_runs_that_differ_in_numbers_alone_are_of_one_kind(trial: Trial) -> None:
    """And they are trained together as each is alone; as many at once as fit into a worker's memory."""
    others = [replace(trial, **one) for one in ({"seed": 1}, {"scheme": "post-ln"}, {"learning_rate": 2e-3})]
    kind = kind_of(trial.named(), free=2**33)
    assert [kind_of(other.named(), free=2**33) for other in others] == [kind] * 3
    for one in ({"scheme": "pre-ln"}, {"num_layers": 3}, {"optimizer": "sgd"}, {"num_steps": 4}, {"batch_size": 3}):
        assert kind_of(replace(trial, **one).named(), free=2**33).name != kind.name
    several = [other.named() for other in others[:2]]
    alone = [execute([named])[0] for named in several]
    for one, other in zip(execute(several), alone, strict=True):
        assert one["losses"] == pytest.approx(other["losses"], rel=1e-5)
        assert one["looks"][0]["update"] == pytest.approx(other["looks"][0]["update"], rel=1e-6)
    assert kind.most == trials.TOGETHER
    for room, most in ((2.5, 2), (0.5, 1), (100, trials.TOGETHER)):
        assert kind_of(trial.named(), free=int(room * trials.least_bytes(trial) / SHARE)).most == most


@pytest.mark.parametrize("name", ["numbers", "data"])
def test_other_numbers_and_other_data_are_refused(trial: Trial, name: str) -> None:
    named = trial.named()
    with pytest.raises(ValueError, match=rf"{named[name]} here, not 1234"):
        execute([named, {**named, name: "1234"}])


def test_a_checkpoint_of_several_processes_is_not_passed_over(trial: Trial, tmp_path: Path) -> None:
    """Nor removed: whoever goes on with it loses nothing."""
    named = trial.named()
    of_several = tmp_path / key(named)
    (of_several / "000000000001").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"is a checkpoint of several processes: go on under torchrun"):
        execute([named], checkpoints=tmp_path, checkpoint_every=1)
    assert of_several.exists()


@pytest.mark.wide
def test_memory_is_that_of_weights_and_graph(trial: Trial) -> None:
    """Of the plan, which tests/sims/test_plan.py holds against what torch holds: grows with the optimizer's state, the
    precision and the batch."""
    trial = replace(trial, d_model=64, batch_size=1, measure_at=())  # which is in float64 at any precision
    network = network_of(trial.lower())
    num_bytes = 4 * sum(parameter.numel() for parameter in network.parameters())
    least = trials.least_bytes(trial)
    assert least > trials.least_bytes(replace(trial, optimizer="sgd")) > 2 * num_bytes
    assert least > 4 * num_bytes > trials.least_bytes(trial, num_devices=1000)
    larger = replace(trial, batch_size=1000)
    assert trials.least_bytes(larger, recomputes=True) < trials.least_bytes(larger)
    assert 1.9 * least < trials.least_bytes(replace(trial, precision="float64")) < 2 * least  # tokens are as wide
    assert trials.least_bytes(larger) > 10 * least
    for asked in ([trial, larger], [larger, trial]):
        with pytest.raises(ValueError, match=r"with 1000 x 8 tokens take .* GiB or more to train by adam; 0\.\d GiB"):
            trials.check_memory(asked, trials.least_bytes(larger) - 1, "on cpu")
        assert trials.check_memory(asked, 3 * trials.least_bytes(larger) - 1, "on cpu") == 2
