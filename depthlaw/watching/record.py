"""The file of a run: JSON lines, a header and then a line for each look, and a header more each time it goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from depthlaw.sims.locks import lock
from depthlaw.sims.records.record import in_one_line
from depthlaw.system.files import read_all

VERSION = 1
_LONGEST = 10_000_000
"""Bytes that a header may have."""
_OF_HEADER = '{"kind":"depthlaw-watch"'
"""What one begins with, as it is written."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Prediction(_Line):
    """Of the first step. roles: by role, the least and the most that it changes in the logits, per unit learning rate
    (``predicted.py``), each widened by the factor ``wider``, which the width and the probe leave open; why: why there
    is none, null where there is one. seconds: of the processor, that it took."""

    roles: Mapping[str, tuple[float, float]]
    wider: float
    why: str | None
    seconds: float


class Header(_Line):
    """What is watched, from the step ``start`` on. roles: by role, how many trained or frozen parameters it has.
    num_layers: by side. probe: what the module is called with, and its digest. every, budget: as the watch was asked;
    memory_bytes: what a look holds beside its passes. predicted: what the first step was predicted to be."""

    kind: Literal["depthlaw-watch"] = "depthlaw-watch"
    version: Literal[1] = VERSION
    versions: Mapping[str, str]
    module: str
    num_layers: Mapping[str, int]
    d_model: int
    roles: Mapping[str, int]
    optimizers: Sequence[Mapping[str, Any]]
    probe: str
    probe_sha256: str
    every: int
    budget: float | None
    memory_bytes: int
    start: int = 0
    predicted: Prediction | None = None

    @property
    def layers(self) -> str:
        """In words, such as "12 layers"."""
        counts = self.num_layers.values()
        return f"{' + '.join(map(str, counts))} layer{'' if sum(counts) == 1 else 's'}"

    @property
    def trained_by(self) -> str:
        """In words, such as "AdamW at 0.001"."""
        return " and ".join(
            settings["name"] + (f" at {settings['lr']:g}" if "lr" in settings else "") for settings in self.optimizers
        )


class Role(_Line):
    """change, hidden: root mean square of what the role's part of the step changed in the logits and in the last hidden
    state; per_rate: that of the logits over the learning rate. share: of the logits' change, the part along it. weight,
    step: root mean squares of the role's parameters and of their step."""

    change: float | None
    hidden: float | None = None
    per_rate: float | None = None
    share: float | None = None
    rate: float | None = None
    weight: float | None = None
    step: float | None = None
    beside_reference: float | None = None


class Part(_Line):
    """A sublayer. second_moment: of the stream before it; share: its branch's mean square over that of the sum; cosine:
    of its branch and the stream."""

    side: str
    layer: int
    kind: str
    second_moment: float | None
    share: float | None
    cosine: float | None


class Look(_Line):
    """One look, at the step of that number, from 0. whole, first_order, hidden: changes of the logits by all of the
    step, by the sum of the roles' changes, and of the last hidden state by all of it. loss: as the run told it;
    probe_loss: as the module answers it of the probe. cost_seconds: of this look. took_step: whether an optimizer took
    one; a GradScaler that finds infinite gradients lets none be taken, and nothing is looked at."""

    step: int
    took_step: bool = True
    tokens: int | None = None
    seconds: float
    cost_seconds: float
    method: str
    loss: float | None = None
    probe_loss: float | None = None
    whole: float | None
    first_order: float | None
    hidden: float | None = None
    roles: Mapping[str, Role]
    stream: Sequence[Part]


class NothingYetError(ValueError):
    """A file in which a look is still to come."""


