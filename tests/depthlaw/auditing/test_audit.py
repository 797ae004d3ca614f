"""The audit as a whole: its command, its document, what it refuses, and modules that are initialised by it."""

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from transformers import CONFIG_MAPPING

import depthlaw
from depthlaw.auditing.audit import Audit, audit
from depthlaw.auditing.beyond import Growth, extrapolated, is_useless, missed_by, no_power, outside
from depthlaw.auditing.builders import hugging_face
from depthlaw.auditing.expected import Claimed
from depthlaw.auditing.initialise import Initialised
from depthlaw.auditing.updates import predicted, task_of
from depthlaw.recipes.catalogue import RECIPES
from depthlaw.sims.stats import estimate
from depthlaw.theory.schemes import SCHEMES
from tests.command import depthlaw as run
from tests.depthlaw.auditing import gallery_field
from tests.depthlaw.auditing.gallery import (
    BOTH,
    CAIT,
    DEEPNORM,
    GAINED,
    GPT_2,
    LLAMA,
    TWINS,
    deepnorm,
    flat,
    gpt_2,
    only,
    two_gains,
    two_sides,
    xavier_scaled,
)
from tests.depthlaw.auditing.transformer import (
    At,
    Block,
    Build,
    FeedForward,
    Matrix,
    Shape,
    Sublayer,
    everywhere,
    transformer,
    xavier,
)
from tests.often import often

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


async def awaited(num_layers):
    return nn.Identity()


def none(num_layers):
    return None


def takes_nothing():
    return build(2)


def broken(num_layers):
    raise RuntimeError("no such size")


def no_stream(num_layers):
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Odd(nn.Module):
    def forward(self, a, b, c):
        return a.strange()


def odd(num_layers):
    return Odd()


class Faulty(nn.TransformerEncoder):  # what is wrong with it has nothing to do with what it is given
    def forward(self, src):
        hidden = super().forward(src)
        return self.head(hidden)


def faulty(num_layers):
    return Faulty(nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True), num_layers)


class Loud(nn.TransformerEncoder):
    def forward(self, src):
        print("forward")
        return super().forward(src)


def loud(num_layers):
    print("building")
    return Loud(nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True), num_layers)


def failing(model):
    return 1 / 0


def too_wide(model):
    return torch.ones(1, 5, 33)


def frozen(num_layers):
    return build(num_layers).requires_grad_(False)


class Convolved(nn.Module):  # as in a ResNet
    def __init__(self):
        super().__init__()
        parts = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        self.branch = nn.Sequential(*parts, nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))

    def forward(self, x):
        return torch.relu(x + self.branch(x))


class MixedByChannel(nn.Module):  # as in a ConvNeXt: the FFN has the channels last, and the stream has them first
    def __init__(self):
        super().__init__()
        self.places = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.channels = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, x):
        return x + self.channels(self.places(x).movedim(1, -1)).movedim(-1, 1)


def resnet(num_layers):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Convolved() for _ in range(num_layers)))


def convnext(num_layers):
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), *(MixedByChannel() for _ in range(num_layers)))


class Experts(nn.Module):  # whose router's weights are in one einsum with the second matrices
    def __init__(self):
        super().__init__()
        self.router, self.up = nn.Linear(32, 4), nn.Parameter(torch.randn(4, 32, 64))
        self.down = nn.Parameter(torch.randn(4, 64, 32))

    def forward(self, x):
        inner = torch.relu(torch.einsum("btd,edf->btef", x, self.up))
        return x + torch.einsum("btef,efd,bte->btd", inner, self.down, self.router(x).softmax(-1))


def experts(num_layers):
    return nn.Sequential(*(Experts() for _ in range(num_layers)))


def not_a_number(num_layers):
    model = build(num_layers)
    nn.init.constant_(model.layers[0].linear1.weight, float("nan"))
    return model
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "audited_models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "types.json").write_text('{"model_type": "gpt2", "n_embd": "wide"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model without a claim is nearest to, and how it is far beyond the depths that are asked for, take longest:
    a test that is about these asks for them."""
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", ())
    if "beyond" not in request.fixturenames:
        monkeypatch.setattr("depthlaw.auditing.audit.exponential", lambda *_: None)
    if not {"beside", "beside_all"} & {*request.fixturenames}:
        monkeypatch.setattr("depthlaw.auditing.audit._nearest", lambda *_: None)


@pytest.fixture
def beside_all() -> None:
    """Of all names there are."""


@pytest.fixture
def beyond() -> None:
    """Whether the update grows exponentially."""


def test_document() -> None:
    """One JSON document, exit 1 as there is a fault, and every number of it finite."""
    result = run("audit", "audited_models:build", "--layers", "2,4", "--scheme", "post-ln", "--seeds", "2", "--json")
    assert result.returncode == 1, result.stderr
    answer = json.loads(result.stdout)
    assert {"schema_version", "roles", "faults", "remarks", "nearest", "layers"} <= set(answer)
    (fault,) = answer["faults"]
    assert answer["by_layer"] is None
    assert fault["kind"] == "identical-layers" and not any("layers.0." in name for name in fault["where"])
    assert {"what", "where", "found", "expected", "why", "fix"} <= set(fault)
    by_role = {row["role"]: row for row in answer["roles"]}
    assert {"update", "q", "k", "v", "out", "fc1", "fc2", "bias", "norm_gain", "norm_bias"} == set(by_role)
    assert all(math.isfinite(point["measured"]) for row in answer["roles"] for point in row["update"])
    assert by_role["update"]["predicted_exponent"] is not None


def test_a_builder_of_two_numbers_builds_both_sides() -> None:
    answer = depthlaw.audit(_transformer, (2, 3), scheme="post-ln", seeds=1)
    assert {side: len(sublayers) for side, sublayers in answer.depths[-1].built.sides.items()} == {
        "encoder": 6,
        "decoder": 9,
    }
    assert not [fault for fault in answer.faults if fault.kind != "norms"]


def _transformer(encoder_layers: int, decoder_layers: int) -> nn.Module:
    return nn.Transformer(32, 4, encoder_layers, decoder_layers, 128, 0.0, batch_first=True)


def _fresh(num_layers: int, width: int = 32) -> Any:
    """torch's encoder with layers that are drawn one by one."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.xavier_normal_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def mended(build: Build, *fixes: str) -> Build:
    """The builder with fixes behind it, run as they are printed."""

    def build_mended(num_layers: int) -> nn.Module:
        names = {"torch": torch, "math": math, "depthlaw": depthlaw, "model": build(num_layers)}
        for fix in fixes:
            exec(fix, names | {"num_layers": num_layers})
        return names["model"]

    return build_mended


def by_keyword(*, num_layers: int) -> nn.Module:
    return _fresh(num_layers)


def by_keyword_on_both_sides(*, encoder_layers: int, decoder_layers: int, width: int = 32) -> nn.Module:
    return nn.Transformer(width, 4, encoder_layers, decoder_layers, 128, 0.0, batch_first=True)


@pytest.mark.parametrize(("build", "sides"), [(by_keyword, 1), (by_keyword_on_both_sides, 2)])
def test_a_builder_may_take_its_layers_by_keyword(build: Callable[..., nn.Module], sides: int) -> None:
    counts = audit(build, (2,), seeds=1, measures=False).depths[0].counts
    assert list(counts.values()) == [2] * sides


def test_a_seed_is_of_each_random_generator() -> None:
    """A builder that draws with Python's or numpy's builds the same again, and both go on as if nothing was drawn."""

    def build(num_layers: int) -> nn.Module:
        model = _fresh(num_layers)
        drawn.append((random.random(), float(numpy.random.normal())))
        with torch.no_grad():
            model.layers[0].linear1.weight.mul_(drawn[-1][0])
        return model

    numpy, drawn = import_module("numpy"), list[tuple[float, float]]()
    states = random.getstate(), numpy.random.get_state()[1].tolist()
    updates = [audit(build, (2,), seeds=2, seed=5).depths[0].updates for _ in range(2)]
    assert updates[0] == updates[1] and updates[0][0] != updates[0][1]
    by_generator = [set(values) for values in zip(*drawn, strict=True)]
    assert [len(values) for values in by_generator] == [3, 3]  # of two seeds, and of the look at the memory
    assert states == (random.getstate(), numpy.random.get_state()[1].tolist())


