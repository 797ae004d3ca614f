"""The audit as a whole: its command, its document, what it refuses, and modules that are initialised by it."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import depthlaw
from paper_checks.audit.audit import audit
from sims.optim import make
from tests.command import depthlaw as run

MODELS = """
import torch
from torch import nn


def build(num_layers):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True), num_layers)


def both(num_encoder_layers, num_decoder_layers):
    return nn.Transformer(32, 4, num_encoder_layers, num_decoder_layers, 128, 0.0, batch_first=True)


def vectors(model):
    return torch.ones(1, 5, 32) * torch.arange(5)[None, :, None]


def number(model):
    return 3


def none(num_layers):
    return None


def broken(num_layers):
    raise RuntimeError("no such size")


def no_stream(num_layers):
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Odd(nn.Module):
    def forward(self, a, b, c):
        return a.strange()


def odd(num_layers):
    return Odd()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "audited_models.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """One JSON document, exit 1 as there is a fault, and every number of it finite."""
    monkeypatch.setattr("paper_checks.audit.audit.FAR", (40,))
    result = run("audit", "audited_models:build", "--layers", "2,4", "--scheme", "post-ln", "--seeds", "2", "--json")
    assert result.returncode == 1, result.stderr
    answer = json.loads(result.stdout)
    assert {"schema_version", "roles", "faults", "remarks", "nearest", "layers"} <= set(answer)
    (fault,) = answer["faults"]
    assert fault["kind"] == "identical-layers" and not any("layers.0." in name for name in fault["where"])
    assert {"what", "where", "found", "expected", "why", "fix"} <= set(fault)
    by_role = {row["role"]: row for row in answer["roles"]}
    assert {"update", "q", "k", "v", "out", "fc1", "fc2", "bias", "norm_gain", "norm_bias"} == set(by_role)
    assert all(math.isfinite(point["measured"]) for row in answer["roles"] for point in row["update"])
    assert by_role["update"]["predicted_exponent"] is not None


def test_without_a_claim_the_nearest_is_named_and_only_plain_faults_are() -> None:
    answer = audit(_fresh, (2, 4), num_seeds=1)
    assert not answer.faults
    assert answer.nearest is not None and answer.nearest[0] == "post-ln"


def test_a_builder_of_two_numbers_builds_both_sides() -> None:
    answer = depthlaw.audit(_transformer, (2, 3), scheme="post-ln", num_seeds=1)
    assert {side: len(sublayers) for side, sublayers in answer.depths[-1].built.sides.items()} == {
        "encoder": 6,
        "decoder": 9,
    }
    assert not [fault for fault in answer.faults if fault.kind != "norms"]


def _transformer(encoder_layers: int, decoder_layers: int) -> nn.Module:
    return nn.Transformer(32, 4, encoder_layers, decoder_layers, 128, 0.0, batch_first=True)


def _fresh(num_layers: int) -> nn.Module:
    """torch's encoder with layers that are drawn one by one."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True), num_layers)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.xavier_normal_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def test_printed_in_python_it_is_the_page_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose last line, a command, has an answer."""
    monkeypatch.setattr("paper_checks.audit.audit.FAR", (40,))
    monkeypatch.setenv("COLUMNS", "80")
    result = run(
        "audit", "audited_models:build", "--layers", "2,4", "--scheme", "post-ln", "--seeds", "1", COLUMNS="80"
    )
    import audited_models  # type: ignore[import-not-found]

    answer = audit(audited_models.build, (2, 4), scheme="post-ln", num_seeds=1)
    assert str(answer) == result.stdout
    assert repr(answer) == f"<Audit: {result.stdout.splitlines()[0]}>"
    program, *arguments = result.stdout.splitlines()[-1].split()
    assert program == "depthlaw" and arguments[0] == "advise"
    told = run(*arguments)
    assert told.returncode == 0, told.stderr


def test_the_title_counts_the_faults_that_are_numbered_below() -> None:
    """Roles of which the same is said stand together, and count once."""
    answer = audit(_fresh, (2, 4), recipe="gpt2", measures=False)
    first, *rest = str(answer).splitlines()
    assert len(numbers := [line for line in rest if re.match(r"[0-9]+\. ", line)]) < len(answer.faults)
    assert f"compared with gpt2: {len(numbers)} faults" in first


def test_without_a_claim_the_page_says_what_to_name() -> None:
    answer = audit(_fresh, (2, 4), measures=False)
    assert answer.nearest is not None and answer.nearest.kind == "scheme"
    assert "--scheme post-ln" in str(answer)
    told = audit(_fresh, (2, 4), scheme="post-ln", measures=False)
    assert "No faults: the model is built as post-ln says." in str(told)


