"""The facts recorded of torchscale, the code of Magneto's and DeepNet's authors, against the package itself.

torchscale declares timm and fairscale; its Transformers import one name of the first and two of the second, and call
none of them in the networks built here. Stand-ins that refuse to be called take their place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

import pytest
import torch
from sympy import lambdify
from torch import nn

from depthlaw.paper_checks.experiments.bench import standing_in
from depthlaw.paper_checks.papers.magneto.sublayers import SCALED, STEPS, UNSCALED, VERSION
from depthlaw.paper_checks.papers.magneto.theorems import GAMMAS
from depthlaw.theory.symbols import M, N

D, HEADS, RATIO = 24, 3, 2
ROLES = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out", "fc1": "fc1", "fc2": "fc2"}


@pytest.fixture(scope="module")
def torchscale() -> Iterator[ModuleType]:
    """torchscale.architecture, its submodules imported; everything is taken out of sys.modules again."""
    with standing_in():
        for name in ("config", "encoder", "decoder"):
            import_module(f"torchscale.architecture.{name}")
        yield sys.modules["torchscale.architecture"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchscale"]:
        del sys.modules[name]


def numbers(side: str, num_layers: int, **rest: Any) -> dict[str, Any]:
    """Arguments of a configuration of torchscale, for one side."""
    sizes = {"embed_dim": D, "attention_heads": HEADS, "ffn_embed_dim": D * RATIO, "layers": num_layers}
    return {"activation_fn": "relu", "vocab_size": -1, **{f"{side}_{key}": n for key, n in sizes.items()}, **rest}


def encoder(code: ModuleType, num_layers: int, num_decoder_layers: int = 0, **rest: Any) -> nn.Module:
    config = code.config.EncoderConfig(**numbers("encoder", num_layers, **rest))
    config.decoder_layers = num_decoder_layers
    return code.encoder.Encoder(config, is_encoder_decoder=num_decoder_layers > 0)


def decoder(code: ModuleType, num_layers: int, is_encoder_decoder: bool, **rest: Any) -> nn.Module:
    config = code.config.DecoderConfig(**numbers("decoder", num_layers, **rest))
    return code.decoder.Decoder(config, is_encoder_decoder=is_encoder_decoder)


def role_of(name: str) -> str | None:
    """Our role of one of its parameters: cross_ before a cross-attention's, _bias behind a bias's; None of a norm."""
    *path, module, piece = name.split(".")
    if module not in ROLES:
        return None
    return ("cross_" if "encoder_attn" in path else "") + ROLES[module] + ("_bias" if piece == "bias" else "")


def test_the_version_is_the_recorded_one() -> None:
    assert metadata.version("torchscale") == VERSION


CALLED = {"q_proj": "QKV", "out_proj": "WO", "fc1": "W1", "fc2": "W2"}
"""Modules that a step is seen by; attention and phi are functions of theirs, not modules."""


def test_the_recorded_steps_are_the_order_of_its_modules(torchscale: ModuleType) -> None:
    layer, called = decoder(torchscale, 1, True).get_submodule("layers.0"), []
    for name, module in layer.named_modules():
        last = name.rpartition(".")[2]
        step = "LN" if isinstance(module, nn.LayerNorm) else CALLED.get(last)
        if step is not None:
            module.register_forward_hook(lambda *_, step=step: called.append(step))
    x = torch.randn(2, 5, D)
    layer(x, encoder_out=x)
    recorded = [STEPS[kind] for kind in ("attention", "cross", "ffn")]
    assert called == [step for steps in recorded for step in steps if step not in ("attention", "phi")]


def multipliers(build: Any, switch: str) -> dict[str, list[float]]:
    """By role, what the initialisation that is switched on multiplies each draw by: one seed, with and without it."""
    drawn = []
    for is_on in (False, True):
        torch.manual_seed(0)
        drawn.append(build(**{"subln": False, "deepnorm": False, switch: is_on}).state_dict())
    plain, scaled = drawn
    factors: dict[str, list[float]] = {}
    for name, values in plain.items():
        role = role_of(name)
        if role is not None:
            factors.setdefault(role, []).extend((scaled[name] / values).flatten().tolist())
    return factors


SIDES = {
    "encoder": lambda code, n, m: lambda **switch: encoder(code, n, **switch),
    "decoder": lambda code, n, m: lambda **switch: decoder(code, m, False, **switch),
    "encoder_of_two": lambda code, n, m: lambda **switch: encoder(code, n, m, **switch),
    "decoder_of_two": lambda code, n, m: lambda **switch: decoder(code, m, True, **switch),
}
DEEPNORM = {
    "encoder": lambda n, m: (8 * n) ** -0.25,
    "decoder": lambda n, m: (8 * m) ** -0.25,
    "encoder_of_two": lambda n, m: 1.15 * (n**4 * m) ** -0.0625,
    "decoder_of_two": lambda n, m: (12 * m) ** -0.25,
}
"""The paper's gains but in the encoder of two, where the paper has 0.87 = 1/1.15: the code divides by what it should
multiply."""


@pytest.mark.parametrize("switch", ["subln", "deepnorm"])
@pytest.mark.parametrize("side", SIDES)
def test_gains_are_the_recorded_ones_on_the_recorded_roles(torchscale: ModuleType, side: str, switch: str) -> None:
    n, m = 2, 3
    gamma = float(lambdify((N, M), GAMMAS[side], modules="math")(n, m))
    gain, scaled = {"subln": (gamma, SCALED), "deepnorm": (DEEPNORM[side](n, m), SCALED | {"cross_v", "cross_out"})}[
        switch
    ]
    roles = {role for role in SCALED | UNSCALED if side == "decoder_of_two" or not role.startswith("cross_")}
    factors = multipliers(SIDES[side](torchscale, n, m), switch)
    assert factors.keys() == roles | {f"{role}_bias" for role in roles}
    for role, values in factors.items():
        wanted = gain if role.removesuffix("_bias") in scaled else 1.0
        assert values == pytest.approx([wanted] * len(values), rel=1e-5), role


def test_what_it_leaves_alone_is_torch_s_default_and_no_xavier(torchscale: ModuleType) -> None:
    """Uniform of variance 1/(3d), a Xavier gain of 1/sqrt(3) on a square matrix."""
    torch.manual_seed(0)
    weights = [p for name, p in encoder(torchscale, 6).named_parameters() if role_of(name) in ("q", "k")]
    entries = torch.cat([weight.detach().flatten() for weight in weights])
    assert entries.abs().max() <= D**-0.5
    error = 5 * (0.8 / len(entries)) ** 0.5  # a squared uniform has relative variance 4/5
    assert abs(float(entries.square().mean()) * 3 * D - 1) < error
