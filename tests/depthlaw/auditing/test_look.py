"""What the audit reads of real modules, of code in other styles, and of modules that it must not misread."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
import x_transformers
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.auditing import builders
from depthlaw.auditing.inputs import given, guess
from depthlaw.auditing.reading.look import Built, Sublayer, Weight, look
from depthlaw.paper_checks.experiments.bench import standing_in
from depthlaw.sims.model import (
    PLACEMENTS,
    ModelConfig,
    SublayerConfig,
    Transformer,
    alternating,
    decoder_layers,
    side_by_side,
)
from depthlaw.sims.pieces import Piece
from tests.often import often

pytestmark = pytest.mark.filterwarnings("ignore")

D, HEADS, F, V = 16, 2, 32, 50
QKV_OUT = {"q", "k", "v", "out"}


def read(module: nn.Module, data: Any = None) -> Built:
    return look(module, guess(module) if data is None else given(data, module))


def line(sublayer: Sublayer) -> str:
    """Kind, weights where they are not 1, and norms, on one line."""
    numbers = [sublayer.residual_weight, sublayer.branch_weight]
    weights = [f"{name}={number:.5g}" for name, number in zip("ab", numbers, strict=True) if number != 1]
    return " ".join([sublayer.kind, *weights, *sorted(sublayer.norms)])


def block(built: Built, side: str = "encoder") -> str:
    """The sublayers of one block of a side, all of whose blocks are alike."""
    by_layer: dict[int, list[str]] = {}
    for sublayer in built.sides[side]:
        by_layer.setdefault(sublayer.layer, []).append(line(sublayer))
    assert list(by_layer) == list(range(1, built.num_layers(side) + 1))
    assert all(lines == by_layer[1] for lines in by_layer.values()), by_layer
    return ", ".join(by_layer[1])


def shapes(sublayer: Sublayer) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(weight.role, weight.name, weight.shape) for weight in sublayer.weights]


def assert_complete(built: Built) -> None:
    """Every number is there, and every parameter that the pass used has one role."""
    for sublayer in built.sublayers:
        numbers = (sublayer.input_rms, sublayer.second_moment, sublayer.branch_rms)
        assert all(map(math.isfinite, numbers)), sublayer
        assert sublayer.weights and all(weight.layer == sublayer.layer for weight in sublayer.weights)
    roles = {weight.name for weight in built.weights} | set(built.others)
    assert roles == set(built.flow.parameters)


# ---------------------------------------------------------------- real clients

SMALL = {
    **{"hidden_size": D, "intermediate_size": F, "num_hidden_layers": 2, "num_attention_heads": HEADS},
    **{"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
GROUPED = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}
GPT2 = {"n_embd": D, "n_head": HEADS, "n_layer": 2, "vocab_size": V, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"d_model": D, "d_kv": 8, "d_ff": F, "num_layers": 2, "num_heads": HEADS, "vocab_size": V}
PAIR = {
    **{"d_model": D, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": F, "decoder_ffn_dim": F},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "vocab_size": V, "pad_token_id": 0},
    **{"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
}
PRE, POST = "attention pre, ffn pre", "attention post, ffn post"
HUGGING_FACE: dict[str, tuple[str, dict[str, Any], str]] = {
    "GPT2LMHeadModel": ("GPT2", GPT2, PRE),
    "LlamaForCausalLM": ("Llama", GROUPED, PRE),
    "MistralModel": ("Mistral", GROUPED, PRE),
    "OPTModel": ("OPT", {**SMALL, "ffn_dim": F, "word_embed_proj_dim": 8, "do_layer_norm_before": False}, POST),
    "BloomModel": ("Bloom", {"hidden_size": D, "n_layer": 2, "n_head": HEADS, "vocab_size": V}, PRE),
    "MptModel": ("Mpt", {"d_model": D, "n_heads": HEADS, "n_layers": 2, "vocab_size": V, "max_seq_len": 16}, PRE),
    "FalconModel": ("Falcon", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 1}, "parallel pre"),
    "GPTNeoXModel": ("GPTNeoX", SMALL, "parallel pre"),
    "GPTJModel": ("GPTJ", {**GPT2, "rotary_dim": 4}, "parallel pre"),
    "CohereModel": ("Cohere", GROUPED, "parallel pre"),
    "Phi3Model": ("Phi3", GROUPED, PRE),
    "Qwen3Model": ("Qwen3", GROUPED, "attention k pre q, ffn pre"),
    "Gemma2Model": ("Gemma2", GROUPED, "attention branch pre, ffn branch pre"),
    "Olmo2Model": ("Olmo2", GROUPED, "attention branch k q, ffn branch"),
    "GraniteModel": ("Granite", {**GROUPED, "residual_multiplier": 0.22}, "attention b=0.22 pre, ffn b=0.22 pre"),
    "MixtralModel": ("Mixtral", {**GROUPED, "num_local_experts": 4}, PRE),
    "BertModel": ("Bert", SMALL, POST),
    "AlbertModel": ("Albert", {**SMALL, "embedding_size": 8}, POST),
    "DebertaV2Model": ("DebertaV2", {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, POST),
    "ViTModel": ("ViT", IMAGE, PRE),
    "BeitModel": ("Beit", IMAGE, "attention b=0.1 pre, ffn b=0.1 pre"),
    "MambaModel": ("Mamba", {**SMALL, "state_size": 4, "time_step_rank": 4}, "other pre"),
}
PAIRS: dict[str, tuple[str, dict[str, Any], str]] = {
    "T5Model": ("T5", T5, "pre"),
    "BartModel": ("Bart", PAIR, "post"),
    "PegasusModel": ("Pegasus", PAIR, "pre"),
    "WhisperModel": ("Whisper", {**PAIR, "num_mel_bins": 8, "max_source_positions": 16}, "pre"),
}


def hugging_face(name: str, config: str, **numbers: Any) -> Any:
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, f"{config}Config")(**numbers))


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_hugging_face(name: str) -> None:
    config, numbers, expected = HUGGING_FACE[name]
    built = read(hugging_face(name, config, **numbers))
    assert block(built) == expected
    assert built.num_layers("encoder") == 2 and built.d_model == D
    assert bool(built.unread) == (config == "Mamba")
    assert_complete(built)
    is_causal = config not in ("Bert", "Albert", "DebertaV2", "ViT", "Beit")
    for sublayer in built.sublayers:
        if sublayer.kind in ("attention", "parallel"):
            assert {weight.role for weight in sublayer.weights} >= QKV_OUT
            assert (sublayer.num_heads, sublayer.is_causal) == (numbers.get("num_attention_heads", HEADS), is_causal)
            assert sublayer.num_kv_heads == numbers.get("num_key_value_heads", numbers.get("num_kv_heads", HEADS))
            assert sublayer.head_size == D // (sublayer.num_heads or 1)


@pytest.mark.parametrize("name", PAIRS)
def test_an_encoder_decoder_of_hugging_face(name: str) -> None:
    config, numbers, place = PAIRS[name]
    built = read(hugging_face(name, config, **numbers))
    assert block(built) == f"attention {place}, ffn {place}"
    assert block(built, "decoder") == f"attention {place}, cross {place}, ffn {place}"
    assert built.final == {"encoder": place == "pre", "decoder": place == "pre"} and not built.unread
    assert {sub.kind: sub.is_causal for sub in built.sides["decoder"]} == {
        "attention": True,
        "cross": False,
        "ffn": None,
    }
    assert {w.role for w in built.sides["decoder"][1].weights} == {f"cross_{role}" for role in QKV_OUT}
    assert_complete(built)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5Model", "BertModel"])
def test_the_written_out_attention_is_read_as_the_fused_one(name: str) -> None:
    config, numbers, _ = (HUGGING_FACE | PAIRS)[name]
    eager, fused = (read(hugging_face(name, config, **numbers, attn_implementation=kind)) for kind in ("eager", "sdpa"))
    for one, other in zip(eager.sublayers, fused.sublayers, strict=True):
        assert line(one) == line(other)
        assert (one.num_heads, one.num_kv_heads, one.is_causal) == (
            other.num_heads,
            other.num_kv_heads,
            other.is_causal,
        )
        assert shapes(one) == shapes(other)


def test_experts_of_one_parameter_are_one_weight_of_each_role() -> None:
    built = read(hugging_face("MixtralModel", "Mixtral", **HUGGING_FACE["MixtralModel"][1]))
    shapes = {weight.role: weight.shape for weight in built.sublayers[1].weights}
    assert shapes == {"fc1": (4 * F, D), "fc3": (4 * F, D), "fc2": (4 * D, F)}
    assert not built.unread


class Experts(nn.Module):
    """Three experts, whose results are added up by a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, F), nn.GELU(), nn.Linear(F, D)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        y = x
        for number, expert in enumerate(self.experts):
            y = y + weights[..., number : number + 1] * expert(functional.rms_norm(x, (D,)))
        return y


