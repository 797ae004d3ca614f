"""Kept answers of the kernel rung are what it answers, whole, and of these sources; laws are read off them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from paper_checks.experiments import kernel_kept, kernel_laws
from paper_checks.experiments.kernel_kept import (
    DIGITS,
    Number,
    Question,
    ask,
    collect,
    stored,
    write,
)
from paper_checks.experiments.kernel_laws import (
    KEPT_SCHEMES,
    LAWS,
    LENGTHS,
    MEASURED,
    MOST_OF_TWO_SIDES,
    Law,
    law,
    network_of,
    of_measured,
)
from paper_checks.experiments.sweeps import OPTIMIZERS
from paper_checks.lowering.networks import Network
from theory.schemes import scheme


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


@pytest.mark.parametrize("path", [LAWS, MEASURED], ids=lambda path: path.stem)
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


def test_learning_rates_of_ones_own_are_asked_by_themselves() -> None:
    """depth-mup has them under adam, and not under sgd and lamb."""
    asked = kernel_kept.questions([network_of("depth-mup", 4), network_of("post-ln", 4)], OPTIMIZERS)
    assert [question.optimizers for question in asked] == [("sgd", "lamb"), ("adam",), ("sgd", "adam", "lamb")]


@pytest.mark.parametrize("content", [None, '{"answers": ['], ids=["missing", "broken"])
def test_an_unreadable_file_is_refused_in_one_line(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernel-laws.json"
    monkeypatch.setattr(kernel_laws, "LAWS", path)
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(LookupError, match=r"kernel-laws\.json.*: python -m paper_checks\.experiments") as error:
        law("post-ln", "sgd")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("asked", [{"optimizer": "muon"}, {"activation": "gelu", "scheme": "gpt2"}])
def test_what_is_not_kept_is_a_lookup_error(asked: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match="nothing is kept of"):
        law(**{"scheme": "post-ln", "optimizer": "adam", **asked})


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


SMALL = [Network(scheme=scheme(name), arch="encoder", num_sublayers=2, num_tokens=2) for name in ("post-ln", "gpt2")]


def test_a_collection_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "kept.json", kernel_kept.questions(SMALL, ("sgd",))
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
    path, asked = tmp_path / "kept.json", kernel_kept.questions(SMALL[:1], ("sgd",))
    right = ask(asked[0])
    write(path, [replace(right, numbers="another", by_optimizer={"sgd": {"update": Number(7.0, 0.0)}})])
    with ThreadPoolExecutor(1) as pool:
        list(collect(path, asked, pool))
    assert stored(path) == [right]
