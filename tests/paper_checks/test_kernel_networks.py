"""The kernel rung against real networks: each role's update at two widths, extrapolated in 1/d to infinite width.

The prediction must lie in the interval of the limit, which comes from independent networks alone (and from the error
that the prediction states of itself), at FAMILY_ERROR over all comparisons together.
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

import theory.kernel_walk as kernel_walk
from paper_checks.kernel_network import as_inputs, as_transformer
from sims.measure import Question, run
from sims.model import ModelConfig, SublayerConfig, alternating, decoder_layers
from sims.update import Task
from theory.kernel import REPLICATES, KernelUpdate, predict_kernel, unit_power
from theory.kernel_gram import Gram
from theory.kernel_walk import Passage

FAMILY_ERROR = 1e-3
NUM_COMPARISONS = 600
WIDTHS = (48, 96)
HEAD_SIZE = 8
"""Heads are many, and as large as the prediction takes them."""
NUM_SEEDS = 56
EFFORT = 4.0
TOKENS = Task(num_tokens=4, trains_inputs=True)


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
        case("cross-entropy", task=replace(TOKENS, objective="ce", num_classes=5, batch_size=2)),
        case("sum", placement="pre", task=replace(TOKENS, readout="sum"), is_causal=True),
        replace(case("encoder-decoder"), rest=(("decoder", decoder_layers(1)),)),
        Case(name="gains", encoder=tuple(replace(s, lr_multipliers={"bias": 3.0}) for s in alternating(2, **SCALED))),
        replace(case("all optimizers", placement="pre"), optimizers=("sgd", "adam", "lamb", "muon", "lars")),
        replace(
            case("trained branch weights", placement="none"),
            encoder=tuple(replace(s, trains_branch_weight=True, branch_weight=0.7) for s in alternating(2)),
            optimizers=("sgd", "adam", "lamb", "lars"),
        ),
    )
}


# ---------------------------------------------------------------- both sides


def predicted(of: Case) -> dict[str, KernelUpdate]:
    network = as_transformer(of.config(WIDTHS[0]), head_size=HEAD_SIZE)
    return predict_kernel(network, as_inputs(of.task), of.optimizers, effort=EFFORT)


@cache
def measured(name: str) -> dict[tuple[str, str], list[np.ndarray]]:
    """By optimizer and role, each width's networks, in the unit of the prediction."""
    of = CASES[name]
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for width in WIDTHS:
        question = Question(config=of.config(width), task=of.task, optimizers=of.optimizers)
        by_quantity: dict[str, list[float]] = {}
        first = zlib.crc32(f"{name} {width}".encode()) % 10**6  # networks of its own
        for result in run(question, range(first, first + NUM_SEEDS)):
            assert not result.unreliable
            assert not result.diverged
            for quantity, values in result.values.items():
                by_quantity.setdefault(quantity, []).extend(values)
        for quantity, values in by_quantity.items():
            optimizer, role = quantity.split("/")
            if role == "real_step":
                continue
            power = 0.0 if role == "update" else unit_power(optimizer, role)
            found.setdefault((optimizer, role), []).append(np.array(values) * width**power)
    return found


def limit(narrow: np.ndarray, wide: np.ndarray) -> tuple[float, float]:
    """The mean at infinite width, of m + c / d through both, and the square of its standard error."""
    ratio = WIDTHS[1] / WIDTHS[0]
    weights = (-1 / (ratio - 1), ratio / (ratio - 1))
    means = (float(x.mean()) for x in (narrow, wide))
    squares = (float(x.var(ddof=1)) / len(x) for x in (narrow, wide))
    return (
        sum(w * m for w, m in zip(weights, means, strict=True)),
        sum(w**2 * s for w, s in zip(weights, squares, strict=True)),
    )


QUANTILE = -float(stdtrit(NUM_SEEDS - 1, FAMILY_ERROR / NUM_COMPARISONS / 2))
OWN_QUANTILE = -float(stdtrit(REPLICATES - 1, FAMILY_ERROR / 2))
"""Of what a prediction states of itself, which is the smaller part by far."""
Predicted = dict[str, KernelUpdate]


