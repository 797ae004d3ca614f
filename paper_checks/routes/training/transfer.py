"""What the record of transfer says: what a remedy of ``advise`` gains at the tuned rate, and what transfer then costs.

``paper_checks.experiments.transfer`` plans it, and says how each number is found; ``elsewhere`` has less of the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from depthlaw.paper_checks.experiments import elsewhere, experiment
from depthlaw.paper_checks.experiments.base import Book
from depthlaw.paper_checks.experiments.best_rates import MARGIN, best_rate, slope
from depthlaw.paper_checks.experiments.scale import SCALES, SMALL
from depthlaw.paper_checks.experiments.transfer import DEEPER, NONE, NOTHING, TUNED, Case, cases
from depthlaw.paper_checks.experiments.transfer_laws import laws_of, predicted
from depthlaw.sims.stats import LEVEL, Estimate, estimate

if TYPE_CHECKING:
    from depthlaw.sims.training.train import TrainResult

LEAST_SEEDS = 3
"""That an interval wants here: each seed's rates are chosen by the others."""
ADVISED = "learning-rates"
"""The first answer of ``advise`` for each of these models."""
Losses = Mapping[float, Sequence[float]]
"""By rate, of each seed."""


@dataclass(frozen=True)
class Transfer:
    """What was trained of a model: held-out losses by depth, remedy and rate, of each seed that is whole. tuning: by
    rate and seed, those of the model that is tuned, of seeds too that lack a larger depth. guess: the loss without
    looking at the input; nan where no seed is whole."""

    case: Case
    seeds: tuple[int, ...]
    losses: Mapping[int, Mapping[str, Losses]]
    tuning: Mapping[float, Mapping[int, float]]
    guess: float

    @classmethod
    def of(cls, case: Case, book: Book, scale: str = SMALL.name) -> Transfer:
        plan = experiment(case.experiment, scale)
        arms = {
            n: {way: {rate: plan.arm(case.arm_name(n, way, rate)) for rate in case.rates} for way in case.ways(n)}
            for n in case.layers
        }
        every = [arm for of_layers in arms.values() for by_rate in of_layers.values() for arm in by_rate.values()]
        there = sorted({trial.seed for trial in book.trials})
        seeds = tuple(seed for seed in there if all(arm.at(seed) in book for arm in every))
        losses = {
            n: {
                way: {rate: [_loss(book[arm.at(seed)]) for seed in seeds] for rate, arm in by_rate.items()}
                for way, by_rate in of_layers.items()
            }
            for n, of_layers in arms.items()
        }
        few = arms[case.layers[0]][NOTHING]
        tuners = [seed for seed in there if all(arm.at(seed) in book for arm in few.values())]
        tuning = {rate: {seed: _loss(book[arm.at(seed)]) for seed in tuners} for rate, arm in few.items()}
        guess = book[every[0].at(seeds[0])].guess if seeds else math.nan
        return cls(case, seeds, losses, tuning, guess)

    @property
    def deepest(self) -> int:
        return self.case.layers[-1]

    @cached_property
    def tuned(self) -> list[float]:
        """The rate that is tuned at few layers, for each seed by all others that were tuned."""

        def mean(rate: float, seed: int) -> float:
            return fmean(loss for other, loss in self.tuning[rate].items() if other != seed)

        return [min(self.tuning, key=lambda rate: mean(rate, seed)) for seed in self.seeds]

    def _best(self, losses: Losses, seed: int) -> float:
        """The rate of the least mean loss of the other seeds."""
        return min(losses, key=lambda rate: _mean_without(losses[rate], seed))

    def at_tuned(self, remedy: str, num_layers: int) -> list[float]:
        """The loss of each seed."""
        by_rate = self.losses[num_layers][remedy]
        return [by_rate[rate][seed] for seed, rate in enumerate(self.tuned)]

    def at_best(self, remedy: str, num_layers: int) -> list[float]:
        """The loss of each seed at the rate that is best with that remedy."""
        by_rate = self.losses[num_layers][remedy]
        return [by_rate[self._best(by_rate, seed)][seed] for seed in range(len(self.seeds))]

    def at_best_of_all(self, num_layers: int) -> list[float]:
        """The loss of each seed with the best remedy at its best rate."""
        of_depth_ = self.losses[num_layers]
        every = {(remedy, rate): values for remedy, by_rate in of_depth_.items() for rate, values in by_rate.items()}
        best = [min(every, key=lambda rate: _mean_without(every[rate], seed)) for seed in range(len(self.seeds))]
        return [every[rate][seed] for seed, rate in enumerate(best)]

    def gain(self, remedy: str, num_layers: int) -> Estimate:
        """What a remedy takes off the loss at the tuned rate."""
        return estimate(self._gains(remedy, num_layers))

    def growth(self, remedy: str) -> Estimate:
        """What it takes off at the largest depth less what it takes off at the depth before, paired by seed."""
        before, deepest = self.case.layers[-2:]
        return _difference(self._gains(remedy, deepest), self._gains(remedy, before))

    def _gains(self, remedy: str, num_layers: int) -> list[float]:
        """Of each seed."""
        both = zip(self.at_tuned(NOTHING, num_layers), self.at_tuned(remedy, num_layers), strict=True)
        return [as_it_is - with_it for as_it_is, with_it in both]

    def gain_over_tuning(self, remedy: str, num_layers: int) -> Estimate:
        """The same beside the loss of the model as it is at its own best rate there. Not a question of the plan."""
        return _difference(self.at_best(NOTHING, num_layers), self.at_tuned(remedy, num_layers))

    def gain_over_few_layers(self, remedy: str, num_layers: int) -> Estimate:
        """The same beside the loss of the model that was tuned. Not a question of the plan."""
        return _difference(self.at_tuned(NOTHING, self.case.layers[0]), self.at_tuned(remedy, num_layers))

    def verdict(self, remedy: str, num_layers: int) -> int:
        """Whether a remedy was shown to gain or to cost, as ``shown`` has it."""
        return shown(self.gain(remedy, num_layers))

    def beaten_by(self, remedy: str, num_layers: int) -> list[str]:
        """The remedies whose loss at the tuned rate is smaller by at least NONE nats, by intervals that hold for all
        pairs together (Bonferroni). Not a question of the plan: ``advise`` orders by it."""
        others = [other for other in self.losses[num_layers] if other not in (remedy, NOTHING)]
        level = 1 - (1 - LEVEL) / math.comb(len(others) + 1, 2)
        losses = self.at_tuned(remedy, num_layers)
        leads = {other: _difference(losses, self.at_tuned(other, num_layers), level) for other in others}
        return [other for other, lead in leads.items() if lead.mean >= NONE and lead.low is not None and lead.low > 0]

    def transfer_cost(self, remedy: str, num_layers: int) -> Estimate:
        """What the tuned rate costs, beside the remedy's best."""
        return _difference(self.at_tuned(remedy, num_layers), self.at_best(remedy, num_layers))

    def remedy_cost(self, remedy: str, num_layers: int) -> Estimate:
        """What a remedy costs at its best rate, beside the best of all."""
        return _difference(self.at_best(remedy, num_layers), self.at_best_of_all(num_layers))

    @cached_property
    def slopes(self) -> list[float | None]:
        """Of each seed, of log2(best rate) on log2(N) with nothing changed; None where one is beyond the grid."""
        curves = ({n: self._curve(n, seed) for n in self.losses} for seed in range(len(self.seeds)))
        return [slope({n: best_rate(curve) for n, curve in of_seed.items()}) for of_seed in curves]

    @cached_property
    def slopes_through_five(self) -> list[float | None]:
        """The same, where a best rate is the least point of a quartic through five rates, in place of the vertex of a
        parabola through three. Not a question of the plan."""
        curves = ({n: self._curve(n, seed) for n in self.losses} for seed in range(len(self.seeds)))
        return [slope({n: _least_of_quartic(curve) for n, curve in of_seed.items()}) for of_seed in curves]

    @property
    def is_known(self) -> bool:
        """Whether every seed has a slope."""
        return None not in self.slopes

    @property
    def learns(self) -> bool:
        """Whether the deepest model, as it is and at its best rate, is better than guessing: of one that is not, a best
        rate is chance."""
        return fmean(self.at_best(NOTHING, self.deepest)) < self.guess

    def refuted(self, slopes: Sequence[float | None] | None = None) -> list[str]:
        """The laws whose slope the interval of the slope over the seeds leaves out. slopes: of each seed, as the plan
        has them if nothing is said. ValueError where a seed has no slope."""
        known = [slope for slope in slopes or self.slopes if slope is not None]
        if len(known) < len(self.seeds):
            raise ValueError(f"{self.case.name}: a seed has no slope")
        away = {law: _difference(known, self.predicted(law)) for law in laws_of(self.case.optimizer)}
        return [law for law, of in away.items() if of.low is not None and of.high is not None and of.low * of.high > 0]

    def beyond(self, num_layers: int) -> tuple[int, int]:
        """How many seeds have their least loss with nothing changed at the lowest rate, and how many at the highest:
        their best rate is beyond the grid."""
        curves = [self._curve(num_layers, seed) for seed in range(len(self.seeds))]
        ends = [min(curve, key=curve.__getitem__) for curve in curves]
        rates = self.losses[num_layers][NOTHING]
        return ends.count(min(rates)), ends.count(max(rates))

    def _curve(self, num_layers: int, seed: int) -> dict[float, float]:
        """The loss of a seed by rate, with nothing changed."""
        return {rate: values[seed] for rate, values in self.losses[num_layers][NOTHING].items()}

    def predicted(self, law: str) -> list[float]:
        """The slope by a law of ``transfer_laws``, of each seed at its tuned rate."""
        return [predicted(law, self.case, rate) for rate in self.tuned]


