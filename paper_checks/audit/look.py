"""What is built: residual streams, sublayers, norms and the role of each parameter, read from one forward pass.

Nothing goes by names. A residual stream is the chain of values that every way from the data to the output passes. A
sublayer is a stretch of it with a way round: x' = a x + b F(x). What writes to the stream is an output matrix. What is
multiplied with what in an attention says which matrices are queries, keys and values, and which rows of a fused one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from paper_checks.audit.graph import (
    CONVOLUTION,
    Edge,
    Flow,
    Node,
    is_a,
    is_norm,
    kind_of,
    nodes_of,
    passes_on,
    shape_of,
)
from paper_checks.audit.inputs import Inputs, first_output

ADDS = ("AddBackward", "SubBackward", "LerpBackward", "AddcmulBackward")
_LINEAR = ("MulBackward", "DivBackward", "NegBackward", "SliceBackward", "SelectBackward", "CatBackward", *ADDS)
_SEED = 11


@dataclass(frozen=True)
class Weight:
    """A matrix of a branch, or those rows of a fused one that have one role.

    name: of the parameter. features: numbers of its output features, None for all. output_dim: the dimension of the
    parameter that counts them. layer: which one of its role it is on its side, from 1. expert: of those of one layer.
    """

    role: str
    name: str
    side: str
    layer: int
    parameter: nn.Parameter
    features: Tensor | None = None
    output_dim: int = 0
    expert: int = 0

    def of(self, tensor: Tensor) -> Tensor:
        """Its part of the parameter, or of the parameter's gradient: output features x inputs."""
        part = tensor if self.features is None else tensor.index_select(self.output_dim, self.features)
        return (part if self.output_dim in (0, part.ndim - 2) else part.transpose(-1, -2)).detach()

    @property
    def std(self) -> float:
        return self.of(self.parameter).double().std().item() if self.parameter.numel() > 1 else 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.of(self.parameter).shape)


