"""``depthlaw measure``: its document, what people read of it, its record, and what it does when it is stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from depthlaw.sims import measure as sims_measure
from tests.command import document, refusal, told
from tests.often import often

SMALL = "--scheme pre-ln --optimizer sgd --sublayers 2,4,8 --width 16 --seeds 4"
TOKENS = "--scheme pre-ln --optimizer adam --sublayers 2,4 --attention --tokens 3 --width 16 --heads 4 --seeds 4"


def printed(options: str) -> str:
    return told("measure", *options.split(), "--no-keep", COLUMNS="80")


@cache
def answer(options: str) -> dict[str, Any]:
    return document("measure", *options.split(), "--no-keep")


# ---------------------------------------------------------------- the document


def test_shape() -> None:
    found = answer(SMALL)
    assert {"schema_version", "scheme", "optimizer", "activation", "norm_kind", "unit", "exponent"} <= set(found)
    assert [row["num_sublayers"] for row in found["rows"]] == [2, 4, 8]
    numbers = {"update", "measured", "standard_error", "low", "high", "ratio", "ratio_low", "ratio_high"}
    for row in found["rows"]:
        assert numbers | {"log10_update", "roles", "by_role", "diverged", "unreliable"} <= set(row)
        assert all(set(one) == numbers for one in row["by_role"].values())
        assert list(row["by_role"]) == ["fc1", "fc2", "head"]


def test_what_is_predicted() -> None:
    """The rows of ``predict``, number for number; of a Transformer with heads of the size that is measured, and with
    all points."""
    of_tokens = f"{TOKENS.partition('--seeds')[0]} --precise"
    for options, asked in ((SMALL, SMALL.partition("--width")[0]), (TOKENS, of_tokens)):
        predicted = document("predict", *asked.split())
        found = answer(options)
        assert found["not_predicted"] is None
        for row, wanted in zip(found["rows"], predicted["rows"], strict=True):
            assert {name: row[name] for name in wanted} == wanted
            assert {role: one["update"] for role, one in row["by_role"].items() if one["update"]} == wanted["roles"]


def test_ratios() -> None:
    rows = [*answer(SMALL)["rows"], *answer(TOKENS)["rows"]]
    assert all(one["ratio"] for one in rows[-1]["by_role"].values()), "every role of a Transformer is predicted"
    for row in rows:
        for one in (row, *row["by_role"].values()):
            if one["update"] is None:
                assert one["ratio"] is None
                continue
            for name, end in (("ratio", "measured"), ("ratio_low", "low"), ("ratio_high", "high")):
                assert one[name] == pytest.approx(one[end] / one["update"])
            assert one["ratio_low"] < one["ratio"] < one["ratio_high"]
            half = 3.182446 * one["standard_error"]  # Student's t of 3 degrees of freedom, 97.5 %
            assert one["high"] - one["measured"] == pytest.approx(half, rel=1e-6)


def test_exponents() -> None:
    """Both are slopes of the rows' logarithms."""
    found = answer(SMALL)
    lengths = np.log([row["num_sublayers"] for row in found["rows"]])
    for name, column in (("measured", "measured"), ("predicted", "update")):
        slope, _ = np.polyfit(lengths, np.log([row[column] for row in found["rows"]]), 1)
        assert found["exponent"][name] == pytest.approx(slope)
    exponent = found["exponent"]
    assert exponent["difference"] == pytest.approx(exponent["measured"] - exponent["predicted"])
    assert exponent["low"] < exponent["measured"] < exponent["high"]


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ("--scheme rezero --optimizer adam --sublayers 4", ["branch_weight"]),
        ("--scheme rezero --optimizer adam --sublayers 4 --attention", ["branch_weight", "embedding", "head"]),
        ("--scheme pre-ln --optimizer lamb --sublayers 1 --attention", ["norm_gain", "embedding", "head", "q", "out"]),
        ("--scheme pre-ln --optimizer adam --sublayers 2 --activation geglu", ["fc1", "fc2", "fc3"]),
        ("--scheme pre-ln --optimizer sgd --sublayers 1 --attention", ["bias", "norm_gain", "norm_bias", "embedding"]),
    ],
)
def test_predictions_of_every_role_lie_in_the_intervals(options: str, roles: list[str]) -> None:
    tokens = " --tokens 4 --heads 2" if "attention" in options else ""
    found = answer(f"{options}{tokens} --width 64 --seeds 16")["rows"][0]["by_role"]
    assert all(found[role]["ratio_low"] < 1 < found[role]["ratio_high"] for role in roles)


