"""Measurements too slow to repeat at every ``verify``: made once, kept as raw numbers by seed in sims/records.

A record is a list of runs. A run has the numbers that its networks were made of, the seeds, and each seed's values; a
check recomputes its intervals from these, and tests run the first seeds again, and others. Nothing in a record is ever
changed: what a plan asks for and the record lacks is added behind.

    python -m paper_checks.papers.deepnet.runs encoder-decoders    # adds what encoder-decoders.json lacks
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError, model_validator

from paper_checks.system.places import RECORDS
from sims.records.record import STRICT, check_by_seed, in_one_line, rounded

if TYPE_CHECKING:
    from typing import Self

Config = Mapping[str, str | int | float]
"""What a run's networks are made of: plain numbers and names."""


class Run(BaseModel):
    """values: by quantity, a number for each seed. torch, device: what computed them."""

    model_config = STRICT

    config: dict[str, str | int | float]
    seeds: list[int] = Field(min_length=1)
    values: dict[str, list[float]] = Field(min_length=1)
    torch: str = Field(pattern=r"^\d+\.\d+")
    device: str = Field(pattern=r"^(cpu|cuda)$")

    @model_validator(mode="after")
    def _has_a_value_for_each_seed(self) -> Self:
        check_by_seed(self.seeds, self.values)
        return self


class Record(BaseModel):
    """Runs of one kind of network, in the order in which they were made."""

    model_config = STRICT

    about: str = Field(min_length=1)
    runs: list[Run]

    @model_validator(mode="after")
    def _has_no_seed_twice(self) -> Self:
        for i, run in enumerate(self.runs):
            for other in self.runs[:i]:
                if run.config == other.config and set(run.seeds) & set(other.seeds):
                    raise ValueError(f"run {i} has seeds again of the same config")
        return self

    def values(self, quantity: str, config: Config) -> list[float]:
        """By seed, in the order of the runs. LookupError where there is none of that config."""
        found = [x for run in self.runs if run.config == dict(config) for x in run.values[quantity]]
        if not found:
            raise LookupError(f"no run of {', '.join(f'{key} {value}' for key, value in config.items())}")
        return found

    def seeds(self, config: Config) -> list[int]:
        return [seed for run in self.runs if run.config == dict(config) for seed in run.seeds]


def read(path: Path) -> Record:
    """ValueError, in one line, of a file that does not fit."""
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path.name} does not fit: {in_one_line(error)}") from None


@cache
def record(name: str) -> Record:
    """A record by its name, as it is in this checkout."""
    return read(RECORDS / f"{name}.json")


# ---------------------------------------------------------------- making them


@dataclass(frozen=True)
class Plan:
    """What a record is of: configs, each with its number of seeds. measure: each quantity by seed, of one config."""

    about: str
    configs: tuple[tuple[Config, int], ...]
    measure: Callable[[Config, Sequence[int]], Mapping[str, Sequence[float]]]


_AT_ONCE, _DIGITS = 4, 9
"""Seeds that are run together, and the significant digits that are kept."""


def make(plan: Plan, path: Path, say: Callable[[str], None] = lambda _: None) -> Record:
    """Add to the file what the plan asks for and it lacks: a run for each config, its seeds beginning at 0."""
    import torch

    found = read(path) if path.exists() else Record(about=plan.about, runs=[])
    for config, num_seeds in plan.configs:
        missing = sorted(set(range(num_seeds)) - set(found.seeds(config)))
        values: dict[str, list[float]] = {}
        for first in range(0, len(missing), _AT_ONCE):
            for name, numbers in plan.measure(config, missing[first : first + _AT_ONCE]).items():
                values.setdefault(name, []).extend(rounded(x, _DIGITS) for x in numbers)
        if missing:
            version = torch.__version__.partition("+")[0]
            run = Run(config=dict(config), seeds=missing, values=values, torch=version, device="cpu")
            found = Record(about=found.about, runs=[*found.runs, run])
            path.write_text(_text(found), encoding="utf-8")
            say(f"{path.name}: {len(missing)} seeds of {', '.join(f'{key} {value}' for key, value in config.items())}")
    return found


def _text(found: Record) -> str:
    """A line for each run, so that a change shows as a line that is added."""
    runs = ",\n".join(json.dumps(run.model_dump(), allow_nan=False) for run in found.runs)
    return f'{{"about": {json.dumps(found.about)}, "runs": [\n{runs}\n]}}\n'
