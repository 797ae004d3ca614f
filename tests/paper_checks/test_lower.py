"""Schemes lowered to plain numbers, against `tests.realnet`'s own transcription and the printed encoder-decoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from scipy.special import stdtrit
from sympy import Integer, Rational

from paper_checks.lowering import lower
from paper_checks.lowering.lower import (
    branch_second,
    has_encoder_decoder,
    lower_encoder_decoder,
    lower_ffn,
    lower_transformer,
)
from sims.model import PLACEMENTS, ModelConfig, SublayerConfig, Transformer
from tests import realnet
from theory.optimizers import OPTIMIZERS
from theory.schemes import SCHEMES, Scheme, custom_scheme, scheme
from theory.stack import SCALED_ROLES, Placement, SublayerKind
from theory.symbols import L

D = 8
ROUNDING = 1e-12
TRAPEZOID = math.ulp(12.0) / 2.5e-4
"""Of `realnet.second_moment`: its step, 2.5e-4, is the difference of two numbers next to 12."""
LENGTHS = (2, 3, 8, 25)
GAINS = [0.5, 1.25, 2.0]
TRAINED = {"rezero", "skipinit", "fixup"}
PRINTED = ("post-ln", "pre-ln", "sub-ln", "peri-ln", "normformer", "deepnorm", "sub-ln-gamma", "admin", "t-fixup")


def letters(config: ModelConfig) -> dict[str, list[float]]:
    """a, b, c, w, v of an FFN-only stack, and the multipliers of its two matrices' learning rates."""
    found = config.encoder
    return {
        "a": [one.residual_weight for one in found],
        "b": [one.branch_weight for one in found],
        "c": [one.input_scale for one in found],
        "w": [one.gains["fc1"] for one in found],
        "v": [one.gains["fc2"] for one in found],
        "lr": [one.lr_multipliers.get(role, 1.0) for one in found for role in ("fc1", "fc2")],
    }


def wrong(config: ModelConfig, name: str, optimizer: str = "sgd", **gains: Sequence[float]) -> set[str]:
    """The letters in which a stack is not `realnet`'s, beyond rounding."""
    length = len(config.encoder)
    stack = realnet.scheme_numbers(name, length, config.activation, config.norm_kind, **gains)
    expected = {letter: list(of(stack, letter)) for letter in "abcwv"}
    expected["lr"] = [stack.lr_multiplier.get(optimizer, 1.0)] * (2 * length)
    within = TRAPEZOID if name == "admin" else ROUNDING
    return {key for key, found in letters(config).items() if found != pytest.approx(expected[key], rel=within, abs=0.0)}


def of(stack: realnet.Stack, letter: str) -> tuple[float, ...]:
    return {"a": stack.a, "b": stack.b, "c": stack.c, "w": stack.w, "v": stack.v}[letter]


# ---------------------------------------------------------------- FFN-only stacks


@pytest.mark.parametrize("name", SCHEMES)
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
    ("name", "norm_kind"), [*((name, "layernorm") for name in SCHEMES), ("sub-ln", "rmsnorm"), ("admin", "rmsnorm")]
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


def mutant(name: str, **letters: Any) -> Scheme:
    return replace(scheme(name), stack=replace(scheme(name).stack, **letters))


@pytest.mark.parametrize(
    ("built", "name", "found"),
    [
        (mutant("gpt2", gain_in=L ** -Fraction(1, 2), gain_out=L**0), "gpt2", {"w", "v"}),
        (mutant("deepnorm", residual_weight=(2 * L) ** Fraction(1, 4)), "deepnorm", {"a"}),
        (mutant("t-fixup", gain_in=scheme("t-fixup").stack.gain_in.subs(L, 2 * L)), "t-fixup", {"w"}),
        (mutant("completep", branch_weight=1 / L), "completep", {"b"}),
        (mutant("ln-scaling", input_scale=L**0), "ln-scaling", {"c"}),
        (mutant("admin", residual_weight=L**0), "admin", {"a"}),
        (replace(scheme("depth-mup"), sign_lr_multiplier=L**-1), "depth-mup", {"lr"}),
    ],
    ids=lambda value: value.name if isinstance(value, Scheme) else "",
)
def test_a_wrong_number_in_a_scheme_is_seen(built: Scheme, name: str, found: set[str]) -> None:
    assert wrong(lower_ffn(built, "adam", 8, D), name, "adam") == found


