"""The Transformer against torch's own layers, and what it refuses."""

from __future__ import annotations

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
    torch.testing.assert_close(model(x)[:, :4], model(later)[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(x)[:, 4:], model(later)[:, 4:])


@pytest.mark.parametrize("placement", ["none", "post", "pre", "sub", "peri", "normformer"])
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
        if config.norm_kind == "rmsnorm":
            return F.rms_norm(h, shape, gain, config.norm_eps)
        return F.layer_norm(h, shape, gain, bias, config.norm_eps)

    def linear(name: str, h: torch.Tensor) -> torch.Tensor:
        return F.linear(h, weights[name], weights.get(f"{name}_bias"))

    def heads(h: torch.Tensor) -> torch.Tensor:
        return torch.stack(h.chunk(config.num_heads, -1), 1)

    def branch(name: str, kind: str, places: set[str], u: torch.Tensor, memory: torch.Tensor | None) -> torch.Tensor:
        if kind == "ffn":
            h = linear(f"{name}_fc1", u)
            phis = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "relu": F.relu, "leaky_relu": F.leaky_relu}
            if config.activation == "swiglu":
                h = F.silu(linear(f"{name}_fc1_gate", u)) * h
            elif config.activation != "identity":
                h = phis[config.activation](h)
            return linear(f"{name}_fc2", norm(f"{name}_inner", h) if "inner" in places else h)
        prefix, source = (f"{name}_cross", memory) if kind == "cross" else (name, u)
        assert source is not None
        q, k, v = (
            heads(linear(f"{prefix}_q", u)),
            heads(linear(f"{prefix}_k", source)),
            heads(linear(f"{prefix}_v", source)),
        )
        if config.has_qk_norm:
            q, k = norm(f"{name}_q_norm", q), norm(f"{name}_k_norm", k)
        is_causal = kind == "attention" and (config.is_causal or name.startswith("decoder"))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=config.attention_scale)
        if config.placement == "normformer" and config.has_affine:
            mixed = mixed * weights[f"{name}_head_scale"].reshape(1, -1, 1, 1)
        mixed = torch.cat(mixed.unbind(1), -1)
        return linear(f"{prefix}_out", norm(f"{name}_inner", mixed) if "inner" in places else mixed)

    def side(called: str, sublayers: tuple[SublayerConfig, ...], h: torch.Tensor, memory: torch.Tensor | None):
        if config.vocab_size:
            h = F.embedding(h, weights[f"{called}_embedding"])
        for index, sublayer in enumerate(sublayers):
            name, places = f"{called}_{index}", WHERE[config.placement].get(sublayer.kind, set())
            u = sublayer.input_scale * (norm(f"{name}_pre", h) if "pre" in places else h)
            out = branch(name, sublayer.kind, places, u, memory)
            out = norm(f"{name}_branch", out) if "branch" in places else out
            weight = weights[f"{name}_branch_weight"] if sublayer.trains_branch_weight else sublayer.branch_weight
            h = sublayer.residual_weight * h + weight * out
            h = norm(f"{name}_post", h) if "post" in places else h
        return h if config.placement in ("none", "post") else norm(f"{called}_final", h)

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
    "tokens": {"vocab_size": 11},
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


class _SoftmaxOverQueries(Transformer):
    def attend(self, scores_BHTS: torch.Tensor) -> torch.Tensor:
        return scores_BHTS.softmax(-2)


class _NormOverTokens(Transformer):
    def _norm(self, place: str, name: str, x_BTD: torch.Tensor) -> torch.Tensor:
        return super()._norm(place, name, x_BTD.mT).mT if place == "branch" else super()._norm(place, name, x_BTD)


class _HeadsMixedUp(Transformer):
    def _heads(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return x_BTD.unflatten(-1, (-1, self.config.num_heads)).movedim(-1, -3)


class _NoResidualWeight(Transformer):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.numbers = {name: (1.0, b, c) for name, (_, b, c) in self.numbers.items()}


class _NoNormOfKeys(Transformer):
    def _norm(self, place: str, name: str, x_BTD: torch.Tensor) -> torch.Tensor:
        return x_BTD if place == "k_norm" else super()._norm(place, name, x_BTD)


@pytest.mark.parametrize(
    "wrong", [_SoftmaxOverQueries, _NormOverTokens, _HeadsMixedUp, _NoResidualWeight, _NoNormOfKeys]
)
def test_the_second_writing_finds_a_mutant(wrong: type[Transformer]) -> None:
    rest = {**BOTH, "placement": "peri", "has_qk_norm": True, "has_affine": wrong is not _NormOverTokens}
    model = perturbed(wrong(config(**rest), 8))
    x, y = given(model)
    assert (model(x, y) - reference(model, x, y)).abs().max() > 1e-3


# ---------------------------------------------------------------- whole stacks of torch's


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["post", "pre"])
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
    with torch.no_grad():
        next(iter(decoder.parameters())).add_(0.1)
    assert not torch.allclose(model(x, y), theirs(x, y, tgt_mask=mask))


# ---------------------------------------------------------------- parameters


def test_numbers_of_roles_reach_their_parameters() -> None:
    rates = {"q": 2.0, "fc1": 3.0, "bias": 4.0, "norm_gain": 5.0, "norm_bias": 6.0, "branch_weight": 7.0}
    sublayers = tuple(
        SublayerConfig(
            kind=kind,
            branch_weight=0.5,
            trains_branch_weight=True,
            lr_multipliers={
                role: rate for role, rate in rates.items() if role not in ("q", "fc1") or role in MATRICES[kind]
            },
        )
        for kind in ("attention", "ffn")
    )
    model = Transformer(
        config(encoder=sublayers, activation="swiglu", has_qk_norm=True, num_outputs=3, vocab_size=5), 10
    )
    for name, parameter, role in model.tagged():
        assert model.lr_multipliers[name] == rates.get(role, 1.0)
        assert model.num_dims[name] == parameter.dim()
    roles = {name.removeprefix("_weights."): role for name, role in model.roles.items()}
    assert roles["encoder_1_fc1_gate"] == "fc1"
    assert roles["encoder_0_q_norm_gain"] == "norm_gain"
    assert roles["encoder_0_q_bias"] == "bias"
    assert roles["encoder_0_branch_weight"] == "branch_weight"
    weights = dict(model.named_parameters())
    assert weights["_weights.encoder_0_branch_weight"].item() == 0.5
    assert weights["_weights.head"].shape == (3, D)
    assert model.logits(model(torch.tensor([[1, 2]]))).shape == (1, 2, 3)


def test_an_untagged_parameter_is_an_error() -> None:
    model = Transformer(config(), 0)
    model.tagged()
    model.extra = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="without a role: extra"):
        model.tagged()


def test_a_name_given_twice_is_an_error() -> None:
    model = Transformer(config(), 0)
    with pytest.raises(ValueError, match="two parameters are named encoder_0_q"):
        model._add("encoder_0_q", "q", torch.zeros(2))


@pytest.mark.parametrize("role", ["q", "fc1"])
def test_each_role_has_its_own_gain_and_each_sublayer(role: str) -> None:
    kind = "attention" if role == "q" else "ffn"
    one, other = (
        Transformer(config(encoder=(SublayerConfig(kind=kind), SublayerConfig(kind=kind, gains={role: gain}))), 11)
        for gain in (1.0, 2.5)
    )
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        factor = 2.5 if name == f"_weights.encoder_1_{role}" else 1.0
        torch.testing.assert_close(b, factor * a, rtol=1e-14, atol=0)


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
