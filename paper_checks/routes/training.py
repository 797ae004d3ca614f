"""What the records of the experiments say: statements about arms, each decided by intervals over the seeds.

True, False, or None where the intervals leave it open. A seed draws the same batches in every arm, so arms are compared
seed by seed.

Two looks at "the largest stable learning rate". "trains": the largest rate of a search at which a run ends below what
can be had without its input, the stated rule of ``sims.training.train``. "half": the largest rate of a full grid at
which a run learns at least half of what the best arm learns (on the mean over seeds). A bigram passes both: neither
says that the branches are used. "half" is there of the arms with a curve alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

from paper_checks.claims.claim import Check, Evidence, Part, Route, Verdict
from paper_checks.claims.statements import Values
from paper_checks.experiments import experiment
from paper_checks.experiments.base import PILOT_SEEDS, Arm, Book
from paper_checks.experiments.stable_rates import CURVE, GRID, MIDDLE, gpt, on_curve
from paper_checks.routes.checks import all_of, awaits, outcome
from paper_checks.system.places import TRAINING_RECORDS
from sims.stats import LEVEL, Estimate, estimate
from sims.training.outcomes import (
    FIRST,
    SECOND,
    Comparison,
    Edge,
    EdgeComparison,
    Share,
    compare_edges,
    compare_means,
    differs,
    edge,
    share,
)

_SAID = {FIRST: True, SECOND: False}


@cache
def recorded(name: str) -> Book:
    """The project's record of an experiment."""
    return Book.read(TRAINING_RECORDS / f"{name}.jsonl")


def seeds_of(arms: Sequence[Arm], book: Book) -> tuple[int, ...]:
    """Seeds with which all of these arms are done, the pilot's not counted. LookupError where there are none."""
    there = {trial.seed for trial in book.trials} - set(PILOT_SEEDS)
    found = tuple(seed for seed in sorted(there) if all(arm.is_done(book, seed) for arm in arms))
    if not found:
        raise LookupError(f"the record has no seed of {', '.join(arm.name for arm in arms)}")
    return found


@cache
def arm(name: str, arm_name: str) -> Arm:
    return experiment(name).arm(arm_name)


# ---------------------------------------------------------------- largest rates


def edges(names: Sequence[str], book: Book, of: str = "stable-rates") -> tuple[list[list[Edge]], tuple[int, ...]]:
    """By arm, each seed's; and the seeds."""
    arms = [arm(of, name) for name in names]
    seeds = seeds_of(arms, book)
    return [[one.edge(book, seed) for seed in seeds] for one in arms], seeds


def half_learnt(
    schemes: Sequence[str], book: Book, part: float = 0.5
) -> tuple[list[list[Edge]], tuple[int, ...], float]:
    """The same of the second look, MIDDLE layers; and the loss that is half of the way, or another part of it."""
    from paper_checks.experiments.stable_rates import SCHEMES

    curves = {scheme: [arm("stable-rates", on_curve(scheme, rate)) for rate in CURVE] for scheme in SCHEMES}
    seeds = seeds_of([one for found in curves.values() for one in found], book)
    losses = {scheme: [[_loss(book, one, seed) for seed in seeds] for one in found] for scheme, found in curves.items()}
    best = min(sum(row) / len(row) for rows in losses.values() for row in rows)
    guess = book[curves[SCHEMES[0]][0].at(seeds[0])].guess
    if not best < guess:
        raise ValueError("half of what the best arm learns: no arm learns anything")
    half = guess - part * (guess - best)
    found = [
        [
            edge(CURVE, {rate: row[i] <= half for rate, row in zip(CURVE, losses[scheme], strict=True)})
            for i in range(len(seeds))
        ]
        for scheme in schemes
    ]
    return found, seeds, half


def _loss(book: Book, one: Arm, seed: int) -> float:
    found = book[one.at(seed)].held_out
    return math.inf if found is None else found


@dataclass(frozen=True, kw_only=True)
class LargerRate:
    """The largest stable rate of each is above that of the next. names: arms, or schemes where look is "half"."""

    names: tuple[str, ...]
    look: str = "trains"
    of: str = "stable-rates"

    @property
    def text(self) -> str:
        how = "largest rate at which it trains" if self.look == "trains" else "largest rate at which it learns half"
        return f"{how}: {' > '.join(self.names)}"

    def with_reversed(self) -> LargerRate:
        return replace(self, names=self.names[::-1])

    def comparisons(self, book: Book) -> dict[str, EdgeComparison]:
        if self.look == "half":
            (found, _, _), grid = half_learnt(self.names, book), CURVE
        else:
            (found, _), grid = edges(self.names, book), GRID
        return {
            f"{one} over {other}": compare_edges(a, b, grid)
            for (one, a), (other, b) in pairwise(zip(self.names, found, strict=True))
        }

    def evidence(self, book: Book) -> Evidence:
        found = self.comparisons(book)
        return evidence_of(
            [_SAID.get(one.octaves.verdict) for one in found.values()],
            "searches of the learning rate, paired by seed: octaves between the largest rates, with the interval for "
            "the true difference",
            {name: in_octaves(one) for name, one in found.items()},
        )


