"""The groups of the user's optimizer: tensors in none, in two and of no module, and rates that follow no law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from depthlaw.auditing.expected import times
from depthlaw.auditing.faults import Amount, Fault, Faults, Remark, distinct, listed
from depthlaw.auditing.fixes import Edit
from depthlaw.auditing.groups import Groups, Setting, is_of_branch, roles_of
from depthlaw.auditing.laws import CLEAR, NEAR
from depthlaw.auditing.models import Beside, Depth, Models
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.sims.optim import NORMALISATION

_FEW = 4
"""Shapes of tensors that are told."""


def _deepest(models: Models, wrong: Callable[[Groups], Sequence[str]]) -> Sequence[str]:
    """What is wrong in the deepest model of which anything is."""
    by_depth = (wrong(depth.groups) for depth in reversed(models.depths) if depth.groups is not None)
    return next((names for names in by_depth if names), ())


def ungrouped(models: Models) -> Faults:
    """Trained parameters that no step of the optimizer moves."""
    names = _deepest(models, lambda groups: [name for name, several in groups.settings.items() if not several])
    if names:
        yield Fault(
            kind="no-group",
            says="Parameters that are trained are in no group of the optimizer, so that they stay as they start.",
            where=tuple(names),
            amount="in no group",
            asked="in one group",
            program=(Edit('groups.append({"params": [...]})  # or requires_grad_(False) of what is to stay'),),
        )


def grouped_twice(models: Models) -> Faults:
    """Parameters that are moved more than once a step."""
    names = _deepest(models, lambda groups: [name for name, several in groups.settings.items() if len(several) > 1])
    if names:
        yield Fault(
            kind="two-groups",
            says="Parameters are in more than one group, so that one step moves them more than once.",
            where=tuple(names),
            amount="in two groups or more",
            asked="in one group",
            program=(Edit("# leave them out of all groups but one"),),
        )


def strangers(models: Models) -> Faults:
    """Tensors that the model does not have, such as those of the model before it was copied."""
    shapes = _deepest(models, lambda groups: [" x ".join(map(str, shape)) or "a number" for shape in groups.strangers])
    if shapes:
        several = f"{len(shapes)} tensors that are" if len(shapes) > 1 else "a tensor that is"
        yield Fault(
            kind="stale-group",
            says="The optimizer has {several} no parameter of the model, as after a copy or a parameter made anew.",
            terms={"several": several},
            amount=f"of {', '.join(shapes[:_FEW])}{' ...' if len(shapes) > _FEW else ''}",
            asked="parameters of the model alone",
            program=(Edit("# make the optimizer after all that replaces parameters of the model"),),
        )


def decayed(models: Models) -> Faults:
    """Weight decay of vectors and of the embedding, which some recipes have on purpose."""
    depth, groups = models.last, models.last.groups
    if groups is None:
        return
    parameters = dict(depth.built.module.named_parameters())
    vectors: dict[float, Counter[str]] = {}
    for name, roles in roles_of(depth.built).items():
        decays = {setting.weight_decay for setting in groups.settings[name] if setting.weight_decay}
        for decay in decays:
            if parameters[name].ndim < 2:
                vectors.setdefault(decay, Counter())[", ".join(roles)] += 1
            elif roles == ("embedding",) and name not in depth.built.tied:
                yield Remark(f"the embedding ({name}) has weight decay, {decay:.3g}, as some recipes have on purpose")
    for decay, number in vectors.items():
        text = listed([f"{role} ({count})" for role, count in number.items()])
        yield Remark(
            f"vectors have weight decay, {decay:.3g}, which draws them to 0: {text}; most recipes decay matrices alone"
        )


# ---------------------------------------------------------------- beside a scheme


class _Told(NamedTuple):
    """Of a parameter at a depth: what its group says, and what the scheme multiplies that by."""

    depth: Depth
    name: str
    value: float
    multiplier: float


def rates(beside: Beside) -> Faults:
    """Learning rates that do not go with depth as the scheme's do. What they are at the fewest layers is the user's."""
    yield from _other_optimizer(beside)
    by_roles = _told(beside, 0, lambda setting: setting.learning_rate)
    if by_roles and len(beside.depths) == 1:
        yield Remark("how learning rates go with depth is compared where several numbers of layers are built")
    for roles, settings in by_roles.items():
        yield from _off(beside, "rate", "learning rate", "lr", roles, settings, lambda _: NEAR)


def between_roles(beside: Beside) -> Faults:
    """Learning rates that differ between matrices of the branches at one depth, which a scheme or recipe gives one."""
    depth, roles_at = beside.last, dict[float, dict[str, None]]()
    for name, roles in roles_of(depth.built).items():
        settings = () if depth.groups is None else depth.groups.settings[name]
        if settings and (rate := settings[0].learning_rate) and set(roles) <= set(BRANCH_ROLES):
            roles_at.setdefault(rate, {}).update(dict.fromkeys(roles))
    if len(roles_at) > 1:
        text = "; ".join(f"{rate:.4g} of {listed([*roles])}" for rate, roles in sorted(roles_at.items()))
        yield Remark(
            f"matrices of the branches have different learning rates, {text}; {beside.name} gives all of them one, "
            "with which the update is predicted"
        )


def epsilons(beside: Beside) -> Faults:
    """Epsilons of Adam that do not go with depth as the scheme's do: that are nearer to none of it than to it."""
    by_roles = _told(beside, 1, lambda setting: None if (setting.optimizer or "").lower() == "muon" else setting.eps)
    for roles, settings in by_roles.items():
        if any(setting.multiplier != 1 for setting in settings):
            yield from _off(
                beside, "eps", "epsilon", "eps", roles, settings, lambda ratio: max(CLEAR, abs(math.log(ratio)) / 2)
            )


