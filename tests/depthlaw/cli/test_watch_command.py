"""``depthlaw watch``: what it prints and draws of files of runs, and what it refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthlaw.paper_checks.pages.drawing import svg
from depthlaw.paper_checks.pages.watch_plots import drawing_of
from depthlaw.system.places import FIGURES, RECORDS
from depthlaw.watching.compare import compare
from depthlaw.watching.record import Run, Writer
from tests.command import DEPTHLAW, document, refusal, told
from tests.depthlaw.watching.runs import look, made, trained
from tests.near import is_same_picture

STEPS: tuple[int, ...] = (0, 10, 20, 40, 80)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """fc2 of 48 layers moves three times as far as that of 12 up to step 20."""
    monkeypatch.chdir(tmp_path)
    one = dict.fromkeys(STEPS, 0.5)
    made(Path("run12.jsonl"), {"fc2": one, "q": one})
    made(Path("run48.jsonl"), {"fc2": one | dict.fromkeys((0, 10, 20), 1.5), "q": one}, num_layers=48)
    return tmp_path


def test_two_runs_are_a_verdict_in_a_screen(two: Path) -> None:
    shown = told("watch", "run12.jsonl", "run48.jsonl", "--plot", "both.svg", COLUMNS="100")
    assert "fc2 of 48 layers moved 3 times as far as that of 12 layers in steps 0 to 20, then alike." in " ".join(
        shown.split()
    )
    assert [line.split()[1::2][:3] for line in shown.splitlines() if line.startswith("│ fc2")] == [["fc2", "50", "│"]]
    assert len(shown.splitlines()) <= 24 and shown.endswith("Wrote both.svg.\n")
    drawn = Path("both.svg").read_text(encoding="utf-8")
    assert all(f">{text}<" in drawn for text in ("all of the step", "fc2", "q", "12 layers", "48 layers"))


def test_the_picture_of_the_readme_is_drawn_from_its_runs() -> None:
    """Of notebook 10: the deeper model's first steps move further, by what was predicted."""
    runs = [Run.read(RECORDS / "watched" / f"{layers}-layers.jsonl") for layers in (4, 24)]
    found = compare(runs[0], runs[1])
    kept = (FIGURES / "watch.svg").read_text(encoding="utf-8")
    assert is_same_picture(kept, svg(drawing_of(runs, found.names)))
    whole = found.whole
    assert whole.predicted is not None and whole.predicted[0] < whole.pairs[0].times < whole.predicted[1]
    assert whole.pairs[0].times > 2


def test_one_run_is_what_its_steps_moved(two: Path) -> None:
    shown = " ".join(told("watch", "run48.jsonl", "--plot", "one.png", COLUMNS="100").split())
    assert "Step 80 moved the logits by 1 (root mean square): fc2 50 %, q 50 %." in shown
    assert "Times as far as at step 0: whole 0.5, fc2 0.33, q 1." in shown
    assert Path("one.png").read_bytes().startswith(b"\x89PNG")


def test_the_document_has_the_runs_and_their_pairs(tmp_path: Path) -> None:
    """Of real runs, whose looks are the lines of their files, with what was predicted of the first step."""
    paths = [trained(tmp_path / f"run{n}.jsonl", n) for n in (1, 2)]
    found = document("watch", *paths)
    assert [*found][1:] == ["runs", "names", "by", "alike", "roles", "has_other_probe", "verdict"]
    for run, path in zip(found["runs"], paths, strict=True):
        assert run["path"] == str(path)
        assert [one["step"] for one in run["looks"]] == [0, 1, 2, 4, 8]
        steps = {one["role"]: one for one in run.pop("first_step")}
        assert steps["whole"]["measured"] == run["looks"][0]["whole"]
        low, high = run["header"]["predicted"]["roles"]["fc2"]
        rate = run["looks"][0]["roles"]["fc2"]["rate"]
        assert steps["fc2"]["predicted"] == pytest.approx([low * rate, high * rate])
        assert Run.model_validate(run) == Run.read(path)
    whole: Any = found["roles"][0]
    assert whole["role"] == "whole" and whole["pairs"][0]["times"] == pytest.approx(
        found["runs"][1]["looks"][0]["whole"] / found["runs"][0]["looks"][0]["whole"]
    )
    assert {"share", "pairs", "parts", "text", "predicted"} < whole.keys() and len(whole["predicted"]) == 2
    shown = " ".join(told("watch", *paths, "--plot", tmp_path / "both.svg", COLUMNS="120").split())
    assert "first predicted" in shown and f"{whole['predicted'][0]:.2g} to {whole['predicted'][1]:.2g}" in shown
    assert "Bars: what the first step was predicted to move." in (tmp_path / "both.svg").read_text(encoding="utf-8")
    by_tokens = document("watch", *paths, "--by", "tokens")
    assert by_tokens["by"] == "tokens" and by_tokens["roles"][0]["pairs"][1]["at"] == 64
    assert [*document("watch", paths[0])] == ["schema_version", "runs", "verdict"]


