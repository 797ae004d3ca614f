"""The kernel rung against real networks: each role's update at two widths, extrapolated in 1/d to infinite width.

The prediction must lie in the interval of the limit, which comes from independent networks alone (and from the error
that the prediction states of itself), at FAMILY_ERROR over all comparisons together. Once with few narrow networks,
which see a factor of two in every role; more and wider ones are slow, and so are cases whose parts others have.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

import theory.kernel.walk as kernel_walk
from paper_checks.lowering.kernel_network import as_inputs, as_transformer
from sims.measure import Question, run
from sims.model import ModelConfig, SublayerConfig, alternating, decoder_layers
from sims.update import Task
from tests.once import once
from theory.kernel.gram import Gram
from theory.kernel.predict import REPLICATES, KernelUpdate, predict_kernel, unit_power
from theory.kernel.walk import Passage

FAMILY_ERROR = 1e-3
NUM_COMPARISONS = 600
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
SCALES = pytest.mark.parametrize(
    "scale", [pytest.param(SMALL, id="small"), pytest.param(LARGE, id="large", marks=pytest.mark.slow)]
)
ONLY_LARGE = ("none", "pre", "sub", "batch", "sum")
"""Cases whose placement, task and activation the others have between them."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """rest: fields of the config; of the task: task."""

    name: str
    encoder: tuple[SublayerConfig, ...] = field(default_factory=lambda: alternating(2))
    rest: tuple[tuple[str, Any], ...] = ()
    task: Task = TOKENS
    optimizers: tuple[str, ...] = ("sgd", "adam", "lamb")

    def config(self, d_model: int) -> ModelConfig:
        return ModelConfig(
            encoder=self.encoder,
            d_model=d_model,
            num_heads=d_model // HEAD_SIZE,
            has_affine=True,
            has_bias=True,
            has_short_draws=True,
            **dict(self.rest),
        )


def case(name: str, num_sublayers: int = 2, task: Task | None = None, **rest: Any) -> Case:
    found = Case(name=name, encoder=alternating(num_sublayers), rest=tuple(rest.items()))
    return found if task is None else replace(found, task=task)


SCALED = {"gains": {"q": 1.5, "k": 1.2, "v": 0.8, "out": 1.3, "fc1": 0.7, "fc2": 1.4}, "residual_weight": 0.8}
CROSS_ENTROPY = replace(TOKENS, objective="ce", num_classes=5, num_tokens=2, batch_size=2, correlation=0.5)
CASES = {
    one.name: one
    for one in (
        case("none", placement="none"),
        case("post, four layers", 8, task=replace(TOKENS, readout="sum")),
        case("pre", placement="pre", activation="silu"),
        case("sub", placement="sub"),
        case("sub, rmsnorm", placement="sub", norm_kind="rmsnorm", activation="gelu"),
        case("peri, causal", placement="peri", is_causal=True),
        case("normformer", placement="normformer", ffn_ratio=2),
        case("batch", task=replace(TOKENS, num_tokens=3, batch_size=3, correlation=0.5), ffn_ratio=1),
        case("cross-entropy", task=CROSS_ENTROPY),
        case("sum", placement="pre", task=replace(TOKENS, readout="sum"), is_causal=True),
        replace(case("encoder-decoder"), rest=(("decoder", decoder_layers(1)),)),
        Case(name="gains", encoder=tuple(replace(s, lr_multipliers={"bias": 3.0}) for s in alternating(2, **SCALED))),
        replace(
            case("all optimizers", placement="pre"), optimizers=("sgd", "adam", "lamb", "muon", "lars", "muon+adamw")
        ),
        replace(
            case("trained branch weights", placement="none"),
            encoder=tuple(replace(s, trains_branch_weight=True, branch_weight=0.7) for s in alternating(2)),
            optimizers=("sgd", "adam", "lamb", "lars"),
        ),
    )
}


# ---------------------------------------------------------------- both sides


def predicted(of: Case, scale: Scale) -> dict[str, KernelUpdate]:
    config = of.config(scale.widths[0])
    network = as_transformer(config, head_size=HEAD_SIZE)
    return predict_kernel(network, as_inputs(of.task, config), of.optimizers, effort=scale.effort)


@cache
def measured(name: str, scale: Scale) -> dict[tuple[str, str], list[np.ndarray]]:
    """By optimizer and role, each width's networks, in the unit of the prediction."""
    kept = once(f"kernel networks/{name} {scale.widths[0]}", lambda: _measured(name, scale))
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for quantity, by_width in kept.items():
        optimizer, role = quantity.split("/")
        power = 0.0 if role == "update" else unit_power(optimizer, role)
        found[optimizer, role] = [
            np.array(values) * width**power for width, values in zip(scale.widths, by_width, strict=True)
        ]
    return found


def _measured(name: str, scale: Scale) -> dict[str, list[list[float]]]:
    of = CASES[name]
    found: dict[str, list[list[float]]] = {}
    for width in scale.widths:
        question = Question(config=of.config(width), task=of.task, optimizers=of.optimizers)
        by_quantity: dict[str, list[float]] = {}
        first = zlib.crc32(f"{name} {width}".encode()) % 10**6  # networks of its own
        for result in run(question, range(first, first + scale.num_seeds)):
            assert not result.unreliable
            assert not result.diverged
            for quantity, values in result.values.items():
                by_quantity.setdefault(quantity, []).extend(values)
        for quantity, values in by_quantity.items():
            if not quantity.endswith("/real_step"):
                found.setdefault(quantity, []).append(values)
    return found


