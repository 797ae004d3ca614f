"""Schemes lowered to plain numbers, against `tests.realnet`'s own transcription and the printed encoder-decoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from sympy import Integer, Rational

from depthlaw.network.block import Block
from depthlaw.network.lower import (
    has_encoder_decoder,
    lower_encoder_decoder,
    lower_ffn,
    lower_transformer,
)
from depthlaw.sims.model import ModelConfig, Transformer
from depthlaw.theory.optimizers import OPTIMIZERS
from depthlaw.theory.schemes import SCHEMES, Scheme, custom_scheme, scheme
from tests import realnet
from tests.scalarnet import ELSEWHERE

D = 8
LENGTHS = (2, 3, 8, 25)
GAINS = [0.5, 1.25, 2.0]
OF_ONE_FORM = [name for name in SCHEMES if name not in ELSEWHERE]
TRAINED = {"rezero", "skipinit", "fixup"}
PRINTED = ("post-ln", "pre-ln", "sub-ln", "peri-ln", "normformer", "deepnorm", "sub-ln-gamma", "admin", "t-fixup")


def equal(numbers: Any) -> Any:
    """But for rounding."""
    return pytest.approx(numbers, rel=1e-12, abs=0.0)


def wrong(config: ModelConfig, name: str, optimizer: str = "sgd", **gains: Sequence[float]) -> set[str]:
    """The letters of an FFN-only stack, and the multipliers of its learning rates, that are not `realnet`'s."""
    sublayers, length = config.encoder, len(config.encoder)
    stack = realnet.scheme_numbers(name, length, config.activation, config.norm_kind, **gains)
    pairs = {
        "a": ([one.residual_weight for one in sublayers], stack.a),
        "b": ([one.branch_weight for one in sublayers], stack.b),
        "c": ([one.input_scale for one in sublayers], stack.c),
        "w": ([one.gains["fc1"] for one in sublayers], stack.w),
        "v": ([one.gains["fc2"] for one in sublayers], stack.v),
        "start": ([config.embedding_std**2], [stack.start]),
        "lr": (
            [one.lr_multipliers.get(role, 1.0) for one in sublayers for role in ("fc1", "fc2")],
            [stack.lr_multiplier.get(optimizer, 1.0)] * (2 * length),
        ),
    }
    return {key for key, (built, told) in pairs.items() if built != equal(list(told))}


@pytest.mark.parametrize("name", OF_ONE_FORM)
def test_ffn_stacks_have_the_numbers_of_an_independent_transcription(name: str) -> None:
    for optimizer in OPTIMIZERS:
        assert not wrong(lower_ffn(name, optimizer, 3, D), name, optimizer)
    for length in LENGTHS:
        assert not wrong(lower_ffn(name, "adam", length, D), name, "adam")
    for gains in ({"w": GAINS}, {"v": GAINS}, {"w": GAINS, "v": GAINS[::-1]}):
        assert not wrong(lower_ffn(name, "adam", 3, D, **gains), name, "adam", **gains)


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("activation", realnet.ACTIVATIONS)
def test_admin_follows_the_activation_and_the_gains(activation: str, norm_kind: str) -> None:
    shape: dict[str, Any] = {"activation": activation, "norm_kind": norm_kind}
    assert not wrong(lower_ffn("admin", "sgd", 8, D, **shape), "admin")
    assert not wrong(lower_ffn("admin", "sgd", 3, D, w=GAINS, **shape), "admin", w=GAINS)


@pytest.mark.parametrize(
    ("name", "norm_kind"), [*((name, "layernorm") for name in OF_ONE_FORM), ("sub-ln", "rmsnorm"), ("admin", "rmsnorm")]
)
def test_ffn_stacks_compute_what_realnet_computes(name: str, norm_kind: str) -> None:
    """With the same matrices; and these are Xavier's times the gains."""
    length = 5
    stack = realnet.scheme_numbers(name, length, "gelu", norm_kind)
    shape: dict[str, Any] = {"activation": "gelu", "norm_kind": norm_kind}
    model, unscaled = (Transformer(lower_ffn(one, "sgd", length, D, **shape), 3) for one in (name, "pre-ln"))
    weights, base = (dict(one.named_parameters()) for one in (model, unscaled))

    def linear(role: str, index: int, x_SD: torch.Tensor) -> torch.Tensor:
        key, gain = f"_weights.encoder_{index}_{role}", {"fc1": stack.w, "fc2": stack.v}[role][index]
        torch.testing.assert_close(weights[key], gain * base[key])
        return x_SD @ weights[key].T

    x_SD = torch.randn((4, D), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x_SD[None])[0], realnet.forward(stack, x_SD, linear), rtol=1e-10, atol=1e-10)


