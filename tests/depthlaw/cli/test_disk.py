"""A full disk and one that cannot be written: each command says so in a line, and nothing that was kept is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from depthlaw.system.places import ROOT

REFUSED = {
    "checkpoint, full": "; make room, and the same command goes on with the runs that are not kept",
    "measure, full": "record.jsonl",
    "train, full": "runs.sqlite",
    "plot, full": "it.svg",
    "measure, unwritable": "record.jsonl",
    "train, unwritable": "runs.sqlite",
    "experiment, unwritable": "other.sqlite",
}
"""What each is told about."""
CODE = """
import json, resource, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from depthlaw.sims.training import sweep
from tests.command import depthlaw

folder, told = Path(sys.argv[1]), {}
record, store, text, nowhere = folder / "record.jsonl", folder / "runs.sqlite", folder.parent / "own.txt", Path("/proc")
measure = "measure --scheme pre-ln --optimizer sgd --sublayers 2,4 --width 16".split()
train = "train --scheme pre-ln --layers 1 --width 8 --learning-rate 1e-2 --steps 3 --workers 1 --text".split()
train += [text, "--store"]
wide = [*train, store, "--seeds", 1, "--width", 96, "--checkpoint-every", 1]
text.write_text(" ".join(str(number * number) for number in range(10_000)), encoding="utf-8")
sweep.pool = lambda num_workers, **_: ThreadPoolExecutor(1)  # processes would take seconds, and write nothing

def ask(name, *arguments):
    answer = depthlaw(*map(str, arguments))
    told[name] = {"code": answer.returncode, "out": answer.stdout, "err": answer.stderr}

def room(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))  # no file grows beyond it

ask("measured", *measure, "--seeds", 2, "--record", record)
ask("trained", *train, store, "--seeds", 1)
room(200_000)
ask("checkpoint, full", *wide)
before = record.read_bytes()
room(record.stat().st_size)
ask("measure, full", *measure, "--seeds", 9, "--record", record)
room(store.stat().st_size)
ask("train, full", *train, store, "--seeds", 24)
room(100)
ask("plot, full", *measure, "--seeds", 2, "--record", record, "--plot", folder / "it.svg")
told |= {"kept": record.read_bytes().startswith(before), "left": sorted(path.name for path in folder.iterdir())}
room(resource.RLIM_INFINITY)
ask("measured after all", *measure, "--seeds", 9, "--record", record, "--json")
ask("trained after all", *train, store, "--seeds", 2, "--json")
ask("checkpoint after all", *wide, "--json")
ask("measure, unwritable", *measure, "--seeds", 2, "--record", nowhere / record.name)
ask("train, unwritable", *train, nowhere / store.name, "--seeds", 3)
ask("experiment, unwritable", "experiment", "thousand-layers", "--workers", 1, "--store", nowhere / "other.sqlite")
print(json.dumps(told))
"""


@pytest.mark.wide
def test_a_full_disk_and_an_unwritable_one_are_told_in_a_line_and_nothing_is_lost(tmp_path: Path) -> None:
    """In a process of its own, in which the kernel lets no file grow."""
    folder = tmp_path / "disk"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CODE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for name in ("measured", "trained", "measured after all", "trained after all", "checkpoint after all"):
        assert (told[name]["code"], told[name]["err"]) == (0, ""), name
    for name, file in REFUSED.items():
        answer = told[name]
        assert (answer["code"], answer["out"]) == (2, ""), (name, answer)
        (line,) = answer["err"].splitlines()
        assert line.startswith("depthlaw: ") and file in line and "standard output" not in line, (name, line)
    assert told["left"] == ["record.jsonl", "runs.sqlite", "runs.sqlite.checkpoints"], "no journal, no half"
    assert told["kept"]
    assert json.loads(told["trained after all"]["out"])["sweep"]["failed"] == {}
    assert len(json.loads(told["measured after all"]["out"])["rows"]) == 2
