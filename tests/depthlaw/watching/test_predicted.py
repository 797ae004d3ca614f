"""What the first step is predicted to move is what it moves, and where nothing is predicted a line says why."""

import copy
import math
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import depthlaw
from depthlaw.watching import predicted as module
from depthlaw.watching.compare import MATTERS, WHOLE, change_of, compare, described, predicted_of
from depthlaw.watching.record import Run
from tests.depthlaw.watching.models import GPT, VOCAB, batch
from tests.often import often

RATE = 1e-5
"""So small that what is of second order is nothing."""
LABELS = ("alike", "frequent", "any")
"""All one, few of them frequent as words are, and each as often as any other."""


def plain(num_layers: int) -> nn.Module:
    """As GPT-2 starts."""
    model = GPT(num_layers, dropout=0.0, width=128)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            is_output = name.endswith(("c_proj.weight", "c_out.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * num_layers if is_output else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def hugging_face(num_layers: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    size: Any = {"n_layer": num_layers, "n_embd": 128, "n_head": 4, "n_positions": 8, "vocab_size": VOCAB}
    no_dropout: Any = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends: Any = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**size, **no_dropout, **ends))


def first_step(model: nn.Module, path: Path, labels: str, **options: Any) -> Run:
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    ids, targets = batch(1, 64)
    watch = depthlaw.watch(model, optimizer, probe=batch(99)[0], to=path, budget=None, **options)
    answer: Any = model(ids)
    logits: Tensor = answer[0] if isinstance(answer, tuple) else answer.logits
    if labels == "alike":
        targets = torch.zeros_like(targets)
    if labels == "frequent":
        often = 1 / torch.arange(1.0, VOCAB + 1)
        drawn = torch.multinomial(often, targets.numel(), replacement=True, generator=torch.Generator().manual_seed(2))
        targets = drawn.view(targets.shape)
    functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    optimizer.step()
    watch.step()
    watch.close()
    return Run.read(path)


