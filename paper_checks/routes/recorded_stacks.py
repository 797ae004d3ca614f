"""What sims/records/ffn-stacks.jsonl says of a claim: real FFN-only stacks of every scheme under sgd, adam and lamb.

Nothing here is of theory/: a claimed order or number against the update of real networks, relu and layernorm, gains as
the scheme has them, 4 to 64 sublayers, two widths.

One seed draws the networks of all lengths and widths, beginning with the same numbers, so they are not independent of
one another. Each seed gives one number that holds all its networks together; Student's interval over the seeds is then
right whatever the networks of one seed share. A cell that a seed lacks leaves that seed out.

Infinite width. What an update of L sublayers differs by at width d is, to first order, a multiple of 1/d: of L/d where
every sublayer adds its share, as in Post-LN, and about the same at every L where branches are small. So every length
has a line in 1/d of its own, through its two widths, and its value at 0 counts. Terms in (L/d)^2 are left out.

The order. The exponent is the slope in log L, with equal weights, of the logarithms at infinite width: means of
logarithms, which are near to normal where updates are not, and have one limit with the logarithms of means. Between 4
and 64 sublayers log L looks like L^0.39. What a claim says is held against what else it could be: the powers of L by
quarters, log L, and the order times or over log L. It holds where the interval is nearer to it than to any of these,
fails where it is farther, and is open where the interval has the middle inside. So L^(1/2) and log L, 0.1 apart, take
more networks than L and 1. A sum over sublayers of order log L may have any number beside it, which bends it: claims
of that order are not for this route.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sympy import Expr, Rational, lambdify, log

from depthlaw.paper_checks.claims.claim import Check, Part, Route
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import LEVEL, ends
from depthlaw.sims.records import record
from depthlaw.sims.stats import Estimate, estimate, slope_weights
from depthlaw.system.places import RECORDS
from depthlaw.theory.symbols import L

PATH = RECORDS / "ffn-stacks.jsonl"
LENGTHS = (4, 8, 16, 32, 64)
WIDTHS = (512, 256)
WIDE = " and ".join(map(str, WIDTHS))


# ---------------------------------------------------------------- what stands in the record


@cache
def _runs(path: Path) -> Mapping[str, Sequence[record.Run]]:
    """The runs in float64, by what they are of. The digest of a network's numbers is no part of its name."""
    runs: dict[str, list[record.Run]] = {}
    for run in record.read(path):
        if run.dtype == "float64":
            runs.setdefault(_name({key: x for key, x in run.config.items() if key != "numbers"}), []).append(run)
    return runs