def test_experts_in_a_loop_are_one_sublayer() -> None:
    built = read(nn.Sequential(Experts(), Experts()))
    assert [line(sub) for sub in built.sublayers] == ["ffn pre", "ffn pre"]
    for sublayer in built.sublayers:
        assert [weight.expert for weight in sublayer.roles["fc2"]] == [0, 1, 2]
        assert {(weight.role, weight.shape) for weight in sublayer.weights} == {("fc1", (F, D)), ("fc2", (D, F))}


class Sliced(nn.Module):
    """Experts of one parameter, each of which multiplies its own tokens, of which the last has none."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(size) * 0.1) for size in ((3, D, F), (3, F, D)))

    def forward(self, x: Tensor) -> Tensor:
        tokens = functional.rms_norm(x, (D,)).flatten(0, -2)
        parts = tokens.split((len(tokens) // 2, len(tokens) - len(tokens) // 2, 0))
        inner = [functional.gelu(part @ up) for part, up in zip(parts, self.up, strict=True)]
        return x + torch.cat([part @ down for part, down in zip(inner, self.down, strict=True)]).view_as(x)


def test_an_expert_to_which_no_token_goes_is_read_as_the_others() -> None:
    built = read(nn.Sequential(Sliced(), Sliced()))
    assert [line(sub) for sub in built.sublayers] == ["ffn pre", "ffn pre"]
    assert {(weight.role, weight.shape) for weight in built.weights} == {("fc1", (3 * F, D)), ("fc2", (3 * D, F))}
    assert built.has_experts and not built.unread


def test_what_is_tied_shared_or_not_used_is_told() -> None:
    gpt2 = read(hugging_face("GPT2LMHeadModel", "GPT2", **GPT2))
    assert gpt2.tied == ["transformer.wte.weight"]
    assert gpt2.others["transformer.wpe.weight"] == "positions"
    assert gpt2.biases["transformer.h.0.attn.c_attn.bias"] == ("q", "k", "v")
    albert = read(hugging_face("AlbertModel", "Albert", **HUGGING_FACE["AlbertModel"][1]))
    assert len(albert.shared) == 6 and albert.num_layers("encoder") == 2
    assert albert.unused == ["pooler.weight", "pooler.bias"]


@pytest.fixture(scope="module")
def torchscale() -> Iterator[Callable[[str], ModuleType]]:
    """Its modules, with stand-ins for what it imports and does not call."""
    with standing_in():
        yield lambda name: import_module(f"torchscale.architecture.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchscale"]:
        del sys.modules[name]


def torchscale_pair(
    code: Callable[[str], ModuleType], num_layers: int, num_decoder_layers: int, **rest: Any
) -> nn.Module:
    numbers = {"vocab_size": V, "encoder_layers": num_layers, "decoder_layers": num_decoder_layers, **rest}
    for side in ("encoder", "decoder"):
        numbers |= {f"{side}_embed_dim": D, f"{side}_attention_heads": HEADS, f"{side}_ffn_embed_dim": F}
    config = code("config").EncoderDecoderConfig(**numbers)
    tables = {f"{side}_embed_tokens": nn.Embedding(V, D) for side in ("encoder", "decoder")}
    return code("encoder_decoder").EncoderDecoder(config, **tables)


def test_torchscale_deepnorm(torchscale: Callable[[str], ModuleType]) -> None:
    n, m = 3, 2
    built = read(torchscale_pair(torchscale, n, m, deepnorm=True))
    alpha, beta = f"a={0.81 * (n**4 * m) ** (1 / 16):.5g}", f"a={(3 * m) ** 0.25:.5g}"
    assert block(built) == f"attention {alpha} post, ffn {alpha} post"
    assert block(built, "decoder") == f"attention {beta} post, cross {beta} post, ffn {beta} post"
    assert built.final == {"encoder": False, "decoder": False}
    assert_complete(built)


def test_torchscale_sub_ln(torchscale: Callable[[str], ModuleType]) -> None:
    built = read(torchscale_pair(torchscale, 2, 2, subln=True))
    assert block(built) == "attention inner pre, ffn inner pre"
    assert block(built, "decoder") == "attention inner pre, cross pre, ffn inner pre"
    assert built.final == {"encoder": True, "decoder": True}


X_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "pre": ({}, PRE),
    "post": ({"pre_norm": False}, POST),
    "sandwich": ({"sandwich_norm": True}, "attention branch pre, ffn branch pre"),
    "qk norm": ({"attn_qk_norm": True}, "attention k pre q, ffn pre"),
    "ffn norm": ({"ff_post_act_ln": True}, "attention pre, ffn inner pre"),
    "macaron": ({"macaron": True}, "ffn b=0.5 pre, attention pre, ffn b=0.5 pre"),
    "residual": ({"scale_residual": True, "scale_residual_constant": 2.0}, "attention a=2 pre, ffn a=2 pre"),
    "layerscale": ({"use_layerscale": True, "layerscale_init_value": 0.5}, "attention b=0.5 pre, ffn b=0.5 pre"),
    "rms": ({"use_rmsnorm": True}, PRE),
    "simple": ({"use_simple_rmsnorm": True}, PRE),
    "dyt": ({"use_dynamic_tanh": True}, PRE),
    "derf": ({"use_derf": True}, PRE),
    "values": ({"add_value_residual": True}, PRE),
    "logits": ({"residual_attn": True}, PRE),
}


@pytest.mark.parametrize("name", X_OPTIONS)
def test_x_transformers(name: str) -> None:
    options, expected = X_OPTIONS[name]
    layers = x_transformers.Decoder(dim=D, depth=2, heads=HEADS, attn_dim_head=8, **options)
    built = read(x_transformers.TransformerWrapper(num_tokens=V, max_seq_len=16, attn_layers=layers))
    assert block(built) == expected
    assert built.final == {"encoder": name != "post"}
    assert built.norm_kind == {"rms": "rmsnorm", "simple": "rmsnorm", "dyt": "dyt", "derf": "derf"}.get(
        name, "layernorm"
    )
    assert bool(built.long_skips) == (name in ("values", "logits"))
    assert_complete(built)


TORCH: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "encoder": (lambda: torch_encoder(False), POST, ""),
    "encoder, norm first": (lambda: torch_encoder(True), PRE, ""),
    "transformer": (lambda: nn.Transformer(D, HEADS, 2, 2, F, 0.0), POST, "attention post, cross post, ffn post"),
    "decoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(D, HEADS, F, 0.0), 2),
        "",
        "attention post, cross post, ffn post",
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    build, encoder, decoder = TORCH[name]
    built = read(build())
    assert {side: block(built, side) for side in built.sides} == {
        side: lines for side, lines in (("encoder", encoder), ("decoder", decoder)) if lines
    }
    assert {weight.shape for weight in built.weights} == {(D, D), (F, D), (D, F)}
    assert not built.unread and all(sub.num_heads in (HEADS, None) for sub in built.sublayers)
    assert all(built.final[side] == (name == "transformer") for side in built.final)  # behind the last post norm, too
    assert_complete(built)


# ---------------------------------------------------------------- the project's own model


class InTorchsGraph(Transformer):
    """Ours without its own backward pass, in which a sublayer is one operation."""

    is_traced = False

    def _do(self, piece: Piece, *inputs: Tensor | None) -> Any:
        outputs, _ = piece.forward(inputs)
        return outputs


def ours(encoder: tuple[SublayerConfig, ...], **numbers: Any) -> Built:
    return read(InTorchsGraph(ModelConfig(encoder=encoder, **{"d_model": D, "num_heads": HEADS, **numbers}), seed=0))


@pytest.mark.parametrize(
    ("placement", "norm_kind"),
    [*product(PLACEMENTS, ["layernorm", "rmsnorm"]), *product(["pre", "post"], ["dyt", "derf"])],
)
def test_placements_of_our_model(placement: str, norm_kind: str) -> None:
    numbers = {"placement": placement, "has_affine": True, "norm_kind": norm_kind}
    built = ours(alternating(4, residual_weight=1.3, branch_weight=0.7), **numbers)
    model = ModelConfig(encoder=alternating(4), **numbers)
    for sublayer, config in zip(built.sublayers, model.encoder, strict=True):
        assert sublayer.norms == model.places(config) and sublayer.kind == config.kind
        assert (sublayer.residual_weight, sublayer.branch_weight) == (1.3, 0.7)
    assert built.final == {"encoder": model.ends_in_norm}
    assert built.norm_kind == (None if placement == "none" else norm_kind)


def test_keel_has_both_norms() -> None:
    built = ours(tuple(replace(sub, norms=frozenset({"pre", "post"})) for sub in alternating(4, residual_weight=4.0)))
    assert block(built) == "attention a=4 post pre, ffn a=4 post pre" and built.final == {"encoder": False}


def test_trained_branch_weights() -> None:
    zero = ours(alternating(4, trains_branch_weight=True, branch_weight=0.0), placement="none")
    assert {(sub.trained, sub.branch_weight) for sub in zero.sublayers} == {("scalar", 0.0)}
    assert set(zero.others.values()) == {"branch_weight"}
    scaled = ours(alternating(4, has_layer_scale=True, branch_weight=0.01), placement="peri", has_affine=True)
    assert {(sub.trained, round(sub.branch_weight, 9)) for sub in scaled.sublayers} == {("vector", 0.01)}
    assert sum(role == "layer_scale" for role in scaled.others.values()) == 4


def test_a_constant_on_the_branch_s_input_is_in_its_size() -> None:
    scales = [index**-0.5 for index in range(1, 5)]
    built = ours(tuple(SublayerConfig(kind="ffn", input_scale=scale) for scale in scales), placement="pre")
    assert [sub.input_rms for sub in built.sublayers] == pytest.approx(scales)


def test_parallel_gated_grouped_rotary() -> None:
    numbers = {"activation": "swiglu", "is_causal": True, "num_kv_heads": 1, "rotary_base": 100.0}
    built = ours(side_by_side(alternating(4)), placement="pre", has_bias=True, has_qk_norm=True, **numbers)
    assert block(built) == "parallel k pre q"
    first = built.sublayers[0]
    assert (first.activation, first.num_heads, first.num_kv_heads, first.is_causal) == ("swiglu", 2, 1, True)
    assert set(first.roles) == {"q", "k", "v", "out", "fc1", "fc2", "fc3"}
    assert len(built.biases) == 14
    assert all(name.endswith(f"_{roles[0]}_bias") and len(roles) == 1 for name, roles in built.biases.items())


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_skips_across_layers_are_followed_and_told(placement: str) -> None:
    first = ours(alternating(6, input_weight=0.3), placement=placement)
    assert first.long_skips == ["encoder: earlier values of the stream are added to later ones"]
    layers = alternating(6, residual_weight=0.9)
    mixed = [
        replace(sub, value_weight=0.5, first_value_weight=0.5) if sub.kind == "attention" else sub for sub in layers
    ]
    values = ours(tuple(mixed), placement=placement)
    assert values.long_skips == ["encoder: attentions are given values or logits of earlier ones"]
    assert block(first) == f"attention {placement}, ffn {placement}"
    assert block(values) == f"attention a=0.9 {placement}, ffn a=0.9 {placement}"
    assert not first.unread and not values.unread
    assert len(first.sublayers) == len(values.sublayers) == 6


def test_a_second_stream_is_told() -> None:
    built = ours(alternating(6), placement="post", has_second_stream=True)
    assert block(built) == POST and len(built.sublayers) == 6
    assert built.long_skips == ["encoder: a second stream is added at the end"]


def test_our_encoder_decoder() -> None:
    numbers = {"decoder": decoder_layers(2, residual_weight=2.0), "placement": "post", "vocab_size": V}
    built = ours(alternating(4, branch_weight=0.5), **numbers)
    assert block(built) == "attention b=0.5 post, ffn b=0.5 post"
    assert block(built, "decoder") == "attention a=2 post, cross a=2 post, ffn a=2 post"
    assert set(built.others.values()) == {"embedding"}


# ---------------------------------------------------------------- code in other styles


class Written(nn.Module):
    """A model without modules: its parameters are a list, a block is a function of it."""

    def __init__(self, block: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]], num_layers: int = 3) -> None:
        super().__init__()
        self.block = block
        generator = torch.Generator().manual_seed(1)
        sizes = [shape for _ in range(num_layers) for shape in shapes]
        self.p = nn.ParameterList(torch.randn(shape, generator=generator) / 4 for shape in sizes)
        self.q = nn.Parameter(torch.randn((V, D), generator=generator))
        self.num_shapes = len(shapes)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.q[idx]
        for layer in range(0, len(self.p), self.num_shapes):
            weights = list(self.p)[layer : layer + self.num_shapes]
            x = self.block(x, *weights, layer=layer // self.num_shapes)
        return functional.layer_norm(x, (D,)) @ self.q.T


def causal(logits: Tensor) -> Tensor:
    size = logits.shape[-1]
    return logits.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), -math.inf).softmax(-1)


def rms(x: Tensor) -> Tensor:
    return x * (x * x).mean(-1, keepdim=True).add(1e-6).pow(-0.5)


def interleaved(x: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor, **_: Any) -> Tensor:
    """Queries, keys and values of each head in turn, keys times queries, weights used as x W, gates and values in turn,
    sums in place."""
    batch, tokens = x.shape[:2]
    q, k, v = (rms(x) @ qkv).view(batch, tokens, HEADS, 3, 8).unbind(3)
    logits = (k.transpose(1, 2) @ q.permute(0, 2, 3, 1)).mT / 8**0.5
    x = x.clone()
    x += torch.einsum("bhts,bshd->bthd", causal(logits), v).reshape(batch, tokens, D) @ out * 0.5
    hidden = torch.einsum("btd,df->btf", rms(x), up)
    x += (functional.silu(hidden[..., ::2]) * hidden[..., 1::2]) @ down * 0.5
    return x


def time_first(x: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, up: Tensor, down: Tensor, **_: Any) -> Tensor:
    """Tokens before batch, one tensor of heads each, a gelu that is written out, the sum halved behind it."""
    h = functional.normalize(x.transpose(0, 1), dim=-1) * D**0.5
    heads = [torch.einsum("tbd,hdk->bhtk", h, part) for part in (q, k, v)]
    attended = torch.einsum("bhts,bhsk->tbhk", causal(heads[0] @ heads[1].mT), heads[2])
    x = (x + torch.einsum("tbhk,hkd->tbd", attended, out).transpose(0, 1)) * 0.5**0.5
    u = rms(x) @ up.T
    gelu = 0.5 * u * (1 + torch.tanh((2 / math.pi) ** 0.5 * (u + 0.044715 * u**3)))
    return torch.add(x, gelu @ down.T) * 0.5**0.5


def fused_bias(x: Tensor, qkv: Tensor, bias: Tensor, out: Tensor, up: Tensor, down: Tensor, layer: float) -> Tensor:
    """Logits by baddbmm, all heads as one batch, the residual weight by lerp and by alpha, a post-norm."""
    y = torch.addmm(bias, x.flatten(0, 1), qkv.T).view(-1, 3, HEADS, 8)
    q, k, v = y.permute(1, 2, 0, 3)
    logits = torch.baddbmm(torch.zeros(HEADS, 1, len(q[0])), q, k.transpose(1, 2), alpha=0.3)
    attended = torch.bmm(causal(logits), v).transpose(0, 1).reshape(1, -1, D)
    x = functional.layer_norm(torch.lerp(x, attended @ out.T, 0.25), (D,))
    return functional.layer_norm(torch.add(torch.relu(x @ up.T) @ down.T, x, alpha=3 + layer), (D,))


def trained_skips(x: Tensor, start: Tensor, scales: Tensor, up: Tensor, down: Tensor, **_: Any) -> Tensor:
    """Trained weights of the stream and of its beginning before each block, as nanochat has them."""
    x = scales[0] * x + scales[1] * start
    return x + torch.relu(rms(x) @ up.T) @ down.T


class Nanochat(nn.Module):
    def __init__(self, num_layers: int) -> None:
        super().__init__()
        scales = torch.stack([torch.linspace(1.15, 1.05, num_layers), torch.linspace(0.2, 0.05, num_layers)], 1)
        self.scales = nn.Parameter(scales)
        self.up = nn.Parameter(torch.randn(num_layers, F, D))
        self.down = nn.Parameter(torch.randn(num_layers, D, F))

    def forward(self, x: Tensor) -> Tensor:
        x = start = rms(x)
        for scales, up, down in zip(self.scales, self.up, self.down, strict=True):
            x = trained_skips(x, start, scales, up, down)
        return rms(x)


FUSED = [(3 * D, D), (3 * D,), (D, D), (F, D), (D, F)]
BY_HEAD = [(HEADS, D, 8)] * 3 + [(HEADS, 8, D), (F, D), (D, F)]


def test_interleaved_weights_are_split_by_feature() -> None:
    built = read(Written(interleaved, [(D, 3 * D), (D, D), (D, 2 * F), (F, D)]))
    assert block(built) == "attention b=0.5 pre, ffn b=0.5 pre"
    attention, ffn = built.sublayers[:2]
    assert (attention.num_heads, attention.is_causal, ffn.activation) == (HEADS, True, "swiglu")
    features = {weight.role: weight.features for weight in [*attention.weights, *ffn.weights]}
    wanted = {role: [24 * h + 8 * place + i for h in range(2) for i in range(8)] for place, role in enumerate("qkv")}
    wanted |= {"fc1": list(range(0, 2 * F, 2)), "fc3": list(range(1, 2 * F, 2))}
    for role, numbers in wanted.items():
        assert (chosen := features[role]) is not None and chosen.tolist() == numbers, role
    assert {weight.output_dim for weight in built.weights} == {1}
    assert built.norm_kind == "rmsnorm" and built.tied == ["q"]


def test_a_value_is_that_of_its_place() -> None:
    """The stream before each sublayer, though the code adds to it in place."""
    module = Written(interleaved, [(D, 3 * D), (D, D), (D, 2 * F), (F, D)])
    inputs = guess(module)
    built = look(module, inputs)
    x = module.q[inputs.data["idx"]]
    for layer in range(3):
        weights = list(module.p)[4 * layer : 4 * layer + 4]
        attended = module.block(x, *weights[:3], torch.zeros(F, D))
        for sublayer, before in zip(built.sublayers[2 * layer :], (x, attended), strict=False):
            assert sublayer.second_moment == pytest.approx(before.square().mean().item(), rel=1e-5)
        x = module.block(x, *weights)


def test_heads_of_their_own_dimension() -> None:
    built = read(Written(time_first, BY_HEAD))
    scaled = f"a={0.5**0.5:.5g}"
    assert block(built) == f"attention {scaled} b={0.5**0.5:.5g} pre, ffn {scaled} b={0.5**0.5:.5g} pre"
    assert_complete(built)
    assert {w.role: w.shape for w in built.sublayers[0].weights} == {**dict.fromkeys("qkv", (D, D)), "out": (D, D)}
    assert built.sublayers[1].activation == "gelu" and built.sublayers[0].num_heads == HEADS


def test_sums_by_lerp_and_alpha() -> None:
    built = read(Written(fused_bias, FUSED))
    assert [line(sub) for sub in built.sublayers] == [
        *("attention a=0.75 b=0.25 post", "ffn a=3 post", "attention a=0.75 b=0.25 post"),
        *("ffn a=4 post", "attention a=0.75 b=0.25 post", "ffn a=5 post"),
    ]
    assert built.biases == {f"p.{1 + 5 * layer}": ("q", "k", "v") for layer in range(3)}
    assert built.sublayers[0].is_causal and built.sublayers[1].activation == "relu"


def test_trained_weights_of_the_stream() -> None:
    built = read(Nanochat(5))
    assert [sub.residual_weight for sub in built.sublayers[1:]] == pytest.approx([1.125, 1.1, 1.075, 1.05])
    assert {(sub.kind, sub.branch_weight, sub.norms) for sub in built.sublayers} == {("ffn", 1.0, frozenset({"pre"}))}
    assert built.long_skips and built.final == {"encoder": True}
    assert [[weight.shape for weight in sub.weights] for sub in built.sublayers] == [[(F, D), (D, F)]] * 5


# ---------------------------------------------------------------- roles are what they say


def with_rows(weight: Weight, factor: float) -> None:
    """Multiply the rows of one role."""
    with torch.no_grad():
        numbers = torch.arange(weight.parameter.numel()).reshape(weight.parameter.shape)
        weight.parameter.view(-1)[weight.of(numbers).flatten()] *= factor


CHANGED = {
    "GPT-2": lambda: hugging_face("GPT2Model", "GPT2", **GPT2),
    "NeoX": lambda: hugging_face("GPTNeoXModel", "GPTNeoX", **SMALL, use_parallel_residual=False),
    "Phi-3": lambda: hugging_face("Phi3Model", "Phi3", **GROUPED),
    "torch": lambda: torch_encoder(True),
    "interleaved": lambda: Written(interleaved, [(D, 3 * D), (D, D), (D, 2 * F), (F, D)]),
    "by head": lambda: Written(time_first, BY_HEAD),
}


@pytest.mark.parametrize("name", often(CHANGED, 2, wide=1))
@pytest.mark.parametrize("role", ["v", "out", "fc2", "fc3"])
def test_a_linear_role_scales_its_branch(name: str, role: str) -> None:
    """Twice the values, the output matrix or what a gate multiplies is twice the branch (there are no biases that
    count), and leaves the branches before it alone."""
    module = CHANGED[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1 and not parameter.eq(1).all():
                parameter.zero_()
    inputs = guess(module)
    before = look(module, inputs)
    weights = [weight for sub in before.sublayers[:2] for weight in sub.weights if weight.role == role]
    if role == "fc3" and not weights:
        return
    index = 0 if role in ("v", "out") else 1
    with_rows(weights[0], 2.0)
    after = look(module, inputs)
    ratios = [new.branch_rms / old.branch_rms for new, old in zip(after.sublayers, before.sublayers, strict=True)]
    assert ratios[index] == pytest.approx(2, rel=1e-4) and ratios[:index] == pytest.approx([1.0] * index)


@pytest.mark.parametrize("name", CHANGED)
def test_queries_and_keys_share_their_logits(name: str) -> None:
    """Without queries and without keys an attention is the same one, which takes the mean of the values."""
    means = []
    for role in "qk":
        torch.manual_seed(0)
        module = CHANGED[name]()
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.ndim == 1 and not parameter.eq(1).all():
                    parameter.zero_()
        inputs = guess(module)
        before = look(module, inputs)
        with_rows(before.sublayers[0].roles[role][0], 0.0)
        means.append(look(module, inputs).sublayers[0].branch_rms)
        assert means[-1] != before.sublayers[0].branch_rms
    assert means[0] == pytest.approx(means[1], rel=1e-5)


# ---------------------------------------------------------------- what is missing


def torch_encoder(norm_first: bool = True, num_layers: int = 3) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(D, HEADS, F, 0.0, norm_first=norm_first, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)


def test_streams_side_by_side_are_refused() -> None:
    layers = x_transformers.Decoder(dim=D, depth=2, heads=HEADS, num_residual_streams=2)
    with pytest.raises(ValueError, match=r"no residual stream that can be read.*several streams"):
        read(x_transformers.TransformerWrapper(num_tokens=V, max_seq_len=16, attn_layers=layers))


class Double(nn.Module):
    """A block of two streams, as SD3's: one attention over both, one behind the other, and all else apart."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: Any = nn.ModuleList(nn.TransformerEncoderLayer(D, HEADS, F, 0.0, batch_first=True) for _ in "xc")
        self.qkv = nn.ModuleList(nn.Linear(D, 3 * D) for _ in "xc")
        self.out = nn.ModuleList(nn.Linear(D, D) for _ in "xc")

    def forward(self, streams: Sequence[Tensor]) -> list[Tensor]:
        normed: list[Any] = [side.norm1(x) for side, x in zip(self.sides, streams, strict=True)]
        parts = zip(*(qkv(x).chunk(3, -1) for qkv, x in zip(self.qkv, normed, strict=True)), strict=True)
        q, k, v = (torch.cat(part, 1).unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        sides: Any = zip(self.sides, streams, self.out, mixed.split([x.shape[1] for x in streams], 1), strict=True)
        sums = [(side, x + out(own)) for side, x, out, own in sides]
        return [x + side._ff_block(side.norm2(x)) for side, x in sums]


class TwoStreams(nn.Module):
    """is_joined: whether both go on as one sequence, as Flux's do."""

    def __init__(self, *, is_joined: bool) -> None:
        super().__init__()
        self.doubles, self.inputs = nn.Sequential(Double(), Double()), nn.ModuleList(nn.Linear(D, D) for _ in "xc")
        layer = nn.TransformerEncoderLayer(D, HEADS, F, 0.0, norm_first=True, batch_first=True)
        self.single = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False) if is_joined else None
        self.norm = nn.LayerNorm(D)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        x, c = self.doubles([own(value) for own, value in zip(self.inputs, (x, c), strict=True)])
        return self.norm(x if self.single is None else self.single(torch.cat([x, c], 1)))


