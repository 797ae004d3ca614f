"""Sweeps: every network of one can be built, fits where it is meant to run, and is measured round by round."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from paper_checks.experiments.sweeps import HEAD_SIZE, OPTIMIZERS, SWEEPS, Sweep, collect, only, run
from paper_checks.lowering.measuring import Kept, measure
from paper_checks.lowering.networks import FFN, Network
from paper_checks.system.places import RECORDS
from sims import stats
from sims.ensemble import MOST, bytes_of_member
from sims.records import record
from theory.schemes import SCHEMES, scheme

GPU_BYTES = MOST * 139 * 2**30
"""What one network may take of the GPU that the lane is planned for."""


def bytes_of(network: Network) -> int:
    config = network.task.on(network.config("sgd"))
    vectors = network.task.batch_size * network.task.num_tokens
    return bytes_of_member(config, vectors, network.task.num_tokens, 8)


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one == "gpu")) for one in SWEEPS])
def test_no_network_stands_twice_and_each_can_be_built(name: str) -> None:
    sweep = SWEEPS[name]
    named = [repr(network.named(optimizer)) for network in sweep.networks for optimizer in sweep.optimizers]
    assert len(set(named)) == len(named)
    assert repr(replace(sweep.networks[0]).named(sweep.optimizers[0])) in named  # an equal one has the same name
    for network in sweep.networks:
        if network.arch != FFN:
            assert network.d_model == HEAD_SIZE * network.num_heads


def test_the_gpu_s_networks_fit_into_it() -> None:
    largest = max(SWEEPS["gpu"].networks, key=bytes_of)
    assert bytes_of(largest) < GPU_BYTES < bytes_of(replace(largest, num_sublayers=2 * largest.num_sublayers))


def test_transformers_are_those_of_every_scheme_at_two_widths() -> None:
    networks = SWEEPS["transformers"].networks
    layers = (1, 2, 4, 8, 16)
    expected = {(name, 2 * n, width) for name in SCHEMES for n in layers for width in (256, 512)}
    assert {(one.scheme.name, one.num_sublayers, one.d_model) for one in networks} == expected
    assert len(networks) == len(expected)


def test_a_sweep_goes_round_by_round_and_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    networks = tuple(Network(scheme=scheme(name), num_sublayers=2, d_model=8) for name in ("post-ln", "pre-ln"))
    sweep = Sweep("a test", networks, optimizers=("sgd",))
    steps = collect(sweep, path, 3, "cpu", 2)
    assert [(network.scheme.name, count) for network, count in (next(steps) for _ in range(3))] == [
        ("post-ln", 2),
        ("pre-ln", 2),
        ("post-ln", 3),
    ]
    del steps  # as when somebody stops it
    stopped = [one.seeds for one in Kept(path).runs]
    assert stopped == [[0, 1], [0, 1], [2]]
    assert len(list(collect(sweep, path, 3, "cpu", 2))) == 4
    assert [one.seeds for one in Kept(path).runs] == [*stopped, [2]]


def test_one_width_of_a_sweep() -> None:
    sweep = SWEEPS["transformers"]
    narrow = only(sweep, 256)
    assert {network.d_model for network in narrow.networks} == {256}
    assert 2 * len(narrow.networks) == len(sweep.networks) == len(only(sweep, 0).networks)
    with pytest.raises(ValueError, match=r"^no network is 100 wide \(allowed: 256, 512\)$"):
        only(sweep, 100)
    with pytest.raises(typer.BadParameter, match="no network is 100 wide"):
        run("transformers", width=100)
    with pytest.raises(typer.BadParameter, match="unknown sweep 'ffn'"):
        run("ffn")


@cache
def kept_runs(sweep: str) -> list[record.Run]:
    return record.read(RECORDS / f"{sweep}.jsonl")


def differs(sweep: str, network: Network, measured: Network) -> set[str]:
    """Of the record's first seed of a network, the roles whose value another measurement does not give again."""
    found: set[str] = set()
    for optimizer, now in measure(measured, OPTIMIZERS, [0], Kept(None)).items():
        kept = record.find(kept_runs(sweep), network.named(optimizer))
        before = {name: numbers[kept.seeds.index(0)] for name, numbers in kept.values.items()}
        assert set(before) == set(now.values)
        found |= {name for name, numbers in now.values.items() if numbers[0] != pytest.approx(before[name], rel=1e-5)}
    return found


def agrees(sweep: str, network: Network, measured: Network) -> bool:
    """Whether the update under sgd of eight other seeds is that of the record, by an interval of the difference."""
    new = measure(measured, ["sgd"], range(10_000, 10_008), Kept(None))["sgd"].values["update"]
    old = record.find(kept_runs(sweep), network.named("sgd")).values["update"]
    both = [[x for x in values if x is not None] for values in (new, old)]
    return stats.agrees(both[1], both[0]).is_agreed


ALWAYS = ("transformers", ("deepnorm", "sub-ln")), ("transformer-variants", ("post-ln",))


@pytest.mark.parametrize(
    ("sweep", "name"),
    [
        *((sweep, name) for sweep, names in ALWAYS for name in names),
        *(pytest.param("transformers", name, marks=pytest.mark.slow) for name in SCHEMES),
    ],
)
def test_a_kept_run_is_measured_again(sweep: str, name: str) -> None:
    """Which is what makes a record valid, whatever became of the code that made it. Another torch may draw other
    weights: there other seeds have to agree with those that are kept."""
    network = min((one for one in SWEEPS[sweep].networks if one.scheme.name == name), key=bytes_of)
    if kept_runs(sweep)[0].versions.torch == version("torch").partition("+")[0]:
        assert differs(sweep, network, network) == set()
    assert agrees(sweep, network, network)


def test_a_wrong_weight_is_no_such_run() -> None:
    network = min((one for one in SWEEPS["transformers"].networks if one.scheme.name == "post-ln"), key=bytes_of)
    assert "update" in differs("transformers", network, replace(network, activation="gelu"))
    assert not agrees("transformers", network, replace(network, num_sublayers=2 * network.num_sublayers))
