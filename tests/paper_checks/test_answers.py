"""What the statements of the experiments say of runs that nobody trained: yes, no or open, as the runs were made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from depthlaw.network.trials import Trial
from depthlaw.paper_checks.claims.claim import Evidence, Verdict, perform
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Book
from depthlaw.paper_checks.experiments.stable_rates import (
    CURVE,
    GRID,
    LAYERS,
    MIDDLE,
    MORE_SCHEMES,
    SCHEMES,
    bert,
    gpt,
    on_curve,
)
from depthlaw.paper_checks.experiments.warmup import plain
from depthlaw.paper_checks.routes.checks import outcome
from depthlaw.paper_checks.routes.training import stable_rates as forecast
from depthlaw.paper_checks.routes.training.arms import (
    BY_TRAINING,
    Answered,
    LargerGradients,
    LargerRate,
    LowerLoss,
    MoreTrain,
    half_learnt,
    seeds_of,
)
from depthlaw.paper_checks.routes.training.stable_rates import RanksFall, SmallerIsStabler
from tests import made_runs
from tests.often import often

SEEDS = range(5)
NEVER = 2.0**-30
"""An edge below every rate that is tried."""


def filled(name: str, arms: Iterable[str], edge: Callable[[Trial], float], seeds: Sequence[int] = SEEDS) -> Book:
    """What an experiment would have run of its arms, if a trial failed from its edge on."""
    return made_runs.fill(map(experiment(name).arm, arms), seeds, edge)


def joined(*books: Book) -> Book:
    return Book({trial: book[trial] for book in books for trial in book.trials})


# ---------------------------------------------------------------- books that are clear, and ones that are not


@cache
def rates(ours: float, theirs: float) -> Book:
    return of_rates({"sub-ln-gamma": ours, "pre-ln": theirs}, RATES)


def of_rates(octaves: Mapping[str, float], names: Iterable[str], scatter: float = 0.5) -> Book:
    """Edges 2^octaves by scheme, which scatter from seed to seed by a step of the grid, in each scheme alike."""
    return filled(
        "stable-rates", names, lambda trial: 2.0 ** (octaves[trial.scheme] + scatter * (trial.seed % 2) + 0.01)
    )


RATES = tuple(gpt(scheme, MIDDLE) for scheme in ("sub-ln-gamma", "pre-ln"))
CURVES = tuple(on_curve(scheme, rate) for scheme in SCHEMES for rate in CURVE)


@cache
def curves(ours: float, theirs: float) -> Book:
    """By whole octaves, as the curve goes: five runs of a scheme learn half of what the best one learns."""
    return of_rates(dict.fromkeys(SCHEMES, -8.0) | {"sub-ln-gamma": ours, "pre-ln": theirs}, CURVES, scatter=1.0)


WARM = tuple(map(plain, ("pre-ln", "post-ln")))


def trained(ours: int, theirs: int, num: int = 8) -> Book:
    """So many seeds of Pre-LN and of Post-LN."""
    enough = {"pre-ln": ours, "post-ln": theirs}
    return filled("warmup", WARM, lambda t: 1.0 if t.seed < enough[t.scheme] else NEVER, range(num))


def moved(change: Callable[[Trial, Any], Any]) -> Book:
    found = filled("warmup", WARM, lambda trial: 1.0)
    return Book({trial: change(trial, found[trial]) for trial in found.trials})


def losses(difference: float, scatter: float = 0.01) -> Book:
    """Pre-LN's held-out loss at the end less Post-LN's; the seeds' own luck is larger, and they share it."""

    def change(trial: Trial, result: Any) -> Any:
        own = difference + scatter * (-1) ** trial.seed if trial.scheme == "pre-ln" else 0.0
        return result.model_copy(update={"held_out": 2 + trial.seed + own})

    return moved(change)


def gradients(ratio: float, scatter: float = 0.1) -> Book:
    """Pre-LN's gradients over Post-LN's, but for those at the start, where they are equal."""

    def change(trial: Trial, result: Any) -> Any:
        def norms(step: int) -> dict[str, list[float]]:
            luck = (1 + trial.seed) * (1 + scatter * (-1) ** trial.seed if trial.scheme == "pre-ln" else 1)
            size = luck * (ratio if trial.scheme == "pre-ln" and step else 1.0)
            return {"encoder": [99.0] * 6, "decoder": [50.0, 50.0, 50.0, size, size, size]}

        looks = [look.model_copy(update={"gradient_norms": norms(look.step)}) for look in result.looks]
        return result.model_copy(update={"looks": looks})

    return moved(change)


