"""Other people's models: their parameters are taken for what they are, and move as far as their recipe says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from depthlaw.network.block import Block
from depthlaw.paper_checks.experiments import clients, kernel_kept
from depthlaw.paper_checks.experiments.clients import CLIENTS, OPTIMIZERS, Case, collect, roles_of, split, updates
from depthlaw.sims.model import BRANCH_ROLES, Transformer
from depthlaw.sims.records import record
from depthlaw.sims.stats import estimate

LEVEL = 0.9999
SMALL = {name: Case(client=client, init=client.inits[-1], num_layers=1, d_model=64) for name, client in CLIENTS.items()}


@pytest.mark.parametrize("name", CLIENTS)
def test_roles_and_sizes_are_those_of_the_recipe(name: str) -> None:
    """As many numbers in each role as our own network of the recipe has: no matrix is missed or taken for another."""
    case = SMALL[name]
    model, _ = case.client.build(1, 64, 64 // clients.HEAD_SIZE)
    theirs: Counter[str] = Counter()
    for parameter_name, parameter in model.named_parameters():
        roles = roles_of(case.client, model, parameter_name)
        for role, part in zip(roles, split(parameter, len(roles)), strict=True):
            theirs[role] += part.numel()
    ours: Counter[str] = Counter()
    for _, parameter, role in Transformer(case.network.config("sgd"), 0).tagged():
        ours[role] += parameter.numel()
    same = [role for role in BRANCH_ROLES if role in ours or role in theirs]
    assert {role: theirs[role] for role in same} == {role: ours[role] for role in same}


FAST = ("GPT-2", "Llama, grouped heads")
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CLIENTS]


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES)
def test_a_model_moves_as_far_as_its_recipe_says(name: str) -> None:
    """24 networks. In total, to 6 %: the width is 128, and a few heads make Muon's singular values fewer than is
    predicted. In every role, under adam, to 12 %: roles that are taken for each other differ by more."""
    case = Case(client=CLIENTS[name], init=CLIENTS[name].inits[0], num_layers=2, d_model=128)
    networks = [updates(case, seed) for seed in range(24)]

    def ends(quantity: str) -> tuple[float, float]:
        found = estimate([network[quantity] for network in networks], LEVEL)
        assert found.low is not None and found.high is not None
        return found.low, found.high

    for optimizer in OPTIMIZERS:
        low, high = ends(f"{optimizer}/update")
        predicted = case.network.theory(optimizer).update
        assert low < 1.06 * predicted and high > 0.94 * predicted, optimizer
        assert 0.5 * predicted < low and high < 2 * predicted, optimizer  # it tells half and twice from it
    roles = {role: value for role, value in case.network.theory("adam").roles.items() if role in BRANCH_ROLES and value}
    assert len(roles) >= 6
    for role, predicted in roles.items():
        low, high = ends(f"adam/{role}")
        assert low < 1.12 * predicted and high > 0.88 * predicted, role


@pytest.mark.slow
def test_olmo_2_with_its_own_eps() -> None:
    """24 networks of width 128. Its norms stand behind branches whose mean squares are near 1e-6: without that eps the
    prediction lies below every interval, with it inside of them or nearly so."""
    eps = 1e-6
    client = replace(CLIENTS["OLMo 2"], build=partial(clients._decoder, "Olmo2", rms_norm_eps=eps))
    case = Case(client=client, init=clients.OWN, num_layers=2, d_model=128)
    networks = [updates(case, seed) for seed in range(24)]
    for optimizer in ("sgd", "adam"):
        measured = estimate([network[f"{optimizer}/update"] for network in networks], LEVEL)
        assert measured.low is not None and measured.high is not None
        network = case.network
        without, with_eps = (replace(network, block=Block(norm_eps=one)).theory(optimizer) for one in (0.0, eps))
        assert without.update < measured.low
        assert measured.low < 1.06 * with_eps.update and measured.high > 0.94 * with_eps.update


def test_a_matrix_without_a_role_is_named() -> None:
    case = SMALL["Llama"]
    model, _ = case.client.build(1, 64, 4)
    model.register_parameter("router", torch.nn.Parameter(torch.zeros(2, 2)))
    with pytest.raises(LookupError, match="Llama has a matrix router whose role is not known"):
        roles_of(case.client, model, "router")


def test_a_record_of_clients_goes_on_where_it_was(tmp_path: Path) -> None:
    path, asked = tmp_path / "clients.jsonl", [SMALL["BERT"], SMALL["ViT"]]
    steps = collect(path, asked, lambda _: 2)
    assert next(steps) == asked[0]
    steps.close()
    before = path.read_text(encoding="utf-8")
    assert list(collect(path, asked, lambda _: 2)) == asked[1:]
    assert path.read_text(encoding="utf-8").startswith(before)
    assert [run.config["optimizer"] for run in record.read(path)] == [*OPTIMIZERS, *OPTIMIZERS]


def test_a_kept_prediction_is_derived_again() -> None:
    question = next(one for one in clients.predictions() if one.network.scheme.name.startswith("BERT, own"))
    kept = kernel_kept.read(clients.PREDICTED).find(question.network, "adam").by_optimizer["adam"]
    again = kernel_kept.ask(question).by_optimizer["adam"]
    assert {role: one.value for role, one in again.items()} == pytest.approx(
        {role: one.value for role, one in kept.items()}, rel=1e-4
    )
