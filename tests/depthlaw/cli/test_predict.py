"""``depthlaw predict --attention``: its document, that every option counts, what people read, and its figures."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depthlaw.cli.shared.network_options import MOST_TOKENS
from depthlaw.network import kernel as kernel_network
from depthlaw.network import predicted_rows
from depthlaw.network.lower import lower_transformer
from depthlaw.network.predicted_rows import NO_ORDER
from depthlaw.paper_checks.pages import plots
from depthlaw.paper_checks.pages.drawing import Drawing, save
from depthlaw.sims.model import BRANCH_ROLES, OTHER_ROLES
from depthlaw.sims.optim import NORMALISATION
from depthlaw.theory.kernel import setting
from depthlaw.theory.kernel.after_start import LAWS, made, predict_after_start
from depthlaw.theory.kernel.predict import Inputs, predict_kernel
from tests.command import depthlaw, document, told

ONE = "--scheme pre-ln --optimizer sgd --sublayers 2 --attention --tokens 3"
SEVERAL = "--scheme deepnorm --optimizer adam --sublayers 2,4,8 --attention --tokens 3"
IN_LAYERS = "--scheme deepnorm --optimizer adam --layers 1,4 --attention --tokens 3"
BOTH_SIDES = (
    "--scheme pre-ln --optimizer lamb --arch encoder-decoder --layers 1,2 --decoder-layers 1,1 --attention --tokens 2"
)


def printed(options: str, columns: int = 80) -> str:
    return told("predict", *options.split(), COLUMNS=str(columns))


@cache
def answer(options: str) -> dict[str, Any]:
    return document("predict", *options.split())


# ---------------------------------------------------------------- the document


def test_shape() -> None:
    found = answer(SEVERAL)
    keys = "schema_version scheme optimizer activation norm_kind network unit rows leading_order exponents "
    assert set(found) == {*(keys + "is_power_law lr_multiplier role_units shares embedding holds").split()}
    assert found["leading_order"] == NO_ORDER
    order = answer("--scheme pre-ln --optimizer sgd --sublayers 2 --activation gelu")["leading_order"]
    assert set(NO_ORDER) <= set(order), "the keys of an order that is there"
    for row in found["rows"]:
        assert set(row) == {"num_sublayers", "update", "log10_update", "roles", "error"}
        assert set(row["roles"]) == {*BRANCH_ROLES[:4], "fc1", "fc2", *OTHER_ROLES} - {"branch_weight", "layer_scale"}
        assert set(row["error"]) == {"update", *row["roles"]}
        assert math.log10(row["update"]) == pytest.approx(row["log10_update"])
    assert found["unit"] == NORMALISATION["adam"]._asdict()
    assert MOST_TOKENS == setting.MOST_TOKENS, "the command's limit is that of theory"


@pytest.mark.parametrize(("options", "effort"), [(SEVERAL, 1 / 4), (f"{SEVERAL} --precise", 1.0)])
def test_rows(options: str, effort: float) -> None:
    """Those of the kernel rung, number for number; with --precise those of its usual points."""
    for row in answer(options)["rows"]:
        config = lower_transformer("deepnorm", "adam", row["num_sublayers"], 64)
        asked = kernel_network.as_transformer(config, head_size=None)
        found = predict_kernel(asked, Inputs(num_tokens=3), ["adam"], effort=effort)["adam"]
        assert (row["update"], row["roles"], row["error"]) == (found.update, found.roles, found.error)


def test_exponents() -> None:
    """Slopes of the logarithms; the learning rates undo what the depth does."""
    found = answer(SEVERAL)
    lengths = np.log([row["num_sublayers"] for row in found["rows"]])
    for name, exponent in found["exponents"].items():
        values = [row["update"] if name == "update" else row["roles"][name] for row in found["rows"]]
        slope, _ = np.polyfit(lengths, np.log(values), 1)
        assert exponent == pytest.approx(slope, abs=1e-12)
    assert list(found["lr_multiplier"]) == list(found["rows"][0]["roles"])
    for role, factors in found["lr_multiplier"].items():
        kept = [row["roles"][role] * factor for row, factor in zip(found["rows"], factors, strict=True)]
        assert kept == pytest.approx([found["rows"][0]["roles"][role]] * 3)


def test_both_sides() -> None:
    for row, depths in zip(answer(BOTH_SIDES)["rows"], [(5, 1, 1), (7, 2, 1)], strict=True):
        assert (row["num_sublayers"], row["num_layers"], row["num_decoder_layers"]) == depths
        assert {"cross_q", "cross_out"} <= set(row["roles"])
        for role in ("update", *row["roles"]):
            parts = [own[role] for own in row["sides"].values() if role in own]
            assert sum(parts) == pytest.approx(row["update"] if role == "update" else row["roles"][role])
        assert "cross_q" not in row["sides"]["encoder"] and "head" not in row["sides"]["encoder"]
    assert "encoder update" in depthlaw("predict", *BOTH_SIDES.split(), "--roles").stdout


# ---------------------------------------------------------------- every option counts

COUNTING = (
    *("--tokens 4", "--batch 2", "--causal", "--correlation 0.5", "--ffn-ratio 2", "--width 8 --heads 2"),
    *("--readout sum", "--loss ce", "--loss ce --classes 3", "--activation gelu", "--norm-kind rmsnorm"),
    *("--w 1,2,1", "--v 2,1,1", "--optimizer adam", "--scheme post-ln", "--sublayers 4"),
)


def test_every_option_counts() -> None:
    two_attentions = ONE.replace("--sublayers 2", "--sublayers 3")  # in one, the last token sees all others anyway
    found = [answer(f"{two_attentions} {option}")["rows"] for option in ("", *COUNTING)]
    for index, rows in enumerate(found):
        assert rows not in found[:index]


def test_what_is_0_or_of_one_depth_has_no_exponent_and_no_multiplier() -> None:
    alone = answer(ONE)
    assert set(alone["exponents"].values()) == {None} and alone["lr_multiplier"] == {}
    found = answer("--scheme rezero --optimizer sgd --sublayers 2,4 --attention --tokens 2")
    assert found["exponents"]["update"] is found["exponents"]["q"] is None
    assert found["exponents"]["branch_weight"] is not None
    assert found["lr_multiplier"]["q"] == [None, None]
    twice = [{"num_sublayers": 4, "update": 1.0, "roles": {}}] * 2
    assert predicted_rows.exponents(twice) == {"update": None}


# ---------------------------------------------------------------- what people read

READ = {
    f"{ONE} --roles": ["one logit by", "Not in update: bias,", "Shown times d_model: bias, norm_gain, norm_bias"],
    f"{SEVERAL} --width 8 --roles": ["share: of the role", "%", "lr ×", "Shown times d_model^0.5: head."],
    IN_LAYERS: ["layers", "│ 4 │ 8 │", "L: residual sublayers; N: layers.", "Exponent of the depth:"],
    f"{BOTH_SIDES} --roles": ["encoder-decoder", "1-1", "2-1", "cross_out"],
    "--scheme admin --optimizer sgd --sublayers 2 --attention --tokens 3 --loss ce": ["the loss by", "equal tokens"],
}


@pytest.mark.parametrize("options", READ)
def test_people_read_in_80_columns(options: str) -> None:
    found = printed(options)
    assert max(map(len, found.splitlines())) <= 80
    in_one_line = " ".join(found.split())
    for words in READ[options]:
        assert words in in_one_line
    assert not re.search(r"nan|None|\binf\b", found)
    assert ("Add --width D for each role's share" in in_one_line) == ("--roles" in options and "--width" not in options)


BENDING = "--norm post --gain 3 --optimizer sgd --activation tanh --sublayers 2,4,8,16 --attention --tokens 2 --roles"


def test_what_is_no_power_law_is_said() -> None:
    found, text = answer(BENDING), printed(BENDING)
    assert found["is_power_law"]["q"] is False
    assert found["exponents"]["q"] is not None, "the document has both"
    assert "bends" in text[text.index("exponent") :].partition("│ q ")[2].splitlines()[0]
    assert f"{found['exponents']['q']:.3f}" not in text
    assert "bends" not in printed(f"{SEVERAL} --roles")
    two = answer("--scheme pre-ln --optimizer sgd --sublayers 2,16 --attention --tokens 2")
    assert set(two["is_power_law"].values()) == {None}


SHORT = {
    "post-ln --optimizer adamw --activation gelu": "As L grows: 51.8536 * exp(0.0106 L)\n",
    "pre-ln --optimizer sgd --activation gelu": "As L grows: 26.6407 * L**0.0720316\n",
    "post-ln --optimizer sgd": "As L grows: 2/3 * L\n",
}


@pytest.mark.parametrize("options", SHORT)
def test_an_order_is_short_and_in_the_document_in_full(options: str) -> None:
    text = printed(f"--scheme {options} --sublayers 4,8")
    assert SHORT[options] in text
    cells = answer(f"--scheme {options} --sublayers 4,8")["leading_order"]
    is_rounded = any(len(cells[name] or "") > 20 for name in ("coefficient", "power", "growth"))
    assert ("Rounded: --json has it in full." in text) == is_rounded == ("gelu" in options)


# ---------------------------------------------------------------- figures


def test_a_plot_is_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Drawing] = []
    monkeypatch.setattr(plots, "save", lambda drawing, path: (drawn.append(drawing), save(drawing, path)))
    path = tmp_path / "it.svg"
    for options in (f"{SEVERAL} --roles", "--scheme pre-ln --optimizer sgd --sublayers 4,8,1000000"):
        assert f"Wrote {path}." in printed(f"{options} --plot {path}").replace("\n", "")
        assert path.read_text(encoding="utf-8").startswith("<?xml")
    by_role, whole = ({re.split("[ \n]", c.label)[0]: c.line for c in one.panels[0].curves} for one in drawn)
    of_role = [row["roles"]["fc1"] for row in answer(SEVERAL)["rows"]]
    assert [y for _, y in by_role["fc1"]] == pytest.approx([y / of_role[0] for y in of_role])
    assert [y for _, y in whole["predicted"]] == [row["update"] for row in answer(options)["rows"]]


@pytest.mark.parametrize(
    ("name", "options", "network"),
    [
        ("llama-3", "--width 64", {"arch": "decoder", "num_heads": 4, "d_model": 64}),
        ("t5", "--width 64", {"arch": "encoder-decoder", "num_heads": 1, "d_model": 64}),
        ("bert", "", {"arch": "encoder", "num_heads": 12, "d_model": 768}),
    ],
)
def test_a_recipe_says_what_nobody_asked_for(name: str, options: str, network: dict[str, Any]) -> None:
    """Its kind, its width, heads as wide as its own or nearly so, as many layers on either side."""
    asked = f"predict --recipe {name} --optimizer muon+adamw --layers 1 --tokens 2 {options} --json"
    found = json.loads(told(*asked.split()))
    assert {field: found["network"].get(field) for field in network} == network
    assert ("bias" in found["rows"][0]["roles"]) is (name == "bert")
    assert found["left_out"].startswith("relative positions" if name == "t5" else "")


def test_what_a_recipe_leaves_out_is_told() -> None:
    asked = "--recipe {} --optimizer adamw --layers 1 --tokens 2 --width 64"
    assert "Left out of gemma-2: the cap of 30 on the logits." in " ".join(printed(asked.format("gemma-2")).split())
    without, with_eps = (answer(f"{asked.format('olmo-2')} {option}") for option in ("", "--norm-eps 1e-3"))
    assert with_eps["network"]["norm_eps"] == 1e-3 and "norm_eps" not in without["network"]
    assert with_eps["rows"][0]["update"] < without["rows"][0]["update"] / 2


BY_LAYER = "--scheme pre-ln --optimizer adam --attention --tokens 4 --layers 2 --by-layer"


def test_by_layer_has_what_measuring_has() -> None:
    """The same keys in both documents, and a page that says what the columns are."""
    predicted = document("predict", *BY_LAYER.split())["rows"][0]
    measured = document("measure", *BY_LAYER.split(), "--width", "16", "--seeds", "2", "--no-keep")["rows"][0]
    streams = predicted["streams"]["encoder"]
    assert streams.keys() == measured["streams"]["encoder"].keys() - {"5"}  # that behind the final norm
    assert measured["streams"]["encoder"]["1"].keys() - streams["1"].keys() == {"cosine_with_input"}
    for name in ("updates_by_layer", "gradients_by_layer"):
        assert predicted[name].keys() == measured[name].keys()
    total = sum(sum(layers.values()) for role, layers in predicted["updates_by_layer"].items() if role in BRANCH_ROLES)
    assert total == pytest.approx(predicted["update"], rel=0.05)  # of one set of points, and of four
    text = " ".join(printed(BY_LAYER).split())
    assert "1 where a sublayer is the identity" in text and "From x_0 to x_4 the second moment goes from 1 to " in text


def test_gradients_are_those_of_the_matrices_whatever_the_rates() -> None:
    """SGD's update of a matrix is the square of its gradient's norm; depth-mup has a rate under Adam, not under SGD."""
    options = BY_LAYER.replace("pre-ln", "depth-mup")
    under_adam, under_sgd = (
        document("predict", *options.replace("adam", name).split())["rows"][0] for name in ("adam", "sgd")
    )
    assert under_adam["gradients_by_layer"] == under_sgd["gradients_by_layer"]
    small = ["--width", "16", "--seeds", "2", "--no-keep"]
    measured = [
        document("measure", *options.replace("adam", name).split(), *small)["rows"][0]["gradients_by_layer"]["fc1"]
        for name in ("adam", "sgd")
    ]
    assert measured[0] == pytest.approx(measured[1], rel=1e-6)
    for role, norms in under_sgd["gradients_by_layer"].items():
        squares = {number: norm**2 for number, norm in norms.items()}
        assert squares == pytest.approx(under_sgd["updates_by_layer"][role])
    assert "The first of a role beside its last: q x " in " ".join(printed(options).split())


def test_jacobians_are_of_gradients_beside_the_last() -> None:
    streams: Any = {str(index): {"gradient_square": 4.0 ** (3 - index)} for index in range(5)}
    assert [one["jacobian"] for one in predicted_rows.with_jacobians(streams, 3).values()] == [8.0, 4.0, 2.0, 1.0, None]
    beyond: Any = {"0": {"log10_gradient_square": 900.0}, "1": {"log10_gradient_square": 0.0}}
    assert [one["jacobian"] for one in predicted_rows.with_jacobians(beyond, 1).values()] == [None, 1.0]


# ---------------------------------------------------------------- several side by side


SIDE_BY_SIDE = {
    "--scheme {} --optimizer sgd --sublayers 2,4 --attention --tokens 3": ("pre-ln", "deepnorm"),
    "--recipe {} --optimizer adamw --layers 2,4 --width 64 --tokens 3": ("llama-2", "gpt2"),
}


@pytest.mark.parametrize("options", SIDE_BY_SIDE)
def test_several_stand_side_by_side_as_each_does_alone(options: str) -> None:
    names = SIDE_BY_SIDE[options]
    together = answer(options.format(",".join(names)))
    alone = [answer(options.format(name)) for name in names]
    assert together == {"schema_version": 1, "predictions": alone}
    text = printed(options.format(",".join(names)))
    heads = next(line for line in text.splitlines() if line.startswith("┃"))
    assert [cell.strip() for cell in heads.split("┃")][-3:-1] == list(names)
    for row in zip(*(one["rows"] for one in alone), strict=True):
        assert " │ ".join(f"{of['update']:.4g}" for of in row) in re.sub(" +", " ", text)


@pytest.mark.parametrize("schemes", [("pre-ln",), ("pre-ln", "sub-ln")])
def test_what_a_step_does_beside_the_update_is_shown(schemes: tuple[str, ...]) -> None:
    """Of each scheme, as the JSON has it: with the power of the width that its second order goes by."""
    options = f"--scheme {','.join(schemes)} --optimizer adam --sublayers 2,8"
    text, found = printed(options), answer(options)
    for one in found.get("predictions", [found]):
        for row in one["rows"]:
            block, hidden = (row[f"second_order_in_{where}"] for where in ("block", "hidden"))
            unit = {"pre-ln": "d_model", "sub-ln": "sqrt(d_model)"}[one["scheme"]]
            assert f"{row['representation']:.4g}" in text
            assert f"{block['over_first']:.4g}/{unit}" in text
            assert f"{hidden['over_first']:.4g}/sqrt(d_model)" in text


def test_what_is_not_derived_beside_the_update_is_said() -> None:
    said = "are derived of stacks of FFNs that are not gated"
    assert said in " ".join(printed("--scheme pre-ln --optimizer adam --sublayers 2 --activation swiglu").split())
    text = printed("--scheme pre-ln --optimizer adam --sublayers 2 --visits 1,2")
    assert any("2 x 2" in line and line.count(" - ") == 3 for line in text.splitlines())


# ---------------------------------------------------------------- behind the first steps


def test_laws_behind_the_first_steps() -> None:
    """Beside the first step's: of each law the update at each depth, and its exponent, from Python's numbers."""
    plain = SEVERAL.replace("2,4,8", "2,4")
    options = f"{plain} --width 64 --after-steps 100 --learning-rate 1e-3 --weight-decay 0"
    found = answer(options)
    later = found["after_start"]
    assert (later["num_steps"], later["learning_rate"], later["weight_decay"]) == (100, 1e-3, 0.0)
    assert list(later["laws"]) == list(LAWS)
    assert later["laws"]["first"]["updates"] == [row["update"] for row in found["rows"]]
    assert later["laws"]["first"]["exponent"] == found["exponents"]["update"]
    size = made("adam", 1e-3, 100, 64)
    for at, row in enumerate(found["rows"]):
        config = lower_transformer("deepnorm", "adam", row["num_sublayers"], 64)
        asked = kernel_network.as_transformer(config, head_size=None), Inputs(num_tokens=3), "adam"
        for law, own in later["laws"].items():
            assert own["updates"][at] == predict_after_start(law, *asked, size, 64, effort=1 / 4).update
    assert "after_start" not in answer(plain)
    said = printed(options)
    assert "Behind 100 steps at a rate of 0.001" in said
    assert re.search(r"│ aligned +│", said)


def test_a_layer_scale_that_carries_the_update_is_told_in_words() -> None:
    asked = ("predict", "--recipe", "vit", "--optimizer", "adamw", "--layers", "2", "--width", "64", "--roles")
    assert "LayerScale carries the update itself" in told(*asked, "--layer-scale", "1e-5")
    assert "LayerScale" not in told(*asked)
