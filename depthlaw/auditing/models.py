"""A module at several depths, as checks see it: what was read of it, and what a claim asks for beside that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from depthlaw.auditing.expected import Claimed, Pair, pairs
from depthlaw.auditing.faults import distinct
from depthlaw.auditing.fixes import Initialise
from depthlaw.auditing.groups import Groups
from depthlaw.auditing.laws import (
    CLEAR,
    SMALL,
    SURE,
    UNLIKELY,
    Law,
    Point,
    fit,
    is_near,
    law_of,
    mean,
    mean_ratio,
    of_one_shape,
    scatter,
)
from depthlaw.auditing.reading.look import Built, Sublayer, Weight
from depthlaw.network.lower import visited
from depthlaw.sims.model import ModelConfig, SublayerConfig

Key = tuple[str, str]
"""A side and a role."""


@dataclass(frozen=True)
class Depth:
    """A module at one depth. asked: the number of layers that its builder was given. counts: of layers, by side, each
    as often as a pass goes through it. updates: by seed and role. groups: of the user's optimizer, where it is given.
    layers: by seed, what each sublayer does (``auditing.layers``), where that is asked. visits: how often the layers
    are said to be gone through with the same weights, which ``built`` has where it is so."""

    asked: int
    built: Built
    counts: Mapping[str, int]
    updates: Sequence[Mapping[str, float]] = ()
    groups: Groups | None = None
    layers: Sequence[Sequence[Mapping[str, float]]] = ()
    visits: int = 1

    @property
    def own_counts(self) -> dict[str, int]:
        """Of layers with weights of their own, by side."""
        return {side: count // self.built.visits for side, count in self.counts.items()}


def counted(depths: Sequence[Depth]) -> str | None:
    """What the builder of a module whose layers are visited counts: "layers", "visits" or "layers at each visit"; None
    where it is none of these."""
    ways = {
        "layers": [[*depth.own_counts.values()] for depth in depths],
        "layers at each visit": [[*depth.counts.values()] for depth in depths],
        "visits": [[depth.built.visits] for depth in depths],
    }
    return next(
        (
            name
            for name, rows in ways.items()
            if all({*row} == {depth.asked} for row, depth in zip(rows, depths, strict=True))
        ),
        None,
    )


_MOST_VISITS = 32
"""Of a module that was not built: a prediction takes the square of their number."""


def passed_through(depths: Sequence[Depth], number: int) -> tuple[int, int]:
    """Layers of a pass, and visits, of the module that the builder would give for that number. ValueError, in one line,
    where what it counts is not known."""
    visits, own = {depth.built.visits for depth in depths}, max(depths[-1].own_counts.values())
    if visits == {1}:
        return number, 1
    match counted(depths):
        case "visits" if len({max(depth.own_counts.values()) for depth in depths}) == 1:
            if number > _MOST_VISITS:
                raise ValueError(f"more than {_MOST_VISITS} visits take long to predict, which `depthlaw predict` does")
            return own * number, number
        case "layers" if len(visits) == 1:
            return number * max(visits), max(visits)
        case "layers at each visit" if len(visits) == 1:
            return number, max(visits)
    raise ValueError("how many layers and visits the builder would give there is not known")


class FirstLayer(NamedTuple):
    """A role whose first layer is without the law of the others."""

    law: Law
    of_first: Law
    first: Sequence[Point]
    rest: Sequence[Point]


class Models:
    """A module at several depths. deeper: builds another depth where these leave open whether layers follow a rule, or
    gives None."""

    def __init__(self, depths: Sequence[Depth], deeper: Callable[[int], Built | None] = lambda _: None) -> None:
        self.depths, self.deeper = depths, deeper

    @property
    def claimed(self) -> Claimed | None:
        return None

    @property
    def last(self) -> Depth:
        """The deepest."""
        return self.depths[-1]

    @cached_property
    def serial(self) -> Mapping[str, Sequence[str]]:
        """By side, the matrices without a residual connection, of the deepest model that has some."""
        return next((depth.built.serial for depth in reversed(self.depths) if depth.built.serial), {})

    def called(self, side: str) -> str:
        """What Python of a fix calls the number of layers of a side, which counts each at all its visits."""
        return f"num_{side}_layers" if self.last.built.has_decoder else "num_layers"

    def own(self, side: str) -> tuple[str, int] | None:
        """What Python of a fix calls the number of layers of a side that have weights of their own, and that number in
        the deepest model, where they are visited again."""
        number, visits = self.last.own_counts[side], {depth.built.visits for depth in self.depths}
        if visits == {1}:
            return None
        return (f"{self.called(side)} // {max(visits)}" if len(visits) == 1 else str(number)), number

    @cached_property
    def points(self) -> dict[Key, list[Point]]:
        """The standard deviations of matrices, by side and role, over all depths; of other shapes as of one."""
        by_key: dict[Key, list[Point]] = {}
        for depth, sublayers in self._asked_of():
            own = depth.own_counts  # a matrix is one draw at all its visits
            for sub, asked in sublayers:
                for weight in sub.weights if sub.layer <= own[sub.side] else ():
                    if (wanted := asked(weight.role)) is not None:
                        point = _point(weight, depth.counts[weight.side], sub.layer, wanted)
                        by_key.setdefault((weight.side, weight.role), []).append(point)
        return {key: of_one_shape(points) for key, points in by_key.items()}

    def _asked_of(self) -> Iterator[tuple[Depth, Iterable[tuple[Sublayer, Callable[[str], float | None]]]]]:
        """Of each sublayer, what is asked for of a role's standard deviation: 1 where nothing is claimed."""
        for depth in self.depths:
            yield depth, ((sub, lambda _: 1.0) for sub in depth.built.sublayers)

    @cached_property
    def whole_laws(self) -> dict[Key, Law]:
        """Of each role with all its layers, where any of it is not 0."""
        return {key: law_of(points) for key, points in self.points.items() if any(point.std > 0 for point in points)}

    @cached_property
    def laws(self) -> dict[Key, Law]:
        """Of each role, where the first layer is apart without it."""
        return self.whole_laws | {key: apart.law for key, apart in self.first_layers.items()}

    @cached_property
    def first_layers(self) -> dict[Key, FirstLayer]:
        """Roles whose first layer is without the law of depth that all others have."""
        layers = {}
        for key, points in self.points.items():
            first, rest = ([p for p in points if (p.layer == 1) is is_first] for is_first in (True, False))
            if not rest or not all(point.std > 0 for point in points) or len({p.num_layers for p in rest}) < 2:
                continue
            law, law_of_first = fit(rest, lambda point: point.std), fit(first, lambda point: point.std)
            off = [abs(math.log(point.std / law.at(point.num_layers, 1))) for point in first if point.num_layers > 1]
            is_law_of_number = law.has_power and not law.has_layer_power and law.misfit > UNLIKELY
            if is_law_of_number and law_of_first.is_flat and off[-1] > CLEAR:
                layers[key] = FirstLayer(law, law_of_first, first, rest)
        return layers


