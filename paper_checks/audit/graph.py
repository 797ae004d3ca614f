"""What flows in one forward pass of any module: the graph that autograd made of it, and vectors sent back through it.

Nothing is asked of the module but a forward pass with gradients. A node is an operation of that pass; its operands are
nodes again, a parameter, the data that the module was given, or a constant (None). The graph holds on code of any
style: views, operations in place and functional calls are all in it. What a module computes without gradients, or
computes again in the backward pass (activation checkpoints), is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import networkx as nx
import torch
from torch import Tensor, nn

Node = Any
"""A ``torch.autograd.graph.Node``; its Python interface is not typed."""

Edge = tuple[Node, int]
"""An operation and the number of one of its outputs."""

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward", "AddbmmBackward", "LinearBackward")
CONVOLUTION = "ConvolutionBackward"
FUSED_ATTENTION = "ScaledDotProduct"
_NORMS = ("NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm", "RmsNorm", "FusedRmsNorm", "LinalgVectorNorm")
_NORM_PARTS = ("RsqrtBackward", "SqrtBackward", "NormBackward", "StdBackward", "VarBackward")
_SAME = (
    "View UnsafeView ReshapeAlias Transpose T Permute Expand Clone ToCopy Squeeze Unsqueeze Alias Contiguous "
    "NativeDropout MaskedFill Copy SplitBackward Movedim Mh Mt Flatten Unflatten"
).split()
_PARAMETER = "AccumulateGrad"


def kind_of(node: Node) -> str:
    """The operation's name, without the class and number that torch adds."""
    return node.name().rpartition("::")[2]


def is_a(node: Node, names: Iterable[str]) -> bool:
    return kind_of(node).startswith(tuple(names))


def passes_on(node: Node) -> bool:
    """Whether an operation hands its one operand on as it is, in another shape or with entries hidden."""
    return any(kind_of(node).startswith(f"{name.removesuffix('Backward')}Backward") for name in _SAME)


def is_norm(node: Node) -> bool:
    return is_a(node, _NORMS) or is_a(node, _NORM_PARTS)


def shape_of(node: Node, index: int = 0) -> tuple[int, ...]:
    """Of an output of the operation."""
    return tuple(node._input_metadata[index].shape)