class Multiplied(nn.Module):
    """Pre-LN FFNs whose output matrices the data meet only behind ``weight_norm``, or times a number."""

    def __init__(self, num_layers: int, gain: float, how: str) -> None:
        super().__init__()
        self.gain = gain if how == "times" else 1.0
        self.ups = nn.ModuleList(nn.Linear(64, 128) for _ in range(num_layers))
        self.downs: Any = nn.ModuleList(nn.Linear(128, 64) for _ in range(num_layers))
        for down in self.downs if how == "weight_norm" else ():
            weight_norm(down)
            down.parametrizations.weight.original0.data.mul_(gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for up, down in zip(self.ups, self.downs, strict=True):
            inner = torch.relu(up(nn.functional.layer_norm(x, (64,))))
            x = x + nn.functional.linear(inner, down.weight * self.gain if self.gain != 1 else down.weight)
        return nn.functional.layer_norm(x, (64,))


@pytest.mark.parametrize("how", ["times", "weight_norm"])
def test_the_scale_is_that_of_the_matrix_that_the_data_meet(how: str) -> None:
    """The rule of gpt2, of L = N sublayers, is on no parameter's own entries."""
    right = audit(lambda n: Multiplied(n, n**-0.5, how), (2, 4), scheme="gpt2", measures=False)
    wrong = audit(lambda n: Multiplied(n, 1 / n, how), (2, 4), scheme="gpt2", measures=False)
    assert not right.faults
    assert [(fault.kind, fault.role) for fault in wrong.faults] == [("init-law", "fc2")]
    assert "get_parameter" not in wrong.faults[0].fix  # whose entries are not those that are asked for
    told = depthlaw.initialise(Multiplied(2, 0.1, how), scheme="gpt2")
    assert len([line for line in told.must_change if "is normalised" in line]) == (2 if how == "weight_norm" else 0)


def test_biases_are_compared_where_all_matrices_have_them() -> None:
    """Of the prediction's network all have; that of a head is none of a branch."""
    some = audit(lambda n: Multiplied(n, 1.0, ""), (2,), seeds=1)
    assert "bias" in some.depths[0].updates[0] and "bias" not in some.predicted[0]

    def headed(num_layers: int, *, has_bias: bool) -> nn.Module:
        return nn.Sequential(_fresh(num_layers), nn.Linear(32, 8, bias=has_bias))

    with_bias, without = (audit(lambda n, has=has: headed(n, has_bias=has), (2,), seeds=1) for has in (True, False))
    assert "bias" in without.predicted[0]
    assert with_bias.depths[0].updates[0]["bias"] == pytest.approx(without.depths[0].updates[0]["bias"])


def test_nothing_is_predicted_of_other_depths_where_depth_is_ignored() -> None:
    answer = audit(lambda _: _fresh(2), (2, 4), scheme="post-ln", seeds=1, far=(8,))
    assert [fault.kind for fault in answer.faults] == ["depth-ignored"]
    assert not answer.far and "predicted" not in answer.faults[0].why


def test_printed_in_python_it_is_the_page_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose last line, a command, has an answer."""
    monkeypatch.setenv("COLUMNS", "80")
    result = run(
        "audit", "audited_models:build", "--layers", "2,4", "--scheme", "post-ln", "--seeds", "1", COLUMNS="80"
    )
    answer = audit(import_module("audited_models").build, (2, 4), scheme="post-ln", seeds=1)
    assert str(answer).replace("MODULE:FACTORY", "audited_models:build") == result.stdout
    assert repr(answer) == f"<Audit: {result.stdout.splitlines()[0]}>"
    program, *arguments = result.stdout.splitlines()[-1].split()
    assert program == "depthlaw" and arguments[0] == "advise"
    told = run(*arguments)
    assert told.returncode == 0, told.stderr


def test_a_fault_of_several_roles_is_one_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the title, in the numbers below it, in Python and in the document; its roles have it each by itself."""
    monkeypatch.setenv("COLUMNS", "100")
    answer = audit(_fresh, (2, 4), recipe="gpt2", measures=False)
    first, *rest = str(answer).splitlines()
    numbers = [line for line in rest if re.match(r"[0-9]+\. ", line)]
    faults = answer.document()["faults"]
    assert len(numbers) == len(answer.faults) == len(faults) < len(answer.findings.faults)
    assert f"compared with gpt2: {len(numbers)} faults" in first
    (fault,) = (fault for fault in faults if fault["kind"] == "init-law")
    assert fault["roles"] == ["out", "fc2"] and fault["role"] == "out, fc2"
    assert "out and fc2 matrices" in fault["what"] and len(fault["where"]) == 8
    by_role = {row["role"]: row["faults"] for row in (answer.role_row(role) for role in fault["roles"])}
    assert {role: [len(own["where"]) for own in faults] for role, faults in by_role.items()} == {"out": [4], "fc2": [4]}
    assert not {"what", "where", "found", "expected", "fix"} - set(by_role["out"][0])


@pytest.mark.wide
@pytest.mark.usefixtures("beside_all")
def test_without_a_claim_the_nearest_is_named_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = audit(_fresh, (2, 4), measures=False)
    assert answer.nearest is not None and answer.nearest[0] == "post-ln" and answer.nearest.kind == "scheme"
    assert "--scheme post-ln" in str(answer) and not answer.faults
    told = audit(_fresh, (2, 4), scheme="post-ln", measures=False)
    assert "No faults: the model is built as post-ln says." in str(told)


def test_tokens_that_start_at_another_scale_are_predicted_as_they_are() -> None:
    """A class token beside patches, and one that is like them."""

    def starting(scale: float) -> Callable[[nn.Module], torch.Tensor]:
        scales = torch.tensor([scale, 1.0, 1.0, 1.0])[None, :, None]
        return lambda model: torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(1)) * scales

    for scale in (0.02, 1.0, 5.0):
        answer = audit(_fresh, (2,), seeds=16, inputs=starting(scale))
        assert not answer.remarks
        for role in ("update", "v", "out"):
            mean = sum(update[role] for update in answer.depths[0].updates) / 16
            assert mean == pytest.approx(answer.predicted[0][role], rel=0.25), role  # scatter, and L/d of 4/32