class Run(_Line):
    """What a file has. header: of the run as it began; later: of each time that it went on from a later step."""

    path: str
    header: Header
    later: Sequence[Header] = ()
    looks: Sequence[Look]

    @classmethod
    def read(cls, path: Path | str) -> Run:
        """OSError, and ValueError in one line for what is no such file. A last line that was cut off is left out. A
        header or a look that is not behind what is before it is of a run that went back, to a checkpoint or to its
        start: what the file had of that step and later ones is no part of the run."""
        lines = read_all(Path(path)).decode(errors="replace").split("\n")[:-1]
        if not lines:
            raise NothingYetError(f"{path} has no line that is whole: nothing was watched yet")
        headers = [header_of(path, lines[0])]
        looks: dict[int, Look] = {}
        for number, line in enumerate(lines[1:], 2):
            if line.startswith(_OF_HEADER):
                new = header_of(path, line, number)
                headers = [*(header for header in headers if header.start < new.start), new]
                looks = {step: earlier for step, earlier in looks.items() if step < new.start}
                continue
            try:
                look = Look.model_validate_json(line)
            except ValidationError as error:
                raise ValueError(f"{path}, line {number}: {in_one_line(error)}") from None
            looks = {step: earlier for step, earlier in looks.items() if step < look.step} | {look.step: look}
        return cls(path=str(path), header=headers[0], later=headers[1:], looks=[*looks.values()])

    @property
    def taken(self) -> list[Look]:
        """Looks at steps that an optimizer took."""
        return [look for look in self.looks if look.took_step]

    @property
    def first(self) -> Look | None:
        """That at the first step that was taken; None where it was not looked at."""
        return next((look for at, look in enumerate(self.looks) if look.took_step and look.step == at), None)


def check_architecture(run: Run, header: Header, what: str) -> None:
    """ValueError, in one line, where a run has not the roles that this header has. what: what that is of."""
    if apart := sorted(run.header.roles.keys() ^ header.roles.keys()):
        raise ValueError(f"{run.path} is of another architecture than {what}: only one has {', '.join(apart)}")


def header_of(path: Path | str, line: str, number: int = 1) -> Header:
    """ValueError, in one line."""
    try:
        content = from_json(line)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != "depthlaw-watch":
        raise ValueError(f"{path} is no file of a watched run: line {number} is no header of depthlaw.watch")
    if content.get("version") != VERSION:
        raise ValueError(f"{path} is of version {content.get('version')}, and this depthlaw reads version {VERSION}")
    try:
        return Header.model_validate_json(line)
    except ValidationError as error:
        raise ValueError(f"{path}, line {number}: {in_one_line(error)}") from None


class Writer:
    """Adds looks to a file, which is this process's own while it is open.

    A file that is there already goes on with this header, where it is of the same module, roles and probe. OSError,
    and ValueError in one line, where another process writes it, or where it is something else."""

    def __init__(self, path: Path | str, header: Header) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        try:
            try:
                lock(self._file, waits=False)
            except OSError:
                raise ValueError(
                    f"{path} is being written by another process, or another watch of this one: name another file"
                ) from None
            self._begin(header)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, header: Header) -> None:
        self._file.seek(0)
        first = self._file.readline(_LONGEST)  # what is no such file may be a device that never ends
        if not first.endswith(b"\n"):  # empty, or cut off in its first line
            if first and not first.startswith(_OF_HEADER.encode()):
                raise ValueError(f"{self.path} is no file of a watched run: name another file")
            self._file.truncate(0)
            self.add(header)
            return
        there = header_of(self.path, first.decode(errors="replace"))
        for name in ("module", "num_layers", "d_model", "roles", "probe_sha256"):
            if getattr(there, name) != getattr(header, name):
                what = "probe" if name == "probe_sha256" else name
                raise ValueError(f"{self.path} is of a run with another {what}: name another file")
        self._cut()
        self.add(header)

    def _cut(self) -> None:
        """Take away a last line that has no end."""
        self._file.seek(0)
        content = self._file.read()
        if not content.endswith(b"\n"):
            self._file.truncate(content.rindex(b"\n") + 1)

    def add(self, line: _Line) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(line.model_dump_json().encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def is_being_written(path: Path | str) -> bool:
    """Whether a process has the file open as its own. What this takes for a moment, to know it, it takes only where
    nobody writes."""
    with Path(path).open("rb") as file:
        try:
            lock(file, is_shared=True, waits=False)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False
