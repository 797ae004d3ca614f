"""Initialisations: the law of each role's standard deviation beside the claim's, in depth, layer and constant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from depthlaw.auditing.expected import times
from depthlaw.auditing.faults import Amount, Fault, Faults, Remark, distinct, few, layers_text
from depthlaw.auditing.fixes import NORMAL, Assign, Entry, Fix
from depthlaw.auditing.laws import (
    SMALL,
    SURE,
    UNLIKELY,
    Law,
    Point,
    by_number,
    counted_otherwise,
    fit,
    is_near,
    layers_of,
    mean,
    mean_ratio,
    middle_ratio,
    odd_points,
    scatter,
    share_of_layers,
)
from depthlaw.auditing.models import Beside, Key

_SMALL_CONSTANT = 0.015
"""Relative: constants of usual initialisations lie further apart."""
_CUTS = (1.0, 0.8796, 0.9866)
"""Of a normal's standard deviation, where it is not cut, and cut at two and three of them."""
_LAW, _CONSTANT = "init-law", "init-constant"


def initialisations(beside: Beside) -> Faults:
    """Each role's matrices beside what is asked for; not where some layers are not read, since rules count them."""
    if beside.last.built.joined:
        yield Remark(
            f"the initialisation is not compared with {beside.claimed.name}: rules count layers, and not all were read"
        )
        return
    factors = {side: beside.common_factor(side) for side in beside.last.built.sides} if beside.starts else {}
    cut: dict[str, list[str]] = {}
    for key in beside.starts:
        role = _Role(beside, key)
        for finding in _whole(role, factors[key[0]]):
            if isinstance(finding, Fault):
                yield finding
            else:
                cut.setdefault(finding.says, []).extend(finding.roles)
    yield from (Remark(says, distinct(roles)) for says, roles in cut.items())


@dataclass(frozen=True)
class _Role:
    """A role of a side, beside what is asked of it."""

    beside: Beside
    key: Key

    @property
    def points(self) -> list[Point]:
        return self.beside.starts[self.key]

    @property
    def law(self) -> Law:
        return self.beside.laws[self.key]

    @property
    def asked(self) -> Law:
        return self.beside.asked_laws[self.key]

    @property
    def error(self) -> float:
        """The relative difference of their scale that no draw makes."""
        return max(scatter(sum(point.entries for point in self.points)), SMALL)

    def is_a_start(self, value: float) -> bool:
        """Whether a standard deviation at gain 1 is that of a usual initialisation, or of another role."""
        plain = self.beside.plain.values()
        starts = [cut * base for base in (*self.points[-1].bases, *plain) for cut in _CUTS if base > 0]
        return any(abs(math.log(value / start)) < max(self.error, _SMALL_CONSTANT) for start in starts)

    def fault(self, kind: str, says: str, points: Sequence[Point] | None = None, **terms: float | str) -> Fault:
        """What is said of the role, at some of its points or all; the sentence may name the claim."""
        beside, (side, role) = self.beside, self.key
        points = self.points if points is None else points
        law, asked = beside.laws.get(self.key), beside.asked_laws.get(self.key)
        amount = Amount("std", asked) if asked else "std 0"
        if asked and not beside.is_absolute:
            of_std = replace(asked, constant=asked.constant * beside.scales[self.key])
            amount = Amount("std", of_std, f", a gain of {asked.text} on the initialisation's own")
        elif not beside.is_absolute:
            amount = "std 0, a gain of 0 on the initialisation's own"
        return Fault(
            kind=kind,
            says=says,
            terms={"name": beside.name, **terms},
            where=distinct(point.name for point in points),
            amount=Amount("std", law) if law else "std 0",
            asked=amount,
            program=self._drawn(points),
            roles=(role,),
            side=side,
        )

    def _drawn(self, points: Sequence[Point]) -> Fix:
        """The matrices at these points drawn as they should be: of all layers by a formula, of some for each depth."""
        beside, (side, role) = self.beside, self.key
        scale = 1.0 if beside.is_absolute else beside.scales[self.key]
        last = points[-1].num_layers
        depth = next(depth for depth in beside.depths if depth.counts[side] == last)
        layers = {p.layer for p in points if p.num_layers == last}
        is_all = all(p.by_shape == 1 for p in points) and len(layers) == depth.own_counts[side]
        formula = times(float(f"{scale:.4g}"), beside.law("std", depth, side, role)) if is_all else None
        drawn = [
            Assign(
                NORMAL,
                tuple(
                    Entry(p.name, p.rows, p.layer, f"{p.asked * scale * p.by_shape:.4g}")
                    for p in of_number
                    if p.rows is not None
                ),
                formula,
                beside.called(side),
                number,
                beside.own(side),
            )
            for number, of_number in by_number(points).items()
            if number == last or not is_all
        ]
        if beside.is_absolute or not beside.usual:  # a scheme's would be on Xavier's initialisation
            return [*drawn, beside.initialise("all of them")]
        return drawn


