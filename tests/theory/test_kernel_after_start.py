"""Laws behind the first steps: what each takes from the first step's, by identities and by what is done by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from depthlaw.sims.optim import make
from depthlaw.theory.kernel.after_start import LAWS, MOMENTUM, made, predict_after_start
from depthlaw.theory.kernel.predict import Inputs, KernelUpdate, Sublayer, Transformer, predict_kernel
from depthlaw.theory.stack import SublayerKind

SELF, FFN = SublayerKind.SELF, SublayerKind.FFN
INPUTS = Inputs(num_tokens=3)
LAYER = (Sublayer(kind=SELF), Sublayer(kind=FFN))
PRE = Transformer(encoder=2 * LAYER, placement="pre")
D = 64


def asked(network: Transformer, optimizer: str, *, is_noise: bool = False) -> KernelUpdate:
    return predict_kernel(network, INPUTS, [optimizer], effort=1 / 4, replicates=1, is_noise=is_noise)[optimizer]


def later(law: str, network: Transformer, optimizer: str = "adamw", size: float = 1.0) -> KernelUpdate:
    return predict_after_start(law, network, INPUTS, optimizer, size, D, effort=1 / 4, replicates=1)


def with_rates(rate: float) -> Transformer:
    sublayers = (
        replace(one, lr_multipliers=dict.fromkeys(("q", "k", "v", "out", "fc1", "fc2"), rate)) for one in LAYER
    )
    return replace(PRE, encoder=2 * tuple(sublayers))


def test_noise_of_signs_is_the_root_of_what_the_gradient_itself_would_move() -> None:
    """E <g, s>^2 = ||g||^2 for independent signs s, which is the update of sgd, by role."""
    of_gradient, of_signs = asked(PRE, "sgd"), asked(PRE, "adam", is_noise=True)
    matrices = {"q", "k", "v", "out", "fc1", "fc2"}
    assert set(of_signs.roles) == matrices
    for role in matrices:
        assert of_signs.roles[role] ** 2 == pytest.approx(of_gradient.roles[role])
    assert of_signs.update**2 == pytest.approx(of_gradient.update)
    assert of_signs.update == pytest.approx(math.hypot(*of_signs.roles.values()))
    assert asked(with_rates(0.5), "adam", is_noise=True).update == pytest.approx(of_signs.update / 2)


def test_noise_of_other_steps_has_entries_as_large_as_theirs() -> None:
    of_gradient = asked(PRE, "sgd").roles
    muon, mixed = (asked(PRE, name, is_noise=True).roles for name in ("muon", "muon+adamw"))
    assert muon["fc1"] ** 2 == pytest.approx(of_gradient["fc1"] / 4)  # over the longer side, 4 d
    assert muon["out"] ** 2 == pytest.approx(of_gradient["out"])
    assert mixed["fc1"] ** 2 == pytest.approx(of_gradient["fc1"])
    xavier = math.sqrt(2 / (1 + 4))
    assert asked(PRE, "lars", is_noise=True).roles["fc2"] ** 2 == pytest.approx(of_gradient["fc2"] * xavier**2)
    one = replace(PRE, encoder=LAYER)
    # A gradient in place of the step, with entries as large as the own one's: ||g||^2 over the root of their number.
    assert asked(one, "sgd", is_noise=True).roles["fc1"] == pytest.approx(asked(one, "sgd").roles["fc1"] / 2)


def test_forgotten_gains_drop_out_and_multipliers_stay() -> None:
    scaled = replace(PRE, encoder=tuple(replace(one, gains={"v": 0.1, "out": 0.2, "fc2": 3.0}) for one in PRE.encoder))
    assert asked(scaled, "adamw").update != pytest.approx(asked(PRE, "adamw").update)
    for law in ("forgotten", "both", "aligned"):
        assert later(law, scaled).update == pytest.approx(later(law, PRE).update)
        assert later(law, PRE, size=2.0).update != pytest.approx(later(law, PRE).update)
    # A matrix whose rate is half is made half as large, and moves half as far.
    halved = with_rates(0.5)
    assert later("forgotten", halved).update == pytest.approx(later("forgotten", PRE, size=0.5).update / 2)
    assert later("first", PRE).update == asked(PRE, "adamw").update


def test_branches_in_one_direction_add_up_in_amplitude() -> None:
    """Each Pre-LN branch of one token is as long as the next: 1 + L f^2 in their own directions, 1 + (L f)^2 in one."""
    one_token = Inputs(num_tokens=1)
    for num_sublayers in (1, 2, 5):
        network = Transformer(encoder=num_sublayers * (Sublayer(kind=FFN),), placement="pre")
        ends = [
            predict_kernel(one, one_token, ["sgd"], replicates=1)["sgd"].streams["encoder"][-1].second_moment - 1
            for one in (network, replace(network, is_aligned=True))
        ]
        assert ends[1] == pytest.approx(num_sublayers * ends[0])


def test_the_growth_of_pre_ln_is_gone_where_branches_push_in_one_direction() -> None:
    updates = {law: [later(law, replace(PRE, encoder=n * LAYER), size=3.0).update for n in (8, 32)] for law in LAWS}
    exponents = {law: math.log(last / first) / math.log(4) for law, (first, last) in updates.items()}
    assert exponents["first"] > 0.5 and exponents["forgotten"] > 0.4
    assert -0.25 < exponents["aligned"] < 0.05


def test_streams_of_several_kinds_are_refused() -> None:
    for other in (
        {"has_second_stream": True, "placement": "post"},
        {"encoder": (Sublayer(kind=FFN, input_weight=1.0),)},
    ):
        with pytest.raises(ValueError, match="push in one direction"):
            replace(PRE, **other, is_aligned=True)


def walked(correlation: float, rate: float, decay: float) -> float:
    """The root mean square of w <- (1 - rate decay) w - rate u in its balance: u of length 1, correlated over time."""
    rng, entries = np.random.default_rng(0), 4000
    w, u = np.zeros(entries), rng.standard_normal(entries)
    for _ in range(round(4 / (rate * decay))):
        u = correlation * u + math.sqrt(1 - correlation**2) * rng.standard_normal(entries)
        w = (1 - rate * decay) * w - rate * u
    return float(np.sqrt((w * w).mean()))


@pytest.mark.parametrize(("optimizer", "correlation"), [("adamw", 0.0), ("muon", MOMENTUM)])
def test_where_rate_and_decay_balance(optimizer: str, correlation: float) -> None:
    rate, decay = 0.01, 0.1
    expected = made(optimizer, rate, 10**9, D, decay) * (D**-0.5 if optimizer == "adamw" else 1.0)
    assert walked(correlation, rate, decay) == pytest.approx(expected, rel=0.05)


@pytest.mark.wide
def test_where_lion_s_rate_and_decay_balance() -> None:
    """Of the real optimizer, on gradients that are independent of each other."""
    rate, decay = 0.02, 0.01
    theta = torch.nn.Parameter(torch.zeros(8000))
    theta.grad = torch.empty_like(theta)
    optimizer = make("lion", [theta], rate, weight_decay=decay)
    for _ in range(round(2 / (rate * decay))):
        theta.grad.normal_()
        optimizer.step()
    assert made("lion", rate, 10**9, 1, decay) == pytest.approx(float(theta.detach().square().mean().sqrt()), rel=0.06)
    assert made("lion", rate, 10, D, decay) == made("signsgd", rate, 10, D, decay)


def test_what_is_made_is_of_steps_with_a_length_of_their_own() -> None:
    assert made("muon+adamw", 0.01, 10, D) == pytest.approx(0.2 * made("adamw", 0.01, 10, D))
    assert made("adam", 0.01, 10, D) == pytest.approx(0.1 * math.sqrt(D))
    for optimizer, decay in (("sgd", 0.0), ("lamb", 0.0), ("adam", 0.1)):
        with pytest.raises(ValueError, match=f"^{optimizer}: w"):
            made(optimizer, 0.01, 10, D, decay)
