"""The counterexamples to Magneto's bounds again, on real networks: gradients by autograd, intervals from their seeds.

Nothing here reads the checks of the claims or, where a network is measured, the theory: the printed bounds are those of
``tests/printed_bounds.py``, the networks those of ``tests/realnet.py``, and an encoder-decoder of this file.

The claims find their counterexamples anew in every run; this second look at them, by other code, is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor

from tests import realnet
from tests.printed_bounds import printed_coupling_sub, printed_pre, printed_sub

pytestmark = pytest.mark.slow

SURE = 5.0
"""Standard errors on either side of a mean: wrong once in a million."""

Interval = tuple[float, float]
Networks = tuple[tuple[int, int], ...]
"""(width, how many) each."""
IMPLICIT: Networks = ((64, 1500), (256, 1000), (1024, 1000))
EXPLICIT: Networks = ((32, 2000), (64, 2000))
READOUT: Networks = ((32, 400), (64, 400), (128, 400))
DEEP: Networks = ((512, 400), (1024, 400))
PRINTED = {"pre-ln": printed_pre, "sub-ln": printed_sub}


def around(mean: float, error: float) -> Interval:
    return mean - SURE * error, mean + SURE * error


def interval(sample: Tensor) -> Interval:
    return around(float(sample.mean()), float(sample.std()) / math.sqrt(len(sample)))


@cache
def updates(
    scheme: str,
    v: tuple[float, ...],
    w: tuple[float, ...],
    activation: str = "relu",
    norm_kind: str = "layernorm",
    matrices: str = "implicit",
) -> list[Interval]:
    """The mean update in units of eta d, by width."""
    stack = realnet.scheme_numbers(scheme, len(v), activation, norm_kind, v=v, w=w)
    networks = IMPLICIT if matrices == "implicit" else EXPLICIT
    runs = (realnet.measure(stack, width, number, width, matrices=matrices) for width, number in networks)
    return [interval(run["square", "update"]) for run in runs]


@cache
def of_scheme(
    width: int, number: int, scheme: str, num_sublayers: int, activation: str, norm_kind: str = "layernorm"
) -> Interval:
    stack = realnet.scheme_numbers(scheme, num_sublayers, activation, norm_kind)
    return interval(realnet.measure(stack, width, number, num_sublayers + width)["square", "update"])


def outgrows(scheme: str, activation: str, order: Callable[[int], float], depths: Sequence[int] = (4, 16, 64)) -> None:
    """The update over the printed order rises from each depth to the next; from the first to the last at one width.

    At two widths, of which the larger is so much larger than L that its 1/d effect (of order L/d) is far too small to
    make the rise; were it the cause, the rise would halve with twice the width.
    """
    rises = []
    for width, number in DEEP:
        intervals = [of_scheme(width, number, scheme, length, activation) for length in depths]
        ratios = [
            (low / order(length), high / order(length)) for (low, high), length in zip(intervals, depths, strict=True)
        ]
        for (_, high), (low, _) in pairwise(ratios):
            assert low > high, ratios
        rises.append((ratios[-1][0] / ratios[0][1] - 1, ratios[-1][1] / ratios[0][0] - 1))
    for narrow, wide in pairwise(rises):
        assert wide[0] > narrow[1] / 2, rises


# ---------------------------------------------------------------- (10) and (12)

POWERS_OF_3, ONES = (1.0, 3.0, 9.0, 27.0), (1.0,) * 32


@pytest.mark.parametrize(
    ("scheme", "gains", "network"),
    [
        ("pre-ln", POWERS_OF_3, {}),
        ("pre-ln", POWERS_OF_3, {"matrices": "explicit"}),
        ("sub-ln", ONES, {}),
        ("sub-ln", ONES, {"activation": "gelu"}),
        ("sub-ln", POWERS_OF_3, {}),
        ("sub-ln", POWERS_OF_3, {"activation": "gelu"}),
        ("sub-ln", POWERS_OF_3, {"norm_kind": "rmsnorm"}),
        ("sub-ln", POWERS_OF_3, {"activation": "gelu", "norm_kind": "rmsnorm"}),
        ("sub-ln", POWERS_OF_3, {"norm_kind": "rmsnorm", "matrices": "explicit"}),
    ],
)
def test_S2_08_and_S2_13_networks_exceed_the_bound(
    scheme: str, gains: tuple[float, ...], network: dict[str, str]
) -> None:
    """At every width the whole interval lies above the printed bound."""
    assert min(low for low, _ in updates(scheme, gains, gains, **network)) > PRINTED[scheme](gains, gains)


def test_S2_08_the_factor_has_no_limit() -> None:
    """At N = 2 and gains t^(l-1) the update stays above 1/2 while the bound goes to 0; N = 1 is safe."""
    for t, factor in ((6.0, 3), (12.0, 12)):
        gains = tuple(t**i for i in range(4))
        for low, _ in updates("pre-ln", gains, gains):
            assert low > factor * printed_pre(gains, gains)
    for _, high in updates("pre-ln", (1.0, 3.0), (1.0, 3.0)):
        assert high < printed_pre([1.0, 3.0], [1.0, 3.0])


def with_readout(scheme: str, gain: float, num_sublayers: int, norm_kind: str, width: int, number: int) -> Tensor:
    """The updates of networks with explicit matrices, over the matrices and the label's row of W_vocab."""
    gains = [gain] * num_sublayers
    stack = realnet.scheme_numbers(scheme, num_sublayers, "relu", norm_kind, v=gains, w=gains)
    generator = torch.Generator().manual_seed(width)
    trained: list[Tensor] = []

    def linear(role: str, index: int, x_SD: Tensor) -> Tensor:
        weight_SDD = gain / math.sqrt(width) * realnet.draw((number, width, width), generator)
        trained.append(weight_SDD.requires_grad_())
        return torch.bmm(weight_SDD, x_SD.unsqueeze(-1)).squeeze(-1)

    x_SD = realnet.draw((number, width), generator)
    row_SD = (realnet.draw((number, width), generator) / math.sqrt(width)).requires_grad_()
    grads = torch.autograd.grad((row_SD * realnet.forward(stack, x_SD, linear)).sum(), [row_SD, *trained])
    return sum((grad.square().flatten(1).sum(1) / width for grad in grads), torch.zeros(number, dtype=torch.float64))


