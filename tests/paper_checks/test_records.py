"""Records: files that do not fit are refused; what stands in them is measured again, with the same seeds and others."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paper_checks.experiments.sweeps import SWEEPS
from paper_checks.papers.deepnet import runs
from paper_checks.papers.deepnet.parts import exponent, exponent_of_means, interval, is_below
from paper_checks.papers.deepnet.runs import DEPTHS, PLANS, encoder_decoders
from paper_checks.routes.records import Plan, make, read, record
from paper_checks.system.places import RECORDS as FOLDER

RUN: dict[str, Any] = {
    "config": {"n": 1},
    "seeds": [0, 1],
    "values": {"x": [1.0, 2.0]},
    "torch": "2.9.1",
    "device": "cpu",
}


def write(path: Path, *runs: dict[str, Any], **rest: Any) -> Path:
    path.write_text(json.dumps({"about": "a test", "runs": list(runs), **rest}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": [0, 0]}, "a seed stands twice"),
        ({"seeds": [0]}, "2 values for 1 seeds"),
        ({"values": {}}, "values"),
        ({"values": {"x": [1.0, "2"]}}, "values"),
        ({"device": "a machine"}, "device"),
        ({"host": "a machine"}, "host"),
        ({"torch": ""}, "torch"),
    ],
)
def test_a_run_that_does_not_fit_is_an_error_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "it.json", {**RUN, **change})
    with pytest.raises(ValueError, match=says) as caught:
        read(path)
    assert str(caught.value).startswith("it.json does not fit: ")
    assert "\n" not in str(caught.value)


def test_a_record_that_does_not_fit(tmp_path: Path) -> None:
    for path in (
        write(tmp_path / "a.json", RUN, {**RUN, "seeds": [1, 2]}),
        write(tmp_path / "b.json", colour="red"),
    ):
        with pytest.raises(ValueError, match=f"{path.name} does not fit"):
            read(path)
    (tmp_path / "c.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"c\.json does not fit"):
        read(tmp_path / "c.json")
    with pytest.raises(LookupError, match="no run of n 2"):
        read(write(tmp_path / "d.json", RUN)).values("x", {"n": 2})


def test_what_is_missing_is_added_behind_and_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "it.json"

    def plan(num_seeds: int, sign: int) -> Plan:
        return Plan("a test", (({"n": 1}, num_seeds),), lambda config, seeds: {"x": [sign * seed for seed in seeds]})

    make(plan(6, 1), path)
    before = path.read_text(encoding="utf-8")
    make(plan(6, -1), path)
    assert path.read_text(encoding="utf-8") == before
    make(plan(8, -1), path)
    assert read(path).values("x", {"n": 1}) == [0, 1, 2, 3, 4, 5, -6, -7]
    assert path.read_text(encoding="utf-8").startswith(before.removesuffix("\n]}\n"))


# ---------------------------------------------------------------- what is in this checkout


def test_every_record_has_its_plan_and_all_that_it_asks_for() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(PLANS)
    assert {path.stem for path in FOLDER.glob("*.jsonl")} <= set(SWEEPS)
    assert {path.suffix for path in FOLDER.iterdir() if path.is_file()} <= {".json", ".jsonl", ".py"}
    for name, plan in PLANS.items():
        assert record(name).about == plan.about
        for config, num_seeds in plan.configs:
            assert sorted(record(name).seeds(config)) == list(range(num_seeds))


def cases(name: str, num_seeds: int, *shallow: int) -> list[Any]:
    """By the index of their configurations; all but the shallow ones are slow."""
    return [
        pytest.param(name, index, num_seeds, marks=[] if index in shallow else [pytest.mark.slow])
        for index in range(len(PLANS[name].configs))
    ]


@pytest.mark.parametrize(
    ("name", "index", "num_seeds"),
    [*cases("encoder-decoders", 2, 0, 4, 8), *cases("encoders", 4, 0, 2, 4, 6), *cases("encoder-share", 4, 0, 3, 6)],
)
def test_the_first_seeds_give_the_same_numbers_again(name: str, index: int, num_seeds: int) -> None:
    config, _ = PLANS[name].configs[index]
    for quantity, numbers in PLANS[name].measure(config, range(num_seeds)).items():
        kept = record(name).values(quantity, config)[:num_seeds]
        assert numbers == pytest.approx(kept, rel=1e-6), quantity


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *(
            pytest.param("encoder-decoders", {"scheme": scheme, "num_layers": 6}, marks=pytest.mark.slow)
            for scheme in ("post-ln", "post-ln-init", "deepnet")
        ),
        *(("encoders", {"scheme": "deepnorm", "activation": phi, "num_sublayers": 4}) for phi in ("relu", "gelu")),
    ],
)
def test_other_seeds_agree_with_the_record(name: str, config: dict[str, Any]) -> None:
    """The difference of the mean logarithms has 0 in its interval, four and a half standard errors either way."""
    found = PLANS[name].measure(config, range(10_000, 10_024))
    for quantity, numbers in found.items():
        low, high = exponent(record(name).values(quantity, config), numbers, math.e)
        middle, half = (low + high) / 2, (high - low) / 2
        assert abs(middle) < 1.5 * half, quantity
        assert half < 1.5, quantity


def test_figure_5_does_not_hang_on_its_seeds() -> None:
    """Either half of the seeds says the same of every scheme, and each depth's update is above the one before."""
    for scheme, grows in (("post-ln", True), ("post-ln-init", False), ("deepnet", False)):
        updates = {n: encoder_decoders(scheme, n)[0] for n in DEPTHS}
        for half in (slice(None, None, 2), slice(1, None, 2)):
            power = exponent(updates[6][half], updates[100][half], 100 / 6)
            assert is_below(power, 1 / 8) is (not grows)
    logs = [interval([math.log(x) for x in encoder_decoders("post-ln", n)[0]]) for n in DEPTHS]
    assert all(low.low < high.low for low, high in pairwise(logs))


def test_means_and_logarithms_give_one_power() -> None:
    low, high = [1.0, 1.1, 0.9, 1.0], [4.0, 4.2, 3.8, 4.0]
    for found in (exponent(low, high, 2), exponent_of_means(low, high, 2)):
        assert found.low < 2 < found.high


def test_the_command_names_its_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.main([]) == runs.main(["nothing"]) == 2
    assert "encoder-decoders" in capsys.readouterr().err