class Beside(Models):
    """A module at several depths beside what it claims to be."""

    def __init__(
        self,
        depths: Sequence[Depth],
        claimed: Claimed,
        deeper: Callable[[int], Built | None] = lambda _: None,
    ) -> None:
        super().__init__(depths, deeper)
        self._claimed = claimed
        self.asked: list[ModelConfig] = [claimed.config(depth.built, depth.counts) for depth in depths]
        for depth, asked in zip(depths, self.asked, strict=True):
            _check_visits(claimed, asked, depth.built.visits)

    @property
    def claimed(self) -> Claimed:
        return self._claimed

    @property
    def name(self) -> str:
        return self.claimed.name

    @property
    def is_absolute(self) -> bool:
        return self.claimed.is_absolute

    @cached_property
    def pairs(self) -> list[tuple[Depth, list[Pair]]]:
        return [(depth, list(pairs(depth.built, asked))) for depth, asked in zip(self.depths, self.asked, strict=True)]

    @cached_property
    def by_side(self) -> list[tuple[str, list[tuple[Depth, Pair]]]]:
        sides: dict[str, list[tuple[Depth, Pair]]] = {}
        for depth, of_depth in self.pairs:
            for pair in of_depth:
                sides.setdefault(pair.built.side, []).append((depth, pair))
        return list(sides.items())

    def law(self, weight: str, depth: Depth, side: str, role: str = "") -> str | None:
        """Python of what is asked for, in the number of layers; None where there is no formula."""
        return self.claimed.law(weight, depth.built, side, role)

    def initialise(self, comment: str) -> Initialise:
        return Initialise(self.call, comment)

    @property
    def call(self) -> str:
        """The call that gives all matrices the scale of the claim; ``inputs`` is the function of ``--input``, where the
        module is called with something that is not guessed."""
        word = "recipe" if self.is_absolute else "scheme"
        inputs = ", inputs=inputs" if self.last.built.inputs.kind == "yours" else ""
        return f'depthlaw.initialise(model, {word}="{self.name}", optimizer="{self.claimed.optimizer}"{inputs})'

    def _asked_of(self) -> Iterator[tuple[Depth, Iterable[tuple[Sublayer, Callable[[str], float | None]]]]]:
        """Beside a recipe a standard deviation, beside a scheme a gain; None of roles that the claim has not."""

        def asked_of(config: ModelConfig, asked: SublayerConfig) -> Callable[[str], float | None]:
            def asked_std(role: str) -> float | None:
                if role not in config.roles(asked.kind):
                    return None
                return config.std(asked, role) if self.is_absolute else asked.gains.get(role, 1.0)

            return asked_std

        for (depth, of_depth), config in zip(self.pairs, self.asked, strict=True):
            read = [pair for pair in of_depth if not pair.built.is_unknown or len(pair.built.weights) == 1]
            yield depth, [(pair.built, asked_of(config, pair.asked)) for pair in read]

    @cached_property
    def laws(self) -> dict[Key, Law]:
        return self.whole_laws

    @cached_property
    def asked_laws(self) -> dict[Key, Law]:
        return {
            key: fit(points, lambda point: point.asked)
            for key, points in self.points.items()
            if any(point.asked > 0 for point in points)
        }

    # ------------------------------------------------------------ what a gain of 1 comes to

    @cached_property
    def plain(self) -> dict[Key, float]:
        """The standard deviation of roles that have one whatever the depth, and are to have one."""
        return {
            key: law.constant
            for key, law in self.laws.items()
            if law.is_flat and key in self.asked_laws and self.asked_laws[key].is_flat
        }

    @cached_property
    def starts(self) -> dict[Key, list[Point]]:
        """The points; where roles start at one number whatever their shape, with that among the usual
        initialisations."""
        every, plain = self.points, self.plain
        alike = [
            of
            for of in plain
            if all(p.std > 0 and abs(math.log(p.std / plain[of])) < SURE * p.error for p in every[of])
        ]
        middle = mean([(math.log(p.std), p) for of in alike for p in every[of]]) if alike else 0.0
        if not alike or not all(abs(math.log(plain[of]) - middle) < SMALL for of in plain):
            return every
        return {key: [replace(p, bases=(*p.bases, math.exp(middle))) for p in of_key] for key, of_key in every.items()}

    @cached_property
    def usual(self) -> int:
        """Which of the usual initialisations most roles start by, where their gain is taken out; Xavier's of none."""
        if not self.starts:
            return 0

        def num_near(number: int) -> int:
            means = [
                math.log(mean_ratio(points) / points[-1].bases[number])
                for points in self.starts.values()
                if all(point.std > 0 and point.asked > 0 for point in points)
            ]
            return sum(abs(of_role) < SMALL for of_role in means)

        return max(range(len(next(iter(self.starts.values()))[-1].bases)), key=num_near)

    @cached_property
    def scales(self) -> dict[Key, float]:
        """What a gain of 1 comes to, by the initialisation that most roles have."""
        return {key: points[-1].bases[self.usual] for key, points in self.starts.items()} | self.by_others

    def has_unknown(self, side: str) -> bool:
        """Whether it has sublayers that are neither attention nor FFN, of which one matrix is compared."""
        return any(sub.is_unknown for sub in self.last.built.sides[side])

    @cached_property
    def by_others(self) -> dict[Key, float]:
        """Where such sublayers are, what a gain of 1 comes to by the matrices inside of branches that have no role, if
        all of these start by one of the usual initialisations, or at one number."""
        built = self.last.built
        names = [name for name in built.flow.matrices.values() if built.others.get(name) == "other"]
        weights = [Weight("", name, "", 0, built.flow.parameters[name]) for name in distinct(names)]
        weights = [weight for weight in weights if weight.parameter.ndim == 2 and weight.std > 0]
        if not weights:
            return {}
        ways = [*zip(*map(_bases, weights), strict=True), [weights[0].std] * len(weights)]
        shares = [
            max(SMALL, scatter(min(weights[0].parameter.numel(), weight.parameter.numel()))) for weight in weights
        ]
        for number, way in enumerate(ways):
            if all(is_near(weight.std, of, share) for weight, of, share in zip(weights, way, shares, strict=True)):
                lasts = {key: points[-1] for key, points in self.starts.items() if self.has_unknown(key[0])}
                return {
                    key: weights[0].std if number == len(ways) - 1 else point.bases[number]
                    for key, point in lasts.items()
                }
        return {}

    @cached_property
    def bases(self) -> dict[Key, float]:
        """The same over Xavier's."""
        return {key: points[-1].bases[self.usual] / points[-1].bases[0] for key, points in self.starts.items()}

    def common_factor(self, side: str) -> float | None:
        """What all matrices that the scheme scales have too much, where those that it leaves alone start by Xavier or
        all alike; None where the two cannot be compared, or there is no one factor."""
        every = self.starts
        flat = {key: self.asked_laws[key].is_flat for key in every if key[0] == side and key in self.asked_laws}
        plain = [point for key, is_flat in flat.items() if is_flat for point in every[key]]
        scaled = [point for key, is_flat in flat.items() if not is_flat for point in every[key]]
        can_tell = plain and len({point.bases for point in scaled}) > 1
        if not can_tell or not all(point.std > 0 for point in (*plain, *scaled)):
            return None
        alike = math.exp(mean([(math.log(point.std), point) for point in plain]))
        for base in (lambda point: point.bases[1], lambda _: alike):
            off, factors = ([(math.log(p.std / p.asked / base(p)), p) for p in group] for group in (plain, scaled))
            factor = mean(factors)
            around = [*off, *((value - factor, point) for value, point in factors)]
            if all(abs(value) < max(SURE * point.error, SMALL) for value, point in around):
                return math.exp(factor)
        return None

    # ------------------------------------------------------------ the claim elsewhere

    def elsewhere(self, side: str) -> Iterator[tuple[str, list[tuple[SublayerConfig, ...]]]]:
        """Where else than on this side the scheme has a law, in words, with its sublayers there at each depth."""
        counts = [depth.counts[side] for depth in self.depths]
        names = list(self.last.built.sides)
        if self.last.built.has_decoder:
            other = names[side == names[0]]
            yield f"the {other}, and this is the {side}", [getattr(asked, other) for asked in self.asked]
            places, there = ["an encoder alone"], [self.claimed.sides(number) for number in counts]
            rest = "and this is an encoder-decoder"
        else:
            places = [f"an encoder-decoder's {of}" for of in ("encoder", "decoder")]
            there, rest = [self.claimed.sides((number, number)) for number in counts], "and this has one side"
        for place, of_depths in zip(places, zip(*there, strict=True), strict=False):
            yield f"{place}, {rest}", list(of_depths)