def _least_of_quartic(losses: Mapping[float, float]) -> float | None:
    """log2 of the rate at which a quartic through the logarithms of five losses, with the least in their midst, is
    least between the neighbours of that. None beyond the grid."""
    if best_rate(losses) is None:
        return None
    rates = sorted(losses)
    place = min(range(len(rates)), key=lambda index: losses[rates[index]])
    first = min(max(place - 2, 0), len(rates) - 5)
    x = np.log2(rates[first : first + 5])
    quartic = np.polynomial.Polynomial.fit(x, np.log([losses[rate] for rate in rates[first : first + 5]]), 4)
    near = np.linspace(math.log2(rates[place - 1]), math.log2(rates[place + 1]), 2001)
    return float(near[quartic(near).argmin()])


def transfers(book: Book, scale: str = SMALL.name) -> list[Transfer]:
    """Those of enough seeds."""
    return _of_enough(cases(SCALES[scale]), book, scale)


def at_every_depth(book: Book) -> list[Transfer]:
    """What was trained halfway, too, at all its depths, of the seeds that have all: at the small scale."""
    halfway = (case for case in cases(SMALL) if case.is_halfway)
    return _of_enough([replace(case, layers=(TUNED, *DEEPER)) for case in halfway], book, SMALL.name)


def moved_elsewhere(book: Book, scale: str = SMALL.name) -> list[Transfer]:
    """The models of elsewhere that have enough seeds."""
    return _of_enough(elsewhere.CASES, book, scale)


