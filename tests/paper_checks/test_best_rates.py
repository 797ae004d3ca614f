"""The best learning rate by depth: how it is found from losses, and what is said of how it moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.claims.claim import Verdict
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.base import LEAST_SEEDS, PILOT_SEEDS, Book
from depthlaw.paper_checks.experiments.best_rates import GRIDS, HIGH, LAYERS, MARGIN, SCHEMES, best_rate
from depthlaw.paper_checks.experiments.scale import SMALL, WIDE
from depthlaw.paper_checks.routes.training.best_rates import (
    BestRates,
    FollowsUpdate,
    NearerThanNoMove,
    factor,
    growing,
    is_flat,
    predicted,
    transfer,
)
from depthlaw.paper_checks.routes.training.questions import questions
from tests import made_runs

NAME = "best-rates"
SEEDS = 4
FLAT = tuple(scheme for scheme in SCHEMES if is_flat(scheme))
Best = Callable[[Trial], float]
"""log2 of the best rate of a trial's scheme, depth and seed."""


def scatter(trial: Trial) -> float:
    """Of a seed, at each depth another; none on the mean over SEEDS."""
    return (0.15, -0.15, 0.1, -0.1)[trial.seed % SEEDS] * math.cos(trial.num_layers)


def by_update(trial: Trial) -> float:
    middle = math.log2(GRIDS[trial.scheme][3]) - 0.5
    return middle + predicted(trial.scheme) * (math.log2(trial.num_layers) - 3.5) + scatter(trial)


def still(trial: Trial) -> float:
    return math.log2(GRIDS[trial.scheme][3]) - 0.5 + scatter(trial)


def upwards(trial: Trial) -> float:
    return still(trial) + 0.5 * (math.log2(trial.num_layers) - 3.5)


def made(best: Best, num_seeds: int = SEEDS, scale: str = SMALL.name) -> Book:
    """Losses whose logarithm is a parabola around the best rate, of every arm."""
    book = Book({})
    for arm in experiment(NAME, scale).arms:
        for seed in range(num_seeds):
            trial = arm.at(seed)
            loss = math.exp(0.9 + 0.02 * (math.log2(trial.learning_rate) - best(trial)) ** 2)
            book[trial] = made_runs.result(trial, 1.0).model_copy(update={"held_out": loss})
    return book


@cache  # many tests look at the same
def book_of(best: Best) -> Book:
    return made(best)


# ---------------------------------------------------------------- from losses to slopes


@given(st.floats(-7.4, -3.1), st.floats(0.001, 0.1), st.floats(0.5, 5))
def test_the_best_rate_is_the_vertex(vertex: float, curvature: float, least: float) -> None:
    losses = {rate: least * math.exp(curvature * (math.log2(rate) - vertex) ** 2) for rate in HIGH}
    assert best_rate(losses) == pytest.approx(vertex, abs=1e-6)


def test_an_end_of_the_grid_is_no_optimum() -> None:
    """However low it is, the least of all may lie farther out."""
    for order in (1, -1):
        losses = dict(zip(HIGH, [2.0 + order * k for k in range(0, 6 * order, order)], strict=True))
        assert best_rate(losses) is None
        assert best_rate(dict(zip(HIGH, list(losses.values())[::-1], strict=True))) is None


def test_runs_that_diverged_have_no_loss() -> None:
    """Beside the least one they say that it is no end of the grid, and no more."""
    losses = [3.0, 2.5, 2.0, None, None, None]
    assert best_rate(dict(zip(HIGH, losses, strict=True))) == math.log2(HIGH[2])
    assert best_rate(dict(zip(HIGH, [3.0, 2.8, 2.5, 2.2, 2.0, None], strict=True))) == math.log2(HIGH[4])
    assert best_rate(dict(zip(HIGH, [3.0, 2.8, 2.5, 2.2, 2.1, 2.0], strict=True))) is None
    with pytest.raises(ValueError, match=r"at which training does not diverge$"):
        best_rate(dict.fromkeys(HIGH))


# ---------------------------------------------------------------- what is predicted


def test_the_prediction_is_the_reverse_of_the_updates_growth() -> None:
    """By the kept updates: two powers that are known, and those that are flat by construction."""
    from depthlaw.paper_checks.experiments.kernel_laws import training_update

    assert set(growing()) == {"pre-ln", "gpt2", "recipe:llama-2"}
    for scheme in SCHEMES:
        ends = [training_update(scheme, layers, "adamw") for layers in (LAYERS[0], LAYERS[-1])]
        between = math.log2(ends[1] / ends[0]) / math.log2(LAYERS[-1] / LAYERS[0])
        assert predicted(scheme) == pytest.approx(-between, abs=0.06)
    assert -1 < predicted("gpt2") < predicted("pre-ln") < -0.5


# ---------------------------------------------------------------- what is said


def verdicts(book: Book) -> dict[str, Verdict]:
    return {scheme: FollowsUpdate(scheme=scheme).evidence(book).verdict for scheme in SCHEMES}


def test_rates_that_go_as_the_update_says() -> None:
    book = book_of(by_update)
    assert set(verdicts(book).values()) == {Verdict.CONFIRMED}
    found = factor(book)
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < 1 < found.high and found.mean == pytest.approx(1, abs=0.2)
    assert NearerThanNoMove().evidence(book).verdict is Verdict.CONFIRMED