# ---------------------------------------------------------------- who trains


@dataclass(frozen=True, kw_only=True)
class MoreTrain:
    """Each arm of ``more`` trains with a larger share of seeds than each of ``fewer``."""

    more: tuple[str, ...]
    fewer: tuple[str, ...]
    of: str = "warmup"

    @property
    def text(self) -> str:
        return f"more seeds train of {', '.join(self.more)} than of {', '.join(self.fewer)}"

    def with_swapped(self) -> MoreTrain:
        return replace(self, more=self.fewer, fewer=self.more)

    def shares(self, book: Book) -> dict[str, Share]:
        names = (*self.more, *self.fewer)
        arms = {name: arm(self.of, name) for name in names}
        seeds = seeds_of(list(arms.values()), book)
        return {
            name: share(sum(book[one.at(seed)].has_trained for seed in seeds), len(seeds)) for name, one in arms.items()
        }

    def comparisons(self, book: Book) -> list[Comparison]:
        found = self.shares(book)
        pairs = [(found[one], found[other]) for one in self.more for other in self.fewer]
        return [differs(a.successes, a.num, b.successes, b.num) for a, b in pairs]

    def evidence(self, book: Book) -> Evidence:
        return evidence_of(
            [_SAID.get(found.verdict) for found in self.comparisons(book)],
            "trained alike: seeds that trained, with the exact interval of the share; pairs by Boschloo's test",
            {name: in_share(found) for name, found in self.shares(book).items()},
        )


# ---------------------------------------------------------------- numbers of arms with one rate


@dataclass(frozen=True, kw_only=True)
class LowerLoss:
    """The held-out loss at the end of the first arm is below that of the second, over the same seeds.

    family: how many such pairs were looked at; the level of each is so much nearer to 1 (Bonferroni).
    """

    first: str
    second: str
    family: int = 1
    of: str = "warmup"

    @property
    def text(self) -> str:
        return f"{self.first} ends with a lower held-out loss than {self.second}"

    def with_swapped(self) -> LowerLoss:
        return replace(self, first=self.second, second=self.first)

    def comparison(self, book: Book) -> Comparison:
        arms = [arm(self.of, name) for name in (self.first, self.second)]
        seeds = seeds_of(arms, book)
        first, second = ([book[one.at(seed)].held_out for seed in seeds] for one in arms)
        return compare_means(first, second, 1 - (1 - LEVEL) / self.family, is_paired=True)

    def evidence(self, book: Book) -> Evidence:
        found = self.comparison(book)
        return evidence_of(
            [{SECOND: True, FIRST: False}.get(found.verdict)],
            "paired by seed: held-out loss of the first less that of the second",
            {"difference, nats": f"{found.low:.3g} to {found.high:.3g}"},
        )


@dataclass(frozen=True, kw_only=True)
class LargerGradients:
    """While it trains, the gradient norm of the decoder's top layer is larger in the first arm than in the second.

    first_look, last_look: the steps at which it was looked, ends included.
    """

    first: str
    second: str
    first_look: int = 1
    last_look: int = 100
    of: str = "warmup"

    @property
    def text(self) -> str:
        steps = f"from step {self.first_look} to {self.last_look}"
        return f"{steps} the top decoder layer's gradient is larger in {self.first} than in {self.second}"

    def with_swapped(self) -> LargerGradients:
        return replace(self, first=self.second, second=self.first)

    def ratio(self, book: Book) -> Estimate:
        """log of the ratio, the mean over the looks of each seed."""
        arms = [arm(self.of, name) for name in (self.first, self.second)]
        seeds = seeds_of(arms, book)
        logs = [[self._log(book, one, seed) for seed in seeds] for one in arms]
        return estimate([a - b for a, b in zip(*logs, strict=True)])

    def _log(self, book: Book, one: Arm, seed: int) -> float:
        looks = [
            look
            for look in book[one.at(seed)].looks
            if self.first_look <= look.step <= self.last_look and look.gradient_norms
        ]
        tops = [math.hypot(*(norm or math.nan for norm in look.gradient_norms["decoder"][-3:])) for look in looks]
        return sum(map(math.log, tops)) / len(tops)

    def evidence(self, book: Book) -> Evidence:
        found = self.ratio(book)
        if found.low is None or found.high is None:
            raise LookupError("the record has one seed, which has no scatter")
        return evidence_of(
            [True if found.low > 0 else False if found.high < 0 else None],
            "paired by seed: gradient norm of the loss by the matrices of the decoder's top layer, the mean of its "
            "logarithm over the looks",
            {"ratio, first over second": f"{math.exp(found.low):.3g} to {math.exp(found.high):.3g}"},
            found.num,
        )


# ---------------------------------------------------------------- rates over depth


