"""Two watched runs beside each other, role by role, at equal steps or at equal tokens; and one by itself."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from statistics import fmean, median
from typing import Any, Literal

from depthlaw.watching.record import Look, NothingYetError, Run, check_architecture

ALIKE = 1.5
"""Up to so many times as far is alike: another batch and other weights alone make about a tenth or two."""
BENT = 2.0
"""Up to so many times as much as the logits moved may the parts of the roles add up to, in a step that is told as it
is: beyond that most of it is of second order."""
MATTERS = 0.05
"""The least share of what a step changes at which a role is told, as the advice has it of the update."""
WHOLE = "whole"
_MOST_PARTS = 4
"""Of a course that is told part by part."""

By = Literal["steps", "tokens"]
BY: tuple[By, ...] = ("steps", "tokens")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a step moved the logits in both runs, at the same step or number of tokens. is_between: the first run was
    not looked at just there, and this is the line between its two looks beside it, on logarithmic scales of the
    change."""

    at: int
    first: float
    second: float
    is_between: bool

    @property
    def times(self) -> float:
        return self.second / self.first


@dataclass(frozen=True, kw_only=True)
class Part:
    """Looks in a row that say the same. times: their geometric mean."""

    start: int
    end: int
    num_looks: int
    course: str
    times: float


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A role in both runs. share: of the logits' change, by run, the mean over the looks; 1 of the whole. predicted:
    how many times as far the first step was to move the second run, at least and at most."""

    role: str
    share: tuple[float, float]
    pairs: Sequence[Pair]
    predicted: tuple[float, float] | None

    @property
    def matters(self) -> bool:
        return max(map(abs, self.share)) >= MATTERS

    @property
    def courses(self) -> list[str]:
        """Of each pair, smoothed, so that no single look cuts a part in two."""
        times = smooth([pair.times for pair in self.pairs])
        return ["further" if ratio > ALIKE else "less" if ratio < 1 / ALIKE else "alike" for ratio in times]

    @property
    def parts(self) -> list[Part]:
        groups = groupby(zip(self.courses, self.pairs, strict=True), key=lambda pair: pair[0])
        parts = [(course, [pair for _, pair in group]) for course, group in groups]
        return [
            Part(start=pairs[0].at, end=pairs[-1].at, num_looks=len(pairs), course=course, times=_mean(pairs))
            for course, pairs in parts
        ]

    def text(self, by: By = "steps") -> str:
        """Behind "fc2 of 48 layers": "moved 3.1 times as far in steps 0 to 40, then alike"."""
        parts = self.parts
        if not parts:
            return "was moved in both runs at no common place"
        if len(parts) > _MOST_PARTS:
            most = max(self.pairs, key=lambda pair: abs(math.log(pair.times)))
            alike = self.courses.count("alike")
            return (
                f"moved {_far(_mean(self.pairs))} on the whole, back and forth: alike at {alike} of {len(self.pairs)} "
                f"looks, {_far(most.times)} at {_at(most.at, by)}"
            )
        first, *rest = parts
        text = f"moved {_how(first)} in {by} {first.start:,} to {first.end:,}"
        if first.start == first.end:
            text = f"moved {_how(first)} at {_at(first.end, by)}"
        for part in rest:
            end = "" if part is rest[-1] else f" up to {_at(part.end, by)}"
            text += f", then {_how(part)}{end}"
        return text


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """names: of both runs, "12 layers" and "48 layers" or, of equal depth, the names of their files. roles: the largest
    share first."""

    first: Run
    second: Run
    by: By
    names: tuple[str, str]
    whole: Beside
    roles: Sequence[Beside]
    has_other_probe: bool

    @property
    def losses(self) -> str:
        """Of the runs at their last common place, as the runs told it, else of the probes; empty where neither is
        known."""
        for name, what in (("loss", "Loss"), ("probe_loss", "Loss of the probe")):
            first, second = (_losses(run, name, self.by) for run in (self.first, self.second))
            if both := first.keys() & second.keys():
                return f"{what} at {_at(max(both), self.by)}: {first[max(both)]:.4g} and {second[max(both)]:.4g}."
        return ""

    @property
    def verdict(self) -> list[str]:
        """Lines: the roles that moved otherwise, the largest first, and then the others."""
        first, second = self.names
        shown = [role for role in self.roles if role.matters]
        otherwise = [role for role in shown if any(part.course != "alike" for part in role.parts)]
        lines = [f"{role.role} of {second} {role.text(self.by)}" for role in otherwise]
        lines = [lines[0].replace(" as far", f" as far as that of {first}", 1), *lines[1:]] if lines else []
        if alike := [role.role for role in shown if role.pairs and role not in otherwise]:
            word = "The other roles that matter" if lines else f"Each role of {second} that matters"
            lines.append(f"{word} moved as far as that of {first}, within {ALIKE} times: {', '.join(alike)}")
        if apart := [role.role for role in shown if not role.pairs]:
            lines.append(f"Moved in both runs at no common place, so not compared: {', '.join(apart)}")
        lost = [
            f"{name}: {text}"
            for name, run in zip(self.names, (self.first, self.second), strict=True)
            for text in (*_lost(run), *_not_taken(run))
        ]
        lines = lost + lines
        if small := [role.role for role in self.roles if not role.matters]:
            lines.append(f"Below {100 * MATTERS:.0f} % of what a step changes in both runs: {', '.join(small)}")
        for name, run in zip(self.names, (self.first, self.second), strict=True):
            looks = [(look.first_order / look.whole, look) for look in run.looks if look.first_order and look.whole]
            bent, look = max(looks, key=itemgetter(0), default=(0.0, None))
            if look is not None and bent > BENT:
                lines.append(
                    f"The step of {name} at {_at(place_of(look, self.by), self.by)} is far from linear: what its roles "
                    f"do adds up to {bent:.2g} times what the logits moved, so compare the roles and not the whole"
                )
        whys = [_why_none(run) for run in (self.first, self.second)]
        if why := whys[0] if whys[0] == whys[1] else "":
            lines.append(f"The first steps were not predicted: {why}")
        else:
            of = zip(self.names, whys, strict=True)
            lines += [f"The first step of {name} was not predicted: {why}" for name, why in of if why]
        return [f"{line}." for line in lines]

    def document(self) -> dict[str, Any]:
        return {
            "runs": [_run_document(run) for run in (self.first, self.second)],
            "names": [*self.names],
            "by": self.by,
            "alike": ALIKE,
            "roles": [self._row(role) for role in (self.whole, *self.roles)],
            "has_other_probe": self.has_other_probe,
            "verdict": self.verdict,
        }

    def _row(self, beside: Beside) -> dict[str, Any]:
        return {
            "role": beside.role,
            "share": [*beside.share],
            "pairs": [
                {"at": p.at, "first": p.first, "second": p.second, "times": p.times, "is_between": p.is_between}
                for p in beside.pairs
            ],
            "parts": [
                {"start": p.start, "end": p.end, "num_looks": p.num_looks, "course": p.course, "times": p.times}
                for p in beside.parts
            ],
            "predicted": beside.predicted,
            "text": beside.text(self.by),
        }


def compare(first: Run, second: Run, by: By = "steps") -> Comparison:
    """The second run beside the first. ValueError, in one line, where they are of different architectures, or were
    looked at at no common place."""
    check_architecture(first, second.header, second.path)
    for run in (first, second):
        _check(run, by)
        if not any(change_of(look, WHOLE) for look in run.looks):
            raise ValueError(f"{run.path} has no step that moved the logits by a finite number above 0")
    whole = _beside(WHOLE, first, second, by)
    roles = [_beside(role, first, second, by) for role in roles_of(second, first)]
    if not whole.pairs and not any(role.pairs for role in roles):
        places = " and ".join(f"{place_of(r.looks[0], by):,} to {place_of(r.looks[-1], by):,}" for r in (first, second))
        raise ValueError(f"{first.path} and {second.path} have no {by} in common: {places}")
    return Comparison(
        first=first,
        second=second,
        by=by,
        names=_names(first, second),
        whole=whole,
        roles=sorted(roles, key=lambda role: -max(map(abs, role.share))),
        has_other_probe=first.header.probe_sha256 != second.header.probe_sha256,
    )


def _names(first: Run, second: Run) -> tuple[str, str]:
    names = [run.header.layers for run in (first, second)]
    if names[0] == names[1]:
        names = [run.path for run in (first, second)]
    return names[0], names[1]


def _check(run: Run, by: By) -> None:
    if not run.taken:
        text = ", ".join(_not_taken(run))
        raise NothingYetError(f"{run.path} has no look yet" + f" but where {text}" * bool(text))
    if by == "tokens" and any(look.tokens is None for look in run.looks):
        raise ValueError(f"{run.path} says no tokens: call watch.step(tokens=...) in the run, or compare by steps")


def roles_of(*runs: Run) -> list[str]:
    """Of any look: what is frozen has none, and what is added later has some from then on."""
    return list(dict.fromkeys(role for run in runs for look in run.looks for role in look.roles))


def change_of(look: Look, role: str) -> float | None:
    """What the step moved the logits by, all of it or one role's part; None where nothing is known, or where the step
    was none, as under a rate of 0."""
    change = look.whole if role == WHOLE else look.roles[role].change if role in look.roles else None
    return change or None


def share_of(run: Run, role: str) -> float:
    """Of what a step changes, the mean over the looks."""
    shares = [1.0 if role == WHOLE else look.roles[role].share for look in run.looks if role in {WHOLE, *look.roles}]
    known = [share for share in shares if share is not None]
    return fmean(known) if known else 0.0


def _lost(run: Run) -> list[str]:
    """In words, where a run ends in what is no finite number."""
    last = max((number for number, look in enumerate(run.taken) if look.whole is not None), default=-1)
    return [
        f"from step {look.step:,} on, no step moved the logits by a finite number" for look in run.taken[last + 1 :][:1]
    ]


def _not_taken(run: Run) -> list[str]:
    """In words, where no optimizer took a step."""
    steps = [look.step for look in run.looks if not look.took_step]
    places = f"steps {min(steps):,} to {max(steps):,}" if len(steps) > 1 else f"step {steps[0]:,}" if steps else ""
    many = f" at {len(steps)} looks, of" if len(steps) > 1 else " at"
    why = "as a GradScaler lets none be taken where gradients are infinite"
    return [f"the optimizer took no step{many} {places}, {why}"] if steps else []


def place_of(look: Look, by: By) -> int:
    """Where in a run a look is."""
    return look.step if by == "steps" else look.tokens or 0


def _losses(run: Run, name: str, by: By) -> dict[int, float]:
    return {place_of(look, by): loss for look in run.looks if (loss := getattr(look, name)) is not None}


def _beside(role: str, first: Run, second: Run, by: By) -> Beside:
    places = {place_of(look, by) for look in first.taken}
    pairs = []
    for look in second.looks:
        at, change = place_of(look, by), change_of(look, role)
        other = change_at(first, role, at, by)
        if change is not None and other is not None:
            pairs.append(Pair(at=at, first=other, second=change, is_between=at not in places))
    return Beside(
        role=role,
        share=(share_of(first, role), share_of(second, role)),
        pairs=pairs,
        predicted=_predicted_times(role, first, second),
    )


def _predicted_times(role: str, first: Run, second: Run) -> tuple[float, float] | None:
    """At least and at most, where both first steps are at the same end, and either prediction is off by what it leaves
    open."""
    ends_one, ends_two = predicted_of(first, role), predicted_of(second, role)
    before, after = first.header.predicted, second.header.predicted
    if ends_one is None or ends_two is None or before is None or after is None:
        return None
    wider_before, two = before.wider, after.wider
    low, high = (of / to if to else math.inf for to, of in zip(ends_one, ends_two, strict=True))
    exact = low * two / wider_before, high * wider_before / two
    return min(exact) / (wider_before * two), max(exact) * wider_before * two


def predicted_of(run: Run, role: str) -> tuple[float, float] | None:
    """The least and the most that the first step was predicted to move the logits, at the rates that it had: one role's
    part, or all of it, where roles that are not predicted (embeddings) have the share that was measured. None where
    nothing was predicted, or that step was not looked at."""
    predicted, look = run.header.predicted, run.first
    if predicted is None or look is None:
        return None
    roles = {name: moved for name, moved in look.roles.items() if name in predicted.roles and role in (WHOLE, name)}
    ends = [[end * (moved.rate or 0.0) for end in predicted.roles[name]] for name, moved in roles.items()]
    share = sum(moved.share or 0.0 for moved in roles.values()) if role == WHOLE else 1.0
    low, high = (sum(of_end) / share for of_end in zip(*ends, strict=True)) if ends and share > 0 else (0.0, 0.0)
    return (low, high) if high else None


def change_at(run: Run, role: str, at: int, by: By = "steps") -> float | None:
    """What a step at that place moved; between two looks the line through them, the change being logarithmic."""
    known = [(place_of(look, by), change) for look in run.looks if (change := change_of(look, role))]
    index = bisect_left(known, (at, 0.0))
    if index == len(known) or (index == 0 and known[0][0] != at):
        return None
    end, high = known[index]
    if end == at:
        return high
    start, low = known[index - 1]
    return math.exp(math.log(low) + (at - start) / (end - start) * math.log(high / low))


def smooth(values: Sequence[float]) -> list[float]:
    """Of each the middle of it and of both beside it, that no single one counts; the first and the last as they
    are."""
    return [median(values[at - 1 : at + 2]) if 0 < at < len(values) - 1 else value for at, value in enumerate(values)]


def learnt_limit(run: Run, role: str) -> float:
    """Up to how many times as far as in a run, at the same step, nobody needs to be told: twice, and more of a role
    whose steps are uneven in the run itself, by as much as one of them stands out."""
    changes = [change for look in run.looks if (change := change_of(look, role))]
    return 2 * max((change / usual for change, usual in zip(changes, smooth(changes), strict=True)), default=1.0)


def _mean(pairs: Sequence[Pair]) -> float:
    return math.exp(fmean(math.log(pair.times) for pair in pairs))


def _how(part: Part) -> str:
    return "alike" if part.course == "alike" else _far(part.times)


def _far(times: float) -> str:
    return f"{times:.2g} times as far"


def _at(place: int, by: By) -> str:
    return f"{by[:-1]} {place:,}" if by == "steps" else f"{place:,} tokens"


# ---------------------------------------------------------------- one run


def described(run: Run) -> list[str]:
    """The verdict of one run by itself: what its last step moved, and how that has changed since the first look."""
    _check(run, "steps")
    first, last = run.taken[0], run.taken[-1]
    lines = [f"{text[0].upper()}{text[1:]}." for text in (*_lost(run), *_not_taken(run))]
    if (whole := change_of(last, WHOLE)) is not None:
        shares = {
            role: moved.share
            for role, moved in last.roles.items()
            if moved.share is not None and moved.share >= MATTERS
        }
        most = sorted(shares, key=lambda role: -shares[role])
        parts = ", ".join(f"{role} {100 * shares[role]:.0f} %" for role in most)
        lines.append(f"Step {last.step:,} moved the logits by {whole:.3g} (root mean square): {parts or 'no role'}.")
    if last.step != first.step:
        moved = {role: (change_of(first, role), change_of(last, role)) for role in (WHOLE, *last.roles)}
        times = {role: now / then for role, (then, now) in moved.items() if then and now}
        shown = [f"{role} {times[role]:.2g}" for role in times if role == WHOLE or share_of(run, role) >= MATTERS]
        if shown:
            lines.append(f"Times as far as at step {first.step:,}: {', '.join(shown)}.")
    if (ends := predicted_of(run, WHOLE)) and (whole := change_of(first, WHOLE)):
        beyond = [_beyond(run, role) for role, moved in first.roles.items() if _is_beyond(run, role, moved.share)]
        lines.append(
            f"The first step moved the logits by {whole:.3g}; predicted were {between(ends)}"
            + (f". Otherwise than predicted: {', '.join(beyond)}." if beyond else ", and each role that matters is so.")
        )
    elif run.header.predicted is not None and run.header.predicted.roles and first.whole == 0:
        lines.append(
            "The first step moved nothing, at a learning rate of 0: nothing is held against what was predicted."
        )
    elif why := _why_none(run):
        lines.append(f"The first step was not predicted: {why}.")
    return lines


def _why_none(run: Run) -> str:
    """Why nothing was predicted of the first step; empty where something was, or in a file of before."""
    return (run.header.predicted.why if run.header.predicted is not None else None) or ""


def _is_beyond(run: Run, role: str, share: float | None) -> bool:
    change, ends = change_of(run.taken[0], role), predicted_of(run, role)
    return bool(ends and change and (share or 0.0) >= MATTERS and not ends[0] <= change <= ends[1])


def _beyond(run: Run, role: str) -> str:
    """A role that moved otherwise than predicted, and how far beyond the nearer end."""
    change, (low, high) = change_of(run.taken[0], role) or 0.0, predicted_of(run, role) or (math.nan, math.nan)
    return (
        f"{role} ({change / low:.2g} of the least)" if change < low else f"{role} ({change / high:.2g} times the most)"
    )


def between(ends: tuple[float, float]) -> str:
    """In words.

    >>> from depthlaw.watching.compare import between
    >>> between((0.0312, 0.0567))
    '0.031 to 0.057'
    """
    low, high = (f"{end:.2g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def document_of(run: Run) -> dict[str, Any]:
    """As that of a comparison, of one run by itself."""
    return {"runs": [_run_document(run)], "verdict": described(run)}


def _run_document(run: Run) -> dict[str, Any]:
    return {
        "path": run.path,
        "header": run.header.model_dump(mode="json"),
        "later": [header.model_dump(mode="json") for header in run.later],
        "looks": [look.model_dump(mode="json") for look in run.looks],
        "first_step": [
            {"role": role, "measured": change_of(run.taken[0], role), "predicted": predicted_of(run, role)}
            for role in (WHOLE, *run.taken[0].roles)
        ],
    }


def columns(places: Sequence[int], most: int = 5) -> list[int]:
    """A few of them for a table, the first and the last among them, about equally far apart on a logarithmic scale.

    >>> from depthlaw.watching.compare import columns
    >>> columns([0, 1, 2, 4, 8, 16, 32, 64, 100, 200, 300, 400])
    [0, 4, 16, 100, 400]
    """
    if len(places) <= most:
        return list(places)
    first, last = math.log1p(places[0]), math.log1p(places[-1])
    wanted = [first + part * (last - first) / (most - 1) for part in range(most)]
    return sorted({min(places, key=lambda place: abs(math.log1p(place) - at)) for at in wanted})
