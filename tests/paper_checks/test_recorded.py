"""The recorded FFN stacks: intervals told again from the raw lines, what the route rejects, and networks made anew."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student
from sympy import Expr, Rational, S, log

from depthlaw.network.network import Network
from depthlaw.paper_checks.claims.claim import Evidence, Verdict, perform
from depthlaw.paper_checks.claims.statements import Growth
from depthlaw.paper_checks.routes.recorded_stacks import LENGTHS, PATH, WIDTHS, at_infinite_width, exponent, growth
from depthlaw.sims.records import record
from depthlaw.theory.schemes import scheme
from depthlaw.theory.symbols import L

CONFIRMED, REFUTED, UNDECIDED = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED


@cache
def raw() -> dict[tuple[Any, ...], dict[int, float]]:
    """(scheme, optimizer, length, width) to each seed's update, by json alone."""
    found: dict[tuple[Any, ...], dict[int, float]] = {}
    for line in PATH.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        where = tuple(run["config"][name] for name in ("scheme", "optimizer", "num_sublayers", "d_model"))
        for seed, value in zip(run["seeds"], run["values"]["update"], strict=True):
            found.setdefault(where, {}).setdefault(seed, value)
    return found


def by_seed(name: str, optimizer: str) -> list[list[list[float]]]:
    """Updates [seed][width][length] of the seeds that are everywhere."""
    cells = [[raw()[name, optimizer, length, d] for length in LENGTHS] for d in WIDTHS]
    seeds = sorted(set.intersection(*(set(cell) for row in cells for cell in row)))
    return [[[cell[seed] for cell in row] for row in cells] for seed in seeds]


def interval(values: list[float]) -> tuple[float, float]:
    mean, error = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))
    half = student.ppf(0.99995, len(values) - 1) * error
    return float(mean - half), float(mean + half)


@pytest.mark.parametrize(
    ("name", "optimizer"), [("post-ln", "sgd"), ("su-adam", "adam"), ("su-lamb", "lamb"), ("sub-ln", "sgd")]
)
def test_intervals_are_those_of_lines_through_the_raw_numbers(name: str, optimizer: str) -> None:
    powers, means = [], []
    inverse = [1 / d for d in WIDTHS]
    for seed in by_seed(name, optimizer):
        pairs = list(zip(*seed, strict=True))
        logs = [np.polyfit(inverse, np.log(pair), 1)[1] for pair in pairs]
        powers.append(float(np.polyfit(np.log(LENGTHS), logs, 1)[0]))
        means.append([float(np.polyfit(inverse, pair, 1)[1]) for pair in pairs])
    found = exponent(name, optimizer)
    assert (found.low, found.high) == pytest.approx(interval(powers), rel=1e-6, abs=1e-9)
    for i, one in enumerate(at_infinite_width(name, optimizer).values()):
        assert (one.low, one.high) == pytest.approx(interval([row[i] for row in means]), rel=1e-6)


def made_up(
    path: Path,
    order: Expr,
    *,
    scatter: float = 0.2,
    per_width: float = 0.0,
    num_seeds: int = 64,
    lacks: int = 0,
    diverged: tuple[int, ...] = (),
    other: tuple[str, ...] = (),
) -> Path:
    """U = order (1 + per_width L/d) times log-normal scatter, of one scheme; without the last ``lacks`` networks.

    other: digests of numbers, of which each network has a run.
    """
    draws, runs = np.random.default_rng(0), []
    for d in WIDTHS:
        for length in LENGTHS:
            config = Network(scheme=scheme("su-sgd"), num_sublayers=length, d_model=d).named("sgd")
            mean = float(order.subs(L, length)) * (1 + per_width * length / d)
            updates = mean * np.exp(scatter * math.sqrt(length / d) * draws.standard_normal(num_seeds))
            values = {"update": [None if i in diverged else x for i, x in enumerate(updates.tolist())]}
            why = {seed: {"side": "encoder", "index": 1, "in_pass": "forward"} for seed in diverged}
            rest: dict[str, Any] = {"device": "cpu", "dtype": "float64", "seconds": 0, "diverged": why}
            runs.append(record.make(config, range(num_seeds), values, **rest))
    for run in runs[: len(runs) - lacks]:
        digests = other or (run.config.get("numbers"),)
        for digest in digests:
            record.append(path, run.model_copy(update={"config": {**run.config, "numbers": digest}}))
    return path


def told(path: Path, order: Expr, *, is_upper: bool = False, name: str = "su-sgd") -> Evidence:
    return perform(growth(path), Growth(scheme=name, order=order, is_upper=is_upper))


@pytest.mark.parametrize(
    "true",
    [
        S.One,
        L ** Rational(1, 4),
        1 / L,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (L ** Rational(1, 2), L)),
    ],
)
def test_an_order_is_told_from_its_neighbours(tmp_path: Path, true: Expr) -> None:
    path = made_up(tmp_path / "it.jsonl", true)
    assert told(path, true).verdict is CONFIRMED
    for factor in (L ** Rational(1, 4), log(L)):
        assert told(path, true * factor).verdict is REFUTED
        assert told(path, true / factor).verdict is REFUTED
        assert told(path, true * factor, is_upper=True).verdict is CONFIRMED
        assert told(path, true / factor, is_upper=True).verdict is REFUTED


def test_what_the_record_lacks_is_undecided(tmp_path: Path) -> None:
    assert told(made_up(tmp_path / "it.jsonl", S.One), S.One, name="su-adam").detail.startswith("gave up: LookupError")
    for found in (
        told(made_up(tmp_path / "a.jsonl", S.One, lacks=1), S.One),
        told(made_up(tmp_path / "b.jsonl", S.Zero), S.One),
        told(made_up(tmp_path / "c.jsonl", S.One, diverged=(3,)), S.One),
        told(made_up(tmp_path / "d.jsonl", S.One, other=("a", "b")), S.One),
        told(tmp_path / "none.jsonl", S.One),
        perform(growth(), Growth(scheme="deepnorm", activation="gelu", order=S.One)),
        perform(growth(), Growth(scheme="deepnorm", norm_kind="rmsnorm", order=S.One)),
    ):
        assert (found.verdict, found.num_effective) == (UNDECIDED, 0)
