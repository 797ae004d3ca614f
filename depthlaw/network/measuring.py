"""Measurements of named networks: those that a record has already are taken from it, the others made and appended.

A run is written as soon as its chunk of seeds is done, so a measurement that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.network.network import Network
from depthlaw.sims.cluster import as_they_end
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS

if TYPE_CHECKING:
    from depthlaw.sims.cluster import Cluster
    from depthlaw.sims.measure import Part, Question, Result

LOCAL = RECORDS / "local" / "measure.jsonl"
"""What a user measures; git ignores it."""


@dataclass(frozen=True)
class Extras:
    """What else is measured beside the update: see ``sims.measure.Question``."""

    has_layers: bool = False
    has_changes: bool = False
    has_second_order: bool = False
    learning_rate: float | None = None

    def named(self) -> dict[str, Any]:
        """Those that are asked for. has_gradients: what earlier runs by layer do not have."""
        asked = {name: value for name, value in vars(self).items() if value is not None and value is not False}
        return asked | ({"has_gradients": True} if self.has_layers else {})


class Kept:
    """A record, read once: what there is of it that a measurement made now would repeat, and what is added.

    path: None to keep nothing. dtype: as of ``sims.measure.Question``. ValueError, in one line, of a file that is no
    record.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from depthlaw.network.measuring import Kept, measure
    >>> from depthlaw.network.network import Network
    >>> from depthlaw.theory.schemes import scheme
    >>> network = Network(scheme=scheme("post-ln"), num_sublayers=2, d_model=8)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.jsonl"
    ...     _ = measure(network, ["sgd"], seeds=[0, 1], kept=Kept(path))
    ...     [run.seeds for run in Kept(path).runs]
    [[0, 1]]
    """

    def __init__(self, path: Path | None, device: str = "cpu", dtype: str = "float64") -> None:
        self.path, self.device, self.dtype = path, device, dtype
        there = record.read(path) if path is not None and path.exists() else []
        self.runs = record.current(there, device, dtype)

    def add(self, run: record.Run) -> None:
        self.runs.append(run)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            record.append(self.path, run)


def measure(
    network: Network,
    optimizers: Sequence[str],
    seeds: Sequence[int],
    kept: Kept | None = None,
    *,
    extras: Extras | None = None,
    advance: Callable[[float], None] = lambda _: None,
) -> dict[str, record.Measurement]:
    """Build the network with each seed, take one optimizer step, and return what it moves.

    The answer has, by optimizer, the values of each quantity (a role, or "update" for all matrices of the branches),
    one for each seed.

    kept: the record that earlier measurements are taken from and new ones added to; nothing is kept if it is left out.
    extras: what else to measure. advance: a function that is called with the number of seeds that are done.
    ValueError, in one line, for a network that cannot be built or does not fit into memory.

    >>> from depthlaw.network.measuring import measure
    >>> from depthlaw.network.network import Network
    >>> from depthlaw.theory.schemes import scheme
    >>> network = Network(scheme=scheme("post-ln"), num_sublayers=4, d_model=16)
    >>> runs = measure(network, ["sgd"], seeds=[0, 1, 2])["sgd"]
    >>> runs.seeds, sorted(runs.values), runs.diverged
    ((0, 1, 2), ['fc1', 'fc2', 'head', 'update'], {})
    """
    extras, kept = extras or Extras(), kept or Kept(None)
    measured: dict[str, record.Measurement] = {}
    names, groups = _names(network, optimizers, extras), _groups(network, optimizers)
    for group in groups:
        share = len(group) / len(optimizers)
        missing = _missing(kept, [names[name] for name in group], seeds)
        advance((len(seeds) - len(missing)) * share)
        if missing:
            question = _question(network, group, kept, extras)
            for run in _runs(question, missing, names, lambda done, share=share: advance(share * done)):
                kept.add(run)
        measured |= {name: _only(record.find(kept.runs, names[name]), seeds) for name in group}
    return {name: measured[name] for name in optimizers}


def measure_on(
    cluster: Cluster,
    networks: Sequence[Network],
    optimizer: str,
    seeds: Sequence[int],
    kept: Kept,
    *,
    extras: Extras | None = None,
    advance: Callable[[float], None] = lambda _: None,
) -> list[record.Measurement]:
    """The same of several networks and an optimizer, by the workers of a cluster. This process alone writes the record.

    Numbers are those of ``measure`` to rounding: other seeds share their pass, and a worker has one thread. advance:
    told, in sublayers times seeds, how much of the work is done.
    """
    from depthlaw.sims.measure import first_part, other_parts

    extras = extras or Extras()
    names = [_names(network, [optimizer], extras) for network in networks]
    workers = cluster.workers(kept.device)
    jobs: deque[tuple[int, Part]] = deque()
    rest: dict[int, tuple[list[int], int]] = {}  # by network, the seeds that it lacks, and how many make a job
    for place, network in enumerate(networks):
        missing = _missing(kept, [names[place][optimizer]], seeds)
        advance((len(seeds) - len(missing)) * network.depth)
        if missing:
            first, size = first_part(_question(network, [optimizer], kept, extras), missing, workers.free)
            jobs.append((place, first))
            share = math.ceil((len(missing) - len(first.seeds)) / workers.num_workers)
            rest[place] = missing, max(1, min(size, share))
    for (place, part), (result, seconds) in as_they_end(cluster, _timed, jobs):
        if part.unreliable is None:  # the first: the others hang on what it tells
            jobs.extend((place, other) for other in other_parts(part, result, *rest[place]))
        for run in _as_runs(part.question, result, names[place], seconds, workers.device_name):
            kept.add(run)
        advance(len(part.seeds) * networks[place].depth)
    return [_only(record.find(kept.runs, each[optimizer]), seeds) for each in names]


def _timed(job: tuple[int, Part]) -> tuple[Result, float]:
    """In a worker."""
    start = time.perf_counter()
    return job[1].measured(most_threads=1), time.perf_counter() - start


def _names(network: Network, optimizers: Sequence[str], extras: Extras) -> dict[str, dict[str, Any]]:
    """By optimizer, what a record has its runs under."""
    return {optimizer: {**network.named(optimizer), **extras.named()} for optimizer in optimizers}


def _groups(network: Network, optimizers: Sequence[str]) -> list[list[str]]:
    """The optimizers of one network each: a pass over it serves them all."""
    configs = {name: network.config(name) for name in optimizers}
    groups: list[list[str]] = []
    for name in optimizers:
        match = next((group for group in groups if configs[group[0]] == configs[name]), None)
        if match is None:
            groups.append([name])
        else:
            match.append(name)
    return groups


def _missing(kept: Kept, names: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[int]:
    """The seeds that the record lacks of one of these. ValueError for runs of them that have no update."""
    runs = [record.find(kept.runs, name) for name in names]
    if any(run.seeds and "update" not in {*run.values, *run.unreliable} for run in runs):
        raise ValueError(f"{kept.path}: runs of this configuration have no update")
    there = set.intersection(*(set(run.seeds) for run in runs))
    return [seed for seed in seeds if seed not in there]


def check_memory(
    networks: Sequence[Network], optimizer: str, kept: Kept, extras: Extras, free: int | None = None
) -> None:
    """ValueError, in one line, for the first that does not fit into memory: before any is measured. free: the bytes
    that there are elsewhere, where it is not here that they are measured."""
    from depthlaw.sims.measure import check_memory as check

    for network in networks:
        check(_question(network, [optimizer], kept, extras), free)


def _question(network: Network, group: Sequence[str], kept: Kept, extras: Extras) -> Question:
    from depthlaw.sims.measure import Question

    return Question(
        config=network.config(group[0]),
        task=network.task,
        optimizers=tuple(group),
        **asdict(extras),
        device=kept.device,
        dtype=kept.dtype,
    )


def _runs(
    question: Question,
    seeds: Sequence[int],
    names: Mapping[str, Mapping[str, Any]],
    advance: Callable[[float], None],
) -> Iterator[record.Run]:
    """Of each chunk of seeds, one for each optimizer. names: by optimizer, what a record has it under."""
    from depthlaw.sims.measure import device_name, run

    start = time.perf_counter()
    for result in run(question, seeds, advance):
        seconds, start = time.perf_counter() - start, time.perf_counter()
        yield from _as_runs(question, result, names, seconds, device_name(question.device))


def _as_runs(
    question: Question, result: Result, names: Mapping[str, Mapping[str, Any]], seconds: float, device: str
) -> Iterator[record.Run]:
    diverged = {seed: place.__dict__ for seed, place in result.diverged.items()}
    for name in question.optimizers:
        values, unreliable = (_of(name, question.optimizers, table) for table in (result.values, result.unreliable))
        yield record.make(
            names[name],
            result.seeds,
            values,
            device=device,
            dtype=result.dtype,
            seconds=seconds / len(question.optimizers),
            diverged=diverged,
            unreliable=unreliable,
            commit=_commit(),
        )


@cache
def _commit() -> str | None:
    """Of this checkout, where git knows it."""
    try:
        command = ["git", "-C", str(RECORDS), "rev-parse", "HEAD"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _of(optimizer: str, group: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """The quantities of one optimizer, and those of none."""
    others = tuple(f"{name}/" for name in group if name != optimizer)
    return {
        name.removeprefix(f"{optimizer}/"): value
        for name, value in table.items()
        if not name.startswith(others or "\0")
    }


def _only(runs: record.Measurement, seeds: Sequence[int]) -> record.Measurement:
    """Those seeds, in that order."""
    at = [runs.seeds.index(seed) for seed in seeds]
    return record.Measurement(
        seeds=tuple(seeds),
        values={name: tuple(numbers[i] for i in at) for name, numbers in runs.values.items()},
        diverged={seed: runs.diverged[seed] for seed in seeds if seed in runs.diverged},
        unreliable=runs.unreliable,
        dtypes=runs.dtypes,
    )
