"""A file is written into a folder that is there: one that is not is refused before the work is done, and not made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import refusal

NETWORK = "--scheme pre-ln --optimizer sgd --sublayers 4"
REFUSED = {
    "predict": f"predict {NETWORK} --plot a/b/it.svg",
    "predict a Transformer": "predict --scheme pre-ln --optimizer sgd --attention --layers 4 --plot a/b/it.svg",
    "measure, a plot": f"measure {NETWORK} --no-keep --plot a/b/it.svg",
    "measure, a record": f"measure {NETWORK} --record a/b/it.jsonl",
    "train, a plot": "train --scheme pre-ln --layers 1 --learning-rate 0.1 --plot a/b/it.svg",
    "train, a store": "train --scheme pre-ln --layers 1 --learning-rate 0.1 --store a/b/it.sqlite",
    "experiment, a store": "experiment warmup --store a/b/it.sqlite",
    "experiment, an export": "experiment warmup --export a/b/it.jsonl",
    "verify": "verify --out a/b/it.json",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is done: a command that went on would fail here."""
    monkeypatch.chdir(tmp_path)
    for work in (
        "theory.meanfield.update.predict_setting",
        "paper_checks.verify.document.verify",
        "sims.training.sweep.sweep",
    ):
        monkeypatch.setattr(work, None)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_is_missing_is_refused(case: str) -> None:
    command = REFUSED[case].split()
    assert refusal(*command) == f"depthlaw: {command[-2]}: there is no folder a/b (to make it: mkdir -p a/b)"
    assert not Path("a").exists()
