"""The two large models of the sources, planned: a section of TRAINING.md. Nothing here was run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from depthlaw.network.planned import gigabytes, planned
from depthlaw.network.trials import Trial
from depthlaw.paper_checks.pages.markdown import section
from depthlaw.paper_checks.papers.su.post_hoc_analysis import DICTIONARY
from depthlaw.paper_checks.routes.tables.parameter_counts import to_rounding
from depthlaw.sims.training.plan import NODE, OneTable, Tensor, memory_of_training, parameters_of
from depthlaw.sims.training.train import TrainConfig

NODES = (1, 4, 16)
TOKENS, SEQUENCES = 256, 64 * 4096 // 256
"""DeepNet's batch on WMT-17 is 64 x 4k tokens; how they were cut into sentences is our choice."""


@dataclass(frozen=True)
class Model:
    """An encoder-decoder of the sources. printed: its parameters, in billions. rows: of each of two tables, one of both
    sides' tokens and the head."""

    name: str
    num_layers: int
    d_model: int
    num_heads: int
    printed: str
    rows: int

    @cached_property
    def config(self) -> TrainConfig:
        """By DeepNorm under Adam, mixed in bfloat16."""
        trial = Trial(
            scheme="deepnorm",
            shape="nmt",
            num_layers=self.num_layers,
            d_model=self.d_model,
            num_heads=self.num_heads,
            activation="relu",
            precision="bfloat16",
            num_tokens=TOKENS,
            batch_size=SEQUENCES,
        )
        return trial.lower()

    @property
    def sizes(self) -> OneTable:
        return OneTable(
            num_positions=TOKENS,
            num_decoder_positions=TOKENS,
            vocab_size=self.rows,
            decoder_vocab_size=self.rows,
            num_classes=self.rows,
        )

    @cached_property
    def tensors(self) -> list[Tensor]:
        return parameters_of(self.config.model, self.sizes)

    @property
    def num_parameters(self) -> int:
        return sum(tensor.num for tensor in self.tensors)

    def is_as_printed(self, printed: str, unit: int = 10**9) -> bool:
        """Whether the count rounds to what is printed."""
        low, high = to_rounding(printed, unit)
        return low <= self.num_parameters < high


def models() -> tuple[Model, Model, Model]:
    """The 200-layer model; the 1,000-layer model; and the model of 200 layers beside the latter.

    The sources print no dictionary of the 1,000-layer model. It takes what the 254 million parameters leave of the
    48-layer model that it is compared with, which is as wide.
    """
    bare = Model("48 layers", 24, 512, 8, "0.254", 1)
    rows = 1 + (254 * 10**6 - bare.num_parameters) // (2 * bare.d_model)
    return (
        Model("200 layers (100 + 100, width 1,024)", 100, 1024, 16, "3.2", DICTIONARY),
        Model("1,000 layers (500 + 500, width 512)", 500, 512, 8, "3.8", rows),
        Model("200 layers (100 + 100, width 512)", 100, 512, 8, "0.863", rows),
    )


def largest_batch(model: Model, num_nodes: int, *, recomputes: bool) -> int:
    """The most tokens a step that fit into the memory of so many nodes, the same number on each device; 0 for none."""
    num = NODE.devices * num_nodes
    ways: dict[str, Any] = {"num_devices": num, "recomputes": recomputes, "tensors": model.tensors}

    def over(each: int) -> float:
        config = replace(model.config, batch_size=each * num)
        return memory_of_training(config, model.sizes, **ways).total - NODE.memory

    fitting = math.floor(1 - over(1) / (over(2) - over(1)))
    while fitting > 0 and over(fitting) > 0:  # memory grows along straight lines, each steeper than the last
        fitting -= math.ceil(over(fitting) / (over(fitting + 1) - over(fitting)))
    return max(0, fitting) * num * TOKENS


def large_models() -> str:
    """Markdown."""
    deep, thousand, beside = models()
    hardware = NODE
    return section(
        "training",
        "large_models",
        counts=[_count(model) for model in (deep, thousand)],
        rows=[row for model in (deep, thousand) for row in _rows(model)],
        rows_of_thousand=thousand.rows,
        beside=beside.num_parameters,
        is_beside=beside.is_as_printed("863", 10**6),
        tokens=TOKENS * SEQUENCES,
        length=TOKENS,
        hardware=hardware,
    )


def _count(model: Model) -> list[str]:
    agrees = "yes" if model.is_as_printed(model.printed) else "no"
    tables = 2 * model.rows * model.d_model
    return [model.name, f"{model.printed}B", f"{model.num_parameters:,}", f"{tables:,}", agrees]


def _rows(model: Model) -> Iterator[list[str]]:
    answer = planned(model.config, model.sizes, NODE, NODES)
    for place in answer["nodes"]:
        kept, again = (place[way] for way in ("as_it_is", "recomputing"))
        state = sum(kept["memory"][part] for part in ("weights", "gradients", "optimizer"))
        alls = [f"{gigabytes(way['memory']['total'])}{'' if way['fits'] else ' (too much)'}" for way in (kept, again)]
        batches = [
            f"{largest_batch(model, place['num_nodes'], recomputes=recomputes):,}" for recomputes in (False, True)
        ]
        seconds = again["seconds"]
        yield [
            model.name.partition(" (")[0],
            f"{place['num_nodes']} x {NODE.devices}",
            gigabytes(state),
            *alls,
            *batches,
            gigabytes(sum(place["received"].values())),
            f"{seconds['low']:.2g} to {seconds['high']:.2g}",
        ]
