"""A fault as data, and the words for people and the document for programs that are made of it here alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from depthlaw.auditing.fixes import Fix, python
from depthlaw.auditing.laws import SMALL, Law
from depthlaw.system.page import LARGE, times

PLACES = ("pre", "q", "k", "v", "inner", "branch", "post")
"""Where norms stand in a sublayer."""
ALIKE = 0.1
"""Relative: growths that differ by less are alike."""

_T = TypeVar("_T")
Values = Law | Mapping[int, Sequence[float]] | tuple[tuple[float, int, int], ...] | frozenset[str] | float


@dataclass(frozen=True)
class Amount:
    """What is there, or what is asked for: a law, a number, numbers by the number of layers, numbers each with its
    layer and number of layers, or places of norms. of: what it is of. rest: what is said behind it."""

    of: str
    values: Values
    rest: str = ""

    def __str__(self) -> str:
        """
        >>> from depthlaw.auditing.faults import Amount
        >>> print(Amount("weight", {2: [1.0, 1.0], 4: [1.0, 3.0]}), Amount("", frozenset({"post", "pre"})), sep="; ")
        weight 1 at 2 layers, 1 to 3 at 4 layers; norms pre, post
        """
        return " ".join(filter(None, (self.of, _values_text(self.values)))) + self.rest


@dataclass(frozen=True)
class Remark:
    """What is unusual, but not wrong. says: with {roles} and {start}, if it is of roles."""

    says: str
    roles: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if not self.roles:
            return self.says
        return self.says.format(roles=", ".join(self.roles), start="starts" if len(self.roles) == 1 else "start")


@dataclass(frozen=True)
class Effect:
    """What a fault does to the update of a role, beside that at the fewest layers that were built.

    of: what moves, in words. name: of the claim. start, end: the fewest layers and the most that were built. measured:
    at the most. independent: of a fault by which layers are no draws of their own, what layers that are would come to,
    as predicted, None where that is not known. as_it_is, mended, ratio: predicted, by layers. missed: where prediction
    and measurement at the most layers differ, the two. has_rates: whether mended has other learning rates, too.
    """

    of: str
    name: str | None
    start: int
    end: int
    measured: float | None = None
    independent: float | None = None
    as_it_is: Mapping[int, float] = field(default_factory=dict)
    mended: Mapping[int, float] = field(default_factory=dict)
    ratio: Mapping[int, float] = field(default_factory=dict)
    missed: tuple[float, float] | None = None
    has_rates: bool = False

    @property
    def adds_up(self) -> bool | None:
        """Whether branches of copies add up in one direction; None where nothing tells."""
        if self.measured is None or self.independent is None:
            return None
        return self.measured > (1 + ALIKE) * self.independent

    @property
    def is_off(self) -> bool:
        """Whether the update is of another size than it should be."""
        return any(abs(ratio - 1) > ALIKE for ratio in self.ratio.values())

    @cached_property
    def text(self) -> str:
        factors = [self.measured, self.independent, *self.as_it_is.values(), *self.mended.values()]
        known = [factor for factor in factors if factor is not None]
        parts = [*self._parts()]
        if not parts:
            return ""
        if all(abs(factor - 1) < ALIKE for factor in known) and not self.is_off:
            return f"The update of {self.of} hardly changes with depth."
        return f"The update of {self.of}, beside that at {self.start} layers: {'; '.join(parts)}."

    def _parts(self) -> Iterable[str]:
        if self.measured is not None:
            yield f"{times(self.measured)} at {self.end}, measured"
        if self.independent is not None:
            yield f"that of independent layers would be {times(self.independent)}, predicted"
        if not self.as_it_is:
            return
        reached = " and ".join(f"{times(factor)} at {number:,}" for number, factor in self.as_it_is.items())
        yield f"{'it explodes, ' if max(self.as_it_is.values()) >= LARGE else ''}{reached}, predicted"
        also = " and its learning rates" if self.has_rates else ""
        yield f"with every fault mended, as {self.name} is{also}, {' and '.join(map(times, self.mended.values()))}"
        ratios = self.ratio
        if self.is_off and len(ratios) > 1 and max(ratios.values()) < (1 + ALIKE) * min(ratios.values()):
            yield f"in size it is {times(ratios[max(ratios)])} what it should be, at any depth"
        elif self.is_off:
            first, *rest = (f"{times(ratio)} {{}}at {number:,}" for number, ratio in ratios.items())
            yield f"in size it is {', '.join([first.format('what it should be '), *(t.format('') for t in rest)])}"
        if self.missed is not None:
            measured, predicted = self.missed
            yield (
                f"but at {self.end} layers {predicted:.3g} is predicted and {measured:.3g} measured, so trust what is "
                "measured, here and beyond"
            )
        number = max(self.as_it_is)
        mended = self.mended[number]
        if mended > (1 + ALIKE) * self.as_it_is[number] and not ratios.get(number, 0.0) > 1 + ALIKE:
            does = "grows more" if mended > 1 else "shrinks less"
            theirs = f"as {self.name}'s does: the fault is that the model is not what it says"
            yield f"mended, that of {self.of} {does}, {theirs}"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that is wrong.

    kind: a word for programs. says: the sentence, with {roles} and the names of terms where these come in; terms: the
    numbers and words of the sentence. roles: of the matrices, or the place, that it is about. where: names of
    parameters. amount, asked: what is there and what is asked for. program: the fix. effect: on the update. parts: of a
    fault of several roles or sides, that of each.
    """

    kind: str
    says: str
    terms: Mapping[str, float | str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    amount: Amount | str
    asked: Amount | str
    program: Fix
    roles: tuple[str, ...] = ()
    side: str | None = None
    effect: Effect | None = None
    parts: tuple[Fault, ...] = ()

    @property
    def role(self) -> str | None:
        """Its roles as text; None where it is about none."""
        return ", ".join(self.roles) or None

    @property
    def what(self) -> str:
        """The fault in one sentence."""
        text = self.says.format(roles=listed(self.roles) if self.roles else "", **self.terms)
        if self.kind == "identical-layers" and self.effect is not None and self.effect.adds_up is not None:
            text = text.removesuffix(".") + (_ADDS_UP if self.effect.adds_up else _NO_FURTHER)
        return text

    @property
    def found(self) -> str:
        return self._of_each(lambda part: str(part.amount))

    @property
    def expected(self) -> str:
        return self._of_each(lambda part: str(part.asked))

    @property
    def fix(self) -> str:
        """Lines of Python."""
        return python([(part.side, part.program) for part in self.parts or (self,)])

    @property
    def why(self) -> str:
        """What it does to the update; empty where that is not known."""
        return "" if self.effect is None else self.effect.text

    def _of_each(self, text: Callable[[Fault], str]) -> str:
        """What is said of all parts, or of each with its side and role."""
        has_sides, has_roles = (len({getattr(p, of) for p in self.parts}) > 1 for of in ("side", "role"))
        names: dict[str, list[str]] = {}
        for part in self.parts or (self,):
            name = (part.side if has_sides else None, part.role if has_roles else None)
            called = " ".join(filter(None, name)) or ", ".join(part.where[-1:])  # those without a role by a parameter
            names.setdefault(text(part), []).append(called)
        return next(iter(names)) if len(names) == 1 else "; ".join(f"{listed(of)} {text}" for text, of in names.items())

    def says_as(self, other: Fault) -> bool:
        """Whether another says the same of another role or side; numbers that are read alike are the same."""
        return (
            (self.kind, self.says, self.terms.keys()) == (other.kind, other.says, other.terms.keys())
            and all(_is_alike(term, other.terms[name]) for name, term in self.terms.items())
            and (None if self.effect is None else self.effect.adds_up)
            == (None if other.effect is None else other.effect.adds_up)
        )

    def document(self) -> dict[str, Any]:
        names = ("kind", "what", "where", "found", "expected", "fix", "roles", "side", "why", "role")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names}


