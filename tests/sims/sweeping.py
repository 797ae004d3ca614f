"""A sweep that tests start, kill and start again: python sweeping.py FOLDER NUM_CONFIGS [SECONDS].

Its runs take a few milliseconds and log what happens to a file that is only appended to. It imports next to nothing, so
that it can be killed often. It says "ready", and begins when it is sent a line, or has nobody who could send one.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from depthlaw.sims.training.store import Store
from depthlaw.sims.training.sweep import Kind, pool, sweep

LOG, FILE = "log", "runs.sqlite"


def log(folder: str, *words: object) -> None:
    """One write to a file opened for appending: whole lines, whoever else writes and dies."""
    file = os.open(Path(folder) / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


def configs(folder: str, num: int, seconds: float = 0.01) -> list[dict[str, Any]]:
    return [{"folder": folder, "n": n, "seconds": seconds} for n in range(num)]


def right(config: Mapping[str, Any]) -> dict[str, Any]:
    return {"square": config["n"] ** 2}


def execute(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for config in configs:
        log(config["folder"], "start", config["n"], os.getpid())
    for config in configs:
        time.sleep(config["seconds"])
        log(config["folder"], "end", config["n"])
    return [right(config) for config in configs]


def kind_of(config: dict[str, Any]) -> Kind:
    """Odd and even."""
    return Kind(config["n"] % 2, 3)


def tell_threads(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"omp": os.environ["OMP_NUM_THREADS"], "has_torch": "torch" in sys.modules} for _ in configs]


class Logged(Store):
    """Tells when a result is kept."""

    def add(self, config: Mapping[str, Any], result: Mapping[str, Any], **about: Any) -> None:
        super().add(config, result, **about)
        log(config["folder"], "kept", config["n"], os.getpid())


def main(folder: str, num: str, seconds: str = "0.01") -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    with Logged(Path(folder) / FILE) as store:
        try:
            given = configs(folder, int(num), float(seconds))
            report = sweep(given, execute, store, lambda: pool(2), kind_of=kind_of, at_once=4)
        except KeyboardInterrupt:
            print("stopped", flush=True)
            return
    print(report.done, report.found, len(report.failed), report.left, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    main(*sys.argv[1:])
