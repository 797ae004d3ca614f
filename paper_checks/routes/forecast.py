"""Whether the update at initialisation predicts the largest stable learning rate: pair by pair, and by ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from paper_checks.claims.claim import Evidence, Verdict
from paper_checks.experiments.base import Book
from paper_checks.experiments.stable_rates import CURVE, GRID, LAYERS, MIDDLE, MORE_SCHEMES, SCHEMES, gpt
from paper_checks.routes.training import arm, edges, evidence_of, half_learnt, in_octaves
from sims.stats import LEVEL
from sims.training.outcomes import (
    FIRST,
    MIN_EDGES,
    OPEN,
    SECOND,
    Edge,
    EdgeComparison,
    compare_edges,
    compare_means,
    rank_correlation,
    rank_correlation_over_seeds,
)

LOOKS = ("trains", "half")
OTHER_PARTS = (0.4, 0.6)
"""Of what the best arm learns: whether a verdict hangs on the half."""
COMMAND = "depthlaw experiment stable-rates --from-record"


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
    found, seeds = edges(names, book) if look == "trains" else half_learnt(schemes, book, part)[:2]
    return [
        Case(name, tuple(update(book, name, seed) for seed in seeds), tuple(of_seed))
        for name, of_seed in zip(names, found, strict=True)
    ]


def update(book: Book, name: str, seed: int) -> float:
    """At initialisation, of the branch matrices: every rate of an arm begins with the same network."""
    found = next(iter(arm("stable-rates", name).tried(book, seed).values())).looks[0].update["update"]
    return math.nan if found is None else found


@dataclass(frozen=True)
class Pair:
    """smaller, larger: names, by the mean update. rates: largest stable rates, smaller over larger."""

    smaller: str
    larger: str
    rates: EdgeComparison

    @property
    def agrees(self) -> bool | None:
        """Whether the smaller update has the larger rate, by its interval."""
        return {FIRST: True, SECOND: False}.get(self.rates.octaves.verdict)


def pairs(found: Sequence[Case], look: str, level: float = LEVEL) -> list[Pair]:
    """Those whose updates differ by their interval. level: of the interval of the rates."""
    out = []
    for one, other in combinations(found, 2):
        said = compare_means(*_alike(one.updates, other.updates), is_paired=True).verdict
        if said != OPEN:
            small, large = (one, other) if said == SECOND else (other, one)
            grid = GRID if look == "trains" else CURVE
            out.append(Pair(small.name, large.name, compare_edges(small.edges, large.edges, grid, level)))
    return out


def _alike(one: Sequence[float], other: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Logarithms, which are near to normal where updates are not; ReZero's update is 0 and has none."""
    is_positive = min(*one, *other) > 0
    return ([math.log(x) for x in one], [math.log(x) for x in other]) if is_positive else (one, other)


@dataclass(frozen=True, kw_only=True)
class SmallerIsStabler:
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
        num = sum(len(pairs(found, look)) for (look, _), found in every.items())
        level = 1 - (1 - LEVEL) / max(num, 1)
        return {(look, n): pairs(found, look, level) for (look, n), found in every.items()}

    def evidence(self, book: Book) -> Evidence:
        found = self.found(book)
        every = [pair for several in found.values() for pair in several]
        answers = [None if pair.agrees is None else pair.agrees is self.is_smaller for pair in every]
        counted = {
            f"{layers} layers, by the rate at which it {_WORDS[look]}": _counted(several, self.is_smaller)
            for (look, layers), several in found.items()
        }
        for part in OTHER_PARTS if "half" in self.looks else ():
            several = self.found(book, part)["half", MIDDLE]
            counted[f"{MIDDLE} layers, learns {part:.0%} instead of half"] = _counted(several, self.is_smaller)
        detail = (
            "pairs of schemes whose updates differ by their interval; the largest rates paired by seed, at a level "
        )
        evidence = evidence_of(answers, detail + "that all pairs together hold", counted)
        if evidence.verdict is not Verdict.REFUTED:
            return evidence
        against = [pair for pair, answer in zip(every, answers, strict=True) if answer is False]
        worst = max(against, key=lambda pair: abs(_nearest(pair.rates)))
        example = {"printed": self.text, "found": self._words(worst), "command": COMMAND}
        return replace(evidence, counterexample=example)

    def _words(self, pair: Pair) -> str:
        return (
            f"{pair.smaller} has the smaller update; its largest rate over {pair.larger}'s, in octaves: "
            f"{in_octaves(pair.rates)}"
        )


_WORDS = {"trains": "trains at all", "half": "learns half"}


def _counted(several: Sequence[Pair], is_smaller: bool) -> str:
    answers = [pair.agrees for pair in several]
    agree = sum(answer is is_smaller for answer in answers if answer is not None)
    against = sum(answer is not is_smaller for answer in answers if answer is not None)
    return f"{agree} pairs agree, {against} contradict, {answers.count(None)} are open"


def _nearest(found: EdgeComparison) -> float:
    """The end of the interval that is nearest to no difference."""
    low, high = found.octaves.low, found.octaves.high
    return low if low is not None and low > 0 else high if high is not None and high < 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class RanksFall:
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

    def with_sign_turned(self) -> RanksFall:
        return replace(self, is_negative=not self.is_negative)

    def intervals(self, book: Book) -> Mapping[str, tuple[float | None, float | None, float]]:
        """(low, high, value): whether other seeds would show it at these schemes, and whether other schemes would."""
        found = cases(self.num_layers, self.look, book)
        if (num := len(found[0].edges)) < MIN_EDGES:
            raise LookupError(f"edges lie on a grid, so that {num} seeds may agree by chance: {MIN_EDGES} are needed")
        x = [sum(case.updates) / len(case.updates) for case in found]
        y = [[_log(one) for one in case.edges] for case in found]
        over_seeds = rank_correlation_over_seeds(x, y)
        over_schemes = rank_correlation(x, [sum(row) / len(row) for row in y])
        return {
            "over seeds": (over_seeds.low, over_seeds.high, over_seeds.mean),
            "over schemes": (over_schemes.low, over_schemes.high, over_schemes.value),
        }

    def evidence(self, book: Book) -> Evidence:
        found = self.intervals(book)
        answers = []
        for low, high, _ in found.values():
            said = True if high is not None and high < 0 else False if low is not None and low > 0 else None
            answers.append(said if said is None or self.is_negative else not said)
        # Decided where both say the same: what other seeds would show at these schemes is not what other schemes would.
        answers = [None] if None in answers or len(set(answers)) > 1 else answers
        shown = {name: f"{value:.2f}, {_end(low)} to {_end(high)}" for name, (low, high, value) in found.items()}
        return evidence_of(answers, "Spearman's correlation of update and largest stable rate over the schemes", shown)


def _end(number: float | None) -> str:
    return "open" if number is None else f"{number:.2f}"


def _log(found: Edge) -> float:
    return -math.inf if found.rate is None else math.log2(found.rate)
