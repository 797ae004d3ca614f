"""What the audit reads of real modules, of code in other styles, and of modules that it must not misread."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
import x_transformers
from torch import nn

from paper_checks.audit.inputs import guess
from paper_checks.audit.look import Built, Sublayer, look

pytestmark = pytest.mark.filterwarnings("ignore")

D, HEADS, F, V = 16, 2, 32, 50
QKV_OUT = {"q", "k", "v", "out"}


def read(module: nn.Module) -> Built:
    return look(module, guess(module))


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


def hugging_face(name: str, config: str, **numbers: Any) -> nn.Module:
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, f"{config}Config")(**numbers))


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_hugging_face(name: str) -> None:
    config, numbers, expected = HUGGING_FACE[name]
    built = read(hugging_face(name, config, **numbers))
    assert block(built) == expected
    assert built.num_layers("encoder") == 2 and built.d_model == D
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
    assert built.final == {"encoder": place == "pre", "decoder": place == "pre"}
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
        assert [(w.role, w.name, w.shape) for w in one.weights] == [(w.role, w.name, w.shape) for w in other.weights]


def test_experts_of_one_parameter_are_one_weight_of_each_role() -> None:
    built = read(hugging_face("MixtralModel", "Mixtral", **HUGGING_FACE["MixtralModel"][1]))
    shapes = {weight.role: weight.shape for weight in built.sublayers[1].weights}
    assert shapes == {"fc1": (4 * F, D), "fc3": (4 * F, D), "fc2": (4 * D, F)}
    assert not built.unread


def test_what_is_tied_shared_or_not_used_is_told() -> None:
    gpt2 = read(hugging_face("GPT2LMHeadModel", "GPT2", **GPT2))
    assert gpt2.tied == ["transformer.wte.weight"]
    assert gpt2.others["transformer.wpe.weight"] == "positions"
    assert gpt2.biases["transformer.h.0.attn.c_attn.bias"] == ("q", "k", "v")
    albert = read(hugging_face("AlbertModel", "Albert", **HUGGING_FACE["AlbertModel"][1]))
    assert len(albert.shared) == 6 and albert.num_layers("encoder") == 2
    assert albert.unused == ["pooler.weight", "pooler.bias"]


# (torchscale's stand-ins are those of test_torchscale.py)


@pytest.fixture(scope="module")
def torchscale() -> Iterator[Callable[[str], ModuleType]]:
    """Its modules, with stand-ins for what it imports and does not call."""
    stand_ins = {
        "fairscale": (),
        "fairscale.nn": ("checkpoint_wrapper", "wrap"),
        "timm": (),
        "timm.models": (),
        "timm.models.layers": ("drop_path",),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, functions in stand_ins.items():
            module = ModuleType(name)
            for function in functions:
                setattr(module, function, None)
            patch.setitem(sys.modules, name, module)
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
