"""``depthlaw train``: the grid that it runs, its document, what people read of it, and that no run is made twice."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from depthlaw.network import trials
from depthlaw.paper_checks.pages import loss_plots
from depthlaw.sims.stats import estimate
from depthlaw.sims.training import sweep
from depthlaw.sims.training.outcomes import share
from depthlaw.sims.training.sweep import EndsSweepError
from depthlaw.sims.training.train import TrainResult
from tests import command as command_line

SMALL = "--width 8 --steps 3 --tokens 8 --batch 2 --evaluate-every 1 --measure-at 2,3"
GRID = f"--scheme post-ln,deepnorm --layers 1,2 --learning-rate 1e-3,4 --seeds 2 {SMALL}"
REAL = GRID.replace("1,2", "1")
ONE = f"--scheme pre-ln --layers 1 --learning-rate 1e-3 {SMALL}"
TEXT = " ".join(str(number * number) for number in range(10_000))
RESULT = TrainResult(
    outcome="trained",
    reason="",
    num_steps=1,
    held_out=2.0,
    best=2.0,
    guess=3.0,
    losses=[5.0],
    held_out_at=[(0, 6.0), (1, 2.0)],
    looks=[],
    num_parameters=1,
    seconds=1.0,
).plain()


class Counted:
    """In place of training: a result that is at hand, in this process."""

    def __init__(self) -> None:
        self.named: list[dict[str, Any]] = []

    def __call__(self, several: list[dict[str, Any]], **rest: Any) -> list[dict[str, Any]]:
        self.named += several
        return [RESULT] * len(several)


class Command:
    """``depthlaw train`` on a text of its own, with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.text = folder, folder / "runs.sqlite", folder / "own.txt"
        self.text.write_text(TEXT, encoding="utf-8")

    def __call__(self, options: str, *, has_text: bool = True) -> CompletedProcess[str]:
        text = ["--text", self.text] if has_text else []
        place = ("--store", self.store, "--device", "cpu")
        return command_line.depthlaw("train", *options.split(), *place, *text, COLUMNS="80")

    def answer(self, options: str, **rest: bool) -> dict[str, Any]:
        return json.loads(self.people(f"{options} --json", **rest))

    def people(self, options: str, **rest: bool) -> str:
        result = self(options, **rest)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def refusal(self, options: str, *more: str | Path, code: int = 2) -> str:
        return command_line.refusal("train", *options.split(), *more, "--store", self.store, code=code)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    monkeypatch.setattr(trials, "execute", found)
    monkeypatch.setattr(sweep, "pool", lambda num_workers, **_: ThreadPoolExecutor(1))
    return found


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


