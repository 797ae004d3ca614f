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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from depthlaw.paper_checks.claims.claim import Check, Evidence, Part, Route, Verdict
from depthlaw.paper_checks.claims.statements import Values
from depthlaw.paper_checks.experiments import experiment
from depthlaw.paper_checks.experiments.base import PILOT_SEEDS, Arm, Book
from depthlaw.paper_checks.experiments.stable_rates import CURVE, GRID, MIDDLE, SCHEMES, gpt, on_curve
from depthlaw.paper_checks.routes.checks import Answers, awaits, check
from depthlaw.sims.stats import LEVEL, Estimate, estimate
from depthlaw.sims.training import outcomes
from depthlaw.sims.training.outcomes import FIRST, SECOND, Comparison, Edge, EdgeComparison, Share
from depthlaw.system.places import training_record

if TYPE_CHECKING:
    from depthlaw.sims.training.train import TrainResult


ANSWERS = {Verdict.CONFIRMED: "yes", Verdict.REFUTED: "no", Verdict.UNDECIDED: "open"}
"""What a record says of a statement, in a word."""


@cache
def recorded(name: str, scale: str = "small") -> Book:
    """The project's record of an experiment."""
    return Book.read(training_record(name, scale))


def seeds_of(arms: Sequence[Arm], book: Book) -> tuple[int, ...]:
    """Seeds with which all of these arms are done, the pilot's not counted. LookupError where there are none."""
    there = {trial.seed for trial in book.trials} - set(PILOT_SEEDS)
    seeds = tuple(seed for seed in sorted(there) if all(arm.is_done(book, seed) for arm in arms))
    if not seeds:
        raise LookupError(f"the record has no seed of {', '.join(arm.name for arm in arms)}")
    return seeds


@cache
def arm(name: str, arm_name: str) -> Arm:
    return experiment(name).arm(arm_name)


class Answered(ABC):
    """A statement that the record of an experiment answers. of: the experiment's name."""

    of: str

    @property
    @abstractmethod
    def text(self) -> str:
        """The statement in one line."""

    @abstractmethod
    def answers(self, book: Book) -> Answers:
        """What the record says of it."""

    def evidence(self, book: Book) -> Evidence:
        return self.answers(book).evidence(Route.MEASURED)


def is_first_larger(comparison: Comparison) -> bool | None:
    return {FIRST: True, SECOND: False}.get(comparison.verdict)


def ends(low: float | None, high: float | None) -> tuple[float, float]:
    """Of an interval that has no end on a side that the record leaves open."""
    return -math.inf if low is None else low, math.inf if high is None else high


# ---------------------------------------------------------------- largest rates


def edges(names: Sequence[str], book: Book, of: str = "stable-rates") -> tuple[list[list[Edge]], tuple[int, ...]]:
    """The largest rates by arm and seed, and the seeds."""
    arms = [arm(of, name) for name in names]
    seeds = seeds_of(arms, book)
    return [[searched.edge(book, seed) for seed in seeds] for searched in arms], seeds


def half_learnt(
    schemes: Sequence[str], book: Book, part: float = 0.5
) -> tuple[list[list[Edge]], tuple[int, ...], float]:
    """The same of the second look, MIDDLE layers; and the loss that is half of the way, or another part of it."""
    curves = {scheme: [arm("stable-rates", on_curve(scheme, rate)) for rate in CURVE] for scheme in SCHEMES}
    seeds = seeds_of([run for curve in curves.values() for run in curve], book)

    def loss(run: Arm, seed: int) -> float:
        held_out = book[run.at(seed)].held_out
        return math.inf if held_out is None else held_out

    losses = {scheme: [[loss(run, seed) for seed in seeds] for run in curve] for scheme, curve in curves.items()}
    best = min(fmean(row) for rows in losses.values() for row in rows)
    guess = book[curves[SCHEMES[0]][0].at(seeds[0])].guess
    if not best < guess:
        raise ValueError("half of what the best arm learns: no arm learns anything")
    half = guess - part * (guess - best)
    of_schemes = [
        [
            outcomes.edge(CURVE, {rate: row[i] <= half for rate, row in zip(CURVE, losses[scheme], strict=True)})
            for i in range(len(seeds))
        ]
        for scheme in schemes
    ]
    return of_schemes, seeds, half


