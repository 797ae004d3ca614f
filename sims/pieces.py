"""The pieces of a network, each with its forward, backward and tangent pass beside each other.

    Linear   x W^T + b, of several W of one x, with a ReLU behind where it is asked for
    Norm     LayerNorm or RMSNorm, times a gain, plus a bias
    Mix      softmax(s q k^T) v

Each is a node of torch's graph, so that one writing serves a backward pass, forward mode, recomputation and training. A
sum with weights is one operation of torch, which needs no more. All are written for the last dimensions of their
tensors; a parameter's leading ones are those of members (E), which only the linear piece has to know.

Dimensions: E members, B batch, T tokens, S tokens that are attended to, N = B T, D in, F out, H heads, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Receive = Callable[[str, Tensor, Tensor, Tensor], None]
"""Called with a matrix's name and itself (E, F, D), the vectors (E, N, D) that it multiplies and the gradient
(E, N, F) behind it."""


class Linear(torch.autograd.Function):
    """Of one x: x W^T + b for each W and b (None where there is none). is_relu: with a ReLU behind each.

    receive: a function, or None. In a backward pass it gets the two factors of each matrix's gradient, by its name, and
    no matrix gets a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, receive: Receive | None, names: Sequence[str], is_relu: bool, x_BTD: Tensor, *given: Tensor | None
    ) -> tuple[Tensor, ...]:
        x_ND = x_BTD.flatten(-3, -2)
        outputs = [_product(x_ND, *pair) for pair in zip(given[::2], given[1::2], strict=True)]
        outputs = [y_NF.relu_() for y_NF in outputs] if is_relu else outputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x_ND, *given[::2], *(outputs if is_relu else ()))
        ctx.save_for_forward(x_ND, *given[::2], *(outputs if is_relu else ()))
        ctx.receive, ctx.names, ctx.tokens = receive, names, x_BTD.shape[-3:-1]
        return tuple(y_NF.unflatten(-2, ctx.tokens) for y_NF in outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        x_ND, *kept = ctx.saved_tensors
        weights, outputs = kept[: len(grads)], kept[len(grads) :]
        grad_ND, of_parameters = None, []
        for index, (weight_FD, grad_BTF) in enumerate(zip(weights, grads, strict=True)):
            if grad_BTF is None:
                of_parameters += [None, None]
                continue
            grad_NF = grad_BTF.flatten(-3, -2)
            grad_NF = torch.ops.aten.threshold_backward(grad_NF, outputs[index], 0) if outputs else grad_NF
            needs_weight, needs_bias = ctx.needs_input_grad[4 + 2 * index : 6 + 2 * index]
            if ctx.receive is not None:
                ctx.receive(ctx.names[index], weight_FD, x_ND, grad_NF)
            of_weight = grad_NF.mT @ x_ND if ctx.receive is None and needs_weight else None
            of_parameters += [of_weight, grad_NF.sum(-2) if needs_bias else None]
            if ctx.needs_input_grad[3]:
                grad_ND = grad_NF @ weight_FD if grad_ND is None else _plus(grad_ND, grad_NF, weight_FD)
        return None, None, None, None if grad_ND is None else grad_ND.unflatten(-2, ctx.tokens), *of_parameters

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        x_ND, *kept = ctx.saved_tensors
        _, _, _, moved_BTD, *of_parameters = tangents
        moved_ND, num = None if moved_BTD is None else moved_BTD.flatten(-3, -2), len(of_parameters) // 2
        moved = []
        for index, weight_FD in enumerate(kept[:num]):
            of_weight, of_bias = of_parameters[2 * index : 2 * index + 2]
            parts = [] if moved_ND is None else [moved_ND @ weight_FD.mT]
            parts += [] if of_weight is None else [x_ND @ of_weight.mT]
            parts += [] if of_bias is None else [of_bias[..., None, :]]
            sum_NF = _sum(parts, x_ND.new_zeros(()).expand(*x_ND.shape[:-1], weight_FD.shape[-2]))
            is_open = kept[num + index] > 0 if len(kept) > num else None
            moved.append((sum_NF if is_open is None else sum_NF * is_open).unflatten(-2, ctx.tokens))
        return tuple(moved)


def _product(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor | None) -> Tensor:
    """x W^T + b, of each member where there are any."""
    if bias_F is None:
        return x_ND @ weight_FD.mT
    if x_ND.dim() == 2:
        return torch.addmm(bias_F, x_ND, weight_FD.mT)
    return torch.baddbmm(bias_F[:, None], x_ND, weight_FD.mT)


def _plus(sum_ND: Tensor, x_NF: Tensor, weight_FD: Tensor) -> Tensor:
    """A sum to which x W is added, in its place."""
    return sum_ND.addmm_(x_NF, weight_FD) if sum_ND.dim() == 2 else sum_ND.baddbmm_(x_NF, weight_FD)


def _sum(parts: Sequence[Tensor], zero: Tensor) -> Tensor:
    """The sum of parts, as large as this zero."""
    whole = zero
    for part in parts:
        whole = whole + part
    return whole


class Norm(torch.autograd.Function):
    """gain norm(x) + bias over the last dimension, each None where there is none; and what the norm multiplies by,
    which has no gradient. is_centred: LayerNorm, else RMSNorm.

    What a norm makes of a small move is a symmetric matrix, so that tangents go through it as gradients do.
    """

    @staticmethod
    def forward(
        ctx: Any, is_centred: bool, eps: float, x_BTD: Tensor, gain_D: Tensor | None, bias_D: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if is_centred:
            unit_BTD, mean_BT1, factor_BT1 = torch.native_layer_norm(x_BTD, x_BTD.shape[-1:], None, None, eps)
        else:
            mean_BT1, factor_BT1 = None, (x_BTD.square().mean(-1, keepdim=True) + eps).rsqrt()
            unit_BTD = x_BTD * factor_BT1
        ctx.set_materialize_grads(False)
        kept = (x_BTD if is_centred else None, mean_BT1, factor_BT1, unit_BTD, gain_D)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        ctx.mark_non_differentiable(factor_BT1)
        if gain_D is None:
            return unit_BTD, factor_BT1
        gain = across(gain_D, x_BTD)
        return unit_BTD * gain if bias_D is None else torch.addcmul(across(bias_D, x_BTD), unit_BTD, gain), factor_BT1

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor | None, _: None) -> tuple[Any, ...]:
        if grad_BTD is None:
            return (None,) * 5
        *kept, gain_D = ctx.saved_tensors
        needs_x, needs_gain, needs_bias = ctx.needs_input_grad[2:]
        dims = [] if gain_D is None else list(range(gain_D.dim() - 1, grad_BTD.dim() - 1))
        of_gain = (grad_BTD * kept[3]).sum(dims) if needs_gain else None
        of_bias = grad_BTD.sum(dims) if needs_bias else None
        scaled_BTD = grad_BTD if gain_D is None else grad_BTD * across(gain_D, grad_BTD)
        return None, None, _through_norm(scaled_BTD, *kept) if needs_x else None, of_gain, of_bias

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        *kept, gain_D = ctx.saved_tensors
        unit_BTD = kept[3]
        _, _, moved_BTD, of_gain, of_bias = tangents
        parts = []
        if moved_BTD is not None:
            through_BTD = _through_norm(moved_BTD, *kept)
            parts.append(through_BTD if gain_D is None else through_BTD * across(gain_D, unit_BTD))
        parts += [] if of_gain is None else [unit_BTD * across(of_gain, unit_BTD)]
        parts += [] if of_bias is None else [across(of_bias, unit_BTD)]
        return _sum(parts, torch.zeros_like(unit_BTD)), None


def _through_norm(
    v_BTD: Tensor, x_BTD: Tensor | None, mean_BT1: Tensor | None, factor_BT1: Tensor, unit_BTD: Tensor
) -> Tensor:
    """What a norm makes of a gradient behind it, or of a move before it."""
    if x_BTD is not None:
        given = (v_BTD.to(x_BTD.dtype).contiguous(), x_BTD, x_BTD.shape[-1:], mean_BT1, factor_BT1)
        return torch.ops.aten.native_layer_norm_backward(*given, None, None, [True, False, False])[0]
    along_BT1 = (v_BTD * unit_BTD).mean(-1, keepdim=True)
    return torch.addcmul(v_BTD, unit_BTD, along_BT1, value=-1) * factor_BT1


def across(value_D: Tensor, x_BTD: Tensor) -> Tensor:
    """A vector parameter, broadcast over all dimensions of x but its members' and the last."""
    return value_D.reshape(*value_D.shape[:-1], *(1,) * (x_BTD.dim() - value_D.dim()), value_D.shape[-1])


class Mix(torch.autograd.Function):
    """softmax(s q k^T) v of each head, with scores capped at c tanh(score / c) where c is not 0."""

    @staticmethod
    def forward(
        ctx: Any, scale: float, cap: float, is_causal: bool, q_BTHK: Tensor, k_BSHK: Tensor, v_BSHK: Tensor
    ) -> Tensor:
        q, k, v = (_by_head(x) for x in (q_BTHK, k_BSHK, v_BSHK))
        scores = _scaled(q, k.mT, scale)
        capped = scores.div_(cap).tanh_() if cap else None
        scores = scores if capped is None else cap * capped
        if is_causal:
            future_TS = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores.masked_fill_(future_TS, -math.inf)
        weights = scores.softmax(-1).to(v.dtype)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, capped, weights)
        ctx.save_for_forward(q, k, v, capped, weights)
        ctx.scale, ctx.num = scale, (*q_BTHK.shape[:-3], q_BTHK.shape[-2])
        return _by_token(weights @ v, ctx.num)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTHK: Tensor | None) -> tuple[Any, ...]:
        if grad_BTHK is None:
            return (None,) * 6
        q, k, v, capped, weights = ctx.saved_tensors
        grad = _by_head(grad_BTHK)
        of_scores = _through_softmax(grad @ v.mT, weights)
        of_scores = of_scores if capped is None else of_scores * (1 - capped.square())
        parts = _scaled(of_scores, k, ctx.scale), _scaled(of_scores.mT, q, ctx.scale), weights.mT @ grad
        return None, None, None, *(_by_token(part, ctx.num) for part in parts)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        q, k, v, capped, weights = ctx.saved_tensors
        of_q, of_k, of_v = (None if moved is None else _by_head(moved) for moved in tangents[3:])
        parts = [] if of_q is None else [of_q @ k.mT]
        parts += [] if of_k is None else [q @ of_k.mT]
        of_scores = ctx.scale * _sum(parts, torch.zeros_like(weights))
        of_scores = of_scores if capped is None else of_scores * (1 - capped.square())
        moved = _through_softmax(of_scores, weights) @ v
        return _by_token(moved if of_v is None else moved + weights @ of_v, ctx.num)


def _scaled(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """scale x y."""
    return torch.baddbmm(x.new_empty(()).expand(1, 1, 1), x, y, beta=0, alpha=scale)


def _through_softmax(v: Tensor, weights: Tensor) -> Tensor:
    """What a softmax makes of a gradient behind it, or of a move before it: its matrix is symmetric."""
    return torch.ops.aten._softmax_backward_data(v, weights, -1, weights.dtype)


def _by_head(x_BTHK: Tensor) -> Tensor:
    """All heads of all sequences, one behind the other: (B H, T, K)."""
    return x_BTHK.transpose(-3, -2).flatten(0, -3)


def _by_token(x: Tensor, num: tuple[int, ...]) -> Tensor:
    """Back to (B, T, H, K); num: members, sequences and heads."""
    return x.unflatten(0, num).transpose(-3, -2)
