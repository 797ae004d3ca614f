"""The GPU lane without a GPU: every command of it at a small size, and what it says when time or a step fails it."""

import json
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from depthlaw.cli import app
from tests.gpu import __main__ as lane


@pytest.mark.parametrize("size", ["small", "full"])
def test_every_command_of_depthlaw_can_be_read(size: str, tmp_path: Path) -> None:
    """A small twin of those that are run, below."""
    group, num_read = get_command(app.app), 0
    assert isinstance(group, TyperGroup)
    for step in lane.STEPS:
        words = shlex.split(step.command.format(device="cpu", out=tmp_path, **getattr(step, size)))
        if "depthlaw" in words:
            name, *arguments = words[words.index("depthlaw") + 1 :]
            group.commands[name].make_context(name, arguments)
            num_read += 1
    assert num_read >= 4


@pytest.mark.slow
def test_every_command_runs_in_a_rehearsal(tmp_path: Path) -> None:
    assert lane.main(["--device", "cpu", "--rehearsal", "--minutes", "14", "--out", str(tmp_path)]) == 0
    kept = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    assert [*kept["seconds"]] == [step.name for step in lane.STEPS]
    assert {"deep.jsonl", "bench.json", "sharded.sqlite", "thousand.sqlite", "gpu.jsonl"} <= {
        path.name for path in tmp_path.iterdir()
    }
    with pytest.raises(SystemExit, match="2"):  # what a rehearsal measured is no measurement
        lane.main(["--device", "cpu", "--out", str(tmp_path)])


def test_it_says_what_is_left_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "mark"
    ended = f"-c \"open({str(mark)!r}, 'a').write('x')\""
    commands = {"ends": ended, "fails": '-c "import sys; sys.exit(3)"', "long": '-c "import time; time.sleep(99)"'}
    steps = [lane.Step(name=name, what=name, command=text, full={}, small={}) for name, text in commands.items()]
    monkeypatch.setattr(lane, "STEPS", (*steps, lane.Step(name="late", what="late", command=ended, full={}, small={})))
    monkeypatch.setattr(lane, "SPARE_S", 4)
    for _ in range(2):
        assert lane.main(["--device", "cpu", "--minutes", "0.1", "--out", str(tmp_path)]) == 1
        said = capsys.readouterr().out
        assert "done: ends (" in said and "failed: fails (exit 3)\n" in said
        assert "left, for another call: long (long), late (late)\n" in said
    assert mark.read_text() == "x"  # what is done is not done again


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        lane.main(["--out", str(tmp_path)])
    assert "sees no GPU (allowed: --device cpu --rehearsal" in capsys.readouterr().err
