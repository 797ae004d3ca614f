"""The pieces of a network, each with its forward, backward and tangent pass beside each other.

    Linear   x W^T + b, of several W of one x, with a ReLU behind where it is asked for
    Norm     LayerNorm or RMSNorm, times a gain, plus a bias
    Mix      softmax(s q k^T) v of each head
    Sum      a x + b y + ...

``forward`` gives a piece's outputs and what it keeps; ``backward`` gets that and the gradients of its outputs (None
where there is none), and gives those of its inputs; ``tangent`` gets the moves of its inputs, and gives those of its
outputs. A ``Program`` is several pieces in turn. It has no graph, and is one node of torch's (``Traced``): a sublayer
is one node, whose own pass backward is a loop. So recomputation, training and what is no piece are left to torch.

All are written for the last dimensions of their tensors; those of members (E) come first.

Dimensions: E members, B batch, T tokens, S tokens that are attended to, N = B T, D in, F out, H heads, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Some = Sequence[Tensor | None]
Receive = Callable[[str, Tensor, Tensor, Tensor], None]
"""Called with a matrix's name and itself (E, F, D), the vectors (E, N, D) that it multiplies and the gradient
(E, N, F) behind it."""


class Receiver(Protocol):
    receive: Receive | None


class Piece(Protocol):
    @property
    def num_outputs(self) -> int: ...
    def forward(self, inputs: Any) -> tuple[Some, Some]: ...
    def backward(self, kept: Any, grads: Any, needs: Sequence[bool]) -> Some: ...
    def tangent(self, kept: Any, moved: Any) -> Some: ...


class Program:
    """Pieces in turn, each with the places of its inputs and outputs: place 0 is None, behind it are the inputs of the
    whole. names: the parameters among these, which stand last."""

    def __init__(self, num_inputs: int, names: Sequence[str] = ()) -> None:
        self.names, self.num_places = names, 1 + num_inputs + len(names)
        self.parameters = {name: place for place, name in enumerate(names, 1 + num_inputs)}
        self.steps: list[tuple[Piece, tuple[int, ...], tuple[int, ...]]] = []
        self.ends: tuple[int, ...] = ()

    def add(self, piece: Piece, *before: int | None) -> tuple[int, ...]:
        """The places of the piece's outputs, which so far are those of the whole."""
        self.ends = tuple(range(self.num_places, self.num_places + piece.num_outputs))
        self.num_places += len(self.ends)
        self.steps.append((piece, tuple(place or 0 for place in before), self.ends))
        return self.ends


class Traced(torch.autograd.Function):
    """A program as one node of torch's graph, given its inputs."""

    @staticmethod
    def forward(ctx: Any, program: Program, *inputs: Tensor | None) -> Some:
        at: list[Tensor | None] = [None, *inputs, *[None] * (program.num_places - 1 - len(inputs))]
        kept, counts = [], []
        for piece, before, behind in program.steps:
            outputs, values = piece.forward([at[place] for place in before])
            at[behind[0] : behind[-1] + 1] = outputs
            kept += values
            counts.append(len(values))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        ctx.program, ctx.counts = program, counts
        outputs = tuple(at[place] for place in program.ends)
        ctx.shapes = [None if output is None else output.shape for output in outputs]
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Some:  # pyright: ignore[reportIncompatibleMethodOverride]
        kept, needs, program = ctx.saved_tensors, ctx.needs_input_grad, ctx.program
        end, at = len(kept), dict(zip(program.ends, grads, strict=True))
        wants = [False, *needs[1:], *[True] * (program.num_places - len(needs))]
        for (piece, before, behind), num in zip(reversed(program.steps), reversed(ctx.counts), strict=True):
            values, end = kept[end - num : end], end - num
            of_outputs = [at.pop(place, None) for place in behind]
            if all(grad is None for grad in of_outputs):
                continue
            given = piece.backward(values, of_outputs, [wants[place] for place in before])
            for place, grad in zip(before, given, strict=True):
                if grad is not None:
                    there = at.get(place)
                    at[place] = grad if there is None else there + grad
        return None, *(at.get(place) for place in range(1, len(needs)))

    @staticmethod
    def jvp(ctx: Any, *moved: Tensor | None) -> Some:
        kept, end, at, program = ctx.saved_tensors, 0, dict(enumerate(moved)), ctx.program
        for (piece, before, behind), num in zip(program.steps, ctx.counts, strict=True):
            values, end = kept[end : end + num], end + num
            of_inputs = [at[place] for place in before]
            is_still = all(tangent is None for tangent in of_inputs)
            at |= zip(behind, [None] * len(behind) if is_still else piece.tangent(values, of_inputs), strict=True)
        ends = [at[place] for place in program.ends]
        # Where one output moves, torch wants a tangent of each.
        moving = next((tangent for tangent in ends if tangent is not None), None)
        if moving is None:
            return tuple(ends)
        return tuple(
            moving.new_zeros(shape) if tangent is None and shape is not None else tangent
            for tangent, shape in zip(ends, ctx.shapes, strict=True)
        )