@dataclass(frozen=True, kw_only=True)
class LargerRate(Answered):
    """The largest stable rate of each is above that of the next. names: arms, or schemes where look is "half"."""

    names: tuple[str, ...]
    look: str = "trains"
    of: str = "stable-rates"

    @property
    def text(self) -> str:
        how = "trains" if self.look == "trains" else "learns half"
        return f"largest rate at which it {how}: {' > '.join(self.names)}"

    def with_reversed(self) -> LargerRate:
        return replace(self, names=self.names[::-1])

    def comparisons(self, book: Book) -> dict[str, EdgeComparison]:
        if self.look == "half":
            of_names, grid = half_learnt(self.names, book)[0], CURVE
        else:
            of_names, grid = edges(self.names, book)[0], GRID
        return {
            f"{name} over {other}": outcomes.compare_edges(a, b, grid)
            for (name, a), (other, b) in pairwise(zip(self.names, of_names, strict=True))
        }

    def answers(self, book: Book) -> Answers:
        comparisons = self.comparisons(book)
        return Answers(
            holds=[is_first_larger(comparison.octaves) for comparison in comparisons.values()],
            detail="searches of the learning rate, paired by seed: octaves between the largest rates, with the "
            "interval for the true difference",
            numbers={name: in_octaves(comparison) for name, comparison in comparisons.items()},
        )


# ---------------------------------------------------------------- who trains


@dataclass(frozen=True, kw_only=True)
class MoreTrain(Answered):
    """Each arm of ``more`` trains with a larger share of seeds than each of ``fewer``."""

    more: tuple[str, ...]
    fewer: tuple[str, ...]
    of: str = "warmup"

    @property
    def text(self) -> str:
        return f"more seeds train of {', '.join(self.more)} than of {', '.join(self.fewer)}"

    def with_swapped(self) -> MoreTrain:
        return replace(self, more=self.fewer, fewer=self.more)

    def answers(self, book: Book) -> Answers:
        arms = {name: arm(self.of, name) for name in (*self.more, *self.fewer)}
        seeds = seeds_of(list(arms.values()), book)
        trained = {name: sum(book[arm.at(seed)].has_trained for seed in seeds) for name, arm in arms.items()}
        shares = {name: outcomes.share(number, len(seeds)) for name, number in trained.items()}
        pairs = [(shares[name], shares[other]) for name in self.more for other in self.fewer]
        return Answers(
            holds=[is_first_larger(outcomes.differs(a.successes, a.num, b.successes, b.num)) for a, b in pairs],
            detail="trained alike: seeds that trained, with the exact interval of the share; pairs by Boschloo's test",
            numbers={name: in_share(share) for name, share in shares.items()},
        )


# ---------------------------------------------------------------- numbers of two arms with one rate


@dataclass(frozen=True, kw_only=True)
class _OfTwo(Answered):
    first: str
    second: str
    of: str = "warmup"

    def with_swapped(self) -> Self:
        return replace(self, first=self.second, second=self.first)

    def by_seed(self, book: Book, number: Callable[[TrainResult], Any]) -> list[list[Any]]:
        """A number of each run of the first arm, and of the second, over the same seeds."""
        arms = [arm(self.of, name) for name in (self.first, self.second)]
        seeds = seeds_of(arms, book)
        return [[number(book[searched.at(seed)]) for seed in seeds] for searched in arms]


@dataclass(frozen=True, kw_only=True)
class LowerLoss(_OfTwo):
    """The held-out loss at the end of the first arm is below that of the second, over the same seeds.

    family: how many such pairs were looked at; the level of each is so much nearer to 1 (Bonferroni).
    """

    family: int = 1

    @property
    def text(self) -> str:
        return f"{self.first} ends with a lower held-out loss than {self.second}"

    def answers(self, book: Book) -> Answers:
        first, second = self.by_seed(book, lambda result: result.held_out)
        comparison = outcomes.compare_means(first, second, 1 - (1 - LEVEL) / self.family, is_paired=True)
        return Answers(
            holds=[{SECOND: True, FIRST: False}.get(comparison.verdict)],
            detail="paired by seed: held-out loss of the first less that of the second",
            numbers={"difference, nats": f"{comparison.low:.3g} to {comparison.high:.3g}"},
        )


