"""DeepNet's records: what stands in them is measured again, with the same seeds and others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from depthlaw.paper_checks.experiments import clients
from depthlaw.paper_checks.experiments.sweeps import SWEEPS
from depthlaw.paper_checks.papers.deepnet.runs import PLANS, Plan, add, record, recorded
from depthlaw.paper_checks.routes.intervals import exponent
from depthlaw.sims.records.record import find, read
from depthlaw.system.places import RECORDS as FOLDER


def test_what_is_missing_is_added_behind_and_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"

    def plan(num_seeds: int, sign: int) -> Plan:
        return Plan((({"n": 1}, num_seeds),), lambda config, seeds: {"x": [sign * seed for seed in seeds]})

    add(plan(6, 1), path)
    before = path.read_text(encoding="utf-8")
    add(plan(6, -1), path)
    assert path.read_text(encoding="utf-8") == before
    add(plan(8, -1), path)
    assert find(read(path), {"n": 1}).values == {"x": (0, 1, 2, 3, 4, 5, -6, -7)}
    assert path.read_text(encoding="utf-8").startswith(before)


# ---------------------------------------------------------------- what is in this checkout


def test_every_record_has_its_plan_and_all_that_it_asks_for() -> None:
    assert set(PLANS) <= {path.stem for path in FOLDER.glob("*.jsonl")} <= {*PLANS, *SWEEPS, clients.PATH.stem}
    assert {path.suffix for path in FOLDER.iterdir() if path.is_file()} <= {".jsonl", ".py"}
    for name, plan in PLANS.items():
        for config, num_seeds in plan.configs:
            assert sorted(find(record(name), config).seeds) == list(range(num_seeds))


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
        kept = recorded(name, quantity, config)[:num_seeds]
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
        low, high = exponent(recorded(name, quantity, config), numbers, math.e)
        middle, half = (low + high) / 2, (high - low) / 2
        assert abs(middle) < 1.5 * half, quantity
        assert half < 1.5, quantity