def alone(piece: Piece, *inputs: Tensor | None) -> Some:
    """A piece that is run by itself."""
    program = Program(len(inputs))
    program.add(piece, *(None if x is None else place for place, x in enumerate(inputs, 1)))
    return Traced.apply(program, *inputs)


def _added(parts: Some) -> Tensor | None:
    """The sum of the parts that are there."""
    there = [part for part in parts if part is not None]
    return sum(there[1:], there[0]) if there else None


# ---------------------------------------------------------------- pieces


@dataclass
class Linear:
    """Of x, and W and b of each name (b None where there is none): x W^T + b, with a ReLU behind where is_relu.

    receiver: a weak reference to whoever may have a function ``receive``. In a backward pass it gets the two factors of
    each matrix's gradient, by its name, and no matrix gets a gradient. A model that keeps its pieces would else be part
    of a circle, and stay in memory until the garbage collector comes.
    """

    names: Sequence[str]
    receiver: Callable[[], Receiver | None]
    is_relu: bool = False

    @property
    def num_outputs(self) -> int:
        return len(self.names)

    def forward(self, inputs: Any) -> tuple[Some, Some]:
        (x_BTD, *given), shape = _for_products(inputs), inputs[0].shape
        x_ND = x_BTD.reshape(*shape[:-3], -1, shape[-1])
        outputs = [_product(x_ND, *pair) for pair in zip(given[::2], given[1::2], strict=True)]
        if self.is_relu:
            outputs = [y_NF.relu_() for y_NF in outputs]
        kept = (x_ND.view(shape), *given[::2], *(outputs if self.is_relu else ()))
        return [y_NF.view(*shape[:-1], -1) for y_NF in outputs], kept

    def backward(self, kept: Any, grads: Any, needs: Sequence[bool]) -> Some:
        (x_BTD, *kept), shape = kept, kept[0].shape
        x_ND = x_BTD.view(*shape[:-3], -1, shape[-1])
        grad_ND, of_parameters, receiver = None, [], self.receiver()
        receive = None if receiver is None else receiver.receive
        for index, grad_BTF in enumerate(grads):
            if grad_BTF is None:
                of_parameters += [None, None]
                continue
            weight_FD = kept[index]
            grad_NF = _as(weight_FD, grad_BTF.reshape(*x_ND.shape[:-1], -1))
            if self.is_relu:
                grad_NF = torch.ops.aten.threshold_backward(grad_NF, kept[len(grads) + index], 0)
            needs_weight, needs_bias = needs[1 + 2 * index : 3 + 2 * index]
            if receive is not None:
                receive(self.names[index], weight_FD, x_ND, grad_NF)
            of_weight = _times(grad_NF.mT, x_ND) if receive is None and needs_weight else None
            of_parameters += [of_weight, grad_NF.sum(-2) if needs_bias else None]
            if needs[0]:
                grad_ND = _times(grad_NF, weight_FD) if grad_ND is None else _plus(grad_ND, grad_NF, weight_FD)
        return [None if grad_ND is None else grad_ND.view(shape), *of_parameters]

    def tangent(self, kept: Any, moved: Any) -> Some:
        (x_BTD, *kept), (moved_BTD, *of_parameters), num, moves = kept, moved, len(self.names), []
        shape = x_BTD.shape
        x_ND, moved_ND = (None if x is None else x.reshape(*shape[:-3], -1, shape[-1]) for x in (x_BTD, moved_BTD))
        assert x_ND is not None
        for index, weight_FD in enumerate(kept[:num]):
            of_weight, of_bias = of_parameters[2 * index : 2 * index + 2]
            move = _added(
                [
                    None if moved_ND is None else moved_ND @ weight_FD.mT,
                    None if of_weight is None else x_ND @ of_weight.mT,
                    None if of_bias is None else of_bias[..., None, :].expand(*x_ND.shape[:-1], -1),
                ]
            )
            move = move if move is None or not self.is_relu else move * (kept[num + index] > 0)
            # Contiguous, as what it is the tangent of: a bias that moves alone is expanded.
            moves.append(None if move is None else move.reshape(*shape[:-1], -1).contiguous())
        return moves


def _for_products(inputs: Any) -> Any:
    """Inputs in the precision of products, which is another one under autocast."""
    kind = inputs[0].device.type
    if not torch.is_autocast_enabled(kind):
        return inputs
    return [None if value is None else value.to(torch.get_autocast_dtype(kind)) for value in inputs]


