"""Where norms stand, and of which kind they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from depthlaw.auditing.reading.graph import ADDS, MULTIPLES, Flow, Node, is_a, is_norm, passes_on, shape_of


class Norms:
    """Where norms stand, and of which kind they are: layernorm, rmsnorm, dyt or derf."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.counts: Counter[str] = Counter()

    @property
    def kind(self) -> str | None:
        """Of most norms that were counted."""
        return self.counts.most_common(1)[0][0] if self.counts else None

    def stands_in(self, inside: Collection[Node], *, counts: bool = False) -> bool:
        """Whether these nodes, of a way without matrices, are a norm or a function in its place."""
        kind = None
        if any(is_norm(node) for node in inside):
            centres = any(is_a(node, ("NativeLayerNorm", "NativeGroupNorm", "SubBackward")) for node in inside)
            kind = "layernorm" if centres else "rmsnorm"
        elif any(is_a(node, ("TanhBackward",)) for node in inside):
            kind = "dyt"
        elif any(is_a(node, ("ErfBackward",)) for node in inside):
            kind = "derf"
        if kind is not None and counts:
            self.counts[kind] += 1
        return kind is not None

    def ends_at(self, node: Node, nodes: Collection[Node]) -> bool:
        """Whether a node is the result of a norm, times constants at most, before its gain."""
        flow = self.flow
        while passes_on(node) or is_a(node, MULTIPLES):
            operands = [operand for operand in flow.operands(node) if operand is not None]
            if len(operands) != 1 or operands[0] not in nodes:
                break
            node = operands[0]
        if is_norm(node) or is_a(node, ("TanhBackward", "ErfBackward")):
            return True
        operands = [operand for operand in flow.operands(node) if operand in nodes]
        if not is_a(node, ("MulBackward", "DivBackward")) or len(operands) < 2:
            return False
        return any(self._leads_to_root(operand, nodes) for operand in operands)

    def is_written_out(self, node: Node) -> bool:
        """Whether a node is the result of a norm that is no single operation."""
        return not is_norm(node) and self.ends_at(node, self.flow.active)

    def _leads_to_root(self, node: Node, nodes: Collection[Node]) -> bool:
        """Whether a short way back, through sizes of one number a token, ends in a norm's root."""
        while node in nodes and (shape_of(node)[-1:] == (1,) or passes_on(node)):
            if is_norm(node):
                return True
            operands = [operand for operand in self.flow.operands(node) if operand in nodes]
            if len(operands) != 1:
                return False
            node = operands[0]
        return False

    def is_part_at(self, active: Node, user: Node) -> bool:
        """Whether a parameter that multiplies a value belongs to a norm: it is its gain, or the scale inside it."""
        inner = ("TanhBackward", "ErfBackward")
        nearby = self.flow.users(user)
        nearby += [further for node in nearby if is_a(node, ADDS) for further in self.flow.users(node)]
        is_in_function = any(is_a(node, inner) for node in nearby)
        return self.ends_at(active, self.flow.active) or is_in_function or self._is_before_root(user)

    def _is_before_root(self, gained: Node) -> bool:
        """Whether what has its gain is divided by a norm's root that knows nothing of the gain: w * x * rsqrt(...)."""
        flow = self.flow
        return any(
            is_a(user, ("MulBackward", "DivBackward"))
            and self.ends_at(user, flow.active)
            and flow.between(gained, user) == {gained, user}
            for user in flow.users(gained)
        )

    def is_gained(self, node: Node) -> bool:
        """Whether a node is the result of a norm, behind its gain."""
        operands = [operand for operand in self.flow.operands(node) if operand in self.flow.active]
        if is_a(node, ("MulBackward",)) and len(operands) == 1:
            return self.ends_at(operands[0], self.flow.active)
        return self.ends_at(node, self.flow.active)
