"""The Transformer against torch's own layers, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sims.model import (
    ACTIVATIONS,
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
KINDS = ("layernorm", "rmsnorm")


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


@pytest.mark.parametrize("placement", ["none", "post", "pre", "sub", "peri", "normformer"])
def test_every_parameter_has_its_role_and_a_gradient(placement: str) -> None:
    model = perturbed(Transformer(config(placement=placement, decoder=decoder_layers(1)), 4))
    assert set(model.roles) == {name for name, _ in model.named_parameters()}
    grads = gradients(model, model(inputs(1, 5, D), inputs(1, 5, D, seed=1))[0, -1].square().sum())
    sums = by_role(model, grads, lambda grad: grad.square().sum())
    assert {role for roles in MATRICES.values() for role in roles} <= set(sums)
    assert all(value > 0 for role, value in sums.items() if role not in ("k_bias", "cross_k_bias"))


def test_gains_scale_xavier_and_seeds_are_kept() -> None:
    model, again, scaled = (
        Transformer(config(encoder=alternating(2, gains={"out": gain})), 6) for gain in (1.0, 1.0, 3.0)
    )
    for (name, a), (_, b), (_, c) in zip(
        model.named_parameters(), again.named_parameters(), scaled.named_parameters(), strict=True
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
        ({"num_kv_heads": 2}, "3 heads of queries do not divide into 2 of keys"),
        ({"head_size": 5, "rotary_base": 100.0}, "a head of 5 cannot be halved"),
    ],
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**change)


# ---------------------------------------------------------------- against a second writing of the same model

WHERE = {
    "none": {},
    "post": {"attention": {"post"}, "cross": {"post"}, "ffn": {"post"}},
    "pre": {"attention": {"pre"}, "cross": {"pre"}, "ffn": {"pre"}},
    "sub": {"attention": {"pre", "inner"}, "cross": {"pre"}, "ffn": {"pre", "inner"}},
    "peri": {"attention": {"pre", "branch"}, "cross": {"pre", "branch"}, "ffn": {"pre", "branch"}},
    "normformer": {"attention": {"pre", "branch"}, "cross": {"pre", "branch"}, "ffn": {"pre", "inner"}},
}


def reference(model: Transformer, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    """The last hidden state, with torch's own norms and attention, from the parameters' names alone."""
    config, weights = model.config, {name.removeprefix("_weights."): p for name, p in model.named_parameters()}

    def norm(name: str, h: torch.Tensor) -> torch.Tensor:
        shape, gain, bias = (h.shape[-1],), weights.get(f"{name}_gain"), weights.get(f"{name}_bias")
        assert (gain is not None) == config.has_affine
        if config.norm_kind in ("dyt", "derf"):
            function = {"dyt": torch.tanh, "derf": torch.special.erf}[config.norm_kind]
            return function(h * config.norm_scale) * (1 if gain is None else gain) + (0 if bias is None else bias)
        if config.norm_kind == "rmsnorm":
            return F.rms_norm(h, shape, gain, config.norm_eps)
        return F.layer_norm(h, shape, gain, bias, config.norm_eps)

    def linear(name: str, h: torch.Tensor) -> torch.Tensor:
        return F.linear(h, weights[name], weights.get(f"{name}_bias"))

    def heads(h: torch.Tensor) -> torch.Tensor:
        return torch.stack(h.split(config.head_size or D // config.num_heads, -1), 1)

    def turned(h: torch.Tensor) -> torch.Tensor:
        """Rotary positions, as complex numbers."""
        pairs = torch.complex(*h.chunk(2, -1))
        num = max(1, round(pairs.shape[-1] * config.rotary_share))
        angles = torch.arange(h.shape[-2])[:, None] / config.rotary_base ** (torch.arange(num).double() / num)
        turns = F.pad(angles, (0, pairs.shape[-1] - num))
        pairs = pairs * torch.polar(torch.ones_like(turns), turns)
        return torch.cat([pairs.real, pairs.imag], -1)

    def branch(
        name: str, sublayer: SublayerConfig, places: frozenset[str], u: torch.Tensor, memory: torch.Tensor | None
    ) -> torch.Tensor:
        kind = sublayer.kind
        if kind == "parallel":
            both = (replace(sublayer, kind="attention", gains={}), SublayerConfig(kind="ffn"))
            return torch.stack([branch(name, one, places, u, memory) for one in both]).sum(0)
        if kind == "ffn":
            h = linear(f"{name}_fc1", u)
            phis = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "relu": F.relu, "leaky_relu": F.leaky_relu}
            phis |= {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu, "identity": lambda x: x}
            h = phis[config.activation](h)
            h = h * linear(f"{name}_fc3", u) if config.activation.endswith("glu") else h
            return linear(f"{name}_fc2", norm(f"{name}_inner", h) if "inner" in places else h)
        prefix, source = (f"{name}_cross", memory) if kind == "cross" else (name, u)
        assert source is not None
        found = []
        for role, of in (("q", u), ("k", source), ("v", source)):
            h = linear(f"{prefix}_{role}", of)
            if role == "v" and kind == "attention":
                first = first_values.setdefault(name.partition("_")[0], h)
                if h is not first:
                    h = sublayer.value_weight * h + sublayer.first_value_weight * first
            has_norm = role in places or (config.has_qk_norm and role != "v")
            h = heads(norm(f"{name}_{role}_norm", h) if has_norm and config.has_wide_norms else h)
            found.append(norm(f"{name}_{role}_norm", h) if has_norm and not config.has_wide_norms else h)
        q, k, v = found
        q, k = (turned(q), turned(k)) if config.rotary_base and kind != "cross" else (q, k)
        is_causal = kind == "attention" and (config.is_causal or name.startswith("decoder"))
        if config.logit_softcap:
            assert not is_causal
            logits = torch.einsum("bhtk,bhsk->bhts", q, k) / q.shape[-1] ** 0.5
            mixed = (torch.tanh(logits / config.logit_softcap) * config.logit_softcap).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(
                q, k, v, is_causal=is_causal, scale=config.attention_scale, enable_gqa=True
            )
        if config.placement == "normformer" and config.has_affine:
            mixed = mixed * weights[f"{name}_head_scale"].reshape(1, -1, 1, 1)
        mixed = torch.cat(mixed.unbind(1), -1)
        return linear(f"{prefix}_out", norm(f"{name}_inner", mixed) if "inner" in places else mixed)

    first_values: dict[str, torch.Tensor] = {}

    def side(called: str, sublayers: tuple[SublayerConfig, ...], h: torch.Tensor, memory: torch.Tensor | None):
        if config.vocab_size:
            h = F.embedding(h, weights[f"{called}_embedding"])
        h = first = h * config.embedding_multiplier
        for index, sublayer in enumerate(sublayers):
            name, kind = f"{called}_{index}", sublayer.kind.replace("parallel", "attention")
            places = frozenset(WHERE[config.placement].get(kind, ()))
            places = places if sublayer.norms is None else sublayer.norms
            u = sublayer.input_scale * (norm(f"{name}_pre", h) if "pre" in places else h)
            out = branch(name, sublayer, places, u, memory)
            out = norm(f"{name}_branch", out) if "branch" in places else out
            weight = weights.get(f"{name}_layer_scale", weights.get(f"{name}_branch_weight", sublayer.branch_weight))
            h = sublayer.residual_weight * h + weight * out + sublayer.input_weight * first
            h = norm(f"{name}_post", h) if "post" in places else h
        has_final = config.placement not in ("none", "post") if config.has_final is None else config.has_final
        return norm(f"{called}_final", h) if has_final else h

    encoded = side("encoder", config.encoder, x, None)
    if not config.decoder:
        return encoded
    assert y is not None
    return side("decoder", config.decoder, y, encoded)


def varied(*kinds: str, **rest: Any) -> tuple[SublayerConfig, ...]:
    """No two sublayers alike, and no number 1."""
    return tuple(
        SublayerConfig(
            kind=kind,
            residual_weight=0.6 + 0.3 * index,
            branch_weight=1.7 - 0.2 * index,
            input_scale=0.8 + 0.1 * index,
            gains={role: 1.2 + 0.1 * index + 0.2 * number for number, role in enumerate(MATRICES[kind])},
            **rest,
        )
        for index, kind in enumerate(kinds)
    )


AGAIN = {"input_weight": 0.3, "value_weight": 0.7, "first_value_weight": 0.6}
BOTH = {"encoder": varied("attention", "ffn"), "decoder": varied("attention", "cross", "ffn")}
CASES: dict[str, dict[str, Any]] = {
    **{f"{placement}, {kind}": {"placement": placement, "norm_kind": kind} for placement in WHERE for kind in KINDS},
    **{f"{name}, plain": {"placement": name, "has_affine": False, "has_bias": False} for name in WHERE},
    **{activation: {"activation": activation} for activation in ACTIVATIONS},
    "swiglu in sub": {"activation": "swiglu", "placement": "sub"},
    "qk-norm": {"has_qk_norm": True},
    "qk-norm of rmsnorm without affine": {"has_qk_norm": True, "norm_kind": "rmsnorm", "has_affine": False},
    "qk-norm in normformer": {"has_qk_norm": True, "placement": "normformer"},
    "narrow": {"ffn_width": 7, "activation": "gelu"},
    "scale": {"attention_scale": 0.9},
    "causal": {"is_causal": True},
    "no eps": {"norm_eps": 0.0},
    "tokens": {"vocab_size": 11, "embedding_std": 0.3, "embedding_multiplier": 1.7, "head_gain": 0.4},
    "grouped heads": {"num_kv_heads": 1},
    "wide heads": {"head_size": 10, "num_heads": 4, "num_kv_heads": 2},
    "rotary": {"rotary_base": 50.0},
    "rotary in part": {"rotary_base": 50.0, "rotary_share": 0.5, "is_causal": True, "has_qk_norm": True},
    "capped logits": {"logit_softcap": 0.4, "decoder": ()},
    "dyt": {"norm_kind": "dyt", "placement": "pre"},
    "derf": {"norm_kind": "derf", "placement": "post", "norm_scale": 0.8},
    "side by side": {"encoder": varied("parallel", "parallel"), "placement": "pre", "activation": "swiglu"},
    "norms of one's own": {
        "placement": "none",
        "has_final": True,
        "has_wide_norms": True,
        "encoder": varied("attention", norms=frozenset({"q", "k", "v", "post"}))
        + varied("ffn", norms=frozenset({"pre", "post"})),
    },
    "x_0 and the first values again": {
        "encoder": varied("attention", "parallel", "attention", **AGAIN) + varied("ffn", input_weight=0.4),
        "decoder": varied("attention", **AGAIN) + varied("cross", "ffn", input_weight=0.4) + varied("attention"),
    },
    "layer scale": {
        "encoder": varied("attention", "ffn", has_layer_scale=True),
        "decoder": varied("attention", "cross", "ffn", has_layer_scale=True),
    },
    "trained branch weights": {
        "encoder": varied("attention", "ffn", trains_branch_weight=True),
        "decoder": varied("attention", "cross", "ffn", trains_branch_weight=True),
    },
}


def given(model: Transformer) -> tuple[torch.Tensor, torch.Tensor]:
    if size := model.config.vocab_size:
        return torch.arange(10).reshape(2, 5) % size, torch.arange(8).reshape(2, 4) * 3 % size
    return inputs(2, 5, D), inputs(2, 4, D, seed=1)


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_its_second_writing(case: str) -> None:
    model = perturbed(Transformer(config(**{**BOTH, **CASES[case]}), 8))
    model.tagged()
    x, y = given(model)
    torch.testing.assert_close(model(x, y), reference(model, x, y), rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- whole stacks of torch's


@pytest.mark.parametrize(("placement", "activation"), [("post", "relu"), ("pre", "gelu")])
def test_a_whole_encoder_decoder_is_torch_s(placement: str, activation: str) -> None:
    sides = {"encoder": alternating(6), "decoder": decoder_layers(2)}
    model = perturbed(Transformer(config(placement=placement, activation=activation, **sides), 9))
    is_pre = placement == "pre"
    shared: dict[str, Any] = {"batch_first": True, "norm_first": is_pre, "dtype": torch.float64}
    ends = [nn.LayerNorm(D, EPS, dtype=torch.float64) if is_pre else None for _ in range(2)]
    numbers = (D, HEADS, D * RATIO, 0.0, activation, EPS)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*numbers, **shared), 3, norm=ends[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*numbers, **shared), 2, norm=ends[1])
    # It draws all weights anew, so it is made before they are copied.
    theirs = nn.Transformer(D, HEADS, custom_encoder=encoder, custom_decoder=decoder, **shared)
    for index, layer in enumerate(encoder.layers):
        assert isinstance(layer, nn.TransformerEncoderLayer)
        first, second = (f"encoder_{2 * index + more}" for more in range(2))
        copy_attention(layer.self_attn, model, f"{first}_")
        norms = {"norm1": f"{first}_{placement}", "norm2": f"{second}_{placement}"}
        copy_rest(layer, model, {"linear1": f"{second}_fc1", "linear2": f"{second}_fc2", **norms})
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, nn.TransformerDecoderLayer)
        first, second, third = (f"decoder_{3 * index + more}" for more in range(3))
        copy_attention(layer.self_attn, model, f"{first}_")
        copy_attention(layer.multihead_attn, model, f"{second}_cross_")
        norms = {f"norm{more + 1}": f"{name}_{placement}" for more, name in enumerate((first, second, third))}
        copy_rest(layer, model, {"linear1": f"{third}_fc1", "linear2": f"{third}_fc2", **norms})
    for stack, side in ((encoder, "encoder"), (decoder, "decoder")) if is_pre else ():
        copy_rest(stack, model, {"norm": f"{side}_final"})
    x, y = inputs(2, 5, D), inputs(2, 4, D, seed=1)
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    torch.testing.assert_close(model(x, y), theirs(x, y, tgt_mask=mask), rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- parameters


# ---------------------------------------------------------------- recomputation


def saved_bytes(model: Transformer, *given: torch.Tensor) -> tuple[int, torch.Tensor, dict[str, torch.Tensor]]:
    """What the graph of one forward pass holds besides the parameters; the output, and the gradients."""
    own = {parameter.data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(*given)
    held = sum(seen.values())
    return held, out.detach(), gradients(model, out.square().sum())


@pytest.mark.parametrize("placement", ["post", "sub"])
def test_recomputation_changes_nothing_but_memory(placement: str) -> None:
    rest = {**BOTH, "placement": placement, "has_qk_norm": True}
    x, y = inputs(2, 5, D), inputs(2, 4, D, seed=1)
    kept, again = (saved_bytes(perturbed(Transformer(config(**rest, recomputes=r), 12)), x, y) for r in (False, True))
    torch.testing.assert_close(again[1], kept[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(again[2], kept[2], rtol=1e-12, atol=1e-12)
    # Of each sublayer only its inputs, the stream and in cross-attention the encoder's output, stay.
    streams = (3 * x.numel() + 4 * y.numel()) * x.element_size()
    assert again[0] <= 2 * streams
    assert kept[0] > 5 * streams
