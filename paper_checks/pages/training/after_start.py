"""The section of TRAINING.md on what becomes of the depth law behind the first step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

from depthlaw.network.trials import OF_RECIPE
from depthlaw.paper_checks.experiments.after_start import (
    ADAMW,
    AS_PEOPLE_DO,
    CASES,
    COLLAPSE,
    FAST,
    FLAT,
    LATE,
    LAYERS,
    MOMENTUM,
    MORE,
    MUON,
    NEAR,
    OTHERS,
    PLANNED,
    SCHEDULED,
    SLOW,
    STEPS,
    Case,
)
from depthlaw.paper_checks.experiments.after_start_laws import laws_of, slope_of
from depthlaw.paper_checks.pages.markdown import bracket, section
from depthlaw.paper_checks.pages.training.runs import Record
from depthlaw.paper_checks.routes.training import after_start as route
from depthlaw.paper_checks.routes.training.after_start import Course
from depthlaw.sims.stats import Estimate, estimate
from depthlaw.theory.kernel.after_start import LAWS

LEAST_SEEDS, BENT = 2, 0.05
NOTHING, ABSENT = "-", "Not in the record yet."
_SHOWN = (1, 4, 16, 64)
"""Steps whose exponents the table has, beside the first and the last."""
_PARTED = (0, 1, 4, 16)
"""Steps whose parts the table has."""


def in_short(record: Record) -> str:
    """The result in tables with a sentence each. Empty where the record lacks what it needs."""
    every = route.courses(record.book)
    if len(every) < len(PLANNED + OTHERS + AS_PEOPLE_DO) or min(len(course.seeds) for course in every) < LEAST_SEEDS:
        return ""
    several = _under(ADAMW, every)
    fast = [course for course in several if course.case.way != SLOW]
    lives = route.lives(several)
    return section(
        "training",
        "after_start_in_short",
        layers=LAYERS,
        d_model=record.experiment.arms[0].trial.d_model,
        growing=[[_name(course), _steps(course)] for course in every if course.grows],
        lasting=_lasting(every),
        seeds=min(len(course.seeds) for course in several),
        agreeing=[
            (
                course.case.scheme,
                *(_words([parts.agreement for parts in of]) for of in (course.parts(0), course.late_parts)),
            )
            for course in fast
            if course.is_parted
        ],
        late=LATE,
        best=None if lives is None else {"unit": lives.best, "typical": f"{lives.typical(lives.best):.2g}"},
        falls=lives is not None and lives.fall_together(),
        units=[] if lives is None else [*_units_in_short(every, lives)],
        back=_back(every),
        in_full=_in_full(every),
        by_role=[*by_role(_under(ADAMW, fast))],
        bent=BENT,
        laws=[_law_row(*of) for of in _law_sets(every)],
    ).strip()


def _units_in_short(every: Sequence[Course], lives: route.Lives) -> Iterator[list[str]]:
    """The scatter of lives in each unit, and in the best one on networks that it was not found on."""
    for unit, scatter, typical in _units(lives):
        yield ["those that the unit was found on", unit, scatter, typical, NOTHING]
    for there in _elsewhere(every, lives, lives.best):
        yield [there.name, lives.best, there.scatter, there.typical, there.verdict]


def _lasting(every: Sequence[Course]) -> list[tuple[str, int, list[str]]]:
    """By optimizer, the steps that were measured, and the networks whose growth is not halved in every seed by then."""
    by_optimizer: dict[str, list[str]] = {}
    for course in every:
        if course.grows and route.over_seeds(course.half_lives) is None:
            by_optimizer.setdefault(course.case.optimizer, []).append(_short(course))
    return [(optimizer, STEPS[optimizer], names) for optimizer, names in by_optimizer.items()]


def _is_more_in_full(course: Course) -> bool:
    pairs = zip(course.slopes(0, "whole"), course.slopes(0), strict=True)
    more = estimate([whole - first for whole, first in pairs])
    return more.mean >= BENT and more.low is not None and more.low > 0


def _law_sets(every: Sequence[Course]) -> Iterator[tuple[str, Sequence[Course]]]:
    """The networks at a constant, large rate that a law is asked of together, of two seeds and more: those of the first
    plan, and all, which was planned of Muon alone."""
    for optimizer, whose in {ADAMW: " (not planned)", MUON: ""}.items():
        planned, whole = (_under(optimizer, every, cases) for cases in (FAST, FAST + OTHERS + MORE))
        if planned and min(len(course.seeds) for course in planned) >= LEAST_SEEDS:
            yield optimizer, planned
            if len(whole) > len(planned):
                yield f"{optimizer}, all {len(whole)}{whose}", whole


def _law_row(name: str, several: Sequence[Course]) -> list[str]:
    """Which law is nearest to the exponents behind the first steps, than which it is better, and where it holds."""
    nearest, worse = route.nearest(route.distances(several))
    where = [[_short(of) for of in several if route.holds(nearest, of) is holds] for holds in (True, False)]
    return [name, nearest, *(", ".join(names) or "none" for names in (worse, *where))]


def in_readme(record: Record) -> str:
    """The result in a few sentences. Empty where the record has no lives of two seeds."""
    every = route.courses(record.book)
    found_on, last = _under(ADAMW, every), route.UNITS[-1]
    if (lives := route.lives(found_on)) is None:
        return ""
    growing = [course for course in found_on if course.case.scheme in ("pre-ln", "gpt2")]
    steps = [course.life(n, seed) for course in growing for n in LAYERS for seed in range(len(course.seeds))]
    known = [life for life in steps if life is not None]
    fast = [course for course in every if not course.case.way]  # the others begin with the same step
    starts = [(slopes, slope_of("first", course.case)) for course in fast if (slopes := course.slopes(0))]
    beyond = [not _is_within(estimate(slopes), predicted) for slopes, predicted in starts]
    laws = {several[0].case.optimizer: several for _, several in _law_sets(every)}
    of_unit, of_steps = (fmean(lives.scatter[unit]) for unit in (last, route.UNITS[0]))
    of_sgd = route.lives(_under(MOMENTUM, every))
    text = section(
        "training",
        "after_start_in_readme",
        typical=f"{lives.typical(last):.2g}",
        num=lives.num,
        of_sgd=None if of_sgd is None else f"{of_sgd.typical(last):.2g}",
        num_of_sgd=None if of_sgd is None else of_sgd.num,
        others_of_sgd=_typical(every, [case for case in MORE if case.optimizer == MOMENTUM], last),
        lasting=_lasting(every),
        more_in_full=[
            (_short(course), *(_words(course.slopes(0, what)) for what in ("update", "whole")))
            for course in fast
            if course.case.optimizer == ADAMW and _is_more_in_full(course)
        ],
        apart=f"{max(abs(fmean(slopes) - predicted) for slopes, predicted in starts):.2f}",
        num_beyond=sum(beyond),
        num_networks=len(beyond),
        laws=[_law_row(*of) for of in laws.items()],
        layers=LAYERS,
        d_model=record.experiment.arms[0].trial.d_model,
        scatter=f"{2**of_unit:.2f}",
        in_steps=f"{2**of_steps:.1f}",
        fewest=round(min(known), 1),
        most=f"{max(known):.0f}",
        elsewhere=_elsewhere(every, lives, last),
        back=_back(every),
        in_full=[
            (course.case.scheme, _words(course.slopes(0, "whole")), _words(warm.slopes(0, "whole")))
            for course in growing
            for warm in every
            if not course.case.way and warm.case == Case(course.case.scheme, way=SCHEDULED)
        ],
    )
    return " ".join(text.split())


def after_start(record: Record, opening: str, images: str) -> str:
    every = route.courses(record.book)
    fast = [course for course in every if not course.case.way]
    parted = [course for course in fast if course.is_parted and course.case.optimizer == ADAMW]
    lives, last = route.lives(_under(ADAMW, every)), route.UNITS[-1]
    flats = [course for course in every if _is_flat(course)]
    trial = record.experiment.arms[0].trial
    return section(
        "training",
        "after_start",
        opening=opening,
        images=images,
        layers=LAYERS,
        flat=FLAT,
        heads=[
            *("network", "seeds", "predicted", "step 0", "step 0, in full"),
            *(f"step {step}" for step in _SHOWN),
            *("last look", "late", "half-life, steps"),
        ],
        back=_back(every),
        slopes=[_slopes_row(course) for course in every],
        flats="; ".join(f"{_name(course)}: {', '.join(map(str, course.not_flat)) or 'none'}" for course in flats),
        num_lives=0 if lives is None else lives.num,
        num_left_out=0 if lives is None else lives.num_left_out,
        units=_units(lives),
        of_sgd=_units(route.lives(_under(MOMENTUM, every))),
        elsewhere=[] if lives is None else _elsewhere(every, lives, last),
        last=last,
        collapse=COLLAPSE,
        lives=[row for course in every if (row := _lives_row(course))],
        verdict_of_unit=ABSENT if lives is None else _verdict_of_unit(lives),
        late=LATE,
        near=NEAR,
        law_heads=["network", "late", *LAWS],
        laws=[_laws_row(course) for course in fast],
        verdict_of_law=_verdict_of_law(every),
        part_heads=["network", "step", "not shared", "along", "other's loss", "agreement", "over independent"],
        in_full=[*by_role(_under(ADAMW, fast))],
        parts=[row for course in parted for row in _part_rows(course)],
        contradicted=_contradicted(parted),
        made_heads=[
            "network",
            "look",
            "fc2 at step 0",
            "fc2 then",
            "made / rate steps",
            "made / rate sqrt(steps)",
            "stream at step 0",
            "stream then",
        ],
        made=[_made_row(course) for course in every],
        steps=STEPS[ADAMW],
        muon_steps=STEPS[MUON],
        d_model=trial.d_model,
        seeds=min((len(course.seeds) for course in every), default=0),
        lacking=[*_lacking(every)],
    )


def _lacking(every: Sequence[Course]) -> Iterator[tuple[str, list[str]]]:
    """By optimizer, what is trained under AdamW and not under it."""
    schemes = {
        optimizer: {course.case.scheme for course in every if course.case.optimizer == optimizer} for optimizer in STEPS
    }
    for optimizer, own in schemes.items():
        if missing := sorted(schemes[ADAMW] - own):
            yield optimizer, [name.removeprefix(OF_RECIPE) for name in missing]


def _units(lives: route.Lives | None) -> list[list[str]]:
    if lives is None:
        return []
    return [[unit, _words(values), f"{lives.typical(unit):.2g}"] for unit, values in lives.scatter.items()]


def _back(every: Sequence[Course]) -> list[list[str]]:
    """Of those that grow and are trained at the slow rate, the step of the last look, and the exponent there."""
    rows = [course for course in every if course.case.way == SLOW and course.grows]
    return [[_name(course), str(course.steps[-1]), _words(course.slopes(course.steps[-1]))] for course in rows]


def _in_full(every: Sequence[Course]) -> list[list[str]]:
    """Of those that grow under AdamW, the exponents at step 0: to first order, and in full."""
    rows = [course for course in _under(ADAMW, every, CASES) if course.grows]
    return [[_name(course), *(_words(course.slopes(0, what)) for what in ("update", "whole"))] for course in rows]


def by_role(several: Sequence[Course]) -> Iterator[dict[str, Any]]:
    """Of the networks that have the step in full by role, at the first look and the last: by how much a role's exponent
    is another one in full, and what the role changes in full over that to first order, at the largest depth."""
    having = [course for course in several if course.roles_in_full]
    for step in dict.fromkeys(step for course in having for step in (0, course.steps[-1])):
        there = [course for course in having if step in course.steps]
        roles = dict.fromkeys(role for course in there for role in course.roles_in_full)
        wanted = {"in full less to first order": _bent, "in full over first order": Course.over_first_order}
        bent = {
            role: [_short(course) for course in there if role in course.roles_in_full and _is_bent(course, step, role)]
            for role in roles
        }
        yield {
            "step": step,
            "bent": [(role, names) for role, names in bent.items() if names],
            "networks": [_short(course) for course in there],
            "heads": ["role", *(f"{_short(course)}: {what}" for what in wanted for course in there)],
            "rows": [
                [
                    role,
                    *(
                        _words(of(course, step, role)) if role in course.roles_in_full else NOTHING
                        for of in wanted.values()
                        for course in there
                    ),
                ]
                for role in roles
            ],
        }


def _bent(course: Course, step: int, role: str) -> list[float]:
    """The exponent in full less that to first order, of each seed."""
    both = course.slopes(step, role, in_full=True), course.slopes(step, role)
    return [in_full - first for in_full, first in zip(*both, strict=True)]


def _is_bent(course: Course, step: int, role: str) -> bool:
    """Whether the exponent in full is shown to be another one, by at least BENT."""
    less = estimate(_bent(course, step, role))
    return abs(less.mean) >= BENT and not _is_within(less, 0.0)


def _short(course: Course) -> str:
    return course.case.scheme.removeprefix(OF_RECIPE)


def _under(optimizer: str, every: Sequence[Course], cases: Sequence[Case] = PLANNED) -> list[Course]:
    return [course for course in every if course.case in cases and course.case.optimizer == optimizer]


def _typical(every: Sequence[Course], cases: Sequence[Case], unit: str) -> list[tuple[str, str]]:
    """The name of each scheme or recipe, and its typical life."""
    each = ((case, route.lives([course for course in every if course.case == case])) for case in cases)
    return [(case.scheme.removeprefix(OF_RECIPE), f"{of.typical(unit):.2g}") for case, of in each if of is not None]


class Elsewhere(NamedTuple):
    """Of a set that the unit was not found on, its networks with a life and without, and what they say of the unit.
    lives: of each network, the typical one."""

    name: str
    num: str
    num_left_out: str
    scatter: str
    typical: str
    verdict: str
    lives: list[tuple[str, str]]

    @property
    def row(self) -> list[str]:
        return [self.name, self.num, self.num_left_out, self.scatter, self.typical, self.verdict]


def _elsewhere(every: Sequence[Course], found_on: route.Lives, unit: str) -> list[Elsewhere]:
    """Of the sets that have as many seeds."""
    sets = {"other decoders": OTHERS, "warm-up, a cosine and clipping": AS_PEOPLE_DO}
    verdicts = {True: "holds", False: "fails", None: "neither holds nor fails, as far as these seeds tell"}
    rows = list[Elsewhere]()
    for name, cases in sets.items():
        there = route.lives(_under(ADAMW, every, cases))
        if there is not None and len(there.middles[unit]) == len(found_on.middles[unit]):
            verdict = verdicts[route.holds_elsewhere(unit, found_on, there)]
            told = _words(there.scatter[unit]), f"{there.typical(unit):.2g}", verdict, _typical(every, cases, unit)
            rows.append(Elsewhere(name, str(there.num), str(there.num_left_out), *told))
    return rows


def _name(course: Course) -> str:
    case = course.case
    return f"{_short(course)}, {case.optimizer} at 2^{math.log2(case.rate):g}" + f", {SCHEDULED}" * (
        case.way == SCHEDULED
    )


def _is_flat(course: Course) -> bool:
    slope = estimate(course.slopes(0))
    return slope.low is not None and slope.high is not None and slope.low > -FLAT and slope.high < FLAT


def _is_within(found: Estimate, value: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= value <= found.high


def _words(values: Sequence[float]) -> str:
    return _of(estimate(values))


def _of(values: Estimate) -> str:
    return bracket(values.mean, values.low, values.high)


def _steps(course: Course) -> str:
    """The half-life with its interval, back from logarithms."""
    half_life = route.over_seeds(course.half_lives)
    if half_life is None:
        return f"not within {course.steps[-1]} of every seed"
    if half_life.low is None or half_life.high is None:
        return f"{2**half_life.mean:.2g}"
    return f"{2**half_life.mean:.2g} [{2**half_life.low:.2g}, {2**half_life.high:.2g}]"


def _slopes_row(course: Course) -> list[str]:
    return [
        _name(course),
        str(len(course.seeds)),
        f"{slope_of('first', course.case):.2f}",
        *(_words(course.slopes(0, what)) for what in ("update", "whole")),
        *(_words(course.slopes(step)) if step in course.steps else NOTHING for step in _SHOWN),
        _words(course.slopes(course.steps[-1])),
        _words(course.late),
        _steps(course) if course.grows else NOTHING,
    ]


def _lives_row(course: Course) -> list[str]:
    """Empty where no seed of any depth has a life; a dash where not every seed of a depth has one."""
    rows: list[tuple[str, str]] = []
    for n in LAYERS:
        lives = [course.lifetimes(n, seed) for seed in range(len(course.seeds))]
        known = [(life[0], life[-1]) for life in lives if life is not None]
        is_whole = len(known) == len(lives)
        means = [f"{geometric_mean(column):.2g}" for column in zip(*known, strict=True)] if is_whole else [NOTHING] * 2
        rows.append((means[0], means[1]))
    if all(steps == NOTHING for steps, _ in rows):
        return []
    return [_name(course), *(", ".join(column) for column in zip(*rows, strict=True))]


def _laws_row(course: Course) -> list[str]:
    def cell(law: str) -> str:
        if law not in laws_of(course.case.optimizer):
            return NOTHING
        return f"{slope_of(law, course.case):z.2f}" + " +" * route.holds(law, course)

    return [_name(course), _words(course.late), *map(cell, LAWS)]


def _contradicted(several: Sequence[Course]) -> list[tuple[str, list[str]]]:
    return [(_name(course), route.contradicted(course.late_parts)) for course in several]


def _part_rows(course: Course) -> list[list[str]]:
    looks = {**{str(step): course.parts(step) for step in _PARTED}, "late": course.late_parts}
    return [
        [_name(course), step, *(_words(column) for column in zip(*of_seeds, strict=True))]
        for step, of_seeds in looks.items()
    ]


def _made_row(course: Course) -> list[str]:
    """Means over seeds."""

    def mean(what: str, num_layers: int, step: int) -> float:
        values = [vars(moves[step])[what]["fc2"] for moves in course.moves[num_layers]]
        return fmean(value for value in values if value is not None)

    def stream(step: int) -> float:
        ends = [moves[step].stream["encoder"] for moves in course.moves[LAYERS[-1]]]
        return fmean(last / first for first, last in ends if first and last is not None)

    last = course.steps[-1]
    both = (LAYERS[0], LAYERS[-1])
    return [
        _name(course),
        str(last),
        *(" and ".join(f"{mean('weights', n, step):.4f}" for n in both) for step in (0, last)),
        *(f"{mean('made', LAYERS[-1], last) / (course.case.rate * length):.2f}" for length in (last, math.sqrt(last))),
        *(f"{stream(step):.1f}" for step in (0, last)),
    ]


def _verdict_of_unit(lives: route.Lives) -> str:
    has, falls = lives.has_the_law(), lives.fall_together()
    first = f"The least scatter is in units of {lives.best}" + (
        ", below both others by its interval." if has else ", not below both others by its interval."
    )
    octaves = f"{COLLAPSE:g} octaves"
    second = f" It lies below {octaves}: the curves fall together." if falls else f" It is not below {octaves}."
    return first + second


def _verdict_of_law(every: Sequence[Course]) -> str:
    parts = []
    for name, several in _law_sets(every):
        by_law = route.distances(several)
        best, worse = route.nearest(by_law)
        away = ", ".join(f"{law} {_words(values)}" for law, values in by_law.items())
        holding = [_short(course) for course in several if route.holds(best, course)]
        parts.append(
            f"Under {name} the root mean square distance of the late exponents from each law's is: {away}. The "
            f"nearest is {best}"
            + (f", better than {', '.join(worse)} by intervals paired by seed" if worse else "")
            + f"; it holds in {', '.join(holding) or 'none'}."
        )
    return "\n\n".join(parts) or ABSENT
