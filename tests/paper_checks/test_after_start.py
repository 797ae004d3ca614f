"""What the record of after-start says: of runs that are made up, the numbers that were put in; and its kept laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import pytest

from depthlaw.advice.remedy import LATER, LATER_FAILED, NOT_TOLD
from depthlaw.network.trials import Trial
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.after_start import (
    ADAMW,
    AS_PEOPLE_DO,
    FAST,
    LATE,
    LAYERS,
    MOMENTUM,
    MORE,
    MUON,
    OTHERS,
    PLANNED,
    WARMUP,
    Case,
    looks,
)
from depthlaw.paper_checks.experiments.after_start_laws import slope_of, updates
from depthlaw.paper_checks.experiments.base import Book
from depthlaw.paper_checks.pages.training import runs
from depthlaw.paper_checks.pages.training.after_start import by_role, in_readme
from depthlaw.paper_checks.routes.training.after_start import (
    UNITS,
    Course,
    Parts,
    contradicted,
    courses,
    distances,
    holds,
    holds_elsewhere,
    lives,
    nearest,
)
from tests import made_runs

SEEDS = 4
FOUND_ON = [case for case in PLANNED if case.optimizer == ADAMW]
SEEDS_APART = (0.0, 2.0, 4.0, 6.0)


def made(moved: Callable[[Trial, int], float]) -> Book:
    """Every run of the plan, whose step moves so much; seeds differ by a percent."""
    book = made_runs.fill(experiment("after-start").arms, range(SEEDS))
    for trial in book.trials:
        result = book[trial]
        own = [
            look.model_copy(
                update={"moves": made_runs.moves(moved(trial, look.step) * (1 + trial.seed / 100), look.step)}
            )
            for look in result.looks
        ]
        book[trial] = result.model_copy(update={"looks": own})
    return book


def test_the_slope_and_its_half_life() -> None:
    """N^(1/(1 + t)): a slope of 1, which is half of that at step 1."""
    book = made(lambda trial, step: trial.num_layers ** (1 / (1 + step)))
    course = Course.of(Case("pre-ln"), book)
    assert course.seeds == tuple(range(SEEDS))
    assert course.steps == list(looks(ADAMW))
    assert course.slopes(0) == pytest.approx([1.0] * SEEDS) and course.grows
    assert course.half_lives == pytest.approx([1.0] * SEEDS)
    assert course.late == pytest.approx([fmean(1 / (1 + step) for step in looks(ADAMW) if step >= LATE)] * SEEDS)
    muon = Course.of(Case("pre-ln", MUON), book)
    assert muon.late == pytest.approx([fmean(1 / (1 + step) for step in looks(MUON)[-2:])] * SEEDS)
    flat = Course.of(Case("pre-ln"), made(lambda trial, step: trial.num_layers ** (0.5 * (step == 4))))
    assert not flat.grows
    assert flat.half_lives == [None] * SEEDS


@pytest.mark.parametrize("unit", range(3))
def test_the_unit_in_which_curves_fall_together_is_found(unit: int) -> None:
    """Of moves that are halved at one time in that unit."""

    def moved(trial: Trial, step: int) -> float:
        first = float(trial.num_layers) * (3.0 if trial.scheme == "gpt2" else 1.0)
        times = step / 8, step * trial.learning_rate * 200, step * trial.learning_rate * first * 4
        return first * 2 ** -math.log2(1 + times[unit])

    # All of them have one init, so that of steps and of rate x steps the rates tell.
    found = lives(courses(made(moved), FOUND_ON))
    assert found is not None
    assert found.best == UNITS[unit]
    assert found.has_the_law()


def test_where_the_rate_changes_time_is_the_sum_of_the_rates() -> None:
    """Warm-up from 0: half of the peak's step after half of it, on average."""
    warm, constant = (Course.of(case, made(lambda *_: 1.0)) for case in (AS_PEOPLE_DO[0], Case("pre-ln")))
    assert constant.in_units(WARMUP, 4, 0)[1:] == pytest.approx(
        [WARMUP * per_step for per_step in constant.in_units(1, 4, 0)[1:]]
    )
    for now, then in zip(warm.in_units(WARMUP, 4, 0)[1:], constant.in_units((WARMUP + 1) / 2, 4, 0)[1:], strict=True):
        assert now == pytest.approx(then)
    assert warm.in_units(looks(ADAMW)[-1], 4, 0)[2] < constant.in_units(looks(ADAMW)[-1], 4, 0)[2]


@pytest.mark.parametrize(("longer", "wanted"), [(1.0, True), (2.0, False), (2**0.5, None)])
def test_the_unit_holds_elsewhere_where_lives_are_the_same_there(longer: float, wanted: bool | None) -> None:
    """Moves that are halved when rate x steps x U is 0.25, in the other set that many times later."""
    wanted_there = {case.scheme for case in OTHERS}

    def moved(trial: Trial, step: int) -> float:
        first = float(trial.num_layers)
        late = longer if trial.scheme in wanted_there and trial.schedule == "constant" else 1.0
        return first * 2 ** -(step * trial.learning_rate * first * 4 / late * (1 + trial.seed / 20))

    book = made(moved)
    found_on, there = (lives(courses(book, cases)) for cases in (FOUND_ON, OTHERS))
    assert found_on is not None and there is not None
    assert found_on.best == UNITS[2]
    assert holds_elsewhere(UNITS[2], found_on, there) is wanted


