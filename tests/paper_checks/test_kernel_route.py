"""The route of the kernel rung: exponents told again from the kept file, laws that are made up, and what rejects it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sympy import Expr, Rational, S, log

from depthlaw.paper_checks.claims.claim import Verdict, perform
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.experiments import kernel_laws
from depthlaw.paper_checks.experiments.kernel_laws import LAWS, LENGTHS, Law
from depthlaw.paper_checks.papers import by_layer
from depthlaw.paper_checks.routes.kernel import (
    FIRST,
    GROWTH_BY_KERNEL,
    GROWTH_BY_KERNEL_ANEW,
    UPDATE,
    Curve,
    InTransformer,
    curve,
    exponent,
    follows,
    law,
)
from depthlaw.theory.symbols import L

CONFIRMED, REFUTED, UNDECIDED = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED
FROM_FIRST = tuple(n for n in LENGTHS if n >= FIRST)
STATEMENT = Growth(scheme="su-sgd", order=S.One)


@cache
def raw() -> dict[tuple[Any, ...], dict[int, dict[str, list[float]]]]:
    """(scheme, optimizer) to N to each role's value and error, by json alone; relu and layernorm, encoders."""
    found: dict[tuple[Any, ...], dict[int, dict[str, list[float]]]] = {}
    for answer in json.loads(LAWS.read_text(encoding="utf-8"))["answers"]:
        about = answer["about"]
        if (about["arch"], about["activation"], about["norm_kind"]) == ("encoder", "relu", "layernorm"):
            for optimizer, roles in answer["by_optimizer"].items():
                found.setdefault((about["scheme"], optimizer), {})[about["num_layers"]] = roles
    return found


def slope(xs: Any, ys: Any) -> float:
    return float(np.polyfit(xs, ys, 1)[0])


# ---------------------------------------------------------------- the laws that are kept


@pytest.mark.parametrize(("name", "optimizer", "role"), [("post-ln", "sgd", "update"), ("su-adam", "adam", "bias")])
def test_an_exponent_is_the_slope_of_the_raw_numbers(name: str, optimizer: str, role: str) -> None:
    found = curve(law(Growth(scheme=name, optimizer=optimizer, order=S.One)), role)
    numbers = [raw()[name, optimizer][n][role][0] for n in FROM_FIRST]
    told = exponent(found)
    assert told.mean == pytest.approx(slope(np.log(FROM_FIRST), np.log(numbers)), rel=1e-9)
    assert told.low is not None and told.high is not None
    assert told.low < told.mean < told.high


def test_a_flat_update_of_the_matrices_says_nothing_of_the_norms() -> None:
    for role, order in ((UPDATE, S.One), ("norm_gain", L), ("norm_bias", L), ("embedding", S.One)):
        for stated in (S.One, L):
            found = perform(GROWTH_BY_KERNEL, InTransformer(scheme="deepnorm", role=role, order=stated))
            assert found.verdict is (CONFIRMED if stated == order else REFUTED)


def test_what_is_not_kept_is_undecided() -> None:
    for statement in (
        STATEMENT.with_(activation="gelu"),
        STATEMENT.with_(optimizer="muon"),
        STATEMENT.with_(scheme="nonesuch"),
        InTransformer(scheme="su-lamb", optimizer="lamb", role="bias", order=S.One),  # 0 at initialisation
    ):
        found = perform(GROWTH_BY_KERNEL, statement)
        assert (found.verdict, found.num_effective) == (UNDECIDED, 0)
        assert found.detail.startswith("gave up: ")


# ---------------------------------------------------------------- laws that are made up


def made_up(value: Callable[[float], float], *, error: float = 1e-4, roles: Any = None) -> Law:
    """By L = 2N."""
    by_role: dict[str, Callable[[float], float]] = {"update": value, **(roles or {})}
    lengths: list[int] = list(LENGTHS)
    numbers = {role: {n: f(2 * n) for n in lengths} for role, f in by_role.items()}
    errors = {role: dict.fromkeys(lengths, error) for role in by_role}
    return Law(updates=numbers.pop("update"), roles=numbers, errors=errors)


