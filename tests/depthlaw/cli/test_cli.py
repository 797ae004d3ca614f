"""The command line as other programs meet it: the shapes of its documents, and tables in every form."""

import csv
import io
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sympy as sp

from depthlaw.system.files import as_text, write_atomically
from depthlaw.theory.schemes import SCHEMES
from depthlaw.theory.symbols import L, l
from tests import command
from tests.command import options, told

LETTERS = {"N": sp.Symbol("N"), "M": sp.Symbol("M")}
PLACES = ("pre", "heads", "inner", "branch", "post", "final")
document = cache(command.document)
pytestmark = pytest.mark.usefixtures("quickly")


# --- rule


@cache
def rule(norm: str, optimizer: str, arch: str, layers: int, *more: str) -> dict[str, Any]:
    return command.document("rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers), *more)


def test_rule_document() -> None:
    """Of few layers, which cost little and are as telling."""
    found = rule("post", "adam", "encoder", 4)
    wanted = "residual_weight branch_weight init_gain lr_multiplier formula update_order relative_update_order"
    assert {*wanted.split(), "alternatives", "why"} <= set(found)
    assert set(found["init_gain"]) == set(found["lr_multiplier"]) == {"q", "k", "v", "out", "fc1", "fc2"}
    assert found["init_gain"]["q"] == found["init_gain"]["k"] == 1
    formula = sp.sympify(found["formula"]["residual_weight"], locals=LETTERS)
    assert found["residual_weight"] == pytest.approx(float(formula.subs(LETTERS["N"], 4)))
    assert all(line["is_flat"] is not None for line in found["mean_field"])


# --- schemes


def test_schemes_are_those_of_theory() -> None:
    listed = {one["name"]: one for one in document("schemes")["schemes"]}
    assert set(listed) == set(SCHEMES)
    for name, one in listed.items():
        stack, laws = SCHEMES[name].stack, {law: one[law] for law in ("branch_weight", "input_scale")}
        laws |= {"gain_in": one["gains"]["fc1"], "gain_out": one["gains"]["out"]}
        if stack.residual_weight is not None:
            laws["residual_weight"] = one["residual_weight"]
        assert [law for law, text in laws.items() if sp.sympify(text, {"L": L, "l": l}) != getattr(stack, law)] == []
        assert {place for place in PLACES if getattr(stack.placement, place)} == set(one["norms"]), name
        assert one["source"] == SCHEMES[name].source
    assert document("schemes", "DeepNorm")["schemes"] == [listed["deepnorm"]]
    assert listed["ln-scaling"]["form"] == "x_l = x + W2 phi(W1 c norm(x))"


# --- predict


def predicted(line: str) -> dict[str, Any]:
    return document("predict", *line.split())


def test_predict_document() -> None:
    sgd = predicted("--scheme pre-ln --optimizer sgd --sublayers 4,8")
    assert [row["num_sublayers"] for row in sgd["rows"]] == [4, 8]
    for row in sgd["rows"]:
        assert row["update"] == pytest.approx(sum(1 / (1 + k / 2) for k in range(1, row["num_sublayers"] + 1)))
        assert row["roles"]["fc1"] + row["roles"]["fc2"] == pytest.approx(row["update"])
    order = sgd["leading_order"]
    assert (order["coefficient"], order["power"], order["log_power"]) == ("2", "0", "1")
    assert {"loglog_power", "shown_by"} <= set(order)


def test_predict_what_is_no_number_of_its_own() -> None:
    """What overflows is null beside its logarithm, and what vanishes is 0 beside the branch weights that move."""
    overflow = predicted("--scheme post-ln --optimizer sgd --activation gelu --sublayers 1000000000")
    assert overflow["rows"][0]["update"] is None
    assert overflow["rows"][0]["log10_update"] > 1e6
    assert overflow["leading_order"]["power"] == "oo"
    none = predicted("--scheme rezero --optimizer adam --sublayers 12")
    assert none["rows"][0]["update"] == 0
    assert none["rows"][0]["roles"]["branch_weight"] > 0
    assert (none["leading_order"]["coefficient"], none["leading_order"]["power"]) == ("0", None)


def test_predict_of_gains_and_schemes_of_ones_own_is_that_of_the_named_one(tmp_path: Path) -> None:
    file = tmp_path / "gains.txt"
    file.write_text("1 1\n1, 1\n", encoding="utf-8")
    pre_ln = "--scheme pre-ln --optimizer sgd --sublayers 4"
    listed = predicted(f"{pre_ln} --w @{file}")
    assert listed["rows"][0]["update"] == pytest.approx(predicted(pre_ln)["rows"][0]["update"])
    assert listed["leading_order"] is None
    own = predicted(
        "--norm post --residual-weight 1,1/4 --gain 0.7071067811865476,-0.25 --optimizer sgd --sublayers 24"
    )
    named = predicted("--scheme deepnorm --optimizer sgd --sublayers 24")
    assert own["rows"][0]["update"] == pytest.approx(named["rows"][0]["update"])


# --- tables


def test_tables_document() -> None:
    tables = {table["id"]: table["rows"] for table in document("tables")["tables"]}
    assert set(tables) == {"su-optimizers", "su-prenorm", "deepnet", "magneto-gamma", "bounds", "cross"}
    assert set(tables["su-optimizers"][0]) == {"optimizer", "update", "loss_change", "alpha", "lambda"}
    columns = ("coefficient", "power", "log_power", "loglog_power")
    for cell in {row[column] for row in tables["cross"] for column in columns} - {None}:
        assert sp.sympify(cell, locals=LETTERS).is_number


def test_tables_as_csv_say_what_the_document_says() -> None:
    rows = list(csv.DictReader(io.StringIO(told("tables", "--csv", "--only", "cross"))))
    (table,) = document("tables", "--only", "cross")["tables"]
    assert rows == [{name: cell or "" for name, cell in row.items()} for row in table["rows"]]


# --- the pieces


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.json"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "new \udcff")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]


def test_json_is_strict() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_text({"update": float("inf")})