def test_tokens_that_start_at_another_scale_are_told() -> None:
    """Of which the kernel rung knows nothing: a class token beside patches."""

    def starting(*scales: float) -> Callable[[nn.Module], torch.Tensor]:
        return lambda model: torch.randn(1, 4, 32) * torch.tensor([*scales, 1.0, 1.0, 1.0])[None, :, None]

    uneven, even = (audit(_fresh, (1, 2), num_seeds=1, inputs=starting(scale)) for scale in (0.02, 1.0))
    assert any("tokens start at different scales" in remark for remark in uneven.remarks) and not even.remarks


REFUSED = {
    "": "MODULE:FACTORY, or --hf",
    "audited_models:build --hf gpt2": "and not both",
    "audited_models": "is MODULE:NAME",
    "nothere:build": "there is no module nothere",
    "audited_models:nothere": "has no nothere",
    "audited_models:MODELS": "has no MODELS",
    "audited_models:none": "returned a NoneType",
    "audited_models:broken": "RuntimeError: no such size",
    "audited_models:no_stream": "no residual stream",
    "audited_models:odd": "no input could be guessed for Odd.forward(a, b, c)",
    "audited_models:build --input audited_models:number": "answered no tensor",
    "audited_models:build --scheme nosuch": "nosuch",
    "audited_models:build --recipe nosuch": "nosuch",
    "audited_models:build --scheme post-ln --recipe gpt2": "not both",
    "audited_models:build --layers 4,4": "each once",
    "audited_models:build --layers 0": "whole number",
    "audited_models:build --width 64": "--width is of --hf",
    "--hf nosuchmodel": "nosuchmodel",
    "--hf nothere.json": "cannot read",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_refused_in_one_line(arguments: str) -> None:
    given = arguments.split()
    rest = [] if "--layers" in given else ["--layers", "2"]
    result = run("audit", *given, *rest, "--seeds", "1")
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert (result.returncode, len(lines)) == (2, 1), result.stderr
    assert REFUSED[arguments] in result.stderr


def test_an_input_of_ones_own() -> None:
    result = run(
        *(
            "audit",
            "audited_models:build",
            "--input",
            "audited_models:vectors",
            "--layers",
            "2",
            "--seeds",
            "1",
            "--json",
        )
    )
    assert json.loads(result.stdout)["input"] == "yours"


def test_names_are_no_code(here: Path) -> None:
    """What is not a name is refused before anything is imported."""
    for text in ("os.system('touch hit'):x", "audited_models:build()", "../evil:build", "a b:c", ":", "x:"):
        assert run("audit", text, "--layers", "2").returncode == 2
    assert not (here / "hit").exists()


@pytest.mark.parametrize(("scheme", "recipe"), [("deepnorm", None), ("su-adam", None), (None, "bert")])
def test_initialised_modules_have_no_fault_in_their_matrices(scheme: str | None, recipe: str | None) -> None:
    """The residual weight is of the forward pass, and is the one fault that is left where it should be another one."""

    def build(num_layers: int) -> nn.Module:
        model = _fresh(num_layers)
        told.append(depthlaw.initialise(model, scheme=scheme, recipe=recipe, optimizer="adam"))
        return model

    told: list[depthlaw.Initialised] = []
    answer = audit(build, (2, 4, 8), scheme=scheme, recipe=recipe, optimizer="adam", measures=False)
    kinds = {fault.kind for fault in answer.faults}
    assert kinds == ({"residual-weight"} if told[-1].must_change else set())
    assert len(told[-1].must_change) == (0 if scheme is None else 16)


def test_initialised_model_trains_at_two_depths() -> None:
    """A Hugging Face model under its recipe: the loss falls, and at both depths by about as much."""
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(2, 32, (8, 16), generator=torch.Generator().manual_seed(0))
    lost = {}
    for num_layers in (2, 6):
        config = transformers.GPT2Config(
            n_embd=64, n_head=4, n_layer=num_layers, vocab_size=32, bos_token_id=None, eos_token_id=None
        )
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
        told = depthlaw.initialise(model, recipe="gpt2", optimizer="adamw", seed=1)
        assert not told.must_change
        optimizer = make("adamw", told.param_groups(1e-3), lr=1e-3)
        losses = []
        for _ in range(60):
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        lost[num_layers] = losses[0], losses[-1]
    assert all(last < 0.8 * first for first, last in lost.values()), lost
