"""Laws of depth that no model means to have: on what does not write to the stream, or without the first layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from depthlaw.auditing.faults import Amount, Fault, Faults, distinct, listed
from depthlaw.auditing.fixes import NORMAL, Assign, Code, Entry, Fix
from depthlaw.auditing.laws import SMALL, UNLIKELY, Point, mean_ratio
from depthlaw.auditing.models import Key, Models

_WRITTEN_BY = {"fc1": ("fc2",), "fc3": ("fc2",), **dict.fromkeys("qk", ("v", "out"))}
_WRITTEN_BY |= {f"cross_{role}": ("cross_v", "cross_out") for role in "qk"}
"""By role, the matrices of which one should have its law of depth: those that write to the stream, or for queries and
keys the values, whose scale is that of the branch as well (Hugging Face's CLIP has it there)."""
_WRITES = {"v": ("out",), "cross_v": ("cross_out",), "fc1": ("fc2",), "fc3": ("fc2",)}
"""By role, the matrix that writes to the stream what it made; of queries and keys all that do."""
_WRITERS = ("out", "cross_out", "fc2")
_FLAT = "The {roles} matrices follow a law of depth, and those that write to the stream none."
_OF_GATED = "The up matrix of the gated FFN follows a law of depth, "


def lonely_laws(models: Models) -> Faults:
    """Depth laws on what does not write to the stream, and not on what does."""
    lonely = _lonely(models)
    for (side, role), says in lonely.items():
        yield Fault(
            kind="init-law",
            says=says,
            where=distinct(w.name for w in models.last.built.weights if w.role == role and w.side == side),
            amount=Amount("std", models.whole_laws[side, role]),
            asked="the law on the matrices that write to the stream, out and fc2, alone",
            program=_moved(models, side, [of for at, of in lonely if at == side]),
            roles=(role,),
            side=side,
        )


def _lonely(models: Models) -> dict[Key, str]:
    laws = models.whole_laws
    lonely: dict[Key, str] = {}
    for (side, role), law in laws.items():
        known = [of for name in _WRITTEN_BY.get(role, ()) if (of := laws.get((side, name))) is not None]
        if law.is_flat or not known or len(known) < len(_WRITTEN_BY[role]):
            continue
        is_flat = all(of.is_flat for of in known)
        gate = laws.get((side, "fc1"))
        if role == "fc3" and gate is not None and gate.is_flat:
            rest = "and those that write to the stream none." if is_flat else "beside the output matrix."
            lonely[side, role] = _OF_GATED + rest
        elif is_flat and min(of.misfit for of in (law, *known)) > UNLIKELY:
            lonely[side, role] = _FLAT
    for side, role in list(lonely):
        # where FFNs have the law on the wrong matrix, values have it by the same mistake
        for prefix in ("", "cross_"):
            mine, behind = (laws.get((side, f"{prefix}{of}")) for of in ("v", "out"))
            if role == "fc1" and mine is not None and behind is not None and behind.is_flat and not mine.is_flat:
                for of in ("q", "k", "v"):
                    if (law := laws.get((side, f"{prefix}{of}"))) is not None and not law.is_flat:
                        lonely[side, f"{prefix}{of}"] = lonely[side, role]
    return lonely


def _moved(models: Models, side: str, roles: Sequence[str]) -> Fix:
    """These roles without their law of depth, and with it what writes to the stream."""
    points = _points(models, side)
    flat, plain, factor, law = _taken_off(models, side, roles)
    called, number = models.called(side), models.last.counts[side]
    written = {of for role in roles for of in _WRITES.get(role, ("out", "cross_out", "fc2"))}
    stds = {role: f"{value:.4g}" for role, value in plain.items()}
    stds |= {role: f"{value * factor:.4g}{law}" for role, value in flat.items() if role in written}
    return [
        Assign(
            NORMAL,
            tuple(
                Entry(p.name, p.rows, p.layer, std)
                for p in points[role]
                if p.num_layers == number and p.rows is not None
            ),
            std,
            called,
            number,
        )
        for role, std in stds.items()
    ]


def _points(models: Models, side: str) -> dict[str, list[Point]]:
    return {role: of_role for (at, role), of_role in models.points.items() if at == side}


def _taken_off(
    models: Models, side: str, roles: Sequence[str]
) -> tuple[dict[str, float], dict[str, float], float, str]:
    """The law of depth of these roles taken off them: what roles without a law start at, what these would start at, and
    the law itself, a factor and Python."""
    points = _points(models, side)
    laws = {role: models.whole_laws.get((side, role)) for role in points}  # of a role that starts at 0 there is none
    flat = {
        role: mean_ratio(points[role])
        for role, law in laws.items()
        if law is not None and law.is_flat and all(point.std > 0 for point in points[role])
    }
    like, scale = next(iter(flat.items()))
    if max(flat.values()) < (1 + SMALL) * min(flat.values()):
        plain = dict.fromkeys(roles, scale)
    else:  # each by its shape
        off = [abs(math.log(scale / base)) for base in points[like][-1].bases]
        plain = {role: points[role][-1].bases[off.index(min(off))] for role in roles}
    of_number, of_layer = models.whole_laws[side, roles[0]].simple_powers
    factor = mean_ratio(
        [
            replace(point, asked=plain[role] * point.num_layers**of_number * point.layer**of_layer)
            for role in roles
            for point in points[role]
        ]
    )
    law = f" * {models.called(side)}**{of_number:.3g}" if of_number else ""
    law += f" * layer**{of_layer:.3g}" if of_layer else ""
    return flat, plain, factor, law


def partial_laws(models: Models) -> Faults:
    """A law of the number of layers on some of the matrices that write to the stream, and not on the others, where
    nothing else of the branches hangs on that number."""
    for side in models.last.built.sides:
        ruled, flat = _ruled_and_flat(models, side)
        if not ruled or not flat:
            continue
        starts, _, factor, law = _taken_off(models, side, ruled)
        for role in flat:
            points = models.points[side, role]
            values = [(p, f"{starts[role] * factor * p.by_shape:.4g}{law}") for p in points]
            is_one = len({value for _, value in values}) == 1
            yield Fault(
                kind="init-law",
                says="The {roles} matrices write to the stream without the law of depth of {ruled}.",
                terms={"ruled": listed(ruled)},
                where=distinct(w.name for w in models.last.built.weights if w.role == role and w.side == side),
                amount=Amount("std", models.whole_laws[side, role]),
                asked=f"std {starts[role] * factor:.3g}{law}, as of {listed(ruled)}",
                program=[
                    Assign(
                        NORMAL,
                        tuple(Entry(p.name, p.rows or "", p.layer, of) for p, of in values if p.num_layers == number),
                        None,
                        models.called(side),
                        number,
                    )
                    for number in sorted({p.num_layers for p in points})[-1 if is_one else 0 :]
                ],
                roles=(role,),
                side=side,
            )


def _ruled_and_flat(models: Models, side: str) -> tuple[list[str], list[str]]:
    """Of the roles that write to the stream, those with a law of the number of layers and those without one; none where
    other roles or the weights of branches hang on that number, or what a branch gives is normalised."""
    laws = {role: law for (at, role), law in models.whole_laws.items() if at == side}
    written = [role for role in laws if role in _WRITERS]
    ruled = [role for role in written if laws[role].has_power and not laws[role].has_layer_power]
    flat = [role for role in written if laws[role].is_flat and all(p.std > 0 for p in models.points[side, role])]
    every = [sub for depth in models.depths for sub in depth.built.sides.get(side, ())]
    if (
        len(ruled) + len(flat) < len(written)
        or not all(law.is_flat for role, law in laws.items() if role not in written)
        or min(law.misfit for law in laws.values()) < UNLIKELY
        or any(sub.trained or "branch" in sub.norms for sub in every)
        or len({round(weight, 6) for sub in every for weight in (sub.branch_weight, sub.residual_weight)}) > 1
        or any(point.rows is None for role in flat for point in models.points[side, role])
    ):
        return [], []
    return ruled, flat


def first_layers(models: Models) -> Faults:
    """The first layer without the law of depth that all others have, as of a loop that begins at the second."""
    for (side, role), apart in models.first_layers.items():
        of_number, _ = apart.law.simple_powers
        constant = mean_ratio([replace(p, asked=p.num_layers**of_number) for p in apart.rest])
        std = f"{constant:.4g} * {models.called(side)}**{of_number:.3g}"
        entries = {p.name: Entry(p.name, p.rows, p.layer, std) for p in apart.first if p.rows is not None}
        yield Fault(
            kind="init-law",
            says="The {roles} matrices of the first layer start without the law of depth that all others follow.",
            where=distinct(point.name for point in apart.first),
            amount=Amount("std", apart.of_first, f" in the first layer, {apart.law.text} in the others"),
            asked=Amount("std", apart.law),
            program=[Code(NORMAL.format(f'"{name}"', entry.rows, std)) for name, entry in entries.items()],
            roles=(role,),
            side=side,
        )
