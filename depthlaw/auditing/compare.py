"""All checks of a module at several depths, alone and beside the scheme or recipe that it claims to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from depthlaw.auditing.checks import (
    ALWAYS,
    BESIDE_CLAIM,
    GROUPS_BESIDE_CLAIM,
    NUMBERS,
    OF_EPSILONS,
    OF_GROUPS,
    WITHOUT_CLAIM,
    collect,
)
from depthlaw.auditing.expected import Claimed, Pair
from depthlaw.auditing.faults import Fault
from depthlaw.auditing.laws import Law
from depthlaw.auditing.models import Beside, Depth, Key, Models
from depthlaw.auditing.reading.look import Built

NOT_INDEPENDENT = ("identical-layers", "shared-layers")
"""Faults of which the kernel rung, whose layers are drawn independently, predicts what there would be without them."""


@dataclass(frozen=True)
class Findings:
    """faults: of each role by itself. laws, asked_laws: of initialisations, by side and role. bases: beside a scheme,
    the standard deviation of a role at gain 1 over Xavier's, by the initialisation that most roles have. pairs: at the
    greatest depth, what is there beside what is asked for; none where nothing is claimed."""

    faults: tuple[Fault, ...]
    remarks: tuple[str, ...]
    laws: Mapping[Key, Law] = field(default_factory=dict)
    asked_laws: Mapping[Key, Law] = field(default_factory=dict)
    bases: Mapping[Key, float] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()


def compare(
    depths: Sequence[Depth], claimed: Claimed | None, deeper: Callable[[int], Built | None] = lambda _: None
) -> Findings:
    """All faults and remarks of a module at several depths; where parameters are no numbers, that alone. deeper: builds
    another depth where these leave open whether layers follow a rule, or gives None."""
    models = Models(depths, deeper) if claimed is None else Beside(depths, claimed, deeper)
    faults, remarks = collect(NUMBERS, models)
    if faults:
        return Findings(tuple(faults), ())
    checks = (*ALWAYS, *(WITHOUT_CLAIM if claimed is None else ()), *OF_EPSILONS)
    faults, remarks = collect(checks, models)
    if not isinstance(models, Beside):
        return Findings(tuple(faults), tuple(remarks), models.laws)
    beside = models
    theirs, more = collect(BESIDE_CLAIM, beside, faults)
    if theirs and any(fault.kind == "depth-ignored" for fault in faults):
        # the module's own laws may count the layers that were asked for: then that one fault explains the others
        counted = [replace(depth, counts=dict.fromkeys(depth.counts, depth.asked)) for depth in depths]
        other = Beside(counted, beside.claimed)
        others, and_more = collect(BESIDE_CLAIM, other, faults)
        if len(others) < len(theirs):
            beside, theirs, more = other, others, and_more
    return Findings(
        (*faults, *theirs),
        tuple(dict.fromkeys([*remarks, *more])),
        beside.laws,
        beside.asked_laws,
        beside.bases,
        beside.pairs[-1][1],
    )


def compare_groups(depths: Sequence[Depth], claimed: Claimed | None) -> tuple[list[Fault], list[str]]:
    """Faults and remarks of the groups of the user's optimizer; none where it is not given."""
    if depths[-1].groups is None:
        return [], []
    faults, remarks = collect(OF_GROUPS, Models(depths))
    if claimed is None:
        return faults, remarks
    beside, more = collect(GROUPS_BESIDE_CLAIM, Beside(depths, claimed))
    return [*faults, *beside], [*remarks, *more]