GROUPS = (("su-adam", "deepnorm", "completep"), ("pre-ln", "sub-ln-gamma", "gpt2"), ("post-ln", "normformer", "rezero"))
"""By their updates at initialisation: 1, 10 and 100, alike within a group."""
GPTS = tuple(gpt(scheme, n) for n in LAYERS for scheme in (*SCHEMES, *(MORE_SCHEMES if n == MIDDLE else ())))


@cache
def by_update(*octaves: float) -> Book:
    """Edges by group."""
    group = {scheme: place for place, schemes in enumerate(GROUPS) for scheme in schemes}
    of_scheme = {scheme: octaves[place] for scheme, place in group.items()}
    found = joined(of_rates(of_scheme, CURVES, scatter=1.0), of_rates(of_scheme, GPTS, scatter=1.0))

    def looks(trial: Trial) -> list[Any]:
        size = 10.0 ** group[trial.scheme] * (1 + trial.seed / 100)
        return [look.model_copy(update={"update": {"update": size}}) for look in found[trial].looks]

    return Book({trial: found[trial].model_copy(update={"looks": looks(trial)}) for trial in found.trials})


SMALL_IS_FAST, LARGE_IS_FAST, ALIKE, BENT = (-3, -6, -9), (-9, -6, -3), (-6, -6, -6), (-6, -9, -6)


@dataclass(frozen=True)
class Case:
    """yes, no, unclear: what makes a book, put into ``book``, that the statement is true of, false of, and neither."""

    statement: Answered
    mutant: Answered
    book: Callable[..., Book]
    yes: tuple[float, ...]
    no: tuple[float, ...]
    unclear: tuple[float, ...]


def updating(statement: SmallerIsStabler | RanksFall, unclear: tuple[float, ...]) -> Case:
    is_of_pairs = isinstance(statement, SmallerIsStabler)
    mutant = statement.with_larger() if is_of_pairs else replace(statement, is_negative=False)
    return Case(statement, mutant, by_update, SMALL_IS_FAST, LARGE_IS_FAST, unclear)


_RATE = LargerRate(names=RATES)
_HALF = LargerRate(names=("sub-ln-gamma", "pre-ln"), look="half")
_SHARE = MoreTrain(more=WARM[:1], fewer=WARM[1:])
_LOSS = LowerLoss(first=WARM[0], second=WARM[1])
_GRADIENT = LargerGradients(first=WARM[0], second=WARM[1])
CASES = {
    "rates": Case(_RATE, _RATE.with_reversed(), rates, (-4, -6), (-6, -4), (-5, -5)),
    "rates, half": Case(_HALF, _HALF.with_reversed(), curves, (-4, -7), (-7, -4), (-5, -5)),
    "shares": Case(_SHARE, _SHARE.with_swapped(), trained, (8, 0), (0, 8), (3, 2)),
    "losses": Case(_LOSS, _LOSS.with_swapped(), losses, (-0.1,), (0.1,), (0,)),
    "gradients": Case(_GRADIENT, _GRADIENT.with_swapped(), gradients, (1.5,), (1 / 1.5,), (1,)),
    "pairs": updating(SmallerIsStabler(looks=("trains",)), ALIKE),
    "pairs, half": updating(SmallerIsStabler(looks=("half",)), ALIKE),
    "ranks": updating(RanksFall(num_layers=LAYERS[0]), BENT),
    "ranks, half": updating(RanksFall(num_layers=MIDDLE, look="half"), BENT),
}


@pytest.mark.parametrize("name", often(CASES, 2, wide=1))
def test_a_statement_says_yes_no_or_open(name: str) -> None:
    """The mutant is red where the statement is green, and the reverse; both are open where it is open."""
    case = CASES[name]
    assert case.mutant.text != case.statement.text and case.mutant.of == case.statement.of
    for said, made in ((True, case.yes), (False, case.no), (None, case.unclear)):
        book = case.book(*made)
        assert case.statement.evidence(book).verdict is outcome(said), said
        assert case.mutant.evidence(book).verdict is outcome(None if said is None else not said), said


def test_one_pair_the_other_way_round_refutes_a_row_of_them() -> None:
    """And one that is open leaves it open."""
    names = tuple(gpt(scheme, MIDDLE) for scheme in ("su-adam", "deepnorm", "post-ln"))
    for octaves, said in (((-3, -5, -7), True), ((-3, -7, -5), False), ((-5, -5, -7), None)):
        book = of_rates(dict(zip(("su-adam", "deepnorm", "post-ln"), octaves, strict=True)), names)
        assert LargerRate(names=names).evidence(book).verdict is outcome(said)


