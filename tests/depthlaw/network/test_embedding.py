"""Where the embedding's scale decides how the update grows: said unasked, and so in networks that are built."""

from statistics import fmean

import pytest

from depthlaw.advice.advice import advise
from depthlaw.network.block import Block
from depthlaw.network.embedding import PUBLISHED, OtherEmbedding, beside_another
from depthlaw.network.network import Network
from depthlaw.sims.measure import Question, collect
from depthlaw.theory.schemes import scheme
from tests.command import document, options, told


def network(name: str, num_layers: int, std: float = 1.0) -> Network:
    shape = {"arch": "decoder", "d_model": 128, "num_tokens": 4, "num_heads": 2}
    return Network(scheme=scheme(name), num_sublayers=2 * num_layers, block=Block(embedding_std=std), **shape)


def other(name: str, std: float = 1.0) -> OtherEmbedding | None:
    few, many = (network(name, count, std) for count in (4, 16))
    return beside_another(few, many, "adam", effort=1 / 4, replicates=1)


def measured_growth(std: float) -> float:
    few, many = (
        fmean(
            collect(
                Question(config=one.config("adam"), task=one.task, optimizers=("adam",), dtype="float32"), range(8)
            )["adam/update"]
        )
        for one in (network("completep", count, std) for count in (4, 16))
    )
    return many / few


@pytest.mark.wide
def test_completep_is_flat_only_beside_a_large_embedding_predicted_and_measured() -> None:
    told_of = other("completep")
    assert told_of is not None and told_of.matters
    assert (told_of.std, told_of.other_std) == (1.0, PUBLISHED)
    assert told_of.growth == pytest.approx(measured_growth(1.0), rel=0.1)
    assert told_of.other_growth == pytest.approx(measured_growth(PUBLISHED), rel=0.1)
    assert told_of.growth < 1.1 < 1.7 < told_of.other_growth
    assert told_of.text.startswith("the update is flat only beside an embedding as large as the branches: x ")


def test_the_other_of_a_small_embedding_is_a_large_one() -> None:
    small, large = other("completep", PUBLISHED), other("completep")
    assert small is not None and large is not None
    assert small.growth == pytest.approx(large.other_growth) and small.other_growth == pytest.approx(large.growth)
    assert small.text.endswith("with an embedding 50 times as large")


def test_nothing_is_said_where_the_embedding_changes_nothing() -> None:
    assert other("post-ln") is None  # a post-norm forgets it
    flat = other("depth-mup")
    assert flat is not None and not flat.matters and flat.text == ""


@pytest.mark.usefixtures("quickly")
def test_predict_rule_and_advise_say_it_unasked() -> None:
    asked = options(scheme="completep", optimizer="adamw", layers="1,4", tokens=4)
    found = document("predict", *asked, "--attention")["embedding"]
    assert found["matters"] and found["says"] in " ".join(told("predict", *asked, "--attention").split())
    assert (
        document("predict", *options(scheme="completep", optimizer="adamw", layers=2), "--attention")["embedding"]
        is None
    )
    sides = ["rule", *options(norm="pre", optimizer="adamw", arch="encoder-decoder", layers=4, decoder_layers=4)]
    assert document(*sides)["other_roles"]["embedding"]["matters"]
    post = ["rule", *options(norm="post", optimizer="adamw", arch="decoder", layers=8)]
    assert document(*post)["other_roles"]["embedding"] is None
    advice = advise(scheme="completep", optimizer="adamw", from_layers=2, layers=8, width=128, num_tokens=4)
    assert any(remark.startswith("nothing: the update is flat only beside") for remark in advice.remarks)


@pytest.mark.parametrize(("name", "optimizer"), [("pre-ln", "sgd"), ("pre-ln", "adam"), ("sub-ln", "adam")])
def test_a_stack_of_ffns_starts_at_the_scale_that_is_asked_for(name: str, optimizer: str) -> None:
    """By second moments as by the kernel rung, which walks through the numbers that sims are given."""
    block = Block(embedding_std=0.5, embedding_multiplier=0.4)
    asked, plain = (Network(scheme=scheme(name), num_sublayers=4, d_model=64, block=b) for b in (block, Block()))
    exact = asked.theory(optimizer).update
    assert exact == pytest.approx(asked.walked(optimizer, lambda _: None, 1.0).update, rel=1e-3)
    assert exact != pytest.approx(plain.theory(optimizer).update, rel=0.05)
    assert asked.named(optimizer)["embedding_std"] == 0.5 and "embedding_std" not in plain.named(optimizer)


def test_the_command_takes_the_scale_of_the_input_without_attention() -> None:
    stack = ["--scheme", "pre-ln", "--optimizer", "sgd", "--sublayers", "4", "--embedding-std", "0.2"]
    (predicted,) = document("predict", *stack)["rows"]
    (measured,) = document("measure", *stack, *["--width", "128", "--seeds", "32", "--no-keep"])["rows"]
    assert measured["update"] == pytest.approx(predicted["update"], rel=1e-12)
    assert measured["ratio_low"] < 1 < measured["ratio_high"]
    assert "embedding std 0.2" in told("predict", *stack)
