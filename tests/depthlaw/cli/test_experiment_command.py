"""``depthlaw experiment``: what it refuses, runs and says, on runs that nobody trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import NAMES, base, experiment
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS, Book
from depthlaw.paper_checks.experiments.scale import SCALES
from depthlaw.paper_checks.routes.training.arms import ANSWERS
from depthlaw.paper_checks.routes.training.questions import QUESTIONS
from depthlaw.sims.training import store, sweep
from depthlaw.sims.training.store import Row, Store
from depthlaw.system import places
from tests import made_runs
from tests.command import depthlaw, document, told
from tests.often import often

NAME = "stable-rates"
ARMS = experiment(NAME).arms


def named(trial: Trial) -> dict[str, Any]:
    """In place of ``Trial.named``, which makes the numbers of each network and reads its data."""
    found = asdict(trial) | {"measure_at": list(trial.measure_at), "numbers": "made", "data": "made"}
    return json.loads(json.dumps(found))


class Made:
    """In place of ``execute``."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.broken: Callable[[Trial], bool] = lambda trial: False

    def __call__(self, several: Sequence[Mapping[str, Any]], **_: Any) -> list[dict[str, Any]]:
        return list(map(self.one, several))

    def one(self, config: Mapping[str, Any]) -> dict[str, Any]:
        trial = Trial.of(config)
        self.keys.append(store.key(config))
        if self.broken(trial):
            raise RuntimeError("out of paper")
        return made_runs.result(trial, made_runs.as_claimed(trial)).plain()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found = Made()
    monkeypatch.setattr(base, "execute", found)
    monkeypatch.setattr(Trial, "named", named)
    monkeypatch.setattr(sweep, "pool", lambda num_workers, **_: ThreadPoolExecutor(1))
    return found


class Command:
    """``depthlaw experiment`` with a store of its own."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.store, self.name = folder / "runs.sqlite", name

    def __call__(self, options: str = "", *, code: int = 0) -> CompletedProcess[str]:
        place = ["--store", self.store, "--device", "cpu"]
        result = depthlaw("experiment", self.name, *options.split(), *place, COLUMNS="80")
        assert result.returncode == code
        return result

    def answer(self, options: str = "") -> dict[str, Any]:
        return json.loads(self(f"{options} --json").stdout)

    def fill(self, rows: Sequence[Row]) -> None:
        """Put runs into the store at once."""
        with Store(self.store) as kept:
            assert kept.add_all(rows) == len(rows)

    def book(self) -> dict[Trial, Any]:
        with Store(self.store) as kept:
            book = base.there(kept)
        return {trial: book[trial] for trial in book.trials}


def plain(text: str) -> str:
    """A table's words without its rules."""
    return " ".join(text.replace("│", " ").split())


@cache
def made_rows(num_seeds: int) -> tuple[Row, ...]:
    versions = dict.fromkeys(("python", "torch", "numpy", "depthlaw"), "1.2")
    about = {"versions": versions, "device": "cpu", "created": datetime.now(UTC), "seconds": 1.0}
    book = made_runs.fill(ARMS, (*PILOT_SEEDS, *range(num_seeds)))  # the pilot's, which no answer counts
    return tuple(
        Row.model_validate({"config": named(trial), "result": book[trial].plain(), "about": about})
        for trial in book.trials
    )


@pytest.fixture
def command(tmp_path: Path, made: Made) -> Command:
    return Command(tmp_path)


@pytest.fixture
def deep(tmp_path: Path, made: Made) -> Command:
    """Of few runs: one of each arm and seed."""
    return Command(tmp_path, "thousand-layers")