def _name(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def updates(
    scheme: str, optimizer: str, num_sublayers: int, d_model: int, path: Path = PATH
) -> dict[int, float | None]:
    """The updates of one network by seed, None where it diverged; of a seed that stands in two runs, the first.

    OSError without the file, ValueError where its runs are not of one network.
    """
    config: dict[str, Any] = {"scheme": scheme, "optimizer": optimizer, "num_sublayers": num_sublayers}
    config |= {"d_model": d_model, "arch": "ffn", "activation": "relu", "norm_kind": "layernorm"}
    runs = _runs(path).get(_name(config), ())
    if len({str(run.config["numbers"]) for run in runs if "numbers" in run.config}) > 1:
        raise ValueError(f"runs of {scheme} under {optimizer} were made of different numbers")
    by_seed: dict[int, float | None] = {}
    for run in runs:
        by_seed = dict(zip(run.seeds, run.values["update"], strict=True)) | by_seed
    return by_seed


def table(scheme: str, optimizer: str, path: Path = PATH) -> np.ndarray:
    """The updates [seed, width, length] of the seeds that every network of LENGTHS and WIDTHS has.

    LookupError where there are fewer than two of them, ValueError where one diverged.
    """
    by_seed = [updates(scheme, optimizer, length, d, path) for d in WIDTHS for length in LENGTHS]
    seeds = sorted(set.intersection(*map(set, by_seed)))
    if len(seeds) < 2:
        raise LookupError(f"the record has {len(seeds)} seeds of {scheme} under {optimizer} at every length and width")
    values = np.array([[cell[seed] for cell in by_seed] for seed in seeds], dtype=float)
    if not np.isfinite(values).all():
        raise ValueError(f"{scheme} under {optimizer}: a seed diverged")
    return values.reshape(len(seeds), len(WIDTHS), len(LENGTHS))


# ---------------------------------------------------------------- the exponent


def width_weights() -> np.ndarray:
    """[width]: what each width counts in the value at 0 of the line in 1/d through both."""
    wide, narrow = WIDTHS
    return np.array([wide, -narrow]) / (wide - narrow)


@cache
def exponent(scheme: str, optimizer: str, path: Path = PATH) -> Estimate:
    """The power of L from 4 to 64 sublayers. LookupError and ValueError as ``table``; ValueError of updates of 0."""
    values = table(scheme, optimizer, path)
    if values.min() <= 0:
        raise ValueError(f"{scheme} under {optimizer}: an update is {values.min():g}, which has no logarithm")
    logs_SL = np.tensordot(np.log(values), width_weights(), (1, 0))
    return estimate((logs_SL @ slope_weights(np.log(LENGTHS))).tolist(), LEVEL)


def stated_exponent(order: Expr) -> float:
    """The power of L that an order in L looks like at these lengths."""
    value = lambdify(L, log(order), modules="math")
    return float(slope_weights(np.log(LENGTHS)) @ [float(value(length)) for length in LENGTHS])


def halfway(order: Expr, exponent_of: Callable[[Expr], float] = stated_exponent) -> float:
    """Half of the way from an order's exponent to that of the nearest order that it is told from."""
    exponent = exponent_of(order)
    powers = (L ** Rational(k, 4) for k in range(math.floor(4 * exponent) - 1, math.ceil(4 * exponent) + 2))
    others = (exponent_of(other) for other in (*powers, log(L), order * log(L), order / log(L)))
    return min(abs(other - exponent) for other in others if not math.isclose(other, exponent, abs_tol=1e-9)) / 2


def holds(
    power: Estimate, order: Expr, is_upper: bool, exponent_of: Callable[[Expr], float] = stated_exponent
) -> bool | None:
    """Whether the interval is nearer to the order (or below it) than to any other; None where it has the middle."""
    low, high = ends(power)
    exponent, edge = exponent_of(order), halfway(order, exponent_of)
    if high < exponent + edge and (is_upper or low > exponent - edge):
        return True
    return False if low > exponent + edge or (not is_upper and high < exponent - edge) else None


def growth(path: Path = PATH) -> Check:
    """A growth law by the record."""

    def decide(statement: Growth) -> Answers:
        if (statement.activation, statement.norm_kind) != ("relu", "layernorm"):
            raise LookupError(f"the record is of relu and layernorm: {statement.text}")
        power = exponent(statement.scheme, statement.optimizer, path)
        return Answers(
            holds=[holds(power, statement.order, statement.is_upper)],
            num_effective=power.num * len(LENGTHS) * len(WIDTHS),
            detail=f"recorded FFN stacks of {LENGTHS[0]} to {LENGTHS[-1]} sublayers, {WIDE} wide, the exact update of "
            f"{power.num} seeds each: the power of L that it goes with, at infinite width by a line in 1/d, as an "
            "interval, beside those of the stated order and of the next one, a quarter power or a log L away",
            numbers={
                "power of L": interval_text(power),
                "of the stated order": short(stated_exponent(statement.order)),
                "half of the way to the next": short(halfway(statement.order)),
            },
        )

    return check(Route.MEASURED, "", decide)


# ---------------------------------------------------------------- numbers


def at_infinite_width(scheme: str, optimizer: str, path: Path = PATH) -> dict[int, Estimate]:
    """By length, the mean update: each seed's line through its two widths, in 1/d, at 0."""
    means_SL = np.tensordot(table(scheme, optimizer, path), width_weights(), (1, 0))
    return {length: estimate(column.tolist(), LEVEL) for length, column in zip(LENGTHS, means_SL.T, strict=True)}


# ---------------------------------------------------------------- parts and words

STACKS_ON_RECORD = growth()


def recorded_too(part: Part, check: Check = STACKS_ON_RECORD) -> Part:
    """The part with this route besides."""
    return replace(part, checks=(*part.checks, check))


def interval_text(mean: Estimate) -> str:
    return " to ".join(map(short, ends(mean)))


def short(number: float) -> str:
    return f"{number:.3g}" if abs(number) >= 1e-3 else f"{number:.3f}"
