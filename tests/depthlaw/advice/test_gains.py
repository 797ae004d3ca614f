"""What training has shown of a way of ``advise``: whose runs are taken, what is said of them, and what it does to the
order."""

import json
from dataclasses import replace
from typing import Any

import pytest

from depthlaw.advice import records
from depthlaw.advice.advice import Advice, advise
from depthlaw.advice.records import gain_of, kind_of
from depthlaw.advice.text import known_of
from depthlaw.network.network import Network
from depthlaw.recipes.catalogue import recipe
from depthlaw.sims.config import ModelConfig
from depthlaw.theory.schemes import scheme


def of(name: str) -> tuple[ModelConfig, ModelConfig]:
    """A recipe with the numbers of 4 layers, and with those of its own 8."""
    one = recipe(name)
    few, many = (Network.of_recipe(own, 8, 64).config("adamw") for own in (one.with_layers(4), one))
    return few, many


@pytest.mark.parametrize(
    ("name", "nearest", "is_same"),
    [
        ("gpt2", "gpt2", True),
        ("llama-2", "llama-2", True),
        ("llama-3", "llama-3", True),
        ("qwen-3", "llama-2", False),
        ("gpt-neox", "gpt2", False),
        ("bert", "post-ln", False),
    ],
)
def test_runs_of_the_model_itself_or_of_the_nearest_one(name: str, nearest: str, is_same: bool) -> None:
    """Norms in the same place and laws of depth of the same kind before all; then the same kind of FFN."""
    few, many = of(name)
    gain = gain_of("depth-mup", name, few, many, "adamw")
    assert gain is not None and (gain["model"], gain["is_same_model"]) == (nearest, is_same)
    assert gain["low"] < gain["mean"] < gain["high"]


def test_no_runs_of_another_optimizer_another_way_or_two_sides() -> None:
    both = of("gpt2")
    assert gain_of("learning-rates", "gpt2", *both, "adam") is not None
    assert gain_of("learning-rates", "gpt2", *both, "sgd") is None
    assert gain_of("rezero", "gpt2", *both, "adamw") is None
    two = Network(scheme=scheme("pre-ln"), num_layers=(2, 2), arch="encoder-decoder", d_model=64, has_wide_heads=True)
    assert gain_of("depth-mup", "pre-ln", two.config("adamw"), two.config("adamw"), "adamw") is None


