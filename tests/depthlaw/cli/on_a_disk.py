"""Commands on a disk that is full, and on one that cannot be written: python -m ...on_a_disk FOLDER MOUNTED.

FOLDER: a small disk of its own, made for this; where none can be mounted (MOUNTED is not "mounted"), a folder, in which
the kernel lets no file grow. Prints, as JSON, what each command answered.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from depthlaw.sims.training import sweep
from tests.command import depthlaw

MEASURE = ("measure", "--scheme", "pre-ln", "--optimizer", "sgd", "--sublayers", "2,4", "--width", "16")
TRAIN = ("train", "--scheme", "pre-ln", "--layers", "1", "--width", "8", "--learning-rate", "1e-2", "--steps", "3")
EXPERIMENT = ("experiment", "thousand-layers", "--workers", "1")


def main(folder: Path, *, is_mounted: bool) -> None:
    record, store, filler = folder / "record.jsonl", folder / "runs.sqlite", folder / "filler"
    text = folder.parent / "own.txt"
    train = [*TRAIN, "--workers", 1, "--text", str(text), "--store", str(store)]
    wide = [*train, "--seeds", 1, "--width", 96, "--checkpoint-every", 1]  # a checkpoint takes more than the disk
    text.write_text(" ".join(str(number * number) for number in range(10_000)), encoding="utf-8")
    told: dict[str, Any] = {}
    sweep.pool = lambda num_workers: ThreadPoolExecutor(1)  # processes would take seconds, and write nothing

    def ask(name: str, *arguments: object) -> None:
        answer = depthlaw(*map(str, arguments))
        told[name] = {"code": answer.returncode, "out": answer.stdout, "err": answer.stderr}

    def fill(most: int) -> None:
        """most: bytes of a file that it is about."""
        if not is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            return
        with filler.open("ab", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue

    ask("measured", *MEASURE, "--seeds", 2, "--record", record)
    ask("trained", *train, "--seeds", 1)
    if not is_mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    ask("checkpoint, full", *wide)
    before = record.read_bytes()
    fill(record.stat().st_size)
    ask("measure, full", *MEASURE, "--seeds", 40, "--record", record)
    fill(store.stat().st_size)
    ask("train, full", *train, "--seeds", 24)
    fill(100)
    ask("plot, full", *MEASURE, "--seeds", 2, "--record", record, "--plot", folder / "it.svg")
    told["kept"] = record.read_bytes().startswith(before)
    told["left"] = sorted(path.name for path in folder.iterdir() if path != filler)
    if is_mounted:
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=4m", "none", str(folder)], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ask("measured after all", *MEASURE, "--seeds", 40, "--record", record, "--json")
    ask("trained after all", *train, "--seeds", 2, "--json")
    ask("checkpoint after all", *wide, "--json")
    place = folder
    if is_mounted:
        subprocess.run(["mount", "-o", "remount,ro", "none", str(folder)], check=True)
    else:
        place = Path("/proc")  # where nobody makes a file
    ask("measure, read-only", *MEASURE, "--seeds", 41, "--record", place / record.name)
    ask("train, read-only", *train[:-1], place / store.name, "--seeds", 3)
    ask("experiment, read-only", *EXPERIMENT, "--store", place / "other.sqlite")
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), is_mounted=sys.argv[2] == "mounted")