def _as(like: Tensor, x: Tensor) -> Tensor:
    """x in the precision of another tensor, which differs under autocast."""
    return x if x.dtype == like.dtype else x.to(like.dtype)


def _times(x_ND: Tensor, y_DF: Tensor) -> Tensor:
    """x y, of each member where there are any: `@` takes twice as long to begin."""
    return torch.mm(x_ND, y_DF) if x_ND.dim() == 2 else torch.bmm(x_ND, y_DF)


def _product(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None) -> Tensor:
    """x W^T + b."""
    if bias_F is None:
        return _times(x_ND, weight_FD.mT)
    if x_ND.dim() == 2:
        return torch.addmm(bias_F, x_ND, weight_FD.mT)
    return torch.baddbmm(bias_F[:, None], x_ND, weight_FD.mT)


def _plus(sum_ND: Tensor, x_NF: Tensor, weight_FD: Tensor) -> Tensor:
    """A sum to which x W is added, in its place."""
    multiply = torch.addmm if sum_ND.dim() == 2 else torch.baddbmm
    return multiply(sum_ND, x_NF, weight_FD, out=sum_ND)


@dataclass
class Norm:
    """Of x, a gain and a bias (None where there is none): gain norm(x) + bias over the last dimension.

    is_centred: LayerNorm, else RMSNorm. told: called with what the norm multiplies its input by. What a norm makes of a
    small move is a symmetric matrix, so tangents go through it as gradients do.
    """

    is_centred: bool
    eps: float
    told: Callable[[Tensor], None]

    num_outputs = 1

    def forward(self, inputs: Any) -> tuple[Some, Some]:
        (x_BTD, gain_D, bias_D), mean_BT1 = inputs, None
        if self.is_centred:
            unit_BTD, mean_BT1, factor_BT1 = torch.native_layer_norm(x_BTD, x_BTD.shape[-1:], None, None, self.eps)
        else:
            factor_BT1 = (x_BTD.square().mean(-1, keepdim=True) + self.eps).rsqrt()
            unit_BTD = x_BTD * factor_BT1
        self.told(factor_BT1)
        out_BTD = unit_BTD
        if gain_D is not None:
            gain = across(gain_D, x_BTD)
            out_BTD = unit_BTD * gain if bias_D is None else torch.addcmul(across(bias_D, x_BTD), unit_BTD, gain)
        return [out_BTD], (x_BTD if self.is_centred else None, mean_BT1, factor_BT1, unit_BTD, gain_D)

    def backward(self, kept: Any, grads: Any, needs: Sequence[bool]) -> Some:
        (*kept, gain_D), (grad_BTD,) = kept, grads
        needs_x, needs_gain, needs_bias = needs
        dims = [] if gain_D is None else list(range(gain_D.dim() - 1, grad_BTD.dim() - 1))
        of_gain = (grad_BTD * kept[-1]).sum(dims) if needs_gain else None
        of_bias = grad_BTD.sum(dims) if needs_bias else None
        scaled_BTD = grad_BTD if gain_D is None else grad_BTD * across(gain_D, grad_BTD)
        return [_through_norm(scaled_BTD, *kept) if needs_x else None, of_gain, of_bias]

    def tangent(self, kept: Any, moved: Any) -> Some:
        (*kept, gain_D), (through_BTD, of_gain, of_bias), unit_BTD = kept, moved, kept[3]
        if through_BTD is not None:
            through_BTD = _through_norm(through_BTD, *kept)
            through_BTD = through_BTD if gain_D is None else through_BTD * across(gain_D, unit_BTD)
        of_gain_BTD = None if of_gain is None else unit_BTD * across(of_gain, unit_BTD)
        of_bias_BTD = None if of_bias is None else across(of_bias, unit_BTD).expand(unit_BTD.shape)
        return [_added([through_BTD, of_gain_BTD, of_bias_BTD])]


def _through_norm(
    v_BTD: Tensor, x_BTD: Tensor | None, mean_BT1: Tensor | None, factor_BT1: Tensor, unit_BTD: Tensor
) -> Tensor:
    """What a norm makes of a gradient behind it, or of a move before it."""
    if x_BTD is not None:
        given = (_as(x_BTD, v_BTD).contiguous(), x_BTD, x_BTD.shape[-1:], mean_BT1, factor_BT1)
        return torch.ops.aten.native_layer_norm_backward(*given, None, None, [True, False, False])[0]
    along_BT1 = (v_BTD * unit_BTD).mean(-1, keepdim=True)
    return torch.addcmul(v_BTD, unit_BTD, along_BT1, value=-1) * factor_BT1


