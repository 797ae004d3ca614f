"""A single layer that is unlike all others of its kind and sizes, which are alike.

What several layers have, or the first, may be meant: dense FFNs before those of experts, norms that stand elsewhere in
a part of the stack, a first layer behind an embedding's norm. So may norms of queries and keys, which one kind of
attention may have, and the norm behind the last sublayer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median_high
from typing import NamedTuple

from depthlaw.auditing.checks.norms import PLACE_TEXTS, epsilon_fault
from depthlaw.auditing.faults import Amount, Fault, Faults, distinct
from depthlaw.auditing.fixes import CONSTANT, NORMAL, Assign, Code, Edit, Entry, norm_line, summed
from depthlaw.auditing.laws import CLEAR, NEAR, SMALL, is_near, scatter
from depthlaw.auditing.models import Models, norms_ahead, norms_behind, rows_text
from depthlaw.auditing.reading.look import Built, Sublayer, Weight, pattern_of

Siblings = tuple[object, ...]
"""What sublayers that are beside one another have in common: their kind, and the sizes of their matrices."""
_FEWEST_SIBLINGS = 3
"""Layers of which one can be unlike the others."""
_SIBLINGS = 5
"""Layers of which no part is a single one: of four, it may be the last quarter."""
_BEHIND = 4
"""Layers behind an odd one that show that not every fourth is like it."""
_MOST_GROWTH = 0.2
"""By how many percent what a norm gives grows where it is given one percent more, which no epsilon of use makes."""
_ALIKE = 0.1
"""Relative: sizes of what norms give, which data and conditions make."""
_AS_OTHERS = ", as in all other layers"


class Odd(NamedTuple):
    """A sublayer that is unlike the rest of its group, of the model of a number of layers. The rest begins with those
    that have the norms of most."""

    number: int
    sub: Sublayer
    rest: Sequence[Sublayer]


def odd_norms(models: Models) -> Faults:
    """A layer whose norms stand at other places, or do not normalise."""
    for side, key, _ in _groups(models):
        for place in ("pre", "inner", "branch", "post"):
            odd = _odd_one(models, side, key, lambda sub, at=place: 1.0 + (at in sub.norms))
            if odd and not (place == "post" and odd[-1].sub is models.last.built.sides[side][-1]):
                yield _odd_norm(odd, place)
                break
        else:
            odd = _odd_one(models, side, key, lambda sub: 1.0 + (sub.input_growth > _MOST_GROWTH))
            if odd and math.isfinite(odd[-1].sub.epsilon("pre")[0]):
                yield _odd_epsilon(models, odd)


def odd_sizes(models: Models) -> Faults:
    """A layer in which a norm gives vectors of another size, as one does whose gain starts elsewhere."""
    behind: dict[int, float] = {}
    for built in [depth.built for depth in models.depths]:
        for sublayers in built.sides.values():
            given = [sub.second_moment for sub in sublayers[1:]]
            behind |= {id(sub): size**0.5 for sub, size in zip(sublayers, given, strict=False)}
    for side, key, group in _groups(models):
        for place in ("pre", "branch", "post"):
            if not all(place in sub.norms for sub in (group[:-1] if place == "post" else group)):
                continue
            usual = median_high(behind.get(id(sub), math.nan) for sub in group[:-1] or group)

            def size(sub: Sublayer, at: str = place, usual: float = usual) -> float:
                own = {"pre": sub.input_rms, "branch": sub.branch_rms}
                return own.get(at, behind.get(id(sub), usual))

            if not all(math.isfinite(size(sub)) for sub in group):
                continue
            if odd := _odd_one(models, side, key, size, _ALIKE):
                yield _odd_size(models.last.built, odd, place, size)


def odd_weights(models: Models) -> Faults:
    """A layer whose stream or branch is multiplied by another number."""
    if models.last.built.long_skips:
        return  # an earlier value of the stream may come in where it is another
    for side, key, _ in _groups(models):
        for weight, value in (("residual_weight", _share_of_stream), ("branch_weight", _branch_weight)):
            odd = _odd_one(models, side, key, value)
            if odd and not is_near(getattr(odd[-1].sub, weight), getattr(odd[-1].rest[0], weight), NEAR):
                yield _odd_weight(odd, weight)
                break


def odd_stds(models: Models) -> Faults:
    """A layer whose matrices of a role start at another scale."""
    for side, key, group in _groups(models):
        for role, weights in group[0].roles.items():
            share = max(SMALL, scatter(sum(w.of(w.parameter).numel() for w in weights)))
            if odd := _odd_one(models, side, key, lambda sub, of=role: _mean_std(sub.roles.get(of, [])), share):
                yield _odd_std(models, odd, role)


def odd_others(models: Models) -> Faults:
    """A layer whose matrix starts at another scale than its like in all others, of those that have no role: the first
    of two by which latent attention makes its queries, or what Mamba is given."""
    *shallower, (deepest, rows) = ((depth.asked, _without_role(depth.built)) for depth in models.depths)
    for pattern, row in rows.items():
        if (place := _odd_place(row)) is None or len(row) < _SIBLINGS:
            continue
        before = {at: _odd_place(other[pattern]) for at, other in shallower if len(other.get(pattern, ())) > 2}
        behind = len(row) - place - 1
        is_told = all(at == place for at in before.values()) if behind >= max(place + 1, _BEHIND) else not behind
        if not is_told or (not behind and None in before.values()):
            continue
        weight, rest = row[place], [other.std for other in row if other is not row[place]]
        wanted = math.fsum(rest) / len(rest)
        odd = [other[pattern][at] for number, other in shallower if (at := before.get(number)) is not None]
        names = distinct(each.name for each in (*odd, weight))
        draw = f"torch.nn.init.normal_(parameter, std={wanted:.4g})"
        yield Fault(
            kind="init-law",
            says=f"A matrix of layer {place + 1} of {deepest} starts at another scale than its like in all others.",
            where=names,
            amount=f"std {weight.std:.3g}",
            asked=f"std {wanted:.3g}{_AS_OTHERS}",
            program=(
                Code("for name, parameter in model.named_parameters():", (f"if name in {list(names)}:", f"    {draw}")),
            ),
        )


def _without_role(built: Built) -> dict[Siblings, list[Weight]]:
    """The matrices inside of branches that have no role, and those that make conditions of them, by their names but for
    numbers and by their sizes, in the order of the layers."""
    inside, rows = set(built.flow.matrices.values()), dict[Siblings, list[Weight]]()
    for name, parameter in built.module.named_parameters():
        role = built.others.get(name)
        is_apart = role == "modulation" or (role == "other" and name in inside)
        if is_apart and parameter.ndim > 1 and pattern_of(name) != name:
            rows.setdefault((pattern_of(name), *parameter.shape), []).append(Weight("", name, "", 0, parameter))
    return rows


def _odd_place(row: Sequence[Weight]) -> int | None:
    """Which one, not the first, is at another scale than all others, which are alike; None where there is none such."""
    share = max(SMALL, scatter(min(weight.num_draws for weight in row)))
    odd = _apart([weight.std for weight in row], share)
    return odd[0] if len(odd) == 1 and len(row) > len(odd) and odd[0] else None


# ---------------------------------------------------------------- which one is odd


def _groups(models: Models) -> Iterator[tuple[str, Siblings, list[Sublayer]]]:
    for side in models.last.built.sides:
        for key, group in _siblings(models.last.built, side).items():
            yield side, key, group


def _siblings(built: Built, side: str) -> dict[Siblings, list[Sublayer]]:
    """By their kinds and sizes; several of one kind in a layer, such as a conformer's two FFNs, each by itself."""
    groups: dict[Siblings, list[Sublayer]] = {}
    for sub in built.sides.get(side, ()):
        groups.setdefault((sub.kind, *sorted((w.role, *w.shape) for w in sub.weights)), []).append(sub)
    apart: dict[Siblings, list[Sublayer]] = {}
    for key, group in groups.items():
        by_name: dict[str, list[Sublayer]] = {}
        in_layer = Counter[int]()
        for sub in group:
            in_layer[sub.layer] += 1
            name = pattern_of(sub.called)
            by_name.setdefault(name if name != sub.called else str(in_layer[sub.layer]), []).append(sub)
        has_several = max(in_layer.values()) > 1 and len(by_name) > 1 and min(map(len, by_name.values())) > 1
        apart |= {(*key, name): own for name, own in by_name.items()} if has_several else {key: group}
    return apart


