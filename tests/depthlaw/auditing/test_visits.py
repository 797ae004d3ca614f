"""Audits of looped models: layers that are gone through several times with the same weights, as it is said or not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import depthlaw
from depthlaw.auditing.audit import audit
from depthlaw.auditing.beyond import extrapolated
from depthlaw.network.network import Network
from depthlaw.testing import assert_depth_law
from depthlaw.theory.schemes import SCHEMES
from tests.command import depthlaw as run
from tests.depthlaw.auditing.gallery import DEEPNORM, deepnorm
from tests.depthlaw.auditing.transformer import Build, Law, Matrix, Shape, transformer, xavier

PRE_LN = Shape(d_model=64, ffn_width=256)
_DEEPNORM_GAIN = ("v", "out", "fc1", "fc2")


def again(visits: int, shape: Shape = PRE_LN, law: Law = xavier) -> Build:
    """A builder of K layers that are gone through so often."""

    def visit(model: Any) -> None:
        model.stack.blocks = nn.ModuleList([*model.stack.blocks] * visits)

    return transformer(shape, law, visit)


def rounds(num_visits: int) -> nn.Module:
    """Two layers, gone through so often as is asked for."""
    return again(num_visits)(2)


def passes(num_layers: int) -> nn.Module:
    """As many layers in a pass, each four times."""
    return again(4)(num_layers // 4)


def one_more(num_layers: int) -> nn.Module:
    """Two visits of a layer more than is asked for."""
    return again(2)(num_layers + 1)


def one_after_another(num_layers: int) -> nn.Module:
    """Each layer four times before the next."""
    model: Any = transformer(PRE_LN, xavier)(num_layers)
    model.stack.blocks = nn.ModuleList([block for block in model.stack.blocks for _ in range(4)])
    return model


def with_a_layer_before(num_layers: int) -> nn.Module:
    model: Any = transformer(PRE_LN, xavier)(num_layers + 1)
    first, *others = model.stack.blocks
    model.stack.blocks = nn.ModuleList([first, *others * 4])
    return model


@pytest.mark.wide
def test_a_loop_is_no_fault_and_predicted_as_a_looped_network() -> None:
    answer = audit(again(4), (1, 2), visits=4, scheme="pre-ln", seeds=6)
    assert not answer.faults and not [remark for remark in answer.remarks if "trust what is measured" in remark]
    assert answer.document()["visits"] == [4, 4]
    named = [
        Network(
            scheme=SCHEMES["pre-ln"],
            arch="decoder",
            num_sublayers=2 * 4 * number,
            visits=4,
            d_model=64,
            num_heads=2,
            num_tokens=8,
            activation="gelu",
        )
        .theory("adamw")
        .update
        for number in (1, 2)
    ]
    predicted = [row["update"] for row in answer.predicted]
    assert predicted == pytest.approx(named, rel=0.1)
    measured = answer.exponent("update")
    assert measured is not None and measured.measured is not None
    assert measured.measured.low is not None and measured.measured.high is not None
    assert measured.measured.low < math.log2(named[1] / named[0]) < measured.measured.high


@pytest.mark.parametrize(
    ("build", "layers", "visits", "told"),
    [
        (again(4), (1, 2), 4, "1: 1 x 4, 2: 2 x 4: its number is that of layers."),
        (rounds, (2, 4), (2, 4), "2: 2 x 2, 4: 2 x 4: its number is that of visits."),
        (rounds, (4, 2), (4, 2), "2: 2 x 2, 4: 2 x 4: its number is that of visits."),
        (passes, (4, 8), 4, "4: 1 x 4, 8: 2 x 4: its number is that of layers at each visit."),
        (one_more, (1, 2), 2, "1: 2 x 2, 2: 3 x 2: its number is neither that of layers nor of visits."),
    ],
)  # fmt: skip
def test_what_the_builder_counts_is_told(build: Build, layers: tuple[int, ...], visits: Any, told: str) -> None:
    answer = audit(build, layers, visits=visits, scheme="pre-ln", measures=False)
    assert told in " ".join(answer.findings.remarks)
    assert [fault.kind for fault in answer.faults] == ["depth-ignored"] * ("neither" in told)


def test_beyond_what_was_built_there_is_the_loop_that_the_builder_would_give() -> None:
    for build, layers, visits, number, size in (
        (again(4), (1, 2), 4, 6, (12, 4)),
        (rounds, (2, 4), (2, 4), 6, (4, 6)),
        (passes, (4, 8), 4, 12, (6, 4)),
    ):
        answer = audit(build, layers, visits=visits, measures=False, has_nearest=False)
        config = extrapolated(answer.depths, answer.findings, number)
        assert (len(config.encoder), config.visits) == size
    with pytest.raises(ValueError, match="10 layers are no whole number of layers, 4 times"):
        extrapolated(answer.depths, answer.findings, 10)


def shared(num_layers: int) -> nn.Module:
    model: Any = transformer(PRE_LN, xavier)(num_layers)
    model.stack.blocks = nn.ModuleList([model.stack.blocks[0]] * num_layers)
    return model


def test_what_to_say_where_a_loop_is_meant() -> None:
    (fault,) = audit(shared, (2, 4), scheme="pre-ln", measures=False).faults
    assert fault.kind == "shared-layers"
    assert "is meant, say --visits 2,4 (in Python visits=(2,4))." in fault.what
    alone = audit(again(4), (1, 2), measures=False, has_nearest=False)
    assert not alone.faults and any(
        "where it is, say --visits 4 (in Python visits=4)" in r for r in alone.findings.remarks
    )
    assert not audit(shared, (2, 4), visits=(2, 4), scheme="pre-ln", measures=False).faults


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (again(1), "at 2 layers 4 sublayers are run once"),
        (again(2), "at 2 layers each sublayer is run 2 times, in turn"),
        (lambda n: again(1)(n) if n == 4 else again(4)(n), "at 4 layers 8 sublayers are run once"),
        (one_after_another, "at 2 layers 4 sublayers are run 4 times"),
        (with_a_layer_before, "at 2 layers 2 sublayers are run once and 4 sublayers are run 4 times"),
    ],
)
def test_a_loop_that_is_none_is_told(build: Build, found: str) -> None:
    (fault,) = (
        f for f in audit(build, (2, 4), visits=4, scheme="pre-ln", measures=False).faults if f.kind != "depth-ignored"
    )
    assert (fault.kind, fault.found, fault.expected) == ("visits", found, "each sublayer is run 4 times, in turn")


def _of_deepnorm(counted: Callable[[int], int]) -> Build:
    """Looped four times, by DeepNorm's formulas for so many layers of K."""
    shape = replace(DEEPNORM, residual_weight=lambda at: (2 * counted(at.num_layers)) ** 0.25)

    def law(matrix: Matrix) -> float:
        factor = 1.0 if matrix.at is None else (counted(matrix.at.num_layers) / matrix.at.num_layers) ** -0.25
        return deepnorm(matrix) * (factor if matrix.role in _DEEPNORM_GAIN else 1.0)

    return again(4, shape, law)