def _other_optimizer(beside: Beside) -> Iterator[Remark]:
    audited = beside.claimed.optimizer
    groups = beside.last.groups
    known = [name for name in ([] if groups is None else groups.optimizers) if name.lower() in NORMALISATION]
    same = {"momentum": "sgd"}.get(audited, audited).split("+")
    if known and not any(name.lower() in same for name in known):
        yield Remark(f"the groups are of {listed(known)}, and what is expected of them is for {audited}: --optimizer")


def _told(beside: Beside, which: int, value: Callable[[Setting], float | None]) -> dict[tuple[str, ...], list[_Told]]:
    """By roles, at all depths. which: of the scheme's multipliers."""
    by_roles: dict[tuple[str, ...], list[_Told]] = {}
    for depth in beside.depths:
        multipliers = beside.claimed.multipliers(depth.built, depth.counts)
        if multipliers is None or depth.groups is None:
            continue
        for name, roles in roles_of(depth.built).items():
            is_branch = is_of_branch(depth.built, name, roles)
            settings = depth.groups.settings[name]
            if is_branch is None or not settings or (number := value(settings[0])) is None:
                continue
            by_roles.setdefault(roles, []).append(_Told(depth, name, number, multipliers[which] if is_branch else 1.0))
    return by_roles


def _off(
    beside: Beside,
    kind: str,
    of: str,
    key: str,
    roles: tuple[str, ...],
    settings: Sequence[_Told],
    allowed: Callable[[float], float],
) -> Faults:
    """allowed: of a logarithm, by what the scheme multiplies the value at the fewest layers by."""
    first = settings[0].multiplier

    def off(start: float) -> list[_Told]:
        return [
            setting
            for setting in settings
            if _differs(setting.value, start * setting.multiplier, allowed(setting.multiplier / first))
        ]

    # of what there is at the fewest layers, what leaves the fewest others off
    starts = distinct(setting.value / first for setting in settings if setting.depth is settings[0].depth)
    start = min(starts, key=lambda start: len(off(start)))
    if not (wrong := off(start)):
        return
    depths = distinct(setting.depth.asked for setting in settings)
    law = beside.claimed.law_of_groups(key, beside.last.built) if settings[-1].multiplier != 1 else "1"
    yield Fault(
        kind=f"group-{kind}",
        says=f"The {of} of {{roles}} does not go with depth as {{name}}'s does.",
        terms={"name": beside.name},
        where=distinct(setting.name for setting in wrong if setting.depth is wrong[-1].depth),
        amount=Amount(
            of, {at: sorted({setting.value for setting in settings if setting.depth.asked == at}) for at in depths}
        ),
        asked=Amount(of, {setting.depth.asked: [start * setting.multiplier] for setting in settings}),
        program=(Edit(f'group["{key}"] = {times(start, law)}'),),
        roles=roles,
    )


def _differs(value: float, wanted: float, allowed: float) -> bool:
    return value != wanted if min(value, wanted) <= 0 else abs(math.log(value / wanted)) > allowed