def _whole(role: _Role, factor: float | None) -> Faults:
    """What is said of a role. factor: what all scaled matrices of its side have too much, where that is known."""
    points = role.points
    zero, wants_zero = ([p for p in points if value(p) == 0] for value in (lambda p: p.std, lambda p: p.asked))
    if zero or wants_zero:
        yield from _zeros(role, zero, wants_zero)
        return
    ratio = fit(points, lambda point: point.std / point.asked)
    is_off = not ratio.is_flat or ratio.misfit < UNLIKELY
    if is_off and role.asked.has_layer_power and counted_otherwise(points):
        yield role.fault(_LAW, _law_text(role, ratio))
    elif ratio.misfit < UNLIKELY and (odd := odd_points(points, is_few=not ratio.is_flat)):
        yield _odd_fault(role, odd)
    elif not ratio.is_flat:
        yield _of_law(role, ratio)
    elif role.beside.is_absolute:
        yield from _of_recipe(role)
    elif not (role.asked.is_flat and is_near(role.asked.constant, 1.0, 1e-6)):
        # a scheme leaves the constant of what it does not scale to the initialisation
        yield from _of_scheme(role, factor)


def _zeros(role: _Role, zero: Sequence[Point], wants_zero: Sequence[Point]) -> Iterator[Fault]:
    num_points = len(role.points)
    if not wants_zero and len(zero) == num_points:
        yield role.fault(_LAW, "The {roles} matrices start at 0.")
    elif wants_zero and not zero:
        yield role.fault(_LAW, "The {roles} matrices do not start at 0.")
    elif zero and not wants_zero:
        number = zero[-1].num_layers
        of = f"{layers_text({p.layer for p in zero if p.num_layers == number})} of {number}"
        fault = role.fault(_LAW, "Some {roles} matrices start at 0: {which}.", zero, which=of)
        yield replace(fault, amount=Amount("std 0 in these layers,", role.law, " in the others"))


def _odd_fault(role: _Role, odd: Sequence[Point]) -> Fault:
    """Of some layers whose matrices start at another scale than the rest's."""
    centre = middle_ratio(role.points)
    layers = few(list(dict.fromkeys(f"layer {p.layer} of {p.num_layers}" for p in odd)))
    fault = role.fault(
        _LAW,
        "Some {roles} matrices start at another scale than the rest: {which}.",
        odd,
        which=layers.removesuffix(" ...") + (" and others" if layers.endswith("...") else ""),
    )
    stds = tuple((p.std, p.layer, p.num_layers) for p in odd)
    asked = tuple((p.asked * centre, p.layer, p.num_layers) for p in odd)
    return replace(fault, amount=Amount("std", stds), asked=Amount("as the rest, std", asked))


def _of_law(role: _Role, ratio: Law) -> Fault:
    """Another law of depth than what is asked for."""
    if whose := _whose(role):
        return role.fault(_LAW, _WHOSE, whose=whose)
    if role.law.is_flat and not role.asked.has_layer_power and not role.is_a_start(role.law.constant):
        asked_at = {point.num_layers: point.asked for point in role.points}
        if at := layers_of(_fixed_gain(role), asked_at, role.error):
            which = f"which is {{name}}'s at about {at} layers"
            return role.fault(_LAW, f"The {{roles}} matrices start at the same scale at every depth, {which}.")
    return role.fault(_LAW, _law_text(role, ratio))


_WHOSE = "The {roles} matrices follow the law of {whose}."


def _of_recipe(role: _Role) -> Faults:
    """Another constant than a recipe's, which may be that of draws that are cut."""
    factor = mean_ratio(role.points)
    if abs(math.log(factor)) <= role.error:
        return
    is_cut = (cut for cut in _CUTS[1:] if abs(abs(math.log(factor)) + math.log(cut)) < role.error)
    if (cut := next(is_cut, None)) is not None:
        by = f"{1 / cut if factor > 1 else cut:.3g}"
        draws = "draws that are cut at two or three standard deviations and draws that are not"
        says = f"{{roles}} {{start}} at {by} times {role.beside.name}'s scale, the factor between {draws}"
        yield Remark(says, (role.key[1],))
        return
    share = share_of_layers(factor, role.asked.power)
    of = f", that of {share} as many layers" if share else ""
    says = "The {roles} matrices start at {factor:.3g} times the scale of {name}{of}."
    yield role.fault(_CONSTANT, says, factor=factor, of=of)


def _of_scheme(role: _Role, factor: float | None) -> Iterator[Fault]:
    """Another constant than what gains multiply. factor: as it is of all scaled matrices together."""
    if factor is None:
        base, where = mean_ratio(role.points), "the initialisation of the others"
        if role.is_a_start(base) or (role.beside.has_unknown(role.key[0]) and role.key not in role.beside.by_others):
            return
        factor = base / role.beside.scales[role.key]
        if role.key in role.beside.by_others and abs(math.log(factor)) <= role.error:
            return
    elif abs(math.log(factor)) > role.error:
        where = "the matrices that it leaves alone"
    else:
        return
    if whose := _whose(role):
        yield role.fault(_CONSTANT, _WHOSE, whose=whose)
    else:
        says = "The {roles} matrices follow the law of {name} with another constant: x {factor:.3g} beside {where}."
        yield role.fault(_CONSTANT, says, factor=factor, where=where)