def _of_enough(cases: Sequence[Case], book: Book, scale: str) -> list[Transfer]:
    several = (Transfer.of(case, book, scale) for case in cases)
    return [of_case for of_case in several if len(of_case.seeds) >= LEAST_SEEDS]


def distances(several: Sequence[Transfer]) -> dict[str, list[float]]:
    """By law, of each seed that all of these models have and that has a slope in one of them, the root mean square
    distance of its slopes from the law's, over the models in which it has one. The models are of one optimizer."""
    seeds = sorted(set.intersection(*(set(case.seeds) for case in several))) if several else []
    laws = laws_of(several[0].case.optimizer) if several else ()
    by_law: dict[str, list[float]] = {law: [] for law in laws}
    for seed in seeds:
        both = [(case, case.seeds.index(seed)) for case in several]
        known = [(case, place, slope) for case, place in both if (slope := case.slopes[place]) is not None]
        for law in laws if known else ():
            away = [slope - case.predicted(law)[place] for case, place, slope in known]
            by_law[law].append(math.sqrt(fmean(x * x for x in away)))
    return by_law


def does(one: Transfer) -> str:
    """What the best rate, of which every seed has a slope, does over depth: it stays put where the interval lies within
    ``best_rates``'s margin of 0, and falls or rises where that lies on one side of 0."""
    slope = estimate([slope for slope in one.slopes if slope is not None])
    low, high = (-math.inf if slope.low is None else slope.low), (math.inf if slope.high is None else slope.high)
    if low > -MARGIN and high < MARGIN:
        return "stays put"
    return "rises" if low > 0 else "falls" if high < 0 else "is not known to stay put"