def across(value_D: Tensor, x_BTD: Tensor) -> Tensor:
    """A vector parameter, broadcast over all dimensions of x but its members' and the last."""
    return value_D.reshape(*value_D.shape[:-1], *(1,) * (x_BTD.dim() - value_D.dim()), value_D.shape[-1])


@dataclass
class Mix:
    """Of q (B, T, H K), k and v (B, S, H K): softmax(scale q k^T) v of each head of that size, with scores capped at c
    tanh(score / c) where c is not 0."""

    size: int
    scale: float
    cap: float
    is_causal: bool

    num_outputs = 1

    def forward(self, inputs: Any) -> tuple[Some, Some]:
        q, k, v = map(self._heads, _for_products(inputs))
        scores, capped = torch.bmm(q.mul_(self.scale), k.mT), None
        if self.cap:
            capped = scores.div_(self.cap).tanh_()
            scores = self.cap * capped
        if self.is_causal:
            future_TS = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores.masked_fill_(future_TS, -math.inf)
        weights = _as(v, scores.softmax(-1))
        return [self._tokens(torch.bmm(weights, v), inputs[0].shape)], (q, k, v, capped, weights)

    def backward(self, kept: Any, grads: Any, needs: Sequence[bool]) -> Some:
        (q, k, v, capped, weights), (grad_BTD,) = kept, grads
        grad = _as(v, self._heads(grad_BTD))
        of_scores = _through_softmax(torch.bmm(grad, v.mT), weights)
        of_scores = of_scores if capped is None else of_scores * (1 - capped.square())
        of_q, of_k = torch.bmm(of_scores, k).mul_(self.scale), torch.bmm(of_scores.mT, q)
        parts = of_q, of_k, torch.bmm(weights.mT, grad)
        return [self._tokens(part, grad_BTD.shape) for part in parts]

    def tangent(self, kept: Any, moved: Any) -> Some:
        q, k, v, capped, weights = kept
        of_q, of_k, of_v = (None if move is None else self._heads(move) for move in moved)
        of_scores = _added([None if of_q is None else self.scale * of_q @ k.mT, None if of_k is None else q @ of_k.mT])
        if of_scores is not None:
            of_scores = of_scores if capped is None else of_scores * (1 - capped.square())
            of_scores = _through_softmax(of_scores, weights) @ v
        mixed = _added([of_scores, None if of_v is None else weights @ of_v])
        shape = next(move.shape for move in moved if move is not None)
        return [None if mixed is None else self._tokens(mixed, shape)]

    def _heads(self, x_BTD: Tensor) -> Tensor:
        """All heads of all sequences, one behind the other, in a room of their own: (B H, T, K)."""
        heads = x_BTD.reshape(*x_BTD.shape[:-1], -1, self.size).transpose(-3, -2)
        return heads.clone(memory_format=torch.contiguous_format).view(-1, *heads.shape[-2:])

    def _tokens(self, x: Tensor, shape: torch.Size) -> Tensor:
        """Back to (B, T, H K). shape: of any that has as many members, sequences and heads."""
        tokens = x.view(*shape[:-2], -1, *x.shape[-2:]).transpose(-3, -2)
        return tokens.reshape(*tokens.shape[:-2], -1)


def _through_softmax(v: Tensor, weights: Tensor) -> Tensor:
    """What a softmax makes of a gradient behind it, or of a move before it: its matrix is symmetric."""
    return torch.ops.aten._softmax_backward_data(v, weights, -1, weights.dtype)


@dataclass
class Sum:
    """Of x, y, ...: the sum of each times its number, which may be a tensor, of members."""

    numbers: Sequence[float | Tensor]

    num_outputs = 1

    def forward(self, inputs: Any) -> tuple[Some, Some]:
        return [self._sum(inputs)], ()

    def backward(self, kept: Any, grads: Any, needs: Sequence[bool]) -> Some:
        return [times(number, grads[0]) if need else None for number, need in zip(self.numbers, needs, strict=True)]

    def tangent(self, kept: Any, moved: Any) -> Some:
        return [self._sum(moved)]

    def _sum(self, parts: Some) -> Tensor:
        whole = None
        for number, part in zip(self.numbers, parts, strict=True):
            if part is None:
                continue
            if whole is None:
                whole = times(number, part)
            elif isinstance(number, Tensor):
                whole = torch.addcmul(whole, number, part)
            elif abs(number) > torch.finfo(part.dtype).max:
                whole = whole + times(number, part)  # which overflows, where torch.add refuses
            else:
                whole = torch.add(whole, part, alpha=number)
        assert whole is not None
        return whole


def times(number: float | Tensor, x: Tensor) -> Tensor:
    """number x, without a pass over x where that is x."""
    return x if not isinstance(number, Tensor) and number == 1 else number * x
