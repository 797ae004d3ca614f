"""What is recorded of DeepNet's networks at initialisation: measurements too slow to repeat at every ``verify``.

Everywhere the update is that of one logit under SGD, the sum of ||df/dtheta||^2 / d, by autograd in float64, on 4
independent tokens. Nothing here is of theory/. A plan says which configurations a record has, with how many seeds; the
command adds the runs that a record lacks, and changes none. Tests measure the first seeds again, and others.

    python -m depthlaw.paper_checks.papers.deepnet.runs encoder-decoders    # adds what encoder-decoders.jsonl lacks
"""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

from sympy import Expr, log

from depthlaw.paper_checks.claims.claim import Route
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.papers.deepnet import models
from depthlaw.paper_checks.routes.checks import Answers, check
from depthlaw.paper_checks.routes.intervals import exponent
from depthlaw.sims.records.record import Run, append, find, make, read
from depthlaw.system.places import RECORDS
from depthlaw.theory.symbols import L

NUM_TOKENS = 4
BETWEEN = 1 / 8
"""Exponents of depth are multiples of 1/4 here: an interval below this shows no growth, one above it growth."""

Config = Mapping[str, str | int | float]
"""What sets a network of a record apart from the others: plain numbers and names."""


class Plan(NamedTuple):
    """What a record is of: configs, each with its number of seeds. measure: each quantity by seed, of one config."""

    configs: tuple[tuple[Config, int], ...]
    measure: Callable[[Config, Sequence[int]], Mapping[str, Sequence[float]]]


@cache
def record(name: str) -> tuple[Run, ...]:
    """A record by its name, as it is in this checkout."""
    return tuple(read(RECORDS / f"{name}.jsonl"))


def recorded(name: str, quantity: str, config: Config) -> list[float]:
    """A quantity by recorded seed. LookupError where there is no such run, or a seed of it diverged."""
    run = find(record(name), config)
    if not run.seeds or run.diverged:
        raise LookupError(f"{name} has no such run: {', '.join(f'{key} {value}' for key, value in config.items())}")
    return [x for x in run.values[quantity] if x is not None]


def add(plan: Plan, path: Path) -> None:
    """Add to the record what its plan asks for and it lacks: a run for each config, its seeds beginning at 0."""
    runs, at_once = read(path) if path.exists() else [], 4
    for config, num_seeds in plan.configs:
        missing = tuple(sorted(set(range(num_seeds)) - set(find(runs, config).seeds)))
        start, values = time.monotonic(), dict[str, list[float]]()
        for first in range(0, len(missing), at_once):
            for name, numbers in plan.measure(config, missing[first : first + at_once]).items():
                values.setdefault(name, []).extend(numbers)
        if missing:
            seconds = time.monotonic() - start
            append(path, make(config, missing, values, device="cpu", dtype="float64", seconds=seconds))
            print(
                f"{path.name}: {len(missing)} seeds of {', '.join(f'{key} {value}' for key, value in config.items())}"
            )


# ---------------------------------------------------------------- encoder-decoders, by depth: DN-13, DN-14

DEPTHS = (6, 18, 50, 100)
SCHEMES = ("post-ln", "post-ln-init", "deepnet")


def layers(scheme: str, num_layers: int) -> tuple[models.Layers, models.Layers]:
    """(alpha, gain) by layer of encoder and decoder. Post-LN-init divides what is in layer l by N - l + 1."""
    if scheme == "post-ln-init":
        side = tuple((1.0, 1 / (num_layers - index)) for index in range(num_layers))
        return side, side
    scales = models.deepnet_scales(num_layers, num_layers) if scheme == "deepnet" else models.VANILLA
    return (scales.encoder,) * num_layers, (scales.decoder,) * num_layers