class Flow:
    """The graph of one forward pass of a module.

    output: what the pass gave. parameters: by name, as ``named_parameters`` has them. data: nodes at which what the
    module was given comes in: the embedding of its tokens, or the tensor itself.
    """

    def __init__(self, module: nn.Module, output: Tensor, data: Collection[Node]) -> None:
        if output.grad_fn is None:
            raise ValueError("the module's output does not depend on its parameters by what autograd sees")
        self.end: Node = output.grad_fn
        self.output = output
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.graph = nx.DiGraph()
        waiting = [self.end]
        self.graph.add_node(self.end)
        while waiting:
            node = waiting.pop()
            for operand, _ in node.next_functions:
                if operand is None:
                    continue
                if operand not in self.graph:
                    waiting.append(operand)
                self.graph.add_edge(operand, node)
        self.data = frozenset(node for node in data if node in self.graph)
        self.order: list[Node] = list(nx.topological_sort(self.graph))
        self._place = {node: place for place, node in enumerate(self.order)}

    @cached_property
    def active(self) -> frozenset[Node]:
        """Nodes that depend on the data."""
        return self.reached(self.data)

    def reached(self, start: Iterable[Node]) -> frozenset[Node]:
        """Nodes that depend on any of these, and these."""
        found, waiting = set(start), list(start)
        while waiting:
            for user in self.graph.successors(waiting.pop()):
                if user not in found:
                    found.add(user)
                    waiting.append(user)
        return frozenset(found)

    def parameter(self, node: Node) -> str | None:
        """The name of a parameter where a node is one."""
        return self.names.get(id(node.variable)) if kind_of(node) == _PARAMETER else None

    def operands(self, node: Node) -> list[Node | None]:
        return [operand for operand, _ in node.next_functions]

    def inactive_parameters(self, node: Node) -> list[str]:
        """Names of the parameters that an operand without data is made of."""
        names, seen, waiting = [], {node}, [node]
        while waiting:
            current = waiting.pop()
            name = self.parameter(current)
            if name is not None:
                names.append(name)
            for operand in self.operands(current):
                if operand is not None and operand not in seen and operand not in self.active:
                    seen.add(operand)
                    waiting.append(operand)
        return names

    @cached_property
    def matrices(self) -> Mapping[Node, str]:
        """Products of an active operand with a parameter of two dimensions or more: by node, the parameter's name."""
        found = {}
        for node in self.order:
            if node not in self.active or not is_a(node, (*PRODUCTS, CONVOLUTION)):
                continue
            operands = self.operands(node)
            if is_a(node, ("AddmmBackward", "BaddbmmBackward", "AddbmmBackward")):
                operands = operands[1:]
            elif is_a(node, (CONVOLUTION, "LinearBackward")):
                operands = operands[:2]
            fixed = [operand for operand in operands if operand is not None and operand not in self.active]
            named = [name for operand in fixed for name in self.inactive_parameters(operand)]
            large = [name for name in named if self.parameters[name].ndim > 1]
            if large:
                found[node] = large[0]
        return found

    @cached_property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """By name, those that the pass used."""
        return {
            self.names[id(node.variable)]: node.variable
            for node in self.order
            if kind_of(node) == _PARAMETER and id(node.variable) in self.names
        }

    @cached_property
    def products(self) -> frozenset[Node]:
        """Products of two active operands, such as those of an attention; and attentions that are one operation."""
        found = set()
        for node in self.active:
            operands = [operand for operand in self.operands(node) if operand in self.active]
            is_product = is_a(node, PRODUCTS) and node not in self.matrices and len(operands) > 1
            if is_product or is_a(node, (FUSED_ATTENTION,)):
                found.add(node)
        return frozenset(found)

    # ------------------------------------------------------------ ways through the graph

    def between(self, first: Node, last: Node) -> set[Node]:
        """Nodes on the ways from one to the other, both among them; empty where there is no way."""
        behind = {last}
        for node in reversed(self.order[self._place[first] : self._place[last] + 1]):
            if node in behind:
                behind.update(operand for operand in self.operands(node) if operand is not None)
        ahead = {first}
        for node in self.order[self._place[first] : self._place[last] + 1]:
            if node in behind and any(operand in ahead for operand in self.operands(node)):
                ahead.add(node)
        return ahead & behind if last in ahead else set()

    def chain(self, starts: Collection[Node], ends: Collection[Node]) -> list[Node]:
        """Nodes that every way from any start to any end passes, in order."""
        source, sink = object(), object()
        whole: nx.DiGraph = nx.DiGraph()
        for start in starts:
            for end in ends:
                whole.add_edges_from(self.graph.subgraph(self.between(start, end)).edges)
        whole.add_edges_from((source, node) for node in starts)
        whole.add_edges_from((node, sink) for node in ends)
        leader = nx.immediate_dominators(whole, source)
        found, node = [], leader[sink]
        while node is not source:
            found.append(node)
            node = leader[node]
        return found[::-1]

    def nearest(self, node: Node, is_wanted: Callable[[Node], bool], within: Collection[Node]) -> list[Node]:
        """The first wanted nodes on each way back from a node, itself among them."""
        found, seen, waiting = [], {node}, [node]
        while waiting:
            current = waiting.pop()
            if is_wanted(current):
                found.append(current)
                continue
            for operand in self.operands(current):
                if operand in within and operand not in seen:
                    seen.add(operand)
                    waiting.append(operand)
        return sorted(found, key=self._place.__getitem__)

    def earlier(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self._place.__getitem__)

    # ------------------------------------------------------------ vectors sent back

    def back(
        self, start: Edge, vector: Tensor, targets: Collection[Node], within: Collection[Node]
    ) -> dict[Node, Tensor]:
        """What a vector on an output becomes on the outputs of the targets: the transposed derivative times it.

        Only ways within the given nodes count, and those that pass no other target.
        """
        sums: dict[Node, dict[int, Tensor]] = {start[0]: {start[1]: vector}}
        found: dict[Node, Tensor] = {}
        least = min(self._place[target] for target in targets)
        for node in reversed(self.order[least : self._place[start[0]] + 1]):
            own = sums.pop(node, None)
            if own is None:
                continue
            if node in targets and node is not start[0]:
                found[node] = own[min(own)]
                continue
            for (operand, index), part in zip(node.next_functions, _called(node, own), strict=False):
                if operand in within and part is not None:
                    at = sums.setdefault(operand, {})
                    at[index] = at[index] + part if index in at else part
        return found


def _called(node: Node, vectors: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
    """The operation's backward pass alone."""
    with torch.no_grad():
        parts = node(*(vectors.get(index) for index in range(len(node._input_metadata))))
    return parts if isinstance(parts, tuple) else (parts,)


def nodes_of(tensors: Iterable[Tensor]) -> Iterator[Node]:
    """The operations that gave these tensors; of a leaf, the node that takes its gradient."""
    for tensor in tensors:
        if tensor.grad_fn is not None:
            yield tensor.grad_fn
        elif tensor.requires_grad:
            yield torch.autograd.graph.get_gradient_edge(tensor).node
