"""Sweeps of measurements that the project keeps: named lists of networks, each into a file of sims/records.

    python -m paper_checks.sweeps ffn-stacks --seeds 64        # adds what sims/records/ffn-stacks.jsonl lacks
    python -m paper_checks.sweeps gpu --device cuda            # the GPU lane: what a CPU cannot reach (make gpu)

A sweep goes round by round, a few seeds of every network at a time, so that one that is stopped is even over its
networks; called again, it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paper_checks.measuring import RECORDS, Kept, measure
from paper_checks.networks import Network
from theory.schemes import SCHEMES, scheme

OPTIMIZERS = ("sgd", "adam", "lamb")


@dataclass(frozen=True)
class Sweep:
    """about: what it is for. networks: cheap ones first. seeds: of each network, where nothing else is said."""

    about: str
    networks: tuple[Network, ...]
    optimizers: tuple[str, ...] = OPTIMIZERS
    seeds: int = 64
    dtype: str = "float64"


def _stacks(schemes: Sequence[str], lengths: Sequence[int], widths: Sequence[int]) -> tuple[Network, ...]:
    return tuple(
        Network(scheme=scheme(name), num_sublayers=length, d_model=width)
        for width in widths
        for length in lengths
        for name in schemes
    )


_ALL = tuple(SCHEMES)
LENGTHS = (4, 8, 16, 32, 64)
_DEEP = ("post-ln", "pre-ln", "sub-ln", "peri-ln", "deepnorm", "su-adam", "sub-ln-gamma", "gpt2", "ln-scaling")

SWEEPS: dict[str, Sweep] = {
    "ffn-stacks": Sweep(
        "every scheme under sgd, adam and lamb: FFN-only stacks 512 wide, and 256 wide for the term in L/d",
        _stacks(_ALL, LENGTHS, (512, 256)),
    ),
    "gpu": Sweep(
        "FFN-only stacks 1,024 to 4,096 wide, and up to 1,000 layers (2,000 sublayers), for a GPU",
        (
            *_stacks(_ALL, (16, 64, 256), (1024,)),
            *_stacks(_DEEP, (16, 64), (2048,)),
            *_stacks(_DEEP, (16,), (4096,)),
            *_stacks(_DEEP, (2000,), (1024,)),
        ),
        seeds=16,
    ),
}


def collect(sweep: Sweep, path: Path, num_seeds: int, device: str, at_once: int) -> Iterator[tuple[Network, int]]:
    """Measure what the record lacks; (network, seeds so far) after each step."""
    kept = Kept(path, device, sweep.dtype)
    for first in range(0, num_seeds, at_once):
        seeds = range(min(first + at_once, num_seeds))
        for network in sweep.networks:
            measure(network, sweep.optimizers, seeds, kept)
            yield network, len(seeds)


def run(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SWEEPS)}.")],
    seeds: Annotated[int, typer.Option(help="Of each network; 0: as many as the sweep says.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    at_once: Annotated[int, typer.Option(help="Seeds of a round.")] = 16,
    folder: Annotated[Path, typer.Option(help="Where the record is.")] = RECORDS,
) -> None:
    """Measure a sweep, or what its record lacks."""
    from rich.progress import track

    from sims.measure import choose_device

    if name not in SWEEPS:
        raise typer.BadParameter(f"unknown sweep {name!r} (allowed: {', '.join(SWEEPS)})")
    sweep, where = SWEEPS[name], choose_device(device)
    number = seeds or sweep.seeds
    rounds = -(-number // at_once)
    steps = collect(sweep, folder / f"{name}.jsonl", number, where, at_once)
    for _ in track(steps, total=rounds * len(sweep.networks), description=f"{name} on {where}"):
        pass


if __name__ == "__main__":
    typer.run(run)