# ---------------------------------------------------------------- causes


def _whose(role: _Role) -> str | None:
    """Where else the scheme has the gains of a role; None of a recipe's."""
    beside, (side, name) = role.beside, role.key
    if beside.is_absolute:
        return None
    for words, there in beside.elsewhere(side):
        off: list[float] = []
        is_own = True  # what is asked for here, too
        for depth, sublayers in zip(beside.depths, there, strict=True):
            deepest = [point for point in role.points if point.num_layers == depth.counts[side]]
            names = {name, name.removeprefix("cross_")}
            gains = {gain for sub in sublayers for of, gain in sub.gains.items() if of in names}
            if len(gains) != 1 or not deepest:
                break
            is_own &= all(is_near(p.asked, gain, SMALL) for p in deepest for gain in gains)
            middle = mean([(math.log(p.std / p.bases[beside.usual] / gain), p) for p in deepest for gain in gains])
            off.append(abs(middle) / max(scatter(sum(point.entries for point in deepest)), _SMALL_CONSTANT))
        if len(off) == len(beside.depths) and max(off) < 1 and not is_own:
            return words
    return None


def _fixed_gain(role: _Role) -> float:
    """What the matrices of a role start at whatever the depth; beside a recipe the standard deviation, beside a scheme
    the gain. Roles with the same law whose scales are alike are read together."""
    beside, every = role.beside, role.beside.starts

    def gain(point: Point) -> float:
        return point.std if beside.is_absolute else point.std / point.bases[beside.usual]

    def asked_at(points: Sequence[Point]) -> Mapping[int, float]:
        return {p.num_layers: p.asked for p in points}

    means = {
        of: mean([(math.log(gain(point)), point) for point in points])
        for of, points in every.items()
        if of[0] == role.key[0]
        and beside.laws[of].is_flat
        and all(p.std > 0 for p in points)
        and asked_at(points) == asked_at(role.points)
    }
    alike = [of for of, mean_there in means.items() if abs(mean_there - means[role.key]) < SMALL]
    return math.exp(mean([(means[of], point) for of in alike for point in every[of]]))


def _law_text(role: _Role, ratio: Law) -> str:
    """How a law differs from the one that is asked for, in the words of the likeliest cause."""
    law, asked = role.law, role.asked
    if _is_twice(role):
        return "The {roles} matrices have the square of {name}'s depth rule, as where it is applied twice."
    if asked.has_layer_power and (counted := counted_otherwise(role.points)):
        return f"The {{roles}} matrices follow {{name}}'s law, but the layer's index is counted {counted}."
    number, index = "number of layers", "layer's index"
    powers, theirs = ((it.has_power, it.has_layer_power) for it in (law, asked))
    for scaled_by, other, there in ((number, index, (True, False)), (index, number, (False, True))):
        if powers == there and theirs == there[::-1]:
            return f"The {{roles}} matrices are scaled by the {scaled_by}, and {{name}}'s by the {other}."
    of_number = law.power, asked.power, law.has_power, asked.has_power
    of_index = law.layer_power, asked.layer_power, law.has_layer_power, asked.has_layer_power
    for word, differs, (power, wanted, has, wants) in (
        (number, ratio.has_power, of_number),
        (index, ratio.has_layer_power, of_index),
    ):
        if not differs:
            continue
        if wants and not has:
            return f"The {{roles}} matrices do not depend on the {word}: the depth rule of {{name}} is not applied."
        if has and not wants and asked.is_flat:
            return f"The {{roles}} matrices are scaled by the {word}, and {{name}} leaves them alone."
        if has and not wants and ratio.misfit > UNLIKELY:
            return f"The {{roles}} matrices are scaled by the {word}, and {{name}}'s are not."
        if has and not wants:
            continue
        if power is not None and wanted is not None and abs(power + wanted) < 0.1 * abs(wanted):
            return f"The {{roles}} matrices' exponent in the {word} has the wrong sign."
        return f"The {{roles}} matrices have another exponent in the {word} than {{name}}'s."
    return "The {roles} matrices follow another law than {name}'s."


def _is_twice(role: _Role) -> bool:
    """Whether matrices have what is asked for times the factor by which that differs from the scale of others."""
    beside, points = role.beside, role.points
    if beside.is_absolute:
        plain = {law.constant for law in beside.asked_laws.values() if law.is_flat and law.constant > 0}
    else:
        plain = {1.0}
        points = [replace(point, std=point.std / point.bases[beside.usual]) for point in points]
    return any(
        all(abs(math.log(p.std * factor / p.asked**2)) < max(SURE * p.error, SMALL) for p in points) for factor in plain
    )
