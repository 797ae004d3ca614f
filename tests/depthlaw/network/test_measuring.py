"""Measurements of named networks: taken from the record where they are, and made once for all optimizers where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from depthlaw.network import measured_rows
from depthlaw.network.measuring import Extras, Kept, measure
from depthlaw.network.network import Network
from depthlaw.sims import measure as sims_measure
from depthlaw.sims.records import record
from depthlaw.sims.records.record import Divergence, Measurement
from depthlaw.theory.schemes import custom_scheme, scheme

NONE = Kept(None)


def network(name: str = "pre-ln", **fields: Any) -> Network:
    return Network(scheme=scheme(name), **{"num_sublayers": 4, "d_model": 8, **fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a record."""
    return tmp_path / "it.jsonl"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], list[int]]]:
    """The optimizers and seeds that sims are asked to measure."""
    questions: list[tuple[tuple[str, ...], list[int]]] = []
    run = sims_measure.run

    def counting(question: Any, seeds: Sequence[int], advance: Callable[[float], None]) -> Iterator[Any]:
        questions.append((question.optimizers, list(seeds)))
        yield from run(question, seeds, advance)

    monkeypatch.setattr(sims_measure, "run", counting)
    return questions


def test_a_record_goes_on(path: Path, asked: list[Any]) -> None:
    whole = measure(network(), ["sgd"], range(6), NONE)["sgd"]
    asked.clear()
    kept = Kept(path)
    measure(network(), ["sgd"], [3, 1], kept)
    assert measure(network(), ["sgd"], range(6), kept)["sgd"].seeds == whole.seeds
    told: list[float] = []
    resumed = measure(network(), ["sgd"], range(6), Kept(path), advance=told.append)["sgd"]
    assert asked == [(("sgd",), [3, 1]), (("sgd",), [0, 2, 4, 5])], "only what is missing is measured"
    for name, values in whole.values.items():
        assert resumed.values[name] == pytest.approx(values, rel=1e-6), "each seed's own values, in the order asked for"
    assert sum(told) == pytest.approx(6)
    assert [run.seeds for run in record.read(path)] == [[3, 1], [0, 2, 4, 5]]


def test_another_network_is_another(path: Path, asked: list[Any]) -> None:
    """Each of these is measured, and not taken from the record of another."""
    wide = {"arch": "encoder", "num_tokens": 2}
    others = [
        *(network(), network(d_model=16), network(num_sublayers=5), network("sub-ln"), network(activation="gelu")),
        *(network(norm_kind="rmsnorm"), network(v=(1.0, 2.0, 1.0, 1.0)), network(**wide), network(**wide, loss="ce")),
        network(**wide, correlation=0.5),
    ]
    for other in (*others, *others):
        measure(other, ["sgd"], [0], Kept(path))
    measure(network(), ["sgd"], [0], Kept(path), extras=Extras(has_layers=True))
    measure(network(), ["adam"], [0], Kept(path))
    measure(network(), ["sgd"], [0], Kept(path, dtype="float32"))
    assert len(asked) == len(others) + 3


def test_one_pass_is_many(path: Path, asked: list[Any]) -> None:
    names = ["sgd", "adam", "lamb", "muon"]
    alone = {name: measure(network(), [name], range(3), NONE)[name] for name in names}
    asked.clear()
    together = measure(network(), names, range(3), Kept(path))
    assert asked == [(tuple(names), [0, 1, 2])]
    for name in names:
        assert together[name].values.keys() == alone[name].values.keys()
        for quantity, values in alone[name].values.items():
            assert together[name].values[quantity] == pytest.approx(values, rel=1e-6)
    again = measure(network(), ["lamb", "sgd"], range(3), Kept(path))
    assert len(asked) == 1, "each optimizer is a run of its own in the record"
    assert list(again) == ["lamb", "sgd"]


