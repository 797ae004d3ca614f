"""What Magneto's claims rest on beside counterexamples: limits, closed sums and measurements, each by another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
import torch
from sympy import S

from paper_checks.claims.statements import Growth
from paper_checks.papers.magneto.explosion import in_the_limit
from paper_checks.papers.magneto.goal import _alternating_update
from paper_checks.routes import second_meanfield, wide_networks
from paper_checks.routes.algebra import rational_gains
from paper_checks.routes.gelu_growth import _log_update
from paper_checks.routes.update_bounds import measured_update
from sims.model import ModelConfig, Transformer, alternating, gradients

SURE = 5.0
"""Standard errors on either side of a mean."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    sample = torch.tensor(values, dtype=torch.float64)
    mean, half = float(sample.mean()), SURE * float(sample.std()) / math.sqrt(len(sample))
    return mean - half, mean + half


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
def test_S2_17_the_condition_is_the_limit(norm_kind: str) -> None:
    """Both sides of the condition that is stated, at rational gains, against exact updates at w_l = 10^9."""
    signs = set()
    for length in (1, 2, 4, 7):
        for case in range(4):
            v, w = rational_gains(length, case)
            for place in range(length):
                sides = in_the_limit(norm_kind, v, w, place)
                exploding = [Fraction(10**9) if i == place else g for i, g in enumerate(w)]
                updates = [
                    float(second_meanfield.update(name, v, exploding, norm_kind=norm_kind))
                    for name in ("sub-ln", "pre-ln")
                ]
                assert updates == pytest.approx([float(side) for side in sides], rel=1e-9)
                signs.add(sides[0] < sides[1])
    assert signs == {True, False}


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("scheme", ["pre-ln", "sub-ln", "sub-ln-gamma"])
def test_S3_10_sums_in_gamma_functions_are_the_sums(scheme: str, norm_kind: str) -> None:
    """GELU's closed sums at a depth that can be added up, too: they leave out what is of the order of 1/L."""
    statement = Growth(scheme=scheme, activation="gelu", norm_kind=norm_kind, order=S.One)
    for length in (10**4, 10**6):
        added = second_meanfield.log_update(scheme, length, "gelu", norm_kind)
        assert float(_log_update(statement, math.log(length))) == pytest.approx(added, abs=5 / length)


@pytest.mark.parametrize(("placement", "activation"), [("sub", "relu"), ("post", "gelu"), ("pre", "relu")])
def test_S3_10_matrices_that_are_not_written_down(placement: str, activation: str) -> None:
    """The networks by which the claims measure growth, against those of full matrices, at the same width and depth."""
    gains = (1.5,) * 4
    written = measured_update(f"{placement}-ln", gains, gains, activation, num_networks=480)
    drawn = wide_networks.updates(placement, 4, 1.5, (activation,), width=64, num_networks=4000)
    low, high = interval(drawn)
    assert low < written.high
    assert written.low < high
    assert written.high - written.low < 0.3 * written.low
    assert high - low < 0.1 * written.low


def of_one_token(num_sublayers: int, norm_kind: str) -> tuple[float, float]:
    """Of one token, which attention passes through two matrices and no activation; matrices are not written down."""
    gain = math.sqrt(math.log(num_sublayers))
    shape = ("sub", num_sublayers, gain, ("identity", "relu"), norm_kind)
    return interval(wide_networks.updates(*shape, width=512, num_networks=150))


@cache
def of_a_model(num_sublayers: int, norm_kind: str, num_seeds: int = 72) -> tuple[float, float]:
    """The update of a whole model, attention and FFN in turn, four tokens, gains sqrt(log L) but those of q and k."""
    width, updates = 96, []
    gains: dict[str, float] = dict.fromkeys(("v", "out", "fc1", "fc2"), math.sqrt(math.log(num_sublayers)))
    config = ModelConfig(
        encoder=alternating(num_sublayers, gains=gains),
        placement="sub",
        d_model=width,
        ffn_ratio=1,
        norm_kind=norm_kind,
    )
    for seed in range(num_seeds):
        model, generator = Transformer(config, seed), torch.Generator().manual_seed(1000 + seed)
        x_BTD, head_BTD = torch.randn((2, 2, 4, width), generator=generator, dtype=torch.float64)
        outputs_B = (model(x_BTD)[:, -1] * head_BTD[:, -1]).sum(-1) / math.sqrt(width)
        squares = [sum(float(g.square().sum()) for g in gradients(model, output).values()) for output in outputs_B]
        updates.append(sum(squares) / len(squares) / width)
    return interval(updates)


@pytest.mark.parametrize("update", [of_one_token, pytest.param(of_a_model, marks=pytest.mark.slow)])
def test_S2_24_the_model_with_attention(update: Callable[[int, str], tuple[float, float]]) -> None:
    """Half its sublayers are attention: its update rises with depth as well, by less; behind RMSNorm it does not."""
    assert update(4, "layernorm")[1] < update(48, "layernorm")[0]
    assert update(48, "rmsnorm")[1] < update(48, "layernorm")[0]
    assert update(48, "rmsnorm")[0] < update(4, "rmsnorm")[1]


def test_S2_24_half_the_power() -> None:
    """log(L^(kappa - 1)) of the sums that the claim's check adds up, against 1/(2 (pi - 1)) = 0.233, as L grows."""
    sums = [_alternating_update(length) * math.log(length) for length in (10**3, 10**4, 10**5, 10**6)]
    powers = [math.log10(late / early) for early, late in pairwise(sums)]
    assert powers == sorted(powers, reverse=True)
    assert 1 / (2 * (math.pi - 1)) < powers[-1] < 0.26