def test_two_streams_with_one_attention_are_read_each_by_itself() -> None:
    """The last block leaves the text's stream be: that stream's queries, keys and values are those of the image's."""
    built = read(TwoStreams(is_joined=False), (torch.randn(2, 6, D), torch.randn(2, 3, D)))
    assert built.is_side_by_side and not built.has_decoder and not built.unread and not built.flow.cuts
    kinds = {side: [sub.kind for sub in sublayers] for side, sublayers in built.sides.items()}
    assert kinds == {"c": ["attention", "ffn"], "x": ["attention", "ffn"] * 2}
    assert {built.num_layers(side) for side in built.sides} == {2} and built.final == {"c": True, "x": True}
    for sub in built.sublayers:
        number, attends = str("xc".index(sub.side)), sub.kind == "attention"
        names = {weight.name for weight in sub.weights if weight.side == sub.side}
        assert {re.findall(r"\d+", name)[:2][-1] for name in names} == {number}
        assert all(name.startswith(f"doubles.{sub.layer - 1}.") for name in names)
        assert (sub.norms, sub.num_heads) == ({"pre"}, HEADS if attends else None)
        others = [(weight.role, weight.side) for weight in sub.weights if weight.side != sub.side]
        assert others == ([(role, "c") for role in "qkv"] if attends and (sub.side, sub.layer) == ("x", 2) else [])
    assert built.start_value is not None and built.start_value.shape == (2, 9, D)