def _encoder_decoder(config: Config, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The update of the matrices of either side, and of the decoder's top layer, in the paper's tiny network.

    It has N layers on either side, d = 64, FFN 128, 2 heads, relu.
    """
    from depthlaw.sims.model import BRANCH_ROLES

    scheme, num_layers = str(config["scheme"]), int(config["num_layers"])
    scaled = BRANCH_ROLES if scheme == "post-ln-init" else models.SCALED  # DeepNorm scales no query and no key
    sides = layers(scheme, num_layers)
    encoder, decoder = models.by_sublayer(*sides, seeds, NUM_TOKENS, d_model=64, ffn_ratio=2, scaled=scaled)
    return {"encoder": models.added(encoder), "decoder": models.added(decoder), "top layer": models.added(decoder[-3:])}


def encoder_decoders(scheme: str, num_layers: int) -> tuple[list[float], list[float]]:
    """By recorded seed: the update, and the decoder's top layer's part of it."""
    config = {"scheme": scheme, "num_layers": num_layers}
    encoder, decoder, top = (recorded("encoder-decoders", name, config) for name in ("encoder", "decoder", "top layer"))
    return models.added([encoder, decoder]), top


# ---------------------------------------------------------------- encoders, by kind of parameter: DN-04, DN-09, DN-10

LENGTHS = (4, 64)
WIDTH = 32
GROUPS: Mapping[str, tuple[str, ...]] = {
    "matrices": ("q", "k", "v", "out", "fc1", "fc2"),
    "norm gains": ("post_gain",),
    "norm biases": ("post_bias",),
    "output biases": ("out_bias", "fc2_bias"),
    "inner biases": ("v_bias", "fc1_bias"),
    "query biases": ("q_bias",),
}
"""By what they are, the roles of a default Transformer. Left out: the biases of k, which shift all scores of a query
alike, so that softmax does not see them and their gradient is 0."""
_NUM_SEEDS = {("deepnorm", "relu", 4): 768, ("deepnorm", "relu", 64): 192}
"""More where the queries' biases are looked at: their gradients scatter the more, the fewer the attentions."""


def _encoder(config: Config, seeds: Sequence[int]) -> dict[str, list[float]]:
    """||df/dtheta||^2 by kind, in an encoder with norm gains and biases and linear biases; FFN 32, 1 head."""
    from depthlaw.network.lower import lower_transformer

    length, activation = int(config["num_sublayers"]), str(config["activation"])
    shape = {"ffn_ratio": 1, "activation": activation, "has_affine": True, "has_bias": True}
    by_name = models.squares(lower_transformer(str(config["scheme"]), "sgd", length, WIDTH, **shape), seeds, NUM_TOKENS)
    over_d = {
        kind: models.added(row for name, row in by_name.items() if name.split("_", 3)[3] in roles)
        for kind, roles in GROUPS.items()
    }
    return {kind: [WIDTH * square for square in row] for kind, row in over_d.items()}


def encoders(scheme: str, activation: str, length: int) -> dict[str, list[float]]:
    """By kind of parameter and recorded seed, ||df/dtheta||^2."""
    config = {"scheme": scheme, "activation": activation, "num_sublayers": length}
    return {name: recorded("encoders", name, config) for name in GROUPS}


def power_between(order: Expr) -> float:
    """The power of L that an order looks like between the two depths."""
    low, high = (float(log(order.subs(L, length))) for length in LENGTHS)
    return (high - low) / math.log(LENGTHS[1] / LENGTHS[0])


@check(Route.MEASURED, f"recorded Transformers, d = {WIDTH}, L = {LENGTHS}: the power of L, to 1/8")
def growth_on_record(s: Growth) -> Answers:
    low, high = (encoders(s.scheme, s.activation, length)["matrices"] for length in LENGTHS)
    measured, power = exponent(low, high, LENGTHS[1] / LENGTHS[0]), power_between(s.order)
    holds = measured.within(-math.inf if s.is_upper else power - BETWEEN, power + BETWEEN)
    numbers = {"power of L": measured.text, "stated": float(f"{power:.3g}"), "seeds": [len(low), len(high)]}
    return Answers(holds=[holds], numbers=numbers)


# ---------------------------------------------------------------- an encoder's share, by counts and scales: DN-07

COUNTS = ((8, 8), (8, 64), (128, 8))
"""(N, M): the first, then M and then N some doublings up."""


def _share(config: Config, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The update of the matrices of either side, of N and M layers of given alpha and beta; FFN 32, 2 heads, relu."""
    sides = (
        ((float(config[f"alpha_{side}"]), float(config[f"beta_{side}"])),) * int(config[count])
        for side, count in (("e", "N"), ("d", "M"))
    )
    encoder, decoder = map(models.added, models.by_sublayer(*sides, seeds, NUM_TOKENS, d_model=WIDTH))
    return {"encoder": encoder, "decoder": decoder}


def _share_config(scales: models.Scales, counts: tuple[int, int]) -> Config:
    """alpha and beta of either side to six digits, and how many layers."""
    (alpha_e, beta_e), (alpha_d, beta_d) = scales
    letters = {"alpha_e": alpha_e, "beta_e": beta_e, "alpha_d": alpha_d, "beta_d": beta_d}
    return {name: float(f"{value:.6g}") for name, value in letters.items()} | {"N": counts[0], "M": counts[1]}


def _controlled(power: float, counts: tuple[int, int]) -> Config:
    """The exact scales, beta_e times N^power: the share then grows as N to twice that."""
    n, m = counts
    alpha_e = (n**4 * m / 27) ** (1 / 16)
    return _share_config(
        models.Scales((alpha_e, 0.5**0.5 / alpha_e * n**power), ((3 * m) ** 0.25, (12 * m) ** -0.25)), counts
    )


def encoder_share(scales: models.Scales, counts: tuple[int, int]) -> list[float]:
    """By recorded seed: the encoder's part of the update."""
    return recorded("encoder-share", "encoder", _share_config(scales, counts))


PLANS: Mapping[str, Plan] = {
    "encoder-decoders": Plan(
        tuple(({"scheme": scheme, "num_layers": n}, 64) for scheme in SCHEMES for n in DEPTHS), _encoder_decoder
    ),
    "encoders": Plan(
        tuple(
            ({"scheme": names[0], "activation": names[1], "num_sublayers": names[2]}, _NUM_SEEDS.get(names, 64))
            for names in product(("deepnorm", "post-ln"), ("relu", "gelu"), LENGTHS)
        ),
        _encoder,
    ),
    "encoder-share": Plan(
        tuple((_controlled(power, counts), 128) for power in (0, 1 / 8, 1 / 16) for counts in COUNTS), _share
    ),
}
"""By the record's name."""


if __name__ == "__main__":
    parser = ArgumentParser(description="Measure what the records of these names lack.")
    parser.add_argument("names", nargs="+", choices=list(PLANS))
    for name in parser.parse_args().names:
        add(PLANS[name], RECORDS / f"{name}.jsonl")