@dataclass(frozen=True, kw_only=True)
class FallsWithDepth:
    """The largest rate at which a row trains under an optimizer falls from the least to the largest depth, or does not.

    Not: its fall is below that of an update that grows as L^power, which theory has of the wrong row.
    """

    row: str
    optimizer: str
    falls: bool
    power: float = 0.5
    of: str = "own-row"

    @property
    def text(self) -> str:
        what = "falls" if self.falls else f"does not fall as L^(-{Fraction(self.power)}) or faster"
        return f"the largest rate of {self.row} under {self.optimizer} {what} with depth"

    def with_not(self) -> FallsWithDepth:
        return replace(self, falls=not self.falls)

    def comparison(self, book: Book) -> EdgeComparison:
        """Shallow over deep."""
        from paper_checks.experiments.own_row import GRIDS, LAYERS, arm_name

        names = [arm_name(self.row, self.optimizer, layers) for layers in LAYERS]
        (shallow, deep), _ = edges(names, book, self.of)
        return compare_edges(shallow, deep, GRIDS[self.optimizer])

    def answer(self, book: Book) -> bool | None:
        from paper_checks.experiments.own_row import LAYERS

        found = self.comparison(book).octaves
        expected = math.log2(LAYERS[1] / LAYERS[0]) * self.power
        if self.falls:
            if found.low is not None and found.low > 0:
                return True
            return False if found.high is not None and found.high < expected else None
        if found.high is not None and found.high < expected:
            return True
        return False if found.low is not None and found.low > expected else None

    def evidence(self, book: Book) -> Evidence:
        return evidence_of(
            [self.answer(book)],
            "searches of the learning rate, paired by seed",
            {"octaves from the least to the largest depth": in_octaves(self.comparison(book))},
        )


# ---------------------------------------------------------------- checks and words


class Answered(Protocol):
    """of: the experiment's name."""

    @property
    def of(self) -> str: ...
    @property
    def text(self) -> str: ...
    def evidence(self, book: Book) -> Evidence: ...


def _by_record(statement: Answered) -> Evidence:
    return statement.evidence(recorded(statement.of))


BY_TRAINING = Check(route=Route.MEASURED, run=_by_record, is_direct=True)
"""A statement by the project's record of its experiment."""


def at_this_scale(*statements: Answered) -> Check:
    """What small networks say of a statement about large ones that they do not decide: shown, and open whatever it is.

    A record that contradicts refutes what is said of all networks; of the large ones that a paper trained it says where
    to look.
    """

    def run(_: Any) -> Evidence:
        found = [_by_record(statement) for statement in statements]
        said = [
            f"{statement.text}: {_WORDS[one.verdict]} ({'; '.join(f'{k}: {v}' for k, v in one.numbers.items())})"
            for statement, one in zip(statements, found, strict=True)
        ]
        return Evidence(
            route=Route.MEASURED,
            num_effective=0,
            verdict=Verdict.UNDECIDED,
            detail=f"small networks do not decide it; what they say. {' | '.join(said)}",
        )

    return Check(route=Route.MEASURED, run=run, is_direct=True, is_open=True)


_WORDS = {Verdict.CONFIRMED: "yes", Verdict.REFUTED: "no", Verdict.UNDECIDED: "open"}


def evidence_of(
    answers: Sequence[bool | None], detail: str, shown: Mapping[str, str], num: int | None = None
) -> Evidence:
    decided = sum(answer is not None for answer in answers)
    return Evidence(
        route=Route.MEASURED,
        num_effective=decided if num is None or not decided else num,
        verdict=outcome(all_of(list(answers))),
        detail=detail,
        numbers=dict(shown),
    )


def in_octaves(found: EdgeComparison) -> str:
    low, high = found.octaves.low, found.octaves.high
    ends = f"{'below' if low is None else f'{low:.2g}'} to {'above' if high is None else f'{high:.2g}'}"
    num = found.num_first + found.num_second + found.num_ties
    return f"{ends} ({num} seeds: {found.num_first} larger, {found.num_second} smaller, {found.num_ties} equal)"


def in_share(found: Share) -> str:
    return f"{found.successes} of {found.num}, {found.low:.2f} to {found.high:.2f}"


def middle(scheme: str) -> str:
    """The arm of a scheme that has both looks."""
    return gpt(scheme, MIDDLE)


# ---------------------------------------------------------------- parts that training decides


def trained_only(name: str, text: str, what: str, decides: str) -> Part:
    """A part that only training decides: what it says, the records it waits for, and what they would have to show."""
    return Part(
        name=name,
        statement=Values.of(text),
        checks=(awaits(what),),
        mutants=(),
        open=decides,
        expected=Verdict.UNDECIDED,
    )


def open_in_small(name: str, text: str, decides: str, *statements: Answered) -> Part:
    """A part about networks that nobody trains at hand: small ones are shown, and leave it open."""
    return Part(
        name=name,
        statement=Values.of(text),
        checks=(at_this_scale(*statements),),
        mutants=(),
        open=decides,
        expected=Verdict.UNDECIDED,
    )