class Pooled(nn.Module):
    """A stack behind an embedding, of which an output reads the mean of all tokens, or the token at one place."""

    def __init__(self, num_layers: int, reads: int | None) -> None:
        super().__init__()
        self.reads, self.embedding, self.stack = reads, nn.Embedding(64, 64), _fresh(num_layers, 64)
        self.head = nn.Linear(64, 16, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.stack(self.embedding(ids))
        return self.head(hidden.mean(1) if self.reads is None else hidden[:, self.reads])


@pytest.mark.parametrize("reads", [None, 0, -1])
def test_the_prediction_reads_the_tokens_that_the_output_reads(reads: int | None) -> None:
    """Of a mean of eight tokens the update is less than half of that of one."""
    answer = audit(lambda n: Pooled(n, reads), (2,), scheme="post-ln", optimizer="sgd", seeds=8)
    assert not answer.faults and not answer.remarks
    for role in ("update", "fc1", "head"):
        mean = sum(update[role] for update in answer.depths[0].updates) / 8
        assert mean == pytest.approx(answer.predicted[0][role], rel=0.3), role


def test_a_model_of_half_precision_is_measured_and_predicted() -> None:
    answer = audit(lambda n: _fresh(n).bfloat16(), (1, 2), scheme="post-ln", seeds=2)
    assert not answer.faults and len(answer.predicted) == 2 and all(depth.updates for depth in answer.depths)


class OwnNorm(nn.Module):
    """An RMSNorm as people write it."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.gain


class _OwnNorms(nn.Module):
    """Pre-norm FFNs of standard deviation 0.02 behind norms of one's own."""

    def __init__(self, num_layers: int, eps: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 64)
        self.norms = nn.ModuleList(OwnNorm(64, eps) for _ in range(num_layers))
        self.ups = nn.ModuleList(nn.Linear(64, 256, bias=False) for _ in range(num_layers))
        self.downs = nn.ModuleList(nn.Linear(256, 64, bias=False) for _ in range(num_layers))
        self.final, self.head = OwnNorm(64, eps), nn.Linear(64, 64, bias=False)
        for parameter in (p for p in self.parameters() if p.ndim > 1):
            nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(torch.relu(up(norm(x))))
        return self.head(self.final(x))


def test_an_epsilon_counts_once_in_what_is_predicted() -> None:
    """And its fault names the norms that have it, and a norm of their kind."""
    answer = audit(lambda n: _OwnNorms(n, 1.0), (2, 4), scheme="pre-ln", seeds=8, far=())
    (fault,) = answer.faults
    assert fault.kind == "epsilon" and fault.where == tuple(f"norms.{n}.gain" for n in range(4))
    assert "nn.RMSNorm(d_model, eps=" in fault.fix
    assert fault.found.startswith("root mean square 0.0") and fault.expected == "root mean square 1"
    mean = sum(update["update"] for update in answer.depths[-1].updates) / 8
    assert mean == pytest.approx(answer.predicted[-1]["update"], rel=0.2) and not answer.remarks


def test_norms_that_do_not_normalise_are_a_fault_by_themselves() -> None:
    """Not where they do, to a few percent, nor where a number makes smaller what they gave."""
    (fault,) = audit(lambda n: _OwnNorms(n, 1.0), (2, 4), measures=False).faults
    assert fault.kind == "epsilon" and "epsilon, about 1," in fault.what
    small = replace(GPT_2, input_scale=lambda at: 0.1)
    (fault,) = audit(lambda n: _OwnNorms(n, 1e9), (2, 4), measures=False).faults
    assert fault.kind == "epsilon" and "epsilon, at least " in fault.what and "nan" not in f"{fault}"
    for build in (lambda n: _OwnNorms(n, 1e-5), transformer(small, gpt_2)):
        assert not audit(build, (2, 4), measures=False).faults
    scaled = audit(transformer(small, gpt_2), (2, 4), scheme="gpt2", measures=False).faults
    assert [fault.kind for fault in scaled] == ["input-scale"]


@pytest.mark.parametrize("claim", often([{}, {"scheme": "deepnorm"}], 2, wide=1))
def test_norms_behind_a_sum_that_do_not_normalise_are_a_fault(claim: dict[str, Any]) -> None:
    assert not audit(transformer(DEEPNORM, deepnorm), (2, 4), measures=False, **claim).faults
    (fault,) = audit(transformer(replace(DEEPNORM, eps=20.0), deepnorm), (2, 4), measures=False, **claim).faults
    assert (fault.kind, fault.roles) == ("epsilon", ("post",)) and "epsilon, about 2e+01," in fault.what
    assert len(fault.where) == 7 and all("norm" in name for name in fault.where)
    slight = audit(transformer(replace(DEEPNORM, eps=0.5), deepnorm), (2, 4), measures=False, **claim).faults
    assert [fault.kind for fault in slight] == ["epsilon"] * bool(claim)


def test_one_kind_of_sublayer_without_norms_is_a_fault_by_itself() -> None:
    """Not where a norm on the stream gives it its size again."""
    bare = replace(GPT_2, norms=lambda at: frozenset() if at.kind == "ffn" else frozenset({"pre"}))
    (fault,) = audit(transformer(bare, gpt_2), (2, 4), measures=False).faults
    assert (fault.kind, fault.roles) == ("norms", ("pre",)) and "any ffn sublayer" in fault.what
    half = replace(bare, norms=lambda at: frozenset() if at.kind == "ffn" else frozenset({"pre", "post"}))
    faults = audit(transformer(half, gpt_2), (2, 4), measures=False).faults
    assert not [fault for fault in faults if "any ffn sublayer" in fault.what]


def test_a_number_on_the_branches_of_post_norm_is_told_as_theirs() -> None:
    scaled = replace(DEEPNORM, residual_weight=lambda _: 1.0, branch_weight=lambda at: at.num_layers**0.25)
    (fault,) = audit(transformer(scaled, lambda _: 1.0), (2, 4), scheme="post-ln", measures=False).faults
    assert fault.kind == "branch-weight" and fault.found != fault.expected == "branch weight 1 at every depth"


class Looped(nn.Module):
    """One pre-norm layer, run several times."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True, norm_first=True)
        self.norm, self.num_layers = nn.LayerNorm(128), num_layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.num_layers):
            x = self.layer(x)
        return self.norm(x)


def test_a_prediction_that_misses_is_told_and_not_relied_on_in_a_fault() -> None:
    """Of layers that share their matrices, whose parts of the update add up; and of no model that is as predicted."""
    looped = audit(Looped, (2, 6), scheme="deepnorm", seeds=4, far=(8,))
    (remark,) = [remark for remark in looped.remarks if "trust what is measured" in remark]
    assert "(update " in remark and "The prediction leaves out layers that share their matrices" in remark
    told = {fault.kind: fault.why for fault in looped.faults}
    assert "at 6 layers" in told["norms"] and "so trust what is measured, here and beyond" in told["norms"]
    assert not audit(TWINS["pre-ln"].build, (2, 6), seeds=4).remarks


@cache
def of_three_depths() -> Audit:
    return audit(_fresh, (1, 2, 3), seeds=1)


@pytest.mark.parametrize(("factor", "least", "most"), [(1.0, 0.0, 0.03), (2.3, 0.97, 1.0), (1 / 2.3, 0.97, 1.0)])
def test_whether_a_prediction_misses_does_not_come_and_go(factor: float, least: float, most: float) -> None:
    """Of four seeds at each of three depths, whose updates scatter by a quarter: what is off by more than twice is told
    in nearly all of 200 draws, and what is right in nearly none."""
    answer = of_three_depths()
    generator = torch.Generator().manual_seed(0)
    told = 0
    for _ in range(200):
        depths = [
            replace(depth, updates=[{role: factor * value * math.exp(0.25 * torch.randn((), generator=generator).item())
                                     for role, value in row.items()} for _ in range(4)])
            for depth, row in zip(answer.depths, answer.predicted, strict=True)
        ]  # fmt: skip
        told += "update" in missed_by(depths, answer.predicted)
    assert least <= told / 200 <= most


def test_initialise_says_what_a_shared_matrix_cannot_be() -> None:
    told = depthlaw.initialise(Looped(3), scheme="mitchell")
    names = {line.partition(" ")[0] for line in told.must_change}
    assert names == {"layer.self_attn.out_proj.weight", "layer.linear2.weight"}
    assert not depthlaw.initialise(Looped(3), scheme="gpt2").must_change


REFUSED = {
    "": "give MODULE:FACTORY or --hf NAME; such as",
    "audited_models:build --hf gpt2": "give MODULE:FACTORY or --hf NAME, not both",
    "audited_models": "is MODULE:NAME",
    "nothere:build": "there is no module nothere",
    "audited_models:nothere": "has no nothere",
    "audited_models:MODELS": "has no MODELS",
    "audited_models:none": "returned something of type NoneType",
    "audited_models:awaited": "the builder awaited is an async function",
    "audited_models:takes_nothing": "takes nothing: it must take the number of layers to build, as build(num_layers)",
    "audited_models:broken": "RuntimeError: no such size",
    "audited_models:no_stream": "no residual stream",
    "audited_models:resnet": "the stream of Sequential, which is 1 x 8 x 224 x 224, as in a convolutional network",
    "audited_models:convnext": "the stream of Sequential, which is 1 x 8 x 56 x 56, as in a convolutional network",
    "audited_models:experts --scheme pre-ln": "as where one einsum multiplies experts by their router's weights",
    "audited_models:odd": "no input could be guessed for Odd.forward(a, b, c)",
    "audited_models:faulty": "called with vectors it fails, AttributeError: 'Faulty' object has no attribute 'head'",
    "audited_models:build --input audited_models:number": "answered no tensor",
    "audited_models:build --input audited_models:failing": "--input failed: ZeroDivisionError",
    "audited_models:build --input audited_models:too_wide": "called with what --input gives, TransformerEncoder fails",
    "audited_models:frozen": "all have requires_grad=False",
    "audited_models:build --scheme nosuch": "nosuch",
    "audited_models:build --recipe nosuch": "nosuch",
    "audited_models:build --scheme post-ln --recipe gpt2": "not both",
    "audited_models:build --layers 4,4": "each once",
    "audited_models:build --layers 0": "whole number",
    "audited_models:build --width 64": "--width is of --hf",
    "--hf nosuchmodel": "nosuchmodel",
    "--hf swin": "has its layers in stages",
    "--hf nothere.json": "cannot read",
    "--hf list.json": "it has no model_type",
    "--hf types.json": "expected int",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_refused_in_one_line(arguments: str) -> None:
    given = arguments.split()
    rest = [] if "--layers" in given else ["--layers", "2"]
    result = run("audit", *given, *rest, "--seeds", "1")
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert (result.returncode, len(lines)) == (2, 1), result.stderr
    assert REFUSED[arguments] in result.stderr


class Batch(NamedTuple):
    ids: torch.Tensor
    length: int = 8


@dataclass
class Bag:
    ids: torch.Tensor


class Read(nn.Module):
    """A model of token ids that lie in what it is called with. read: where."""

    def __init__(self, num_layers: int, read: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.read, self.embedding, self.stack = read, nn.Embedding(64, 32), _fresh(num_layers)

    def answer(self, given: Any) -> dict[str, Any]:
        return {"loss": None, "hidden": [self.stack(self.embedding(self.read(given)))]}


class Fed(Read):
    def forward(self, batch: Any) -> dict[str, Any]:
        return self.answer(batch)


class FedByPlace(Read):
    def forward(self, *batch: Any) -> dict[str, Any]:
        return self.answer(batch[0])


class FedByName(Read):
    def forward(self, **batch: Any) -> dict[str, Any]:
        return self.answer(batch)


_IDS = torch.arange(2, 10)[None]


@pytest.mark.parametrize(
    ("kind", "answer", "read", "name"),
    [
        (Fed, {"batch": {"ids": _IDS, "length": 8}}, lambda batch: batch["ids"], "batch.ids"),
        (Fed, {"ids": _IDS}, lambda batch: batch["ids"], "batch.ids"),
        (Fed, [{"parts": [None, (_IDS,)]}], lambda batch: batch["parts"][1][0], "batch.parts.1.0"),
        (Fed, [Batch(_IDS)], lambda batch: batch.ids[:, : batch.length], "batch.0"),
        (Fed, Bag(_IDS), lambda batch: batch.ids, "batch.ids"),
        (FedByPlace, [_IDS], lambda ids: ids, "input 0"),
        (FedByName, {"ids": _IDS}, lambda batch: batch["ids"], "ids"),
    ],
)
def test_an_input_may_be_of_any_shape(kind: type[Read], answer: Any, read: Callable, name: str) -> None:
    told = audit(lambda n: kind(n, read), (1, 2), scheme="post-ln", inputs=lambda _: answer, seeds=1)
    assert list(told.depths[0].built.inputs.data) == [name]
    assert not told.faults and told.exponent("update") is not None


class Telling(nn.Module):
    """A model that answers its loss and all its hidden states before its logits."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layers, self.head = _fresh(num_layers).layers, nn.Linear(32, 8)

    def forward(self, src: torch.Tensor) -> tuple[Any, ...]:
        states = [src]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states[-1].square().mean(), states, self.head(states[-1])


@pytest.mark.parametrize("part", [slice(0, 3), slice(0, 2)])
def test_what_a_model_answers_besides_is_passed_over(part: slice) -> None:
    """The logits are read, or without them the last of the hidden states."""

    def build(num_layers: int) -> nn.Module:
        model = Telling(num_layers)
        model.register_forward_hook(lambda _, __, answer: answer[part])
        return model

    answer = audit(build, (2,), scheme="post-ln", seeds=1)
    assert len(answer.depths[0].built.sublayers) == 4 and not answer.faults


def test_of_an_input_of_ones_own_and_a_model_that_prints_the_answer_is_a_document() -> None:
    own = ("--input", "audited_models:vectors")
    answer = json.loads(run("audit", "audited_models:loud", *own, "--layers", "2", "--seeds", "1", "--json").stdout)
    assert (answer["module"], answer["input"]) == ("Loud", "yours")


def test_a_configuration_names_no_code(here: Path) -> None:
    """Of a configuration, the names of kernels and classes to fetch are left out; the rest is built."""
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4}
    for name in ("attn_implementation", "_attn_implementation", "auto_map"):
        values = {"model_type": "llama", **sizes, name: {"AutoModel": "x/y--z.Z"} if name == "auto_map" else "x/y"}
        (here / "config.json").write_text(json.dumps(values), encoding="utf-8")
        config: Any = hugging_face("config.json")[0](1).config
        assert config._attn_implementation == "sdpa" and not hasattr(config, "auto_map")


def test_numbers_that_are_none_are_a_fault() -> None:
    result = run("audit", "audited_models:not_a_number", "--layers", "2", "--seeds", "1", "--json")
    faults = json.loads(result.stdout)["faults"]
    assert [fault["kind"] for fault in faults if "layers.0.linear1.weight" in fault["where"]] == ["not-finite"]


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

    told: list[Initialised] = []
    answer = audit(build, (2, 4), scheme=scheme, recipe=recipe, optimizer="adam", measures=False)
    kinds = {fault.kind for fault in answer.faults}
    assert kinds == ({"residual-weight"} if told[-1].must_change else set())
    assert len(told[-1].must_change) == (0 if scheme is None else 8)


def test_gpt2_is_initialised_with_its_positions() -> None:
    """Fused queries, keys and values, and an embedding beside learned positions: nothing is left to say."""
    pytest.importorskip("transformers")
    build = hugging_face("gpt2", 64)[0]

    def initialised(num_layers: int) -> nn.Module:
        model = build(num_layers)
        depthlaw.initialise(model, recipe="gpt2")
        return model

    assert not audit(initialised, (2, 4), recipe="gpt2", measures=False).faults


