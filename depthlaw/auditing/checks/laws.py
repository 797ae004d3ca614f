"""Laws of depth that no model means to have: on what does not write to the stream, or without the first layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from depthlaw.auditing.faults import Amount, Fault, Faults, distinct, listed
from depthlaw.auditing.fixes import NORMAL, Assign, Code, Entry, Fix
from depthlaw.auditing.laws import SMALL, UNLIKELY, Point, fit, mean_ratio
from depthlaw.auditing.models import Key, Models
from depthlaw.auditing.reading.look import pattern_of

Groups = dict[str, list[Point]]

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
    points = {role: of_role for (at, role), of_role in models.points.items() if at == side}
    laws = {role: models.whole_laws.get((side, role)) for role in points}  # of a role that starts at 0 there is none
    without = {role: points[role] for role, law in laws.items() if law is not None and law.is_flat}
    flat, plain, factor, law = _taken_off(
        {role: of_role for role, of_role in without.items() if all(point.std > 0 for point in of_role)},
        {role: points[role] for role in roles},
        models.whole_laws[side, roles[0]].simple_powers,
        models.called(side),
    )
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
            models.own(side),
        )
        for role, std in stds.items()
    ]


def _taken_off(
    flat: Groups, ruled: Groups, powers: tuple[float, float], called: str
) -> tuple[dict[str, float], dict[str, float], float, str]:
    """The law of depth of some matrices taken off them: what those without a law start at, what these would start at,
    and the law itself, a factor and Python."""
    starts = {name: mean_ratio(points) for name, points in flat.items()}
    like, scale = next(iter(starts.items()))
    if max(starts.values()) < (1 + SMALL) * min(starts.values()):
        plain = dict.fromkeys(ruled, scale)
    else:  # each by its shape
        off = [abs(math.log(scale / base)) for base in flat[like][-1].bases]
        plain = {name: points[-1].bases[off.index(min(off))] for name, points in ruled.items()}
    of_number, of_layer = powers
    factor = mean_ratio(
        [
            replace(point, asked=plain[name] * point.num_layers**of_number * point.layer**of_layer)
            for name, points in ruled.items()
            for point in points
        ]
    )
    law = f" * {called}**{of_number:.3g}" if of_number else ""
    law += f" * layer**{of_layer:.3g}" if of_layer else ""
    return starts, plain, factor, law


def partial_laws(models: Models) -> Faults:
    """A law of the number of layers on some of the matrices that write to the stream, and not on the others, such as
    those of shared experts, where nothing else of the branches hangs on that number."""
    for side in models.last.built.sides:
        inner, ruled, flat = _ruled_and_flat(models, side)
        if not inner or not ruled or not flat:
            continue
        powers = fit(next(iter(ruled.values())), lambda point: point.std).simple_powers
        starts, _, factor, law = _taken_off(inner | flat, ruled, powers, models.called(side))
        roles = {weight.name: weight.role for weight in models.last.built.weights}
        for name, points in flat.items():
            yield Fault(
                kind="init-law",
                says="The {roles} matrices write to the stream without the law of depth of {others}.",
                terms={"others": listed([*ruled])},
                where=distinct(p.name for p in points if p.num_layers == points[-1].num_layers),
                amount=Amount("std", fit(points, lambda point: point.std)),
                asked=f"std {starts[name] * factor:.3g}{law}",
                program=_drawn_by(models, side, points, starts[name] * factor, law),
                roles=(roles[points[-1].name],),
                side=side,
            )


def _drawn_by(models: Models, side: str, points: Sequence[Point], constant: float, law: str) -> Fix:
    """Matrices whose names differ in numbers alone, each drawn by this law times what its shape makes of it: by what
    their names have in common, where no other has that and all are alike; else of each depth."""
    names = {point.name for point in points}
    first, *parts = pattern_of(points[0].name).split("*")
    if {(point.by_shape, point.rows) for point in points} == {(1.0, "")} and parts:
        *middle, last = parts
        inside = [name for name, _ in models.last.built.module.named_parameters() if name.startswith(first)]
        alike = {name for name in inside if name.endswith(last) and all(part in name for part in middle)}
        if alike - set(models.last.built.unused) == names.intersection(inside):  # an expert may get no token
            asks = [
                f'name.startswith("{first}")',
                *(f'"{part}" in name' for part in middle),
                f'name.endswith("{last}")',
            ]
            draw = f"    torch.nn.init.normal_(parameter, std={constant:.4g}{law})"
            return (Code("for name, parameter in model.named_parameters():", (f"if {' and '.join(asks)}:", draw)),)
    return [
        Assign(
            NORMAL,
            tuple(
                Entry(p.name, p.rows or "", p.layer, f"{constant * p.by_shape:.4g}{law}")
                for p in points
                if p.num_layers == number
            ),
            None,
            models.called(side),
            number,
        )
        for number in sorted({p.num_layers for p in points})
    ]


def _ruled_and_flat(models: Models, side: str) -> tuple[Groups, Groups, Groups]:
    """What does not write to the stream, by role; and, by their names but for numbers, the matrices that do, with a law
    of the number of layers and without one. None where anything else hangs on that number, or what a branch gives is
    normalised."""
    written: Groups = {}
    for (at, role), points in models.points.items():
        for point in points if at == side and role in _WRITERS else ():
            name = pattern_of(point.name)
            written.setdefault(name if name != point.name else role, []).append(point)
    inner = {role: of for (at, role), of in models.points.items() if at == side and role not in _WRITERS}
    every = [sub for depth in models.depths for sub in depth.built.sides.get(side, ())]
    if (
        not all(point.std > 0 for points in (*written.values(), *inner.values()) for point in points)
        or any(sub.trained or "branch" in sub.norms for sub in every)
        or len({round(weight, 6) for sub in every for weight in (sub.branch_weight, sub.residual_weight)}) > 1
        or any(point.rows is None for points in written.values() for point in points)
        or any(len({point.num_layers for point in points}) < 2 for points in written.values())
    ):
        return {}, {}, {}
    laws = {name: fit(points, lambda point: point.std) for name, points in (written | inner).items()}
    flat = {name: written[name] for name in written if laws[name].is_flat}
    ruled = {name: written[name] for name in written if laws[name].has_power and not laws[name].has_layer_power}
    is_clear = len(flat) + len(ruled) == len(written) and min(law.misfit for law in laws.values()) > UNLIKELY
    return (inner, ruled, flat) if is_clear and all(laws[role].is_flat for role in inner) else ({}, {}, {})


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
