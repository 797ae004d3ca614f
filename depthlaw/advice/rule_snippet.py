"""A rule as lines of torch, for a block of nn.MultiheadAttention and nn.Linear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from depthlaw.advice.rule import beside_which, growing_roles, span
from depthlaw.theory.moments import GATED


def snippet(
    norm: str,
    side: Mapping[str, Any],
    activation: str = "relu",
    norm_kind: str = "layernorm",
    *,
    is_causal: bool = False,
    others: Mapping[str, Any] | None = None,
    last_norm: str = "one before the head too",
) -> list[str]:
    """What sets the gains and does the forward pass of one layer; a test runs it.

    The biases of nn.Linear begin at random, and would be most of a branch whose gain is small. is_causal: of a decoder.
    others: ``other_roles``, for the learning rates that hold them. last_norm: where it stands, unless norms are behind.
    """
    gains = side["init_gain"] or dict.fromkeys(side["lr_multiplier"], 1.0)
    blocks = ["attn", *(["cross"] if "cross_out" in gains else [])]
    lines = [*(["import torch"] if is_causal else []), "from torch.nn.init import xavier_normal_, zeros_"]
    is_gated, phi = activation in GATED, GATED.get(activation, activation)
    if phi != "identity":
        lines.append(f"from torch.nn.functional import {phi}")
    lines += [f"{', '.join(_qkv(block))} = {block}.in_proj_weight.detach().chunk(3)" for block in blocks]
    for gain in dict.fromkeys(gains.values()):
        matrices = ", ".join(_matrix(role) for role, value in gains.items() if value == gain)
        lines += wrap(f"for W in ({matrices}):", 74, subsequent_indent=" " * 10)
        lines.append(f"    xavier_normal_(W, gain={gain:.6g})")
    biases = [f"{block}.{name}" for block in blocks for name in ("in_proj_bias", "out_proj.bias")]
    lines += wrap(
        f"for b in ({', '.join([*biases, 'fc1.bias', 'fc2.bias', *['fc3.bias'] * is_gated])}):",
        74,
        subsequent_indent=" " * 10,
    )
    lines.append("    zeros_(b)")
    last = "" if norm == "post" else f", {last_norm}"
    lines.append(f"# in forward; norms: {_NORM_CLASSES[norm_kind]}, gains 1 as they are made{last}")
    if is_causal:
        lines.append("# T tokens, of which none sees a later one: what is True is hidden")
        lines.append("mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)")
    if norm == "sub":
        lines.append(
            f"# {_heads('x', is_causal=is_causal)}: yours to write, what attn has before its out_proj: of each"
        )
        lines.append("# head softmax(q k^T / sqrt(head size)) v, all of them side by side")
    lines += list(_forward(norm, side, blocks, activation, is_causal=is_causal))
    if rate := side.get("rate_left"):
        text = (
            f"# the learning rate of these matrices: {rate['multiplier']:.3g} times {beside_which(rate)}, as no gain "
        )
        lines += wrap(f"{text}holds the update", 78, subsequent_indent="#   ")
    rates = side["lr_multiplier"]
    if is_gated and (times := rates["fc3"] / rates["fc2"]) != 1:
        lines.append(f"# the learning rate of fc3: {times:.3g} times that of the other matrices, as its gain is 1")
    return [*lines, *_groups(others)]


_NORM_CLASSES = {"layernorm": "nn.LayerNorm", "rmsnorm": "nn.RMSNorm"}


def _groups(others: Mapping[str, Any] | None) -> list[str]:
    """Learning rates of their own for what grows: a comment, since which parameters these are, the model knows."""
    if others is None or others["not_computed"] is not None:
        return []
    shown = ", ".join(f"{role} {row['lr_multiplier']:.3g}" for role, row in growing_roles(others).items())
    if not shown:
        return []
    few, many = span(others)
    at = f" at {many} layers" if others["asked"] != others["layers"][1] else ""
    return wrap(
        f"# parameter groups{at}: times the learning rate that suits {few} layers, {shown}, others 1",
        78,
        subsequent_indent="#   ",
    )


def _qkv(block: str) -> list[str]:
    return ["q", "k", "v"] if block == "attn" else [f"{block}_{letter}" for letter in "qkv"]


def _matrix(role: str) -> str:
    """How the snippet calls it."""
    modules = {"out": "attn.out_proj.weight", "cross_out": "cross.out_proj.weight"}
    return modules.get(role, f"{role}.weight" if role.startswith("fc") else role)


def _heads(value: str, *, is_causal: bool) -> str:
    return f"heads({value}{', mask' if is_causal else ''})"


def _forward(
    norm: str, side: Mapping[str, Any], blocks: list[str], activation: str, *, is_causal: bool
) -> Iterator[str]:
    """nn.MultiheadAttention has no place for Sub-LN's norm before ``out``: there ``heads`` is what comes before it."""
    stream = _times(side["residual_weight"])
    branch = _times(side["branch_weight"])
    for place, block in enumerate((*blocks, "ffn"), start=1):
        given = f"norm{place}(x)" if norm != "post" else "x"
        if block == "ffn":
            phi = GATED.get(activation, activation)
            inner = f"fc1({given})" if phi == "identity" else f"{phi}(fc1({given}))"
            inner += f" * fc3({given})" if activation in GATED else ""
            value = f"fc2({f'norm{place}b({inner})' if norm == 'sub' else inner})"
        elif block == "attn" and norm == "sub":
            value = f"attn.out_proj(norm{place}b({_heads(given, is_causal=is_causal)}))"
        else:
            if norm != "post":
                yield f"h = {given}"
            read = "h" if norm != "post" else "x"
            masked = ", attn_mask=mask, is_causal=True" if is_causal else ""
            attention = f"attn({read}, {read}, {read}{masked})[0]"
            value = attention if block == "attn" else f"cross({read}, memory, memory)[0]"
        total = f"{stream}x + {branch}{value}"
        yield f"x = norm{place}({total})" if norm == "post" else f"x = {total}"


def _times(weight: float) -> str:
    return "" if weight == 1 else f"{weight:.6g} * "