@cache
def run_of(build: Any, num_layers: int, labels: str, folder: Path) -> Run:
    torch.manual_seed(1)
    return first_step(build(num_layers), folder / f"{build.__name__}-{num_layers}-{labels}.jsonl", labels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize(
    ("build", "labels"), often([*((plain, labels) for labels in LABELS), (hugging_face, "frequent")], 2, wide=1)
)
def test_the_first_step_moves_what_was_predicted(build: Any, labels: str, folder: Path) -> None:
    """All of it, and each role that matters and is predicted, within what the prediction itself says."""
    run = run_of(build, 4, labels, folder)
    header = run.header.predicted
    assert header is not None and header.why is None and header.seconds < module.LONGEST
    (look,) = run.looks
    told = {WHOLE, *(role for role, own in look.roles.items() if (own.share or 0) >= MATTERS)} - {"embedding"}
    assert told >= {WHOLE, "out", "fc1", "fc2"}
    for role in told - {"positions"}:
        ends, change = predicted_of(run, role), change_of(look, role)
        assert ends is not None and change is not None
        assert ends[0] <= change <= ends[1], (role, ends, change)


def test_the_high_end_is_where_labels_agree(folder: Path) -> None:
    """There the step is nearer to it than to the low one, and further up than where each label is as often as any."""
    places = []
    for labels in ("alike", "any"):
        run = run_of(plain, 4, labels, folder)
        ends, change = predicted_of(run, WHOLE), change_of(run.looks[0], WHOLE)
        assert ends is not None and change is not None
        places.append(math.log(change / ends[0]) / math.log(ends[1] / ends[0]))
    assert places[0] > 0.5 and places[0] > places[1]


@pytest.mark.slow
def test_two_runs_are_apart_by_what_was_predicted(folder: Path) -> None:
    found = compare(run_of(plain, 2, "frequent", folder), run_of(plain, 8, "frequent", folder))
    for beside in (found.whole, *(role for role in found.roles if role.role in ("out", "fc1", "fc2"))):
        assert beside.predicted is not None and beside.predicted[0] > 0
        assert beside.predicted[0] <= beside.pairs[0].times <= beside.predicted[1], beside.role


# ---------------------------------------------------------------- where there is none


def small(num_layers: int = 2) -> Any:
    model = GPT(num_layers, dropout=0.0)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def trained(model: Any) -> Any:
    model.ln_f.weight.data[0] = 1.1
    return model


def trained_matrices(model: Any) -> Any:
    """Its norms have no gains that tell it; a step has added a direction to a matrix."""
    weight = model.blocks[1].c_out.weight.data
    weight += 3 * weight.std() * torch.outer(torch.ones(weight.shape[0]), torch.arange(weight.shape[1]) % 2 - 0.5)
    return model


class OddActivation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.cos(x).abs()


def odd_activation(model: Any) -> Any:
    for block in model.blocks:
        block.c_out = nn.Sequential(OddActivation(), block.c_out)
    return model


def of_copies(model: Any) -> Any:
    model.blocks[1] = copy.deepcopy(model.blocks[0])
    return model


def shared(model: Any) -> Any:
    model.blocks[1] = model.blocks[0]
    return model


def large_biases(model: Any) -> Any:
    model.blocks[0].c_out.bias.data.fill_(1.0)
    return model


def no_head_yet(model: Any) -> Any:
    model.head.weight = nn.Parameter(torch.zeros(VOCAB, 16))
    return model


@pytest.mark.parametrize(
    ("change", "optimizer", "start", "why"),
    [
        (trained, torch.optim.AdamW, 0, "the model is trained already"),
        (trained_matrices, torch.optim.AdamW, 0, "the model is trained already, or its matrices do not start"),
        (odd_activation, torch.optim.AdamW, 0, "its FFN has an activation that is not known"),
        (of_copies, torch.optim.AdamW, 0, "layers start as copies of one another"),
        (shared, torch.optim.AdamW, 0, "layers share their matrices"),
        (large_biases, torch.optim.AdamW, 0, "biases do not start at 0 (torch's nn.Linear draws them)"),
        (no_head_yet, torch.optim.AdamW, 0, "its head starts at 0"),
        (lambda model: model, torch.optim.SGD, 0, "the length of the first step of SGD depends on the loss"),
        (lambda model: model, partial(torch.optim.AdamW, eps=0.1), 0, "an eps above 1e-06 makes the first step"),
        (lambda model: model, torch.optim.AdamW, 7, "the run goes on from an earlier step"),
    ],
)
def test_where_nothing_is_predicted_a_line_says_why(
    change: Any, optimizer: Any, start: int, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = change(small())
    opt = optimizer(model.parameters(), lr=1e-3)
    watch: Any = depthlaw.watch(model, opt, probe=batch(99), to=tmp_path / "run", start=start)
    loss = model(*batch(0))[1]
    loss.backward()
    opt.step()
    watch.step()
    watch.close()
    run = Run.read(tmp_path / "run")
    assert not caplog.records and run.looks and run.header.predicted is not None
    assert run.header.predicted.why is not None and why in run.header.predicted.why
    assert not run.header.predicted.roles and predicted_of(run, WHOLE) is None
    assert described(run)[-1].startswith(f"The first step was not predicted: {why}")


def test_of_two_runs_it_is_told_which_first_step_was_not_predicted(tmp_path: Path) -> None:
    """As that of a model with torch's own biases."""
    runs = []
    for place, model in enumerate((small(), GPT(2, dropout=0.0), GPT(4, dropout=0.0))):
        opt, path = torch.optim.AdamW(model.parameters(), lr=1e-3), tmp_path / f"run{place}"
        watch = depthlaw.watch(model, opt, probe=batch(99), to=path)
        model(*batch(0))[1].backward()  # pyright: ignore[reportOptionalMemberAccess]
        opt.step()
        watch.step()
        watch.close()
        runs.append(Run.read(path))
    why = "biases do not start at 0 (torch's nn.Linear draws them), and count beside their matrices."
    assert compare(runs[0], runs[2]).verdict[-1] == f"The first step of 4 layers was not predicted: {why}"
    assert compare(runs[1], runs[2]).verdict[-1] == f"The first steps were not predicted: {why}"


def test_a_first_step_of_rate_0_is_told_as_that(tmp_path: Path) -> None:
    """As a warm-up's is."""
    model = small()
    opt = torch.optim.AdamW(model.parameters(), lr=0.0)
    watch = depthlaw.watch(model, opt, probe=batch(99), to=tmp_path / "run")
    model(*batch(0))[1].backward()
    opt.step()
    watch.step()
    watch.close()
    run = Run.read(tmp_path / "run")
    assert run.header.predicted is not None and run.header.predicted.roles
    assert described(run)[-1].startswith("The first step moved nothing, at a learning rate of 0")


def test_a_prediction_that_takes_too_long_or_fails_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(31)
    monkeypatch.setattr(module, "LONGEST", 0.0)
    late = first_step(small(), tmp_path / "late", "any").header.predicted
    assert late is not None and late.why == "it would take more than 0 seconds"

    def broken(_: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(module, "as_config", broken)
    failed = first_step(small(), tmp_path / "failed", "any").header.predicted
    assert failed is not None and failed.why == "no such thing"


def test_a_run_without_its_first_step_or_of_an_earlier_version_has_none(folder: Path) -> None:
    run = run_of(plain, 4, "any", folder)
    old = run.model_copy(update={"header": run.header.model_copy(update={"predicted": None})})
    assert predicted_of(old, WHOLE) is None
    later = run.model_copy(update={"looks": [run.looks[0].model_copy(update={"step": 5})]})
    assert predicted_of(later, WHOLE) is None