def test_two_streams_that_are_joined_go_on_as_the_first() -> None:
    built = read(TwoStreams(is_joined=True), (torch.randn(2, 6, D), torch.randn(2, 3, D)))
    assert {side: len(own) for side, own in built.sides.items()} == {"c": 4, "x": 8}
    assert not built.unread and built.final == {"x": True}
    assert {weight.name.split(".")[0] for sub in built.sides["x"][4:] for weight in sub.weights} == {"single"}


class SecondKeys(nn.Module):
    """A pre-LN encoder whose first attention also has keys and values of a text, by matrices of their own, and whose
    layers read the text as tokens of their stream."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, HEADS, F, 0.0, norm_first=True, batch_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(D)
        self.q, self.kv, self.kv_of_text, self.out = (nn.Linear(D, n * D) for n in (1, 2, 2, 1))
        self.first_norm, self.text = nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        normed = self.first_norm(x)
        keys = torch.cat([self.kv(normed), self.kv_of_text(self.text(text))], 1).chunk(2, -1)
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in (self.q(normed), *keys))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.norm(self.layers(torch.cat([x + self.out(mixed), self.text(text)], 1)))


def test_keys_of_a_second_sequence_are_no_second_stream() -> None:
    built = read(SecondKeys(), (torch.randn(2, 6, D), torch.randn(2, 3, D)))
    assert len(built.sublayers) == 5 and not built.unread and [*built.sides] == ["decoder"]


class Gate(nn.Module):
    """Branches behind a norm, joined to the stream by a gate that is made of it."""

    def __init__(self, join: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        layers = [[nn.LayerNorm(D), nn.Linear(D, F), nn.GELU(), nn.Linear(F, D)] for _ in range(2)]
        self.branches = nn.ModuleList(nn.Sequential(*layer) for layer in layers)
        self.gates = nn.ModuleList(nn.Linear(D, D) for _ in layers)
        self.first, self.norm, self.join = nn.Linear(D, D), nn.LayerNorm(D), join

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for branch, gate in zip(self.branches, self.gates, strict=True):
            x = self.join(x, branch(x), torch.sigmoid(gate(x)))
        return self.norm(x)


class Placed(nn.Module):
    """A gated stream beside places that are made of the same data, and are given to each attention."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.norm, self.gate = nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)
        self.layers = nn.ModuleList(nn.MultiheadAttention(D, HEADS, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        places, x = self.places(x), self.norm(x)
        for attention in self.layers:
            y = attention(x + places, x + places, x, need_weights=False)[0]
            x = self.norm(torch.lerp(x, y, torch.sigmoid(self.gate(x))))
        return x


def test_a_gate_at_the_end_of_a_branch_is_no_second_output_matrix() -> None:
    built = read(Gate(lambda x, y, z: x + z * y), torch.randn(2, 6, D))
    assert [[w.role for w in sub.weights] for sub in built.sublayers] == [["fc1", "fc2"]] * 2
    assert not built.has_experts and "gates.*.weight" in built.unread[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        *(
            (Gate(join), "the stream itself is multiplied by a gate that is made of data .gates.0.weight.")
            for join in (lambda x, y, z: (1 - z) * x + z * y, torch.lerp, lambda x, y, z: z * x + y)
        ),
        (Placed(), "at the beginning no single stream goes round an attention with places.weight"),
        (nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)), "no residual stream"),
        (nn.Tanh(), "depends on no parameter"),
        (
            nn.Bilinear(3, 4, 5),
            "Bilinear.forward.input1, input2.: called with .* it fails, RuntimeError: .*give --input",
        ),
    ],
)
def test_what_is_no_transformer_is_refused_in_one_line(module: nn.Module, message: str) -> None:
    is_given = isinstance(module, (nn.Tanh, Gate, Placed))
    with pytest.raises(ValueError, match=message) as refused:
        look(module, given(torch.ones(1, 8, D), module) if is_given else guess(module))
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- nothing is changed


