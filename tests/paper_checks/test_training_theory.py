"""What theory is asked about the networks that are trained is about these networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paper_checks.experiments import experiment, stable_rates
from paper_checks.experiments.kernel_kept import ask, digest_of, questions, stored
from paper_checks.experiments.scale import SMALL
from paper_checks.experiments.stable_rates import gpt
from paper_checks.experiments.training_theory import (
    CASES,
    CORRELATION,
    OPTIMIZER,
    PATH,
    network,
    predicted,
    probe_correlation,
)
from paper_checks.system.places import TRAINING_RECORDS as RECORDS
from sims.training.data import DataConfig, load
from sims.training.store import read as read_rows


def test_the_kept_answers_are_of_these_networks() -> None:
    assert {answer.numbers for answer in stored(PATH)} == {digest_of(network(*case), OPTIMIZER) for case in CASES}
    for case in CASES:
        assert predicted(*case) > 0


@pytest.mark.parametrize("layers", stable_rates.LAYERS)
def test_the_network_is_the_one_that_is_trained(layers: int) -> None:
    """But for the eps in its norms."""
    for name in stable_rates.SCHEMES:
        trained = experiment("stable-rates").arm(gpt(name, layers)).trial.lower()
        asked = network(name, layers)
        assert replace(trained.model, norm_eps=0.0) == asked.config(OPTIMIZER)
        assert trained.data.num_tokens == asked.num_tokens
        assert replace(trained.model, norm_eps=0.0) != network(name, layers + 1).config(OPTIMIZER)


def test_the_correlation_is_that_of_the_tokens() -> None:
    """Of the library that the record was made with; in every Python's few pairs of bytes are equal."""
    rows = read_rows(RECORDS / "stable-rates.jsonl")
    recorded = next(str(row.config["data"]) for row in rows if row.config["shape"] == "gpt")
    found = probe_correlation()
    is_same = load(DataConfig(name="causal", num_tokens=SMALL.num_tokens)).digest == recorded
    assert abs(found - CORRELATION) < (5e-4 if is_same else 0.2)


def test_few_points_nearly_give_a_kept_answer() -> None:
    (question,) = questions([network("deepnorm", stable_rates.LAYERS[0])], (OPTIMIZER,))
    (kept,) = [answer for answer in stored(PATH) if answer.key == question.key]
    values, near = (
        {role: number.value for role, number in answer.by_optimizer[OPTIMIZER].items()}
        for answer in (kept, ask(replace(question, effort=0.01)))
    )
    assert near == pytest.approx(values, rel=0.05)
