"""Named training runs: what decides one, what it is lowered to, and that it is the same run wherever it is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paper_checks.lowering import lower, trials
from paper_checks.lowering.trials import SHAPES, Trial, execute
from paper_checks.papers.deepnet.runs import layers
from paper_checks.recipes.catalogue import recipe
from sims import ensemble
from sims.model import MATRICES, ModelConfig
from sims.training.data import load
from sims.training.frontend import Network
from sims.training.store import key
from sims.training.train import train

TINY: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_tokens": 8, "batch_size": 2, "num_steps": 3}


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


# ---------------------------------------------------------------- what decides a run

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
}
"""Of each field another value; of those left out, one more."""


def other(trial: Trial, name: str) -> Any:
    return OTHER[name] if name in OTHER else vars(trial)[name] + 1


def check_every_field_decides(trial: Trial) -> None:
    base = key(trial.named())
    for one in fields(Trial):
        if one.name not in ("num_decoder_layers", "text", "parallel"):
            assert key(replace(trial, **{one.name: other(trial, one.name)}).named()) != base, one.name


def check_names(trial: Trial) -> None:
    named = trial.named()
    assert json.loads(json.dumps(named)) == named
    assert set(named) == {one.name for one in fields(Trial)} | {"numbers", "data"}
    assert named["data"] == load(trial.lower().data).digest
    assert Trial.of(named) == trial
    assert Trial.of(named).named() == named


def test_every_field_decides(trial: Trial) -> None:
    check_every_field_decides(trial)


def test_a_trial_has_a_name_and_a_name_its_trial(trial: Trial) -> None:
    check_names(trial)


def test_the_decoder_has_as_many_layers_as_the_encoder_where_nothing_is_said(tmp_path: Path) -> None:
    left_out = Trial(scheme="pre-ln", shape="nmt", parallel=own_pairs(tmp_path), **TINY)
    said, others = replace(left_out, num_decoder_layers=2), replace(left_out, num_decoder_layers=3)
    assert key(left_out.named()) == key(said.named()) != key(others.named())
    assert Trial.of(left_out.named()) == left_out == said
    assert {left_out: 1}[Trial.of(said.named())] == 1, "and has one hash"
    assert (left_out.num_sublayers, others.num_sublayers) == (10, 13)


def test_a_name_with_more_or_less_is_refused(trial: Trial) -> None:
    named = trial.named()
    with pytest.raises(ValueError, match=r"^a trial has no width$"):
        Trial.of({**named, "width": 8})
    with pytest.raises(ValueError, match=r"^a trial without seed$"):
        Trial.of({name: value for name, value in named.items() if name != "seed"})


# ---------------------------------------------------------------- what it is lowered to


def check_shapes(folder: Path) -> None:
    text, pairs = own_text(folder), own_pairs(folder)
    own: dict[str, dict[str, Any]] = {"gpt": {"text": text}, "bert": {"text": text}, "nmt": {"parallel": pairs}}
    for shape in SHAPES:
        config = Trial(scheme="deepnorm", shape=shape, **TINY, **own.get(shape, {})).lower()
        network = Network(config.model, load(config.data), seed=0)
        batch = load(config.data).batch(2, 0, 0)
        assert network(batch.inputs, batch.decoder_inputs).shape[:2] == batch.labels.shape
        assert config.model.is_causal == (shape == "gpt")
        assert (len(config.model.encoder), len(config.model.decoder)) == (4, 6 if shape == "nmt" else 0)
        assert config.model.has_affine and config.model.has_bias and config.model.norm_eps == 1e-5


def test_every_shape_has_a_network_for_its_data(tmp_path: Path) -> None:
    check_shapes(tmp_path)


def model(scheme: str, **rest: Any) -> ModelConfig:
    return Trial(scheme=scheme, **rest).lower().model


def check_post_ln_init() -> None:
    """As the recorded networks of DN-13 have it, which are written elsewhere."""
    for shape, in_layer in (("nmt", (2, 3)), ("gpt", (2, 0))):
        found = model("post-ln-init", shape=shape, num_layers=3)
        for sublayers, size, side in zip(
            (found.encoder, found.decoder), in_layer, layers("post-ln-init", 3), strict=True
        ):
            for index, sublayer in enumerate(sublayers):
                weight, gain = side[index // size]
                assert sublayer.residual_weight == weight
                assert sublayer.gains == dict.fromkeys(MATRICES[sublayer.kind], gain)
        assert found.placement == "post"
    uneven = model("post-ln-init", shape="nmt", num_layers=1, num_decoder_layers=2)
    assert [one.gains["fc1"] for one in uneven.decoder if one.kind == "ffn"] == [0.5, 1]


def test_post_ln_init_is_the_one_of_the_record() -> None:
    check_post_ln_init()


@pytest.mark.parametrize(
    ("scheme", "placement"),
    [
        ("post-ln", "post"),
        ("pre-ln", "pre"),
        ("normformer", "normformer"),
        ("sub-ln-gamma", "sub"),
        ("deepnorm", "post"),
        ("admin", "post"),
        ("post-ln-init", "post"),
    ],
)
def test_schemes_that_are_compared_on_translation_have_an_encoder_decoder(scheme: str, placement: str) -> None:
    found = model(scheme, shape="nmt", num_layers=18)
    assert (len(found.encoder), len(found.decoder), found.placement) == (36, 54, placement)
    deeper = model(scheme, shape="nmt", num_layers=36)
    is_scaled = scheme in ("sub-ln-gamma", "deepnorm", "admin", "post-ln-init")
    first, second = (
        [(one.residual_weight, dict(one.gains)) for one in (*stack.encoder[-2:], *stack.decoder[:3])]
        for stack in (found, deeper)
    )
    assert (first != second) == is_scaled


@pytest.mark.parametrize(("name", "has_table"), [("llama-3", False), ("gpt2", True)])
def test_a_recipe_trains_from_its_own_start(name: str, has_table: bool, trial: Trial) -> None:
    """Its weights and its input's standard deviation; one with rotary positions has no table of them."""
    chosen = replace(trial, scheme=f"recipe:{name}", num_heads=4, d_model=32, norm_kind="layernorm")
    config = recipe(name).config(chosen.num_layers, 32, 4, optimizer=chosen.optimizer)
    model = chosen.lower().model
    assert model == replace(config, norm_eps=1e-5)
    data = load(chosen.lower().data)
    network = Network(model, data, 0)
    assert ("positions" in network.tables) is has_table
    several = torch.cat([Network(model, data, seed).vectors(torch.zeros(1, 1).long())[0] for seed in range(40)])
    assert several.std().item() == pytest.approx(model.embedding_std, rel=0.1)
    assert execute(replace(chosen, num_steps=2).named())["num_steps"] == 2