def test_units() -> None:
    """The first order of a real step, in units of the table: minus the sum over everything that trains."""
    for optimizer in ("sgd", "rmsprop"):
        rate, options = 0.001, f"--scheme post-ln --optimizer {optimizer} --sublayers 2 --width 16 --seeds 2"
        found = answer(f"{options} --learning-rate {rate} --changes")
        row, unit = found["rows"][0], found["unit"]["constant"] * 16 ** found["unit"]["power"]
        total = row["measured"] + row["by_role"]["head"]["measured"]
        assert row["finite"]["first_order"]["measured"] == pytest.approx(-rate * unit * total, rel=1e-6)
        assert row["changes"]["logit"]["update"]["measured"] == pytest.approx(-row["measured"], rel=1e-6)


@pytest.mark.wide
def test_what_a_step_changes_to_second_order_and_in_the_representation() -> None:
    found = answer(
        "--scheme depth-mup --optimizer adam --sublayers 2,8 --width 256 --seeds 12 --second-order --changes"
    )
    wider = float(t.ppf(1 - 0.001 / 2, 11) / t.ppf(0.975, 11))  # of ten intervals one of 95 % misses often
    for row in found["rows"]:
        block, moved = row["second_order"]["block"], row["changes"]["representation"]["update"]
        hidden = row["second_order"]["hidden"]
        for number in (block["first"], block["second"], hidden["first"], hidden["over_first"], moved):
            assert abs(number["predicted"] - number["measured"]) < wider * (number["high"] - number["measured"])
        assert moved["predicted"] == pytest.approx(row["representation"] / 256**0.5)
        for where, width_power in (("block", -1.0), ("hidden", -0.5)):
            of_row = row[f"second_order_in_{where}"]
            assert of_row.pop("width_power") == width_power
            powers = {"first": -0.5, "second": width_power - 0.5, "over_first": width_power}
            told = {name: row["second_order"][where][name]["predicted"] for name in of_row}
            assert told == pytest.approx({name: value * 256 ** powers[name] for name, value in of_row.items()})
        assert set(row["second_order"]) == {"block", "hidden", "logit"}
    exponents = found["second_order_exponents"]
    assert exponents["block"]["low"] < -0.5 < exponents["block"]["high"] < exponents["hidden"]["low"]
    assert exponents["block"]["low"] < exponents["block"]["predicted"] < exponents["block"]["high"]
    assert exponents["hidden"]["high"] > -0.1
    assert "second_order_exponents" not in answer(SMALL)


@pytest.mark.parametrize("num_sublayers", often([1, 2], 2))
def test_a_second_order_is_the_mean_over_networks(num_sublayers: int) -> None:
    """Not the root of its mean square, which is larger by a quarter in one sublayer and by an eighth in two; nor is it
    that of a gradient that no norm projects, which in one sublayer is larger by 7 %."""
    options = "--scheme depth-mup --optimizer adam --width 64 --seeds 1024 --second-order"
    second = answer(f"{options} --sublayers {num_sublayers}")["rows"][0]["second_order"]["block"]["second"]
    assert second["low"] < second["predicted"] < second["high"] < 1.05 * second["measured"]