def test_other_draws_of_a_module_are_read_as_it_is() -> None:
    """As if it was looked at; one of other parameters is."""
    first, second, deeper = torch_encoder(), torch_encoder(), nn.Transformer(D, HEADS, 1, 1, F, 0.0)
    reading = read(first)
    for module in (second, deeper):
        told, anew = reading.of_other_draws(module, guess(module)), read(module)
        assert told.module is module
        assert [(w.role, w.name, w.std) for w in told.weights] == [(w.role, w.name, w.std) for w in anew.weights]
    one, other = (module.get_parameter("layers.0.linear1.weight") for module in (first, second))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5Model"])
def test_every_precision_is_read_alike(name: str, dtype: torch.dtype) -> None:
    config, numbers, _ = (HUGGING_FACE | PAIRS)[name]
    module = hugging_face(name, config, **numbers)
    plain, cast = read(module), read(module.to(dtype))
    for sublayer, other in zip(plain.sublayers, cast.sublayers, strict=True):
        assert line(sublayer) == line(other)
        assert [(w.role, w.name, w.shape) for w in sublayer.weights] == [
            (w.role, w.name, w.shape) for w in other.weights
        ]
        assert (sublayer.activation, sublayer.is_causal) == (other.activation, other.is_causal)
    assert_complete(cast)


