"""Records: what goes in comes back, what does not fit is refused, and no line is lost to a crash or another process."""

import fcntl
import json
import math
import resource
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from depthlaw.sims.records.record import Divergence, Run, append, current, find, make, read

CONFIG = {
    "scheme": "post-ln",
    "optimizer": "adam",
    "gains": [1.0, -2.5e-7],
    "bias": False,
    "ffn_width": None,
    "à": 'a\n"',
}


def run(config: Any = CONFIG, seeds: Any = (0, 1), values: Any = None, **rest: Any) -> Run:
    values = values or {"update": [seed + 0.5 for seed in seeds]}
    return make(config, seeds, values, **{"device": "cpu", "dtype": "float64", "seconds": 1.5, **rest})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "it.jsonl"


def test_runs_come_back_as_they_were_in_order(path: Path) -> None:
    diverged = {1: {"side": "encoder", "index": 3, "in_pass": "forward"}}
    runs = [
        run(),
        run(seeds=[2, 1], values={"update": [0.1, math.nan], "loss": [1, None]}, diverged=diverged, commit="0" * 40),
    ]
    for kept in runs:
        append(path, kept)
    assert read(path) == runs
    assert runs[1].values == {"update": [0.1, None], "loss": [1.0, None]}
    assert runs[1].diverged == {1: Divergence(side="encoder", index=3, in_pass="forward")}
    assert path.read_bytes().count(b"\n") == 2


def test_values_are_kept_to_eight_digits_and_the_configuration_to_all(path: Path) -> None:
    third = 1 / 3
    append(path, run({"gain": third}, [7], {"small": [third * 1e-300], "large": [-third * 1e300]}))
    (kept,) = read(path)
    assert kept.config == {"gain": third}
    assert kept.values == {"small": [3.3333333e-301], "large": [-3.3333333e299]}


UNLIKE = "null and diverged do not fit: seed 1"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"seeds": [0, 0]}, "a seed stands twice"),
    ({"seeds": [0]}, "2 values for 1 seeds"),
    ({"seeds": []}, "seeds"),
    ({"values": {}}, "values"),
    ({"values": {"update": [0.5, "1"]}}, "values.update.1"),
    ({"values": {"update": [0.5, None]}}, UNLIKE),
    ({"diverged": {"1": {"side": "encoder", "index": 0, "in_pass": "sideways"}}}, "diverged.1.in_pass"),
    ({"dtype": "complex64"}, "dtype"),
    ({"versions": {"python": "3", "torch": "2.9.1", "numpy": "2.1", "depthlaw": "0.1"}}, "versions.python"),
    ({"created": "2026-11-20T16:00:00"}, "created"),
    ({"commit": "main"}, "commit"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED)
def test_a_line_that_does_not_fit_is_an_error_in_one_line(path: Path, change: dict[str, Any], says: str) -> None:
    append(path, run())
    path.write_bytes(path.read_bytes() + json.dumps({**json.loads(path.read_bytes()), **change}).encode() + b"\n")
    with pytest.raises(ValueError, match="does not fit") as caught:
        read(path)
    assert str(caught.value).startswith("it.jsonl, line 2 does not fit: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", ["1e999", "NaN"])
@pytest.mark.parametrize("place", ["0.5", "-2.5e-7"])
def test_a_number_that_is_not_finite_is_refused(path: Path, number: str, place: str) -> None:
    append(path, run())
    path.write_text(path.read_text(encoding="utf-8").replace(place, number, 1), encoding="utf-8")
    assert number in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"it\.jsonl, line 1 does not fit"):
        read(path)


@pytest.mark.parametrize("line", [b"", b"{}", b"[", b"\xff"])
def test_a_line_that_is_no_run_is_an_error_wherever_it_stands(path: Path, line: bytes) -> None:
    append(path, run())
    good = path.read_bytes()
    for content in (line + b"\n" + good, good + line + b"\n" + good, good + line + b"\n"):
        path.write_bytes(content)
        number = 1 if content.startswith(line + b"\n") else 2
        with pytest.raises(ValueError, match=rf"^it\.jsonl, line {number} does not fit: "):
            read(path)