def test_learning_rates_are_the_optimizers_own(path: Path, asked: list[Any]) -> None:
    """depth-mup multiplies the learning rate by L^(-1/2) but under SGD, whose gradient has the factor already."""
    law = (Fraction(1), Fraction(-1, 2))
    plain = Network(scheme=custom_scheme("pre", branch_weight=law), num_sublayers=4, d_model=8)
    names = ["adam", "sgd", "lamb", "lion"]
    found, bare = (measure(one, names, range(2), Kept(path)) for one in (network("depth-mup"), plain))
    assert any(set(names) == {"adam", "lion", "lamb"} for names, _ in asked)
    for name, factor in (("sgd", 1.0), ("adam", 0.5), ("lion", 0.5), ("lamb", 0.5)):
        assert found[name].values["update"] == pytest.approx([factor * x for x in _all(bare[name])], rel=1e-6)
    alone = measure(network("depth-mup"), ["lamb"], range(2), NONE)["lamb"]
    assert found["lamb"].values["update"] == pytest.approx(alone.values["update"], rel=1e-6)


def _all(found: Measurement) -> list[float]:
    values = found.values["update"]
    assert None not in values
    return [value for value in values if value is not None]


def test_a_divergence_stays(path: Path) -> None:
    law = (Fraction(10**50), Fraction(0))
    deep = Network(scheme=custom_scheme("pre", residual_weight=law), num_sublayers=6, d_model=4)
    for _ in range(2):
        found = measure(deep, ["sgd"], [0, 1], Kept(path))["sgd"]
        assert found.values["update"] == (None, None)
        assert {place.in_pass for place in found.diverged.values()} == {"forward"}
        assert {place.index for place in found.diverged.values()} == {4}, "x^2 passes 1e308 at x_4"
    (run,) = record.read(path)
    assert list(run.diverged) == [0, 1]
    found = measure(deep, ["sgd"], [0, 1], Kept(path))["sgd"]
    row = measured_rows.row(deep, "sgd", deep.prediction("sgd"), found)
    assert row["measured"] is row["ratio"] is None
    assert row["update"] > 0
    assert [one["seed"] for one in row["diverged"]] == [0, 1]


def test_rounding_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it decides sims are the judge, and another on another processor."""
    network_ = network(arch="encoder", num_tokens=2)
    decided = {"q": 0.5, "k": 0.25}
    monkeypatch.setattr(sims_measure, "rounding", lambda *_: {"sgd/q": 0.5, "sgd/k": 0.25})
    for _ in range(2):
        found = measure(network_, ["sgd"], [0, 1], Kept(path))["sgd"]
        assert found.unreliable == decided
        assert not decided.keys() & set(found.values)
    found = measure(network_, ["sgd"], [0, 1], Kept(path))["sgd"]
    row = measured_rows.row(network_, "sgd", None, found)
    assert row["unreliable"] == decided
    assert "q" not in row["by_role"]
    assert row["by_role"]["v"]["measured"] > 0


def found(**values: Sequence[float | None]) -> Measurement:
    named = {name.replace("__", "/"): tuple(numbers) for name, numbers in values.items()}
    num = len(next(iter(named.values())))
    place = Divergence(side="encoder", index=2, in_pass="forward")
    bad = {seed: place for seed in range(num) if any(numbers[seed] is None for numbers in named.values())}
    return Measurement(tuple(range(num)), named, bad, {})


def test_a_row_whose_seeds_diverged_in_part_has_no_mean() -> None:
    rows = [
        measured_rows.row(network(num_sublayers=length), "sgd", None, found(update=values))
        for length, values in ((2, (1.0, 2.0)), (4, (2.0, None)), (8, (8.0, 4.0)))
    ]
    assert [row["measured"] for row in rows] == [1.5, None, 6.0]
    assert [one["seed"] for one in rows[1]["diverged"]] == [1]
    fitted = measured_rows.exponent(rows, [(1.0, 2.0), (2.0, None), (8.0, 4.0)])
    assert fitted["measured"] == pytest.approx(1)
    assert fitted["left_out"] == {"4": "1 of 2 seeds diverged"}


def test_lengths_that_rounding_decides_are_left_out_of_the_exponent() -> None:
    rows = [
        {"num_sublayers": n, "update": float(n), "unreliable": {"update": 0.5} if n == 4 else {}} for n in (2, 4, 8)
    ]
    fitted = measured_rows.exponent(rows, [[2.0, 2.1], [], [8.0, 8.1]])
    assert (fitted["lengths"], fitted["left_out"]) == ([2, 8], {"4": "rounding decides"})
