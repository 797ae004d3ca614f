"""Measurements of named networks: taken from the record where they are, and made once for all optimizers where not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from paper_checks.lowering import measured_rows, measuring
from paper_checks.lowering.measuring import Extras, Kept, measure
from paper_checks.lowering.networks import Network
from sims import measure as sims_measure
from sims.records import record
from sims.records.record import Divergence, Found
from theory.schemes import custom_scheme, scheme

NONE = Kept(None)


def network(name: str = "pre-ln", **fields: Any) -> Network:
    return Network(scheme=scheme(name), **{"num_sublayers": 4, "d_model": 8, **fields})


class Counting:
    """sims.measure.run, which remembers what it was asked. breaks_at: the call in which Ctrl-C comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, breaks_at: int = 0) -> None:
        self.asked: list[tuple[tuple[str, ...], list[int]]] = []
        self._run, self._breaks_at = sims_measure.run, breaks_at
        monkeypatch.setattr(sims_measure, "run", self)

    def __call__(self, question: Any, seeds: Sequence[int], advance: Callable[[float], None]) -> Iterator[Any]:
        self.asked.append((question.optimizers, list(seeds)))
        if len(self.asked) == self._breaks_at:
            raise KeyboardInterrupt
        yield from self._run(question, seeds, advance)


Check = Callable[[Path, pytest.MonkeyPatch], None]

# ---------------------------------------------------------------- what is there already


def check_that_a_record_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(network(), ["sgd"], range(6), NONE)["sgd"]
    counting = Counting(monkeypatch)
    kept = Kept(path)
    measure(network(), ["sgd"], [3, 1], kept)
    assert measure(network(), ["sgd"], range(6), kept)["sgd"].seeds == whole.seeds
    told: list[float] = []
    resumed = measure(network(), ["sgd"], range(6), Kept(path), advance=told.append)["sgd"]
    assert counting.asked == [(("sgd",), [3, 1]), (("sgd",), [0, 2, 4, 5])], "only what is missing is measured"
    for name, values in whole.values.items():
        assert resumed.values[name] == pytest.approx(values, rel=1e-6), "each seed's own values, in the order asked for"
    assert sum(told) == pytest.approx(6)
    assert [run.seeds for run in record.read(path)] == [[3, 1], [0, 2, 4, 5]]


def check_that_another_network_is_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(question: Any, seeds: Sequence[int], advance: Callable[[float], None]) -> Iterator[Any]:
        """The result is at hand: what counts is which networks are asked for."""
        asked.append(question)
        yield sims_measure.Result(seeds=list(seeds), values={"update": [1.0] * len(seeds)}, diverged={}, unreliable={})

    monkeypatch.setattr(sims_measure, "run", run)
    others = [
        network(),
        network(d_model=16),
        network(num_sublayers=5),
        network("sub-ln"),
        network(activation="gelu"),
        network(norm_kind="rmsnorm"),
        network(v=(1.0, 2.0, 1.0, 1.0)),
        network(arch="encoder", num_tokens=2),
        network(arch="encoder", num_tokens=2, loss="ce"),
        network(arch="encoder", num_tokens=2, correlation=0.5),
    ]
    for _ in range(2):
        for other in others:
            measure(other, ["sgd"], [0], Kept(path))
    measure(network(), ["sgd"], [0], Kept(path), extras=Extras(has_layers=True))
    measure(network(), ["adam"], [0], Kept(path))
    measure(network(), ["sgd"], [0], Kept(path, dtype="float32"))
    assert len(asked) == len(others) + 3


# ---------------------------------------------------------------- many optimizers


