"""What ``depthlaw train --plan`` is asked, and the page that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import BadInputError, option
from depthlaw.cli.shared.output import number_of
from depthlaw.network.planned import gigabytes
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.sims.training.plan import Hardware

_PAPER = "On paper: --plan"


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Options of --plan. The defaults are those of a node of eight H100 SXM: ``sims.training.plan.NODE``."""

    plan: bool = option(
        "Train nothing: print the parameters, and what each device needs in memory, communication and time.",
        False,
        _PAPER,
    )
    devices: int = option("The devices of a node.", 8, _PAPER, most=10_000)
    nodes: list[int] = option("The number of nodes, or several, with commas.", "1,4,16", _PAPER, most=100_000)
    device_memory: float = option("The memory of a device, in GB.", 80, _PAPER, least=1e-3, most=1e9)
    tflops: float | None = option(
        "The speed of a device, in 10^12 operations a second; an H100's in the run's precision if left out.",
        None,
        _PAPER,
        least=1e-6,
        most=1e12,
    )
    bandwidth: float = option("The GB a second that a device sends within its node.", 450, _PAPER, least=1e-6, most=1e9)
    network: float = option("The GB a second that a device sends to other nodes.", 50, _PAPER, least=1e-6, most=1e9)
    vocabulary: int | None = option("The tokens of each side, in place of the data's own.", None, _PAPER, most=10**9)

    def __post_init__(self) -> None:
        usual = options.defaults_of(Machines)
        given = [name for name, value in vars(self).items() if name != "plan" and not _is_usual(value, usual[name])]
        if given and not self.plan:
            raise BadInputError(f"{options.options_of(Machines)[given[0]]} belongs to --plan")

    def hardware(self, precision: str) -> Hardware:
        """Of one node, for a run in this precision."""
        from depthlaw.sims.training.plan import FLOPS, Hardware

        return Hardware(
            devices=self.devices,
            memory=self.device_memory * 1e9,
            flops=FLOPS[precision] if self.tflops is None else self.tflops * 1e12,
            bandwidth=self.bandwidth * 1e9,
            network=self.network * 1e9,
        )


def _is_usual(value: Any, default: Any) -> bool:
    return value == ([int(part) for part in default.split(",")] if isinstance(default, str) else default)


def show(answer: Mapping[str, Any]) -> None:
    page, config, hardware = Page(), answer["config"], answer["hardware"]
    for row in answer["rows"]:
        layers = "-".join(str(row[name]) for name in ("num_layers", "num_decoder_layers") if name in row)
        page.say(
            f"{row['scheme']} under {row['optimizer']}: {config['shape']}, {layers} layers, d_model "
            f"{config['d_model']}, {config['precision']}: {row['num_parameters']:,} parameters",
            "bold",
        )
        page.say(", ".join(f"{role} {num:,}" for role, num in row["parameters"].items()), "dim")
        flops = row["flops"]
        page.say(
            f"{row['tokens']:,} tokens a step, {_short(flops['per_token'])} operations a token; a step "
            f"{_short(flops['forward'] + flops['backward'])}, and {_short(flops['again'])} more where sublayers are "
            "computed again" + (f"; Muon {_short(flops['optimizer'])} on each device." if flops["optimizer"] else "."),
            "dim",
        )
        page.show(
            grid(("devices", "sublayers", *_PARTS, "all", "fits"), _memories(row), _WORDS, unbroken=_WORDS, padding=0)
        )
        page.show(grid(("devices", "sublayers", "received", "seconds"), _times(row), _WORDS, padding=0))
    page.say(
        f"A node has {number_of(hardware['devices'], 'device')} of {hardware['memory'] / 1e9:g} GB and "
        f"{hardware['flops'] / 1e12:g} teraflops, which sends {hardware['bandwidth'] / 1e9:g} GB a second within the "
        f"node and {hardware['network'] / 1e9:g} to others. {_MEANING}",
        "dim",
    )


_WORDS = ("devices", "sublayers")
_PARTS = {
    "weights": "weights",
    "grads": "gradients",
    "state": "optimizer",
    "activations": "activations",
    "working": "working",
    "copy": "measuring",
}
"""The columns of memory, and what they are called in JSON."""
_MEANING = (
    "Memory is in GB on each device, and the least: an allocator takes some more. Each device keeps its share of "
    "weights, gradients and the optimizer's state, and gathers the weights of a block when it needs them, twice a "
    "step (FSDP). sublayers: whether what they compute is kept for the backward pass, or computed again there "
    "(--recompute). "
    "working: what is gathered just then, with its gradients. copy: the weights in float64 in which the update is "
    "measured, when no activations are there; small batch: --batch has no sequence for each device, so that the run "
    "would be refused; on one device all counts what an optimizer makes on its way, too. "
    "received: GB of weights and gradients a step. seconds: of a step, from "
    "all communication hidden behind arithmetic to none, both at full speed, and what goes between nodes "
    "goes once to each of them; real runs reach a part of it."
)


def _lines(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, list[str]]]:
    """The numbers of each number of nodes, the name of each way there, and the first cells of its line."""
    for place in row["nodes"]:
        devices = f"{place['num_nodes']} x {place['num_devices'] // place['num_nodes']}"
        yield place, "as_it_is", [devices, "kept"]
        yield place, "recomputing", ["", "again"]


def _memories(row: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for place, way, first in _lines(row):
        memory = place[way]["memory"]
        numbers = [gigabytes(memory[part]) for part in (*_PARTS.values(), "total")]
        fits = "yes" if place[way]["fits"] else "no" if place[way]["feeds_all"] else "small batch"
        yield [*first, *numbers, fits]


def _times(row: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for place, way, first in _lines(row):
        seconds = place[way]["seconds"]
        received = gigabytes(sum(place["received"].values()))
        yield [*first, received, f"{seconds['low']:.3g} to {seconds['high']:.3g}"]


def _short(number: float) -> str:
    """With three digits, and a power of ten.

    >>> from depthlaw.cli.plan import _short
    >>> _short(1.234e15)
    '1.23e15'
    """
    return f"{number:.3g}".replace("e+", "e")
