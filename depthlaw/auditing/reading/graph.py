"""What flows in one forward pass of any module: the graph that autograd made of it, and vectors sent back through it.

Nothing is asked of the module but a forward pass with gradients. A node is an operation of that pass; its operands are
nodes again, a parameter, the data that the module was given, or a constant (None). The graph holds on code of any
style: views, operations in place and functional calls are all in it. What a module computes without gradients, or
computes again in the backward pass (activation checkpoints), is not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import networkx as nx
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Node = Any
"""A ``torch.autograd.graph.Node``; its Python interface is not typed."""

Edge = tuple[Node, int]
"""An operation and the number of one of its outputs."""

PRODUCTS = (
    *("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward", "AddbmmBackward", "LinearBackward"),
    *("GroupedMmBackward", "MvBackward", "DotBackward"),
)
CONVOLUTION = "ConvolutionBackward"
FUSED_ATTENTION = "ScaledDotProduct"
ADDS = ("AddBackward", "SubBackward", "LerpBackward", "AddcmulBackward", "RsubBackward")
MULTIPLES = ("MulBackward", "DivBackward", "NegBackward")
GATES = ("SigmoidBackward", "HardsigmoidBackward")
_WITH_BIAS = ("AddmmBackward", "BaddbmmBackward", "AddbmmBackward")
_NORMS = ("NativeLayerNorm", "NativeGroupNorm", "NativeBatchNorm", "RmsNorm", "FusedRmsNorm", "LinalgVectorNorm")
_NORM_PARTS = ("RsqrtBackward", "SqrtBackward", "NormBackward", "StdBackward", "VarBackward")
_SAME = (
    *("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward", "AsStridedBackward", "AliasBackward"),
    *("TBackward", "MtBackward", "MHBackward", "TransposeBackward", "PermuteBackward", "MovedimBackward"),
    *("ExpandBackward", "SqueezeBackward", "UnsqueezeBackward", "FlattenBackward", "UnflattenBackward"),
    *("CloneBackward", "CopyBackward", "ToCopyBackward", "ContiguousBackward", "RollBackward"),
    *("NativeDropoutBackward", "MaskedFillBackward", "SplitBackward", "UnbindBackward"),
)
_PARAMETER = "AccumulateGrad"
_ROUNDING = 1e-5
"""Of a mean square in single precision: what is smaller beside it is no eps."""


_ON_VIEW = "CopySlices"
_LIKE = "depthlaw: is like"


def is_function(node: Node) -> bool:
    """Whether an operation is a ``torch.autograd.Function``, or a custom operation, which torch makes one of."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def name_function(node: Node, like: str) -> None:
    """Say which operation such a function is like."""
    node.metadata[_LIKE] = like


def kind_of(node: Node) -> str:
    """The operation's name, without the class and number that torch adds.

    One in place on a view, such as ``y += x`` on what a linear layer gave, has no name of its own: it is a sum or a
    multiple where its backward pass is that of one. A function of somebody's own has the name of what it is like.
    """
    name = node.name().rpartition("::")[2]
    if name.endswith("Backward") and is_function(node):
        return node.metadata.get(_LIKE, name)
    if name != _ON_VIEW:
        return name
    if _ON_VIEW not in node.metadata:
        node.metadata[_ON_VIEW] = _kind_on_view(node)
    return node.metadata[_ON_VIEW]


def _kind_on_view(node: Node) -> str:
    like = node._input_metadata[0]
    with torch.no_grad():
        answer = node(torch.ones(tuple(like.shape), dtype=like.dtype, device=like.device))
    parts = [part for part in (answer if isinstance(answer, tuple) else (answer,)) if part is not None]
    size = math.prod(like.shape)
    if not all(part.numel() == size and bool((part == part.flatten()[0]).all()) and part.any() for part in parts):
        return _ON_VIEW
    return {1: "MulBackward", 2: "AddBackward"}.get(len(parts), _ON_VIEW)


def is_a(node: Node, names: Iterable[str]) -> bool:
    """Whether the operation's name begins with any of these."""
    return kind_of(node).startswith(tuple(names))


def passes_on(node: Node) -> bool:
    """Whether an operation hands its one operand on as it is, in another shape or with entries hidden."""
    return kind_of(node).startswith(_SAME)