def test_rates_that_do_not_move() -> None:
    found = verdicts(book_of(still))
    assert {scheme for scheme, verdict in found.items() if verdict is Verdict.CONFIRMED} == set(FLAT)
    assert {found[scheme] for scheme in growing()} == {Verdict.REFUTED}
    assert NearerThanNoMove().evidence(book_of(still)).verdict is Verdict.REFUTED


def test_rates_that_grow_refute_both() -> None:
    assert set(verdicts(book_of(upwards)).values()) == {Verdict.REFUTED}
    assert MARGIN < 0.5


def test_what_scatters_is_open() -> None:
    """Neither nothing nor the predicted move is left out."""

    def wild(trial: Trial) -> float:
        return by_update(trial) / 2 + still(trial) / 2 + 8 * scatter(trial)

    assert set(verdicts(made(wild)).values()) == {Verdict.UNDECIDED}


def test_a_best_rate_beyond_the_grid_leaves_it_open() -> None:
    """Leaving out that seed alone would be a choice by the answer."""

    def beyond(trial: Trial) -> float:
        return by_update(trial) - 9 * ((trial.scheme, trial.num_layers, trial.seed) == ("pre-ln", 32, 1))

    book = made(beyond)
    assert BestRates.of("pre-ln", book).slopes[1] is None
    found = verdicts(book)
    assert found["pre-ln"] is Verdict.UNDECIDED and found["gpt2"] is Verdict.CONFIRMED
    assert NearerThanNoMove().evidence(book).verdict is Verdict.UNDECIDED


def test_the_pilot_counts_nothing_and_plans_the_seeds() -> None:
    plan = experiment(NAME).plan
    assert plan(Book({})).text.endswith("no scatter to go by")
    book = Book({})
    for arm in experiment(NAME).pilot:
        for seed in PILOT_SEEDS:
            trial = arm.at(seed)
            loss = math.exp(0.02 * (math.log2(trial.learning_rate) - by_update(trial)) ** 2)
            book[trial] = made_runs.result(trial, 1.0).model_copy(update={"held_out": loss})
    assert plan(book).num_seeds == LEAST_SEEDS and "scatters by at most" in plan(book).text
    assert BestRates.of("pre-ln", book).seeds == ()


def test_each_width_has_answers_of_its_own() -> None:
    """Runs at one width say nothing of the other, and a file that has both is read apart."""
    both = Book({**book_of(still), **made(by_update, scale=WIDE.name)})
    for scale, verdict in ((SMALL.name, Verdict.REFUTED), (WIDE.name, Verdict.CONFIRMED)):
        asked = [one for one in questions(NAME, scale) if isinstance(one, FollowsUpdate) and one.scheme == "gpt2"]
        assert [one.evidence(both).verdict for one in asked] == [verdict]
    with pytest.raises(LookupError, match="no seed"):
        FollowsUpdate(scheme="gpt2", scale=WIDE.name).evidence(book_of(still))


# ---------------------------------------------------------------- the page


def by_depth(scheme: str, losses: dict[int, list[list[float | None]]]) -> BestRates:
    """losses: by depth, of each seed at the rates 1, 2 and 4; the depths between are as the first."""
    curves = {
        n: {rate: [seed[at] for seed in losses.get(n, losses[LAYERS[0]])] for at, rate in enumerate((1.0, 2.0, 4.0))}
        for n in LAYERS
    }
    least = {
        n: [min(loss for loss in seed if loss is not None) for seed in zip(*by_rate.values(), strict=True)]
        for n, by_rate in curves.items()
    }
    return BestRates(scheme, (0, 1), {}, least, {}, curves)


def test_what_a_rate_that_was_tuned_shallow_loses_deep() -> None:
    """Each seed for itself; a run that diverged counts with what can be had without the input."""
    shallow: list[list[float | None]] = [[3.0, 2.0, 1.0], [2.0, 1.0, 1.5]]
    deep: list[list[float | None]] = [[1.0, 1.5, None], [1.0, 3.0, None]]
    asked = {
        "pre-ln": by_depth("pre-ln", {4: shallow, 16: deep}),
        "depth-mup": by_depth("depth-mup", {4: shallow, 16: [[0.5, 1.0, 2.0], [0.25, 1.0, 2.0]]}),
    }
    found = transfer("pre-ln", asked, 16, 5.0)
    assert found.as_is.mean == (4.0 + 2.0) / 2
    assert found.num_diverged == 1
    assert found.behind.mean == pytest.approx((0.5 + 0.75) / 2)
    # At 4^predicted of the rates 4 and 2: in octaves above rate 1, between losses that are known.
    first, second = 2 + 2 * predicted("pre-ln"), 1 + 2 * predicted("pre-ln")
    assert 0 < first < 1 and second < 0
    assert found.scaled is None  # the second lies below the rates tried
    assert transfer("depth-mup", asked, 16, 5.0).behind.mean == 0.0
    alone = {"depth-mup": asked["depth-mup"]}
    octaves = 2 * predicted("depth-mup")
    wanted = [(2.0 + octaves * 1.0) - 0.5, (1.0 + octaves * 0.75) - 0.25]
    scaled = transfer("depth-mup", alone, 16, 5.0).scaled
    assert octaves < 0 and scaled is not None and scaled.mean == pytest.approx(sum(wanted) / 2)
