"""Faults: what a module is beside what it should be, each with where, what is there, what is asked for and the fix.

Some faults need no scheme: layers that are copies of one another, a branch that can never learn, a sublayer without a
way round, numbers that are not finite, a builder that builds another depth than was asked for. The others are
differences from the scheme or recipe that the module claims to be. What is unusual but not wrong is a remark.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any, NamedTuple

import torch

from depthlaw.auditing.expected import Claimed, Pair, pairs, times
from depthlaw.auditing.laws import SMALL, SURE, Law, Point, fit
from depthlaw.auditing.look import Built, Sublayer, Weight, pattern_of
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.theory.stack import NORM_FUNCTIONS

PLACES = ("pre", "q", "k", "v", "inner", "branch", "post")
_NEAR = 1e-2
"""Relative: weights of the stream and of branches are read to rounding, but papers print constants of two digits."""
_SCALE = 0.03
"""Relative: scales are read from one network's second moments."""
NOT_INDEPENDENT = ("identical-layers", "shared-layers")
"""Faults of which the kernel rung, whose layers are drawn independently, predicts what there would be without them."""
_SMALL_EPSILON = 0.01
"""Beside the stream's second moment, an epsilon that changes what a norm gives by half of that."""
_USUAL_EPSILON = 1e-5
_SMALL_CONSTANT = 0.015
"""Relative: constants of usual initialisations lie further apart."""
_MOST_LAYERS = 1000
"""A weight or scale that is the same at every depth is not said to be that of more."""
_FEWEST_SIBLINGS = 3
"""Layers of which one can be unlike the others."""
_SIBLINGS = 5
"""Layers of which no part is a single one: of four, it may be the last quarter."""
_BEHIND = 4
"""Layers behind an odd one that show that not every fourth is like it."""
_CLEAR = 0.2
"""Relative: a layer that differs from all others by more is unlike them."""
_WRITTEN_BY = {"fc1": ("fc2",), "fc3": ("fc2",), **dict.fromkeys("qk", ("v", "out"))}
_WRITTEN_BY |= {f"cross_{role}": ("cross_v", "cross_out") for role in "qk"}
"""By role, the matrices of which one should have its law of depth: those that write to the stream, or for queries and
keys the values, whose scale is that of the branch as well (Hugging Face's CLIP has it there)."""
_WRITES = {"v": ("out",), "cross_v": ("cross_out",), "fc1": ("fc2",), "fc3": ("fc2",)}
"""By role, the matrix that writes to the stream what it made; of queries and keys all that do."""
_MOST_GROWTH = 0.2
"""By how many percent what a norm gives grows where it is given one percent more, which no epsilon of use makes."""
_OF_ANY_BASE = ("completep",)
"""Schemes whose branch weight is one over the number of layers times that of a base model, of any depth."""
_START = 8
"""Entries of a matrix by which its copies are looked for."""
_UNLIKELY = 1e-9
"""The probability of a misfit that no draw makes."""
_CUTS = (1.0, 0.8796, 0.9866)
"""Of a normal's standard deviation, where it is not cut, and cut at two and three of them."""


@dataclass(frozen=True)
class Fault:
    """Something that is wrong.

    kind: a word for programs. roles: of the matrices, or the place, that it is about. what: one sentence. where: names
    of parameters. why: what it does to the update. fix: lines of Python.
    """

    kind: str
    what: str
    where: tuple[str, ...]
    found: str
    expected: str
    fix: str
    roles: tuple[str, ...] = ()
    side: str | None = None
    why: str = ""

    @property
    def role(self) -> str | None:
        """Its roles as text; None where it is about none."""
        return ", ".join(self.roles) or None

    def document(self) -> dict[str, Any]:
        return {**vars(self), "where": list(self.where), "roles": list(self.roles), "role": self.role}


def together(faults: Iterable[Fault]) -> list[Fault]:
    """Those of one kind that say the same of several roles, or of both sides, as one fault; factors that are read alike
    are the same.

    >>> from depthlaw.auditing.compare import Fault, together
    >>> one, two = (Fault("init", f"The {of} matrices start at {by} times it.", (), "", "", "", (of,))
    ...             for of, by in (("q", 0.703), ("k", 0.711)))
    >>> [(fault.what, fault.roles) for fault in together([one, two])]
    [('The q and k matrices start at 0.703 times it.', ('q', 'k'))]
    """
    groups: list[tuple[tuple[str, str], float, list[Fault]]] = []
    for fault in faults:
        what = fault.what.replace(f" {fault.role} ", " ")
        number = re.search(r"(?<=: x )\S+|(?<= start at )[0-9.]+(?= times)", what)
        key = fault.kind, what if number is None else what.replace(number[0], "")
        factor = 1.0 if number is None else float(number[0])
        same = (own for other, of, own in groups if other == key and abs(math.log(factor / of)) < SMALL)
        if (group := next(same, None)) is not None:
            group.append(fault)
        else:
            groups.append((key, factor, [fault]))
    return [group[0] if len(group) == 1 else _as_one(group) for *_, group in groups]


def _as_one(faults: Sequence[Fault]) -> Fault:
    first = faults[0]
    sides, roles = ({getattr(fault, of): None for fault in faults} for of in ("side", "role"))

    def of_each(texts: Mapping[str, str]) -> str:
        names: dict[str, list[str]] = {}
        for of, text in texts.items():
            names.setdefault(text, []).append(of)
        return next(iter(names)) if len(names) == 1 else "; ".join(f"{_and(of)} {text}" for text, of in names.items())

    def named(fault: Fault) -> str:
        return " ".join(filter(None, (fault.side if len(sides) > 1 else "", fault.role if len(roles) > 1 else "")))

    names = _and([str(role) for role in roles])
    lines: list[str] = []
    for side in sides:
        lines += [f"# {side}"] if len(sides) > 1 else []
        blocks: dict[str, dict[str, None]] = {}  # what is indented, under the line before it
        for fault in (fault for fault in faults if fault.side == side):
            head = ""
            for line in fault.fix.splitlines():
                head = head if line.startswith(" ") else line
                blocks.setdefault(head, {}).update({} if head is line else {line: None})
        lines += [line for head, body in blocks.items() for line in (head, *body)]
    of_all = dict.fromkeys(line for line in lines if line.startswith("depthlaw."))  # what does all at once comes last
    return replace(
        first,
        what=first.what.replace(f" {first.role} ", f" {names} ", 1),
        where=_distinct(name for fault in faults for name in fault.where),
        found=of_each({named(fault): fault.found for fault in faults}),
        expected=of_each({named(fault): fault.expected for fault in faults}),
        fix="\n".join([*(line for line in lines if line not in of_all), *of_all]),
        roles=_distinct(role for fault in faults for role in fault.roles),
        side=" and ".join(map(str, sides)) if None not in sides else None,
    )


@dataclass(frozen=True)
class Depth:
    """A module at one depth. asked: the number of layers that its builder was given. stds: of further seeds, by role,
    parameter and first output feature. updates: by seed and role."""

    asked: int
    built: Built
    counts: Mapping[str, int]
    updates: Sequence[Mapping[str, float]] = ()


@dataclass(frozen=True)
class Findings:
    """faults: of each role by itself. laws, asked_laws: of initialisations, by side and role. bases: beside a scheme,
    the standard deviation of a role at gain 1 over Xavier's, by the initialisation that most roles have. pairs: at the
    greatest depth, what is there beside what is asked for; none where nothing is claimed."""

    faults: tuple[Fault, ...]
    remarks: tuple[str, ...]
    laws: Mapping[tuple[str, str], Law] = field(default_factory=dict)
    asked_laws: Mapping[tuple[str, str], Law] = field(default_factory=dict)
    bases: Mapping[tuple[str, str], float] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()


def compare(
    depths: Sequence[Depth], claimed: Claimed | None, deeper: Callable[[int], Built | None] = lambda _: None
) -> Findings:
    """All faults and remarks of a module at several depths; where parameters are no numbers, that alone. deeper: builds
    another depth where these leave open whether layers follow a rule, or gives None."""
    if faults := tuple(_not_numbers(depths)):
        return Findings(faults, ())
    comparison = _Comparison(depths, claimed, deeper)
    faults = [*comparison.own_faults()]
    num_own = len(comparison.remarks)
    if claimed is not None:
        theirs = [*comparison.claimed_faults()]
        if theirs and any(fault.kind == "depth-ignored" for fault in faults):
            # the module's own laws may count the layers that were asked for: then that one fault explains the others
            counted = [replace(depth, counts=dict.fromkeys(depth.counts, depth.asked)) for depth in depths]
            other = _Comparison(counted, claimed)
            others = [*other.claimed_faults()]
            if len(others) < len(theirs):
                other.remarks = [*comparison.remarks[:num_own], *other.remarks]
                comparison, theirs = other, others
        faults += theirs
    last = comparison.pairs[-1][1] if claimed is not None else ()
    return Findings(
        tuple(faults), tuple(comparison.remarks), comparison.laws, comparison.asked_laws, comparison.bases, last
    )


def _not_numbers(depths: Sequence[Depth]) -> Iterator[Fault]:
    for depth in depths:
        wrong = [name for name, p in depth.built.module.named_parameters() if not p.isfinite().all()]
        if wrong:
            yield Fault(
                "not-finite",
                f"At {depth.asked} layers parameters start at numbers that are not finite.",
                tuple(wrong),
                "inf or nan",
                "numbers",
                "torch.nn.init.normal_(parameter, std=0.02)  # whatever its initialisation is to be",
            )
            return


