"""What the record of after-start says: how the move of a real step grows over depth, step by step, and by which law.

``paper_checks.experiments.after_start`` plans it, and says how each number is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, linear_regression, stdev
from typing import TYPE_CHECKING, NamedTuple

from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.after_start import (
    AGREED,
    CASES,
    COLLAPSE,
    FLAT,
    INDEPENDENT,
    LATE,
    LAYERS,
    MUON,
    NEAR,
    SCHEDULED,
    Case,
)
from depthlaw.paper_checks.experiments.after_start_laws import laws_of, slope_of
from depthlaw.paper_checks.experiments.base import Book
from depthlaw.sims.stats import Estimate, estimate
from depthlaw.theory.kernel.after_start import LAWS

if TYPE_CHECKING:
    from depthlaw.sims.training.train import Moves, TrainResult

NAME = "after-start"
UNITS = ("steps", "rate x steps / init std", "rate x steps x U at step 0")


@dataclass(frozen=True)
class Course:
    """Of a case, by seed: its moves by depth and step.

    moves: by depth, of each seed, by step. A run that diverged has none from then on. shares: of the case's rate, by
    step; empty where all are 1.
    """

    case: Case
    seeds: tuple[int, ...]
    moves: Mapping[int, Sequence[Mapping[int, Moves]]]
    shares: Sequence[float] = ()

    @classmethod
    def of(cls, case: Case, book: Book) -> Course:
        plan = experiment(NAME)
        arms = {n: plan.arm(case.arm_name(n)) for n in LAYERS}
        there = sorted({trial.seed for trial in book.trials})
        seeds = tuple(seed for seed in there if all(arm.at(seed) in book for arm in arms.values()))
        moves = {n: [_moves_of(book[arm.at(seed)]) for seed in seeds] for n, arm in arms.items()}
        shares: list[float] = []
        if case.way == SCHEDULED:
            config = arms[LAYERS[0]].trial.lower()
            shares = [config.rate_at(step) for step in range(config.num_steps)]
        return cls(case, seeds, moves, shares)

    @property
    def steps(self) -> list[int]:
        """Of which every depth and seed has a look with moves."""
        return sorted(set.intersection(*(set(moves) for several in self.moves.values() for moves in several)))

    def updates(self, num_layers: int, step: int) -> list[float]:
        """U of each seed."""
        return [_update(moves[step]) for moves in self.moves[num_layers]]

    def slopes(self, step: int, what: str = "update", *, in_full: bool = False) -> list[float]:
        """Of log2 U on log2 N, of each seed; what: or of another of the moves of logits. in_full: not to first
        order."""
        logs = [math.log2(n) for n in LAYERS]
        by_depth = [
            [_number((moves[step].in_full if in_full else moves[step].logits)[what]) for moves in self.moves[n]]
            for n in LAYERS
        ]
        rows = zip(*by_depth, strict=True)
        return [linear_regression(logs, [math.log2(u) for u in row]).slope for row in rows]

    @property
    def late(self) -> list[float]:
        """The mean slope of each seed over the late looks."""
        steps = self.steps
        chosen = steps[-2:] if self.case.optimizer == MUON else [step for step in steps if step >= LATE]
        return [fmean(values) for values in zip(*(self.slopes(step) for step in chosen), strict=True)]

    @property
    def grows(self) -> bool:
        """Whether the interval of the slope at step 0 lies above FLAT."""
        slope = estimate(self.slopes(0))
        return slope.low is not None and slope.low > FLAT

    @property
    def half_lives(self) -> list[float | None]:
        """Of each seed, the steps until the slope is half of what it was at step 0; None where it never is."""
        by_step = {step: self.slopes(step) for step in self.steps}
        return [
            crossing({step: values[seed] / first for step, values in by_step.items()}, 0.5) if first > 0 else None
            for seed, first in enumerate(by_step[0])
        ]

    @property
    def not_flat(self) -> list[int]:
        """The looks at which the interval of the slope lies outside of FLAT."""
        by_step = {step: estimate(self.slopes(step)) for step in self.steps}
        return [
            step
            for step, slope in by_step.items()
            if slope.low is not None and slope.high is not None and (slope.low > FLAT or slope.high < -FLAT)
        ]

    def life(self, num_layers: int, seed: int) -> float | None:
        """The steps until U is half of what it was at step 0, of the seed at this place."""
        by_step = self.moves[num_layers][seed]
        first = _update(by_step[0])
        return crossing({step: math.log2(_update(moves) / first) for step, moves in by_step.items()}, -1.0)

    def lifetimes(self, num_layers: int, seed: int) -> tuple[float, float, float] | None:
        """The life in each of UNITS."""
        life = self.life(num_layers, seed)
        return None if life is None else self.in_units(life, num_layers, seed)

    def in_units(self, steps: float, num_layers: int, seed: int) -> tuple[float, float, float]:
        """What so many steps are in each of UNITS. Where the rate changes, rate x steps is the sum of their rates."""
        first, whole = self.moves[num_layers][seed][0], math.floor(steps)
        std = first.weights["fc2"]
        assert std is not None
        spent = sum(self.shares[:whole]) + (steps - whole) * self.shares[whole] if self.shares else steps
        rates = self.case.rate * spent
        return steps, rates / std, rates * _update(first)

    @property
    def is_parted(self) -> bool:
        """Whether every look has the parts of the step."""
        return all(moves.loss for several in self.moves.values() for by_step in several for moves in by_step.values())

    @property
    def roles_in_full(self) -> list[str]:
        """The roles, and "update", of which every look has the step in full."""
        of_looks = [
            list(moves.in_full) for several in self.moves.values() for by_step in several for moves in by_step.values()
        ]
        return [role for role in of_looks[0] if all(role in there for there in of_looks)] if of_looks else []

    def over_first_order(self, step: int, role: str) -> list[float]:
        """At the largest depth, of each seed: what the step of the role changes in full, over that to first order."""
        looks = [moves[step] for moves in self.moves[LAYERS[-1]]]
        return [_number(look.in_full[role]) / _number(look.logits[role]) for look in looks]

    def parts(self, step: int) -> list[Parts]:
        """Of each seed."""
        return [_parts([moves[seed][step] for moves in self.moves.values()]) for seed in range(len(self.seeds))]

    @property
    def late_parts(self) -> list[Parts]:
        """Of each seed, means over the looks from LATE on."""
        by_step = [self.parts(step) for step in self.steps if step >= LATE]
        return [Parts(*map(fmean, zip(*of_seed, strict=True))) for of_seed in zip(*by_step, strict=True)]


class Parts(NamedTuple):
    """Of the steps at one look, over the depths.

    unshared, along: shares of U squared: what another batch would not have brought, and along the gradient of the own
    batch. other: of what the steps take off the loss of their own batches, the part that they take off another one's.
    agreement: that, over what it would be if every entry had the sign for it; independent: over what it would be if the
    entries' signs were independent.
    """

    unshared: float
    along: float
    other: float
    agreement: float
    independent: float


def _parts(of_depths: Sequence[Moves]) -> Parts:
    shares = [
        fmean((_number(moves.logits[part]) / _update(moves)) ** 2 for moves in of_depths)
        for part in ("unshared", "along")
    ]
    sums = [sum(_number(moves.loss[name]) for moves in of_depths) for name in ("own", "most", "independent")]
    other = sum(_number(moves.loss["other"]) for moves in of_depths)
    return Parts(*shares, *(other / whole for whole in sums))


def _moves_of(result: TrainResult) -> dict[int, Moves]:
    return {look.step: look.moves for look in result.looks if look.moves is not None}


def _update(moves: Moves) -> float:
    return _number(moves.logits["update"])


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def crossing(by_step: Mapping[int, float], level: float) -> float | None:
    """The first step at which the values come down to a level, in a straight line over log2(1 + step) between looks.

    >>> from depthlaw.paper_checks.routes.training.after_start import crossing
    >>> crossing({0: 1.0, 1: 0.75, 3: 0.25}, 0.5) == 2**1.5 - 1, crossing({0: 1.0, 1: 0.9}, 0.5)
    (True, None)
    """
    for (step, value), (next_step, next_value) in pairwise(sorted(by_step.items())):
        if value > level >= next_value:
            first, last = math.log2(1 + step), math.log2(1 + next_step)
            return 2 ** (first + (last - first) * (value - level) / (value - next_value)) - 1
    return None


def courses(book: Book, cases: Sequence[Case] = CASES) -> list[Course]:
    """Those with a seed."""
    return [course for case in cases if (course := Course.of(case, book)).seeds]


# ---------------------------------------------------------------- in which unit


@dataclass(frozen=True)
class Lives:
    """scatter, middles: by unit, of each seed, the standard deviation and the mean of log2(life) over its networks.
    num, num_left_out: networks of all seeds with a life, and without."""

    scatter: Mapping[str, Sequence[float]]
    middles: Mapping[str, Sequence[float]]
    num: int
    num_left_out: int

    def typical(self, unit: str) -> float:
        return 2 ** fmean(self.middles[unit])

    @property
    def best(self) -> str:
        return min(self.scatter, key=lambda unit: fmean(self.scatter[unit]))

    def has_the_law(self) -> bool:
        """Whether the interval of the unit with the least scatter lies below those of both others."""
        ends = {unit: estimate(values) for unit, values in self.scatter.items()}
        top = ends[self.best].high
        return top is not None and all(
            scatter.low is not None and scatter.low > top for unit, scatter in ends.items() if unit != self.best
        )

    def fall_together(self) -> bool:
        top = estimate(self.scatter[self.best]).high
        return top is not None and top < COLLAPSE


def lives(several: Sequence[Course]) -> Lives | None:
    """Of the seeds that all of them have. None where there are fewer than two seeds."""
    seeds = sorted(set.intersection(*(set(course.seeds) for course in several))) if several else []
    by_seed: list[list[tuple[float, ...]]] = []
    num_left_out = 0
    for seed in seeds:
        times = [course.lifetimes(n, course.seeds.index(seed)) for course in several for n in LAYERS]
        by_seed.append([tuple(map(math.log2, of_units)) for of_units in times if of_units is not None])
        num_left_out += times.count(None)
    if len(by_seed) < 2 or min(map(len, by_seed)) < 2:
        return None
    columns = {unit: [[row[at] for row in rows] for rows in by_seed] for at, unit in enumerate(UNITS)}
    return Lives(
        {unit: [stdev(logs) for logs in of_seeds] for unit, of_seeds in columns.items()},
        {unit: [fmean(logs) for logs in of_seeds] for unit, of_seeds in columns.items()},
        sum(map(len, by_seed)),
        num_left_out,
    )


def holds_elsewhere(unit: str, found_on: Lives, there: Lives) -> bool | None:
    """Whether lives there are as those that the unit was found on, by the intervals of the plan; None where these do
    not tell."""
    middles = zip(there.middles[unit], found_on.middles[unit], strict=True)
    away, scatter = estimate([new - old for new, old in middles]), estimate(there.scatter[unit])
    if away.low is None or away.high is None or scatter.low is None or scatter.high is None:
        return None
    if away.low > -COLLAPSE and away.high < COLLAPSE and scatter.high < COLLAPSE:
        return True
    return False if away.low > COLLAPSE or away.high < -COLLAPSE or scatter.low > COLLAPSE else None


# ---------------------------------------------------------------- signal or noise


def contradicted(late: Sequence[Parts]) -> list[str]:
    """The laws of which the steps of all seeds show that what they take them for is not so."""
    over, agreement = (estimate(column) for column in zip(*((p.independent, p.agreement) for p in late), strict=True))
    laws = {
        "noise": over.low is not None and over.low > INDEPENDENT,
        "first": agreement.high is not None and agreement.high < AGREED,
    }
    return [law for law, is_so in laws.items() if is_so]


# ---------------------------------------------------------------- by which law


def holds(law: str, course: Course) -> bool:
    """Whether the interval of the late slope, widened by NEAR, has the slope of the law."""
    slope, wanted = estimate(course.late), slope_of(law, course.case)
    if slope.low is None or slope.high is None:
        return False
    return slope.low - NEAR <= wanted <= slope.high + NEAR


def distances(several: Sequence[Course]) -> dict[str, list[float]]:
    """By law, of each seed that all courses have, the root mean square distance of late slopes over the courses."""
    seeds = sorted(set.intersection(*(set(course.seeds) for course in several))) if several else []

    def of(law: str, seed: int) -> float:
        away = [course.late[course.seeds.index(seed)] - slope_of(law, course.case) for course in several]
        return math.sqrt(fmean(distance * distance for distance in away))

    laws = laws_of(several[0].case.optimizer) if several else LAWS
    return {law: [of(law, seed) for seed in seeds] for law in laws}


def nearest(by_law: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """The law with the least mean distance, and the laws that it is better than, by intervals paired by seed."""
    best = min(by_law, key=lambda law: fmean(by_law[law]))
    worse = []
    for law, values in by_law.items():
        if law != best:
            lead = estimate([other - of_best for other, of_best in zip(values, by_law[best], strict=True)])
            worse += [law] if lead.low is not None and lead.low > 0 else []
    return best, worse


def over_seeds(values: Sequence[float | None], how: Callable[[float], float] = math.log2) -> Estimate | None:
    """Of the logarithms, where every seed has one."""
    known = [how(value) for value in values if value is not None]
    return estimate(known) if known and len(known) == len(values) else None