def test_seeds() -> None:
    short = SMALL.replace("2,4,8", "2")
    first, other = (answer(f"{short} --seed {seed}")["rows"][0]["measured"] for seed in (0, 4))
    both = answer(f"{short} --seeds 8")["rows"][0]
    assert both["measured"] == pytest.approx((first + other) / 2, rel=1e-6)


# ---------------------------------------------------------------- what people read

READ = {
    SMALL: ["L/d is 0.5 for L = 8 at d = 16", "one logit by", "[ ] 95 % interval", "Exponent in L: measured"],
    "--scheme rezero --optimizer sgd --sublayers 2,4 --width 8": [
        "branch_weight",  # it alone trains, so it is shown unasked
        "Not in update: branch_weight, head. Shown times d_model: branch_weight.",
        "No exponent: the update is 0 at every length.",
    ],
    "--norm pre --residual-weight 1e50 --optimizer sgd --sublayers 1,2,6 --width 4 --seeds 2": [
        "L = 6: 2 of 2 seeds diverged; seed 0 first at x_4 of the encoder, going forward.",
        "without L = 6",
    ],
    "--scheme t-fixup --optimizer sgd --sublayers 40 --width 4 --seeds 1 --learning-rate 1e9": [
        "1 of 1 seeds diverged; seed 0 after the real step",
        "logit diverged",
    ],
    "--scheme pre-ln --optimizer adam --attention --arch encoder-decoder --layers 1 --decoder-layers 2 --width 8 "
    "--heads 2 --seeds 2 --tokens 3 --loss ce --by-layer": ["the loss by", "1-2", "x_7: behind the final norm"],
    "--scheme gpt2 --optimizer lamb --sublayers 2 --width 8 --seeds 2 --changes --learning-rate 0.01": [
        "a real step of learning rate 0.01",
        "Linear, to a tenth",
        "Real lamb",
    ],
    "--scheme dyt --optimizer sgd --sublayers 2 --width 16 --seeds 2 --changes": [
        "Predicted for the representation: nothing; it is derived for stacks of FFNs that are not gated",
    ],
    "--scheme gpt2 --optimizer adam --sublayers 2,4 --width 16 --seeds 2 --changes --second-order": [
        "Predicted for the representation",
        "In a sublayer, second over first: exponent in L: measured",
    ],
}


@pytest.mark.parametrize("options", often(READ, 2, wide=1))
def test_people_read_in_80_columns(options: str) -> None:
    found = printed(options)
    assert max(map(len, found.splitlines())) <= 80
    in_one_line = " ".join(found.split())
    for words in READ[options]:
        assert words in in_one_line
    assert not re.search(r"nan|None|\binf\b", found)
    assert not re.search("│ 1 │ +- │", found), "a sublayer's update is the sum of its matrices'"


def test_what_rounding_decides_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to the command that it does: what it decides in truth is another on another processor."""
    monkeypatch.setattr("depthlaw.sims.measure.rounding", lambda *_: {"adam/update": 0.5, "adam/q": 0.25})
    found = " ".join(printed(f"{TOKENS} --roles").split())
    for words in ("update is left out. Noise of one unit", "q is left out. Noise of one unit", "No exponent: "):
        assert words in found


# ---------------------------------------------------------------- the record, and being stopped


def test_what_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, calls = tmp_path / "it.jsonl", sims_measure.run, []

    def run(question: Any, seeds: Sequence[int], advance: Callable[[float], None]) -> Any:
        calls.append(question.num_sublayers)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(question, seeds, advance)

    whole = answer(SMALL)
    monkeypatch.setattr(sims_measure, "run", run)
    line = refusal("measure", *SMALL.split(), "--record", path, code=130)
    assert "interrupted" in line
    assert str(path) in line
    found = document("measure", *SMALL.split(), "--record", path)
    assert calls == [2, 4, 8, 8], "what was finished is not measured again"
    assert found["record"] == str(path)
    assert found | {"record": None} == whole | {"record": None}
