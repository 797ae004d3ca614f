"""Kept answers of the kernel rung are what it answers, whole, and of these sources; laws are read off them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from depthlaw.network.network import Network
from depthlaw.paper_checks.experiments import best_rates, experiment, kernel_kept, kernel_laws, stable_rates
from depthlaw.paper_checks.experiments.kernel_kept import DIGITS, Number, Question, ask, collect, stored, write
from depthlaw.paper_checks.experiments.kernel_laws import (
    KEPT_SCHEMES,
    LAWS,
    LENGTHS,
    MEASURED,
    MOST_OF_TWO_SIDES,
    OF_TRAINING,
    TRAINING_CASES,
    TRAINING_CORRELATION,
    TRAINING_OPTIMIZER,
    Law,
    correlation_of,
    law,
    network_of,
    of_measured,
    training_network,
    training_update,
)
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.experiments.stable_rates import gpt
from depthlaw.paper_checks.experiments.sweeps import OPTIMIZERS
from depthlaw.sims.training.data import DataConfig, load
from depthlaw.sims.training.store import read as read_rows
from depthlaw.system.places import TRAINING_RECORDS
from depthlaw.theory.schemes import scheme


@pytest.fixture(autouse=True)
def nothing_read() -> Iterator[None]:
    kernel_kept.read.cache_clear()
    yield
    kernel_kept.read.cache_clear()


KEPT: list[tuple[list[str], dict[str, str]]] = [
    (["post-ln", "pre-ln", "sub-ln", "sub-ln-gamma", "deepnorm"], {"activation": "gelu"}),
    (["sub-ln", "sub-ln-gamma"], {"norm_kind": "rmsnorm"}),
    (["deepnorm", "post-ln", "sub-ln-gamma"], {"arch": "encoder-decoder"}),
]


def test_every_law_is_kept_whole() -> None:
    for name, optimizer in product(KEPT_SCHEMES, OPTIMIZERS):
        kept = law(name, optimizer)
        assert {tuple(one) for one in (kept.updates, *kept.roles.values(), *kept.errors.values())} == {LENGTHS}
    for names, options in KEPT:
        most = MOST_OF_TWO_SIDES if "arch" in options else max(LENGTHS)
        for name in names:
            assert tuple(law(name, "sgd", **options).updates) == tuple(n for n in LENGTHS if n <= most)


@pytest.mark.parametrize("path", [LAWS, pytest.param(MEASURED, marks=pytest.mark.slow)], ids=["laws", "measured"])
def test_answers_are_to_the_numbers_that_the_networks_have_now(path: Path) -> None:
    """A scheme that is corrected is answered anew. Of the laws, shallow ones of every scheme."""
    kept = {answer.key for answer in stored(path)}
    asked = of_measured() if path == MEASURED else kernel_laws.of_laws(LENGTHS[:2])
    assert len(asked) > 2 * len(KEPT_SCHEMES)
    assert {question.key for question in asked} <= kept


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sub-ln-gamma", {"norm_kind": "rmsnorm"}),
        ("post-ln", {"arch": "encoder-decoder"}),
        pytest.param("t-fixup", {}, marks=pytest.mark.slow),
    ],
)
def test_an_answer_is_derived_again(name: str, options: dict[str, str]) -> None:
    """At one layer; it is the kept one to the last of the kept digits."""
    answer, kept = ask(Question(network_of(name, 1, **options), ("sgd",), "")), law(name, "sgd", **options)
    numbers = {role: number.value for role, number in answer.by_optimizer["sgd"].items()}
    assert {role: kept.of(role)[1] for role in numbers} == pytest.approx(numbers, rel=10.0 ** (1 - DIGITS))


@pytest.mark.wide
def test_no_two_kept_answers_have_one_name() -> None:
    """A network is found by its name: blocks that differ in one option only are two."""
    names = [(question.key[0], optimizer) for question in of_measured() for optimizer in question.optimizers]
    assert len(set(names)) == len(names)


def test_exponents() -> None:
    roles = {
        "q": {n: 3.0 / n for n in LENGTHS},
        "head": {n: 0.0 for n in LENGTHS},
        "fc1": {n: min(float(n), 250.0) for n in LENGTHS},
    }
    bent = Law(updates={n: 3.0 * n**0.5 for n in LENGTHS}, roles=roles, errors={})
    assert bent.exponent() == pytest.approx(0.5)
    assert bent.exponent("q", first=1, last=64) == pytest.approx(-1)
    assert bent.exponent("head") is None
    assert bent.local_exponents("head") == {}
    assert list(bent.local_exponents()) == list(pairwise(LENGTHS))
    assert bent.local_exponents("fc1")[500, 1000] == 0
    assert bent.exponent("fc1", last=125) == pytest.approx(1)
    assert bent.exponent("fc1", first=250) == pytest.approx(0)
    with pytest.raises(LookupError, match="two depths between 3 and 5, and 1 are kept"):
        bent.exponent(first=3, last=5)


TINY = [Network(scheme=scheme(name), arch="encoder", num_sublayers=2, num_tokens=2) for name in ("post-ln", "gpt2")]


def test_a_collection_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "kept.json", kernel_kept.questions(TINY, ("sgd",))
    answered = []
    monkeypatch.setattr(kernel_kept, "ask", lambda question: answered.append(question) or ask(question))
    with ThreadPoolExecutor(1) as pool:
        steps = collect(path, asked, pool)
        next(steps)
        steps.close()
        [first] = stored(path)
        again = collect(path, asked, pool)
        assert sum(1 for _ in again) == len(asked)
    assert [answer.key for answer in stored(path)] == [question.key for question in asked]
    assert stored(path)[0] == first
    assert len(answered) <= len(asked) + 1  # the second may have begun when it was stopped
    before, answered[:] = path.read_bytes(), []
    with ThreadPoolExecutor(1) as pool:
        list(collect(path, asked, pool))
    assert not answered
    assert path.read_bytes() == before


def test_answers_to_other_numbers_do_not_stay(tmp_path: Path) -> None:
    path, asked = tmp_path / "kept.json", kernel_kept.questions(TINY[:1], ("sgd",))
    right = ask(asked[0])
    write(path, [replace(right, numbers="another", by_optimizer={"sgd": {"update": Number(7.0, 0.0)}})])
    with ThreadPoolExecutor(1) as pool:
        list(collect(path, asked, pool))
    assert stored(path) == [right]


def test_the_kept_updates_are_of_the_networks_that_are_trained() -> None:
    networks = [training_network(*case) for case in TRAINING_CASES]
    digests = {kernel_kept.digest_of(network, TRAINING_OPTIMIZER) for network in networks}
    best = [(name, layers) for name in best_rates.SCHEMES for layers in best_rates.LAYERS]
    digests |= {kernel_kept.digest_of(training_network(*case), best_rates.OPTIMIZER) for case in best}
    assert {answer.numbers for answer in stored(OF_TRAINING)} == digests
    assert all(training_update(*case) > 0 for case in TRAINING_CASES)
    assert all(training_update(*case, best_rates.OPTIMIZER) > 0 for case in best)


TRAINED = [
    *((n, layers, "stable-rates", gpt(n, layers)) for n in stable_rates.SCHEMES for layers in stable_rates.LAYERS),
    *((n, layers, "best-rates", best_rates.arm_name(n, layers, best_rates.GRIDS[n][0]))
      for n in best_rates.SCHEMES for layers in best_rates.LAYERS),
]  # fmt: skip


def test_the_network_is_the_one_that_is_trained() -> None:
    """But for the eps in its norms."""
    for name, layers, of, arm in TRAINED:
        trained, asked = experiment(of).arm(arm).trial.lower(), training_network(name, layers)
        assert replace(trained.model, norm_eps=0.0) == replace(asked.config(trained.optimizer), norm_eps=0.0), arm
        assert trained.data.num_tokens == asked.num_tokens
        assert trained.optimizer == {"stable-rates": TRAINING_OPTIMIZER, "best-rates": best_rates.OPTIMIZER}[of]


def test_the_correlation_is_that_of_the_tokens() -> None:
    """Of the library that the record was made with; in every Python's few pairs of bytes are equal."""
    rows = read_rows(TRAINING_RECORDS / "stable-rates.jsonl")
    recorded = next(str(row.config["data"]) for row in rows if row.config["shape"] == "gpt")
    found = correlation_of()
    is_same = load(DataConfig(name="causal", num_tokens=SMALL.num_tokens)).digest == recorded
    assert abs(found - TRAINING_CORRELATION) < (5e-4 if is_same else 0.2)


def test_few_points_nearly_give_a_kept_answer() -> None:
    (question,) = kernel_kept.questions([training_network("deepnorm", stable_rates.LAYERS[0])], (TRAINING_OPTIMIZER,))
    (kept,) = [answer for answer in stored(OF_TRAINING) if answer.key == question.key]
    values, near = (
        {role: number.value for role, number in answer.by_optimizer[TRAINING_OPTIMIZER].items()}
        for answer in (kept, ask(replace(question, effort=0.01)))
    )
    assert near == pytest.approx(values, rel=0.05)