def test_a_wrong_multiplier_of_the_learning_rate_is_seen() -> None:
    assert wrong(lower_ffn("depth-mup", "lamb", 8, D), "depth-mup", "adam") == {"lr"}
    assert wrong(lower_ffn("depth-mup", "adam", 8, D), "depth-mup", "lamb") == {"lr"}


def test_swapped_roles_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = {kind: (second, first) for kind, (first, second) in SCALED_ROLES.items()}
    monkeypatch.setattr(lower, "SCALED_ROLES", swapped)
    assert wrong(lower_ffn("gpt2", "sgd", 8, D), "gpt2") == {"w", "v"}
    assert by_role("gpt2", 4) != EXPECTED["gpt2"](4)


# ---------------------------------------------------------------- Transformers


def by_role(name: str, length: int) -> list[dict[str, float]]:
    return [dict(one.gains) for one in lower_transformer(name, "sgd", length, D).encoder]


EXPECTED: dict[str, Callable[[int], list[dict[str, float]]]] = {
    "gpt2": lambda n: [{"v": 1.0, "out": n**-0.5}, {"fc1": 1.0, "fc2": n**-0.5}] * (n // 2),
    "fixup": lambda n: [{"v": n**-0.5, "out": 0.0}, {"fc1": n**-0.5, "fc2": 0.0}] * (n // 2),
    "su-adam": lambda n: [{"v": n**-0.5, "out": n**-0.5}, {"fc1": n**-0.5, "fc2": n**-0.5}] * (n // 2),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_output_projections_and_inputs_have_their_own_gains(name: str) -> None:
    assert by_role(name, 4) == EXPECTED[name](4)


KINDS = (("attention", ("v", "out"), ("q", "k")), ("ffn", ("fc1", "fc2"), ()))


@pytest.mark.parametrize("name", SCHEMES)
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
            gains = {role: one.gains.get(role, 1.0) for role in roles}
            expected = {**dict.fromkeys(roles, 1.0), scaled[0]: stack.w[index], scaled[1]: stack.v[index]}
            assert gains == pytest.approx(expected, rel=ROUNDING, abs=0.0)
            rates = {role: one.lr_multipliers.get(role, 1.0) for role in roles}
            assert rates == pytest.approx(dict.fromkeys(roles, rate), rel=ROUNDING, abs=0.0)
            assert set(one.lr_multipliers) <= set(roles)
            assert one.branch_weight == pytest.approx(stack.b[index], rel=ROUNDING, abs=0.0)
            assert one.input_scale == pytest.approx(stack.c[index], rel=ROUNDING, abs=0.0)
            assert one.trains_branch_weight == (name in TRAINED)
            if name != "admin":
                assert one.residual_weight == pytest.approx(stack.a[index], rel=ROUNDING, abs=0.0)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_runs(name: str) -> None:
    configs = [lower_ffn(name, "adam", 3, D), lower_transformer(name, "adam", 3, D, num_heads=2)]
    if has_encoder_decoder(scheme(name)):
        configs.append(lower_encoder_decoder(name, "adam", 1, 1, D, num_heads=2))
    for config in configs:
        model = Transformer(config, 0)
        x_BTD = torch.randn((1, 3, D), dtype=torch.float64)
        assert model(x_BTD, x_BTD if config.decoder else None).isfinite().all()
        assert ("branch_weight" in model.roles.values()) == (name in TRAINED)
        norms = PLACEMENTS[config.placement] - ({"branch"} if name == "normformer" else set())
        assert norms == realnet.scheme_numbers(name, 3).norms
        assert (config.placement == "normformer") == (name == "normformer")


def test_a_scheme_of_one_s_own_is_lowered() -> None:
    quarter = Fraction(1, 4)
    own = custom_scheme("peri", residual_weight=(Fraction(2), quarter), gain=(Fraction(1), -quarter))
    config = lower_transformer(own, "lion", 16, D)
    assert (config.placement, config.encoder[0].residual_weight, config.encoder[1].gains["fc2"]) == ("peri", 4.0, 0.5)


# ---------------------------------------------------------------- Admin's variances, measured


def admin_weights(length: int, ratio: int) -> list[float]:
    """a_l of a Transformer with relu at gains 1, whose E phi(s z)^2 is s^2/2."""
    variances = {"attention": 1.0, "ffn": 2 * ratio / (1 + ratio) / (1 + ratio)}
    weights, total = [], 1.0
    for index in range(length):
        weights.append(math.sqrt(total))
        total += variances["ffn" if index % 2 else "attention"]
    return weights


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_admin_s_residual_weights_in_a_transformer(ratio: int) -> None:
    found = [one.residual_weight for one in lower_transformer("admin", "sgd", 7, D, ffn_ratio=ratio).encoder]
    assert found == pytest.approx(admin_weights(7, ratio), rel=ROUNDING, abs=0.0)
    assert found != pytest.approx(admin_weights(7, ratio + 1), rel=ROUNDING, abs=0.0)


def test_admin_s_variances_are_behind_the_input_scale_and_the_branch_weight() -> None:
    halved = mutant("admin", input_scale=Rational(1, 2), branch_weight=Integer(3))
    squares = [one.residual_weight**2 for one in lower_ffn(halved, "sgd", 3, D).encoder]
    assert squares == pytest.approx([1, 1 + 9 / 8, 1 + 9 / 4])


NUM_SEEDS, ERROR = 150, 1e-4


def measured(kind: str, w: float, v: float, shape: ModelConfig) -> tuple[float, float]:
    """The interval of the mean of f^2 over real branches, input of second moment 1, three equal tokens."""
    roles = {"attention": ("v", "out"), "cross": ("cross_v", "cross_out"), "ffn": ("fc1", "fc2")}[kind]
    branch = SublayerConfig(kind=kind, residual_weight=0.0, gains=dict(zip(roles, (w, v), strict=True)))
    if kind == "cross":
        config = replace(shape, encoder=(SublayerConfig(kind="ffn", branch_weight=0.0),), decoder=(branch,))
    else:
        config = replace(shape, encoder=(branch,))
    squares = []
    for seed in range(NUM_SEEDS):
        x_D = torch.randn(shape.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(10**6 + seed))
        x_BTD = (x_D / x_D.square().mean().sqrt()).expand(1, 3, -1)
        with torch.no_grad():
            squares.append(float(Transformer(config, seed)(x_BTD, x_BTD if kind == "cross" else None).square().mean()))
    values = torch.tensor(squares, dtype=torch.float64)
    half = float(stdtrit(NUM_SEEDS - 1, 1 - ERROR / 2) * values.std() / math.sqrt(NUM_SEEDS))
    return float(values.mean()) - half, float(values.mean()) + half


@pytest.mark.parametrize(
    ("kind", "activation", "ratio"),
    [
        (SublayerKind.FFN, "relu", 4),
        (SublayerKind.FFN, "gelu", 2),
        (SublayerKind.FFN, "swiglu", 8),
        (SublayerKind.SELF, "relu", 4),
        (SublayerKind.CROSS, "relu", 4),
    ],
    ids=lambda value: value.value if isinstance(value, SublayerKind) else str(value),
)
def test_a_branch_s_variance_is_that_of_real_branches(kind: SublayerKind, activation: str, ratio: int) -> None:
    shape = ModelConfig(
        encoder=(SublayerConfig(kind="ffn"),), placement="none", d_model=24, ffn_ratio=ratio, activation=activation
    )
    low, high = measured(lower.KINDS[kind], 1.5, 0.7, shape)
    assert low < branch_second(kind, 1.5, 0.7, shape) < high
    assert not low < branch_second(kind, 1.5, 0.7 * math.sqrt(1.4), shape) < high
    if kind is SublayerKind.FFN:  # as if the matrices were square, and with the gains in each other's place
        assert not low < branch_second(kind, 1.5, 0.7, replace(shape, ffn_ratio=1)) < high


# ---------------------------------------------------------------- encoder-decoders

COUNTS = ((1, 1), (6, 6), (18, 4), (3, 50))
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
}


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


def differing(found: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]) -> set[str]:
    return {side for side in expected if found[side] != pytest.approx(expected[side], rel=ROUNDING, abs=0.0)}


@pytest.mark.parametrize("name", CASES)
def test_encoder_decoders_have_the_printed_laws(name: str) -> None:
    for n, m in COUNTS:
        config = lower_encoder_decoder(name, "sgd", n, m, D)
        assert [one.kind for one in config.encoder] == ["attention", "ffn"] * n
        assert [one.kind for one in config.decoder] == ["attention", "cross", "ffn"] * m
        assert set(config.decoder[1].gains) == {"cross_v", "cross_out"}
        assert not differing(side_numbers(config), CASES[name](n, m))
    swapped = side_numbers(lower_encoder_decoder(name, "sgd", 4, 18, D))
    assert differing(swapped, CASES[name](18, 4)) == {"encoder", "decoder"}
    assert "encoder" in differing(side_numbers(lower_encoder_decoder(name, "sgd", 8, 4, D)), CASES[name](4, 4))


def test_deepnorm_s_decimals_are_those_printed() -> None:
    for n, m in COUNTS:
        found = side_numbers(lower_encoder_decoder("deepnorm", "sgd", n, m, D))["encoder"]
        size = (n**4 * m) ** (1 / 16)
        assert (f"{found['a'] / size:.2f}", f"{found['g'] * size:.2f}") == ("0.81", "0.87")


@pytest.mark.parametrize("name", ["post-ln", "pre-ln", "sub-ln", "peri-ln", "normformer"])
def test_constant_schemes_are_as_they_are(name: str) -> None:
    one = {"a": 1.0, "g": 1.0}
    assert side_numbers(lower_encoder_decoder(name, "adam", 3, 2, D)) == {
        "encoder": one,
        "decoder": {**one, "cross": 1},
    }


def test_admin_counts_each_side_from_its_own_bottom() -> None:
    config = lower_encoder_decoder("admin", "sgd", 2, 2, D, ffn_ratio=1)
    squares = [[one.residual_weight**2 for one in sublayers] for _, sublayers in config.sides]
    assert squares == [pytest.approx([1, 2, 2.5, 3.5]), pytest.approx([1, 2, 3, 3.5, 4.5, 5.5])]


def test_which_sources_print_an_encoder_decoder() -> None:
    assert {name for name in SCHEMES if has_encoder_decoder(scheme(name))} == {*PRINTED, "rezero", "skipinit"}
    for name in set(SCHEMES) - {*PRINTED, "rezero", "skipinit"}:
        with pytest.raises(ValueError, match=f"^{name}: its source prints no encoder-decoder .*deepnorm"):
            lower_encoder_decoder(name, "sgd", 2, 2, D)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: lower_transformer("pre-ln", "sgd", 4, 10, num_heads=4), "d_model 10 is not a multiple of num_heads 4"),
        (lambda: lower_ffn("pre-ln", "sgd", 0, D), "num_sublayers 0 is out of range: 1 to"),
        (lambda: lower_transformer("pre-ln", "sgd", -2, D), "num_sublayers -2 is out of range: 1 to"),
        (lambda: lower_ffn("sub-ln-gamma", "sgd", 1, D), "num_sublayers 1 is out of range: 2 to"),
        (lambda: lower_ffn("pre-ln", "sgd", 4, 0), "d_model is at least 1, not 0"),
        (lambda: lower_encoder_decoder("deepnorm", "sgd", 0, 2, D), "the encoder has a whole number of layers from 1"),
        (lambda: lower_encoder_decoder("pre-ln", "sgd", 2, 0, D), "the decoder has a whole number of layers from 1"),
        (
            lambda: lower_ffn(custom_scheme("pre", gain=(Fraction(1), Fraction(20))), "sgd", 9, D),
            "the gain at 9 sublayers",
        ),
        (lambda: lower_ffn("pre-lm", "sgd", 4, D), "did you mean pre-ln"),
        (lambda: lower_ffn("pre-ln", "sdg", 4, D), "did you mean sgd"),
        (lambda: lower_ffn("pre-ln", "sgd", 4, D, activation="rel"), "activation is one of"),
        (lambda: lower_ffn("pre-ln", "sgd", 4, D, norm_kind="batch"), "norm_kind is"),
        (lambda: lower_ffn("pre-ln", "sgd", 2, D, w=GAINS), "w has 3 gains for 2 sublayers"),
        (lambda: lower_ffn("pre-ln", "sgd", 3, D, v=[1.0, -1.0, 1.0]), "v of sublayer 2 is -1.0"),
        (
            lambda: lower_ffn(mutant("pre-ln", placement=Placement(pre=True)), "sgd", 3, D),
            "pre-ln: sims has no network with norms at",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(build: Callable[[], ModelConfig], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        build()
    assert "\n" not in str(refused.value)
