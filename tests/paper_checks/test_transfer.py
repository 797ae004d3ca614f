"""What the record of transfer says: of runs that are made up, the numbers that were put in; and its kept remedies."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import experiment, transfer
from depthlaw.paper_checks.experiments.after_start import ADAMW
from depthlaw.paper_checks.experiments.base import Book
from depthlaw.paper_checks.experiments.scale import SMALL
from depthlaw.paper_checks.routes.training.transfer import ADVISED, Transfer, is_cost, pays
from tests import made_runs

SEEDS = 4
MODEL = "pre-ln"
BEST, MOVED = 2.0**-7, 2.0**-9


def made(loss: Callable[[Trial, str], float | None], num_seeds: int = SEEDS) -> Book:
    """Every run of a model; None: it diverged. A loss is 0.01 higher with each seed, at every rate alike."""
    arms = [arm for arm in experiment("transfer").arms if (arm.trial.scheme, arm.trial.optimizer) == (MODEL, ADAMW)]
    book = made_runs.fill(arms, range(num_seeds))
    for trial in book.trials:
        value = loss(trial, "nothing" if trial.change is None else trial.change.name)
        end = {"held_out": None, "outcome": "diverged"} if value is None else {"held_out": value + 0.01 * trial.seed}
        book[trial] = book[trial].model_copy(update=end)
    return book


def parabola(trial: Trial, best: float, least: float) -> float:
    return least + 0.1 * (math.log2(trial.learning_rate) - math.log2(best)) ** 2


def moves(trial: Trial, remedy: str) -> float:
    """As it is, the best rate falls by two octaves; the advice keeps it, and costs 0.02 of loss."""
    if trial.num_layers == transfer.TUNED or remedy != "nothing":
        return parabola(trial, BEST, 2.0 + 0.02 * (remedy == ADVISED))
    return parabola(trial, MOVED, 2.0)


def test_gains_and_costs_are_what_was_put_in() -> None:
    one = Transfer.of(MODEL, made(moves))
    assert one.seeds == tuple(range(SEEDS)) and one.tuned == [BEST] * SEEDS
    assert one.gain(ADVISED, 32).mean == pytest.approx(0.4 - 0.02)
    assert one.transfer_cost("nothing", 32).mean == pytest.approx(0.4)
    assert one.transfer_cost(ADVISED, 32).mean == pytest.approx(0)
    assert one.remedy_cost(ADVISED, 32).mean == pytest.approx(0.02)
    assert [slope for slope in one.slopes if slope is not None] == pytest.approx([-2 / 3] * SEEDS, abs=0.02)
    assert pays(one, 32) is True
    assert is_cost(one.transfer_cost("nothing", 32)) is True and is_cost(one.remedy_cost(ADVISED, 32)) is False


def test_what_was_shown_of_a_way_and_which_beat_it() -> None:
    """The advice costs 0.2 beside the others, of which one differs by chance alone, and one by less than counts."""

    def loss(trial: Trial, remedy: str) -> float:
        if trial.num_layers == transfer.TUNED:
            return parabola(trial, BEST, 2.0)
        own = {ADVISED: 0.2, "learning-rate": 0.3 * (-1) ** trial.seed, "depth-mup": 0.01, "nothing": 0.1}
        return parabola(trial, BEST, 2.0 + own.get(remedy, 0.0))

    one = Transfer.of(MODEL, made(loss))
    told = {
        remedy: (one.verdict(remedy, 32), one.beaten_by(remedy, 32)) for remedy in transfer.MODELS[ADAMW][MODEL][1:]
    }
    assert told == {
        ADVISED: (-1, ["depth-mup", "completep"]),
        "learning-rate": (0, []),
        "depth-mup": (1, []),
        "completep": (1, []),
    }


def test_no_seed_is_judged_by_the_rate_that_it_chose() -> None:
    """One seed is lucky at a rate that is bad for the others: they choose for it."""
    lucky = 2 * BEST

    def loss(trial: Trial, remedy: str) -> float:
        is_lucky = trial.seed == 0 and trial.learning_rate == lucky and trial.num_layers == transfer.TUNED
        return 0.5 if is_lucky else parabola(trial, BEST, 2.0)

    assert Transfer.of(MODEL, made(loss)).tuned[0] == BEST


def test_a_run_that_diverged_counts_as_a_guess() -> None:
    def loss(trial: Trial, remedy: str) -> float | None:
        is_deep = trial.num_layers > transfer.TUNED and remedy == "nothing"
        return None if is_deep and trial.learning_rate == BEST else moves(trial, remedy)

    book = made(loss)
    guess = next(iter(book.values())).guess
    assert Transfer.of(MODEL, book).at_tuned("nothing", 32) == [guess] * SEEDS


@pytest.mark.parametrize(
    ("optimizer", "model"),
    [case if case[1] == MODEL else pytest.param(*case, marks=pytest.mark.slow) for case in transfer.CASES],
)
def test_the_kept_remedies_are_those_of_advise(optimizer: str, model: str) -> None:
    """To what the points of a prediction leave open."""
    layers = transfer.DEEPER[0]
    for change in transfer.derived(SMALL.d_model, model, layers, optimizer):
        kept = dict(transfer.kept()[SMALL.d_model, optimizer, model, layers, change.name].numbers)
        assert kept == pytest.approx(dict(change.numbers), rel=0.02)