def test_each_optimizer_has_runs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam has those of AdamW, as its first step is the same; Muon alone is not Muon beside AdamW."""
    [row] = rows()
    monkeypatch.setattr(records, "_gains", lambda: [row, row | {"optimizer": "muon+adamw", "mean": 0.3, "model": "x"}])
    both = of("gpt2")
    asked = ("adamw", "adam", "muon+adamw", "muon")
    found = {optimizer: gain_of("depth-mup", "gpt2", *both, optimizer) for optimizer in asked}
    assert {optimizer: gain and gain["mean"] for optimizer, gain in found.items()} == {
        "adamw": 0.1,
        "adam": 0.1,
        "muon+adamw": 0.3,
        "muon": None,
    }


def test_no_runs_of_a_model_of_another_form() -> None:
    """Without a final norm, with a weight on the stream, with norms at both ends of a branch or a trained vector."""
    few, config = of("llama-2")
    forms = ({"residual_weight": 2.0}, {"norms": frozenset({"pre", "branch"})}, {"has_layer_scale": True})
    others = [replace(config, encoder=tuple(replace(one, **form) for one in config.encoder)) for form in forms]
    assert gain_of("depth-mup", "mine", few, config, "adamw") is not None
    for other in (*others, replace(config, has_final=False)):
        assert gain_of("depth-mup", "mine", few, other, "adamw") is None


def test_no_runs_of_a_model_with_another_law_of_depth() -> None:
    """A branch weight that falls with depth does already what was tried on models without."""

    def of_scheme(name: str, layers: int) -> ModelConfig:
        return Network(scheme=scheme(name), num_sublayers=2 * layers, d_model=64, has_wide_heads=True).config("adamw")

    gains = {
        name: gain_of("learning-rates", "mine", of_scheme(name, 4), of_scheme(name, 8), "adamw")
        for name in ("pre-ln", "depth-mup")
    }
    assert gains["pre-ln"] is not None and gains["pre-ln"]["model"] == "pre-ln" and gains["depth-mup"] is None
    few, many = of("gpt2")
    of_attention = tuple(one if one.kind == "attention" else few.encoder[1] for one in many.encoder)
    assert kind_of(few, replace(many, encoder=of_attention))["changes_with_depth"] == ["gains"]


def test_the_embedding_is_spoken_of_before_the_last_remark() -> None:
    asked = advise(recipe="llama-3", optimizer="adamw", from_layers=2, layers=8, width=64, num_tokens=2)
    *_, before, last = asked.remarks
    assert "embedding" in before and last.startswith("a flat first step")


def advice() -> Advice:
    return advise(scheme="gpt2", optimizer="adamw", from_layers=2, layers=8, width=64, num_tokens=2)


@pytest.mark.parametrize(("verdict", "words"), [(1, "bears it out"), (0, "does not tell"), (-1, "speaks against it")])
def test_what_was_seen_of_a_way_is_said_and_written(verdict: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = dict(rows(verdict=verdict)[0])
    monkeypatch.setattr(records, "_gains", lambda: [row])
    asked = advice()
    assert f"{words}: in gpt2, 32 wide" in known_of(asked.named("depth-mup"))
    document = {remedy["name"]: remedy for remedy in json.loads(json.dumps(asked.document()))["remedies"]}
    assert document["depth-mup"]["training_gain"] == row | {"is_same_model": True}
    assert document["learning-rates"]["training_gain"] is None


def test_an_interval_around_nothing_longer_runs_and_no_runs_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows()[0] | {"mean": 0.0, "low": -0.01, "high": 0.01, "is_none": True}
    row |= {"longer": {"times": 10, "mean": 0.02, "low": -0.01, "high": 0.05, "num_seeds": 3}}
    monkeypatch.setattr(records, "_gains", lambda: [row])
    asked = advice()
    text = " ".join(str(asked).split())
    assert "no effect, 0.00 [-0.01, 0.01] nats" in text and "10 times as long 0.02 [-0.01, 0.05] nats" in text
    assert "10 times as long" in known_of(asked.named("depth-mup"))
    assert known_of(asked.named("learning-rates")).startswith("derived only") and "Derived only" in text
    row["is_none"] = False
    assert "no verdict, 0.00" in " ".join(str(advice()).split())


def rows(verdict: int = 0, **beaten_by: list[str]) -> list[dict[str, Any]]:
    """Of gpt2 as ``GAINS`` has them. beaten_by: by remedy, with _ for -."""
    shared = {
        "model": "gpt2",
        "optimizer": "adamw",
        "from_layers": 4,
        "layers": 32,
        "d_model": 32,
        "num_steps": 120,
        "num_seeds": 5,
    }
    shared |= {
        "is_post_norm": False,
        "is_gated": False,
        "changes_with_depth": ["gains"],
        "mean": 0.1,
        "low": 0.05,
        "high": 0.15,
        "verdict": verdict,
        "is_none": False,
    }
    several = beaten_by or {"depth_mup": []}
    return [shared | {"remedy": name.replace("_", "-"), "beaten_by": own} for name, own in several.items()]


def test_ways_that_were_compared_change_places_by_what_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(gains: list[dict[str, Any]]) -> list[str]:
        monkeypatch.setattr(records, "_gains", lambda: gains)
        return [remedy.name for remedy in advice().remedies]

    plain = order([])
    assert plain[:2] == ["learning-rates", "depth-mup"] and plain.index("learning-rate") > 2
    assert order(rows(learning_rates=[], depth_mup=[], learning_rate=[])) == plain
    moved = order(rows(learning_rates=["depth-mup"], depth_mup=[], learning_rate=["depth-mup", "learning-rates"]))
    assert moved == ["depth-mup", "learning-rates", *plain[2:]]
    last = order(rows(learning_rates=["learning-rate"], depth_mup=[], learning_rate=[]))
    places = [plain.index(name) for name in ("learning-rates", "depth-mup", "learning-rate")]
    assert [last[place] for place in places] == ["depth-mup", "learning-rate", "learning-rates"]
    assert [name for place, name in enumerate(last) if place not in places] == [
        name for place, name in enumerate(plain) if place not in places
    ]


def test_what_was_shown_to_gain_stands_first_and_what_was_shown_to_cost_last(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = rows(learning_rate=[])
    monkeypatch.setattr(records, "_gains", lambda: gains)
    plain = [remedy.name for remedy in advice().remedies]
    for verdict, place in ((1, 0), (-1, len(plain) - 1)):
        gains[:] = rows(verdict, learning_rate=[])
        order = [remedy.name for remedy in advice().remedies]
        assert order[place] == "learning-rate" != plain[place]
        assert [name for name in order if name != "learning-rate"] == [n for n in plain if n != "learning-rate"]


def test_a_shallower_model_has_no_runs() -> None:
    back = advise(scheme="gpt2", optimizer="adamw", from_layers=8, layers=2, width=64, num_tokens=2)
    assert advice().named("depth-mup").gain is not None
    assert all(remedy.gain is None for remedy in back.remedies)
