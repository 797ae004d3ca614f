"""What a claim is, and how its verdict folds from evidence.

A check receives the statement as an object and says whether it holds (CONFIRMED), fails (REFUTED) or was not decided
(UNDECIDED). Nothing else is ever typed: MISPRINT and CONDITIONAL come out of the same checks, run on an amended
statement.

    a part     fails on the printed statement, holds on ``misprint.statement``         MISPRINT
               fails on the printed statement, holds on ``hedge.statement``            CONDITIONAL
               fails otherwise                                                         REFUTED
               some route was not decided, or there was none                           UNDECIDED
               holds by every route                                                    CONFIRMED
    a claim    takes the worst of its parts: REFUTED, MISPRINT, UNDECIDED, CONDITIONAL, CONFIRMED

UNDECIDED is worse than CONDITIONAL: a claim with an open part has not been shown under any condition. It is better
than MISPRINT: whatever the open part turns out to be, the fault that was found stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from string import Formatter
from typing import Any, NamedTuple, Self

from sympy import Expr

from depthlaw.paper_checks.claims.broken import Mutant, broken
from depthlaw.paper_checks.claims.sources import source_of
from depthlaw.paper_checks.claims.statements import Statement


class _Word(Enum):
    """A word with more said of it: the first of each member's texts is its value."""

    def __new__(cls, word: str, *_: str) -> Self:
        member = object.__new__(cls)
        member._value_ = word
        return member


class Verdict(_Word):
    """What was found of a claim, the worst first.

    symbol: beside the word, for who does not see colours. colour: on a terminal. outcome: what a single check says by
    this verdict, in words; empty where no check gives it. meaning: of the verdict on a claim.

    >>> from depthlaw.paper_checks.claims.claim import Verdict
    >>> Verdict("CONFIRMED").symbol, Verdict.CONFIRMED.meaning
    ('✓', 'holds as printed')
    """

    REFUTED = (
        *("REFUTED", "✗", "red", "fails"),
        "fails somewhere in the domain that the source states, even where a further condition would save it",
    )
    MISPRINT = (
        *("MISPRINT", "≠", "yellow", ""),
        "a slip of sign, index, constant or symbol that the source itself sets right elsewhere",
    )
    UNDECIDED = "UNDECIDED", "?", "magenta", "not decided", "the routes tried did not decide it"
    CONDITIONAL = (
        *("CONDITIONAL", "if", "cyan", ""),
        'the source hedged ("generally", "approximately") and it holds exactly under the condition given',
    )
    CONFIRMED = "CONFIRMED", "✓", "green", "holds", "holds as printed"

    def __init__(self, _: str, symbol: str, colour: str, outcome: str, meaning: str) -> None:
        self.symbol, self.colour, self.outcome, self.meaning = symbol, colour, outcome, meaning


SEVERITY = tuple(Verdict)
OUTCOMES = tuple(verdict for verdict in Verdict if verdict.outcome)
"""What one piece of evidence can say."""


class Route(_Word):
    """A way to find out whether a statement holds."""

    PROOF = "proof", "a derivation in exact algebra"
    PROPERTY = "property", "a search for counterexamples, or a proof that there is none, all over the stated domain"
    NUMERIC = "numeric", "numbers to many digits, summed or integrated by a way of their own"
    MEANFIELD = "meanfield", "the exact second moments of a stack of FFN sublayers at infinite width"
    KERNEL = "kernel", "a real Transformer at infinite width, token by token and role by role"
    MEASURED = "measured", "real torch networks: gradients by autograd, and training"
    ARITHMETIC = "arithmetic", "the printed numbers and formulas against one another"
    CITATION = "citation", "the printed words read again, or what another source prints"

    def __init__(self, _: str, meaning: str) -> None:
        self.meaning = meaning