@pytest.mark.parametrize("name", ["gpt2", "deepnorm", "dyt", "llama-2"])
def test_what_is_measured_is_what_is_predicted(name: str) -> None:
    """Of right models of the gallery: the mean of eight seeds lies within L/d, the order of what the width corrects."""
    twin = next(twin for twin in TWINS.values() if twin.name == name)
    answer = audit(twin.build, (4,), scheme=twin.scheme, recipe=twin.recipe, seeds=8)
    built = answer.depths[0].built
    mean = sum(update["update"] for update in answer.depths[0].updates) / 8
    assert mean == pytest.approx(answer.predicted[0]["update"], rel=len(built.sublayers) / built.d_model)


def test_sides_are_as_they_are_predicted() -> None:
    """torch's encoder-decoder, its layers drawn one by one: the encoder's update, and the decoder's, and each matrix's
    on its side, lie in the interval of eight seeds (1e-3 for all together), widened by L/d."""

    def build(encoder_layers: int, decoder_layers: int) -> nn.Module:
        model = nn.Transformer(64, 4, encoder_layers, decoder_layers, 128, 0.0, batch_first=True)
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                nn.init.xavier_normal_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        return model

    answer = audit(build, (2,), scheme="post-ln", seeds=8)
    told, updates = answer.predicted[0], answer.depths[0].updates
    roles = [role for role in answer.roles if "/" in role]
    assert len(roles) == (1 + 6) + (1 + 10)  # "update" and the matrices; cross-attention stands on one side
    width = len(answer.depths[0].built.sublayers) / 64
    for role in roles:
        mean = estimate([update[role] for update in updates], level=1 - 1e-3 / len(roles))
        assert mean.low is not None and mean.high is not None
        assert (1 - width) * mean.low <= told[role] <= (1 + width) * mean.high, role


# ---------------------------------------------------------------- faults in their words


Gain = Callable[[int, int], float]