@pytest.mark.parametrize(("scheme", "norm_kind"), [("pre-ln", "layernorm"), ("sub-ln", "rmsnorm")])
def test_S2_08_and_S2_13_with_the_readout(scheme: str, norm_kind: str) -> None:
    """At v = w = 2 and two sublayers W_vocab adds the bound itself; at v = w = 8 and four, twelve times it."""
    for gain, num_sublayers, factor in ((2.0, 2, 1.3), (8.0, 4, 11.0)):
        bound = PRINTED[scheme]([gain] * num_sublayers, [gain] * num_sublayers)
        samples = [with_readout(scheme, gain, num_sublayers, norm_kind, *one) for one in READOUT]
        assert all(interval(sample)[0] > factor * bound for sample in samples)
        assert interval(samples[-1] - 1)[1] < bound  # of the branch matrices alone


@pytest.mark.parametrize(("scheme", "input_second"), [("pre-ln", 2.0), ("sub-ln", 1.0)])
def test_S2_08_and_S2_13_condition_is_sharp(scheme: str, input_second: float) -> None:
    """Where S_L/(c + s_1) <= 1 + sum_k s_k/S_(k-1), every ratio v_l/w_l is safe; elsewhere a large v_1/w_1 is not."""
    from theory.meanfield.update import predict

    for branches in ([1.0] * 4, [1.0] * 40, [1.0, 4.0, 16.0], [40.0, 2.0, 1.0], [9.0, 30.0, 200.0, 900.0]):
        totals = list(accumulate(branches))
        chain = 1 + sum(s / total for s, total in zip(branches[1:], totals, strict=False))
        holds = totals[-1] / (input_second + branches[0]) <= chain
        for spread in (1e-4, 1e-2, 1.0, 1e2, 1e4):
            v, w = [math.sqrt(s) for s in branches], [1.0 if scheme == "pre-ln" else 100.0] * len(branches)
            v[0], w[0] = v[0] * (spread if scheme == "pre-ln" else 1.0), w[0] / spread
            bound = PRINTED[scheme](v, w)
            update = predict(scheme, "sgd", len(v), v=v, w=w, norm_kind="rmsnorm").update
            assert update <= bound * (1 + 1e-9) or not holds
            assert update > bound or holds or spread < 1e4