Faults = Iterator[Fault | Remark]
"""What a check tells."""
_ADDS_UP = ", so all their branches add up in one direction."
_NO_FURTHER = "; that moves the model no further here, but laws of depth assume layers that are drawn independently."


def together(faults: Iterable[Fault]) -> list[Fault]:
    """Those that say the same of several roles, or of both sides, as one fault.

    >>> from depthlaw.auditing.faults import Fault, together
    >>> says = "The {roles} matrices start at {factor} times it."
    >>> one, two = (Fault(kind="init", says=says, terms={"factor": by}, amount="", asked="", program=(), roles=(of,))
    ...             for of, by in (("q", 0.703), ("k", 0.711)))
    >>> [(fault.what, fault.roles) for fault in together([one, two])]
    [('The q and k matrices start at 0.703 times it.', ('q', 'k'))]
    """
    groups: list[list[Fault]] = []
    for fault in faults:
        if (group := next((each for each in groups if each[0].says_as(fault)), None)) is not None:
            group.append(fault)
        else:
            groups.append([fault])
    return [group[0] if len(group) == 1 else _as_one(group) for group in groups]


def _as_one(parts: Sequence[Fault]) -> Fault:
    sides = distinct(part.side for part in parts)
    return replace(
        parts[0],
        where=distinct(name for part in parts for name in part.where),
        roles=distinct(role for part in parts for role in part.roles),
        side=" and ".join(map(str, sides)) if None not in sides else None,
        parts=tuple(parts),
    )


