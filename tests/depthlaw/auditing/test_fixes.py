"""A fix is tested by applying it: what is printed is run on the model, at every depth, and the audit finds no fault."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import depthlaw
from depthlaw.auditing.audit import Audit, audit
from depthlaw.auditing.faults import Fault
from depthlaw.auditing.fixes import is_code
from tests.depthlaw.auditing import gallery, gallery_field
from tests.depthlaw.auditing.gallery import Planted
from tests.depthlaw.auditing.score import BY_NAME
from tests.depthlaw.auditing.transformer import Build
from tests.often import often

_COUNTS = ("num_layers", "num_encoder_layers", "num_decoder_layers")


def mended(planted: Planted, faults: list[Fault]) -> Build:
    """The builder with the fixes of all faults that are code behind it."""

    def build_mended(num_layers: int) -> nn.Module:
        model = planted.build(num_layers)
        names: dict[str, Any] = {"torch": torch, "nn": nn, "math": math, "depthlaw": depthlaw, "model": model}
        names["inputs"] = planted.twin.inputs
        for fault in faults:
            exec(fault.fix, names | dict.fromkeys(_COUNTS, num_layers))
        return model

    return build_mended


def runs(fault: Fault) -> bool:
    return all(is_code(part.program) for part in fault.parts or (fault,))


def audited(planted: Planted, build: Build) -> Audit:
    twin = planted.twin
    claim: Any = {"scheme": twin.scheme, "recipe": twin.recipe}
    return audit(build, twin.layers, **claim, inputs=twin.inputs, measures=False, has_nearest=False)


OFTEN = {*gallery.RENAMED[::6], *gallery_field.RENAMED[2::2]}


@pytest.mark.parametrize(
    "name",
    often(reversed([of for of in BY_NAME if of in OFTEN]), 2, wide=1)
    + [pytest.param(of, marks=pytest.mark.slow) for of in BY_NAME if of not in OFTEN],
)
def test_a_fix_that_is_code_leaves_no_fault(name: str) -> None:
    planted = BY_NAME[name]
    faults = audited(planted, planted.build).faults
    code = [fault for fault in faults if runs(fault)]
    if not code:
        assert all(fault.fix for fault in faults)  # what is to be changed is said
        return
    left = audited(planted, mended(planted, code)).faults
    gone = {(fault.kind, role) for fault in code for role in fault.roles or ("",)}
    assert not [fault.what for fault in left if any((fault.kind, of) in gone for of in fault.roles or ("",))]
    if len(code) == len(faults):
        assert not [fault.what for fault in left]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two-sums-of-three", "hf-gpt2-c-proj", "functions-reset"])
def test_the_update_that_is_promised_is_measured_behind_the_fix(name: str) -> None:
    """At four times the depth: as near as the width of the models lets a prediction be to what is measured."""
    planted, (first, last) = BY_NAME[name], (2, 8)
    told = partial(audit, scheme=planted.twin.scheme, recipe=planted.twin.recipe)
    answer = told(planted.build, (first, 4), far=(last,))
    promised = answer.far[last]["as_it_should_be"]["update"]
    behind = told(mended(planted, answer.faults), (first, last))
    assert not behind.faults
    fitted = behind.exponent("update")
    assert fitted is not None and fitted.measured is not None
    low, high = fitted.measured.low, fitted.measured.high
    assert low is not None and high is not None
    assert low <= math.log(promised) / math.log(last / first) <= high


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("growing-branches", "x = norm(residual_weight * x + branch(x))"),
        ("growing-branches-pre-norm", "x = x + branch("),
    ],
)
def test_a_growing_number_goes_to_the_stream_only_where_a_norm_divides_it_again(name: str, fix: str) -> None:
    (fault,) = (one for one in audited(BY_NAME[name], BY_NAME[name].build).faults if one.kind == "residual-weight")
    assert fix in fault.fix and ("residual_weight" in fault.fix) == ("residual_weight" in fix)