class Stacked(nn.Module):
    """Pre-LN blocks whose FFNs are on stacked parameters. gain(number of layers, layer from 1): of the attentions'
    output matrices; other: of the FFNs'."""

    def __init__(self, num_layers: int, gain: Gain, other: Gain) -> None:
        super().__init__()
        places = range(1, num_layers + 1)
        attentions = [nn.MultiheadAttention(64, 4, bias=False, batch_first=True) for _ in places]
        self.attentions = nn.ModuleList(attentions)
        for attention, place in zip(attentions, places, strict=True):
            nn.init.xavier_normal_(attention.out_proj.weight, gain(num_layers, place))
        self.up = nn.Parameter(torch.randn(num_layers, 128, 64) * (2 / 192) ** 0.5)
        downs = [torch.randn(64, 128) * (2 / 192) ** 0.5 * other(num_layers, place) for place in places]
        self.down = nn.Parameter(torch.stack(downs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for attention, up, down in zip(self.attentions, self.up, self.down, strict=True):
            y = nn.functional.layer_norm(x, (64,))
            x = x + attention(y, y, y)[0]
            x = x + torch.relu(nn.functional.layer_norm(x, (64,)) @ up.T) @ down.T
        return nn.functional.layer_norm(x, (64,))


RIGHT: dict[str, Gain] = {
    "pre-ln": lambda n, at: 1.0,
    "gpt2": lambda n, at: (2 * n) ** -0.5,
    "mitchell": lambda n, at: (2 * at) ** -0.5,
}
WORDS: list[tuple[str, Gain | None, list[str]]] = [
    *((name, None, []) for name in RIGHT),
    (
        "mitchell",
        lambda n, at: (2 * max(at - 1, 1)) ** -0.5,
        ["The fc2 matrices follow mitchell's law, but the layer's index is counted from 0."],
    ),
    (
        "mitchell",
        lambda n, at: (2 * (n + 1 - at)) ** -0.5,
        ["The fc2 matrices follow mitchell's law, but the layer's index is counted from the last layer."],
    ),
    (
        "mitchell",
        RIGHT["gpt2"],
        ["The fc2 matrices are scaled by the number of layers, and mitchell's by the layer's index."],
    ),
    (
        "gpt2",
        lambda n, at: (2 * n) ** -0.5 if at < n else 1.0,
        ["Some fc2 matrices start at another scale than the rest: layer 2 of 2, layer 4 of 4, layer 8 of 8."],
    ),
    (
        "gpt2",
        RIGHT["mitchell"],
        ["The fc2 matrices are scaled by the layer's index, and gpt2's by the number of layers."],
    ),
    (
        "gpt2",
        lambda n, at: 24**-0.5,
        ["The fc2 matrices start at the same scale at every depth, which is gpt2's at about 12 layers."],
    ),
    (
        "gpt2",
        RIGHT["pre-ln"],
        ["The fc2 matrices do not depend on the number of layers: the depth rule of gpt2 is not applied."],
    ),
]


@pytest.mark.parametrize(("scheme", "other", "says"), often(WORDS, 3, wide=1))
def test_a_law_that_is_missed_is_told_in_the_words_of_its_cause(
    scheme: str, other: Gain | None, says: list[str]
) -> None:
    right = RIGHT[scheme]
    answer = audit(lambda n: Stacked(n, right, other or right), (2, 4, 8), scheme=scheme, measures=False)
    assert [fault.what for fault in answer.faults] == says


def test_copies_in_one_parameter_are_copies() -> None:
    """And not one matrix: a parameter may hold those of all layers."""

    def build(num_layers: int) -> nn.Module:
        module = Stacked(num_layers, RIGHT["pre-ln"], RIGHT["pre-ln"])
        with torch.no_grad():
            module.up.copy_(module.up[:1].clone())
        return module

    (fault,) = audit(build, (2, 4), scheme="pre-ln", measures=False).faults
    assert (fault.kind, fault.where) == ("identical-layers", ("up",))


def test_a_constant_that_is_off_says_how_far_the_update_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratio to what is asked for is that of the model to its right twin, whatever both start their matrices by.

    Laws at twice the depth are known to a percent or two, from matrices of some thousand entries each."""
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", (8,))
    right = RIGHT["gpt2"]
    twice, twin = (
        audit(lambda n, by=by: Stacked(n, lambda n, at: by * right(n, at), lambda n, at: by * right(n, at)), (2, 4),
              scheme="gpt2", seeds=1)
        for by in (2.0, 1.0)
    )  # fmt: skip
    assert {fault.kind for fault in twice.faults} == {"init-constant"} and not twin.faults
    task = task_of(twin.depths[0].built)
    is_, right_one = (predicted(extrapolated(own.depths, own.findings, 8), task, "adamw") for own in (twice, twin))
    for role, ratio in twice.far[8]["ratio"].items():
        assert ratio == pytest.approx(is_[role] / right_one[role], rel=0.1), role


def test_of_copies_nothing_is_said_that_holds_of_independent_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", (40,))
    answer = audit(import_module("audited_models").build, (2, 4), scheme="post-ln", seeds=1)
    (fault,) = answer.faults
    assert "that of independent layers would be" in fault.why and " at 40" not in fault.why
    text = " ".join(str(answer).split())
    assert "Even with every fault mended" in text and "the model as it is" not in text
    model = import_module("audited_models").build(2)
    with torch.no_grad():
        model.layers[1].linear1.weight.mul_(0.1)
    before = [layer.linear1.weight.std().item() for layer in model.layers]
    exec(fault.fix, {"torch": torch, "model": model})
    after = [layer.linear1.weight for layer in model.layers]
    assert not torch.equal(after[0], 10 * after[1])
    assert [weight.std().item() for weight in after] == pytest.approx(before, rel=0.05)
    assert (model.layers[0].norm1.weight == 1).all()


@pytest.mark.parametrize(
    ("norms", "says"), [("pre", ["A norm stands on the stream behind the embedding"]), ("post", [])]
)
def test_a_norm_behind_the_embedding_is_no_fault_of_the_embedding(norms: str, says: list[str]) -> None:
    """Whose matrices start as they should; where norms stand on all of the stream, that is told already."""
    build = transformer(replace(GPT_2, norms=everywhere(norms), has_embedding_norm=True), gpt_2)
    faults = audit(build, (2, 4), recipe="gpt2", measures=False).faults
    of_start = [fault for fault in faults if fault.kind == "embedding"]
    assert [fault.what.partition(";")[0] for fault in of_start] == says
    assert not any("normal_" in fault.fix for fault in of_start) and (says or faults)


class Replaced(Sublayer):
    """An FFN whose branch is not added to the stream but replaces it."""

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        return self.added(x, memory) if self.at.kind == "ffn" else super().forward(x, memory)


def test_a_forgotten_residual_connection_is_one_fault() -> None:
    """In all layers, the last among them; what is read of the rest follows from it."""
    build = transformer(replace(GPT_2, sublayer=Replaced), gpt_2)
    (fault,) = audit(build, (2, 4), recipe="gpt2", measures=False).faults
    matrices = [name for name, p in build(4).named_parameters() if "ffn" in name and p.ndim == 2 and "norm" not in name]
    assert fault.kind == "no-residual" and len(matrices) == 8 and set(fault.where) == set(matrices)


@pytest.mark.parametrize(
    ("std", "kind", "says"),
    [
        (
            lambda num_layers: 1 / num_layers,
            "init-constant",
            "times the scale of gpt-neox, that of twice as many layers",
        ),
        (lambda _: 1 / 3**0.5, "init-law", "do not depend on the number of layers"),
        (lambda num_layers: 2 / num_layers, None, ""),
    ],
)
def test_layers_in_turn_have_the_stds_of_those_side_by_side(
    std: Callable[[int], float], kind: str | None, says: str
) -> None:
    """std: of what ends a branch, in units of 1/sqrt(d). As a public trainer has GPT-NeoX's initialisation for its
    Llamas, once by half and once not at all."""

    def law(matrix: Matrix) -> float:
        return (std(matrix.place.num_layers) if matrix.role in ("out", "fc2") else (2 / 5) ** 0.5) / 32**0.5

    answer = audit(transformer(replace(GPT_2, d_model=32), law), (2, 4), recipe="gpt-neox", measures=False)
    faults = {fault.kind: fault.what for fault in answer.faults if fault.kind.startswith("init")}
    assert list(faults) == ([kind] if kind else [])
    assert all("out and fc2" in what and says in what for what in faults.values())
    assert "structure" in {fault.kind for fault in answer.faults}


@pytest.mark.parametrize("law", often([flat, gpt_2], 2, wide=1))
def test_a_head_at_zero_hides_no_fault(law: Callable[[Matrix], float]) -> None:
    """As some start it on purpose: nothing before it has a gradient, and everything else is compared as ever."""

    def build(num_layers: int) -> nn.Module:
        module = transformer(replace(GPT_2, is_tied=False), law)(num_layers)
        nn.init.zeros_(module.get_parameter("lm_head.weight"))
        return module

    answer = audit(build, (2, 4), scheme="gpt2", seeds=2)
    assert [fault.kind for fault in answer.faults] == (["init-law"] if law is flat else [])
    assert any("starts at 0, so that a first step moves it alone" in remark for remark in answer.findings.remarks)


def test_laws_of_the_layers_that_were_asked_for_are_no_second_fault() -> None:
    def without_last(num_layers: int) -> nn.Module:
        module = Stacked(num_layers, RIGHT["gpt2"], RIGHT["gpt2"])
        module.attentions = module.attentions[:-1]
        module.up, module.down = nn.Parameter(module.up[:-1].detach()), nn.Parameter(module.down[:-1].detach())
        return module

    answer = audit(without_last, (3, 6, 12), scheme="gpt2", measures=False)
    assert [fault.kind for fault in answer.faults] == ["depth-ignored"]


def test_a_residual_weight_is_wrong_where_every_layer_has_it() -> None:
    (fault,) = audit(_fresh, (2, 4), scheme="deepnorm", measures=False).faults[:1]
    assert fault.kind == "residual-weight" and {name.split(".")[1] for name in fault.where} == set("0123")


@pytest.mark.parametrize("is_pre", often([True, False], 2, wide=1))
def test_copies_add_up_where_it_is_measured(is_pre: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", ())

    def build(num_layers: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(32, 4, 128, 0.0, batch_first=True, norm_first=is_pre)
        return nn.TransformerEncoder(
            layer, num_layers, nn.LayerNorm(32) if is_pre else None, enable_nested_tensor=False
        )

    answer = audit(build, (2, 8), scheme="pre-ln" if is_pre else "post-ln", seeds=2)
    (fault,) = answer.faults
    first, last = (estimate([update["update"] for update in depth.updates]).mean for depth in answer.depths)
    independent = answer.predicted[-1]["update"] / answer.predicted[0]["update"]
    assert ("add up in one direction" in fault.what) == (last / first > 1.1 * independent)
    assert ("moves the model no further" in fault.what) == (last / first <= 1.1 * independent)
    (unmeasured,) = audit(build, (2, 8), scheme="pre-ln" if is_pre else "post-ln", measures=False).faults
    assert unmeasured.what == "Layers start as copies of one another."


_OF_TWO = "of an encoder-decoder's "


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (lambda at: 24**0.25, "is the same at every depth, that of 12 layers."),
        (lambda at: 1.1, "is the same at every depth."),
        (lambda at: two_sides(replace(at, side="encoder")), f"is that {_OF_TWO}encoder, and this has one side."),
        (lambda at: two_sides(replace(at, side="decoder")), f"is that {_OF_TWO}decoder, and this has one side."),
        (lambda at: at.num_layers**0.25, "is that of half as many layers."),
        (lambda at: (4 * at.num_layers) ** 0.25, "is that of twice as many layers."),
        (lambda at: (2 * at.num_layers) ** 0.75, "goes as N^0.75, and deepnorm's as N^0.25."),
    ],
)
def test_a_residual_weight_of_another_law_is_named(weight: Callable[[Any], float], says: str) -> None:
    shape = replace(DEEPNORM, residual_weight=weight)
    (fault,) = audit(transformer(shape, deepnorm), (2, 4), scheme="deepnorm", measures=False).faults
    assert (fault.kind, fault.what) == ("residual-weight", f"The residual weight {says}")


@pytest.mark.wide
def test_a_residual_weight_of_the_other_side_is_named() -> None:
    """Both sides have the encoder's constants."""
    shape = replace(BOTH, d_model=64, ffn_width=256, residual_weight=lambda at: two_sides(replace(at, side="encoder")))
    build = transformer(shape, xavier_scaled(lambda at: two_gains(replace(at, side="encoder")), *GAINED))
    faults = audit(build, (2, 8), scheme="deepnorm", measures=False).faults
    assert {fault.side for fault in faults} == {"decoder"}
    assert [fault.what for fault in faults] == [
        "The residual weight is that of the encoder, and this is the decoder.",
        "The v, out, cross_v, cross_out, fc1 and fc2 matrices follow the law of the encoder, and this is the decoder.",
    ]


@pytest.mark.parametrize(
    ("claim", "share", "says"),
    often(
        [
            (
                {"recipe": "gpt2"},
                lambda n: n**-0.5,
                "start at 1.4 times the scale of gpt2, that of half as many layers.",
            ),
            ({"recipe": "gpt2"}, lambda n: 1.2 * (2 * n) ** -0.5, "start at 1.2 times the scale of gpt2."),
            (
                {"recipe": "gpt2"},
                lambda n: 0.5 / n,
                "have the square of gpt2's depth rule, as where it is applied twice.",
            ),
            (
                {"scheme": "gpt2"},
                lambda n: 0.5 / n,
                "have the square of gpt2's depth rule, as where it is applied twice.",
            ),
            ({"recipe": "gpt2"}, lambda n: 0.25 / n, "have another exponent in the number of layers than gpt2's."),
        ],
        2,
        wide=1,
    ),
)
def test_the_likeliest_cause_of_another_initialisation_is_named(
    claim: dict[str, Any], share: Callable[[int], float], says: str
) -> None:
    law = only(lambda matrix: 0.02 * share(matrix.place.num_layers), "out", "fc2", otherwise=gpt_2)
    (fault,) = audit(transformer(GPT_2, law), (2, 4, 8), measures=False, **claim).faults
    assert re.sub(r"(\d\.\d)\d*", r"\1", fault.what) == f"The out and fc2 matrices {says}"


def test_what_is_not_trained_is_told() -> None:
    def build(num_layers: int, names: str) -> nn.Module:
        model = transformer(GPT_2, gpt_2)(num_layers)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(names not in name)
        return model

    answer = audit(lambda n: build(n, "blocks"), (2, 4), seeds=2)
    assert any("the matrices of branches are not trained" in remark for remark in answer.findings.remarks)
    assert "the line update" not in " ".join(str(answer).split())
    some = audit(lambda n: build(n, "up_proj"), (2, 4), measures=False).findings.remarks
    assert any("4 of 16 matrices of branches are not trained: " in remark for remark in some)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_gains_of_an_encoder_decoder_are_named_in_a_single_stack(side: str) -> None:
    shape = replace(DEEPNORM, d_model=64, ffn_width=256)
    build = transformer(shape, xavier_scaled(lambda at: two_gains(replace(at, side=side)), *GAINED))
    (fault,) = audit(build, (2, 4, 8), scheme="deepnorm", measures=False).faults
    law = f"the law {_OF_TWO}{side}, and this has one side"
    assert fault.what == f"The v, out, fc1 and fc2 matrices follow {law}."


@pytest.mark.parametrize(
    ("model", "claim", "far", "clause"),
    often(
        [
            ("rule lost", {"recipe": "gpt2"}, (12, 48), "mended, that of out grows more, as gpt2's does"),
            ("alpha of 12 layers", {"scheme": "deepnorm"}, (12, 48), "what it should be at 12, x "),
            ("layer scale", {"scheme": "pre-ln"}, (8, 12), "what it should be, at any depth"),
        ],
        3,
        wide=1,
    ),
)
def test_a_fault_says_how_far_the_update_is_from_what_it_should_be(
    model: str, claim: dict[str, Any], far: tuple[int, ...], clause: str
) -> None:
    """And where the update is right to grow more, that the fault is another one than its growth."""
    build = {
        "rule lost": transformer(GPT_2, lambda matrix: 0.02),
        "alpha of 12 layers": transformer(replace(DEEPNORM, residual_weight=lambda at: 24**0.25), deepnorm),
        "layer scale": transformer(CAIT, lambda matrix: 0.02),
    }[model]
    answer = audit(build, (2, 4), seeds=1, optimizer="sgd" if model[0] == "a" else "adamw", far=far, **claim)
    (fault,) = answer.faults
    assert clause in fault.why
    assert ("grows more, as" in fault.why) == (model == "rule lost")


def test_a_fix_touches_the_rows_of_its_role_alone() -> None:
    """Queries and keys at half their scale, in a fused matrix: the fixes, run as they are printed, leave nothing."""

    def build(num_layers: int) -> Any:
        torch.manual_seed(0)
        model = _fresh(num_layers)
        with torch.no_grad():
            for layer in model.layers:
                layer.self_attn.in_proj_weight[:64] /= num_layers
        return model

    (fault,) = audit(build, (2, 4), scheme="post-ln", measures=False).faults
    assert fault.roles == ("q", "k") and fault.fix.startswith("for layer in range(1, num_layers + 1):")
    right: Any = mended(build, fault.fix)
    assert not audit(right, (2, 4), scheme="post-ln", measures=False).faults
    for one, other in zip(build(4).layers, right(4).layers, strict=True):
        assert torch.equal(one.self_attn.in_proj_weight[64:], other.self_attn.in_proj_weight[64:])


def _laws() -> dict[str, Claimed]:
    named = [(name, True) for name in RECIPES] + [(name, False) for name in SCHEMES]
    return {f"{name} {is_recipe}": Claimed.named(name, "adamw", is_recipe=is_recipe) for name, is_recipe in named}


@pytest.mark.wide
@pytest.mark.parametrize("twin", often(["gpt2", "deepnorm, two sides"], 2))
def test_a_law_in_a_fix_is_that_of_the_claim(twin: str) -> None:
    """Run as it is printed, for each layer; only what has no formula in the layer has none."""
    built = audit(TWINS[twin].build, (3,), scheme="post-ln", measures=False).depths[0].built
    counts = {"num_layers": 3, "num_encoder_layers": 3, "num_decoder_layers": 3}
    without = set()
    for name, claimed in _laws().items():
        try:
            asked = claimed.config(built, dict.fromkeys(built.sides, 3))
        except ValueError:  # of which there is no such network
            continue
        for side, sublayers in zip(built.sides, (asked.encoder, asked.decoder), strict=False):
            for index, sub in enumerate(sublayers):
                numbers = {("residual_weight", ""): sub.residual_weight, ("branch_weight", ""): sub.branch_weight}
                for role in asked.roles(sub.kind):
                    gain = sub.gains.get(role, 1.0)
                    numbers["std", role] = asked.std(sub, role) if claimed.is_absolute else gain
                for (weight, role), number in numbers.items():
                    law = claimed.law(weight, built, side, role)
                    if law is None:
                        without.add((name, weight))
                    else:
                        layer = index // (len(sublayers) // 3) + 1
                        told = eval(law, {"math": math, **counts, "layer": layer})
                        assert told == pytest.approx(number, rel=1e-5), (name, side, weight, role)
    assert without == {("admin False", "residual_weight")}


def test_a_scheme_is_asked_for_on_the_scale_that_the_other_matrices_have() -> None:
    """0.02 whatever the shape, as most code has it: the fix, run as it is printed, leaves no fault, and the model where
    it was but for the rule."""
    build = transformer(GPT_2, lambda matrix: 0.02)
    (fault,) = audit(build, (2, 4), scheme="gpt2", measures=False).faults
    assert "depthlaw.initialise" not in fault.fix and fault.expected.startswith("std 0.014")
    claims: list[dict[str, Any]] = [{"scheme": "gpt2"}, {"recipe": "gpt2"}]
    for claim in claims:
        assert not audit(mended(build, fault.fix), (2, 4), measures=False, **claim).faults


def test_a_fault_of_both_sides_is_told_once_with_the_law_of_each() -> None:
    shape = replace(BOTH, d_model=64, ffn_width=256, residual_weight=lambda at: 1.7)
    build = transformer(shape, xavier_scaled(two_gains, *GAINED))
    (fault,) = audit(build, (2, 4), scheme="deepnorm", measures=False).faults
    assert fault.what.startswith("The residual weight is the same at every depth")
    assert fault.side == "encoder and decoder" and "; decoder residual weight " in fault.expected
    lines = fault.fix.splitlines()
    laws = [line.partition(" = ")[2].partition("  #")[0] for line in lines if line.startswith("residual_weight")]
    numbers = {"num_encoder_layers": 4, "num_decoder_layers": 4}
    sides = ("encoder", "decoder")
    right = [two_sides(At(side=side, kind="ffn", layer=1, num_layers=4)) for side in sides]
    assert [eval(law, dict(numbers)) for law in laws] == pytest.approx(right, rel=0.01)
    assert lines.count("x = norm(residual_weight * x + branch(x))") == 2 and lines[0] == "# encoder"


def test_the_number_of_threads_is_as_it_was() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        seen: list[int] = []

        def build(num_layers: int) -> nn.Module:
            seen.append(torch.get_num_threads())
            return _fresh(num_layers)

        audit(build, (2,), scheme="post-ln", measures=False)
        assert torch.get_num_threads() == 3 and seen[-1] == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "recipe"), [("gpt2", "gpt2"), ("bert", "bert"), ("qwen3", "qwen-3"), ("gpt_neox", None)]
)
def test_a_model_of_hugging_face_is_compared_with_its_own_recipe(name: str, recipe: str | None) -> None:
    """GPT-NeoX is none: its authors' code starts otherwise than the port."""
    pytest.importorskip("transformers")
    build, own = hugging_face(name, 64)
    assert own == recipe
    assert not audit(build, (2, 4), recipe=own, measures=False).faults


