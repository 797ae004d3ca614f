"""Layers visited again: once is as ever, linear ones have a closed form, and what is visited twice is no two layers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from depthlaw.theory.kernel.predict import REPLICATES, Inputs, Sublayer, Transformer, predict_kernel
from depthlaw.theory.kernel.setting import PLACES
from depthlaw.theory.kernel.update import step_of
from depthlaw.theory.kernel.visits import VisitedWalk
from depthlaw.theory.kernel.walk import Walk
from depthlaw.theory.stack import SublayerKind
from tests.often import often

SELF, FFN = SublayerKind.SELF, SublayerKind.FFN
TOKENS = Inputs(num_tokens=3, batch_size=2, correlation=0.4, readout="sum", loss="ce", num_classes=3)


def layers(num_layers: int, input_weight: float = 0.0) -> tuple[Sublayer, ...]:
    return tuple(
        Sublayer(
            kind=kind, residual_weight=1.2, branch_weight=0.7, lr_multipliers={"q": 2.0}, input_weight=input_weight
        )
        for _ in range(num_layers)
        for kind in (SELF, FFN)
    )


def decoder_layers(num_layers: int) -> tuple[Sublayer, ...]:
    kinds = (SELF, SublayerKind.CROSS, FFN)
    return tuple(Sublayer(kind=kind, branch_weight=0.8) for _ in range(num_layers) for kind in kinds)


@pytest.mark.parametrize("has_decoder", [False, True], ids=["one side", "two sides"])
@pytest.mark.parametrize("placement", often(PLACES, 3))
def test_one_visit_is_a_walk(placement: str, has_decoder: bool) -> None:
    """Of every role, side, layer and stream, though the sums are made another way."""
    decoder = decoder_layers(1) if has_decoder else ()
    network = Transformer(encoder=layers(2), decoder=decoder, placement=placement, is_causal=not has_decoder)
    steps = frozenset(map(step_of, ("sgd", "adam", "lamb")))
    walks = []
    for kind in (Walk, VisitedWalk):
        walk = kind(network, TOKENS, steps, (0,), 1.0)
        walk.run(lambda _: None)
        walks.append(walk)
    plain, visited = walks
    for step, sums in plain.totals().items():
        own = visited.totals()[step]
        for role, value in sums.values.items():
            factor = math.exp((own.exponent - sums.exponent).item())
            assert own.values[role] * factor == pytest.approx(value, rel=1e-9), role
            for side, of_side in enumerate(sums.layers):
                for of_layer, of_own in zip(of_side, own.layers[side], strict=True):
                    if role in of_layer:
                        assert of_own[role] * factor == pytest.approx(of_layer[role], rel=1e-9)
    for side in range(len(network.sides)):
        for gram, own in zip(plain.streams[side], visited.streams[side], strict=True):
            assert own.full == pytest.approx(gram.full, rel=1e-12)
        for gradient, own in zip(plain.gradients[side], visited.gradients[side], strict=True):
            assert own.at(gradient.exponent) == pytest.approx(gradient.matrix, rel=1e-9, abs=1e-12)
        assert np.array(visited.added[side]) == pytest.approx(np.array(plain.added[side]), rel=1e-12)


@pytest.mark.parametrize("placement", ["none", "post"])
@pytest.mark.parametrize("visits", [1, 2, 5])
def test_linear_layers_have_a_closed_form(visits: int, placement: str) -> None:
    """y_r = (a + b M)^r x_0, M = W2 W1: powers of M are at right angles, and E |M^k x|^2 = v^k |x|^2. x_r is y_r or,
    behind norms, y_r over its length. The gradient of M is b times the sum over visits of z_(R-1-r) y_r^T, where z_r is
    (a + b M^T)^r h, over |y_R| behind norms; of W1 and W2 it is that times the other one."""
    a, b, gains = 0.9, 0.6, (1.3, 0.8)
    layer = Sublayer(kind=FFN, residual_weight=a, branch_weight=b, gains=dict(zip(("fc1", "fc2"), gains, strict=True)))
    network = Transformer(
        encoder=(layer,), placement=placement, activation="identity", ffn_ratio=1, visits=visits, norm_kind="rmsnorm"
    )
    found = predict_kernel(network, Inputs(num_tokens=1), ["sgd"])["sgd"]
    square = (gains[0] * gains[1]) ** 2

    def product(r: int, s: int) -> float:
        """y_r . y_s, and z_r . z_s."""
        terms = range(min(r, s) + 1)
        return sum(math.comb(r, k) * math.comb(s, k) * a ** (r + s - 2 * k) * (b * b * square) ** k for k in terms)

    streams, numbers = found.streams["encoder"], range(visits + 1)
    squares = [product(r, r) for r in numbers]
    length = 1.0 if placement == "none" else squares[-1]
    divided = [1.0] * len(squares) if placement == "none" else squares
    assert [x.second_moment for x in streams] == pytest.approx([x / y for x, y in zip(squares, divided, strict=True)])
    assert [10**x.log10_gradient_square for x in streams] == pytest.approx(
        [x * y / length for x, y in zip(squares[::-1], divided, strict=True)]
    )
    assert [x.cosine_with_previous for x in streams[1:]] == pytest.approx(
        [product(r, r + 1) / math.sqrt(product(r, r) * product(r + 1, r + 1)) for r in range(visits)]
    )
    pairs = [(r, s) for r in range(visits) for s in range(visits)]
    own = b * b * sum(product(visits - 1 - r, visits - 1 - s) * product(r, s) for r, s in pairs) / length
    assert found.roles["fc1"] == pytest.approx(own * gains[1] ** 2)
    assert found.roles["fc2"] == pytest.approx(own * gains[0] ** 2)


def test_small_branches_add_up_over_visits_and_in_quadrature_over_layers() -> None:
    """R visits of a layer count R^2 under SGD, and R under signs, where R layers of their own count R under either."""
    weight = 1e-4
    sublayer = Sublayer(kind=FFN, branch_weight=weight)
    once, twice, four = (
        predict_kernel(
            Transformer(encoder=number * (sublayer,), placement="pre", visits=visits),
            Inputs(num_tokens=1),
            ["sgd", "adam"],
        )
        for number, visits in ((1, 1), (2, 1), (1, 4))
    )
    for optimizer, power in (("sgd", 2), ("adam", 1)):
        assert twice[optimizer].update / once[optimizer].update == pytest.approx(2, rel=1e-3)
        error = math.hypot(four[optimizer].error["update"], once[optimizer].error["update"])
        growth = four[optimizer].update / once[optimizer].update
        assert growth == pytest.approx(4**power, rel=1e-3 - float(stdtrit(REPLICATES - 1, 1e-3)) * error)
    added = [found["sgd"].streams["encoder"][-1].second_moment - 1 for found in (once, four)]
    assert added[1] / added[0] == pytest.approx(16, rel=1e-3)


def test_an_encoder_is_reached_by_all_visits_of_the_cross_attentions() -> None:
    """They send the memory the same, R times; and each of the encoder's matrices is visited R times as well."""
    visits, (encoder, decoder) = 4, (Sublayer(kind=kind, branch_weight=1e-4) for kind in (FFN, SublayerKind.CROSS))
    once, again = (
        predict_kernel(
            Transformer(encoder=(encoder,), decoder=(decoder,), placement="pre", visits=number),
            Inputs(num_tokens=2),
            ["sgd", "adam"],
        )
        for number in (1, visits)
    )
    for optimizer, power in (("sgd", 2), ("adam", 1)):
        few, many = once[optimizer], again[optimizer]
        for side, roles, of_side in (("encoder", ("fc1", "fc2"), 2), ("decoder", ("cross_v", "cross_out"), 1)):
            for role in roles:
                error = math.hypot(many.side_errors[side][role], few.side_errors[side][role])
                reach = 2e-3 - float(stdtrit(REPLICATES - 1, 1e-3)) * error
                growth = many.sides[side][role] / few.sides[side][role]
                assert growth == pytest.approx(visits ** (power * of_side), rel=reach), (optimizer, role)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoder": layers(1, input_weight=0.5)}, "without x_0 added again"),
        ({"encoder": (Sublayer(kind=SELF, value_weight=0.5),)}, "without values of the first attention"),
        ({"is_aligned": True}, "without branches that push"),
        ({"has_second_stream": True}, "without a second stream"),
        ({"norm_kind": "dyt"}, "without dyt behind the sum"),
        ({"visits": 0}, "visits is at least 1"),
    ],
)
def test_what_is_not_derived_is_refused(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(Transformer(encoder=layers(1)), **{"visits": 2, **change})


def test_tokens_are_counted_at_each_visit() -> None:
    network = Transformer(encoder=layers(1), visits=40)
    with pytest.raises(ValueError, match="at most 512 tokens in all, counted at each visit, not 40 x 16"):
        predict_kernel(network, Inputs(num_tokens=16), ["sgd"])
