"""`depthlaw bench`: every contender takes the same pass, and what is printed is the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from subprocess import CalledProcessError, CompletedProcess
from typing import Any

import pytest
import torch

from depthlaw.cli.bench import show
from depthlaw.paper_checks.experiments import bench
from depthlaw.paper_checks.experiments.bench import Loop, Ours, Predicted, Size, contenders
from depthlaw.paper_checks.pages import speed
from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.system.page import Page
from tests.command import document
from tests.near import is_same_picture

RECORD = Path(__file__).parents[2] / "paper_checks/results/bench.json"
TINY = Size(16, 2, num_members=3, num_tokens=4)


def test_operations_are_those_of_the_matrices() -> None:
    """Forward, and twice as many backward, counted by torch; norms and activations are none."""
    from torch.utils.flop_counter import FlopCounterMode

    size = Size(32, 3, num_sequences=2, num_members=1, num_tokens=8)
    ours = Ours(size)
    (model, inputs), *_ = ours.parts
    with FlopCounterMode(display=False) as counter:
        hidden = model(inputs.x.requires_grad_())
        hidden.sum().backward()
    assert counter.get_total_flops() == pytest.approx(size.num_operations, rel=0.01)
    ours.close()


def test_a_loop_takes_every_gradient_and_drops_it() -> None:
    loop = Loop(TINY, bench.torch_encoder)
    seen: list[str] = []
    for model, _ in loop.models:
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    loop()
    assert len(seen) == len(list(loop.models[0][0].parameters())) * TINY.num_members
    assert all(parameter.grad is None for model, _ in loop.models for parameter in model.parameters())


@pytest.mark.parametrize("name", [name for name in contenders() if name not in ("two processes", "3 optimizers")])
def test_contenders_have_networks_of_the_same_size(name: str) -> None:
    """As many numbers in matrices of layers as ours; torch has its own biases and norms."""
    theirs, ours = contenders()[name](TINY), Ours(TINY)
    model = ours.parts[0][0]
    own = sum(p[0].numel() for _, p, role in model.tagged() if p.dim() == 3 and role != "head")
    for other, _ in theirs.models:
        assert sum(p.numel() for p in other.parameters() if p.dim() == 2) == own
    theirs()
    ours.close()


@pytest.mark.wide
def test_training_together_is_a_row_as_the_others() -> None:
    row = bench.trained(Size(16, 1, num_sequences=2, num_members=2, num_tokens=16), rounds=1)
    assert row["beside"] == "runs one by one" and row["seconds"] > 0 and row["share_of_peak"] > 0
    assert set(row) == set(json.loads(RECORD.read_text(encoding="utf-8"))["rows"][0])


class Here:
    """In the place of a pool of processes: what is submitted is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(call(*arguments))
        return future


def test_growth_is_the_slope_over_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what takes 3 n^2 seconds and no memory beyond the program's own."""
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(bench, "_alone", lambda size: (3.0 * size.num_layers**2, 0.0))
    for what, sizes in bench.AXES.items():
        row = bench.growth(*what)
        assert (row["of"], row["axis"]) == what
        assert [type(sizes[0])(**{row["axis"]: value}, **row["fixed"]) for value in row["values"]] == [*sizes]
        assert row["seconds"] == [3.0 * size.num_layers**2 for size in sizes]
        slopes = {"num_layers": pytest.approx(2.0), "optimizer": None}
        assert row["time"] == slopes.get(row["axis"], pytest.approx(0.0, abs=1e-9))
        assert row["memory"] is None


@pytest.mark.parametrize(("first", "times"), [(1.0, 4), (60.0, 2)])
def test_each_size_is_what_is_timed_and_a_long_one_less_often(
    first: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Any] = []

    def seconds_of(call: Callable[[], Any]) -> float:
        timed.append(call)
        return first / len(timed)

    monkeypatch.setattr(bench, "seconds_of", seconds_of)
    size = Predicted(2, 2, "sgd")
    assert bench._alone(size)[0] == first / times and timed == [size] * times
    timed.clear()
    assert bench._alone(TINY)[0] == first / times
    assert len(timed[0].parts[0][0].numbers) == 2 * TINY.num_layers


def test_a_command_is_asked_again_where_its_first_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, which is empty at first and gone afterwards; and a crash is no answer."""
    seen: list[tuple[str, list[str]]] = []

    def run(program: list[str], *, env: dict[str, str], **_: Any) -> CompletedProcess[bytes]:
        if kept := env["DEPTHLAW_CACHE"]:
            seen.append((kept, sorted(path.name for path in Path(kept).iterdir())))
            (Path(kept) / "answer").touch()
        is_audit = "audit" in program
        return CompletedProcess(program, int(is_audit), b"" if "crash" in program else b"a fault")

    monkeypatch.setattr(bench.subprocess, "run", run)
    (row,) = bench.commands(["--help"])
    assert (row["command"], row["beside"]) == ("depthlaw --help", "import typer")
    assert min(row[name] for name in ("seconds", "again", "least")) >= 0
    (first, before), (second, between) = seen
    assert first == second and (before, between) == ([], ["answer"]) and not Path(first).exists()
    assert len([*bench.commands(["audit mine"])]) == 1
    with pytest.raises(CalledProcessError):
        next(bench.commands(["audit crash"]))


def test_people_read_the_record(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows, what time and memory grow with, and how long commands take, where no cell is broken into lines."""
    monkeypatch.setenv("COLUMNS", "200")
    answer, page = speed.kept(), Page()
    show(answer, page)
    text = " ".join(capsys.readouterr().out.split())
    assert all(row["beside"] in text for row in answer["rows"])
    assert all(f"{row['seconds'][0]:.3g}" in text for row in answer["growth"])
    assert all(f"{row['seconds']:.2f}" in text and f"{row['again']:.2f}" in text for row in answer["commands"])


# ---------------------------------------------------------------- the page


def test_the_page_and_its_figure_are_in_step() -> None:
    answer = speed.kept()
    assert speed.PAGE.read_text(encoding="utf-8") == speed.page(answer)
    assert is_same_picture(speed.FIGURE.read_text(encoding="utf-8"), svg(speed.drawing(answer)))


def test_a_record_of_another_machine_makes_another_page() -> None:
    answer = speed.kept()
    for row in answer["rows"]:
        if (row["beside"], row["num_layers"], row["num_sequences"]) == ("vmap", 32, 1):
            row["ratio"] = 17.25
    row = next(row for row in answer["growth"] if (row["of"], row["axis"]) == ("prediction", "num_tokens"))
    row["time"], row["fixed"]["num_layers"] = 3.14, 77
    text = speed.page(answer)
    assert "| 17.25 |" in text and "| 3.14 |" in text and text.count("77 layers") == 2
    assert "17.2 times as fast as under `vmap`" in speed.in_readme(answer)


@pytest.mark.slow
def test_quick_says_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", (TINY,))
    record = tmp_path / "mine.json"
    before = torch.get_num_threads()
    answer = document("bench", "--quick", "--record", str(record))
    assert json.loads(record.read_text(encoding="utf-8")) == answer
    assert {row["beside"] for row in answer["rows"]} == set(contenders())
    for row in answer["rows"]:
        assert row["ratio_least"] <= row["ratio"] <= row["ratio_most"]
        assert row["seconds"] > 0 and row["share_of_peak"] > 0  # on a busy machine it may be over 1
        assert (row["with_construction"] is None) == (row["beside"] == "two processes")
    assert {"processor", "num_cores", "device"} <= set(answer["machine"]) and "torch" in answer["versions"]
    assert torch.get_num_threads() == before