class _Comparison:
    def __init__(
        self,
        depths: Sequence[Depth],
        claimed: Claimed | None,
        deeper: Callable[[int], Built | None] = lambda _: None,
    ) -> None:
        self.depths, self.claimed, self.deeper = depths, claimed, deeper
        self.remarks: list[str] = []
        self.cut: dict[str, list[str]] = {}
        self.asked: list[ModelConfig] = [
            claimed.config(depth.built, depth.counts) for depth in depths if claimed is not None
        ]
        self.laws: dict[tuple[str, str], Law] = {}
        self.asked_laws: dict[tuple[str, str], Law] = {}
        self.bases: dict[tuple[str, str], float] = {}
        self.scales: dict[tuple[str, str], float] = {}
        """What a gain of 1 comes to."""
        self.usual = 0

    @cached_property
    def pairs(self) -> list[tuple[Depth, list[Pair]]]:
        return [(depth, list(pairs(depth.built, asked))) for depth, asked in zip(self.depths, self.asked, strict=True)]

    # ------------------------------------------------------------ with no scheme

    def own_faults(self) -> Iterator[Fault]:
        yield from self._depth()
        last = self.depths[-1].built
        self.remarks += dict.fromkeys(
            line for depth in self.depths for line in depth.built.unread if "no residual connection" not in line
        )
        for side, names in self._serial.items():
            patterns: dict[str, list[str]] = {}
            for name in names:
                patterns.setdefault(pattern_of(name), []).append(name)
            texts = [own[0] if len(own) == 1 else f"{pattern} ({len(own)})" for pattern, own in patterns.items()]
            yield Fault(
                "no-residual",
                f"There is no residual connection round {_few(texts)} (or there are several streams side by side).",
                _distinct(names),
                "x' = F(x)",
                "x' = x + F(x)",
                "x = x + branch(x)",
                side=side,
            )
        self.remarks += [*last.long_skips, *last.joined]
        self._tell_of_frozen(last)
        yield from self._copies(last)
        yield from self._dead(last)
        yield from self._not_finite()
        yield from self._lonely_laws()
        yield from self._first_layer()
        yield from self._odd_layers()
        yield from self._not_normalising()

    @property
    def _serial(self) -> Mapping[str, Sequence[str]]:
        """By side, the matrices without a residual connection, of the deepest model that has some."""
        return next((depth.built.serial for depth in reversed(self.depths) if depth.built.serial), {})

    def _depth(self) -> Iterator[Fault]:
        last = self.depths[-1].built
        stacks = {block[0] for w in last.weights if (block := _block_of(w.name))}
        run = {_block_of(name) for name in last.flow.parameters}
        blocks = {name: _block_of(name) for name in last.unused}
        skipped = [name for name, block in blocks.items() if block and block[0] in stacks and block not in run]
        if skipped and (idle := last.unused_in_training(skipped)):
            numbers = dict.fromkeys("".join(block) for name in idle if (block := blocks[name]))
            yield Fault(
                "depth-ignored",
                "The module has layers that it does not run.",
                tuple(idle),
                f"parameters of which nothing that it gives depends, in {', '.join(numbers)}",
                "each layer in its place",
                "for layer in layers: x = layer(x)  # each of them",
            )
        elif skipped:
            self.remarks.append("layers that are left out of evaluation, and not of training, are not read")
        if skipped:
            return
        wrong = [depth for depth in self.depths if any(count != depth.asked for count in depth.counts.values())]
        if not wrong or last.joined or all(_num_blocks(depth.built) == depth.asked for depth in self.depths):
            return  # of layers without attention there are as many as were asked for, by their names
        text = ", ".join(f"{depth.asked}: {'+'.join(map(str, depth.counts.values()))}" for depth in self.depths)
        ratios = [[count / depth.asked for count in depth.counts.values()] for depth in self.depths]
        if 1.0 in ratios[0] and all(own == ratios[0] for own in ratios):  # one side as deep, the other so many times
            self.remarks.append(f"sides are not of one depth: of the layers asked for the builder builds {text}")
            return
        halves = all(all(2 * count == depth.asked for count in depth.counts.values()) for depth in self.depths)
        doubles = all(all(count == 2 * depth.asked for count in depth.counts.values()) for depth in self.depths)
        if halves or doubles:
            what = "sublayers" if halves else "pairs of blocks"
            self.remarks.append(f"the builder counts {what}: of the layers asked for it builds {text}")
            return
        yield Fault(
            "depth-ignored",
            "The module has another number of layers than its builder was asked for.",
            (),
            f"layers by the number asked for: {text}",
            "as many as are asked for",
            "for index in range(num_layers): layers.append(Block(...))",
        )

    def _tell_of_frozen(self, built: Built) -> None:
        frozen = _distinct(w.name for w in built.weights if not w.parameter.requires_grad)
        number = len(_distinct(w.name for w in built.weights))
        if len(frozen) == number:
            self.remarks.append(
                "the matrices of branches are not trained (requires_grad is False): they have no update"
            )
        elif frozen:
            patterns = _few(_distinct(map(pattern_of, frozen)))
            self.remarks.append(f"{len(frozen)} of {number} matrices of branches are not trained: {patterns}")

    def _copies(self, built: Built) -> Iterator[Fault]:
        for side, sublayers in built.sides.items():
            groups: dict[str, list[tuple[int, Weight]]] = {}
            for sublayer in sublayers:
                for weight in sublayer.weights:
                    groups.setdefault(weight.role, []).append((sublayer.index, weight))
            shared, copied = [], []
            for weights in groups.values():
                seen: dict[tuple, tuple[int, Weight]] = {}
                for place, weight in weights:
                    start = weight.of(weight.parameter).flatten()[:_START].tolist()
                    before, first = seen.setdefault((tuple(weight.shape), *start), (place, weight))
                    if first is weight or (before == place and first.name == weight.name):
                        continue
                    if _are_one(first, weight):
                        shared.append(weight.name)
                    elif first.std > 0 and _are_equal(first, weight):
                        copied.append(weight.name)
            if shared:
                apart = "nn.ModuleList(Block() for _ in range(num_layers))"
                if self.claimed is None:
                    of = f" of the {side}" if len(built.sides) > 1 else ""
                    self.remarks.append(
                        f"layers{of} share their matrices; where that is not meant, build a block for each, {apart}, "
                        "and not [block] * num_layers"
                    )
                else:
                    yield Fault(
                        "shared-layers",
                        "Layers share their matrices: they are one and the same parameter.",
                        _distinct(shared),
                        "one matrix in several layers",
                        "a matrix of its own in each layer",
                        f"layers = {apart}  # not [block] * num_layers",
                        side=side,
                    )
            if copied:
                yield Fault(
                    "identical-layers",
                    "Layers start as copies of one another.",
                    _distinct(copied),
                    "equal entries in different layers",
                    "independent draws",
                    self._draw_anew(copied[0]),
                    side=side,
                )

    def _draw_anew(self, name: str) -> str:
        """Python that draws the matrices of all layers again, of which this is one, at the scale that they have."""
        if self.claimed_is_absolute:
            return f"{self._initialise()}  # draws each layer's matrices by themselves"
        before = pattern_of(name).partition("*")[0]
        return (
            f'for name, parameter in model.named_parameters():\n    if name.startswith("{before}") and '
            "parameter.ndim > 1:\n        torch.nn.init.normal_(parameter, parameter.mean().item(), "
            "parameter.std().item())"
        )

    def _initialise(self) -> str:
        """The call that gives all matrices the scale of the claim."""
        assert self.claimed is not None
        word = "recipe" if self.claimed.is_absolute else "scheme"
        return f'depthlaw.initialise(model, {word}="{self.claimed.name}", optimizer="{self.claimed.optimizer}")'

    def _dead(self, built: Built) -> Iterator[Fault]:
        dead, unfed, still = [], [], []
        for sublayer in built.sublayers:
            outs = [w for w in sublayer.weights if w.role in ("out", "cross_out", "fc2")]
            has_zero = bool(outs) and all(not w.parameter.any() for w in outs)
            inner = [w for w in sublayer.weights if w.role in ("v", "cross_v", "fc1")]
            has_zero_inside = bool(inner) and all(not w.of(w.parameter).any() for w in inner)
            is_off = sublayer.branch_weight == 0
            if sublayer.input_rms == 0 and "fc3" in sublayer.roles:
                unfed += _norms_ahead(built, [sublayer]) or [w.name for w in sublayer.weights]
            if (is_off and (sublayer.trained is None or has_zero)) or (has_zero and has_zero_inside):
                dead += [w.name for w in sublayer.weights]
            elif is_off or has_zero:
                still.append(sublayer)
        if dead:
            yield Fault(
                "dead-branch",
                "A branch starts at zero in two factors at once, so that neither ever gets a gradient.",
                _distinct(dead),
                "0 in two of branch weight, output matrix and the one before it, or in a fixed branch weight",
                "at most one of them 0",
                "nn.init.xavier_uniform_(branch.output.weight)  # or a branch weight other than 0",
            )
        if unfed:
            yield Fault(
                "dead-branch",
                "A gated FFN is given zeros alone, so that neither it nor what gives them ever gets a gradient.",
                _distinct(unfed),
                "root mean square 0, of what the branch is given, as behind a norm whose gain is 0",
                "root mean square 1",
                "\n".join(f'torch.nn.init.ones_(model.get_parameter("{name}"))' for name in _distinct(unfed)),
            )
        if still:
            self.remarks.append(f"{len(still)} of {len(built.sublayers)} sublayers are the identity at the start")

    def _not_finite(self) -> Iterator[Fault]:
        for depth in self.depths:
            built = depth.built
            if built.flow.output.isfinite().all():
                continue
            where = next((sub for sub in built.sublayers if not math.isfinite(sub.second_moment)), None)
            kind = str(built.flow.output.dtype).removeprefix("torch.")
            yield Fault(
                "not-finite",
                f"At {depth.asked} layers the output is not finite in {kind}.",
                _distinct([w.name for w in where.weights] if where else []),
                "inf or nan",
                "numbers",
                "model = model.bfloat16()  # or a smaller stream: normalise it, or scale branches down",
            )
            return

    def _lonely_laws(self) -> Iterator[Fault]:
        """Depth laws on what does not write to the stream, and not on what does."""
        if self.claimed is not None:
            return
        laws = self._all_laws()
        lonely: dict[tuple[str, str], str] = {}
        for (side, role), law in laws.items():
            known = [of for name in _WRITTEN_BY.get(role, ()) if (of := laws.get((side, name))) is not None]
            if law.is_flat or not known or len(known) < len(_WRITTEN_BY[role]):
                continue
            is_flat = all(of.is_flat for of in known)
            gate = laws.get((side, "fc1"))
            is_of_gated = role == "fc3" and gate is not None and gate.is_flat
            if is_of_gated or (is_flat and min(of.misfit for of in (law, *known)) > _UNLIKELY):
                whose = "The up matrix of the gated FFN follows" if is_of_gated else f"The {role} matrices follow"
                rest = "and those that write to the stream none" if is_flat else "beside the output matrix"
                lonely[side, role] = f"{whose} a law of depth, {rest}."
        for side, role in list(lonely):
            # where FFNs have the law on the wrong matrix, values have it by the same mistake
            for prefix in ("", "cross_"):
                own, behind = (laws.get((side, f"{prefix}{of}")) for of in ("v", "out"))
                if role == "fc1" and own is not None and behind is not None and behind.is_flat and not own.is_flat:
                    for of in ("q", "k", "v"):
                        if (law := laws.get((side, f"{prefix}{of}"))) is not None and not law.is_flat:
                            lonely[side, f"{prefix}{of}"] = lonely[side, role].replace(f" {role} ", f" {prefix}{of} ")
        for (side, role), what in lonely.items():
            yield Fault(
                "init-law",
                what,
                _distinct([w.name for w in self.depths[-1].built.weights if w.role == role and w.side == side]),
                f"std {laws[side, role].text}",
                "the law on the matrices that write to the stream, out and fc2, alone",
                self._moved_law(side, [of for at, of in lonely if at == side]),
                roles=(role,),
                side=side,
            )

    def _moved_law(self, side: str, roles: Sequence[str]) -> str:
        """Python that draws these roles without their law of depth, and with it what writes to the stream."""
        depth = self.depths[-1]
        points = {role: own for (at, role), own in self._points().items() if at == side}
        laws = {role: self.laws.get((side, role)) for role in points}  # of a role that starts at 0 there is none
        flat = {
            role: _mean_ratio(points[role])
            for role, law in laws.items()
            if law is not None and law.is_flat and all(point.std > 0 for point in points[role])
        }
        like, scale = next(iter(flat.items()))
        if max(flat.values()) < (1 + SMALL) * min(flat.values()):
            plain = dict.fromkeys(roles, scale)
        else:  # each by its shape
            off = [abs(math.log(scale / base)) for base in points[like][-1].bases]
            plain = {role: points[role][-1].bases[off.index(min(off))] for role in roles}
        of_number, of_layer = self.laws[side, roles[0]].simple_powers
        factor = _mean_ratio(
            [
                replace(point, asked=plain[role] * point.num_layers**of_number * point.layer**of_layer)
                for role in roles
                for point in points[role]
            ]
        )
        count = _count_name(depth.built, side), depth.counts[side]
        law = f" * {count[0]}**{of_number:.3g}" if of_number else ""
        law += f" * layer**{of_layer:.3g}" if of_layer else ""
        written = {of for role in roles for of in _WRITES.get(role, ("out", "cross_out", "fc2"))}
        stds = {role: f"{value:.4g}" for role, value in plain.items()}
        stds |= {role: f"{value * factor:.4g}{law}" for role, value in flat.items() if role in written}
        lines = [
            _of_layers(
                "torch.nn.init.normal_(model.get_parameter({}){}, std={})",
                [
                    (p.name, p.rows, p.layer, std)
                    for p in points[role]
                    if p.num_layers == count[1] and p.rows is not None
                ],
                std,
                count,
            ).splitlines()
            for role, std in stds.items()
        ]
        return "\n".join(dict.fromkeys(line for own in lines for line in own))

    # ------------------------------------------------------------ layers beside one another

    def _odd_layers(self) -> Iterator[Fault]:
        """A single layer that is unlike all others of its kind and sizes, which are alike.

        What several layers have, or the first, may be meant: dense FFNs before those of experts, norms that stand
        elsewhere in a part of the stack, a first layer behind an embedding's norm. So may norms of queries and keys,
        which one kind of attention may have, and the norm behind the last sublayer.
        """
        if self.claimed is not None or self._serial:
            return
        last = self.depths[-1]
        for side in last.built.sides:
            for key, group in _siblings(last.built, side).items():
                for place in ("pre", "inner", "branch", "post"):
                    odd = self._odd_one(side, key, lambda sub, at=place: 1.0 + (at in sub.norms))
                    if odd and not (place == "post" and odd[-1].sub is last.built.sides[side][-1]):
                        yield self._odd_norm(odd, odd[-1].rest[0], place)
                        break
                else:
                    if odd := self._odd_one(side, key, lambda sub: 1.0 + (sub.input_growth > _MOST_GROWTH)):
                        yield from self._odd_epsilon(odd)
                for name, of in (("residual", _share_of_stream), ("branch", lambda sub: sub.branch_weight)):
                    if last.built.long_skips or not (odd := self._odd_one(side, key, of)):
                        continue  # an earlier value of the stream may come in where it is another
                    rest, weight = odd[-1].rest[0], f"{name}_weight"
                    if not _is_near(getattr(odd[-1].sub, weight), getattr(rest, weight), _NEAR):
                        yield self._odd_weight(odd, rest, weight)
                        break
                for role in group[0].roles:
                    scatter = _scatter_of(group[0], role)
                    if odd := self._odd_one(side, key, lambda sub, of=role: _std_of(sub, of), scatter):
                        yield self._odd_std(odd, role)

    def _odd_one(
        self, side: str, key: Siblings, value: Callable[[Sublayer], float], share: float = _NEAR
    ) -> list[_Odd]:
        """The sublayer of a group whose value differs from all others', which are alike, with the number of layers;
        that of the deepest model comes last. Empty where none does, or it is the first, or it follows a rule. share:
        relative, what is alike; a difference is several times that.

        The last of a model is odd where it is the last that differs in shallower ones, too. Others may follow one that
        is early by a rule, such as every fourth layer: where too few of them were built to tell, twice as many are.
        """
        by_depth = {depth.counts[side]: _siblings(depth.built, side).get(key, []) for depth in self.depths}
        *shallower, (_, group) = by_depth.items()
        found = _apart([value(sub) for sub in group], share)
        others = [_apart([value(sub) for sub in own], share) for _, own in shallower if len(own) > 2]
        if len(group) < _FEWEST_SIBLINGS or len(found) != 1 or found[0] == 0 or any(len(own) > 1 for own in others):
            return []
        odd = group[found[0]]
        behind = len(group) - found[0] - 1
        if not behind:
            ends = [(value(own[0]), value(own[-1])) for _, own in shallower if len(own) > 1]
            is_told = len(group) >= _SIBLINGS
            if any(_is_near(last, first, share) for first, last in ends):
                return []
        else:
            is_at_one_place = all(own == found for own in others if own)
            is_told = len(group) >= _SIBLINGS and (not is_at_one_place or behind >= max(found[0] + 1, _BEHIND))
        if not is_told:
            deeper = self.deeper(2 * self.depths[-1].asked)
            own = _siblings(deeper, side).get(key, []) if deeper is not None else []
            if len(own) <= len(group) or len(_apart([value(sub) for sub in own], share)) > 1:
                return []
        wanted = next(value(sub) for sub in group if sub is not odd)
        told = []
        usual = Counter(sub.norms for sub in group).most_common(1)[0][0]
        for count, own in by_depth.items():
            middle = sorted(map(value, own))[len(own) // 2] if len(own) > 2 else wanted
            off = [sub for sub in own if not _is_near(value(sub), middle, max(_CLEAR, 2 * share))]
            if len(off) == 1 < len(own):
                rest = [sub for sub in own if sub is not off[0]]
                told.append(_Odd(count, off[0], sorted(rest, key=lambda sub: sub.norms != usual)))
        return told

    def _odd_norm(self, odd: Sequence[_Odd], rest: Sublayer, place: str) -> Fault:
        last = odd[-1].sub
        is_missing = place not in last.norms
        verb = "is missing" if is_missing else "stands"
        where = f"{_odd_text(odd)} alone, in its {last.kind} sublayer"
        is_one = len(last.norms ^ rest.norms) == 1
        fix = _norm_fix(place, is_missing=is_missing) if is_one else _sum("", "", rest.norms)
        return Fault(
            "norms",
            f"A norm {_place_text(place)} {verb} in {where}." if is_one else f"Norms stand at other places in {where}.",
            _distinct([w.name for at in odd for w in at.sub.weights]),
            _set_text(last.norms),
            f"{_set_text(rest.norms)}, as in all other layers",
            f"{fix}  # in {_odd_text(odd)} alone",
            roles=(place,),
            side=last.side,
        )

    def _odd_epsilon(self, odd: Sequence[_Odd]) -> Iterator[Fault]:
        last = odd[-1].sub
        eps, moment = last.epsilon("pre")
        if not math.isfinite(eps):
            return
        fault = self._epsilon_fault("pre", [(self.depths[-1], last)], [(self.depths[-1], last)])
        yield replace(
            fault,
            what=f"The norm before the {last.kind} sublayer of {_odd_text(odd)} has another epsilon than all others: "
            f"about {eps:.1g}, beside a second moment of the stream of {moment:.1g}.",
            fix=f"{fault.fix.partition('  #')[0]}  # in {_odd_text(odd)} alone",
        )

    def _odd_weight(self, odd: Sequence[_Odd], rest: Sublayer, weight: str) -> Fault:
        last, word = odd[-1].sub, weight.replace("_", " ")
        stream, branch = ("" if of == 1 else f"{of:.6g} * " for of in (rest.residual_weight, rest.branch_weight))
        is_trained = weight == "branch_weight" and last.branch_parameter is not None
        return Fault(
            weight.replace("_", "-"),
            f"The {word} in {_odd_text(odd)} is another than in all other layers.",
            _distinct([str(at.sub.branch_parameter) for at in odd])
            if is_trained
            else _distinct([w.name for at in odd for w in at.sub.weights]),
            f"{word} {getattr(last, weight):.4g}",
            f"{word} {getattr(rest, weight):.4g}, as in all other layers",
            f'torch.nn.init.constant_(model.get_parameter("{last.branch_parameter}"), {rest.branch_weight:.6g})'
            if is_trained
            else f"{_sum(stream, branch, rest.norms)}  # in {_odd_text(odd)} alone",
            side=last.side,
        )

    def _odd_std(self, odd: Sequence[_Odd], role: str) -> Fault:
        last, built = odd[-1].sub, self.depths[-1].built
        asked = {at.number: sum(_std_of(sub, role) for sub in at.rest) / len(at.rest) for at in odd}
        wanted = asked[odd[-1].number]
        off = [w for w in last.roles[role] if not _is_near(w.std, wanted, _CLEAR)]  # of experts, perhaps one
        experts = {w.expert for w in off or last.roles[role]}
        own = {
            at.number: [(w.name, _rows_text(w) or "", at.sub.layer) for w in at.sub.roles[role] if w.expert in experts]
            for at in odd
        }
        call, count = "torch.nn.init.normal_(model.get_parameter({}){}, std={})", _count_name(built, last.side)
        if {at.sub.layer for at in odd} == {last.layer} and all(_is_near(of, wanted, SMALL) for of in asked.values()):
            each = [call.format(f'"{name}"', rows, f"{wanted:.4g}") for name, rows, _ in own[odd[-1].number]]
            lines = [f"if {count} >= {last.layer}:", *(f"    {line}" for line in each)]
        else:
            lines = [
                _of_layers(call, [(*at, f"{asked[number]:.4g}") for at in those], None, (count, number))
                for number, those in own.items()
            ]
        return Fault(
            "init-law",
            f"The {role} matrices of {_odd_text(odd)} start at another scale than all others.",
            _distinct([name for those in own.values() for name, *_ in those]),
            f"std {_mean_std(off or last.roles[role]):.3g}",
            f"std {wanted:.3g}, as in all other layers",
            "\n".join(lines),
            roles=(role,),
            side=last.side,
        )

    def _first_layer(self) -> Iterator[Fault]:
        """The first layer without the law of depth that all others have, as of a loop that begins at the second."""
        if self.claimed is not None:
            return
        for (side, role), points in self._points().items():
            first, rest = ([p for p in points if (p.layer == 1) is is_first] for is_first in (True, False))
            if not rest or not all(point.std > 0 for point in points) or len({p.num_layers for p in rest}) < 2:
                continue
            law, own = fit(rest, lambda point: point.std), fit(first, lambda point: point.std)
            off = [abs(math.log(point.std / law.at(point.num_layers, 1))) for point in first if point.num_layers > 1]
            if (
                law.has_power
                and not law.has_layer_power
                and own.is_flat
                and off[-1] > _CLEAR
                and law.misfit > _UNLIKELY
            ):
                self.laws[side, role] = law
                of_number, _ = law.simple_powers
                called = _count_name(self.depths[-1].built, side)
                constant = _mean_ratio([replace(p, asked=p.num_layers**of_number) for p in rest])
                std = f"{constant:.4g} * {called}**{of_number:.3g}"
                rows = {p.name: p.rows for p in first if p.rows is not None}
                yield Fault(
                    "init-law",
                    f"The {role} matrices of the first layer start without the law of depth that all others follow.",
                    _distinct([point.name for point in first]),
                    f"std {own.text} in the first layer, {law.text} in the others",
                    f"std {law.text}",
                    "\n".join(
                        f'torch.nn.init.normal_(model.get_parameter("{name}"){at}, std={std})'
                        for name, at in rows.items()
                    ),
                    roles=(role,),
                    side=side,
                )

    def _all_laws(self) -> dict[tuple[str, str], Law]:
        found: dict[tuple[str, str], Law] = {}
        for key, points in self._points().items():
            if any(point.std > 0 for point in points):
                found[key] = _law_of(points)
        self.laws = found
        return found

    # ------------------------------------------------------------ beside a scheme

    def claimed_faults(self) -> Iterator[Fault]:
        read = [*self._structure(), *self._norms(), *self._input_scales()]
        for fault in read:
            # sublayers without a residual connection are read as a part of the stream, and their norms as its norms
            if not self._serial or (fault.kind == "norms" and fault.role not in ("post", "final")):
                yield fault
        yield from self._stream_weights()
        yield from self._branch_weights()
        yield from self._attention_scales()
        yield from self._inits()
        for factor, roles in self.cut.items():
            text = ", ".join(dict.fromkeys(roles))
            cut = "draws that are cut at two or three standard deviations and draws that are not"
            verb = "starts" if len(set(roles)) == 1 else "start"
            self.remarks.append(f"{text} {verb} at {factor} times {self.name}'s scale, the factor between {cut}")
        yield from self._ends()
        yield from self._biases()

    @property
    def name(self) -> str:
        assert self.claimed is not None
        return self.claimed.name

    @property
    def claimed_is_absolute(self) -> bool:
        return self.claimed is not None and self.claimed.is_absolute

    def _remark(self, line: str) -> None:
        """Once."""
        if line not in self.remarks:
            self.remarks.append(line)

    def _structure(self) -> Iterator[Fault]:
        built, asked = self.depths[-1].built, self.asked[-1]
        for side, wanted in zip(built.sides, (asked.encoder, asked.decoder), strict=False):
            there, kinds = ({sub.kind for sub in sublayers} for sublayers in (built.sides[side], wanted))
            if there != kinds:
                found, expected = (", ".join(sorted(names)) for names in (there, kinds))
                what = f"The sublayers are of other kinds than those of {self.name}."
                fix = "# parallel: x = x + attention(norm(x)) + ffn(norm(x))"
                yield Fault("structure", what, (), found, expected, fix, side=side)

    def _norms(self) -> Iterator[Fault]:
        missing: dict[tuple[str, str], list[tuple[Depth, Pair]]] = {}
        extra: dict[tuple[str, str], list[tuple[Depth, Pair]]] = {}
        total: dict[str, int] = {}
        for depth, own in self.pairs:
            for pair in own:
                total[pair.built.kind] = total.get(pair.built.kind, 0) + 1
                for place in PLACES:
                    there, asked = place in pair.built.norms, place in pair.places
                    if asked and not there:
                        missing.setdefault((pair.built.kind, place), []).append((depth, pair))
                    elif there and not asked and place in ("q", "k") and not self.claimed_is_absolute:
                        self._remark(f"queries and keys are normalised, of which {self.name} says nothing")
                    elif there and not asked:
                        extra.setdefault((pair.built.kind, place), []).append((depth, pair))
        for word, groups in (("missing", missing), ("too many", extra)):
            for place in PLACES:
                lines = {kind: group for (kind, at), group in groups.items() if at == place}
                if not lines:
                    continue
                every = all(len(group) == total[kind] for kind, group in lines.items())
                deepest = max((group[-1][0] for group in lines.values()), key=lambda depth: depth.asked)
                own = [p for group in lines.values() for d, p in group if d is deepest]
                pair = own[-1]
                which = "every" if every else "some"
                kinds = " and ".join(sorted(lines))
                yield Fault(
                    "norms",
                    f"A norm {_place_text(place)} is {word} in {which} {kinds} sublayer"
                    + ("." if every else f": {_layers_text({p.layer for p in own})} of {deepest.asked}."),
                    _distinct([w.name for p in own for w in p.built.weights]),
                    _set_text(pair.built.norms),
                    _set_text(pair.places),
                    self._sum_fix(deepest, pair)
                    if place in ("pre", "branch", "post")
                    else _norm_fix(place, is_missing=word == "missing"),
                    roles=(place,),
                )
        for depth, asked in zip(self.depths, self.asked, strict=True):
            ends = asked.ends_in_norm
            wrong = [side for side, final in depth.built.final.items() if final != ends and side in depth.built.sides]
            if wrong and ends:
                yield Fault(
                    "norms",
                    "No norm stands behind the last sublayer, before the head.",
                    (),
                    "no final norm",
                    "a final norm",
                    "x = self.final_norm(x)  # before the head",
                    roles=("final",),
                    side=wrong[0],
                )
                break
            if wrong:
                self.remarks.append(f"a final norm stands behind the last sublayer; {self.name} has none")
                break
        kind = self.depths[-1].built.norm_kind
        wanted = self.asked[-1].norm_kind
        if kind is not None and kind != wanted and any(pair.places for _, own in self.pairs for pair in own):
            class_ = _NORM_CLASSES.get(wanted, wanted)
            what = f"The norms are {kind}, and {self.name} has {wanted}."
            yield Fault("norms", what, (), kind, wanted, f"norm = {class_}(d_model)", roles=("kind",))

    def _stream_weights(self) -> Iterator[Fault]:
        for side, own in self._by_side():
            wrong = [(depth, pair) for depth, pair in own if not _is_near(*_ratio_where_post(pair), _NEAR)]
            if not wrong:
                continue
            depth, pair = wrong[-1]
            found = _by_depth((d, p.built.residual_weight) for d, p in own)
            asked = _by_depth((d, p.asked.residual_weight) for d, p in own)
            yield Fault(
                "residual-weight",
                self._weight_text("residual weight", own, wrong, "residual_weight"),
                _names(wrong),
                f"residual weight {found}",
                f"residual weight {asked}",
                self._sum_fix(depth, pair),
                side=side,
            )

    def _branch_weights(self) -> Iterator[Fault]:
        for side, own in self._by_side():
            wrong = []
            for depth, pair in own:
                if "post" in pair.built.norms and "post" in pair.places:
                    continue  # the residual weight over the branch weight is all that counts, and it has been compared
                if not _is_near(pair.built.branch_weight, pair.asked.branch_weight, _NEAR):
                    wrong.append((depth, pair))
            kinds = [
                (depth, pair)
                for depth, pair in own
                if pair.asked.has_layer_scale != (pair.built.trained == "vector")
                or pair.asked.trains_branch_weight != (pair.built.trained == "scalar")
            ]
            if wrong and self._is_of_another_base(own):
                self._remark(
                    f"the branch weight is {self.name}'s times the number of layers of a base model, which is yours"
                )
            elif wrong:
                depth, pair = wrong[-1]
                yield Fault(
                    "branch-weight",
                    self._weight_text("branch weight", own, wrong, "branch_weight"),
                    _distinct(_branch_names(wrong)),
                    f"branch weight {_by_depth((d, p.built.branch_weight) for d, p in own)}",
                    f"branch weight {_by_depth((d, p.asked.branch_weight) for d, p in own)}",
                    self._trained_fix([p for d, p in wrong if d is depth], depth)
                    if pair.built.trained
                    else self._sum_fix(depth, pair),
                    side=side,
                )
            elif kinds:
                depth, pair = kinds[-1]
                asked_kind = (
                    "a trained vector" if pair.asked.has_layer_scale
                    else "a trained scalar" if pair.asked.trains_branch_weight
                    else "fixed"
                )  # fmt: skip
                is_kind = {"vector": "a trained vector", "scalar": "a trained scalar", None: "fixed"}[
                    pair.built.trained
                ]
                yield Fault(
                    "branch-weight",
                    f"The branch weight is {is_kind}; {self.name} has it {asked_kind}.",
                    _distinct(_branch_names(kinds)),
                    is_kind,
                    asked_kind,
                    f"self.scale = nn.Parameter(torch.full((d_model,), {pair.asked.branch_weight:.6g}))"
                    if pair.asked.has_layer_scale
                    else "self.scale = nn.Parameter(torch.zeros(()))"
                    if pair.asked.trains_branch_weight
                    else f"x = x + {pair.asked.branch_weight:.6g} * branch(x)",
                    side=side,
                )

    def _is_of_another_base(self, own: Sequence[tuple[Depth, Pair]]) -> bool:
        """Whether branch weights are those of the scheme but for the depth of the model that was tuned, where the
        scheme leaves that open."""
        factors = [pair.built.branch_weight / pair.asked.branch_weight for _, pair in own if pair.asked.branch_weight]
        return (
            self.name in _OF_ANY_BASE
            and len(self.depths) > 1
            and all(_is_near(of, factors[0], _NEAR) for of in factors)
        )

    def _law(self, weight: str, depth: Depth, side: str, role: str = "") -> str | None:
        """Python of what is asked for, in the number of layers; None where there is no formula."""
        assert self.claimed is not None
        return self.claimed.law(weight, depth.built, side, role)

    def _sum_fix(self, depth: Depth, pair: Pair) -> str:
        """The sum of a sublayer as it should be, its weights as Python of the number of layers."""
        lines, factors = [], []
        for name in ("residual_weight", "branch_weight"):
            value = getattr(pair.asked, name)
            law = self._law(name, depth, pair.built.side)
            if law is None:
                call = f'{self._initialise()}.{name}s["{pair.built.side}"]'
                lines.append(f"{name} = {call}[sublayer]  # sublayer: from 0")
            elif "layer" in law:
                lines.append(f"{name} = {law}  # {value:.6g} at {depth.asked} layers")
            is_one = law is not None and "layer" not in law
            factors.append(("" if value == 1 else f"{value:.6g} * ") if is_one else f"{name} * ")
        return "\n".join([*lines, _sum(factors[0], factors[1], pair.places)])

    def _trained_fix(self, own: Sequence[Pair], depth: Depth) -> str:
        """Each trained branch weight as it should start."""
        law, side = self._law("branch_weight", depth, own[0].built.side), own[0].built.side
        values = {str(p.built.branch_parameter): p.asked.branch_weight for p in own}
        of_layers = {name: p.built.layer for name, p in zip(values, own, strict=False)}
        return _of_layers(
            "torch.nn.init.constant_(model.get_parameter({}){}, {})",
            [(name, "", of_layers[name], f"{value:.6g}") for name, value in values.items()],
            law,
            (_count_name(depth.built, side), depth.counts[side]),
        )

    def _weight_text(self, word: str, own: Sequence, wrong: Sequence, name: str) -> str:
        """What is wrong with a weight, in the words of its likeliest cause."""
        found = {(d.asked, p.layer, p.built.kind): getattr(p.built, name) for d, p in own}
        asked = {(d.asked, p.layer, p.built.kind): getattr(p.asked, name) for d, p in own}
        other = "branch_weight" if name == "residual_weight" else "residual_weight"
        others = {(d.asked, p.layer, p.built.kind): getattr(p.built, other) for d, p in own}
        which = "" if len(wrong) == len(own) else f" in {len(wrong)} of {len(own)} sublayers"
        is_moved = all(_is_near(others[key], asked[key], _NEAR) for key in asked)
        if name == "residual_weight" and is_moved and not all(_is_near(value, 1.0, _NEAR) for value in asked.values()):
            return f"The {word} stands on the branch, not on the stream."
        if name == "branch_weight" and all(p.built.trained for _, p in own):
            return f"The {word} starts at another value than {self.name}'s."
        if all(_is_near(value, 1.0, _NEAR) for value in found.values()):
            return f"The {word} is not applied."
        if whose := self._whose_weights(own, name):
            return f"The {word} is that of {whose}."
        if len({round(value, 6) for value in found.values()}) == 1 and len({round(v, 6) for v in asked.values()}) > 1:
            value, laws = next(iter(found.values())), {key[0]: number for key, number in asked.items()}
            at = _layers_of(value, laws, _NEAR)
            return f"The {word} is the same at every depth{f', that of {at} layers' if at else ''}."
        if all(_is_near(found[key] * asked[key], 1.0, _NEAR) for key in asked):
            return f"The {word} is one over what it should be."
        if all(_is_near(found[key], asked[key] ** 2, _NEAR) for key in asked):
            return f"The {word} is applied twice."
        if of_power := self._power_text(word, _of_all_sublayers(found), _of_all_sublayers(asked)):
            return of_power
        return f"The {word} is another than {self.name}'s{which}."

    def _power_text(self, word: str, found: Mapping[int, float], asked: Mapping[int, float]) -> str | None:
        """What differs between two powers of the number of layers; None where they are none, or alike but for a number
        that says nothing."""
        power, wanted = _power(found), _power(asked)
        if power is None or wanted is None:
            return None
        last = max(found)
        if abs(power - wanted) > _NEAR:
            theirs = f"as N^{wanted:.3g}" if abs(wanted) > _NEAR else f"is {asked[last]:.4g}"
            return f"The {word} goes as N^{power:.3g}, and {self.name}'s {theirs}."
        share = _share_of_layers(found[last] / asked[last], wanted)
        return None if share is None else f"The {word} is that of {share} as many layers."

    def _elsewhere(self, side: str) -> Iterator[tuple[str, list[tuple[SublayerConfig, ...]]]]:
        """Where else than on this side the scheme has a law, in words, with its sublayers there at each depth."""
        assert self.claimed is not None
        counts = [depth.counts[side] for depth in self.depths]
        names = list(self.depths[-1].built.sides)
        if len(names) > 1:
            other = names[side == names[0]]
            yield f"the {other}, and this is the {side}", [getattr(asked, other) for asked in self.asked]
            places, there = ["an encoder alone"], [self.claimed.sides(number) for number in counts]
            rest = "and this is an encoder-decoder"
        else:
            places = [f"an encoder-decoder's {of}" for of in ("encoder", "decoder")]
            there, rest = [self.claimed.sides((number, number)) for number in counts], "and this has one side"
        for place, of_depths in zip(places, zip(*there, strict=True), strict=False):
            yield f"{place}, {rest}", list(of_depths)

    def _whose_weights(self, own: Sequence[tuple[Depth, Pair]], name: str) -> str | None:
        """Where else the scheme has the weights of a side."""
        side = own[0][1].built.side

        def is_there(pair: Pair) -> float:
            return _ratio_where_post(pair)[0] if name == "residual_weight" else pair.built.branch_weight

        for words, there in self._elsewhere(side):
            weights = [{getattr(sublayer, name) for sublayer in sublayers} for sublayers in there]
            wanted = dict(zip((depth.asked for depth in self.depths), weights, strict=True))
            if all(
                len(wanted[depth.asked]) == 1 and _is_near(is_there(pair), min(wanted[depth.asked]), _NEAR)
                for depth, pair in own
            ):
                return words
        return None

    def _whose_gains(self, key: tuple[str, str], points: Sequence[Point], usual: int) -> str | None:
        """What is told where a role has the gains that the scheme has elsewhere. usual: which of the initialisations
        they multiply."""
        assert self.claimed is not None
        side, role = key
        if self.claimed.is_absolute:
            return None
        for words, there in self._elsewhere(side):
            off: list[float] = []
            for depth, sublayers in zip(self.depths, there, strict=True):
                own = [point for point in points if point.num_layers == depth.counts[side]]
                names = {role, role.removeprefix("cross_")}
                gains = {gain for sub in sublayers for name, gain in sub.gains.items() if name in names}
                if len(gains) != 1 or not own:
                    break
                mean = _mean([(math.log(p.std / p.bases[usual] / gain), p) for p in own for gain in gains])
                off.append(abs(mean) / max(_scatter(sum(point.entries for point in own)), _SMALL_CONSTANT))
            if len(off) == len(self.depths) and max(off) < 1:
                return f"The {role} matrices follow the law of {words}."
        return None

    def _input_scales(self) -> Iterator[Fault]:
        for side, own in self._by_side():
            both = [(d, p) for d, p in own if "pre" in p.built.norms and "pre" in p.places]
            both = [(d, p) for d, p in both if math.isfinite(p.built.input_rms)]
            wrong = [(d, p) for d, p in both if not _is_near(p.built.input_rms, p.asked.input_scale, _SCALE)]
            if not wrong or self.asked[-1].norm_kind in NORM_FUNCTIONS:
                continue  # what is behind a function in a norm's place hangs on the stream
            depth, pair = wrong[-1]
            kind, what = "input-scale", f"What branches are given has another scale than {self.name}'s."
            fix = f"u = {pair.asked.input_scale:.6g} * norm(x)  # layer {pair.layer} of {depth.asked}"
            where = _names(wrong)
            if all(_is_near(p.asked.input_scale, 1.0, _NEAR) for _, p in both):
                gains = self._norm_gains(depth.built)
                if gains:
                    kind, what, where = "norm-gain", "Gains of norms do not start at 1.", tuple(gains)
                    fix = "nn.init.ones_(norm.weight)"
                elif all(p.built.input_growth > _SCALE and p.built.epsilon("pre")[0] > 0 for _, p in wrong):
                    of_built = [[(d, p.built) for d, p in own] for own in (wrong, both)]
                    yield self._epsilon_fault("pre", *of_built)
                    continue
            yield Fault(
                kind,
                what,
                where,
                f"root mean square {_by_depth((d, p.built.input_rms) for d, p in both)}, of what branches are given",
                f"root mean square {_by_depth((d, p.asked.input_scale) for d, p in both)}",
                fix,
                roles=("pre",),
                side=side,
            )

    def _not_normalising(self) -> Iterator[Fault]:
        """Norms whose epsilon is not small: of a claim, those on the stream; else those that leave more of the size of
        what they are given than they take out."""
        most = 0.5 if self.claimed is None else 2 * _SCALE
        for side, place in product(self.depths[-1].built.sides, ("pre", "post")):
            every = [(depth, sub) for depth in self.depths for sub in depth.built.sides.get(side, ())]
            own = [(depth, sub) for depth, sub in every if math.isfinite(sub.epsilon(place)[0])]
            wrong = [(depth, sub) for depth, sub in own if _growth_at(sub, place) > most]
            is_norm = self.depths[-1].built.norm_kind not in NORM_FUNCTIONS
            if 2 * len(wrong) > len(own) and is_norm and (self.claimed is None or place == "post"):
                yield self._epsilon_fault(place, wrong, own)

    def _epsilon_fault(
        self, place: str, wrong: Sequence[tuple[Depth, Sublayer]], own: Sequence[tuple[Depth, Sublayer]]
    ) -> Fault:
        depth = wrong[-1][0]
        there = [sub for at, sub in wrong if at is depth]
        eps, moment = max((sub.epsilon(place) for sub in there), key=lambda told: told[1])
        class_ = _NORM_CLASSES.get(str(depth.built.norm_kind), "Norm")
        enough = min(10 ** math.floor(math.log10(moment * _SMALL_EPSILON)), _USUAL_EPSILON)
        names = (_norms_ahead if place == "pre" else _norms_behind)(depth.built, there)
        sizes = [(d, sub.input_rms if place == "pre" else (1 - _growth_at(sub, place)) ** 0.5) for d, sub in own]
        return Fault(
            "epsilon",
            f"The norms' epsilon, about {eps:.1g}, is not small beside the second moment of "
            f"{'the stream' if place == 'pre' else 'the sums that they stand behind'}, {moment:.1g}.",
            names or _distinct([w.name for sub in there for w in sub.weights]),
            f"root mean square {_by_depth(sizes)}, of what {'branches are given' if place == 'pre' else 'norms give'}",
            "root mean square 1",
            f"norm = {class_}(d_model, eps={enough:.0e})  # or a larger {'embedding' if place == 'pre' else 'stream'}",
            roles=(place,),
            side=there[-1].side,
        )

    def _attention_scales(self) -> Iterator[Fault]:
        """What multiplies the logits: a recipe says it, and of a scheme 1/sqrt(head size) is what its source has."""
        assert self.claimed is not None
        depth, asked = self.depths[-1], self.asked[-1]
        wrong = [
            (sub, wanted)
            for sub in depth.built.sublayers
            if sub.attention_scale is not None and sub.head_size
            for wanted in [sub.head_size**-0.5 if asked.attention_scale is None else asked.attention_scale]
            if not _is_near(sub.attention_scale, wanted, _NEAR)
        ]
        if not wrong:
            return
        sub, wanted = wrong[-1]
        found, expected = f"{sub.attention_scale:.4g}", f"{wanted:.4g}"
        if self.claimed.is_absolute:
            what = f"The logits of attention are multiplied by another number than {self.name}'s."
            names = _distinct([w.name for sub, _ in wrong for w in sub.weights if w.role.endswith(("q", "k"))])
            fix = f"logits = {expected} * queries @ keys.transpose(-2, -1)"
            found, expected = (f"queries times keys, times {of}" for of in (found, expected))
            yield Fault("attention-scale", what, names, found, expected, fix, roles=("q",), side=sub.side)
        else:
            self.remarks.append(f"the logits of attention are multiplied by {found}, and not by {expected}")

    def _norm_gains(self, built: Built) -> list[str]:
        """Names of norms' gains that are neither 1 nor 0 on the average (those that are stored as 1 + w are 0)."""
        found = []
        for name, role in built.others.items():
            if role == "norm_gain":
                gain = built.flow.parameters[name].detach().double()
                if abs(gain.mean().item() - 1) > _SCALE and gain.any():
                    found.append(name)
        return found

    # ------------------------------------------------------------ initialisation

    def _points(self) -> dict[tuple[str, str], list[Point]]:
        """By side and role, over all depths. Without a scheme, 1 is asked for."""
        found: dict[tuple[str, str], list[Point]] = {}
        for place, depth in enumerate(self.depths):
            built = depth.built
            if self.claimed is None:
                own = [(sub, None, None) for sub in built.sublayers]
            else:
                own = [(pair.built, pair.asked, self.asked[place]) for pair in self.pairs[place][1]]
            seen: dict[tuple[str, str], int] = {}
            for sub, asked, config in own:
                for role, weights in sub.roles.items():
                    key = sub.side, role
                    seen[key] = layer = seen.get(key, 0) + 1
                    for weight in weights:
                        wanted = 1.0
                        if asked is not None and config is not None and self.claimed is not None:
                            if role not in config.roles(asked.kind):
                                continue
                            gain = asked.gains.get(role, 1.0)
                            wanted = config.std(asked, role) if self.claimed.is_absolute else gain
                        number = weight.of(weight.parameter).numel()
                        found.setdefault(key, []).append(
                            Point(
                                depth.counts[sub.side],
                                layer,
                                weight.std,
                                number,
                                wanted,
                                weight.name,
                                _bases(weight),
                                _rows_text(weight),
                            )
                        )
        return found

    def _inits(self) -> Iterator[Fault]:
        assert self.claimed is not None
        every = self._points()
        for key, points in every.items():
            if any(point.std > 0 for point in points):
                self.laws[key] = _law_of(points)
            if any(point.asked > 0 for point in points):
                self.asked_laws[key] = fit(points, lambda point: point.asked)
        plain = {
            key: law.constant
            for key, law in self.laws.items()
            if law.is_flat and key in self.asked_laws and self.asked_laws[key].is_flat
        }
        alike = [
            of
            for of in plain
            if all(p.std > 0 and abs(math.log(p.std / plain[of])) < SURE * p.error for p in every[of])
        ]
        mean = _mean([(math.log(p.std), p) for of in alike for p in every[of]]) if alike else 0.0
        if alike and all(abs(math.log(plain[of]) - mean) < SMALL for of in plain):  # one number, whatever the shape
            every = {key: [replace(p, bases=(*p.bases, math.exp(mean))) for p in own] for key, own in every.items()}
        usual = self.usual = self._usual(every) if every else 0
        self.scales = {key: points[-1].bases[usual] for key, points in every.items()}
        self.bases = {key: points[-1].bases[usual] / points[-1].bases[0] for key, points in every.items()}
        factors = {side: self._common_factor(every, side) for side in self.depths[-1].built.sides}
        for key in every:
            yield from self._init(key, every, plain, factors[key[0]])

    def _common_factor(self, every: Mapping[tuple[str, str], Sequence[Point]], side: str) -> float | None:
        """What all matrices that the scheme scales have too much, where those that it leaves alone start by Xavier or
        all alike; None where the two cannot be compared, or there is no one factor."""
        flat = {key: self.asked_laws[key].is_flat for key in every if key[0] == side and key in self.asked_laws}
        plain = [point for key, is_flat in flat.items() if is_flat for point in every[key]]
        scaled = [point for key, is_flat in flat.items() if not is_flat for point in every[key]]
        if (
            not plain
            or len({point.bases for point in scaled}) < 2
            or not all(point.std > 0 for point in (*plain, *scaled))
        ):
            return None
        alike = math.exp(_mean([(math.log(point.std), point) for point in plain]))
        for base in (lambda point: point.bases[1], lambda _: alike):
            off, factors = ([(math.log(p.std / p.asked / base(p)), p) for p in own] for own in (plain, scaled))
            factor = _mean(factors)
            around = [*off, *((value - factor, point) for value, point in factors)]
            if all(abs(value) < max(SURE * point.error, SMALL) for value, point in around):
                return math.exp(factor)
        return None

    def _usual(self, every: Mapping[tuple[str, str], Sequence[Point]]) -> int:
        """Which of the usual initialisations most roles start by, where their gain is taken out; Xavier's of none."""

        def num_near(number: int) -> int:
            means = [
                math.log(_mean_ratio(points) / points[-1].bases[number])
                for points in every.values()
                if all(point.std > 0 and point.asked > 0 for point in points)
            ]
            return sum(abs(mean) < SMALL for mean in means)

        return max(range(len(next(iter(every.values()))[-1].bases)), key=num_near)

    def _init(
        self,
        key: tuple[str, str],
        every: Mapping[tuple[str, str], Sequence[Point]],
        plain: Mapping[tuple[str, str], float],
        factor: float | None,
    ) -> Iterator[Fault]:
        role, points = key[1], every[key]
        zero = [point for point in points if point.std == 0]
        wants_zero = [point for point in points if point.asked == 0]
        if zero and wants_zero and len(zero) == len(wants_zero) == len(points):
            return
        if zero or wants_zero:
            if not wants_zero and len(zero) == len(points):
                yield self._init_fault(key, points, "init-law", f"The {role} matrices start at 0.")
            elif wants_zero and not zero:
                yield self._init_fault(key, points, "init-law", f"The {role} matrices do not start at 0.")
            elif zero and not wants_zero:
                number = zero[-1].num_layers
                of = f"{_layers_text({p.layer for p in zero if p.num_layers == number})} of {number}"
                fault = self._init_fault(key, zero, "init-law", f"Some {role} matrices start at 0: {of}.")
                yield replace(fault, found=f"std 0 in these layers, {self.laws[key].text} in the others")
            return
        ratio = fit(points, lambda point: point.std / point.asked)
        law, asked = self.laws[key], self.asked_laws[key]
        is_off = not ratio.is_flat or ratio.misfit < _UNLIKELY
        if is_off and asked.has_layer_power and _counted_otherwise(points):
            yield self._init_fault(key, points, "init-law", self._law_text(role, points, law, asked, ratio))
            return
        if ratio.misfit < _UNLIKELY and (odd := _odd(points, is_few=not ratio.is_flat)):
            yield self._odd_fault(key, points, odd)
            return
        error = max(_scatter(sum(point.entries for point in points)), SMALL)
        assert self.claimed is not None
        usual = self._usual(every)
        starts = [cut * value for value in (*points[-1].bases, *plain.values()) for cut in _CUTS if value > 0]

        def is_a_start(value: float) -> bool:
            return any(abs(math.log(value / start)) < max(error, _SMALL_CONSTANT) for start in starts)

        whose = self._whose_gains(key, points, usual)
        if not ratio.is_flat:
            what = self._law_text(role, points, law, asked, ratio)
            if whose:
                what = whose
            elif law.is_flat and not asked.has_layer_power and not is_a_start(law.constant):
                asked_at = {point.num_layers: point.asked for point in points}
                if at := _layers_of(self._fixed_gain(key, every, usual), asked_at, error):
                    what = (
                        f"The {role} matrices start at the same scale at every depth, which is {self.name}'s at about "
                        f"{at} layers."
                    )
            yield self._init_fault(key, points, "init-law", what)
            return
        if self.claimed.is_absolute:
            factor = _mean_ratio(points)
            is_cut = (cut for cut in _CUTS[1:] if abs(abs(math.log(factor)) + math.log(cut)) < error)
            if abs(math.log(factor)) > error and (cut := next(is_cut, None)) is not None:
                self.cut.setdefault(f"{1 / cut if factor > 1 else cut:.3g}", []).append(role)
            elif abs(math.log(factor)) > error:
                share = _share_of_layers(factor, asked.power)
                of = f", that of {share} as many layers" if share else ""
                what = f"The {role} matrices start at {factor:.3g} times the scale of {self.name}{of}."
                yield self._init_fault(key, points, "init-constant", what)
            return
        if asked.is_flat and _is_near(asked.constant, 1.0, 1e-6):
            return  # a scheme leaves the constant of what it does not scale to the initialisation
        base = _mean_ratio(points)
        if factor is not None:
            if abs(math.log(factor)) > error:
                what = whose or (
                    f"The {role} matrices follow the law of {self.name} with another constant: x {factor:.3g} beside "
                    "the matrices that it leaves alone."
                )
                yield self._init_fault(key, points, "init-constant", what)
            return
        if not is_a_start(base):
            what = whose or (
                f"The {role} matrices follow the law of {self.name} with another constant: x "
                f"{base / points[-1].bases[usual]:.3g} beside the initialisation of the others."
            )
            yield self._init_fault(key, points, "init-constant", what)

    def _fixed_gain(self, key: tuple[str, str], every: Mapping[tuple[str, str], Sequence[Point]], usual: int) -> float:
        """What the matrices of a role start at whatever the depth; beside a recipe the standard deviation, beside a
        scheme the gain. Roles with the same law whose scales are alike are read together."""
        assert self.claimed is not None

        def gain(point: Point) -> float:
            return point.std if self.claimed_is_absolute else point.std / point.bases[usual]

        means = {
            of: _mean([(math.log(gain(point)), point) for point in points])
            for of, points in every.items()
            if of[0] == key[0]
            and self.laws[of].is_flat
            and all(p.std > 0 for p in points)
            and {p.num_layers: p.asked for p in points} == {p.num_layers: p.asked for p in every[key]}
        }
        alike = [of for of, mean in means.items() if abs(mean - means[key]) < SMALL]
        return math.exp(_mean([(means[of], point) for of in alike for point in every[of]]))

    def _law_text(self, role: str, points: Sequence[Point], law: Law, asked: Law, ratio: Law) -> str:
        if self._is_twice(role, points):
            return f"The {role} matrices have the square of {self.name}'s depth rule, as where it is applied twice."
        if asked.has_layer_power and (counted := _counted_otherwise(points)):
            return f"The {role} matrices follow {self.name}'s law, but the layer's index is counted {counted}."
        number, index = "number of layers", "layer's index"
        own, theirs = ((it.has_power, it.has_layer_power) for it in (law, asked))
        for one, other, there in ((number, index, (True, False)), (index, number, (False, True))):
            if own == there and theirs == there[::-1]:
                return f"The {role} matrices are scaled by the {one}, and {self.name}'s by the {other}."
        of_number = law.power, asked.power, law.has_power, asked.has_power
        of_index = law.layer_power, asked.layer_power, law.has_layer_power, asked.has_layer_power
        for word, differs, (power, wanted, has, wants) in (
            (number, ratio.has_power, of_number),
            (index, ratio.has_layer_power, of_index),
        ):
            if not differs:
                continue
            if wants and not has:
                return f"The {role} matrices do not depend on the {word}: the depth rule of {self.name} is not applied."
            if has and not wants and asked.is_flat:
                return f"The {role} matrices are scaled by the {word}, and {self.name} leaves them alone."
            if has and not wants and ratio.misfit > _UNLIKELY:
                return f"The {role} matrices are scaled by the {word}, and {self.name}'s are not."
            if has and not wants:
                continue
            if power is not None and wanted is not None and abs(power + wanted) < 0.1 * abs(wanted):
                return f"The {role} matrices' exponent in the {word} has the wrong sign."
            return f"The {role} matrices have another exponent in the {word} than {self.name}'s."
        return f"The {role} matrices follow another law than {self.name}'s."

    def _is_twice(self, role: str, points: Sequence[Point]) -> bool:
        """Whether matrices have what is asked for times the factor by which that differs from the scale of others."""
        if self.claimed_is_absolute:
            plain = {law.constant for key, law in self.asked_laws.items() if law.is_flat and law.constant > 0}
        else:
            plain = {1.0}
            points = [replace(point, std=point.std / point.bases[self.usual]) for point in points]
        return any(
            all(abs(math.log(p.std * one / p.asked**2)) < max(SURE * p.error, SMALL) for p in points) for one in plain
        )

    def _odd_fault(self, key: tuple[str, str], points: Sequence[Point], odd: Sequence[Point]) -> Fault:
        """Of some layers whose matrices start at another scale than the rest's."""
        centre = _middle(points)
        layers = dict.fromkeys(f"layer {p.layer} of {p.num_layers}" for p in odd)
        what = f"Some {key[1]} matrices start at another scale than the rest: {_few(list(layers))}".rstrip(".") + "."
        fault = self._init_fault(key, odd, "init-law", what)
        found = dict.fromkeys(f"std {p.std:.3g} at layer {p.layer} of {p.num_layers}" for p in odd)
        asked = dict.fromkeys(f"{p.asked * centre:.3g} at layer {p.layer} of {p.num_layers}" for p in odd)
        return replace(fault, found=_few(list(found)), expected=f"as the rest, std {_few(list(asked))}")

    def _init_fault(self, key: tuple[str, str], points: Sequence[Point], kind: str, what: str) -> Fault:
        side, role = key
        law, asked = self.laws.get(key), self.asked_laws.get(key)
        last = points[-1]
        assert self.claimed is not None
        scale = 1.0 if self.claimed.is_absolute else self.scales[key]
        depth = next(depth for depth in self.depths if depth.counts[side] == last.num_layers)
        formula = times(float(f"{scale:.4g}"), self._law("std", depth, side, role))
        is_all = len({p.layer for p in points if p.num_layers == last.num_layers}) == last.num_layers
        fix = "\n".join(
            _of_layers(
                "torch.nn.init.normal_(model.get_parameter({}){}, std={})",
                [(p.name, p.rows, p.layer, f"{p.asked * scale:.4g}") for p in own if p.rows is not None],
                formula if is_all else None,
                (_count_name(depth.built, side), number),
            )
            for number, own in _by_number(points).items()
            if number == last.num_layers or not is_all
        )
        if self.claimed.is_absolute or not self.usual:  # a scheme's would be on Xavier's initialisation
            fix += f"{chr(10) if fix else ''}{self._initialise()}  # all of them"
        text = asked.text if asked else "0"
        if not self.claimed.is_absolute:
            of_std = replace(asked, constant=asked.constant * scale).text if asked else "0"
            text = f"{of_std}, a gain of {text} on the initialisation's own"
        return Fault(
            kind,
            what,
            _distinct([point.name for point in points]),
            f"std {law.text if law else 0}",
            f"std {text}",
            fix,
            roles=(role,),
            side=side,
        )

    # ------------------------------------------------------------ ends and biases

    def _ends(self) -> Iterator[Fault]:
        """Of a recipe: the embedding's scale, and the head's. Of a scheme the first, where it scales its embedding."""
        assert self.claimed is not None
        if not self.claimed.is_absolute and all(asked.embedding_std == 1 for asked in self.asked):
            return
        for depth, asked in zip(self.depths, self.asked, strict=True):
            built = depth.built
            start = built.sublayers[0]
            wanted = asked.embedding_std * asked.embedding_multiplier
            value = math.sqrt(start.second_moment)
            entries = 1 if built.start_value is None else built.start_value.numel()
            if "token ids" in built.inputs.kind and not _is_near(value, wanted, max(0.15, _scatter(entries))):
                names = [name for name, role in built.others.items() if role in ("embedding", "positions")]
                given = sum(built.flow.parameters[name].detach().double().square().mean().item() for name in names)
                if start.side in built.starts_normed and _is_near(math.sqrt(given), wanted, 0.15):
                    # the embedding is as it should be, and the norm behind it is what changes the scale
                    if not any("post" in pair.built.norms - pair.places for _, own in self.pairs for pair in own):
                        yield Fault(
                            "embedding",
                            f"A norm stands on the stream behind the embedding; {self.name} has none there.",
                            _distinct(names),
                            f"root mean square {value:.3g} where the stream begins",
                            f"root mean square {wanted:.3g}",
                            "# leave out: x = norm(x)  # behind the embedding",
                            roles=("embedding",),
                        )
                    break
                stds = self.claimed.start_stds(asked, has_positions="positions" in built.others.values())
                yield Fault(
                    "embedding",
                    f"The stream begins at another scale than {self.name}'s.",
                    _distinct(names),
                    f"root mean square {value:.3g} where the stream begins",
                    f"root mean square {wanted:.3g}",
                    "\n".join(f"nn.init.normal_({of}.weight, std={std:.4g})" for of, std in stds.items() if std),
                    roles=("embedding",),
                )
                break
        for depth, asked in zip(self.depths, self.asked if self.claimed.is_absolute else (), strict=False):
            built = depth.built
            wanted = asked.head_gain / math.sqrt(asked.d_model)
            names = [name for name, role in built.others.items() if role == "head"]
            heads = [head for name in names if (head := built.flow.parameters[name].detach().double()).ndim > 1]
            stds = [head.std().item() for head in heads]
            if (
                stds
                and not _is_near(stds[0], wanted, max(0.05, _scatter(heads[0].numel())))
                and heads[0].shape[-1] == asked.d_model
            ):
                yield Fault(
                    "head",
                    f"The head starts at another scale than {self.name}'s.",
                    _distinct(names),
                    f"std {stds[0]:.3g}",
                    f"std {wanted:.3g}",
                    f"nn.init.normal_(head.weight, std={wanted:.4g})",
                    roles=("head",),
                )
                break

    def _biases(self) -> Iterator[Fault]:
        assert self.claimed is not None
        by_depth: dict[int, list[float]] = {}
        names: list[str] = []
        for depth in self.depths:
            for name, roles in depth.built.biases.items():
                if set(roles) & set(BRANCH_ROLES):  # of an embedding or a head, recipes say nothing
                    value = depth.built.flow.parameters[name].detach().double()
                    size = value.square().mean().sqrt().item()
                    by_depth.setdefault(depth.asked, []).append(size)
                    names += [name] if size > 0 else []
        if not names:
            return
        sizes = {asked: sum(values) / len(values) for asked, values in by_depth.items()}
        first = next(iter(sizes.values()))
        is_one = all(_is_near(size, first, 0.05) for size in sizes.values())
        text = f"{first:.2g}" if is_one else ", ".join(f"{size:.2g} at {asked} layers" for asked, size in sizes.items())
        if self.claimed.is_absolute:
            yield Fault(
                "bias",
                "Biases do not start at 0.",
                _distinct(names),
                f"root mean square {text}",
                "root mean square 0",
                "nn.init.zeros_(linear.bias)",
                roles=("bias",),
            )
        else:
            self.remarks.append(f"biases do not start at 0: their root mean square is {text}")

    def _by_side(self) -> list[tuple[str, list[tuple[Depth, Pair]]]]:
        found: dict[str, list[tuple[Depth, Pair]]] = {}
        for depth, own in self.pairs:
            for pair in own:
                found.setdefault(pair.built.side, []).append((depth, pair))
        return list(found.items())


# ---------------------------------------------------------------- layers beside one another


Siblings = tuple[object, ...]
"""What sublayers that are beside one another have in common: their kind, and the sizes of their matrices."""


def _block_of(name: str) -> tuple[str, str] | None:
    """The stack and the block of a parameter, by the first number in its name.

    >>> from depthlaw.auditing.compare import _block_of
    >>> _block_of("h.3.experts.0.up"), _block_of("head.weight")
    (('h.', '3'), None)
    """
    found = re.match(r"(.*?)(?<![^.])(\d+)\.", name)
    return None if found is None else (found[1], found[2])


def _num_blocks(built: Built) -> int:
    """Of the stack that has most, by the names of what it runs."""
    stacks = {block[0] for weight in built.weights if (block := _block_of(weight.name))}
    blocks = {block for name in built.flow.parameters if (block := _block_of(name)) and block[0] in stacks}
    return max(Counter(stack for stack, _ in blocks).values(), default=0)


def _siblings(built: Built, side: str) -> dict[Siblings, list[Sublayer]]:
    groups: dict[Siblings, list[Sublayer]] = {}
    for sub in built.sides.get(side, ()):
        groups.setdefault((sub.kind, *sorted((w.role, *w.shape) for w in sub.weights)), []).append(sub)
    return groups


class _Odd(NamedTuple):
    """A sublayer that is unlike the rest of its group, of the model of a number of layers. The rest begins with those
    that have the norms of most."""

    number: int
    sub: Sublayer
    rest: Sequence[Sublayer]


def _odd_text(odd: Sequence[_Odd]) -> str:
    """Which layer it is, of the deepest model and of shallower ones."""
    *before, last = (f"{at.sub.layer} of {at.number}" for at in odd)
    return f"layer {last}" + (f" (and {', '.join(before)})" if len({at.sub.layer for at in odd}) > 1 else "")


def _apart(values: Sequence[float], share: float) -> list[int]:
    """Places of the values that are not near the median; all, where it cannot be told from which they differ."""
    middle = sorted(values)[len(values) // 2]
    off = [place for place, value in enumerate(values) if not _is_near(value, middle, share)]
    is_clear = all(not _is_near(values[place], middle, max(_CLEAR, 2 * share)) for place in off)
    return off if is_clear and middle else list(range(len(values)))


def _growth_at(sub: Sublayer, place: str) -> float:
    return sub.input_growth if place == "pre" else sub.output_growth


def _share_of_stream(sub: Sublayer) -> float:
    """The residual weight over the branch weight: a number behind the sum is in both."""
    return sub.residual_weight / sub.branch_weight if sub.branch_weight else 0.0


def _std_of(sub: Sublayer, role: str) -> float:
    return _mean_std(sub.roles.get(role, []))


def _mean_std(own: Sequence[Weight]) -> float:
    return math.sqrt(sum(w.std**2 for w in own) / len(own)) if own else 0.0


def _scatter_of(sub: Sublayer, role: str) -> float:
    return max(SMALL, _scatter(sum(w.of(w.parameter).numel() for w in sub.roles[role])))


# ---------------------------------------------------------------- small things


def _count_name(built: Built, side: str) -> str:
    """What Python of a fix calls the number of layers of a side."""
    return f"num_{side}_layers" if len(built.sides) > 1 else "num_layers"


def _of_layers(call: str, own: Sequence[tuple[str, str, int, str]], formula: str | None, count: tuple[str, int]) -> str:
    """Python that does something to parameters of the layers: a loop for those whose names differ in the layer alone
    and that have one number or a formula, else a line for each, for the depth that has such layers. own: name, rows,
    layer and number. count: of layers, its name and value.

    >>> from depthlaw.auditing.compare import _of_layers
    >>> print(_of_layers("zero({}{}, {})", [("h.1.up", "", 2, "0.1")], None, ("num_layers", 4)))
    if num_layers == 4:
        zero("h.1.up", 0.1)  # layer 2 of 4
    >>> print(_of_layers("zero({}{}, {})", [(f"h.{n}.up", "", n + 1, "0.1") for n in (0, 1)], None, ("num_layers", 2)))
    for layer in range(1, num_layers + 1):
        zero(f"h.{layer - 1}.up", 0.1)
    """
    called, number = count
    groups: dict[tuple[str, str], dict[int, tuple[str, str]]] = {}
    for name, rows, layer, value in own:
        groups.setdefault((_name_of_layer(name, layer), rows), {})[layer] = name, value
    looped, guarded, lines = [], [], []
    for (pattern, rows), by_layer in groups.items():
        values = {value for _, value in by_layer.values()}
        text = formula or (min(values) if len(values) == 1 else None)
        if text is not None and "{" in pattern and 1 < number == len(by_layer):
            looped.append(f"    {call.format(f'f{chr(34)}{pattern}{chr(34)}', rows, text)}")
        else:
            for layer, (name, value) in by_layer.items():
                line = f"{call.format(f'{chr(34)}{name}{chr(34)}', rows, value)}  # layer {layer} of {number}"
                (guarded if "{" in pattern else lines).append(line if "{" not in pattern else f"    {line}")
    head = [f"for layer in range(1, {called} + 1):"] if looped else []
    only = [f"if {called} == {number}:"] if guarded else []
    return "\n".join([*head, *looped, *only, *dict.fromkeys(guarded), *dict.fromkeys(lines)])


def _name_of_layer(name: str, layer: int) -> str:
    """The name of a parameter as a pattern of Python in the layer, which may be counted from 0 in it.

    >>> from depthlaw.auditing.compare import _name_of_layer
    >>> _name_of_layer("h.3.experts.0.up", 4), _name_of_layer("embedding", 1)
    ('h.{layer - 1}.experts.0.up', 'embedding')
    """
    for index, text in ((layer - 1, "{layer - 1}"), (layer, "{layer}")):
        found, number = re.subn(rf"(?<![^.]){index}(?![^.])", text, name, count=1)
        if number:
            return found
    return name


def _are_one(first: Weight, second: Weight) -> bool:
    """Whether two are the same entries of one parameter; a parameter may hold the matrices of all layers."""
    if first.name != second.name or first.expert != second.expert:
        return False
    if first.features is None or second.features is None:
        return first.features is second.features
    return torch.equal(first.features, second.features)


def _are_equal(first: Weight, second: Weight) -> bool:
    return torch.equal(first.of(first.parameter), second.of(second.parameter))


def _bases(weight: Weight) -> tuple[float, ...]:
    """Standard deviations that usual initialisations give a matrix of that shape: Xavier's first, that of the whole of
    a fused matrix among them."""
    rows, columns = weight.shape[-2:]
    whole = weight.parameter.shape[weight.output_dim] if weight.features is not None else rows
    return tuple(
        math.sqrt(variance)
        for variance in (2 / (rows + columns), 2 / (whole + columns), 1 / columns, 2 / columns, 1 / (3 * columns))
    )


def _rows_text(weight: Weight) -> str | None:
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


def _law_of(points: Sequence[Point]) -> Law:
    """The law of a role's standard deviations; of those that follow one, where a few do not."""
    law = fit(points, lambda point: point.std)
    if law.misfit > _UNLIKELY or not all(point.std > 0 and point.asked > 0 for point in points):
        return law
    odd = _odd(points, is_few=True)
    rest = fit([point for point in points if point not in odd], lambda point: point.std) if odd else law
    return rest if rest.misfit > _UNLIKELY else law


def _by_number(points: Iterable[Point]) -> dict[int, list[Point]]:
    """By the number of layers."""
    found: dict[int, list[Point]] = {}
    for point in points:
        found.setdefault(point.num_layers, []).append(point)
    return found


def _middle(points: Sequence[Point]) -> float:
    """The median of what is there over what is asked for."""
    ratios = sorted(point.std / point.asked for point in points)
    return ratios[len(ratios) // 2]


def _odd(points: Sequence[Point], *, is_few: bool) -> list[Point]:
    """Those at another scale than the rest. is_few: only where the rest is at least half of every depth and all as is
    asked for, as where the last layer is left out."""
    centre = _middle(points)
    odd = [p for p in points if abs(math.log(p.std / p.asked / centre)) > max(SURE * p.error, SMALL)]
    if is_few and any(
        2 * sum(p.num_layers == number for p in odd) > sum(p.num_layers == number for p in points)
        for number in {p.num_layers for p in points}
    ):
        return []
    return odd


def _counted_otherwise(points: Sequence[Point]) -> str | None:
    """How the layer's index is counted, where that alone differs from what is asked for."""
    asked = {(p.num_layers, p.layer): p.asked for p in points}
    for text, index in (
        ("from 0", lambda p: max(p.layer - 1, 1)),
        ("from 2", lambda p: p.layer + 1),
        ("from the last layer", lambda p: p.num_layers + 1 - p.layer),
    ):
        moved = [replace(p, asked=own) for p in points if (own := asked.get((p.num_layers, index(p))))]
        if len({p.layer for p in moved}) > 1:
            ratio = fit(moved, lambda point: point.std / point.asked)
            if ratio.is_flat and ratio.misfit > _UNLIKELY:
                return text
    return None


def _of_all_sublayers(values: Mapping[tuple[int, int, str], float]) -> dict[int, float]:
    """By the number of layers, what all sublayers have; empty where they differ."""
    by_number: dict[int, set[float]] = {}
    for (number, *_), value in values.items():
        by_number.setdefault(number, set()).add(round(value, 6))
    is_one = all(len(own) == 1 for own in by_number.values())
    return {number: min(own) for number, own in by_number.items()} if is_one else {}


def _power(values: Mapping[int, float]) -> float | None:
    """Of the number of layers, where values are a constant times a power of it; else None."""
    if len(values) < 2 or min(values.values()) <= 0:
        return None
    first, last = min(values), max(values)
    power = math.log(values[last] / values[first]) / math.log(last / first)
    is_one = all(_is_near(value, values[last] * (at / last) ** power, _NEAR) for at, value in values.items())
    return power if is_one else None


def _share_of_layers(ratio: float, power: float | None) -> str | None:
    """How many of the layers a power of their number would have to count to be off by a ratio: half or twice as many.

    >>> from depthlaw.auditing.compare import _share_of_layers
    >>> _share_of_layers(2**0.5, -0.5), _share_of_layers(1.2, -0.5)
    ('half', None)
    """
    layers = ratio ** (1 / power) if power is not None and abs(power) > _NEAR else 1.0
    return next((text for text, by in (("half", 0.5), ("twice", 2.0)) if _is_near(layers, by, 5 * _NEAR)), None)


def _layers_of(value: float, asked: Mapping[int, float], share: float) -> int | None:
    """The number of layers at which a law has a value: one of those at which it is given, or where it is a power."""
    known = next((number for number, own in asked.items() if _is_near(value, own, share)), None)
    power, last = _power(asked), max(asked)
    if known is not None or value <= 0 or not power:
        return known
    number = round(last * math.exp(min(math.log(value / asked[last]) / power, math.log(_MOST_LAYERS))))
    is_it = 0 < number < _MOST_LAYERS and _is_near(value, asked[last] * (number / last) ** power, share)
    return number if is_it else None


def _and(texts: Sequence[str]) -> str:
    """
    >>> from depthlaw.auditing.compare import _and
    >>> _and(["q"]), _and(["q", "k", "v"])
    ('q', 'q, k and v')
    """
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def _few(texts: Sequence[str]) -> str:
    return ", ".join(texts[:4]) + (" ..." if len(texts) > 4 else "")


def _mean_ratio(points: Sequence[Point]) -> float:
    return math.exp(_mean([(math.log(point.std / point.asked), point) for point in points]))


def _mean(values: Sequence[tuple[float, Point]]) -> float:
    """Of numbers that were read from matrices of other sizes."""
    return sum(value * point.entries for value, point in values) / sum(point.entries for _, point in values)


def _ratio_where_post(pair: Pair) -> tuple[float, float]:
    """The residual weight that is there and the one that is asked for. Before a norm that stands on the stream, only
    its ratio to the branch weight counts."""
    found, asked = pair.built.residual_weight, pair.asked.residual_weight
    if "post" in pair.built.norms and "post" in pair.places and pair.built.branch_weight and pair.asked.branch_weight:
        return found / pair.built.branch_weight, asked / pair.asked.branch_weight
    return found, asked


def _scatter(entries: int) -> float:
    """The relative difference of a standard deviation of so many entries that no draw makes."""
    return SURE / math.sqrt(2 * entries)


def _is_near(value: float, wanted: float, share: float) -> bool:
    return abs(value - wanted) <= share * max(abs(wanted), 1e-12)


def _by_depth(values: Iterable[tuple[Depth, float]]) -> str:
    """Numbers by the number of layers: one where they are equal, else from the first layer to the last."""
    by_depth: dict[int, list[float]] = {}
    for depth, value in values:
        by_depth.setdefault(depth.asked, []).append(value)
    parts = []
    for asked, numbers in by_depth.items():
        first, last = numbers[0], numbers[-1]
        text = f"{first:.4g}" if max(numbers) - min(numbers) <= 1e-3 * abs(first) else f"{first:.4g} to {last:.4g}"
        parts.append((text, f"{text} at {asked} layers"))
    is_one = len(parts) > 1 and len({text for text, _ in parts}) == 1
    return f"{parts[0][0]} at every depth" if is_one else ", ".join(at_depth for _, at_depth in parts)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once."""
    return tuple(dict.fromkeys(names))


def _branch_names(wrong: Sequence[tuple[Depth, Pair]]) -> list[str]:
    named = [p.built.branch_parameter for _, p in wrong if p.built.branch_parameter]
    return named or list(_names(wrong))


def _names(wrong: Sequence[tuple[Depth, Pair]]) -> tuple[str, ...]:
    """Of the matrices of sublayers, in the deepest of the models."""
    return _distinct([w.name for depth, pair in wrong if depth is wrong[-1][0] for w in pair.built.weights])


def _norms_ahead(built: Built, sublayers: Sequence[Sublayer]) -> tuple[str, ...]:
    """Gains of the norms between the stream and the first matrices of these sublayers."""
    flow, found = built.flow, []
    gains = [name for name, role in built.others.items() if role == "norm_gain"]
    for sub in sublayers:
        names = {weight.name for weight in sub.weights}
        inside = flow.between(sub.start, sub.end)
        behind = flow.reached(node for node in inside if flow.matrices.get(node) in names)
        ahead = inside - behind - {sub.start}
        found += [name for name in gains if ahead.intersection(flow.next(flow.leaves[name], flow.active.__contains__))]
    return _distinct(found)


def _norms_behind(built: Built, sublayers: Sequence[Sublayer]) -> tuple[str, ...]:
    """Gains of the norms that stand on the stream behind these sublayers."""
    flow, found = built.flow, []
    gains = [name for name, role in built.others.items() if role == "norm_gain"]
    for own in built.sides.values():
        for sub, following in pairwise(own):
            if sub in sublayers:
                inside = flow.between(sub.end, following.start)
                found += [name for name in gains if inside.intersection(flow.users(flow.leaves[name]))]
    return _distinct(found)


_NORM_CLASSES = {"rmsnorm": "nn.RMSNorm", "layernorm": "nn.LayerNorm"}
_PLACE_TEXTS = {
    "pre": "on what the branch is given",
    "q": "of the queries",
    "k": "of the keys",
    "v": "of the values",
    "inner": "before the output matrix",
    "branch": "on what the branch gives out",
    "post": "on the stream behind the sum",
}


def _place_text(place: str) -> str:
    return _PLACE_TEXTS[place]


def _set_text(norms: Collection[str]) -> str:
    return f"norms {', '.join(place for place in PLACES if place in norms)}" if norms else "no norm"


def _layers_text(numbers: Collection[int]) -> str:
    layers = sorted(numbers)
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers[:8]))}{' ...' if len(layers) > 8 else ''}"


def _sum(residual: str, branch: str, norms: Collection[str]) -> str:
    """Python of a sublayer, with what multiplies its stream and its branch."""
    term = "branch(norm(x))" if "pre" in norms else "branch(x)"
    total = f"{residual}x + {branch}{f'norm({term})' if 'branch' in norms else term}"
    return f"x = norm({total})" if "post" in norms else f"x = {total}"


def _norm_fix(place: str, *, is_missing: bool) -> str:
    lines = {
        "pre": "x = x + branch(norm(x))",
        "post": "x = norm(x + branch(x))",
        "branch": "x = x + norm(branch(x))",
        "inner": "return output(norm(inner))",
        "q": "q = q_norm(q)",
        "k": "k = k_norm(k)",
        "v": "v = v_norm(v)",
    }
    return lines[place] if is_missing else f"# leave out: {lines[place]}"