def changed(name: str, **letters: Any) -> Scheme:
    return replace(scheme(name), stack=replace(scheme(name).stack, **letters))


KINDS = (("attention", ("v", "out"), ("q", "k")), ("ffn", ("fc1", "fc2"), ()))


@pytest.mark.parametrize("name", OF_ONE_FORM)
def test_a_transformer_alternates_and_scales_the_value_path_alone(name: str) -> None:
    for length in LENGTHS:
        config = lower_transformer(name, "adam", length, D, num_heads=2, ffn_width=12, is_causal=True)
        stack = realnet.scheme_numbers(name, length)
        rate = stack.lr_multiplier.get("adam", 1.0)
        assert (config.num_heads, config.hidden, config.is_causal) == (2, 12, True)
        for index, one in enumerate(config.encoder):
            kind, scaled, others = KINDS[index % 2]
            roles = (*scaled, *others)
            assert one.kind == kind
            expected = {**dict.fromkeys(roles, 1.0), scaled[0]: stack.w[index], scaled[1]: stack.v[index]}
            assert {role: one.gains.get(role, 1.0) for role in roles} == equal(expected)
            assert {role: one.lr_multipliers.get(role, 1.0) for role in roles} == equal(dict.fromkeys(roles, rate))
            assert set(one.lr_multipliers) <= set(roles)
            assert one.branch_weight == equal(stack.b[index])
            assert one.input_scale == equal(stack.c[index])
            assert one.trains_branch_weight == (name in TRAINED)
            assert name == "admin" or one.residual_weight == equal(stack.a[index])


def test_a_scheme_of_one_s_own_is_lowered() -> None:
    quarter = Fraction(1, 4)
    own = custom_scheme("peri", residual_weight=(Fraction(2), quarter), gain=(Fraction(1), -quarter))
    config = lower_transformer(own, "lion", 16, D)
    assert (config.placement, config.encoder[0].residual_weight, config.encoder[1].gains["fc2"]) == ("peri", 4.0, 0.5)


