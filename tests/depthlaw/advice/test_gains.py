"""What training has shown of a way of ``advise``: whose runs are taken, what is said of them, and what it does to the
order."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from depthlaw.advice import records
from depthlaw.advice.advice import Advice, advise
from depthlaw.advice.records import gain_of, kind_of
from depthlaw.advice.text import known_of, other_way, show
from depthlaw.network.network import Network
from depthlaw.recipes.catalogue import recipe
from depthlaw.sims.config import ModelConfig
from depthlaw.system.page import Page
from depthlaw.theory.schemes import scheme
from tests.command import told
from tests.often import often


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


@pytest.mark.parametrize(
    ("verdict", "words"), [(1, "shown it to gain"), (0, "does not tell"), (-1, "shown it to cost")]
)
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
    row |= {"halfway": {"layers": 16, "mean": 0.03, "low": 0.01, "high": 0.05, "num_seeds": 3}}
    monkeypatch.setattr(records, "_gains", lambda: [row])
    asked = advice()
    text = " ".join(str(asked).split())
    assert (
        "no effect, 0.00 [-0.01, 0.01] nats off the loss from 4 to 32 layers of gpt2 (32 wide, 120" in text
        and "after 1,200 steps 0.02 [-0.01, 0.05]; at 16 layers 0.03 [0.01, 0.05]." in text
    )
    assert "after 1,200 steps 0.02" in known_of(asked.named("depth-mup"))
    assert known_of(asked.named("learning-rates")).startswith("derived only") and "Derived only" in text
    row["is_none"] = False
    assert "no verdict, 0.00" in " ".join(str(advice()).split())
    row["learns"] = False
    assert "Trained here: no better than guessing, with it and without, 0.00" in " ".join(str(advice()).split())


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
        "transfer": {"mean": 0.02, "low": -0.03, "high": 0.07},
        "as_it_is": {"mean": 0.3, "low": 0.1, "high": 0.5},
        "verdict": verdict,
        "is_none": False,
        "learns": True,
    }
    several = beaten_by or {"depth_mup": []}
    return [shared | {"remedy": name.replace("_", "-"), "beaten_by": own} for name, own in several.items()]


def cells(text: str, column: int) -> dict[str, str]:
    """By the first cell of a row, the one in that column."""
    rows = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    return {row[0].strip(): row[column].strip() for row in rows if len(row) > abs(column)}


@pytest.mark.parametrize("columns", ["120", "80"])
def test_the_table_has_what_transfer_cost_the_later_law_and_how_far_the_runs_are(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one table, or in two where that is too wide: no interval is broken."""
    monkeypatch.setattr(records, "_gains", rows)
    monkeypatch.setenv("COLUMNS", columns)
    asked = advice()
    text = str(asked)
    later = asked.after_start(asked.named("depth-mup"))
    steps, _, training = text.partition("What training showed")
    assert bool(training) == (columns == "80")
    last = -1 if training else -3
    assert later is not None and cells(steps, last)["depth-mup"] == f"x {later:.3g}"
    for column, wanted in ((-2, ("0.10 [0.05, 0.15]", "derived only", "-")), (-1, ("0.02 [-0.03, 0.07]", "-"))):
        found = cells(training or text, column)
        assert (found["depth-mup"], found["learning-rates"]) == wanted[:2]
        assert found["nothing"] == ("-" if column == -2 else "0.30 [0.10, 0.50]")
    said = " ".join(text.split())
    assert "Trained: gpt2, 32 wide, under adamw, 4 to 32 layers, 120 steps, 5 seeds; asked: 64 wide, 2 to 8" in said


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (8, "No run here took such a model deeper under adamw, so all is derived only."),
        (2, "Training here only went deeper, so all is derived only."),
    ],
)
def test_where_nothing_like_it_was_trained_that_is_said(
    layers: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_gains", list)
    text = str(advise(scheme="gpt2", optimizer="adamw", from_layers=4, layers=layers, width=64, num_tokens=2))
    assert "Off the loss:" not in text and reason in " ".join(text.split())


def test_of_several_depths_what_training_showed_is_of_the_deepest() -> None:
    page = Page(Console(file=io.StringIO(), width=200))
    several = advise(scheme="gpt2", optimizer="adamw", from_layers=2, layers=[4, 8], width=64, num_tokens=2)
    with page.console.capture() as printed:
        show(page, several)
    text = printed.get()
    assert "The other columns are of 8 layers." in text and "asked: 64 wide, 2 to 8 layers." in text
    deepest = several[-1].named("depth-mup")
    assert deepest.gain is not None and cells(text, -2)["depth-mup"].startswith(f"{deepest.gain['mean']:z.2f} [")


def test_all_ways_of_an_answer_are_told_by_the_same_runs() -> None:
    """Of one model at one depth, all remedies of models of its kind were trained: no cell is of others than the legend
    says."""
    by_runs: dict[tuple[Any, ...], set[str]] = {}
    for row in records._gains():
        whose = row["model"], row["optimizer"], row["layers"], row["is_post_norm"]
        by_runs.setdefault(whose, set()).add(row["remedy"])
    for is_post in (False, True):
        of_kind = [remedies for whose, remedies in by_runs.items() if whose[-1] == is_post]
        assert all(remedies == of_kind[0] for remedies in of_kind)


@pytest.mark.parametrize(
    ("scheme", "optimizer", "reason"),
    often(
        [
            ("post-ln", "adamw", "failed in training in deepnorm, the one post-norm that was measured"),
            ("pre-ln", "muon+adamw", "no law of later steps was told from the first step's own"),
            ("pre-ln", "lion", "No law of later steps was held against training under lion"),
        ],
        3,
        wide=1,
    ),
)
def test_why_no_later_law_is_shown(scheme: str, optimizer: str, reason: str) -> None:
    asked = advise(scheme=scheme, optimizer=optimizer, from_layers=2, layers=4, width=64, num_tokens=2)
    assert {asked.after_start(remedy) for remedy in asked.remedies} == {None}
    assert reason in " ".join(str(asked).split()) and "Later:" not in str(asked)
    of_rule = ["--norm", scheme.removesuffix("-ln"), "--optimizer", optimizer, "--arch", "decoder", "--layers", "4"]
    assert reason in " ".join(told("rule", *of_rule).split())


@pytest.mark.parametrize(("shown", "other"), [("learning_rate", "learning-rate"), ("su_pre_adam", "depth-mup")])
def test_the_other_way_is_one_that_was_shown_to_gain(shown: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where training has shown no further one to gain, it is one of the other kind."""
    gains = rows(1, learning_rates=[]) + rows(1 if shown == "learning_rate" else 0, **{shown: []})
    monkeypatch.setattr(records, "_gains", lambda: gains)
    second = other_way(advice().remedies)
    assert second is not None and second.name == other


@pytest.mark.parametrize(("scheme", "factor"), [("depth-mup", 0.5), ("completep", None)])
def test_a_way_at_both_depths_says_its_learning_rates_too(scheme: str, factor: float | None) -> None:
    """As its code has them; completep's are the same at any depth."""
    asked = advise(scheme="pre-ln", optimizer="adamw", from_layers=2, layers=8, width=64, num_tokens=2)
    way = asked.named(f"{scheme} at both depths")
    told = [change for change in way.changes if "learning rate of" in change]
    assert told == ([] if factor is None else [f"learning rate of the branches x {factor:g} from 2 to 8 layers"])
    assert way.rates["fc2"] == pytest.approx(1.0 if factor is None else factor)


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
