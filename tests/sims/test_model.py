"""The Transformer against torch's own layers, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sims.model import (
    MATRICES,
    ModelConfig,
    SublayerConfig,
    Transformer,
    alternating,
    by_role,
    decoder_layers,
    gradients,
)

D, HEADS, RATIO, EPS = 24, 3, 2, 1e-5


def inputs(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def config(**rest: Any) -> ModelConfig:
    numbers = {"encoder": alternating(2), "d_model": D, "num_heads": HEADS, "ffn_ratio": RATIO, "norm_eps": EPS}
    return ModelConfig(**{**numbers, "has_affine": True, "has_bias": True, **rest})


def perturbed(model: Transformer) -> Transformer:
    """No parameter at a value that would hide a mistake."""
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * inputs(*parameter.shape, seed=index))
    return model


def copy_attention(target: nn.MultiheadAttention, model: Transformer, prefix: str) -> None:
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for piece, name in (("weight", ""), ("bias", "_bias")):
            rows = torch.cat([weights[f"_weights.{prefix}{role}{name}"] for role in "qkv"])
            getattr(target, f"in_proj_{piece}").copy_(rows)
            getattr(target.out_proj, piece).copy_(weights[f"_weights.{prefix}out{name}"])


def copy_rest(layer: nn.Module, model: Transformer, names: dict[str, str]) -> None:
    weights, own = dict(model.named_parameters()), dict(layer.named_parameters())
    with torch.no_grad():
        for theirs, ours in names.items():
            suffixes = {"weight": "_gain", "bias": "_bias"} if "norm" in theirs else {"weight": "", "bias": "_bias"}
            for piece, suffix in suffixes.items():
                own[f"{theirs}.{piece}"].copy_(weights[f"_weights.{ours}{suffix}"])


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_an_encoder_layer_is_torch_s(placement: str, activation: str) -> None:
    model = perturbed(Transformer(config(placement=placement, activation=activation), 1))
    layer = nn.TransformerEncoderLayer(
        D, HEADS, D * RATIO, 0.0, activation, EPS, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
    )
    copy_attention(layer.self_attn, model, "encoder_0_")
    names = {"linear1": "encoder_1_fc1", "linear2": "encoder_1_fc2"}
    copy_rest(layer, model, {**names, "norm1": f"encoder_0_{placement}", "norm2": f"encoder_1_{placement}"})
    x = inputs(2, 5, D)
    torch.testing.assert_close(model.streams(x)[2], layer(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_a_decoder_layer_is_torch_s(placement: str) -> None:
    model = perturbed(Transformer(config(placement=placement, decoder=decoder_layers(1)), 2))
    layer = nn.TransformerDecoderLayer(
        D, HEADS, D * RATIO, 0.0, "relu", EPS, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
    )
    copy_attention(layer.self_attn, model, "decoder_0_")
    copy_attention(layer.multihead_attn, model, "decoder_1_cross_")
    norms = {f"norm{index + 1}": f"decoder_{index}_{placement}" for index in range(3)}
    copy_rest(layer, model, {"linear1": "decoder_2_fc1", "linear2": "decoder_2_fc2", **norms})
    x, y = inputs(2, 5, D), inputs(2, 4, D, seed=1)
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    encoded = model.encode(x)[-1]
    torch.testing.assert_close(model.streams(x, y)[3], layer(y, encoded, tgt_mask=mask), rtol=1e-12, atol=1e-12)


def test_a_causal_model_sees_no_later_token() -> None:
    model = Transformer(config(is_causal=True), 3)
    x = inputs(1, 6, D)
    later = x.clone()
    later[:, 4:] += 1
    torch.testing.assert_close(model(x)[:, :4], model(later)[:, :4], rtol=0, atol=0)
    assert not torch.allclose(model(x)[:, 4:], model(later)[:, 4:])


@pytest.mark.parametrize("placement", ["none", "post", "pre", "sub", "peri"])
def test_every_parameter_has_its_role_and_a_gradient(placement: str) -> None:
    model = perturbed(Transformer(config(placement=placement, decoder=decoder_layers(1)), 4))
    assert set(model.roles) == {name for name, _ in model.named_parameters()}
    found = gradients(model, model(inputs(1, 5, D), inputs(1, 5, D, seed=1))[0, -1].square().sum())
    sums = by_role(model, found, lambda grad: grad.square().sum())
    assert {role for roles in MATRICES.values() for role in roles} <= set(sums)
    assert all(value > 0 for role, value in sums.items() if role not in ("k_bias", "cross_k_bias"))


def test_a_cross_attention_of_sub_has_one_norm() -> None:
    model = Transformer(config(placement="sub", decoder=decoder_layers(1)), 5)
    inner = [name for name in model.roles if "inner" in name]
    assert {name.split("_inner")[0] for name in inner} == {
        f"_weights.{name}" for name in ("encoder_0", "encoder_1", "decoder_0", "decoder_2")
    }


def test_gains_scale_xavier_and_seeds_are_kept() -> None:
    one, again, scaled = (
        Transformer(config(encoder=alternating(2, gains={"out": gain})), 6) for gain in (1.0, 1.0, 3.0)
    )
    for (name, a), (_, b), (_, c) in zip(
        one.named_parameters(), again.named_parameters(), scaled.named_parameters(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(c, (3 if name.endswith("_out") else 1) * a)
    wide = Transformer(ModelConfig(encoder=alternating(2), d_model=256), 7)
    fc1 = dict(wide.named_parameters())["_weights.encoder_1_fc1"]
    assert float(fc1.detach().var()) == pytest.approx(2 / (256 + 1024), rel=0.02)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"placement": "front"}, "placement is one of"),
        ({"activation": "rel"}, "activation is one of"),
        ({"norm_kind": "batch"}, "norm_kind is"),
        ({"num_heads": 5}, "not a multiple of num_heads"),
        ({"encoder": ()}, "at least one sublayer"),
        ({"encoder": decoder_layers(1)}, "nothing to cross-attend"),
    ],
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**change)


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(ValueError, match="no role fc3"):
        SublayerConfig(kind="ffn", gains={"fc3": 1.0})
    with pytest.raises(ValueError, match="a sublayer is one of"):
        SublayerConfig(kind="conv")
    with pytest.raises(ValueError, match="needs the decoder's input"):
        Transformer(config(decoder=decoder_layers(1)), 0)(inputs(1, 2, D))