def is_norm(node: Node) -> bool:
    """Whether an operation is a norm, or the root or power by which a norm that is written out divides."""
    if is_a(node, ("PowBackward",)):
        exponent = getattr(node, "_saved_exponent", None)
        return isinstance(exponent, (int, float)) and exponent < 0
    return is_a(node, _NORMS) or is_a(node, _NORM_PARTS)


def shape_of(node: Node, index: int = 0) -> tuple[int, ...]:
    """Of an output of the operation."""
    return tuple(node._input_metadata[index].shape)


class Values(TorchFunctionMode):
    """What the operations of a forward pass gave, by node and number of the output.

    Each value is a copy, since code may change a tensor in place afterwards. The memory is that of all activations, so
    the pass is one of few tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_edge: dict[Edge, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.keep((args, kwargs or {}))
        answer = func(*args, **(kwargs or {}))
        self.keep(answer)
        return answer

    def keep(self, value: Any) -> None:
        for tensor in tensors_in(value):
            if tensor.grad_fn is not None and (edge := (tensor.grad_fn, tensor.output_nr)) not in self.by_edge:
                self.by_edge[edge] = tensor.detach().clone()


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a value and in the containers that it is made of."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)


class Flow:
    """The graph of one forward pass of a module.

    output: what the pass gave. data: nodes at which what the module was given comes in: the look-up of its tokens, or
    the tensor itself. values: what the operations gave. conditions: nodes at which something else comes in, which the
    data are scaled, shifted or gated by: what is made of it alone is no data, and no constant. ValueError where the
    output depends on no parameter. It is one class, since every question about a graph wants its edges both ways.
    """

    def __init__(
        self,
        module: nn.Module,
        output: Tensor,
        data: Collection[Node],
        values: Mapping[Edge, Tensor] | None = None,
        conditions: Collection[Node] = (),
    ) -> None:
        if output.grad_fn is None:
            raise ValueError(f"the output of {type(module).__name__} depends on no parameter by what autograd sees")
        self.end: Node = output.grad_fn
        self.output = output
        self.values = values or {}
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.graph = nx.DiGraph()
        self.cuts: set[tuple[Node, Node]] = set()
        waiting = [self.end]
        self.graph.add_node(self.end)
        while waiting:
            node = waiting.pop()
            for operand, index in node.next_functions:
                if operand is None:
                    continue
                if 0 in shape_of(operand, index):  # such as an expert's that no token went to
                    self.cuts.add((operand, node))
                    continue
                if operand not in self.graph:
                    waiting.append(operand)
                self.graph.add_edge(operand, node)
        self.data = frozenset(node for node in data if node in self.graph)
        self.order: list[Node] = list(nx.topological_sort(self.graph))
        self._place = {node: place for place, node in enumerate(self.order)}
        if not self.leaves:
            raise ValueError(f"the output of {type(module).__name__} depends on no parameter by what autograd sees")
        self.active = self.reached(self.data)
        """Nodes that depend on the data."""
        self.conditions = self.reached(node for node in conditions if node in self.graph) - self.active
        """Nodes that depend on conditions alone."""

    def cut(self, operand: Node, user: Node) -> None:
        """Take a way out of the graph: none of the methods below goes it any more."""
        self.cuts.add((operand, user))
        self.graph.remove_edge(operand, user)

    def restore(self, operand: Node, user: Node) -> None:
        """Undo a cut."""
        self.cuts.discard((operand, user))
        self.graph.add_edge(operand, user)

    def reached(self, start: Iterable[Node]) -> frozenset[Node]:
        """Nodes that depend on any of these, and these."""
        seen = set(start)
        waiting = list(seen)
        while waiting:
            for user in self.graph.successors(waiting.pop()):
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return frozenset(seen)

    def parameter(self, node: Node) -> str | None:
        """The name of a parameter where a node is one."""
        return self.names.get(id(node.variable)) if kind_of(node) == _PARAMETER else None

    def edges(self, node: Node) -> list[Edge]:
        """The operands of an operation, as outputs of other operations; a constant or a cut way is (None, 0)."""
        return [(None, 0) if (edge[0], node) in self.cuts else edge for edge in node.next_functions]

    def operands(self, node: Node) -> list[Node | None]:
        return [operand for operand, _ in self.edges(node)]

    def active_edges(self, node: Node) -> list[Edge]:
        """The operands that depend on the data."""
        return [edge for edge in self.edges(node) if edge[0] in self.active]

    def users(self, node: Node) -> list[Node]:
        return list(self.graph.successors(node))

    def _inactive(self, node: Node) -> dict[Node, None]:
        """What an operand without data is made of, itself first; of a condition that alone."""
        seen, waiting = {node: None}, [] if node in self.conditions else [node]
        while waiting:
            for operand in self.operands(waiting.pop()):
                if operand is not None and operand not in seen and not self.is_moved(operand):
                    seen[operand] = None
                    waiting.append(operand)
        return seen

    def is_moved(self, node: Node) -> bool:
        """Whether it depends on the data or on a condition."""
        return node in self.active or node in self.conditions

    def inactive_parameters(self, node: Node) -> list[str]:
        """Names of the parameters that an operand without data is made of."""
        return [name for part in self._inactive(node) if (name := self.parameter(part)) is not None]

    @cached_property
    def matrices(self) -> Mapping[Node, str]:
        """Products of an active operand with a parameter of two dimensions or more: by node, the parameter's name.

        Of several parameters that make up the factor, the largest counts. A convolution of each channel by itself is
        no matrix.
        """
        names = {}
        for node in self.order:
            if node not in self.active or not is_a(node, (*PRODUCTS, CONVOLUTION)):
                continue
            operands = self.operands(node)
            if is_a(node, _WITH_BIAS):
                operands = operands[1:]
            elif is_a(node, (CONVOLUTION, "LinearBackward", "GroupedMmBackward")):
                operands = operands[:2]
            fixed = [operand for operand in operands if operand is not None and operand not in self.active]
            made_of = [name for operand in fixed for name in self.inactive_parameters(operand)]
            large = [name for name in made_of if self.parameters[name].ndim > 1]
            if is_a(node, (CONVOLUTION,)):
                large = [name for name in large if self.parameters[name].shape[1] > 1 or not _is_by_channel(node)]
            if large:
                names[node] = max(large, key=lambda name: self.parameters[name].numel())
        return names

    @cached_property
    def leaves(self) -> Mapping[str, Node]:
        """The nodes of the parameters that the pass used, by name."""
        return {name: node for node in self.order if (name := self.parameter(node)) is not None}

    @cached_property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """By name, those that the pass used."""
        return {name: node.variable for name, node in self.leaves.items()}

    @cached_property
    def products(self) -> frozenset[Node]:
        """Products of two active operands, such as those of an attention; and attentions that are one operation."""
        products = set()
        for node in self.active:
            if is_a(node, (FUSED_ATTENTION,)):
                products.add(node)
            elif is_a(node, PRODUCTS) and node not in self.matrices:
                edges = self.edges(node)[1:] if is_a(node, _WITH_BIAS) else self.edges(node)
                if sum(operand in self.active for operand, _ in edges) > 1:
                    products.add(node)
        return frozenset(products)

    @cached_property
    def norm_eps(self) -> float:
        """What norms add to the mean square whose root they divide by, as the one tells it that has the smallest before
        it; 0 where none does, or where it is lost in rounding."""
        places: list[tuple[float, float]] = []
        for node in self.order:
            if is_a(node, ("NativeLayerNormBackward",)):
                value, root = node._saved_input.double(), node._saved_result2.double()
                square = value.var(-1, correction=0, keepdim=True)
            elif is_a(node, ("RsqrtBackward",)):
                power = node
                while power is not None and not is_a(power, ("PowBackward", "MulBackward", "AccumulateGrad")):
                    power = next((operand for operand in self.operands(power) if operand is not None), None)
                if power is None or not isinstance(value := getattr(power, "_saved_self", None), Tensor):
                    continue
                root, square = node._saved_result.double(), value.double().square().mean(-1, keepdim=True)
            else:
                continue
            if root.shape == square.shape and (least := square.min()).isfinite():
                places.append((least.item(), (root**-2 - square).flatten()[square.argmin()].item()))
        square, eps = min(places, default=(0.0, 0.0))
        return eps if eps > _ROUNDING * square and eps > 0 else 0.0

    # ------------------------------------------------------------ ways through the graph

    def between(self, first: Node, last: Node) -> set[Node]:
        """Nodes on the ways from one to the other, both among them; empty where there is no way."""
        if self._place[first] > self._place[last]:
            return set()
        stretch = self.order[self._place[first] : self._place[last] + 1]
        needed = {last}
        for node in reversed(stretch):
            if node in needed:
                needed.update(operand for operand in self.operands(node) if operand is not None)
        if first not in needed:
            return set()
        reached = {first}
        for node in stretch:
            if node in needed and any(operand in reached for operand in self.operands(node)):
                reached.add(node)
        return reached & needed

    def chain(self, starts: Collection[Node], ends: Collection[Node]) -> list[Node]:
        """Nodes that every way from any start to any end passes, in order; empty where there is no way."""
        source, sink = object(), object()
        first, last = min(map(self._place.__getitem__, starts)), max(map(self._place.__getitem__, ends))
        needed = set(ends)
        for node in reversed(self.order[first : last + 1]):
            if node in needed:
                needed.update(operand for operand in self.operands(node) if operand is not None)
        ways: nx.DiGraph = nx.DiGraph()
        ways.add_edges_from((source, node) for node in starts if node in needed)
        for node in self.order[first : last + 1]:
            if node in needed:
                ways.add_edges_from((operand, node) for operand in self.operands(node) if operand in ways)
        ways.add_edges_from((node, sink) for node in ends if node in ways)
        if sink not in ways:
            return []
        leader = nx.immediate_dominators(ways, source)
        passed, node = [], leader[sink]
        while node is not source:
            passed.append(node)
            node = leader[node]
        return passed[::-1]

    def nearest(self, node: Node, is_wanted: Callable[[Node], bool], within: Collection[Node]) -> list[Node]:
        """The first wanted nodes on each way back from a node, itself among them, in order."""
        wanted, seen, waiting = [], {node}, [node]
        while waiting:
            current = waiting.pop()
            if is_wanted(current):
                wanted.append(current)
                continue
            for operand in self.operands(current):
                if operand in within and operand not in seen:
                    seen.add(operand)
                    waiting.append(operand)
        return self.sorted(wanted)

    def next(self, node: Node, is_wanted: Callable[[Node], bool]) -> list[Node]:
        """The first wanted nodes on each way on from a node, in order."""
        wanted, seen, waiting = [], {node}, [node]
        while waiting:
            for user in self.graph.successors(waiting.pop()):
                if user in seen:
                    continue
                seen.add(user)
                (wanted if is_wanted(user) else waiting).append(user)
        return self.sorted(wanted)

    def place(self, node: Node) -> int:
        """Its number in the order of the pass."""
        return self._place[node]

    def sorted(self, nodes: Iterable[Node]) -> list[Node]:
        """In the order of the pass."""
        return sorted(nodes, key=self._place.__getitem__)

    # ------------------------------------------------------------ vectors sent back

    def back(
        self, start: Edge, vector: Tensor, targets: Collection[Node], within: Collection[Node]
    ) -> dict[Node, Tensor]:
        """What a vector on an output becomes on the outputs of the targets: the transposed derivative times it.

        Only ways within the given nodes count, and those that pass no other target.
        """
        sums: dict[Node, dict[int, Tensor]] = {start[0]: {start[1]: vector}}
        arrived: dict[Node, Tensor] = {}
        waiting = [-self._place[start[0]]]
        while waiting:
            node = self.order[-heapq.heappop(waiting)]
            at_node = sums.pop(node)
            if node in targets:
                arrived[node] = at_node[min(at_node)]
                continue
            if kind_of(node) == _PARAMETER:
                continue
            for (operand, index), part in zip(self.edges(node), _called(node, at_node), strict=False):
                if operand is None or operand not in within or part is None:
                    continue
                if operand not in sums:
                    sums[operand] = {}
                    heapq.heappush(waiting, -self._place[operand])
                at = sums[operand]
                at[index] = at[index] + part if index in at else part
        return arrived

    def growth(self, start: Node, end: Edge, within: Collection[Node]) -> float:
        """By how many percent a value grows, along itself, where one that it is made of grows by one percent; NaN where
        that is not known."""
        before, value = self.value((start, 0)), self.value(end)
        if before is None or value is None or not value.any():
            return math.nan
        try:
            moved = self.back(end, value, [start], within).get(start)
        except RuntimeError:  # what an operation was given has been changed in place since
            return math.nan
        return math.nan if moved is None else ((moved * before).sum() / value.square().sum()).item()

    def parts(self, node: Node, vector: Tensor, index: int = 0) -> list[Tensor | None]:
        """What a vector on an operation's output becomes on each of its operands."""
        return list(_called(node, {index: vector}))

    def factors(self, node: Node) -> list[Tensor | None]:
        """Of a sum or a multiple, what it multiplies each entry of its operands by; None for one of another shape.

        The vector that is sent back has powers of two as its entries, so that nothing is rounded.
        """
        generator = torch.Generator().manual_seed(_SEED)
        like = node._input_metadata[0]
        powers = torch.randint(-2, 3, tuple(like.shape), generator=generator)
        vector = torch.exp2(powers.double()).to(like.dtype).to(like.device)
        parts = self.parts(node, vector)
        if node.name().endswith(_ON_VIEW):
            parts = [part if part is None else part.reshape(vector.shape) for part in parts]
        return [part / vector if part is not None and part.shape == vector.shape else None for part in parts]

    def on_parameter(self, matrix: Node, vector: Tensor) -> Tensor | None:
        """What a vector on a matrix product's output becomes on the parameter: the gradient, of its shape."""
        leaf = self.leaves[self.matrices[matrix]]
        for edge, part in zip(self.edges(matrix), self.parts(matrix, vector), strict=False):
            if edge[0] is None or part is None or edge[0] in self.active:
                continue
            if edge[0] is leaf:
                return part
            fixed = self._inactive(edge[0])
            if leaf in fixed:
                return self.back(edge, part, [leaf], fixed).get(leaf)
        return None

    def _handed_on(self, node: Node, index: int) -> Tensor | None:
        """The value of an operation that hands all of an output on, if need be by others of that kind."""
        size = math.prod(shape_of(node, index))
        for user in self.graph.successors(node):
            if passes_on(user) and math.prod(shape_of(user)) == size:
                value = self.values.get((user, 0))
                value = self._handed_on(user, 0) if value is None else value
                if value is not None:
                    return value
        return None

    def value(self, edge: Edge) -> Tensor | None:
        """What an operation gave; where that was not kept, what it handed on in another shape; else None."""
        node, index = edge
        while (node, index) not in self.values:
            if kind_of(node) == _PARAMETER:
                return node.variable.detach()
            if (later := self._handed_on(node, index)) is not None:
                return later
            active = self.active_edges(node)
            if not passes_on(node) or not active:
                return None
            node, index = active[0]
        return self.values[node, index]


