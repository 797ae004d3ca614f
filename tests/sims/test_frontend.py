"""What goes into the Transformer and what comes out, and that its fused kernels are the same function."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from depthlaw.sims.ensemble import Member
from depthlaw.sims.model import (
    BRANCH_ROLES,
    OTHER_ROLES,
    PLACEMENTS,
    ModelConfig,
    SublayerConfig,
    Transformer,
    alternating,
    decoder_layers,
)
from depthlaw.sims.training.data import IGNORED, NAMES, Data, DataConfig, load
from depthlaw.sims.training.frontend import Network
from tests.sims.training import own_parallel

D = 8
RATES = {"bias": 2.0, "norm_gain": 0.0, "branch_weight": 3.0}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What of the data decides a network. Another size everywhere, so that none can stand for another."""

    is_causal: bool = False
    num_positions: int = 5
    num_decoder_positions: int = 0
    vocab_size: int = 11
    decoder_vocab_size: int = 0
    num_features: int = 0
    num_classes: int = 7

    @property
    def has_decoder(self) -> bool:
        return self.num_decoder_positions > 0


TOKENS = Given()
VECTORS = Given(vocab_size=0, num_features=3)
BOTH_SIDES = Given(num_decoder_positions=4, decoder_vocab_size=13)


def model_for(data: Given | Data, **rest: Any) -> ModelConfig:
    """Every kind of sublayer, with every kind of parameter."""
    numbers: dict[str, Any] = {"residual_weight": 1.1, "branch_weight": 0.8}
    sides: dict[str, Any] = {
        "encoder": alternating(2, **numbers),
        "decoder": decoder_layers(1, **numbers) if data.has_decoder else (),
        "is_causal": data.is_causal,
    }
    sizes: dict[str, Any] = {"d_model": D, "num_heads": 2, "ffn_ratio": 2, "activation": "gelu"}
    return ModelConfig(**{**sides, **sizes, "has_affine": True, "has_bias": True, "norm_eps": 1e-5, **rest})


SEEDS = 2
"""Of every network: each has inputs of its own."""


def network_for(config: ModelConfig, data: Given | Data, dtype: torch.dtype = torch.float32) -> Network:
    return Network([Member(config, seed) for seed in range(SEEDS)], data, dtype=dtype)


def inputs_of(data: Given, batch_size: int = 3, seed: int = 0) -> tuple[Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    if data.num_features:
        return torch.randn((SEEDS, batch_size, data.num_positions, data.num_features), generator=generator), None
    tokens = torch.randint(data.vocab_size, (SEEDS, batch_size, data.num_positions), generator=generator)
    if not data.has_decoder:
        return tokens, None
    shape = (SEEDS, batch_size, data.num_decoder_positions)
    return tokens, torch.randint(data.decoder_vocab_size, shape, generator=generator)


@torch.no_grad()
def disturb(network: nn.Module) -> None:
    """No gain at 1 and no bias at 0, where a mistake would not show."""
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_data_gives_logits_that_need_every_parameter(name: str, tmp_path: Path) -> None:
    data = load(own_parallel(tmp_path) if name == "translation" else DataConfig(name=name, num_tokens=10))
    network, batch = Network([Member(model_for(data), 0)], data), data.batch(64, 0, 0)
    logits = network(batch.inputs[None], None if batch.decoder_inputs is None else batch.decoder_inputs[None])
    assert logits.shape == (1, *batch.labels.shape, data.num_classes)
    functional.cross_entropy(logits.flatten(0, 2), batch.labels.flatten(), ignore_index=IGNORED).backward()
    for part, parameter in network.named_parameters():
        # softmax is blind to a bias of the keys, whose gradient is rounding
        assert part.endswith("k_bias") or (parameter.grad is not None and parameter.grad.any()), part


@pytest.mark.parametrize("data", [TOKENS, VECTORS, BOTH_SIDES], ids=["tokens", "vectors", "both sides"])
def test_every_parameter_has_its_role_and_its_rate(data: Given) -> None:
    sublayers = (
        SublayerConfig(kind="attention", lr_multipliers={**RATES, "q": 0.25}),
        SublayerConfig(kind="ffn", lr_multipliers={**RATES, "fc1": 0.5}, trains_branch_weight=True),
    )
    network = network_for(model_for(data, encoder=sublayers, has_qk_norm=True), data)
    tagged = network.tagged()
    assert {name: id(p) for name, p, *_ in tagged} == {name: id(p) for name, p in network.named_parameters()}
    for name, _, role, rate in tagged:
        assert role in (*BRANCH_ROLES, *OTHER_ROLES)
        assert name.startswith("tables.") == (role == "embedding")
        expected = {**RATES, "q": 0.25, "fc1": 0.5}.get(role, 1.0) if "encoder_" in name else 1.0
        assert rate.tolist() == [expected] * SEEDS
    assert {"embedding", "head", "branch_weight", "norm_gain", "norm_bias", "bias"} < {role for *_, role, _ in tagged}
    network.core.register_parameter("untagged", nn.Parameter(torch.zeros(2)))
    with pytest.raises(ValueError, match="without a role: untagged"):
        network.tagged()


FLAGS = [
    {"has_affine": first, "has_qk_norm": second, "has_bias": first is second}
    for first, second in product((False, True), repeat=2)
]
"""Each pair of flags in all four ways."""


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_fused_kernels_are_the_same_function(placement: str) -> None:
    """Every kind of norm and every row of flags; from placement to placement, the rows move on by one kind."""
    turn = list(PLACEMENTS).index(placement)
    for index, norm_kind in enumerate(("layernorm", "rmsnorm", "dyt", "derf")):
        has = FLAGS[(index + turn) % len(FLAGS)]
        config = model_for(BOTH_SIDES, placement=placement, norm_kind=norm_kind, norm_eps=1e-3, **has)
        network = network_for(config, BOTH_SIDES, dtype=torch.float64)
        disturb(network)
        with torch.no_grad():
            logits, sides = network(*inputs_of(BOTH_SIDES)), network.vectors(*inputs_of(BOTH_SIDES))
            assert logits.dtype == torch.float64
            for member in range(SEEDS):
                plain = Transformer(network.config, 1)
                plain.load_state_dict({name: stack[member] for name, stack in network.core.state_dict().items()})
                own = plain.logits(plain(*(side[member] for side in sides if side is not None)))
                torch.testing.assert_close(logits[member], own)


@pytest.mark.parametrize(
    ("data", "odd", "words"),
    [
        (TOKENS, {"decoder": decoder_layers(1)}, "the model has a decoder, and the data wants none"),
        (BOTH_SIDES, {"decoder": ()}, "the model has no decoder, and the data wants one"),
        (TOKENS, {"is_causal": True}, "is_causal is True of the model and False of the data"),
        (TOKENS, {"num_outputs": 7}, "vocab_size and num_outputs come from the data"),
    ],
)
def test_a_model_that_does_not_fit_its_data_is_refused(data: Given, odd: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        network_for(model_for(data, **odd), data)
    assert "\n" not in str(refusal.value)
