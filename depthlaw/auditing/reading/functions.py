"""What a function that autograd does not name is, by what it does.

A ``torch.autograd.Function`` or a custom operation has a backward pass of somebody's own. Vectors that are sent back
through it, beside what it was given and what it gave, tell whether it hands a value on, is a norm, a product with a
matrix, a product entry by entry or an attention. What is none of these keeps the name that its author gave it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from depthlaw.auditing.reading.graph import Edge, Flow, Node, is_function, name_function, shape_of

HANDS_ON = "CloneBackward"
MULTIPLE = "MulBackward"
PRODUCT = "MmBackward"
LAYER_NORM, RMS_NORM = "NativeLayerNormOfFunction", "RmsNormOfFunction"
ATTENTION = "ScaledDotProductOfFunction"

_ENTRIES = 16
"""Entries of an output of which vectors are sent back."""
_ALIKE = 1e-3
"""Relative: what rounding in single precision leaves of an equality."""
_GROWS = 0.3
"""Beside a value that is no norm's, how much one grows at most where what it is made of does: a norm's by its epsilon
alone."""


def name_functions(flow: Flow) -> None:
    """Name each function of the pass by the operation that it is like, where it is like one."""
    for node in flow.order:
        if is_function(node) and (like := _Function(flow, node).like()) is not None:
            name_function(node, like)


class _Function:
    """One function. data: its operands that depend on the data, with their places; value: what it gave."""

    def __init__(self, flow: Flow, node: Node) -> None:
        self.flow, self.node = flow, node
        edges = list(enumerate(flow.edges(node)))
        self.data: list[tuple[int, Edge]] = [(at, edge) for at, edge in edges if edge[0] in flow.active]
        self.fixed = [at for at, (operand, _) in edges if operand is not None and operand not in flow.active]
        self.value = flow.value((node, 0))

    def like(self) -> str | None:
        if len(self.data) == 1:
            return self._of_one()
        if len(self.data) == 2 and self._is_product():
            return MULTIPLE
        return ATTENTION if len(self.data) > 2 and self._is_attention() else None

    def _of_one(self) -> str | None:
        (at, edge), value = self.data[0], self.value
        given = self.flow.value(edge)
        if given is None or value is None:
            return None
        ratio = _one_ratio(value.flatten(), given.flatten()) if given.numel() == value.numel() else None
        if ratio is not None and self._is_by_entry(at):
            return HANDS_ON if abs(ratio - 1) < _ALIKE else MULTIPLE
        if self._is_matrix(at):
            return PRODUCT
        return self._norm(at) if given.shape == value.shape and self._is_norm(at, given) else None

    def _entries(self) -> list[Tensor]:
        """Vectors on the output that are zero but for one entry."""
        shape = shape_of(self.node)
        size, like = math.prod(shape), self.node._input_metadata[0]
        vectors = []
        for place in sorted({(2 * n + 1) * size // (2 * _ENTRIES) for n in range(_ENTRIES)}):
            vector = torch.zeros(size, dtype=like.dtype, device=like.device)
            vector[place] = 1.0
            vectors.append(vector.reshape(shape))
        return vectors

    def _is_by_entry(self, at: int) -> bool:
        """Whether each entry is made of one alone, as that of a norm of normed vectors, which it hardly changes, is
        not."""
        parts = [self.flow.parts(self.node, vector)[at] for vector in self._entries()]
        return all(part is None or part.count_nonzero() <= 1 for part in parts)

    def _is_norm(self, at: int, given: Tensor) -> bool:
        """Whether each entry is made of its whole vector, and stays as it is where the vector grows."""
        width, growths = given.shape[-1], []
        for vector in self._entries():
            part = self.flow.parts(self.node, vector)[at]
            if part is None or part.shape != given.shape:
                return False
            rows = part.reshape(-1, width).double()
            row = rows.norm(dim=-1).argmax()
            if 2 * rows[row].count_nonzero() < width or rows.count_nonzero() > width:
                return False
            entries = given.reshape(-1, width).double()[row]
            growths.append((rows[row] @ entries / (rows[row].norm() * entries.norm())).item() * math.sqrt(width))
        return math.sqrt(sum(growth**2 for growth in growths) / len(growths)) < _GROWS

    def _norm(self, at: int) -> str:
        """A layernorm, which a constant that is added to all entries does not change, or an rmsnorm."""
        parts = [self.flow.parts(self.node, vector)[at] for vector in self._entries()]
        rest = [(part.sum().abs() / part.abs().sum()).item() for part in parts if part is not None]
        return LAYER_NORM if max(rest) < _ALIKE else RMS_NORM

    def _is_matrix(self, at: int) -> bool:
        """Whether an entry of one token is sent back as a row, or a column, of a parameter of two dimensions."""
        flow = self.flow
        names = [name for place in self.fixed for name in flow.inactive_parameters(flow.operands(self.node)[place])]
        tables = [table for name in names if (table := flow.parameters[name].detach()).ndim == 2]
        vector = self._entries()[-1]
        part = flow.parts(self.node, vector)[at]
        if part is None or not part.any():
            return False
        feature = int(vector.flatten().argmax()) % vector.shape[-1]
        rows = part.reshape(-1, part.shape[-1])
        row = rows[rows.norm(dim=-1).argmax()].double()
        for table in tables:
            for candidate in (table, table.T):
                if candidate.shape == (vector.shape[-1], len(row)):
                    wanted = candidate[feature].double()
                    if abs(torch.cosine_similarity(row, wanted, dim=0).item()) > 1 - _ALIKE:
                        return True
        return False

    def _is_product(self) -> bool:
        """Whether entries are made of those at the same place of two values, and are in proportion to one of these."""
        value = self.value
        given = [self.flow.value(edge) for _, edge in self.data]
        if value is None or any(operand is None or operand.shape != value.shape for operand in given):
            return False
        ones = torch.ones_like(value)
        parts = self.flow.parts(self.node, ones)
        grown = [parts[at] for at, _ in self.data]
        return any(
            part is not None and operand is not None and torch.allclose(part * operand, value, rtol=_ALIKE, atol=1e-6)
            for part, operand in zip(grown, given, strict=True)
        )

    def _is_attention(self) -> bool:
        """Whether what it gives is a mean of entries of its third operand: its weights of several of them add up to
        one."""
        shapes = [shape_of(*edge) for _, edge in self.data[:3]]
        if len(shapes[0]) < 3 or shape_of(self.node)[:-1] != shapes[0][:-1]:
            return False
        several = False
        for vector in self._entries():
            part = self.flow.parts(self.node, vector)[self.data[2][0]]
            if part is None or abs(part.sum().item() - 1) > _ALIKE:
                return False
            several |= int(part.count_nonzero()) > 1
        return several


def _one_ratio(value: Tensor, given: Tensor) -> float | None:
    """The number that one value is of another; None where there is no such number."""
    x, y = given.double(), value.double()
    size = (x @ x).item()
    if not size or not math.isfinite(size):
        return None
    ratio = (x @ y).item() / size
    return ratio if (y - ratio * x).abs().max().item() <= _ALIKE * y.abs().max().item() else None
