"""MEASURED.md is what the record says, and a record that says something else makes another page."""

from __future__ import annotations

import math

import pytest

from depthlaw.network.network import Network
from depthlaw.paper_checks.pages.measured import PAGE, Line, lines, page
from depthlaw.sims.records import record
from depthlaw.system.places import RECORDS
from depthlaw.theory.schemes import scheme


@pytest.fixture(scope="module")
def found() -> list[Line]:
    return lines()


@pytest.mark.wide
def test_the_page_is_in_step(found: list[Line]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(found)


@pytest.mark.wide
def test_ratios_are_of_the_record(found: list[Line]) -> None:
    """By hand, for one."""
    network = Network(scheme=scheme("su-adam"), num_sublayers=16, d_model=512)
    config = record.plain(network.named("adam"))
    runs = [run for run in record.read(RECORDS / "ffn-stacks.jsonl") if run.config == config]
    values = [x for run in runs for x in run.values["update"] if x is not None]
    prediction = network.prediction("adam")
    assert prediction is not None
    [line] = [line for line in found if (line.scheme, line.optimizer) == ("su-adam", "adam")]
    assert line.ratios[16].mean == pytest.approx(math.fsum(values) / len(values) / prediction.update, rel=1e-12)