def test_a_scheme_counts_each_visit() -> None:
    right = audit(_of_deepnorm(lambda own: 4 * own), (1, 2), visits=4, scheme="deepnorm", measures=False)
    assert not right.faults
    wrong = audit(_of_deepnorm(lambda own: own), (1, 2), visits=4, scheme="deepnorm", measures=False)
    (weight,) = (fault for fault in wrong.faults if fault.kind == "residual-weight")
    assert weight.found == "residual weight 1.189 at 1 layers, 1.414 at 2 layers"
    assert weight.expected == "residual weight 1.682 at 1 layers, 2 at 2 layers"


def test_a_fix_of_a_loop_is_of_its_own_layers() -> None:
    wrong = audit(_of_deepnorm(lambda own: own), (2, 4), visits=4, scheme="deepnorm", measures=False)
    (gains,) = (fault for fault in wrong.faults if fault.kind.startswith("init"))
    assert "for layer in range(1, num_layers // 4 + 1):" in gains.fix
    model = _of_deepnorm(lambda own: own)(2)
    matrix = model.get_parameter("stack.blocks.1.ffn.branch.down_proj.weight")
    before = matrix.std().item()
    exec(gains.fix, {"torch": torch, "model": model, "depthlaw": depthlaw, "num_layers": 8})
    assert matrix.std().item() == pytest.approx(before / 4**0.25, rel=0.05)


def test_what_has_no_loop_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match="admin has no looped network of 4 visits: visits of"):
        audit(again(4), (2, 4), visits=4, scheme="admin", measures=False)
    with pytest.raises(ValueError, match="visits are one number, or one for each of the 2 numbers of layers"):
        audit(again(4), (2, 4), visits=(4, 4, 4))
    with pytest.raises(ValueError, match="visits are whole numbers above 0"):
        assert_depth_law(again(4), layers=(2, 4), visits=0, scheme="pre-ln")
    refused = run("audit", "m:build", "--layers", "2,4", "--visits", "1,2,3")
    said = " ".join(refused.stderr.split())
    assert refused.returncode == 2 and "--visits has 3 entries and --layers 2: one number, or one for each" in said


@pytest.mark.wide
def test_the_command_says_what_to_ask_about_the_loop() -> None:
    assert_depth_law(again(4), layers=(1, 2), visits=4, scheme="pre-ln")
    page = str(audit(rounds, (2, 4), visits=(2, 4), scheme="pre-ln", seeds=2))
    command = "depthlaw advise --scheme pre-ln --optimizer adamw --from-layers 2 --layers 2 --visits 4 --from-visits 2"
    assert f"{command} --width 64 --arch decoder" in " ".join(page.split())
