"""``depthlaw train`` as tests call it: with a store and a text of its own, and with or without real training."""

from __future__ import annotations

import json
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from sims.training.train import TrainResult
from tests import command

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

    def __call__(self, named: dict[str, Any], **rest: Any) -> dict[str, Any]:
        self.named.append(named)
        return RESULT


def in_this_process(num_workers: int) -> Executor:
    return ThreadPoolExecutor(1)


class Command:
    """``depthlaw train`` on a text of its own, with a store of its own."""

    def __init__(self, folder: Path, text: Path | None = None) -> None:
        self.folder, self.store = folder, folder / "runs.sqlite"
        self.text = folder / "own.txt" if text is None else text
        if text is None:
            self.text.write_text(TEXT, encoding="utf-8")

    def __call__(self, options: str, *, has_text: bool = True) -> CompletedProcess[str]:
        text = ["--text", self.text] if has_text else []
        return command.depthlaw("train", *options.split(), *self.place, *text, COLUMNS="80")

    @property
    def place(self) -> list[str | Path]:
        return ["--store", self.store, "--device", "cpu"]

    def answer(self, options: str, **rest: bool) -> dict[str, Any]:
        return json.loads(self.people(f"{options} --json", **rest))

    def people(self, options: str, **rest: bool) -> str:
        result = self(options, **rest)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def refusal(self, options: str, *more: str | Path, code: int = 2) -> str:
        """Of a command line with its store, where these options name none."""
        place = [] if "--store" in options else ["--store", self.store]
        return command.refusal("train", *options.split(), *more, *place, code=code)