@dataclass(frozen=True, kw_only=True)
class Sublayer:
    """x' = a x + b F(x), one stretch of a stream.

    kind: attention, cross, ffn, parallel (attention and FFN of one input) or other. index: from 1, on its side.
    residual_weight: a; branch_weight: b, or the mean of a trained one at its start. trained: "scalar" or "vector" where
    b is a parameter, whose name is branch_parameter. norms: places, of pre, q, k, v, inner, branch and post. input_rms:
    of what its first matrices are given; second_moment: E x^2 of the stream before it. branch_rms: of b F(x).
    """

    side: str
    index: int
    kind: str
    residual_weight: float
    branch_weight: float
    trained: str | None
    branch_parameter: str | None
    norms: frozenset[str]
    weights: tuple[Weight, ...]
    activation: str | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    is_causal: bool | None = None
    input_rms: float = math.nan
    second_moment: float = math.nan
    branch_rms: float = math.nan
    start: Any = field(default=None, repr=False, compare=False)
    end: Any = field(default=None, repr=False, compare=False)

    @property
    def roles(self) -> dict[str, list[Weight]]:
        by_role: dict[str, list[Weight]] = {}
        for weight in self.weights:
            by_role.setdefault(weight.role, []).append(weight)
        return by_role


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module as it is. sides: its sublayers, by "encoder" and "decoder" (a module of one stream has an encoder).
    final: whether a norm stands behind the last sublayer of each side. others: role by name of parameters that are no
    matrix of a branch. unread: what could not be read, a line each."""

    module: nn.Module
    flow: Flow
    inputs: Inputs
    sides: Mapping[str, Sequence[Sublayer]]
    final: Mapping[str, bool]
    norm_kind: str | None
    others: Mapping[str, str]
    d_model: int
    start_value: Tensor | None = field(default=None, repr=False)
    unread: Sequence[str] = ()

    @property
    def sublayers(self) -> list[Sublayer]:
        return [sublayer for side in self.sides.values() for sublayer in side]

    @property
    def weights(self) -> list[Weight]:
        return [weight for sublayer in self.sublayers for weight in sublayer.weights]

    def num_layers(self, side: str) -> int:
        """Blocks of a side: its attentions that are not cross-attentions, or its sublayers where it has none."""
        kinds = [sublayer.kind for sublayer in self.sides[side]]
        return sum(kind in ("attention", "parallel") for kind in kinds) or len(kinds)


def look(module: nn.Module, inputs: Inputs) -> Built:
    """Run the module once, in evaluation mode, and read it. ValueError, in one line, where it has no residual stream."""
    return _Look(module, inputs).built()


@dataclass
class _Term:
    """One summand of a stream: factor times node, or times the stream itself where node is None."""

    node: Node | None
    factor: float
    trained: Node | None = None


class _Look:
    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        self.module, self.inputs = module, inputs
        self.values: dict[Node, Tensor] = {}
        self.unread: list[str] = []
        self.norm_kinds: set[str] = set()
        for parameter in module.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        data = {name: tensor.requires_grad_(tensor.is_floating_point()) for name, tensor in inputs.data.items()}
        self.output = self._run()
        self.data = {name: tensor.detach() for name, tensor in data.items()}
        starts = self._starts(data)
        self.flow = Flow(module, self.output, [node for nodes in starts.values() for node in nodes])
        self.starts = {name: [node for node in nodes if node in self.flow.graph] for name, nodes in starts.items()}
        self.starts = {name: nodes for name, nodes in self.starts.items() if nodes}
        if not self.starts:
            raise ValueError(
                f"the output of {type(module).__name__} does not depend on what it was given "
                f"({', '.join(inputs.data)}) by what autograd sees"
            )

    def _run(self) -> Tensor:
        """One forward pass, which remembers what runs between modules."""

        def keep(_: nn.Module, args: Any, answer: Any) -> None:
            tensors = [tensor for tensor in _tensors((args, answer)) if tensor.requires_grad]
            for node, tensor in zip(nodes_of(tensors), tensors, strict=True):
                self.values.setdefault(node, tensor.detach())

        hooks = [part.register_forward_hook(keep) for part in self.module.modules()]
        was_training = self.module.training
        try:
            self.module.eval()
            with torch.enable_grad():
                return first_output(self.inputs.call(self.module))
        finally:
            self.module.train(was_training)
            for hook in hooks:
                hook.remove()

    def _starts(self, data: Mapping[str, Tensor]) -> dict[str, list[Node]]:
        """By the name of what the module was given, where it comes in."""
        found: dict[str, list[Node]] = {name: [] for name in data}
        seen, waiting = set(), [self.output.grad_fn]
        by_leaf = {id(tensor): name for name, tensor in data.items()}
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if is_a(node, ("AccumulateGrad",)) and id(node.variable) in by_leaf:
                found[by_leaf[id(node.variable)]].append(node)
            elif is_a(node, ("EmbeddingBackward", "IndexBackward", "IndexSelectBackward", "GatherBackward")):
                for name in (name for name in data if _reads(node, data[name])):
                    found[name].append(node)
            waiting.extend(operand for operand, _ in node.next_functions)
        return found

    # ------------------------------------------------------------ the whole

    def built(self) -> Built:
        sides: dict[str, list[Sublayer]] = {}
        final: dict[str, bool] = {}
        width = 0
        for side, chain, nodes in self._chains():
            sides[side], final[side] = self._side(side, chain, nodes)
            if sides[side]:
                width = shape_of(sides[side][0].start)[-1]
        if not any(sides.values()):
            raise ValueError(
                f"{type(self.module).__name__} has no residual stream: no stretch from its input to its output has a "
                "way round its matrices"
            )
        return Built(
            module=self.module,
            flow=self.flow,
            inputs=self.inputs,
            sides={side: sublayers for side, sublayers in sides.items() if sublayers},
            final=final,
            norm_kind=next(iter(sorted(self.norm_kinds)), None),
            others=self._others([weight.name for side in sides.values() for one in side for weight in one.weights]),
            d_model=width,
            start_value=self.value(next(side[0].start for side in sides.values() if side)),
            unread=self.unread,
        )

    def _chains(self) -> Iterator[tuple[str, list[Node], Collection[Node]]]:
        """Of each side: what every way through it passes, and all its nodes."""
        flow = self.flow
        reach = {name: flow.reached(nodes) for name, nodes in self.starts.items()}
        names = sorted(self.starts, key=lambda name: -len(reach[name]))
        if len(names) == 1:
            yield "encoder", flow.chain(self.starts[names[0]], [flow.end]), reach[names[0]]
            return
        encoder, decoder = names[0], names[-1]
        own = reach[encoder] - reach[decoder]
        borders = [node for node in own if any(user in reach[decoder] for user in flow.graph.successors(node))]
        if borders:
            yield "encoder", flow.chain(self.starts[encoder], borders), own
        yield "decoder", flow.chain(self.starts[decoder], [flow.end]), reach[decoder]

    def _side(self, side: str, chain: list[Node], nodes: Collection[Node]) -> tuple[list[Sublayer], bool]:
        found: list[Sublayer] = []
        norms_behind: list[bool] = []
        for start, end in zip(chain, chain[1:], strict=False):
            inside = self.flow.between(start, end) - {start}
            has_matrices = any(node in self.flow.matrices for node in inside)
            if not has_matrices:
                if norms_behind and self._has_norm(inside):
                    norms_behind[-1] = True
                continue
            terms = self._terms(end, start, nodes)
            if not any(term.node is None for term in terms):
                if found:
                    self._serial(side, inside, len(found))
                continue
            found.append(self._sublayer(side, len(found) + 1, start, end, terms))
            norms_behind.append(False)
        has_post = [behind for behind in norms_behind[:-1]]
        is_post = len(norms_behind) > 1 and any(has_post)
        placed = []
        for place, (sublayer, behind) in enumerate(zip(found, norms_behind, strict=True)):
            is_last = place == len(found) - 1
            alike = [norms_behind[other] for other in range(len(found) - 1) if found[other].kind == sublayer.kind]
            has = behind and (not is_last or (is_post and (not alike or alike[-1])) or len(found) == 1)
            placed.append(replace(sublayer, norms=sublayer.norms | ({"post"} if has else set())))
        ends_in_norm = bool(norms_behind) and norms_behind[-1]
        return placed, ends_in_norm and "post" not in placed[-1].norms

    def _serial(self, side: str, inside: Collection[Node], behind: int) -> None:
        """Matrices on the stream itself with no way round: a head, or a sublayer without a residual connection."""
        if any(node in self.flow.products for node in inside):
            name = next(self.flow.matrices[node] for node in inside if node in self.flow.matrices)
            self.unread.append(
                f"{side}: no residual connection round an attention with {name}, behind sublayer {behind}"
            )

    # ------------------------------------------------------------ one sublayer

    def _terms(self, node: Node, start: Node, nodes: Collection[Node]) -> list[_Term]:
        """The summands of a node: each what it was before it was added, scaled or seen in another shape."""
        found: list[_Term] = []
        waiting = [_Term(node, 1.0)]
        while waiting:
            term = waiting.pop()
            current = term.node
            if current is start:
                found.append(_Term(None, term.factor, term.trained))
                continue
            operands = self.flow.operands(current)
            active = [operand for operand in operands if operand in nodes]
            if is_a(current, ADDS):
                waiting.extend(
                    _Term(operand, term.factor * factor, term.trained)
                    for operand, factor in zip(operands, _weights_of_sum(current), strict=False)
                    if operand in nodes
                )
            elif passes_on(current) and len(active) == 1:
                waiting.append(_Term(active[0], term.factor, term.trained))
            elif is_a(current, ("MulBackward", "DivBackward", "NegBackward")) and len(active) == 1:
                factor, by = self._factor(current, active[0])
                if factor is None or (by is not None and self._is_normalised(active[0], nodes)):
                    found.append(term)
                else:
                    waiting.append(_Term(active[0], term.factor * factor, by or term.trained))
            else:
                found.append(term)
        return found

    def _factor(self, node: Node, active: Node) -> tuple[float | None, Node | None]:
        """What a product multiplies its active operand by, and the operand that is trained; None for no one number."""
        if is_a(node, ("NegBackward",)):
            return -1.0, None
        operands = self.flow.operands(node)
        is_first = operands[0] is active
        value = getattr(node, "_saved_other" if is_first else "_saved_self", None)
        by = operands[1] if is_first and len(operands) > 1 else operands[0] if not is_first else None
        if by is not None and not self.flow.inactive_parameters(by):
            by = None
        # A copy: torch has no right mean of a number that it wrapped in a tensor for a product.
        value = torch.as_tensor(math.nan if value is None else value).double().clone()
        if by is None and value.numel() > 1 and (value.max() - value.min()) > 1e-6 * value.abs().max():
            return None, None
        number = value.mean().item()
        return (1 / number if is_a(node, ("DivBackward",)) and number else number), by

    def _is_normalised(self, node: Node, nodes: Collection[Node]) -> bool:
        """Whether a node is the result of a norm, before its gain."""
        while passes_on(node):
            node = next(operand for operand in self.flow.operands(node) if operand is not None)
        if is_norm(node):
            return True
        operands = [operand for operand in self.flow.operands(node) if operand in nodes]
        if not is_a(node, ("MulBackward", "DivBackward")) or len(operands) < 2:
            return False
        return any(self._leads_to_norm(operand, nodes) for operand in operands)

    def _leads_to_norm(self, node: Node, nodes: Collection[Node]) -> bool:
        """Whether a short way back, through sizes of one number a token, ends in a norm's root."""
        while node in nodes and shape_of(node)[-1:] == (1,):
            if is_norm(node):
                return True
            operands = [operand for operand in self.flow.operands(node) if operand in nodes]
            if len(operands) != 1:
                return False
            node = operands[0]
        return False

    def _has_norm(self, inside: Collection[Node]) -> bool:
        """Whether these nodes, on a stretch without matrices, are a norm or a function in its place."""
        kinds = {kind_of(node) for node in inside}
        if any(is_norm(node) for node in inside):
            centres = any(is_a(node, ("NativeLayerNorm", "NativeGroupNorm", "SubBackward")) for node in inside)
            self.norm_kinds.add("layernorm" if centres else "rmsnorm")
            return True
        for name, start in (("dyt", "TanhBackward"), ("derf", "ErfBackward")):
            if any(kind.startswith(start) for kind in kinds):
                self.norm_kinds.add(name)
                return True
        return False

    def _sublayer(self, side: str, index: int, start: Node, end: Node, terms: Sequence[_Term]) -> Sublayer:
        flow = self.flow
        skips = [term for term in terms if term.node is None]
        branches = [term for term in terms if term.node is not None]
        norms: set[str] = set()
        weights: list[Weight] = []
        kinds: list[str] = []
        facts: dict[str, Any] = {}
        experts = 0
        for term in branches:
            inside = flow.between(start, term.node)
            if not any(node in flow.matrices for node in inside):
                self.unread.append(f"{side}, sublayer {index}: a way from the stream without a matrix is left out")
                continue
            branch = _Branch(self, side, start, term.node, inside)
            part_kind, part_weights, part_norms, part_facts = branch.read()
            if part_kind == "ffn" and "ffn" in kinds:
                experts += 1
                part_weights = [replace(weight, expert=experts) for weight in part_weights]
            kinds.append(part_kind)
            weights += part_weights
            norms |= part_norms
            facts |= {name: value for name, value in part_facts.items() if value is not None}
        distinct = sorted(set(kinds))
        kind = distinct[0] if len(distinct) == 1 else "parallel" if distinct == ["attention", "ffn"] else "other"
        trained = next((term.trained for term in branches if term.trained is not None), None)
        parameter = flow.inactive_parameters(trained)[0] if trained is not None else None
        size = flow.parameters[parameter].numel() if parameter else 0
        return Sublayer(
            side=side,
            index=index,
            kind=kind,
            residual_weight=sum(term.factor for term in skips),
            branch_weight=branches[0].factor if branches else 0.0,
            trained=None if parameter is None else "scalar" if size == 1 else "vector",
            branch_parameter=parameter,
            norms=frozenset(norms),
            weights=tuple(weights),
            second_moment=_mean_square(self.value(start)),
            branch_rms=branches[0].factor * math.sqrt(_mean_square(self.value(branches[0].node))) if branches else 0.0,
            start=start,
            end=end,
            **facts,
        )

    def value(self, node: Node) -> Tensor | None:
        """What an operation gave, where a module or an operation behind it has kept it."""
        if node in self.values:
            return self.values[node]
        if is_a(node, ("AccumulateGrad",)):
            return node.variable.detach()
        for user in self.flow.graph.successors(node):
            operands = self.flow.operands(user)
            names = {
                "NativeLayerNorm": "_saved_input",
                "Pow": "_saved_self",
                "Mul": "_saved_self" if operands[0] is node else "_saved_other",
                "Addmm": "_saved_mat1",
                "Mm": "_saved_self",
            }
            for start, name in names.items():
                if kind_of(user).startswith(f"{start}Backward") and isinstance(getattr(user, name, None), Tensor):
                    return getattr(user, name).detach()
        for user in self.flow.graph.successors(node):
            if passes_on(user) and (value := self.value(user)) is not None:
                return value
        return None

    # ------------------------------------------------------------ what is no matrix of a branch

    def _others(self, taken: Sequence[str]) -> dict[str, str]:
        """Role by name of the remaining parameters."""
        roles: dict[str, str] = {}
        flow = self.flow
        starts = {node for nodes in self.starts.values() for node in nodes}
        for node in flow.order:
            name = flow.parameter(node)
            if name is None or name in taken or name in roles:
                continue
            users = list(flow.graph.successors(node))
            while len(users) == 1 and users[0] not in flow.active and users[0] not in starts:
                node, users = users[0], list(flow.graph.successors(users[0]))
            roles[name] = self._other(name, node, users, starts)
        return roles

    def _other(self, name: str, node: Node, users: Sequence[Node], starts: Collection[Node]) -> str:
        flow, parameter = self.flow, self.flow.parameters[name]
        if any(user in starts or is_a(user, ("EmbeddingBackward",)) for user in users):
            return "embedding"
        if parameter.ndim > 1 and any(user in flow.matrices for user in users):
            is_behind = not any(product in flow.reached([user]) for user in users for product in flow.products)
            return "head" if is_behind else "embedding"
        user = next(iter(users), None)
        if user is None:
            return "other"
        place = flow.operands(user).index(node)
        if is_norm(user):
            return "norm_gain" if place == 1 else "norm_bias"
        if is_a(user, ("AddmmBackward", "LinearBackward", CONVOLUTION)):
            return "bias"
        if is_a(user, ("MulBackward",)):
            active = next((operand for operand in flow.operands(user) if operand in flow.active), None)
            if active is not None and not self._is_normalised(active, flow.active):
                return "branch_weight" if parameter.numel() == 1 else "layer_scale"
            return "norm_gain"
        if is_a(user, ADDS):
            active = next((operand for operand in flow.operands(user) if operand in flow.active), None)
            is_of_norm = active is not None and is_a(active, ("MulBackward",)) and self._leads_back_to_norm(active)
            return "norm_bias" if is_of_norm else "embedding" if parameter.ndim > 1 else "bias"
        return "other"

    def _leads_back_to_norm(self, node: Node) -> bool:
        active = [operand for operand in self.flow.operands(node) if operand in self.flow.active]
        return bool(active) and self._is_normalised(active[0], self.flow.active)