# ---------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scheme": ({"scheme": "postln"}, "did you mean post-ln or post-ln-init"),
    "recipe": ({"scheme": "recipe:llama"}, "did you mean llama-3 or llama-2"),
    "recipe of another kind": ({"scheme": "recipe:bert"}, "recipe bert is of encoder kind, and shape gpt wants"),
    "shape": ({"shape": "bart"}, "shape is one of gpt, bert, nmt"),
    "optimizer": ({"optimizer": "adm"}, "did you mean adam"),
    "schedule": ({"schedule": "step"}, "schedule is one of constant, linear"),
    "precision": ({"precision": "float16"}, "precision is one of"),
    "activation": ({"activation": "elu"}, "elu"),
    "norm kind": ({"norm_kind": "batchnorm"}, "batchnorm"),
    "no layers": ({"num_layers": 0}, "num_layers is a whole number from 1, not 0"),
    "half a layer": ({"num_layers": 1.5}, "num_layers is a whole number from 1, not 1.5"),
    "true layers": ({"num_layers": True}, "num_layers is a whole number from 1, not True"),
    "heads": ({"num_heads": 3}, "d_model 8 is not a multiple of num_heads 3"),
    "rate of 0": ({"learning_rate": 0.0}, "learning_rate is a positive number"),
    "infinite rate": ({"learning_rate": math.inf}, "learning_rate is a positive number"),
    "no rate": ({"learning_rate": math.nan}, "learning_rate is a positive number"),
    "warmup": ({"warmup_steps": 4}, "warmup_steps is from 0 to num_steps, 3, not 4"),
    "clip": ({"clip_norm": 0.0}, "clip_norm is positive"),
    "measured too late": ({"measure_at": (4,)}, "measure_at has steps from 0 to num_steps, 3, not 4"),
    "seed": ({"seed": -1}, "seed is at least 0"),
    "tokens": ({"num_tokens": 10**6}, "num_tokens is a whole number from 1 to"),
    "text with vit": ({"shape": "vit", "text": "a.txt"}, "text belongs to gpt and bert, not to vit"),
    "pairs with gpt": ({"parallel": ("a", "b")}, "parallel belongs to nmt, not to gpt"),
    "no such file": ({"text": "there-is-none.txt"}, "there-is-none.txt"),
    "decoder of gpt": ({"num_decoder_layers": 2}, "num_decoder_layers belongs to the shape nmt, not to gpt"),
    "no encoder-decoder": ({"scheme": "su-adam", "shape": "nmt"}, "its source prints no encoder-decoder"),
    "gamma of one": ({"scheme": "sub-ln-gamma", "num_layers": 0}, "num_layers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(case: str) -> None:
    change, text = REFUSED[case]
    with pytest.raises(ValueError, match=r"\S") as caught:
        Trial(**{"scheme": "deepnorm", **TINY, **change}).named()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- running it


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def check_execute(trial: Trial, folder: Path) -> None:
    """The same numbers each time, and from a checkpoint; the checkpoint goes with the run."""
    named = trial.named()
    first = execute(named)
    assert first["num_steps"] == 3 and [look["step"] for look in first["looks"]] == [0, 2]
    assert without_time(execute(named)) == without_time(first)
    checkpoint = folder / f"{key(named)}.pt"
    seen: list[int] = []

    def stop(num_steps: int) -> None:
        seen.append(num_steps)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trial.lower(), checkpoint=checkpoint, checkpoint_every=1, advance=stop)
    assert checkpoint.exists()
    assert without_time(execute(named, checkpoints=folder, checkpoint_every=1)) == without_time(first)
    assert not checkpoint.exists()


