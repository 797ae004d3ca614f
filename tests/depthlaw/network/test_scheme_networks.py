"""Schemes of the blocks that people train, in the FFN-only stack: what the mean field predicts is what networks do."""

from __future__ import annotations

import pytest
import torch

from depthlaw.network.block import Block
from depthlaw.network.lower import lower_encoder_decoder, lower_ffn, lower_transformer
from depthlaw.network.measuring import Extras, measure
from depthlaw.network.network import Network
from depthlaw.sims.measure import Question, run
from depthlaw.sims.model import Transformer
from depthlaw.sims.stats import estimate, ratio_to_exact
from depthlaw.sims.update import Task
from depthlaw.theory.schemes import custom_scheme, formula, scheme
from tests.often import often

NEW = ("branch-ln", "keel", "mix-ln", "hybrid-norm", "mitchell", "dyt", "derf", "residual")
WIDTH, LENGTH, SEEDS = 128, 8, 64


OWN = {
    "a residual weight that falls": custom_scheme("pre", residual_weight=formula("1.15 - 0.9*n/N")),
    "weights whose squares add up to 1": custom_scheme(
        "pre", residual_weight=formula("sqrt(1 - 2/N)"), branch_weight=formula("sqrt(2/N)")
    ),
    "a gain by sublayer": custom_scheme("post", residual_weight=formula("(l + 1)/l"), gain=formula("log(l + 1)/2")),
}


@pytest.mark.parametrize("name", often([*NEW, *OWN], 3, wide=1))
def test_updates_of_a_stack_are_those_of_networks(name: str) -> None:
    """Each role under sgd and adam: 1 lies in the interval of the ratio, widened by L/d, its order at finite width."""
    network = Network(scheme=OWN.get(name) or scheme(name), num_sublayers=LENGTH, d_model=WIDTH, activation="gelu")
    values: dict[str, list[float]] = {}
    asked = Question(config=network.config("sgd"), task=Task(), optimizers=("sgd", "adam"), dtype="float32")
    for batch in run(asked, range(SEEDS)):
        for role, numbers in batch.values.items():
            values.setdefault(role, []).extend(numbers)
    for optimizer in ("sgd", "adam"):
        predicted = network.theory(optimizer)
        for role, number in {"update": predicted.update, **predicted.roles}.items():
            ratio = ratio_to_exact(estimate(values[f"{optimizer}/{role}"], level=0.9999), number)
            assert ratio.low is not None and ratio.high is not None
            assert ratio.low - LENGTH / WIDTH < 1 < ratio.high + LENGTH / WIDTH, (optimizer, role)
            assert ratio.high - ratio.low < 0.5


SLOW = [
    ("pre-ln", "relu"),
    ("post-ln", "relu"),
    ("post-ln", "gelu"),
    ("peri-ln", "silu"),
    ("branch-ln", "tanh"),
    ("t-fixup", "relu"),
]


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "activation"),
    [("sub-ln", "gelu"), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)],
)
def test_what_a_first_step_does_to_the_stream_is_what_networks_do(name: str, activation: str) -> None:
    """The change of the last hidden state, and both orders there and within a sublayer, intervals widened as above."""
    network = Network(scheme=scheme(name), num_sublayers=4, d_model=WIDTH, activation=activation)
    extras = Extras(has_changes=True, has_second_order=True)
    measured = measure(network, ["sgd", "adam", "muon"], range(SEEDS), extras=extras)
    for optimizer, of_optimizer in measured.items():
        step = network.first_step(optimizer)
        assert step is not None and step.block.is_bent is (name not in ("pre-ln", "t-fixup"))
        assert step.block.second is not None
        second = step.block.second * WIDTH ** (step.block.power - 0.5)
        over_first = step.hidden.over_first(step.logit)
        assert (over_first is None) is (name == "t-fixup")
        orders = {
            "change/representation/update": step.representation / WIDTH**0.5,
            "second/block/first": step.block.first / WIDTH**0.5,
            "second/block/second": second,
            **({} if over_first is None else {"second/hidden/over_first": over_first / WIDTH**0.5}),
        }
        for order, number in orders.items():
            ratio = ratio_to_exact(estimate(of_optimizer.values[order], level=0.9999), number)
            assert ratio.low is not None and ratio.high is not None
            assert ratio.low - 4 / WIDTH < 1 < ratio.high + 4 / WIDTH, (optimizer, order)
            assert ratio.high - ratio.low < (1 if order == "second/block/second" else 0.5), (optimizer, order)


@pytest.mark.parametrize(
    ("name", "attention", "ffn"),
    [
        ("branch-ln", {"branch"}, {"branch"}),
        ("keel", {"pre", "post"}, {"pre", "post"}),
        ("hybrid-norm", {"q", "k", "v", "post"}, set()),
        ("dyt", {"pre"}, {"pre"}),
        ("residual", {"post"}, {"post"}),
    ],
)
def test_norms_stand_where_the_source_has_them(name: str, attention: set[str], ffn: set[str]) -> None:
    config = lower_transformer(name, "adam", 8, 16)
    assert [config.places(one) for one in config.encoder[:2]] == [attention, ffn]
    assert config.ends_in_norm is scheme(name).stack.placement.final
    assert config.norm_kind == (scheme(name).stack.norm_function or "layernorm")


def test_a_block_adds_norms_of_queries_and_keys_to_a_sublayers_own() -> None:
    config = Block(has_qk_norm=True).on(lower_transformer("branch-ln", "adam", 2, 16))
    assert [config.places(one) for one in config.encoder] == [{"branch", "q", "k"}, {"branch"}]


def test_early_layers_of_mix_ln_are_post_norm() -> None:
    config = lower_transformer("mix-ln", "adam", 16, 16)
    assert [config.places(one) for one in config.encoder] == [{"post"}] * 4 + [{"pre"}] * 12


def test_ffns_are_told_by_kind_in_a_decoder() -> None:
    config = lower_encoder_decoder("hybrid-norm", "adam", 2, 2, 16)
    assert [bool(config.places(one)) for one in config.decoder] == [True, True, False] * 2
    assert config.places(lower_ffn("hybrid-norm", "adam", 2, 16).encoder[0]) == {"pre", "post"}


@pytest.mark.parametrize("recomputes", [False, True])
def test_the_second_stream_sums_every_branch(recomputes: bool) -> None:
    """A ResiDual's last hidden state is that of its post-norm twin plus the norm of x_0 and all branches, which the
    twin's streams tell: x_l = norm(x_{l-1} + F_l)."""
    twin = lower_transformer("post-ln", "sgd", 4, 16, num_heads=2)
    config = lower_transformer("residual", "sgd", 4, 16, num_heads=2, recomputes=recomputes)
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain, model = Transformer(twin, seed=3), Transformer(config, seed=3)
    second, stream = x, x
    for index in range(4):
        name, kind = f"encoder_{index}", twin.encoder[index].kind
        second = second + plain._branch(name, kind, stream, None, False, None)[0]
        stream, _, _ = plain._sublayer("encoder", index, kind, stream, None, x, None)
    centred = second - second.mean(-1, keepdim=True)
    wanted = stream + centred / centred.square().mean(-1, keepdim=True).sqrt()
    assert torch.allclose(model(x), wanted, rtol=1e-12, atol=1e-12)