def _is_alike(term: float | str, other: float | str) -> bool:
    if isinstance(term, float) and isinstance(other, float) and term > 0 and other > 0:
        return abs(math.log(term / other)) < SMALL
    return term == other


# ---------------------------------------------------------------- words


def _values_text(values: Values) -> str:
    if isinstance(values, Law):
        return values.text
    if isinstance(values, frozenset):
        return f"norms {', '.join(place for place in PLACES if place in values)}" if values else "no norm"
    if isinstance(values, tuple):
        return few([f"{value:.3g} at layer {layer} of {num_layers}" for value, layer, num_layers in values])
    if not isinstance(values, Mapping):
        return f"{values:.4g}"
    texts = [_numbers_text(several) for several in values.values()]
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{texts[0]} at every depth"
    return ", ".join(f"{text} at {num_layers} layers" for text, num_layers in zip(texts, values, strict=True))


def _numbers_text(values: Sequence[float]) -> str:
    """
    >>> from depthlaw.auditing.faults import _numbers_text
    >>> [_numbers_text(own) for own in ([1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 0.9, 0.7], [2.0, 0.0, 2.0, 3.0])]
    ['1', '1, but 2 in 1 of 3', '1 to 0.7', '0 to 3']
    """
    counts = Counter(f"{value:.4g}" for value in values)
    (usual, number), *others = counts.most_common()
    if max(values) - min(values) <= 1e-3 * abs(values[0]):
        return f"{values[0]:.4g}"
    if len(others) == 1 and 2 * number > len(values):
        return f"{usual}, but {others[0][0]} in {others[0][1]} of {len(values)}"
    steps = [after - before for before, after in pairwise(values)]
    is_one_way = all(step >= 0 for step in steps) or all(step <= 0 for step in steps)
    ends = (values[0], values[-1]) if is_one_way else (min(values), max(values))
    return "{:.4g} to {:.4g}".format(*ends)


def listed(texts: Sequence[str]) -> str:
    """
    >>> from depthlaw.auditing.faults import listed
    >>> listed(["q"]), listed(["q", "k", "v"])
    ('q', 'q, k and v')
    """
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def few(texts: Sequence[str]) -> str:
    return ", ".join(texts[:4]) + (" ..." if len(texts) > 4 else "")


def layers_text(numbers: Collection[int]) -> str:
    layers = sorted(numbers)
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers[:8]))}{' ...' if len(layers) > 8 else ''}"


def distinct(names: Iterable[_T]) -> tuple[_T, ...]:
    """Each once."""
    return tuple(dict.fromkeys(names))
