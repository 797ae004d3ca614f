"""Experiments that only training decides: each a plan, a command, a record and answers with intervals."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from depthlaw.paper_checks.experiments.base import Experiment

NAMES = ("stable-rates", "warmup", "thousand-layers", "best-rates", "after-start", "transfer", "elsewhere")


@cache
def experiment(name: str, scale: str = "small") -> Experiment:
    """By name. ValueError, in one line, for what there is not."""
    from depthlaw.paper_checks.experiments import (
        after_start,
        best_rates,
        elsewhere,
        stable_rates,
        thousand_layers,
        transfer,
        warmup,
    )
    from depthlaw.paper_checks.experiments.scale import SCALES

    modules = (stable_rates, warmup, thousand_layers, best_rates, after_start, transfer, elsewhere)
    makers = {name: module.make for name, module in zip(NAMES, modules, strict=True)}
    if name not in makers:
        raise ValueError(f"unknown experiment {name!r} (allowed: {', '.join(NAMES)})")
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r} (allowed: {', '.join(SCALES)})")
    return makers[name](SCALES[scale])
