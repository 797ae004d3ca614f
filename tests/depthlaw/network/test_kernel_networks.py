"""The kernel rung against real networks: each role's update at two widths, extrapolated in 1/d to infinite width.

The prediction must lie in the interval of the limit, which comes from independent networks alone (and from the error
that the prediction states of itself), at FAMILY_ERROR over all comparisons together. Once with few narrow networks,
which see a factor of two in every role; more and wider ones are slow, and so are cases whose parts others have.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from depthlaw.network.kernel import as_inputs, as_transformer
from depthlaw.sims.measure import Question, run
from depthlaw.sims.model import ModelConfig, SublayerConfig, alternating, decoder_layers
from depthlaw.sims.update import Task
from depthlaw.theory.kernel.predict import REPLICATES, KernelUpdate, predict_kernel, unit_power
from depthlaw.theory.kernel.update import MATRICES
from tests.often import often
from tests.once import once

FAMILY_ERROR = 1e-3
NUM_COMPARISONS = 800
"""At least as many as are made, by which the error of the family is shared out."""
HEAD_SIZE = 8
"""Heads are many, and as large as the prediction takes them."""
TOKENS = Task(num_tokens=4, trains_inputs=True)


@dataclass(frozen=True)
class Scale:
    """effort: of the prediction."""

    widths: tuple[int, int]
    num_seeds: int
    effort: float

    @property
    def quantile(self) -> float:
        return -float(stdtrit(self.num_seeds - 1, FAMILY_ERROR / NUM_COMPARISONS / 2))


SMALL, LARGE = Scale((32, 64), 32, 1.0), Scale((48, 96), 56, 4.0)
ONLY_LARGE = ("none", "pre", "sub", "batch", "sum", "visited twice, post")
"""Cases whose placement, task, visits and activation the others have between them."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """rest: fields of the config, beside the encoder's."""

    encoder: tuple[SublayerConfig, ...]
    rest: dict[str, Any]
    task: Task
    optimizers: tuple[str, ...]

    def config(self, d_model: int) -> ModelConfig:
        return ModelConfig(
            encoder=self.encoder,
            d_model=d_model,
            num_heads=d_model // HEAD_SIZE,
            has_affine=True,
            has_bias=True,
            has_short_draws=True,
            **self.rest,
        )


def case(
    num_sublayers: int = 2,
    task: Task = TOKENS,
    optimizers: str = "sgd adam lamb",
    sublayers: dict[str, Any] | None = None,
    **rest: Any,
) -> Case:
    encoder = alternating(num_sublayers, **sublayers or {})
    return Case(encoder=encoder, rest=rest, task=task, optimizers=tuple(optimizers.split()))


SCALED = {"gains": {"q": 1.5, "k": 1.2, "v": 0.8, "out": 1.3, "fc1": 0.7, "fc2": 1.4}, "residual_weight": 0.8}
CROSS_ENTROPY = replace(TOKENS, objective="ce", num_classes=5, num_tokens=2, batch_size=2, correlation=0.5)
CASES = {
    "none": case(placement="none"),
    "post, four layers": case(8, replace(TOKENS, readout="sum")),
    "pre": case(placement="pre", activation="silu"),
    "sub": case(placement="sub"),
    "sub, rmsnorm": case(placement="sub", norm_kind="rmsnorm", activation="gelu"),
    "peri, causal": case(placement="peri", is_causal=True),
    "normformer": case(placement="normformer", ffn_ratio=2),
    "batch": case(task=replace(TOKENS, num_tokens=3, batch_size=3, correlation=0.5), ffn_ratio=1),
    "cross-entropy": case(task=CROSS_ENTROPY, optimizers="sgd adam lamb adafactor"),
    "sum": case(task=replace(TOKENS, readout="sum"), placement="pre", is_causal=True),
    "encoder-decoder": case(decoder=decoder_layers(1)),
    "gains": case(sublayers={**SCALED, "lr_multipliers": {"bias": 3.0}}),
    "all optimizers": case(optimizers="sgd adam lamb muon lars muon+adamw adafactor", placement="pre"),
    "visited three times": case(placement="sub", sublayers=SCALED, is_causal=True, visits=3),
    "visited twice, post": case(
        4, CROSS_ENTROPY, "sgd adam lamb muon", visits=2, norm_kind="rmsnorm", has_qk_norm=True
    ),
    "encoder-decoder, visited twice": case(decoder=decoder_layers(1), visits=2),
    "trained branch weights": case(
        optimizers="sgd adam lamb lars",
        sublayers={"trains_branch_weight": True, "branch_weight": 0.7},
        placement="none",
    ),
}


@cache
def prediction(name: str, scale: Scale) -> dict[str, KernelUpdate]:
    case, config = CASES[name], CASES[name].config(scale.widths[0])
    network = as_transformer(config, head_size=HEAD_SIZE)
    return predict_kernel(network, as_inputs(case.task, config), case.optimizers, effort=scale.effort)


@cache
def measured(name: str, scale: Scale) -> dict[tuple[str, str], list[np.ndarray]]:
    """By optimizer and role, each width's networks, in the unit of the prediction; of two sides also "encoder/q"."""
    kept = once(f"kernel networks/{name} {scale.widths[0]}", lambda: _measured(name, scale))
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for quantity, by_width in kept.items():
        optimizer, _, role = quantity.partition("/")
        power = 0.0 if role == "update" else unit_power(optimizer, role)
        found[optimizer, role] = [
            np.array(values) * width**power for width, values in zip(scale.widths, by_width, strict=True)
        ]
    return found


