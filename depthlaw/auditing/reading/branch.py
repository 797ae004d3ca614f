"""What one branch of a sublayer is made of: its matrices by role, where its norms stand, its heads and activation.

A branch is all that stands between the stream and a summand of it. Its output matrices are those next to the sum. An
attention is known by a product of two values of which one, the probabilities, is made of such a product again; an FFN
by having none. Roles follow from what is multiplied with what; which rows of a fused matrix have a role, from vectors
that are sent back from where that role is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.auditing.reading.graph import (
    ADDS,
    CONVOLUTION,
    FUSED_ATTENTION,
    GATES,
    MULTIPLES,
    Edge,
    Flow,
    Node,
    is_a,
    is_function,
    is_norm,
    kind_of,
    passes_on,
    shape_of,
)
from depthlaw.auditing.reading.norms import Norms
from depthlaw.auditing.reading.weights import Weight, merged, rows_of

_SEED = 12
_STRAIGHT = (*MULTIPLES, *ADDS, "SliceBackward", "SelectBackward", "CatBackward", "IndexBackward", "ClampBackward")
_TURNS = ("TBackward", "TransposeBackward", "MtBackward", "MHBackward", "PermuteBackward")
_ACTIVATIONS: Sequence[tuple[str | None, Callable[[Tensor], Tensor]]] = (
    ("relu", torch.relu),
    ("gelu", functional.gelu),
    ("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    ("gelu", lambda x: x * torch.sigmoid(1.702 * x)),
    ("silu", functional.silu),
    ("tanh", torch.tanh),
    ("leaky_relu", functional.leaky_relu),
    ("relu2", lambda x: torch.relu(x).square()),
    (None, torch.sigmoid),
)
"""Activations by name; those without one are known, and are none that the laws have."""
_SMALL_FACTOR = 0.1
"""Beside the largest: what a product is not divided by, whose rounding would count."""
_LINE = 1e-4
"""What rounding leaves of the cosine of two proportional vectors."""
_FEWEST_KEYS = 3
"""Of which weights tell a scale, and whether anything else is in them."""
_TOLD = 1e-2
"""Relative: what rounding leaves of logits that are told by their weights."""
_GATED = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}


_ROOTS_OF_SOFTMAX = ("SoftmaxBackward", "SafeSoftmaxBackward", "ExpBackward")


@dataclass
class Part:
    """A branch as it was read. facts: fields of the sublayer, by name. unread: what could not be read, in words."""

    kind: str
    weights: list[Weight] = field(default_factory=list)
    norms: frozenset[str] = frozenset()
    facts: dict[str, Any] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


Use = tuple[Node, Edge | None]
"""A matrix, and the value of one role that is made of it; None where the whole matrix has the role."""


class Branch:
    """One branch. side_of: of a matrix. start: the stream. head: the summand. inside: the nodes from one to the other,
    both among them.

    It is one class, since each question about a branch (is it an attention, which matrix makes the queries, what is its
    activation) asks the same nodes and the answers to the others.
    """

    def __init__(
        self,
        flow: Flow,
        norms: Norms,
        side_of: Callable[[Node], str],
        start: Node,
        head: Edge,
        inside: Collection[Node],
    ) -> None:
        self.flow, self.norms, self.side_of = flow, norms, side_of
        self.start, self.head = start, head
        self.inside = set(inside) - {start}
        self.within = flow.active - {start}
        self.facts: dict[str, Any] = {}
        self.unread: list[str] = []
        self.mixing: list[Node] = []
        """The product of probabilities and values, where the branch is an attention."""
        self.outs = self._matrices_of(head, by_gates=False)

    def read(self) -> Part:
        attention = self._attention()
        if attention is not None:
            kind, by_role = attention
        else:
            kind, by_role = "ffn", self._ffn()
            if "fc1" not in by_role or any(node in self.flow.products for node in self.inside):
                kind, by_role = "other", {"out": [(node, None) for node in self.outs]}
                self.facts["found"] = self._made_of()
            elif self._mixes_tokens():
                kind, by_role = "other", {"out": [(node, None) for node in self.outs]}
                self.facts["found"] = "tokens are mixed, and by no attention"
        first = next((uses[0][0] for role in ("q", "fc1", "k", "v") if (uses := by_role.get(role))), None)
        entry = first or next((n for n in self.flow.sorted(self.inside) if n in self.flow.matrices), None)
        if entry is not None:
            edge = self._data(entry)[0]
            value = self.flow.value(edge)
            self.facts["input_rms"] = math.nan if value is None else value.double().square().mean().sqrt().item()
            self.facts["input_growth"] = self.flow.growth(self.start, edge, self.inside | {self.start})
        met = {self.flow.matrices[node] for uses in by_role.values() for node, _ in uses if math.prod(shape_of(node))}
        weights = [
            self._weight(role, *use)
            for role, uses in by_role.items()
            for use in uses
            if math.prod(shape_of(use[0])) or self.flow.matrices[use[0]] not in met  # no token went to an expert
        ]
        elsewhere = {name for node, name in self.flow.matrices.items() if node not in self.inside}
        weights = merged(weights, elsewhere)
        if kind in ("attention", "cross"):
            self._count_heads(weights)
        norms = self._norms(by_role, entry)
        prefix = "cross_" if kind == "cross" else ""
        return Part(kind, [replace(w, role=prefix + w.role) for w in weights], norms, self.facts, self.unread)

    def _made_of(self) -> str:
        """What stands in the place of an attention or an FFN, in words."""
        names = [self.flow.matrices[node] for node in self.outs]
        if not names and any(len(self._data(node)) > 1 for node in self._products(self.head)):
            return (
                "what writes to the stream is a product of two values that are both made of data, as where one einsum "
                "multiplies experts by their router's weights, too (write it as two)"
            )
        if not names:
            operations = [node for node in self.flow.sorted(self.inside) if not passes_on(node)]
            last = kind_of(operations[-1]).removesuffix("Backward0").removesuffix("Backward") if operations else "none"
            return f"no product of a matrix with data is what writes to the stream, and its last operation is {last}"
        if any(node in self.flow.products for node in self.inside):
            return f"{names[0]} writes to the stream, and before it stands a product of two values without a softmax"
        return f"{names[0]} writes to the stream, and no matrix stands before it in the branch"

    def _mixes_tokens(self) -> bool:
        """Whether the last token of what the branch gives is made of several tokens of the stream."""
        shape = shape_of(*self.head)
        stream = shape_of(self.start)
        if len(stream) < 3 or shape[-1] != stream[-1] or math.prod(shape) != math.prod(stream):
            return False
        vector = _one_entry(shape, -1, self._random(*self.head))
        try:
            part = self.flow.back(self.head, vector, [self.start], self.inside | {self.start}).get(self.start)
        except RuntimeError:  # what an operation was given has been changed in place since
            return False
        if part is None or not part.isfinite().all():
            return False
        return int(part.reshape(-1, stream[-1]).any(-1).sum()) > 1

    # ------------------------------------------------------------ ways back

    def _data(self, node: Node) -> list[Edge]:
        return self.flow.active_edges(node)

    def _is_mixing(self, node: Node) -> bool:
        return node in self.flow.matrices or node in self.flow.products

    def _sources(self, edge: Edge, *, by_gates: bool = True) -> list[Node]:
        """Matrices and products that a value is made of, next to it; not those of a router's weights for experts.

        A router's weight is one number for each token, where what it multiplies has a whole vector. by_gates: also
        those of a gate, which is a sigmoid and multiplies something that is none.
        """
        seen, waiting, sources = {edge[0]}, [edge], []
        while waiting:
            node, _ = waiting.pop()
            if self._is_mixing(node):
                sources.append(node)
                continue
            data = [part for part in self._data(node) if part[0] in self.within]
            if is_a(node, (*MULTIPLES, "LerpBackward")) and len(data) > 1:
                sizes = [math.prod(shape_of(*part)) for part in data]
                data = [part for part, size in zip(data, sizes, strict=True) if size == max(sizes)]
                data = data if by_gates else [part for part in data if not self._is_sigmoid(part[0])] or data
            for part in data:
                if part[0] not in seen:
                    seen.add(part[0])
                    waiting.append(part)
        return self.flow.sorted(sources)

    def _is_sigmoid(self, node: Node) -> bool:
        """Whether a value is one, seen in another shape or not."""
        while passes_on(node) and node not in self.flow.matrices:
            node = next((part for part, _ in self._data(node)), node)
        return is_a(node, GATES)

    def _matrices_of(self, edge: Edge, *, by_gates: bool = True) -> list[Node]:
        """Matrices that a value is made of, next to it; not those of side paths of low rank."""
        nodes = [node for node in self._sources(edge, by_gates=by_gates) if node in self.flow.matrices]
        return [node for node in nodes if not self.is_side_path(node, nodes)]

    def is_side_path(self, matrix: Node, others: Sequence[Node]) -> bool:
        """Whether a matrix is the second of a side path of low rank, as LoRA adds one: it is given a few numbers, which
        another matrix made of what one of the others is given."""
        origins = [self._origin(other) for other in others if other is not matrix]
        first = self._origin(matrix, (*MULTIPLES, "NativeDropoutBackward")) if origins else None
        if first not in self.flow.matrices or 2 * shape_of(first)[-1] > shape_of(matrix)[-1]:
            return False
        return self._origin(first) in origins

    def _origin(self, matrix: Node, also: Sequence[str] = ()) -> Node:
        """What a matrix is given, before it was seen in another shape."""
        node = self._data(matrix)[0][0]
        while node not in self.flow.matrices and (passes_on(node) or is_a(node, also)):
            data = self._data(node)
            if len(data) != 1:
                break
            node = data[0][0]
        return node

    def _random(self, node: Node, index: int = 0) -> Tensor:
        like = node._input_metadata[index]
        generator = torch.Generator().manual_seed(_SEED)
        vector = torch.randn(tuple(like.shape), generator=generator, dtype=torch.float64)
        return vector.to(like.dtype).to(like.device)

    def _arriving(self, edge: Edge, matrix: Node) -> Tensor | None:
        """What a random vector on a value becomes on a matrix's output, by ways through no other matrix."""
        return self.flow.back(edge, self._random(*edge), self._matrices_of(edge), self.within).get(matrix)

    # ------------------------------------------------------------ attention

    def _attention(self) -> tuple[str, dict[str, list[Use]]] | None:
        """Its kind and the uses of matrices by role; None of a branch that is no attention."""
        flow = self.flow
        before = [edge for out in self.outs for edge in self._data(out)] or [self.head]
        products = flow.sorted({product for edge in before for product in self._products(edge)})
        for product in reversed(products):
            operands = self._fused(product) if is_a(product, (FUSED_ATTENTION,)) else self._plain(product)
            if operands is None:
                continue
            self.facts["head_size"] = shape_of(*operands["q"])[-1]
            by_role: dict[str, list[Use]] = {}
            for role, edge in operands.items():
                by_role[role] = [(node, edge) for node in self._matrices_of(edge)]
            by_role["out"] = [(node, None) for node in self.outs]
            keys = [node for node, _ in by_role["k"]]
            is_cross = bool(keys) and not any(edge[0] in self.inside for node in keys for edge in self._data(node))
            is_cross &= not any(self.start is edge[0] for node in keys for edge in self._data(node))
            self.mixing = [product]
            return ("cross" if is_cross else "attention"), by_role
        return None

    def _products(self, edge: Edge) -> list[Node]:
        """Products inside the branch that a value is made of, next to it, matrices between them or not."""
        return self.flow.nearest(edge[0], lambda node: node in self.flow.products, self.inside)

    def _fused(self, attention: Node) -> dict[str, Edge]:
        """Queries, keys and values of an attention that is one operation."""
        shape = shape_of(attention)
        weights = [self.flow.parts(attention, _one_entry(shape, at, self._random(attention)))[2] for at in (0, -1)]
        seen = [0 if weight is None else int(weight.count_nonzero()) for weight in weights]
        self.facts["is_causal"] = seen[0] <= 1 < seen[1]
        operands = dict(zip("qkv", self.flow.edges(attention), strict=False))
        values = [self.flow.value(operands[role]) for role in "qk"]
        from_weights = self._scale_told(weights[1], *values) if is_function(attention) else None
        scale = getattr(attention, "_saved_scale", None) or from_weights or shape_of(*operands["q"])[-1] ** -0.5
        self.facts["attention_scale"] = scale * self._scale_before(operands["q"], operands["k"])
        return operands

    def _scale_told(self, weights: Tensor | None, queries: Tensor | None, keys: Tensor | None) -> float | None:
        """What multiplies the products of the last query with the keys, as their weights tell it; None where these hang
        on something else, too, or nothing tells. weights: in the last entry of the last dimension."""
        if weights is None or queries is None or keys is None or queries.ndim < 3:
            return None
        if not queries.shape[:-2] == keys.shape[:-2] == weights.shape[:-2]:
            return None
        last = weights.flatten(0, -3)[-1, :, -1].double()
        x = (keys.flatten(0, -3)[-1].double() @ queries.flatten(0, -3)[-1, -1].double())[last > 0]
        y = last[last > 0].log()
        x, y = x - x.mean(), y - y.mean()
        if len(x) < _FEWEST_KEYS or not x.any():
            return None
        scale = ((x @ y) / (x @ x)).item()
        scale = float(f"{scale:.6g}")
        return scale if (y - scale * x).abs().max() < _TOLD * y.abs().max() else None

    def _scale_before(self, *edges: Edge) -> float:
        """What single numbers multiply values by, between the matrices that they come from and here."""
        scale = 1.0
        for edge in edges:
            for matrix in self._matrices_of(edge):
                scale *= self._scale(self.flow.between(matrix, edge[0]) - {matrix})
        return scale

    def _scale(self, nodes: Iterable[Node]) -> float:
        """What single numbers among these operations multiply a value by."""
        scale = 1.0
        for node in nodes:
            active = [place for place, operand in enumerate(self.flow.operands(node)) if operand in self.flow.active]
            if is_a(node, MULTIPLES) and len(active) == 1:
                factors = self.flow.factors(node)[active[0]]
                if factors is not None and factors.numel() and (factors == factors.flatten()[0]).all():
                    scale *= factors.flatten()[0].item()
        return scale

    def _plain(self, last: Node) -> dict[str, Edge] | None:
        """Queries, keys and values of an attention that is written out: its last product is probabilities times values.

        One entry of that product, sent back to the logits, meets one query and the keys that it attends to. None where
        neither factor is made of a product.
        """
        flow = self.flow
        edges = self._data(last)[-2:]
        made_of = [self._products(edge) for edge in edges]
        if not any(made_of):
            return None
        weighted = [
            any(self._is_softmax(node, edge) for node in nodes) for nodes, edge in zip(made_of, edges, strict=True)
        ]
        place = weighted.index(True) if any(weighted) else [bool(nodes) for nodes in made_of].index(True)
        probabilities, values = edges[place], edges[1 - place]
        if not any(weighted):
            self.unread.append("an attention without softmax")
        logits = made_of[place][-1]
        way = flow.between(logits, last)
        patterns = []
        for entry in (0, -1):
            vector = _one_entry(shape_of(last), entry, self._random(last))
            patterns.append(flow.back((last, 0), vector, [logits], way).get(logits))
        factors = self._data(logits)[-2:]
        if patterns[1] is None or probabilities[0] is None or len(factors) < 2:
            return None
        seen = [0 if pattern is None else int(pattern.count_nonzero()) for pattern in patterns]
        self.facts["is_causal"] = seen[0] <= 1 < seen[1]
        spread = [len(places.unique()) for places in patterns[1].nonzero(as_tuple=True)[-2:]]
        queries, keys = factors if spread[1] >= spread[0] else factors[::-1]
        ahead = flow.sorted(flow.between(logits, probabilities[0]))
        ahead = takewhile(lambda node: not is_a(node, _ROOTS_OF_SOFTMAX), ahead)
        alpha = getattr(logits, "_saved_alpha", 1)
        scale = float(alpha) * self._scale(ahead) * self._scale_before(queries, keys)
        self.facts["attention_scale"] = scale
        return {"q": queries, "k": keys, "v": values}

    def _is_softmax(self, logits: Node, probabilities: Edge) -> bool:
        way = self.flow.between(logits, probabilities[0])
        return any(is_a(node, _ROOTS_OF_SOFTMAX) for node in way)

    def _count_heads(self, weights: Sequence[Weight]) -> None:
        """Heads of queries and of keys, from the features of their matrices of one side and of one head."""
        size = self.facts["head_size"]
        side = weights[-1].side
        for name, role in (("num_heads", "q"), ("num_kv_heads", "k")):
            features = sum(weight.shape[0] for weight in weights if weight.role == role and weight.side == side)
            self.facts[name] = features // size if features and features % size == 0 else None
        heads, shared = self.facts["num_heads"], self.facts["num_kv_heads"]
        if heads and shared and heads % shared:
            self.facts["num_kv_heads"] = None  # of latent keys only a part is read

    # ------------------------------------------------------------ feed-forward

    def _ffn(self) -> dict[str, list[Use]]:
        by_role: dict[str, list[Use]] = {"fc1": [], "fc3": [], "fc2": []}
        for out in self.outs:
            by_role["fc2"].append((out, None))
            edge = self._data(out)[0]
            inner = [node for node in self._matrices_of(edge) if node in self.inside]
            if not inner:
                continue
            product, gate = self._gate(edge, inner) or (None, None)
            of_product = None
            if gate is None:
                by_role["fc1"] += [(node, None) for node in inner]
            else:
                of_product, is_turned = self._activation_in(product, gate) if is_function(product) else (None, False)
                gate = gate[::-1] if is_turned else gate
                for role, part in zip(("fc1", "fc3"), gate, strict=True):
                    nodes = [node for node in self._matrices_of(part) if node in inner]
                    by_role[role] += [(node, part if len(inner) == 1 else None) for node in nodes]
                edge = gate[0]
            self.facts.setdefault("activation", of_product or self._activation(edge, inner, is_gated=gate is not None))
        return {role: uses for role, uses in by_role.items() if uses}

    def _gate(self, edge: Edge, inner: Sequence[Node]) -> tuple[Node, tuple[Edge, Edge]] | None:
        """Of a gated FFN, the product, and of that the gate and what it multiplies; None of a plain one.

        They are the factors of a product entry by entry that have no feature of the inner matrices in common.
        """
        waiting, seen = [edge], set()
        while waiting:
            node, _ = waiting.pop(0)
            if node in seen or node in self.flow.matrices:
                continue
            seen.add(node)
            data = [part for part in self._data(node) if part[0] in self.inside]
            if is_a(node, ("MulBackward",)) and len(data) == 2:
                first, second = ({use for operand in inner for use in self._features(part, operand)} for part in data)
                if first and second and not first & second:
                    is_first = bool(self._curves(data[0], inner)) or not self._curves(data[1], inner)
                    return node, ((data[0], data[1]) if is_first else (data[1], data[0]))
            waiting += data
        return None

    def _activation_in(self, product: Node, gate: tuple[Edge, Edge]) -> tuple[str | None, bool]:
        """The activation that a product which is a function of somebody's own takes of one of its factors; and whether
        that is the second factor."""
        value = self.flow.value((product, 0))
        factors = [self.flow.value(edge) for edge in gate]
        for place, (gated, other) in enumerate((factors, factors[::-1])):
            if value is None or gated is None or other is None or not value.shape == gated.shape == other.shape:
                continue
            is_large = other.abs() > _SMALL_FACTOR * other.abs().max()
            match = _match(_answers(gated[is_large]), value[is_large] / other[is_large]) if is_large.any() else None
            if match is not None and (name := _GATED.get(match[0] or "")):
                return name, place == 1
        return None, False

    def _features(self, edge: Edge, matrix: Node) -> set[tuple[Node, int]]:
        """Features of a matrix's output that a value depends on."""
        arrived = self._arriving(edge, matrix)
        if arrived is None:
            return set()
        return {(matrix, feature) for feature in arrived.flatten(0, -2).any(0).nonzero().flatten().tolist()}

    def _curves(self, edge: Edge, inner: Sequence[Node]) -> list[Node]:
        """Operations between matrices and a value that are no sums, views, multiples or norms."""
        curves = []
        for matrix in inner:
            for node in self.flow.between(matrix, edge[0]) - {matrix}:
                data = [part for part in self._data(node) if part[0] in self.inside]
                is_product = is_a(node, ("MulBackward",)) and len(data) > 1
                if is_product or not (passes_on(node) or is_a(node, _STRAIGHT) or is_norm(node)):
                    curves.append(node)
        return curves

    def _activation(self, edge: Edge, inner: Sequence[Node], *, is_gated: bool) -> str | None:
        """Its name, by what it does to the values of this pass: the last value that some activation gives of another.

        None where none of those known does, or where something else that is curved follows.
        """
        values = self.flow.values
        curves = self._curves(edge, inner)
        name: str | None = None if curves else "identity"
        last: Node | None = None
        way = {node for matrix in inner for node in self.flow.between(matrix, edge[0])}
        before: list[tuple[int, Tensor]] = []  # of each value its size, and what the activations answer
        for node in self.flow.sorted(way):
            for index in range(len(node._input_metadata)):
                after = values.get((node, index))
                if after is None or not after.numel():
                    continue
                matches = [_match(answers, after) for size, answers in before if size == after.numel()]
                matches = [match for match in matches if match is not None]
                if matches:
                    name, last = min(matches, key=lambda match: match[1])[0], node
                before.append((after.numel(), _answers(after)))
        behind = set() if last is None else {*curves} & (self.flow.between(last, edge[0]) - {last})
        if last is not None and behind and not _is_line_of(self.flow.value(edge), self.flow.value((last, 0))):
            return None
        return _GATED.get(name or "") if is_gated else name

    # ------------------------------------------------------------ weights

    def _weight(self, role: str, matrix: Node, edge: Edge | None) -> Weight:
        flow = self.flow
        name = flow.matrices[matrix]
        parameter = flow.parameters[name]
        dims = self._output_dims(matrix, parameter)
        features = None
        if edge is not None or parameter.ndim > 2:
            vector = self._random(matrix) if edge is None else self._arriving(edge, matrix)
            features = None if vector is None else self._touched(matrix, vector, dims)
        return Weight(
            role, name, self.side_of(matrix), 0, parameter, features, dims[-1], 0, dims, self._factor(matrix, name)
        )

    def _factor(self, matrix: Node, name: str) -> float:
        """The scale of the matrix that the data meet over that of its parameter; 1 where they are the same, or where
        the matrix is made of several parameters."""
        flow, parameter = self.flow, self.flow.parameters[name].detach().double()
        fixed = [edge for edge in flow.edges(matrix) if edge[0] is not None and edge[0] not in flow.active]
        edge = next(edge for edge in fixed if name in flow.inactive_parameters(edge[0]))
        while passes_on(edge[0]):
            edge = flow.edges(edge[0])[0]
        value = None if flow.parameter(edge[0]) is not None else flow.values.get(edge)
        if value is None or value.numel() != parameter.numel() or not parameter.any():
            return 1.0
        return (value.double().square().mean() / parameter.square().mean()).sqrt().item()

    def _touched(self, matrix: Node, vector: Tensor, dims: Sequence[int]) -> Tensor | None:
        """Which of a parameter's output features a vector on its output touches; None for all."""
        gradient = self.flow.on_parameter(matrix, vector)
        if gradient is None:
            return None
        touched = rows_of(gradient, dims).any(1)
        if not touched.any() and vector.shape[-1] == len(touched):
            touched = vector.flatten(0, -2).any(0)
        return None if touched.all() or not touched.any() else touched.nonzero().flatten()

    def _output_dims(self, matrix: Node, parameter: nn.Parameter) -> tuple[int, ...]:
        """The dimensions of a parameter that count output features: one entry of the output has one place in them."""
        shape = shape_of(matrix)
        if is_a(matrix, (CONVOLUTION, "LinearBackward")):
            return (0,)
        for place in (-1, 0, math.prod(shape) // 2) if math.prod(shape) else ():
            gradient = self.flow.on_parameter(matrix, _one_entry(shape, place, self._random(matrix)))
            if gradient is not None and gradient.any():
                places = gradient.nonzero(as_tuple=True)
                dims = [d for d in range(parameter.ndim) if parameter.shape[d] > 1 and len(places[d].unique()) == 1]
                if dims:
                    return tuple(dims)
        return (self._turned_dim(matrix, parameter),)

    def _turned_dim(self, matrix: Node, parameter: nn.Parameter) -> int:
        """The output dimension by the transpositions on the way, where the input is zero and no gradient tells."""
        if parameter.ndim > 2:
            return 0
        turns = 0
        node = next((part for part in self.flow.operands(matrix) if part and part not in self.flow.active), None)
        while node is not None and self.flow.parameter(node) is None:
            turns += is_a(node, _TURNS)
            node = next((below for below in self.flow.operands(node) if below is not None), None)
        return 0 if turns % 2 else 1

    # ------------------------------------------------------------ norms

    def _norms(self, by_role: Mapping[str, Sequence[Use]], entry: Node | None) -> frozenset[str]:
        """Places of the branch at which a norm stands."""
        flow, places = self.flow, set()

        def between(first: Node, last: Node) -> set[Node]:
            return flow.between(first, last) - {first, last}

        inputs = [node for role in ("q", "k", "v", "fc1", "fc3") for node, _ in by_role.get(role, ())]
        inputs = [node for node in dict.fromkeys(inputs or [entry]) if node is not None]
        if any(self.norms.stands_in(between(self.start, node), counts=node is inputs[0]) for node in inputs):
            places.add("pre")
        for role in "qkv":
            for node, edge in by_role.get(role, ()):
                if edge is not None:
                    way = flow.between(node, edge[0]) - {node}
                    for other in self._matrices_of(edge):
                        way -= flow.between(node, other)
                    places |= {role} if any(map(is_norm, way)) else set()
        for out in self.outs:
            sources = self.mixing or inputs
            if any(is_norm(node) for source in sources for node in between(source, out)):
                places.add("inner")
            tail = flow.between(out, self.head[0]) - {out}
            if self.norms.stands_in(tail, counts=out is self.outs[0]):
                places.add("branch")
        return frozenset(places)


# ---------------------------------------------------------------- small things


def _one_entry(shape: Sequence[int], place: int, like: Tensor) -> Tensor:
    """Zero but for one entry, whose place is counted in the flattened tensor."""
    vector = torch.zeros(math.prod(shape), dtype=like.dtype, device=like.device)
    vector[place] = 1.0
    return vector.reshape(tuple(shape))


def _is_line_of(after: Tensor | None, given: Tensor | None) -> bool:
    """Whether each token's features are a multiple of those given, plus a number: as behind a norm that is written out.
    True where nothing tells."""
    if after is None or given is None or after.shape != given.shape:
        return True
    x, y = (value.flatten(0, -2)[:64].double() for value in (given, after))
    x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return bool(((x * y).sum(-1).abs() >= (1 - _LINE) * x.norm(dim=-1) * y.norm(dim=-1)).all())


_FEW = 1024
"""Entries of a value by which an activation is told."""


def _answers(given: Tensor) -> Tensor:
    """What each of the activations gives of a value."""
    x = given.flatten()[:_FEW].double()
    return torch.stack([function(x) for _, function in _ACTIVATIONS])


def _match(answers: Tensor, after: Tensor) -> tuple[str | None, float] | None:
    """The activation that gives one value of another, and its error; None where none does up to rounding."""
    y = after.flatten()[:_FEW].double()
    limit = 64 * torch.finfo(after.dtype).eps * y.abs().max().item()
    errors = zip(_ACTIVATIONS, (answers - y).abs().amax(1).tolist(), strict=True)
    (name, _), error = min(errors, key=lambda pair: pair[1])
    return (name, error) if limit > 0 and error <= limit else None
