"""Roles of the parameters that are no matrix of a branch: both ends of the stream, norms, biases and what is left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from depthlaw.auditing.reading.graph import (
    ADDS,
    CONVOLUTION,
    MULTIPLES,
    PRODUCTS,
    Flow,
    Node,
    is_a,
    is_norm,
    passes_on,
    shape_of,
)
from depthlaw.auditing.reading.norms import Norms
from depthlaw.auditing.reading.sublayer import Sublayer

_ROUTES = ("TopkBackward", "GatherBackward", "SortBackward")
"""What chooses experts by the numbers of a router."""
LOOK_UPS = ("EmbeddingBackward", "IndexBackward", "IndexSelectBackward", "GatherBackward")


class Rest:
    """Roles of the remaining parameters.

    roles: by name. biases: by name, the roles of the bias's matrix. tied: embeddings that are the head as well.
    matrices: names of matrices inside branches that have no role.
    """

    def __init__(
        self,
        flow: Flow,
        norms: Norms,
        sides: Mapping[str, Sequence[Sublayer]],
        starts: Collection[Node],
        left_out: Collection[Node],
    ) -> None:
        self.flow, self.norms, self.starts, self.left_out = flow, norms, starts, left_out
        self.roles: dict[str, str] = {}
        self.biases: dict[str, tuple[str, ...]] = {}
        self.tied: list[str] = []
        self.matrices: list[str] = []
        self.branch_roles: dict[str, list[str]] = {}
        for side in sides.values():
            for sub in side:
                for weight in sub.weights:
                    self.branch_roles.setdefault(weight.name, []).append(weight.role)
        self.branch_parameters = {sub.branch_parameter: sub.trained for side in sides.values() for sub in side}
        self.behind = flow.reached([side[-1].end for side in sides.values()][-1:])
        self.before = [(side[0].start, flow.reached([side[0].start])) for side in sides.values()]
        for name in flow.leaves:
            if name not in self.branch_roles:
                self.roles[name] = self._role(name)
        for name, role in self.roles.items():
            if role == "embedding" and any(node in self.behind for node in self._matrices(name)):
                self.tied.append(name)

    def _matrices(self, name: str) -> list[Node]:
        return [node for node, matrix in self.flow.matrices.items() if matrix == name]

    def _role(self, name: str) -> str:
        flow = self.flow
        if name in self.branch_parameters:
            return "branch_weight" if self.branch_parameters[name] == "scalar" else "layer_scale"
        waiting, seen, look_up = [flow.leaves[name]], set(), None
        uses: list[tuple[Node, Node]] = []
        while waiting:
            node = waiting.pop(0)
            for user in flow.users(node):
                if user in self.starts:
                    return "embedding"
                if user in flow.conditions:
                    is_table = is_a(user, LOOK_UPS)
                    return "embedding" if is_table else "modulation"
                if user in flow.active:
                    uses.append((node, user))
                elif user not in seen:
                    seen.add(user)
                    waiting.append(user)
                    look_up = user if is_a(user, LOOK_UPS) else look_up
        roles = ((role, user) for node, user in uses if (role := self._role_at(name, node, user, look_up)))
        role, user = next(roles, ("other", None))
        return role if user is None or not role.startswith("norm_") or self._is_of_stack(user) else "other"

    def _is_of_stack(self, norm: Node) -> bool:
        """Whether a norm is one of the stack's, and not of an embedding, or of what is left out behind the stack."""
        is_behind = any(norm in reached and norm is not start for start, reached in self.before)
        return is_behind and norm not in self.left_out

    def _role_at(self, name: str, node: Node, user: Node, look_up: Node | None) -> str | None:
        """What a parameter, or what was made of it, is for an operation on data. look_up: where its rows are looked up
        by something else than data."""
        flow, parameter = self.flow, self.flow.parameters[name]
        if flow.matrices.get(user) == name:
            return self._role_of_matrix(name, user)
        if is_norm(user):
            return "norm_gain" if flow.operands(user).index(node) == 1 else "norm_bias"
        if is_a(user, (*PRODUCTS, CONVOLUTION)):
            return "other" if self._is_in_factor(node, user) else self._bias(name, user)
        active = next((operand for operand in flow.operands(user) if operand in flow.active), None)
        is_factor = is_a(user, ("AddcmulBackward",)) and flow.operands(user).index(node) > 0
        if (is_factor or is_a(user, MULTIPLES)) and active is not None:
            gains = flow.operands(active)[1:2] if is_norm(active) else []
            has_gain = any(flow.inactive_parameters(gain) for gain in gains if gain is not None)
            return "norm_gain" if self.norms.is_part_at(active, user) and not has_gain else None
        if is_a(user, ADDS) and active is not None:
            curved = any(is_a(part, ("TanhBackward", "ErfBackward")) for part in flow.users(user))
            if curved or self.norms.is_gained(active):
                return "norm_bias"
            if self._bias(name, active) == "bias":
                return "bias"
            if look_up is not None and not _is_of_places(look_up, parameter):
                return "embedding"
            return "positions" if parameter.ndim > 1 else None
        is_in_branch = any(user in reached for _, reached in self.before)
        return "embedding" if is_a(user, ("CatBackward", "StackBackward")) and not is_in_branch else None

    def _is_in_factor(self, node: Node, product: Node) -> bool:
        """Whether what was made of a parameter is a factor of a product whose matrix is made of another one, too."""
        matrix = self.flow.matrices.get(product)
        return matrix is not None and matrix in self.flow.inactive_parameters(node)

    def _bias(self, name: str, node: Node) -> str:
        """A bias, of the matrix whose product it is added to."""
        while node not in self.flow.matrices and passes_on(node):
            node = next(operand for operand in self.flow.operands(node) if operand in self.flow.active)
        matrix = self.flow.matrices.get(node)
        roles = self.branch_roles.get(matrix or "", ["head"] if node in self.behind else [])
        if matrix is None or (not roles and self.flow.parameters[name].ndim > 1):
            return "other"
        self.biases[name] = tuple(dict.fromkeys(roles))
        return "bias"

    def _role_of_matrix(self, name: str, node: Node) -> str:
        if node in self.behind:
            return "head"
        if not any(node in reached for _, reached in self.before):
            return "embedding"
        near = [node, *self.flow.next(node, lambda user: user in self.flow.matrices or is_a(user, _ROUTES))]
        if any(is_a(part, _ROUTES) for part in near):
            return "router"
        if shape_of(node)[-1] > 1:
            self.matrices.append(name)
        return "other"


def _is_of_places(look_up: Node, table: Tensor) -> bool:
    """Whether a look-up is of places, each of which comes once, and not of kinds of tokens."""
    saved = getattr(look_up, "_saved_indices", None)
    for indices in saved if isinstance(saved, (tuple, list)) else (saved,):
        if isinstance(indices, Tensor) and indices.numel() > 1:
            return indices.unique().numel() > 1 or len(table) > 2 * indices.numel()
    return False