@dataclass(frozen=True, kw_only=True)
class LargerGradients(_OfTwo):
    """While it trains, the gradient norm of the decoder's top layer is larger in the first arm than in the second.

    first_look, last_look: the steps at which it was looked, ends included.
    """

    first_look: int = 1
    last_look: int = 100

    @property
    def text(self) -> str:
        steps = f"from step {self.first_look} to {self.last_look}"
        return f"{steps} the top decoder layer's gradient is larger in {self.first} than in {self.second}"

    def ratio(self, book: Book) -> Estimate:
        """The logarithm of the ratio, of each seed the mean over the looks."""
        first, second = self.by_seed(book, self._log_norm)
        return estimate([a - b for a, b in zip(first, second, strict=True)])

    def _log_norm(self, result: TrainResult) -> float:
        looks = [look for look in result.looks if self.first_look <= look.step <= self.last_look]
        norms = [look.gradient_norms["decoder"][-3:] for look in looks if look.gradient_norms]
        tops = [math.hypot(*(norm or math.nan for norm in top)) for top in norms]
        return sum(map(math.log, tops)) / len(tops)

    def answers(self, book: Book) -> Answers:
        ratio = self.ratio(book)
        if ratio.low is None or ratio.high is None:
            raise LookupError("the record has one seed, which has no scatter")
        return Answers(
            holds=[True if ratio.low > 0 else False if ratio.high < 0 else None],
            num_effective=ratio.num,
            detail="paired by seed: gradient norm of the loss by the matrices of the decoder's top layer, the mean of "
            "its logarithm over the looks",
            numbers={"ratio, first over second": f"{math.exp(ratio.low):.3g} to {math.exp(ratio.high):.3g}"},
        )


# ---------------------------------------------------------------- checks and words


BY_TRAINING = check(Route.MEASURED, "", lambda statement: statement.answers(recorded(statement.of)))
"""A statement by the project's record of its experiment."""


def at_this_scale(*statements: Answered) -> Check:
    """What small networks say of a statement about large ones that they do not decide: shown, and open whatever it is.

    A record that contradicts refutes what is said of all networks; of the large ones that a paper trained it says where
    to look.
    """

    def decide(_: Any) -> Answers:
        answers = []
        for statement in statements:
            evidence = statement.evidence(recorded(statement.of))
            numbers = "; ".join(f"{name}: {number}" for name, number in evidence.numbers.items())
            answers.append(f"{statement.text}: {ANSWERS[evidence.verdict]} ({numbers})")
        return Answers(holds=[None], detail=f"small networks do not decide it; what they say. {' | '.join(answers)}")

    return check(Route.MEASURED, "", decide, is_open=True)


def in_octaves(rates: EdgeComparison) -> str:
    low, high = rates.octaves.low, rates.octaves.high
    interval = f"{'below' if low is None else f'{low:.2g}'} to {'above' if high is None else f'{high:.2g}'}"
    num = rates.num_first + rates.num_second + rates.num_ties
    return f"{interval} ({num} seeds: {rates.num_first} larger, {rates.num_second} smaller, {rates.num_ties} equal)"


def in_share(trained: Share) -> str:
    return f"{trained.successes} of {trained.num}, {trained.low:.2f} to {trained.high:.2f}"


def middle(scheme: str) -> str:
    """The arm of a scheme that has both looks."""
    return gpt(scheme, MIDDLE)


# ---------------------------------------------------------------- parts that training decides


def trained_only(name: str, text: str, what: str, decides: str) -> Part:
    """A part that only training decides: what it says, the records it waits for, and what they would have to show."""
    return _open(name, text, decides, awaits(what))


def open_in_small(name: str, text: str, decides: str, *statements: Answered) -> Part:
    """A part about networks that nobody trains at hand: small ones are shown, and leave it open."""
    return _open(name, text, decides, at_this_scale(*statements))


def _open(name: str, text: str, decides: str, check: Check) -> Part:
    statement, expected = Values.of(text), Verdict.UNDECIDED
    return Part(name=name, statement=statement, checks=(check,), mutants=(), open=decides, expected=expected)