def _check_visits(claimed: Claimed, asked: ModelConfig, visits: int) -> None:
    """ValueError, in one line, for numbers that differ between visits of a layer."""
    try:
        visited(asked, visits)
    except ValueError as error:
        raise ValueError(f"{claimed.name} has no looped network of {visits} visits: {error}") from None


def _point(weight: Weight, num_layers: int, layer: int, asked: float) -> Point:
    entries = weight.num_draws
    return Point(num_layers, layer, weight.std, entries, asked, weight.name, _bases(weight), rows_text(weight))


def _bases(weight: Weight) -> tuple[float, ...]:
    """Standard deviations that usual initialisations give a matrix of that shape: Xavier's first, that of the whole of
    a fused matrix among them."""
    rows, columns = weight.shape[-2:]
    whole = weight.parameter.shape[weight.output_dim] if weight.features is not None else rows
    return tuple(
        math.sqrt(variance)
        for variance in (2 / (rows + columns), 2 / (whole + columns), 1 / columns, 2 / columns, 1 / (3 * columns))
    )


def rows_text(weight: Weight) -> str | None:
    """How the entries of a matrix are picked from its parameter, as Python; None where that takes more than a slice, or
    where the matrix is a multiple of what is picked."""
    if weight.factor != 1:
        return None
    if weight.features is None:
        return ""
    first, last = int(weight.features[0]), int(weight.features[-1])
    step = int(weight.features[1]) - first if len(weight.features) > 1 else 1
    is_even = weight.features.tolist() == list(range(first, last + 1, max(step, 1)))
    if not is_even or weight.parameter.ndim != 2:
        return None
    text = f"{first}:{last + 1}" + (f":{step}" if step > 1 else "")
    return f".data[{text}]" if weight.output_dim == 0 else f".data[:, {text}]"