def test_readme_names_where_the_growth_lasts() -> None:
    """Under Muon gpt2's, which is never halved; all others are at step 1."""
    is_lasting = Case("gpt2", MUON)
    book = made(
        lambda trial, step: (
            trial.num_layers ** (1 / (1 + step * ((trial.scheme, trial.optimizer) != (is_lasting.scheme, MUON))))
            * 0.5**step
        )
    )
    said = in_readme(runs.Record.of("after-start", book))
    assert "; under muon+adamw the growth of gpt2 is not halved in every seed within 24 steps." in said


def test_of_a_role_the_step_in_full_is_beside_its_first_order() -> None:
    """Of moves that are in full half of it at 4 layers, and fall behind it by a quarter of the exponent; none of the
    runs that were not trained anew."""
    book = made(lambda trial, _: float(trial.num_layers))
    for trial in book.trials:
        looks_of = [
            look.model_copy(
                update={"moves": look.moves.model_copy(update={"in_full": {"update": 2.0 * trial.num_layers**0.75}})}
            )
            for look in book[trial].looks
            if look.moves is not None and trial.scheme == "gpt2"
        ]
        if looks_of:
            book[trial] = book[trial].model_copy(update={"looks": looks_of})
    having, lacking = (Course.of(Case(scheme), book) for scheme in ("gpt2", "pre-ln"))
    assert (having.roles_in_full, lacking.roles_in_full) == (["update"], [])
    assert having.slopes(0, in_full=True) == pytest.approx([0.75] * SEEDS)
    first, last = by_role([lacking, having])
    assert (first["step"], last["step"]) == (0, looks(ADAMW)[-1])
    assert first["heads"] == ["role", "gpt2: in full less to first order", "gpt2: in full over first order"]
    ((role, less, over),) = first["rows"]
    assert (first["bent"], first["networks"]) == ([("update", ["gpt2"])], ["gpt2"])
    assert role == "update" and less.startswith("-0.25 [")
    assert over.startswith(f"{2 * LAYERS[-1] ** -0.25 * fmean(1 / (1 + seed / 100) for seed in range(SEEDS)):.2f} [")


def test_the_parts_of_a_step_contradict_the_laws_that_they_do_not_fit() -> None:
    course = Course.of(Case("pre-ln"), made(lambda trial, _: float(trial.num_layers)))
    assert course.is_parted
    for several in (course.parts(0), course.late_parts):
        assert [*several] == [pytest.approx(Parts(1 / 4, 1 / 16, 1 / 4, 1 / 5, 4.0))] * SEEDS
    assert contradicted(course.late_parts) == ["noise", "first"]
    scattered = [
        parts._replace(independent=x, agreement=x / 8) for x, parts in zip(SEEDS_APART, course.late_parts, strict=True)
    ]
    assert contradicted(scattered) == []


def test_the_nearest_law_is_the_one_that_was_put_in() -> None:
    for law in ("both", "aligned"):
        exponents = {case: slope_of(law, case) for case in FAST if case.optimizer != MOMENTUM}
        book = made(
            lambda trial, _, e=exponents: (
                trial.num_layers ** (e.get(Case(trial.scheme, trial.optimizer), 0) + 0.01 * trial.seed)
            )
        )
        several = [Course.of(case, book) for case in exponents]
        best, worse = nearest(distances(several))
        assert best == law
        assert "first" in worse
        assert all(holds(law, course) for course in several)
        assert not all(holds("first", course) for course in several)


@pytest.mark.wide
def test_advise_shows_the_law_that_was_nearest_and_knows_where_it_failed() -> None:
    """By the record, of all networks that were measured at a constant rate."""
    every = courses(runs.records()["after-start"].book, FAST + OTHERS + MORE)
    of_adamw, of_muon = (
        [course for course in every if course.case.optimizer == optimizer] for optimizer in (ADAMW, MUON)
    )
    best, worse = nearest(distances(of_adamw))
    assert best == LATER[ADAMW] and "first" in worse
    assert {course.case.scheme for course in of_adamw if not holds(best, course)} == {*LATER_FAILED}
    best, worse = nearest(distances(of_muon))
    assert (best != "first" and "first" not in worse) == (MUON in NOT_TOLD)


@pytest.mark.wide
def test_kept_laws_are_those_that_are_derived_now() -> None:
    four, eight = (updates(Case("gpt2"), n) for n in LAYERS[:2])
    for law in four:
        bent = slope_of(law, Case("gpt2"))
        assert math.log2(eight[law] / four[law]) == pytest.approx(bent, abs=0.25)
    assert slope_of("first", Case("gpt2")) > 0.5 > abs(slope_of("aligned", Case("gpt2")))
