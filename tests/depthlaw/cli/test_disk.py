"""A full disk and a read-only one: each command says so in a line, and nothing that was kept is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from depthlaw.system.places import ROOT

REFUSED = {
    "checkpoint, full": "; make room, and the same command goes on with the runs that are not kept",
    "measure, full": "record.jsonl",
    "train, full": "runs.sqlite",
    "plot, full": "it.svg",
    "measure, read-only": "record.jsonl",
    "train, read-only": "runs.sqlite",
    "experiment, read-only": "other.sqlite",
}
"""What each is told about."""
MOUNTED = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -m tests.depthlaw.cli.on_a_disk "$1" mounted'


def test_a_full_disk_and_a_read_only_one_are_told_in_a_line_and_nothing_is_lost(tmp_path: Path) -> None:
    """A small disk in a namespace of its own, where the kernel lets us make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    may_mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$1"', "sh", str(folder)]
    command = [sys.executable, "-m", "tests.depthlaw.cli.on_a_disk", str(folder), "no"]
    try:
        if subprocess.run(may_mount, capture_output=True, check=False).returncode == 0:
            command = ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(folder), sys.executable]
    except FileNotFoundError:  # no unshare
        pass
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
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