# ---------------------------------------------------------------- a plan


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", often(NAMES, 3, wide=1))
def test_a_plan_needs_no_store_and_makes_none(name: str, scale: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    arguments = ["experiment", name, "--plan", "--scale", scale, "--store", path]
    text, found = told(*arguments, COLUMNS="80"), document(*arguments)
    assert not list(tmp_path.iterdir())
    assert list(found) == ["schema_version", "experiment", "question", "plan", "arms", "groups", "runs"]
    plan = experiment(name, scale)
    assert found["arms"] == [arm.name for arm in plan.arms] and f"{len(plan.arms)} arms" in text
    assert found["plan"] in text and found["question"] in text
    assert len(plan.rules.splitlines()) > 3 and plan.rules in text
    assert ("is not done yet" in found["plan"]) == bool(plan.pilot)


def test_a_plan_says_how_much_there_is_to_do(tmp_path: Path) -> None:
    """Sizes, and how many runs: where an arm searches, from one to as many as bisection takes."""

    def plan(options: str) -> str:
        return told("experiment", *options.split(), "--plan", "--store", tmp_path / "runs.sqlite", COLUMNS="80")

    text = plan("thousand-layers")
    rows = [json.loads(line) for line in places.training_record("thousand-layers").read_text("utf-8").splitlines()]
    hours = sum(row["about"]["seconds"] for row in rows) / 3600
    assert f"The {len(rows)} runs of the project's record took {hours:.1f} hours of one worker (cpu)." in text
    assert "15 arms of speech, 32 wide: 40 steps of 8 x 16 tokens\nRuns: 15 a seed.\nWith 3 seeds 45 in all" in text
    text = plan("stable-rates")
    assert "3 arms of bert, 32 wide: 300 steps of 16 x 32 tokens" in text
    # 27 searches of 21 rates, 6 of which may find their run among the other 48 arms'; a pilot of two, with three seeds.
    assert "Runs: 69 to 210 a seed, 6 to 36 for the pilot.\nWith 5 seeds, or more, 351 to 1,086 in all" in text


# ---------------------------------------------------------------- runs


@pytest.mark.wide
def test_a_run_that_fails_is_told_and_the_next_call_goes_on(deep: Command, made: Made) -> None:
    made.broken = lambda trial: (trial.scheme, trial.num_layers) == ("pre-ln", 24)
    result = deep("--seeds 1 --json", code=1)
    runs = json.loads(result.stdout)["runs"]
    assert (len(runs["failed"]), runs["is_finished"]) == (1, False)
    assert runs["done"] == len(experiment(deep.name).arms) - 1
    assert [line for line in result.stderr.splitlines() if "a run failed: RuntimeError: out of paper" in line]
    assert "not finished: the same command goes on" in deep("--seeds 1", code=1).stdout
    made.broken = lambda trial: False
    assert deep.answer("--seeds 1")["runs"]["is_finished"]


# ---------------------------------------------------------------- the answer


DOCUMENT = "schema_version experiment question claims plan arms questions runs store"


@pytest.mark.slow
def test_the_document_has_arms_answers_and_runs_and_people_read_the_same(command: Command) -> None:
    """In 80 columns, of which nothing is cut; the store's path, on the last line, is whole."""
    command.fill(made_rows(LEAST_SEEDS))
    answer, text = command.answer(), command().stdout
    *lines, last = text.splitlines()
    assert list(answer) == DOCUMENT.split()
    assert (answer["schema_version"], answer["experiment"], answer["store"]) == (1, NAME, str(command.store))
    assert answer["runs"]["is_finished"] and answer["runs"]["done"] == 0
    assert max(map(len, lines)) <= 80 and "…" not in text
    assert str(command.store) in last and last.endswith("; finished.")
    assert answer["question"] in plain(text) and answer["plan"] in plain(text)
    for one, arm in zip(answer["arms"], ARMS, strict=True):
        number = "largest_rates" if arm.grid else "held_out"
        assert set(one) == {"arm", "num_seeds", "num_runs", "num_under_way", "trained", "update", number}
        assert one["arm"] == arm.name and one["num_seeds"] == LEAST_SEEDS and one["trained"] <= one["num_runs"]
        edges = [made_runs.as_claimed(arm.at(seed)) for seed in range(LEAST_SEEDS)]
        assert not arm.grid or all(low < true < 2 * low for low, true in zip(one[number], edges, strict=True))
    assert [one["statement"] for one in answer["questions"]] == [one.text for one in QUESTIONS[NAME]]
    book = Book(command.book())
    for question, statement in zip(answer["questions"], QUESTIONS[NAME], strict=True):
        if statement in QUESTIONS[NAME][:2]:  # evidence is most of the work, and the command has it of all
            found = statement.evidence(book)
            assert question["answer"] == ANSWERS[found.verdict] and question["numbers"] == dict(found.numbers)
        assert f"{question['answer']} {question['statement']}" in plain(text)
        assert all(f"{name}: {value}" in plain(text) for name, value in question["numbers"].items())


@pytest.mark.wide
def test_what_is_not_there_is_open_and_says_why(command: Command) -> None:
    answer, text = command.answer("--budget 1e-9"), command("--budget 1e-9").stdout
    assert list(answer) == DOCUMENT.split()
    assert {one["answer"] for one in answer["questions"]} == {"open"}
    assert all("the record has no seed of" in one["how"] for one in answer["questions"])
    assert all(arm["num_seeds"] == 0 and arm.get("largest_rates", []) == [] for arm in answer["arms"])
    assert " of 0" not in text and text.rstrip().endswith("not finished: the same command goes on.")


# ---------------------------------------------------------------- records


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the project's."""
    (tmp_path / "records").mkdir()
    monkeypatch.setattr(places, "TRAINING_RECORDS", tmp_path / "records")
    return tmp_path / "records"


@pytest.mark.wide
def test_what_is_exported_is_read_again(deep: Command, made: Made, records: Path) -> None:
    """It is the record of the next store, and the same book."""
    target = records / f"{deep.name}.jsonl"
    deep.answer("--seeds 1")
    made.keys.clear()
    result = deep(f"--seeds 1 --export {target} --json")
    book, read = deep.book(), Book.read(target)
    assert f"{len(book)} runs written to {target}" in result.stderr
    assert {trial: read[trial] for trial in read.trials} == book
    deep.store.unlink()
    again = deep("--seeds 1 --from-record --json")
    assert f"{len(book)} runs of the project's record are new" in again.stderr
    assert deep.book() == book and not made.keys
    assert json.loads(again.stdout)["questions"] == json.loads(result.stdout)["questions"]
    assert "0 runs of the project's record are new" in deep("--seeds 1 --from-record").stderr