def test_a_run_is_the_same_each_time_and_goes_on_from_its_checkpoint(trial: Trial, tmp_path: Path) -> None:
    check_execute(trial, tmp_path)


def check_other_numbers_are_refused(trial: Trial) -> None:
    named = trial.named()
    for name in ("numbers", "data"):
        with pytest.raises(ValueError, match=rf"{named[name]} here, not 1234"):
            execute({**named, name: "1234"})


def test_other_numbers_and_other_data_are_refused(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    check_other_numbers_are_refused(trial)
    monkeypatch.setattr(lower, "digest_of_numbers", lambda model: "1234")
    with pytest.raises(pytest.fail.Exception):
        check_other_numbers_are_refused(trial)


def test_another_text_of_that_name_is_refused(trial: Trial, tmp_path: Path) -> None:
    named = trial.named()
    own_text(tmp_path, last=9_000)
    load.cache_clear()  # as in another process
    with pytest.raises(ValueError, match=r"^deepnorm: the data of this run are"):
        execute(named)


# ---------------------------------------------------------------- what the tests find

_ASDICT, _BY_LAYER = trials.asdict, trials._by_layer
MUTANTS: dict[str, tuple[str, Any, Callable[[Trial, Path], None]]] = {
    "a name without the seed": (
        "asdict",
        lambda trial: {**_ASDICT(trial), "seed": 0},
        lambda trial, _: check_every_field_decides(trial),
    ),
    "a tuple in a name": ("list", tuple, lambda trial, _: check_names(trial)),
    "layers counted from the wrong end": (
        "_by_layer",
        lambda sublayers, size: _BY_LAYER(sublayers, size)[::-1],
        lambda *_: check_post_ln_init(),
    ),
    "three sublayers in each layer": (
        "_by_layer",
        lambda sublayers, _: _BY_LAYER(sublayers, 3),
        lambda *_: check_post_ln_init(),
    ),
    "gpt is not causal": (
        "SHAPES",
        {**SHAPES, "gpt": SHAPES["bert"]},
        lambda _, folder: check_shapes(folder),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value, check = MUTANTS[mutant]
    monkeypatch.setattr(trials, name, value, raising=name != "list")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(trial, tmp_path)


# ---------------------------------------------------------------- memory


def check_memory_of(trial: Trial) -> None:
    """Four copies of the network's weights under adam, in their precision, and a graph that grows with the batch."""
    network = Network(trial.lower().model, load(trial.lower().data), seed=0)
    num_bytes = 4 * sum(parameter.numel() for parameter in network.parameters())
    found = trials.least_bytes(trial)
    assert found > 4 * num_bytes
    assert found > trials.least_bytes(replace(trial, optimizer="sgd")) > 3 * num_bytes
    assert trials.least_bytes(replace(trial, precision="float64")) == 2 * found
    assert trials.least_bytes(replace(trial, batch_size=1000)) > 10 * found
    with pytest.raises(ValueError, match="or more to train by adam"):
        trials.check_memory([trial, replace(trial, batch_size=10**12)], "cpu")
    trials.check_memory([trial], "cpu")


def test_memory_is_that_of_weights_and_graph(trial: Trial) -> None:
    check_memory_of(replace(trial, d_model=64, batch_size=1))


def test_an_estimate_without_the_weights_is_found(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "num_parameters", lambda config: 0)
    with pytest.raises(AssertionError):
        check_memory_of(replace(trial, d_model=64, batch_size=1))


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_is_known_of_every_shape(shape: str, trial: Trial) -> None:
    fixed = replace(trial, shape=shape, text=None)
    assert trials.least_bytes(fixed) < trials.least_bytes(replace(fixed, num_layers=4))
