"""The second order of Adam's first step in drawn Pre-LN stacks, by branch weight and rate, by the one engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from depthlaw.paper_checks.routes.intervals import Interval, exponent, interval

FEW, MANY = 8, 64
SEEDS = {FEW: range(8, 16), MANY: range(8)}
"""Networks of their own at each depth, so that the errors of both are independent."""
NEAR = 0.1
"""How near to a power that holds of many sublayers the one from 8 to 64 has to lie, with all of its interval."""


@cache
def of_networks(num_sublayers: int, alpha: float) -> Mapping[str, Sequence[float]]:
    """Of a branch times L^-alpha and a rate times L^(alpha - 1), each of 8 networks of GELU FFNs, 64 wide: block/first
    and block/second, what a sublayer's own step changes; block/over_first and hidden/over_first, the second order over
    the first, in a sublayer and in the last hidden state, of a step whose first order changes the logit by 1."""
    from depthlaw.sims.measure import Question, collect
    from depthlaw.sims.model import ModelConfig, SublayerConfig

    rates: dict[str, float] = dict.fromkeys(("fc1", "fc2"), float(num_sublayers) ** (alpha - 1))
    sublayer = SublayerConfig(kind="ffn", branch_weight=num_sublayers**-alpha, lr_multipliers=rates)
    config = ModelConfig(encoder=(sublayer,) * num_sublayers, d_model=64, placement="pre", activation="gelu")
    question = Question(config=config, optimizers=("adam",), has_second_order=True)
    values, prefix = collect(question, SEEDS[num_sublayers]), "adam/second/"
    return {name.removeprefix(prefix): column for name, column in values.items() if name.startswith(prefix)}


def power(name: str, alpha: float) -> Interval:
    """Of one number of ``of_networks``, or of one over another ("block/second over block/first"), the power of L from 8
    to 64 sublayers."""
    over, _, under = name.partition(" over ")
    few, many = (
        [x / y for x, y in zip(of[over], of[under], strict=True)] if under else of[over]
        for of in (of_networks(number, alpha) for number in (FEW, MANY))
    )
    return exponent(few, many, MANY / FEW)


def is_near(name: str, alpha: float, asked: float) -> bool | None:
    """Whether that power is the one that is asked for; None where the networks do not tell."""
    return power(name, alpha).within(asked - NEAR, asked + NEAR)


def told(alpha: float) -> dict[str, str]:
    """What a person wants to know of a branch weight, as evidence has it."""
    words = (("block", "a sublayer"), ("hidden", "last hidden state"))
    return {
        f"alpha = {alpha:g}: {text}, second order over first at 64 sublayers": interval(
            of_networks(MANY, alpha)[f"{name}/over_first"]
        ).text
        for name, text in words
    } | {f"alpha = {alpha:g}: {text}, its power of L": power(f"{name}/over_first", alpha).text for name, text in words}