def of_role(found: KernelUpdate, role: str) -> tuple[float, float]:
    """What is predicted, and its standard error."""
    value = found.update if role == "update" else found.roles[role]
    return value, value * found.error[role]


def outside(name: str, found: Predicted) -> set[tuple[str, str]]:
    """(optimizer, role) whose prediction is not in the interval."""
    missed = set()
    for (optimizer, role), (narrow, wide) in measured(name).items():
        value, error = of_role(found[optimizer], role)
        middle, square = limit(narrow, wide)
        if abs(value - middle) > math.hypot(QUANTILE * math.sqrt(square), OWN_QUANTILE * error) + 1e-9 * abs(middle):
            missed.add((optimizer, role))
    return missed


def outside_together(found: dict[str, Predicted], factor: float = 1.0, power: float = 0.0) -> set[tuple[str, str]]:
    """The same of the mean over the cases of measured / predicted, which is known much better.

    factor: of every prediction. power: of the width, in what is measured.
    """
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, by_optimizer in found.items():
        for (optimizer, role), samples in measured(name).items():
            value, error = of_role(by_optimizer[optimizer], role)
            if value == 0:
                continue
            middle, square = limit(*(x * width**power for x, width in zip(samples, WIDTHS, strict=True)))
            ratio, size = middle / value / factor, value * factor
            ratios.setdefault((optimizer, role), []).append((ratio, square / size**2 + (error / value) ** 2))
    missed = set()
    for at, values in ratios.items():
        reach = QUANTILE * math.sqrt(sum(square for _, square in values)) / len(values)
        if abs(sum(ratio for ratio, _ in values) / len(values) - 1) > reach + 1e-9:
            missed.add(at)
    return missed


# ---------------------------------------------------------------- the comparison


@cache
def prediction(name: str) -> Predicted:
    return predicted(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_role_is_that_of_real_networks(name: str) -> None:
    assert outside(name, prediction(name)) == set()
    assert {role for _, role in measured(name)} == {"update", *prediction(name)["sgd"].roles}


@pytest.mark.parametrize("name", CASES)
def test_a_factor_of_two_is_seen(name: str) -> None:
    twice = {
        optimizer: replace(found, update=2 * found.update, roles={role: 2 * x for role, x in found.roles.items()})
        for optimizer, found in prediction(name).items()
    }
    seen = outside(name, twice)
    assert seen >= {(o, role) for o in ("adam", "lamb") for role in ("update", "v", "out", "fc1", "fc2", "head")}
    assert ("sgd", "update") in seen


RARE = ("branch_weight", "cross_")
"""In one case each: known no better by all."""


def test_all_cases_together() -> None:
    found = {name: prediction(name) for name in CASES}
    assert outside_together(found) == set()
    roles = {at for name in CASES for at in measured(name)}
    zero = {(o, role) for o in ("lamb", "lars") for role in ("bias", "norm_bias")}
    assert outside_together(found, factor=2.0) >= {at for at in roles - zero if not at[1].startswith(RARE)}
    assert outside_together(found, factor=1.25) >= {("adam", role) for role in ("update", "v", "fc1", "norm_gain")}


def test_another_power_of_the_width_is_seen() -> None:
    """Half a power more or less, in any role."""
    found = {name: prediction(name) for name in CASES}
    roles = {at for name in CASES for at in measured(name) if not at[1].startswith(RARE)}
    seen = outside_together(found, power=0.5)
    assert seen >= {at for at in roles if at[0] not in ("lamb", "lars") or not at[1].endswith("bias")}


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
    assert {("adam", "q"), ("adam", "k")} <= outside(name, predicted(CASES[name]))


def test_queries_and_keys_that_are_swapped_are_seen() -> None:
    """Muon tells them apart: a key's gradient is spread over more singular values."""
    name = "all optimizers"
    muon = prediction(name)["muon"]
    roles = {**muon.roles, "q": muon.roles["k"], "k": muon.roles["q"]}
    assert {("muon", "q"), ("muon", "k")} & outside(name, {**prediction(name), "muon": replace(muon, roles=roles)})
