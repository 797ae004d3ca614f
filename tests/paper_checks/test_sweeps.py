"""Sweeps: every network of one can be built, fits where it is meant to run, and is measured round by round."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from depthlaw.network.measuring import Kept, measure
from depthlaw.network.network import FFN, Network
from depthlaw.paper_checks.experiments.sweeps import HEAD_SIZE, KEPT_SCHEMES, SWEEPS, Sweep, collect
from depthlaw.sims import stats
from depthlaw.sims.ensemble import MOST, bytes_of_member
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS
from depthlaw.theory.schemes import scheme

GPU_BYTES = MOST * 139 * 2**30
"""What one network may take of the GPU that the lane is planned for."""


LANES = {"gpu": pytest.mark.slow, "transformers": pytest.mark.wide, "ffn-stacks": pytest.mark.wide}
"""Of sweeps of many networks."""


def bytes_of(network: Network) -> int:
    config = network.task.on(network.config("sgd"))
    vectors = network.task.batch_size * network.task.num_tokens
    return bytes_of_member(config, vectors, network.task.num_tokens, 8)


@pytest.mark.parametrize("name", [pytest.param(one, marks=LANES.get(one, ())) for one in SWEEPS])
def test_no_network_stands_twice_and_each_can_be_built(name: str) -> None:
    sweep = SWEEPS[name]
    named = [repr(network.named(optimizer)) for network in sweep.networks for optimizer in sweep.optimizers]
    assert len(set(named)) == len(named)
    assert repr(replace(sweep.networks[0]).named(sweep.optimizers[0])) in named  # an equal one has the same name
    for network in sweep.networks:
        if network.arch != FFN:
            assert network.d_model == HEAD_SIZE * network.num_heads


@pytest.mark.wide
def test_the_gpu_s_networks_fit_into_it() -> None:
    largest = max(SWEEPS["gpu"].networks, key=bytes_of)
    assert bytes_of(largest) < GPU_BYTES < bytes_of(replace(largest, num_sublayers=2 * largest.num_sublayers))


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


ALWAYS = (("transformers", "deepnorm"), ("ffn-stacks", "su-lamb"))


@pytest.mark.parametrize(
    ("sweep", "name"),
    [
        *ALWAYS,
        *(
            pytest.param(sweep, name, marks=pytest.mark.slow)
            for sweep in ("transformers", "ffn-stacks", "transformer-variants")
            for name in (KEPT_SCHEMES if sweep != "transformer-variants" else ["post-ln"])
        ),
    ],
)
def test_a_kept_run_is_measured_again(sweep: str, name: str) -> None:
    """Which is what makes a record valid, whatever became of the code that made it. Another torch may draw other
    weights: there other seeds have to agree with those that are kept."""
    network = min((one for one in SWEEPS[sweep].networks if one.scheme.name == name), key=bytes_of)
    runs = record.read(RECORDS / f"{sweep}.jsonl")
    if runs[0].versions.torch == version("torch").partition("+")[0]:
        seed = record.find(runs, network.named("sgd")).seeds[0]
        for optimizer, now in measure(network, SWEEPS[sweep].optimizers, [seed], Kept(None)).items():
            kept = record.find(runs, network.named(optimizer))
            first = {role: numbers[kept.seeds.index(seed)] for role, numbers in kept.values.items()}
            assert {role: numbers[0] for role, numbers in now.values.items()} == pytest.approx(first, rel=1e-5)
    new = measure(network, ["sgd"], range(10_000, 10_008), Kept(None))["sgd"].values["update"]
    old = record.find(runs, network.named("sgd")).values["update"]
    kept, other = ([value for value in values if value is not None] for values in (old, new))
    assert stats.agrees(kept, other).is_agreed