class Kind(_Word):
    """What a printed statement is to the source's readers."""

    RESULT = (
        "result",
        "Results that people use",
        "a table, a constant, an order, a guarantee or a design that people use",
    )
    STEP = "step", "Steps of the derivations", "a definition, an assumption or a step that leads to a result"
    REMARK = "remark", "Remarks", "what is said beside the derivation: arithmetic, experiments, what others do"

    def __init__(self, _: str, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one check found.

    num_effective: statements shown, or cases that met the hypotheses; never None. steps: the derivation, line by line.
    counterexample: data by which anyone can see a failure again; ``printed`` and ``found`` say it in a line each,
    ``command`` shows it. ValueError for a verdict that no check gives, and for a counterexample that lacks one of the
    three.

    >>> from depthlaw.paper_checks.claims.claim import Evidence, Route, Verdict
    >>> Evidence(route=Route.PROOF, num_effective=1, verdict=Verdict.MISPRINT, detail="")
    Traceback (most recent call last):
        ...
    ValueError: evidence says REFUTED, UNDECIDED, CONFIRMED, never MISPRINT
    """

    route: Route
    num_effective: int
    verdict: Verdict
    detail: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    counterexample: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in OUTCOMES:
            raise ValueError(f"evidence says {', '.join(o.value for o in OUTCOMES)}, never {self.verdict.value}")
        if not isinstance(self.num_effective, int) or isinstance(self.num_effective, bool) or self.num_effective < 0:
            raise ValueError(f"num_effective is a whole number from 0, not {self.num_effective!r}")
        if self.counterexample is not None and not {"printed", "found", "command"} <= set(self.counterexample):
            raise ValueError("a counterexample says what is printed, what was found, and the command that shows it")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One route to a verdict on whatever statement it is given.

    is_open: nothing here can decide it yet, as where it takes training; it sees no mutant either. is_slow: a quick look
    leaves it out, as it does what is measured.
    """

    route: Route
    run: Callable[[Any], Evidence]
    is_open: bool = False
    is_slow: bool = False


class Number(NamedTuple):
    """Where a number of a sentence stands."""

    part: str
    keys: tuple[str, ...]


def number(part: str, *keys: str) -> Number:
    """part: how the name of one part of the claim begins. keys: the way to the number, first in the counterexample of
    that part, then in the numbers of each piece of its evidence."""
    return Number(part, keys)


Fill = Number | Expr | int | Callable[[], float | str]


@dataclass(frozen=True)
class Sentence:
    """A text whose numbers are filled in from evidence.

    numbers: what fills the fields of the text: where it stands in the evidence, or the value itself, as an expression,
    a whole number, or what a function returns when the sentence is read. ValueError where a field has no number, or a
    number no field.
    """

    text: str
    numbers: Mapping[str, Fill] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fields = {name for _, name, _, _ in Formatter().parse(self.text) if name is not None}
        if fields != set(self.numbers):
            raise ValueError(f"the sentence has the fields {sorted(fields)} and the numbers {sorted(self.numbers)}")


def sentence(text: str, **numbers: Fill) -> Sentence:
    """The text, its fields filled in with these numbers."""
    return Sentence(text, numbers)


@dataclass(frozen=True, kw_only=True)
class Finding(Sentence):
    """What was found against a claim: a sentence or two, without the last full stop. The README has the first alone.

    rank: the most consequential finding has the lowest; of equal ones the ids decide. shared_with: other claims that
    the sentence speaks for.
    """

    rank: int
    shared_with: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Amendment:
    """A statement in place of the printed one. ``text`` says it in words; ``grounds`` where the source gives it."""

    statement: Statement
    text: str | Sentence
    grounds: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A printed cell that a derived table has too. ``where`` picks the row; ``printed`` is read as tables' cells are.

    decimals: the printed number is rounded to that many; the derived one has to round to it.
    """

    table: str
    where: tuple[tuple[str, str], ...]
    column: str
    printed: str
    decimals: int | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One statement of a claim, and what is known against it.

    mutants: left out, those of ``broken``.

    misprint: the right form, which the source's own derivation or another copy has. hedge: the exact condition that
    the source left open. instead: for a refuted part, what holds (the same checks must say so). condition: what
    would save a refuted statement. open: what would decide an undecided one.
    """

    name: str
    statement: Statement
    checks: tuple[Check, ...]
    mutants: tuple[Mutant, ...] = ()
    expected: Verdict = Verdict.CONFIRMED
    misprint: Amendment | None = None
    hedge: Amendment | None = None
    instead: Amendment | None = None
    condition: str | Sentence | None = None
    open: str | Sentence | None = None

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"part {self.name!r} has no check")
        if not self.mutants and not all(check.is_open for check in self.checks):
            object.__setattr__(self, "mutants", broken(self.statement))
        if self.expected is Verdict.UNDECIDED and self.open is None:
            raise ValueError(f"part {self.name!r} is expected to be undecided and does not say what would decide it")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One printed statement: where it stands, its words, its parts.

    id: the prefix of its source and a number that is never used again.

    source: the key of the source; left out, the one whose ids begin as this id does. uses: the claims that it rests on.
    finding: what was found against it, where it does not hold as printed and no other claim's finding speaks for it.
    """

    id: str
    kind: Kind
    source: str = ""
    locator: str
    quote: str
    summary: str
    parts: tuple[Part, ...]
    uses: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    finding: Finding | None = None

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.id} needs one or more parts, each with a name of its own: {names}")
        if not any(part.mutants for part in self.parts):
            raise ValueError(f"{self.id} has no mutant: something of it must be decidable")
        if not self.source:
            object.__setattr__(self, "source", source_of(self.id))

    def __repr__(self) -> str:
        return f"<Claim {self.id} {self.expected.value}: {self.summary}>"

    @property
    def expected(self) -> Verdict:
        """The worst verdict that is expected of the parts."""
        return worst(part.expected for part in self.parts)


def claim(
    id: str,
    *,
    name: str = "as printed",
    statement: Statement,
    checks: tuple[Check, ...],
    mutants: tuple[Mutant, ...] = (),
    expected: Verdict = Verdict.CONFIRMED,
    misprint: Amendment | None = None,
    hedge: Amendment | None = None,
    instead: Amendment | None = None,
    condition: str | Sentence | None = None,
    **rest: Any,
) -> Claim:
    """A claim of one part.

    The arguments are those of ``Part`` and ``Claim``. ValueError where it has no check, or nothing can be broken.
    """
    part = Part(
        name=name,
        statement=statement,
        checks=checks,
        mutants=mutants,
        expected=expected,
        misprint=misprint,
        hedge=hedge,
        instead=instead,
        condition=condition,
    )
    return Claim(id=id, parts=(part,), **rest)


# ---------------------------------------------------------------- folding


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; UNDECIDED of none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.UNDECIDED)


def perform(check: Check, statement: Statement) -> Evidence:
    """Run one check. Whatever it raises, and zero effective cases, make it UNDECIDED: no check fails by accident."""
    try:
        evidence = check.run(statement)
    except Exception as error:  # a check that gave up has shown nothing
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Evidence(route=check.route, num_effective=0, verdict=Verdict.UNDECIDED, detail=f"gave up: {text}")
    if evidence.num_effective == 0 and evidence.verdict is not Verdict.UNDECIDED:
        return replace(evidence, verdict=Verdict.UNDECIDED, detail=f"no effective case: {evidence.detail}")
    return evidence


def examine(checks: Iterable[Check], statement: Statement) -> tuple[Verdict, tuple[Evidence, ...]]:
    """All checks on one statement. A failure by any route is a failure; holding takes every route."""
    evidence = tuple(perform(check, statement) for check in checks)
    return worst(item.verdict for item in evidence), evidence


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """What was found of a part. ``amended``: the evidence on the amended statement, where one was tried."""

    part: Part
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    amended: tuple[Evidence, ...] = ()
    instead_holds: bool = True

    @property
    def counterexample(self) -> Mapping[str, Any] | None:
        if self.verdict is not Verdict.REFUTED:
            return None
        return next((item.counterexample for item in self.evidence if item.counterexample is not None), None)


def judge_part(part: Part) -> PartResult:
    """The verdict on a part, by the table at the top of this module."""
    verdict, evidence = examine(part.checks, part.statement)
    if verdict is not Verdict.REFUTED:
        return PartResult(part=part, verdict=verdict, evidence=evidence)
    for amendment, outcome in ((part.misprint, Verdict.MISPRINT), (part.hedge, Verdict.CONDITIONAL)):
        if amendment is not None:
            decision, amended = examine(part.checks, amendment.statement)
            if decision is Verdict.CONFIRMED:
                return PartResult(part=part, verdict=outcome, evidence=evidence, amended=amended)
    if part.instead is None:
        return PartResult(part=part, verdict=verdict, evidence=evidence)
    decision, amended = examine(part.checks, part.instead.statement)
    holds = decision is Verdict.CONFIRMED
    return PartResult(part=part, verdict=verdict, evidence=evidence, amended=amended, instead_holds=holds)


def judge_quickly(part: Part) -> PartResult:
    """Without the measured and the slow checks, where the others reach the expected verdict; else with all."""
    kept = tuple(check for check in part.checks if check.route is not Route.MEASURED and not check.is_slow)
    if kept:
        result = judge_part(replace(part, checks=kept))
        if result.verdict is part.expected and result.instead_holds:
            return result
    return judge_part(part)


def judge(
    claim: Claim, *, quick: bool = False, advance: Callable[[], None] | None = None
) -> tuple[Verdict, tuple[PartResult, ...]]:
    """The verdict on a claim, and on each of its parts.

    quick: without the measured and the slow checks of a part, where the others reach the expected verdict. No check
    fails by accident: one that raises, or that no case met, is UNDECIDED. advance: called after each part.

    >>> from depthlaw.paper_checks.claims.claim import judge
    >>> from depthlaw.paper_checks.papers.registry import claims
    >>> verdict, results = judge(claims()["LI-05"])
    >>> verdict.value
    'CONFIRMED'
    >>> for result in results:
    ...     print(result.verdict.value, [item.route.value for item in result.evidence])
    CONFIRMED ['proof', 'arithmetic']
    CONFIRMED ['meanfield', 'numeric', 'measured', 'kernel']
    """
    results = []
    for part in claim.parts:
        results.append(judge_quickly(part) if quick else judge_part(part))
        if advance is not None:
            advance()
    return worst(result.verdict for result in results), tuple(results)


# ---------------------------------------------------------------- mutants


@dataclass(frozen=True, kw_only=True)
class MutantResult:
    """What became of a mutant. red: the checks, by their place, that were tried on it and went red."""

    part: str
    name: str
    red: tuple[int, ...]

    @property
    def is_killed(self) -> bool:
        return bool(self.red)


def try_mutants(part: Part) -> tuple[MutantResult, ...]:
    """The checks of a part on the mutants of its statement: each mutant must turn one red, each check must go red once.

    A check is tried on every mutant until it has gone red, and after that where no other check sees the mutant. One
    that goes red on no mutant is blind; it is listed as a surviving mutant of its own.
    """
    results = []
    blind = [i for i, check in enumerate(part.checks) if not check.is_open]
    for mutant in part.mutants:
        red = [i for i in blind if _sees(part.checks[i], mutant)]
        others = (i for i, check in enumerate(part.checks) if i not in blind and _sees(check, mutant))
        red = red or list(islice(others, 1))
        blind = [i for i in blind if i not in red]
        results.append(MutantResult(part=part.name, name=mutant.name, red=tuple(red)))
    results += [MutantResult(part=part.name, name=f"check {i + 1} sees none of them", red=()) for i in blind]
    return tuple(results)


_IS_SHRUNK: ContextVar[bool] = ContextVar("_IS_SHRUNK", default=True)
is_shrunk = _IS_SHRUNK.get
"""Whether a search goes on from the first failing case to a smaller one."""


@contextmanager
def any_counterexample() -> Iterator[None]:
    """A search in here returns the first failing case that it meets; shrinking is for those who read one."""
    token = _IS_SHRUNK.set(False)
    try:
        yield
    finally:
        _IS_SHRUNK.reset(token)


def _sees(check: Check, mutant: Mutant) -> bool:
    with any_counterexample():
        return perform(check, mutant.statement).verdict is Verdict.REFUTED