def test_normalised_queries_and_keys_are_a_remark_beside_a_scheme() -> None:
    pytest.importorskip("transformers")
    answer = audit(hugging_face("qwen3", 64)[0], (2, 4), scheme="pre-ln", measures=False)
    assert not answer.faults
    assert "queries and keys are normalised, of which pre-ln says nothing" in answer.findings.remarks


# ---------------------------------------------------------------- streams that explode


class _Weighted(nn.Module):
    """Pre-norm, with a residual weight above 1."""

    def __init__(self, num_layers: int, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(num_layers))
        self.ffns = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(num_layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, ffn in zip(self.norms, self.ffns, strict=True):
            x = self.weight * x + ffn(norm(x))
        return x


@pytest.mark.parametrize("scheme", [None, "deepnorm"])
def test_a_stream_that_explodes_is_told_with_its_numbers(scheme: str | None) -> None:
    answer = audit(lambda n: _Weighted(n, 1.0 + n), (2, 4), scheme=scheme, optimizer="adam", seeds=2, far=(8, 1000))
    (told,) = [remark for remark in answer.remarks if "the stream grows with every layer" in remark]
    assert "at 1,000 layers its numbers are beyond the floats" in told and " at 4 layers" in told
    assert len(answer.predicted) == 2 and "residual-weight" in {fault.kind for fault in answer.faults}
    assert not any("converge" in remark or "x_" in remark for remark in answer.remarks)
    assert ("at 1,000 layers there is no prediction of the module as it is" in " ".join(answer.remarks)) == bool(scheme)


def test_a_stream_that_stays_is_not_said_to_explode() -> None:
    for weight in (lambda n: 1.0, lambda n: 1 + 1 / n):
        answer = audit(lambda n, of=weight: _Weighted(n, of(n)), (2, 4), measures=False, far=(100, 1000))
        assert not any("grows" in remark for remark in answer.remarks)
        assert "residual-weight" not in {fault.kind for fault in answer.faults}


class _Normless(nn.Module):
    """FFNs on a stream without norms, whose branches grow with it, or are bounded by tanh."""

    def __init__(self, num_layers: int, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.ups = nn.ModuleList(nn.Linear(64, 64) for _ in range(num_layers))
        self.downs = nn.ModuleList(nn.Linear(64, 64) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=1 / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(self.activation(up(x)))
        return x


@pytest.mark.parametrize(("layers", "seed"), often(product([(2, 4), (4, 16)], range(3)), 5))
def test_a_stream_without_norms_explodes_where_its_branches_grow_with_it(layers: tuple[int, ...], seed: int) -> None:
    for activation, explodes in ((torch.relu, True), (nn.functional.gelu, True), (torch.tanh, False)):
        answer = audit(lambda n, of=activation: _Normless(n, of), layers, measures=False, seed=seed, far=(100, 1000))
        assert any("the stream grows with every layer" in remark for remark in answer.remarks) == explodes
        assert [fault.kind for fault in answer.faults] == ["norms"] * explodes


def test_layers_may_be_one_number() -> None:
    assert audit(lambda n: _Weighted(n, 1.0), 2, measures=False).layers == [2]
    wrong: Any
    for wrong in ((), (2, 2), (0,), (1.5,)):
        with pytest.raises(ValueError, match=r"such as \(4, 8, 16\)"):
            audit(lambda n: _Weighted(n, 1.0), wrong)
    with pytest.raises(ValueError, match="unknown optimizer 'adamw2'"):
        audit(lambda n: _Weighted(n, 1.0), 2, optimizer="adamw2")
    wrong = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"a builder is wanted, a function .* not a Linear"):
        audit(wrong, 2)


def test_initialise_says_where_norms_move() -> None:
    """Else who follows it would build a residual weight on a stream that no norm brings back."""
    told = depthlaw.initialise(_Weighted(2, 1.0), scheme="deepnorm", optimizer="adam")
    assert len(told.must_change) == 2
    assert all(line.endswith("with norms post in place of pre") for line in told.must_change)
    assert not depthlaw.initialise(_Weighted(2, 1.0), scheme="pre-ln", optimizer="adam").must_change


# ---------------------------------------------------------------- what stands first, without a claim


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Which names there are to be near to: of all of them the nearest takes long to find."""

    def only_these(*names: str) -> None:
        for kind, known in (("RECIPES", RECIPES), ("SCHEMES", SCHEMES)):
            own = {name: of for name, of in known.items() if name in names}
            monkeypatch.setattr(f"depthlaw.auditing.audit.{kind}", own)
        monkeypatch.setenv("COLUMNS", "200")

    return only_these


def test_the_headline_says_what_differs_and_how_the_update_grows(beside: Callable[..., None]) -> None:
    """Of a Llama without its final norm, which is a fault whatever its name is; of one that has it, no differences."""
    beside("llama-2", "pre-ln")
    answer = audit(transformer(replace(LLAMA, has_final=False), flat), (2, 4), seeds=2)
    grows = answer.exponent("update")
    assert grows is not None and grows.measured is not None
    first, *rest = str(answer).splitlines()
    ends = f"1 fault of its own, 1 difference from the recipe llama-2; the update grows as N^{grows.measured.mean:.2f}"
    assert first.endswith(ends) and grows.measured.mean > 1
    assert rest[-1] == "  depthlaw advise --model MODULE:FACTORY --optimizer adamw --from-layers 2 --layers 4"
    named = audit(transformer(replace(LLAMA, has_final=False), flat), (2, 4), recipe="llama-2", seeds=2)
    assert named.faults and str(named).splitlines()[-1] == rest[-1]  # of this very model, with a name and faults, too
    assert "Once the faults are mended" in str(named)
    right = audit(transformer(LLAMA, flat), (2, 4), measures=False)
    assert str(right).splitlines()[0].endswith("no faults of its own, no differences from the recipe llama-2")
    assert "--recipe llama-2" in str(right)
    like_it = audit(transformer(LLAMA, flat), (2, 4), seeds=2)
    assert str(like_it).splitlines()[-1] == rest[-1], "the advice is of the user's own model, with its own names"


@pytest.mark.usefixtures("beyond")
@pytest.mark.slow
def test_no_growth_is_told_by_a_prediction_that_the_measurement_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    far, grown = {"fc1": (1.0, 4.0)}, estimate([1.9, 2.0, 2.1])
    assert is_useless(far) and is_useless(far, Growth(grown, 20.0, 3))
    assert not is_useless(far, Growth(grown, 2.0, 3))
    assert not is_useless({"fc1": (1.0, 1.5)}) and not is_useless({})
    build = transformer(replace(gallery_field.VASWANI, branch_weight=gallery_field.alpha), xavier)
    assert audit(build, (8, 16), seeds=1).exponential is not None
    monkeypatch.setattr("depthlaw.auditing.audit.is_useless", lambda *_: True)
    assert audit(build, (8, 16), seeds=1).exponential is None


class InTurn(nn.Module):
    """Two stacks that are gone through in turn, twice, each with a norm at its end, as in a hierarchical model."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()

        def stack() -> nn.ModuleList:
            return nn.ModuleList(
                nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True, norm_first=True)
                for _ in range(num_layers)
            )

        self.low, self.high = stack(), stack()
        self.low_norm, self.high_norm = nn.LayerNorm(64), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            for blocks, norm in ((self.low, self.low_norm), (self.high, self.high_norm)):
                for block in blocks:
                    x = block(x)
                x = norm(x)
        return x


def test_stacks_in_turn_are_not_accused_of_the_norm_at_their_ends() -> None:
    faults = audit(InTurn, (3, 4, 5), measures=False).faults
    assert "norms" not in {fault.kind for fault in faults}, [fault.what for fault in faults]


def test_of_a_model_that_is_not_read_as_a_whole_nothing_is_predicted() -> None:
    """A U-Net: what stands between the two ends of a join is not read, so its layers are not those of the model."""
    build = gallery_field.u_net.build
    answer = audit(build, (4, 8), seeds=2)
    assert not answer.predicted and answer.exponential is None and answer.nearest is None
    assert "not all of which is read: no faults in what is" in " ".join(str(answer).splitlines()[:2])
    assert "depthlaw advise" not in str(answer)
    assert "not all of which is read, compared with gpt2" in repr(audit(build, (4, 8), recipe="gpt2", measures=False))
    with pytest.raises(ValueError, match=r"there is no advice for UNet, not all of which is read: behind .* U-Net"):
        depthlaw.advise(build, from_layers=4, layers=8)


def test_what_differs_and_is_no_fault_by_itself_stands_below_the_headline(beside: Callable[..., None]) -> None:
    beside("gpt2")
    lines = str(audit(transformer(replace(GPT_2, is_tied=True), flat), (2, 4), measures=False)).splitlines()
    assert lines[0].endswith("no faults of its own, 1 difference from the recipe gpt2")
    assert lines[1].startswith("Beside gpt2: The out and fc2 matrices")


def test_what_is_far_from_all_names_is_near_to_none(beside: Callable[..., None]) -> None:
    """It is said how far, and neither its name is advised nor what is known of it."""
    beside("olmo-2")
    answer = audit(transformer(GPT_2, gpt_2), (2, 4), seeds=1)
    text = str(answer)
    assert answer.nearest is not None and not answer.nearest.fits and len(answer.nearest.differences) > 2
    assert f"(the recipe olmo-2 is nearest, with {len(answer.nearest.differences)} differences): no faults" in text
    assert "--recipe" not in text and "advise --model MODULE:FACTORY" in text


@pytest.mark.parametrize("name", ["four sums a layer", "FFNs on both sides", "a conformer, by no name"])
def test_a_recipe_of_two_sums_a_layer_is_near_to_none_of_others(name: str, beside: Callable[..., None]) -> None:
    """A conformer is not gpt-neox."""
    beside(*RECIPES.keys() - SCHEMES.keys())
    twin = gallery_field.TWINS[name]
    assert audit(twin.build, (2, 4), measures=False).nearest is None


@pytest.mark.wide
@pytest.mark.usefixtures("beyond")
def test_growth_that_is_no_power_is_told_as_exponential() -> None:
    """Post-norm layers whose branches grow with the number of layers; with DeepNorm's gains besides, it is a power. It
    is told by exponents that rise beyond those of any power."""
    for law, layers, is_exponential in ((xavier, (8, 16), True), (gallery_field.by_deepnorm, (4, 8), False)):
        build = transformer(replace(gallery_field.VASWANI, branch_weight=gallery_field.alpha), law)
        answer = audit(build, layers, seeds=1)
        assert [fault.kind for fault in answer.faults] == ["residual-weight"]
        assert (answer.exponential is not None) is is_exponential
        assert ("the update grows exponentially with depth" in repr(answer)) is is_exponential
        assert (answer.document()["exponential"] is not None) is is_exponential
        if answer.exponential is not None:
            told, factors = answer.exponential
            assert told[:4] == [16, 32, 64, 128] and 6 < factors[2] < 10
            assert [*factors] == sorted(factors) and factors[-1] > 16
            assert f"x {factors[0]:.3g} from 16 to 32, x {factors[1]:.3g} from 32 to 64" in " ".join(
                str(answer).split()
            )


def _sum_of_powers(number: int) -> float:
    return 100 * number + number**2


def _beyond_the_floats(number: int) -> float:
    if number > 16:
        raise OverflowError
    return 10.0**number


@pytest.mark.parametrize(
    ("law", "factors"),
    [
        (lambda number: math.exp(0.03 * number), 6),
        (_beyond_the_floats, 3),
        (_sum_of_powers, None),
        (lambda number: math.sqrt(number) + 100, None),
        (float, None),
    ],
)
def test_a_power_has_exponents_that_settle(law: Callable[[int], float], factors: int | None) -> None:
    """Of a sum of two powers they rise first."""
    told = no_power(law, 4)
    assert (None if told is None else len(told.factors)) == factors


@pytest.mark.usefixtures("beyond")
def test_what_overflows_is_not_told_as_a_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks without norms at torch's own initialisation: from 2 to 4 layers they look like a power."""
    monkeypatch.setattr("depthlaw.auditing.audit.FAR", (10_000,))
    build = partial(NoNorms, width=32)
    answer = audit(build, (2, 4), seeds=1)
    assert answer.explodes and answer.exponential is not None
    assert "the update grows exponentially with depth" in repr(answer) and "N^" not in repr(answer)
    assert [fault.says.partition(",")[0] for fault in answer.faults] == ["No norm stands anywhere"]
    monkeypatch.setattr("depthlaw.auditing.audit.exponential", lambda *_: None)
    assert "its numbers explode with depth" in repr(audit(build, (2, 4), seeds=1))


class NoNorms(nn.Module):
    """Pre-norm layers of torch, whose norms do nothing."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        layer = partial(nn.TransformerEncoderLayer, width, 4, 4 * width, 0.0, norm_first=True, batch_first=True)
        self.layers = nn.ModuleList(layer() for _ in range(num_layers))
        for one in self.layers:
            one.norm1, one.norm2 = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            assert isinstance(layer, nn.TransformerEncoderLayer)
            x = x + layer._sa_block(x, None, None)
            x = x + layer._ff_block(x)
        return x


def test_a_mixture_of_experts_is_told_with_its_router(beside: Callable[..., None]) -> None:
    """And what a prediction of it leaves out is not said to be the width alone."""
    beside("llama-2")
    build, _ = hugging_face("mixtral", 64)
    answer = audit(build, (1, 2), seeds=1)
    assert "router" in answer.roles
    assert any("by a router (layers.*.mlp.gate.weight)" in remark for remark in answer.findings.remarks)
    (remark,) = outside(answer.depths[-1], {"update": (23.5, 82.5)})
    assert "nothing else that is known" not in remark and "a few experts of many" in remark
    assert "no prediction of it at any depth" in remark
    off = {"update": (23.5, 82.5)}
    for grown, is_borne_out in ((2.0, True), (9.0, False)):  # the audit and advise say the same of the prediction
        growth = Growth(estimate([1.9, 2.0, 2.1]), grown, 3)
        (remark,) = outside(answer.depths[-1], off, growth)
        assert ("how it grows is as predicted" in remark) is is_borne_out
        assert ("no prediction of it at any depth" in remark) is not is_borne_out
    assert "no differences from the recipe llama-2 beside its mixtures of experts" in repr(answer)


# ---------------------------------------------------------------- a layer beside its siblings, without a claim


def _is(at: Any, layer: int, kind: str = "ffn") -> bool:
    return (at.layer, at.kind) == (layer, kind)


def _norms(*missing: str, where: Callable[[Any], bool]) -> Callable[[Any], frozenset[str]]:
    return lambda at: frozenset({"pre"}) - set(missing) if where(at) else frozenset({"pre"})


def _std(factor: Callable[[Any], float], *roles: str) -> Callable[[Any], float]:
    return lambda matrix: 0.02 * (factor(matrix.place) if matrix.role in (roles or ("fc1",)) else 1.0)


def _last(at: Any) -> bool:
    return at.layer == at.num_layers


@pytest.mark.parametrize(
    ("changes", "law", "kind", "says"),
    often([
        ({"norms": _norms("pre", where=lambda at: _last(at) and at.kind == "ffn")}, gpt_2, "norms",
         "is missing in layer 8 of 8 (and 2 of 2, 4 of 4) alone, in its ffn sublayer."),
        ({"norms": _norms("pre", where=lambda at: _is(at, 2, "attention"))}, gpt_2, "norms",
         "is missing in layer 2 of 8 alone, in its attention sublayer."),
        ({"norms": lambda at: frozenset({"pre", *({"branch"} if _is(at, 3) else ())})}, gpt_2, "norms",
         "stands in layer 3 of 8 alone, in its ffn sublayer."),
        ({"residual_weight": lambda at: 2.0 if at.layer == 2 else 1.0}, gpt_2, "residual-weight",
         "The residual weight in layer 2 of 8 is another than in all other layers."),
        ({"branch_weight": lambda at: 0.1 if _last(at) else 1.0}, gpt_2, "branch-weight",
         "The branch weight in layer 8 of 8 (and 2 of 2, 4 of 4) is another than in all other layers."),
        ({}, _std(lambda at: 10.0 if at.layer == 2 else 1.0), "init-law",
         "The fc1 matrices of layer 2 of 8 start at another scale than all others."),
        ({"norms": _norms("pre", where=lambda at: at.num_layers == 8 and _is(at, 6))}, gpt_2, "norms",
         "is missing in layer 6 of 8 alone, in its ffn sublayer."),
        ({}, _std(lambda at: 10.0 if at.layer == at.num_layers // 2 + 1 else 1.0), "init-law",
         "The fc1 matrices of layer 5 of 8 (and 2 of 2, 3 of 4) start at another scale than all others."),
        ({}, _std(lambda at: (2 * at.num_layers) ** -0.5), "init-law",
         "The fc1 matrices follow a law of depth, and those that write to the stream none."),
        ({"is_fused": False}, _std(lambda at: (2 * at.num_layers) ** -0.5, "q"), "init-law",
         "The q matrices follow a law of depth, and those that write to the stream none."),
    ], 3, wide=1),
)  # fmt: skip
def test_a_layer_unlike_all_its_siblings_is_a_fault_by_itself(
    changes: dict[str, Any], law: Callable[[Any], float], kind: str, says: str
) -> None:
    build = transformer(replace(GPT_2, **changes), law)
    (fault,) = audit(build, (2, 4, 8), measures=False).faults
    assert fault.kind == kind and fault.what.endswith(says)


@pytest.mark.parametrize("claim", often([{}, {"recipe": "gpt2"}], 2, wide=1))
def test_a_layer_unlike_its_siblings_bends_no_law_and_is_mended_at_each_depth(claim: dict[str, Any]) -> None:
    """Of four layers, too, where a deeper model shows that the odd one follows no rule."""
    law = only(_std(lambda at: 10.0 if at.layer == at.num_layers // 2 + 1 else 1.0), "fc1", otherwise=gpt_2)
    build = transformer(GPT_2, law)
    answer = audit(build, (2, 4), measures=False, **claim)
    (fault,) = answer.faults
    assert len(fault.where) == 2 and answer.findings.laws["encoder", "fc1"].text == "0.02"
    assert not audit(mended(build, fault.fix), (2, 4), recipe="gpt2", measures=False).faults


def test_a_law_on_the_wrong_matrices_is_told_beside_matrices_that_start_at_0() -> None:
    of_fc1 = _std(lambda at: (2 * at.num_layers) ** -0.5, "fc1")
    build = transformer(replace(GPT_2, is_fused=False), lambda matrix: 0.0 if matrix.role == "q" else of_fc1(matrix))
    (fault,) = audit(build, (2, 4, 8), measures=False).faults
    assert fault.roles == ("fc1",) and "_q." not in fault.fix


@pytest.mark.parametrize(
    "roles", often([(("fc1", "v"),), (("fc1", "q", "k", "v"),), (("q", "k"),), (("fc1",),)], 2, wide=1)
)
def test_a_law_on_the_wrong_matrices_is_moved_to_the_right_ones(roles: tuple[str, ...]) -> None:
    """The fix, run as it is printed, leaves what the recipe asks for, of the roles that it is about."""
    build = transformer(replace(GPT_2, is_fused=False), _std(lambda at: (2 * at.num_layers) ** -0.5, *roles))
    (fault,) = audit(build, (2, 4, 8), measures=False).faults
    assert fault.roles == roles
    left = {
        role
        for of in audit(mended(build, fault.fix), (2, 4, 8), recipe="gpt2", measures=False).faults
        for role in of.roles
    }
    assert left == ({"out"} if roles == ("fc1",) else set())


def _run_every_other(block: Any) -> None:
    block.forward = (lambda x, memory: x) if block.ffn.at.layer % 2 else block.forward


class LeftEarly(Block):
    """In evaluation, behind half of the layers."""

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        ffn: Any = self.ffn
        at = ffn.at
        return super().forward(x, memory) if self.training or 2 * at.layer <= at.num_layers else x


def _leave_early(block: Any) -> None:
    block.__class__ = LeftEarly


def _convolve(block: Any) -> None:
    """As a hybrid, which attends in each third layer alone."""
    if block.ffn.at.layer % 3:
        block.attention.branch = FeedForward(LLAMA, block.ffn.at, frozenset())


def _another_epsilon(block: Any) -> None:
    block.ffn.pre_norm.eps = 0.1 if block.ffn.at.layer == 2 else 1e-5


BY_THEMSELVES: dict[str, tuple[Shape, Callable[[Any], float], Callable[[Any], Any], str | None]] = {
    "every other layer is run": (LLAMA, flat, _run_every_other, "The module has layers that it does not run."),
    "a hybrid": (LLAMA, flat, _convolve, None),
    "an early exit": (LLAMA, flat, _leave_early, None),
    "a gated FFN is given zeros": (LLAMA, flat, lambda block: nn.init.zeros_(block.ffn.pre_norm.weight),
         "A gated FFN is given zeros alone, so that neither it nor what gives them ever gets a gradient."),
    "an FFN is given zeros": (GPT_2, gpt_2, lambda block: nn.init.zeros_(block.ffn.pre_norm.weight), None),
    "another epsilon in one layer": (LLAMA, flat, _another_epsilon, "The norm before the ffn sublayer of layer 2 of 8 "
         "has another epsilon than all others: about 0.1, beside a second moment of the stream of "),
    "a loop from the second layer on": (GPT_2, only(lambda matrix: 0.02 if matrix.place.layer == 1 else
         gpt_2(matrix), "out", "fc2", otherwise=gpt_2), lambda _: None,
         "The out and fc2 matrices of the first layer start without the law of depth that all others follow."),
    "norms at other places in one layer": (replace(GPT_2, norms=lambda at: frozenset(
        {"branch", "post"} if at.layer == 2 and at.kind == "ffn" else {"pre"})), gpt_2, lambda _: None,
         "Norms stand at other places in layer 2 of 8 alone, in its ffn sublayer."),
    "a trained branch weight": (replace(CAIT, branch_weight=lambda at: 1.0 if _is(at, 2) else 1e-5), flat,
         lambda _: None, "The branch weight in layer 2 of 8 is another than in all other layers."),
}  # fmt: skip


TOLD = ("a hybrid", "an early exit", "another epsilon in one layer")
"""Two that are no fault, and one of one layer alone."""


@pytest.mark.parametrize("name", [*TOLD, *often((name for name in BY_THEMSELVES if name not in TOLD), 6, wide=1)])
def test_what_no_model_means_to_have_is_a_fault_by_itself(name: str) -> None:
    """The fix, where it is of one layer, is told to be of that alone."""
    shape, law, change, says = BY_THEMSELVES[name]

    def build(num_layers: int) -> nn.Module:
        model: Any = transformer(shape, law)(num_layers)
        for block in model.stack.blocks:
            change(block)
        return model

    faults = audit(build, (2, 4, 8), measures=False).faults
    assert [fault.what[: len(says or "")] for fault in faults] == ([says] if says else [])
    if says and "layer 2 of 8" in says:
        assert "# in layer 2 of 8 alone" in faults[0].fix or 'get_parameter("stack.blocks.1.' in faults[0].fix


def test_types_of_transformers_are_taken_or_refused_in_a_line() -> None:
    """Whatever their configurations lack, or do not say of all layers: every tenth, and what once failed."""
    names = [*CONFIG_MAPPING]
    names = names[::10] + [name for name in ("canine", "esm", "dots3_note_text") if name in names]
    taken = 0
    for name in names:
        try:
            taken += callable(hugging_face(name, 64)[0])
        except ValueError as error:
            assert str(error).startswith("--hf: ") and "\n" not in str(error)
    assert taken > len(names) / 3


def test_a_fix_of_several_roles_is_python() -> None:
    """Whose lines stand under the condition that is theirs."""
    law = only(lambda matrix: 0.02 if matrix.place.layer == 3 else gpt_2(matrix), "out", "fc2", otherwise=gpt_2)
    build = transformer(GPT_2, law)
    claims: list[dict[str, Any]] = [{}, {"recipe": "gpt2"}]
    for claim in claims:
        (fault,) = audit(build, (2, 4, 8), measures=False, **claim).faults
        assert fault.roles == ("out", "fc2")
        assert not audit(mended(build, fault.fix), (2, 4), measures=False, recipe="gpt2").faults


@pytest.mark.parametrize("layers", often([((2, 4, 8),), ((3, 6),), ((2, 4),)], 3))
@pytest.mark.parametrize(
    ("changes", "law"),
    often([
        ({"norms": _norms("pre", where=lambda at: _is(at, 1, "attention")), "has_embedding_norm": True}, gpt_2),
        ({"norms": lambda at: frozenset({"pre", *("qk" if at.layer % 4 == 0 and at.kind != "ffn" else "")}),
          "is_fused": False}, gpt_2),
        ({"norms": lambda at: frozenset({"post" if 4 * at.layer <= at.num_layers else "pre"})}, gpt_2),
        ({"norms": lambda at: frozenset({"pre", *(["branch"] if at.layer % 2 else [])})}, gpt_2),
        ({"residual_weight": lambda at: 1.0 if at.layer == 1 else 0.9}, gpt_2),
        ({"branch_weight": lambda at: at.layer**-0.5}, gpt_2),
        ({"branch_weight": lambda at: 0.5 if at.layer % 4 == 0 else 1.0}, gpt_2),
        ({"branch_weight": lambda at: 0.5 if at.layer % 8 == 0 else 1.0}, gpt_2),
        ({"branch_weight": lambda at: 0.5 if at.layer % 6 == 0 else 1.0}, gpt_2),
        ({"branch_weight": lambda at: 0.5 if at.layer % 3 == 0 else 1.0}, gpt_2),
        ({}, _std(lambda at: 10.0 if at.layer == 1 else 1.0)),
        ({}, _std(lambda at: at.layer**-0.5, "out")),
        ({}, _std(lambda at: 1 - at.layer / (at.num_layers + 1), "fc2")),
        ({}, _std(lambda at: 2.0 if at.layer > 0.75 * at.num_layers else 1.0)),
        ({}, _std(lambda at: 3.0 if at.layer % 4 == 0 else 1.0)),
        ({"is_fused": False}, _std(lambda at: (2 * at.num_layers) ** -0.5, *"qkv")),
    ], 3, wide=1),
)  # fmt: skip
def test_layers_that_differ_by_a_pattern_are_no_fault(
    changes: dict[str, Any], law: Callable[[Any], float], layers: tuple[int, ...]
) -> None:
    """The first, every other or fourth, a part of the stack, or each by its index; and a law of queries and keys is
    none of theirs alone where values have it, as in Hugging Face's CLIP."""
    assert not audit(transformer(replace(GPT_2, **changes), law), layers, measures=False).faults
