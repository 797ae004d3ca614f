"""Sweeps of measurements that the project keeps: named lists of networks, each into a file of sims/records.

    python -m depthlaw.paper_checks.experiments.sweeps ffn-stacks --seeds 64  # adds what ffn-stacks.jsonl lacks
    python -m depthlaw.paper_checks.experiments.sweeps transformers --width 256  # those of its networks so wide
    python -m depthlaw.paper_checks.experiments.sweeps gpu --device cuda  # what a CPU cannot reach (make gpu)

A sweep goes round by round, a few seeds of every network at a time, so that one that is stopped is even over its
networks; called again, it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from depthlaw.network.block import Block
from depthlaw.network.measuring import Kept, measure
from depthlaw.network.network import Network
from depthlaw.system.places import RECORDS
from depthlaw.theory.schemes import SCHEMES, scheme

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


def _transformers(schemes: Sequence[str], layers: Sequence[int], widths: Sequence[int]) -> tuple[Network, ...]:
    """Encoders of so many layers."""
    return tuple(
        Network(
            scheme=scheme(name), arch="encoder", num_sublayers=2 * number, d_model=width, num_heads=width // HEAD_SIZE
        )
        for width in widths
        for number in layers
        for name in schemes
    )


def _variants() -> Iterator[Network]:
    """One thing at a time that is not as in the rest."""
    changes: tuple[dict[str, Any], ...] = (
        *({"is_causal": True}, {"batch_size": 4}, {"correlation": 0.5}, {"readout": "sum"}, {"loss": "ce"}),
        {"loss": "ce", "batch_size": 4, "readout": "sum"},
        *({"activation": "gelu"}, {"activation": "silu"}, {"norm_kind": "rmsnorm"}),
    )
    for plain in _transformers(_PRINTED, (4,), (512,)):
        yield from (replace(plain, **change) for change in changes)
    for name in ("post-ln", "pre-ln", "deepnorm", "sub-ln-gamma"):
        yield Network(scheme=scheme(name), arch="encoder-decoder", num_layers=(2, 2), d_model=512, num_heads=8)


BLOCKS: Mapping[str, Mapping[str, Any]] = {
    "gated FFN (swiglu)": {"activation": "swiglu"},
    "norms of queries and keys": {"block": Block(has_qk_norm=True)},
    "grouped heads": {"block": Block(num_kv_heads=2)},
    "rotary positions": {"block": Block(has_rotary=True)},
    "attention and FFN side by side": {"block": Block(is_parallel=True)},
    "capped logits": {"block": Block(logit_softcap=1.0)},
    "layer scale": {"block": Block(layer_scale=0.1)},
    "standard deviations of 0.02, tied head": {"block": Block(init_std=0.02, embedding_std=0.02, is_head_tied=True)},
    "all of Llama": {
        "activation": "swiglu",
        "norm_kind": "rmsnorm",
        "block": Block(num_kv_heads=2, has_rotary=True, init_std=0.02, embedding_std=0.02),
    },
}
"""What people train beyond the papers' block, one thing at a time, by name."""


BLOCK_LAYERS = (2, 8, 32)
DEEP_LAYERS, DEEP_WIDTH = (4, 16, 64, 128), 2048


def block_network(name: str, num_layers: int) -> Network:
    """A Pre-LN decoder with that block of ``BLOCKS``."""
    sizes: dict[str, Any] = {"d_model": 512, "num_heads": 8, "num_tokens": 8}
    return Network(
        scheme=scheme("pre-ln"), arch="decoder", num_sublayers=2 * num_layers, **(sizes | dict(BLOCKS[name]))
    )


KEPT_SCHEMES = tuple(SCHEMES)
"""Schemes that every sweep of schemes has."""
LENGTHS = (4, 8, 16, 32, 64)
HEAD_SIZE = 64
_PRINTED = ("post-ln", "pre-ln", "sub-ln", "deepnorm")
_FIRST = (*_PRINTED, "sub-ln-gamma", "su-adam", "peri-ln", "gpt2")
_ORDERED = (*_FIRST, *(name for name in KEPT_SCHEMES if name not in _FIRST))
_VERY_DEEP = (*_PRINTED, "sub-ln-gamma", "su-adam", "gpt2")
_DEEP = ("post-ln", "pre-ln", "sub-ln", "peri-ln", "deepnorm", "su-adam", "sub-ln-gamma", "gpt2", "ln-scaling")

