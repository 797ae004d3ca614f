"""The record of measurements: JSON Lines, a run on each line, only ever appended to.

A run has the whole configuration of its networks, the seeds and each seed's values: intervals and verdicts are computed
from these again. Values have 8 significant digits, which is what a float32 has and far below the scatter between seeds;
so a run of 64 seeds and 3 quantities is near 3 kB, where its configuration is short: gains as formulas, not a list for
each sublayer.

A run that a crash cut off stays in the file, and reading tells of it. POSIX only: the lock is flock's.
"""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import reprlib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import from_json

from depthlaw.sims.locks import lock

if TYPE_CHECKING:
    from typing import Self

DIGITS = 8
"""Significant digits of a value."""
STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
Values = Mapping[str, Sequence[float | None]]
"""By quantity, a number for each seed; None where that seed diverged."""


class Divergence(BaseModel):
    """Where a seed stopped being finite: depthlaw.sims.update's Divergence, field by field.

    side: the encoder, the decoder, or what stands outside of both. index: of the stream x_index.
    """

    model_config = STRICT

    side: str = Field(pattern=r"^[a-z]+$")
    index: int = Field(ge=0)
    in_pass: Literal["forward", "backward", "update", "step"]


class Versions(BaseModel):
    model_config = STRICT

    """None where the oldest runs did not keep it."""

    python: str | None = Field(pattern=r"^\d+\.\d+")
    torch: str = Field(pattern=r"^\d+\.\d+")
    numpy: str | None = Field(pattern=r"^\d+\.\d+")
    depthlaw: str | None = Field(pattern=r"^\d+\.\d+")


class Run(BaseModel):
    """Networks of one configuration, measured.

    config: all that they are made of, as JSON. values: by quantity, a number for each seed in turn, null where that
    seed diverged. diverged: by seed. unreliable: quantities that rounding decides, which have no values, each with the
    relative change that rounding makes of it. device: "cpu" or the name of the GPU.
    seconds: what the measurement took. created: UTC. commit: of git, where it is known. The runs of DeepNet's networks
    were kept without all of this: their seconds and versions but torch's are null, and created is when git first had
    them. Older files have more, which nothing reads.
    """

    model_config = STRICT | ConfigDict(extra="ignore")

    kind: Literal["measure"] = "measure"
    config: dict[str, JsonValue] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    values: dict[str, list[float | None]] = Field(min_length=1)
    diverged: dict[int, Divergence] = {}
    unreliable: dict[str, float] = {}
    versions: Versions
    device: str = Field(min_length=1)
    dtype: Literal["float64", "float32", "bfloat16", "float16"]
    seconds: float | None = Field(ge=0)
    created: AwareDatetime
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")

    @field_validator("config")
    @classmethod
    def _is_finite(cls, config: dict[str, JsonValue]) -> dict[str, JsonValue]:
        json.dumps(config, allow_nan=False)  # a ValueError that says so
        return config

    @model_validator(mode="after")
    def _fits_its_seeds(self) -> Self:
        check_by_seed(self.seeds, self.values)
        without = {
            seed for numbers in self.values.values() for seed, x in zip(self.seeds, numbers, strict=True) if x is None
        }
        if odd := without ^ set(self.diverged):
            raise ValueError(f"null and diverged do not fit: seed {min(odd)}")
        return self


def rounded(x: float, digits: int = DIGITS) -> float:
    return float(f"{x:.{digits}g}")


def check_by_seed(seeds: Sequence[int], values: Values) -> None:
    """ValueError unless each seed stands once and each quantity has a value for each."""
    if len(set(seeds)) != len(seeds):
        raise ValueError("a seed stands twice")
    for name, numbers in values.items():
        if len(numbers) != len(seeds):
            raise ValueError(f"{name}: {len(numbers)} values for {len(seeds)} seeds")


