"""What ``depthlaw train --plan`` is asked, and the page that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paper_checks.cli import options
from paper_checks.cli.options import BadInputError, option
from paper_checks.cli.output import number_of
from paper_checks.system.page import Page, grid

if TYPE_CHECKING:
    from sims.training.plan import Hardware

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
    tflops: float = option("The speed of a device, in 10^12 operations a second.", 989, _PAPER, least=1e-6, most=1e12)
    bandwidth: float = option("The GB a second that a device sends within its node.", 450, _PAPER, least=1e-6, most=1e9)
    network: float = option("The GB a second that a device sends to other nodes.", 50, _PAPER, least=1e-6, most=1e9)
    vocabulary: int | None = option("The tokens of each side, in place of the data's own.", None, _PAPER, most=10**9)

    def __post_init__(self) -> None:
        usual = options.defaults_of(Machines)
        given = [name for name, value in vars(self).items() if name != "plan" and not _is_usual(value, usual[name])]
        if given and not self.plan:
            raise BadInputError(f"{options.options_of(Machines)[given[0]]} belongs to --plan")

    @property
    def hardware(self) -> Hardware:
        """Of one node."""
        from sims.training.plan import Hardware

        return Hardware(
            devices=self.devices,
            memory=self.device_memory * 1e9,
            flops=self.tflops * 1e12,
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
            grid(("GB on each device", *_PARTS, "all", "fits"), _memories(row), ("GB on each device",), padding=0)
        )
        page.show(grid(("a step", "received", "seconds", "again computed"), _times(row), ("a step",), padding=0))
    page.say(
        f"A node has {number_of(hardware['devices'], 'device')} of {hardware['memory'] / 1e9:g} GB and "
        f"{hardware['flops'] / 1e12:g} teraflops, which sends {hardware['bandwidth'] / 1e9:g} GB a second within the "
        f"node and {hardware['network'] / 1e9:g} to others. {_MEANING}",
        "dim",
    )


_PARTS = ("weights", "gradients", "optimizer", "activations", "working", "measuring")
_MEANING = (
    "Each device keeps its share of weights, gradients and the optimizer's state, and gathers the weights of a block "
    "when it needs them, twice a step (FSDP). again computed: the backward pass computes each sublayer again "
    "(--recompute). working: what is gathered just then, with its gradients. measuring: the copy in which the update "
    "is measured, not at the same time as activations. Memory is the least: an allocator takes some more. received: "
    "GB of weights and gradients. seconds: from all communication hidden behind arithmetic to none, both at full "
    "speed; real runs reach a part of it."
)


def _devices(place: Mapping[str, Any]) -> str:
    return f"{number_of(place['num_nodes'], 'node')}, {number_of(place['num_devices'], 'device')}"


def _memories(row: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for place in row["nodes"]:
        for way, ending in (("as_it_is", ""), ("recomputing", ", again computed")):
            memory = place[way]["memory"]
            numbers = [f"{memory[part] / 1e9:.3g}" for part in (*_PARTS, "total")]
            yield [_devices(place) + ending, *numbers, "yes" if place[way]["fits"] else "no"]


def _times(row: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for place in row["nodes"]:
        received = sum(place["received"].values()) / 1e9
        ranges = [place[way]["seconds"] for way in ("as_it_is", "recomputing")]
        yield [_devices(place), f"{received:.3g}", *(f"{one['low']:.3g} to {one['high']:.3g}" for one in ranges)]


def _short(number: float) -> str:
    """With three digits, and a power of ten.

    >>> from paper_checks.cli.plan import _short
    >>> _short(1.234e15)
    '1.23e15'
    """
    return f"{number:.3g}".replace("e+", "e")
