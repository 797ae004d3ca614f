"""What the kernel rung is asked about is what sims build: every number, or a refusal."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from scipy.stats import t

from depthlaw.network import kernel as kernel_network
from depthlaw.network.lower import KINDS, lower_encoder_decoder, lower_transformer, visited
from depthlaw.network.network import Network
from depthlaw.network.predicted_rows import KernelPrediction
from depthlaw.sims.model import ModelConfig, SublayerConfig
from depthlaw.sims.update import Task
from depthlaw.theory.kernel import predict
from depthlaw.theory.kernel.setting import Heads
from depthlaw.theory.meanfield.update import predict as predict_stack
from depthlaw.theory.moments import GATED
from depthlaw.theory.schemes import SCHEMES, scheme
from tests.often import often

SHAPE: dict[str, Any] = {"norm_kind": "rmsnorm", "activation": "gelu", "ffn_ratio": 3, "has_affine": True}
CONFIGS: dict[str, ModelConfig] = {
    **{name: lower_transformer(name, "adam", 4, 8, is_causal=True, **SHAPE) for name in SCHEMES},
    **{f"{name}, two sides": lower_encoder_decoder(name, "sgd", 1, 2, 8) for name in ("deepnorm", "t-fixup")},
    "visited again": visited(lower_transformer("pre-ln", "adam", 6, 8), 3),
    "uneven": lower_transformer("gpt2", "sgd", 3, 8, w=[1.0, 2.0, 3.0], ffn_width=12),
}
PLAIN = ModelConfig(encoder=(SublayerConfig(kind="attention"),))
HEARD = {"encoder", "decoder", "placement", "d_model", "num_heads", "ffn_ratio", "ffn_width", "activation", "norm_kind"}
HEARD |= {"has_qk_norm", "has_wide_norms", "num_kv_heads", "head_size", "rotary_base", "rotary_share"}
HEARD |= {"attention_scale", "logit_softcap", "norm_scale", "norm_eps", "has_final", "has_second_stream"}
HEARD |= {"embedding_std", "embedding_multiplier", "decoder_embedding_std", "head_gain", "visits"}
NO_MATTER = {"has_affine", "has_bias", "num_outputs", "vocab_size", "has_short_draws", "recomputes"}
"""Fields that no prediction depends on: roles that do not train are predicted all the same."""


def test_every_number_of_a_network_is_translated_by_its_name() -> None:
    for config in CONFIGS.values():
        network = kernel_network.as_transformer(config, head_size=4)
        names = "placement norm_kind norm_scale norm_eps has_final has_second_stream activation is_causal visits"
        for name in names.split():
            assert vars(network)[name] == vars(config)[name]
        assert network.ffn_ratio * config.d_model == config.hidden
        assert network.head_size == 4
        for side, other in zip((network.encoder, network.decoder), (config.encoder, config.decoder), strict=True):
            assert [vars(one) | {"kind": KINDS[one.kind]} for one in side] == [vars(one) for one in other]


def test_every_number_of_the_task_is_translated_by_its_name() -> None:
    task = Task(num_tokens=3, batch_size=2, correlation=0.25, readout="sum", objective="ce", num_classes=5)
    of_input = {"embedding_std": 0.3, "embedding_multiplier": 2.0, "head_gain": 0.5, "decoder_embedding_std": 0.7}
    inputs = vars(kernel_network.as_inputs(task, replace(PLAIN, **of_input)))
    assert inputs == {name: value for name, value in vars(task).items() if name in inputs} | {"loss": "ce"} | of_input


def test_heads() -> None:
    """Each number of the heads, from the fields that say it."""
    config = replace(PLAIN, d_model=48, num_heads=6, num_kv_heads=2, head_size=16, rotary_base=100.0, rotary_share=0.5)
    config = replace(config, attention_scale=0.5, logit_softcap=3.0, has_wide_norms=True, has_qk_norm=True)
    network = kernel_network.as_transformer(config, head_size=16)
    assert network.heads == Heads(
        number=6,
        queries_per_key=3,
        width_ratio=2.0,
        rotary_base=100.0,
        rotary_share=0.5,
        logit_scale=2.0,
        logit_softcap=3.0,
        has_wide_norm=True,
    )
    assert network.places(network.encoder[0]) == {"post", "q", "k"}


def test_a_field_that_is_new_to_sims_is_heard_of_or_known_not_to_matter() -> None:
    assert {one.name for one in fields(SublayerConfig)} == {one.name for one in fields(predict.Sublayer)}
    assert {one.name for one in fields(ModelConfig)} == {*HEARD, "is_causal", "is_side_by_side", *NO_MATTER}
    with pytest.raises(ValueError, match="share their attentions"):
        kernel_network.as_transformer(replace(PLAIN, is_side_by_side=True), head_size=None)
    kernel_network.as_transformer(replace(PLAIN, activation="swiglu"), head_size=None)


@pytest.mark.parametrize("activation", sorted(GATED))
@pytest.mark.parametrize(
    "name", often(["pre-ln", "sub-ln", "peri-ln", "post-ln", "deepnorm", "depth-mup", "t-fixup"], 3, wide=1)
)
def test_gated_stacks_are_those_of_the_kernel_rung(name: str, activation: str) -> None:
    """Which knows them sublayer by sublayer: exact where no points are drawn, elsewhere to the error that it states."""
    for optimizer in ("sgd", "muon", "adam", "lamb"):
        found = predict_stack(name, optimizer, 4, activation=activation)
        network = Network(scheme=scheme(name), num_sublayers=4, activation=activation)
        walked = network.walked(optimizer, lambda _: None, 1.0)
        assert isinstance(walked, KernelPrediction)
        assert found.roles.keys() == walked.roles.keys() == {"fc1", "fc2", "fc3"}
        for role, value in found.roles.items():
            error = walked.error[role] * float(t.ppf(1 - 1e-4 / 2, predict.REPLICATES - 1))
            assert walked.roles[role] == pytest.approx(value, rel=error + 1e-9), (optimizer, role)