# ---------------------------------------------------------------- names of parameters


def names_of(wrong: Sequence[tuple[Depth, Pair]]) -> tuple[str, ...]:
    """Of the matrices of sublayers, in the deepest of the models."""
    return distinct(w.name for depth, pair in wrong if depth is wrong[-1][0] for w in pair.built.weights)


def norms_ahead(built: Built, sublayers: Sequence[Sublayer]) -> tuple[str, ...]:
    """Gains of the norms between the stream and the first matrices of these sublayers."""
    flow, ahead_of = built.flow, []
    gains = [name for name, role in built.others.items() if role == "norm_gain"]
    for sub in sublayers:
        names = {weight.name for weight in sub.weights}
        inside = flow.between(sub.start, sub.end)
        behind = flow.reached(node for node in inside if flow.matrices.get(node) in names)
        ahead = inside - behind - {sub.start}
        ahead_of += [
            name for name in gains if ahead.intersection(flow.next(flow.leaves[name], flow.active.__contains__))
        ]
    return distinct(ahead_of)


def norms_behind(built: Built, sublayers: Sequence[Sublayer]) -> tuple[str, ...]:
    """Gains of the norms that stand on the stream behind these sublayers."""
    flow, names = built.flow, []
    gains = [name for name, role in built.others.items() if role == "norm_gain"]
    for of_side in built.sides.values():
        for sub, following in pairwise(of_side):
            if sub in sublayers:
                inside = flow.between(sub.end, following.start)
                names += [name for name in gains if inside.intersection(flow.users(flow.leaves[name]))]
    return distinct(names)


def by_depth(values: Iterable[tuple[Depth, float]]) -> dict[int, list[float]]:
    """Numbers by the number of layers, from the first layer to the last."""
    groups: dict[int, list[float]] = {}
    for depth, value in values:
        groups.setdefault(depth.asked, []).append(value)
    return groups