SWEEPS: dict[str, Sweep] = {
    "ffn-stacks": Sweep(
        "the kept schemes under sgd, adam and lamb: FFN-only stacks 512 wide, and 256 wide for the term in L/d",
        _stacks(KEPT_SCHEMES, LENGTHS, (512, 256)),
    ),
    "transformers": Sweep(
        "the kept schemes under sgd, adam and lamb: Transformers 512 wide, and 256 wide for the term in 1/d",
        _transformers(_ORDERED, (1, 2, 4, 8, 16), (512, 256)),
        seeds=32,
    ),
    "transformer-variants": Sweep(
        "Transformers of 4 layers 512 wide: masks, batches, losses, activations, norms, encoder-decoders",
        tuple(_variants()),
        seeds=16,
    ),
    "blocks": Sweep(
        "Pre-LN decoders 512 wide, 2 to 32 layers deep, with each block that people train",
        tuple(block_network(name, layers) for layers in BLOCK_LAYERS for name in BLOCKS),
        optimizers=("sgd", "adam"),
        seeds=16,
    ),
    "deep": Sweep(
        "DeepNorm Transformers 2,048 wide, 4 to 128 layers deep, in float32: the GPU lane's first measurement",
        tuple(replace(network, num_tokens=8) for network in _transformers(("deepnorm",), DEEP_LAYERS, (DEEP_WIDTH,))),
        optimizers=("adam",),
        seeds=4,
        dtype="float32",
    ),
    "gpu": Sweep(
        "FFN-only stacks 1,024 to 4,096 wide, and up to 1,000 layers (2,000 sublayers), and Transformers 2,048 wide up "
        "to 128 layers and 1,024 wide with 512, for a GPU",
        (
            *_stacks(KEPT_SCHEMES, (16, 64, 256), (1024,)),
            *_stacks(_DEEP, (16, 64), (2048,)),
            *_stacks(_DEEP, (16,), (4096,)),
            *_stacks(_DEEP, (2000,), (1024,)),
            # 12 d^2 numbers of 8 bytes each layer: the deepest of either width take 48 GiB, and 512 layers 2,048 wide
            # would take 192, in float32 96.
            *_transformers(_VERY_DEEP, (4, 16, 64, 128), (2048,)),
            *_transformers(_VERY_DEEP, (512,), (1024,)),
        ),
        seeds=16,
    ),
}


def only(sweep: Sweep, width: int) -> Sweep:
    """Those of its networks that are so wide; 0: all. ValueError, in one line, where there are none."""
    networks = tuple(network for network in sweep.networks if width in (0, network.d_model))
    if not networks:
        widths = sorted({network.d_model for network in sweep.networks})
        raise ValueError(f"no network is {width} wide (allowed: {', '.join(map(str, widths))})")
    return replace(sweep, networks=networks)


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
    width: Annotated[int, typer.Option(help="Only networks that are so wide; 0: all.")] = 0,
    first: Annotated[int, typer.Option(help="Only so many networks, from the first; 0: all.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where the record is.")] = RECORDS,
) -> None:
    """Measure a sweep, or what its record lacks."""
    from rich.progress import track

    from depthlaw.sims.measure import choose_device

    if name not in SWEEPS:
        raise typer.BadParameter(f"unknown sweep {name!r} (allowed: {', '.join(SWEEPS)})")
    try:
        sweep, where = only(SWEEPS[name], width), choose_device(device)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    sweep = replace(sweep, networks=sweep.networks[: first or None])
    number = seeds or sweep.seeds
    rounds = -(-number // at_once)
    steps = collect(sweep, folder / f"{name}.jsonl", number, where, at_once)
    for _ in track(steps, total=rounds * len(sweep.networks), description=f"{name} on {where}"):
        pass


if __name__ == "__main__":
    typer.run(run)