def _measured(name: str, scale: Scale) -> dict[str, list[list[float]]]:
    case = CASES[name]
    by_quantity: dict[str, list[list[float]]] = {}
    for width in scale.widths:
        config = case.config(width)
        question = Question(config=config, task=case.task, optimizers=case.optimizers, has_layers=bool(config.decoder))
        at_width: dict[str, list[float]] = {}
        first = zlib.crc32(f"{name} {width}".encode()) % 10**6  # networks of its own
        for result in run(question, range(first, first + scale.num_seeds)):
            assert not result.unreliable
            assert not result.diverged
            for quantity, values in result.values.items():
                if (named := by_side(quantity)) is not None:
                    at_width.setdefault(named, []).extend(values)
        for quantity, values in at_width.items():
            if not quantity.endswith("/real_step"):
                by_quantity.setdefault(quantity, []).append(values)
    return by_quantity


def by_side(quantity: str) -> str | None:
    """Of "sgd/layer/q/2", the second layer's queries of an encoder and a decoder of one layer each, "sgd/decoder/q".
    None of what else is of a layer."""
    optimizer, *rest = quantity.split("/")
    if optimizer == "layer":
        return None
    if "layer" not in rest:
        return quantity
    role, index = rest[-2:]
    side = "decoder" if role.startswith("cross_") or index == "2" else "encoder"
    return f"{optimizer}/{side}/{role}" if role in MATRICES else None


def limit(samples: list[np.ndarray], scale: Scale) -> tuple[float, float]:
    """The mean at infinite width, of m + c / d through both, and the square of its standard error."""
    ratio = scale.widths[1] / scale.widths[0]
    weights = np.array([-1 / (ratio - 1), ratio / (ratio - 1)])
    means, squares = zip(*((x.mean(), x.var(ddof=1) / len(x)) for x in samples), strict=True)
    return float(weights @ means), float(weights**2 @ squares)


OWN_QUANTILE = -float(stdtrit(REPLICATES - 1, FAMILY_ERROR / 2))
"""Of what a prediction states of itself, which is the smaller part by far."""


def of_role(update: KernelUpdate, role: str) -> tuple[float, float]:
    """What is predicted, and its standard error."""
    side, _, role = role.rpartition("/")
    if side:
        value, error = update.sides[side][role], update.side_errors[side][role]
    else:
        value, error = update.update if role == "update" else update.roles[role], update.error[role]
    return value, value * error


def cases(scale: Scale) -> list[str]:
    return [name for name in CASES if scale == LARGE or name not in ONLY_LARGE]


@pytest.mark.parametrize(
    ("name", "scale"),
    often((pytest.param(name, SMALL, id=f"{name}-small") for name in cases(SMALL)), 2, wide=1)
    + [pytest.param(name, LARGE, id=f"{name}-large", marks=pytest.mark.slow) for name in cases(LARGE)],
)
def test_every_role_is_that_of_real_networks(name: str, scale: Scale) -> None:
    by_optimizer = prediction(name, scale)
    told, roles = by_optimizer["sgd"], {role for _, role in measured(name, scale)}
    assert {role for role in roles if "/" not in role} == {"update", *told.roles}
    if CASES[name].rest.get("decoder"):
        of_sides = {f"{side}/{role}" for side, own in told.sides.items() for role in own if role in MATRICES}
        assert {role for role in roles if "/" in role} == of_sides
    for (optimizer, role), samples in measured(name, scale).items():
        value, error = of_role(by_optimizer[optimizer], role)
        middle, square = limit(samples, scale)
        reach = math.hypot(scale.quantile * math.sqrt(square), OWN_QUANTILE * error)
        assert abs(value - middle) <= reach + 1e-9 * abs(middle), (optimizer, role)


RARE = ("branch_weight", "cross_")
"""In one case each: known no better by all."""


@pytest.mark.parametrize(
    "scale",
    [pytest.param(SMALL, marks=pytest.mark.wide), pytest.param(LARGE, marks=pytest.mark.slow)],
    ids=["small", "large"],
)
def test_all_cases_together(scale: Scale) -> None:
    """The mean over the cases of measured / predicted, which is known much better: it sees a factor of two."""
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    assert sum(len(measured(name, scale)) for name in cases(scale)) <= NUM_COMPARISONS
    for name in cases(scale):
        for (optimizer, role), samples in measured(name, scale).items():
            value, error = of_role(prediction(name, scale)[optimizer], role)
            if value != 0 and "/" not in role:
                middle, square = limit(samples, scale)
                ratios.setdefault((optimizer, role), []).append((middle / value, (square + error**2) / value**2))
    for (optimizer, role), values in ratios.items():
        mean = sum(ratio for ratio, _ in values) / len(values)
        reach = scale.quantile * math.sqrt(sum(square for _, square in values)) / len(values)
        assert abs(mean - 1) <= reach + 1e-9, (optimizer, role)
        assert role.startswith(RARE) or abs(mean / 2 - 1) > reach / 2, (optimizer, role)
