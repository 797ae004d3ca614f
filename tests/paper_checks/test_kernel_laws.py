"""Kept answers of the kernel rung are what it answers, whole, and of these sources; laws are read off them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paper_checks.experiments import kernel_kept, kernel_laws
from paper_checks.experiments.kernel_kept import (
    DIGITS,
    Answer,
    Number,
    Question,
    ask,
    collect,
    stored,
    write,
)
from paper_checks.experiments.kernel_laws import (
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
from theory.schemes import SCHEMES, scheme


@pytest.fixture(autouse=True)
def nothing_read() -> Iterator[None]:
    kernel_kept.read.cache_clear()
    yield
    kernel_kept.read.cache_clear()


# ---------------------------------------------------------------- what is kept


def test_every_law_is_kept_whole() -> None:
    for name in SCHEMES:
        for optimizer in OPTIMIZERS:
            found = law(name, optimizer)
            assert {tuple(one) for one in (found.updates, *found.roles.values(), *found.errors.values())} == {LENGTHS}
    for name in ("post-ln", "pre-ln", "sub-ln", "sub-ln-gamma", "deepnorm"):
        assert tuple(law(name, "sgd", activation="gelu").updates) == LENGTHS
    for name in ("sub-ln", "sub-ln-gamma"):
        assert tuple(law(name, "sgd", norm_kind="rmsnorm").updates) == LENGTHS
    for name in ("deepnorm", "post-ln", "sub-ln-gamma"):
        shallow = tuple(length for length in LENGTHS if length <= MOST_OF_TWO_SIDES)
        assert tuple(law(name, "sgd", arch="encoder-decoder").updates) == shallow


@pytest.mark.parametrize("path", [LAWS, MEASURED], ids=lambda path: path.stem)
def test_answers_are_to_the_numbers_that_the_networks_have_now(path: Path) -> None:
    """A scheme that is corrected is answered anew. Of the laws, shallow ones of every scheme."""
    kept = {answer.key for answer in stored(path)}
    asked = of_measured() if path == MEASURED else kernel_laws.of_laws(LENGTHS[:2])
    assert len(asked) > 2 * len(SCHEMES)
    assert {question.key for question in asked} <= kept
    other = replace(asked[0], numbers="another")
    assert other.key not in kept


AGAIN: list[tuple[str, int, dict[str, str]]] = [
    ("sub-ln-gamma", 1, {"norm_kind": "rmsnorm"}),
    ("post-ln", 1, {"arch": "encoder-decoder"}),
    ("t-fixup", 1, {}),
]


def differs(kept: Law, length: int, answer: Answer) -> list[str]:
    """Roles whose kept number is not that of the answer, to the last of the kept digits."""
    found = {role: number.value for role, number in answer.by_optimizer["sgd"].items()}
    rounding = 10.0 ** (1 - DIGITS)
    return [role for role, value in found.items() if kept.of(role)[length] != pytest.approx(value, rel=rounding)]


@pytest.mark.parametrize(
    ("name", "length", "options"),
    [pytest.param(*one, id=one[0], marks=[] if one[2] else [pytest.mark.slow]) for one in AGAIN],
)
def test_an_answer_is_derived_again(name: str, length: int, options: dict[str, str]) -> None:
    network = network_of(name, length, **options)
    answer = ask(Question(network, ("sgd",), ""))
    kept = law(name, "sgd", **options)
    assert differs(kept, length, answer) == []
    off = replace(kept, updates={n: value * (1 + 10.0 ** (2 - DIGITS)) for n, value in kept.updates.items()})
    assert differs(off, length, answer) == ["update"]


def test_learning_rates_of_ones_own_are_asked_by_themselves() -> None:
    """depth-mup has them under adam, and not under sgd and lamb."""
    asked = kernel_kept.questions([network_of("depth-mup", 4), network_of("post-ln", 4)], OPTIMIZERS)
    assert [question.optimizers for question in asked] == [("sgd", "lamb"), ("adam",), ("sgd", "adam", "lamb")]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("what", ["missing", "broken"])
def test_an_unreadable_file_is_refused_in_one_line(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel-laws.json"
    monkeypatch.setattr(kernel_laws, "LAWS", path)
    if what == "broken":
        path.write_text('{"answers": [', encoding="utf-8")
    with pytest.raises(
        LookupError, match=r"kernel-laws\.json.*: python -m paper_checks\.experiments\.kernel_laws"
    ) as error:
        law("post-ln", "sgd")
    assert "\n" not in str(error.value)
    write(path, [])
    kernel_kept.read.cache_clear()
    with pytest.raises(LookupError, match="nothing is kept of post-ln under sgd"):
        law("post-ln", "sgd")


@pytest.mark.parametrize("asked", [{"optimizer": "muon"}, {"activation": "gelu", "scheme": "gpt2"}])
def test_what_is_not_kept_is_a_lookup_error(asked: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match="nothing is kept of"):
        law(**{"scheme": "post-ln", "optimizer": "adam", **asked})


# ---------------------------------------------------------------- exponents


def power(exponent: float, lengths: tuple[int, ...] = LENGTHS) -> dict[int, float]:
    return {n: 3.0 * n**exponent for n in lengths}


def test_exponents() -> None:
    nothing: dict[int, float] = {n: 0.0 for n in LENGTHS}
    bent: dict[int, float] = {n: float(n) if n < 250 else 250.0 for n in LENGTHS}
    found = Law(updates=power(0.5), roles={"q": power(-1.0), "head": nothing, "fc1": bent}, errors={})
    assert found.exponent() == pytest.approx(0.5)
    assert found.exponent("q", first=1, last=64) == pytest.approx(-1)
    assert found.exponent("head") is None
    assert found.local_exponents("head") == {}
    assert list(found.local_exponents()) == list(pairwise(LENGTHS))
    assert found.local_exponents("fc1")[500, 1000] == 0
    assert found.exponent("fc1", last=125) == pytest.approx(1)
    assert found.exponent("fc1", first=250) == pytest.approx(0)
    with pytest.raises(LookupError, match="two depths between 3 and 5, and 1 are kept"):
        found.exponent(first=3, last=5)


# ---------------------------------------------------------------- going on


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