def told(value: Callable[[float], float], order: Expr, *, is_upper: bool = False, **rest: Any) -> bool | None:
    return follows(curve(made_up(value, **rest)), order, is_upper, lambda _: 0.0).answer


@pytest.mark.parametrize("power", [Rational(0), Rational(1, 4), Rational(1)])
def test_an_order_is_told_from_its_neighbours(power: Rational) -> None:
    def value(length: float) -> float:
        return 7 * length ** float(power)

    assert told(value, L**power) is True
    for factor in (L ** Rational(1, 4), L ** Rational(-1, 4)):
        assert told(value, L**power * factor) is False
    assert told(value, L ** (power + Rational(1, 2)), is_upper=True) is True
    assert told(value, L ** (power - Rational(1, 2)), is_upper=True) is False


@pytest.mark.parametrize("beside", [-0.9, 20.0])
def test_a_constant_beside_a_logarithm_does_not_hide_it(beside: float) -> None:
    """Of the whole update the exponent is then anything between 0.05 and 0.5."""
    laws = {log(L): lambda n: beside + math.log(n), L ** Rational(1, 4): lambda n: beside + n**0.25}
    for order, value in laws.items():
        assert [told(value, other) for other in laws] == [other == order for other in laws]


def test_one_that_no_longer_rises_is_no_logarithm() -> None:
    for sign in (1, -1):
        assert told(lambda length, sign=sign: 5 + sign / length, log(L), error=1e-7) is False
        assert told(lambda length, sign=sign: 5 + sign / length, log(L), is_upper=True, error=1e-7) is True


def test_what_errors_and_bends_leave_open() -> None:
    """Flat over the deeper half, and not over all depths, is open; in proportion to L it is over neither."""
    assert told(lambda _: 1.0, S.One, error=0.01) is True
    assert told(lambda _: 1.0, S.One, error=0.3) is None
    assert told(math.log, log(L), error=0.1) is None
    assert told(lambda length: min(length, 128), S.One) is None
    assert told(lambda length: min(length, 128), L) is False
    point = exponent(Curve(np.array([2.0, 4.0, 8.0]), np.log([1.0, 2.0, 4.0]), np.zeros(3)))
    assert point.low == point.high == pytest.approx(1)


# ---------------------------------------------------------------- derived anew


def test_shallow_networks_are_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a number that is not derived leaves it open."""
    assert perform(GROWTH_BY_KERNEL_ANEW, STATEMENT).verdict is CONFIRMED
    kept = kernel_laws.law("su-sgd", "sgd")
    off = replace(kept, roles={**kept.roles, "fc1": {**kept.roles["fc1"], 2: 1.001 * kept.roles["fc1"][2]}})
    monkeypatch.setattr(kernel_laws, "law", lambda *_, **__: off)
    evidence = perform(GROWTH_BY_KERNEL_ANEW, STATEMENT)
    assert (evidence.verdict, evidence.num_effective) == (UNDECIDED, 0)
    assert "fc1 at N = 2" in evidence.detail


@pytest.mark.parametrize(("scheme", "arch"), [("pre-ln", "decoder"), ("post-ln", "encoder")])
def test_so_few_points_give_a_layers_gradient_within_a_percent(scheme: str, arch: str) -> None:
    num_layers, num_tokens = 4, 4
    few = by_layer._predicted(scheme, arch, num_tokens, num_layers).norms
    network = by_layer._network(scheme, num_layers, arch, num_tokens)
    ((_, sublayers),) = network.kernel_update("sgd", replicates=1, effort=4.0).layers.items()
    layers = [{**dict(a), **dict(f)} for a, f in zip(sublayers[::2], sublayers[1::2], strict=True)]
    many = [math.sqrt(sum(layer[role] for role in by_layer._MATRICES)) for layer in layers]
    assert few == pytest.approx(many, rel=0.01) and few != pytest.approx(many, rel=1e-9)