class _Branch:
    """What stands between the stream and a summand of it."""

    def __init__(self, of: _Look, side: str, start: Node, head: Node, inside: set[Node]) -> None:
        self.of, self.flow, self.side = of, of.flow, side
        self.start, self.head, self.inside = start, head, inside
        self.products = [node for node in self.flow.products if node in inside]
        self.facts: dict[str, Any] = {}

    def read(self) -> tuple[str, list[Weight], set[str], dict[str, Any]]:
        if self.products:
            kind, by_role = self._attention()
        else:
            kind, by_role = "ffn", self._ffn()
        norms = self._norms(by_role)
        weights = [weight for role, nodes in by_role.items() for weight in self._weights(role, nodes)]
        first = next((node for role in ("q", "fc1", "k", "v") for node, _ in by_role.get(role, ())), None)
        if first is not None:
            self.facts["input_rms"] = math.sqrt(_mean_square(self._input(first)))
        if kind == "cross":
            weights = [replace(weight, role=f"cross_{weight.role}") for weight in weights]
        return kind, weights, norms, self.facts

    def _weights(self, role: str, nodes: Sequence[tuple[Node, Tensor | None]]) -> Iterator[Weight]:
        for expert, (node, features) in enumerate(nodes):
            name = self.flow.matrices[node]
            parameter = self.flow.parameters[name]
            yield Weight(role, name, self.side, 0, parameter, features, self._output_dim(node, name), expert)

    def _output_dim(self, node: Node, name: str) -> int:
        """The dimension of the parameter that counts output features."""
        parameter = self.flow.parameters[name]
        rows, columns = parameter.shape[-2], parameter.shape[-1]
        outputs = shape_of(node)[-1]
        if is_a(node, ("LinearBackward", CONVOLUTION)):
            return 0
        if rows != columns:
            return parameter.ndim - 2 if outputs == rows else parameter.ndim - 1
        fixed = [operand for operand in self.flow.operands(node) if operand and operand not in self.flow.active]
        turns = 0
        for operand in fixed:
            while operand is not None and self.flow.parameter(operand) != name:
                turns += is_a(
                    operand, ("TBackward", "TransposeBackward", "MtBackward", "MHBackward", "PermuteBackward")
                )
                operand = next((below for below in self.flow.operands(operand) if below is not None), None)
        return parameter.ndim - 2 if turns % 2 else parameter.ndim - 1

    def _input(self, matrix: Node) -> Tensor | None:
        for name in ("_saved_mat1", "_saved_self", "_saved_input", "_saved_batch1"):
            if isinstance(value := getattr(matrix, name, None), Tensor):
                return value.detach()
        return None

    def _is_matrix(self, node: Node) -> bool:
        return node in self.flow.matrices

    def _nearest(self, node: Node) -> list[Node]:
        """Matrices and products that a node is made of, next to it."""
        return self.flow.nearest(
            node, lambda one: one in self.flow.matrices or one in self.flow.products, self.flow.active
        )

    def _data(self, node: Node) -> list[Edge]:
        return [(operand, index) for operand, index in node.next_functions if operand in self.flow.active]

    # ------------------------------------------------------------ attention

    def _attention(self) -> tuple[str, dict[str, list[tuple[Node, Tensor | None]]]]:
        flow = self.flow
        outs = [node for node in self._nearest(self.head) if node in flow.matrices]
        behind = outs or [self.head]
        last = [
            product
            for out in behind
            for edge in (self._data(out) if out in flow.matrices else [(out, 0)])
            for product in flow.nearest(edge[0], lambda node: node in flow.products, flow.active)
        ]
        operands: dict[str, Edge] = {}
        if last and is_a(last[-1], ("ScaledDotProduct",)):
            operands = dict(zip("qkv", last[-1].next_functions, strict=False))
            self._heads(shape_of(last[-1]), shape_of(operands["k"][0], operands["k"][1]))
            self.facts["is_causal"] = bool(getattr(last[-1], "_saved_is_causal", False)) or None
        elif last:
            operands = self._plain(last[-1])
        touched = {role: self._matrices_of(edge) for role, edge in operands.items()}
        by_role = self._split(touched, operands)
        reads_others = any(
            node in flow.matrices and not any(edge[0] in self.inside for edge in self._data(node))
            for node, _ in by_role.get("k", ())
        )
        by_role["out"] = [(node, None) for node in outs]
        return ("cross" if reads_others else "attention"), by_role

    def _plain(self, last: Node) -> dict[str, Edge]:
        """Queries, keys and values of an attention that is written out: probabilities times values."""
        first, second = self._data(last)[:2]
        made_of = [set(self._nearest(edge[0])) & self.flow.products for edge in (first, second)]
        probabilities, values = (first, second) if made_of[0] else (second, first)
        logits = next(iter(self._nearest(probabilities[0])), None)
        while logits is not None and logits not in self.flow.products:
            logits = next((node for edge in self._data(logits) for node in self._nearest(edge[0])), None)
        if logits is None:
            return {"v": values}
        queries, keys = self._data(logits)[:2]
        self._heads(shape_of(logits), None)
        return {"q": queries, "k": keys, "v": values}

    def _heads(self, shape: tuple[int, ...], keys: tuple[int, ...] | None) -> None:
        if len(shape) >= 3:
            self.facts["num_heads"] = shape[-3]

    def _matrices_of(self, edge: Edge) -> list[Node]:
        return [node for node in self._nearest(edge[0]) if node in self.flow.matrices]

    def _split(
        self, touched: Mapping[str, list[Node]], operands: Mapping[str, Edge]
    ) -> dict[str, list[tuple[Node, Tensor | None]]]:
        """By role, each matrix and, where it has several roles, which of its output features have this one."""
        counts: dict[Node, int] = {}
        for nodes in touched.values():
            for node in nodes:
                counts[node] = counts.get(node, 0) + 1
        return {
            role: [(node, self._features(operands[role], node) if counts[node] > 1 else None) for node in nodes]
            for role, nodes in touched.items()
        }

    def _features(self, edge: Edge, matrix: Node) -> Tensor:
        """Output features of a matrix that an operand depends on."""
        generator = torch.Generator().manual_seed(_SEED)
        like = edge[0]._input_metadata[edge[1]]
        vector = torch.randn(tuple(like.shape), generator=generator, dtype=torch.float64).to(like.dtype)
        found = self.flow.back(edge, vector, [matrix], self.flow.active).get(matrix)
        if found is None:
            return torch.arange(shape_of(matrix)[-1])
        return found.flatten(0, -2).abs().sum(0).nonzero().flatten()

    # ------------------------------------------------------------ feed-forward

    def _ffn(self) -> dict[str, list[tuple[Node, Tensor | None]]]:
        flow = self.flow
        outs = [node for node in self._nearest(self.head) if node in flow.matrices]
        by_role: dict[str, list[tuple[Node, Tensor | None]]] = {"fc1": [], "fc3": [], "fc2": []}
        for out in outs:
            data = self._data(out)
            inner = [node for edge in data for node in self._nearest(edge[0]) if node in self.inside]
            inner = [node for node in inner if node in flow.matrices]
            by_role["fc2"].append((out, None))
            if not inner:
                continue
            sides = self._gate(data[0], inner)
            if sides is None:
                by_role["fc1"] += [(node, None) for node in inner]
                edge = data[0]
            else:
                by_role["fc1"] += sides[0]
                by_role["fc3"] += sides[1]
                edge = sides[2]
            self.facts.setdefault("activation", self._activation(edge, inner, is_gated=sides is not None))
        return {role: nodes for role, nodes in by_role.items() if nodes}

    def _gate(self, edge: Edge, inner: Sequence[Node]) -> tuple[list, list, Edge] | None:
        """Of a gated FFN: the matrices of the gate and of what it multiplies, and the gate; None of a plain one."""
        flow = self.flow
        waiting, seen = [edge[0]], set()
        while waiting:
            node = waiting.pop(0)
            if node in seen or node in flow.matrices:
                continue
            seen.add(node)
            data = [part for part in self._data(node) if part[0] in self.inside]
            if is_a(node, ("MulBackward",)) and len(data) == 2:
                parts = [
                    {(one, feature) for one in inner for feature in self._features(part, one).tolist()}
                    if len(inner) == 1
                    else set(self._matrices_of(part))
                    for part in data
                ]
                if parts[0] and parts[1] and not parts[0] & parts[1]:
                    curved = [self._is_curved(part, inner) for part in data]
                    order = (0, 1) if curved[0] or not curved[1] else (1, 0)
                    chosen = [self._part(data[place], inner) for place in order]
                    return chosen[0], chosen[1], data[order[0]]
            waiting += [part[0] for part in data]
        return None

    def _part(self, edge: Edge, inner: Sequence[Node]) -> list[tuple[Node, Tensor | None]]:
        if len(inner) == 1:
            return [(inner[0], self._features(edge, inner[0]))]
        return [(node, None) for node in self._matrices_of(edge)]

    def _is_curved(self, edge: Edge, inner: Sequence[Node]) -> bool:
        return bool(self._curves(edge, inner))

    def _curves(self, edge: Edge, inner: Sequence[Node]) -> set[str]:
        """Operations between matrices and an output that are no sums, views or multiples."""
        kinds: set[str] = set()
        for matrix in inner:
            for node in self.flow.between(matrix, edge[0]) - {matrix}:
                data = [part for part in self._data(node) if part[0] in self.inside]
                is_product = is_a(node, ("MulBackward",)) and len(data) > 1
                if is_product or not (passes_on(node) or is_a(node, _LINEAR) or is_norm(node)):
                    kinds.add(kind_of(node).partition("Backward")[0].lower())
        return kinds

    def _activation(self, edge: Edge, inner: Sequence[Node], *, is_gated: bool) -> str | None:
        kinds = self._curves(edge, inner)
        kinds -= {"mean", "pow"} if kinds & {"gelu", "relu", "silu"} else set()
        names = {"gelu": "gelu", "relu": "relu", "silu": "silu", "threshold": "relu", "leakyrelu": "leaky_relu"}
        name = next((names[kind] for kind in sorted(kinds) if kind in names), None)
        if name is None and kinds & {"erf", "tanh"} and kinds & {"mul", "pow"}:
            name = "gelu"
        if name is None and "sigmoid" in kinds:
            name = "silu"
        if name is None and kinds <= {"tanh"} and kinds:
            name = "tanh"
        if name is None and not kinds:
            name = "identity"
        gated = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}
        return gated.get(name or "") if is_gated else name

    # ------------------------------------------------------------ norms

    def _norms(self, by_role: Mapping[str, list[tuple[Node, Tensor | None]]]) -> set[str]:
        """Places of the branch at which a norm stands."""
        flow, found = self.flow, set()
        inputs = [node for role in ("q", "k", "v", "fc1", "fc3") for node, _ in by_role.get(role, ())]
        outputs = [node for role in ("out", "fc2") for node, _ in by_role.get(role, ())]

        def has(first: Node, last: Node) -> bool:
            inside = flow.between(first, last) - {first, last}
            inside = {node for node in inside if node not in flow.products}
            return self.of._has_norm(inside)

        for node in dict.fromkeys(inputs):
            if any(edge[0] in self.inside for edge in self._data(node)) and has(self.start, node):
                found.add("pre")
        last_products = self.products
        for role in "qkv":
            for node, _ in by_role.get(role, ()):
                if any(self._only(node, product, by_role, role) and has(node, product) for product in last_products):
                    found.add(role)
        for out in outputs:
            for source in last_products or inputs:
                inside = flow.between(source, out) - {source, out}
                inside -= set(last_products)
                if self.products and any(is_a(node, ("SoftmaxBackward",)) for node in inside):
                    continue
                if any(is_norm(node) for node in inside):
                    found.add("inner")
            tail = flow.between(out, self.head) - {out}
            if any(is_norm(node) for node in tail) or (
                self.head not in flow.matrices and any(is_a(node, ("TanhBackward",)) for node in tail)
            ):
                self.of._has_norm(tail)
                found.add("branch")
        return found

    def _only(self, node: Node, product: Node, by_role: Mapping[str, Any], role: str) -> bool:
        """Whether the way from a matrix to a product is that of this role alone."""
        inside = self.flow.between(node, product)
        return bool(inside) and not any(is_a(one, ("SoftmaxBackward",)) for one in inside)


# ---------------------------------------------------------------- small things


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)


def _reads(node: Node, ids: Tensor) -> bool:
    """Whether a look-up is of these ids."""
    if ids.is_floating_point():
        return False
    saved = getattr(node, "_saved_indices", None)
    for indices in saved if isinstance(saved, (tuple, list)) else (saved,):
        if isinstance(indices, Tensor) and indices.numel() == ids.numel() and indices.dtype == ids.dtype:
            if torch.equal(indices.flatten().sort().values, ids.flatten().sort().values):
                return True
    return False


def _weights_of_sum(node: Node) -> Sequence[float]:
    if is_a(node, ("LerpBackward",)):
        weight = float(torch.as_tensor(node._saved_weight).double().mean())
        return 1 - weight, weight
    alpha = getattr(node, "_saved_alpha", 1)
    alpha = float(alpha) if isinstance(alpha, (int, float)) else 1.0
    return 1.0, -alpha if is_a(node, ("SubBackward",)) else alpha


def _mean_square(value: Tensor | None) -> float:
    return math.nan if value is None else value.detach().double().square().mean().item()