def limit(samples: list[np.ndarray], scale: Scale) -> tuple[float, float]:
    """The mean at infinite width, of m + c / d through both, and the square of its standard error."""
    ratio = scale.widths[1] / scale.widths[0]
    weights = (-1 / (ratio - 1), ratio / (ratio - 1))
    means = (float(x.mean()) for x in samples)
    squares = (float(x.var(ddof=1)) / len(x) for x in samples)
    return (
        sum(w * m for w, m in zip(weights, means, strict=True)),
        sum(w**2 * s for w, s in zip(weights, squares, strict=True)),
    )


OWN_QUANTILE = -float(stdtrit(REPLICATES - 1, FAMILY_ERROR / 2))
"""Of what a prediction states of itself, which is the smaller part by far."""
Predicted = dict[str, KernelUpdate]


def of_role(found: KernelUpdate, role: str) -> tuple[float, float]:
    """What is predicted, and its standard error."""
    value = found.update if role == "update" else found.roles[role]
    return value, value * found.error[role]


def outside(name: str, found: Predicted, scale: Scale) -> set[tuple[str, str]]:
    """(optimizer, role) whose prediction is not in the interval."""
    missed = set()
    for (optimizer, role), samples in measured(name, scale).items():
        value, error = of_role(found[optimizer], role)
        middle, square = limit(samples, scale)
        reach = math.hypot(scale.quantile * math.sqrt(square), OWN_QUANTILE * error)
        if abs(value - middle) > reach + 1e-9 * abs(middle):
            missed.add((optimizer, role))
    return missed


def outside_together(
    found: dict[str, Predicted], scale: Scale, factor: float = 1.0, power: float = 0.0
) -> set[tuple[str, str]]:
    """The same of the mean over the cases of measured / predicted, which is known much better.

    factor: of every prediction. power: of the width, in what is measured.
    """
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, by_optimizer in found.items():
        for (optimizer, role), samples in measured(name, scale).items():
            value, error = of_role(by_optimizer[optimizer], role)
            if value == 0:
                continue
            at_width = [x * width**power for x, width in zip(samples, scale.widths, strict=True)]
            middle, square = limit(at_width, scale)
            ratio, size = middle / value / factor, value * factor
            ratios.setdefault((optimizer, role), []).append((ratio, square / size**2 + (error / value) ** 2))
    missed = set()
    for at, values in ratios.items():
        reach = scale.quantile * math.sqrt(sum(square for _, square in values)) / len(values)
        if abs(sum(ratio for ratio, _ in values) / len(values) - 1) > reach + 1e-9:
            missed.add(at)
    return missed


# ---------------------------------------------------------------- the comparison


@cache
def prediction(name: str, scale: Scale) -> Predicted:
    return predicted(CASES[name], scale)


def cases(scale: Scale) -> list[str]:
    return [name for name in CASES if scale == LARGE or name not in ONLY_LARGE]


@pytest.mark.parametrize(
    ("name", "scale"),
    [pytest.param(name, SMALL, id=f"{name}-small") for name in cases(SMALL)]
    + [pytest.param(name, LARGE, id=f"{name}-large", marks=pytest.mark.slow) for name in cases(LARGE)],
)
def test_every_role_is_that_of_real_networks(name: str, scale: Scale) -> None:
    found = prediction(name, scale)
    assert outside(name, found, scale) == set()
    assert {role for _, role in measured(name, scale)} == {"update", *found["sgd"].roles}
    twice = {
        optimizer: replace(one, update=2 * one.update, roles={role: 2 * x for role, x in one.roles.items()})
        for optimizer, one in found.items()
    }
    seen = outside(name, twice, scale)
    assert seen >= {(o, role) for o in ("adam", "lamb") for role in ("update", "v", "out", "fc1", "fc2", "head")}
    assert scale == SMALL or ("sgd", "update") in seen


RARE = ("branch_weight", "cross_")
"""In one case each: known no better by all."""


@SCALES
def test_all_cases_together(scale: Scale) -> None:
    """They see a factor, and half a power of the width more in any role."""
    found = {name: prediction(name, scale) for name in cases(scale)}
    assert outside_together(found, scale) == set()
    roles = {at for name in cases(scale) for at in measured(name, scale) if not at[1].startswith(RARE)}
    zero = {(o, role) for o in ("lamb", "lars") for role in ("bias", "norm_bias")}
    assert outside_together(found, scale, factor=2.0) >= roles - zero
    assert outside_together(found, scale, factor=1.25) >= {
        ("adam", role) for role in ("update", "v", "fc1", "norm_gain")
    }
    assert outside_together(found, scale, power=0.5) >= roles - zero


# ---------------------------------------------------------------- theories that are wrong


class Frozen(Passage):
    """Tokens do not come together."""

    @property
    def next(self) -> Gram:
        return self.x

    @next.setter
    def next(self, _: Gram) -> None:
        pass


def test_tokens_that_do_not_come_together_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_walk, "Passage", Frozen)
    name = "post, four layers"
    assert {("adam", "q"), ("adam", "k")} <= outside(name, predicted(CASES[name], SMALL), SMALL)


@SCALES
def test_queries_and_keys_that_are_swapped_are_seen(scale: Scale) -> None:
    """Muon tells them apart: a key's gradient is spread over more singular values. Network by network."""
    name = "all optimizers"
    muon, networks = prediction(name, scale)["muon"], measured(name, scale)
    samples = [k - q for q, k in zip(networks["muon", "q"], networks["muon", "k"], strict=True)]
    middle, square = limit(samples, scale)
    (q, own), (k, other) = (of_role(muon, role) for role in ("q", "k"))
    reach = math.hypot(scale.quantile * math.sqrt(square), OWN_QUANTILE * math.hypot(own, other))
    assert abs(k - q - middle) < reach < abs(q - k - middle)
