"""--visits of predict, measure and rule: documents, and what people read."""

import pytest

from tests.command import document, told
from tests.often import often

FFNS = "--scheme post-ln --optimizer sgd --sublayers 2"
SMALL = "--scheme post-ln --optimizer adam --layers 1 --visits 3 --attention --tokens 2"


def test_predict_has_a_row_for_each_number_of_visits() -> None:
    found = document("predict", *FFNS.split(), "--visits", "1,2,4")
    assert [(row["num_sublayers"], row.get("visits", 1)) for row in found["rows"]] == [(2, 1), (4, 2), (8, 4)]
    alone = document("predict", *FFNS.split())["rows"][0]["update"]
    assert found["rows"][0]["update"] == pytest.approx(alone, rel=1e-12)
    assert found["network"]["arch"] == "ffn" and "visits" not in found["network"]
    assert found["exponents"]["update"] is not None
    said = " ".join(told("predict", *FFNS.split(), "--visits", "1,2,4").split())
    assert "│ 2 x 4 │" in said and "R visits of a layer move the output as far as R^2 layers of their own" in said
    assert "of a layer move the output as far as R layers" in " ".join(told("predict", *SMALL.split()).split())
    assert "visits" not in told("predict", *FFNS.split(), "--visits", "1")


def test_gains_are_of_the_layers_themselves() -> None:
    found = document("predict", *FFNS.split(), "--visits", "2", "--w", "1,2", "--v", "1,1", "--by-layer")
    assert len(found["rows"][0]["updates_by_layer"]["fc1"]) == 2
    assert len(found["rows"][0]["streams"]["encoder"]) == 5


def test_measure_stands_beside_what_is_predicted() -> None:
    options = [*SMALL.split(), "--width", "16", "--seeds", "2", "--by-layer", "--no-keep"]
    found = document("measure", *options)
    (row,) = found["rows"]
    assert (row["num_sublayers"], row["visits"], found["network"].get("visits")) == (6, 3, None)
    assert row["by_role"]["q"]["update"] is not None and row["by_role"]["q"]["measured"] > 0
    streams, predicted = row["streams"]["encoder"], document("predict", *SMALL.split(), "--by-layer")["rows"][0]
    assert streams.keys() == predicted["streams"]["encoder"].keys() == set(map(str, range(7)))
    assert "│ 1 x 3 │ 6 │" in " ".join(told("measure", *options).split()).replace("│  1", "│ 1")


@pytest.mark.parametrize(("optimizer", "counted"), often([("sgd", 18), ("adam", 6)], 2, wide=1))
def test_rule_counts_visits(optimizer: str, counted: int) -> None:
    rule = f"rule --norm post --optimizer {optimizer} --arch encoder"
    found = document(*rule.split(), "--layers", "2", "--visits", "3")
    as_many = document(*rule.split(), "--layers", str(counted))
    assert (found["visits"]["own_layers"], found["visits"]["visits"], found["visits"]["count_as"]) == (2, 3, counted)
    assert as_many["visits"] is None
    for name in ("residual_weight", "init_gain", "layers"):
        assert found[name] == as_many[name]
    said = " ".join(told(*rule.split(), "--layers", "2", "--visits", "3").split())
    assert f"2 layers, visited 3 times, count as {counted} layers of their own under {optimizer}" in said