def in_one_line(error: ValidationError) -> str:
    """The first error of a validation: where, what is there, and what is allowed."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "it"
    kind, ctx = first["type"], first.get("ctx", {})
    if kind == "json_invalid":
        return f"it is no JSON: {ctx['error'].replace(' line 1 ', ' ')} (allowed: an object on one line)"
    if kind == "missing":
        return f"{place} is missing"
    if kind == "extra_forbidden":
        return f"there is no key {place}"
    is_one_of = kind == "literal_error"
    allowed = ctx["expected"] if is_one_of else _ALLOWED.get(kind.removesuffix("_type").removesuffix("_parsing"))
    if allowed is None:
        return f"{place}: {first['msg']}" if first["loc"] else first["msg"]
    return f"{place} is {reprlib.repr(first['input'])}; allowed is {allowed}"


_ALLOWED = {
    "int": "a whole number",
    "int_from_float": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "string": "a text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
}
"""By the name that pydantic has for an error, which ends in _type or _parsing otherwise."""


# ---------------------------------------------------------------- making a run


def make(
    config: Mapping[str, Any],
    seeds: Sequence[int],
    values: Values,
    *,
    device: str,
    dtype: str,
    seconds: float,
    diverged: Mapping[int, Mapping[str, str | int]] | None = None,
    unreliable: Mapping[str, float] | None = None,
    commit: str | None = None,
) -> Run:
    """A run that was measured just now, here. Values are rounded, and null where not finite; tuples in config, lists.

    config: JSON-plain, all that the networks are made of. values: by quantity, a number for each seed. device: "cpu" or
    the name of the GPU. seconds: what it took. diverged: by seed, as ``Divergence``. ValueError, in one line, where it
    does not fit.

    >>> from depthlaw.sims.records.record import make
    >>> run = make({"L": 4}, [0, 1], {"sgd/update": [2.5, 2.7]}, device="cpu", dtype="float64", seconds=0.1)
    >>> run.kind, run.values["sgd/update"]
    ('measure', [2.5, 2.7])
    >>> make({"L": 4}, [0, 1], {"sgd/update": [2.5]}, device="cpu", dtype="float64", seconds=0.1)
    Traceback (most recent call last):
        ...
    ValueError: a run does not fit: ...1 values for 2 seeds
    """
    parts = {
        "config": plain(config),
        "seeds": list(seeds),
        "values": {
            name: [rounded(x) if x is not None and math.isfinite(x) else None for x in numbers]
            for name, numbers in values.items()
        },
        "diverged": diverged or {},
        "unreliable": unreliable or {},
        "versions": {
            "python": platform.python_version(),
            "torch": _version("torch"),
            "numpy": _version("numpy"),
            "depthlaw": _version("depthlaw"),
        },
        "device": device,
        "dtype": dtype,
        "seconds": rounded(seconds, 3),
        "created": datetime.now(UTC).replace(microsecond=0),
        "commit": commit,
    }
    try:
        return Run.model_validate(parts)
    except ValidationError as error:
        raise ValueError(f"a run does not fit: {in_one_line(error)}") from None


def plain(config: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The config as it comes back from a file. ValueError for a number that is not finite, TypeError for what JSON
    lacks.
    """
    return json.loads(json.dumps(config, allow_nan=False))


def _version(package: str) -> str:
    """The version of a package, without the part that names its build: the device is recorded by itself."""
    return version(package).partition("+")[0]


# ---------------------------------------------------------------- the file


def append(path: Path, run: Run) -> None:
    """Add a run in one write, and wait for others that write. OSError leaves the file as it was.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.records.record import append, find, make, read
    >>> how = {"device": "cpu", "dtype": "float64", "seconds": 0.1}
    >>> runs = [make({"L": 4}, [seed], {"update": [2.0 + seed]}, **how) for seed in (0, 1)]
    >>> with TemporaryDirectory() as folder:
    ...     for run in runs:
    ...         append(Path(folder) / "runs.jsonl", run)
    ...     found = find(read(Path(folder) / "runs.jsonl"), {"L": 4})
    >>> found.seeds, found.values
    ((0, 1), {'update': (2.0, 3.0)})
    """
    line = run.model_dump_json().encode() + b"\n"
    with path.open("ab+", buffering=0) as file:
        lock(file)  # until the file is closed
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":  # cut off by a crash: it stays a line of its own
                line = b"\n" + line
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, f"no room for {len(line)} bytes")
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(size)
            raise OSError(error.errno, error.strerror, str(path)) from None  # writing does not name the file


def read(path: Path) -> list[Run]:
    """Runs in the order in which they were made. Warns of each that a crash cut off.

    ValueError, in one line, of a line that does not fit; OSError of a file that cannot be read.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.sims.records.record import read
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "runs.jsonl"
    ...     _ = path.write_text("[]")
    ...     read(path)
    Traceback (most recent call last):
        ...
    ValueError: runs.jsonl, line 1 does not fit: ...
    """
    with path.open("rb") as file:
        lock(file, is_shared=True)  # nobody is in the middle of a line
        content = file.read()
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    runs = []
    for number, line in enumerate(lines, start=1):
        try:
            runs.append(Run.model_validate_json(line))
        except ValidationError as error:
            if not _is_cut_off(line):
                raise ValueError(f"{path.name}, line {number} does not fit: {in_one_line(error)}") from None
            warnings.warn(f"{path.name}, line {number} is cut off: its run is left out", stacklevel=2)
    return runs