class Pickling(ThreadPoolExecutor):
    """Hands over what a process could be handed, which is what can be pickled."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn, args, kwargs = pickle.loads(pickle.dumps((fn, args, kwargs)))
        return super().submit(fn, *args, **kwargs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """For real; only asked for what it has."""
    command = Command(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "pool", lambda num_workers, **_: Pickling(1))
        command.answer(REAL)
    return command


# ---------------------------------------------------------------- the grid and the store


def test_the_grid_is_of_each_with_each(command: Command, counted: Counted) -> None:
    """Each of the lists with each, once; the first seed of all, then the second. Runs of one shape stand together."""
    found = command.answer(GRID.replace("post-ln,", "post-ln,post-ln,"))
    places = [(run["scheme"], run["num_layers"], run["learning_rate"], run["seed"]) for run in counted.named]
    assert places == [(s, n, r, k) for k in (0, 1) for n in (1, 2) for s in ("post-ln", "deepnorm") for r in (1e-3, 4)]
    assert len(found["rows"]) == 8 and all(row["num_runs"] == 2 for row in found["rows"])
    assert found["sweep"] == {"done": 16, "found": 0, "failed": {}, "left": 0}


def test_no_run_is_made_twice(command: Command, counted: Counted) -> None:
    """The same command again runs nothing; one that asks for more runs what is new."""
    first = command.answer(ONE)
    assert len(counted.named) == 1
    again = command.answer(ONE)
    assert len(counted.named) == 1
    assert {**again, "sweep": first["sweep"]} == first
    assert again["sweep"] == {"done": 0, "found": 1, "failed": {}, "left": 0}
    more = command.answer(f"{ONE} --seeds 3")
    assert [run["seed"] for run in counted.named] == [0, 1, 2]
    assert more["runs"][0] == first["runs"][0]
    assert command.answer(f"{ONE} --seed 1 --seeds 2")["seeds"] == [1, 2]
    assert len(counted.named) == 3


def test_a_budget_leaves_the_rest_for_later(command: Command, counted: Counted) -> None:
    """What does not begin is left, and the same command goes on with it."""
    spent = f"{ONE} --seeds 5 --budget 1e-9"
    found = command.answer(spent)
    assert not counted.named
    assert found["sweep"] == {"done": 0, "found": 0, "failed": {}, "left": 5}
    assert (found["rows"][0]["num_runs"], found["rows"][0]["num_missing"]) == (0, 5)
    assert "Left when the budget was spent: 5; the same command goes on" in " ".join(command.people(spent).split())
    assert command.answer(f"{ONE} --seeds 5 --budget 60")["rows"][0]["num_runs"] == 5
    assert "Left" not in command.people(spent)
    assert len(counted.named) == 5


def test_a_run_that_fails_is_told_and_tried_again(
    command: Command, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on, and the exit code is 1: something was not done. A run that diverged was."""

    def fail(several: list[dict[str, Any]], **rest: Any) -> list[dict[str, Any]]:
        if any(named["seed"] == 1 for named in several):
            raise RuntimeError("out of paper")
        return counted(several, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(trials, "execute", fail)
        result = command(f"{ONE} --seeds 3 --json")
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert (found["rows"][0]["num_runs"], found["sweep"]["done"]) == (2, 2)
    (line,) = result.stderr.splitlines()
    assert line.startswith("depthlaw: a run failed: RuntimeError: out of paper")
    assert command.answer(f"{ONE} --seeds 3")["rows"][0]["num_runs"] == 3
    assert [run["seed"] for run in counted.named] == [0, 2, 1]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt(), 130, "interrupted, stopping"), (sqlite3.OperationalError("full"), 2, "full")],
    ids=["Ctrl-C", "full disk"],
)
def test_what_stops_it_is_said_with_what_is_kept(
    command: Command, counted: Counted, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    """Of this command alone: what is in the store from earlier ones is none that it finished."""
    command.answer(ONE)

    def stopped(stops_at: int, several: list[dict[str, Any]], **rest: Any) -> list[dict[str, Any]]:
        if several[0]["seed"] >= stops_at:
            if rest["checkpoint_every"] == 7:
                rest["checkpoints"].mkdir()
                (rest["checkpoints"] / "one.pt").touch()
            raise EndsSweepError
        return counted(several, **rest)

    def sweeping(*given: Any, **rest: Any) -> Any:
        try:
            return sweep_through(*given, **rest)
        except EndsSweepError:
            raise error from None

    sweep_through = sweep.sweep
    monkeypatch.setattr(sweep, "sweep", sweeping)
    kept = f"{command.store}.checkpoints"
    goes_on = "and the same command goes on from"
    for stops_at, more, told in (
        (1, "", "nothing was kept"),
        (1, "--checkpoint-every 7", f"no run was finished, {goes_on} {kept}"),
        (2, "--checkpoint-every 7", f"what was finished is in {command.store}, {goes_on} there"),
    ):
        monkeypatch.setattr(trials, "execute", partial(stopped, stops_at))
        line = command.refusal(f"{ONE} --seeds 3 {more} --workers 1", "--text", command.text, code=code)
        assert said in line and line.endswith(f"; {told}")
        shutil.rmtree(kept, ignore_errors=True)


@pytest.mark.slow
def test_workers_are_processes_that_say_nothing(command: Command, capfd: pytest.CaptureFixture[str]) -> None:
    """For real: whatever a worker wrote would stand in the file descriptors that it shares with the command."""
    assert command.answer(f"{ONE} --workers 1")["sweep"]["done"] == 1
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- the document


def test_the_document_has_what_became_of_each_run(trained: Command) -> None:
    found = trained.answer(REAL)
    assert list(found) == ["schema_version", "config", "seeds", "data", "rows", "sweep", "store", "runs"]
    assert (found["schema_version"], found["seeds"], found["config"]["num_steps"]) == (1, [0, 1], 3)
    assert 0 < found["data"]["guess"] < found["data"]["uniform"] == pytest.approx(math.log(256))
    place = ("scheme", "optimizer", "num_layers", "learning_rate")
    for row in found["rows"]:
        runs = [run for run in found["runs"] if all(run["config"][name] == row[name] for name in place)]
        results = [run["result"] for run in runs]
        outcomes = [result["outcome"] for result in results]
        assert (row["num_runs"], row["num_missing"]) == (len(runs), 0)
        assert row["outcomes"] == {name: outcomes.count(name) for name in ("trained", "stuck", "diverged")}
        assert row["trained"] == vars(share(outcomes.count("trained"), 2))
        kept = [result["held_out"] for result in results if result["outcome"] != "diverged"]
        assert row["held_out"] == (vars(estimate(kept)) if kept else None)
        assert len(row["diverged"]) == outcomes.count("diverged")
        assert [one["step"] for one in row["updates"]] == [0, 2, 3]
        looks = [{look["step"]: look["update"]["update"] for look in result["looks"]} for result in results]
        for one in row["updates"]:  # each run's over its own at the start
            ratios = [look[one["step"]] / look[0] for look in looks if look.get(one["step"]) is not None]
            assert one["ratio"] == (vars(estimate(ratios)) if ratios else None)
    assert any(row["outcomes"]["stuck"] for row in found["rows"])
    assert any(row["diverged"] for row in found["rows"]), "a learning rate of 4 is too large"


def test_people_read_what_became_of_the_runs(trained: Command) -> None:
    text, found = trained.people(REAL), trained.answer(REAL)
    assert max(map(len, text.splitlines()[:-1])) <= 80, "but for the store's path, which is copied whole"
    assert "…" not in text, "nothing is cut"
    plain = " ".join(text.replace("│", " ").split())
    assert f"{found['data']['guess']:.4g} without looking at the input" in plain
    for row in found["rows"]:
        others = f"{row['outcomes']['stuck']} {row['outcomes']['diverged']}"
        num_trained = f"{row['trained']['successes']} of 2 [0, 0.84]"
        assert f"{row['scheme']} {row['num_layers']} {row['learning_rate']:g} {num_trained} {others}" in plain
        for one in row["diverged"]:
            assert f"seed {one['seed']}, diverged after 3 steps: {one['reason']}." in plain
    assert plain.endswith(f"Runs: 0 done now, 8 found. Kept in {trained.store}.")


def test_a_plot_is_written_and_one_of_too_many_panels_refused_before_any_run(
    command: Command, counted: Counted
) -> None:
    rates = ",".join(f"{number}e-3" for number in range(1, loss_plots.MOST_PANELS + 2))
    options = f"--scheme pre-ln --layers 1 --learning-rate {rates}"
    assert "49 panels" in command.refusal(options, "--plot", command.folder / "a.png")
    assert not counted.named
    target = command.folder / "losses.svg"
    command.people(f"{ONE} --plot {target}")
    assert target.read_text(encoding="utf-8").lstrip().startswith("<?xml")


# ---------------------------------------------------------------- what is there already


def test_what_steps_move_is_in_the_document_and_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "pool", lambda num_workers, **_: Pickling(1))
    options = "train --scheme pre-ln --shape vit --layers 1 --width 8 --learning-rate 1e-2 --steps 3 --batch 2 --moves"
    asked = [*options.split(), "--measure-at", "2", "--store", str(tmp_path / "runs.sqlite")]
    found = command_line.document(*asked)
    [row], [run] = found["rows"], found["runs"]
    for one, look in zip(row["updates"], run["result"]["looks"], strict=True):
        assert {role: own["mean"] for role, own in one["moves"].items()} == look["moves"]["logits"]
        assert {role: own["mean"] for role, own in one["moves_in_full"].items()} == look["moves"]["in_full"]
        assert one["moves"]["update"]["mean"] > 0
    text = command_line.told(*asked)
    assert "step moves" in text and "in full" in text