# ---------------------------------------------------------------- numbers


def test_gradients_are_of_the_top_layer_and_of_the_steps_asked_for() -> None:
    """Those of other layers and sides, and at the start, are equal in the made runs, and would hide the ratio."""
    book = gradients(8, scatter=0)
    assert math.exp(_GRADIENT.ratio(book).mean) == pytest.approx(8, rel=1e-12)
    at_start = replace(_GRADIENT, first_look=0, last_look=0)
    assert at_start.ratio(book).mean == 0 and at_start.evidence(book).verdict is Verdict.UNDECIDED


def test_half_is_between_the_guess_and_the_best_mean() -> None:
    """Of the middle depth alone, which has a curve."""
    book = curves(-4, -7)
    edges, seeds, half = half_learnt(("sub-ln-gamma",), book)
    arms = [experiment("stable-rates").arm(name) for name in CURVES]
    means = [sum(book[arm.at(seed)].held_out or 0 for seed in SEEDS) / len(SEEDS) for arm in arms]
    assert half == pytest.approx((made_runs.GUESS + min(means)) / 2, rel=1e-12)
    assert seeds == tuple(SEEDS) and [edge.rate for edge in edges[0]] == [2.0 ** (-4 + seed % 2) for seed in SEEDS]
    with pytest.raises(LookupError, match=f"of {MIDDLE} layers, not of {LAYERS[0]}"):
        forecast.cases(LAYERS[0], "half", by_update(*ALIKE))


# ---------------------------------------------------------------- an end of the grid


def test_an_edge_below_the_grid_has_a_sign_and_one_end() -> None:
    """Post-LN trains nowhere: its edge is below the grid, the ratio has no upper end, and a sign all the same."""
    names = (bert("pre-ln"), bert("post-ln"))
    edges = {"pre-ln": 2.0**-6.9, "post-ln": NEVER}
    book = filled("stable-rates", names, lambda trial: edges[trial.scheme])
    statement = LargerRate(names=names)
    (found,) = statement.comparisons(book).values()
    low = -7 - math.log2(GRID[0])
    assert (found.octaves.low, found.octaves.high, found.octaves.difference) == (low, None, None)
    assert found.num_censored == len(SEEDS)
    assert statement.evidence(book).verdict is Verdict.CONFIRMED
    assert statement.with_reversed().evidence(book).verdict is Verdict.REFUTED
    neither = filled("stable-rates", names, lambda trial: NEVER)
    assert statement.evidence(neither).verdict is Verdict.UNDECIDED


# ---------------------------------------------------------------- what is counted


def test_pilot_seeds_are_never_counted() -> None:
    """The pilot's runs say the reverse, and are not asked."""
    against = filled("stable-rates", RATES, lambda trial: 0.5 if trial.scheme == "pre-ln" else NEVER, PILOT_SEEDS)
    book = rates(-4, -6)
    assert _RATE.evidence(joined(book, against)) == _RATE.evidence(book)
    with pytest.raises(LookupError):
        _RATE.evidence(against)


def test_only_seeds_that_every_arm_has_are_compared() -> None:
    """A seed that one of the arms lacks is left out of all of them: they are compared seed by seed."""
    book = rates(-4, -6)
    arms = [experiment("stable-rates").arm(name) for name in RATES]
    edge = arms[1].at(2, arms[1].edge(book, 2).rate)
    less = Book({trial: book[trial] for trial in book.trials if trial != edge})
    assert seeds_of(arms, book) == tuple(SEEDS) and seeds_of(arms, less) == (0, 1, 3, 4)
    assert "(4 seeds:" in str(_RATE.evidence(less).numbers)


def said(statement: Answered, book: Book) -> Evidence:
    return perform(replace(BY_TRAINING, run=lambda one: one.evidence(book)), statement)


@pytest.mark.parametrize("name", CASES)
def test_runs_that_there_are_not_are_a_lookup_error_and_leave_it_open(name: str) -> None:
    found = CASES[name].statement
    with pytest.raises(LookupError, match="the record has no seed of"):
        found.evidence(Book({}))
    evidence = said(found, Book({}))
    assert evidence.verdict is Verdict.UNDECIDED and evidence.detail.startswith("gave up: LookupError: ")


def test_a_loss_that_is_not_finite_is_not_left_out() -> None:
    """The mean of the others would be of the networks that did not diverge."""
    book = losses(-0.1)
    arm = experiment("warmup").arm(WARM[1])
    book[arm.at(0)] = book[arm.at(0)].model_copy(update={"held_out": None})
    assert "1 of 5 values diverged" in said(_LOSS, book).detail
