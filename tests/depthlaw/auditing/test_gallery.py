"""The audit finds each fault of the gallery and names it, under any names, and is silent on the twin without it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from depthlaw.auditing.audit import audit
from depthlaw.auditing.inputs import Inputs, given, guess
from tests.depthlaw.auditing import gallery
from tests.depthlaw.auditing.gallery import Planted, Twin
from tests.depthlaw.auditing.score import BY_NAME, PLANTED, RENAMED, TWINS, accused, missed
from tests.depthlaw.auditing.transformer import renamed
from tests.often import often


def called(module: nn.Module, twin: Twin) -> Inputs:
    return guess(module) if twin.inputs is None else given(twin.inputs(module), module)


OFTEN = {*{planted.kind: planted.name for planted in reversed(PLANTED)}.values(), *(one.name for one in PLANTED[::12])}
OFTEN |= {"beta-2n-for-8n", "zero-in-zero-out", "layers-in-turn", "first-layer-post-norm", "growing-stream-pre-norm"}
OFTEN |= {"one-live-cross-attention", "shared-expert-without-the-rule"}
"""In the fast or the wide lane: the first of each kind, every twelfth, and those that alone see a planted fault of
``tests/faults/audit.toml``."""
ALONE = ("kernel-not-divided",)
"""Those that alone see a fault of ``tests/faults/audit.toml`` in the default lane."""
SILENT = ("vit", "functions behind a normed embedding")
"""The same of right models."""


@pytest.mark.parametrize(
    "planted",
    [
        *(of for of in PLANTED if of.name in ALONE),
        *often((of for of in PLANTED if of.name in OFTEN - {*ALONE}), 5, wide=1),
        *(pytest.param(of, marks=pytest.mark.slow) for of in PLANTED if of.name not in OFTEN),
    ],
    ids=lambda planted: planted.name,
)
def test_a_planted_fault_is_found_and_named(planted: Planted) -> None:
    assert not missed(planted)


@pytest.mark.parametrize(
    "twin",
    [*map(TWINS.__getitem__, SILENT), *often((own for own in TWINS.values() if own.name not in SILENT), 18, wide=6)],
    ids=lambda twin: twin.name,
)
def test_a_right_model_is_not_accused(twin: Twin) -> None:
    assert not accused(twin)


@pytest.mark.parametrize("name", often(RENAMED, 5))
def test_names_of_classes_and_parameters_do_not_matter(name: str) -> None:
    assert not missed(BY_NAME[name], is_renamed=True)


@pytest.mark.parametrize("name", RENAMED)
def test_a_renamed_model_computes_the_same_and_has_no_name_left(name: str) -> None:
    outputs = []
    twin = BY_NAME[name].twin
    for build in (BY_NAME[name].build, renamed(BY_NAME[name].build)):
        torch.manual_seed(3)
        module = build(2)
        outputs.append(called(module, twin).call(module))
    assert torch.equal(*outputs)
    assert all(
        part[0] in "mp" and part[1:].isdigit() for key in dict(module.named_parameters()) for part in key.split(".")
    )
    assert all(type(part).__name__.startswith("Block") for part in module.modules())


def test_a_twin_in_the_place_of_a_fault_is_a_miss() -> None:
    """The gallery can be failed: what is not there is not said to be found."""
    for planted in (BY_NAME["n-for-2n"], BY_NAME["olmo-core-buffer-lost"]):
        assert "found is: nothing" in missed(replace(planted, build=planted.twin.build))


def test_the_weight_of_an_encoder_alone_is_called_that() -> None:
    planted = BY_NAME["decoder-2m-for-3m"]
    faults = audit(planted.build, (2, 4), scheme=planted.twin.scheme, measures=False).faults
    assert [fault.what for fault in faults] == [
        "The residual weight is that of an encoder alone, and this is an encoder-decoder."
    ]


def test_each_mistake_is_planted_once() -> None:
    assert len(BY_NAME) == len(PLANTED) >= 40
    assert len({planted.says for planted in PLANTED}) == len(PLANTED)
    assert len(set(gallery.RENAMED)) == 12 and len(set(RENAMED)) == len(RENAMED)


@pytest.mark.parametrize("twin", often(TWINS.values(), 24, wide=12), ids=lambda twin: twin.name)
def test_a_right_model_is_not_accused_without_a_claim(twin: Twin) -> None:
    """But for torchtitan's, whose scaled up matrix is a fault by any other claim than its own."""
    found = audit(twin.build, twin.layers, inputs=twin.inputs, measures=False, has_nearest=False).faults
    assert [fault.role for fault in found] == (["fc3"] if twin.recipe == "torchtitan" else [])
