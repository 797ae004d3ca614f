"""What ``depthlaw rule`` prints: the lines for torch, run, and the tables, read back."""

import math
import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from paper_checks.lowering import rule_document as command
from paper_checks.lowering.rule_snippet import snippet
from sims.model import ModelConfig, Transformer, alternating
from tests.command import document, options, told

pytestmark = pytest.mark.usefixtures("quickly")


def asked(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> list[str]:
    return ["rule", *options(norm=norm, optimizer=optimizer, arch=arch, layers=layers, **more)]


@cache
def answer(norm: str, optimizer: str, arch: str, layers: int, **more: object) -> dict[str, Any]:
    return document(*asked(norm, optimizer, arch, layers, **more))


@cache
def printed(
    norm: str, optimizer: str, arch: str, layers: int, *, columns: int = 80, has_why: bool = True, **more: object
) -> str:
    """With --why, as most of what is tested here stands behind it."""
    why = ["--why"] if has_why else []
    return told(*asked(norm, optimizer, arch, layers, **more), *why, COLUMNS=str(columns))


ENDLESS = 400
"""Columns, in which no line is broken."""

# --- how to set it


def spread(weight: torch.Tensor) -> float:
    return float(weight.detach().double().std())


def layer_of(d: int, activation: str = "relu") -> dict[str, Any]:
    """Default modules, whose linear biases are random, and biases of attention that someone has set."""
    names: dict[str, Any] = {"fc1": nn.Linear(d, 4 * d), "fc2": nn.Linear(4 * d, d)}
    names |= {name: nn.MultiheadAttention(d, 4) for name in ("attn", "cross")}
    for bias in (names["attn"].in_proj_bias, names["attn"].out_proj.bias):
        nn.init.normal_(bias)
    names |= {name: nn.LayerNorm(d) for name in ("norm1", "norm2", "norm3", "norm1b")}
    names |= {name: nn.LayerNorm(4 * d) for name in ("norm2b", "norm3b")}
    return names | {activation: getattr(nn.functional, activation)}


@pytest.mark.parametrize(("norm", "arch"), [("post", "decoder"), ("pre", "encoder"), ("sub", "encoder-decoder")])
def test_snippet_sets_the_rule_s_gains(norm: str, arch: str) -> None:
    more = {"decoder_layers": 6} if arch == "encoder-decoder" else {}
    found = answer(norm, "sgd", arch, 12, **more)
    side = found["decoder"] if more else found
    torch.manual_seed(0)
    d = 96
    names = layer_of(d) | {"heads": lambda x: x, "x": torch.randn(5, d), "memory": torch.randn(5, d), "T": 5}
    code = snippet(norm, side)
    exec("\n".join(code), names)
    assert names["x"].shape == (5, d)
    weights = {"out": names["attn"].out_proj.weight, "fc1": names["fc1"].weight, "fc2": names["fc2"].weight}
    weights |= {role: names[role] for role in ("q", "k", "v")}
    if more:
        weights |= {role: names[role] for role in ("cross_q", "cross_k", "cross_v")}
        weights["cross_out"] = names["cross"].out_proj.weight
    assert weights.keys() == side["init_gain"].keys()
    for role, weight in weights.items():
        gain = side["init_gain"][role]
        assert spread(weight) == pytest.approx(gain * math.sqrt(2 / sum(weight.shape)), rel=0.03), role
    packed = names["attn"].in_proj_weight.chunk(3)
    assert torch.equal(packed[2], names["v"]), "the packed matrix itself is what is set"
    assert any(f"{side['residual_weight']:.6g} * x" in line for line in code) == (norm == "post")


# --- how it looks


@pytest.mark.parametrize(("norm", "optimizer"), [("post", "adam"), ("pre", "sgd"), ("sub", "lamb")])
def test_the_answer_is_on_one_screen(norm: str, optimizer: str) -> None:
    """What to set, whether the update is flat, and what is left open; everything else is behind --why."""
    found, text = answer(norm, optimizer, "decoder", 16), printed(norm, optimizer, "decoder", 16, has_why=False)
    assert len(text.splitlines()) <= 24
    assert max(len(line) for line in text.splitlines() if "depthlaw advise" not in line) <= 80, "commands are one line"
    joined = " ".join(text.split())
    for role, one in found["other_roles"]["roles"].items():
        assert (f"{role} x {one['growth']:.3g}" in joined) == one["grows"]
        assert not one["grows"] or f"{one['lr_multiplier']:.3g}" in joined
    assert f"it goes x {found['other_roles']['matrices']['growth']:.3g} from 2 to 16 layers" in joined
    assert f"{found['residual_weight']:.6g} │ {found['formula']['residual_weight']}" in joined
    for gain in set((found["init_gain"] or {}).values()):
        assert f"│ {gain:.6g} │" in joined


@pytest.mark.parametrize("norm", command.NORMS)
def test_a_pasted_forward_pass_is_that_of_the_network(norm: str) -> None:
    """Of the same matrices in a network of sims, with weights unlike 1 and unlike each other."""
    d, tokens, num_heads = 32, 6, 4
    torch.manual_seed(0)
    names = layer_of(d) | {"x": torch.randn(tokens, d), "T": tokens}
    for module in names.values():
        if isinstance(module, nn.Module):
            module.double()
    start = names["x"] = names["x"].double()

    def heads(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            (x @ matrix.T).unflatten(-1, (num_heads, -1)).transpose(0, 1)
            for matrix in names["attn"].in_proj_weight.chunk(3)
        )
        scores = (q @ k.mT / math.sqrt(d / num_heads)).masked_fill(mask, -math.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1).flatten(-2)

    gains, weights = (
        dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2"), 0.8),
        {"residual_weight": 1.7, "branch_weight": 0.6},
    )
    side = {"init_gain": gains, "lr_multiplier": gains, "alternatives": [], **weights}
    exec("\n".join(snippet(norm, side, is_causal=True)), names := names | {"heads": heads})
    q, k, v = names["attn"].in_proj_weight.chunk(3)
    matrices = {"0_q": q, "0_k": k, "0_v": v, "0_out": names["attn"].out_proj.weight}
    matrices |= {"1_fc1": names["fc1"].weight, "1_fc2": names["fc2"].weight}
    shape = {"d_model": d, "num_heads": num_heads, "placement": norm, "is_causal": True, "norm_eps": 1e-5}
    model = Transformer(ModelConfig(**shape, encoder=alternating(2, **weights)), seed=0)
    with torch.no_grad():
        for name, matrix in matrices.items():
            model.get_parameter(f"_weights.encoder_{name}").copy_(matrix)
        assert float((names["x"] - model.streams(start[None])[2][0]).abs().max()) < 1e-9


# --- the tables, read back


def check_table(text: str, others: dict[str, Any]) -> None:
    """What is printed of the other roles is in the document; each learning rate undoes the growth beside it."""
    rows = dict(re.findall(r"^│ (\S.*?) +│ (x .*?)│$", text, flags=re.MULTILINE))
    for role, one in {"the rule's matrices": others["matrices"], **others["roles"]}.items():
        growth, exponent, rate = (float(cell.strip(" x")) for cell in rows[role].split("│"))
        assert (growth, exponent) == (pytest.approx(one["growth"], rel=6e-3), pytest.approx(one["exponent"], abs=6e-3))
        assert growth * rate == pytest.approx(1, rel=0.012), role
    [error] = re.findall(r"error\s+([\d.]+)%\s+at\s+most", text)
    assert float(error) / 100 == pytest.approx(others["error"], abs=6e-4)


def test_one_learning_rate_where_no_gain_holds_the_update() -> None:
    found, text = answer("sub", "lamb", "encoder", 24), printed("sub", "lamb", "encoder", 24, columns=ENDLESS)
    check_table(text, found["other_roles"])
    rate = f"{found['rate_left']['multiplier']:.3g}"
    assert f"learning-rate multiplier │ {rate} │ 24 layers beside 3 │" in " ".join(text.split())
    assert f"{rate} times the rate that suits 3 layers undoes it" in text
    assert "bias, norm_bias: left out. As published LAMB moves no parameter that is zero" in text