def _odd_one(
    models: Models, side: str, key: Siblings, value: Callable[[Sublayer], float], share: float = NEAR
) -> list[Odd]:
    """The sublayer of a group whose value differs from all others', which are alike, with the number of layers; that of
    the deepest model comes last. Empty where none does, or it is the first, or it follows a rule. share: relative, what
    is alike; a difference is several times that.

    The last of a model is odd where it is the last that differs in shallower ones, too. Others may follow one that is
    early by a rule, such as every fourth layer: where too few of them were built to tell, twice as many are.
    """
    by_depth = {depth.counts[side]: _siblings(depth.built, side).get(key, []) for depth in models.depths}
    *shallower, (_, group) = by_depth.items()
    places = _apart([value(sub) for sub in group], share)
    others = [_apart([value(sub) for sub in row], share) for _, row in shallower if len(row) > 2]
    if len(group) < _FEWEST_SIBLINGS or len(places) != 1 or places[0] == 0 or any(len(row) > 1 for row in others):
        return []
    odd = group[places[0]]
    behind = len(group) - places[0] - 1
    if not behind:
        ends = [(value(row[0]), value(row[-1])) for _, row in shallower if len(row) > 1]
        is_told = len(group) >= _SIBLINGS
        if any(is_near(last, first, share) for first, last in ends):
            return []
    else:
        is_at_one_place = all(row == places for row in others if row)
        is_told = len(group) >= _SIBLINGS and (not is_at_one_place or behind >= max(places[0] + 1, _BEHIND))
    if not is_told:
        deeper = models.deeper(2 * models.last.asked)
        of_deeper = _siblings(deeper, side).get(key, []) if deeper is not None else []
        if len(of_deeper) <= len(group) or len(_apart([value(sub) for sub in of_deeper], share)) > 1:
            return []
    wanted = next(value(sub) for sub in group if sub is not odd)
    odd_ones = []
    usual = Counter(sub.norms for sub in group).most_common(1)[0][0]
    for count, of_deeper in by_depth.items():
        middle = median_high(map(value, of_deeper)) if len(of_deeper) > 2 else wanted
        off = [sub for sub in of_deeper if not is_near(value(sub), middle, max(CLEAR, 2 * share))]
        if len(off) == 1 < len(of_deeper):
            rest = [sub for sub in of_deeper if sub is not off[0]]
            odd_ones.append(Odd(count, off[0], sorted(rest, key=lambda sub: sub.norms != usual)))
    return odd_ones