# ---------------------------------------------------------------- Magneto beside Pre-LN


def alone(index: int, length: int = 4) -> tuple[float, ...]:
    """Gains w of which one explodes."""
    return tuple(100.0 if i == index else 1.0 for i in range(length))


EQUAL, REVERSED = (1.0,) * 12, (10.0, 10.0, 10.0, 1000.0)


@pytest.mark.parametrize(
    ("w", "norm_kind", "activation", "is_larger"),
    [
        *((alone(index), norm_kind, "relu", True) for index in (0, 1) for norm_kind in ("rmsnorm", "layernorm")),
        *((alone(index), "layernorm", "gelu", True) for index in range(4)),
        *((REVERSED, norm_kind, "relu", False) for norm_kind in ("rmsnorm", "layernorm")),
        *((alone(index), "layernorm", "relu", True) for index in (2, 3)),
        (alone(3), "rmsnorm", "relu", False),
        (EQUAL, "layernorm", "relu", True),
    ],
)
def test_S2_17_S3_09_and_S3_03_sub_ln_beside_pre_ln(
    w: tuple[float, ...], norm_kind: str, activation: str, is_larger: bool
) -> None:
    """Sub-LN's update is larger where a sublayer explodes and at equal gains, but for large gains of the others, and
    for the last sublayer behind RMSNorm."""
    ones = (1.0,) * len(w)
    of_sub, of_pre = (updates(name, ones, w, activation, norm_kind) for name in ("sub-ln", "pre-ln"))
    larger, smaller = (of_sub, of_pre) if is_larger else (of_pre, of_sub)
    at_256 = IMPLICIT.index((256, 1000))
    for (low, _), (_, high) in zip(larger[at_256:], smaller[at_256:], strict=True):
        assert low > high


def test_S2_17_S3_09_and_S3_03_the_bounds_themselves() -> None:
    """Where the first sublayer explodes they are three times apart; at equal gains they are one, in closed form."""
    assert (printed_sub([1, 1], alone(0, 2)), printed_pre([1, 1], alone(0, 2))) == pytest.approx((3.0001, 1.0003))
    for v, w in ((1.0, 1.0), (0.5, 3.0), (2.0, 2.0), (7.0, 0.1)):
        gains, closed = ([v] * 12, [w] * 12), (v**-2 + w**-2) * (1 + sum(1 / i for i in range(1, 12)))
        assert printed_sub(*gains) == pytest.approx(closed)
        assert printed_pre(*gains) == pytest.approx(closed)


# ---------------------------------------------------------------- orders