def test_a_run_that_was_cut_off_anywhere_is_told_of_and_nothing_else_is_lost(path: Path) -> None:
    append(path, run())
    first = path.read_bytes()
    append(path, run(seeds=[2]))
    whole = path.read_bytes()
    for end in range(len(first) + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.warns(UserWarning, match=r"^it\.jsonl, line 2 is cut off"):
            (kept,) = read(path)
        assert kept.seeds == [0, 1]
        if end % 50:
            continue
        append(path, run(seeds=[3]))
        assert path.read_bytes().startswith(whole[:end] + b"\n")
        with pytest.warns(UserWarning, match=r"^it\.jsonl, line 2 is cut off"):
            assert [whole_run.seeds for whole_run in read(path)] == [[0, 1], [3]]


def test_a_last_line_that_lacks_only_its_end_is_whole(path: Path) -> None:
    append(path, run())
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert [kept.seeds for kept in read(path)] == [[0, 1]]
    append(path, run(seeds=[2]))
    assert [kept.seeds for kept in read(path)] == [[0, 1], [2]]


def test_a_full_disk_leaves_the_file_as_it_was(path: Path) -> None:
    append(path, run())
    before = path.read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(OSError, match="no room"):
            append(path, run(seeds=[2]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before


NUM_APPENDED, NUM_PROCESSES = 20, 3
APPEND_MANY = """
import sys, warnings
from pathlib import Path
from depthlaw.sims.records.record import append, read
path, source, first, num = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
warnings.filterwarnings("error")
warnings.filterwarnings("ignore", message=".*line 1 is cut off")
(run,) = read(source)
print("ready", flush=True)
for seed in range(first, first + num):
    append(path, run.model_copy(update={"seeds": [seed]}))
    read(path)  # the unfinished line of another would be an error
"""


def test_processes_that_append_at_once_all_survive(path: Path) -> None:
    """They begin behind a line that was cut off, which only one of them may end, and wait for who has the lock."""
    source = path.with_name("source.jsonl")
    append(source, run({"text": "x" * 20_000}, seeds=[0]))
    path.write_bytes(b'{"kind":')
    with ExitStack() as stack, path.open("rb") as file:  # closed first: a test that fails leaves nobody waiting
        fcntl.flock(file, fcntl.LOCK_EX)
        children = []
        for i in range(NUM_PROCESSES):
            arguments = [str(path), str(source), str(i * NUM_APPENDED), str(NUM_APPENDED)]
            command = [sys.executable, "-c", APPEND_MANY, *arguments]
            children.append(stack.enter_context(Popen(command, stdout=PIPE, text=True)))
        assert [child.stdout and child.stdout.readline() for child in children] == ["ready\n"] * NUM_PROCESSES
        time.sleep(0.2)
        assert path.read_bytes() == b'{"kind":'
        fcntl.flock(file, fcntl.LOCK_UN)
        assert [child.wait(60) for child in children] == [0] * NUM_PROCESSES
    with pytest.warns(UserWarning, match="line 1 is cut off") as caught:
        seeds = [kept.seeds[0] for kept in read(path)]
    assert len(caught) == 1
    assert sorted(seeds) == list(range(NUM_APPENDED * NUM_PROCESSES))


def test_what_is_there_is_found_by_its_configuration() -> None:
    diverged = {5: {"side": "decoder", "index": 0, "in_pass": "backward"}}
    runs = [
        run({"n": 1, "gains": (1.0, 2)}, [0, 1]),
        run({"n": 2, "gains": (1.0, 2)}, [2]),
        run({"gains": [1, 2.0], "n": 1}, [1, 5], {"update": [-1.0, None]}, diverged=diverged),
    ]
    measured = find(runs, {"gains": (1.0, 2.0), "n": 1})
    assert measured.seeds == (0, 1, 5)
    assert measured.values == {"update": (0.5, 1.5, None)}
    assert measured.diverged == {5: Divergence(side="decoder", index=0, in_pass="backward")}
    nothing = find(runs, {"n": 1})
    assert (nothing.seeds, nothing.values) == ((), {})
    with pytest.raises(ValueError, match="different quantities: update; loss, update"):
        find([runs[0], run(runs[0].config, [9], {"update": [1], "loss": [1]})], runs[0].config)


def test_what_rounding_decides_in_one_run_has_no_values_in_any() -> None:
    """A measurement that goes on may find other roles unreliable than before; neither locks the other out."""
    all_roles = {"update": [1.0], "q": [0.1], "layer/q/3": [0.01], "real_step": [1.4]}
    runs = [run(CONFIG, [0], all_roles), run(CONFIG, [1], {"update": [2.0], "real_step": [2.8]}, unreliable={"q": 0.5})]
    measured = find(runs, CONFIG)
    assert measured.values == {"update": (1.0, 2.0), "real_step": (1.4, 2.8)}
    assert measured.unreliable == {"q": 0.5}
    with pytest.raises(ValueError, match="different quantities"):
        find([runs[0], run(CONFIG, [1], {"update": [2.0], "real_step": [2.8]})], CONFIG)


@pytest.mark.parametrize(
    ("change", "is_current"),
    [({"commit": "1" * 40, "seconds": 9.0}, True), ({"dtype": "float32"}, False), ({"device": "a GPU"}, False)],
)
def test_only_what_would_be_measured_again_is_current(change: dict[str, Any], is_current: bool) -> None:
    runs = [run().model_copy(update=change)]
    assert current(runs, "cpu", "float64") == (runs if is_current else [])