def _apart(values: Sequence[float], share: float) -> list[int]:
    """Places of the values that are not near the median; all, where it cannot be told from which they differ."""
    middle = median_high(values)
    off = [place for place, value in enumerate(values) if not is_near(value, middle, share)]
    is_clear = all(not is_near(values[place], middle, max(CLEAR, 2 * share)) for place in off)
    return off if is_clear else list(range(len(values)))


def _branch_weight(sub: Sublayer) -> float:
    """1 of a gate, which is another for each condition."""
    return 1.0 if sub.trained == "gate" else sub.branch_weight


def _share_of_stream(sub: Sublayer) -> float:
    """The residual weight over the branch weight: a number behind the sum is in both."""
    if sub.trained == "gate":
        return sub.residual_weight
    return sub.residual_weight / sub.branch_weight if sub.branch_weight else 0.0


def _mean_std(weights: Sequence[Weight]) -> float:
    return math.sqrt(sum(w.std**2 for w in weights) / len(weights)) if weights else 0.0


# ---------------------------------------------------------------- faults


def _which(odd: Sequence[Odd]) -> str:
    """Which layer it is, of the deepest model and of shallower ones."""
    *before, last = (f"{at.sub.layer} of {at.number}" for at in odd)
    return f"layer {last}" + (f" (and {', '.join(before)})" if len({at.sub.layer for at in odd}) > 1 else "")


def _matrices(odd: Sequence[Odd]) -> tuple[str, ...]:
    return distinct(w.name for at in odd for w in at.sub.weights)


def _factors(sub: Sublayer) -> tuple[str, str]:
    """What multiplies its stream and its branch, as Python; a trained weight is the module's own."""
    stream, branch = sub.residual_weight, 1 if sub.trained else sub.branch_weight
    return "" if stream == 1 else f"{stream:.6g} * ", "" if branch == 1 else f"{branch:.6g} * "


def _odd_norm(odd: Sequence[Odd], place: str) -> Fault:
    last, rest = odd[-1].sub, odd[-1].rest[0]
    is_missing = place not in last.norms
    is_one = len(last.norms ^ rest.norms) == 1
    verb = "is missing" if is_missing else "stands"
    what = f"A norm {PLACE_TEXTS[place]} {verb}" if is_one else "Norms stand at other places"
    fix = norm_line(place, is_missing=is_missing)
    if not is_one or place != "inner":
        fix = summed(*_factors(rest), rest.norms)
    return Fault(
        kind="norms",
        says=f"{what} in {_which(odd)} alone, in its {last.kind} sublayer.",
        where=_matrices(odd),
        amount=Amount("", last.norms),
        asked=Amount("", rest.norms, _AS_OTHERS),
        program=(Edit(f"{fix}  # in {_which(odd)} alone"),),
        roles=(place,),
        side=last.side,
    )


