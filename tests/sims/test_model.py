"""The Transformer against a second writing of it from torch's own norms and attention, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.func import functional_call

from depthlaw.sims.ensemble import Ensemble, Member
from depthlaw.sims.model import (
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
from tests.memory import Peak

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
        ({"visits": 0}, "visits is at least 1"),
        ({"encoder": ()}, "at least one sublayer"),
        ({"encoder": decoder_layers(1)}, "nothing to cross-attend"),
        ({"num_kv_heads": 2}, "3 heads of queries cannot share 2 heads of keys evenly"),
        (
            {"encoder": alternating(2, gains={"fc2": 0.0}), "placement": "peri", "norm_eps": 0.0},
            r"a norm \(branch\) behind fc2",
        ),
        ({"head_size": 5, "rotary_base": 100.0}, "a head of 5 cannot be halved"),
    ],
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**change)


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
            phis |= {"relu2": lambda x: F.relu(x) ** 2}
            h = phis[config.activation](h)
            h = h * linear(f"{name}_fc3", u) if config.activation.endswith("glu") else h
            return linear(f"{name}_fc2", norm(f"{name}_inner", h) if "inner" in places else h)
        prefix, source = (f"{name}_cross", memory) if kind == "cross" else (name, u)
        assert source is not None
        vectors = []
        for role, of in (("q", u), ("k", source), ("v", source)):
            h = linear(f"{prefix}_{role}", of)
            if role == "v" and kind == "attention":
                first = first_values.setdefault(name.partition("_")[0], h)
                if h is not first:
                    h = sublayer.value_weight * h + sublayer.first_value_weight * first
            has_norm = role in places or (config.has_qk_norm and role != "v")
            h = heads(norm(f"{name}_{role}_norm", h) if has_norm and config.has_wide_norms else h)
            vectors.append(norm(f"{name}_{role}_norm", h) if has_norm and not config.has_wide_norms else h)
        q, k, v = vectors
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
        h = first = second = h * config.embedding_multiplier
        for index, sublayer in list(enumerate(sublayers)) * config.visits:
            name, kind = f"{called}_{index}", sublayer.kind.replace("parallel", "attention")
            places = frozenset(WHERE[config.placement].get(kind, ()))
            places = places if sublayer.norms is None else sublayer.norms
            u = sublayer.input_scale * (norm(f"{name}_pre", h) if "pre" in places else h)
            out = branch(name, sublayer, places, u, memory)
            out = norm(f"{name}_branch", out) if "branch" in places else out
            weight = weights.get(f"{name}_layer_scale", weights.get(f"{name}_branch_weight", sublayer.branch_weight))
            second = second + weight * out
            h = sublayer.residual_weight * h + weight * out + sublayer.input_weight * first
            h = norm(f"{name}_post", h) if "post" in places else h
        has_final = config.placement not in ("none", "post") if config.has_final is None else config.has_final
        if config.has_second_stream and not has_final:
            return h + norm(f"{called}_second", second)
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
    "visited three times": {"visits": 3, "placement": "sub"},
    "visited twice, x_0 and the first values again": {
        "visits": 2,
        "encoder": varied("attention", "ffn", input_weight=0.4) + varied("attention", **AGAIN),
        "activation": "swiglu",
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


PARALLEL = {"encoder": varied("parallel", "parallel")}
TRAINED = {
    "encoder": varied("attention", "ffn", has_layer_scale=True),
    "decoder": varied("attention", "cross", "ffn", trains_branch_weight=True),
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
    check_passes(model.config)


def check_passes(config: ModelConfig) -> None:
    """Gradients and tangents of two members as one against those of each one's second writing by torch's own graph; the
    tangent of a number is the sum of its gradients times the moves, also where each second parameter moves alone."""
    plain = [perturbed(Transformer(config, seed)) for seed in (8, 9)]
    model = Ensemble([Member(config, seed) for seed in (8, 9)])
    own, x, y = dict(model.named_parameters()), *(torch.stack([one] * 2) for one in given(plain[0]))
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(torch.stack([dict(one.named_parameters())[name] for one in plain]))
    out = model(x, y)
    weights = inputs(*out.shape, seed=5)
    grads = torch.autograd.grad((out * weights).sum(), list(own.values()), materialize_grads=True)
    moves = [inputs(*value.shape, seed=index) for index, value in enumerate(own.values())]

    def tangent(*halves: int) -> torch.Tensor | None:
        duals = {
            name: forward_ad.make_dual(value.detach(), move) if index % 2 in halves else value.detach()
            for index, ((name, value), move) in enumerate(zip(own.items(), moves, strict=True))
        }
        return forward_ad.unpack_dual(functional_call(model, duals, (x, y))).tangent

    with torch.no_grad(), forward_ad.dual_level():
        moved, *of_halves = tangent(0, 1), tangent(0), tangent(1)
    assert moved is not None
    torch.testing.assert_close(sum(half for half in of_halves if half is not None), moved)
    for index, one in enumerate(plain):
        value = (reference(one, x[index], y[index]) * weights[index]).sum()
        expected = torch.autograd.grad(value, list(one.parameters()), materialize_grads=True)
        largest = max(float(of_one.norm()) for of_one in expected)
        for of_all, of_one in zip(grads, expected, strict=True):
            # Of keys' biases the gradient is 0 but for the rounding of numbers as large as the others.
            assert (of_all[index] - of_one).norm() <= 1e-9 * of_one.norm() + 1e-12 * largest
        along = sum(float((of_one * move[index]).sum()) for of_one, move in zip(expected, moves, strict=True))
        assert float((moved[index] * weights[index]).sum()) == pytest.approx(
            along, rel=1e-9, abs=1e-12 * largest * len(moves)
        )


SETTINGS: dict[str, st.SearchStrategy] = {
    "placement": st.sampled_from(sorted(WHERE)),
    "norm_kind": st.sampled_from(("layernorm", "rmsnorm", "dyt", "derf")),
    "activation": st.sampled_from(sorted(ACTIVATIONS)),
    **dict.fromkeys(("has_affine", "has_bias", "has_qk_norm", "has_second_stream", "is_causal"), st.booleans()),
    **{"num_kv_heads": st.sampled_from((None, 1)), "rotary_base": st.sampled_from((0.0, 50.0))},
    **{"vocab_size": st.sampled_from((0, 11)), "recomputes": st.booleans(), "visits": st.sampled_from((1, 2))},
}


@pytest.mark.wide
@given_(st.fixed_dictionaries(SETTINGS), st.sampled_from(((BOTH, {}), (PARALLEL, {"decoder": ()}), (TRAINED, {}))))
@settings(max_examples=12, deadline=None)
def test_any_network_is_its_second_writing_in_every_pass(flags: dict[str, Any], sides: tuple[Any, Any]) -> None:
    has_inner = flags["placement"] in ("sub", "normformer") and sides[0] is PARALLEL
    check_passes(config(**{**flags, **sides[0], **sides[1], **({"placement": "pre"} if has_inner else {})}))


@pytest.mark.parametrize("placement", ["post", "sub"])
def test_recomputation_changes_nothing_but_memory(placement: str) -> None:
    """Of each sublayer only its inputs stay: the stream and, in cross-attention, the encoder's output."""
    x, y = inputs(8, 16, D), inputs(8, 16, D, seed=1)
    grads, peaks = [], []
    for recomputes in (False, True):
        model = perturbed(Transformer(config(**BOTH, placement=placement, recomputes=recomputes), 12))
        with Peak() as peak:
            out = model(x, y)
            peaks.append(peak.now)  # what the graph holds
        grads.append({"out": out.detach(), **gradients(model, out.square().sum())})
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-12, atol=1e-12)
    streams = 7 * x.numel() * x.element_size()
    assert peaks[1] < 3 * streams and peaks[0] > 6 * streams
