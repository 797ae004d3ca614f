"""Whether the update at initialisation predicts the largest stable learning rate: pair by pair, and by ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from depthlaw.paper_checks.experiments.base import Book
from depthlaw.paper_checks.experiments.stable_rates import CURVE, GRID, LAYERS, MIDDLE, MORE_SCHEMES, SCHEMES, gpt
from depthlaw.paper_checks.routes.checks import Answers
from depthlaw.paper_checks.routes.training.arms import (
    Answered,
    arm,
    edges,
    ends,
    half_learnt,
    in_octaves,
    is_first_larger,
)
from depthlaw.sims.stats import LEVEL
from depthlaw.sims.training import outcomes
from depthlaw.sims.training.outcomes import MIN_EDGES, Edge, EdgeComparison

LOOKS = ("trains", "half")
_WORDS = {"trains": "trains at all", "half": "learns half"}


@dataclass(frozen=True)
class Case:
    """A scheme at a depth. updates: at initialisation, by seed; edges: the largest stable rates of the same seeds."""

    name: str
    updates: tuple[float, ...]
    edges: tuple[Edge, ...]


def cases(num_layers: int, look: str, book: Book, part: float = 0.5) -> list[Case]:
    """Schemes under Adam at one depth; "half" is there of MIDDLE layers and of SCHEMES alone."""
    if look == "half" and num_layers != MIDDLE:
        raise LookupError(f"rates at which half is learnt are there of {MIDDLE} layers, not of {num_layers}")
    schemes = (*SCHEMES, *(MORE_SCHEMES if num_layers == MIDDLE and look == "trains" else ()))
    names = [gpt(scheme, num_layers) for scheme in schemes]
    of_schemes, seeds = edges(names, book) if look == "trains" else half_learnt(schemes, book, part)[:2]
    return [
        Case(name, tuple(_update(book, name, seed) for seed in seeds), tuple(of_scheme))
        for name, of_scheme in zip(names, of_schemes, strict=True)
    ]


def _update(book: Book, name: str, seed: int) -> float:
    """The update at initialisation, of the branch matrices: every rate of an arm begins with the same network."""
    update = next(iter(arm("stable-rates", name).tried(book, seed).values())).looks[0].update["update"]
    return math.nan if update is None else update


@dataclass(frozen=True)
class Pair:
    """smaller, larger: names, by the mean update. rates: largest stable rates, smaller over larger."""

    smaller: str
    larger: str
    rates: EdgeComparison

    @property
    def agrees(self) -> bool | None:
        """Whether the smaller update has the larger rate, by its interval."""
        return is_first_larger(self.rates.octaves)


def pairs(cases: Sequence[Case], look: str, level: float = LEVEL) -> list[Pair]:
    """The pairs of schemes whose updates differ by their interval. level: of the interval of the rates."""
    out = []
    for first, second in combinations(cases, 2):
        # Logarithms are near to normal where updates are not; ReZero's update is 0 and has none.
        scale = math.log if min(*first.updates, *second.updates) > 0 else float
        a, b = ([scale(update) for update in case.updates] for case in (first, second))
        is_larger = is_first_larger(outcomes.compare_means(a, b, is_paired=True))
        if is_larger is not None:
            small, large = (second, first) if is_larger else (first, second)
            rates = outcomes.compare_edges(small.edges, large.edges, GRID if look == "trains" else CURVE, level)
            out.append(Pair(small.name, large.name, rates))
    return out


@dataclass(frozen=True, kw_only=True)
class SmallerIsStabler(Answered):
    """Of two schemes at one depth, the one with the smaller update at initialisation has the larger stable rate.

    is_smaller: False in a mutant, where the larger update has it.
    """

    looks: tuple[str, ...] = LOOKS
    is_smaller: bool = True
    of: str = "stable-rates"

    @property
    def text(self) -> str:
        which = "smaller" if self.is_smaller else "larger"
        how = " and the one at which it ".join(_WORDS[look] for look in self.looks)
        return f"of two schemes at one depth that with the {which} update has the larger rate at which it {how}"

    def with_larger(self) -> SmallerIsStabler:
        return replace(self, is_smaller=False)

    def found(self, book: Book, part: float = 0.5) -> dict[tuple[str, int], list[Pair]]:
        """By look and layers, each pair at a level that all of them together hold (Bonferroni)."""
        depths = {"trains": LAYERS, "half": (MIDDLE,)}
        every = {(look, n): cases(n, look, book, part) for look in self.looks for n in depths[look]}
        num = sum(len(pairs(several, look)) for (look, _), several in every.items())
        level = 1 - (1 - LEVEL) / max(num, 1)
        return {(look, n): pairs(several, look, level) for (look, n), several in every.items()}

    def answers(self, book: Book) -> Answers:
        by_look = self.found(book)
        every = [pair for several in by_look.values() for pair in several]
        holds = [_or_not(pair.agrees, self.is_smaller) for pair in every]
        counted = {
            f"{layers} layers, by the rate at which it {_WORDS[look]}": self._counted(several)
            for (look, layers), several in by_look.items()
        }
        # Whether a verdict hangs on the half.
        for part in (0.4, 0.6) if "half" in self.looks else ():
            several = self.found(book, part)["half", MIDDLE]
            counted[f"{MIDDLE} layers, learns {part:.0%} instead of half"] = self._counted(several)
        against = [pair for pair, answer in zip(every, holds, strict=True) if answer is False]
        example = None
        if against:
            pair = max(against, key=_distance)
            rates = f"its largest rate over {pair.larger}'s, in octaves: {in_octaves(pair.rates)}"
            shown = f"{pair.smaller} has the smaller update; {rates}"
            command = "depthlaw experiment stable-rates --from-record"
            example = {"printed": self.text, "found": shown, "command": command}
        return Answers(
            holds=holds,
            detail="pairs of schemes whose updates differ by their interval; the largest rates paired by seed, at a "
            "level that all pairs together hold",
            numbers=counted,
            counterexample=example,
        )

    def _counted(self, several: Sequence[Pair]) -> str:
        answers = [_or_not(pair.agrees, self.is_smaller) for pair in several]
        agree, against, unknown = map(answers.count, (True, False, None))
        return f"{agree} pairs agree, {against} contradict, {unknown} are open"


def _or_not(answer: bool | None, is_so: bool) -> bool | None:
    return None if answer is None else answer is is_so


def _distance(pair: Pair) -> float:
    """From no difference to the nearest end of the interval of the rates."""
    low, high = ends(pair.rates.octaves.low, pair.rates.octaves.high)
    return max(low, -high, 0.0)


@dataclass(frozen=True, kw_only=True)
class RanksFall(Answered):
    """Over the schemes of a depth, the rank correlation of the update and the largest stable rate is negative."""

    num_layers: int
    look: str = "trains"
    is_negative: bool = True
    of: str = "stable-rates"

    @property
    def text(self) -> str:
        sign = "negative" if self.is_negative else "positive"
        how = f"at which it {_WORDS[self.look]}"
        return f"{self.num_layers} layers: the rank correlation of the update and the largest rate {how} is {sign}"

    def _intervals(self, book: Book) -> Mapping[str, tuple[float | None, float | None, float]]:
        """(low, high, value): whether other seeds would show it at these schemes, and whether other schemes would."""
        several = cases(self.num_layers, self.look, book)
        if (num := len(several[0].edges)) < MIN_EDGES:
            raise LookupError(f"edges lie on a grid, so that {num} seeds may agree by chance: {MIN_EDGES} are needed")
        x = [fmean(case.updates) for case in several]
        y = [[-math.inf if edge.rate is None else math.log2(edge.rate) for edge in case.edges] for case in several]
        over_seeds = outcomes.rank_correlation_over_seeds(x, y)
        over_schemes = outcomes.rank_correlation(x, list(map(fmean, y)))
        return {
            "over seeds": (over_seeds.low, over_seeds.high, over_seeds.mean),
            "over schemes": (over_schemes.low, over_schemes.high, over_schemes.value),
        }

    def answers(self, book: Book) -> Answers:
        shown, signs = {}, set()
        for name, (low, high, value) in self._intervals(book).items():
            first, last = ("open" if end is None else f"{end:.2f}" for end in (low, high))
            shown[name] = f"{value:.2f}, {first} to {last}"
            least, most = ends(low, high)
            signs.add(True if most < 0 else False if least > 0 else None)
        # Decided where both say the same: what other seeds would show at these schemes is not what other schemes would.
        answer = signs.pop() if len(signs) == 1 else None
        detail = "Spearman's correlation of update and largest stable rate over the schemes"
        return Answers(holds=[_or_not(answer, self.is_negative)], num_effective=2, detail=detail, numbers=shown)
