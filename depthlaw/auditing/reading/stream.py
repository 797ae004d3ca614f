"""A residual stream cut into stretches: which of them are sublayers, and what is summed at the end of each.

A stream is the chain of values that every way from the data to the output passes. Where skips go round several
sublayers, no value between them is on every way: such skips are found and cut, and the stretches read without them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from depthlaw.auditing.reading.graph import ADDS, MULTIPLES, Edge, Flow, Node, is_a, is_norm, passes_on, shape_of
from depthlaw.auditing.reading.norms import Norms


@dataclass
class Term:
    """One summand of a stream: factor times what an edge gives, or times the stream itself where edge is None.

    trained: the name of the parameter that is in the factor, of which it takes so many entries. is_gated: whether a
    condition is in the factor, whose root mean square that is then."""

    edge: Edge | None
    factor: float
    trained: str | None = None
    entries: int = 1
    is_gated: bool = False


@dataclass
class Stretch:
    """A stretch of a stream: behind the node ``start``, up to the node ``end``. terms: the summands of the end where it
    is a sublayer, empty where it only goes on."""

    start: Node
    end: Node
    inside: set[Node]
    terms: list[Term]


class Way(NamedTuple):
    """A way round matrices: where it begins, its end, the sum that it goes into, and the nodes that it goes round."""

    source: Node
    skip: Node
    sum: Node
    passed: set[Node]

    def stands_in(self, other: Way) -> bool:
        """Whether the other goes round all of it."""
        return self is not other and self.sum in other.passed and self.source in other.passed


class Streams:
    """The streams of a pass. unread: what could not be read, a line each; long_skips: a line for each kind of skip that
    was cut."""

    def __init__(self, flow: Flow, norms: Norms) -> None:
        self.flow, self.norms = flow, norms
        self.unread: list[str] = []
        self.long_skips: list[str] = []

    def stretches(
        self, side: str, starts: Collection[Node], ends: Collection[Node], nodes: Collection[Node]
    ) -> list[Stretch]:
        """The stretches of a side's stream, read without the skips that go round several sublayers."""
        tried: set[Node] = set()
        while True:
            stretches = self._along(self.flow.chain(starts, ends), nodes)
            broken = [part for part in stretches if part.end not in tried and len(self.ways_round(part)) > 1]
            if not broken:
                break
            for stretch in broken:
                tried.add(stretch.end)
                self._cut(side, stretch, nodes)
        whole = [part for part in stretches if self._is_one_sublayer(part)]
        for stretch in stretches:
            if stretch not in whole:
                self.unread.append(
                    f"{side}: {len(stretch.terms) - 1} branches share no single residual stream (several streams side "
                    "by side, or skips across many layers)"
                )
        return whole

    def _is_one_sublayer(self, stretch: Stretch) -> bool:
        """Whether no branch of a stretch reads another, as those of a parallel block or of experts do not."""
        branches = self.flow.sorted(term.edge[0] for term in stretch.terms if term.edge is not None)
        return not any(self.flow.between(branches[0], other) for other in branches[1:])

    def _along(self, chain: Sequence[Node], nodes: Collection[Node]) -> list[Stretch]:
        return [self._stretch(start, end, nodes) for start, end in pairwise(chain)]

    def _stretch(self, start: Node, end: Node, nodes: Collection[Node]) -> Stretch:
        inside = self.flow.between(start, end) - {start}
        terms: list[Term] = []
        if any(node in self.flow.matrices for node in inside):
            terms = self.terms(end, start, nodes)
            if not any(term.edge is None for term in terms):
                terms = []
        return Stretch(start, end, inside, terms)

    def has_matrices(self, stretch: Stretch) -> bool:
        return any(node in self.flow.matrices for node in stretch.inside)

    def changes_width(self, stretches: Sequence[Stretch]) -> bool:
        return shape_of(stretches[0].start)[-1] != shape_of(stretches[-1].end)[-1]

    def begins_anew(self, stretches: Sequence[Stretch]) -> bool:
        """Whether an attention is added to a learned token, as in CaiT, where one token reads the rest in the end."""
        return bool(self.learned_beginnings(stretches))

    def learned_beginnings(self, stretches: Sequence[Stretch]) -> list[str]:
        """The name of the parameter that is tokens to which an attention is added; none where there are none such."""
        flow = self.flow
        inside = {node for stretch in stretches for node in stretch.inside}
        if not any(node in flow.products for node in inside):
            return []
        of_attention = flow.reached(node for node in flow.products if node in inside)
        for node in flow.sorted(inside & of_attention):
            operands = [operand for operand in flow.operands(node)[:2] if operand is not None]
            fixed = [operand for operand in operands if operand not in flow.active]
            if is_a(node, ADDS) and len(operands) == 2 and len(fixed) == 1:
                learned = [n for n in flow.inactive_parameters(fixed[0]) if flow.parameters[n].ndim > 1]
                added = [name for name in learned if any(is_a(user, ADDS) for user in self._users(flow.leaves[name]))]
                if learned:
                    return (added or learned)[:1]
        return []

    def _users(self, node: Node) -> list[Node]:
        """What uses a value, in whatever shape."""
        return self.flow.next(node, lambda user: not passes_on(user))

    # ------------------------------------------------------------ skips round several sublayers

    def ways_round(self, stretch: Stretch) -> list[Way]:
        """Sums of a stretch of which one operand is made of the other by matrices."""
        flow = self.flow
        if sum(node in flow.matrices for node in stretch.inside) < 2:
            return []
        ways, within = [], stretch.inside | {stretch.start}
        for node in flow.sorted(stretch.inside):
            operands = [operand for operand in flow.operands(node)[:2] if operand in within]
            if not is_a(node, ADDS) or len(operands) != 2:
                continue
            sources = {operand: self._source(operand, within) for operand in operands}
            skip, branch = sorted(operands, key=lambda operand: flow.place(sources[operand]))
            passed = flow.between(sources[skip], branch)
            if any(part in flow.matrices for part in passed - {sources[skip]}):
                ways.append(Way(sources[skip], skip, node, passed))
        return ways

    def _source(self, node: Node, within: Collection[Node]) -> Node:
        """What a value was before it was multiplied by numbers or seen in another shape."""
        while passes_on(node) or is_a(node, MULTIPLES):
            operands = [operand for operand in self.flow.operands(node) if operand in within]
            if len(operands) != 1:
                break
            node = operands[0]
        return node

    def _cut(self, side: str, stretch: Stretch, nodes: Collection[Node]) -> None:
        """Cut what goes round several sublayers of a stretch, where that leaves sublayers alone."""
        flow = self.flow
        within, ways = stretch.inside | {stretch.start}, self.ways_round(stretch)
        mixed, added = [], [(way.skip, way.sum) for way in ways if any(other.stands_in(way) for other in ways)]
        for node in flow.sorted(stretch.inside):
            operands = [operand for operand in flow.operands(node)[:2] if operand in within]
            if is_a(node, ADDS) and len(operands) == 2 and (earlier := self._from_earlier_attention(node, operands)):
                mixed.append((earlier, node))
        ends = [operand for operand in flow.operands(stretch.end)[:2] if operand in within]
        last = [[(operand, stretch.end)] for operand in ends] if is_a(stretch.end, ADDS) and len(ends) == 2 else []
        cases = [
            (mixed, "attentions are given values or logits of earlier ones"),
            (added, "earlier values of the stream are added to later ones"),
            *((end, "a second stream is added at the end") for end in last),
        ]
        for chosen in ([0], [1], [0, 1], *([case] for case in range(2, len(cases)))):
            cuts = list(dict.fromkeys(cut for case in chosen for cut in cases[case][0]))
            if not all(cases[case][0] for case in chosen):
                continue
            for cut in cuts:
                flow.cut(*cut)
            parts = self._along(flow.chain([stretch.start], [stretch.end]), nodes)
            with_matrices = [part for part in parts if self.has_matrices(part)]
            if len(with_matrices) > 1 and all(part.terms and self._is_one_sublayer(part) for part in with_matrices):
                self.long_skips += [f"{side}: {cases[case][1]}" for case in chosen]
                return
            for cut in cuts:
                flow.restore(*cut)

    def _from_earlier_attention(self, node: Node, operands: Sequence[Node]) -> Node | None:
        """Of a sum inside an attention, the operand that an earlier attention has made; None where there is none."""
        flow = self.flow

        def is_mixing(part: Node) -> bool:
            return part in flow.matrices or part in flow.products

        users = flow.next(node, is_mixing)
        if not users or not all(user in flow.products for user in users):
            return None
        sources = [flow.nearest(operand, is_mixing, flow.active) for operand in operands]
        for earlier, later in ((0, 1), (1, 0)):
            if sources[earlier] and any(flow.between(a, b) for a in sources[earlier] for b in sources[later] if a != b):
                return operands[earlier]
        return None

    # ------------------------------------------------------------ sums

    def terms(self, node: Node, start: Node, nodes: Collection[Node]) -> list[Term]:
        """The summands of a node: each what it was before it was added, scaled or seen in another shape."""
        flow, terms = self.flow, []
        waiting = [Term((node, 0), 1.0)]
        while waiting:
            term = waiting.pop()
            assert term.edge is not None
            current = term.edge[0]
            if current is start:
                terms.append(replace(term, edge=None))
                continue
            active = [edge for edge in flow.edges(current) if edge[0] in nodes]
            if is_a(current, ADDS) and len(active) < 3:
                factors = dict(zip(flow.edges(current), flow.factors(current), strict=False))
                for edge in active:
                    factor = _one_number(factors[edge])
                    waiting.append(replace(term, edge=edge, factor=term.factor * (1.0 if factor is None else factor)))
            elif passes_on(current) and len(active) == 1:
                waiting.append(replace(term, edge=active[0]))
            elif is_a(current, MULTIPLES) and len(active) == 1:
                factor, trained, entries = self._factor(current, active[0])
                of_stream = active[0][0] is start and current is not node
                is_gain = trained is not None and not of_stream and self.norms.ends_at(active[0][0], nodes)
                if factor is None or is_gain:
                    terms.append(term)
                else:
                    entries = max(term.entries, entries)
                    is_gated = term.is_gated or self.is_conditioned(current)
                    waiting.append(Term(active[0], term.factor * factor, trained or term.trained, entries, is_gated))
            else:
                terms.append(term)
        return terms

    def _factor(self, node: Node, active: Edge) -> tuple[float | None, str | None, int]:
        """What a multiple multiplies its active operand by, the mean where it is trained, that parameter's name, and
        how many of its entries are taken.

        Of a condition it is the root mean square. None where it is neither trained nor one number.
        """
        flow = self.flow
        place = flow.edges(node).index(active)
        factors = flow.factors(node)[place]
        if factors is None:
            return None, None, 1
        by = [edge for edge in flow.edges(node) if edge[0] is not None and edge[0] is not active[0]]
        names = [name for operand, _ in by for name in flow.inactive_parameters(operand)]
        if self.is_conditioned(node):
            return factors.double().square().mean().sqrt().item(), None, 1
        if names:
            entries = max(math.prod(shape_of(*edge)) for edge in by)
            return factors.double().mean().item(), names[0], entries
        return _one_number(factors), None, 1

    def is_conditioned(self, node: Node) -> bool:
        """Whether an operation multiplies or shifts data by a condition."""
        return any(operand in self.flow.conditions for operand in self.flow.operands(node))

    def factor_of(self, stretches: Sequence[Stretch], *, is_behind_norm: bool) -> float:
        """What a part of the stream without matrices multiplies by: before a norm that stands in it, or behind it.

        A function in a norm's place has a scale of its own, and a norm that is written out may have one behind it.
        """
        places = [place for place, part in enumerate(stretches) if self.norms.stands_in(part.inside)]
        if not places:
            return math.prod(map(self._multiple, stretches))
        if is_behind_norm:
            rest = stretches[places[-1] + 1 :]
            rest = [part for part in rest if is_a(part.end, ADDS) or not self.norms.is_written_out(part.start)]
            return math.prod(map(self._multiple, rest))
        is_function = not any(map(is_norm, stretches[places[0]].inside))
        return 1.0 if is_function else math.prod(map(self._multiple, stretches[: places[0]]))

    def _multiple(self, stretch: Stretch) -> float:
        """The constant, or the mean of the trained number, that a stretch without matrices multiplies its stream by; 1
        where a condition does."""
        terms = self.terms(stretch.end, stretch.start, self.flow.active)
        is_number = not any(term.edge is not None or term.is_gated for term in terms)
        return sum(term.factor for term in terms) if is_number else 1.0


def _one_number(factors: Tensor | None) -> float | None:
    """The number that all these entries are; None where they differ by more than rounding."""
    if factors is None or not factors.numel():
        return None
    number = factors.double().flatten()
    middle = number.median().item()
    spread = (number - middle).abs().max().item()
    if spread > 8 * torch.finfo(factors.dtype).eps * abs(middle):
        return None
    return middle