def test_the_module_and_the_random_state_are_left_alone() -> None:
    module = hugging_face("GPT2LMHeadModel", "GPT2", **GPT2)
    module.train()
    module.transformer.h[0].eval()
    module.transformer.wpe.weight.requires_grad_(False)
    values = [parameter.detach().clone() for parameter in module.parameters()]
    state = torch.get_rng_state()
    built = read(module)
    assert torch.equal(state, torch.get_rng_state())
    assert [part.training for part in (module, module.transformer.h[0], module.transformer.h[1])] == [True, False, True]
    assert not module.transformer.wpe.weight.requires_grad and module.transformer.wte.weight.requires_grad
    assert all(torch.equal(old, new) for old, new in zip(values, module.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in module.parameters())
    assert built.others["transformer.wpe.weight"] == "positions"


# ---------------------------------------------------------------- styles that are easily misread


class Styled(nn.Module):
    """GPT-2-like blocks on stacked parameters, whose sums are in place where ``in_place``; with LoRA where it has a
    rank; branch weights, one number of a vector for each sublayer, where it has ``scales``."""

    def __init__(self, num_layers: int, *, in_place: bool = False, rank: int = 0, scales: bool = False) -> None:
        super().__init__()
        self.in_place = in_place
        self.token = nn.Embedding(V, D)
        self.q, self.k, self.v, self.o = (nn.Parameter(torch.randn(num_layers, D, D) * 0.1) for _ in range(4))
        self.u = nn.Parameter(torch.randn(num_layers, F, D) * 0.1)
        self.d = nn.Parameter(torch.randn(num_layers, D, F) * 0.1)
        self.a = nn.Parameter(torch.randn(num_layers, rank, F)) if rank else None
        self.b = nn.Parameter(torch.zeros(num_layers, D, rank)) if rank else None
        self.bias = nn.Parameter(torch.zeros(num_layers, D))
        self.s = nn.Parameter(torch.full((num_layers, 2), 0.5)) if scales else None

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        for place in range(len(self.q)):
            y = functional.layer_norm(x, (D,))
            q, k, v = (
                functional.linear(y, weight[place]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for weight in (self.q, self.k, self.v)
            )
            y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = self.summed(x, functional.linear(y, self.o[place], self.bias[place]), place, 0)
            y = functional.gelu(functional.linear(functional.layer_norm(x, (D,)), self.u[place]))
            z = functional.linear(y, self.d[place], self.bias[place])
            if self.a is not None and self.b is not None:
                z = z + 2.0 * functional.linear(functional.linear(y, self.a[place]), self.b[place])
            x = self.summed(x, z, place, 1)
        return functional.layer_norm(x, (D,)) @ self.token.weight.T

    def summed(self, x: Tensor, y: Tensor, place: int, which: int) -> Tensor:
        if self.s is not None:
            return x + self.s[place, which] * y
        if self.in_place:
            y += x
            return y
        return x + y


@pytest.mark.parametrize("style", [{}, {"in_place": True}, {"rank": 2}, {"in_place": True, "rank": 2}])
def test_stacked_parameters_sums_in_place_and_side_paths(style: dict[str, Any]) -> None:
    built = read(Styled(3, **style))
    assert block(built) == "attention pre, ffn pre"
    assert [shapes(sublayer) for sublayer in built.sublayers[:2]] == [
        [("q", "q", (D, D)), ("k", "k", (D, D)), ("v", "v", (D, D)), ("out", "o", (D, D))],
        [("fc1", "u", (F, D)), ("fc2", "d", (D, F))],
    ]


@pytest.mark.parametrize("is_stacked", [False, True])
def test_what_is_read_of_a_parameter_is_written_to_its_place(is_stacked: bool) -> None:
    config = transformers.GPT2Config(n_embd=D, n_head=HEADS, n_layer=2, vocab_size=V, bos_token_id=0, eos_token_id=0)
    for weight in read(Styled(3) if is_stacked else transformers.GPT2Model(config)).weights:
        before = weight.parameter.detach().clone()
        weight.write(weight.of(weight.parameter))
        assert torch.equal(weight.parameter, before)
        weight.write(weight.of(weight.parameter) + 1)
        changed = (weight.parameter != before).sum()
        assert changed == math.prod(weight.shape) and torch.equal(weight.of(weight.parameter), weight.of(before + 1))


def test_one_number_of_a_vector_is_a_scalar() -> None:
    built = read(Styled(2, scales=True))
    assert [(sub.trained, sub.branch_parameter, sub.branch_weight) for sub in built.sublayers] == [
        ("scalar", "s", 0.5)
    ] * 4
    assert built.others["s"] == "branch_weight"


def test_the_scale_of_a_weight_norm_is_no_bias() -> None:
    layer = nn.TransformerEncoderLayer(D, HEADS, F, 0.0, batch_first=True, bias=False)
    nn.utils.parametrizations.weight_norm(layer.linear2)
    built = read(nn.Sequential(layer))
    assert block(built) == "attention post, ffn post"
    assert not built.biases


def test_a_gain_before_the_root_is_a_gain() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(D))
            self.up, self.down = nn.Linear(D, F, bias=False), nn.Linear(F, D, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y = self.gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
            return x + self.down(torch.relu(self.up(y)))

    built = read(Root())
    assert (block(built), built.norm_kind, built.others) == ("ffn pre", "rmsnorm", {"gain": "norm_gain"})


def test_latent_keys_are_no_heads_that_do_not_divide() -> None:
    """Of keys made through a latent vector a part alone is read; no number of heads is made of it."""
    first = read(builders.hugging_face("minicpm3")[0](1)).sublayers[0]
    assert first.num_heads == 4 and (first.num_kv_heads is None or 4 % first.num_kv_heads == 0)


@pytest.mark.parametrize("place", ["queries", "logits", "divided", "baddbmm", "fused"])
def test_what_multiplies_the_logits_is_read_wherever_it_stands(place: str) -> None:
    """0.1, on the queries, on the products with the keys, or within one operation of torch."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(16, 16, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.layer_norm(x, (16,))
            q, k, v = self.q(y), self.k(y), self.v(y)
            if place == "fused":
                heads = (part[:, None] for part in (q, k, v))
                return x + self.out(nn.functional.scaled_dot_product_attention(*heads, scale=0.1)[:, 0])
            turned = k.transpose(1, 2)
            logits = {
                "queries": lambda: (0.1 * q) @ turned,
                "logits": lambda: q @ turned * 0.1,
                "divided": lambda: q @ turned / 10,
                "baddbmm": lambda: torch.baddbmm(torch.zeros(1, 1, 1), q, turned, beta=0, alpha=0.1),
            }[place]()
            return x + self.out(logits.softmax(-1) @ v)

    module = Attending()
    (sublayer,) = look(module, guess(module)).sublayers
    assert sublayer.attention_scale == pytest.approx(0.1, rel=1e-5)


class ClassAttention(nn.Module):
    """As CaiT ends: a learned token attends to the stream and is normalised, with a residual connection of its own.
    has_token: else the attention's output goes on by itself."""

    def __init__(self, *, has_token: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, HEADS, F, 0.0, norm_first=True, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.token = nn.Parameter(torch.randn(1, 1, D))
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.norm, self.read_norm, self.has_token = nn.LayerNorm(D), nn.LayerNorm(D), has_token

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = torch.cat([self.token, self.layers(x)], 1)
        u = self.read_norm(u) if self.has_token else u
        read = self.attention(u[:, :1], u, u, need_weights=False)[0]
        return self.norm(self.token + read if self.has_token else read)


@pytest.mark.parametrize("has_token", [True, False])
def test_a_learned_token_behind_the_stream_is_left_out_and_told(has_token: bool) -> None:
    built = read(ClassAttention(has_token=has_token))
    assert block(built) == PRE and len(built.sublayers) == 4
    (line,) = built.unread
    assert ("behind the last sublayer a learned token reads the stream" in line) == has_token
    assert built.final["encoder"] == has_token
    assert built.others["norm.weight"] == "norm_gain"
    assert not has_token or built.others["read_norm.weight"] == "other"


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_norms_of_an_embedding_are_none_of_the_stack(name: str) -> None:
    """Of which the prediction knows: the stacks of BERT and BART begin behind the norms of their embeddings."""
    built = read(builders.hugging_face(name, 32)[0](2))
    names = [name for name, _ in built.module.named_parameters() if "norm" in name.lower()]
    of_stack = {name for name in names if "emb" not in name}
    assert {name for name, role in built.others.items() if role.startswith("norm_")} == of_stack != set(names)


# ---------------------------------------------------------------- matrices of all layers, or of all roles, in one


class Stacked(nn.Module):
    """The matrices of all layers in one parameter for each role, as for a scan over layers."""

    def __init__(self, num_layers: int = 3) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        sizes = {"q": (D, D), "k": (D, D), "v": (D, D), "out": (D, D), "up": (F, D), "down": (D, F)}
        self.of = nn.ParameterDict({name: 0.1 * torch.randn(num_layers, *size) for name, size in sizes.items()})

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for layer in range(len(self.of["q"])):
            own = {name: parameter[layer] for name, parameter in self.of.items()}
            u = functional.layer_norm(x, (D,))
            q, k, v = ((u @ own[name].T).unflatten(-1, (HEADS, -1)).transpose(1, 2) for name in "qkv")
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = x + mixed @ own["out"].T
            x = x + functional.relu(functional.layer_norm(x, (D,)) @ own["up"].T) @ own["down"].T
        return self.head(x)


def test_layers_in_one_parameter_are_no_experts() -> None:
    built = read(Stacked())
    assert block(built) == "attention pre, ffn pre"
    assert not built.has_experts and [len(sub.roles["fc2"]) for sub in built.sublayers if sub.kind == "ffn"] == [1] * 3


class AllInOne(nn.Module):
    """Queries, keys, values, gate and what it multiplies are rows of one matrix, as in PaLM's code."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fused = nn.LayerNorm(D), nn.Linear(D, 3 * D + 2 * F, bias=False)
        self.out, self.down = nn.Linear(D, D, bias=False), nn.Linear(F, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v, gate, up = self.fused(self.norm(x)).split([D, D, D, F, F], dim=-1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(mixed) + self.down(functional.relu(gate) * up)


def test_each_row_of_a_matrix_that_attention_and_ffn_share_has_one_role() -> None:
    built = read(nn.Sequential(nn.Embedding(V, D), AllInOne(), AllInOne(), nn.Linear(D, V)))
    rows = {w.role: w.features for w in built.sublayers[0].weights if w.name == "1.fused.weight"}
    ends = {role: (int(own[0]), int(own[-1]) + 1) for role, own in rows.items() if own is not None}
    assert ends == {
        **{"q": (0, D), "k": (D, 2 * D), "v": (2 * D, 3 * D)},
        **{"fc1": (3 * D, 3 * D + F), "fc3": (3 * D + F, 3 * D + 2 * F)},
    }
    assert sum(len(own) for own in rows.values() if own is not None) == 3 * D + 2 * F
    assert not built.unread


class HandsOn(nn.Module):
    """As wrappers do that take whatever they are given."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def test_a_wrapper_is_given_what_its_part_takes() -> None:
    assert block(read(HandsOn(HandsOn(Stacked())))) == "attention pre, ffn pre"
