"""The sides of a module that is given several things: which nodes of a pass are whose, and where each side ends.

A value belongs to what it is made of. What is made of several inputs and added to a value of one of them alone is a
branch of that one's stream: so a decoder reads its encoder, and so two streams of one attention go on, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from depthlaw.auditing.reading.graph import ADDS, Flow, Node, is_a, shape_of


@dataclass(frozen=True, kw_only=True)
class Side:
    """starts, ends: where its data come in and go out. nodes: its own. cuts: the ways by which other streams come into
    it and go out of it again, through what it shares with them. is_joined: whether it ends where another goes on with
    it."""

    name: str
    starts: Sequence[Node]
    ends: Sequence[Node]
    nodes: Collection[Node]
    cuts: Sequence[tuple[Node, Node]] = ()
    is_joined: bool = False

    @contextmanager
    def apart(self, flow: Flow) -> Iterator[None]:
        """The graph without the other streams."""
        for cut in self.cuts:
            flow.cut(*cut)
        try:
            yield
        finally:
            for cut in self.cuts:
                flow.restore(*cut)


class Owners:
    """Which of several inputs each node is made of, and to which of their streams it is added. starts: by the name of
    what a module is given, where it comes in."""

    def __init__(self, flow: Flow, starts: Mapping[str, Sequence[Node]]) -> None:
        self.flow, self.starts = flow, starts
        self.sums: dict[str, int] = dict.fromkeys(starts, 0)
        """By stream, how many branches are added to it that several inputs make."""
        self.of = self._made_of()
        self.shared = {node for node, names in self.of.items() if len(names) > 1}
        self.leads = self._lead_to()

    def _made_of(self) -> dict[Node, frozenset[str]]:
        of: dict[Node, frozenset[str]] = {}
        first = {node: name for name, nodes in self.starts.items() for node in nodes}
        for node in self.flow.order:
            parts = [of[operand] for operand in self.flow.operands(node) if operand in of]
            parts += [frozenset({first[node]})] if node in first else []
            if not parts:
                continue
            of[node] = frozenset().union(*parts)
            alone = min(parts, key=len)
            is_sum = is_a(node, ADDS) and len(alone) == 1 < len(of[node]) and all(alone <= part for part in parts)
            if is_sum and any(of.get(operand) == alone for operand in self._of_all_tokens(node)):
                of[node] = alone
                self.sums[next(iter(alone))] += 1
        return of

    def _of_all_tokens(self, node: Node) -> Iterator[Node]:
        """The operands of a sum that have as many entries as it, as a stream has beside its branch; what shifts all
        tokens alike has fewer."""
        size = math.prod(shape_of(node))
        for operand, index in self.flow.edges(node):
            if operand is not None and math.prod(shape_of(operand, index)) == size:
                yield operand

    @property
    def main(self) -> str:
        """The stream that the output is made of; the first, where several are joined for it."""
        last = self.of[self.flow.end]
        return next(iter(last)) if len(last) == 1 else next(iter(self.starts))

    def _lead_to(self) -> dict[Node, frozenset[str]]:
        """Of what several inputs make, the streams that it is added to; of the rest the main one, which goes on."""
        leads: dict[Node, frozenset[str]] = {}
        for node in reversed(self.flow.order):
            if node in self.shared:
                users = [user for user in self.flow.users(node) if user in self.of]
                of_users = [leads.get(user, self.of[user]) for user in users]
                leads[node] = frozenset().union(*of_users) if users else frozenset({self.main})
        return leads

    @cached_property
    def are_side_by_side(self) -> bool:
        """Whether several streams share what is added to them, as those of one attention do."""
        return any(len(names) > 1 for names in self.leads.values())

    def sides(self) -> Iterator[Side]:
        """Those of streams side by side, the main one last."""
        for name in sorted(self.starts, key=self.main.__eq__):
            yield self._side(name)

    def _side(self, name: str) -> Side:
        graph = self.flow.graph
        nodes = {node for node, names in self.of.items() if name in self.leads.get(node, names)}
        into = [
            (operand, node)
            for node in nodes
            if len(self.leads.get(node, ())) > 1
            for operand in graph.predecessors(node)
            if operand in self.of and operand not in nodes
        ]
        out = [
            (node, user) for node in nodes for user in graph.successors(node) if user in self.of and user not in nodes
        ]
        ends = [node for node in nodes if not any(user in nodes for user in graph.successors(node))]
        is_joined = self.flow.end in self.shared and name != self.main
        return Side(
            name=name, starts=self.starts[name], ends=ends, nodes=nodes, cuts=(*into, *out), is_joined=is_joined
        )