def _is_cut_off(line: bytes) -> bool:
    """Whether this begins as a JSON object does and ends too soon: nothing in it is wrong but its end."""
    try:
        from_json(line)
    except ValueError as error:
        return line.startswith(b"{") and str(error).startswith("EOF while parsing")
    return False


# ---------------------------------------------------------------- what is there already


@dataclass(frozen=True)
class Measurement:
    """All seeds of one configuration, their values by quantity in the same order, and where seeds diverged.

    dtypes: in which runs were computed.
    """

    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float | None, ...]]
    diverged: Mapping[int, Divergence]
    unreliable: Mapping[str, float]
    dtypes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        updates = [value for value in self.values.get("update", ()) if value is not None]
        mean = f", update {fmean(updates):.4g} in the mean" if updates else ""
        return f"<Measurement: {len(self.seeds)} seeds{mean}>"


def current(runs: Iterable[Run], device: str, dtype: str) -> list[Run]:
    """Runs that a measurement made now would repeat: of this dtype and kind of device. "auto" is any dtype, in which
    rounding decides nothing.

    Which version of the code made a run does not matter: what the project keeps is measured again, in part, by its
    tests, and that is what makes a record valid.

    >>> from depthlaw.sims.records.record import current, make
    >>> run = make({"L": 4}, [0], {"update": [2.0]}, device="cpu", dtype="float64", seconds=0.1)
    >>> len(current([run], "cpu", "float64")), len(current([run], "cpu", "float32"))
    (1, 0)
    """
    by_need = ("float64", "float32") if dtype == "auto" else (dtype,)
    here = [run for run in runs if run.dtype in by_need and (run.device == "cpu") == (device == "cpu")]
    return [run for run in here if dtype != "auto" or run.dtype == "float64" or not run.unreliable]


def find(runs: Iterable[Run], config: Mapping[str, Any]) -> Measurement:
    """The seeds and values that runs of exactly this configuration have, in order; of a seed in two runs, those of the
    first.

    To resume: ``find(current(runs, device, dtype), config)``. What rounding decides in one run has no values in any.
    ValueError where runs have different quantities for no such reason.

    >>> from depthlaw.sims.records.record import find, make
    >>> how = {"device": "cpu", "dtype": "float64", "seconds": 0.1}
    >>> runs = [make({"L": length}, [0], {"update": [2.0 * length]}, **how) for length in (4, 8)]
    >>> find(runs, {"L": 8}).values
    {'update': (16.0,)}
    >>> find(runs, {"L": 16}).seeds
    ()
    """
    wanted = plain(config)
    chosen = [run for run in runs if run.config == wanted]
    unreliable = {name: change for run in chosen for name, change in run.unreliable.items()}
    kept = [{name: run.values[name] for name in run.values if not is_of(name, unreliable)} for run in chosen]
    values: dict[str, list[float | None]] = {}
    seeds: dict[int, None] = {}
    diverged: dict[int, Divergence] = {}
    for run, quantities in zip(chosen, kept, strict=True):
        if set(quantities) != set(kept[0]):
            raise ValueError(
                f"runs of one configuration have different quantities: {_names(kept[0])}; {_names(quantities)}"
            )
        new = [i for i, seed in enumerate(run.seeds) if seed not in seeds]
        for name, numbers in quantities.items():
            values.setdefault(name, []).extend(numbers[i] for i in new)
        for i in new:
            seeds[run.seeds[i]] = None
            if run.seeds[i] in run.diverged:
                diverged[run.seeds[i]] = run.diverged[run.seeds[i]]
    whole = {name: tuple(numbers) for name, numbers in values.items()}
    return Measurement(tuple(seeds), whole, diverged, unreliable, tuple(sorted({run.dtype for run in chosen})))


def is_of(quantity: str, roles: Collection[str]) -> bool:
    """Whether a quantity is one of these, or belongs to one of these: layer/q/3 to q, and real_step to update."""
    parts = ["update" if part == "real_step" else part for part in quantity.split("/")]
    return quantity in roles or any(part in roles for part in parts)


def _names(values: Values) -> str:
    return ", ".join(sorted(values))
