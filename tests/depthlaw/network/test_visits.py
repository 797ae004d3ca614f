"""Layers visited again: lowered, told in rows and records, and held flat by the rule, predicted and measured."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import t
from sympy import Rational

from depthlaw.network.lower import digest_of_numbers, lower_encoder_decoder, lower_ffn, lower_transformer, visited
from depthlaw.network.measuring import measure
from depthlaw.network.network import Network
from depthlaw.network.predicting import predict
from depthlaw.recipes.catalogue import recipe
from depthlaw.theory.kernel.predict import Inputs, Sublayer, Transformer, predict_kernel
from depthlaw.theory.kernel.update import MATRICES
from depthlaw.theory.optimizers import optimizer as optimizer_named
from depthlaw.theory.rules.check import rule_scheme
from depthlaw.theory.rules.solve import solve_rule
from depthlaw.theory.rules.visits import counts_as, weight_of_visits
from depthlaw.theory.schemes import Scheme, scheme
from depthlaw.theory.stack import SublayerKind
from depthlaw.theory.symbols import L, M, N
from tests.often import often


def test_formulas_see_all_sums_and_layers_are_their_own_once() -> None:
    of_own, again = (
        lower_transformer("deepnorm", "adam", 16, 64),
        visited(lower_transformer("deepnorm", "adam", 16, 64), 4),
    )
    assert again.encoder == of_own.encoder[:4] and again.num_sums == {"encoder": 16}
    assert digest_of_numbers(visited(of_own, 1)) == digest_of_numbers(of_own) != digest_of_numbers(again)
    sides = visited(lower_encoder_decoder("post-ln", "adam", 4, 2, 64), 2)
    assert (len(sides.encoder), len(sides.decoder), sides.num_sums) == (4, 3, {"encoder": 8, "decoder": 6})
    published = Network.of_recipe(recipe("gpt2"), 6, 64, visits=3).config("adamw")
    assert (len(published.encoder), published.visits) == (4, 3)
    assert published.encoder[0].gains == Network.of_recipe(recipe("gpt2"), 6, 64).config("adamw").encoder[0].gains


@pytest.mark.parametrize(
    ("config", "visits", "said"),
    [
        (lower_ffn("admin", "sgd", 4, 8), 2, "sublayer 3 of the encoder has others than sublayer 1"),
        (lower_transformer("post-ln", "sgd", 6, 8), 2, "sublayer 4 of the encoder has others than sublayer 1"),
        (lower_ffn("post-ln", "sgd", 5, 8), 2, "5 sublayers of the encoder are no whole number of layers, 2 times"),
    ],
)
def test_sublayers_that_differ_are_no_visits_of_one(config: object, visits: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        visited(config, visits)  # pyright: ignore[reportArgumentType]


def test_a_record_of_layers_visited_once_is_as_ever() -> None:
    once, twice = (Network(scheme=scheme("post-ln"), num_sublayers=8, d_model=8, visits=visits) for visits in (1, 2))
    assert "visits" not in {*once.named("sgd"), *once.lengths, *twice.about("sgd")["network"]}
    assert twice.named("sgd")["visits"] == twice.lengths["visits"] == 2
    assert once.named("sgd")["numbers"] != twice.named("sgd")["numbers"]
    assert (once.depth, twice.depth) == (8, 8)


def test_python_counts_layers_once() -> None:
    ffns, gains = predict("post-ln", "sgd", 2, visits=3), predict("post-ln", "sgd", 2, visits=3, w=(1, 2), v=(1, 1))
    assert ffns.num_sublayers == gains.num_sublayers == 6 and ffns.roles.keys() == {"fc1", "fc2"}
    assert gains.update != pytest.approx(ffns.update, rel=1e-3)  # exact under SGD
    assert predict("pre-ln", "adam", layers=1, num_tokens=2, visits=3).num_sublayers == 6
    assert predict("post-ln", "adam", layers=(1, 2), num_tokens=2, visits=2).num_sublayers == 2 * (2 + 6)


# ---------------------------------------------------------------- the rule


def counted(built: Scheme, factor: Fraction) -> Scheme:
    """The scheme whose formulas see so many times as many sums."""
    names = ("residual_weight", "branch_weight", "gain_in", "gain_out")
    laws = {
        name: law.subs(L, Rational(factor) * L) for name in names if (law := getattr(built.stack, name)) is not None
    }
    return replace(built, stack=replace(built.stack, **laws))


def ruled(norm: str, optimizer: str, visits: int, extra: int = 1, d_model: int = 256) -> Network:
    """Two sublayers by the rule, visited so often; extra: what their number is counted by besides."""
    rule = solve_rule(norm, optimizer, "encoder")
    factor = weight_of_visits(norm, optimizer, visits) * extra / visits
    return Network(
        scheme=counted(rule_scheme(rule, rule.sides[0]), factor),
        num_sublayers=2 * visits,
        visits=visits,
        d_model=d_model,
    )


@pytest.mark.parametrize(
    ("norm", "optimizer"),
    often(
        [
            *(("post", one) for one in ("sgd", "adam", "lamb")),
            ("pre", "sgd"),
            *(("post", one) for one in ("muon", "lars")),
            *(("sub", one) for one in ("adam", "muon")),
        ],
        3,
        wide=1,
    ),
)
def test_the_rule_is_flat_in_the_number_of_visits(norm: str, optimizer: str) -> None:
    """And counted by another power of it, it is not."""
    few, many = 4, 16
    degree = int(optimizer_named(optimizer).gradient_degree)

    def power(extra: int) -> float:
        ends = [ruled(norm, optimizer, visits, visits**extra).theory(optimizer).update for visits in (few, many)]
        return math.log(ends[1] / ends[0]) / math.log(many / few)

    if norm == "sub":  # whose gain is the root of the number
        assert abs(power(0)) < 0.15 < 0.35 < abs(power(1))
        assert counts_as(norm, optimizer, 3, 2) == math.ceil(3 * 1.25**2)
    else:
        assert abs(power(0)) < 0.25 < 0.75 < abs(power(1))  # whole powers are 1 apart
        assert counts_as(norm, optimizer, 3, 2) == 3 * 2 ** (degree + 1)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_rule_of_two_sides_is_flat_in_the_number_of_visits(optimizer: str) -> None:
    """On the side that is read no more than flat: as for layers of its own, the coupling enters once under SGD, too."""
    rule, ends = solve_rule("post", optimizer, "encoder-decoder"), []
    for visits in (2, 8):
        many = counts_as("post", optimizer, 1, visits)
        sides = []
        for side in rule.sides:
            assert side.gain is not None
            alpha, gain = (float(law.subs({N: many, M: many})) for law in (side.residual_weight, side.gain))
            kinds = (SublayerKind.SELF, SublayerKind.FFN) if side.name == "encoder" else tuple(SublayerKind)[:3]
            gains: dict[str, float] = dict.fromkeys(("v", "out", "cross_v", "cross_out", "fc1", "fc2"), gain)
            sides.append(tuple(Sublayer(kind=kind, residual_weight=alpha, gains=gains) for kind in kinds))
        network = Transformer(encoder=sides[0], decoder=sides[1], visits=visits)
        found = predict_kernel(network, Inputs(num_tokens=2), [optimizer])[optimizer]
        ends.append({name: sum(of.get(role, 0.0) for role in MATRICES) for name, of in found.sides.items()})
    powers = {name: math.log(ends[1][name] / ends[0][name], 4) for name in ends[0]}
    assert abs(powers["decoder"]) < 0.1
    assert abs(powers["encoder"]) < 0.15 if optimizer == "adam" else powers["encoder"] < 0.1


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_networks_do_what_the_rule_says(norm: str) -> None:
    """SGD's update at two numbers of visits: as predicted, and flat; counted as sums alone it grows fourfold."""
    logs = []
    for visits in (3, 12):
        network = ruled(norm, "sgd", visits, d_model=192)
        values = np.array(measure(network, ["sgd"], range(100 * visits, 100 * visits + 32))["sgd"].values["update"])
        reach = float(t.ppf(1 - 1e-3 / 2, len(values) - 1)) * values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - network.theory("sgd").update) < reach
        logs.append((math.log(values.mean()), reach / values.mean()))
    power, reach = (logs[1][0] - logs[0][0]) / math.log(4), math.hypot(logs[0][1], logs[1][1]) / math.log(4)
    assert abs(power) + reach < 0.5  # nearer to 0 than to any other whole power