def test_admin_s_residual_weights_in_a_transformer() -> None:
    """With relu at gains 1, whose E phi(s z)^2 is s^2/2; the hidden width is twice d_model."""
    squares = [one.residual_weight**2 for one in lower_transformer("admin", "sgd", 7, D, ffn_ratio=2).encoder]
    assert squares == equal([1 + (index + 1) // 2 + index // 2 * 4 / 9 for index in range(7)])


def test_admin_s_variances_are_behind_the_input_scale_and_the_branch_weight() -> None:
    halved = changed("admin", input_scale=Rational(1, 2), branch_weight=Integer(3))
    squares = [one.residual_weight**2 for one in lower_ffn(halved, "sgd", 3, D).encoder]
    assert squares == pytest.approx([1, 1 + 9 / 8, 1 + 9 / 4])


NUM_SEEDS, ERROR = 150, 1e-4


COUNTS = ((1, 1), (6, 6), (18, 4), (3, 50))
ONES = {"encoder": {"a": 1.0, "g": 1.0}, "decoder": {"a": 1.0, "g": 1.0, "cross": 1.0}}
CASES: dict[str, Callable[[int, int], dict[str, dict[str, float]]]] = {
    "deepnorm": lambda n, m: {
        "encoder": {"a": 27 ** (-1 / 16) * (n**4 * m) ** (1 / 16), "g": (27 / (256 * n**4 * m)) ** (1 / 16)},
        "decoder": {"a": (3 * m) ** 0.25, "g": (12 * m) ** -0.25, "cross": (12 * m) ** -0.25},
    },
    "sub-ln-gamma": lambda n, m: {
        "encoder": {"a": 1.0, "g": math.sqrt(math.log(3 * m) * math.log(2 * n) / 3)},
        "decoder": {"a": 1.0, "g": math.sqrt(math.log(3 * m)), "cross": 1.0},
    },
    "t-fixup": lambda n, m: {
        "encoder": {"a": 1.0, "g": 0.67 * n**-0.25},
        "decoder": {"a": 1.0, "g": (9 * m) ** -0.25, "cross": (9 * m) ** -0.25},
    },
    **dict.fromkeys(("post-ln", "pre-ln", "sub-ln", "peri-ln", "normformer"), lambda n, m: ONES),
}


def test_t_fixup_scales_the_embedding_of_each_side_by_its_own_layers() -> None:
    """As the authors' code has it: (9 N)^(-1/4) with the layers of that side, in a stack of one side with its own."""
    config = lower_encoder_decoder("t-fixup", "sgd", 18, 4, D)
    assert config.embedding_std_of("encoder") == pytest.approx((9 * 18) ** -0.25)
    assert config.embedding_std_of("decoder") == pytest.approx((9 * 4) ** -0.25)
    assert lower_transformer("t-fixup", "sgd", 12, D).embedding_std == pytest.approx((9 * 6) ** -0.25)
    assert lower_encoder_decoder("t-fixup", "sgd", 6, 6, D).decoder_embedding_std is None
    scaled = Block(embedding_std=0.5).on(config)
    assert scaled.embedding_std_of("decoder") == pytest.approx(0.5 * (9 * 4) ** -0.25)


def side_numbers(config: ModelConfig) -> dict[str, dict[str, float]]:
    """By side the residual weight and the gains, each of which must be one number throughout."""
    found: dict[str, dict[str, float]] = {}
    for name, sublayers in config.sides:
        numbers: dict[str, set[float]] = {}
        for one in sublayers:
            numbers.setdefault("a", set()).add(one.residual_weight)
            for gain in one.gains.values():
                numbers.setdefault("cross" if one.kind == "cross" else "g", set()).add(gain)
        found[name] = {key: values.pop() for key, values in numbers.items() if len(values) == 1}
    return found


@pytest.mark.parametrize("name", CASES)
def test_encoder_decoders_have_the_printed_laws(name: str) -> None:
    for n, m in COUNTS:
        config = lower_encoder_decoder(name, "sgd", n, m, D)
        assert [one.kind for one in config.encoder] == ["attention", "ffn"] * n
        assert [one.kind for one in config.decoder] == ["attention", "cross", "ffn"] * m
        assert set(config.decoder[1].gains) == {"cross_v", "cross_out"}
        for side, numbers in CASES[name](n, m).items():
            assert side_numbers(config)[side] == equal(numbers)


def test_admin_counts_each_side_from_its_own_bottom() -> None:
    config = lower_encoder_decoder("admin", "sgd", 2, 2, D, ffn_ratio=1)
    squares = [[one.residual_weight**2 for one in sublayers] for _, sublayers in config.sides]
    assert squares == [pytest.approx([1, 2, 2.5, 3.5]), pytest.approx([1, 2, 3, 3.5, 4.5, 5.5])]


def test_which_sources_print_an_encoder_decoder() -> None:
    printed = {*PRINTED, "rezero", "skipinit", "branch-ln", "mix-ln", "hybrid-norm", "dyt", "derf", "residual"}
    for name in SCHEMES:
        assert has_encoder_decoder(scheme(name)) == (name in printed)
        if name not in printed:
            with pytest.raises(ValueError, match=f"^{name}: its source prints no encoder-decoder .*deepnorm"):
                lower_encoder_decoder(name, "sgd", 2, 2, D)


REFUSED: dict[str, Callable[[], ModelConfig]] = {
    "d_model 10 is not a multiple of num_heads 4": lambda: lower_transformer("pre-ln", "sgd", 4, 10, num_heads=4),
    "num_sublayers 0 is out of range: 1 to": lambda: lower_ffn("pre-ln", "sgd", 0, D),
    "num_sublayers 1 is out of range: 2 to": lambda: lower_ffn("sub-ln-gamma", "sgd", 1, D),
    "d_model is at least 1, not 0": lambda: lower_ffn("pre-ln", "sgd", 4, 0),
    "the encoder has a whole number of layers": lambda: lower_encoder_decoder("deepnorm", "sgd", 0, 2, D),
    "the decoder has a whole number of layers": lambda: lower_encoder_decoder("pre-ln", "sgd", 2, 0, D),
    "the gain at 9 sublayers": lambda: lower_ffn(custom_scheme("pre", gain=(Fraction(1), Fraction(20))), "sgd", 9, D),
    "did you mean pre-ln": lambda: lower_ffn("pre-lm", "sgd", 4, D),
    "did you mean sgd": lambda: lower_ffn("pre-ln", "sdg", 4, D),
    "activation is one of": lambda: lower_ffn("pre-ln", "sgd", 4, D, activation="rel"),
    "norm_kind is": lambda: lower_ffn("pre-ln", "sgd", 4, D, norm_kind="batch"),
    "w has 3 gains for 2 sublayers": lambda: lower_ffn("pre-ln", "sgd", 2, D, w=GAINS),
    "v of sublayer 2 is -1.0": lambda: lower_ffn("pre-ln", "sgd", 3, D, v=[1.0, -1.0, 1.0]),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_built_is_refused_in_one_line(said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        REFUSED[said]()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_learning_rates_of_a_scheme_are_those_of_all_matrices_of_a_branch(activation: str) -> None:
    """The third matrix of a gated FFN too."""
    attention, ffn = lower_transformer("depth-mup", "adam", 2, 16, activation=activation).encoder
    assert attention.lr_multipliers.keys() == {"q", "k", "v", "out"}
    assert ffn.lr_multipliers.keys() == {"fc1", "fc2"} | ({"fc3"} if activation == "swiglu" else set())
