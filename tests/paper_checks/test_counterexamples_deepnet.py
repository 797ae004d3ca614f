"""DeepNet's refuted claims again, by torch's own layers and autograd.

The claims find their counterexamples anew in every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from depthlaw.paper_checks.papers.deepnet.models import deepnet_scales

pytestmark = pytest.mark.slow

Pair = tuple[float, float]
ONE = torch.ones((), dtype=torch.float64)


# ---------------------------------------------------------------- the scalar model: DN-03, DN-07


def leaves(pairs: Sequence[Pair]) -> list[Tensor]:
    """(v, w) of each sublayer, to differentiate by."""
    return [torch.tensor(pair, dtype=torch.float64, requires_grad=True) for pair in pairs]


def sublayer(x: Tensor, theta: Tensor, alpha: float, memory: Tensor | None = None) -> Tensor:
    """f of the paper's appendix, d = 1; a cross-attention reads ``memory``."""
    v, w = theta
    return (alpha * x + v * w * (x if memory is None else memory)) / (alpha**2 + (v * w) ** 2).sqrt()


def stack(thetas: Sequence[Tensor], alpha: float) -> Tensor:
    """F of an input of 1; F is linear, so this is its slope too."""
    x = ONE
    for theta in thetas:
        x = sublayer(x, theta, alpha)
    return x


def squared_gradients(num_layers: int) -> tuple[list[float], list[float]]:
    """||dF/dtheta||^2 of the sublayers of an encoder and of a decoder, of so many layers each, as printed."""
    (alpha_e, beta_e), (alpha_d, beta_d) = deepnet_scales(num_layers, num_layers)
    assert 0 < beta_e < 1 < alpha_e
    assert 0 < beta_d < 1 < alpha_d
    encoder, decoder = leaves([(beta_e, beta_e)] * (2 * num_layers)), leaves([(beta_d, beta_d)] * (3 * num_layers))
    memory, y = stack(encoder, alpha_e), ONE
    for index, theta in enumerate(decoder):
        y = sublayer(y, theta, alpha_d, memory if index % 3 == 1 else None)
    squares = [float(grad.square().sum()) for grad in torch.autograd.grad(y, encoder + decoder)]
    return squares[: 2 * num_layers], squares[2 * num_layers :]


@pytest.mark.parametrize(("num_layers", "of_encoder", "of_cross"), [(2, 1.110, 4.155), (100, 24.57, 46.02)])
def test_DN_03_at_deepnets_own_alpha_and_beta(num_layers: int, of_encoder: float, of_cross: float) -> None:
    """The first sublayer of each side over its bound; that of the encoder is behind the coupling."""
    (alpha_e, beta_e), (alpha_d, beta_d) = deepnet_scales(num_layers, num_layers)
    encoder, decoder = squared_gradients(num_layers)
    coupling = num_layers * beta_d**2 / alpha_d
    assert math.sqrt(encoder[0] / 2) * alpha_e / beta_e / coupling == pytest.approx(of_encoder, rel=1e-3)
    assert math.sqrt(decoder[1] / 2) * alpha_d / beta_d == pytest.approx(of_cross, rel=1e-3)


def test_DN_07_in_the_scalar_model_itself() -> None:
    """N = M, by autograd: the encoder's sum of squared slopes, which should be bounded."""
    for num_layers, printed in ((6, 10.42), (100, 423.7)):
        assert sum(squared_gradients(num_layers)[0]) == pytest.approx(printed, rel=2e-3)