_SEED = 11


def _is_by_channel(convolution: Node) -> bool:
    return getattr(convolution, "_saved_groups", 1) > 1


def _called(node: Node, vectors: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
    """The operation's backward pass alone; the answers are summed to their operands' shapes, as autograd does."""
    with torch.no_grad():
        given = [vectors.get(index) for index in range(len(node._input_metadata))]
        answer = _called_function(node, given) if is_function(node) else node(*given)
    parts = []
    edges = node.next_functions
    for (operand, index), part in zip(edges, answer if isinstance(answer, tuple) else (answer,), strict=False):
        parts.append(part if operand is None or part is None else part.sum_to_size(shape_of(operand, index)))
    return parts


class NoDerivativeError(ValueError):
    """A function of somebody's own has no backward pass that goes through. node: the function; reason: in words."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.name()}: {reason}")
        self.node, self.reason = node, reason


def _called_function(node: Node, vectors: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The backward pass of a function of somebody's own, which is given zeros where no vector arrives. It answers for
    each argument of the forward pass, and the graph has edges of the tensors among them alone."""
    given = [
        torch.zeros(tuple(like.shape), dtype=like.dtype, device=like.device) if vector is None else vector
        for vector, like in zip(vectors, node._input_metadata, strict=True)
    ]
    try:
        answer = node.apply(*given)
    except Exception as error:  # whatever a backward pass of somebody else raises
        reason = (str(error).splitlines() or [""])[0]
        raise NoDerivativeError(node, f"{type(error).__name__}{f': {reason}' if reason else ''}") from error
    answers = iter(answer if isinstance(answer, tuple) else (answer,))
    wanted = [part for part, is_needed in zip(answers, node.needs_input_grad, strict=False) if is_needed]
    there = iter(wanted)
    return tuple(None if operand is None else next(there, None) for operand, _ in node.next_functions)


def node_of(tensor: Tensor) -> Node:
    """The operation that gave a tensor; of a leaf, the node that takes its gradient."""
    return tensor.grad_fn or torch.autograd.graph.get_gradient_edge(tensor).node