def check_that_one_pass_is_many(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["sgd", "adam", "lamb", "muon"]
    alone = {name: measure(network(), [name], range(3), NONE)[name] for name in names}
    counting = Counting(monkeypatch)
    together = measure(network(), names, range(3), Kept(path))
    assert [asked for asked, _ in counting.asked] == [tuple(names)]
    for name in names:
        assert together[name].values.keys() == alone[name].values.keys()
        for quantity, values in alone[name].values.items():
            assert together[name].values[quantity] == pytest.approx(values, rel=1e-6)
    again = measure(network(), ["lamb", "sgd"], range(3), Kept(path))
    assert len(counting.asked) == 1, "each optimizer is a run of its own in the record"
    assert list(again) == ["lamb", "sgd"]


def check_that_learning_rates_are_the_optimizers_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """depth-mup multiplies the learning rate of sign-type optimizers by L^(-1/2), and no other's."""
    law = (Fraction(1), Fraction(-1, 2))
    plain = Network(scheme=custom_scheme("pre", branch_weight=law), num_sublayers=4, d_model=8)
    names = ["adam", "sgd", "lamb", "lion"]
    counting = Counting(monkeypatch)
    found, bare = (measure(one, names, range(2), Kept(path)) for one in (network("depth-mup"), plain))
    asked = [set(each) for each, _ in counting.asked]
    assert {"adam", "lion", "lamb"} in asked or {"adam", "lion"} in asked
    for name, factor in (("sgd", 1.0), ("adam", 0.5), ("lion", 0.5)):
        assert found[name].values["update"] == pytest.approx([factor * x for x in _all(bare[name])], rel=1e-6)
    alone = measure(network("depth-mup"), ["lamb"], range(2), NONE)["lamb"]
    assert found["lamb"].values["update"] == pytest.approx(alone.values["update"], rel=1e-6)


def _all(found: Found) -> list[float]:
    values = found.values["update"]
    assert None not in values
    return [value for value in values if value is not None]


# ---------------------------------------------------------------- what went wrong stays


def check_that_a_divergence_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def check_that_rounding_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it decides sims are the judge, and another on another processor."""
    network_ = network(arch="encoder", num_tokens=2)
    decided = {"q": 0.5, "k": 0.25}
    monkeypatch.setattr(
        sims_measure, "rounding", lambda *_: {f"sgd/{role}": change for role, change in decided.items()}
    )
    for _ in range(2):
        found = measure(network_, ["sgd"], [0, 1], Kept(path))["sgd"]
        assert found.unreliable == decided
        assert not decided.keys() & set(found.values)
    found = measure(network_, ["sgd"], [0, 1], Kept(path))["sgd"]
    row = measured_rows.row(network_, "sgd", None, found)
    assert row["unreliable"] == decided
    assert "q" not in row["by_role"]
    assert row["by_role"]["v"]["measured"] > 0


CHECKS: dict[str, Check] = {
    name.removeprefix("check_that_"): f for name, f in list(globals().items()) if "check_" in name
}


@pytest.mark.parametrize("check", CHECKS)
def test_that(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[check](tmp_path / "it.jsonl", monkeypatch)


NOTHING = Found((), {}, {}, {})
_divergences = sims_measure.divergences
MUTANTS: list[tuple[str, str, Any]] = [
    ("a_record_goes_on", "paper_checks.lowering.measuring._only", lambda found, seeds: found),
    ("a_record_goes_on", "sims.records.record.append", lambda path, run: None),
    ("a_record_goes_on", "sims.records.record.current", lambda runs, device, dtype: []),
    ("another_network_is_another", "paper_checks.lowering.measuring.Extras.named", lambda self: {}),
    (
        "another_network_is_another",
        "paper_checks.lowering.networks.Network.named",
        lambda self, optimizer: {"scheme": self.scheme.name, "optimizer": optimizer, "d_model": self.d_model},
    ),
    ("one_pass_is_many", "paper_checks.lowering.measuring._groups", lambda network, names: [[name] for name in names]),
    ("one_pass_is_many", "paper_checks.lowering.measuring._of", lambda name, group, table: table),
    (
        "learning_rates_are_the_optimizers_own",
        "paper_checks.lowering.measuring._groups",
        lambda network, names: [list(names)],
    ),
    ("a_divergence_stays", "sims.measure.divergences", lambda order: {}),
    ("a_divergence_stays", "paper_checks.lowering.measuring._plain", lambda result: {}),
    (
        "rounding_is_told",
        "paper_checks.lowering.measuring._of",
        lambda name, group, table: {at.removeprefix("sgd/"): x for at, x in table.items() if isinstance(x, list)},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "target", "mutant"), MUTANTS, ids=[f"{check}-{at}" for check, at, _ in MUTANTS])
def test_a_mutant_is_found(
    check: str, target: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, mutant)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        CHECKS[check](tmp_path / "it.jsonl", monkeypatch)


# ---------------------------------------------------------------- rows


def found(**values: Sequence[float | None]) -> Found:
    named = {name.replace("__", "/"): tuple(numbers) for name, numbers in values.items()}
    num = len(next(iter(named.values())))
    place = Divergence(side="encoder", index=2, in_pass="forward")
    bad = {seed: place for seed in range(num) if any(numbers[seed] is None for numbers in named.values())}
    return Found(tuple(range(num)), named, bad, {})


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


def test_roles_come_in_their_order_and_nothing_else_is_a_role() -> None:
    names = ("update", "fc2", "head", "q", "bias", "real_step", "linear_up_to", "layer__q__1", "change__logit__q")
    row = measured_rows.row(network(), "lamb", None, found(**dict.fromkeys(names, (1.0, 3.0))))
    assert list(row["by_role"]) == ["q", "fc2", "bias", "head"]
    assert row["real_step"]["measured"] == 2
    assert row["updates_by_layer"] == {"q": {"1": 2.0}}
    assert row["changes"]["logit"]["q"]["measured"] == 2
    assert row["linear_up_to"]["standard_error"] == pytest.approx(1)


def test_layers_that_rounding_decides_leave_the_others_their_numbers() -> None:
    values = {
        "update": (1.0,),
        "layer__q__1": (1.0,),
        "layer__q__3": (3.0,),
        "layer__encoder__0__second_moment": (1.0,),
    }
    row = measured_rows.row(network(), "sgd", None, found(**values))
    assert row["updates_by_layer"]["q"] == {"1": 1.0, "3": 3.0}
    assert row["streams"] == {"encoder": {"0": {"second_moment": 1.0}}}


def test_two_networks_of_one_length_have_no_exponent() -> None:
    one = measured_rows.row(network(), "sgd", None, found(update=(1.0, 2.0)))
    assert measured_rows.exponent([one, one], [(1.0, 2.0)] * 2)["reason"]


def test_a_record_that_was_cut_off_loses_that_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    for seeds in ([0, 1], [2]):
        measure(network(), ["sgd"], seeds, Kept(path))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.warns(UserWarning, match="line 2 is cut off"):
        kept = Kept(path)
    assert measure(network(), ["sgd"], [0, 1, 2], kept)["sgd"].seeds == (0, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [run.seeds for run in record.read(path)] == [[0, 1], [2]]


def test_a_run_says_which_commit_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "it.jsonl")
    measure(network(num_sublayers=2, d_model=8), ["sgd"], range(2), kept)
    (run,) = kept.runs
    assert run.commit is None or len(run.commit) == 40

    def absent(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr("subprocess.run", absent)
    measuring._commit.cache_clear()
    assert measuring._commit() is None
    measuring._commit.cache_clear()
