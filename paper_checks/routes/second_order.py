"""The second order of Adam's first step in drawn Pre-LN stacks, by branch weight and rate, by the one engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

FEW, MANY = 8, 64


@cache
def of_networks(num_sublayers: int, alpha: float) -> Mapping[str, float]:
    """Of a branch times L^-alpha and a rate times L^(alpha - 1), means of 8 networks of GELU FFNs, 64 wide: block/first
    and block/second, what a sublayer's own step changes; block/over_first and hidden/over_first, the second order over
    the first, in a sublayer and in the last hidden state, of a step whose first order changes the logit by 1."""
    from depthlaw.sims.measure import Question, collect
    from depthlaw.sims.model import ModelConfig, SublayerConfig

    rates: dict[str, float] = dict.fromkeys(("fc1", "fc2"), float(num_sublayers) ** (alpha - 1))
    sublayer = SublayerConfig(kind="ffn", branch_weight=num_sublayers**-alpha, lr_multipliers=rates)
    config = ModelConfig(encoder=(sublayer,) * num_sublayers, d_model=64, placement="pre", activation="gelu")
    values = collect(Question(config=config, optimizers=("adam",), has_second_order=True), range(8))
    prefix = "adam/second/"
    return {name.removeprefix(prefix): sum(column) / 8 for name, column in values.items() if name.startswith(prefix)}


def powers(alpha: float) -> dict[str, float]:
    """Of each number of ``of_networks``, the power of L from 8 to 64 sublayers."""
    few, many = (of_networks(number, alpha) for number in (FEW, MANY))
    return {name: math.log(many[name] / few[name], MANY / FEW) for name in few}


def told(alpha: float) -> dict[str, float]:
    """What a person wants to know of a branch weight, as evidence has it."""
    found, many = powers(alpha), of_networks(MANY, alpha)
    return {
        f"alpha = {alpha:g}: {text}, second order over first at 64 sublayers": round(many[f"{name}/over_first"], 4)
        for name, text in (("block", "a sublayer"), ("hidden", "last hidden state"))
    } | {
        f"alpha = {alpha:g}: {text}, its power of L": round(found[f"{name}/over_first"], 2)
        for name, text in (("block", "a sublayer"), ("hidden", "last hidden state"))
    }