def _odd_size(built: Built, odd: Sequence[Odd], place: str, size: Callable[[Sublayer], float]) -> Fault:
    last, rest = odd[-1].sub, odd[-1].rest[0]
    find = {"pre": norms_ahead, "post": norms_behind}.get(place)
    names = find(built, [last]) if find is not None else ()
    gains = {name: built.flow.parameters[name].detach().double().square().mean().sqrt().item() for name in names}
    off = [name for name, gain in gains.items() if is_near(gain, size(last) / size(rest), _ALIKE)]
    return Fault(
        kind="norm-gain",
        says=f"The norm {PLACE_TEXTS[place]} gives another size in {_which(odd)} alone, in its {last.kind} sublayer.",
        where=tuple(off) or _matrices(odd[-1:]),
        amount=Amount("root mean square", size(last)),
        asked=Amount("root mean square", size(rest), _AS_OTHERS),
        program=[Code(CONSTANT.format(f'"{name}"', "", f"{size(rest):.2g}")) for name in off]
        or (Edit(f"# the gain of that norm as in all other layers, in {_which(odd)} alone"),),
        roles=(place,),
        side=last.side,
    )


def _odd_epsilon(models: Models, odd: Sequence[Odd]) -> Fault:
    last = odd[-1].sub
    fault = epsilon_fault("pre", [(models.last, last)], [(models.last, last)])
    (edit,) = fault.program
    assert isinstance(edit, Edit)
    return replace(
        fault,
        says=f"The norm before the {last.kind} sublayer of {_which(odd)} has another epsilon than all others: about "
        "{eps:.1g}, beside a second moment of the stream of {moment:.1g}.",
        program=(Edit(f"{edit.text.partition('  #')[0]}  # in {_which(odd)} alone"),),
    )


def _odd_weight(odd: Sequence[Odd], weight: str) -> Fault:
    last, rest, word = odd[-1].sub, odd[-1].rest[0], weight.replace("_", " ")
    is_trained = weight == "branch_weight" and last.branch_parameter is not None
    name = last.branch_parameter
    return Fault(
        kind=weight.replace("_", "-"),
        says=f"The {word} in {_which(odd)} is another than in all other layers.",
        where=distinct(str(at.sub.branch_parameter) for at in odd) if is_trained else _matrices(odd),
        amount=Amount(word, getattr(last, weight)),
        asked=Amount(word, getattr(rest, weight), _AS_OTHERS),
        program=(
            Code(CONSTANT.format(f'"{name}"', "", f"{rest.branch_weight:.6g}"))
            if is_trained
            else Edit(f"{summed(*_factors(rest), rest.norms)}  # in {_which(odd)} alone"),
        ),
        side=last.side,
    )


def _odd_std(models: Models, odd: Sequence[Odd], role: str) -> Fault:
    last, called = odd[-1].sub, models.called(odd[-1].sub.side)
    asked = {at.number: math.fsum(_mean_std(sub.roles[role]) for sub in at.rest) / len(at.rest) for at in odd}
    wanted = asked[odd[-1].number]
    off = [w for w in last.roles[role] if not is_near(w.std, wanted, CLEAR)]  # of experts, perhaps one
    experts = {w.expert for w in off or last.roles[role]}
    by_number = {
        at.number: tuple(
            Entry(w.name, rows_text(w) or "", at.sub.layer, f"{asked[at.number]:.4g}")
            for w in at.sub.roles[role]
            if w.expert in experts
        )
        for at in odd
    }
    if {at.sub.layer for at in odd} == {last.layer} and all(is_near(of, wanted, SMALL) for of in asked.values()):
        each = (NORMAL.format(f'"{entry.name}"', entry.rows, entry.value) for entry in by_number[odd[-1].number])
        program = [Code(f"if {called} >= {last.layer}:", tuple(each))]
    else:
        program = [Assign(NORMAL, entries, None, called, number) for number, entries in by_number.items()]
    return Fault(
        kind="init-law",
        says=f"The {{roles}} matrices of {_which(odd)} start at another scale than all others.",
        where=distinct(entry.name for entries in by_number.values() for entry in entries),
        amount=f"std {_mean_std(off or last.roles[role]):.3g}",
        asked=f"std {wanted:.3g}{_AS_OTHERS}",
        program=program,
        roles=(role,),
        side=last.side,
    )