def test_S2_11_and_S3_10_post_ln_with_gelu_outgrows_the_sum() -> None:
    """At gains 1 the printed sum is 2L: the update is less than it at 24 sublayers, and more at 200."""
    outgrows("post-ln", "gelu", float, depths=(8, 32, 64))
    for _, high in updates("post-ln", (1.0,) * 24, (1.0,) * 24, activation="gelu"):
        assert high < 2 * 24
    for width, number in DEEP:
        assert of_scheme(2 * width, number // 2, "post-ln", 200, "gelu")[0] > 2 * 200


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_S3_10_sub_ln_outgrows_log_L(activation: str) -> None:
    outgrows("sub-ln", activation, math.log)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_S2_20_S2_24_S3_12_and_S3_14_the_update_grows_at_the_gain_of_magneto(activation: str) -> None:
    outgrows("sub-ln-gamma", activation, lambda _: 1.0)


# ---------------------------------------------------------------- the encoder-decoder


def encoder_decoder_updates(
    decoder: Sequence[float],
    encoder: Sequence[float],
    norm_kind: str,
    *,
    width: int,
    num_seeds: int,
    matrices: str = "implicit",
) -> Tensor:
    """Updates of networks of one token a side; gains v_l = w_l. Every sublayer as Theorem 3.3 writes it.

    A cross-attention over one token passes on W2 LN(phi(W1 LN(what it reads))), and reads the encoder's output.
    """
    generator = torch.Generator().manual_seed(width)
    norm = realnet.NORMS[norm_kind]
    total = torch.zeros(num_seeds, dtype=torch.float64)
    explicit: list[Tensor] = []

    def record(values: dict[str, Tensor]) -> None:
        total.add_(values["square"])

    def times(x_SD: Tensor, gain: float) -> Tensor:
        if matrices == "implicit":
            return realnet._ImplicitMatrix.apply(x_SD, gain, generator, record)
        weight_SDD = gain / math.sqrt(width) * realnet.draw((num_seeds, width, width), generator)
        explicit.append(weight_SDD.requires_grad_())
        return torch.bmm(weight_SDD, x_SD.unsqueeze(-1)).squeeze(-1)

    def branch(x_SD: Tensor, gain: float) -> Tensor:
        return times(norm(torch.relu(times(norm(x_SD), gain))), gain)

    x_SD, y_SD = (realnet.draw((num_seeds, width), generator).requires_grad_() for _ in range(2))
    for gain in encoder:
        x_SD = x_SD + branch(x_SD, gain)
    for index, gain in enumerate(decoder):
        is_cross = index % 3 == 1  # self-attention, cross-attention, feed-forward network
        y_SD = y_SD + branch(x_SD if is_cross else y_SD, gain)
    head_SD = realnet.draw((num_seeds, width), generator) / math.sqrt(width)
    (head_SD * norm(y_SD)).sum().backward()
    for weight_SDD in explicit:
        assert weight_SDD.grad is not None
        total += weight_SDD.grad.square().sum((1, 2)) / width
    return total


def coupled_bound(decoder: Sequence[float], encoder: Sequence[float], residue: int) -> float:
    """(14)-(16), the cross-attention at l mod 3 == residue."""
    coupling = printed_coupling_sub(decoder, residue)
    return printed_sub(decoder, decoder) + coupling * printed_sub(encoder, encoder)


def test_S2_18_networks_exceed_the_bound() -> None:
    """At uneven gains whether the first or the second of each three is the cross-attention; and at gains 1."""
    decoder, encoder = ([4.0**i for i in range(length)] for length in (6, 4))
    bound = max(coupled_bound(decoder, encoder, residue) for residue in (1, 2))
    for matrices, networks in (("explicit", EXPLICIT), ("implicit", IMPLICIT)):
        for width, number in networks:
            sample = encoder_decoder_updates(
                decoder, encoder, "rmsnorm", width=width, num_seeds=number, matrices=matrices
            )
            assert interval(sample)[0] > bound
    for width, number in DEEP:
        sample = encoder_decoder_updates([1.0] * 72, [1.0] * 48, "layernorm", width=width, num_seeds=number // 2)
        assert interval(sample)[0] > coupled_bound([1.0] * 72, [1.0] * 48, 2)


def test_S2_18_is_measured_as_predicted() -> None:
    """The exact update that the claim's counterexample states, against the same networks: 1.1255 as 1/d -> 0."""
    from paper_checks.routes import second_meanfield

    decoder, encoder = ([4.0**i for i in range(length)] for length in (6, 4))
    exact = float(second_meanfield.coupled((decoder, decoder), (encoder, encoder), norm_kind="rmsnorm").total)
    widths = (128, 256, 512)
    samples = [encoder_decoder_updates(decoder, encoder, "rmsnorm", width=width, num_seeds=4000) for width in widths]
    curve = realnet.extrapolate(widths, samples, degree=1)
    low, high = around(curve.limit, curve.limit_error)
    assert low < exact < high
    assert high - low < 0.4 * exact