def damaged(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:40], *lines[3:], ""]), encoding="utf-8")


def with_third_line(line: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([*lines[:2], line, *lines[3:], ""]), encoding="utf-8")

    return change


def other_version(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace('"version":1', '"version":2'), encoding="utf-8")


def other_architecture(path: Path) -> None:
    path.unlink()
    made(path, {"fc2": {0: 1.0}, "fc3": {0: 1.0}})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (damaged, "run48.jsonl, line 3: it is no JSON: "),
        (with_third_line("[]"), "run48.jsonl, line 3: it is []; allowed is an object"),
        (with_third_line("{}"), "run48.jsonl, line 3: step is missing"),
        (with_third_line('{"step":"two"}'), "run48.jsonl, line 3: step is 'two'; allowed is a whole number"),
        (with_third_line('{"step":2,"took_step":3}'), "line 3: took_step is 3; allowed is true or false"),
        (with_third_line('{"kind":"depthlaw-watch","ver'), "line 3 is no header of depthlaw.watch"),
        (with_third_line('{"kind":"depthlaw-watch","version":1}'), "run48.jsonl, line 3: versions is missing"),
        (other_version, "run48.jsonl is of version 2, and this depthlaw reads version 1"),
        (other_architecture, "run12.jsonl is of another architecture than run48.jsonl: only one has fc3, q"),
        (Path.unlink, "run48.jsonl: No such file or directory"),
    ],
)
def test_what_is_no_pair_of_runs_is_refused_in_one_line(change: Any, line: str, two: Path) -> None:
    change(Path("run48.jsonl"))
    for more in [(), *[("--follow",)] * Path("run48.jsonl").exists()]:  # else it is waited for
        assert line in refusal("watch", "run12.jsonl", "run48.jsonl", *more)


def test_a_file_that_never_comes_is_waited_for_until_it_is_stopped(two: Path) -> None:
    # a shell has its background jobs ignore Ctrl-C
    heard = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    asked = [DEPTHLAW, "watch", "run12.jsonl", "none.jsonl", "--follow"]
    with subprocess.Popen([sys.executable, "-c", heard, *asked], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "depthlaw: no file none.jsonl yet; waiting for it, until Ctrl-C\n"
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == 130


def test_a_run_is_followed_until_nobody_writes_it(two: Path) -> None:
    """In a process of its own, which sees the file grow and ends when it is closed."""
    path = Path("run.jsonl")
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [DEPTHLAW, "watch", path, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline() == "depthlaw: no file run.jsonl yet; waiting for it, until Ctrl-C\n"
        writer = Writer(path, Run.read("run12.jsonl").header.model_copy(update={"roles": {"fc2": 64}}))
        assert process.stderr.readline() == "depthlaw: no look yet; waiting for the first\n"
        writer.add(look(0, {"fc2": 0.25}))
        while not (line := process.stdout.readline()).startswith("Step"):
            assert line
        assert line.startswith("Step 0 moved the logits by 0.25")
        writer.add(look(5, {"fc2": 0.5}))
        writer.close()
        rest = process.stdout.read()
    assert process.returncode == 0
    assert "Step 5 moved the logits by 0.5" in rest
