"""What the audit says of every type of transformers is kept, and a sample of it is what it says now."""

from __future__ import annotations

import pytest

from tests.peers.types import JUDGED, main, outcome, pinned, table

SAMPLE = ("gpt2", "bert", "mixtral", "clip")
"""A type of each kind: beside its recipe, read, with experts, and without a width."""
MORE = ("switch_transformers", "wav2vec2-conformer")
"""Refused, and of four sums a layer."""


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.wide) for name in MORE)])
def test_a_type_is_told_as_it_is_kept(name: str) -> None:
    assert outcome(name) == pinned()[name]


def test_each_type_has_one_of_these_outcomes_and_none_crashes() -> None:
    """And each with faults was judged."""
    kept = pinned()
    assert {name for name, text in kept.items() if text.startswith("faults")} == set(JUDGED)
    words = {text.partition(":")[0] for text in kept.values()}
    assert len(kept) > 300 and words <= {"read", "refused", "not built", "faults"}
    assert next(iter(table(kept))).startswith(f"{len(kept)} types: ")


def test_a_type_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpt-0"]) == 2
    assert "no type 'gpt-0' in transformers" in capsys.readouterr().err