def is_between(one: Transfer, law: str, other: str) -> bool:
    """Whether the interval of the slope, of which every seed has one, lies between what two laws say."""
    slope = estimate([slope for slope in one.slopes if slope is not None])
    low, high = sorted(fmean(one.predicted(name)) for name in (law, other))
    return slope.low is not None and slope.high is not None and low < slope.low < slope.high < high


def shown(gain: Estimate) -> int:
    """Whether a gain (1) or a cost (-1) of at least NONE nats was shown; 0 where neither was."""
    assert gain.low is not None and gain.high is not None
    return 0 if abs(gain.mean) < NONE else (gain.low > 0) - (gain.high < 0)


def pays(transfer: Transfer, num_layers: int) -> bool | None:
    """Whether the first answer of ``advise`` gains at a depth; None where the seeds do not tell."""
    return is_above_0(transfer.gain(ADVISED, num_layers))


def is_above_0(gain: Estimate) -> bool | None:
    """False where it is below; None where the seeds do not tell."""
    assert gain.low is not None and gain.high is not None
    return True if gain.low > 0 else False if gain.high < 0 else None


def longer(several: Sequence[Transfer]) -> list[tuple[Transfer, Transfer]]:
    """Those whose models were trained for longer, too, and those runs."""
    long = {(one.case.model, one.case.optimizer): one for one in several if one.case.times > 1}
    once = {(one.case.model, one.case.optimizer): one for one in several if one.case.is_main}
    return [(one, long[key]) for key, one in once.items() if key in long]


def lasts(short: Estimate, long: Estimate) -> bool | None:
    """Whether a gain that was shown is one in longer runs, too; None where none was shown."""
    assert short.low is not None and long.low is not None
    return long.low > 0 if short.low > 0 else None


def is_cost(cost: Estimate) -> bool | None:
    """Whether it is above what counts as none; None where the seeds do not tell."""
    assert cost.low is not None and cost.high is not None
    return True if cost.low > NONE else False if cost.high < NONE else None


def _loss(result: TrainResult) -> float:
    """That of guessing where the run diverged."""
    return result.guess if result.held_out is None or result.outcome == "diverged" else result.held_out


def _mean_without(values: Sequence[float], left_out: int) -> float:
    others = [value for index, value in enumerate(values) if index != left_out]
    return fmean(others) if others else math.inf


def _difference(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Estimate:
    return estimate([loss - other for loss, other in zip(first, second, strict=True)], level)
